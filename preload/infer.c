/*
 * infer.c - see infer.h. Context: hooks; rows only on the training thread.
 *
 * One iteration, as these rules see it:
 *
 *     reads and waits | copies | launches | gradient collectives and launches | launches | the rest
 *     input           | h2d    | forward  | backward                          | optimizer| other
 *
 * Hindsight is had by holding time back:
 *   hold     time that nothing has claimed yet: the next launch or collective claims it for its
 * stage, an input leaves it to `other`. Launches after a gradient collective are the optimizer's
 *            until another collective shows that they were backward's.
 *   pending  a read or wait after the launches may be the next input or not. The row is committed
 *            there and what follows is kept apart (`tail`, `io`) until the copy of a batch tells,
 * or in programs that never copy the next launch. kept     a copy after the gradients, without a
 * read before it, may be a batch that lay in memory or the end of the step. The row is closed but
 * kept back; a gradient collective confirms it, a read before that undoes it. segment  what ends at
 * an input without gradient collectives: a micro-batch, or a batch of evaluation. Rows usually have
 * the same number of micro-batches; what is more than that was evaluation, and came first. With
 * micro-batches, or with a single collective, nothing tells forward from backward: the row says so
 * (`unsplit`).
 */
#include "preload/infer.h"

#include <string.h>

#include "preload/clock.h"
#include "preload/device.h"
#include "preload/events.h"
#include "preload/identity.h"
#include "preload/ranges.h"
#include "preload/spool.h"

#define SOURCE_BIT(source) ((uint32_t)LG_SOURCE_##source)

enum {
    SEGMENTS = 64,       /* remembered one by one: the last ones of a row */
    UNKNOWN_USUAL = -1,  /* no two rows have agreed yet */
    ROWS_WITHOUT = 3,    /* after so many rows without one, waits or copies are not expected */
    COPIES_WITHOUT = 64, /* nor are waits after so many copies without one */
    SCALAR_BYTES = 16,   /* so small a collective carries a loss or a norm, not gradients */
    REFUSED = 8,         /* inputs after gradients that seemed too small to be a step's */
    RETURNS = 8,         /* to backward, seen by the device's clock in a row */
    REFRESH_NS = 1000000 /* a published row is brought up to date this often */
};

enum phase {
    START,   /* before the first batch */
    INPUT,   /* a batch is being fetched or copied */
    COMPUTE, /* launches, no gradient collective since the input */
    SYNCED   /* a gradient collective was issued */
};

struct segment {
    struct lg_part input, h2d, compute;
    uint64_t end_mark; /* on the device's clock (device.h) */
};

/* What an open row was seen to do. */
struct seen {
    uint32_t gradients; /* gradient collectives since the last input */
    uint64_t gradient_bytes;
    uint32_t returns; /* from what could have been the optimizer to backward */
    uint32_t segments, copies, waits;
};

static struct {
    struct lg_step step;
    uint64_t number; /* of the next row to be closed, from 0 */
    enum phase phase;

    /* the call or wait that the thread is in */
    enum lg_call call;
    bool in_call, in_wait;
    bool launched; /* something was launched since the last gradient collective */
    bool awaited;  /* and the host has waited for it: what follows is no launch's work */

    bool pending, pending_shared; /* shared: by a collective */
    uint32_t pending_waits, pending_inputs;

    struct seen seen;
    struct segment segment[SEGMENTS]; /* number n at n % SEGMENTS */
    struct segment all;               /* the sum of all, remembered or not */
    uint64_t published_ns;            /* when the row was last published; 0: not yet */

    bool kept;
    struct lg_row kept_row;
    struct seen kept_seen;

    /* what earlier rows teach */
    uint64_t usual_bytes; /* gradient bytes of the last row */
    int64_t usual_segments, last_segments;
    uint32_t rows_without_wait, rows_without_input, rows_without_copy; /* in a row */
    uint32_t copies_without_wait;
    uint32_t refused; /* in a row */
} m;

static const void *copying_thread; /* the last one that copied to the device, before any trains */

/* ---- parts */

static void add(struct lg_part *to, const struct lg_part *from)
{
    to->time += from->time;
    to->sync += from->sync;
    to->after += from->after;
}

static void add_segment(struct segment *to, const struct segment *from)
{
    add(&to->input, &from->input);
    add(&to->h2d, &from->h2d);
    add(&to->compute, &from->compute);
}

/* The part that the time since the last event belongs to. */
static unsigned current_part(void)
{
    if (m.in_call && m.call == LG_CALL_H2D)
        return LG_STAGE_h2d;
    if (m.pending)
        return m.in_wait ? LG_PART_IO : LG_PART_TAIL;
    if (m.in_wait || (m.in_call && m.call == LG_CALL_SHARE && m.phase == INPUT))
        return LG_STAGE_input_wait;
    if (m.in_call && m.call == LG_CALL_LAUNCH)
        return m.phase == SYNCED ? LG_STAGE_optimizer : LG_STAGE_forward;
    if (m.in_call && m.call == LG_CALL_GRADIENT)
        return LG_STAGE_backward;
    return LG_PART_HOLD;
}

static enum lg_stage stage_now(void)
{
    static const enum lg_stage of_phase[] = {LG_STAGE_other, LG_STAGE_input_wait, LG_STAGE_forward,
                                             LG_STAGE_backward};
    unsigned part = current_part();
    if (part < LG_STAGE_COUNT)
        return (enum lg_stage)part;
    return m.pending ? LG_STAGE_input_wait : of_phase[m.phase];
}

/* The row's gradients are all there, as far as the last row tells. `share`: of that row's bytes. */
static bool gradients_complete(uint64_t share)
{
    return m.seen.gradients > 0 && m.seen.gradient_bytes >= m.usual_bytes / share;
}

/* What is launched among the gradient collectives is backward's. Where there are many collectives
 * that is not left to hindsight, as two marks for each would be too many. */
static bool among_gradients(void)
{
    return m.seen.returns >= RETURNS && (m.usual_bytes == 0 || !gradients_complete(1));
}

/* On the device's clock: coarser, since its work runs on behind the calls that ordered it. The wait
 * for the last gradients is backward's still. */
static unsigned device_part(void)
{
    if (m.pending)
        return LG_PART_TAIL;
    return m.phase == INPUT                   ? LG_STAGE_input_wait
           : m.phase == COMPUTE               ? LG_STAGE_forward
           : m.phase == START                 ? LG_STAGE_other
           : !m.launched || among_gradients() ? LG_STAGE_backward
           : m.awaited                        ? LG_STAGE_other
                                              : LG_STAGE_optimizer;
}

static void claim(unsigned stage)
{
    lg_step_move(&m.step, LG_PART_HOLD, stage);
}

/* ---- what the program is like */

static bool waits_expected(void)
{
    return m.copies_without_wait < COPIES_WITHOUT &&
           (m.seen.waits > 0 || m.rows_without_wait < ROWS_WITHOUT);
}

static bool copies_expected(void)
{
    return m.seen.copies > 0 || m.rows_without_copy < ROWS_WITHOUT;
}

static bool collectives_expected(void)
{
    return (lg_identity_seen() & LG_SEEN_NCCL) != 0;
}

/* An input now would be the next row's. Half of the usual bytes: models shrink and grow, while what
 * evaluation reduces is far smaller. */
static bool may_close(void)
{
    if (collectives_expected())
        return m.phase == SYNCED && gradients_complete(2);
    return m.phase == COMPUTE;
}

/* ---- rows */

/* How many of the open row's segments were training's; the others, the first ones, were evaluation.
 */
static uint32_t training_segments(void)
{
    uint32_t n = m.seen.segments;
    if (m.usual_segments == UNKNOWN_USUAL || m.usual_segments > SEGMENTS ||
        n <= (uint64_t)m.usual_segments)
        return n;
    return (uint32_t)m.usual_segments;
}

/* Makes a closed or committed row of what the open one has held apart. */
static void finish_row(struct lg_row *row)
{
    uint32_t n = training_segments();
    struct segment training = {0}, *all = &m.all;
    if (n == m.seen.segments)
        training = *all;
    else
        for (uint32_t i = m.seen.segments - n; i < m.seen.segments; i++)
            add_segment(&training, &m.segment[i % SEGMENTS]);
    add(&row->part[LG_STAGE_input_wait], &training.input);
    add(&row->part[LG_STAGE_h2d], &training.h2d);
    add(&row->part[LG_STAGE_forward], &training.compute);
    struct lg_part *other = &row->part[LG_STAGE_other];
    other->time += all->input.time + all->h2d.time + all->compute.time -
                   (training.input.time + training.h2d.time + training.compute.time);
    other->sync += all->input.sync + all->h2d.sync + all->compute.sync -
                   (training.input.sync + training.h2d.sync + training.compute.sync);

    row->unsplit |= n > 0 || m.seen.gradients <= 1;
    row->flags |= n < m.seen.segments ? (uint32_t)LG_FLAG_has_eval : 0;
    row->sources |= (row->n_input > 0 ? SOURCE_BIT(io) : 0) |
                    (m.seen.copies > 0 ? SOURCE_BIT(copies) : 0) |
                    (m.seen.gradients > 0 ? SOURCE_BIT(collectives) : 0);
    if (row->n_input == 0 && m.rows_without_input >= ROWS_WITHOUT &&
        row->part[LG_STAGE_input_wait].time == 0)
        row->unknown |= 1u << LG_STAGE_input_wait;
    if (m.seen.gradients == 0)
        row->unknown |= 1u << LG_STAGE_optimizer;
}

static void count_absence(uint32_t *rows, bool present)
{
    if (present)
        *rows = 0;
    else if (*rows < ROWS_WITHOUT)
        ++*rows;
}

static void deliver(const struct lg_row *row, const struct seen *seen)
{
    m.usual_bytes = seen->gradient_bytes;
    m.refused = 0;
    if (m.last_segments == seen->segments)
        m.usual_segments = seen->segments;
    m.last_segments = seen->segments;
    count_absence(&m.rows_without_wait, seen->waits > 0);
    count_absence(&m.rows_without_input, row->n_input > 0);
    count_absence(&m.rows_without_copy, seen->copies > 0);
    lg_sink_row(row, m.number++);
}

/* The device's side of segments that were evaluation. */
static void settle_evaluation(uint64_t first_mark)
{
    uint32_t n = training_segments();
    if (n < m.seen.segments && n < SEGMENTS)
        lg_device_move_all(first_mark, m.segment[(m.seen.segments - n - 1) % SEGMENTS].end_mark,
                           LG_STAGE_other);
}

static void begin_row(void)
{
    memset(&m.seen, 0, sizeof m.seen);
    memset(&m.all, 0, sizeof m.all);
    m.published_ns = 0;
}

static void close_now(void)
{
    struct lg_row row;
    finish_row(&m.step.row);
    settle_evaluation(m.step.row.first_mark);
    lg_step_close(&m.step, &row);
    deliver(&row, &m.seen);
    begin_row();
}

/* At the moment at which the input that is pending began. */
static void close_at_commit(void)
{
    struct lg_row row;
    settle_evaluation(m.step.committed.first_mark);
    lg_step_close_at_commit(&m.step, &row);
    deliver(&row, &m.seen);
    begin_row();
}

/* The row as it would be if the process ended now, for a reader that finds it dead. */
static void publish(uint64_t now)
{
    struct lg_step step = m.step;
    lg_step_commit(&step, false);
    finish_row(&step.committed);
    lg_sink_provisional(&step.committed, m.number);
    m.published_ns = now;
}

/* ---- a row that is kept back */

static void keep_row(void)
{
    finish_row(&m.step.row);
    settle_evaluation(m.step.row.first_mark);
    lg_step_close(&m.step, &m.kept_row);
    lg_sink_provisional(&m.kept_row, m.number);
    m.kept_seen = m.seen;
    m.kept = true;
    begin_row();
}

static void confirm_kept(void)
{
    if (m.kept)
        deliver(&m.kept_row, &m.kept_seen);
    m.kept = false;
}

/* The copy was no batch: what came since is the rest of that row. */
static void undo_kept(void)
{
    if (!m.kept)
        return;
    for (unsigned i = 0; i < LG_PARTS; i++)
        if (i != LG_STAGE_other)
            lg_step_move(&m.step, i, LG_STAGE_other);
    lg_row_prepend(&m.step.row, &m.kept_row);
    m.step.row.unsplit |= m.kept_row.unsplit;
    m.kept_seen.copies += m.seen.copies;
    m.seen = m.kept_seen;
    m.seen.segments = 0; /* they are in the row already */
    m.phase = SYNCED;
    m.kept = false;
}

/* ---- inputs */

/* Layers were frozen: what seemed too small again and again is a step's from now on. What
 * evaluation reduces is smaller still. */
static void learn_from_refused(void)
{
    if (!gradients_complete(64) || ++m.refused < REFUSED)
        return;
    m.usual_bytes = m.seen.gradient_bytes;
    m.refused = 0;
}

/* What was computed since the last input was a micro-batch or evaluation. */
static void end_segment(void)
{
    struct segment *s = &m.segment[m.seen.segments++ % SEGMENTS];
    struct lg_part *part = m.step.row.part;
    *s = (struct segment){.input = part[LG_STAGE_input_wait],
                          .h2d = part[LG_STAGE_h2d],
                          .compute = part[LG_STAGE_forward],
                          .end_mark = lg_device_next_mark()};
    lg_device_move(m.step.row.first_mark, LG_STAGE_backward, LG_STAGE_forward);
    lg_device_move(m.step.row.first_mark, LG_STAGE_optimizer, LG_STAGE_forward);
    add(&s->compute, &part[LG_STAGE_backward]);
    add(&s->compute, &part[LG_STAGE_optimizer]);
    s->input.after = s->h2d.after = s->compute.after = 0; /* the row's last sync is yet to come */
    for (unsigned i = LG_STAGE_input_wait; i <= LG_STAGE_optimizer; i++)
        part[i] = (struct lg_part){0};
    add_segment(&m.all, s);
    learn_from_refused();
    m.seen.gradients = 0;
    m.seen.gradient_bytes = 0;
}

/* What is open since the pending read or wait becomes input, of the next row if there is one. */
static void begin_input(void)
{
    if (m.step.ended)
        close_at_commit();
    else if (m.phase != START)
        end_segment();
    claim(LG_STAGE_other);
    lg_step_move(&m.step, LG_PART_TAIL, LG_STAGE_input_wait);
    lg_step_move(&m.step, LG_PART_IO, LG_STAGE_input_wait);
    m.step.row.n_input += m.pending_inputs;
    m.seen.waits += m.pending_waits;
    m.pending = false;
    m.phase = INPUT;
}

/* It was none: the thread computes on. The reads were input all the same. */
static void reject_input(void)
{
    lg_step_move(&m.step, LG_PART_IO, LG_STAGE_input_wait);
    lg_step_move(&m.step, LG_PART_TAIL, LG_PART_HOLD);
    m.step.row.n_input += m.pending_inputs;
    m.step.ended = false;
    m.pending = false;
}

static void resolve_pending(bool is_input)
{
    if (m.pending && is_input)
        begin_input();
    else if (m.pending)
        reject_input();
}

static void expect_input(bool shared)
{
    m.pending = true;
    m.pending_shared = shared;
    m.pending_inputs = m.pending_waits = 0;
    if (!may_close())
        return;
    lg_step_commit(&m.step, true);
    finish_row(&m.step.committed);
    lg_sink_provisional(&m.step.committed, m.number);
}

/* ---- calls */

/* A copy without a read before it, in a row that has computed. */
static void copy_alone(void)
{
    if (may_close() && (m.phase == SYNCED || !waits_expected())) {
        confirm_kept();
        keep_row();
        m.phase = INPUT;
    } else if (m.phase == COMPUTE && !waits_expected()) {
        claim(LG_STAGE_other);
        end_segment();
        m.phase = INPUT;
    }
}

/* Unpacking a batch is part of fetching it, the time between copies is not. */
static void claim_in_input(void)
{
    claim(m.step.row.part[LG_STAGE_h2d].time > 0 ? LG_STAGE_h2d : LG_STAGE_input_wait);
}

static void copy_begins(void)
{
    m.copies_without_wait++;
    if (m.pending) {
        begin_input();
    } else if (m.phase == START) {
        claim(LG_STAGE_other);
        m.phase = INPUT;
    } else if (m.phase != INPUT) {
        copy_alone();
    }
    if (m.phase == INPUT)
        claim_in_input();
    m.seen.copies++;
}

static void launch_begins(void)
{
    resolve_pending(m.pending_shared || !copies_expected());
    claim(m.phase == START    ? LG_STAGE_other
          : m.phase == SYNCED ? LG_STAGE_optimizer
                              : LG_STAGE_forward);
    m.launched = true;
    m.awaited = false;
    if (m.phase != SYNCED)
        m.phase = COMPUTE;
}

static void gradients_begin(uint64_t bytes)
{
    resolve_pending(false);
    confirm_kept();
    if (m.phase == SYNCED)
        lg_step_move(&m.step, LG_STAGE_optimizer, LG_STAGE_backward);
    claim(m.phase == SYNCED ? LG_STAGE_backward : LG_STAGE_forward);
    m.seen.returns += m.phase == SYNCED && m.launched;
    m.phase = SYNCED;
    m.launched = false;
    m.seen.gradients++;
    m.seen.gradient_bytes += bytes;
}

/* Ranks for which another one reads get their batch by a collective. */
static void share_begins(uint64_t bytes)
{
    if (m.phase == INPUT) {
        claim_in_input();
        m.step.row.n_input++;
    }
    if (m.pending || waits_expected() || bytes <= SCALAR_BYTES || !may_close())
        return;
    expect_input(true);
    m.pending_inputs++;
}

/* A reduction is one of gradients if something was computed before it and it is no mere number. */
static enum lg_call classify(enum lg_call call, uint64_t bytes)
{
    bool computed = m.phase == COMPUTE || m.phase == SYNCED;
    if (call == LG_CALL_GRADIENT && (!computed || (bytes > 0 && bytes <= SCALAR_BYTES)))
        return LG_CALL_COLLECTIVE;
    return call;
}

static bool is_collective(enum lg_call call)
{
    return call == LG_CALL_GRADIENT || call == LG_CALL_SHARE || call == LG_CALL_COLLECTIVE;
}

static void call_begins(enum lg_call call, uint64_t bytes)
{
    m.in_wait = false; /* calls do not nest: what is still open was left by a jump */
    m.in_call = true;
    m.call = classify(call, bytes);
    if (m.call == LG_CALL_H2D)
        copy_begins();
    else if (m.call == LG_CALL_LAUNCH)
        launch_begins();
    else if (m.call == LG_CALL_GRADIENT)
        gradients_begin(bytes);
    else if (m.call == LG_CALL_SHARE)
        share_begins(bytes);
    else if (m.call == LG_CALL_WAIT)
        m.awaited = m.launched;
    m.step.waiting = is_collective(m.call);
}

static void call_ends(uint64_t now)
{
    m.in_call = false;
    if (m.step.waiting > 0)
        lg_step_synced(&m.step);
    m.step.waiting = 0;
    if (m.phase != SYNCED || m.pending || !gradients_complete(1))
        return;
    if (m.call == LG_CALL_GRADIENT ||
        (m.call == LG_CALL_LAUNCH && now - m.published_ns > REFRESH_NS))
        publish(now);
}

/* ---- the training thread */

static uint64_t event(void)
{
    uint64_t now = lg_now_ns();
    lg_step_charge(&m.step, now, current_part());
    return now;
}

/* The device's clock follows: a mark where the part changes and where rows begin and are committed.
 */
struct place {
    unsigned part;
    uint32_t turns;
    uint64_t number;
};

static struct place place(void)
{
    return (struct place){device_part(), m.step.turns, m.number};
}

static void follow_device(const struct place *before)
{
    const struct place now = place();
    if (now.number != before->number)
        lg_device_step(now.number, m.kept ? m.kept_row.first_mark : m.step.row.first_mark);
    if (now.part != before->part || now.turns != before->turns)
        lg_device_boundary(now.part, now.turns != before->turns);
}

static void show_status(uint64_t now)
{
    lg_spool_status(m.number, stage_now(), m.step.waiting > 0, now, 0);
}

/* Becomes the training thread if this call shows that it is. */
static bool found_training_thread(enum lg_call call)
{
    if (lg_process.training != 0)
        return false;
    if (call == LG_CALL_H2D)
        copying_thread = &lg_tls;
    if (!is_collective(call) && !(call == LG_CALL_LAUNCH && copying_thread == &lg_tls))
        return false;
    if (!lg_own_process())
        return false;
    lg_events_candidate();
    lg_sign_of_training();
    lg_infer_reset();
    lg_step_start(&m.step, lg_now_ns());
    return true;
}

/* A launch among others claims the time before it and its own for one stage: no clock is needed to
 * tell them apart. */
static bool is_plain_launch(enum lg_call call)
{
    return call == LG_CALL_LAUNCH && (m.phase == COMPUTE || m.phase == SYNCED) && !m.pending &&
           !m.in_wait && !m.in_call;
}

bool lg_infer_call_begin(enum lg_call call, uint64_t bytes)
{
    if (lg_process.torch || lg_tls.guard != 0)
        return false;
    LG_KEEP_ERRNO;
    if (!lg_on_training_thread() && !found_training_thread(call))
        return false;
    lg_tls.guard++;
    if (lg_ranges_rule()) {
        lg_ranges_call_begin(call);
        lg_tls.guard--;
        return true;
    }
    const struct place before = place();
    if (is_plain_launch(call)) {
        call_begins(call, bytes);
    } else {
        uint64_t now = event();
        call_begins(call, bytes);
        show_status(now);
    }
    follow_device(&before);
    lg_tls.guard--;
    return true;
}

uint64_t lg_infer_call_began(void)
{
    return lg_ranges_rule() ? lg_ranges_now() : m.step.now;
}

void lg_infer_call_end(void)
{
    if (!lg_on_training_thread())
        return;
    LG_KEEP_ERRNO;
    lg_tls.guard++;
    if (lg_ranges_rule()) {
        lg_ranges_call_end();
        lg_tls.guard--;
        return;
    }
    const struct place before = place();
    uint64_t now = event();
    call_ends(now);
    show_status(now);
    follow_device(&before);
    lg_tls.guard--;
}

/* A wait where there need not be an input; what changes, changes at the first of several. */
static void unexpected_wait(void)
{
    if (m.kept || !m.pending) {
        const struct place before = place();
        undo_kept();
        if (!m.pending)
            expect_input(false);
        follow_device(&before);
    }
    m.pending_inputs++;
    m.pending_waits++;
}

/* Reads and waits inside of a call are the library's own, those before the first batch nobody's. */
void lg_infer_wait_begin(void)
{
    if (lg_ranges_rule()) {
        LG_KEEP_ERRNO;
        lg_tls.guard++;
        lg_ranges_wait_begin();
        lg_tls.guard--;
        return;
    }
    if (m.in_call || m.phase == START || !m.step.started)
        return;
    LG_KEEP_ERRNO;
    lg_tls.guard++;
    uint64_t now = event();
    m.copies_without_wait = 0;
    if (m.phase == INPUT && !m.kept) {
        claim(LG_STAGE_input_wait);
        m.step.row.n_input++;
        m.seen.waits++;
    } else {
        unexpected_wait();
    }
    m.in_wait = true;
    show_status(now);
    lg_tls.guard--;
}

/* The status stays: what the thread does next is still the input, as far as anybody knows. */
void lg_infer_wait_end(void)
{
    if (lg_ranges_rule()) {
        lg_tls.guard++;
        lg_ranges_wait_end();
        lg_tls.guard--;
        return;
    }
    if (!m.in_wait)
        return;
    lg_tls.guard++;
    event(); /* errno is the caller's care (io.c) */
    m.in_wait = false;
    lg_tls.guard--;
}

bool lg_infer_hand_over(struct lg_step *step, uint64_t *number)
{
    if (!m.step.started)
        return false;
    event();
    confirm_kept();
    resolve_pending(false);
    claim(LG_STAGE_other);
    finish_row(&m.step.row);
    *step = m.step;
    *number = m.number;
    m.step.started = false;
    return true;
}

void lg_infer_reset(void)
{
    lg_ranges_reset();
    memset(&m, 0, sizeof m);
    m.usual_segments = m.last_segments = UNKNOWN_USUAL;
    m.rows_without_wait = m.rows_without_input = m.rows_without_copy = ROWS_WITHOUT;
    copying_thread = NULL;
}

/* The time since the last event is the program's way out, not a step's. */
void lg_infer_finish(void)
{
    lg_ranges_finish();
    if (!m.step.started || lg_process.torch)
        return;
    confirm_kept();
    if (m.pending && m.step.ended)
        close_at_commit();
    else if (!m.pending && may_close())
        close_now();
}
