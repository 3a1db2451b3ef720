/*
 * test_invariance.c - what may not change a verdict: the clocks of the hosts and the numbers of the
 * ranks, over many random windows. A failure tells the window's seed.
 */
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

#include "aggregator/diagnose.h"
#include "tests/unit/row_sim.h"

#define WINDOWS 10000

struct bench {
    struct sim sim;
    struct sim_fault fault[8];
};

static double rotate(struct sim *s, int rank, int step, enum lg_stage stage)
{
    return stage == LG_STAGE_input_wait && (step * 7 + step / 3) % s->ranks == rank ? 40 : 0;
}

/* A window of which the seed chooses size, kind of fault and jitter. */
static struct lg_run *random_window(unsigned seed, struct bench *b)
{
    static const double sizes[] = {0, 3, 15, 25, 60, 200};
    struct sim *s = &b->sim, draw = {.random = seed * 65537u};

    *s = sim_usual(2 + sim_below(&draw, 5), 12 + sim_below(&draw, 20), seed);
    s->jitter = 0.01 * (1 + sim_below(&draw, 5));
    s->rows = (enum sim_rows)sim_below(&draw, 3);
    s->more = sim_faults;
    s->context = b->fault;
    memset(b->fault, 0, sizeof(b->fault));
    for (int i = 0; i < sim_below(&draw, 4); i++) {
        int every = sim_below(&draw, 3) ? 0 : 2 + sim_below(&draw, 6);

        b->fault[i] = (struct sim_fault){.rank = sim_below(&draw, s->ranks),
                                         .stage = (enum lg_stage)sim_below(&draw, LG_STAGE_COUNT),
                                         .ms = sizes[1 + sim_below(&draw, 5)],
                                         .every = every,
                                         .phase = every ? sim_below(&draw, every) : 0,
                                         .from = sim_below(&draw, 12)};
    }
    if (sim_below(&draw, 6) == 0)
        s->more = rotate;
    return sim_run(s);
}

/* Everything that a verdict accuses of. */
static bool same_answer(const struct lg_diagnosis *x, const struct lg_diagnosis *y, int32_t rank)
{
    return x->verdict.kind == y->verdict.kind && rank == y->verdict.rank &&
           x->verdict.stage == y->verdict.stage && x->verdict.recurrence == y->verdict.recurrence &&
           x->verdict.period == y->verdict.period;
}

static void offset_clocks(struct lg_run *run)
{
    for (size_t r = 0; r < run->n_ranks; r++)
        for (size_t i = 0; i < run->ranks[r].n; i++)
            run->ranks[r].value[LG_COL_start_ns][i] +=
                r % 2 ? 5000000000 : -11560000000 * (int64_t)r;
}

/* One rank's clock is 100 ppm fast: all of its times, begins too. */
static void drift(struct lg_rank *rank)
{
#define UNIT_NS                            1
#define UNIT_COUNT                         0
#define UNIT_BYTES                         0
#define UNIT_SEQ                           0
#define UNIT_BITS                          0
#define COLUMN(name, table, unit, meaning) UNIT_##unit,
    static const int is_time[] = {
#include "schema/columns.def"
    };
#undef COLUMN

    for (int c = 0; c < LG_COLUMNS; c++)
        for (size_t i = 0; is_time[c] && rank->value[c] && i < rank->n; i++)
            if (rank->value[c][i] != LG_NULL)
                rank->value[c][i] += rank->value[c][i] / 10000;
}

static void check_clocks(struct bench *b, unsigned seed, size_t *flipped)
{
    struct lg_run *run = random_window(seed, b);
    struct lg_diagnosis *plain = lg_diagnose(run, NULL), *offset, *drifted;

    offset_clocks(run);
    offset = lg_diagnose(run, NULL);
    if (!same_answer(plain, offset, plain->verdict.rank) ||
        strcmp(plain->verdict.sentence, offset->verdict.sentence) != 0)
        fail_msg("seed %u: clock offsets change \"%s\" to \"%s\"", seed, plain->verdict.sentence,
                 offset->verdict.sentence);
    drift(&run->ranks[seed % run->n_ranks]);
    drifted = lg_diagnose(run, NULL);
    if (!same_answer(plain, drifted, plain->verdict.rank)) {
        print_message("seed %u: a drift of 100 ppm changes \"%s\" to \"%s\"\n", seed,
                      plain->verdict.sentence, drifted->verdict.sentence);
        (*flipped)++;
    }
    lg_diagnosis_free(plain);
    lg_diagnosis_free(offset);
    lg_diagnosis_free(drifted);
    lg_run_free(run);
}

/* A drift changes durations by 100 ppm: what sits on a threshold to four digits may fall. */
static void clocks_do_not_matter(void **state)
{
    struct bench bench;
    size_t flipped = 0;

    (void)state;
    for (unsigned seed = 1; seed <= WINDOWS; seed++)
        check_clocks(&bench, seed, &flipped);
    print_message("%zu of %d verdicts sat on a threshold\n", flipped, WINDOWS);
    assert_true(flipped <= WINDOWS / 1000);
}

static void numbers_of_ranks_do_not_matter(void **state)
{
    struct bench bench;
    size_t named = 0;

    (void)state;
    for (unsigned seed = 1; seed <= WINDOWS; seed++) {
        struct lg_run *run = random_window(seed, &bench);
        struct lg_diagnosis *plain = lg_diagnose(run, NULL), *other;
        int n = (int)run->n_ranks, shift = 1 + (int)seed % n;
        int32_t rank = plain->verdict.rank;

        for (int r = 0; r < n; r++) /* turned round and shifted */
            run->ranks[r].rank = (int32_t)((2 * n - 1 - r + shift) % n);
        lg_run_sort(run);
        other = lg_diagnose(run, NULL);
        named += rank != LG_NO_RANK;
        if (rank != LG_NO_RANK)
            rank = (int32_t)((2 * n - 1 - rank + shift) % n);
        if (!same_answer(plain, other, rank))
            fail_msg("seed %u: other numbers change \"%s\" to \"%s\"", seed,
                     plain->verdict.sentence, other->verdict.sentence);
        lg_diagnosis_free(plain);
        lg_diagnosis_free(other);
        lg_run_free(run);
    }
    assert_true(named > WINDOWS / 5 && named < WINDOWS);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(clocks_do_not_matter),
        cmocka_unit_test(numbers_of_ranks_do_not_matter),
    };

    return unit_run(tests);
}
