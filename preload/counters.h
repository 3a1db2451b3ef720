/*
 * counters.h - what is counted beside the stages. Context: hooks.
 *
 * Counters only grow; the step core takes differences between two snapshots. Those of the training
 * thread are plain (only it writes them); those of the process are relaxed atomics.
 */
#ifndef LAGGARD_PRELOAD_COUNTERS_H
#define LAGGARD_PRELOAD_COUNTERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* name = the column, without its unit where it has one */
#define LG_THREAD_COUNTERS(X)                                                                      \
    X(reads) X(read_bytes) X(write_bytes) X(fsyncs) X(host_syncs) X(device_wait_ns)
#define LG_PROCESS_COUNTERS(X)                                                                     \
    X(h2d_copies) X(h2d_bytes) X(h2d_overlapped) X(launches) X(collectives) X(collective_bytes)
/* sampled once a step with one getrusage(RUSAGE_THREAD) */
#define LG_USAGE_COUNTERS(X)                                                                       \
    X(thread_cpu_ns) X(minor_faults) X(major_faults) X(voluntary_switches) X(involuntary_switches)

#define LG_COUNTER_FIELD(name) uint64_t name;
struct lg_counts {
    LG_THREAD_COUNTERS(LG_COUNTER_FIELD)
    LG_PROCESS_COUNTERS(LG_COUNTER_FIELD)
    LG_USAGE_COUNTERS(LG_COUNTER_FIELD)
    uint64_t collective_seq; /* of the largest group */
    bool usage;              /* the getrusage ones were sampled */
};

struct lg_thread_counters {
    LG_THREAD_COUNTERS(LG_COUNTER_FIELD)
};
extern struct lg_thread_counters lg_thread_counters;

#define LG_COUNTER_ATOMIC(name) _Atomic uint64_t name;
struct lg_process_counters {
    LG_PROCESS_COUNTERS(LG_COUNTER_ATOMIC)
    _Atomic uint64_t gradient_syncs; /* Reducer::finalize_backward, on whatever thread */
};
extern struct lg_process_counters lg_process_counters;

static inline void lg_count(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* All counters as they are now; `usage`: the getrusage ones too (a system call). */
void lg_counts_now(struct lg_counts *out, bool usage);
/* The getrusage ones alone. */
void lg_counts_usage(struct lg_counts *out);

#endif
