/*
 * infer.h - the step rules for programs without PyTorch: stages from the C interface alone (reads
 * and waits, copies, launches, collectives). Context: hooks; rows only on the training thread.
 *
 * With PyTorch's probes in the process all of this stays off.
 */
#ifndef LAGGARD_PRELOAD_INFER_H
#define LAGGARD_PRELOAD_INFER_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/step.h"

/* What a call into CUDA or NCCL is for the rules. */
enum lg_call {
    LG_CALL_OTHER = 0,  /* does not change the stage: a copy back */
    LG_CALL_WAIT,       /* the host waits for the device */
    LG_CALL_H2D,        /* copies to the device */
    LG_CALL_LAUNCH,     /* launches a kernel or a graph */
    LG_CALL_GRADIENT,   /* collective that reduces: gradients, if launches came before */
    LG_CALL_SHARE,      /* one rank gives to the others: a batch, if it comes before launches */
    LG_CALL_COLLECTIVE, /* any other collective */
};

/* A call of the program begins; `bytes`: of a collective, 0: unknown. The first thread that makes a
 * collective, or launches after a copy, becomes the training thread, and the process is one that
 * trains. Returns whether this is the training thread: then call lg_infer_call_end(). */
bool lg_infer_call_begin(enum lg_call call, uint64_t bytes);
void lg_infer_call_end(void);

/* When it began, ns, if it is no launch: the clock need not be asked again. */
uint64_t lg_infer_call_began(void);

/* A read or wait of the training thread begins and ends (preload/io.c). Only called on the training
 * thread of a process in which PyTorch's probes are not installed. */
void lg_infer_wait_begin(void);
void lg_infer_wait_end(void);

/* The program names its stages (ranges.h): gives away the open row, as far as it is known, and its
 * number. False: the thread has no row yet. */
bool lg_infer_hand_over(struct lg_step *step, uint64_t *number);

/* Fork child: forget the parent's steps. Exit, on the training thread: close what is complete. */
void lg_infer_reset(void);
void lg_infer_finish(void);

#endif
