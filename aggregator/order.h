/*
 * order.h - medians of integers: of a list, and of a list without one of its members (what the
 * other ranks do). Pure functions, in the reading commands. Linear time: they are called for every
 * step of a run.
 */
#ifndef LAGGARD_AGGREGATOR_ORDER_H
#define LAGGARD_AGGREGATOR_ORDER_H

#include <stddef.h>
#include <stdint.h>

/* What the median of a list, and of any n - 1 of its members, can be told from. */
struct lg_middle {
    size_t n;
    int64_t below, at, above; /* places n/2 - 1, n/2 and n/2 + 1 of the sorted list, where they are
                                 there */
};

/* All of these reorder value[0..n); n is at least 1. */
struct lg_middle lg_middle_of(int64_t *value, size_t n);
/* Place `nth` of the sorted list. */
int64_t lg_nth(int64_t *value, size_t n, size_t nth);
/* Mean of the middle two. */
double lg_median(int64_t *value, size_t n);

/* Median of the list without one member of the value `own`: of an even number the mean of the
 * middle two, floored. The list had at least two members. */
int64_t lg_median_of_others(const struct lg_middle *middle, int64_t own);
/* The actual median, the upper of two. */
static inline int64_t lg_upper_median(const struct lg_middle *middle)
{
    return middle->at;
}

#endif
