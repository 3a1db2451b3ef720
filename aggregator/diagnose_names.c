/*
 * diagnose_names.c - the words of the report for levels, stages, rules and recurrence. No state.
 */
#include "aggregator/diagnose.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

const char *lg_level_name(enum lg_level level)
{
    static const char *const names[] = {"none", "info", "warning", "critical"};

    return (size_t)level < COUNT(names) ? names[level] : "?";
}

const char *lg_blame_name(enum lg_blame blame)
{
#define BLAME_NAME(id, text) text,
    static const char *const names[] = {LG_BLAMES(BLAME_NAME)};

    return (size_t)blame < COUNT(names) ? names[blame] : NULL;
}

const char *lg_rule_name(enum lg_rule rule)
{
    static const char *const names[] = {NULL, "published", "arrival"};

    return (size_t)rule < COUNT(names) ? names[rule] : NULL;
}

const char *lg_recurrence_name(enum lg_recurrence recurrence)
{
    static const char *const names[] = {NULL, "persistent", "rotating", "periodic", "sparse"};

    return (size_t)recurrence < COUNT(names) ? names[recurrence] : NULL;
}
