/*
 * rankdb_read.c - the reading half of rankdb: steps in ascending order with everything that is not
 * stored put back, and the small tables. Runs in reading commands.
 */
#include "aggregator/rankdb_private.h"

#include <stdio.h>
#include <string.h>

/* ---- steps ---- */

static uint64_t bit(int column)
{
    return UINT64_C(1) << column;
}

static uint64_t with_needed(uint64_t wanted)
{
    if (wanted & RANKDB_COLUMN(start_ns))
        wanted |= RANKDB_COLUMN(dur_ns);
    for (int i = 0; i < RANKDB_PACKED; i++)
        if (wanted & bit(rankdb_packed[i].column))
            wanted |= bit(rankdb_packed[i].stage) | bit(rankdb_packed[i].sync);
    if (wanted & RANKDB_COLUMN(other_ns))
        wanted |= RANKDB_COLUMN(dur_ns) | RANKDB_COLUMN(input_wait_ns) | RANKDB_COLUMN(h2d_ns) |
                  RANKDB_COLUMN(forward_ns) | RANKDB_COLUMN(backward_ns) |
                  RANKDB_COLUMN(compute_ns) | RANKDB_COLUMN(optimizer_ns);
    return wanted;
}

/* A running query over steps; column[i] is the column of its value number i + FIXED. */
struct reader {
    struct rankdb *db;
    sqlite3_stmt *stmt;
    int column[LG_COLUMNS], columns;
    int common[RANKDB_COMMON_COLUMNS]; /* the columns of step_common */
    uint64_t wanted;
    int64_t end; /* start + dur of the row before, LG_NULL: not known */
};
#define FIXED 2 /* step, common */

static void add_columns(struct reader *reader, sqlite3_str *sql, enum rankdb_table table)
{
    for (int c = 0; c < LG_COLUMNS; c++) {
        if (rankdb_table_of(c) != table || !(reader->wanted & bit(c)))
            continue;
        sqlite3_str_appendf(sql, ", %c.%s", table == RANKDB_GPU ? 'g' : 'h', rankdb_stored_name(c));
        reader->column[reader->columns++] = c;
    }
}

/* "NULL" in place of `common` when none of its columns is wanted. */
static const char *list_common(struct reader *reader)
{
    uint64_t any = 0;
    for (int c = 0, n = 0; c < LG_COLUMNS; c++)
        if (rankdb_table_of(c) == RANKDB_COMMON) {
            reader->common[n++] = c;
            any |= reader->wanted & bit(c);
        }
    return any ? "h.common" : "NULL";
}

static char *reader_sql(struct reader *reader)
{
    sqlite3_str *sql = sqlite3_str_new(NULL);
    int gpu = rankdb_number(reader->db, "SELECT 1 FROM step_gpu LIMIT 1", 0) == 1;

    sqlite3_str_appendf(sql, "SELECT h.step, %s", list_common(reader));
    add_columns(reader, sql, RANKDB_HOST);
    if (gpu)
        add_columns(reader, sql, RANKDB_GPU);
    sqlite3_str_appendall(sql, " FROM step_host AS h");
    if (gpu)
        sqlite3_str_appendall(sql, " LEFT JOIN step_gpu AS g ON g.step = h.step");
    sqlite3_str_appendall(sql, " WHERE h.step BETWEEN ? AND ? ORDER BY h.step");
    return sqlite3_str_finish(sql);
}

/* One look-up of the column for type and number, for some 20 columns a row. The value is used at
 * once, by the one thread that has this connection. */
static int64_t number(sqlite3_stmt *stmt, int at)
{
    sqlite3_value *value = sqlite3_column_value(stmt, at);
    return sqlite3_value_type(value) == SQLITE_NULL ? LG_NULL : sqlite3_value_int64(value);
}

/* Fills the cache entry for `id`; a row that is not there gives LG_NULL everywhere. */
static void read_common(struct rankdb *db, int64_t id, struct rankdb_common *entry)
{
    if (!db->get_common)
        sqlite3_prepare_v2(db->handle, "SELECT * FROM step_common WHERE id = ?", -1,
                           &db->get_common, NULL);
    sqlite3_bind_int64(db->get_common, 1, id);
    int found = sqlite3_step(db->get_common) == SQLITE_ROW;
    for (int i = 0; i < RANKDB_COMMON_COLUMNS; i++)
        entry->value[i] = found ? number(db->get_common, i + 1) : LG_NULL;
    sqlite3_reset(db->get_common);
    entry->id = id;
}

static void add_common(struct reader *reader, int64_t value[LG_COLUMNS])
{
    int64_t id = number(reader->stmt, 1);
    struct rankdb_common *entry = &reader->db->cache[(uint64_t)id % RANKDB_CACHE];

    if (id < 0)
        return;
    if (entry->id != id)
        read_common(reader->db, id, entry);
    for (int i = 0; i < RANKDB_COMMON_COLUMNS; i++)
        value[reader->common[i]] = entry->value[i];
}

/* Puts back what is not stored. `start` is as stored. */
static void decode(struct reader *reader, int64_t value[LG_COLUMNS])
{
    int64_t start = value[LG_COL_start_ns], dur = value[LG_COL_dur_ns];

    if (start == RANKDB_START_NONE)
        start = LG_NULL;
    else if (start == LG_NULL)
        start = reader->end;
    value[LG_COL_start_ns] = start;
    reader->end = rankdb_end(start, dur);
    if (reader->wanted & RANKDB_COLUMN(other_ns))
        value[LG_COL_other_ns] = rankdb_other_ns(value);
    for (int i = 0; i < RANKDB_PACKED; i++) {
        const struct rankdb_packed *packed = &rankdb_packed[i];
        if (value[packed->column] != LG_NULL)
            value[packed->column] = rankdb_other_part(value, packed, value[packed->column]);
    }
}

static void read_row(struct reader *reader, int64_t value[LG_COLUMNS])
{
    for (int i = 0; i < reader->columns; i++)
        value[reader->column[i]] = number(reader->stmt, i + FIXED);
    add_common(reader, value);
    decode(reader, value);
}

int rankdb_each_step(struct rankdb *db, int64_t first, int64_t last, uint64_t columns,
                     rankdb_step_fn *fn, void *context, struct error *error)
{
    struct reader reader = {.db = db, .wanted = with_needed(columns), .end = LG_NULL};
    int64_t value[LG_COLUMNS];
    char *sql = reader_sql(&reader);

    if (!sql || sqlite3_prepare_v2(db->handle, sql, -1, &reader.stmt, NULL) != SQLITE_OK) {
        sqlite3_free(sql);
        return rankdb_fail(db, error);
    }
    sqlite3_free(sql);
    /* from where a start is stored */
    sqlite3_bind_int64(reader.stmt, 1, first > 0 ? first - first % RANKDB_START_EVERY : first);
    sqlite3_bind_int64(reader.stmt, 2, last);
    for (int c = 0; c < LG_COLUMNS; c++)
        value[c] = LG_NULL;
    int rc, stop = 0;
    while (!stop && (rc = sqlite3_step(reader.stmt)) == SQLITE_ROW) {
        read_row(&reader, value);
        int64_t step = sqlite3_column_int64(reader.stmt, 0);
        if (step >= first)
            stop = fn(context, step, value);
    }
    int result = stop || rc == SQLITE_DONE ? 0 : rankdb_fail(db, error);
    sqlite3_finalize(reader.stmt);
    return result;
}

int rankdb_extent(struct rankdb *db, int64_t *first, int64_t *last, int64_t *rows,
                  struct error *error)
{
    sqlite3_stmt *stmt = NULL;
    int result = 0;

    *first = 0, *last = -1, *rows = 0;
    if (sqlite3_prepare_v2(db->handle,
                           "SELECT coalesce((SELECT min(step) FROM step_host), 0),"
                           " coalesce((SELECT max(step) FROM step_host), -1),"
                           " (SELECT count(*) FROM step_host)",
                           -1, &stmt, NULL) == SQLITE_OK &&
        sqlite3_step(stmt) == SQLITE_ROW) {
        *first = sqlite3_column_int64(stmt, 0);
        *last = sqlite3_column_int64(stmt, 1);
        *rows = sqlite3_column_int64(stmt, 2);
    } else {
        result = rankdb_fail(db, error);
    }
    sqlite3_finalize(stmt);
    return result;
}

int rankdb_has_step(struct rankdb *db, int64_t step)
{
    char sql[80];
    snprintf(sql, sizeof(sql), "SELECT 1 FROM step_host WHERE step = %lld", (long long)step);
    return rankdb_number(db, sql, 0) == 1;
}

/* ---- the small tables ---- */

static void text(sqlite3_stmt *stmt, int at, char *out, size_t size)
{
    const unsigned char *from = sqlite3_column_text(stmt, at);
    snprintf(out, size, "%s", from ? (const char *)from : "");
}

static void read_rank(sqlite3_stmt *stmt, struct rank_info *info)
{
    int at = 0;
    memset(info, 0, sizeof(*info));
    info->rank = number(stmt, at++);
    info->world_size = number(stmt, at++);
    text(stmt, at++, info->rank_source, sizeof(info->rank_source));
    info->local_rank = number(stmt, at++);
    info->attempt = number(stmt, at++);
    text(stmt, at++, info->host, sizeof(info->host));
    info->pid = number(stmt, at++);
    info->parent_pid = number(stmt, at++);
    info->proc_start = number(stmt, at++);
    text(stmt, at++, info->boot_id, sizeof(info->boot_id));
    text(stmt, at++, info->run_id, sizeof(info->run_id));
    info->seen = number(stmt, at++);
    text(stmt, at++, info->torch_path, sizeof(info->torch_path));
    text(stmt, at++, info->nccl_version, sizeof(info->nccl_version));
    info->mono_ns = number(stmt, at++);
    info->real_ns = number(stmt, at++);
    info->steps_complete = number(stmt, at++);
    info->ended = number(stmt, at++);
    info->exit_status = number(stmt, at++);
    info->killed = number(stmt, at++);
    info->entries_dropped = number(stmt, at++);
}

int rankdb_get_rank(struct rankdb *db, struct rank_info *info, struct error *error)
{
    sqlite3_stmt *stmt = NULL;
    int result = 0;

    if (sqlite3_prepare_v2(db->handle,
                           "SELECT rank, world_size, rank_source, local_rank, attempt, host, pid,"
                           " parent_pid, proc_start, boot_id, run_id, seen, torch_path,"
                           " nccl_version, mono_ns, real_ns, steps_complete, ended, exit_status,"
                           " killed, entries_dropped FROM rank",
                           -1, &stmt, NULL) != SQLITE_OK)
        return rankdb_fail(db, error);
    int rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW)
        read_rank(stmt, info);
    else
        result = rc == SQLITE_DONE ? error_set(error, "%s: no rank in it", db->path)
                                   : rankdb_fail(db, error);
    sqlite3_finalize(stmt);
    return result;
}

int rankdb_get_meta(struct rankdb *db, const char *key, char *value, size_t size)
{
    sqlite3_stmt *stmt = NULL;
    int found = 0;

    *value = '\0';
    if (sqlite3_prepare_v2(db->handle, "SELECT value FROM meta WHERE key = ?", -1, &stmt, NULL) ==
        SQLITE_OK) {
        sqlite3_bind_text(stmt, 1, key, -1, SQLITE_STATIC);
        found = sqlite3_step(stmt) == SQLITE_ROW;
        if (found)
            text(stmt, 0, value, size);
    }
    sqlite3_finalize(stmt);
    return found;
}

void rankdb_each_library(struct rankdb *db, rankdb_library_fn *fn, void *context)
{
    sqlite3_stmt *stmt = NULL;
    struct rank_library library;

    if (sqlite3_prepare_v2(db->handle,
                           "SELECT id, path, kind, version, communicators FROM library ORDER BY id",
                           -1, &stmt, NULL) != SQLITE_OK)
        return;
    while (sqlite3_step(stmt) == SQLITE_ROW) {
        library.id = number(stmt, 0);
        text(stmt, 1, library.path, sizeof(library.path));
        text(stmt, 2, library.kind, sizeof(library.kind));
        text(stmt, 3, library.version, sizeof(library.version));
        library.communicators = number(stmt, 4);
        fn(context, &library);
    }
    sqlite3_finalize(stmt);
}

int rankdb_each_loss(struct rankdb *db, rankdb_loss_fn *fn, void *context, struct error *error)
{
    sqlite3_stmt *stmt = NULL;
    struct rank_loss loss = {.step = -1};
    int rc, stop = 0;

    if (sqlite3_prepare_v2(db->handle, "SELECT reason, step, rows, detail FROM loss ORDER BY step",
                           -1, &stmt, NULL) != SQLITE_OK)
        return rankdb_fail(db, error);
    while (!stop && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        text(stmt, 0, loss.reason, sizeof(loss.reason));
        loss.step = number(stmt, 1);
        loss.rows = number(stmt, 2);
        text(stmt, 3, loss.detail, sizeof(loss.detail));
        stop = fn(context, &loss);
    }
    int result = stop || rc == SQLITE_DONE ? 0 : rankdb_fail(db, error);
    sqlite3_finalize(stmt);
    return result;
}
