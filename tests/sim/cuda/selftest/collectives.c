/*
 * collectives.c - NCCL: every rank is a process (or a thread's device), and all of them compare
 * what they got and when. Context: test program.
 */
#include <nccl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "selftest.h"

#define RANKS 4

typedef const char *(*rank_fn)(ncclComm_t comm, int rank);

static void as_rank(rank_fn body, int ranks, ncclUniqueId id, int rank, char *said)
{
    ncclComm_t comm;
    char number[12];
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* no rank outlives a test that hangs */
    snprintf(number, sizeof number, "%d", rank);
    setenv("RANK", number, 1);
    const char *wrong = ncclCommInitRank(&comm, ranks, id, rank) ? "init" : body(comm, rank);
    if (wrong && !*said)
        snprintf(said, 200, "rank %d: %s", rank, wrong);
    _exit(0);
}

/* Runs `body` in one process per rank; the first complaint is the test's. */
static const char *run_ranks(int ranks, rank_fn body)
{
    static char complaint[200];
    ncclUniqueId id;
    CHECK(!ncclGetUniqueId(&id));
    char *said =
        mmap(NULL, sizeof complaint, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int r = 0; r < ranks; r++)
        if (fork() == 0)
            as_rank(body, ranks, id, r, said);
    int status, died = 0;
    while (wait(&status) > 0)
        died |= WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL;
    memcpy(complaint, said, sizeof complaint);
    return *complaint ? complaint : died ? "a rank crashed" : NULL;
}

/* A buffer on the device with these values. */
static void *device_copy(const void *values, size_t size)
{
    void *device = NULL;
    if (cudaMalloc(&device, size) || cudaMemcpy(device, values, size, cudaMemcpyHostToDevice))
        fprintf(stderr, "no buffer\n");
    return device;
}

/* ---- values */

static const char *reduce_rank(ncclComm_t comm, int rank)
{
    enum { N = 200000 }; /* several chunks */
    static double d[N];
    for (int i = 0; i < N; i++)
        d[i] = (rank + 1) * (double)i;
    void *buffer = device_copy(d, 100000 * sizeof *d);
    CHECK(!ncclAllReduce(buffer, buffer, 100000, ncclFloat64, ncclSum, comm, NULL));
    CHECK(!ncclAllReduce(buffer, buffer, 100000, ncclFloat64, ncclAvg, comm, NULL));
    CHECK(!cudaMemcpy(d, buffer, 100000 * sizeof *d, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 100000; i++)
        CHECK(d[i] == 10.0 * i);
    return NULL;
}

static const char *all_reduce(void)
{
    return run_ranks(RANKS, reduce_rank);
}

static const char *types_rank(ncclComm_t comm, int rank)
{
    /* 1.5 + rank in half and in bfloat16: the sum 12 and the largest 4.5 */
    static const uint16_t half[] = {0x3e00, 0x4100, 0x4300, 0x4480};
    static const uint16_t brain[] = {0x3fc0, 0x4020, 0x4060, 0x4090};
    uint16_t *h = device_copy(&half[rank], 2), *b = device_copy(&brain[rank], 2), got[2];
    int64_t wide = (int64_t)1 << 40 << rank, *w = device_copy(&wide, 8), sum;
    uint8_t small = (uint8_t)(rank + 1), *s = device_copy(&small, 1), product;
    CHECK(!ncclAllReduce(h, h, 1, ncclFloat16, ncclSum, comm, NULL));
    CHECK(!ncclAllReduce(b, b, 1, ncclBfloat16, ncclMax, comm, NULL));
    CHECK(!ncclAllReduce(w, w, 1, ncclInt64, ncclSum, comm, NULL));
    CHECK(!ncclAllReduce(s, s, 1, ncclUint8, ncclProd, comm, NULL));
    CHECK(!cudaMemcpy(&got[0], h, 2, cudaMemcpyDeviceToHost) && got[0] == 0x4a00);
    CHECK(!cudaMemcpy(&got[1], b, 2, cudaMemcpyDeviceToHost) && got[1] == 0x4090);
    CHECK(!cudaMemcpy(&sum, w, 8, cudaMemcpyDeviceToHost) && sum == (int64_t)15 << 40);
    CHECK(!cudaMemcpy(&product, s, 1, cudaMemcpyDeviceToHost) && product == 24);
    return NULL;
}

static const char *types(void)
{
    return run_ranks(RANKS, types_rank);
}

static int floats_are(const void *device, const float *expected, size_t count)
{
    float got[16];
    return !cudaMemcpy(got, device, count * sizeof *got, cudaMemcpyDeviceToHost) &&
           !memcmp(got, expected, count * sizeof *got);
}

static const char *move_rank(ncclComm_t comm, int rank)
{
    float mine[RANKS], all[RANKS], column[RANKS], zero[RANKS] = {0};
    for (int i = 0; i < RANKS; i++) {
        mine[i] = (float)(10 * rank + i);
        all[i] = (float)(10 * i);
        column[i] = (float)(10 * i + rank);
    }
    float reduced = (float)(60 + 4 * rank), scattered = (float)(20 + rank);
    void *from = device_copy(mine, sizeof mine), *to = device_copy(zero, sizeof zero);
    CHECK(!ncclAllGather(from, to, 1, ncclFloat32, comm, NULL) && floats_are(to, all, RANKS));
    CHECK(!ncclReduceScatter(from, to, 1, ncclFloat32, ncclSum, comm, NULL));
    CHECK(floats_are(to, &reduced, 1));
    CHECK(!ncclAlltoAll(from, to, 1, ncclFloat32, comm, NULL) && floats_are(to, column, RANKS));
    CHECK(!ncclScatter(from, to, 1, ncclFloat32, 2, comm, NULL) && floats_are(to, &scattered, 1));
    CHECK(!ncclGather(from, to, 1, ncclFloat32, 1, comm, NULL));
    CHECK(rank != 1 || floats_are(to, all, RANKS));
    CHECK(!ncclReduce(from, to, 1, ncclFloat32, ncclMin, 3, comm, NULL));
    CHECK(rank != 3 || floats_are(to, zero, 1));
    CHECK(!ncclGroupStart() && !ncclBroadcast(from, from, 1, ncclFloat32, 2, comm, NULL));
    CHECK(!cudaDeviceSynchronize() && floats_are(from, mine, RANKS)); /* not before GroupEnd */
    CHECK(!ncclGroupEnd() && floats_are(from, (float[]){20}, 1));
    return NULL;
}

static const char *moves(void)
{
    return run_ranks(RANKS, move_rank);
}

/* Everyone sends two messages to everyone, the rank itself included. */
static const char *transfer_rank(ncclComm_t comm, int rank)
{
    enum { N = 40000 }; /* several boxes */
    static float out[N];
    float *from[2], *to[RANKS][2];
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < N; i++)
            out[i] = (float)(1000 * k + rank);
        from[k] = device_copy(out, sizeof out);
    }
    CHECK(!ncclGroupStart());
    for (int r = 0; r < RANKS; r++)
        for (int k = 0; k < 2; k++) {
            to[r][k] = device_copy(out, sizeof out);
            CHECK(!ncclSend(from[k], N, ncclFloat32, r, comm, NULL));
            CHECK(!ncclRecv(to[r][k], N, ncclFloat32, r, comm, NULL));
        }
    CHECK(!ncclGroupEnd());
    for (int r = 0; r < RANKS; r++)
        for (int k = 0; k < 2; k++)
            CHECK(floats_are(to[r][k] + N - 1, (float[]){(float)(1000 * k + r)}, 1));
    return NULL;
}

static const char *transfers(void)
{
    return run_ranks(RANKS, transfer_rank);
}

/* ---- times: rank 2 is 30 ms late on the device; everybody ends 2 ms after it */

static const char *late_rank(ncclComm_t comm, int rank)
{
    float value = 1, *buffer = device_copy(&value, sizeof value);
    CHECK(!gate(NULL));
    CHECK(!ncclAllReduce(buffer, buffer, 1, ncclFloat32, ncclSum, comm, NULL)); /* a common start */
    cudaEvent_t begin = recorded(NULL);
    CHECK(!simBusy(NULL, (rank == 2 ? 35 : 5) * MS));
    cudaEvent_t middle = recorded(NULL);
    CHECK(!ncclAllReduce(buffer, buffer, 1, ncclFloat32, ncclSum, comm, NULL));
    cudaEvent_t end = recorded(NULL);
    CHECK(took(begin, end, 37) && took(middle, end, rank == 2 ? 2 : 32));
    return NULL;
}

static const char *late(void)
{
    return run_ranks(RANKS, late_rank);
}

/* Issuing returns at once, even if a peer never comes. */
static const char *asynchronous_rank(ncclComm_t comm, int rank)
{
    float value = 1, *buffer = device_copy(&value, sizeof value);
    if (rank == 0)
        return NULL;
    CHECK(!ncclAllReduce(buffer, buffer, 1, ncclFloat32, ncclSum, comm, NULL));
    FAILS(cudaEventQuery(recorded(NULL)), cudaErrorNotReady);
    return NULL;
}

static const char *asynchronous(void)
{
    return run_ranks(2, asynchronous_rank);
}

/* Collectives of one communicator keep their order, even on streams that run side by side. */
static const char *order_rank(ncclComm_t comm, int rank)
{
    float value = (float)rank, *a = device_copy(&value, sizeof value);
    float *b = device_copy(&value, sizeof value);
    cudaStream_t one = new_stream(cudaStreamNonBlocking), two = new_stream(cudaStreamNonBlocking);
    CHECK(!gate(one));
    CHECK(!ncclAllReduce(a, a, 1, ncclFloat32, ncclSum, comm, one));
    cudaEvent_t first = recorded(one);
    CHECK(!ncclAllReduce(b, b, 1, ncclFloat32, ncclMax, comm, two));
    CHECK(took(first, recorded(two), 2));
    CHECK(floats_are(a, (float[]){6}, 1) && floats_are(b, (float[]){3}, 1));
    return NULL;
}

static const char *order(void)
{
    return run_ranks(RANKS, order_rank);
}

static const char *transfer_time_rank(ncclComm_t comm, int rank)
{
    float value = 1, *buffer = device_copy(&value, sizeof value);
    CHECK(!gate(NULL));
    CHECK(!ncclAllReduce(buffer, buffer, 1, ncclFloat32, ncclSum, comm, NULL));
    cudaEvent_t begin = recorded(NULL);
    CHECK(!simBusy(NULL, (rank ? 3 : 8) * MS)); /* both sides wait for the later one */
    if (rank)
        CHECK(!ncclSend(buffer, 1, ncclFloat32, 0, comm, NULL));
    else
        CHECK(!ncclRecv(buffer, 1, ncclFloat32, 1, comm, NULL));
    CHECK(took(begin, recorded(NULL), 10));
    return NULL;
}

static const char *transfer_time(void)
{
    return run_ranks(2, transfer_time_rank);
}

static const char *bandwidth_counts(void)
{
    CHECK(simDuration(SIM_NCCL, 1000000) == 3 * MS);
    simRank(1);
    CHECK(simDuration(SIM_NCCL, 1000000) == 12 * MS);
    return NULL;
}

static const char *replay_rank(ncclComm_t comm, int rank)
{
    float value = 1, *buffer = device_copy(&value, sizeof value);
    cudaStream_t s = new_stream(cudaStreamNonBlocking);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(!cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    CHECK(!ncclAllReduce(buffer, buffer, 1, ncclFloat32, ncclSum, comm, s));
    CHECK(!cudaStreamEndCapture(s, &graph) && !cudaGraphInstantiate(&exec, graph, 0));
    CHECK(!ncclAllReduce(buffer, buffer, 1, ncclFloat32, ncclSum, comm, s) && !gate(s));
    for (int i = 0; i < 3; i++)
        CHECK(!cudaGraphLaunch(exec, s));
    CHECK(!cudaStreamSynchronize(s) && floats_are(buffer, (float[]){16}, 1) && rank < 2);
    return NULL;
}

static const char *replays(void)
{
    return run_ranks(2, replay_rank);
}

/* ---- communicators */

static const char *split_rank(ncclComm_t comm, int rank)
{
    ncclComm_t half, none;
    int size, mine;
    float value = (float)rank, *buffer = device_copy(&value, sizeof value);
    CHECK(!ncclCommSplit(comm, rank % 2, -rank, &half, NULL)); /* the other way round */
    CHECK(!ncclCommCount(half, &size) && size == 2);
    CHECK(!ncclCommUserRank(half, &mine) && mine == (rank < 2));
    CHECK(!ncclAllReduce(buffer, buffer, 1, ncclFloat32, ncclSum, half, NULL));
    CHECK(floats_are(buffer, (float[]){rank % 2 ? 4 : 2}, 1));
    CHECK(!ncclCommSplit(comm, rank ? NCCL_SPLIT_NOCOLOR : 0, 0, &none, NULL) &&
          !none == (rank > 0));
    CHECK(!ncclCommDestroy(half));
    return NULL;
}

static const char *split(void)
{
    return run_ranks(RANKS, split_rank);
}

static const char *one_process(void)
{
    ncclComm_t comms[3];
    float *buffers[3], value = 2;
    CHECK(!ncclCommInitAll(comms, 3, NULL));
    for (int d = 0; d < 3; d++) {
        CHECK(!cudaSetDevice(d));
        buffers[d] = device_copy(&value, sizeof value);
    }
    CHECK(!ncclGroupStart());
    for (int d = 0; d < 3; d++) {
        CHECK(!cudaSetDevice(d));
        CHECK(!ncclAllReduce(buffers[d], buffers[d], 1, ncclFloat32, ncclSum, comms[d], NULL));
    }
    CHECK(!ncclGroupEnd());
    for (int d = 0; d < 3; d++)
        CHECK(!cudaSetDevice(d) && floats_are(buffers[d], (float[]){6}, 1));
    return NULL;
}

/* Rank 1 never comes. Rank 0 gives up: its stream goes on, and its next call fails. */
static const char *abort_rank(ncclComm_t comm, int rank)
{
    float value = 1, *buffer = device_copy(&value, sizeof value);
    ncclResult_t error;
    if (rank == 0) {
        CHECK(!ncclAllReduce(buffer, buffer, 1, ncclFloat32, ncclSum, comm, NULL));
        sim_sleep_until(sim_now() + 20 * MS);
        FAILS(cudaStreamQuery(NULL), cudaErrorNotReady);
        CHECK(!ncclCommAbort(comm) && !cudaDeviceSynchronize());
        return NULL;
    }
    do {
        sim_sleep_until(sim_now() + MS);
        CHECK(!ncclCommGetAsyncError(comm, &error));
    } while (!error);
    CHECK(error == ncclRemoteError);
    return NULL;
}

static const char *aborts(void)
{
    return run_ranks(2, abort_rank);
}

static const char *dead_rank(ncclComm_t comm, int rank)
{
    float value = 1, *buffer = device_copy(&value, sizeof value);
    ncclResult_t error;
    if (rank == 3)
        kill(getpid(), SIGKILL);
    CHECK(!ncclAllReduce(buffer, buffer, 1, ncclFloat32, ncclSum, comm, NULL));
    CHECK(!cudaDeviceSynchronize() && !ncclCommGetAsyncError(comm, &error));
    CHECK(error == ncclRemoteError);
    CHECK(ncclAllReduce(buffer, buffer, 1, ncclFloat32, ncclSum, comm, NULL) == ncclRemoteError);
    return NULL;
}

static const char *dead_peer(void)
{
    return run_ranks(RANKS, dead_rank);
}

static const char *many_rank(ncclComm_t comm, int rank)
{
    float value = (float)rank, *buffer = device_copy(&value, sizeof value);
    CHECK(!ncclAllReduce(buffer, buffer, 1, ncclFloat32, ncclSum, comm, NULL));
    CHECK(floats_are(buffer, (float[]){127 * 128 / 2}, 1));
    return NULL;
}

static const char *many(void)
{
    return run_ranks(128, many_rank);
}

static const char *wrong_arguments(void)
{
    ncclComm_t comm;
    ncclUniqueId id;
    CHECK(!ncclGetUniqueId(&id) && ncclCommInitRank(&comm, 2, id, 2) == ncclInvalidArgument);
    CHECK(!ncclCommInitRank(&comm, 1, id, 0));
    CHECK(ncclAllReduce(NULL, NULL, 0, ncclFloat32, ncclSum, NULL, NULL) == ncclInvalidArgument);
    CHECK(ncclBroadcast(NULL, NULL, 0, ncclFloat32, 1, comm, NULL) == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidUsage);
    return NULL;
}

#define TWO_MS "SIM_NCCL_US=2000 SIM_NCCL_MBPS=0"
const struct test nccl_tests[] = {
    {"nccl: all-reduce", all_reduce, NULL},
    {"nccl: types", types, NULL},
    {"nccl: moves", moves, NULL},
    {"nccl: transfers", transfers, NULL},
    {"nccl: all wait for the late one", late, TWO_MS},
    {"nccl: issuing returns at once", asynchronous, NULL},
    {"nccl: order across streams", order, TWO_MS},
    {"nccl: time of a transfer", transfer_time, TWO_MS},
    {"nccl: bandwidth and rules", bandwidth_counts,
     "RANK=0 SIM_NCCL_US=2000 SIM_NCCL_MBPS=1000 SIM_RULES=nccl@1:x4"},
    {"nccl: replays", replays, NULL},
    {"nccl: split", split, NULL},
    {"nccl: several devices of one process", one_process, NULL},
    {"nccl: abort", aborts, NULL},
    {"nccl: dead peer", dead_peer, "SIM_TIMEOUT_MS=200"},
    {"nccl: 128 ranks", many, NULL},
    {"nccl: wrong arguments", wrong_arguments, NULL},
    {0},
};
