/*
 * abi_cuda.h - the few facts about the CUDA runtime's and the driver's C interface that the hooks
 * need; the same in libcudart 11, 12 and 13. NVIDIA's headers are not needed; where they are there,
 * tests/torch_cuda/abi_check.c compares each of these with them. Context: any.
 */
#ifndef LAGGARD_PRELOAD_ABI_CUDA_H
#define LAGGARD_PRELOAD_ABI_CUDA_H

#include <stddef.h>
#include <stdint.h>

/* cudaError_t */
enum {
    LG_CUDA_SUCCESS = 0,
    LG_CUDA_NO_LIBRARY = 3,      /* cudaErrorInitializationError */
    LG_CUDA_ILLEGAL_STATE = 401, /* cudaErrorIllegalState */
    LG_CUDA_NOT_READY = 600      /* cudaErrorNotReady */
};

/* enum cudaMemcpyKind */
enum { LG_CUDA_HOST_TO_DEVICE = 1, LG_CUDA_DEVICE_TO_HOST = 2, LG_CUDA_DEFAULT_DIRECTION = 4 };

/* enum cudaMemoryType */
enum { LG_CUDA_MEMORY_PAGEABLE = 0, LG_CUDA_MEMORY_HOST = 1, LG_CUDA_MEMORY_DEVICE = 2 };

/* enum cudaStreamCaptureMode, enum cudaStreamCaptureStatus */
enum { LG_CUDA_CAPTURE_RELAXED = 2 };
enum { LG_CUDA_CAPTURE_NONE = 0 };

/* cudaEventDefault: with timing, and waits for it spin */
enum { LG_CUDA_EVENT_TIMED = 0 };

/* dim3, passed by value */
struct lg_dim3 {
    uint32_t x, y, z;
};

/* cudaStreamLegacy, the null stream by another name, and cudaStreamPerThread */
#define LG_CUDA_STREAM_LEGACY     ((const void *)0x1)
#define LG_CUDA_STREAM_PER_THREAD ((const void *)0x2)

/* cudaLaunchConfig_t, as far as the stream */
struct lg_launch_config {
    struct lg_dim3 grid, block;
    size_t shared_bytes;
    const void *stream;
};

/* CUlaunchConfig, as far as the stream */
struct lg_driver_launch_config {
    uint32_t grid[3], block[3], shared_bytes;
    const void *stream;
};

/* struct cudaPointerAttributes: its first field, and room for what any version writes (24 bytes in
 * 11 and 12, 88 in 13) */
struct lg_pointer_attributes {
    int32_t type;
    char rest[252];
};

#endif
