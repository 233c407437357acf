/* tests/cuda/reference.h: the ops of exec/cuda/kernels.h in double precision, written for reading.
 * Shapes as there; gradients are written, not added to. */
#ifndef SF_TESTS_CUDA_REFERENCE_H
#define SF_TESTS_CUDA_REFERENCE_H

#include <stddef.h>

#include "model/program/op.h"

double ref_act(sf_op_act kind, double x);       /* not gated kinds */
double ref_act_slope(sf_op_act kind, double x);
double ref_sigmoid(double x);

void ref_norm_fwd(sf_op_norm kind, const double *x, const double *w, const double *b, double *y, double *stats, size_t m,
                  size_t n, double eps);
void ref_norm_bwd(sf_op_norm kind, const double *dy, const double *x, const double *w, const double *stats, double *dx,
                  double *dw, double *db, size_t m, size_t n);
void ref_xent(double *logits, const double *targets, double *loss, size_t m, size_t n, double scale);
void ref_rope(double *qkv, size_t m, size_t seq, size_t heads, size_t kv_heads, size_t head_dim, size_t rotary_dim,
              double theta, double sign);

typedef struct {
    size_t batch, seq, heads, kv_heads, head_dim;
} ref_attn_shape;
/* `spread` (m, heads*head_dim) gets sum p |v|: the scale of rounding errors of `out`. */
void ref_attn_fwd(const double *qkv, double *out, double *lse, double *spread, ref_attn_shape s);
/* `spread` (as dqkv) gets the sums of the terms' absolute values. */
void ref_attn_bwd(const double *dout, const double *qkv, const double *out, const double *lse, double *dqkv,
                  double *spread, ref_attn_shape s);

#endif
