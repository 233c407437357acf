#include "exec/host/ops_simd.h"

SF_INLINE void add_body(sf_dtype dt, size_t n, const void *a, const void *b, void *out)
{
    SF_EACH(i, k, n, { store(dt, out, i, k, load(dt, a, i, k) + load(dt, b, i, k)); });
}

static void add(sf_dtype dt, size_t n, const void *a, const void *b, void *out)
{
    SF_BY_DTYPE(dt, add_body, n, a, b, out);
}

static void accumulate(sf_dtype dt, size_t n, const void *src, void *dst)
{
    SF_BY_DTYPE(dt, add_body, n, dst, src, dst);
}

SF_INLINE void scale_body(sf_dtype dt, size_t n, float factor, void *x)
{
    SF_EACH(i, k, n, { store(dt, x, i, k, load(dt, x, i, k) * factor); });
}

static void scale(sf_dtype dt, size_t n, float factor, void *x)
{
    SF_BY_DTYPE(dt, scale_body, n, factor, x);
}

static void copy(sf_dtype dt, size_t n, const void *src, void *dst)
{
    memcpy(dst, src, n * sf_dtype_bytes(dt));
}

static void zero(sf_dtype dt, size_t n, void *dst)
{
    memset(dst, 0, n * sf_dtype_bytes(dt));
}

static void cast(sf_dtype from, sf_dtype to, size_t n, const void *src, void *dst)
{
    if (from == to)
        copy(from, n, src, dst);
    else if (from == SF_F32)
        SF_EACH(i, k, n, { store(SF_BF16, dst, i, k, load(SF_F32, src, i, k)); });
    else
        SF_EACH(i, k, n, { store(SF_F32, dst, i, k, load(SF_BF16, src, i, k)); });
}

typedef double vd_half __attribute__((vector_size(4 * SF_LANES)));
typedef float vf_half __attribute__((vector_size(2 * SF_LANES)));

SF_INLINE double sum_squares_body(sf_dtype dt, size_t n, const void *x)
{
    vd_half sum_lo = { 0 }, sum_hi = { 0 };
    SF_EACH(i, k, n, {
        sf_vf v = load(dt, x, i, k);
        vf_half lo;
        vf_half hi;
        memcpy(&lo, &v, sizeof lo);
        memcpy(&hi, (char *)&v + sizeof lo, sizeof hi);
        vd_half dlo = __builtin_convertvector(lo, vd_half);
        vd_half dhi = __builtin_convertvector(hi, vd_half);
        sum_lo += dlo * dlo;
        sum_hi += dhi * dhi;
    });
    vd_half sum = sum_lo + sum_hi;
    double s = 0;
    for (int l = 0; l < SF_LANES / 2; l++)
        s += sum[l];
    return s;
}

static double sum_squares(sf_dtype dt, size_t n, const void *x)
{
    return SF_BY_DTYPE(dt, sum_squares_body, n, x);
}

/* The step's factors, computed once in double. */
typedef struct {
    float keep;            /* 1 - lr * weight_decay          */
    float size;            /* lr / (1 - beta1^step)          */
    float inv_sqrt_bias2;  /* 1 / sqrt(1 - beta2^step)       */
    float b1, one_minus_b1, b2, one_minus_b2, eps, grad_scale;
} adamw_factors;

SF_INLINE void adamw_body(sf_dtype grad_dt, sf_dtype param_dt, const adamw_factors *f, size_t n,
                          const void *grad, float *master, float *m, float *v, void *param)
{
    const adamw_factors c = *f;
    SF_EACH(i, k, n, {
        sf_vf g = load(grad_dt, grad, i, k) * c.grad_scale;
        sf_vf mi = load_f32(m + i, k) * c.b1 + g * c.one_minus_b1;
        sf_vf vi = load_f32(v + i, k) * c.b2 + g * g * c.one_minus_b2;
        sf_vf p = load_f32(master + i, k) * c.keep - c.size * mi / (vsqrt(vi) * c.inv_sqrt_bias2 + c.eps);
        store_f32(m + i, k, mi);
        store_f32(v + i, k, vi);
        store_f32(master + i, k, p);
        if (param != NULL)
            store(param_dt, param, i, k, p);
    });
}

static void adamw(const sf_adamw *step, size_t n, sf_dtype grad_dt, const void *grad, float *master,
                  float *m, float *v, sf_dtype param_dt, void *param)
{
    const adamw_factors f = {
        .keep = (float)(1 - step->lr * step->weight_decay),
        .size = (float)(step->lr / (1 - pow(step->beta1, (double)step->step))),
        .inv_sqrt_bias2 = (float)(1 / sqrt(1 - pow(step->beta2, (double)step->step))),
        .b1 = (float)step->beta1,
        .one_minus_b1 = (float)(1 - step->beta1),
        .b2 = (float)step->beta2,
        .one_minus_b2 = (float)(1 - step->beta2),
        .eps = (float)step->eps,
        .grad_scale = (float)step->grad_scale,
    };
    if (param == master)
        param = NULL;
    if (param == NULL)
        SF_BY_DTYPE(grad_dt, adamw_body, SF_F32, &f, n, grad, master, m, v, NULL);
    else if (param_dt == SF_F32)
        SF_BY_DTYPE(grad_dt, adamw_body, SF_F32, &f, n, grad, master, m, v, param);
    else
        SF_BY_DTYPE(grad_dt, adamw_body, SF_BF16, &f, n, grad, master, m, v, param);
}

void SF_ISA_NAME(sf_ops_fill_elementwise)(sf_host_ops *ops)
{
    ops->add = add;
    ops->accumulate = accumulate;
    ops->scale = scale;
    ops->cast = cast;
    ops->copy = copy;
    ops->zero = zero;
    ops->sum_squares = sum_squares;
    ops->adamw = adamw;
}
