/*
 * callers.c - the counters, without a tracer (tests/scenarios/sim_cuda_callers has one). Context:
 * test program.
 */
#include <sys/wait.h>

#include "selftest.h"

static const char *calls_are_counted(void)
{
    cudaStream_t s = new_stream(cudaStreamNonBlocking);
    cudaGraph_t graph;
    CHECK(simCalls("cudaLaunchKernel", SIM_DIRECT, 0) == 0);
    CHECK(!launch(1, s) && !launch(1, s) &&
          !cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    CHECK(!launch(1, s) && !cudaStreamEndCapture(s, &graph));
    CHECK(simCalls("cudaLaunchKernel", SIM_DIRECT, 0) == 2);
    CHECK(simCalls("cudaLaunchKernel", SIM_DIRECT, 1) == 1);
    CHECK(simCalls("cudaStreamEndCapture", SIM_DIRECT, 1) == 1);
    CHECK(simCalls("cudaLaunchKernel", SIM_OWN, 0) == 0);
    return NULL;
}

/* A fork child counts for itself. */
static const char *child_counts_alone(void)
{
    int device, status;
    CHECK(!cudaGetDevice(&device));
    if (fork() == 0) {
        for (int i = 0; i < 5; i++)
            cudaGetDevice(&device);
        _exit(0);
    }
    wait(&status);
    CHECK(simCalls("cudaGetDevice", SIM_DIRECT, 0) == 1);
    return NULL;
}

const struct test caller_tests[] = {
    {"counters: calls", calls_are_counted, NULL},
    {"counters: fork child", child_counts_alone, NULL},
    {0},
};
