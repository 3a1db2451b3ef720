/*
 * cublas.c - stand-in for libcublas: handles and their settings. Every other function that PyTorch
 * imports is generated as a call of simBlas(): one gemm on the handle's stream, whatever its
 * arguments are. Context: loaded in place of the real library, any thread. Real cuBLAS launches its
 * kernels by a runtime of its own: no call of libcudart's interface is to be seen, and none is made
 * here.
 */
#include <cublas_v2.h>
#include <stdlib.h>

#include "simcuda.h"

#define API __attribute__((visibility("default")))

struct cublasContext {
    cudaStream_t stream;
    cublasPointerMode_t pointer_mode;
    cublasMath_t math_mode;
    cublasAtomicsMode_t atomics_mode;
    int sm_count_target;
};

int simBlas(cublasHandle_t handle);
int simBlas(cublasHandle_t handle)
{
    return (int)simGemm(handle->stream);
}

API cublasStatus_t cublasCreate_v2(cublasHandle_t *handle)
{
    SIM_ENTER();
    *handle = calloc(1, sizeof **handle);
    return *handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

API cublasStatus_t cublasDestroy_v2(cublasHandle_t handle)
{
    SIM_ENTER();
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int *version)
{
    SIM_ENTER();
    (void)handle;
    *version = CUDART_VERSION / 1000 * 10000;
    return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t size)
{
    SIM_ENTER();
    (void)handle;
    (void)workspace;
    (void)size;
    return CUBLAS_STATUS_SUCCESS;
}

#define SETTING(setter, getter, type, field)                                                       \
    API cublasStatus_t setter(cublasHandle_t handle, type value)                                   \
    {                                                                                              \
        SIM_ENTER();                                                                               \
        handle->field = value;                                                                     \
        return CUBLAS_STATUS_SUCCESS;                                                              \
    }                                                                                              \
    API cublasStatus_t getter(cublasHandle_t handle, type *value)                                  \
    {                                                                                              \
        SIM_ENTER();                                                                               \
        *value = handle->field;                                                                    \
        return CUBLAS_STATUS_SUCCESS;                                                              \
    }
SETTING(cublasSetStream_v2, cublasGetStream_v2, cudaStream_t, stream)
SETTING(cublasSetPointerMode_v2, cublasGetPointerMode_v2, cublasPointerMode_t, pointer_mode)
SETTING(cublasSetMathMode, cublasGetMathMode, cublasMath_t, math_mode)
SETTING(cublasSetAtomicsMode, cublasGetAtomicsMode, cublasAtomicsMode_t, atomics_mode)
SETTING(cublasSetSmCountTarget, cublasGetSmCountTarget, int, sm_count_target)
