/*
 * nccl_comm.c - communicators: made, split, broken and asked.
 * Context: inside the stand-in libnccl, any thread.
 *
 * Their memory is an anonymous file; the unique id is the path by which other processes of this
 * machine can open it, so nothing is left behind whoever dies. "Several hosts" are processes of one
 * machine.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "nccl_internal.h"

#if CUDART_VERSION >= 13000
#define NCCL_VERSION_OF_CUDA 23007
#define NCCL_TEXT            "NCCL version 2.30.7+cuda13.0"
#else
#define NCCL_VERSION_OF_CUDA 22705
#define NCCL_TEXT            "NCCL version 2.27.5+cuda12.8"
#endif
/* what tells a file with NCCL inside, as the real one has it */
__attribute__((used)) static const char version_text[] = NCCL_TEXT;

/* ---- memory */

static int make_id(ncclUniqueId *id)
{
    int fd = memfd_create("sim-nccl", MFD_CLOEXEC);
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/proc/%d/fd/%d", (int)getpid(), fd);
    return fd;
}

/* The descriptor behind an id that this process made; -1: another one did. */
static int own_fd(const ncclUniqueId *id)
{
    int pid, fd;
    if (sscanf(id->internal, "/proc/%d/fd/%d", &pid, &fd) != 2 || pid != (int)getpid())
        return -1;
    return fd;
}

static size_t page_up(size_t size)
{
    return (size + 4095) & ~(size_t)4095;
}

static int map(ncclComm_t comm, int fd)
{
    size_t ranks = (size_t)comm->size;
    size_t head = page_up(sizeof(struct shared) + ranks * ranks * sizeof(struct box));
    comm->bytes = head + SLOTS * ranks * CHUNK_BYTES + ranks * ranks * BOX_BYTES;
    if (ftruncate(fd, (off_t)comm->bytes))
        return 0;
    char *m = mmap(NULL, comm->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (m == MAP_FAILED)
        return 0;
    comm->shared = (struct shared *)(void *)m;
    comm->chunks = m + head;
    comm->boxes = comm->chunks + SLOTS * ranks * CHUNK_BYTES;
    return 1;
}

ncclComm_t sim_nccl_keep(ncclComm_t comm)
{
    atomic_fetch_add(&comm->references, 1);
    return comm;
}

static void close_fd(ncclComm_t comm)
{
    if (comm->fd >= 0)
        close(comm->fd);
    comm->fd = -1;
}

void sim_nccl_drop(ncclComm_t comm)
{
    if (atomic_fetch_sub(&comm->references, 1) != 1)
        return;
    close_fd(comm);
    munmap(comm->shared, comm->bytes);
    free(comm);
}

/* ---- joining */

static ncclResult_t join(ncclComm_t *out, int size, const ncclUniqueId *id, int rank)
{
    *out = NULL;
    if (size < 1 || size > MAX_RANKS || rank < 0 || rank >= size)
        return ncclInvalidArgument;
    ncclComm_t comm = calloc(1, sizeof *comm);
    if (!comm)
        return ncclSystemError;
    int fd = open(id->internal, O_RDWR | O_CLOEXEC);
    *comm = (struct ncclComm){.rank = rank, .size = size, .device = simDevice(), .fd = -1};
    atomic_store(&comm->references, 1);
    int mapped = fd >= 0 && map(comm, fd);
    if (fd >= 0)
        close(fd);
    if (!mapped) {
        free(comm);
        return ncclSystemError;
    }
    if (own_fd(id) >= 0 && !atomic_exchange(&comm->shared->id_kept, 1))
        comm->fd = own_fd(id);
    atomic_fetch_add(&comm->shared->joined, 1);
    sim_nccl_announce(comm->shared);
    simRankFound(rank);
    *out = comm;
    return ncclSuccess;
}

/* Waits until all ranks have joined; then nobody needs the id any more. */
static ncclResult_t await_others(ncclComm_t comm)
{
    uint64_t deadline = sim_nccl_deadline();
    struct shared *s = comm->shared;
    for (;;) {
        uint32_t seen = atomic_load(&s->changes);
        if (atomic_load(&s->joined) == (uint32_t)comm->size)
            break;
        if (sim_now() >= deadline)
            return ncclRemoteError;
        sim_futex_wait(&s->changes, seen, deadline);
    }
    close_fd(comm);
    return ncclSuccess;
}

/* In a group one thread may make several ranks: nobody waits. */
static ncclResult_t init(ncclComm_t *comm, int size, const ncclUniqueId *id, int rank)
{
    ncclResult_t result = join(comm, size, id, rank);
    return result || sim_nccl_in_group() ? result : await_others(*comm);
}

NCCL_API(ncclResult_t, GetUniqueId, (ncclUniqueId * id))
{
    SIM_ENTER();
    return make_id(id) < 0 ? ncclSystemError : ncclSuccess;
}

NCCL_API(ncclResult_t, CommInitRank, (ncclComm_t * comm, int size, ncclUniqueId id, int rank))
{
    SIM_ENTER();
    return init(comm, size, &id, rank);
}

NCCL_API(ncclResult_t, CommInitRankConfig,
         (ncclComm_t * comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config))
{
    SIM_ENTER();
    (void)config;
    return init(comm, size, &id, rank);
}

NCCL_API(ncclResult_t, CommInitRankScalable,
         (ncclComm_t * comm, int size, int rank, int ids, ncclUniqueId *id, ncclConfig_t *config))
{
    SIM_ENTER();
    (void)config;
    return ids < 1 ? ncclInvalidArgument : init(comm, size, id, rank);
}

NCCL_API(ncclResult_t, CommInitAll, (ncclComm_t * comms, int size, const int *devices))
{
    SIM_ENTER();
    ncclUniqueId id;
    ncclResult_t result = make_id(&id) < 0 ? ncclSystemError : ncclSuccess;
    for (int r = 0; r < size && !result; r++) {
        result = join(&comms[r], size, &id, r);
        if (!result)
            comms[r]->device = devices ? devices[r] : r;
    }
    if (!result)
        close_fd(comms[0]);
    return result;
}

/* ---- splitting: all exchange their wishes, the first of each colour makes the memory */

struct wish {
    int color, key;
    ncclUniqueId id;
};

static int comes_before(const struct wish *all, int a, int b)
{
    return all[a].key < all[b].key || (all[a].key == all[b].key && a < b);
}

/* How many ranks want my colour and how many of them come before me; returns the first of them. */
static int place_in_colour(const struct wish *all, int ranks, int me, int *size, int *rank)
{
    int first = me;
    *size = *rank = 0;
    for (int r = 0; r < ranks; r++)
        if (all[r].color == all[me].color) {
            ++*size;
            *rank += comes_before(all, r, me);
            first = comes_before(all, r, first) ? r : first;
        }
    return first;
}

static ncclResult_t split(ncclComm_t comm, int color, int key, ncclComm_t *part, struct wish *all)
{
    struct wish mine = {.color = color, .key = key};
    ncclResult_t result = sim_nccl_exchange(comm, &mine, all, sizeof mine);
    if (result)
        return result;
    int size, rank, first = place_in_colour(all, comm->size, comm->rank, &size, &rank);
    if (color != NCCL_SPLIT_NOCOLOR && first == comm->rank && make_id(&mine.id) < 0)
        return ncclSystemError;
    result = sim_nccl_exchange(comm, &mine, all, sizeof mine);
    if (result || color == NCCL_SPLIT_NOCOLOR)
        return result;
    return init(part, size, &all[first].id, rank);
}

NCCL_API(ncclResult_t, CommSplit,
         (ncclComm_t comm, int color, int key, ncclComm_t *part, ncclConfig_t *config))
{
    SIM_ENTER();
    (void)config;
    *part = NULL;
    struct wish *all = calloc((size_t)comm->size, sizeof *all);
    ncclResult_t result = all ? split(comm, color, key, part, all) : ncclSystemError;
    free(all);
    return result;
}

/* ---- the end */

NCCL_API(ncclResult_t, CommFinalize, (ncclComm_t comm))
{
    SIM_ENTER();
    return comm ? ncclSuccess : ncclInvalidArgument;
}

NCCL_API(ncclResult_t, CommDestroy, (ncclComm_t comm))
{
    SIM_ENTER();
    if (comm)
        sim_nccl_drop(comm);
    return ncclSuccess;
}

/* Ends the waits of this process; the other ranks learn of it by ncclCommGetAsyncError. */
NCCL_API(ncclResult_t, CommAbort, (ncclComm_t comm))
{
    SIM_ENTER();
    if (!comm)
        return ncclSuccess;
    atomic_store(&comm->shared->aborted, 1);
    sim_nccl_break(comm, ncclInvalidUsage);
    sim_nccl_drop(comm);
    return ncclSuccess;
}

/* ---- asking */

NCCL_API(ncclResult_t, CommGetAsyncError, (ncclComm_t comm, ncclResult_t *error))
{
    SIM_ENTER();
    *error = (ncclResult_t)atomic_load(&comm->broken);
    if (!*error && atomic_load(&comm->shared->aborted))
        *error = ncclRemoteError;
    return ncclSuccess;
}

#define GETTER(name, field)                                                                        \
    NCCL_API(ncclResult_t, name, (const ncclComm_t comm, int *value))                              \
    {                                                                                              \
        SIM_ENTER();                                                                               \
        *value = comm->field;                                                                      \
        return ncclSuccess;                                                                        \
    }
GETTER(CommCount, size)
GETTER(CommUserRank, rank)
GETTER(CommCuDevice, device)

NCCL_API(ncclResult_t, CommRegister,
         (const ncclComm_t comm, void *buffer, size_t size, void **handle))
{
    SIM_ENTER();
    (void)comm;
    (void)size;
    *handle = buffer;
    return ncclSuccess;
}

NCCL_API(ncclResult_t, CommDeregister, (const ncclComm_t comm, void *handle))
{
    SIM_ENTER();
    (void)comm;
    (void)handle;
    return ncclSuccess;
}

NCCL_API(ncclResult_t, MemAlloc, (void **pointer, size_t size))
{
    SIM_ENTER();
    return cudaMalloc(pointer, size) ? ncclUnhandledCudaError : ncclSuccess;
}

NCCL_API(ncclResult_t, MemFree, (void *pointer))
{
    SIM_ENTER();
    return cudaFree(pointer) ? ncclUnhandledCudaError : ncclSuccess;
}

/* The scalar is left out: what is reduced only has to have the right size. */
NCCL_API(ncclResult_t, RedOpCreatePreMulSum,
         (ncclRedOp_t * op, void *scalar, ncclDataType_t type, ncclScalarResidence_t where,
          ncclComm_t comm))
{
    SIM_ENTER();
    (void)scalar;
    (void)type;
    (void)where;
    (void)comm;
    *op = ncclSum;
    return ncclSuccess;
}

NCCL_API(ncclResult_t, RedOpDestroy, (ncclRedOp_t op, ncclComm_t comm))
{
    SIM_ENTER();
    (void)op;
    (void)comm;
    return ncclSuccess;
}

NCCL_API(ncclResult_t, GetVersion, (int *version))
{
    SIM_ENTER();
    *version = (int)simSetting("SIM_NCCL_VERSION", NCCL_VERSION_OF_CUDA);
    return ncclSuccess;
}

NCCL_API(const char *, GetErrorString, (ncclResult_t result))
{
    SIM_ENTER();
    return result == ncclRemoteError ? "a peer left, aborted or did not come in time"
           : result                  ? "stand-in NCCL error"
                                     : "no error";
}

NCCL_API(const char *, GetLastError, (ncclComm_t comm))
{
    SIM_ENTER();
    (void)comm;
    return "";
}
