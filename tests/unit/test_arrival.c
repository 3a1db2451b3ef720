/*
 * test_arrival.c - the rules on who comes late to the collectives, one test per rule and per reason
 * to keep silent, on simulated trainings with a known truth (row_sim.h).
 */
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

#include "aggregator/diagnose.h"
#include "tests/unit/row_sim.h"

struct bench {
    struct sim sim;
    struct sim_fault fault[8];
    struct lg_run *run;
    struct lg_diagnosis *d;
    struct lg_diagnose_options options;
};

static int setup(void **state)
{
    struct bench *b = calloc(1, sizeof(*b));

    if (!b)
        return -1;
    b->sim = sim_usual(4, 60, 1);
    b->sim.more = sim_faults;
    b->sim.context = b->fault;
    b->options =
        (struct lg_diagnose_options){.window = 100, .first_step = LG_NULL, .last_step = LG_NULL};
    *state = b;
    return 0;
}

static void reset(struct bench *b)
{
    lg_diagnosis_free(b->d);
    lg_run_free(b->run);
    b->d = NULL;
    b->run = NULL;
}

static int teardown(void **state)
{
    reset(*state);
    free(*state);
    return 0;
}

/* Makes the training and judges it; the run can be changed by `change` in between. */
static const struct lg_verdict *judge_changed(struct bench *b, void (*change)(struct lg_run *run))
{
    reset(b);
    b->run = sim_run(&b->sim);
    if (change)
        change(b->run);
    b->d = lg_diagnose(b->run, &b->options);
    return &b->d->verdict;
}

static const struct lg_verdict *judge(struct bench *b)
{
    return judge_changed(b, NULL);
}

static bool says(const char *text, const char *what)
{
    return strstr(text, what) != NULL;
}

static const json_t *evidence(const struct bench *b, const char *key)
{
    return json_object_get(b->d->findings[0].evidence, key);
}

static double number(const struct bench *b, const char *key)
{
    return json_number_value(evidence(b, key));
}

#define assert_kind(v, expected)                                                                   \
    do {                                                                                           \
        if ((v)->kind != (expected))                                                               \
            print_error("%s\n", (v)->sentence);                                                    \
        assert_string_equal(lg_kind_name((v)->kind), lg_kind_name(expected));                      \
    } while (0)

#define assert_near(value, expected, tolerance)                                                    \
    do {                                                                                           \
        double near_value = (value);                                                               \
        if (fabs(near_value - (expected)) > (tolerance))                                           \
            print_error("%s is %g\n", #value, near_value);                                         \
        assert_true(fabs(near_value - (expected)) <= (tolerance));                                 \
    } while (0)

static void fault(struct bench *b, struct sim_fault f)
{
    int i = 0;

    while (b->fault[i].ms != 0)
        i++;
    b->fault[i] = f;
}

/* ---- persistent ---- */

static void every_stage_has_its_kind(void **state)
{
    static const struct {
        enum lg_stage stage;
        enum lg_kind kind;
        const char *name;
    } cases[] = {
        {LG_STAGE_input_wait, LG_INPUT_STRAGGLER, "input"},
        {LG_STAGE_h2d, LG_H2D_STRAGGLER, "h2d"},
        {LG_STAGE_forward, LG_COMPUTE_STRAGGLER, "forward"},
        {LG_STAGE_backward, LG_BACKWARD_STRAGGLER, "backward"},
        {LG_STAGE_optimizer, LG_OPTIMIZER_STRAGGLER, "optimizer"},
        {LG_STAGE_other, LG_HOST_STRAGGLER, "host"},
    };
    struct bench *b = *state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (int rows = SIM_HOST; rows <= SIM_DEVICE; rows++) {
            const struct lg_verdict *v;

            b->sim.rows = (enum sim_rows)rows;
            b->fault[0] = (struct sim_fault){.rank = 3, .stage = cases[i].stage, .ms = 30};
            v = judge(b);
            assert_kind(v, cases[i].kind);
            assert_string_equal(lg_blame_name(v->stage), cases[i].name);
            assert_int_equal(v->rank, 3);
            assert_int_equal(v->level, LG_LEVEL_CRITICAL);
            assert_string_equal(lg_rule_name(v->rule), "arrival");
            assert_string_equal(lg_recurrence_name(v->recurrence), "persistent");
            assert_int_equal(v->period, LG_NULL);
            assert_false(v->ambiguous);
            assert_near(v->score, 30.0 / 130, 0.02);
            assert_near((double)v->cost_ns_per_step / 1e6, 30, 1.5);
            assert_int_equal(b->d->suspects[0].rank, 3);
            assert_int_equal(b->d->suspects[0].stage, v->stage);
            assert_near((double)b->d->suspects[0].gain_ns_per_step / 1e6, 29, 2);
            assert_near(b->d->suspects[0].share, 0.23, 0.02);
        }
    }
}

static void sentence_and_evidence(void **state)
{
    struct bench *b = *state;
    const struct lg_verdict *v;

    b->sim.jitter = 0;
    fault(b, (struct sim_fault){.rank = 3, .stage = LG_STAGE_backward, .ms = 30});
    v = judge(b);
    assert_true(
        says(v->sentence,
             "Rank 3 comes late to the collectives in 60 of 60 steps, by "
             "30.0 ms: backward takes it 75.0 ms, the others 45.0 ms; they wait "
             "for it 30.0 ms of each 130 ms step (23 %); mending it would gain 30.0 ms a step."));
    assert_near(number(b, "late_ms"), 30, 0.05);
    assert_near(json_number_value(json_object_get(evidence(b, "excess_ms"), "backward")), 30, 0.05);
    assert_null(json_object_get(evidence(b, "excess_ms"), "forward"));
    assert_int_equal((int)number(b, "of_steps"), 60);
    assert_string_equal(b->d->findings[0].sentence, v->sentence);
    assert_true(v->next.n > 0);
}

/* The published policy can't see it: every rank's backward is as long. */
static void the_published_policy_alone(void **state)
{
    struct bench *b = *state;
    const struct lg_verdict *v;

    fault(b, (struct sim_fault){.rank = 1, .stage = LG_STAGE_backward, .ms = 30});
    v = judge(b);
    assert_kind(v, LG_BACKWARD_STRAGGLER);
    assert_false(lg_kind_is_straggler(b->d->published.kind));
    assert_true(says(v->published_alone, ", nobody"));
    b->fault[0].stage = LG_STAGE_input_wait; /* here both say the same */
    v = judge(b);
    assert_kind(v, LG_INPUT_STRAGGLER);
    assert_int_equal(b->d->published.kind, LG_INPUT_STRAGGLER);
    assert_null(v->published_alone);
    for (size_t i = 0; i < b->d->n_findings; i++) /* one finding of it, not two */
        assert_true(i == 0 || b->d->findings[i].rank == LG_NO_RANK);
}

static void two_stages_together_are_computation(void **state)
{
    struct bench *b = *state;
    const struct lg_verdict *v;

    fault(b, (struct sim_fault){.rank = 2, .stage = LG_STAGE_forward, .ms = 10});
    fault(b, (struct sim_fault){.rank = 2, .stage = LG_STAGE_backward, .ms = 15});
    v = judge(b);
    assert_kind(v, LG_COMPUTE_STRAGGLER);
    assert_string_equal(lg_blame_name(v->stage), "forward+backward");
    assert_true(says(v->sentence, "forward and backward take"));
}

static void a_cause_that_is_not_clear(void **state)
{
    struct bench *b = *state;
    const struct lg_verdict *v;
    const json_t *excess;

    fault(b, (struct sim_fault){.rank = 0, .stage = LG_STAGE_input_wait, .ms = 18});
    fault(b, (struct sim_fault){.rank = 0, .stage = LG_STAGE_h2d, .ms = 12});
    v = judge(b);
    assert_kind(v, LG_STRAGGLER);
    assert_int_equal(v->rank, 0);
    assert_null(lg_blame_name(v->stage));
    excess = evidence(b, "excess_ms");
    assert_near(json_number_value(json_object_get(excess, "input")), 18, 1);
    assert_near(json_number_value(json_object_get(excess, "h2d")), 12, 1);
    assert_true(says(v->sentence, "no stage alone explains it"));
}

static void small_effects_are_not_named(void **state)
{
    struct bench *b = *state;

    for (int percent = 2; percent <= 8; percent += 3) {
        b->fault[0] = (struct sim_fault){.rank = 1, .stage = LG_STAGE_backward, .ms = percent};
        assert_int_equal(judge(b)->rank, LG_NO_RANK);
    }
    assert_int_equal(b->d->suspects[0].rank, 1); /* but suspected */
}

static void step_gates(void **state)
{
    struct bench *b = *state;

    fault(b, (struct sim_fault){.rank = 1, .stage = LG_STAGE_backward, .ms = 40});
    b->sim.steps = 2; /* one besides start-up */
    assert_kind(judge(b), LG_WARMUP);
    b->sim.steps = 3;
    assert_kind(judge(b), LG_BACKWARD_STRAGGLER);
    b->sim.steps = 20;
    assert_int_equal(judge(b)->level, LG_LEVEL_WARNING); /* 19 steps */
    b->sim.steps = 21;
    assert_int_equal(judge(b)->level, LG_LEVEL_CRITICAL);
}

static void fsdp(struct lg_run *run)
{
    run->strategy = lg_strdup("fsdp");
}

static void fsdp_is_at_most_a_warning(void **state)
{
    struct bench *b = *state;
    const struct lg_verdict *v;

    fault(b, (struct sim_fault){.rank = 1, .stage = LG_STAGE_backward, .ms = 40});
    v = judge_changed(b, fsdp);
    assert_kind(v, LG_BACKWARD_STRAGGLER);
    assert_int_equal(v->level, LG_LEVEL_WARNING);
}

static void two_culprits(void **state)
{
    struct bench *b = *state;
    const struct lg_verdict *v;

    b->sim.ranks = 6;
    fault(b, (struct sim_fault){.rank = 1, .stage = LG_STAGE_backward, .ms = 30});
    fault(b, (struct sim_fault){.rank = 4, .stage = LG_STAGE_optimizer, .ms = 40});
    v = judge(b);
    assert_kind(v, LG_OPTIMIZER_STRAGGLER); /* the larger score first */
    assert_int_equal(v->rank, 4);
    assert_int_equal(b->d->findings[1].kind, LG_BACKWARD_STRAGGLER);
    assert_int_equal(b->d->findings[1].rank, 1);
    assert_false(v->ambiguous);
}

static void one_host(struct lg_run *run)
{
    for (size_t r = 0; r < run->n_ranks; r++)
        strcpy(run->ranks[r].host, r < run->n_ranks / 2 ? "node-1" : "node-2");
}

static void a_slow_host(void **state)
{
    struct bench *b = *state;
    const struct lg_verdict *v;

    b->sim.ranks = 4;
    fault(b, (struct sim_fault){.rank = 2, .stage = LG_STAGE_forward, .ms = 30});
    fault(b, (struct sim_fault){.rank = 3, .stage = LG_STAGE_forward, .ms = 30});
    v = judge_changed(b, one_host);
    assert_kind(v, LG_HOST_SLOW);
    assert_int_equal(v->rank, LG_NO_RANK);
    assert_string_equal(lg_blame_name(v->stage), "forward");
    assert_true(says(v->sentence, "All ranks of host node-2 (ranks 2, 3) come late"));
    b->fault[1].ms = 0; /* one of its two ranks */
    v = judge_changed(b, one_host);
    assert_kind(v, LG_COMPUTE_STRAGGLER);
    assert_int_equal(v->rank, 2);
    assert_true(says(v->sentence, "Rank 2 (node-2) comes late"));
}

/* ---- change points ---- */

static void late_onset(void **state)
{
    struct bench *b = *state;
    const struct lg_verdict *v;

    b->sim.steps = 101;
    fault(b, (struct sim_fault){.rank = 2, .stage = LG_STAGE_optimizer, .ms = 40, .from = 55});
    v = judge(b);
    assert_kind(v, LG_OPTIMIZER_STRAGGLER);
    assert_string_equal(lg_recurrence_name(v->recurrence), "persistent");
    assert_near((double)v->steps.first, 55, 2);
    assert_int_equal(v->steps.last, 100);
    assert_near(number(b, "since_step"), 55, 2);
    assert_null(evidence(b, "until_step"));
    assert_true(says(v->sentence, " since step 5"));
}

static void slow_for_a_while(void **state)
{
    struct bench *b = *state;
    const struct lg_verdict *v;

    b->sim.steps = 101;
    fault(b, (struct sim_fault){
                 .rank = 2, .stage = LG_STAGE_backward, .ms = 60, .from = 30, .to = 65});
    v = judge(b);
    assert_kind(v, LG_BACKWARD_STRAGGLER);
    assert_near((double)v->steps.first, 30, 2);
    assert_near((double)v->steps.last, 64, 2);
    assert_true(says(v->sentence, " in steps "));
}

/* Late most of the time, which is enough for the rule on all steps: it says since when as well. */
static void persistent_says_since_when(void **state)
{
    struct bench *b = *state;

    b->sim.steps = 101;
    fault(b, (struct sim_fault){.rank = 2, .stage = LG_STAGE_backward, .ms = 40, .from = 20});
    assert_kind(judge(b), LG_BACKWARD_STRAGGLER);
    assert_int_equal(b->d->verdict.steps.first, 1);
    assert_near(number(b, "since_step"), 20, 2);
}

/* ---- nobody in particular ---- */

static double rotate(struct sim *s, int rank, int step, enum lg_stage stage)
{
    return stage == LG_STAGE_input_wait && (step * 7 + step / 3) % s->ranks == rank ? 40 : 0;
}

static void rotating_imbalance(void **state)
{
    struct bench *b = *state;
    const struct lg_verdict *v;

    b->sim.more = rotate;
    v = judge(b);
    assert_kind(v, LG_IMBALANCE);
    assert_int_equal(v->rank, LG_NO_RANK);
    assert_string_equal(lg_blame_name(v->stage), "input");
    assert_string_equal(lg_recurrence_name(v->recurrence), "rotating");
    assert_near(number(b, "gain_of_balancing_ms_per_step"), 30, 2); /* 40 - 40/4 */
    assert_near(v->score, 40.0 / 140, 0.03);
    assert_true(says(v->sentence, "is a symptom"));
    assert_false(v->ambiguous);
}

static double pauses_in_turn(struct sim *s, int rank, int step, enum lg_stage stage)
{
    return stage == LG_STAGE_other && step % 13 == 0 && step / 13 % s->ranks == rank ? 300 : 0;
}

static void pauses_of_one_rank_after_the_other(void **state)
{
    struct bench *b = *state;
    const struct lg_verdict *v;

    b->sim.more = pauses_in_turn;
    for (int ms = 10; ms <= 100; ms *= 10) { /* of steps of 10 and of 100 ms */
        for (int steps = 60; steps <= 240; steps *= 2) {
            b->sim = (struct sim){0};
            b->sim = sim_usual(4, steps, 1);
            b->sim.more = pauses_in_turn;
            for (int i = 0; i < LG_STAGE_COUNT; i++)
                b->sim.stage[i] *= ms / 100.0;
            b->sim.transfer *= ms / 100.0;
            v = judge(b);
            assert_kind(v, LG_IMBALANCE);
            assert_int_equal(v->rank, LG_NO_RANK);
            assert_string_equal(lg_blame_name(v->stage), "host");
            assert_int_equal(v->period, 13);
            assert_true(says(v->sentence, "every 13 steps"));
        }
    }
}

static double length(struct sim *s, int rank, int step, enum lg_stage stage)
{
    struct sim own = {.random = (uint64_t)step * 1000003u + (uint64_t)rank * 7919u};
    double part = exp(0.4 * sim_normal(&own)) - 1;

    return stage == LG_STAGE_forward || stage == LG_STAGE_backward ? part * s->stage[stage] : 0;
}

static void bytes_of_length(struct sim *s, struct lg_rank *rank, size_t row)
{
    double more = length(s, rank->rank, (int)rank->step[row], LG_STAGE_forward);

    sim_set(rank, row, LG_COL_h2d_bytes, (int64_t)(1e6 * (1 + more / s->stage[LG_STAGE_forward])));
}

static void sequences_of_different_length(void **state)
{
    struct bench *b = *state;
    const struct lg_verdict *v;

    b->sim.more = length;
    b->sim.decorate = bytes_of_length;
    v = judge(b);
    assert_kind(v, LG_IMBALANCE);
    assert_true(v->stage == LG_BLAME_FORWARD || v->stage == LG_BLAME_BACKWARD);
    assert_true(number(b, "correlation_with_h2d_bytes") > 0.9);
    assert_true(says(v->sentence, "as the bytes copied to the device do"));
}

static void transfer_that_costs(void **state)
{
    struct bench *b = *state;
    const struct lg_verdict *v;

    b->sim.transfer = 80;
    v = judge(b);
    assert_kind(v, LG_COMM_BOUND);
    assert_int_equal(v->rank, LG_NO_RANK);
    assert_int_equal(v->level, LG_LEVEL_CRITICAL);
    assert_string_equal(lg_blame_name(v->stage), "sync");
    assert_near(number(b, "transfer_ms"), 80, 1);
    assert_true(number(b, "arrival_spread_ms") < 8);
    assert_true(says(v->sentence, "it is the collectives that cost"));
}

static void a_culprit_besides_a_slow_transfer(void **state)
{
    struct bench *b = *state;

    b->sim.transfer = 30;
    fault(b, (struct sim_fault){.rank = 1, .stage = LG_STAGE_backward, .ms = 60});
    assert_kind(judge(b), LG_BACKWARD_STRAGGLER);
    assert_int_equal(b->d->findings[1].kind, LG_COMM_BOUND);
}

static void syncs(struct sim *s, struct lg_rank *rank, size_t row)
{
    (void)s;
    sim_set(rank, row, LG_COL_host_syncs, 15);
    sim_set(rank, row, LG_COL_device_wait_ns, 40000000);
}

static void one_sync(struct sim *s, struct lg_rank *rank, size_t row)
{
    syncs(s, rank, row);
    sim_set(rank, row, LG_COL_host_syncs, 1);
}

static void waiting_for_the_device_again_and_again(void **state)
{
    struct bench *b = *state;
    const struct lg_verdict *v;

    b->sim.decorate = syncs;
    v = judge(b);
    assert_kind(v, LG_SYNC_BOUND);
    assert_int_equal(v->rank, LG_NO_RANK);
    assert_string_equal(lg_blame_name(v->stage), "sync");
    assert_null(lg_rule_name(v->rule));
    assert_true(says(v->sentence, "15 times a step"));
    b->sim.ranks = 1; /* needs no other ranks */
    b->sim.rows = SIM_NO_SYNC;
    assert_kind(judge(b), LG_SYNC_BOUND);
    b->sim.ranks = 4;
    b->sim.rows = SIM_DEVICE;
    b->sim.decorate = one_sync; /* that is how a host keeps pace */
    assert_true(judge(b)->kind != LG_SYNC_BOUND);
}

/* ---- now and then ---- */

static void write_checkpoint(struct sim *s, struct lg_rank *rank, size_t row)
{
    bool now = rank->step[row] % 20 == 19 && rank->rank == 0;

    (void)s;
    sim_set(rank, row, LG_COL_write_bytes, now ? 64000000 : 0);
    sim_set(rank, row, LG_COL_fsyncs, now ? 1 : 0);
}

static void checkpoints_of_one_rank(void **state)
{
    struct bench *b = *state;
    const struct lg_verdict *v;

    b->sim.steps = 80;
    b->sim.decorate = write_checkpoint;
    fault(b, (struct sim_fault){
                 .rank = 0, .stage = LG_STAGE_other, .ms = 400, .every = 20, .phase = 19});
    v = judge(b);
    assert_kind(v, LG_HOST_STRAGGLER);
    assert_int_equal(v->rank, 0);
    assert_string_equal(lg_recurrence_name(v->recurrence), "periodic");
    assert_int_equal(v->period, 20);
    assert_string_equal(json_string_value(evidence(b, "coincides_with")), "a checkpoint");
    assert_true(says(v->sentence, "it writes 64.0 MB there and calls fsync: a checkpoint"));
    for (size_t i = 0; i < b->d->n_findings; i++)
        assert_true(b->d->findings[i].kind != LG_COMM_BOUND);
}

static void rarely_but_much(void **state)
{
    struct bench *b = *state;
    const struct lg_verdict *v;
    static const int steps[] = {11, 24, 45};

    for (int i = 0; i < 3; i++)
        fault(b, (struct sim_fault){.rank = 3,
                                    .stage = LG_STAGE_forward,
                                    .ms = 300,
                                    .from = steps[i],
                                    .to = steps[i] + 1});
    v = judge(b);
    assert_kind(v, LG_COMPUTE_STRAGGLER);
    assert_int_equal(v->rank, 3);
    assert_int_equal(v->level, LG_LEVEL_WARNING); /* at most */
    assert_string_equal(lg_recurrence_name(v->recurrence), "sparse");
    assert_true(says(v->sentence, "in 3 of 60 steps, by 300 ms"));
    assert_int_equal(json_array_size(evidence(b, "steps")), 3);
    assert_int_equal(json_integer_value(json_array_get(evidence(b, "steps"), 1)), 24);
}

static void once_is_told_but_not_accused(void **state)
{
    struct bench *b = *state;
    const struct lg_verdict *v;
    const struct lg_finding *f;

    fault(b, (struct sim_fault){
                 .rank = 1, .stage = LG_STAGE_forward, .ms = 5000, .from = 40, .to = 41});
    v = judge(b);
    assert_int_equal(v->rank, LG_NO_RANK);
    assert_true(v->level < LG_LEVEL_WARNING);
    assert_true(b->d->n_findings > 0);
    f = &b->d->findings[b->d->n_findings - 1];
    assert_int_equal(f->rank, 1);
    assert_int_equal(f->level, LG_LEVEL_INFO);
    assert_true(says(f->sentence, "in 1 of 60 steps"));
    assert_true(says(v->published_alone, "COMPUTE_STRAGGLER (critical), rank 1")); /* means */
}

static void all_pause_together(void **state)
{
    struct bench *b = *state;
    const struct lg_verdict *v;

    fault(b, (struct sim_fault){
                 .rank = -1, .stage = LG_STAGE_other, .ms = 300, .every = 10, .phase = 3});
    v = judge(b);
    assert_kind(v, LG_HOST_PERIODIC);
    assert_int_equal(v->rank, LG_NO_RANK);
    assert_int_equal(v->period, 10);
    assert_string_equal(lg_blame_name(v->stage), "host");
    assert_near(number(b, "pause_ms"), 300, 10);
    assert_string_equal(json_string_value(evidence(b, "in_between")), "BALANCED");
}

static void epoch_flags(struct sim *s, struct lg_rank *rank, size_t row)
{
    (void)s;
    sim_set(rank, row, LG_COL_flags, rank->step[row] % 20 ? 0 : LG_FLAG_epoch_start);
}

static void epochs_that_begin_slowly(void **state)
{
    struct bench *b = *state;
    const struct lg_verdict *v;

    b->sim.steps = 60;
    b->sim.decorate = epoch_flags;
    fault(b, (struct sim_fault){.rank = -1, .stage = LG_STAGE_input_wait, .ms = 1500, .every = 20});
    v = judge(b);
    assert_kind(v, LG_HOST_PERIODIC);
    assert_string_equal(lg_blame_name(v->stage), "input");
    assert_int_equal(v->period, 20);
    assert_int_equal((int)number(b, "pauses"), 3); /* the first step's is one */
    assert_string_equal(json_string_value(evidence(b, "coincides_with")), "the begin of an epoch");
    assert_int_equal(b->d->published.kind, LG_BALANCED); /* the steady state */
    b->sim.decorate = NULL;                              /* without the flags the means hold them */
    b->sim.steps = 100;
    v = judge(b);
    assert_kind(v, LG_INPUT_BOUND);
    assert_string_equal(lg_recurrence_name(v->recurrence), "periodic");
    assert_int_equal(v->period, 20);
    assert_true(says(v->sentence, "mostly in every 20th step"));
}

/* ---- scopes ---- */

static void a_part_of_a_long_run(void **state)
{
    struct bench *b = *state;
    const struct lg_verdict *v;

    b->sim.steps = 1001;
    fault(b, (struct sim_fault){
                 .rank = 2, .stage = LG_STAGE_backward, .ms = 25, .from = 701, .to = 901});
    v = judge(b);
    assert_kind(v, LG_BACKWARD_STRAGGLER);
    assert_int_equal(v->rank, 2);
    assert_int_equal(v->steps.first, 701);
    assert_int_equal(v->steps.last, 900);
    assert_true(says(v->sentence, "Steps 701-900 of 0-1000: Rank 2"));
    assert_int_equal((int)number(b, "windows"), 2);
    assert_int_equal(b->d->windows[7].kind, LG_BACKWARD_STRAGGLER);
    assert_int_equal(b->d->windows[7].rank, 2);
    assert_int_equal(b->d->windows[6].rank, LG_NO_RANK);
    b->fault[0].to = 801; /* one window, and not the last */
    assert_int_equal(judge(b)->rank, LG_NO_RANK);
    b->fault[0].from = 901;
    b->fault[0].to = 0; /* one window, the last */
    v = judge(b);
    assert_kind(v, LG_BACKWARD_STRAGGLER);
    assert_true(says(v->sentence, "Steps 901-1000 of 0-1000: Rank 2"));
}

static void the_whole_run_comes_first(void **state)
{
    struct bench *b = *state;

    b->sim.steps = 401;
    fault(b, (struct sim_fault){.rank = 2, .stage = LG_STAGE_backward, .ms = 25});
    fault(b, (struct sim_fault){.rank = 1, .stage = LG_STAGE_optimizer, .ms = 60, .from = 300});
    assert_kind(judge(b), LG_BACKWARD_STRAGGLER);
    assert_int_equal(b->d->verdict.steps.count, 400);
    assert_int_equal(b->d->windows[3].kind, LG_OPTIMIZER_STRAGGLER);
}

/* ---- doubt ---- */

static void a_rival_makes_it_ambiguous(void **state)
{
    struct bench *b = *state;
    const struct lg_verdict *v;

    /* rank 1 is late by 15 ms all the time, rank 3 by 40 ms in two steps of five */
    b->sim.ranks = 6;
    b->sim.steps = 101;
    fault(b, (struct sim_fault){.rank = 1, .stage = LG_STAGE_backward, .ms = 15});
    fault(b, (struct sim_fault){.rank = 3, .stage = LG_STAGE_backward, .ms = 40, .every = 5});
    fault(b, (struct sim_fault){
                 .rank = 3, .stage = LG_STAGE_backward, .ms = 40, .every = 5, .phase = 2});
    v = judge(b);
    assert_kind(v, LG_BACKWARD_STRAGGLER);
    assert_int_equal(v->rank, 1);
    assert_true(v->ambiguous);
    assert_true(b->d->findings[0].ambiguous);
    assert_true(says(v->next.text[0], "rank 3 is nearly as late as rank 1"));
}

/* ---- silence ---- */

static void no_time_in_collectives(void **state)
{
    struct bench *b = *state;
    const struct lg_verdict *v;

    b->sim.rows = SIM_NO_SYNC;
    fault(b, (struct sim_fault){.rank = 3, .stage = LG_STAGE_backward, .ms = 60});
    v = judge(b);
    assert_int_equal(v->rank, LG_NO_RANK); /* nothing is guessed */
    assert_int_equal(b->d->n_suspects, 0);
    assert_int_equal(b->d->frontier.n_stages, 0);
    assert_null(v->published_alone);
    b->fault[0].stage = LG_STAGE_forward; /* what the published policy sees stays */
    v = judge(b);
    assert_kind(v, LG_COMPUTE_STRAGGLER);
    assert_string_equal(lg_rule_name(v->rule), "published");
}

static void hole(struct lg_run *run)
{
    run->ranks[1].value[LG_COL_backward_sync_ns][30] = LG_NULL;
}

static void a_hole_in_the_measurement(void **state)
{
    struct bench *b = *state;
    bool noted = false;

    fault(b, (struct sim_fault){.rank = 3, .stage = LG_STAGE_backward, .ms = 60});
    assert_int_equal(judge_changed(b, hole)->rank, LG_NO_RANK);
    for (size_t i = 0; i < b->d->notes.n; i++)
        noted = noted || says(b->d->notes.text[i], "can't be told of the run as a whole");
    assert_true(noted);
    b->sim.steps = 400; /* windows without the hole are judged */
    assert_int_equal(judge_changed(b, hole)->rank, 3);
}

static void one_rank(void **state)
{
    struct bench *b = *state;

    b->sim.ranks = 1;
    fault(b, (struct sim_fault){.rank = 0, .stage = LG_STAGE_other, .ms = 300, .every = 10});
    assert_int_equal(judge(b)->rank, LG_NO_RANK);
    assert_int_equal(b->d->frontier.n_stages, 0);
    assert_int_equal(b->d->n_suspects, 0);
}

static void without_device_columns(struct lg_run *run)
{
    for (size_t r = 0; r < run->n_ranks; r++) {
        for (int c = LG_COL_gpu_dur_ns; c < LG_COLUMNS; c++) {
            free(run->ranks[r].value[c]);
            run->ranks[r].value[c] = NULL;
        }
    }
}

static void a_slow_device_that_is_not_observable(void **state)
{
    struct bench *b = *state;
    const struct lg_verdict *v;

    b->sim.rows = SIM_DEVICE;
    fault(b, (struct sim_fault){.rank = 2, .stage = LG_STAGE_forward, .ms = 12});
    fault(b, (struct sim_fault){.rank = 2, .stage = LG_STAGE_backward, .ms = 20});
    v = judge(b);
    assert_kind(v, LG_COMPUTE_STRAGGLER);
    assert_int_equal(v->rank, 2);
    v = judge_changed(b, without_device_columns);
    assert_int_equal(v->rank, LG_NO_RANK);
    assert_true(v->kind != LG_BALANCED);
    assert_int_equal(b->d->n_suspects, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(every_stage_has_its_kind),
        TEST(sentence_and_evidence),
        TEST(the_published_policy_alone),
        TEST(two_stages_together_are_computation),
        TEST(a_cause_that_is_not_clear),
        TEST(small_effects_are_not_named),
        TEST(step_gates),
        TEST(fsdp_is_at_most_a_warning),
        TEST(two_culprits),
        TEST(a_slow_host),
        TEST(late_onset),
        TEST(slow_for_a_while),
        TEST(persistent_says_since_when),
        TEST(rotating_imbalance),
        TEST(pauses_of_one_rank_after_the_other),
        TEST(sequences_of_different_length),
        TEST(transfer_that_costs),
        TEST(a_culprit_besides_a_slow_transfer),
        TEST(waiting_for_the_device_again_and_again),
        TEST(checkpoints_of_one_rank),
        TEST(rarely_but_much),
        TEST(once_is_told_but_not_accused),
        TEST(all_pause_together),
        TEST(epochs_that_begin_slowly),
        TEST(a_part_of_a_long_run),
        TEST(the_whole_run_comes_first),
        TEST(a_rival_makes_it_ambiguous),
        TEST(no_time_in_collectives),
        TEST(a_hole_in_the_measurement),
        TEST(one_rank),
        TEST(a_slow_device_that_is_not_observable),
    };

    return unit_run(tests);
}
