/*
 * captures.c - what stream capture forbids, and what makes a capture void. Context: test program.
 */
#include <pthread.h>

#include "selftest.h"

static cudaStream_t capturing(unsigned int flags, enum cudaStreamCaptureMode mode)
{
    cudaStream_t stream = new_stream(flags);
    if (cudaStreamBeginCapture(stream, mode))
        fprintf(stderr, "no capture\n");
    return stream;
}

static int status_is(cudaStream_t stream, enum cudaStreamCaptureStatus expected)
{
    enum cudaStreamCaptureStatus status;
    return !cudaStreamIsCapturing(stream, &status) && status == expected;
}

static int is_void(cudaStream_t stream)
{
    cudaGraph_t graph = (cudaGraph_t)(void *)&graph;
    return status_is(stream, cudaStreamCaptureStatusInvalidated) &&
           launch(1, stream) == cudaErrorStreamCaptureInvalidated &&
           cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated && !graph &&
           status_is(stream, cudaStreamCaptureStatusNone) &&
           cudaGetLastError() == cudaErrorStreamCaptureInvalidated && !launch(1, stream);
}

static int is_intact(cudaStream_t stream)
{
    cudaGraph_t graph = NULL;
    return status_is(stream, cudaStreamCaptureStatusActive) &&
           !cudaStreamEndCapture(stream, &graph) && graph && !cudaGraphDestroy(graph);
}

static int has_nodes(cudaGraph_t graph, size_t expected)
{
    size_t count = 0;
    return !cudaGraphGetNodes(graph, NULL, &count) && count == expected;
}

static const char *status_follows(void)
{
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    cudaGraph_t graph;
    CHECK(status_is(stream, cudaStreamCaptureStatusNone) && status_is(NULL, 0));
    CHECK(!cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(status_is(stream, cudaStreamCaptureStatusActive) && status_is(NULL, 0));
    FAILS(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaErrorIllegalState);
    CHECK(!launch(1, stream) && !launch(1, stream) && !launch(1, NULL)); /* NULL runs */
    CHECK(!cudaStreamEndCapture(stream, &graph) && has_nodes(graph, 2));
    CHECK(status_is(stream, cudaStreamCaptureStatusNone));
    FAILS(cudaStreamEndCapture(stream, &graph), cudaErrorIllegalState);
    FAILS(cudaStreamBeginCapture(NULL, 0), cudaErrorStreamCaptureUnsupported);
    return NULL;
}

/* An event recorded while capturing becomes no node, can't be asked, and asking harms. */
static const char *captured_event_cannot_be_asked(void)
{
    cudaStream_t stream = capturing(cudaStreamNonBlocking, cudaStreamCaptureModeRelaxed);
    cudaEvent_t event = recorded(stream);
    enum cudaStreamCaptureMode relaxed = cudaStreamCaptureModeRelaxed;
    cudaGraph_t graph;
    CHECK(status_is(stream, cudaStreamCaptureStatusActive));
    CHECK(!cudaThreadExchangeStreamCaptureMode(&relaxed) && relaxed == cudaStreamCaptureModeGlobal);
    FAILS(cudaEventQuery(event), cudaErrorCapturedEvent);
    CHECK(is_void(stream));

    CHECK(!cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK(!cudaEventRecord(event, stream) && !launch(1, stream));
    CHECK(!cudaStreamEndCapture(stream, &graph) && has_nodes(graph, 1));
    FAILS(cudaEventQuery(event), cudaErrorCapturedEvent); /* still */
    FAILS(cudaEventSynchronize(event), cudaErrorCapturedEvent);
    CHECK(!cudaEventRecord(event, stream) && !cudaEventSynchronize(event)); /* an event again */
    return NULL;
}

/* Calls that are unsafe while a capture of mode Global is open, from the thread that captures. */
static const char *unsafe_calls_make_void(void)
{
    void *p, *pinned;
    char byte;
    cudaEvent_t outside = recorded(NULL);
    CHECK(!cudaMalloc(&p, 8) && !cudaHostAlloc(&pinned, 8, 0) && !cudaDeviceSynchronize());
#define UNSAFE(call)                                                                               \
    do {                                                                                           \
        cudaStream_t s = capturing(cudaStreamNonBlocking, cudaStreamCaptureModeGlobal);            \
        FAILS(call, cudaErrorStreamCaptureUnsupported);                                            \
        CHECK(is_void(s));                                                                         \
    } while (0)
    UNSAFE(cudaMalloc(&p, 8));
    UNSAFE(cudaFree(p));
    UNSAFE(cudaHostAlloc(&pinned, 8, 0));
    UNSAFE(cudaFreeHost(pinned));
    UNSAFE(cudaEventQuery(outside));
    UNSAFE(cudaEventSynchronize(outside));
    UNSAFE(cudaMemcpy(p, &byte, 1, cudaMemcpyHostToDevice));
    UNSAFE(cudaDeviceSynchronize());
    UNSAFE(cudaStreamSynchronize(s));
    UNSAFE(cudaStreamQuery(s));
    return NULL;
}

static const char *safe_calls_do_no_harm(void)
{
    cudaEvent_t event;
    cudaStream_t other = new_stream(cudaStreamNonBlocking);
    int device;
    cudaStream_t stream = capturing(cudaStreamNonBlocking, cudaStreamCaptureModeGlobal);
    CHECK(!cudaEventCreate(&event) && !cudaEventRecord(event, other) && !launch(1, other));
    CHECK(!cudaStreamSynchronize(other) && !cudaGetDevice(&device) && !cudaGetLastError());
    CHECK(!cudaEventDestroy(event) && is_intact(stream));
    return NULL;
}

struct in_thread {
    enum cudaStreamCaptureMode mode;
    cudaEvent_t event;
    cudaError_t answer;
};

static void *query_in_thread(void *arg)
{
    struct in_thread *t = arg;
    cudaThreadExchangeStreamCaptureMode(&t->mode);
    t->answer = cudaEventQuery(t->event);
    return NULL;
}

static cudaError_t query_elsewhere(cudaEvent_t event, enum cudaStreamCaptureMode mode)
{
    struct in_thread t = {.mode = mode, .event = event, .answer = cudaErrorUnknown};
    pthread_t thread;
    if (!pthread_create(&thread, NULL, query_in_thread, &t))
        pthread_join(thread, NULL);
    return t.answer;
}

/* What the watchdog of a process group does to a capture, by the modes of both. */
static const char *other_threads_harm(void)
{
    cudaEvent_t event = recorded(NULL);
    CHECK(!cudaEventSynchronize(event));
    cudaStream_t s = capturing(cudaStreamNonBlocking, cudaStreamCaptureModeGlobal);
    CHECK(query_elsewhere(event, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(query_elsewhere(event, cudaStreamCaptureModeRelaxed) == cudaSuccess);
    CHECK(status_is(s, cudaStreamCaptureStatusActive));
    CHECK(query_elsewhere(event, cudaStreamCaptureModeGlobal) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaPeekAtLastError() == cudaSuccess && is_void(s)); /* the error is that thread's */

    s = capturing(cudaStreamNonBlocking, cudaStreamCaptureModeThreadLocal);
    CHECK(query_elsewhere(event, cudaStreamCaptureModeGlobal) == cudaSuccess && is_intact(s));
    return NULL;
}

static const char *relaxed_thread_may(void)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    void *p;
    cudaEvent_t event = recorded(NULL);
    CHECK(!cudaEventSynchronize(event));
    cudaStream_t s = capturing(cudaStreamNonBlocking, cudaStreamCaptureModeGlobal);
    CHECK(!cudaThreadExchangeStreamCaptureMode(&mode) && !cudaMalloc(&p, 8) &&
          !cudaEventQuery(event));
    CHECK(!cudaThreadExchangeStreamCaptureMode(&mode) && mode == cudaStreamCaptureModeRelaxed);
    CHECK(is_intact(s));
    return NULL;
}

static void *end_in_thread(void *arg)
{
    struct {
        cudaStream_t stream;
        cudaError_t answer;
    } *t = arg;
    cudaGraph_t graph;
    t->answer = cudaStreamEndCapture(t->stream, &graph);
    return NULL;
}

static const char *ends_where_it_began(void)
{
    struct {
        cudaStream_t stream;
        cudaError_t answer;
    } t = {capturing(cudaStreamNonBlocking, cudaStreamCaptureModeGlobal), cudaSuccess};
    pthread_t thread;
    cudaGraph_t graph;
    CHECK(!pthread_create(&thread, NULL, end_in_thread, &t) && !pthread_join(thread, NULL));
    CHECK(t.answer == cudaErrorStreamCaptureWrongThread);
    cudaStream_t side = new_stream(cudaStreamNonBlocking);
    CHECK(!cudaStreamWaitEvent(side, recorded(t.stream), 0));
    FAILS(cudaStreamEndCapture(side, &graph), cudaErrorStreamCaptureUnmatched);
    CHECK(!launch(1, side));
    FAILS(cudaStreamEndCapture(t.stream, &graph), cudaErrorStreamCaptureUnjoined);
    CHECK(!graph && status_is(side, cudaStreamCaptureStatusNone));
    return NULL;
}

/* A blocking stream that captures makes the legacy stream unusable; asking for its status does no
 * harm. */
static const char *legacy_stream_is_unusable(void)
{
    enum cudaStreamCaptureStatus status;
    cudaStream_t s = capturing(cudaStreamDefault, cudaStreamCaptureModeRelaxed);
    FAILS(cudaStreamIsCapturing(NULL, &status), cudaErrorStreamCaptureImplicit);
    CHECK(status_is(s, cudaStreamCaptureStatusActive));
    FAILS(launch(1, NULL), cudaErrorStreamCaptureImplicit);
    CHECK(is_void(s));
    s = capturing(cudaStreamDefault, cudaStreamCaptureModeRelaxed);
    FAILS(cudaStreamSynchronize(NULL), cudaErrorStreamCaptureImplicit);
    CHECK(is_void(s));
    s = capturing(cudaStreamDefault, cudaStreamCaptureModeRelaxed);
    cudaEvent_t event;
    CHECK(!cudaEventCreate(&event));
    FAILS(cudaEventRecord(event, NULL), cudaErrorStreamCaptureImplicit);
    CHECK(is_void(s));
    return NULL;
}

static const char *inside_and_outside_do_not_mix(void)
{
    cudaEvent_t outside = recorded(NULL);
    cudaStream_t s = capturing(cudaStreamNonBlocking, cudaStreamCaptureModeRelaxed);
    FAILS(cudaStreamWaitEvent(s, outside, 0), cudaErrorStreamCaptureIsolation);
    CHECK(is_void(s));

    s = capturing(cudaStreamNonBlocking, cudaStreamCaptureModeRelaxed);
    cudaStream_t t = capturing(cudaStreamNonBlocking, cudaStreamCaptureModeRelaxed);
    FAILS(cudaStreamWaitEvent(t, recorded(s), 0), cudaErrorStreamCaptureMerge);
    CHECK(is_void(s) && is_void(t));

    s = capturing(cudaStreamNonBlocking, cudaStreamCaptureModeRelaxed);
    FAILS(cudaStreamWaitEvent(NULL, recorded(s), 0), cudaErrorStreamCaptureImplicit);
    CHECK(is_void(s));
    return NULL;
}

static const char *info_tells(void)
{
    cudaStream_t s = capturing(cudaStreamNonBlocking, cudaStreamCaptureModeRelaxed);
    enum cudaStreamCaptureStatus status;
    unsigned long long id = 0;
    cudaGraph_t graph;
    const cudaGraphNode_t *nodes;
    size_t count;
    CHECK(!launch(1, s) && !launch(1, s));
#if CUDART_VERSION >= 13000
    CHECK(!cudaStreamGetCaptureInfo(s, &status, &id, &graph, &nodes, NULL, &count));
#else
    CHECK(!cudaStreamGetCaptureInfo(s, &status, &id, &graph, &nodes, &count));
#endif
    CHECK(status == cudaStreamCaptureStatusActive && id && has_nodes(graph, 2));
    CHECK(count == 1 && nodes[0]);
    CHECK(is_intact(s));
    return NULL;
}

const struct test capture_tests[] = {
    {"capture: status", status_follows, NULL},
    {"capture: captured events", captured_event_cannot_be_asked, NULL},
    {"capture: unsafe calls", unsafe_calls_make_void, NULL},
    {"capture: safe calls", safe_calls_do_no_harm, NULL},
    {"capture: other threads", other_threads_harm, NULL},
    {"capture: relaxed threads", relaxed_thread_may, NULL},
    {"capture: its end", ends_where_it_began, NULL},
    {"capture: the legacy stream", legacy_stream_is_unusable, NULL},
    {"capture: isolation and merge", inside_and_outside_do_not_mix, NULL},
    {"capture: info", info_tells, NULL},
    {0},
};
