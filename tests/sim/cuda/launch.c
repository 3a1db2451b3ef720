/*
 * launch.c - kernels and host functions. A kernel takes its time and does nothing, unless a test
 * program gave it a body (simKernel). Context: inside the stand-in libcudart, any thread.
 *
 * torch.cuda._sleep(n) launches a kernel that spins for n cycles: here it keeps the device busy for
 * exactly n nanoseconds, whatever factors and rules there are.
 */
#include <stdio.h>
#include <string.h>

#include "cuda_crt.h"
#include "internal.h"

struct kernel {
    const void *function;
    void (*body)(void *arg);
    size_t arg_bytes;
    int spins;
};

static struct kernel kernels[128];
static _Atomic size_t kernel_count;

struct kernel_op {
    struct sim_op op;
    enum sim_work work;
    int fixed; /* ns is given */
    uint64_t blocks, ns;
    void (*body)(void *arg);
    size_t arg_bytes;
    max_align_t arg[];
};

/* ---- the operation */

static void issue_kernel(struct sim_op *op)
{
    struct kernel_op *k = (struct kernel_op *)op;
    if (!k->fixed)
        k->ns = simDuration(k->work, k->blocks);
}

static int has_no_body(const struct sim_op *op)
{
    return !((const struct kernel_op *)op)->body;
}

static uint64_t run_kernel(struct sim_op *op, uint64_t begin_ns)
{
    struct kernel_op *k = (struct kernel_op *)op;
    if (k->body) {
        sim_sleep_until(begin_ns);
        k->body(k->arg);
    }
    return begin_ns + k->ns;
}

static void drop_op(struct sim_op *op)
{
    free(op);
}

static struct sim_op *again_kernel(const struct sim_op *op)
{
    size_t size = sizeof(struct kernel_op) + ((const struct kernel_op *)op)->arg_bytes;
    void *new = malloc(size);
    if (new)
        memcpy(new, op, size);
    return new;
}

static struct kernel_op *new_kernel(enum sim_work work, size_t arg_bytes)
{
    static const struct sim_op_type type = {
        .node = cudaGraphNodeTypeKernel,
        .issue = issue_kernel,
        .instant = has_no_body,
        .run = run_kernel,
        .copy = again_kernel,
        .drop = drop_op,
    };
    struct kernel_op *k = calloc(1, sizeof *k + arg_bytes);
    if (!k)
        return NULL;
    k->op.type = &type;
    k->work = work;
    k->arg_bytes = arg_bytes;
    return k;
}

API cudaError_t simGemm(cudaStream_t stream)
{
    struct kernel_op *k = new_kernel(SIM_GEMM, 0);
    SIM_OUT_OF_MEMORY(k);
    return simEnqueue(stream, &k->op);
}

API cudaError_t simBusy(cudaStream_t stream, uint64_t ns)
{
    struct kernel_op *k = new_kernel(SIM_KERNEL, 0);
    SIM_OUT_OF_MEMORY(k);
    k->fixed = 1;
    k->ns = ns;
    return simEnqueue(stream, &k->op);
}

/* ---- known kernels */

static void add_kernel(struct kernel kernel)
{
    size_t i = atomic_fetch_add(&kernel_count, 1);
    if (i < sizeof kernels / sizeof *kernels)
        kernels[i] = kernel;
}

static const struct kernel *find_kernel(const void *function)
{
    size_t count = atomic_load(&kernel_count);
    for (size_t i = 0; i < count && i < sizeof kernels / sizeof *kernels; i++)
        if (kernels[i].function == function)
            return &kernels[i];
    return NULL;
}

API void simKernel(const void *function, void (*body)(void *arg), size_t arg_bytes)
{
    add_kernel((struct kernel){.function = function, .body = body, .arg_bytes = arg_bytes});
}

/* ---- launches */

static cudaError_t launch(const void *function, dim3 grid, dim3 block, void **args,
                          cudaStream_t handle)
{
    uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    cudaStream_t stream = sim_stream(handle);
    if (!function)
        return cudaErrorInvalidDeviceFunction;
    if (!blocks || !threads || threads > 1024)
        return cudaErrorInvalidConfiguration;
    if (!stream || stream->device != sim_device())
        return cudaErrorInvalidResourceHandle;
    const struct kernel *known = find_kernel(function);
    struct kernel_op *k = new_kernel(SIM_KERNEL, known ? known->arg_bytes : 0);
    SIM_OUT_OF_MEMORY(k);
    k->blocks = blocks;
    k->body = known ? known->body : NULL;
    if (known && known->arg_bytes)
        memcpy(k->arg, args[0], known->arg_bytes);
    if (known && known->spins) {
        k->fixed = 1;
        memcpy(&k->ns, args[0], sizeof k->ns);
    }
    return simEnqueue(handle, &k->op);
}

API cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **args,
                                 size_t shared_bytes, cudaStream_t stream)
{
    SIM_ENTER();
    (void)shared_bytes;
    return DONE(launch(function, grid, block, args, stream));
}

API cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block,
                                            void **args, size_t shared_bytes, cudaStream_t stream)
{
    SIM_ENTER();
    (void)shared_bytes;
    return DONE(launch(function, grid, block, args, stream));
}

API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function,
                                    void **args)
{
    SIM_ENTER();
    return DONE(launch(function, config->gridDim, config->blockDim, args, config->stream));
}

/* A kernel's handle is its function. */
API cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function)
{
    SIM_ENTER();
    *kernel = (cudaKernel_t)(uintptr_t)function;
    return cudaSuccess;
}

API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
                                   size_t shared_bytes, cudaStream_t stream)
{
    SIM_ENTER();
    (void)shared_bytes;
    return DONE(launch(kernel, grid, block, args, stream));
}

/* ---- host functions */

struct host_op {
    struct sim_op op;
    cudaHostFn_t function;
    cudaStreamCallback_t callback;
    cudaStream_t stream;
    void *arg;
};

static uint64_t run_host(struct sim_op *op, uint64_t begin_ns)
{
    struct host_op *h = (struct host_op *)op;
    sim_sleep_until(begin_ns);
    if (h->function)
        h->function(h->arg);
    else
        h->callback(h->stream, cudaSuccess, h->arg);
    uint64_t now = sim_now();
    return now > begin_ns ? now : begin_ns;
}

static struct sim_op *again_host(const struct sim_op *op)
{
    struct host_op *h = malloc(sizeof *h);
    if (h)
        *h = *(const struct host_op *)op;
    return h ? &h->op : NULL;
}

static cudaError_t put_host(cudaStream_t stream, struct host_op host)
{
    static const struct sim_op_type function = {.node = cudaGraphNodeTypeHost,
                                                .run = run_host,
                                                .copy = again_host,
                                                .drop = drop_op},
                                    callback = {.run = run_host,
                                                .drop = drop_op}; /* can't be captured */
    struct host_op *h = malloc(sizeof *h);
    SIM_OUT_OF_MEMORY(h);
    *h = host;
    h->op.type = host.function ? &function : &callback;
    return simEnqueue(stream, &h->op);
}

API cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *arg)
{
    SIM_ENTER();
    if (!function)
        return DONE(cudaErrorInvalidValue);
    return DONE(put_host(stream, (struct host_op){.function = function, .arg = arg}));
}

API cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void *arg,
                                      unsigned int flags)
{
    SIM_ENTER();
    if (!callback || flags)
        return DONE(cudaErrorInvalidValue);
    return DONE(
        put_host(stream, (struct host_op){.callback = callback, .stream = stream, .arg = arg}));
}

/* ---- attributes */

API cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function)
{
    SIM_ENTER();
    memset(attributes, 0, sizeof *attributes);
    attributes->maxThreadsPerBlock = 1024;
    attributes->numRegs = 32;
    attributes->ptxVersion = attributes->binaryVersion = (int)sim_knobs()->capability;
    attributes->maxDynamicSharedSizeBytes = 49152;
    return DONE(function ? cudaSuccess : cudaErrorInvalidDeviceFunction);
}

API cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute,
                                     int value)
{
    SIM_ENTER();
    (void)attribute;
    (void)value;
    return DONE(function ? cudaSuccess : cudaErrorInvalidDeviceFunction);
}

API cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel,
                                                enum cudaFuncAttribute attribute, int value,
                                                int device)
{
    SIM_ENTER();
    (void)attribute;
    (void)value;
    (void)device;
    return DONE(kernel ? cudaSuccess : cudaErrorInvalidDeviceFunction);
}

API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function,
                                                              int block_size, size_t shared_bytes)
{
    SIM_ENTER();
    (void)block_size;
    (void)shared_bytes;
    *blocks = 2;
    return DONE(function ? cudaSuccess : cudaErrorInvalidDeviceFunction);
}

API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, const void *function, int block_size, size_t shared_bytes, unsigned int flags)
{
    SIM_ENTER();
    (void)block_size;
    (void)shared_bytes;
    (void)flags;
    *blocks = 2;
    return DONE(function ? cudaSuccess : cudaErrorInvalidDeviceFunction);
}

/* ---- registration: PyTorch does it 40,000 times at its import, so it must cost nothing */

API void **__cudaRegisterFatBinary(void *binary)
{
    SIM_ENTER();
    (void)binary;
    static void *handle[4];
    return handle;
}

API void __cudaRegisterFatBinaryEnd(void **handle)
{
    SIM_ENTER();
    (void)handle;
}

API void __cudaUnregisterFatBinary(void **handle)
{
    SIM_ENTER();
    (void)handle;
}

API void __cudaRegisterFunction(void **handle, const char *host_function, char *device_function,
                                const char *device_name, int thread_limit, void *tid, void *bid,
                                void *block, void *grid, int *warp_size)
{
    SIM_ENTER();
    (void)handle;
    (void)device_function;
    (void)thread_limit;
    (void)tid;
    (void)bid;
    (void)block;
    (void)grid;
    (void)warp_size;
    if (device_name && strstr(device_name, "11spin_kernelEl"))
        add_kernel((struct kernel){.function = host_function, .spins = 1});
}

API void __cudaRegisterVar(void **handle, char *host_variable, char *device_address,
                           const char *device_name, int external, size_t size, int constant,
                           int global)
{
    SIM_ENTER();
    (void)handle;
    (void)host_variable;
    (void)device_address;
    (void)device_name;
    (void)external;
    (void)size;
    (void)constant;
    (void)global;
}

API void __cudaRegisterManagedVar(void **handle, void **host_variable, char *device_address,
                                  const char *device_name, int external, size_t size, int constant,
                                  int global)
{
    SIM_ENTER();
    (void)handle;
    (void)host_variable;
    (void)device_address;
    (void)device_name;
    (void)external;
    (void)size;
    (void)constant;
    (void)global;
}

API char __cudaInitModule(void **handle)
{
    SIM_ENTER();
    (void)handle;
    return 1;
}

static _Thread_local struct {
    dim3 grid, block;
    size_t shared_bytes;
    void *stream;
} pushed[16];
static _Thread_local unsigned int pushed_count;

API unsigned int __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                             void *stream)
{
    SIM_ENTER();
    if (pushed_count == sizeof pushed / sizeof *pushed)
        return (unsigned int)cudaErrorInvalidConfiguration;
    pushed[pushed_count].grid = grid;
    pushed[pushed_count].block = block;
    pushed[pushed_count].shared_bytes = shared_bytes;
    pushed[pushed_count++].stream = stream;
    return 0;
}

API cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes,
                                           void *stream)
{
    SIM_ENTER();
    if (!pushed_count)
        return DONE(cudaErrorMissingConfiguration);
    pushed_count--;
    *grid = pushed[pushed_count].grid;
    *block = pushed[pushed_count].block;
    *shared_bytes = pushed[pushed_count].shared_bytes;
    *(void **)stream = pushed[pushed_count].stream;
    return cudaSuccess;
}
