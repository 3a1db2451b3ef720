/*
 * rundir.h - the run directory and what it says about the run itself: run.sqlite, one table `meta`
 * (schema/run.sql). Written by `laggard run` at its start and end, read by the other commands.
 *
 * run.sqlite is built in memory and put in place with rename, so it needs no lock and is always
 * whole, on network file systems too. A further recorder in the same directory (srun laggard run
 * -o DIR ...), and a later run in it, writes run-HOST-PID.N.sqlite beside it: what a run says about
 * itself is never replaced by another's.
 */
#ifndef LAGGARD_AGGREGATOR_RUNDIR_H
#define LAGGARD_AGGREGATOR_RUNDIR_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/error.h"
#include "aggregator/process.h"

struct rundir_info {
    int schema_version;
    char run_id[40];
    char command[1024]; /* the command line, quoted for a shell; cut at this size */
    char cwd[PATH_MAX];
    char host[65];
    int64_t start_ns, end_ns; /* CLOCK_REALTIME; end_ns 0: no end was written */
    int exit_status;          /* as the shell shows it, 128 + signal; -1: not known */
    int signal;               /* that ended the command, 0: none */
    int interrupted;          /* the last of SIGINT, SIGTERM and the like that came, 0: none did */
    struct process_id recorder;
    char spool_dir[PATH_MAX];
    char untraced[512]; /* why the command ran untraced, "" when it was traced */
};

/*
 * Makes the run directory (mode 0700, parents too) and writes its absolute path to `path` (PATH_MAX
 * bytes). `wanted` NULL: laggard-YYYYmmdd-HHMMSS-PID in the current directory. Where that can't be
 * made it falls back to $TMPDIR (or /tmp) and writes one line about it to `note`; else note is "".
 * An existing directory is used as it is. Paths longer than RUNDIR_LONGEST are not used: SQLite
 * takes 512 bytes with the names of its files, and so does the library with those of its spools.
 */
#define RUNDIR_LONGEST 400
int rundir_make(const char *wanted, char *path, char *note, size_t note_size, struct error *error);

/* Writes run.sqlite (or its sibling, see above; file names the one that was chosen, PATH_MAX bytes,
 * "" the first time) with the meta of the run. argv ends with NULL. */
int rundir_write(const char *run_dir, char *file, const struct rundir_info *info,
                 char *const argv[], struct error *error);

/* Fails where a newer laggard has written what a run says about itself. */
int rundir_check(const char *run_dir, struct error *error);

/* How the command ended, "exit status 1", "killed by signal 9 (Killed)", "still running". */
void rundir_outcome(const struct rundir_info *info, char *text, size_t size);

/* The newest run in the directory by its start; otherwise as rundir_read(). */
int rundir_newest(const char *run_dir, struct rundir_info *info, struct error *error);

/* Reads run.sqlite. Fails where there is none, as in a run that was traced without `laggard run`.
 */
int rundir_read(const char *run_dir, struct rundir_info *info, struct error *error);

/* Calls fn with the information of each recorder of the run: run.sqlite first. */
typedef void rundir_fn(void *context, const struct rundir_info *info);
void rundir_each(const char *run_dir, rundir_fn *fn, void *context);

/* 1 while the run's recorder lives; on another host: as long as it wrote no end. */
int rundir_in_progress(const struct rundir_info *info);

/* 1 when the path is on a file system whose locks and mappings can't be relied on. */
int rundir_is_network(const char *path);

#endif
