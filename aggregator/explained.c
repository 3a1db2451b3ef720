/*
 * explained.c - what a named straggler explains is its symptom and no second diagnosis: the others
 * wait for it in their collectives, and the means of all ranks hold its own slow stage. A finding
 * about all ranks stays beside it only if what is left without the straggler's share still meets
 * that finding's own threshold. Runs in the reading commands.
 *
 * The published policy's own answer is not touched: it stands in the report by itself.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/arrival.h"
#include "aggregator/rules.h"

#define COMPUTES 0.90 /* share of the step from which computation bounds it */

bool lg_names_straggler(const struct lg_finding *f)
{
    return f->level >= LG_LEVEL_WARNING &&
           (f->kind == LG_HOST_SLOW || (f->rank != LG_NO_RANK && lg_kind_is_straggler(f->kind)));
}

/* What the others wait for stragglers, ns per step of the scope. Of several the one that costs
 * most: they are late at the same time. */
double lg_waited_for_stragglers(const struct lg_judgement *j)
{
    double most = 0, n = (double)(j->scope.to - j->scope.from);

    for (size_t i = 0; i < j->n_findings; i++) {
        const struct lg_finding *f = &j->findings[i];
        double cost = (double)f->cost_ns_per_step * (double)f->steps.count / n;

        if (lg_names_straggler(f) && f->cost_ns_per_step != LG_NULL && cost > most)
            most = cost;
    }
    return most;
}

/* ---- what is left of a share ---- */

static bool is_accused(const struct lg_judgement *j, int32_t rank)
{
    for (size_t i = 0; i < j->n_findings; i++)
        if (lg_names_straggler(&j->findings[i]) && j->findings[i].rank == rank)
            return true;
    return false;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Own part of a rank's step in ms that the finding is about, without waiting for stragglers. */
static double own_part(const struct lg_judgement *j, enum lg_kind kind, size_t rank, double waited)
{
    const struct lg_policy_rank *r = &j->published.ranks[rank];

    return kind == LG_COMPUTE_BOUND
               ? r->compute - waited / 1e6
               : lg_bound_part(&j->published, rank, kind) - lg_bound_sync(j, rank, kind) / 1e6;
}

/* Median share over the ranks that nobody accuses; NAN: there is none. */
static double share_left(const struct lg_judgement *j, enum lg_kind kind, double waited)
{
    const struct lg_policy_result *p = &j->published;
    double *share = lg_alloc(p->n_ranks, sizeof(*share)), median = (double)NAN;
    size_t n = 0;

    for (size_t r = 0; r < p->n_ranks; r++) {
        double part = own_part(j, kind, r, waited) / p->ranks[r].step_time;

        if (!is_accused(j, p->ranks[r].rank) && !isnan(part))
            share[n++] = part;
    }
    qsort(share, n, sizeof(*share), by_value);
    if (n > 0)
        median = (share[n / 2] + share[(n - 1) / 2]) / 2;
    free(share);
    return median;
}

/* What is left of the finding's share of the step; NAN: all of it. */
static double left_of(const struct lg_judgement *j, const struct lg_finding *f, double waited)
{
    switch (f->kind) {
    case LG_INPUT_BOUND:
    case LG_H2D_BOUND:
    case LG_RESIDUAL_HEAVY:
    case LG_COMPUTE_BOUND:
        return share_left(j, f->kind, waited);
    case LG_SYNC_BOUND: /* score is the cost's share of the step */
        return f->score * ((double)f->cost_ns_per_step - waited) / (double)f->cost_ns_per_step;
    default:
        return (double)NAN; /* COMM_BOUND is what is left: what a late rank needs as well */
    }
}

/* Takes the stragglers' share out of the finding; true: without them there would be none. */
static bool is_explained(const struct lg_judgement *j, struct lg_finding *f, double waited)
{
    double left = left_of(j, f, waited);

    if (isnan(left))
        return false;
    if (left < (f->kind == LG_COMPUTE_BOUND ? COMPUTES : LG_COSTLY))
        return true;
    /* not where its sentence has told the numbers, or there is no score */
    if (!f->sentence && left < f->score) {
        f->cost_ns_per_step = llround((double)f->cost_ns_per_step * left / f->score);
        f->score = left;
    }
    return false;
}

/* ---- the findings ---- */

/* To the evidence of the first straggler: what follows from it. */
static void tell(struct lg_judgement *j, json_t *symptoms)
{
    for (size_t i = 0; i < j->n_findings; i++) {
        if (lg_names_straggler(&j->findings[i])) {
            json_object_set_new(j->findings[i].evidence, "explains", symptoms);
            return;
        }
    }
    json_decref(symptoms);
}

void lg_mark_explained(struct lg_judgement *j)
{
    double waited = lg_waited_for_stragglers(j);
    json_t *symptoms;
    size_t kept = 0;

    if (waited <= 0)
        return;
    symptoms = json_array();
    for (size_t i = 0; i < j->n_findings; i++) {
        struct lg_finding *f = &j->findings[i];

        if (is_explained(j, f, waited)) {
            json_array_append_new(symptoms, json_string(lg_kind_name(f->kind)));
            lg_finding_free(f);
        } else {
            j->findings[kept++] = *f;
        }
    }
    if (kept < j->n_findings && !j->brief)
        tell(j, json_incref(symptoms));
    j->n_findings = kept;
    json_decref(symptoms);
}
