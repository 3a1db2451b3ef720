/*
 * test_device.c - the device's clock (preload/device*.c, streams.c) on a device of our own: one
 * whose time only passes when the test says so, and that complains of every call that could harm a
 * program. Context: unit test; the sources under test are included, what they need is faked here.
 */
#include <stdlib.h>
#include <string.h>

#include "unit.h"

#include "preload/device.c"
#include "preload/device_marks.c"
#include "preload/streams.c"

/* ---- what they need */

struct lg_page lg_page = {.role = LG_ROLE_NORMAL};
struct lg_process lg_process;
__thread struct lg_tls lg_tls;
struct lg_real real;

static const char *max_connections;
static uint32_t seen_bits;

bool lg_awake(void)
{
    return true;
}

bool lg_own_process(void)
{
    return true;
}

static void (*exit_handler)(int, void *);

void lg_at_exit(void (*handler)(int status, void *unused))
{
    exit_handler = handler;
}

uint32_t lg_identity_seen(void)
{
    return seen_bits;
}

const char *lg_environment(const char *name)
{
    (void)name;
    return NULL;
}

int64_t lg_environment_number(const char *name)
{
    assert_string_equal(name, "CUDA_DEVICE_MAX_CONNECTIONS");
    return max_connections != NULL ? atoi(max_connections) : -1;
}

lg_function lg_resolve_late(enum lg_hook hook)
{
    (void)hook;
    return NULL;
}

/* ---- the device */

enum { EVENTS = 8192, NOT_READY = 600, INVALID = 400 };

struct fake_event {
    uint64_t time;
    int device;
    bool recorded, captured;
};

static struct {
    uint64_t host, device; /* ns: now; end of what was issued to the compute stream */
    int current, last_error;
    bool capturing; /* a capture that our hooks did not see */
    bool stubborn;  /* no event is ready at its first query */
    unsigned calls, records, queries;
    size_t events;
    struct fake_event event[EVENTS];
    bool asked[EVENTS];
} fake;

static int fails(int error)
{
    if (error != 0)
        fake.last_error = error;
    return error;
}

static int peek_error(void)
{
    fake.calls++;
    return fake.last_error;
}

static int get_error(void)
{
    int error = fake.last_error;
    fake.calls++;
    fake.last_error = 0;
    return error;
}

static int get_device(int *device)
{
    fake.calls++;
    *device = fake.current;
    return 0;
}

static int is_capturing(void *stream, int *status)
{
    (void)stream;
    *status = fake.capturing;
    return 0;
}

static int event_create(void **event, unsigned flags)
{
    fake.calls++;
    assert_int_equal(flags, 0);
    assert_true(fake.events < EVENTS);
    fake.event[fake.events] = (struct fake_event){.device = fake.current};
    *event = &fake.event[fake.events++];
    return 0;
}

static int event_record(void *event, void *stream)
{
    struct fake_event *e = event;
    fake.calls++;
    fake.records++;
    assert_false(fake.capturing);
    if (stream == NULL && e->device != fake.current)
        return fails(INVALID);
    e->time = fake.device > fake.host ? fake.device : fake.host;
    e->recorded = true;
    fake.asked[e - fake.event] = false;
    return 0;
}

static int event_query(void *event)
{
    struct fake_event *e = event;
    fake.calls++;
    fake.queries++;
    assert_true(e->recorded);
    bool first = !fake.asked[e - fake.event];
    fake.asked[e - fake.event] = true;
    return fails(e->time > fake.host || (fake.stubborn && first) ? NOT_READY : 0);
}

static int event_elapsed(float *ms, void *from, void *to)
{
    struct fake_event *a = from, *b = to;
    fake.calls++;
    if (a->time > fake.host || b->time > fake.host)
        return fails(NOT_READY);
    *ms = (float)((double)(b->time - a->time) / 1e6);
    return 0;
}

static int capture_mode(int *mode)
{
    static int own = 0;
    int before = own;
    fake.calls++;
    own = *mode;
    *mode = before;
    return 0;
}

/* ---- programs */

static const void *const MAIN = NULL, *const NCCL = (const void *)0x1000,
                         *const SIDE = (const void *)0x2000;
static struct lg_slot slots[64];
static uint64_t row_first, number;

/* The compute stream works for so long; the host does not wait. */
static void work(uint64_t us)
{
    lg_device_work(MAIN, LG_WORK_LAUNCH, LG_CUDART_13);
    if (fake.device < fake.host)
        fake.device = fake.host;
    fake.device += us * 1000;
}

static void host_passes(uint64_t us)
{
    fake.host += us * 1000;
}

static void device_finishes(void)
{
    if (fake.host < fake.device)
        fake.host = fake.device;
}

/* A wait for a collective, as PyTorch makes it. */
static void exposed_wait(const void *event, uint64_t us)
{
    lg_device_collective_begin(NCCL);
    lg_device_recorded(event, NCCL);
    bool due = lg_device_wait_begin(MAIN, event);
    if (fake.device < fake.host)
        fake.device = fake.host;
    fake.device += us * 1000;
    if (due)
        lg_device_wait_end();
}

/* The open row ends and the next one begins. Returns whether its times are expected. */
static bool next_row(unsigned part)
{
    struct lg_slot *slot = &slots[number % 64];
    for (int i = 0; i < LG_COLUMNS; i++)
        slot->value[i] = LG_NULL;
    slot->value[LG_COL_sources] = 0;
    for (int i = 0; i < LG_STAGE_COUNT; i++)
        slot->value[LG_COL_input_wait_ns + i] = 1; /* known on the host */
    slot->state = LG_SLOT_HOST_DONE;
    uint64_t end = lg_device_next_mark();
    bool expected = lg_device_expect(slot, row_first, end);
    if (!expected)
        slot->state = LG_SLOT_COMPLETE;
    row_first = end;
    lg_device_step(++number, row_first);
    lg_device_boundary(part, true);
    return expected;
}

static int64_t gpu(uint64_t row, enum lg_column column)
{
    const struct lg_slot *slot = &slots[row % 64];
    assert_int_equal(slot->state, LG_SLOT_COMPLETE);
    return slot->value[column];
}
#define GPU_NS(row, name) gpu(row, LG_COL_gpu_##name##_ns)

/* One step: 10 us input, 100 us forward, backward of 200 us with a wait of 50 us in it. */
static void step(const void *event)
{
    lg_device_boundary(LG_PART_HOLD, false);
    work(100);
    lg_device_boundary(LG_STAGE_backward, false);
    lg_device_move(row_first, LG_PART_HOLD, LG_STAGE_forward);
    work(150);
    exposed_wait(event, 50);
    work(50);
    lg_device_boundary(LG_STAGE_optimizer, false);
    work(20);
}

static int setup(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    memset(&real, 0, sizeof real);
    memset(slots, 0, sizeof slots);
    lg_device_reset();
    row_first = number = 0;
    max_connections = NULL;
    seen_bits = LG_SEEN_CUDA | LG_SEEN_NCCL;
    real.cuda_peek_error[LG_CUDART_13] = peek_error;
    real.cuda_get_error[LG_CUDART_13] = get_error;
    real.cuda_get_device[LG_CUDART_13] = get_device;
    real.cuda_is_capturing[LG_CUDART_13] = is_capturing;
    real.cuda_event_create[LG_CUDART_13] = event_create;
    real.cuda_event_record[LG_CUDART_13] = event_record;
    real.cuda_event_query[LG_CUDART_13] = event_query;
    real.cuda_event_elapsed[LG_CUDART_13] = event_elapsed;
    real.cuda_capture_mode[LG_CUDART_13] = capture_mode;
    return 0;
}

/* The row before the clock runs. */
static void begin(void)
{
    work(10);
    assert_false(next_row(LG_STAGE_input_wait));
    assert_true(lg_device_is_on());
}

/* Lets the device finish, and looks. */
static void read_rows(void)
{
    device_finishes();
    lg_device_poll();
    lg_device_poll(); /* stubborn events are ready now */
}

static void assert_steps(uint64_t first, uint64_t last)
{
    for (uint64_t i = first; i <= last; i++) {
        assert_int_equal(GPU_NS(i, forward), 100000);
        assert_int_equal(GPU_NS(i, backward), 250000);
        assert_int_equal(GPU_NS(i, backward_sync), 50000);
        assert_int_equal(GPU_NS(i, backward_after), 50000);
        assert_int_equal(GPU_NS(i, optimizer), 20000);
        assert_int_equal(GPU_NS(i, optimizer_after), 20000);
    }
}

/* ---- tests */

static void test_steps(void **state)
{
    int event;
    (void)state;
    begin();
    for (int i = 0; i < 20; i++) {
        step(&event);
        assert_true(next_row(LG_STAGE_input_wait));
    }
    read_rows();
    assert_steps(1, 20);
    assert_int_equal(GPU_NS(5, dur), 370000);
    assert_int_equal(fake.last_error, 0);
}

static void test_stubborn_events(void **state)
{
    int event;
    (void)state;
    fake.stubborn = true;
    begin();
    for (int i = 0; i < 5; i++) {
        step(&event);
        next_row(LG_STAGE_input_wait);
        device_finishes();
        lg_device_poll();
        assert_int_equal(fake.last_error, 0);
    }
    read_rows();
    assert_steps(1, 5);
}

/* An error that is the program's is neither taken nor added to; what it touches is not measured. */
static void test_error_pending(void **state)
{
    int event;
    (void)state;
    begin();
    step(&event);
    next_row(LG_STAGE_input_wait);
    fake.last_error = 77;
    unsigned peeks = fake.calls;
    work(100);
    lg_device_boundary(LG_STAGE_backward, false);
    lg_device_poll();
    assert_true(fake.calls > peeks);
    assert_int_equal(fake.last_error, 77);
    fake.last_error = 0;
    lg_device_boundary(LG_STAGE_optimizer, false);
    next_row(LG_STAGE_input_wait);
    step(&event);
    next_row(LG_STAGE_input_wait);
    read_rows();
    assert_steps(1, 1);
    assert_true(GPU_NS(2, dur) == LG_NULL);
    assert_steps(3, 3);
}

/* The begin of a row is missing: its commit is not taken for it. */
static void test_lost_begin(void **state)
{
    int event;
    (void)state;
    begin();
    step(&event);
    fake.last_error = 77;
    next_row(LG_STAGE_input_wait);
    fake.last_error = 0;
    lg_device_boundary(LG_PART_TAIL, true);
    work(30);
    next_row(LG_STAGE_input_wait);
    step(&event);
    next_row(LG_STAGE_input_wait);
    read_rows();
    assert_true(GPU_NS(1, dur) == LG_NULL);
    assert_true(GPU_NS(2, dur) == LG_NULL);
    assert_steps(3, 3);
}

/* While anything captures nothing is called, not even to look for errors. */
static void test_capture(void **state)
{
    int event;
    (void)state;
    begin();
    step(&event);
    next_row(LG_STAGE_input_wait);
    lg_device_capture(1);
    unsigned before = fake.calls;
    step(&event);
    bool marked = lg_device_copy_begin(MAIN, LG_CUDART_13);
    if (marked)
        lg_device_copy_end();
    lg_device_poll();
    next_row(LG_STAGE_input_wait);
    assert_int_equal(lg_device_memory(&event, LG_CUDART_13), -1);
    assert_int_equal(fake.calls, before);
    lg_device_capture(-1);
    step(&event);
    next_row(LG_STAGE_input_wait);
    step(&event);
    next_row(LG_STAGE_input_wait);
    read_rows();
    assert_steps(1, 1);
    assert_true(GPU_NS(2, dur) == LG_NULL);
    assert_true(GPU_NS(3, dur) == LG_NULL); /* its begin is missing */
    assert_steps(4, 4);
    lg_device_capture(-1); /* an end too many */
    step(&event);
    assert_true(next_row(LG_STAGE_input_wait));
}

/* A capture that no hook saw: the stream says so. */
static void test_unseen_capture(void **state)
{
    int event;
    (void)state;
    begin();
    fake.capturing = true;
    unsigned records = fake.records;
    step(&event);
    fake.capturing = false;
    assert_int_equal(fake.records, records);
    next_row(LG_STAGE_input_wait);
    step(&event);
    next_row(LG_STAGE_input_wait);
    read_rows();
    assert_true(GPU_NS(1, dur) == LG_NULL);
    assert_steps(2, 2);
}

/* A graph that holds collectives waits unseen when it is replayed: that is not zero. */
static void test_collective_in_graph(void **state)
{
    int event;
    (void)state;
    begin();
    step(&event);
    next_row(LG_STAGE_input_wait);
    lg_device_capture(1);
    lg_device_collective_begin(SIDE);
    lg_device_capture(-1);
    next_row(LG_STAGE_input_wait);
    for (int i = 0; i < 2; i++) {
        step(&event);
        if (i == 1)
            lg_device_work(MAIN, LG_WORK_GRAPH, LG_CUDART_13);
        next_row(LG_STAGE_input_wait);
    }
    read_rows();
    assert_steps(3, 3);
    assert_int_equal(GPU_NS(4, backward), 250000);
    assert_true(GPU_NS(4, backward_sync) == LG_NULL);
}

/* Only what waits for a stream with collectives stands still, directly or by way of others. */
static void test_taint(void **state)
{
    int collective, own, passed_on;
    (void)state;
    begin();
    lg_device_collective_begin(NCCL);
    lg_device_recorded(&collective, NCCL);
    lg_device_recorded(&own, SIDE);
    assert_false(lg_device_wait_begin(MAIN, &own));
    assert_false(lg_device_wait_begin(NCCL, &own));
    assert_false(lg_device_wait_begin(SIDE, &collective)); /* not the compute stream */
    lg_device_recorded(&passed_on, SIDE);
    assert_true(lg_device_wait_begin(MAIN, &passed_on));
    lg_device_wait_end();
    lg_device_recorded(&collective, MAIN); /* used again for something else */
    assert_false(lg_device_wait_begin(SIDE, &collective));
    assert_false(lg_device_wait_begin(MAIN, &collective));
    /* on the compute stream itself the collective is the wait, and taints nothing */
    assert_true(lg_device_collective_begin(MAIN));
    lg_device_wait_end();
    lg_device_recorded(&own, MAIN);
    assert_false(lg_device_wait_begin(MAIN, &own));
    /* the two names of the null stream */
    assert_true(lg_device_wait_begin(LG_CUDA_STREAM_LEGACY, &passed_on));
    lg_device_wait_end();
    lg_device_stream_gone(SIDE);
    lg_device_recorded(&passed_on, SIDE);
    assert_false(lg_device_wait_begin(MAIN, &passed_on));
}

/* nccl2 makes new events in each step, at addresses of old ones: none is missed among thousands. */
static void test_many_events(void **state)
{
    static char event[3000];
    (void)state;
    begin();
    for (unsigned i = 0; i < 400; i++) {
        const char *e = &event[i * 37 % (sizeof event - 400)];
        lg_device_collective_begin(NCCL);
        for (unsigned n = 0; n < 300; n++)
            lg_device_recorded(&e[n], NCCL);
        for (unsigned n = 0; n < 300; n++) {
            assert_true(lg_device_wait_begin(SIDE, &e[n]) || lg_event_tainted(&e[n]));
            lg_device_recorded(&e[n], MAIN);
            assert_false(lg_event_tainted(&e[n]));
        }
        step(e);
        assert_true(next_row(LG_STAGE_input_wait));
        device_finishes();
    }
    read_rows();
    assert_steps(number - 60, number - 1);
}

/* More exposed waits than are measured: then two steps in sixteen, and the rows say so. */
static void test_sampling(void **state)
{
    int event;
    (void)state;
    begin();
    for (unsigned i = 0; i < 20; i++) {
        lg_device_boundary(LG_STAGE_backward, false);
        for (unsigned n = 0; n < 100; n++) {
            work(10);
            exposed_wait(&event, 5);
        }
        assert_true(next_row(LG_STAGE_input_wait));
        device_finishes();
    }
    read_rows();
    for (uint64_t i = 1; i <= 20; i++) {
        bool measured = i % 16 < 2;
        assert_int_equal(GPU_NS(i, backward), 1500000);
        assert_int_equal(GPU_NS(i, backward_sync), measured ? 500000 : LG_NULL);
        assert_int_equal(slots[i].value[LG_COL_sources] & LG_SOURCE_sampled,
                         measured ? 0 : LG_SOURCE_sampled);
    }
}

/* Copies: one by one, adjacent ones as one beyond eight, and never without end. */
static void test_copies(void **state)
{
    (void)state;
    begin();
    for (unsigned i = 0; i < 40; i++) {
        assert_true(lg_device_copy_begin(MAIN, LG_CUDART_13));
        fake.device = (fake.device > fake.host ? fake.device : fake.host) + 3000;
        lg_device_copy_end();
    }
    uint64_t marks = lg_device_next_mark() - row_first;
    assert_in_range(marks, 17, 20);
    for (unsigned i = 0; i < 200; i++) {
        work(1);
        if (lg_device_copy_begin(MAIN, LG_CUDART_13))
            lg_device_copy_end();
    }
    assert_in_range(lg_device_next_mark() - row_first, marks, 2 * RUNS + 4);
    assert_false(lg_device_copy_begin(SIDE, LG_CUDART_13));
    next_row(LG_STAGE_input_wait);
    read_rows();
    assert_int_equal(GPU_NS(1, h2d), 120000);
}

/* A row of more marks than there is room for is read on the way. */
static void test_long_row(void **state)
{
    int event;
    (void)state;
    begin();
    step(&event);
    next_row(LG_STAGE_input_wait);
    for (unsigned i = 0; i < 6000; i++) {
        lg_device_boundary(LG_PART_HOLD, false);
        work(7);
        lg_device_move(row_first, LG_PART_HOLD, LG_STAGE_other);
        lg_device_boundary(LG_STAGE_input_wait, false);
        host_passes(10);
    }
    step(&event);
    assert_true(next_row(LG_STAGE_input_wait));
    step(&event);
    assert_true(next_row(LG_STAGE_input_wait));
    read_rows();
    assert_steps(1, 3);
    assert_int_equal(GPU_NS(2, other), 6000 * 7000);
    assert_true(fake.events <= LG_MARKS);
}

/* A device that is far behind: the ring fills up, the row is lost, the next ones are not. */
static void test_full_ring(void **state)
{
    int event;
    (void)state;
    begin();
    for (unsigned i = 0; i < 6000; i++) {
        lg_device_boundary(LG_PART_HOLD, false);
        work(7);
        lg_device_boundary(LG_STAGE_input_wait, false);
    }
    assert_false(next_row(LG_STAGE_input_wait));
    device_finishes();
    step(&event);
    next_row(LG_STAGE_input_wait);
    step(&event);
    assert_true(next_row(LG_STAGE_input_wait));
    read_rows();
    assert_true(GPU_NS(1, dur) == LG_NULL);
    assert_steps(3, 3);
}

/* Another device is current: its null stream has the same name and is not ours. */
static void test_several_devices(void **state)
{
    int event;
    (void)state;
    begin();
    for (int i = 0; i < 3; i++) {
        lg_device_boundary(LG_PART_HOLD, false);
        work(100);
        lg_device_boundary(LG_STAGE_backward, false);
        lg_device_move(row_first, LG_PART_HOLD, LG_STAGE_forward);
        work(150);
        fake.current = 1;
        lg_device_collective_begin(NCCL);
        lg_device_recorded(&event, NCCL);
        assert_false(lg_device_wait_begin(MAIN, &event));
        assert_false(lg_device_copy_begin(MAIN, LG_CUDART_13));
        assert_false(lg_device_collective_begin(MAIN));
        fake.current = 0;
        exposed_wait(&event, 50);
        work(50);
        lg_device_boundary(LG_STAGE_optimizer, false);
        work(20);
        assert_true(next_row(LG_STAGE_input_wait));
    }
    read_rows();
    assert_steps(1, 3);
}

/* The training moves to another stream, which is then the compute stream; and that one ends. */
static void test_other_stream(void **state)
{
    static const void *const other = (const void *)0x3000;
    int event;
    (void)state;
    begin();
    step(&event);
    next_row(LG_STAGE_input_wait);
    for (int i = 0; i < 4; i++) {
        for (int n = 0; n < 6; n++)
            lg_device_work(other, LG_WORK_LAUNCH, LG_CUDART_13);
        bool expected = next_row(LG_STAGE_input_wait);
        assert_int_equal(expected, i >= 1);
    }
    read_rows();
    assert_steps(1, 1);
    assert_true(GPU_NS(2, dur) == LG_NULL); /* most of its work was elsewhere */
    assert_true(lg_device_is_compute(other));
    lg_device_stream_gone(other);
    assert_false(lg_device_is_on());
    unsigned records = fake.records;
    lg_device_boundary(LG_STAGE_backward, false);
    assert_int_equal(fake.records, records);
    work(5);
    next_row(LG_STAGE_input_wait);
    assert_true(lg_device_is_compute(MAIN));
}

/* Rows whose file is about to go are let go; the others stay. */
static void test_forget(void **state)
{
    int event;
    (void)state;
    begin();
    for (int i = 0; i < 3; i++) {
        step(&event);
        assert_true(next_row(LG_STAGE_input_wait));
    }
    lg_device_forget(&slots[1], &slots[3]);
    assert_int_equal(slots[1].state, LG_SLOT_COMPLETE);
    assert_int_equal(slots[2].state, LG_SLOT_COMPLETE);
    assert_int_equal(slots[3].state, LG_SLOT_HOST_DONE);
    read_rows();
    assert_true(GPU_NS(1, dur) == LG_NULL);
    assert_steps(3, 3);
}

/* At exit the rows that are done are read, and then nothing is called any more. */
static void test_exit(void **state)
{
    int event;
    (void)state;
    begin();
    step(&event);
    next_row(LG_STAGE_input_wait);
    device_finishes();
    assert_non_null(exit_handler);
    exit_handler(0, NULL);
    assert_steps(1, 1);
    unsigned calls = fake.calls;
    step(&event);
    lg_device_poll();
    assert_false(next_row(LG_STAGE_input_wait));
    assert_int_equal(fake.calls, calls);
}

/* Another thread is at it: the mark is missing, and the row says so. */
static void test_busy(void **state)
{
    int event;
    (void)state;
    begin();
    lg_clock.busy = 1;
    lg_device_boundary(LG_STAGE_backward, false);
    lg_clock.busy = 0;
    lg_device_boundary(LG_STAGE_optimizer, false);
    next_row(LG_STAGE_input_wait);
    step(&event);
    next_row(LG_STAGE_input_wait);
    read_rows();
    assert_true(GPU_NS(1, dur) == LG_NULL);
    assert_steps(2, 2);
}

static void test_not_wanted(void **state)
{
    (void)state;
    max_connections = "1";
    work(10);
    next_row(LG_STAGE_input_wait);
    assert_false(lg_device_is_on());
    assert_int_equal(fake.records, 0);
}

/* What the host's rules could not tell apart, the device's times do not either. */
static void test_unsplit(void **state)
{
    int event;
    (void)state;
    begin();
    step(&event);
    struct lg_slot *slot = &slots[number % 64];
    next_row(LG_STAGE_input_wait);
    slot->value[LG_COL_forward_ns] = slot->value[LG_COL_backward_ns] = LG_NULL;
    slot->value[LG_COL_compute_ns] = 1;
    read_rows();
    assert_true(GPU_NS(1, forward) == LG_NULL);
    assert_true(GPU_NS(1, backward) == LG_NULL);
    assert_int_equal(GPU_NS(1, backward_sync), 50000);
    assert_int_equal(GPU_NS(1, optimizer), 20000);
    assert_int_equal(GPU_NS(1, dur), 370000);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, setup)
    const struct CMUnitTest tests[] = {
        TEST(test_steps),
        TEST(test_stubborn_events),
        TEST(test_error_pending),
        TEST(test_capture),
        TEST(test_unseen_capture),
        TEST(test_collective_in_graph),
        TEST(test_taint),
        TEST(test_many_events),
        TEST(test_sampling),
        TEST(test_copies),
        TEST(test_long_row),
        TEST(test_full_ring),
        TEST(test_several_devices),
        TEST(test_other_stream),
        TEST(test_forget),
        TEST(test_exit),
        TEST(test_busy),
        TEST(test_not_wanted),
        TEST(test_unsplit),
        TEST(test_lost_begin),
    };
    return unit_run(tests);
}
