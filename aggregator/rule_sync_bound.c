/*
 * rule_sync_bound.c - the host waits for its device many times a step (.item(), .cpu(), printing a
 * tensor), on every rank: each time the device runs dry. Needs no collectives. Runs in the reading
 * commands.
 *
 * One wait a step is how the host keeps pace with its device and costs nothing, so the time waited
 * says something only where there are many.
 */
#include <math.h>
#include <stdlib.h>

#include "aggregator/accuse.h"
#include "aggregator/order.h"

#define MANY   5 /* syncs a step */
#define FEWEST 2 /* steps */

/* Sums over the scope's steps of one rank. */
struct sums {
    double syncs, wait, dur;
    size_t steps;
};

static struct sums sum_rank(const struct lg_scope *scope, size_t rank)
{
    const struct lg_aligned *a = scope->aligned;
    struct sums s = {0};

    for (size_t k = scope->from; k < scope->to; k++) {
        int64_t syncs = lg_aligned_value(a, rank, a->used[k], LG_COL_host_syncs);
        int64_t wait = lg_aligned_value(a, rank, a->used[k], LG_COL_device_wait_ns);
        int64_t dur = lg_aligned_value(a, rank, a->used[k], LG_COL_dur_ns);

        if (syncs == LG_NULL || wait == LG_NULL || dur == LG_NULL)
            continue;
        s.syncs += (double)syncs;
        s.wait += (double)wait;
        s.dur += (double)dur;
        s.steps++;
    }
    return s;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median_of(double *value, size_t n)
{
    qsort(value, n, sizeof(*value), by_value);
    return (value[n / 2] + value[(n - 1) / 2]) / 2;
}

static void add(struct lg_judgement *j, double syncs, double wait, double dur)
{
    struct lg_finding *f = lg_add_finding(j, LG_SYNC_BOUND);

    f->stage = LG_BLAME_SYNC;
    f->score = wait / dur;
    f->level = LG_LEVEL_WARNING; /* how long the device stood still meanwhile is not known */
    f->cost_ns_per_step = llround(wait);
    f->steps = lg_scope_steps(&j->scope);
    json_object_set_new(f->evidence, "host_syncs_per_step", json_real(round(syncs * 10) / 10));
    json_object_set_new(f->evidence, "device_wait_ms", lg_json_ms(wait));
    json_object_set_new(f->evidence, "step_ms", lg_json_ms(dur));
    f->sentence = lg_format("Every rank stops to wait for its device %.0f times a step, %s of each "
                            "%s step (%.0f %%): each time the device runs out of work.",
                            syncs, lg_ms(wait / 1e6).text, lg_ms(dur / 1e6).text, 100 * f->score);
}

void lg_rule_sync_bound(struct lg_judgement *j)
{
    const struct lg_aligned *a = j->scope.aligned;
    double *syncs, *wait, *dur;
    size_t n = 0;

    if (a->n_ranks == 0 || j->scope.to - j->scope.from < FEWEST)
        return;
    syncs = lg_alloc(3 * a->n_ranks, sizeof(*syncs));
    wait = syncs + a->n_ranks;
    dur = wait + a->n_ranks;
    for (size_t r = 0; r < a->n_ranks; r++) {
        struct sums s = sum_rank(&j->scope, r);

        if (s.steps == 0 || s.syncs < MANY * (double)s.steps || s.dur <= 0)
            break; /* on some ranks only, it is those ranks' matter */
        syncs[n] = s.syncs / (double)s.steps;
        wait[n] = s.wait / (double)s.steps;
        dur[n++] = s.dur / (double)s.steps;
    }
    if (n == a->n_ranks) {
        double typical = median_of(wait, n), step = median_of(dur, n);

        if (typical >= LG_COSTLY * step)
            add(j, median_of(syncs, n), typical, step);
    }
    free(syncs);
}
