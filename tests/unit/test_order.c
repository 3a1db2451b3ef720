/*
 * test_order.c - medians by partition against sorting.
 */
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

#include "aggregator/order.h"

#define MOST 70

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* floor((a + b) / 2) without the trick */
static int64_t floored(int64_t a, int64_t b)
{
    int64_t sum = a + b;

    return sum >= 0 ? sum / 2 : -((1 - sum) / 2);
}

/* Median of all but one member of a sorted list, by making that list. */
static int64_t slow_median_of_others(const int64_t *sorted, size_t n, size_t without)
{
    int64_t rest[MOST];
    size_t kept = 0;

    for (size_t i = 0; i < n; i++)
        if (i != without)
            rest[kept++] = sorted[i];
    return kept % 2 ? rest[kept / 2] : floored(rest[kept / 2 - 1], rest[kept / 2]);
}

static void check(const int64_t *value, size_t n, unsigned seed)
{
    int64_t sorted[MOST], work[MOST];
    struct lg_middle middle;
    double median;

    memcpy(sorted, value, n * sizeof(*value));
    qsort(sorted, n, sizeof(*sorted), by_value);
    memcpy(work, value, n * sizeof(*value));
    middle = lg_middle_of(work, n);
    if (lg_upper_median(&middle) != sorted[n / 2])
        fail_msg("seed %u: upper median", seed);
    for (size_t i = 0; i < n && n > 1; i++)
        if (lg_median_of_others(&middle, sorted[i]) != slow_median_of_others(sorted, n, i))
            fail_msg("seed %u: median without place %zu of %zu", seed, i, n);
    memcpy(work, value, n * sizeof(*value));
    median = ((double)sorted[n / 2] + (double)sorted[(n - 1) / 2]) / 2;
    if (lg_median(work, n) != median)
        fail_msg("seed %u: median", seed);
    for (size_t i = 0; i < n; i += 1 + n / 5) {
        memcpy(work, value, n * sizeof(*value));
        if (lg_nth(work, n, i) != sorted[i])
            fail_msg("seed %u: place %zu of %zu", seed, i, n);
    }
}

static void random_lists(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 20000; seed++) {
        unsigned random = seed;
        size_t n = 1 + (size_t)rand_r(&random) % MOST;
        int range = rand_r(&random) % 3 ? 1000000 : 4; /* many equal values, too */
        int64_t value[MOST];

        for (size_t i = 0; i < n; i++)
            value[i] = rand_r(&random) % range - range / 2;
        check(value, n, seed);
    }
}

static void known_lists(void **state)
{
    int64_t odd[] = {9, 1, 5}, even[] = {4, 1, 3, 2}, negative[] = {-3, -4, 7};
    struct lg_middle m = lg_middle_of(odd, 3);

    (void)state;
    assert_int_equal(lg_upper_median(&m), 5);
    assert_int_equal(lg_median_of_others(&m, 9), 3);
    assert_int_equal(lg_median_of_others(&m, 5), 5);
    assert_int_equal(lg_median_of_others(&m, 1), 7);
    m = lg_middle_of(even, 4);
    assert_int_equal(lg_upper_median(&m), 3); /* the upper of the middle two */
    assert_int_equal(lg_median_of_others(&m, 1), 3);
    assert_int_equal(lg_median_of_others(&m, 3), 2);
    m = lg_middle_of(negative, 3);
    assert_int_equal(lg_median_of_others(&m, 7), -4); /* -3.5, floored */
}

static void sorted_and_equal_lists(void **state)
{
    int64_t up[MOST], down[MOST], same[MOST];

    (void)state;
    for (int i = 0; i < MOST; i++) {
        up[i] = i;
        down[i] = -i;
        same[i] = 7;
    }
    check(up, MOST, 0);
    check(down, MOST - 1, 0);
    check(same, MOST, 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_lists),
        cmocka_unit_test(known_lists),
        cmocka_unit_test(sorted_and_equal_lists),
    };

    return unit_run(tests);
}
