/*
 * trainer.h - what the files of the test trainer share: options, faults, the batch source, the
 * model. Context: test program. It trains a small linear model, data parallel, on CUDA and NCCL
 * calls like any other training program, and knows nothing of laggard.
 */
#ifndef TRAINER_H
#define TRAINER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <nccl.h>

/* ---- options.c */

#define TRAINER_STAGES(X)        X(input) X(h2d) X(forward) X(backward) X(optimizer) X(host)
#define TRAINER_STAGE_ENUM(name) STAGE_##name,
enum stage { TRAINER_STAGES(TRAINER_STAGE_ENUM) STAGES };
#undef TRAINER_STAGE_ENUM
extern const char *const stage_names[STAGES];

enum source { SOURCE_FILE, SOURCE_RAM, SOURCE_RANK0 };

struct fault {
    int rank; /* -1: every rank */
    enum stage stage;
    long us;
    long every, phase; /* on steps with step % every == phase */
    long from, to;     /* first and last step */
    long bucket;       /* of a backward: before which all-reduce */
    bool rotate;       /* rank `rank` + step, modulo the world */
};

#define MAX_FAULTS 16

struct options {
    long ranks, rank; /* rank -1: this process starts the ranks */
    long steps, epoch, buckets, params, batch_bytes, launches, seed;
    long us[STAGES]; /* time of each stage; of h2d: on top of the copy's own */
    long jitter;     /* percent */
    long lengths;    /* percent */
    long accumulate, validate;
    long checkpoint_every, checkpoint_bytes;
    enum source source;
    bool prefetch, item, no_env, cuda13;
    const char *dir, *truth;
    struct fault fault[MAX_FAULTS];
    int faults;
};

/* Bad options: one line on stderr, exit 2. */
struct options parse_options(int argc, char **argv);

/* Injected time of a stage in one step on one rank. */
long fault_us(const struct options *o, enum stage stage, long rank, long step);
/* The part of a backward's that comes before all-reduce number `bucket`. */
long bucket_fault_us(const struct options *o, long rank, long step, long bucket);

/* Length of a rank's sequences in a step, about 1. */
double length_of(const struct options *o, long rank, long step);

/* The stage's own time with its jitter, without faults: the same for the same seed, rank and step.
 */
long stage_us(const struct options *o, enum stage stage, long rank, long step);

/* ---- data.c: batches of floats */

struct source_state;

/* Makes the shard file of this rank and opens it; starts the prefetch thread where asked for.
 * Exits with 1 when it can't. */
struct source_state *source_open(const struct options *o);

/* Waits for the batch of (step, micro-batch); it stays valid until the next call, and until the
 * device has done what came before source_copied(). */
const float *source_batch(struct source_state *s, long step, long micro);

/* The copy of the last batch to the device is issued, on the null stream. */
void source_copied(struct source_state *s);

/* A batch of the held-out file. */
const float *source_validation(struct source_state *s);

void source_close(struct source_state *s);

/* Deterministic numbers in [0, 1). */
double random_unit(uint64_t *state);
uint64_t random_seed(uint64_t a, uint64_t b, uint64_t c);

/* ---- model.c: all pointers are device memory */

struct model {
    long params, samples;
    float *weights, *gradient, *batch, *error;
    double *loss; /* sum of squared errors since it was last taken */
};

void model_create(struct model *m, const struct options *o);
/* Each lasts `us` and is one launch. */
void model_forward(const struct model *m, long us);
void model_evaluate(const struct model *m, long us);
void model_backward(const struct model *m, long first, long count, long us);
void model_optimizer(const struct model *m, double rate, long us);
void model_pause(long us);

/* Launches go through __cudaLaunchKernel, as in programs built with CUDA 13. */
void model_use_cuda13(bool yes);

/* Exits with 1 and one line when a call failed. */
void cuda_check(cudaError_t error, const char *what);
void nccl_check(ncclResult_t result, const char *what);

/* ---- rank.c */

/* Trains; the exit status. */
int rank_main(const struct options *o);

#endif
