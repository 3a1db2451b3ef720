/*
 * trace_env.h - the environment that makes a command traced: LD_PRELOAD, LAGGARD_DIR, LAGGARD_RUN
 * and LAGGARD_RECORDER. For `laggard run` and `laggard env`.
 */
#ifndef LAGGARD_AGGREGATOR_TRACE_ENV_H
#define LAGGARD_AGGREGATOR_TRACE_ENV_H

#include <stddef.h>

#include "aggregator/error.h"
#include "aggregator/process.h"

/* The absolute path (PATH_MAX bytes) of liblaggard.so: beside this program, or in ../lib/laggard.
 * Fails when it isn't there, can't be read, or can't be written in LD_PRELOAD. */
int trace_library(char *path, struct error *error);

/*
 * The value of LD_PRELOAD with `library` in it exactly once: before all others, except that a
 * sanitizer's runtime stays first since it ends programs in which it isn't. `old` (NULL: not set)
 * is a list separated by colons or spaces; its other entries are kept. -1 = it does not fit.
 */
int trace_preload(const char *old, const char *library, char *value, size_t size);

/* A new run id: 32 hex digits. */
void trace_new_run_id(char id[33]);

/* LAGGARD_RECORDER: "boot id:pid:start time:spool dir". Reading it leaves the spool dir out. */
int trace_recorder_format(const struct process_id *recorder, const char *spool_dir, char *value,
                          size_t size);
int trace_recorder_parse(const char *value, struct process_id *recorder);

#endif
