/*
 * ranges.c - a training in C that marks its stages with NVTX ranges, whose calls alone would tell
 * another story: it reads nothing, its forward is slow on the host before its first launch, and
 * the optimizer reduces as well. Also libnvToolsExt.so.1 (with NVTX defined), which counts depths.
 * Context: test program; one rank.
 *
 *     ranges STEPS WHOLE EVAL     WHOLE 1: a range around each step; EVAL 1: a validation after
 * each tenth step
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct attributes {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const char *message;
};

int nvtxRangePushA(const char *message);
int nvtxRangePushEx(const struct attributes *a);
int nvtxRangePop(void);
int nvtxDomainRangePushEx(void *domain, const struct attributes *a);
int nvtxDomainRangePop(void *domain);

#ifdef NVTX
static int depth, domain_depth;

int nvtxRangePushA(const char *message)
{
    return message != NULL ? depth++ : -1;
}

int nvtxRangePushEx(const struct attributes *a)
{
    return a != NULL ? depth++ : -1;
}

int nvtxRangePop(void)
{
    return --depth;
}

int nvtxDomainRangePushEx(void *domain, const struct attributes *a)
{
    return domain != NULL && a != NULL ? domain_depth++ : -1;
}

int nvtxDomainRangePop(void *domain)
{
    return domain != NULL ? --domain_depth : -1;
}
#else
#include <cuda_runtime_api.h>
#include <nccl.h>

enum { BYTES = 4096 };
static int kernel; /* its address stands for a kernel */
static void *device, *host;
static ncclComm_t comm;
static long depths; /* sum of what NVTX answered: the same whether traced or not */

static void check(int result)
{
    if (result != 0)
        exit(1);
}

static void launch(int count)
{
    const dim3 one = {1, 1, 1};
    for (int i = 0; i < count; i++)
        check(cudaLaunchKernel(&kernel, one, one, NULL, 0, NULL));
}

static void reduce(void)
{
    check(ncclAllReduce(device, device, BYTES / 4, ncclFloat32, ncclSum, comm, NULL));
}

static void push(const char *name)
{
    depths += nvtxRangePushA(name);
}

static void pop(void)
{
    depths += nvtxRangePop();
}

static void forward(int us)
{
    push("Forward pass");
    usleep((useconds_t)us);
    launch(3);
    pop();
}

static void step(int number, int whole)
{
    static const struct attributes update = {
        .version = 3, .size = sizeof update, .message_type = 1, .message = "optimizer.step"};
    char name[32];
    static int domain;
    snprintf(name, sizeof name, "iteration %d", number);
    if (whole)
        push(name);
    push("data loading");
    usleep(3000);
    pop();
    check(cudaMemcpyAsync(device, host, BYTES, cudaMemcpyHostToDevice, NULL));
    forward(5000);
    push("backward");
    push("layer 1"); /* says nothing */
    launch(3);
    pop();
    reduce();
    usleep(2000);
    pop();
    depths += nvtxDomainRangePushEx(&domain, &update);
    usleep(4000);
    reduce(); /* a norm, of all bytes */
    launch(1);
    depths += nvtxDomainRangePop(&domain);
    usleep(1000);
    if (whole)
        pop();
}

static void evaluate(void)
{
    push("Validation");
    for (int i = 0; i < 3; i++)
        forward(2000);
    pop();
}

int main(int argc, char **argv)
{
    ncclUniqueId id;
    if (argc != 4)
        return 2;
    check(cudaMalloc(&device, BYTES));
    check(cudaMallocHost(&host, BYTES));
    check(ncclGetUniqueId(&id));
    check(ncclCommInitRank(&comm, 1, id, 0));
    for (int i = 0; i < atoi(argv[1]); i++) {
        step(i, atoi(argv[2]));
        if (atoi(argv[3]) && i % 10 == 9)
            evaluate();
    }
    check(cudaDeviceSynchronize());
    printf("depths %ld\n", depths);
    return 0;
}
#endif
