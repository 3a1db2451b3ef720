/*
 * test_recorder.c - rows on their way from a rank process to its database, with every party killed
 * at any moment: each complete step is there, once and unchanged, and the database is whole.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "aggregator/rankdb.h"
#include "aggregator/recorder.h"
#include "tests/unit/spool_writer.h"

static char top[64], run_dir[128], spool_dir[128], local_dir[128];

static int make_dirs(void **state)
{
    (void)state;
    strcpy(top, "/tmp/laggard-test-XXXXXX");
    if (!mkdtemp(top))
        return -1;
    snprintf(run_dir, sizeof(run_dir), "%s/run", top);
    snprintf(spool_dir, sizeof(spool_dir), "%s/spool", top);
    snprintf(local_dir, sizeof(local_dir), "%s/local", top);
    return mkdir(run_dir, 0700) | mkdir(spool_dir, 0700) | mkdir(local_dir, 0700);
}

static int remove_dirs(void **state)
{
    char command[100];
    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s", top);
    return system(command);
}

static struct recorder *recorder_in(const char *database_dir)
{
    struct recorder_options options = {.run_dir = run_dir, .database_dir = database_dir};
    struct recorder *r = recorder_new(&options, NULL);
    assert_non_null(r);
    recorder_add_dir(r, spool_dir);
    return r;
}

static void sleep_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* Passes until nothing is left to do. */
static struct recorder_result collect(void)
{
    struct recorder_result result;
    struct recorder *r = recorder_in(run_dir);
    for (int i = 0; i < 6; i++)
        recorder_pass(r);
    recorder_result(r, &result);
    recorder_free(r);
    return result;
}

static int files_in(const char *dir)
{
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static char *database(int rank, int attempt)
{
    static char path[256];
    rankdb_path(path, sizeof(path), run_dir, rank, attempt);
    return path;
}

struct expected {
    int64_t next, provisional;
};

static int check_step(void *context, int64_t step, const int64_t value[LG_COLUMNS])
{
    struct expected *e = context;
    assert_int_equal(step, e->next);
    for (int c = 0; c < LG_COLUMNS; c++) {
        int64_t wanted = writer_value(step, c);
        if (c == LG_COL_flags && step == e->provisional)
            wanted |= LG_FLAG_provisional;
        if (value[c] != wanted)
            fail_msg("step %lld %s: %lld is not %lld", (long long)step, rankdb_column_name[c],
                     (long long)value[c], (long long)wanted);
    }
    e->next++;
    return 0;
}

static int64_t number_of(struct rankdb *db, const char *sql)
{
    sqlite3_stmt *stmt;
    assert_int_equal(sqlite3_prepare_v2(rankdb_handle(db), sql, -1, &stmt, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    int64_t n = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    return n;
}

static void check_integrity(struct rankdb *db)
{
    sqlite3_stmt *stmt;
    assert_int_equal(
        sqlite3_prepare_v2(rankdb_handle(db), "PRAGMA integrity_check", -1, &stmt, NULL),
        SQLITE_OK);
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    assert_string_equal((const char *)sqlite3_column_text(stmt, 0), "ok");
    sqlite3_finalize(stmt);
}

/* The database has exactly the steps first..last, unchanged, and SQLite finds no fault with it. */
static struct rank_info check_database(const char *path, int64_t first, int64_t last,
                                       int64_t provisional)
{
    struct error error = {""};
    struct expected e = {first, provisional};
    struct rank_info info;
    struct rankdb *db = rankdb_open(path, &error);
    if (!db)
        fail_msg("%s", error.text);
    check_integrity(db);
    if (rankdb_each_step(db, 0, INT64_MAX, RANKDB_ALL_COLUMNS, check_step, &e, &error) != 0)
        fail_msg("%s", error.text);
    assert_int_equal(e.next, last + 1);
    assert_int_equal(rankdb_get_rank(db, &info, &error), 0);
    rankdb_close(db);
    return info;
}

static int64_t losses(const char *path, const char *reason)
{
    char sql[100];
    struct rankdb *db = rankdb_open(path, NULL);
    assert_non_null(db);
    snprintf(sql, sizeof(sql), "SELECT count(*) FROM loss WHERE reason = '%s'", reason);
    int64_t n = number_of(db, sql);
    rankdb_close(db);
    return n;
}

/* ---- a rank process ---- */

struct shared {               /* between the test and its children */
    _Atomic int64_t complete; /* steps whose rows were published */
    _Atomic int stop;
};

static struct shared *new_shared(void)
{
    struct shared *s =
        mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(s != MAP_FAILED);
    return s;
}

/* Writes rows until it is killed or told to stop; the last two complete steps are held and
 * provisional, as in the library. */
static void train(struct shared *shared, int rank, int pause_us)
{
    struct process_id self;
    process_self(&self);
    struct lg_spool *w = writer_open(spool_dir, &self, 0, rank, 4);
    for (int64_t step = 0; !shared->stop;) {
        if (!writer_row(w, step, LG_SLOT_COMPLETE)) {
            usleep(1000);
            continue;
        }
        shared->complete = ++step;
        if (pause_us)
            usleep((useconds_t)pause_us);
    }
    w->ended = LG_ENDED_EXIT;
}

static pid_t start_rank(struct shared *shared, int rank, int pause_us)
{
    shared->complete = 0;
    shared->stop = 0;
    pid_t pid = fork();
    if (pid == 0) {
        train(shared, rank, pause_us);
        _exit(0);
    }
    assert_true(pid > 0);
    return pid;
}

static void kill_and_reap(pid_t pid)
{
    int status;
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
}

/* ---- the recorder lives, the rank is killed ---- */

static void test_killed_rank(void **state)
{
    struct shared *shared = new_shared();
    (void)state;
    srandom(1);
    for (int round = 0; round < 20; round++) {
        pid_t pid = start_rank(shared, round, 50);
        struct recorder *r = recorder_in(run_dir);
        int passes = (int)(random() % 4);
        for (int i = 0; i < passes; i++) {
            sleep_ms(random() % 5);
            recorder_pass(r);
        }
        sleep_ms(random() % 20);
        while (shared->complete == 0)
            sleep_ms(1);
        kill_and_reap(pid);
        int64_t complete = shared->complete;
        struct recorder_result result;
        recorder_pass(r);
        recorder_pass(r);
        recorder_result(r, &result);
        assert_int_equal(result.finished, 1);
        assert_int_equal(result.failed, 0);
        recorder_free(r);
        /* the row after the last counted one may be complete, too */
        struct rankdb *db = rankdb_open(database(round, 0), NULL);
        assert_non_null(db);
        int64_t rows = number_of(db, "SELECT count(*) FROM step_host");
        rankdb_close(db);
        assert_true(rows == complete || rows == complete + 1);
        struct rank_info info = check_database(database(round, 0), 0, rows - 1, -1);
        assert_true(info.killed == 1 && info.ended == 0 && info.world_size == 4);
        assert_int_equal(losses(database(round, 0), "killed"), 1);
        assert_int_equal(files_in(spool_dir), 0);
    }
    munmap(shared, sizeof(*shared));
}

static void test_rank_that_exits(void **state)
{
    struct shared *shared = new_shared();
    (void)state;
    pid_t pid = start_rank(shared, 1, 0);
    struct recorder *r = recorder_in(run_dir);
    while (shared->complete < 3 * (int64_t)LG_SLOTS) /* several times round the ring */
        recorder_pass(r);
    assert_int_equal(recorder_has_running(r), 1);
    shared->stop = 1;
    waitpid(pid, NULL, 0);
    recorder_pass(r);
    recorder_free(r);
    struct rank_info info = check_database(database(1, 0), 0, shared->complete - 1, -1);
    assert_true(info.killed == 0 && info.ended == 1);
    assert_int_equal(losses(database(1, 0), "killed"), 0);
    munmap(shared, sizeof(*shared));
}

/* ---- the rank lives, the recorder is killed ---- */

static pid_t start_recorder(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct recorder *r = recorder_in(run_dir);
        for (;;)
            recorder_pass(r);
    }
    assert_true(pid > 0);
    return pid;
}

static void test_killed_recorder(void **state)
{
    struct shared *shared = new_shared();
    (void)state;
    srandom(2);
    pid_t rank = start_rank(shared, 0, 20);
    for (int round = 0; round < 30; round++) {
        pid_t recorder = start_recorder();
        sleep_ms(5 + random() % 100);
        kill_and_reap(recorder);
    }
    shared->stop = 1;
    waitpid(rank, NULL, 0);
    struct recorder_result result = collect();
    assert_int_equal(result.finished, 1);
    check_database(database(0, 0), 0, shared->complete - 1, -1);
    print_message("%lld rows, %.1f rings\n", (long long)shared->complete,
                  (double)shared->complete / LG_SLOTS);
    assert_int_equal(files_in(spool_dir), 0);
    assert_int_equal(files_in(run_dir), 1);
    munmap(shared, sizeof(*shared));
}

/* Killed exactly between the commit and giving the slots back: the rows come again. */
static void test_killed_after_commit(void **state)
{
    struct process_id self;
    (void)state;
    process_self(&self);
    struct lg_spool *w = writer_open(spool_dir, &self, 0, 2, 4);
    for (int64_t step = 0; step < 70; step++)
        writer_row(w, step, LG_SLOT_COMPLETE);
    struct recorder *r = recorder_in(run_dir);
    recorder_pass(r);
    recorder_free(r);
    assert_int_equal(w->tail, 70);
    w->tail = 30;
    for (int64_t step = 70; step < 100; step++)
        writer_row(w, step, LG_SLOT_COMPLETE);
    r = recorder_in(run_dir);
    recorder_pass(r);
    recorder_free(r);
    assert_int_equal(w->tail, 100);
    struct rank_info info = check_database(database(2, 0), 0, 99, -1);
    assert_true(info.killed == LG_NULL); /* it lives */
    assert_int_equal(files_in(spool_dir), 1);
    writer_close(w);
}

/* ... and between the last commit and the removal of the spool. */
static void test_killed_before_removal(void **state)
{
    struct process_id nobody = writer_nobody();
    char copy[400], command[900];
    (void)state;
    struct lg_spool *w = writer_open(spool_dir, &nobody, 0, 2, 4);
    for (int64_t step = 0; step < 5; step++)
        writer_row(w, step, LG_SLOT_COMPLETE);
    writer_held(w, 5, 2);
    writer_provisional(w, 7);
    writer_close(w);
    snprintf(copy, sizeof(copy), "%s/copy", top);
    snprintf(command, sizeof(command), "cp %s/*.spool %s", spool_dir, copy);
    assert_int_equal(system(command), 0);
    collect();
    check_database(database(2, 0), 0, 7, 7);
    snprintf(command, sizeof(command), "mv %s %s/%s.%lld.%llu.0.spool", copy, spool_dir,
             process_host(), (long long)nobody.pid, (unsigned long long)nobody.start);
    assert_int_equal(system(command), 0);
    collect();
    check_database(database(2, 0), 0, 7, 7);
    assert_int_equal(files_in(run_dir), 1);
    assert_int_equal(files_in(spool_dir), 0);
}

/* The recorder stored all rows and was killed, then the rank: its end is recorded all the same. */
static void test_end_without_rows(void **state)
{
    struct shared *shared = new_shared();
    (void)state;
    pid_t pid = start_rank(shared, 1, 100000000); /* one row */
    struct recorder *r = recorder_in(run_dir);
    while (access(database(1, 0), F_OK) != 0)
        recorder_pass(r);
    recorder_free(r);
    kill_and_reap(pid);
    collect();
    struct rank_info info = check_database(database(1, 0), 0, 0, -1);
    assert_int_equal(info.killed, 1);
    assert_int_equal(losses(database(1, 0), "killed"), 1);
    assert_int_equal(files_in(spool_dir), 0);
    assert_int_equal(files_in(run_dir), 1);
    munmap(shared, sizeof(*shared));
}

/* A step that was published and is provisional as well is not provisional. */
static void test_provisional_is_there(void **state)
{
    struct process_id nobody = writer_nobody();
    (void)state;
    struct lg_spool *w = writer_open(spool_dir, &nobody, 0, 2, 4);
    writer_provisional(w, 4);
    for (int64_t step = 0; step < 5; step++)
        writer_row(w, step, LG_SLOT_COMPLETE);
    writer_close(w);
    collect();
    check_database(database(2, 0), 0, 4, -1);
}

/* ---- who is who ---- */

static void test_attempts(void **state)
{
    (void)state;
    for (int attempt = 0; attempt < 3; attempt++) {
        struct process_id id = writer_nobody();
        id.pid += attempt;
        struct lg_spool *w = writer_open(spool_dir, &id, 0, 3, 4);
        for (int64_t step = 0; step < 4 + attempt; step++)
            writer_row(w, step, LG_SLOT_COMPLETE);
        writer_close(w);
        if (attempt == 0)
            collect();
    }
    collect();
    assert_int_equal(check_database(database(3, 0), 0, 3, -1).attempt, 0);
    assert_int_equal(check_database(database(3, 1), 0, 4, -1).attempt, 1); /* the older first */
    assert_int_equal(check_database(database(3, 2), 0, 5, -1).attempt, 2);
}

/* Not known yet (no row waits for long), known from the environment, corrected. */
static void test_late_rank(void **state)
{
    struct process_id self;
    (void)state;
    process_self(&self);
    struct lg_spool *w = writer_open(spool_dir, &self, 0, 0, 1);
    struct recorder *r = recorder_in(run_dir);
    w->rank_source = LG_RANK_UNKNOWN;
    writer_row(w, 0, LG_SLOT_COMPLETE);
    recorder_pass(r);
    assert_int_equal(files_in(run_dir), 0);
    w->rank = 1;
    w->rank_source = LG_RANK_ENV;
    recorder_pass(r);
    check_database(database(1, 0), 0, 0, -1);
    writer_row(w, 1, LG_SLOT_COMPLETE);
    w->rank = 3;
    w->world = 4;
    w->rank_source = LG_RANK_COMMUNICATOR;
    recorder_pass(r);
    writer_row(w, 2, LG_SLOT_COMPLETE);
    recorder_pass(r);
    recorder_free(r);
    struct rank_info info = check_database(database(3, 0), 0, 2, -1);
    assert_true(info.rank == 3 && info.world_size == 4);
    assert_string_equal(info.rank_source, "communicator");
    assert_int_equal(files_in(run_dir), 1);
    writer_close(w);
}

/* The ring was full: the process went on in another file. */
static void test_continued(void **state)
{
    struct process_id id = writer_nobody();
    struct recorder_result result;
    (void)state;
    struct lg_spool *w = writer_open(spool_dir, &id, 0, 3, 4);
    int64_t step = 0;
    while (writer_row(w, step, LG_SLOT_COMPLETE))
        step++;
    struct lg_spool *next = writer_open(spool_dir, &id, 1, 3, 4);
    w->next_file = 1;
    w->ended = LG_ENDED_EXIT;
    for (int i = 0; i < 10; i++)
        writer_row(next, step++, LG_SLOT_COMPLETE);
    writer_held(next, step, 2);
    step += 2;
    writer_close(w);
    writer_close(next);
    result = collect();
    assert_int_equal(result.ranks, 1);
    struct rank_info info = check_database(database(3, 0), 0, step - 1, -1);
    assert_int_equal(info.ended, 1);
    assert_int_equal(files_in(spool_dir), 0);
}

/* The same process number and start time, another program: two attempts. */
static void test_exec(void **state)
{
    struct process_id id = writer_nobody();
    (void)state;
    for (uint32_t seq = 0; seq < 2; seq++) {
        struct lg_spool *w = writer_open(spool_dir, &id, seq, 3, 4);
        for (int64_t step = 0; step < 4 + seq; step++)
            writer_row(w, step, LG_SLOT_COMPLETE);
        writer_close(w);
    }
    collect();
    check_database(database(3, 0), 0, 3, -1);
    check_database(database(3, 1), 0, 4, -1);
}

/* A rank that died in its first step is a rank; a process that shows no sign is not. */
static void test_without_rows(void **state)
{
    struct process_id id = writer_nobody();
    (void)state;
    writer_close(writer_open(spool_dir, &id, 0, 1, 4));
    id.pid++;
    struct lg_spool *w = writer_open(spool_dir, &id, 0, 2, 4);
    w->rank_source = LG_RANK_ENV;
    w->seen = 0;
    writer_close(w);
    collect();
    check_database(database(1, 0), 0, -1, -1);
    assert_int_equal(losses(database(1, 0), "killed"), 1);
    assert_int_equal(files_in(run_dir), 1);
    assert_int_equal(files_in(spool_dir), 0);
}

/* ---- things that go wrong ---- */

static void test_stopped(void **state)
{
    struct process_id nobody = writer_nobody();
    (void)state;
    struct lg_spool *w = writer_open(spool_dir, &nobody, 0, 2, 4);
    writer_row(w, 0, LG_SLOT_COMPLETE);
    writer_row(w, 1, LG_SLOT_COMPLETE);
    lg_spool_ring(w)[1].state = 55;
    writer_row(w, 2, LG_SLOT_COMPLETE);
    w->stop_reason = LG_LOSS_no_space;
    w->stop_step = 3;
    w->rows_lost = 17;
    w->ended = LG_ENDED_EXIT;
    writer_close(w);
    collect();
    struct rankdb *db = rankdb_open(database(2, 0), NULL);
    assert_non_null(db);
    assert_int_equal(number_of(db, "SELECT rows FROM loss WHERE reason = 'no_space' AND step = 3"),
                     17);
    assert_int_equal(number_of(db, "SELECT rows FROM loss WHERE reason = 'damaged'"), 1);
    assert_int_equal(number_of(db, "SELECT count(*) FROM loss"), 2);
    assert_int_equal(number_of(db, "SELECT group_concat(step, '') FROM step"), 2); /* "02" */
    rankdb_close(db);
}

/* Somebody cuts the file short while the recorder has it mapped. */
static void test_cut_short(void **state)
{
    struct process_id self;
    char path[400];
    (void)state;
    process_self(&self);
    struct lg_spool *w = writer_open(spool_dir, &self, 0, 2, 4);
    struct recorder *r = recorder_in(run_dir);
    writer_row(w, 0, LG_SLOT_COMPLETE);
    recorder_pass(r);
    writer_name(path, sizeof(path), spool_dir, &self, 0);
    assert_int_equal(truncate(path, 100), 0);
    recorder_pass(r);
    recorder_pass(r);
    assert_int_equal(recorder_has_running(r), 0);
    recorder_free(r);
    check_database(database(2, 0), 0, 0, -1);
    assert_int_equal(losses(database(2, 0), "damaged"), 1);
    writer_close(w);
}

/* Rubbish beside a good spool. */
static void test_rubbish(void **state)
{
    struct process_id nobody = writer_nobody();
    char name[400];
    (void)state;
    srandom(3);
    static const char *const names[] = {"x.spool",       ".1.2.3.spool",  "h.1.2.spool",
                                        "h.1.2.x.spool", "h.1.2.0.spool", "h.1.2.0.spool.tmp"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(name, sizeof(name), "%s/%s", spool_dir, names[i]);
        FILE *f = fopen(name, "w");
        assert_non_null(f);
        for (long n = random() % 10000; n > 0; n--)
            fputc((int)random(), f);
        fclose(f);
    }
    struct lg_spool *w = writer_open(spool_dir, &nobody, 0, 2, 4);
    writer_row(w, 0, LG_SLOT_COMPLETE);
    writer_close(w);
    struct recorder_result result = collect();
    check_database(database(2, 0), 0, 0, -1);
    assert_int_equal(result.finished, 1);
    assert_int_equal(result.failed, 2); /* the two that bear a spool's name */
    assert_non_null(strstr(result.note, ".1.2."));
}

/* Random bytes in everything but the sizes, each time another process: never a crash. */
static void test_random_spools(void **state)
{
    struct process_id id = writer_nobody();
    (void)state;
    srandom(4);
    for (int round = 0; round < 12; round++) {
        id.pid++;
        struct lg_spool *w = writer_open(spool_dir, &id, 0, round % 3, 4);
        struct lg_spool head = *w;
        for (int64_t step = 0; step < 50; step++)
            writer_row(w, step, LG_SLOT_COMPLETE);
        for (size_t i = 0; i < LG_SPOOL_BYTES; i += 1 + (size_t)(random() % 199))
            ((unsigned char *)w)[i] = (unsigned char)random();
        memcpy(w, &head, offsetof(struct lg_spool, torch_path));
        if (round % 2) {
            w->rank = round % 3;
            w->world = 4;
            w->tail = 0;
            w->head = 50;
        }
        writer_close(w);
    }
    collect();
    for (int rank = 0; rank < 3; rank++)
        for (int attempt = 0; access(database(rank, attempt), F_OK) == 0; attempt++) {
            struct rankdb *db = rankdb_open(database(rank, attempt), NULL);
            assert_non_null(db);
            check_integrity(db);
            number_of(db, "SELECT count(*) FROM step WHERE dur_ns < 0");
            rankdb_close(db);
        }
}

/* The database can't be written for a while: the rows wait in the spool. */
static void test_busy_database(void **state)
{
    struct process_id self;
    sqlite3 *other;
    (void)state;
    process_self(&self);
    struct lg_spool *w = writer_open(spool_dir, &self, 0, 2, 4);
    struct recorder *r = recorder_in(run_dir);
    writer_row(w, 0, LG_SLOT_COMPLETE);
    recorder_pass(r);
    assert_int_equal(sqlite3_open(database(2, 0), &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN; SELECT count(*) FROM step_host", NULL, NULL, NULL),
                     SQLITE_OK);
    writer_row(w, 1, LG_SLOT_COMPLETE);
    recorder_pass(r);
    assert_int_equal(w->tail, 1);
    sqlite3_close(other);
    recorder_pass(r);
    assert_int_equal(w->tail, 2);
    recorder_free(r);
    check_database(database(2, 0), 0, 1, -1);
    writer_close(w);
}

/* A run directory without working locks: written elsewhere, copied there. */
static void test_copied(void **state)
{
    struct process_id nobody = writer_nobody();
    (void)state;
    struct lg_spool *w = writer_open(spool_dir, &nobody, 0, 2, 4);
    for (int64_t step = 0; step < 100; step++)
        writer_row(w, step, LG_SLOT_COMPLETE);
    writer_close(w);
    struct recorder *r = recorder_in(local_dir);
    recorder_pass(r);
    recorder_free(r);
    check_database(database(2, 0), 0, 99, -1);
    assert_int_equal(files_in(local_dir), 0);
    assert_int_equal(files_in(spool_dir), 0);
}

/* ... and the copy fails: what is not there must not be removed here. */
static void test_copy_fails(void **state)
{
    struct process_id nobody = writer_nobody();
    char hidden[200];
    (void)state;
    struct lg_spool *w = writer_open(spool_dir, &nobody, 0, 2, 4);
    writer_row(w, 0, LG_SLOT_COMPLETE);
    writer_close(w);
    snprintf(hidden, sizeof(hidden), "%s/hidden", top);
    assert_int_equal(rename(run_dir, hidden), 0);
    struct recorder *r = recorder_in(local_dir);
    recorder_pass(r);
    recorder_free(r);
    assert_int_equal(files_in(spool_dir), 1);
    assert_int_equal(rename(hidden, run_dir), 0);
    r = recorder_in(local_dir);
    recorder_pass(r);
    recorder_free(r);
    check_database(database(2, 0), 0, 0, -1);
    assert_int_equal(files_in(spool_dir), 0);
}

/* A pass that may not take long serves every process in its turn. */
static void test_limit(void **state)
{
    struct process_id id = writer_nobody();
    struct recorder_result result;
    (void)state;
    for (int rank = 0; rank < 5; rank++) {
        id.pid++;
        struct lg_spool *w = writer_open(spool_dir, &id, 0, rank, 5);
        writer_row(w, 0, LG_SLOT_COMPLETE);
        writer_close(w);
    }
    struct recorder *r = recorder_in(run_dir);
    recorder_limit(r, 1);
    for (int pass = 1; pass <= 5; pass++) {
        recorder_pass(r);
        recorder_result(r, &result);
        assert_int_equal(result.finished, pass);
        assert_int_equal(recorder_is_pressed(r), 1);
    }
    recorder_limit(r, 0);
    recorder_pass(r);
    assert_int_equal(recorder_is_pressed(r), 0);
    recorder_free(r);
}

/* Of a process on another host only its own end, or the run's, tells. */
static void test_elsewhere(void **state)
{
    struct process_id id = writer_nobody();
    struct recorder_options options = {run_dir, run_dir, 1};
    (void)state;
    strcpy(id.boot_id, "00000000-0000-0000-0000-000000000000");
    struct lg_spool *w = writer_open(spool_dir, &id, 0, 2, 4);
    writer_row(w, 0, LG_SLOT_COMPLETE);
    writer_held(w, 1, 1);
    struct recorder_result result = collect();
    assert_int_equal(result.running, 1);
    struct rank_info info = check_database(database(2, 0), 0, 0, -1);
    assert_true(info.killed == LG_NULL);
    assert_int_equal(w->tail, 0); /* it is not ours to acknowledge */
    assert_int_equal(files_in(spool_dir), 1);
    struct recorder *r = recorder_new(&options, NULL);
    recorder_add_dir(r, spool_dir);
    recorder_pass(r);
    recorder_free(r);
    check_database(database(2, 0), 0, 1, -1);
    assert_int_equal(files_in(spool_dir), 0);
    writer_close(w);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_dirs, remove_dirs)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(test_killed_rank),
        TEST(test_rank_that_exits),
        TEST(test_killed_recorder),
        TEST(test_killed_after_commit),
        TEST(test_killed_before_removal),
        TEST(test_end_without_rows),
        TEST(test_provisional_is_there),
        TEST(test_attempts),
        TEST(test_late_rank),
        TEST(test_continued),
        TEST(test_exec),
        TEST(test_without_rows),
        TEST(test_stopped),
        TEST(test_cut_short),
        TEST(test_rubbish),
        TEST(test_random_spools),
        TEST(test_busy_database),
        TEST(test_copied),
        TEST(test_copy_fails),
        TEST(test_limit),
        TEST(test_elsewhere),
    };
    if (argc > 1) /* a pattern, for one test alone */
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
