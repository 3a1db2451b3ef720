/*
 * ranges.c - see ranges.h. Context: hooks on the training thread.
 *
 * Time inside a range is its stage's, copies to the device are H2D's wherever they are, the rest is
 * `other`; reads and waits outside of every range are input where no range is called so. A row is
 * complete with its optimizer (backward, if no range is called optimizer) and ends where the next
 * input, copy or forward begins; with ranges around whole iterations it ends where the next one
 * does.
 */
#include "preload/ranges.h"

#include <string.h>

#include "preload/clock.h"
#include "preload/device.h"
#include "preload/events.h"
#include "preload/spool.h"

enum { DEPTH = 32 };

static struct {
    struct {
        const void *domain;
        uint8_t range;
    } stack[DEPTH];
    uint32_t depth, too_deep;
    uint32_t ever; /* 1 << enum lg_range: names that were seen */

    bool ruling;
    struct lg_step step;
    uint64_t number;
    uint32_t in_row; /* 1 << enum lg_range: ranges that the open row had */
    enum lg_range now;
    enum lg_call call;
    bool in_call, in_wait;
} r;

#define BIT(range) (1u << LG_RANGE_##range)

/* ---- names */

/* Lower case, with one _ for whatever is between words. A name that begins with such a word; the
 * words of a whole step may only be followed by a number. */
static const struct {
    const char *word;
    enum lg_range range;
} words[] = {
    {"data", LG_RANGE_INPUT},
    {"dataloader", LG_RANGE_INPUT},
    {"data_loader", LG_RANGE_INPUT},
    {"dataloading", LG_RANGE_INPUT},
    {"input", LG_RANGE_INPUT},
    {"load_data", LG_RANGE_INPUT},
    {"load_batch", LG_RANGE_INPUT},
    {"next_batch", LG_RANGE_INPUT},
    {"h2d", LG_RANGE_H2D},
    {"htod", LG_RANGE_H2D},
    {"to_device", LG_RANGE_H2D},
    {"copy_to_device", LG_RANGE_H2D},
    {"forward", LG_RANGE_FORWARD},
    {"fwd", LG_RANGE_FORWARD},
    {"fprop", LG_RANGE_FORWARD},
    {"backward", LG_RANGE_BACKWARD},
    {"bwd", LG_RANGE_BACKWARD},
    {"bprop", LG_RANGE_BACKWARD},
    {"optimizer", LG_RANGE_OPTIMIZER},
    {"optim", LG_RANGE_OPTIMIZER},
    {"opt", LG_RANGE_OPTIMIZER},
    {"optimizer_step", LG_RANGE_OPTIMIZER},
    {"step", LG_RANGE_STEP},
    {"iteration", LG_RANGE_STEP},
    {"iter", LG_RANGE_STEP},
    {"train_step", LG_RANGE_STEP},
    {"training_step", LG_RANGE_STEP},
    {"eval", LG_RANGE_EVAL},
    {"evaluation", LG_RANGE_EVAL},
    {"validation", LG_RANGE_EVAL},
    {"validate", LG_RANGE_EVAL},
};

static char plain(char c)
{
    if (c >= 'A' && c <= 'Z')
        return (char)(c - 'A' + 'a');
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ? c : '_';
}

/* What follows the word in the name; NULL: the name does not begin with it. */
static const char *after_word(const char *name, const char *word)
{
    for (; *word != 0; word++, name++) {
        if (*name == 0 || plain(*name) != *word)
            return NULL;
        while (*word == '_' && name[1] != 0 && plain(name[1]) == '_')
            name++;
    }
    return *name == 0 || plain(*name) == '_' ? name : NULL;
}

static bool is_number(const char *rest)
{
    for (; *rest != 0; rest++)
        if (plain(*rest) >= 'a')
            return false;
    return true;
}

enum lg_range lg_range_of(const char *name)
{
    for (unsigned i = 0; name != NULL && i < sizeof words / sizeof words[0]; i++) {
        const char *rest = after_word(name, words[i].word);
        if (rest != NULL && (words[i].range != LG_RANGE_STEP || is_number(rest)))
            return words[i].range;
    }
    return LG_RANGE_NONE;
}

/* ---- parts */

static enum lg_range innermost(void)
{
    enum lg_range found = LG_RANGE_NONE;
    for (uint32_t i = r.depth; i-- > 0;) {
        enum lg_range range = (enum lg_range)r.stack[i].range;
        if (range == LG_RANGE_EVAL)
            return range;
        if (found == LG_RANGE_NONE && range != LG_RANGE_STEP)
            found = range;
    }
    return found;
}

static unsigned stage_of(enum lg_range range)
{
    static const uint8_t stages[] = {
        [LG_RANGE_NONE] = LG_STAGE_other,        [LG_RANGE_INPUT] = LG_STAGE_input_wait,
        [LG_RANGE_H2D] = LG_STAGE_h2d,           [LG_RANGE_FORWARD] = LG_STAGE_forward,
        [LG_RANGE_BACKWARD] = LG_STAGE_backward, [LG_RANGE_OPTIMIZER] = LG_STAGE_optimizer,
        [LG_RANGE_STEP] = LG_STAGE_other,        [LG_RANGE_EVAL] = LG_STAGE_other};
    return stages[range];
}

/* A read or wait that is input, though no range says so. */
static bool loose_input(void)
{
    return r.now == LG_RANGE_NONE && (r.ever & BIT(INPUT)) == 0;
}

static unsigned current_part(void)
{
    if (r.in_call && r.call == LG_CALL_H2D && r.now != LG_RANGE_EVAL)
        return LG_STAGE_h2d;
    if (r.in_wait && loose_input())
        return LG_STAGE_input_wait;
    return stage_of(r.now);
}

static uint64_t event(void)
{
    uint64_t now = lg_now_ns();
    lg_step_charge(&r.step, now, current_part());
    return now;
}

static void show_status(uint64_t now)
{
    lg_spool_status(r.number, current_part(), r.step.waiting > 0, now, 0);
}

/* ---- rows */

static bool complete(void)
{
    return (r.in_row & ((r.ever & BIT(OPTIMIZER)) != 0 ? BIT(OPTIMIZER) : BIT(BACKWARD))) != 0;
}

static void finish_row(struct lg_row *row)
{
    row->sources |= LG_SOURCE_nvtx;
    row->flags |= (r.in_row & BIT(EVAL)) != 0 ? (uint32_t)LG_FLAG_has_eval : 0;
    row->unknown |= (r.ever & BIT(FORWARD)) == 0 ? 1u << LG_STAGE_forward : 0;
    row->unknown |= (r.ever & BIT(OPTIMIZER)) == 0 ? 1u << LG_STAGE_optimizer : 0;
    if ((r.ever & BIT(INPUT)) == 0 && row->n_input == 0)
        row->unknown |= 1u << LG_STAGE_input_wait;
}

static void close_row(void)
{
    struct lg_row row;
    finish_row(&r.step.row);
    lg_step_close(&r.step, &row);
    lg_sink_row(&row, r.number++);
    r.in_row = 0;
    lg_device_step(r.number, r.step.row.first_mark);
    lg_device_boundary(stage_of(r.now), true);
}

/* What begins now is the next row's, if this one has all. */
static void next_row_may_begin(bool whole)
{
    if (complete() && whole == ((r.ever & BIT(STEP)) != 0))
        close_row();
}

/* As it would be if the process ended now. */
static void publish(void)
{
    struct lg_step step = r.step;
    lg_step_commit(&step, false);
    finish_row(&step.committed);
    lg_sink_provisional(&step.committed, r.number);
}

/* ---- ranges */

static void take_over(void)
{
    if (!lg_infer_hand_over(&r.step, &r.number))
        return;
    r.ruling = true;
    lg_device_boundary(stage_of(r.now), false);
}

static void begins(enum lg_range range)
{
    if (range == LG_RANGE_STEP)
        next_row_may_begin(true);
    else if (range == LG_RANGE_INPUT || range == LG_RANGE_H2D || range == LG_RANGE_FORWARD)
        next_row_may_begin(false);
    r.step.row.n_input += range == LG_RANGE_INPUT;
    r.step.row.n_backward += range == LG_RANGE_BACKWARD;
    r.in_row |= 1u << range;
}

static void change(enum lg_range pushed, enum lg_range popped)
{
    enum lg_range before = r.now;
    if (!r.ruling) {
        r.now = innermost();
        if (pushed == LG_RANGE_BACKWARD && r.now == pushed)
            take_over();
        if (r.ruling)
            begins(pushed);
        return;
    }
    uint64_t now = event();
    r.now = innermost();
    if (pushed != LG_RANGE_NONE && (r.now == pushed || pushed == LG_RANGE_STEP))
        begins(pushed);
    if (stage_of(r.now) != stage_of(before))
        lg_device_boundary(stage_of(r.now), false);
    if (popped != LG_RANGE_NONE && complete())
        publish();
    show_status(now);
}

void lg_range_push(const void *domain, const char *name)
{
    if (!lg_awake() || lg_process.torch || !lg_on_training_thread())
        return;
    LG_KEEP_ERRNO;
    lg_tls.guard++;
    if (r.depth == DEPTH) {
        r.too_deep++;
    } else {
        enum lg_range range = lg_range_of(name);
        r.stack[r.depth].domain = domain;
        r.stack[r.depth++].range = (uint8_t)range;
        r.ever |= 1u << range;
        change(range, LG_RANGE_NONE);
    }
    lg_tls.guard--;
}

/* Of a range that began before the thread was known there is nothing to end. */
void lg_range_pop(const void *domain)
{
    if (!lg_awake() || lg_process.torch || !lg_on_training_thread())
        return;
    if (r.too_deep > 0) {
        r.too_deep--;
        return;
    }
    uint32_t at = r.depth;
    while (at > 0 && r.stack[at - 1].domain != domain)
        at--;
    if (at == 0)
        return;
    LG_KEEP_ERRNO;
    lg_tls.guard++;
    enum lg_range range = (enum lg_range)r.stack[at - 1].range;
    memmove(&r.stack[at - 1], &r.stack[at], (r.depth - at) * sizeof r.stack[0]);
    r.depth--;
    change(LG_RANGE_NONE, range);
    lg_tls.guard--;
}

/* ---- calls and waits, from infer.c, which keeps errno and holds the guard */

bool lg_ranges_rule(void)
{
    return r.ruling;
}

void lg_ranges_call_begin(enum lg_call call)
{
    uint64_t now = event();
    bool outside = r.now == LG_RANGE_NONE;
    r.in_wait = false; /* calls do not nest: what is still open was left by a jump */
    if (call == LG_CALL_H2D && outside)
        next_row_may_begin(false);
    r.in_call = true;
    r.call = call;
    r.step.row.sources |= call == LG_CALL_H2D ? (uint32_t)LG_SOURCE_copies : 0;
    r.step.waiting =
        call == LG_CALL_GRADIENT || call == LG_CALL_SHARE || call == LG_CALL_COLLECTIVE;
    r.step.row.sources |= r.step.waiting ? (uint32_t)LG_SOURCE_collectives : 0;
    show_status(now);
}

uint64_t lg_ranges_now(void)
{
    return r.step.now;
}

void lg_ranges_call_end(void)
{
    uint64_t now = event();
    r.in_call = false;
    if (r.step.waiting > 0)
        lg_step_synced(&r.step);
    r.step.waiting = 0;
    show_status(now);
}

void lg_ranges_wait_begin(void)
{
    if (r.in_call)
        return;
    uint64_t now = event();
    if (loose_input()) {
        next_row_may_begin(false);
        r.step.row.n_input++;
        r.step.row.sources |= (uint32_t)LG_SOURCE_io;
    }
    r.in_wait = true;
    show_status(now);
}

void lg_ranges_wait_end(void)
{
    if (!r.in_wait)
        return;
    event();
    r.in_wait = false;
}

void lg_ranges_reset(void)
{
    memset(&r, 0, sizeof r);
}

void lg_ranges_finish(void)
{
    if (r.ruling && complete())
        close_row();
}
