/*
 * rule_periodic.c - a rank that is late every so many steps (a checkpoint, one slow loader worker
 * of several), and all ranks pausing together with a period (HOST_PERIODIC). Runs in the reading
 * commands.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "aggregator/accuse.h"
#include "aggregator/cycle_rows.h"
#include "aggregator/order.h"
#include "aggregator/recurrence.h"

#define PAUSE        1.5 /* typical steps: a longer one is a pause */
#define TOGETHER     0.5 /* of the pause's length: every rank has that much of its own */
#define PAUSE_AT_ALL 1.2 /* typical steps: in a pause no rank's step is shorter */
#define FEWEST_SEEN  3

/* ---- one rank ---- */

/* Slots are iterations, so that steps left out keep the phase. */
static enum lg_slot_kind *big_slots(const struct lg_arrivals *a, const bool *big, size_t *n)
{
    size_t first = lg_arrivals_iteration(a, 0);
    enum lg_slot_kind *slot;

    *n = lg_arrivals_iteration(a, a->n - 1) - first + 1;
    slot = lg_alloc(*n, sizeof(*slot));
    for (size_t i = 0; i < *n; i++)
        slot[i] = LG_SLOT_ABSENT;
    for (size_t k = 0; k < a->n; k++)
        slot[lg_arrivals_iteration(a, k) - first] = big[k] ? LG_SLOT_EVENT : LG_SLOT_QUIET;
    return slot;
}

static size_t find_big(const struct lg_arrivals *a, size_t rank, bool *big)
{
    int64_t from = lg_big_from(a, rank);
    size_t n = 0;

    for (size_t k = 0; k < a->n; k++) {
        big[k] = from > 0 && lg_late(a, k, rank) >= from;
        n += big[k];
    }
    return n;
}

static void accuse(struct lg_judgement *j, size_t rank, const bool *big,
                   const struct lg_period *period)
{
    const struct lg_arrivals *a = j->arrivals;
    const char *with = j->brief ? NULL : lg_coincides(a, big);
    struct lg_lateness l = {
        .rank = rank,
        .chosen = big,
        .to = a->n,
        .recurrence = LG_RECURRENCE_PERIODIC,
        .score = (double)a->account[rank].late / a->time_ns,
        .when = lg_format("every %zu steps (%zu times%s%s)", period->period, period->in_phase,
                          with ? ", with " : "", with ? with : ""),
    };
    struct lg_finding *f = lg_accuse(j, &l);

    f->period = (int64_t)period->period;
    json_object_set_new(f->evidence, "big_steps", json_integer((json_int_t)period->events));
    json_object_set_new(f->evidence, "in_phase", json_integer((json_int_t)period->in_phase));
    json_object_set_new(f->evidence, "steps", lg_json_steps(a, big));
    if (with)
        json_object_set_new(f->evidence, "coincides_with", json_string(with));
}

bool lg_rule_periodic(struct lg_judgement *j)
{
    const struct lg_arrivals *a = j->arrivals;
    bool *big = lg_alloc(a->n, sizeof(*big)), spoke = false;

    for (size_t r = 0; r < a->n_ranks; r++) {
        struct lg_period period;
        enum lg_slot_kind *slot;
        size_t n;

        if ((j->one_rank && r != j->only) || (double)a->account[r].late < LG_COSTLY * a->time_ns ||
            find_big(a, r, big) < FEWEST_SEEN)
            continue;
        slot = big_slots(a, big, &n);
        if (lg_find_period(slot, n, &period)) {
            accuse(j, r, big, &period);
            spoke = true;
        }
        free(slot);
    }
    free(big);
    return spoke;
}

/* ---- all ranks together ---- */

/* Row by row, epoch starts included: what a step takes, and what of it the ranks do themselves. */
struct pauses {
    const struct lg_arrivals *a;
    size_t first, n; /* iterations */
    double *dur,
        *least; /* [n] median over the ranks; least own time of a rank; NAN: not measured */
    double own; /* typical own time of a rank */
};

static void read_step(struct pauses *p, size_t i, int64_t *dur, int64_t *own)
{
    const struct lg_cycles *c = p->a->cycles;
    size_t n = 0;

    p->dur[i] = p->least[i] = (double)NAN;
    for (size_t r = 0; r < c->n_ranks; r++) {
        int64_t sync = lg_cycles_sync(c, r, p->first + i);

        dur[n] = lg_cycles_duration(c, r, p->first + i);
        if (dur[n] == LG_NULL || sync == LG_NULL)
            return;
        own[n] = dur[n] - sync;
        n++;
    }
    p->dur[i] = lg_median(dur, n);
    p->least[i] = (double)lg_nth(own, n, 0);
}

static double median_of(const double *value, size_t n)
{
    int64_t *list = lg_alloc(n, sizeof(*list));
    size_t kept = 0;
    double median = (double)NAN;

    for (size_t i = 0; i < n; i++)
        if (!isnan(value[i]))
            list[kept++] = (int64_t)value[i];
    if (kept > 0)
        median = lg_median(list, kept);
    free(list);
    return median;
}

/* From the first step of the run where the scope begins there: a first epoch begins with it. */
static void read_steps(const struct lg_arrivals *a, struct pauses *p)
{
    size_t last = lg_arrivals_iteration(a, a->n - 1);
    int64_t *dur, *own;

    *p = (struct pauses){.a = a, .first = lg_arrivals_iteration(a, 0)};
    if (a->first == 0)
        p->first = 0;
    p->n = last - p->first + 1;
    p->dur = lg_alloc(p->n, sizeof(*p->dur));
    p->least = lg_alloc(p->n, sizeof(*p->least));
    dur = lg_alloc(a->n_ranks, sizeof(*dur));
    own = lg_alloc(a->n_ranks, sizeof(*own));
    for (size_t i = 0; i < p->n; i++)
        read_step(p, i, dur, own);
    p->own = median_of(p->least, p->n);
    free(dur);
    free(own);
}

/* Compilation and warm-up are slow on every rank and tell nothing. */
static enum lg_slot_kind kind_of_step(const struct pauses *p, size_t i)
{
    unsigned flags = p->a->cycles->aligned->left_out[p->first + i];
    double longer = p->dur[i] - p->a->step_ns;

    if ((flags & (LG_FLAG_warm_up | LG_FLAG_compile)) || isnan(p->dur[i]))
        return LG_SLOT_ABSENT;
    if (p->dur[i] >= PAUSE * p->a->step_ns && p->least[i] - p->own >= TOGETHER * longer)
        return LG_SLOT_EVENT;
    return flags & LG_FLAG_first ? LG_SLOT_ABSENT : LG_SLOT_QUIET;
}

static bool is_first(const struct pauses *p, size_t i)
{
    return p->a->cycles->aligned->left_out[p->first + i] & LG_FLAG_first;
}

static void column_of(const struct lg_cycles *c, int stage, enum lg_column *wall)
{
#define HOST_STAGE(name)   LG_COL_##name##_ns,
#define DEVICE_STAGE(name) LG_COL_gpu_##name##_ns,
    static const enum lg_column host[] = {LG_STAGES(HOST_STAGE)},
                                device[] = {LG_STAGES(DEVICE_STAGE)};

    *wall = c->device ? device[stage] : host[stage];
}

/* How much longer a stage is in the pauses than it mostly is, on the mean rank. */
static double stage_excess(const struct pauses *p, const enum lg_slot_kind *slot, int stage)
{
    const struct lg_cycles *c = p->a->cycles;
    double *all = lg_alloc(p->n, sizeof(*all)), *paused = lg_alloc(p->n, sizeof(*paused)), excess;
    enum lg_column wall;

    column_of(c, stage, &wall);
    for (size_t i = 0; i < p->n; i++) {
        int64_t sum = 0;
        size_t n = 0;

        for (size_t r = 0; r < c->n_ranks; r++) {
            int64_t value = lg_aligned_value(c->aligned, r, p->first + i, wall);

            sum += value == LG_NULL ? 0 : lg_cycle_sane(value);
            n += value != LG_NULL;
        }
        all[i] = n > 0 ? (double)sum / (double)n : (double)NAN;
        paused[i] = slot[i] == LG_SLOT_EVENT ? all[i] : (double)NAN;
    }
    excess = median_of(paused, p->n) - median_of(all, p->n);
    free(all);
    free(paused);
    return isnan(excess) ? 0 : excess;
}

static json_t *steps_of(const struct pauses *p, const enum lg_slot_kind *slot)
{
    json_t *array = json_array();

    for (size_t i = 0; i < p->n && json_array_size(array) < 10; i++)
        if (slot[i] == LG_SLOT_EVENT)
            json_array_append_new(array, json_integer(p->a->cycles->aligned->step[p->first + i]));
    return array;
}

/* The begin of an epoch, if the pauses are flagged so. */
static bool at_epochs(const struct pauses *p, const enum lg_slot_kind *slot)
{
    size_t pauses = 0, epochs = 0;

    for (size_t i = 0; i < p->n; i++) {
        pauses += slot[i] == LG_SLOT_EVENT;
        epochs += slot[i] == LG_SLOT_EVENT &&
                  (p->a->cycles->aligned->left_out[p->first + i] & LG_FLAG_epoch_start);
    }
    return pauses > 0 && 2 * epochs >= pauses;
}

/* What the published policy says of the steps between the pauses. */
static enum lg_kind in_between(const struct lg_judgement *j, const struct pauses *p,
                               const enum lg_slot_kind *slot)
{
    const struct lg_aligned *all = j->scope.aligned;
    struct lg_aligned rest = *all; /* the same rows, fewer of them used */
    struct lg_scope scope = j->scope;
    struct lg_policy_result result;
    enum lg_kind kind;

    rest.used = lg_alloc(all->n_used, sizeof(*rest.used));
    rest.n_used = 0;
    for (size_t k = j->scope.from; k < j->scope.to; k++) {
        size_t it = all->used[k];

        if (it < p->first || it >= p->first + p->n || slot[it - p->first] != LG_SLOT_EVENT)
            rest.used[rest.n_used++] = it;
    }
    scope.aligned = &rest;
    scope.from = 0;
    scope.to = rest.n_used;
    lg_published_run(&scope, &result);
    kind = result.kind;
    lg_policy_result_free(&result);
    free(rest.used);
    return kind;
}

static size_t is_first_event(const struct pauses *p, const enum lg_slot_kind *slot)
{
    return slot[0] == LG_SLOT_EVENT && is_first(p, 0);
}

static void add_pauses(struct lg_judgement *j, const struct pauses *p,
                       const enum lg_slot_kind *slot, const struct lg_period *period, double sum,
                       double time)
{
    double excess[LG_STAGE_COUNT], each = sum / (double)(period->events - is_first_event(p, slot));
    struct lg_finding *f = lg_add_finding(j, LG_HOST_PERIODIC);
    int best = LG_STAGE_other;

    for (int s = 0; s < LG_STAGE_COUNT; s++)
        excess[s] = stage_excess(p, slot, s);
    for (int s = 0; s < LG_STAGE_COUNT; s++)
        best = excess[s] > excess[best] ? s : best;
    f->stage = lg_stage_blame(p->a, best);
    f->rule = LG_RULE_ARRIVAL;
    f->score = sum / time;
    f->level = lg_level_of(j, f->score);
    f->recurrence = LG_RECURRENCE_PERIODIC;
    f->period = (int64_t)period->period;
    f->cost_ns_per_step = llround(sum / (double)p->n);
    f->steps = lg_arrivals_steps(p->a, 0, p->a->n);
    json_object_set_new(f->evidence, "pauses", json_integer((json_int_t)period->events));
    json_object_set_new(f->evidence, "pause_ms", lg_json_ms(each));
    json_object_set_new(f->evidence, "step_ms", lg_json_ms(p->a->step_ns));
    json_object_set_new(f->evidence, "excess_ms", lg_json_stages(p->a, excess));
    json_object_set_new(f->evidence, "steps", steps_of(p, slot));
    if (at_epochs(p, slot))
        json_object_set_new(f->evidence, "coincides_with", json_string("the begin of an epoch"));
    json_object_set_new(f->evidence, "in_between",
                        json_string(lg_kind_name(in_between(j, p, slot))));
    f->sentence = lg_format(
        "Every %zu steps%s all ranks pause together (%zu times, %s each), most of all for %s; that "
        "takes %s a step (%.0f %%), and no rank is to blame.",
        period->period, at_epochs(p, slot) ? ", at the begin of an epoch," : "", period->events,
        lg_ms(each / 1e6).text, lg_stage_words(f->stage), lg_ms(sum / (double)p->n / 1e6).text,
        100 * f->score);
}

/* A glance at one rank: where all pause, it does. */
static bool may_pause(const struct lg_arrivals *a)
{
    size_t last = lg_arrivals_iteration(a, a->n - 1), n = 0;

    for (size_t i = a->first == 0 ? 0 : lg_arrivals_iteration(a, 0); i <= last; i++)
        n += (double)lg_cycles_duration(a->cycles, 0, i) >= PAUSE_AT_ALL * a->step_ns;
    return n >= FEWEST_SEEN;
}

bool lg_rule_pauses(struct lg_judgement *j)
{
    struct lg_period period;
    struct pauses p;
    enum lg_slot_kind *slot;
    double sum = 0, time = 0;
    bool spoke = false;

    if (j->one_rank || !may_pause(j->arrivals))
        return false;
    read_steps(j->arrivals, &p);
    slot = lg_alloc(p.n, sizeof(*slot));
    for (size_t i = 0; i < p.n; i++) {
        slot[i] = kind_of_step(&p, i);
        if (slot[i] == LG_SLOT_ABSENT || is_first(&p, i))
            continue; /* a first step shows the period, but its length is start-up as well */
        time += p.dur[i];
        sum += slot[i] == LG_SLOT_EVENT ? p.dur[i] - j->arrivals->step_ns : 0;
    }
    if (sum >= LG_COSTLY * time && lg_find_period(slot, p.n, &period)) {
        add_pauses(j, &p, slot, &period, sum, time);
        spoke = true;
    }
    free(slot);
    free(p.dur);
    free(p.least);
    return spoke;
}
