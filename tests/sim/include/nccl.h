/*
 * nccl.h - the part of NCCL's interface that the stand-in libnccl has, under the names and with the
 * numbers of the real one, for test programs on machines without CUDA.
 * Context: tests only; laggard itself never includes it.
 */
#ifndef SIM_NCCL_H
#define SIM_NCCL_H

#include <stddef.h>

#include "cuda_runtime_api.h"

#define NCCL_MAJOR           2
#define NCCL_MINOR           28
#define NCCL_PATCH           3
#define NCCL_VERSION_CODE    (NCCL_MAJOR * 10000 + NCCL_MINOR * 100 + NCCL_PATCH)
#define NCCL_UNIQUE_ID_BYTES 128

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

/* X(return type, name, parameters): every function, each exported as a weak ncclNAME and a strong
 * pncclNAME, so that a tool may take the first and call the second. */
#define SIM_NCCL_FUNCTIONS(X)                                                                      \
    X(ncclResult_t, GetVersion, (int *version))                                                    \
    X(ncclResult_t, GetUniqueId, (ncclUniqueId * id))                                              \
    X(ncclResult_t, CommInitRank, (ncclComm_t * comm, int size, ncclUniqueId id, int rank))        \
    X(ncclResult_t, CommInitRankConfig,                                                            \
      (ncclComm_t * comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config))              \
    X(ncclResult_t, CommDestroy, (ncclComm_t comm))                                                \
    X(ncclResult_t, CommAbort, (ncclComm_t comm))                                                  \
    X(ncclResult_t, CommGetAsyncError, (ncclComm_t comm, ncclResult_t * error))                    \
    X(ncclResult_t, CommCount, (const ncclComm_t comm, int *size))                                 \
    X(ncclResult_t, CommUserRank, (const ncclComm_t comm, int *rank))                              \
    X(const char *, GetErrorString, (ncclResult_t result))                                         \
    X(ncclResult_t, AllReduce,                                                                     \
      (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,              \
       ncclComm_t comm, cudaStream_t stream))                                                      \
    X(ncclResult_t, Reduce,                                                                        \
      (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,    \
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
    X(ncclResult_t, ReduceScatter,                                                                 \
      (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,              \
       ncclComm_t comm, cudaStream_t stream))                                                      \
    X(ncclResult_t, GroupStart, (void))                                                            \
    X(ncclResult_t, GroupEnd, (void))

#define SIM_NCCL_DECLARE(type, name, params)                                                       \
    type nccl##name params;                                                                        \
    type pnccl##name params;
SIM_NCCL_FUNCTIONS(SIM_NCCL_DECLARE)
#undef SIM_NCCL_DECLARE

#endif
