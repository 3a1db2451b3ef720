/*
 * io_victim.c - calls every input, output and wait function that the library stands in for, once
 * with success and once with an error, and says what came back and what errno was then. The same
 * with and without the library.
 *
 *     io-victim LIBTORCH_PYTHON idle|training|no-loader|thread|worker
 *
 * idle: in a program that does not train; training, no-loader: in each of STEPS steps, on the
 * training thread, with and without a DataLoader; thread: on another thread of a training process;
 * worker: in a fork child of one. The last line sums up what was read, written and synced.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "victim.h"

enum { STEPS = 4, MARKER = 4711, SIZE = 97 };

/* what -D_FORTIFY_SOURCE makes of read and its like */
extern ssize_t __read_chk(int, void *, size_t, size_t);
extern ssize_t __pread_chk(int, void *, size_t, off_t, size_t);
extern ssize_t __pread64_chk(int, void *, size_t, off64_t, size_t);
extern ssize_t __recv_chk(int, void *, size_t, size_t, int);
extern int __poll_chk(struct pollfd *, nfds_t, int, size_t);

enum kind { READ, WRITE, SYNC, WAIT };

static struct {
    int file, peer, socket, epoll;
    sem_t semaphore;
    char buffer[SIZE];
    struct iovec vector;
    struct msghdr message;
} it;

static struct {
    long reads, read_bytes, write_bytes, syncs;
} total;

static void prepare(void)
{
    int ends[2];
    struct epoll_event event = {.events = EPOLLOUT};
    it.file = memfd_create("io-victim", MFD_CLOEXEC);
    if (it.file < 0 || ftruncate(it.file, 1 << 20) != 0 ||
        socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0 || (it.epoll = epoll_create1(0)) < 0 ||
        epoll_ctl(it.epoll, EPOLL_CTL_ADD, ends[0], &event) != 0)
        exit(2);
    it.socket = ends[0];
    it.peer = ends[1];
    sem_init(&it.semaphore, 0, 0);
    it.vector = (struct iovec){it.buffer, sizeof it.buffer};
    it.message = (struct msghdr){.msg_iov = &it.vector, .msg_iovlen = 1};
}

static void result(enum kind kind, const char *name, long r)
{
    int e = errno;
    printf("%s: %ld, errno %s\n", name, r, e == MARKER ? "kept" : strerror(e));
    total.reads += kind == READ;
    if (kind == READ && r > 0)
        total.read_bytes += r;
    if (kind == WRITE && r > 0)
        total.write_bytes += r;
    total.syncs += kind == SYNC;
}

/* so that there is something to receive and to wait for */
static void feed(void)
{
    if (send(it.peer, it.buffer, sizeof it.buffer, 0) != sizeof it.buffer)
        exit(2);
    sem_post(&it.semaphore);
}

#define CALL(kind, name, arguments)                                                                \
    do {                                                                                           \
        errno = MARKER;                                                                            \
        result(kind, #name, name arguments);                                                       \
    } while (0)

static void files(int fd)
{
    char *b = it.buffer;
    CALL(READ, read, (fd, b, SIZE));
    CALL(READ, pread, (fd, b, SIZE, 3));
    CALL(READ, pread64, (fd, b, SIZE, 3));
    CALL(READ, readv, (fd, &it.vector, 1));
    CALL(READ, preadv, (fd, &it.vector, 1, 5));
    CALL(READ, preadv64, (fd, &it.vector, 1, 5));
    CALL(READ, preadv2, (fd, &it.vector, 1, 5, 0));
    CALL(READ, preadv64v2, (fd, &it.vector, 1, 5, 0));
    CALL(READ, __read_chk, (fd, b, SIZE, SIZE));
    CALL(READ, __pread_chk, (fd, b, SIZE, 3, SIZE));
    CALL(READ, __pread64_chk, (fd, b, SIZE, 3, SIZE));
    CALL(WRITE, write, (fd, b, SIZE));
    CALL(WRITE, pwrite, (fd, b, SIZE, 1000));
    CALL(WRITE, pwrite64, (fd, b, SIZE, 1000));
    CALL(WRITE, writev, (fd, &it.vector, 1));
    CALL(SYNC, fsync, (fd));
    CALL(SYNC, fdatasync, (fd));
}

static void sockets(int fd)
{
    char *b = it.buffer;
    struct sockaddr_storage from;
    socklen_t size = sizeof from;
    int flags = MSG_DONTWAIT;
    feed();
    CALL(READ, recv, (fd, b, SIZE, flags));
    feed();
    CALL(READ, recvfrom, (fd, b, SIZE, flags, (struct sockaddr *)&from, &size));
    feed();
    CALL(READ, recvmsg, (fd, &it.message, flags));
    feed();
    CALL(READ, __recv_chk, (fd, b, SIZE, SIZE, flags));
}

/* `good`: they have something to report; else they end with an error. */
static void waits(int good)
{
    struct timespec soon = {0, 1000}, past = {1, 0};
    struct timeval at_once = {0, 0};
    struct pollfd p = {it.socket, POLLOUT, 0};
    struct pollfd *where = good ? &p : NULL;
    struct epoll_event event;
    fd_set set;
    FD_ZERO(&set);
    FD_SET(good ? it.socket : 1000, &set);
    CALL(WAIT, poll, (where, 1, 1));
    CALL(WAIT, __poll_chk, (where, 1, 1, sizeof p));
    CALL(WAIT, ppoll, (where, 1, &soon, NULL));
    CALL(WAIT, select, (1001, NULL, &set, NULL, &at_once));
    CALL(WAIT, epoll_wait, (good ? it.epoll : -1, &event, 1, 1));
    if (good)
        CALL(WAIT, sem_wait, (&it.semaphore));
    CALL(WAIT, sem_timedwait, (&it.semaphore, &past));
    CALL(WAIT, sem_clockwait, (&it.semaphore, CLOCK_MONOTONIC, &past));
}

static void everything(void)
{
    files(it.file);
    files(-1);
    sockets(it.socket);
    sockets(it.file);
    while (recv(it.socket, it.buffer, SIZE, MSG_DONTWAIT) > 0)
        total.reads++, total.read_bytes += SIZE; /* what the second round has sent */
    total.reads++;
    waits(1);
    while (sem_trywait(&it.semaphore) == 0)
        ;
    waits(0);
}

static void in_backward(void *unused)
{
    everything();
    victim_backward_node(unused);
}

static void train(int loader)
{
    for (int i = 0; i < STEPS; i++) {
        if (loader)
            victim_input();
        victim_forward();
        torch.execute(1, 1, in_backward, NULL);
        victim_optimizer();
    }
}

static void *in_thread(void *unused)
{
    everything();
    return unused;
}

static void in_child(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        everything();
        printf("reads %ld bytes %ld writes %ld syncs %ld\n", total.reads, total.read_bytes,
               total.write_bytes, total.syncs);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    const char *mode = argv[2];
    pthread_t thread;
    setvbuf(stdout, NULL, _IONBF, 0);
    prepare();
    if (strcmp(mode, "idle") == 0) {
        everything();
        return 7;
    }
    victim_load(argv[1]);
    torch.import();
    if (strcmp(mode, "training") == 0 || strcmp(mode, "no-loader") == 0) {
        train(strcmp(mode, "training") == 0);
    } else if (strcmp(mode, "thread") == 0) {
        victim_train(STEPS);
        if (pthread_create(&thread, NULL, in_thread, NULL) != 0)
            return 2;
        pthread_join(thread, NULL);
        total.reads = total.read_bytes = total.write_bytes = total.syncs = 0;
        victim_train(STEPS);
    } else {
        victim_train(STEPS);
        in_child();
        victim_train(STEPS);
    }
    printf("reads %ld bytes %ld writes %ld syncs %ld\n", total.reads, total.read_bytes,
           total.write_bytes, total.syncs);
    return 7;
}
