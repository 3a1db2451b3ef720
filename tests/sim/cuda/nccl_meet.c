/*
 * nccl_meet.c - where the ranks of a communicator wait for each other, in memory that they share.
 * Context: inside the stand-in libnccl, on a stream's thread or the caller's.
 *
 * Like real NCCL it waits for as long as it takes (SIM_TIMEOUT_MS at most); ncclCommAbort ends the
 * waits of this process only.
 */
#include <stdio.h>

#include "nccl_internal.h"

void sim_nccl_announce(struct shared *s)
{
    atomic_fetch_add(&s->changes, 1);
    sim_futex_wake(&s->changes);
}

uint64_t sim_nccl_deadline(void)
{
    return sim_now() + (uint64_t)(simSetting("SIM_TIMEOUT_MS", 600000) * 1e6);
}

void sim_nccl_break(ncclComm_t comm, ncclResult_t why)
{
    int whole = 0;
    atomic_compare_exchange_strong(&comm->broken, &whole, (int)why);
    atomic_fetch_add(&comm->news, 1);
    sim_futex_wake(&comm->news);
    sim_nccl_announce(comm->shared);
}

void sim_nccl_await_turn(ncclComm_t comm, uint32_t ticket)
{
    for (;;) {
        uint32_t seen = atomic_load(&comm->news);
        if (atomic_load(&comm->turn) == ticket || atomic_load(&comm->broken))
            return;
        sim_futex_wait(&comm->news, seen, 0);
    }
}

void sim_nccl_pass_turn(ncclComm_t comm, uint64_t end_ns)
{
    comm->free_ns = end_ns;
    atomic_fetch_add(&comm->turn, 1);
    atomic_fetch_add(&comm->news, 1);
    sim_futex_wake(&comm->news);
}

/* Waits until *word is `wanted`. 0: the communicator broke, maybe just now. */
static int await(ncclComm_t comm, _Atomic uint32_t *word, uint32_t wanted, uint64_t deadline)
{
    for (;;) {
        uint32_t seen = atomic_load(&comm->shared->changes);
        if (atomic_load(word) == wanted)
            return 1;
        if (atomic_load(&comm->broken))
            return 0;
        if (sim_now() >= deadline)
            sim_nccl_break(comm, ncclRemoteError);
        else
            sim_futex_wait(&comm->shared->changes, seen, deadline);
    }
}

static uint64_t what_of(const struct call *c)
{
    return (uint64_t)c->kind << 56 | (uint64_t)c->type << 48 | (uint64_t)c->count;
}

static uint64_t latest(const uint64_t *times, int count)
{
    uint64_t last = 0;
    for (int r = 0; r < count; r++)
        last = times[r] > last ? times[r] : last;
    return last;
}

static void compare(const struct call *c, const struct slot *slot)
{
    for (int r = 0; r < c->comm->size; r++)
        if (slot->what[r] != what_of(c))
            fprintf(stderr, "sim: ranks %d and %d are in different collectives\n", c->comm->rank,
                    r);
}

static void leave(struct shared *s, struct slot *slot, int size)
{
    if (atomic_fetch_add(&slot->left, 1) + 1 < (uint32_t)size)
        return;
    atomic_store(&slot->arrived, 0);
    atomic_store(&slot->left, 0);
    atomic_fetch_add(&slot->round, 1);
    sim_nccl_announce(s);
}

/* All ranks exchange one part. Returns the end of the whole, 0: broken. */
static uint64_t meet_part(const struct call *c, struct part *p, const uint64_t mine[2],
                          uint64_t deadline)
{
    ncclComm_t comm = c->comm;
    uint32_t number = comm->met++;
    p->slot = number % SLOTS;
    struct slot *slot = &comm->shared->slot[p->slot];
    if (!await(comm, &slot->round, number / SLOTS, deadline))
        return 0;
    slot->begin_ns[comm->rank] = mine[0];
    slot->ns[comm->rank] = mine[1];
    slot->what[comm->rank] = what_of(c);
    if (p->count)
        sim_nccl_put(c, p);
    if (atomic_fetch_add(&slot->arrived, 1) + 1 == (uint32_t)comm->size)
        sim_nccl_announce(comm->shared);
    if (!await(comm, &slot->arrived, (uint32_t)comm->size, deadline))
        return 0;
    uint64_t end = latest(slot->begin_ns, comm->size) + latest(slot->ns, comm->size);
    compare(c, slot);
    if (p->count)
        sim_nccl_get(c, p);
    leave(comm->shared, slot, comm->size);
    return end;
}

/* Longer messages than SIM_NCCL_DATA_MAX only take their time. */
static int moves_data(const struct call *c, size_t element)
{
    double bytes = (double)c->count * (double)element * sim_nccl_pieces(c);
    return c->kind == EXCHANGE || bytes <= simSetting("SIM_NCCL_DATA_MAX", 1 << 20);
}

uint64_t sim_nccl_meet(const struct call *c, uint64_t begin_ns, uint64_t ns)
{
    const uint64_t mine[2] = {begin_ns, ns}, deadline = sim_nccl_deadline();
    struct part p = {.element = sim_nccl_type_bytes(c->type)};
    size_t most = CHUNK_BYTES / p.element / (size_t)sim_nccl_pieces(c);
    size_t count = moves_data(c, p.element) ? c->count : 0;
    uint64_t end = 0;
    do {
        p.count = count - p.first < most ? count - p.first : most;
        uint64_t ends = meet_part(c, &p, mine, deadline);
        if (!ends)
            return sim_now();
        end = ends > end ? ends : end;
        p.first += p.count;
    } while (p.first < count);
    return end;
}
