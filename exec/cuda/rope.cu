/* exec/cuda/rope.cu: rotary position embedding in place; a thread turns the same pairs of all heads of a row, so
 * that each angle's cosine and sine are read once per row.
 *
 * Source  Su et al. 2021 (RoFormer); pairs (i, i + rotary_dim/2) as in Hugging Face's rotate_half.
 */
#include "exec/cuda/device.cuh"

namespace
{
template <typename T, int K>
__global__ void rope_kernel(T *qkv, int64_t rows, int64_t seq_len, int turned_heads, int64_t head_dim, int64_t row_elems,
                            int64_t pairs, const float *__restrict__ table, float sign)
{
    int64_t per_row = pairs / K, i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, row = i / per_row;
    int64_t j = i % per_row * K;
    float c[K], s[K], a[K], b[K];

    if (row >= rows)
        return;
    load(c, table + row % seq_len * 2 * pairs + j);
    load(s, table + row % seq_len * 2 * pairs + pairs + j);
    for (int h = 0; h < turned_heads; h++) {
        T *head = qkv + row * row_elems + h * head_dim + j;
        load(a, head);
        load(b, head + pairs);
#pragma unroll
        for (int k = 0; k < K; k++) {
            float ak = a[k];
            a[k] = ak * c[k] - sign * b[k] * s[k];
            b[k] = b[k] * c[k] + sign * ak * s[k];
        }
        store(head, a);
        store(head + pairs, b);
    }
}

template <typename T, int K>
int rope(sf_cuda_stream stream, int64_t rows, int64_t seq_len, int64_t heads, int64_t kv_heads, int64_t head_dim,
         int64_t rotary_dim, const float *table, int backward, void *qkv)
{
    const int64_t threads = 128, pairs = rotary_dim / 2, blocks = (rows * (pairs / K) + threads - 1) / threads;
    if (blocks > INT32_MAX)
        return cudaErrorInvalidValue;
    SF_LAUNCH((rope_kernel<T, K>), (unsigned)blocks, (unsigned)threads, 0, stream, (T *)qkv, rows, seq_len,
              (int)(heads + kv_heads), head_dim, (heads + 2 * kv_heads) * head_dim, pairs, table, backward ? -1.0f : 1.0f);
    return (int)cudaGetLastError();
}
} // namespace

extern "C" int sf_cuda_rope(sf_cuda_stream stream, sf_dtype dt, size_t rows, size_t seq_len, size_t heads, size_t kv_heads,
                            size_t head_dim, size_t rotary_dim, const float *table, int backward, void *qkv)
{
    bool packed = rotary_dim / 2 % PACK == 0 && head_dim % PACK == 0 && sf_aligned(qkv) && sf_aligned(table);
    int64_t m = (int64_t)rows, seq = (int64_t)seq_len, nh = (int64_t)heads, nkv = (int64_t)kv_heads;
    int64_t hd = (int64_t)head_dim, rotary = (int64_t)rotary_dim;
    if (seq_len == 0 || rotary_dim % 2 != 0 || rotary_dim > head_dim)
        return cudaErrorInvalidValue;
    if (rows == 0 || rotary_dim == 0 || heads + kv_heads == 0)
        return cudaSuccess;
    SF_WITH_TYPE(dt, {
        return packed ? rope<T, PACK>(stream, m, seq, nh, nkv, hd, rotary, table, backward, qkv)
                      : rope<T, 1>(stream, m, seq, nh, nkv, hd, rotary, table, backward, qkv);
    });
}
