/*
 * cycles.h - what each rank did between two exits from a collective: the quantities that the rules
 * on arrival, the frontier and what-if gains are made from. Runs in the reading commands.
 *
 * A cycle runs from the exit of one step's last sync to the exit of the next one's. All ranks leave
 * a sync (nearly) together, so the exits align them without any agreement of their clocks. Of a
 * cycle each rank has nine own parts in time order (LG_PARTS: the three "after" parts come from the
 * row before), their sum A = its arrival, and S = the time that it was blocked in collectives.
 *
 * The host's columns are used without a device; with one the device's, or the host's where the host
 * does not wait for its device. Integer ns throughout. What can't be measured is not guessed:
 * `abstain` says why there are no cycles.
 *
 * Memory: lg_cycles_new() returns a block that points into `aligned`, which has to outlive it. Per
 * rank and cycle it keeps one number; parts are read from the rows when they are asked for and kept
 * up to a limit, so ask in ascending order.
 */
#ifndef LAGGARD_AGGREGATOR_CYCLES_H
#define LAGGARD_AGGREGATOR_CYCLES_H

#include "aggregator/aligned.h"

/* X(part, stage) in time order */
#define LG_PARTS(X)                                                                                \
    X(backward_after, backward)                                                                    \
    X(optimizer_after, optimizer)                                                                  \
    X(host_after, other)                                                                           \
    X(input, input_wait)                                                                           \
    X(h2d, h2d)                                                                                    \
    X(host, other)                                                                                 \
    X(forward, forward)                                                                            \
    X(backward, backward)                                                                          \
    X(optimizer, optimizer)
#define LG_PART_ENUM(part, stage) LG_PART_##part,
enum lg_part { LG_PARTS(LG_PART_ENUM) LG_PART_COUNT };
const char *lg_part_name(enum lg_part part);
enum lg_stage lg_part_stage(enum lg_part part);
/* True for a part that comes from the row before the cycle's own. */
static inline bool lg_part_is_before(enum lg_part part)
{
    return part <= LG_PART_host_after;
}

/* One rank's cycle. */
struct lg_cycle_row {
    int64_t part[LG_PART_COUNT];
    int64_t sync[LG_STAGE_COUNT];
};

struct lg_cycle {
    size_t used;           /* index in aligned->used of the step that ends it */
    bool measured;         /* on every rank */
    bool set;              /* what follows is there: lg_cycles_prepare() */
    uint32_t latest;       /* rank index with the largest A, the lowest of equals */
    int64_t arrival;       /* largest A */
    int64_t second;        /* largest A of the other ranks */
    int64_t mean_arrival;  /* over the ranks, floored */
    int64_t transfer;      /* T: smallest S */
    int64_t pure_transfer; /* the same without mutual waiting, where there are several syncs */
    int64_t time;          /* what the cycle takes: arrival + transfer, or with mutual waiting */
    int64_t cost;          /* what waiting costs: upper median of the wait less the smallest */
    int64_t spread;        /* largest S - smallest S */
};

struct lg_cycles {
    const struct lg_aligned *aligned;
    const char *abstain; /* why nothing can be said, NULL: it can; static */
    bool device;         /* the device's columns */
    bool several;        /* collectives block in several stages of a step (FSDP): compared apart */
    bool merged;         /* forward stands for forward and backward somewhere */
    double step_ns;      /* median duration over ranks and steps */
    size_t warm_up;      /* leading steps left out since they are far longer than the rest */
    size_t n_ranks;      /* aligned->n_ranks */
    size_t n;
    struct lg_cycle *cycle; /* in order */
    int64_t *lateness;      /* [cycle * n_ranks + rank]: A - median A of the others */
    struct lg_cycle_cache *cache;
};

struct lg_cycles *lg_cycles_new(const struct lg_aligned *aligned);
void lg_cycles_free(struct lg_cycles *cycles);

/* Sets the measured ones of cycles [from, to), and their lateness; keeps their rows if there is
 * room for all of them. */
void lg_cycles_prepare(struct lg_cycles *cycles, size_t from, size_t to);
/* The rows of all ranks, [rank], of a measured cycle; good until the next call. */
const struct lg_cycle_row *lg_cycle_rows(struct lg_cycles *cycles, size_t cycle);
/* Iteration (index in the aligned arrays) of a cycle. */
static inline size_t lg_cycle_iteration(const struct lg_cycles *c, size_t cycle)
{
    return c->aligned->used[c->cycle[cycle].used];
}
/* Duration of the iteration on the clock that the cycles are on; LG_NULL: not measured. */
int64_t lg_cycles_duration(const struct lg_cycles *cycles, size_t rank, size_t iteration);
/* Time that a rank was blocked in collectives in an iteration's rows; LG_NULL: not measured. */
int64_t lg_cycles_sync(const struct lg_cycles *cycles, size_t rank, size_t iteration);

/* ---- devices ---- */

/* True if the rank used a device. */
bool lg_rank_uses_device(const struct lg_rank *rank);
/* True if the rank's host waits for its device for less than 5 % of its time. */
bool lg_rank_ignores_device(const struct lg_rank *rank);

#endif
