/* exec/reference/ref_ops.h: what each compute kernel does, in double precision and clear loops.
 *
 * Every executor's kernels are checked against these, and the gradients here are checked against
 * central differences of the forwards here. Shapes, letters and meanings are those of
 * exec/host/ops.h; outputs marked += are added to, the others overwritten.
 */
#ifndef SF_EXEC_REFERENCE_REF_OPS_H
#define SF_EXEC_REFERENCE_REF_OPS_H

#include <stddef.h>
#include <stdint.h>

#include "model/program/op.h"

typedef struct {
    size_t micro_batch, seq_len, heads, kv_heads, head_dim;
} sf_ref_attn;

/* out (N,C) = wte[tokens] + wpe[position]; wpe may be NULL. */
void sf_ref_embed_fwd(size_t rows, size_t seq_len, size_t hidden, const int32_t *tokens, const double *wte,
                      const double *wpe, double *out);
/* dwte +=, dwpe += (or NULL) */
void sf_ref_embed_bwd(size_t rows, size_t seq_len, size_t hidden, const int32_t *tokens, const double *dout,
                      double *dwte, double *dwpe);

void sf_ref_norm_fwd(sf_op_norm kind, size_t rows, size_t hidden, const double *x, const double *weight,
                     const double *bias, double eps, double *y, double *mean, double *rstd);
/* dx, dweight +=, dbias += (or NULL) */
void sf_ref_norm_bwd(sf_op_norm kind, size_t rows, size_t hidden, const double *dy, const double *x,
                     const double *weight, const double *mean, const double *rstd, double *dx, double *dweight,
                     double *dbias);

void sf_ref_linear_fwd(size_t rows, size_t in, size_t out, const double *x, const double *weight, const double *bias,
                       double *y);
void sf_ref_linear_bwd_x(size_t rows, size_t in, size_t out, const double *dy, const double *weight, double *dx);
/* dweight +=, dbias += (or NULL) */
void sf_ref_linear_bwd_w(size_t rows, size_t in, size_t out, const double *dy, const double *x, double *dweight,
                         double *dbias);

/* In place. direction 1: forward; -1: the gradient. */
void sf_ref_rope(const sf_ref_attn *dims, size_t rotary_dim, double theta, int direction, double *qkv);

void sf_ref_attn_fwd(const sf_ref_attn *dims, const double *qkv, double *out, double *lse);
/* out: what attn_fwd gave. dqkv is overwritten. */
void sf_ref_attn_bwd(const sf_ref_attn *dims, const double *dout, const double *qkv, const double *out, double *dqkv);

void sf_ref_act_fwd(sf_op_act kind, size_t rows, size_t ffn, const double *in, double *out);
void sf_ref_act_bwd(sf_op_act kind, size_t rows, size_t ffn, const double *dout, const double *in, double *din);

/* logits become their gradient * scale; loss (N). Targets of -100 are ignored. */
void sf_ref_xent(size_t rows, size_t vocab, double *logits, const int32_t *targets, double scale, double *loss);

double sf_ref_sum_squares(size_t n, const double *x);

typedef struct {
    double lr, beta1, beta2, eps, weight_decay;
    int64_t step;
    double grad_scale;
} sf_ref_adamw_step;
void sf_ref_adamw(const sf_ref_adamw_step *step, size_t n, const double *grad, double *param, double *m, double *v);

#endif
