/*
 * policy_rows.h - the first half of the published policy (policy.h): from rows in any order to the
 * averages of each rank over the window's steps. Internal to policy.c and its tests.
 */
#ifndef LAGGARD_AGGREGATOR_POLICY_ROWS_H
#define LAGGARD_AGGREGATOR_POLICY_ROWS_H

#include "aggregator/policy.h"

/* Sets clock, steps_used, first_step, last_step, universe, n_ranks, ranks and with_metric of
 * *result. Without a common step the ranks are there with nothing available. Returns how many ranks
 * of the universe have rows. */
size_t lg_policy_average(const struct lg_policy_input *input, struct lg_policy_result *result);

static inline bool lg_policy_has(const struct lg_policy_rank *rank, enum lg_metric metric)
{
    return rank->available >> metric & 1;
}

#endif
