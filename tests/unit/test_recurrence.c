/*
 * test_recurrence.c - periods and stretches.
 */
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

#include "aggregator/recurrence.h"

#define MOST 300

/* '#' an event, '.' none, '-' absent */
static size_t slots(const char *text, enum lg_slot_kind *slot)
{
    size_t n = strlen(text);

    for (size_t i = 0; i < n; i++)
        slot[i] = text[i] == '#' ? LG_SLOT_EVENT : text[i] == '-' ? LG_SLOT_ABSENT : LG_SLOT_QUIET;
    return n;
}

static size_t period_of(const char *text)
{
    enum lg_slot_kind slot[MOST];
    struct lg_period period;

    return lg_find_period(slot, slots(text, slot), &period) ? period.period : 0;
}

static void clear_periods(void **state)
{
    (void)state;
    assert_int_equal(period_of("#.#.#.#.#.#."), 2);
    assert_int_equal(period_of("..#....#....#....#....#.."), 5);
    assert_int_equal(period_of("#..#..#.."), 3); /* 3 events, n/3 long */
    assert_int_equal(period_of("##.##.##.##.##."), 3);
}

static void no_period(void **state)
{
    (void)state;
    assert_int_equal(period_of("............"), 0);
    assert_int_equal(period_of("#...#......."), 0);   /* 2 events */
    assert_int_equal(period_of("#....#....#..."), 0); /* 5 is longer than n/3 */
    assert_int_equal(period_of("####"), 0);
    assert_int_equal(period_of("#..#....#.#......#...#......#......#...."), 0);
}

static void the_shortest_of_equal_ones(void **state)
{
    (void)state;
    /* every step: any period has one phase full and 1/p of the events: 2 is best */
    assert_int_equal(period_of("####################"), 2);
}

static void a_missed_event_and_a_stray_one(void **state)
{
    enum lg_slot_kind slot[MOST];
    struct lg_period period;
    size_t n = slots("#...#...#.......#.#.#...#...#...", slot);

    (void)state;
    assert_true(lg_find_period(slot, n, &period));
    assert_int_equal(period.period, 4);
    assert_int_equal(period.phase, 0);
    assert_int_equal(period.events, 8);
    assert_int_equal(period.in_phase, 7);
    assert_int_equal(period.slots, 8);
}

static void absent_slots_keep_the_phase(void **state)
{
    (void)state;
    assert_int_equal(period_of("#...-...#...#---#...-...#..."), 4);
}

/* The rule by its words, over all periods and phases. */
static double best_product(const enum lg_slot_kind *slot, size_t n, size_t *best)
{
    double most = 0;
    size_t events = 0;

    *best = 0;
    for (size_t i = 0; i < n; i++)
        events += slot[i] == LG_SLOT_EVENT;
    for (size_t p = 2; p <= n / 3; p++) {
        for (size_t phase = 0; phase < p; phase++) {
            size_t in = 0, all = 0;
            double product;

            for (size_t i = phase; i < n; i += p) {
                in += slot[i] == LG_SLOT_EVENT;
                all += slot[i] != LG_SLOT_ABSENT;
            }
            if (in < 3)
                continue;
            product = (double)in / (double)all * (double)in / (double)events;
            if (product >= 0.5 && product > most + 1e-12) {
                most = product;
                *best = p;
            }
        }
    }
    return most;
}

static void random_sequences(void **state)
{
    size_t found = 0;

    (void)state;
    for (unsigned seed = 1; seed <= 20000; seed++) {
        unsigned random = seed;
        size_t n = 3 + (size_t)rand_r(&random) % 120, every = 2 + (size_t)rand_r(&random) % 12,
               best;
        int noise = 1 + rand_r(&random) % 30;
        enum lg_slot_kind slot[MOST];
        struct lg_period period = {0};
        bool is;

        for (size_t i = 0; i < n; i++) {
            bool event = i % every == 1 ? rand_r(&random) % 8 > 0 : rand_r(&random) % noise == 0;

            slot[i] = rand_r(&random) % 20 == 0 ? LG_SLOT_ABSENT
                      : event                   ? LG_SLOT_EVENT
                                                : LG_SLOT_QUIET;
        }
        best_product(slot, n, &best);
        is = lg_find_period(slot, n, &period);
        found += is;
        if (is != (best > 0) || (is && period.period != best))
            fail_msg("seed %u: period %zu, should be %zu", seed, is ? period.period : 0, best);
    }
    assert_true(found > 2000 && found < 19000); /* both answers were tried */
}

static void stretches(void **state)
{
    bool marked[] = {0, 1, 0, 0, 1, 1, 0, 1, 1, 1, 0, 0, 0, 1};
    bool none[5] = {0};
    size_t from = 99, to = 99;

    (void)state;
    assert_true(lg_find_stretch(marked, 14, &from, &to));
    assert_int_equal(from, 4);
    assert_int_equal(to, 10);
    assert_false(lg_find_stretch(none, 5, &from, &to));
    assert_false(lg_find_stretch(none, 0, &from, &to));
    assert_true(lg_find_stretch(marked + 13, 1, &from, &to));
    assert_int_equal(from, 0);
    assert_int_equal(to, 1);
}

static void random_stretches(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 5000; seed++) {
        unsigned random = seed;
        size_t n = 1 + (size_t)rand_r(&random) % 60, from, to;
        bool marked[60];
        int best = 0, got = 0;

        for (size_t i = 0; i < n; i++)
            marked[i] = rand_r(&random) % 2;
        for (size_t i = 0; i < n; i++) {
            int sum = 0;

            for (size_t k = i; k < n; k++) {
                sum += marked[k] ? 1 : -1;
                best = sum > best ? sum : best;
            }
        }
        if (lg_find_stretch(marked, n, &from, &to))
            for (size_t k = from; k < to; k++)
                got += marked[k] ? 1 : -1;
        if (got != best)
            fail_msg("seed %u: %d instead of %d", seed, got, best);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(clear_periods),
        cmocka_unit_test(no_period),
        cmocka_unit_test(the_shortest_of_equal_ones),
        cmocka_unit_test(a_missed_event_and_a_stray_one),
        cmocka_unit_test(absent_slots_keep_the_phase),
        cmocka_unit_test(random_sequences),
        cmocka_unit_test(stretches),
        cmocka_unit_test(random_stretches),
    };

    return unit_run(tests);
}
