/*
 * hidden_nccl.c - NCCL's functions for tests/trainer, reached past everything preloaded. Linked
 * into the program it opens the library in HIDDEN_NCCL and calls what dlsym gives for its handle;
 * with PLUGIN defined it is such a library: linked with NCCL itself, and opened with RTLD_DEEPBIND,
 * so that its calls look there first. Context: test program.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nccl.h>

/* what the trainer uses: result, name, parameters, arguments */
#define FUNCTIONS(X)                                                                               \
    X(const char *, GetErrorString, (ncclResult_t r), (r))                                         \
    X(ncclResult_t, GetUniqueId, (ncclUniqueId * id), (id))                                        \
    X(ncclResult_t, CommInitRank, (ncclComm_t * comm, int n, ncclUniqueId id, int rank),           \
      (comm, n, id, rank))                                                                         \
    X(ncclResult_t, CommDestroy, (ncclComm_t comm), (comm))                                        \
    X(ncclResult_t, Broadcast,                                                                     \
      (const void *from, void *to, size_t n, ncclDataType_t type, int root, ncclComm_t comm,       \
       cudaStream_t stream),                                                                       \
      (from, to, n, type, root, comm, stream))                                                     \
    X(ncclResult_t, AllReduce,                                                                     \
      (const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, \
       cudaStream_t stream),                                                                       \
      (from, to, n, type, op, comm, stream))

#ifdef PLUGIN
#define FORWARD(ret, name, params, arguments)                                                      \
    ret plugin_##name params;                                                                      \
    ret plugin_##name params                                                                       \
    {                                                                                              \
        return nccl##name arguments;                                                               \
    }
#else
static void *look_up(const char *name)
{
    static void *handle;
    const char *path = getenv("HIDDEN_NCCL");
    int plugin = path != NULL && strstr(path, "plugin") != NULL;
    char symbol[64];
    if (path != NULL && handle == NULL)
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | (plugin ? RTLD_DEEPBIND : 0));
    snprintf(symbol, sizeof symbol, "%s%s", plugin ? "plugin_" : "nccl", name);
    void *found = handle != NULL ? dlsym(handle, symbol) : NULL;
    if (found != NULL)
        return found;
    fprintf(stderr, "hidden_nccl: %s\n", dlerror());
    exit(1);
}

#define FORWARD(ret, name, params, arguments)                                                      \
    ret nccl##name params                                                                          \
    {                                                                                              \
        union {                                                                                    \
            void *object;                                                                          \
            ret(*function) params;                                                                 \
        } u = {look_up(#name)};                                                                    \
        return u.function arguments;                                                               \
    }
#endif

FUNCTIONS(FORWARD)
