/*
 * tracer.c - a preloaded tracer as small as can be, for the tests of the stand-ins' counters: it
 * counts the program's all-reduces, and with every record of an event it records, queries and
 * compares events of its own. Context: test library in LD_PRELOAD. At exit each process that traced
 * prints "tracer: N all-reduces".
 */
#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static unsigned int all_reduces;
static pid_t owner;

static void *real(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) {
        fprintf(stderr, "tracer: no %s\n", name);
        _exit(2);
    }
    return found;
}

#define REAL(name)                                                                                 \
    static __typeof__(&name) real_##name;                                                          \
    if (!real_##name)                                                                              \
    *(void **)&real_##name = real(#name)

/* Two records and a query on an event of the tracer's own. */
static void own_calls(cudaStream_t stream)
{
    static cudaEvent_t own;
    enum cudaStreamCaptureStatus status;
    REAL(cudaStreamIsCapturing);
    REAL(cudaEventCreateWithFlags);
    REAL(cudaEventRecord);
    REAL(cudaEventQuery);
    REAL(cudaGetLastError);
    if (real_cudaStreamIsCapturing(stream, &status) || status)
        return;
    if (!own && real_cudaEventCreateWithFlags(&own, cudaEventDefault))
        return;
    int wrong = real_cudaEventRecord(own, stream);
    wrong |= real_cudaEventRecord(own, stream);
    if (real_cudaEventQuery(own) || wrong)
        real_cudaGetLastError();
}

/* The program's calls pass through here; the second one is not in tail position on purpose. */
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    REAL(cudaEventRecord);
    own_calls(stream);
    cudaError_t error = real_cudaEventRecord(event, stream);
    __asm__ volatile("" ::: "memory");
    return error;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    REAL(ncclAllReduce);
    all_reduces++;
    owner = getpid();
    ncclResult_t result = real_ncclAllReduce(from, to, count, type, op, comm, stream);
    __asm__ volatile("" ::: "memory");
    return result;
}

__attribute__((destructor)) static void tell(void)
{
    if (owner && owner == getpid())
        printf("tracer: %u all-reduces\n", all_reduces);
}
