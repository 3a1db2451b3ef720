/*
 * import_line.c - reads one line of JSON for `laggard import` and checks its keys and values. Runs
 * in the importing command. Messages name the key; the caller adds file and line.
 */
#include "aggregator/import.h"

#include <stdlib.h>
#include <string.h>

/* --- values -------------------------------------------------------------------------------- */

static const char *type_name(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number with a fraction or exponent";
    case JSON_NULL:
        return "null";
    default:
        return "a boolean";
    }
}

/* Nanoseconds, counts and numbers are all whole and never negative. */
static int take_value(const char *key, const json_t *value, int64_t *to, struct error *error)
{
    if (json_is_null(value)) {
        *to = LG_NULL;
        return 0;
    }
    if (!json_is_integer(value))
        return error_set(error, "key \"%s\": an integer or null is wanted, not %s", key,
                         type_name(value));
    if (json_integer_value(value) < 0)
        return error_set(error, "key \"%s\": %lld is negative", key,
                         (long long)json_integer_value(value));
    *to = json_integer_value(value);
    return 0;
}

/* rank and step: must be there. */
static int take_number(const json_t *object, const char *key, int64_t most, int64_t *to,
                       struct error *error)
{
    const json_t *value = json_object_get(object, key);
    if (!value)
        return error_set(error, "key \"%s\" is missing", key);
    if (take_value(key, value, to, error))
        return -1;
    if (*to == LG_NULL)
        return error_set(error, "key \"%s\" is null", key);
    if (*to > most)
        return error_set(error, "key \"%s\": %lld is too large", key, (long long)*to);
    return 0;
}

/* --- rows of table step -------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(rankdb_column_name[*(const int *)a], rankdb_column_name[*(const int *)b]);
}

/* Number of the column, -1: there is none of that name. */
static int find_column(const char *name)
{
    static int sorted[LG_COLUMNS];
    static bool ready;
    if (!ready) {
        for (int c = 0; c < LG_COLUMNS; c++)
            sorted[c] = c;
        qsort(sorted, LG_COLUMNS, sizeof(sorted[0]), by_name);
        ready = true;
    }
    int low = 0, high = LG_COLUMNS;
    while (low < high) {
        int middle = (low + high) / 2;
        int order = strcmp(name, rankdb_column_name[sorted[middle]]);
        if (order == 0)
            return sorted[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return -1;
}

/* Sum of the stages that were measured; *all tells whether all six were. */
static int64_t stage_sum(const int64_t value[LG_COLUMNS], bool *all)
{
#define STAGE_COLUMN(name) LG_COL_##name##_ns,
    static const int stages[] = {LG_STAGES(STAGE_COLUMN)};
#undef STAGE_COLUMN
    bool merged = value[LG_COL_forward_ns] == LG_NULL && value[LG_COL_backward_ns] == LG_NULL &&
                  value[LG_COL_compute_ns] != LG_NULL;
    int64_t sum = merged ? value[LG_COL_compute_ns] : 0;
    *all = true;
    for (int s = 0; s < LG_STAGE_COUNT; s++) {
        if (merged && (s == LG_STAGE_forward || s == LG_STAGE_backward))
            continue;
        /* no copy in the step is as good as a copy of no length */
        if (value[stages[s]] == LG_NULL)
            *all &= s == LG_STAGE_h2d;
        else if (__builtin_add_overflow(sum, value[stages[s]], &sum))
            return INT64_MAX;
    }
    return sum;
}

/* other_ns is not stored but is what the other stages leave of dur_ns. So a row that gives all
 * stages and no dur_ns gets it from them, and one whose other_ns says something else is told so. */
static void settle_other(struct import_line *line)
{
    int64_t *value = line->value;
    bool all;
    if (value[LG_COL_other_ns] == LG_NULL)
        return;
    int64_t sum = stage_sum(value, &all);
    if (value[LG_COL_dur_ns] == LG_NULL && all)
        value[LG_COL_dur_ns] = sum;
    line->odd_other = value[LG_COL_dur_ns] == LG_NULL || (all && value[LG_COL_dur_ns] != sum);
}

static int parse_step(const json_t *object, struct import_line *line, struct error *error)
{
    const char *key;
    json_t *value;
    if (take_number(object, "rank", IMPORT_MAX_RANK, &line->rank, error) ||
        take_number(object, "step", INT64_MAX - 1, &line->step, error))
        return -1;
    for (int c = 0; c < LG_COLUMNS; c++)
        line->value[c] = LG_NULL;
    json_object_foreach((json_t *)object, key, value)
    {
        int column = find_column(key);
        if (column < 0 && strcmp(key, "rank") != 0 && strcmp(key, "step") != 0)
            return error_set(error, "key \"%s\" is no column of table step", key);
        if (column >= 0 && take_value(key, value, &line->value[column], error))
            return -1;
        /* a start may be a date */
        if (column >= 0 && column != LG_COL_start_ns && line->value[column] > LG_LARGEST)
            return error_set(error, "key \"%s\": %lld is too large", key,
                             (long long)line->value[column]);
    }
    settle_other(line);
    line->value[LG_COL_sources] =
        (line->value[LG_COL_sources] == LG_NULL ? 0 : line->value[LG_COL_sources]) |
        LG_SOURCE_imported;
    return 0;
}

/* --- table meta ---------------------------------------------------------------------------- */

static int take_expected(struct import_meta *meta, const json_t *value, struct error *error)
{
    size_t i;
    json_t *rank;
    int64_t number;
    if (!json_is_array(value))
        return error_set(error, "key \"expected_ranks\": a list of ranks is wanted, not %s",
                         type_name(value));
    json_array_foreach(value, i, rank)
    {
        if (take_value("expected_ranks", rank, &number, error))
            return -1;
        if (number == LG_NULL || number > IMPORT_MAX_RANK)
            return error_set(error, "key \"expected_ranks\": entry %zu is no rank", i);
    }
    json_decref(meta->expected_ranks);
    meta->expected_ranks = json_deep_copy(value);
    return 0;
}

static int take_text(const char *key, const json_t *value, char **to, struct error *error)
{
    if (!json_is_string(value))
        return error_set(error, "key \"%s\": a string is wanted, not %s", key, type_name(value));
    free(*to);
    *to = strdup(json_string_value(value));
    return *to ? 0 : error_set(error, "out of memory");
}

static int take_world(struct import_meta *meta, const json_t *value, struct error *error)
{
    if (take_value("world_size", value, &meta->world_size, error))
        return -1;
    if (meta->world_size != LG_NULL && (meta->world_size < 1 || meta->world_size > IMPORT_MAX_RANK))
        return error_set(error, "key \"world_size\": %lld is no number of ranks",
                         (long long)meta->world_size);
    return 0;
}

int import_take_meta(struct import_meta *meta, const json_t *object, struct error *error)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        int rc;
        if (strcmp(key, "table") == 0)
            rc = 0;
        else if (strcmp(key, "expected_ranks") == 0)
            rc = take_expected(meta, value, error);
        else if (strcmp(key, "strategy") == 0)
            rc = take_text(key, value, &meta->strategy, error);
        else if (strcmp(key, "command") == 0)
            rc = take_text(key, value, &meta->command, error);
        else if (strcmp(key, "world_size") == 0)
            rc = take_world(meta, value, error);
        else
            rc = error_set(error,
                           "key \"%s\" is not known in table meta (known: expected_ranks, "
                           "world_size, strategy, command)",
                           key);
        if (rc)
            return rc;
    }
    return 0;
}

void import_meta_free(struct import_meta *meta)
{
    json_decref(meta->expected_ranks);
    free(meta->strategy);
    free(meta->command);
}

/* --- lines --------------------------------------------------------------------------------- */

static int parse_object(json_t *object, struct import_line *line, struct error *error)
{
    const json_t *table = json_object_get(object, "table");
    if (!json_is_object(object))
        return error_set(error, "a line must be a JSON object, not %s", type_name(object));
    if (!table || (json_is_string(table) && strcmp(json_string_value(table), "step") == 0)) {
        json_object_del(object, "table");
        line->kind = IMPORT_STEP;
        return parse_step(object, line, error);
    }
    if (!json_is_string(table))
        return error_set(error, "key \"table\": a string is wanted, not %s", type_name(table));
    line->kind = strcmp(json_string_value(table), "meta") == 0 ? IMPORT_META : IMPORT_ROW;
    line->object = json_incref(object);
    if (line->kind == IMPORT_META)
        return 0;
    return take_number(object, "rank", IMPORT_MAX_RANK, &line->rank, error);
}

int import_parse(const char *text, size_t length, struct import_line *line, struct error *error)
{
    json_error_t problem;
    json_t *object = json_loadb(text, length, JSON_REJECT_DUPLICATES, &problem);
    line->object = NULL;
    line->odd_other = false;
    if (!object)
        return error_set(error, "not JSON: %s", problem.text);
    int rc = parse_object(object, line, error);
    json_decref(object);
    if (rc) {
        json_decref(line->object);
        line->object = NULL;
    }
    return rc;
}
