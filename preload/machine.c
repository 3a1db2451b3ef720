/*
 * machine.c - the step rules for PyTorch, see machine.h. Context: hooks on the training thread
 * only.
 */
#include "preload/machine.h"

#include <string.h>

#include "preload/device.h"

#define BIT(flag)          ((uint32_t)LG_FLAG_##flag)
#define SOURCE_BIT(source) ((uint32_t)LG_SOURCE_##source)

/* R1: the part that the time since the last event belongs to. An open Optimizer.step alone never
 * means "optimizer": Lightning and closures run forward and backward inside it. */
static unsigned calling_part(const struct lg_machine *m, bool io)
{
    if (m->input > 0)
        return LG_STAGE_input_wait;
    if (m->backward > 0 && m->accumulates)
        return LG_STAGE_backward;
    if (m->evaluating)
        return LG_PART_EVAL;
    if (m->step.ended && m->optimizer == 0)
        return io ? LG_PART_IO : LG_PART_TAIL;
    if (m->after_backward)
        return LG_STAGE_optimizer;
    return io ? LG_PART_IO : LG_PART_HOLD;
}

static unsigned current_part(const struct lg_machine *m)
{
    return m->h2d > 0 ? LG_STAGE_h2d : calling_part(m, m->io);
}

unsigned lg_machine_device_part(const struct lg_machine *m)
{
    return calling_part(m, false);
}

uint64_t lg_machine_first_mark(const struct lg_machine *m)
{
    return m->held_count > 0 ? m->held[0].first_mark : m->step.row.first_mark;
}

enum lg_stage lg_machine_stage(const struct lg_machine *m)
{
    unsigned p = current_part(m);
    if (p < LG_STAGE_COUNT)
        return (enum lg_stage)p;
    return p == LG_PART_HOLD ? LG_STAGE_forward : LG_STAGE_other;
}

static bool has_loader(const struct lg_machine *m)
{
    return m->step.row.n_input > 0 || (m->ever_input && m->rows_without_input < 3);
}

bool lg_machine_wants_io(const struct lg_machine *m)
{
    return m->step.started && !has_loader(m);
}

/* ---- rows */

static void publish_held(struct lg_machine *m)
{
    uint64_t first = m->number - m->held_count;
    for (uint32_t i = 0; i < m->held_count; i++)
        lg_sink_row(&m->held[i], first + i);
    m->held_count = 0;
    lg_sink_held(m->held, 0, m->number);
}

/* R8, R9, R10: what a closed row tells about the rows to come. */
static void learn(struct lg_machine *m, struct lg_row *row)
{
    m->rows_without_input = row->n_input > 0 ? 0 : m->rows_without_input + 1;
    if (m->usual_input > 0 && row->n_input > m->usual_input)
        row->flags |= BIT(epoch_start);
    if (row->n_input == m->last_input)
        m->usual_input = row->n_input;
    m->last_input = row->n_input;
    if (m->mode == LG_MODE_OPTIMIZER && row->n_optimizer > 0) {
        if (row->n_backward == m->last_backward)
            m->usual_backward = row->n_backward;
        m->last_backward = row->n_backward;
    }
}

static void deliver(struct lg_machine *m, struct lg_row *row)
{
    learn(m, row);
    m->after_backward = false;
    if (m->mode != LG_MODE_UNKNOWN) {
        lg_sink_row(row, m->number++);
        return;
    }
    m->held[m->held_count++] = *row;
    m->number++;
    if (m->held_count == LG_HELD) {
        m->mode = LG_MODE_BACKWARD; /* no label will come */
        publish_held(m);
    } else {
        lg_sink_held(m->held, m->held_count, m->number - m->held_count);
    }
}

static void close_row(struct lg_machine *m, uint32_t flags)
{
    struct lg_row row;
    m->step.row.flags |= flags;
    lg_step_close(&m->step, &row);
    deliver(m, &row);
}

/* No loader: what lies between the commit and a forward label is input. Without that label (R4 then
 * takes the rest for forward) only reads and waits are. */
static void close_at_commit(struct lg_machine *m, enum lg_event ev)
{
    struct lg_row row;
    lg_step_close_at_commit(&m->step, &row);
    deliver(m, &row);
    if (ev == LG_EV_FORWARD_BEGIN) {
        lg_step_move(&m->step, LG_PART_TAIL, LG_STAGE_input_wait);
        lg_step_move(&m->step, LG_PART_IO, LG_STAGE_input_wait);
        m->step.row.flags |= BIT(gap_input);
    }
}

/* R2 */
static void commit(struct lg_machine *m)
{
    lg_step_commit(&m->step, !has_loader(m));
    lg_sink_provisional(&m->step.committed, m->number);
}

/* R8: the first Optimizer.step outside a backward: what was closed before it were micro-batches. */
static void found_optimizer(struct lg_machine *m)
{
    m->mode = LG_MODE_OPTIMIZER;
    m->usual_backward = m->last_backward = m->usual_input = m->last_input = 0;
    for (uint32_t i = m->held_count; i > 0; i--)
        lg_row_prepend(&m->step.row, &m->held[i - 1]);
    m->number -= m->held_count;
    m->held_count = 0;
}

/* R3: asked at the begin of an input, a forward and an outermost backward. */
static void boundary(struct lg_machine *m, enum lg_event ev)
{
    if (m->optimizer > 0 || m->backward > 0)
        return;
    if (ev != LG_EV_INPUT_BEGIN && has_loader(m))
        return;
    if (m->step.ended) {
        if (ev == LG_EV_INPUT_BEGIN)
            close_row(m, 0);
        else
            close_at_commit(m, ev);
    } else if (ev != LG_EV_BACKWARD_BEGIN && m->mode == LG_MODE_OPTIMIZER &&
               m->usual_backward > 0 && m->step.row.n_backward >= m->usual_backward &&
               m->after_backward) {
        close_row(m, BIT(no_step)); /* the gradient scaler skipped the optimizer */
    }
}

/* ---- events */

static void input_begin(struct lg_machine *m)
{
    if (m->input == 0 && m->backward == 0) {
        boundary(m, LG_EV_INPUT_BEGIN);
        /* R5: a forward that got no backward was evaluation, a sanity check or start-up */
        lg_step_move(&m->step, LG_PART_HOLD, LG_STAGE_other);
        m->step.row.n_input++;
        m->step.row.sources |= SOURCE_BIT(label_input);
        m->ever_input = true;
        m->evaluating = false;
        m->input_call = m->step.row.part[LG_STAGE_input_wait];
        m->input_mark = lg_device_next_mark();
        if (!m->step.ended)
            m->after_backward = false;
    }
    m->input++;
}

static void input_end(struct lg_machine *m)
{
    if (m->input > 0)
        m->input--;
}

/* R7: a forward without gradients. The batch that was fetched for it is not training's either. */
static void evaluation_begin(struct lg_machine *m)
{
    struct lg_part *input = &m->step.row.part[LG_STAGE_input_wait];
    struct lg_part *eval = &m->step.row.part[LG_PART_EVAL];
    m->step.row.flags |= BIT(has_eval);
    m->evaluating = true;
    lg_device_move(m->input_mark, LG_STAGE_input_wait, LG_PART_EVAL);
    if (input->time > m->input_call.time) {
        eval->time += input->time - m->input_call.time;
        eval->sync += input->sync - m->input_call.sync;
        input->time = m->input_call.time;
        input->sync = m->input_call.sync;
    }
}

static void forward_begin(struct lg_machine *m, bool gradients)
{
    if (m->forward++ > 0)
        return;
    if (!gradients && m->backward == 0 && m->optimizer == 0) {
        evaluation_begin(m);
        return;
    }
    boundary(m, LG_EV_FORWARD_BEGIN);
    m->step.row.sources |= SOURCE_BIT(label_forward);
    m->evaluating = false;
    if (!m->step.ended && m->backward == 0)
        m->after_backward = false;
}

static void forward_end(struct lg_machine *m)
{
    if (m->forward > 0)
        m->forward--;
}

static void backward_begin(struct lg_machine *m, bool accumulates)
{
    if (m->backward == 0 && accumulates) {
        boundary(m, LG_EV_BACKWARD_BEGIN);
        /* R4 */
        lg_step_move(&m->step, LG_PART_HOLD, LG_STAGE_forward);
        lg_step_move(&m->step, LG_PART_TAIL, LG_STAGE_forward);
        lg_step_move(&m->step, LG_PART_IO, LG_STAGE_input_wait);
        m->step.ended = false; /* another model of the same iteration */
        m->step.row.n_backward++;
        m->step.row.sources |= SOURCE_BIT(engine);
        m->accumulates = true;
        m->evaluating = false;
        m->syncs_at_backward = lg_process_counters.gradient_syncs;
    } else if (m->forward > 0 && !accumulates) {
        m->step.row.flags |= BIT(compile);
    }
    m->backward++;
}

static void backward_end(struct lg_machine *m)
{
    uint64_t syncs = lg_process_counters.gradient_syncs;
    if (m->backward == 0 || --m->backward > 0 || !m->accumulates)
        return;
    m->accumulates = false;
    m->after_backward = true;
    if (syncs != m->syncs_at_backward) {
        m->step.row.n_sync++;
        m->step.row.sources |= SOURCE_BIT(reducer);
    }
    if (m->mode != LG_MODE_OPTIMIZER && (syncs != m->syncs_at_backward || syncs == 0))
        commit(m);
}

static void optimizer_begin(struct lg_machine *m)
{
    /* R6: between two optimizers, or after a backward that was taken for the end */
    if (m->optimizer == 0 && m->backward == 0)
        lg_step_move(&m->step, LG_PART_TAIL, LG_STAGE_optimizer);
    m->optimizer++;
}

static void optimizer_end(struct lg_machine *m)
{
    if (m->optimizer == 0 || --m->optimizer > 0 || !m->step.started)
        return;
    m->step.row.n_optimizer++;
    m->step.row.sources |= SOURCE_BIT(label_optimizer);
    if (m->backward > 0) {
        if (m->mode == LG_MODE_UNKNOWN) {
            m->mode = LG_MODE_BACKWARD; /* stepped from gradient hooks */
            publish_held(m);
        }
        return;
    }
    bool merged = m->mode != LG_MODE_OPTIMIZER;
    if (merged)
        found_optimizer(m);
    commit(m);
    if (merged) /* only now: until here the held rows were the complete steps */
        lg_sink_held(m->held, 0, m->number);
}

static void wait_end(struct lg_machine *m, bool blocked)
{
    if (m->step.waiting > 0)
        m->step.waiting--;
    if (blocked && m->step.waiting == 0 && m->step.started)
        lg_step_synced(&m->step);
}

/* ---- nesting */

static void enter(struct lg_machine *m, enum lg_event end, uint64_t argument, uintptr_t frame)
{
    if (m->entries < LG_NESTING)
        m->entry[m->entries] = (struct lg_entry){(uint8_t)end, (uint8_t)argument, frame};
    m->entries++;
}

static void leave(struct lg_machine *m, const struct lg_entry *e)
{
    if (e->kind == LG_EV_BACKWARD_END)
        backward_end(m);
    else if (e->kind == LG_EV_WAIT_END)
        wait_end(m, e->argument == LG_WAIT_BLOCKED);
    else if (m->h2d > 0)
        m->h2d--;
}

/* The end of a call: its entry and, if their ends never came, the ones above it. */
static void unwind_to(struct lg_machine *m, enum lg_event end)
{
    if (m->entries > LG_NESTING) { /* deeper than we keep: trust that ends come in order */
        m->entries--;
        leave(m, &(struct lg_entry){(uint8_t)end, LG_WAIT_BLOCKED, 0});
        return;
    }
    uint32_t i = m->entries;
    while (i > 0 && m->entry[i - 1].kind != (uint8_t)end)
        i--;
    if (i == 0)
        return; /* its begin was not seen */
    m->dropped += m->entries - i;
    while (m->entries >= i)
        leave(m, &m->entry[--m->entries]);
}

/* A call whose frame lies below this event's frame was left without its end: siglongjmp, or an
 * exception that passed where no cleanup ran. Only asked where a live call is impossible. */
static void recover(struct lg_machine *m, uintptr_t frame)
{
    if (m->entries == 0 || frame == 0)
        return;
    uint32_t kept = m->entries < LG_NESTING ? m->entries : LG_NESTING;
    for (uint32_t i = 0; i < kept; i++)
        if (m->entry[i].frame > frame)
            return;
    m->dropped += m->entries;
    m->step.row.flags |= BIT(recovered);
    m->after_backward |= m->backward > 0 && m->accumulates;
    m->entries = m->backward = m->h2d = m->step.waiting = 0;
    m->accumulates = false;
}

static bool opens_row(enum lg_event ev, uint64_t argument)
{
    return ev == LG_EV_INPUT_BEGIN || (ev == LG_EV_FORWARD_BEGIN && argument != 0) ||
           (ev == LG_EV_BACKWARD_BEGIN && argument != 0);
}

void lg_machine_event(struct lg_machine *m, enum lg_event ev, uint64_t now, uint64_t argument,
                      uintptr_t frame)
{
    if (m->step.started)
        lg_step_charge(&m->step, now, current_part(m));
    else if (opens_row(ev, argument))
        lg_step_start(&m->step, now);
    m->step.now = now;
    m->io = ev == LG_EV_IO_BEGIN;
    if (ev == LG_EV_INPUT_BEGIN || ev == LG_EV_FORWARD_BEGIN || ev == LG_EV_BACKWARD_BEGIN)
        recover(m, frame);

    switch (ev) {
    case LG_EV_INPUT_BEGIN:
        input_begin(m);
        break;
    case LG_EV_INPUT_END:
        input_end(m);
        break;
    case LG_EV_FORWARD_BEGIN:
        forward_begin(m, argument != 0);
        break;
    case LG_EV_FORWARD_END:
        forward_end(m);
        break;
    case LG_EV_BACKWARD_BEGIN:
        backward_begin(m, argument != 0);
        enter(m, LG_EV_BACKWARD_END, argument, frame);
        break;
    case LG_EV_OPTIMIZER_BEGIN:
        optimizer_begin(m);
        break;
    case LG_EV_OPTIMIZER_END:
        optimizer_end(m);
        break;
    case LG_EV_WAIT_BEGIN:
        m->step.waiting++;
        enter(m, LG_EV_WAIT_END, argument, frame);
        break;
    case LG_EV_H2D_BEGIN:
        m->h2d++;
        enter(m, LG_EV_H2D_END, argument, frame);
        break;
    case LG_EV_BACKWARD_END:
    case LG_EV_WAIT_END:
    case LG_EV_H2D_END:
        unwind_to(m, ev);
        break;
    case LG_EV_IO_BEGIN:
        m->step.row.sources |= SOURCE_BIT(io);
        break;
    case LG_EV_IO_END:
        break;
    case LG_EV_COMPILE:
        m->step.row.flags |= BIT(compile);
        break;
    }
}

void lg_machine_finish(struct lg_machine *m, uint64_t now)
{
    if (!m->step.started)
        return;
    /* the time since the last event is the program's way out, not a step's */
    (void)now;
    if (m->step.ended) {
        if (has_loader(m))
            close_row(m, 0);
        else
            close_at_commit(m, LG_EV_FORWARD_BEGIN);
    }
    publish_held(m);
}
