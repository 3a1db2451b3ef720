/*
 * cuda.c - the CUDA runtime: copies to the device, launches, waits for the device. Context: hooks
 * on any thread, hot. Counts are the process', times only the training thread's.
 */
#include "preload/hooks.h"

#include "preload/boot.h"
#include "preload/clock.h"
#include "preload/counters.h"
#include "preload/device.h"
#include "preload/events.h"
#include "preload/identity.h"
#include "preload/infer.h"

enum purpose { NONE, H2D, LAUNCH, SYNC };

struct scope {
    enum purpose purpose;
    bool inferred;  /* lg_infer_call_end() is due */
    bool marked;    /* lg_device_copy_end() is due */
    uint64_t begin; /* ns, of a SYNC on the training thread, else 0 */
};

static void count(enum purpose purpose, size_t bytes)
{
    if (purpose == LAUNCH) {
        lg_count(&lg_process_counters.launches, 1);
    } else if (purpose == H2D) {
        lg_count(&lg_process_counters.h2d_copies, 1);
        lg_count(&lg_process_counters.h2d_bytes, bytes);
    }
}

static inline struct scope enter(enum purpose purpose, size_t bytes, const void *stream,
                                 const void *frame)
{
    static const enum lg_call calls[] = {[NONE] = LG_CALL_OTHER,
                                         [H2D] = LG_CALL_H2D,
                                         [LAUNCH] = LG_CALL_LAUNCH,
                                         [SYNC] = LG_CALL_OTHER};
    struct scope s = {NONE, false, false, 0};
    if (!lg_awake())
        return s;
    lg_identity_saw(LG_SEEN_CUDA);
    s.purpose = purpose;
    s.inferred = lg_infer_call_begin(calls[purpose], 0);
    if (purpose == SYNC && lg_on_training_thread())
        s.begin = lg_now_ns();
    if (purpose == H2D && lg_process.torch)
        lg_feed(LG_EV_H2D_BEGIN, 0, frame);
    count(purpose, bytes); /* only now: the call may have closed a row, which it is not part of */
    if (purpose == H2D)
        s.marked = lg_device_copy_begin(stream);
    else if (purpose != SYNC)
        lg_device_work(stream);
    return s;
}

static inline void leave(const struct scope *s)
{
    if (s->marked)
        lg_device_copy_end();
    if (s->purpose == SYNC)
        lg_device_poll();
    if (s->begin != 0 && lg_on_training_thread()) {
        lg_thread_counters.host_syncs++;
        lg_thread_counters.device_wait_ns += lg_now_ns() - s->begin;
    }
    if (s->inferred)
        lg_infer_call_end();
    if (s->purpose == H2D && lg_process.torch)
        lg_feed(LG_EV_H2D_END, 0, NULL);
}

/* One hook. The real function is left by return, cancellation or exception: `leave` always runs. */
#define CUDA(id, params, purpose, bytes, stream, arguments)                                        \
    int hook_##id params                                                                           \
    {                                                                                              \
        real_##id##_fn next = REAL(id);                                                            \
        if (next == NULL) /* somebody asks whether the library is there */                         \
            return LG_CUDA_NO_LIBRARY;                                                             \
        struct scope s __attribute__((cleanup(leave), unused)) =                                   \
            enter(purpose, bytes, stream, __builtin_frame_address(0));                             \
        return next arguments;                                                                     \
    }

/* The null stream of the two families of names: the legacy one, and the calling thread's own. */
#define PLAIN(stream) (stream)
#define PTSZ(stream)  ((stream) != NULL ? (stream) : LG_CUDA_STREAM_PER_THREAD)

/* cudaMemcpy waits for the device; towards the device the wait is the copy's own time. */
static enum purpose of_copy(int kind, bool blocks)
{
    return kind == LG_CUDA_HOST_TO_DEVICE ? H2D : blocks ? SYNC : NONE;
}

#define COPY(id, null)                                                                             \
    CUDA(id, (void *to, const void *from, size_t n, int kind), of_copy(kind, true), n, null(NULL), \
         (to, from, n, kind))
#define COPY_ASYNC(id, null)                                                                       \
    CUDA(id, (void *to, const void *from, size_t n, int kind, void *stream), of_copy(kind, false), \
         n, null(stream), (to, from, n, kind, stream))
#define LAUNCH_OF(id, function, null)                                                              \
    CUDA(id,                                                                                       \
         (function f, struct lg_dim3 grid, struct lg_dim3 block, void **args, size_t shared,       \
          void *stream),                                                                           \
         LAUNCH, 0, null(stream), (f, grid, block, args, shared, stream))
#define LAUNCH_EX(id, null)                                                                        \
    CUDA(id, (const void *config, const void *f, void **args), LAUNCH, 0,                          \
         null(((const struct lg_launch_config *)config)->stream), (config, f, args))
#define LAUNCH_GRAPH(id, null)                                                                     \
    CUDA(id, (void *graph, void *stream), LAUNCH, 0, null(stream), (graph, stream))
#define WAIT_FOR(id) CUDA(id, (void *stream), SYNC, 0, stream, (stream))

COPY(cuda_memcpy, PLAIN)
COPY(cuda_memcpy_ptds, PTSZ)
COPY_ASYNC(cuda_memcpy_async, PLAIN)
COPY_ASYNC(cuda_memcpy_async_ptsz, PTSZ)
LAUNCH_OF(cuda_launch, const void *, PLAIN)
LAUNCH_OF(cuda_launch_ptsz, const void *, PTSZ)
LAUNCH_OF(cuda_launch13, void *, PLAIN)
LAUNCH_OF(cuda_launch13_ptsz, void *, PTSZ)
LAUNCH_EX(cuda_launch_ex, PLAIN)
LAUNCH_EX(cuda_launch_ex_ptsz, PTSZ)
LAUNCH_GRAPH(cuda_graph_launch, PLAIN)
LAUNCH_GRAPH(cuda_graph_launch_ptsz, PTSZ)
WAIT_FOR(cuda_stream_sync)
WAIT_FOR(cuda_stream_sync_ptsz)
WAIT_FOR(cuda_event_sync)
CUDA(cuda_device_sync, (void), SYNC, 0, NULL, ())
