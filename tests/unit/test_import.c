/*
 * test_import.c - lines of JSON: what each becomes, what each fault is called, and that the writer
 * keeps the last of two rows through many batches.
 */
#include "run_dir.h"

#include <sys/stat.h>
#include <unistd.h>

#include "aggregator/import.h"

static int parse(const char *text, struct import_line *line, struct error *error)
{
    return import_parse(text, strlen(text), line, error);
}

static void accept(const char *text, struct import_line *line)
{
    struct error error = {""};
    if (parse(text, line, &error))
        fail_msg("%s: %s", text, error.text);
}

static void test_step(void **state)
{
    struct import_line line;
    (void)state;
    accept("{\"rank\": 3, \"step\": 7, \"dur_ns\": 0, \"reads\": null, \"sources\": 2}", &line);
    assert_int_equal(line.kind, IMPORT_STEP);
    assert_int_equal(line.rank, 3);
    assert_int_equal(line.step, 7);
    assert_int_equal(line.value[LG_COL_dur_ns], 0);
    assert_true(line.value[LG_COL_reads] == LG_NULL);
    assert_true(line.value[LG_COL_forward_ns] == LG_NULL);
    assert_int_equal(line.value[LG_COL_sources], LG_SOURCE_imported | 2);
    assert_null(line.object);
}

/* Each column is known by its name, and the columns keep apart. */
static void test_every_column(void **state)
{
    struct import_line line;
    (void)state;
    for (int c = 0; c < LG_COLUMNS; c++) {
        char text[200];
        snprintf(text, sizeof(text), "{\"rank\":0,\"step\":1,\"%s\":64}", rankdb_column_name[c]);
        accept(text, &line);
        for (int other = 0; other < LG_COLUMNS; other++) {
            if (other == LG_COL_sources)
                continue;
            assert_true(line.value[other] == (other == c ? 64 : LG_NULL));
        }
    }
}

static void test_rest(void **state)
{
    struct import_line line;
    (void)state;
    accept("{\"rank\":0,\"step\":1,\"input_wait_ns\":1,\"forward_ns\":2,\"backward_ns\":3,"
           "\"optimizer_ns\":4,\"other_ns\":5}",
           &line);
    assert_int_equal(line.value[LG_COL_dur_ns], 15); /* no copy is a copy of no length */
    assert_false(line.odd_other);
    accept("{\"rank\":0,\"step\":1,\"input_wait_ns\":1,\"compute_ns\":5,\"optimizer_ns\":4,"
           "\"other_ns\":5,\"dur_ns\":15}",
           &line);
    assert_false(line.odd_other);
    accept("{\"rank\":0,\"step\":1,\"input_wait_ns\":1,\"compute_ns\":5,\"optimizer_ns\":4,"
           "\"other_ns\":6,\"dur_ns\":15}",
           &line);
    assert_true(line.odd_other);
    accept("{\"rank\":0,\"step\":1,\"input_wait_ns\":1,\"other_ns\":6}", &line);
    assert_true(line.value[LG_COL_dur_ns] == LG_NULL);
    assert_true(line.odd_other);
}

static void test_faults(void **state)
{
    static const struct {
        const char *text, *words;
    } faults[] = {
        {"", "not JSON"},
        {"[]", "object"},
        {"{}", "\"rank\" is missing"},
        {"{\"rank\":1}", "\"step\" is missing"},
        {"{\"rank\":1,\"step\":null}", "\"step\" is null"},
        {"{\"rank\":1.0,\"step\":1}", "\"rank\""},
        {"{\"rank\":1,\"step\":1,\"dur\":1}", "\"dur\" is no column"},
        {"{\"rank\":1,\"step\":1,\"dur_ns\":-1}", "-1 is negative"},
        {"{\"rank\":1,\"step\":1,\"dur_ns\":\"1\"}", "a string"},
        {"{\"rank\":2147483648,\"step\":1}", "too large"},
        {"{\"table\":7,\"rank\":1}", "\"table\""},
        {"{\"table\":\"event\"}", "\"rank\" is missing"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        struct import_line line;
        struct error error = {""};
        if (parse(faults[i].text, &line, &error) == 0)
            fail_msg("accepted: %s", faults[i].text);
        if (!strstr(error.text, faults[i].words))
            fail_msg("'%s' is not in '%s'", faults[i].words, error.text);
        assert_null(line.object);
    }
}

static struct import_writer *open_writer(void)
{
    struct error error = {""};
    struct import_writer *writer = import_writer_open(dir, &error);
    if (!writer)
        fail_msg("%s", error.text);
    return writer;
}

static void add(struct import_writer *writer, const char *text)
{
    struct import_line line;
    struct error error = {""};
    accept(text, &line);
    if (import_writer_add(writer, &line, &error))
        fail_msg("%s: %s", text, error.text);
}

/* More rows than are held back: several batches per rank; each row comes twice, far apart. */
static void test_batches(void **state)
{
    struct import_writer *writer = open_writer();
    struct import_meta meta = {.world_size = 2};
    struct error error = {""};
    (void)state;
    for (int round = 0; round < 2; round++)
        for (int step = 0; step < 60000; step++) {
            char text[100];
            snprintf(text, sizeof(text), "{\"rank\":%d,\"step\":%d,\"dur_ns\":%d}", step & 1,
                     step / 2, 1000 * round + step % 7);
            add(writer, text);
        }
    assert_int_equal(import_writer_ranks(writer), 2);
    assert_int_equal(import_writer_finish(writer, &meta, &error), 0);
    import_writer_close(writer);

    char path[PATH_MAX];
    rankdb_path(path, sizeof(path), dir, 1, 0);
    struct rankdb *db = rankdb_open(path, &error);
    assert_non_null(db);
    int64_t first, last, rows;
    struct rank_info info;
    assert_int_equal(rankdb_extent(db, &first, &last, &rows, &error), 0);
    assert_int_equal(rows, 30000);
    assert_int_equal(last, 29999);
    assert_int_equal(rankdb_get_rank(db, &info, &error), 0);
    assert_int_equal(info.world_size, 2);
    assert_string_equal(info.rank_source, "imported");
    sqlite3_stmt *stmt = NULL;
    sqlite3_prepare_v2(rankdb_handle(db),
                       "SELECT count(*) FROM step WHERE dur_ns = 1000 + (2 * step + 1) % 7", -1,
                       &stmt, NULL);
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    assert_int_equal(sqlite3_column_int64(stmt, 0), 30000);
    sqlite3_finalize(stmt);
    rankdb_close(db);
}

/* Without a finish nothing is left. */
static void test_given_up(void **state)
{
    char path[PATH_MAX];
    struct import_writer *writer = open_writer();
    (void)state;
    add(writer, "{\"rank\":0,\"step\":1}");
    import_writer_close(writer);
    rankdb_path(path, sizeof(path), dir, 0, 0);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(rmdir(dir), 0); /* empty */
    assert_int_equal(mkdir(dir, 0700), 0);
}

static void test_meta(void **state)
{
    struct import_meta meta = {.world_size = LG_NULL};
    struct import_line line;
    struct error error = {""};
    (void)state;
    accept("{\"table\":\"meta\",\"expected_ranks\":[2,0],\"strategy\":\"ddp\"}", &line);
    assert_int_equal(line.kind, IMPORT_META);
    assert_int_equal(import_take_meta(&meta, line.object, &error), 0);
    json_decref(line.object);
    accept("{\"table\":\"meta\",\"strategy\":\"fsdp\"}", &line);
    assert_int_equal(import_take_meta(&meta, line.object, &error), 0);
    json_decref(line.object);
    assert_int_equal(json_array_size(meta.expected_ranks), 2);
    assert_string_equal(meta.strategy, "fsdp");
    assert_true(meta.world_size == LG_NULL);
    import_meta_free(&meta);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_dir, remove_dir)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step), cmocka_unit_test(test_every_column),
        cmocka_unit_test(test_rest), cmocka_unit_test(test_faults),
        cmocka_unit_test(test_meta), TEST(test_batches),
        TEST(test_given_up),
    };
    return unit_run(tests);
}
