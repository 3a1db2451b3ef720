/*
 * recorder_private.h - what the parts of the recorder share: recorder.c (spools, passes),
 * recorder_store.c (one process' rows and databases).
 */
#ifndef LAGGARD_AGGREGATOR_RECORDER_PRIVATE_H
#define LAGGARD_AGGREGATOR_RECORDER_PRIVATE_H

#include <limits.h>
#include <stddef.h>

#include "aggregator/rankdb.h"
#include "aggregator/recorder.h"
#include "aggregator/spool_reader.h"

struct source_file {
    struct spool spool;
    uint64_t tail;      /* rows before it are stored */
    uint64_t next_tail; /* after the commit that is under way */
};

/* One process: its first spool and those that it went on in. */
struct source {
    struct source_file *file;
    size_t files;
    struct rankdb *db; /* NULL: no row yet, or all done */
    char db_path[PATH_MAX];
    int64_t rank, attempt;
    struct rank_info written; /* what the table rank says */
    int is_written;
    int has_database; /* it got one, though it may be closed by now */
    int finished;
    int changed;         /* the database has something that was not copied to run_dir */
    int waited;          /* passes that a continuation was missing in */
    int64_t damaged;     /* slots that were skipped */
    int garbage;         /* a ring could not be read at all */
    char unreadable[48]; /* a database of this rank that can't be read, "": none */
};

struct recorder {
    char run_dir[PATH_MAX], database_dir[PATH_MAX];
    int run_over;
    char **dir;
    size_t dirs;
    int inotify;
    struct source **source;
    size_t sources;
    char **bad; /* paths that are not looked at again */
    size_t bads;
    int pressed;
    int64_t limit_ns; /* of a pass, 0: none */
    size_t next;      /* the source where the next pass begins */
    int64_t rows;
    int lost;             /* processes that found no room for a spool, and are stored as such */
    int lost_unstored;    /* ... and could not be stored in the last pass */
    int64_t published_ns; /* CLOCK_MONOTONIC */
    char note[512];
};

/* Writes the recorder's note; the latest wins. */
void recorder_note(struct recorder *r, const struct error *error);

/* 1 when the writer is known to be gone. */
int source_is_gone(const struct recorder *r, const struct source *s);

/* Stores what is ready; when the process is gone, everything. Failures go to the note, and are
 * tried again in the next pass. */
void source_store(struct recorder *r, struct source *s);

/* Makes the database of a process that found no room for a spool: no rows, and the reason (enum
 * lg_loss). */
int source_store_lost(struct recorder *r, struct rank_info *info, uint32_t reason,
                      struct error *error);

/* Copies the database to run_dir when it is written elsewhere and has changed. */
void source_publish(struct recorder *r, struct source *s);

void source_free(struct source *s);

#endif
