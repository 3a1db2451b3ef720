/*
 * launch.h - starts a command and stands aside: same process group and terminal, its signals and
 * its end passed on. For `laggard run`.
 *
 * The command gets the signal dispositions and the mask that laggard was given, so nohup and its
 * like work. laggard itself installs no handler: it blocks what it may block and reads it from a
 * descriptor, which also tells who sent it.
 */
#ifndef LAGGARD_AGGREGATOR_LAUNCH_H
#define LAGGARD_AGGREGATOR_LAUNCH_H

#include <signal.h>
#include <sys/types.h>

#include "aggregator/error.h"

struct launch {
    pid_t pid;
    int signals; /* descriptor that becomes readable when there is something to handle */
    sigset_t old_mask;
    int ended;
    int status;      /* waitpid's, valid when ended */
    int interrupted; /* the last of SIGINT, SIGTERM, SIGHUP, SIGQUIT that came to us; 0: none */
};

struct launch_variable {
    const char *name, *value;
};

/*
 * Starts argv (found through PATH) with the variables added to the environment; `variable` ends
 * with a NULL name. Returns 0; or 126 (found but can't be executed), 127 (not found), 125 (anything
 * else) with a line in `error`.
 */
int launch_start(struct launch *launch, char *const argv[], const struct launch_variable *variable,
                 struct error *error);

/* Handles what `signals` has: forwards, stops and continues with the command, reaps. */
void launch_handle(struct launch *launch);

/* After the end: the status as a shell shows it, 128 + signal. */
int launch_exit_status(const struct launch *launch);

/* The signal that killed the command, 0: none did. */
int launch_signal(const struct launch *launch);

/* Ends this process as the command ended: same status, or killed by the same signal without a core
 * file. */
void launch_exit_alike(const struct launch *launch) __attribute__((noreturn));

/* From here on a file that outgrows RLIMIT_FSIZE is an error of ours, not our death by SIGXFSZ. The
 * command gets the signal as we inherited it. */
void launch_ignore_file_limit(void);

/* execs argv in place with the variables; returns only when that failed: 126 or 127. */
int launch_exec(char *const argv[], const struct launch_variable *variable, struct error *error);

#endif
