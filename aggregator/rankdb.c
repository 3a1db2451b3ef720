/*
 * rankdb.c - opening, making and writing rank databases. Runs in the recorder and the importer
 * (writers) and in every command that reads a run. rankdb_read.c has the reading half.
 */
#include "aggregator/rankdb_private.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aggregator/rundir.h"

#pragma GCC diagnostic ignored "-Woverlength-strings" /* the SQL is one literal */
static const char schema_sql[] =
#include "rank.sql.h"
    ;

#define COLUMN(name, table, unit, meaning) #name,
const char *const rankdb_column_name[LG_COLUMNS] = {
#include "schema/columns.def"
};
#undef COLUMN

#define COLUMN(name, table, unit, meaning) RANKDB_##table,
static const enum rankdb_table column_table[LG_COLUMNS] = {
#include "schema/columns.def"
};
#undef COLUMN

/* Columns that hardly ever change from step to step. A set of values that is seen often costs a row
 * one byte; one that is always new costs it some 20 bytes more than plain columns would. */
#define COMMON_COLUMNS(X)                                                                          \
    X(fsyncs)                                                                                      \
    X(h2d_copies) X(collectives) X(collective_bytes) X(host_syncs) X(n_backward) X(flags) X(sources)
#define COMMON_BIT(name) | RANKDB_COLUMN(name)
static const uint64_t common_columns = 0 COMMON_COLUMNS(COMMON_BIT);
#define COMMON_ONE(name) +1
static_assert((0 COMMON_COLUMNS(COMMON_ONE)) == RANKDB_COMMON_COLUMNS, "count of common columns");

enum rankdb_table rankdb_table_of(int column)
{
    if (common_columns >> column & 1)
        return RANKDB_COMMON;
    return column_table[column];
}

const struct rankdb_packed rankdb_packed[RANKDB_PACKED] = {
    {LG_COL_optimizer_after_ns, LG_COL_optimizer_ns, LG_COL_optimizer_sync_ns,
     "optimizer_before_ns"},
    {LG_COL_other_after_ns, LG_COL_other_ns, LG_COL_other_sync_ns, "other_before_ns"},
    {LG_COL_gpu_optimizer_after_ns, LG_COL_gpu_optimizer_ns, LG_COL_gpu_optimizer_sync_ns,
     "gpu_optimizer_before_ns"},
    {LG_COL_gpu_other_after_ns, LG_COL_gpu_other_ns, LG_COL_gpu_other_sync_ns,
     "gpu_other_before_ns"},
};

#define LOSS(number, name, meaning) [number] = #name,
static const char *const loss_name[] = {
#include "schema/bits.def"
};

const char *rankdb_loss_name(uint32_t reason)
{
    return reason < sizeof(loss_name) / sizeof(loss_name[0]) && loss_name[reason]
               ? loss_name[reason]
               : "?";
}

const struct rankdb_packed *rankdb_find_packed(int column)
{
    for (int i = 0; i < RANKDB_PACKED; i++)
        if (rankdb_packed[i].column == column)
            return &rankdb_packed[i];
    return NULL;
}

const char *rankdb_stored_name(int column)
{
    const struct rankdb_packed *packed = rankdb_find_packed(column);
    return packed ? packed->stored_name : rankdb_column_name[column];
}

/* Unsigned: garbage may overflow, and then wraps, here and where it is put back. */
static uint64_t zero_if_null(int64_t v)
{
    return v == LG_NULL ? 0 : (uint64_t)v;
}

int64_t rankdb_other_ns(const int64_t value[LG_COLUMNS])
{
    int64_t forward = value[LG_COL_forward_ns], backward = value[LG_COL_backward_ns];
    uint64_t compute = zero_if_null(value[LG_COL_compute_ns]);

    if (value[LG_COL_dur_ns] == LG_NULL)
        return LG_NULL;
    if (value[LG_COL_compute_ns] == LG_NULL || (forward != LG_NULL && backward != LG_NULL))
        compute = zero_if_null(forward) + zero_if_null(backward);
    return (int64_t)((uint64_t)value[LG_COL_dur_ns] - zero_if_null(value[LG_COL_input_wait_ns]) -
                     zero_if_null(value[LG_COL_h2d_ns]) - compute -
                     zero_if_null(value[LG_COL_optimizer_ns]));
}

int64_t rankdb_other_part(const int64_t value[LG_COLUMNS], const struct rankdb_packed *packed,
                          int64_t part)
{
    int64_t stage =
        packed->stage == LG_COL_other_ns ? rankdb_other_ns(value) : value[packed->stage];
    return (int64_t)(zero_if_null(stage) - zero_if_null(value[packed->sync]) - (uint64_t)part);
}

int rankdb_fail(struct rankdb *db, struct error *error)
{
    return error_set(error, "%s: %s", db->path, sqlite3_errmsg(db->handle));
}

/* ---- names of files ---- */

int rankdb_path(char *path, size_t size, const char *dir, int64_t rank, int64_t attempt)
{
    char suffix[32] = "";
    if (attempt > 0)
        snprintf(suffix, sizeof(suffix), ".a%lld", (long long)attempt);
    int n = snprintf(path, size, "%s/rank-%05lld%s.sqlite", dir, (long long)rank, suffix);
    return n < 0 || (size_t)n >= size ? -1 : 0;
}

/* A prefix and 1 to 9 digits; nothing else that C takes for a number. */
static int take_prefixed(const char **name, const char *prefix, int64_t *number)
{
    const char *at = *name + strlen(prefix);
    size_t digits;

    if (strncmp(*name, prefix, strlen(prefix)) != 0)
        return 0;
    digits = strspn(at, "0123456789");
    if (digits < 1 || digits > 9)
        return 0;
    *number = strtoll(at, NULL, 10);
    *name = at + digits;
    return 1;
}

int rankdb_parse_name(const char *name, int64_t *rank, int64_t *attempt)
{
    *attempt = 0;
    if (!take_prefixed(&name, "rank-", rank))
        return 0;
    if (name[0] == '.' && name[1] == 'a' && !take_prefixed(&name, ".a", attempt))
        return 0;
    return strcmp(name, ".sqlite") == 0;
}

/* ---- the schema, built from columns.def ---- */

static void add_definitions(sqlite3_str *out, enum rankdb_table table)
{
    for (int c = 0; c < LG_COLUMNS; c++)
        if (rankdb_table_of(c) == table)
            sqlite3_str_appendf(out, ", %s INTEGER", rankdb_stored_name(c));
}

#define OTHER_SQL                                                                                  \
    "(h.dur_ns - coalesce(h.input_wait_ns, 0) - coalesce(h.h2d_ns, 0)"                             \
    " - CASE WHEN h.compute_ns IS NULL OR h.forward_ns + h.backward_ns IS NOT NULL"                \
    " THEN coalesce(h.forward_ns, 0) + coalesce(h.backward_ns, 0) ELSE h.compute_ns END"           \
    " - coalesce(h.optimizer_ns, 0))"

/* the last stored start at or before this step, plus the durations since */
#define START_SQL                                                                                  \
    "nullif(coalesce(h.start_ns, (SELECT nullif(b.start_ns, -1) +"                                 \
    " (SELECT sum(d.dur_ns) FROM step_host AS d WHERE d.step >= b.step AND d.step < h.step)"       \
    " FROM step_host AS b WHERE b.step BETWEEN (h.step & ~63) AND h.step"                          \
    " AND b.start_ns IS NOT NULL ORDER BY b.step DESC LIMIT 1)), -1)"

static void add_expression(sqlite3_str *out, int c)
{
    const struct rankdb_packed *packed = rankdb_find_packed(c);
    char t = "hcgh"[rankdb_table_of(c)]; /* aliases of the view's tables */

    if (c == LG_COL_start_ns) {
        sqlite3_str_appendall(out, START_SQL);
    } else if (c == LG_COL_other_ns) {
        sqlite3_str_appendall(out, OTHER_SQL);
    } else if (packed) {
        if (packed->stage == LG_COL_other_ns)
            sqlite3_str_appendall(out, "coalesce(" OTHER_SQL ", 0)");
        else
            sqlite3_str_appendf(out, "coalesce(%c.%s, 0)", t, rankdb_column_name[packed->stage]);
        sqlite3_str_appendf(out, " - coalesce(%c.%s, 0) - %c.%s", t,
                            rankdb_column_name[packed->sync], t, packed->stored_name);
    } else {
        sqlite3_str_appendf(out, "%c.%s", t, rankdb_column_name[c]);
    }
    sqlite3_str_appendf(out, " AS %s", rankdb_column_name[c]);
}

static void add_step_columns(sqlite3_str *out)
{
    for (int c = 0; c < LG_COLUMNS; c++) {
        if (c)
            sqlite3_str_appendall(out, ", ");
        add_expression(out, c);
    }
}

/* The sum of the measured parts; NULL when none was measured. */
static void add_sum(sqlite3_str *out, const char *prefix)
{
#define NAME(name) #name,
    static const char *const stage[] = {LG_STAGES(NAME)};
#undef NAME
    sqlite3_str_appendall(out, "CASE WHEN coalesce(");
    for (int i = 0; i < LG_STAGE_COUNT; i++)
        sqlite3_str_appendf(out, "%s%s%s_sync_ns", i ? ", " : "", prefix, stage[i]);
    sqlite3_str_appendall(out, ") IS NOT NULL THEN ");
    for (int i = 0; i < LG_STAGE_COUNT; i++)
        sqlite3_str_appendf(out, "%scoalesce(%s%s_sync_ns, 0)", i ? " + " : "", prefix, stage[i]);
    sqlite3_str_appendall(out, " END");
}

static void add_word(sqlite3_str *out, const char *word, size_t length)
{
    if (strncmp(word, "HOST_COLUMNS", length) == 0)
        add_definitions(out, RANKDB_HOST);
    else if (strncmp(word, "COMMON_COLUMNS", length) == 0)
        add_definitions(out, RANKDB_COMMON);
    else if (strncmp(word, "GPU_COLUMNS", length) == 0)
        add_definitions(out, RANKDB_GPU);
    else if (strncmp(word, "STEP_COLUMNS", length) == 0)
        add_step_columns(out);
    else if (strncmp(word, "SYNC_SUM", length) == 0)
        add_sum(out, "h.");
    else if (strncmp(word, "GPU_SYNC_SUM", length) == 0)
        add_sum(out, "g.gpu_");
}

/* schema/rank.sql with its words replaced; to be freed with sqlite3_free. */
static char *schema_text(void)
{
    sqlite3_str *out = sqlite3_str_new(NULL);
    const char *at = schema_sql;

    for (const char *word; (word = strchr(at, '$')); at = word) {
        sqlite3_str_append(out, at, (int)(word - at));
        size_t length = strspn(++word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
        add_word(out, word, length);
        word += length;
    }
    sqlite3_str_appendall(out, at);
    return sqlite3_str_finish(out);
}

static int make_schema(struct rankdb *db, struct error *error)
{
    char *text = schema_text();
    char *sql = text ? sqlite3_mprintf("BEGIN IMMEDIATE;%s;"
                                       "INSERT INTO meta VALUES ('schema_version', %d),"
                                       " ('laggard_version', %Q);"
                                       "PRAGMA application_id = %d; PRAGMA user_version = %d;"
                                       "COMMIT;",
                                       text, LG_SCHEMA_VERSION, LAGGARD_VERSION,
                                       RANKDB_APPLICATION_ID, LG_SCHEMA_VERSION)
                     : NULL;
    int rc = sql ? sqlite3_exec(db->handle, sql, NULL, NULL, NULL) : SQLITE_NOMEM;
    sqlite3_free(sql);
    sqlite3_free(text);
    return rc == SQLITE_OK ? 0 : rankdb_fail(db, error);
}

/* ---- opening ---- */

static struct rankdb *allocate(const char *path, struct error *error)
{
    struct rankdb *db = calloc(1, sizeof(*db));
    if (db)
        db->path = strdup(path);
    if (!db || !db->path) {
        free(db);
        error_set(error, "%s: out of memory", path);
        return NULL;
    }
    return db;
}

int64_t rankdb_number(struct rankdb *db, const char *sql, int64_t otherwise)
{
    sqlite3_stmt *stmt = NULL;
    int64_t number = otherwise;
    if (sqlite3_prepare_v2(db->handle, sql, -1, &stmt, NULL) == SQLITE_OK &&
        sqlite3_step(stmt) == SQLITE_ROW && sqlite3_column_type(stmt, 0) != SQLITE_NULL)
        number = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    return number;
}

static int check_schema(struct rankdb *db, struct error *error)
{
    int64_t id = rankdb_number(db, "PRAGMA application_id", -1);
    if (id < 0)
        return rankdb_fail(db, error);
    if (id != RANKDB_APPLICATION_ID)
        return error_set(error, "%s: not a rank database", db->path);
    int64_t version = rankdb_number(db, "PRAGMA user_version", -1);
    int64_t told =
        rankdb_number(db, "SELECT value FROM meta WHERE key = 'schema_version'", version);
    if (told > version)
        version = told;
    if (version > LG_SCHEMA_VERSION)
        return error_set(error,
                         "%s: schema version %lld, this program (" LAGGARD_VERSION
                         ") knows up to %d: read it with a newer laggard",
                         db->path, (long long)version, LG_SCHEMA_VERSION);
    if (version < LG_OLDEST_SCHEMA)
        return error_set(error,
                         "%s: schema version %lld, this program (" LAGGARD_VERSION
                         ") reads %d to %d: read it with the laggard that made it",
                         db->path, (long long)version, LG_OLDEST_SCHEMA, LG_SCHEMA_VERSION);
    return 0;
}

/* SQLite makes files with the umask's mode; ours are private whatever the umask is. */
static int make_file(const char *path, struct error *error)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return error_set(error, "%s: %s", path, strerror(errno));
    /* No lock is held on this file yet, so closing the descriptor can't drop one. */
    close(fd);
    return 0;
}

/* Rolling back a journal that names a super-journal deletes the file of that name, which may be
 * any. We never write such a one: a transaction of ours is about one file. */
static int has_super_journal(const char *path)
{
    static const unsigned char magic[8] = {0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7};
    unsigned char end[sizeof(magic)];
    char journal[PATH_MAX];

    if (snprintf(journal, sizeof(journal), "%s-journal", path) >= (int)sizeof(journal))
        return 1;
    int fd = open(journal, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno != ENOENT;
    int found = lseek(fd, -(off_t)sizeof(end), SEEK_END) >= 0 &&
                read(fd, end, sizeof(end)) == (ssize_t)sizeof(end) &&
                memcmp(end, magic, sizeof(magic)) == 0;
    close(fd);
    return found;
}

/* A link may lead to any file of this user's. */
static int check_writable(const char *path, struct error *error)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return error_set(error, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return error_set(error, "%s: not a regular file", path);
    if (has_super_journal(path))
        return error_set(error, "%s: its journal is not laggard's", path);
    return 0;
}

static int open_for_writing(struct rankdb *db, struct error *error)
{
    if (sqlite3_open_v2(db->path, &db->handle, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK)
        return rankdb_fail(db, error);
    sqlite3_busy_timeout(db->handle, RANKDB_WRITER_BUSY_MS);
    /* synchronous NORMAL: a killed recorder loses nothing, the spool still has what was not
     * committed; a crash of the machine can't leave a malformed file. */
    if (sqlite3_exec(db->handle,
                     "PRAGMA page_size = 4096; PRAGMA journal_mode = DELETE;"
                     "PRAGMA synchronous = NORMAL; PRAGMA temp_store = MEMORY;"
                     "PRAGMA cache_size = -1024;",
                     NULL, NULL, NULL) != SQLITE_OK)
        return rankdb_fail(db, error);
    if (rankdb_number(db, "SELECT count(*) FROM sqlite_master", -1) == 0)
        return make_schema(db, error);
    return check_schema(db, error);
}

void rankdb_forget(struct rankdb *db)
{
    for (int i = 0; i < RANKDB_CACHE; i++)
        db->cache[i].id = -1;
    db->next_common = rankdb_number(db, "SELECT max(id) + 1 FROM step_common", 0);
    db->max_step = rankdb_number(db, "SELECT max(step) FROM step_host", -1);
    db->last_step = -2;
}

struct rankdb *rankdb_create(const char *path, struct error *error)
{
    if (access(path, F_OK) != 0 && make_file(path, error) != 0)
        return NULL;
    if (check_writable(path, error) != 0)
        return NULL;
    struct rankdb *db = allocate(path, error);
    if (!db)
        return NULL;
    if (open_for_writing(db, error) != 0) {
        rankdb_close(db);
        return NULL;
    }
    rankdb_forget(db);
    return db;
}

/* Where somebody else decides on names, root too makes and removes no files. */
static int is_own_directory(const char *path)
{
    char dir[PATH_MAX];
    const char *slash = strrchr(path, '/');
    struct stat st;
    int n = slash ? snprintf(dir, sizeof(dir), "%.*s/.", (int)(slash - path), path)
                  : snprintf(dir, sizeof(dir), ".");

    return n < (int)sizeof(dir) && stat(dir, &st) == 0 &&
           (st.st_uid == geteuid() || st.st_uid == 0);
}

/* A writer that was killed inside a transaction leaves a journal, which only somebody who may write
 * can roll back: the first reader does it. */
static void roll_back_journal(const char *path)
{
    sqlite3 *handle = NULL;
    if (check_writable(path, NULL) != 0 || !is_own_directory(path))
        return;
    if (sqlite3_open_v2(path, &handle, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK) {
        sqlite3_busy_timeout(handle, RANKDB_READER_BUSY_MS);
        sqlite3_exec(handle, "SELECT count(*) FROM sqlite_master", NULL, NULL, NULL);
    }
    sqlite3_close(handle);
}

/*
 * Where locks fail, databases are written elsewhere and put in place as whole files (recorder.h),
 * so they can be read without: the name of SQLite's lock-free way in, NULL where locks work. Tried
 * on run.sqlite, which nobody locks: closing a descriptor of the database itself would drop the
 * locks that this process holds on it.
 */
static const char *reader_vfs(const char *path)
{
    char probe[PATH_MAX];
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 1};
    const char *slash = strrchr(path, '/');

    if (rundir_is_network(path))
        return "unix-none";
    int n =
        snprintf(probe, sizeof(probe), "%.*srun.sqlite", slash ? (int)(slash - path) + 1 : 0, path);
    int fd = n < (int)sizeof(probe) ? open(probe, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (fd < 0)
        return NULL;
    int fails = fcntl(fd, F_SETLK, &lock) != 0 && errno != EACCES && errno != EAGAIN;
    close(fd);
    return fails ? "unix-none" : NULL;
}

static int no_tricks(void *context, int action, const char *first, const char *second,
                     const char *database, const char *view)
{
    (void)context, (void)first, (void)second, (void)database, (void)view;
    return action == SQLITE_RECURSIVE || action == SQLITE_ATTACH || action == SQLITE_DETACH
               ? SQLITE_DENY
               : SQLITE_OK;
}

void rankdb_distrust(sqlite3 *handle)
{
    sqlite3_db_config(handle, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_db_config(handle, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    sqlite3_limit(handle, SQLITE_LIMIT_ATTACHED, 0);
    sqlite3_limit(handle, SQLITE_LIMIT_LENGTH, 64 << 20);
    sqlite3_set_authorizer(handle, no_tricks, NULL);
}

/* Reading a file in WAL mode makes two more beside it. Read through SQLite's own descriptor, since
 * closing another one would drop its locks. */
static int is_wal(sqlite3 *handle)
{
    sqlite3_file *file = NULL;
    unsigned char version[2] = {0, 0}; /* of the format, for writing and for reading */

    return sqlite3_file_control(handle, "main", SQLITE_FCNTL_FILE_POINTER, &file) == SQLITE_OK &&
           file && file->pMethods &&
           file->pMethods->xRead(file, version, sizeof(version), 18) == SQLITE_OK &&
           (version[0] == 2 || version[1] == 2);
}

static int open_for_reading(struct rankdb *db, struct error *error)
{
    /* one thread at a time uses a connection: its own mutex would cost a fifth of a report */
    if (sqlite3_open_v2(db->path, &db->handle, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX,
                        reader_vfs(db->path)) != SQLITE_OK)
        return rankdb_fail(db, error);
    sqlite3_busy_timeout(db->handle, RANKDB_READER_BUSY_MS);
    rankdb_distrust(db->handle);
    if (is_wal(db->handle))
        return error_set(error, "%s: in SQLite's WAL mode, which laggard does not use", db->path);
    if (sqlite3_exec(db->handle, "SELECT count(*) FROM sqlite_master", NULL, NULL, NULL) !=
            SQLITE_OK &&
        sqlite3_errcode(db->handle) == SQLITE_READONLY)
        roll_back_journal(db->path);
    return check_schema(db, error);
}

struct rankdb *rankdb_open(const char *path, struct error *error)
{
    struct rankdb *db = allocate(path, error);
    if (!db)
        return NULL;
    if (open_for_reading(db, error) != 0) {
        rankdb_close(db);
        return NULL;
    }
    rankdb_forget(db);
    return db;
}

void rankdb_close(struct rankdb *db)
{
    if (!db)
        return;
    for (int t = 0; t < RANKDB_TABLES; t++)
        sqlite3_finalize(db->put[t]);
    sqlite3_finalize(db->get_common);
    sqlite3_close(db->handle);
    free(db->path);
    free(db);
}

sqlite3 *rankdb_handle(struct rankdb *db)
{
    return db->handle;
}
