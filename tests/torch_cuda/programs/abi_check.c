/*
 * abi_check.c - our few facts about the interfaces of CUDA and NCCL (preload/abi_*.h) against the
 * headers of a real toolkit: it compiles if they agree. Context: never run; compiled by
 * tests/scenarios/cuda_abi.
 */
#include <stddef.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "preload/abi_cuda.h"

#define SAME(ours, theirs) _Static_assert((long)(ours) == (long)(theirs), #ours " is " #theirs)

SAME(LG_CUDA_SUCCESS, cudaSuccess);
SAME(LG_CUDA_NO_LIBRARY, cudaErrorInitializationError);
SAME(LG_CUDA_ILLEGAL_STATE, cudaErrorIllegalState);
SAME(LG_CUDA_NOT_READY, cudaErrorNotReady);

SAME(LG_CUDA_HOST_TO_DEVICE, cudaMemcpyHostToDevice);
SAME(LG_CUDA_DEVICE_TO_HOST, cudaMemcpyDeviceToHost);
SAME(LG_CUDA_DEFAULT_DIRECTION, cudaMemcpyDefault);

SAME(LG_CUDA_MEMORY_PAGEABLE, cudaMemoryTypeUnregistered);
SAME(LG_CUDA_MEMORY_HOST, cudaMemoryTypeHost);
SAME(LG_CUDA_MEMORY_DEVICE, cudaMemoryTypeDevice);

SAME(LG_CUDA_CAPTURE_RELAXED, cudaStreamCaptureModeRelaxed);
SAME(LG_CUDA_CAPTURE_NONE, cudaStreamCaptureStatusNone);
SAME(LG_CUDA_EVENT_TIMED, cudaEventDefault);

_Static_assert(LG_CUDA_STREAM_LEGACY == (const void *)cudaStreamLegacy, "cudaStreamLegacy");
_Static_assert(LG_CUDA_STREAM_PER_THREAD == (const void *)cudaStreamPerThread,
               "cudaStreamPerThread");

/* enumerations are passed as int, handles as pointers */
SAME(sizeof(int), sizeof(cudaError_t));
SAME(sizeof(int), sizeof(enum cudaMemcpyKind));
SAME(sizeof(int), sizeof(enum cudaStreamCaptureMode));
SAME(sizeof(int), sizeof(enum cudaStreamCaptureStatus));
SAME(sizeof(int), sizeof(CUresult));
SAME(sizeof(void *), sizeof(cudaStream_t));
SAME(sizeof(void *), sizeof(cudaEvent_t));
SAME(sizeof(void *), sizeof(cudaGraphExec_t));

SAME(sizeof(struct lg_dim3), sizeof(dim3));
SAME(offsetof(struct lg_dim3, x), offsetof(dim3, x));
SAME(offsetof(struct lg_dim3, y), offsetof(dim3, y));
SAME(offsetof(struct lg_dim3, z), offsetof(dim3, z));

#if CUDART_VERSION >= 11080 /* cudaLaunchKernelExC is there from 11.8 on */
SAME(offsetof(struct lg_launch_config, grid), offsetof(cudaLaunchConfig_t, gridDim));
SAME(offsetof(struct lg_launch_config, block), offsetof(cudaLaunchConfig_t, blockDim));
SAME(offsetof(struct lg_launch_config, shared_bytes),
     offsetof(cudaLaunchConfig_t, dynamicSmemBytes));
SAME(offsetof(struct lg_launch_config, stream), offsetof(cudaLaunchConfig_t, stream));
SAME(offsetof(struct lg_driver_launch_config, grid), offsetof(CUlaunchConfig, gridDimX));
SAME(offsetof(struct lg_driver_launch_config, block), offsetof(CUlaunchConfig, blockDimX));
SAME(offsetof(struct lg_driver_launch_config, shared_bytes),
     offsetof(CUlaunchConfig, sharedMemBytes));
SAME(offsetof(struct lg_driver_launch_config, stream), offsetof(CUlaunchConfig, hStream));
#endif

SAME(offsetof(struct lg_pointer_attributes, type), offsetof(struct cudaPointerAttributes, type));
_Static_assert(sizeof(struct lg_pointer_attributes) >= sizeof(struct cudaPointerAttributes),
               "room for what cudaPointerGetAttributes writes");

#ifdef WITH_NCCL
#include <nccl.h>

#include "preload/abi_nccl.h"

SAME(LG_NCCL_SUCCESS, ncclSuccess);
SAME(LG_NCCL_SYSTEM_ERROR, ncclSystemError);
SAME(LG_NCCL_IN_PROGRESS, ncclInProgress);
SAME(sizeof(struct lg_nccl_id), sizeof(ncclUniqueId));
SAME(sizeof(int), sizeof(ncclResult_t));
SAME(sizeof(int), sizeof(ncclDataType_t));
SAME(sizeof(int), sizeof(ncclRedOp_t));
SAME(sizeof(void *), sizeof(ncclComm_t));

/* lg_nccl_type_bytes() is a table by these numbers; the sizes are the types' own */
SAME(0, ncclInt8);
SAME(1, ncclUint8);
SAME(2, ncclInt32);
SAME(3, ncclUint32);
SAME(4, ncclInt64);
SAME(5, ncclUint64);
SAME(6, ncclFloat16);
SAME(7, ncclFloat32);
SAME(8, ncclFloat64);
SAME(9, ncclBfloat16);
#if NCCL_VERSION_CODE >= 22400
SAME(10, ncclFloat8e4m3);
SAME(11, ncclFloat8e5m2);
SAME(12, ncclNumTypes);
#endif
#endif
