/*
 * order.c - medians by partition (order.h). Pure functions, in the reading commands.
 */
#include "aggregator/order.h"

#define SHORT 12 /* lists of up to so many are sorted by insertion */

static void swap(int64_t *a, int64_t *b)
{
    int64_t t = *a;

    *a = *b;
    *b = t;
}

static void insertion_sort(int64_t *v, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        int64_t x = v[i];
        size_t k = i;

        for (; k > 0 && v[k - 1] > x; k--)
            v[k] = v[k - 1];
        v[k] = x;
    }
}

/* Of the first, the middle and the last: a list that is sorted already is split in half. */
static int64_t pivot_of(const int64_t *v, size_t n)
{
    int64_t a = v[0], b = v[n / 2], c = v[n - 1];
    int64_t low = a < b ? a : b, high = a < b ? b : a;

    return c < low ? low : c > high ? high : c;
}

/* Afterwards no value before v[nth] is larger than it, and none behind it smaller. */
static void select_nth(int64_t *v, size_t n, size_t nth)
{
    while (n > SHORT) {
        int64_t pivot = pivot_of(v, n);
        size_t less = 0, i = 0, more = n; /* v[0..less) < pivot, v[less..i) = pivot, v[more..n) > */

        while (i < more) {
            if (v[i] < pivot)
                swap(&v[less++], &v[i++]);
            else if (v[i] > pivot)
                swap(&v[i], &v[--more]);
            else
                i++;
        }
        if (nth >= less && nth < more)
            return;
        if (nth < less) {
            n = less;
        } else {
            v += more;
            n -= more;
            nth -= more;
        }
    }
    insertion_sort(v, n);
}

int64_t lg_nth(int64_t *value, size_t n, size_t nth)
{
    select_nth(value, n, nth);
    return value[nth];
}

static int64_t largest(const int64_t *v, size_t n)
{
    int64_t x = v[0];

    for (size_t i = 1; i < n; i++)
        x = v[i] > x ? v[i] : x;
    return x;
}

static int64_t smallest(const int64_t *v, size_t n)
{
    int64_t x = v[0];

    for (size_t i = 1; i < n; i++)
        x = v[i] < x ? v[i] : x;
    return x;
}

struct lg_middle lg_middle_of(int64_t *value, size_t n)
{
    struct lg_middle m = {.n = n};
    size_t at = n / 2;

    select_nth(value, n, at);
    m.at = m.below = m.above = value[at];
    if (at > 0)
        m.below = largest(value, at);
    if (at + 1 < n)
        m.above = smallest(value + at + 1, n - at - 1);
    return m;
}

double lg_median(int64_t *value, size_t n)
{
    struct lg_middle m = lg_middle_of(value, n);

    return n % 2 ? (double)m.at : ((double)m.below + (double)m.at) / 2;
}

/* Half of a sum, rounded down, without overflow. */
static int64_t floored_mean(int64_t a, int64_t b)
{
    return (a & b) + ((a ^ b) >> 1);
}

int64_t lg_median_of_others(const struct lg_middle *m, int64_t own)
{
    if (m->n % 2 == 0) /* an odd number is left: its middle is one of the two */
        return own <= m->below ? m->at : m->below;
    if (own > m->at)
        return floored_mean(m->below, m->at);
    return own == m->at ? floored_mean(m->below, m->above) : floored_mean(m->at, m->above);
}
