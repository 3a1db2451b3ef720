/*
 * test_report.c - both forms of a report say what the diagnosis holds, keep NULL and 0 apart, and
 * stay readable with many ranks and with odd texts.
 */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "aggregator/report.h"
#include "run_builder.h"

/* `ranks` ranks, 60 steps of 100 ms; rank 2's stages are `two` if that is not NULL. */
static struct lg_run *make_run(int ranks, const struct stages *two)
{
    static const struct stages usual = {5, 3, 30, 45, 10, 7};
    struct lg_run *run = lg_run_new();
    run->imported = true; /* so that h2d counts without a device */
    for (int r = 0; r < ranks; r++) {
        struct lg_rank *rank = lg_run_add_rank(run, r);
        for (int64_t step = 0; step < 60; step++)
            add_row(rank, step, r == 2 && two ? *two : usual);
    }
    return run;
}

static char *text_of(struct lg_run *run)
{
    char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    struct lg_diagnosis *d = lg_diagnose(run, NULL);
    report_text(d, memory);
    fclose(memory);
    lg_diagnosis_free(d);
    lg_run_free(run);
    return text;
}

static json_t *json_of(struct lg_run *run)
{
    struct lg_diagnosis *d = lg_diagnose(run, NULL);
    json_t *json = report_json(d);
    lg_diagnosis_free(d);
    lg_run_free(run);
    assert_non_null(json);
    return json;
}

static void check_has(const char *text, const char *words)
{
    if (!strstr(text, words))
        fail_msg("'%s' is not in:\n%s", words, text);
}

static size_t widest(const char *text)
{
    size_t most = 0;
    while (*text) {
        size_t length = strcspn(text, "\n");
        most = length > most ? length : most;
        text += length + (text[length] == '\n');
    }
    return most;
}

static const json_t *rank_value(const json_t *json, size_t rank, const char *key)
{
    const json_t *value =
        json_object_get(json_array_get(json_object_get(json, "ranks"), rank), key);
    if (!value)
        fail_msg("rank %zu has no key %s", rank, key);
    return value;
}

static void test_json_null(void **state)
{
    struct lg_run *run = make_run(3, &(struct stages){5, 3, X, 45, 10, 7});
    (void)state;
    run->ranks[1].end = LG_RANK_END_KILLED;
    lg_run_add_loss(run, 1, LG_LOSS_killed, LG_NULL, 59, "ends at step 59 (killed)");
    json_t *json = json_of(run);
    assert_true(json_is_null(rank_value(json, 2, "forward_ns")));
    assert_int_equal(json_integer_value(rank_value(json, 1, "forward_ns")), 30 * 1000000);
    assert_true(json_is_null(rank_value(json, 1, "gpu_dur_ns")));
    assert_true(json_is_null(rank_value(json, 1, "sync_ns")));
    assert_true(json_is_null(rank_value(json, 0, "end")));
    assert_string_equal(json_string_value(rank_value(json, 1, "end")), "killed");
    const json_t *loss = json_array_get(json_object_get(json, "losses"), 0);
    assert_true(json_is_null(json_object_get(loss, "rows")));
    assert_int_equal(json_integer_value(json_object_get(loss, "step")), 59);
    assert_true(json_is_null(json_object_get(json_object_get(json, "verdict"), "rank")));
    assert_true(json_is_null(json_object_get(json_object_get(json, "run"), "world_size")));
    json_decref(json);
}

static void test_json_zero(void **state)
{
    struct lg_run *run = make_run(2, NULL);
    (void)state;
    for (size_t r = 0; r < run->n_ranks; r++)
        for (size_t row = 0; row < run->ranks[r].n; row++)
            set(&run->ranks[r], row, LG_COL_device_wait_ns, 0);
    json_t *json = json_of(run);
    const json_t *value = rank_value(json, 0, "device_wait_ns");
    assert_true(json_is_integer(value));
    assert_int_equal(json_integer_value(value), 0);
    json_decref(json);
}

/* Bytes that are no UTF-8 and control characters: valid JSON, and no escape in a terminal. */
static void test_odd_texts(void **state)
{
    struct lg_run *run = make_run(2, NULL);
    (void)state;
    run->command = lg_strdup("train \xff\x1b[31m --name=caf\xc3\xa9");
    json_t *json = json_of(run);
    const char *command =
        json_string_value(json_object_get(json_object_get(json, "run"), "command"));
    assert_non_null(command);
    check_has(command, "train ?");
    json_decref(json);
    run = make_run(2, NULL);
    run->command = lg_strdup("train \x1b[31m --fast");
    char *text = text_of(run);
    check_has(text, "train ?[31m --fast");
    assert_null(strchr(text, 0x1b));
    free(text);
}

static void test_text(void **state)
{
    struct lg_run *run = make_run(4, &(struct stages){65, 3, 30, 45, 10, 7});
    (void)state;
    add_collectives(run, 0, 1);
    for (size_t r = 0; r < run->n_ranks; r++)
        for (size_t row = 0; r != 2 && row < run->ranks[r].n; row++) {
            set(&run->ranks[r], row, LG_COL_backward_ns, in_ns(105));
            set(&run->ranks[r], row, LG_COL_backward_sync_ns, in_ns(60));
            set(&run->ranks[r], row, LG_COL_dur_ns, in_ns(160));
        }
    run->running = true;
    char *text = text_of(run);
    assert_int_equal(strncmp(text, "INPUT_STRAGGLER (critical): Rank 2", 34), 0);
    check_has(text, "So far");
    /* own times, the sync apart */
    check_has(text,
              "      0  160.00     5.00     3.00    30.00    45.00    10.00     7.00    60.00");
    check_has(text,
              ">     2  160.00    65.00<    3.00    30.00    45.00    10.00     7.00     0.00");
    check_has(text, "      *  160.00    20.00 ");
    check_has(text, "input 3.1 %");
    assert_in_range(widest(text), 40, 79);
    free(text);
}

/* Forward and backward that can't be told apart share a column, which never says 0. */
static void test_merged(void **state)
{
    struct lg_run *run = make_run(2, NULL);
    (void)state;
    for (size_t r = 0; r < run->n_ranks; r++)
        for (size_t row = 0; row < run->ranks[r].n; row++) {
            set(&run->ranks[r], row, LG_COL_forward_ns, LG_NULL);
            set(&run->ranks[r], row, LG_COL_backward_ns, LG_NULL);
            set(&run->ranks[r], row, LG_COL_compute_ns, in_ns(75));
        }
    char *text = text_of(run);
    check_has(text, " fwd+bwd    optim ");
    check_has(text, "      0  100.00     5.00     3.00    75.00    10.00     7.00        - ");
    free(text);
}

static void test_many_ranks(void **state)
{
    struct lg_run *run = make_run(100, &(struct stages){65, 3, 30, 45, 10, 7});
    (void)state;
    for (size_t r = 0; r < run->n_ranks; r++)
        snprintf(run->ranks[r].host, sizeof(run->ranks[r].host), "node%zu", r / 8);
    char *text = text_of(run);
    check_has(text, "100 of 100");
    check_has(text, "node0 (0-7), node1 (8-15)");
    check_has(text, "84 more ranks");
    check_has(text, "      2  160.00    65.00<"); /* the slowest is among those shown */
    assert_in_range(widest(text), 40, 79);
    free(text);
}

static void test_missing(void **state)
{
    struct lg_run *run = make_run(7, NULL);
    (void)state;
    run->world = 8;
    char *text = text_of(run);
    check_has(text, "7 of 8; without rows: rank 7");
    free(text);
    run = make_run(4, NULL);
    for (int32_t r = 0; r < 4; r++)
        lg_run_add_loss(run, r, LG_LOSS_killed, LG_NULL, r == 2 ? 41 : 59,
                        r == 2 ? "ends at step 41 (killed)" : "ends at step 59 (killed)");
    lg_run_add_loss(run, LG_NO_RANK, LG_LOSS_database, LG_NULL, LG_NULL, "rows wait");
    text = text_of(run);
    check_has(text, "  - ranks 0, 1, 3: ends at step 59 (killed)\n"
                    "  - rank 2: ends at step 41 (killed)\n"
                    "  - rows wait\n");
    free(text);
    text = text_of(lg_run_new());
    check_has(text, "NO_DATA");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_null), cmocka_unit_test(test_json_zero),
        cmocka_unit_test(test_odd_texts), cmocka_unit_test(test_text),
        cmocka_unit_test(test_merged),    cmocka_unit_test(test_many_ranks),
        cmocka_unit_test(test_missing),
    };
    return unit_run(tests);
}
