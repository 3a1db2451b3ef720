/*
 * aligned.h - a run's rows made comparable: the iterations that every compared rank went through,
 * and where each rank's rows of them are. Every rule of the diagnosis reads this. Runs in the
 * reading commands.
 *
 * Iterations are matched by collective_seq, the number of the last collective of the largest group,
 * where every rank has it, else by step number. A row whose number is its predecessor's is a local
 * step: it belongs to the iteration of the next row with a larger number, so an iteration can be
 * several rows of a rank, whose values are added.
 *
 * Memory: lg_align() returns a block that owns its arrays and points into the run, which has to
 * outlive it; lg_aligned_free() frees it.
 */
#ifndef LAGGARD_AGGREGATOR_ALIGNED_H
#define LAGGARD_AGGREGATOR_ALIGNED_H

#include "aggregator/policy.h"
#include "aggregator/rows.h"

/* Why an iteration is kept out of the published policy (bits of left_out[]). */
#define LG_LEFT_OUT_FLAGS (LG_FLAG_first | LG_FLAG_warm_up | LG_FLAG_compile | LG_FLAG_epoch_start)

struct lg_aligned {
    const struct lg_run *run;
    bool by_collective;
    bool has_local; /* some iteration may have more than one row */
    size_t n_ranks; /* compared ranks, by number: those with rows that match others */
    const struct lg_rank **rank;
    size_t n_misaligned; /* ranks with rows that match nobody's */
    const struct lg_rank **misaligned;
    size_t n;          /* iterations that every compared rank has, in order */
    int64_t *key;      /* collective_seq or step */
    int64_t *step;     /* the lowest compared rank's step number, for people */
    uint32_t **row;    /* [rank index][iteration]: last row of it */
    uint8_t *left_out; /* LG_LEFT_OUT_FLAGS of any rank's row; 0: may be used */
    size_t n_used;
    size_t *used;          /* iterations with left_out 0 */
    size_t before_range;   /* iterations that the asked-for range left out */
    size_t pending_device; /* iterations cut off at the end: device times had not arrived */
};

/* Iterations whose step lies in first..last (LG_NULL: no limit). */
struct lg_aligned *lg_align(const struct lg_run *run, int64_t first, int64_t last);
void lg_aligned_free(struct lg_aligned *aligned);

/* A column of a rank (index into rank[]) in an iteration; local steps added; LG_NULL: not measured
 * (in a sum: in any of the rows; h2d and optimizer: in none of them). */
int64_t lg_aligned_value(const struct lg_aligned *aligned, size_t rank, size_t iteration,
                         enum lg_column column);
/* Rows of a rank in an iteration: one, and its local steps. */
size_t lg_aligned_rows(const struct lg_aligned *aligned, size_t rank, size_t iteration);
/* h2d as the policy wants it, in ns: LG_NULL where the rank has no device or nothing was copied. */
int64_t lg_aligned_h2d(const struct lg_aligned *aligned, size_t rank, size_t iteration,
                       enum lg_column column);
/* Row of the published policy, its step the iteration's key. */
void lg_aligned_policy_row(const struct lg_aligned *aligned, size_t rank, size_t iteration,
                           struct lg_policy_row *row);
/* True if any row of the rank has the column. */
bool lg_rank_measured(const struct lg_rank *rank, enum lg_column column);

#endif
