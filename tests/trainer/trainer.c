/*
 * trainer.c - starts the ranks of the test trainer as processes of their own, like a launcher, and
 * ends with the status of the first one that failed. Context: test program.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainer.h"

static const char *const rank_variables[] = {"RANK", "LOCAL_RANK", "WORLD_SIZE",
                                             "LOCAL_WORLD_SIZE"};

static void set_number(const char *name, long value)
{
    char text[32];
    snprintf(text, sizeof text, "%ld", value);
    setenv(name, text, 1);
}

static void set_environment(const struct options *o, long rank)
{
    for (size_t i = 0; i < sizeof rank_variables / sizeof *rank_variables; i++)
        if (o->no_env)
            unsetenv(rank_variables[i]);
        else
            set_number(rank_variables[i], i < 2 ? rank : o->ranks);
}

/* In the child: the same command line, and which rank it is. */
static void become_rank(const struct options *o, long rank, int argc, char **argv)
{
    char number[32];
    char **args = calloc((size_t)argc + 5, sizeof *args);
    if (!args)
        _exit(1);
    snprintf(number, sizeof number, "%ld", rank);
    memcpy(args, argv, (size_t)argc * sizeof *args);
    char *more[] = {"--rank", number, "--dir", (char *)(uintptr_t)o->dir};
    memcpy(args + argc, more, sizeof more);
    set_environment(o, rank);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execv("/proc/self/exe", args);
    perror("trainer: exec");
    _exit(1);
}

/* Waits for all; the first failure ends the others. */
static int wait_for_ranks(pid_t *pid, long ranks)
{
    int status, result = 0;
    pid_t child;
    while ((child = wait(&status)) > 0 || errno == EINTR) {
        bool first_failure = child > 0 && status && !result;
        if (first_failure)
            result = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        for (long i = 0; i < ranks; i++)
            if (pid[i] == child)
                pid[i] = 0; /* the number may be somebody else's soon */
            else if (pid[i] > 0 && first_failure)
                kill(pid[i], SIGTERM);
    }
    return result;
}

static void clean(const struct options *o)
{
    static const char *const names[] = {"nccl-id", "nccl-id.new", "checkpoint.bin"};
    char path[512];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", o->dir, names[i]);
        unlink(path);
    }
    for (long r = 0; r < o->ranks; r++) {
        snprintf(path, sizeof path, "%s/shard-%ld.bin", o->dir, r);
        unlink(path);
        snprintf(path, sizeof path, "%s/validation-%ld.bin", o->dir, r);
        unlink(path);
    }
}

static char *new_directory(void)
{
    static char path[400];
    const char *tmp = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/trainer-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(path)) {
        perror(path);
        exit(1);
    }
    return path;
}

int main(int argc, char **argv)
{
    struct options o = parse_options(argc, argv);
    char *own = o.dir ? NULL : new_directory();
    if (own)
        o.dir = own;
    int result;
    if (o.rank >= 0) {
        result = rank_main(&o);
    } else {
        pid_t *pid = calloc((size_t)o.ranks, sizeof *pid);
        for (long r = 0; pid && r < o.ranks; r++) {
            pid[r] = fork();
            if (pid[r] == 0)
                become_rank(&o, r, argc, argv);
            if (pid[r] < 0) {
                perror("trainer: fork");
                exit(1);
            }
        }
        result = wait_for_ranks(pid, o.ranks);
        free(pid);
    }
    if (own) {
        clean(&o);
        rmdir(own);
    }
    return result;
}
