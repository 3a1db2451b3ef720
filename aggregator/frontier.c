/*
 * frontier.c - frontier accounting (frontier.h). Runs in the reading commands.
 */
#include "aggregator/frontier.h"

#include <math.h>
#include <stdlib.h>

#define TIE_NS   500e3 /* ranks so close to the front lead together... */
#define TIE_STEP 0.02  /* ...or within this part of a step */

/* Adds one cycle; alone[part * n_ranks + rank] counts who leads alone. */
static void add_cycle(const struct lg_arrivals *a, size_t k, int64_t *prefix, size_t *alone,
                      struct lg_frontier *f)
{
    const struct lg_cycle_row *row = lg_cycle_rows(a->cycles, a->first + k);
    double tie = fmax(TIE_NS, TIE_STEP * a->step_ns);
    int64_t front = 0;

    for (size_t r = 0; r < a->n_ranks; r++)
        prefix[r] = 0;
    for (int p = 0; p < LG_PART_COUNT; p++) {
        int64_t before = front;
        size_t leader = 0, leaders = 0;

        for (size_t r = 0; r < a->n_ranks; r++) {
            prefix[r] += row[r].part[p];
            front = prefix[r] > front ? prefix[r] : front;
        }
        for (size_t r = 0; r < a->n_ranks; r++) {
            if ((double)(front - prefix[r]) <= tie) {
                leader = r;
                leaders++;
            }
        }
        f->increment_ns[p] += front - before;
        if (leaders == 1)
            alone[(size_t)p * a->n_ranks + leader]++;
    }
    f->transfer_ns += lg_arrivals_cycle(a, k)->transfer;
    f->exposed_ns += lg_arrivals_cycle(a, k)->arrival + lg_arrivals_cycle(a, k)->transfer;
}

static int32_t leader_of(const struct lg_arrivals *a, const size_t *alone)
{
    for (size_t r = 0; r < a->n_ranks; r++)
        if (2 * alone[r] > a->n)
            return lg_arrivals_rank(a, r);
    return LG_NO_RANK;
}

void lg_frontier_of(const struct lg_arrivals *a, struct lg_frontier *f)
{
    int64_t *prefix = lg_alloc(a->n_ranks, sizeof(*prefix));
    size_t *alone = lg_alloc(LG_PART_COUNT * a->n_ranks, sizeof(*alone));

    *f = (struct lg_frontier){.n_stages = LG_PART_COUNT, .cycles = (int64_t)a->n};
    for (size_t k = 0; k < a->n; k++)
        add_cycle(a, k, prefix, alone, f);
    for (int p = 0; p < LG_PART_COUNT; p++) {
        f->stage[p] = lg_part_name(p);
        f->leader[p] = leader_of(a, &alone[(size_t)p * a->n_ranks]);
    }
    free(prefix);
    free(alone);
}
