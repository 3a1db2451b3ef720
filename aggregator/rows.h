/*
 * rows.h - a run in memory: which ranks it has, what is known about each, and their step rows as
 * column arrays. The loader fills it, the diagnosis and the report writers read it. Runs in the
 * reading commands (report, watch, compare), never in a training process.
 *
 * Memory: a struct lg_run owns everything it points to. Make it with lg_run_new(), add ranks and
 * rows with the functions below (they grow the arrays), strings with lg_strdup(), and give all of
 * it back with lg_run_free(). Pointers into ranks[] move when a rank is added, pointers into step[]
 * and value[] when a row is appended. When memory runs out the program says so and exits with 1: no
 * function here returns NULL for that.
 */
#ifndef LAGGARD_AGGREGATOR_ROWS_H
#define LAGGARD_AGGREGATOR_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "schema/spool.h"

/* How a rank's process is known to have ended. */
enum lg_rank_end {
    LG_RANK_END_UNKNOWN = 0, /* imported rows: nobody knows */
    LG_RANK_END_RUNNING,     /* still there: the report is "so far" */
    LG_RANK_END_EXIT,        /* exit, _exit or quick_exit: exit_status says how */
    LG_RANK_END_KILLED       /* gone without a word: killed or crashed */
};

/* A copy of NCCL that the rank had. Texts "": not known. */
struct lg_nccl_copy {
    char path[464], version[40];
    int64_t communicators; /* made in it as far as seen, LG_NULL: it is linked into the file */
};

/* One rank: its newest attempt, rows sorted by step, no step twice. */
struct lg_rank {
    int32_t rank;
    int32_t world; /* world size that this process believed in, -1: not known */
    char host[64]; /* "": not known */
    int64_t pid;   /* 0: not known */
    enum lg_rank_end end;
    int32_t exit_status;
    uint32_t seen;     /* bits of enum lg_seen; 0 for imported rows */
    uint32_t attempts; /* processes that were this rank in turn; this is the newest */
    bool
        has_device; /* it used CUDA: gpu_* columns could be there, a step without a copy is h2d 0 */
    enum lg_loss stop_reason; /* why recording stopped early, LG_LOSS_none: it did not */
    int64_t stop_step;
    int64_t rows_lost;
    size_t n_nccl;
    struct lg_nccl_copy *nccl;

    size_t n;        /* rows */
    size_t capacity; /* rows that the arrays have room for */
    int64_t *step;
    int64_t *value[LG_COLUMNS]; /* [column][row], LG_NULL: not measured; NULL pointer: not loaded */
};

/* What was observed of one source of knowledge: JSON "coverage". */
enum lg_coverage_state { LG_OBSERVED, LG_PARTIAL, LG_NOT_OBSERVED };

struct lg_coverage {
    const char *name; /* static text: "collectives", "input", "device", "torch", ... */
    enum lg_coverage_state state;
    char *why; /* one clause; "" when there is nothing to say */
};

/* Data that is missing though it once was there or should be: JSON "losses". */
struct lg_loss_entry {
    int32_t rank; /* -1: the whole run */
    enum lg_loss reason;
    int64_t rows; /* how many, LG_NULL: not known */
    int64_t step; /* where it began, LG_NULL: not known */
    char *text;   /* for people: "ends at step 412 (killed)" */
};

struct lg_run {
    char *dir;      /* the run directory or file as given, NULL: none */
    char *command;  /* what was run, in one line, NULL: not known */
    char *strategy; /* "ddp", "fsdp" or what an import says, NULL: not known (taken as ddp) */
    bool running;   /* some rank's process still lives */
    char *outcome;  /* how the command ended, in words; NULL: nothing is known of it */
    bool failed;    /* ... not well, or nobody knows how */
    int exit_status, signal; /* of the command: -1 not known, as a shell shows it; 0: no signal */
    bool imported;           /* rows from `laggard import` */
    int32_t world;           /* declared world size, -1: not known */
    /* Declared ranks, sorted; none: 0..world-1, or what was seen if world is not known either. */
    size_t n_expected;
    int32_t *expected;
    /* Ranks that left data, sorted by rank. A rank may have no rows. */
    size_t n_ranks;
    struct lg_rank *ranks;
    /* What the loader itself knows; the diagnosis adds what the rows tell. */
    size_t n_coverage;
    struct lg_coverage *coverage;
    size_t n_losses;
    struct lg_loss_entry *losses;
    size_t n_notes;
    char **notes; /* what else a reader of the report should know, a clause each */
};

struct lg_run *lg_run_new(void); /* world and exit status -1, everything else empty */
void lg_run_free(struct lg_run *run);

/* Appends a rank (attempts 1, world -1, no rows); the pointer is good until the next call. */
struct lg_rank *lg_run_add_rank(struct lg_run *run, int32_t rank);
/* Once all ranks are in: sorts them by number. */
void lg_run_sort(struct lg_run *run);
/* Copies `why` / `text`; `name` must be static. */
void lg_run_add_coverage(struct lg_run *run, const char *name, enum lg_coverage_state state,
                         const char *why);
void lg_run_add_loss(struct lg_run *run, int32_t rank, enum lg_loss reason, int64_t rows,
                     int64_t step, const char *text);
/* Takes the text over. */
void lg_run_add_note(struct lg_run *run, char *text);
/* Forgets the rank at this index. */
void lg_run_drop_rank(struct lg_run *run, size_t index);
/* The rank's data, or NULL. */
const struct lg_rank *lg_run_find(const struct lg_run *run, int32_t rank);

/* Makes the column's array, all LG_NULL (nothing to do if it is there). */
void lg_rank_use_column(struct lg_rank *rank, enum lg_column column);
/* Room for that many rows altogether. */
void lg_rank_reserve(struct lg_rank *rank, size_t rows);
/* Appends a row, every loaded column LG_NULL, and returns its index. */
size_t lg_rank_append(struct lg_rank *rank, int64_t step);

/* LG_NULL where the column is not loaded. */
static inline int64_t lg_rank_value(const struct lg_rank *rank, enum lg_column column, size_t row)
{
    return rank->value[column] ? rank->value[column][row] : LG_NULL;
}

/* What happens when memory is out; does not return. The default writes one line and exits with 1.
 */
extern void (*lg_out_of_memory)(void);

/* Allocation that never returns NULL: see above. */
void *lg_alloc(size_t count, size_t size); /* zeroed */
void *lg_realloc(void *block, size_t count, size_t size);
char *lg_strdup(const char *text);
char *lg_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
