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
    "Tables   step (ns, one row per rank and step), rank, worker, collective, event,\n"
    "         comm_group, library, loss, meta\n"
    "Views    step_ms (milliseconds), rank_summary (means), stage_share\n"
    "\n"
    "All have the column rank. Of a restarted rank the newest attempt is shown;\n"
    "WHERE attempt >= 0 shows all of them. NULL is not measured, 0 is measured.\n"
    "\n"
    "  laggard sql RUN \"SELECT rank, avg(dur_ms) FROM step_ms GROUP BY rank\"\n"
    "\n"
    "At the prompt: .tables, .schema [TABLE], .quit\n";

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
    char *text = sqlite3_mprintf("%s", sqlite3_errmsg(db));
    for (char *c = text; c && *c; c++)
        if (*c == '\n')
            *c = ' ';
    if (rc == SQLITE_AUTH)
        fprintf(stderr, "laggard sql: not allowed: a run can only be read (SELECT), not changed\n");
    else
        fprintf(stderr, "laggard sql: %s\n", text ? text : "out of memory");
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

/* Returns -1 to leave, else an exit status. */
static int dot_command(const struct session *session, char *line)
{
    char *name = strtok(line, " \t\r\n"), *table = strtok(NULL, " \t\r\n");
    char *sql = NULL;
    if (strcmp(name, ".quit") == 0 || strcmp(name, ".exit") == 0)
        return -1;
    if (strcmp(name, ".tables") == 0) {
        sql = sqlite3_mprintf("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1");
    } else if (strcmp(name, ".schema") == 0) {
        sql = table ? sqlite3_mprintf("%s AND m.name = %Q", columns_query, table)
                    : sqlite3_mprintf("%s", columns_query);
    } else {
        fputs("SQL up to its ';', or .tables, .schema [TABLE], .quit\n",
              session->terminal ? stdout : stderr);
        return strcmp(name, ".help") == 0 ? 0 : 2;
    }
    int status = sql ? run_statements(session, sql) : 2;
    sqlite3_free(sql);
    return status;
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
    fprintf(stderr, "laggard sql: %s%s (see laggard sql --help)\n", what, which);
    return 2;
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
        status = query ? run_statements(&session, query) : read_statements(&session);
        if (status == 0 && (fflush(stdout) || ferror(stdout)))
            status = usage("standard output can't be written", "");
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
    if (optind + 2 < argc)
        return usage("the QUERY must be one argument, in quotes", "");
    return run_session(argv[optind], argv[optind + 1], (enum sql_format)format);
}
