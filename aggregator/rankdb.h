/*
 * rankdb.h - a rank database: one SQLite file with the rows of one rank in one attempt
 * (schema/rank.sql). The recorder and the importer write it, every other command reads it.
 *
 * Functions return 0, or -1 with a line in `error` (which may be NULL). Times are nanoseconds.
 * A step's values are an array indexed by LG_COL_...; LG_NULL stands for "not measured".
 */
#ifndef LAGGARD_AGGREGATOR_RANKDB_H
#define LAGGARD_AGGREGATOR_RANKDB_H

#include <stddef.h>
#include <stdint.h>

#include <sqlite3.h>

#include "aggregator/error.h"
#include "schema/spool.h"

#define LG_SCHEMA_VERSION     1
#define LG_OLDEST_SCHEMA      1          /* that can be read */
#define RANKDB_APPLICATION_ID 0x4c414747 /* "LAGG" in the file's header */

struct rankdb;

/* The table `rank`: one row. Numbers that are not known are LG_NULL, texts "". */
struct rank_info {
    int64_t rank, world_size, local_rank, attempt;
    int64_t pid, parent_pid, proc_start;
    int64_t seen; /* enum lg_seen */
    int64_t mono_ns, real_ns;
    int64_t steps_complete, ended, exit_status, killed, entries_dropped;
    char rank_source[16];
    char host[64], boot_id[40], run_id[40];
    char torch_path[160], nccl_version[32];
};

struct rank_worker {
    int64_t pid, begin_ns, reads, read_bytes, read_ns, ended;
};

struct rank_group {
    int64_t id, rank, size, seq, bytes;
    char kind[8];
};

struct rank_library {
    int64_t id;
    char path[464], version[40]; /* "": not known */
    char kind[16];               /* program, nccl, static nccl */
    int64_t communicators;       /* LG_NULL: none can be seen */
};

struct rank_loss {
    char reason[24];
    int64_t step, rows; /* step -1: not known; rows LG_NULL: not known */
    char detail[200];
};

/* "DIR/rank-00003.sqlite", for attempt > 0 "DIR/rank-00003.a1.sqlite". Returns -1 when it does not
 * fit. */
int rankdb_path(char *path, size_t size, const char *dir, int64_t rank, int64_t attempt);

/* Tells whether `name` (no directory) is a rank database's name; fills rank and attempt. */
int rankdb_parse_name(const char *name, int64_t *rank, int64_t *attempt);

/* Opens for writing; makes the file (mode 0600) and its tables when they are not there. One writer
 * per file: a second one waits for `busy` and then fails. */
struct rankdb *rankdb_create(const char *path, struct error *error);

/* Opens read-only. Fails on files that are not rank databases or have a newer schema. */
struct rankdb *rankdb_open(const char *path, struct error *error);

/* For a file that may be anybody's: what its views say is run only as far as ours need it. */
void rankdb_distrust(sqlite3 *handle);

void rankdb_close(struct rankdb *db);

/* The SQLite handle, for queries over tables and views. */
sqlite3 *rankdb_handle(struct rankdb *db);

/* Writing. Outside begin/commit each call is a transaction of its own. */
int rankdb_begin(struct rankdb *db, struct error *error);
int rankdb_commit(struct rankdb *db, struct error *error);
void rankdb_rollback(struct rankdb *db);

/* Inserts or replaces one step. other_ns is not stored: it is the rest of dur_ns. */
int rankdb_put_step(struct rankdb *db, int64_t step, const int64_t value[LG_COLUMNS],
                    struct error *error);
int rankdb_put_rank(struct rankdb *db, const struct rank_info *info, struct error *error);
int rankdb_put_worker(struct rankdb *db, const struct rank_worker *worker, struct error *error);
int rankdb_put_group(struct rankdb *db, const struct rank_group *group, struct error *error);
int rankdb_put_library(struct rankdb *db, const struct rank_library *library, struct error *error);
/* The same reason and step again: the later line wins. */
int rankdb_put_loss(struct rankdb *db, const struct rank_loss *loss, struct error *error);
int rankdb_put_meta(struct rankdb *db, const char *key, const char *value, struct error *error);

/* Reading. rankdb_get_rank fails when there is no row (yet). */
int rankdb_get_rank(struct rankdb *db, struct rank_info *info, struct error *error);
/* Copies meta[key] into value; 1 = there, 0 = not there (value = ""). */
int rankdb_get_meta(struct rankdb *db, const char *key, char *value, size_t size);
/* First and last step and their number; 0 rows: first = 0, last = -1. */
int rankdb_extent(struct rankdb *db, int64_t *first, int64_t *last, int64_t *rows,
                  struct error *error);
/* 1 when the step has a row. */
int rankdb_has_step(struct rankdb *db, int64_t step);

/* Called with each step in ascending order, other_ns computed. `value` is valid during the call.
 * Return non-zero to stop early. */
typedef int rankdb_step_fn(void *context, int64_t step, const int64_t value[LG_COLUMNS]);

/* Which columns a reader wants: a set of RANKDB_COLUMN(dur_ns) | ... The fewer, the faster. */
#define RANKDB_COLUMN(name) (UINT64_C(1) << LG_COL_##name)
#define RANKDB_ALL_COLUMNS  (~UINT64_C(0))

/* Streams the steps first..last; memory does not depend on their number. Columns outside `columns`
 * are LG_NULL or not, as it happens. */
int rankdb_each_step(struct rankdb *db, int64_t first, int64_t last, uint64_t columns,
                     rankdb_step_fn *fn, void *context, struct error *error);

typedef int rankdb_loss_fn(void *context, const struct rank_loss *loss);
int rankdb_each_loss(struct rankdb *db, rankdb_loss_fn *fn, void *context, struct error *error);

typedef void rankdb_library_fn(void *context, const struct rank_library *library);
/* None where an earlier version wrote the database. */
void rankdb_each_library(struct rankdb *db, rankdb_library_fn *fn, void *context);

/* Names of the columns, by LG_COL_..., and of losses, by enum lg_loss ("?" for others). */
extern const char *const rankdb_column_name[LG_COLUMNS];
const char *rankdb_loss_name(uint32_t reason);

#endif
