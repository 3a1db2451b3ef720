/*
 * rundir.c - see rundir.h. Making run directories and run.sqlite.
 */
#include "aggregator/rundir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>
#include <sqlite3.h>

#include "aggregator/rankdb.h"

#define RUN_SCHEMA_VERSION 1
#define LG_NONE            (-1) /* no time */

static const char run_sql[] =
#include "run.sql.h"
    ;

/* Variables whose presence explains a run. Names only are stored: values may be secrets. */
static const char *const environment_names[] = {"RANK",
                                                "WORLD_SIZE",
                                                "LOCAL_RANK",
                                                "LOCAL_WORLD_SIZE",
                                                "GROUP_RANK",
                                                "MASTER_ADDR",
                                                "MASTER_PORT",
                                                "OMP_NUM_THREADS",
                                                "CUDA_VISIBLE_DEVICES",
                                                "CUDA_DEVICE_MAX_CONNECTIONS",
                                                "CUDA_LAUNCH_BLOCKING",
                                                "CUDA_INJECTION64_PATH",
                                                "NVTX_INJECTION64_PATH",
                                                "NCCL_DEBUG",
                                                "NCCL_ALGO",
                                                "NCCL_PROTO",
                                                "NCCL_P2P_DISABLE",
                                                "NCCL_IB_DISABLE",
                                                "NCCL_SOCKET_IFNAME",
                                                "NCCL_BLOCKING_WAIT",
                                                "TORCH_NCCL_BLOCKING_WAIT",
                                                "TORCH_NCCL_ASYNC_ERROR_HANDLING",
                                                "TORCH_DISTRIBUTED_DEBUG",
                                                "GLOO_SOCKET_IFNAME",
                                                "PYTORCH_CUDA_ALLOC_CONF",
                                                "SLURM_JOB_ID",
                                                "SLURM_PROCID",
                                                "SLURM_NTASKS",
                                                "OMPI_COMM_WORLD_RANK",
                                                "PMI_RANK",
                                                "PMIX_RANK",
                                                "LD_PRELOAD",
                                                "LAGGARD_SPOOL",
                                                "LAGGARD_DISABLE"};

/* ---- making the directory ---- */

/* In a directory of somebody else's, the names that we will use may be links to our own files. The
 * administrator may hand out directories. */
static int check_owner(const struct stat *st)
{
    if (!S_ISDIR(st->st_mode))
        errno = ENOTDIR;
    else if (st->st_uid != geteuid() && st->st_uid != 0)
        errno = EPERM;
    else
        return 0;
    return -1;
}

/* `anew`: it must not be there yet (a name that others can guess). */
static int make_with_parents(const char *path, int anew)
{
    char part[PATH_MAX];
    struct stat st;

    if (snprintf(part, sizeof(part), "%s", path) >= (int)sizeof(part)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(part, 0755) != 0 && errno != EEXIST)
            return -1;
        *slash = '/';
    }
    if (mkdir(part, 0700) != 0 && (anew || errno != EEXIST))
        return -1;
    if (stat(part, &st) != 0 || check_owner(&st) != 0)
        return -1;
    return access(part, W_OK | X_OK);
}

/* Asked before anything is made: the directory's absolute path has to be usable. */
static int is_too_long(const char *wanted)
{
    char cwd[PATH_MAX];
    size_t before = 0;

    if (*wanted != '/' && getcwd(cwd, sizeof(cwd)))
        before = strlen(cwd) + 1;
    return before + strlen(wanted) > RUNDIR_LONGEST;
}

static int make_at(const char *wanted, char *path, int anew)
{
    if (is_too_long(wanted)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    if (make_with_parents(wanted, anew) != 0)
        return -1;
    return realpath(wanted, path) ? 0 : -1;
}

int rundir_make(const char *wanted, char *path, char *note, size_t note_size, struct error *error)
{
    char name[PATH_MAX], elsewhere[PATH_MAX + 64];
    const char *tmp = getenv("TMPDIR");
    time_t now = time(NULL);
    struct tm local;

    *note = '\0';
    strftime(name, sizeof(name), "laggard-%Y%m%d-%H%M%S", localtime_r(&now, &local));
    snprintf(name + strlen(name), sizeof(name) - strlen(name), "-%d", (int)getpid());
    int anew = !wanted;
    if (anew)
        wanted = name;
    if (make_at(wanted, path, anew) == 0)
        return 0;
    int reason = errno;
    snprintf(elsewhere, sizeof(elsewhere), "%s/%s", tmp && *tmp ? tmp : "/tmp", name);
    if (make_at(elsewhere, path, 1) != 0)
        return error_set(error, "can't make a run directory: %s: %s; %s: %s", wanted,
                         strerror(reason), elsewhere, strerror(errno));
    snprintf(note, note_size, "%.300s%s: %s; the run is in %s", wanted,
             strlen(wanted) > 300 ? "[...]" : "", strerror(reason), path);
    return 0;
}

int rundir_is_network(const char *path)
{
    /* NFS, SMB, CIFS, SMB2, Lustre, FUSE, GPFS, AFS, Ceph, 9P, OCFS2, GFS2, BeeGFS, PanFS, Coda */
    static const uint32_t magic[] = {0x6969,     0x517b,     0xff534d42, 0xfe534d42, 0x0bd00bd0,
                                     0x65735546, 0x47504653, 0x5346414f, 0x00c36400, 0x01021997,
                                     0x7461636f, 0x01161970, 0x19830326, 0xaad7aaea, 0x73757245};
    struct statfs fs;
    if (statfs(path, &fs) != 0)
        return 0;
    for (size_t i = 0; i < sizeof(magic) / sizeof(magic[0]); i++)
        if ((uint32_t)fs.f_type == magic[i])
            return 1;
    return 0;
}

/* ---- writing run.sqlite ---- */

struct meta {
    sqlite3_stmt *insert;
    int failed;
};

static void add_text(struct meta *meta, const char *key, const char *value)
{
    sqlite3_bind_text(meta->insert, 1, key, -1, SQLITE_STATIC);
    sqlite3_bind_text(meta->insert, 2, value, -1, SQLITE_TRANSIENT);
    if (sqlite3_step(meta->insert) != SQLITE_DONE)
        meta->failed = 1;
    sqlite3_reset(meta->insert);
}

static void add_number(struct meta *meta, const char *key, int64_t value)
{
    sqlite3_bind_text(meta->insert, 1, key, -1, SQLITE_STATIC);
    sqlite3_bind_int64(meta->insert, 2, value);
    if (sqlite3_step(meta->insert) != SQLITE_DONE)
        meta->failed = 1;
    sqlite3_reset(meta->insert);
}

static void add_argv(struct meta *meta, char *const argv[])
{
    json_t *array = json_array();
    for (; argv && *argv; argv++) {
        json_t *word = json_string(*argv); /* NULL when it isn't UTF-8 */
        json_array_append_new(array, word ? word : json_string("?"));
    }
    char *text = json_dumps(array, JSON_COMPACT);
    if (text)
        add_text(meta, "argv", text);
    free(text);
    json_decref(array);
}

static void add_environment(struct meta *meta)
{
    char names[2048] = "";
    for (size_t i = 0; i < sizeof(environment_names) / sizeof(environment_names[0]); i++)
        if (getenv(environment_names[i]))
            snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s",
                     *names ? " " : "", environment_names[i]);
    add_text(meta, "environment", names);
}

static void add_info(struct meta *meta, const struct rundir_info *info)
{
    add_number(meta, "schema_version", RUN_SCHEMA_VERSION);
    add_text(meta, "laggard_version", LAGGARD_VERSION);
    add_text(meta, "run_id", info->run_id);
    add_text(meta, "command", info->command);
    add_text(meta, "cwd", info->cwd);
    add_text(meta, "host", info->host);
    add_number(meta, "start_ns", info->start_ns);
    if (info->end_ns)
        add_number(meta, "end_ns", info->end_ns);
    if (info->exit_status >= 0)
        add_number(meta, "exit_status", info->exit_status);
    if (info->signal)
        add_number(meta, "signal", info->signal);
    if (info->interrupted)
        add_number(meta, "interrupted", info->interrupted);
    add_text(meta, "recorder_boot_id", info->recorder.boot_id);
    add_number(meta, "recorder_pid", info->recorder.pid);
    add_number(meta, "recorder_start", (int64_t)info->recorder.start);
    add_text(meta, "spool_dir", info->spool_dir);
    if (*info->untraced)
        add_text(meta, "untraced", info->untraced);
}

/* The database as bytes, to be freed with sqlite3_free; NULL on failure. */
static unsigned char *build(const struct rundir_info *info, char *const argv[], sqlite3_int64 *size)
{
    sqlite3 *db = NULL;
    struct meta meta = {NULL, 0};
    unsigned char *bytes = NULL;

    if (sqlite3_open(":memory:", &db) == SQLITE_OK &&
        sqlite3_exec(db, run_sql, NULL, NULL, NULL) == SQLITE_OK &&
        sqlite3_prepare_v2(db, "INSERT INTO meta VALUES (?, ?)", -1, &meta.insert, NULL) ==
            SQLITE_OK) {
        add_info(&meta, info);
        add_argv(&meta, argv);
        add_environment(&meta);
        if (!meta.failed)
            bytes = sqlite3_serialize(db, "main", size, 0);
    }
    sqlite3_finalize(meta.insert);
    sqlite3_close(db);
    return bytes;
}

static int write_all(const char *path, const unsigned char *bytes, sqlite3_int64 size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    int ok = fd >= 0;
    while (ok && size > 0) {
        ssize_t n = write(fd, bytes, (size_t)size);
        if (n < 0 && errno == EINTR)
            continue;
        ok = n > 0;
        bytes += ok ? n : 0;
        size -= ok ? n : 0;
    }
    if (ok)
        ok = fsync(fd) == 0;
    int reason = errno;
    if (fd >= 0)
        close(fd);
    errno = reason;
    return ok ? 0 : -1;
}

/* Puts the first version in place without replacing another run's or another recorder's. Process
 * numbers of containers are the same again and again. */
static int place_first(const char *run_dir, const char *temporary, char *file)
{
    snprintf(file, PATH_MAX, "%s/run.sqlite", run_dir);
    for (int i = 1; link(temporary, file) != 0; i++) {
        if (errno != EEXIST) /* a file system without links */
            return rename(temporary, file);
        snprintf(file, PATH_MAX, "%s/run-%s-%d.%d.sqlite", run_dir, process_host(), (int)getpid(),
                 i);
    }
    return unlink(temporary);
}

int rundir_write(const char *run_dir, char *file, const struct rundir_info *info,
                 char *const argv[], struct error *error)
{
    char temporary[PATH_MAX];
    sqlite3_int64 size = 0;
    unsigned char *bytes = build(info, argv, &size);

    if (!bytes)
        return error_set(error, "%s: can't make run.sqlite", run_dir);
    if (snprintf(temporary, sizeof(temporary), "%s/.run-%s-%d.tmp", run_dir, process_host(),
                 (int)getpid()) >= (int)sizeof(temporary)) {
        sqlite3_free(bytes);
        return error_set(error, "%s: path too long", run_dir);
    }
    int result = write_all(temporary, bytes, size);
    sqlite3_free(bytes);
    if (result == 0)
        result = *file ? rename(temporary, file) : place_first(run_dir, temporary, file);
    if (result != 0) {
        error_set(error, "%s: can't write run.sqlite: %s", run_dir, strerror(errno));
        unlink(temporary);
    }
    return result;
}

/* ---- reading ---- */

static void take_value(struct rundir_info *info, const char *key, sqlite3_stmt *stmt)
{
    const char *text = (const char *)sqlite3_column_text(stmt, 1);
    int64_t number = sqlite3_column_int64(stmt, 1);
#define TEXT(name, field)                                                                          \
    if (strcmp(key, name) == 0)                                                                    \
    snprintf(info->field, sizeof(info->field), "%s", text ? text : "")
#define NUMBER(name, field, type)                                                                  \
    if (strcmp(key, name) == 0)                                                                    \
    info->field = (type)number
    NUMBER("schema_version", schema_version, int);
    TEXT("run_id", run_id);
    TEXT("command", command);
    TEXT("cwd", cwd);
    TEXT("host", host);
    TEXT("recorder_boot_id", recorder.boot_id);
    TEXT("spool_dir", spool_dir);
    TEXT("untraced", untraced);
    NUMBER("start_ns", start_ns, int64_t);
    NUMBER("end_ns", end_ns, int64_t);
    NUMBER("exit_status", exit_status, int);
    NUMBER("signal", signal, int);
    NUMBER("interrupted", interrupted, int);
    NUMBER("recorder_pid", recorder.pid, int64_t);
    NUMBER("recorder_start", recorder.start, uint64_t);
#undef TEXT
#undef NUMBER
}

/* Some dozen rows: more work than this is a view made to hold us. */
#define MOST_WORK 1000000

static int too_much(void *unused)
{
    (void)unused;
    return 1;
}

static int read_with_care(sqlite3 *db)
{
    rankdb_distrust(db);
    sqlite3_progress_handler(db, MOST_WORK, too_much, NULL);
    return 1;
}

static int read_file(const char *file, struct rundir_info *info, struct error *error)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    int rc = SQLITE_ERROR, rows = 0;
    struct stat st;

    memset(info, 0, sizeof(*info));
    info->exit_status = -1;
    if (stat(file, &st) == 0 && S_ISFIFO(st.st_mode)) /* opening it would wait for a writer */
        return error_set(error, "%s: not a file", file);
    /* the file is only ever replaced as a whole: no locks */
    if (sqlite3_open_v2(file, &db, SQLITE_OPEN_READONLY, "unix-none") == SQLITE_OK &&
        read_with_care(db) &&
        sqlite3_prepare_v2(db, "SELECT key, value FROM meta", -1, &stmt, NULL) == SQLITE_OK)
        while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
            const char *key = (const char *)sqlite3_column_text(stmt, 0);
            if (key)
                take_value(info, key, stmt);
            rows++;
        }
    int result =
        rc == SQLITE_DONE && rows > 0 ? 0 : error_set(error, "%s: %s", file, sqlite3_errmsg(db));
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    return result;
}

int rundir_read(const char *run_dir, struct rundir_info *info, struct error *error)
{
    char file[PATH_MAX];
    if (snprintf(file, sizeof(file), "%s/run.sqlite", run_dir) >= (int)sizeof(file))
        return error_set(error, "%s: path too long", run_dir);
    return read_file(file, info, error);
}

static int is_sibling(const char *name)
{
    size_t n = strlen(name);
    return strncmp(name, "run-", 4) == 0 && n > 7 && strcmp(name + n - 7, ".sqlite") == 0;
}

void rundir_each(const char *run_dir, rundir_fn *fn, void *context)
{
    struct rundir_info info;
    char file[PATH_MAX + 256];

    if (rundir_read(run_dir, &info, NULL) == 0)
        fn(context, &info);
    DIR *dir = opendir(run_dir);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (!is_sibling(e->d_name))
            continue;
        snprintf(file, sizeof(file), "%s/%s", run_dir, e->d_name);
        if (read_file(file, &info, NULL) == 0)
            fn(context, &info);
    }
    if (dir)
        closedir(dir);
}

static void take_version(void *context, const struct rundir_info *info)
{
    int *version = context;

    if (info->schema_version > *version)
        *version = info->schema_version;
}

int rundir_check(const char *run_dir, struct error *error)
{
    int version = 0;

    rundir_each(run_dir, take_version, &version);
    return version <= RUN_SCHEMA_VERSION
               ? 0
               : error_set(error,
                           "%s: schema version %d, this program (" LAGGARD_VERSION
                           ") knows up to %d: read it with a newer laggard",
                           run_dir, version, RUN_SCHEMA_VERSION);
}

static void take_newest(void *context, const struct rundir_info *info)
{
    struct rundir_info *newest = context;

    if (newest->start_ns == LG_NONE || info->start_ns > newest->start_ns)
        *newest = *info;
}

int rundir_newest(const char *run_dir, struct rundir_info *info, struct error *error)
{
    info->start_ns = LG_NONE;
    rundir_each(run_dir, take_newest, info);
    return info->start_ns == LG_NONE ? rundir_read(run_dir, info, error) : 0;
}

/* "signal 9 (Killed)" */
static void print_signal(int number, char *text, size_t size)
{
    const char *name = strsignal(number);
    snprintf(text, size, "signal %d (%s)", number, name ? name : "unknown");
}

void rundir_outcome(const struct rundir_info *info, char *text, size_t size)
{
    char signal[64] = "";

    if (info->end_ns == 0) {
        snprintf(text, size, "%s",
                 rundir_in_progress(info)
                     ? "still running"
                     : "not known: laggard run was killed, or its host went down");
    } else if (info->signal) {
        print_signal(info->signal, signal, sizeof(signal));
        snprintf(text, size, "killed by %s", signal);
    } else if (info->exit_status < 0) {
        snprintf(text, size, "not known");
    } else if (info->exit_status > 0 && info->interrupted) {
        print_signal(info->interrupted, signal, sizeof(signal));
        snprintf(text, size, "exit status %d after %s", info->exit_status, signal);
    } else if (info->exit_status > 128 && info->exit_status < 128 + NSIG) {
        print_signal(info->exit_status - 128, signal, sizeof(signal));
        snprintf(text, size, "exit status %d, which for a shell means %s", info->exit_status,
                 signal);
    } else {
        snprintf(text, size, "exit status %d", info->exit_status);
    }
}

int rundir_in_progress(const struct rundir_info *info)
{
    return info->end_ns == 0 && *info->recorder.boot_id &&
           process_state(&info->recorder) != PROCESS_GONE;
}
