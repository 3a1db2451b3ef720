/*
 * abi-table.c - prints the numbers and layouts that the stand-ins rest on, as the headers in use
 * have them. Compiled once with ours and once with a toolkit's; both must print the same. Context:
 * test program, run by tests/scenarios/sim_cuda_abi.
 */
#include <cublasLt.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdio.h>
#ifdef WITH_NCCL
#include <nccl.h>
#endif

#define NUMBER(name)       printf("%s %lld\n", #name, (long long)(name));
#define SIZE(type)         printf("sizeof %s %zu\n", #type, sizeof(type));
#define FIELD(type, field) printf("%s.%s %zu\n", #type, #field, offsetof(type, field));

#define RUNTIME_NUMBERS(X)                                                                         \
    X(cudaSuccess)                                                                                 \
    X(cudaErrorInvalidValue)                                                                       \
    X(cudaErrorMemoryAllocation)                                                                   \
    X(cudaErrorInitializationError)                                                                \
    X(cudaErrorInvalidConfiguration)                                                               \
    X(cudaErrorInvalidMemcpyDirection)                                                             \
    X(cudaErrorMissingConfiguration)                                                               \
    X(cudaErrorInvalidDeviceFunction)                                                              \
    X(cudaErrorNoDevice)                                                                           \
    X(cudaErrorInvalidDevice)                                                                      \
    X(cudaErrorInvalidResourceHandle)                                                              \
    X(cudaErrorIllegalState)                                                                       \
    X(cudaErrorNotReady)                                                                           \
    X(cudaErrorHostMemoryAlreadyRegistered)                                                        \
    X(cudaErrorHostMemoryNotRegistered)                                                            \
    X(cudaErrorNotSupported)                                                                       \
    X(cudaErrorStreamCaptureUnsupported)                                                           \
    X(cudaErrorStreamCaptureInvalidated)                                                           \
    X(cudaErrorStreamCaptureMerge)                                                                 \
    X(cudaErrorStreamCaptureUnmatched)                                                             \
    X(cudaErrorStreamCaptureUnjoined)                                                              \
    X(cudaErrorStreamCaptureIsolation)                                                             \
    X(cudaErrorStreamCaptureImplicit)                                                              \
    X(cudaErrorCapturedEvent)                                                                      \
    X(cudaErrorStreamCaptureWrongThread)                                                           \
    X(cudaErrorUnknown)                                                                            \
    X(cudaMemcpyHostToHost)                                                                        \
    X(cudaMemcpyHostToDevice)                                                                      \
    X(cudaMemcpyDeviceToHost)                                                                      \
    X(cudaMemcpyDeviceToDevice)                                                                    \
    X(cudaMemcpyDefault)                                                                           \
    X(cudaMemoryTypeUnregistered)                                                                  \
    X(cudaMemoryTypeHost)                                                                          \
    X(cudaMemoryTypeDevice)                                                                        \
    X(cudaMemoryTypeManaged)                                                                       \
    X(cudaHostAllocDefault)                                                                        \
    X(cudaStreamDefault)                                                                           \
    X(cudaStreamNonBlocking)                                                                       \
    X((size_t)cudaStreamLegacy)                                                                    \
    X((size_t)cudaStreamPerThread)                                                                 \
    X(cudaEventBlockingSync)                                                                       \
    X(cudaEventDisableTiming)                                                                      \
    X(cudaEventRecordExternal)                                                                     \
    X(cudaEventWaitExternal)                                                                       \
    X(cudaStreamCaptureStatusNone)                                                                 \
    X(cudaStreamCaptureStatusActive)                                                               \
    X(cudaStreamCaptureStatusInvalidated)                                                          \
    X(cudaStreamCaptureModeGlobal)                                                                 \
    X(cudaStreamCaptureModeThreadLocal)                                                            \
    X(cudaStreamCaptureModeRelaxed)                                                                \
    X(cudaStreamAddCaptureDependencies)                                                            \
    X(cudaStreamSetCaptureDependencies)                                                            \
    X(cudaGraphNodeTypeKernel)                                                                     \
    X(cudaGraphNodeTypeMemcpy)                                                                     \
    X(cudaGraphNodeTypeMemset)                                                                     \
    X(cudaGraphNodeTypeHost)                                                                       \
    X(cudaGraphNodeTypeGraph)                                                                      \
    X(cudaGraphNodeTypeEmpty)                                                                      \
    X(cudaGraphNodeTypeWaitEvent)                                                                  \
    X(cudaGraphNodeTypeEventRecord)                                                                \
    X(cudaGraphUserObjectMove)                                                                     \
    X(cudaDevAttrMaxThreadsPerBlock)                                                               \
    X(cudaDevAttrMaxBlockDimX)                                                                     \
    X(cudaDevAttrMaxBlockDimY)                                                                     \
    X(cudaDevAttrMaxBlockDimZ)                                                                     \
    X(cudaDevAttrMaxGridDimX)                                                                      \
    X(cudaDevAttrMaxGridDimY)                                                                      \
    X(cudaDevAttrMaxGridDimZ)                                                                      \
    X(cudaDevAttrMaxSharedMemoryPerBlock)                                                          \
    X(cudaDevAttrWarpSize)                                                                         \
    X(cudaDevAttrMaxRegistersPerBlock)                                                             \
    X(cudaDevAttrClockRate)                                                                        \
    X(cudaDevAttrMultiProcessorCount)                                                              \
    X(cudaDevAttrCanMapHostMemory)                                                                 \
    X(cudaDevAttrConcurrentKernels)                                                                \
    X(cudaDevAttrL2CacheSize)                                                                      \
    X(cudaDevAttrMaxThreadsPerMultiProcessor)                                                      \
    X(cudaDevAttrUnifiedAddressing)                                                                \
    X(cudaDevAttrComputeCapabilityMajor)                                                           \
    X(cudaDevAttrComputeCapabilityMinor)                                                           \
    X(cudaDevAttrMaxSharedMemoryPerMultiprocessor)                                                 \
    X(cudaDevAttrMaxRegistersPerMultiprocessor)                                                    \
    X(cudaDevAttrCooperativeLaunch)                                                                \
    X(cudaDevAttrMaxSharedMemoryPerBlockOptin)                                                     \
    X(cudaDevAttrHostRegisterSupported)                                                            \
    X(cudaDevAttrMaxBlocksPerMultiprocessor)                                                       \
    X(cudaFuncAttributeMaxDynamicSharedMemorySize)                                                 \
    X(cudaDriverEntryPointSymbolNotFound)                                                          \
    X(cudaMemPoolAttrReleaseThreshold)                                                             \
    X(cudaGraphMemAttrUsedMemCurrent)                                                              \
    X(CUDA_ERROR_NOT_SUPPORTED)                                                                    \
    X(CUBLAS_STATUS_ALLOC_FAILED)                                                                  \
    X(CUBLAS_POINTER_MODE_DEVICE)                                                                  \
    X(CUBLAS_ATOMICS_ALLOWED)                                                                      \
    X(CUBLAS_TENSOR_OP_MATH)

#define PROPERTY_FIELDS(X)                                                                         \
    X(totalGlobalMem)                                                                              \
    X(warpSize)                                                                                    \
    X(maxGridSize)                                                                                 \
    X(totalConstMem)                                                                               \
    X(major)                                                                                       \
    X(multiProcessorCount)                                                                         \
    X(canMapHostMemory)                                                                            \
    X(maxTexture2D)                                                                                \
    X(concurrentKernels)                                                                           \
    X(pciBusID)                                                                                    \
    X(asyncEngineCount)                                                                            \
    X(memoryBusWidth)                                                                              \
    X(l2CacheSize)                                                                                 \
    X(sharedMemPerMultiprocessor)                                                                  \
    X(regsPerMultiprocessor)                                                                       \
    X(pageableMemoryAccess)                                                                        \
    X(cooperativeLaunch)                                                                           \
    X(sharedMemPerBlockOptin)                                                                      \
    X(maxBlocksPerMultiProcessor)                                                                  \
    X(hostRegisterSupported)                                                                       \
    X(unifiedFunctionPointers)                                                                     \
    X(reserved)

#define NCCL_NUMBERS(X)                                                                            \
    X(NCCL_UNIQUE_ID_BYTES)                                                                        \
    X(NCCL_SPLIT_NOCOLOR)                                                                          \
    X(ncclUnhandledCudaError)                                                                      \
    X(ncclSystemError)                                                                             \
    X(ncclInternalError)                                                                           \
    X(ncclInvalidArgument)                                                                         \
    X(ncclInvalidUsage)                                                                            \
    X(ncclRemoteError)                                                                             \
    X(ncclInProgress)                                                                              \
    X(ncclSum)                                                                                     \
    X(ncclProd)                                                                                    \
    X(ncclMax)                                                                                     \
    X(ncclMin)                                                                                     \
    X(ncclAvg)                                                                                     \
    X(ncclInt8)                                                                                    \
    X(ncclUint8)                                                                                   \
    X(ncclInt32)                                                                                   \
    X(ncclUint32)                                                                                  \
    X(ncclInt64)                                                                                   \
    X(ncclUint64)                                                                                  \
    X(ncclFloat16)                                                                                 \
    X(ncclFloat32)                                                                                 \
    X(ncclFloat64)                                                                                 \
    X(ncclBfloat16)                                                                                \
    X(ncclFloat8e4m3)                                                                              \
    X(ncclFloat8e5m2)                                                                              \
    X(ncclScalarDevice)                                                                            \
    X(ncclScalarHostImmediate)

int main(void)
{
    RUNTIME_NUMBERS(NUMBER)
    SIZE(dim3)
    SIZE(cudaLaunchConfig_t)
    FIELD(cudaLaunchConfig_t, blockDim)
    FIELD(cudaLaunchConfig_t, stream)
    SIZE(struct cudaPointerAttributes)
    FIELD(struct cudaPointerAttributes, hostPointer)
    SIZE(struct cudaFuncAttributes)
    FIELD(struct cudaFuncAttributes, maxDynamicSharedSizeBytes)
    SIZE(struct cudaDeviceProp)
#define PROPERTY(field) FIELD(struct cudaDeviceProp, field)
    PROPERTY_FIELDS(PROPERTY)
    SIZE(cublasLtMatmulAlgo_t)
    SIZE(cublasLtMatmulHeuristicResult_t)
    FIELD(cublasLtMatmulHeuristicResult_t, state)
#ifdef WITH_NCCL
    NCCL_NUMBERS(NUMBER)
    SIZE(ncclUniqueId)
#endif
    return 0;
}
