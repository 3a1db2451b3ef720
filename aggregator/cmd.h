/*
 * cmd.h - the commands of the `laggard` program: one line each here, one file cmd_NAME.c each.
 * main.c looks the command up and calls it.
 */
#ifndef LAGGARD_AGGREGATOR_CMD_H
#define LAGGARD_AGGREGATOR_CMD_H

/* COMMAND(name, arguments, what it does) in the order of the help text */
#define COMMANDS(COMMAND)                                                                          \
    COMMAND(run, "[-o DIR] [--] CMD...", "run CMD traced; its exit status is CMD's")               \
    COMMAND(report, "RUN", "which rank is slow, in which stage, and what it costs")                \
    COMMAND(sql, "RUN [QUERY]", "SQL over the rows of all ranks")                                  \
    COMMAND(import, "FILE.jsonl -o RUN", "rows from another source")                               \
    COMMAND(env, "-o DIR", "shell lines that trace what cannot be prefixed")                       \
    COMMAND(runs, "[DIR]", "list the runs in a directory")                                         \
    COMMAND(doctor, "[-- CMD...]", "what would be observed here and what not")

/* argv[0] is the command's name. Returns the exit status: 0, or 2 after one line on stderr. A
 * command is weak here so that the program links without it; main.c says that it is missing. */
#define COMMAND_DECLARATION(name, arguments, text)                                                 \
    int cmd_##name(int argc, char **argv) __attribute__((weak));
COMMANDS(COMMAND_DECLARATION)
#undef COMMAND_DECLARATION

/* One line on stderr with the verdict over a run directory, written at the end of `laggard run`.
 * Returns 0, or -1 when there was nothing to judge (nothing is written then). */
int report_verdict_line(const char *run_dir) __attribute__((weak));

#endif
