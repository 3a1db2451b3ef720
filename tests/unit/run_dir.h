/*
 * run_dir.h - a run directory on disk for unit tests, made through the rankdb interface: each test
 * has a fresh one (dir) and removes it. Included by test_load.c and test_sql.c.
 */
#ifndef LAGGARD_TESTS_UNIT_RUN_DIR_H
#define LAGGARD_TESTS_UNIT_RUN_DIR_H

#include "unit.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rankdb.h"

#define MS INT64_C(1000000)

static char dir[PATH_MAX - 64];

static inline int make_dir(void **state)
{
    const char *tmp = getenv("TMPDIR");
    (void)state;
    snprintf(dir, sizeof(dir), "%s/laggard-test-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    return mkdtemp(dir) ? 0 : -1;
}

static inline int remove_dir(void **state)
{
    char command[PATH_MAX];
    (void)state;
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    return system(command) == 0 ? 0 : -1;
}

static inline struct rank_info rank_info_of(int64_t rank, int64_t attempt)
{
    return (struct rank_info){
        .rank = rank,
        .world_size = LG_NULL,
        .local_rank = LG_NULL,
        .attempt = attempt,
        .pid = LG_NULL,
        .parent_pid = LG_NULL,
        .proc_start = LG_NULL,
        .seen = 0,
        .mono_ns = LG_NULL,
        .real_ns = LG_NULL,
        .steps_complete = LG_NULL,
        .ended = LG_NULL,
        .exit_status = LG_NULL,
        .killed = LG_NULL,
        .entries_dropped = LG_NULL,
        .rank_source = "env",
    };
}

/* Steps 0..n-1: 10 ms each, of that `input` ms of input; device columns where `device`. */
static inline void put_steps(struct rankdb *db, int64_t n, int64_t input, int device)
{
    struct error error;
    for (int64_t step = 0; step < n; step++) {
        int64_t value[LG_COLUMNS];
        for (int c = 0; c < LG_COLUMNS; c++)
            value[c] = LG_NULL;
        value[LG_COL_dur_ns] = 10 * MS;
        value[LG_COL_input_wait_ns] = input * MS;
        value[LG_COL_forward_ns] = 2 * MS;
        value[LG_COL_backward_ns] = 3 * MS;
        value[LG_COL_optimizer_ns] = 1 * MS;
        if (device)
            value[LG_COL_gpu_dur_ns] = 9 * MS;
        if (rankdb_put_step(db, step, value, &error))
            fail_msg("%s", error.text);
    }
}

static inline struct rankdb *make_rank(const struct rank_info *info)
{
    char path[PATH_MAX];
    struct error error;
    assert_int_equal(rankdb_path(path, sizeof(path), dir, info->rank, info->attempt), 0);
    struct rankdb *db = rankdb_create(path, &error);
    if (!db)
        fail_msg("%s", error.text);
    assert_int_equal(rankdb_begin(db, &error), 0);
    assert_int_equal(rankdb_put_rank(db, info, &error), 0);
    return db;
}

static inline void close_rank(struct rankdb *db)
{
    struct error error;
    assert_int_equal(rankdb_commit(db, &error), 0);
    rankdb_close(db);
}

static inline void simple_rank(int64_t rank, int64_t attempt, int64_t steps)
{
    struct rank_info info = rank_info_of(rank, attempt);
    struct rankdb *db = make_rank(&info);
    put_steps(db, steps, rank, 0);
    close_rank(db);
}

/* Overwrites a file of the run with what is no database. */
static inline void spoil(const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 1000; i++)
        fputs("this is no database ", file);
    assert_int_equal(fclose(file), 0);
}

#endif
