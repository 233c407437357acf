/* exec/host/ops.h: the compute kernels of the host executor.
 *
 * What it is   A table of functions, one per op of model/program/op.h that computes. The caller
 *   owns the table and fills it once with the fastest variant that this CPU runs:
 *       sf_host_ops ops;
 *       sf_host_ops_init(&ops);
 *       ops.norm_fwd(SF_BF16, SF_OP_NORM_LAYER, rows, hidden, x, weight, bias, 1e-5f, y, mean, rstd);
 *   Nothing here allocates, keeps state, prints or fails; wrong arguments are the caller's bug.
 *
 * Shapes   row-major. B micro_batch, T seq_len, N = B*T rows (row n is position n % T of sequence
 *   n / T), C hidden, NH heads, NKV kv_heads, HD head_dim, F ffn, V vocab.
 *
 * Types    `dt` is SF_F32 or SF_BF16 and is the type of every `void *` of the call unless the
 *   comment says otherwise. bf16 is the upper half of an IEEE float, rounded to nearest even.
 *   Arithmetic is in float; statistics, losses, masters and moments are always float.
 *
 * Memory   pointers need the alignment of their element. Arguments must not overlap, except where
 *   a comment says "may be". `ws` is scratch of at least the number of bytes that the
 *   function of the same name with _ws_bytes gives, aligned to 64 bytes; it may be NULL when
 *   that number is 0. Nothing is kept in it between calls.
 *
 * Order    Every sum is taken in one fixed order: the same call gives the same bits each time (for
 *   the GEMMs: with the same number of threads). Kernels run on the calling thread; only
 *   the GEMMs use threads, as many as sf_host_gemm_threads set.
 *
 * accumulate   false: the output is overwritten, whatever it held (NaN too); true: added to.
 *
 * Reference    exec/reference/ref_ops.h says in double precision and clear loops what each does.
 */
#ifndef SF_EXEC_HOST_OPS_H
#define SF_EXEC_HOST_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/base/dtype.h"
#include "model/program/op.h"

/* Attention over qkv rows of (NH + 2 NKV) * HD: the query heads, then keys, then values. Query head
 * h reads key and value head h / (NH / NKV). Causal; scores are scaled by 1 / sqrt(HD). */
typedef struct {
    size_t micro_batch, seq_len, heads, kv_heads, head_dim;
} sf_attn_dims;

/* One AdamW step (decoupled weight decay, bias corrected), as torch.optim.AdamW:
 *   g = grad * grad_scale;  p -= lr * weight_decay * p
 *   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
 *   p -= lr / (1 - beta1^step) * m / (sqrt(v / (1 - beta2^step)) + eps)            */
typedef struct {
    double lr, beta1, beta2, eps, weight_decay; /* double: 1 - beta2 loses half its digits in float */
    int64_t step;                               /* of this update; the first is 1                   */
    double grad_scale;                          /* 1, or the factor of clipping or loss unscaling   */
} sf_adamw;

/* Targets with this value are ignored: loss 0, gradient 0. As in PyTorch and Hugging Face. */
enum { SF_IGNORE_TARGET = -100 };

typedef struct {
    const char *name; /* "generic", "avx2" */

    /* ---- embedding ---- */

    /* out (N,C) = wte[tokens] + wpe[position]. wte (V,C); wpe (>= T,C) or NULL. */
    void (*embed_fwd)(sf_dtype dt, size_t rows, size_t seq_len, size_t hidden, const int32_t *tokens,
                      const void *wte, const void *wpe, void *out);
    /* dwte (V,C), dwpe (T rows of C) or NULL. accumulate_wte and accumulate_wpe as above. */
    void (*embed_bwd)(sf_dtype dt, size_t rows, size_t seq_len, size_t hidden, size_t vocab,
                      const int32_t *tokens, const void *dout, bool accumulate_wte, void *dwte,
                      bool accumulate_wpe, void *dwpe, void *ws);

    /* ---- normalisation over the last dimension ---- */

    /* x, y (N,C); weight (C); bias (C) or NULL. mean, rstd (N) float. RMSNorm sets mean to 0. */
    void (*norm_fwd)(sf_dtype dt, sf_op_norm kind, size_t rows, size_t hidden, const void *x,
                     const void *weight, const void *bias, float eps, void *y, float *mean, float *rstd);
    /* dx (N,C), dweight (C), dbias (C) or NULL. */
    void (*norm_bwd)(sf_dtype dt, sf_op_norm kind, size_t rows, size_t hidden, const void *dy,
                     const void *x, const void *weight, const float *mean, const float *rstd,
                     bool accumulate_dx, void *dx, bool accumulate_dw, void *dweight, void *dbias, void *ws);

    /* ---- linear: weights are (O,I), as torch.nn.Linear ---- */

    /* y (N,O) = x (N,I) W^T + bias; bias (O) or NULL. */
    void (*linear_fwd)(sf_dtype dt, size_t rows, size_t in, size_t out, const void *x, const void *weight,
                       const void *bias, void *y, void *ws);
    /* dx (N,I) = dy (N,O) W */
    void (*linear_bwd_x)(sf_dtype dt, size_t rows, size_t in, size_t out, const void *dy,
                         const void *weight, bool accumulate, void *dx, void *ws);
    /* dW (O,I) = dy^T x; dbias (O) = column sums of dy, or NULL. */
    void (*linear_bwd_w)(sf_dtype dt, size_t rows, size_t in, size_t out, const void *dy, const void *x,
                         bool accumulate, void *dweight, void *dbias, void *ws);

    /* ---- rotary positions and attention ---- */

    /* In place on the query and key heads of qkv (N, (NH+2NKV)*HD): the first rotary_dim elements of
     * each, Hugging Face's layout (element i is paired with i + rotary_dim/2). `table` is filled by
     * sf_host_rope_table. rope_bwd turns the gradient back the other way. */
    void (*rope_fwd)(sf_dtype dt, const sf_attn_dims *dims, size_t rotary_dim, const float *table, void *qkv);
    void (*rope_bwd)(sf_dtype dt, const sf_attn_dims *dims, size_t rotary_dim, const float *table, void *dqkv);

    /* out (N, NH*HD); lse (B,NH,T) float: log of the sum of exp of each row's scaled scores. */
    void (*attn_fwd)(sf_dtype dt, const sf_attn_dims *dims, const void *qkv, void *out, float *lse, void *ws);
    /* dqkv (N, (NH+2NKV)*HD) is overwritten. */
    void (*attn_bwd)(sf_dtype dt, const sf_attn_dims *dims, const void *dout, const void *qkv,
                     const void *out, const float *lse, void *dqkv, void *ws);

    /* ---- activations ---- */

    /* in (N,F), out (N,F). SWIGLU: in (N,2F), gate then up; out = silu(gate) * up. GELU_TANH is
     * Hugging Face's gelu_new, GELU_ERF its gelu. */
    void (*act_fwd)(sf_dtype dt, sf_op_act kind, size_t rows, size_t ffn, const void *in, void *out);
    /* din has in's shape and may be `in`, and, unless the kind is SWIGLU, may be dout. */
    void (*act_bwd)(sf_dtype dt, sf_op_act kind, size_t rows, size_t ffn, const void *dout, const void *in, void *din);

    /* ---- loss ---- */

    /* logits (N,V) become d(scale * sum of losses)/dlogits; loss (N) float, not scaled: the caller
     * passes scale = 1 / targets that count for a mean. targets (N). */
    void (*xent)(sf_dtype dt, size_t rows, size_t vocab, void *logits, const int32_t *targets, float scale, float *loss);

    /* ---- element-wise, n elements ---- */

    void (*add)(sf_dtype dt, size_t n, const void *a, const void *b, void *out); /* out may be a or b */
    void (*accumulate)(sf_dtype dt, size_t n, const void *src, void *dst);       /* dst += src        */
    void (*scale)(sf_dtype dt, size_t n, float factor, void *x);                 /* x *= factor       */
    void (*cast)(sf_dtype from, sf_dtype to, size_t n, const void *src, void *dst);
    void (*copy)(sf_dtype dt, size_t n, const void *src, void *dst);
    void (*zero)(sf_dtype dt, size_t n, void *dst);
    double (*sum_squares)(sf_dtype dt, size_t n, const void *x); /* squares and sums in double */

    /* ---- optimizer ---- */

    /* grad in grad_dt; master, m, v float; param in param_dt gets the updated master: NULL for none,
     * and it may be master itself when param_dt is SF_F32. */
    void (*adamw)(const sf_adamw *step, size_t n, sf_dtype grad_dt, const void *grad, float *master,
                  float *m, float *v, sf_dtype param_dt, void *param);
} sf_host_ops;

/* The fastest variant of this CPU. */
void sf_host_ops_init(sf_host_ops *ops);

/* Variant number i = 0, 1, ... of those this CPU can run, the plainest first; false past the last. */
bool sf_host_ops_variant(size_t i, sf_host_ops *ops);

/* Threads of the matrix products, for the whole process. */
void sf_host_gemm_threads(int threads);

/* ---- scratch ---- */

size_t sf_host_embed_bwd_ws_bytes(size_t rows, size_t hidden);
size_t sf_host_norm_bwd_ws_bytes(size_t hidden);
size_t sf_host_linear_ws_bytes(sf_dtype dt, size_t rows, size_t in, size_t out); /* fwd, bwd_x and bwd_w */
size_t sf_host_attn_ws_bytes(sf_dtype dt, const sf_attn_dims *dims);             /* fwd and bwd          */

/* ---- rotary table ---- */

/* table (T, rotary_dim) float: per position rotary_dim/2 cosines, then as many sines, of
 * position * theta^(-2 i / rotary_dim). rotary_dim is even. */
size_t sf_host_rope_table_bytes(size_t seq_len, size_t rotary_dim);
void sf_host_rope_table(size_t seq_len, size_t rotary_dim, double theta, float *table);

#endif
