/*
 * test_aligned.c - which iterations the ranks have in common, and what a rank's row of one is.
 */
#include "tests/unit/unit.h"

#include <stdlib.h>

#include "aggregator/aligned.h"
#include "tests/unit/run_builder.h"

#define STEP ((struct stages){1, X, 30, 60, 5, 4})

struct bench {
    struct lg_run *run;
    struct lg_aligned *a;
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

static int teardown(void **state)
{
    struct bench *b = *state;

    lg_aligned_free(b->a);
    lg_run_free(b->run);
    free(b);
    return 0;
}

static struct lg_aligned *align(struct bench *b, int64_t first, int64_t last)
{
    lg_aligned_free(b->a);
    return b->a = lg_align(b->run, first, last);
}
#define ALIGN(b) align(b, LG_NULL, LG_NULL)

static void nothing(void **state)
{
    struct bench *b = *state;
    struct lg_aligned *a = ALIGN(b);

    assert_int_equal(a->n, 0);
    assert_int_equal(a->n_ranks, 0);
    add_rank(b->run, 0, 0, 0, STEP);
    a = ALIGN(b);
    assert_int_equal(a->n_ranks, 0);
    assert_int_equal(a->n_used, 0);
}

static void by_step_without_collectives(void **state)
{
    struct bench *b = *state;
    struct lg_aligned *a;

    add_rank(b->run, 0, 5, 20, STEP);
    add_rank(b->run, 1, 0, 20, STEP);
    a = ALIGN(b);
    assert_false(a->by_collective);
    assert_int_equal(a->n, 15);
    assert_int_equal(a->key[0], 5);
    assert_int_equal(a->row[0][0], 0);
    assert_int_equal(a->row[1][0], 5);
    assert_int_equal(a->left_out[0], LG_FLAG_first); /* the first row of rank 0 */
    assert_int_equal(a->n_used, 14);
}

static void by_collective(void **state)
{
    struct bench *b = *state;
    struct lg_aligned *a;

    /* rank 1 counts its steps from 100; the numbers of the collectives tell which is which */
    add_rank(b->run, 0, 0, 20, STEP);
    add_rank(b->run, 1, 100, 20, STEP);
    add_collectives(b->run, 20, 3);
    a = ALIGN(b);
    assert_true(a->by_collective);
    assert_int_equal(a->n, 20);
    assert_int_equal(a->key[1], 6);
    assert_int_equal(a->step[1], 1); /* for people: the lowest rank's numbers */
    assert_int_equal(a->n_misaligned, 0);
}

static void numbers_on_one_rank_only(void **state)
{
    struct bench *b = *state;

    add_rank(b->run, 0, 0, 20, STEP);
    add_collectives(b->run, 20, 3);
    add_rank(b->run, 1, 0, 20, STEP);
    assert_false(ALIGN(b)->by_collective);
    assert_int_equal(b->a->n, 20);
}

static void numbers_that_fall_are_not_used(void **state)
{
    struct bench *b = *state;

    add_rank(b->run, 0, 0, 20, STEP);
    add_rank(b->run, 1, 0, 20, STEP);
    add_collectives(b->run, 20, 1);
    b->run->ranks[1].value[LG_COL_collective_seq][10] = 3;
    assert_false(ALIGN(b)->by_collective);
    b->run->ranks[1].value[LG_COL_collective_seq][10] = LG_NULL; /* nor with holes */
    assert_false(ALIGN(b)->by_collective);
    b->run->ranks[1].value[LG_COL_collective_seq][10] = 11;
    b->run->ranks[1].value[LG_COL_collective_seq][0] = LG_NULL; /* before the first: all right */
    assert_true(ALIGN(b)->by_collective);
    assert_int_equal(b->a->n, 19);
}

static void no_collective_at_all(void **state)
{
    struct bench *b = *state;

    add_rank(b->run, 0, 0, 20, STEP);
    add_rank(b->run, 1, 0, 20, STEP);
    add_collectives(b->run, 0, 0); /* numbered 0 throughout: not all rows are one iteration */
    assert_false(ALIGN(b)->by_collective);
    assert_int_equal(b->a->n, 20);
}

static void one_rank_has_no_local_steps(void **state)
{
    struct bench *b = *state;

    add_rank(b->run, 0, 0, 20, STEP);
    add_collectives(b->run, 20, 1);
    b->run->ranks[0].value[LG_COL_collective_seq][7] = 7;
    assert_false(ALIGN(b)->by_collective);
    assert_int_equal(b->a->n, 20);
}

static void local_steps_belong_to_the_next_iteration(void **state)
{
    struct bench *b = *state;
    struct lg_aligned *a;
    struct lg_rank *rank;
    int64_t seq[] = {2, 4, 4, 4, 6, 8, 8};

    add_rank(b->run, 0, 0, 4, STEP);
    add_rank(b->run, 1, 0, 7, STEP);
    add_collectives(b->run, 20, 2);
    rank = &b->run->ranks[1];
    for (size_t i = 0; i < 7; i++)
        set(rank, i, LG_COL_collective_seq, seq[i]);
    a = ALIGN(b);
    assert_true(a->by_collective);
    assert_int_equal(a->n, 4); /* 2 4 6 8; the local row at the end belongs to none */
    assert_int_equal(lg_aligned_value(a, 1, 1, LG_COL_forward_ns), in_ns(30));
    assert_int_equal(lg_aligned_value(a, 1, 2, LG_COL_forward_ns), in_ns(90));
    assert_int_equal(lg_aligned_value(a, 0, 2, LG_COL_forward_ns), in_ns(30));
    assert_int_equal(lg_aligned_value(a, 1, 3, LG_COL_forward_ns), in_ns(30));
    set(rank, 3, LG_COL_forward_ns, LG_NULL);
    assert_int_equal(lg_aligned_value(a, 1, 2, LG_COL_forward_ns), LG_NULL);
    set(rank, 3, LG_COL_optimizer_ns, LG_NULL); /* an occurrence: skipped once */
    assert_int_equal(lg_aligned_value(a, 1, 2, LG_COL_optimizer_ns), in_ns(10));
    set(rank, 2, LG_COL_flags, LG_FLAG_compile); /* flags of a local step hold for all of it */
    a = ALIGN(b);
    assert_int_equal(a->left_out[2], LG_FLAG_compile);
    assert_int_equal(a->n_used, 2);
}

static void misaligned_rank_is_not_compared(void **state)
{
    struct bench *b = *state;
    struct lg_aligned *a;

    for (int r = 0; r < 4; r++)
        add_rank(b->run, r, 0, 20, STEP);
    add_collectives(b->run, 20, 10);
    for (size_t i = 0; i < 20; i++)
        b->run->ranks[2].value[LG_COL_collective_seq][i] += 3;
    a = ALIGN(b);
    assert_int_equal(a->n, 20);
    assert_int_equal(a->n_ranks, 3);
    assert_int_equal(a->rank[2]->rank, 3);
    assert_int_equal(a->n_misaligned, 1);
    assert_int_equal(a->misaligned[0]->rank, 2);
}

static void two_ranks_that_do_not_match(void **state)
{
    struct bench *b = *state;
    struct lg_aligned *a;

    add_rank(b->run, 0, 0, 20, STEP);
    add_rank(b->run, 1, 50, 20, STEP);
    a = ALIGN(b); /* nobody can say which of the two is wrong */
    assert_int_equal(a->n, 0);
    assert_int_equal(a->n_ranks, 2);
    assert_int_equal(a->n_misaligned, 0);
}

static void flagged_rows_of_any_rank_are_left_out(void **state)
{
    struct bench *b = *state;
    struct lg_aligned *a;

    add_rank(b->run, 0, 0, 20, STEP);
    add_rank(b->run, 1, 0, 20, STEP);
    set(&b->run->ranks[0], 3, LG_COL_flags, LG_FLAG_warm_up);
    set(&b->run->ranks[1], 4, LG_COL_flags, LG_FLAG_epoch_start | LG_FLAG_gap_input);
    set(&b->run->ranks[1], 5, LG_COL_flags, LG_FLAG_gap_input | LG_FLAG_has_eval);
    set(&b->run->ranks[0], 6, LG_COL_flags, LG_FLAG_compile);
    a = ALIGN(b);
    assert_int_equal(a->n, 20);
    assert_int_equal(a->n_used, 16);
    assert_int_equal(a->used[0], 1);
    assert_int_equal(a->used[2], 5);
    assert_int_equal(a->left_out[4], LG_FLAG_epoch_start);
}

static void range(void **state)
{
    struct bench *b = *state;
    struct lg_aligned *a;

    add_rank(b->run, 0, 0, 20, STEP);
    add_rank(b->run, 1, 0, 20, STEP);
    a = align(b, 4, 9);
    assert_int_equal(a->n, 6);
    assert_int_equal(a->step[0], 4);
    assert_int_equal(a->row[1][5], 9);
    assert_int_equal(a->before_range, 14);
    assert_int_equal(a->n_used, 6); /* the process' first row lies before */
    a = align(b, 30, LG_NULL);
    assert_int_equal(a->n, 0);
    assert_int_equal(a->before_range, 20);
    a = align(b, 9, 4);
    assert_int_equal(a->n, 0);
}

static void pending_device_times_end_the_range(void **state)
{
    struct bench *b = *state;
    struct lg_aligned *a;

    add_rank(b->run, 0, 0, 20, STEP);
    add_rank(b->run, 1, 0, 20, STEP);
    add_rank(b->run, 2, 0, 20, STEP); /* without a device: nothing to wait for */
    for (size_t i = 0; i < 20; i++) {
        set_device(&b->run->ranks[0], i, STEP);
        if (i < 17)
            set_device(&b->run->ranks[1], i, STEP);
    }
    b->run->ranks[1].value[LG_COL_gpu_dur_ns][4] = LG_NULL; /* a hole does not end it */
    a = ALIGN(b);
    assert_int_equal(a->n, 17);
    assert_int_equal(a->pending_device, 3);
}

static void device_times_that_stopped_do_not(void **state)
{
    struct bench *b = *state;

    add_rank(b->run, 0, 0, 200, STEP);
    for (size_t i = 0; i < 100; i++)
        set_device(&b->run->ranks[0], i, STEP);
    assert_int_equal(ALIGN(b)->n, 200);
    assert_int_equal(b->a->pending_device, 0);
}

static void policy_rows(void **state)
{
    struct bench *b = *state;
    struct lg_policy_row row;
    struct lg_rank *rank = add_rank(b->run, 3, 0, 2, (struct stages){7, 2, 30, 60, 5, 4});

    rank->has_device = true;
    set_device(rank, 1, (struct stages){6, 1, 31, 61, 6, 3});
    ALIGN(b);
    lg_aligned_policy_row(b->a, 0, 1, &row);
    assert_int_equal(row.rank, 3);
    assert_int_equal(row.step, 1);
    assert_int_equal(row.present, 0x3f);
    assert_int_equal(row.value[LG_METRIC_h2d][0], in_ns(2));
    assert_int_equal(row.value[LG_METRIC_backward][1], in_ns(61));
    assert_int_equal(row.value[LG_METRIC_optimizer_step][0], in_ns(5));
    assert_int_equal(row.value[LG_METRIC_traced_step_time][0], in_ns(101)); /* 108 - 7 */
    assert_int_equal(row.value[LG_METRIC_traced_step_time][1], in_ns(102));
    lg_aligned_policy_row(b->a, 0, 0, &row); /* no device time in step 0 */
    assert_int_equal(row.value[LG_METRIC_traced_step_time][1], LG_NULL);
    assert_int_equal(row.present, 0x3f);
}

static void h2d_of_the_policy(void **state)
{
    struct bench *b = *state;
    struct lg_policy_row row;
    struct lg_rank *rank = add_rank(b->run, 0, 0, 3, (struct stages){7, 0, 30, 60, 5, 4});

    ALIGN(b);
    lg_aligned_policy_row(b->a, 0, 1, &row); /* no device: no copy could be there */
    assert_int_equal(row.value[LG_METRIC_h2d][0], LG_NULL);
    assert_int_equal(row.present >> LG_METRIC_h2d & 1, 0);
    rank->has_device = true;
    lg_aligned_policy_row(b->a, 0, 1, &row);
    assert_int_equal(row.value[LG_METRIC_h2d][0], 0);
    set(rank, 1, LG_COL_h2d_copies, 0);
    lg_aligned_policy_row(b->a, 0, 1, &row); /* a step without a copy */
    assert_int_equal(row.value[LG_METRIC_h2d][0], LG_NULL);
    set(rank, 1, LG_COL_h2d_copies, 2);
    lg_aligned_policy_row(b->a, 0, 1, &row);
    assert_int_equal(row.value[LG_METRIC_h2d][0], 0);
    rank->has_device = false;
    b->run->imported = true; /* what an import says is taken as it is */
    lg_aligned_policy_row(b->a, 0, 1, &row);
    assert_int_equal(row.value[LG_METRIC_h2d][0], 0);
}

static void null_input_makes_traced_null(void **state)
{
    struct bench *b = *state;
    struct lg_policy_row row;

    add_rank(b->run, 0, 0, 2, STEP);
    set(&b->run->ranks[0], 1, LG_COL_input_wait_ns, LG_NULL);
    ALIGN(b);
    lg_aligned_policy_row(b->a, 0, 1, &row);
    assert_int_equal(row.value[LG_METRIC_traced_step_time][0], LG_NULL);
    assert_int_equal(row.value[LG_METRIC_forward][0], in_ns(30));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(nothing),
        TEST(by_step_without_collectives),
        TEST(by_collective),
        TEST(numbers_on_one_rank_only),
        TEST(numbers_that_fall_are_not_used),
        TEST(no_collective_at_all),
        TEST(one_rank_has_no_local_steps),
        TEST(local_steps_belong_to_the_next_iteration),
        TEST(misaligned_rank_is_not_compared),
        TEST(two_ranks_that_do_not_match),
        TEST(flagged_rows_of_any_rank_are_left_out),
        TEST(range),
        TEST(pending_device_times_end_the_range),
        TEST(device_times_that_stopped_do_not),
        TEST(policy_rows),
        TEST(h2d_of_the_policy),
        TEST(null_input_makes_traced_null),
    };

    return unit_run(tests);
}
