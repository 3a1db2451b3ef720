/*
 * arrival.c - prepares a scope for the rules on arrival (arrival.h): what a step takes, who is
 * late, what lateness is made of. One pass over the scope's cycles. Runs in the reading commands.
 */
#include "aggregator/arrival.h"

#include <math.h>
#include <stdlib.h>

double lg_clear_majority(size_t n)
{
    return 0.5 + 1.5 / sqrt((double)n);
}

size_t lg_arrivals_iteration(const struct lg_arrivals *a, size_t k)
{
    return lg_cycle_iteration(a->cycles, a->first + k);
}

int64_t lg_arrivals_step(const struct lg_arrivals *a, size_t k)
{
    return a->cycles->aligned->step[lg_arrivals_iteration(a, k)];
}

struct lg_steps lg_arrivals_steps(const struct lg_arrivals *a, size_t from, size_t to)
{
    return (struct lg_steps){.first = lg_arrivals_step(a, from),
                             .last = lg_arrivals_step(a, to - 1),
                             .count = (int64_t)(to - from)};
}

int32_t lg_arrivals_rank(const struct lg_arrivals *a, size_t rank)
{
    return a->cycles->aligned->rank[rank]->rank;
}

enum lg_blame lg_stage_blame(const struct lg_arrivals *a, enum lg_stage stage)
{
    static const enum lg_blame blame[LG_STAGE_COUNT] = {
        [LG_STAGE_input_wait] = LG_BLAME_INPUT,    [LG_STAGE_h2d] = LG_BLAME_H2D,
        [LG_STAGE_forward] = LG_BLAME_FORWARD,     [LG_STAGE_backward] = LG_BLAME_BACKWARD,
        [LG_STAGE_optimizer] = LG_BLAME_OPTIMIZER, [LG_STAGE_other] = LG_BLAME_HOST,
    };

    if (a->cycles->merged && (stage == LG_STAGE_forward || stage == LG_STAGE_backward))
        return LG_BLAME_FORWARD_BACKWARD;
    return blame[stage];
}

/* ---- parts against their references ---- */

void lg_references_of(const struct lg_arrivals *a, const struct lg_cycle_row *row, int64_t *list,
                      struct lg_references *references)
{
    for (int p = 0; p < LG_PART_COUNT; p++) {
        for (size_t r = 0; r < a->n_ranks; r++)
            list[r] = row[r].part[p];
        references->middle[p] = lg_middle_of(list, a->n_ranks);
    }
}

int64_t lg_excess(const struct lg_references *references, const struct lg_cycle_row *row,
                  enum lg_part part)
{
    return row->part[part] - lg_median_of_others(&references->middle[part], row->part[part]);
}

/* ---- big steps ---- */

int64_t lg_big_from(const struct lg_arrivals *a, size_t rank)
{
    int64_t most = 0;

    for (size_t k = 0; k < a->n; k++)
        if (lg_late(a, k, rank) > most)
            most = lg_late(a, k, rank);
    return (most + 1) / 2;
}

/* ---- accounts ---- */

/* Shares the lateness out over the stages in proportion to what exceeds the reference. */
static void share_out(struct lg_account *account, int64_t late, const int64_t *above)
{
    double sum = 0;

    for (int p = 0; p < LG_PART_COUNT; p++)
        sum += (double)above[p];
    for (int p = 0; p < LG_PART_COUNT && sum > 0; p++)
        account->split[lg_part_stage(p)] += (double)late * ((double)above[p] / sum);
    if (!(sum > 0))
        account->unsplit += (double)late;
}

/* The latest rank's cycle ends when the others arrive, or when it would without the excess. */
static int64_t gain_of(const struct lg_cycle *cycle, int64_t excess)
{
    int64_t mended = cycle->arrival - excess;

    return cycle->arrival - (mended > cycle->second ? mended : cycle->second);
}

static void add_gains(struct lg_account *account, const struct lg_cycle *cycle,
                      const int64_t *above)
{
    int64_t stage[LG_STAGE_COUNT] = {0}, all = 0;

    for (int p = 0; p < LG_PART_COUNT; p++) {
        stage[lg_part_stage(p)] += above[p];
        all += above[p];
    }
    for (int s = 0; s < LG_STAGE_COUNT; s++)
        account->gain[s] += gain_of(cycle, stage[s]);
    account->gain_all += gain_of(cycle, all);
}

static void account_cycle(struct lg_arrivals *a, size_t k, int64_t *list)
{
    const struct lg_cycle *cycle = lg_arrivals_cycle(a, k);
    const struct lg_cycle_row *row = lg_cycle_rows(a->cycles, a->first + k);
    struct lg_references references;

    lg_references_of(a, row, list, &references);
    for (size_t r = 0; r < a->n_ranks; r++) {
        int64_t above[LG_PART_COUNT], late = lg_late(a, k, r);

        if (late == 0 && r != cycle->latest)
            continue;
        for (int p = 0; p < LG_PART_COUNT; p++) {
            int64_t excess = lg_excess(&references, &row[r], p);

            above[p] = excess > 0 ? excess : 0;
        }
        if (late > 0)
            share_out(&a->account[r], late, above);
        if (r == cycle->latest)
            add_gains(&a->account[r], cycle, above);
    }
}

void lg_arrivals_account(struct lg_arrivals *a,
                         void (*visit)(void *context, const struct lg_arrivals *a, size_t k),
                         void *context)
{
    int64_t *list;

    if (a->accounted)
        return;
    a->accounted = true;
    list = lg_alloc(a->n_ranks, sizeof(*list));
    for (size_t k = 0; k < a->n; k++) {
        account_cycle(a, k, list);
        if (visit)
            visit(context, a, k);
    }
    free(list);
}

static void sum_lateness(struct lg_arrivals *a)
{
    for (size_t k = 0; k < a->n; k++) {
        a->time_ns += (double)lg_arrivals_cycle(a, k)->time;
        for (size_t r = 0; r < a->n_ranks; r++) {
            int64_t late = lg_late(a, k, r);

            a->account[r].late += late;
            a->account[r].late_steps += late > 0;
        }
    }
}

static double scope_step(const struct lg_arrivals *a)
{
    int64_t *value = lg_alloc(a->n_ranks * a->n, sizeof(*value));
    size_t n = 0;
    double median;

    for (size_t r = 0; r < a->n_ranks; r++)
        for (size_t k = 0; k < a->n; k++)
            value[n++] = lg_cycles_duration(a->cycles, r, lg_arrivals_iteration(a, k));
    median = lg_median(value, n);
    free(value);
    return median;
}

/* ---- scope ---- */

/* First cycle whose step is used[from] or later. */
static size_t find_cycle(const struct lg_cycles *c, size_t from)
{
    size_t low = 0, high = c->n;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (c->cycle[middle].used < from)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_measured(const struct lg_cycles *c, size_t from, size_t to)
{
    for (size_t k = from; k < to; k++)
        if (!c->cycle[k].measured)
            return false;
    return true;
}

static const char *why_not(const struct lg_cycles *c, size_t from, size_t to)
{
    if (c->abstain)
        return c->abstain;
    if (!is_measured(c, from, to))
        return LG_NO_SYNC;
    return to - from < 2 ? LG_TOO_FEW : NULL;
}

struct lg_arrivals *lg_arrivals_new(struct lg_cycles *cycles, const struct lg_scope *scope,
                                    const char **abstain)
{
    size_t from = find_cycle(cycles, scope->from), to = find_cycle(cycles, scope->to);
    struct lg_arrivals *a;

    *abstain = why_not(cycles, from, to);
    if (*abstain)
        return NULL;
    a = lg_alloc(1, sizeof(*a));
    *a = (struct lg_arrivals){
        .cycles = cycles, .first = from, .n = to - from, .n_ranks = cycles->n_ranks};
    lg_cycles_prepare(cycles, from, to);
    a->account = lg_alloc(a->n_ranks, sizeof(*a->account));
    a->step_ns = scope_step(a);
    sum_lateness(a);
    if (a->step_ns > 0 && a->time_ns > 0)
        return a;
    *abstain = LG_TOO_FEW; /* steps without a duration */
    lg_arrivals_free(a);
    return NULL;
}

void lg_arrivals_free(struct lg_arrivals *a)
{
    if (!a)
        return;
    free(a->account);
    free(a);
}

/* ---- what-if ---- */

int64_t lg_gain_of_mending(const struct lg_arrivals *a, const size_t *named, size_t n_named,
                           size_t from, size_t to, double *time)
{
    int64_t *list = lg_alloc(a->n_ranks, sizeof(*list)), gain = 0;
    struct lg_references references;

    *time = 0;
    for (size_t k = from; k < to; k++) {
        const struct lg_cycle *cycle = lg_arrivals_cycle(a, k);
        const struct lg_cycle_row *row = lg_cycle_rows(a->cycles, a->first + k);
        int64_t latest = 0;

        lg_references_of(a, row, list, &references);
        for (size_t r = 0; r < a->n_ranks; r++) {
            bool mended = false;
            int64_t arrival = 0;

            for (size_t i = 0; i < n_named; i++)
                mended = mended || named[i] == r;
            for (int p = 0; p < LG_PART_COUNT; p++) {
                int64_t excess = mended ? lg_excess(&references, &row[r], p) : 0;

                arrival += row[r].part[p] - (excess > 0 ? excess : 0);
            }
            latest = arrival > latest ? arrival : latest;
        }
        gain += cycle->arrival - latest;
        *time += (double)cycle->time;
    }
    free(list);
    return gain;
}
