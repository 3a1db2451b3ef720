/*
 * c10d.c - torch.distributed and Gloo: groups, collectives issued, waits for them. Context: hooks
 * on any thread; only the training thread's waits count as waits.
 */
#include <string.h>

#include "preload/boot.h"
#include "preload/events.h"
#include "preload/hooks.h"
#include "preload/identity.h"

static void wait_leave(const bool *entered)
{
    if (*entered)
        lg_feed(LG_EV_WAIT_END, 0, NULL);
}

static bool wait_enter(enum lg_wait kind, const void *frame)
{
    if (!lg_awake())
        return false;
    lg_feed(LG_EV_WAIT_BEGIN, kind, frame);
    return true;
}

/* The rest of the function is a wait, left by whatever way: return, exception, cancellation. */
#define WAIT_SCOPE(kind)                                                                           \
    bool entered __attribute__((cleanup(wait_leave), unused)) =                                    \
        wait_enter(kind, __builtin_frame_address(0))

/* DDP's gradients must be there: on Gloo the host waits here, inside backward. */
void hook_reducer_finalize_backward(void *self)
{
    WAIT_SCOPE(LG_WAIT_BLOCKED);
    REAL(reducer_finalize_backward)(self);
    lg_count(&lg_process_counters.gradient_syncs, 1);
}

bool hook_work_wait(void *self, long timeout_ms)
{
    WAIT_SCOPE(LG_WAIT_BLOCKED);
    return REAL(work_wait)(self, timeout_ms);
}

bool hook_send_work_wait(void *self, long timeout_ms)
{
    WAIT_SCOPE(LG_WAIT_BLOCKED);
    return REAL(send_work_wait)(self, timeout_ms);
}

bool hook_recv_work_wait(void *self, long timeout_ms)
{
    WAIT_SCOPE(LG_WAIT_BLOCKED);
    return REAL(recv_work_wait)(self, timeout_ms);
}

static void group_constructed(const void *self, int rank, int size)
{
    if (!lg_awake())
        return;
    lg_identity_group(self, rank, size, LG_GROUP_C10D);
    lg_sign_of_training();
}

/* Every backend's constructor: rank and size of a group. */
void hook_backend_construct(void *self, int rank, int size)
{
    REAL(backend_construct)(self, rank, size);
    group_constructed(self, rank, size);
}

/* The same up to torch 1.13, where the backends are process groups themselves. */
void hook_process_group_construct(void *self, int rank, int size)
{
    REAL(process_group_construct)(self, rank, size);
    group_constructed(self, rank, size);
}

void hook_gloo_context(void *self, int rank, int size, int base)
{
    REAL(gloo_context)(self, rank, size, base);
    if (lg_awake())
        lg_identity_saw(LG_SEEN_GLOO);
}

/* A Gloo collective is issued on the calling thread; it runs on one of Gloo's own. */
void hook_gloo_enqueue(void *self, void *work)
{
    WAIT_SCOPE(LG_WAIT_ISSUE);
    if (entered)
        lg_identity_collective(self, 0, LG_GROUP_C10D);
    REAL(gloo_enqueue)(self, work);
}

/* The sizes of messages, on Gloo's threads, before the work is done. */
static void count_bytes(const void *options, size_t elements, size_t element_size)
{
    size_t n, size;
    memcpy(&n, (const char *)options + elements, sizeof n);
    memcpy(&size, (const char *)options + element_size, sizeof size);
    if (size >= 1 && size <= 16 && n < (size_t)1 << 40) /* else: not the layout that we know */
        lg_count(&lg_process_counters.collective_bytes, n * size);
}

void hook_gloo_allreduce(const void *options)
{
    if (lg_awake())
        count_bytes(options, LG_GLOO_ALLREDUCE_ELEMENTS, LG_GLOO_ALLREDUCE_SIZE);
    REAL(gloo_allreduce)(options);
}

void hook_gloo_broadcast(void *options)
{
    if (lg_awake())
        count_bytes(options, LG_GLOO_BROADCAST_ELEMENTS, LG_GLOO_BROADCAST_SIZE);
    REAL(gloo_broadcast)(options);
}
