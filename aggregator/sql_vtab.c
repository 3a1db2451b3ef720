/*
 * sql_vtab.c - one SQLite module that shows a table or view of every rank database as one table.
 * Runs in a reader (`laggard sql`).
 *
 * A query's conditions on rank choose the files, those on step go into the query that each file
 * gets, together with the columns that the outer query uses: a view of 60 columns costs what one
 * reads of it. Nothing is copied, so there is no limit of size and nothing to go stale.
 */
#include "aggregator/sql_vtab.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rankdb.h"
#include "aggregator/rows.h"

#define MODULE       "laggard_union"
#define MAX_OPEN     64 /* databases open at a time; each may have a journal open, too */
#define MAX_COLUMNS  96
#define USED_BITS    63 /* sqlite3_index_info.colUsed: its last bit stands for all later columns */
#define MAX_ROWS_LOG 40 /* bits of a rowid below the file's number */

/* What of a rank database is shown. In comm_group the name rank is taken by the rank inside the
 * group, which is called group_rank here. */
static const char *const table_names[] = {"step",       "step_ms", "rank_summary", "stage_share",
                                          "rank",       "worker",  "collective",   "event",
                                          "comm_group", "library", "loss",         "meta"};
#define TABLES (sizeof(table_names) / sizeof(table_names[0]))

/* --- the files, opened when needed --------------------------------------------------------- */

struct opened {
    struct rankdb *db;
    unsigned users; /* cursors that have a statement on it */
    uint64_t last_use;
    char *bad; /* why it can't be read; owned */
};

struct sql_union {
    sqlite3 *handle;
    const struct run_files *files;
    struct opened *opened; /* by number of the file */
    unsigned n_open;
    uint64_t clock;
    bool opening; /* what is left out is said once it is clear that there is a rest */
};

static void say_left_out(const char *why)
{
    error_say("", "left out: %s", why);
}

static void mark_bad(struct sql_union *all, size_t file, const char *why)
{
    if (all->opened[file].bad)
        return;
    all->opened[file].bad = lg_strdup(why);
    if (!all->opening)
        say_left_out(why);
}

static void close_oldest(struct sql_union *all)
{
    struct opened *oldest = NULL;
    for (size_t i = 0; i < all->files->n; i++) {
        struct opened *o = &all->opened[i];
        if (o->db && o->users == 0 && (!oldest || o->last_use < oldest->last_use))
            oldest = o;
    }
    if (oldest) {
        rankdb_close(oldest->db);
        oldest->db = NULL;
        all->n_open--;
    }
}

/* The file's database, or NULL when it can't be read (said then). */
static struct rankdb *open_file(struct sql_union *all, size_t file)
{
    struct opened *o = &all->opened[file];
    struct error error;
    if (o->bad)
        return NULL;
    if (!o->db) {
        if (all->n_open >= MAX_OPEN)
            close_oldest(all);
        o->db = rankdb_open(all->files->file[file].path, &error);
        if (!o->db) {
            mark_bad(all, file, error.text);
            return NULL;
        }
        all->n_open++;
    }
    o->last_use = ++all->clock;
    return o->db;
}

/* --- tables -------------------------------------------------------------------------------- */

enum origin { FROM_FILE, FROM_NAME_RANK, FROM_NAME_ATTEMPT };

struct column {
    enum origin origin;
    char *source; /* name in the rank database, NULL unless FROM_FILE */
};

struct union_vtab {
    sqlite3_vtab base;
    struct sql_union *all;
    char *table;
    int n_columns;
    struct column column[MAX_COLUMNS];
    int rank, step, attempt; /* column numbers, -1: none */
};

static void free_vtab(struct union_vtab *v)
{
    for (int c = 0; c < v->n_columns; c++)
        sqlite3_free(v->column[c].source);
    sqlite3_free(v->table);
    sqlite3_free(v);
}

static void add_column(struct union_vtab *v, sqlite3_str *declaration, enum origin origin,
                       const char *source, const char *name, const char *type)
{
    if (v->n_columns == MAX_COLUMNS)
        return;
    v->column[v->n_columns].origin = origin;
    v->column[v->n_columns].source = source ? sqlite3_mprintf("%s", source) : NULL;
    sqlite3_str_appendf(declaration, "%s\"%w\" %s", v->n_columns ? ", " : "", name, type);
    if (strcmp(name, "rank") == 0)
        v->rank = v->n_columns;
    else if (strcmp(name, "step") == 0)
        v->step = v->n_columns;
    else if (strcmp(name, "attempt") == 0)
        v->attempt = v->n_columns;
    v->n_columns++;
}

/* Reads the columns of v->table in a rank database and declares the same ones. */
static void declare_columns(struct union_vtab *v, sqlite3_stmt *info, sqlite3_str *declaration)
{
    bool group = strcmp(v->table, "comm_group") == 0;
    add_column(v, declaration, FROM_NAME_RANK, NULL, "rank", "INTEGER");
    while (sqlite3_step(info) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(info, 0);
        const char *type = (const char *)sqlite3_column_text(info, 1);
        bool rank = strcmp(name, "rank") == 0;
        if (rank && group)
            add_column(v, declaration, FROM_FILE, name, "group_rank", type);
        else if (!rank)
            add_column(v, declaration, FROM_FILE, name, name, type);
    }
    if (v->attempt < 0)
        add_column(v, declaration, FROM_NAME_ATTEMPT, NULL, "attempt", "INTEGER HIDDEN");
}

/* A database whose schema stands for all of them: the first that can be read. */
static struct rankdb *any_file(struct sql_union *all)
{
    for (size_t i = all->files->n; i-- > 0;) {
        struct rankdb *db = open_file(all, i);
        if (db)
            return db;
    }
    return NULL;
}

static int declare(sqlite3 *handle, struct union_vtab *v, char **message)
{
    struct rankdb *db = any_file(v->all);
    sqlite3_stmt *info = NULL;
    if (!db || sqlite3_prepare_v2(rankdb_handle(db), "SELECT name, type FROM pragma_table_xinfo(?)",
                                  -1, &info, NULL) != SQLITE_OK) {
        *message = sqlite3_mprintf("its columns can't be read");
        return SQLITE_ERROR;
    }
    sqlite3_bind_text(info, 1, v->table, -1, SQLITE_STATIC);
    sqlite3_str *declaration = sqlite3_str_new(handle);
    sqlite3_str_appendall(declaration, "CREATE TABLE x(");
    declare_columns(v, info, declaration);
    sqlite3_str_appendall(declaration, ")");
    sqlite3_finalize(info);
    char *sql = sqlite3_str_finish(declaration);
    int rc = sql ? sqlite3_declare_vtab(handle, sql) : SQLITE_NOMEM;
    sqlite3_free(sql);
    return rc;
}

/* argv[3] is the table's name: CREATE VIRTUAL TABLE t USING laggard_union(t) */
static int union_connect(sqlite3 *handle, void *context, int argc, const char *const *argv,
                         sqlite3_vtab **vtab, char **message)
{
    struct union_vtab *v = sqlite3_malloc(sizeof(*v));
    if (!v)
        return SQLITE_NOMEM;
    memset(v, 0, sizeof(*v));
    v->all = context;
    v->rank = v->step = v->attempt = -1;
    v->table = sqlite3_mprintf("%s", argc > 3 ? argv[3] : "");
    int rc = v->table ? declare(handle, v, message) : SQLITE_NOMEM;
    if (rc != SQLITE_OK) {
        free_vtab(v);
        return rc;
    }
    *vtab = &v->base;
    return SQLITE_OK;
}

static int union_disconnect(sqlite3_vtab *vtab)
{
    free_vtab((struct union_vtab *)vtab);
    return SQLITE_OK;
}

/* --- conditions ---------------------------------------------------------------------------- */

/* A condition travels from xBestIndex to xFilter as two letters of idxStr: which column (r, s) and
 * which comparison. */
static const struct {
    unsigned char op;
    char letter;
    const char *sql;
} comparisons[] = {
    {SQLITE_INDEX_CONSTRAINT_EQ, 'e', "="},  {SQLITE_INDEX_CONSTRAINT_GT, 'g', ">"},
    {SQLITE_INDEX_CONSTRAINT_GE, 'G', ">="}, {SQLITE_INDEX_CONSTRAINT_LT, 'l', "<"},
    {SQLITE_INDEX_CONSTRAINT_LE, 'L', "<="},
};
#define COMPARISONS (int)(sizeof(comparisons) / sizeof(comparisons[0]))

static int find_comparison(unsigned char op)
{
    for (int i = 0; i < COMPARISONS; i++)
        if (comparisons[i].op == op)
            return i;
    return -1;
}

static int find_letter(char letter)
{
    for (int i = 0; i < COMPARISONS; i++)
        if (comparisons[i].letter == letter)
            return i;
    return -1;
}

/*
 * idxStr: pairs of letters for the arguments of xFilter, '|', 'a' when all attempts are wanted,
 * '|', the used columns in hex. SQLite checks the conditions once more (omit stays 0), so that odd
 * values (rank = '3') need no thought here.
 */
static int union_best_index(sqlite3_vtab *vtab, sqlite3_index_info *info)
{
    const struct union_vtab *v = (const struct union_vtab *)vtab;
    sqlite3_str *plan = sqlite3_str_new(NULL);
    double rows = 1000.0 * (double)v->all->files->n;
    bool attempts = false;
    int argument = 0;

    for (int i = 0; i < info->nConstraint; i++) {
        int column = info->aConstraint[i].iColumn;
        /* also when it can't be used here: a join may ask for older attempts */
        attempts |= column >= 0 && column == v->attempt;
        int comparison = find_comparison(info->aConstraint[i].op);
        bool rank = column >= 0 && column == v->rank, step = column >= 0 && column == v->step;
        if (!info->aConstraint[i].usable || comparison < 0 || (!rank && !step))
            continue;
        info->aConstraintUsage[i].argvIndex = ++argument;
        sqlite3_str_appendf(plan, "%c%c", rank ? 'r' : 's', comparisons[comparison].letter);
        rows /= comparison == 0 ? (rank ? (double)v->all->files->n : 1000.0) : 3.0;
    }
    sqlite3_str_appendf(plan, "|%s|%llx", attempts ? "a" : "", (unsigned long long)info->colUsed);
    info->idxStr = sqlite3_str_finish(plan);
    info->needToFreeIdxStr = 1;
    info->estimatedRows = rows < 1 ? 1 : (sqlite3_int64)rows;
    info->estimatedCost = 50 + rows;
    return info->idxStr ? SQLITE_OK : SQLITE_NOMEM;
}

/* --- cursors ------------------------------------------------------------------------------- */

struct rank_condition {
    int comparison;
    int64_t value;
};

struct union_cursor {
    sqlite3_vtab_cursor base;
    /* the query */
    bool attempts;
    int n_rank, n_step;
    struct rank_condition rank[16];
    sqlite3_value *step[16]; /* copies; for the parameters of `sql` in turn */
    char *sql;               /* what each file is asked */
    int place[MAX_COLUMNS];  /* column of stmt for a column of the table, -1: not used */
    /* where it stands */
    size_t file;      /* index, files->n: at the end */
    size_t stmt_file; /* what stmt was made for, with `stmt_sql`: reused when it fits */
    char *stmt_sql;
    sqlite3_stmt *stmt;
    sqlite3_int64 row;
};

static struct union_vtab *vtab_of(struct union_cursor *cursor)
{
    return (struct union_vtab *)cursor->base.pVtab;
}

static int union_open(sqlite3_vtab *vtab, sqlite3_vtab_cursor **result)
{
    (void)vtab;
    struct union_cursor *cursor = sqlite3_malloc(sizeof(*cursor));
    if (!cursor)
        return SQLITE_NOMEM;
    memset(cursor, 0, sizeof(*cursor));
    *result = &cursor->base;
    return SQLITE_OK;
}

static void drop_statement(struct union_cursor *cursor)
{
    if (cursor->stmt) {
        sqlite3_finalize(cursor->stmt);
        vtab_of(cursor)->all->opened[cursor->stmt_file].users--;
    }
    sqlite3_free(cursor->stmt_sql);
    cursor->stmt = NULL;
    cursor->stmt_sql = NULL;
}

static void drop_query(struct union_cursor *cursor)
{
    for (int i = 0; i < cursor->n_step; i++)
        sqlite3_value_free(cursor->step[i]);
    sqlite3_free(cursor->sql);
    cursor->sql = NULL;
    cursor->n_step = cursor->n_rank = 0;
}

static int union_close(sqlite3_vtab_cursor *base)
{
    struct union_cursor *cursor = (struct union_cursor *)base;
    drop_statement(cursor);
    drop_query(cursor);
    sqlite3_free(cursor);
    return SQLITE_OK;
}

/* SELECT of the used columns; `conditions` are the letters of idxStr. */
static char *file_query(struct union_cursor *cursor, uint64_t used, const char *conditions)
{
    const struct union_vtab *v = vtab_of(cursor);
    sqlite3_str *sql = sqlite3_str_new(NULL);
    int n = 0;
    sqlite3_str_appendall(sql, "SELECT ");
    for (int c = 0; c < v->n_columns; c++) {
        bool wanted = used >> (c < USED_BITS ? c : USED_BITS) & 1;
        cursor->place[c] = -1;
        if (!wanted || v->column[c].origin != FROM_FILE)
            continue;
        sqlite3_str_appendf(sql, "%s\"%w\"", n ? ", " : "", v->column[c].source);
        cursor->place[c] = n++;
    }
    sqlite3_str_appendf(sql, "%s FROM \"%w\"", n ? "" : "1", v->table);
    const char *word = " WHERE";
    for (const char *at = conditions; *at != '|'; at += 2) {
        if (*at != 's')
            continue;
        sqlite3_str_appendf(sql, "%s step %s ?", word, comparisons[find_letter(at[1])].sql);
        word = " AND";
    }
    return sqlite3_str_finish(sql);
}

/* Takes the values of the conditions; those that don't fit are left to SQLite's own check, only
 * that for step the query has a parameter each. Returns an SQLite code. */
static int take_conditions(struct union_cursor *cursor, const char *plan, int argc,
                           sqlite3_value **argv)
{
    for (int i = 0; i < argc; i++) {
        if (plan[2 * i] == 's') {
            if (cursor->n_step == 16)
                return SQLITE_ERROR;
            sqlite3_value *copy = sqlite3_value_dup(argv[i]);
            if (!copy)
                return SQLITE_NOMEM;
            cursor->step[cursor->n_step++] = copy;
        } else if (sqlite3_value_type(argv[i]) == SQLITE_INTEGER && cursor->n_rank < 16) {
            cursor->rank[cursor->n_rank++] =
                (struct rank_condition){find_letter(plan[2 * i + 1]), sqlite3_value_int64(argv[i])};
        }
    }
    return SQLITE_OK;
}

static bool rank_fits(const struct union_cursor *cursor, int64_t rank)
{
    for (int i = 0; i < cursor->n_rank; i++) {
        int64_t value = cursor->rank[i].value;
        bool fits[COMPARISONS] = {rank == value, rank > value, rank >= value, rank < value,
                                  rank <= value};
        if (!fits[cursor->rank[i].comparison])
            return false;
    }
    return true;
}

/* --- walking over files and rows ----------------------------------------------------------- */

/* A statement for cursor->file; the one of the file before is used again where it is the same
 * (inner loops of joins). SQLITE_EMPTY: the file can't be read. */
static int prepare_file(struct union_cursor *cursor)
{
    struct sql_union *all = vtab_of(cursor)->all;
    if (cursor->stmt && cursor->stmt_file == cursor->file &&
        strcmp(cursor->stmt_sql, cursor->sql) == 0) {
        sqlite3_reset(cursor->stmt);
    } else {
        drop_statement(cursor);
        struct rankdb *db = open_file(all, cursor->file);
        if (!db)
            return SQLITE_EMPTY;
        int rc = sqlite3_prepare_v2(rankdb_handle(db), cursor->sql, -1, &cursor->stmt, NULL);
        if (rc != SQLITE_OK)
            return rc;
        cursor->stmt_file = cursor->file;
        cursor->stmt_sql = sqlite3_mprintf("%s", cursor->sql);
        all->opened[cursor->file].users++;
        if (!cursor->stmt_sql)
            return SQLITE_NOMEM;
    }
    for (int i = 0; i < cursor->n_step; i++)
        sqlite3_bind_value(cursor->stmt, i + 1, cursor->step[i]);
    return SQLITE_OK;
}

/* What to do after an error in a file: a damaged one is left out, anything else ends the query. */
static int file_error(struct union_cursor *cursor, int rc)
{
    struct union_vtab *v = vtab_of(cursor);
    const char *path = v->all->files->file[cursor->file].path;
    struct rankdb *db = v->all->opened[cursor->file].db;
    char *why = sqlite3_mprintf("%s: %s", path,
                                db ? sqlite3_errmsg(rankdb_handle(db)) : sqlite3_errstr(rc));
    int primary = rc & 0xff;
    if (primary == SQLITE_INTERRUPT || primary == SQLITE_NOMEM || primary == SQLITE_BUSY) {
        sqlite3_free(v->base.zErrMsg);
        v->base.zErrMsg = why;
        return rc;
    }
    drop_statement(cursor);
    mark_bad(v->all, cursor->file, why ? why : path);
    sqlite3_free(why);
    return SQLITE_OK;
}

/* Goes to the next file from cursor->file on that fits and has a row. */
static int find_row(struct union_cursor *cursor)
{
    const struct run_files *files = vtab_of(cursor)->all->files;
    for (; cursor->file < files->n; cursor->file++) {
        const struct run_file *file = &files->file[cursor->file];
        if ((!file->newest && !cursor->attempts) || !rank_fits(cursor, file->rank))
            continue;
        int rc = prepare_file(cursor);
        if (rc == SQLITE_EMPTY)
            continue;
        if (rc == SQLITE_OK)
            rc = sqlite3_step(cursor->stmt);
        if (rc == SQLITE_ROW)
            return SQLITE_OK;
        if (rc == SQLITE_DONE) {
            sqlite3_reset(cursor->stmt);
            continue;
        }
        rc = file_error(cursor, rc);
        if (rc != SQLITE_OK)
            return rc;
    }
    return SQLITE_OK;
}

static int union_filter(sqlite3_vtab_cursor *base, int number, const char *plan, int argc,
                        sqlite3_value **argv)
{
    struct union_cursor *cursor = (struct union_cursor *)base;
    (void)number;
    drop_query(cursor);
    const char *bar = strchr(plan, '|');
    cursor->attempts = bar[1] == 'a';
    int rc = take_conditions(cursor, plan, argc, argv);
    if (rc != SQLITE_OK)
        return rc;
    cursor->sql = file_query(cursor, strtoull(strchr(bar + 1, '|') + 1, NULL, 16), plan);
    if (!cursor->sql)
        return SQLITE_NOMEM;
    cursor->file = 0;
    cursor->row = 0;
    return find_row(cursor);
}

static int union_next(sqlite3_vtab_cursor *base)
{
    struct union_cursor *cursor = (struct union_cursor *)base;
    int rc = sqlite3_step(cursor->stmt);
    cursor->row++;
    if (rc == SQLITE_ROW)
        return SQLITE_OK;
    if (rc == SQLITE_DONE)
        sqlite3_reset(cursor->stmt);
    else if ((rc = file_error(cursor, rc)) != SQLITE_OK)
        return rc;
    cursor->file++;
    cursor->row = 0;
    return find_row(cursor);
}

static int union_eof(sqlite3_vtab_cursor *base)
{
    struct union_cursor *cursor = (struct union_cursor *)base;
    return cursor->file >= vtab_of(cursor)->all->files->n;
}

static int union_column(sqlite3_vtab_cursor *base, sqlite3_context *context, int column)
{
    struct union_cursor *cursor = (struct union_cursor *)base;
    const struct union_vtab *v = vtab_of(cursor);
    const struct run_file *file = &v->all->files->file[cursor->file];
    switch (v->column[column].origin) {
    case FROM_NAME_RANK:
        sqlite3_result_int64(context, file->rank);
        break;
    case FROM_NAME_ATTEMPT:
        sqlite3_result_int64(context, file->attempt);
        break;
    case FROM_FILE:
        if (cursor->place[column] >= 0)
            sqlite3_result_value(context,
                                 sqlite3_column_value(cursor->stmt, cursor->place[column]));
        break;
    }
    return SQLITE_OK;
}

static int union_rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *rowid)
{
    struct union_cursor *cursor = (struct union_cursor *)base;
    *rowid = ((sqlite3_int64)cursor->file << MAX_ROWS_LOG) + cursor->row;
    return SQLITE_OK;
}

/* No xUpdate: the tables can't be written, whatever the authorizer says. */
static const sqlite3_module union_module = {
    .iVersion = 0,
    .xCreate = union_connect,
    .xConnect = union_connect,
    .xBestIndex = union_best_index,
    .xDisconnect = union_disconnect,
    .xDestroy = union_disconnect,
    .xOpen = union_open,
    .xClose = union_close,
    .xFilter = union_filter,
    .xNext = union_next,
    .xEof = union_eof,
    .xColumn = union_column,
    .xRowid = union_rowid,
};

/* --- the connection ------------------------------------------------------------------------ */

/* Reading only: no table, no file, no setting. */
static int authorize(void *context, int action, const char *first, const char *second,
                     const char *database, const char *trigger)
{
    static const char *const pragmas[] = {"table_info", "table_xinfo", "table_list",
                                          "function_list", "compile_options"};
    (void)context, (void)second, (void)database, (void)trigger;
    if (action == SQLITE_SELECT || action == SQLITE_READ || action == SQLITE_FUNCTION ||
        action == SQLITE_RECURSIVE)
        return SQLITE_OK;
    for (size_t i = 0; action == SQLITE_PRAGMA && i < sizeof(pragmas) / sizeof(pragmas[0]); i++)
        if (sqlite3_stricmp(first, pragmas[i]) == 0)
            return SQLITE_OK;
    return SQLITE_DENY;
}

static int make_tables(struct sql_union *all, struct error *error)
{
    if (sqlite3_create_module_v2(all->handle, MODULE, &union_module, all, NULL) != SQLITE_OK)
        return error_set(error, "%s", sqlite3_errmsg(all->handle));
    for (size_t t = 0; t < TABLES; t++) {
        char *sql = sqlite3_mprintf("CREATE VIRTUAL TABLE %s USING " MODULE "(%s)", table_names[t],
                                    table_names[t]);
        int rc = sql ? sqlite3_exec(all->handle, sql, NULL, NULL, NULL) : SQLITE_NOMEM;
        sqlite3_free(sql);
        if (rc != SQLITE_OK)
            return error_set(error, "%s: %s", all->files->path, sqlite3_errmsg(all->handle));
    }
    return 0;
}

/* Finds a first database that can be read, and says which ones can't. */
static int check_files(struct sql_union *all, struct error *error)
{
    const struct run_files *files = all->files;
    all->opening = true;
    struct rankdb *db = any_file(all);
    all->opening = false;
    if (!db && files->n == 1)
        return error_set(error, "%s", all->opened[0].bad);
    if (!db)
        return error_set(error, "%s: none of its %zu rank databases can be read; the first: %s",
                         files->path, files->n, all->opened[0].bad);
    for (size_t i = 0; i < files->n; i++)
        if (all->opened[i].bad)
            say_left_out(all->opened[i].bad);
    return 0;
}

struct sql_union *sql_union_open(const struct run_files *files, struct error *error)
{
    struct sql_union *all = calloc(1, sizeof(*all));
    if (all)
        all->opened = calloc(files->n ? files->n : 1, sizeof(*all->opened));
    if (!all || !all->opened) {
        free(all);
        error_set(error, "out of memory");
        return NULL;
    }
    all->files = files;
    if (sqlite3_open(":memory:", &all->handle) != SQLITE_OK) {
        error_set(error, "%s", sqlite3_errmsg(all->handle));
        sql_union_close(all);
        return NULL;
    }
    if (check_files(all, error) || make_tables(all, error)) {
        sql_union_close(all);
        return NULL;
    }
    /* SQLite makes these tables at their first use, which the authorizer would refuse */
    sqlite3_exec(all->handle, "SELECT 1 FROM pragma_table_xinfo('step'), pragma_table_info('step')",
                 NULL, NULL, NULL);
    sqlite3_set_authorizer(all->handle, authorize, NULL);
    return all;
}

void sql_union_close(struct sql_union *all)
{
    if (!all)
        return;
    sqlite3_close(all->handle);
    for (size_t i = 0; i < all->files->n; i++) {
        rankdb_close(all->opened[i].db);
        free(all->opened[i].bad);
    }
    free(all->opened);
    free(all);
}

sqlite3 *sql_union_handle(struct sql_union *all)
{
    return all->handle;
}
