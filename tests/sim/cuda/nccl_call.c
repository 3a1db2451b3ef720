/*
 * nccl_call.c - the collectives as operations of a stream, and groups of them.
 * Context: inside the stand-in libnccl; issued on any thread, run on the stream's.
 */
#include <stdlib.h>

#include "nccl_internal.h"

#define GROUP_CALLS 1024

struct call_op {
    struct sim_op op;
    struct call call;
    uint32_t ticket;
    uint64_t ns;
};

/* ---- the operation */

/* What is counted as moved, as NCCL's documentation counts it: the larger of the two buffers. */
static size_t bytes_of(const struct call *c)
{
    size_t bytes = c->count * sim_nccl_type_bytes(c->type);
    int by_rank = c->kind != ALL_REDUCE && c->kind != REDUCE && c->kind != BROADCAST;
    return by_rank ? bytes * (size_t)c->comm->size : bytes;
}

static void issue_call(struct sim_op *op)
{
    struct call_op *c = (struct call_op *)op;
    c->ticket = atomic_fetch_add(&c->call.comm->tickets, 1);
    c->ns = simDuration(SIM_NCCL, bytes_of(&c->call));
    simCollectiveIssued();
}

static uint64_t run_call(struct sim_op *op, uint64_t begin_ns)
{
    struct call_op *c = (struct call_op *)op;
    ncclComm_t comm = c->call.comm;
    sim_nccl_await_turn(comm, c->ticket);
    if (comm->free_ns > begin_ns)
        begin_ns = comm->free_ns;
    sim_sleep_until(begin_ns);
    uint64_t end = sim_nccl_meet(&c->call, begin_ns, c->ns);
    sim_sleep_until(end);
    sim_nccl_pass_turn(comm, end);
    return end > begin_ns ? end : begin_ns;
}

static struct sim_op *new_op(const struct call *call);

static struct sim_op *again_call(const struct sim_op *op)
{
    return new_op(&((const struct call_op *)op)->call);
}

static void drop_call(struct sim_op *op)
{
    sim_nccl_drop(((struct call_op *)op)->call.comm);
    free(op);
}

static struct sim_op *new_op(const struct call *call)
{
    static const struct sim_op_type type = {
        .node = cudaGraphNodeTypeKernel,
        .issue = issue_call,
        .run = run_call,
        .copy = again_call,
        .drop = drop_call,
    };
    struct call_op *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    *c = (struct call_op){.op.type = &type, .call = *call};
    sim_nccl_keep(call->comm);
    return &c->op;
}

ncclResult_t sim_nccl_exchange(ncclComm_t comm, const void *mine, void *all, size_t bytes)
{
    struct call call = {comm, EXCHANGE, mine, all, bytes, ncclInt8, ncclSum, 0, NULL};
    sim_nccl_await_turn(comm, atomic_fetch_add(&comm->tickets, 1));
    sim_nccl_pass_turn(comm, sim_nccl_meet(&call, sim_now(), 0));
    return (ncclResult_t)atomic_load(&comm->broken);
}

/* ---- groups: what is called between GroupStart and GroupEnd is issued at the latter */

struct grouped {
    struct call call; /* if it is no transfer: comm and stream alone */
    struct transfer transfer;
    int is_transfer;
};

static _Thread_local struct grouped *group;
static _Thread_local size_t group_calls;
static _Thread_local int group_depth;

int sim_nccl_in_group(void)
{
    return group_depth > 0;
}

static ncclResult_t enqueue(const struct call *call)
{
    struct sim_op *op = new_op(call);
    if (!op)
        return ncclSystemError;
    return simEnqueue(simStreamOf(call->comm->device, call->stream), op) ? ncclUnhandledCudaError
                                                                         : ncclSuccess;
}

static ncclResult_t add_to_group(struct grouped call)
{
    if (!group)
        group = malloc(GROUP_CALLS * sizeof *group);
    if (!group || group_calls == GROUP_CALLS)
        return ncclInternalError;
    group[group_calls++] = call;
    return ncclSuccess;
}

static ncclResult_t check(ncclComm_t comm, ncclDataType_t type, int peer)
{
    if (!comm || peer < 0 || peer >= comm->size || !sim_nccl_type_bytes(type))
        return ncclInvalidArgument;
    return (ncclResult_t)atomic_load(&comm->broken);
}

static ncclResult_t issue(struct call call)
{
    ncclResult_t wrong = check(call.comm, call.type, call.root);
    if (wrong)
        return wrong;
    return group_depth ? add_to_group((struct grouped){.call = call}) : enqueue(&call);
}

ncclResult_t sim_nccl_issue_transfer(ncclComm_t comm, cudaStream_t stream, struct transfer transfer)
{
    ncclResult_t wrong = check(comm, ncclInt8, transfer.peer);
    if (wrong)
        return wrong;
    if (!group_depth)
        return sim_nccl_transfer(comm, stream, &transfer, 1);
    return add_to_group((struct grouped){
        .call = {.comm = comm, .stream = stream}, .transfer = transfer, .is_transfer = 1});
}

/* All transfers of one communicator and stream become one operation, in the place of the first. */
static ncclResult_t issue_transfers_like(size_t first)
{
    struct transfer *all = malloc(group_calls * sizeof *all);
    size_t count = 0;
    if (!all)
        return ncclSystemError;
    const struct call like = group[first].call;
    for (size_t i = first; i < group_calls; i++)
        if (group[i].is_transfer && group[i].call.comm == like.comm &&
            group[i].call.stream == like.stream) {
            all[count++] = group[i].transfer;
            group[i].call.comm = NULL; /* done */
        }
    ncclResult_t result = sim_nccl_transfer(like.comm, like.stream, all, count);
    free(all);
    return result;
}

NCCL_API(ncclResult_t, GroupStart, (void))
{
    SIM_ENTER();
    group_depth++;
    return ncclSuccess;
}

NCCL_API(ncclResult_t, GroupEnd, (void))
{
    SIM_ENTER();
    if (!group_depth)
        return ncclInvalidUsage;
    if (--group_depth)
        return ncclSuccess;
    ncclResult_t result = ncclSuccess;
    for (size_t i = 0; i < group_calls && !result; i++)
        if (group[i].call.comm)
            result = group[i].is_transfer ? issue_transfers_like(i) : enqueue(&group[i].call);
    free(group);
    group = NULL;
    group_calls = 0;
    return result;
}

/* ---- the calls */

NCCL_API(ncclResult_t, AllReduce,
         (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
          ncclComm_t comm, cudaStream_t stream))
{
    SIM_ENTER();
    return issue((struct call){comm, ALL_REDUCE, from, to, count, type, op, 0, stream});
}

NCCL_API(ncclResult_t, Reduce,
         (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
          ncclComm_t comm, cudaStream_t stream))
{
    SIM_ENTER();
    return issue((struct call){comm, REDUCE, from, to, count, type, op, root, stream});
}

NCCL_API(ncclResult_t, ReduceScatter,
         (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
          ncclComm_t comm, cudaStream_t stream))
{
    SIM_ENTER();
    return issue((struct call){comm, REDUCE_SCATTER, from, to, count, type, op, 0, stream});
}

NCCL_API(ncclResult_t, Broadcast,
         (const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
          cudaStream_t stream))
{
    SIM_ENTER();
    return issue((struct call){comm, BROADCAST, from, to, count, type, ncclSum, root, stream});
}

NCCL_API(ncclResult_t, Bcast,
         (void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
          cudaStream_t stream))
{
    SIM_ENTER();
    return issue(
        (struct call){comm, BROADCAST, buffer, buffer, count, type, ncclSum, root, stream});
}

NCCL_API(ncclResult_t, AllGather,
         (const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
          cudaStream_t stream))
{
    SIM_ENTER();
    return issue((struct call){comm, ALL_GATHER, from, to, count, type, ncclSum, 0, stream});
}

NCCL_API(ncclResult_t, AlltoAll,
         (const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
          cudaStream_t stream))
{
    SIM_ENTER();
    return issue((struct call){comm, ALL_TO_ALL, from, to, count, type, ncclSum, 0, stream});
}

NCCL_API(ncclResult_t, Gather,
         (const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
          cudaStream_t stream))
{
    SIM_ENTER();
    return issue((struct call){comm, GATHER, from, to, count, type, ncclSum, root, stream});
}

NCCL_API(ncclResult_t, Scatter,
         (const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
          cudaStream_t stream))
{
    SIM_ENTER();
    return issue((struct call){comm, SCATTER, from, to, count, type, ncclSum, root, stream});
}
