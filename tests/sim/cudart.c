/*
 * cudart.c - stand-in for libcudart.so.13 in blocking mode: memory that only copies can reach,
 * streams and events on an ideal clock, operations that take the time the knobs of sim.h say.
 * Context: loaded into test programs in place of the real library, on machines without CUDA.
 *
 * Ideal clock: an operation begins at the later of its issue and the end of its stream's last one,
 * and ends exactly its duration later. The caller sleeps until then; events hold these times, so
 * they are exact on a noisy machine. Only simSubmit() knows that the caller itself does the work.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include <cuda_crt.h>

#include "sim.h"

#define API __attribute__((visibility("default")))

struct CUstream_st {
    pthread_mutex_t order; /* held while an operation runs: a stream is a queue */
    _Atomic uint64_t busy_until;
};

struct CUevent_st {
    _Atomic uint64_t time; /* 0: never recorded, which counts as done */
    _Atomic uint32_t not_ready;
    unsigned int flags;
};

static struct CUstream_st null_stream = {.order = PTHREAD_MUTEX_INITIALIZER};
static _Thread_local cudaError_t last_error;
static _Thread_local uint64_t slower_ns;

static struct knobs {
    uint64_t kernel_ns, block_ns, copy_ns, copy_mbps, not_ready;
} knobs;

static void read_knobs(void)
{
    knobs = (struct knobs){
        .kernel_ns = sim_knob("SIM_KERNEL_US", 0) * 1000,
        .block_ns = sim_knob("SIM_BLOCK_NS", 1000),
        .copy_ns = sim_knob("SIM_COPY_US", 0) * 1000,
        .copy_mbps = sim_knob("SIM_COPY_MBPS", 20000),
        .not_ready = sim_knob("SIM_NOT_READY", 0),
    };
}

static const struct knobs *get_knobs(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_knobs);
    return &knobs;
}

/* Like the real library every failure is also the thread's last error, NotReady included. */
static cudaError_t done(cudaError_t error)
{
    if (error)
        last_error = error;
    return error;
}

API cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

API cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

API const char *cudaGetErrorString(cudaError_t error)
{
    return error ? "stand-in CUDA error" : "no error";
}

API cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

/* ---- one device */

API cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}

API cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

API cudaError_t cudaSetDevice(int device)
{
    return done(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

/* ---- memory: programs see addresses that nobody may touch; the bytes lie a constant distance
 * behind. So whoever reads a device pointer on the host dies as with a real device. */

#define ARENA_BYTES ((size_t)16 << 30)
#define ALIGNMENT   ((size_t)512)

struct block {
    size_t offset, size;
    int used;
};

static struct {
    pthread_mutex_t lock;
    char *visible, *bytes; /* what programs see, and where the bytes are */
    struct block block[4096];
    size_t blocks, end;
} arena = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int arena_open(void)
{
    if (arena.visible)
        return 1;
    char *both =
        mmap(NULL, 2 * ARENA_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (both == MAP_FAILED)
        return 0;
    if (mprotect(both + ARENA_BYTES, ARENA_BYTES, PROT_READ | PROT_WRITE)) {
        munmap(both, 2 * ARENA_BYTES);
        return 0;
    }
    arena.bytes = both + ARENA_BYTES;
    arena.visible = both;
    return 1;
}

static int on_device(const void *pointer)
{
    const char *p = pointer;
    return arena.visible && p >= arena.visible && p < arena.visible + ARENA_BYTES;
}

API void *simHost(const void *pointer)
{
    return on_device(pointer) ? (char *)pointer + ARENA_BYTES : (void *)pointer;
}

/* A freed block that is large enough, else a new one at the end; NULL: none left. */
static struct block *find_block(size_t size)
{
    for (size_t i = 0; i < arena.blocks; i++)
        if (!arena.block[i].used && arena.block[i].size >= size)
            return &arena.block[i];
    if (arena.blocks == sizeof arena.block / sizeof *arena.block || size > ARENA_BYTES - arena.end)
        return NULL;
    struct block *b = &arena.block[arena.blocks++];
    *b = (struct block){.offset = arena.end, .size = size};
    arena.end += size;
    return b;
}

API cudaError_t cudaMalloc(void **pointer, size_t size)
{
    struct block *b = NULL;
    pthread_mutex_lock(&arena.lock);
    if (size <= ARENA_BYTES && arena_open())
        b = find_block((size + ALIGNMENT) & ~(ALIGNMENT - 1));
    if (b) {
        b->used = 1;
        *pointer = arena.visible + b->offset;
        memset(arena.bytes + b->offset, 0, size);
    }
    pthread_mutex_unlock(&arena.lock);
    return done(b ? cudaSuccess : cudaErrorMemoryAllocation);
}

API cudaError_t cudaFree(void *pointer)
{
    cudaError_t error = pointer ? cudaErrorInvalidValue : cudaSuccess;
    pthread_mutex_lock(&arena.lock);
    for (size_t i = 0; i < arena.blocks; i++)
        if (arena.block[i].used && arena.visible + arena.block[i].offset == pointer) {
            arena.block[i].used = 0;
            error = cudaSuccess;
        }
    pthread_mutex_unlock(&arena.lock);
    return done(error);
}

API cudaError_t cudaHostAlloc(void **pointer, size_t size, unsigned int flags)
{
    (void)flags;
    return done(posix_memalign(pointer, 4096, size ? size : 1) ? cudaErrorMemoryAllocation
                                                               : cudaSuccess);
}

API cudaError_t cudaFreeHost(void *pointer)
{
    free(pointer);
    return cudaSuccess;
}

/* ---- streams */

static struct CUstream_st *real_stream(cudaStream_t stream)
{
    return stream ? stream : &null_stream;
}

static void push_back(_Atomic uint64_t *time, uint64_t at_least)
{
    uint64_t old = atomic_load(time);
    while (old < at_least && !atomic_compare_exchange_weak(time, &old, at_least))
        ;
}

API void simSubmit(cudaStream_t stream, sim_operation operation, void *arg)
{
    struct CUstream_st *s = real_stream(stream);
    pthread_mutex_lock(&s->order);
    uint64_t begin = sim_now(), busy = atomic_load(&s->busy_until);
    uint64_t end = operation(arg, begin > busy ? begin : busy) + slower_ns;
    slower_ns = 0;
    push_back(&s->busy_until, end);
    sim_sleep_until(end);
    pthread_mutex_unlock(&s->order);
}

API void simSlow(uint64_t ns)
{
    slower_ns = ns;
}

API cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
    (void)flags;
    struct CUstream_st *s = calloc(1, sizeof *s);
    if (!s)
        return done(cudaErrorMemoryAllocation);
    pthread_mutex_init(&s->order, NULL);
    *stream = s;
    return cudaSuccess;
}

API cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

API cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    sim_sleep_until(atomic_load(&real_stream(stream)->busy_until));
    return cudaSuccess;
}

API cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    if (!stream)
        return done(cudaErrorInvalidResourceHandle);
    cudaStreamSynchronize(stream);
    pthread_mutex_destroy(&stream->order);
    free(stream);
    return cudaSuccess;
}

API cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    return done(sim_now() < atomic_load(&real_stream(stream)->busy_until) ? cudaErrorNotReady
                                                                          : cudaSuccess);
}

/* Blocking mode: all that was issued has ended, but for work that other threads are in the midst
 * of. */
API cudaError_t cudaDeviceSynchronize(void)
{
    return cudaStreamSynchronize(NULL);
}

/* ---- events */

API cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    struct CUevent_st *e = calloc(1, sizeof *e);
    if (!e)
        return done(cudaErrorMemoryAllocation);
    e->flags = flags;
    *event = e;
    return cudaSuccess;
}

API cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

API cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    if (!event)
        return done(cudaErrorInvalidResourceHandle);
    free(event);
    return cudaSuccess;
}

API cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags)
{
    (void)flags;
    if (!event)
        return done(cudaErrorInvalidResourceHandle);
    uint64_t now = sim_now(), busy = atomic_load(&real_stream(stream)->busy_until);
    atomic_store(&event->time, now > busy ? now : busy);
    atomic_store(&event->not_ready, (uint32_t)get_knobs()->not_ready);
    return cudaSuccess;
}

API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return cudaEventRecordWithFlags(event, stream, 0);
}

API cudaError_t cudaEventQuery(cudaEvent_t event)
{
    if (!event)
        return done(cudaErrorInvalidResourceHandle);
    uint32_t refusals = atomic_load(&event->not_ready);
    if (refusals)
        atomic_store(&event->not_ready, refusals - 1);
    int ready = !refusals && sim_now() >= atomic_load(&event->time);
    return done(ready ? cudaSuccess : cudaErrorNotReady);
}

API cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    if (!event)
        return done(cudaErrorInvalidResourceHandle);
    sim_sleep_until(atomic_load(&event->time));
    atomic_store(&event->not_ready, 0);
    return cudaSuccess;
}

API cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    if (!begin || !end || (begin->flags | end->flags) & cudaEventDisableTiming)
        return done(cudaErrorInvalidResourceHandle);
    uint64_t from = atomic_load(&begin->time), to = atomic_load(&end->time);
    if (!from || !to)
        return done(cudaErrorInvalidResourceHandle);
    if (sim_now() < from || sim_now() < to)
        return done(cudaErrorNotReady);
    *ms = (float)((double)((int64_t)to - (int64_t)from) / 1e6);
    return cudaSuccess;
}

API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    (void)flags;
    if (!event)
        return done(cudaErrorInvalidResourceHandle);
    push_back(&real_stream(stream)->busy_until, atomic_load(&event->time));
    return cudaSuccess;
}

/* ---- copies */

struct copy {
    void *to;
    const void *from;
    size_t size;
};

static uint64_t copy_bytes(void *arg, uint64_t begin_ns)
{
    const struct copy *c = arg;
    memmove(simHost(c->to), simHost(c->from), c->size);
    return begin_ns + get_knobs()->copy_ns + sim_transfer_ns(c->size, get_knobs()->copy_mbps);
}

static int kind_fits(const void *to, const void *from, enum cudaMemcpyKind kind)
{
    int to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    int from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    return kind == cudaMemcpyDefault ||
           (on_device(to) == to_device && on_device(from) == from_device);
}

API cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
                                cudaStream_t stream)
{
    if ((unsigned int)kind > cudaMemcpyDefault)
        return done(cudaErrorInvalidMemcpyDirection);
    if (!kind_fits(to, from, kind))
        return done(cudaErrorInvalidValue);
    simSubmit(stream, copy_bytes, &(struct copy){to, from, size});
    return cudaSuccess;
}

API cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind)
{
    cudaError_t error = cudaMemcpyAsync(to, from, size, kind, NULL);
    return error ? error : cudaStreamSynchronize(NULL);
}

API cudaError_t cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t stream)
{
    (void)stream;
    if (!on_device(to))
        return done(cudaErrorInvalidValue);
    memset(simHost(to), value, size);
    return cudaSuccess;
}

/* ---- launches */

struct kernel {
    const void *function;
    void (*body)(void *arg);
    size_t arg_bytes;
};

static struct kernel kernels[64];
static size_t kernel_count;

API void simKernel(const void *function, void (*body)(void *arg), size_t arg_bytes)
{
    if (kernel_count < sizeof kernels / sizeof *kernels)
        kernels[kernel_count++] = (struct kernel){function, body, arg_bytes};
}

struct launch {
    const struct kernel *kernel; /* NULL: takes time only */
    void *arg;
    uint64_t ns;
};

static uint64_t run_kernel(void *arg, uint64_t begin_ns)
{
    const struct launch *l = arg;
    if (l->kernel)
        l->kernel->body(l->arg);
    return begin_ns + l->ns;
}

static const struct kernel *find_kernel(const void *function)
{
    for (size_t i = 0; i < kernel_count; i++)
        if (kernels[i].function == function)
            return &kernels[i];
    return NULL;
}

static cudaError_t launch(const void *function, dim3 grid, void **args, cudaStream_t stream)
{
    if (!function)
        return done(cudaErrorInvalidDeviceFunction);
    uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
    if (!blocks)
        return done(cudaErrorInvalidValue);
    struct launch l = {.kernel = find_kernel(function),
                       .arg = args ? args[0] : NULL,
                       .ns = get_knobs()->kernel_ns + blocks * get_knobs()->block_ns};
    simSubmit(stream, run_kernel, &l);
    return cudaSuccess;
}

API cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **args,
                                 size_t shared_bytes, cudaStream_t stream)
{
    (void)block;
    (void)shared_bytes;
    return launch(function, grid, args, stream);
}

API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function,
                                    void **args)
{
    return launch(function, config->gridDim, args, config->stream);
}

/* A kernel's handle is the function itself. */
API cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function)
{
    *kernel = (cudaKernel_t)(uintptr_t)function;
    return cudaSuccess;
}

API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
                                   size_t shared_bytes, cudaStream_t stream)
{
    (void)block;
    (void)shared_bytes;
    return launch(kernel, grid, args, stream);
}
