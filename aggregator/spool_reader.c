/*
 * spool_reader.c - see spool_reader.h. Everything that is read from the mapping is read once, into
 * a local variable, and checked before use: the writer may change it at any moment.
 */
#include "aggregator/spool_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- opening ---- */

/* A text of the header: it may lack its end, and goes to terminals. */
static void copy_text(char *to, size_t to_size, const char *from, size_t from_size)
{
    size_t n = 0;
    while (n < from_size && n + 1 < to_size && from[n]) {
        to[n] = (unsigned char)from[n] < 0x20 || from[n] == 0x7f ? '?' : from[n];
        n++;
    }
    to[n] = '\0';
}

#define COPY_TEXT(to, from) copy_text(to, sizeof(to), from, sizeof(from))

static int check_header(const struct spool *spool, struct error *error)
{
    static const char magic[sizeof(spool->map->magic)] = LG_SPOOL_MAGIC;
    static const char nothing[sizeof(magic)];
    const struct lg_spool *s = spool->map;

    if (memcmp(s->magic, nothing, sizeof(nothing)) == 0)
        return SPOOL_NOT_READY;
    if (memcmp(s->magic, magic, sizeof(magic)) != 0)
        return error_set(error, "%s: not a spool", spool->path);
    atomic_thread_fence(memory_order_acquire); /* the magic is written last */
    if (s->version != LG_SPOOL_VERSION || s->columns != LG_COLUMNS)
        return error_set(error,
                         "%s: written by another version of laggard (spool version %u with %u"
                         " columns; this one reads version %u with %u)",
                         spool->path, s->version, s->columns, LG_SPOOL_VERSION, LG_COLUMNS);
    if (s->slots != LG_SLOTS || s->slot_bytes != sizeof(struct lg_slot) ||
        s->file_bytes != LG_SPOOL_BYTES)
        return error_set(error, "%s: damaged header", spool->path);
    return SPOOL_OPENED;
}

int spool_check(const struct spool *spool, struct error *error)
{
    struct stat st;
    if (fstat(spool->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return error_set(error, "%s: not a regular file", spool->path);
    if ((uint64_t)st.st_size != LG_SPOOL_BYTES)
        return error_set(error, "%s: damaged: %lld bytes long, not %llu", spool->path,
                         (long long)st.st_size, (unsigned long long)LG_SPOOL_BYTES);
    return 0;
}

static enum spool_open_result map_file(struct spool *spool, struct error *error)
{
    struct stat st;
    /* no bytes yet: the writer is between open and fallocate */
    if (fstat(spool->fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0)
        return SPOOL_NOT_READY;
    if (spool_check(spool, error) != 0)
        return SPOOL_BAD;
    int protection = PROT_READ | (spool->writable ? PROT_WRITE : 0);
    void *map = mmap(NULL, LG_SPOOL_BYTES, protection, MAP_SHARED, spool->fd, 0);
    if (map == MAP_FAILED) {
        error_set(error, "%s: %s", spool->path, strerror(errno));
        return SPOOL_BAD;
    }
    spool->map = map;
    int result = check_header(spool, error);
    if (result == SPOOL_OPENED && spool->writable && flock(spool->fd, LOCK_EX | LOCK_NB) != 0 &&
        errno == EWOULDBLOCK)
        result = SPOOL_TAKEN;
    return result;
}

enum spool_open_result spool_open(struct spool *spool, const char *path, int writable,
                                  struct error *error)
{
    memset(spool, 0, sizeof(*spool));
    spool->writable = writable;
    spool->path = strdup(path);
    /* NONBLOCK: somebody's pipe must not hold us */
    spool->fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    enum spool_open_result result = SPOOL_BAD;
    if (!spool->path || spool->fd < 0)
        error_set(error, "%s: %s", path, strerror(errno));
    else
        result = map_file(spool, error);
    if (result != SPOOL_OPENED) {
        spool_close(spool);
        return result;
    }
    const struct lg_spool *s = spool->map;
    spool->process.pid = s->pid;
    spool->process.start = s->proc_start;
    COPY_TEXT(spool->process.boot_id, s->boot_id);
    spool->seq = s->seq;
    spool->mono_ns = s->mono_ns;
    spool->real_ns = s->real_ns;
    return SPOOL_OPENED;
}

void spool_close(struct spool *spool)
{
    if (spool->map)
        munmap(spool->map, LG_SPOOL_BYTES);
    if (spool->fd >= 0)
        close(spool->fd);
    free(spool->path);
    memset(spool, 0, sizeof(*spool));
    spool->fd = -1;
}

/* ---- the header ---- */

const char *spool_rank_source(uint32_t source)
{
    static const char *const names[] = {"unknown", "slurm", "pmi", "ompi", "env", "communicator"};
    return source < sizeof(names) / sizeof(names[0]) ? names[source] : names[0];
}

/* Numbers where -1 and its like stand for "not known". */
static int64_t known(int64_t number)
{
    return number < 0 ? LG_NULL : number;
}

static int64_t bounded(uint64_t number)
{
    return number > INT64_MAX ? INT64_MAX : (int64_t)number;
}

void spool_rank_info(const struct spool *spool, struct rank_info *info)
{
    const struct lg_spool *s = spool->map;

    memset(info, 0, sizeof(*info));
    info->rank = known(s->rank);
    info->world_size = s->world > 0 ? s->world : LG_NULL;
    info->local_rank = known(s->local_rank);
    snprintf(info->rank_source, sizeof(info->rank_source), "%s", spool_rank_source(s->rank_source));
    info->pid = spool->process.pid;
    info->parent_pid = s->parent_pid;
    info->proc_start = bounded(spool->process.start);
    info->mono_ns = spool->mono_ns;
    info->real_ns = spool->real_ns;
    info->seen = s->seen;
    info->steps_complete = bounded(s->steps_complete);
    info->ended = s->ended == LG_ENDED_EXIT;
    info->exit_status = info->ended ? s->exit_status : LG_NULL;
    info->killed = LG_NULL;
    info->entries_dropped = bounded(s->entries_dropped);
    COPY_TEXT(info->host, s->host);
    COPY_TEXT(info->boot_id, s->boot_id);
    COPY_TEXT(info->run_id, s->run_id);
    COPY_TEXT(info->torch_path, s->torch_path);
    COPY_TEXT(info->nccl_version, s->nccl_version);
}

void spool_stop(const struct spool *spool, struct spool_stop *stop)
{
    stop->reason = spool->map->stop_reason;
    stop->step = bounded(spool->map->stop_step);
    stop->rows_lost = bounded(spool->map->rows_lost);
}

int spool_knows_reason(uint32_t reason)
{
    return strcmp(rankdb_loss_name(reason), "?") != 0;
}

int spool_has_next(const struct spool *spool)
{
    return spool->map->next_file == 1;
}

int spool_worker(const struct spool *spool, uint32_t i, struct rank_worker *worker)
{
    const struct lg_worker *w = &lg_spool_workers(spool->map)[i];
    worker->pid = w->pid;
    worker->begin_ns = bounded(w->begin_ns);
    worker->reads = bounded(w->reads);
    worker->read_bytes = bounded(w->read_bytes);
    worker->read_ns = bounded(w->read_ns);
    worker->ended = w->ended == 1;
    return worker->pid != 0;
}

int spool_group(const struct spool *spool, uint32_t i, struct rank_group *group)
{
    static const char *const kinds[] = {"?", "c10d", "gloo", "nccl"};
    const struct lg_group *g = &lg_spool_groups(spool->map)[i];
    uint32_t kind = g->kind;
    uint64_t id = g->id;

    memset(group, 0, sizeof(*group));
    group->id = (int64_t)(id & INT64_MAX);
    group->rank = known(g->rank);
    group->size = known(g->size);
    group->seq = bounded(g->seq);
    group->bytes = bounded(g->bytes);
    snprintf(group->kind, sizeof(group->kind), "%s",
             kinds[kind < sizeof(kinds) / sizeof(kinds[0]) ? kind : 0]);
    return id != 0;
}

int spool_library(const struct spool *spool, uint32_t i, struct rank_library *library)
{
    static const char *const kinds[] = {"?", "program", "nccl"};
    const struct lg_library *l = &lg_spool_libraries(spool->map)[i];
    uint32_t kind = l->kind;

    memset(library, 0, sizeof(*library));
    library->id = i;
    COPY_TEXT(library->path, l->path);
    COPY_TEXT(library->version, l->version);
    snprintf(library->kind, sizeof(library->kind), "%s",
             kinds[kind < sizeof(kinds) / sizeof(kinds[0]) ? kind : 0]);
    library->communicators = kind == LG_LIBRARY_NCCL ? l->communicators : LG_NULL;
    return kind == LG_LIBRARY_PROGRAM || kind == LG_LIBRARY_NCCL;
}

/* ---- rows ---- */

/* A copy of a slot's row; 0 = it can't be one. */
static int read_row(const struct lg_slot *slot, uint32_t state, int64_t *step,
                    int64_t value[LG_COLUMNS])
{
    uint64_t number = slot->step;
    memcpy(value, slot->value, LG_COLUMNS * sizeof(value[0]));
    *step = (int64_t)number;
    if (state == LG_SLOT_HOST_DONE) /* whatever is there of device times may be half a row */
        for (int c = LG_COL_gpu_dur_ns; c < LG_COLUMNS; c++)
            value[c] = LG_NULL;
    for (int c = 0; c < LG_COLUMNS; c++)
        if (value[c] != LG_NULL && (value[c] > LG_LARGEST || value[c] < -LG_LARGEST))
            return 0;
    int64_t dur = value[LG_COL_dur_ns];
    return number <= (uint64_t)LG_LARGEST && (dur == LG_NULL || dur >= 0);
}
static_assert(LG_COL_gpu_dur_ns + 16 == LG_COLUMNS, "the device's columns are the last ones");

static uint32_t state_of(const struct lg_slot *slot)
{
    return atomic_load_explicit(&slot->state, memory_order_acquire);
}

static int is_row(uint32_t state)
{
    return state == LG_SLOT_HOST_DONE || state == LG_SLOT_COMPLETE;
}

/* Gives a slot's row to the function; -1 = the function failed. */
static int pass_row(const struct lg_slot *slot, uint32_t state, spool_row_fn *fn, void *context,
                    struct spool_pass *pass)
{
    int64_t step, value[LG_COLUMNS];
    if (!is_row(state) || !read_row(slot, state, &step, value)) {
        pass->damaged++;
        return 0;
    }
    if (fn(context, step, value) != 0) {
        pass->failed = 1;
        return -1;
    }
    pass->rows++;
    return 0;
}

void spool_ready_rows(const struct spool *spool, uint64_t tail, int gone, spool_row_fn *fn,
                      void *context, struct spool_pass *pass)
{
    uint64_t head = atomic_load_explicit(&spool->map->head, memory_order_acquire);
    const struct lg_slot *ring = lg_spool_ring(spool->map);

    memset(pass, 0, sizeof(*pass));
    pass->tail = tail;
    if (head - tail > LG_SLOTS) { /* also tail > head: the positions are garbage */
        pass->garbage = 1;
        return;
    }
    for (; pass->tail != head; pass->tail++) {
        const struct lg_slot *slot = &ring[pass->tail % LG_SLOTS];
        uint32_t state = state_of(slot);
        int late = head - pass->tail > SPOOL_PATIENCE;
        if (state != LG_SLOT_COMPLETE && !gone && !late)
            break;
        if (pass_row(slot, state, fn, context, pass) != 0)
            break;
    }
}

uint64_t spool_waiting(const struct spool *spool, uint64_t tail)
{
    return atomic_load_explicit(&spool->map->head, memory_order_acquire) - tail;
}

int spool_holds_rows(const struct spool *spool)
{
    return atomic_load_explicit(&spool->map->held_count, memory_order_acquire) > 0;
}

uint64_t spool_tail(const struct spool *spool)
{
    return atomic_load_explicit(&spool->map->tail, memory_order_relaxed);
}

void spool_release(struct spool *spool, uint64_t tail)
{
    if (spool->writable)
        atomic_store_explicit(&spool->map->tail, tail, memory_order_release);
}

void spool_held_rows(const struct spool *spool, spool_row_fn *fn, void *context,
                     struct spool_pass *pass)
{
    uint32_t count = atomic_load_explicit(&spool->map->held_count, memory_order_acquire);
    const struct lg_slot *held = lg_spool_held(spool->map);

    memset(pass, 0, sizeof(*pass));
    if (count > LG_HELD) {
        pass->garbage = 1;
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        if (pass_row(&held[i], state_of(&held[i]), fn, context, pass) != 0)
            return;
}

int spool_provisional_row(const struct spool *spool, int64_t *step, int64_t value[LG_COLUMNS])
{
    const struct lg_slot *copy = lg_spool_provisional(spool->map), *best = NULL;

    for (int i = 0; i < 2; i++)
        if (is_row(state_of(&copy[i])) && copy[i].serial != 0 &&
            (!best || (int32_t)(copy[i].serial - best->serial) > 0))
            best = &copy[i];
    if (!best || !read_row(best, state_of(best), step, value))
        return 0;
    int64_t *flags = &value[LG_COL_flags];
    *flags = (*flags == LG_NULL ? 0 : *flags) | LG_FLAG_provisional;
    return 1;
}
