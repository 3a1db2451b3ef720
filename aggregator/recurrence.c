/*
 * recurrence.c - periods and stretches (recurrence.h). Pure functions, in the reading commands.
 */
#include "aggregator/recurrence.h"

#include <stdlib.h>

#include "aggregator/rows.h"

#define FEWEST_EVENTS 3
#define CLEAR         0.5 /* smallest product */

static size_t slots_of(const enum lg_slot_kind *slot, size_t n, size_t period, size_t phase)
{
    size_t slots = 0;

    for (size_t i = phase; i < n; i += period)
        slots += slot[i] != LG_SLOT_ABSENT;
    return slots;
}

static double product(const struct lg_period *p)
{
    return (double)p->in_phase / (double)p->slots * (double)p->in_phase / (double)p->events;
}

/* The best phase of that period, of equal ones the one of the earliest event; in_phase is 0 if none
 * has events enough. `count` is all 0, and so it is left. */
static struct lg_period best_phase(const enum lg_slot_kind *slot, size_t n, const size_t *event,
                                   size_t events, size_t period, size_t *count)
{
    struct lg_period best = {.period = period, .events = events, .slots = 1};

    for (size_t i = 0; i < events; i++)
        count[event[i] % period]++;
    for (size_t i = 0; i < events; i++) {
        struct lg_period try = best;

        try.phase = event[i] % period;
        try.in_phase = count[try.phase];
        count[try.phase] = 0; /* looked at */
        if (try.in_phase < FEWEST_EVENTS)
            continue;
        try.slots = slots_of(slot, n, period, try.phase);
        if (product(&try) > product(&best))
            best = try;
    }
    return best;
}

/* A phase of a long period has few slots: it can't hold enough of the events any more. */
static bool is_too_long(size_t period, size_t n, size_t events)
{
    size_t slots = n / period + 1;
    return (double)slots < CLEAR * (double)events;
}

bool lg_find_period(const enum lg_slot_kind *slot, size_t n, struct lg_period *period)
{
    size_t *event = lg_alloc(n, sizeof(*event)), *count = lg_alloc(n, sizeof(*count)), events = 0;
    double best = 0;

    for (size_t i = 0; i < n; i++)
        if (slot[i] == LG_SLOT_EVENT)
            event[events++] = i;
    for (size_t p = 2; events >= FEWEST_EVENTS && p <= n / 3 && !is_too_long(p, n, events); p++) {
        struct lg_period try = best_phase(slot, n, event, events, p, count);

        if (product(&try) >= CLEAR && product(&try) > best) {
            best = product(&try);
            *period = try;
        }
    }
    free(event);
    free(count);
    return best > 0;
}

bool lg_find_stretch(const bool *marked, size_t n, size_t *from, size_t *to)
{
    long sum = 0, best = 0;
    size_t begin = 0;

    for (size_t i = 0; i < n; i++) {
        if (sum <= 0) {
            sum = 0;
            begin = i;
        }
        sum += marked[i] ? 1 : -1;
        if (sum > best) {
            best = sum;
            *from = begin;
            *to = i + 1;
        }
    }
    return best > 0;
}
