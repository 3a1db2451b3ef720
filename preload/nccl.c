/*
 * nccl.c - NCCL: communicators, which tell rank and world size, and collectives. Context: hooks on
 * any thread. Collectives are counted for the process, the time in them only on the training
 * thread.
 *
 * Between ncclGroupStart and ncclGroupEnd collectives are only noted by NCCL; they happen in the
 * outermost ncclGroupEnd, which is then the one call that may wait.
 */
#include "preload/hooks.h"

#include "preload/boot.h"
#include "preload/events.h"
#include "preload/identity.h"
#include "preload/infer.h"

/* The open group of the training thread. */
static struct {
    uint32_t depth;
    enum lg_call call; /* LG_CALL_OTHER: no collective in it */
    uint64_t bytes;
} group;

/* ---- waits */

enum { NOWHERE, INFERRED, FED };

static void wait_leave(const int *how)
{
    if (*how == INFERRED)
        lg_infer_call_end();
    else if (*how == FED)
        lg_feed(LG_EV_WAIT_END, 0, NULL);
}

static int wait_enter(enum lg_call call, uint64_t bytes, const void *frame)
{
    if (lg_infer_call_begin(call, bytes))
        return INFERRED;
    if (!lg_process.torch)
        return NOWHERE;
    lg_feed(LG_EV_WAIT_BEGIN, LG_WAIT_ISSUE, frame);
    return FED;
}

/* ---- collectives */

/* Inside a group there is no wait yet. */
static int note_in_group(enum lg_call call, uint64_t bytes)
{
    if (group.call != LG_CALL_GRADIENT)
        group.call = call;
    group.bytes += bytes;
    return NOWHERE;
}

/* Returns how the wait was entered. */
static int collective_enter(enum lg_call call, void *comm, size_t count, int type,
                            const void *frame)
{
    uint64_t bytes = count * lg_nccl_type_bytes(type);
    if (!lg_awake())
        return NOWHERE;
    lg_identity_saw(LG_SEEN_NCCL);
    int how = group.depth > 0 && lg_on_training_thread() ? note_in_group(call, bytes)
                                                         : wait_enter(call, bytes, frame);
    /* only now: the call may have closed a row */
    lg_identity_collective(comm, bytes, LG_GROUP_NCCL);
    return how;
}

#define COLLECTIVE(id, call, params, type, arguments)                                              \
    int hook_##id params                                                                           \
    {                                                                                              \
        real_##id##_fn next = REAL(id);                                                            \
        if (next == NULL) /* somebody asks whether the library is there */                         \
            return LG_NCCL_SYSTEM_ERROR;                                                           \
        int how __attribute__((cleanup(wait_leave), unused)) =                                     \
            collective_enter(call, comm, n, type, __builtin_frame_address(0));                     \
        return next arguments;                                                                     \
    }

COLLECTIVE(nccl_all_reduce, LG_CALL_GRADIENT,
           (const void *from, void *to, size_t n, int type, int op, void *comm, void *stream), type,
           (from, to, n, type, op, comm, stream))
COLLECTIVE(nccl_reduce, LG_CALL_GRADIENT,
           (const void *from, void *to, size_t n, int type, int op, int root, void *comm,
            void *stream),
           type, (from, to, n, type, op, root, comm, stream))
COLLECTIVE(nccl_reduce_scatter, LG_CALL_GRADIENT,
           (const void *from, void *to, size_t n, int type, int op, void *comm, void *stream), type,
           (from, to, n, type, op, comm, stream))
COLLECTIVE(nccl_all_gather, LG_CALL_COLLECTIVE,
           (const void *from, void *to, size_t n, int type, void *comm, void *stream), type,
           (from, to, n, type, comm, stream))
COLLECTIVE(nccl_broadcast, LG_CALL_SHARE,
           (const void *from, void *to, size_t n, int type, int root, void *comm, void *stream),
           type, (from, to, n, type, root, comm, stream))
COLLECTIVE(nccl_bcast, LG_CALL_SHARE,
           (void *buffer, size_t n, int type, int root, void *comm, void *stream), type,
           (buffer, n, type, root, comm, stream))
COLLECTIVE(nccl_all_to_all, LG_CALL_COLLECTIVE,
           (const void *from, void *to, size_t n, int type, void *comm, void *stream), type,
           (from, to, n, type, comm, stream))
COLLECTIVE(nccl_gather, LG_CALL_COLLECTIVE,
           (const void *from, void *to, size_t n, int type, int root, void *comm, void *stream),
           type, (from, to, n, type, root, comm, stream))
COLLECTIVE(nccl_scatter, LG_CALL_SHARE,
           (const void *from, void *to, size_t n, int type, int root, void *comm, void *stream),
           type, (from, to, n, type, root, comm, stream))

int hook_nccl_group_start(void)
{
    real_nccl_group_start_fn next = REAL(nccl_group_start);
    if (next == NULL)
        return LG_NCCL_SYSTEM_ERROR;
    if (lg_awake() && lg_on_training_thread() && group.depth++ == 0) {
        group.call = LG_CALL_OTHER;
        group.bytes = 0;
    }
    return next();
}

int hook_nccl_group_end(void)
{
    real_nccl_group_end_fn next = REAL(nccl_group_end);
    int how __attribute__((cleanup(wait_leave), unused)) = NOWHERE;
    if (next == NULL)
        return LG_NCCL_SYSTEM_ERROR;
    if (lg_awake() && lg_on_training_thread() && group.depth > 0 && --group.depth == 0 &&
        group.call != LG_CALL_OTHER)
        how = wait_enter(group.call, group.bytes, __builtin_frame_address(0));
    return next();
}

/* ---- communicators */

static int made(int result, void *const *comm, int size, int rank)
{
    if ((result != LG_NCCL_SUCCESS && result != LG_NCCL_IN_PROGRESS) || !lg_awake())
        return result;
    LG_KEEP_ERRNO;
    lg_identity_group(*comm, rank, size, LG_GROUP_NCCL);
    lg_sign_of_training();
    return result;
}

int hook_nccl_init(void **comm, int size, struct lg_nccl_id id, int rank)
{
    real_nccl_init_fn next = REAL(nccl_init);
    return next == NULL ? LG_NCCL_SYSTEM_ERROR : made(next(comm, size, id, rank), comm, size, rank);
}

int hook_nccl_init_config(void **comm, int size, struct lg_nccl_id id, int rank, void *config)
{
    real_nccl_init_config_fn next = REAL(nccl_init_config);
    return next == NULL ? LG_NCCL_SYSTEM_ERROR
                        : made(next(comm, size, id, rank, config), comm, size, rank);
}

int hook_nccl_init_scalable(void **comm, int size, int rank, int ids, struct lg_nccl_id *id,
                            void *config)
{
    real_nccl_init_scalable_fn next = REAL(nccl_init_scalable);
    return next == NULL ? LG_NCCL_SYSTEM_ERROR
                        : made(next(comm, size, rank, ids, id, config), comm, size, rank);
}
