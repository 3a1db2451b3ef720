/*
 * step.c - the step core, see step.h. Context: hooks on the training thread only.
 */
#include "preload/step.h"

#include <string.h>

#include "preload/device.h"
#include "preload/identity.h"

static void add_part(struct lg_part *to, const struct lg_part *from)
{
    to->time += from->time;
    to->sync += from->sync;
    to->after += from->after;
}

/* Host time now; the device's marks of the row follow where it is not a copy (`settle`). */
static void move_part(struct lg_row *row, unsigned from, unsigned to)
{
    add_part(&row->part[to], &row->part[from]);
    row->part[from] = (struct lg_part){0};
}

/* What no stage was found for: held back time, time after the commit, evaluation. */
static void settle(struct lg_row *row)
{
    move_part(row, LG_PART_HOLD, LG_STAGE_other);
    move_part(row, LG_PART_TAIL, LG_STAGE_other);
    move_part(row, LG_PART_EVAL, LG_STAGE_other);
    move_part(row, LG_PART_IO, LG_STAGE_other);
}

static void open_row(struct lg_step *s, uint64_t begin, const struct lg_counts *base)
{
    memset(&s->row, 0, sizeof s->row);
    s->row.begin = begin;
    s->row.base = *base;
    s->row.first_mark = lg_device_next_mark();
    s->ended = false;
    s->turns++;
}

void lg_step_start(struct lg_step *s, uint64_t now)
{
    struct lg_counts base;
    lg_counts_now(&base, true);
    open_row(s, now, &base);
    s->row.flags = LG_FLAG_first;
    s->started = true;
    s->now = now;
}

void lg_step_charge(struct lg_step *s, uint64_t now, unsigned part)
{
    struct lg_part *p = &s->row.part[part];
    uint64_t d = now - s->now;
    s->now = now;
    if (!s->started)
        return;
    p->time += d;
    if (s->waiting > 0)
        p->sync += d;
    else
        p->after += d;
}

void lg_step_move(struct lg_step *s, unsigned from, unsigned to)
{
    move_part(&s->row, from, to);
    lg_device_move(s->row.first_mark, from, to);
}

void lg_step_synced(struct lg_step *s)
{
    for (unsigned i = 0; i < LG_PARTS; i++)
        s->row.part[i].after = 0;
    s->row.synced = true;
}

void lg_step_commit(struct lg_step *s, bool usage)
{
    /* evaluation before the commit is this row's, whoever gets what comes after it */
    move_part(&s->row, LG_PART_EVAL, LG_STAGE_other);
    lg_counts_now(&s->row.last, usage);
    s->ended = true;
    s->turns++;
    s->row.end = s->now;
    s->row.last_mark = lg_device_next_mark();
    s->committed = s->row;
    settle(&s->committed);
}

void lg_step_close(struct lg_step *s, struct lg_row *out)
{
    settle(&s->row);
    s->row.end = s->now;
    s->row.last_mark = lg_device_next_mark();
    lg_counts_now(&s->row.last, true);
    *out = s->row;
    open_row(s, s->now, &out->last);
}

void lg_step_close_at_commit(struct lg_step *s, struct lg_row *out)
{
    const struct lg_row late = s->row;
    *out = s->committed;
    if (!out->last.usage)
        lg_counts_usage(&out->last);
    open_row(s, out->end, &out->last);
    for (unsigned i = LG_PART_TAIL; i < LG_PARTS; i++)
        s->row.part[i] = late.part[i];
    s->row.first_mark = out->last_mark;
    s->row.synced = late.part[LG_PART_TAIL].sync + late.part[LG_PART_EVAL].sync > 0;
    s->row.flags = late.flags & ~s->committed.flags;
}

void lg_row_prepend(struct lg_row *later, const struct lg_row *earlier)
{
    for (unsigned i = 0; i < LG_PARTS; i++) {
        const struct lg_part p = earlier->part[i];
        later->part[i].time += p.time;
        later->part[i].sync += p.sync;
        if (!later->synced)
            later->part[i].after += p.after;
    }
    later->begin = earlier->begin;
    later->first_mark = earlier->first_mark;
    later->base = earlier->base;
    later->n_input += earlier->n_input;
    later->n_backward += earlier->n_backward;
    later->n_sync += earlier->n_sync;
    later->n_optimizer += earlier->n_optimizer;
    later->flags |= earlier->flags;
    later->sources |= earlier->sources;
    later->synced |= earlier->synced;
}

static int64_t difference(uint64_t last, uint64_t base)
{
    return (int64_t)(last - base);
}

static void stage_columns(const struct lg_row *row, int64_t *value, bool sync_known)
{
#define STAGE(name)                                                                                \
    value[LG_COL_##name##_ns] = (int64_t)row->part[LG_STAGE_##name].time;                          \
    if (sync_known)                                                                                \
        value[LG_COL_##name##_sync_ns] = (int64_t)row->part[LG_STAGE_##name].sync;
    LG_STAGES(STAGE)
#undef STAGE
    if (sync_known && row->synced) {
        value[LG_COL_backward_after_ns] = (int64_t)row->part[LG_STAGE_backward].after;
        value[LG_COL_optimizer_after_ns] = (int64_t)row->part[LG_STAGE_optimizer].after;
        value[LG_COL_other_after_ns] = (int64_t)row->part[LG_STAGE_other].after;
    }
}

/* The two stages as one column; the sync part then stands in backward_sync (waiting in a collective
 * is never forward's in such a program). */
static void unsplit_columns(const struct lg_row *row, int64_t *value, bool sync_known)
{
    const struct lg_part *f = &row->part[LG_STAGE_forward], *b = &row->part[LG_STAGE_backward];
    value[LG_COL_compute_ns] = (int64_t)(f->time + b->time);
    value[LG_COL_forward_ns] = value[LG_COL_backward_ns] = LG_NULL;
    if (sync_known) {
        value[LG_COL_forward_sync_ns] = LG_NULL;
        value[LG_COL_backward_sync_ns] = (int64_t)(f->sync + b->sync);
    }
}

/* Stages that this source could not observe. */
static void unknown_columns(const struct lg_row *row, int64_t *value)
{
#define UNKNOWN(name)                                                                              \
    if ((row->unknown & 1u << LG_STAGE_##name) != 0)                                               \
        value[LG_COL_##name##_ns] = value[LG_COL_##name##_sync_ns] = LG_NULL;
    LG_STAGES(UNKNOWN)
#undef UNKNOWN
}

static void counter_columns(const struct lg_row *row, int64_t *value)
{
    uint32_t seen = lg_identity_seen();
    const struct lg_counts *a = &row->base, *z = &row->last;
    value[LG_COL_reads] = difference(z->reads, a->reads);
    value[LG_COL_read_bytes] = difference(z->read_bytes, a->read_bytes);
    value[LG_COL_write_bytes] = difference(z->write_bytes, a->write_bytes);
    value[LG_COL_fsyncs] = difference(z->fsyncs, a->fsyncs);
    if ((seen & LG_SEEN_CUDA) != 0) {
        value[LG_COL_h2d_copies] = difference(z->h2d_copies, a->h2d_copies);
        value[LG_COL_h2d_bytes] = difference(z->h2d_bytes, a->h2d_bytes);
        if (row->last_mark > row->first_mark) /* else the compute stream is not known */
            value[LG_COL_h2d_overlapped] = difference(z->h2d_overlapped, a->h2d_overlapped);
        value[LG_COL_launches] = difference(z->launches, a->launches);
        value[LG_COL_host_syncs] = difference(z->host_syncs, a->host_syncs);
        value[LG_COL_device_wait_ns] = difference(z->device_wait_ns, a->device_wait_ns);
    }
    if ((seen & (LG_SEEN_GLOO | LG_SEEN_NCCL)) != 0) {
        value[LG_COL_collectives] = difference(z->collectives, a->collectives);
        value[LG_COL_collective_bytes] = difference(z->collective_bytes, a->collective_bytes);
        value[LG_COL_collective_seq] = (int64_t)z->collective_seq;
    }
    if (a->usage && z->usage) {
        value[LG_COL_thread_cpu_ns] = difference(z->thread_cpu_ns, a->thread_cpu_ns);
        value[LG_COL_minor_faults] = difference(z->minor_faults, a->minor_faults);
        value[LG_COL_major_faults] = difference(z->major_faults, a->major_faults);
        value[LG_COL_voluntary_switches] = difference(z->voluntary_switches, a->voluntary_switches);
        value[LG_COL_involuntary_switches] =
            difference(z->involuntary_switches, a->involuntary_switches);
    }
}

void lg_row_columns(const struct lg_row *row, int64_t value[LG_COLUMNS])
{
    bool sync_known = lg_identity_sync_known();
    for (int i = 0; i < LG_COLUMNS; i++)
        value[i] = LG_NULL;
    value[LG_COL_start_ns] = (int64_t)row->begin;
    value[LG_COL_dur_ns] = (int64_t)(row->end - row->begin);
    stage_columns(row, value, sync_known);
    if (row->unsplit)
        unsplit_columns(row, value, sync_known);
    unknown_columns(row, value);
    counter_columns(row, value);
    /* a step without a copy has no H2D stage; missing is not zero */
    if (value[LG_COL_h2d_copies] == LG_NULL || value[LG_COL_h2d_copies] == 0)
        value[LG_COL_h2d_ns] = value[LG_COL_h2d_sync_ns] = LG_NULL;
    if ((row->sources & LG_SOURCE_engine) != 0)
        value[LG_COL_n_backward] = (int64_t)row->n_backward;
    value[LG_COL_flags] = (int64_t)row->flags;
    value[LG_COL_sources] = (int64_t)row->sources;
}
