/*
 * recorded.h - the commands that `laggard run` recorded in a run directory: which of them the ranks
 * are of, and how it ended. A directory may have been used for several runs, and one run may have a
 * recorder on each of its hosts. Runs in the reading commands.
 */
#ifndef LAGGARD_AGGREGATOR_RECORDED_H
#define LAGGARD_AGGREGATOR_RECORDED_H

#include <stdbool.h>
#include <stddef.h>

#include "aggregator/rankdb.h"
#include "aggregator/rows.h"

/* What a rank's database says about where it comes from, and whether the report is about it. */
struct recorded_rank {
    const struct rank_info *info;
    bool keep;
};

/* Decides which ranks are of the newest run (`keep`), and fills in the run's command, whether it is
 * in progress, how it ended, and notes about the others. */
void recorded_settle(struct lg_run *run, const char *dir, struct recorded_rank *rank, size_t n);

#endif
