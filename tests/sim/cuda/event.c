/*
 * event.c - events: points in the ideal time of a stream (marks), recorded, awaited, queried,
 * compared. Context: inside the stand-in libcudart, any thread.
 *
 * As in CUDA a query that answers NotReady is also the thread's last error, an event belongs to the
 * device that was current when it was made, and one that was last recorded while capturing can't be
 * asked.
 */
#include <string.h>

#include "internal.h"

#define EVENT_MAGIC 0x45564e54u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cudaEvent_t retired[4096]; /* used again, oldest first, never freed: handles get stale */
static size_t retired_first, retired_count;

/* ---- marks */

struct sim_mark *sim_mark_new(void)
{
    struct sim_mark *mark = calloc(1, sizeof *mark);
    if (!mark)
        abort();
    atomic_store(&mark->references, 1);
    return mark;
}

void sim_mark_drop(struct sim_mark *mark)
{
    if (mark && atomic_fetch_sub(&mark->references, 1) == 1) {
        sim_nodes_clear(&mark->nodes);
        free(mark);
    }
}

/* Waits until the mark's time is known, which may lie in the future. Returns it. */
uint64_t sim_mark_await(struct sim_mark *mark)
{
    while (!atomic_load(&mark->timed))
        sim_futex_wait(&mark->timed, 0, 0);
    return mark->time_ns;
}

static int reached(struct sim_mark *mark)
{
    return atomic_load(&mark->timed) && mark->time_ns <= sim_now();
}

/* ---- operations */

struct mark_op {
    struct sim_op op;
    struct sim_mark *mark;
};

static uint64_t run_record(struct sim_op *op, uint64_t begin_ns)
{
    ((struct mark_op *)op)->mark->time_ns = begin_ns;
    return begin_ns;
}

static void tell(struct sim_op *op)
{
    struct sim_mark *mark = ((struct mark_op *)op)->mark;
    atomic_store(&mark->timed, 1);
    sim_futex_wake(&mark->timed);
}

static uint64_t run_wait(struct sim_op *op, uint64_t begin_ns)
{
    uint64_t time = sim_mark_await(((struct mark_op *)op)->mark);
    return time > begin_ns ? time : begin_ns;
}

static int always(const struct sim_op *op)
{
    (void)op;
    return 1;
}

static int mark_is_timed(const struct sim_op *op)
{
    return atomic_load(&((const struct mark_op *)op)->mark->timed) != 0;
}

static void drop_mark_op(struct sim_op *op)
{
    sim_mark_drop(((struct mark_op *)op)->mark);
    free(op);
}

static struct sim_op *mark_op(const struct sim_op_type *type, struct sim_mark *mark)
{
    struct mark_op *m = calloc(1, sizeof *m);
    if (!m)
        abort();
    atomic_fetch_add(&mark->references, 1);
    *m = (struct mark_op){.op.type = type, .mark = mark};
    return &m->op;
}

struct sim_op *sim_op_record(struct sim_mark *mark)
{
    static const struct sim_op_type type = {
        .run = run_record, .done = tell, .instant = always, .drop = drop_mark_op};
    return mark_op(&type, mark);
}

struct sim_op *sim_op_wait(struct sim_mark *mark)
{
    static const struct sim_op_type type = {
        .run = run_wait, .instant = mark_is_timed, .drop = drop_mark_op, .waits = 1};
    return mark_op(&type, mark);
}

/* ---- events */

static int usable(cudaEvent_t event)
{
    return event && event->magic == EVENT_MAGIC;
}

static int is_tracers(cudaEvent_t event)
{
    return usable(event) && event->tracers;
}

/* The event becomes `mark` (NULL: nothing), which it takes over. */
static void set_mark(cudaEvent_t event, struct sim_mark *mark)
{
    pthread_mutex_lock(&event->lock);
    struct sim_mark *old = event->mark;
    event->mark = mark;
    event->refusals = (uint64_t)sim_knobs()->not_ready;
    pthread_mutex_unlock(&event->lock);
    sim_mark_drop(old);
}

/* With a reference for the caller; NULL: never recorded. */
static struct sim_mark *get_mark(cudaEvent_t event)
{
    pthread_mutex_lock(&event->lock);
    struct sim_mark *mark = event->mark;
    if (mark)
        atomic_fetch_add(&mark->references, 1);
    pthread_mutex_unlock(&event->lock);
    return mark;
}

/* Nodes of a graph for a record or a wait that is meant for the world outside it: each replay makes
 * the real operation. */
struct external_op {
    struct sim_op op;
    cudaEvent_t event;
    int waits;
};

static struct sim_op *replay_external(const struct sim_op *op)
{
    const struct external_op *e = (const struct external_op *)op;
    struct sim_mark *mark = e->waits ? get_mark(e->event) : NULL;
    int waits = mark != NULL;
    if (!mark)
        mark = sim_mark_new();
    struct sim_op *real = waits ? sim_op_wait(mark) : sim_op_record(mark);
    if (e->waits)
        sim_mark_drop(mark);
    else
        set_mark(e->event, mark);
    return real;
}

static void drop_external(struct sim_op *op)
{
    free(op);
}

struct sim_op *sim_op_external(cudaEvent_t event, int waits)
{
    static const struct sim_op_type types[] = {
        {.node = cudaGraphNodeTypeEventRecord, .copy = replay_external, .drop = drop_external},
        {.node = cudaGraphNodeTypeWaitEvent, .copy = replay_external, .drop = drop_external},
    };
    struct external_op *e = calloc(1, sizeof *e);
    if (!e)
        abort();
    *e = (struct external_op){.op.type = &types[waits != 0], .event = event, .waits = waits};
    return &e->op;
}

static cudaEvent_t blank(void)
{
    const size_t room = sizeof retired / sizeof *retired;
    cudaEvent_t event = NULL;
    pthread_mutex_lock(&lock);
    if (retired_count == room) {
        event = retired[retired_first];
        retired_first = (retired_first + 1) % room;
        retired_count--;
    }
    pthread_mutex_unlock(&lock);
    return event ? event : malloc(sizeof *event);
}

static cudaError_t create(cudaEvent_t *event, unsigned int flags, int tracers)
{
    if (sim_forked())
        return cudaErrorInitializationError;
    cudaEvent_t new = blank();
    SIM_OUT_OF_MEMORY(new);
    memset(new, 0, sizeof *new);
    new->magic = EVENT_MAGIC;
    new->device = sim_device();
    new->flags = flags;
    new->tracers = tracers;
    pthread_mutex_init(&new->lock, NULL);
    *event = new;
    return cudaSuccess;
}

API cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    SIM_ENTER();
    return DONE(create(event, cudaEventDefault, caller_ == SIM_OWN));
}

API cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    SIM_ENTER();
    return DONE(create(event, flags, caller_ == SIM_OWN));
}

API cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    SIM_ENTER_FOR(is_tracers(event));
    if (!usable(event))
        return DONE(cudaErrorInvalidResourceHandle);
    event->magic = 0;
    set_mark(event, NULL);
    pthread_mutex_lock(&lock);
    const size_t room = sizeof retired / sizeof *retired;
    retired[(retired_first + retired_count++) % room] = event;
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

static cudaError_t record(cudaEvent_t event, cudaStream_t handle, unsigned int flags)
{
    cudaStream_t stream = sim_stream(handle);
    if (!usable(event) || !stream || stream->device != event->device)
        return cudaErrorInvalidResourceHandle;
    if (sim_forked())
        return cudaErrorInitializationError;
    struct sim_mark *mark = sim_mark_new();
    cudaError_t error = cudaSuccess;
    int captured =
        atomic_load(&sim_open_captures) && sim_capture_record(stream, event, mark, flags, &error);
    if (!error && !captured)
        sim_stream_put(stream, sim_op_record(mark));
    if (error || (captured && flags & cudaEventRecordExternal))
        sim_mark_drop(mark);
    else
        set_mark(event, mark);
    return error;
}

API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    SIM_ENTER_FOR(is_tracers(event));
    return DONE(record(event, stream, cudaEventRecordDefault));
}

API cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags)
{
    SIM_ENTER_FOR(is_tracers(event));
    return DONE(record(event, stream, flags));
}

static cudaError_t wait_for(cudaStream_t handle, cudaEvent_t event, unsigned int flags)
{
    cudaStream_t stream = sim_stream(handle);
    if (!usable(event) || !stream)
        return cudaErrorInvalidResourceHandle;
    struct sim_mark *mark = get_mark(event);
    cudaError_t error = cudaSuccess;
    int captured = mark && (mark->capture_id || atomic_load(&sim_open_captures)) &&
                   sim_capture_wait(stream, event, mark, flags, &error);
    if (mark && !error && !captured)
        sim_stream_put(stream, sim_op_wait(mark));
    sim_mark_drop(mark);
    return error;
}

API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    SIM_ENTER_FOR(is_tracers(event));
    return DONE(wait_for(stream, event, flags));
}

/* ---- asking */

/* Whether the event refuses once more (SIM_NOT_READY). */
static int refuses(cudaEvent_t event)
{
    pthread_mutex_lock(&event->lock);
    int refused = event->mark && event->refusals > 0;
    if (refused)
        event->refusals--;
    pthread_mutex_unlock(&event->lock);
    return refused;
}

static cudaError_t query(cudaEvent_t event)
{
    struct sim_mark *mark = get_mark(event);
    cudaError_t error = mark && mark->capture_id ? sim_capture_forbids_mark(mark) : cudaSuccess;
    if (!error && mark && (refuses(event) || !reached(mark)))
        error = cudaErrorNotReady;
    sim_mark_drop(mark);
    return error;
}

API cudaError_t cudaEventQuery(cudaEvent_t event)
{
    SIM_ENTER_FOR(is_tracers(event));
    cudaError_t error = usable(event) ? sim_capture_forbids() : cudaErrorInvalidResourceHandle;
    return DONE(error ? error : query(event));
}

static cudaError_t synchronize(cudaEvent_t event)
{
    struct sim_mark *mark = get_mark(event);
    cudaError_t error = mark && mark->capture_id ? sim_capture_forbids_mark(mark) : cudaSuccess;
    if (!error && mark) {
        sim_sleep_until(sim_mark_await(mark));
        pthread_mutex_lock(&event->lock);
        event->refusals = 0;
        pthread_mutex_unlock(&event->lock);
    }
    sim_mark_drop(mark);
    return error;
}

API cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    SIM_ENTER_FOR(is_tracers(event));
    cudaError_t error = usable(event) ? sim_capture_forbids() : cudaErrorInvalidResourceHandle;
    return DONE(error ? error : synchronize(event));
}

static cudaError_t elapsed(float *ms, struct sim_mark *from, struct sim_mark *to)
{
    if (!from || !to)
        return cudaErrorInvalidResourceHandle;
    if (from->capture_id || to->capture_id)
        return cudaErrorCapturedEvent;
    if (!reached(from) || !reached(to))
        return cudaErrorNotReady;
    *ms = (float)((double)((int64_t)to->time_ns - (int64_t)from->time_ns) / 1e6);
    return cudaSuccess;
}

API cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    SIM_ENTER_FOR(is_tracers(begin) && is_tracers(end));
    if (!usable(begin) || !usable(end) || begin->device != end->device ||
        (begin->flags | end->flags) & cudaEventDisableTiming)
        return DONE(cudaErrorInvalidResourceHandle);
    struct sim_mark *from = get_mark(begin), *to = get_mark(end);
    cudaError_t error = elapsed(ms, from, to);
    sim_mark_drop(from);
    sim_mark_drop(to);
    return DONE(error);
}
