/*
 * copy.c - copies and fills: they move real bytes at the end of their ideal time, on the stream's
 * thread. Context: inside the stand-in libcudart, any thread.
 *
 * From or to pageable memory the caller is involved: a host-to-device copy of at most
 * SIM_PAGEABLE_STAGED bytes is taken over at once, any other pageable copy returns when it is done.
 */
#include <string.h>

#include "internal.h"

struct rectangle {
    void *to;
    const void *from;
    size_t to_pitch, from_pitch, width, rows;
};

struct copy_op {
    struct sim_op op;
    struct rectangle r;
    void *staged; /* the source, taken over */
    enum sim_work work;
    uint64_t ns;
};

static void move(const struct rectangle *r)
{
    char *to = simHost(r->to);
    const char *from = simHost(r->from);
    for (size_t i = 0; i < r->rows; i++)
        memmove(to + i * r->to_pitch, from + i * r->from_pitch, r->width);
}

static void issue_copy(struct sim_op *op)
{
    struct copy_op *c = (struct copy_op *)op;
    c->ns = simDuration(c->work, c->r.width * c->r.rows);
}

static uint64_t run_copy(struct sim_op *op, uint64_t begin_ns)
{
    struct copy_op *c = (struct copy_op *)op;
    sim_sleep_until(begin_ns + c->ns);
    move(&c->r);
    return begin_ns + c->ns;
}

static void drop_copy(struct sim_op *op)
{
    free(((struct copy_op *)op)->staged);
    free(op);
}

static struct sim_op *again_copy(const struct sim_op *op)
{
    struct copy_op *c = malloc(sizeof *c);
    if (c)
        *c = *(const struct copy_op *)op;
    return c ? &c->op : NULL;
}

static const struct sim_op_type copy_type = {
    .node = cudaGraphNodeTypeMemcpy,
    .issue = issue_copy,
    .run = run_copy,
    .copy = again_copy,
    .drop = drop_copy,
};

/* What kind of work it is, by its pointers; -1: `kind` says otherwise. */
static int work_of(const struct rectangle *r, enum cudaMemcpyKind kind)
{
    int to = sim_on_device(r->to) != 0, from = sim_on_device(r->from) != 0;
    int to_said = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    int from_said = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (kind != cudaMemcpyDefault && (to != to_said || from != from_said))
        return -1;
    return to ? (from ? SIM_D2D : SIM_H2D) : SIM_D2H;
}

/* Takes the source over, so that the caller may change it. */
static int stage(struct copy_op *c)
{
    struct rectangle *r = &c->r;
    c->staged = malloc(r->width * r->rows);
    if (!c->staged)
        return 0;
    struct rectangle in = {.to = c->staged,
                           .from = r->from,
                           .to_pitch = r->width,
                           .from_pitch = r->from_pitch,
                           .width = r->width,
                           .rows = r->rows};
    move(&in);
    r->from = c->staged;
    r->from_pitch = r->width;
    return 1;
}

static int is_pageable(const void *pointer)
{
    return !sim_on_device(pointer) && !sim_is_pinned(pointer);
}

/* Does the host's part of a copy. Returns whether the caller has to wait for the rest. */
static int prepare(struct copy_op *c, int blocking)
{
    const struct sim_knobs *k = sim_knobs();
    size_t bytes = c->r.width * c->r.rows;
    if (!is_pageable(c->r.from) && !is_pageable(c->r.to))
        return blocking;
    sim_sleep_until(sim_now() + simDuration(SIM_PAGEABLE, bytes));
    if (blocking || is_pageable(c->r.to) || (double)bytes > k->pageable_staged)
        return 1;
    return !stage(c);
}

static cudaError_t copy(const struct rectangle *r, enum cudaMemcpyKind kind, cudaStream_t handle,
                        int blocking)
{
    if ((unsigned int)kind > cudaMemcpyDefault)
        return cudaErrorInvalidMemcpyDirection;
    int work = work_of(r, kind);
    cudaStream_t stream = sim_stream(handle);
    if (!r->width || !r->rows)
        return cudaSuccess;
    if (work < 0 || !stream)
        return work < 0 ? cudaErrorInvalidValue : cudaErrorInvalidResourceHandle;
    struct copy_op *c = calloc(1, sizeof *c);
    SIM_OUT_OF_MEMORY(c);
    *c = (struct copy_op){.op.type = &copy_type, .r = *r, .work = (enum sim_work)work};
    int capturing = atomic_load(&sim_open_captures) && stream->capture;
    int wait = !capturing && prepare(c, blocking);
    cudaError_t error = simEnqueue(handle, &c->op);
    if (!error && wait)
        sim_stream_finish(stream);
    return error;
}

static struct rectangle line(void *to, const void *from, size_t size)
{
    return (struct rectangle){.to = to, .from = from, .width = size, .rows = 1};
}

API cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
                                cudaStream_t stream)
{
    SIM_ENTER();
    struct rectangle r = line(to, from, size);
    return DONE(copy(&r, kind, stream, 0));
}

API cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind)
{
    SIM_ENTER();
    struct rectangle r = line(to, from, size);
    cudaError_t error = sim_capture_forbids();
    return DONE(error ? error : copy(&r, kind, NULL, 1));
}

API cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                                  size_t width, size_t height, enum cudaMemcpyKind kind,
                                  cudaStream_t stream)
{
    SIM_ENTER();
    struct rectangle r = {to, from, to_pitch, from_pitch, width, height};
    return DONE(copy(&r, kind, stream, 0));
}

API cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                    size_t size, cudaStream_t stream)
{
    SIM_ENTER();
    (void)to_device;
    (void)from_device;
    struct rectangle r = line(to, from, size);
    return DONE(copy(&r, cudaMemcpyDeviceToDevice, stream, 0));
}

/* Variables of the device have no content (memory.c). */
API cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t size, size_t offset,
                                   enum cudaMemcpyKind kind)
{
    SIM_ENTER();
    (void)symbol;
    (void)from;
    (void)size;
    (void)offset;
    (void)kind;
    return DONE(sim_capture_forbids());
}

/* ---- fills */

struct fill_op {
    struct sim_op op;
    void *to;
    int value;
    size_t size;
    uint64_t ns;
};

static void issue_fill(struct sim_op *op)
{
    ((struct fill_op *)op)->ns = simDuration(SIM_MEMSET, 0);
}

static uint64_t run_fill(struct sim_op *op, uint64_t begin_ns)
{
    struct fill_op *f = (struct fill_op *)op;
    sim_sleep_until(begin_ns + f->ns);
    memset(simHost(f->to), f->value, f->size);
    return begin_ns + f->ns;
}

static struct sim_op *again_fill(const struct sim_op *op)
{
    struct fill_op *f = malloc(sizeof *f);
    if (f)
        *f = *(const struct fill_op *)op;
    return f ? &f->op : NULL;
}

static void drop_fill(struct sim_op *op)
{
    free(op);
}

static cudaError_t fill(void *to, int value, size_t size, cudaStream_t stream)
{
    static const struct sim_op_type type = {
        .node = cudaGraphNodeTypeMemset,
        .issue = issue_fill,
        .run = run_fill,
        .copy = again_fill,
        .drop = drop_fill,
    };
    if (!size)
        return cudaSuccess;
    if (is_pageable(to))
        return cudaErrorInvalidValue;
    struct fill_op *f = calloc(1, sizeof *f);
    SIM_OUT_OF_MEMORY(f);
    *f = (struct fill_op){.op.type = &type, .to = to, .value = value, .size = size};
    return simEnqueue(stream, &f->op);
}

API cudaError_t cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t stream)
{
    SIM_ENTER();
    return DONE(fill(to, value, size, stream));
}

API cudaError_t cudaMemset(void *to, int value, size_t size)
{
    SIM_ENTER();
    return DONE(fill(to, value, size, NULL));
}
