/*
 * step.h - the step core: where the training thread's time goes until a row is closed. Context:
 * hooks on the training thread only; no locks, no calls out but to the sink below.
 *
 * The thread is at each moment in exactly one part, so the parts of a row sum to its duration to
 * the nanosecond and each row begins where the last one ended. Two sets of rules decide on parts
 * and boundaries: machine.c (PyTorch's events) and infer.c (the C interface alone). Both use this
 * core.
 *
 * A wait (blocked in a collective) does not change the part, it marks the time as the part's
 * `sync`. `after` is own time since the last blocking collective was left in this row.
 */
#ifndef LAGGARD_PRELOAD_STEP_H
#define LAGGARD_PRELOAD_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/counters.h"
#include "schema/spool.h"

struct lg_part {
    uint64_t time, sync, after; /* ns; sync <= time, after <= time - sync */
};

/* The six stages, then the parts whose stage is only known later. */
enum {
    LG_PART_HOLD = LG_STAGE_COUNT, /* forward, if a backward follows; else other */
    LG_PART_TAIL, /* after the commit: other of this row or input of the next one */
    LG_PART_EVAL, /* evaluation: other of the row that it falls into */
    LG_PART_IO,   /* reads and waits in hold or tail of a loop without a loader: input */
    LG_PARTS
};

struct lg_row {
    uint64_t begin, end; /* ns */
    struct lg_part part[LG_PARTS];
    struct lg_counts base, last;    /* counters at its begin and end */
    uint64_t first_mark, last_mark; /* on the device's clock: numbers of its marks (device.h) */
    uint32_t n_input, n_backward, n_sync, n_optimizer;
    uint32_t flags, sources;
    uint32_t
        unknown;  /* 1 << enum lg_stage: stages that this source could not observe: NULL, not 0 */
    bool synced;  /* a blocking collective was left in this row */
    bool unsplit; /* forward and backward could not be told apart: both are in `forward` */
};

struct lg_step {
    struct lg_row row;       /* the open row */
    struct lg_row committed; /* the open row as it was at its commit: without what came after */
    bool started;            /* a row is open */
    bool ended;              /* it has been committed */
    uint64_t now;            /* ns, time of the last event */
    uint32_t waiting;        /* depth of waits */
    uint32_t turns;          /* rows opened and committed: a device mark is due at each */
};

/* Opens the first row at `now`. */
void lg_step_start(struct lg_step *s, uint64_t now);

/* Charges the time since the last event to a part. */
void lg_step_charge(struct lg_step *s, uint64_t now, unsigned part);

/* Moves all of a part to another one of the open row. */
void lg_step_move(struct lg_step *s, unsigned from, unsigned to);

/* A blocking collective was left: own time from here on is "after". */
void lg_step_synced(struct lg_step *s);

/* The step is complete, were it closed now. `usage`: read the thread's resource usage now, since it
 * is expected to be closed at this moment (a system call). */
void lg_step_commit(struct lg_step *s, bool usage);

/* Closes the row at the last event; what is not charged to a stage yet becomes `other`. */
void lg_step_close(struct lg_step *s, struct lg_row *out);

/* Closes the row at its commit; what came after it begins the next row: still as tail, evaluation
 * and reads, of which the rules make stages. */
void lg_step_close_at_commit(struct lg_step *s, struct lg_row *out);

/* Adds an earlier row, which ends where `later` begins, to it. */
void lg_row_prepend(struct lg_row *later, const struct lg_row *earlier);

/* A row's columns, LG_NULL where nothing was measured. */
void lg_row_columns(const struct lg_row *row, int64_t value[LG_COLUMNS]);

#endif
