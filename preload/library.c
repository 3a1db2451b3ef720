/*
 * library.c - see library.h. Context: hooks on any thread and cold paths; only atomics, no lock.
 *
 * RATIONALE: a copy of NCCL that made no communicator is not asked for its version. What exports
 * that name may be a stub which loads the real library at its first call.
 */
#include "preload/library.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/boot.h"
#include "preload/identity.h"
#include "preload/text.h"

static struct lg_library libraries[LG_LIBRARIES]; /* the first one is the program */
static lg_function _Atomic functions[LG_LIBRARIES];
static _Atomic uint32_t changes;
static uint32_t written; /* changes that the spool has */

/* The entry of a copy, by its ncclGetVersion. */
static struct lg_library *entry_of(lg_function ask)
{
    for (unsigned i = 1; i < LG_LIBRARIES; i++) {
        lg_function there = NULL;
        if (functions[i] == ask || atomic_compare_exchange_strong(&functions[i], &there, ask) ||
            there == ask)
            return &libraries[i];
    }
    return NULL;
}

static void copy_path(struct lg_library *l, const char *path)
{
    lg_copy(l->path, sizeof l->path, strlen(path) < sizeof l->path ? path : "");
}

static void note(void *context, lg_function ask, const char *path)
{
    struct lg_library *l = entry_of(ask);
    (void)context;
    if (l == NULL || l->kind != 0)
        return;
    copy_path(l, path);
    l->kind = LG_LIBRARY_NCCL;
    changes++;
}

/* "2.28.3 (22803)"; numbers had another form before 2.9, and one that fits neither stands alone. */
static void add_version(struct lg_text *t, int number)
{
    unsigned n = (unsigned)number, thousand = n < 10000 ? 1000 : 10000;
    if (number < 0)
        lg_text_add(t, "-");
    if (number >= 2000 && number < 100000) {
        lg_text_add_number(t, n / thousand);
        lg_text_add(t, ".");
        lg_text_add_number(t, n % thousand / 100);
        lg_text_add(t, ".");
        lg_text_add_number(t, n % 100);
        lg_text_add(t, " (");
    }
    lg_text_add_number(t, number < 0 ? 0 - (uint64_t)number : n);
    if (number >= 2000 && number < 100000)
        lg_text_add(t, ")");
}

void lg_library_nccl(lg_function ask, int version)
{
    struct lg_library *l = entry_of(ask);
    if (l == NULL)
        return;
    if (l->communicators++ == 0) {
        struct lg_text t = lg_text_start(l->version, sizeof l->version);
        add_version(&t, version);
        lg_resolve_each(LG_HOOK_nccl_version, note, NULL);
    }
    changes++;
}

static void note_program(void)
{
    struct lg_library *l = &libraries[0];
    char path[sizeof l->path] = "";
    if (l->kind != 0)
        return;
    long n = syscall(SYS_readlinkat, -1, "/proc/self/exe", path, sizeof path);
    copy_path(l, n > 0 && (size_t)n < sizeof path ? path : "");
    l->kind = LG_LIBRARY_PROGRAM;
    changes++;
}

void lg_library_look(void)
{
    LG_KEEP_ERRNO;
    if (lg_objects_loaded("libcuda.so") > 0)
        lg_identity_saw(LG_SEEN_DRIVER);
    note_program();
    lg_resolve_each(LG_HOOK_nccl_version, note, NULL);
}

/* The versions of the copies in use, each once. */
static void write_versions(char *out, size_t size)
{
    struct lg_text t = lg_text_start(out, size);
    for (unsigned i = 1; i < LG_LIBRARIES; i++)
        if (libraries[i].communicators > 0 && strstr(out, libraries[i].version) == NULL) {
            lg_text_add(&t, t.used > 0 ? ", " : "");
            lg_text_add(&t, libraries[i].version);
        }
}

void lg_library_write(struct lg_spool *spool)
{
    if (written == changes && lg_spool_libraries(spool)->kind != 0)
        return;
    written = changes; /* before it is copied: a later change is written again */
    memcpy(lg_spool_libraries(spool), libraries, sizeof libraries);
    write_versions(spool->nccl_version, sizeof spool->nccl_version);
}

void lg_library_reset(void)
{
    memset(libraries, 0, sizeof libraries);
    for (unsigned i = 0; i < LG_LIBRARIES; i++)
        atomic_store(&functions[i], (lg_function)0);
    changes++;
}
