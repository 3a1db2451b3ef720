/*
 * arrival.h - a scope prepared for the rules on arrival: its cycles, who is late in which, what
 * each rank's lateness is made of, what mending it would gain. Runs in the reading commands.
 *
 * Ranks are indices into aligned->rank[] here, cycles are counted from the scope's first. The
 * reference of a rank is the median over the other ranks, for A and for each part; lateness is A
 * less its reference and counts as 0 below LG_LATE of the step.
 *
 * Memory: lg_arrivals_new() returns a block that points into the cycles, which have to outlive it.
 */
#ifndef LAGGARD_AGGREGATOR_ARRIVAL_H
#define LAGGARD_AGGREGATOR_ARRIVAL_H

#include <jansson.h>

#include "aggregator/cycles.h"
#include "aggregator/diagnose.h"
#include "aggregator/order.h"
#include "aggregator/rules.h"

#define LG_LATE     0.05 /* of the step: less is no lateness */
#define LG_COSTLY   0.10 /* of the step or the time: less is no finding */
#define LG_CRITICAL 0.20
#define LG_NAMES    0.80 /* of the lateness: a stage that explains so much is its cause */

/* Why the rules abstain. */
#define LG_NO_OTHERS      "there is only one rank"
#define LG_NO_DEVICE_SKEW "device-side skew is not observable"
#define LG_NO_SYNC        "time blocked in collectives was not measured on every rank and step"
#define LG_TOO_FEW        "fewer than 2 steps can be compared"

/* What a rank's lateness adds up to over the scope, in ns. */
struct lg_account {
    int64_t late;      /* sum of lateness */
    size_t late_steps; /* cycles in which it is late */
    /* after lg_arrivals_account() */
    double split[LG_STAGE_COUNT]; /* the sum shared out to stages */
    double unsplit;               /* of cycles in which no part exceeds its reference */
    int64_t gain[LG_STAGE_COUNT]; /* what mending the stage would save */
    int64_t gain_all;             /* what mending all of the rank would save */
};

struct lg_arrivals {
    struct lg_cycles *cycles;
    size_t first, n; /* cycles->cycle[first .. first + n) */
    size_t n_ranks;
    double step_ns;             /* D: median duration over ranks and steps */
    double time_ns;             /* what all cycles take */
    struct lg_account *account; /* [rank] */
    bool accounted;             /* splits and gains are there */
};

/* NULL if nothing may be said about the scope; *abstain is why then. */
struct lg_arrivals *lg_arrivals_new(struct lg_cycles *cycles, const struct lg_scope *scope,
                                    const char **abstain);
/* Fills in what lateness is made of and what mending would gain: a pass over all rows, done once.
 * `visit`, if not NULL, is called for each cycle as it goes by. */
void lg_arrivals_account(struct lg_arrivals *arrivals,
                         void (*visit)(void *context, const struct lg_arrivals *a, size_t k),
                         void *context);
void lg_arrivals_free(struct lg_arrivals *arrivals);

static inline const struct lg_cycle *lg_arrivals_cycle(const struct lg_arrivals *a, size_t k)
{
    return &a->cycles->cycle[a->first + k];
}

/* Lateness in ns. */
static inline int64_t lg_late(const struct lg_arrivals *a, size_t k, size_t rank)
{
    int64_t late = a->cycles->lateness[(a->first + k) * a->n_ranks + rank];

    return (double)late >= LG_LATE * a->step_ns ? late : 0;
}

/* Iteration of a cycle as an index into the aligned arrays, and its step number for people. */
size_t lg_arrivals_iteration(const struct lg_arrivals *a, size_t k);
int64_t lg_arrivals_step(const struct lg_arrivals *a, size_t k);
/* The steps of cycles [from, to). */
struct lg_steps lg_arrivals_steps(const struct lg_arrivals *a, size_t from, size_t to);
int32_t lg_arrivals_rank(const struct lg_arrivals *a, size_t rank);
/* What is left of the number of late steps in n that may be chance: a share in (0.5, 1). */
double lg_clear_majority(size_t n);

/* ---- big steps ---- */

/* Lateness from which on a step is one of the rank's big ones: half of its largest; 0: none is. */
int64_t lg_big_from(const struct lg_arrivals *a, size_t rank);

/* ---- parts against their references ---- */

/* Per part the median of all ranks, and of all but one. */
struct lg_references {
    struct lg_middle middle[LG_PART_COUNT];
};
/* `list` is room for one number per rank. */
void lg_references_of(const struct lg_arrivals *a, const struct lg_cycle_row *row, int64_t *list,
                      struct lg_references *references);
/* The rank's part less its reference. */
int64_t lg_excess(const struct lg_references *references, const struct lg_cycle_row *row,
                  enum lg_part part);

/* ---- cause ---- */

/* What a rank's lateness in some cycles is put down to. */
struct lg_cause {
    enum lg_kind kind;
    enum lg_blame stage;
    double late_ns;                   /* median lateness */
    double excess_ns[LG_STAGE_COUNT]; /* median of own part less reference */
    double own_ns[LG_STAGE_COUNT], others_ns[LG_STAGE_COUNT]; /* medians of the two */
    /* where the host's clock decided, else host_excess_ns is 0: how much longer the host works than
     * the others', and in which stage, means */
    int host_stage;
    double host_excess_ns, host_own_ns, host_others_ns;
};
/* Over the cycles k with chosen[k]; there is at least one. */
void lg_find_cause(const struct lg_arrivals *a, size_t rank, const bool *chosen,
                   struct lg_cause *cause);
/* On the device's clock, if that names no single stage: what the ranks' hosts tell. */
void lg_find_host_cause(const struct lg_arrivals *a, size_t rank, const bool *chosen,
                        struct lg_cause *cause);
/* Kind of a finding about a rank that is late in the stage. */
enum lg_kind lg_stage_kind(const struct lg_arrivals *a, enum lg_stage stage);
/* Report's name of a stage; forward stands for both where they can't be told apart. */
enum lg_blame lg_stage_blame(const struct lg_arrivals *a, enum lg_stage stage);

/* ---- what-if ---- */

/* ns that mending all `named` ranks (indices) would save in cycles [from, to), and *time the time
 * of those. */
int64_t lg_gain_of_mending(const struct lg_arrivals *a, const size_t *named, size_t n_named,
                           size_t from, size_t to, double *time);

#endif
