#include "exec/cuda/cuda_gemm.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "model/base/units.h"

/* D (m,n) = op(A) op(B) + beta D in cuBLASLt's column-major terms: a row-major (r,c) array is a column-major (c,r)
 * one with leading dimension c, so every product here is the transposed one. Compared byte by byte. */
typedef struct {
    uint64_t m, n, k;
    uint64_t lda, ldb;  /* ldd = m                                                    */
    int32_t transpose_a, transpose_b;
    int32_t type, d_type; /* cudaDataType of A, B and bias; of D                       */
    int32_t epilogue;
    int32_t accumulate;
    int32_t align_a, align_b, align_d, unused; /* bytes, a power of 2 up to MOST_ALIGN */
} plan_key;

typedef struct {
    plan_key key;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
} plan;

struct sf_cuda_gemm {
    const sf_cuda_api *api;
    cublasLtHandle_t handle;
    bool tf32;
    void *ws;
    uint64_t ws_bytes;
    plan *plans;
    int n_plans, cap_plans;
};

enum { MOST_ALIGN = 256 };

uint64_t sf_cuda_gemm_ws_bytes(int cc_major)
{
    return (cc_major >= 9 ? 32 : 4) * SF_MIB;
}

sf_status sf_cuda_gemm_open(sf_cuda_device *dev, bool tf32, void *ws, uint64_t ws_bytes, sf_cuda_gemm **out)
{
    sf_cuda_gemm *gemm = calloc(1, sizeof *gemm);
    if (gemm == NULL)
        return SF_FAIL(SF_ENOMEM, "no host memory for cuBLASLt's record");
    gemm->api = sf_cuda_device_api(dev);
    gemm->tf32 = tf32;
    gemm->ws = ws;
    gemm->ws_bytes = ws_bytes;
    sf_status st = SF_CUBLASLT(gemm->api, cublasLtCreate, &gemm->handle);
    if (st.code != SF_OK) {
        free(gemm);
        return st;
    }
    *out = gemm;
    return SF_SUCCESS;
}

static void drop_plan(const sf_cuda_api *api, const plan *p)
{
    if (p->d != NULL)
        api->cublasLtMatrixLayoutDestroy(p->d);
    if (p->b != NULL)
        api->cublasLtMatrixLayoutDestroy(p->b);
    if (p->a != NULL)
        api->cublasLtMatrixLayoutDestroy(p->a);
    if (p->desc != NULL)
        api->cublasLtMatmulDescDestroy(p->desc);
}

void sf_cuda_gemm_close(sf_cuda_gemm *gemm)
{
    if (gemm == NULL)
        return;
    for (int i = gemm->n_plans - 1; i >= 0; i--)
        drop_plan(gemm->api, &gemm->plans[i]);
    gemm->api->cublasLtDestroy(gemm->handle);
    free(gemm->plans);
    free(gemm);
}

int sf_cuda_gemm_plans(const sf_cuda_gemm *gemm)
{
    return gemm->n_plans;
}

/* ---- plans ---- */
static int32_t type_of(sf_dtype dt)
{
    return dt == SF_F32 ? CUDA_R_32F : dt == SF_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

static int32_t alignment(const void *p)
{
    uintptr_t at = (uintptr_t)p, lowest = at & (~at + 1);
    return lowest == 0 || lowest > MOST_ALIGN ? MOST_ALIGN : (int32_t)lowest;
}

static bool has_aux(int32_t epilogue)
{
    return epilogue == CUBLASLT_EPILOGUE_GELU_AUX || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
           epilogue == CUBLASLT_EPILOGUE_DGELU;
}

#define SET_DESC(attribute, value)                                                                           \
    SF_TRY(SF_CUBLASLT(api, cublasLtMatmulDescSetAttribute, p->desc, CUBLASLT_MATMUL_DESC_##attribute, &(value), sizeof(value)))
#define SET_PREFERENCE(attribute, value)                                                                     \
    SF_TRY_GOTO(st, SF_CUBLASLT(api, cublasLtMatmulPreferenceSetAttribute, preference,                       \
                                CUBLASLT_MATMUL_PREF_##attribute, &(value), sizeof(value)), destroy)

static sf_status describe(const sf_cuda_gemm *gemm, plan *p)
{
    const sf_cuda_api *api = gemm->api;
    const plan_key *k = &p->key;
    cublasOperation_t op_a = k->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, op_b = k->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cudaDataType_t type = (cudaDataType_t)k->type, d_type = (cudaDataType_t)k->d_type;
    cublasComputeType_t compute =
        k->type == CUDA_R_32F && gemm->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    cublasLtEpilogue_t epilogue = (cublasLtEpilogue_t)k->epilogue;

    SF_TRY(SF_CUBLASLT(api, cublasLtMatmulDescCreate, &p->desc, compute, CUDA_R_32F));
    SET_DESC(TRANSA, op_a);
    SET_DESC(TRANSB, op_b);
    SET_DESC(EPILOGUE, epilogue);
    if (epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
        SET_DESC(BIAS_DATA_TYPE, type);
    if (has_aux(k->epilogue)) {
        int64_t ld = (int64_t)k->m;
        SET_DESC(EPILOGUE_AUX_LD, ld);
        SET_DESC(EPILOGUE_AUX_DATA_TYPE, type);
    }
    SF_TRY(SF_CUBLASLT(api, cublasLtMatrixLayoutCreate, &p->a, type, k->transpose_a ? k->k : k->m,
                       k->transpose_a ? k->m : k->k, (int64_t)k->lda));
    SF_TRY(SF_CUBLASLT(api, cublasLtMatrixLayoutCreate, &p->b, type, k->transpose_b ? k->n : k->k,
                       k->transpose_b ? k->k : k->n, (int64_t)k->ldb));
    return SF_CUBLASLT(api, cublasLtMatrixLayoutCreate, &p->d, d_type, k->m, k->n, (int64_t)k->m);
}

static sf_status choose(const sf_cuda_gemm *gemm, plan *p)
{
    const sf_cuda_api *api = gemm->api;
    sf_status st = SF_SUCCESS;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t best;
    uint32_t align_a = (uint32_t)p->key.align_a, align_b = (uint32_t)p->key.align_b, align_d = (uint32_t)p->key.align_d;
    uint64_t ws_bytes = gemm->ws_bytes;
    int found = 0;

    SF_TRY(SF_CUBLASLT(api, cublasLtMatmulPreferenceCreate, &preference));
    SET_PREFERENCE(MAX_WORKSPACE_BYTES, ws_bytes);
    SET_PREFERENCE(MIN_ALIGNMENT_A_BYTES, align_a);
    SET_PREFERENCE(MIN_ALIGNMENT_B_BYTES, align_b);
    SET_PREFERENCE(MIN_ALIGNMENT_C_BYTES, align_d);
    SET_PREFERENCE(MIN_ALIGNMENT_D_BYTES, align_d);
    cublasStatus_t code =
        api->cublasLtMatmulAlgoGetHeuristic(gemm->handle, p->desc, p->a, p->b, p->d, p->d, preference, 1, &best, &found);
    if (code == CUBLAS_STATUS_NOT_SUPPORTED || (code == CUBLAS_STATUS_SUCCESS && found == 0)) {
        st = SF_FAIL(SF_EUNSUP, "cuBLASLt has no algorithm for a product of %llu x %llu x %llu (m x n x k) with epilogue %d; "
                     "pad the dimensions to multiples of 8 or train in another precision", (unsigned long long)p->key.m,
                     (unsigned long long)p->key.n, (unsigned long long)p->key.k, (int)p->key.epilogue);
        goto destroy;
    }
    SF_TRY_GOTO(st, sf_cublaslt_status_at(__FILE__, __LINE__, api, code, "cublasLtMatmulAlgoGetHeuristic"), destroy);
    p->algo = best.algo;
destroy:
    api->cublasLtMatmulPreferenceDestroy(preference);
    return st;
}

static sf_status plan_for(sf_cuda_gemm *gemm, const plan_key *key, plan **out)
{
    for (int i = 0; i < gemm->n_plans; i++)
        if (memcmp(&gemm->plans[i].key, key, sizeof *key) == 0) {
            *out = &gemm->plans[i];
            return SF_SUCCESS;
        }
    if (gemm->n_plans == gemm->cap_plans) {
        int cap = gemm->cap_plans > 0 ? 2 * gemm->cap_plans : 32;
        plan *grown = realloc(gemm->plans, (size_t)cap * sizeof *grown);
        if (grown == NULL)
            return SF_FAIL(SF_ENOMEM, "no host memory for %d matrix product plans", cap);
        gemm->plans = grown;
        gemm->cap_plans = cap;
    }
    plan fresh = { .key = *key };
    sf_status st = describe(gemm, &fresh);
    if (st.code == SF_OK)
        st = choose(gemm, &fresh);
    if (st.code != SF_OK) {
        drop_plan(gemm->api, &fresh);
        return st;
    }
    gemm->plans[gemm->n_plans] = fresh;
    *out = &gemm->plans[gemm->n_plans++];
    return SF_SUCCESS;
}

/* ---- products ---- */
static sf_status multiply(sf_cuda_gemm *gemm, sf_cuda_stream stream, plan_key *key, const void *a, const void *b,
                          const void *bias, const void *aux, void *d)
{
    const sf_cuda_api *api = gemm->api;
    const float one = 1.0f, zero = 0.0f;
    plan *p = NULL;
    if (key->m == 0 || key->n == 0)
        return SF_SUCCESS;
    key->align_a = alignment(a);
    key->align_b = alignment(b);
    key->align_d = alignment(d);
    SF_TRY(plan_for(gemm, key, &p));
    if (bias != NULL)
        SET_DESC(BIAS_POINTER, bias);
    if (aux != NULL)
        SET_DESC(EPILOGUE_AUX_POINTER, aux);
    return SF_CUBLASLT(api, cublasLtMatmul, gemm->handle, p->desc, &one, a, p->a, b, p->b, key->accumulate ? &one : &zero, d,
                       p->d, d, p->d, &p->algo, gemm->ws, gemm->ws_bytes, stream);
}

/* The library reads K = 0 as an error; a sum over nothing is 0, which no caller needs. */
static void check_types(sf_dtype dt, sf_dtype d_dt, size_t k)
{
    assert(dt == SF_F32 || dt == SF_BF16 || dt == SF_F16);
    assert(d_dt == dt || d_dt == SF_F32);
    assert(k > 0);
    (void)dt;
    (void)d_dt;
    (void)k;
}

sf_status sf_cuda_linear_fwd(sf_cuda_gemm *gemm, sf_cuda_stream stream, sf_dtype dt, sf_dtype y_dt, size_t rows, size_t in,
                             size_t out, const void *x, const void *weight, const void *bias, void *gelu_in, void *y)
{
    check_types(dt, y_dt, in);
    /* y^T (O,N) = W (O,I) x^T (I,N); W^T and x^T are what lies in memory */
    plan_key key = { .m = out, .n = rows, .k = in, .lda = in, .ldb = in, .transpose_a = 1, .type = type_of(dt),
                     .d_type = type_of(y_dt), .epilogue = CUBLASLT_EPILOGUE_DEFAULT };
    if (gelu_in != NULL)
        key.epilogue = bias != NULL ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    else if (bias != NULL)
        key.epilogue = CUBLASLT_EPILOGUE_BIAS;
    return multiply(gemm, stream, &key, weight, x, bias, gelu_in, y);
}

sf_status sf_cuda_linear_bwd_x(sf_cuda_gemm *gemm, sf_cuda_stream stream, sf_dtype dt, size_t rows, size_t in, size_t out,
                               const void *dy, const void *weight, bool accumulate, const void *gelu_in, void *dx)
{
    check_types(dt, dt, out);
    assert(gelu_in == NULL || !accumulate);
    /* dx^T (I,N) = W^T (I,O) dy^T (O,N) */
    plan_key key = { .m = in, .n = rows, .k = out, .lda = in, .ldb = out, .type = type_of(dt), .d_type = type_of(dt),
                     .epilogue = gelu_in != NULL ? CUBLASLT_EPILOGUE_DGELU : CUBLASLT_EPILOGUE_DEFAULT,
                     .accumulate = accumulate };
    return multiply(gemm, stream, &key, weight, dy, NULL, gelu_in, dx);
}

sf_status sf_cuda_linear_bwd_w(sf_cuda_gemm *gemm, sf_cuda_stream stream, sf_dtype dt, sf_dtype grad_dt, size_t rows,
                               size_t in, size_t out, const void *dy, const void *x, bool accumulate, void *dweight)
{
    check_types(dt, grad_dt, rows);
    /* dW^T (I,O) = x^T (I,N) dy (N,O) */
    plan_key key = { .m = in, .n = out, .k = rows, .lda = in, .ldb = out, .transpose_b = 1, .type = type_of(dt),
                     .d_type = type_of(grad_dt), .epilogue = CUBLASLT_EPILOGUE_DEFAULT, .accumulate = accumulate };
    return multiply(gemm, stream, &key, x, dy, NULL, NULL, dweight);
}
