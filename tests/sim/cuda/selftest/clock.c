/*
 * clock.c - the ideal clock: durations, order between streams, factors, rules. Context: test
 * program.
 */
#include "selftest.h"

static const char *kernels_take_their_time(void)
{
    CHECK(!gate(NULL));
    cudaEvent_t begin = recorded(NULL);
    for (int i = 0; i < 500; i++)
        CHECK(!launch(1, NULL));
    cudaEvent_t end = recorded(NULL);
    CHECK(took(begin, end, 100));
    CHECK(!cudaEventQuery(end));
    return NULL;
}

static const char *blocks_count(void)
{
    CHECK(!gate(NULL));
    cudaEvent_t begin = recorded(NULL);
    CHECK(!launch(250, NULL) && !launch(50, NULL));
    CHECK(took(begin, recorded(NULL), 0.32));
    return NULL;
}

static const char *issue_is_the_earliest_begin(void)
{
    cudaEvent_t begin = recorded(NULL);
    uint64_t before = sim_now();
    sim_sleep_until(before + 20 * MS);
    CHECK(!launch(1, NULL));
    cudaEvent_t end = recorded(NULL);
    float ms;
    CHECK(!cudaEventSynchronize(end) && !cudaEventElapsedTime(&ms, begin, end));
    CHECK(ms >= 20.0f);
    CHECK(sim_now() - before >= 20 * MS);
    return NULL;
}

static const char *host_runs_ahead(void)
{
    CHECK(!simBusy(NULL, 3600000 * MS)); /* an hour: nobody waits for it */
    FAILS(cudaEventQuery(recorded(NULL)), cudaErrorNotReady);
    FAILS(cudaStreamQuery(NULL), cudaErrorNotReady);
    return NULL;
}

static const char *synchronise_waits(void)
{
    uint64_t before = sim_now();
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    CHECK(!simBusy(stream, 20 * MS) && !cudaStreamSynchronize(stream));
    CHECK(sim_now() - before >= 20 * MS && !cudaStreamQuery(stream));
    CHECK(!simBusy(stream, 20 * MS) && !cudaDeviceSynchronize());
    CHECK(sim_now() - before >= 40 * MS && !cudaStreamQuery(stream));
    return NULL;
}

static const char *streams_overlap(void)
{
    cudaStream_t one = new_stream(cudaStreamNonBlocking), two = new_stream(cudaStreamNonBlocking);
    CHECK(!gate(NULL));
    cudaEvent_t begin = recorded(NULL);
    CHECK(!cudaStreamWaitEvent(one, begin, 0) && !cudaStreamWaitEvent(two, begin, 0));
    CHECK(!simBusy(one, 10 * MS) && !simBusy(two, 7 * MS));
    CHECK(!cudaStreamWaitEvent(NULL, recorded(one), 0));
    CHECK(!cudaStreamWaitEvent(NULL, recorded(two), 0));
    CHECK(took(begin, recorded(NULL), 10));
    return NULL;
}

/* The legacy stream waits for blocking streams and they for it; others go their own way. */
static const char *legacy_stream_orders(void)
{
    cudaStream_t blocking = new_stream(cudaStreamDefault), free = new_stream(cudaStreamNonBlocking);
    CHECK(!gate(NULL));
    cudaEvent_t begin = recorded(NULL);
    CHECK(!cudaStreamWaitEvent(free, begin, 0));
    CHECK(!simBusy(blocking, 5 * MS)); /* after the gate */
    CHECK(!simBusy(NULL, 3 * MS));     /* after that */
    CHECK(!simBusy(free, 1 * MS));
    cudaEvent_t ordered = recorded(NULL), alone = recorded(free);
    CHECK(took(begin, ordered, 8) && took(begin, alone, 1));
    return NULL;
}

static const char *stream_per_thread_is_another(void)
{
    CHECK(!gate(cudaStreamPerThread));
    cudaEvent_t begin = recorded(cudaStreamPerThread);
    CHECK(!simBusy(cudaStreamPerThread, 2 * MS));
    CHECK(took(begin, recorded(cudaStreamPerThread), 2));
    unsigned long long one, two;
    CHECK(!cudaStreamGetId(cudaStreamPerThread, &one) && !cudaStreamGetId(NULL, &two) &&
          one != two);
    return NULL;
}

/* With room for 4 operations the launch of the tenth waits for the end of the sixth. */
static const char *queue_is_finite(void)
{
    uint64_t before = sim_now();
    for (int i = 0; i < 10; i++)
        CHECK(!simBusy(NULL, 5 * MS));
    CHECK(sim_now() - before >= 30 * MS);
    return NULL;
}

static const char *destroyed_stream_finishes(void)
{
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    char *pinned, *device;
    CHECK(!cudaHostAlloc((void **)&pinned, 8, 0) && !cudaMalloc((void **)&device, 8));
    pinned[0] = 'y';
    CHECK(!simBusy(stream, 10 * MS));
    CHECK(!cudaMemcpyAsync(device, pinned, 8, cudaMemcpyHostToDevice, stream));
    cudaEvent_t end = recorded(stream);
    CHECK(!cudaStreamDestroy(stream));
    FAILS(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
    CHECK(!cudaEventSynchronize(end) && *(char *)simHost(device) == 'y');
    return NULL;
}

static const char *rank_has_its_factor(void)
{
    CHECK(!gate(NULL));
    cudaEvent_t begin = recorded(NULL);
    CHECK(!launch(1, NULL) && !simGemm(NULL));
    CHECK(took(begin, recorded(NULL), 3.6)); /* (0.2 + 1.0) x 3 */
    return NULL;
}

/* Rules of other ranks don't count; of mine all do, in order. */
static const char *rules_apply(void)
{
    CHECK(!gate(NULL));
    for (int step = 0; step < 6; step++) {
        static const double expected[] = {1, 1, 3, 8, 3, 1};
        simStep((uint64_t)step);
        cudaEvent_t begin = recorded(NULL);
        CHECK(!simGemm(NULL));
        CHECK(took(begin, recorded(NULL), expected[step]));
        CHECK(!gate(NULL));
    }
    return NULL;
}

static const char *rules_by_time(void)
{
    CHECK(simDuration(SIM_GEMM, 0) == 9 * MS);
    CHECK(simDuration(SIM_KERNEL, 1) == 200000);
    return NULL;
}

static const char *rules_by_collectives(void)
{
    CHECK(simDuration(SIM_GEMM, 0) == 1 * MS);
    for (int i = 0; i < 10; i++)
        simCollectiveIssued();
    CHECK(simDuration(SIM_GEMM, 0) == 7 * MS); /* step 2 of 5 collectives each */
    return NULL;
}

static const char *rank_can_be_set(void)
{
    CHECK(simDuration(SIM_KERNEL, 1) == 1000);
    simRank(2);
    CHECK(simDuration(SIM_KERNEL, 1) == 3000);
    simRank(7); /* the list's last */
    CHECK(simDuration(SIM_KERNEL, 1) == 4000);
    return NULL;
}

static void write_body(void *arg)
{
    struct {
        char *to;
        char what;
    } *a = arg;
    *(char *)simHost(a->to) = a->what;
}

static const char *kernels_can_have_bodies(void)
{
    static const int function;
    struct {
        char *to;
        char what;
    } arg = {.what = 'k'};
    void *args[] = {&arg};
    CHECK(!cudaMalloc((void **)&arg.to, 1));
    simKernel(&function, write_body, sizeof arg);
    CHECK(!cudaLaunchKernel(&function, (dim3){1, 1, 1}, (dim3){1, 1, 1}, args, 0, NULL));
    CHECK(!cudaDeviceSynchronize() && *(char *)simHost(arg.to) == 'k');
    return NULL;
}

static const char *slow_operation(void)
{
    CHECK(!gate(NULL));
    cudaEvent_t begin = recorded(NULL);
    simSlow(4 * MS);
    CHECK(!launch(1, NULL) && !launch(1, NULL));
    CHECK(took(begin, recorded(NULL), 4.4));
    return NULL;
}

#define KERNEL_200 "SIM_KERNEL_US=200"
const struct test clock_tests[] = {
    {"clock: 500 kernels of 200 us", kernels_take_their_time, KERNEL_200},
    {"clock: time of blocks", blocks_count, "SIM_KERNEL_US=10 SIM_BLOCK_NS=1000"},
    {"clock: nothing begins before its issue", issue_is_the_earliest_begin, NULL},
    {"clock: the host runs ahead", host_runs_ahead, NULL},
    {"clock: synchronize waits", synchronise_waits, NULL},
    {"clock: streams overlap", streams_overlap, NULL},
    {"clock: legacy stream", legacy_stream_orders, NULL},
    {"clock: stream per thread", stream_per_thread_is_another, NULL},
    {"clock: launches block when the queue is full", queue_is_finite, "SIM_QUEUE_DEPTH=4"},
    {"clock: destroyed stream", destroyed_stream_finishes, NULL},
    {"knobs: factor by rank", rank_has_its_factor,
     KERNEL_200 " SIM_GEMM_US=1000 SIM_FACTOR=1,3,1 RANK=1"},
    {"knobs: rules by step", rules_apply,
     "RANK=2 SIM_GEMM_US=1000 SIM_RULES=gemm@2@step2-4:x3;gemm@0,2-3@step3:+5ms;gemm@1:x100;"
     "kernel@*:9ms"},
    {"knobs: rules by time", rules_by_time,
     KERNEL_200 " SIM_RULES=gemm@*@time0-1000:9ms;compute@*@time1000-:x5"},
    {"knobs: rules by count of collectives", rules_by_collectives,
     "SIM_GEMM_US=1000 SIM_STEP_COLLECTIVES=5 SIM_RULES=gemm@*@step2-/2:x7"},
    {"knobs: rank and lists", rank_can_be_set, "RANK=0 SIM_KERNEL_US=1,2,3,4"},
    {"launch: kernels with a body", kernels_can_have_bodies, NULL},
    {"launch: one slow operation", slow_operation, KERNEL_200},
    {0},
};
