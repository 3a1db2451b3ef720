/*
 * test_diagnose.c - verdicts of whole runs: who is accused, of what, what it costs, what the
 * sentence says, and that nothing is claimed that was not measured.
 */
#include "tests/unit/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/diagnose.h"
#include "tests/unit/run_builder.h"

struct bench {
    struct lg_run *run;
    struct lg_diagnosis *d;
    struct lg_diagnose_options options;
};

static int setup(void **state)
{
    struct bench *b = calloc(1, sizeof(*b));

    if (!b)
        return -1;
    b->run = lg_run_new();
    b->run->dir = lg_strdup("runs/a b");
    b->options = (struct lg_diagnose_options){.first_step = LG_NULL, .last_step = LG_NULL};
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    struct bench *b = *state;

    lg_diagnosis_free(b->d);
    lg_run_free(b->run);
    free(b);
    return 0;
}

static bool says(const char *text, const char *what)
{
    return strstr(text, what) != NULL;
}

static bool list_says(const struct lg_texts *list, const char *what)
{
    for (size_t i = 0; i < list->n; i++)
        if (says(list->text[i], what))
            return true;
    return false;
}

/* What holds for every diagnosis. */
static void check_form(const struct lg_diagnosis *d)
{
    const struct lg_verdict *v = &d->verdict;
    size_t length = strlen(v->sentence);

    assert_true(length > 1 && v->sentence[length - 1] == '.');
    assert_false(says(v->sentence, "nan"));
    assert_false(says(v->sentence, "-9223372036854775808"));
    assert_true(lg_kind_is_straggler(v->kind) == (v->rank != LG_NO_RANK));
    assert_true((v->level == LG_LEVEL_NONE) ==
                (v->kind == LG_BALANCED || v->kind == LG_WARMUP || v->kind == LG_NO_DATA ||
                 v->kind == LG_INCOMPLETE_DATA));
    assert_true(v->kind == LG_BALANCED || v->next.n > 0);
    for (size_t i = 0; i < v->next.n; i++)
        assert_false(says(v->next.text[i], "{"));
    if (v->level != LG_LEVEL_NONE) {
        assert_true(d->n_findings > 0);
        assert_int_equal(v->kind, d->findings[0].kind);
    }
    for (size_t i = 0; i < d->n_findings; i++) {
        assert_true(json_is_object(d->findings[i].evidence));
        assert_true(lg_kind_is_straggler(d->findings[i].kind) ==
                    (d->findings[i].rank != LG_NO_RANK));
    }
}

static const struct lg_diagnosis *diagnose(struct bench *b)
{
    lg_diagnosis_free(b->d);
    b->d = lg_diagnose(b->run, &b->options);
    check_form(b->d);
    return b->d;
}

#define assert_kind(d, expected)                                                                   \
    do {                                                                                           \
        if ((d)->verdict.kind != (expected))                                                       \
            print_error("%s\n", (d)->verdict.sentence);                                            \
        assert_string_equal(lg_kind_name((d)->verdict.kind), lg_kind_name(expected));              \
    } while (0)

#define QUIET ((struct stages){8, X, 30, 50, 5, 7}) /* of 100 ms: no share is a finding */

/* A run of `ranks` equal ranks. */
static void add_ranks(struct lg_run *run, int ranks, int steps, struct stages s)
{
    for (int r = 0; r < ranks; r++)
        add_rank(run, r, 0, steps, s);
}

static struct lg_rank *slow_input(struct bench *b)
{
    add_ranks(b->run, 4, 250, QUIET);
    for (size_t i = 0; i < 250; i++) {
        set(&b->run->ranks[2], i, LG_COL_input_wait_ns, in_ns(38));
        set(&b->run->ranks[2], i, LG_COL_backward_ns, in_ns(20));
    }
    add_collectives(b->run, 9, 1);
    return &b->run->ranks[2];
}

/* ---- stragglers ---- */

static void input_straggler(void **state)
{
    struct bench *b = *state;
    const struct lg_diagnosis *d;

    slow_input(b);
    d = diagnose(b);
    assert_kind(d, LG_INPUT_STRAGGLER);
    assert_int_equal(d->verdict.rank, 2);
    assert_int_equal(d->verdict.level, LG_LEVEL_CRITICAL);
    assert_string_equal(lg_blame_name(d->verdict.stage), "input");
    assert_string_equal(lg_rule_name(d->verdict.rule), "published");
    assert_int_equal(d->verdict.cost_ns_per_step, in_ns(30));
    assert_true(fabs(d->verdict.score - 0.3) < 1e-12);
    assert_string_equal(
        d->verdict.sentence,
        "Rank 2 waits for its next batch 38.0 ms a step, rank 1 8.00 ms; meanwhile the others wait "
        "for it in backward (50.0 ms there against 20.0 ms on rank 2), which costs 30.0 ms of each "
        "100 ms step (30 %).");
    assert_int_equal(d->n_suspects, 1);
    assert_int_equal(d->suspects[0].rank, 2);
    assert_int_equal(d->suspects[0].gain_ns_per_step, LG_NULL);
    assert_true(
        list_says(&d->verdict.next, "laggard sql 'runs/a b' \"SELECT rank, avg(input_wait"));
    assert_true(list_says(&d->verdict.next, "BETWEEN 1 AND 249"));
}

static void evidence_is_the_policy_s(void **state)
{
    struct bench *b = *state;
    const struct lg_diagnosis *d;
    const json_t *e;

    slow_input(b);
    d = diagnose(b);
    e = d->findings[0].evidence;
    assert_int_equal(json_integer_value(json_object_get(e, "culprit_rank")), 2);
    assert_string_equal(json_string_value(json_object_get(e, "component")), "input");
    assert_null(json_object_get(json_object_get(e, "component_coverage"), "h2d"));
}

static void sentence_names_hosts_where_they_differ(void **state)
{
    struct bench *b = *state;

    slow_input(b);
    for (int r = 0; r < 4; r++)
        strcpy(b->run->ranks[r].host, "node-1");
    assert_false(says(diagnose(b)->verdict.sentence, "node"));
    strcpy(b->run->ranks[2].host, "node-2");
    assert_true(says(diagnose(b)->verdict.sentence, "Rank 2 (node-2) waits"));
    assert_true(list_says(&b->d->verdict.next, "rank 2 (node-2)"));
}

static void forward_straggler(void **state)
{
    struct bench *b = *state;
    const struct lg_diagnosis *d;

    add_ranks(b->run, 2, 60, QUIET);
    add_rank(b->run, 2, 0, 60, (struct stages){8, X, 60, 20, 5, 7});
    d = diagnose(b);
    assert_kind(d, LG_COMPUTE_STRAGGLER);
    assert_string_equal(lg_blame_name(d->verdict.stage), "forward");
    assert_int_equal(d->verdict.rank, 2);
    assert_true(says(d->verdict.sentence, "Rank 2 spends in forward 60.0 ms a step"));
}

static void straggler_without_a_cause(void **state)
{
    struct bench *b = *state;
    const struct lg_diagnosis *d;

    add_ranks(b->run, 2, 60, QUIET);
    add_rank(b->run, 2, 0, 60, (struct stages){8, X, 30, 20, 35, 7});
    d = diagnose(b);
    assert_kind(d, LG_STRAGGLER);
    assert_null(lg_blame_name(d->verdict.stage));
    assert_int_equal(d->verdict.rank, 2);
    assert_true(says(d->verdict.sentence, "do not explain"));
}

static void straggler_is_named_though_another_rank_is_missing(void **state)
{
    struct bench *b = *state;

    slow_input(b);
    b->run->world = 6;
    assert_kind(diagnose(b), LG_INPUT_STRAGGLER);
    assert_int_equal(b->d->n_missing, 2);
    assert_true(list_says(&b->d->notes, "2 of 6 ranks left no rows (ranks 4, 5)"));
}

/* ---- nobody is accused ---- */

static void input_bound(void **state)
{
    struct bench *b = *state;
    const struct lg_diagnosis *d;

    add_ranks(b->run, 4, 60, (struct stages){40, X, 20, 30, 5, 5});
    d = diagnose(b);
    assert_kind(d, LG_INPUT_BOUND);
    assert_int_equal(d->verdict.rank, LG_NO_RANK);
    assert_true(d->published.has_worst_rank); /* the policy's own answer has one */
    assert_int_equal(d->findings[0].rank, LG_NO_RANK);
    assert_int_equal(d->n_suspects, 0);
    assert_int_equal(d->verdict.cost_ns_per_step, in_ns(40));
    assert_string_equal(d->verdict.sentence,
                        "Waiting for input takes 40.0 ms of each 100 ms step (40 %, median of 4 "
                        "ranks); no rank stands out, but the wait in collectives was not "
                        "measured, which hides a late one.");
    assert_non_null(json_object_get(d->findings[0].evidence, "share"));
}

static void bound_kind_does_not_deny_a_straggler(void **state)
{
    struct bench *b = *state;
    const struct lg_diagnosis *d;

    add_rank(b->run, 0, 0, 60, (struct stages){30, X, 20, 40, 5, 5});
    add_rank(b->run, 1, 0, 60, (struct stages){42, X, 20, 28, 5, 5});
    d = diagnose(b);
    assert_kind(d, LG_INPUT_BOUND);
    assert_int_equal(d->verdict.rank, LG_NO_RANK);
    assert_false(says(d->verdict.sentence, "no rank stands out"));
    assert_int_equal(d->n_findings, 2);
    assert_int_equal(d->findings[1].rank, 1);
}

static void single_rank(void **state)
{
    struct bench *b = *state;
    const struct lg_diagnosis *d;

    b->run->world = 1;
    add_rank(b->run, 0, 0, 60, (struct stages){5, X, 20, 30, 5, 40});
    d = diagnose(b);
    assert_kind(d, LG_RESIDUAL_HEAVY);
    assert_string_equal(lg_blame_name(d->verdict.stage), "host");
    assert_string_equal(d->verdict.sentence, "What is neither input, H2D, forward, backward nor "
                                             "optimizer takes 40.0 ms of each 100 ms step (40 %).");
    assert_int_equal(d->verdict.level, LG_LEVEL_CRITICAL);
}

static void h2d_bound_on_a_device(void **state)
{
    struct bench *b = *state;
    struct stages s = {5, 40, 20, 30, 5, 0};
    const struct lg_diagnosis *d;

    add_ranks(b->run, 2, 60, s);
    for (int r = 0; r < 2; r++) {
        b->run->ranks[r].has_device = true;
        for (size_t i = 0; i < 60; i++) {
            set_device(&b->run->ranks[r], i, s);
            set(&b->run->ranks[r], i, LG_COL_gpu_backward_sync_ns, in_ns(3));
        }
    }
    add_collectives(b->run, 1, 1);
    d = diagnose(b);
    assert_kind(d, LG_H2D_BOUND);
    assert_int_equal(d->clock, LG_CLOCK_GPU);
    assert_int_equal(d->verdict.rank, LG_NO_RANK);
    assert_string_equal(lg_blame_name(d->verdict.stage), "h2d");
}

static void compute_bound(void **state)
{
    struct bench *b = *state;
    const struct lg_diagnosis *d;

    add_ranks(b->run, 2, 60, (struct stages){1, X, 30, 60, 5, 4});
    add_collectives(b->run, 9, 1);
    d = diagnose(b);
    assert_kind(d, LG_COMPUTE_BOUND);
    assert_int_equal(d->verdict.level, LG_LEVEL_INFO);
    assert_true(isnan(d->verdict.score));
    assert_int_equal(d->verdict.cost_ns_per_step, LG_NULL);
    assert_true(says(d->verdict.sentence, "9.00 ms of it blocked in collectives"));
}

static void balanced(void **state)
{
    struct bench *b = *state;
    const struct lg_diagnosis *d;

    add_ranks(b->run, 4, 60, QUIET);
    add_collectives(b->run, 5, 1);
    d = diagnose(b);
    assert_kind(d, LG_BALANCED);
    assert_int_equal(d->verdict.level, LG_LEVEL_NONE);
    assert_int_equal(d->n_findings, 0);
    assert_int_equal(d->verdict.next.n, 0);
    assert_int_equal(d->published.severity, LG_SEVERITY_INFO);
    assert_true(says(d->verdict.sentence, "input 8.0 %"));
}

/* ---- what may not be said ---- */

static void a_signal_missing_on_one_rank(void **state)
{
    struct bench *b = *state;
    const struct lg_diagnosis *d;

    add_ranks(b->run, 4, 60, (struct stages){1, X, 30, 60, 5, 4});
    for (size_t i = 0; i < 60; i++)
        set(&b->run->ranks[2], i, LG_COL_forward_ns, LG_NULL);
    add_collectives(b->run, 5, 1);
    d = diagnose(b);
    assert_kind(d, LG_INCOMPLETE_DATA);
    assert_int_equal(d->published.kind, LG_COMPUTE_BOUND); /* over the three others */
    assert_true(says(d->verdict.sentence, "rank 2: forward."));
    assert_true(isnan(d->means[2].mean[LG_COL_forward_ns]));
    assert_null(lg_rule_name(d->verdict.rule));
}

static void forward_and_backward_in_one(void **state)
{
    struct bench *b = *state;
    const struct lg_diagnosis *d;

    add_ranks(b->run, 3, 60, QUIET);
    for (int r = 0; r < 3; r++) {
        for (size_t i = 0; i < 60; i++) {
            set(&b->run->ranks[r], i, LG_COL_compute_ns, in_ns(80));
            set(&b->run->ranks[r], i, LG_COL_forward_ns, LG_NULL);
            set(&b->run->ranks[r], i, LG_COL_backward_ns, LG_NULL);
        }
    }
    d = diagnose(b);
    assert_kind(d, LG_INCOMPLETE_DATA);
    assert_true(says(d->verdict.sentence, "all ranks: forward, backward"));
    assert_true(isnan(d->published.share[LG_SHARE_compute]));
}

static void declared_ranks_without_rows(void **state)
{
    struct bench *b = *state;
    const struct lg_diagnosis *d;

    b->run->world = 8;
    add_ranks(b->run, 4, 60, QUIET);
    add_rank(b->run, 4, 0, 0, QUIET); /* left a database, but no row */
    add_collectives(b->run, 5, 1);
    d = diagnose(b);
    assert_kind(d, LG_INCOMPLETE_DATA);
    assert_true(says(d->verdict.sentence, "ranks 4-7: no rows"));
    assert_int_equal(d->n_seen, 4);
    assert_int_equal(d->n_missing, 4);
    assert_int_equal(d->means[4].rows, 0);
    assert_true(isnan(d->means[4].mean[LG_COL_dur_ns]));
}

static void declared_list_beats_world(void **state)
{
    struct bench *b = *state;

    add_ranks(b->run, 2, 60, QUIET);
    b->run->world = 2;
    b->run->expected = lg_alloc(2, sizeof(int32_t));
    b->run->expected[0] = 5;
    b->run->n_expected = 2; /* ranks 5 and 0 */
    b->run->imported = true;
    assert_kind(diagnose(b), LG_INCOMPLETE_DATA);
    assert_int_equal(b->d->n_missing, 1);
    assert_int_equal(b->d->missing[0], 5);
    assert_true(list_says(&b->d->notes, "rank 1 left rows, but is not among the declared"));
}

static void absurd_world_size(void **state)
{
    struct bench *b = *state;

    b->run->world = INT32_MAX;
    b->run->imported = true;
    add_ranks(b->run, 2, 60, QUIET);
    assert_kind(diagnose(b), LG_BALANCED);
}

static void device_skew_not_observable(void **state)
{
    struct bench *b = *state;
    const struct lg_diagnosis *d;

    add_ranks(b->run, 2, 60, QUIET);
    add_collectives(b->run, 5, 1);
    b->run->ranks[0].has_device = b->run->ranks[1].has_device = true;
    d = diagnose(b);
    assert_kind(d, LG_INCOMPLETE_DATA);
    assert_true(says(d->verdict.sentence, "device-side skew is not observable"));
    assert_int_equal(d->published.kind, LG_BALANCED);
    for (int r = 0; r < 2; r++)
        for (size_t i = 0; i < 60; i++)
            set(&b->run->ranks[r], i, LG_COL_device_wait_ns, in_ns(r ? 4 : 0));
    assert_kind(diagnose(b), LG_BALANCED); /* the host does not wait for its device */
    for (size_t i = 0; i < 60; i++)
        set(&b->run->ranks[1], i, LG_COL_device_wait_ns, in_ns(6));
    assert_kind(diagnose(b), LG_INCOMPLETE_DATA);
    for (size_t i = 0; i < 60; i++)
        set(&b->run->ranks[1], i, LG_COL_gpu_backward_sync_ns, in_ns(6));
    assert_kind(diagnose(b), LG_BALANCED);
}

static void collectives_not_observed(void **state)
{
    struct bench *b = *state;

    add_ranks(b->run, 2, 60, QUIET);
    assert_kind(diagnose(b), LG_INCOMPLETE_DATA);
    assert_true(says(b->d->verdict.sentence, "collectives were not observed"));
    b->run->imported = true; /* whoever imports rows knows what they hold */
    assert_kind(diagnose(b), LG_BALANCED);
    assert_true(list_says(&b->d->notes, "time in collectives was not measured"));
}

static void misaligned_rank(void **state)
{
    struct bench *b = *state;
    const struct lg_diagnosis *d;

    add_ranks(b->run, 4, 60, QUIET);
    add_collectives(b->run, 5, 10);
    for (size_t i = 0; i < 60; i++)
        b->run->ranks[3].value[LG_COL_collective_seq][i] += 5;
    d = diagnose(b);
    assert_kind(d, LG_INCOMPLETE_DATA);
    assert_true(says(d->verdict.sentence, "rank 3: its collectives match no other rank's"));
    assert_int_equal(d->published.universe, 4);
    assert_int_equal(d->published.n_ranks, 3);
    assert_int_equal(d->means[3].steps, 59); /* its own, without the first */
}

static void no_common_step(void **state)
{
    struct bench *b = *state;
    const struct lg_diagnosis *d;

    add_rank(b->run, 0, 0, 20, QUIET);
    add_rank(b->run, 1, 50, 20, QUIET);
    d = diagnose(b);
    assert_kind(d, LG_INCOMPLETE_DATA);
    assert_int_equal(d->published.universe, 2);
    assert_string_equal(d->verdict.sentence, "Nothing can be compared: no step that all ranks have "
                                             "(rank 0 has 0-19, rank 1 has 50-69).");
}

static void nothing_at_all(void **state)
{
    struct bench *b = *state;

    assert_kind(diagnose(b), LG_NO_DATA);
    assert_true(says(b->d->verdict.sentence, "No rank left a step"));
    assert_int_equal(b->d->n_windows, 0);
    add_rank(b->run, 0, 0, 0, QUIET);
    assert_kind(diagnose(b), LG_NO_DATA);
    b->run->world = 2;
    assert_kind(diagnose(b), LG_INCOMPLETE_DATA);
    assert_true(says(b->d->verdict.sentence, "ranks 0, 1: no rows"));
}

/* ---- start-up and windows ---- */

static void first_rows_are_left_out(void **state)
{
    struct bench *b = *state;
    const struct lg_diagnosis *d;

    add_ranks(b->run, 2, 30, QUIET);
    add_collectives(b->run, 5, 1);
    set(&b->run->ranks[1], 0, LG_COL_input_wait_ns, in_ns(60000));
    set(&b->run->ranks[1], 0, LG_COL_dur_ns, in_ns(60100));
    d = diagnose(b);
    assert_kind(d, LG_BALANCED);
    assert_int_equal(d->published.steps_used, 29);
    assert_int_equal(d->steps.count, 30);
    assert_int_equal(d->published_steps.first, 1);
    assert_true(
        list_says(&d->notes, "1 of 30 common steps are kept out of the statistics (start-up 1)"));
    assert_true(d->means[1].mean[LG_COL_input_wait_ns] < 1e7);
}

static void everything_is_warm_up(void **state)
{
    struct bench *b = *state;
    const struct lg_diagnosis *d;

    add_ranks(b->run, 2, 10, QUIET);
    for (size_t i = 0; i < 10; i++)
        set(&b->run->ranks[i % 2], i, LG_COL_flags, LG_FLAG_warm_up);
    d = diagnose(b);
    assert_kind(d, LG_WARMUP);
    assert_int_equal(d->published.kind, LG_WARMUP);
    assert_int_equal(d->published.steps_used, 0);
    assert_int_equal(d->published.n_issues, 1);
    assert_int_equal(d->n_windows, 0);
    assert_true(says(d->verdict.sentence, "All 10 common steps"));
}

static void one_step_after_start_up(void **state)
{
    struct bench *b = *state;

    add_ranks(b->run, 2, 2, QUIET);
    assert_kind(diagnose(b), LG_WARMUP);
    assert_int_equal(b->d->published.steps_used, 1);
    assert_true(says(b->d->verdict.sentence, "only 1 step"));
}

static void windows_are_tumbling(void **state)
{
    struct bench *b = *state;
    const struct lg_diagnosis *d;

    slow_input(b);                     /* 249 steps that count */
    for (size_t i = 0; i < 101; i++) { /* slow from step 101 on */
        set(&b->run->ranks[2], i, LG_COL_input_wait_ns, in_ns(8));
        set(&b->run->ranks[2], i, LG_COL_backward_ns, in_ns(50));
    }
    d = diagnose(b);
    assert_int_equal(d->n_windows, 3);
    assert_int_equal(d->windows[0].kind, LG_BALANCED);
    assert_int_equal(d->windows[0].level, LG_LEVEL_NONE);
    assert_int_equal(d->windows[0].rank, LG_NO_RANK);
    assert_int_equal(d->windows[0].steps.first, 1);
    assert_int_equal(d->windows[0].steps.last, 100);
    assert_int_equal(d->windows[1].kind, LG_INPUT_STRAGGLER);
    assert_int_equal(d->windows[1].rank, 2);
    assert_int_equal(d->windows[2].steps.first, 201);
    assert_int_equal(d->windows[2].steps.count, 49);
    assert_int_equal(d->published_steps.first, 150); /* the last 100, not the short last window */
    assert_int_equal(d->published_steps.count, 100);
    b->options.window = 500;
    assert_int_equal(diagnose(b)->n_windows, 1);
    assert_int_equal(b->d->published.steps_used, 249);
}

static void range_of_steps(void **state)
{
    struct bench *b = *state;

    slow_input(b);
    b->options.first_step = 10;
    b->options.last_step = 19;
    assert_kind(diagnose(b), LG_INPUT_STRAGGLER);
    assert_int_equal(b->d->verdict.level, LG_LEVEL_WARNING); /* fewer than 20 steps */
    assert_int_equal(b->d->steps.count, 10);
    b->options.first_step = 1000;
    b->options.last_step = LG_NULL;
    assert_kind(diagnose(b), LG_INCOMPLETE_DATA);
    assert_true(says(b->d->verdict.sentence, "no step lies in the range"));
}

static void no_options_are_the_defaults(void **state)
{
    struct bench *b = *state;

    slow_input(b);
    b->d = lg_diagnose(b->run, NULL);
    check_form(b->d);
    assert_int_equal(b->d->window, 100);
    assert_int_equal(b->d->steps.count, 250);
}

/* ---- means, coverage, losses ---- */

static void means_keep_null_and_zero_apart(void **state)
{
    struct bench *b = *state;
    const struct lg_rank_means *m;

    add_rank(b->run, 0, 0, 11, (struct stages){0, X, 30, 60, 5, 4});
    b->run->ranks[0].has_device = true;
    set(&b->run->ranks[0], 3, LG_COL_h2d_ns, in_ns(20));
    set(&b->run->ranks[0], 4, LG_COL_backward_sync_ns, in_ns(7));
    set(&b->run->ranks[0], 3, LG_COL_collective_seq, 9);
    m = diagnose(b)->means;
    assert_int_equal(m->steps, 10);
    assert_int_equal(m->rows, 11);
    assert_true(m->mean[LG_COL_input_wait_ns] == 0);
    assert_true(m->mean[LG_COL_h2d_ns] == 2e6);           /* steps without a copy are 0 */
    assert_true(m->mean[LG_COL_backward_sync_ns] == 7e6); /* of the one step that has it */
    assert_true(m->sync_ns == 7e6);
    assert_true(isnan(m->mean[LG_COL_gpu_dur_ns]));
    assert_true(isnan(m->mean[LG_COL_collective_seq]));
    assert_true(isnan(m->mean[LG_COL_flags]));
}

static const struct lg_coverage *coverage(const struct lg_diagnosis *d, const char *name)
{
    for (size_t i = 0; i < d->n_coverage; i++)
        if (strcmp(d->coverage[i].name, name) == 0)
            return &d->coverage[i];
    return NULL;
}

static void coverage_per_source(void **state)
{
    struct bench *b = *state;
    const struct lg_diagnosis *d;

    add_ranks(b->run, 3, 30, QUIET);
    for (size_t i = 0; i < 30; i++)
        set(&b->run->ranks[0], i, LG_COL_backward_sync_ns, in_ns(1));
    for (int r = 0; r < 3; r++)
        b->run->ranks[r].seen = LG_SEEN_TORCH;
    lg_run_add_coverage(b->run, "input", LG_PARTIAL, "the loader says so");
    d = diagnose(b);
    assert_int_equal(coverage(d, "torch")->state, LG_OBSERVED);
    assert_int_equal(coverage(d, "collectives")->state, LG_PARTIAL);
    assert_string_equal(coverage(d, "collectives")->why, "not on ranks 1, 2");
    assert_int_equal(coverage(d, "device")->state, LG_NOT_OBSERVED);
    assert_string_equal(coverage(d, "input")->why, "the loader says so");
    assert_int_equal(d->n_coverage, 4);
}

static void losses_are_passed_on(void **state)
{
    struct bench *b = *state;
    const struct lg_diagnosis *d;

    add_ranks(b->run, 2, 40, QUIET);
    for (size_t i = 0; i < 36; i++)
        set_device(&b->run->ranks[0], i, QUIET);
    lg_run_add_loss(b->run, 1, LG_LOSS_killed, LG_NULL, 39, "ends at step 39 (killed)");
    d = diagnose(b);
    assert_int_equal(d->n_losses, 2);
    assert_string_equal(d->losses[0].text, "ends at step 39 (killed)");
    assert_int_equal(d->losses[1].rows, 4);
    assert_int_equal(d->losses[1].step, 36);
    assert_int_equal(d->steps.last, 35);
}

static void more_steps_are_no_slowness(void **state)
{
    struct bench *b = *state;

    add_ranks(b->run, 3, 60, QUIET);
    add_collectives(b->run, 5, 1);
    for (int i = 0; i < 10; i++) {
        size_t row = add_row(&b->run->ranks[2], 60 + i, QUIET);

        set(&b->run->ranks[2], row, LG_COL_collective_seq, 60); /* local */
    }
    assert_kind(diagnose(b), LG_BALANCED);
    assert_true(list_says(&b->d->notes, "rank 2 runs 10 steps more than the others"));
}

static void strategy(void **state)
{
    struct bench *b = *state;

    slow_input(b);
    b->run->ranks[1].seen = LG_SEEN_FSDP;
    assert_int_equal(diagnose(b)->strategy, LG_FSDP);
    assert_int_equal(b->d->verdict.level, LG_LEVEL_WARNING);
    assert_true(says(b->d->verdict.sentence, "in forward and backward"));
    b->run->strategy = lg_strdup(" DDP ");
    assert_int_equal(diagnose(b)->strategy, LG_DDP);
}

/* ---- whatever the rows are ---- */

static int64_t random_value(unsigned *seed)
{
    switch (rand_r(seed) % 12) {
    case 0:
        return LG_NULL;
    case 1:
        return 0;
    case 2:
        return -(int64_t)rand_r(seed);
    default:
        return rand_r(seed) % 100000000;
    }
}

static void random_run(struct lg_run *run, unsigned *seed)
{
    int ranks = rand_r(seed) % 5;

    run->world = rand_r(seed) % 4 ? ranks : -1;
    run->imported = rand_r(seed) % 2;
    for (int r = 0; r < ranks; r++) {
        struct lg_rank *rank = lg_run_add_rank(run, r);
        int rows = rand_r(seed) % 40, columns = rand_r(seed) % LG_COLUMNS;
        int64_t seq = 0;

        rank->has_device = rand_r(seed) % 2;
        for (int c = 0; c < LG_COLUMNS; c++)
            if (rand_r(seed) % LG_COLUMNS <= columns)
                lg_rank_use_column(rank, c);
        for (int i = 0; i < rows; i++) {
            size_t row = lg_rank_append(rank, i + rand_r(seed) % 2 * 100);

            rank->step[row] = (row ? rank->step[row - 1] : rand_r(seed) % 9) + 1;
            for (int c = 0; c < LG_COLUMNS; c++)
                if (rank->value[c])
                    rank->value[c][row] = random_value(seed);
            seq += rand_r(seed) % 3;
            if (rank->value[LG_COL_collective_seq])
                rank->value[LG_COL_collective_seq][row] = seq;
            if (rank->value[LG_COL_flags])
                rank->value[LG_COL_flags][row] = rand_r(seed) % 4 ? 0 : rand_r(seed) % 512;
        }
    }
}

static void random_rows(void **state)
{
    struct bench *b = *state;
    unsigned seed = 20240607, kinds = 0;

    for (int i = 0; i < 3000; i++) {
        lg_run_free(b->run);
        b->run = lg_run_new();
        random_run(b->run, &seed);
        b->options.window = 1 + (size_t)rand_r(&seed) % 30;
        kinds |= 1u << diagnose(b)->verdict.kind;
    }
    assert_true(__builtin_popcount(kinds) >= 6); /* the runs are not all of one kind */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(input_straggler),
        TEST(evidence_is_the_policy_s),
        TEST(sentence_names_hosts_where_they_differ),
        TEST(forward_straggler),
        TEST(straggler_without_a_cause),
        TEST(straggler_is_named_though_another_rank_is_missing),
        TEST(input_bound),
        TEST(bound_kind_does_not_deny_a_straggler),
        TEST(single_rank),
        TEST(h2d_bound_on_a_device),
        TEST(compute_bound),
        TEST(balanced),
        TEST(a_signal_missing_on_one_rank),
        TEST(forward_and_backward_in_one),
        TEST(declared_ranks_without_rows),
        TEST(declared_list_beats_world),
        TEST(absurd_world_size),
        TEST(device_skew_not_observable),
        TEST(collectives_not_observed),
        TEST(misaligned_rank),
        TEST(no_common_step),
        TEST(nothing_at_all),
        TEST(first_rows_are_left_out),
        TEST(everything_is_warm_up),
        TEST(one_step_after_start_up),
        TEST(windows_are_tumbling),
        TEST(range_of_steps),
        TEST(no_options_are_the_defaults),
        TEST(means_keep_null_and_zero_apart),
        TEST(coverage_per_source),
        TEST(losses_are_passed_on),
        TEST(more_steps_are_no_slowness),
        TEST(strategy),
        TEST(random_rows),
    };

    return unit_run(tests);
}
