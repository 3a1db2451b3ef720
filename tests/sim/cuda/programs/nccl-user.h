/*
 * nccl-user.h - what nccl-user and its plug-in share. Context: test program.
 */
#ifndef SIM_CUDA_NCCL_USER_H
#define SIM_CUDA_NCCL_USER_H

#include <nccl.h>

struct nccl {
    ncclResult_t (*get_unique_id)(ncclUniqueId *id);
    ncclResult_t (*init_rank)(ncclComm_t *comm, int size, ncclUniqueId id, int rank);
    ncclResult_t (*all_reduce)(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
};

const struct nccl *plugin_nccl(void);

#endif
