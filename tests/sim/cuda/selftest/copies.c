/*
 * copies.c - memory and what copies do with it. Context: test program.
 */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "selftest.h"

static char *device_bytes(size_t size)
{
    void *p = NULL;
    if (cudaMalloc(&p, size))
        fprintf(stderr, "no memory\n");
    return p;
}

static const char *bytes_travel(void)
{
    char *device = device_bytes(8), *other = device_bytes(8), back[8] = "";
    CHECK(!cudaMemcpy(device, "seven..", 8, cudaMemcpyHostToDevice));
    CHECK(!cudaMemcpy(other, device, 8, cudaMemcpyDeviceToDevice));
    CHECK(!cudaMemset(other, '!', 2));
    CHECK(!cudaMemcpy(back, other, 8, cudaMemcpyDefault) && !strcmp(back, "!!ven.."));
    CHECK(!cudaMemcpy2DAsync(back, 4, device, 2, 2, 2, cudaMemcpyDeviceToHost, NULL));
    CHECK(!memcmp(back, "se", 2) && !memcmp(back + 4, "ve", 2));
    FAILS(cudaMemcpy(device, back, 8, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    FAILS(cudaMemcpy(device, back, 8, (enum cudaMemcpyKind)9), cudaErrorInvalidMemcpyDirection);
    FAILS(cudaMemset(back, 0, 8), cudaErrorInvalidValue);
    CHECK(!cudaFree(device));
    FAILS(cudaFree(device), cudaErrorInvalidValue);
    return NULL;
}

static const char *device_pointer_kills(void)
{
    char *device = device_bytes(8);
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(*(volatile char *)device);
    waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    return NULL;
}

static const char *copies_take_their_time(void)
{
    char *pinned, *device = device_bytes(1 << 20);
    CHECK(!cudaHostAlloc((void **)&pinned, 1 << 20, 0) && !gate(NULL));
    cudaEvent_t begin = recorded(NULL);
    CHECK(!cudaMemcpyAsync(device, pinned, 1000000, cudaMemcpyHostToDevice, NULL));
    cudaEvent_t middle = recorded(NULL);
    CHECK(!cudaMemcpyAsync(pinned, device, 500000, cudaMemcpyDeviceToHost, NULL));
    cudaEvent_t end = recorded(NULL);
    CHECK(took(begin, middle, 1.01) && took(middle, end, 0.51));
    return NULL;
}

/* A copy from pinned memory takes what is there when its time comes. */
static const char *pinned_is_read_late(void)
{
    char *pinned, *device = device_bytes(8);
    CHECK(!cudaHostAlloc((void **)&pinned, 8, 0));
    strcpy(pinned, "before");
    CHECK(!simBusy(NULL, 1000 * MS));
    CHECK(!cudaMemcpyAsync(device, pinned, 8, cudaMemcpyHostToDevice, NULL));
    strcpy(pinned, "after");
    CHECK(!cudaDeviceSynchronize() && !strcmp(simHost(device), "after"));
    return NULL;
}

/* A small one from pageable memory is taken over at the call. */
static const char *pageable_is_staged(void)
{
    char pageable[8] = "before", *device = device_bytes(8);
    CHECK(!simBusy(NULL, 100 * MS));
    CHECK(!cudaMemcpyAsync(device, pageable, 8, cudaMemcpyHostToDevice, NULL));
    strcpy(pageable, "after");
    CHECK(!cudaDeviceSynchronize() && !strcmp(simHost(device), "before"));
    return NULL;
}

static const char *pageable_blocks(void)
{
    char pageable[8] = "x", *device = device_bytes(8);
    uint64_t before = sim_now();
    CHECK(!simBusy(NULL, 30 * MS));
    CHECK(!cudaMemcpyAsync(device, pageable, 8, cudaMemcpyHostToDevice, NULL));
    CHECK(sim_now() - before >= 30 * MS && !strcmp(simHost(device), "x"));
    return NULL;
}

static const char *pageable_costs_the_host(void)
{
    char pageable[8] = "x", *device = device_bytes(8), *pinned;
    CHECK(!cudaHostAlloc((void **)&pinned, 8, 0));
    uint64_t before = sim_now();
    CHECK(!cudaMemcpyAsync(device, pageable, 8, cudaMemcpyHostToDevice, NULL));
    CHECK(sim_now() - before >= 25 * MS);
    CHECK(simDuration(SIM_PAGEABLE, 8) == 25 * MS);
    simRank(0);
    CHECK(simDuration(SIM_PAGEABLE, 8) == 5 * MS);
    return NULL;
}

static const char *download_to_pageable_waits(void)
{
    char pageable[8] = "", *device = device_bytes(8);
    CHECK(!cudaMemcpy(device, "down...", 8, cudaMemcpyHostToDevice) && !simBusy(NULL, 20 * MS));
    CHECK(!cudaMemcpyAsync(pageable, device, 8, cudaMemcpyDeviceToHost, NULL));
    CHECK(!strcmp(pageable, "down...") && !cudaStreamQuery(NULL));
    return NULL;
}

static const char *pointers_are_known(void)
{
    char *pinned, *device = device_bytes(8), pageable[8];
    static char registered[4096];
    struct cudaPointerAttributes a;
    CHECK(!cudaHostAlloc((void **)&pinned, 8, 0));
    CHECK(!cudaPointerGetAttributes(&a, device + 3) && a.type == cudaMemoryTypeDevice);
    CHECK(a.device == 0 && a.devicePointer == device + 3);
    CHECK(!cudaPointerGetAttributes(&a, pinned) && a.type == cudaMemoryTypeHost);
    CHECK(!cudaPointerGetAttributes(&a, pageable) && a.type == cudaMemoryTypeUnregistered);
    CHECK(!cudaHostRegister(registered, sizeof registered, 0));
    CHECK(!cudaPointerGetAttributes(&a, registered + 9) && a.type == cudaMemoryTypeHost);
    FAILS(cudaHostRegister(registered, 8, 0), cudaErrorHostMemoryAlreadyRegistered);
    CHECK(!cudaHostUnregister(registered));
    FAILS(cudaHostUnregister(registered), cudaErrorHostMemoryNotRegistered);
    CHECK(!cudaFreeHost(pinned));
    FAILS(cudaFreeHost(pinned), cudaErrorInvalidValue);
    return NULL;
}

static const char *memory_is_bounded(void)
{
    size_t available, total;
    void *p, *q;
    CHECK(!cudaMemGetInfo(&available, &total) && available == total && total == 64u << 20);
    CHECK(!cudaMalloc(&p, 48u << 20) && !cudaMemGetInfo(&available, &total));
    CHECK(available == 16u << 20);
    FAILS(cudaMalloc(&q, 32u << 20), cudaErrorMemoryAllocation);
    CHECK(!cudaFree(p) && !cudaMalloc(&q, 64u << 20));
    return NULL;
}

static const char *fork_child_has_no_device(void)
{
    void *p;
    int status, count;
    CHECK(!cudaMalloc(&p, 8));
    pid_t child = fork();
    if (child == 0)
        _exit(cudaMalloc(&p, 8) == cudaErrorInitializationError &&
              cudaGetDeviceCount(&count) == cudaErrorInitializationError &&
              launch(1, NULL) == cudaErrorInitializationError);
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    return NULL;
}

const struct test copy_tests[] = {
    {"copies: bytes travel", bytes_travel, NULL},
    {"memory: a device pointer kills", device_pointer_kills, NULL},
    {"copies: they take their time", copies_take_their_time,
     "SIM_COPY_US=10 SIM_COPY_MBPS=1000 SIM_PAGEABLE_STAGED=0"},
    {"copies: pinned memory is read late", pinned_is_read_late, NULL},
    {"copies: pageable memory is staged", pageable_is_staged, NULL},
    {"copies: pageable memory blocks", pageable_blocks, "SIM_PAGEABLE_STAGED=1000,0 RANK=1"},
    {"copies: pageable memory costs the host", pageable_costs_the_host,
     "RANK=1 SIM_PAGEABLE_US=5 SIM_RULES=pageable@*:5ms;pageable@1:+20ms"},
    {"copies: download to pageable memory", download_to_pageable_waits, NULL},
    {"memory: what a pointer is", pointers_are_known, NULL},
    {"memory: it is bounded", memory_is_bounded, "SIM_DEVICE_MB=64"},
    {"memory: a fork child has no device", fork_child_has_no_device, NULL},
    {0},
};
