/*
 * identity.c - see identity.h. Context: hooks on any thread; only atomics, no lock.
 */
#include "preload/identity.h"

#include <string.h>

#include "preload/boot.h"
#include "preload/counters.h"
#include "preload/environment.h"
#include "preload/hooks.h"
#include "preload/library.h"

static struct lg_group groups[LG_GROUPS];
static _Atomic uint32_t seen;
static _Atomic int32_t rank = -1, world = -1;
static _Atomic uint32_t rank_source;
static int32_t local_rank = -1;

/* Of the largest groups whose addresses were used again by groups of another size. */
static _Atomic int32_t retired_size;
static _Atomic uint64_t retired_seq;

static struct lg_group *find(const void *id, bool add)
{
    for (unsigned i = 0; i < LG_GROUPS; i++) {
        uint64_t there = groups[i].id;
        if (there == (uint64_t)(uintptr_t)id)
            return &groups[i];
        if (there != 0)
            continue;
        if (!add)
            return NULL;
        if (atomic_compare_exchange_strong(&groups[i].id, &there, (uint64_t)(uintptr_t)id))
            return &groups[i];
        i--; /* somebody else took it: look at it again */
    }
    return NULL;
}

static void set_rank(int r, int n, enum lg_rank_source source)
{
    if (r < 0 || n <= r)
        return;
    rank = r;
    world = n;
    rank_source = source;
}

/* A destroyed group's address is used again. What it counted must stay in the sum over groups of
 * its size, which other ranks may hold in two entries: the number that aligns ranks never falls. */
static void retire(struct lg_group *g, int size)
{
    if (g->size == size)
        return;
    if (g->size >= retired_size) {
        retired_seq = g->size == retired_size ? retired_seq + g->seq : g->seq;
        retired_size = g->size;
    }
    g->seq = 0;
}

void lg_identity_group(const void *id, int r, int size, enum lg_group_kind kind)
{
    struct lg_group *g = find(id, true);
    if (g != NULL) { /* a full table only loses the group's own counts */
        retire(g, size);
        g->rank = r;
        g->size = size;
        g->kind = kind;
    }
    lg_identity_saw(kind == LG_GROUP_NCCL   ? LG_SEEN_NCCL
                    : kind == LG_GROUP_GLOO ? LG_SEEN_GLOO
                                            : 0);
    if (size > world || (size == world && rank_source != LG_RANK_COMMUNICATOR))
        set_rank(r, size, LG_RANK_COMMUNICATOR);
}

void lg_identity_collective(const void *id, uint64_t bytes, enum lg_group_kind kind)
{
    struct lg_group *g = find(id, true);
    lg_count(&lg_process_counters.collectives, 1);
    lg_count(&lg_process_counters.collective_bytes, bytes);
    if (g == NULL)
        return;
    if (g->kind == 0) {
        g->rank = g->size = -1;
        g->kind = kind;
    }
    lg_count(&g->seq, 1);
    lg_count(&g->bytes, bytes);
}

uint64_t lg_identity_sequence(void)
{
    int32_t largest = retired_size;
    uint64_t sum = retired_seq;
    for (unsigned i = 0; i < LG_GROUPS && groups[i].id != 0; i++) {
        if (groups[i].size > largest) {
            largest = groups[i].size;
            sum = 0;
        }
        if (groups[i].size == largest)
            sum += groups[i].seq;
    }
    return sum;
}

void lg_identity_saw(uint32_t bits)
{
    if ((seen & bits) != bits)
        atomic_fetch_or(&seen, bits);
}

uint32_t lg_identity_seen(void)
{
    return seen;
}

bool lg_identity_sync_known(void)
{
    if (lg_process.torch)
        return real.work_wait != NULL && real.reducer_finalize_backward != NULL;
    return (seen & (LG_SEEN_GLOO | LG_SEEN_NCCL)) != 0;
}

void lg_identity_environment(void)
{
    static const struct {
        const char *rank, *world;
        enum lg_rank_source source;
    } launchers[] = {
        {"RANK", "WORLD_SIZE", LG_RANK_ENV},
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", LG_RANK_OMPI},
        {"PMIX_RANK", "PMIX_SIZE", LG_RANK_PMI},
        {"PMI_RANK", "PMI_SIZE", LG_RANK_PMI},
        {"SLURM_PROCID", "SLURM_NTASKS", LG_RANK_SLURM},
    };
    local_rank = (int32_t)lg_environment_number("LOCAL_RANK");
    for (unsigned i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
        int64_t r = lg_environment_number(launchers[i].rank);
        int64_t n = lg_environment_number(launchers[i].world);
        if (r < 0 || n <= r)
            continue;
        if (n > world)
            set_rank((int)r, (int)n, launchers[i].source);
        return;
    }
}

void lg_identity_write(struct lg_spool *spool)
{
    struct lg_group *to = lg_spool_groups(spool);
    spool->rank = rank < 0 ? 0 : rank;
    spool->world = world < 1 ? 1 : world;
    spool->rank_source = rank_source;
    spool->local_rank = local_rank;
    spool->seen = seen;
    lg_library_write(spool);
    for (unsigned i = 0; i < LG_GROUPS && groups[i].id != 0; i++)
        memcpy(&to[i], &groups[i], sizeof to[i]);
}

void lg_identity_describe(struct lg_text *text)
{
    lg_text_add_number(text, rank < 0 ? 0 : (uint64_t)rank);
    lg_text_add(text, ":");
    lg_text_add_number(text, world < 1 ? 1 : (uint64_t)world);
    lg_text_add(text, ":");
    lg_text_add_number(text, rank_source);
}

void lg_identity_reset(void)
{
    memset(groups, 0, sizeof groups);
    seen = lg_process.torch ? seen & (LG_SEEN_TORCH | LG_SEEN_TORCH_PARTLY) : 0;
    rank = world = -1;
    rank_source = LG_RANK_UNKNOWN;
    retired_size = 0;
    retired_seq = 0;
    lg_library_reset();
}
