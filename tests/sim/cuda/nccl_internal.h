/*
 * nccl_internal.h - what the files of the stand-in libnccl share. Context: inside that library
 * only.
 *
 * A communicator is a piece of memory that its ranks share: two slots that collectives use in turn,
 * with one chunk of data for every rank in each, and a box for every pair of ranks. Every operation
 * is one of a stream and runs on the stream's thread: it waits for its turn among the
 * communicator's operations, then for the other ranks. All of them end at the same time: the begin
 * of the last + the longest duration.
 */
#ifndef SIM_CUDA_NCCL_INTERNAL_H
#define SIM_CUDA_NCCL_INTERNAL_H

#include <nccl.h>
#include <stdatomic.h>
#include <stdint.h>

#include "futex.h"
#include "simcuda.h"

#define API         __attribute__((visibility("default")))
#define MAX_RANKS   128
#define SLOTS       2u
#define CHUNK_BYTES ((size_t)256 << 10)
#define BOX_BYTES   ((size_t)64 << 10)

/* Defines pnccl##name, and nccl##name as its weak alias, as in the real library. */
#define NCCL_API(type, name, params)                                                               \
    API __attribute__((weak, alias("pnccl" #name))) type nccl##name params;                        \
    API type pnccl##name params

struct slot {
    _Atomic uint32_t round; /* how often it was emptied */
    _Atomic uint32_t arrived, left;
    uint64_t begin_ns[MAX_RANKS], ns[MAX_RANKS];
    uint64_t what[MAX_RANKS]; /* kind, type and count: must be the same on all ranks */
};

/* Of transfers from one rank to another; [0] is the sender's, [1] the receiver's. */
struct box {
    _Atomic uint32_t posted[2];        /* transfers begun */
    _Atomic uint32_t bytes;            /* of data that wait for the receiver */
    uint64_t begin_ns[2][2], ns[2][2]; /* [transfer & 1][side] */
};

struct shared {
    _Atomic uint32_t changes; /* futex: raised at whatever somebody may wait for */
    _Atomic uint32_t joined, aborted, id_kept;
    struct slot slot[SLOTS];
    struct box box[]; /* [from * size + to] */
};

struct ncclComm {
    struct shared *shared;
    char *chunks, *boxes;
    size_t bytes; /* of the mapping */
    int rank, size, device;
    int fd; /* of the memory, while others may still have to open it; -1 */
    _Atomic uint32_t references;
    _Atomic uint32_t tickets, turn;   /* order of this rank's operations */
    _Atomic uint32_t news;            /* futex: turn or broken changed */
    _Atomic int broken;               /* ncclResult_t: aborted or timed out, all ends at once */
    uint32_t met;                     /* parts met so far: the same on all ranks */
    uint64_t free_ns;                 /* end of the last operation */
    uint32_t transfers[MAX_RANKS][2]; /* with each peer: sent, received */
};

enum kind {
    ALL_REDUCE,
    REDUCE,
    REDUCE_SCATTER,
    BROADCAST,
    ALL_GATHER,
    ALL_TO_ALL,
    GATHER,
    SCATTER,
    EXCHANGE /* like ALL_GATHER, on the host: takes no time */
};

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

/* A part of a message: elements [first, first + count) of what the call's `count` counts. */
struct part {
    size_t first, count, element;
    uint32_t slot;
};

/* nccl_data.c */
size_t sim_nccl_type_bytes(ncclDataType_t type); /* 0: no such type */
/* How many pieces of `count` elements a rank gives to a collective of that kind. */
int sim_nccl_pieces(const struct call *call);
void sim_nccl_put(const struct call *call, const struct part *part);
void sim_nccl_get(const struct call *call, const struct part *part);

/* nccl_meet.c */
void sim_nccl_announce(struct shared *shared);
uint64_t sim_nccl_deadline(void);
void sim_nccl_break(ncclComm_t comm, ncclResult_t why);
/* Waits for the operation's turn. */
void sim_nccl_await_turn(ncclComm_t comm, uint32_t ticket);
void sim_nccl_pass_turn(ncclComm_t comm, uint64_t end_ns);
/* All ranks exchange what the call says; `ns`: how long this rank says it takes. Returns the end.
 */
uint64_t sim_nccl_meet(const struct call *call, uint64_t begin_ns, uint64_t ns);

/* nccl_call.c: one collective on the calling thread */
ncclResult_t sim_nccl_exchange(ncclComm_t comm, const void *mine, void *all, size_t bytes);
int sim_nccl_in_group(void);
/* A communicator with one reference more; gives one back. */
ncclComm_t sim_nccl_keep(ncclComm_t comm);
void sim_nccl_drop(ncclComm_t comm);

/* nccl_p2p.c: an operation of several transfers, issued as one */
struct transfer {
    int peer, receives;
    char *at;
    size_t bytes;
};
ncclResult_t sim_nccl_transfer(ncclComm_t comm, cudaStream_t stream,
                               const struct transfer *transfers, size_t count);

/* nccl_call.c: now, or at the end of the group */
ncclResult_t sim_nccl_issue_transfer(ncclComm_t comm, cudaStream_t stream,
                                     struct transfer transfer);

#endif
