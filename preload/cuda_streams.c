/*
 * cuda_streams.c - the CUDA runtime: how streams order themselves (events recorded, waits for
 * events) and graph capture; what the device's clock needs to know. Context: hooks on any thread,
 * hot.
 */
#include "preload/hooks.h"

#include "preload/boot.h"
#include "preload/device.h"

#define PLAIN(stream) (stream)
#define PTSZ(stream)  ((stream) != NULL ? (stream) : LG_CUDA_STREAM_PER_THREAD)

/* ---- events */

#define RECORD(id, null, params, arguments)                                                        \
    int hook_##id params                                                                           \
    {                                                                                              \
        real_##id##_fn next = REAL(id);                                                            \
        if (next == NULL)                                                                          \
            return LG_CUDA_NO_LIBRARY;                                                             \
        int r = next arguments;                                                                    \
        if (lg_awake())                                                                            \
            lg_device_recorded(event, null(stream));                                               \
        return r;                                                                                  \
    }

RECORD(cuda_event_record, PLAIN, (void *event, void *stream), (event, stream))
RECORD(cuda_event_record_ptsz, PTSZ, (void *event, void *stream), (event, stream))
RECORD(cuda_event_record_flags, PLAIN, (void *event, void *stream, unsigned flags),
       (event, stream, flags))
RECORD(cuda_event_record_flags_ptsz, PTSZ, (void *event, void *stream, unsigned flags),
       (event, stream, flags))

/* ---- waits */

#define WAIT_EVENT(id, null)                                                                       \
    int hook_##id(void *stream, void *event, unsigned flags)                                       \
    {                                                                                              \
        real_##id##_fn next = REAL(id);                                                            \
        if (next == NULL)                                                                          \
            return LG_CUDA_NO_LIBRARY;                                                             \
        bool exposed = lg_awake() && lg_device_wait_begin(null(stream), event);                    \
        int r = next(stream, event, flags);                                                        \
        if (exposed)                                                                               \
            lg_device_wait_end();                                                                  \
        return r;                                                                                  \
    }

WAIT_EVENT(cuda_stream_wait, PLAIN)
WAIT_EVENT(cuda_stream_wait_ptsz, PTSZ)

/* ---- capture: counted before it begins and after it has ended */

#define BEGIN_CAPTURE(id, params, arguments)                                                       \
    int hook_##id params                                                                           \
    {                                                                                              \
        real_##id##_fn next = REAL(id);                                                            \
        if (next == NULL)                                                                          \
            return LG_CUDA_NO_LIBRARY;                                                             \
        lg_device_capture(1);                                                                      \
        int r = next arguments;                                                                    \
        if (r != LG_CUDA_SUCCESS)                                                                  \
            lg_device_capture(-1);                                                                 \
        return r;                                                                                  \
    }
#define END_CAPTURE(id)                                                                            \
    int hook_##id(void *stream, void **graph)                                                      \
    {                                                                                              \
        real_##id##_fn next = REAL(id);                                                            \
        if (next == NULL)                                                                          \
            return LG_CUDA_NO_LIBRARY;                                                             \
        int r = next(stream, graph);                                                               \
        if (r != LG_CUDA_ILLEGAL_STATE) /* it was capturing */                                     \
            lg_device_capture(-1);                                                                 \
        return r;                                                                                  \
    }

BEGIN_CAPTURE(cuda_begin_capture, (void *stream, int mode), (stream, mode))
BEGIN_CAPTURE(cuda_begin_capture_ptsz, (void *stream, int mode), (stream, mode))
BEGIN_CAPTURE(cuda_begin_capture_to_graph,
              (void *stream, void *graph, const void *dependencies, const void *data, size_t n,
               int mode),
              (stream, graph, dependencies, data, n, mode))
BEGIN_CAPTURE(cuda_begin_capture_to_graph_ptsz,
              (void *stream, void *graph, const void *dependencies, const void *data, size_t n,
               int mode),
              (stream, graph, dependencies, data, n, mode))
END_CAPTURE(cuda_end_capture)
END_CAPTURE(cuda_end_capture_ptsz)
