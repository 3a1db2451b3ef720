/*
 * rank.c - the training loop of one rank: input, copy to the device, forward, backward with the
 * gradients' all-reduces between its launches, optimizer, and the record of what really happened.
 * Context: test program, one process a rank.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim.h"
#include "trainer.h"

struct training {
    const struct options *o;
    struct model model;
    struct source_state *source;
    ncclComm_t comm;
    int truth; /* file, -1: none */
    long step;
    uint64_t mark;             /* end of the last stage */
    uint64_t stage_ns[STAGES]; /* of this step */
    uint64_t sync_ns, injected_ns[STAGES];
};

/* ---- meeting the other ranks: rank 0 leaves the communicator's id in a file */

static void id_path(const struct options *o, char *path, size_t size, const char *suffix)
{
    snprintf(path, size, "%s/nccl-id%s", o->dir, suffix);
}

static void publish_id(const struct options *o, const ncclUniqueId *id)
{
    char draft[512], path[512];
    id_path(o, draft, sizeof draft, ".new");
    id_path(o, path, sizeof path, "");
    FILE *f = fopen(draft, "w");
    if (!f || fwrite(id, sizeof *id, 1, f) != 1 || fclose(f) || rename(draft, path)) {
        perror(path);
        exit(1);
    }
}

static void fetch_id(const struct options *o, ncclUniqueId *id)
{
    char path[512];
    id_path(o, path, sizeof path, "");
    for (int tries = 0; tries < 6000; tries++) {
        FILE *f = fopen(path, "r");
        if (f) {
            size_t got = fread(id, sizeof *id, 1, f);
            fclose(f);
            if (got == 1)
                return;
        }
        sim_sleep_until(sim_now() + 5000000);
    }
    fprintf(stderr, "trainer: no rank 0 within 30 s (%s)\n", path);
    exit(1);
}

static void join(struct training *t)
{
    ncclUniqueId id;
    if (t->o->rank == 0) {
        nccl_check(ncclGetUniqueId(&id), "ncclGetUniqueId");
        publish_id(t->o, &id);
    } else {
        fetch_id(t->o, &id);
    }
    nccl_check(ncclCommInitRank(&t->comm, (int)t->o->ranks, id, (int)t->o->rank),
               "ncclCommInitRank");
    nccl_check(ncclBroadcast(t->model.weights, t->model.weights, (size_t)t->o->params, ncclFloat32,
                             0, t->comm, NULL),
               "ncclBroadcast");
}

/* ---- stages. Each ends with leave(), which books the time since the last one ended. */

static long extra(struct training *t, enum stage stage)
{
    long us = fault_us(t->o, stage, t->o->rank, t->step);
    t->injected_ns[stage] += (uint64_t)us * 1000;
    return us;
}

static long usual(const struct training *t, enum stage stage)
{
    return stage_us(t->o, stage, t->o->rank, t->step);
}

static void leave(struct training *t, enum stage stage)
{
    uint64_t now = sim_now();
    t->stage_ns[stage] += now - t->mark;
    t->mark = now;
}

/* Short sequences leave a part of the batch as it was. */
static void copy_in(const struct training *t, const float *batch)
{
    double part = t->o->lengths ? length_of(t->o, t->o->rank, t->step) / 4 : 1;
    double bytes = (double)t->o->batch_bytes * (part < 1 ? part : 1);
    cuda_check(cudaMemcpyAsync(t->model.batch, batch, (size_t)bytes, cudaMemcpyHostToDevice, NULL),
               "cudaMemcpyAsync");
}

static void fetch(struct training *t, long micro)
{
    const struct options *o = t->o;
    const float *batch = NULL;
    if (micro == 0)
        extra(t, STAGE_input);
    if (o->source != SOURCE_RANK0 || o->rank == 0)
        batch = source_batch(t->source, t->step, micro);
    if (o->source != SOURCE_RANK0)
        leave(t, STAGE_input);
    if (batch) {
        long us = usual(t, STAGE_h2d) + (micro == 0 ? extra(t, STAGE_h2d) : 0);
        simSlow((uint64_t)us * 1000);
        copy_in(t, batch);
        source_copied(t->source);
    }
    if (o->source == SOURCE_RANK0) {
        nccl_check(ncclBroadcast(t->model.batch, t->model.batch, (size_t)o->batch_bytes, ncclUint8,
                                 0, t->comm, NULL),
                   "ncclBroadcast");
        leave(t, STAGE_input);
    } else {
        leave(t, STAGE_h2d);
    }
}

static void forward(struct training *t, long micro)
{
    long us = usual(t, STAGE_forward) / t->o->launches;
    model_forward(&t->model, us + (micro == 0 ? extra(t, STAGE_forward) : 0));
    for (long i = 1; i < t->o->launches; i++)
        model_pause(us);
    leave(t, STAGE_forward);
}

static void all_reduce(struct training *t, void *buffer, size_t count, ncclDataType_t type)
{
    uint64_t begin = sim_now();
    nccl_check(ncclAllReduce(buffer, buffer, count, type, ncclSum, t->comm, NULL), "ncclAllReduce");
    t->sync_ns += sim_now() - begin;
}

static void backward(struct training *t, long micro)
{
    const struct options *o = t->o;
    long us = usual(t, STAGE_backward) / o->buckets;
    if (micro == 0)
        extra(t, STAGE_backward);
    for (long b = 0; b < o->buckets; b++) {
        long first = o->params * b / o->buckets, end = o->params * (b + 1) / o->buckets;
        long slow = micro == 0 ? bucket_fault_us(o, o->rank, t->step, b) : 0;
        model_backward(&t->model, first, end - first, us + slow);
        if (micro == o->accumulate - 1)
            all_reduce(t, t->model.gradient + first, (size_t)(end - first), ncclFloat32);
    }
    leave(t, STAGE_backward);
}

/* The gradient is a sum over ranks, micro-batches and samples; the rate makes it a mean of small
 * steps. */
static void optimize(struct training *t)
{
    long us = usual(t, STAGE_optimizer) / 2;
    double batches = (double)(t->o->ranks * t->o->accumulate);
    model_optimizer(&t->model, 0.25 / batches, us + extra(t, STAGE_optimizer));
    model_pause(us);
    leave(t, STAGE_optimizer);
}

static double take_loss(struct training *t, double batches)
{
    double loss, zero = 0;
    all_reduce(t, t->model.loss, 1, ncclFloat64);
    cuda_check(cudaMemcpy(&loss, t->model.loss, sizeof loss, cudaMemcpyDeviceToHost), "cudaMemcpy");
    cuda_check(cudaMemcpy(t->model.loss, &zero, sizeof zero, cudaMemcpyHostToDevice), "cudaMemcpy");
    return loss / batches;
}

static void look_at_loss(const struct training *t)
{
    double loss;
    cuda_check(cudaMemcpyAsync(&loss, t->model.loss, sizeof loss, cudaMemcpyDeviceToHost, NULL),
               "cudaMemcpyAsync");
    cuda_check(cudaStreamSynchronize(NULL), "cudaStreamSynchronize");
}

static void checkpoint(const struct training *t)
{
    static char page[65536];
    const struct options *o = t->o;
    if (!o->checkpoint_every || o->rank != 0 || (t->step + 1) % o->checkpoint_every)
        return;
    char path[512];
    snprintf(path, sizeof path, "%s/checkpoint.bin", o->dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    for (long left = o->checkpoint_bytes; fd >= 0 && left > 0; left -= (long)sizeof page)
        if (write(fd, page, left < (long)sizeof page ? (size_t)left : sizeof page) < 0)
            break;
    if (fd < 0 || fsync(fd) || close(fd)) {
        perror(path);
        exit(1);
    }
}

static void host_work(struct training *t)
{
    if (t->o->item)
        look_at_loss(t);
    checkpoint(t);
    long us = usual(t, STAGE_host) + extra(t, STAGE_host);
    if (us)
        sim_sleep_until(sim_now() + (uint64_t)us * 1000);
    leave(t, STAGE_host);
}

/* ---- the record of what happened */

static void open_truth(struct training *t)
{
    char path[512];
    t->truth = -1;
    if (!t->o->truth)
        return;
    snprintf(path, sizeof path, "%s/rank-%ld.jsonl", t->o->truth, t->o->rank);
    t->truth = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    if (t->truth < 0) {
        perror(path);
        exit(1);
    }
}

/* One line, one write: a killed rank leaves whole lines. */
static void write_truth(struct training *t, uint64_t begin)
{
    char line[1024];
    if (t->truth < 0)
        return;
    int n =
        snprintf(line, sizeof line, "{\"rank\":%ld,\"step\":%ld,\"begin_ns\":%llu,\"end_ns\":%llu",
                 t->o->rank, t->step, (unsigned long long)begin, (unsigned long long)t->mark);
    for (int i = 0; i < STAGES; i++)
        n += snprintf(line + n, sizeof line - (size_t)n, ",\"%s_ns\":%llu,\"%s_injected_ns\":%llu",
                      stage_names[i], (unsigned long long)t->stage_ns[i], stage_names[i],
                      (unsigned long long)t->injected_ns[i]);
    n += snprintf(line + n, sizeof line - (size_t)n, ",\"sync_ns\":%llu}\n",
                  (unsigned long long)t->sync_ns);
    if (write(t->truth, line, (size_t)n) != n) {
        perror("truth");
        exit(1);
    }
}

/* ---- the loop */

static void train_step(struct training *t)
{
    memset(t->stage_ns, 0, sizeof t->stage_ns);
    memset(t->injected_ns, 0, sizeof t->injected_ns);
    t->sync_ns = 0;
    uint64_t begin = t->mark = sim_now();
    for (long micro = 0; micro < t->o->accumulate; micro++) {
        fetch(t, micro);
        forward(t, micro);
        backward(t, micro);
    }
    optimize(t);
    host_work(t);
    write_truth(t, begin);
}

static void validate(struct training *t)
{
    for (long i = 0; i < t->o->validate; i++) {
        copy_in(t, source_validation(t->source));
        model_evaluate(&t->model, t->o->us[STAGE_forward]);
    }
}

static void end_epoch(struct training *t, long epoch)
{
    const struct options *o = t->o;
    double loss = take_loss(t, (double)(o->ranks * o->epoch * o->accumulate));
    if (o->rank == 0)
        printf("epoch %ld: loss %.9g", epoch, loss);
    if (o->validate) {
        validate(t);
        loss = take_loss(t, (double)(o->ranks * o->validate));
        if (o->rank == 0)
            printf(", validation %.9g", loss);
    }
    if (o->rank == 0) {
        putchar('\n');
        fflush(stdout);
    }
}

int rank_main(const struct options *o)
{
    struct training t = {.o = o};
    model_use_cuda13(o->cuda13);
    model_create(&t.model, o);
    open_truth(&t);
    join(&t);
    t.source = source_open(o);
    for (t.step = 0; t.step < o->steps; t.step++) {
        train_step(&t);
        if ((t.step + 1) % o->epoch == 0)
            end_epoch(&t, t.step / o->epoch);
    }
    source_close(t.source);
    nccl_check(ncclCommDestroy(t.comm), "ncclCommDestroy");
    return 0;
}
