/* exec/cuda/reduce.cu: sum of squares, bias gradient, gradient of the embedding. */
#include "exec/cuda/colsum.cuh"

/* ---- sum of squares: at most SUMSQ_BLOCKS partial sums, then one block adds them ---- */
namespace
{
const int SUMSQ_THREADS = 256;
const size_t SUMSQ_BLOCKS = 1024;

__device__ double block_sum(double x)
{
    SF_SHARED(double, shared, SUMSQ_THREADS / WARP);
    x = warp_sum(x);
    if (threadIdx.x % WARP == 0)
        shared[threadIdx.x / WARP] = x;
    __syncthreads();
    x = threadIdx.x < SUMSQ_THREADS / WARP ? shared[threadIdx.x] : 0.0;
    return warp_sum(x);
}

/* Squares of a pack are added in float, packs in double: 8 values lose less than 8 half-units in the last place. */
__global__ void sumsq_kernel(const void *__restrict__ x, sf_dtype dtype, size_t n, size_t packs,
                             double *__restrict__ partial)
{
    size_t step = (size_t)gridDim.x * blockDim.x, first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    double sum = 0.0;
    for (size_t i = first; i < packs; i += step) {
        float v[PACK], s = 0.0f;
        load_any(v, x, i * PACK, dtype);
#pragma unroll
        for (int k = 0; k < PACK; k++)
            s += v[k] * v[k];
        sum += (double)s;
    }
    for (size_t i = packs * PACK + first; i < n; i += step) {
        float v[1];
        load_any(v, x, i, dtype);
        sum += (double)v[0] * (double)v[0];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

__global__ void sumsq_finish_kernel(const double *__restrict__ partial, int count, double *sum, int accumulate)
{
    double total = 0.0;
    for (int i = (int)threadIdx.x; i < count; i += SUMSQ_THREADS)
        total += partial[i];
    total = block_sum(total);
    if (threadIdx.x == 0)
        *sum = (accumulate ? *sum : 0.0) + total;
}

size_t sumsq_blocks(size_t n)
{
    size_t blocks = (n + SUMSQ_THREADS * PACK - 1) / (SUMSQ_THREADS * PACK);
    return blocks < SUMSQ_BLOCKS ? blocks : SUMSQ_BLOCKS;
}
} // namespace

extern "C" size_t sf_cuda_sum_squares_ws_bytes(size_t n)
{
    return sumsq_blocks(n) * sizeof(double);
}

extern "C" int sf_cuda_sum_squares(sf_cuda_stream stream, sf_dtype dt, size_t n, const void *x, int accumulate, double *sum,
                                   void *ws)
{
    unsigned blocks = (unsigned)sumsq_blocks(n);
    if (!sf_float_dtype(dt))
        return cudaErrorInvalidValue;
    if (blocks > 0)
        SF_LAUNCH(sumsq_kernel, blocks, SUMSQ_THREADS, 0, stream, x, dt, n, sf_aligned(x) ? n / PACK : 0, (double *)ws);
    SF_LAUNCH(sumsq_finish_kernel, 1, SUMSQ_THREADS, 0, stream, (const double *)ws, (int)blocks, sum, accumulate);
    return (int)cudaGetLastError();
}

/* ---- bias gradient ---- */
namespace
{
template <typename T> struct row_terms {
    static const int SUMS = 1;
    const T *dy;
    int64_t n;
    template <int K> __device__ __forceinline__ void at(int64_t row, int64_t col, float (&term)[SUMS][K]) const
    {
        load(term[0], dy + row * n + col);
    }
};
} // namespace

extern "C" size_t sf_cuda_bias_grad_ws_bytes(size_t rows, size_t out)
{
    return sf_colsum_ws_bytes(1, (int64_t)rows, (int64_t)out);
}

extern "C" int sf_cuda_bias_grad(sf_cuda_stream stream, sf_dtype dt, sf_dtype grad_dt, size_t rows, size_t out,
                                 const void *dy, int accumulate, void *dbias, void *ws)
{
    bool packed = out % PACK == 0 && sf_aligned(dy);
    int64_t m = (int64_t)rows, n = (int64_t)out;
    if (!sf_float_dtype(grad_dt))
        return cudaErrorInvalidValue;
    SF_WITH_TYPE(dt, {
        row_terms<T> terms = { (const T *)dy, n };
        return sf_colsum(stream, terms, m, n, packed, &dbias, grad_dt, accumulate, (float *)ws);
    });
}

/* ---- gradient of the embedding ----
 * The rows are grouped by token: counts, first places (a prefix sum), rows in the order in which an integer
 * atomic hands out places, then each row's rank among its token's rows. After that every token adds its rows
 * in ascending order. Integers only decide where things go, so the sums are the same every time. */
namespace
{
const int EMBED_THREADS = 256, SCAN_THREADS = 1024;

__global__ void token_count_kernel(const int32_t *__restrict__ tokens, int64_t m, int32_t *count)
{
    int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (row < m)
        atomicAdd(&count[tokens[row]], 1);
}

/* start[v] = sum of count[0..v); start[vocab] = m. One block: each thread takes a run of tokens. */
__global__ void token_start_kernel(const int32_t *__restrict__ count, int64_t vocab, int32_t *__restrict__ start)
{
    SF_SHARED(int32_t, shared, SCAN_THREADS);
    int t = (int)threadIdx.x;
    int64_t run = (vocab + SCAN_THREADS - 1) / SCAN_THREADS, from = t * run < vocab ? t * run : vocab;
    int64_t to = from + run < vocab ? from + run : vocab;
    int32_t sum = 0;

    for (int64_t v = from; v < to; v++)
        sum += count[v];
    shared[t] = sum;
    __syncthreads();
    for (int step = 1; step < SCAN_THREADS; step *= 2) { /* inclusive prefix sums, Hillis and Steele */
        int32_t before = t >= step ? shared[t - step] : 0;
        __syncthreads();
        shared[t] += before;
        __syncthreads();
    }
    int32_t place = shared[t] - sum;
    for (int64_t v = from; v < to; v++) {
        start[v] = place;
        place += count[v];
    }
    if (t == SCAN_THREADS - 1)
        start[vocab] = shared[t];
}

/* Uses up `count`, handing out places from the back. */
__global__ void token_place_kernel(const int32_t *__restrict__ tokens, int64_t m, int32_t *count,
                                   const int32_t *__restrict__ start, int32_t *__restrict__ placed)
{
    int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (row < m)
        placed[start[tokens[row]] + atomicAdd(&count[tokens[row]], -1) - 1] = (int32_t)row;
}

__global__ void token_rank_kernel(const int32_t *__restrict__ tokens, int64_t m, const int32_t *__restrict__ start,
                                  const int32_t *__restrict__ placed, int32_t *__restrict__ sorted)
{
    int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= m)
        return;
    int32_t from = start[tokens[row]], to = start[tokens[row] + 1], rank = 0;
    for (int32_t i = from; i < to; i++)
        rank += placed[i] < row;
    sorted[from + rank] = (int32_t)row;
}

template <typename T, int K>
__global__ void token_sum_kernel(const T *__restrict__ dx, const int32_t *__restrict__ start,
                                 const int32_t *__restrict__ sorted, void *dwte, sf_dtype grad_dtype, int accumulate,
                                 int64_t n)
{
    int64_t token = blockIdx.x, col = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * K;
    int32_t from = start[token], to = start[token + 1];
    float sum[K], v[K];

    if (col >= n || (from == to && accumulate))
        return;
#pragma unroll
    for (int k = 0; k < K; k++)
        sum[k] = 0.0f;
#pragma unroll 4
    for (int32_t i = from; i < to; i++) {
        load(v, dx + (int64_t)sorted[i] * n + col);
#pragma unroll
        for (int k = 0; k < K; k++)
            sum[k] += v[k];
    }
    if (accumulate)
        add_any(dwte, (size_t)(token * n + col), grad_dtype, sum);
    else
        store_any(dwte, (size_t)(token * n + col), grad_dtype, sum);
}

/* dwpe[t] = sum over the sequences of dx[sequence * seq + t]; element i of (seq, n). */
template <typename T> struct position_sum_each {
    const T *dx;
    void *dwpe;
    sf_dtype grad_dtype;
    int accumulate;
    int64_t m, n, seq;
    template <int K> __device__ __forceinline__ void at(size_t i) const
    {
        float sum[K], v[K];
#pragma unroll
        for (int k = 0; k < K; k++)
            sum[k] = 0.0f;
        for (size_t at = i; at < (size_t)m * (size_t)n; at += (size_t)seq * (size_t)n) {
            load(v, dx + at);
#pragma unroll
            for (int k = 0; k < K; k++)
                sum[k] += v[k];
        }
        if (accumulate)
            add_any(dwpe, i, grad_dtype, sum);
        else
            store_any(dwpe, i, grad_dtype, sum);
    }
};

template <typename T, int K>
int token_sum(sf_cuda_stream stream, const void *dx, const int32_t *start, const int32_t *sorted, void *dwte,
              sf_dtype grad_dtype, int accumulate, int64_t n, int64_t vocab)
{
    const int64_t threads = 128;
    dim3 grid((unsigned)vocab, (unsigned)((n + threads * K - 1) / (threads * K)));
    SF_LAUNCH((token_sum_kernel<T, K>), grid, (unsigned)threads, 0, stream, (const T *)dx, start, sorted, dwte, grad_dtype,
              accumulate, n);
    return (int)cudaGetLastError();
}
} // namespace

extern "C" size_t sf_cuda_embed_bwd_ws_bytes(size_t rows, size_t vocab)
{
    return sizeof(int32_t) * (2 * vocab + 1 + 2 * rows);
}

extern "C" int sf_cuda_embed_bwd(sf_cuda_stream stream, sf_dtype dt, sf_dtype grad_dt, size_t rows, size_t seq_len,
                                 size_t hidden, size_t vocab, const int32_t *tokens, const void *dout, int accumulate_wte,
                                 void *dwte, int accumulate_wpe, void *dwpe, void *ws)
{
    int32_t *count = (int32_t *)ws, *start = count + vocab, *placed = start + vocab + 1, *sorted = placed + rows;
    unsigned blocks = (unsigned)((rows + EMBED_THREADS - 1) / EMBED_THREADS);
    int64_t m = (int64_t)rows, n = (int64_t)hidden, v = (int64_t)vocab;
    bool packed = hidden % PACK == 0 && sf_aligned(dout);

    if (!sf_float_dtype(dt) || !sf_float_dtype(grad_dt) || rows > INT32_MAX || vocab == 0 || vocab > INT32_MAX ||
        seq_len == 0 || rows % seq_len != 0)
        return cudaErrorInvalidValue;
    if (hidden == 0)
        return cudaSuccess;
    int error = (int)cudaMemsetAsync(count, 0, sizeof(int32_t) * vocab, stream);
    if (error != 0)
        return error;
    if (blocks > 0)
        SF_LAUNCH(token_count_kernel, blocks, EMBED_THREADS, 0, stream, tokens, m, count);
    SF_LAUNCH(token_start_kernel, 1, SCAN_THREADS, 0, stream, count, v, start);
    if (blocks > 0) {
        SF_LAUNCH(token_place_kernel, blocks, EMBED_THREADS, 0, stream, tokens, m, count, start, placed);
        SF_LAUNCH(token_rank_kernel, blocks, EMBED_THREADS, 0, stream, tokens, m, start, placed, sorted);
    }
    SF_WITH_TYPE(dt, {
        error = packed && sf_aligned(dwte)
                    ? token_sum<T, PACK>(stream, dout, start, sorted, dwte, grad_dt, accumulate_wte, n, v)
                    : token_sum<T, 1>(stream, dout, start, sorted, dwte, grad_dt, accumulate_wte, n, v);
        if (error != 0 || dwpe == NULL)
            return error;
        position_sum_each<T> f = { (const T *)dout, dwpe, grad_dt, accumulate_wpe, m, n, (int64_t)seq_len };
        return sf_launch_each(stream, f, seq_len * hidden, packed && sf_aligned(dwpe));
    });
}
