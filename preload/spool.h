/*
 * spool.h - writing rows into the mapped spool (layout: schema/spool.h). Context: opening on any
 * thread at the first sign of training; rows on the training thread only.
 */
#ifndef LAGGARD_PRELOAD_SPOOL_H
#define LAGGARD_PRELOAD_SPOOL_H

#include <stdbool.h>
#include <stdint.h>

#include "schema/spool.h"

/* Whether this process has opened its spool or has failed to: it is tried once. */
bool lg_spool_tried(void);

/* Opens the spool. On failure the process stays untraced, without a word. */
void lg_spool_open(void);

/* What the training thread does now. `stage`: enum lg_stage; `now` in ns. */
void lg_spool_status(uint64_t step, uint32_t stage, bool in_collective, uint64_t now,
                     uint64_t entries_dropped);

/* In a fork child: lets go of the parent's spool. True if there is one: the child works for a rank.
 */
bool lg_spool_leave_parent(void);

/* This process' worker record in its parent's spool, taken at the first call; NULL if all are in
 * use by others. */
struct lg_worker *lg_spool_worker(void);

/* The process ends in order. */
void lg_spool_finish(int status);

#endif
