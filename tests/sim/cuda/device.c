/*
 * device.c - errors, the devices and what they say about themselves.
 * Context: inside the stand-in libcudart, any thread.
 */
#include <stdio.h>
#include <string.h>

#include "internal.h"

static _Thread_local cudaError_t last_error;
static _Thread_local int current;
static _Atomic int used, forked;

/* ---- errors */

cudaError_t sim_fail(cudaError_t error, const char *function)
{
    if (!error)
        return error;
    last_error = error;
    if (sim_knobs()->trace > 0 && (error != cudaErrorNotReady || sim_knobs()->trace > 1))
        fprintf(stderr, "sim: %s -> %d\n", function, (int)error);
    return error;
}

API cudaError_t cudaGetLastError(void)
{
    SIM_ENTER();
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

API cudaError_t cudaPeekAtLastError(void)
{
    SIM_ENTER();
    return last_error;
}

API const char *cudaGetErrorName(cudaError_t error)
{
    SIM_ENTER();
    return error == cudaErrorNotReady ? "cudaErrorNotReady" : error ? "cudaError" : "cudaSuccess";
}

API const char *cudaGetErrorString(cudaError_t error)
{
    SIM_ENTER();
    static _Thread_local char text[40];
    snprintf(text, sizeof text, "stand-in CUDA error %d", (int)error);
    return error ? text : "no error";
}

/* ---- which device */

static void in_child(void)
{
    atomic_store(&forked, atomic_load(&used));
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

int sim_forked(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (!atomic_load_explicit(&used, memory_order_relaxed)) {
        pthread_once(&once, watch_forks);
        atomic_store(&used, 1);
    }
    return atomic_load_explicit(&forked, memory_order_relaxed);
}

int sim_device(void)
{
    return current;
}

API int simDevice(void)
{
    return current;
}

API cudaError_t cudaGetDeviceCount(int *count)
{
    SIM_ENTER();
    *count = atomic_load(&forked) ? 0 : sim_devices();
    return DONE(atomic_load(&forked) ? cudaErrorInitializationError
                : *count             ? cudaSuccess
                                     : cudaErrorNoDevice);
}

API cudaError_t cudaGetDevice(int *device)
{
    SIM_ENTER();
    *device = current;
    return cudaSuccess;
}

API cudaError_t cudaSetDevice(int device)
{
    SIM_ENTER();
    if (device < 0 || device >= sim_devices())
        return DONE(cudaErrorInvalidDevice);
    current = device;
    return cudaSuccess;
}

API cudaError_t cudaRuntimeGetVersion(int *version)
{
    SIM_ENTER();
    *version = CUDART_VERSION;
    return cudaSuccess;
}

API cudaError_t cudaDriverGetVersion(int *version)
{
    SIM_ENTER();
    *version = CUDART_VERSION;
    return cudaSuccess;
}

/* ---- what it is like: X(property, attribute or 0, value) */

#define PROPERTIES(X)                                                                              \
    X(maxThreadsPerBlock, cudaDevAttrMaxThreadsPerBlock, 1024)                                     \
    X(maxThreadsDim[0], cudaDevAttrMaxBlockDimX, 1024)                                             \
    X(maxThreadsDim[1], cudaDevAttrMaxBlockDimY, 1024)                                             \
    X(maxThreadsDim[2], cudaDevAttrMaxBlockDimZ, 64)                                               \
    X(maxGridSize[0], cudaDevAttrMaxGridDimX, 2147483647)                                          \
    X(maxGridSize[1], cudaDevAttrMaxGridDimY, 65535)                                               \
    X(maxGridSize[2], cudaDevAttrMaxGridDimZ, 65535)                                               \
    X(sharedMemPerBlock, cudaDevAttrMaxSharedMemoryPerBlock, 49152)                                \
    X(sharedMemPerBlockOptin, cudaDevAttrMaxSharedMemoryPerBlockOptin, 166912)                     \
    X(sharedMemPerMultiprocessor, cudaDevAttrMaxSharedMemoryPerMultiprocessor, 167936)             \
    X(warpSize, cudaDevAttrWarpSize, 32)                                                           \
    X(regsPerBlock, cudaDevAttrMaxRegistersPerBlock, 65536)                                        \
    X(regsPerMultiprocessor, cudaDevAttrMaxRegistersPerMultiprocessor, 65536)                      \
    X(multiProcessorCount, cudaDevAttrMultiProcessorCount, 108)                                    \
    X(maxThreadsPerMultiProcessor, cudaDevAttrMaxThreadsPerMultiProcessor, 2048)                   \
    X(maxBlocksPerMultiProcessor, cudaDevAttrMaxBlocksPerMultiprocessor, 32)                       \
    X(l2CacheSize, cudaDevAttrL2CacheSize, 40 << 20)                                               \
    X(canMapHostMemory, cudaDevAttrCanMapHostMemory, 1)                                            \
    X(concurrentKernels, cudaDevAttrConcurrentKernels, 1)                                          \
    X(unifiedAddressing, cudaDevAttrUnifiedAddressing, 1)                                          \
    X(cooperativeLaunch, cudaDevAttrCooperativeLaunch, 1)                                          \
    X(hostRegisterSupported, cudaDevAttrHostRegisterSupported, 1)                                  \
    X(major, cudaDevAttrComputeCapabilityMajor, (int)sim_knobs()->capability / 10)                 \
    X(minor, cudaDevAttrComputeCapabilityMinor, (int)sim_knobs()->capability % 10)

API cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    SIM_ENTER();
    if (device < 0 || device >= sim_devices())
        return DONE(cudaErrorInvalidDevice);
    memset(properties, 0, sizeof *properties);
    snprintf(properties->name, sizeof properties->name, "Stand-in GPU");
    properties->uuid.bytes[0] = (char)(device + 1);
    properties->totalGlobalMem = (size_t)sim_knobs()->device_mb << 20;
    properties->memPitch = 2147483647;
    properties->totalConstMem = 65536;
    properties->textureAlignment = 512;
    properties->texturePitchAlignment = 32;
    properties->asyncEngineCount = 3;
    properties->pciBusID = device + 1;
#define SET_PROPERTY(property, attribute, value) properties->property = value;
    PROPERTIES(SET_PROPERTY)
#undef SET_PROPERTY
    return cudaSuccess;
}

API cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    SIM_ENTER();
    if (device < 0 || device >= sim_devices())
        return DONE(cudaErrorInvalidDevice);
    switch ((int)attribute) {
#define GET_ATTRIBUTE(property, number, is)                                                        \
    case number:                                                                                   \
        *value = is;                                                                               \
        break;
        PROPERTIES(GET_ATTRIBUTE)
#undef GET_ATTRIBUTE
    case cudaDevAttrClockRate:
        *value = 1000000; /* kHz: a cycle is a nanosecond */
        break;
    default:
        *value = 0;
    }
    return cudaSuccess;
}

API cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    SIM_ENTER();
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

API cudaError_t cudaDeviceGetPCIBusId(char *id, int size, int device)
{
    SIM_ENTER();
    if (device < 0 || device >= sim_devices())
        return DONE(cudaErrorInvalidDevice);
    snprintf(id, (size_t)size, "0000:%02x:00.0", (unsigned int)device + 1);
    return cudaSuccess;
}

API cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    SIM_ENTER();
    (void)device;
    (void)peer;
    *can = 0;
    return cudaSuccess;
}

API cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
    SIM_ENTER();
    (void)peer;
    (void)flags;
    return cudaSuccess;
}

API cudaError_t cudaProfilerStart(void)
{
    SIM_ENTER();
    return cudaSuccess;
}

API cudaError_t cudaProfilerStop(void)
{
    SIM_ENTER();
    return cudaSuccess;
}

/* ---- functions of the driver: none can be had this way, which callers expect from old drivers */

static cudaError_t no_entry_point(void **function, enum cudaDriverEntryPointQueryResult *status)
{
    *function = NULL;
    if (status)
        *status = cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

API cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function,
                                                 unsigned int version, unsigned long long flags,
                                                 enum cudaDriverEntryPointQueryResult *status)
{
    SIM_ENTER();
    (void)symbol;
    (void)version;
    (void)flags;
    return no_entry_point(function, status);
}

#if CUDART_VERSION < 13000
API cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **function,
                                        unsigned long long flags,
                                        enum cudaDriverEntryPointQueryResult *status)
{
    SIM_ENTER();
    (void)symbol;
    (void)flags;
    return no_entry_point(function, status);
}
#endif
