/*
 * rule_uneven.c - ranks that come late since they take more steps from one collective to the next
 * (local SGD, accumulation of unlike numbers of micro-batches, a longer shard): they have more
 * work, and no step of theirs is slower. Runs in the reading commands.
 */
#include <math.h>
#include <stdlib.h>

#include "aggregator/accuse.h"
#include "aggregator/order.h"

#define MOSTLY 0.60 /* of the cycles: late in so many a rank is late */
#define SLOWER 1.10 /* times the others' time for one step: more than that is slow as well */

/* Of one rank, medians over cycles. */
struct taken {
    double steps, step_ns; /* steps of a cycle, own time of one of them */
    bool late;
};

static struct taken taken_by(const struct lg_arrivals *a, size_t rank)
{
    int64_t *steps = lg_alloc(a->n, sizeof(*steps)), *each = lg_alloc(a->n, sizeof(*each));
    struct taken t;
    size_t late = 0;

    for (size_t k = 0; k < a->n; k++) {
        const struct lg_cycle_row *row = &lg_cycle_rows(a->cycles, a->first + k)[rank];

        steps[k] = (int64_t)lg_aligned_rows(a->cycles->aligned, rank, lg_arrivals_iteration(a, k));
        each[k] = 0;
        for (int p = 0; p < LG_PART_COUNT; p++)
            each[k] += row->part[p];
        each[k] /= steps[k];
        late += lg_late(a, k, rank) > 0;
    }
    t = (struct taken){.steps = lg_median(steps, a->n),
                       .step_ns = lg_median(each, a->n),
                       .late = (double)late >= MOSTLY * (double)a->n};
    free(steps);
    free(each);
    return t;
}

static double fewest_steps(const struct taken *t, size_t n, double *step_ns)
{
    int64_t *each = lg_alloc(n, sizeof(*each));
    double fewest = t[0].steps;
    size_t count = 0;

    for (size_t r = 1; r < n; r++)
        fewest = t[r].steps < fewest ? t[r].steps : fewest;
    for (size_t r = 0; r < n; r++)
        if (t[r].steps <= fewest)
            each[count++] = (int64_t)t[r].step_ns;
    *step_ns = lg_median(each, count);
    free(each);
    return fewest;
}

/* Lists the ranks that are late; none, if one of them is without having more to do. */
static size_t list_busy(const struct lg_arrivals *a, const struct taken *t, int32_t *busy)
{
    double step_ns, fewest = fewest_steps(t, a->n_ranks, &step_ns);
    size_t n = 0;

    for (size_t r = 0; r < a->n_ranks; r++) {
        if (!t[r].late)
            continue;
        if (t[r].steps <= fewest || t[r].step_ns > SLOWER * step_ns)
            return 0;
        busy[n++] = lg_arrivals_rank(a, r);
    }
    return n;
}

static double sum_costs(const struct lg_arrivals *a)
{
    double sum = 0;

    for (size_t k = 0; k < a->n; k++)
        sum += (double)lg_arrivals_cycle(a, k)->cost;
    return sum;
}

static void add(struct lg_judgement *j, const struct taken *t, const int32_t *busy, size_t n)
{
    const struct lg_arrivals *a = j->arrivals;
    double cost = sum_costs(a), most = 0, step_ns;
    double fewest = fewest_steps(t, a->n_ranks, &step_ns);
    struct lg_finding *f = lg_add_finding(j, LG_IMBALANCE);
    char *ranks = lg_rank_list(busy, n);

    for (size_t r = 0; r < a->n_ranks; r++)
        most = t[r].steps > most ? t[r].steps : most;
    f->rule = LG_RULE_ARRIVAL;
    f->score = cost / a->time_ns;
    f->level = f->score >= LG_COSTLY ? lg_level_of(j, f->score) : LG_LEVEL_INFO;
    f->recurrence = LG_RECURRENCE_PERSISTENT;
    f->cost_ns_per_step = llround(cost / (double)a->n);
    f->steps = lg_arrivals_steps(a, 0, a->n);
    json_object_set_new(f->evidence, "most_steps", json_real(most));
    json_object_set_new(f->evidence, "fewest_steps", json_real(fewest));
    f->sentence = lg_format(
        "No rank is slow, but %s %s up to %.0f steps from one collective to the next and others "
        "%.0f; those wait %s of each %s (%.0f %%) between two of them.",
        ranks, n == 1 ? "takes" : "take", most, fewest, lg_ms(cost / (double)a->n / 1e6).text,
        lg_ms(a->time_ns / (double)a->n / 1e6).text, 100 * f->score);
    free(ranks);
}

bool lg_rule_uneven(struct lg_judgement *j)
{
    const struct lg_arrivals *a = j->arrivals;
    struct taken *t;
    int32_t *busy;
    size_t n;

    if (!a->cycles->aligned->has_local)
        return false;
    t = lg_alloc(a->n_ranks, sizeof(*t));
    busy = lg_alloc(a->n_ranks, sizeof(*busy));
    for (size_t r = 0; r < a->n_ranks; r++)
        t[r] = taken_by(a, r);
    n = list_busy(a, t, busy);
    if (n > 0)
        add(j, t, busy, n);
    free(t);
    free(busy);
    return n > 0;
}
