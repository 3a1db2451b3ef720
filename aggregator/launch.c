/*
 * launch.c - see launch.h. Runs in `laggard run`; one thread, so fork and setenv are safe.
 */
#include "aggregator/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

static int exec_status(int reason)
{
    return reason == ENOENT ? 127 : 126;
}

static struct sigaction inherited_file_limit;
static int ignores_file_limit;

void launch_ignore_file_limit(void)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    ignores_file_limit = sigaction(SIGXFSZ, &ignore, &inherited_file_limit) == 0;
}

int launch_exec(char *const argv[], const struct launch_variable *variable, struct error *error)
{
    if (ignores_file_limit)
        sigaction(SIGXFSZ, &inherited_file_limit, NULL);
    for (; variable && variable->name; variable++)
        setenv(variable->name, variable->value, 1);
    execvp(argv[0], argv);
    int reason = errno;
    error_set(error, "%s: %s", argv[0], strerror(reason));
    return exec_status(reason);
}

/* ---- start ---- */

/* All but those that stop a background process that uses the terminal: they must stop us, too. */
static void block_signals(sigset_t *old)
{
    sigset_t all;
    sigfillset(&all);
    sigdelset(&all, SIGTTIN);
    sigdelset(&all, SIGTTOU);
    sigdelset(&all, SIGTRAP);
    sigprocmask(SIG_BLOCK, &all, old);
}

/* The child's part: the error number goes through the pipe, which exec closes. */
static void run_child(struct launch *l, char *const argv[], const struct launch_variable *variable,
                      const struct sigaction *child_action, int to_parent)
{
    struct error error;
    sigaction(SIGCHLD, child_action, NULL);
    sigprocmask(SIG_SETMASK, &l->old_mask, NULL);
    launch_exec(argv, variable, &error);
    int reason = errno;
    if (write(to_parent, &reason, sizeof(reason)) < 0)
        _exit(125);
    _exit(exec_status(reason));
}

/* 0, or the error number of the child's exec. */
static int read_exec_error(int from_child)
{
    int reason = 0;
    ssize_t n;
    do
        n = read(from_child, &reason, sizeof(reason));
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof(reason) ? reason : 0;
}

static int own_failure(const char *what, struct error *error)
{
    error_set(error, "%s: %s", what, strerror(errno));
    return 125;
}

int launch_start(struct launch *l, char *const argv[], const struct launch_variable *variable,
                 struct error *error)
{
    struct sigaction by_default = {.sa_handler = SIG_DFL}, inherited;
    sigset_t watched;
    int pipe_ends[2];

    memset(l, 0, sizeof(*l));
    if (pipe2(pipe_ends, O_CLOEXEC) != 0)
        return own_failure("pipe", error);
    block_signals(&l->old_mask);
    sigprocmask(SIG_BLOCK, NULL, &watched);
    l->signals = signalfd(-1, &watched, SFD_NONBLOCK | SFD_CLOEXEC);
    int failed = l->signals < 0 ? own_failure("signalfd", error) : 0;
    /* where SIGCHLD is ignored the kernel throws the child's status away */
    sigaction(SIGCHLD, &by_default, &inherited);
    l->pid = l->signals < 0 ? -1 : fork();
    if (l->pid == 0)
        run_child(l, argv, variable, &inherited, pipe_ends[1]);
    close(pipe_ends[1]);
    if (l->pid < 0) {
        failed = failed ? failed : own_failure("fork", error);
        close(pipe_ends[0]);
        if (l->signals >= 0)
            close(l->signals);
        sigaction(SIGCHLD, &inherited, NULL);
        sigprocmask(SIG_SETMASK, &l->old_mask, NULL);
        return failed;
    }
    int reason = read_exec_error(pipe_ends[0]);
    close(pipe_ends[0]);
    if (reason == 0)
        return 0;
    waitpid(l->pid, NULL, 0);
    error_set(error, "%s: %s", argv[0], strerror(reason));
    return exec_status(reason);
}

/* ---- while it runs ---- */

/* Stops this process as its terminal would. What was blocked is let through for that moment; it
 * does nothing where the signal is ignored or no shell would continue us. */
static void stop_self(int number)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    raise(number);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    sigprocmask(SIG_BLOCK, &set, NULL);
}

static int is_terminal_stop(int number)
{
    return number == SIGTSTP || number == SIGTTIN || number == SIGTTOU;
}

/* As process 1 we are also everybody's parent: all are reaped. */
static void reap(struct launch *l)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
        if (pid != l->pid)
            continue;
        if (!WIFSTOPPED(status)) {
            l->ended = 1;
            l->status = status;
        } else if (is_terminal_stop(WSTOPSIG(status))) {
            /* Not SIGSTOP: whoever stops just the command will continue just the command. */
            stop_self(WSTOPSIG(status));
        }
    }
}

static void handle_one(struct launch *l, const struct signalfd_siginfo *info)
{
    int number = (int)info->ssi_signo;

    if (number == SIGCHLD)
        return; /* reaped below, whoever sent it */
    /* SIGXFSZ and SIGPIPE for what we write ourselves look as if we had sent them */
    if ((pid_t)info->ssi_pid == getpid())
        return;
    if (number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT)
        l->interrupted = number;
    /* an alarm that was set before we were executed goes off in us alone */
    if (info->ssi_code > 0 && number != SIGALRM) {
        /* made by the kernel, for the terminal's whole process group: the command has it already */
        if (number == SIGTSTP)
            stop_self(SIGTSTP);
        return;
    }
    if (!l->ended && (pid_t)info->ssi_pid != l->pid)
        kill(l->pid, number);
}

void launch_handle(struct launch *l)
{
    struct signalfd_siginfo info;
    while (read(l->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
        handle_one(l, &info);
    reap(l);
}

/* ---- the end ---- */

int launch_exit_status(const struct launch *l)
{
    return WIFSIGNALED(l->status) ? 128 + WTERMSIG(l->status) : WEXITSTATUS(l->status);
}

int launch_signal(const struct launch *l)
{
    return WIFSIGNALED(l->status) ? WTERMSIG(l->status) : 0;
}

void launch_exit_alike(const struct launch *l)
{
    if (WIFSIGNALED(l->status)) {
        int number = WTERMSIG(l->status);
        struct rlimit none = {0, 0};
        struct sigaction by_default = {.sa_handler = SIG_DFL};
        sigset_t set;

        setrlimit(RLIMIT_CORE, &none);
        sigaction(number, &by_default, NULL);
        sigemptyset(&set);
        sigaddset(&set, number);
        raise(number);
        sigprocmask(SIG_UNBLOCK, &set, NULL);
        /* still here: process 1 can't be killed that way */
    }
    exit(launch_exit_status(l));
}
