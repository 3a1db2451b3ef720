/*
 * accuse.c - a finding of the rules on arrival about a rank that is late (accuse.h): what it costs,
 * what it is put down to, and the sentence. Runs in the reading commands.
 */
#include "aggregator/accuse.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FEWEST_STEPS 20 /* for more than a warning */
#define LISTED_STEPS 10
#define TELLING      0.01 /* of the step: less in a stage is not told */

enum lg_level lg_level_of(const struct lg_judgement *j, double score)
{
    bool capped = j->arrivals->n < FEWEST_STEPS || j->scope.strategy == LG_FSDP;

    return score >= LG_CRITICAL && !capped ? LG_LEVEL_CRITICAL : LG_LEVEL_WARNING;
}

/* ---- evidence ---- */

json_t *lg_json_ms(double ns)
{
    return json_real(round(ns / 1e3) / 1e3);
}

json_t *lg_json_stages(const struct lg_arrivals *a, const double *ns)
{
    json_t *object = json_object();

    for (int s = 0; s < LG_STAGE_COUNT; s++) {
        const char *name = lg_blame_name(lg_stage_blame(a, s));
        double before = json_real_value(json_object_get(object, name)) * 1e6;

        if (fabs(ns[s]) >= TELLING * a->step_ns || before != 0)
            json_object_set_new(object, name, lg_json_ms(before + ns[s]));
    }
    return object;
}

json_t *lg_json_steps(const struct lg_arrivals *a, const bool *chosen)
{
    json_t *array = json_array();

    for (size_t k = 0; k < a->n && json_array_size(array) < LISTED_STEPS; k++)
        if (chosen[k])
            json_array_append_new(array, json_integer(lg_arrivals_step(a, k)));
    return array;
}

static int64_t sum_late(const struct lg_arrivals *a, const struct lg_lateness *l)
{
    int64_t sum = 0;

    for (size_t k = l->from; k < l->to; k++)
        sum += lg_late(a, k, l->rank);
    return sum;
}

/* What mending the rank would save a step: no more than its host works longer, where that is why.
 */
static double gain_per_step(struct lg_arrivals *a, const struct lg_lateness *l,
                            const struct lg_cause *cause)
{
    double time, gain, n = (double)(l->to - l->from);

    if (l->to - l->from < a->n) {
        gain = (double)lg_gain_of_mending(a, &l->rank, 1, l->from, l->to, &time) / n;
    } else {
        lg_arrivals_account(a, NULL, NULL);
        gain = (double)a->account[l->rank].gain_all / n;
    }
    return cause->host_excess_ns > 0 && cause->host_excess_ns < gain ? cause->host_excess_ns : gain;
}

/* All of a rank's lateness is due to the stage of its host that is longer. */
static void account_to_host(struct lg_arrivals *a, const struct lg_lateness *l,
                            const struct lg_cause *cause, double gain)
{
    struct lg_account *account = &a->account[l->rank];

    lg_arrivals_account(a, NULL, NULL);
    for (int s = 0; s < LG_STAGE_COUNT; s++) {
        account->split[s] = s == cause->host_stage ? (double)account->late : 0;
        account->gain[s] = s == cause->host_stage ? llround(gain * (double)(l->to - l->from)) : 0;
    }
    account->unsplit = 0;
    account->gain_all = account->gain[cause->host_stage];
}

static json_t *evidence(const struct lg_arrivals *a, const struct lg_lateness *l,
                        const struct lg_cause *cause, double gain)
{
    json_t *e = json_object();
    size_t late = 0;

    for (size_t k = l->from; k < l->to; k++)
        late += lg_late(a, k, l->rank) > 0;
    json_object_set_new(e, "late_steps", json_integer((json_int_t)late));
    json_object_set_new(e, "of_steps", json_integer((json_int_t)(l->to - l->from)));
    json_object_set_new(e, "late_ms", lg_json_ms(cause->late_ns));
    json_object_set_new(e, "step_ms", lg_json_ms(a->step_ns));
    json_object_set_new(e, "excess_ms", lg_json_stages(a, cause->excess_ns));
    json_object_set_new(e, "own_ms", lg_json_stages(a, cause->own_ns));
    json_object_set_new(e, "others_ms", lg_json_stages(a, cause->others_ns));
    json_object_set_new(e, "gain_ms_per_step", lg_json_ms(gain));
    if (a->cycles->device)
        json_object_set_new(e, "clock", json_string("gpu"));
    if (cause->host_excess_ns > 0)
        json_object_set_new(e, "host_longer_ms", lg_json_ms(cause->host_excess_ns));
    return e;
}

/* ---- sentence ---- */

char *lg_rank_name(const struct lg_aligned *aligned, size_t rank)
{
    const struct lg_rank *r = aligned->rank[rank];
    bool differ = false;

    for (size_t i = 0; i < aligned->n_ranks; i++)
        differ = differ || strcmp(aligned->rank[i]->host, r->host) != 0;
    return differ && *r->host ? lg_format("Rank %" PRId32 " (%s)", r->rank, r->host)
                              : lg_format("Rank %" PRId32, r->rank);
}

const char *lg_stage_words(enum lg_blame stage)
{
    static const char *const words[LG_BLAME_COUNT] = {
        [LG_BLAME_NONE] = "several stages",
        [LG_BLAME_INPUT] = "waiting for input",
        [LG_BLAME_H2D] = "copying to the device",
        [LG_BLAME_FORWARD] = "forward",
        [LG_BLAME_BACKWARD] = "backward",
        [LG_BLAME_FORWARD_BACKWARD] = "forward and backward",
        [LG_BLAME_OPTIMIZER] = "the optimizer",
        [LG_BLAME_HOST] = "what lies between the stages",
        [LG_BLAME_SYNC] = "collectives",
    };

    return words[stage];
}

static bool is_part_of(enum lg_blame blame, enum lg_blame stage)
{
    return blame == stage || (stage == LG_BLAME_FORWARD_BACKWARD &&
                              (blame == LG_BLAME_FORWARD || blame == LG_BLAME_BACKWARD));
}

/* Sum over the stages that the blame means. */
static double sum_blamed(const struct lg_arrivals *a, const double *ns, enum lg_blame stage)
{
    double sum = 0;

    for (int s = 0; s < LG_STAGE_COUNT; s++)
        if (is_part_of(lg_stage_blame(a, s), stage))
            sum += ns[s];
    return sum;
}

/* "backward takes it 41.0 ms, the others 26.0 ms" */
static char *cause_words(const struct lg_arrivals *a, const struct lg_cause *c)
{
    struct lg_texts list = {0};
    char *joined, *text;

    if (c->host_excess_ns > 0)
        return lg_format("%s takes its host %s, the others' %s, whose work is done while they wait",
                         lg_stage_words(c->stage), lg_ms(c->host_own_ns / 1e6).text,
                         lg_ms(c->host_others_ns / 1e6).text);
    if (c->stage != LG_BLAME_NONE)
        return lg_format("%s take%s it %s, the others %s", lg_stage_words(c->stage),
                         c->stage == LG_BLAME_FORWARD_BACKWARD ? "" : "s",
                         lg_ms(sum_blamed(a, c->own_ns, c->stage) / 1e6).text,
                         lg_ms(sum_blamed(a, c->others_ns, c->stage) / 1e6).text);
    for (int s = 0; s < LG_STAGE_COUNT; s++)
        if (c->excess_ns[s] >= 0.1 * c->late_ns && c->excess_ns[s] > 0)
            lg_texts_add(&list, lg_format("%s %s", lg_stage_words(lg_stage_blame(a, s)),
                                          lg_ms(c->excess_ns[s] / 1e6).text));
    joined = lg_texts_join(&list, ", ");
    text = list.n ? lg_format("no stage alone explains it (longer than elsewhere: %s)", joined)
                  : lg_strdup("no stage explains it");
    free(joined);
    lg_texts_free(&list);
    return text;
}

static char *sentence(const struct lg_arrivals *a, const struct lg_lateness *l,
                      const struct lg_cause *cause, const char *hint, double cost, double gain)
{
    char *who = lg_rank_name(a->cycles->aligned, l->rank), *why = cause_words(a, cause), *text;
    double mean = 0;

    for (size_t k = l->from; k < l->to; k++)
        mean += (double)lg_arrivals_cycle(a, k)->time / (double)(l->to - l->from);
    text = lg_format("%s comes late to the collectives %s, by %s: %s; they wait for it %s of each "
                     "%s step (%.0f %%); mending it would gain %s a step%s%s.",
                     who, l->when, lg_ms(cause->late_ns / 1e6).text, why, lg_ms(cost / 1e6).text,
                     lg_ms(mean / 1e6).text, 100 * cost / mean, lg_ms(gain / 1e6).text,
                     hint ? "; " : "", hint ? hint : "");
    free(who);
    free(why);
    return text;
}

static void explain(struct lg_arrivals *a, const struct lg_lateness *l,
                    const struct lg_cause *cause, double cost, struct lg_finding *f)
{
    char *hint = NULL;
    json_t *counters = lg_counters(a, l, cause->stage, &hint);
    double gain = gain_per_step(a, l, cause);

    if (cause->host_excess_ns > 0)
        account_to_host(a, l, cause, gain);

    json_decref(f->evidence);
    f->evidence = evidence(a, l, cause, gain);
    if (counters)
        json_object_set_new(f->evidence, "counters", counters);
    f->sentence = sentence(a, l, cause, hint, cost, gain);
    free(hint);
}

struct lg_finding *lg_accuse(struct lg_judgement *j, const struct lg_lateness *l)
{
    struct lg_arrivals *a = j->arrivals;
    double cost = (double)sum_late(a, l) / (double)(l->to - l->from);
    struct lg_cause cause;
    struct lg_finding *f;

    lg_find_cause(a, l->rank, l->chosen, &cause);
    f = lg_add_finding(j, cause.kind);
    f->rank = lg_arrivals_rank(a, l->rank);
    f->stage = cause.stage;
    f->rule = LG_RULE_ARRIVAL;
    f->score = l->score;
    f->level = lg_level_of(j, l->score);
    f->cost_ns_per_step = llround(cost);
    f->steps = lg_arrivals_steps(a, l->from, l->to);
    f->recurrence = l->recurrence;
    if (!j->brief)
        explain(a, l, &cause, cost, f);
    free(l->when);
    return f;
}
