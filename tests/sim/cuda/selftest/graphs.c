/*
 * graphs.c - graphs and their replays. Context: test program.
 */
#include <string.h>

#include "selftest.h"

static cudaGraphExec_t end(cudaStream_t stream, size_t *nodes)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    if (cudaStreamEndCapture(stream, &graph) || cudaGraphInstantiate(&exec, graph, 0) ||
        cudaGraphGetNodes(graph, NULL, nodes) || cudaGraphDestroy(graph))
        fprintf(stderr, "no graph\n");
    return exec;
}

static const char *replay_takes_its_time(void)
{
    cudaStream_t s = new_stream(cudaStreamNonBlocking);
    size_t nodes;
    CHECK(!cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < 20; i++)
        CHECK(!launch(1, s));
    cudaGraphExec_t exec = end(s, &nodes);
    CHECK(nodes == 20 && !gate(s));
    cudaEvent_t begin = recorded(s);
    CHECK(!cudaGraphLaunch(exec, s) && !cudaGraphLaunch(exec, s));
    CHECK(!cudaGraphExecDestroy(exec));
    CHECK(took(begin, recorded(s), 8));
    return NULL;
}

/* 1 ms, then 2 ms beside 5 ms on a second stream, then 1 ms: 7 ms. */
static const char *branches_run_side_by_side(void)
{
    cudaStream_t s = new_stream(cudaStreamNonBlocking), side = new_stream(cudaStreamNonBlocking);
    size_t nodes;
    CHECK(!cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    CHECK(!simBusy(s, 1 * MS) && !cudaStreamWaitEvent(side, recorded(s), 0));
    CHECK(!simBusy(s, 2 * MS) && !simBusy(side, 5 * MS));
    CHECK(!cudaStreamWaitEvent(s, recorded(side), 0) && !simBusy(s, 1 * MS));
    cudaGraphExec_t exec = end(s, &nodes);
    CHECK(nodes == 4 && !gate(s));
    cudaEvent_t begin = recorded(s);
    CHECK(!cudaGraphLaunch(exec, s));
    CHECK(took(begin, recorded(s), 7));
    return NULL;
}

static const char *replays_move_bytes(void)
{
    cudaStream_t s = new_stream(cudaStreamNonBlocking);
    char *pinned, *device;
    size_t nodes;
    CHECK(!cudaHostAlloc((void **)&pinned, 8, 0) && !cudaMalloc((void **)&device, 8));
    CHECK(!cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    CHECK(!cudaMemcpyAsync(device, pinned, 4, cudaMemcpyHostToDevice, s));
    CHECK(!cudaMemsetAsync(device + 3, '!', 1, s));
    CHECK(!cudaMemcpyAsync(pinned + 4, device, 4, cudaMemcpyDeviceToHost, s));
    cudaGraphExec_t exec = end(s, &nodes);
    CHECK(nodes == 3 && !memcmp(pinned, "\0\0\0\0\0\0\0\0", 8)); /* nothing ran yet */
    for (int i = 0; i < 2; i++) {
        memcpy(pinned, i ? "one." : "two.", 4);
        CHECK(!cudaGraphLaunch(exec, s) && !cudaStreamSynchronize(s));
        CHECK(!memcmp(pinned + 4, i ? "one!" : "two!", 4));
    }
    return NULL;
}

static int called;

static void call(void *arg)
{
    (void)arg;
    called++;
}

static void never(cudaStream_t stream, cudaError_t error, void *arg)
{
    (void)stream;
    (void)error;
    call(arg);
}

static const char *host_functions_are_captured(void)
{
    cudaStream_t s = new_stream(cudaStreamNonBlocking);
    cudaGraph_t graph;
    size_t nodes;
    CHECK(!cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    CHECK(!cudaLaunchHostFunc(s, call, NULL));
    cudaGraphExec_t exec = end(s, &nodes);
    CHECK(nodes == 1 && called == 0);
    CHECK(!cudaGraphLaunch(exec, s) && !cudaGraphLaunch(exec, s) && !cudaStreamSynchronize(s));
    CHECK(called == 2);
    CHECK(!cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal)); /* callbacks can't be */
    FAILS(cudaStreamAddCallback(s, never, NULL, 0), cudaErrorStreamCaptureUnsupported);
    FAILS(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);
    return NULL;
}

/* Events that are recorded or awaited as external are nodes: each replay records or awaits them
 * anew. */
static const char *external_events_are_nodes(void)
{
    cudaStream_t s = new_stream(cudaStreamNonBlocking), other = new_stream(cudaStreamNonBlocking);
    cudaEvent_t in, out, begin;
    size_t nodes;
    CHECK(!cudaEventCreate(&in) && !cudaEventCreate(&out));
    CHECK(!gate(s) && !cudaEventRecord(in, s));
    CHECK(!cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    CHECK(!simBusy(s, 2 * MS) && !cudaEventRecordWithFlags(out, s, cudaEventRecordExternal));
    CHECK(!cudaStreamWaitEvent(s, in, cudaEventWaitExternal) && !simBusy(s, 1 * MS));
    cudaGraphExec_t exec = end(s, &nodes);
    CHECK(nodes == 4);
    begin = recorded(s);
    CHECK(!cudaStreamWaitEvent(other, begin, 0) && !simBusy(other, 9 * MS));
    CHECK(!cudaEventRecord(in, other) && !cudaGraphLaunch(exec, s));
    CHECK(took(begin, out, 2) && took(begin, recorded(s), 10));
    return NULL;
}

static const char *graphs_nest(void)
{
    cudaStream_t s = new_stream(cudaStreamNonBlocking);
    size_t nodes;
    CHECK(!cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    CHECK(!simBusy(s, 2 * MS) && !simBusy(s, 1 * MS));
    cudaGraphExec_t inner = end(s, &nodes);
    CHECK(!cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    CHECK(!cudaGraphLaunch(inner, s) && !simBusy(s, 4 * MS));
    cudaGraphExec_t outer = end(s, &nodes);
    CHECK(nodes == 2 && !cudaGraphExecDestroy(inner) && !gate(s));
    cudaEvent_t begin = recorded(s);
    CHECK(!cudaGraphLaunch(outer, s) && took(begin, recorded(s), 7));
    return NULL;
}

static const char *user_objects_are_freed(void)
{
    cudaStream_t s = new_stream(cudaStreamNonBlocking);
    cudaUserObject_t object;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(!cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal) && !launch(1, s));
    CHECK(!cudaStreamEndCapture(s, &graph));
    CHECK(!cudaUserObjectCreate(&object, &called, call, 1, 1));
    CHECK(!cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
    CHECK(!cudaGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(!cudaGraphDestroy(graph) && called == 0);
    CHECK(!cudaGraphExecDestroy(exec) && called == 1);
    return NULL;
}

const struct test graph_tests[] = {
    {"graphs: time of a replay", replay_takes_its_time, "SIM_KERNEL_US=200"},
    {"graphs: branches", branches_run_side_by_side, NULL},
    {"graphs: bytes", replays_move_bytes, NULL},
    {"graphs: host functions", host_functions_are_captured, NULL},
    {"graphs: external events", external_events_are_nodes, NULL},
    {"graphs: graphs in graphs", graphs_nest, NULL},
    {"graphs: user objects", user_objects_are_freed, NULL},
    {0},
};
