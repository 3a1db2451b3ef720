/*
 * test_frontier.c - where each ns of the step comes from: the exact identity on random windows, the
 * formula by its words, leaders, and what mending a rank would gain.
 */
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

#include "aggregator/arrival.h"
#include "aggregator/frontier.h"
#include "tests/unit/row_sim.h"

#define WINDOWS 10000

struct window {
    struct lg_run *run;
    struct lg_aligned *aligned;
    struct lg_cycles *cycles;
    struct lg_arrivals *arrivals;
    struct lg_frontier frontier;
};

/* False if nothing may be said about the run. */
static bool open_window(struct window *w, struct lg_run *run)
{
    struct lg_scope scope = {0};
    const char *abstain;

    memset(w, 0, sizeof(*w));
    w->run = run;
    w->aligned = lg_align(run, LG_NULL, LG_NULL);
    scope.aligned = w->aligned;
    scope.to = w->aligned->n_used;
    w->cycles = lg_cycles_new(w->aligned);
    w->arrivals = lg_arrivals_new(w->cycles, &scope, &abstain);
    if (w->arrivals) {
        lg_frontier_of(w->arrivals, &w->frontier);
    }
    return w->arrivals != NULL;
}

static void close_window(struct window *w)
{
    lg_arrivals_free(w->arrivals);
    lg_cycles_free(w->cycles);
    lg_aligned_free(w->aligned);
    lg_run_free(w->run);
}

/* Rows with any values at all, sync in every stage; nothing about them is plausible. */
static struct lg_run *random_rows(unsigned seed)
{
    struct sim random = {.random = seed * 7919u};
    struct lg_run *run = lg_run_new();
    int ranks = 2 + sim_below(&random, 6), rows = 3 + sim_below(&random, 12);
    bool after = sim_below(&random, 3), device = sim_below(&random, 3) == 0;
    int range = sim_below(&random, 2) ? 100000000 : 50;

    for (int r = 0; r < ranks; r++) {
        struct lg_rank *rank = lg_run_add_rank(run, r);

        for (int i = 0; i < rows; i++) {
            size_t row = lg_rank_append(rank, i);
            int64_t dur = 0;

            for (int s = 0; s < LG_STAGE_COUNT; s++) {
                int64_t wall = 1 + sim_below(&random, range);

                dur += wall;
                sim_set(rank, row, sim_columns[device].stage[s], wall);
                sim_set(rank, row, sim_columns[device].sync[s],
                        sim_below(&random, 2) ? sim_below(&random, (int)wall) : 0);
            }
            sim_set(rank, row, sim_columns[device].dur, dur);
            for (int c = 0; c < 3 && after; c++)
                sim_set(rank, row, sim_columns[device].after[c],
                        sim_below(&random, range) * (sim_below(&random, 2)));
        }
    }
    return run;
}

/* The formulas of the frontier over the cycles' parts. */
static void check_formula(struct window *w, unsigned seed)
{
    int64_t increment[LG_PART_COUNT] = {0}, transfer = 0, exposed = 0;

    for (size_t k = 0; k < w->arrivals->n; k++) {
        const struct lg_cycle_row *row = lg_cycle_rows(w->cycles, w->arrivals->first + k);
        int64_t least = INT64_MAX, before = 0;

        for (int p = 0; p < LG_PART_COUNT; p++) {
            int64_t front = 0;

            for (size_t r = 0; r < w->arrivals->n_ranks; r++) {
                int64_t sum = 0;

                for (int q = 0; q <= p; q++)
                    sum += row[r].part[q];
                front = sum > front ? sum : front;
            }
            increment[p] += front - before;
            before = front;
        }
        for (size_t r = 0; r < w->arrivals->n_ranks; r++) {
            int64_t sync = 0;

            for (int s = 0; s < LG_STAGE_COUNT; s++)
                sync += row[r].sync[s];
            least = sync < least ? sync : least;
        }
        transfer += least;
        exposed += before + least;
    }
    if (memcmp(increment, w->frontier.increment_ns, sizeof(increment)) != 0 ||
        transfer != w->frontier.transfer_ns || exposed != w->frontier.exposed_ns)
        fail_msg("seed %u: not what the formula gives", seed);
}

static void identity_on_random_windows(void **state)
{
    size_t judged = 0;

    (void)state;
    for (unsigned seed = 1; seed <= WINDOWS; seed++) {
        struct window w;
        int64_t sum;

        if (open_window(&w, random_rows(seed))) {
            sum = w.frontier.transfer_ns;
            for (int p = 0; p < LG_PART_COUNT; p++) {
                sum += w.frontier.increment_ns[p];
                if (w.frontier.increment_ns[p] < 0)
                    fail_msg("seed %u: %s has a negative increment", seed, lg_part_name(p));
            }
            if (sum != w.frontier.exposed_ns)
                fail_msg("seed %u: increments and transfer are not exposed", seed);
            check_formula(&w, seed);
            judged++;
        }
        close_window(&w);
    }
    assert_true(judged > WINDOWS * 9 / 10);
}

/* Of a training whose ranks really wait for each other, exposed is what the steps take. */
static void exposed_is_the_time_of_the_steps(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct sim s = sim_usual(2 + (int)seed % 5, 40, seed);
        struct window w;
        double sum = 0;

        s.jitter = 0.05;
        s.rows = seed % 2 ? SIM_HOST : SIM_DEVICE;
        assert_true(open_window(&w, sim_run(&s)));
        for (size_t k = 0; k < w.arrivals->n; k++)
            sum += (double)lg_cycles_duration(w.cycles, 0, lg_arrivals_iteration(w.arrivals, k));
        if (fabs((double)w.frontier.exposed_ns - sum) > 0.005 * sum)
            fail_msg("seed %d: exposed %.3f ms, steps %.3f ms", (int)seed,
                     (double)w.frontier.exposed_ns / 1e6, sum / 1e6);
        close_window(&w);
    }
}

static void leaders(void **state)
{
    struct sim s = sim_usual(4, 40, 7);
    struct sim_fault fault[] = {{.rank = 2, .stage = LG_STAGE_forward, .ms = 20}, {.ms = 0}};
    struct window w;

    (void)state;
    s.more = sim_faults;
    s.context = fault;
    assert_true(open_window(&w, sim_run(&s)));
    assert_string_equal(w.frontier.stage[LG_PART_forward], "forward");
    assert_int_equal(w.frontier.leader[LG_PART_input], LG_NO_RANK); /* together */
    assert_int_equal(w.frontier.leader[LG_PART_forward], 2);
    assert_int_equal(w.frontier.leader[LG_PART_backward], 2);
    close_window(&w);
}

static void leaders_within_half_a_millisecond_are_together(void **state)
{
    struct sim s = sim_usual(3, 40, 7);
    struct sim_fault fault[] = {{.rank = 2, .stage = LG_STAGE_forward, .ms = 0.3}, {.ms = 0}};
    struct window w;

    (void)state;
    s.jitter = 0;
    for (int i = 0; i < LG_STAGE_COUNT; i++)
        s.stage[i] /= 100; /* steps of a ms: 2 % of it are less than 0.3 ms */
    s.more = sim_faults;
    s.context = fault;
    assert_true(open_window(&w, sim_run(&s)));
    assert_int_equal(w.frontier.leader[LG_PART_optimizer], LG_NO_RANK);
    close_window(&w);
}

/* ---- what-if ---- */

static void gain_of_one_culprit(void **state)
{
    struct sim s = sim_usual(4, 40, 3);
    struct sim_fault fault[] = {{.rank = 1, .stage = LG_STAGE_backward, .ms = 20},
                                {.rank = 1, .stage = LG_STAGE_h2d, .ms = 10},
                                {.ms = 0}};
    struct window w;
    double time;

    (void)state;
    s.jitter = 0;
    s.more = sim_faults;
    s.context = fault;
    assert_true(open_window(&w, sim_run(&s)));
    assert_int_equal(w.arrivals->account[1].gain[LG_STAGE_backward], 40 * 20 * 1000000);
    assert_int_equal(w.arrivals->account[1].gain[LG_STAGE_h2d], 40 * 10 * 1000000);
    assert_int_equal(w.arrivals->account[1].gain_all, 40 * 30 * 1000000);
    assert_int_equal(w.arrivals->account[0].gain_all, 0);
    assert_int_equal(lg_gain_of_mending(w.arrivals, &(size_t){1}, 1, 10, 20, &time),
                     10 * 30 * 1000000);
    close_window(&w);
}

/* Of two equal culprits each hides the other's gain. */
static void gain_of_twins(void **state)
{
    struct sim s = sim_usual(5, 40, 3);
    struct sim_fault fault[] = {{.rank = 1, .stage = LG_STAGE_backward, .ms = 20},
                                {.rank = 3, .stage = LG_STAGE_backward, .ms = 20},
                                {.ms = 0}};
    struct window w;
    size_t both[] = {1, 3};
    double time;

    (void)state;
    s.jitter = 0;
    s.more = sim_faults;
    s.context = fault;
    assert_true(open_window(&w, sim_run(&s)));
    assert_int_equal(w.arrivals->account[1].gain_all, 0);
    assert_int_equal(lg_gain_of_mending(w.arrivals, &both[0], 1, 0, 40, &time), 0);
    assert_int_equal(lg_gain_of_mending(w.arrivals, both, 2, 0, 40, &time), 40 * 20 * 1000000);
    close_window(&w);
}

/* Never negative, never more than the cycle is exposed, and mending more gains no less. */
static void gains_on_random_windows(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 2000; seed++) {
        struct window w;

        if (open_window(&w, random_rows(seed))) {
            size_t all[8], n = w.arrivals->n_ranks;
            int64_t before = 0;
            double time;

            for (size_t r = 0; r < n; r++)
                all[r] = r;
            for (size_t m = 1; m <= n; m++) {
                int64_t gain = lg_gain_of_mending(w.arrivals, all, m, 0, w.arrivals->n, &time);

                if (gain < before || gain > w.frontier.exposed_ns)
                    fail_msg("seed %u: mending %zu ranks gains %lld ns", seed, m, (long long)gain);
                before = gain;
            }
        }
        close_window(&w);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(identity_on_random_windows),
        cmocka_unit_test(exposed_is_the_time_of_the_steps),
        cmocka_unit_test(leaders),
        cmocka_unit_test(leaders_within_half_a_millisecond_are_together),
        cmocka_unit_test(gain_of_one_culprit),
        cmocka_unit_test(gain_of_twins),
        cmocka_unit_test(gains_on_random_windows),
    };

    return unit_run(tests);
}
