/*
 * boot.c - constructor, destructor, fork children. Context: before main, at exit, and in the first
 * hooked call of a fork child.
 */
#include "preload/boot.h"

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

__attribute__((constructor)) static void boot(void)
{
    LG_KEEP_ERRNO;
    if (!move_state(LG_COLD, LG_INIT))
        return;
    lg_process.disabled = lg_resolve_area(LG_AREA_LIBC) != 0 || lg_environment("LAGGARD_DISABLE");
    /* Without the wiped page a fork child could not be told from its parent: stay inert then. */
    if (madvise(&lg_page, sizeof lg_page, MADV_WIPEONFORK) != 0)
        lg_process.disabled = true;
    lg_process.pid = own_pid();
    lg_page.role = LG_ROLE_NORMAL;
    move_state(LG_INIT, LG_READY);
}

__attribute__((destructor)) static void end(void)
{
    LG_KEEP_ERRNO;
    lg_finish(0);
}

bool lg_own_process(void)
{
    return own_pid() == lg_process.pid;
}

/* First hooked call in a fork child: nothing that was the parent's may be written to any more. */
static void become_child(void)
{
    if (own_pid() == lg_process.pid) {
        /* not a child: the page was wiped for another reason, or we are in somebody's constructor
         */
        lg_page.role = LG_ROLE_NORMAL;
        return;
    }
    lg_process.pid = own_pid();
    lg_process.training = 0;
    lg_tls.training = 0;
    lg_tls.guard = 0;
    lg_events_reset();
    lg_identity_reset();
    lg_page.worker = lg_spool_leave_parent();
    lg_page.role = lg_page.worker != NULL ? LG_ROLE_WORKER : LG_ROLE_NORMAL;
    if (lg_process.torch)
        lg_events_candidate();
}

bool lg_awake(void)
{
    if (lg_process.disabled || lg_tls.guard != 0)
        return false;
    uint32_t state = atomic_load_explicit(&lg_process.state, memory_order_acquire);
    if (state != LG_READY)
        return false;
    if (LG_UNLIKELY(lg_page.role == LG_ROLE_UNKNOWN)) {
        LG_KEEP_ERRNO;
        lg_tls.guard++;
        become_child();
        lg_tls.guard = 0;
    }
    return true;
}

void lg_finish(int status)
{
    if (!lg_awake() || !lg_own_process())
        return;
    if (!move_state(LG_READY, LG_DEAD))
        return;
    lg_tls.guard++;
    lg_events_finish();
    lg_spool_finish(status);
    lg_tls.guard--;
}
