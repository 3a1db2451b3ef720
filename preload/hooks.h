/*
 * hooks.h - what hooks.def turns into: one struct of real functions, one exported function per
 * hook. Used by every file of the library; nothing here runs.
 */
#ifndef LAGGARD_PRELOAD_HOOKS_H
#define LAGGARD_PRELOAD_HOOKS_H

#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#include "preload/abi_cuda.h"
#include "preload/abi_nccl.h"
#include "preload/abi_torch.h"

/* The exported functions. aligned(16): PyTorch takes pointers to some of these members, and a
 * pointer to a member with its low bit set means "virtual" (Itanium C++ ABI). */
#define LG_EXPORT __attribute__((visibility("default"), aligned(16)))

#define CALL(area, need, id, symbol, ret, params) typedef ret(*real_##id##_fn) params;
#define HOOK(area, need, id, symbol, ret, params)                                                  \
    typedef ret(*real_##id##_fn) params;                                                           \
    LG_EXPORT ret hook_##id params __asm__(symbol);
#include "preload/hooks.def"
#undef CALL
#undef HOOK

/* The real functions; NULL = not found (yet). Written while one thread boots an area or by
 * lg_resolve_late(); a pointer only ever changes from NULL to its value. */
struct lg_real {
#define CALL(area, need, id, symbol, ret, params) real_##id##_fn id;
#define HOOK(area, need, id, symbol, ret, params) real_##id##_fn id;
#include "preload/hooks.def"
#undef CALL
#undef HOOK
};
extern struct lg_real real;

enum lg_hook {
#define CALL(area, need, id, symbol, ret, params) LG_HOOK_##id,
#define HOOK(area, need, id, symbol, ret, params) LG_HOOK_##id,
#include "preload/hooks.def"
#undef CALL
#undef HOOK
    LG_HOOKS
};

enum lg_area { LG_AREA_LIBC, LG_AREA_TORCH, LG_AREA_CUDA, LG_AREA_NCCL };

/* Fills the empty pointers of an area from the objects loaded now. No allocation, no lock but the
 * loader's own (dl_iterate_phdr). Returns how many REQUIRED ones are still missing. */
int lg_resolve_area(enum lg_area area);

/* Resolves one hook that was called before its area was; NULL if nothing after us defines it. */
typedef void (*lg_function)(void);
lg_function lg_resolve_late(enum lg_hook hook);

/* The real function of a hook that may be called before its area was resolved. */
#define REAL(id)                                                                                   \
    (__builtin_expect(real.id != NULL, 1) ? real.id : (real_##id##_fn)lg_resolve_late(LG_HOOK_##id))

#endif
