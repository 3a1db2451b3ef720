/*
 * attribution_sim.c - simulated trainings with a known truth, many of each kind, and what the
 * diagnosis makes of them: how small an effect is named and how large one is not missed, balanced
 * runs, runs in which nobody is to blame, and every way in which a culprit recurs.
 *
 *     attribution-sim [--full] [--verbose] [NAME...]
 *
 * Without --full a part of the sweep that takes seconds. Prints counts per group and every miss
 * with its seed; ends with "N passed, N failed". Deterministic. Context: test program.
 */
#include <inttypes.h>
#include <stdio.h>

#include "aggregator/diagnose.h"
#include "tests/unit/row_sim.h"

static bool full, verbose;
static int passed, failed;
static char **only;

static const int worlds[] = {2, 3, 5, 8, 32};
static const int windows[] = {25, 50, 100, 200};
#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* What a run is to answer. */
struct truth {
    bool nobody; /* no rank named; else: */
    int rank;
    int twin; /* -1, or another rank that may be named as well */
    enum lg_blame stage;
    enum lg_recurrence recurrence; /* NONE: any */
    enum lg_kind kind;             /* LG_KIND_COUNT: any */
};

struct tally {
    const char *name;
    int runs, right, named, suspect_first, suspect_second;
};

/* ---- runs ---- */

static struct lg_diagnosis *diagnose(struct sim *s, size_t window)
{
    struct lg_diagnose_options options = {
        .window = window, .first_step = LG_NULL, .last_step = LG_NULL};
    struct lg_run *run = sim_run(s);
    struct lg_diagnosis *d = lg_diagnose(run, &options);

    lg_run_free(run);
    return d;
}

static bool is_suspect(const struct lg_diagnosis *d, size_t i, const struct truth *t)
{
    return i < d->n_suspects && d->suspects[i].rank == t->rank && d->suspects[i].stage == t->stage;
}

static bool is_right(const struct lg_diagnosis *d, const struct truth *t)
{
    const struct lg_verdict *v = &d->verdict;

    if (t->kind != LG_KIND_COUNT && v->kind != t->kind)
        return false;
    if (t->nobody)
        return v->rank == LG_NO_RANK;
    return (v->rank == t->rank || (t->twin >= 0 && v->rank == t->twin)) && v->stage == t->stage &&
           (t->recurrence == LG_RECURRENCE_NONE || v->recurrence == t->recurrence);
}

static void tell(const struct lg_diagnosis *d, const struct sim *s, const char *name,
                 const char *what)
{
    printf("  %s %s: seed %" PRIu64 ", %d ranks, %d steps: %s%s%s\n", what, name, s->seed, s->ranks,
           s->steps, lg_kind_name(d->verdict.kind), d->verdict.level ? ": " : "",
           d->verdict.sentence);
}

/* One run against its truth. */
static bool try(struct sim *s, const struct truth *t, struct tally *tally)
{
    struct lg_diagnosis *d = diagnose(s, 1000);
    bool right = is_right(d, t);

    tally->runs++;
    tally->right += right;
    tally->named += d->verdict.rank != LG_NO_RANK;
    if (!t->nobody) {
        tally->suspect_first += is_suspect(d, 0, t);
        tally->suspect_second += is_suspect(d, 0, t) || is_suspect(d, 1, t);
    }
    if (!right || verbose)
        tell(d, s, tally->name, right ? "right" : "miss");
    lg_diagnosis_free(d);
    return right;
}

static void result(const char *name, bool holds, const char *detail)
{
    printf("%s  %s: %s\n", holds ? "ok  " : "FAIL", name, detail);
    passed += holds;
    failed += !holds;
}

/* At least `percent` of the runs are right. */
static void conclude(const struct tally *t, double percent)
{
    char *text = lg_format("%d of %d right (at least %.0f %%)", t->right, t->runs, percent);

    result(t->name, t->runs > 0 && 100.0 * t->right >= percent * t->runs, text);
    free(text);
}

static bool wanted(const char *name)
{
    if (!only[0])
        return true;
    for (int i = 0; only[i]; i++)
        if (strstr(name, only[i]))
            return true;
    return false;
}

/* ---- trainings ---- */

/* A usual training of another shape each time. */
static struct sim random_training(int ranks, int cycles, uint64_t seed)
{
    static const double jitters[] = {0.01, 0.02, 0.03, 0.04};
    struct sim s = sim_usual(ranks, cycles, seed);
    double scale;

    s.random = seed * 77 + 5;
    s.stage[LG_STAGE_input_wait] = 1 + 4 * sim_uniform(&s);
    s.stage[LG_STAGE_h2d] = 4 * sim_uniform(&s);
    s.stage[LG_STAGE_forward] = 15 + 25 * sim_uniform(&s);
    s.stage[LG_STAGE_backward] = 25 + 35 * sim_uniform(&s);
    s.stage[LG_STAGE_optimizer] = 2 + 12 * sim_uniform(&s);
    s.stage[LG_STAGE_other] = 1 + 4 * sim_uniform(&s);
    s.transfer = 1 + 5 * sim_uniform(&s);
    s.tail = 0.2 * sim_uniform(&s);
    s.jitter = jitters[sim_below(&s, COUNT(jitters))];
    s.rows = (enum sim_rows)sim_below(&s, 3);
    scale = pow(10, 1 - 2 * sim_uniform(&s)); /* steps of 10 ms to 1 s */
    for (int i = 0; i < LG_STAGE_COUNT; i++)
        s.stage[i] *= scale;
    s.transfer *= scale;
    return s;
}

static enum lg_blame blame_of(enum lg_stage stage)
{
    static const enum lg_blame blame[LG_STAGE_COUNT] = {LG_BLAME_INPUT,     LG_BLAME_H2D,
                                                        LG_BLAME_FORWARD,   LG_BLAME_BACKWARD,
                                                        LG_BLAME_OPTIMIZER, LG_BLAME_HOST};

    return blame[stage];
}

static struct truth culprit(int rank, enum lg_stage stage)
{
    return (struct truth){
        .rank = rank, .twin = -1, .stage = blame_of(stage), .kind = LG_KIND_COUNT};
}

static const struct truth nobody = {.nobody = true, .kind = LG_KIND_COUNT};

/* ---- effect ladder ---- */

static void ladder(void)
{
    static const int percents[] = {2, 5, 8, 10, 12, 20, 50};

    for (int p = 0; p < COUNT(percents); p++) {
        char *name = lg_format("ladder, %d %% of the step", percents[p]);
        struct tally t = {.name = name};

        for (int w = 0; w < COUNT(worlds); w++) {
            for (int n = 0; n < COUNT(windows); n++) {
                int runs = worlds[w] == 32 ? (full ? 12 : 2) : full ? 60 : 6;

                for (int i = 0; i < runs; i++) {
                    struct sim s = random_training(worlds[w], windows[n],
                                                   (uint64_t)(1000 * p + 100 * w + 20 * n) * 100 +
                                                       (uint64_t)i);
                    struct sim_fault fault[2] = {
                        {.rank = sim_below(&s, s.ranks), .stage = (enum lg_stage)sim_below(&s, 6)},
                        {.ms = 0}};
                    struct truth truth = culprit(fault[0].rank, fault[0].stage);

                    fault[0].ms = sim_step_ms(&s) * percents[p] / 100;
                    s.more = sim_faults;
                    s.context = fault;
                    if (percents[p] < 10) /* nothing may be named */
                        truth = nobody;
                    if (percents[p] == 10) /* either is fair, but not somebody else */
                        truth.stage = LG_BLAME_COUNT;
                    try(&s, &truth, &t);
                }
            }
        }
        if (percents[p] == 10) {
            char *text = lg_format("%d of %d named", t.named, t.runs);

            result(name, true, text);
            free(text);
        } else {
            conclude(&t, percents[p] == 12 ? 95 : 100);
        }
        if (percents[p] >= 20) {
            char *text = lg_format("first suspect %d, among the first two %d, of %d",
                                   t.suspect_first, t.suspect_second, t.runs);

            result(name, t.suspect_second == t.runs && 50 * t.suspect_first >= 49 * t.runs, text);
            free(text);
        }
        free(name);
    }
}

/* ---- balanced ---- */

static void balanced(void)
{
    int runs = full ? 400 : 100, critical = 0, warning = 0;
    char *text;

    for (int i = 0; i < runs; i++) {
        struct sim s = random_training(worlds[i % 4], windows[i / 4 % 4], 900000 + (uint64_t)i);
        struct lg_diagnosis *d = diagnose(&s, 1000);

        critical += d->verdict.level == LG_LEVEL_CRITICAL;
        warning += d->verdict.level == LG_LEVEL_WARNING;
        if (d->verdict.level >= LG_LEVEL_WARNING)
            tell(d, &s, "balanced", "miss");
        lg_diagnosis_free(d);
    }
    text = lg_format("%d runs: %d critical (none allowed), %d warnings (1 in 100 allowed)", runs,
                     critical, warning);
    result("balanced", critical == 0 && 100 * warning <= runs, text);
    free(text);
}

/* ---- nobody to blame ---- */

/* What a control or a pattern needs besides the simulation. */
struct plan {
    struct sim_fault fault[8];
    double size; /* ms */
    int period, chosen;
    double *length; /* work of a rank this step, as a part of the usual */
    bool *event;    /* [step] */
};

static double rotate_every_step(struct sim *s, int rank, int step, enum lg_stage stage)
{
    struct plan *p = s->context;

    if (rank == 0 && stage == 0)
        p->chosen = sim_below(s, s->ranks);
    return rank == p->chosen && stage == (enum lg_stage)p->fault[0].stage && step % p->period == 0
               ? p->size
               : 0;
}

static double in_turn(struct sim *s, int rank, int step, enum lg_stage stage)
{
    struct plan *p = s->context;

    return stage == LG_STAGE_other && step % p->period == 0 && step / p->period % s->ranks == rank
               ? p->size
               : 0;
}

/* Log-normal lengths: forward and backward follow. */
static double lengths(struct sim *s, int rank, int step, enum lg_stage stage)
{
    struct plan *p = s->context;

    (void)step;
    if (stage == 0)
        p->length[rank] = exp(0.35 * sim_normal(s)) - 1;
    return stage == LG_STAGE_forward || stage == LG_STAGE_backward
               ? p->length[rank] * s->stage[stage]
               : 0;
}

static void write_length(struct sim *s, struct lg_rank *rank, size_t row)
{
    struct plan *p = s->context;

    sim_set(rank, row, LG_COL_h2d_bytes, (int64_t)(1e6 * (1 + p->length[rank->rank])));
}

/* Any rank may pause in any step. */
static double stray(struct sim *s, int rank, int step, enum lg_stage stage)
{
    struct plan *p = s->context;
    double ms = stage == LG_STAGE_other && sim_uniform(s) < 0.01 ? p->size : 0;

    for (const struct sim_fault *f = p->fault; f->ms != 0; f++)
        ms += f->rank == rank && f->stage == stage ? f->ms : 0;
    (void)step;
    return ms;
}

static double planned(struct sim *s, int rank, int step, enum lg_stage stage)
{
    struct plan *p = s->context;
    double ms;

    s->context = p->fault;
    ms = sim_faults(s, rank, step, stage);
    s->context = p;
    return ms;
}

static void hidden_loader(struct sim *s, struct lg_rank *rank, size_t row)
{
    (void)s;
    sim_set(rank, row, LG_COL_hidden_input_ns, rank->rank == 1 ? 90000000 : 20000000);
}

static void clock_offset(struct sim *s, struct lg_rank *rank, size_t row)
{
    (void)s;
    rank->value[LG_COL_start_ns][row] += rank->rank % 2 ? -11560000000 : 5000000000;
}

static void epoch_flags(struct sim *s, struct lg_rank *rank, size_t row)
{
    (void)s;
    sim_set(rank, row, LG_COL_flags, row % 20 == 0 ? LG_FLAG_epoch_start : 0);
}

#define U(x) ((x)*step)

/* X(name, what happens; the usual step is `step` ms, the plan p, the simulation s) */
#define CONTROLS(X)                                                                                \
    X("natural jitter", s.jitter = 0.04)                                                           \
    X("rough jitter of a small world", s.jitter = 0.08)                                            \
    X("uneven but hidden loader work", s.decorate = hidden_loader)                                 \
    X("slow input everywhere", s.stage[LG_STAGE_input_wait] += U(0.8))                             \
    X("slow input everywhere, unsteady", s.stage[LG_STAGE_input_wait] += U(0.8); s.common = 0.3)   \
    X("delay rotates every step", s.more = rotate_every_step; p.size = U(0.5); p.period = 1)       \
    X("delay rotates every other step", s.more = rotate_every_step; p.size = U(0.8); p.period = 2) \
    X("a pause in turn every 13 steps", s.more = in_turn; p.size = U(4); p.period = 13)            \
    X("one spike", F(1, forward, 50, .every = 1000, .phase = 40))                                  \
    X("one spike on each of two ranks", F(1, forward, 9, .every = 1000, .phase = 40);              \
      F(0, other, 12, .every = 1000, .phase = 17))                                                 \
    X("two spikes", F(1, backward, 12, .every = 1000, .phase = 11);                                \
      F(1, backward, 12, .every = 1000, .phase = 50))                                              \
    X("warm-up", F(-1, forward, 100, .to = 5))                                                     \
    X("first read of one rank", F(1, input_wait, 30, .to = 1))                                     \
    X("slow collective, equal arrival", s.transfer += U(0.8))                                      \
    X("all pause together every 10 steps", F(-1, other, 3, .every = 10, .phase = 4))               \
    X("all pause together once", F(-1, other, 20, .every = 1000, .phase = 30))                     \
    X("epochs begin slowly, flagged", F(-1, input_wait, 15, .every = 20);                          \
      s.decorate = epoch_flags)                                                                    \
    X("epochs begin slowly, not flagged", F(-1, input_wait, 15, .every = 20))                      \
    X("clock offsets of seconds", s.decorate = clock_offset)                                       \
    X("sequences of different length", s.more = lengths; s.decorate = write_length)                \
    X("stray pauses", s.more = stray; p.size = U(2))                                               \
    X("recompilation everywhere", F(-1, forward, 30, .every = 1000, .phase = 25))                  \
    X("a skew of 4 %", F(1, forward, 0.04, .to = 0))                                               \
    X("a tenth of the steps a little late", F(1, backward, 0.5, .every = 10, .phase = 3))          \
    X("slow backward without time in collectives", F(1, backward, 0.5, .to = 0);                   \
      s.rows = SIM_NO_SYNC)                                                                        \
    X("all equally slow in backward", F(-1, backward, 0.5, .to = 0))                               \
    X("device: slow everywhere", F(-1, backward, 0.5, .to = 0); s.rows = SIM_DEVICE)

static struct sim_fault *next_fault(struct plan *p)
{
    int i = 0;

    while (p->fault[i].ms != 0)
        i++;
    return &p->fault[i];
}

#define F(who, where, size, ...)                                                                   \
    s.more = planned;                                                                              \
    *next_fault(&p) = (struct sim_fault)                                                           \
    {                                                                                              \
        .rank = (who), .stage = LG_STAGE_##where, .ms = U(size), __VA_ARGS__                       \
    }

static void controls(void)
{
    static const int sizes[] = {2, 4, 8};
    int runs = full ? 40 : 4, groups = 0, clean = 0, named = 0, all = 0;
    char *text;

#define CONTROL(title, happens)                                                                    \
    {                                                                                              \
        struct tally t = {.name = title};                                                          \
        for (int i = 0; i < runs * COUNT(sizes); i++) {                                            \
            struct sim s = random_training(sizes[i % COUNT(sizes)], i % 2 ? 60 : 119,              \
                                           (uint64_t)(i + 1000 * groups + 500000));                \
            struct plan p = {.length = lg_alloc((size_t)s.ranks, sizeof(double))};                 \
            double step = sim_step_ms(&s);                                                         \
            s.context = &p;                                                                        \
            happens;                                                                               \
            (void)step;                                                                            \
            try(&s, &nobody, &t);                                                                  \
            free(p.length);                                                                        \
        }                                                                                          \
        groups++;                                                                                  \
        clean += t.right == t.runs;                                                                \
        named += t.named;                                                                          \
        all += t.runs;                                                                             \
    }
    CONTROLS(CONTROL)
    text = lg_format("%d kinds of runs without a culprit, %d of them never named one; a rank was "
                     "named in %d of %d runs",
                     groups, clean, named, all);
    result("controls", clean == groups, text);
    free(text);
}

/* ---- patterns ---- */

static double on_events(struct sim *s, int rank, int step, enum lg_stage stage)
{
    struct plan *p = s->context;

    return rank == p->fault[0].rank && stage == p->fault[0].stage && p->event[step] ? p->size : 0;
}

/* `count` steps of steps - 1, never the first, not two in a row. */
static void choose_events(struct sim *s, bool *event, int count)
{
    while (count > 0) {
        int k = 2 + sim_below(s, s->steps - 3);

        if (event[k] || event[k - 1] || event[k + 1])
            continue;
        event[k] = true;
        count--;
    }
}

static json_int_t evidence(const struct lg_diagnosis *d, const char *key)
{
    return json_integer_value(json_object_get(d->findings[0].evidence, key));
}

/* One run of the pattern with culprit, steps and size drawn from the seed; true if right. */
typedef void (*pattern)(struct sim *s, struct plan *p, struct truth *t);

static struct truth draw(struct sim *s, struct plan *p)
{
    p->fault[0] = (struct sim_fault){.rank = sim_below(s, s->ranks),
                                     .stage = (enum lg_stage)sim_below(s, LG_STAGE_COUNT)};
    return culprit(p->fault[0].rank, p->fault[0].stage);
}

static void late_onset(struct sim *s, struct plan *p, struct truth *t)
{
    *t = draw(s, p);
    t->recurrence = LG_RECURRENCE_PERSISTENT;
    p->fault[0].ms = sim_step_ms(s) * (0.3 + 0.4 * sim_uniform(s));
    p->fault[0].from = s->steps / 5 + sim_below(s, s->steps / 3);
    s->more = planned;
}

static void until(struct sim *s, struct plan *p, struct truth *t)
{
    *t = draw(s, p);
    t->recurrence = LG_RECURRENCE_PERSISTENT;
    p->fault[0].ms = sim_step_ms(s) * (0.3 + 0.4 * sim_uniform(s));
    p->fault[0].to = s->steps * 4 / 5 - sim_below(s, s->steps / 5);
    s->more = planned;
}

static void periodic(struct sim *s, struct plan *p, struct truth *t)
{
    int most = (s->steps - 1) / 4 < 25 ? (s->steps - 1) / 4 : 25;

    *t = draw(s, p);
    t->recurrence = LG_RECURRENCE_PERIODIC;
    p->period = p->fault[0].every = 2 + sim_below(s, most - 1);
    p->fault[0].phase = sim_below(s, p->period);
    p->fault[0].ms = sim_step_ms(s) * p->period * (0.2 + 0.2 * sim_uniform(s));
    s->more = planned;
}

static void sparse(struct sim *s, struct plan *p, struct truth *t)
{
    int count = 3 + sim_below(s, s->steps / 20 + 1);

    *t = draw(s, p);
    t->recurrence = LG_RECURRENCE_SPARSE;
    choose_events(s, p->event, count);
    p->size = sim_step_ms(s) * s->steps / count * (0.2 + 0.2 * sim_uniform(s));
    s->more = on_events;
}

static void rotating(struct sim *s, struct plan *p, struct truth *t)
{
    *t = draw(s, p);
    *t = (struct truth){.nobody = true, .kind = LG_IMBALANCE};
    p->size = sim_step_ms(s) * (0.25 + 0.5 * sim_uniform(s));
    p->period = 1;
    s->more = rotate_every_step;
}

static void twins(struct sim *s, struct plan *p, struct truth *t)
{
    *t = draw(s, p);
    p->fault[0].ms = sim_step_ms(s) * (0.3 + 0.3 * sim_uniform(s));
    p->fault[1] = p->fault[0];
    t->twin = p->fault[1].rank = (p->fault[0].rank + 1 + sim_below(s, s->ranks - 1)) % s->ranks;
    s->more = planned;
}

static void slow_transfer(struct sim *s, struct plan *p, struct truth *t)
{
    (void)p;
    *t = (struct truth){.nobody = true, .kind = LG_COMM_BOUND};
    s->transfer += sim_step_ms(s) * (0.3 + 0.7 * sim_uniform(s));
}

static void slow_input(struct sim *s, struct plan *p, struct truth *t)
{
    (void)p;
    *t = (struct truth){.nobody = true, .kind = LG_INPUT_BOUND};
    s->stage[LG_STAGE_input_wait] += sim_step_ms(s) * (0.3 + 0.7 * sim_uniform(s));
}

static void with_stray_pauses(struct sim *s, struct plan *p, struct truth *t)
{
    *t = draw(s, p);
    t->recurrence = LG_RECURRENCE_PERSISTENT;
    p->fault[0].ms = sim_step_ms(s) * (0.25 + 0.4 * sim_uniform(s));
    p->size = 2 * sim_step_ms(s);
    s->more = stray;
}

static void throttled(struct sim *s, struct plan *p, struct truth *t)
{
    *t = draw(s, p);
    t->stage = LG_BLAME_FORWARD_BACKWARD;
    t->kind = LG_COMPUTE_STRAGGLER;
    s->stage[LG_STAGE_forward] = 0.5 * s->stage[LG_STAGE_backward];
    for (int i = 0; i < 2; i++) {
        enum lg_stage stage = i ? LG_STAGE_backward : LG_STAGE_forward;

        p->fault[i] =
            (struct sim_fault){.rank = t->rank, .stage = stage, .ms = 0.4 * s->stage[stage]};
    }
    s->more = planned;
}

static void in_pauses(struct sim *s, struct plan *p, struct truth *t)
{
    *t = (struct truth){.nobody = true, .kind = LG_IMBALANCE};
    p->period = 3 + sim_below(s, 6);
    p->size = sim_step_ms(s) * p->period * (0.3 + 0.4 * sim_uniform(s));
    s->more = in_turn;
}

static void all_pause(struct sim *s, struct plan *p, struct truth *t)
{
    *t = (struct truth){.nobody = true, .kind = LG_HOST_PERIODIC};
    p->period = 4 + sim_below(s, (s->steps - 1) / 5 - 3);
    p->fault[0] = (struct sim_fault){.rank = -1,
                                     .stage = LG_STAGE_backward,
                                     .ms = sim_step_ms(s) * p->period * 0.25 + sim_step_ms(s),
                                     .every = p->period,
                                     .phase = sim_below(s, p->period)};
    s->more = planned;
}

/* What else the answer has to say. */
static bool details(const struct lg_diagnosis *d, const struct sim *s, const struct plan *p,
                    pattern make)
{
    if (make == late_onset || make == until) {
        bool since = make == late_onset;
        int want = since ? p->fault[0].from : p->fault[0].to - 1;
        json_int_t got = evidence(d, since ? "since_step" : "until_step");

        return s->steps < 50 || llabs(got - want) <= 2;
    }
    if (make == periodic || make == all_pause)
        return d->verdict.period == p->period;
    if (make == sparse)
        return d->verdict.level == LG_LEVEL_WARNING;
    if (make == twins) /* both are findings */
        return d->n_findings > 1 &&
               d->findings[0].rank + d->findings[1].rank == p->fault[0].rank + p->fault[1].rank;
    return true;
}

static void run_pattern(const char *name, pattern make, int fewest_ranks, int fewest_steps,
                        double percent)
{
    struct tally t = {.name = name};
    char *also = lg_format("%s: what else it says", name), *text;
    int said = 0;

    for (int w = 0; w < COUNT(worlds) && wanted(name); w++) {
        for (int n = 0; n < COUNT(windows); n++) {
            int runs = worlds[w] == 32 ? (full ? 8 : 1) : full ? 50 : 4;

            for (int i = 0; i < runs; i++) {
                struct sim s =
                    random_training(worlds[w], windows[n], (uint64_t)(w * 100000 + n * 10000 + i));
                struct plan p = {.event = lg_alloc((size_t)s.steps + 2, sizeof(bool))};
                struct truth truth;
                struct lg_diagnosis *d;
                bool fine;

                s.context = &p;
                make(&s, &p, &truth);
                if (worlds[w] >= fewest_ranks && windows[n] >= fewest_steps) {
                    try(&s, &truth, &t);
                    d = diagnose(&s, 1000);
                    fine = !is_right(d, &truth) || details(d, &s, &p, make);
                    said += fine;
                    if (!fine)
                        tell(d, &s, name, "detail");
                    lg_diagnosis_free(d);
                }
                free(p.event);
            }
        }
    }
    if (t.runs > 0) {
        conclude(&t, percent);
        text = lg_format("%d of %d", said, t.runs);
        result(also, 100 * said >= 98 * t.runs, text);
        free(text);
    }
    free(also);
}

/* X(name, function, fewest ranks, fewest steps, right at least, %) */
#define PATTERNS(X)                                                                                \
    X("late onset", late_onset, 2, 50, 100)                                                        \
    X("slow until a step", until, 2, 50, 100)                                                      \
    X("periodic", periodic, 2, 25, 98)                                                             \
    X("sparse", sparse, 2, 50, 96)                                                                 \
    X("rotating every step", rotating, 2, 25, 98)                                                  \
    X("pauses in turn", in_pauses, 2, 50, 95)                                                      \
    X("twin culprits", twins, 5, 25, 100)                                                          \
    X("throttled device", throttled, 2, 25, 98)                                                    \
    X("culprit among stray pauses", with_stray_pauses, 2, 25, 98)                                  \
    X("all pause together", all_pause, 2, 25, 95)                                                  \
    X("slow transfer", slow_transfer, 2, 25, 100)                                                  \
    X("slow input everywhere", slow_input, 2, 25, 100)

int main(int argc, char **argv)
{
    only = argv + 1;
    for (; *only && only[0][0] == '-'; only++) {
        full |= strcmp(*only, "--full") == 0;
        verbose |= strcmp(*only, "--verbose") == 0;
    }
    (void)argc;
    if (wanted("ladder"))
        ladder();
    if (wanted("balanced"))
        balanced();
    if (wanted("controls"))
        controls();
#define PATTERN(name, make, ranks, steps, percent) run_pattern(name, make, ranks, steps, percent);
    PATTERNS(PATTERN)
    printf("%d passed, %d failed\n", passed, failed);
    return failed ? 1 : 0;
}
