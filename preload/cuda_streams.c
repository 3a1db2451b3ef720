/*
 * cuda_streams.c - the CUDA runtime: how streams order themselves (events recorded, waits for
 * events) and graph capture; what the device's clock needs to know. Context: hooks on any thread,
 * hot.
 */
#include "preload/hooks.h"

#include "preload/boot.h"
#include "preload/device.h"
#include "preload/streams.h"

#define PLAIN(stream) (stream)
#define PTSZ(stream)  ((stream) != NULL ? (stream) : LG_CUDA_STREAM_PER_THREAD)

#define EACH(macro, ...) LG_CUDARTS(macro, __VA_ARGS__)

/* ---- events */

#define RECORD_OF(n, node, at, id, null, params, arguments)                                        \
    int hook_##id##_##n params                                                                     \
    {                                                                                              \
        real_##id##_fn next = REAL_OF(id, LG_CUDART_##n);                                          \
        if (next == NULL)                                                                          \
            return LG_CUDA_NO_LIBRARY;                                                             \
        int r = next arguments;                                                                    \
        if (lg_awake())                                                                            \
            lg_device_recorded(event, null(stream));                                               \
        return r;                                                                                  \
    }
#define RECORD(id, null, params, arguments) EACH(RECORD_OF, id, null, params, arguments)

RECORD(cuda_event_record, PLAIN, (void *event, void *stream), (event, stream))
RECORD(cuda_event_record_ptsz, PTSZ, (void *event, void *stream), (event, stream))
RECORD(cuda_event_record_flags, PLAIN, (void *event, void *stream, unsigned flags),
       (event, stream, flags))
RECORD(cuda_event_record_flags_ptsz, PTSZ, (void *event, void *stream, unsigned flags),
       (event, stream, flags))

/* ---- waits */

#define WAIT_OF(n, node, at, id, null)                                                             \
    int hook_##id##_##n(void *stream, void *event, unsigned flags)                                 \
    {                                                                                              \
        real_##id##_fn next = REAL_OF(id, LG_CUDART_##n);                                          \
        if (next == NULL)                                                                          \
            return LG_CUDA_NO_LIBRARY;                                                             \
        bool exposed = lg_awake() && lg_device_wait_begin(null(stream), event);                    \
        int r = next(stream, event, flags);                                                        \
        if (exposed)                                                                               \
            lg_device_wait_end();                                                                  \
        return r;                                                                                  \
    }

EACH(WAIT_OF, cuda_stream_wait, PLAIN)
EACH(WAIT_OF, cuda_stream_wait_ptsz, PTSZ)

/* ---- capture: counted before it begins and after it has ended */

#define BEGIN_OF(n, node, at, id, params, arguments)                                               \
    int hook_##id##_##n params                                                                     \
    {                                                                                              \
        real_##id##_fn next = REAL_OF(id, LG_CUDART_##n);                                          \
        if (next == NULL)                                                                          \
            return LG_CUDA_NO_LIBRARY;                                                             \
        bool awake = lg_awake();                                                                   \
        if (awake)                                                                                 \
            lg_device_capture(1);                                                                  \
        int r = next arguments;                                                                    \
        if (awake && r != LG_CUDA_SUCCESS)                                                         \
            lg_device_capture(-1);                                                                 \
        return r;                                                                                  \
    }

EACH(BEGIN_OF, cuda_begin_capture, (void *stream, int mode), (stream, mode))
EACH(BEGIN_OF, cuda_begin_capture_ptsz, (void *stream, int mode), (stream, mode))
EACH(BEGIN_OF, cuda_begin_capture_to_graph,
     (void *stream, void *graph, const void *dependencies, const void *data, size_t count,
      int mode),
     (stream, graph, dependencies, data, count, mode))
EACH(BEGIN_OF, cuda_begin_capture_to_graph_ptsz,
     (void *stream, void *graph, const void *dependencies, const void *data, size_t count,
      int mode),
     (stream, graph, dependencies, data, count, mode))

/* A failed end has ended the capture or not: wrong thread, wrong stream. The stream tells. */
static bool still_captures(real_cuda_is_capturing_fn ask, void *stream)
{
    int status = LG_CUDA_CAPTURE_NONE;
    return ask != NULL && lg_stream_name(stream) != NULL &&
           ask(stream, &status) == LG_CUDA_SUCCESS && status != LG_CUDA_CAPTURE_NONE;
}

#define END_OF(n, node, at, id)                                                                    \
    int hook_##id##_##n(void *stream, void **graph)                                                \
    {                                                                                              \
        real_##id##_fn next = REAL_OF(id, LG_CUDART_##n);                                          \
        if (next == NULL)                                                                          \
            return LG_CUDA_NO_LIBRARY;                                                             \
        int r = next(stream, graph);                                                               \
        if (lg_awake() && r != LG_CUDA_ILLEGAL_STATE && /* else nobody captured */                 \
            (r == LG_CUDA_SUCCESS ||                                                               \
             !still_captures(REAL_OF(cuda_is_capturing, LG_CUDART_##n), stream)))                  \
            lg_device_capture(-1);                                                                 \
        return r;                                                                                  \
    }

EACH(END_OF, cuda_end_capture)
EACH(END_OF, cuda_end_capture_ptsz)

/* ---- ends */

#define DESTROY_OF(n, node, at, id)                                                                \
    int hook_##id##_##n(void *stream)                                                              \
    {                                                                                              \
        real_##id##_fn next = REAL_OF(id, LG_CUDART_##n);                                          \
        if (next == NULL)                                                                          \
            return LG_CUDA_NO_LIBRARY;                                                             \
        if (lg_awake())                                                                            \
            lg_device_stream_gone(stream);                                                         \
        return next(stream);                                                                       \
    }
#define RESET_OF(n, node, at, id)                                                                  \
    int hook_##id##_##n(void)                                                                      \
    {                                                                                              \
        real_##id##_fn next = REAL_OF(id, LG_CUDART_##n);                                          \
        if (next == NULL)                                                                          \
            return LG_CUDA_NO_LIBRARY;                                                             \
        if (lg_awake())                                                                            \
            lg_device_gone();                                                                      \
        return next();                                                                             \
    }

EACH(DESTROY_OF, cuda_stream_destroy)
EACH(RESET_OF, cuda_device_reset)

#define CALL(area, need, id, symbol, ret, params)
#define VERSIONS_LIBC(id, symbol)
#define VERSIONS_TORCH(id, symbol)
#define VERSIONS_DRIVER(id, symbol)
#define VERSIONS_NCCL(id, symbol)
#define VERSIONS_NVTX(id, symbol)
#define VERSIONS_CUDA(id, symbol)
#define VERSIONS_STREAM(id, symbol)               LG_VERSIONS(id, symbol)
#define HOOK(area, need, id, symbol, ret, params) VERSIONS_##area(id, symbol)
#include "preload/hooks.def"
