/* exec/cuda/attention_mma.cu: causal attention on tensor cores, forward and backward.
 *
 * Four warps a block; a warp owns 16 * MT rows of the block's tile for the whole kernel, with their sums
 * in registers, and walks over tiles of the other side in shared memory, copied asynchronously.
 */
#include "exec/cuda/attention.cuh"
#include "exec/cuda/mma.cuh"

namespace
{
const int WARPS = 4, THREADS = WARPS * WARP;

/* Sum and maximum over the four lanes that hold a row of an accumulator. */
__device__ __forceinline__ float quad_sum(float x)
{
    x += __shfl_xor_sync(FULL_WARP, x, 1);
    return x + __shfl_xor_sync(FULL_WARP, x, 2);
}
__device__ __forceinline__ float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(FULL_WARP, x, 1));
    return fmaxf(x, __shfl_xor_sync(FULL_WARP, x, 2));
}

/* In scores of queries (rows) and keys (columns): replaces those of keys after their query. */
template <int MT, int NT>
__device__ __forceinline__ void mask_later(float (&w)[MT][NT][4], int ahead, float by)
{
    const int g = (int)threadIdx.x % WARP / 4, t = (int)threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (n * MMA_N + 2 * t + e % 2 > ahead + i * MMA_M + g + 8 * (e / 2))
                    w[i][n][e] = by;
}

/* ---- forward: MT * 64 queries against tiles of NT * 8 keys ---- */
template <int D> struct fwd_tile {
    static const int MT = 2, QUERIES = WARPS * MT * MMA_M, KEYS = D == 64 ? 64 : 32, NT = KEYS / 8;
    static const int SHARED_BYTES = (QUERIES + 2 * KEYS) * D * 2;
};

template <typename T, int D>
__global__ void __launch_bounds__(THREADS)
    fwd_kernel(const T *__restrict__ qkv, T *__restrict__ out, float *__restrict__ lse, attn_shape s)
{
    typedef fwd_tile<D> tile;
    SF_SHARED_DYNAMIC(shared);
    T *q_tile = (T *)shared, *k_tile = q_tile + tile::QUERIES * D, *v_tile = k_tile + tile::KEYS * D;

    const attn_place at = place_of(blockIdx.x, (s.seq + tile::QUERIES - 1) / tile::QUERIES, s.heads, true);
    const int64_t q0 = at.tile * tile::QUERIES, row_elems = qkv_row_elems(s);
    const int kv_head = at.head / (s.heads / s.kv_heads);
    const T *base = qkv + at.batch * s.seq * row_elems;
    const T *q = base + q0 * row_elems + (int64_t)at.head * D;
    const T *k = base + (int64_t)(s.heads + kv_head) * D, *v = k + (int64_t)s.kv_heads * D;

    const int64_t q_end = q0 + tile::QUERIES < s.seq ? q0 + tile::QUERIES : s.seq;
    const int key_tiles = (int)((q_end + tile::KEYS - 1) / tile::KEYS);
    const int warp_row = (int)threadIdx.x / WARP * tile::MT * MMA_M, g = (int)threadIdx.x % WARP / 4, t = (int)threadIdx.x % 4;
    const float scale = rsqrtf((float)D), scale_log2 = scale * LOG2_E;

    float acc[tile::MT][D / 8][4], row_max[tile::MT][2], row_sum[tile::MT][2];
    clear(acc);
#pragma unroll
    for (int i = 0; i < tile::MT; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            row_max[i][half] = -INFINITY;
            row_sum[i][half] = 0.0f;
        }

    tile_copy<tile::QUERIES, D, THREADS>(q_tile, q, row_elems, s.seq - q0);
    tile_copy<tile::KEYS, D, THREADS>(k_tile, k, row_elems, s.seq);
    cp_async_commit();
    for (int j = 0; j < key_tiles; j++) {
        const int64_t k0 = (int64_t)j * tile::KEYS;
        const bool sees = k0 <= q0 + warp_row + tile::MT * MMA_M - 1; /* some row of the warp sees some key */
        float w[tile::MT][tile::NT][4];

        cp_async_wait<0>(); /* keys j are there, and all warps are done with values j - 1 */
        __syncthreads();
        tile_copy<tile::KEYS, D, THREADS>(v_tile, v + k0 * row_elems, row_elems, s.seq - k0);
        cp_async_commit();
        if (sees) {
            clear(w);
            mma_rows_rows<D>(w, q_tile, warp_row, k_tile);
        }
        cp_async_wait<0>(); /* values j are there, and all warps are done with keys j */
        __syncthreads();
        if (j + 1 < key_tiles)
            tile_copy<tile::KEYS, D, THREADS>(k_tile, k + (k0 + tile::KEYS) * row_elems, row_elems,
                                              s.seq - k0 - tile::KEYS);
        cp_async_commit();
        if (!sees)
            continue;

        const int ahead = (int)(q0 + warp_row - k0); /* of the warp's first query, seen from the first key */
        if (ahead < tile::KEYS - 1)
            mask_later<tile::MT, tile::NT>(w, ahead, -INFINITY);
#pragma unroll
        for (int i = 0; i < tile::MT; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float most = row_max[i][half];
#pragma unroll
                for (int n = 0; n < tile::NT; n++)
                    most = fmaxf(most, fmaxf(w[i][n][2 * half], w[i][n][2 * half + 1]));
                most = quad_max(most);
                const float shrink = exp2_fast((row_max[i][half] - most) * scale_log2);
                float sum = 0.0f;
                row_max[i][half] = most;
#pragma unroll
                for (int n = 0; n < tile::NT; n++)
#pragma unroll
                    for (int e = 2 * half; e < 2 * half + 2; e++) {
                        w[i][n][e] = exp2_fast((w[i][n][e] - most) * scale_log2);
                        sum += w[i][n][e];
                    }
                row_sum[i][half] = row_sum[i][half] * shrink + sum;
#pragma unroll
                for (int n = 0; n < D / 8; n++) {
                    acc[i][n][2 * half] *= shrink;
                    acc[i][n][2 * half + 1] *= shrink;
                }
            }
        mma_weights_rows<D>(acc, w, v_tile);
    }

#pragma unroll
    for (int i = 0; i < tile::MT; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int64_t row = q0 + warp_row + i * MMA_M + g + 8 * half;
            row_sum[i][half] = quad_sum(row_sum[i][half]);
            if (t == 0 && row < s.seq)
                lse[(at.batch * s.heads + at.head) * s.seq + row] = row_max[i][half] * scale + logf(row_sum[i][half]);
        }
    store_rows<D>(out + (at.batch * s.seq + q0) * s.heads * D + (int64_t)at.head * D, (int64_t)s.heads * D, warp_row,
                  s.seq - q0, acc, [&](int i, int half) { return 1.0f / row_sum[i][half]; });
}

/* ---- dq: MT * 64 queries against tiles of NT * 8 keys, two in flight ---- */
template <int D> struct dq_tile {
    static const int MT = 2, QUERIES = WARPS * MT * MMA_M, KEYS = 32, NT = KEYS / 8;
    static const int SHARED_BYTES = (2 * QUERIES + 4 * KEYS) * D * 2;
};

template <typename T, int D>
__global__ void __launch_bounds__(THREADS)
    dq_kernel(const T *__restrict__ dout, const T *__restrict__ qkv, const float *__restrict__ lse,
              const float *__restrict__ delta, T *__restrict__ dqkv, attn_shape s)
{
    typedef dq_tile<D> tile;
    SF_SHARED_DYNAMIC(shared);
    T *q_tile = (T *)shared, *dout_tile = q_tile + tile::QUERIES * D, *kv_tiles = dout_tile + tile::QUERIES * D;

    const attn_place at = place_of(blockIdx.x, (s.seq + tile::QUERIES - 1) / tile::QUERIES, s.heads, true);
    const int64_t q0 = at.tile * tile::QUERIES, row_elems = qkv_row_elems(s), out_elems = (int64_t)s.heads * D;
    const int kv_head = at.head / (s.heads / s.kv_heads);
    const T *base = qkv + at.batch * s.seq * row_elems;
    const T *k = base + (int64_t)(s.heads + kv_head) * D, *v = k + (int64_t)s.kv_heads * D;

    const int64_t q_end = q0 + tile::QUERIES < s.seq ? q0 + tile::QUERIES : s.seq;
    const int key_tiles = (int)((q_end + tile::KEYS - 1) / tile::KEYS);
    const int warp_row = (int)threadIdx.x / WARP * tile::MT * MMA_M, g = (int)threadIdx.x % WARP / 4;
    const float scale = rsqrtf((float)D), scale_log2 = scale * LOG2_E;

    float acc[tile::MT][D / 8][4], row_lse[tile::MT][2], row_delta[tile::MT][2];
    clear(acc);
#pragma unroll
    for (int i = 0; i < tile::MT; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int64_t row = q0 + warp_row + i * MMA_M + g + 8 * half, stat = (at.batch * s.heads + at.head) * s.seq + row;
            row_lse[i][half] = row < s.seq ? lse[stat] * LOG2_E : 0.0f;
            row_delta[i][half] = row < s.seq ? delta[stat] : 0.0f;
        }

    tile_copy<tile::QUERIES, D, THREADS>(q_tile, base + q0 * row_elems + (int64_t)at.head * D, row_elems, s.seq - q0);
    tile_copy<tile::QUERIES, D, THREADS>(dout_tile, dout + (at.batch * s.seq + q0) * out_elems + (int64_t)at.head * D,
                                         out_elems, s.seq - q0);
    tile_copy<tile::KEYS, D, THREADS>(kv_tiles, k, row_elems, s.seq);
    tile_copy<tile::KEYS, D, THREADS>(kv_tiles + tile::KEYS * D, v, row_elems, s.seq);
    cp_async_commit();
    for (int j = 0; j < key_tiles; j++) {
        const int64_t k0 = (int64_t)j * tile::KEYS, next = k0 + tile::KEYS;
        T *k_tile = kv_tiles + j % 2 * 2 * tile::KEYS * D, *v_tile = k_tile + tile::KEYS * D;
        T *next_tiles = kv_tiles + (j + 1) % 2 * 2 * tile::KEYS * D;

        if (j + 1 < key_tiles) {
            tile_copy<tile::KEYS, D, THREADS>(next_tiles, k + next * row_elems, row_elems, s.seq - next);
            tile_copy<tile::KEYS, D, THREADS>(next_tiles + tile::KEYS * D, v + next * row_elems, row_elems, s.seq - next);
        }
        cp_async_commit();
        cp_async_wait<1>(); /* all but the tiles just asked for */
        __syncthreads();
        if (k0 <= q0 + warp_row + tile::MT * MMA_M - 1) {
            float w[tile::MT][tile::NT][4], dw[tile::MT][tile::NT][4];
            const int ahead = (int)(q0 + warp_row - k0);
            clear(w);
            mma_rows_rows<D>(w, q_tile, warp_row, k_tile);
            clear(dw);
            mma_rows_rows<D>(dw, dout_tile, warp_row, v_tile);
#pragma unroll
            for (int i = 0; i < tile::MT; i++)
#pragma unroll
                for (int n = 0; n < tile::NT; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        dw[i][n][e] = exp2_fast(w[i][n][e] * scale_log2 - row_lse[i][e / 2]) *
                                      (dw[i][n][e] - row_delta[i][e / 2]);
            if (ahead < tile::KEYS - 1)
                mask_later<tile::MT, tile::NT>(dw, ahead, 0.0f);
            mma_weights_rows<D>(acc, dw, k_tile);
        }
        __syncthreads(); /* before the next round's copies overwrite these tiles */
    }
    store_rows<D>(dqkv + (at.batch * s.seq + q0) * row_elems + (int64_t)at.head * D, row_elems, warp_row, s.seq - q0, acc,
                  [=](int, int) { return scale; });
}

/* ---- dk, dv: MT * 64 keys against tiles of NT * 8 queries of all heads that share the keys, two in flight ---- */
template <int D> struct dkv_tile {
    static const int MT = D == 64 ? 2 : 1, KEYS = WARPS * MT * MMA_M, QUERIES = 32, NT = QUERIES / 8;
    static const int STAGE = 2 * QUERIES * D; /* elements: queries, then dout */
    static const int SHARED_BYTES = (2 * KEYS * D + 2 * STAGE) * 2 + 4 * QUERIES * (int)sizeof(float);
};

template <typename T, int D>
__global__ void __launch_bounds__(THREADS)
    dkv_kernel(const T *__restrict__ dout, const T *__restrict__ qkv, const float *__restrict__ lse,
               const float *__restrict__ delta, T *__restrict__ dqkv, attn_shape s)
{
    typedef dkv_tile<D> tile;
    SF_SHARED_DYNAMIC(shared);
    T *k_tile = (T *)shared, *v_tile = k_tile + tile::KEYS * D, *stages = v_tile + tile::KEYS * D;
    float *stats = (float *)(stages + 2 * tile::STAGE); /* per stage: lse, then delta */

    const attn_place at = place_of(blockIdx.x, (s.seq + tile::KEYS - 1) / tile::KEYS, s.kv_heads, false);
    const int64_t k0 = at.tile * tile::KEYS, row_elems = qkv_row_elems(s), out_elems = (int64_t)s.heads * D;
    const int group = s.heads / s.kv_heads;
    const T *base = qkv + at.batch * s.seq * row_elems, *dout_base = dout + at.batch * s.seq * out_elems;
    const T *k = base + k0 * row_elems + (int64_t)(s.heads + at.head) * D, *v = k + (int64_t)s.kv_heads * D;

    const int64_t first = k0 / tile::QUERIES; /* query tiles before it see none of the keys */
    const int tiles = (int)((s.seq + tile::QUERIES - 1) / tile::QUERIES - first), rounds = tiles * group;
    const int warp_row = (int)threadIdx.x / WARP * tile::MT * MMA_M, g = (int)threadIdx.x % WARP / 4, t = (int)threadIdx.x % 4;
    const float scale = rsqrtf((float)D), scale_log2 = scale * LOG2_E;

    float dk[tile::MT][D / 8][4], dv[tile::MT][D / 8][4];
    clear(dk);
    clear(dv);

    auto fetch = [&](int round) {
        const int64_t q0 = (first + round % tiles) * tile::QUERIES, head = (int64_t)at.head * group + round / tiles;
        const int64_t stat = (at.batch * s.heads + head) * s.seq + q0;
        T *q_tile = stages + round % 2 * tile::STAGE;
        float *stat_tile = stats + round % 2 * 2 * tile::QUERIES;
        tile_copy<tile::QUERIES, D, THREADS>(q_tile, base + q0 * row_elems + head * D, row_elems, s.seq - q0);
        tile_copy<tile::QUERIES, D, THREADS>(q_tile + tile::QUERIES * D, dout_base + q0 * out_elems + head * D, out_elems,
                                             s.seq - q0);
        if (threadIdx.x < 2 * tile::QUERIES) {
            const int i = (int)threadIdx.x % tile::QUERIES;
            const float *from = threadIdx.x < tile::QUERIES ? lse : delta;
            cp_async4(stat_tile + threadIdx.x, from + (q0 + i < s.seq ? stat + i : 0), q0 + i < s.seq);
        }
    };

    tile_copy<tile::KEYS, D, THREADS>(k_tile, k, row_elems, s.seq - k0);
    tile_copy<tile::KEYS, D, THREADS>(v_tile, v, row_elems, s.seq - k0);
    fetch(0);
    cp_async_commit();
    for (int round = 0; round < rounds; round++) {
        const int64_t q0 = (first + round % tiles) * tile::QUERIES;
        T *q_tile = stages + round % 2 * tile::STAGE, *dout_tile = q_tile + tile::QUERIES * D;
        const float *lse_tile = stats + round % 2 * 2 * tile::QUERIES, *delta_tile = lse_tile + tile::QUERIES;

        if (round + 1 < rounds)
            fetch(round + 1);
        cp_async_commit();
        cp_async_wait<1>();
        __syncthreads();
        if (k0 + warp_row <= q0 + tile::QUERIES - 1) { /* some key of the warp is seen by some query */
            float w[tile::MT][tile::NT][4], dw[tile::MT][tile::NT][4];
            const int behind = (int)(k0 + warp_row - q0); /* of the warp's first key, seen from the first query */
            clear(w);
            mma_rows_rows<D>(w, k_tile, warp_row, q_tile);
            clear(dw);
            mma_rows_rows<D>(dw, v_tile, warp_row, dout_tile);
#pragma unroll
            for (int n = 0; n < tile::NT; n++)
#pragma unroll
                for (int odd = 0; odd < 2; odd++) {
                    const int query = n * 8 + 2 * t + odd;
                    const float query_lse = lse_tile[query] * LOG2_E, query_delta = delta_tile[query];
#pragma unroll
                    for (int i = 0; i < tile::MT; i++)
#pragma unroll
                        for (int half = 0; half < 2; half++) {
                            const int e = 2 * half + odd;
                            float p = exp2_fast(w[i][n][e] * scale_log2 - query_lse);
                            if (behind + i * MMA_M + g + 8 * half > query)
                                p = 0.0f;
                            w[i][n][e] = p;
                            dw[i][n][e] = p * (dw[i][n][e] - query_delta);
                        }
                }
            mma_weights_rows<D>(dv, w, dout_tile);
            mma_weights_rows<D>(dk, dw, q_tile);
        }
        __syncthreads();
    }
    T *to = dqkv + (at.batch * s.seq + k0) * row_elems + (int64_t)(s.heads + at.head) * D;
    store_rows<D>(to, row_elems, warp_row, s.seq - k0, dk, [=](int, int) { return scale; });
    store_rows<D>(to + (int64_t)s.kv_heads * D, row_elems, warp_row, s.seq - k0, dv, [](int, int) { return 1.0f; });
}

/* ---- launches ---- */
template <typename K, typename... A>
int launch(K *kernel, int64_t seq, int rows, int64_t heads, int64_t batch, int shared_bytes, sf_cuda_stream stream, A... args)
{
    int64_t blocks = (seq + rows - 1) / rows * heads * batch;
    if (blocks > INT32_MAX)
        return cudaErrorInvalidValue;
    int error = (int)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    if (error != 0)
        return error;
    SF_LAUNCH(kernel, (unsigned)blocks, THREADS, (size_t)shared_bytes, stream, args...);
    return (int)cudaGetLastError();
}

template <typename T, int D>
int fwd(sf_cuda_stream stream, const void *qkv, void *out, float *lse, const attn_shape &s)
{
    typedef fwd_tile<D> tile;
    return launch(fwd_kernel<T, D>, s.seq, tile::QUERIES, s.heads, s.batch, tile::SHARED_BYTES, stream, (const T *)qkv,
                  (T *)out, lse, s);
}
template <typename T, int D>
int bwd(sf_cuda_stream stream, const void *dout, const void *qkv, const float *lse, const float *delta, void *dqkv,
        const attn_shape &s)
{
    int error = launch(dkv_kernel<T, D>, s.seq, dkv_tile<D>::KEYS, s.kv_heads, s.batch, dkv_tile<D>::SHARED_BYTES, stream,
                       (const T *)dout, (const T *)qkv, lse, delta, (T *)dqkv, s);
    if (error != 0)
        return error;
    return launch(dq_kernel<T, D>, s.seq, dq_tile<D>::QUERIES, s.heads, s.batch, dq_tile<D>::SHARED_BYTES, stream,
                  (const T *)dout, (const T *)qkv, lse, delta, (T *)dqkv, s);
}
} // namespace

int sf_attn_mma_fwd(sf_cuda_stream stream, sf_dtype dtype, const void *qkv, void *out, float *lse, const attn_shape *s)
{
    if (dtype == SF_BF16)
        return s->head_dim == 64 ? fwd<bf16, 64>(stream, qkv, out, lse, *s) : fwd<bf16, 128>(stream, qkv, out, lse, *s);
    return s->head_dim == 64 ? fwd<f16, 64>(stream, qkv, out, lse, *s) : fwd<f16, 128>(stream, qkv, out, lse, *s);
}

int sf_attn_mma_bwd(sf_cuda_stream stream, sf_dtype dtype, const void *dout, const void *qkv, const float *lse,
                    const float *delta, void *dqkv, const attn_shape *s)
{
    if (dtype == SF_BF16)
        return s->head_dim == 64 ? bwd<bf16, 64>(stream, dout, qkv, lse, delta, dqkv, *s)
                                 : bwd<bf16, 128>(stream, dout, qkv, lse, delta, dqkv, *s);
    return s->head_dim == 64 ? bwd<f16, 64>(stream, dout, qkv, lse, delta, dqkv, *s)
                             : bwd<f16, 128>(stream, dout, qkv, lse, delta, dqkv, *s);
}
