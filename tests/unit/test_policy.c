/*
 * test_policy.c - the corners of the published policy that recorded answers do not pin down, one
 * test per sentence of the rules. Times are in ms; X is "absent".
 */
#include "tests/unit/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/policy.h"
#include "aggregator/rows.h"

#define X INT64_MAX

/* A window under construction and its answer. */
struct bench {
    struct lg_policy_row row[4096];
    size_t n;
    int32_t expected[64];
    struct lg_policy_input input;
    struct lg_policy_result result;
};

static int setup(void **state)
{
    struct bench *b = calloc(1, sizeof(*b));

    if (!b)
        return -1;
    b->input.window = 1000;
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    struct bench *b = *state;

    lg_policy_result_free(&b->result);
    free(b);
    return 0;
}

static int64_t ns(int64_t ms)
{
    return ms == X ? LG_NULL : ms * 1000000;
}

/* One row on the CPU clock; the order is that of the metrics: input, h2d, forward, backward,
 * optimizer, traced. Returns it, so that a test can change it. */
static struct lg_policy_row *add(struct bench *b, int rank, int step, const int64_t ms[6])
{
    struct lg_policy_row *row = &b->row[b->n];

    assert_true(b->n < sizeof(b->row) / sizeof(b->row[0]));
    *row = (struct lg_policy_row){.id = (int64_t)b->n, .rank = rank, .step = step};
    for (int m = 0; m < LG_METRIC_COUNT; m++) {
        row->value[m][0] = ns(ms[m]);
        row->value[m][1] = LG_NULL;
        if (ms[m] != X)
            row->present |= (uint8_t)(1u << m);
    }
    b->n++;
    return row;
}

#define ROW(...) ((const int64_t[6]){__VA_ARGS__})

/* The same row in steps 1..n. */
static void repeat(struct bench *b, int rank, int n, const int64_t ms[6])
{
    for (int step = 1; step <= n; step++)
        add(b, rank, step, ms);
}

/* The GPU clock gets the CPU's values. */
static void both_clocks(struct bench *b)
{
    for (size_t i = 0; i < b->n; i++)
        for (int m = 0; m < LG_METRIC_COUNT; m++)
            b->row[i].value[m][1] = b->row[i].value[m][0];
}

static void expect_ranks(struct bench *b, size_t n, const int32_t *ranks)
{
    memcpy(b->expected, ranks, n * sizeof(*ranks));
    b->input.n_expected = n;
}
#define EXPECT_RANKS(b, ...)                                                                       \
    expect_ranks(b, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t), (int32_t[]){__VA_ARGS__})

static const struct lg_policy_result *run(struct bench *b)
{
    b->input.rows = b->row;
    b->input.n_rows = b->n;
    b->input.expected = b->expected;
    lg_policy_result_free(&b->result);
    lg_policy_run(&b->input, &b->result);
    assert_true(b->result.n_issues >= 1 && b->result.n_issues <= 4);
    assert_int_equal(b->result.kind, b->result.issue[0].kind);
    assert_int_equal(b->result.severity, b->result.issue[0].severity);
    return &b->result;
}

#define assert_kind(result, expected)                                                              \
    assert_string_equal(lg_kind_name((result)->kind), lg_kind_name(expected))

static void assert_close(double have, double want)
{
    if (!(fabs(have - want) <= 1e-12 * fmax(1, fabs(want)))) {
        print_error("have %.17g, want %.17g\n", have, want);
        fail();
    }
}

#define CALM ROW(1, X, 30, 60, 5, 96) /* compute 95 of 97: nothing but COMPUTE_BOUND */

#define QUIET ROW(8, X, 30, 50, 5, 92) /* of 100: no share is a finding */

/* ---- nothing to judge ---- */

static void no_rows(void **state)
{
    struct bench *b = *state;
    const struct lg_policy_result *r = run(b);

    assert_kind(r, LG_NO_DATA);
    assert_int_equal(r->steps_used, 0);
    assert_int_equal(r->clock, LG_CLOCK_CPU);
    assert_false(r->has_worst_rank);
    assert_false(r->issue[0].has_rank);
    for (int s = 0; s < LG_SHARE_COUNT; s++)
        assert_true(isnan(r->share[s]));
}

static void no_rows_of_declared_ranks(void **state)
{
    struct bench *b = *state;
    const struct lg_policy_result *r;

    EXPECT_RANKS(b, 0, 1, 1);
    r = run(b);
    assert_kind(r, LG_INCOMPLETE_DATA);
    assert_int_equal(r->universe, 2); /* a rank declared twice is one rank */
    for (int m = 0; m < LG_METRIC_COUNT; m++) {
        assert_int_equal(r->missing >> m & 1, m != LG_METRIC_h2d);
        assert_int_equal(r->with_metric[m], 0);
    }
}

static void no_common_step(void **state)
{
    struct bench *b = *state;
    const struct lg_policy_result *r;

    add(b, 0, 1, CALM);
    add(b, 1, 2, CALM);
    both_clocks(b);
    r = run(b);
    assert_kind(r, LG_INCOMPLETE_DATA);
    assert_int_equal(r->clock, LG_CLOCK_CPU);
    assert_int_equal(r->universe, 2);
    assert_int_equal(r->with_metric[LG_METRIC_forward], 0);
    assert_false(r->has_worst_rank);
}

static void one_step_is_warm_up(void **state)
{
    struct bench *b = *state;
    const struct lg_policy_result *r;

    add(b, 0, 1, ROW(50, X, 30, 60, 5, 96));
    add(b, 1, 1, ROW(80, X, 30, 60, 5, 96));
    r = run(b);
    assert_kind(r, LG_WARMUP);
    assert_true(r->has_worst_rank);
    assert_int_equal(r->worst_rank, 1);
    assert_false(isnan(r->share[LG_SHARE_input_wait])); /* computed all the same */
}

static void window_below_one_is_one_step(void **state)
{
    struct bench *b = *state;

    repeat(b, 0, 5, CALM);
    for (int window = 1; window >= -3; window--) {
        b->input.window = window;
        assert_kind(run(b), LG_WARMUP);
        assert_int_equal(b->result.steps_used, 1);
        assert_int_equal(b->result.first_step, 5);
    }
    b->input.window = INT64_MIN;
    assert_int_equal(run(b)->steps_used, 1);
    b->input.window = INT64_MAX;
    assert_int_equal(run(b)->steps_used, 5);
}

static void no_step_time(void **state)
{
    struct bench *b = *state;
    const struct lg_policy_result *r;

    repeat(b, 0, 30, ROW(X, X, 30, 60, 5, 96));
    repeat(b, 1, 30, ROW(X, X, 30, 60, 5, 96));
    r = run(b);
    assert_kind(r, LG_INCOMPLETE_DATA);
    assert_int_equal(r->missing, 1 << LG_METRIC_input_wait);
    assert_false(r->has_worst_rank);
    assert_false(r->issue[0].has_rank);
    assert_true(isnan(r->share[LG_SHARE_compute]));
}

static void no_step_time_though_each_signal_is_somewhere(void **state)
{
    struct bench *b = *state;
    const struct lg_policy_result *r;

    /* rank 0 of a universe of one has input, an undeclared one the rest: none is missing */
    EXPECT_RANKS(b, 0);
    repeat(b, 0, 30, ROW(1, X, 30, 60, 5, X));
    repeat(b, 1, 30, ROW(X, X, 30, 60, 5, 96));
    r = run(b);
    assert_kind(r, LG_NO_DATA);
    assert_false(r->has_worst_rank);
}

static void no_duration(void **state)
{
    struct bench *b = *state;
    const struct lg_policy_result *r;

    repeat(b, 0, 30, ROW(0, 0, 0, 0, 0, 0));
    repeat(b, 1, 30, ROW(0, 0, 0, 0, 0, 0));
    r = run(b);
    assert_kind(r, LG_NO_DATA);
    assert_true(r->has_worst_rank);
    assert_int_equal(r->worst_rank, 0);
}

static void negative_duration(void **state)
{
    struct bench *b = *state;
    const struct lg_policy_result *r;

    repeat(b, 0, 30, ROW(1, X, 30, 60, 5, -96));
    repeat(b, 1, 30, ROW(1, X, 30, 60, 5, -50));
    r = run(b);
    assert_kind(r, LG_NO_DATA);
    assert_int_equal(r->worst_rank, 1);
}

/* The gates are asked in this order: duration before the number of steps. */
static void no_duration_comes_before_warm_up(void **state)
{
    struct bench *b = *state;

    add(b, 0, 1, ROW(0, 0, 0, 0, 0, 0));
    assert_kind(run(b), LG_NO_DATA);
}

/* ---- window and alignment ---- */

static void larger_id_wins(void **state)
{
    struct bench *b = *state;
    struct lg_policy_row *old;

    add(b, 0, 1, CALM);
    old = add(b, 0, 2, ROW(500, X, 1, 1, 1, 3));
    add(b, 0, 2, CALM);
    assert_kind(run(b), LG_COMPUTE_BOUND);
    old->id = 99;
    assert_kind(run(b), LG_INPUT_BOUND);
    assert_int_equal(b->result.steps_used, 2);
}

static void last_common_steps(void **state)
{
    struct bench *b = *state;

    repeat(b, 0, 40, CALM);
    for (int step = 5; step <= 50; step += 2)
        add(b, 1, step, CALM);
    b->input.window = 3;
    run(b);
    assert_int_equal(b->result.steps_used, 3);
    assert_int_equal(b->result.first_step, 35);
    assert_int_equal(b->result.last_step, 39);
}

static void order_of_rows_does_not_matter(void **state)
{
    struct bench *b = *state;
    struct lg_policy_result first;
    unsigned seed = 7;

    for (int step = 1; step <= 40; step++)
        for (int rank = 0; rank < 5; rank++)
            add(b, rank, step,
                ROW(1 + rank * (step % 3), step % 4 ? X : 3, 30 + step % 7, 60 - rank, 5, 120));
    run(b);
    first = b->result;
    b->result = (struct lg_policy_result){0};
    for (size_t i = b->n - 1; i > 0; i--) {
        size_t k = (size_t)rand_r(&seed) % (i + 1);
        struct lg_policy_row row = b->row[i];

        b->row[i] = b->row[k];
        b->row[k] = row;
    }
    run(b);
    assert_int_equal(b->result.n_issues, first.n_issues);
    assert_memory_equal(b->result.share, first.share, sizeof(first.share));
    assert_memory_equal(b->result.ranks, first.ranks, first.n_ranks * sizeof(*first.ranks));
    lg_policy_result_free(&first);
}

static void undeclared_ranks_take_part(void **state)
{
    struct bench *b = *state;
    const struct lg_policy_result *r;

    EXPECT_RANKS(b, 0, 1);
    repeat(b, 0, 30, ROW(1, X, 30, 60, 5, 96));
    repeat(b, 1, 30, ROW(1, X, 30, 60, 5, 96));
    repeat(b, 7, 30, ROW(41, X, 30, 20, 5, 56));
    r = run(b);
    assert_kind(r, LG_INPUT_STRAGGLER);
    assert_int_equal(r->worst_rank, 7);
    assert_int_equal(r->universe, 2);
}

static void undeclared_ranks_limit_the_steps(void **state)
{
    struct bench *b = *state;

    EXPECT_RANKS(b, 0, 1);
    repeat(b, 0, 30, CALM);
    repeat(b, 1, 30, CALM);
    add(b, 7, 3, CALM);
    assert_kind(run(b), LG_WARMUP);
    assert_int_equal(b->result.first_step, 3);
}

static void declared_rank_without_rows(void **state)
{
    struct bench *b = *state;
    const struct lg_policy_result *r;

    EXPECT_RANKS(b, 2, 0, 1); /* in any order */
    repeat(b, 0, 30, CALM);
    repeat(b, 2, 30, CALM);
    r = run(b);
    assert_int_equal(r->steps_used, 30);
    assert_kind(r, LG_COMPUTE_BOUND); /* a finding stands, ... */
    b->n = 0;
    repeat(b, 0, 30, QUIET);
    repeat(b, 2, 30, QUIET);
    b->row[30].value[LG_METRIC_traced_step_time][0]++;
    r = run(b);
    assert_kind(r, LG_INCOMPLETE_DATA); /* ... but "nothing found" does not */
    assert_int_equal(r->with_metric[LG_METRIC_forward], 2);
    assert_int_equal(r->universe, 3);
    assert_true(r->has_worst_rank);
    assert_int_equal(r->worst_rank, 2);
}

/* ---- clock and availability ---- */

static void gpu_clock(void **state)
{
    struct bench *b = *state;

    repeat(b, 0, 30, CALM);
    both_clocks(b);
    assert_int_equal(run(b)->clock, LG_CLOCK_GPU);
    b->row[29].value[LG_METRIC_backward][1] = LG_NULL;
    assert_int_equal(run(b)->clock, LG_CLOCK_CPU);
}

static void present_without_values_is_the_cpu_clock(void **state)
{
    struct bench *b = *state;

    repeat(b, 0, 30, CALM);
    both_clocks(b);
    b->row[3].present |= 1 << LG_METRIC_h2d;
    assert_int_equal(run(b)->clock, LG_CLOCK_CPU);
    b->row[3].present &= (uint8_t) ~(1 << LG_METRIC_h2d);
    assert_int_equal(run(b)->clock, LG_CLOCK_GPU);
}

static void only_window_steps_decide_the_clock(void **state)
{
    struct bench *b = *state;

    repeat(b, 0, 30, CALM);
    both_clocks(b);
    b->row[9].value[LG_METRIC_input_wait][1] = LG_NULL; /* step 10 */
    b->input.window = 20;
    assert_int_equal(run(b)->clock, LG_CLOCK_GPU);
    b->input.window = 21;
    assert_int_equal(run(b)->clock, LG_CLOCK_CPU);
}

static void gpu_clock_without_forward(void **state)
{
    struct bench *b = *state;

    repeat(b, 0, 30, ROW(1, X, X, X, X, 96)); /* not there: no obstacle */
    both_clocks(b);
    assert_int_equal(run(b)->clock, LG_CLOCK_GPU);
    assert_kind(&b->result, LG_INCOMPLETE_DATA);
}

static void cpu_clock_does_not_borrow_gpu_values(void **state)
{
    struct bench *b = *state;

    repeat(b, 0, 30, CALM);
    both_clocks(b);
    b->row[0].value[LG_METRIC_forward][0] = LG_NULL;
    b->row[1].value[LG_METRIC_forward][1] = LG_NULL;
    run(b);
    assert_int_equal(b->result.clock, LG_CLOCK_CPU);
    assert_true(isnan(b->result.ranks[0].mean[LG_METRIC_forward]));
}

static void occurrences_count_zero_where_absent(void **state)
{
    struct bench *b = *state;
    const struct lg_policy_rank *r;

    repeat(b, 0, 20, ROW(1, X, 30, 60, X, 96));
    b->row[4].value[LG_METRIC_h2d][0] = ns(40);
    b->row[5].value[LG_METRIC_optimizer_step][0] = ns(10);
    r = run(b)->ranks;
    assert_close(r->mean[LG_METRIC_h2d], 2);
    assert_close(r->mean[LG_METRIC_optimizer_step], 0.5);
    assert_close(r->compute, 90.5);
    /* per step: 18 x 6, 1 x 0 (96 - 40 - 90 < 0), 1 x 0 */
    assert_close(r->residual, 18 * 6 / 20.0);
}

static void every_step_signals_need_every_step(void **state)
{
    struct bench *b = *state;

    repeat(b, 0, 20, CALM);
    b->row[7].value[LG_METRIC_backward][0] = LG_NULL;
    run(b);
    assert_true(isnan(b->result.ranks[0].mean[LG_METRIC_backward]));
    assert_true(isnan(b->result.ranks[0].compute));
    assert_true(isnan(b->result.ranks[0].residual));
    assert_false(isnan(b->result.ranks[0].step_time));
}

static void zero_is_a_measurement(void **state)
{
    struct bench *b = *state;
    const struct lg_policy_result *r;

    repeat(b, 0, 30, ROW(0, 0, 30, 60, 5, 96));
    r = run(b);
    assert_close(r->share[LG_SHARE_input_wait], 0);
    assert_close(r->share[LG_SHARE_h2d], 0);
    assert_kind(r, LG_COMPUTE_BOUND);
}

static void residual_without_h2d(void **state)
{
    struct bench *b = *state;

    repeat(b, 0, 30, ROW(1, X, 30, 40, 5, 96));
    assert_close(run(b)->ranks[0].residual, 21);
    for (size_t i = 0; i < b->n; i++)
        b->row[i].value[LG_METRIC_h2d][0] = ns(21);
    assert_close(run(b)->ranks[0].residual, 0);
}

/* ---- shares ---- */

static void shares_are_medians(void **state)
{
    struct bench *b = *state;

    repeat(b, 0, 30, ROW(10, X, 30, 60, 0, 90));
    repeat(b, 1, 30, ROW(20, X, 30, 50, 0, 80));
    repeat(b, 2, 30, ROW(40, X, 30, 30, 0, 60));
    repeat(b, 3, 30, ROW(90, X, X, 10, 0, 10));
    run(b);
    assert_close(b->result.share[LG_SHARE_input_wait], 0.3); /* (0.2 + 0.4) / 2 */
    assert_close(b->result.share[LG_SHARE_compute], 0.8);    /* of the three that have it */
    assert_true(isnan(b->result.share[LG_SHARE_h2d]));
}

static void ranks_without_duration_have_no_share(void **state)
{
    struct bench *b = *state;

    repeat(b, 0, 30, ROW(0, X, 0, 0, 0, 0));
    repeat(b, 1, 30, ROW(10, X, 30, 60, 0, 90));
    repeat(b, 2, 30, ROW(20, X, 30, 50, 0, 80));
    run(b);
    assert_close(b->result.share[LG_SHARE_input_wait], 0.15);
}

/* ---- the straggler rule ---- */

static void victim_is_the_upper_median(void **state)
{
    struct bench *b = *state;
    const struct lg_policy_straggler *s = &b->result.straggler;

    repeat(b, 0, 30, ROW(1, X, 30, 60, 5, 96));
    repeat(b, 1, 30, ROW(31, X, 30, 30, 5, 66));
    repeat(b, 2, 30, ROW(11, X, 30, 50, 5, 86));
    repeat(b, 3, 30, ROW(1, X, 30, 62, 5, 98));
    assert_kind(run(b), LG_INPUT_STRAGGLER); /* backward 30 50 60 62: element 2 */
    assert_int_equal(s->culprit, 1);
    assert_int_equal(s->victim, 0);
    assert_close(s->visible_cost_ms, 30);
    assert_close(s->step_time_ms, 97);
    assert_close(b->result.issue[0].score, 30 / 97.0);
}

static void ties_go_to_the_lowest_rank(void **state)
{
    struct bench *b = *state;

    repeat(b, 5, 30, ROW(41, X, 30, 20, 5, 56));
    repeat(b, 3, 30, ROW(41, X, 30, 20, 5, 56));
    repeat(b, 4, 30, ROW(1, X, 30, 60, 5, 96));
    repeat(b, 6, 30, ROW(1, X, 30, 60, 5, 96));
    assert_kind(run(b), LG_INPUT_STRAGGLER);
    assert_int_equal(b->result.straggler.culprit, 3);
    assert_int_equal(b->result.straggler.victim, 4);
    assert_int_equal(b->result.worst_rank, 3);
    assert_int_equal(b->result.n_issues, 2);
    assert_int_equal(b->result.issue[1].kind, LG_INPUT_BOUND);
    assert_int_equal(b->result.issue[1].rank, 3);
}

static void thresholds_belong_to_the_finding(void **state)
{
    struct bench *b = *state;

    repeat(b, 0, 30, ROW(10, X, 20, 60, 10, 90));
    repeat(b, 1, 30, ROW(10, X, 20, 50, 10, 90));
    assert_kind(run(b), LG_STRAGGLER);
    assert_close(b->result.issue[0].score, 0.1);
    assert_int_equal(b->result.severity, LG_SEVERITY_WARNING);
    assert_int_equal(b->result.n_issues, 2); /* input share 0.1 is one, too */
    for (int i = 0; i < 30; i++)
        b->row[30 + i].value[LG_METRIC_backward][0] = ns(40);
    assert_kind(run(b), LG_STRAGGLER);
    assert_int_equal(b->result.severity, LG_SEVERITY_CRITICAL);
    for (int i = 0; i < 30; i++)
        b->row[30 + i].value[LG_METRIC_backward][0] = ns(50) + 1;
    assert_kind(run(b), LG_INPUT_BOUND);
    assert_int_equal(b->result.n_issues, 1);
}

static void one_rank_is_never_a_straggler(void **state)
{
    struct bench *b = *state;
    const struct lg_policy_result *r;

    EXPECT_RANKS(b, 0); /* a universe of one, though another rank has rows */
    repeat(b, 0, 30, ROW(41, X, 30, 20, 5, 56));
    repeat(b, 1, 30, ROW(1, X, 30, 60, 5, 98));
    r = run(b);
    assert_kind(r, LG_INPUT_BOUND);
    assert_false(r->has_worst_rank);
    assert_true(r->issue[0].has_rank); /* the finding keeps its rank */
    assert_int_equal(r->issue[0].rank, 0);
    assert_close(r->step_time_ms, 99); /* the largest, not the median */
    EXPECT_RANKS(b, 0, 1);
    assert_kind(run(b), LG_INPUT_STRAGGLER);
    b->input.n_expected = 0; /* an empty list declares nobody: the universe is what has rows */
    assert_kind(run(b), LG_INPUT_STRAGGLER);
}

static void declared_but_alone(void **state)
{
    struct bench *b = *state;
    const struct lg_policy_result *r;

    EXPECT_RANKS(b, 0, 1, 2);
    repeat(b, 0, 30, QUIET);
    r = run(b);
    assert_kind(r, LG_INCOMPLETE_DATA);
    assert_false(r->has_worst_rank);
    assert_false(r->issue[0].has_rank);
    assert_int_equal(r->with_metric[LG_METRIC_backward], 1);
}

static void single_rank_keeps_its_rank_where_the_rules_say_so(void **state)
{
    struct bench *b = *state;

    repeat(b, 4, 30, ROW(1, 40, 20, 30, 5, 96));
    both_clocks(b);
    assert_kind(run(b), LG_H2D_BOUND);
    assert_true(b->result.has_worst_rank);
    assert_int_equal(b->result.worst_rank, 4);
    b->input.window = 1;
    assert_kind(run(b), LG_WARMUP);
    assert_true(b->result.has_worst_rank);
}

static void cause_needs_most_of_the_cost(void **state)
{
    struct bench *b = *state;
    const struct lg_policy_straggler *s = &b->result.straggler;

    repeat(b, 0, 30, ROW(1, 0, 30, 60, 5, 120));
    repeat(b, 1, 30, ROW(32, 9, 30, 20, 5, 120)); /* 31 and 9 of 40 */
    assert_kind(run(b), LG_STRAGGLER);
    assert_int_equal(s->component, LG_COMPONENT_sync_or_unattributed);
    assert_close(s->coverage[LG_COMPONENT_input], 31 / 40.0);
    assert_close(s->coverage[LG_COMPONENT_h2d], 9 / 40.0);
    assert_close(s->coverage[LG_COMPONENT_compute], 0);
    for (int i = 0; i < 30; i++)
        b->row[30 + i].value[LG_METRIC_input_wait][0] = ns(33); /* 32 of 40 */
    assert_kind(run(b), LG_INPUT_STRAGGLER);
    assert_close(s->coverage[LG_COMPONENT_input], 0.8);
}

static void equal_coverage_goes_by_order(void **state)
{
    struct bench *b = *state;

    repeat(b, 0, 30, ROW(1, 1, 10, 60, 5, 96));
    repeat(b, 1, 30, ROW(1, 61, 90, 20, 5, 196)); /* both more than the cost: 1 and 1 */
    assert_kind(run(b), LG_H2D_STRAGGLER);
    for (int i = 0; i < 30; i++)
        b->row[30 + i].value[LG_METRIC_input_wait][0] = ns(100);
    assert_kind(run(b), LG_INPUT_STRAGGLER);
}

static void components_that_are_not_available_are_left_out(void **state)
{
    struct bench *b = *state;
    const struct lg_policy_straggler *s = &b->result.straggler;

    repeat(b, 0, 30, ROW(1, X, X, 60, 5, 96));
    repeat(b, 1, 30, ROW(1, 39, 69, 20, 5, 96));
    assert_kind(run(b), LG_STRAGGLER);
    assert_close(s->excess_ms[LG_COMPONENT_input], 0);
    assert_true(isnan(s->excess_ms[LG_COMPONENT_h2d]));
    assert_true(isnan(s->coverage[LG_COMPONENT_h2d]));
    assert_true(isnan(s->excess_ms[LG_COMPONENT_compute]));
}

static void forward_of_zero_is_no_excess(void **state)
{
    struct bench *b = *state;

    repeat(b, 0, 30, ROW(1, X, 0, 60, 5, 96));
    repeat(b, 1, 30, ROW(1, X, 40, 20, 5, 96));
    assert_kind(run(b), LG_STRAGGLER);
    assert_close(b->result.straggler.excess_ms[LG_COMPONENT_compute], 0);
    for (int i = 0; i < 30; i++)
        b->row[i].value[LG_METRIC_forward][0] = 1;
    assert_kind(run(b), LG_COMPUTE_STRAGGLER);
}

static void fsdp_compares_forward_and_backward(void **state)
{
    struct bench *b = *state;
    const struct lg_policy_straggler *s = &b->result.straggler;

    repeat(b, 0, 30, ROW(1, X, 50, 60, 5, 120));
    repeat(b, 1, 30, ROW(61, X, 10, 40, 5, 60));
    b->input.strategy = LG_FSDP;
    assert_kind(run(b), LG_INPUT_STRAGGLER);
    assert_string_equal(s->visible_metric, "forward_backward");
    assert_close(s->visible_cost_ms, 60);
    assert_close(s->excess_ms[LG_COMPONENT_compute], 0);
    assert_close(s->coverage[LG_COMPONENT_compute], 0);
    assert_int_equal(b->result.severity, LG_SEVERITY_WARNING); /* capped, though the score is ... */
    assert_true(b->result.issue[0].score > 0.2);
    for (int i = 0; i < 30; i++)
        b->row[i].value[LG_METRIC_forward][0] = 0;
    run(b); /* rank 0 has no forward: nobody to compare with */
    assert_false(lg_kind_is_straggler(b->result.kind));
}

static void few_steps_cap_at_warning(void **state)
{
    struct bench *b = *state;

    repeat(b, 0, 20, ROW(50, X, 10, 30, 5, 50));
    assert_kind(run(b), LG_INPUT_BOUND);
    assert_int_equal(b->result.severity, LG_SEVERITY_CRITICAL);
    b->input.window = 19;
    assert_kind(run(b), LG_INPUT_BOUND);
    assert_int_equal(b->result.severity, LG_SEVERITY_WARNING);
    assert_close(b->result.issue[0].score, 0.5);
}

static void fewer_than_two_eligible(void **state)
{
    struct bench *b = *state;
    const struct lg_policy_result *r;

    /* backward is 0 on rank 1, which counts as available but can't be compared */
    repeat(b, 0, 30, QUIET);
    repeat(b, 1, 30, ROW(8, X, 80, 0, 5, 92));
    r = run(b);
    assert_kind(r, LG_BALANCED); /* nothing is missing: every rank has every signal */
    for (int i = 0; i < 30; i++)
        b->row[30 + i].value[LG_METRIC_backward][0] = LG_NULL;
    r = run(b);
    assert_kind(r, LG_INCOMPLETE_DATA);
    assert_int_equal(r->missing, 1 << LG_METRIC_backward);
    assert_int_equal(r->with_metric[LG_METRIC_backward], 1);
}

/* ---- bound rules, order ---- */

static void h2d_needs_the_gpu_clock(void **state)
{
    struct bench *b = *state;

    repeat(b, 0, 30, ROW(1, 40, 20, 30, 5, 96));
    repeat(b, 1, 30, ROW(1, 50, 20, 30, 5, 105));
    assert_kind(run(b), LG_BALANCED);
    assert_true(b->result.share[LG_SHARE_h2d] > 0.4);
    both_clocks(b);
    assert_kind(run(b), LG_H2D_BOUND);
    assert_int_equal(b->result.worst_rank, 1);
}

static void compute_bound_yields(void **state)
{
    struct bench *b = *state;

    /* compute share of a median over ranks can be 0.9 while the residual's is 0.1 */
    repeat(b, 0, 30, ROW(0, X, 30, 50, 10, 100));
    assert_kind(run(b), LG_RESIDUAL_HEAVY);
    assert_int_equal(b->result.n_issues, 1);
    for (int i = 0; i < 30; i++)
        b->row[i].value[LG_METRIC_traced_step_time][0] -= 1;
    assert_kind(run(b), LG_COMPUTE_BOUND);
    assert_true(isnan(b->result.issue[0].score));
    assert_true(b->result.issue[0].share >= 0.9);
    b->n = 0;
    repeat(b, 0, 30, ROW(5, X, 30, 50, 10, 95)); /* 0.9 is enough */
    assert_kind(run(b), LG_COMPUTE_BOUND);
}

static void residual_needs_the_traced_time(void **state)
{
    struct bench *b = *state;

    repeat(b, 0, 30, QUIET);
    repeat(b, 1, 30, ROW(8, X, 30, 50, 5, X));
    run(b);
    assert_true(isnan(b->result.ranks[1].residual));
    assert_true(isnan(b->result.ranks[1].step_time));
    assert_close(b->result.ranks[1].compute, 85);
}

static void fsdp_needs_forward(void **state)
{
    struct bench *b = *state;

    repeat(b, 0, 30, QUIET);
    repeat(b, 1, 30, ROW(8, X, X, 50, 5, 92));
    assert_kind(run(b), LG_BALANCED); /* ddp: backward is enough to compare them */
    b->input.strategy = LG_FSDP;
    assert_kind(run(b), LG_INCOMPLETE_DATA);
    assert_int_equal(b->result.missing, 1 << LG_METRIC_forward);
    assert_int_equal(b->result.with_metric[LG_METRIC_forward], 1);
}

static void worst_ranks_of_bound_kinds(void **state)
{
    struct bench *b = *state;

    repeat(b, 0, 30, ROW(20, X, 10, 30, 5, 60));
    repeat(b, 1, 30, ROW(22, X, 10, 30, 5, 58));
    repeat(b, 2, 30, ROW(90, X, 10, 30, 5, X)); /* no step time: does not count */
    repeat(b, 3, 30, ROW(21, X, 10, 30, 5, 65));
    run(b);
    assert_kind(&b->result, LG_INPUT_BOUND); /* 0.25 before 0.25 - something, both critical */
    assert_int_equal(b->result.worst_rank, 1);
    assert_int_equal(b->result.issue[1].kind, LG_RESIDUAL_HEAVY);
    assert_int_equal(b->result.issue[1].rank, 3);
}

static void order_is_severity_score_rank_kinds(void **state)
{
    struct bench *b = *state;

    /* straggler 0.12, input 0.30: the bound kind is the graver one */
    repeat(b, 0, 30, ROW(30, X, 20, 40, 10, 70));
    repeat(b, 1, 30, ROW(42, X, 20, 28, 10, 58));
    run(b);
    assert_kind(&b->result, LG_INPUT_BOUND);
    assert_int_equal(b->result.issue[1].kind, LG_INPUT_STRAGGLER);
    assert_int_equal(b->result.worst_rank, 1);
    /* equal scores: the rank kind first, though input's worst rank is the other one */
    b->n = 0;
    repeat(b, 0, 30, ROW(12, X, 20, 40, 10, 88));
    repeat(b, 1, 30, ROW(12, X, 20, 28, 10, 88));
    run(b);
    assert_kind(&b->result, LG_RESIDUAL_HEAVY);
    assert_int_equal(b->result.issue[1].kind, LG_STRAGGLER);
    assert_int_equal(b->result.issue[2].kind, LG_INPUT_BOUND);
    assert_close(b->result.issue[1].score, b->result.issue[2].score);
}

static void names(void **state)
{
    (void)state;
    assert_int_equal(lg_strategy_parse("fsdp"), LG_FSDP);
    assert_int_equal(lg_strategy_parse(" \tFsDp\n"), LG_FSDP);
    assert_int_equal(lg_strategy_parse("fsdp2"), LG_DDP);
    assert_int_equal(lg_strategy_parse(""), LG_DDP);
    assert_int_equal(lg_strategy_parse(NULL), LG_DDP);
    assert_string_equal(lg_kind_name(LG_HANG), "HANG");
    assert_string_equal(lg_metric_name(LG_METRIC_optimizer_step), "optimizer_step");
    assert_string_equal(lg_component_name(LG_COMPONENT_sync_or_unattributed),
                        "sync_or_unattributed");
    assert_string_equal(lg_severity_name(LG_SEVERITY_CRITICAL), "critical");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(no_rows),
        TEST(no_rows_of_declared_ranks),
        TEST(no_common_step),
        TEST(one_step_is_warm_up),
        TEST(window_below_one_is_one_step),
        TEST(no_step_time),
        TEST(no_step_time_though_each_signal_is_somewhere),
        TEST(no_duration),
        TEST(negative_duration),
        TEST(no_duration_comes_before_warm_up),
        TEST(larger_id_wins),
        TEST(last_common_steps),
        TEST(order_of_rows_does_not_matter),
        TEST(undeclared_ranks_take_part),
        TEST(undeclared_ranks_limit_the_steps),
        TEST(declared_rank_without_rows),
        TEST(gpu_clock),
        TEST(present_without_values_is_the_cpu_clock),
        TEST(only_window_steps_decide_the_clock),
        TEST(gpu_clock_without_forward),
        TEST(cpu_clock_does_not_borrow_gpu_values),
        TEST(occurrences_count_zero_where_absent),
        TEST(every_step_signals_need_every_step),
        TEST(zero_is_a_measurement),
        TEST(residual_without_h2d),
        TEST(shares_are_medians),
        TEST(ranks_without_duration_have_no_share),
        TEST(victim_is_the_upper_median),
        TEST(ties_go_to_the_lowest_rank),
        TEST(thresholds_belong_to_the_finding),
        TEST(one_rank_is_never_a_straggler),
        TEST(declared_but_alone),
        TEST(single_rank_keeps_its_rank_where_the_rules_say_so),
        TEST(cause_needs_most_of_the_cost),
        TEST(equal_coverage_goes_by_order),
        TEST(components_that_are_not_available_are_left_out),
        TEST(forward_of_zero_is_no_excess),
        TEST(fsdp_compares_forward_and_backward),
        TEST(few_steps_cap_at_warning),
        TEST(fewer_than_two_eligible),
        TEST(h2d_needs_the_gpu_clock),
        TEST(compute_bound_yields),
        TEST(residual_needs_the_traced_time),
        TEST(fsdp_needs_forward),
        TEST(worst_ranks_of_bound_kinds),
        TEST(order_is_severity_score_rank_kinds),
        TEST(names),
    };

    return unit_run(tests);
}
