/*
 * memory.c - device memory that only copies can reach, pinned host memory, and what a pointer is.
 * Context: inside the stand-in libcudart, any thread.
 *
 * Programs see addresses that nobody may touch; the bytes lie a constant distance behind. So
 * whoever reads a device pointer on the host dies as with a real device. Nothing is committed
 * before it is used.
 */
#include <string.h>
#include <sys/mman.h>

#include "internal.h"

#define ALIGNMENT ((size_t)512)
#define PAGE      ((uintptr_t)4096)

struct block {
    char *at;
    size_t size;
    int used;
    struct block *next, *before;
};

struct pinned {
    char *at;
    size_t size;
    int mapped; /* by us */
    enum cudaMemoryType type;
    struct pinned *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char
    *_Atomic visible; /* the arena that programs see; the bytes begin at visible + arena_size */
static size_t slice, arena_size;
static struct block *heaps[MAX_DEVICES];
static size_t in_use[MAX_DEVICES];
static struct pinned *pinned;

/* ---- the arena */

static int open_arena(void)
{
    if (atomic_load(&visible))
        return 1;
    size_t devices = (size_t)sim_devices();
    slice = (size_t)sim_knobs()->device_mb << 20;
    arena_size = slice * devices;
    if (!arena_size)
        return 0;
    char *both =
        mmap(NULL, 2 * arena_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (both == MAP_FAILED || mprotect(both + arena_size, arena_size, PROT_READ | PROT_WRITE))
        return 0;
    madvise(both, 2 * arena_size, MADV_DONTDUMP);
    for (size_t d = 0; d < devices; d++) {
        heaps[d] = calloc(1, sizeof *heaps[d]);
        if (!heaps[d])
            return 0;
        *heaps[d] = (struct block){.at = both + d * slice, .size = slice};
    }
    atomic_store(&visible, both);
    return 1;
}

int sim_on_device(const void *pointer)
{
    const char *begin = atomic_load_explicit(&visible, memory_order_acquire), *p = pointer;
    return begin && p >= begin && p < begin + arena_size ? (int)((size_t)(p - begin) / slice) + 1
                                                         : 0;
}

API void *simHost(const void *pointer)
{
    return sim_on_device(pointer) ? (char *)pointer + arena_size : (void *)pointer;
}

/* Cuts `size` off a block that is larger. */
static int split(struct block *b, size_t size)
{
    if (b->size == size)
        return 1;
    struct block *rest = calloc(1, sizeof *rest);
    if (!rest)
        return 0;
    *rest =
        (struct block){.at = b->at + size, .size = b->size - size, .next = b->next, .before = b};
    if (b->next)
        b->next->before = rest;
    b->next = rest;
    b->size = size;
    return 1;
}

/* Joins a free block with the one behind it if that is free too. */
static void join(struct block *b)
{
    struct block *next = b ? b->next : NULL;
    if (!next || b->used || next->used)
        return;
    b->size += next->size;
    b->next = next->next;
    if (b->next)
        b->next->before = b;
    free(next);
}

static void *take(int device, size_t size)
{
    for (struct block *b = heaps[device]; b; b = b->next)
        if (!b->used && b->size >= size && split(b, size)) {
            b->used = 1;
            in_use[device] += size;
            return b->at;
        }
    return NULL;
}

/* Fresh memory reads as zero: whole pages go back to the system. */
static void forget_bytes(const struct block *b)
{
    uintptr_t begin = (uintptr_t)simHost(b->at), end = begin + b->size;
    uintptr_t first = (begin + PAGE - 1) & ~(PAGE - 1), last = end & ~(PAGE - 1);
    if (last > first)
        madvise((void *)first, last - first, MADV_DONTNEED);
}

static int give_back(int device, const void *pointer)
{
    for (struct block *b = heaps[device]; b; b = b->next)
        if (b->at == pointer && b->used) {
            b->used = 0;
            in_use[device] -= b->size;
            forget_bytes(b);
            join(b);
            join(b->before);
            return 1;
        }
    return 0;
}

static cudaError_t allocate(void **pointer, size_t size)
{
    *pointer = NULL;
    if (!size)
        return cudaSuccess;
    if (sim_forked())
        return cudaErrorInitializationError;
    pthread_mutex_lock(&lock);
    if (open_arena() && size <= slice)
        *pointer = take(sim_device(), (size + ALIGNMENT - 1) & ~(ALIGNMENT - 1));
    pthread_mutex_unlock(&lock);
    return *pointer ? cudaSuccess : cudaErrorMemoryAllocation;
}

static cudaError_t release(void *pointer)
{
    int device = sim_on_device(pointer) - 1, found = 0;
    if (device < 0)
        return cudaErrorInvalidValue;
    pthread_mutex_lock(&lock);
    found = give_back(device, pointer);
    pthread_mutex_unlock(&lock);
    return found ? cudaSuccess : cudaErrorInvalidValue;
}

API cudaError_t cudaMalloc(void **pointer, size_t size)
{
    SIM_ENTER();
    cudaError_t error = sim_capture_forbids();
    return DONE(error ? error : allocate(pointer, size));
}

API cudaError_t cudaFree(void *pointer)
{
    SIM_ENTER();
    cudaError_t error = sim_capture_forbids();
    if (error || !pointer)
        return DONE(error);
    if (sim_on_device(pointer))
        sim_device_finish(sim_on_device(pointer) - 1);
    return DONE(release(pointer));
}

/* The stream-ordered allocator: the memory is there at once, and freed once the stream has come so
 * far. */
API cudaError_t cudaMallocAsync(void **pointer, size_t size, cudaStream_t stream)
{
    SIM_ENTER();
    (void)stream;
    return DONE(allocate(pointer, size));
}

API cudaError_t cudaFreeAsync(void *pointer, cudaStream_t handle)
{
    SIM_ENTER();
    cudaStream_t stream = sim_stream(handle);
    if (!stream)
        return DONE(cudaErrorInvalidResourceHandle);
    sim_stream_finish(stream);
    return DONE(release(pointer));
}

API cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    SIM_ENTER();
    *total = (size_t)sim_knobs()->device_mb << 20;
    pthread_mutex_lock(&lock);
    *available = *total - in_use[sim_device()];
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

/* ---- pinned memory */

/* Under the lock. */
static struct pinned **find_pinned(const void *pointer)
{
    const char *p = pointer;
    struct pinned **at = &pinned;
    while (*at && !(p >= (*at)->at && p < (*at)->at + (*at)->size))
        at = &(*at)->next;
    return at;
}

static enum cudaMemoryType pinned_type(const void *pointer)
{
    pthread_mutex_lock(&lock);
    const struct pinned *found = *find_pinned(pointer);
    enum cudaMemoryType type = found ? found->type : cudaMemoryTypeUnregistered;
    pthread_mutex_unlock(&lock);
    return type;
}

int sim_is_pinned(const void *pointer)
{
    return pinned_type(pointer) != cudaMemoryTypeUnregistered;
}

static cudaError_t pin(void *pointer, size_t size, int mapped, enum cudaMemoryType type)
{
    struct pinned *new = malloc(sizeof *new);
    SIM_OUT_OF_MEMORY(new);
    *new = (struct pinned){.at = pointer, .size = size, .mapped = mapped, .type = type};
    pthread_mutex_lock(&lock);
    int there = *find_pinned(pointer) != NULL;
    if (!there) {
        new->next = pinned;
        pinned = new;
    }
    pthread_mutex_unlock(&lock);
    if (there)
        free(new);
    return there ? cudaErrorHostMemoryAlreadyRegistered : cudaSuccess;
}

static cudaError_t unpin(void *pointer, int mapped, cudaError_t otherwise)
{
    pthread_mutex_lock(&lock);
    struct pinned **at = find_pinned(pointer), *found = *at;
    if (found && (found->at != pointer || found->mapped != mapped))
        found = NULL;
    if (found)
        *at = found->next;
    pthread_mutex_unlock(&lock);
    if (!found)
        return otherwise;
    if (mapped)
        munmap(found->at, found->size);
    free(found);
    return cudaSuccess;
}

static cudaError_t allocate_host(void **pointer, size_t size, enum cudaMemoryType type)
{
    *pointer = NULL;
    if (sim_forked())
        return cudaErrorInitializationError;
    sim_sleep_until(sim_now() + simDuration(SIM_HOST_ALLOC, 0));
    size = size ? size : 1;
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return cudaErrorMemoryAllocation;
    *pointer = p;
    return pin(p, size, 1, type);
}

API cudaError_t cudaHostAlloc(void **pointer, size_t size, unsigned int flags)
{
    SIM_ENTER();
    (void)flags;
    cudaError_t error = sim_capture_forbids();
    return DONE(error ? error : allocate_host(pointer, size, cudaMemoryTypeHost));
}

API cudaError_t cudaMallocHost(void **pointer, size_t size)
{
    SIM_ENTER();
    cudaError_t error = sim_capture_forbids();
    return DONE(error ? error : allocate_host(pointer, size, cudaMemoryTypeHost));
}

API cudaError_t cudaMallocManaged(void **pointer, size_t size, unsigned int flags)
{
    SIM_ENTER();
    (void)flags;
    cudaError_t error = sim_capture_forbids();
    return DONE(error ? error : allocate_host(pointer, size, cudaMemoryTypeManaged));
}

API cudaError_t cudaFreeHost(void *pointer)
{
    SIM_ENTER();
    cudaError_t error = sim_capture_forbids();
    if (error || !pointer)
        return DONE(error);
    sim_device_finish(sim_device());
    return DONE(unpin(pointer, 1, cudaErrorInvalidValue));
}

API cudaError_t cudaHostRegister(void *pointer, size_t size, unsigned int flags)
{
    SIM_ENTER();
    (void)flags;
    cudaError_t error = sim_capture_forbids();
    return DONE(error ? error : pin(pointer, size, 0, cudaMemoryTypeHost));
}

API cudaError_t cudaHostUnregister(void *pointer)
{
    SIM_ENTER();
    cudaError_t error = sim_capture_forbids();
    return DONE(error ? error : unpin(pointer, 0, cudaErrorHostMemoryNotRegistered));
}

API cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned int flags)
{
    SIM_ENTER();
    (void)flags;
    *device = host;
    return DONE(sim_is_pinned(host) ? cudaSuccess : cudaErrorInvalidValue);
}

API cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes,
                                         const void *pointer)
{
    SIM_ENTER();
    memset(attributes, 0, sizeof *attributes);
    attributes->type = sim_on_device(pointer) ? cudaMemoryTypeDevice : pinned_type(pointer);
    attributes->device = -2;
    if (attributes->type != cudaMemoryTypeUnregistered) {
        attributes->device = sim_on_device(pointer) ? sim_on_device(pointer) - 1 : sim_device();
        attributes->devicePointer = (void *)pointer;
        if (!sim_on_device(pointer))
            attributes->hostPointer = (void *)pointer;
    }
    return cudaSuccess;
}

/* ---- pools: one that keeps nothing */

API cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device)
{
    SIM_ENTER();
    static char pools[MAX_DEVICES];
    if (device < 0 || device >= sim_devices())
        return DONE(cudaErrorInvalidDevice);
    *pool = (cudaMemPool_t)(void *)&pools[device];
    return cudaSuccess;
}

API cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep)
{
    SIM_ENTER();
    (void)pool;
    (void)keep;
    return cudaSuccess;
}

API cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute,
                                        void *value)
{
    SIM_ENTER();
    (void)pool;
    (void)attribute;
    (void)value;
    return cudaSuccess;
}

API cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute,
                                        void *value)
{
    SIM_ENTER();
    (void)pool;
    (void)attribute;
    memset(value, 0, sizeof(unsigned int)); /* the smallest of their types */
    return cudaSuccess;
}

/* Variables of the device share one page: only their address is asked for. */
API cudaError_t cudaGetSymbolAddress(void **pointer, const void *symbol)
{
    SIM_ENTER();
    (void)symbol;
    static void *page[MAX_DEVICES];
    cudaError_t error = page[sim_device()] ? cudaSuccess : allocate(&page[sim_device()], 1 << 20);
    *pointer = page[sim_device()];
    return DONE(error);
}
