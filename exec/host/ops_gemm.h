/* exec/host/ops_gemm.h: matrix products; private to exec/host/ops_*.c. All matrices row-major. */
#ifndef SF_EXEC_HOST_OPS_GEMM_H
#define SF_EXEC_HOST_OPS_GEMM_H

#include <cblas.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/base/dtype.h"

/* c (m,n) = alpha op(a) op(b) + beta c; a is (m,k) or, if trans_a, (k,m), its rows lda long; b is
 * (k,n) or, if trans_b, (n,k). OpenBLAS. */
static inline void sf_gemm_f32(bool trans_a, bool trans_b, size_t m, size_t n, size_t k, float alpha, const float *a,
                               size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc)
{
    cblas_sgemm(CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans, trans_b ? CblasTrans : CblasNoTrans, (blasint)m,
                (blasint)n, (blasint)k, alpha, a, (blasint)lda, b, (blasint)ldb, beta, c, (blasint)ldc);
}

/* c (m,n) = op(a) op(b) + bias (n) or nothing (NULL) + c if accumulate, all of type dt. */
typedef struct {
    sf_dtype dt;
    bool trans_a, trans_b;
    size_t m, n, k;
    const void *a;
    size_t lda;
    const void *b;
    size_t ldb;
    const void *bias;
    bool accumulate;
    void *c;
    size_t ldc;
} sf_gemm;

/* The product by oneDNN. false: it has no kernel for this type on this CPU, or the build has no
 * oneDNN; nothing was written. (ops_gemm_dnnl.c, or ops_gemm_dnnl_absent.c) */
bool sf_gemm_dnnl(const sf_gemm *g);

/* Whether the CPU multiplies bf16 itself (AVX512-BF16, which every CPU with AMX has too) and the
 * build has oneDNN to make it. */
bool sf_gemm_bf16_is_native(void);

/* Edge of a float panel, in elements: three panels of at most 1 MiB each. */
enum { SF_GEMM_PANEL = 512 };

#endif
