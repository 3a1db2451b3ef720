/*
 * simcuda.h - what libcudart.so of the asynchronous stand-ins offers beyond CUDA's own interface:
 * to the other stand-in libraries (operations of streams, durations, counters) and to test programs
 * (steps, ranks, counts). sim.h of the blocking stand-ins, whose calls exist here as well, is
 * included. Context: the stand-in libraries and test programs. Times are CLOCK_MONOTONIC
 * nanoseconds.
 */
#ifndef SIM_CUDA_SIMCUDA_H
#define SIM_CUDA_SIMCUDA_H

#include "cuda_runtime_api.h"
#include "sim.h"

/* ---- for test programs, by ctypes as well */

/* The training step that rules of SIM_RULES go by. Without a call: collectives issued so far
 * divided by SIM_STEP_COLLECTIVES. */
void simStep(uint64_t step);

/* Whose settings this process has. Without a call: RANK and its like, else the first communicator.
 */
void simRank(int rank);

/* Keeps `stream` busy for exactly `ns`, whatever factors and rules there are. */
cudaError_t simBusy(cudaStream_t stream, uint64_t ns);

/* Nanoseconds that `stream` of the current device stood still for events so far, in what it has
 * done up to now: from where it had nothing else to do and knew of the wait. 0: no such stream. */
uint64_t simWaited(cudaStream_t stream);

/* Who called a function. DIRECT and THROUGH are the program's calls without and by way of the
 * tracer (a preloaded library of the name SIM_TRACER), OWN are the tracer's own. README.md: how
 * they differ. */
enum sim_caller { SIM_DIRECT, SIM_THROUGH, SIM_OWN, SIM_CALLERS };

/* Calls of `function` so far in this process; while_capturing: only those (1) or only the others
 * (0). */
uint64_t simCalls(const char *function, enum sim_caller caller, int while_capturing);

/* ---- for the other stand-in libraries */

/* X(name in rules, is the device's computing): what takes time */
#define SIM_WORKS(X)                                                                               \
    X(KERNEL, "kernel", 1)                                                                         \
    X(GEMM, "gemm", 1)                                                                             \
    X(MEMSET, "memset", 1)                                                                         \
    X(D2D, "d2d", 1)                                                                               \
    X(H2D, "h2d", 0)                                                                               \
    X(D2H, "d2h", 0)                                                                               \
    X(NCCL, "nccl", 0)                                                                             \
    X(PAGEABLE, "pageable", 0)                                                                     \
    X(HOST_ALLOC, "hostalloc", 0)

enum sim_work {
#define SIM_WORK_ENUM(name, text, computing) SIM_##name,
    SIM_WORKS(SIM_WORK_ENUM)
#undef SIM_WORK_ENUM
        SIM_WORK_COUNT
};

/* How long `amount` of this work takes now on this rank: blocks of a kernel's grid, bytes of a copy
 * or a collective; nothing for the rest. */
uint64_t simDuration(enum sim_work work, uint64_t amount);

/* A setting of this rank from the environment: a number, or a comma-separated list by rank whose
 * last number counts for all further ranks. */
double simSetting(const char *name, double otherwise);

/* A communicator says what rank this process is: counts where nothing else did. */
void simRankFound(int rank);

/* The calling thread's current device. */
int simDevice(void);

/* One more collective was issued (for SIM_STEP_COLLECTIVES). */
void simCollectiveIssued(void);

/* One operation of a stream: begin it with this. */
struct sim_op {
    struct sim_op *next;
    const struct sim_op_type *type;
    uint64_t issued_ns; /* it can't begin earlier */
    uint64_t extra_ns;  /* simSlow */
};

struct sim_op_type {
    enum cudaGraphNodeType node; /* what it is in a graph */
    /* Called where it is issued, in the order of the stream; never while it is captured. Optional.
     */
    void (*issue)(struct sim_op *op);
    /* Whether run() would neither wait nor touch memory now: it then runs where it is issued.
     * Optional. */
    int (*instant)(const struct sim_op *op);
    /* Does it, on the stream's thread. Returns when it ends; may wait for real time or for others.
     */
    uint64_t (*run)(struct sim_op *op, uint64_t begin_ns);
    /* Called once the stream counts it as done: whoever learns of the end finds that so. Optional.
     */
    void (*done)(struct sim_op *op);
    /* One more of it, for a replay of a graph. NULL: out of memory. */
    struct sim_op *(*copy)(const struct sim_op *op);
    void (*drop)(struct sim_op *op);
    int waits; /* its whole time is standing still for others */
};

/* Puts `op` into `stream`, or into the graph that the stream captures. Takes `op` over in any case.
 * Returns like a launch; the last error is the caller's affair. */
cudaError_t simEnqueue(cudaStream_t stream, struct sim_op *op);

/* The stream behind a handle, whatever the current device is: NULL is that of `device`. NULL: none.
 */
cudaStream_t simStreamOf(int device, cudaStream_t handle);

/* One gemm-like kernel. */
cudaError_t simGemm(cudaStream_t stream);

/* Counts a call of an exported function and returns whose it is. `tracers`: it is about an object
 * that the tracer made. SIM_ENTER() comes first in each exported function; it declares `caller_`.
 */
struct sim_counter {
    _Atomic(struct sim_calls *) calls;
};
enum sim_caller simCount(struct sim_counter *counter, const char *function, const void *caller,
                         int tracers);

#define SIM_ENTER_FOR(tracers)                                                                     \
    static struct sim_counter counter_;                                                            \
    const enum sim_caller caller_ =                                                                \
        simCount(&counter_, __func__, __builtin_return_address(0), tracers);                       \
    (void)caller_
#define SIM_ENTER() SIM_ENTER_FOR(0)

/* For generated stubs: says once on stderr that `function` is not there. Returns `error`. */
int simMissing(const char *function, int error);

#endif
