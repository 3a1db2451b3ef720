/*
 * process.c - ends of a process that no destructor sees. Context: hooks on any thread, also in a
 * vfork child that runs in its parent's memory (lg_finish looks at that).
 *
 * Python's multiprocessing children end with _exit; many threads may call exit at once.
 */
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/boot.h"
#include "preload/hooks.h"

static void leave_now(real_exit_now_fn next, int status)
{
    lg_finish(status);
    if (next != NULL)
        next(status);
    for (;;)
        syscall(SYS_exit_group, status);
}

void hook_exit_now(int status)
{
    leave_now(real.exit_now, status);
}

void hook_Exit(int status)
{
    leave_now(real.Exit, status);
}

void hook_quick_exit(int status)
{
    /* its handlers still run, and may train on: only _exit, which it ends with, is not seen */
    leave_now(REAL(quick_exit), status);
}
