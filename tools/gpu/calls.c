/*
 * calls.c - writes down the calls by which streams order themselves, of one step of a training: for
 * tools/gpu-check, to see whether PyTorch issues what laggard's device clock rests on. Context:
 * preloaded alone (without laggard) into ranks of tools/gpu/train.py; diagnostic, not part of the
 * library.
 *
 * The job calls gpu_check_log(1) before the step and gpu_check_log(0) after it; then one line a
 * call goes to the file GPU_CHECK_CALLS.RANK: "launch STREAM", "record EVENT STREAM", "wait STREAM
 * EVENT", "nccl STREAM", "copy STREAM". Real functions are those of the loaded libcudart and
 * libnccl.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct dim3 {
    unsigned x, y, z;
};

static FILE *out;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void gpu_check_log(int on);

void gpu_check_log(int on)
{
    const char *path = getenv("GPU_CHECK_CALLS"), *rank = getenv("RANK");
    char name[512];
    pthread_mutex_lock(&lock);
    if (out != NULL)
        fclose(out);
    snprintf(name, sizeof name, "%s.%s", path != NULL ? path : "calls", rank != NULL ? rank : "0");
    out = on ? fopen(name, "w") : NULL;
    pthread_mutex_unlock(&lock);
}

#define LOG(...)                                                                                   \
    do {                                                                                           \
        pthread_mutex_lock(&lock);                                                                 \
        if (out != NULL)                                                                           \
            fprintf(out, __VA_ARGS__);                                                             \
        pthread_mutex_unlock(&lock);                                                               \
    } while (0)

static int find(struct dl_phdr_info *info, size_t size, void *data)
{
    const char **wanted = data, *slash = strrchr(info->dlpi_name, '/');
    (void)size;
    if (strncmp(slash != NULL ? slash + 1 : info->dlpi_name, wanted[0], strlen(wanted[0])) != 0)
        return 0;
    wanted[1] = info->dlpi_name;
    return 1;
}

static void *real_function(const char *library, const char *name)
{
    const char *wanted[2] = {library, NULL};
    dl_iterate_phdr(find, wanted);
    void *handle = wanted[1] != NULL ? dlopen(wanted[1], RTLD_LAZY | RTLD_NOLOAD) : NULL;
    void *p = handle != NULL ? dlsym(handle, name) : NULL;
    if (p == NULL) {
        fprintf(stderr, "calls: no %s in %s\n", name, library);
        abort();
    }
    return p;
}

#define CALL(library, name, params, arguments, ...)                                                \
    int name params;                                                                               \
    int name params                                                                                \
    {                                                                                              \
        static int(*next) params;                                                                  \
        if (next == NULL)                                                                          \
            *(void **)&next = real_function(library, #name);                                       \
        LOG(__VA_ARGS__);                                                                          \
        return next arguments;                                                                     \
    }

#define LAUNCH(name)                                                                               \
    CALL("libcudart.so", name,                                                                     \
         (const void *f, struct dim3 grid, struct dim3 block, void **args, size_t shared,          \
          void *stream),                                                                           \
         (f, grid, block, args, shared, stream), "launch %p\n", stream)
LAUNCH(cudaLaunchKernel)
LAUNCH(__cudaLaunchKernel)
CALL("libcudart.so", cudaMemcpyAsync,
     (void *to, const void *from, size_t n, int kind, void *stream), (to, from, n, kind, stream),
     "copy %p\n", stream)
CALL("libcudart.so", cudaEventRecord, (void *event, void *stream), (event, stream),
     "record %p %p\n", event, stream)
CALL("libcudart.so", cudaEventRecordWithFlags, (void *event, void *stream, unsigned flags),
     (event, stream, flags), "record %p %p\n", event, stream)
CALL("libcudart.so", cudaStreamWaitEvent, (void *stream, void *event, unsigned flags),
     (stream, event, flags), "wait %p %p\n", stream, event)
CALL("libnccl.so", ncclAllReduce,
     (const void *from, void *to, size_t n, int type, int op, void *comm, void *stream),
     (from, to, n, type, op, comm, stream), "nccl %p\n", stream)
