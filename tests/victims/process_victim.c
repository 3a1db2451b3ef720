/*
 * process_victim.c - a process that trains on the fake PyTorch and meanwhile makes children in
 * every way that Linux has, or ends in every way that it has.
 *
 *     process-victim LIBTORCH_PYTHON SCENARIO [FILE]
 *
 * Most scenarios train STEPS steps, do their thing, and train STEPS more; `idle` does not train.
 * What it prints is the same with and without the library. FILE: `inspect` writes its threads,
 * descriptors and mappings there; workers read from it.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "victim.h"

enum { STEPS = 3 };
enum { READS = 7, READ_SIZE = 1009 }; /* tests/scenarios/guest_processes knows them, too */

static char *const *arguments;
static const char *file; /* FILE */

static void die(const char *what)
{
    fprintf(stderr, "process-victim: %s: %s\n", what, strerror(errno));
    exit(2);
}

static void wait_for(pid_t pid)
{
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        die("child");
    if (WIFEXITED(status))
        printf("child left with %d\n", WEXITSTATUS(status));
    else
        printf("child killed by %d\n", WTERMSIG(status));
}

/* Reads READS times READ_SIZE bytes, and then the end of the file. */
static void read_all(void)
{
    char buffer[READ_SIZE];
    long bytes = 0;
    ssize_t n;
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    while ((n = read(fd, buffer, sizeof buffer)) > 0)
        bytes += n;
    close(fd);
    printf("read %ld bytes\n", bytes);
}

static void write_word(const char *word)
{
    if (write(STDOUT_FILENO, word, strlen(word)) < 0)
        _exit(3);
}

/* ---- children */

static void forks(void)
{
    for (int i = 0; i < 3; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            write_word("child\n");
            if (i == 0)
                _exit(10);
            exit(10 + i);
        }
        wait_for(pid);
    }
}

/* Without libc's knowledge: no handler of fork runs. */
static void raw_forks(void)
{
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        read_all();
        victim_train_fast(2);
        write_word("raw child\n");
        _exit(11);
    }
    wait_for(pid);
}

extern pid_t _Fork(void) __attribute__((weak)); /* since glibc 2.34 */

static void forks_without_handlers(void)
{
    pid_t pid = _Fork != NULL ? _Fork() : fork();
    if (pid == 0) {
        write_word("child\n");
        read_all();
        _exit(12);
    }
    wait_for(pid);
}

/* Its child runs in our memory until it leaves. */
static __attribute__((noinline)) pid_t vfork_one(int status)
{
    pid_t pid = vfork();
    if (pid == 0) {
        if (status == 20)
            execl("/does/not/exist", "x", NULL);
        write_word("vfork child\n");
        _exit(status);
    }
    return pid;
}

static void vforks(void)
{
    for (int status = 20; status < 23; status++)
        wait_for(vfork_one(status));
}

/* A fork child that vforks before it has called anything of interest, and then trains. */
static void vforks_first(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        wait_for(vfork_one(21));
        victim_train(STEPS);
        exit(22);
    }
    wait_for(pid);
}

static void spawns(void)
{
    extern char **environ;
    char *const command[] = {"sh", "-c", "cat /dev/null; exit 5", NULL};
    char line[64] = "";
    pid_t pid;
    if (posix_spawn(&pid, "/bin/sh", NULL, NULL, command, environ) == 0)
        wait_for(pid);
    printf("%s\n", strerror(posix_spawn(&pid, "/does/not/exist", NULL, NULL, command, environ)));
    printf("system: %d\n", WEXITSTATUS(system("echo from a shell; exit 6")));
    FILE *f = popen("echo from a pipe; exit 7", "r");
    if (f == NULL || fgets(line, sizeof line, f) == NULL)
        die("popen");
    printf("popen: %s", line);
    printf("popen: %d\n", WEXITSTATUS(pclose(f)));
}

/* Loader workers: one leaves by _exit, as Python's do, one by exit, one is killed; one never reads.
 */
static void worker(int number)
{
    pid_t pid = fork();
    if (pid == 0) {
        if (number < 3)
            read_all();
        if (number == 1)
            exit(0);
        if (number == 2)
            raise(SIGKILL);
        _exit(0);
    }
    wait_for(pid);
}

static void workers(void)
{
    for (int i = 0; i < 4; i++)
        worker(i);
}

/* More than there are records, as over many epochs. */
static void many_workers(void)
{
    for (int i = 0; i < 100; i++)
        worker(0);
}

/* A worker that forks: its child reads for the same rank. */
static void worker_of_worker(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        pid_t other = fork();
        if (other == 0) {
            read_all();
            _exit(0);
        }
        wait_for(other);
        _exit(0);
    }
    wait_for(pid);
}

static void child_trains(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        read_all(); /* looks like a worker first */
        torch.init_group(1, 2);
        victim_train(STEPS);
        exit(23);
    }
    wait_for(pid);
}

/* One thread makes children while the training thread trains. */
static _Atomic bool storming;

static __attribute__((noinline)) pid_t vfork_one_silent(void)
{
    pid_t pid = vfork();
    if (pid == 0)
        _exit(0);
    return pid;
}

static void *storm(void *unused)
{
    while (storming) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(0);
        waitpid(pid, NULL, 0);
        waitpid(vfork_one_silent(), NULL, 0);
    }
    return unused;
}

static void fork_storm(void)
{
    pthread_t thread;
    storming = true;
    if (pthread_create(&thread, NULL, storm, NULL) != 0)
        die("thread");
    victim_train(STEPS * 4);
    storming = false;
    pthread_join(thread, NULL);
}

/* A timer's handler that reads and writes, on the training thread as a rule. */
static int handler_pipe[2];
static volatile sig_atomic_t handled;

static void handler(int number)
{
    char byte = (char)number;
    int saved = errno;
    if (write(handler_pipe[1], &byte, 1) == 1 && read(handler_pipe[0], &byte, 1) == 1)
        handled++;
    errno = saved;
}

static void signal_storm(void)
{
    struct itimerval t = {{0, 500}, {0, 500}};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    if (pipe(handler_pipe) != 0)
        die("pipe");
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &t, NULL);
    victim_train(STEPS * 4);
    t = (struct itimerval){{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &t, NULL);
    printf("signals were %s\n", handled > 0 ? "handled" : "not handled");
}

/* Daemons close what they don't know; the next file then gets the lowest number. */
static void closes_all(void)
{
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    for (int i = 0; i < 4; i++)
        printf("opened %d\n", open("/dev/null", O_RDONLY));
}

static void execs(void)
{
    if (strcmp(arguments[2], "execs") != 0)
        return;
    char *const again[] = {arguments[0], arguments[1], "again", NULL};
    execv("/proc/self/exe", again);
    die("exec");
}

/* ---- ends */

static void *leave_by_exit(void *barrier)
{
    pthread_barrier_wait(barrier);
    exit(5);
}

static void exit_by_threads(void)
{
    enum { THREADS = 4 };
    static pthread_barrier_t barrier;
    pthread_t thread;
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&thread, NULL, leave_by_exit, &barrier) != 0)
            die("thread");
    leave_by_exit(&barrier);
}

static void *leave_at_once(void *unused)
{
    (void)unused;
    victim_sleep(VICTIM_BACKWARD);
    _exit(6);
}

/* The process is ended by one thread in the middle of another one's step. */
static void end_by_other_thread(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, leave_at_once, NULL) != 0)
        die("thread");
    victim_input();
    for (;;)
        pause();
}

static void say_goodbye(void)
{
    write_word("handler of quick_exit\n");
}

static void end_quick(void)
{
    at_quick_exit(say_goodbye);
    quick_exit(8);
}

static void train_on(void)
{
    victim_train(STEPS);
}

/* A library's destructor that still trains. */
static void end_training(void)
{
    atexit(train_on);
    exit(9);
}

static void end_now(void)
{
    _exit(300 + 1);
}

static void end_now_too(void)
{
    _Exit(4);
}

static void end_killed(void)
{
    raise(SIGKILL);
}

static void end_terminated(void)
{
    raise(SIGTERM);
}

static void end_aborted(void)
{
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    abort();
}

/* ---- what is there while a spool is open */

static void copy_proc(FILE *out, const char *path)
{
    char line[4096];
    FILE *in = fopen(path, "r");
    if (in == NULL)
        die(path);
    while (fgets(line, sizeof line, in) != NULL)
        fputs(line, out);
    fclose(in);
}

static void inspect(void)
{
    FILE *out = fopen(file, "w");
    if (out == NULL)
        die(file);
    copy_proc(out, "/proc/self/status");
    fprintf(out, "--\n");
    copy_proc(out, "/proc/self/maps");
    fprintf(out, "--\n");
    for (int fd = 0; fd < 256; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            fprintf(out, "%d\n", fd);
    fclose(out);
}

/* ---- no descriptor is free when the spool would be opened */

static void without_descriptors(void)
{
    int last = -1;
    struct rlimit limit = {64, 64};
    setrlimit(RLIMIT_NOFILE, &limit);
    for (int fd; (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;)
        last = fd;
    printf("last descriptor %d: %s\n", last, strerror(errno));
}

static void nothing(void)
{
}

static const struct {
    const char *name;
    void (*before)(void); /* the training */
    void (*between)(void);
    void (*last)(void);
} scenarios[] = {
    {"again", nothing, nothing, nothing},
    {"forks", nothing, forks, nothing},
    {"raw-forks", nothing, raw_forks, nothing},
    {"forks-without-handlers", nothing, forks_without_handlers, nothing},
    {"vforks", nothing, vforks, nothing},
    {"vforks-first", nothing, vforks_first, nothing},
    {"spawns", nothing, spawns, nothing},
    {"workers", nothing, workers, nothing},
    {"many-workers", nothing, many_workers, nothing},
    {"worker-of-worker", nothing, worker_of_worker, nothing},
    {"child-trains", nothing, child_trains, nothing},
    {"fork-storm", nothing, fork_storm, nothing},
    {"signal-storm", nothing, signal_storm, nothing},
    {"closes-all", nothing, closes_all, nothing},
    {"execs", nothing, nothing, execs},
    {"exit-by-threads", nothing, nothing, exit_by_threads},
    {"end-by-other-thread", nothing, nothing, end_by_other_thread},
    {"quick_exit", nothing, nothing, end_quick},
    {"exit-and-train", nothing, nothing, end_training},
    {"_exit", nothing, nothing, end_now},
    {"_Exit", nothing, nothing, end_now_too},
    {"SIGKILL", nothing, nothing, end_killed},
    {"SIGTERM", nothing, nothing, end_terminated},
    {"abort", nothing, nothing, end_aborted},
    {"inspect", nothing, inspect, nothing},
    {"without-descriptors", without_descriptors, nothing, nothing},
};

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    arguments = argv;
    file = argc > 3 ? argv[3] : "/dev/null";
    setvbuf(stdout, NULL, _IONBF, 0);
    if (strcmp(argv[2], "idle") == 0) { /* as any program that has nothing to do with training */
        inspect();
        return 7;
    }
    victim_load(argv[1]);
    torch.import();
    for (unsigned i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++) {
        if (strcmp(scenarios[i].name, argv[2]) != 0)
            continue;
        scenarios[i].before();
        victim_train(STEPS);
        scenarios[i].between();
        victim_train(STEPS);
        scenarios[i].last();
        return 7;
    }
    fprintf(stderr, "process-victim: no scenario %s\n", argv[2]);
    return 2;
}
