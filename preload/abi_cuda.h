/*
 * abi_cuda.h - the few facts about the CUDA runtime's C interface that the hooks need; the same in
 * libcudart 11, 12 and 13. NVIDIA's headers are not needed. Context: any.
 */
#ifndef LAGGARD_PRELOAD_ABI_CUDA_H
#define LAGGARD_PRELOAD_ABI_CUDA_H

#include <stddef.h>
#include <stdint.h>

/* cudaError_t */
enum {
    LG_CUDA_SUCCESS = 0,
    LG_CUDA_NO_LIBRARY = 3, /* cudaErrorInitializationError */
    LG_CUDA_ILLEGAL_STATE = 401
};

/* enum cudaMemcpyKind */
enum { LG_CUDA_HOST_TO_DEVICE = 1 };

/* enum cudaStreamCaptureMode */
enum { LG_CUDA_CAPTURE_RELAXED = 2 };

/* dim3, passed by value */
struct lg_dim3 {
    uint32_t x, y, z;
};

/* cudaStreamPerThread */
#define LG_CUDA_STREAM_PER_THREAD ((const void *)0x2)

/* cudaLaunchConfig_t, as far as the stream */
struct lg_launch_config {
    struct lg_dim3 grid, block;
    size_t shared_bytes;
    const void *stream;
};

#endif
