/*
 * stream.c - streams: queues on the ideal clock (internal.h), each with a thread of its own once it
 * needs one, the order between a device's legacy stream and its other blocking streams, and
 * synchronising. Context: inside the stand-in libcudart, any thread.
 *
 * Like a real device a stream takes so many operations ahead (SIM_QUEUE_DEPTH); then launches
 * block.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "internal.h"

#define STREAM_MAGIC 0x53545245u

static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;
static cudaStream_t streams,
    retired; /* memory of a stream is used again, never freed: stale handles */
static cudaStream_t legacy[MAX_DEVICES];
static _Thread_local cudaStream_t per_thread[MAX_DEVICES];
static unsigned long long ids;

/* ---- making and finding */

static cudaStream_t blank(void)
{
    cudaStream_t s = retired;
    if (s)
        retired = s->next;
    else
        s = malloc(sizeof *s);
    return s;
}

/* Under the registry's lock. */
static cudaStream_t make(int device, unsigned int flags, int priority)
{
    cudaStream_t s = blank();
    if (!s)
        return NULL;
    memset(s, 0, sizeof *s);
    s->magic = STREAM_MAGIC;
    s->device = device;
    s->flags = flags;
    s->priority = priority;
    s->id = ++ids;
    s->last = &s->first;
    s->depth = (uint64_t)sim_knobs()->queue_depth;
    pthread_mutex_init(&s->lock, NULL);
    s->next = streams;
    streams = s;
    return s;
}

static cudaStream_t legacy_stream(int device)
{
    pthread_mutex_lock(&registry);
    if (!legacy[device]) {
        legacy[device] = make(device, cudaStreamDefault, 0);
        if (legacy[device])
            legacy[device]->legacy = 1;
    }
    cudaStream_t s = legacy[device];
    pthread_mutex_unlock(&registry);
    return s;
}

static cudaStream_t stream_of_thread(int device)
{
    if (!per_thread[device]) {
        pthread_mutex_lock(&registry);
        per_thread[device] = make(device, cudaStreamDefault, 0);
        pthread_mutex_unlock(&registry);
    }
    return per_thread[device];
}

API cudaStream_t simStreamOf(int device, cudaStream_t handle)
{
    if (!handle || handle == cudaStreamLegacy)
        return legacy[device] ? legacy[device] : legacy_stream(device);
    if (handle == cudaStreamPerThread)
        return stream_of_thread(device);
    return handle->magic == STREAM_MAGIC ? handle : NULL;
}

cudaStream_t sim_stream(cudaStream_t handle)
{
    return simStreamOf(sim_device(), handle);
}

int sim_each_stream(int (*visit)(cudaStream_t stream, void *arg), void *arg)
{
    int found = 0;
    pthread_mutex_lock(&registry);
    for (cudaStream_t s = streams; s && !found; s = s->next)
        found = visit(s, arg);
    pthread_mutex_unlock(&registry);
    return found;
}

/* ---- the queue */

static void conclude(struct sim_op *op)
{
    if (op->type->done)
        op->type->done(op);
    op->type->drop(op);
}

/* Takes over the end of the operation that was just done; `queued`: it is the queue's first. */
static void advance(cudaStream_t s, uint64_t end, int queued)
{
    struct sim_op *op = NULL;
    if (queued) {
        pthread_mutex_lock(&s->lock);
        op = s->first;
        s->first = op->next;
        if (!s->first)
            s->last = &s->first;
    }
    uint64_t number = atomic_load(&s->processed);
    if (s->ends)
        s->ends[number % s->depth] = end;
    atomic_store(&s->busy_until, end);
    atomic_store(&s->processed, number + 1);
    if (queued)
        pthread_mutex_unlock(&s->lock);
    if (op)
        conclude(op);
    atomic_fetch_add(&s->progress, 1);
    if (atomic_load(&s->watched))
        sim_futex_wake(&s->progress);
}

static uint64_t run(cudaStream_t s, struct sim_op *op)
{
    uint64_t busy = atomic_load(&s->busy_until);
    uint64_t begin = busy > op->issued_ns ? busy : op->issued_ns;
    uint64_t end = op->type->run(op, begin);
    if (op->type->waits)
        atomic_fetch_add(&s->waited, end - begin);
    return end + op->extra_ns;
}

API uint64_t simWaited(cudaStream_t stream)
{
    cudaStream_t s = sim_stream(stream);
    return s ? atomic_load(&s->waited) : 0;
}

/* The first operation; the stream's thread sleeps until there is one. */
static struct sim_op *first_op(cudaStream_t s)
{
    for (;;) {
        uint32_t seen = atomic_load(&s->news);
        pthread_mutex_lock(&s->lock);
        struct sim_op *op = s->first;
        pthread_mutex_unlock(&s->lock);
        if (op)
            return op;
        atomic_store(&s->asleep, 1);
        if (atomic_load(&s->news) == seen)
            sim_futex_wait(&s->news, seen, 0);
        atomic_store(&s->asleep, 0);
    }
}

static int has_ops(cudaStream_t s)
{
    pthread_mutex_lock(&s->lock);
    int some = s->first != NULL;
    pthread_mutex_unlock(&s->lock);
    return some;
}

/* Takes the stream out of the list; not while somebody who found it there has given it more to do
 * (a synchronize of the device). Returns whether it is out. */
static int retire(cudaStream_t s)
{
    pthread_mutex_lock(&registry);
    if (has_ops(s)) {
        pthread_mutex_unlock(&registry);
        return 0;
    }
    cudaStream_t *at = &streams;
    while (*at && *at != s)
        at = &(*at)->next;
    if (*at)
        *at = s->next;
    free(s->ends);
    s->ends = NULL;
    s->next = retired;
    retired = s;
    pthread_mutex_unlock(&registry);
    return 1;
}

static void *stream_thread(void *arg)
{
    cudaStream_t s = arg;
    char name[16];
    snprintf(name, sizeof name, "sim-stream-%llu", s->id % 1000);
    prctl(PR_SET_NAME, name);
    prctl(PR_SET_TIMERSLACK, 1);
    while (!s->leaving || has_ops(s) || !retire(s))
        advance(s, run(s, first_op(s)), 1);
    return NULL;
}

/* The program's signal handlers must not run on our threads. */
static void start_thread(cudaStream_t s)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, (size_t)256 << 10);
    if (pthread_create(&thread, &attributes, stream_thread, s)) {
        perror("sim: no thread for a stream");
        abort();
    }
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    s->started = 1;
}

/* Blocks as long as the stream holds as many operations as it takes. */
static void wait_for_room(cudaStream_t s)
{
    if (!s->depth)
        return;
    uint64_t issued = atomic_load(&s->issued);
    if (issued < s->depth)
        return;
    atomic_fetch_add(&s->watched, 1);
    for (;;) {
        uint32_t seen = atomic_load(&s->progress);
        if (atomic_load(&s->processed) + s->depth > issued)
            break;
        sim_futex_wait(&s->progress, seen, 0);
    }
    atomic_fetch_sub(&s->watched, 1);
    sim_sleep_until(s->ends[issued % s->depth]);
}

static void append(cudaStream_t s, struct sim_op *op)
{
    op->next = NULL;
    *s->last = op;
    s->last = &op->next;
    if (!s->started)
        start_thread(s);
    atomic_fetch_add(&s->news, 1);
}

static void put(cudaStream_t s, struct sim_op *op)
{
    wait_for_room(s);
    pthread_mutex_lock(&s->lock);
    if (s->depth && !s->ends)
        s->ends = calloc(s->depth, sizeof *s->ends);
    op->issued_ns = sim_now();
    atomic_fetch_add(&s->issued, 1);
    if (op->type->issue)
        op->type->issue(op);
    int now = !s->first && op->type->instant && op->type->instant(op);
    if (now)
        advance(s, run(s, op), 0);
    else
        append(s, op);
    pthread_mutex_unlock(&s->lock);
    if (now)
        conclude(op);
    else if (atomic_load(&s->asleep))
        sim_futex_wake(&s->news);
}

/* ---- the legacy stream waits for all blocking streams of its device, and they for it */

static int unfinished(cudaStream_t s)
{
    return atomic_load(&s->processed) != atomic_load(&s->issued) ||
           atomic_load(&s->busy_until) > sim_now();
}

static void put_after(cudaStream_t earlier, cudaStream_t later)
{
    struct sim_mark *mark = sim_mark_new();
    put(earlier, sim_op_record(mark));
    put(later, sim_op_wait(mark));
    sim_mark_drop(mark);
}

static int give_to_legacy(cudaStream_t s, void *arg)
{
    cudaStream_t to = arg;
    if (s->device != to->device || s == to || s->flags & cudaStreamNonBlocking ||
        s->given_to_legacy == atomic_load(&s->issued) || !unfinished(s))
        return 0;
    put_after(s, to);
    s->given_to_legacy = atomic_load(&s->issued);
    return 0;
}

static void take_from_legacy(cudaStream_t s)
{
    cudaStream_t from = legacy[s->device];
    if (!from || s->taken_from_legacy == atomic_load(&from->issued) || !unfinished(from))
        return;
    put_after(from, s);
    s->taken_from_legacy = atomic_load(&from->issued);
}

void sim_stream_put(cudaStream_t s, struct sim_op *op)
{
    if (s->legacy)
        sim_each_stream(give_to_legacy, s);
    else if (!(s->flags & cudaStreamNonBlocking))
        take_from_legacy(s);
    put(s, op);
}

static _Thread_local uint64_t slower_ns;

API void simSlow(uint64_t ns)
{
    slower_ns = ns;
}

API cudaError_t simEnqueue(cudaStream_t handle, struct sim_op *op)
{
    cudaStream_t s = sim_forked() ? NULL : sim_stream(handle);
    cudaError_t error = sim_forked() ? cudaErrorInitializationError
                        : s          ? cudaSuccess
                                     : cudaErrorInvalidResourceHandle;
    op->extra_ns = slower_ns;
    slower_ns = 0;
    if (!error && atomic_load(&sim_open_captures) && sim_capture_op(s, op, &error))
        return error;
    if (error)
        op->type->drop(op);
    else
        sim_stream_put(s, op);
    return error;
}

/* ---- synchronising */

/* To ask the legacy stream is to ask all blocking ones; the others answer for themselves alone. */
void sim_stream_finish(cudaStream_t s)
{
    struct sim_mark *mark = sim_mark_new();
    if (s->legacy)
        sim_each_stream(give_to_legacy, s);
    put(s, sim_op_record(mark));
    sim_sleep_until(sim_mark_await(mark));
    sim_mark_drop(mark);
}

struct marks {
    int device;
    size_t count, room;
    struct sim_mark **mark;
};

static int mark_stream(cudaStream_t s, void *arg)
{
    struct marks *m = arg;
    if (s->device != m->device || s->capture || !unfinished(s))
        return 0;
    if (m->count == m->room) {
        m->room = m->room ? 2 * m->room : 16;
        m->mark = realloc(m->mark, m->room * sizeof(struct sim_mark *));
        if (!m->mark)
            abort();
    }
    m->mark[m->count] = sim_mark_new();
    put(s, sim_op_record(m->mark[m->count++]));
    return 0;
}

void sim_device_finish(int device)
{
    struct marks m = {.device = device};
    sim_each_stream(mark_stream, &m);
    for (size_t i = 0; i < m.count; i++) {
        sim_sleep_until(sim_mark_await(m.mark[i]));
        sim_mark_drop(m.mark[i]);
    }
    free(m.mark);
}

API cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
    SIM_ENTER();
    cudaStream_t s = sim_stream(handle);
    cudaError_t error =
        s ? sim_capture_forbids_asking(s, s->device) : cudaErrorInvalidResourceHandle;
    if (!error && (unfinished(s) || s->legacy))
        sim_stream_finish(s);
    return DONE(error);
}

API cudaError_t cudaStreamQuery(cudaStream_t handle)
{
    SIM_ENTER();
    cudaStream_t s = sim_stream(handle);
    cudaError_t error =
        s ? sim_capture_forbids_asking(s, s->device) : cudaErrorInvalidResourceHandle;
    return DONE(error ? error : unfinished(s) ? cudaErrorNotReady : cudaSuccess);
}

API cudaError_t cudaDeviceSynchronize(void)
{
    SIM_ENTER();
    cudaError_t error = sim_capture_forbids_asking(NULL, sim_device());
    if (!error)
        sim_device_finish(sim_device());
    return DONE(error);
}

/* ---- creation, destruction, attributes */

static cudaError_t create(cudaStream_t *stream, unsigned int flags, int priority)
{
    if (flags & ~(unsigned int)cudaStreamNonBlocking)
        return cudaErrorInvalidValue;
    if (sim_forked())
        return cudaErrorInitializationError;
    pthread_mutex_lock(&registry);
    *stream = make(sim_device(), flags, priority);
    pthread_mutex_unlock(&registry);
    return *stream ? cudaSuccess : cudaErrorMemoryAllocation;
}

API cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    SIM_ENTER();
    return DONE(create(stream, cudaStreamDefault, 0));
}

API cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
    SIM_ENTER();
    return DONE(create(stream, flags, 0));
}

API cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority)
{
    SIM_ENTER();
    return DONE(create(stream, flags, priority));
}

/* The last operation of a stream: its thread leaves after it. */
struct leave_op {
    struct sim_op op;
    cudaStream_t stream;
};

static uint64_t leave(struct sim_op *op, uint64_t begin_ns)
{
    ((struct leave_op *)op)->stream->leaving = 1;
    return begin_ns;
}

static void drop_leave(struct sim_op *op)
{
    free(op);
}

/* Returns at once; what was issued is still done. */
API cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    SIM_ENTER();
    static const struct sim_op_type type = {.run = leave, .drop = drop_leave};
    if (!stream || stream == cudaStreamLegacy || stream == cudaStreamPerThread ||
        stream->magic != STREAM_MAGIC)
        return DONE(cudaErrorInvalidResourceHandle);
    stream->magic = 0;
    if (!stream->started) {
        retire(stream);
        return cudaSuccess;
    }
    struct leave_op *op = calloc(1, sizeof *op);
    if (!op)
        return DONE(cudaErrorMemoryAllocation);
    *op = (struct leave_op){.op.type = &type, .stream = stream};
    put(stream, &op->op);
    return cudaSuccess;
}

#define STREAM_GETTER(name, type, field)                                                           \
    API cudaError_t name(cudaStream_t handle, type *value)                                         \
    {                                                                                              \
        SIM_ENTER();                                                                               \
        cudaStream_t s = sim_stream(handle);                                                       \
        if (s)                                                                                     \
            *value = s->field;                                                                     \
        return DONE(s ? cudaSuccess : cudaErrorInvalidResourceHandle);                             \
    }
STREAM_GETTER(cudaStreamGetPriority, int, priority)
STREAM_GETTER(cudaStreamGetFlags, unsigned int, flags)
STREAM_GETTER(cudaStreamGetId, unsigned long long, id)
STREAM_GETTER(cudaStreamGetDevice, int, device)

/* ---- operations of test programs */

struct call_op {
    struct sim_op op;
    sim_operation operation;
    void *arg;
};

static uint64_t call(struct sim_op *op, uint64_t begin_ns)
{
    struct call_op *c = (struct call_op *)op;
    sim_sleep_until(begin_ns);
    uint64_t end = c->operation(c->arg, begin_ns);
    sim_sleep_until(end);
    return end;
}

static void drop_call(struct sim_op *op)
{
    free(op);
}

/* As in the blocking stand-in it returns when the operation has ended. */
API void simSubmit(cudaStream_t stream, sim_operation operation, void *arg)
{
    static const struct sim_op_type type = {.run = call, .drop = drop_call};
    struct call_op *c = calloc(1, sizeof *c);
    if (!c)
        abort();
    *c = (struct call_op){.op.type = &type, .operation = operation, .arg = arg};
    if (!simEnqueue(stream, &c->op))
        sim_stream_finish(sim_stream(stream));
}
