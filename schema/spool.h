/*
 * spool.h - the contract between the library inside a training process (the writer) and the
 * programs that read what it left (the recorder and every later reader): one mapped file.
 *
 * A spool is made once per process, at its first sign of training, and has a fixed size:
 *
 *     page 0        struct lg_spool: identity, ring positions, how it ended
 *     page 1        struct lg_status: what the training thread does now (for `laggard watch`)
 *     page 2        LG_WORKERS x struct lg_worker: forked loader workers
 *     page 3        LG_GROUPS x struct lg_group: process groups and communicators
 *     page 4        held: up to 8 rows that may still be merged into a later one
 *     page 5        provisional: two copies of the open row, written at its commit
 *     page 6        LG_LIBRARIES x struct lg_library: the program, and copies of NCCL
 *     page 7        spare, zero
 *     from page 8   the ring: LG_SLOTS x struct lg_slot
 *
 * The writer fills ring slot (head % LG_SLOTS), then raises head (release). The reader takes the
 * slots in [tail, head), makes them durable, then raises tail (release). The writer never overtakes
 * tail + LG_SLOTS: when the ring is full it opens one more file (same name, next seq) or, if that
 * fails, records why in stop_reason and ends. Both ends live on one host, so the layout is native;
 * sizes and offsets are asserted below. Nothing in a spool may be trusted by a reader: a file can
 * be truncated or garbage.
 *
 * When the writer is gone (its pid does not exist or has another start time) a reader takes, in
 * this order: the ring, held[0..held_count), then the provisional copy with the larger `serial`,
 * unless its step is already there. For one step number the later one in this order wins.
 *
 * A process that found no room for a spool leaves a symbolic link in its place, which needs none:
 * the same name with LG_LOST_SUFFIX, leading to "REASON:RANK:WORLD:RANK_SOURCE" (decimal numbers,
 * enum lg_loss and enum lg_rank_source).
 */
#ifndef LAGGARD_SCHEMA_SPOOL_H
#define LAGGARD_SCHEMA_SPOOL_H

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define LG_SPOOL_MAGIC   "LAGSPOOL"
#define LG_SPOOL_VERSION 1u
#define LG_SPOOL_SUFFIX  ".spool"
#define LG_LOST_SUFFIX   ".lost"
#define LG_PAGE          4096u
#define LG_SLOTS         8192u
#define LG_HELD          8u
#define LG_WORKERS       64u
#define LG_GROUPS        32u
#define LG_LIBRARIES     8u
#define LG_RING_OFFSET   (8u * LG_PAGE)
#define LG_NULL          INT64_MIN /* a column's value when it was not measured */
/* 18 years in nanoseconds, half an exabyte: no value of a step is larger, and sums can't overflow
 */
#define LG_LARGEST (INT64_C(1) << 59)

/* the six stages, in the order of the columns */
#define LG_STAGES(X)        X(input_wait) X(h2d) X(forward) X(backward) X(optimizer) X(other)
#define LG_STAGE_ENUM(name) LG_STAGE_##name,
enum lg_stage { LG_STAGES(LG_STAGE_ENUM) LG_STAGE_COUNT };

/* column numbers: LG_COL_dur_ns ...; every column has a place in a slot, DERIVED ones too */
#define COLUMN(name, table, unit, meaning) LG_COL_##name,
enum lg_column {
#include "columns.def"
    LG_COLUMNS
};
#undef COLUMN

#define FLAG(bit, name, meaning) LG_FLAG_##name = 1 << (bit),
enum lg_flag {
#include "bits.def"
};
#define SOURCE(bit, name, meaning) LG_SOURCE_##name = 1 << (bit),
enum lg_source {
#include "bits.def"
};
#define LOSS(number, name, meaning) LG_LOSS_##name = (number),
enum lg_loss {
#include "bits.def"
};

enum lg_slot_state {
    LG_SLOT_OPEN = 0,      /* being written */
    LG_SLOT_HOST_DONE = 1, /* all but the gpu_ columns, which arrive later */
    LG_SLOT_COMPLETE = 2
};

/* One row. `step` counts from 0 in each process. */
struct lg_slot {
    _Atomic uint32_t state; /* enum lg_slot_state */
    uint32_t serial;        /* provisional copies: which is newer */
    uint64_t step;
    int64_t value[LG_COLUMNS]; /* LG_NULL: not measured */
    int64_t spare[62 - LG_COLUMNS];
};

/* How rank and world size became known; a larger number wins. */
enum lg_rank_source {
    LG_RANK_UNKNOWN = 0, /* no sign of other ranks: rank 0 of 1 */
    LG_RANK_SLURM,       /* SLURM_PROCID */
    LG_RANK_PMI,         /* PMI_RANK, PMIX_RANK */
    LG_RANK_OMPI,        /* OMPI_COMM_WORLD_RANK */
    LG_RANK_ENV,         /* RANK */
    LG_RANK_COMMUNICATOR /* the largest group: c10d, gloo or NCCL */
};

/* what the process was seen to use: lg_spool.seen, a bit set */
enum lg_seen {
    LG_SEEN_TORCH = 1 << 0,        /* PyTorch's probes are installed */
    LG_SEEN_TORCH_PARTLY = 1 << 1, /* some of PyTorch's symbols were not found */
    LG_SEEN_GLOO = 1 << 2,
    LG_SEEN_NCCL = 1 << 3,
    LG_SEEN_CUDA = 1 << 4,
    LG_SEEN_FSDP = 1 << 5, /* FSDP labels: the published policy's strategy is fsdp */
    LG_SEEN_DDP = 1 << 6,
    LG_SEEN_LOADER = 1 << 7,    /* DataLoader labels */
    LG_SEEN_OPTIMIZER = 1 << 8, /* Optimizer.step labels */
    LG_SEEN_BACKWARD = 1 << 9,  /* Engine::execute */
    LG_SEEN_DRIVER = 1 << 10    /* CUDA's driver library is loaded */
};

enum lg_ended {
    LG_RUNNING = 0,
    LG_ENDED_EXIT = 1 /* exit, _exit or quick_exit was reached; anything else ends without a word */
};

struct lg_spool {
    char magic[8];
    uint32_t version;    /* LG_SPOOL_VERSION */
    uint32_t columns;    /* LG_COLUMNS of the writer */
    uint64_t file_bytes; /* size of the whole file */
    uint32_t slots;      /* LG_SLOTS */
    uint32_t slot_bytes; /* sizeof(struct lg_slot) */
    uint32_t pid, parent_pid;
    uint64_t
        proc_start; /* field 22 of /proc/PID/stat: with pid and boot_id the process' identity */
    uint32_t seq;   /* 0, 1, ...: which file of this process */
    uint32_t reserved;
    int64_t mono_ns, real_ns; /* one moment on CLOCK_MONOTONIC and CLOCK_REALTIME */
    char boot_id[40];         /* /proc/sys/kernel/random/boot_id, text */
    char run_id[40];          /* LAGGARD_RUN, text */
    char host[64];
    char torch_path[160]; /* where libtorch_cpu was loaded from, "" if it was not */
    char nccl_version[32];
    _Atomic int32_t rank, world; /* rank -1: not known */
    _Atomic int32_t local_rank;  /* LOCAL_RANK, -1: not known */
    _Atomic uint32_t rank_source;
    _Atomic uint32_t seen;
    _Atomic uint32_t held_count;
    _Atomic uint64_t head;           /* rows written to the ring */
    _Atomic uint64_t tail;           /* rows that a reader made durable */
    _Atomic uint64_t steps_complete; /* commits reached */
    _Atomic uint32_t ended;          /* enum lg_ended */
    _Atomic uint32_t exit_status;
    _Atomic uint32_t stop_reason; /* enum lg_loss: why recording stopped, 0 if it did not */
    _Atomic uint32_t next_file;   /* 1: the process went on in the file with the next seq */
    _Atomic uint64_t stop_step;
    _Atomic uint64_t rows_lost;
    _Atomic uint64_t entries_dropped; /* nesting entries repaired (jumps, exceptions) */
};

/* Updated at each event of the training thread; plain stores, a reader may see a mix. */
struct lg_status {
    _Atomic uint64_t step;
    _Atomic uint64_t since_ns; /* CLOCK_MONOTONIC */
    _Atomic uint32_t stage;    /* enum lg_stage */
    _Atomic uint32_t in_collective;
    _Atomic uint64_t collective_seq;
    _Atomic uint32_t training_tid;
};

struct lg_worker {
    _Atomic uint32_t pid;
    _Atomic uint32_t ended; /* 1: left in order */
    _Atomic uint64_t begin_ns;
    _Atomic uint64_t reads;
    _Atomic uint64_t read_bytes;
    _Atomic uint64_t read_ns;
    uint64_t spare[3];
};

struct lg_group {
    _Atomic uint64_t id; /* address of the group or communicator, 0: free entry */
    _Atomic int32_t rank, size;
    _Atomic uint64_t seq;   /* collectives issued in it */
    _Atomic uint64_t bytes; /* of those, as far as known */
    _Atomic uint32_t kind;  /* enum lg_group_kind */
    uint32_t reserved;
    uint64_t spare[11];
};

/* A file that the process runs: what of it could be seen says what could not. */
struct lg_library {
    _Atomic uint32_t kind;          /* enum lg_library_kind, 0: free entry */
    _Atomic uint32_t communicators; /* made in this copy of NCCL, as far as hooks saw */
    char version[40];               /* "": not known */
    char path[464];                 /* as it was loaded; "" where it is longer */
};

enum lg_library_kind { LG_LIBRARY_PROGRAM = 1, LG_LIBRARY_NCCL = 2 };

enum lg_group_kind { LG_GROUP_C10D = 1, LG_GROUP_GLOO = 2, LG_GROUP_NCCL = 3 };

#define LG_SPOOL_BYTES (LG_RING_OFFSET + (uint64_t)LG_SLOTS * sizeof(struct lg_slot))

static_assert(sizeof(struct lg_slot) == 512, "a slot is 512 bytes");
static_assert(sizeof(struct lg_spool) <= LG_PAGE, "the header is one page");
static_assert(sizeof(struct lg_status) <= LG_PAGE, "the status is one page");
static_assert(sizeof(struct lg_worker) * LG_WORKERS == LG_PAGE, "the workers are one page");
static_assert(sizeof(struct lg_group) * LG_GROUPS == LG_PAGE, "the groups are one page");
static_assert(sizeof(struct lg_library) * LG_LIBRARIES == LG_PAGE, "the libraries are one page");
static_assert(sizeof(struct lg_slot) * LG_HELD == LG_PAGE, "the held rows are one page");

static inline struct lg_status *lg_spool_status_page(struct lg_spool *s)
{
    return (struct lg_status *)((char *)s + 1 * LG_PAGE);
}
static inline struct lg_worker *lg_spool_workers(struct lg_spool *s)
{
    return (struct lg_worker *)((char *)s + 2 * LG_PAGE);
}
static inline struct lg_group *lg_spool_groups(struct lg_spool *s)
{
    return (struct lg_group *)((char *)s + 3 * LG_PAGE);
}
static inline struct lg_slot *lg_spool_held(struct lg_spool *s)
{
    return (struct lg_slot *)((char *)s + 4 * LG_PAGE);
}
static inline struct lg_slot *lg_spool_provisional(struct lg_spool *s)
{
    return (struct lg_slot *)((char *)s + 5 * LG_PAGE);
}
static inline struct lg_library *lg_spool_libraries(struct lg_spool *s)
{
    return (struct lg_library *)((char *)s + 6 * LG_PAGE);
}
static inline struct lg_slot *lg_spool_ring(struct lg_spool *s)
{
    return (struct lg_slot *)((char *)s + LG_RING_OFFSET);
}

#endif
