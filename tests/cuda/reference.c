#include "tests/cuda/reference.h"

#include <math.h>
#include <string.h>

static const double PI = 3.14159265358979323846;

double ref_sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}
double ref_act(sf_op_act kind, double x)
{
    switch (kind) {
    case SF_OP_ACT_GELU_TANH: return 0.5 * x * (1.0 + tanh(sqrt(2.0 / PI) * (x + 0.044715 * x * x * x)));
    case SF_OP_ACT_GELU_ERF: return 0.5 * x * (1.0 + erf(x / sqrt(2.0)));
    default: return x > 0.0 ? x : 0.0;
    }
}
double ref_act_slope(sf_op_act kind, double x)
{
    switch (kind) {
    case SF_OP_ACT_GELU_TANH: {
        double t = tanh(sqrt(2.0 / PI) * (x + 0.044715 * x * x * x));
        return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * sqrt(2.0 / PI) * (1.0 + 3.0 * 0.044715 * x * x);
    }
    case SF_OP_ACT_GELU_ERF: return 0.5 * (1.0 + erf(x / sqrt(2.0))) + x * exp(-0.5 * x * x) / sqrt(2.0 * PI);
    default: return x > 0.0 ? 1.0 : 0.0;
    }
}

void ref_norm_fwd(sf_op_norm kind, const double *x, const double *w, const double *b, double *y, double *stats, size_t m,
                  size_t n, double eps)
{
    for (size_t r = 0; r < m; r++) {
        double mean = 0.0, var = 0.0;
        for (size_t c = 0; c < n && kind == SF_OP_NORM_LAYER; c++)
            mean += x[r * n + c] / (double)n;
        for (size_t c = 0; c < n; c++)
            var += (x[r * n + c] - mean) * (x[r * n + c] - mean) / (double)n;
        stats[r] = mean;
        stats[m + r] = 1.0 / sqrt(var + eps);
        for (size_t c = 0; c < n; c++)
            y[r * n + c] = (x[r * n + c] - mean) * stats[m + r] * w[c] + (b ? b[c] : 0.0);
    }
}

void ref_norm_bwd(sf_op_norm kind, const double *dy, const double *x, const double *w, const double *stats, double *dx,
                  double *dw, double *db, size_t m, size_t n)
{
    memset(dw, 0, n * sizeof *dw);
    memset(db, 0, n * sizeof *db);
    for (size_t r = 0; r < m; r++) {
        double sum_g = 0.0, sum_gh = 0.0;
        for (size_t c = 0; c < n; c++) {
            double h = (x[r * n + c] - stats[r]) * stats[m + r], g = dy[r * n + c] * w[c];
            sum_g += g / (double)n;
            sum_gh += g * h / (double)n;
            dw[c] += dy[r * n + c] * h;
            db[c] += dy[r * n + c];
        }
        for (size_t c = 0; c < n; c++) {
            double h = (x[r * n + c] - stats[r]) * stats[m + r], g = dy[r * n + c] * w[c];
            dx[r * n + c] = stats[m + r] * (g - (kind == SF_OP_NORM_LAYER ? sum_g : 0.0) - h * sum_gh);
        }
    }
}

void ref_xent(double *logits, const double *targets, double *loss, size_t m, size_t n, double scale)
{
    for (size_t r = 0; r < m; r++) {
        double *x = logits + r * n, most = x[0], sum = 0.0;
        for (size_t c = 0; c < n; c++)
            most = fmax(most, x[c]);
        for (size_t c = 0; c < n; c++)
            sum += exp(x[c] - most);
        loss[r] = targets[r] < 0 ? 0.0 : most + log(sum) - x[(size_t)targets[r]];
        for (size_t c = 0; c < n; c++)
            x[c] = targets[r] < 0 ? 0.0 : scale * (exp(x[c] - most) / sum - (c == (size_t)targets[r]));
    }
}

void ref_rope(double *qkv, size_t m, size_t seq, size_t heads, size_t kv_heads, size_t head_dim, size_t rotary_dim,
              double theta, double sign)
{
    size_t row_elems = (heads + 2 * kv_heads) * head_dim, pairs = rotary_dim / 2;
    for (size_t r = 0; r < m; r++)
        for (size_t h = 0; h < heads + kv_heads; h++)
            for (size_t j = 0; j < pairs; j++) {
                double angle = sign * (double)(r % seq) * pow(theta, -(double)j / (double)pairs);
                double *a = &qkv[r * row_elems + h * head_dim + j], *b = a + pairs, old = *a;
                *a = old * cos(angle) - *b * sin(angle);
                *b = *b * cos(angle) + old * sin(angle);
            }
}

/* ---- attention ---- */
typedef struct {
    const double *q, *k, *v; /* of position 0 of one head */
    size_t q_at, k_at, v_at; /* where they are in a row of qkv */
    size_t row;
} head_view;

static head_view view(const double *qkv, ref_attn_shape s, size_t b, size_t h)
{
    head_view w;
    size_t kv = h / (s.heads / s.kv_heads);
    w.row = (s.heads + 2 * s.kv_heads) * s.head_dim;
    w.q_at = b * s.seq * w.row + h * s.head_dim;
    w.k_at = b * s.seq * w.row + (s.heads + kv) * s.head_dim;
    w.v_at = w.k_at + s.kv_heads * s.head_dim;
    w.q = qkv + w.q_at;
    w.k = qkv + w.k_at;
    w.v = qkv + w.v_at;
    return w;
}
static double dot(const double *a, const double *b, size_t n)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

void ref_attn_fwd(const double *qkv, double *out, double *lse, double *spread, ref_attn_shape s)
{
    double scale = 1.0 / sqrt((double)s.head_dim);
    for (size_t b = 0; b < s.batch; b++)
        for (size_t h = 0; h < s.heads; h++) {
            head_view w = view(qkv, s, b, h);
            for (size_t i = 0; i < s.seq; i++) {
                double most = -INFINITY, sum = 0.0, *stat = &lse[(b * s.heads + h) * s.seq + i];
                size_t o = ((b * s.seq + i) * s.heads + h) * s.head_dim;
                for (size_t j = 0; j <= i; j++)
                    most = fmax(most, scale * dot(w.q + i * w.row, w.k + j * w.row, s.head_dim));
                for (size_t j = 0; j <= i; j++)
                    sum += exp(scale * dot(w.q + i * w.row, w.k + j * w.row, s.head_dim) - most);
                *stat = most + log(sum);
                memset(out + o, 0, s.head_dim * sizeof *out);
                memset(spread + o, 0, s.head_dim * sizeof *out);
                for (size_t j = 0; j <= i; j++) {
                    double p = exp(scale * dot(w.q + i * w.row, w.k + j * w.row, s.head_dim) - *stat);
                    for (size_t c = 0; c < s.head_dim; c++) {
                        out[o + c] += p * w.v[j * w.row + c];
                        spread[o + c] += p * fabs(w.v[j * w.row + c]);
                    }
                }
            }
        }
}

void ref_attn_bwd(const double *dout, const double *qkv, const double *out, const double *lse, double *dqkv,
                  double *spread, ref_attn_shape s)
{
    double scale = 1.0 / sqrt((double)s.head_dim);
    size_t total = s.batch * s.seq * (s.heads + 2 * s.kv_heads) * s.head_dim;
    memset(dqkv, 0, total * sizeof *dqkv);
    memset(spread, 0, total * sizeof *spread);
    for (size_t b = 0; b < s.batch; b++)
        for (size_t h = 0; h < s.heads; h++) {
            head_view w = view(qkv, s, b, h);
            for (size_t i = 0; i < s.seq; i++) {
                size_t o = ((b * s.seq + i) * s.heads + h) * s.head_dim;
                double delta = dot(dout + o, out + o, s.head_dim), delta_spread = 0.0;
                for (size_t c = 0; c < s.head_dim; c++)
                    delta_spread += fabs(dout[o + c] * out[o + c]);
                for (size_t j = 0; j <= i; j++) {
                    double p = exp(scale * dot(w.q + i * w.row, w.k + j * w.row, s.head_dim) - lse[(b * s.heads + h) * s.seq + i]);
                    double ds = p * (dot(dout + o, w.v + j * w.row, s.head_dim) - delta), ds_spread = p * delta_spread;
                    for (size_t c = 0; c < s.head_dim; c++)
                        ds_spread += p * fabs(dout[o + c] * w.v[j * w.row + c]);
                    for (size_t c = 0; c < s.head_dim; c++) {
                        dqkv[w.q_at + i * w.row + c] += scale * ds * w.k[j * w.row + c];
                        dqkv[w.k_at + j * w.row + c] += scale * ds * w.q[i * w.row + c];
                        dqkv[w.v_at + j * w.row + c] += p * dout[o + c];
                        spread[w.q_at + i * w.row + c] += scale * ds_spread * fabs(w.k[j * w.row + c]);
                        spread[w.k_at + j * w.row + c] += scale * ds_spread * fabs(w.q[i * w.row + c]);
                        spread[w.v_at + j * w.row + c] += p * fabs(dout[o + c]);
                    }
                }
            }
        }
}
