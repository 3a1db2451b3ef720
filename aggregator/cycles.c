/*
 * cycles.c - cycles between exits from collectives (cycles.h): which clock they are read on, which
 * rows make up each, and what the rules need of every cycle. Runs in the reading commands.
 */
#include "aggregator/cycles.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/arrival.h"
#include "aggregator/cycle_rows.h"
#include "aggregator/order.h"

#define TILE_BYTES ((size_t)1 << 20) /* rows read at a time: what processors keep near */
#define CACHE_BYTES                                                                                \
    ((size_t)24 << 20)     /* rows kept of a scope that is looked at again and again               \
                            */
#define MATERIAL_SYNC 0.01 /* of the time: below it a stage's sync is not a sync point */
#define IGNORES       0.05 /* below this part of its time a host does not wait for its device */
#define WARM_UP_LONG  1.5  /* leading steps longer than so many typical ones are warm-up... */
#define WARM_UP_MOST  0.1  /* ...up to this part of the run */

struct lg_cycle_cache {
    struct lg_cycle_view *view; /* [rank] */
    struct lg_cycle_row *row;   /* [cycle - begin][rank] */
    size_t begin, end, capacity;
    int64_t *list; /* room for one number per rank */
};

const char *lg_part_name(enum lg_part part)
{
#define PART_NAME(name, stage) #name,
    static const char *const names[] = {LG_PARTS(PART_NAME)};

    return names[part];
}

enum lg_stage lg_part_stage(enum lg_part part)
{
#define PART_STAGE(name, stage) LG_STAGE_##stage,
    static const enum lg_stage stages[] = {LG_PARTS(PART_STAGE)};

    return stages[part];
}

/* ---- which clock ---- */

static double sum_column(const struct lg_rank *rank, enum lg_column column, size_t *measured)
{
    const int64_t *value = rank->value[column];
    double sum = 0;

    *measured = 0;
    for (size_t i = 0; value && i < rank->n; i++) {
        if (value[i] != LG_NULL) {
            sum += (double)value[i];
            (*measured)++;
        }
    }
    return sum;
}

bool lg_rank_uses_device(const struct lg_rank *rank)
{
    size_t n;

    return rank->has_device || lg_rank_measured(rank, LG_COL_gpu_dur_ns) ||
           sum_column(rank, LG_COL_device_wait_ns, &n) > 0;
}

bool lg_rank_ignores_device(const struct lg_rank *rank)
{
    size_t waits, durations;
    double wait = sum_column(rank, LG_COL_device_wait_ns, &waits);
    double dur = sum_column(rank, LG_COL_dur_ns, &durations);

    return waits > 0 && durations > 0 && wait / (double)waits < IGNORES * (dur / (double)durations);
}

static bool any_rank_uses_device(const struct lg_aligned *a)
{
    for (size_t r = 0; r < a->n_ranks; r++)
        if (lg_rank_uses_device(a->rank[r]))
            return true;
    return false;
}

/* A slow device would show on the host: no rank's host waits for its device. */
static bool host_tells(const struct lg_aligned *a)
{
    for (size_t r = 0; r < a->n_ranks; r++)
        if (lg_rank_uses_device(a->rank[r]) && !lg_rank_ignores_device(a->rank[r]))
            return false;
    return true;
}

/* ---- rows of a cycle ---- */

/* Steps without a row since the step before; the same number on every rank, or work is missing. */
static int64_t steps_missing(const struct lg_aligned *a, size_t rank, size_t iteration)
{
    const uint32_t *row = a->row[rank];
    const int64_t *step = a->rank[rank]->step;

    return step[row[iteration]] - step[row[iteration - 1]] -
           ((int64_t)row[iteration] - (int64_t)row[iteration - 1]);
}

/* Lists the cycles between used iterations that no rank lacks a row of. */
static void list_cycles(struct lg_cycles *c)
{
    const struct lg_aligned *a = c->aligned;
    bool *broken = lg_alloc(a->n, sizeof(*broken));

    for (size_t r = 1; r < a->n_ranks; r++)
        for (size_t it = 1; it < a->n; it++)
            broken[it] |= steps_missing(a, r, it) != steps_missing(a, 0, it);
    c->n = 0;
    for (size_t k = 0; k < a->n_used; k++)
        if (a->used[k] > 0 && !broken[a->used[k]])
            c->cycle[c->n++] = (struct lg_cycle){.used = k, .measured = true};
    free(broken);
}

/* Which of them were measured, on every rank. */
static void mark_measured(struct lg_cycles *c)
{
    const struct lg_aligned *a = c->aligned;

    for (size_t r = 0; r < c->n_ranks; r++) {
        const struct lg_cycle_view *view = &c->cache->view[r];

        for (size_t k = 0; k < c->n; k++) {
            size_t it = lg_cycle_iteration(c, k);

            for (size_t i = a->row[r][it - 1]; i <= a->row[r][it]; i++)
                if (!lg_cycle_row_measured(view, i))
                    c->cycle[k].measured = false;
        }
    }
}

/* ---- the rows that were read last ---- */

/* Cycles [from, to), which lie in the cache's range. */
static void fill_tile(struct lg_cycles *c, size_t from, size_t to)
{
    const struct lg_aligned *a = c->aligned;
    struct lg_cycle_cache *cache = c->cache;

    for (size_t r = 0; r < c->n_ranks; r++) {
        if (r + 1 < c->n_ranks)
            lg_cycle_prefetch(&cache->view[r + 1], a->row[r + 1][lg_cycle_iteration(c, from)]);
        for (size_t k = from; k < to; k++) {
            size_t it = lg_cycle_iteration(c, k);

            lg_cycle_read(&cache->view[r], a->row[r][it - 1], a->row[r][it],
                          &cache->row[(k - cache->begin) * c->n_ranks + r]);
        }
    }
}

static size_t tile_of(const struct lg_cycles *c)
{
    return 1 + TILE_BYTES / (c->n_ranks * sizeof(struct lg_cycle_row));
}

static void fill_cache(struct lg_cycles *c, size_t begin, size_t end)
{
    size_t tile = tile_of(c);

    c->cache->begin = begin;
    c->cache->end = end;
    for (size_t k = begin; k < end; k += tile)
        fill_tile(c, k, k + tile < end ? k + tile : end);
}

const struct lg_cycle_row *lg_cycle_rows(struct lg_cycles *c, size_t cycle)
{
    struct lg_cycle_cache *cache = c->cache;

    if (cycle < cache->begin || cycle >= cache->end) {
        size_t end = cycle + (tile_of(c) < cache->capacity ? tile_of(c) : cache->capacity);

        fill_cache(c, cycle, end < c->n ? end : c->n);
    }
    return &cache->row[(cycle - cache->begin) * c->n_ranks];
}

static void make_cache(struct lg_cycles *c)
{
    struct lg_cycle_cache *cache = c->cache = lg_alloc(1, sizeof(*cache));

    cache->capacity = CACHE_BYTES / (c->n_ranks * sizeof(*cache->row));
    if (cache->capacity > c->aligned->n_used)
        cache->capacity = c->aligned->n_used;
    if (cache->capacity < 2)
        cache->capacity = 2;
    cache->view = lg_alloc(c->n_ranks, sizeof(*cache->view));
    cache->row = lg_alloc(cache->capacity * c->n_ranks, sizeof(*cache->row));
    cache->list = lg_alloc(c->n_ranks, sizeof(*cache->list));
}

static void free_cache(struct lg_cycle_cache *cache)
{
    if (!cache)
        return;
    free(cache->view);
    free(cache->row);
    free(cache->list);
    free(cache);
}

/* ---- the run as a whole ---- */

static double run_step(const struct lg_cycles *c)
{
    const struct lg_aligned *a = c->aligned;
    int64_t *value = lg_alloc(c->n_ranks * a->n_used, sizeof(*value));
    size_t n = 0;
    double median = (double)NAN;

    for (size_t r = 0; r < c->n_ranks; r++) {
        for (size_t k = 0; k < a->n_used; k++) {
            int64_t dur = lg_cycles_duration(c, r, a->used[k]);

            if (dur != LG_NULL)
                value[n++] = dur;
        }
    }
    if (n > 0)
        median = lg_median(value, n);
    free(value);
    return median;
}

static double sum_of(const int64_t *value, size_t from, size_t to)
{
    double sum = 0;

    for (size_t i = from; value && i < to; i++)
        sum += value[i] == LG_NULL ? 0 : (double)lg_cycle_sane(value[i]);
    return sum;
}

/* Collectives that block in more than one stage: ranks can wait for each other in one after the
 * other. */
static bool several_sync_points(const struct lg_cycles *c)
{
    const struct lg_aligned *a = c->aligned;
    double sum[LG_STAGE_COUNT] = {0}, all = 0;
    int points = 0;

    for (size_t r = 0; r < c->n_ranks && c->n > 0; r++) {
        const struct lg_cycle_view *view = &c->cache->view[r];
        size_t from = a->row[r][lg_cycle_iteration(c, 0)],
               to = a->row[r][lg_cycle_iteration(c, c->n - 1)] + 1;

        all += sum_of(view->dur, from, to);
        for (int s = 0; s < LG_STAGE_COUNT; s++)
            sum[s] += sum_of(view->sync[s], from, to);
    }
    for (int s = 0; s < LG_STAGE_COUNT; s++)
        points += sum[s] > 0 && sum[s] >= MATERIAL_SYNC * all;
    return points > 1;
}

/* Median over the ranks of the step's duration. */
static double typical_duration(const struct lg_cycles *c, size_t iteration)
{
    size_t n = 0;

    for (size_t r = 0; r < c->n_ranks; r++) {
        int64_t dur = lg_cycles_duration(c, r, iteration);

        if (dur != LG_NULL)
            c->cache->list[n++] = dur;
    }
    return n ? lg_median(c->cache->list, n) : (double)NAN;
}

/* Leading steps that are warm-up though no flag says so. */
static void drop_warm_up(struct lg_cycles *c)
{
    const struct lg_aligned *a = c->aligned;
    size_t most = (size_t)(WARM_UP_MOST * (double)a->n_used), drop = 0;

    while (c->warm_up < most &&
           typical_duration(c, a->used[c->warm_up]) > WARM_UP_LONG * c->step_ns)
        c->warm_up++;
    while (drop < c->n && c->cycle[drop].used < c->warm_up)
        drop++;
    c->n -= drop;
    memmove(c->cycle, c->cycle + drop, c->n * sizeof(*c->cycle));
}

/* ---- what the rules need of a cycle ---- */

/* Part that a stage's sync comes after. */
static enum lg_part sync_follows(enum lg_stage stage)
{
    static const enum lg_part part[LG_STAGE_COUNT] = {
        [LG_STAGE_input_wait] = LG_PART_input,  [LG_STAGE_h2d] = LG_PART_h2d,
        [LG_STAGE_other] = LG_PART_host,        [LG_STAGE_forward] = LG_PART_forward,
        [LG_STAGE_backward] = LG_PART_backward, [LG_STAGE_optimizer] = LG_PART_optimizer,
    };

    return part[stage];
}

static int64_t sum_parts(const struct lg_cycle_row *row, int from, int to)
{
    int64_t sum = 0;

    for (int p = from; p <= to; p++)
        sum += row->part[p];
    return sum;
}

static int64_t sum_sync(const struct lg_cycle_row *row)
{
    int64_t sum = 0;

    for (int s = 0; s < LG_STAGE_COUNT; s++)
        sum += row->sync[s];
    return sum;
}

static void set_arrivals(struct lg_cycles *c, struct lg_cycle *cycle,
                         const struct lg_cycle_row *row, int64_t *lateness)
{
    int64_t *list = c->cache->list, sum = 0;
    struct lg_middle middle;

    cycle->second = INT64_MIN;
    for (size_t r = 0; r < c->n_ranks; r++) {
        int64_t arrival = list[r] = lateness[r] = sum_parts(&row[r], 0, LG_PART_COUNT - 1);

        sum += arrival;
        if (r == 0 || arrival > cycle->arrival) {
            cycle->second = r == 0 ? INT64_MIN : cycle->arrival;
            cycle->arrival = arrival;
            cycle->latest = (uint32_t)r;
        } else if (arrival > cycle->second) {
            cycle->second = arrival;
        }
    }
    cycle->mean_arrival = sum / (int64_t)c->n_ranks;
    middle = lg_middle_of(list, c->n_ranks);
    for (size_t r = 0; r < c->n_ranks; r++)
        lateness[r] -= lg_median_of_others(&middle, lateness[r]);
}

/* One sync a cycle: what is above the smallest S is waiting. */
static void set_waits(struct lg_cycles *c, struct lg_cycle *cycle, const struct lg_cycle_row *row)
{
    int64_t *list = c->cache->list, most = 0;
    struct lg_middle middle;

    for (size_t r = 0; r < c->n_ranks; r++) {
        list[r] = sum_sync(&row[r]);
        most = r == 0 || list[r] > most ? list[r] : most;
        cycle->transfer = r == 0 || list[r] < cycle->transfer ? list[r] : cycle->transfer;
    }
    middle = lg_middle_of(list, c->n_ranks);
    cycle->spread = most - cycle->transfer;
    cycle->cost = lg_upper_median(&middle) - cycle->transfer;
    cycle->pure_transfer = cycle->transfer;
    cycle->time = cycle->arrival + cycle->transfer;
}

/* Several syncs: waiting is told stage by stage, and added. */
static void set_mutual_waits(struct lg_cycles *c, struct lg_cycle *cycle,
                             const struct lg_cycle_row *row)
{
    int64_t *list = c->cache->list, least[LG_STAGE_COUNT];
    struct lg_middle middle;

    cycle->pure_transfer = cycle->time = 0;
    for (int s = 0; s < LG_STAGE_COUNT; s++) {
        least[s] = row[0].sync[s];
        for (size_t r = 1; r < c->n_ranks; r++)
            least[s] = row[r].sync[s] < least[s] ? row[r].sync[s] : least[s];
        cycle->pure_transfer += least[s];
    }
    for (size_t r = 0; r < c->n_ranks; r++) {
        int64_t sync = sum_sync(&row[r]), all = sum_parts(&row[r], 0, LG_PART_COUNT - 1) + sync;

        list[r] = sync - cycle->pure_transfer;
        cycle->time = all > cycle->time ? all : cycle->time;
    }
    middle = lg_middle_of(list, c->n_ranks);
    cycle->cost = lg_upper_median(&middle);
}

/* A rank that is late for one sync and early for the next makes the others wait all the same: its
 * lateness per stretch of work between two syncs, added where it is more than a little, if that is
 * more than its lateness as a whole. */
static void add_stretches(struct lg_cycles *c, const struct lg_cycle_row *row, int64_t *lateness)
{
    int64_t *list = c->cache->list, *sum = lg_alloc(c->n_ranks, sizeof(*sum));
    bool ends[LG_PART_COUNT] = {[LG_PART_COUNT - 1] = true};

    for (int s = 0; s < LG_STAGE_COUNT; s++)
        for (size_t r = 0; r < c->n_ranks; r++)
            ends[sync_follows(s)] |= row[r].sync[s] > 0;
    for (int from = 0, to = 0; to < LG_PART_COUNT; to++) {
        struct lg_middle middle;

        if (!ends[to])
            continue;
        for (size_t r = 0; r < c->n_ranks; r++)
            list[r] = sum_parts(&row[r], from, to);
        middle = lg_middle_of(list, c->n_ranks);
        for (size_t r = 0; r < c->n_ranks; r++) {
            int64_t own = sum_parts(&row[r], from, to);
            int64_t late = own - lg_median_of_others(&middle, own);

            sum[r] += (double)late >= LG_LATE * c->step_ns ? late : 0;
        }
        from = to + 1;
    }
    for (size_t r = 0; r < c->n_ranks; r++)
        lateness[r] = sum[r] > lateness[r] ? sum[r] : lateness[r];
    free(sum);
}

static void set_cycle(struct lg_cycles *c, size_t k)
{
    struct lg_cycle *cycle = &c->cycle[k];
    const struct lg_cycle_row *row = lg_cycle_rows(c, k);
    int64_t *lateness = &c->lateness[k * c->n_ranks];

    cycle->set = true;
    if (c->n_ranks == 0)
        return;
    set_arrivals(c, cycle, row, lateness);
    set_waits(c, cycle, row);
    if (c->several) {
        set_mutual_waits(c, cycle, row);
        add_stretches(c, row, lateness);
    }
}

void lg_cycles_prepare(struct lg_cycles *c, size_t from, size_t to)
{
    if (from == to)
        return;
    if (to - from <= c->cache->capacity && (from < c->cache->begin || to > c->cache->end))
        fill_cache(c, from, to);
    for (size_t k = from; k < to; k++)
        if (c->cycle[k].measured && !c->cycle[k].set)
            set_cycle(c, k);
}

/* Cycles begin where all ranks have been measured: rows before the first collective have not. */
static void drop_unmeasured_begin(struct lg_cycles *c)
{
    size_t drop = 0;

    while (drop < c->n && !c->cycle[drop].measured)
        drop++;
    c->n -= drop;
    memmove(c->cycle, c->cycle + drop, c->n * sizeof(*c->cycle));
}

static size_t holes(const struct lg_cycles *c)
{
    size_t n = 0;

    for (size_t k = 0; k < c->n; k++)
        n += !c->cycle[k].measured;
    return n;
}

/* Finds the cycles on one of the clocks. */
static void build(struct lg_cycles *c, bool device)
{
    c->device = device;
    c->warm_up = 0;
    c->merged = false;
    for (size_t r = 0; r < c->n_ranks; r++)
        c->merged |= lg_cycle_view_of(c->aligned->rank[r], device, &c->cache->view[r]);
    for (size_t r = 0; r < c->n_ranks; r++)
        c->cache->view[r].merge = c->merged;
    c->cache->begin = c->cache->end = 0; /* of another clock, perhaps */
    list_cycles(c);
    c->step_ns = run_step(c);
    drop_warm_up(c);
    mark_measured(c);
    drop_unmeasured_begin(c);
    c->several = several_sync_points(c);
}

static bool all_have_device_times(const struct lg_aligned *a)
{
    for (size_t r = 0; r < a->n_ranks; r++)
        if (!lg_rank_measured(a->rank[r], LG_COL_gpu_dur_ns))
            return false;
    return true;
}

/* Device times if there are any and no gap is in them, else the host's if those tell. */
static void choose_clock(struct lg_cycles *c)
{
    bool tells = host_tells(c->aligned);

    if (any_rank_uses_device(c->aligned)) {
        if (all_have_device_times(c->aligned))
            build(c, true);
        if (c->n > 0 && (holes(c) == 0 || !tells))
            return;
        if (!tells) {
            c->abstain = LG_NO_DEVICE_SKEW;
            return;
        }
    }
    build(c, false);
    if (c->n == 0)
        c->abstain = LG_NO_SYNC;
}

struct lg_cycles *lg_cycles_new(const struct lg_aligned *a)
{
    struct lg_cycles *c = lg_alloc(1, sizeof(*c));

    c->aligned = a;
    c->n_ranks = a->n_ranks;
    c->step_ns = (double)NAN;
    if (a->n_ranks < 2) {
        c->abstain = LG_NO_OTHERS;
        return c;
    }
    make_cache(c);
    c->cycle = lg_alloc(a->n_used, sizeof(*c->cycle));
    c->lateness = lg_alloc(a->n_used * a->n_ranks, sizeof(*c->lateness));
    choose_clock(c);
    return c;
}

void lg_cycles_free(struct lg_cycles *c)
{
    if (!c)
        return;
    free_cache(c->cache);
    free(c->cycle);
    free(c->lateness);
    free(c);
}

/* ---- rows as they stand ---- */

int64_t lg_cycles_duration(const struct lg_cycles *c, size_t rank, size_t iteration)
{
    int64_t dur = lg_aligned_value(c->aligned, rank, iteration,
                                   c->device ? LG_COL_gpu_dur_ns : LG_COL_dur_ns);

    return dur == LG_NULL ? LG_NULL : lg_cycle_sane(dur);
}

int64_t lg_cycles_sync(const struct lg_cycles *c, size_t rank, size_t iteration)
{
#define HOST_SYNC(stage)   LG_COL_##stage##_sync_ns,
#define DEVICE_SYNC(stage) LG_COL_gpu_##stage##_sync_ns,
    static const enum lg_column host[] = {LG_STAGES(HOST_SYNC)},
                                device[] = {LG_STAGES(DEVICE_SYNC)};
    int64_t sum = LG_NULL;

    for (int s = 0; s < LG_STAGE_COUNT; s++) {
        int64_t sync =
            lg_aligned_value(c->aligned, rank, iteration, c->device ? device[s] : host[s]);

        if (sync != LG_NULL)
            sum = (sum == LG_NULL ? 0 : sum) + lg_cycle_sane(sync);
    }
    return sum;
}
