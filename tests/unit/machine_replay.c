/*
 * machine_replay.c - feeds an event list from standard input to the step machine and prints its
 * rows, for the comparison with the reference (tests/scenarios/machine_reference). One event a
 * line: time, kind, argument; the kinds are those of tests/reference/step_machine.py.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* the machine and its core, with a sink and counters of our own */
#include "preload/machine.c"
#include "preload/step.c"

struct lg_process_counters lg_process_counters;
struct lg_thread_counters lg_thread_counters;

void lg_counts_now(struct lg_counts *out, bool usage)
{
    memset(out, 0, sizeof *out);
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

uint32_t lg_identity_seen(void)
{
    return LG_SEEN_GLOO;
}

bool lg_identity_sync_known(void)
{
    return true;
}

void lg_sink_row(const struct lg_row *row, uint64_t number)
{
    int64_t v[LG_COLUMNS];
    lg_row_columns(row, v);
    printf("{\"step\":%" PRIu64 ",\"t0\":%" PRId64 ",\"t1\":%" PRId64, number, v[LG_COL_start_ns],
           v[LG_COL_start_ns] + v[LG_COL_dur_ns]);
#define PRINT(name)                                                                                \
    printf(",\"" #name "\":%" PRIu64 ",\"" #name "_sync\":%" PRIu64,                               \
           row->part[LG_STAGE_##name].time, row->part[LG_STAGE_##name].sync);
    LG_STAGES(PRINT)
    printf(",\"n_in\":%u,\"n_bw\":%u,\"n_opt\":%u,\"no_step\":%d,\"gap_input\":%d}\n", row->n_input,
           row->n_backward, row->n_optimizer, (row->flags & LG_FLAG_no_step) != 0,
           (row->flags & LG_FLAG_gap_input) != 0);
}

void lg_sink_provisional(const struct lg_row *row, uint64_t number)
{
    (void)row;
    (void)number;
}

void lg_sink_held(const struct lg_row *rows, uint32_t count, uint64_t first)
{
    (void)rows;
    (void)count;
    (void)first;
}

static const struct {
    const char *kind;
    enum lg_event event;
} kinds[] = {
    {"in(", LG_EV_INPUT_BEGIN},      {"in)", LG_EV_INPUT_END},      {"fwd(", LG_EV_FORWARD_BEGIN},
    {"fwd)", LG_EV_FORWARD_END},     {"bw(", LG_EV_BACKWARD_BEGIN}, {"bw)", LG_EV_BACKWARD_END},
    {"opt(", LG_EV_OPTIMIZER_BEGIN}, {"opt)", LG_EV_OPTIMIZER_END}, {"wait(", LG_EV_WAIT_BEGIN},
    {"wait)", LG_EV_WAIT_END},
};

int main(void)
{
    static struct lg_machine machine;
    uint64_t now = 0, argument;
    char kind[16];
    while (scanf("%" SCNu64 " %15s %" SCNu64, &now, kind, &argument) == 3) {
        if (strcmp(kind, "sync") == 0)
            lg_process_counters.gradient_syncs++;
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
            if (strcmp(kind, kinds[i].kind) == 0)
                lg_machine_event(&machine, kinds[i].event, now, argument, 0);
    }
    lg_machine_finish(&machine, now);
    return 0;
}
