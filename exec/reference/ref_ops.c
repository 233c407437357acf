#include "exec/reference/ref_ops.h"

#include <math.h>

enum { IGNORE_TARGET = -100 };

void sf_ref_embed_fwd(size_t rows, size_t seq_len, size_t hidden, const int32_t *tokens, const double *wte,
                      const double *wpe, double *out)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < hidden; c++)
            out[r * hidden + c] = wte[(size_t)tokens[r] * hidden + c] + (wpe ? wpe[r % seq_len * hidden + c] : 0);
}

void sf_ref_embed_bwd(size_t rows, size_t seq_len, size_t hidden, const int32_t *tokens, const double *dout,
                      double *dwte, double *dwpe)
{
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < hidden; c++) {
            dwte[(size_t)tokens[r] * hidden + c] += dout[r * hidden + c];
            if (dwpe)
                dwpe[r % seq_len * hidden + c] += dout[r * hidden + c];
        }
    }
}

void sf_ref_norm_fwd(sf_op_norm kind, size_t rows, size_t hidden, const double *x, const double *weight,
                     const double *bias, double eps, double *y, double *mean, double *rstd)
{
    const double n = (double)hidden;
    for (size_t r = 0; r < rows; r++) {
        const double *xr = x + r * hidden;
        double mu = 0, var = 0;
        if (kind == SF_OP_NORM_LAYER)
            for (size_t c = 0; c < hidden; c++)
                mu += xr[c] / n;
        for (size_t c = 0; c < hidden; c++)
            var += (xr[c] - mu) * (xr[c] - mu) / n;
        mean[r] = mu;
        rstd[r] = 1 / sqrt(var + eps);
        for (size_t c = 0; c < hidden; c++)
            y[r * hidden + c] = (xr[c] - mu) * rstd[r] * weight[c] + (bias ? bias[c] : 0);
    }
}

void sf_ref_norm_bwd(sf_op_norm kind, size_t rows, size_t hidden, const double *dy, const double *x,
                     const double *weight, const double *mean, const double *rstd, double *dx, double *dweight,
                     double *dbias)
{
    const double n = (double)hidden;
    for (size_t r = 0; r < rows; r++) {
        const double *dyr = dy + r * hidden, *xr = x + r * hidden;
        double mean_g = 0, mean_gx = 0;
        for (size_t c = 0; c < hidden; c++) {
            const double xhat = (xr[c] - mean[r]) * rstd[r], g = dyr[c] * weight[c];
            if (kind == SF_OP_NORM_LAYER)
                mean_g += g / n;
            mean_gx += g * xhat / n;
            dweight[c] += dyr[c] * xhat;
            if (dbias)
                dbias[c] += dyr[c];
        }
        for (size_t c = 0; c < hidden; c++) {
            const double xhat = (xr[c] - mean[r]) * rstd[r], g = dyr[c] * weight[c];
            dx[r * hidden + c] = rstd[r] * (g - mean_g - xhat * mean_gx);
        }
    }
}

void sf_ref_linear_fwd(size_t rows, size_t in, size_t out, const double *x, const double *weight, const double *bias,
                       double *y)
{
    for (size_t r = 0; r < rows; r++) {
        for (size_t o = 0; o < out; o++) {
            double s = bias ? bias[o] : 0;
            for (size_t i = 0; i < in; i++)
                s += x[r * in + i] * weight[o * in + i];
            y[r * out + o] = s;
        }
    }
}

void sf_ref_linear_bwd_x(size_t rows, size_t in, size_t out, const double *dy, const double *weight, double *dx)
{
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < in; i++) {
            double s = 0;
            for (size_t o = 0; o < out; o++)
                s += dy[r * out + o] * weight[o * in + i];
            dx[r * in + i] = s;
        }
    }
}

void sf_ref_linear_bwd_w(size_t rows, size_t in, size_t out, const double *dy, const double *x, double *dweight,
                         double *dbias)
{
    for (size_t r = 0; r < rows; r++) {
        for (size_t o = 0; o < out; o++) {
            for (size_t i = 0; i < in; i++)
                dweight[o * in + i] += dy[r * out + o] * x[r * in + i];
            if (dbias)
                dbias[o] += dy[r * out + o];
        }
    }
}

/* Where query head h of row (b, t) begins in qkv, and its key and value heads. */
static size_t query_at(const sf_ref_attn *d, size_t b, size_t t, size_t h)
{
    return ((b * d->seq_len + t) * (d->heads + 2 * d->kv_heads) + h) * d->head_dim;
}

static size_t key_at(const sf_ref_attn *d, size_t b, size_t t, size_t h)
{
    return query_at(d, b, t, d->heads + h / (d->heads / d->kv_heads));
}

static size_t value_at(const sf_ref_attn *d, size_t b, size_t t, size_t h)
{
    return key_at(d, b, t, h) + d->kv_heads * d->head_dim;
}

void sf_ref_rope(const sf_ref_attn *d, size_t rotary_dim, double theta, int direction, double *qkv)
{
    const size_t half = rotary_dim / 2;
    for (size_t b = 0; b < d->micro_batch; b++) {
        for (size_t t = 0; t < d->seq_len; t++) {
            for (size_t h = 0; h < d->heads + d->kv_heads; h++) {
                for (size_t i = 0; i < half; i++) {
                    const double angle = direction * (double)t * pow(theta, -2.0 * (double)i / (double)rotary_dim);
                    double *lo = qkv + query_at(d, b, t, h) + i, *hi = lo + half;
                    const double x = *lo, y = *hi;
                    *lo = x * cos(angle) - y * sin(angle);
                    *hi = y * cos(angle) + x * sin(angle);
                }
            }
        }
    }
}

/* The scaled score of query (b, h, t) with key s, and the log of the sum of exp over s <= t. */
static double score(const sf_ref_attn *d, const double *qkv, size_t b, size_t h, size_t t, size_t s)
{
    const double *q = qkv + query_at(d, b, t, h), *k = qkv + key_at(d, b, s, h);
    double sum = 0;
    for (size_t i = 0; i < d->head_dim; i++)
        sum += q[i] * k[i];
    return sum / sqrt((double)d->head_dim);
}

static double log_sum_exp(const sf_ref_attn *d, const double *qkv, size_t b, size_t h, size_t t)
{
    double max = -INFINITY, sum = 0;
    for (size_t s = 0; s <= t; s++)
        max = fmax(max, score(d, qkv, b, h, t, s));
    for (size_t s = 0; s <= t; s++)
        sum += exp(score(d, qkv, b, h, t, s) - max);
    return max + log(sum);
}

void sf_ref_attn_fwd(const sf_ref_attn *d, const double *qkv, double *out, double *lse)
{
    for (size_t b = 0; b < d->micro_batch; b++) {
        for (size_t h = 0; h < d->heads; h++) {
            for (size_t t = 0; t < d->seq_len; t++) {
                double *o = out + ((b * d->seq_len + t) * d->heads + h) * d->head_dim;
                double *l = lse + (b * d->heads + h) * d->seq_len + t;
                *l = log_sum_exp(d, qkv, b, h, t);
                for (size_t i = 0; i < d->head_dim; i++)
                    o[i] = 0;
                for (size_t s = 0; s <= t; s++) {
                    const double p = exp(score(d, qkv, b, h, t, s) - *l);
                    for (size_t i = 0; i < d->head_dim; i++)
                        o[i] += p * qkv[value_at(d, b, s, h) + i];
                }
            }
        }
    }
}

static double dot(size_t n, const double *a, const double *b)
{
    double s = 0;
    for (size_t i = 0; i < n; i++)
        s += a[i] * b[i];
    return s;
}

void sf_ref_attn_bwd(const sf_ref_attn *d, const double *dout, const double *qkv, const double *out, double *dqkv)
{
    const size_t HD = d->head_dim;
    for (size_t i = 0; i < query_at(d, d->micro_batch, 0, 0); i++)
        dqkv[i] = 0;
    for (size_t b = 0; b < d->micro_batch; b++) {
        for (size_t h = 0; h < d->heads; h++) {
            for (size_t t = 0; t < d->seq_len; t++) {
                const size_t row = ((b * d->seq_len + t) * d->heads + h) * HD;
                const double *dy = dout + row;
                const double lse = log_sum_exp(d, qkv, b, h, t);
                const double mean = dot(HD, dy, out + row); /* sum of p dp, as out = sum of p v */
                for (size_t s = 0; s <= t; s++) {
                    const double p = exp(score(d, qkv, b, h, t, s) - lse);
                    const double dp = dot(HD, dy, qkv + value_at(d, b, s, h));
                    const double ds = p * (dp - mean) / sqrt((double)HD);
                    for (size_t i = 0; i < HD; i++) {
                        dqkv[value_at(d, b, s, h) + i] += p * dy[i];
                        dqkv[query_at(d, b, t, h) + i] += ds * qkv[key_at(d, b, s, h) + i];
                        dqkv[key_at(d, b, s, h) + i] += ds * qkv[query_at(d, b, t, h) + i];
                    }
                }
            }
        }
    }
}

/* An activation (of SwiGLU, the gate's silu) at x, and its derivative. */
static double act(sf_op_act kind, double x, double *slope)
{
    static const double pi = 3.14159265358979323846;
    switch (kind) {
    case SF_OP_ACT_GELU_TANH: {
        const double t = tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x));
        *slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt(2 / pi) * (1 + 3 * 0.044715 * x * x);
        return 0.5 * x * (1 + t);
    }
    case SF_OP_ACT_GELU_ERF:
        *slope = 0.5 * erfc(-x / sqrt(2)) + x * exp(-x * x / 2) / sqrt(2 * pi);
        return 0.5 * x * erfc(-x / sqrt(2));
    case SF_OP_ACT_RELU:
        *slope = x > 0;
        return x > 0 ? x : 0;
    case SF_OP_ACT_SWIGLU:
        break;
    }
    const double s = 1 / (1 + exp(-x));
    *slope = s + x * s * (1 - s);
    return x * s;
}

void sf_ref_act_fwd(sf_op_act kind, size_t rows, size_t ffn, const double *in, double *out)
{
    const size_t width = kind == SF_OP_ACT_SWIGLU ? 2 * ffn : ffn;
    for (size_t r = 0; r < rows; r++) {
        for (size_t f = 0; f < ffn; f++) {
            double slope;
            const double y = act(kind, in[r * width + f], &slope);
            out[r * ffn + f] = kind == SF_OP_ACT_SWIGLU ? y * in[r * width + ffn + f] : y;
        }
    }
}

void sf_ref_act_bwd(sf_op_act kind, size_t rows, size_t ffn, const double *dout, const double *in, double *din)
{
    const size_t width = kind == SF_OP_ACT_SWIGLU ? 2 * ffn : ffn;
    for (size_t r = 0; r < rows; r++) {
        for (size_t f = 0; f < ffn; f++) {
            double slope;
            const double y = act(kind, in[r * width + f], &slope), dy = dout[r * ffn + f];
            if (kind == SF_OP_ACT_SWIGLU) {
                din[r * width + f] = dy * in[r * width + ffn + f] * slope;
                din[r * width + ffn + f] = dy * y;
            } else {
                din[r * width + f] = dy * slope;
            }
        }
    }
}

void sf_ref_xent(size_t rows, size_t vocab, double *logits, const int32_t *targets, double scale, double *loss)
{
    for (size_t r = 0; r < rows; r++) {
        double *x = logits + r * vocab, max = -INFINITY, sum = 0;
        const int ignored = targets[r] == IGNORE_TARGET;
        for (size_t v = 0; v < vocab; v++)
            max = fmax(max, x[v]);
        for (size_t v = 0; v < vocab; v++)
            sum += exp(x[v] - max);
        loss[r] = ignored ? 0 : max + log(sum) - x[targets[r]];
        for (size_t v = 0; v < vocab; v++)
            x[v] = ignored ? 0 : (exp(x[v] - max) / sum - ((int32_t)v == targets[r])) * scale;
    }
}

double sf_ref_sum_squares(size_t n, const double *x)
{
    return dot(n, x, x);
}

void sf_ref_adamw(const sf_ref_adamw_step *c, size_t n, const double *grad, double *param, double *m, double *v)
{
    const double bias1 = 1 - pow(c->beta1, (double)c->step), bias2 = 1 - pow(c->beta2, (double)c->step);
    for (size_t i = 0; i < n; i++) {
        const double g = grad[i] * c->grad_scale;
        param[i] -= c->lr * c->weight_decay * param[i];
        m[i] = c->beta1 * m[i] + (1 - c->beta1) * g;
        v[i] = c->beta2 * v[i] + (1 - c->beta2) * g * g;
        param[i] -= c->lr / bias1 * m[i] / (sqrt(v[i] / bias2) + c->eps);
    }
}
