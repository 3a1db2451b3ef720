/*
 * bench_calls.c - what one hooked call and one training step cost, in ns. Linked twice: bare, and
 * with the library's objects (then its hooks stand in for libc's functions, as under LD_PRELOAD).
 * Prints "name ns" lines; tools/bench runs both in turns and takes medians.
 *
 * sem_wait on a free semaphore and read of a bad descriptor are the cheapest calls behind hooks, so
 * the difference is the hook's own cost.
 */
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#ifdef WITH_LAGGARD
#include "preload/events.h"
#include "preload/hooks.h"
#include "preload/identity.h"
#include "preload/spool.h"
#endif

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static sem_t semaphore;

static void call_sem_wait(void)
{
    sem_post(&semaphore);
    sem_wait(&semaphore);
}

static void call_read(void)
{
    char c;
    if (read(-1, &c, 1) != -1)
        abort();
}

static void call_clock(void)
{
    (void)now_ns();
}

static void measure(const char *name, void (*call)(void), unsigned rounds)
{
    uint64_t best = UINT64_MAX;
    for (int repeat = 0; repeat < 15; repeat++) {
        uint64_t begin = now_ns();
        for (unsigned i = 0; i < rounds; i++)
            call();
        uint64_t d = now_ns() - begin;
        best = d < best ? d : best;
    }
    printf("%s %.2f\n", name, (double)best / rounds);
}

#ifdef WITH_LAGGARD
/* The events of one DDP step: fetch, forward label, backward with issue and wait, optimizer label.
 */
static void one_step(void)
{
    static const struct {
        enum lg_event event;
        uint64_t argument;
    } events[] = {
        {LG_EV_INPUT_BEGIN, 0},     {LG_EV_INPUT_END, 0},
        {LG_EV_FORWARD_BEGIN, 1},   {LG_EV_FORWARD_END, 0},
        {LG_EV_BACKWARD_BEGIN, 1},  {LG_EV_WAIT_BEGIN, LG_WAIT_ISSUE},
        {LG_EV_WAIT_END, 0},        {LG_EV_WAIT_BEGIN, LG_WAIT_BLOCKED},
        {LG_EV_WAIT_END, 0},        {LG_EV_BACKWARD_END, 0},
        {LG_EV_OPTIMIZER_BEGIN, 0}, {LG_EV_OPTIMIZER_END, 0},
    };
    static int group;
    for (unsigned i = 0; i < sizeof events / sizeof events[0]; i++)
        lg_feed(events[i].event, events[i].argument, __builtin_frame_address(0));
    lg_identity_collective(&group, 1 << 20, LG_GROUP_C10D);
}

static void bench_library(void)
{
    static int group;
    lg_process.torch = true;
    lg_events_candidate();
    lg_identity_group(&group, 0, 2, LG_GROUP_C10D);
    lg_events_backward();
    one_step();
    one_step();
    measure("training_sem_wait", call_sem_wait, 200000);
    measure("training_read", call_read, 200000);
    measure("step", one_step, 500);
    fflush(stdout);
}
#endif

int main(void)
{
    sem_init(&semaphore, 0, 0);
    measure("clock_gettime", call_clock, 200000);
    measure("sem_wait", call_sem_wait, 200000);
    measure("read", call_read, 200000);
    fflush(stdout);
#ifdef WITH_LAGGARD
    bench_library();
#endif
    return 0;
}
