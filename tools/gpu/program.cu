/*
 * program.cu - a plain CUDA program for tools/gpu-check: what it prints must not depend on whether it is
 * traced. Context: run by tools/gpu-check, on a machine with a GPU; built with nvcc and the shared libcudart.
 *
 *     program KIND
 *
 * KIND: loop     a training-like loop: copies, kernels, a graph; prints checksums
 *       nodes    captures a graph of kernels, copies and a fork to another stream; prints its nodes
 *       overlap  kernels of 10 ms and 6 ms side by side, 20 times; prints ms of a pair
 *       errors   calls that fail; prints the last error at each point
 *       costs    prints ns of the host per call: launch, copy, event record, stream wait
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cuda_runtime_api.h>

#ifdef __CUDACC__
/* Busy for that many nanoseconds of the device's global timer; adds one to a counter. */
__global__ void spin(unsigned long long ns, unsigned *counter)
{
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - begin < ns);
    if (counter != NULL)
        *counter += 1;
}
#define SPIN ((const void *)spin)
#else /* the stand-ins: a kernel is an address, and lasts as long as they say */
static int spin;
#define SPIN ((const void *)&spin)
#endif

static void check(cudaError_t e, const char *what)
{
    if (e == cudaSuccess)
        return;
    fprintf(stderr, "program: %s: error %d\n", what, (int)e);
    exit(1);
}
#define CHECK(call) check(call, #call)

static cudaStream_t a, b;
static unsigned *counter;

static void launch(cudaStream_t stream, unsigned long long ns, unsigned *where)
{
    dim3 one;
    one.x = one.y = one.z = 1;
    void *arguments[2];
    arguments[0] = &ns;
    arguments[1] = &where;
    CHECK(cudaLaunchKernel(SPIN, one, one, arguments, 0, stream));
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* ---- kinds */

static void capture(cudaGraph_t *graph, void *to, const void *from, size_t n)
{
    cudaEvent_t fork, join;
    CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    CHECK(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < 5; i++)
        launch(a, 1000, counter);
    CHECK(cudaEventRecord(fork, a));
    CHECK(cudaStreamWaitEvent(b, fork, 0));
    launch(b, 1000, NULL);
    CHECK(cudaMemcpyAsync(to, from, n, cudaMemcpyHostToDevice, a));
    CHECK(cudaEventRecord(join, b));
    CHECK(cudaStreamWaitEvent(a, join, 0));
    CHECK(cudaStreamEndCapture(a, graph));
    CHECK(cudaEventDestroy(fork));
    CHECK(cudaEventDestroy(join));
}

static void nodes(void)
{
    size_t n = 1 << 16, count = 0;
    void *host, *device;
    cudaGraph_t graph;
    CHECK(cudaMallocHost(&host, n));
    CHECK(cudaMalloc(&device, n));
    launch(a, 1000, NULL);
    CHECK(cudaMemcpyAsync(device, host, n, cudaMemcpyHostToDevice, a));
    CHECK(cudaStreamSynchronize(a));
    capture(&graph, device, host, n);
    CHECK(cudaGraphGetNodes(graph, NULL, &count));
    printf("nodes %zu\n", count);
}

/* What was copied in comes out again; the two host buffers are never written while a copy runs. */
static void loop(void)
{
    size_t n = 1 << 20;
    unsigned char *in, *out;
    void *device;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    unsigned launches = 0;
    CHECK(cudaMallocHost((void **)&in, n));
    CHECK(cudaMallocHost((void **)&out, n));
    CHECK(cudaMalloc(&device, n));
    capture(&graph, device, in, n);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int step = 0; step < 50; step++) {
        memset(in, step, n);
        memset(out, 255, n);
        CHECK(cudaMemcpyAsync(device, in, n, cudaMemcpyHostToDevice, a));
        for (int i = 0; i < 20; i++)
            launch(a, 20000, counter);
        CHECK(cudaGraphLaunch(exec, a));
        CHECK(cudaMemcpyAsync(out, device, n, cudaMemcpyDeviceToHost, a));
        CHECK(cudaStreamSynchronize(a));
        printf("step %d: %d %d\n", step, out[0], out[n - 1]);
    }
    CHECK(cudaMemcpy(&launches, counter, sizeof launches, cudaMemcpyDeviceToHost));
    printf("kernels counted: %u\n", launches);
}

static void overlap(void)
{
    enum { ROUNDS = 20 };
    cudaEvent_t begin, end, fork, join;
    float ms;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    launch(a, 50000000, NULL); /* the host gets ahead */
    CHECK(cudaEventRecord(begin, a));
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(cudaEventRecord(fork, a));
        CHECK(cudaStreamWaitEvent(b, fork, 0));
        launch(a, 10000000, NULL);
        launch(b, 6000000, NULL);
        CHECK(cudaEventRecord(join, b));
        CHECK(cudaStreamWaitEvent(a, join, 0));
    }
    CHECK(cudaEventRecord(end, a));
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    printf("overlap %.3f ms\n", (double)ms / ROUNDS);
}

static void say(const char *what, cudaError_t e)
{
    cudaError_t left = cudaPeekAtLastError();
    printf("%s: %d, last error %d\n", what, (int)e, (int)left);
}

static void errors(void)
{
    char host[64];
    void *device, *p;
    cudaEvent_t late;
    CHECK(cudaMalloc(&device, sizeof host));
    CHECK(cudaEventCreate(&late));
    for (int step = 0; step < 20; step++) {
        CHECK(cudaMemcpyAsync(device, host, sizeof host, cudaMemcpyHostToDevice, a));
        launch(a, 100000, NULL);
        say("bad copy", cudaMemcpyAsync(device, host, sizeof host, (enum cudaMemcpyKind)77, a));
        if (step % 2 == 0)
            say("taken", cudaGetLastError());
        say("huge", cudaMalloc(&p, (size_t)1 << 60));
        say("taken", cudaGetLastError());
        launch(a, 3000000, NULL);
        CHECK(cudaEventRecord(late, a));
        say("query", cudaEventQuery(late));
        say("taken", cudaGetLastError());
        CHECK(cudaStreamSynchronize(a));
    }
}

#define COST(name, call)                                                                           \
    do {                                                                                           \
        double best = 1e18;                                                                        \
        for (int round = 0; round < 30; round++) {                                                 \
            CHECK(cudaDeviceSynchronize());                                                        \
            double begin_ = now_ns();                                                              \
            for (int i = 0; i < 500; i++)                                                          \
                call;                                                                              \
            double ns = (now_ns() - begin_) / 500;                                                 \
            best = ns < best ? ns : best;                                                          \
        }                                                                                          \
        printf("%s %.1f\n", name, best);                                                           \
    } while (0)

static void costs(void)
{
    void *host, *device;
    cudaEvent_t e;
    CHECK(cudaMallocHost(&host, 4096));
    CHECK(cudaMalloc(&device, 4096));
    CHECK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    CHECK(cudaEventRecord(e, b));
    COST("launch", launch(a, 0, NULL));
    COST("copy", CHECK(cudaMemcpyAsync(device, host, 64, cudaMemcpyHostToDevice, a)));
    COST("record", CHECK(cudaEventRecord(e, b)));
    COST("wait", CHECK(cudaStreamWaitEvent(a, e, 0)));
}

int main(int argc, char **argv)
{
    const char *kind = argc == 2 ? argv[1] : "";
    CHECK(cudaSetDevice(0));
    CHECK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    CHECK(cudaMalloc((void **)&counter, sizeof *counter));
    CHECK(cudaMemsetAsync(counter, 0, sizeof *counter, a));
    if (strcmp(kind, "loop") == 0)
        loop();
    else if (strcmp(kind, "nodes") == 0)
        nodes();
    else if (strcmp(kind, "overlap") == 0)
        overlap();
    else if (strcmp(kind, "errors") == 0)
        errors();
    else if (strcmp(kind, "costs") == 0)
        costs();
    else {
        fprintf(stderr, "program: loop, nodes, overlap, errors or costs\n");
        return 2;
    }
    CHECK(cudaDeviceSynchronize());
    return 0;
}
