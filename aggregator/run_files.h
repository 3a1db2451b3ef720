/*
 * run_files.h - what a RUN argument stands for: the rank databases of a run directory, or a single
 * rank database. Finds and names them; opens none but the single one. Runs in the reading commands.
 */
#ifndef LAGGARD_AGGREGATOR_RUN_FILES_H
#define LAGGARD_AGGREGATOR_RUN_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/error.h"

struct run_file {
    char *path; /* owned */
    int64_t rank, attempt;
    bool newest; /* of its rank's attempts: what reports are about */
};

struct run_files {
    char *path;     /* RUN as given; owned */
    bool directory; /* else a single rank database */
    size_t n;
    struct run_file *file; /* by rank, then attempt; owned */
    int uncollected;       /* spools whose rows could not be taken into the databases */
    char note[512];        /* about the first of those; "": none */
};

/*
 * Fills *files (to be given back with run_files_free, after a failure too). In a directory leftover
 * spools of ranks that are gone are first collected into rank databases, as far as this user may
 * write there. Fails with a line that says what is wrong when `run` does not exist or is no run,
 * and when no rank appeared in it.
 */
int run_files_find(const char *run, struct run_files *files, struct error *error);

/* Only lists the rank databases of a directory, without collecting; none is no failure. */
int run_files_list(const char *dir, struct run_files *files, struct error *error);

void run_files_free(struct run_files *files);

#endif
