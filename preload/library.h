/*
 * library.h - which files this process runs: its program, and each copy of NCCL, with how much of
 * that copy was seen. A copy that is there and was never seen in use is called in a way that passes
 * every hook, or not at all. Context: NCCL's hooks (registration), cold paths.
 */
#ifndef LAGGARD_PRELOAD_LIBRARY_H
#define LAGGARD_PRELOAD_LIBRARY_H

#include "preload/hooks.h"
#include "schema/spool.h"

/* A communicator was made in the copy of NCCL whose ncclGetVersion is `ask`, which gave `version`.
 */
void lg_library_nccl(lg_function ask, int version);

/* Looks what is loaded that may be used past every hook. Cold: walks over all loaded objects. */
void lg_library_look(void);

/* Writes what changed since the last time into a spool's pages. */
void lg_library_write(struct lg_spool *spool);

/* In a fork child: no communicator is its own. */
void lg_library_reset(void);

#endif
