/*
 * spool.c - see spool.h. Context: opening on any thread at the first sign of training; rows on the
 * training thread only.
 *
 * The first file of a process stays mapped for its whole life: identity, groups, status and workers
 * are there, and other threads may look at them. When its ring is full, rows go on in a further
 * file.
 */
#include "preload/spool.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "preload/boot.h"
#include "preload/clock.h"
#include "preload/device.h"
#include "preload/environment.h"
#include "preload/file.h"
#include "preload/identity.h"
#include "preload/library.h"
#include "preload/machine.h"
#include "preload/text.h"
#include "preload/torch.h"

static struct lg_spool *base;    /* the first file: identity, status, groups, workers */
static struct lg_spool *current; /* the file that rows go to */
static struct lg_spool *left;    /* the one before it, if that is not the first one */
static struct lg_spool *parents; /* in a fork child: the spool of the rank that it works for */
static _Atomic uint32_t tried;
static bool stopped;
static uint32_t provisional_serial;

enum {
    PATH = 512,
    LOOK_AGAIN = 4 /* rows after which all that a training uses has been loaded */
};
static char name_begin[192]; /* HOST.PID.STARTTIME. */
static struct {
    char boot_id[40], host[64];
    uint64_t proc_start;
} self;

/* Field 22 of /proc/self/stat; the second field, a name in parentheses, can hold anything. */
static uint64_t start_time(void)
{
    char stat[1024];
    const char *p = NULL;
    lg_file_read("/proc/self/stat", stat, sizeof stat);
    for (char *c = stat; *c != 0; c++)
        if (*c == ')')
            p = c;
    for (int field = 2; p != NULL && *p != 0; p++)
        if (*p == ' ' && ++field == 22)
            return lg_parse_number(p + 1, &p);
    return 0;
}

static void know_self(void)
{
    struct utsname u;
    uint64_t n = lg_file_read("/proc/sys/kernel/random/boot_id", self.boot_id, sizeof self.boot_id);
    if (n > 0 && self.boot_id[n - 1] == '\n')
        self.boot_id[n - 1] = 0;
    lg_copy(self.host, sizeof self.host, uname(&u) == 0 ? u.nodename : "localhost");
    for (char *c = self.host; *c != 0; c++)
        if (*c == '/')
            *c = '_';
    self.proc_start = start_time();
    struct lg_text t = lg_text_start(name_begin, sizeof name_begin);
    lg_text_add(&t, self.host);
    lg_text_add(&t, ".");
    lg_text_add_number(&t, lg_process.pid);
    lg_text_add(&t, ".");
    lg_text_add_number(&t, self.proc_start);
    lg_text_add(&t, ".");
}

/* LAGGARD_RECORDER = boot id:pid:start time:spool directory. Ours only if it runs on this host. */
static void recorder_place(char *out)
{
    const char *r = lg_environment("LAGGARD_RECORDER");
    size_t n = strlen(self.boot_id);
    out[0] = 0;
    if (r == NULL || n == 0 || strncmp(r, self.boot_id, n) != 0 || r[n] != ':')
        return;
    r += n;
    for (int colons = 0; *r != 0; r++)
        if (*r == ':' && ++colons == 3) {
            if (strlen(r + 1) < PATH) /* half a path is another place */
                lg_copy(out, PATH, r + 1);
            return;
        }
}

/* LAGGARD_DIR/spool/HOST, made on the way if it is needed. */
static void run_dir_place(char *out)
{
    const char *dir = lg_environment("LAGGARD_DIR");
    out[0] = 0;
    if (dir == NULL || strlen(dir) + sizeof "/spool/" + strlen(self.host) > PATH)
        return;
    struct lg_text t = lg_text_start(out, PATH);
    lg_text_add(&t, dir);
    lg_file_mkdir(out);
    lg_text_add(&t, "/spool");
    lg_file_mkdir(out);
    lg_text_add(&t, "/");
    lg_text_add(&t, self.host);
    lg_file_mkdir(out);
}

enum { FILE_PATH = PATH + sizeof name_begin + 32 };

static void name_file(char *path, const char *directory, uint32_t seq, const char *suffix)
{
    struct lg_text t = lg_text_start(path, FILE_PATH);
    lg_text_add(&t, directory);
    lg_text_add(&t, "/");
    lg_text_add(&t, name_begin);
    lg_text_add_number(&t, seq);
    lg_text_add(&t, suffix);
}

static struct lg_spool *make_in(const char *directory, uint32_t seq, enum lg_loss *why)
{
    char path[FILE_PATH];
    bool exists = directory[0] != 0;
    struct lg_spool *p = NULL;
    /* a name is only taken where this process exec'ed another program that trains, too */
    for (uint32_t s = seq; exists && s < seq + 64; s++) {
        name_file(path, directory, s, LG_SPOOL_SUFFIX);
        p = lg_file_map_new(path, LG_SPOOL_BYTES, why, &exists);
        if (p != NULL)
            p->seq = s;
    }
    return p;
}

/* The recorder's directory, or else the run directory. */
static struct lg_spool *make_file(uint32_t seq, enum lg_loss *why)
{
    char directory[PATH];
    *why = LG_LOSS_no_place;
    recorder_place(directory);
    struct lg_spool *p = make_in(directory, seq, why);
    if (p != NULL)
        return p;
    enum lg_loss first = *why;
    run_dir_place(directory);
    p = make_in(directory, seq, why);
    if (*why == LG_LOSS_no_place)
        *why = first; /* says more */
    return p;
}

/* There is no spool to say it in: the recorder finds a link that leads nowhere. */
static void leave_word(enum lg_loss why)
{
    char directory[PATH], path[FILE_PATH], text[64];
    struct lg_text t = lg_text_start(text, sizeof text);
    lg_text_add_number(&t, why);
    lg_text_add(&t, ":");
    lg_identity_describe(&t);
    recorder_place(directory);
    name_file(path, directory, 0, LG_LOST_SUFFIX);
    if (directory[0] != 0 && lg_file_link(text, path))
        return;
    run_dir_place(directory);
    name_file(path, directory, 0, LG_LOST_SUFFIX);
    if (directory[0] != 0)
        lg_file_link(text, path);
}

static int64_t real_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Everything but the magic, which is written last: a reader ignores a file without it. */
static void write_header(struct lg_spool *s)
{
    const char *run = lg_environment("LAGGARD_RUN");
    s->version = LG_SPOOL_VERSION;
    s->columns = LG_COLUMNS;
    s->file_bytes = LG_SPOOL_BYTES;
    s->slots = LG_SLOTS;
    s->slot_bytes = sizeof(struct lg_slot);
    s->pid = lg_process.pid;
    s->parent_pid = (uint32_t)syscall(SYS_getppid);
    s->proc_start = self.proc_start;
    s->mono_ns = (int64_t)lg_now_ns();
    s->real_ns = real_ns();
    lg_copy(s->boot_id, sizeof s->boot_id, self.boot_id);
    lg_copy(s->run_id, sizeof s->run_id, run != NULL ? run : "");
    lg_copy(s->host, sizeof s->host, self.host);
    lg_torch_path(s->torch_path, sizeof s->torch_path);
    lg_library_look();
    lg_identity_write(s);
    atomic_thread_fence(memory_order_release);
    memcpy(s->magic, LG_SPOOL_MAGIC, sizeof s->magic);
}

bool lg_spool_tried(void)
{
    return tried != 0;
}

/* It trains itself: what it has read was for its own steps. */
static void stop_working(void)
{
    struct lg_worker *w = lg_page.worker;
    lg_page.worker = NULL;
    parents = NULL;
    if (w != NULL)
        w->pid = 0;
}

void lg_spool_open(void)
{
    enum lg_loss why;
    if (atomic_exchange(&tried, 1) != 0)
        return;
    stop_working();
    know_self();
    struct lg_spool *s = make_file(0, &why);
    if (s == NULL) {
        leave_word(why);
        return;
    }
    write_header(s);
    current = s;
    base = s;
}

void lg_spool_status(uint64_t step, uint32_t stage, bool in_collective, uint64_t now,
                     uint64_t entries_dropped)
{
    if (base == NULL)
        return;
    struct lg_status *s = lg_spool_status_page(base);
    atomic_store_explicit(&s->step, step, memory_order_relaxed);
    atomic_store_explicit(&s->since_ns, now, memory_order_relaxed);
    atomic_store_explicit(&s->stage, stage, memory_order_relaxed);
    atomic_store_explicit(&s->in_collective, in_collective, memory_order_relaxed);
    atomic_store_explicit(&base->entries_dropped, entries_dropped, memory_order_relaxed);
}

bool lg_spool_leave_parent(void)
{
    /* The mapping stays: the worker records are in it. Rows are no longer ours to write. A worker's
     * own child works for the same rank. */
    if (base != NULL)
        parents = base;
    base = current = left = NULL;
    tried = 0;
    stopped = false;
    return parents != NULL;
}

/* Takes the first record whose pid is free or, if `ended`, that of a worker which left in order. */
static struct lg_worker *take_worker(struct lg_worker *w, bool ended)
{
    for (unsigned i = 0; i < LG_WORKERS; i++) {
        uint32_t pid = ended ? w[i].pid : 0;
        if (ended && w[i].ended == 0)
            continue;
        if (!atomic_compare_exchange_strong(&w[i].pid, &pid, lg_process.pid))
            continue;
        w[i].ended = 0;
        w[i].reads = 0;
        w[i].read_bytes = 0;
        w[i].read_ns = 0;
        w[i].begin_ns = lg_now_ns();
        return &w[i];
    }
    return NULL;
}

struct lg_worker *lg_spool_worker(void)
{
    if (LG_LIKELY(lg_page.worker != NULL))
        return lg_page.worker;
    if (parents == NULL || atomic_exchange(&lg_page.worker_asked, 1) != 0)
        return NULL;
    struct lg_worker *w = take_worker(lg_spool_workers(parents), false);
    /* New workers in each epoch use up the records: the newest ones count. */
    lg_page.worker = w != NULL ? w : take_worker(lg_spool_workers(parents), true);
    return lg_page.worker;
}

void lg_spool_finish(int status)
{
    struct lg_worker *w = lg_page.worker;
    if (w != NULL)
        w->ended = 1;
    if (base == NULL)
        return;
    lg_library_look();
    lg_identity_write(base);
    for (struct lg_spool *s = base;; s = current) {
        s->exit_status = (uint32_t)status & 0xff;
        s->ended = LG_ENDED_EXIT;
        if (s == current)
            break;
    }
}

/* ---- rows */

/* The row of this step found no place in a ring, but its provisional copy is there as a rule. */
static void stop(enum lg_loss why, uint64_t step)
{
    struct lg_slot *copy = &lg_spool_provisional(current)[provisional_serial % 2];
    bool kept = copy->state == LG_SLOT_COMPLETE && copy->step == step;
    stopped = true;
    current->stop_step = step + kept;
    current->rows_lost += !kept;
    current->stop_reason = why;
}

/* The ring is full: nobody drains it. One more file. */
static bool next_file(uint64_t step)
{
    enum lg_loss why;
    struct lg_spool *s = make_file(current->seq + 1, &why);
    if (s == NULL) {
        stop(why, step);
        return false;
    }
    write_header(s);
    current->next_file = 1;
    /* the device's times of the last rows are still to come: the file that we leave stays for now
     */
    if (left != NULL) {
        lg_device_forget(left, (char *)left + LG_SPOOL_BYTES);
        munmap(left, LG_SPOOL_BYTES);
    }
    left = current != base ? current : NULL;
    current = s;
    return true;
}

static void fill(struct lg_slot *slot, const struct lg_row *row, uint64_t number,
                 enum lg_slot_state state)
{
    slot->step = number;
    lg_row_columns(row, slot->value);
    atomic_store_explicit(&slot->state, state, memory_order_release);
}

void lg_sink_row(const struct lg_row *row, uint64_t number)
{
    if (current == NULL)
        return;
    if (stopped) {
        current->rows_lost++;
        return;
    }
    uint64_t head = current->head;
    if (head - current->tail >= LG_SLOTS) {
        if (!next_file(number))
            return;
        head = 0;
    }
    struct lg_slot *slot = &lg_spool_ring(current)[head % LG_SLOTS];
    fill(slot, row, number, LG_SLOT_HOST_DONE);
    if (!lg_device_expect(slot, row->first_mark, row->last_mark))
        atomic_store_explicit(&slot->state, LG_SLOT_COMPLETE, memory_order_release);
    atomic_store_explicit(&current->head, head + 1, memory_order_release);
    if (number == LOOK_AGAIN)
        lg_library_look();
    lg_identity_write(base);
}

void lg_sink_provisional(const struct lg_row *row, uint64_t number)
{
    if (current == NULL || stopped)
        return;
    struct lg_slot *slot = &lg_spool_provisional(current)[++provisional_serial % 2];
    slot->serial = 0;
    atomic_store_explicit(&slot->state, LG_SLOT_OPEN, memory_order_release);
    atomic_thread_fence(memory_order_release);
    fill(slot, row, number, LG_SLOT_COMPLETE);
    slot->value[LG_COL_flags] |= LG_FLAG_provisional;
    atomic_thread_fence(memory_order_release);
    slot->serial = provisional_serial;
    atomic_store_explicit(&current->steps_complete, number + 1, memory_order_relaxed);
}

void lg_sink_held(const struct lg_row *rows, uint32_t count, uint64_t first)
{
    if (current == NULL || stopped)
        return;
    struct lg_slot *held = lg_spool_held(current);
    if (count > 0)
        fill(&held[count - 1], &rows[count - 1], first + count - 1, LG_SLOT_COMPLETE);
    atomic_store_explicit(&current->held_count, count, memory_order_release);
}
