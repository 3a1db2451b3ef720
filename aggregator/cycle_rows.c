/*
 * cycle_rows.c - rows to cycles (cycle_rows.h). Runs in the reading commands.
 *
 * What a row lacks: a stage that is NULL took no time of its own (its time is in other), except
 * forward and backward, without which there is no attribution. Without time in collectives for
 * backward, where gradients are reduced, nothing is known about waiting; a NULL of another stage is
 * one without collectives. Rows without the "after" columns (imported ones): backward lies before
 * the last sync, optimizer and other after it.
 */
#include "aggregator/cycle_rows.h"

#include <string.h>

#define HOST_COLUMN(name)        LG_COL_##name##_ns,
#define HOST_SYNC_COLUMN(name)   LG_COL_##name##_sync_ns,
#define DEVICE_COLUMN(name)      LG_COL_gpu_##name##_ns,
#define DEVICE_SYNC_COLUMN(name) LG_COL_gpu_##name##_sync_ns,

static const enum lg_column stage_column[2][LG_STAGE_COUNT] = {{LG_STAGES(HOST_COLUMN)},
                                                               {LG_STAGES(DEVICE_COLUMN)}};
static const enum lg_column sync_column[2][LG_STAGE_COUNT] = {{LG_STAGES(HOST_SYNC_COLUMN)},
                                                              {LG_STAGES(DEVICE_SYNC_COLUMN)}};
static const enum lg_column after_column[2][3] = {
    {LG_COL_backward_after_ns, LG_COL_optimizer_after_ns, LG_COL_other_after_ns},
    {LG_COL_gpu_backward_after_ns, LG_COL_gpu_optimizer_after_ns, LG_COL_gpu_other_after_ns}};

static int64_t value(const int64_t *column, size_t row)
{
    return column ? column[row] : LG_NULL;
}

static int64_t or_zero(int64_t ns)
{
    return ns == LG_NULL ? 0 : lg_cycle_sane(ns);
}

static bool is_merged(const struct lg_cycle_view *v, size_t row)
{
    return (value(v->stage[LG_STAGE_forward], row) == LG_NULL ||
            value(v->stage[LG_STAGE_backward], row) == LG_NULL) &&
           value(v->compute, row) != LG_NULL;
}

/* The column, or NULL where it holds nothing but 0 and LG_NULL and either means no time at all. */
static const int64_t *unless_empty(const int64_t *column, size_t n)
{
    for (size_t i = 0; column && i < n; i++)
        if (column[i] != 0 && column[i] != LG_NULL)
            return column;
    return NULL;
}

bool lg_cycle_view_of(const struct lg_rank *rank, bool device, struct lg_cycle_view *v)
{
    *v = (struct lg_cycle_view){
        .dur = rank->value[device ? LG_COL_gpu_dur_ns : LG_COL_dur_ns],
        .compute = device ? NULL : rank->value[LG_COL_compute_ns],
    };
    for (int s = 0; s < LG_STAGE_COUNT; s++) {
        v->stage[s] = s == LG_STAGE_other ? NULL : rank->value[stage_column[device][s]];
        v->sync[s] = rank->value[sync_column[device][s]];
        if (s == LG_STAGE_forward || s == LG_STAGE_backward)
            continue; /* whether those were measured tells something */
        v->stage[s] = unless_empty(v->stage[s], rank->n);
        v->sync[s] = unless_empty(v->sync[s], rank->n);
    }
    v->after[LG_STAGE_backward] = rank->value[after_column[device][0]];
    v->after[LG_STAGE_optimizer] = rank->value[after_column[device][1]];
    v->after[LG_STAGE_other] = rank->value[after_column[device][2]];
    for (size_t i = 0; v->compute && i < rank->n; i++)
        if (is_merged(v, i))
            return true;
    v->compute = NULL;
    return false;
}

static void prefetch(const int64_t *column, size_t row)
{
    if (column) {
        __builtin_prefetch(column + row);
        __builtin_prefetch(column + row + 8);
    }
}

void lg_cycle_prefetch(const struct lg_cycle_view *v, size_t row)
{
    prefetch(v->dur, row);
    prefetch(v->compute, row);
    for (int s = 0; s < LG_STAGE_COUNT; s++) {
        prefetch(v->stage[s], row);
        prefetch(v->sync[s], row);
        prefetch(v->after[s], row);
    }
}

static int64_t own_part(int64_t wall, int64_t sync)
{
    return wall > sync ? wall - sync : 0;
}

/* Forward and backward, which were measured: apart, or both as forward. */
static void read_compute(const struct lg_cycle_view *v, size_t row, struct lg_own_row *out,
                         int64_t *wall)
{
    int64_t forward = value(v->stage[LG_STAGE_forward], row),
            backward = value(v->stage[LG_STAGE_backward], row);
    int64_t forward_sync = out->sync[LG_STAGE_forward],
            backward_sync = out->sync[LG_STAGE_backward];

    *wall = forward != LG_NULL && backward != LG_NULL
                ? lg_cycle_sane(forward) + lg_cycle_sane(backward)
                : lg_cycle_sane(value(v->compute, row));
    if (v->merge) {
        out->own[LG_STAGE_forward] = own_part(*wall, forward_sync + backward_sync);
        out->own[LG_STAGE_backward] = 0;
    } else {
        out->own[LG_STAGE_forward] = own_part(lg_cycle_sane(forward), forward_sync);
        out->own[LG_STAGE_backward] = own_part(lg_cycle_sane(backward), backward_sync);
    }
}

bool lg_cycle_row_measured(const struct lg_cycle_view *v, size_t row)
{
    int64_t sync = value(v->sync[LG_STAGE_backward], row);
    bool merged = v->compute && is_merged(v, row);

    if (sync == LG_NULL && merged)
        sync = value(v->sync[LG_STAGE_forward], row);
    return sync != LG_NULL && value(v->dur, row) != LG_NULL &&
           (merged || (value(v->stage[LG_STAGE_forward], row) != LG_NULL &&
                       value(v->stage[LG_STAGE_backward], row) != LG_NULL));
}

static bool read_row(const struct lg_cycle_view *v, size_t row, struct lg_own_row *out)
{
    int64_t dur = value(v->dur, row), wall;

    if (!lg_cycle_row_measured(v, row))
        return false;
    for (int s = 0; s < LG_STAGE_COUNT; s++)
        out->sync[s] = or_zero(value(v->sync[s], row));
    read_compute(v, row, out, &wall);
    dur = lg_cycle_sane(dur) - wall;
    for (int s = 0; s < LG_STAGE_COUNT; s++) {
        if (s == LG_STAGE_forward || s == LG_STAGE_backward)
            continue;
        wall = s == LG_STAGE_other ? dur : or_zero(value(v->stage[s], row));
        out->own[s] = own_part(wall, out->sync[s]);
        dur -= s == LG_STAGE_other ? 0 : wall;
    }
    return true;
}

/* The stages whose own time can lie after the last sync. */
static const struct {
    enum lg_stage stage;
    enum lg_part after, before;
} split[] = {
    {LG_STAGE_backward, LG_PART_backward_after, LG_PART_backward},
    {LG_STAGE_optimizer, LG_PART_optimizer_after, LG_PART_optimizer},
    {LG_STAGE_other, LG_PART_host_after, LG_PART_host},
};
#define SPLITS (sizeof(split) / sizeof(split[0]))

/* Own time of the stage after the row's last sync. */
static int64_t after_part(const struct lg_cycle_view *v, size_t row, const struct lg_own_row *r,
                          enum lg_stage stage)
{
    int64_t after = value(v->after[stage], row);
    bool merged = v->merge && stage == LG_STAGE_backward;
    int64_t own = r->own[merged ? LG_STAGE_forward : stage];

    if (after == LG_NULL)
        return stage == LG_STAGE_backward ? 0 : own;
    after = lg_cycle_sane(after);
    return after < own ? after : own;
}

/* The sync of a stage all of whose own time counts as after belongs to the cycle of that time. */
static bool sync_goes_with_after(const struct lg_cycle_view *v, size_t row, enum lg_stage stage)
{
    return stage != LG_STAGE_backward && value(v->after[stage], row) == LG_NULL;
}

static void add_after(const struct lg_cycle_view *v, size_t row, const struct lg_own_row *r,
                      struct lg_cycle_row *cycle)
{
    for (size_t i = 0; i < SPLITS; i++) {
        cycle->part[split[i].after] = after_part(v, row, r, split[i].stage);
        if (sync_goes_with_after(v, row, split[i].stage))
            cycle->sync[split[i].stage] += r->sync[split[i].stage];
    }
}

static void add_whole(const struct lg_own_row *r, struct lg_cycle_row *cycle)
{
    static const enum lg_part part[LG_STAGE_COUNT] = {
        [LG_STAGE_input_wait] = LG_PART_input,    [LG_STAGE_h2d] = LG_PART_h2d,
        [LG_STAGE_forward] = LG_PART_forward,     [LG_STAGE_backward] = LG_PART_backward,
        [LG_STAGE_optimizer] = LG_PART_optimizer, [LG_STAGE_other] = LG_PART_host,
    };

    for (int s = 0; s < LG_STAGE_COUNT; s++) {
        cycle->part[part[s]] += r->own[s];
        cycle->sync[s] += r->sync[s];
    }
}

/* What of the row lies after its last sync is the next cycle's. */
static void take_after(const struct lg_cycle_view *v, size_t row, const struct lg_own_row *r,
                       struct lg_cycle_row *cycle)
{
    for (size_t i = 0; i < SPLITS; i++) {
        enum lg_stage stage = split[i].stage;
        bool merged = v->merge && stage == LG_STAGE_backward;

        cycle->part[merged ? LG_PART_forward : split[i].before] -= after_part(v, row, r, stage);
        if (sync_goes_with_after(v, row, stage))
            cycle->sync[stage] -= r->sync[stage];
    }
}

/* The row as v->row; false: not measured. */
static bool read_next(struct lg_cycle_view *v, size_t row)
{
    if (v->has_read && v->read == row)
        return v->measured;
    v->has_read = true;
    v->read = row;
    v->measured = read_row(v, row, &v->row);
    return v->measured;
}

bool lg_cycle_read(struct lg_cycle_view *v, size_t previous, size_t last,
                   struct lg_cycle_row *cycle)
{
    memset(cycle, 0, sizeof(*cycle));
    if (!read_next(v, previous))
        return false;
    add_after(v, previous, &v->row, cycle);
    for (size_t i = previous + 1; i <= last; i++) {
        if (!read_next(v, i))
            return false;
        add_whole(&v->row, cycle);
    }
    take_after(v, last, &v->row, cycle);
    return true;
}
