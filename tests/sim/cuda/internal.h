/*
 * internal.h - what the files of the stand-in libcudart share. Context: inside that library only.
 *
 * The ideal clock: an operation begins at the latest of its issue, the end of its stream's last one
 * and the events it waits for, and ends exactly its duration later. Most operations are arithmetic
 * on such times and done where they are issued; only those that touch memory, call back or meet
 * other ranks are done on the stream's thread, which then sleeps until the time has come. Whoever
 * asks (a query, a synchronize) compares the ideal time with the clock. So elapsed times are exact
 * on a noisy machine.
 */
#ifndef SIM_CUDA_INTERNAL_H
#define SIM_CUDA_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include "futex.h"
#include "simcuda.h"

#define API         __attribute__((visibility("default")))
#define MAX_DEVICES 128

/* ---- knobs.c */

/* X(field, environment variable, default, unit in the field's): README.md explains them */
#define SIM_KNOBS(X)                                                                               \
    X(kernel_ns, "SIM_KERNEL_US", 5, 1000)                                                         \
    X(block_ns, "SIM_BLOCK_NS", 0, 1)                                                              \
    X(gemm_ns, "SIM_GEMM_US", 20, 1000)                                                            \
    X(copy_ns, "SIM_COPY_US", 4, 1000)                                                             \
    X(copy_mbps, "SIM_COPY_MBPS", 20000, 1)                                                        \
    X(d2d_mbps, "SIM_D2D_MBPS", 1000000, 1)                                                        \
    X(nccl_ns, "SIM_NCCL_US", 30, 1000)                                                            \
    X(nccl_mbps, "SIM_NCCL_MBPS", 10000, 1)                                                        \
    X(pageable_ns, "SIM_PAGEABLE_US", 0, 1000)                                                     \
    X(pageable_mbps, "SIM_PAGEABLE_MBPS", 0, 1)                                                    \
    X(pageable_staged, "SIM_PAGEABLE_STAGED", 65536, 1)                                            \
    X(host_alloc_ns, "SIM_HOST_ALLOC_US", 0, 1000)                                                 \
    X(factor, "SIM_FACTOR", 1, 1)                                                                  \
    X(not_ready, "SIM_NOT_READY", 0, 1)                                                            \
    X(queue_depth, "SIM_QUEUE_DEPTH", 1024, 1)                                                     \
    X(devices, "SIM_DEVICES", 8, 1)                                                                \
    X(device_mb, "SIM_DEVICE_MB", 32768, 1)                                                        \
    X(capability, "SIM_CC", 80, 1)                                                                 \
    X(step_collectives, "SIM_STEP_COLLECTIVES", 0, 1)                                              \
    X(trace, "SIM_TRACE", 0, 1)

struct sim_knobs {
#define SIM_KNOB_FIELD(field, name, otherwise, unit) double field;
    SIM_KNOBS(SIM_KNOB_FIELD)
#undef SIM_KNOB_FIELD
};

const struct sim_knobs *sim_knobs(void);
int sim_devices(void);

/* ---- device.c: errors and the current device */

/* Makes a failure the thread's last error. Returns it. */
cudaError_t sim_fail(cudaError_t error, const char *function);
#define DONE(error) sim_fail(error, __func__)

int sim_device(void);
/* Whether this process can't use devices: a fork child of one that did. Sets "did". */
int sim_forked(void);

/* ---- stream.c */

struct sim_nodes { /* a set of graph nodes */
    cudaGraphNode_t *node;
    size_t count;
};

struct CUstream_st {
    uint32_t magic;
    int device, priority, legacy, started, leaving;
    unsigned int flags;
    unsigned long long id;

    pthread_mutex_t lock; /* of the queue */
    struct sim_op *first, **last;
    _Atomic uint64_t issued, processed; /* counts of operations */
    _Atomic uint64_t busy_until;        /* end of the last one that was processed */
    _Atomic uint64_t waited;            /* ns that it stood still for events */
    _Atomic uint32_t news,
        progress; /* futexes: for the stream's thread, for those who wait for it */
    _Atomic uint32_t asleep, watched;
    uint64_t *ends; /* of the last `depth` operations */
    uint64_t depth;

    /* what it has in common with the device's legacy stream: counts of operations */
    uint64_t given_to_legacy, taken_from_legacy;

    /* under the capture lock */
    struct sim_capture *capture;
    struct sim_nodes dependencies; /* of the next node */

    cudaStream_t next; /* of all streams */
};

/* The stream behind a handle; NULL: no such stream. */
cudaStream_t sim_stream(cudaStream_t handle);
/* Waits until all that was issued to it has ended. */
void sim_stream_finish(cudaStream_t stream);
void sim_device_finish(int device);
/* Past the question of capture: orders it with the legacy stream and queues it. */
void sim_stream_put(cudaStream_t stream, struct sim_op *op);
/* Calls visit() for all streams until it returns non-zero; returns that. */
int sim_each_stream(int (*visit)(cudaStream_t stream, void *arg), void *arg);

/* ---- event.c */

/* A point in a stream's time: what an event was last recorded as, or what somebody waits for. */
struct sim_mark {
    _Atomic uint32_t references;
    _Atomic uint32_t timed; /* futex: 1 once `time_ns` is known */
    uint64_t time_ns;
    unsigned long long capture_id; /* 0: it is not in a capture */
    struct sim_nodes nodes;        /* what it stands for there */
};

struct CUevent_st {
    uint32_t magic;
    int device, tracers;
    unsigned int flags;
    pthread_mutex_t lock;
    struct sim_mark *mark; /* NULL: never recorded */
    uint64_t refusals;     /* queries that still answer NotReady */
};

struct sim_mark *sim_mark_new(void); /* with one reference */
void sim_mark_drop(struct sim_mark *mark);
uint64_t sim_mark_await(struct sim_mark *mark);
/* Operations that set and await a mark; each takes a reference of its own. */
struct sim_op *sim_op_record(struct sim_mark *mark);
struct sim_op *sim_op_wait(struct sim_mark *mark);
/* A graph's record or wait that is meant for the world outside it. */
struct sim_op *sim_op_external(cudaEvent_t event, int waits);

/* ---- capture.c, graph.c */

/* Number of open captures: 0 is the fast way past everything below. */
extern _Atomic uint32_t sim_open_captures;

/* Whether `op` went into a graph (1), is to be queued (0), or *error says why neither. */
int sim_capture_op(cudaStream_t stream, struct sim_op *op, cudaError_t *error);
/* For calls that are unsafe while somebody captures: error 900 and the captures are void. */
cudaError_t sim_capture_forbids(void);
/* For synchronising with, or asking for, a stream (NULL: any of `device`). */
cudaError_t sim_capture_forbids_asking(cudaStream_t stream, int device);
/* The answer to a query of a captured event. */
cudaError_t sim_capture_forbids_mark(const struct sim_mark *mark);
/* A record or a wait that may concern a capture; 1: done, 0: to be queued unless *error says why
 * not. */
int sim_capture_record(cudaStream_t stream, cudaEvent_t event, struct sim_mark *mark,
                       unsigned int flags, cudaError_t *error);
int sim_capture_wait(cudaStream_t stream, cudaEvent_t event, const struct sim_mark *mark,
                     unsigned int flags, cudaError_t *error);

struct CUgraphNode_st {
    cudaGraph_t graph;
    struct sim_op *op; /* NULL: empty */
    struct sim_nodes dependencies;
    size_t index;
};

struct CUgraph_st {
    uint32_t references;
    struct sim_nodes nodes; /* every node after those it depends on */
    struct sim_held *held;  /* user objects */
};

int sim_nodes_add(struct sim_nodes *set, cudaGraphNode_t node); /* 0: out of memory */
int sim_nodes_copy(struct sim_nodes *to, const struct sim_nodes *from);
void sim_nodes_clear(struct sim_nodes *set);
cudaGraph_t sim_graph_new(void);
void sim_graph_drop(cudaGraph_t graph);
cudaGraphNode_t sim_graph_add(cudaGraph_t graph, struct sim_op *op,
                              const struct sim_nodes *dependencies);

/* ---- memory.c */

int sim_on_device(const void *pointer); /* device number + 1, 0: not device memory */
int sim_is_pinned(const void *pointer);

#define SIM_OUT_OF_MEMORY(pointer)                                                                 \
    if (!(pointer))                                                                                \
    return cudaErrorMemoryAllocation

#endif
