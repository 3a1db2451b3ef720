/*
 * host_cause.c - which stage of its host makes a rank late where the device's clock can't tell
 * (arrival.h). Runs in the reading commands.
 *
 * Hosts of ranks that have to wait for each other run ahead of their devices, so most of their own
 * work is hidden behind that wait. The late rank's is not: its device idles through all stages of
 * its host, and on the device's clock all of them are longer than elsewhere. What the ranks' hosts
 * do themselves, without waiting for the device, still tells them apart: by how much, and mostly in
 * which stage. In which stage a host waited is not recorded; where the late rank works just as long
 * as the others wait in the same stage, the device's clock decides among the stages that can hold
 * such a wait.
 */
#include <stdlib.h>

#include "aggregator/arrival.h"
#include "aggregator/order.h"

#define COUNTS    0.05 /* of the step: a host that works so much longer */
#define WAITS_NOT 0.05 /* of its time: a host that waits less for its device sets the pace */
#define MOST      0.5  /* of the excess: it lies in this stage */
#define HOLDS     0.8  /* of the others' wait */

/* Means of a host's row; ns. */
struct host {
    double own[LG_STAGE_COUNT]; /* waiting for the device included */
    double dur, wait;
};

static const enum lg_column own_column[LG_STAGE_COUNT] = {
    [LG_STAGE_input_wait] = LG_COL_input_wait_ns, [LG_STAGE_h2d] = LG_COL_h2d_ns,
    [LG_STAGE_forward] = LG_COL_forward_ns,       [LG_STAGE_backward] = LG_COL_backward_ns,
    [LG_STAGE_optimizer] = LG_COL_optimizer_ns,   [LG_STAGE_other] = LG_COL_other_ns,
};

static double mean(const struct lg_arrivals *a, size_t rank, const bool *chosen,
                   enum lg_column column)
{
    double sum = 0;
    size_t n = 0;

    for (size_t k = 0; k < a->n; k++) {
        int64_t value = chosen[k] ? lg_aligned_value(a->cycles->aligned, rank,
                                                     lg_arrivals_iteration(a, k), column)
                                  : LG_NULL;

        if (value == LG_NULL)
            continue;
        sum += (double)value;
        n++;
    }
    return n ? sum / (double)n : 0; /* not measured: nothing is concluded from it */
}

static struct host host_of(const struct lg_arrivals *a, size_t rank, const bool *chosen)
{
    struct host h = {.dur = mean(a, rank, chosen, LG_COL_dur_ns),
                     .wait = mean(a, rank, chosen, LG_COL_device_wait_ns)};

    for (int s = 0; s < LG_STAGE_COUNT; s++)
        h.own[s] = mean(a, rank, chosen, own_column[s]);
    return h;
}

/* Median over the other ranks, of one field after the other. */
static struct host others(const struct host *hosts, size_t n, size_t rank)
{
    enum { FIELDS = sizeof(struct host) / sizeof(double) };
    int64_t *list = lg_alloc(n, sizeof(*list));
    struct host h = {0};

    for (size_t field = 0; field < FIELDS; field++) {
        size_t count = 0;

        for (size_t r = 0; r < n; r++)
            if (r != rank)
                list[count++] = (int64_t)((const double *)&hosts[r])[field];
        ((double *)&h)[field] = lg_median(list, count);
    }
    free(list);
    return h;
}

/* The stage, or -1. */
static int find_stage(const struct host *late, const struct host *other, double excess,
                      const struct lg_cause *cause)
{
    int most = 0, best = -1;

    for (int s = 1; s < LG_STAGE_COUNT; s++)
        if (late->own[s] - other->own[s] > late->own[most] - other->own[most])
            most = s;
    if (late->own[most] - other->own[most] >= MOST * excess)
        return most;
    for (int s = 0; s < LG_STAGE_COUNT; s++)
        if (other->own[s] >= HOLDS * other->wait && cause->excess_ns[s] > 0 &&
            (best < 0 || cause->excess_ns[s] > cause->excess_ns[best]))
            best = s;
    return best;
}

static void take(const struct lg_arrivals *a, const struct host *late, const struct host *other,
                 double excess, int stage, struct lg_cause *cause)
{
    bool waited = late->own[stage] - other->own[stage] < MOST * excess;

    cause->kind = lg_stage_kind(a, (enum lg_stage)stage);
    cause->stage = lg_stage_blame(a, (enum lg_stage)stage);
    cause->host_stage = stage;
    cause->host_excess_ns = excess;
    cause->host_own_ns = late->own[stage];
    cause->host_others_ns = waited ? late->own[stage] - excess : other->own[stage];
}

void lg_find_host_cause(const struct lg_arrivals *a, size_t rank, const bool *chosen,
                        struct lg_cause *cause)
{
    struct host *hosts, other;
    double excess;
    int stage;

    if (!a->cycles->device || a->cycles->merged || a->n_ranks < 2 ||
        (cause->stage != LG_BLAME_NONE && cause->stage != LG_BLAME_FORWARD_BACKWARD))
        return;
    hosts = lg_alloc(a->n_ranks, sizeof(*hosts));
    for (size_t r = 0; r < a->n_ranks; r++)
        hosts[r] = host_of(a, r, chosen);
    other = others(hosts, a->n_ranks, rank);
    excess = hosts[rank].dur - hosts[rank].wait - (other.dur - other.wait);
    if (hosts[rank].wait < WAITS_NOT * hosts[rank].dur && excess >= COUNTS * a->step_ns) {
        stage = find_stage(&hosts[rank], &other, excess, cause);
        if (stage >= 0)
            take(a, &hosts[rank], &other, excess, stage, cause);
    }
    free(hosts);
}
