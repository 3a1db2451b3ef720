/*
 * capture.c - stream capture: what goes into a graph, what is forbidden meanwhile, and what makes a
 * capture void. Context: inside the stand-in libcudart, any thread.
 *
 * The rules are those of CUDA's documentation (stream capture;
 * cudaThreadExchangeStreamCaptureMode). A call that is forbidden fails and makes the captures void
 * that forbid it; these then answer cudaErrorStreamCaptureInvalidated until they are ended, which
 * fails too. README.md has the list.
 */
#include <string.h>

#include "internal.h"

struct sim_capture {
    unsigned long long id;
    cudaGraph_t graph;
    cudaStream_t origin;
    enum cudaStreamCaptureMode mode;
    int is_void;
    const void *thread;
    struct sim_capture *next;
};

_Atomic uint32_t sim_open_captures;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_capture *captures;
static unsigned long long ids;
static _Thread_local enum cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;
static _Thread_local char this_thread; /* its address tells threads apart */

/* ---- what is forbidden. All static functions are called under the lock. */

static cudaError_t make_void(struct sim_capture *c, cudaError_t error)
{
    c->is_void = 1;
    return error;
}

static cudaError_t usable(const struct sim_capture *c)
{
    return c->is_void ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
}

static struct sim_capture *find(unsigned long long id)
{
    struct sim_capture *c = captures;
    while (c && c->id != id)
        c = c->next;
    return c;
}

struct search {
    int device, blocking;
    struct sim_capture *found;
};

static int is_capturing(cudaStream_t s, void *arg)
{
    struct search *search = arg;
    if (!s->capture || s->device != search->device ||
        (search->blocking && s->flags & cudaStreamNonBlocking))
        return 0;
    search->found = s->capture;
    return 1;
}

/* A capture that a stream of the device takes part in; blocking: only blocking streams count. */
static struct sim_capture *capture_on(int device, int blocking)
{
    struct search search = {.device = device, .blocking = blocking};
    sim_each_stream(is_capturing, &search);
    return search.found;
}

/* The legacy stream stands for all blocking streams: while one of them captures it is unusable. */
static cudaError_t legacy_conflict(cudaStream_t s, int harmless)
{
    struct sim_capture *c = s->legacy ? capture_on(s->device, 1) : NULL;
    if (c && !harmless)
        make_void(c, cudaSuccess);
    return c ? cudaErrorStreamCaptureImplicit : cudaSuccess;
}

static int forbids(const struct sim_capture *c)
{
    if (c->thread == &this_thread)
        return c->mode != cudaStreamCaptureModeRelaxed;
    return c->mode == cudaStreamCaptureModeGlobal && thread_mode == cudaStreamCaptureModeGlobal;
}

cudaError_t sim_capture_forbids(void)
{
    if (!atomic_load(&sim_open_captures) || thread_mode == cudaStreamCaptureModeRelaxed)
        return cudaSuccess;
    cudaError_t error = cudaSuccess;
    pthread_mutex_lock(&lock);
    for (struct sim_capture *c = captures; c; c = c->next)
        if (forbids(c))
            error = make_void(c, cudaErrorStreamCaptureUnsupported);
    pthread_mutex_unlock(&lock);
    return error;
}

cudaError_t sim_capture_forbids_asking(cudaStream_t stream, int device)
{
    if (!atomic_load(&sim_open_captures))
        return cudaSuccess;
    pthread_mutex_lock(&lock);
    struct sim_capture *c = stream ? stream->capture : capture_on(device, 0);
    cudaError_t error = cudaSuccess;
    if (c)
        error = c->is_void ? cudaErrorStreamCaptureInvalidated
                           : make_void(c, cudaErrorStreamCaptureUnsupported);
    else if (stream)
        error = legacy_conflict(stream, 0);
    pthread_mutex_unlock(&lock);
    return error || stream ? error : sim_capture_forbids();
}

cudaError_t sim_capture_forbids_mark(const struct sim_mark *mark)
{
    pthread_mutex_lock(&lock);
    struct sim_capture *c = find(mark->capture_id);
    if (c)
        make_void(c, cudaSuccess);
    pthread_mutex_unlock(&lock);
    return cudaErrorCapturedEvent;
}

/* ---- what goes into the graph */

static cudaError_t add_node(cudaStream_t s, struct sim_op *op)
{
    cudaGraphNode_t node = sim_graph_add(s->capture->graph, op, &s->dependencies);
    SIM_OUT_OF_MEMORY(node);
    sim_nodes_clear(&s->dependencies);
    return sim_nodes_add(&s->dependencies, node) ? cudaSuccess : cudaErrorMemoryAllocation;
}

static cudaError_t take_op(cudaStream_t s, struct sim_op *op)
{
    cudaError_t error = usable(s->capture);
    if (!error && !op->type->copy)
        error = make_void(s->capture, cudaErrorStreamCaptureUnsupported);
    if (!error)
        error = add_node(s, op);
    return error;
}

int sim_capture_op(cudaStream_t s, struct sim_op *op, cudaError_t *error)
{
    pthread_mutex_lock(&lock);
    int capturing = s->capture != NULL;
    *error = capturing ? take_op(s, op) : legacy_conflict(s, 0);
    pthread_mutex_unlock(&lock);
    if (*error)
        op->type->drop(op);
    return capturing || *error;
}

static cudaError_t take_record(cudaStream_t s, cudaEvent_t event, struct sim_mark *mark,
                               unsigned int flags)
{
    cudaError_t error = usable(s->capture);
    if (error)
        return error;
    if (flags & cudaEventRecordExternal)
        return add_node(s, sim_op_external(event, 0));
    mark->capture_id = s->capture->id;
    return sim_nodes_copy(&mark->nodes, &s->dependencies) ? cudaSuccess : cudaErrorMemoryAllocation;
}

int sim_capture_record(cudaStream_t s, cudaEvent_t event, struct sim_mark *mark, unsigned int flags,
                       cudaError_t *error)
{
    pthread_mutex_lock(&lock);
    int capturing = s->capture != NULL;
    *error = capturing ? take_record(s, event, mark, flags) : legacy_conflict(s, 0);
    pthread_mutex_unlock(&lock);
    return capturing;
}

static int add_all(struct sim_nodes *to, const struct sim_nodes *from)
{
    for (size_t i = 0; i < from->count; i++)
        if (!sim_nodes_add(to, from->node[i]))
            return 0;
    return 1;
}

/* A stream that waits for a captured event takes part in that capture from now on. */
static cudaError_t wait_for_captured(cudaStream_t s, const struct sim_mark *mark)
{
    struct sim_capture *c = find(mark->capture_id);
    if (!c)
        return cudaErrorCapturedEvent; /* that capture is over */
    if (c->is_void)
        return cudaErrorStreamCaptureInvalidated;
    if (s->capture && s->capture != c) {
        make_void(s->capture, cudaSuccess);
        return make_void(c, cudaErrorStreamCaptureMerge);
    }
    if (s->legacy)
        return make_void(c, cudaErrorStreamCaptureImplicit);
    s->capture = c;
    return add_all(&s->dependencies, &mark->nodes) ? cudaSuccess : cudaErrorMemoryAllocation;
}

/* A stream that captures waits for what is not captured: only as an explicitly external dependency.
 */
static cudaError_t wait_for_outside(cudaStream_t s, cudaEvent_t event, unsigned int flags)
{
    cudaError_t error = usable(s->capture);
    if (error)
        return error;
    if (flags & cudaEventWaitExternal)
        return add_node(s, sim_op_external(event, 1));
    return make_void(s->capture, cudaErrorStreamCaptureIsolation);
}

int sim_capture_wait(cudaStream_t s, cudaEvent_t event, const struct sim_mark *mark,
                     unsigned int flags, cudaError_t *error)
{
    pthread_mutex_lock(&lock);
    int mine = s->capture || mark->capture_id;
    *error = mark->capture_id ? wait_for_captured(s, mark)
             : s->capture     ? wait_for_outside(s, event, flags)
                              : legacy_conflict(s, 0);
    pthread_mutex_unlock(&lock);
    return mine;
}

/* ---- begin and end */

static cudaError_t begin(cudaStream_t s, enum cudaStreamCaptureMode mode, cudaGraph_t graph)
{
    if (!s)
        return cudaErrorInvalidResourceHandle;
    if ((unsigned int)mode > cudaStreamCaptureModeRelaxed)
        return cudaErrorInvalidValue;
    if (s->legacy)
        return cudaErrorStreamCaptureUnsupported;
    if (s->capture)
        return cudaErrorIllegalState;
    struct sim_capture *c = calloc(1, sizeof *c);
    if (graph)
        graph->references++;
    else
        graph = sim_graph_new();
    if (!c || !graph)
        return cudaErrorMemoryAllocation;
    *c = (struct sim_capture){.id = ++ids,
                              .graph = graph,
                              .origin = s,
                              .mode = mode,
                              .thread = &this_thread,
                              .next = captures};
    captures = c;
    s->capture = c;
    sim_nodes_clear(&s->dependencies);
    atomic_fetch_add(&sim_open_captures, 1);
    return cudaSuccess;
}

API cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode)
{
    SIM_ENTER();
    cudaStream_t s = sim_stream(handle);
    pthread_mutex_lock(&lock);
    cudaError_t error = begin(s, mode, NULL);
    pthread_mutex_unlock(&lock);
    return DONE(error);
}

API cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t handle, cudaGraph_t graph,
                                              const cudaGraphNode_t *dependencies,
                                              const cudaGraphEdgeData *edges, size_t count,
                                              enum cudaStreamCaptureMode mode)
{
    SIM_ENTER();
    (void)edges;
    cudaStream_t s = sim_stream(handle);
    pthread_mutex_lock(&lock);
    cudaError_t error = graph ? begin(s, mode, graph) : cudaErrorInvalidValue;
    for (size_t i = 0; !error && i < count; i++)
        if (!sim_nodes_add(&s->dependencies, dependencies[i]))
            error = cudaErrorMemoryAllocation;
    pthread_mutex_unlock(&lock);
    return DONE(error);
}

static int contains(const struct sim_nodes *set, cudaGraphNode_t node)
{
    for (size_t i = 0; i < set->count; i++)
        if (set->node[i] == node)
            return 1;
    return 0;
}

static int nothing_depends_on(cudaGraphNode_t node)
{
    const struct sim_nodes *all = &node->graph->nodes;
    for (size_t i = node->index + 1; i < all->count; i++)
        if (contains(&all->node[i]->dependencies, node))
            return 0;
    return 1;
}

/* Whether all that other streams captured has come back to the origin. */
static int joined(const struct sim_capture *c)
{
    const struct sim_nodes *all = &c->graph->nodes;
    for (size_t i = 0; i < all->count; i++)
        if (!contains(&c->origin->dependencies, all->node[i]) && nothing_depends_on(all->node[i]))
            return 0;
    return 1;
}

static int leave(cudaStream_t s, void *capture)
{
    if (s->capture == capture) {
        s->capture = NULL;
        sim_nodes_clear(&s->dependencies);
    }
    return 0;
}

static void close_capture(struct sim_capture *c)
{
    struct sim_capture **at = &captures;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    sim_each_stream(leave, c);
    atomic_fetch_sub(&sim_open_captures, 1);
    free(c);
}

static cudaError_t end(cudaStream_t s, cudaGraph_t *graph)
{
    struct sim_capture *c = s ? s->capture : NULL;
    if (!c)
        return cudaErrorIllegalState;
    if (c->origin != s)
        return cudaErrorStreamCaptureUnmatched;
    if (c->mode != cudaStreamCaptureModeRelaxed && c->thread != &this_thread)
        return cudaErrorStreamCaptureWrongThread;
    cudaError_t error = usable(c);
    if (!error && !joined(c))
        error = cudaErrorStreamCaptureUnjoined;
    if (error)
        sim_graph_drop(c->graph);
    else
        *graph = c->graph;
    close_capture(c);
    return error;
}

API cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *graph)
{
    SIM_ENTER();
    cudaStream_t s = sim_stream(handle);
    *graph = NULL;
    pthread_mutex_lock(&lock);
    cudaError_t error = end(s, graph);
    pthread_mutex_unlock(&lock);
    return DONE(error);
}

/* ---- asking, which never harms a capture */

static enum cudaStreamCaptureStatus status_of(const struct sim_capture *c)
{
    return !c           ? cudaStreamCaptureStatusNone
           : c->is_void ? cudaStreamCaptureStatusInvalidated
                        : cudaStreamCaptureStatusActive;
}

API cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status)
{
    SIM_ENTER();
    cudaStream_t s = sim_stream(handle);
    *status = cudaStreamCaptureStatusNone;
    if (!s)
        return DONE(cudaErrorInvalidResourceHandle);
    if (!atomic_load(&sim_open_captures))
        return cudaSuccess;
    pthread_mutex_lock(&lock);
    cudaError_t error = legacy_conflict(s, 1);
    *status = status_of(s->capture);
    pthread_mutex_unlock(&lock);
    return DONE(error);
}

static cudaError_t capture_info(cudaStream_t s, enum cudaStreamCaptureStatus *status,
                                unsigned long long *id, cudaGraph_t *graph,
                                const cudaGraphNode_t **dependencies, size_t *count)
{
    *status = cudaStreamCaptureStatusNone;
    if (!s)
        return cudaErrorInvalidResourceHandle;
    pthread_mutex_lock(&lock);
    cudaError_t error = legacy_conflict(s, 1);
    struct sim_capture *c = s->capture;
    *status = status_of(c);
    if (id && c)
        *id = c->id;
    if (graph)
        *graph = c ? c->graph : NULL;
    if (dependencies)
        *dependencies = s->dependencies.node;
    if (count)
        *count = s->dependencies.count;
    pthread_mutex_unlock(&lock);
    return error;
}

static cudaError_t update_dependencies(cudaStream_t s, const cudaGraphNode_t *nodes, size_t count,
                                       unsigned int flags)
{
    pthread_mutex_lock(&lock);
    cudaError_t error = !s           ? cudaErrorInvalidResourceHandle
                        : s->capture ? usable(s->capture)
                                     : cudaErrorIllegalState;
    if (!error && flags == cudaStreamSetCaptureDependencies)
        sim_nodes_clear(&s->dependencies);
    for (size_t i = 0; !error && i < count; i++)
        if (!sim_nodes_add(&s->dependencies, nodes[i]))
            error = cudaErrorMemoryAllocation;
    pthread_mutex_unlock(&lock);
    return error;
}

#if CUDART_VERSION >= 13000
API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                         unsigned long long *id, cudaGraph_t *graph,
                                         const cudaGraphNode_t **dependencies,
                                         const cudaGraphEdgeData **edges, size_t *count)
{
    SIM_ENTER();
    if (edges)
        *edges = NULL;
    return DONE(capture_info(sim_stream(stream), status, id, graph, dependencies, count));
}

API cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream,
                                                    cudaGraphNode_t *dependencies,
                                                    const cudaGraphEdgeData *edges, size_t count,
                                                    unsigned int flags)
{
    SIM_ENTER();
    (void)edges;
    return DONE(update_dependencies(sim_stream(stream), dependencies, count, flags));
}
#else
API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                         unsigned long long *id, cudaGraph_t *graph,
                                         const cudaGraphNode_t **dependencies, size_t *count)
{
    SIM_ENTER();
    return DONE(capture_info(sim_stream(stream), status, id, graph, dependencies, count));
}

API cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream,
                                                    cudaGraphNode_t *dependencies, size_t count,
                                                    unsigned int flags)
{
    SIM_ENTER();
    return DONE(update_dependencies(sim_stream(stream), dependencies, count, flags));
}
#endif

API cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    SIM_ENTER();
    if ((unsigned int)*mode > cudaStreamCaptureModeRelaxed)
        return DONE(cudaErrorInvalidValue);
    enum cudaStreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return cudaSuccess;
}
