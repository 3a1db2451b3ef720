/*
 * environment.h - reading the environment without getenv (which other preloads like to wrap).
 * Context: constructor and cold paths; never a hot hook.
 */
#ifndef LAGGARD_PRELOAD_ENVIRONMENT_H
#define LAGGARD_PRELOAD_ENVIRONMENT_H

#include <stdint.h>

/* Value of a variable, NULL if it is unset or empty. Points into the program's environment. */
const char *lg_environment(const char *name);

/* The same from a given environment; NULL stands for an empty one. */
const char *lg_environment_in(char *const *variables, const char *name);

/* Value as a number from 0 up, -1 if unset or not a number. */
int64_t lg_environment_number(const char *name);

#endif
