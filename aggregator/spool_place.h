/*
 * spool_place.h - the directory that a recorder makes for the spools of this host's processes: on
 * a local file system, private, and named so that it is found again when the recorder was killed.
 */
#ifndef LAGGARD_AGGREGATOR_SPOOL_PLACE_H
#define LAGGARD_AGGREGATOR_SPOOL_PLACE_H

#include "aggregator/error.h"
#include "aggregator/process.h"

/*
 * Makes a fresh directory laggard-UID-XXXXXX (mode 0700) in the first of $LAGGARD_SPOOL, $TMPDIR,
 * /dev/shm, /tmp and the run directory where a spool can be made; ext4, xfs and tmpfs are tried
 * before other file systems, network file systems last. Writes its path to `dir` (PATH_MAX bytes)
 * and, into it, whose it is.
 */
int spool_place_make(const char *run_dir, char *dir, struct error *error);

/* Removes the directory if no spool or database is left in it. */
void spool_place_remove(const char *dir);

/* Whose a directory is: the run's path (PATH_MAX bytes) and the recorder that made it. -1 = not
 * told, or it is not a directory of ours. */
int spool_place_owner(const char *dir, char *run_dir, struct process_id *recorder);

/* Calls fn with each directory of this kind, of this user, in the places named above. */
typedef void spool_place_fn(void *context, const char *dir);
void spool_place_each(spool_place_fn *fn, void *context);

#endif
