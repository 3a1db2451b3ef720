/*
 * rule_comm_bound.c - the collectives themselves cost the time: what they take when nobody is late,
 * and whether it is their number or their size. Runs in the reading commands.
 */
#include <math.h>
#include <stdio.h>
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

/* ---- sizes ---- */

/* X(class, bytes of a collective below it, what its transfer costs): a small one takes its time
 * whatever it holds, a large one is as fast as the links. */
#define SIZES(X)                                                                                   \
    X(small, 64.0 * 1024, "latency, not volume")                                                   \
    X(medium, 4.0 * 1024 * 1024, "latency as well as volume")                                      \
    X(large, (double)INFINITY, "volume: bandwidth and links")
#define SIZE_ENUM(name, below, costs) SIZE_##name,
enum size { SIZES(SIZE_ENUM) SIZE_COUNT };
#define SIZE_ROW(name, below, costs) {#name, below, costs},
static const struct {
    const char *name;
    double below;
    const char *costs;
} sizes[] = {SIZES(SIZE_ROW)};

/* Sums over cycles: what a rank gives to collectives, and the transfer. */
struct traffic {
    double bytes, collectives, transfer;
    size_t steps;
};

/* The traffic by size of collectives. Rows hold no single ones, so it is the mean size of a step's
 * that counts; cycles without known bytes are left out. */
struct traffics {
    struct traffic all, of[SIZE_COUNT];
};

/* Mean over the ranks that measured it; NAN: none did. */
static double mean_of_ranks(const struct lg_arrivals *a, size_t k, enum lg_column column)
{
    double sum = 0;
    size_t n = 0;

    for (size_t r = 0; r < a->n_ranks; r++) {
        int64_t value =
            lg_aligned_value(a->cycles->aligned, r, lg_arrivals_iteration(a, k), column);

        if (value != LG_NULL) {
            sum += (double)value;
            n++;
        }
    }
    return n ? sum / (double)n : (double)NAN;
}

static void add_traffic(struct traffic *t, double bytes, double collectives, double transfer)
{
    t->bytes += bytes;
    t->collectives += collectives;
    t->transfer += transfer;
    t->steps++;
}

static void count_traffic(const struct lg_arrivals *a, struct traffics *t)
{
    *t = (struct traffics){0};
    for (size_t k = 0; k < a->n; k++) {
        double bytes = mean_of_ranks(a, k, LG_COL_collective_bytes);
        double collectives = mean_of_ranks(a, k, LG_COL_collectives);
        double transfer = (double)lg_arrivals_cycle(a, k)->pure_transfer;
        int size = 0;

        if (!(bytes >= 1)) /* NAN: not known */
            continue;
        add_traffic(&t->all, bytes, collectives, transfer);
        if (!(collectives > 0))
            continue;
        while (bytes / collectives >= sizes[size].below)
            size++;
        add_traffic(&t->of[size], bytes, collectives, transfer);
    }
}

/* Bytes per ns are GB per s. What overlaps with computation is not in the transfer: the links are
 * no faster than this. */
static json_t *traffic_json(const struct traffic *t)
{
    double n = (double)t->steps;
    json_t *object =
        json_pack("{sI sI so sf}", "steps", (json_int_t)t->steps, "bytes_per_step",
                  (json_int_t)llround(t->bytes / n), "transfer_ms", lg_json_ms(t->transfer / n),
                  "gb_per_s", round(t->bytes / t->transfer * 1e6) / 1e6);

    if (t->collectives > 0) {
        json_object_set_new(object, "collectives_per_step",
                            json_real(round(t->collectives / n * 100) / 100));
        json_object_set_new(object, "mean_bytes", json_integer(llround(t->bytes / t->collectives)));
    }
    return object;
}

/* The class whose collectives take most of the time; SIZE_COUNT: sizes are not known. */
static int main_size(const struct traffics *t)
{
    int most = SIZE_COUNT;

    for (int s = 0; s < SIZE_COUNT; s++)
        if (t->of[s].steps > 0 && (most == SIZE_COUNT || t->of[s].transfer > t->of[most].transfer))
            most = s;
    return most;
}

static void tell_sizes(const struct traffics *t, json_t *evidence)
{
    json_t *by_size = json_object();
    int size = main_size(t);

    for (int s = 0; s < SIZE_COUNT; s++)
        if (t->of[s].steps > 0)
            json_object_set_new(by_size, sizes[s].name, traffic_json(&t->of[s]));
    json_object_set_new(evidence, "size",
                        size < SIZE_COUNT ? json_string(sizes[size].name) : json_null());
    json_object_set_new(evidence, "by_size", size < SIZE_COUNT ? by_size : json_null());
    if (size == SIZE_COUNT)
        json_decref(by_size);
}

struct amount {
    char text[32];
};

static struct amount amount_of(double bytes)
{
    struct amount a;

    if (bytes >= 1e6)
        snprintf(a.text, sizeof(a.text), "%.1f MB", bytes / 1e6);
    else
        snprintf(a.text, sizeof(a.text), "%.1f kB", bytes / 1e3);
    return a;
}

/* "16.8 MB in 8 collectives (2.1 MB each, 2.10 GB/s): volume" */
static char *size_words(const struct traffics *t)
{
    int size = main_size(t);
    const struct traffic *m = size < SIZE_COUNT ? &t->of[size] : &t->all;
    double n = (double)m->steps;

    if (m->steps == 0)
        return lg_strdup("how many bytes they carry is not observed");
    if (size == SIZE_COUNT)
        return lg_format("they carry %s, %.2f GB/s; of how many collectives is not observed",
                         amount_of(m->bytes / n).text, m->bytes / m->transfer);
    return lg_format("%.0f a step, %s each, %.*f GB/s: %s", m->collectives / n,
                     amount_of(m->bytes / m->collectives).text,
                     m->bytes / m->transfer < 0.1 ? 4 : 2, m->bytes / m->transfer,
                     sizes[size].costs);
}

/* ---- the finding ---- */

/* A rank that left no rows may be the late one: all others wait for it alike. */
static size_t unseen_ranks(const struct lg_judgement *j)
{
    return j->scope.n_expected > j->arrivals->n_ranks ? j->scope.n_expected - j->arrivals->n_ranks
                                                      : 0;
}

/* Whether somebody is late besides. */
static char *lateness_words(const struct lg_judgement *j, double transfer, double spread)
{
    double waited = lg_waited_for_stragglers(j);

    if (unseen_ranks(j) > 0)
        return lg_format("unless a rank that is not compared is late: %zu of %zu are not",
                         unseen_ranks(j), j->scope.n_expected);
    if (waited > 0)
        return lg_format("the wait for the late rank (%s a step) is not in it",
                         lg_ms(waited / 1e6).text);
    return lg_format("the ranks arrive within %s of each other (median)%s",
                     lg_ms(spread / 1e6).text,
                     spread < transfer ? ": it is the collectives that cost, not a late rank" : "");
}

static void explain(const struct lg_judgement *j, double transfer, struct lg_finding *f)
{
    const struct lg_arrivals *a = j->arrivals;
    double spread = median_spread(a);
    struct traffics traffics;
    char *size, *lateness;

    count_traffic(a, &traffics);
    json_object_set_new(f->evidence, "transfer_ms", lg_json_ms(transfer));
    json_object_set_new(f->evidence, "arrival_spread_ms", lg_json_ms(spread));
    json_object_set_new(f->evidence, "step_ms", lg_json_ms(a->step_ns));
    if (traffics.all.steps > 0) {
        double bytes = traffics.all.bytes / (double)traffics.all.steps;

        json_object_set_new(f->evidence, "bytes_per_step", json_integer(llround(bytes)));
        json_object_set_new(f->evidence, "gb_per_s",
                            json_real(round(bytes / transfer * 1e3) / 1e3));
    }
    tell_sizes(&traffics, f->evidence);
    size = size_words(&traffics);
    lateness = lateness_words(j, transfer, spread);
    f->sentence = lg_format("The collectives themselves take %s of each %s step (%.0f %%) when "
                            "nobody is late (%s); %s.",
                            lg_ms(transfer / 1e6).text, lg_ms(a->step_ns / 1e6).text,
                            100 * f->score, size, lateness);
    free(size);
    free(lateness);
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
    f->level = unseen_ranks(j) > 0 ? LG_LEVEL_WARNING : lg_level_of(j, f->score);
    f->cost_ns_per_step = llround(transfer);
    f->steps = lg_arrivals_steps(a, 0, a->n);
    if (!j->brief)
        explain(j, transfer, f);
}
