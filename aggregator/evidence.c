/*
 * evidence.c - what the counters of rows say about a late rank: checkpoints, reads, page faults,
 * preemption, garbage collection (accuse.h). Hints, said as such. Runs in the reading commands.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/accuse.h"
#include "aggregator/order.h"

/* X(column, name in the evidence, divisor) */
#define COUNTERS(X)                                                                                \
    X(thread_cpu_ns, "cpu_ms", 1e6)                                                                \
    X(reads, "reads", 1)                                                                           \
    X(read_bytes, "read_mb", 1e6)                                                                  \
    X(write_bytes, "written_mb", 1e6)                                                              \
    X(fsyncs, "fsyncs", 1)                                                                         \
    X(h2d_bytes, "h2d_mb", 1e6)                                                                    \
    X(host_syncs, "host_syncs", 1)                                                                 \
    X(major_faults, "major_faults", 1)                                                             \
    X(involuntary_switches, "preemptions", 1)
#define COUNTER_ENUM(column, name, divisor) COUNTER_##column,
enum counter { COUNTERS(COUNTER_ENUM) COUNTER_COUNT };

static const struct {
    enum lg_column column;
    const char *name;
    double divisor;
} counters[] = {
#define COUNTER_ROW(column, name, divisor) {LG_COL_##column, name, divisor},
    COUNTERS(COUNTER_ROW)};

#define DIFFERS 1.5 /* times more or less is worth telling */
#define ASKED   16  /* of many other ranks so many are enough to compare with */
#define ALL     0.9 /* of the others' is as much as theirs */
/* Bytes a step. Fewer are no data: what a loader's workers say through pipes, say. Less than 0.05
 * MB would be printed as 0.0 MB. */
#define READS_DATA 4096
#define READS_MUCH 5e4
#define SEEN       0.5 /* reads a step: less often is not what makes a rank late in its steps */

/* A counter of the late cycles, and what it is compared with; NAN: not measured. */
struct pair {
    double late, other;
};

/* What is late in a cycle can lie in its row or, after the last sync, in the row before: the larger
 * of the two tells. */
static int64_t around(const struct lg_arrivals *a, size_t rank, size_t k, enum lg_column column)
{
    const struct lg_aligned *aligned = a->cycles->aligned;
    size_t it = lg_arrivals_iteration(a, k);
    int64_t value = lg_aligned_value(aligned, rank, it, column);
    int64_t before = lg_aligned_value(aligned, rank, it - 1, column); /* a cycle has a row before */

    return value > before ? value : before; /* LG_NULL is the smallest number */
}

/* Mean over cycles: the chosen ones around each, the others as they stand. */
static double mean_of(const struct lg_arrivals *a, size_t rank, const bool *chosen, bool events,
                      enum lg_column column)
{
    double sum = 0;
    size_t n = 0;

    for (size_t k = 0; k < a->n; k++) {
        int64_t value;

        if (chosen[k] != events)
            continue;
        value = events ? around(a, rank, k, column)
                       : lg_aligned_value(a->cycles->aligned, rank, lg_arrivals_iteration(a, k),
                                          column);
        if (value == LG_NULL)
            continue;
        sum += (double)value;
        n++;
    }
    return n ? sum / (double)n : (double)NAN;
}

static double mean_between(const struct lg_arrivals *a, size_t rank, size_t from, size_t to,
                           enum lg_column column)
{
    double sum = 0;
    size_t n = 0;

    for (size_t k = from; k < to; k++) {
        int64_t value =
            lg_aligned_value(a->cycles->aligned, rank, lg_arrivals_iteration(a, k), column);

        if (value != LG_NULL) {
            sum += (double)value;
            n++;
        }
    }
    return n ? sum / (double)n : (double)NAN;
}

/* Median over other ranks of their means, in thousandths so that it can be taken of integers.
 */
static double mean_of_others(const struct lg_arrivals *a, const struct lg_lateness *l,
                             enum lg_column column)
{
    size_t step = 1 + a->n_ranks / ASKED, n = 0;
    int64_t *list = lg_alloc(a->n_ranks, sizeof(*list));
    double median = (double)NAN;

    for (size_t r = 0; r < a->n_ranks; r += step) {
        double mean = r == l->rank ? (double)NAN : mean_between(a, r, l->from, l->to, column);

        if (!isnan(mean) && fabs(mean) < 1e15)
            list[n++] = llround(mean * 1e3);
    }
    if (n > 0)
        median = lg_median(list, n) / 1e3;
    free(list);
    return median;
}

static bool is_always(const struct lg_lateness *l)
{
    return l->recurrence == LG_RECURRENCE_PERSISTENT;
}

static struct pair compare(const struct lg_arrivals *a, const struct lg_lateness *l,
                           enum lg_column column)
{
    if (is_always(l))
        return (struct pair){.late = mean_between(a, l->rank, l->from, l->to, column),
                             .other = mean_of_others(a, l, column)};
    return (struct pair){.late = mean_of(a, l->rank, l->chosen, true, column),
                         .other = mean_of(a, l->rank, l->chosen, false, column)};
}

static bool is_more(const struct pair *p)
{
    return p->late > 0 && p->late >= DIFFERS * p->other; /* false with a NAN */
}

static bool is_less(const struct pair *p)
{
    return p->other > 0 && p->other >= DIFFERS * p->late;
}

/* ---- hints ---- */

/* CPU time against the wall time of the late part: does the rank compute there, or wait? */
static char *cpu_hint(const struct lg_arrivals *a, const struct lg_lateness *l,
                      const struct pair *pair)
{
    struct pair dur = compare(a, l, LG_COL_dur_ns);
    double late = 0, cpu = pair[COUNTER_thread_cpu_ns].late - pair[COUNTER_thread_cpu_ns].other;
    size_t n = 0;

    for (size_t k = l->from; k < l->to; k++) {
        if (l->chosen[k]) {
            late += (double)lg_late(a, k, l->rank);
            n++;
        }
    }
    if (isnan(cpu) || n == 0 || late <= 0 || isnan(dur.late))
        return NULL;
    late /= (double)n;
    if (cpu >= 0.7 * late)
        return lg_strdup("the thread computes all the while, without reads, writes or copies: "
                         "garbage collection, or work that the others don't have");
    if (cpu <= 0.3 * late)
        return lg_strdup("the thread is not on the CPU then: it sleeps, or waits for something "
                         "that is not observed");
    return NULL;
}

static char *preempted_hint(const struct pair *pair)
{
    const struct pair *p = &pair[COUNTER_involuntary_switches];

    if (p->late < 5 || !(p->late >= 3 * p->other))
        return NULL;
    return lg_format("its thread is preempted %.0f times a step (%.0f elsewhere): other processes "
                     "compete for its CPU cores",
                     p->late, p->other);
}

static char *written_hint(const struct pair *pair)
{
    const struct pair *bytes = &pair[COUNTER_write_bytes], *fsyncs = &pair[COUNTER_fsyncs];
    bool syncs = is_more(fsyncs), writes = is_more(bytes) && bytes->late >= 1e6;

    if (!syncs && !writes)
        return NULL;
    return lg_format("it writes %.1f MB there%s: a checkpoint",
                     isnan(bytes->late) ? 0 : bytes->late / 1e6, syncs ? " and calls fsync" : "");
}

static char *read_hint(const struct pair *pair)
{
    const struct pair *reads = &pair[COUNTER_reads], *bytes = &pair[COUNTER_read_bytes];
    const struct pair *faults = &pair[COUNTER_major_faults];

    if (reads->late >= SEEN && reads->other == 0)
        return lg_strdup("only this rank reads");
    if (is_more(faults) && faults->late >= 1)
        return lg_format("%.0f page faults a step need I/O (%.0f elsewhere): a mapped file",
                         faults->late, faults->other);
    if (bytes->late >= READS_MUCH && is_more(bytes))
        return lg_format("it reads %.1f MB a step, elsewhere %.1f MB", bytes->late / 1e6,
                         bytes->other / 1e6);
    if (bytes->late >= READS_DATA && bytes->late <= bytes->other / ALL &&
        bytes->late >= bytes->other * ALL)
        return lg_strdup("it reads no more than elsewhere: its reads are slow, or its work on what "
                         "it reads");
    return NULL;
}

static char *copy_hint(const struct pair *pair)
{
    const struct pair *bytes = &pair[COUNTER_h2d_bytes];

    if (is_more(bytes))
        return lg_format("it copies %.1f MB a step, elsewhere %.1f MB", bytes->late / 1e6,
                         bytes->other / 1e6);
    if (bytes->late > 0 && bytes->other > 0)
        return lg_strdup("it copies no more bytes than elsewhere: pageable memory or a slow link");
    return NULL;
}

static char *find_hint(const struct lg_arrivals *a, const struct lg_lateness *l,
                       enum lg_blame stage, const struct pair *pair)
{
    char *hint = preempted_hint(pair);

    if (hint)
        return hint;
    switch (stage) {
    case LG_BLAME_INPUT:
        return read_hint(pair);
    case LG_BLAME_H2D:
        return copy_hint(pair);
    case LG_BLAME_HOST:
        hint = written_hint(pair);
        return hint || a->cycles->device ? hint : cpu_hint(a, l, pair);
    default:
        return NULL;
    }
}

static double in_thousandths(double value)
{
    return round(value * 1e3) / 1e3;
}

json_t *lg_counters(const struct lg_arrivals *a, const struct lg_lateness *l, enum lg_blame stage,
                    char **hint)
{
    const char *other = is_always(l) ? "other_ranks" : "other_steps";
    struct pair pair[COUNTER_COUNT];
    json_t *object = json_object();

    for (int c = 0; c < COUNTER_COUNT; c++) {
        pair[c] = compare(a, l, counters[c].column);
        if (isnan(pair[c].late) || isnan(pair[c].other) ||
            !(is_more(&pair[c]) || is_less(&pair[c])))
            continue;
        double late = in_thousandths(pair[c].late / counters[c].divisor);
        double others = in_thousandths(pair[c].other / counters[c].divisor);
        if (late == 0 && others == 0) /* a few bytes: "0 against 0" tells nothing */
            continue;
        json_object_set_new(object, counters[c].name,
                            json_pack("{sf sf}", "late", late, other, others));
    }
    *hint = find_hint(a, l, stage, pair);
    if (json_object_size(object) > 0)
        return object;
    json_decref(object);
    return NULL;
}

/* ---- what coincides ---- */

/* How many of the chosen cycles, and of all, have the flag around them. */
static size_t count_flag(const struct lg_arrivals *a, const bool *chosen, unsigned flag,
                         size_t *all)
{
    size_t n = 0;

    *all = 0;
    for (size_t k = 0; k < a->n; k++) {
        bool has = false;

        for (size_t r = 0; r < a->n_ranks; r++) {
            int64_t flags = around(a, r, k, LG_COL_flags);

            has = has || (flags != LG_NULL && (flags & (int64_t)flag));
        }
        *all += has;
        n += has && chosen[k];
    }
    return n;
}

static bool mostly_flagged(const struct lg_arrivals *a, const bool *chosen, unsigned flag)
{
    size_t n = 0, all, flagged = count_flag(a, chosen, flag, &all);

    for (size_t k = 0; k < a->n; k++)
        n += chosen[k];
    return n > 0 && 2 * flagged >= n && 2 * all <= a->n;
}

static bool any_fsync(const struct lg_arrivals *a, const bool *chosen, bool events)
{
    for (size_t r = 0; r < a->n_ranks; r++)
        if (mean_of(a, r, chosen, events, LG_COL_fsyncs) > 0.5)
            return true;
    return false;
}

const char *lg_coincides(const struct lg_arrivals *a, const bool *chosen)
{
    if (any_fsync(a, chosen, true) && !any_fsync(a, chosen, false))
        return "a checkpoint";
    if (mostly_flagged(a, chosen, LG_FLAG_epoch_start))
        return "the begin of an epoch";
    if (mostly_flagged(a, chosen, LG_FLAG_has_eval))
        return "an evaluation";
    return NULL;
}
