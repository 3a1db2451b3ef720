/*
 * error.h - how the aggregator's functions say what went wrong: the callee writes one line, the
 * command prints it. Used everywhere in the `laggard` program, never in the traced process.
 */
#ifndef LAGGARD_AGGREGATOR_ERROR_H
#define LAGGARD_AGGREGATOR_ERROR_H

struct error {
    char text[512];
};

/* Writes a printf-style line into `error` (which may be NULL) and returns -1, so that a function
 * can `return error_set(...)`. The line has no newline and begins with what it is about, e.g. a
 * path; where it is too long its middle is left out, so that the reason stays. errno is kept. */
int error_set(struct error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints "laggard: TEXT" and a newline on stderr and returns 2, the exit status for bad usage or
 * unreadable input. */
int error_exit(const struct error *error);

/* Prints one line of any length on stderr, "laggard: " or "laggard WHO: " before it, and returns 2.
 * Nothing else of this program writes there. */
int error_say(const char *who, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Replaces control characters in place, those of UTF-8 above 0x7f as well: names in files of others
 * land in terminals. */
void error_clean(char *text);

#endif
