/*
 * identity.h - who this process is: rank, world size, its groups, what it was seen to use. Context:
 * hooks on any thread (registration), cold paths.
 *
 * The largest communicator wins over every environment variable: variables may be missing, late or
 * another launcher's.
 */
#ifndef LAGGARD_PRELOAD_IDENTITY_H
#define LAGGARD_PRELOAD_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/text.h"
#include "schema/spool.h"

/* A group or communicator was made; `id` is its address. */
void lg_identity_group(const void *id, int rank, int size, enum lg_group_kind kind);

/* A collective of `bytes` (0: size unknown) was issued in it. Counts for the process, too. */
void lg_identity_collective(const void *id, uint64_t bytes, enum lg_group_kind kind);

/* Number of collectives issued so far in groups of the largest size: every member of such a group
 * issues the same sequence, so the sum aligns ranks. */
uint64_t lg_identity_sequence(void);

/* Marks something as seen (enum lg_seen). */
void lg_identity_saw(uint32_t bits);
uint32_t lg_identity_seen(void);

/* Time blocked in collectives would be noticed in this process. */
bool lg_identity_sync_known(void);

/* Writes rank, world size, groups and what was seen into a spool's pages. */
void lg_identity_write(struct lg_spool *spool);

/* Adds "RANK:WORLD:RANK_SOURCE" as far as they are known. */
void lg_identity_describe(struct lg_text *text);

/* The environment's idea of rank and world size; a communicator's stays. */
void lg_identity_environment(void);

/* In a fork child: nothing is known any more. */
void lg_identity_reset(void);

#endif
