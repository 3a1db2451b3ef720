/*
 * recorder_store.c - one process' rows into its rank database: which file that is, one transaction
 * per pass, and the end. Part of the recorder (recorder.h).
 */
#include "aggregator/recorder_private.h"
#include "aggregator/static_nccl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Rows that may wait while a process doesn't know its rank yet. */
#define RANK_PATIENCE 256
/* Passes in which the file that a process went on in may be missing. */
#define CONTINUATION_PATIENCE 3
#define ATTEMPTS              10000

static const struct spool *first_file(const struct source *s)
{
    return &s->file[0].spool;
}

int source_is_gone(const struct recorder *r, const struct source *s)
{
    struct rank_info info;

    if (s->files == 0)
        return 1;
    const struct spool *spool = first_file(s);
    switch (process_state(&spool->process)) {
    case PROCESS_ALIVE:
        return 0;
    case PROCESS_GONE:
        return 1;
    case PROCESS_ELSEWHERE:
        break;
    }
    if (spool_check(spool, NULL) != 0)
        return 1;
    spool_rank_info(spool, &info);
    if (info.ended || r->run_over)
        return 1;
    /* this host before its last start */
    return strcmp(info.host, process_host()) == 0 && info.real_ns < process_boot_time_ns();
}

/* ---- which file ---- */

static int same_writer(const struct rank_info *a, const struct rank_info *b)
{
    /* mono_ns too: a process may become another program by exec */
    return a->pid == b->pid && a->proc_start == b->proc_start && a->mono_ns == b->mono_ns &&
           strcmp(a->boot_id, b->boot_id) == 0;
}

static int copy_file(const char *from, const char *to)
{
    char buffer[65536], temporary[PATH_MAX + 16];
    ssize_t n = -1;

    if (snprintf(temporary, sizeof(temporary), "%s.tmp%d", to, (int)getpid()) >=
        (int)sizeof(temporary))
        return -1;
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out =
        in < 0 ? -1 : open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    int ok = out >= 0;
    while (ok && (n = read(in, buffer, sizeof(buffer))) > 0)
        for (ssize_t done = 0, w; ok && done < n; done += w) {
            w = write(out, buffer + done, (size_t)(n - done));
            ok = w > 0;
        }
    ok = ok && n == 0 && fsync(out) == 0;
    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    if (ok)
        ok = rename(temporary, to) == 0;
    else
        unlink(temporary);
    return ok ? 0 : -1;
}

static int written_elsewhere(const struct recorder *r)
{
    return strcmp(r->run_dir, r->database_dir) != 0;
}

/* Who wrote the database at path: 1 = `info`'s process, 0 = another, -1 = there is no such file.
 * One that can't be read may have been anybody's: s remembers that rows may be in it. */
static int written_by(struct source *s, const char *path, const struct rank_info *info)
{
    struct rank_info there;
    struct rankdb *db;
    int result = 0;

    if (access(path, F_OK) != 0)
        return -1;
    db = rankdb_open(path, NULL);
    if (db && rankdb_get_rank(db, &there, NULL) == 0)
        result = same_writer(&there, info);
    else
        snprintf(s->unreadable, sizeof(s->unreadable), "%.47s", strrchr(path, '/') + 1);
    rankdb_close(db);
    return result;
}

/*
 * Looks for this process' database among the attempts of its rank, else for the first free number.
 * Fills path (of the file to write) and attempt; *mine = the file is there. -1 = no number is free.
 */
static int find_attempt(const struct recorder *r, struct source *s, const struct rank_info *info,
                        char *path, int64_t *attempt, int *mine)
{
    char published[PATH_MAX + 64];

    for (int64_t a = 0; a < ATTEMPTS; a++) {
        if (rankdb_path(path, PATH_MAX, r->database_dir, info->rank, a) != 0 ||
            rankdb_path(published, sizeof(published), r->run_dir, info->rank, a) != 0)
            return -1;
        *attempt = a;
        *mine = 1;
        int here = written_by(s, path, info);
        if (here == 1)
            return 0;
        int there = written_elsewhere(r) ? written_by(s, published, info) : -1;
        if (here == -1 && there == 1)
            return copy_file(published, path);
        *mine = 0;
        if (here == -1 && there == -1)
            return 0;
    }
    return -1;
}

/*
 * Makes the database under another name, with its rank in it, and links it to its place: nobody
 * ever sees one without a rank, and of two recorders that want the same number one gets it. The
 * name is the process', so what a killed recorder left of it is overwritten by the next.
 */
static int make_database(const struct recorder *r, const char *path, const struct rank_info *info,
                         struct error *error)
{
    char temporary[PATH_MAX + 64], journal[PATH_MAX + 80];

    snprintf(temporary, sizeof(temporary), "%s/.rank-%lld-%lld.new", r->database_dir,
             (long long)info->pid, (long long)info->proc_start);
    snprintf(journal, sizeof(journal), "%s-journal", temporary);
    unlink(temporary);
    unlink(journal);
    struct rankdb *db = rankdb_create(temporary, error);
    int result = db ? rankdb_put_rank(db, info, error) : -1;
    rankdb_close(db);
    if (result == 0 && link(temporary, path) != 0) {
        result = -1;
        if (errno != EEXIST)
            error_set(error, "%s: %s", path, strerror(errno));
        else
            result = 1;
    }
    unlink(temporary);
    return result;
}

static int open_database(struct recorder *r, struct source *s, struct rank_info *info,
                         struct error *error)
{
    int mine = 0, made = 1;

    while (!mine && made == 1) {
        if (find_attempt(r, s, info, s->db_path, &s->attempt, &mine) != 0)
            return error_set(error, "%s: no place for another attempt of rank %lld",
                             r->database_dir, (long long)info->rank);
        info->attempt = s->attempt;
        if (!mine)
            made = make_database(r, s->db_path, info, error);
    }
    if (made < 0)
        return -1;
    s->db = rankdb_create(s->db_path, error);
    if (!s->db)
        return -1;
    s->rank = info->rank;
    s->has_database = 1;
    return 0;
}

/* The communicator knew better than the environment: the file gets the name of its rank. */
static int move_database(struct recorder *r, struct source *s, const struct rank_info *info,
                         struct error *error)
{
    char path[PATH_MAX], old[PATH_MAX + 64];
    int64_t attempt;
    int mine;

    rankdb_close(s->db);
    s->db = NULL;
    s->is_written = 0;
    if (find_attempt(r, s, info, path, &attempt, &mine) != 0 || rename(s->db_path, path) != 0)
        return error_set(error, "%s: can't move it to rank %lld: %s", s->db_path,
                         (long long)info->rank, strerror(errno));
    if (written_elsewhere(r) && rankdb_path(old, sizeof(old), r->run_dir, s->rank, s->attempt) == 0)
        unlink(old);
    snprintf(s->db_path, sizeof(s->db_path), "%s", path);
    s->attempt = attempt;
    s->rank = info->rank;
    s->changed = 1;
    s->db = rankdb_create(s->db_path, error);
    return s->db ? 0 : -1;
}

static int have_database(struct recorder *r, struct source *s, struct rank_info *info,
                         struct error *error)
{
    if (s->db && s->rank == info->rank)
        return 0;
    return s->db ? move_database(r, s, info, error) : open_database(r, s, info, error);
}

void source_publish(struct recorder *r, struct source *s)
{
    char published[PATH_MAX + 64];
    struct error error;

    if (!s->changed || !s->has_database || !written_elsewhere(r))
        return;
    if (rankdb_path(published, sizeof(published), r->run_dir, s->rank, s->attempt) == 0 &&
        copy_file(s->db_path, published) == 0) {
        s->changed = 0;
        if (s->finished)
            unlink(s->db_path);
        return;
    }
    error_set(&error, "%s: can't copy the database there: %s", r->run_dir, strerror(errno));
    recorder_note(r, &error);
}

/* ---- rows ---- */

struct store {
    struct source *s;
    struct error *error;
    int64_t rows;
};

static int put_row(void *context, int64_t step, int64_t value[LG_COLUMNS])
{
    struct store *store = context;
    if (rankdb_put_step(store->s->db, step, value, store->error) != 0)
        return -1;
    store->rows++;
    return 0;
}

static int store_pass(const struct spool_pass *pass, int64_t *damaged, int *garbage)
{
    *damaged += (int64_t)pass->damaged;
    *garbage |= pass->garbage;
    return pass->failed ? -1 : 0;
}

static int store_ring_rows(struct store *store, int gone, int64_t *damaged, int *garbage)
{
    struct source *s = store->s;
    struct spool_pass pass;

    for (size_t i = 0; i < s->files; i++) {
        struct source_file *file = &s->file[i];
        spool_ready_rows(&file->spool, file->tail, gone, put_row, store, &pass);
        file->next_tail = pass.tail;
        if (store_pass(&pass, damaged, garbage) != 0)
            return -1;
    }
    return 0;
}

static int put_row_if_missing(void *context, int64_t step, int64_t value[LG_COLUMNS])
{
    struct store *store = context;
    return rankdb_has_step(store->s->db, step) ? 0 : put_row(context, step, value);
}

/* The rows that the process had not published yet. They are in the file that it wrote last; if it
 * was killed while it changed files, some may only be in the one before. */
static int store_last_rows(struct store *store, int64_t *damaged, int *garbage)
{
    struct source *s = store->s;
    int64_t step, value[LG_COLUMNS];
    struct spool_pass pass;

    for (size_t i = 0; i < s->files; i++) {
        int is_last = i + 1 == s->files;
        spool_held_rows(&s->file[i].spool, is_last ? put_row : put_row_if_missing, store, &pass);
        if (store_pass(&pass, damaged, garbage) != 0)
            return -1;
    }
    if (!spool_provisional_row(&s->file[s->files - 1].spool, &step, value))
        return 0;
    return put_row_if_missing(store, step, value);
}

/* ---- what is known about the process ---- */

/* Where no copy of NCCL is loaded it may be inside of what is: a program, or PyTorch. Looked for
 * once, at the end: the file is large. */
static int put_static_nccl(struct source *s, const struct rank_info *info, const char *program,
                           struct error *error)
{
    struct rank_library inside = {
        .id = LG_LIBRARIES, .kind = "static nccl", .communicators = LG_NULL};

    if (strcmp(info->host, process_host()) != 0)
        return 0; /* the same path may be another file here */
    nccl_may_be_inside(info, program, inside.path, sizeof(inside.path));
    if (!*inside.path || !nccl_inside(inside.path, inside.version, sizeof(inside.version)))
        return 0;
    return rankdb_put_library(s->db, &inside, error);
}

static int put_libraries(struct source *s, const struct rank_info *info, int gone,
                         struct error *error)
{
    struct rank_library library, program = {.path = ""};
    size_t copies = 0;

    for (uint32_t i = 0; i < LG_LIBRARIES; i++) {
        if (!spool_library(first_file(s), i, &library))
            continue;
        if (rankdb_put_library(s->db, &library, error) != 0)
            return -1;
        if (strcmp(library.kind, "nccl") == 0)
            copies++;
        else
            program = library;
    }
    return gone && copies == 0 ? put_static_nccl(s, info, program.path, error) : 0;
}

static int put_tables(struct source *s, const struct rank_info *info, int gone, struct error *error)
{
    const struct spool *base = first_file(s);
    struct rank_worker worker;
    struct rank_group group;

    for (uint32_t i = 0; i < LG_WORKERS; i++)
        if (spool_worker(base, i, &worker) && rankdb_put_worker(s->db, &worker, error) != 0)
            return -1;
    for (uint32_t i = 0; i < LG_GROUPS; i++)
        if (spool_group(base, i, &group) && rankdb_put_group(s->db, &group, error) != 0)
            return -1;
    return put_libraries(s, info, gone, error);
}

static int put_loss(struct source *s, uint32_t reason, int64_t step, int64_t rows,
                    const char *detail, struct error *error)
{
    struct rank_loss loss = {.step = step, .rows = rows};
    snprintf(loss.reason, sizeof(loss.reason), "%s", rankdb_loss_name(reason));
    snprintf(loss.detail, sizeof(loss.detail), "%s", detail);
    return rankdb_put_loss(s->db, &loss, error);
}

static int put_losses(struct source *s, const struct rank_info *info, int64_t damaged, int garbage,
                      struct error *error)
{
    struct spool_stop stop;

    spool_stop(&s->file[s->files - 1].spool, &stop);
    garbage |= !spool_knows_reason(stop.reason);
    if (stop.reason != LG_LOSS_none && spool_knows_reason(stop.reason) &&
        put_loss(s, stop.reason, stop.step, stop.rows_lost, "recording stopped here", error) != 0)
        return -1;
    if (info->killed == 1 && put_loss(s, LG_LOSS_killed, info->steps_complete, LG_NULL,
                                      "the process was killed or crashed", error) != 0)
        return -1;
    if (damaged > 0 && put_loss(s, LG_LOSS_damaged, -1, damaged, "rows that can't be", error) != 0)
        return -1;
    if (garbage && put_loss(s, LG_LOSS_damaged, -2, LG_NULL, "a spool can't be read", error) != 0)
        return -1;
    if (*s->unreadable) {
        char detail[100];
        snprintf(detail, sizeof(detail), "%s can't be read", s->unreadable);
        return put_loss(s, LG_LOSS_damaged, -3, LG_NULL, detail, error);
    }
    return 0;
}

/* The last file's count is the newest. */
static void read_info(const struct source *s, int gone, struct rank_info *info)
{
    struct rank_info last;

    spool_rank_info(first_file(s), info);
    spool_rank_info(&s->file[s->files - 1].spool, &last);
    info->steps_complete = last.steps_complete;
    if (gone)
        info->killed = !info->ended;
    if (info->rank == LG_NULL)
        info->rank = 0;
}

/* Whether the table rank has to be written again. Counters alone are not worth it. */
static int differs(const struct source *s, const struct rank_info *info)
{
    struct rank_info a = s->written, b = *info;
    a.steps_complete = b.steps_complete = 0;
    a.entries_dropped = b.entries_dropped = 0;
    return !s->is_written || memcmp(&a, &b, sizeof(a)) != 0;
}

static int put_info(struct source *s, const struct rank_info *info, int gone, int64_t damaged,
                    int garbage, struct error *error)
{
    if (!gone && !differs(s, info))
        return 0;
    if (rankdb_put_rank(s->db, info, error) != 0 || put_tables(s, info, gone, error) != 0)
        return -1;
    return put_losses(s, info, damaged, garbage, error);
}

/* ---- one pass ---- */

static uint64_t rows_waiting(const struct source *s)
{
    uint64_t n = 0;
    for (size_t i = 0; i < s->files; i++)
        n += spool_waiting(&s->file[i].spool, s->file[i].tail);
    return n;
}

/* One transaction: everything that is ready, or all when the process is gone. */
static int store_all(struct source *s, struct rank_info *info, int gone, int64_t *rows,
                     struct error *error)
{
    struct store store = {s, error, 0};
    int64_t damaged = s->damaged;
    int garbage = s->garbage;

    if (rankdb_begin(s->db, error) != 0)
        return -1;
    info->attempt = s->attempt;
    if (store_ring_rows(&store, gone, &damaged, &garbage) != 0 ||
        (gone && store_last_rows(&store, &damaged, &garbage) != 0) ||
        put_info(s, info, gone, damaged, garbage, error) != 0 || rankdb_commit(s->db, error) != 0) {
        rankdb_rollback(s->db);
        return -1;
    }
    s->damaged = damaged;
    s->garbage = garbage;
    s->written = *info;
    s->is_written = 1;
    s->changed = 1;
    *rows += store.rows;
    for (size_t i = 0; i < s->files; i++) {
        s->file[i].tail = s->file[i].next_tail;
        spool_release(&s->file[i].spool, s->file[i].tail);
    }
    return 0;
}

static void close_source(struct recorder *r, struct source *s)
{
    rankdb_close(s->db);
    s->db = NULL;
    s->finished = 1;
    source_publish(r, s);
}

/* All is stored: the spools can go, the first one last, since the others belong to it. */
static void finish(struct recorder *r, struct source *s)
{
    close_source(r, s);
    for (size_t i = s->files; i-- > 0;) {
        if (!s->changed || !written_elsewhere(r))
            unlink(s->file[i].spool.path);
        spool_close(&s->file[i].spool);
    }
    s->files = 0;
}

/* The first spool was cut short: nothing of the process can be read any more. What is left of the
 * file stays. */
static void abandon(struct recorder *r, struct source *s)
{
    if (s->db)
        put_loss(s, LG_LOSS_damaged, -2, LG_NULL, "the spool was cut short", NULL);
    s->changed = 1;
    close_source(r, s);
    for (size_t i = 0; i < s->files; i++)
        spool_close(&s->file[i].spool);
    s->files = 0;
}

/* Lets go of files that were cut short since the last pass; 0 = nothing is left. */
static int check_files(struct recorder *r, struct source *s)
{
    struct error error;
    size_t kept = 0;

    for (size_t i = 0; i < s->files; i++) {
        if (spool_check(&s->file[i].spool, &error) == 0) {
            s->file[kept++] = s->file[i];
            continue;
        }
        recorder_note(r, &error);
        if (i == 0) {
            abandon(r, s);
            return 0;
        }
        spool_close(&s->file[i].spool);
        s->garbage = 1;
    }
    s->files = kept;
    return 1;
}

/* A process that showed itself to be a rank but finished no step is a rank all the same, unless its
 * rank has a database of a process that did. */
static int is_rank_without_rows(const struct recorder *r, const struct rank_info *info)
{
    char path[PATH_MAX + 64];
    if (strcmp(info->rank_source, "communicator") != 0 && !(info->seen & LG_SEEN_BACKWARD))
        return 0;
    return rankdb_path(path, sizeof(path), r->database_dir, info->rank, 0) == 0 &&
           access(path, F_OK) != 0;
}

/* Rows were there at some time, though a recorder may have stored them already. */
static int had_rows(const struct source *s)
{
    const struct spool *last = &s->file[s->files - 1].spool;
    int64_t step, value[LG_COLUMNS];
    for (size_t i = 0; i < s->files; i++)
        if (spool_waiting(&s->file[i].spool, 0) > 0)
            return 1;
    return spool_holds_rows(last) || spool_provisional_row(last, &step, value);
}

/* 1 = this pass has something to do. */
static int is_due(struct recorder *r, struct source *s, const struct rank_info *info, int gone)
{
    uint64_t waiting = rows_waiting(s);

    if (waiting > LG_SLOTS / 4)
        r->pressed = 1;
    if (!gone) {
        if (!s->db && strcmp(info->rank_source, "unknown") == 0 && waiting < RANK_PATIENCE)
            return 0;
        return waiting > 0;
    }
    if (spool_has_next(&s->file[s->files - 1].spool) && s->waited++ < CONTINUATION_PATIENCE)
        return 0;
    if (s->db || had_rows(s) || is_rank_without_rows(r, info))
        return 1;
    finish(r, s); /* nothing was recorded */
    return 0;
}

void source_store(struct recorder *r, struct source *s)
{
    struct error error = {""};
    struct rank_info info;

    if (!check_files(r, s))
        return;
    /* asked before the ring is read: what a process wrote before it went is then seen */
    int gone = source_is_gone(r, s);
    read_info(s, gone, &info);
    if (!is_due(r, s, &info, gone))
        return;
    if (have_database(r, s, &info, &error) != 0 ||
        store_all(s, &info, gone, &r->rows, &error) != 0) {
        recorder_note(r, &error);
        return;
    }
    if (gone)
        finish(r, s);
}

int source_store_lost(struct recorder *r, struct rank_info *info, uint32_t reason,
                      struct error *error)
{
    struct source s = {.rank = -1, .attempt = -1};

    if (open_database(r, &s, info, error) != 0)
        return -1;
    int result = put_loss(&s, reason, 0, LG_NULL, "there was no spool", error);
    s.changed = result == 0;
    close_source(r, &s);
    if (result == 0 && s.changed && written_elsewhere(r))
        result = error_set(error, "%s", r->note); /* not published */
    return result;
}

void source_free(struct source *s)
{
    rankdb_close(s->db);
    for (size_t i = 0; i < s->files; i++)
        spool_close(&s->file[i].spool);
    free(s->file);
    free(s);
}
