/*
 * cuda.c - the CUDA runtime: copies to the device, launches, waits for the device. Context: hooks
 * on any thread, hot. Counts are the process', times only the training thread's.
 */
#include "preload/hooks.h"

#include "preload/boot.h"
#include "preload/clock.h"
#include "preload/counters.h"
#include "preload/events.h"
#include "preload/identity.h"
#include "preload/infer.h"

enum purpose { NONE, H2D, LAUNCH, SYNC };

struct scope {
    enum purpose purpose;
    bool inferred;  /* lg_infer_call_end() is due */
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

static inline struct scope enter(enum purpose purpose, size_t bytes, const void *frame)
{
    static const enum lg_call calls[] = {[NONE] = LG_CALL_OTHER,
                                         [H2D] = LG_CALL_H2D,
                                         [LAUNCH] = LG_CALL_LAUNCH,
                                         [SYNC] = LG_CALL_OTHER};
    struct scope s = {NONE, false, 0};
    if (!lg_awake())
        return s;
    lg_identity_saw(LG_SEEN_CUDA);
    s.purpose = purpose;
    s.inferred = lg_infer_call_begin(calls[purpose], 0);
    if (purpose == SYNC && lg_on_training_thread())
        s.begin = lg_now_ns();
    if (purpose == H2D && lg_process.torch)
        lg_feed(LG_EV_H2D_BEGIN, 0, frame);
    count(purpose, bytes); /* only now: the call may have closed a row */
    return s;
}

static inline void leave(const struct scope *s)
{
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
#define CUDA(id, params, purpose, bytes, arguments)                                                \
    int hook_##id params                                                                           \
    {                                                                                              \
        real_##id##_fn next = REAL(id);                                                            \
        if (next == NULL) /* somebody asks whether the library is there */                         \
            return LG_CUDA_NO_LIBRARY;                                                             \
        struct scope s __attribute__((cleanup(leave), unused)) =                                   \
            enter(purpose, bytes, __builtin_frame_address(0));                                     \
        return next arguments;                                                                     \
    }

/* cudaMemcpy waits for the device; towards the device the wait is the copy's own time. */
static enum purpose of_copy(int kind, bool blocks)
{
    return kind == LG_CUDA_HOST_TO_DEVICE ? H2D : blocks ? SYNC : NONE;
}

#define COPY(id)                                                                                   \
    CUDA(id, (void *to, const void *from, size_t n, int kind), of_copy(kind, true), n,             \
         (to, from, n, kind))
#define COPY_ASYNC(id)                                                                             \
    CUDA(id, (void *to, const void *from, size_t n, int kind, void *stream), of_copy(kind, false), \
         n, (to, from, n, kind, stream))
#define LAUNCH_OF(id, function)                                                                    \
    CUDA(id,                                                                                       \
         (function f, struct lg_dim3 grid, struct lg_dim3 block, void **args, size_t shared,       \
          void *stream),                                                                           \
         LAUNCH, 0, (f, grid, block, args, shared, stream))
#define LAUNCH_EX(id)                                                                              \
    CUDA(id, (const void *config, const void *f, void **args), LAUNCH, 0, (config, f, args))

COPY(cuda_memcpy)
COPY(cuda_memcpy_ptds)
COPY_ASYNC(cuda_memcpy_async)
COPY_ASYNC(cuda_memcpy_async_ptsz)
LAUNCH_OF(cuda_launch, const void *)
LAUNCH_OF(cuda_launch_ptsz, const void *)
LAUNCH_OF(cuda_launch13, void *)
LAUNCH_OF(cuda_launch13_ptsz, void *)
LAUNCH_EX(cuda_launch_ex)
LAUNCH_EX(cuda_launch_ex_ptsz)
CUDA(cuda_graph_launch, (void *graph, void *stream), LAUNCH, 0, (graph, stream))
CUDA(cuda_graph_launch_ptsz, (void *graph, void *stream), LAUNCH, 0, (graph, stream))
CUDA(cuda_stream_sync, (void *stream), SYNC, 0, (stream))
CUDA(cuda_stream_sync_ptsz, (void *stream), SYNC, 0, (stream))
CUDA(cuda_device_sync, (void), SYNC, 0, ())
CUDA(cuda_event_sync, (void *event), SYNC, 0, (event))
