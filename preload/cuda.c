/*
 * cuda.c - the CUDA runtime: copies, launches, waits for the device, memory. Context: hooks on any
 * thread, hot. Counts are the process', times only the training thread's.
 */
#include "preload/hooks.h"

#include "preload/boot.h"
#include "preload/clock.h"
#include "preload/counters.h"
#include "preload/device.h"
#include "preload/events.h"
#include "preload/identity.h"
#include "preload/infer.h"
#include "preload/streams.h"

enum purpose {
    MOVE,   /* a copy on the device, or to another one */
    H2D,    /* a copy to the device */
    LAUNCH, /* a kernel */
    GRAPH,  /* a graph: many kernels */
    D2H,    /* a copy from the device: the host may have to wait for it */
    SYNC,   /* the host waits for the device */
    ALLOC   /* the allocator, which may wait for the device */
};

struct scope {
    bool awake;
    enum purpose purpose;
    bool inferred;  /* lg_infer_call_end() is due */
    bool marked;    /* lg_device_copy_end() is due */
    uint64_t begin; /* ns, of what may wait for the device on the training thread, else 0 */
};

static void count(enum purpose purpose, size_t bytes, const void *stream)
{
    if (purpose == LAUNCH || purpose == GRAPH) {
        lg_count(&lg_process_counters.launches, 1);
    } else if (purpose == H2D) {
        lg_count(&lg_process_counters.h2d_copies, 1);
        lg_count(&lg_process_counters.h2d_bytes, bytes);
        if (lg_device_is_on() && !lg_device_is_compute(stream))
            lg_count(&lg_process_counters.h2d_overlapped, bytes);
    }
}

static __attribute__((noinline)) struct scope enter(enum purpose purpose, size_t bytes,
                                                    const void *stream, enum lg_cudart cudart,
                                                    const void *frame)
{
    static const uint8_t calls[] = {[H2D] = LG_CALL_H2D,
                                    [LAUNCH] = LG_CALL_LAUNCH,
                                    [GRAPH] = LG_CALL_LAUNCH,
                                    [SYNC] = LG_CALL_WAIT,
                                    [ALLOC] = 0};
    static const uint16_t works[] = {[MOVE] = LG_WORK_COPY,
                                     [LAUNCH] = LG_WORK_LAUNCH,
                                     [GRAPH] = LG_WORK_GRAPH,
                                     [D2H] = LG_WORK_COPY,
                                     [ALLOC] = 0};
    struct scope s = {false, purpose, false, false, 0};
    if (!lg_awake())
        return s;
    s.awake = true;
    if (calls[purpose] > LG_CALL_WAIT)
        lg_identity_saw(LG_SEEN_CUDA);
    s.inferred = lg_infer_call_begin((enum lg_call)calls[purpose], 0);
    if (purpose >= D2H && lg_on_training_thread())
        s.begin = s.inferred ? lg_infer_call_began() : lg_now_ns();
    if (purpose == H2D && lg_process.torch)
        lg_feed(LG_EV_H2D_BEGIN, 0, frame);
    count(purpose, bytes, stream); /* only now: the call may have closed a row without it */
    if (purpose == H2D)
        s.marked = lg_device_copy_begin(stream, cudart);
    else if (works[purpose] != 0)
        lg_device_work(stream, (enum lg_device_work)works[purpose], cudart);
    return s;
}

static __attribute__((noinline)) void leave(const struct scope *s)
{
    if (!s->awake)
        return;
    if (s->marked)
        lg_device_copy_end();
    if (s->begin != 0 && lg_on_training_thread()) {
        lg_thread_counters.host_syncs += s->purpose == SYNC;
        lg_thread_counters.device_wait_ns += lg_now_ns() - s->begin;
        lg_device_poll();
    }
    if (s->inferred)
        lg_infer_call_end();
    if (s->purpose == H2D && lg_process.torch)
        lg_feed(LG_EV_H2D_END, 0, NULL);
}

/* A hook's work: the program's call of a function of one libcudart. The real function is left by
 * return, cancellation or exception: `leave` always runs. */
#define INNER(id, params, purpose, bytes, stream, arguments)                                       \
    static __attribute__((noinline)) int id params                                                 \
    {                                                                                              \
        real_##id##_fn next = REAL_OF(id, cudart);                                                 \
        if (next == NULL) /* somebody asks whether the library is there */                         \
            return LG_CUDA_NO_LIBRARY;                                                             \
        struct scope s __attribute__((cleanup(leave), unused)) =                                   \
            enter(purpose, bytes, stream, cudart, __builtin_frame_address(0));                     \
        return next arguments;                                                                     \
    }
/* The hooks themselves, one for each libcudart. */
#define OUTER(n, node, at, id, params, with)                                                       \
    int hook_##id##_##n params                                                                     \
    {                                                                                              \
        const enum lg_cudart cudart = LG_CUDART_##n;                                               \
        return id with;                                                                            \
    }
/* (a, b) -> (a, b, which libcudart) */
#define WITH_CUDART(...)           (__VA_ARGS__, cudart)
#define WITH_CUDART_PARAMETER(...) (__VA_ARGS__, const enum lg_cudart cudart)
#define CUDA(id, params, purpose, bytes, stream, arguments)                                        \
    INNER(id, WITH_CUDART_PARAMETER params, purpose, bytes, stream, arguments)                     \
    LG_CUDARTS(OUTER, id, params, WITH_CUDART arguments)

/* The null stream of the two families of names: the legacy one, and the calling thread's own. */
#define PLAIN(stream) (stream)
#define PTSZ(stream)  ((stream) != NULL ? (stream) : LG_CUDA_STREAM_PER_THREAD)

/* ---- copies */

/* What the program leaves to the addresses: asked only for those, since it costs two calls. */
static enum purpose of_addresses(const void *to, const void *from, bool blocks,
                                 enum lg_cudart cudart)
{
    int target = lg_device_memory(to, cudart), source = lg_device_memory(from, cudart);
    bool target_host = target == LG_CUDA_MEMORY_PAGEABLE || target == LG_CUDA_MEMORY_HOST;
    bool source_host = source == LG_CUDA_MEMORY_PAGEABLE || source == LG_CUDA_MEMORY_HOST;
    if (source_host && target == LG_CUDA_MEMORY_DEVICE)
        return H2D;
    if (source == LG_CUDA_MEMORY_DEVICE && target_host)
        return blocks ? SYNC : D2H;
    return MOVE;
}

/* cudaMemcpy from the device waits for it; towards the device the wait is the copy's own time. */
static enum purpose of_copy(const void *to, const void *from, int kind, bool blocks,
                            enum lg_cudart cudart)
{
    if (kind == LG_CUDA_DEFAULT_DIRECTION && lg_awake())
        return of_addresses(to, from, blocks, cudart);
    if (kind == LG_CUDA_DEVICE_TO_HOST)
        return blocks ? SYNC : D2H;
    return kind == LG_CUDA_HOST_TO_DEVICE ? H2D : MOVE;
}

#define COPY(id, null)                                                                             \
    CUDA(id, (void *to, const void *from, size_t n, int kind),                                     \
         of_copy(to, from, kind, true, cudart), n, null(NULL), (to, from, n, kind))
#define COPY_ASYNC(id, null)                                                                       \
    CUDA(id, (void *to, const void *from, size_t n, int kind, void *stream),                       \
         of_copy(to, from, kind, false, cudart), n, null(stream), (to, from, n, kind, stream))
#define COPY_2D(id, null)                                                                          \
    CUDA(id,                                                                                       \
         (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,            \
          size_t height, int kind),                                                                \
         of_copy(to, from, kind, true, cudart), width *height, null(NULL),                         \
         (to, to_pitch, from, from_pitch, width, height, kind))
#define COPY_2D_ASYNC(id, null)                                                                    \
    CUDA(id,                                                                                       \
         (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,            \
          size_t height, int kind, void *stream),                                                  \
         of_copy(to, from, kind, false, cudart), width *height, null(stream),                      \
         (to, to_pitch, from, from_pitch, width, height, kind, stream))

COPY(cuda_memcpy, PLAIN)
COPY(cuda_memcpy_ptds, PTSZ)
COPY_ASYNC(cuda_memcpy_async, PLAIN)
COPY_ASYNC(cuda_memcpy_async_ptsz, PTSZ)
COPY_2D(cuda_memcpy_2d, PLAIN)
COPY_2D(cuda_memcpy_2d_ptds, PTSZ)
COPY_2D_ASYNC(cuda_memcpy_2d_async, PLAIN)
COPY_2D_ASYNC(cuda_memcpy_2d_async_ptsz, PTSZ)
CUDA(cuda_memcpy_peer, (void *to, int to_device, const void *from, int from_device, size_t n), MOVE,
     n, NULL, (to, to_device, from, from_device, n))
CUDA(cuda_memcpy_peer_async,
     (void *to, int to_device, const void *from, int from_device, size_t n, void *stream), MOVE, n,
     stream, (to, to_device, from, from_device, n, stream))

/* ---- launches */

#define LAUNCH_OF(id, function, null)                                                              \
    CUDA(id,                                                                                       \
         (function f, struct lg_dim3 grid, struct lg_dim3 block, void **args, size_t shared,       \
          void *stream),                                                                           \
         LAUNCH, 0, null(stream), (f, grid, block, args, shared, stream))
#define LAUNCH_EX(id, null)                                                                        \
    CUDA(id, (const void *config, const void *f, void **args), LAUNCH, 0,                          \
         null(((const struct lg_launch_config *)config)->stream), (config, f, args))
#define LAUNCH_GRAPH(id, null)                                                                     \
    CUDA(id, (void *graph, void *stream), GRAPH, 0, null(stream), (graph, stream))

LAUNCH_OF(cuda_launch, const void *, PLAIN)
LAUNCH_OF(cuda_launch_ptsz, const void *, PTSZ)
LAUNCH_OF(cuda_launch_cooperative, const void *, PLAIN)
LAUNCH_OF(cuda_launch_cooperative_ptsz, const void *, PTSZ)
LAUNCH_OF(cuda_launch13, void *, PLAIN)
LAUNCH_OF(cuda_launch13_ptsz, void *, PTSZ)
LAUNCH_EX(cuda_launch_ex, PLAIN)
LAUNCH_EX(cuda_launch_ex_ptsz, PTSZ)
LAUNCH_GRAPH(cuda_graph_launch, PLAIN)
LAUNCH_GRAPH(cuda_graph_launch_ptsz, PTSZ)

/* The driver's own interface, where it is called by name (Triton's older launchers): libcuda has
 * one version only. The call is counted with the default libcudart's. */
#define DRIVER(id, params, stream, arguments)                                                      \
    int hook_##id params                                                                           \
    {                                                                                              \
        real_##id##_fn next = REAL(id);                                                            \
        if (next == NULL)                                                                          \
            return LG_CUDA_NO_LIBRARY;                                                             \
        struct scope s __attribute__((cleanup(leave), unused)) =                                   \
            enter(LAUNCH, 0, stream, LG_CUDART_COUNT, __builtin_frame_address(0));                 \
        return next arguments;                                                                     \
    }
#define DRIVER_LAUNCH(id, null)                                                                    \
    DRIVER(id,                                                                                     \
           (void *f, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,          \
            unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **args,        \
            void **extra),                                                                         \
           null(stream),                                                                           \
           (f, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, args, extra))
#define DRIVER_LAUNCH_EX(id, null)                                                                 \
    DRIVER(id, (const void *config, void *f, void **args, void **extra),                           \
           null(((const struct lg_driver_launch_config *)config)->stream),                         \
           (config, f, args, extra))

DRIVER_LAUNCH(driver_launch, PLAIN)
DRIVER_LAUNCH(driver_launch_ptsz, PTSZ)
DRIVER_LAUNCH_EX(driver_launch_ex, PLAIN)
DRIVER_LAUNCH_EX(driver_launch_ex_ptsz, PTSZ)

/* ---- waits for the device */

#define WAIT_FOR(id) CUDA(id, (void *stream), SYNC, 0, stream, (stream))

WAIT_FOR(cuda_stream_sync)
WAIT_FOR(cuda_stream_sync_ptsz)
WAIT_FOR(cuda_event_sync)
INNER(cuda_device_sync, (const enum lg_cudart cudart), SYNC, 0, NULL, ())
LG_CUDARTS(OUTER, cuda_device_sync, (void), (cudart))

/* ---- memory */

CUDA(cuda_malloc, (void **p, size_t n), ALLOC, 0, NULL, (p, n))
CUDA(cuda_malloc_managed, (void **p, size_t n, unsigned flags), ALLOC, 0, NULL, (p, n, flags))
CUDA(cuda_malloc_async, (void **p, size_t n, void *stream), ALLOC, 0, NULL, (p, n, stream))
CUDA(cuda_malloc_async_ptsz, (void **p, size_t n, void *stream), ALLOC, 0, NULL, (p, n, stream))
CUDA(cuda_free, (void *p), ALLOC, 0, NULL, (p))
CUDA(cuda_free_async, (void *p, void *stream), ALLOC, 0, NULL, (p, stream))
CUDA(cuda_free_async_ptsz, (void *p, void *stream), ALLOC, 0, NULL, (p, stream))
CUDA(cuda_host_alloc, (void **p, size_t n, unsigned flags), ALLOC, 0, NULL, (p, n, flags))
CUDA(cuda_malloc_host, (void **p, size_t n), ALLOC, 0, NULL, (p, n))
CUDA(cuda_free_host, (void *p), ALLOC, 0, NULL, (p))

#define CALL(area, need, id, symbol, ret, params)
#define VERSIONS_LIBC(id, symbol)
#define VERSIONS_TORCH(id, symbol)
#define VERSIONS_DRIVER(id, symbol)
#define VERSIONS_NCCL(id, symbol)
#define VERSIONS_NVTX(id, symbol)
#define VERSIONS_STREAM(id, symbol)
#define VERSIONS_CUDA(id, symbol)                 LG_VERSIONS(id, symbol)
#define HOOK(area, need, id, symbol, ret, params) VERSIONS_##area(id, symbol)
#include "preload/hooks.def"
