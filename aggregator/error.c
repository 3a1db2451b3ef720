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

void error_clean(char *text)
{
    char *to = text;

    for (const char *c = text; *c; c++) {
        /* U+0080 to U+009F begin commands for terminals, too */
        int wide = (unsigned char)c[0] == 0xc2 && (c[1] & 0xe0) == 0x80;
        *to++ = wide || (unsigned char)*c < 0x20 || *c == 0x7f ? '?' : *c;
        c += wide;
    }
    *to = '\0';
}

/* A line begins with a path and ends with the reason: of a long one the middle is left out. */
static void fit(char *text, size_t size, const char *line)
{
    static const char gap[] = "[...]";
    size_t length = strlen(line), tail = size - HEAD - sizeof(gap);

    if (length < size)
        memcpy(text, line, length + 1);
    else
        snprintf(text, size, "%.*s%s%s", HEAD, line, gap, line + length - tail);
    error_clean(text);
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

int error_say(const char *who, const char *format, ...)
{
    va_list args;
    char *line = NULL;

    va_start(args, format);
    if (vasprintf(&line, format, args) < 0)
        line = NULL;
    va_end(args);
    if (line)
        error_clean(line);
    fprintf(stderr, "laggard%s%s: %s\n", *who ? " " : "", who, line ? line : "out of memory");
    free(line);
    return 2;
}

int error_exit(const struct error *error)
{
    return error_say("", "%s", error->text);
}
