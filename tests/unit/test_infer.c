/*
 * test_infer.c - the step rules for programs without PyTorch (preload/infer.c), on a clock of our
 * own: a program is written down as calls with durations, rows must come out to the nanosecond.
 * Context: unit test; the sources under test are included, what they need is faked here.
 */
#include <string.h>
#include <time.h>

#include "unit.h"

static uint64_t test_clock;

static int test_clock_gettime(clockid_t id, struct timespec *t)
{
    (void)id;
    *t = (struct timespec){.tv_sec = (time_t)(test_clock / 1000000000u),
                           .tv_nsec = (long)(test_clock % 1000000000u)};
    return 0;
}

#define clock_gettime test_clock_gettime
#include "preload/infer.c"
#include "preload/step.c"
#undef clock_gettime

/* ---- what infer.c and step.c need */

struct lg_page lg_page = {.role = LG_ROLE_NORMAL};
struct lg_process lg_process;
__thread struct lg_tls lg_tls;
static uint32_t seen_bits;

void lg_counts_now(struct lg_counts *out, bool usage)
{
    memset(out, 0, sizeof *out);
    out->h2d_copies = test_clock; /* never equal at two row ends: copies count as seen */
    out->usage = usage;
}

void lg_counts_usage(struct lg_counts *out)
{
    out->usage = true;
}

uint64_t lg_device_next_mark(void)
{
    return 0;
}

void lg_device_move(uint64_t first, unsigned from, unsigned to)
{
    (void)first;
    (void)from;
    (void)to;
}

void lg_device_move_all(uint64_t first, uint64_t last, unsigned to)
{
    (void)first;
    (void)last;
    (void)to;
}

void lg_device_step(uint64_t number, uint64_t needed)
{
    (void)number;
    (void)needed;
}

static unsigned device_now; /* part that the device's time goes to */

void lg_device_boundary(unsigned part, bool turn)
{
    device_now = part;
    (void)turn;
}

uint32_t lg_identity_seen(void)
{
    return seen_bits;
}

bool lg_identity_sync_known(void)
{
    return (seen_bits & LG_SEEN_NCCL) != 0;
}

/* no program here names its stages (tests/scenarios/cuda_programs has one) */
bool lg_ranges_rule(void)
{
    return false;
}

void lg_ranges_call_begin(enum lg_call call)
{
    (void)call;
}

void lg_ranges_call_end(void)
{
}

uint64_t lg_ranges_now(void)
{
    return 0;
}

void lg_ranges_wait_begin(void)
{
}

void lg_ranges_wait_end(void)
{
}

void lg_ranges_reset(void)
{
}

void lg_ranges_finish(void)
{
}

void lg_events_candidate(void)
{
    lg_tls.training = lg_process.training = 1;
}

void lg_sign_of_training(void)
{
}

bool lg_own_process(void)
{
    return true;
}

void lg_spool_status(uint64_t step, uint32_t stage, bool in_collective, uint64_t now,
                     uint64_t entries_dropped)
{
    (void)step;
    (void)stage;
    (void)in_collective;
    (void)now;
    (void)entries_dropped;
}

/* ---- the sink */

enum { ROWS = 64 };
static int64_t rows[ROWS][LG_COLUMNS], provisional[LG_COLUMNS];
static uint64_t row_count, provisional_step;

void lg_sink_row(const struct lg_row *row, uint64_t number)
{
    assert_int_equal(number, row_count);
    assert_true(row_count < ROWS);
    lg_row_columns(row, rows[row_count++]);
}

void lg_sink_provisional(const struct lg_row *row, uint64_t number)
{
    lg_row_columns(row, provisional);
    provisional_step = number;
}

static int64_t at(uint64_t row, enum lg_column column)
{
    return rows[row][column];
}
#define VALUE(row, column) at(row, LG_COL_##column)

/* ---- programs. Times in units of 1000 ns, so that SCALAR_BYTES and the like play no part. */

static void pass(uint64_t us)
{
    test_clock += us * 1000;
}

static void call(enum lg_call what, uint64_t bytes, uint64_t us)
{
    bool due = lg_infer_call_begin(what, bytes);
    pass(us);
    if (due)
        lg_infer_call_end();
}

static void copy(uint64_t us)
{
    call(LG_CALL_H2D, 0, us);
}

static void launch(uint64_t us)
{
    call(LG_CALL_LAUNCH, 0, us);
}

static void gradients(uint64_t us)
{
    call(LG_CALL_GRADIENT, 4096, us);
}

static void number(uint64_t us) /* a loss, a norm */
{
    call(LG_CALL_GRADIENT, 8, us);
}

static void share(uint64_t us)
{
    call(LG_CALL_SHARE, 65536, us);
}

static void wait_for(uint64_t us)
{
    if (lg_tls.training == 0) {
        pass(us);
        return;
    }
    lg_infer_wait_begin();
    pass(us);
    lg_infer_wait_end();
}

/* input 10, unpacking 1, copy 2, forward 5 + 5, backward 3 + 7 with sync 4 + 4, optimizer 6, then
 * the rest 8 */
static void step(void)
{
    wait_for(10);
    pass(1);
    copy(2);
    launch(5);
    launch(5);
    gradients(4);
    pass(1);
    launch(3);
    pass(1);
    gradients(4);
    launch(6);
    pass(8);
}

static int begin(void **state)
{
    (void)state;
    memset(rows, 0, sizeof rows);
    row_count = 0;
    test_clock = 1000000000;
    lg_tls = (struct lg_tls){0};
    lg_process = (struct lg_process){0};
    seen_bits = LG_SEEN_NCCL | LG_SEEN_CUDA;
    lg_infer_reset();
    share(50); /* the first collective: this thread trains */
    return 0;
}

static void check_sums(void)
{
    static const enum lg_column parts[] = {
#define PART(name) LG_COL_##name##_ns,
        LG_STAGES(PART) LG_COL_compute_ns};
#undef PART
    for (uint64_t i = 0; i < row_count; i++) {
        int64_t sum = 0;
        for (unsigned p = 0; p < sizeof parts / sizeof *parts; p++)
            sum += at(i, parts[p]) == LG_NULL ? 0 : at(i, parts[p]);
        assert_int_equal(sum, VALUE(i, dur_ns));
        if (i > 0)
            assert_int_equal(VALUE(i - 1, start_ns) + VALUE(i - 1, dur_ns), VALUE(i, start_ns));
    }
}

static void check_steady(uint64_t row)
{
    assert_int_equal(VALUE(row, dur_ns), 50000);
    assert_int_equal(VALUE(row, input_wait_ns), 11000);
    assert_int_equal(VALUE(row, h2d_ns), 2000);
    assert_int_equal(VALUE(row, forward_ns), 10000);
    assert_int_equal(VALUE(row, backward_ns), 13000);
    assert_int_equal(VALUE(row, backward_sync_ns), 8000);
    assert_int_equal(VALUE(row, optimizer_ns), 6000);
    assert_int_equal(VALUE(row, optimizer_after_ns), 6000);
    assert_int_equal(VALUE(row, other_ns), 8000);
    assert_int_equal(VALUE(row, other_after_ns), 8000);
    assert_int_equal(VALUE(row, compute_ns), LG_NULL);
    assert_int_equal(VALUE(row, n_backward), LG_NULL);
}

static void test_steady(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        step();
    assert_int_equal(row_count, 4);
    lg_infer_finish();
    assert_int_equal(row_count, 5);
    check_sums();
    for (uint64_t i = 1; i < 4; i++)
        check_steady(i);
    assert_int_equal(VALUE(0, flags), LG_FLAG_first);
}

/* What would be read if the process were killed now. */
static void test_provisional(void **state)
{
    (void)state;
    step();
    step();
    wait_for(10);
    copy(2);
    launch(5);
    assert_int_equal(provisional_step, 1);
    gradients(4); /* half of the gradients: not complete */
    assert_int_equal(provisional_step, 1);
    launch(5);
    gradients(4);
    assert_int_equal(provisional_step, 2);
    assert_int_equal(provisional[LG_COL_backward_ns], 13000);
    assert_int_equal(provisional[LG_COL_dur_ns], 30000);
    launch(1100); /* worth a refresh */
    assert_int_equal(provisional[LG_COL_optimizer_ns], 1100000);
}

static void test_single_collective(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        wait_for(10);
        copy(2);
        launch(20);
        gradients(5);
        launch(6);
    }
    lg_infer_finish();
    assert_int_equal(row_count, 4);
    check_sums();
    assert_int_equal(VALUE(2, forward_ns), LG_NULL);
    assert_int_equal(VALUE(2, backward_ns), LG_NULL);
    assert_int_equal(VALUE(2, compute_ns), 25000);
    assert_int_equal(VALUE(2, backward_sync_ns), 5000);
    assert_int_equal(VALUE(2, optimizer_ns), 6000);
}

/* A norm within the optimizer and a loss after it are no gradients. */
static void test_numbers(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        step();
        number(2);
        launch(3);
        pass(5);
        number(4);
    }
    lg_infer_finish();
    assert_int_equal(row_count, 4);
    check_sums();
    assert_int_equal(VALUE(2, backward_ns), 13000);
    assert_int_equal(VALUE(2, optimizer_ns), 6000 + 8000 + 2000 + 3000);
    assert_int_equal(VALUE(2, optimizer_sync_ns), 2000);
    assert_int_equal(VALUE(2, other_ns), 5000 + 4000);
    assert_int_equal(VALUE(2, other_sync_ns), 4000);
    assert_int_equal(VALUE(2, other_after_ns), 0);
}

static void micro_batch(void)
{
    wait_for(10);
    copy(2);
    launch(9);
}

static void evaluate(int batches)
{
    for (int i = 0; i < batches; i++)
        micro_batch();
    number(1);
}

static void test_micro_batches(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        micro_batch();
        step();
    }
    lg_infer_finish();
    assert_int_equal(row_count, 4);
    check_sums();
    assert_int_equal(VALUE(2, compute_ns), 9000 + 10000 + 13000);
    assert_int_equal(VALUE(2, input_wait_ns), 10000 + 11000);
    assert_int_equal(VALUE(2, h2d_ns), 4000);
    assert_int_equal(VALUE(2, flags), 0);
}

static void test_evaluation(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        step();
    evaluate(5);
    step();
    step();
    step(); /* the last row ends at its last event, without the rest */
    lg_infer_finish();
    assert_int_equal(row_count, 6);
    check_sums();
    check_steady(1);
    check_steady(4);
    assert_int_equal(VALUE(3, flags), LG_FLAG_has_eval);
    assert_int_equal(VALUE(3, input_wait_ns), 11000);
    assert_int_equal(VALUE(3, forward_ns), 10000);
    assert_int_equal(VALUE(3, other_ns), 5 * 21000 + 1000 + 8000);
}

/* More segments than are remembered, in a program that has micro-batches too. */
static void test_long_evaluation(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        micro_batch();
        step();
    }
    evaluate(500);
    micro_batch();
    step();
    lg_infer_finish();
    assert_int_equal(row_count, 4);
    check_sums();
    assert_int_equal(VALUE(3, flags), LG_FLAG_has_eval);
    assert_int_equal(VALUE(3, compute_ns), 9000 + 10000 + 13000);
    assert_int_equal(VALUE(3, input_wait_ns), 10000 + 11000);
}

/* A batch that is in memory already: the copy opens the row, input is not known. */
static void test_from_memory(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        copy(2);
        launch(10);
        gradients(3);
        launch(4);
        gradients(3);
        launch(5);
        pass(6);
    }
    lg_infer_finish();
    assert_int_equal(row_count, 5);
    check_sums();
    assert_int_equal(VALUE(3, dur_ns), 33000);
    assert_int_equal(VALUE(3, input_wait_ns), LG_NULL);
    assert_int_equal(VALUE(3, h2d_ns), 2000);
    assert_int_equal(VALUE(3, forward_ns), 10000);
    assert_int_equal(VALUE(3, optimizer_ns), 5000);
    assert_int_equal(VALUE(3, other_ns), 6000);
}

/* A copy at the end of a step, before the read of the next batch, opens nothing. */
static void test_copy_at_the_end(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        step();
        copy(1);
        pass(2);
    }
    lg_infer_finish();
    assert_int_equal(row_count, 4);
    check_sums();
    assert_int_equal(VALUE(2, dur_ns), 53000);
    assert_int_equal(VALUE(2, input_wait_ns), 11000);
    assert_int_equal(VALUE(2, h2d_ns), 2000);
    assert_int_equal(VALUE(2, backward_ns), 13000);
    assert_int_equal(VALUE(2, other_ns), 8000 + 3000);
}

/* Another rank reads; this one gets its batch by a collective. */
static void test_shared_input(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        share(12);
        launch(10);
        gradients(3);
        launch(4);
        gradients(3);
        launch(5);
        pass(6);
    }
    lg_infer_finish();
    assert_int_equal(row_count, 5);
    check_sums();
    assert_int_equal(VALUE(3, input_wait_ns), 12000);
    assert_int_equal(VALUE(3, input_wait_sync_ns), 12000);
    assert_int_equal(VALUE(3, other_ns), 6000);
}

/* A read in the middle of backward: input, but no boundary. */
static void test_read_in_backward(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        wait_for(10);
        copy(2);
        launch(10);
        gradients(3);
        wait_for(4);
        launch(5);
        gradients(3);
        launch(6);
    }
    lg_infer_finish();
    assert_int_equal(row_count, 4);
    check_sums();
    assert_int_equal(VALUE(2, input_wait_ns), 14000);
    assert_int_equal(VALUE(2, backward_ns), 11000);
    assert_int_equal(VALUE(2, optimizer_ns), 6000);
}

/* Reads of CUDA or NCCL themselves are no input. */
static void test_read_within_call(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        step();
        assert_true(lg_infer_call_begin(LG_CALL_OTHER, 0));
        wait_for(7);
        lg_infer_call_end();
    }
    lg_infer_finish();
    assert_int_equal(row_count, 4);
    check_sums();
    assert_int_equal(VALUE(2, input_wait_ns), 11000);
    assert_int_equal(VALUE(2, other_ns), 15000);
}

/* The device's time after the host has waited for the optimizer's launches is not the optimizer's.
 */
static void test_device_idles(void **state)
{
    (void)state;
    step();
    step();
    wait_for(10);
    copy(2);
    launch(5);
    gradients(4);
    call(LG_CALL_WAIT, 0, 3);
    assert_int_equal(device_now, LG_STAGE_backward);
    launch(6);
    assert_int_equal(device_now, LG_STAGE_optimizer);
    call(LG_CALL_WAIT, 0, 3);
    assert_int_equal(device_now, LG_STAGE_other);
    launch(6);
    assert_int_equal(device_now, LG_STAGE_optimizer);
}

/* A call that was left by a jump: the next one puts things right. */
static void test_jump(void **state)
{
    (void)state;
    step();
    step();
    wait_for(10);
    pass(1);
    copy(2);
    launch(5);
    launch(5);
    assert_true(lg_infer_call_begin(LG_CALL_GRADIENT, 4096)); /* and never comes back */
    pass(4);
    pass(1);
    launch(3);
    pass(1);
    gradients(4);
    launch(6);
    pass(8);
    step();
    step();
    lg_infer_finish();
    assert_int_equal(row_count, 5);
    check_sums();
    check_steady(3);
}

/* No communicator: an input after launches opens the next row; optimizer can't be told. */
static void test_alone(void **state)
{
    (void)state;
    begin(NULL);
    seen_bits = LG_SEEN_CUDA;
    lg_tls.training = lg_process.training = 0;
    lg_infer_reset();
    for (int i = 0; i < 5; i++) {
        wait_for(10);
        copy(2);
        launch(10);
        pass(6);
    }
    lg_infer_finish();
    assert_int_equal(row_count, 5);
    check_sums();
    assert_int_equal(VALUE(3, input_wait_ns), 10000);
    assert_int_equal(VALUE(3, compute_ns), 10000);
    assert_int_equal(VALUE(3, optimizer_ns), LG_NULL);
    assert_int_equal(VALUE(3, backward_sync_ns), LG_NULL);
    assert_int_equal(VALUE(3, other_ns), 6000);
}

/* Gradients come in other pieces, then the model shrinks: no row is lost. */
static void test_other_buckets(void **state)
{
    (void)state;
    for (int i = 0; i < 9; i++) {
        wait_for(10);
        copy(2);
        launch(10);
        for (int b = 0; b < (i < 3 ? 2 : 4); b++) {
            call(LG_CALL_GRADIENT, i < 3 ? 8192 : i < 6 ? 4096 : 2100, 1);
            launch(1);
        }
    }
    lg_infer_finish();
    assert_int_equal(row_count, 9);
    check_sums();
}

/* All of a sudden the gradients are a tenth, for good: a few steps are one row, then each has its
 * own. */
static void test_frozen_layers(void **state)
{
    (void)state;
    for (int i = 0; i < 23; i++) {
        wait_for(10);
        copy(2);
        launch(10);
        call(LG_CALL_GRADIENT, i < 3 ? 40960 : 4096, 1);
        launch(1);
    }
    lg_infer_finish();
    assert_int_equal(row_count, 23 - REFUSED);
    check_sums();
}

/* Where PyTorch's probes are, nothing is inferred. */
static void test_off_with_torch(void **state)
{
    (void)state;
    step();
    lg_process.torch = true;
    assert_false(lg_infer_call_begin(LG_CALL_LAUNCH, 0));
    lg_infer_finish();
    assert_int_equal(row_count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_steady, begin),
        cmocka_unit_test_setup(test_provisional, begin),
        cmocka_unit_test_setup(test_single_collective, begin),
        cmocka_unit_test_setup(test_numbers, begin),
        cmocka_unit_test_setup(test_micro_batches, begin),
        cmocka_unit_test_setup(test_evaluation, begin),
        cmocka_unit_test_setup(test_long_evaluation, begin),
        cmocka_unit_test_setup(test_from_memory, begin),
        cmocka_unit_test_setup(test_copy_at_the_end, begin),
        cmocka_unit_test_setup(test_shared_input, begin),
        cmocka_unit_test_setup(test_read_in_backward, begin),
        cmocka_unit_test_setup(test_read_within_call, begin),
        cmocka_unit_test_setup(test_device_idles, begin),
        cmocka_unit_test_setup(test_jump, begin),
        cmocka_unit_test_setup(test_alone, begin),
        cmocka_unit_test_setup(test_other_buckets, begin),
        cmocka_unit_test_setup(test_frozen_layers, begin),
        cmocka_unit_test_setup(test_off_with_torch, begin),
    };
    return unit_run(tests);
}
