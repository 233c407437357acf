#include "exec/host/ops_attn.h"
#include "exec/host/ops_gemm.h"
#include "exec/host/ops_simd.h"

/* One head at a time, SF_ATTN_ROWS query rows at a time: their scores against the keys up to the
 * last of the rows are one strip (rows x keys) in scratch, so that nothing is computed above the
 * strip's last diagonal block and nothing of T x T outlives its strip. Backward recomputes the
 * probabilities from lse. Float heads are read and written where they lie in qkv; bf16 heads pass
 * through dense float copies in scratch. */

/* A head's rows: row t is at p + t * ld. */
typedef struct {
    float *p;
    size_t ld;
} head_view;

/* Rows first .. first + rows - 1 of the head at element `start` of x (rows of `width`). */
static head_view read_head(sf_dtype dt, const void *x, size_t width, size_t start, size_t first, size_t rows,
                           size_t head_dim, float *dense)
{
    if (dt == SF_F32)
        return (head_view){ (float *)x + first * width + start, width };
    for (size_t r = 0; r < rows; r++) {
        const uint16_t *xr = (const uint16_t *)x + (first + r) * width + start;
        SF_EACH(i, k, head_dim, { store_f32(dense + r * head_dim + i, k, load(SF_BF16, xr, i, k)); });
    }
    return (head_view){ dense, head_dim };
}

/* Where to compute such rows: in place, or in `dense`, for write_head to round into place. */
static head_view target_head(sf_dtype dt, void *x, size_t width, size_t start, size_t first, size_t head_dim,
                             float *dense)
{
    return dt == SF_F32 ? (head_view){ (float *)x + first * width + start, width } : (head_view){ dense, head_dim };
}

static void write_head(sf_dtype dt, head_view from, void *x, size_t width, size_t start, size_t first, size_t rows,
                       size_t head_dim)
{
    if (dt == SF_F32)
        return;
    for (size_t r = 0; r < rows; r++) {
        uint16_t *xr = (uint16_t *)x + (first + r) * width + start;
        SF_EACH(i, k, head_dim, { store(SF_BF16, xr, i, k, load_f32(from.p + r * from.ld + i, k)); });
    }
}

/* One row of scaled scores, of which the first `keys` are allowed, becomes exp(score - max), and 0
 * up to `width`. Returns their sum; *max_out gets the maximum. */
static float exponentials(float *s, size_t keys, size_t width, float *max_out)
{
    sf_vf top = splat(-INFINITY);
    SF_EACH(i, k, keys, { top = vmax(load_padded(SF_F32, s, i, k, -INFINITY), top); });
    const float max = max_lanes(top);
    sf_vf sum = { 0 };
    SF_EACH(i, k, keys, {
        sf_vf e = vexp(load_padded(SF_F32, s, i, k, -INFINITY) - max);
        store_f32(s + i, k, e);
        sum += e;
    });
    memset(s + keys, 0, (width - keys) * sizeof *s);
    *max_out = max;
    return sum_lanes(sum);
}

static void attn_fwd(sf_dtype dt, const sf_attn_dims *d, const void *qkv, void *out, float *lse, void *ws)
{
    const size_t T = d->seq_len, HD = d->head_dim, R = SF_ATTN_ROWS;
    const size_t width = (d->heads + 2 * d->kv_heads) * HD, out_width = d->heads * HD;
    const size_t group = d->heads / d->kv_heads;
    const float scale = 1.0f / sqrtf((float)HD);
    const sf_attn_ws w = sf_attn_ws_split(dt, d, ws);
    for (size_t b = 0; b < d->micro_batch; b++) {
        for (size_t g = 0; g < d->kv_heads; g++) {
            const head_view key = read_head(dt, qkv, width, (d->heads + g) * HD, b * T, T, HD, w.k);
            const head_view value = read_head(dt, qkv, width, (d->heads + d->kv_heads + g) * HD, b * T, T, HD, w.v);
            for (size_t h = g * group; h < (g + 1) * group; h++) {
                for (size_t t0 = 0; t0 < T; t0 += R) {
                    const size_t rows = t0 + R < T ? R : T - t0, keys = t0 + rows;
                    const head_view q = read_head(dt, qkv, width, h * HD, b * T + t0, rows, HD, w.q);
                    const head_view o = target_head(dt, out, out_width, h * HD, b * T + t0, HD, w.o);
                    sf_gemm_f32(false, true, rows, keys, HD, scale, q.p, q.ld, key.p, key.ld, 0, w.s, keys);
                    float inverse[SF_ATTN_ROWS];
                    for (size_t r = 0; r < rows; r++) {
                        float max;
                        const float sum = exponentials(w.s + r * keys, t0 + r + 1, keys, &max);
                        lse[(b * d->heads + h) * T + t0 + r] = max + logf(sum);
                        inverse[r] = 1.0f / sum;
                    }
                    sf_gemm_f32(false, false, rows, HD, keys, 1, w.s, keys, value.p, value.ld, 0, o.p, o.ld);
                    for (size_t r = 0; r < rows; r++)
                        SF_EACH(i, k, HD, {
                            float *y = o.p + r * o.ld + i;
                            store_f32(y, k, load_f32(y, k) * inverse[r]);
                        });
                    write_head(dt, o, out, out_width, h * HD, b * T + t0, rows, HD);
                }
            }
        }
    }
}

/* Row of scores s -> probabilities p, row of dp -> ds = p (dp - delta) scale; both 0 past `keys`. */
static void probabilities_and_slopes(float *s, float *dp, size_t keys, size_t width, float lse, float delta,
                                     float scale)
{
    SF_EACH(i, k, keys, {
        sf_vf p = vexp(load_f32(s + i, k) - lse);
        store_f32(s + i, k, p);
        store_f32(dp + i, k, p * (load_f32(dp + i, k) - delta) * scale);
    });
    memset(s + keys, 0, (width - keys) * sizeof *s);
    memset(dp + keys, 0, (width - keys) * sizeof *dp);
}

SF_INLINE float dot_body(sf_dtype dt, const void *a, const void *b, size_t start, size_t n)
{
    sf_vf sum = { 0 };
    SF_EACH(i, k, n, { sum += load(dt, a, start + i, k) * load(dt, b, start + i, k); });
    return sum_lanes(sum);
}

static void zero_head(head_view v, size_t rows, size_t head_dim)
{
    for (size_t r = 0; r < rows; r++)
        memset(v.p + r * v.ld, 0, head_dim * sizeof *v.p);
}

/* p = softmax(scale q k^T), o = p v:  dv += p^T do;  dp = do v^T;  ds = p (dp - delta) scale with
 * delta = sum(do * o) per row;  dq = ds k;  dk += ds^T q. */
static void attn_bwd(sf_dtype dt, const sf_attn_dims *d, const void *dout, const void *qkv, const void *out,
                     const float *lse, void *dqkv, void *ws)
{
    const size_t T = d->seq_len, HD = d->head_dim, R = SF_ATTN_ROWS;
    const size_t width = (d->heads + 2 * d->kv_heads) * HD, out_width = d->heads * HD;
    const size_t group = d->heads / d->kv_heads;
    const float scale = 1.0f / sqrtf((float)HD);
    const sf_attn_ws w = sf_attn_ws_split(dt, d, ws);
    for (size_t b = 0; b < d->micro_batch; b++) {
        for (size_t g = 0; g < d->kv_heads; g++) {
            const size_t k_start = (d->heads + g) * HD, v_start = (d->heads + d->kv_heads + g) * HD;
            const head_view key = read_head(dt, qkv, width, k_start, b * T, T, HD, w.k);
            const head_view value = read_head(dt, qkv, width, v_start, b * T, T, HD, w.v);
            const head_view dk = target_head(dt, dqkv, width, k_start, b * T, HD, w.dk);
            const head_view dv = target_head(dt, dqkv, width, v_start, b * T, HD, w.dv);
            zero_head(dk, T, HD);
            zero_head(dv, T, HD);
            for (size_t h = g * group; h < (g + 1) * group; h++) {
                for (size_t t0 = 0; t0 < T; t0 += R) {
                    const size_t rows = t0 + R < T ? R : T - t0, keys = t0 + rows, first = b * T + t0;
                    const head_view q = read_head(dt, qkv, width, h * HD, first, rows, HD, w.q);
                    const head_view dy = read_head(dt, dout, out_width, h * HD, first, rows, HD, w.o);
                    const head_view dq = target_head(dt, dqkv, width, h * HD, first, HD, w.dq);
                    sf_gemm_f32(false, true, rows, keys, HD, scale, q.p, q.ld, key.p, key.ld, 0, w.s, keys);
                    sf_gemm_f32(false, true, rows, keys, HD, 1, dy.p, dy.ld, value.p, value.ld, 0, w.ds, keys);
                    for (size_t r = 0; r < rows; r++) {
                        const float delta = SF_BY_DTYPE(dt, dot_body, dout, out, (first + r) * out_width + h * HD, HD);
                        probabilities_and_slopes(w.s + r * keys, w.ds + r * keys, t0 + r + 1, keys,
                                                 lse[(b * d->heads + h) * T + t0 + r], delta, scale);
                    }
                    sf_gemm_f32(true, false, keys, HD, rows, 1, w.s, keys, dy.p, dy.ld, 1, dv.p, dv.ld);
                    sf_gemm_f32(true, false, keys, HD, rows, 1, w.ds, keys, q.p, q.ld, 1, dk.p, dk.ld);
                    sf_gemm_f32(false, false, rows, HD, keys, 1, w.ds, keys, key.p, key.ld, 0, dq.p, dq.ld);
                    write_head(dt, dq, dqkv, width, h * HD, first, rows, HD);
                }
            }
            write_head(dt, dk, dqkv, width, k_start, b * T, T, HD);
            write_head(dt, dv, dqkv, width, v_start, b * T, T, HD);
        }
    }
}

void SF_ISA_NAME(sf_ops_fill_attn)(sf_host_ops *ops)
{
    ops->attn_fwd = attn_fwd;
    ops->attn_bwd = attn_bwd;
}
