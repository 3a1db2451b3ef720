/*
 * hostile_victim.c - a process that trains on the fake PyTorch and meanwhile closes what it does
 * not know, confines itself, starts many threads, becomes a daemon, catches its own faults.
 *
 *     hostile-victim LIBTORCH_PYTHON SCENARIO
 *
 * It trains STEPS steps, does its thing, and trains STEPS more (`from` scenarios do it before the
 * first step). What it prints is the same with and without the library. Status 77: not possible
 * here.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "victim.h"

enum { STEPS = 3, THREADS = 1000 };

static char *const *arguments;

static void die(const char *what)
{
    fprintf(stderr, "hostile-victim: %s: %s\n", what, strerror(errno));
    exit(2);
}

static void not_here(const char *what)
{
    printf("not possible: %s: %s\n", what, strerror(errno));
    exit(77);
}

/* ---- descriptors */

static void opened(void)
{
    for (int i = 0; i < 3; i++)
        printf("opened %d\n", open("/dev/null", O_RDONLY));
}

static void close_a_range(void)
{
    if (syscall(SYS_close_range, 3U, ~0U, 0U) != 0)
        not_here("close_range");
    opened();
}

extern void closefrom(int) __attribute__((weak)); /* since glibc 2.34 */

static void close_from(void)
{
    if (closefrom == NULL)
        not_here("closefrom");
    closefrom(3);
    opened();
}

/* Each number becomes a file of the program; nobody may write to it. */
static void dup_over_all(void)
{
    struct stat st;
    off_t size = 0;
    int file = fileno(tmpfile());
    for (int fd = 3; fd < 200; fd++)
        if (fd != file && dup2(file, fd) != fd)
            die("dup2");
    victim_train(STEPS);
    for (int fd = 3; fd < 200; fd++)
        size += fstat(fd, &st) == 0 ? st.st_size : 1;
    printf("written to them: %ld\n", (long)size);
}

/* ---- threads */

static _Atomic bool stop;
static _Atomic long read_in_threads;

static void *read_until_stopped(void *unused)
{
    char byte;
    int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    do {
        read_in_threads += read(fd, &byte, 1) == 1;
        victim_sleep(20000);
    } while (!stop);
    close(fd);
    return unused;
}

static void many_threads(void)
{
    static pthread_t thread[THREADS];
    struct rlimit files = {THREADS + 100, THREADS + 100};
    pthread_attr_t small;
    int n = 0;
    setrlimit(RLIMIT_NOFILE, &files);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    while (n < THREADS && pthread_create(&thread[n], &small, read_until_stopped, NULL) == 0)
        n++;
    victim_train(STEPS);
    stop = true;
    for (int i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
    if (n < THREADS)
        not_here("threads");
    printf("%d threads, %s\n", n, read_in_threads >= n ? "all read" : "some did not read");
}

/* A training thread of its own that is cancelled in a blocking read; another one goes on. */
static int never_written[2];

static void read_forever(void *unused)
{
    char byte;
    (void)unused;
    if (read(never_written[0], &byte, 1) >= 0)
        die("read");
}

static void *train_and_block(void *unused)
{
    torch.label("enumerate(DataLoader)#X.__next__", read_forever, NULL);
    return unused;
}

static void cancelled_in_read(void)
{
    void *result;
    pthread_t thread = 0;
    if (pipe(never_written) != 0 || pthread_create(&thread, NULL, train_and_block, NULL) != 0)
        die("thread");
    victim_sleep(20000);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    printf("%s\n", result == PTHREAD_CANCELED ? "cancelled" : "not cancelled");
}

/* ---- processes */

/* Two forks and a session of its own, as daemons do; the grandchild trains. */
static void become_daemon(void)
{
    pid_t pid = fork();
    if (pid > 0)
        _exit(7);
    if (pid < 0 || setsid() < 0)
        die("session");
    pid = fork();
    if (pid > 0)
        _exit(0);
    for (int fd = 3; fd < 64; fd++)
        close(fd);
    umask(0);
    if (chdir("/") != 0)
        die("/");
}

static void exec_without_environment(void)
{
    if (strcmp(arguments[2], "exec-emptied") != 0)
        return;
    char *const again[] = {arguments[0], arguments[1], "again", NULL};
    char *const nothing[] = {NULL};
    execve("/proc/self/exe", again, nothing);
    die("exec");
}

static void clear_environment(void)
{
    clearenv();
    printf("system: %d\n", WEXITSTATUS(system("exit 3")));
}

/* ---- faults */

static sigjmp_buf out;
static char alternate[1 << 16];

static void on_fault(int number)
{
    siglongjmp(out, number);
}

static void fault(void *unused)
{
    (void)unused;
    volatile int *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *page = 1;
}

/* Caught in the middle of a backward, on another stack, and left by a jump. */
static void catches_faults(void)
{
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_ONSTACK};
    sigaltstack(&stack, NULL);
    sigaction(SIGSEGV, &action, NULL);
    for (volatile int i = 0; i < 2; i++) {
        int number = sigsetjmp(out, 1);
        if (number == 0)
            torch.execute(1, 1, fault, NULL);
        printf("caught %d\n", number);
    }
    action.sa_handler = SIG_DFL;
    sigaction(SIGSEGV, &action, NULL);
}

static void die_of_fault(void)
{
    struct rlimit none = {0, 0};
    if (strcmp(arguments[2], "segv") != 0)
        return;
    setrlimit(RLIMIT_CORE, &none);
    fault(NULL);
}

/* ---- confinement */

#define DENY(name)                                                                                 \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, action)

/* Calls that a training has no need of once it runs. */
static void confine(unsigned action)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        DENY(openat),
        DENY(memfd_create),
        DENY(ftruncate),
        DENY(fallocate),
        DENY(unlinkat),
        DENY(mkdirat),
        DENY(symlinkat),
        DENY(rt_sigprocmask),
        DENY(rt_sigaction),
        DENY(getppid),
        DENY(readlinkat),
        DENY(socket),
        DENY(clone),
        DENY(prctl),
        DENY(gettid),
        DENY(sched_setaffinity),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        not_here("seccomp");
}

static void killed_when_unusual(void)
{
    confine(SECCOMP_RET_KILL_PROCESS);
}

/* The library needs these once a step: a limit. */
static void killed_by_clocks(void)
{
    const unsigned action = SECCOMP_RET_KILL_PROCESS;
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        DENY(getrusage),
        DENY(clock_gettime),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        not_here("seccomp");
}

static void refused_when_unusual(void)
{
    confine(SECCOMP_RET_ERRNO | EPERM);
}

/* Into an empty directory. */
static void change_root(void)
{
    char directory[] = "/tmp/hostile-victim-XXXXXX";
    if (mkdtemp(directory) == NULL || chdir(directory) != 0 || rmdir(directory) != 0)
        die(directory);
    if (chroot(".") != 0 || chdir("/") != 0)
        not_here("chroot");
    printf("root: %d\n", access("/proc", F_OK));
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
    {"close_range", nothing, close_a_range, nothing},
    {"closefrom", nothing, close_from, nothing},
    {"dup2", nothing, dup_over_all, nothing},
    {"threads", nothing, many_threads, nothing},
    {"threads-from-start", many_threads, nothing, nothing},
    {"cancelled-in-read", nothing, cancelled_in_read, nothing},
    {"daemon", become_daemon, nothing, nothing},
    {"exec-emptied", nothing, nothing, exec_without_environment},
    {"clearenv", clear_environment, nothing, nothing},
    {"faults", nothing, catches_faults, nothing},
    {"segv", nothing, nothing, die_of_fault},
    {"seccomp-kill", nothing, killed_when_unusual, nothing},
    {"seccomp-clocks", nothing, killed_by_clocks, nothing},
    {"seccomp-refuse", nothing, refused_when_unusual, nothing},
    {"seccomp-refuse-from-start", refused_when_unusual, nothing, nothing},
    {"chroot", nothing, change_root, nothing},
    {"chroot-from-start", change_root, nothing, nothing},
};

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    arguments = argv;
    setvbuf(stdout, NULL, _IONBF, 0);
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
    fprintf(stderr, "hostile-victim: no scenario %s\n", argv[2]);
    return 2;
}
