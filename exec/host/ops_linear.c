#include "exec/host/ops_gemm.h"
#include "exec/host/ops_simd.h"

/* ---- bf16 on a CPU without bf16 units: float panels through sgemm ---- */

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The rows x cols block at (row, col) of x, whose rows are ld long, into dense floats. */
static void unpack(const uint16_t *x, size_t ld, size_t row, size_t col, size_t rows, size_t cols, float *out)
{
    for (size_t r = 0; r < rows; r++) {
        const uint16_t *xr = x + (row + r) * ld + col;
        float *o = out + r * cols;
        SF_EACH(i, k, cols, { store_f32(o + i, k, load(SF_BF16, xr, i, k)); });
    }
}

/* Sums over all of k are kept in a float panel and rounded to bf16 once. */
static void gemm_bf16_panels(const sf_gemm *g, float *ws)
{
    const size_t P = SF_GEMM_PANEL, m = g->m, n = g->n, k = g->k;
    float *a = ws, *b = a + min_size(m, P) * min_size(k, P), *c = b + min_size(n, P) * min_size(k, P);
    for (size_t i0 = 0; i0 < m; i0 += P) {
        const size_t mi = min_size(P, m - i0);
        for (size_t j0 = 0; j0 < n; j0 += P) {
            const size_t nj = min_size(P, n - j0);
            for (size_t k0 = 0; k0 < k; k0 += P) {
                const size_t kk = min_size(P, k - k0);
                if (k > P || j0 == 0) { /* else `a` holds these rows already */
                    if (g->trans_a)
                        unpack(g->a, g->lda, k0, i0, kk, mi, a);
                    else
                        unpack(g->a, g->lda, i0, k0, mi, kk, a);
                }
                if (g->trans_b)
                    unpack(g->b, g->ldb, j0, k0, nj, kk, b);
                else
                    unpack(g->b, g->ldb, k0, j0, kk, nj, b);
                sf_gemm_f32(g->trans_a, g->trans_b, mi, nj, kk, 1, a, g->trans_a ? mi : kk, b, g->trans_b ? kk : nj,
                            k0 > 0, c, nj);
            }
            for (size_t i = 0; i < mi; i++) {
                uint16_t *out = (uint16_t *)g->c + (i0 + i) * g->ldc + j0;
                SF_EACH(j, w, nj, {
                    sf_vf s = load_f32(c + i * nj + j, w);
                    if (g->bias != NULL)
                        s += load(SF_BF16, g->bias, j0 + j, w);
                    if (g->accumulate)
                        s += load(SF_BF16, out, j, w);
                    store(SF_BF16, out, j, w, s);
                });
            }
        }
    }
}

static void gemm_bf16(const sf_gemm *g, void *ws)
{
    if (!sf_gemm_bf16_is_native() || !sf_gemm_dnnl(g))
        gemm_bf16_panels(g, ws);
}

/* ---- the three products ---- */

static void linear_fwd(sf_dtype dt, size_t rows, size_t in, size_t out, const void *x, const void *weight,
                       const void *bias, void *y, void *ws)
{
    if (dt == SF_BF16) {
        gemm_bf16(&(sf_gemm){ .dt = SF_BF16, .trans_b = true, .m = rows, .n = out, .k = in, .a = x, .lda = in, .b = weight,
                                   .ldb = in, .bias = bias, .c = y, .ldc = out }, ws);
        return;
    }
    /* Starting from the bias costs nothing: sgemm adds to y where it would have cleared it. */
    if (bias != NULL)
        for (size_t r = 0; r < rows; r++)
            memcpy((float *)y + r * out, bias, out * sizeof(float));
    sf_gemm_f32(false, true, rows, out, in, 1, x, in, weight, in, bias != NULL, y, out);
}

static void linear_bwd_x(sf_dtype dt, size_t rows, size_t in, size_t out, const void *dy, const void *weight,
                         bool accumulate, void *dx, void *ws)
{
    if (dt == SF_BF16)
        gemm_bf16(&(sf_gemm){ .dt = SF_BF16, .m = rows, .n = in, .k = out, .a = dy, .lda = out, .b = weight, .ldb = in,
                                   .accumulate = accumulate, .c = dx, .ldc = in }, ws);
    else
        sf_gemm_f32(false, false, rows, in, out, 1, dy, out, weight, in, accumulate, dx, in);
}

/* dbias (n) = column sums of dy (rows, n), a strip of columns at a time so that the sums stay in
 * registers and every row's piece is whole cache lines. */
SF_INLINE void bias_bwd_body(sf_dtype dt, size_t rows, size_t n, const void *dy, bool accumulate, void *dbias)
{
    enum { WIDE = 4 * SF_LANES };
    size_t j = 0;
    for (; j + WIDE <= n; j += WIDE) {
        sf_vf sum[4] = { { 0 } };
        for (size_t r = 0; r < rows; r++)
            for (size_t w = 0; w < 4; w++)
                sum[w] += load(dt, dy, r * n + j + w * SF_LANES, SF_LANES);
        for (size_t w = 0; w < 4; w++) {
            const size_t at_w = j + w * SF_LANES;
            store(dt, dbias, at_w, SF_LANES, accumulate ? load(dt, dbias, at_w, SF_LANES) + sum[w] : sum[w]);
        }
    }
    for (; j < n; j++) {
        float sum = 0;
        for (size_t r = 0; r < rows; r++)
            sum += load1(dt, dy, r * n + j);
        store1(dt, dbias, j, accumulate ? load1(dt, dbias, j) + sum : sum);
    }
}

static void linear_bwd_w(sf_dtype dt, size_t rows, size_t in, size_t out, const void *dy, const void *x,
                         bool accumulate, void *dweight, void *dbias, void *ws)
{
    if (dt == SF_BF16)
        gemm_bf16(&(sf_gemm){ .dt = SF_BF16, .trans_a = true, .m = out, .n = in, .k = rows, .a = dy, .lda = out, .b = x,
                                   .ldb = in, .accumulate = accumulate, .c = dweight, .ldc = in }, ws);
    else
        sf_gemm_f32(true, false, out, in, rows, 1, dy, out, x, in, accumulate, dweight, in);
    if (dbias != NULL)
        SF_BY_DTYPE(dt, bias_bwd_body, rows, out, dy, accumulate, dbias);
}

void SF_ISA_NAME(sf_ops_fill_linear)(sf_host_ops *ops)
{
    ops->linear_fwd = linear_fwd;
    ops->linear_bwd_x = linear_bwd_x;
    ops->linear_bwd_w = linear_bwd_w;
}
