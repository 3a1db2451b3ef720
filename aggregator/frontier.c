/*
 * frontier.c - frontier accounting (frontier.h). Runs in the reading commands.
 */
#include "aggregator/frontier.h"

#include <math.h>
#include <stdlib.h>

#define TIE_NS   500e3 /* ranks so close to the front lead together... */
#define TIE_STEP 0.02  /* ...or within this part of a step */

struct sums {
    struct lg_frontier *frontier;
    int64_t *prefix; /* [rank] */
    size_t *alone;   /* [part * n_ranks + rank] how often it leads alone */
};

static void add_cycle(void *context, const struct lg_arrivals *a, size_t k)
{
    const struct sums *sums = context;
    struct lg_frontier *f = sums->frontier;
    const struct lg_cycle_row *row = lg_cycle_rows(a->cycles, a->first + k);
    double tie = fmax(TIE_NS, TIE_STEP * a->step_ns);
    int64_t front = 0, *prefix = sums->prefix;

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
            sums->alone[(size_t)p * a->n_ranks + leader]++;
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

void lg_frontier_of(struct lg_arrivals *a, struct lg_frontier *f)
{
    struct sums sums = {
        .frontier = f,
        .prefix = lg_alloc(a->n_ranks, sizeof(*sums.prefix)),
        .alone = lg_alloc(LG_PART_COUNT * a->n_ranks, sizeof(*sums.alone)),
    };

    *f = (struct lg_frontier){.n_stages = LG_PART_COUNT, .cycles = (int64_t)a->n};
    lg_arrivals_account(a, add_cycle, &sums);
    for (int p = 0; p < LG_PART_COUNT; p++) {
        f->stage[p] = lg_part_name(p);
        f->leader[p] = leader_of(a, &sums.alone[(size_t)p * a->n_ranks]);
    }
    free(sums.prefix);
    free(sums.alone);
}
