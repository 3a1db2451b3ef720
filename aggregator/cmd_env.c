/*
 * cmd_env.c - `laggard env`: shell lines that make the commands after them traced, for job scripts
 * and launchers that must not be wrapped. There is no recorder then: spools stay in the run
 * directory until a command reads it.
 */
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/cmd.h"
#include "aggregator/error.h"
#include "aggregator/rundir.h"
#include "aggregator/trace_env.h"

static void usage(void)
{
    puts("usage: eval \"$(laggard env -o DIR)\"\n\n"
         "Prints shell lines that make the commands after them traced; then:\n"
         "laggard report DIR\n\n"
         "  -o DIR, --output DIR  the run directory, made if it is not there\n"
         "  -h, --help            this text");
}

/* export NAME='VALUE', a quote in it spelt '\'' */
static void print_variable(const char *name, const char *value)
{
    printf("export %s='", name);
    for (; *value; value++)
        if (*value == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*value);
    puts("'");
}

static int print_environment(const char *wanted)
{
    char library[PATH_MAX], preload[8192], dir[PATH_MAX], note[PATH_MAX + 256], id[33];
    struct error error = {""};

    if (trace_library(library, &error) != 0)
        return error_exit(&error);
    if (trace_preload(getenv("LD_PRELOAD"), library, preload, sizeof(preload)) != 0) {
        error_set(&error, "LD_PRELOAD is too long");
        return error_exit(&error);
    }
    if (rundir_make(wanted, dir, note, sizeof(note), &error) != 0)
        return error_exit(&error);
    if (*note) { /* the caller named the directory for what comes after: no other will do */
        error_set(&error, "can't make the run directory %s", wanted);
        return error_exit(&error);
    }
    trace_new_run_id(id);
    print_variable("LD_PRELOAD", preload);
    print_variable("LAGGARD_DIR", dir);
    print_variable("LAGGARD_RUN", id);
    puts("unset LAGGARD_RECORDER");
    return 0;
}

static int bad_usage(const char *what)
{
    return error_say("env", "%s (see laggard env --help)", what);
}

int cmd_env(int argc, char **argv)
{
    static const struct option options[] = {{"output", required_argument, NULL, 'o'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    const char *wanted = NULL;
    int option;

    opterr = 0;
    while ((option = getopt_long(argc, argv, ":o:h", options, NULL)) != -1)
        switch (option) {
        case 'o':
            wanted = optarg;
            break;
        case 'h':
            usage();
            return 0;
        default:
            return bad_usage(optopt == 'o' ? "-o needs a directory" : "unknown option");
        }
    if (!wanted || !*wanted || optind < argc)
        return bad_usage("-o DIR, and nothing else, is needed");
    return print_environment(wanted);
}
