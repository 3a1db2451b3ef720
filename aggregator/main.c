/*
 * main.c - the `laggard` program: finds the command and runs it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/cmd.h"
#include "aggregator/error.h"

struct command {
    const char *name, *arguments, *text;
    int (*run)(int argc, char **argv);
};

#define COMMAND_ROW(name, arguments, text) {#name, arguments, text, cmd_##name},
static const struct command commands[] = {COMMANDS(COMMAND_ROW)};
#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static int help(void)
{
    puts("usage: laggard COMMAND [ARGUMENTS]\n"
         "Which rank of a training is slow, in which stage, why, and what it costs.\n");
    for (size_t i = 0; i < N_COMMANDS; i++)
        printf("  %-7s %-22s %s\n", commands[i].name, commands[i].arguments, commands[i].text);
    puts("\n  laggard COMMAND --help    more about a command\n"
         "  laggard --version         the version\n\n"
         "RUN is a run directory (laggard-YYYYmmdd-HHMMSS-PID by default) or a database in it.\n"
         "Exit status 2: bad usage or unreadable input.");
    return 0;
}

static int usage_error(const char *what, const char *name)
{
    return error_say("", "%s '%s' (see laggard --help)", what, name);
}

static int run_command(int argc, char **argv)
{
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(commands[i].name, argv[0]) != 0)
            continue;
        if (!commands[i].run)
            return usage_error("not built into this program:", argv[0]);
        return commands[i].run(argc, argv);
    }
    return usage_error("no such command:", argv[0]);
}

/* A file of ours that was opened in the place of a closed stdin, stdout or stderr would be read or
 * written to in its stead. What is opened here behaves as if closed, also in a command that is
 * started: exec closes it. */
static void keep_closed_descriptors(void)
{
    int fd;
    do
        fd = open("/", O_PATH | O_CLOEXEC);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

/* The status, unless what was printed did not arrive. A pipe that its reader closed is a signal. */
static int check_output(int status)
{
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == 0)
        return error_say("", "standard output: %s", strerror(errno));
    return status;
}

static int run_named(int argc, char **argv)
{
    const char *first = argc > 1 ? argv[1] : "";

    if (!*first)
        return error_say("", "no command given (see laggard --help)");
    if (strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0 || strcmp(first, "help") == 0)
        return help();
    if (strcmp(first, "--version") == 0) {
        puts("laggard " LAGGARD_VERSION);
        return 0;
    }
    if (*first == '-')
        return usage_error("unknown option", first);
    return run_command(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    keep_closed_descriptors();
    return check_output(run_named(argc, argv));
}
