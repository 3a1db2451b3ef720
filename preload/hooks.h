/*
 * hooks.h - what hooks.def turns into: one struct of real functions, one exported function per
 * hook. Used by every file of the library; nothing here runs.
 */
#ifndef LAGGARD_PRELOAD_HOOKS_H
#define LAGGARD_PRELOAD_HOOKS_H

#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
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

/* RATIONALE: a process can hold several libcudart, each with state of its own (kernels are
 * registered with one of them), and a call must reach the one that its caller was linked to. All of
 * them give their functions a version named like their soname. So the hooks on CUDA exist once for
 * each version, under that version, and each has a real function of its own; the loader picks. A
 * version that is not in this list is not hooked, and runs as without us. The last one also gets
 * the calls that ask for no version. */
#define LG_CUDARTS(X, ...)                                                                         \
    X(11, "libcudart.so.11.0", "@", __VA_ARGS__)                                                   \
    X(12, "libcudart.so.12", "@", __VA_ARGS__)                                                     \
    X(13, "libcudart.so.13", "@@", __VA_ARGS__)
#define LG_CUDART_DEFAULT                   LG_CUDART_13
#define LG_CUDART_ENUM(n, node, at, unused) LG_CUDART_##n,
enum lg_cudart { LG_CUDARTS(LG_CUDART_ENUM, 0) LG_CUDART_COUNT };

/* Calls one of two macros for a row of the table: areas with one real function, or one a libcudart.
 */
#define LG_PICK_LIBC(plain, cuda, ...)   plain(__VA_ARGS__)
#define LG_PICK_TORCH(plain, cuda, ...)  plain(__VA_ARGS__)
#define LG_PICK_DRIVER(plain, cuda, ...) plain(__VA_ARGS__)
#define LG_PICK_NCCL(plain, cuda, ...)   plain(__VA_ARGS__)
#define LG_PICK_NVTX(plain, cuda, ...)   plain(__VA_ARGS__)
#define LG_PICK_CUDA(plain, cuda, ...)   cuda(__VA_ARGS__)
#define LG_PICK_STREAM(plain, cuda, ...) cuda(__VA_ARGS__)

#define LG_DECLARE_PLAIN(id, symbol, ret, params)    LG_EXPORT ret hook_##id params __asm__(symbol);
#define LG_DECLARE_ONE(n, node, at, id, ret, params) LG_EXPORT ret hook_##id##_##n params;
#define LG_DECLARE_CUDA(id, symbol, ret, params)     LG_CUDARTS(LG_DECLARE_ONE, id, ret, params)
#define CALL(area, need, id, symbol, ret, params)    typedef ret(*real_##id##_fn) params;
#define HOOK(area, need, id, symbol, ret, params)                                                  \
    typedef ret(*real_##id##_fn) params;                                                           \
    LG_PICK_##area(LG_DECLARE_PLAIN, LG_DECLARE_CUDA, id, symbol, ret, params)
#include "preload/hooks.def"
#undef CALL
#undef HOOK

/* The real functions; NULL = not found (yet). Written while one thread boots an area or by
 * lg_resolve_late(); a pointer only ever changes from NULL to its value. */
struct lg_real {
#define LG_FIELD_PLAIN(id)                        real_##id##_fn id;
#define LG_FIELD_CUDA(id)                         real_##id##_fn id[LG_CUDART_COUNT];
#define CALL(area, need, id, symbol, ret, params) LG_PICK_##area(LG_FIELD_PLAIN, LG_FIELD_CUDA, id)
#define HOOK(area, need, id, symbol, ret, params) CALL(area, need, id, symbol, ret, params)
#include "preload/hooks.def"
#undef CALL
#undef HOOK
};
extern struct lg_real real;

/* A CUDA row has as many numbers as there are versions, from LG_HOOK_id on. */
enum lg_hook {
#define LG_NUMBER_PLAIN(id) LG_HOOK_##id,
#define LG_NUMBER_CUDA(id)  LG_HOOK_##id, LG_HOOK_##id##_last = LG_HOOK_##id + LG_CUDART_COUNT - 1,
#define CALL(area, need, id, symbol, ret, params)                                                  \
    LG_PICK_##area(LG_NUMBER_PLAIN, LG_NUMBER_CUDA, id)
#define HOOK(area, need, id, symbol, ret, params) CALL(area, need, id, symbol, ret, params)
#include "preload/hooks.def"
#undef CALL
#undef HOOK
    LG_HOOKS
};

enum lg_area {
    LG_AREA_LIBC,
    LG_AREA_TORCH,
    LG_AREA_CUDA,
    LG_AREA_STREAM,
    LG_AREA_DRIVER,
    LG_AREA_NCCL,
    LG_AREA_NVTX
};

/* Fills the empty pointers of an area from the objects loaded now. No allocation, no lock but the
 * loader's own (dl_iterate_phdr). Returns how many REQUIRED ones are still missing. */
int lg_resolve_area(enum lg_area area);

/* Resolves one hook that was called before its area was; NULL if nothing after us defines it. */
typedef void (*lg_function)(void);
lg_function lg_resolve_late(enum lg_hook hook);

/* Calls found() for each object after ours that defines a hook's function, in load order, with its
 * file's path, which is good during the call only. No allocation. */
typedef void lg_found(void *context, lg_function function, const char *path);
void lg_resolve_each(enum lg_hook hook, lg_found *found, void *context);

/* How many objects are loaded whose file's name begins so. */
unsigned lg_objects_loaded(const char *name);

/* The real function of a hook that may be called before its area was resolved. */
#define REAL(id)                                                                                   \
    (__builtin_expect(real.id != NULL, 1) ? real.id : (real_##id##_fn)lg_resolve_late(LG_HOOK_##id))
/* The same where several objects of the process may define the function, without versions to tell
 * them apart (a framework with NCCL inside and a libnccl beside it): the one that the loader would
 * have given to the code at `caller`. */
lg_function lg_resolve_for(enum lg_hook hook, const void *caller);
/* Looks whether more than one object defines the function now. No allocation. */
bool lg_resolve_several(enum lg_hook hook);

/* The same for a function of libcudart; `v`: enum lg_cudart. */
#define REAL_OF(id, v)                                                                             \
    (__builtin_expect(real.id[v] != NULL, 1)                                                       \
         ? real.id[v]                                                                              \
         : (real_##id##_fn)lg_resolve_late((enum lg_hook)(LG_HOOK_##id + (int)(v))))

/* Gives the hooks of libcudart their versions. A file that defines all hooks of an area defines
 * HOOK(area, ...) as LG_VERSIONS for it, as nothing for the others, and includes the table. */
#define LG_VERSION_OF(n, node, at, id, symbol)                                                     \
    __asm__(".symver hook_" #id "_" #n ", " symbol at node);
#define LG_VERSIONS(id, symbol) LG_CUDARTS(LG_VERSION_OF, id, symbol)

#endif
