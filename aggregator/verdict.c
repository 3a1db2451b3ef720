/*
 * verdict.c - what the report answers: the first finding, or why there is none. Runs in the reading
 * commands.
 */
#include <math.h>

#include "aggregator/rules.h"

struct lg_finding *lg_add_finding(struct lg_diagnosis *d, enum lg_kind kind)
{
    struct lg_finding *f;

    d->findings = lg_realloc(d->findings, d->n_findings + 1, sizeof(*d->findings));
    f = &d->findings[d->n_findings++];
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
}

/* That nothing was found means nothing where something could not be seen. */
static bool could_hide_something(const struct lg_observed *o)
{
    return o->gaps.n > 0 || !o->device_skew || o->no_collectives_seen;
}

void lg_decide(struct lg_diagnosis *d, const struct lg_observed *o)
{
    struct lg_verdict *v = &d->verdict;
    enum lg_kind kind = d->published.kind;
    bool judged = kind != LG_NO_DATA && kind != LG_WARMUP && kind != LG_INCOMPLETE_DATA;

    *v = (struct lg_verdict){
        .kind = kind,
        .level = LG_LEVEL_NONE,
        .rank = LG_NO_RANK,
        .rule = LG_RULE_PUBLISHED,
        .score = (double)NAN,
        .cost_ns_per_step = LG_NULL,
        .period = LG_NULL,
        .steps = d->published_steps,
    };
    if (d->n_findings > 0)
        take_finding(v, &d->findings[0]);
    if (judged && v->level < LG_LEVEL_WARNING && could_hide_something(o)) {
        v->kind = LG_INCOMPLETE_DATA;
        v->level = LG_LEVEL_NONE;
        v->stage = LG_BLAME_NONE;
        v->rule = LG_RULE_NONE;
        v->score = (double)NAN;
        v->cost_ns_per_step = LG_NULL;
    }
}
