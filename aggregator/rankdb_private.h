/*
 * rankdb_private.h - what the parts of rankdb share: rankdb.c (files and schema), rankdb_write.c
 * and rankdb_read.c.
 */
#ifndef LAGGARD_AGGREGATOR_RANKDB_PRIVATE_H
#define LAGGARD_AGGREGATOR_RANKDB_PRIVATE_H

#include "aggregator/rankdb.h"

/* A writer gives up soon (the recorder's rows are safe in the spool and it comes back), a reader
 * waits for the end of a commit. */
#define RANKDB_WRITER_BUSY_MS 250
#define RANKDB_READER_BUSY_MS 5000

#define RANKDB_START_EVERY 64 /* a start is stored at least this often: see schema/rank.sql */
#define RANKDB_START_NONE  (-1)

/* Where a column is stored. */
enum rankdb_table { RANKDB_HOST, RANKDB_COMMON, RANKDB_GPU, RANKDB_DERIVED };
#define RANKDB_TABLES         3
#define RANKDB_COMMON_COLUMNS 8
enum rankdb_table rankdb_table_of(int column);

/* Columns X_after that are stored as X_before = own - X_after, own = stage - sync: mostly 0, which
 * takes no byte. */
#define RANKDB_PACKED 4
struct rankdb_packed {
    int column, stage, sync;
    const char *stored_name;
};
extern const struct rankdb_packed rankdb_packed[RANKDB_PACKED];

/* Rows of step_common that were met last: id -1 is an empty entry. */
#define RANKDB_CACHE 64
struct rankdb_common {
    int64_t id;
    int64_t value[RANKDB_COMMON_COLUMNS]; /* in the order of the columns */
};

struct rankdb {
    sqlite3 *handle;
    char *path;
    sqlite3_stmt *put[RANKDB_TABLES], *get_common;
    struct rankdb_common cache[RANKDB_CACHE];
    unsigned cache_next;         /* writer: the entry to overwrite next */
    int64_t next_common;         /* writer: the next free id */
    int64_t max_step;            /* largest in the file, -1: none */
    int64_t last_step, last_end; /* the row put last, -2: none; last_end LG_NULL: not known */
};

/* Empties the cache. */
void rankdb_forget(struct rankdb *db);

const struct rankdb_packed *rankdb_find_packed(int column);
const char *rankdb_stored_name(int column);
int64_t rankdb_other_ns(const int64_t value[LG_COLUMNS]);
/* Of a packed column's own time the part before the last sync, given the one after it, or the other
 * way round. Stages that were not measured count as 0. */
int64_t rankdb_other_part(const int64_t value[LG_COLUMNS], const struct rankdb_packed *packed,
                          int64_t part);
/* start + dur; LG_NULL when one is not known. */
static inline int64_t rankdb_end(int64_t start, int64_t dur)
{
    return start == LG_NULL || dur == LG_NULL ? LG_NULL
                                              : (int64_t)((uint64_t)start + (uint64_t)dur);
}

/* Sets the error line from SQLite's message; returns -1. */
int rankdb_fail(struct rankdb *db, struct error *error);
/* The first value of a query; `otherwise` when there is no row or it is NULL. */
int64_t rankdb_number(struct rankdb *db, const char *sql, int64_t otherwise);

#endif
