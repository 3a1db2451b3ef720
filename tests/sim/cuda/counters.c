/*
 * counters.c - who called which function how often, while a capture was open or not: for tests of
 * what a tracer adds. Context: first thing in every exported function of the stand-ins, any thread.
 *
 * The counts lie in a file of their own per process (directory SIM_COUNTERS), which outlives
 * whatever ends the process; without that variable in plain memory, for simCalls(). A call is the
 * tracer's own if it comes from the tracer's code and either the tracer does not stand in for that
 * function or it is about an object that the tracer made; other calls from its code pass the
 * program's calls on.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "internal.h"

#define MAX_FUNCTIONS 4096

/* One function: also the layout of the file, little endian, 128 bytes each; unused ones are zero.
 */
struct sim_calls {
    char function[72];
    _Atomic uint64_t calls[2][SIM_CALLERS]; /* [while capturing] */
    uint32_t tracer_stands_in, reserved;
};
_Static_assert(sizeof(struct sim_calls) == 128, "layout of counter files");

#define TABLE_BYTES (MAX_FUNCTIONS * sizeof(struct sim_calls))

static struct sim_calls *table;
static size_t functions;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
    uintptr_t begin, size;
    char path[512];
} tracer;

/* ---- the tracer */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int find_tracer(struct dl_phdr_info *info, size_t size, void *name)
{
    (void)size;
    if (strcmp(base_name(info->dlpi_name), name))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_LOAD && p->p_flags & PF_X) {
            tracer.begin = info->dlpi_addr + p->p_vaddr;
            tracer.size = p->p_memsz;
        }
    }
    snprintf(tracer.path, sizeof tracer.path, "%s", info->dlpi_name);
    return 1;
}

static int from_tracer(const void *caller)
{
    return (uintptr_t)caller - tracer.begin < tracer.size;
}

static int tracer_exports(const char *function)
{
    if (!tracer.size)
        return 0;
    void *handle = dlopen(tracer.path, RTLD_LAZY | RTLD_NOLOAD);
    void *found = handle ? dlsym(handle, function) : NULL;
    if (handle)
        dlclose(handle);
    return found && from_tracer(found);
}

/* ---- the table */

static void *map_table(int fd, int flags, void *at)
{
    void *map = mmap(at, TABLE_BYTES, PROT_READ | PROT_WRITE, flags, fd, 0);
    return map == MAP_FAILED ? NULL : map;
}

static void *map_file(const char *directory)
{
    char path[600];
    void *map = NULL;
    snprintf(path, sizeof path, "%s/%d", directory, (int)getpid());
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd >= 0 && ftruncate(fd, (off_t)TABLE_BYTES) == 0)
        map = map_table(fd, MAP_SHARED, NULL);
    if (fd >= 0)
        close(fd);
    if (!map)
        fprintf(stderr, "sim: no counters in %s\n", directory);
    return map;
}

/* A fork child must not count into its parent's file: empty memory takes the place of the map. */
static void leave_file(void)
{
    map_table(-1, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, table);
}

__attribute__((constructor)) static void open_counters(void)
{
    const char *name = getenv("SIM_TRACER"), *directory = getenv("SIM_COUNTERS");
    char wanted[256];
    snprintf(wanted, sizeof wanted, "%s", name && *name ? name : "liblaggard.so");
    dl_iterate_phdr(find_tracer, wanted);
    table = directory && *directory ? map_file(directory) : NULL;
    if (!table)
        table = map_table(-1, MAP_PRIVATE | MAP_ANONYMOUS, NULL);
    if (table)
        pthread_atfork(NULL, NULL, leave_file);
}

/* pncclX is the other name of ncclX */
static const char *counted_name(const char *function)
{
    return strncmp(function, "pnccl", 5) ? function : function + 1;
}

static struct sim_calls *find(const char *function)
{
    for (size_t i = 0; table && i < functions; i++)
        if (!strcmp(table[i].function, function))
            return &table[i];
    return NULL;
}

static struct sim_calls *find_or_add(const char *function)
{
    pthread_mutex_lock(&lock);
    struct sim_calls *calls = find(function);
    if (!calls && table && functions < MAX_FUNCTIONS) {
        calls = &table[functions];
        snprintf(calls->function, sizeof calls->function, "%s", function);
        calls->tracer_stands_in = (uint32_t)tracer_exports(function);
        functions++;
    }
    pthread_mutex_unlock(&lock);
    return calls;
}

API enum sim_caller simCount(struct sim_counter *counter, const char *function, const void *caller,
                             int tracers)
{
    struct sim_calls *calls = atomic_load_explicit(&counter->calls, memory_order_relaxed);
    if (!calls) {
        calls = find_or_add(counted_name(function));
        if (!calls)
            return SIM_DIRECT;
        atomic_store(&counter->calls, calls);
    }
    enum sim_caller who = SIM_DIRECT;
    if (from_tracer(caller))
        who = calls->tracer_stands_in && !tracers ? SIM_THROUGH : SIM_OWN;
    int capturing = atomic_load_explicit(&sim_open_captures, memory_order_relaxed) != 0;
    atomic_fetch_add_explicit(&calls->calls[capturing][who], 1, memory_order_relaxed);
    return who;
}

API uint64_t simCalls(const char *function, enum sim_caller caller, int while_capturing)
{
    pthread_mutex_lock(&lock);
    struct sim_calls *calls = find(function);
    pthread_mutex_unlock(&lock);
    return calls ? atomic_load(&calls->calls[while_capturing != 0][caller]) : 0;
}

API int simMissing(const char *function, int error)
{
    fprintf(stderr, "sim: %s is not in the stand-in\n", function);
    return error;
}
