/* exec/cuda/attention.cuh: what the two families of attention kernels share.
 *
 * For a query row i and the keys j <= i of its sequence: s = q . k / sqrt(head_dim), p = exp(s - lse),
 * lse = log sum exp(s), out = sum p v. Backward, with delta = dout . out of the row:
 * dv_j = sum p dout_i, ds = p (dout . v - delta), dq_i = sum ds k / sqrt(head_dim), dk_j likewise with q.
 * One kernel owns query rows and gives out or dq, another owns key rows and gives dk and dv, so that
 * nothing is added atomically and no s x s matrix is stored (Dao 2023, FlashAttention-2).
 */
#ifndef SF_EXEC_CUDA_ATTENTION_CUH
#define SF_EXEC_CUDA_ATTENTION_CUH

#include "exec/cuda/device.cuh"

typedef struct {
    int64_t batch, seq;
    int heads, kv_heads, head_dim;
} attn_shape;

/* A block's place: tile along the sequence, head and sequence of the batch. */
typedef struct {
    int64_t tile, batch;
    int head;
} attn_place;

/* Blocks are numbered with the tile running fastest; `last_first` hands out long rows first. */
static __device__ __forceinline__ attn_place place_of(int64_t block, int64_t tiles, int heads, bool last_first)
{
    attn_place p;
    p.tile = last_first ? tiles - 1 - block % tiles : block % tiles;
    p.head = (int)(block / tiles % heads);
    p.batch = block / tiles / heads;
    return p;
}
static __host__ __device__ __forceinline__ int64_t qkv_row_elems(const attn_shape &s)
{
    return (int64_t)(s.heads + 2 * s.kv_heads) * s.head_dim;
}

const float LOG2_E = 1.4426950408889634f;

/* Tensor-core kernels: head_dim 64 or 128, bf16 or f16, 16-byte aligned. cudaErrorInvalidValue otherwise. */
int sf_attn_mma_fwd(sf_cuda_stream stream, sf_dtype dtype, const void *qkv, void *out, float *lse, const attn_shape *s);
int sf_attn_mma_bwd(sf_cuda_stream stream, sf_dtype dtype, const void *dout, const void *qkv, const float *lse,
                    const float *delta, void *dqkv, const attn_shape *s);

/* Multiply-add kernels: any type, head_dim up to 256. */
int sf_attn_fma_fwd(sf_cuda_stream stream, sf_dtype dtype, const void *qkv, void *out, float *lse, const attn_shape *s);
int sf_attn_fma_bwd(sf_cuda_stream stream, sf_dtype dtype, const void *dout, const void *qkv, const float *lse,
                    const float *delta, void *dqkv, const attn_shape *s);

#endif
