/*
 * frontier.h - where each ns of a scope's steps comes from: prefix maxima over the ranks of the own
 * parts in time order. Runs in the reading commands.
 */
#ifndef LAGGARD_AGGREGATOR_FRONTIER_H
#define LAGGARD_AGGREGATOR_FRONTIER_H

#include "aggregator/arrival.h"

/* Accounts of the arrivals are filled in on the way. Sums over the scope's cycles: the increments
 * are >= 0 and add up with the transfer to exposed, exactly. A part's leader is the rank that leads
 * alone in more than half of the cycles. */
void lg_frontier_of(struct lg_arrivals *arrivals, struct lg_frontier *frontier);

#endif
