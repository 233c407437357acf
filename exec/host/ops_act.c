#include "exec/host/ops_simd.h"

/* Each activation: its value at x and (*slope) its derivative. */

/* gelu_new: x/2 (1 + tanh u), u = sqrt(2/pi) (x + 0.044715 x^3), which is x sigmoid(2u); so it keeps
 * its relative accuracy where it is small. Hendrycks and Gimpel, arXiv:1606.08415. */
SF_INLINE sf_vf gelu_tanh(sf_vf x, sf_vf *slope)
{
    const float two_a = 1.5957691216057308f; /* 2 sqrt(2/pi) */
    sf_vf x2 = x * x;
    sf_vf s = vsigmoid(x * two_a * (1.0f + 0.044715f * x2));
    *slope = s + x * s * (1.0f - s) * two_a * (1.0f + 3.0f * 0.044715f * x2);
    return x * s;
}

SF_INLINE sf_vf gelu_erf(sf_vf x, sf_vf *slope)
{
    sf_vf density;
    sf_vf below = vnormal(x, &density);
    *slope = below + x * density;
    return x * below;
}

/* Slope 0 at 0, as in PyTorch. A NaN stays one. */
SF_INLINE sf_vf relu(sf_vf x, sf_vf *slope)
{
    sf_vi off = x <= splat(0);
    *slope = choose(off, splat(0), splat(1));
    return choose(off, splat(0), x);
}

SF_INLINE sf_vf silu(sf_vf x, sf_vf *slope)
{
    sf_vf s = vsigmoid(x);
    *slope = s * (1.0f + x * (1.0f - s));
    return x * s;
}

#define FORWARD(f)                                                                                 \
    SF_EACH(i, k, n, {                                                                             \
        sf_vf slope;                                                                               \
        store(dt, out, i, k, f(load(dt, in, i, k), &slope));                                       \
    })

#define BACKWARD(f)                                                                                \
    SF_EACH(i, k, n, {                                                                             \
        sf_vf slope;                                                                               \
        f(load(dt, in, i, k), &slope);                                                             \
        store(dt, din, i, k, load(dt, dout, i, k) * slope);                                        \
    })

SF_INLINE void fwd_body(sf_dtype dt, sf_op_act kind, size_t rows, size_t ffn, const void *in, void *out)
{
    const size_t n = rows * ffn;
    switch (kind) {
    case SF_OP_ACT_GELU_TANH:
        FORWARD(gelu_tanh);
        break;
    case SF_OP_ACT_GELU_ERF:
        FORWARD(gelu_erf);
        break;
    case SF_OP_ACT_RELU:
        FORWARD(relu);
        break;
    case SF_OP_ACT_SWIGLU:
        for (size_t r = 0; r < rows; r++) {
            const void *gate = at(dt, in, r * 2 * ffn), *up = at(dt, gate, ffn);
            void *y = at_mut(dt, out, r * ffn);
            SF_EACH(i, k, ffn, {
                sf_vf slope;
                store(dt, y, i, k, silu(load(dt, gate, i, k), &slope) * load(dt, up, i, k));
            });
        }
        break;
    }
}

static void act_fwd(sf_dtype dt, sf_op_act kind, size_t rows, size_t ffn, const void *in, void *out)
{
    SF_BY_DTYPE(dt, fwd_body, kind, rows, ffn, in, out);
}

SF_INLINE void bwd_body(sf_dtype dt, sf_op_act kind, size_t rows, size_t ffn, const void *dout, const void *in,
                        void *din)
{
    const size_t n = rows * ffn;
    switch (kind) {
    case SF_OP_ACT_GELU_TANH:
        BACKWARD(gelu_tanh);
        break;
    case SF_OP_ACT_GELU_ERF:
        BACKWARD(gelu_erf);
        break;
    case SF_OP_ACT_RELU:
        BACKWARD(relu);
        break;
    case SF_OP_ACT_SWIGLU:
        for (size_t r = 0; r < rows; r++) {
            const void *gate = at(dt, in, r * 2 * ffn), *up = at(dt, gate, ffn), *dy = at(dt, dout, r * ffn);
            void *dgate = at_mut(dt, din, r * 2 * ffn), *dup = at_mut(dt, dgate, ffn);
            SF_EACH(i, k, ffn, {
                sf_vf slope;
                sf_vf d = load(dt, dy, i, k);
                sf_vf s = silu(load(dt, gate, i, k), &slope);
                sf_vf u = load(dt, up, i, k);
                store(dt, dgate, i, k, d * u * slope);
                store(dt, dup, i, k, d * s);
            });
        }
        break;
    }
}

static void act_bwd(sf_dtype dt, sf_op_act kind, size_t rows, size_t ffn, const void *dout, const void *in, void *din)
{
    SF_BY_DTYPE(dt, bwd_body, kind, rows, ffn, dout, in, din);
}

void SF_ISA_NAME(sf_ops_fill_act)(sf_host_ops *ops)
{
    ops->act_fwd = act_fwd;
    ops->act_bwd = act_bwd;
}
