/*
 * policy.c - the rules of the published rank-straggler policy (doc/policy.md, sections 4 to 6) over
 * the averages of one window. Pure functions, in the reading commands.
 */
#include "aggregator/policy.h"

#include <math.h>
#include <stdlib.h>

#include "aggregator/policy_rows.h"
#include "aggregator/rows.h"

#define WARN_SHARE    0.10 /* from here a share or score is a finding, ... */
#define CRIT_SHARE    0.20 /* ... and from here a critical one */
#define COMPUTE_SHARE 0.90
#define CAUSE_SHARE   0.80 /* of the visible cost, for a cause to be named */
#define SURE_STEPS    20   /* fewer cap every finding at a warning */
#define FEWEST_STEPS  2    /* fewer are warm-up */

#define METRIC_BIT(name) (1u << LG_METRIC_##name)
#define ALL_SIGNALS                                                                                \
    (METRIC_BIT(input_wait) | METRIC_BIT(forward) | METRIC_BIT(backward) |                         \
     METRIC_BIT(optimizer_step) | METRIC_BIT(traced_step_time))

/* What the rules share. */
struct rules {
    const struct lg_policy_input *input;
    struct lg_policy_result *result;
    bool single;       /* no straggler possible */
    bool rows_missing; /* a declared rank has no rows */
    size_t eligible;   /* ranks that the straggler rule could compare */
};

/* The value of share `s` on a rank, NAN if it is not available. */
static double share_part(const struct lg_policy_rank *r, enum lg_share s)
{
    switch (s) {
    case LG_SHARE_input_wait:
        return r->mean[LG_METRIC_input_wait];
    case LG_SHARE_h2d:
        return r->mean[LG_METRIC_h2d];
    case LG_SHARE_compute:
        return r->compute;
    case LG_SHARE_residual:
        return r->residual;
    default:
        return (double)NAN;
    }
}

static int by_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Mean of the two middle values when n is even; NAN when n is 0. Sorts the array. */
static double median(double *value, size_t n)
{
    if (n == 0)
        return (double)NAN;
    qsort(value, n, sizeof(*value), by_double);
    return n % 2 ? value[n / 2] : (value[n / 2 - 1] + value[n / 2]) / 2;
}

static void compute_shares(struct rules *rules)
{
    struct lg_policy_result *result = rules->result;
    double *value = lg_alloc(result->n_ranks, sizeof(*value));

    for (int s = 0; s < LG_SHARE_COUNT; s++) {
        size_t n = 0;

        for (size_t i = 0; i < result->n_ranks; i++) {
            const struct lg_policy_rank *r = &result->ranks[i];
            double part = share_part(r, s);

            if (!isnan(part) && r->step_time > 0)
                value[n++] = part / r->step_time;
        }
        result->share[s] = median(value, n);
    }
    free(value);
}

/* Median of the step times; of a single rank, the largest. NAN: no rank has one. */
static double typical_step_time(const struct rules *rules)
{
    const struct lg_policy_result *result = rules->result;
    double *value = lg_alloc(result->n_ranks, sizeof(*value)), typical;
    size_t n = 0;

    for (size_t i = 0; i < result->n_ranks; i++)
        if (!isnan(result->ranks[i].step_time))
            value[n++] = result->ranks[i].step_time;
    typical = median(value, n);
    if (rules->single && n > 0)
        typical = value[n - 1]; /* median() has sorted them */
    free(value);
    return typical;
}

static double rank_step_time(const struct lg_policy_rank *r)
{
    return r->step_time;
}

static double rank_input(const struct lg_policy_rank *r)
{
    return isnan(r->step_time) ? (double)NAN : r->mean[LG_METRIC_input_wait];
}

static double rank_h2d(const struct lg_policy_rank *r)
{
    return r->mean[LG_METRIC_h2d];
}

/* Index of the rank with the largest value, the lowest rank on ties; n_ranks: nobody has one. */
static size_t worst(const struct lg_policy_result *result,
                    double (*value)(const struct lg_policy_rank *))
{
    size_t best = result->n_ranks;

    for (size_t i = 0; i < result->n_ranks; i++) {
        double v = value(&result->ranks[i]);

        if (!isnan(v) && (best == result->n_ranks || v > value(&result->ranks[best])))
            best = i;
    }
    return best;
}

static enum lg_severity severity_of(double score)
{
    return score >= CRIT_SHARE ? LG_SEVERITY_CRITICAL : LG_SEVERITY_WARNING;
}

static struct lg_policy_issue *add_issue(struct rules *rules, enum lg_kind kind,
                                         enum lg_severity severity, double score, double share)
{
    struct lg_policy_issue *issue = &rules->result->issue[rules->result->n_issues++];
    bool capped = rules->input->strategy == LG_FSDP || rules->result->steps_used < SURE_STEPS;

    *issue = (struct lg_policy_issue){
        .kind = kind, .severity = severity, .score = score, .share = share};
    if (capped && issue->severity == LG_SEVERITY_CRITICAL)
        issue->severity = LG_SEVERITY_WARNING;
    return issue;
}

static void set_rank(struct lg_policy_issue *issue, const struct lg_policy_result *result,
                     size_t index)
{
    if (index < result->n_ranks) {
        issue->has_rank = true;
        issue->rank = result->ranks[index].rank;
    }
}

/* ---- the straggler rule ---- */

static double visible(const struct rules *rules, const struct lg_policy_rank *r)
{
    return rules->input->strategy == LG_FSDP
               ? r->mean[LG_METRIC_forward] + r->mean[LG_METRIC_backward]
               : r->mean[LG_METRIC_backward];
}

/* Comparisons with NAN are false: what is not available does not count. */
static bool is_eligible(const struct rules *rules, const struct lg_policy_rank *r)
{
    return lg_policy_has(r, LG_METRIC_input_wait) && r->step_time > 0 &&
           r->mean[LG_METRIC_backward] > 0 &&
           (rules->input->strategy != LG_FSDP || r->mean[LG_METRIC_forward] > 0);
}

struct candidate {
    double visible;
    const struct lg_policy_rank *rank;
};

static int by_visible(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    if (x->visible != y->visible)
        return x->visible < y->visible ? -1 : 1;
    return (x->rank->rank > y->rank->rank) - (x->rank->rank < y->rank->rank);
}

static double excess(const struct lg_policy_rank *culprit, const struct lg_policy_rank *victim,
                     enum lg_metric metric)
{
    return fmax(0, culprit->mean[metric] - victim->mean[metric]);
}

static double compute_excess(const struct rules *rules, const struct lg_policy_rank *culprit,
                             const struct lg_policy_rank *victim)
{
    if (rules->input->strategy == LG_FSDP)
        return 0; /* forward is part of what is compared */
    if (!lg_policy_has(culprit, LG_METRIC_forward) || !lg_policy_has(victim, LG_METRIC_forward))
        return (double)NAN;
    if (!(culprit->mean[LG_METRIC_forward] > 0 && victim->mean[LG_METRIC_forward] > 0))
        return 0;
    return excess(culprit, victim, LG_METRIC_forward);
}

static void find_cause(const struct rules *rules, const struct lg_policy_rank *culprit,
                       const struct lg_policy_rank *victim, struct lg_policy_straggler *s)
{
    double best = 0;

    s->component = LG_COMPONENT_sync_or_unattributed;
    s->excess_ms[LG_COMPONENT_input] = excess(culprit, victim, LG_METRIC_input_wait);
    s->excess_ms[LG_COMPONENT_h2d] =
        lg_policy_has(culprit, LG_METRIC_h2d) && lg_policy_has(victim, LG_METRIC_h2d)
            ? excess(culprit, victim, LG_METRIC_h2d)
            : (double)NAN;
    s->excess_ms[LG_COMPONENT_compute] = compute_excess(rules, culprit, victim);
    for (int c = 0; c < LG_COMPONENT_COUNT; c++) {
        double covered = s->excess_ms[c] / s->visible_cost_ms;

        s->coverage[c] = isnan(covered) ? covered : fmin(1, covered);
        if (s->coverage[c] > best) {
            best = s->coverage[c];
            if (best >= CAUSE_SHARE)
                s->component = (enum lg_component)c;
        }
    }
}

static void find_straggler(struct rules *rules)
{
    static const enum lg_kind kind[] = {
        [LG_COMPONENT_input] = LG_INPUT_STRAGGLER,
        [LG_COMPONENT_h2d] = LG_H2D_STRAGGLER,
        [LG_COMPONENT_compute] = LG_COMPUTE_STRAGGLER,
        [LG_COMPONENT_sync_or_unattributed] = LG_STRAGGLER,
    };
    struct lg_policy_result *result = rules->result;
    struct lg_policy_straggler *s = &result->straggler;
    struct candidate *c = lg_alloc(result->n_ranks, sizeof(*c)), culprit, victim;
    size_t n = 0;
    double score;

    for (size_t i = 0; i < result->n_ranks; i++)
        if (is_eligible(rules, &result->ranks[i]))
            c[n++] = (struct candidate){visible(rules, &result->ranks[i]), &result->ranks[i]};
    rules->eligible = n;
    if (n < 2 || rules->single) {
        free(c);
        return;
    }
    qsort(c, n, sizeof(*c), by_visible);
    culprit = c[0];
    victim = c[n / 2];
    free(c);
    s->visible_cost_ms = fmax(0, victim.visible - culprit.visible);
    score = s->visible_cost_ms / victim.rank->step_time;
    if (score < WARN_SHARE)
        return;
    s->culprit = culprit.rank->rank;
    s->victim = victim.rank->rank;
    s->visible_metric = rules->input->strategy == LG_FSDP ? "forward_backward" : "backward";
    s->visible_culprit_ms = culprit.visible;
    s->visible_victim_ms = victim.visible;
    s->step_time_ms = victim.rank->step_time;
    find_cause(rules, culprit.rank, victim.rank, s);
    set_rank(add_issue(rules, kind[s->component], severity_of(score), score, (double)NAN), result,
             (size_t)(culprit.rank - result->ranks));
}

/* ---- the bound rules ---- */

static void find_bounds(struct rules *rules)
{
    struct lg_policy_result *result = rules->result;
    double input = result->share[LG_SHARE_input_wait], h2d = result->share[LG_SHARE_h2d];
    double compute = result->share[LG_SHARE_compute], residual = result->share[LG_SHARE_residual];
    bool input_bound = input >= WARN_SHARE; /* false for NAN: the rule abstains */
    bool h2d_bound = result->clock == LG_CLOCK_GPU && h2d >= WARN_SHARE;
    bool residual_heavy = residual >= WARN_SHARE;

    if (input_bound)
        set_rank(add_issue(rules, LG_INPUT_BOUND, severity_of(input), input, input), result,
                 worst(result, rank_input));
    if (h2d_bound)
        set_rank(add_issue(rules, LG_H2D_BOUND, severity_of(h2d), h2d, h2d), result,
                 worst(result, rank_h2d));
    if (residual_heavy)
        set_rank(add_issue(rules, LG_RESIDUAL_HEAVY, severity_of(residual), residual, residual),
                 result, worst(result, rank_step_time));
    if (compute >= COMPUTE_SHARE && !input_bound && !h2d_bound && !residual_heavy)
        set_rank(add_issue(rules, LG_COMPUTE_BOUND, LG_SEVERITY_INFO, (double)NAN, compute), result,
                 worst(result, rank_step_time));
}

/* ---- gates, order, the window's diagnosis ---- */

static void find_missing(struct rules *rules)
{
    struct lg_policy_result *result = rules->result;
    unsigned needed = 0;
    bool straggler = result->n_issues > 0 && lg_kind_is_straggler(result->issue[0].kind);

    if (rules->rows_missing)
        needed |= ALL_SIGNALS;
    if (isnan(result->share[LG_SHARE_input_wait]))
        needed |= METRIC_BIT(input_wait) | METRIC_BIT(traced_step_time);
    if (isnan(result->share[LG_SHARE_compute]) || isnan(result->share[LG_SHARE_residual]))
        needed |= ALL_SIGNALS;
    if (result->universe > 1 && !straggler && rules->eligible < 2) {
        needed |= METRIC_BIT(backward) | METRIC_BIT(input_wait) | METRIC_BIT(traced_step_time);
        if (rules->input->strategy == LG_FSDP)
            needed |= METRIC_BIT(forward);
    }
    for (int m = 0; m < LG_METRIC_COUNT; m++)
        if ((needed >> m & 1) && result->with_metric[m] < result->universe)
            result->missing |= (uint8_t)(1u << m);
}

/* True if a is to stand before b, which it follows in the table of rules. */
static bool stands_before(const struct lg_policy_issue *a, const struct lg_policy_issue *b)
{
    double a_score = isnan(a->score) ? 0 : a->score, b_score = isnan(b->score) ? 0 : b->score;

    if (a->severity != b->severity)
        return a->severity > b->severity;
    if (a_score != b_score)
        return a_score > b_score;
    return lg_kind_is_straggler(a->kind) && !lg_kind_is_straggler(b->kind);
}

/* Insertion sort: stable, and there are at most four. */
static void order_issues(struct lg_policy_result *result)
{
    for (size_t i = 1; i < result->n_issues; i++) {
        struct lg_policy_issue issue = result->issue[i];
        size_t k = i;

        for (; k > 0 && stands_before(&issue, &result->issue[k - 1]); k--)
            result->issue[k] = result->issue[k - 1];
        result->issue[k] = issue;
    }
}

/* The answer is one of the kinds that stand alone, with the rank of that index (n_ranks: none). */
static void answer_alone(struct rules *rules, enum lg_kind kind, size_t index)
{
    struct lg_policy_result *result = rules->result;

    result->n_issues = 0;
    set_rank(add_issue(rules, kind, LG_SEVERITY_INFO, (double)NAN, (double)NAN), result, index);
    result->kind = kind;
    result->severity = LG_SEVERITY_INFO;
    result->has_worst_rank = result->issue[0].has_rank;
    result->worst_rank = result->issue[0].rank;
}

static void answer_first_issue(struct rules *rules)
{
    struct lg_policy_result *result = rules->result;
    const struct lg_policy_issue *first = &result->issue[0];

    result->kind = first->kind;
    result->severity = first->severity;
    result->has_worst_rank = first->has_rank;
    result->worst_rank = first->rank;
    if (rules->single && first->kind != LG_H2D_BOUND)
        result->has_worst_rank = false;
}

/* Gates that come before every rule; true if one of them was the answer. */
static bool answered_by_gate(struct rules *rules)
{
    struct lg_policy_result *result = rules->result;
    size_t slowest = worst(result, rank_step_time);
    double typical = typical_step_time(rules);

    if (isnan(typical)) {
        find_missing(rules);
        answer_alone(rules, result->missing ? LG_INCOMPLETE_DATA : LG_NO_DATA, result->n_ranks);
        return true;
    }
    result->step_time_ms = typical;
    if (typical <= 0 || result->steps_used < FEWEST_STEPS) {
        answer_alone(rules, typical <= 0 ? LG_NO_DATA : LG_WARMUP, slowest);
        return true;
    }
    return false;
}

static void decide(struct rules *rules)
{
    struct lg_policy_result *result = rules->result;
    size_t nobody = result->n_ranks;

    if (result->steps_used == 0) { /* nothing to average: every signal is missing everywhere */
        if (result->universe > 0)
            result->missing = ALL_SIGNALS;
        answer_alone(rules, result->universe > 0 ? LG_INCOMPLETE_DATA : LG_NO_DATA, nobody);
        return;
    }
    compute_shares(rules);
    if (answered_by_gate(rules))
        return;
    find_straggler(rules);
    find_missing(rules);
    find_bounds(rules);
    order_issues(result);
    if (result->n_issues > 0)
        answer_first_issue(rules);
    else
        answer_alone(rules, result->missing ? LG_INCOMPLETE_DATA : LG_BALANCED,
                     rules->single ? nobody : worst(result, rank_step_time));
}

void lg_policy_run(const struct lg_policy_input *input, struct lg_policy_result *result)
{
    struct rules rules = {.input = input, .result = result};
    size_t with_rows;

    *result = (struct lg_policy_result){.step_time_ms = (double)NAN};
    for (int s = 0; s < LG_SHARE_COUNT; s++)
        result->share[s] = (double)NAN;
    with_rows = lg_policy_average(input, result);
    rules.single = result->universe <= 1 || result->n_ranks <= 1;
    rules.rows_missing = with_rows < result->universe;
    decide(&rules);
}

void lg_policy_result_free(struct lg_policy_result *result)
{
    free(result->ranks);
    result->ranks = NULL;
    result->n_ranks = 0;
}
