/*
 * selftest.c - what the stand-ins for libcudart and libnccl promise, tested by ranks in processes
 * of their own. Times are asserted on the stand-ins' ideal clock or as lower bounds only. Context:
 * test program; prints "N passed, N failed".
 */
#include <cuda_crt.h>
#include <nccl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "sim.h"

#define RANKS 4

static int passed, failed;

/* Each test returns NULL or what went wrong. Ranks get the id of a communicator. */
typedef const char *(*test_fn)(void);
typedef const char *(*rank_fn)(ncclComm_t comm, int rank);

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return #condition;                                                                     \
    } while (0)

static void run(const char *name, test_fn test)
{
    const char *wrong = test();
    if (wrong)
        printf("FAIL %s: %s\n", name, wrong);
    wrong ? failed++ : passed++;
}

/* ---- ranks: children that join one communicator; the first complaint is the test's */

static const char *run_ranks(int ranks, rank_fn body)
{
    static char complaint[200];
    ncclUniqueId id;
    CHECK(!ncclGetUniqueId(&id));
    char *said =
        mmap(NULL, sizeof complaint, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(said != MAP_FAILED);
    for (int r = 0; r < ranks; r++)
        if (fork() == 0) {
            ncclComm_t comm;
            const char *wrong = ncclCommInitRank(&comm, ranks, id, r) ? "init" : body(comm, r);
            if (wrong)
                snprintf(said, sizeof complaint, "rank %d: %s", r, wrong);
            _exit(0);
        }
    int status, died = 0;
    while (wait(&status) > 0)
        died |= WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL;
    memcpy(complaint, said, sizeof complaint);
    munmap(said, sizeof complaint);
    return *complaint ? complaint : died ? "a rank crashed" : NULL;
}

/* ---- libcudart */

static const char *test_copies(void)
{
    void *device;
    char back[8] = "";
    CHECK(!cudaMalloc(&device, 8));
    CHECK(!cudaMemcpy(device, "seven..", 8, cudaMemcpyHostToDevice));
    CHECK(!cudaMemcpy(back, device, 8, cudaMemcpyDeviceToHost));
    CHECK(!strcmp(back, "seven.."));
    CHECK(cudaMemcpy(device, back, 8, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    CHECK(cudaPeekAtLastError() == cudaErrorInvalidValue);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue && cudaGetLastError() == cudaSuccess);
    CHECK(!cudaFree(device) && cudaFree(device) == cudaErrorInvalidValue);
    cudaGetLastError();
    return NULL;
}

static const char *test_device_pointer_kills(void)
{
    void *device;
    CHECK(!cudaMalloc(&device, 8));
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        _exit(*(volatile char *)device);
    }
    int status;
    waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    CHECK(!cudaFree(device));
    return NULL;
}

static const char *test_ideal_clock(void)
{
    cudaStream_t stream;
    cudaEvent_t begin, end;
    float ms;
    CHECK(!cudaStreamCreate(&stream) && !cudaEventCreate(&begin) && !cudaEventCreate(&end));
    uint64_t before = sim_now();
    static const int function;
    CHECK(!cudaLaunchKernel(&function, (dim3){1, 1, 1}, (dim3){1, 1, 1}, NULL, 0, stream));
    CHECK(!cudaEventRecord(begin, stream));
    CHECK(!cudaLaunchKernel(&function, (dim3){500, 4, 1}, (dim3){1, 1, 1}, NULL, 0, stream));
    CHECK(!cudaEventRecord(end, stream));
    CHECK(sim_now() - before >= 2000000);
    CHECK(!cudaEventQuery(end) && !cudaEventElapsedTime(&ms, begin, end));
    CHECK(ms >= 2.0f);
    CHECK(!cudaEventDestroy(begin) && !cudaEventDestroy(end) && !cudaStreamDestroy(stream));
    return NULL;
}

struct add {
    double *to;
    double what;
};

static void add(void *arg)
{
    struct add *a = arg;
    *(double *)simHost(a->to) += a->what;
}

static const char *test_kernel_body(void)
{
    static const int function;
    void *device;
    double value = 1;
    CHECK(!cudaMalloc(&device, sizeof value));
    CHECK(!cudaMemcpy(device, &value, sizeof value, cudaMemcpyHostToDevice));
    simKernel(&function, add, sizeof(struct add));
    void *args[] = {&(struct add){device, 2}};
    dim3 one = {1, 1, 1};
    cudaKernel_t kernel;
    cudaLaunchConfig_t config = {.gridDim = one, .blockDim = one};
    CHECK(!cudaLaunchKernel(&function, one, one, args, 0, NULL));
    CHECK(!cudaLaunchKernelExC(&config, &function, args));
    CHECK(!__cudaGetKernel(&kernel, &function));
    CHECK(!__cudaLaunchKernel(kernel, one, one, args, 0, NULL));
    CHECK(!cudaMemcpy(&value, device, sizeof value, cudaMemcpyDeviceToHost));
    CHECK(value == 7);
    CHECK(!cudaFree(device));
    return NULL;
}

/* ---- libnccl */

/* The sum over ranks of rank + 1 is 10; 100000 doubles go in several chunks. */
static const char *reduce_rank(ncclComm_t comm, int rank)
{
    enum { N = 100000 };
    static double values[N];
    void *device;
    CHECK(!cudaMalloc(&device, sizeof values));
    for (int i = 0; i < N; i++)
        values[i] = (rank + 1) * (double)i;
    CHECK(!cudaMemcpy(device, values, sizeof values, cudaMemcpyHostToDevice));
    CHECK(!ncclAllReduce(device, device, N, ncclFloat64, ncclSum, comm, NULL));
    CHECK(!ncclAllReduce(device, device, N, ncclFloat64, ncclAvg, comm, NULL));
    CHECK(!cudaMemcpy(values, device, sizeof values, cudaMemcpyDeviceToHost));
    for (int i = 0; i < N; i++)
        CHECK(values[i] == 10.0 * i);
    return NULL;
}

static const char *test_all_reduce(void)
{
    return run_ranks(RANKS, reduce_rank);
}

static const char *move_rank(ncclComm_t comm, int rank)
{
    float mine[RANKS], all[RANKS], part = -1;
    int size, self;
    CHECK(!ncclCommCount(comm, &size) && size == RANKS);
    CHECK(!ncclCommUserRank(comm, &self) && self == rank);
    for (int i = 0; i < RANKS; i++)
        mine[i] = (float)(10 * rank + i);
    CHECK(!ncclAllGather(mine, all, 1, ncclFloat32, comm, NULL));
    for (int i = 0; i < RANKS; i++)
        CHECK(all[i] == (float)(10 * i));
    CHECK(!ncclReduceScatter(mine, &part, 1, ncclFloat32, ncclSum, comm, NULL));
    CHECK(part == (float)(60 + 4 * rank));
    CHECK(!ncclGroupStart());
    CHECK(!ncclBroadcast(mine, mine, RANKS, ncclFloat32, 2, comm, NULL));
    CHECK(mine[0] == (float)(10 * rank)); /* nothing moves before the end of the group */
    CHECK(!ncclGroupEnd());
    CHECK(mine[0] == 20 && mine[3] == 23);
    CHECK(ncclAllReduce(mine, mine, 1, ncclFloat16, ncclSum, comm, NULL) == ncclInvalidArgument);
    return NULL;
}

static const char *test_moves(void)
{
    return run_ranks(RANKS, move_rank);
}

/* Everybody leaves a collective only after its last rank has come. */
static const char *late_rank(ncclComm_t comm, int rank)
{
    float value = 0;
    int64_t came = 0;
    if (rank == 1)
        sim_sleep_until(sim_now() + 30000000);
    came = (int64_t)sim_now();
    CHECK(!ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm, NULL));
    int64_t left = (int64_t)sim_now(), last = came;
    CHECK(!ncclAllReduce(&came, &last, 1, ncclInt64, ncclMax, comm, NULL));
    CHECK(left >= last);
    return NULL;
}

static const char *test_waits(void)
{
    return run_ranks(RANKS, late_rank);
}

/* Rank 3 dies; the others come back with an error within the time limit. */
static const char *dead_rank(ncclComm_t comm, int rank)
{
    float value = 0;
    if (rank == 3)
        kill(getpid(), SIGKILL);
    setenv("SIM_TIMEOUT_MS", "200", 1);
    CHECK(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm, NULL) == ncclRemoteError);
    ncclResult_t error;
    CHECK(!ncclCommGetAsyncError(comm, &error) && error == ncclRemoteError);
    return NULL;
}

static const char *test_dead_peer(void)
{
    return run_ranks(RANKS, dead_rank);
}

static const char *abort_rank(ncclComm_t comm, int rank)
{
    float value = 0;
    setenv("SIM_TIMEOUT_MS", "600000", 1);
    if (rank == 0)
        return ncclCommAbort(comm) ? "abort" : NULL;
    CHECK(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm, NULL) == ncclRemoteError);
    return NULL;
}

static const char *test_abort(void)
{
    return run_ranks(RANKS, abort_rank);
}

static const char *many_rank(ncclComm_t comm, int rank)
{
    float value = (float)rank;
    CHECK(!ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm, NULL));
    CHECK(value == 127 * 128 / 2);
    return NULL;
}

static const char *test_128_ranks(void)
{
    return run_ranks(128, many_rank);
}

int main(void)
{
    run("copies", test_copies);
    run("device pointer", test_device_pointer_kills);
    run("ideal clock", test_ideal_clock);
    run("kernel body", test_kernel_body);
    run("all-reduce", test_all_reduce);
    run("moves", test_moves);
    run("waits", test_waits);
    run("dead peer", test_dead_peer);
    run("abort", test_abort);
    run("128 ranks", test_128_ranks);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
