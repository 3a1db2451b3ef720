/*
 * doctor_program.h - what kind of program a command is, as far as it matters for LD_PRELOAD: found
 * in its files, without running it. For `laggard doctor`.
 */
#ifndef LAGGARD_AGGREGATOR_DOCTOR_PROGRAM_H
#define LAGGARD_AGGREGATOR_DOCTOR_PROGRAM_H

#include <limits.h>
#include <stdbool.h>

#include "aggregator/error.h"

struct program {
    char path[PATH_MAX];   /* what is executed: for a script its interpreter */
    char script[PATH_MAX]; /* the script, "" when the command is none */
    bool privileged;       /* setuid, setgid or file capabilities: LD_PRELOAD is dropped */
    bool foreign;          /* another class or machine than ours */
    bool is_static;        /* no dynamic loader: LD_PRELOAD has no effect */
    bool musl;             /* loader of musl: the library stays inert there */
    bool sanitizer;        /* linked with a sanitizer's runtime that wants to come first */
};

/* Looks the command up in PATH and follows `#!` lines (through env as well). Fails with a line when
 * it is not found, can't be read, or is no program. */
int program_find(const char *command, struct program *program, struct error *error);

#endif
