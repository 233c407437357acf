/* exec/cuda/attention_fma.cu: causal attention by multiply-adds in float, for float activations, head sizes
 * other than 64 and 128, and unaligned memory; and the row sums delta that both families need.
 *
 * A block owns 16 rows, eight threads each; it walks over tiles of 24 rows of the other side. Tiles are
 * float in shared memory with rows one element longer than head_dim. Thread `sub` of a row owns columns
 * sub, sub + 8, ... of the row's sums, CMAX at most.
 */
#include "exec/cuda/attention.cuh"

namespace
{
const int OWN = 16, OTHER = 24, SUBS = 8, THREADS = OWN * SUBS, WEIGHT_ROW = OTHER + 1;

/* Rows from `valid` on become zeros. */
template <typename T>
__device__ __forceinline__ void tile_load(float *tile, int rows, const T *from, int64_t row_elems, int64_t valid, int d)
{
    for (int i = (int)threadIdx.x; i < rows * d; i += THREADS) {
        int row = i / d, col = i % d;
        tile[row * (d + 1) + col] = row < valid ? to_f32(from[row * row_elems + col]) : 0.0f;
    }
}
__device__ __forceinline__ float dot(const float *a, const float *b, int d)
{
    float sum = 0.0f;
    for (int c = 0; c < d; c++)
        sum += a[c] * b[c];
    return sum;
}
/* acc[i] += sum over the tile's rows of weight * column sub + 8 i. */
template <int CMAX>
__device__ __forceinline__ void add_rows(float (&acc)[CMAX], const float *weights, const float *tile, int d, int sub)
{
    for (int j = 0; j < OTHER; j++) {
        float w = weights[j];
#pragma unroll
        for (int i = 0; i < CMAX; i++)
            if (sub + SUBS * i < d)
                acc[i] += w * tile[j * (d + 1) + sub + SUBS * i];
    }
}
template <int CMAX, typename T>
__device__ __forceinline__ void store_sums(T *to, const float (&acc)[CMAX], float scale, int d, int sub)
{
#pragma unroll
    for (int i = 0; i < CMAX; i++)
        if (sub + SUBS * i < d)
            to[sub + SUBS * i] = from_f32<T>::of(scale * acc[i]);
}
template <int CMAX> __device__ __forceinline__ void clear_sums(float (&acc)[CMAX])
{
#pragma unroll
    for (int i = 0; i < CMAX; i++)
        acc[i] = 0.0f;
}
/* Over the eight threads of a row. */
__device__ __forceinline__ float row_sum(float x)
{
#pragma unroll
    for (int lane_mask = SUBS / 2; lane_mask > 0; lane_mask /= 2)
        x += __shfl_xor_sync(FULL_WARP, x, lane_mask);
    return x;
}
__device__ __forceinline__ float row_most(float x)
{
#pragma unroll
    for (int lane_mask = SUBS / 2; lane_mask > 0; lane_mask /= 2)
        x = fmaxf(x, __shfl_xor_sync(FULL_WARP, x, lane_mask));
    return x;
}

template <typename T, int CMAX>
__global__ void fwd_kernel(const T *__restrict__ qkv, T *__restrict__ out, float *__restrict__ lse, attn_shape s)
{
    SF_SHARED_DYNAMIC(shared);
    const int d = s.head_dim, row = (int)threadIdx.x / SUBS, sub = (int)threadIdx.x % SUBS;
    float *q_tile = (float *)shared, *k_tile = q_tile + OWN * (d + 1), *v_tile = k_tile + OTHER * (d + 1);
    float *weights = v_tile + OTHER * (d + 1) + row * WEIGHT_ROW;

    const attn_place at = place_of(blockIdx.x, (s.seq + OWN - 1) / OWN, s.heads, true);
    const int64_t q0 = at.tile * OWN, row_elems = qkv_row_elems(s), q_row = q0 + row;
    const T *base = qkv + at.batch * s.seq * row_elems;
    const T *k = base + (int64_t)(s.heads + at.head / (s.heads / s.kv_heads)) * d, *v = k + (int64_t)s.kv_heads * d;
    const int64_t end = q0 + OWN < s.seq ? q0 + OWN : s.seq;
    const float scale = rsqrtf((float)d);

    float acc[CMAX], most = -INFINITY, sum = 0.0f;
    clear_sums(acc);
    tile_load(q_tile, OWN, base + q0 * row_elems + (int64_t)at.head * d, row_elems, s.seq - q0, d);
    for (int64_t k0 = 0; k0 < end; k0 += OTHER) {
        tile_load(k_tile, OTHER, k + k0 * row_elems, row_elems, s.seq - k0, d);
        tile_load(v_tile, OTHER, v + k0 * row_elems, row_elems, s.seq - k0, d);
        __syncthreads();
        float score[OTHER / SUBS], before = most, part = 0.0f;
#pragma unroll
        for (int i = 0; i < OTHER / SUBS; i++) {
            int j = sub + SUBS * i;
            score[i] = k0 + j > q_row ? -INFINITY : scale * dot(q_tile + row * (d + 1), k_tile + j * (d + 1), d);
            most = fmaxf(most, score[i]);
        }
        most = row_most(most);
#pragma unroll
        for (int i = 0; i < OTHER / SUBS; i++) {
            float p = score[i] == -INFINITY ? 0.0f : __expf(score[i] - most);
            weights[sub + SUBS * i] = p;
            part += p;
        }
        float shrink = before == -INFINITY ? 0.0f : __expf(before - most);
        sum = sum * shrink + row_sum(part);
#pragma unroll
        for (int i = 0; i < CMAX; i++)
            acc[i] *= shrink;
        __syncwarp();
        add_rows(acc, weights, v_tile, d, sub);
        __syncthreads();
    }
    if (q_row < s.seq) {
        store_sums(out + ((at.batch * s.seq + q_row) * s.heads + at.head) * d, acc, 1.0f / sum, d, sub);
        if (sub == 0)
            lse[(at.batch * s.heads + at.head) * s.seq + q_row] = most + logf(sum);
    }
}

template <typename T, int CMAX>
__global__ void dq_kernel(const T *__restrict__ dout, const T *__restrict__ qkv, const float *__restrict__ lse,
                          const float *__restrict__ delta, T *__restrict__ dqkv, attn_shape s)
{
    SF_SHARED_DYNAMIC(shared);
    const int d = s.head_dim, row = (int)threadIdx.x / SUBS, sub = (int)threadIdx.x % SUBS;
    float *q_tile = (float *)shared, *dout_tile = q_tile + OWN * (d + 1), *k_tile = dout_tile + OWN * (d + 1);
    float *v_tile = k_tile + OTHER * (d + 1), *weights = v_tile + OTHER * (d + 1) + row * WEIGHT_ROW;

    const attn_place at = place_of(blockIdx.x, (s.seq + OWN - 1) / OWN, s.heads, true);
    const int64_t q0 = at.tile * OWN, row_elems = qkv_row_elems(s), out_elems = (int64_t)s.heads * d, q_row = q0 + row;
    const T *base = qkv + at.batch * s.seq * row_elems;
    const T *k = base + (int64_t)(s.heads + at.head / (s.heads / s.kv_heads)) * d, *v = k + (int64_t)s.kv_heads * d;
    const int64_t end = q0 + OWN < s.seq ? q0 + OWN : s.seq, stat = (at.batch * s.heads + at.head) * s.seq + q_row;
    const float scale = rsqrtf((float)d), my_lse = q_row < s.seq ? lse[stat] : 0.0f, my_delta = q_row < s.seq ? delta[stat] : 0.0f;

    float acc[CMAX];
    clear_sums(acc);
    tile_load(q_tile, OWN, base + q0 * row_elems + (int64_t)at.head * d, row_elems, s.seq - q0, d);
    tile_load(dout_tile, OWN, dout + (at.batch * s.seq + q0) * out_elems + (int64_t)at.head * d, out_elems, s.seq - q0, d);
    for (int64_t k0 = 0; k0 < end; k0 += OTHER) {
        tile_load(k_tile, OTHER, k + k0 * row_elems, row_elems, s.seq - k0, d);
        tile_load(v_tile, OTHER, v + k0 * row_elems, row_elems, s.seq - k0, d);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < OTHER / SUBS; i++) {
            int j = sub + SUBS * i;
            float p = 0.0f;
            if (k0 + j <= q_row)
                p = __expf(scale * dot(q_tile + row * (d + 1), k_tile + j * (d + 1), d) - my_lse);
            weights[j] = p * (dot(dout_tile + row * (d + 1), v_tile + j * (d + 1), d) - my_delta);
        }
        __syncwarp();
        add_rows(acc, weights, k_tile, d, sub);
        __syncthreads();
    }
    if (q_row < s.seq)
        store_sums(dqkv + (at.batch * s.seq + q_row) * row_elems + (int64_t)at.head * d, acc, scale, d, sub);
}

template <typename T, int CMAX>
__global__ void dkv_kernel(const T *__restrict__ dout, const T *__restrict__ qkv, const float *__restrict__ lse,
                           const float *__restrict__ delta, T *__restrict__ dqkv, attn_shape s)
{
    SF_SHARED_DYNAMIC(shared);
    const int d = s.head_dim, row = (int)threadIdx.x / SUBS, sub = (int)threadIdx.x % SUBS, group = s.heads / s.kv_heads;
    float *k_tile = (float *)shared, *v_tile = k_tile + OWN * (d + 1), *q_tile = v_tile + OWN * (d + 1);
    float *dout_tile = q_tile + OTHER * (d + 1);
    float *p_weights = dout_tile + OTHER * (d + 1) + row * WEIGHT_ROW, *ds_weights = p_weights + OWN * WEIGHT_ROW;

    const attn_place at = place_of(blockIdx.x, (s.seq + OWN - 1) / OWN, s.kv_heads, false);
    const int64_t k0 = at.tile * OWN, row_elems = qkv_row_elems(s), out_elems = (int64_t)s.heads * d, k_row = k0 + row;
    const T *base = qkv + at.batch * s.seq * row_elems, *dout_base = dout + at.batch * s.seq * out_elems;
    const T *k = base + k0 * row_elems + (int64_t)(s.heads + at.head) * d;
    const float scale = rsqrtf((float)d);

    float dk[CMAX], dv[CMAX];
    clear_sums(dk);
    clear_sums(dv);
    tile_load(k_tile, OWN, k, row_elems, s.seq - k0, d);
    tile_load(v_tile, OWN, k + (int64_t)s.kv_heads * d, row_elems, s.seq - k0, d);
    for (int head = at.head * group; head < (at.head + 1) * group; head++)
        for (int64_t q0 = k0 / OTHER * OTHER; q0 < s.seq; q0 += OTHER) {
            const int64_t stat = (at.batch * s.heads + head) * s.seq;
            tile_load(q_tile, OTHER, base + q0 * row_elems + (int64_t)head * d, row_elems, s.seq - q0, d);
            tile_load(dout_tile, OTHER, dout_base + q0 * out_elems + (int64_t)head * d, out_elems, s.seq - q0, d);
            __syncthreads();
#pragma unroll
            for (int i = 0; i < OTHER / SUBS; i++) {
                int j = sub + SUBS * i;
                float p = 0.0f, ds = 0.0f;
                if (q0 + j < s.seq && k_row <= q0 + j) {
                    p = __expf(scale * dot(k_tile + row * (d + 1), q_tile + j * (d + 1), d) - lse[stat + q0 + j]);
                    ds = p * (dot(v_tile + row * (d + 1), dout_tile + j * (d + 1), d) - delta[stat + q0 + j]);
                }
                p_weights[j] = p;
                ds_weights[j] = ds;
            }
            __syncwarp();
            add_rows(dv, p_weights, dout_tile, d, sub);
            add_rows(dk, ds_weights, q_tile, d, sub);
            __syncthreads();
        }
    if (k_row < s.seq) {
        T *to = dqkv + (at.batch * s.seq + k_row) * row_elems + (int64_t)(s.heads + at.head) * d;
        store_sums(to, dk, scale, d, sub);
        store_sums(to + (int64_t)s.kv_heads * d, dv, 1.0f, d, sub);
    }
}

/* Eight lanes per (row, head): delta[batch][head][position] = dout . out. */
template <typename T, int K>
__global__ void delta_kernel(const T *__restrict__ dout, const T *__restrict__ out, float *__restrict__ delta, attn_shape s)
{
    int64_t pair = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / SUBS, pairs = s.batch * s.seq * s.heads;
    int sub = (int)threadIdx.x % SUBS;
    float sum = 0.0f, a[K], b[K];
    if (pair < pairs)
        for (int c = sub * K; c < s.head_dim; c += SUBS * K) {
            load(a, dout + pair * s.head_dim + c);
            load(b, out + pair * s.head_dim + c);
#pragma unroll
            for (int i = 0; i < K; i++)
                sum += a[i] * b[i];
        }
    sum = row_sum(sum);
    int64_t row = pair / s.heads, head = pair % s.heads;
    if (sub == 0 && pair < pairs)
        delta[(row / s.seq * s.heads + head) * s.seq + row % s.seq] = sum;
}

/* ---- launches ---- */
template <typename K, typename... A>
int launch(K *kernel, const attn_shape &s, int64_t heads, int tiles_own, int tiles_other, int weights, sf_cuda_stream stream,
           A... args)
{
    int64_t blocks = (s.seq + OWN - 1) / OWN * heads * s.batch;
    int shared_bytes = ((tiles_own * OWN + tiles_other * OTHER) * (s.head_dim + 1) + weights * OWN * WEIGHT_ROW) *
                       (int)sizeof(float);
    if (blocks > INT32_MAX)
        return cudaErrorInvalidValue;
    int error = (int)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    if (error != 0)
        return error;
    SF_LAUNCH(kernel, (unsigned)blocks, THREADS, (size_t)shared_bytes, stream, args...);
    return (int)cudaGetLastError();
}

template <typename T, int CMAX>
int fwd(sf_cuda_stream stream, const void *qkv, void *out, float *lse, const attn_shape &s)
{
    return launch(fwd_kernel<T, CMAX>, s, s.heads, 1, 2, 1, stream, (const T *)qkv, (T *)out, lse, s);
}
template <typename T, int CMAX>
int bwd(sf_cuda_stream stream, const void *dout, const void *qkv, const float *lse, const float *delta, void *dqkv,
        const attn_shape &s)
{
    int error = launch(dkv_kernel<T, CMAX>, s, s.kv_heads, 2, 2, 2, stream, (const T *)dout, (const T *)qkv, lse, delta,
                       (T *)dqkv, s);
    if (error != 0)
        return error;
    return launch(dq_kernel<T, CMAX>, s, s.heads, 2, 2, 1, stream, (const T *)dout, (const T *)qkv, lse, delta, (T *)dqkv, s);
}

template <typename T, int K>
int attn_delta(sf_cuda_stream stream, const void *dout, const void *out, float *delta, const attn_shape &s)
{
    int64_t blocks = (s.batch * s.seq * s.heads * SUBS + THREADS - 1) / THREADS;
    if (blocks > INT32_MAX)
        return cudaErrorInvalidValue;
    SF_LAUNCH((delta_kernel<T, K>), (unsigned)blocks, THREADS, 0, stream, (const T *)dout, (const T *)out, delta, s);
    return (int)cudaGetLastError();
}

bool valid(size_t micro_batch, size_t seq_len, size_t heads, size_t kv_heads, size_t head_dim)
{
    return micro_batch <= INT32_MAX && seq_len > 0 && seq_len <= INT32_MAX && heads > 0 && heads <= INT32_MAX &&
           kv_heads > 0 && heads % kv_heads == 0 && head_dim > 0 && head_dim <= 256;
}
/* Whether the tensor-core kernels take it. */
bool fast(const attn_shape &s, sf_dtype dt, const void *a, const void *b, const void *c)
{
    return dt != SF_F32 && (s.head_dim == 64 || s.head_dim == 128) && sf_aligned(a) && sf_aligned(b) && sf_aligned(c);
}
} // namespace

extern "C" int sf_cuda_attn_fwd(sf_cuda_stream stream, sf_dtype dt, size_t micro_batch, size_t seq_len, size_t heads,
                                size_t kv_heads, size_t head_dim, const void *qkv, void *out, float *lse)
{
    attn_shape s = { (int64_t)micro_batch, (int64_t)seq_len, (int)heads, (int)kv_heads, (int)head_dim };
    if (!valid(micro_batch, seq_len, heads, kv_heads, head_dim) || !sf_float_dtype(dt))
        return cudaErrorInvalidValue;
    if (micro_batch == 0)
        return cudaSuccess;
    if (fast(s, dt, qkv, out, NULL))
        return sf_attn_mma_fwd(stream, dt, qkv, out, lse, &s);
    SF_WITH_TYPE(dt, {
        return head_dim <= 64 ? fwd<T, 8>(stream, qkv, out, lse, s) : fwd<T, 32>(stream, qkv, out, lse, s);
    });
}

extern "C" size_t sf_cuda_attn_bwd_ws_bytes(size_t micro_batch, size_t seq_len, size_t heads)
{
    return sizeof(float) * micro_batch * seq_len * heads;
}

extern "C" int sf_cuda_attn_bwd(sf_cuda_stream stream, sf_dtype dt, size_t micro_batch, size_t seq_len, size_t heads,
                                size_t kv_heads, size_t head_dim, const void *dout, const void *qkv, const void *out,
                                const float *lse, void *dqkv, void *ws)
{
    attn_shape s = { (int64_t)micro_batch, (int64_t)seq_len, (int)heads, (int)kv_heads, (int)head_dim };
    float *delta = (float *)ws;
    if (!valid(micro_batch, seq_len, heads, kv_heads, head_dim) || !sf_float_dtype(dt))
        return cudaErrorInvalidValue;
    if (micro_batch == 0)
        return cudaSuccess;
    SF_WITH_TYPE(dt, {
        int error = head_dim % PACK == 0 && sf_aligned(dout) && sf_aligned(out)
                        ? attn_delta<T, PACK>(stream, dout, out, delta, s)
                        : attn_delta<T, 1>(stream, dout, out, delta, s);
        if (error != 0)
            return error;
        if (fast(s, dt, dout, qkv, dqkv))
            return sf_attn_mma_bwd(stream, dt, dout, qkv, lse, delta, dqkv, &s);
        return head_dim <= 64 ? bwd<T, 8>(stream, dout, qkv, lse, delta, dqkv, s)
                              : bwd<T, 32>(stream, dout, qkv, lse, delta, dqkv, s);
    });
}
