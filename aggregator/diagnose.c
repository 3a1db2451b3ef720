/*
 * diagnose.c - from a run's rows to a diagnosis (diagnose.h): aligns the ranks, lets the rules
 * speak and puts the answer together. Runs in the reading commands.
 */
#include "aggregator/diagnose.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/aligned.h"
#include "aggregator/cycles.h"
#include "aggregator/rules.h"

#define DEFAULT_WINDOW 100
#define LARGEST_WORLD  (1 << 20) /* a larger number is damage, not a run */

/* ---- which columns are read ---- */

bool lg_diagnose_needs(enum lg_column column)
{
    switch (column) {
    case LG_COL_start_ns:
    case LG_COL_h2d_overlapped:
    case LG_COL_launches:
    case LG_COL_hidden_input_ns:
    case LG_COL_minor_faults:
    case LG_COL_voluntary_switches:
    case LG_COL_n_backward:
        return false; /* evidence for `laggard sql` */
    default:
        return true;
    }
}

/* ---- ranks ---- */

static int by_number(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

/* Declared ranks: as listed, else 0..world-1. None: NULL and 0. Sorted, no rank twice. */
static int32_t *declared_ranks(const struct lg_run *run, size_t *n)
{
    int32_t *list;
    size_t kept = 0;

    *n = run->n_expected;
    if (*n == 0 && run->world > 0 && run->world <= LARGEST_WORLD)
        *n = (size_t)run->world;
    if (*n == 0)
        return NULL;
    list = lg_alloc(*n, sizeof(*list));
    for (size_t i = 0; i < *n; i++)
        list[i] = run->n_expected ? run->expected[i] : (int32_t)i;
    qsort(list, *n, sizeof(*list), by_number);
    for (size_t i = 0; i < *n; i++)
        if (kept == 0 || list[i] != list[kept - 1])
            list[kept++] = list[i];
    *n = kept;
    return list;
}

static void fill_ranks(struct lg_diagnosis *d, const struct lg_run *run, const int32_t *declared,
                       size_t n_declared)
{
    size_t s = 0;

    d->seen = lg_alloc(run->n_ranks, sizeof(*d->seen));
    for (size_t i = 0; i < run->n_ranks; i++)
        if (run->ranks[i].n > 0)
            d->seen[d->n_seen++] = run->ranks[i].rank;
    d->missing = lg_alloc(n_declared, sizeof(*d->missing));
    for (size_t i = 0; i < n_declared; i++) {
        while (s < d->n_seen && d->seen[s] < declared[i])
            s++;
        if (s == d->n_seen || d->seen[s] != declared[i])
            d->missing[d->n_missing++] = declared[i];
    }
}

/* The policy takes the ranks in its rows for all there are if none is declared: ranks with rows
 * that can't be given to it have to be declared then. */
static int32_t *expected_ranks(const struct lg_diagnosis *d, const struct lg_aligned *a, size_t *n)
{
    int32_t *list = declared_ranks(a->run, n);

    if (list || (a->n > 0 && a->n_misaligned == 0))
        return list;
    *n = d->n_seen;
    list = lg_alloc(d->n_seen, sizeof(*list));
    memcpy(list, d->seen, d->n_seen * sizeof(*list));
    return list;
}

static enum lg_strategy find_strategy(const struct lg_run *run)
{
    if (run->strategy)
        return lg_strategy_parse(run->strategy);
    for (size_t i = 0; i < run->n_ranks; i++)
        if (run->ranks[i].seen & LG_SEEN_FSDP)
            return LG_FSDP;
    return LG_DDP;
}

/* ---- scopes ---- */

struct lg_steps lg_scope_steps(const struct lg_scope *scope)
{
    const struct lg_aligned *a = scope->aligned;

    if (scope->from == scope->to)
        return (struct lg_steps){.first = LG_NULL, .last = LG_NULL};
    return (struct lg_steps){.first = a->step[a->used[scope->from]],
                             .last = a->step[a->used[scope->to - 1]],
                             .count = (int64_t)(scope->to - scope->from)};
}

/* The tumbling windows of a scope, *n of them; none if there is but one. */
static struct lg_judgement *judge_windows(const struct lg_scope *all, struct lg_cycles *cycles,
                                          size_t window, size_t *n)
{
    struct lg_judgement *list;

    *n = (all->to - all->from + window - 1) / window;
    if (*n < 2) /* that is the whole */
        *n = 0;
    list = lg_alloc(*n, sizeof(*list));
    for (size_t i = 0; i < *n; i++) {
        struct lg_scope scope = *all;

        scope.from = all->from + i * window;
        scope.to = scope.from + window < all->to ? scope.from + window : all->to;
        lg_judge(&scope, cycles, true, &list[i]);
    }
    return list;
}

/* What a window says for itself. */
static void fill_window(struct lg_window *w, const struct lg_judgement *j)
{
    const struct lg_finding *answer = lg_judgement_answer(j);
    enum lg_kind kind = j->published.kind;

    *w = (struct lg_window){
        .steps = lg_scope_steps(&j->scope),
        .clock = j->published.clock,
        .kind = lg_kind_is_straggler(kind) ? LG_BALANCED : kind,
        .rank = LG_NO_RANK,
        .score = (double)NAN,
    };
    if (!answer)
        return;
    w->kind = answer->kind;
    w->level = answer->level;
    w->rank = answer->rank;
    w->stage = answer->stage;
    w->score = answer->score;
}

static struct lg_steps aligned_steps(const struct lg_aligned *a)
{
    if (a->n == 0)
        return (struct lg_steps){.first = LG_NULL, .last = LG_NULL};
    return (struct lg_steps){
        .first = a->step[0], .last = a->step[a->n - 1], .count = (int64_t)a->n};
}

/* ---- the whole ---- */

static struct lg_diagnosis *new_diagnosis(const struct lg_run *run, size_t window)
{
    struct lg_diagnosis *d = lg_alloc(1, sizeof(*d));

    d->dir = run->dir ? lg_strdup(run->dir) : NULL;
    d->command = run->command ? lg_strdup(run->command) : NULL;
    d->running = run->running;
    d->outcome = run->outcome ? lg_strdup(run->outcome) : NULL;
    d->failed = run->failed;
    d->exit_status = run->exit_status;
    d->signal = run->signal;
    for (size_t i = 0; i < run->n_ranks; i++)
        if (run->ranks[i].attempts > d->attempts)
            d->attempts = run->ranks[i].attempts;
    for (size_t i = 0; i < run->n_notes; i++)
        lg_texts_add(&d->notes, lg_strdup(run->notes[i]));
    d->world = run->world;
    d->strategy = find_strategy(run);
    d->window = window ? window : DEFAULT_WINDOW;
    d->frontier.transfer_ns = d->frontier.exposed_ns = LG_NULL;
    return d;
}

static void fill_windows(struct lg_diagnosis *d, const struct lg_judgement *whole,
                         const struct lg_judgement *window, size_t n)
{
    d->windows = lg_alloc(n + 1, sizeof(*d->windows));
    for (; d->n_windows < n; d->n_windows++)
        fill_window(&d->windows[d->n_windows], &window[d->n_windows]);
    if (n == 0 && whole->scope.to > whole->scope.from)
        fill_window(&d->windows[d->n_windows++], whole);
}

/* The published policy alone, over the last window's worth of steps. */
static void judge_last(struct lg_diagnosis *d, const struct lg_scope *all)
{
    struct lg_scope last = *all;

    if (all->to - all->from > d->window)
        last.from = all->to - d->window;
    lg_published_run(&last, &d->published);
    d->published_steps = lg_scope_steps(&last);
    d->compute_wait_share = lg_compute_wait_share(&last, &d->published);
    d->clock = d->published.clock;
}

/* The verdict and all that explains it, from the judgement that the report is about. */
static void answer(struct lg_diagnosis *d, struct lg_judgement *j, const struct lg_scope *all)
{
    struct lg_observed observed;

    lg_observe(all, &j->published, d, &observed);
    lg_decide(d, j, &observed);
    d->verdict.sentence = lg_sentence(d, j, &observed);
    lg_advise(d, all->aligned->run);
    lg_observed_free(&observed);
}

static void judge(struct lg_diagnosis *d, const struct lg_scope *all)
{
    struct lg_cycles *cycles = lg_cycles_new(all->aligned);
    struct lg_judgement *window, whole;
    size_t n;

    judge_last(d, all);
    lg_means(all->aligned, d);
    window = judge_windows(all, cycles, d->window, &n);
    lg_judge(all, cycles, false, &whole);
    fill_windows(d, &whole, window, n);
    answer(d, lg_choose_scope(&whole, window, n, d->window, cycles), all);
    lg_note_arrivals(d, cycles, &whole);
    for (size_t i = 0; i < n; i++)
        lg_judgement_free(&window[i]);
    free(window);
    lg_judgement_free(&whole);
    lg_cycles_free(cycles);
}

struct lg_diagnosis *lg_diagnose(const struct lg_run *run,
                                 const struct lg_diagnose_options *options)
{
    static const struct lg_diagnose_options defaults = {.first_step = LG_NULL,
                                                        .last_step = LG_NULL};
    const struct lg_diagnose_options *o = options ? options : &defaults;
    struct lg_diagnosis *d = new_diagnosis(run, o->window);
    struct lg_aligned *a = lg_align(run, o->first_step, o->last_step);
    struct lg_scope all = {.aligned = a, .to = a->n_used, .strategy = d->strategy};
    size_t n_declared;
    int32_t *declared = declared_ranks(run, &n_declared), *expected;

    fill_ranks(d, run, declared, n_declared);
    d->one_process = !run->strategy && d->strategy == LG_DDP && d->n_seen + d->n_missing <= 1;
    d->steps = aligned_steps(a);
    expected = expected_ranks(d, a, &all.n_expected);
    all.expected = expected;
    judge(d, &all);
    free(declared);
    free(expected);
    lg_aligned_free(a);
    return d;
}

void lg_diagnosis_free(struct lg_diagnosis *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < d->n_findings; i++)
        lg_finding_free(&d->findings[i]);
    for (size_t i = 0; i < d->n_coverage; i++)
        free(d->coverage[i].why);
    for (size_t i = 0; i < d->n_losses; i++)
        free(d->losses[i].text);
    lg_texts_free(&d->verdict.next);
    lg_texts_free(&d->notes);
    lg_policy_result_free(&d->published);
    free(d->verdict.sentence);
    free(d->verdict.published_alone);
    free(d->findings);
    free(d->suspects);
    free(d->windows);
    free(d->means);
    free(d->coverage);
    free(d->losses);
    free(d->seen);
    free(d->missing);
    free(d->dir);
    free(d->command);
    free(d->outcome);
    free(d);
}
