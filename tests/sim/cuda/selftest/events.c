/*
 * events.c - events, and the last error of a thread. Context: test program.
 */
#include <pthread.h>

#include "selftest.h"

static const char *not_ready_is_the_last_error(void)
{
    cudaEvent_t event;
    CHECK(!simBusy(NULL, 3600000 * MS) && !cudaEventCreate(&event) &&
          !cudaEventRecord(event, NULL));
    CHECK(cudaEventQuery(event) == cudaErrorNotReady);
    CHECK(cudaPeekAtLastError() == cudaErrorNotReady); /* peeking changes nothing */
    CHECK(!launch(1, NULL));                           /* success neither */
    CHECK(cudaPeekAtLastError() == cudaErrorNotReady);
    CHECK(cudaGetLastError() == cudaErrorNotReady);
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(cudaEventQuery(event) == cudaErrorNotReady &&
          cudaSetDevice(99) == cudaErrorInvalidDevice);
    CHECK(cudaGetLastError() == cudaErrorInvalidDevice); /* the latest error counts */
    return NULL;
}

static void *ask_in_thread(void *answer)
{
    *(cudaError_t *)answer = cudaPeekAtLastError();
    return NULL;
}

static const char *last_error_is_the_threads(void)
{
    pthread_t thread;
    cudaError_t answer = cudaErrorUnknown;
    CHECK(cudaSetDevice(-1) == cudaErrorInvalidDevice);
    CHECK(!pthread_create(&thread, NULL, ask_in_thread, &answer) && !pthread_join(thread, NULL));
    CHECK(answer == cudaSuccess && cudaPeekAtLastError() == cudaErrorInvalidDevice);
    return NULL;
}

static const char *events_refuse(void)
{
    cudaEvent_t event = recorded(NULL);
    CHECK(!cudaDeviceSynchronize());
    FAILS(cudaEventQuery(event), cudaErrorNotReady);
    FAILS(cudaEventQuery(event), cudaErrorNotReady);
    CHECK(!cudaEventQuery(event));
    CHECK(!cudaEventRecord(event, NULL));
    FAILS(cudaEventQuery(event), cudaErrorNotReady);
    CHECK(!cudaEventSynchronize(event) && !cudaEventQuery(event));
    return NULL;
}

static const char *handles_are_checked(void)
{
    cudaEvent_t event, untimed, never;
    float ms;
    CHECK(!cudaEventCreate(&event) && !cudaEventCreate(&never));
    CHECK(!cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
    CHECK(!cudaEventRecord(event, NULL) && !cudaEventRecord(untimed, NULL));
    CHECK(!cudaEventSynchronize(untimed));
    FAILS(cudaEventElapsedTime(&ms, event, untimed), cudaErrorInvalidResourceHandle);
    FAILS(cudaEventElapsedTime(&ms, event, never), cudaErrorInvalidResourceHandle);
    CHECK(!cudaEventQuery(never) && !cudaEventSynchronize(never));
    CHECK(!cudaStreamWaitEvent(NULL, never, 0));
    FAILS(cudaEventRecord(NULL, NULL), cudaErrorInvalidResourceHandle);
    CHECK(!cudaEventDestroy(event));
    FAILS(cudaEventQuery(event), cudaErrorInvalidResourceHandle);
    FAILS(cudaEventDestroy(event), cudaErrorInvalidResourceHandle);
    return NULL;
}

static const char *elapsed_needs_both_ends(void)
{
    cudaEvent_t begin = recorded(NULL);
    float ms;
    CHECK(!simBusy(NULL, 3600000 * MS));
    cudaEvent_t end = recorded(NULL);
    FAILS(cudaEventElapsedTime(&ms, begin, end), cudaErrorNotReady);
    return NULL;
}

static const char *events_belong_to_a_device(void)
{
    cudaEvent_t zero = recorded(NULL), one;
    float ms;
    CHECK(!cudaSetDevice(1));
    FAILS(cudaEventRecord(zero, NULL), cudaErrorInvalidResourceHandle);
    CHECK(!cudaEventCreate(&one) && !cudaEventRecord(one, NULL));
    CHECK(!cudaEventSynchronize(one) && !cudaEventQuery(zero));
    FAILS(cudaEventElapsedTime(&ms, zero, one), cudaErrorInvalidResourceHandle);
    CHECK(!cudaStreamWaitEvent(NULL, zero, 0)); /* waiting across devices is allowed */
    return NULL;
}

static const char *streams_belong_to_a_device(void)
{
    cudaStream_t stream = new_stream(cudaStreamDefault);
    CHECK(!launch(1, stream) && !cudaSetDevice(1));
    FAILS(launch(1, stream), cudaErrorInvalidResourceHandle);
    FAILS(launch(0, NULL), cudaErrorInvalidConfiguration);
    return NULL;
}

/* A wait is for what the event was at the call, not for what it becomes. */
static const char *wait_takes_the_latest_record(void)
{
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    CHECK(!gate(NULL));
    cudaEvent_t event = recorded(NULL), begin = recorded(NULL);
    CHECK(!cudaStreamWaitEvent(stream, event, 0));
    CHECK(!simBusy(NULL, 50 * MS) && !cudaEventRecord(event, NULL));
    CHECK(!simBusy(stream, 2 * MS));
    CHECK(took(begin, recorded(stream), 2));
    CHECK(took(begin, event, 50));
    return NULL;
}

static int called;

static void call(void *arg)
{
    called += *(int *)arg;
}

static const char *host_functions_run(void)
{
    int seven = 7;
    CHECK(!simBusy(NULL, 5 * MS) && !cudaLaunchHostFunc(NULL, call, &seven));
    CHECK(!cudaStreamSynchronize(NULL) && called == 7);
    return NULL;
}

const struct test event_tests[] = {
    {"events: NotReady is the last error", not_ready_is_the_last_error, NULL},
    {"events: last error by thread", last_error_is_the_threads, NULL},
    {"events: not ready at the first queries", events_refuse, "SIM_NOT_READY=2"},
    {"events: handles are checked", handles_are_checked, NULL},
    {"events: elapsed time needs both", elapsed_needs_both_ends, NULL},
    {"events: of one device", events_belong_to_a_device, NULL},
    {"streams: of one device", streams_belong_to_a_device, NULL},
    {"events: a wait is for the latest record", wait_takes_the_latest_record, NULL},
    {"launch: host functions", host_functions_run, NULL},
    {0},
};
