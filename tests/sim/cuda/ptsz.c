/*
 * ptsz.c - the names that programs built with a default stream per thread call: the same functions
 * with the NULL stream meaning cudaStreamPerThread. Context: inside the stand-in libcudart, any
 * thread.
 */
#include "cuda_crt.h"
#include "internal.h"

static cudaStream_t mine(cudaStream_t stream)
{
    return stream ? stream : cudaStreamPerThread;
}

/* X(name, parameters, arguments). A call counts under both names: here the caller's, there as one
 * more direct call. */
#define PTSZ_FUNCTIONS(X)                                                                          \
    X(cudaMemcpyAsync,                                                                             \
      (void *to, const void *from, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream),    \
      (to, from, size, kind, mine(stream)))                                                        \
    X(cudaMemsetAsync, (void *to, int value, size_t size, cudaStream_t stream),                    \
      (to, value, size, mine(stream)))                                                             \
    X(cudaStreamSynchronize, (cudaStream_t stream), (mine(stream)))                                \
    X(cudaStreamQuery, (cudaStream_t stream), (mine(stream)))                                      \
    X(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned int flags),           \
      (mine(stream), event, flags))                                                                \
    X(cudaStreamIsCapturing, (cudaStream_t stream, enum cudaStreamCaptureStatus * status),         \
      (mine(stream), status))                                                                      \
    X(cudaStreamBeginCapture, (cudaStream_t stream, enum cudaStreamCaptureMode mode),              \
      (mine(stream), mode))                                                                        \
    X(cudaStreamEndCapture, (cudaStream_t stream, cudaGraph_t * graph), (mine(stream), graph))     \
    X(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream), (event, mine(stream)))            \
    X(cudaEventRecordWithFlags, (cudaEvent_t event, cudaStream_t stream, unsigned int flags),      \
      (event, mine(stream), flags))                                                                \
    X(cudaGraphLaunch, (cudaGraphExec_t exec, cudaStream_t stream), (exec, mine(stream)))          \
    X(cudaLaunchHostFunc, (cudaStream_t stream, cudaHostFn_t function, void *arg),                 \
      (mine(stream), function, arg))                                                               \
    X(cudaLaunchKernel,                                                                            \
      (const void *function, dim3 grid, dim3 block, void **args, size_t shared_bytes,              \
       cudaStream_t stream),                                                                       \
      (function, grid, block, args, shared_bytes, mine(stream)))                                   \
    X(__cudaLaunchKernel,                                                                          \
      (cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared_bytes,               \
       cudaStream_t stream),                                                                       \
      (kernel, grid, block, args, shared_bytes, mine(stream)))

#define PTSZ_DEFINE(name, parameters, arguments)                                                   \
    cudaError_t name##_ptsz parameters;                                                            \
    API cudaError_t name##_ptsz parameters                                                         \
    {                                                                                              \
        SIM_ENTER();                                                                               \
        return name arguments;                                                                     \
    }
PTSZ_FUNCTIONS(PTSZ_DEFINE)

cudaError_t cudaLaunchKernelExC_ptsz(const cudaLaunchConfig_t *config, const void *function,
                                     void **args);
API cudaError_t cudaLaunchKernelExC_ptsz(const cudaLaunchConfig_t *config, const void *function,
                                         void **args)
{
    SIM_ENTER();
    cudaLaunchConfig_t own = *config;
    own.stream = mine(own.stream);
    return cudaLaunchKernelExC(&own, function, args);
}

cudaError_t cudaMemcpy_ptds(void *to, const void *from, size_t size, enum cudaMemcpyKind kind);
API cudaError_t cudaMemcpy_ptds(void *to, const void *from, size_t size, enum cudaMemcpyKind kind)
{
    SIM_ENTER();
    cudaError_t error = DONE(sim_capture_forbids());
    if (!error)
        error = cudaMemcpyAsync(to, from, size, kind, cudaStreamPerThread);
    return error ? error : cudaStreamSynchronize(cudaStreamPerThread);
}
