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
#include "preload/device.h"
#include "preload/events.h"
#include "preload/identity.h"
#include "preload/infer.h"
#include "preload/library.h"

/* The open group of the training thread. */
static struct {
    uint32_t depth;
    enum lg_call call; /* LG_CALL_OTHER: no collective in it */
    uint64_t bytes;
} group;

static bool several_copies;

/* The real function for the code at `caller`. */
#define NEXT(id, caller)                                                                           \
    (LG_LIKELY(!several_copies) ? REAL(id) : (real_##id##_fn)lg_resolve_for(LG_HOOK_##id, caller))

/* ---- waits */

enum how { NOWHERE, INFERRED, FED };

/* A call that may wait for other ranks: on the host, on the compute stream. */
struct wait {
    enum how how;
    bool marked; /* lg_device_wait_end() is due */
};

static void wait_leave(const struct wait *w)
{
    if (w->marked)
        lg_device_wait_end();
    if (w->how == INFERRED)
        lg_infer_call_end();
    else if (w->how == FED)
        lg_feed(LG_EV_WAIT_END, 0, NULL);
}

static enum how wait_enter(enum lg_call call, uint64_t bytes, const void *frame)
{
    if (lg_infer_call_begin(call, bytes))
        return INFERRED;
    if (!lg_process.torch)
        return NOWHERE;
    lg_feed(LG_EV_WAIT_BEGIN, LG_WAIT_ISSUE, frame);
    return FED;
}

/* The stream's side. In a group the collective is only enqueued by the group's end. */
static bool mark_enter(const void *stream)
{
    bool marked = lg_device_collective_begin(stream);
    if (lg_tls.nccl_group == 0)
        return marked;
    lg_tls.nccl_marked |= marked;
    return false;
}

/* ---- collectives */

/* Returns how the wait was entered: inside a group there is none yet. */
static struct wait collective_enter(enum lg_call call, void *comm, size_t count, int type,
                                    const void *stream, const void *frame)
{
    uint64_t bytes = count * lg_nccl_type_bytes(type);
    struct wait w = {NOWHERE, false};
    if (!lg_awake())
        return w;
    lg_identity_saw(LG_SEEN_NCCL);
    if (group.depth > 0 && lg_on_training_thread()) {
        if (group.call != LG_CALL_GRADIENT)
            group.call = call;
        group.bytes += bytes;
    } else {
        w.how = wait_enter(call, bytes, frame);
    }
    /* only now: the call may have closed a row, which it is not part of */
    lg_identity_collective(comm, bytes, LG_GROUP_NCCL);
    w.marked = mark_enter(stream);
    return w;
}

#define COLLECTIVE(id, call, params, type, arguments)                                              \
    int hook_##id params                                                                           \
    {                                                                                              \
        real_##id##_fn next = NEXT(id, __builtin_return_address(0));                               \
        if (next == NULL) /* somebody asks whether the library is there */                         \
            return LG_NCCL_SYSTEM_ERROR;                                                           \
        struct wait w __attribute__((cleanup(wait_leave), unused)) =                               \
            collective_enter(call, comm, n, type, stream, __builtin_frame_address(0));             \
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

/* Point to point: not ordered over the group, so counted nowhere; the stream stands still all the
 * same. */
#define POINT_TO_POINT(id, buffer)                                                                 \
    int hook_##id(buffer, size_t n, int type, int peer, void *comm, void *stream)                  \
    {                                                                                              \
        real_##id##_fn next = NEXT(id, __builtin_return_address(0));                               \
        if (next == NULL)                                                                          \
            return LG_NCCL_SYSTEM_ERROR;                                                           \
        struct wait w __attribute__((cleanup(wait_leave), unused)) = {                             \
            NOWHERE, lg_awake() && mark_enter(stream)};                                            \
        return next(data, n, type, peer, comm, stream);                                            \
    }

POINT_TO_POINT(nccl_send, const void *data)
POINT_TO_POINT(nccl_recv, void *data)

int hook_nccl_group_start(void)
{
    real_nccl_group_start_fn next = NEXT(nccl_group_start, __builtin_return_address(0));
    if (next == NULL)
        return LG_NCCL_SYSTEM_ERROR;
    if (lg_awake() && lg_tls.nccl_group++ == 0)
        lg_tls.nccl_marked = false;
    if (lg_awake() && lg_on_training_thread() && group.depth++ == 0) {
        group.call = LG_CALL_OTHER;
        group.bytes = 0;
    }
    return next();
}

int hook_nccl_group_end(void)
{
    real_nccl_group_end_fn next = NEXT(nccl_group_end, __builtin_return_address(0));
    struct wait w __attribute__((cleanup(wait_leave), unused)) = {NOWHERE, false};
    if (next == NULL)
        return LG_NCCL_SYSTEM_ERROR;
    if (!lg_awake())
        return next();
    if (lg_tls.nccl_group > 0 && --lg_tls.nccl_group == 0)
        w.marked = lg_tls.nccl_marked;
    if (lg_on_training_thread() && group.depth > 0 && --group.depth == 0 &&
        group.call != LG_CALL_OTHER)
        w.how = wait_enter(group.call, group.bytes, __builtin_frame_address(0));
    return next();
}

/* ---- communicators */

/* Two copies of NCCL in one process are told apart by their callers (hooks.h). A copy can only come
 * into use by making a communicator. */
static void look_for_copies(void)
{
    if (lg_awake() && !several_copies)
        several_copies = lg_resolve_several(LG_HOOK_nccl_all_reduce);
}

static void note_version(const void *caller)
{
    real_nccl_version_fn ask = NEXT(nccl_version, caller);
    int version = 0;
    if (ask != NULL && ask(&version) == LG_NCCL_SUCCESS)
        lg_library_nccl((lg_function)ask, version);
}

static int made(int result, void *const *comm, int size, int rank, const void *caller)
{
    if ((result != LG_NCCL_SUCCESS && result != LG_NCCL_IN_PROGRESS) || !lg_awake() ||
        *comm == NULL)
        return result;
    LG_KEEP_ERRNO;
    note_version(caller);
    lg_identity_group(*comm, rank, size, LG_GROUP_NCCL);
    lg_sign_of_training();
    return result;
}

#define INIT(id, params, arguments)                                                                \
    int hook_##id params                                                                           \
    {                                                                                              \
        look_for_copies();                                                                         \
        real_##id##_fn next = NEXT(id, __builtin_return_address(0));                               \
        return next == NULL ? LG_NCCL_SYSTEM_ERROR                                                 \
                            : made(next arguments, comm, size, rank, __builtin_return_address(0)); \
    }

INIT(nccl_init, (void **comm, int size, struct lg_nccl_id id, int rank), (comm, size, id, rank))
INIT(nccl_init_config, (void **comm, int size, struct lg_nccl_id id, int rank, void *config),
     (comm, size, id, rank, config))
INIT(nccl_init_scalable,
     (void **comm, int size, int rank, int ids, struct lg_nccl_id *id, void *config),
     (comm, size, rank, ids, id, config))

/* All ranks are in this process: it is one rank of laggard's, alone in each of them. */
int hook_nccl_init_all(void **comm, int devices, const int *device)
{
    look_for_copies();
    real_nccl_init_all_fn next = NEXT(nccl_init_all, __builtin_return_address(0));
    if (next == NULL)
        return LG_NCCL_SYSTEM_ERROR;
    int r = next(comm, devices, device);
    for (int i = 0; i < devices && comm != NULL; i++)
        made(r, &comm[i], 1, 0, __builtin_return_address(0));
    return r;
}

/* Made from another one: NCCL knows what it is; not yet, where it is still at work on it. */
static int derived(int result, void *const *comm, const void *caller)
{
    int size = -1, rank = -1;
    if (result != LG_NCCL_SUCCESS || !lg_awake() || comm == NULL || *comm == NULL)
        return result;
    LG_KEEP_ERRNO;
    real_nccl_count_fn count = NEXT(nccl_count, caller);
    real_nccl_rank_fn number = NEXT(nccl_rank, caller);
    if (count != NULL && number != NULL && count(*comm, &size) == LG_NCCL_SUCCESS &&
        number(*comm, &rank) == LG_NCCL_SUCCESS)
        lg_identity_group(*comm, rank, size, LG_GROUP_NCCL);
    return result;
}

#define DERIVE(id, params, arguments)                                                              \
    int hook_##id params                                                                           \
    {                                                                                              \
        real_##id##_fn next = NEXT(id, __builtin_return_address(0));                               \
        return next == NULL ? LG_NCCL_SYSTEM_ERROR                                                 \
                            : derived(next arguments, comm, __builtin_return_address(0));          \
    }

DERIVE(nccl_split, (void *parent, int color, int key, void **comm, void *config),
       (parent, color, key, comm, config))
DERIVE(nccl_shrink, (void *parent, int *excluded, int count, void **comm, void *config, int flags),
       (parent, excluded, count, comm, config, flags))
DERIVE(nccl_grow,
       (void *parent, int size, const struct lg_nccl_id *id, int rank, void **comm, void *config),
       (parent, size, id, rank, comm, config))

/* The last chances to read what the device has done (device.c). */
#define LAST_LOOK(id)                                                                              \
    int hook_##id(void *comm)                                                                      \
    {                                                                                              \
        real_##id##_fn next = NEXT(id, __builtin_return_address(0));                               \
        if (next == NULL)                                                                          \
            return LG_NCCL_SYSTEM_ERROR;                                                           \
        int r = next(comm);                                                                        \
        if (lg_awake())                                                                            \
            lg_device_poll();                                                                      \
        return r;                                                                                  \
    }

LAST_LOOK(nccl_destroy)
LAST_LOOK(nccl_abort)
LAST_LOOK(nccl_finalize)
