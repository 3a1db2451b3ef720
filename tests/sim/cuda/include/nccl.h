/*
 * nccl.h - the part of NCCL's interface that the asynchronous stand-in has, under the names and
 * with the numbers of the real one. Every function nccl* exists as pnccl* as well. Context: the
 * stand-in libnccl and test programs; laggard itself never includes it.
 */
#ifndef SIM_CUDA_NCCL_H
#define SIM_CUDA_NCCL_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#define NCCL_UNIQUE_ID_BYTES 128
#define NCCL_SPLIT_NOCOLOR   -1

typedef struct ncclComm *ncclComm_t;
typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;
typedef struct ncclConfig ncclConfig_t; /* passed through, never looked at */

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7
} ncclResult_t;

typedef enum { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4 } ncclRedOp_t;

typedef enum {
    ncclInt8 = 0,
    ncclUint8 = 1,
    ncclInt32 = 2,
    ncclUint32 = 3,
    ncclInt64 = 4,
    ncclUint64 = 5,
    ncclFloat16 = 6,
    ncclFloat32 = 7,
    ncclFloat64 = 8,
    ncclBfloat16 = 9,
    ncclFloat8e4m3 = 10,
    ncclFloat8e5m2 = 11
} ncclDataType_t;

typedef enum { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 } ncclScalarResidence_t;

/* X(return type, name without nccl, parameters) */
#define SIM_NCCL_FUNCTIONS(X)                                                                      \
    X(ncclResult_t, GetVersion, (int *version))                                                    \
    X(const char *, GetErrorString, (ncclResult_t result))                                         \
    X(const char *, GetLastError, (ncclComm_t comm))                                               \
    X(ncclResult_t, GetUniqueId, (ncclUniqueId * id))                                              \
    X(ncclResult_t, CommInitRank, (ncclComm_t * comm, int size, ncclUniqueId id, int rank))        \
    X(ncclResult_t, CommInitRankConfig,                                                            \
      (ncclComm_t * comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config))              \
    X(ncclResult_t, CommInitRankScalable,                                                          \
      (ncclComm_t * comm, int size, int rank, int ids, ncclUniqueId *id, ncclConfig_t *config))    \
    X(ncclResult_t, CommInitAll, (ncclComm_t * comms, int size, const int *devices))               \
    X(ncclResult_t, CommSplit,                                                                     \
      (ncclComm_t comm, int color, int key, ncclComm_t *part, ncclConfig_t *config))               \
    X(ncclResult_t, CommFinalize, (ncclComm_t comm))                                               \
    X(ncclResult_t, CommDestroy, (ncclComm_t comm))                                                \
    X(ncclResult_t, CommAbort, (ncclComm_t comm))                                                  \
    X(ncclResult_t, CommGetAsyncError, (ncclComm_t comm, ncclResult_t * error))                    \
    X(ncclResult_t, CommCount, (const ncclComm_t comm, int *size))                                 \
    X(ncclResult_t, CommUserRank, (const ncclComm_t comm, int *rank))                              \
    X(ncclResult_t, CommCuDevice, (const ncclComm_t comm, int *device))                            \
    X(ncclResult_t, CommRegister,                                                                  \
      (const ncclComm_t comm, void *buffer, size_t size, void **handle))                           \
    X(ncclResult_t, CommDeregister, (const ncclComm_t comm, void *handle))                         \
    X(ncclResult_t, MemAlloc, (void **pointer, size_t size))                                       \
    X(ncclResult_t, MemFree, (void *pointer))                                                      \
    X(ncclResult_t, RedOpCreatePreMulSum,                                                          \
      (ncclRedOp_t * op, void *scalar, ncclDataType_t type, ncclScalarResidence_t where,           \
       ncclComm_t comm))                                                                           \
    X(ncclResult_t, RedOpDestroy, (ncclRedOp_t op, ncclComm_t comm))                               \
    X(ncclResult_t, GroupStart, (void))                                                            \
    X(ncclResult_t, GroupEnd, (void))                                                              \
    X(ncclResult_t, AllReduce,                                                                     \
      (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,              \
       ncclComm_t comm, cudaStream_t stream))                                                      \
    X(ncclResult_t, Reduce,                                                                        \
      (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,    \
       ncclComm_t comm, cudaStream_t stream))                                                      \
    X(ncclResult_t, ReduceScatter,                                                                 \
      (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,              \
       ncclComm_t comm, cudaStream_t stream))                                                      \
    X(ncclResult_t, Broadcast,                                                                     \
      (const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,   \
       cudaStream_t stream))                                                                       \
    X(ncclResult_t, Bcast,                                                                         \
      (void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,                 \
       cudaStream_t stream))                                                                       \
    X(ncclResult_t, AllGather,                                                                     \
      (const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,             \
       cudaStream_t stream))                                                                       \
    X(ncclResult_t, AlltoAll,                                                                      \
      (const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,             \
       cudaStream_t stream))                                                                       \
    X(ncclResult_t, Gather,                                                                        \
      (const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,   \
       cudaStream_t stream))                                                                       \
    X(ncclResult_t, Scatter,                                                                       \
      (const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,   \
       cudaStream_t stream))                                                                       \
    X(ncclResult_t, Send,                                                                          \
      (const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,             \
       cudaStream_t stream))                                                                       \
    X(ncclResult_t, Recv,                                                                          \
      (void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,                     \
       cudaStream_t stream))

#define SIM_NCCL_DECLARE(type, name, params)                                                       \
    type nccl##name params;                                                                        \
    type pnccl##name params;
SIM_NCCL_FUNCTIONS(SIM_NCCL_DECLARE)
#undef SIM_NCCL_DECLARE

#endif
