/* The attention kernels against double precision. The tensor-core kernels round p and ds to 16 bits before
 * they multiply, so an error is at most about a half-unit in the last place of each term, summed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "exec/cuda/kernels.h"
#include "exec/reference/ref_ops.h"
#include "tests/cuda/cases.h"

typedef struct {
    sf_dtype dtype;
    sf_ref_attn s;
    tensor *qkv, *out, *lse, *dout, *dqkv, *ws;
} attn_args;

static int launch_fwd(kase *c, void *p)
{
    attn_args *a = p;
    (void)c;
    return sf_cuda_attn_fwd(NULL, a->dtype, a->s.micro_batch, a->s.seq_len, a->s.heads, a->s.kv_heads, a->s.head_dim, a->qkv->data,
                            a->out->data, a->lse->data);
}
static int launch_bwd(kase *c, void *p)
{
    attn_args *a = p;
    (void)c;
    return sf_cuda_attn_bwd(NULL, a->dtype, a->s.micro_batch, a->s.seq_len, a->s.heads, a->s.kv_heads, a->s.head_dim, a->dout->data,
                            a->qkv->data, a->out->data, a->lse->data, a->dqkv->data, a->ws->data);
}

/* ---- what the rounding errors of a result scale with: the sums of its terms' absolute values, times `factor` ---- */

/* Sum of p |v|: the output of attention over the absolute values. */
static void terms_of_out(const sf_ref_attn *s, const double *qkv, double *terms, double factor)
{
    size_t m = s->micro_batch * s->seq_len, row = (s->heads + 2 * s->kv_heads) * s->head_dim;
    size_t v_at = (s->heads + s->kv_heads) * s->head_dim;
    double *positive = malloc(m * row * sizeof *positive), *lse = malloc(m * s->heads * sizeof *lse);
    for (size_t i = 0; i < m * row; i++)
        positive[i] = i % row < v_at ? qkv[i] : fabs(qkv[i]);
    sf_ref_attn_fwd(s, positive, terms, lse);
    for (size_t i = 0; i < m * s->heads * s->head_dim; i++)
        terms[i] *= factor;
    free(positive);
    free(lse);
}

static double dot(const double *a, const double *b, size_t n, bool positive)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++)
        sum += positive ? fabs(a[i] * b[i]) : a[i] * b[i];
    return sum;
}

/* dv: sum of p |dout|; dq, dk: sum of p (|dout| |v| + |dout| |out|) times |k| or |q|, over sqrt(head_dim). */
static void terms_of_dqkv(const sf_ref_attn *s, const attn_args *a, double *terms, double factor)
{
    size_t d = s->head_dim, row = (s->heads + 2 * s->kv_heads) * d, m = s->micro_batch * s->seq_len;
    double scale = 1.0 / sqrt((double)d);
    memset(terms, 0, m * row * sizeof *terms);
    for (size_t n = 0; n < m; n++)
        for (size_t h = 0; h < s->heads; h++) {
            size_t t = n % s->seq_len, b = n / s->seq_len, q_at = n * row + h * d, o_at = (n * s->heads + h) * d;
            const double *q = a->qkv->value + q_at, *dout = a->dout->value + o_at, *out = a->out->value + o_at;
            for (size_t j = n - t; j <= n; j++) {
                size_t k_at = j * row + (s->heads + h / (s->heads / s->kv_heads)) * d, v_at = k_at + s->kv_heads * d;
                const double *k = a->qkv->value + k_at, *v = a->qkv->value + v_at;
                double p = exp(scale * dot(q, k, d, false) - a->lse->value[(b * s->heads + h) * s->seq_len + t]);
                double ds = scale * p * (dot(dout, v, d, true) + dot(dout, out, d, true));
                for (size_t c = 0; c < d; c++) {
                    terms[q_at + c] += factor * ds * fabs(k[c]);
                    terms[k_at + c] += factor * ds * fabs(q[c]);
                    terms[v_at + c] += factor * p * fabs(dout[c]);
                }
            }
        }
}

/* dtype, batch, seq, heads, kv_heads, head_dim, shift, scale of q and k: 4 makes single keys win */
typedef struct {
    sf_dtype dtype;
    size_t batch, seq, heads, kv_heads, head_dim;
    int shift;
    double scale;
} row;

static void forward_and_backward(const row *r)
{
    sf_ref_attn s = { r->batch, r->seq, r->heads, r->kv_heads, r->head_dim };
    size_t m = s.micro_batch * s.seq_len, n_qkv = m * (s.heads + 2 * s.kv_heads) * s.head_dim, n_out = m * s.heads * s.head_dim;
    double *want = malloc((n_qkv + n_out + m * s.heads) * sizeof *want), *lse = want + n_qkv + n_out;
    double *spread = malloc(n_qkv * sizeof *spread), *out = want + n_qkv;
    /* In float the scores' own rounding counts: d products of size scale^2 / 4 on average, over sqrt(d), whose
     * sum's error grows like sqrt(d) half-units; it is p's relative error. */
    double eps = case_eps(r->dtype), in_scores = (double)s.head_dim * r->scale * r->scale / 2.0;
    double per_term = r->dtype == SF_F32 ? (16.0 + in_scores) * eps : 1.5 * eps;

    kase *c = case_new(r->shift, "attn_fwd %s batch %zu seq %zu heads %zu/%zu head_dim %zu shift %d", sf_dtype_name(r->dtype),
                       s.micro_batch, s.seq_len, s.heads, s.kv_heads, s.head_dim, r->shift);
    attn_args a = { r->dtype, s, case_random(c, "qkv", r->dtype, n_qkv, r->scale), case_blank(c, "out", r->dtype, n_out),
                    case_blank(c, "lse", SF_F32, m * s.heads), NULL, NULL, NULL };
    case_run(c, launch_fwd, &a);
    sf_ref_attn_fwd(&s, a.qkv->value, out, lse);
    terms_of_out(&s, a.qkv->value, spread, per_term);
    case_close(c, a.out, out, eps, spread, 0.0);
    case_close(c, a.lse, lse, 0x1p-20, NULL, 0x1p-20 * (1.0 + r->scale * r->scale * sqrt((double)s.head_dim)));
    case_free(c);

    /* Backward from the reference's out and lse, rounded. */
    c = case_new(r->shift, "attn_bwd %s batch %zu seq %zu heads %zu/%zu head_dim %zu shift %d", sf_dtype_name(r->dtype), s.micro_batch,
                 s.seq_len, s.heads, s.kv_heads, s.head_dim, r->shift);
    a.qkv = case_random(c, "qkv", r->dtype, n_qkv, r->scale);
    a.out = case_blank(c, "out", r->dtype, n_out);
    a.lse = case_blank(c, "lse", SF_F32, m * s.heads);
    a.dout = case_random(c, "dout", r->dtype, n_out, 1.0);
    a.dqkv = case_blank(c, "dqkv", r->dtype, n_qkv);
    a.ws = case_scratch(c, sf_cuda_attn_bwd_ws_bytes(s.micro_batch, s.seq_len, s.heads));
    sf_ref_attn_fwd(&s, a.qkv->value, out, lse);
    for (size_t i = 0; i < n_out; i++)
        tensor_put(a.out, i, out[i]);
    for (size_t i = 0; i < m * s.heads; i++)
        tensor_put(a.lse, i, lse[i]);
    sf_ref_attn_bwd(&s, a.dout->value, a.qkv->value, a.out->value, want);
    case_run(c, launch_bwd, &a);
    terms_of_dqkv(&s, &a, spread, per_term);
    case_close(c, a.dqkv, want, eps, spread, 0.0);
    case_free(c);
    free(want);
    free(spread);
}

static void attention_on_tensor_cores_matches_double_precision(void **state)
{
    /* 64 and 128 are tile edges of keys and queries: lengths on, before and after them */
    static const row rows[] = {
        { SF_BF16, 1, 1, 1, 1, 64, 0, 1.0 },    { SF_BF16, 2, 17, 2, 1, 64, 0, 1.0 },  { SF_BF16, 1, 64, 1, 1, 64, 0, 1.0 },
        { SF_BF16, 1, 65, 2, 2, 64, 0, 4.0 },   { SF_BF16, 1, 127, 1, 1, 64, 0, 1.0 }, { SF_BF16, 1, 128, 1, 1, 64, 0, 1.0 },
        { SF_BF16, 1, 129, 3, 1, 64, 0, 1.0 },  { SF_BF16, 1, 200, 2, 1, 64, 0, 4.0 }, { SF_BF16, 3, 33, 1, 1, 64, 0, 1.0 },
        { SF_BF16, 1, 1, 2, 1, 128, 0, 1.0 },   { SF_BF16, 1, 31, 1, 1, 128, 0, 1.0 }, { SF_BF16, 1, 64, 2, 1, 128, 0, 1.0 },
        { SF_BF16, 1, 67, 1, 1, 128, 0, 4.0 },  { SF_BF16, 2, 96, 1, 1, 128, 0, 1.0 }, { SF_BF16, 1, 130, 2, 1, 128, 0, 1.0 },
        { SF_F16, 1, 70, 2, 1, 64, 0, 1.0 },    { SF_F16, 1, 129, 1, 1, 64, 0, 1.0 },  { SF_F16, 1, 65, 1, 1, 128, 0, 1.0 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        forward_and_backward(&rows[i]);
}

static void attention_by_multiply_add_matches_double_precision(void **state)
{
    static const row rows[] = {
        { SF_F32, 1, 1, 1, 1, 1, 0, 1.0 },     { SF_F32, 2, 5, 3, 1, 7, 0, 1.0 },      { SF_F32, 1, 16, 2, 2, 16, 0, 1.0 },
        { SF_F32, 1, 33, 2, 1, 64, 0, 4.0 },   { SF_F32, 1, 47, 1, 1, 128, 0, 1.0 },   { SF_F32, 1, 34, 1, 1, 256, 0, 1.0 },
        { SF_F32, 1, 65, 1, 1, 80, 1, 1.0 },   { SF_BF16, 1, 19, 2, 1, 80, 0, 1.0 },   { SF_BF16, 1, 40, 1, 1, 96, 0, 1.0 },
        { SF_BF16, 2, 21, 2, 1, 64, 1, 1.0 },  { SF_BF16, 1, 18, 1, 1, 128, 3, 1.0 },  { SF_BF16, 1, 35, 4, 2, 33, 0, 4.0 },
        { SF_F16, 1, 33, 1, 1, 48, 0, 1.0 },   { SF_F16, 1, 17, 2, 1, 255, 0, 1.0 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        forward_and_backward(&rows[i]);
}

static void attention_refuses_shapes_it_cannot_take(void **state)
{
    (void)state;
    assert_int_not_equal(sf_cuda_attn_fwd(NULL, SF_BF16, 1, 8, 3, 2, 64, NULL, NULL, NULL), 0);  /* 3 heads over 2 */
    assert_int_not_equal(sf_cuda_attn_fwd(NULL, SF_BF16, 1, 8, 2, 2, 257, NULL, NULL, NULL), 0); /* head too large */
    assert_int_not_equal(sf_cuda_attn_fwd(NULL, SF_I32, 1, 8, 2, 2, 64, NULL, NULL, NULL), 0);
    assert_int_equal(sf_cuda_attn_fwd(NULL, SF_BF16, 0, 8, 2, 2, 64, NULL, NULL, NULL), 0); /* nothing to do */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_on_tensor_cores_matches_double_precision),
        cmocka_unit_test(attention_by_multiply_add_matches_double_precision),
        cmocka_unit_test(attention_refuses_shapes_it_cannot_take),
    };
    if (!case_runner_ready())
        return 77; /* meson: skipped */
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    printf("%ld kernel cases\n", case_count());
    return failed;
}
