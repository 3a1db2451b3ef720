/*
 * device_marks.c - see device_marks.h. Context: hooks on any thread, one at a time.
 */
#include "preload/device_marks.h"

#include <string.h>

#define C lg_clock

static struct lg_mark *mark(uint64_t number)
{
    return &C.mark[number % LG_MARKS];
}

/* ---- reading */

static void add_time(struct lg_sums *sums, const struct lg_mark *m, uint64_t ns)
{
    struct lg_part *p = &sums->part[m->part];
    p->time += ns;
    if (!m->sync) {
        p->after += ns;
        return;
    }
    p->sync += ns;
    sums->synced = true;
    for (unsigned k = 0; k < LG_PARTS; k++)
        sums->part[k].after = 0;
}

/* The time from mark `from` to mark `to`; both were reached. */
static void add_marks(struct lg_sums *sums, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to && !sums->bad; i++) {
        const struct lg_mark *next = mark(i + 1);
        uint64_t ns;
        sums->bad = next->gap || !lg_clock_between(mark(i), next, &ns);
        if (!sums->bad)
            add_time(sums, mark(i), ns);
    }
}

static bool begins_row(uint64_t number)
{
    return mark(number)->turn && !mark(number)->lost_turn;
}

/* What no stage was found for. */
static void settle(struct lg_sums *sums)
{
    struct lg_part *other = &sums->part[LG_STAGE_other];
    for (unsigned i = LG_STAGE_COUNT; i < LG_PARTS; i++) {
        other->time += sums->part[i].time;
        other->sync += sums->part[i].sync;
        other->after += sums->part[i].after;
    }
}

static void complete(const struct lg_expected *x, bool measured)
{
    struct lg_sums sums;
    if (C.folding && C.folded_first == x->first) {
        sums = C.folded;
        C.folding = false;
        add_marks(&sums, C.tail, x->last);
    } else if (measured) {
        memset(&sums, 0, sizeof sums);
        sums.bad = !begins_row(x->first);
        add_marks(&sums, x->first, x->last);
    }
    if (measured && !sums.bad) {
        settle(&sums);
        lg_clock_columns(x->slot->value, &sums, x->sync_known);
    }
    atomic_store_explicit(&x->slot->state, LG_SLOT_COMPLETE, memory_order_release);
}

bool lg_clock_waits(void)
{
    return C.expected_tail != C.expected_head;
}

/* Marks that are neither the open rows' nor those of a row that is waited for. */
static void drop_unneeded(void)
{
    uint64_t needed = lg_clock_waits() ? C.expected[C.expected_tail % LG_EXPECTED].first : C.needed;
    if (C.folding && C.folded_first < needed)
        C.folding = false;
    if (needed > C.tail)
        C.tail = needed;
}

void lg_clock_read(void)
{
    while (lg_clock_waits()) {
        const struct lg_expected *x = &C.expected[C.expected_tail % LG_EXPECTED];
        if (x->slot != NULL &&
            (x->last >= C.head || !lg_clock_may_call() || !lg_clock_reached(mark(x->last))))
            return;
        if (x->slot != NULL)
            complete(x, true);
        C.expected_tail++;
        drop_unneeded();
    }
}

bool lg_clock_expect(const struct lg_expected *row)
{
    bool folded = C.folding && C.folded_first == row->first && C.tail <= row->last;
    /* with a mark missing at its end it would wait for one that there may be no room for */
    if (row->last <= row->first || (row->first < C.tail && !folded) || C.broken ||
        C.expected_head - C.expected_tail == LG_EXPECTED)
        return false;
    C.expected[C.expected_head++ % LG_EXPECTED] = *row;
    return true;
}

void lg_clock_forget(const void *begin, const void *end)
{
    for (uint32_t i = C.expected_tail; i != C.expected_head; i++) {
        struct lg_expected *x = &C.expected[i % LG_EXPECTED];
        const char *slot = (const char *)x->slot;
        if (slot == NULL || slot < (const char *)begin || slot >= (const char *)end)
            continue;
        atomic_store_explicit(&x->slot->state, LG_SLOT_COMPLETE, memory_order_release);
        x->slot = NULL;
    }
}

/* ---- the ring */

static void move_part(struct lg_part *p, unsigned from, unsigned to)
{
    if (from == to)
        return;
    p[to].time += p[from].time;
    p[to].sync += p[from].sync;
    p[to].after += p[from].after;
    p[from] = (struct lg_part){0};
}

void lg_clock_set_part(uint64_t number, unsigned part)
{
    mark(number)->part = (uint8_t)part;
    if (C.part_end[part] <= number)
        C.part_end[part] = number + 1;
}

/* Called at every launch, mostly with nothing to move. */
void lg_clock_move(uint64_t first, unsigned from, unsigned to)
{
    const uint64_t end = C.part_end[from], begin = first > C.tail ? first : C.tail;
    for (uint64_t i = begin; i < end; i++)
        if (mark(i)->part == from)
            lg_clock_set_part(i, to);
    if (from != to && end > begin)
        C.part_end[from] = begin;
    if (C.folding && C.folded_first >= first)
        move_part(C.folded.part, from, to);
}

void lg_clock_move_all(uint64_t first, uint64_t last, unsigned to)
{
    for (uint64_t i = first > C.tail ? first : C.tail; i < last && i < C.head; i++)
        lg_clock_set_part(i, to);
    if (!C.folding || C.folded_first != first)
        return;
    C.folded.bad |= C.tail > last; /* more than that is in the sums already */
    for (unsigned from = 0; from < LG_PARTS; from++)
        move_part(C.folded.part, from, to);
}

void lg_clock_drop(uint64_t needed)
{
    C.needed = needed;
    drop_unneeded();
}

/* How many of the first marks can be read ahead: not beyond a turn, where the row may yet be cut.
 */
static uint64_t foldable(void)
{
    uint64_t n = 1;
    if (C.folding && mark(C.tail)->turn)
        return 0;
    while (n < LG_FOLD && !mark(C.tail + n)->turn)
        n++;
    return n;
}

void lg_clock_make_room(void)
{
    if (LG_LIKELY(C.head - C.tail < LG_FOLD_AT) || C.head % (LG_FOLD / 4) != 0)
        return;
    lg_clock_read(); /* no step has ended for long */
    if (lg_clock_waits())
        return;
    uint64_t n = foldable();
    if (n == 0 || !lg_clock_may_call() || !lg_clock_reached(mark(C.tail + n)))
        return;
    if (!C.folding) {
        C.folding = true;
        C.folded_first = C.tail;
        memset(&C.folded, 0, sizeof C.folded);
        C.folded.bad = !begins_row(C.tail);
    }
    add_marks(&C.folded, C.tail, C.tail + n);
    C.tail += n;
}
