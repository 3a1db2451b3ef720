/*
 * foreign.c - a program for another C library (musl), or linked statically, or for 32 bits: it
 * reads, writes, waits, forks, vforks, makes threads and leaves by exit from one of them. Whatever
 * the loader makes of our LD_PRELOAD, it must do the same as without.
 *
 *     foreign [again]     with an argument: executes itself once more
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MARKER = 4711 };

static sem_t semaphore;

static void say(const char *name, long result)
{
    printf("%s: %ld, errno %s\n", name, result, errno == MARKER ? "kept" : strerror(errno));
    fflush(stdout);
    errno = MARKER;
}

static void *in_thread(void *socket)
{
    char buffer[16] = "from a thread";
    errno = MARKER;
    say("thread: send", send(*(int *)socket, buffer, sizeof buffer, 0));
    sem_post(&semaphore);
    return NULL;
}

static void files(void)
{
    char name[] = "/tmp/foreign-XXXXXX", buffer[32] = "thirty-two bytes of some content";
    struct iovec vector = {buffer, sizeof buffer};
    int fd = mkstemp(name);
    unlink(name);
    errno = MARKER;
    say("write", write(fd, buffer, sizeof buffer));
    say("writev", writev(fd, &vector, 1));
    say("pwrite", pwrite(fd, buffer, sizeof buffer, 5));
    say("fsync", fsync(fd));
    say("fdatasync", fdatasync(fd));
    say("pread", pread(fd, buffer, sizeof buffer, 3));
    say("read at the end", read(fd, buffer, sizeof buffer));
    lseek(fd, 0, SEEK_SET);
    say("readv", readv(fd, &vector, 1));
    close(fd);
    say("read, closed", read(fd, buffer, sizeof buffer));
}

static void waits(void)
{
    int ends[2];
    char buffer[16];
    pthread_t thread;
    struct timespec past = {1, 0};
    struct pollfd p = {.events = POLLIN};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        exit(2);
    sem_init(&semaphore, 0, 0);
    errno = MARKER;
    say("sem_timedwait", sem_timedwait(&semaphore, &past));
    pthread_create(&thread, NULL, in_thread, &ends[1]);
    pthread_join(thread, NULL);
    errno = MARKER;
    say("sem_wait", sem_wait(&semaphore));
    p.fd = ends[0];
    say("poll", poll(&p, 1, 1000));
    say("recv", recv(ends[0], buffer, sizeof buffer, 0));
    printf("%s\n", buffer);
}

static __attribute__((noinline)) pid_t vfork_one(void)
{
    pid_t pid = vfork();
    if (pid == 0)
        _exit(4);
    return pid;
}

static void children(void)
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        exit(3);
    waitpid(pid, &status, 0);
    printf("child left with %d\n", WEXITSTATUS(status));
    waitpid(vfork_one(), &status, 0);
    printf("child left with %d\n", WEXITSTATUS(status));
    fflush(stdout);
    printf("system: %d\n", WEXITSTATUS(system("exit 5")));
}

static void *leave(void *unused)
{
    (void)unused;
    exit(7);
}

int main(int argc, char **argv)
{
    pthread_t thread;
    files();
    waits();
    children();
    fflush(stdout);
    if (argc > 1)
        execl(argv[0], argv[0], (char *)NULL); /* only once: now without an argument */
    pthread_create(&thread, NULL, leave, NULL);
    pthread_join(thread, NULL);
    return 2;
}
