/*
 * boot.h - the life of the library in a process and what every hook asks first.
 *
 * States: COLD -> INIT -> READY -> DEAD, by compare-and-swap. Before READY and after DEAD every
 * hook only makes the real call. The constructor does nothing but resolve libc's functions;
 * everything else waits for the first sign that this process trains (events.h), so a shell or
 * compiler that inherits LD_PRELOAD costs one walk over its loaded objects and leaves no trace.
 */
#ifndef LAGGARD_PRELOAD_BOOT_H
#define LAGGARD_PRELOAD_BOOT_H

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define LG_LIKELY(x)   __builtin_expect(!!(x), 1)
#define LG_UNLIKELY(x) __builtin_expect(!!(x), 0)

enum lg_state { LG_COLD, LG_INIT, LG_READY, LG_DEAD };

/* What this process is to us. The kernel wipes the page in every fork child (MADV_WIPEONFORK; also
 * for _Fork and raw clone), so that no child ever takes itself for its parent; fork's child handler
 * then says LG_ROLE_FORKED. A vfork child shares its parent's memory and its role: cold paths
 * compare getpid() with lg_process.pid. */
enum lg_role {
    LG_ROLE_UNKNOWN = 0, /* not booted, or a child by _Fork or clone: every hook passes through */
    LG_ROLE_NORMAL = 1,
    LG_ROLE_WORKER = 2,   /* forked by a rank, reads data for it */
    LG_ROLE_FORKED = 3,   /* a fork child that has not called a hook yet */
    LG_ROLE_BECOMING = 4, /* its first hooked call is at work: passes through on other threads */
};

/* What is wiped must be whole pages, and nothing else may be in them. Linux has pages of up to 64
 * KiB on machines other than x86. */
#if defined(__x86_64__)
#define LG_WIPED_BYTES 4096
#else
#define LG_WIPED_BYTES 65536
#endif

struct lg_page {
    _Atomic uint32_t role;
    _Atomic uint32_t worker_asked; /* 1: this process has looked for a worker record */
    void *_Atomic worker;          /* struct lg_worker of this process in its parent's spool */
    char fill[LG_WIPED_BYTES - 16];
};
static_assert(sizeof(struct lg_page) == LG_WIPED_BYTES, "the page is filled");
extern struct lg_page lg_page;

struct lg_process {
    _Atomic uint32_t state;
    uint32_t pid;  /* of the process that booted, or of the fork child that took over */
    bool disabled; /* LAGGARD_DISABLE, or something that we need is missing */
    uint32_t
        training; /* generation of the training thread: lg_tls.training of the one that is it */
    bool torch;   /* PyTorch's probes are installed */
    bool time_io; /* the training thread's reads and waits are events */
};
extern struct lg_process lg_process;

/* One small thread-local struct, in static TLS. */
struct lg_tls {
    uint32_t training;   /* == lg_process.training: this is the training thread */
    uint32_t guard;      /* > 0: our own bookkeeping is running on this thread */
    uint32_t nccl_group; /* depth of ncclGroupStart */
    bool nccl_marked;    /* a collective of the open group goes to the compute stream */
};
extern __thread struct lg_tls lg_tls __attribute__((tls_model("initial-exec")));

/* True on the training thread of a process that records, outside of our own bookkeeping. */
static inline bool lg_on_training_thread(void)
{
    return lg_tls.training != 0 && lg_tls.training == lg_process.training &&
           lg_page.role == LG_ROLE_NORMAL && lg_tls.guard == 0;
}

/* True when a hook may do something beyond the real call; sorts out fork children first. */
bool lg_awake(void);

/* Cold paths that change state ask this: false in a vfork child that runs in its parent's memory.
 */
bool lg_own_process(void);

/* Calls the handler at exit, before what was registered earlier. Not where libc has no on_exit
 * (musl).
 */
void lg_at_exit(void (*handler)(int status, void *unused));

/* Ends recording in this process, once. Called at exit and from _exit and its like. */
void lg_finish(int status);

/* errno of the program survives the block that this stands in. */
static inline void lg_restore_errno(const int *saved)
{
    errno = *saved;
}
#define LG_KEEP_ERRNO                                                                              \
    const int lg_saved_errno __attribute__((cleanup(lg_restore_errno), unused)) = errno

#endif
