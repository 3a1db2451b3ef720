/*
 * cublaslt.c - stand-in for libcublasLt: descriptions that nobody reads, one algorithm, and a
 * product that takes a gemm's time. Context: loaded in place of the real library, any thread.
 */
#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#include "simcuda.h"

#define API __attribute__((visibility("default")))

#define OPAQUE_BYTES 512

static cublasStatus_t make(void *pointer_to)
{
    void *made = calloc(1, OPAQUE_BYTES);
    memcpy(pointer_to, &made, sizeof made);
    return made ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

API cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    SIM_ENTER();
    return make(handle);
}

API size_t cublasLtGetVersion(void)
{
    SIM_ENTER();
    return CUDART_VERSION / 1000 * 10000;
}

API cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                            cudaDataType_t scale)
{
    SIM_ENTER();
    (void)compute;
    (void)scale;
    return make(desc);
}

API cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
                                              uint64_t rows, uint64_t columns, int64_t leading)
{
    SIM_ENTER();
    (void)type;
    (void)rows;
    (void)columns;
    (void)leading;
    return make(layout);
}

API cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    SIM_ENTER();
    return make(preference);
}

#define DESTROYER(name, type)                                                                      \
    API cublasStatus_t name(type made)                                                             \
    {                                                                                              \
        SIM_ENTER();                                                                               \
        free(made);                                                                                \
        return CUBLAS_STATUS_SUCCESS;                                                              \
    }
DESTROYER(cublasLtDestroy, cublasLtHandle_t)
DESTROYER(cublasLtMatmulDescDestroy, cublasLtMatmulDesc_t)
DESTROYER(cublasLtMatrixLayoutDestroy, cublasLtMatrixLayout_t)
DESTROYER(cublasLtMatmulPreferenceDestroy, cublasLtMatmulPreference_t)

#define SETTER(name, type, attribute_type)                                                         \
    API cublasStatus_t name(type made, attribute_type attribute, const void *value, size_t size)   \
    {                                                                                              \
        SIM_ENTER();                                                                               \
        (void)made;                                                                                \
        (void)attribute;                                                                           \
        (void)value;                                                                               \
        (void)size;                                                                                \
        return CUBLAS_STATUS_SUCCESS;                                                              \
    }
SETTER(cublasLtMatmulDescSetAttribute, cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t)
SETTER(cublasLtMatrixLayoutSetAttribute, cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t)
SETTER(cublasLtMatmulPreferenceSetAttribute, cublasLtMatmulPreference_t,
       cublasLtMatmulPreferenceAttributes_t)

API cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int wanted, cublasLtMatmulHeuristicResult_t results[],
    int *found)
{
    SIM_ENTER();
    (void)handle;
    (void)desc;
    (void)a;
    (void)b;
    (void)c;
    (void)d;
    (void)preference;
    *found = wanted > 0;
    if (*found)
        results[0] = (cublasLtMatmulHeuristicResult_t){.wavesCount = 1};
    return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                  const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                                  const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                                  const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                                  cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                                  void *workspace, size_t workspace_size, cudaStream_t stream)
{
    SIM_ENTER();
    (void)handle;
    (void)desc;
    (void)alpha;
    (void)a;
    (void)a_layout;
    (void)b;
    (void)b_layout;
    (void)beta;
    (void)c;
    (void)c_layout;
    (void)d;
    (void)d_layout;
    (void)algo;
    (void)workspace;
    (void)workspace_size;
    return (cublasStatus_t)simGemm(stream);
}
