/*
 * abi_nccl.h - the few facts about NCCL 2's C interface that the hooks need. NVIDIA's headers are
 * not needed. Context: any.
 */
#ifndef LAGGARD_PRELOAD_ABI_NCCL_H
#define LAGGARD_PRELOAD_ABI_NCCL_H

#include <stddef.h>
#include <stdint.h>

/* ncclResult_t */
enum { LG_NCCL_SUCCESS = 0, LG_NCCL_SYSTEM_ERROR = 2, LG_NCCL_IN_PROGRESS = 7 };

/* ncclUniqueId, passed by value */
struct lg_nccl_id {
    char bytes[128];
};

/* Size of an element by ncclDataType_t: int8, uint8, int32, uint32, int64, uint64, float16,
 * float32, float64, bfloat16, float8e4m3, float8e5m2. A type that is not known yet counts as size
 * 0: unknown. */
static inline size_t lg_nccl_type_bytes(int type)
{
    static const unsigned char bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return type >= 0 && (size_t)type < sizeof bytes ? bytes[type] : 0;
}

#endif
