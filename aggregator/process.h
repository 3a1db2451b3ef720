/*
 * process.h - who a process is and whether it still runs. Runs in the recorder and in commands
 * that look at a run.
 *
 * A process number alone says little: numbers are used again. Number, start time and boot id
 * together name one process for ever.
 */
#ifndef LAGGARD_AGGREGATOR_PROCESS_H
#define LAGGARD_AGGREGATOR_PROCESS_H

#include <stdint.h>

struct process_id {
    int64_t pid;
    uint64_t start; /* field 22 of /proc/PID/stat: clock ticks since boot */
    char boot_id[40];
};

enum process_state {
    PROCESS_GONE,
    PROCESS_ALIVE,
    PROCESS_ELSEWHERE /* another boot id: another host, or this one before a restart */
};

/* The boot id of this host, "" when /proc doesn't tell. Static text. */
const char *process_boot_id(void);

/* This host's name as the library writes it: uname's nodename, '/' replaced. Static text. */
const char *process_host(void);

/* When this host was started, CLOCK_REALTIME in ns; 0: not known. */
int64_t process_boot_time_ns(void);

/* Start time of a process of this host; 0 when there is none such or it is a zombie. */
uint64_t process_start_time(int64_t pid);

/* Fills in the calling process. */
void process_self(struct process_id *self);

/* 1 while the process is on its way out: killed or exiting, each of its threads, but still there
 * (the kernel takes its memory apart). It writes nothing any more, and is gone in a moment. */
int process_is_ending(const struct process_id *id);

/* Waits for such a process to be gone, 2 s at most; for others not at all. */
void process_await_end(const struct process_id *id);

enum process_state process_state(const struct process_id *id);

#endif
