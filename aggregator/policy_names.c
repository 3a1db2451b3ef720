/*
 * policy_names.c - the names of kinds, severities, clocks and metrics, and the policy's evidence as
 * JSON. Used by the report writers; no state.
 */
#include "aggregator/policy.h"

#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "aggregator/diagnose.h"

#define NAME(name)   #name,
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *pick(const char *const *names, size_t count, unsigned index)
{
    return index < count ? names[index] : "?";
}

const char *lg_kind_name(enum lg_kind kind)
{
    static const char *const names[] = {LG_KINDS(NAME)};

    return pick(names, COUNT(names), kind);
}

bool lg_kind_is_straggler(enum lg_kind kind)
{
    switch (kind) {
    case LG_STRAGGLER:
    case LG_INPUT_STRAGGLER:
    case LG_H2D_STRAGGLER:
    case LG_COMPUTE_STRAGGLER:
    case LG_BACKWARD_STRAGGLER:
    case LG_OPTIMIZER_STRAGGLER:
    case LG_HOST_STRAGGLER:
        return true;
    default:
        return false;
    }
}

const char *lg_severity_name(enum lg_severity severity)
{
    static const char *const names[] = {"info", "warning", "critical"};

    return pick(names, COUNT(names), severity);
}

const char *lg_clock_name(enum lg_clock clock)
{
    return clock == LG_CLOCK_GPU ? "gpu" : "cpu";
}

enum lg_strategy lg_strategy_parse(const char *text)
{
    size_t length;

    if (!text)
        return LG_DDP;
    while (isspace((unsigned char)*text))
        text++;
    length = strlen(text);
    while (length > 0 && isspace((unsigned char)text[length - 1]))
        length--;
    return length == 4 && strncasecmp(text, "fsdp", 4) == 0 ? LG_FSDP : LG_DDP;
}

const char *lg_strategy_name(enum lg_strategy strategy)
{
    return strategy == LG_FSDP ? "fsdp" : "ddp";
}

const char *lg_metric_name(enum lg_metric metric)
{
    static const char *const names[] = {LG_METRICS(NAME)};

    return pick(names, COUNT(names), metric);
}

const char *lg_share_name(enum lg_share share)
{
    static const char *const names[] = {LG_SHARES(NAME)};

    return pick(names, COUNT(names), share);
}

const char *lg_component_name(enum lg_component component)
{
    static const char *const names[] = {LG_COMPONENTS(NAME) "sync_or_unattributed"};

    return pick(names, COUNT(names), component);
}

static json_t *component_map(const double *value)
{
    json_t *map = json_object();

    for (int c = 0; c < LG_COMPONENT_COUNT; c++)
        if (!isnan(value[c]))
            json_object_set_new(map, lg_component_name(c), json_real(value[c]));
    return map;
}

static json_t *straggler_evidence(const struct lg_policy_straggler *s)
{
    json_t *evidence = json_object();
    const struct {
        const char *key;
        double ms;
    } time[] = {
        {"visible_culprit_ms", s->visible_culprit_ms},
        {"visible_victim_ms", s->visible_victim_ms},
        {"visible_cost_ms", s->visible_cost_ms},
        {"step_time_ms", s->step_time_ms},
    };

    json_object_set_new(evidence, "component", json_string(lg_component_name(s->component)));
    json_object_set_new(evidence, "culprit_rank", json_integer(s->culprit));
    json_object_set_new(evidence, "victim_rank", json_integer(s->victim));
    json_object_set_new(evidence, "visible_metric", json_string(s->visible_metric));
    for (size_t i = 0; i < COUNT(time); i++)
        json_object_set_new(evidence, time[i].key, json_real(time[i].ms));
    json_object_set_new(evidence, "component_excesses_ms", component_map(s->excess_ms));
    json_object_set_new(evidence, "component_coverage", component_map(s->coverage));
    return evidence;
}

static json_t *missing_evidence(const struct lg_policy_result *result)
{
    json_t *evidence = json_object(), *list = json_array(), *coverage = json_object();

    for (int m = 0; m < LG_METRIC_COUNT; m++) {
        if (!(result->missing >> m & 1))
            continue;
        json_array_append_new(list, json_string(lg_metric_name(m)));
        json_object_set_new(coverage, lg_metric_name(m),
                            json_sprintf("%zu/%zu", result->with_metric[m], result->universe));
    }
    json_object_set_new(evidence, "missing_signals", list);
    json_object_set_new(evidence, "signal_coverage", coverage);
    return evidence;
}

json_t *lg_policy_evidence_json(const struct lg_policy_result *result,
                                const struct lg_policy_issue *issue)
{
    json_t *evidence;

    if (lg_kind_is_straggler(issue->kind))
        return straggler_evidence(&result->straggler);
    if (issue->kind == LG_INCOMPLETE_DATA)
        return missing_evidence(result);
    evidence = json_object();
    if (issue->kind == LG_INPUT_BOUND)
        json_object_set_new(evidence, "step_time_ms", json_real(result->step_time_ms));
    return evidence;
}
