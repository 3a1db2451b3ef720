/*
 * boot.c - constructor, end, fork children. Context: before main, at exit, and in the first hooked
 * call of a fork child.
 */
#include "preload/boot.h"

#include <elf.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/environment.h"
#include "preload/events.h"
#include "preload/hooks.h"
#include "preload/identity.h"
#include "preload/spool.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

struct lg_page lg_page __attribute__((aligned(4096)));
struct lg_process lg_process;
__thread struct lg_tls lg_tls;

static bool move_state(uint32_t from, uint32_t to)
{
    return atomic_compare_exchange_strong(&lg_process.state, &from, to);
}

static uint32_t own_pid(void)
{
    return (uint32_t)syscall(SYS_getpid);
}

/* Both exist in glibc alone. fork's handler and exit's status come to those who ask early; neither
 * call allocates, since we are the first to ask and both tables begin with static room. */
extern int register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                           void *dso) __asm__("__register_atfork") __attribute__((weak));
extern int on_exit(void (*handler)(int status, void *argument), void *argument)
    __attribute__((weak));
extern unsigned long getauxval(unsigned long type) __attribute__((weak));

/* In the child of a fork, before it goes on: only stores. A child by _Fork or clone does not come
 * here and stays LG_ROLE_UNKNOWN: it might share its memory with its parent (vfork), and nothing
 * could tell. */
static void in_fork_child(void)
{
    if (lg_process.state != LG_READY)
        return;
    lg_process.pid = own_pid();
    lg_page.role = LG_ROLE_FORKED;
}

void lg_at_exit(void (*handler)(int status, void *unused))
{
    if (on_exit != NULL)
        on_exit(handler, NULL);
}

/* What exit calls last of all, since it was asked for first: after every destructor. */
static void at_exit(int status, void *unused)
{
    (void)unused;
    lg_finish(status);
}

/* A program that runs with more rights than its user has: the loader ignores LD_PRELOAD there, but
 * the library may have been linked in or come from /etc/ld.so.preload. Its environment is somebody
 * else's then, and nothing in it may say where files are made. */
static bool has_more_rights(void)
{
    return (getauxval != NULL && getauxval(AT_SECURE) != 0) ||
           syscall(SYS_getuid) != syscall(SYS_geteuid) ||
           syscall(SYS_getgid) != syscall(SYS_getegid);
}

/* RATIONALE: glibc hands the environment to constructors; `environ` is still NULL when we run,
 * since -z initfirst puts us before libc's own. musl hands over nothing, but has set `environ`. */
__attribute__((constructor)) static void boot(int argc, char **argv, char **envp)
{
    LG_KEEP_ERRNO;
    (void)argc, (void)argv;
    if (!move_state(LG_COLD, LG_INIT))
        return;
    char **variables = environ != NULL ? environ : envp;
    lg_process.disabled = lg_resolve_area(LG_AREA_LIBC) != 0 || has_more_rights() ||
                          lg_environment_in(variables, "LAGGARD_DISABLE") != NULL;
    /* Without the wiped page a fork child could not be told from its parent: stay inert then. */
    if (madvise(&lg_page, sizeof lg_page, MADV_WIPEONFORK) != 0)
        lg_process.disabled = true;
    lg_process.pid = own_pid();
    lg_page.role = LG_ROLE_NORMAL;
    if (!lg_process.disabled) {
        if (register_atfork != NULL)
            register_atfork(NULL, NULL, in_fork_child, NULL);
        lg_at_exit(at_exit);
    }
    move_state(LG_INIT, LG_READY);
}

bool lg_own_process(void)
{
    return own_pid() == lg_process.pid;
}

/* First hooked call in a fork child: nothing that was the parent's may be written to any more. */
static void become_child(void)
{
    LG_KEEP_ERRNO;
    lg_tls.guard++;
    lg_process.training = 0;
    lg_tls.training = 0;
    lg_events_reset();
    lg_identity_reset();
    lg_page.role = lg_spool_leave_parent() ? LG_ROLE_WORKER : LG_ROLE_NORMAL;
    if (lg_process.torch)
        lg_events_candidate();
    lg_tls.guard--;
}

bool lg_awake(void)
{
    if (lg_process.disabled || lg_tls.guard != 0)
        return false;
    uint32_t state = atomic_load_explicit(&lg_process.state, memory_order_acquire);
    if (state != LG_READY)
        return false;
    uint32_t role = lg_page.role;
    if (LG_LIKELY(role == LG_ROLE_NORMAL || role == LG_ROLE_WORKER))
        return true;
    /* The child of a child may run in its parent's memory: vfork, before either called a hook. */
    if (role != LG_ROLE_FORKED || !lg_own_process() ||
        !atomic_compare_exchange_strong(&lg_page.role, &role, LG_ROLE_BECOMING))
        return false;
    become_child();
    return true;
}

void lg_finish(int status)
{
    LG_KEEP_ERRNO;
    if (!lg_awake() || !lg_own_process() || !move_state(LG_READY, LG_DEAD))
        return;
    lg_tls.guard++;
    lg_events_finish();
    lg_spool_finish(status);
    lg_process.training = 0; /* no hook has a thread to record any more */
    lg_tls.guard--;
}
