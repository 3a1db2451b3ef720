/*
 * cuda.c - stand-in for libcuda.so.1: only what libcaffe2_nvrtc needs to load and to learn that
 * there is a context. Everything else that PyTorch imports is generated and answers "not supported"
 * (801). Context: loaded in place of the real library, any thread. libcudart's stand-in does not
 * use it.
 */
#include <cuda.h>
#include <stdint.h>

#include "simcuda.h"

#define API __attribute__((visibility("default")))

static _Thread_local CUcontext current;

API CUresult cuInit(unsigned int flags)
{
    SIM_ENTER();
    (void)flags;
    return CUDA_SUCCESS;
}

API CUresult cuDriverGetVersion(int *version)
{
    SIM_ENTER();
    *version = CUDART_VERSION;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    SIM_ENTER();
    *device = ordinal;
    return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    SIM_ENTER();
    (void)device;
    if (flags)
        *flags = 0;
    *active = 1;
    return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    SIM_ENTER();
    *context = (CUcontext)(uintptr_t)(device + 1);
    return CUDA_SUCCESS;
}

/* The runtime makes a context current wherever it is used. */
API CUresult cuCtxGetCurrent(CUcontext *context)
{
    SIM_ENTER();
    *context = current ? current : (CUcontext)(uintptr_t)1;
    return CUDA_SUCCESS;
}

API CUresult cuCtxSetCurrent(CUcontext context)
{
    SIM_ENTER();
    current = context;
    return CUDA_SUCCESS;
}

API CUresult cuGetErrorString(CUresult error, const char **text)
{
    SIM_ENTER();
    *text = error ? "not in the stand-in driver" : "no error";
    return CUDA_SUCCESS;
}

API CUresult cuGetErrorName(CUresult error, const char **text)
{
    SIM_ENTER();
    *text = error ? "CUDA_ERROR_NOT_SUPPORTED" : "CUDA_SUCCESS";
    return CUDA_SUCCESS;
}
