/*
 * selftest.h - the small harness of the stand-ins' own test. Every test runs in a process of its
 * own with the settings it names, so that each starts with unused libraries. Times are asserted on
 * the ideal clock, or as lower bounds of what the host waits; never as an upper bound of real time.
 * Context: test program.
 */
#ifndef SIM_CUDA_SELFTEST_H
#define SIM_CUDA_SELFTEST_H

#include <cuda_runtime_api.h>
#include <stdio.h>

#include "simcuda.h"

#define MS 1000000ull

struct test {
    const char *name;
    const char *(*run)(void); /* NULL, or what went wrong */
    const char *settings;     /* "NAME=value NAME=value", NULL: none */
};

/* Ends with {0}. */
extern const struct test clock_tests[], event_tests[], copy_tests[], capture_tests[], graph_tests[],
    nccl_tests[], caller_tests[];

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return #condition;                                                                     \
    } while (0)

/* A failed call that must fail in just this way; the last error is cleared. */
#define FAILS(call, error)                                                                         \
    do {                                                                                           \
        CHECK((call) == (error));                                                                  \
        CHECK(cudaGetLastError() == (error));                                                      \
    } while (0)

/* An event recorded now. */
static inline cudaEvent_t recorded(cudaStream_t stream)
{
    cudaEvent_t event;
    if (cudaEventCreate(&event) || cudaEventRecord(event, stream))
        fprintf(stderr, "no event\n");
    return event;
}

/* Whether the device took exactly so long from one event to the other; waits for the latter. */
static inline int took(cudaEvent_t from, cudaEvent_t to, double ms)
{
    float is = -1;
    if (cudaEventSynchronize(to) || cudaEventElapsedTime(&is, from, to))
        return 0;
    double off = (double)is - ms;
    if (off > 0.0005 || off < -0.0005)
        fprintf(stderr, "took %.4f ms, not %.4f\n", (double)is, ms);
    return off <= 0.0005 && off >= -0.0005;
}

/* One launch of a kernel of `blocks` blocks. */
static inline cudaError_t launch(unsigned int blocks, cudaStream_t stream)
{
    static const int function;
    return cudaLaunchKernel(&function, (dim3){blocks, 1, 1}, (dim3){32, 1, 1}, NULL, 0, stream);
}

/* Keeps the stream busy for so long that all that follows is issued ahead of it. */
static inline cudaError_t gate(cudaStream_t stream)
{
    return simBusy(stream, 100 * MS);
}

static inline cudaStream_t new_stream(unsigned int flags)
{
    cudaStream_t stream = NULL;
    if (cudaStreamCreateWithFlags(&stream, flags))
        fprintf(stderr, "no stream\n");
    return stream;
}

#endif
