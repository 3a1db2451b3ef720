/*
 * sim.h - what the stand-ins for libcudart and libnccl share, and the few calls beyond CUDA's own
 * that a test program may make: to give a kernel a body and to make one operation slow. Context:
 * test programs and the stand-in libraries. Times are CLOCK_MONOTONIC nanoseconds.
 *
 * Knobs, from the environment, read at the first use (see tests/sim/README.md):
 *   SIM_KERNEL_US (0) and SIM_BLOCK_NS (1000): a launch lasts KERNEL_US + BLOCK_NS x blocks of its
 * grid SIM_COPY_US (0), SIM_COPY_MBPS (20000): a copy SIM_NCCL_US (30), SIM_NCCL_MBPS (10000): a
 * collective, from the arrival of its last rank SIM_TIMEOUT_MS (30000): a collective whose peers do
 * not come ends with ncclRemoteError SIM_NOT_READY (0): so many queries of each recorded event
 * answer cudaErrorNotReady first SIM_NCCL_VERSION (the header's): what ncclGetVersion says
 */
#ifndef SIM_H
#define SIM_H

#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cuda_runtime_api.h"

/* One operation of a stream. begin_ns: when it may begin. Returns when it ends; the stream is busy
 * until then. In blocking mode it runs on the calling thread, later on a thread of the stream. */
typedef uint64_t (*sim_operation)(void *arg, uint64_t begin_ns);

/* Runs `operation` in the order of `stream`; in blocking mode returns when it has ended. */
void simSubmit(cudaStream_t stream, sim_operation operation, void *arg);

/* The bytes behind a device pointer; any other pointer comes back unchanged. */
void *simHost(const void *pointer);

/* Launches of `function` run `body` on the bytes that their only argument consists of (arg_bytes
 * long, copied at the launch). A function without a body only takes its time. At most 64. */
void simKernel(const void *function, void (*body)(void *arg), size_t arg_bytes);

/* The next operation that the calling thread submits lasts so much longer. */
void simSlow(uint64_t ns);

static inline uint64_t sim_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline struct timespec sim_timespec(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
                             .tv_nsec = (long)(ns % 1000000000u)};
}

/* A raw system call: a real driver's waits pass no libc function that a tracer could hook. */
static inline void sim_sleep_until(uint64_t ns)
{
    struct timespec t = sim_timespec(ns);
    while (sim_now() < ns)
        syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static inline uint64_t sim_knob(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

/* Time of `bytes` at `mbps` MB/s. */
static inline uint64_t sim_transfer_ns(uint64_t bytes, uint64_t mbps)
{
    return mbps ? bytes * 1000 / mbps : 0;
}

#endif
