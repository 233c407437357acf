/* exec/cuda/norm.cu: layer norm and RMS norm, one warp per row.
 *
 * A row is read up to three times; after the first it comes from the L1 cache. The gradients of the
 * weights are column sums (colsum.cuh).
 */
#include "exec/cuda/colsum.cuh"

namespace
{
const int ROWS_PER_BLOCK = 4;

/* y = (x - mean) * rstd * w + b, with mean 0 for RMS; var is the mean of (x - mean)^2. */
template <typename T, int K, bool RMS>
__global__ void norm_fwd_kernel(const T *__restrict__ x, const void *__restrict__ w, const void *__restrict__ b,
                                sf_dtype param_dtype, T *__restrict__ y, float *__restrict__ means,
                                float *__restrict__ rstds, int64_t m, int64_t n, float eps)
{
    int64_t row = (int64_t)blockIdx.x * ROWS_PER_BLOCK + threadIdx.y, first = (int64_t)threadIdx.x * K;
    const T *xr = x + row * n;
    float mean = 0.0f, sum = 0.0f, v[K], wv[K], bv[K];

    if (row >= m)
        return;
    if (!RMS) {
        for (int64_t c = first; c < n; c += WARP * K) {
            load(v, xr + c);
#pragma unroll
            for (int k = 0; k < K; k++)
                sum += v[k];
        }
        mean = warp_sum(sum) / (float)n;
        sum = 0.0f;
    }
    for (int64_t c = first; c < n; c += WARP * K) {
        load(v, xr + c);
#pragma unroll
        for (int k = 0; k < K; k++)
            sum += (v[k] - mean) * (v[k] - mean);
    }
    float rstd = rsqrtf(warp_sum(sum) / (float)n + eps);
    if (threadIdx.x == 0) {
        means[row] = mean;
        rstds[row] = rstd;
    }
    for (int64_t c = first; c < n; c += WARP * K) {
        load(v, xr + c);
        load_any(wv, w, (size_t)c, param_dtype);
#pragma unroll
        for (int k = 0; k < K; k++)
            v[k] = (v[k] - mean) * rstd * wv[k];
        if (b != NULL) {
            load_any(bv, b, (size_t)c, param_dtype);
#pragma unroll
            for (int k = 0; k < K; k++)
                v[k] += bv[k];
        }
        store(y + row * n + c, v);
    }
}

/* With h = (x - mean) * rstd and g = dy * w:  dx (+)= rstd * (g - mean(g) - h * mean(g h)); RMS has no mean(g). */
template <typename T, int K, bool RMS>
__global__ void norm_bwd_kernel(const T *__restrict__ dy, const T *__restrict__ x, const void *__restrict__ w,
                                sf_dtype param_dtype, const float *__restrict__ means, const float *__restrict__ rstds,
                                int accumulate, T *__restrict__ dx, int64_t m, int64_t n)
{
    int64_t row = (int64_t)blockIdx.x * ROWS_PER_BLOCK + threadIdx.y, first = (int64_t)threadIdx.x * K;
    float sum_g = 0.0f, sum_gh = 0.0f, g[K], h[K], wv[K];

    if (row >= m)
        return;
    float mean = RMS ? 0.0f : means[row], rstd = rstds[row];
    for (int64_t c = first; c < n; c += WARP * K) {
        load(g, dy + row * n + c);
        load(h, x + row * n + c);
        load_any(wv, w, (size_t)c, param_dtype);
#pragma unroll
        for (int k = 0; k < K; k++) {
            float gk = g[k] * wv[k];
            sum_g += gk;
            sum_gh += gk * (h[k] - mean) * rstd;
        }
    }
    sum_g = RMS ? 0.0f : warp_sum(sum_g) / (float)n;
    sum_gh = warp_sum(sum_gh) / (float)n;
    for (int64_t c = first; c < n; c += WARP * K) {
        float d[K];
        load(g, dy + row * n + c);
        load(h, x + row * n + c);
        load_any(wv, w, (size_t)c, param_dtype);
#pragma unroll
        for (int k = 0; k < K; k++)
            d[k] = 0.0f;
        if (accumulate)
            load(d, dx + row * n + c);
#pragma unroll
        for (int k = 0; k < K; k++)
            d[k] += rstd * (g[k] * wv[k] - sum_g - (h[k] - mean) * rstd * sum_gh);
        store(dx + row * n + c, d);
    }
}

/* The terms of dw (dy * h) and db (dy). */
template <typename T> struct norm_weight_terms {
    static const int SUMS = 2;
    const T *dy, *x;
    const float *means, *rstds;
    int64_t n;
    template <int K> __device__ __forceinline__ void at(int64_t row, int64_t col, float (&term)[SUMS][K]) const
    {
        float mean = means[row], rstd = rstds[row];
        load(term[1], dy + row * n + col);
        load(term[0], x + row * n + col);
#pragma unroll
        for (int k = 0; k < K; k++)
            term[0][k] = term[1][k] * (term[0][k] - mean) * rstd;
    }
};

dim3 grid_of(int64_t m)
{
    return dim3((unsigned)((m + ROWS_PER_BLOCK - 1) / ROWS_PER_BLOCK));
}
template <typename T, int K, bool RMS>
int norm_fwd(sf_cuda_stream stream, sf_dtype param_dt, int64_t m, int64_t n, const void *x, const void *w, const void *b,
             float eps, void *y, float *mean, float *rstd)
{
    SF_LAUNCH((norm_fwd_kernel<T, K, RMS>), grid_of(m), dim3(WARP, ROWS_PER_BLOCK), 0, stream, (const T *)x, w, b, param_dt,
              (T *)y, mean, rstd, m, n, eps);
    return (int)cudaGetLastError();
}
template <typename T, int K, bool RMS>
int norm_bwd_x(sf_cuda_stream stream, sf_dtype param_dt, int64_t m, int64_t n, const void *dy, const void *x, const void *w,
               const float *mean, const float *rstd, int accumulate, void *dx)
{
    SF_LAUNCH((norm_bwd_kernel<T, K, RMS>), grid_of(m), dim3(WARP, ROWS_PER_BLOCK), 0, stream, (const T *)dy, (const T *)x,
              w, param_dt, mean, rstd, accumulate, (T *)dx, m, n);
    return (int)cudaGetLastError();
}
bool takes(sf_dtype param_dt, sf_op_norm kind, size_t rows, size_t hidden)
{
    return sf_float_dtype(param_dt) && (kind == SF_OP_NORM_LAYER || kind == SF_OP_NORM_RMS) && rows <= INT32_MAX &&
           hidden > 0;
}
} // namespace

extern "C" int sf_cuda_norm_fwd(sf_cuda_stream stream, sf_dtype dt, sf_dtype param_dt, sf_op_norm kind, size_t rows,
                                size_t hidden, const void *x, const void *weight, const void *bias, float eps, void *y,
                                float *mean, float *rstd)
{
    bool packed = hidden % PACK == 0 && sf_aligned(x) && sf_aligned(weight) && sf_aligned(bias) && sf_aligned(y);
    int64_t m = (int64_t)rows, n = (int64_t)hidden;
    if (!takes(param_dt, kind, rows, hidden))
        return cudaErrorInvalidValue;
    if (rows == 0)
        return cudaSuccess;
    SF_WITH_TYPE(dt, {
        if (kind == SF_OP_NORM_RMS)
            return packed ? norm_fwd<T, PACK, true>(stream, param_dt, m, n, x, weight, bias, eps, y, mean, rstd)
                          : norm_fwd<T, 1, true>(stream, param_dt, m, n, x, weight, bias, eps, y, mean, rstd);
        return packed ? norm_fwd<T, PACK, false>(stream, param_dt, m, n, x, weight, bias, eps, y, mean, rstd)
                      : norm_fwd<T, 1, false>(stream, param_dt, m, n, x, weight, bias, eps, y, mean, rstd);
    });
}

extern "C" size_t sf_cuda_norm_bwd_ws_bytes(size_t rows, size_t hidden)
{
    return sf_colsum_ws_bytes(2, (int64_t)rows, (int64_t)hidden);
}

extern "C" int sf_cuda_norm_bwd(sf_cuda_stream stream, sf_dtype dt, sf_dtype param_dt, sf_dtype grad_dt, sf_op_norm kind,
                                size_t rows, size_t hidden, const void *dy, const void *x, const void *weight,
                                const float *mean, const float *rstd, int accumulate_dx, void *dx, int accumulate_dw,
                                void *dweight, void *dbias, void *ws)
{
    bool packed = hidden % PACK == 0 && sf_aligned(dy) && sf_aligned(x) && sf_aligned(weight) && sf_aligned(dx);
    int64_t m = (int64_t)rows, n = (int64_t)hidden;
    if (!takes(param_dt, kind, rows, hidden) || !sf_float_dtype(grad_dt))
        return cudaErrorInvalidValue;
    SF_WITH_TYPE(dt, {
        norm_weight_terms<T> terms = { (const T *)dy, (const T *)x, mean, rstd, n };
        void *sums[2] = { dweight, dbias };
        int error = sf_colsum(stream, terms, m, n, packed, sums, grad_dt, accumulate_dw, (float *)ws);
        if (error != 0 || rows == 0)
            return error;
        if (kind == SF_OP_NORM_RMS)
            return packed ? norm_bwd_x<T, PACK, true>(stream, param_dt, m, n, dy, x, weight, mean, rstd, accumulate_dx, dx)
                          : norm_bwd_x<T, 1, true>(stream, param_dt, m, n, dy, x, weight, mean, rstd, accumulate_dx, dx);
        return packed ? norm_bwd_x<T, PACK, false>(stream, param_dt, m, n, dy, x, weight, mean, rstd, accumulate_dx, dx)
                      : norm_bwd_x<T, 1, false>(stream, param_dt, m, n, dy, x, weight, mean, rstd, accumulate_dx, dx);
    });
}
