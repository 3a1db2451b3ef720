/*
 * sentence.c - the verdict in one sentence with numbers: which rank, which stage, how much a step,
 * which share, and what the others do meanwhile. It says what was measured and no more. Runs in the
 * reading commands.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rules.h"

/* ---- numbers of a rank ---- */

static const struct lg_policy_rank *find_rank(const struct lg_policy_result *p, int32_t rank)
{
    for (size_t i = 0; i < p->n_ranks; i++)
        if (p->ranks[i].rank == rank)
            return &p->ranks[i];
    return NULL;
}

static const char *host_of(const struct lg_diagnosis *d, int32_t rank)
{
    for (size_t i = 0; i < d->n_means; i++)
        if (d->means[i].rank == rank)
            return d->means[i].host;
    return "";
}

static bool several_hosts(const struct lg_diagnosis *d)
{
    for (size_t i = 1; i < d->n_means; i++)
        if (strcmp(d->means[i].host, d->means[0].host) != 0)
            return true;
    return false;
}

/* "Rank 3", or "Rank 3 (node-2)" where that tells something. */
static char *name_rank(const struct lg_diagnosis *d, int32_t rank)
{
    const char *host = host_of(d, rank);

    return *host && several_hosts(d) ? lg_format("Rank %" PRId32 " (%s)", rank, host)
                                     : lg_format("Rank %" PRId32, rank);
}

static int by_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Median over the ranks of value(rank); NAN if none has it. */
static double median_rank(const struct lg_policy_result *p,
                          double (*value)(const struct lg_policy_rank *))
{
    double *list = lg_alloc(p->n_ranks, sizeof(*list)), median = (double)NAN;
    size_t n = 0;

    for (size_t i = 0; i < p->n_ranks; i++)
        if (!isnan(value(&p->ranks[i])))
            list[n++] = value(&p->ranks[i]);
    qsort(list, n, sizeof(*list), by_double);
    if (n > 0)
        median = (list[n / 2] + list[(n - 1) / 2]) / 2;
    free(list);
    return median;
}

static double step_time(const struct lg_policy_rank *r)
{
    return r->step_time;
}

static double compute(const struct lg_policy_rank *r)
{
    return r->compute;
}

/* "", or ", median of 4 ranks" */
static char *over_ranks(const struct lg_policy_result *p)
{
    return p->n_ranks > 1 ? lg_format(", median of %zu ranks", p->n_ranks) : lg_strdup("");
}

static bool names_a_rank(const struct lg_diagnosis *d)
{
    for (size_t i = 0; d->findings && i < d->n_findings; i++)
        if (d->findings[i].rank != LG_NO_RANK)
            return true;
    return false;
}

/* ---- stragglers ---- */

static const struct {
    const char *does; /* what the culprit does longer */
    enum lg_metric metric;
} component_words[LG_COMPONENT_COUNT] = {
    [LG_COMPONENT_input] = {"waits for its next batch", LG_METRIC_input_wait},
    [LG_COMPONENT_h2d] = {"copies to its device", LG_METRIC_h2d},
    [LG_COMPONENT_compute] = {"spends in forward", LG_METRIC_forward},
};

static const char *visible_words(const struct lg_policy_straggler *s)
{
    return strcmp(s->visible_metric, "backward") == 0 ? "backward" : "forward and backward";
}

/* What the lateness is put down to: "waits for its next batch 62.1 ms a step, rank 1 4.2 ms". */
static char *cause(const struct lg_policy_result *p)
{
    const struct lg_policy_straggler *s = &p->straggler;
    const struct lg_policy_rank *culprit = find_rank(p, s->culprit),
                                *victim = find_rank(p, s->victim);
    enum lg_metric metric;

    if (s->component == LG_COMPONENT_sync_or_unattributed)
        return lg_strdup("is late for a reason that input, H2D and forward do not explain");
    metric = component_words[s->component].metric;
    return lg_format("%s %s a step, rank %" PRId32 " %s", component_words[s->component].does,
                     lg_ms(culprit->mean[metric]).text, s->victim,
                     lg_ms(victim->mean[metric]).text);
}

static char *straggler(const struct lg_diagnosis *d, const struct lg_policy_result *p)
{
    const struct lg_policy_straggler *s = &p->straggler;
    char *who = name_rank(d, s->culprit), *why = cause(p), *text;

    text = lg_format("%s %s; meanwhile the others wait for it in %s (%s there against %s on rank "
                     "%" PRId32 "), which costs %s of each %s step (%.0f %%).",
                     who, why, visible_words(s), lg_ms(s->visible_victim_ms).text,
                     lg_ms(s->visible_culprit_ms).text, s->culprit, lg_ms(s->visible_cost_ms).text,
                     lg_ms(s->step_time_ms).text, 100 * d->verdict.score);
    free(who);
    free(why);
    return text;
}

/* ---- bound kinds: nobody is accused ---- */

static bool names_straggler(const struct lg_diagnosis *d)
{
    for (size_t i = 0; d->findings && i < d->n_findings; i++)
        if (lg_names_straggler(&d->findings[i]))
            return true;
    return false;
}

/* That no rank stands out says little where the wait for a late one was not measured: all ranks
 * show the same long backward then. */
static const char *stand_out(const struct lg_policy_result *p, const struct lg_observed *o)
{
    if (p->n_ranks <= 1)
        return "";
    return o->collectives ? "; no rank stands out"
                          : "; no rank stands out, but the wait in collectives was not measured, "
                            "which hides a late one";
}

static char *bound(const struct lg_diagnosis *d, const struct lg_policy_result *p,
                   const struct lg_observed *o, const char *what)
{
    char *over =
        names_straggler(d) ? lg_strdup(" even on the ranks that are not late") : over_ranks(p);
    char *when, *text;
    double cost = (double)d->verdict.cost_ns_per_step / 1e6;

    when = d->verdict.period == LG_NULL
               ? lg_strdup("")
               : lg_format(", mostly in every %" PRId64 "th step", d->verdict.period);
    text = lg_format("%s %s of each %s step (%.0f %%%s)%s%s.", what, lg_ms(cost).text,
                     lg_ms(median_rank(p, step_time)).text, 100 * d->verdict.score, over, when,
                     names_a_rank(d) ? "" : stand_out(p, o));
    free(over);
    free(when);
    return text;
}

/* What of the computation is waiting, where that is known. */
static char *sync_part(const struct lg_diagnosis *d)
{
    double sum = 0;
    size_t n = 0;

    for (size_t i = 0; i < d->n_means; i++) {
        if (!isnan(d->means[i].sync_ns)) {
            sum += d->means[i].sync_ns;
            n++;
        }
    }
    return n > 0 && sum > 0
               ? lg_format(", %s of it blocked in collectives", lg_ms(sum / (double)n / 1e6).text)
               : lg_strdup("");
}

static char *compute_bound(const struct lg_diagnosis *d, const struct lg_policy_result *p,
                           const struct lg_observed *o)
{
    char *over = over_ranks(p), *sync = sync_part(d), *text;

    text = lg_format("Forward, backward and optimizer take %s of each %s step (%.0f %%%s)%s%s%s.",
                     lg_ms(median_rank(p, compute)).text, lg_ms(median_rank(p, step_time)).text,
                     100 * p->share[LG_SHARE_compute], over, sync,
                     o->input_unseen ? ", fetching of batches included: no loader was seen" : "",
                     stand_out(p, o));
    free(over);
    free(sync);
    return text;
}

static char *balanced(const struct lg_policy_result *p, const struct lg_observed *o)
{
    static const char *const word[LG_SHARE_COUNT] = {"input", "H2D", "computation", "the rest"};
    struct lg_texts shares = {0};
    char *joined, *text;

    for (int s = 0; s < LG_SHARE_COUNT; s++)
        if (!isnan(p->share[s]))
            lg_texts_add(&shares, lg_format("%s %.1f %%", word[s], 100 * p->share[s]));
    joined = lg_texts_join(&shares, ", ");
    text = lg_format("%s: a step takes %s (%s)%s.",
                     p->n_ranks > 1 ? "No rank is slow and no stage holds the step up"
                                    : "No stage holds the step up",
                     lg_ms(median_rank(p, step_time)).text, joined,
                     p->n_ranks > 1 && !o->collectives
                         ? "; the wait in collectives was not measured, which hides a rank that is "
                           "late in backward"
                         : "");
    free(joined);
    lg_texts_free(&shares);
    return text;
}

/* ---- no verdict ---- */

static char *warm_up(const struct lg_scope *scope)
{
    size_t used = scope->to - scope->from;

    if (used == 0)
        return lg_format("All %zu common steps are start-up, warm-up, compilation or the begin of "
                         "an epoch: nothing is left to judge.",
                         scope->aligned->n);
    return lg_format("There is only %zu step besides start-up and warm-up; 2 are needed.", used);
}

static char *no_data(const struct lg_scope *scope)
{
    return lg_strdup(scope->aligned->n_ranks == 0
                         ? "No rank left a step: no training was seen."
                         : "The steps have no duration: there is nothing to judge.");
}

static char *incomplete(const struct lg_diagnosis *d, const struct lg_observed *o)
{
    struct lg_texts reasons = {0};
    char *joined, *text;

    for (size_t i = 0; i < o->gaps.n; i++)
        lg_texts_add(&reasons, lg_strdup(o->gaps.text[i]));
    if (!o->device_skew && d->steps.count > 0)
        lg_texts_add(&reasons, lg_strdup("device-side skew is not observable"));
    if (o->no_collectives_seen && d->steps.count > 0)
        lg_texts_add(&reasons, lg_strdup("collectives were not observed"));
    joined = lg_texts_join(&reasons, "; ");
    text =
        lg_format("%s: %s.",
                  d->steps.count == 0 ? "Nothing can be compared"
                                      : "Nothing stands out in what was measured, but not all was",
                  reasons.n ? joined : "signals are missing");
    free(joined);
    lg_texts_free(&reasons);
    return text;
}

/* What the findings of the published policy, or the want of any, say. */
static char *say(const struct lg_diagnosis *d, const struct lg_judgement *j,
                 const struct lg_observed *o)
{
    const struct lg_policy_result *p = &j->published;

    switch (d->verdict.kind) {
    case LG_STRAGGLER:
    case LG_INPUT_STRAGGLER:
    case LG_H2D_STRAGGLER:
    case LG_COMPUTE_STRAGGLER:
        return straggler(d, p);
    case LG_INPUT_BOUND:
        return bound(d, p, o, "Waiting for input takes");
    case LG_H2D_BOUND:
        return bound(d, p, o, "Copying to the device takes");
    case LG_RESIDUAL_HEAVY:
        return bound(d, p, o, "What is neither input, H2D, forward, backward nor optimizer takes");
    case LG_COMPUTE_BOUND:
        return compute_bound(d, p, o);
    case LG_BALANCED:
        return balanced(p, o);
    case LG_WARMUP:
        return warm_up(&j->scope);
    case LG_INCOMPLETE_DATA:
        return incomplete(d, o);
    default:
        return no_data(&j->scope);
    }
}

/* Where the verdict is about a part of the run: which. */
static char *with_steps(const struct lg_diagnosis *d, char *sentence)
{
    const struct lg_steps *part = &d->verdict.steps, *all = &d->steps;
    char *text;

    if (d->n_windows < 2 || part->count == 0 || 2 * part->count > all->count ||
        d->verdict.level < LG_LEVEL_WARNING)
        return sentence;
    text = lg_format("Steps %" PRId64 "-%" PRId64 " of %" PRId64 "-%" PRId64 ": %s", part->first,
                     part->last, all->first, all->last, sentence);
    free(sentence);
    return text;
}

/* The verdict's rule has said it already. */
static bool is_said(const struct lg_finding *f, const struct lg_verdict *v)
{
    return f->sentence && f->kind == v->kind && f->rank == v->rank;
}

char *lg_sentence(const struct lg_diagnosis *d, const struct lg_judgement *j,
                  const struct lg_observed *o)
{
    bool said = d->n_findings > 0 && is_said(&d->findings[0], &d->verdict);

    return with_steps(d, said ? lg_strdup(d->findings[0].sentence) : say(d, j, o));
}
