/*
 * error.c - error lines of the `laggard` program (recorder and readers).
 */
#include "aggregator/error.h"

#include <stdarg.h>
#include <stdio.h>

int error_set(struct error *error, const char *format, ...)
{
    if (error) {
        va_list args;
        va_start(args, format);
        vsnprintf(error->text, sizeof(error->text), format, args);
        va_end(args);
    }
    return -1;
}

int error_exit(const struct error *error)
{
    fprintf(stderr, "laggard: %s\n", error->text);
    return 2;
}
