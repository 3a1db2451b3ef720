/*
 * test_sql.c - the union of all rank databases: which files and rows a query is given, how many are
 * open at a time, and that nothing but reading is allowed.
 */
#include "run_dir.h"

#include <dirent.h>
#include <unistd.h>

#include "aggregator/sql_output.h"
#include "aggregator/sql_vtab.h"

static struct run_files files;
static struct sql_union *all;

static void open_union(void)
{
    struct error error = {""};
    if (run_files_find(dir, &files, &error) || !(all = sql_union_open(&files, &error)))
        fail_msg("%s", error.text);
}

static void close_union(void)
{
    sql_union_close(all);
    run_files_free(&files);
}

/* The query's only value. */
static int64_t number(const char *sql)
{
    sqlite3_stmt *stmt = NULL;
    sqlite3 *db = sql_union_handle(all);
    if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK ||
        sqlite3_step(stmt) != SQLITE_ROW)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    int64_t value = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    return value;
}

static int refused(const char *sql)
{
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(sql_union_handle(all), sql, -1, &stmt, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_stmt_readonly(stmt) ? SQLITE_OK : SQLITE_AUTH;
    sqlite3_finalize(stmt);
    return rc != SQLITE_OK;
}

/* Open files of this process whose name ends so. */
static int open_files(const char *suffix)
{
    int n = 0;
    DIR *list = opendir("/proc/self/fd");
    for (struct dirent *entry; list && (entry = readdir(list));) {
        char link[PATH_MAX] = "", path[300];
        snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
        ssize_t length = readlink(path, link, sizeof(link) - 1);
        if (length > (ssize_t)strlen(suffix) &&
            strcmp(link + (size_t)length - strlen(suffix), suffix) == 0)
            n++;
    }
    if (list)
        closedir(list);
    return n;
}

static void test_rows(void **state)
{
    (void)state;
    for (int64_t rank = 0; rank < 5; rank++)
        simple_rank(rank, 0, 20);
    open_union();
    assert_int_equal(number("SELECT count(*) FROM step"), 100);
    assert_int_equal(number("SELECT sum(rank) FROM step"), 200);
    assert_int_equal(number("SELECT count(*) FROM step WHERE rank = 3 AND step > 15"), 4);
    assert_int_equal(number("SELECT input_wait_ns FROM step WHERE rank = 4 AND step = 2"), 4 * MS);
    assert_int_equal(number("SELECT count(*) FROM step WHERE h2d_ns IS NULL"), 100);
    assert_int_equal(number("SELECT count(*) FROM step WHERE other_ns = 4000000"), 20);
    assert_int_equal(number("SELECT count(DISTINCT rowid) FROM step"), 100);
    assert_int_equal(number("SELECT count(*) FROM rank_summary WHERE steps = 20"), 5);
    close_union();
}

static void test_lazy(void **state)
{
    (void)state;
    for (int64_t rank = 0; rank < 100; rank++)
        simple_rank(rank, 0, 1);
    open_union();
    int before = open_files(".sqlite");
    assert_in_range(before, 1, 2); /* one, for its columns */
    assert_int_equal(number("SELECT count(*) FROM step WHERE rank IN (7, 8)"), 2);
    assert_int_equal(open_files(".sqlite"), before + 2);
    assert_int_equal(number("SELECT count(*) FROM step"), 100);
    assert_in_range(open_files(".sqlite"), 1, 64);
    /* two walks over all files at once */
    assert_int_equal(number("SELECT count(*) FROM step AS a, step AS b WHERE a.rank = b.rank"),
                     100);
    assert_in_range(open_files(".sqlite"), 1, 64);
    close_union();
    assert_int_equal(open_files(".sqlite"), 0);
}

static void test_attempts(void **state)
{
    (void)state;
    simple_rank(0, 0, 10);
    simple_rank(1, 0, 10);
    simple_rank(1, 1, 4);
    open_union();
    assert_int_equal(number("SELECT count(*) FROM step"), 14);
    assert_int_equal(number("SELECT count(*) FROM step WHERE attempt >= 0"), 24);
    assert_int_equal(number("SELECT count(*) FROM step WHERE attempt = 0 AND rank = 1"), 10);
    assert_int_equal(number("SELECT attempt FROM rank WHERE rank = 1"), 1);
    assert_int_equal(
        number("SELECT count(*) FROM pragma_table_info('step') WHERE name = 'attempt'"), 0);
    close_union();
}

static void test_read_only(void **state)
{
    static const char *const writing[] = {"DELETE FROM step",
                                          "CREATE TABLE t(a)",
                                          "CREATE TEMP TABLE t(a)",
                                          "ATTACH ':memory:' AS x",
                                          "VACUUM",
                                          "PRAGMA journal_mode = WAL",
                                          "BEGIN",
                                          "UPDATE meta SET value = 1",
                                          "DROP TABLE rank"};
    (void)state;
    simple_rank(0, 0, 3);
    open_union();
    for (size_t i = 0; i < sizeof(writing) / sizeof(writing[0]); i++)
        if (!refused(writing[i]))
            fail_msg("allowed: %s", writing[i]);
    assert_false(refused("SELECT * FROM step"));
    assert_false(refused("PRAGMA table_info(step)"));
    close_union();
}

static void test_output(void **state)
{
    char *text = NULL;
    size_t size = 0;
    sqlite3_stmt *stmt = NULL;
    (void)state;
    simple_rank(0, 0, 1);
    open_union();
    FILE *memory = open_memstream(&text, &size);
    assert_non_null(memory);
    assert_int_equal(sqlite3_prepare_v2(sql_union_handle(all),
                                        "SELECT NULL AS n, 0 AS zero, 'é' AS e, 'x' AS last", -1,
                                        &stmt, NULL),
                     SQLITE_OK);
    for (int format = SQL_TABLE; format <= SQL_JSON; format++) {
        assert_int_equal(sql_output(stmt, (enum sql_format)format, memory), SQLITE_DONE);
        sqlite3_reset(stmt);
    }
    sqlite3_finalize(stmt);
    fclose(memory);
    assert_string_equal(text, "   n  zero  e  last\n"
                              "NULL     0  é  x\n"
                              "n,zero,e,last\n"
                              ",0,é,x\n"
                              "[{\"n\":null,\"zero\":0,\"e\":\"é\",\"last\":\"x\"}]\n");
    free(text);
    assert_int_equal(sql_format_parse("json"), SQL_JSON);
    assert_int_equal(sql_format_parse("xml"), -1);
    close_union();
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_dir, remove_dir)
    const struct CMUnitTest tests[] = {TEST(test_rows), TEST(test_lazy), TEST(test_attempts),
                                       TEST(test_read_only), TEST(test_output)};
    return unit_run(tests);
}
