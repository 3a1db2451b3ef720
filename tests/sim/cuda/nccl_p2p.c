/*
 * nccl_p2p.c - sends and receives: both sides wait for each other, and all transfers of a group go
 * on side by side. Context: inside the stand-in libnccl; issued on any thread, run on the stream's.
 */
#include <stdlib.h>
#include <string.h>

#include "nccl_internal.h"

enum state { POST, MEET, DATA, OVER };

struct running {
    struct transfer t;
    struct box *box;
    char *data; /* of the box */
    enum state state;
    uint32_t number; /* of the pair's transfers */
    size_t done;
    uint64_t ns, end_ns;
};

struct transfer_op {
    struct sim_op op;
    ncclComm_t comm;
    cudaStream_t stream;
    uint32_t ticket;
    size_t count;
    struct running run[];
};

/* ---- one transfer: each step returns whether it did something */

static int post(struct transfer_op *o, struct running *r, uint64_t begin_ns)
{
    int from = r->t.receives ? r->t.peer : o->comm->rank;
    int to = r->t.receives ? o->comm->rank : r->t.peer;
    size_t index = (size_t)from * (size_t)o->comm->size + (size_t)to;
    r->box = &o->comm->shared->box[index];
    r->data = o->comm->boxes + index * BOX_BYTES;
    r->number = o->comm->transfers[r->t.peer][r->t.receives]++;
    r->box->begin_ns[r->number & 1][r->t.receives] = begin_ns;
    r->box->ns[r->number & 1][r->t.receives] = r->ns;
    atomic_store(&r->box->posted[r->t.receives], r->number + 1);
    r->state = MEET;
    return 1;
}

static uint64_t larger(const uint64_t pair[2])
{
    return pair[0] > pair[1] ? pair[0] : pair[1];
}

static int meet(struct running *r)
{
    if ((int32_t)(atomic_load(&r->box->posted[!r->t.receives]) - (r->number + 1)) < 0)
        return 0;
    r->end_ns = larger(r->box->begin_ns[r->number & 1]) + larger(r->box->ns[r->number & 1]);
    r->state = DATA;
    return 1;
}

/* Moves as much as the box holds. */
static int move(struct running *r)
{
    int moved = 0;
    if (r->done < r->t.bytes && (atomic_load(&r->box->bytes) != 0) == r->t.receives) {
        size_t left = r->t.bytes - r->done, size = left < BOX_BYTES ? left : BOX_BYTES;
        char *at = (char *)simHost(r->t.at) + r->done;
        if (r->t.receives)
            memcpy(at, r->data, size);
        else
            memcpy(r->data, at, size);
        r->done += size;
        atomic_store(&r->box->bytes, r->t.receives ? 0 : (uint32_t)size);
        moved = 1;
    }
    if (r->done == r->t.bytes)
        r->state = OVER;
    return moved;
}

static int advance(struct transfer_op *o, struct running *r, uint64_t begin_ns)
{
    switch (r->state) {
    case POST:
        return post(o, r, begin_ns);
    case MEET:
        return meet(r);
    case DATA:
        return move(r);
    case OVER:
        break;
    }
    return 0;
}

/* Two transfers to the same peer take turns: only the first of them that is not over goes on. */
static int is_next(const struct transfer_op *o, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (o->run[k].state != OVER && o->run[k].t.peer == o->run[i].t.peer &&
            o->run[k].t.receives == o->run[i].t.receives)
            return 0;
    return 1;
}

/* One round over all. Returns how many are not over; *moved: whether anything was done. */
static size_t advance_all(struct transfer_op *o, uint64_t begin_ns, int *moved)
{
    size_t open = 0;
    *moved = 0;
    for (size_t i = 0; i < o->count; i++) {
        if (o->run[i].state != OVER && is_next(o, i))
            *moved |= advance(o, &o->run[i], begin_ns);
        open += o->run[i].state != OVER;
    }
    return open;
}

static void transfer_all(struct transfer_op *o, uint64_t begin_ns)
{
    struct shared *s = o->comm->shared;
    uint64_t deadline = sim_nccl_deadline();
    for (;;) {
        int moved;
        uint32_t seen = atomic_load(&s->changes);
        size_t open = advance_all(o, begin_ns, &moved);
        if (moved)
            sim_nccl_announce(s);
        if (!open || atomic_load(&o->comm->broken))
            return;
        if (sim_now() >= deadline)
            sim_nccl_break(o->comm, ncclRemoteError);
        else if (!moved)
            sim_futex_wait(&s->changes, seen, deadline);
    }
}

/* ---- the operation */

static void issue_transfers(struct sim_op *op)
{
    struct transfer_op *o = (struct transfer_op *)op;
    o->ticket = atomic_fetch_add(&o->comm->tickets, 1);
    for (size_t i = 0; i < o->count; i++)
        o->run[i].ns = simDuration(SIM_NCCL, o->run[i].t.bytes);
}

static uint64_t run_transfers(struct sim_op *op, uint64_t begin_ns)
{
    struct transfer_op *o = (struct transfer_op *)op;
    sim_nccl_await_turn(o->comm, o->ticket);
    if (o->comm->free_ns > begin_ns)
        begin_ns = o->comm->free_ns;
    sim_sleep_until(begin_ns);
    transfer_all(o, begin_ns);
    uint64_t end = atomic_load(&o->comm->broken) ? sim_now() : begin_ns;
    for (size_t i = 0; i < o->count; i++)
        end = o->run[i].end_ns > end ? o->run[i].end_ns : end;
    sim_sleep_until(end);
    sim_nccl_pass_turn(o->comm, end);
    return end;
}

static void drop_transfers(struct sim_op *op)
{
    sim_nccl_drop(((struct transfer_op *)op)->comm);
    free(op);
}

static struct sim_op *again_transfers(const struct sim_op *op)
{
    const struct transfer_op *o = (const struct transfer_op *)op;
    size_t size = sizeof *o + o->count * sizeof o->run[0];
    struct transfer_op *new = malloc(size);
    if (!new)
        return NULL;
    memcpy(new, o, size);
    sim_nccl_keep(o->comm);
    return &new->op;
}

ncclResult_t sim_nccl_transfer(ncclComm_t comm, cudaStream_t stream,
                               const struct transfer *transfers, size_t count)
{
    static const struct sim_op_type type = {
        .node = cudaGraphNodeTypeKernel,
        .issue = issue_transfers,
        .run = run_transfers,
        .copy = again_transfers,
        .drop = drop_transfers,
    };
    struct transfer_op *o = calloc(1, sizeof *o + count * sizeof o->run[0]);
    if (!o)
        return ncclSystemError;
    *o = (struct transfer_op){
        .op.type = &type, .comm = sim_nccl_keep(comm), .stream = stream, .count = count};
    double most = simSetting("SIM_NCCL_DATA_MAX", 1 << 20);
    for (size_t i = 0; i < count; i++) {
        o->run[i].t = transfers[i];
        if ((double)transfers[i].bytes > most)
            o->run[i].done = transfers[i].bytes; /* only takes its time */
    }
    return simEnqueue(simStreamOf(comm->device, stream), &o->op) ? ncclUnhandledCudaError
                                                                 : ncclSuccess;
}

NCCL_API(ncclResult_t, Send,
         (const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
          cudaStream_t stream))
{
    SIM_ENTER();
    struct transfer t = {peer, 0, (char *)from, count * sim_nccl_type_bytes(type)};
    return sim_nccl_issue_transfer(comm, stream, t);
}

NCCL_API(ncclResult_t, Recv,
         (void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
          cudaStream_t stream))
{
    SIM_ENTER();
    struct transfer t = {peer, 1, to, count * sim_nccl_type_bytes(type)};
    return sim_nccl_issue_transfer(comm, stream, t);
}
