/*
 * test_ranges.c - what the names of NVTX ranges say (preload/ranges.c). How ranges make rows is in
 * tests/scenarios/cuda_programs. Context: unit test.
 */
#include "unit.h"

#include "preload/ranges.c"

static void names(void **state)
{
    static const struct {
        const char *name;
        enum lg_range range;
    } known[] = {
        {"forward", LG_RANGE_FORWARD},
        {"Forward pass", LG_RANGE_FORWARD},
        {"fwd.layer3", LG_RANGE_FORWARD},
        {"BACKWARD", LG_RANGE_BACKWARD},
        {"bprop", LG_RANGE_BACKWARD},
        {"optimizer.step", LG_RANGE_OPTIMIZER},
        {"Optimizer", LG_RANGE_OPTIMIZER},
        {"opt step", LG_RANGE_OPTIMIZER},
        {"data loading", LG_RANGE_INPUT},
        {"DataLoader", LG_RANGE_INPUT},
        {"Load  batch", LG_RANGE_INPUT},
        {"h2d", LG_RANGE_H2D},
        {"Copy to device", LG_RANGE_H2D},
        {"step", LG_RANGE_STEP},
        {"Iteration 17", LG_RANGE_STEP},
        {"iter_3", LG_RANGE_STEP},
        {"train step: 4", LG_RANGE_STEP},
        {"validation 2", LG_RANGE_EVAL},
        {"step of the optimizer", LG_RANGE_NONE},
        {"forwarding", LG_RANGE_NONE},
        {"database", LG_RANGE_NONE},
        {"optional", LG_RANGE_NONE},
        {"", LG_RANGE_NONE},
        {"ncclAllReduce", LG_RANGE_NONE},
        {"_", LG_RANGE_NONE},
        {"load_", LG_RANGE_NONE},
    };
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (lg_range_of(known[i].name) != known[i].range)
            fail_msg("%s: %d", known[i].name, lg_range_of(known[i].name));
    assert_int_equal(lg_range_of(NULL), LG_RANGE_NONE);
}

/* ---- what ranges.c needs besides */

struct lg_page lg_page;
struct lg_process lg_process;
__thread struct lg_tls lg_tls;

bool lg_awake(void)
{
    return false;
}

bool lg_infer_hand_over(struct lg_step *step, uint64_t *number)
{
    (void)step, (void)number;
    return false;
}

void lg_step_charge(struct lg_step *s, uint64_t now, unsigned part)
{
    (void)s, (void)now, (void)part;
}

void lg_step_synced(struct lg_step *s)
{
    (void)s;
}

void lg_step_commit(struct lg_step *s, bool usage)
{
    (void)s, (void)usage;
}

void lg_step_close(struct lg_step *s, struct lg_row *out)
{
    (void)s, (void)out;
}

void lg_sink_row(const struct lg_row *row, uint64_t number)
{
    (void)row, (void)number;
}

void lg_sink_provisional(const struct lg_row *row, uint64_t number)
{
    (void)row, (void)number;
}

void lg_spool_status(uint64_t step, uint32_t stage, bool in_collective, uint64_t now,
                     uint64_t entries_dropped)
{
    (void)step, (void)stage, (void)in_collective, (void)now, (void)entries_dropped;
}

void lg_device_step(uint64_t number, uint64_t needed)
{
    (void)number, (void)needed;
}

void lg_device_boundary(unsigned part, bool turn)
{
    (void)part, (void)turn;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
