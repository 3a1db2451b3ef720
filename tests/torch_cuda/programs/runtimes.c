/*
 * runtimes.c - a process with two CUDA runtimes: half of it was linked to libcudart.so.12, half to
 * libcudart.so.13. Every call must reach the one that its caller was linked to. Context: test
 * program; compiled three times: HALF=12 and HALF=13 make the halves (shared libraries), without
 * HALF the program.
 */
#include <stdio.h>

#include <cuda_runtime_api.h>

#include "simcuda.h"

#define PASTE(a, b) a##b
#define NAME(a, b)  PASTE(a, b)
#define DECLARE(half)                                                                              \
    int NAME(work_, half)(int launches);                                                           \
    unsigned long NAME(calls_, half)(void);

DECLARE(12)
DECLARE(13)

#ifdef HALF

static int kernel;

int NAME(work_, HALF)(int launches)
{
    const dim3 one = {1, 1, 1};
    static char host[4096];
    void *device;
    int bad = (int)cudaMalloc(&device, sizeof host);
    bad |= (int)cudaMemcpy(device, host, sizeof host, cudaMemcpyHostToDevice);
    for (int i = 0; i < launches; i++)
        bad |= (int)cudaLaunchKernel(&kernel, one, one, NULL, 0, NULL);
    return bad | (int)cudaDeviceSynchronize() | (int)cudaFree(device);
}

unsigned long NAME(calls_, HALF)(void)
{
    return (unsigned long)(simCalls("cudaLaunchKernel", SIM_DIRECT, 0) +
                           simCalls("cudaLaunchKernel", SIM_THROUGH, 0));
}

#else

int main(void)
{
    int bad = 0;
    for (int i = 0; i < 20; i++)
        bad |= work_12(3) | work_13(5);
    printf("%s, launches: %lu by 12, %lu by 13\n", bad != 0 ? "failed" : "worked", calls_12(),
           calls_13());
    return bad != 0;
}

#endif
