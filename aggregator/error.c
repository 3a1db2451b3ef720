/*
 * error.c - error lines of the `laggard` program (recorder and readers).
 */
#include "aggregator/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD 160 /* kept of the beginning of a line that is too long */

/* A line begins with a path and ends with the reason: of a long one the middle is left out. */
static void fit(char *text, size_t size, const char *line)
{
    static const char gap[] = "[...]";
    size_t length = strlen(line), tail = size - HEAD - sizeof(gap);

    if (length < size)
        memcpy(text, line, length + 1);
    else
        snprintf(text, size, "%.*s%s%s", HEAD, line, gap, line + length - tail);
    /* names in files of others land in terminals */
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
}

int error_set(struct error *error, const char *format, ...)
{
    va_list args;
    char *line = NULL;
    int saved = errno;

    if (!error)
        return -1;
    va_start(args, format);
    if (vasprintf(&line, format, args) < 0)
        line = NULL;
    va_end(args);
    fit(error->text, sizeof(error->text), line ? line : "out of memory");
    free(line);
    errno = saved;
    return -1;
}

int error_exit(const struct error *error)
{
    fprintf(stderr, "laggard: %s\n", error->text);
    return 2;
}
