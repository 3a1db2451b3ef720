/*
 * ambiguous.c - doubt about findings that name a rank (accuse.h): another rank is nearly as late,
 * or mending those named would gain next to nothing. Runs in the reading commands.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "aggregator/accuse.h"

#define AS_LATE 0.90 /* of the named rank's lateness: a rank with more could as well be named */
#define GAINS   0.05 /* of the time: less is no gain */

/* Indices of the ranks that findings name, each once. */
static size_t named_ranks(const struct lg_judgement *j, size_t *named)
{
    const struct lg_arrivals *a = j->arrivals;
    size_t n = 0;

    for (size_t r = 0; r < a->n_ranks; r++)
        for (size_t i = 0; i < j->n_findings; i++)
            if (j->findings[i].rank == lg_arrivals_rank(a, r)) {
                named[n++] = r;
                break;
            }
    return n;
}

static bool is_named(const size_t *named, size_t n, size_t rank)
{
    for (size_t i = 0; i < n; i++)
        if (named[i] == rank)
            return true;
    return false;
}

/* The rank that could as well be named, or n_ranks. */
static size_t rival(const struct lg_arrivals *a, const size_t *named, size_t n, int64_t late)
{
    for (size_t r = 0; r < a->n_ranks; r++)
        if (!is_named(named, n, r) && (double)a->account[r].late > AS_LATE * (double)late)
            return r;
    return a->n_ranks;
}

static size_t index_of(const struct lg_arrivals *a, int32_t rank)
{
    size_t r = 0;

    while (lg_arrivals_rank(a, r) != rank)
        r++;
    return r;
}

/* The cycles of a finding's steps. */
static void cycles_of(const struct lg_arrivals *a, const struct lg_finding *f, size_t *from,
                      size_t *to)
{
    *from = 0;
    *to = a->n;
    while (*from < *to && lg_arrivals_step(a, *from) < f->steps.first)
        (*from)++;
    while (*to > *from && lg_arrivals_step(a, *to - 1) > f->steps.last)
        (*to)--;
}

/* ns that mending all of them would save; of one rank all the time that is known already. */
static int64_t gain_of(struct lg_arrivals *a, const size_t *named, size_t n, size_t from, size_t to,
                       double *time)
{
    if (n > 1 || from > 0 || to < a->n)
        return lg_gain_of_mending(a, named, n, from, to, time);
    lg_arrivals_account(a, NULL, NULL);
    *time = a->time_ns;
    return a->account[named[0]].gain_all;
}

static void doubt(struct lg_judgement *j, struct lg_finding *f, const size_t *named, size_t n)
{
    const struct lg_arrivals *a = j->arrivals;
    size_t from, to, other = rival(a, named, n, a->account[index_of(a, f->rank)].late);
    double time;
    int64_t gain;

    cycles_of(a, f, &from, &to);
    gain = gain_of(j->arrivals, named, n, from, to, &time);
    if (other < a->n_ranks) {
        f->settle = lg_format("rank %" PRId32 " is nearly as late as rank %" PRId32
                              ": more steps would tell, or a run with the two ranks' hosts swapped",
                              lg_arrivals_rank(a, other), f->rank);
    } else if ((double)gain < GAINS * time) {
        f->settle = lg_format("the others would be nearly as late without it (%.1f %% of the time "
                              "would be gained): a run without rank %" PRId32
                              "'s load, or with its host swapped, would tell",
                              100 * (double)gain / time, f->rank);
    }
    f->ambiguous = f->settle != NULL;
}

void lg_mark_ambiguous(struct lg_judgement *j)
{
    size_t *named, n;

    if (!j->arrivals)
        return;
    named = lg_alloc(j->arrivals->n_ranks, sizeof(*named));
    n = named_ranks(j, named);
    for (size_t i = 0; i < j->n_findings; i++)
        if (j->findings[i].rank != LG_NO_RANK && j->findings[i].rule == LG_RULE_ARRIVAL)
            doubt(j, &j->findings[i], named, n);
    free(named);
}
