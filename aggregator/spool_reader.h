/*
 * spool_reader.h - reads the spool of a rank process (schema/spool.h) from outside. Runs in the
 * recorder and in commands that collect leftovers.
 *
 * A spool comes from somebody else's process: nothing in it is trusted. What can't be right is
 * skipped and counted. The file stays open so that its size can be looked at before each pass: a
 * mapping of a file that was cut short would end us with SIGBUS.
 */
#ifndef LAGGARD_AGGREGATOR_SPOOL_READER_H
#define LAGGARD_AGGREGATOR_SPOOL_READER_H

#include <stdint.h>

#include "aggregator/error.h"
#include "aggregator/process.h"
#include "aggregator/rankdb.h"
#include "schema/spool.h"

/* Rows whose device times may still arrive are taken when they are this far behind. */
#define SPOOL_PATIENCE 64

struct spool {
    int fd;
    int writable;
    char *path;
    struct lg_spool *map;
    struct process_id process;
    uint32_t seq;
    int64_t mono_ns, real_ns;
};

enum spool_open_result {
    SPOOL_OPENED = 0,
    SPOOL_BAD = -1,      /* not a spool that this program can read: a line in `error` */
    SPOOL_NOT_READY = 1, /* empty so far: its writer is just making it, or died doing so */
    SPOOL_TAKEN = 2      /* another reader has it */
};

/*
 * Opens and maps a spool. `writable`: the reader will acknowledge rows; it is then the only reader
 * that does (a lock on the file). Others may read along without.
 */
enum spool_open_result spool_open(struct spool *spool, const char *path, int writable,
                                  struct error *error);
void spool_close(struct spool *spool);

/* 0 when the file is still as it was mapped. Call before each pass over it. */
int spool_check(const struct spool *spool, struct error *error);

/* What the header says now about the rank and about how it goes; all but the attempt and killed. */
void spool_rank_info(const struct spool *spool, struct rank_info *info);

/* The name of an enum lg_rank_source. */
const char *spool_rank_source(uint32_t source);

/* What the header says about rows that are missing; reason LG_LOSS_none: nothing. */
struct spool_stop {
    uint32_t reason;
    int64_t step, rows_lost;
};
void spool_stop(const struct spool *spool, struct spool_stop *stop);
/* 0 when the number is no enum lg_loss. */
int spool_knows_reason(uint32_t reason);

/* 1: the process went on in the file with the next seq. */
int spool_has_next(const struct spool *spool);

/* The i-th worker (0 .. LG_WORKERS - 1) group (0 .. LG_GROUPS - 1) or library (0 ..
 * LG_LIBRARIES - 1); 0 = entry not used. */
int spool_worker(const struct spool *spool, uint32_t i, struct rank_worker *worker);
int spool_group(const struct spool *spool, uint32_t i, struct rank_group *group);
int spool_library(const struct spool *spool, uint32_t i, struct rank_library *library);

/* Called for each row; `value` may be changed. Non-zero ends the pass: the row was not taken. */
typedef int spool_row_fn(void *context, int64_t step, int64_t value[LG_COLUMNS]);

struct spool_pass {
    uint64_t tail;    /* for spool_release, after the rows were made durable */
    uint64_t rows;    /* given to the function */
    uint64_t damaged; /* skipped */
    int garbage;      /* the positions can't be right: nothing could be read */
    int failed;       /* the function ended it */
};

/*
 * Passes the rows that are ready, in the order of the ring, from `tail` on (the file's own tail for
 * a writable spool). gone = the writer is no more, so rows can't get better: all are taken then.
 */
void spool_ready_rows(const struct spool *spool, uint64_t tail, int gone, spool_row_fn *fn,
                      void *context, struct spool_pass *pass);

/* Rows that were written to the ring from number `tail` on, ready or not. */
uint64_t spool_waiting(const struct spool *spool, uint64_t tail);

/* 1 when some rows are held back. */
int spool_holds_rows(const struct spool *spool);

/* The file's own tail: rows before it were made durable by some reader. */
uint64_t spool_tail(const struct spool *spool);

/* Lets the writer use the slots before `tail` again. */
void spool_release(struct spool *spool, uint64_t tail);

/* After the writer is gone: the rows that were held back. */
void spool_held_rows(const struct spool *spool, spool_row_fn *fn, void *context,
                     struct spool_pass *pass);

/* After the writer is gone: the open row as of its commit, flagged as provisional; 0 = there is
 * none. */
int spool_provisional_row(const struct spool *spool, int64_t *step, int64_t value[LG_COLUMNS]);

#endif
