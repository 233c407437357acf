/* phantom_blas.c: cuBLAS and cuBLASLt calls, accepted and not executed. See phantom.h.
 *
 * The workspaces that the framework allocates around these calls are its own, and are therefore measured. */
#include "phantom.h"

#include <cublasLt.h>
#include <cublas_v2.h>
#include <string.h>

static char handle_space[4096]; /* frameworks only pass the handle back */

PHANTOM_EXPORT cublasStatus_t cublasCreate_v2(cublasHandle_t *out)
{
    static unsigned made;
    unsigned slot = __atomic_fetch_add(&made, 1, __ATOMIC_SEQ_CST) % (unsigned)sizeof handle_space;
    *out = (cublasHandle_t)(void *)&handle_space[slot]; /* distinct: workspaces are keyed by handle and stream */
    return CUBLAS_STATUS_SUCCESS;
}

PHANTOM_EXPORT size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }

PHANTOM_EXPORT cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t *mode)
{
    (void)handle;
    *mode = CUBLAS_DEFAULT_MATH;
    return CUBLAS_STATUS_SUCCESS;
}

PHANTOM_EXPORT cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t *mode)
{
    (void)handle;
    *mode = CUBLAS_POINTER_MODE_HOST;
    return CUBLAS_STATUS_SUCCESS;
}

PHANTOM_EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t a,
                                                             cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                             cublasLtMatmulPreference_t preference, int requested,
                                                             cublasLtMatmulHeuristicResult_t results[], int *returned)
{
    (void)handle, (void)op, (void)a, (void)b, (void)c, (void)d, (void)preference;
    *returned = requested > 0 ? 1 : 0;
    if (*returned) {
        memset(&results[0], 0, sizeof results[0]);
        results[0].state = CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_SUCCESS;
}

static char descriptor_space[1024];

PHANTOM_EXPORT cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute, cudaDataType_t scale)
{
    (void)compute, (void)scale;
    *out = (cublasLtMatmulDesc_t)(void *)descriptor_space;
    return CUBLAS_STATUS_SUCCESS;
}

PHANTOM_EXPORT cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows, uint64_t cols, int64_t ld)
{
    (void)type, (void)rows, (void)cols, (void)ld;
    *out = (cublasLtMatrixLayout_t)(void *)descriptor_space;
    return CUBLAS_STATUS_SUCCESS;
}

PHANTOM_EXPORT cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    *out = (cublasLtMatmulPreference_t)(void *)descriptor_space;
    return CUBLAS_STATUS_SUCCESS;
}

/* Every other call only has to succeed; the arguments are read by nobody, so one body serves every prototype. */
#define ACCEPT(name)                                                  \
    PHANTOM_EXPORT cublasStatus_t phantom_##name(void) __asm__(#name); \
    cublasStatus_t phantom_##name(void) { return CUBLAS_STATUS_SUCCESS; }

ACCEPT(cublasDestroy_v2)
ACCEPT(cublasSetStream_v2)
ACCEPT(cublasSetWorkspace_v2)
ACCEPT(cublasSetMathMode)
ACCEPT(cublasSetPointerMode_v2)
ACCEPT(cublasSetSmCountTarget)
ACCEPT(cublasGemmEx)
ACCEPT(cublasGemmStridedBatchedEx)
ACCEPT(cublasSgemmEx)
ACCEPT(cublasSgemm_v2)
ACCEPT(cublasSgemmStridedBatched)
ACCEPT(cublasDgemm_v2)
ACCEPT(cublasDgemmStridedBatched)
ACCEPT(cublasSgemv_v2)
ACCEPT(cublasDgemv_v2)
ACCEPT(cublasSdot_v2)
ACCEPT(cublasDdot_v2)
ACCEPT(cublasDotEx)
ACCEPT(cublasLtMatmul)
ACCEPT(cublasLtMatmulDescDestroy)
ACCEPT(cublasLtMatmulDescSetAttribute)
ACCEPT(cublasLtMatmulPreferenceDestroy)
ACCEPT(cublasLtMatmulPreferenceSetAttribute)
ACCEPT(cublasLtMatrixLayoutDestroy)
ACCEPT(cublasLtMatrixLayoutSetAttribute)
ACCEPT(cublasLtMatmulAlgoInit)
ACCEPT(cublasLtMatmulAlgoCheck)
ACCEPT(cublasLtMatmulAlgoConfigSetAttribute)
ACCEPT(cublasLtMatmulAlgoConfigGetAttribute)
