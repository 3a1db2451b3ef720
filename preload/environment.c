/*
 * environment.c - see environment.h. Context: constructor and cold paths.
 */
#include "preload/environment.h"

#include <string.h>
#include <unistd.h>

#include "preload/text.h"

const char *lg_environment_in(char *const *variables, const char *name)
{
    size_t n = strlen(name);
    for (char *const *e = variables; e != NULL && *e != NULL; e++)
        if (strncmp(*e, name, n) == 0 && (*e)[n] == '=')
            return (*e)[n + 1] != 0 ? *e + n + 1 : NULL;
    return NULL;
}

const char *lg_environment(const char *name)
{
    return lg_environment_in(environ, name);
}

int64_t lg_environment_number(const char *name)
{
    const char *s = lg_environment(name);
    const char *end = NULL;
    if (s == NULL)
        return -1;
    uint64_t v = lg_parse_number(s, &end);
    return *end == 0 && end != s && v < INT32_MAX ? (int64_t)v : -1;
}
