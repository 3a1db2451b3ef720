/*
 * sql_vtab.h - the tables and views of all rank databases of a run as virtual tables of one
 * read-only SQLite connection (`laggard sql`). Runs in a reader.
 */
#ifndef LAGGARD_AGGREGATOR_SQL_VTAB_H
#define LAGGARD_AGGREGATOR_SQL_VTAB_H

#include <sqlite3.h>

#include "aggregator/error.h"
#include "aggregator/run_files.h"

struct sql_union;

/*
 * Opens a connection in which step, step_ms, rank, worker, ... hold the rows of all ranks, the
 * newest attempt of each unless the query says something about the (hidden) column `attempt`. Rank
 * databases are opened when a query first needs them and at most some dozens at a time. Nothing but
 * reading is authorized. `files` must live until sql_union_close().
 *
 * A database that can't be read is left out and named in one line on stderr, once. Returns NULL
 * with a line in `error` when none can be read.
 */
struct sql_union *sql_union_open(const struct run_files *files, struct error *error);
void sql_union_close(struct sql_union *all);

/* The connection; it belongs to the union. */
sqlite3 *sql_union_handle(struct sql_union *all);

#endif
