/*
 * verdict_merge.c - both policies over one scope: all rules, their findings pooled and in order;
 * and which scope the report is about: the whole run, else windows that agree. Runs in the reading
 * commands.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/accuse.h"
#include "aggregator/frontier.h"
#include "aggregator/rules.h"

#define SUSPECTS      10    /* of more the rest is noise */
#define SUSPECT_SHARE 0.005 /* of the time */
#define MUCH_DEARER   2

/* Rules that exclude each other: the first that finds something speaks. */
static bool (*const exclusive[])(struct lg_judgement *j) = {
    lg_rule_uneven,   lg_rule_persistent, lg_rule_stretch, lg_rule_imbalance,
    lg_rule_rotating, lg_rule_periodic,   lg_rule_pauses,  lg_rule_sparse,
};

/* Rules that always speak, in the order in which findings of equal weight stand. */
static void (*const always[])(struct lg_judgement *j) = {
    lg_rule_published,
    lg_rule_comm_bound,
    lg_rule_sync_bound,
};

/* ---- suspects ---- */

static int by_lateness(const void *a, const void *b)
{
    const struct lg_suspect *x = a, *y = b;

    if (x->late_ns_per_step != y->late_ns_per_step)
        return x->late_ns_per_step < y->late_ns_per_step ? 1 : -1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return (x->stage > y->stage) - (x->stage < y->stage);
}

static void add_suspect(struct lg_judgement *j, size_t rank, enum lg_blame stage, double late,
                        int64_t gain)
{
    const struct lg_arrivals *a = j->arrivals;

    if (late < SUSPECT_SHARE * a->time_ns)
        return;
    j->suspects = lg_realloc(j->suspects, j->n_suspects + 1, sizeof(*j->suspects));
    j->suspects[j->n_suspects++] = (struct lg_suspect){
        .rank = lg_arrivals_rank(a, rank),
        .stage = stage,
        .late_ns_per_step = llround(late / (double)a->n),
        .gain_ns_per_step = gain == LG_NULL ? LG_NULL : gain / (int64_t)a->n,
        .share = late / a->time_ns,
    };
}

static void find_suspects(struct lg_judgement *j)
{
    const struct lg_arrivals *a = j->arrivals;

    for (size_t r = 0; r < a->n_ranks; r++) {
        const struct lg_account *account = &a->account[r];

        for (int s = 0; s < LG_STAGE_COUNT; s++)
            add_suspect(j, r, lg_stage_blame(a, s), account->split[s], account->gain[s]);
        add_suspect(j, r, LG_BLAME_NONE, account->unsplit, LG_NULL);
    }
    if (j->n_suspects > 0)
        qsort(j->suspects, j->n_suspects, sizeof(*j->suspects), by_lateness);
    if (j->n_suspects > SUSPECTS)
        j->n_suspects = SUSPECTS;
}

/* ---- order ---- */

/* A rank that findings name below a warning is told, not accused. */
static bool is_only_told(const struct lg_finding *f)
{
    return f->level < LG_LEVEL_WARNING && f->rank != LG_NO_RANK;
}

static bool stands_before(const struct lg_finding *a, const struct lg_finding *b)
{
    double a_score = isnan(a->score) ? 0 : a->score, b_score = isnan(b->score) ? 0 : b->score;

    if (is_only_told(a) != is_only_told(b))
        return is_only_told(b);
    if (a->level != b->level)
        return a->level > b->level;
    if (a_score != b_score)
        return a_score > b_score;
    return lg_kind_is_straggler(a->kind) && !lg_kind_is_straggler(b->kind);
}

/* Moves findings[from] to findings[to], to <= from. */
static void move_up(struct lg_judgement *j, size_t from, size_t to)
{
    struct lg_finding f = j->findings[from];

    memmove(&j->findings[to + 1], &j->findings[to], (from - to) * sizeof(f));
    j->findings[to] = f;
}

/* What all ranks bear alike may cost more than a late rank, and yet the late rank is what can be
 * mended: it is the answer unless the other costs more than twice as much. */
static void lead_with_late_rank(struct lg_judgement *j)
{
    for (size_t i = 1; i < j->n_findings; i++) {
        const struct lg_finding *f = &j->findings[i], *first = &j->findings[0];

        if (f->rule != LG_RULE_ARRIVAL || !lg_kind_is_straggler(f->kind) ||
            f->level < LG_LEVEL_WARNING)
            continue;
        if (!lg_kind_is_straggler(first->kind) && !(first->score > MUCH_DEARER * f->score))
            move_up(j, i, 0);
        return;
    }
}

static void order(struct lg_judgement *j)
{
    for (size_t i = 1; i < j->n_findings; i++) {
        size_t k = i;

        while (k > 0 && stands_before(&j->findings[i], &j->findings[k - 1]))
            k--;
        move_up(j, i, k);
    }
    lead_with_late_rank(j);
}

const struct lg_finding *lg_judgement_answer(const struct lg_judgement *j)
{
    return j->n_findings > 0 && !is_only_told(&j->findings[0]) ? &j->findings[0] : NULL;
}

/* ---- one scope ---- */

/* A stage that takes the time of all ranks only every so many steps. "The rest" is said better by
 * the pauses. */
static void mark_periodic_bounds(struct lg_judgement *j)
{
    const struct lg_finding *pauses = NULL;
    const char *rest;

    for (size_t i = 0; i < j->n_findings; i++)
        if (j->findings[i].kind == LG_HOST_PERIODIC)
            pauses = &j->findings[i];
    if (!pauses)
        return;
    rest = json_string_value(json_object_get(pauses->evidence, "in_between"));
    for (size_t i = 0; i < j->n_findings; i++) {
        struct lg_finding *f = &j->findings[i];

        if (f->rule != LG_RULE_PUBLISHED || f->stage != pauses->stage ||
            strcmp(rest, lg_kind_name(f->kind)) == 0)
            continue;
        f->recurrence = LG_RECURRENCE_PERIODIC;
        f->period = pauses->period;
        if (f->kind == LG_RESIDUAL_HEAVY && pauses->level >= LG_LEVEL_WARNING)
            f->level = LG_LEVEL_INFO;
    }
}

/* Pauses of all ranks besides something else are told, below its level. */
static void tell_pauses(struct lg_judgement *j, bool (*spoke)(struct lg_judgement *j))
{
    if (spoke != lg_rule_pauses && spoke != lg_rule_sparse && lg_rule_pauses(j))
        j->findings[j->n_findings - 1].level = LG_LEVEL_INFO;
}

static void run_exclusive(struct lg_judgement *j)
{
    for (size_t i = 0; i < sizeof(exclusive) / sizeof(exclusive[0]); i++) {
        if (exclusive[i](j)) {
            lg_rule_host_slow(j);
            tell_pauses(j, exclusive[i]);
            return;
        }
    }
}

static void judge_arrivals(struct lg_judgement *j)
{
    if (!j->brief)
        lg_frontier_of(j->arrivals, &j->frontier);
    run_exclusive(j);
    if (!j->brief) /* now: a finding may have put lateness down to another stage */
        find_suspects(j);
}

void lg_judge(const struct lg_scope *scope, struct lg_cycles *cycles, bool brief,
              struct lg_judgement *j)
{
    *j = (struct lg_judgement){.scope = *scope, .brief = brief};
    j->frontier.transfer_ns = j->frontier.exposed_ns = LG_NULL;
    lg_published_run(scope, &j->published);
    j->arrivals = lg_arrivals_new(cycles, scope, &j->abstain);
    if (j->arrivals)
        judge_arrivals(j);
    for (size_t i = 0; i < sizeof(always) / sizeof(always[0]); i++)
        always[i](j);
    mark_periodic_bounds(j);
    lg_mark_explained(j);
    if (!brief)
        lg_mark_ambiguous(j);
    order(j);
    lg_arrivals_free(j->arrivals);
    j->arrivals = NULL;
}

void lg_judgement_free(struct lg_judgement *j)
{
    lg_policy_result_free(&j->published);
    for (size_t i = 0; i < j->n_findings; i++)
        lg_finding_free(&j->findings[i]);
    free(j->findings);
    free(j->suspects);
}

/* ---- notes ---- */

static bool all_have_sync(const struct lg_aligned *a)
{
    for (size_t r = 0; r < a->n_ranks; r++)
        if (!lg_rank_measured(a->rank[r], LG_COL_backward_sync_ns))
            return false;
    return true;
}

void lg_note_arrivals(struct lg_diagnosis *d, const struct lg_cycles *cycles,
                      const struct lg_judgement *whole)
{
    if (cycles->warm_up > 0)
        lg_texts_add(
            &d->notes,
            lg_format("leading steps far longer than the rest: %zu; warm-up, not looked at "
                      "for late ranks",
                      cycles->warm_up));
    if (whole->abstain && strcmp(whole->abstain, LG_NO_SYNC) == 0 && all_have_sync(cycles->aligned))
        lg_texts_add(&d->notes, lg_format("who comes late to the collectives can't be told of the "
                                          "run as a whole: %s",
                                          whole->abstain));
}

/* ---- which scope ---- */

/* Index of the same accusation in another window, or n_findings. */
static size_t find_same(const struct lg_judgement *j, const struct lg_finding *f)
{
    size_t i = 0;

    while (i < j->n_findings &&
           (j->findings[i].level < LG_LEVEL_WARNING || j->findings[i].kind != f->kind ||
            j->findings[i].rank != f->rank || j->findings[i].stage != f->stage))
        i++;
    return i;
}

/* A finding on which windows [from, to) agree. */
struct agreement {
    size_t from, to;
    size_t finding; /* in the last of them */
};

static struct agreement agree(const struct lg_judgement *window, size_t n, size_t from,
                              size_t finding)
{
    struct agreement a = {.from = from, .to = from + 1, .finding = finding};

    for (; a.to < n; a.to++) {
        size_t same = find_same(&window[a.to], &window[from].findings[finding]);

        if (same == window[a.to].n_findings)
            break;
        a.finding = same;
    }
    return a;
}

static bool is_better(const struct lg_judgement *window, const struct agreement *a,
                      const struct agreement *best)
{
    return best->to == 0 || stands_before(&window[a->to - 1].findings[a->finding],
                                          &window[best->to - 1].findings[best->finding]);
}

static size_t last_full(const struct lg_judgement *window, size_t n, size_t full)
{
    while (n > 0 && window[n - 1].scope.to - window[n - 1].scope.from < full)
        n--;
    return n - 1; /* no full window: none has that number */
}

/* The best finding on which two windows in a row agree, or that the last full one has; to is 0 if
 * there is none. */
static struct agreement find_agreement(const struct lg_judgement *window, size_t n, size_t full)
{
    struct agreement best = {0};
    size_t last = last_full(window, n, full);

    for (size_t i = 0; i < n; i++) {
        for (size_t f = 0; f < window[i].n_findings; f++) {
            struct agreement a;

            if (window[i].findings[f].level < LG_LEVEL_WARNING)
                continue;
            a = agree(window, n, i, f);
            if ((a.to - a.from >= 2 || (a.from <= last && last < a.to)) &&
                is_better(window, &a, &best))
                best = a;
        }
    }
    return best;
}

/* Judges the agreement's last window in full; its finding goes to the front, for all the steps on
 * which the windows agree. */
static struct lg_judgement *tell(struct lg_judgement *window, const struct agreement *a,
                                 struct lg_cycles *cycles)
{
    struct lg_judgement *last = &window[a->to - 1], full;
    struct lg_finding *f;
    size_t same;

    lg_judge(&last->scope, cycles, false, &full);
    same = find_same(&full, &last->findings[a->finding]);
    lg_judgement_free(last);
    *last = full;
    move_up(last, same, 0);
    f = &last->findings[0];
    if (a->to - a->from < 2)
        return last;
    f->steps.first = lg_scope_steps(&window[a->from].scope).first;
    f->steps.count = 0;
    for (size_t i = a->from; i < a->to; i++)
        f->steps.count += lg_scope_steps(&window[i].scope).count;
    json_object_set_new(f->evidence, "windows", json_integer((json_int_t)(a->to - a->from)));
    return last;
}

struct lg_judgement *lg_choose_scope(struct lg_judgement *whole, struct lg_judgement *window,
                                     size_t n_windows, size_t full, struct lg_cycles *cycles)
{
    const struct lg_finding *answer = lg_judgement_answer(whole);
    struct agreement a;

    if (n_windows < 2 || (answer && answer->level >= LG_LEVEL_WARNING))
        return whole;
    a = find_agreement(window, n_windows, full);
    return a.to == 0 ? whole : tell(window, &a, cycles);
}
