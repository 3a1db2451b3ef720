/*
 * clock.h - the one clock of the host side: CLOCK_MONOTONIC through the vdso. Context: any.
 */
#ifndef LAGGARD_PRELOAD_CLOCK_H
#define LAGGARD_PRELOAD_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t lg_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif
