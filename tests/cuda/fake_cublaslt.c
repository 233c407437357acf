/* cuBLASLt of the fake: column-major products in double, with the epilogues that we ask for.
 * Source  cuBLAS documentation, cublasLtMatmul: D = epilogue(alpha op(A) op(B) + beta C). */
#include "tests/cuda/fake_impl.h"

#include <math.h>
#include <string.h>

#include "exec/reference/ref_ops.h"
#include "tests/cuda/cases.h"

/* The library's handles are pointers to structs that it does not describe. */
typedef struct {
    cublasComputeType_t compute;
    cublasOperation_t op_a, op_b;
    cublasLtEpilogue_t epilogue;
    const void *bias;
    void *aux;
    cudaDataType_t bias_type, aux_type;
    int64_t aux_ld;
} desc;
typedef struct {
    cudaDataType_t type;
    uint64_t rows, cols;
    int64_t ld;
} layout;
typedef struct {
    uint64_t ws_bytes;
    uint32_t align[4]; /* A B C D */
} preference;

static fake_product last;

const fake_product *fake_cuda_last_product(void)
{
    return &last;
}

static cublasStatus_t create(cublasLtHandle_t *out)
{
    FAKE_CALLED(cublasStatus_t, cublasLtCreate);
    *out = fake_make(FAKE_LT, 8);
    return CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t destroy(cublasLtHandle_t handle)
{
    FAKE_CALLED(cublasStatus_t, cublasLtDestroy);
    fake_drop(FAKE_LT, handle, "cublasLtDestroy");
    return CUBLAS_STATUS_SUCCESS;
}
static const char *status_string(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? "success" : "a made-up failure of cuBLASLt";
}
static size_t version(void)
{
    return CUBLAS_VERSION;
}
static cublasStatus_t desc_create(cublasLtMatmulDesc_t *out, cublasComputeType_t compute, cudaDataType_t scale)
{
    FAKE_CALLED(cublasStatus_t, cublasLtMatmulDescCreate);
    desc *d = fake_make(FAKE_DESC, sizeof *d);
    if (scale != CUDA_R_32F)
        fake_die("alpha and beta are float");
    d->compute = compute;
    d->op_a = d->op_b = CUBLAS_OP_N;
    d->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    *out = (cublasLtMatmulDesc_t)d;
    return CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t desc_destroy(cublasLtMatmulDesc_t handle)
{
    FAKE_CALLED(cublasStatus_t, cublasLtMatmulDescDestroy);
    fake_drop(FAKE_DESC, handle, "cublasLtMatmulDescDestroy");
    return CUBLAS_STATUS_SUCCESS;
}

/* Copies a value of exactly the attribute's size. */
static void take(void *to, size_t size, const void *from, size_t given)
{
    if (given != size)
        fake_die("an attribute of %zu bytes was given %zu", size, given);
    memcpy(to, from, size);
}
static cublasStatus_t desc_set(cublasLtMatmulDesc_t handle, cublasLtMatmulDescAttributes_t attribute, const void *value, size_t size)
{
    FAKE_CALLED(cublasStatus_t, cublasLtMatmulDescSetAttribute);
    desc *d = fake_get(FAKE_DESC, handle, "cublasLtMatmulDescSetAttribute");
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: take(&d->op_a, sizeof d->op_a, value, size); break;
    case CUBLASLT_MATMUL_DESC_TRANSB: take(&d->op_b, sizeof d->op_b, value, size); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE: take(&d->epilogue, sizeof d->epilogue, value, size); break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: take(&d->bias, sizeof d->bias, value, size); break;
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: take(&d->bias_type, sizeof d->bias_type, value, size); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: take(&d->aux, sizeof d->aux, value, size); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: take(&d->aux_ld, sizeof d->aux_ld, value, size); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE: take(&d->aux_type, sizeof d->aux_type, value, size); break;
    default: fake_die("matmul attribute %d is not known here", (int)attribute);
    }
    return CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t layout_create(cublasLtMatrixLayout_t *out, cudaDataType_t type, uint64_t rows, uint64_t cols, int64_t ld)
{
    FAKE_CALLED(cublasStatus_t, cublasLtMatrixLayoutCreate);
    layout *l = fake_make(FAKE_LAYOUT, sizeof *l);
    if (ld < (int64_t)rows)
        fake_die("leading dimension %lld is less than the %llu rows", (long long)ld, (unsigned long long)rows);
    *l = (layout){ type, rows, cols, ld };
    *out = (cublasLtMatrixLayout_t)l;
    return CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t layout_destroy(cublasLtMatrixLayout_t handle)
{
    FAKE_CALLED(cublasStatus_t, cublasLtMatrixLayoutDestroy);
    fake_drop(FAKE_LAYOUT, handle, "cublasLtMatrixLayoutDestroy");
    return CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t preference_create(cublasLtMatmulPreference_t *out)
{
    FAKE_CALLED(cublasStatus_t, cublasLtMatmulPreferenceCreate);
    *out = fake_make(FAKE_PREFERENCE, sizeof(preference));
    return CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t preference_destroy(cublasLtMatmulPreference_t handle)
{
    FAKE_CALLED(cublasStatus_t, cublasLtMatmulPreferenceDestroy);
    fake_drop(FAKE_PREFERENCE, handle, "cublasLtMatmulPreferenceDestroy");
    return CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t preference_set(cublasLtMatmulPreference_t handle, cublasLtMatmulPreferenceAttributes_t attribute,
                                     const void *value, size_t size)
{
    FAKE_CALLED(cublasStatus_t, cublasLtMatmulPreferenceSetAttribute);
    preference *p = fake_get(FAKE_PREFERENCE, handle, "cublasLtMatmulPreferenceSetAttribute");
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: take(&p->ws_bytes, sizeof p->ws_bytes, value, size); break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: take(&p->align[0], sizeof p->align[0], value, size); break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: take(&p->align[1], sizeof p->align[1], value, size); break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: take(&p->align[2], sizeof p->align[2], value, size); break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: take(&p->align[3], sizeof p->align[3], value, size); break;
    default: fake_die("preference %d is not known here", (int)attribute);
    }
    return CUBLAS_STATUS_SUCCESS;
}

static void check_shapes(const desc *d, const layout *a, const layout *b, const layout *out)
{
    uint64_t k_a = d->op_a == CUBLAS_OP_T ? a->rows : a->cols, k_b = d->op_b == CUBLAS_OP_T ? b->cols : b->rows;
    uint64_t m = d->op_a == CUBLAS_OP_T ? a->cols : a->rows, n = d->op_b == CUBLAS_OP_T ? b->rows : b->cols;
    if (k_a != k_b || m != out->rows || n != out->cols)
        fake_die("shapes of a product do not meet");
}

static cublasStatus_t heuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out, cublasLtMatmulPreference_t pref, int most,
                                cublasLtMatmulHeuristicResult_t *results, int *found)
{
    *found = 0;
    FAKE_CALLED(cublasStatus_t, cublasLtMatmulAlgoGetHeuristic);
    const char *who = "cublasLtMatmulAlgoGetHeuristic";
    fake_get(FAKE_LT, handle, who);
    preference *p = fake_get(FAKE_PREFERENCE, pref, who);
    fake_get(FAKE_LAYOUT, c, who);
    check_shapes(fake_get(FAKE_DESC, op, who), fake_get(FAKE_LAYOUT, a, who), fake_get(FAKE_LAYOUT, b, who), fake_get(FAKE_LAYOUT, out, who));
    if (most < 1)
        fake_die("no room for an algorithm");
    last.ws_bytes = p->ws_bytes;
    last.align_a = p->align[0];
    last.align_b = p->align[1];
    last.align_d = p->align[3];
    memset(results, 0, sizeof *results);
    memcpy(&results->algo, "algo", 4);
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

static sf_dtype dtype_of(cudaDataType_t type)
{
    return type == CUDA_R_32F ? SF_F32 : type == CUDA_R_16BF ? SF_BF16 : SF_F16;
}
static double at(cudaDataType_t type, const void *p, uint64_t i)
{
    return tensor_at(&(tensor){ .dtype = dtype_of(type), .data = (void *)p }, (size_t)i);
}
static void put(cudaDataType_t type, void *p, uint64_t i, double v)
{
    double value[1];
    size_t size = (size_t)sf_dtype_bytes(dtype_of(type));
    tensor_put(&(tensor){ .dtype = dtype_of(type), .data = (char *)p + i * size, .value = value }, 0, v);
}
static size_t bytes_of(const layout *l)
{
    return (size_t)((l->cols - 1) * (uint64_t)l->ld + l->rows) * (size_t)sf_dtype_bytes(dtype_of(l->type));
}

static cublasStatus_t matmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t op, const void *alpha, const void *a, cublasLtMatrixLayout_t a_at,
                             const void *b, cublasLtMatrixLayout_t b_at, const void *beta, const void *c, cublasLtMatrixLayout_t c_at,
                             void *out, cublasLtMatrixLayout_t out_at, const cublasLtMatmulAlgo_t *algo, void *ws, size_t ws_bytes,
                             cudaStream_t stream)
{
    FAKE_CALLED(cublasStatus_t, cublasLtMatmul);
    const char *who = "cublasLtMatmul";
    const desc *d = fake_get(FAKE_DESC, op, who);
    const layout *la = fake_get(FAKE_LAYOUT, a_at, who), *lb = fake_get(FAKE_LAYOUT, b_at, who), *l = fake_get(FAKE_LAYOUT, out_at, who);
    bool bias = d->epilogue == CUBLASLT_EPILOGUE_BIAS || d->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    bool gelu = d->epilogue == CUBLASLT_EPILOGUE_GELU_AUX || d->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    bool slope = d->epilogue == CUBLASLT_EPILOGUE_DGELU;
    float scale = *(const float *)alpha, keep = *(const float *)beta;
    uint64_t k_end = d->op_a == CUBLAS_OP_T ? la->rows : la->cols;

    fake_get(FAKE_LT, handle, who);
    check_shapes(d, la, lb, l);
    if (memcmp(algo, "algo", 4) != 0 || c != out || c_at != out_at || (bias && d->bias == NULL) || ((gelu || slope) && d->aux == NULL))
        fake_die("cublasLtMatmul was called with what the library does not take");
    last.compute = d->compute;
    last.epilogue = d->epilogue;
    last.a_type = la->type;
    last.d_type = l->type;
    last.beta = keep;

    fake_op_begin(stream, who);
    fake_op_access(a, bytes_of(la), false);
    fake_op_access(b, bytes_of(lb), false);
    fake_op_access(out, bytes_of(l), true);
    fake_op_access(ws, ws_bytes, true);
    if (bias)
        fake_op_access(d->bias, (size_t)l->rows * (size_t)sf_dtype_bytes(dtype_of(d->bias_type)), false);
    if (gelu || slope)
        fake_op_access(d->aux, bytes_of(&(layout){ d->aux_type, l->rows, l->cols, d->aux_ld }), gelu);
    fake_op_end();

    for (uint64_t j = 0; j < l->cols; j++)
        for (uint64_t i = 0; i < l->rows; i++) {
            uint64_t to = j * (uint64_t)l->ld + i;
            double sum = 0.0;
            for (uint64_t k = 0; k < k_end; k++)
                sum += at(la->type, a, d->op_a == CUBLAS_OP_T ? i * (uint64_t)la->ld + k : k * (uint64_t)la->ld + i) *
                       at(lb->type, b, d->op_b == CUBLAS_OP_T ? k * (uint64_t)lb->ld + j : j * (uint64_t)lb->ld + k);
            sum = scale * sum + (keep != 0.0f ? keep * at(l->type, out, to) : 0.0); /* beta 0: what it held counts not */
            if (bias)
                sum += at(d->bias_type, d->bias, i);
            if (gelu) {
                put(d->aux_type, d->aux, j * (uint64_t)d->aux_ld + i, sum);
                double in = sum;
                sf_ref_act_fwd(SF_OP_ACT_GELU_TANH, 1, 1, &in, &sum);
            }
            if (slope) {
                double in = at(d->aux_type, d->aux, j * (uint64_t)d->aux_ld + i), up = sum;
                sf_ref_act_bwd(SF_OP_ACT_GELU_TANH, 1, 1, &up, &in, &sum);
            }
            put(l->type, out, to, sum);
        }
    return CUBLAS_STATUS_SUCCESS;
}

void fake_fill_cublaslt(sf_cuda_api *api)
{
    memset(&last, 0, sizeof last);
    api->cublasLtCreate = create;
    api->cublasLtDestroy = destroy;
    api->cublasLtGetStatusString = status_string;
    api->cublasLtGetVersion = version;
    api->cublasLtMatmulDescCreate = desc_create;
    api->cublasLtMatmulDescDestroy = desc_destroy;
    api->cublasLtMatmulDescSetAttribute = desc_set;
    api->cublasLtMatrixLayoutCreate = layout_create;
    api->cublasLtMatrixLayoutDestroy = layout_destroy;
    api->cublasLtMatmulPreferenceCreate = preference_create;
    api->cublasLtMatmulPreferenceDestroy = preference_destroy;
    api->cublasLtMatmulPreferenceSetAttribute = preference_set;
    api->cublasLtMatmulAlgoGetHeuristic = heuristic;
    api->cublasLtMatmul = matmul;
}
