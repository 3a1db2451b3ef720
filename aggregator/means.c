/*
 * means.c - each rank's means per step, for the report's table. Runs in the reading commands.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rules.h"

enum unit { UNIT_NS, UNIT_COUNT, UNIT_BYTES, UNIT_SEQ, UNIT_BITS };

/* A mean of a number that only grows, or of bits, says nothing. */
static bool has_mean(enum lg_column column)
{
#define COLUMN(name, table, unit, meaning) [LG_COL_##name] = UNIT_##unit,
    static const enum unit unit[] = {
#include "schema/columns.def"
    };
#undef COLUMN

    return unit[column] != UNIT_SEQ && unit[column] != UNIT_BITS && column != LG_COL_start_ns;
}

static bool is_h2d(enum lg_column column)
{
    return column == LG_COL_h2d_ns || column == LG_COL_gpu_h2d_ns;
}

struct mean {
    double sum;
    size_t measured;
};

static void add(struct mean *m, int64_t value)
{
    if (value != LG_NULL) {
        m->sum += (double)value;
        m->measured++;
    }
}

/* A step without a copy is 0 once the rank has copied; elsewhere only what was measured counts. */
static double finish(const struct mean *m, enum lg_column column, size_t steps)
{
    if (m->measured == 0)
        return (double)NAN;
    return m->sum / (double)(is_h2d(column) ? steps : m->measured);
}

/* Over the iterations that may be used; when there are none, over all. */
static void compared_means(const struct lg_aligned *a, size_t rank, struct lg_rank_means *out)
{
    size_t n = a->n_used ? a->n_used : a->n;

    out->steps = (int64_t)n;
    for (int c = 0; c < LG_COLUMNS; c++) {
        struct mean m = {0};

        if (!a->rank[rank]->value[c] || !has_mean(c))
            continue;
        for (size_t i = 0; i < n; i++) {
            size_t k = a->n_used ? a->used[i] : i;

            add(&m, is_h2d(c) ? lg_aligned_h2d(a, rank, k, c) : lg_aligned_value(a, rank, k, c));
        }
        out->mean[c] = finish(&m, c, n);
    }
}

/* Of a rank that could not be compared: over its own rows but the first. */
static void own_means(const struct lg_rank *rank, struct lg_rank_means *out)
{
    size_t from = rank->n > 1;

    out->steps = (int64_t)(rank->n - from);
    for (int c = 0; c < LG_COLUMNS; c++) {
        struct mean m = {0};

        if (!rank->value[c] || !has_mean(c))
            continue;
        for (size_t i = from; i < rank->n; i++)
            add(&m, rank->value[c][i]);
        out->mean[c] = finish(&m, c, rank->n - from);
    }
}

static double sum_of_sync(const double *mean)
{
#define SYNC_COLUMN(stage) LG_COL_##stage##_sync_ns,
    static const enum lg_column column[] = {LG_STAGES(SYNC_COLUMN)};
    double sum = (double)NAN;

    for (int s = 0; s < LG_STAGE_COUNT; s++)
        if (!isnan(mean[column[s]]))
            sum = (isnan(sum) ? 0 : sum) + mean[column[s]];
    return sum;
}

void lg_means(const struct lg_aligned *a, struct lg_diagnosis *d)
{
    const struct lg_run *run = a->run;
    size_t compared = 0;

    d->n_means = run->n_ranks;
    d->means = lg_alloc(run->n_ranks, sizeof(*d->means));
    for (size_t i = 0; i < run->n_ranks; i++) {
        const struct lg_rank *rank = &run->ranks[i];
        struct lg_rank_means *out = &d->means[i];

        out->rank = rank->rank;
        memcpy(out->host, rank->host, sizeof(out->host));
        out->end = rank->end;
        out->rows = (int64_t)rank->n;
        out->first_step = rank->n ? rank->step[0] : LG_NULL;
        out->last_step = rank->n ? rank->step[rank->n - 1] : LG_NULL;
        for (int c = 0; c < LG_COLUMNS; c++)
            out->mean[c] = (double)NAN;
        /* compared ranks are a part of run->ranks in the same order */
        if (compared < a->n_ranks && a->rank[compared] == rank && a->n > 0)
            compared_means(a, compared, out);
        else if (rank->n > 0)
            own_means(rank, out);
        compared += compared < a->n_ranks && a->rank[compared] == rank;
        out->sync_ns = sum_of_sync(out->mean);
    }
}
