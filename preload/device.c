/*
 * device.c - the device's clock, see device.h. Context: hooks on any thread.
 *
 * Marks come from the training thread and, while it waits inside backward, from its autograd
 * thread; one flag keeps two threads from marking at once (the loser marks nothing, and the row
 * says so).
 */
#include "preload/device.h"

#include <string.h>

#include "preload/boot.h"
#include "preload/environment.h"
#include "preload/hooks.h"
#include "preload/identity.h"
#include "preload/step.h"

enum {
    MARKS = 4096,   /* marks whose rows are not read yet */
    EXPECTED = 256, /* rows whose marks are not read yet */
    PAIRS = 64,     /* exposed waits measured in a step before steps are sampled */
    SAMPLE = 8,     /* then one step in so many is measured */
    COPIES = 8      /* copies measured one by one in a step; then runs of them as one */
};

struct mark {
    void *event;
    uint8_t part;
    bool sync; /* from here to the next mark the stream stands still for others */
    bool gap;  /* the time before this mark is not known */
    bool turn; /* a row begins or was committed here */
};

struct expected {
    struct lg_slot *slot;
    uint64_t first, last;
};

static struct {
    _Atomic uint32_t busy, captures;
    bool on, off; /* measuring; given up for good */
    bool broken;  /* a mark was dropped: the next one has `gap` */
    bool worked;  /* work went to the compute stream since the last exposed wait */
    bool sampled; /* waits of this step are not measured */
    bool sampling;
    uint8_t part; /* of the time since the last mark, without waits */
    int device;
    const void *compute;
    uint32_t pairs, copies; /* exposed waits and copies of this step */
    bool after_copy;        /* the last mark is a copy's end, and no work was seen since */
    uint64_t head, tail;
    struct mark mark[MARKS];
    uint32_t expected_head, expected_tail;
    struct expected expected[EXPECTED];
} d;

/* ---- streams and events */

enum { STREAMS = 32, EVENTS = 4096 };

static struct stream {
    const void *_Atomic handle;
    _Atomic bool used, tainted;
    _Atomic uint64_t work;
} streams[STREAMS];

/* Last known kind of stream of an event; direct-mapped, a collision forgets the older event. */
static struct event {
    const void *_Atomic handle;
    _Atomic bool tainted;
} events[EVENTS];

static struct stream *stream_of(const void *handle)
{
    for (unsigned i = 0; i < STREAMS; i++) {
        bool unused = false;
        if (streams[i].used && streams[i].handle == handle)
            return &streams[i];
        if (!streams[i].used && atomic_compare_exchange_strong(&streams[i].used, &unused, true)) {
            streams[i].handle = handle;
            return &streams[i];
        }
    }
    return NULL;
}

static struct event *event_of(const void *handle)
{
    uint64_t h = (uint64_t)(uintptr_t)handle * 0x9e3779b97f4a7c15u;
    return &events[h >> 52];
}

static bool is_compute(const void *stream)
{
    return d.on && stream == d.compute;
}

bool lg_device_is_compute(const void *stream)
{
    return is_compute(stream);
}

/* Carries NCCL's work, or waited for a stream that does. The compute stream never counts as one. */
static bool is_tainted(const void *stream)
{
    struct stream *s = is_compute(stream) ? NULL : stream_of(stream);
    return s != NULL && s->tainted;
}

void lg_device_work(const void *stream)
{
    struct stream *s = stream_of(stream);
    if (s != NULL)
        atomic_store_explicit(&s->work, s->work + 1, memory_order_relaxed);
    if (is_compute(stream)) {
        d.worked = true;
        d.after_copy = false;
    }
}

void lg_device_recorded(const void *event, const void *stream)
{
    struct event *e = event_of(event);
    e->handle = event;
    e->tainted = is_tainted(stream);
}

/* ---- calls to the device, each of which leaves the program's last error as it was */

/* Calls may be made: nobody captures, the program has no error pending, the device is the pool's.
 */
static bool may_call(void)
{
    int device = -1;
    if (d.captures != 0 || REAL(cuda_peek_error) == NULL || real.cuda_peek_error() != 0)
        return false;
    if (real.cuda_get_device(&device) != 0) {
        real.cuda_get_error();
        return false;
    }
    return device == d.device;
}

static bool check(int error)
{
    if (error != 0)
        real.cuda_get_error();
    return error == 0;
}

static bool stream_captures(const void *stream)
{
    int status = 0;
    return !check(real.cuda_is_capturing((void *)(uintptr_t)stream, &status)) || status != 0;
}

static bool resolve_calls(void)
{
    return REAL(cuda_peek_error) != NULL && REAL(cuda_get_error) != NULL &&
           REAL(cuda_get_device) != NULL && REAL(cuda_is_capturing) != NULL &&
           REAL(cuda_event_create) != NULL && REAL(cuda_event_query) != NULL &&
           REAL(cuda_event_elapsed) != NULL && REAL(cuda_event_record) != NULL &&
           REAL(cuda_capture_mode) != NULL;
}

/* cudaEventQuery is unsafe while another thread captures globally, unless this thread is relaxed.
 */
static int query(void *event)
{
    int mode = LG_CUDA_CAPTURE_RELAXED;
    if (!check(real.cuda_capture_mode(&mode)))
        return -1;
    int answer = real.cuda_event_query(event);
    check(answer);
    check(real.cuda_capture_mode(&mode));
    return answer;
}

/* ---- marks */

static bool take(void)
{
    return atomic_exchange(&d.busy, 1) == 0;
}

static void release(void)
{
    d.busy = 0;
}

static bool record(struct mark *m)
{
    if (!may_call() || stream_captures(d.compute))
        return false;
    if (m->event == NULL && !check(real.cuda_event_create(&m->event, 0))) {
        m->event = NULL;
        return false;
    }
    return check(real.cuda_event_record(m->event, (void *)(uintptr_t)d.compute));
}

static bool add_mark(unsigned part, bool sync, bool turn)
{
    struct mark *m = &d.mark[d.head % MARKS];
    if (!take()) {
        d.broken = true;
        return false;
    }
    bool done = d.head - d.tail < MARKS && record(m);
    if (done) {
        m->part = (uint8_t)part;
        m->sync = sync;
        m->gap = d.broken;
        m->turn = turn;
        d.head++;
    }
    d.broken = !done;
    release();
    return done;
}

void lg_device_boundary(unsigned part, bool turn)
{
    if (!d.on) {
        d.part = (uint8_t)part;
        return;
    }
    LG_KEEP_ERRNO;
    d.part = (uint8_t)part;
    d.worked = true;
    d.after_copy = false;
    add_mark(part, false, turn);
}

bool lg_device_copy_begin(const void *stream)
{
    if (!is_compute(stream))
        return false;
    LG_KEEP_ERRNO;
    d.worked = true;
    if (++d.copies > COPIES && d.after_copy && d.head > d.tail)
        d.mark[(d.head - 1) % MARKS].part = LG_STAGE_h2d; /* its run goes on */
    else
        add_mark(LG_STAGE_h2d, false, false);
    return true;
}

void lg_device_copy_end(void)
{
    LG_KEEP_ERRNO;
    d.after_copy = add_mark(d.part, false, false);
}

uint64_t lg_device_next_mark(void)
{
    return d.head;
}

void lg_device_move(uint64_t first, unsigned from, unsigned to)
{
    for (uint64_t i = first > d.tail ? first : d.tail; i < d.head; i++)
        if (d.mark[i % MARKS].part == from)
            d.mark[i % MARKS].part = (uint8_t)to;
    if (d.part == from)
        d.part = (uint8_t)to;
}

/* ---- exposed waits */

static bool measure_wait(void)
{
    if (d.sampled)
        return false;
    /* this step is measured whole; from the next one on steps are sampled */
    d.sampling |= ++d.pairs > PAIRS;
    return true;
}

bool lg_device_wait_begin(const void *stream, const void *event)
{
    struct event *e = event_of(event);
    bool exposed = e->handle == event && e->tainted;
    if (exposed && d.on && !is_compute(stream)) {
        struct stream *s = stream_of(stream);
        if (s != NULL)
            s->tainted = true;
        return false;
    }
    if (!exposed || !d.on || !measure_wait())
        return false;
    LG_KEEP_ERRNO;
    d.after_copy = false;
    if (d.worked)
        add_mark(d.part, true, false);
    return true;
}

/* Waits without work between them share one pair: the later end takes the place of the earlier one.
 */
void lg_device_wait_end(void)
{
    LG_KEEP_ERRNO;
    if (!d.worked && d.head > d.tail && take()) {
        d.broken |= !record(&d.mark[(d.head - 1) % MARKS]);
        release();
        return;
    }
    d.worked = !add_mark(d.part, false, false);
}

bool lg_device_collective_begin(const void *stream)
{
    struct stream *s = stream_of(stream);
    if (!is_compute(stream)) {
        if (s != NULL)
            s->tainted = true;
        return false;
    }
    if (!measure_wait())
        return false;
    LG_KEEP_ERRNO;
    d.worked = true;
    d.after_copy = false;
    add_mark(d.part, true, false);
    return true;
}

void lg_device_capture(int change)
{
    if (change > 0 || d.captures > 0) /* an end whose begin was not seen changes nothing */
        d.captures += (uint32_t)change;
    d.broken = true;
}

/* ---- reading */

static bool read_row(const struct expected *x, struct lg_part part[LG_STAGE_COUNT], bool *synced)
{
    *synced = false;
    if (!d.mark[x->first % MARKS].turn) /* the mark at its begin is missing */
        return false;
    for (uint64_t i = x->first; i < x->last; i++) {
        const struct mark *m = &d.mark[i % MARKS], *next = &d.mark[(i + 1) % MARKS];
        float ms = 0;
        if (next->gap || !check(real.cuda_event_elapsed(&ms, m->event, next->event)))
            return false;
        uint64_t ns = ms > 0 ? (uint64_t)((double)ms * 1e6 + 0.5) : 0;
        struct lg_part *p = &part[m->part < LG_STAGE_COUNT ? m->part : LG_STAGE_other];
        p->time += ns;
        if (m->sync) {
            p->sync += ns;
            *synced = true;
            for (unsigned k = 0; k < LG_STAGE_COUNT; k++)
                part[k].after = 0;
        } else {
            p->after += ns;
        }
    }
    return true;
}

static void write_columns(int64_t *value, const struct lg_part *part, bool synced)
{
    bool sync_known = (lg_identity_seen() & LG_SEEN_NCCL) != 0;
    int64_t sum = 0;
#define GPU(name)                                                                                  \
    value[LG_COL_gpu_##name##_ns] = (int64_t)part[LG_STAGE_##name].time;                           \
    if (sync_known)                                                                                \
        value[LG_COL_gpu_##name##_sync_ns] = (int64_t)part[LG_STAGE_##name].sync;                  \
    sum += (int64_t)part[LG_STAGE_##name].time;
    LG_STAGES(GPU)
#undef GPU
    value[LG_COL_gpu_dur_ns] = sum;
    if (synced) {
        value[LG_COL_gpu_backward_after_ns] = (int64_t)part[LG_STAGE_backward].after;
        value[LG_COL_gpu_optimizer_after_ns] = (int64_t)part[LG_STAGE_optimizer].after;
        value[LG_COL_gpu_other_after_ns] = (int64_t)part[LG_STAGE_other].after;
    }
    /* as on the host: a step without a copy has no H2D stage */
    if (value[LG_COL_h2d_ns] == LG_NULL)
        value[LG_COL_gpu_h2d_ns] = value[LG_COL_gpu_h2d_sync_ns] = LG_NULL;
}

static void complete(const struct expected *x, bool measured)
{
    struct lg_part part[LG_STAGE_COUNT];
    bool synced;
    memset(part, 0, sizeof part);
    if (measured && read_row(x, part, &synced))
        write_columns(x->slot->value, part, synced);
    atomic_store_explicit(&x->slot->state, LG_SLOT_COMPLETE, memory_order_release);
}

bool lg_device_expect(struct lg_slot *slot, uint64_t first, uint64_t last)
{
    if (!d.on || last <= first || first < d.tail || d.expected_head - d.expected_tail == EXPECTED ||
        d.sampled)
        return false;
    d.expected[d.expected_head++ % EXPECTED] = (struct expected){slot, first, last};
    return true;
}

void lg_device_forget(void)
{
    while (d.expected_tail != d.expected_head)
        complete(&d.expected[d.expected_tail++ % EXPECTED], false);
}

void lg_device_poll(void)
{
    if (LG_LIKELY(d.expected_tail == d.expected_head) || !take())
        return;
    LG_KEEP_ERRNO;
    while (d.expected_tail != d.expected_head) {
        const struct expected *x = &d.expected[d.expected_tail % EXPECTED];
        if (x->last >= d.head || !may_call() || query(d.mark[x->last % MARKS].event) != 0)
            break;
        complete(x, true);
        d.expected_tail++;
    }
    release();
}

/* ---- life */

/* Registered after the CUDA runtime's own handler, so called before it: the last rows' times. */
static void at_exit(int status, void *unused)
{
    (void)status, (void)unused;
    if (lg_awake() && lg_own_process())
        lg_device_poll();
}

static void choose_compute(void)
{
    struct stream *most = NULL;
    for (unsigned i = 0; i < STREAMS && streams[i].used; i++)
        if (most == NULL || streams[i].work > most->work)
            most = &streams[i];
    if (most == NULL || most->work == 0 || (d.on && most->handle == d.compute))
        return;
    if (d.on && most->work < 2 * stream_of(d.compute)->work)
        return; /* not clearly another one */
    /* synchronous collectives may have gone to it before it was known */
    most->tainted = false;
    if (!d.on)
        lg_at_exit(at_exit);
    d.compute = most->handle;
    d.broken = true;
    d.on = true;
}

static bool wanted(void)
{
    const char *choice = lg_environment("LAGGARD_DEVICE_CLOCK");
    /* with one hardware queue our events would change the order of launches */
    return (choice == NULL || choice[0] != '0') &&
           lg_environment_number("CUDA_DEVICE_MAX_CONNECTIONS") != 1;
}

void lg_device_step(uint64_t number, uint64_t needed)
{
    if (d.off || (lg_identity_seen() & LG_SEEN_CUDA) == 0)
        return;
    LG_KEEP_ERRNO;
    if (!d.on && (!wanted() || !resolve_calls() || real.cuda_get_device(&d.device) != 0)) {
        d.off = true;
        return;
    }
    choose_compute();
    d.pairs = d.copies = 0;
    d.sampled = d.sampling && number % SAMPLE != 0;
    lg_device_poll();
    if (d.expected_tail != d.expected_head)
        needed = d.expected[d.expected_tail % EXPECTED].first;
    d.tail = needed;
}

void lg_device_reset(void)
{
    memset(&d, 0, sizeof d);
    memset(streams, 0, sizeof streams);
    memset(events, 0, sizeof events);
}
