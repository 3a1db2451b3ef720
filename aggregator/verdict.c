/*
 * verdict.c - what the report answers: the first finding, or why there is none. Runs in the reading
 * commands.
 */
#include <math.h>
#include <stdlib.h>

#include "aggregator/rules.h"

struct lg_finding *lg_add_finding(struct lg_judgement *j, enum lg_kind kind)
{
    struct lg_finding *f;

    j->findings = lg_realloc(j->findings, j->n_findings + 1, sizeof(*j->findings));
    f = &j->findings[j->n_findings++];
    *f = (struct lg_finding){
        .kind = kind,
        .rank = LG_NO_RANK,
        .score = (double)NAN,
        .cost_ns_per_step = LG_NULL,
        .period = LG_NULL,
        .evidence = json_object(),
    };
    return f;
}

void lg_finding_free(struct lg_finding *f)
{
    json_decref(f->evidence);
    free(f->sentence);
    free(f->settle);
}

static void take_finding(struct lg_verdict *v, const struct lg_finding *f)
{
    v->kind = f->kind;
    v->level = f->level;
    v->rank = f->rank;
    v->stage = f->stage;
    v->rule = f->rule;
    v->recurrence = f->recurrence;
    v->period = f->period;
    v->score = f->score;
    v->cost_ns_per_step = f->cost_ns_per_step;
    v->steps = f->steps;
    v->ambiguous = f->ambiguous;
}

/* Findings, suspects and frontier become the report's. */
static void take_all(struct lg_diagnosis *d, struct lg_judgement *j)
{
    d->n_findings = j->n_findings;
    d->findings = j->findings;
    d->n_suspects = j->n_suspects;
    d->suspects = j->suspects;
    d->frontier = j->frontier;
    j->findings = NULL;
    j->suspects = NULL;
    j->n_findings = j->n_suspects = 0;
}

/* What the published policy alone would have said of the same steps, where that is another answer.
 */
static char *other_answer(const struct lg_verdict *v, const struct lg_judgement *j)
{
    const struct lg_policy_issue *issue = &j->published.issue[0];

    if (j->abstain || v->kind == LG_INCOMPLETE_DATA ||
        (issue->kind == v->kind && lg_issue_rank(issue) == v->rank))
        return NULL;
    return lg_published_text(&j->published);
}

/* That nothing was found means nothing where something could not be seen. */
static bool could_hide_something(const struct lg_observed *o)
{
    return o->gaps.n > 0 || !o->device_skew || o->no_collectives_seen;
}

static void say_incomplete(struct lg_verdict *v)
{
    v->kind = LG_INCOMPLETE_DATA;
    v->level = LG_LEVEL_NONE;
    v->stage = LG_BLAME_NONE;
    v->rule = LG_RULE_NONE;
    v->recurrence = LG_RECURRENCE_NONE;
    v->period = LG_NULL;
    v->score = (double)NAN;
    v->cost_ns_per_step = LG_NULL;
}

void lg_decide(struct lg_diagnosis *d, struct lg_judgement *j, const struct lg_observed *o)
{
    struct lg_verdict *v = &d->verdict;
    const struct lg_finding *answer = lg_judgement_answer(j);
    enum lg_kind kind = j->published.kind;
    bool judged = kind != LG_NO_DATA && kind != LG_WARMUP && kind != LG_INCOMPLETE_DATA;

    *v = (struct lg_verdict){
        .kind = kind,
        .level = LG_LEVEL_NONE,
        .rank = LG_NO_RANK,
        .rule = LG_RULE_PUBLISHED,
        .score = (double)NAN,
        .cost_ns_per_step = LG_NULL,
        .period = LG_NULL,
        .steps = lg_scope_steps(&j->scope),
    };
    if (answer)
        take_finding(v, answer);
    else if (lg_kind_is_straggler(kind))
        v->kind = LG_BALANCED; /* the published policy names a rank, others know better */
    if (judged && v->level < LG_LEVEL_WARNING && could_hide_something(o))
        say_incomplete(v);
    v->published_alone = other_answer(v, j);
    take_all(d, j);
}
