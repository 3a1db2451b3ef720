/*
 * calls.c - a program that records 5 events and launches 3 kernels, 2 of the events while it
 * captures, then prints what the stand-ins counted, a line for each function that it asks about:
 * "FUNCTION direct through own", outside captures and, with a *, within. Context: test program.
 */
#include <stdio.h>

#include "simcuda.h"

static int wrong;

static void must(cudaError_t error)
{
    wrong |= error != cudaSuccess;
}

static void print(const char *function)
{
    for (int capturing = 0; capturing < 2; capturing++)
        printf("%s%s %u %u %u\n", function, capturing ? "*" : "",
               (unsigned int)simCalls(function, SIM_DIRECT, capturing),
               (unsigned int)simCalls(function, SIM_THROUGH, capturing),
               (unsigned int)simCalls(function, SIM_OWN, capturing));
}

int main(void)
{
    static const int function;
    cudaStream_t stream;
    cudaEvent_t event;
    cudaGraph_t graph;
    size_t nodes = 0;
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    must(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    for (int i = 0; i < 3; i++) {
        must(cudaLaunchKernel(&function, (dim3){1, 1, 1}, (dim3){1, 1, 1}, NULL, 0, stream));
        must(cudaEventRecord(event, stream));
    }
    must(cudaEventSynchronize(event));
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    must(cudaEventRecord(event, stream));
    must(cudaEventRecord(event, stream));
    must(cudaStreamEndCapture(stream, &graph));
    must(cudaGraphGetNodes(graph, NULL, &nodes));
    must(cudaPeekAtLastError());
    print("cudaEventRecord");
    print("cudaEventQuery");
    print("cudaEventCreateWithFlags");
    print("cudaStreamIsCapturing");
    print("cudaGetLastError");
    print("cudaLaunchKernel");
    return wrong || nodes;
}
