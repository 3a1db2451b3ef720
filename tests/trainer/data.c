/*
 * data.c - where the trainer's batches come from: a shard file that it makes itself, read with
 * read(), on the training thread or ahead of it on another. Context: test program.
 *
 * Slow storage is a timer whose expiry is read() before the batch: the wait is in a read, as long
 * as asked for, and needs no other thread.
 */
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <math.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "trainer.h"

#define SHARD_BATCHES 8
#define READ_BYTES    16384u
#define AHEAD         2

struct source_state {
    const struct options *o;
    int shard, validation, timer;
    char *memory; /* SOURCE_RAM: the shard's bytes */
    char *buffer[AHEAD];
    cudaEvent_t copied[AHEAD]; /* the device has taken what was in the buffer */
    long last;                 /* index of the batch handed out last */
    long taken;                /* batches handed out */
    pthread_t loader;
    sem_t filled, empty;
};

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

double random_unit(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) / 9007199254740992.0;
}

uint64_t random_seed(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t state = a * 0x9e3779b97f4a7c15u + b * 0xbf58476d1ce4e5b9u + c * 0x94d049bb133111ebu;
    for (int i = 0; i < 3; i++)
        random_unit(&state);
    return state;
}

/* One batch: samples of `params` inputs and their answer, which a hidden model gives. Inputs are
 * scaled so that a sample's length is about 1. */
static void make_batch(const struct options *o, const float *hidden, uint64_t *state, float *batch)
{
    long samples = o->batch_bytes / (long)sizeof(float) / (o->params + 1);
    double scale = sqrt(12.0 / (double)o->params);
    memset(batch, 0, (size_t)o->batch_bytes);
    for (long i = 0; i < samples; i++) {
        float *sample = batch + i * (o->params + 1);
        double answer = 0;
        for (long j = 0; j < o->params; j++) {
            sample[j] = (float)((random_unit(state) - 0.5) * scale);
            answer += (double)(sample[j] * hidden[j]);
        }
        sample[o->params] = (float)answer;
    }
}

static void write_all(int fd, const void *data, size_t size)
{
    for (size_t at = 0; at < size;) {
        ssize_t n = write(fd, (const char *)data + at, size - at);
        if (n <= 0)
            fail("shard");
        at += (size_t)n;
    }
}

static int make_shard(const struct options *o, const char *name, uint64_t stream)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s-%ld.bin", o->dir, name, o->rank);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    float *hidden = malloc((size_t)o->params * sizeof *hidden),
          *batch = malloc((size_t)o->batch_bytes);
    if (fd < 0 || !hidden || !batch)
        fail(path);
    uint64_t state = random_seed((uint64_t)o->seed, 0, 0);
    for (long j = 0; j < o->params; j++)
        hidden[j] = (float)(2 * random_unit(&state) - 1);
    state = random_seed((uint64_t)o->seed, (uint64_t)o->rank + 1, stream);
    for (int i = 0; i < SHARD_BATCHES; i++) {
        make_batch(o, hidden, &state, batch);
        write_all(fd, batch, (size_t)o->batch_bytes);
    }
    if (lseek(fd, 0, SEEK_SET) != 0)
        fail(path);
    free(hidden);
    free(batch);
    return fd;
}

/* Reads `size` bytes, from the begin again at the end of the file. */
static void read_all(int fd, char *to, size_t size)
{
    for (size_t at = 0; at < size;) {
        size_t want = size - at < READ_BYTES ? size - at : READ_BYTES;
        ssize_t n = read(fd, to + at, want);
        if (n < 0)
            fail("read");
        if (n == 0 && lseek(fd, 0, SEEK_SET) != 0)
            fail("lseek");
        at += (size_t)n;
    }
}

static void wait_for_storage(const struct source_state *s, long us)
{
    uint64_t expired;
    struct itimerspec t = {.it_value = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}};
    if (us <= 0)
        return;
    if (timerfd_settime(s->timer, 0, &t, NULL) || read(s->timer, &expired, sizeof expired) < 0)
        fail("timerfd");
}

static void load(struct source_state *s, long index)
{
    const struct options *o = s->o;
    long step = index / o->accumulate;
    long us = stage_us(o, STAGE_input, o->rank, step);
    if (index % o->accumulate == 0)
        us += fault_us(o, STAGE_input, o->rank, step);
    wait_for_storage(s, us);
    cuda_check(cudaEventSynchronize(s->copied[index % AHEAD]), "cudaEventSynchronize");
    read_all(s->shard, s->buffer[index % AHEAD], (size_t)o->batch_bytes);
}

static void *load_ahead(void *arg)
{
    struct source_state *s = arg;
    for (long i = 0; i < s->o->steps * s->o->accumulate; i++) {
        sem_wait(&s->empty);
        load(s, i);
        sem_post(&s->filled);
    }
    return NULL;
}

struct source_state *source_open(const struct options *o)
{
    struct source_state *s = calloc(1, sizeof *s);
    if (!s)
        fail("memory");
    s->o = o;
    s->shard = make_shard(o, "shard", 1);
    s->validation = make_shard(o, "validation", 2);
    s->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    if (s->timer < 0)
        fail("timerfd");
    for (int i = 0; i < AHEAD; i++) {
        cuda_check(cudaHostAlloc((void **)&s->buffer[i], (size_t)o->batch_bytes, 0),
                   "cudaHostAlloc");
        cuda_check(cudaEventCreateWithFlags(&s->copied[i], cudaEventDisableTiming),
                   "cudaEventCreateWithFlags");
    }
    if (o->source == SOURCE_RAM) {
        s->memory = malloc((size_t)o->batch_bytes * SHARD_BATCHES);
        if (!s->memory)
            fail("memory");
        read_all(s->shard, s->memory, (size_t)o->batch_bytes * SHARD_BATCHES);
    }
    if (o->prefetch) {
        sem_init(&s->filled, 0, 0);
        sem_init(&s->empty, 0,
                 AHEAD); /* a buffer is empty again when the next batch is asked for */
        if (pthread_create(&s->loader, NULL, load_ahead, s))
            fail("thread");
    }
    return s;
}

const float *source_batch(struct source_state *s, long step, long micro)
{
    long index = step * s->o->accumulate + micro;
    s->last = index;
    if (s->memory)
        return (const float *)(s->memory + index % SHARD_BATCHES * s->o->batch_bytes);
    if (s->o->prefetch) {
        if (s->taken++)
            sem_post(&s->empty);
        sem_wait(&s->filled);
    } else {
        load(s, index);
    }
    return (const float *)s->buffer[index % AHEAD];
}

void source_copied(struct source_state *s)
{
    if (!s->memory)
        cuda_check(cudaEventRecord(s->copied[s->last % AHEAD], NULL), "cudaEventRecord");
}

const float *source_validation(struct source_state *s)
{
    static char *buffer;
    if (!buffer)
        buffer = malloc((size_t)s->o->batch_bytes);
    if (!buffer)
        fail("memory");
    wait_for_storage(s, s->o->us[STAGE_input]);
    read_all(s->validation, buffer, (size_t)s->o->batch_bytes);
    return (const float *)buffer;
}

void source_close(struct source_state *s)
{
    if (s->o->prefetch)
        pthread_join(s->loader, NULL);
    close(s->shard);
    close(s->validation);
    close(s->timer);
}
