/*
 * recorder.c - see recorder.h. Finds spools, tells which belong together, and has them stored.
 * Runs in `laggard run` beside the command and in reading commands; never in a traced process.
 */
#include "aggregator/recorder_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "aggregator/rundir.h"

#define PUBLISH_NS INT64_C(60000000000)

void recorder_note(struct recorder *r, const struct error *error)
{
    snprintf(r->note, sizeof(r->note), "%s", error->text);
}

static int64_t monotonic_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* One more element at the end of an array of pointers; without memory the element is not kept. */
static int append(void *array, size_t *n, void *element)
{
    void **old = *(void ***)array;
    void **grown = realloc(old, (*n + 1) * sizeof(*grown));
    if (!grown)
        return -1;
    grown[(*n)++] = element;
    *(void ***)array = grown;
    return 0;
}

/* ---- names ---- */

struct spool_name {
    char host[65];
    struct process_id process;
    uint32_t seq;
};

/* HOST.PID.STARTTIME.SEQ.spool; the host may contain dots. */
static int parse_name(const char *name, const char *ending, struct spool_name *parsed)
{
    size_t n = strlen(name), suffix = strlen(ending);
    unsigned long long number[3];
    char text[NAME_MAX + 1];

    if (n <= suffix || strcmp(name + n - suffix, ending) != 0)
        return 0;
    snprintf(text, sizeof(text), "%.*s", (int)(n - suffix), name);
    for (int i = 2; i >= 0; i--) {
        char *end, *dot = strrchr(text, '.');
        if (!dot || !dot[1])
            return 0;
        number[i] = strtoull(dot + 1, &end, 10);
        if (*end)
            return 0;
        *dot = '\0';
    }
    snprintf(parsed->host, sizeof(parsed->host), "%.64s", text);
    parsed->process.pid = (int64_t)number[0];
    parsed->process.start = number[1];
    snprintf(parsed->process.boot_id, sizeof(parsed->process.boot_id), "%s", process_boot_id());
    parsed->seq = (uint32_t)number[2];
    return 1;
}

static int is_known(const struct recorder *r, const char *path)
{
    for (size_t i = 0; i < r->bads; i++)
        if (strcmp(r->bad[i], path) == 0)
            return 1;
    for (size_t i = 0; i < r->sources; i++)
        for (size_t f = 0; f < r->source[i]->files; f++)
            if (r->source[i]->file[f].spool.path &&
                strcmp(r->source[i]->file[f].spool.path, path) == 0)
                return 1;
    return 0;
}

/* ---- what belongs together ---- */

static int same_process(const struct process_id *a, const struct process_id *b)
{
    return a->pid == b->pid && a->start == b->start && strcmp(a->boot_id, b->boot_id) == 0;
}

static int add_file(struct source *s, const struct spool *spool)
{
    struct source_file *grown = realloc(s->file, (s->files + 1) * sizeof(*grown));
    if (!grown)
        return -1;
    s->file = grown;
    memset(&grown[s->files], 0, sizeof(*grown));
    grown[s->files].spool = *spool;
    grown[s->files].tail = grown[s->files].next_tail = spool_tail(spool);
    s->files++;
    return 0;
}

/*
 * The process that this file is a continuation of. A file with a number above 0 and no process to
 * continue is from another program that the same process became by exec: a process of its own.
 * *wait is set when the predecessor may only not have said yet that it went on.
 */
static struct source *find_continued(struct recorder *r, const struct spool *spool, int *wait)
{
    for (size_t i = 0; i < r->sources; i++) {
        struct source *s = r->source[i];
        struct spool *last = s->files ? &s->file[s->files - 1].spool : NULL;
        if (!last || spool_check(last, NULL) != 0 ||
            !same_process(&last->process, &spool->process) || last->seq >= spool->seq)
            continue;
        if (spool_has_next(last))
            return s;
        *wait = 1;
    }
    return NULL;
}

/* How long a spool may be there before its predecessor says that it went on in it. */
#define HAND_OVER_NS INT64_C(1000000000)

static int is_fresh(const struct spool *spool)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t age = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - spool->real_ns;
    return process_state(&spool->process) == PROCESS_ALIVE && age >= 0 && age < HAND_OVER_NS;
}

/* Takes the spool over; 0 = not now. */
static int add_spool(struct recorder *r, struct spool *spool)
{
    int wait = 0;
    struct source *s = spool->seq > 0 ? find_continued(r, spool, &wait) : NULL;

    if (!s && wait && is_fresh(spool))
        return 0;
    if (s)
        return add_file(s, spool) == 0;
    s = calloc(1, sizeof(*s));
    if (!s)
        return 0;
    s->rank = s->attempt = -1;
    if (add_file(s, spool) != 0 || append(&r->source, &r->sources, s) != 0) {
        free(s->file);
        free(s);
        return 0;
    }
    return 1;
}

/* ---- scanning ---- */

struct found {
    struct spool *spool;
    size_t n;
};

static void remember_bad(struct recorder *r, const char *path, const struct error *error)
{
    char *copy = strdup(path);
    recorder_note(r, error);
    if (copy && append(&r->bad, &r->bads, copy) != 0)
        free(copy);
}

/* Made by a process that died before it wrote anything: nothing is in it. */
static void remove_stillborn(const char *path, const struct spool_name *name)
{
    if (strcmp(name->host, process_host()) == 0 && process_state(&name->process) == PROCESS_GONE)
        unlink(path);
}

/* Acknowledging needs one host's memory: only its own processes, and none of an earlier boot. */
static int may_write(const struct spool *spool)
{
    return process_state(&spool->process) != PROCESS_ELSEWHERE;
}

static enum spool_open_result open_found(struct spool *spool, const char *path, struct error *error)
{
    enum spool_open_result result = spool_open(spool, path, 0, error);
    if (result == SPOOL_OPENED && may_write(spool)) {
        spool_close(spool);
        result = spool_open(spool, path, 1, error);
    }
    return result;
}

static void look_at(struct recorder *r, const char *path, const struct spool_name *name,
                    struct found *found)
{
    struct error error = {""};
    struct spool spool, *grown;

    switch (open_found(&spool, path, &error)) {
    case SPOOL_NOT_READY:
        remove_stillborn(path, name);
        return;
    case SPOOL_TAKEN:
        return;
    case SPOOL_BAD:
        if (access(path, F_OK) == 0) /* else it was collected by somebody else just now */
            remember_bad(r, path, &error);
        return;
    case SPOOL_OPENED:
        break;
    }
    grown = realloc(found->spool, (found->n + 1) * sizeof(*grown));
    if (!grown) {
        spool_close(&spool);
        return;
    }
    found->spool = grown;
    grown[found->n++] = spool;
}

/* What a process left that found no room for a spool; 0 = this is no such link. */
static int read_lost(const char *path, const struct spool_name *name, struct rank_info *info,
                     uint32_t *reason)
{
    char text[64];
    unsigned rank, world, source, why;
    ssize_t n = readlink(path, text, sizeof(text) - 1);

    text[n > 0 ? n : 0] = '\0';
    if (sscanf(text, "%u:%u:%u:%u", &why, &rank, &world, &source) != 4 || rank >= world ||
        world > INT32_MAX)
        return 0;
    *info = (struct rank_info){.rank = rank,
                               .world_size = world,
                               .local_rank = LG_NULL,
                               .pid = name->process.pid,
                               .parent_pid = LG_NULL,
                               .proc_start = (int64_t)name->process.start,
                               .seen = LG_NULL,
                               .mono_ns = LG_NULL,
                               .real_ns = LG_NULL,
                               .ended = LG_NULL,
                               .exit_status = LG_NULL,
                               .killed = LG_NULL,
                               .entries_dropped = LG_NULL};
    snprintf(info->rank_source, sizeof(info->rank_source), "%s", spool_rank_source(source));
    snprintf(info->host, sizeof(info->host), "%.63s", name->host);
    if (strcmp(name->host, process_host()) == 0)
        snprintf(info->boot_id, sizeof(info->boot_id), "%s", process_boot_id());
    *reason = why;
    return 1;
}

static void take_lost(struct recorder *r, const char *path, const struct spool_name *name)
{
    struct error error = {""};
    struct rank_info info;
    uint32_t reason;

    if (!read_lost(path, name, &info, &reason))
        return;
    if (source_store_lost(r, &info, reason, &error) != 0) {
        recorder_note(r, &error);
        r->lost_unstored++;
        return;
    }
    unlink(path);
    r->lost++;
}

static void scan_dir(struct recorder *r, const char *path, struct found *found)
{
    struct spool_name name;
    char file[PATH_MAX + NAME_MAX + 2];
    DIR *dir = opendir(path);

    for (struct dirent *e; dir && (e = readdir(dir));) {
        snprintf(file, sizeof(file), "%s/%s", path, e->d_name);
        if (parse_name(e->d_name, LG_LOST_SUFFIX, &name))
            take_lost(r, file, &name);
        else if (parse_name(e->d_name, LG_SPOOL_SUFFIX, &name) && !is_known(r, file))
            look_at(r, file, &name, found);
    }
    if (dir)
        closedir(dir);
}

/* Oldest first: attempts of a rank are numbered in that order, and predecessors come before those
 * that continue them. */
static int by_age(const void *a, const void *b)
{
    const struct spool *x = a, *y = b;
    if (x->real_ns != y->real_ns)
        return x->real_ns < y->real_ns ? -1 : 1;
    return x->seq < y->seq ? -1 : x->seq > y->seq;
}

static void scan(struct recorder *r)
{
    struct found found = {NULL, 0};

    r->lost_unstored = 0;
    for (size_t i = 0; i < r->dirs; i++)
        scan_dir(r, r->dir[i], &found);
    if (found.n > 1)
        qsort(found.spool, found.n, sizeof(found.spool[0]), by_age);
    for (size_t i = 0; i < found.n; i++)
        if (!add_spool(r, &found.spool[i]))
            spool_close(&found.spool[i]);
    free(found.spool);
}

/* ---- the recorder ---- */

struct recorder *recorder_new(const struct recorder_options *options, struct error *error)
{
    struct recorder *r = calloc(1, sizeof(*r));
    if (!r) {
        error_set(error, "out of memory");
        return NULL;
    }
    snprintf(r->run_dir, sizeof(r->run_dir), "%s", options->run_dir);
    snprintf(r->database_dir, sizeof(r->database_dir), "%s", options->database_dir);
    r->run_over = options->run_over;
    r->inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    r->published_ns = monotonic_ns();
    return r;
}

void recorder_add_dir(struct recorder *r, const char *dir)
{
    char *copy = strdup(dir);
    if (!copy || append(&r->dir, &r->dirs, copy) != 0) {
        free(copy);
        return;
    }
    if (r->inotify >= 0)
        inotify_add_watch(r->inotify, dir, IN_CREATE | IN_MOVED_TO);
}

int recorder_descriptor(const struct recorder *r)
{
    return r->inotify;
}

static void empty_inotify(struct recorder *r)
{
    char events[4096];
    while (r->inotify >= 0 && read(r->inotify, events, sizeof(events)) > 0)
        ;
}

static void publish_all(struct recorder *r)
{
    for (size_t i = 0; i < r->sources; i++)
        source_publish(r, r->source[i]);
    r->published_ns = monotonic_ns();
}

void recorder_limit(struct recorder *r, int64_t ns)
{
    r->limit_ns = ns;
}

static void store_sources(struct recorder *r)
{
    int64_t begun = monotonic_ns();
    size_t n = r->sources;

    r->pressed = 0;
    for (size_t i = 0; i < n; i++) {
        struct source *s = r->source[r->next++ % n];
        if (!s->finished)
            source_store(r, s);
        if (r->limit_ns > 0 && i + 1 < n && monotonic_ns() - begun > r->limit_ns) {
            r->pressed = 1;
            break;
        }
    }
    r->next = n > 0 ? r->next % n : 0;
}

void recorder_pass(struct recorder *r)
{
    empty_inotify(r);
    scan(r);
    store_sources(r);
    if (monotonic_ns() - r->published_ns > PUBLISH_NS)
        publish_all(r);
}

int recorder_is_pressed(const struct recorder *r)
{
    return r->pressed;
}

int recorder_has_running(const struct recorder *r)
{
    for (size_t i = 0; i < r->sources; i++)
        if (!r->source[i]->finished && !source_is_gone(r, r->source[i]))
            return 1;
    return 0;
}

int recorder_has_ending(const struct recorder *r)
{
    for (size_t i = 0; i < r->sources; i++) {
        const struct source *s = r->source[i];
        if (!s->finished && s->files > 0 && process_is_ending(&s->file[0].spool.process))
            return 1;
    }
    return 0;
}

void recorder_result(const struct recorder *r, struct recorder_result *result)
{
    memset(result, 0, sizeof(*result));
    result->failed = (int)r->bads + r->lost_unstored;
    result->ranks = result->finished = r->lost;
    result->rows = r->rows;
    snprintf(result->note, sizeof(result->note), "%s", r->note);
    for (size_t i = 0; i < r->sources; i++) {
        const struct source *s = r->source[i];
        result->ranks += s->has_database;
        result->finished += s->finished;
        if (s->finished)
            continue;
        if (source_is_gone(r, s))
            result->failed++;
        else
            result->running++;
    }
}

void recorder_free(struct recorder *r)
{
    if (!r)
        return;
    publish_all(r);
    for (size_t i = 0; i < r->sources; i++)
        source_free(r->source[i]);
    for (size_t i = 0; i < r->dirs; i++)
        free(r->dir[i]);
    for (size_t i = 0; i < r->bads; i++)
        free(r->bad[i]);
    free(r->source);
    free(r->dir);
    free(r->bad);
    if (r->inotify >= 0)
        close(r->inotify);
    free(r);
}

/* 1 when record locks work in `dir`: SQLite relies on them. */
static int locks_work(const char *dir)
{
    char path[PATH_MAX + 32];
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};

    snprintf(path, sizeof(path), "%s/.laggard-lock-XXXXXX", dir);
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return 1; /* not writable at all: said where it is written */
    int works = fcntl(fd, F_SETLK, &lock) == 0;
    close(fd);
    unlink(path);
    return works;
}

void recorder_database_dir(const char *run_dir, const char *spool_dir, char *dir)
{
    snprintf(dir, PATH_MAX, "%s", run_dir);
    if (!spool_dir || !*spool_dir || (!rundir_is_network(run_dir) && locks_work(run_dir)))
        return;
    char local[PATH_MAX];
    if (snprintf(local, sizeof(local), "%s/db", spool_dir) >= (int)sizeof(local))
        return;
    if (mkdir(local, 0700) == 0 || errno == EEXIST)
        snprintf(dir, PATH_MAX, "%s", local);
}
