/*
 * loop.c - a training loop in C as frameworks issue it, for the asynchronous stand-ins: batches
 * copied to the device, launches on one stream, gradients reduced on another, which the first one
 * waits for. Its output must be the same whether or not it is traced. Context: test program; one
 * process a rank (RANK, WORLD_SIZE), which find each other by a file. SECOND_NCCL: a
 * library that is loaded besides.
 *
 *     loop KIND STEPS ID_FILE
 *
 * KIND: plain    prints nothing but the number of steps
 *       errors   makes calls that fail, and prints the thread's last error at each point
 *       overlap  runs kernels on two streams side by side, prints the device's time of a step
 *       many     3000 launches and 100 collectives a step, prints the same
 *       often    the same, and the compute stream waits for each collective
 *       both     has SECOND_NCCL do its part in each step (copies.c)
 *       streams  the training moves to another stream in the middle, and the first one is destroyed
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "simcuda.h"

enum { BATCH = 65536, BUCKETS = 3, LAUNCHES = 12, MOST = 1024 };

static struct {
    int rank, size, steps;
    const char *kind;
    cudaStream_t compute, side, collective;
    cudaEvent_t before, after, joined;
    ncclComm_t comm;
    const char *(*other)(void); /* work with a second NCCL */
    void *device, *pinned;
    cudaEvent_t begin[MOST];
} t;

static int kernel; /* its address stands for a kernel */

static int is(const char *kind)
{
    return strcmp(t.kind, kind) == 0;
}

static void check(int result, const char *what)
{
    if (result == 0)
        return;
    fprintf(stderr, "loop: %s: %d\n", what, result);
    exit(1);
}
#define CHECK(call) check((int)(call), #call)

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? atoi(text) : otherwise;
}

static void exchange_id(ncclUniqueId *id, const char *path)
{
    char temporary[512];
    snprintf(temporary, sizeof temporary, "%s.new", path);
    if (t.rank == 0) {
        FILE *f = fopen(temporary, "w");
        CHECK(ncclGetUniqueId(id));
        if (f == NULL || fwrite(id, sizeof *id, 1, f) != 1 || fclose(f) || rename(temporary, path))
            exit(1);
        return;
    }
    for (FILE *f = NULL; f == NULL;) {
        f = fopen(path, "r");
        if (f == NULL)
            usleep(2000);
        else if (fread(id, sizeof *id, 1, f) != 1)
            exit(1);
    }
}

static void setup(const char *path)
{
    ncclUniqueId id;
    CHECK(cudaSetDevice(t.rank));
    CHECK(cudaStreamCreateWithFlags(&t.compute, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&t.side, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&t.collective, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&t.before, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&t.after, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&t.joined, cudaEventDisableTiming));
    CHECK(cudaMalloc(&t.device, BATCH));
    CHECK(cudaMallocHost(&t.pinned, BATCH));
    exchange_id(&id, path);
    CHECK(ncclCommInitRank(&t.comm, t.size, id, t.rank));
}

static void launch(int count)
{
    const dim3 one = {1, 1, 1};
    for (int i = 0; i < count; i++)
        CHECK(cudaLaunchKernel(&kernel, one, one, NULL, 0, t.compute));
}

static void batch(int file)
{
    if (read(file, t.pinned, BATCH) != BATCH)
        exit(1);
    CHECK(cudaMemcpyAsync(t.device, t.pinned, BATCH, cudaMemcpyHostToDevice, t.compute));
}

static void reduce(void)
{
    CHECK(cudaEventRecord(t.before, t.compute));
    CHECK(cudaStreamWaitEvent(t.collective, t.before, 0));
    CHECK(ncclAllReduce(t.device, t.device, BATCH / 4, ncclFloat32, ncclSum, t.comm, t.collective));
    CHECK(cudaEventRecord(t.after, t.collective));
}

/* Two streams at work side by side, 10 ms and 6 ms: together 10. */
static void overlap(void)
{
    CHECK(cudaEventRecord(t.joined, t.compute));
    CHECK(cudaStreamWaitEvent(t.side, t.joined, 0));
    CHECK(simBusy(t.side, 6000000));
    CHECK(simBusy(t.compute, 10000000));
    CHECK(cudaEventRecord(t.joined, t.side));
    CHECK(cudaStreamWaitEvent(t.compute, t.joined, 0));
}

static void say(const char *what, int value)
{
    printf("rank %d %s: %d, last error %d\n", t.rank, what, value, (int)cudaPeekAtLastError());
}

/* Calls that fail, errors that stay for a while, and errors that are taken. */
static void fail(int step)
{
    cudaEvent_t late;
    void *p;
    CHECK(cudaEventCreate(&late));
    say("begin", step);
    say("bad copy", cudaMemcpyAsync(t.device, t.pinned, BATCH, (enum cudaMemcpyKind)77, t.compute));
    if (step % 3 == 0)
        say("taken", cudaGetLastError());
    launch(2);
    say("after launches", 0);
    say("huge", cudaMalloc(&p, (size_t)1 << 60));
    say("taken", cudaGetLastError());
    CHECK(simBusy(t.compute, 3000000));
    CHECK(cudaEventRecord(late, t.compute));
    say("not ready", cudaEventQuery(late));
    say("still busy", cudaStreamQuery(t.compute));
    if (step % 2 == 0)
        say("taken", cudaGetLastError());
    CHECK(cudaEventSynchronize(late));
    say("end", step);
    cudaGetLastError();
    CHECK(cudaEventDestroy(late));
}

static void move_to_other_stream(void)
{
    cudaStream_t old = t.compute;
    CHECK(cudaStreamSynchronize(old));
    CHECK(cudaStreamCreateWithFlags(&t.compute, cudaStreamNonBlocking));
    CHECK(cudaStreamDestroy(old));
}

static void step(int file, int i)
{
    int often = is("often"), many = often || is("many");
    batch(file);
    launch(many ? 1000 : LAUNCHES);
    for (int b = 0; b < (many ? 100 : BUCKETS); b++) {
        launch(many ? 20 : LAUNCHES / BUCKETS);
        reduce();
        if (often)
            CHECK(cudaStreamWaitEvent(t.compute, t.after, 0));
    }
    if (t.other != NULL)
        t.other();
    if (is("overlap"))
        overlap();
    CHECK(cudaStreamWaitEvent(t.compute, t.after, 0));
    launch(2);
    if (is("errors"))
        fail(i);
    if (is("streams") && i == t.steps / 2)
        move_to_other_stream();
}

/* Device time of a step, median, in units of 0.1 ms. */
static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void print_time(void)
{
    float ms[MOST];
    for (int i = 0; i + 1 < t.steps; i++)
        CHECK(cudaEventElapsedTime(&ms[i], t.begin[i], t.begin[i + 1]));
    qsort(ms, (size_t)t.steps - 1, sizeof *ms, by_value);
    printf("rank %d step %.1f ms\n", t.rank, (double)ms[(t.steps - 1) / 2]);
}

static void open_second(void)
{
    const char *path = getenv("SECOND_NCCL");
    void *handle = path != NULL ? dlopen(path, RTLD_NOW) : NULL;
    if (path != NULL && handle == NULL)
        exit(1);
    if (!is("both"))
        return;
    union {
        void *object;
        const char *(*function)(void);
    } u = {dlsym(handle, "work")};
    t.other = u.function;
    if (t.other == NULL)
        exit(1);
}

int main(int argc, char **argv)
{
    int file = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    t.steps = argc == 4 ? atoi(argv[2]) : 0;
    if (t.steps < 1 || t.steps > MOST || file < 0) {
        fprintf(stderr, "loop: needs KIND STEPS ID_FILE\n");
        return 2;
    }
    t.kind = argv[1];
    t.rank = number("RANK", 0);
    t.size = number("WORLD_SIZE", 1);
    setup(argv[3]);
    open_second();
    int timed = is("overlap") || is("many") || is("often");
    for (int i = 0; i < t.steps; i++) {
        simStep((uint64_t)i);
        if (timed) {
            CHECK(cudaEventCreate(&t.begin[i]));
            CHECK(cudaEventRecord(t.begin[i], t.compute));
        }
        step(file, i);
    }
    CHECK(cudaDeviceSynchronize());
    if (timed)
        print_time();
    CHECK(ncclCommDestroy(t.comm));
    printf("rank %d finished %d steps\n", t.rank, t.steps);
    return 0;
}
