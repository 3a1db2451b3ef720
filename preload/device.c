/*
 * device.c - the device's clock, see device.h. Context: hooks on any thread.
 *
 * Marks come from the training thread and, while it waits inside backward, from its autograd
 * thread; one flag keeps two threads from marking at once (the loser marks nothing, and the row
 * says so). device_marks.c reads what this file has recorded.
 */
#include "preload/device.h"

#include <string.h>

#include "preload/device_marks.h"
#include "preload/environment.h"
#include "preload/identity.h"
#include "preload/step.h"
#include "preload/streams.h"

enum {
    PAIRS = 64,  /* exposed waits measured in a step before steps are sampled */
    SAMPLE = 16, /* then of so many steps the first two are measured: what lies between two
                  * collectives begins in one step and ends in the next */
    COPIES = 8,  /* copies measured one by one in a step; then adjacent ones as one */
    RUNS = 64    /* such runs in a step; more are left to the part that they happen in */
};

struct lg_clock lg_clock;

static struct {
    _Atomic uint32_t captures;
    bool sampling, sampled; /* some step had too many waits; this one's are not measured */
    uint8_t part;           /* of the time since the last mark, without waits */
    uint32_t pairs, copies, runs;
    bool after_copy;  /* the last mark is a copy's end, and no work was seen since */
    bool in_run;      /* a copy that goes on with the run before it */
    bool graph_waits; /* some graph holds a collective: nobody sees what its replays wait for */
    bool replayed;    /* a graph was launched in this step */
} d;

#define C lg_clock

static bool is_compute(const void *stream)
{
    return C.on && stream == C.compute;
}

bool lg_device_is_on(void)
{
    return C.on;
}

bool lg_device_is_compute(const void *stream)
{
    return is_compute(lg_stream_name(stream));
}

/* Carries what waits for other ranks. The compute stream itself never counts as one. */
static bool is_tainted(const void *stream)
{
    return !is_compute(stream) && lg_stream_tainted(stream);
}

void lg_device_work(const void *handle, enum lg_device_work work, enum lg_cudart cudart)
{
    const void *stream = lg_stream_name(handle);
    lg_stream_work(stream, work, cudart);
    if (is_compute(stream))
        d.after_copy = false;
    if (work == LG_WORK_GRAPH)
        d.replayed = true;
}

void lg_device_recorded(const void *event, const void *handle)
{
    lg_event_recorded(event, is_tainted(lg_stream_name(handle)));
}

/* ---- calls to the device, each of which leaves the program's last error as it was */

static bool may_call(enum lg_cudart v)
{
    return d.captures == 0 && REAL_OF(cuda_peek_error, v) != NULL && real.cuda_peek_error[v]() == 0;
}

bool lg_clock_may_call(void)
{
    return may_call(C.cudart);
}

static bool check(int error)
{
    if (error != LG_CUDA_SUCCESS)
        real.cuda_get_error[C.cudart]();
    return error == LG_CUDA_SUCCESS;
}

/* The null stream, and the calling thread's own, are streams of whatever device is current. */
static bool compute_has_own_device(void)
{
    return C.compute != NULL && C.compute != LG_CUDA_STREAM_PER_THREAD;
}

static bool on_device(void)
{
    int device = -1;
    return check(real.cuda_get_device[C.cudart](&device)) && device == C.device;
}

static bool compute_captures(void)
{
    int status = LG_CUDA_CAPTURE_NONE;
    return !check(real.cuda_is_capturing[C.cudart]((void *)(uintptr_t)C.compute, &status)) ||
           status != LG_CUDA_CAPTURE_NONE;
}

static bool record(struct lg_mark *m)
{
    bool here = compute_has_own_device() && m->event != NULL;
    if (!lg_clock_may_call() || (!here && !on_device()) || compute_captures())
        return false;
    if (m->event == NULL &&
        !check(real.cuda_event_create[C.cudart](&m->event, LG_CUDA_EVENT_TIMED))) {
        m->event = NULL;
        return false;
    }
    return check(real.cuda_event_record[C.cudart](m->event, (void *)(uintptr_t)C.compute));
}

/* cudaEventQuery is unsafe while another thread captures globally, unless this thread is relaxed.
 */
bool lg_clock_reached(const struct lg_mark *m)
{
    int mode = LG_CUDA_CAPTURE_RELAXED;
    if (!check(real.cuda_capture_mode[C.cudart](&mode)))
        return false;
    bool reached = check(real.cuda_event_query[C.cudart](m->event));
    check(real.cuda_capture_mode[C.cudart](&mode));
    return reached;
}

bool lg_clock_between(const struct lg_mark *from, const struct lg_mark *to, uint64_t *ns)
{
    float ms = 0;
    bool measured = check(real.cuda_event_elapsed[C.cudart](&ms, from->event, to->event));
    *ns = measured && ms > 0 ? (uint64_t)((double)ms * 1e6 + 0.5) : 0;
    return measured;
}

int lg_device_memory(const void *address, enum lg_cudart v)
{
    struct lg_pointer_attributes a = {.type = -1};
    if (!may_call(v) || REAL_OF(cuda_pointer, v) == NULL || REAL_OF(cuda_get_error, v) == NULL)
        return -1;
    if (real.cuda_pointer[v](&a, address) == LG_CUDA_SUCCESS)
        return a.type;
    real.cuda_get_error[v]();
    return -1;
}

/* ---- marks */

static bool add_mark(unsigned part, bool sync, bool turn)
{
    if (!lg_clock_take()) {
        C.broken = true;
        C.lost_turn |= turn;
        return false;
    }
    lg_clock_make_room();
    struct lg_mark *m = &C.mark[C.head % LG_MARKS];
    bool done = C.head - C.tail < LG_MARKS && record(m);
    if (done) {
        lg_clock_set_part(C.head, part);
        m->sync = sync;
        m->gap = C.broken;
        m->turn = turn;
        m->lost_turn = C.lost_turn;
        C.head++;
    }
    C.broken = !done;
    C.lost_turn = !done && (C.lost_turn || turn);
    lg_clock_release();
    return done;
}

/* The last mark happens now, not when it did. */
static void postpone_mark(void)
{
    if (C.head == C.tail || !lg_clock_take()) {
        C.broken = true;
        return;
    }
    C.broken |= !record(&C.mark[(C.head - 1) % LG_MARKS]);
    lg_clock_release();
}

void lg_device_boundary(unsigned part, bool turn)
{
    d.part = (uint8_t)part;
    if (!C.on)
        return;
    LG_KEEP_ERRNO;
    d.after_copy = false;
    add_mark(part, false, turn);
}

uint64_t lg_device_next_mark(void)
{
    return C.head;
}

void lg_device_move(uint64_t first, unsigned from, unsigned to)
{
    lg_clock_move(first, from, to);
    if (d.part == from)
        d.part = (uint8_t)to;
}

void lg_device_move_all(uint64_t first, uint64_t last, unsigned to)
{
    lg_clock_move_all(first, last, to);
}

/* ---- copies */

/* Whether a call about the compute stream's name is about the compute stream: not if another device
 * is current. */
static bool is_here(const void *stream)
{
    if (!is_compute(stream))
        return false;
    return compute_has_own_device() || !lg_clock_may_call() || on_device();
}

bool lg_device_copy_begin(const void *handle, enum lg_cudart cudart)
{
    LG_KEEP_ERRNO;
    const void *stream = lg_stream_name(handle);
    lg_stream_work(stream, LG_WORK_COPY, cudart);
    if (!is_here(stream))
        return false;
    d.in_run = ++d.copies > COPIES && d.after_copy;
    if (d.in_run)
        return true;
    if (++d.runs > RUNS)
        return false;
    add_mark(LG_STAGE_h2d, false, false);
    return true;
}

void lg_device_copy_end(void)
{
    LG_KEEP_ERRNO;
    if (d.in_run)
        postpone_mark();
    else
        d.after_copy = add_mark(d.part, false, false);
}

/* ---- exposed waits */

/* RATIONALE: waits that follow each other without work between could share a pair of marks. But
 * work can't be ruled out: kernels of cuBLAS and cuDNN are launched past every hook. */
static bool wait_begin(void)
{
    if (d.sampled)
        return false;
    /* this step is measured whole; from the next one on steps are sampled */
    d.sampling |= ++d.pairs > PAIRS;
    d.after_copy = false;
    add_mark(d.part, true, false);
    return true;
}

bool lg_device_wait_begin(const void *handle, const void *event)
{
    const void *stream = lg_stream_name(handle);
    if (!C.on || !lg_event_tainted(event))
        return false;
    LG_KEEP_ERRNO;
    if (is_here(stream))
        return wait_begin();
    if (!is_compute(stream))
        lg_stream_taint(stream, true);
    return false;
}

void lg_device_wait_end(void)
{
    LG_KEEP_ERRNO;
    add_mark(d.part, false, false);
}

bool lg_device_collective_begin(const void *handle)
{
    LG_KEEP_ERRNO;
    const void *stream = lg_stream_name(handle);
    d.graph_waits |= d.captures != 0;
    if (is_here(stream))
        return wait_begin();
    if (!is_compute(stream))
        lg_stream_taint(stream, true);
    return false;
}

void lg_device_capture(int change)
{
    if (change > 0 || d.captures > 0) /* an end whose begin was not seen changes nothing */
        d.captures += (uint32_t)change;
    C.broken = true;
}

/* ---- rows */

static bool shown(const int64_t *value, enum lg_column host)
{
    return value[host] != LG_NULL;
}

static void write_sync(int64_t *value, const struct lg_sums *sums)
{
    const struct lg_part *part = sums->part;
#define GPU(name)                                                                                  \
    if (shown(value, LG_COL_##name##_ns))                                                          \
        value[LG_COL_gpu_##name##_sync_ns] = (int64_t)part[LG_STAGE_##name].sync;
    LG_STAGES(GPU)
#undef GPU
    if (!shown(value, LG_COL_forward_ns) && shown(value, LG_COL_compute_ns))
        value[LG_COL_gpu_backward_sync_ns] =
            (int64_t)(part[LG_STAGE_forward].sync + part[LG_STAGE_backward].sync);
    if (sums->synced) {
        value[LG_COL_gpu_backward_after_ns] = (int64_t)part[LG_STAGE_backward].after;
        value[LG_COL_gpu_optimizer_after_ns] = (int64_t)part[LG_STAGE_optimizer].after;
        value[LG_COL_gpu_other_after_ns] = (int64_t)part[LG_STAGE_other].after;
    }
}

/* What is not known on the host's clock is not known on the device's. */
void lg_clock_columns(int64_t *value, const struct lg_sums *sums, bool sync_known)
{
    int64_t sum = 0;
#define GPU(name)                                                                                  \
    if (shown(value, LG_COL_##name##_ns))                                                          \
        value[LG_COL_gpu_##name##_ns] = (int64_t)sums->part[LG_STAGE_##name].time;                 \
    sum += (int64_t)sums->part[LG_STAGE_##name].time;
    LG_STAGES(GPU)
#undef GPU
    value[LG_COL_gpu_dur_ns] = sum;
    if (sync_known)
        write_sync(value, sums);
}

bool lg_device_expect(struct lg_slot *slot, uint64_t first, uint64_t last)
{
    bool sync_known =
        (lg_identity_seen() & LG_SEEN_NCCL) != 0 && !d.sampled && !(d.graph_waits && d.replayed);
    if (!C.on || lg_stream_deserted(C.compute))
        return false;
    if (d.sampled)
        slot->value[LG_COL_sources] |= LG_SOURCE_sampled;
    return lg_clock_expect(&(struct lg_expected){slot, first, last, sync_known});
}

void lg_device_forget(const void *begin, const void *end)
{
    lg_clock_forget(begin, end);
}

void lg_device_poll(void)
{
    if (LG_LIKELY(!lg_clock_waits()) || !lg_clock_take())
        return;
    LG_KEEP_ERRNO;
    lg_clock_read();
    lg_clock_release();
}

/* ---- life */

static void stop(void)
{
    C.on = false;
    C.off = true;
}

/* Registered after the CUDA runtime's own handler, so called before it: the last rows' times. */
static void at_exit(int status, void *unused)
{
    (void)status, (void)unused;
    if (!lg_awake() || !lg_own_process())
        return;
    lg_device_poll();
    stop();
}

void lg_device_gone(void)
{
    lg_device_poll();
    stop();
}

void lg_device_stream_gone(const void *handle)
{
    const void *stream = lg_stream_name(handle);
    lg_stream_forget(stream);
    if (!is_compute(stream))
        return;
    lg_device_poll();
    C.on = false; /* until another one is found */
    C.broken = true;
}

static bool has_calls(enum lg_cudart v)
{
    return REAL_OF(cuda_peek_error, v) != NULL && REAL_OF(cuda_get_error, v) != NULL &&
           REAL_OF(cuda_get_device, v) != NULL && REAL_OF(cuda_is_capturing, v) != NULL &&
           REAL_OF(cuda_event_create, v) != NULL && REAL_OF(cuda_event_query, v) != NULL &&
           REAL_OF(cuda_event_elapsed, v) != NULL && REAL_OF(cuda_event_record, v) != NULL &&
           REAL_OF(cuda_capture_mode, v) != NULL;
}

static bool wanted(void)
{
    const char *choice = lg_environment("LAGGARD_DEVICE_CLOCK");
    /* with one hardware queue our events would change the order of launches */
    return (choice == NULL || choice[0] != '0') &&
           lg_environment_number("CUDA_DEVICE_MAX_CONNECTIONS") != 1;
}

/* The first time: everything is there, or the clock is off for good. */
static bool start(enum lg_cudart cudart)
{
    static const enum lg_cudart others[] = {LG_CUDART_13, LG_CUDART_12, LG_CUDART_11};
    C.cudart = cudart;
    for (unsigned i = 0; !has_calls(C.cudart) && i < LG_CUDART_COUNT; i++)
        C.cudart = others[i]; /* launched by the driver's interface */
    if (!wanted() || !has_calls(C.cudart)) {
        stop();
        return false;
    }
    /* its events are of this device, and this runtime's */
    if (!lg_clock_may_call() || !check(real.cuda_get_device[C.cudart](&C.device)))
        return false;
    lg_at_exit(at_exit);
    C.started = true;
    return true;
}

static void choose_compute(void)
{
    const void *busiest;
    enum lg_cudart cudart;
    if (!lg_stream_busiest(C.on ? &C.compute : NULL, &busiest, &cudart) ||
        (C.on && busiest == C.compute) || (!C.started && !start(cudart)))
        return;
    /* collectives may have gone to it before it was known */
    lg_stream_taint(busiest, false);
    C.compute = busiest;
    C.broken = true;
    C.on = true;
}

void lg_device_step(uint64_t number, uint64_t needed)
{
    if (C.off || (lg_identity_seen() & LG_SEEN_CUDA) == 0)
        return;
    LG_KEEP_ERRNO;
    choose_compute();
    d.pairs = d.copies = d.runs = 0;
    d.after_copy = d.replayed = false;
    d.sampled = d.sampling && number % SAMPLE >= 2;
    lg_device_poll();
    lg_clock_drop(needed);
}

void lg_device_reset(void)
{
    memset(&d, 0, sizeof d);
    memset(&C, 0, sizeof C);
    lg_streams_reset();
}
