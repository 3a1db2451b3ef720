/*
 * model.c - the trainer's model, y = x w, as kernels on device memory. Context: test program, on
 * the stand-in libcudart, which runs the bodies below as the kernels' work.
 */
#include <stdio.h>
#include <stdlib.h>

#include <cuda_crt.h>

#include "sim.h"
#include "trainer.h"

/* what nvcc makes of a kernel is an address to launch by */
static const int forward_kernel, evaluate_kernel, backward_kernel, optimizer_kernel, pause_kernel;
static bool cuda13;

struct work {
    struct model m;
    long first, count;
    double rate;
};

void cuda_check(cudaError_t error, const char *what)
{
    if (error) {
        fprintf(stderr, "trainer: %s: %s\n", what, cudaGetErrorString(error));
        exit(1);
    }
}

void nccl_check(ncclResult_t result, const char *what)
{
    if (result) {
        fprintf(stderr, "trainer: %s: %s\n", what, ncclGetErrorString(result));
        exit(1);
    }
}

static void evaluate_body(void *arg)
{
    const struct work *k = arg;
    const float *w = simHost(k->m.weights), *batch = simHost(k->m.batch);
    float *error = simHost(k->m.error);
    double *loss = simHost(k->m.loss);
    for (long i = 0; i < k->m.samples; i++) {
        const float *sample = batch + i * (k->m.params + 1);
        double answer = 0;
        for (long j = 0; j < k->m.params; j++)
            answer += (double)(sample[j] * w[j]);
        error[i] = (float)answer - sample[k->m.params];
        *loss += (double)error[i] * (double)error[i] / (double)k->m.samples;
    }
}

static void backward_body(void *arg)
{
    const struct work *k = arg;
    const float *batch = simHost(k->m.batch), *error = simHost(k->m.error);
    float *gradient = simHost(k->m.gradient);
    for (long i = 0; i < k->m.samples; i++) {
        const float *sample = batch + i * (k->m.params + 1);
        for (long j = k->first; j < k->first + k->count; j++)
            gradient[j] += 2 * error[i] * sample[j];
    }
}

static void optimizer_body(void *arg)
{
    const struct work *k = arg;
    float *w = simHost(k->m.weights), *gradient = simHost(k->m.gradient);
    for (long j = 0; j < k->m.params; j++) {
        w[j] -= (float)k->rate * gradient[j];
        gradient[j] = 0;
    }
}

void model_use_cuda13(bool yes)
{
    cuda13 = yes;
}

/* One block of the grid lasts a microsecond on the stand-in; at least one is launched. */
static void launch(const void *kernel, struct work *work, long us)
{
    dim3 grid = {us > 0 ? (unsigned int)us : 1, 1, 1}, block = {128, 1, 1};
    void *args[] = {work};
    cudaKernel_t handle;
    if (cuda13) {
        cuda_check(__cudaGetKernel(&handle, kernel), "__cudaGetKernel");
        cuda_check(__cudaLaunchKernel(handle, grid, block, args, 0, NULL), "launch");
    } else {
        cuda_check(cudaLaunchKernel(kernel, grid, block, args, 0, NULL), "launch");
    }
}

static void *device(size_t bytes)
{
    void *p;
    cuda_check(cudaMalloc(&p, bytes), "cudaMalloc");
    return p;
}

void model_create(struct model *m, const struct options *o)
{
    size_t params = (size_t)o->params;
    m->params = o->params;
    m->samples = o->batch_bytes / (long)sizeof(float) / (o->params + 1);
    m->weights = device(params * sizeof(float));
    m->gradient = device(params * sizeof(float));
    m->batch = device((size_t)o->batch_bytes);
    m->error = device((size_t)m->samples * sizeof(float));
    m->loss = device(sizeof(double));
    simKernel(&forward_kernel, evaluate_body, sizeof(struct work));
    simKernel(&evaluate_kernel, evaluate_body, sizeof(struct work));
    simKernel(&backward_kernel, backward_body, sizeof(struct work));
    simKernel(&optimizer_kernel, optimizer_body, sizeof(struct work));
}

void model_forward(const struct model *m, long us)
{
    launch(&forward_kernel, &(struct work){.m = *m}, us);
}

void model_evaluate(const struct model *m, long us)
{
    launch(&evaluate_kernel, &(struct work){.m = *m}, us);
}

void model_backward(const struct model *m, long first, long count, long us)
{
    launch(&backward_kernel, &(struct work){.m = *m, .first = first, .count = count}, us);
}

void model_optimizer(const struct model *m, double rate, long us)
{
    launch(&optimizer_kernel, &(struct work){.m = *m, .rate = rate}, us);
}

void model_pause(long us)
{
    launch(&pause_kernel, NULL, us);
}
