/*
 * spool_writer.h - a small writer of spools for tests: what the library does in a rank process,
 * without training. Included by unit tests; runs in the test or in a child that it kills.
 */
#ifndef LAGGARD_TESTS_SPOOL_WRITER_H
#define LAGGARD_TESTS_SPOOL_WRITER_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "aggregator/process.h"
#include "schema/spool.h"

static inline int64_t writer_clock(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline void writer_name(char *path, size_t size, const char *dir,
                               const struct process_id *id, uint32_t seq)
{
    snprintf(path, size, "%s/%s.%lld.%llu.%u" LG_SPOOL_SUFFIX, dir, process_host(),
             (long long)id->pid, (unsigned long long)id->start, seq);
}

/* A new spool of process `id`, with a whole header. */
static inline struct lg_spool *writer_open(const char *dir, const struct process_id *id,
                                           uint32_t seq, int32_t rank, int32_t world)
{
    char path[512];
    writer_name(path, sizeof(path), dir, id, seq);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, LG_SPOOL_BYTES) != 0)
        abort();
    struct lg_spool *s = mmap(NULL, LG_SPOOL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (s == MAP_FAILED)
        abort();
    s->version = LG_SPOOL_VERSION;
    s->columns = LG_COLUMNS;
    s->file_bytes = LG_SPOOL_BYTES;
    s->slots = LG_SLOTS;
    s->slot_bytes = sizeof(struct lg_slot);
    s->pid = (uint32_t)id->pid;
    s->proc_start = id->start;
    s->seq = seq;
    s->mono_ns = writer_clock(CLOCK_MONOTONIC);
    s->real_ns = writer_clock(CLOCK_REALTIME);
    memcpy(s->boot_id, id->boot_id, sizeof(s->boot_id));
    snprintf(s->host, sizeof(s->host), "%.63s", process_host());
    snprintf(s->run_id, sizeof(s->run_id), "0123456789abcdef0123456789abcdef");
    s->rank = rank;
    s->world = world;
    s->local_rank = -1;
    s->rank_source = LG_RANK_COMMUNICATOR;
    s->seen = LG_SEEN_TORCH | LG_SEEN_BACKWARD;
    atomic_thread_fence(memory_order_release);
    memcpy(s->magic, LG_SPOOL_MAGIC, sizeof(s->magic));
    return s;
}

static inline void writer_close(struct lg_spool *s)
{
    munmap(s, LG_SPOOL_BYTES);
}

/* The row of a step: each value can be told from its step and column. */
static inline int64_t writer_value(int64_t step, int column)
{
    if (column == LG_COL_start_ns)
        return 1000000 + step * 100000;
    if (column == LG_COL_dur_ns)
        return 100000;
    if (column == LG_COL_flags)
        return 0;
    if (column >= LG_COL_gpu_dur_ns || column == LG_COL_compute_ns)
        return LG_NULL;
    if (column >= LG_COL_input_wait_ns && column <= LG_COL_optimizer_ns)
        return 1000 * column + step % 997;
    if (column == LG_COL_other_ns) {
        int64_t rest = 100000;
        for (int c = LG_COL_input_wait_ns; c <= LG_COL_optimizer_ns; c++)
            rest -= writer_value(step, c);
        return rest;
    }
    return step % 7 == column % 7 ? LG_NULL : step * 3 + column;
}

static inline void writer_fill(struct lg_slot *slot, int64_t step, uint32_t state)
{
    slot->step = (uint64_t)step;
    for (int c = 0; c < LG_COLUMNS; c++)
        slot->value[c] = writer_value(step, c);
    atomic_store_explicit(&slot->state, state, memory_order_release);
}

/* Appends a row; 0 = the ring is full. */
static inline int writer_row(struct lg_spool *s, int64_t step, uint32_t state)
{
    uint64_t head = s->head;
    if (head - s->tail >= LG_SLOTS)
        return 0;
    writer_fill(&lg_spool_ring(s)[head % LG_SLOTS], step, state);
    s->steps_complete = (uint64_t)step + 1;
    atomic_store_explicit(&s->head, head + 1, memory_order_release);
    return 1;
}

static inline void writer_held(struct lg_spool *s, int64_t first, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        writer_fill(&lg_spool_held(s)[i], first + i, LG_SLOT_COMPLETE);
    s->held_count = n;
}

static inline void writer_provisional(struct lg_spool *s, int64_t step)
{
    static uint32_t serial;
    struct lg_slot *slot = &lg_spool_provisional(s)[++serial % 2];
    atomic_store_explicit(&slot->state, LG_SLOT_OPEN, memory_order_release);
    slot->serial = serial;
    writer_fill(slot, step, LG_SLOT_COMPLETE);
    s->steps_complete = (uint64_t)step + 1;
}

/* A process that is not there: process numbers end far below. */
static inline struct process_id writer_nobody(void)
{
    struct process_id id = {.pid = 99999999, .start = 12345};
    snprintf(id.boot_id, sizeof(id.boot_id), "%s", process_boot_id());
    return id;
}

#endif
