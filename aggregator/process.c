/*
 * process.c - see process.h. Reads /proc only.
 */
#include "aggregator/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
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

/* PF_EXITING of a thread's flags, and SIGKILL among its own pending signals. */
static int is_thread_ending(const char *stat)
{
    const char *fields = after_name(stat);
    unsigned long flags = 0, pending = 0;

    return fields &&
           sscanf(fields,
                  "%*c %*s %*s %*s %*s %*s %lu %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s"
                  " %*s %*s %*s %*s %*s %*s %*s %*s %lu",
                  &flags, &pending) == 2 &&
           ((flags & 0x4) || (pending & 1UL << (SIGKILL - 1)));
}

int process_is_ending(const struct process_id *id)
{
    char path[64], text[2048];
    int ending = 1, threads = 0;

    snprintf(path, sizeof(path), "/proc/%lld/task", (long long)id->pid);
    DIR *tasks = opendir(path);
    for (struct dirent *e; tasks && ending && (e = readdir(tasks));) {
        if (*e->d_name == '.')
            continue;
        snprintf(path, sizeof(path), "/proc/%lld/task/%.20s/stat", (long long)id->pid, e->d_name);
        read_text(path, text, sizeof(text));
        threads++;
        ending = !*text || is_thread_ending(text); /* one that is gone has ended */
    }
    if (tasks)
        closedir(tasks);
    return ending && threads > 0 && process_start_time(id->pid) == id->start;
}

void process_await_end(const struct process_id *id)
{
    const struct timespec pause = {0, 10000000};
    for (int i = 0; i < 200 && process_is_ending(id); i++)
        nanosleep(&pause, NULL);
}

void process_self(struct process_id *self)
{
    self->pid = getpid();
    self->start = process_start_time(self->pid);
    snprintf(self->boot_id, sizeof(self->boot_id), "%s", process_boot_id());
}

/* The last number of the line NSpid: what the process itself takes for its number; 0: not told. */
static int64_t innermost_pid(const char *pid)
{
    char path[64], text[4096];

    snprintf(path, sizeof(path), "/proc/%.20s/status", pid);
    read_text(path, text, sizeof(text));
    char *line = strstr(text, "\nNSpid:");
    if (!line)
        return 0;
    line += strlen("\nNSpid:");
    line[strcspn(line, "\n")] = '\0';
    char *last = strrchr(line, '\t');
    return last ? strtoll(last + 1, NULL, 10) : 0;
}

/* Looks through all processes for one that has this number in a process namespace below ours, as in
 * a container: there it wrote the number that it has there. */
static int lives_in_namespace(const struct process_id *id)
{
    int found = 0;
    DIR *proc = opendir("/proc");
    for (struct dirent *e; proc && !found && (e = readdir(proc));) {
        int64_t pid = strtoll(e->d_name, NULL, 10);
        found =
            pid > 0 && process_start_time(pid) == id->start && innermost_pid(e->d_name) == id->pid;
    }
    if (proc)
        closedir(proc);
    return found;
}

enum process_state process_state(const struct process_id *id)
{
    if (strcmp(id->boot_id, process_boot_id()) != 0)
        return PROCESS_ELSEWHERE;
    if (id->start == 0)
        return PROCESS_GONE;
    return process_start_time(id->pid) == id->start || lives_in_namespace(id) ? PROCESS_ALIVE
                                                                              : PROCESS_GONE;
}
