/*
 * copies.c - a process with two copies of NCCL, as when a framework has one inside and another
 * library brings libnccl.so.2: every call must reach the copy that its caller was linked to. The
 * copies are fakes that notice communicators of the other one. Context: test program; compiled as
 *
 *     FAKE=1 HALF  libinside.so: a copy and its user     FAKE=2       libnccl.so.2: the other copy
 *     HALF         libuser.so: its user                  neither      the program, which opens both
 */
#include <stdio.h>
#include <stdlib.h>

struct id {
    char bytes[128];
};

int ncclGetVersion(int *version);
int ncclCommInitRank(void **comm, int size, struct id id, int rank);
int ncclCommCount(void *comm, int *count);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, void *comm,
                  void *stream);
int ncclCommDestroy(void *comm);
const char *work(void);

#ifdef FAKE
static int communicator = FAKE, calls, mixed;

static int see(const void *comm)
{
    calls++;
    mixed += comm != &communicator;
    return 0;
}

int ncclGetVersion(int *version)
{
    *version = FAKE == 1 ? 22105 : 22803;
    return 0;
}

int ncclCommInitRank(void **comm, int size, struct id id, int rank)
{
    (void)size, (void)id, (void)rank;
    *comm = &communicator;
    return see(*comm);
}

int ncclCommCount(void *comm, int *count)
{
    *count = mixed * 1000 + calls;
    mixed += comm != &communicator;
    return 0;
}

int ncclGroupStart(void)
{
    return see(&communicator);
}

int ncclGroupEnd(void)
{
    return see(&communicator);
}

int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, void *comm,
                  void *stream)
{
    (void)from, (void)to, (void)count, (void)type, (void)op, (void)stream;
    return see(comm);
}

int ncclCommDestroy(void *comm)
{
    return see(comm);
}
#endif

#ifdef HALF
/* "22105: 12 calls": of the copy that this code uses; communicators of the other one count 1000. */
const char *work(void)
{
    static char said[64];
    static void *comm;
    struct id id = {{0}};
    int version = 0, count = 0;
    float x = 0;
    if (comm == NULL)
        ncclCommInitRank(&comm, 1, id, 0);
    ncclGroupStart();
    for (int i = 0; i < 3; i++)
        ncclAllReduce(&x, &x, 1, 7, 0, comm, NULL);
    ncclGroupEnd();
    ncclGetVersion(&version);
    ncclCommCount(comm, &count);
    snprintf(said, sizeof said, "%d: %d calls", version, count);
    return said;
}
#endif

#if !defined FAKE && !defined HALF
#include <dlfcn.h>

typedef const char *(*work_fn)(void);

static work_fn open_half(const char *path)
{
    union {
        void *object;
        work_fn function;
    } u = {NULL};
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle != NULL)
        u.object = dlsym(handle, "work");
    if (u.object == NULL) {
        fprintf(stderr, "copies: %s\n", dlerror());
        exit(1);
    }
    return u.function;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    work_fn first = open_half(argv[1]);
    printf("%s\n", first());
    work_fn second = open_half(argv[2]);
    for (int i = 0; i < 3; i++)
        printf("%s, %s\n", first(), second());
    return 0;
}
#endif
