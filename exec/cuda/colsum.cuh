/* exec/cuda/colsum.cuh: sums over the rows of (m, n) terms, the same bits every time.
 *
 * The rows are cut into chunks, their number depending on m alone. A block of 32 x 8 threads sums a
 * chunk of 32 * K columns into the scratch (sums, chunks, n); a second kernel adds the chunks in order.
 */
#ifndef SF_EXEC_CUDA_COLSUM_CUH
#define SF_EXEC_CUDA_COLSUM_CUH

#include "exec/cuda/device.cuh"

static const int COLSUM_ROWS = 8;
static const int64_t COLSUM_MIN_CHUNK = 64, COLSUM_MAX_CHUNKS = 64;

static inline int64_t sf_colsum_chunks(int64_t m)
{
    int64_t chunks = (m + COLSUM_MIN_CHUNK - 1) / COLSUM_MIN_CHUNK;
    return chunks < COLSUM_MAX_CHUNKS ? chunks : COLSUM_MAX_CHUNKS;
}
static inline size_t sf_colsum_ws_bytes(int sums, int64_t m, int64_t n)
{
    return sizeof(float) * (size_t)sums * (size_t)sf_colsum_chunks(m) * (size_t)n;
}

template <typename F, int K>
static __global__ void colsum_kernel(F terms, int64_t m, int64_t n, int64_t chunk_rows, float *__restrict__ partial)
{
    SF_SHARED(float, shared, COLSUM_ROWS * WARP * K);
    int64_t col = ((int64_t)blockIdx.x * WARP + threadIdx.x) * K, row0 = (int64_t)blockIdx.y * chunk_rows;
    int64_t end = row0 + chunk_rows < m ? row0 + chunk_rows : m;
    float sum[F::SUMS][K], term[F::SUMS][K];

#pragma unroll
    for (int s = 0; s < F::SUMS; s++)
#pragma unroll
        for (int k = 0; k < K; k++)
            sum[s][k] = 0.0f;
    if (col < n)
        for (int64_t row = row0 + threadIdx.y; row < end; row += COLSUM_ROWS) {
            terms.at(row, col, term);
#pragma unroll
            for (int s = 0; s < F::SUMS; s++)
#pragma unroll
                for (int k = 0; k < K; k++)
                    sum[s][k] += term[s][k];
        }
#pragma unroll
    for (int s = 0; s < F::SUMS; s++) {
        if (s > 0)
            __syncthreads();
#pragma unroll
        for (int k = 0; k < K; k++)
            shared[(threadIdx.y * WARP + threadIdx.x) * K + k] = sum[s][k];
        __syncthreads();
        for (int c = (int)(threadIdx.y * WARP + threadIdx.x); c < WARP * K; c += WARP * COLSUM_ROWS) {
            int64_t at = (int64_t)blockIdx.x * WARP * K + c;
            float total = 0.0f;
#pragma unroll
            for (int r = 0; r < COLSUM_ROWS; r++)
                total += shared[r * WARP * K + c];
            if (at < n)
                partial[((int64_t)s * gridDim.y + blockIdx.y) * n + at] = total;
        }
    }
}

static __global__ void colsum_finish_kernel(const float *__restrict__ partial, int chunks, int64_t n, void *out,
                                            sf_dtype dtype, int accumulate)
{
    int64_t col = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    float total[1] = { 0.0f };
    if (col >= n)
        return;
    for (int c = 0; c < chunks; c++)
        total[0] += partial[(int64_t)c * n + col];
    if (accumulate)
        add_any(out, (size_t)col, dtype, total);
    else
        store_any(out, (size_t)col, dtype, total);
}

/* out[s] (n) gets sum s unless it is NULL; `packed`: terms.at<PACK> may be used. */
template <typename F>
static int sf_colsum(sf_cuda_stream stream, const F &terms, int64_t m, int64_t n, bool packed, void *const *out,
                     sf_dtype out_dtype, int accumulate, float *ws)
{
    int64_t chunks = sf_colsum_chunks(m), per_block = packed ? WARP * PACK : WARP;
    if (n == 0)
        return cudaSuccess;
    if (m > 0) {
        dim3 grid((unsigned)((n + per_block - 1) / per_block), (unsigned)chunks), block(WARP, COLSUM_ROWS);
        int64_t chunk_rows = (m + chunks - 1) / chunks;
        if (packed)
            SF_LAUNCH((colsum_kernel<F, PACK>), grid, block, 0, stream, terms, m, n, chunk_rows, ws);
        else
            SF_LAUNCH((colsum_kernel<F, 1>), grid, block, 0, stream, terms, m, n, chunk_rows, ws);
    }
    for (int s = 0; s < F::SUMS; s++)
        if (out[s] != NULL) {
            const unsigned threads = 128;
            SF_LAUNCH(colsum_finish_kernel, (unsigned)((n + threads - 1) / threads), threads, 0, stream,
                      ws + s * chunks * n, (int)chunks, n, out[s], out_dtype, accumulate);
        }
    return (int)cudaGetLastError();
}

#endif
