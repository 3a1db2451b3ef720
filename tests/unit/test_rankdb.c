/*
 * test_rankdb.c - a rank database gives back exactly what was put in, whatever is not stored, and
 * stays within its size.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "aggregator/rankdb.h"

static char dir[64];
static char path[128];

static int make_dir(void **state)
{
    (void)state;
    /* in memory, where there is such a place: thousands of transactions */
    strcpy(dir, access("/dev/shm", W_OK) == 0 ? "/dev/shm/laggard-test-XXXXXX"
                                              : "/tmp/laggard-test-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    return rankdb_path(path, sizeof(path), dir, 3, 0);
}

static int remove_dir(void **state)
{
    char command[100];
    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    return system(command);
}

static struct rankdb *create(void)
{
    struct error error = {""};
    struct rankdb *db = rankdb_create(path, &error);
    if (!db)
        fail_msg("%s", error.text);
    return db;
}

static uint64_t random_state = 1;

static int64_t random_below(int64_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((random_state >> 33) % (uint64_t)n);
}

static void all_null(int64_t *value)
{
    for (int c = 0; c < LG_COLUMNS; c++)
        value[c] = LG_NULL;
}

/* What a data-parallel CPU rank with a DataLoader and a blocking all-reduce writes: 100 ms steps.
 */
static int64_t typical_row(int64_t step, int64_t start, int64_t *v)
{
    all_null(v);
    v[LG_COL_start_ns] = start;
    v[LG_COL_input_wait_ns] = 300000 + random_below(2000000);
    v[LG_COL_forward_ns] = 30000000 + random_below(3000000);
    v[LG_COL_backward_ns] = 55000000 + random_below(9000000);
    v[LG_COL_optimizer_ns] = 5000000 + random_below(1000000);
    v[LG_COL_other_ns] = 50000 + random_below(200000);
    v[LG_COL_dur_ns] = v[LG_COL_input_wait_ns] + v[LG_COL_forward_ns] + v[LG_COL_backward_ns] +
                       v[LG_COL_optimizer_ns] + v[LG_COL_other_ns];
    v[LG_COL_input_wait_sync_ns] = v[LG_COL_forward_sync_ns] = v[LG_COL_optimizer_sync_ns] = 0;
    v[LG_COL_h2d_sync_ns] = LG_NULL;
    v[LG_COL_other_sync_ns] = 0;
    v[LG_COL_backward_sync_ns] = 12000000 + random_below(9000000);
    v[LG_COL_backward_after_ns] = 100000 + random_below(300000);
    v[LG_COL_optimizer_after_ns] = v[LG_COL_optimizer_ns];
    v[LG_COL_other_after_ns] = v[LG_COL_other_ns];
    v[LG_COL_reads] = 2 + random_below(3);
    v[LG_COL_read_bytes] = 150000 + random_below(100000);
    v[LG_COL_write_bytes] = random_below(10) ? 0 : 90;
    v[LG_COL_fsyncs] = 0;
    v[LG_COL_collectives] = 5;
    v[LG_COL_collective_bytes] = 102400000;
    v[LG_COL_collective_seq] = 5 * (step + 1);
    v[LG_COL_hidden_input_ns] = 60000000 + random_below(20000000);
    v[LG_COL_thread_cpu_ns] = 85000000 + random_below(5000000);
    v[LG_COL_minor_faults] = random_below(400);
    v[LG_COL_major_faults] = 0;
    v[LG_COL_voluntary_switches] = 10 + random_below(30);
    v[LG_COL_involuntary_switches] = random_below(8);
    v[LG_COL_n_backward] = 1;
    v[LG_COL_flags] = 0;
    v[LG_COL_sources] = LG_SOURCE_label_input | LG_SOURCE_label_forward | LG_SOURCE_engine |
                        LG_SOURCE_label_optimizer | LG_SOURCE_reducer | LG_SOURCE_collectives;
    return start + v[LG_COL_dur_ns];
}

static void add_device(int64_t *v)
{
    for (int c = LG_COL_gpu_dur_ns; c < LG_COLUMNS; c++)
        v[c] = 0;
    v[LG_COL_h2d_ns] = 100000 + random_below(100000);
    v[LG_COL_other_ns] -= v[LG_COL_h2d_ns];
    v[LG_COL_other_after_ns] = v[LG_COL_other_ns];
    v[LG_COL_h2d_sync_ns] = 0;
    v[LG_COL_h2d_copies] = 2;
    v[LG_COL_h2d_bytes] = 19267584;
    v[LG_COL_h2d_overlapped] = 0;
    v[LG_COL_launches] = 1100 + random_below(20);
    v[LG_COL_host_syncs] = 1;
    v[LG_COL_device_wait_ns] = 20000000 + random_below(9000000);
    v[LG_COL_gpu_dur_ns] = v[LG_COL_dur_ns] + random_below(1000);
    v[LG_COL_gpu_input_wait_ns] = random_below(300000);
    v[LG_COL_gpu_h2d_ns] = 1500000 + random_below(200000);
    v[LG_COL_gpu_forward_ns] = 30000000 + random_below(900000);
    v[LG_COL_gpu_backward_ns] = 60000000 + random_below(900000);
    v[LG_COL_gpu_optimizer_ns] = 4000000 + random_below(900000);
    v[LG_COL_gpu_other_ns] = random_below(30000);
    v[LG_COL_gpu_backward_sync_ns] = 9000000 + random_below(900000);
    v[LG_COL_gpu_backward_after_ns] = random_below(90000);
    v[LG_COL_gpu_optimizer_after_ns] = v[LG_COL_gpu_optimizer_ns];
    v[LG_COL_gpu_other_after_ns] = v[LG_COL_gpu_other_ns];
}

static double bytes_per_row(int rows, int device)
{
    struct rankdb *db = create();
    int64_t value[LG_COLUMNS], start = 1000000000000;
    struct stat st;

    random_state = 1;
    for (int step = 0; step < rows; step++) {
        if (step % 100 == 0)
            assert_int_equal(rankdb_begin(db, NULL), 0);
        start = typical_row(step, start, value);
        if (device)
            add_device(value);
        assert_int_equal(rankdb_put_step(db, step, value, NULL), 0);
        if (step % 100 == 99 || step == rows - 1)
            assert_int_equal(rankdb_commit(db, NULL), 0);
    }
    rankdb_close(db);
    assert_int_equal(stat(path, &st), 0);
    return (double)st.st_size / rows;
}

static void test_size(void **state)
{
    (void)state;
    double size = bytes_per_row(10000, 0);
    print_message("%.1f bytes per rank-step without a device (whole file, 10000 rows)\n", size);
    assert_true(size <= 96);
}

static void test_size_with_device(void **state)
{
    (void)state;
    double size = bytes_per_row(10000, 1);
    print_message("%.1f bytes per rank-step with a device (whole file, 10000 rows)\n", size);
    assert_true(size <= 160);
}

/* ---- what goes in comes out ---- */

#define MODEL_STEPS 700

struct model {
    int there[MODEL_STEPS];
    int64_t value[MODEL_STEPS][LG_COLUMNS];
};

static int64_t random_value(void)
{
    switch (random_below(4)) {
    case 0:
        return LG_NULL;
    case 1:
        return 0;
    default:
        return random_below(1 << (1 + random_below(30)));
    }
}

static void random_row(int64_t *v, int64_t start)
{
    for (int c = 0; c < LG_COLUMNS; c++)
        v[c] = random_value();
    v[LG_COL_start_ns] = start;
    /* other is never free: it is the rest of dur (decisions of schema/rank.sql) */
    int64_t parts = 0;
    int split = v[LG_COL_forward_ns] != LG_NULL && v[LG_COL_backward_ns] != LG_NULL;
    int with_compute = v[LG_COL_compute_ns] != LG_NULL && !split;
    for (int c = LG_COL_input_wait_ns; c <= LG_COL_optimizer_ns; c++)
        if (v[c] != LG_NULL &&
            !(with_compute && (c == LG_COL_forward_ns || c == LG_COL_backward_ns)))
            parts += v[c];
    if (with_compute)
        parts += v[LG_COL_compute_ns];
    v[LG_COL_other_ns] = v[LG_COL_dur_ns] == LG_NULL ? LG_NULL : v[LG_COL_dur_ns] - parts;
}

static void put_random(struct rankdb *db, struct model *model, int64_t step)
{
    int64_t start = random_below(1000000000);
    if (random_below(10) == 0)
        start = LG_NULL;
    else if (step > 0 && model->there[step - 1] && random_below(20) &&
             model->value[step - 1][LG_COL_start_ns] != LG_NULL &&
             model->value[step - 1][LG_COL_dur_ns] != LG_NULL)
        start = model->value[step - 1][LG_COL_start_ns] + model->value[step - 1][LG_COL_dur_ns];
    random_row(model->value[step], start);
    model->there[step] = 1;
    assert_int_equal(rankdb_put_step(db, step, model->value[step], NULL), 0);
}

struct comparison {
    const struct model *model;
    int64_t next, last;
};

static int compare_step(void *context, int64_t step, const int64_t *value)
{
    struct comparison *c = context;
    while (c->next < step)
        assert_false(c->model->there[c->next++]);
    for (int i = 0; i < LG_COLUMNS; i++)
        if (value[i] != c->model->value[step][i])
            fail_msg("step %lld %s: %lld is not %lld", (long long)step, rankdb_column_name[i],
                     (long long)value[i], (long long)c->model->value[step][i]);
    c->next = step + 1;
    return 0;
}

static void compare_api(struct rankdb *db, const struct model *model, int64_t first, int64_t last)
{
    struct comparison c = {model, first, last};
    assert_int_equal(rankdb_each_step(db, first, last, RANKDB_ALL_COLUMNS, compare_step, &c, NULL),
                     0);
    for (; c.next <= last; c.next++)
        assert_false(model->there[c.next]);
}

/* The view must say the same as the function. */
static void compare_view(struct rankdb *db, const struct model *model)
{
    sqlite3_stmt *stmt;
    struct comparison c = {model, 0, MODEL_STEPS - 1};
    assert_int_equal(
        sqlite3_prepare_v2(rankdb_handle(db), "SELECT * FROM step ORDER BY step", -1, &stmt, NULL),
        SQLITE_OK);
    assert_string_equal(sqlite3_column_name(stmt, 0), "rank");
    assert_string_equal(sqlite3_column_name(stmt, 1), "step");
    while (sqlite3_step(stmt) == SQLITE_ROW) {
        int64_t value[LG_COLUMNS];
        for (int i = 0; i < LG_COLUMNS; i++) {
            assert_string_equal(sqlite3_column_name(stmt, i + 2), rankdb_column_name[i]);
            value[i] = sqlite3_column_type(stmt, i + 2) == SQLITE_NULL
                           ? LG_NULL
                           : sqlite3_column_int64(stmt, i + 2);
        }
        compare_step(&c, sqlite3_column_int64(stmt, 1), value);
    }
    sqlite3_finalize(stmt);
}

/* Rows in order with gaps, rows put again, transactions rolled back, the file opened anew. */
static void test_round_trip(void **state)
{
    static struct model model, saved;
    struct rankdb *db = create();
    (void)state;
    memset(&model, 0, sizeof(model));
    random_state = 7;
    for (int64_t step = 0; step < MODEL_STEPS; step++) {
        if (random_below(30) == 0)
            continue;
        put_random(db, &model, step);
        if (random_below(8) == 0)
            put_random(db, &model, random_below(step + 1));
        if (random_below(50) == 0) {
            saved = model;
            assert_int_equal(rankdb_begin(db, NULL), 0);
            for (int i = 0; i < 5; i++)
                put_random(db, &model, random_below(MODEL_STEPS));
            rankdb_rollback(db);
            model = saved;
        }
        if (random_below(100) == 0) {
            rankdb_close(db);
            db = create();
        }
    }
    rankdb_close(db);
    db = rankdb_open(path, NULL);
    assert_non_null(db);
    compare_api(db, &model, 0, MODEL_STEPS - 1);
    for (int64_t first = 0; first < MODEL_STEPS; first += 37)
        compare_api(db, &model, first, first + 11 < MODEL_STEPS ? first + 11 : MODEL_STEPS - 1);
    compare_view(db, &model);
    rankdb_close(db);
}

struct two_columns {
    int64_t rows, dur, seq;
};

static int add_two(void *context, int64_t step, const int64_t *value)
{
    struct two_columns *sum = context;
    (void)step;
    sum->rows++;
    sum->dur += value[LG_COL_dur_ns];
    sum->seq += value[LG_COL_collective_seq];
    return 0;
}

/* A reader that wants few columns gets those. */
static void test_few_columns(void **state)
{
    struct rankdb *db = create();
    int64_t value[LG_COLUMNS], start = 5;
    struct two_columns sum = {0, 0, 0}, expected = {0, 0, 0};
    (void)state;
    for (int64_t step = 0; step < 10; step++) {
        start = typical_row(step, start, value);
        assert_int_equal(rankdb_put_step(db, step, value, NULL), 0);
        add_two(&expected, step, value);
    }
    assert_int_equal(rankdb_each_step(db, 0, 100,
                                      RANKDB_COLUMN(dur_ns) | RANKDB_COLUMN(collective_seq),
                                      add_two, &sum, NULL),
                     0);
    assert_memory_equal(&sum, &expected, sizeof(sum));
    rankdb_close(db);
}

static double query(struct rankdb *db, const char *sql)
{
    sqlite3_stmt *stmt;
    if (sqlite3_prepare_v2(rankdb_handle(db), sql, -1, &stmt, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(rankdb_handle(db)));
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    double result =
        sqlite3_column_type(stmt, 0) == SQLITE_NULL ? -1 : sqlite3_column_double(stmt, 0);
    sqlite3_finalize(stmt);
    return result;
}

static void test_views(void **state)
{
    struct rankdb *db = create();
    struct rank_info info = {.rank = 3, .world_size = 8, .exit_status = LG_NULL};
    int64_t v[LG_COLUMNS];
    (void)state;
    assert_int_equal(rankdb_put_rank(db, &info, NULL), 0);
    all_null(v);
    v[LG_COL_dur_ns] = 10000000;
    v[LG_COL_input_wait_ns] = 4000000;
    v[LG_COL_backward_ns] = 0;
    v[LG_COL_backward_sync_ns] = 0;
    assert_int_equal(rankdb_put_step(db, 0, v, NULL), 0);
    v[LG_COL_dur_ns] = 30000000;
    assert_int_equal(rankdb_put_step(db, 1, v, NULL), 0);
    assert_true(query(db, "SELECT rank FROM step LIMIT 1") == 3);
    assert_true(query(db, "SELECT dur_ms FROM rank_summary") == 20);
    assert_true(query(db, "SELECT input_wait_ms FROM rank_summary") == 4);
    assert_true(query(db, "SELECT other_ms FROM step_ms WHERE step = 1") == 26);
    assert_true(query(db, "SELECT share FROM stage_share WHERE stage = 'input_wait'") == 0.2);
    assert_true(query(db, "SELECT traced_ns FROM step WHERE step = 0") == 6000000);
    /* not measured is not zero, and zero is measured */
    assert_true(query(db, "SELECT forward_ms FROM rank_summary") == -1);
    assert_true(query(db, "SELECT backward_ms FROM rank_summary") == 0);
    assert_true(query(db, "SELECT sync_ns FROM step WHERE step = 0") == 0);
    assert_true(query(db, "SELECT gpu_sync_ns FROM step WHERE step = 0") == -1);
    assert_true(query(db, "SELECT exit_status FROM rank") == -1);
    rankdb_close(db);
}

static int copy_loss(void *context, const struct rank_loss *loss)
{
    *(struct rank_loss *)context = *loss;
    return 0;
}

static void test_small_tables(void **state)
{
    struct rankdb *db = create();
    struct rank_info info = {.rank = 3, .world_size = 8, .attempt = 2, .host = "node-7"}, back;
    struct rank_loss loss = {.reason = "killed", .step = 17, .rows = LG_NULL, .detail = "x"}, got;
    char text[20];
    (void)state;
    assert_int_equal(rankdb_put_rank(db, &info, NULL), 0);
    info.rank = 5; /* the communicator knew better */
    assert_int_equal(rankdb_put_rank(db, &info, NULL), 0);
    memset(&back, 0, sizeof(back));
    assert_int_equal(rankdb_get_rank(db, &back, NULL), 0);
    assert_memory_equal(&back, &info, sizeof(back));
    assert_int_equal(rankdb_put_loss(db, &loss, NULL), 0);
    memset(&got, 0, sizeof(got));
    assert_int_equal(rankdb_each_loss(db, copy_loss, &got, NULL), 0);
    assert_memory_equal(&got, &loss, sizeof(got));
    assert_int_equal(rankdb_put_meta(db, "strategy", "fsdp", NULL), 0);
    assert_int_equal(rankdb_get_meta(db, "strategy", text, sizeof(text)), 1);
    assert_string_equal(text, "fsdp");
    assert_int_equal(rankdb_get_meta(db, "nothing", text, sizeof(text)), 0);
    rankdb_close(db);
}

/* A writer that is killed in a large transaction leaves a journal: who opens the file just to read
 * it rolls it back. */
static void test_hot_journal(void **state)
{
    int64_t value[LG_COLUMNS], start = 5, first, last, rows;
    char journal[140];
    struct error error = {""};
    struct rankdb *db = create();
    (void)state;
    start = typical_row(0, start, value);
    assert_int_equal(rankdb_put_step(db, 0, value, NULL), 0);
    rankdb_close(db);
    pid_t pid = fork();
    if (pid == 0) {
        db = rankdb_create(path, NULL);
        rankdb_begin(db, NULL);
        for (int64_t step = 1; step < 30000; step++) { /* more than the cache holds */
            start = typical_row(step, start, value);
            rankdb_put_step(db, step, value, NULL);
        }
        raise(SIGKILL);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    snprintf(journal, sizeof(journal), "%s-journal", path);
    assert_int_equal(access(journal, F_OK), 0);
    db = rankdb_open(path, &error);
    if (!db)
        fail_msg("%s", error.text);
    assert_int_equal(rankdb_extent(db, &first, &last, &rows, NULL), 0);
    assert_true(first == 0 && last == 0 && rows == 1);
    rankdb_close(db);
    assert_int_not_equal(access(journal, F_OK), 0);
}

static void test_files(void **state)
{
    struct error error = {""};
    struct stat st;
    int64_t rank, attempt;
    char other[128];
    (void)state;
    rankdb_close(create());
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    snprintf(other, sizeof(other), "%s/rank-00004.sqlite", dir);
    FILE *f = fopen(other, "w");
    assert_non_null(f);
    fputs("this is not a database, though it is longer than a header of SQLite is, by far", f);
    fclose(f);
    assert_null(rankdb_open(other, &error));
    assert_non_null(strstr(error.text, "rank-00004.sqlite"));
    assert_null(rankdb_open("/nonexistent/rank-00001.sqlite", &error));

    assert_int_equal(rankdb_parse_name("rank-00003.sqlite", &rank, &attempt), 1);
    assert_true(rank == 3 && attempt == 0);
    assert_int_equal(rankdb_parse_name("rank-123456.a12.sqlite", &rank, &attempt), 1);
    assert_true(rank == 123456 && attempt == 12);
    assert_int_equal(rankdb_parse_name("rank-00003.sqlite-journal", &rank, &attempt), 0);
    assert_int_equal(rankdb_parse_name("rank-.sqlite", &rank, &attempt), 0);
    assert_int_equal(rankdb_parse_name("run.sqlite", &rank, &attempt), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_few_columns, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_views, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_small_tables, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_hot_journal, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_files, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_size, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_size_with_device, make_dir, remove_dir),
    };
    if (argc > 1) /* a pattern, for one test alone */
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
