/*
 * main.c - the `laggard` program: finds the command and runs it.
 */
#include <stdio.h>
#include <string.h>

#include "aggregator/cmd.h"

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
    return ferror(stdout) ? 2 : 0;
}

static int usage_error(const char *what, const char *name)
{
    fprintf(stderr, "laggard: %s '%s' (see laggard --help)\n", what, name);
    return 2;
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

int main(int argc, char **argv)
{
    const char *first = argc > 1 ? argv[1] : "";

    if (!*first) {
        fputs("laggard: no command given (see laggard --help)\n", stderr);
        return 2;
    }
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
