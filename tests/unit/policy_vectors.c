/*
 * policy_vectors.c - the published policy against recorded answers: reads files of one JSON case a
 * line (tests/conformance/), runs lg_policy_run() on each and compares the whole answer. Floats may
 * differ by 1e-9 relative, everything else not at all. Prints each difference, then the count.
 *
 *     policy-vectors FILE.jsonl...
 */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/diagnose.h"
#include "aggregator/policy.h"
#include "aggregator/rows.h"

#define TOLERANCE 1e-9

static unsigned passed, failed;

/* ---- the case as the policy takes it ---- */

static int64_t nanoseconds(const json_t *value)
{
    return json_is_integer(value) ? (int64_t)json_integer_value(value) : LG_NULL;
}

static bool read_row(const json_t *from, struct lg_policy_row *row)
{
    const json_t *metrics = json_object_get(from, "m");

    row->id = json_integer_value(json_object_get(from, "id"));
    row->rank = (int32_t)json_integer_value(json_object_get(from, "rank"));
    row->step = json_integer_value(json_object_get(from, "step"));
    for (int m = 0; m < LG_METRIC_COUNT; m++) {
        const json_t *pair = json_object_get(metrics, lg_metric_name(m));

        row->value[m][0] = nanoseconds(json_array_get(pair, 0));
        row->value[m][1] = nanoseconds(json_array_get(pair, 1));
        if (pair)
            row->present |= (uint8_t)(1u << m);
    }
    for (void *i = json_object_iter((json_t *)metrics); i;
         i = json_object_iter_next((json_t *)metrics, i)) {
        int m = 0;

        while (m < LG_METRIC_COUNT && strcmp(json_object_iter_key(i), lg_metric_name(m)) != 0)
            m++;
        if (m == LG_METRIC_COUNT)
            return false;
    }
    return json_is_object(metrics);
}

/* NULL: the case is not what the reader understands. */
static struct lg_policy_row *read_rows(const json_t *from, size_t *n)
{
    struct lg_policy_row *rows;
    size_t i;
    const json_t *row;

    if (!json_is_array(from))
        return NULL;
    *n = json_array_size(from);
    rows = lg_alloc(*n, sizeof(*rows));
    json_array_foreach(from, i, row)
    {
        if (!read_row(row, &rows[i])) {
            free(rows);
            return NULL;
        }
    }
    return rows;
}

static int32_t *read_ranks(const json_t *from, size_t *n)
{
    int32_t *ranks;
    size_t i;
    const json_t *rank;

    *n = json_array_size(from); /* 0 for what is no array: none declared */
    ranks = lg_alloc(*n, sizeof(*ranks));
    json_array_foreach(from, i, rank) ranks[i] = (int32_t)json_integer_value(rank);
    return ranks;
}

/* ---- the answer in the form of the file ---- */

static json_t *real_or_null(double value)
{
    return isnan(value) ? json_null() : json_real(value);
}

static json_t *rank_or_null(bool there, int32_t rank)
{
    return there ? json_integer(rank) : json_null();
}

/* The files' names for severities. */
static json_t *severity(enum lg_severity value)
{
    static const char *const names[] = {"info", "warn", "crit"};

    return json_string(names[value]);
}

static json_t *issue_json(const struct lg_policy_result *result,
                          const struct lg_policy_issue *issue)
{
    json_t *ranks = json_array();

    if (issue->has_rank)
        json_array_append_new(ranks, json_integer(issue->rank));
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "kind", lg_kind_name(issue->kind),
                     "severity", severity(issue->severity), "score", real_or_null(issue->score),
                     "share", real_or_null(issue->share), "ranks", ranks, "evidence",
                     lg_policy_evidence_json(result, issue));
}

static json_t *answer_json(const struct lg_policy_result *result)
{
    json_t *issues = json_array(), *shares = json_object();

    for (size_t i = 0; i < result->n_issues; i++)
        json_array_append_new(issues, issue_json(result, &result->issue[i]));
    for (int s = 0; s < LG_SHARE_COUNT; s++)
        json_object_set_new(shares, lg_share_name(s), real_or_null(result->share[s]));
    return json_pack("{s:s, s:I, s:s, s:o, s:o, s:o, s:o}", "clock", lg_clock_name(result->clock),
                     "steps_used", (json_int_t)result->steps_used, "kind",
                     lg_kind_name(result->kind), "severity", severity(result->severity),
                     "worst_rank", rank_or_null(result->has_worst_rank, result->worst_rank),
                     "issues", issues, "shares", shares);
}

/* ---- comparison ---- */

static bool close_enough(double a, double b)
{
    return fabs(a - b) <= TOLERANCE * fmax(fabs(a), fabs(b));
}

static bool equal(const json_t *want, const json_t *have)
{
    size_t i;
    const json_t *value;

    if (json_is_real(want) || json_is_real(have))
        return json_is_number(want) && json_is_number(have) &&
               close_enough(json_number_value(want), json_number_value(have));
    if (json_is_array(want)) {
        if (!json_is_array(have) || json_array_size(want) != json_array_size(have))
            return false;
        json_array_foreach(want, i, value) if (!equal(value, json_array_get(have, i))) return false;
        return true;
    }
    if (json_is_object(want)) {
        if (!json_is_object(have) || json_object_size(want) != json_object_size(have))
            return false;
        for (void *k = json_object_iter((json_t *)want); k;
             k = json_object_iter_next((json_t *)want, k))
            if (!equal(json_object_iter_value(k), json_object_get(have, json_object_iter_key(k))))
                return false;
        return true;
    }
    return json_equal(want, have);
}

static void print_difference(const char *name, const char *key, const json_t *want,
                             const json_t *have)
{
    char *w = json_dumps(want, JSON_ENCODE_ANY | JSON_SORT_KEYS);
    char *h = json_dumps(have, JSON_ENCODE_ANY | JSON_SORT_KEYS);

    printf("%s: %s\n  recorded: %s\n  ours:     %s\n", name, key, w ? w : "(nothing)",
           h ? h : "(nothing)");
    free(w);
    free(h);
}

/* True if the two are the same; prints each key that is not. */
static bool compare(const char *name, const json_t *want, const json_t *have)
{
    bool same = true;

    if (json_object_size(want) != json_object_size(have)) {
        printf("%s: the recorded answer has other keys\n", name);
        same = false;
    }
    for (void *i = json_object_iter((json_t *)want); i;
         i = json_object_iter_next((json_t *)want, i)) {
        const char *key = json_object_iter_key(i);

        if (!equal(json_object_iter_value(i), json_object_get(have, key))) {
            print_difference(name, key, json_object_iter_value(i), json_object_get(have, key));
            same = false;
        }
    }
    return same;
}

static bool run_case(const char *where, const json_t *c)
{
    const char *name = json_string_value(json_object_get(c, "name"));
    const json_t *want = json_object_get(c, "expect");
    struct lg_policy_input input = {
        .window = json_integer_value(json_object_get(c, "window")),
        .strategy = lg_strategy_parse(json_string_value(json_object_get(c, "strategy"))),
    };
    struct lg_policy_result result;
    struct lg_policy_row *rows = read_rows(json_object_get(c, "rows"), &input.n_rows);
    int32_t *expected;
    json_t *have;
    bool same;

    if (!rows || !json_is_object(want)) {
        printf("%s: not a case (name, rows with known metrics, expect)\n", where);
        free(rows);
        return false;
    }
    expected = read_ranks(json_object_get(c, "expected_ranks"), &input.n_expected);
    input.rows = rows;
    input.expected = expected;
    lg_policy_run(&input, &result);
    have = answer_json(&result);
    same = compare(name ? name : where, want, have);
    json_decref(have);
    lg_policy_result_free(&result);
    free(expected);
    free(rows);
    return same;
}

static void run_line(const char *file, unsigned number, const char *line)
{
    char where[256];
    json_error_t error;
    json_t *c = json_loads(line, 0, &error);
    bool same = false;

    snprintf(where, sizeof(where), "%s:%u", file, number);
    if (c)
        same = run_case(where, c);
    else
        printf("%s: %s\n", where, error.text);
    json_decref(c);
    passed += same;
    failed += !same;
}

/* False: the file could not be read. */
static bool run_file(const char *path)
{
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    unsigned number = 0;

    if (!file) {
        fprintf(stderr, "policy-vectors: %s: %s\n", path, strerror(errno));
        return false;
    }
    while (getline(&line, &room, file) >= 0) {
        number++;
        if (strspn(line, " \t\r\n") < strlen(line))
            run_line(path, number, line);
    }
    free(line);
    fclose(file);
    return true;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: policy-vectors FILE.jsonl...\n");
        return 2;
    }
    for (int i = 1; i < argc; i++)
        if (!run_file(argv[i]))
            return 2;
    printf("%u passed, %u failed\n", passed, failed);
    return failed || !passed;
}
