/*
 * nccl-user.c - a program with a few ranks that reaches NCCL in the ways real programs do, for
 * tests of what a preloaded tracer can see of it. Context: test program.
 *
 *     nccl-user MODE [RANKS]
 *
 * MODE: linked    NCCL is a library that the program is linked with
 *       handle    it is opened by dlopen, its functions come from dlsym on the handle
 *       second    linked, and a second copy of it in the same process, each with work of its own
 *       deepbind  a plug-in that is linked with NCCL, opened with RTLD_DEEPBIND
 *       static    (program nccl-user-static) NCCL is part of the program
 *
 * Every rank does 3 all-reduces by each copy it uses and checks their sums. Prints "MODE: ok".
 */
#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nccl-user.h"

static const struct nccl linked = {ncclGetUniqueId, ncclCommInitRank, ncclAllReduce};

static int fail(const char *what)
{
    const char *why = dlerror();
    fprintf(stderr, "nccl-user: %s: %s\n", what, why ? why : "");
    return 1;
}

/* A path beside the program. */
static const char *beside(const char *name)
{
    static char path[600];
    ssize_t size = readlink("/proc/self/exe", path, 500);
    path[size > 0 ? size : 0] = 0;
    char *slash = strrchr(path, '/');
    snprintf(slash + 1, 99, "%s", name);
    return path;
}

static int load(struct nccl *n, const char *path)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return fail(path);
    *(void **)&n->get_unique_id = dlsym(handle, "ncclGetUniqueId");
    *(void **)&n->init_rank = dlsym(handle, "ncclCommInitRank");
    *(void **)&n->all_reduce = dlsym(handle, "ncclAllReduce");
    return n->all_reduce ? 0 : fail("dlsym");
}

static int train(const struct nccl *n, ncclUniqueId id, int ranks, int rank)
{
    ncclComm_t comm;
    float value = 1, expected = 1, *buffer;
    if (n->init_rank(&comm, ranks, id, rank) || cudaMalloc((void **)&buffer, sizeof value) ||
        cudaMemcpy(buffer, &value, sizeof value, cudaMemcpyHostToDevice))
        return fail("start");
    for (int i = 0; i < 3; i++) {
        expected *= (float)ranks;
        if (n->all_reduce(buffer, buffer, 1, ncclFloat32, ncclSum, comm, NULL))
            return fail("ncclAllReduce");
    }
    if (cudaMemcpy(&value, buffer, sizeof value, cudaMemcpyDeviceToHost) || value != expected)
        return fail("wrong sum");
    return 0;
}

/* Runs `copies` in each of `ranks` processes. */
static int run(const struct nccl *copies, int count, int ranks)
{
    ncclUniqueId ids[2];
    int status, wrong = 0;
    for (int c = 0; c < count; c++)
        if (copies[c].get_unique_id(&ids[c]))
            return fail("ncclGetUniqueId");
    for (int r = 0; r < ranks; r++)
        if (fork() == 0) {
            char number[12];
            snprintf(number, sizeof number, "%d", r);
            setenv("RANK", number, 1);
            for (int c = 0; c < count; c++)
                wrong |= train(&copies[c], ids[c], ranks, r);
            exit(wrong);
        }
    while (wait(&status) > 0)
        wrong |= status;
    return wrong;
}

static int use_plugin(struct nccl *n)
{
    const struct nccl *(*get)(void) = NULL;
    void *handle = dlopen(beside("nccl-plugin.so"), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (handle)
        *(void **)&get = dlsym(handle, "plugin_nccl");
    if (!get)
        return fail("plug-in");
    *n = *get();
    return 0;
}

int main(int argc, char **argv)
{
    struct nccl copies[2] = {linked};
    const char *mode = argc > 1 ? argv[1] : "";
    int ranks = argc > 2 ? atoi(argv[2]) : 2, count = 1, wrong = 0;
    if (!strcmp(mode, "handle"))
        wrong = load(&copies[0], beside("libnccl.so.2"));
    else if (!strcmp(mode, "second"))
        wrong = load(&copies[count++], beside("second/libnccl.so.2"));
    else if (!strcmp(mode, "deepbind"))
        wrong = use_plugin(&copies[0]);
    else if (strcmp(mode, "linked") && strcmp(mode, "static"))
        return fprintf(stderr, "usage: nccl-user linked|handle|second|deepbind|static [RANKS]\n"),
               2;
    wrong = wrong || run(copies, count, ranks);
    printf("%s: %s\n", mode, wrong ? "failed" : "ok");
    return wrong;
}
