/*
 * io.c - reads, writes and waits of the program. Context: hooks on any thread, hot; also signal
 * handlers and everything that runs before main.
 *
 * On the training thread calls and bytes are counted; in a program without PyTorch the time in them
 * is input as well (infer.c). In a loader worker that a rank forked they go to the worker's record.
 * On every other thread there is nothing but two comparisons.
 *
 * Nothing is held across the real call: a signal handler may jump out of it, a thread be cancelled
 * in it.
 */
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/boot.h"
#include "preload/clock.h"
#include "preload/counters.h"
#include "preload/events.h"
#include "preload/hooks.h"
#include "preload/infer.h"
#include "preload/spool.h"

enum who { NOBODY, TRAINING, WORKER };
enum kind { READ, WRITE, SYNC, WAIT };

struct mark {
    enum who who;
    uint64_t begin; /* ns, of a worker's call */
};

/* First call in a fork child, and every call of a loader worker. */
static __attribute__((noinline)) struct mark begin_elsewhere(void)
{
    if (lg_awake() && lg_page.role == LG_ROLE_WORKER)
        return (struct mark){WORKER, lg_now_ns()};
    return (struct mark){NOBODY, 0};
}

/* Writes are counted, but they are no input. */
static inline bool may_be_input(enum kind kind)
{
    return kind == READ || kind == WAIT;
}

static inline struct mark begin(enum kind kind)
{
    if (LG_UNLIKELY(lg_page.role != LG_ROLE_NORMAL))
        return begin_elsewhere();
    if (LG_LIKELY(!lg_on_training_thread()))
        return (struct mark){NOBODY, 0};
    if (may_be_input(kind)) {
        if (!lg_process.torch)
            lg_infer_wait_begin();
        else if (lg_process.time_io)
            lg_feed(LG_EV_IO_BEGIN, 0, NULL);
    }
    return (struct mark){TRAINING, 0};
}

static void count_training(enum kind kind, ssize_t result)
{
    uint64_t bytes = result > 0 ? (uint64_t)result : 0;
    if (kind == READ) {
        lg_thread_counters.reads++;
        lg_thread_counters.read_bytes += bytes;
    } else if (kind == WRITE) {
        lg_thread_counters.write_bytes += bytes;
    } else if (kind == SYNC) {
        lg_thread_counters.fsyncs++;
    }
    if (!may_be_input(kind))
        return;
    if (!lg_process.torch)
        lg_infer_wait_end();
    else if (lg_process.time_io)
        lg_feed(LG_EV_IO_END, 0, NULL);
}

static void count_worker(uint64_t begun, enum kind kind, ssize_t result)
{
    struct lg_worker *w = kind == READ ? lg_spool_worker() : NULL;
    if (w == NULL)
        return;
    lg_count(&w->reads, 1);
    lg_count(&w->read_bytes, result > 0 ? (uint64_t)result : 0);
    lg_count(&w->read_ns, lg_now_ns() - begun);
}

static __attribute__((noinline)) void end_counted(struct mark m, enum kind kind, ssize_t result)
{
    LG_KEEP_ERRNO;
    if (m.who == TRAINING && lg_on_training_thread())
        count_training(kind, result);
    else if (m.who == WORKER)
        count_worker(m.begin, kind, result);
}

/* One hook: count around the real function, or around `without` where there is none (yet). */
#define IO(kind, ret, id, params, arguments, without)                                              \
    ret hook_##id params                                                                           \
    {                                                                                              \
        struct mark m = begin(kind);                                                               \
        ret r = LG_LIKELY(real.id != NULL) ? real.id arguments : (ret)(without);                   \
        if (LG_UNLIKELY(m.who != NOBODY))                                                          \
            end_counted(m, kind, r);                                                               \
        return r;                                                                                  \
    }

static long missing(void)
{
    errno = ENOSYS;
    return -1;
}

/* RATIONALE: where no system call does the same, look again. Up to glibc 2.33 semaphores are in
 * libpthread, which a program may load after us. */
#define LATE(id, arguments) (REAL(id) != NULL ? (long)real.id arguments : missing())

/* Before our constructor has run: the system call itself. */
static long raw_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    struct timespec t = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
    return syscall(SYS_ppoll, fds, n, timeout_ms < 0 ? NULL : &t, NULL, 0L);
}

typedef const struct iovec *vectors;

IO(READ, ssize_t, read, (int fd, void *b, size_t n), (fd, b, n), syscall(SYS_read, fd, b, n))
IO(READ, ssize_t, pread, (int fd, void *b, size_t n, off_t o), (fd, b, n, o),
   syscall(SYS_pread64, fd, b, n, o))
IO(READ, ssize_t, pread64, (int fd, void *b, size_t n, off_t o), (fd, b, n, o),
   syscall(SYS_pread64, fd, b, n, o))
IO(READ, ssize_t, readv, (int fd, vectors v, int n), (fd, v, n), syscall(SYS_readv, fd, v, n))
IO(READ, ssize_t, preadv, (int fd, vectors v, int n, off_t o), (fd, v, n, o),
   syscall(SYS_preadv, fd, v, n, o, 0L))
IO(READ, ssize_t, preadv64, (int fd, vectors v, int n, off_t o), (fd, v, n, o),
   syscall(SYS_preadv, fd, v, n, o, 0L))
IO(READ, ssize_t, preadv2, (int fd, vectors v, int n, off_t o, int f), (fd, v, n, o, f),
   LATE(preadv2, (fd, v, n, o, f)))
IO(READ, ssize_t, preadv64v2, (int fd, vectors v, int n, off_t o, int f), (fd, v, n, o, f),
   LATE(preadv64v2, (fd, v, n, o, f)))
IO(READ, ssize_t, recv, (int fd, void *b, size_t n, int f), (fd, b, n, f),
   syscall(SYS_recvfrom, fd, b, n, f, NULL, NULL))
IO(READ, ssize_t, recvfrom, (int fd, void *b, size_t n, int f, struct sockaddr *a, socklen_t *l),
   (fd, b, n, f, a, l), syscall(SYS_recvfrom, fd, b, n, f, a, l))
IO(READ, ssize_t, recvmsg, (int fd, struct msghdr *m_, int f), (fd, m_, f),
   syscall(SYS_recvmsg, fd, m_, f))
IO(READ, ssize_t, read_chk, (int fd, void *b, size_t n, size_t room), (fd, b, n, room),
   LATE(read_chk, (fd, b, n, room)))
IO(READ, ssize_t, pread_chk, (int fd, void *b, size_t n, off_t o, size_t room), (fd, b, n, o, room),
   LATE(pread_chk, (fd, b, n, o, room)))
IO(READ, ssize_t, pread64_chk, (int fd, void *b, size_t n, off_t o, size_t room),
   (fd, b, n, o, room), LATE(pread64_chk, (fd, b, n, o, room)))
IO(READ, ssize_t, recv_chk, (int fd, void *b, size_t n, size_t room, int f), (fd, b, n, room, f),
   LATE(recv_chk, (fd, b, n, room, f)))
IO(WRITE, ssize_t, write, (int fd, const void *b, size_t n), (fd, b, n),
   syscall(SYS_write, fd, b, n))
IO(WRITE, ssize_t, pwrite, (int fd, const void *b, size_t n, off_t o), (fd, b, n, o),
   syscall(SYS_pwrite64, fd, b, n, o))
IO(WRITE, ssize_t, pwrite64, (int fd, const void *b, size_t n, off_t o), (fd, b, n, o),
   syscall(SYS_pwrite64, fd, b, n, o))
IO(WRITE, ssize_t, writev, (int fd, vectors v, int n), (fd, v, n), syscall(SYS_writev, fd, v, n))
IO(SYNC, int, fsync, (int fd), (fd), syscall(SYS_fsync, fd))
IO(SYNC, int, fdatasync, (int fd), (fd), syscall(SYS_fdatasync, fd))
IO(WAIT, int, poll, (struct pollfd * p, nfds_t n, int t), (p, n, t), raw_poll(p, n, t))
IO(WAIT, int, poll_chk, (struct pollfd * p, nfds_t n, int t, size_t room), (p, n, t, room),
   LATE(poll_chk, (p, n, t, room)))
IO(WAIT, int, ppoll, (struct pollfd * p, nfds_t n, const struct timespec *t, const sigset_t *s),
   (p, n, t, s), LATE(ppoll, (p, n, t, s)))
IO(WAIT, int, select, (int n, fd_set *r_, fd_set *w, fd_set *e, struct timeval *t),
   (n, r_, w, e, t), LATE(select, (n, r_, w, e, t)))
IO(WAIT, int, epoll_wait, (int fd, struct epoll_event *e, int n, int t), (fd, e, n, t),
   syscall(SYS_epoll_pwait, fd, e, n, t, NULL, 8L))
IO(WAIT, int, sem_wait, (sem_t * s), (s), LATE(sem_wait, (s)))
IO(WAIT, int, sem_timedwait, (sem_t * s, const struct timespec *t), (s, t),
   LATE(sem_timedwait, (s, t)))
IO(WAIT, int, sem_clockwait, (sem_t * s, clockid_t c, const struct timespec *t), (s, c, t),
   LATE(sem_clockwait, (s, c, t)))
