/*
 * policy.h - the published rank-straggler policy as a pure function: rows of one window in, the
 * window's diagnosis out. No files, no clock, no global state. Runs in the reading commands.
 *
 * The semantics are those of TraceML's published "Rank Straggler Policy"; the recorded answers in
 * tests/conformance/ pin them down (doc/policy.md), to the last bit: arithmetic is in double
 * precision ms, in the order of the steps, since a share that sits on a threshold must fall to the
 * same side.
 */
#ifndef LAGGARD_AGGREGATOR_POLICY_H
#define LAGGARD_AGGREGATOR_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "schema/spool.h"

/* All kinds that a verdict, finding or window can have; the published policy gives the first 12. */
#define LG_KINDS(X)                                                                                \
    X(NO_DATA)                                                                                     \
    X(WARMUP)                                                                                      \
    X(INCOMPLETE_DATA)                                                                             \
    X(BALANCED)                                                                                    \
    X(STRAGGLER)                                                                                   \
    X(INPUT_STRAGGLER)                                                                             \
    X(H2D_STRAGGLER)                                                                               \
    X(COMPUTE_STRAGGLER)                                                                           \
    X(INPUT_BOUND)                                                                                 \
    X(H2D_BOUND)                                                                                   \
    X(RESIDUAL_HEAVY)                                                                              \
    X(COMPUTE_BOUND)                                                                               \
    X(BACKWARD_STRAGGLER)                                                                          \
    X(OPTIMIZER_STRAGGLER)                                                                         \
    X(HOST_STRAGGLER)                                                                              \
    X(COMM_BOUND)                                                                                  \
    X(IMBALANCE)                                                                                   \
    X(HOST_PERIODIC)                                                                               \
    X(SYNC_BOUND)                                                                                  \
    X(HOST_SLOW)                                                                                   \
    X(HANG)
#define LG_KIND_ENUM(name) LG_##name,
enum lg_kind { LG_KINDS(LG_KIND_ENUM) LG_KIND_COUNT };
const char *lg_kind_name(enum lg_kind kind);
bool lg_kind_is_straggler(enum lg_kind kind);

/* Severities as the published policy has them; names are info, warning, critical. */
enum lg_severity { LG_SEVERITY_INFO, LG_SEVERITY_WARNING, LG_SEVERITY_CRITICAL };
const char *lg_severity_name(enum lg_severity severity);

enum lg_clock { LG_CLOCK_CPU, LG_CLOCK_GPU };
const char *lg_clock_name(enum lg_clock clock); /* "cpu", "gpu" */

enum lg_strategy { LG_DDP, LG_FSDP };
enum lg_strategy lg_strategy_parse(const char *text); /* NULL and unknown names: ddp */
const char *lg_strategy_name(enum lg_strategy strategy);

/* The six metrics of the policy; the five signals are all but h2d. */
#define LG_METRICS(X)                                                                              \
    X(input_wait)                                                                                  \
    X(h2d)                                                                                         \
    X(forward)                                                                                     \
    X(backward)                                                                                    \
    X(optimizer_step)                                                                              \
    X(traced_step_time)
#define LG_METRIC_ENUM(name) LG_METRIC_##name,
enum lg_metric { LG_METRICS(LG_METRIC_ENUM) LG_METRIC_COUNT };
const char *lg_metric_name(enum lg_metric metric);

/* The four shares of a window. */
#define LG_SHARES(X)        X(input_wait) X(h2d) X(compute) X(residual)
#define LG_SHARE_ENUM(name) LG_SHARE_##name,
enum lg_share { LG_SHARES(LG_SHARE_ENUM) LG_SHARE_COUNT };
const char *lg_share_name(enum lg_share share);

/* What a straggler's lateness is put down to. */
#define LG_COMPONENTS(X)        X(input) X(h2d) X(compute)
#define LG_COMPONENT_ENUM(name) LG_COMPONENT_##name,
enum lg_component {
    LG_COMPONENTS(LG_COMPONENT_ENUM) LG_COMPONENT_COUNT,
    LG_COMPONENT_sync_or_unattributed = LG_COMPONENT_COUNT
};
const char *lg_component_name(enum lg_component component);

/* One row. A metric that is absent has present 0 and both values LG_NULL; one that is there with
 * two LG_NULLs (recorded, not measured on either clock) has present 1. */
struct lg_policy_row {
    int64_t id; /* of two rows with the same rank and step the larger id wins */
    int64_t step;
    int32_t rank;
    uint8_t present;                   /* bit per metric */
    int64_t value[LG_METRIC_COUNT][2]; /* ns; [0] CPU, [1] GPU clock; LG_NULL: not measured */
};

/* Rows of ranks that all have the same steps, by rank and step, made one at a time as they are
 * wanted: a run need not be there twice. */
struct lg_policy_source {
    size_t n_ranks, n_steps;
    void (*row)(const void *context, size_t rank, size_t step, struct lg_policy_row *row);
    const void *context;
};

struct lg_policy_input {
    const struct lg_policy_row *rows; /* any order */
    size_t n_rows;
    const int32_t *expected; /* declared ranks, any order; n_expected 0: none declared */
    size_t n_expected;
    int64_t window; /* last steps to use; below 1 counts as 1 */
    enum lg_strategy strategy;
    const struct lg_policy_source *source; /* NULL, or instead of rows; all of its steps are used */
};

/* A rank's averages over the window's steps. */
struct lg_policy_rank {
    int32_t rank;
    uint8_t available;                   /* bit per metric */
    double mean[LG_METRIC_COUNT];        /* ms; NAN: not available */
    double compute, residual, step_time; /* ms, likewise */
};

struct lg_policy_straggler { /* evidence of the straggler kinds */
    enum lg_component component;
    int32_t culprit, victim;
    const char *visible_metric; /* "backward", "forward_backward" */
    double visible_culprit_ms, visible_victim_ms, visible_cost_ms, step_time_ms;
    double excess_ms[LG_COMPONENT_COUNT]; /* NAN: component not available */
    double coverage[LG_COMPONENT_COUNT];
};

struct lg_policy_issue {
    enum lg_kind kind;
    enum lg_severity severity;
    double score, share; /* NAN: none */
    bool has_rank;
    int32_t rank;
};

struct lg_policy_result {
    enum lg_clock clock;
    int64_t steps_used;
    int64_t first_step, last_step; /* LG_NULL when no step was used */
    enum lg_kind kind;
    enum lg_severity severity;
    bool has_worst_rank;
    int32_t worst_rank;
    size_t n_issues; /* at least 1 */
    struct lg_policy_issue issue[4];
    double share[LG_SHARE_COUNT]; /* NAN: null */

    struct lg_policy_straggler straggler; /* of the straggler issue, if there is one */
    double step_time_ms;                  /* evidence of INPUT_BOUND; NAN: not computed */
    uint8_t missing;                      /* bit per metric: signals that are missing */
    size_t with_metric[LG_METRIC_COUNT];  /* ranks with the metric available... */
    size_t universe;                      /* ...of so many */

    size_t n_ranks; /* ranks that have rows, by number; owned */
    struct lg_policy_rank *ranks;
};

/* Fills *result; give it back with lg_policy_result_free(). O(n log n) in the rows. */
void lg_policy_run(const struct lg_policy_input *input, struct lg_policy_result *result);
void lg_policy_result_free(struct lg_policy_result *result);

#endif
