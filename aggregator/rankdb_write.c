/*
 * rankdb_write.c - the writing half of rankdb: steps in the packed form that schema/rank.sql
 * describes, and the small tables. Runs in the recorder, in collecting readers and in the importer.
 */
#include "aggregator/rankdb_private.h"

#include <stdio.h>
#include <string.h>

static int run(struct rankdb *db, const char *sql, struct error *error)
{
    return sqlite3_exec(db->handle, sql, NULL, NULL, NULL) == SQLITE_OK ? 0
                                                                        : rankdb_fail(db, error);
}

int rankdb_begin(struct rankdb *db, struct error *error)
{
    return run(db, "BEGIN IMMEDIATE", error);
}

int rankdb_commit(struct rankdb *db, struct error *error)
{
    return run(db, "COMMIT", error);
}

void rankdb_rollback(struct rankdb *db)
{
    sqlite3_exec(db->handle, "ROLLBACK", NULL, NULL, NULL);
    rankdb_forget(db); /* rows that were counted on may be gone */
}

/* ---- steps ---- */

static sqlite3_stmt *prepare_put(struct rankdb *db, enum rankdb_table table)
{
    static const char *const name[RANKDB_TABLES] = {"step_host", "step_common", "step_gpu"};
    sqlite3_str *sql = sqlite3_str_new(NULL);
    sqlite3_stmt *stmt = NULL;

    sqlite3_str_appendf(sql, "INSERT OR REPLACE INTO %s VALUES (?", name[table]);
    if (table == RANKDB_HOST)
        sqlite3_str_appendall(sql, ", ?"); /* common */
    for (int c = 0; c < LG_COLUMNS; c++)
        if (rankdb_table_of(c) == table)
            sqlite3_str_appendall(sql, ", ?");
    sqlite3_str_appendall(sql, ")");
    char *text = sqlite3_str_finish(sql);
    if (text)
        sqlite3_prepare_v2(db->handle, text, -1, &stmt, NULL);
    sqlite3_free(text);
    return stmt;
}

static int prepare(struct rankdb *db, struct error *error)
{
    for (int t = 0; t < RANKDB_TABLES; t++) {
        if (!db->put[t])
            db->put[t] = prepare_put(db, (enum rankdb_table)t);
        if (!db->put[t])
            return rankdb_fail(db, error);
    }
    return 0;
}

static void bind(sqlite3_stmt *stmt, int at, int64_t value)
{
    if (value == LG_NULL)
        sqlite3_bind_null(stmt, at);
    else
        sqlite3_bind_int64(stmt, at, value);
}

/* start_ns as it is stored: LG_NULL where it follows from the row before. */
static int64_t stored_start(const struct rankdb *db, int64_t step, int64_t start)
{
    if (start == LG_NULL)
        return RANKDB_START_NONE;
    if (step % RANKDB_START_EVERY != 0 && step == db->last_step + 1 && start == db->last_end)
        return LG_NULL;
    return start;
}

static int64_t stored_value(const struct rankdb *db, int64_t step, const int64_t value[LG_COLUMNS],
                            int c)
{
    const struct rankdb_packed *packed = rankdb_find_packed(c);
    if (c == LG_COL_start_ns)
        return stored_start(db, step, value[c]);
    if (packed && value[c] != LG_NULL)
        return rankdb_other_part(value, packed, value[c]);
    return value[c];
}

static int put_row(struct rankdb *db, enum rankdb_table table, int64_t id, int64_t common,
                   const int64_t value[LG_COLUMNS], struct error *error)
{
    sqlite3_stmt *stmt = db->put[table];
    int at = 1;

    sqlite3_bind_int64(stmt, at++, id);
    if (table == RANKDB_HOST)
        sqlite3_bind_int64(stmt, at++, common);
    for (int c = 0; c < LG_COLUMNS; c++)
        if (rankdb_table_of(c) == table)
            bind(stmt, at++, stored_value(db, id, value, c));
    int rc = sqlite3_step(stmt);
    sqlite3_reset(stmt);
    return rc == SQLITE_DONE ? 0 : rankdb_fail(db, error);
}

/* The id of the row's common columns, which are stored if they were not met lately; -1 = failed. */
static int64_t put_common(struct rankdb *db, const int64_t value[LG_COLUMNS], struct error *error)
{
    struct rankdb_common common = {.id = db->next_common};
    int n = 0;

    for (int c = 0; c < LG_COLUMNS; c++)
        if (rankdb_table_of(c) == RANKDB_COMMON)
            common.value[n++] = value[c];
    for (int i = 0; i < RANKDB_CACHE; i++)
        if (db->cache[i].id >= 0 &&
            memcmp(db->cache[i].value, common.value, sizeof(common.value)) == 0)
            return db->cache[i].id;
    if (put_row(db, RANKDB_COMMON, common.id, 0, value, error) != 0)
        return -1;
    db->cache[db->cache_next++ % RANKDB_CACHE] = common;
    return db->next_common++;
}

static int any_gpu(const int64_t value[LG_COLUMNS])
{
    for (int c = 0; c < LG_COLUMNS; c++)
        if (rankdb_table_of(c) == RANKDB_GPU && value[c] != LG_NULL)
            return 1;
    return 0;
}

/* The row is about to be replaced: the next one may have counted on its end. */
static int detach_from_older(struct rankdb *db, int64_t step, struct error *error)
{
    char sql[300];
    snprintf(sql, sizeof(sql),
             "UPDATE step_host SET start_ns = (SELECT start_ns FROM step WHERE step = %lld)"
             " WHERE step = %lld AND start_ns IS NULL;"
             "DELETE FROM step_gpu WHERE step = %lld",
             (long long)step + 1, (long long)step + 1, (long long)step);
    return run(db, sql, error);
}

int rankdb_put_step(struct rankdb *db, int64_t step, const int64_t value[LG_COLUMNS],
                    struct error *error)
{
    int64_t start = value[LG_COL_start_ns], dur = value[LG_COL_dur_ns];

    if (prepare(db, error) != 0)
        return -1;
    if (step <= db->max_step && detach_from_older(db, step, error) != 0)
        return -1;
    int64_t common = put_common(db, value, error);
    if (common < 0 || put_row(db, RANKDB_HOST, step, common, value, error) != 0)
        return -1;
    if (any_gpu(value) && put_row(db, RANKDB_GPU, step, 0, value, error) != 0)
        return -1;
    db->last_step = step;
    db->last_end = rankdb_end(start, dur);
    if (step > db->max_step)
        db->max_step = step;
    return 0;
}

/* ---- the small tables: one INSERT OR REPLACE each ---- */

/* Runs "INSERT OR REPLACE INTO table VALUES (...)" with texts ("" = NULL), then numbers, in the
 * order of their place numbers. */
struct put {
    struct rankdb *db;
    sqlite3_stmt *stmt;
    int at;
};

static int put_start(struct put *put, struct rankdb *db, const char *sql, struct error *error)
{
    put->db = db;
    put->at = 1;
    put->stmt = NULL;
    return sqlite3_prepare_v2(db->handle, sql, -1, &put->stmt, NULL) == SQLITE_OK
               ? 0
               : rankdb_fail(db, error);
}

static void put_text(struct put *put, const char *text)
{
    if (text && *text)
        sqlite3_bind_text(put->stmt, put->at, text, -1, SQLITE_TRANSIENT);
    put->at++;
}

static void put_number(struct put *put, int64_t value)
{
    bind(put->stmt, put->at++, value);
}

static int put_end(struct put *put, struct error *error)
{
    int rc = sqlite3_step(put->stmt);
    int result = rc == SQLITE_DONE ? 0 : rankdb_fail(put->db, error);
    sqlite3_finalize(put->stmt);
    return result;
}

int rankdb_put_rank(struct rankdb *db, const struct rank_info *info, struct error *error)
{
    struct put put;
    /* one row only: another rank number replaces the old one */
    if (put_start(&put, db, "DELETE FROM rank WHERE rank <> ?", error) != 0)
        return -1;
    put_number(&put, info->rank);
    if (put_end(&put, error) != 0)
        return -1;
    if (put_start(&put, db,
                  "INSERT OR REPLACE INTO rank (rank, world_size, rank_source, local_rank, attempt,"
                  " host, pid, parent_pid, proc_start, boot_id, run_id, seen, torch_path,"
                  " nccl_version, mono_ns, real_ns, steps_complete, ended, exit_status, killed,"
                  " entries_dropped) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                  error) != 0)
        return -1;
    put_number(&put, info->rank);
    put_number(&put, info->world_size);
    put_text(&put, info->rank_source);
    put_number(&put, info->local_rank);
    put_number(&put, info->attempt);
    put_text(&put, info->host);
    put_number(&put, info->pid);
    put_number(&put, info->parent_pid);
    put_number(&put, info->proc_start);
    put_text(&put, info->boot_id);
    put_text(&put, info->run_id);
    put_number(&put, info->seen);
    put_text(&put, info->torch_path);
    put_text(&put, info->nccl_version);
    put_number(&put, info->mono_ns);
    put_number(&put, info->real_ns);
    put_number(&put, info->steps_complete);
    put_number(&put, info->ended);
    put_number(&put, info->exit_status);
    put_number(&put, info->killed);
    put_number(&put, info->entries_dropped);
    return put_end(&put, error);
}

int rankdb_put_worker(struct rankdb *db, const struct rank_worker *worker, struct error *error)
{
    struct put put;
    if (put_start(&put, db,
                  "INSERT OR REPLACE INTO worker (pid, begin_ns, reads, read_bytes, read_ns, ended)"
                  " VALUES (?,?,?,?,?,?)",
                  error) != 0)
        return -1;
    put_number(&put, worker->pid);
    put_number(&put, worker->begin_ns);
    put_number(&put, worker->reads);
    put_number(&put, worker->read_bytes);
    put_number(&put, worker->read_ns);
    put_number(&put, worker->ended);
    return put_end(&put, error);
}

int rankdb_put_group(struct rankdb *db, const struct rank_group *group, struct error *error)
{
    struct put put;
    if (put_start(&put, db,
                  "INSERT OR REPLACE INTO comm_group (id, kind, rank, size, seq, bytes)"
                  " VALUES (?,?,?,?,?,?)",
                  error) != 0)
        return -1;
    put_number(&put, group->id);
    put_text(&put, group->kind);
    put_number(&put, group->rank);
    put_number(&put, group->size);
    put_number(&put, group->seq);
    put_number(&put, group->bytes);
    return put_end(&put, error);
}

int rankdb_put_library(struct rankdb *db, const struct rank_library *library, struct error *error)
{
    struct put put;
    if (put_start(&put, db,
                  "INSERT OR REPLACE INTO library (id, path, kind, version, communicators)"
                  " VALUES (?,?,?,?,?)",
                  error) != 0)
        return -1;
    put_number(&put, library->id);
    put_text(&put, library->path);
    put_text(&put, library->kind);
    put_text(&put, library->version);
    put_number(&put, library->communicators);
    return put_end(&put, error);
}

int rankdb_put_loss(struct rankdb *db, const struct rank_loss *loss, struct error *error)
{
    struct put put;
    if (put_start(&put, db,
                  "INSERT OR REPLACE INTO loss (reason, step, rows, detail) VALUES (?,?,?,?)",
                  error) != 0)
        return -1;
    put_text(&put, loss->reason);
    put_number(&put, loss->step);
    put_number(&put, loss->rows);
    put_text(&put, loss->detail);
    return put_end(&put, error);
}

int rankdb_put_meta(struct rankdb *db, const char *key, const char *value, struct error *error)
{
    struct put put;
    if (put_start(&put, db, "INSERT OR REPLACE INTO meta (key, value) VALUES (?,?)", error) != 0)
        return -1;
    put_text(&put, key);
    put_text(&put, value);
    return put_end(&put, error);
}
