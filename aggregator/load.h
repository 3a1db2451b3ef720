/*
 * load.h - a run from its databases into memory (rows.h). Runs in the reading commands.
 */
#ifndef LAGGARD_AGGREGATOR_LOAD_H
#define LAGGARD_AGGREGATOR_LOAD_H

#include "aggregator/diagnose.h"
#include "aggregator/error.h"
#include "aggregator/run_files.h"

/*
 * Loads the newest attempt of each rank of RUN (a run directory or a rank database), with the
 * columns that lg_diagnose() needs. What is missing or damaged is described in the run's losses and
 * does not fail. Fails, with one line in `error`, when there is nothing to report on: no such run,
 * not a run, no rank in it, not one database that can be read. The run is the caller's
 * (lg_run_free).
 */
struct lg_run *load_run(const char *path, struct error *error);

/* The same from files found before. */
struct lg_run *load_files(const struct run_files *files, struct error *error);

#endif
