/*
 * recorder.h - moves rows from the spools of rank processes into rank databases. Used live by
 * `laggard run` and afterwards by every command that finds spools left behind (collect.h).
 *
 * A row's way: the spool's ring, one transaction per pass and process, commit, and only then the
 * slot is given back to its writer. So a recorder may be killed at any moment: the rows are in the
 * spool, in the database, or in both, and putting one again changes nothing.
 */
#ifndef LAGGARD_AGGREGATOR_RECORDER_H
#define LAGGARD_AGGREGATOR_RECORDER_H

#include <stdint.h>

#include "aggregator/error.h"

struct recorder_options {
    const char *run_dir; /* where the databases are read */
    /* Where they are written: run_dir, or a local directory from which whole files are copied to
     * run_dir every 60 s and at the end (network file systems). See recorder_database_dir. */
    const char *database_dir;
    int run_over; /* no process of the run is alive on any host */
};

struct recorder_result {
    int ranks;      /* processes with a database */
    int finished;   /* processes that are gone and whose rows are all stored */
    int running;    /* processes that still run, or may */
    int failed;     /* spools that could not be read or stored */
    int64_t rows;   /* stored by this recorder */
    char note[512]; /* one line about the latest failure, "" when there was none */
};

struct recorder;

/* NULL with a line in `error` when there is no memory. */
struct recorder *recorder_new(const struct recorder_options *options, struct error *error);

/* Looks for spools in `dir` from now on; a directory that is not there yet is looked for again. */
void recorder_add_dir(struct recorder *recorder, const char *dir);

/* A descriptor that becomes readable when a spool appears in a directory that was there when it
 * was added; -1: there is none. recorder_pass empties it. */
int recorder_descriptor(const struct recorder *recorder);

/* One pass: finds new spools, stores rows that are ready, finishes processes that are gone. */
void recorder_pass(struct recorder *recorder);

/* From now on a pass ends after about `ns` (0: when it is done), and the next one goes on from
 * there: on a slow disk many ranks would keep the caller from its other duties. */
void recorder_limit(struct recorder *recorder, int64_t ns);

/* 1 when some ring is a quarter full, or a pass ended early: pass again soon. */
int recorder_is_pressed(const struct recorder *recorder);

/* 1 while a process that is being recorded is alive. */
int recorder_has_running(const struct recorder *recorder);

/* 1 while one of those is on its way out: what it held back can be stored in a moment. */
int recorder_has_ending(const struct recorder *recorder);

void recorder_result(const struct recorder *recorder, struct recorder_result *result);

/* Copies to run_dir what is left to copy, closes and frees; spools of finished processes are
 * gone by then, others stay where they are. `recorder` may be NULL. */
void recorder_free(struct recorder *recorder);

/* Writes to `dir` (PATH_MAX bytes) where databases for run_dir should be written: run_dir, or
 * spool_dir/db when run_dir is on a network file system or locks fail there. */
void recorder_database_dir(const char *run_dir, const char *spool_dir, char *dir);

#endif
