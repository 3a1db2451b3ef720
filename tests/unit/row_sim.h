/*
 * row_sim.h - rows of data-parallel trainings that never ran, for tests of the diagnosis: every
 * rank has its own clock and work with natural jitter, all wait for each other in the gradient sync
 * of backward, and a schedule says who is slow where and when. Deterministic by seed.
 *
 * Times are ms as double here, ns in the rows.
 */
#ifndef LAGGARD_TESTS_UNIT_ROW_SIM_H
#define LAGGARD_TESTS_UNIT_ROW_SIM_H

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rows.h"

#define SIM_MS 1e6

/* Where the sync is, and what is written of it. */
enum sim_rows {
    SIM_HOST,       /* host columns with the "after" columns */
    SIM_HOST_PLAIN, /* host columns without them, as an import may have */
    SIM_DEVICE,     /* gpu_* columns tell; on the host all ranks tie in device_wait */
    SIM_NO_SYNC     /* no column about collectives */
};

struct sim {
    int ranks, steps; /* the first step is start-up: steps - 1 cycles */
    uint64_t seed;
    enum sim_rows rows;
    double stage[LG_STAGE_COUNT]; /* own time */
    double tail;                  /* part of backward after its last sync */
    double transfer;
    double jitter;    /* standard deviation of each stage of each rank and step, as a part of it */
    double common;    /* the same for all ranks of a step: how global noise looks */
    int64_t seq_step; /* collectives per step, 0: no numbers */
    /* ms more (may be negative) for a rank's stage in a step; may use and change anything in
     * `context`. Called once per rank, step and stage in this order of nesting: step, rank, stage.
     */
    double (*more)(struct sim *sim, int rank, int step, enum lg_stage stage);
    void *context;
    /* other columns of a row, after it was written; may be NULL */
    void (*decorate)(struct sim *sim, struct lg_rank *rank, size_t row);
    uint64_t random; /* state */
};

/* ---- random numbers (splitmix64) ---- */

static inline uint64_t sim_random(struct sim *s)
{
    uint64_t z = s->random += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline double sim_uniform(struct sim *s)
{
    return (double)(sim_random(s) >> 11) * 0x1p-53;
}

static inline int sim_below(struct sim *s, int n)
{
    return (int)(sim_random(s) % (uint64_t)n);
}

/* Mean 0, standard deviation 1, never beyond 6. */
static inline double sim_normal(struct sim *s)
{
    double sum = -6;

    for (int i = 0; i < 12; i++)
        sum += sim_uniform(s);
    return sum;
}

/* ---- rows ---- */

static inline double sim_step_ms(const struct sim *s)
{
    double sum = s->transfer;

    for (int i = 0; i < LG_STAGE_COUNT; i++)
        sum += s->stage[i];
    return sum;
}

static inline void sim_set(struct lg_rank *rank, size_t row, enum lg_column column, int64_t ns)
{
    lg_rank_use_column(rank, column);
    rank->value[column][row] = ns;
}

/* Own times of one rank's step, in ns; backward in two parts. */
struct sim_work {
    int64_t own[LG_STAGE_COUNT], tail;
};

static inline int64_t sim_ns(double ms)
{
    return ms > 0 ? (int64_t)(ms * SIM_MS) : 0;
}

static inline struct sim_work sim_work(struct sim *s, int rank, int step, const double *common)
{
    struct sim_work w;

    for (int i = 0; i < LG_STAGE_COUNT; i++) {
        double ms = s->stage[i] * (1 + s->jitter * sim_normal(s)) * common[i];

        if (i == LG_STAGE_backward)
            w.tail = sim_ns(ms * s->tail);
        if (s->more)
            ms += s->more(s, rank, step, (enum lg_stage)i);
        w.own[i] = sim_ns(ms);
    }
    if (w.tail > w.own[LG_STAGE_backward])
        w.tail = w.own[LG_STAGE_backward];
    w.own[LG_STAGE_backward] -= w.tail;
    return w;
}

/* Columns of one clock: [0] host, [1] device. */
static const struct {
    enum lg_column dur, stage[LG_STAGE_COUNT], sync[LG_STAGE_COUNT], after[3];
} sim_columns[2] = {
#define SIM_C(prefix)                                                                              \
    {                                                                                              \
        LG_COL_##prefix##dur_ns, {LG_COL_##prefix##input_wait_ns, LG_COL_##prefix##h2d_ns,         \
                                  LG_COL_##prefix##forward_ns,    LG_COL_##prefix##backward_ns,    \
                                  LG_COL_##prefix##optimizer_ns,  LG_COL_##prefix##other_ns},      \
            {LG_COL_##prefix##input_wait_sync_ns, LG_COL_##prefix##h2d_sync_ns,                    \
             LG_COL_##prefix##forward_sync_ns,    LG_COL_##prefix##backward_sync_ns,               \
             LG_COL_##prefix##optimizer_sync_ns,  LG_COL_##prefix##other_sync_ns},                 \
        {                                                                                          \
            LG_COL_##prefix##backward_after_ns, LG_COL_##prefix##optimizer_after_ns,               \
                LG_COL_##prefix##other_after_ns                                                    \
        }                                                                                          \
    }
    SIM_C(), SIM_C(gpu_)};

static inline void sim_write(const struct sim *s, struct lg_rank *rank, size_t row, int clock,
                             const struct sim_work *w, int64_t wait)
{
    int64_t dur = w->tail + wait;

    for (int i = 0; i < LG_STAGE_COUNT; i++) {
        bool backward = i == LG_STAGE_backward;

        dur += w->own[i];
        sim_set(rank, row, sim_columns[clock].stage[i],
                w->own[i] + (backward ? w->tail + wait : 0));
        if (s->rows != SIM_NO_SYNC)
            sim_set(rank, row, sim_columns[clock].sync[i], backward ? wait : 0);
    }
    sim_set(rank, row, sim_columns[clock].dur, dur);
    if (s->rows == SIM_HOST || s->rows == SIM_DEVICE) {
        sim_set(rank, row, sim_columns[clock].after[0], w->tail);
        sim_set(rank, row, sim_columns[clock].after[1], w->own[LG_STAGE_optimizer]);
        sim_set(rank, row, sim_columns[clock].after[2], w->own[LG_STAGE_other]);
    }
}

/* On the host of a training with a device every rank enqueues its work in no time and then waits
 * for its device: nobody can be told from anybody. */
static inline void sim_write_host(struct lg_rank *rank, size_t row, int64_t dur)
{
    int64_t part = dur / 20;

    for (int i = 0; i < LG_STAGE_COUNT; i++) {
        sim_set(rank, row, sim_columns[0].stage[i], i == LG_STAGE_other ? dur - 5 * part : part);
        sim_set(rank, row, sim_columns[0].sync[i], 0);
    }
    sim_set(rank, row, LG_COL_dur_ns, dur);
    sim_set(rank, row, LG_COL_device_wait_ns, dur - 6 * part);
}

static inline void sim_step(struct sim *s, struct lg_run *run, int64_t *clock, int step)
{
    struct sim_work *w = lg_alloc((size_t)s->ranks, sizeof(*w));
    double common[LG_STAGE_COUNT];
    int64_t exit = 0;

    for (int i = 0; i < LG_STAGE_COUNT; i++)
        common[i] = 1 + s->common * sim_normal(s);
    for (int r = 0; r < s->ranks; r++) {
        int64_t arrival = clock[r];

        w[r] = sim_work(s, r, step, common);
        for (int i = 0; i <= LG_STAGE_backward; i++)
            arrival += w[r].own[i];
        exit = arrival > exit ? arrival : exit;
    }
    exit += sim_ns(s->transfer * (1 + s->jitter * sim_normal(s)));
    for (int r = 0; r < s->ranks; r++) {
        struct lg_rank *rank = &run->ranks[r];
        int64_t leaves = exit + sim_below(s, 20000), arrival = clock[r], dur;
        size_t row = lg_rank_append(rank, step);

        for (int i = 0; i <= LG_STAGE_backward; i++)
            arrival += w[r].own[i];
        sim_write(s, rank, row, s->rows == SIM_DEVICE, &w[r], leaves - arrival);
        dur = rank->value[sim_columns[s->rows == SIM_DEVICE].dur][row];
        if (s->rows == SIM_DEVICE)
            sim_write_host(rank, row, dur);
        sim_set(rank, row, LG_COL_start_ns, clock[r]);
        if (s->seq_step > 0)
            sim_set(rank, row, LG_COL_collective_seq, (step + 1) * s->seq_step);
        clock[r] += dur;
        if (s->decorate)
            s->decorate(s, rank, row);
    }
    free(w);
}

/* The run; the caller frees it. */
static inline struct lg_run *sim_run(struct sim *s)
{
    struct lg_run *run = lg_run_new();
    int64_t *clock = lg_alloc((size_t)s->ranks, sizeof(*clock));

    s->random = s->seed * 2654435761u + 12345;
    run->imported = true;
    run->world = s->ranks;
    for (int r = 0; r < s->ranks; r++)
        lg_run_add_rank(run, r)->has_device = s->rows == SIM_DEVICE;
    for (int k = 0; k < s->steps; k++)
        sim_step(s, run, clock, k);
    free(clock);
    return run;
}

/* A usual training, nobody slow: 100 ms a step, 4 of them transfer. */
static inline struct sim sim_usual(int ranks, int cycles, uint64_t seed)
{
    return (struct sim){
        .ranks = ranks,
        .steps = cycles + 1,
        .seed = seed,
        .stage = {[LG_STAGE_input_wait] = 5,
                  [LG_STAGE_h2d] = 3,
                  [LG_STAGE_forward] = 30,
                  [LG_STAGE_backward] = 45,
                  [LG_STAGE_optimizer] = 9,
                  [LG_STAGE_other] = 4},
        .tail = 0.1,
        .transfer = 4,
        .jitter = 0.02,
        .seq_step = 3,
    };
}

/* ---- one slow rank, as most tests want it ---- */

struct sim_fault {
    int rank; /* -1: every rank */
    enum lg_stage stage;
    double ms;
    int every, phase; /* in steps; every 0: always */
    int from, to;     /* steps, to 0: to the end */
};

/* `more` of a sim whose context is a list of faults that ends with ms 0. */
static inline double sim_faults(struct sim *s, int rank, int step, enum lg_stage stage)
{
    double ms = 0;

    for (const struct sim_fault *f = s->context; f->ms != 0; f++)
        if ((f->rank == rank || f->rank < 0) && f->stage == stage && step >= f->from &&
            (f->to == 0 || step < f->to) && (f->every == 0 || step % f->every == f->phase))
            ms += f->ms;
    return ms;
}

#endif
