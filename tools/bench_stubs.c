/*
 * bench_stubs.c - a libcudart and a libnccl in one whose functions do nothing, for the overhead
 * benchmark: what a call costs there is the call itself, so what tracing adds stands out. Events
 * have always happened. Context: linked into tools/bench_calls.c.
 */
#include <stddef.h>

#include "preload/abi_cuda.h"
#include "preload/abi_nccl.h"

#define STUB(name, ...)                                                                            \
    int name(__VA_ARGS__);                                                                         \
    int name(__VA_ARGS__)
#define NOTHING                                                                                    \
    {                                                                                              \
        return 0;                                                                                  \
    }

typedef void *p;
typedef const void *cp;

STUB(cudaLaunchKernel, cp f, struct lg_dim3 g, struct lg_dim3 b, p *a, size_t n, p s)
NOTHING STUB(cudaMemcpyAsync, p to, cp from, size_t n, int kind, p stream) NOTHING
    STUB(cudaStreamSynchronize, p stream) NOTHING STUB(cudaEventRecord, p event, p stream) NOTHING
    STUB(cudaEventRecordWithFlags, p event, p stream, unsigned flags) NOTHING
    STUB(cudaStreamWaitEvent, p stream, p event, unsigned flags) NOTHING
    STUB(cudaMallocAsync, p *to, size_t n, p stream) NOTHING STUB(cudaGetLastError, void) NOTHING
    STUB(cudaPeekAtLastError, void) NOTHING STUB(cudaEventQuery, p event) NOTHING

    STUB(cudaEventCreateWithFlags, p *event, unsigned flags)
{
    static char events[65536];
    static size_t next;
    (void)flags;
    *event = &events[next++ % sizeof events];
    return 0;
}

STUB(cudaEventElapsedTime, float *ms, p from, p to)
{
    (void)from, (void)to;
    *ms = 0.01F;
    return 0;
}

STUB(cudaGetDevice, int *device)
{
    *device = 0;
    return 0;
}

STUB(cudaStreamIsCapturing, p stream, int *status)
{
    (void)stream;
    *status = LG_CUDA_CAPTURE_NONE;
    return 0;
}

STUB(cudaThreadExchangeStreamCaptureMode, int *mode)
{
    static int now;
    int before = now;
    now = *mode;
    *mode = before;
    return 0;
}

STUB(ncclCommInitRank, p *comm, int size, struct lg_nccl_id id, int rank)
{
    static char one;
    (void)size, (void)id, (void)rank;
    *comm = &one;
    return 0;
}

STUB(ncclGetVersion, int *version)
{
    *version = 22705;
    return 0;
}

STUB(ncclAllReduce, cp from, p to, size_t n, int type, int op, p comm, p stream) NOTHING
