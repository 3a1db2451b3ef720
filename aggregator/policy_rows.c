/*
 * policy_rows.c - the published policy's window: rows sorted, duplicates resolved, the common steps
 * of all ranks found, the clock chosen, averages taken (doc/policy.md, sections 2 and 3). Pure
 * functions, in the reading commands. Sorting is the most expensive part; everything else is one
 * pass.
 */
#include "aggregator/policy_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rows.h"

/* The rows of one rank, by step. */
struct slice {
    size_t begin, end; /* in table.row */
};

struct table {
    const struct lg_policy_row **row; /* by rank, then step; no (rank, step) twice */
    size_t n;
    struct slice *slice; /* one per rank that has rows, by rank */
    size_t n_slices;
    int64_t *step; /* the window's steps, ascending */
    size_t n_steps;
};

static int by_rank_step_id(const void *a, const void *b)
{
    const struct lg_policy_row *x = *(const struct lg_policy_row *const *)a;
    const struct lg_policy_row *y = *(const struct lg_policy_row *const *)b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return (x > y) - (x < y); /* the later of two equal ids */
}

static bool same_place(const struct lg_policy_row *a, const struct lg_policy_row *b)
{
    return a->rank == b->rank && a->step == b->step;
}

static void sort_rows(const struct lg_policy_input *input, struct table *t)
{
    bool sorted = true;
    size_t kept = 0;

    t->row = lg_alloc(input->n_rows, sizeof(const struct lg_policy_row *));
    for (size_t i = 0; i < input->n_rows; i++) {
        t->row[i] = &input->rows[i];
        sorted = sorted && (i == 0 || by_rank_step_id(&t->row[i - 1], &t->row[i]) < 0);
    }
    if (!sorted)
        qsort(t->row, input->n_rows, sizeof(const struct lg_policy_row *), by_rank_step_id);
    for (size_t i = 0; i < input->n_rows; i++) {
        if (kept && same_place(t->row[kept - 1], t->row[i]))
            kept--; /* the larger id comes later and wins */
        t->row[kept++] = t->row[i];
    }
    t->n = kept;
}

static void slice_rows(struct table *t)
{
    size_t n = 0;

    for (size_t i = 0; i < t->n; i++)
        n += i == 0 || t->row[i]->rank != t->row[i - 1]->rank;
    t->slice = lg_alloc(n, sizeof(*t->slice));
    for (size_t i = 0; i < t->n; i++) {
        if (i == 0 || t->row[i]->rank != t->row[i - 1]->rank)
            t->slice[t->n_slices++].begin = i;
        t->slice[t->n_slices - 1].end = i + 1;
    }
}

/* Keeps of the ascending list step[0..n) what occurs in the slice, and returns how much. */
static size_t intersect(int64_t *step, size_t n, const struct table *t, const struct slice *s)
{
    size_t kept = 0, i = s->begin;

    for (size_t k = 0; k < n; k++) {
        while (i < s->end && t->row[i]->step < step[k])
            i++;
        if (i < s->end && t->row[i]->step == step[k])
            step[kept++] = step[k];
    }
    return kept;
}

static void find_steps(struct table *t, int64_t window)
{
    size_t n = 0, last = window < 1 ? 1 : (size_t)window;

    if (t->n_slices == 0)
        return;
    t->step = lg_alloc(t->slice[0].end, sizeof(*t->step));
    for (size_t i = 0; i < t->slice[0].end; i++)
        t->step[n++] = t->row[i]->step;
    for (size_t s = 1; s < t->n_slices; s++)
        n = intersect(t->step, n, t, &t->slice[s]);
    if (n > last) {
        memmove(t->step, t->step + (n - last), last * sizeof(*t->step));
        n = last;
    }
    t->n_steps = n;
}

/* Calls visit for each row of the slice that lies in the window. */
static void each_row(const struct table *t, const struct slice *s,
                     void (*visit)(const struct lg_policy_row *row, void *data), void *data)
{
    size_t i = s->begin;

    for (size_t k = 0; k < t->n_steps; k++) {
        while (t->row[i]->step < t->step[k])
            i++;
        visit(t->row[i], data);
    }
}

static void check_clock(const struct lg_policy_row *row, void *data)
{
    bool *gpu = data;

    for (int m = 0; m < LG_METRIC_COUNT; m++) {
        bool required =
            m == LG_METRIC_input_wait || m == LG_METRIC_traced_step_time || (row->present >> m & 1);

        if (required && row->value[m][1] == LG_NULL)
            *gpu = false;
    }
}

/* Sums in ms over the window's steps of one rank. Absent values add 0; whether the sum may be used
 * is decided by `measured`. */
struct sums {
    enum lg_clock clock;
    double sum[LG_METRIC_COUNT];
    size_t measured[LG_METRIC_COUNT];
    double residual, step_time;
    size_t steps;
};

static bool is_occurrence(int metric)
{
    return metric == LG_METRIC_h2d || metric == LG_METRIC_optimizer_step;
}

static void add_row(const struct lg_policy_row *row, void *data)
{
    struct sums *s = data;
    double v[LG_METRIC_COUNT], compute;

    for (int m = 0; m < LG_METRIC_COUNT; m++) {
        bool measured = row->value[m][s->clock] != LG_NULL;

        v[m] = measured ? (double)row->value[m][s->clock] / 1e6 : 0;
        s->sum[m] += v[m];
        s->measured[m] += measured;
    }
    compute = v[LG_METRIC_forward] + v[LG_METRIC_backward] + v[LG_METRIC_optimizer_step];
    s->residual += fmax(0, v[LG_METRIC_traced_step_time] - v[LG_METRIC_h2d] - compute);
    s->step_time += v[LG_METRIC_input_wait] + v[LG_METRIC_traced_step_time];
    s->steps++;
}

static double mean_if(bool available, double sum, const struct sums *s)
{
    return available ? sum / (double)s->steps : (double)NAN;
}

static void finish(const struct sums *s, struct lg_policy_rank *r)
{
    bool traced;

    for (int m = 0; m < LG_METRIC_COUNT; m++) {
        bool available =
            s->steps > 0 && (is_occurrence(m) ? s->measured[m] > 0 : s->measured[m] == s->steps);

        r->mean[m] = mean_if(available, s->sum[m], s);
        if (available)
            r->available |= (uint8_t)(1u << m);
    }
    /* NAN in, NAN out: a sum is available only if its parts are */
    r->compute = r->mean[LG_METRIC_forward] + r->mean[LG_METRIC_backward] +
                 r->mean[LG_METRIC_optimizer_step];
    traced = lg_policy_has(r, LG_METRIC_traced_step_time);
    r->residual = mean_if(traced && !isnan(r->compute), s->residual, s);
    r->step_time = mean_if(traced && lg_policy_has(r, LG_METRIC_input_wait), s->step_time, s);
}

static void average(const struct table *t, const struct slice *slice, enum lg_clock clock,
                    struct lg_policy_rank *r)
{
    struct sums s = {.clock = clock};

    r->rank = t->row[slice->begin]->rank;
    each_row(t, slice, add_row, &s);
    finish(&s, r);
}

static int by_value(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

/* Size of the rank universe, and how many of it have rows. */
static void count_universe(const struct lg_policy_input *input, struct lg_policy_result *result,
                           size_t *with_rows)
{
    int32_t *rank;
    size_t r = 0;

    result->universe = *with_rows = result->n_ranks;
    if (input->n_expected == 0)
        return;
    rank = lg_alloc(input->n_expected, sizeof(*rank));
    memcpy(rank, input->expected, input->n_expected * sizeof(*rank));
    qsort(rank, input->n_expected, sizeof(*rank), by_value);
    result->universe = *with_rows = 0;
    for (size_t i = 0; i < input->n_expected; i++) {
        if (i && rank[i] == rank[i - 1])
            continue;
        result->universe++;
        while (r < result->n_ranks && result->ranks[r].rank < rank[i])
            r++;
        *with_rows += r < result->n_ranks && result->ranks[r].rank == rank[i];
    }
    free(rank);
}

static void count_metrics(struct lg_policy_result *result)
{
    for (size_t r = 0; r < result->n_ranks; r++)
        for (int m = 0; m < LG_METRIC_COUNT; m++)
            result->with_metric[m] += lg_policy_has(&result->ranks[r], m);
}

static void average_table(const struct table *t, bool gpu, struct lg_policy_result *result)
{
    result->clock = gpu && t->n_steps > 0 ? LG_CLOCK_GPU : LG_CLOCK_CPU;
    result->steps_used = (int64_t)t->n_steps;
    result->first_step = t->n_steps ? t->step[0] : LG_NULL;
    result->last_step = t->n_steps ? t->step[t->n_steps - 1] : LG_NULL;
    result->n_ranks = t->n_slices;
    result->ranks = lg_alloc(t->n_slices, sizeof(*result->ranks));
    for (size_t s = 0; s < t->n_slices; s++)
        average(t, &t->slice[s], result->clock, &result->ranks[s]);
}

static bool source_has_gpu(const struct lg_policy_source *source)
{
    struct lg_policy_row row;
    bool gpu = true;

    for (size_t r = 0; gpu && r < source->n_ranks; r++) {
        for (size_t k = 0; gpu && k < source->n_steps; k++) {
            source->row(source->context, r, k, &row);
            check_clock(&row, &gpu);
        }
    }
    return gpu;
}

static void average_source(const struct lg_policy_source *source, struct lg_policy_result *result)
{
    struct lg_policy_row row = {0};

    result->first_step = result->last_step = LG_NULL;
    if (source->n_ranks == 0 || source->n_steps == 0)
        return;
    result->clock = source_has_gpu(source) ? LG_CLOCK_GPU : LG_CLOCK_CPU;
    result->steps_used = (int64_t)source->n_steps;
    result->n_ranks = source->n_ranks;
    result->ranks = lg_alloc(source->n_ranks, sizeof(*result->ranks));
    for (size_t r = 0; r < source->n_ranks; r++) {
        struct sums s = {.clock = result->clock};

        for (size_t k = 0; k < source->n_steps; k++) {
            source->row(source->context, r, k, &row);
            add_row(&row, &s);
            if (k == 0)
                result->first_step = row.step;
        }
        result->last_step = row.step;
        result->ranks[r].rank = row.rank;
        finish(&s, &result->ranks[r]);
    }
}

size_t lg_policy_average(const struct lg_policy_input *input, struct lg_policy_result *result)
{
    struct table t = {0};
    bool gpu = true;
    size_t with_rows;

    if (input->source) {
        average_source(input->source, result);
    } else {
        sort_rows(input, &t);
        slice_rows(&t);
        find_steps(&t, input->window);
        for (size_t s = 0; gpu && s < t.n_slices; s++)
            each_row(&t, &t.slice[s], check_clock, &gpu);
        average_table(&t, gpu, result);
        free(t.row);
        free(t.slice);
        free(t.step);
    }
    count_metrics(result);
    count_universe(input, result, &with_rows);
    return with_rows;
}
