/*
 * report_json.c - the diagnosis as JSON, in the keys of schema/report.schema.json. Runs in a
 * reader.
 *
 * "Not measured" is null here and never 0: the small constructors below are the only places where a
 * number becomes JSON.
 */
#include "aggregator/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rankdb.h"

/* --- values -------------------------------------------------------------------------------- */

static json_t *integer(int64_t value)
{
    return value == LG_NULL ? json_null() : json_integer(value);
}

static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* A mean in nanoseconds: what is below one is not measured anyway. */
static json_t *rounded(double value)
{
    return isfinite(value) ? json_integer(llround(value)) : json_null();
}

static json_t *rank_number(int32_t rank)
{
    return rank == LG_NO_RANK ? json_null() : json_integer(rank);
}

/* Bytes that are not UTF-8 (paths, command lines) become '?': a report must stay valid JSON. */
static json_t *text(const char *value)
{
    if (!value)
        return json_null();
    json_t *json = json_string(value);
    if (!json) {
        char *copy = lg_strdup(value);
        for (char *c = copy; *c; c++)
            if ((unsigned char)*c >= 0x80)
                *c = '?';
        json = json_string(copy);
        free(copy);
    }
    return json;
}

static json_t *text_or_null(const char *value)
{
    return value && *value ? text(value) : json_null();
}

static json_t *ranks(const int32_t *rank, size_t n)
{
    json_t *array = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(array, json_integer(rank[i]));
    return array;
}

static json_t *texts(const struct lg_texts *list)
{
    json_t *array = json_array();
    for (size_t i = 0; i < list->n; i++)
        json_array_append_new(array, text(list->text[i]));
    return array;
}

static json_t *steps(const struct lg_steps *s)
{
    return json_pack("{so so sI}", "first", integer(s->first), "last", integer(s->last), "count",
                     (json_int_t)s->count);
}

static const char *const coverage_names[] = {
    [LG_OBSERVED] = "observed",
    [LG_PARTIAL] = "partial",
    [LG_NOT_OBSERVED] = "not_observed",
};

static const char *const end_names[] = {
    [LG_RANK_END_UNKNOWN] = NULL,
    [LG_RANK_END_RUNNING] = "running",
    [LG_RANK_END_EXIT] = "exit",
    [LG_RANK_END_KILLED] = "killed",
};

/* --- parts of the report ------------------------------------------------------------------- */

static json_t *run_json(const struct lg_diagnosis *d)
{
    return json_pack("{so so sb sb so so so sI so so so so ss s{so so sI} sI}", "dir", text(d->dir),
                     "command", text_or_null(d->command), "in_progress", (int)d->running,
                     "device_events", (int)d->device_events, "outcome", text(d->outcome),
                     "exit_status", d->exit_status < 0 ? json_null() : json_integer(d->exit_status),
                     "signal", d->signal ? json_integer(d->signal) : json_null(), "attempts",
                     (json_int_t)d->attempts, "world_size",
                     d->world < 0 ? json_null() : json_integer(d->world), "ranks_seen",
                     ranks(d->seen, d->n_seen), "ranks_missing", ranks(d->missing, d->n_missing),
                     "strategy", text(d->one_process ? NULL : lg_strategy_name(d->strategy)),
                     "clock", lg_clock_name(d->clock), "steps", "first", integer(d->steps.first),
                     "last", integer(d->steps.last), "aligned", (json_int_t)d->steps.count,
                     "window", (json_int_t)d->window);
}

static json_t *verdict_json(const struct lg_verdict *v)
{
    return json_pack("{ss ss so so so so so so so sb so so so so}", "kind", lg_kind_name(v->kind),
                     "severity", lg_level_name(v->level), "rank", rank_number(v->rank), "stage",
                     text(lg_blame_name(v->stage)), "policy", text(lg_rule_name(v->rule)),
                     "recurrence", text(lg_recurrence_name(v->recurrence)), "period",
                     integer(v->period), "score", real(v->score), "cost_ns_per_step",
                     integer(v->cost_ns_per_step), "ambiguous", (int)v->ambiguous, "steps",
                     steps(&v->steps), "sentence", text(v->sentence), "next", texts(&v->next),
                     "published_alone", text(v->published_alone));
}

static json_t *suspects_json(const struct lg_diagnosis *d)
{
    json_t *array = json_array();
    for (size_t i = 0; i < d->n_suspects; i++) {
        const struct lg_suspect *s = &d->suspects[i];
        json_array_append_new(array,
                              json_pack("{so so so so so}", "rank", rank_number(s->rank), "stage",
                                        text(lg_blame_name(s->stage)), "late_ns_per_step",
                                        integer(s->late_ns_per_step), "gain_ns_per_step",
                                        integer(s->gain_ns_per_step), "share", real(s->share)));
    }
    return array;
}

static json_t *findings_json(const struct lg_diagnosis *d)
{
    json_t *array = json_array();
    for (size_t i = 0; i < d->n_findings; i++) {
        const struct lg_finding *f = &d->findings[i];
        json_array_append_new(
            array,
            json_pack("{ss ss so so so so so so so so so sb sO}", "kind", lg_kind_name(f->kind),
                      "severity", lg_level_name(f->level), "rank", rank_number(f->rank), "stage",
                      text(lg_blame_name(f->stage)), "policy", text(lg_rule_name(f->rule)), "score",
                      real(f->score), "cost_ns_per_step", integer(f->cost_ns_per_step),
                      "recurrence", text(lg_recurrence_name(f->recurrence)), "period",
                      integer(f->period), "steps", steps(&f->steps), "sentence", text(f->sentence),
                      "ambiguous", (int)f->ambiguous, "evidence", f->evidence));
    }
    return array;
}

static json_t *issues_json(const struct lg_policy_result *p)
{
    json_t *array = json_array();
    for (size_t i = 0; i < p->n_issues; i++) {
        const struct lg_policy_issue *issue = &p->issue[i];
        json_array_append_new(array,
                              json_pack("{ss ss so so so so}", "kind", lg_kind_name(issue->kind),
                                        "severity", lg_severity_name(issue->severity), "score",
                                        real(issue->score), "share", real(issue->share), "ranks",
                                        ranks(&issue->rank, issue->has_rank), "evidence",
                                        lg_policy_evidence_json(p, issue)));
    }
    return array;
}

static json_t *published_json(const struct lg_diagnosis *d)
{
    const struct lg_policy_result *p = &d->published;
    json_t *shares = json_object();
    for (int s = 0; s < LG_SHARE_COUNT; s++)
        json_object_set_new(shares, lg_share_name((enum lg_share)s), real(p->share[s]));
    return json_pack("{ss sI so ss ss so so so}", "clock", lg_clock_name(p->clock), "steps_used",
                     (json_int_t)p->steps_used, "steps", steps(&d->published_steps), "kind",
                     lg_kind_name(p->kind), "severity", lg_severity_name(p->severity), "worst_rank",
                     p->has_worst_rank ? json_integer(p->worst_rank) : json_null(), "issues",
                     issues_json(p), "shares", shares);
}

/* Which columns a rank's means are given for, and whether they are whole nanoseconds: not moments
 * (start_ns), numbers that only grow and bit sets, whose means say nothing; nor columns that are
 * not read for a report, since null would say that they were not measured. */
enum form { FORM_NONE, FORM_NS, FORM_NUMBER };

static enum form column_form(int column)
{
#define COLUMN(name, table, unit, meaning) FORM_OF_##unit,
#define FORM_OF_NS                         FORM_NS
#define FORM_OF_COUNT                      FORM_NUMBER
#define FORM_OF_BYTES                      FORM_NUMBER
#define FORM_OF_SEQ                        FORM_NONE
#define FORM_OF_BITS                       FORM_NONE
    static const enum form forms[LG_COLUMNS] = {
#include "schema/columns.def"
    };
#undef COLUMN
    return lg_diagnose_needs((enum lg_column)column) ? forms[column] : FORM_NONE;
}

static json_t *rank_json(const struct lg_rank_means *m)
{
    json_t *json =
        json_pack("{si so so sI so so sI so}", "rank", (int)m->rank, "host", text_or_null(m->host),
                  "end", text(end_names[m->end]), "rows", (json_int_t)m->rows, "first_step",
                  integer(m->first_step), "last_step", integer(m->last_step), "steps",
                  (json_int_t)m->steps, "sync_ns", rounded(m->sync_ns));
    for (int c = 0; c < LG_COLUMNS; c++) {
        enum form form = column_form(c);
        if (form != FORM_NONE) {
            json_object_set_new(json, rankdb_column_name[c],
                                form == FORM_NS ? rounded(m->mean[c]) : real(m->mean[c]));
        }
    }
    return json;
}

static json_t *ranks_json(const struct lg_diagnosis *d)
{
    json_t *array = json_array();
    for (size_t i = 0; i < d->n_means; i++)
        json_array_append_new(array, rank_json(&d->means[i]));
    return array;
}

static json_t *frontier_json(const struct lg_frontier *f)
{
    if (f->n_stages == 0)
        return json_null();
    json_t *stages = json_array(), *increments = json_array(), *leader = json_array();
    for (size_t i = 0; i < f->n_stages; i++) {
        json_array_append_new(stages, text(f->stage[i]));
        json_array_append_new(increments, integer(f->increment_ns[i]));
        json_array_append_new(leader, rank_number(f->leader[i]));
    }
    return json_pack("{so so so sI sI sI}", "stages", stages, "increments_ns", increments, "leader",
                     leader, "transfer_ns", (json_int_t)f->transfer_ns, "exposed_ns",
                     (json_int_t)f->exposed_ns, "cycles", (json_int_t)f->cycles);
}

static json_t *windows_json(const struct lg_diagnosis *d)
{
    json_t *array = json_array();
    for (size_t i = 0; i < d->n_windows; i++) {
        const struct lg_window *w = &d->windows[i];
        json_array_append_new(
            array, json_pack("{so so sI ss ss ss so so so}", "first", integer(w->steps.first),
                             "last", integer(w->steps.last), "steps", (json_int_t)w->steps.count,
                             "clock", lg_clock_name(w->clock), "kind", lg_kind_name(w->kind),
                             "severity", lg_level_name(w->level), "rank", rank_number(w->rank),
                             "stage", text(lg_blame_name(w->stage)), "score", real(w->score)));
    }
    return array;
}

static json_t *coverage_json(const struct lg_diagnosis *d)
{
    json_t *object = json_object();
    for (size_t i = 0; i < d->n_coverage; i++) {
        const struct lg_coverage *c = &d->coverage[i];
        json_object_set_new(
            object, c->name,
            json_pack("{ss so}", "state", coverage_names[c->state], "why", text_or_null(c->why)));
    }
    return object;
}

static json_t *losses_json(const struct lg_diagnosis *d)
{
    json_t *array = json_array();
    for (size_t i = 0; i < d->n_losses; i++) {
        const struct lg_loss_entry *l = &d->losses[i];
        json_array_append_new(array,
                              json_pack("{so ss so so so}", "rank", rank_number(l->rank), "reason",
                                        rankdb_loss_name(l->reason), "rows", integer(l->rows),
                                        "step", integer(l->step), "text", text(l->text)));
    }
    return array;
}

json_t *report_json(const struct lg_diagnosis *d)
{
    return json_pack("{si ss so so so so so so so so so so so}", "schema", 1, "laggard",
                     LAGGARD_VERSION, "run", run_json(d), "verdict", verdict_json(&d->verdict),
                     "suspects", suspects_json(d), "findings", findings_json(d), "published",
                     published_json(d), "ranks", ranks_json(d), "frontier",
                     frontier_json(&d->frontier), "windows", windows_json(d), "coverage",
                     coverage_json(d), "losses", losses_json(d), "notes", texts(&d->notes));
}
