/*
 * rule_comm_bound.c - the collectives themselves cost the time: what they take when nobody is late.
 * Runs in the reading commands.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "aggregator/accuse.h"
#include "aggregator/order.h"

static double mean_transfer(const struct lg_arrivals *a)
{
    double sum = 0;

    for (size_t k = 0; k < a->n; k++)
        sum += (double)lg_arrivals_cycle(a, k)->pure_transfer;
    return sum / (double)a->n;
}

static double median_spread(const struct lg_arrivals *a)
{
    int64_t *list = lg_alloc(a->n, sizeof(*list));
    double median;

    for (size_t k = 0; k < a->n; k++)
        list[k] = lg_arrivals_cycle(a, k)->spread;
    median = lg_median(list, a->n);
    free(list);
    return median;
}

/* Mean bytes that a rank gives to collectives a step; NAN: not known. */
static double mean_bytes(const struct lg_arrivals *a)
{
    double sum = 0;
    size_t n = 0;

    for (size_t r = 0; r < a->n_ranks; r++) {
        for (size_t k = 0; k < a->n; k++) {
            int64_t bytes = lg_aligned_value(a->cycles->aligned, r, lg_arrivals_iteration(a, k),
                                             LG_COL_collective_bytes);

            if (bytes != LG_NULL) {
                sum += (double)bytes;
                n++;
            }
        }
    }
    return n ? sum / (double)n : (double)NAN;
}

/* "", " for 16.8 MB (2.10 GB/s)"; bytes per ns are GB per s. */
static char *size_words(double bytes, double transfer)
{
    if (!(bytes >= 1)) /* NAN: not known */
        return lg_strdup("");
    return bytes >= 1e6 ? lg_format(" for %.1f MB (%.2f GB/s)", bytes / 1e6, bytes / transfer)
                        : lg_format(" for %.1f kB", bytes / 1e3);
}

static void explain(const struct lg_arrivals *a, double transfer, struct lg_finding *f)
{
    double bytes = mean_bytes(a), spread = median_spread(a);
    char *size = size_words(bytes, transfer);

    json_object_set_new(f->evidence, "transfer_ms", lg_json_ms(transfer));
    json_object_set_new(f->evidence, "arrival_spread_ms", lg_json_ms(spread));
    json_object_set_new(f->evidence, "step_ms", lg_json_ms(a->step_ns));
    if (bytes > 0) {
        json_object_set_new(f->evidence, "bytes_per_step", json_integer(llround(bytes)));
        json_object_set_new(f->evidence, "gb_per_s",
                            json_real(round(bytes / transfer * 1e3) / 1e3));
    }
    f->sentence = lg_format(
        "The collectives themselves take %s of each %s step (%.0f %%)%s when nobody is late; the "
        "ranks arrive within %s of each other (median)%s.",
        lg_ms(transfer / 1e6).text, lg_ms(a->step_ns / 1e6).text, 100 * f->score, size,
        lg_ms(spread / 1e6).text,
        spread < transfer ? ": it is the transfer that costs, not a late rank" : "");
    free(size);
}

void lg_rule_comm_bound(struct lg_judgement *j)
{
    const struct lg_arrivals *a = j->arrivals;
    struct lg_finding *f;
    double transfer;

    if (!a)
        return;
    transfer = mean_transfer(a);
    if (transfer < LG_COSTLY * a->step_ns)
        return;
    f = lg_add_finding(j, LG_COMM_BOUND);
    f->stage = LG_BLAME_SYNC;
    f->rule = LG_RULE_ARRIVAL;
    f->score = transfer / a->step_ns;
    f->level = lg_level_of(j, f->score);
    f->cost_ns_per_step = llround(transfer);
    f->steps = lg_arrivals_steps(a, 0, a->n);
    if (!j->brief)
        explain(a, transfer, f);
}
