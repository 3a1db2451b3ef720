/*
 * nccl.c - stand-in for libnccl.so.2: collectives that really meet across processes and really
 * reduce, on memory shared by the ranks of one machine.
 * Context: loaded into test programs in place of the real library, on machines without CUDA.
 *
 * A communicator is an anonymous file (its unique id is the path by which the other ranks can open
 * it, so nothing is left behind whoever dies). It holds two slots that collectives use in turn; in
 * a slot every rank has a place for its begin time and one chunk of data. Longer messages go chunk
 * by chunk. All ranks compute the same end: begin of the last one + the time that the knobs say.
 *
 * Not modelled: several ranks of one communicator in one thread, half precision.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "nccl.h"
#include "sim.h"

#define MAX_RANKS   128
#define SLOTS       2u
#define CHUNK_BYTES ((size_t)256 << 10)
#define GROUP_CALLS 256
#define VERSION     22803

struct slot {
    _Atomic uint32_t round; /* how often it was emptied */
    _Atomic uint32_t arrived, left;
    uint64_t begin_ns[MAX_RANKS];
    uint64_t what[MAX_RANKS]; /* kind and count: must be the same on all ranks */
};

struct shared {
    _Atomic uint32_t changes; /* futex: raised at whatever somebody may wait for */
    _Atomic uint32_t aborted;
    struct slot slot[SLOTS];
};

struct ncclComm {
    struct shared *shared;
    char *data;
    size_t bytes; /* of the mapping */
    int rank, size;
    uint64_t seq; /* chunks met so far: the same on all ranks */
    ncclResult_t error;
};

enum kind { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, BARRIER };

struct call {
    ncclComm_t comm;
    enum kind kind;
    const void *from;
    void *to;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int root;
    cudaStream_t stream;
};

/* ---- meeting */

static void announce(struct shared *s)
{
    atomic_fetch_add(&s->changes, 1);
    syscall(SYS_futex, &s->changes, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Waits until *word == wanted. Returns ncclRemoteError after an abort or at `deadline`. */
static ncclResult_t await(struct shared *s, _Atomic uint32_t *word, uint32_t wanted,
                          uint64_t deadline)
{
    struct timespec limit = sim_timespec(deadline);
    for (;;) {
        uint32_t seen = atomic_load(&s->changes);
        if (atomic_load(word) == wanted)
            return ncclSuccess;
        if (atomic_load(&s->aborted) || sim_now() >= deadline)
            return ncclRemoteError;
        syscall(SYS_futex, &s->changes, FUTEX_WAIT_BITSET, seen, &limit, NULL,
                FUTEX_BITSET_MATCH_ANY);
    }
}

static char *chunk_of(ncclComm_t comm, uint32_t slot, int rank)
{
    return comm->data + ((size_t)slot * (size_t)comm->size + (size_t)rank) * CHUNK_BYTES;
}

static void leave(struct shared *s, struct slot *slot, int size)
{
    if (atomic_fetch_add(&slot->left, 1) + 1 < (uint32_t)size)
        return;
    atomic_store(&slot->arrived, 0);
    atomic_store(&slot->left, 0);
    atomic_fetch_add(&slot->round, 1);
    announce(s);
}

/* ---- data */

static size_t type_bytes(ncclDataType_t type)
{
    static const unsigned char bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return (size_t)type < sizeof bytes ? bytes[type] : 0;
}

static int can_reduce(ncclDataType_t type)
{
    return type == ncclFloat32 || type == ncclFloat64 || type == ncclInt32 || type == ncclInt64;
}

#define REDUCE_AS(T)                                                                               \
    do {                                                                                           \
        T *to = into;                                                                              \
        const T *from = with;                                                                      \
        for (size_t i = 0; i < count; i++)                                                         \
            to[i] = op == ncclProd  ? to[i] * from[i]                                              \
                    : op == ncclMax ? (to[i] > from[i] ? to[i] : from[i])                          \
                    : op == ncclMin ? (to[i] < from[i] ? to[i] : from[i])                          \
                                    : to[i] + from[i];                                             \
    } while (0)

static void reduce(void *into, const void *with, size_t count, ncclDataType_t type, ncclRedOp_t op)
{
    if (type == ncclFloat32)
        REDUCE_AS(float);
    else if (type == ncclFloat64)
        REDUCE_AS(double);
    else if (type == ncclInt32)
        REDUCE_AS(int32_t);
    else
        REDUCE_AS(int64_t);
}

#define DIVIDE_AS(T)                                                                               \
    do {                                                                                           \
        T *to = values;                                                                            \
        for (size_t i = 0; i < count; i++)                                                         \
            to[i] /= (T)by;                                                                        \
    } while (0)

static void divide(void *values, size_t count, ncclDataType_t type, int by)
{
    if (type == ncclFloat32)
        DIVIDE_AS(float);
    else if (type == ncclFloat64)
        DIVIDE_AS(double);
    else if (type == ncclInt32)
        DIVIDE_AS(int32_t);
    else
        DIVIDE_AS(int64_t);
}

/* A part of a message: elements [first, first + count) of what the call's `count` counts. */
struct part {
    size_t first, count, element;
    uint32_t slot;
};

static void put_part(const struct call *c, const struct part *p)
{
    char *to = chunk_of(c->comm, p->slot, c->comm->rank);
    const char *from = simHost(c->from);
    size_t bytes = p->count * p->element;
    if (c->kind == BARRIER || (c->kind == BROADCAST && c->comm->rank != c->root))
        return;
    int pieces = c->kind == REDUCE_SCATTER ? c->comm->size : 1;
    for (int i = 0; i < pieces; i++)
        memcpy(to + (size_t)i * bytes, from + ((size_t)i * c->count + p->first) * p->element,
               bytes);
}

/* In the order of the ranks, so that every rank gets the same bits. */
static void get_reduced(const struct call *c, const struct part *p, char *to)
{
    size_t bytes = p->count * p->element;
    size_t offset = c->kind == REDUCE_SCATTER ? (size_t)c->comm->rank * bytes : 0;
    memcpy(to, chunk_of(c->comm, p->slot, 0) + offset, bytes);
    for (int r = 1; r < c->comm->size; r++)
        reduce(to, chunk_of(c->comm, p->slot, r) + offset, p->count, c->type, c->op);
    if (c->op == ncclAvg)
        divide(to, p->count, c->type, c->comm->size);
}

static void get_part(const struct call *c, const struct part *p)
{
    char *to = simHost(c->to);
    size_t bytes = p->count * p->element;
    switch (c->kind) {
    case REDUCE:
        if (c->comm->rank != c->root)
            break;
        /* fall through */
    case ALL_REDUCE:
    case REDUCE_SCATTER:
        get_reduced(c, p, to + p->first * p->element);
        break;
    case BROADCAST:
        memcpy(to + p->first * p->element, chunk_of(c->comm, p->slot, c->root), bytes);
        break;
    case ALL_GATHER:
        for (int r = 0; r < c->comm->size; r++)
            memcpy(to + ((size_t)r * c->count + p->first) * p->element,
                   chunk_of(c->comm, p->slot, r), bytes);
        break;
    case BARRIER:
        break;
    }
}

/* ---- one collective */

static uint64_t what_of(const struct call *c)
{
    return (uint64_t)c->kind << 56 | (uint64_t)c->type << 48 | (uint64_t)c->count;
}

/* The begin of the last rank; complains about ranks that are in different collectives. */
static uint64_t last_begin(const struct call *c, const struct slot *slot)
{
    uint64_t last = 0;
    for (int r = 0; r < c->comm->size; r++) {
        if (slot->begin_ns[r] > last)
            last = slot->begin_ns[r];
        if (slot->what[r] != what_of(c)) {
            fprintf(stderr, "sim: ranks %d and %d are in different collectives\n", c->comm->rank,
                    r);
            c->comm->error = ncclInvalidUsage;
        }
    }
    return last;
}

/* All ranks exchange one part. Returns the begin of the last rank. */
static uint64_t meet(const struct call *c, struct part *p, uint64_t begin_ns, uint64_t deadline)
{
    ncclComm_t comm = c->comm;
    uint64_t seq = comm->seq++;
    p->slot = (uint32_t)(seq % SLOTS);
    struct slot *slot = &comm->shared->slot[p->slot];

    comm->error = await(comm->shared, &slot->round, (uint32_t)(seq / SLOTS), deadline);
    if (comm->error)
        return begin_ns;
    slot->begin_ns[comm->rank] = begin_ns;
    slot->what[comm->rank] = what_of(c);
    put_part(c, p);
    if (atomic_fetch_add(&slot->arrived, 1) + 1 == (uint32_t)comm->size)
        announce(comm->shared);
    comm->error = await(comm->shared, &slot->arrived, (uint32_t)comm->size, deadline);
    if (comm->error)
        return begin_ns;
    uint64_t last = last_begin(c, slot);
    if (!comm->error)
        get_part(c, p);
    leave(comm->shared, slot, comm->size);
    return last;
}

static uint64_t duration(const struct call *c)
{
    size_t bytes = c->count * type_bytes(c->type);
    if (c->kind == ALL_GATHER || c->kind == REDUCE_SCATTER)
        bytes *= (size_t)c->comm->size;
    if (c->kind == BARRIER)
        return 0;
    return sim_knob("SIM_NCCL_US", 30) * 1000 +
           sim_transfer_ns(bytes, sim_knob("SIM_NCCL_MBPS", 10000));
}

static uint64_t collective(void *arg, uint64_t begin_ns)
{
    const struct call *c = arg;
    uint64_t deadline = sim_now() + sim_knob("SIM_TIMEOUT_MS", 30000) * 1000000;
    struct part p = {.element = type_bytes(c->type)};
    size_t most = CHUNK_BYTES / p.element;
    if (c->kind == REDUCE_SCATTER)
        most /= (size_t)c->comm->size;

    uint64_t end = begin_ns;
    do {
        p.count = c->count - p.first < most ? c->count - p.first : most;
        uint64_t begin = meet(c, &p, begin_ns, deadline);
        end = begin > end ? begin : end;
        p.first += p.count;
    } while (!c->comm->error && p.first < c->count);
    return c->comm->error ? sim_now() : end + duration(c);
}

/* ---- groups: the calls between GroupStart and GroupEnd are issued at the latter */

static _Thread_local struct call group[GROUP_CALLS];
static _Thread_local int group_calls, group_depth;

static ncclResult_t issue(struct call c)
{
    if (!c.comm || c.root < 0 || c.root >= c.comm->size)
        return ncclInvalidArgument;
    int reduces = c.kind == ALL_REDUCE || c.kind == REDUCE || c.kind == REDUCE_SCATTER;
    if (!type_bytes(c.type) || (reduces && !can_reduce(c.type)))
        return ncclInvalidArgument;
    if (group_depth) {
        if (group_calls == GROUP_CALLS)
            return ncclInternalError;
        group[group_calls++] = c;
        return ncclSuccess;
    }
    if (c.comm->error)
        return c.comm->error;
    simSubmit(c.stream, collective, &c);
    return c.comm->error;
}

ncclResult_t pncclGroupStart(void)
{
    group_depth++;
    return ncclSuccess;
}

ncclResult_t pncclGroupEnd(void)
{
    if (group_depth == 0)
        return ncclInvalidUsage;
    ncclResult_t result = ncclSuccess;
    if (--group_depth == 0) {
        for (int i = 0; i < group_calls && !result; i++)
            result = issue(group[i]);
        group_calls = 0;
    }
    return result;
}

ncclResult_t pncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                            ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return issue((struct call){comm, ALL_REDUCE, from, to, count, type, op, 0, stream});
}

ncclResult_t pncclReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                         ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    return issue((struct call){comm, REDUCE, from, to, count, type, op, root, stream});
}

ncclResult_t pncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                            ncclComm_t comm, cudaStream_t stream)
{
    return issue((struct call){comm, BROADCAST, from, to, count, type, ncclSum, root, stream});
}

ncclResult_t pncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                        cudaStream_t stream)
{
    return pncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

ncclResult_t pncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                            ncclComm_t comm, cudaStream_t stream)
{
    return issue((struct call){comm, ALL_GATHER, from, to, count, type, ncclSum, 0, stream});
}

ncclResult_t pncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
                                ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return issue((struct call){comm, REDUCE_SCATTER, from, to, count, type, op, 0, stream});
}

/* ---- communicators */

ncclResult_t pncclGetVersion(int *version)
{
    *version = (int)sim_knob("SIM_NCCL_VERSION", VERSION);
    return ncclSuccess;
}

const char *pncclGetErrorString(ncclResult_t result)
{
    return result == ncclRemoteError ? "a peer left, aborted or did not come in time"
           : result                  ? "stand-in NCCL error"
                                     : "no error";
}

/* The file stays open until this process has joined, so that the others can open it by its path. */
ncclResult_t pncclGetUniqueId(ncclUniqueId *id)
{
    int fd = memfd_create("sim-nccl", MFD_CLOEXEC);
    if (fd < 0)
        return ncclSystemError;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/proc/%d/fd/%d", (int)getpid(), fd);
    return ncclSuccess;
}

static void close_own(const char *path)
{
    int pid, fd;
    if (sscanf(path, "/proc/%d/fd/%d", &pid, &fd) == 2 && pid == (int)getpid())
        close(fd);
}

static int map_shared(ncclComm_t comm, const char *path)
{
    size_t head = (sizeof(struct shared) + 4095) & ~(size_t)4095;
    comm->bytes = head + SLOTS * (size_t)comm->size * CHUNK_BYTES;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return 0;
    void *map = MAP_FAILED;
    if (ftruncate(fd, (off_t)comm->bytes) == 0)
        map = mmap(NULL, comm->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED)
        return 0;
    comm->shared = map;
    comm->data = (char *)map + head;
    return 1;
}

ncclResult_t pncclCommInitRank(ncclComm_t *comm, int size, ncclUniqueId id, int rank)
{
    if (size < 1 || size > MAX_RANKS || rank < 0 || rank >= size)
        return ncclInvalidArgument;
    ncclComm_t c = calloc(1, sizeof *c);
    if (!c)
        return ncclSystemError;
    c->rank = rank;
    c->size = size;
    id.internal[sizeof id.internal - 1] = 0;
    if (!map_shared(c, id.internal)) {
        free(c);
        return ncclSystemError;
    }
    struct call barrier = {.comm = c, .kind = BARRIER};
    collective(&barrier, sim_now());
    close_own(id.internal);
    ncclResult_t result = c->error;
    if (result)
        pncclCommDestroy(c);
    else
        *comm = c;
    return result;
}

ncclResult_t pncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank,
                                     ncclConfig_t *config)
{
    (void)config;
    return pncclCommInitRank(comm, size, id, rank);
}

ncclResult_t pncclCommDestroy(ncclComm_t comm)
{
    if (!comm)
        return ncclInvalidArgument;
    munmap(comm->shared, comm->bytes);
    free(comm);
    return ncclSuccess;
}

/* Frees whoever waits in this communicator, in all processes; the memory stays, they look at it. */
ncclResult_t pncclCommAbort(ncclComm_t comm)
{
    if (!comm)
        return ncclInvalidArgument;
    atomic_store(&comm->shared->aborted, 1);
    announce(comm->shared);
    return ncclSuccess;
}

ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    *error = comm->error;
    return ncclSuccess;
}

ncclResult_t pncclCommCount(const ncclComm_t comm, int *size)
{
    *size = comm->size;
    return ncclSuccess;
}

ncclResult_t pncclCommUserRank(const ncclComm_t comm, int *rank)
{
    *rank = comm->rank;
    return ncclSuccess;
}

/* Each is exported as a weak ncclNAME and a strong pncclNAME, so that a tool may take the first and
 * call the second. */
#define WEAK_NAME(name)                                                                            \
    extern __typeof__(pnccl##name) nccl##name __attribute__((weak, alias("pnccl" #name)));
WEAK_NAME(GetVersion)
WEAK_NAME(GetUniqueId)
WEAK_NAME(CommInitRank)
WEAK_NAME(CommInitRankConfig)
WEAK_NAME(CommDestroy)
WEAK_NAME(CommAbort)
WEAK_NAME(CommGetAsyncError)
WEAK_NAME(CommCount)
WEAK_NAME(CommUserRank)
WEAK_NAME(GetErrorString)
WEAK_NAME(AllReduce)
WEAK_NAME(Reduce)
WEAK_NAME(Broadcast)
WEAK_NAME(Bcast)
WEAK_NAME(AllGather)
WEAK_NAME(ReduceScatter)
WEAK_NAME(GroupStart)
WEAK_NAME(GroupEnd)
