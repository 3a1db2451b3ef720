/*
 * trace_env.c - see trace_env.h. Runs in `laggard` before a command starts; changes no environment.
 */
#include "aggregator/trace_env.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define LIBRARY "liblaggard.so"

static int library_at(const char *format, const char *directory, char *path)
{
    char candidate[PATH_MAX];
    int n = snprintf(candidate, sizeof(candidate), format, directory);
    return n > 0 && n < (int)sizeof(candidate) && realpath(candidate, path) ? 0 : -1;
}

int trace_library(char *path, struct error *error)
{
    char program[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);

    program[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(program, '/');
    if (!slash)
        return error_set(error, "can't find " LIBRARY ": /proc/self/exe can't be read");
    *slash = '\0';
    if (library_at("%s/" LIBRARY, program, path) != 0 &&
        library_at("%s/../lib/laggard/" LIBRARY, program, path) != 0)
        return error_set(error, LIBRARY " is neither in %s nor in its ../lib/laggard", program);
    if (access(path, R_OK) != 0)
        return error_set(error, "%s: %s", path, strerror(errno));
    if (strpbrk(path, ": \t\n"))
        return error_set(error, "%s: LD_PRELOAD can't hold a path with a space or colon", path);
    return 0;
}

static const char *base_name(const char *path, size_t length)
{
    const char *base = path;
    for (size_t i = 0; i < length; i++)
        if (path[i] == '/')
            base = path + i + 1;
    return base;
}

static int begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* ASan and its like refuse to start when another library comes first. */
static int must_be_first(const char *entry, size_t length)
{
    const char *base = base_name(entry, length);
    return begins(base, "libasan") || begins(base, "libtsan") || begins(base, "liblsan") ||
           begins(base, "libubsan") || begins(base, "libclang_rt.");
}

static int is_ours(const char *entry, size_t length, const char *library)
{
    size_t n = strlen(LIBRARY);
    return (length == strlen(library) && memcmp(entry, library, length) == 0) ||
           (length == n && memcmp(entry, LIBRARY, n) == 0) ||
           (length > n && entry[length - n - 1] == '/' &&
            memcmp(entry + length - n, LIBRARY, n) == 0);
}

/* Appends an entry; -1 = it does not fit. */
static int add_entry(char *value, size_t size, const char *entry, size_t length)
{
    size_t used = strlen(value);
    if (used + (used > 0) + length + 1 > size)
        return -1;
    if (used > 0)
        value[used++] = ':';
    memcpy(value + used, entry, length);
    value[used + length] = '\0';
    return 0;
}

/* Entries of the old list that must be first (first = 1), or those that need not be. */
static int add_others(const char *old, const char *library, int first, char *value, size_t size)
{
    while (old && *old) {
        old += strspn(old, ": ");
        size_t length = strcspn(old, ": ");
        if (length > 0 && !is_ours(old, length, library) && must_be_first(old, length) == first &&
            add_entry(value, size, old, length) != 0)
            return -1;
        old += length;
    }
    return 0;
}

int trace_preload(const char *old, const char *library, char *value, size_t size)
{
    *value = '\0';
    if (add_others(old, library, 1, value, size) != 0 ||
        add_entry(value, size, library, strlen(library)) != 0)
        return -1;
    return add_others(old, library, 0, value, size);
}

void trace_new_run_id(char id[33])
{
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) {
        struct timespec now[2];
        clock_gettime(CLOCK_REALTIME, &now[0]);
        clock_gettime(CLOCK_MONOTONIC, &now[1]);
        now[1].tv_sec ^= (time_t)getpid() << 32;
        for (size_t i = 0; i < sizeof(bytes); i++)
            bytes[i] = ((unsigned char *)now)[i] ^ ((unsigned char *)now)[i + sizeof(bytes)];
    }
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(id + 2 * i, 3, "%02x", bytes[i]);
}

int trace_recorder_format(const struct process_id *recorder, const char *spool_dir, char *value,
                          size_t size)
{
    int n = snprintf(value, size, "%s:%lld:%llu:%s", recorder->boot_id, (long long)recorder->pid,
                     (unsigned long long)recorder->start, spool_dir);
    return n > 0 && (size_t)n < size ? 0 : -1;
}

int trace_recorder_parse(const char *value, struct process_id *recorder)
{
    long long pid;
    unsigned long long start;
    if (!value || sscanf(value, "%39[^:]:%lld:%llu:", recorder->boot_id, &pid, &start) != 3)
        return -1;
    recorder->pid = pid;
    recorder->start = start;
    return 0;
}
