/*
 * recurrence.h - how events recur over a sequence of steps: with a period, or in one stretch. Pure
 * functions, in the reading commands.
 */
#ifndef LAGGARD_AGGREGATOR_RECURRENCE_H
#define LAGGARD_AGGREGATOR_RECURRENCE_H

#include <stdbool.h>
#include <stddef.h>

/* A slot of the sequence: a step that is not looked at fills no phase and leaves none empty. */
enum lg_slot_kind { LG_SLOT_QUIET, LG_SLOT_EVENT, LG_SLOT_ABSENT };

struct lg_period {
    size_t period, phase;    /* events at phase, phase + period, ... */
    size_t events, in_phase; /* all, and those in the phase */
    size_t slots;            /* slots of the phase, absent ones apart */
};

/* Looks for a period from 2 to n/3 one phase of which holds at least 3 events and for which (part
 * of the phase that is filled) x (part of the events in it) >= 0.5; the best product, of equal ones
 * the shortest period. */
bool lg_find_period(const enum lg_slot_kind *slot, size_t n, struct lg_period *period);

/* The stretch [from, to) that maximises (marked - unmarked) steps; false when nothing is marked. */
bool lg_find_stretch(const bool *marked, size_t n, size_t *from, size_t *to);

#endif
