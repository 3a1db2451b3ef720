/*
 * events.h - from hooks to the step machine: which thread is the training thread, the first sign of
 * training, and feeding events. Context: hooks on any thread.
 */
#ifndef LAGGARD_PRELOAD_EVENTS_H
#define LAGGARD_PRELOAD_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/boot.h"
#include "preload/machine.h"

/* This process trains: opens the spool, once. Called at a communicator's birth and at a backward.
 */
void lg_sign_of_training(void);

/* The calling thread is the training thread until a backward on another one says otherwise. */
void lg_events_candidate(void);

/* A backward that accumulates gradients begins on the calling thread: it is the training thread. */
void lg_events_backward(void);

/* One event of the training thread; does nothing on any other. */
void lg_feed_event(enum lg_event ev, uint64_t argument, uintptr_t frame);
static inline void lg_feed(enum lg_event ev, uint64_t argument, const void *frame)
{
    if (lg_on_training_thread())
        lg_feed_event(ev, argument, (uintptr_t)frame);
}

/* Fork child: forget the parent's steps. Exit: close what is complete. */
void lg_events_reset(void);
void lg_events_finish(void);

#endif
