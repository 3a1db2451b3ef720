/*
 * ranges.h - the step rules for programs without PyTorch that mark their stages with NVTX ranges:
 * the names tell, where infer.h has to conclude. Context: hooks on the training thread.
 *
 * They take over at the first range that is called backward; ranges before that are only noted.
 */
#ifndef LAGGARD_PRELOAD_RANGES_H
#define LAGGARD_PRELOAD_RANGES_H

#include <stdbool.h>

#include "preload/infer.h"
#include "preload/step.h"

/* What a range's name says. */
enum lg_range {
    LG_RANGE_NONE, /* nothing */
    LG_RANGE_INPUT,
    LG_RANGE_H2D,
    LG_RANGE_FORWARD,
    LG_RANGE_BACKWARD,
    LG_RANGE_OPTIMIZER,
    LG_RANGE_STEP, /* a whole iteration */
    LG_RANGE_EVAL  /* no training: whatever is in it */
};
enum lg_range lg_range_of(const char *name);

/* A range of the calling thread begins and ends. Ranges of a domain are nested in each other;
 * `domain`: NULL for those without. */
void lg_range_push(const void *domain, const char *name);
void lg_range_pop(const void *domain);

/* Whether these rules are in charge; then infer.c hands every call and wait on. */
bool lg_ranges_rule(void);
void lg_ranges_call_begin(enum lg_call call);
void lg_ranges_call_end(void);
uint64_t lg_ranges_now(void); /* time of the last event */
void lg_ranges_wait_begin(void);
void lg_ranges_wait_end(void);

/* Fork child; exit. */
void lg_ranges_reset(void);
void lg_ranges_finish(void);

#endif
