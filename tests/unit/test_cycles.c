/*
 * test_cycles.c - what a rank did between two exits from a collective: which row each part comes
 * from, how local steps, gaps and missing columns are taken, which clock is used, and when nothing
 * is said. Times are in ms.
 */
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

#include "aggregator/arrival.h"
#include "aggregator/cycles.h"
#include "tests/unit/run_builder.h"

struct bench {
    struct lg_run *run;
    struct lg_aligned *aligned;
    struct lg_cycles *cycles;
};

static int setup(void **state)
{
    struct bench *b = calloc(1, sizeof(*b));

    if (!b)
        return -1;
    b->run = lg_run_new();
    *state = b;
    return 0;
}

static void reset(struct bench *b)
{
    lg_cycles_free(b->cycles);
    lg_aligned_free(b->aligned);
    b->cycles = NULL;
    b->aligned = NULL;
}

static int teardown(void **state)
{
    struct bench *b = *state;

    reset(b);
    lg_run_free(b->run);
    free(b);
    return 0;
}

static struct lg_cycles *cycles_of(struct bench *b)
{
    reset(b);
    b->aligned = lg_align(b->run, LG_NULL, LG_NULL);
    b->cycles = lg_cycles_new(b->aligned);
    lg_cycles_prepare(b->cycles, 0, b->cycles->n);
    return b->cycles;
}

static int64_t in_ms(int64_t ns)
{
    assert_int_equal(ns % 1000000, 0);
    return ns / 1000000;
}

/* Compares the parts of a rank's cycle, in time order. */
static void check_parts(struct lg_cycles *c, size_t cycle, size_t rank, const int64_t ms[9])
{
    const struct lg_cycle_row *row = &lg_cycle_rows(c, cycle)[rank];

    for (int p = 0; p < LG_PART_COUNT; p++)
        if (in_ms(row->part[p]) != ms[p])
            fail_msg("cycle %zu, rank %zu, %s: %d ms, should be %d", cycle, rank, lg_part_name(p),
                     (int)in_ms(row->part[p]), (int)ms[p]);
}

/* A row with time in collectives in backward and the "after" columns. */
static void row(struct lg_rank *rank, int64_t step, struct stages s, int64_t sync, int64_t seq,
                int64_t backward_after, int64_t optimizer_after, int64_t other_after)
{
    size_t i = add_row(rank, step, s);

    set(rank, i, LG_COL_backward_sync_ns, in_ns(sync));
    set(rank, i, LG_COL_collective_seq, seq);
    set(rank, i, LG_COL_backward_after_ns, in_ns(backward_after));
    set(rank, i, LG_COL_optimizer_after_ns, in_ns(optimizer_after));
    set(rank, i, LG_COL_other_after_ns, in_ns(other_after));
}

#define USUAL ((struct stages){8, 2, 30, 50, 5, 7})

static void usual_rows(struct lg_rank *rank, int n)
{
    for (int i = 0; i < n; i++)
        row(rank, i, USUAL, 10, i + 1, 4, 3, 1);
}

static void usual_run(struct bench *b, int ranks, int n)
{
    for (int r = 0; r < ranks; r++)
        usual_rows(lg_run_add_rank(b->run, r), n);
}

/* ---- parts ---- */

static void parts_come_from_two_rows(void **state)
{
    struct bench *b = *state;
    struct lg_rank *rank;
    struct lg_cycles *c;

    usual_run(b, 2, 3);
    rank = &b->run->ranks[1];
    set(rank, 1, LG_COL_optimizer_after_ns, in_ns(2)); /* 3 of the 5 ms lie before the last sync */
    c = cycles_of(b);
    assert_null(c->abstain);
    assert_int_equal(c->n, 2); /* the first aligned row has no cycle */
    check_parts(c, 0, 0, (int64_t[]){4, 3, 1, 8, 2, 6, 30, 36, 2});
    check_parts(c, 0, 1, (int64_t[]){4, 3, 1, 8, 2, 6, 30, 36, 3});
    check_parts(c, 1, 1, (int64_t[]){4, 2, 1, 8, 2, 6, 30, 36, 2});
    assert_int_equal(in_ms(c->cycle[0].arrival), 93);
    assert_int_equal(in_ms(c->cycle[0].second), 92);
    assert_int_equal(c->cycle[0].latest, 1);
    assert_int_equal(in_ms(c->lateness[0]), -1);
    assert_int_equal(in_ms(c->lateness[1]), 1);
    assert_int_equal(in_ms(c->cycle[0].transfer), 10);
}

static void without_after_columns(void **state)
{
    struct bench *b = *state;
    struct lg_cycles *c;

    for (int r = 0; r < 2; r++)
        add_rank(b->run, r, 0, 4, USUAL);
    add_collectives(b->run, 10, 1);
    for (size_t i = 0; i < 4; i++) { /* a sync in optimizer goes with the work that is after */
        set(&b->run->ranks[0], i, LG_COL_optimizer_sync_ns, in_ns((int64_t)i));
        set(&b->run->ranks[1], i, LG_COL_optimizer_sync_ns, 0);
    }
    c = cycles_of(b);
    assert_int_equal(c->n, 3);
    check_parts(c, 2, 1, (int64_t[]){0, 5, 7, 8, 2, 0, 30, 40, 0});
    check_parts(c, 2, 0, (int64_t[]){0, 3, 7, 8, 2, 0, 30, 40, 0}); /* 2 of row 2's 5 ms are sync */
    assert_int_equal(in_ms(lg_cycle_rows(c, 2)[0].sync[LG_STAGE_optimizer]), 2);
    assert_int_equal(in_ms(lg_cycle_rows(c, 2)[0].sync[LG_STAGE_backward]), 10);
}

static void local_steps_belong_to_the_next_sync(void **state)
{
    struct bench *b = *state;
    struct lg_cycles *c;

    for (int r = 0; r < 2; r++) {
        struct lg_rank *rank = lg_run_add_rank(b->run, r);

        for (int i = 0; i < 6; i++) { /* a sync in every second row: numbers 1 2 2 3 3 4 */
            bool local = i % 2 == 0;

            row(rank, i, USUAL, local ? 0 : 10, 1 + (i + 1) / 2, local ? X : 4, local ? X : 3,
                local ? X : 1);
        }
    }
    c = cycles_of(b);
    assert_int_equal(c->n, 3);
    /* a local row's own work, all of it, is before the sync: 8+8 input, ..., 50+36 backward */
    check_parts(c, 1, 0, (int64_t[]){4, 3, 1, 16, 4, 13, 60, 86, 7});
}

static void rows_of_one_rank_only_belong_to_its_cycle(void **state)
{
    struct bench *b = *state;
    struct lg_cycles *c;

    usual_rows(lg_run_add_rank(b->run, 0), 4);
    for (int i = 0; i < 4; i++)
        b->run->ranks[0].value[LG_COL_collective_seq][i] = 2 * (i + 1);
    usual_rows(lg_run_add_rank(b->run, 1), 8); /* cuts its steps at every collective */
    c = cycles_of(b);
    assert_int_equal(c->n, 3);
    assert_int_equal(c->aligned->step[1], 1);
    check_parts(c, 0, 0, (int64_t[]){4, 3, 1, 8, 2, 6, 30, 36, 2});
    check_parts(c, 0, 1, (int64_t[]){4, 3, 1, 16, 4, 13, 60, 76, 7});
}

static void no_cycle_over_a_gap(void **state)
{
    struct bench *b = *state;
    struct lg_cycles *c;

    for (int r = 0; r < 2; r++) {
        struct lg_rank *rank = lg_run_add_rank(b->run, r);

        for (int i = 0; i < 8; i++)
            if (r == 0 || i != 4) /* rank 1 lost a row */
                row(rank, i, USUAL, 10, i + 1, 4, 3, 1);
    }
    c = cycles_of(b);
    assert_int_equal(c->aligned->n, 7);
    assert_int_equal(c->n, 5); /* of 1-3, 6, 7: rank 0 would have the work of two steps in 5 */
    assert_int_equal(c->aligned->step[lg_cycle_iteration(c, 3)], 6);
}

static void damaged_values_are_bounded(void **state)
{
    struct bench *b = *state;
    struct lg_cycles *c;

    usual_run(b, 2, 4);
    set(&b->run->ranks[0], 1, LG_COL_input_wait_ns, -5);
    set(&b->run->ranks[0], 1, LG_COL_backward_sync_ns, in_ns(70)); /* longer than backward */
    set(&b->run->ranks[0], 2, LG_COL_other_after_ns, in_ns(500));  /* longer than other */
    set(&b->run->ranks[1], 2, LG_COL_dur_ns, INT64_MAX);
    c = cycles_of(b);
    assert_int_equal(c->n, 3);
    for (size_t k = 0; k < c->n; k++)
        for (size_t r = 0; r < 2; r++)
            for (int p = 0; p < LG_PART_COUNT; p++)
                assert_true(lg_cycle_rows(c, k)[r].part[p] >= 0);
    check_parts(c, 0, 0, (int64_t[]){4, 3, 1, 0, 2, 14, 30, 0, 2});
    check_parts(c, 2, 0, (int64_t[]){4, 3, 7, 8, 2, 6, 30, 36, 2});
    assert_true(c->cycle[1].arrival < INT64_C(1) << 47);
}

static void forward_and_backward_in_one(void **state)
{
    struct bench *b = *state;
    struct lg_cycles *c;

    usual_run(b, 2, 4);
    for (size_t i = 0; i < 4; i++) { /* on one rank only: then on none they are told apart */
        set(&b->run->ranks[0], i, LG_COL_forward_ns, LG_NULL);
        set(&b->run->ranks[0], i, LG_COL_backward_ns, LG_NULL);
        set(&b->run->ranks[0], i, LG_COL_compute_ns, in_ns(80));
    }
    c = cycles_of(b);
    assert_null(c->abstain);
    assert_true(c->merged);
    check_parts(c, 0, 0, (int64_t[]){4, 3, 1, 8, 2, 6, 66, 0, 2});
    check_parts(c, 0, 1, (int64_t[]){4, 3, 1, 8, 2, 6, 66, 0, 2});
}

/* ---- several syncs in a step ---- */

static void mutual_waiting(void **state)
{
    struct bench *b = *state;
    struct lg_cycles *c;

    /* rank 0 is slow in forward, rank 1 in backward: each waits 20 ms for the other */
    for (int r = 0; r < 2; r++) {
        struct lg_rank *rank = lg_run_add_rank(b->run, r);
        struct stages s = {8, 2, 32 + 20, 52 + 20, 5, 7};

        for (int i = 0; i < 30; i++) {
            row(rank, i, s, r == 0 ? 22 : 2, 2 * i + 2, 0, 5, 7);
            set(rank, (size_t)i, LG_COL_forward_sync_ns, in_ns(r == 1 ? 22 : 2));
        }
    }
    c = cycles_of(b);
    assert_true(c->several);
    assert_int_equal(in_ms(c->cycle[5].transfer), 24);     /* looks like transfer... */
    assert_int_equal(in_ms(c->cycle[5].pure_transfer), 4); /* ...but is mostly waiting */
    assert_int_equal(in_ms(c->cycle[5].cost), 20);
    assert_int_equal(in_ms(c->cycle[5].time), 146);
    for (size_t r = 0; r < 2; r++) /* as a whole both take as long, each is late once */
        assert_int_equal(in_ms(c->lateness[5 * 2 + r]), 20);
}

static void one_sync_in_two_stages_is_none(void **state)
{
    struct bench *b = *state;

    usual_run(b, 2, 30);
    for (int r = 0; r < 2; r++)
        for (size_t i = 0; i < 30; i++)
            set(&b->run->ranks[r], i, LG_COL_other_sync_ns, 500000); /* half a percent */
    assert_false(cycles_of(b)->several);
}

/* ---- which clock, and when nothing is said ---- */

static void device_columns_of(struct bench *b, size_t rank, int64_t dur_ms)
{
    struct lg_rank *r = &b->run->ranks[rank];

    r->has_device = true;
    for (size_t i = 0; i < r->n; i++) {
        set_device(r, i, (struct stages){1, 2, 30, dur_ms - 40, 5, 2});
        set(r, i, LG_COL_gpu_backward_sync_ns, in_ns(10));
        set(r, i, LG_COL_device_wait_ns, in_ns(80));
    }
}

static void device_columns_with_a_device(void **state)
{
    struct bench *b = *state;
    struct lg_cycles *c;

    usual_run(b, 2, 5);
    device_columns_of(b, 0, 100);
    device_columns_of(b, 1, 110);
    c = cycles_of(b);
    assert_true(c->device);
    check_parts(c, 1, 0, (int64_t[]){0, 5, 2, 1, 2, 0, 30, 50, 0});
    check_parts(c, 1, 1, (int64_t[]){0, 5, 2, 1, 2, 0, 30, 60, 0});
}

static void host_tells_only_if_it_does_not_wait(void **state)
{
    struct bench *b = *state;

    usual_run(b, 2, 5);
    b->run->ranks[0].has_device = b->run->ranks[1].has_device = true;
    assert_string_equal(cycles_of(b)->abstain, LG_NO_DEVICE_SKEW); /* waits: not measured */
    for (int r = 0; r < 2; r++)
        for (size_t i = 0; i < 5; i++)
            set(&b->run->ranks[r], i, LG_COL_device_wait_ns, in_ns(r ? 5 : 4));
    assert_null(cycles_of(b)->abstain); /* 4.9 % of 102 ms */
    assert_false(b->cycles->device);
    for (size_t i = 0; i < 5; i++)
        set(&b->run->ranks[1], i, LG_COL_device_wait_ns, in_ns(6));
    assert_string_equal(cycles_of(b)->abstain, LG_NO_DEVICE_SKEW);
    b->run->ranks[1].has_device = false; /* the time waited tells that there is one */
    assert_string_equal(cycles_of(b)->abstain, LG_NO_DEVICE_SKEW);
}

static void device_times_of_one_rank_only(void **state)
{
    struct bench *b = *state;

    usual_run(b, 2, 5);
    device_columns_of(b, 0, 100);
    b->run->ranks[1].has_device = true;
    assert_string_equal(cycles_of(b)->abstain, LG_NO_DEVICE_SKEW);
}

static void time_in_collectives_not_measured(void **state)
{
    struct bench *b = *state;
    struct lg_scope scope = {.to = 9};
    const char *abstain;

    usual_run(b, 3, 10);
    for (size_t i = 0; i < 10; i++)
        set(&b->run->ranks[2], i, LG_COL_backward_sync_ns, LG_NULL);
    assert_string_equal(cycles_of(b)->abstain, LG_NO_SYNC);
    for (size_t i = 3; i < 10; i++)
        set(&b->run->ranks[2], i, LG_COL_backward_sync_ns, in_ns(10));
    assert_null(cycles_of(b)->abstain); /* rows before the first collective */
    assert_int_equal(b->cycles->n, 6);  /* of rows 4-9 */
    set(&b->run->ranks[2], 6, LG_COL_backward_sync_ns, LG_NULL);
    assert_null(cycles_of(b)->abstain);
    assert_int_equal(b->cycles->n, 6);
    assert_false(b->cycles->cycle[2].measured || b->cycles->cycle[3].measured);
    scope.aligned = b->aligned;
    assert_null(lg_arrivals_new(b->cycles, &scope, &abstain)); /* a hole in the scope */
    assert_string_equal(abstain, LG_NO_SYNC);
    scope.from = 7; /* of rows 8 and 9 */
    lg_arrivals_free(lg_arrivals_new(b->cycles, &scope, &abstain));
    assert_null(abstain);
}

static void one_rank_alone(void **state)
{
    struct bench *b = *state;

    usual_run(b, 1, 10);
    assert_string_equal(cycles_of(b)->abstain, LG_NO_OTHERS);
    assert_int_equal(b->cycles->n, 0);
}

static void forward_not_measured(void **state)
{
    struct bench *b = *state;

    usual_run(b, 3, 10);
    for (size_t i = 0; i < 10; i++)
        set(&b->run->ranks[2], i, LG_COL_forward_ns, LG_NULL);
    assert_string_equal(cycles_of(b)->abstain, LG_NO_SYNC);
}

static void leading_long_steps_are_warm_up(void **state)
{
    struct bench *b = *state;

    usual_run(b, 2, 61);
    for (int r = 0; r < 2; r++) {
        for (size_t i = 1; i < 9; i++) {
            set(&b->run->ranks[r], i, LG_COL_forward_ns, in_ns(300));
            set(&b->run->ranks[r], i, LG_COL_dur_ns, in_ns(372));
        }
    }
    assert_int_equal(cycles_of(b)->warm_up, 6); /* at most a tenth of 60 */
    assert_int_equal(b->cycles->n, 54);
    for (int r = 0; r < 2; r++)
        set(&b->run->ranks[r], 3, LG_COL_dur_ns, in_ns(110));
    assert_int_equal(cycles_of(b)->warm_up, 2); /* only leading ones */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(parts_come_from_two_rows),
        TEST(without_after_columns),
        TEST(local_steps_belong_to_the_next_sync),
        TEST(rows_of_one_rank_only_belong_to_its_cycle),
        TEST(no_cycle_over_a_gap),
        TEST(damaged_values_are_bounded),
        TEST(forward_and_backward_in_one),
        TEST(mutual_waiting),
        TEST(one_sync_in_two_stages_is_none),
        TEST(device_columns_with_a_device),
        TEST(host_tells_only_if_it_does_not_wait),
        TEST(device_times_of_one_rank_only),
        TEST(time_in_collectives_not_measured),
        TEST(one_rank_alone),
        TEST(forward_not_measured),
        TEST(leading_long_steps_are_warm_up),
    };

    return unit_run(tests);
}
