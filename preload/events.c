/*
 * events.c - see events.h. Context: hooks on any thread.
 */
#include "preload/events.h"

#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/clock.h"
#include "preload/device.h"
#include "preload/hooks.h"
#include "preload/identity.h"
#include "preload/infer.h"
#include "preload/spool.h"

struct lg_thread_counters lg_thread_counters;
struct lg_process_counters lg_process_counters;

static struct lg_machine machine;
static uint32_t generation;
static _Atomic uint32_t fixing; /* 1: some thread has been made the training thread for good */
static uint32_t training_tid;   /* and this is its number */

void lg_counts_usage(struct lg_counts *out)
{
    struct rusage u;
    out->usage = syscall(SYS_getrusage, RUSAGE_THREAD, &u) == 0;
    if (!out->usage)
        return;
    out->thread_cpu_ns = ((uint64_t)u.ru_utime.tv_sec + (uint64_t)u.ru_stime.tv_sec) * 1000000000u +
                         ((uint64_t)u.ru_utime.tv_usec + (uint64_t)u.ru_stime.tv_usec) * 1000u;
    out->minor_faults = (uint64_t)u.ru_minflt;
    out->major_faults = (uint64_t)u.ru_majflt;
    out->voluntary_switches = (uint64_t)u.ru_nvcsw;
    out->involuntary_switches = (uint64_t)u.ru_nivcsw;
}

void lg_counts_now(struct lg_counts *out, bool usage)
{
    memset(out, 0, sizeof *out);
#define TAKE_THREAD(name) out->name = lg_thread_counters.name;
    LG_THREAD_COUNTERS(TAKE_THREAD)
#define TAKE_PROCESS(name) out->name = lg_process_counters.name;
    LG_PROCESS_COUNTERS(TAKE_PROCESS)
    out->collective_seq = lg_identity_sequence();
    if (usage)
        lg_counts_usage(out);
}

void lg_sign_of_training(void)
{
    if (lg_spool_tried() || !lg_own_process())
        return;
    LG_KEEP_ERRNO;
    lg_tls.guard++;
    lg_page.role = LG_ROLE_NORMAL; /* a forked loader would have been a worker */
    lg_identity_environment();
    lg_spool_open();
    lg_tls.guard--;
}

void lg_events_candidate(void)
{
    if (fixing != 0)
        return;
    memset(&machine, 0, sizeof machine);
    lg_tls.training = ++generation;
    lg_process.training = generation;
}

static bool is_training_thread(void)
{
    return lg_tls.training != 0 && lg_tls.training == lg_process.training;
}

/* The training thread has left, was cancelled, or returned: frameworks run each trial in a thread
 * of its own. Its rows that are complete are closed, and this thread goes on. */
static void succeed_training_thread(void)
{
    uint32_t one = 1;
    LG_KEEP_ERRNO;
    if (syscall(SYS_tgkill, lg_process.pid, training_tid, 0) == 0 || errno != ESRCH ||
        !atomic_compare_exchange_strong(&fixing, &one, 0))
        return;
    lg_tls.guard++;
    /* what the kernel counted for it can't be asked for any more */
    machine.step.row.base.usage = machine.step.committed.base.usage = false;
    lg_machine_finish(&machine, lg_now_ns());
    uint64_t number = machine.number;
    lg_events_candidate();
    machine.number = number;
    lg_tls.guard--;
}

void lg_events_backward(void)
{
    if (LG_UNLIKELY(fixing != 0 && !is_training_thread()))
        succeed_training_thread();
    if (fixing == 0) {
        if (!is_training_thread())
            lg_events_candidate();
        training_tid = (uint32_t)syscall(SYS_gettid);
        fixing = 1;
    }
    lg_sign_of_training();
}

/* The device's clock follows: a mark where the part changes and where rows begin and are committed.
 */
static void follow_device(unsigned part_before, uint32_t turns_before)
{
    unsigned part = lg_machine_device_part(&machine);
    bool turn = machine.step.turns != turns_before;
    if (machine.step.started && (part != part_before || turn))
        lg_device_boundary(part, turn);
}

void lg_feed_event(enum lg_event ev, uint64_t argument, uintptr_t frame)
{
    LG_KEEP_ERRNO;
    lg_tls.guard++;
    uint64_t now = lg_now_ns();
    unsigned part = lg_machine_device_part(&machine);
    uint32_t turns = machine.step.turns;
    uint64_t number = machine.number;
    lg_machine_event(&machine, ev, now, argument, frame);
    if (machine.number != number)
        lg_device_step(machine.number, lg_machine_first_mark(&machine));
    follow_device(part, turns);
    lg_spool_status(machine.number, lg_machine_stage(&machine), machine.step.waiting > 0, now,
                    machine.dropped);
    lg_process.time_io = lg_machine_wants_io(&machine);
    lg_tls.guard--;
}

void lg_events_reset(void)
{
    memset(&machine, 0, sizeof machine);
    memset(&lg_thread_counters, 0, sizeof lg_thread_counters);
    memset(&lg_process_counters, 0, sizeof lg_process_counters);
    fixing = 0;
    lg_device_reset();
    lg_infer_reset();
}

void lg_events_finish(void)
{
    lg_device_poll();
    /* Only the training thread may touch its rows. When another one ends the process, what is
     * complete is already in the mapping (held and provisional rows). */
    if (!is_training_thread())
        return;
    lg_machine_finish(&machine, lg_now_ns());
    lg_infer_finish();
}
