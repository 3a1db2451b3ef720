/*
 * futex.h - waiting for a 32-bit word to change, by raw system calls: a driver's waits pass no libc
 * function that a tracer could take for the program's. The words may lie in memory shared by
 * processes. Context: any thread of the stand-in libraries.
 */
#ifndef SIM_CUDA_FUTEX_H
#define SIM_CUDA_FUTEX_H

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>

#include "sim.h"

/* Sleeps while *word is `seen`, until `deadline_ns` at most (0: no limit). May wake up for nothing.
 */
static inline void sim_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t deadline_ns)
{
    struct timespec limit = sim_timespec(deadline_ns);
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET, seen, deadline_ns ? &limit : NULL, NULL,
            FUTEX_BITSET_MATCH_ANY);
}

static inline void sim_futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

#endif
