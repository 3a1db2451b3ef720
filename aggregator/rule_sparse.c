/*
 * rule_sparse.c - a rank that is rarely late, but then so much that it costs as much as a
 * straggler. Runs in the reading commands.
 */
#include <stdlib.h>

#include "aggregator/accuse.h"

#define FEWEST 3 /* fewer are a coincidence: told, but nobody is accused */

static void accuse(struct lg_judgement *j, size_t rank)
{
    const struct lg_arrivals *a = j->arrivals;
    bool *big = lg_alloc(a->n, sizeof(*big));
    int64_t from = lg_big_from(a, rank);
    struct lg_lateness l = {.rank = rank,
                            .chosen = big,
                            .to = a->n,
                            .recurrence = LG_RECURRENCE_SPARSE,
                            .score = (double)a->account[rank].late / a->time_ns};
    struct lg_finding *f;
    size_t n = 0;

    for (size_t k = 0; k < a->n; k++) {
        big[k] = lg_late(a, k, rank) >= from;
        n += big[k];
    }
    l.when = lg_format("in %zu of %zu steps", n, a->n);
    f = lg_accuse(j, &l);
    f->level = n < FEWEST ? LG_LEVEL_INFO : LG_LEVEL_WARNING;
    json_object_set_new(f->evidence, "big_steps", json_integer((json_int_t)n));
    json_object_set_new(f->evidence, "steps", lg_json_steps(a, big));
    free(big);
}

bool lg_rule_sparse(struct lg_judgement *j)
{
    const struct lg_arrivals *a = j->arrivals;
    bool spoke = false;

    for (size_t r = 0; r < a->n_ranks; r++) {
        if ((j->one_rank && r != j->only) || (double)a->account[r].late < LG_COSTLY * a->time_ns)
            continue;
        accuse(j, r);
        spoke = true;
    }
    return spoke;
}
