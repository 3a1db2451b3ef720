/*
 * fuzz_database.c - any bytes as a rank database: reported on, and asked as `laggard sql` does.
 * Context: libFuzzer program (with -close_fd_mask=2: what is left out is said on stderr).
 */
#include "tests/fuzz/fuzz.h"

#include "aggregator/sql_vtab.h"

static void ask(struct sql_union *all, const char *query)
{
    sqlite3_stmt *stmt = NULL;
    int rows = 0;
    if (sqlite3_prepare_v2(sql_union_handle(all), query, -1, &stmt, NULL) == SQLITE_OK)
        while (sqlite3_step(stmt) == SQLITE_ROW && rows++ < 1000)
            for (int c = 0; c < sqlite3_column_count(stmt); c++)
                sqlite3_column_text(stmt, c);
    sqlite3_finalize(stmt);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const queries[] = {
        "SELECT * FROM step",        "SELECT * FROM step WHERE step BETWEEN 3 AND 5 AND rank = 0",
        "SELECT * FROM rank",        "SELECT * FROM rank_summary",
        "SELECT * FROM stage_share", "SELECT * FROM loss, meta"};
    char dir[128], path[160];
    struct run_files files;
    struct error error;
    fuzz_start();
    snprintf(dir, sizeof dir, "%s/run", fuzz_dir);
    snprintf(path, sizeof path, "%s/rank-00000.sqlite", dir);
    mkdir(dir, 0700);
    fuzz_write(path, data, size);
    fuzz_report(dir);
    struct sql_union *all =
        run_files_find(path, &files, &error) == 0 ? sql_union_open(&files, &error) : NULL;
    for (size_t i = 0; all && i < sizeof queries / sizeof queries[0]; i++)
        ask(all, queries[i]);
    sql_union_close(all);
    run_files_free(&files);
    fuzz_clean();
    return 0;
}
