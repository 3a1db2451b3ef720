/*
 * rule_arrival.c - a rank that is late nearly always, or nearly always in one stretch of steps.
 * Runs in the reading commands.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "aggregator/accuse.h"
#include "aggregator/order.h"
#include "aggregator/recurrence.h"

#define PERSISTENT_LEAST 0.60 /* part of the steps */
#define PERSISTENT_MOST  0.95 /* is enough however few steps there are */
#define STRETCH_STEPS    20
#define STRETCH_LATE     0.80 /* of its steps */
#define STRETCH_HOLDS    0.80 /* of the rank's lateness */
#define STRETCH_COSTS    0.08 /* of the time */
#define EDGE             0.05 /* of the steps: a stretch that leaves out less is all of them */
#define EDGE_STEPS       3

/* Median lateness over cycles [from, to), as a part of the step. */
static double median_score(const struct lg_arrivals *a, size_t rank, size_t from, size_t to)
{
    int64_t *late = lg_alloc(to - from, sizeof(*late));
    double median;

    for (size_t k = from; k < to; k++)
        late[k - from] = lg_late(a, k, rank);
    median = lg_median(late, to - from);
    free(late);
    return median / a->step_ns;
}

static bool *late_cycles(const struct lg_arrivals *a, size_t rank)
{
    bool *late = lg_alloc(a->n, sizeof(*late));

    for (size_t k = 0; k < a->n; k++)
        late[k] = lg_late(a, k, rank) > 0;
    return late;
}

/* "", " since step 20", " until step 41", " in steps 20-41" */
static char *stretch_words(const struct lg_arrivals *a, size_t from, size_t to, int64_t *since,
                           int64_t *until)
{
    size_t edge =
        (size_t)(EDGE * (double)a->n) > EDGE_STEPS ? (size_t)(EDGE * (double)a->n) : EDGE_STEPS;
    int64_t first = lg_arrivals_step(a, from), last = lg_arrivals_step(a, to - 1);

    *since = from > edge ? first : LG_NULL;
    *until = to + edge < a->n ? last : LG_NULL;
    if (*since != LG_NULL && *until != LG_NULL)
        return lg_format(" in steps %" PRId64 "-%" PRId64, first, last);
    if (*since != LG_NULL)
        return lg_format(" since step %" PRId64, first);
    if (*until != LG_NULL)
        return lg_format(" until step %" PRId64, last);
    return lg_strdup("");
}

static size_t count_late(const struct lg_arrivals *a, size_t rank, size_t from, size_t to)
{
    size_t n = 0;

    for (size_t k = from; k < to; k++)
        n += lg_late(a, k, rank) > 0;
    return n;
}

static void set_step(json_t *evidence, const char *key, int64_t step)
{
    if (step != LG_NULL)
        json_object_set_new(evidence, key, json_integer(step));
}

/* The finding about cycles [from, to), in words about the stretch [begin, end). */
static void accuse(struct lg_judgement *j, struct lg_lateness *l, size_t begin, size_t end)
{
    const struct lg_arrivals *a = j->arrivals;
    bool *chosen = lg_alloc(a->n, sizeof(*chosen));
    int64_t since, until;
    char *words = stretch_words(a, begin, end, &since, &until);
    struct lg_finding *f;

    for (size_t k = l->from; k < l->to; k++)
        chosen[k] = true;
    l->chosen = chosen;
    l->recurrence = LG_RECURRENCE_PERSISTENT;
    l->when = lg_format("in %zu of %zu steps%s", count_late(a, l->rank, l->from, l->to),
                        l->to - l->from, words);
    f = lg_accuse(j, l);
    set_step(f->evidence, "since_step", since);
    set_step(f->evidence, "until_step", until);
    free(words);
    free(chosen);
}

/* ---- all the time ---- */

static double part_needed(size_t n)
{
    double part = lg_clear_majority(n);

    part = part > PERSISTENT_MOST ? PERSISTENT_MOST : part;
    return part < PERSISTENT_LEAST ? PERSISTENT_LEAST : part;
}

bool lg_rule_persistent(struct lg_judgement *j)
{
    const struct lg_arrivals *a = j->arrivals;
    bool spoke = false;

    for (size_t r = 0; r < a->n_ranks; r++) {
        struct lg_lateness l = {.rank = r, .to = a->n};
        size_t begin = 0, end = a->n;
        bool *late;

        if ((double)a->account[r].late_steps < part_needed(a->n) * (double)a->n)
            continue;
        l.score = median_score(a, r, 0, a->n);
        if (l.score < LG_COSTLY)
            continue;
        late = late_cycles(a, r);
        lg_find_stretch(late, a->n, &begin, &end);
        accuse(j, &l, begin, end);
        free(late);
        spoke = true;
    }
    return spoke;
}

/* ---- since, until ---- */

/* Is the stretch where it is late, and is it worth telling? */
static bool is_clear(const struct lg_arrivals *a, size_t rank, size_t from, size_t to)
{
    size_t n = to - from, late = count_late(a, rank, from, to);
    double need = lg_clear_majority(n) > STRETCH_LATE ? lg_clear_majority(n) : STRETCH_LATE;
    int64_t sum = 0;

    for (size_t k = from; k < to; k++)
        sum += lg_late(a, k, rank);
    return n >= STRETCH_STEPS && (double)late >= need * (double)n &&
           (double)sum >= STRETCH_HOLDS * (double)a->account[rank].late;
}

bool lg_rule_stretch(struct lg_judgement *j)
{
    const struct lg_arrivals *a = j->arrivals;
    bool spoke = false;

    for (size_t r = 0; r < a->n_ranks; r++) {
        struct lg_lateness l = {.rank = r};
        bool *late;
        bool found;

        if ((double)a->account[r].late < STRETCH_COSTS * a->time_ns)
            continue;
        late = late_cycles(a, r);
        found = lg_find_stretch(late, a->n, &l.from, &l.to) && is_clear(a, r, l.from, l.to);
        free(late);
        if (!found)
            continue;
        l.score = median_score(a, r, l.from, l.to);
        if (l.score < LG_COSTLY)
            continue;
        accuse(j, &l, l.from, l.to);
        spoke = true;
    }
    return spoke;
}
