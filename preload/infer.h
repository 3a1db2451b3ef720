/*
 * infer.h - the step rules for programs without PyTorch: stages from the C interface alone (reads
 * and waits, copies, launches, collectives). Context: hooks; rows only on the training thread.
 */
#ifndef LAGGARD_PRELOAD_INFER_H
#define LAGGARD_PRELOAD_INFER_H

#include <stdint.h>

/* A read or wait of the training thread begins and ends (preload/io.c). Only called on the training
 * thread of a process in which PyTorch's probes are not installed. */
void lg_infer_wait_begin(void);
void lg_infer_wait_end(void);

/* Fork child: forget the parent's steps. Exit, on the training thread: close what is complete. */
void lg_infer_reset(void);
void lg_infer_finish(void);

#endif
