/*
 * import_write.c - the writing half of `laggard import`: rows are held back per rank and written in
 * batches, so that a file that takes turns between thousands of ranks needs neither thousands of
 * open databases nor a transaction a row. Runs in the importing command.
 */
#include "aggregator/import.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_HELD (100 * 1000) /* rows held back over all ranks: some 50 MB */
#define SCRATCH  ".import-"

struct held_step {
    int64_t step, order;
    int64_t value[LG_COLUMNS];
};

struct held_rank {
    int64_t rank;
    struct held_step *step;
    size_t n_steps, room;
    json_t *rows; /* lines of other tables, in order; NULL: none */
};

/* Tables that lines may name, with the columns they have in a rank database. */
struct table {
    const char *name;
    json_t *columns; /* name: {"text": bool, "needed": bool} */
};

struct import_writer {
    char dir[PATH_MAX - 64], scratch[PATH_MAX - 32];
    bool made_dir, made_scratch;
    struct held_rank *ranks; /* by number */
    size_t n_ranks, last;    /* last: index of the rank used last */
    size_t held;
    int64_t order;
    struct table table[6];
};
#define TABLES 6
static const char *const table_names[TABLES] = {"rank",   "collective", "event",
                                                "worker", "comm_group", "loss"};

/* --- columns of the other tables ----------------------------------------------------------- */

static void read_columns(struct rankdb *db, struct table *table)
{
    sqlite3_stmt *info = NULL;
    table->columns = json_object();
    if (sqlite3_prepare_v2(rankdb_handle(db),
                           "SELECT name, type = 'TEXT', \"notnull\" FROM pragma_table_info(?)", -1,
                           &info, NULL) != SQLITE_OK)
        return;
    sqlite3_bind_text(info, 1, table->name, -1, SQLITE_STATIC);
    while (sqlite3_step(info) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(info, 0);
        /* the rank inside a group, see sql_vtab.c */
        bool group = strcmp(table->name, "comm_group") == 0 && strcmp(name, "rank") == 0;
        json_object_set_new(table->columns, group ? "group_rank" : name,
                            json_pack("{sb sb}", "text", sqlite3_column_int(info, 1), "needed",
                                      sqlite3_column_int(info, 2)));
    }
    sqlite3_finalize(info);
    /* which process was first is told by files, not by rows */
    json_object_del(table->columns, "attempt");
}

/* The columns are those of an empty database that is made for this and thrown away. */
static int read_tables(struct import_writer *w, struct error *error)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/schema.sqlite", w->scratch);
    struct rankdb *db = rankdb_create(path, error);
    if (!db)
        return -1;
    for (int t = 0; t < TABLES; t++) {
        w->table[t].name = table_names[t];
        read_columns(db, &w->table[t]);
    }
    rankdb_close(db);
    unlink(path);
    return 0;
}

static const struct table *find_table(const struct import_writer *w, const char *name)
{
    for (int t = 0; t < TABLES; t++)
        if (strcmp(w->table[t].name, name) == 0)
            return &w->table[t];
    return NULL;
}

static int check_cell(const struct table *table, const char *key, const json_t *value,
                      struct error *error)
{
    const json_t *column = json_object_get(table->columns, key);
    if (!column)
        return error_set(error, "key \"%s\" is no column of table %s", key, table->name);
    bool text = json_is_true(json_object_get(column, "text"));
    if (!json_is_null(value) && !(text ? json_is_string(value) : json_is_integer(value)))
        return error_set(error, "key \"%s\": %s or null is wanted", key,
                         text ? "a string" : "an integer");
    return 0;
}

static int check_row(const struct table *table, const json_t *row, struct error *error)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)row, key, value)
    {
        if (strcmp(key, "table") != 0 && strcmp(key, "rank") != 0 &&
            check_cell(table, key, value, error))
            return -1;
    }
    json_object_foreach(table->columns, key, value)
    {
        const json_t *cell = json_object_get(row, key);
        if (json_is_true(json_object_get(value, "needed")) && (!cell || json_is_null(cell)))
            return error_set(error, "key \"%s\" is missing (table %s)", key, table->name);
    }
    return 0;
}

/* --- writing what is held ------------------------------------------------------------------ */

static int bind_cell(sqlite3_stmt *stmt, int at, const json_t *value)
{
    if (json_is_string(value))
        return sqlite3_bind_text(stmt, at, json_string_value(value), -1, SQLITE_STATIC);
    if (json_is_integer(value))
        return sqlite3_bind_int64(stmt, at, json_integer_value(value));
    return sqlite3_bind_null(stmt, at);
}

/* UPDATE for the one row of table rank, INSERT for all others. */
static char *row_sql(const char *table, const json_t *row)
{
    bool update = strcmp(table, "rank") == 0;
    sqlite3_str *sql = sqlite3_str_new(NULL), *marks = sqlite3_str_new(NULL);
    const char *key, *comma = "";
    json_t *value;
    sqlite3_str_appendf(sql, update ? "UPDATE %s SET " : "INSERT OR REPLACE INTO %s(", table);
    json_object_foreach((json_t *)row, key, value)
    {
        if (strcmp(key, "table") == 0 || strcmp(key, "rank") == 0)
            continue;
        const char *name = strcmp(key, "group_rank") == 0 ? "rank" : key;
        sqlite3_str_appendf(sql, update ? "%s\"%w\" = ?" : "%s\"%w\"", comma, name);
        sqlite3_str_appendf(marks, "%s?", comma);
        comma = ", ";
    }
    char *list = sqlite3_str_finish(marks);
    if (update)
        sqlite3_str_appendall(sql, *comma ? "" : "rank = rank"); /* a line with no other key */
    else
        sqlite3_str_appendf(sql, ") VALUES (%s)", list ? list : "");
    sqlite3_free(list);
    return sqlite3_str_finish(sql);
}

static int put_row(struct rankdb *db, const json_t *row, struct error *error)
{
    const char *key;
    json_t *value;
    sqlite3_stmt *stmt = NULL;
    int at = 0;
    char *sql = row_sql(json_string_value(json_object_get(row, "table")), row);
    int rc = sql ? sqlite3_prepare_v2(rankdb_handle(db), sql, -1, &stmt, NULL) : SQLITE_NOMEM;
    sqlite3_free(sql);
    json_object_foreach((json_t *)row, key, value)
    {
        if (rc == SQLITE_OK && strcmp(key, "table") != 0 && strcmp(key, "rank") != 0)
            rc = bind_cell(stmt, ++at, value);
    }
    if (rc == SQLITE_OK && sqlite3_step(stmt) == SQLITE_DONE)
        rc = SQLITE_DONE;
    sqlite3_finalize(stmt);
    return rc == SQLITE_DONE ? 0 : error_set(error, "%s", sqlite3_errmsg(rankdb_handle(db)));
}

static int by_step(const void *a, const void *b)
{
    const struct held_step *x = a, *y = b;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

static int put_held(struct rankdb *db, struct held_rank *held, struct error *error)
{
    size_t i;
    json_t *row;
    qsort(held->step, held->n_steps, sizeof(*held->step), by_step);
    for (i = 0; i < held->n_steps; i++) {
        /* of the same step the last one wins */
        if (i + 1 < held->n_steps && held->step[i].step == held->step[i + 1].step)
            continue;
        if (rankdb_put_step(db, held->step[i].step, held->step[i].value, error))
            return -1;
    }
    json_array_foreach(held->rows, i, row)
    {
        if (put_row(db, row, error))
            return -1;
    }
    return 0;
}

static int put_new_rank(struct rankdb *db, int64_t rank, struct error *error)
{
    struct rank_info info = {
        .rank = rank,
        .world_size = LG_NULL,
        .local_rank = LG_NULL,
        .attempt = 0,
        .pid = LG_NULL,
        .parent_pid = LG_NULL,
        .proc_start = LG_NULL,
        .seen = LG_NULL,
        .mono_ns = LG_NULL,
        .real_ns = LG_NULL,
        .steps_complete = LG_NULL,
        .ended = LG_NULL,
        .exit_status = LG_NULL,
        .killed = LG_NULL,
        .entries_dropped = LG_NULL,
        .rank_source = "imported",
    };
    return rankdb_put_rank(db, &info, error);
}

static int put_meta(struct rankdb *db, const struct import_meta *meta, struct error *error)
{
    char *expected = meta->expected_ranks ? json_dumps(meta->expected_ranks, JSON_COMPACT) : NULL;
    int rc = 0;
    if (expected)
        rc = rankdb_put_meta(db, "expected_ranks", expected, error);
    if (rc == 0 && meta->strategy)
        rc = rankdb_put_meta(db, "strategy", meta->strategy, error);
    if (rc == 0 && meta->command)
        rc = rankdb_put_meta(db, "command", meta->command, error);
    free(expected);
    if (rc == 0 && meta->world_size != LG_NULL) {
        char *sql = sqlite3_mprintf("UPDATE rank SET world_size = coalesce(world_size, %lld)",
                                    (long long)meta->world_size);
        if (!sql || sqlite3_exec(rankdb_handle(db), sql, NULL, NULL, NULL) != SQLITE_OK)
            rc = error_set(error, "%s", sqlite3_errmsg(rankdb_handle(db)));
        sqlite3_free(sql);
    }
    return rc;
}

static int write_rank(struct rankdb *db, struct held_rank *held, bool fresh,
                      const struct import_meta *meta, struct error *error)
{
    if (rankdb_begin(db, error))
        return -1;
    if ((fresh && put_new_rank(db, held->rank, error)) || put_held(db, held, error) ||
        (meta && put_meta(db, meta, error)))
        return -1;
    return rankdb_commit(db, error);
}

/* Writes what is held of a rank; with `meta` it is the last time. */
static int flush_rank(struct import_writer *w, struct held_rank *held,
                      const struct import_meta *meta, struct error *error)
{
    char path[PATH_MAX];
    if (rankdb_path(path, sizeof(path), w->scratch, held->rank, 0))
        return error_set(error, "%s: name too long", w->scratch);
    bool fresh = access(path, F_OK) != 0;
    struct rankdb *db = rankdb_create(path, error);
    if (!db)
        return -1;
    /* what is unfinished is thrown away: no need for the disk's word on every batch */
    sqlite3_exec(rankdb_handle(db), "PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY", NULL,
                 NULL, NULL);
    int rc = write_rank(db, held, fresh, meta, error);
    rankdb_close(db);
    w->held -= held->n_steps + json_array_size(held->rows);
    held->n_steps = 0;
    json_array_clear(held->rows);
    return rc;
}

static int flush_all(struct import_writer *w, const struct import_meta *meta, struct error *error)
{
    for (size_t i = 0; i < w->n_ranks; i++) {
        struct held_rank *held = &w->ranks[i];
        if ((meta || held->n_steps || json_array_size(held->rows)) &&
            flush_rank(w, held, meta, error))
            return -1;
        if (!meta && held->room > 64) {
            free(held->step);
            held->step = NULL;
            held->room = 0;
        }
    }
    return 0;
}

/* --- taking lines -------------------------------------------------------------------------- */

static struct held_rank *find_rank(struct import_writer *w, int64_t rank)
{
    if (w->last < w->n_ranks && w->ranks[w->last].rank == rank)
        return &w->ranks[w->last];
    size_t low = 0, high = w->n_ranks;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (w->ranks[middle].rank < rank)
            low = middle + 1;
        else
            high = middle;
    }
    w->last = low;
    if (low < w->n_ranks && w->ranks[low].rank == rank)
        return &w->ranks[low];
    struct held_rank *more = reallocarray(w->ranks, w->n_ranks + 1, sizeof(*more));
    if (!more)
        return NULL;
    w->ranks = more;
    memmove(&more[low + 1], &more[low], (w->n_ranks - low) * sizeof(*more));
    more[low] = (struct held_rank){.rank = rank};
    w->n_ranks++;
    return &more[low];
}

static int hold_step(struct import_writer *w, struct held_rank *held,
                     const struct import_line *line)
{
    if (held->n_steps == held->room) {
        size_t room = held->room ? 2 * held->room : 16;
        struct held_step *more = reallocarray(held->step, room, sizeof(*more));
        if (!more)
            return -1;
        held->step = more;
        held->room = room;
    }
    struct held_step *step = &held->step[held->n_steps++];
    step->step = line->step;
    step->order = w->order++;
    memcpy(step->value, line->value, sizeof(step->value));
    return 0;
}

static int hold_row(struct held_rank *held, json_t *row)
{
    if (!held->rows)
        held->rows = json_array();
    return json_array_append(held->rows, row);
}

int import_writer_add(struct import_writer *w, struct import_line *line, struct error *error)
{
    int rc = 0;
    if (line->kind == IMPORT_ROW) {
        const char *name = json_string_value(json_object_get(line->object, "table"));
        const struct table *table = find_table(w, name);
        rc = table ? check_row(table, line->object, error)
                   : error_set(error, "key \"table\": there is no table %s to import into", name);
    }
    if (rc == 0) {
        struct held_rank *held = find_rank(w, line->rank);
        if (!held ||
            (line->kind == IMPORT_ROW ? hold_row(held, line->object) : hold_step(w, held, line)))
            rc = error_set(error, "out of memory");
    }
    json_decref(line->object);
    line->object = NULL;
    if (rc == 0 && ++w->held >= MAX_HELD)
        rc = flush_all(w, NULL, error);
    return rc;
}

/* --- the directory ------------------------------------------------------------------------- */

static bool holds_run(const char *dir)
{
    bool found = false;
    DIR *list = opendir(dir);
    struct dirent *entry;
    int64_t rank, attempt;
    while (list && !found && (entry = readdir(list)))
        found = rankdb_parse_name(entry->d_name, &rank, &attempt);
    if (list)
        closedir(list);
    return found;
}

static int make_dirs(struct import_writer *w, struct error *error)
{
    if (mkdir(w->dir, 0700) == 0)
        w->made_dir = true;
    else if (errno != EEXIST)
        return error_set(error, "%s: %s", w->dir, strerror(errno));
    if (holds_run(w->dir))
        return error_set(error, "%s: holds a run already; give another -o", w->dir);
    snprintf(w->scratch, sizeof(w->scratch), "%s/" SCRATCH "%d", w->dir, (int)getpid());
    if (mkdir(w->scratch, 0700))
        return error_set(error, "%s: %s", w->scratch, strerror(errno));
    w->made_scratch = true;
    return 0;
}

struct import_writer *import_writer_open(const char *dir, struct error *error)
{
    struct import_writer *w = calloc(1, sizeof(*w));
    if (!w) {
        error_set(error, "out of memory");
        return NULL;
    }
    if ((size_t)snprintf(w->dir, sizeof(w->dir), "%s", dir) >= sizeof(w->dir)) {
        error_set(error, "%s: name too long", dir);
        free(w);
        return NULL;
    }
    if (make_dirs(w, error) || read_tables(w, error)) {
        import_writer_close(w);
        return NULL;
    }
    return w;
}

int import_writer_finish(struct import_writer *w, const struct import_meta *meta,
                         struct error *error)
{
    char from[PATH_MAX], to[PATH_MAX];
    if (flush_all(w, meta, error))
        return -1;
    for (size_t i = 0; i < w->n_ranks; i++) {
        if (rankdb_path(from, sizeof(from), w->scratch, w->ranks[i].rank, 0) ||
            rankdb_path(to, sizeof(to), w->dir, w->ranks[i].rank, 0))
            return error_set(error, "%s: name too long", w->dir);
        if (rename(from, to))
            return error_set(error, "%s: %s", to, strerror(errno));
    }
    rmdir(w->scratch);
    w->made_dir = w->made_scratch = false;
    return 0;
}

size_t import_writer_ranks(const struct import_writer *w)
{
    return w->n_ranks;
}

static void remove_scratch(const struct import_writer *w)
{
    DIR *list = opendir(w->scratch);
    struct dirent *entry;
    while (list && (entry = readdir(list)))
        if (entry->d_name[0] != '.')
            unlinkat(dirfd(list), entry->d_name, 0);
    if (list)
        closedir(list);
    rmdir(w->scratch);
}

void import_writer_close(struct import_writer *w)
{
    if (!w)
        return;
    if (w->made_scratch)
        remove_scratch(w);
    if (w->made_dir)
        rmdir(w->dir);
    for (size_t i = 0; i < w->n_ranks; i++) {
        free(w->ranks[i].step);
        json_decref(w->ranks[i].rows);
    }
    for (int t = 0; t < TABLES; t++)
        json_decref(w->table[t].columns);
    free(w->ranks);
    free(w);
}
