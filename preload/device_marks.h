/*
 * device_marks.h - the marks that device.c has recorded, and reading them into rows. Context: hooks
 * on any thread, one at a time (lg_clock_take).
 *
 * Marks lie in a ring. Rows that were published wait in order for their last mark. A row that is
 * open for long (an evaluation of a thousand batches) is read piece by piece into sums, so that the
 * ring does not fill up.
 */
#ifndef LAGGARD_PRELOAD_DEVICE_MARKS_H
#define LAGGARD_PRELOAD_DEVICE_MARKS_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/boot.h"
#include "preload/hooks.h"
#include "preload/step.h"
#include "schema/spool.h"

enum {
    LG_MARKS = 4096,   /* marks whose rows are not read yet */
    LG_EXPECTED = 256, /* rows whose marks are not read yet */
    LG_FOLD_AT = 1024, /* marks of an open row before its first ones are read */
    LG_FOLD = 64       /* marks read at a time then */
};

struct lg_mark {
    void *event;
    uint8_t part;
    bool sync;      /* from here to the next mark the stream stands still for others */
    bool gap;       /* the time before this mark is not known */
    bool turn;      /* a row begins or was committed here */
    bool lost_turn; /* a mark of that kind is missing before it */
};

/* What the marks of (a part of) a row add up to. */
struct lg_sums {
    struct lg_part part[LG_PARTS];
    bool synced;
    bool bad; /* not all of it was measured */
};

struct lg_expected {
    struct lg_slot *slot;
    uint64_t first, last;
    bool sync_known;
};

struct lg_clock {
    _Atomic uint32_t busy;
    bool started, on, off; /* has ever been; measuring; given up for good */
    bool broken;           /* a mark was dropped: the next one has `gap` */
    bool lost_turn;
    enum lg_cudart cudart; /* whose functions are called */
    int device;
    const void *compute;
    uint64_t head, tail;
    uint64_t needed; /* the first mark of the rows that are not published yet */
    struct lg_mark mark[LG_MARKS];
    uint64_t part_end[LG_PARTS]; /* no mark from this number on belongs to the part */
    uint32_t expected_head, expected_tail;
    struct lg_expected expected[LG_EXPECTED];
    /* marks [folded_first, tail) of a row that begins at folded_first are in `folded` */
    bool folding;
    uint64_t folded_first;
    struct lg_sums folded;
};
extern struct lg_clock lg_clock;

/* One thread at a time; never waits. What the real functions do meanwhile is not the program's. */
static inline bool lg_clock_take(void)
{
    if (atomic_exchange(&lg_clock.busy, 1) != 0)
        return false;
    lg_tls.guard++;
    return true;
}

static inline void lg_clock_release(void)
{
    lg_tls.guard--;
    lg_clock.busy = 0;
}

/* device.c: asks the device; *ns between two marks that were reached. */
bool lg_clock_may_call(void);
bool lg_clock_reached(const struct lg_mark *mark);
bool lg_clock_between(const struct lg_mark *from, const struct lg_mark *to, uint64_t *ns);

/* device.c: a row's device columns. */
void lg_clock_columns(int64_t *value, const struct lg_sums *sums, bool sync_known);

/* The rest is called with the clock taken, but for those on the training thread that only touch
 * what it alone touches: expect, waits, move, drop, forget. */
void lg_clock_make_room(void);
void lg_clock_set_part(uint64_t number, unsigned part);
void lg_clock_read(void);
bool lg_clock_expect(const struct lg_expected *row);
bool lg_clock_waits(void);
void lg_clock_move(uint64_t first, unsigned from, unsigned to);
void lg_clock_move_all(uint64_t first, uint64_t last, unsigned to);
void lg_clock_drop(uint64_t needed);
void lg_clock_forget(const void *begin, const void *end);

#endif
