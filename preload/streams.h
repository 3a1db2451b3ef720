/*
 * streams.h - what is known of the program's CUDA streams and events: how much work goes to each
 * stream, and which ones carry the waiting for other ranks. Context: hooks on any thread; no locks,
 * no calls out.
 *
 * A stream is *tainted* once a collective goes to it or it waits for an event that was recorded on
 * a tainted stream; an event is tainted while its last record was on such a stream. The compute
 * stream itself never is (device.c). A null stream is one stream, whatever the device.
 */
#ifndef LAGGARD_PRELOAD_STREAMS_H
#define LAGGARD_PRELOAD_STREAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/hooks.h"

/* The null stream has two names. */
static inline const void *lg_stream_name(const void *handle)
{
    return handle == LG_CUDA_STREAM_LEGACY ? (const void *)0 : handle;
}

/* Work of some weight goes to a stream, by way of that libcudart (LG_CUDART_COUNT: not by any). */
void lg_stream_work(const void *handle, unsigned weight, enum lg_cudart cudart);

bool lg_stream_tainted(const void *handle);
void lg_stream_taint(const void *handle, bool tainted);

/* The stream is gone; another one may get its name. */
void lg_stream_forget(const void *handle);

/* An event was recorded on a stream that is tainted or not; whether its last record was. */
void lg_event_recorded(const void *event, bool tainted);
bool lg_event_tainted(const void *event);

/* Once a step: the stream with the most work lately. False if no work was seen. `current`: kept
 * unless another one has clearly more (NULL: none yet; else points to its name). */
bool lg_stream_busiest(const void *const *current, const void **busiest, enum lg_cudart *cudart);

/* Whether the work of the step so far went mostly to other streams than that one. */
bool lg_stream_deserted(const void *handle);

/* In a fork child. */
void lg_streams_reset(void);

#endif
