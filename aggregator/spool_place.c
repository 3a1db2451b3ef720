/*
 * spool_place.c - see spool_place.h. Runs in `laggard run` before the command starts, and in
 * commands that collect leftovers.
 */
#include "aggregator/spool_place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "aggregator/rundir.h"
#include "schema/spool.h"

#define LONGEST 400 /* the library has room for paths of 512 bytes, the file's name included */
#define OWNER   "run"

enum { PLACE_FIRST, PLACE_LOCAL, PLACE_NETWORK, PLACE_KINDS };

static int kind_of(const char *parent)
{
    struct statfs fs;
    if (statfs(parent, &fs) != 0)
        return -1;
    switch ((uint32_t)fs.f_type) {
    case 0xef53:     /* ext2, ext3, ext4 */
    case 0x58465342: /* xfs */
    case 0x01021994: /* tmpfs */
        return PLACE_FIRST;
    default:
        return rundir_is_network(parent) ? PLACE_NETWORK : PLACE_LOCAL;
    }
}

/* Reserves the blocks of a spool, as a rank will: 0 or errno. */
static int try_spool(const char *dir)
{
    char path[PATH_MAX];
    struct rlimit limit;
    int result = 0;

    /* the file size limit is a signal, not an error */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < LG_SPOOL_BYTES)
        return EFBIG;
    snprintf(path, sizeof(path), "%s/probe", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return errno;
    if (fallocate(fd, 0, 0, LG_SPOOL_BYTES) != 0)
        result = errno;
    close(fd);
    unlink(path);
    return result;
}

static int write_owner(const char *dir, const char *run_dir)
{
    char path[PATH_MAX];
    struct process_id self;

    process_self(&self);
    snprintf(path, sizeof(path), "%s/" OWNER, dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return errno;
    int n = dprintf(fd, "%s %lld %llu\n%s\n", self.boot_id, (long long)self.pid,
                    (unsigned long long)self.start, run_dir);
    close(fd);
    return n < 0 ? ENOSPC : 0;
}

/* 0 or errno. */
static int make_in(const char *parent, const char *run_dir, char *dir)
{
    if (snprintf(dir, PATH_MAX, "%s/laggard-%u-XXXXXX", parent, (unsigned)geteuid()) > LONGEST)
        return ENAMETOOLONG;
    if (!mkdtemp(dir))
        return errno;
    int result = try_spool(dir);
    if (result == 0)
        result = write_owner(dir, run_dir);
    if (result != 0)
        spool_place_remove(dir);
    return result;
}

#define PLACES 5

/* The places in order, NULL where a variable is not set. */
static void list_places(const char *run_dir, const char *place[PLACES])
{
    const char *spool = getenv("LAGGARD_SPOOL"), *tmp = getenv("TMPDIR");
    place[0] = spool && *spool == '/' ? spool : NULL;
    place[1] = tmp && *tmp == '/' ? tmp : NULL;
    place[2] = "/dev/shm";
    place[3] = "/tmp";
    place[4] = run_dir;
}

int spool_place_make(const char *run_dir, char *dir, struct error *error)
{
    const char *place[PLACES];
    int reason = ENOENT;

    list_places(run_dir, place);
    error_set(error, "no directory takes a spool");
    for (int kind = 0; kind < PLACE_KINDS; kind++)
        for (int i = 0; i < PLACES; i++) {
            if (!place[i])
                continue;
            /* what the user asked for comes first, whatever it is */
            int of = i == 0 ? PLACE_FIRST : kind_of(place[i]);
            if (of != kind)
                continue;
            reason = make_in(place[i], run_dir, dir);
            if (reason == 0)
                return 0;
            error_set(error, "no directory takes a spool of %llu bytes (the last tried: %s: %s)",
                      (unsigned long long)LG_SPOOL_BYTES, place[i],
                      reason == EFBIG ? "file size limit (ulimit -f)" : strerror(reason));
        }
    *dir = '\0';
    return -1;
}

static int holds_data(const char *dir)
{
    int data = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && !data && (e = readdir(d));)
        data = *e->d_name != '.' && strcmp(e->d_name, OWNER) != 0 && strcmp(e->d_name, "db") != 0;
    if (d)
        closedir(d);
    return data;
}

void spool_place_remove(const char *dir)
{
    char path[PATH_MAX + 8];

    snprintf(path, sizeof(path), "%s/db", dir);
    rmdir(path);
    if (access(path, F_OK) == 0 || holds_data(dir))
        return;
    snprintf(path, sizeof(path), "%s/" OWNER, dir);
    unlink(path);
    rmdir(dir);
}

int spool_place_owner(const char *dir, char *run_dir, struct process_id *recorder)
{
    char path[PATH_MAX + 8];
    struct stat st;
    long long pid = 0;
    unsigned long long start = 0;

    if (lstat(dir, &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid())
        return -1;
    snprintf(path, sizeof(path), "%s/" OWNER, dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    if (!f) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    int fields = fscanf(f, "%39s %lld %llu\n", recorder->boot_id, &pid, &start);
    int ok = fields == 3 && fgets(run_dir, PATH_MAX, f);
    fclose(f);
    if (!ok)
        return -1;
    run_dir[strcspn(run_dir, "\n")] = '\0';
    recorder->pid = pid;
    recorder->start = start;
    return 0;
}

void spool_place_each(spool_place_fn *fn, void *context)
{
    const char *place[PLACES];
    char prefix[40], path[PATH_MAX];

    list_places(NULL, place);
    snprintf(prefix, sizeof(prefix), "laggard-%u-", (unsigned)geteuid());
    for (int i = 0; i < PLACES; i++) {
        DIR *d = place[i] ? opendir(place[i]) : NULL;
        for (struct dirent *e; d && (e = readdir(d));)
            if (strncmp(e->d_name, prefix, strlen(prefix)) == 0 &&
                snprintf(path, sizeof(path), "%s/%s", place[i], e->d_name) < (int)sizeof(path))
                fn(context, path);
        if (d)
            closedir(d);
    }
}
