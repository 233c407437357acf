#include "exec/host/ops_simd.h"

/* Two passes for the variance (mean first), as it loses nothing to cancellation. */
SF_INLINE void fwd_body(sf_dtype dt, sf_op_norm kind, size_t rows, size_t hidden, const void *x,
                        const void *weight, const void *bias, float eps, void *y, float *mean, float *rstd)
{
    const float inv_n = 1.0f / (float)hidden;
    for (size_t r = 0; r < rows; r++) {
        const void *xr = at(dt, x, r * hidden);
        void *yr = at_mut(dt, y, r * hidden);
        float mu = 0;
        if (kind == SF_OP_NORM_LAYER) {
            sf_vf sum = { 0 };
            SF_EACH(i, k, hidden, { sum += load(dt, xr, i, k); });
            mu = sum_lanes(sum) * inv_n;
        }
        sf_vf squares = { 0 };
        SF_EACH(i, k, hidden, {
            sf_vf d = load_padded(dt, xr, i, k, mu) - mu;
            squares += d * d;
        });
        const float rs = 1.0f / sqrtf(sum_lanes(squares) * inv_n + eps);
        if (bias != NULL)
            SF_EACH(i, k, hidden, {
                sf_vf v = (load(dt, xr, i, k) - mu) * rs;
                store(dt, yr, i, k, v * load(dt, weight, i, k) + load(dt, bias, i, k));
            });
        else
            SF_EACH(i, k, hidden, {
                sf_vf v = (load(dt, xr, i, k) - mu) * rs;
                store(dt, yr, i, k, v * load(dt, weight, i, k));
            });
        mean[r] = mu;
        rstd[r] = rs;
    }
}

static void norm_fwd(sf_dtype dt, sf_op_norm kind, size_t rows, size_t hidden, const void *x, const void *weight,
                     const void *bias, float eps, void *y, float *mean, float *rstd)
{
    SF_BY_DTYPE(dt, fwd_body, kind, rows, hidden, x, weight, bias, eps, y, mean, rstd);
}

/* With xhat = (x - mean) rstd and g = dy * weight:
 *   dx = rstd (g - mean(g) - xhat mean(g xhat)), without mean(g) for RMSNorm;
 *   dweight = sum over rows of dy xhat; dbias = sum over rows of dy (in float, in ws).        */
SF_INLINE void bwd_body(sf_dtype dt, sf_op_norm kind, size_t rows, size_t hidden, const void *dy, const void *x,
                        const void *weight, const float *mean, const float *rstd, bool accumulate_dx, void *dx,
                        bool accumulate_dw, void *dweight, void *dbias, void *ws)
{
    const float inv_n = 1.0f / (float)hidden;
    float *dw = ws, *db = dw + hidden;
    memset(ws, 0, 2 * hidden * sizeof *dw);
    for (size_t r = 0; r < rows; r++) {
        const void *dyr = at(dt, dy, r * hidden), *xr = at(dt, x, r * hidden);
        void *dxr = at_mut(dt, dx, r * hidden);
        const float mu = mean[r], rs = rstd[r];
        sf_vf sum_g = { 0 }, sum_gx = { 0 };
        SF_EACH(i, k, hidden, {
            sf_vf d = load(dt, dyr, i, k);
            sf_vf xhat = (load(dt, xr, i, k) - mu) * rs;
            sf_vf g = d * load(dt, weight, i, k);
            sum_g += g;
            sum_gx += g * xhat;
            store_f32(dw + i, k, load_f32(dw + i, k) + d * xhat);
            if (dbias != NULL)
                store_f32(db + i, k, load_f32(db + i, k) + d);
        });
        const float mean_g = kind == SF_OP_NORM_LAYER ? sum_lanes(sum_g) * inv_n : 0;
        const float mean_gx = sum_lanes(sum_gx) * inv_n;
        SF_EACH(i, k, hidden, {
            sf_vf xhat = (load(dt, xr, i, k) - mu) * rs;
            sf_vf g = load(dt, dyr, i, k) * load(dt, weight, i, k);
            sf_vf d = (g - mean_g - xhat * mean_gx) * rs;
            store(dt, dxr, i, k, accumulate_dx ? load(dt, dxr, i, k) + d : d);
        });
    }
    SF_EACH(i, k, hidden, {
        sf_vf d = load_f32(dw + i, k);
        store(dt, dweight, i, k, accumulate_dw ? load(dt, dweight, i, k) + d : d);
    });
    if (dbias != NULL)
        SF_EACH(i, k, hidden, {
            sf_vf d = load_f32(db + i, k);
            store(dt, dbias, i, k, accumulate_dw ? load(dt, dbias, i, k) + d : d);
        });
}

static void norm_bwd(sf_dtype dt, sf_op_norm kind, size_t rows, size_t hidden, const void *dy, const void *x,
                     const void *weight, const float *mean, const float *rstd, bool accumulate_dx, void *dx,
                     bool accumulate_dw, void *dweight, void *dbias, void *ws)
{
    SF_BY_DTYPE(dt, bwd_body, kind, rows, hidden, dy, x, weight, mean, rstd, accumulate_dx, dx, accumulate_dw,
                dweight, dbias, ws);
}

void SF_ISA_NAME(sf_ops_fill_norm)(sf_host_ops *ops)
{
    ops->norm_fwd = norm_fwd;
    ops->norm_bwd = norm_bwd;
}
