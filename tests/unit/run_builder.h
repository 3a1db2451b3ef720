/*
 * run_builder.h - runs in memory for tests of the diagnosis: ranks whose rows are given stage by
 * stage. Times are in ms; X is "not measured".
 */
#ifndef LAGGARD_TESTS_UNIT_RUN_BUILDER_H
#define LAGGARD_TESTS_UNIT_RUN_BUILDER_H

#include "aggregator/rows.h"

#define X INT64_MAX

/* Stages of one row on one clock; dur is their sum (NULL if one is X, h2d and optimizer apart). */
struct stages {
    int64_t input, h2d, forward, backward, optimizer, other;
};

static inline int64_t in_ns(int64_t ms)
{
    return ms == X ? LG_NULL : ms * 1000000;
}

static inline void set(struct lg_rank *rank, size_t row, enum lg_column column, int64_t value)
{
    lg_rank_use_column(rank, column);
    rank->value[column][row] = value;
}

static inline int64_t sum_of_stages(const struct stages *s)
{
    int64_t part[] = {s->input, s->h2d, s->forward, s->backward, s->optimizer, s->other}, sum = 0;

    for (size_t i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
        if (part[i] == X && i != 1 && i != 4)
            return X;
        sum += part[i] == X ? 0 : part[i];
    }
    return sum;
}

static inline size_t add_row(struct lg_rank *rank, int64_t step, struct stages s)
{
    size_t row = lg_rank_append(rank, step);

    set(rank, row, LG_COL_dur_ns, in_ns(sum_of_stages(&s)));
    set(rank, row, LG_COL_input_wait_ns, in_ns(s.input));
    set(rank, row, LG_COL_h2d_ns, in_ns(s.h2d));
    set(rank, row, LG_COL_forward_ns, in_ns(s.forward));
    set(rank, row, LG_COL_backward_ns, in_ns(s.backward));
    set(rank, row, LG_COL_optimizer_ns, in_ns(s.optimizer));
    set(rank, row, LG_COL_other_ns, in_ns(s.other));
    return row;
}

static inline void set_device(struct lg_rank *rank, size_t row, struct stages s)
{
    set(rank, row, LG_COL_gpu_dur_ns, in_ns(sum_of_stages(&s)));
    set(rank, row, LG_COL_gpu_input_wait_ns, in_ns(s.input));
    set(rank, row, LG_COL_gpu_h2d_ns, in_ns(s.h2d));
    set(rank, row, LG_COL_gpu_forward_ns, in_ns(s.forward));
    set(rank, row, LG_COL_gpu_backward_ns, in_ns(s.backward));
    set(rank, row, LG_COL_gpu_optimizer_ns, in_ns(s.optimizer));
    set(rank, row, LG_COL_gpu_other_ns, in_ns(s.other));
}

/* Rows of the steps first .. first+n-1, all alike. */
static inline struct lg_rank *add_rank(struct lg_run *run, int32_t number, int64_t first, int n,
                                       struct stages s)
{
    struct lg_rank *rank = lg_run_add_rank(run, number);

    for (int i = 0; i < n; i++)
        add_row(rank, first + i, s);
    return rank;
}

/* Every row has time in collectives inside backward, and a number: per_step more in each row. */
static inline void add_collectives(struct lg_run *run, int64_t sync_ms, int64_t per_step)
{
    for (size_t r = 0; r < run->n_ranks; r++) {
        for (size_t i = 0; i < run->ranks[r].n; i++) {
            set(&run->ranks[r], i, LG_COL_backward_sync_ns, in_ns(sync_ms));
            set(&run->ranks[r], i, LG_COL_collective_seq, ((int64_t)i + 1) * per_step);
        }
    }
}

#endif
