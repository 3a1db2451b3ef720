/*
 * next.c - what to look at next, per kind: a table of commands and hints with placeholders. Runs in
 * the reading commands; nothing is executed here.
 */
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rules.h"

/* SMALL_MANY and SMALL_FEW: of small collectives, many or few a step; NOT_SMALL: others, or sizes
 * that are not known. */
enum condition {
    ALWAYS,
    WITH_DEVICE,
    WITHOUT_DEVICE,
    WHEN_PERIODIC,
    SMALL_MANY,
    SMALL_FEW,
    NOT_SMALL,
    NOT_SMALL_WITH_DEVICE
};

#define MANY 4 /* collectives a step */

struct advice {
    enum lg_kind kind;
    enum condition when;
    const char *text; /* {run} {rank} {host} {first} {last} {seconds} {period} */
};

#define PER_RANK(columns)                                                                          \
    "laggard sql {run} \"SELECT rank, " columns " FROM step WHERE step BETWEEN {first} AND "       \
    "{last} GROUP BY rank\""
#define PROFILE_RANK                                                                               \
    "on rank {rank} only: nsys profile --trace=cuda,nvtx,osrt --delay=60 --duration={seconds} "    \
    "-o rank{rank} COMMAND"

static const struct advice table[] = {
    {LG_INPUT_STRAGGLER, ALWAYS,
     PER_RANK("avg(input_wait_ns)/1e6 AS input_ms, avg(reads) AS reads, avg(read_bytes)/1e6 AS "
              "read_mb, avg(hidden_input_ns)/1e6 AS loader_ms, avg(major_faults) AS major_faults")},
    {LG_INPUT_STRAGGLER, ALWAYS,
     "compare the loader of rank {rank} ({host}) with the others': number of workers, storage "
     "path, free CPU cores (laggard sql {run} \"SELECT * FROM worker\"; no row: no worker was "
     "forked, the training thread itself may load)"},
    {LG_INPUT_STRAGGLER, WHEN_PERIODIC,
     "a loader with {period} workers, one of which is slow, looks like this: laggard sql {run} "
     "\"SELECT * FROM worker WHERE rank = {rank}\""},
    {LG_H2D_STRAGGLER, ALWAYS,
     PER_RANK("avg(h2d_ns)/1e6 AS h2d_ms, avg(h2d_copies) AS copies, avg(h2d_bytes)/1e6 AS mb")},
    {LG_H2D_STRAGGLER, ALWAYS,
     "on {host}: nvidia-smi -q -d PCI (link width and generation), and whether the batches of rank "
     "{rank} are in pinned memory"},
    {LG_COMPUTE_STRAGGLER, ALWAYS,
     PER_RANK("avg(forward_ns)/1e6 AS forward_ms, avg(thread_cpu_ns)/1e6 AS cpu_ms, "
              "avg(involuntary_switches) AS preempted, avg(launches) AS launches")},
    {LG_COMPUTE_STRAGGLER, WITH_DEVICE, "on {host}: nvidia-smi -q -d PERFORMANCE,CLOCK,POWER"},
    {LG_COMPUTE_STRAGGLER, WITH_DEVICE, PROFILE_RANK},
    {LG_COMPUTE_STRAGGLER, WITHOUT_DEVICE,
     "on {host}: perf top -p PID_OF_RANK_{rank}, and who else uses its cores (cpu_ms far below "
     "forward_ms, many preemptions)"},
    {LG_BACKWARD_STRAGGLER, ALWAYS,
     PER_RANK("avg(backward_ns-backward_sync_ns)/1e6 AS own_backward_ms, "
              "avg(backward_sync_ns)/1e6 AS in_collectives_ms, avg(thread_cpu_ns)/1e6 AS cpu_ms, "
              "avg(involuntary_switches) AS preempted")},
    {LG_BACKWARD_STRAGGLER, WITH_DEVICE, "on {host}: nvidia-smi -q -d PERFORMANCE,CLOCK,POWER"},
    {LG_BACKWARD_STRAGGLER, WITH_DEVICE, PROFILE_RANK},
    {LG_BACKWARD_STRAGGLER, WITHOUT_DEVICE,
     "on {host}: py-spy dump --pid PID_OF_RANK_{rank}, a few times: what runs in backward (hooks, "
     "checkpointed layers, custom autograd functions)"},
    {LG_OPTIMIZER_STRAGGLER, ALWAYS,
     PER_RANK("avg(optimizer_ns-optimizer_sync_ns)/1e6 AS own_optimizer_ms, "
              "avg(thread_cpu_ns)/1e6 AS cpu_ms, avg(minor_faults) AS minor_faults, "
              "avg(host_syncs) AS host_syncs")},
    {LG_OPTIMIZER_STRAGGLER, ALWAYS,
     "what rank {rank} does between the end of backward and the end of its optimizer step that the "
     "others don't: gradient clipping or checks, more parameters (sharded optimizer), offloaded "
     "state, hooks"},
    {LG_HOST_STRAGGLER, ALWAYS,
     PER_RANK("avg(other_ns-other_sync_ns)/1e6 AS own_ms, max(other_ns)/1e6 AS longest_ms, "
              "avg(thread_cpu_ns)/1e6 AS cpu_ms, avg(write_bytes)/1e6 AS written_mb, "
              "avg(fsyncs) AS fsyncs")},
    {LG_HOST_STRAGGLER, ALWAYS,
     "what only rank {rank} does between its steps: logging, checkpoints, evaluation, garbage "
     "collection (gc.freeze(), or gc.collect() on all ranks at the same step)"},
    {LG_COMM_BOUND, ALWAYS,
     PER_RANK("avg(sync_ns)/1e6 AS in_collectives_ms, avg(collectives) AS collectives, "
              "avg(collective_bytes)/1e6 AS mb")},
    {LG_COMM_BOUND, SMALL_MANY,
     "latency, not volume: fewer collectives, each with more in it: fuse small tensors into one "
     "buffer, larger buckets (bucket_cap_mb), metrics reduced together and not at every step"},
    {LG_COMM_BOUND, SMALL_FEW,
     "latency, not volume: few and small, they should take microseconds: look for ranks that have "
     "no CPU core of their own when the answer comes (cpu cores against ranks), and for a slow "
     "network path (ping between the hosts, which interface NCCL or Gloo uses)"},
    {LG_COMM_BOUND, NOT_SMALL_WITH_DEVICE,
     "all_reduce_perf of nccl-tests over all hosts, then over each half of them: a slow link or "
     "host shows in one half only (NCCL_DEBUG=INFO says which network is used)"},
    {LG_COMM_BOUND, NOT_SMALL,
     "less to transfer, or less often: gradient accumulation, compression (bf16 or PowerSGD "
     "communication hooks), more overlap with backward; and the links' own bandwidth against the "
     "GB/s above"},
    {LG_IMBALANCE, ALWAYS,
     PER_RANK("avg(h2d_bytes)/1e6 AS mean_mb, max(h2d_bytes)/1e6 AS most_mb, "
              "avg(dur_ns-sync_ns)/1e6 AS own_ms, max(dur_ns-sync_ns)/1e6 AS longest_ms")},
    {LG_IMBALANCE, ALWAYS,
     "batches of equal work on all ranks: buckets by sequence length, token budgets instead of "
     "sample counts, sorting within a global batch; pauses at the same step on all ranks "
     "(gc.collect(), checkpoints)"},
    {LG_HOST_PERIODIC, ALWAYS,
     PER_RANK("max(input_wait_ns)/1e6 AS input_ms, max(other_ns)/1e6 AS other_ms, "
              "max(write_bytes)/1e6 AS written_mb, max(fsyncs) AS fsyncs")},
    {LG_HOST_PERIODIC, ALWAYS,
     "what happens every {period} steps: the begin of an epoch (persistent_workers=True keeps the "
     "loader's workers), checkpoints, evaluation, logging"},
    {LG_HOST_SLOW, ALWAYS,
     "laggard sql {run} \"SELECT r.host, avg(dur_ns-sync_ns)/1e6 AS own_ms, "
     "avg(thread_cpu_ns)/1e6 AS cpu_ms, avg(involuntary_switches) AS preempted FROM step s JOIN "
     "rank r USING (rank) WHERE step BETWEEN {first} AND {last} GROUP BY r.host\""},
    {LG_HOST_SLOW, WITH_DEVICE, "on that host: nvidia-smi -q -d PERFORMANCE,CLOCK,POWER,PCI"},
    {LG_HOST_SLOW, ALWAYS,
     "who else uses that host's cores, its storage path, its CPU governor and temperature"},
    {LG_SYNC_BOUND, ALWAYS,
     PER_RANK("avg(host_syncs) AS host_syncs, avg(device_wait_ns)/1e6 AS waited_ms, "
              "avg(launches) AS launches")},
    {LG_SYNC_BOUND, ALWAYS,
     "torch.cuda.set_sync_debug_mode(\"warn\") tells which lines wait: .item(), .cpu(), nonzero, "
     "printing a tensor; keep such values on the device and read them every so many steps"},
    {LG_STRAGGLER, ALWAYS,
     PER_RANK("avg(forward_ns-forward_sync_ns)/1e6 AS forward_ms, "
              "avg(backward_ns-backward_sync_ns)/1e6 AS backward_ms, "
              "avg(optimizer_ns-optimizer_sync_ns)/1e6 AS optimizer_ms, "
              "avg(other_ns-other_sync_ns)/1e6 AS other_ms")},
    {LG_STRAGGLER, WITH_DEVICE, PROFILE_RANK},
    {LG_INPUT_BOUND, ALWAYS,
     PER_RANK("avg(input_wait_ns)/1e6 AS input_ms, avg(reads) AS reads, avg(read_bytes)/1e6 AS "
              "read_mb, avg(hidden_input_ns)/1e6 AS loader_ms")},
    {LG_INPUT_BOUND, ALWAYS,
     "more loader workers or a deeper prefetch (num_workers, prefetch_factor); where the workers' "
     "time goes: laggard sql {run} \"SELECT * FROM worker\" (no row: no worker was forked, the "
     "training thread itself may load)"},
    {LG_H2D_BOUND, ALWAYS,
     PER_RANK("avg(gpu_h2d_ns)/1e6 AS h2d_ms, avg(h2d_bytes)/1e6 AS mb, "
              "avg(h2d_overlapped)/1e6 AS overlapped_mb")},
    {LG_H2D_BOUND, ALWAYS,
     "pinned memory with asynchronous copies (pin_memory=True, non_blocking=True), copied ahead on "
     "another stream"},
    {LG_RESIDUAL_HEAVY, ALWAYS,
     PER_RANK("avg(other_ns)/1e6 AS other_ms, avg(write_bytes)/1e6 AS written_mb, avg(fsyncs) AS "
              "fsyncs, avg(host_syncs) AS host_syncs, avg(thread_cpu_ns)/1e6 AS cpu_ms")},
    {LG_RESIDUAL_HEAVY, ALWAYS,
     "what runs between the stages: logging, metrics, checkpoints, garbage collection, evaluation"},
    {LG_COMPUTE_BOUND, WITH_DEVICE,
     "on one rank: nsys profile --trace=cuda,nvtx,osrt --delay=60 --duration={seconds} COMMAND"},
    {LG_COMPUTE_BOUND, ALWAYS,
     PER_RANK("avg(forward_ns)/1e6 AS forward_ms, avg(backward_ns)/1e6 AS backward_ms, "
              "avg(sync_ns)/1e6 AS in_collectives_ms, avg(optimizer_ns)/1e6 AS optimizer_ms")},
    {LG_WARMUP, ALWAYS, "let the run go on for more steps, then: laggard report {run}"},
    {LG_NO_DATA, ALWAYS, "laggard doctor -- COMMAND (what would be observed here, and what not)"},
    {LG_INCOMPLETE_DATA, ALWAYS,
     "laggard doctor -- COMMAND (what would be observed here, and what not)"},
};

/* ---- placeholders ---- */

/* For a shell: quoted if it holds anything unusual. */
static char *shell_word(const char *text)
{
    struct lg_texts parts = {0};
    const char *c = text;
    char *joined, *word;

    while (*c && (isalnum((unsigned char)*c) || strchr("/._-+:=@%", *c)))
        c++;
    if (*text && !*c)
        return lg_strdup(text);
    for (c = text; *c; c += strcspn(c, "'"), c += *c == '\'')
        lg_texts_add(&parts, lg_format("%.*s", (int)strcspn(c, "'"), c));
    if (*text && text[strlen(text) - 1] == '\'')
        lg_texts_add(&parts, lg_strdup(""));
    joined = lg_texts_join(&parts, "'\\''");
    word = lg_format("'%s'", joined);
    free(joined);
    lg_texts_free(&parts);
    return word;
}

static const char *host_of(const struct lg_run *run, int32_t rank)
{
    const struct lg_rank *r = lg_run_find(run, rank);

    return r && *r->host ? r->host : "its host";
}

/* How long 20 steps take, at least 1 s. */
static long seconds_for_steps(const struct lg_diagnosis *d)
{
    for (size_t i = 0; i < d->n_means; i++)
        if (!isnan(d->means[i].mean[LG_COL_dur_ns]))
            return (long)ceil(fmax(1, 20 * d->means[i].mean[LG_COL_dur_ns] / 1e9));
    return 10;
}

/* The value of the placeholder that `at` begins with ("{rank}..."), or NULL; owned by the caller.
 */
static char *placeholder(const char *at, const struct lg_diagnosis *d, const struct lg_run *run)
{
    const struct lg_steps *steps = &d->verdict.steps;

    if (strncmp(at, "{run}", 5) == 0)
        return shell_word(d->dir ? d->dir : "RUN");
    if (strncmp(at, "{rank}", 6) == 0)
        return lg_format("%" PRId32, d->verdict.rank);
    if (strncmp(at, "{host}", 6) == 0)
        return lg_strdup(host_of(run, d->verdict.rank));
    if (strncmp(at, "{first}", 7) == 0)
        return lg_format("%" PRId64, steps->first == LG_NULL ? 0 : steps->first);
    if (strncmp(at, "{last}", 6) == 0)
        return lg_format("%" PRId64, steps->last == LG_NULL ? 0 : steps->last);
    if (strncmp(at, "{period}", 8) == 0)
        return lg_format("%" PRId64, d->verdict.period == LG_NULL ? 0 : d->verdict.period);
    if (strncmp(at, "{seconds}", 9) == 0)
        return lg_format("%ld", seconds_for_steps(d));
    return NULL;
}

static char *fill_in(const char *text, const struct lg_diagnosis *d, const struct lg_run *run)
{
    struct lg_texts parts = {0};
    char *joined;

    while (*text) {
        char *value = *text == '{' ? placeholder(text, d, run) : NULL;
        size_t length = value ? strcspn(text, "}") + 1 : 1 + strcspn(text + 1, "{");

        lg_texts_add(&parts, value ? value : lg_format("%.*s", (int)length, text));
        text += length;
    }
    joined = lg_texts_join(&parts, "");
    lg_texts_free(&parts);
    return joined;
}

/* Which advice on collectives fits the verdict's finding. */
static bool fits_size(enum condition when, const struct lg_diagnosis *d)
{
    const json_t *evidence = d->findings && d->n_findings > 0 ? d->findings[0].evidence : NULL;
    const char *size = json_string_value(json_object_get(evidence, "size"));
    bool small = size && strcmp(size, "small") == 0, many;

    if (!small)
        return when == NOT_SMALL;
    many = json_number_value(
               json_object_get(json_object_get(json_object_get(evidence, "by_size"), size),
                               "collectives_per_step")) >= MANY;
    return when == (many ? SMALL_MANY : SMALL_FEW);
}

static bool fits(const struct advice *a, const struct lg_diagnosis *d, bool device)
{
    switch (a->when) {
    case WITH_DEVICE:
        return device;
    case WITHOUT_DEVICE:
        return !device;
    case WHEN_PERIODIC:
        return d->verdict.period != LG_NULL;
    case SMALL_MANY:
    case SMALL_FEW:
    case NOT_SMALL:
        return fits_size(a->when, d);
    case NOT_SMALL_WITH_DEVICE:
        return device && fits_size(NOT_SMALL, d);
    default:
        return true;
    }
}

void lg_advise(struct lg_diagnosis *d, const struct lg_run *run)
{
    const struct lg_finding *f = d->n_findings > 0 ? &d->findings[0] : NULL;
    bool device = false;

    for (size_t i = 0; i < run->n_ranks; i++)
        device = device || run->ranks[i].has_device;
    if (d->verdict.ambiguous && f && f->settle)
        lg_texts_add(&d->verdict.next, lg_strdup(f->settle));
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        const struct advice *a = &table[i];

        if (a->kind == d->verdict.kind && fits(a, d, device))
            lg_texts_add(&d->verdict.next, fill_in(a->text, d, run));
    }
}
