/*
 * accuse.h - findings of the rules on arrival: kind, severity, cost, evidence and sentence of a
 * rank that is late, and the small parts that their other findings share. Runs in the reading
 * commands.
 */
#ifndef LAGGARD_AGGREGATOR_ACCUSE_H
#define LAGGARD_AGGREGATOR_ACCUSE_H

#include "aggregator/arrival.h"
#include "aggregator/rules.h"

/* Warning, or critical from LG_CRITICAL where there are steps enough and waits are known well. */
enum lg_level lg_level_of(const struct lg_judgement *j, double score);

/* When a rank is late. */
struct lg_lateness {
    size_t rank;        /* index */
    const bool *chosen; /* [cycle] the cycles that tell the cause */
    size_t from, to;    /* the cycles that the finding is about */
    enum lg_recurrence recurrence;
    double score;
    char *when; /* "in 58 of 60 steps", "every 20th step (3 times)"; owned, taken over */
};

/* Adds the finding: cause, cost, evidence, sentence. The caller may add to it. */
struct lg_finding *lg_accuse(struct lg_judgement *j, const struct lg_lateness *l);

/* Times in evidence are ms with at most three decimals. */
json_t *lg_json_ms(double ns);
/* {"input": 1.5, ...}: the stages in which there is something. */
json_t *lg_json_stages(const struct lg_arrivals *a, const double *ns);
/* The steps of the chosen cycles, at most ten. */
json_t *lg_json_steps(const struct lg_arrivals *a, const bool *chosen);
/* "Rank 3 (node-2)", the host where that tells something; owned by the caller. */
char *lg_rank_name(const struct lg_aligned *aligned, size_t rank);
/* Words for a stage as a part of a step: "backward", "waiting for input"; static. */
const char *lg_stage_words(enum lg_blame stage);

/* ---- evidence.c ---- */

/* What the counters of a rank's rows say about its late cycles: against its other cycles, or
 * against the other ranks where it is late nearly always. NULL: nothing. *hint becomes a clause for
 * the sentence (owned by the caller), or NULL. */
json_t *lg_counters(const struct lg_arrivals *a, const struct lg_lateness *l, enum lg_blame stage,
                    char **hint);
/* What happens with this period besides: "the begin of an epoch", "a checkpoint"; NULL: nothing is
 * known; static. */
const char *lg_coincides(const struct lg_arrivals *a, const bool *chosen);

/* ---- ambiguous.c ---- */

/* Marks the findings that name a rank though another explanation fits as well, and says what would
 * settle it. */
void lg_mark_ambiguous(struct lg_judgement *j);

#endif
