/*
 * bench_calls.c - what each kind of hooked call and a whole step cost, inside steps of a training
 * that does nothing else. The same program runs bare and under the library; the difference is what
 * the library costs (tools/bench). Libraries that do nothing stand in for CUDA, NCCL and PyTorch
 * (bench_stubs.c, tests/victims/fake_torch.cpp).
 *
 *     bench-calls STEPS [LIBTORCH_PYTHON]
 *
 * With a PyTorch the stages come from its probes, without one from the calls alone. Prints lines
 * "NAME NS": nanoseconds a call, the median over STEPS steps; under callgrind it prints none, and
 * dumps the instructions of each kind under its name and the number of calls, "NAME*CALLS".
 */
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "preload/abi_cuda.h"
#include "preload/abi_nccl.h"
#include "tests/victims/fake_torch_api.h"

#if defined(__has_include)
#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#endif
#endif
#ifndef CALLGRIND_TOGGLE_COLLECT
#define CALLGRIND_TOGGLE_COLLECT      (void)0
#define CALLGRIND_DUMP_STATS_AT(name) (void)(name)
#define RUNNING_ON_VALGRIND           0
#endif

int cudaLaunchKernel(const void *f, struct lg_dim3 grid, struct lg_dim3 block, void **args,
                     size_t shared, void *stream);
int cudaMemcpyAsync(void *to, const void *from, size_t n, int kind, void *stream);
int cudaStreamSynchronize(void *stream);
int cudaEventRecord(void *event, void *stream);
int cudaStreamWaitEvent(void *stream, void *event, unsigned flags);
int cudaMallocAsync(void **to, size_t n, void *stream);
int ncclCommInitRank(void **comm, int size, struct lg_nccl_id id, int rank);
int ncclAllReduce(const void *from, void *to, size_t n, int type, int op, void *comm, void *stream);

/* ---- the calls */

static char streams[2], events[2]; /* compute, NCCL's */
static void *comm;
static sem_t semaphore;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void call_clock(void)
{
    (void)now_ns();
}

static void call_read(void)
{
    char c;
    if (read(-1, &c, 1) != -1)
        abort();
}

static void call_poll(void)
{
    (void)poll(NULL, 0, 0);
}

static void call_sem(void)
{
    sem_post(&semaphore);
    sem_wait(&semaphore);
}

static void call_launch(void)
{
    struct lg_dim3 one = {1, 1, 1};
    cudaLaunchKernel(events, one, one, NULL, 0, &streams[0]);
}

static void call_copy(void)
{
    cudaMemcpyAsync(events, events, 1 << 20, LG_CUDA_HOST_TO_DEVICE, &streams[0]);
}

static void call_record(void)
{
    cudaEventRecord(&events[0], &streams[0]);
}

/* As PyTorch does it: NCCL's stream waits for the gradients, the compute stream for NCCL's. */
static void reduce(size_t n)
{
    ncclAllReduce(events, events, n, 7, 0, comm, &streams[1]);
}

/* Small beside the step's own, so that steps with and without these are of one kind. */
static void call_reduce(void)
{
    reduce(1 << 14);
}

static void call_wait(void)
{
    cudaStreamWaitEvent(&streams[0], &events[1], 0);
}

static void call_malloc(void)
{
    void *there;
    cudaMallocAsync(&there, 512, &streams[0]);
}

static void call_sync(void)
{
    cudaStreamSynchronize(&streams[0]);
}

/* ---- the places in a step where they happen */

enum place { INPUT, COPIES, FORWARD, BACKWARD, OPTIMIZER, END, OTHER_THREAD, NOWHERE };

/* How often a call is repeated is what a step may have of it. */
#define KINDS(X)                                                                                   \
    X(clock_gettime, call_clock, 64, INPUT)                                                        \
    X(read, call_read, 64, INPUT)                                                                  \
    X(poll, call_poll, 64, INPUT)                                                                  \
    X(sem_wait, call_sem, 64, INPUT)                                                               \
    X(cudaMemcpyAsync, call_copy, 4, COPIES)                                                       \
    X(cudaLaunchKernel, call_launch, 64, FORWARD)                                                  \
    X(cudaMallocAsync, call_malloc, 16, FORWARD)                                                   \
    X(ncclAllReduce, call_reduce, 8, BACKWARD)                                                     \
    X(cudaEventRecord, call_record, 16, BACKWARD)                                                  \
    X(cudaStreamWaitEvent, call_wait, 8, BACKWARD)                                                 \
    X(cudaStreamSynchronize, call_sync, 4, END)                                                    \
    X(thread_read, call_read, 64, OTHER_THREAD)                                                    \
    X(thread_cudaLaunchKernel, call_launch, 64, OTHER_THREAD)

static const struct kind {
    const char *name;
    void (*call)(void);
    unsigned calls;
    enum place place;
} kinds[] = {
#define KIND(name, call, calls, place) {#name, call, calls, place},
    KINDS(KIND){"step", NULL, 1, NOWHERE},
};
enum { KIND_COUNT = sizeof kinds / sizeof kinds[0], MOST = 5000, WARM = 20 };

static const struct kind *measured;
static bool collecting;
static uint64_t begun, sample[MOST];
static unsigned samples;

static void begin(void)
{
    if (!collecting)
        return;
    begun = now_ns();
    CALLGRIND_TOGGLE_COLLECT;
}

static void end(void)
{
    if (!collecting)
        return;
    CALLGRIND_TOGGLE_COLLECT;
    sample[samples++] = now_ns() - begun;
}

static void at(enum place place)
{
    if (measured->place != place)
        return;
    begin();
    for (unsigned i = 0; i < measured->calls; i++)
        measured->call();
    end();
}

/* ---- one step */

static struct {
    void (*import)(void);
    void (*label)(const char *name, fake_body body, void *argument);
    long (*execute)(long inputs, int accumulate, fake_body body, void *argument);
} torch;

static void input(void *unused)
{
    (void)unused;
    call_poll();
    at(INPUT);
    call_copy(); /* here the row before ends, where nothing but calls tells */
    at(COPIES);
}

static void forward(void *unused)
{
    (void)unused;
    call_launch();
    at(FORWARD);
    call_launch();
}

static void backward(void *unused)
{
    (void)unused;
    for (int bucket = 0; bucket < 2; bucket++) {
        call_launch();
        call_record();
        reduce(1 << 20);
        cudaEventRecord(&events[1], &streams[1]);
        if (bucket == 0)
            at(BACKWARD);
    }
    call_wait();
}

static void optimizer(void *unused)
{
    (void)unused;
    call_launch();
    at(OPTIMIZER);
}

static void stage(const char *label, fake_body body)
{
    if (torch.label != NULL)
        torch.label(label, body, NULL);
    else
        body(NULL);
}

static void *elsewhere(void *unused)
{
    at(OTHER_THREAD);
    return unused;
}

static void step(void)
{
    pthread_t other;
    if (measured->place == NOWHERE)
        begin();
    stage("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", input);
    stage("DistributedDataParallel.forward", forward);
    if (torch.execute != NULL)
        torch.execute(1, 1, backward, NULL);
    else
        backward(NULL);
    stage("Optimizer.step#SGD.step", optimizer);
    at(END);
    call_sync();
    if (measured->place == NOWHERE)
        end();
    if (measured->place == OTHER_THREAD && pthread_create(&other, NULL, elsewhere, NULL) == 0)
        pthread_join(other, NULL);
}

/* ---- all of them */

static void *symbol(void *library, const char *name)
{
    void *f = library != NULL ? dlsym(library, name) : NULL;
    if (f == NULL) {
        fprintf(stderr, "bench-calls: %s\n", dlerror());
        exit(2);
    }
    return f;
}

static void import(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    *(void **)&torch.import = symbol(library, "fake_import");
    *(void **)&torch.label = symbol(library, "fake_label");
    *(void **)&torch.execute = symbol(library, "fake_execute");
    torch.import();
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void report(void)
{
    char name[64];
    snprintf(name, sizeof name, "%s*%u", measured->name, samples * measured->calls);
    CALLGRIND_DUMP_STATS_AT(name);
    qsort(sample, samples, sizeof sample[0], by_size);
    if (!RUNNING_ON_VALGRIND)
        printf("%s %.3f\n", measured->name, (double)sample[samples / 2] / measured->calls);
}

int main(int argc, char **argv)
{
    struct lg_nccl_id id = {{0}};
    unsigned steps = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
    if (steps == 0 || steps > MOST) {
        fprintf(stderr, "usage: bench-calls STEPS [LIBTORCH_PYTHON]\n");
        return 2;
    }
    sem_init(&semaphore, 0, 0);
    if (argc > 2)
        import(argv[2]);
    ncclCommInitRank(&comm, 2, id, 0);
    for (measured = kinds; measured < kinds + KIND_COUNT; measured++) {
        samples = 0;
        for (unsigned i = 0; i < WARM + steps; i++) {
            collecting = i >= WARM;
            step();
        }
        report();
    }
    return 0;
}
