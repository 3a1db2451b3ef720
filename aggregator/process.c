/*
 * process.c - see process.h. Reads /proc only.
 */
#include "aggregator/process.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* Reads up to size - 1 bytes of a file; the text is always terminated. */
static void read_text(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, size - 1);
    text[n > 0 ? n : 0] = '\0';
    if (fd >= 0)
        close(fd);
}

const char *process_boot_id(void)
{
    static char boot_id[40];
    if (!*boot_id) {
        read_text("/proc/sys/kernel/random/boot_id", boot_id, sizeof(boot_id));
        boot_id[strcspn(boot_id, "\n")] = '\0';
    }
    return boot_id;
}

const char *process_host(void)
{
    static struct utsname name;
    if (!*name.nodename) {
        if (uname(&name) != 0)
            strcpy(name.nodename, "localhost");
        for (char *c = name.nodename; *c; c++)
            if (*c == '/')
                *c = '_';
    }
    return name.nodename;
}

int64_t process_boot_time_ns(void)
{
    char line[128];
    long long seconds = 0;
    FILE *stat = fopen("/proc/stat", "re");
    if (!stat)
        return 0;
    while (fgets(line, sizeof(line), stat))
        if (sscanf(line, "btime %lld", &seconds) == 1)
            break;
    fclose(stat);
    return seconds * 1000000000;
}

/* The fields from the third on: the second, a name in parentheses, can hold anything. */
static const char *after_name(const char *stat)
{
    const char *end = strrchr(stat, ')');
    return end && end[1] == ' ' ? end + 2 : NULL;
}

uint64_t process_start_time(int64_t pid)
{
    char path[64], text[2048], state = '?';
    unsigned long long start = 0;
    long threads = 0;

    snprintf(path, sizeof(path), "/proc/%lld/stat", (long long)pid);
    read_text(path, text, sizeof(text));
    const char *fields = after_name(text);
    if (!fields || sscanf(fields,
                          "%c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %ld"
                          " %*s %llu",
                          &state, &threads, &start) != 3)
        return 0;
    /* a zombie's main thread may be gone while others live on */
    if (state == 'X' || (state == 'Z' && threads <= 1))
        return 0;
    return start;
}

void process_self(struct process_id *self)
{
    self->pid = getpid();
    self->start = process_start_time(self->pid);
    snprintf(self->boot_id, sizeof(self->boot_id), "%s", process_boot_id());
}

enum process_state process_state(const struct process_id *id)
{
    if (strcmp(id->boot_id, process_boot_id()) != 0)
        return PROCESS_ELSEWHERE;
    return id->start != 0 && process_start_time(id->pid) == id->start ? PROCESS_ALIVE
                                                                      : PROCESS_GONE;
}
