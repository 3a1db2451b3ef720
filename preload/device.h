/*
 * device.h - the device's clock: where the compute stream's time goes, as the step core does it for
 * the training thread. Context: hooks on any thread; never waits for the device.
 *
 * The compute stream (most launches) gets a timed event, a *mark*, at each boundary between parts
 * and around each wait for a collective. A mark says what the time from it to the next mark is: the
 * part, and whether the stream stood still for other ranks (`sync`). So the parts of a row on the
 * device's clock sum to its duration there, and follow the same moves (hold becomes forward, ...)
 * as the host's.
 *
 * An exposed wait is a cudaStreamWaitEvent of the compute stream for an event that was recorded on
 * a tainted stream (streams.h); a collective on the compute stream itself; nothing else.
 *
 * Marks are read later, when the row's last one has completed (cudaEventQuery from a later hook).
 * While any stream captures a graph, or the program has an error pending, nothing is called; the
 * rows that this touches have no device times (NULL).
 */
#ifndef LAGGARD_PRELOAD_DEVICE_H
#define LAGGARD_PRELOAD_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/hooks.h"
#include "schema/spool.h"

/* What goes to a stream, by how much it says that this is the compute stream. */
enum lg_device_work { LG_WORK_COPY = 1, LG_WORK_LAUNCH = 16, LG_WORK_GRAPH = 1024 };

/* A kernel, graph or copy goes to a stream, by way of that libcudart (LG_CUDART_COUNT: of none). */
void lg_device_work(const void *stream, enum lg_device_work work, enum lg_cudart cudart);

/* A copy to the device goes to a stream, and has gone there. Returns whether it is measured; then
 * the second call is due. */
bool lg_device_copy_begin(const void *stream, enum lg_cudart cudart);
void lg_device_copy_end(void);

/* Whether the clock runs (from the second step on), and a stream is the compute stream. */
bool lg_device_is_on(void);
bool lg_device_is_compute(const void *stream);

/* Kind of the memory at an address (enum cudaMemoryType); -1: this is no moment to ask. */
int lg_device_memory(const void *address, enum lg_cudart cudart);

/* An event was recorded on a stream; a stream is about to wait for an event (if this returns true,
 * the end is due when it has been told to). */
void lg_device_recorded(const void *event, const void *stream);
bool lg_device_wait_begin(const void *stream, const void *event);
void lg_device_wait_end(void);

/* A collective goes to a stream: true if the stream is the compute stream, and lg_device_wait_end()
 * is due after the call that enqueues it. */
bool lg_device_collective_begin(const void *stream);

/* A stream is about to be destroyed; the whole device is about to be reset. */
void lg_device_stream_gone(const void *stream);
void lg_device_gone(void);

/* The training thread's part changed (enum of step.h), on the device's side. `turn`: a row begins
 * or was committed here. */
void lg_device_boundary(unsigned part, bool turn);

/* Graph captures begin and end: +1, -1. */
void lg_device_capture(int change);

/* Number of the next mark: rows keep the range of theirs. */
uint64_t lg_device_next_mark(void);

/* Marks from `first` on that belong to part `from` belong to part `to`. */
void lg_device_move(uint64_t first, unsigned from, unsigned to);

/* Marks [first, last) belong to part `to`, whatever they were. */
void lg_device_move_all(uint64_t first, uint64_t last, unsigned to);

/* A row with marks [first, last) was published in `slot` (state HOST_DONE): fill it in when the
 * device has come so far. Returns false when there is nothing to wait for. */
bool lg_device_expect(struct lg_slot *slot, uint64_t first, uint64_t last);

/* Rows whose slots lie in [begin, end), which is about to be unmapped: complete without device
 * times. */
void lg_device_forget(const void *begin, const void *end);

/* Looks whether expected rows are done. Cheap when there are none. */
void lg_device_poll(void);

/* A new step begins: chooses the compute stream, decides whether this step's waits are measured.
 * Marks before number `needed` are no longer any row's, but for the rows expected. */
void lg_device_step(uint64_t number, uint64_t needed);

void lg_device_reset(void);

#endif
