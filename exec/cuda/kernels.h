/* exec/cuda/kernels.h: our CUDA kernels, one launcher per op of model/program/op.h.
 *
 * Shapes  as in exec/host/ops.h, whose functions these mirror: N rows (tokens, row n is position n % T), C hidden,
 *         NH heads, NKV kv_heads, HD head_dim, F ffn, V vocab; row-major without gaps.
 * Types   `dt` is the type of activations and of their gradients: SF_F32, SF_BF16 or SF_F16. Parameters
 *         (`param_dt`) and their gradients (`grad_dt`) may be any of the three. Arithmetic is in float,
 *         sums of squares in double.
 * Memory  every pointer is device memory aligned to its element. 16-byte accesses are used where all pointers
 *         and rows are 16-byte aligned, else single elements; only the fast attention needs the alignment, and
 *         the slower one stands in without it. `ws` is scratch of at least the number of bytes that the
 *         function of the same name with _ws_bytes gives, 16-byte aligned, free again when the work is done.
 * Order   sums are taken in an order that depends on the shape alone, and no float is added atomically: the
 *         same call gives the same bits on every GPU of one architecture.
 * accumulate   0: the output is overwritten, whatever it held; else added to.
 * Stream  cudaStream_t, which is struct CUstream_st *; launchers are asynchronous.
 * Errors  0, or a cudaError_t as int: cudaErrorInvalidValue for a type, kind or extent that no kernel takes,
 *         else what cudaGetLastError says after the launch. Empty work launches nothing.
 */
#ifndef SF_EXEC_CUDA_KERNELS_H
#define SF_EXEC_CUDA_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "model/base/dtype.h"
#include "model/program/op.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CUstream_st *sf_cuda_stream;

/* ---- embedding ---- */
/* out (N,C) = wte[tokens] + wpe[position]. wte (V,C); wpe (>= T,C) or NULL. Tokens lie in 0..V-1. */
int sf_cuda_embed_fwd(sf_cuda_stream stream, sf_dtype dt, sf_dtype param_dt, size_t rows, size_t seq_len, size_t hidden,
                      const int32_t *tokens, const void *wte, const void *wpe, void *out);
/* dwte (V,C), dwpe (T rows of C) or NULL. */
int sf_cuda_embed_bwd(sf_cuda_stream stream, sf_dtype dt, sf_dtype grad_dt, size_t rows, size_t seq_len, size_t hidden,
                      size_t vocab, const int32_t *tokens, const void *dout, int accumulate_wte, void *dwte,
                      int accumulate_wpe, void *dwpe, void *ws);
size_t sf_cuda_embed_bwd_ws_bytes(size_t rows, size_t vocab);

/* ---- normalisation over the last dimension ---- */
/* x, y (N,C); weight (C); bias (C) or NULL. mean, rstd (N) float; RMS sets mean to 0. */
int sf_cuda_norm_fwd(sf_cuda_stream stream, sf_dtype dt, sf_dtype param_dt, sf_op_norm kind, size_t rows, size_t hidden,
                     const void *x, const void *weight, const void *bias, float eps, void *y, float *mean, float *rstd);
/* dx (N,C); dweight (C); dbias (C) or NULL. */
int sf_cuda_norm_bwd(sf_cuda_stream stream, sf_dtype dt, sf_dtype param_dt, sf_dtype grad_dt, sf_op_norm kind, size_t rows,
                     size_t hidden, const void *dy, const void *x, const void *weight, const float *mean, const float *rstd,
                     int accumulate_dx, void *dx, int accumulate_dw, void *dweight, void *dbias, void *ws);
size_t sf_cuda_norm_bwd_ws_bytes(size_t rows, size_t hidden);

/* ---- rotary positions, in place on the query and key heads of qkv (N, (NH+2NKV)*HD) ----
 * The first rotary_dim elements of each head, element i paired with i + rotary_dim/2. table (T, rotary_dim) float: per
 * position the cosines, then the sines. `backward` turns the other way. */
int sf_cuda_rope(sf_cuda_stream stream, sf_dtype dt, size_t rows, size_t seq_len, size_t heads, size_t kv_heads,
                 size_t head_dim, size_t rotary_dim, const float *table, int backward, void *qkv);

/* ---- causal attention over qkv; scores are scaled by 1 / sqrt(HD) ----
 * out (N, NH*HD); lse (B,NH,T) float: log of the sum of exp of each row's scaled scores. HD at most 256; 64 and 128 in
 * bf16 and f16 run on tensor cores. Query head h reads key and value head h / (NH / NKV). */
int sf_cuda_attn_fwd(sf_cuda_stream stream, sf_dtype dt, size_t micro_batch, size_t seq_len, size_t heads, size_t kv_heads,
                     size_t head_dim, const void *qkv, void *out, float *lse);
/* dqkv (N, (NH+2NKV)*HD) is overwritten. */
int sf_cuda_attn_bwd(sf_cuda_stream stream, sf_dtype dt, size_t micro_batch, size_t seq_len, size_t heads, size_t kv_heads,
                     size_t head_dim, const void *dout, const void *qkv, const void *out, const float *lse, void *dqkv,
                     void *ws);
size_t sf_cuda_attn_bwd_ws_bytes(size_t micro_batch, size_t seq_len, size_t heads);

/* ---- activations: in (N,F), out (N,F). SWIGLU: in (N,2F), gate then up; out = silu(gate) * up ---- */
int sf_cuda_act_fwd(sf_cuda_stream stream, sf_dtype dt, sf_op_act kind, size_t rows, size_t ffn, const void *in, void *out);
/* din has in's shape and may be `in`. */
int sf_cuda_act_bwd(sf_cuda_stream stream, sf_dtype dt, sf_op_act kind, size_t rows, size_t ffn, const void *dout,
                    const void *in, void *din);

/* ---- cross-entropy ----
 * logits (N,V) become d(scale * sum of losses)/dlogits; loss (N) float, not scaled. Target -100: loss and gradient 0;
 * any other outside 0..V-1: loss NaN. */
int sf_cuda_xent(sf_cuda_stream stream, sf_dtype dt, size_t rows, size_t vocab, void *logits, const int32_t *targets,
                 float scale, float *loss);

/* ---- element-wise over n elements; outputs may be inputs ---- */
int sf_cuda_add(sf_cuda_stream stream, sf_dtype dt, size_t n, const void *a, const void *b, void *out);
int sf_cuda_accumulate(sf_cuda_stream stream, sf_dtype src_dt, sf_dtype dst_dt, size_t n, const void *src, void *dst);
int sf_cuda_scale(sf_cuda_stream stream, sf_dtype dt, size_t n, float factor, void *x);
int sf_cuda_cast(sf_cuda_stream stream, sf_dtype from, sf_dtype to, size_t n, const void *src, void *dst);
int sf_cuda_fill(sf_cuda_stream stream, sf_dtype dt, size_t n, float value, void *x);

/* ---- sums ---- */
/* sum (1) double = sum of x*x. */
int sf_cuda_sum_squares(sf_cuda_stream stream, sf_dtype dt, size_t n, const void *x, int accumulate, double *sum, void *ws);
size_t sf_cuda_sum_squares_ws_bytes(size_t n);
/* dbias (O) = column sums of dy (N,O). */
int sf_cuda_bias_grad(sf_cuda_stream stream, sf_dtype dt, sf_dtype grad_dt, size_t rows, size_t out, const void *dy,
                      int accumulate, void *dbias, void *ws);
size_t sf_cuda_bias_grad_ws_bytes(size_t rows, size_t out);

/* ---- AdamW (decoupled weight decay, bias corrected), as torch.optim.AdamW ----
 *   g = grad * grad_scale * clip;  p -= lr * weight_decay * p
 *   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
 *   p -= lr / (1 - beta1^step) * m / (sqrt(v / (1 - beta2^step)) + eps)
 * clip = min(1, max_norm / (norm + 1e-6)) with norm = grad_scale * sqrt(sum_squares), as clip_grad_norm_; 1 where
 * max_norm is 0 or sum_squares NULL. Elements decay from element 0 on if decay_first, and this flips at each of the
 * ascending decay_flips: one launch updates tensors with and without decay. */
enum { SF_CUDA_MAX_DECAY_FLIPS = 64 };
typedef struct {
    double lr, beta1, beta2, eps, weight_decay;
    int64_t step; /* of this update; the first is 1 */
    double grad_scale, max_norm;
    int decay_first, n_decay_flips;
    uint64_t decay_flips[SF_CUDA_MAX_DECAY_FLIPS];
} sf_cuda_adamw_step;
/* master, m, v float; param in param_dt gets the updated master: NULL for none. sum_squares (1) in device memory. */
int sf_cuda_adamw(sf_cuda_stream stream, const sf_cuda_adamw_step *step, size_t n, sf_dtype grad_dt, const void *grad,
                  const double *sum_squares, float *master, float *m, float *v, sf_dtype param_dt, void *param);

#ifdef __cplusplus
}
#endif
#endif
