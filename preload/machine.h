/*
 * machine.h - the step rules for PyTorch: from the training thread's events to rows, decided on
 * line, without hindsight. Context: hooks on the training thread only.
 *
 * The rules carry the names of their description: R1 stage of the time since the last event, R2
 * commit, R3 boundary, R4 backward begin, R5 input begin, R6 optimizer begin, R7 evaluation, R8
 * mode, R9 usual number of backward passes, R10 rows not to judge.
 */
#ifndef LAGGARD_PRELOAD_MACHINE_H
#define LAGGARD_PRELOAD_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/step.h"

enum lg_event {
    LG_EV_INPUT_BEGIN, /* DataLoader.__next__ */
    LG_EV_INPUT_END,
    LG_EV_FORWARD_BEGIN, /* label of DDP, FSDP, ...; argument: gradients are enabled */
    LG_EV_FORWARD_END,
    LG_EV_BACKWARD_BEGIN, /* Engine::execute; argument: accumulate_grad */
    LG_EV_BACKWARD_END,
    LG_EV_OPTIMIZER_BEGIN, /* Optimizer.step */
    LG_EV_OPTIMIZER_END,
    LG_EV_WAIT_BEGIN, /* in a collective; argument: enum lg_wait */
    LG_EV_WAIT_END,
    LG_EV_H2D_BEGIN, /* host-to-device copy call */
    LG_EV_H2D_END,
    LG_EV_IO_BEGIN, /* a read or wait, in a loop without a loader */
    LG_EV_IO_END,
    LG_EV_COMPILE /* code is being compiled */
};

enum lg_wait {
    LG_WAIT_ISSUE = 0,  /* the call that issues a collective */
    LG_WAIT_BLOCKED = 1 /* blocked until the others have come */
};

/* Until one of them is known: is the optimizer's end the commit, or the backward's? */
enum lg_mode { LG_MODE_UNKNOWN, LG_MODE_OPTIMIZER, LG_MODE_BACKWARD };

enum { LG_NESTING = 64 };

/* A call that is open on the training thread: what it is and where its frame lies. */
struct lg_entry {
    uint8_t kind; /* the event that ends it */
    uint8_t argument;
    uintptr_t frame;
};

struct lg_machine {
    struct lg_step step;
    uint64_t number; /* of the next row to be closed, from 0 */

    /* nesting */
    struct lg_entry entry[LG_NESTING];
    uint32_t entries;                                  /* calls: backward, wait, h2d */
    uint32_t input, forward, backward, optimizer, h2d; /* depths */
    uint64_t dropped;                                  /* entries whose end never came */

    /* state of the rules */
    enum lg_mode mode;
    bool accumulates;    /* the outermost backward accumulates gradients */
    bool after_backward; /* a backward of this step has ended, nothing of a next batch has begun */
    bool evaluating;
    bool io; /* inside a read or wait; whatever event comes next is outside of it again */
    bool ever_input;
    uint32_t rows_without_input; /* in a row */
    uint64_t input_mark;         /* the device's, at the begin of the last input */
    uint64_t syncs_at_backward;  /* gradient syncs of the process when the backward began */
    uint32_t usual_backward, last_backward;
    uint32_t usual_input, last_input;
    struct lg_part
        input_call; /* of the last fetch: the time it took, in case it was evaluation's */

    /* rows closed before the mode was known; they may be micro-batches of one step */
    struct lg_row held[LG_HELD];
    uint32_t held_count;
};

/* One event. `now` in ns; `frame`: address of the caller's frame, 0 if it has none that lives until
 * the end event. */
void lg_machine_event(struct lg_machine *m, enum lg_event ev, uint64_t now, uint64_t argument,
                      uintptr_t frame);

/* The process ends in order: closes what is complete. */
void lg_machine_finish(struct lg_machine *m, uint64_t now);

/* Whether IO events are wanted: no loader tells what is input. */
bool lg_machine_wants_io(const struct lg_machine *m);

/* The stage that the thread is in, for the status page. */
enum lg_stage lg_machine_stage(const struct lg_machine *m);

/* The part that the device's time belongs to: as the host's, but copies mark themselves there. */
unsigned lg_machine_device_part(const struct lg_machine *m);

/* The oldest device mark that rows not delivered yet may need. */
uint64_t lg_machine_first_mark(const struct lg_machine *m);

/* The sink: where rows go (spool.c; tests bring their own). `number` is the row's step number. */
void lg_sink_row(const struct lg_row *row, uint64_t number);
void lg_sink_provisional(const struct lg_row *row, uint64_t number);
/* Rows first..first+count-1 are held back; replaces what was held before. */
void lg_sink_held(const struct lg_row *rows, uint32_t count, uint64_t first);

#endif
