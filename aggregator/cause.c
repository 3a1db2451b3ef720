/*
 * cause.c - which stage a rank's lateness is put down to (arrival.h). Runs in the reading commands.
 */
#include <stdlib.h>

#include "aggregator/arrival.h"

#define BOTH 0.15 /* of the lateness: forward and backward each have that much in a slow device */

/* Per stage and chosen cycle: the rank's own part and its excess. */
struct samples {
    size_t n, capacity;
    int64_t *late, *own[LG_STAGE_COUNT], *excess[LG_STAGE_COUNT];
};

static void make_samples(struct samples *s, size_t capacity)
{
    s->n = 0;
    s->capacity = capacity;
    s->late = lg_alloc(capacity, sizeof(*s->late));
    for (int i = 0; i < LG_STAGE_COUNT; i++) {
        s->own[i] = lg_alloc(capacity, sizeof(**s->own));
        s->excess[i] = lg_alloc(capacity, sizeof(**s->excess));
    }
}

static void free_samples(struct samples *s)
{
    free(s->late);
    for (int i = 0; i < LG_STAGE_COUNT; i++) {
        free(s->own[i]);
        free(s->excess[i]);
    }
}

static void take_sample(const struct lg_arrivals *a, size_t rank, size_t k, int64_t *list,
                        struct samples *s)
{
    const struct lg_cycle_row *row = lg_cycle_rows(a->cycles, a->first + k);
    struct lg_references references;

    lg_references_of(a, row, list, &references);
    s->late[s->n] = lg_late(a, k, rank);
    for (int p = 0; p < LG_PART_COUNT; p++) {
        enum lg_stage stage = lg_part_stage(p);

        s->own[stage][s->n] += row[rank].part[p];
        s->excess[stage][s->n] += lg_excess(&references, &row[rank], p);
    }
    s->n++;
}

static void take_medians(struct samples *s, struct lg_cause *cause)
{
    cause->late_ns = lg_median(s->late, s->n);
    for (int i = 0; i < LG_STAGE_COUNT; i++) {
        for (size_t k = 0; k < s->n; k++)
            s->late[k] = s->own[i][k] - s->excess[i][k];
        cause->others_ns[i] = lg_median(s->late, s->n);
        cause->excess_ns[i] = lg_median(s->excess[i], s->n);
        cause->own_ns[i] = lg_median(s->own[i], s->n);
    }
}

enum lg_kind lg_stage_kind(const struct lg_arrivals *a, enum lg_stage stage)
{
    static const enum lg_kind kind[LG_STAGE_COUNT] = {
        [LG_STAGE_input_wait] = LG_INPUT_STRAGGLER,    [LG_STAGE_h2d] = LG_H2D_STRAGGLER,
        [LG_STAGE_forward] = LG_COMPUTE_STRAGGLER,     [LG_STAGE_backward] = LG_BACKWARD_STRAGGLER,
        [LG_STAGE_optimizer] = LG_OPTIMIZER_STRAGGLER, [LG_STAGE_other] = LG_HOST_STRAGGLER,
    };

    if (lg_stage_blame(a, stage) == LG_BLAME_FORWARD_BACKWARD)
        return LG_COMPUTE_STRAGGLER;
    return kind[stage];
}

static void name_cause(const struct lg_arrivals *a, struct lg_cause *c)
{
    double forward = c->excess_ns[LG_STAGE_forward], backward = c->excess_ns[LG_STAGE_backward];
    int best = 0;

    for (int s = 1; s < LG_STAGE_COUNT; s++)
        if (c->excess_ns[s] > c->excess_ns[best])
            best = s;
    if (c->excess_ns[best] > 0 && c->excess_ns[best] >= LG_NAMES * c->late_ns) {
        c->kind = lg_stage_kind(a, (enum lg_stage)best);
        c->stage = lg_stage_blame(a, best);
    } else if (forward + backward >= LG_NAMES * c->late_ns && forward > BOTH * c->late_ns &&
               backward > BOTH * c->late_ns) {
        c->kind = LG_COMPUTE_STRAGGLER;
        c->stage = LG_BLAME_FORWARD_BACKWARD;
    } else {
        c->kind = LG_STRAGGLER;
        c->stage = LG_BLAME_NONE;
    }
}

void lg_find_cause(const struct lg_arrivals *a, size_t rank, const bool *chosen,
                   struct lg_cause *cause)
{
    int64_t *list = lg_alloc(a->n_ranks, sizeof(*list));
    struct samples samples;

    *cause = (struct lg_cause){.kind = LG_STRAGGLER};
    make_samples(&samples, a->n);
    for (size_t k = 0; k < a->n; k++)
        if (chosen[k])
            take_sample(a, rank, k, list, &samples);
    if (samples.n > 0) {
        take_medians(&samples, cause);
        name_cause(a, cause);
        lg_find_host_cause(a, rank, chosen, cause);
    }
    free_samples(&samples);
    free(list);
}
