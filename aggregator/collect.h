/*
 * collect.h - takes what recorders left behind: spools of a killed `laggard run`, of processes that
 * were traced without one (bare LD_PRELOAD), of other hosts. Every command that reads a run does
 * this first.
 */
#ifndef LAGGARD_AGGREGATOR_COLLECT_H
#define LAGGARD_AGGREGATOR_COLLECT_H

struct collect_result {
    int collected;  /* processes whose rows are now all in the databases */
    int running;    /* processes that still run (on another host: may still run) */
    int failed;     /* spools that could not be read or stored */
    char note[512]; /* one line about the first failure, "" when there was none */
};

/*
 * Brings the databases of a run directory up to date as far as this user may. Never fails: what
 * could not be done is in `result` (which may be NULL), and the run can be read all the same. Rows
 * of processes that a live recorder looks after are left to it.
 */
void collect_run(const char *run_dir, struct collect_result *result);

/*
 * Looks in the usual places for spool directories that recorders of this user left when they were
 * killed, collects them into their runs and removes them; those whose run directory is gone are
 * removed only.
 */
void collect_leftovers(void);

#endif
