/*
 * sql_output.h - rows of an SQLite statement as a table, CSV or JSON (reader).
 */
#ifndef LAGGARD_AGGREGATOR_SQL_OUTPUT_H
#define LAGGARD_AGGREGATOR_SQL_OUTPUT_H

#include <sqlite3.h>
#include <stdio.h>

enum sql_format { SQL_TABLE, SQL_CSV, SQL_JSON };

/* "table", "csv" or "json"; anything else: -1. */
int sql_format_parse(const char *name);

/*
 * Steps stmt to its end and prints its rows. NULL stays apart from 0 and '' in each format: NULL in
 * a table, an empty field in CSV (the empty string is ""), null in JSON. Control characters are
 * escaped in a table, for command lines and paths land in terminals.
 * Returns SQLITE_DONE, or the error of sqlite3_step (rows before it are printed), or SQLITE_NOMEM.
 * The statement stays the caller's.
 */
int sql_output(sqlite3_stmt *stmt, enum sql_format format, FILE *out);

#endif
