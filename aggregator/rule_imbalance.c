/*
 * rule_imbalance.c - steps that cost the others time though no rank in particular is slow: the late
 * one changes from step to step (uneven batches, sequence lengths), or from pause to pause. Runs in
 * the reading commands.
 */
#include <math.h>
#include <stdlib.h>

#include "aggregator/accuse.h"
#include "aggregator/recurrence.h"

#define COSTLY_PART 0.50 /* of the steps are costly in an imbalance */
#define FEW_STEPS   50   /* below them one rank has to hold more of the lateness */
#define HOLDS       0.75
#define MOVES       0.5 /* correlation of work and bytes copied */
#define FEWEST      3   /* pauses */
/* Of the cost: if one rank has more, or two of several, it is theirs and no rotation... */
#define MOST_OF_TWO 0.75 /* one of a world of two */
#define MOST        0.50 /* one of several */
#define MOST_TWO    0.85 /* two of several */
#define CHANCE      1.5  /* ...unless that many standard deviations of fair turns reach as far */

/* What all costly steps come to. */
struct costs {
    bool *costly; /* [cycle] */
    size_t n;
    double cost; /* ns */
};

static void find_costs(const struct lg_arrivals *a, struct costs *c)
{
    *c = (struct costs){.costly = lg_alloc(a->n, sizeof(*c->costly))};
    for (size_t k = 0; k < a->n; k++) {
        int64_t cost = lg_arrivals_cycle(a, k)->cost;

        if ((double)cost < LG_COSTLY * a->step_ns)
            continue;
        c->costly[k] = true;
        c->n++;
        c->cost += (double)cost;
    }
}

/* ---- is it one rank's doing? ---- */

static size_t latest_altogether(const struct lg_arrivals *a)
{
    size_t best = 0;

    for (size_t r = 1; r < a->n_ranks; r++)
        if (a->account[r].late > a->account[best].late)
            best = r;
    return best;
}

/* Part of the lateness of each step's latest rank that is this rank's. */
static double part_of_latest(const struct lg_arrivals *a, size_t rank)
{
    double own = 0, all = 0;

    for (size_t k = 0; k < a->n; k++) {
        uint32_t latest = lg_arrivals_cycle(a, k)->latest;

        all += (double)lg_late(a, k, latest);
        own += latest == rank ? (double)lg_late(a, k, latest) : 0;
    }
    return all > 0 ? own / all : 0;
}

/* What the costly steps that are not among the rank's big ones cost, as a part of their time. */
static double cost_without(const struct lg_arrivals *a, const struct costs *c, size_t rank)
{
    int64_t big = lg_big_from(a, rank);
    double cost = 0, time = 0;

    for (size_t k = 0; k < a->n; k++) {
        if (!c->costly[k] || lg_late(a, k, rank) >= big)
            continue;
        time += (double)lg_arrivals_cycle(a, k)->time;
        cost += (double)lg_arrivals_cycle(a, k)->cost;
    }
    return time > 0 ? cost / time : 0;
}

static bool is_one_rank(const struct lg_arrivals *a, const struct costs *c, size_t rank)
{
    double share = (double)a->account[rank].late / a->time_ns;
    double need = lg_clear_majority(a->n) > HOLDS ? lg_clear_majority(a->n) : HOLDS;

    if (share < LG_COSTLY || share <= cost_without(a, c, rank))
        return false;
    return a->n >= FEW_STEPS || part_of_latest(a, rank) >= need;
}

/* ---- what it is made of ---- */

/* Lateness of all ranks by stage; returns the stage with most. */
static int split_of_all(const struct lg_arrivals *a, double *split)
{
    int best = 0;

    for (int s = 0; s < LG_STAGE_COUNT; s++) {
        split[s] = 0;
        for (size_t r = 0; r < a->n_ranks; r++)
            split[s] += a->account[r].split[s] / (double)a->n;
        best = split[s] > split[best] ? s : best;
    }
    return best;
}

/* Correlation over ranks and steps of arrival and bytes copied, each against the step's mean. NAN:
 * bytes were not measured, or don't differ. */
static double follows_bytes(const struct lg_arrivals *a)
{
    const struct lg_aligned *aligned = a->cycles->aligned;
    double xy = 0, xx = 0, yy = 0;

    for (size_t k = 0; k < a->n; k++) {
        const struct lg_cycle_row *row = lg_cycle_rows(a->cycles, a->first + k);
        double bytes = 0;
        size_t it = lg_arrivals_iteration(a, k);

        for (size_t r = 0; r < a->n_ranks; r++) {
            int64_t value = lg_aligned_value(aligned, r, it, LG_COL_h2d_bytes);

            if (value == LG_NULL)
                return (double)NAN;
            bytes += (double)value / (double)a->n_ranks;
        }
        for (size_t r = 0; r < a->n_ranks; r++) {
            double x = -(double)lg_arrivals_cycle(a, k)->mean_arrival;
            double y = (double)lg_aligned_value(aligned, r, it, LG_COL_h2d_bytes) - bytes;

            for (int p = 0; p < LG_PART_COUNT; p++)
                x += (double)row[r].part[p];
            xy += x * y;
            xx += x * x;
            yy += y * y;
        }
    }
    return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : (double)NAN;
}

/* What even work would save a step: mean(max A) - mean(mean A). */
static double gain_of_balance(const struct lg_arrivals *a)
{
    double sum = 0;

    for (size_t k = 0; k < a->n; k++)
        sum += (double)(lg_arrivals_cycle(a, k)->arrival - lg_arrivals_cycle(a, k)->mean_arrival);
    return sum / (double)a->n;
}

/* In how many costly steps each rank is the latest: the most of any, and how many ranks are. */
static size_t most_latest(const struct lg_arrivals *a, const struct costs *c, size_t *ranks)
{
    size_t *count = lg_alloc(a->n_ranks, sizeof(*count)), most = 0;

    for (size_t k = 0; k < a->n; k++)
        if (c->costly[k])
            count[lg_arrivals_cycle(a, k)->latest]++;
    *ranks = 0;
    for (size_t r = 0; r < a->n_ranks; r++) {
        *ranks += count[r] > 0;
        most = count[r] > most ? count[r] : most;
    }
    free(count);
    return most;
}

/* Mean time that a rank waits a step: what others see as slow collectives. */
static double mean_wait(const struct lg_arrivals *a)
{
    double sum = 0;

    for (size_t k = 0; k < a->n; k++) {
        const struct lg_cycle *cycle = lg_arrivals_cycle(a, k);

        sum += (double)(cycle->arrival - cycle->mean_arrival) + (double)cycle->transfer;
    }
    return sum / (double)a->n;
}

/* ---- the finding ---- */

static void explain(const struct lg_arrivals *a, const struct costs *c, const double *split,
                    const char *when, struct lg_finding *f)
{
    double follows = follows_bytes(a), gain = gain_of_balance(a);
    double per_step = c->cost / (double)a->n, mean = a->time_ns / (double)a->n;
    size_t ranks, most = most_latest(a, c, &ranks);

    json_object_set_new(f->evidence, "costly_steps", json_integer((json_int_t)c->n));
    json_object_set_new(f->evidence, "of_steps", json_integer((json_int_t)a->n));
    json_object_set_new(f->evidence, "step_ms", lg_json_ms(a->step_ns));
    json_object_set_new(f->evidence, "late_ms_per_step", lg_json_stages(a, split));
    json_object_set_new(f->evidence, "ranks_latest_in_turn", json_integer((json_int_t)ranks));
    json_object_set_new(f->evidence, "most_by_one_rank", json_integer((json_int_t)most));
    json_object_set_new(f->evidence, "collective_ms", lg_json_ms(mean_wait(a)));
    json_object_set_new(f->evidence, "gain_of_balancing_ms_per_step", lg_json_ms(gain));
    if (!isnan(follows))
        json_object_set_new(f->evidence, "correlation_with_h2d_bytes",
                            json_real(round(follows * 1e3) / 1e3));
    f->sentence = lg_format(
        "No rank in particular is slow, but in turn one or another comes late to the collectives "
        "%s, most of all for %s%s; the others wait %s of each %s step (%.0f %%); of the time in "
        "collectives (%s mean) the waiting is a symptom; even work would gain %s a step.",
        when, lg_stage_words(f->stage),
        follows >= MOVES ? ", as the bytes copied to the device do (batches or sequences of "
                           "different length)"
                         : "",
        lg_ms(per_step / 1e6).text, lg_ms(mean / 1e6).text, 100 * f->score,
        lg_ms(mean_wait(a) / 1e6).text, lg_ms(gain / 1e6).text);
}

static struct lg_finding *add(struct lg_judgement *j, const struct costs *c, const char *when)
{
    struct lg_arrivals *a = j->arrivals;
    double split[LG_STAGE_COUNT];
    struct lg_finding *f = lg_add_finding(j, LG_IMBALANCE);

    lg_arrivals_account(a, NULL, NULL);
    f->stage = lg_stage_blame(a, split_of_all(a, split));
    f->rule = LG_RULE_ARRIVAL;
    f->score = c->cost / a->time_ns;
    f->level = lg_level_of(j, f->score);
    f->recurrence = LG_RECURRENCE_ROTATING;
    f->cost_ns_per_step = llround(c->cost / (double)a->n);
    f->steps = lg_arrivals_steps(a, 0, a->n);
    if (!j->brief)
        explain(a, c, split, when, f);
    return f;
}

bool lg_rule_imbalance(struct lg_judgement *j)
{
    const struct lg_arrivals *a = j->arrivals;
    size_t rank = latest_altogether(a);
    struct costs costs;
    bool spoke = false;

    find_costs(a, &costs);
    if ((double)costs.n >= COSTLY_PART * (double)a->n && costs.cost >= LG_COSTLY * a->time_ns) {
        if (is_one_rank(a, &costs, rank)) {
            j->one_rank = true;
            j->only = rank;
        } else {
            char *when = lg_format("(%zu of %zu steps)", costs.n, a->n);

            add(j, &costs, when);
            free(when);
            spoke = true;
        }
    }
    free(costs.costly);
    return spoke;
}

/* ---- pauses of one rank after the other ---- */

/* Part of n fair turns that `part` of the ranks may have by chance. */
static double by_chance(double part, size_t n)
{
    return part + CHANCE * sqrt(part * (1 - part) / (double)n);
}

/* The two largest sums of what the costly steps cost, by the rank that was latest in them. */
static void largest_two(const struct lg_arrivals *a, const struct costs *c, double *first,
                        double *second)
{
    double *cost = lg_alloc(a->n_ranks, sizeof(*cost));

    *first = *second = 0;
    for (size_t k = 0; k < a->n; k++)
        if (c->costly[k])
            cost[lg_arrivals_cycle(a, k)->latest] += (double)lg_arrivals_cycle(a, k)->cost;
    for (size_t r = 0; r < a->n_ranks; r++) {
        if (cost[r] > *first) {
            *second = *first;
            *first = cost[r];
        } else if (cost[r] > *second) {
            *second = cost[r];
        }
    }
    free(cost);
}

/* No one or two ranks account for the costly steps. */
static bool is_shared(const struct lg_arrivals *a, const struct costs *c)
{
    double first, second, ranks = (double)a->n_ranks;

    largest_two(a, c, &first, &second);
    if (a->n_ranks == 2)
        return first <= fmax(MOST_OF_TWO, by_chance(0.5, c->n)) * c->cost;
    return first <= fmax(MOST, by_chance(1 / ranks, c->n)) * c->cost &&
           first + second <= fmax(MOST_TWO, by_chance(2 / ranks, c->n)) * c->cost;
}

/* The costly steps' period, or 0. */
static size_t period_of(const struct lg_arrivals *a, const struct costs *c)
{
    enum lg_slot_kind *slot = lg_alloc(a->n, sizeof(*slot));
    struct lg_period period = {0};
    bool found;

    for (size_t k = 0; k < a->n; k++)
        slot[k] = c->costly[k] ? LG_SLOT_EVENT : LG_SLOT_QUIET;
    found = lg_find_period(slot, a->n, &period);
    free(slot);
    return found ? period.period : 0;
}

/* Few steps are costly, but they cost as much as a straggler, and each rank has its turn. */
bool lg_rule_rotating(struct lg_judgement *j)
{
    const struct lg_arrivals *a = j->arrivals;
    struct costs costs;
    bool spoke = false;

    find_costs(a, &costs);
    if (!j->one_rank && costs.n >= FEWEST && costs.cost >= LG_COSTLY * a->time_ns &&
        is_shared(a, &costs)) {
        size_t period = period_of(a, &costs);
        char *when = period ? lg_format("every %zu steps (%zu times)", period, costs.n)
                            : lg_format("now and then (%zu of %zu steps)", costs.n, a->n);
        struct lg_finding *f = add(j, &costs, when);

        f->period = period ? (int64_t)period : LG_NULL;
        json_object_set_new(f->evidence, "steps", lg_json_steps(a, costs.costly));
        free(when);
        spoke = true;
    }
    free(costs.costly);
    return spoke;
}
