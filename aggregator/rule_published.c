/*
 * rule_published.c - the published policy (policy.c) over a scope of aligned iterations, and its
 * issues as findings. Runs in the reading commands.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rules.h"

#define BOUND 0.10 /* share of the step from which the policy calls it bound */

/* All iterations were start-up, warm-up, compilation or the begin of an epoch. */
static void all_left_out(struct lg_policy_result *result)
{
    *result = (struct lg_policy_result){
        .first_step = LG_NULL,
        .last_step = LG_NULL,
        .kind = LG_WARMUP,
        .n_issues = 1,
        .issue = {{.kind = LG_WARMUP, .score = (double)NAN, .share = (double)NAN}},
        .step_time_ms = (double)NAN,
    };
    for (int s = 0; s < LG_SHARE_COUNT; s++)
        result->share[s] = (double)NAN;
}

static void make_row(const void *context, size_t rank, size_t step, struct lg_policy_row *row)
{
    const struct lg_scope *scope = context;

    lg_aligned_policy_row(scope->aligned, rank, scope->aligned->used[scope->from + step], row);
}

void lg_published_run(const struct lg_scope *scope, struct lg_policy_result *result)
{
    const struct lg_aligned *a = scope->aligned;
    struct lg_policy_source source = {.n_ranks = a->n_ranks,
                                      .n_steps = scope->to - scope->from,
                                      .row = make_row,
                                      .context = scope};
    struct lg_policy_input input = {
        .source = &source,
        .expected = scope->expected,
        .n_expected = scope->n_expected,
        .strategy = scope->strategy,
    };

    if (a->n > 0 && a->n_used == 0)
        all_left_out(result);
    else
        lg_policy_run(&input, result);
}

static bool stands_alone(enum lg_kind kind)
{
    return kind == LG_BALANCED || kind == LG_WARMUP || kind == LG_INCOMPLETE_DATA ||
           kind == LG_NO_DATA;
}

/* A kind that stands alone is no finding: nothing was found. */
enum lg_level lg_issue_level(const struct lg_policy_issue *issue)
{
    static const enum lg_level level[] = {LG_LEVEL_INFO, LG_LEVEL_WARNING, LG_LEVEL_CRITICAL};

    return stands_alone(issue->kind) ? LG_LEVEL_NONE : level[issue->severity];
}

/* The rank of a bound kind is only the one with the largest value: nobody is accused. */
int32_t lg_issue_rank(const struct lg_policy_issue *issue)
{
    return issue->has_rank && lg_kind_is_straggler(issue->kind) ? issue->rank : LG_NO_RANK;
}

enum lg_blame lg_kind_blame(enum lg_kind kind)
{
    static const enum lg_blame blame[LG_KIND_COUNT] = {
        [LG_INPUT_STRAGGLER] = LG_BLAME_INPUT,       [LG_INPUT_BOUND] = LG_BLAME_INPUT,
        [LG_H2D_STRAGGLER] = LG_BLAME_H2D,           [LG_H2D_BOUND] = LG_BLAME_H2D,
        [LG_COMPUTE_STRAGGLER] = LG_BLAME_FORWARD,   [LG_RESIDUAL_HEAVY] = LG_BLAME_HOST,
        [LG_BACKWARD_STRAGGLER] = LG_BLAME_BACKWARD, [LG_OPTIMIZER_STRAGGLER] = LG_BLAME_OPTIMIZER,
        [LG_HOST_STRAGGLER] = LG_BLAME_HOST,         [LG_COMM_BOUND] = LG_BLAME_SYNC,
    };

    return blame[kind];
}

double lg_bound_part(const struct lg_policy_result *result, size_t rank, enum lg_kind kind)
{
    const struct lg_policy_rank *r = &result->ranks[rank];

    switch (kind) {
    case LG_INPUT_BOUND:
        return r->mean[LG_METRIC_input_wait];
    case LG_H2D_BOUND:
        return r->mean[LG_METRIC_h2d];
    case LG_RESIDUAL_HEAVY:
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

/* What the finding costs: a straggler, the wait of the others; a bound kind, the median over the
 * ranks of what is bound. Computation is no cost. */
static int64_t issue_cost(const struct lg_policy_result *result,
                          const struct lg_policy_issue *issue)
{
    double *value = lg_alloc(result->n_ranks, sizeof(*value)), cost = (double)NAN;
    size_t n = 0;

    for (size_t i = 0; i < result->n_ranks; i++) {
        double part = lg_bound_part(result, i, issue->kind);

        if (!isnan(part))
            value[n++] = part;
    }
    qsort(value, n, sizeof(*value), by_double);
    if (n > 0)
        cost = (value[n / 2] + value[(n - 1) / 2]) / 2;
    if (lg_kind_is_straggler(issue->kind))
        cost = result->straggler.visible_cost_ms;
    free(value);
    return isnan(cost) ? LG_NULL : (int64_t)llround(cost * 1e6);
}

/* Before the suspects of other rules: this one is accused. */
static void add_suspect(struct lg_judgement *j, const struct lg_finding *f)
{
    j->suspects = lg_realloc(j->suspects, j->n_suspects + 1, sizeof(*j->suspects));
    memmove(j->suspects + 1, j->suspects, j->n_suspects * sizeof(*j->suspects));
    j->n_suspects++;
    j->suspects[0] = (struct lg_suspect){
        .rank = f->rank,
        .stage = f->stage,
        .late_ns_per_step = f->cost_ns_per_step,
        .gain_ns_per_step = LG_NULL, /* what mending it would gain the means don't tell */
        .share = f->score,
    };
}

/* ---- waiting that looks like a stage ---- */

/* The stage that a bound kind is about, on the clock of the policy's answer; false: none. */
static bool bound_columns(const struct lg_policy_result *p, enum lg_kind kind,
                          enum lg_column *stage, enum lg_column *sync)
{
    bool gpu = p->clock == LG_CLOCK_GPU;

    switch (kind) {
    case LG_INPUT_BOUND:
        *stage = gpu ? LG_COL_gpu_input_wait_ns : LG_COL_input_wait_ns;
        *sync = gpu ? LG_COL_gpu_input_wait_sync_ns : LG_COL_input_wait_sync_ns;
        return true;
    case LG_H2D_BOUND:
        *stage = gpu ? LG_COL_gpu_h2d_ns : LG_COL_h2d_ns;
        *sync = gpu ? LG_COL_gpu_h2d_sync_ns : LG_COL_h2d_sync_ns;
        return true;
    case LG_RESIDUAL_HEAVY:
        *stage = gpu ? LG_COL_gpu_other_ns : LG_COL_other_ns;
        *sync = gpu ? LG_COL_gpu_other_sync_ns : LG_COL_other_sync_ns;
        return true;
    default:
        return false;
    }
}

/* Mean per step of a column that counts 0 where it was not measured. */
static double mean_column(const struct lg_scope *scope, size_t rank, enum lg_column column)
{
    double sum = 0;

    for (size_t k = scope->from; k < scope->to; k++) {
        int64_t value = lg_aligned_value(scope->aligned, rank, scope->aligned->used[k], column);

        sum += value == LG_NULL ? 0 : (double)value;
    }
    return sum / (double)(scope->to - scope->from);
}

double lg_bound_sync(const struct lg_judgement *j, size_t rank, enum lg_kind kind)
{
    enum lg_column stage, sync;

    return bound_columns(&j->published, kind, &stage, &sync) ? mean_column(&j->scope, rank, sync)
                                                             : 0;
}

static double median_of(double *value, size_t n)
{
    qsort(value, n, sizeof(*value), by_double);
    return (value[n / 2] + value[(n - 1) / 2]) / 2;
}

/* What of the finding's part of the step is time blocked in collectives: median over the ranks, ns;
 * *left is the share that there is without it. */
static double waiting_in(const struct lg_judgement *j, enum lg_kind kind, double *left)
{
    size_t n = j->scope.aligned->n_ranks;
    double *share = lg_alloc(2 * n, sizeof(*share)), *wait = share + n, median;
    enum lg_column stage = LG_COL_dur_ns, sync = LG_COL_dur_ns;

    bound_columns(&j->published, kind, &stage, &sync);
    for (size_t r = 0; r < n; r++) {
        wait[r] = mean_column(&j->scope, r, sync);
        share[r] =
            (mean_column(&j->scope, r, stage) - wait[r]) / 1e6 / j->published.ranks[r].step_time;
    }
    *left = median_of(share, n);
    median = median_of(wait, n);
    free(share);
    return median;
}

/* Forward, backward and optimizer hold waiting as well: how much, per rank, ns. */
static double computing_wait(const struct lg_scope *scope, size_t rank, enum lg_clock clock)
{
    static const enum lg_column host[] = {LG_COL_forward_sync_ns, LG_COL_backward_sync_ns,
                                          LG_COL_optimizer_sync_ns};
    static const enum lg_column device[] = {LG_COL_gpu_forward_sync_ns, LG_COL_gpu_backward_sync_ns,
                                            LG_COL_gpu_optimizer_sync_ns};
    const enum lg_column *sync = clock == LG_CLOCK_GPU ? device : host;
    double sum = 0, measured = 0;

    for (int s = 0; s < 3; s++) {
        sum += mean_column(scope, rank, sync[s]);
        measured += lg_rank_measured(scope->aligned->rank[rank], sync[s]);
    }
    return measured > 0 ? sum : (double)NAN;
}

static double waiting_in_compute(const struct lg_judgement *j)
{
    size_t n = j->scope.aligned->n_ranks;
    double *wait = lg_alloc(n, sizeof(*wait)), median;

    for (size_t r = 0; r < n; r++)
        wait[r] = computing_wait(&j->scope, r, j->published.clock);
    median = median_of(wait, n);
    free(wait);
    return median;
}

double lg_compute_wait_share(const struct lg_scope *scope, const struct lg_policy_result *p)
{
    double *share = lg_alloc(p->n_ranks, sizeof(*share)), median = (double)NAN;
    size_t n = 0;

    for (size_t r = 0; r < p->n_ranks && p->steps_used > 0; r++) {
        share[n] = computing_wait(scope, r, p->clock) / 1e6 / p->ranks[r].step_time;
        n += !isnan(share[n]);
    }
    if (n > 0 && n == p->n_ranks)
        median = median_of(share, n);
    free(share);
    return median;
}

/* A share that is mostly waiting is a symptom; the cause is another finding's matter. */
static void tell_waiting(const struct lg_judgement *j, const struct lg_policy_issue *issue,
                         struct lg_finding *f)
{
    bool computes = issue->kind == LG_COMPUTE_BOUND;
    double left = 0, waiting;
    enum lg_column stage, sync;

    if (!computes && !bound_columns(&j->published, issue->kind, &stage, &sync))
        return;
    waiting = computes ? waiting_in_compute(j) : waiting_in(j, issue->kind, &left);
    if (!(waiting > 0) || left >= BOUND) /* a NAN: not known */
        return;
    f->level = LG_LEVEL_INFO; /* which computation is anyway */
    json_object_set_new(f->evidence, "of_it_waiting_in_collectives_ms",
                        json_real(round(waiting / 1e3) / 1e3));
}

static void add_issue(struct lg_judgement *j, const struct lg_policy_issue *issue)
{
    const struct lg_policy_result *result = &j->published;
    struct lg_finding *f = lg_add_finding(j, issue->kind);

    f->level = lg_issue_level(issue);
    f->rank = lg_issue_rank(issue);
    f->stage = lg_kind_blame(issue->kind);
    f->rule = LG_RULE_PUBLISHED;
    f->score = issue->score;
    f->cost_ns_per_step = issue_cost(result, issue);
    f->steps = lg_scope_steps(&j->scope);
    json_decref(f->evidence);
    f->evidence = lg_policy_evidence_json(result, issue);
    if (!isnan(issue->share))
        json_object_set_new(f->evidence, "share", json_real(issue->share));
    if (f->rank != LG_NO_RANK)
        add_suspect(j, f);
    if (j->arrivals)
        tell_waiting(j, issue, f);
}

/* Where the rules on arrival have said who is late, or that nobody in particular is, they know
 * better than means do. */
void lg_rule_published(struct lg_judgement *j)
{
    const struct lg_policy_result *result = &j->published;
    bool superseded = j->n_findings > 0;

    for (size_t i = 0; i < result->n_issues; i++)
        if (!stands_alone(result->issue[i].kind) &&
            !(superseded && lg_kind_is_straggler(result->issue[i].kind)))
            add_issue(j, &result->issue[i]);
}

char *lg_published_text(const struct lg_policy_result *result)
{
    const struct lg_policy_issue *issue = &result->issue[0];
    enum lg_level level = lg_issue_level(issue);
    int32_t rank = lg_issue_rank(issue);
    char *kind = level == LG_LEVEL_NONE
                     ? lg_strdup(lg_kind_name(issue->kind))
                     : lg_format("%s (%s)", lg_kind_name(issue->kind), lg_level_name(level));
    char *text = rank == LG_NO_RANK ? lg_format("%s, nobody", kind)
                                    : lg_format("%s, rank %" PRId32, kind, rank);

    free(kind);
    return text;
}
