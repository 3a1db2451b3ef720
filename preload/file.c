/*
 * file.c - see file.h. Context: cold paths, raw system calls only.
 *
 * RATIONALE: another thread of the program may close every descriptor and open its own files at any
 * moment. So after each step that used our number we look whether it still is our file, and never
 * size, map or close one that isn't. fallocate, not ftruncate: a full disk must be an error here,
 * not a SIGBUS later; and not glibc's posix_fallocate, whose emulation writes. RLIMIT_FSIZE is
 * asked before, since hitting it is a signal. Signals wait meanwhile: on older kernels a profiler's
 * timer can end each fallocate on tmpfs with EINTR (fallocate(2) allows it; Linux 6.18 doesn't).
 */
#include "preload/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool size_allowed(uint64_t bytes)
{
    struct rlimit limit;
    if (syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, &limit) != 0)
        return false;
    return limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= bytes;
}

static bool same_file(int fd, const struct stat *ours, uint64_t bytes)
{
    struct stat now;
    return syscall(SYS_fstat, fd, &now) == 0 && now.st_dev == ours->st_dev &&
           now.st_ino == ours->st_ino && (uint64_t)now.st_size == bytes;
}

static enum lg_loss reason(int number)
{
    switch (number) {
    case ENOSPC:
    case EDQUOT:
        return LG_LOSS_no_space;
    case EMFILE:
    case ENFILE:
        return LG_LOSS_no_descriptor;
    default:
        return LG_LOSS_no_place;
    }
}

static void *map_opened(int fd, uint64_t bytes, enum lg_loss *why)
{
    struct stat ours;
    void *p = NULL;
    *why = LG_LOSS_spool_changed;
    if (syscall(SYS_fstat, fd, &ours) != 0 || ours.st_size != 0 || !S_ISREG(ours.st_mode))
        return NULL; /* not ours any more: not even to be closed */
    uint64_t size = 0;
    *why = LG_LOSS_no_place;
    if (syscall(SYS_fallocate, fd, 0, 0L, (long)bytes) == 0) {
        size = bytes;
        p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
            p = NULL;
    } else {
        *why = reason(errno);
    }
    if (!same_file(fd, &ours, size)) {
        if (p != NULL)
            munmap(p, bytes);
        *why = LG_LOSS_spool_changed;
        return NULL;
    }
    syscall(SYS_close, fd);
    if (p != NULL)
        *why = LG_LOSS_none;
    return p;
}

static void *map_new(const char *path, uint64_t bytes, enum lg_loss *why, bool *exists)
{
    *exists = false;
    *why = LG_LOSS_file_limit;
    if (!size_allowed(bytes))
        return NULL;
    int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0600);
    if (fd < 0) {
        *exists = errno == EEXIST;
        *why = reason(errno);
        return NULL;
    }
    void *p = map_opened(fd, bytes, why);
    if (p == NULL)
        syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    return p;
}

void *lg_file_map_new(const char *path, uint64_t bytes, enum lg_loss *why, bool *exists)
{
    const uint64_t all = UINT64_MAX; /* the kernel's sigset_t */
    uint64_t before = 0;
    long blocked = syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, &before, sizeof all);
    void *p = map_new(path, bytes, why, exists);
    if (blocked == 0)
        syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
    return p;
}

void lg_file_mkdir(const char *path)
{
    syscall(SYS_mkdirat, AT_FDCWD, path, 0700);
}

bool lg_file_link(const char *text, const char *path)
{
    return syscall(SYS_symlinkat, text, AT_FDCWD, path) == 0;
}

uint64_t lg_file_read(const char *path, char *buffer, uint64_t size)
{
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    buffer[0] = 0;
    if (fd < 0)
        return 0;
    long n = syscall(SYS_read, fd, buffer, size - 1);
    syscall(SYS_close, fd);
    if (n <= 0)
        return 0;
    buffer[n] = 0;
    return (uint64_t)n;
}
