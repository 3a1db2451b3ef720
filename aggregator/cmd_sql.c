/*
 * cmd_sql.c - `laggard sql RUN [QUERY]`: SQL over the rows of all ranks, read-only. Without QUERY
 * it reads statements from standard input, with a prompt when that is a terminal.
 */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/cmd.h"
#include "aggregator/sql_output.h"
#include "aggregator/sql_vtab.h"

static const char help_text[] =
    "usage: laggard sql RUN [QUERY] [--format table|csv|json]\n"
    "\n"
    "Runs QUERY (SQLite's dialect) over the rows of all ranks; nothing can be\n"
    "written. Without QUERY statements are read from standard input, each up to\n"
    "its ';'.\n"
    "\n"
    "  --format table|csv|json  how the rows are printed (table)\n"
    "  -h, --help               this text\n"
    "\n"
    "Tables   step (ns, one row per rank and step), rank, worker, collective, event,\n"
    "         comm_group, library, loss, meta\n"
    "Views    step_ms (milliseconds), rank_summary (means), stage_share\n"
    "\n"
    "All have the column rank. Of a restarted rank the newest attempt is shown;\n"
    "WHERE attempt >= 0 shows all of them. NULL is not measured, 0 is measured.\n"
    "\n"
    "  laggard sql RUN \"SELECT rank, avg(dur_ms) FROM step_ms GROUP BY rank\"\n"
    "\n"
    "QUERY may also be .tables or .schema [TABLE] (what there is), .help; at the\n"
    "prompt .quit too. Columns are explained in columns.def and rank.sql\n"
    "(share/laggard where it is installed, else schema/);\n"
    "comm_group.group_rank is the rank's number within that group.\n";

static const char columns_query[] = "SELECT m.name AS \"table\", c.name AS \"column\", c.type "
                                    "FROM sqlite_schema AS m, pragma_table_xinfo(m.name) AS c "
                                    "WHERE m.type = 'table'";

struct session {
    sqlite3 *db;
    enum sql_format format;
    bool terminal;
};

/* The message of SQLite, in one line. */
static int sql_error(sqlite3 *db, int rc)
{
    if (rc == SQLITE_AUTH)
        return error_say("sql", "not allowed: a run can only be read (SELECT), not changed");
    char *text = sqlite3_mprintf("%s", sqlite3_errmsg(db));
    for (char *c = text; c && *c; c++)
        if (*c == '\n')
            *c = ' ';
    error_say("sql", "%s", text ? text : "out of memory");
    sqlite3_free(text);
    return 2;
}

/* Runs the statements of `sql` in turn; stops at the first that fails. */
static int run_statements(const struct session *session, const char *sql)
{
    while (*sql) {
        sqlite3_stmt *stmt = NULL;
        int rc = sqlite3_prepare_v2(session->db, sql, -1, &stmt, &sql);
        if (rc == SQLITE_OK && !stmt)
            continue; /* a comment, or nothing before a ';' */
        if (rc == SQLITE_OK && !sqlite3_stmt_readonly(stmt))
            rc = SQLITE_AUTH;
        if (rc == SQLITE_OK)
            rc = sql_output(stmt, session->format, stdout);
        int status = rc == SQLITE_DONE ? 0 : sql_error(session->db, rc);
        sqlite3_finalize(stmt);
        fflush(stdout);
        if (status)
            return status;
    }
    return 0;
}

/* --- the prompt ---------------------------------------------------------------------------- */

/* The views of ours are tables for SQLite: their columns are all there is to tell. */
static int show_schema(const struct session *session, const char *table)
{
    char *sql = table ? sqlite3_mprintf("%s AND m.name = %Q", columns_query, table)
                      : sqlite3_mprintf("%s", columns_query);
    char *check = sqlite3_mprintf("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = %Q",
                                  table ? table : "step");
    sqlite3_stmt *stmt = NULL;
    int status = 2;
    if (sql && check && sqlite3_prepare_v2(session->db, check, -1, &stmt, NULL) == SQLITE_OK &&
        sqlite3_step(stmt) == SQLITE_ROW)
        status = run_statements(session, sql);
    else
        error_say("sql", "no such table: %s (see .tables)", table ? table : "step");
    sqlite3_finalize(stmt);
    sqlite3_free(sql);
    sqlite3_free(check);
    return status;
}

/* Returns -1 to leave, else an exit status. */
static int dot_command(const struct session *session, char *line)
{
    char *rest = NULL;
    char *name = strtok_r(line, " \t\r\n;", &rest), *table = strtok_r(NULL, " \t\r\n;", &rest);
    if (strcmp(name, ".quit") == 0 || strcmp(name, ".exit") == 0)
        return -1;
    if (strcmp(name, ".tables") == 0)
        return run_statements(session,
                              "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1");
    if (strcmp(name, ".schema") == 0)
        return show_schema(session, table);
    if (strcmp(name, ".help") == 0) {
        puts("SQL up to its ';', or .tables, .schema [TABLE], .quit");
        return 0;
    }
    return error_say("sql", "no such command: %s (there are .tables, .schema [TABLE], .quit)",
                     name);
}

/* QUERY of the command line. */
static int run_query(const struct session *session, const char *query)
{
    const char *text = query + strspn(query, " \t\n");
    if (*text != '.')
        return run_statements(session, query);
    char *line = sqlite3_mprintf("%s", text);
    int status = line ? dot_command(session, line) : 2;
    sqlite3_free(line);
    return status < 0 ? 0 : status;
}

static void prompt(const struct session *session, bool more)
{
    if (session->terminal) {
        fputs(more ? "    ...> " : "laggard> ", stdout);
        fflush(stdout);
    }
}

static bool is_blank(const char *text)
{
    return text[strspn(text, " \t\r\n;")] == '\0';
}

static char *joined(char *text, const char *line)
{
    char *longer = sqlite3_mprintf("%s%s", text ? text : "", line);
    sqlite3_free(text);
    return longer;
}

/* One line; `text` gathers a statement. Returns -1 to leave, else an exit status. */
static int take_line(const struct session *session, char **text, char *line)
{
    if (!*text && line[strspn(line, " \t")] == '.')
        return dot_command(session, line);
    *text = joined(*text, line);
    if (!*text)
        return 2;
    int status = 0;
    if (is_blank(*text) || sqlite3_complete(*text)) {
        status = run_statements(session, *text);
        sqlite3_free(*text);
        *text = NULL;
    }
    return status;
}

/* A terminal goes on after an error, a script ends with it. */
static int read_statements(const struct session *session)
{
    char *line = NULL, *text = NULL;
    size_t room = 0;
    int status = 0;
    prompt(session, false);
    while (getline(&line, &room, stdin) >= 0) {
        status = take_line(session, &text, line);
        if (status < 0 || (status && !session->terminal))
            break;
        prompt(session, text != NULL);
    }
    if (text && status == 0 && !is_blank(text))
        status = run_statements(session, text); /* the last needs no ';' */
    sqlite3_free(text);
    free(line);
    return session->terminal || status < 0 ? 0 : status;
}

/* --- arguments ----------------------------------------------------------------------------- */

static int usage(const char *what, const char *which)
{
    return error_say("sql", "%s%s (see laggard sql --help)", what, which);
}

static int run_session(const char *run, const char *query, enum sql_format format)
{
    struct run_files files;
    struct error error;
    struct sql_union *all = NULL;
    int status;
    if (run_files_find(run, &files, &error) == 0)
        all = sql_union_open(&files, &error);
    if (all) {
        struct session session = {sql_union_handle(all), format, isatty(STDIN_FILENO)};
        status = query ? run_query(&session, query) : read_statements(&session);
    } else {
        status = error_exit(&error);
    }
    sql_union_close(all);
    run_files_free(&files);
    return status;
}

int cmd_sql(int argc, char **argv)
{
    static const struct option options[] = {
        {"format", required_argument, NULL, 'f'}, {"help", no_argument, NULL, 'h'}, {0}};
    int format = SQL_TABLE, option;
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        if (option == 'h') {
            fputs(help_text, stdout);
            return 0;
        }
        if (option != 'f')
            return usage(option == ':' ? "no value for " : "unknown option ", argv[optind - 1]);
        format = sql_format_parse(optarg);
        if (format < 0)
            return usage("--format is table, csv or json, not ", optarg);
    }
    if (optind == argc)
        return usage("no RUN given", "");
    char schema[256]; /* .schema TABLE without quotes */
    const char *query = argv[optind + 1];
    if (query && *query == '.' && optind + 3 == argc) {
        snprintf(schema, sizeof(schema), "%s %s", query, argv[optind + 2]);
        query = schema;
    } else if (optind + 2 < argc) {
        return usage("the QUERY must be one argument, in quotes", "");
    }
    return run_session(argv[optind], query, (enum sql_format)format);
}
