/* The attention kernels against double precision. The tensor-core kernels round p and ds to 16 bits before
 * they multiply, so an error is at most about a half-unit in the last place of each term, summed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "exec/cuda/kernels.h"
#include "tests/cuda/cases.h"
#include "tests/cuda/reference.h"

typedef struct {
    sf_dtype dtype;
    ref_attn_shape s;
    tensor *qkv, *out, *lse, *dout, *dqkv, *ws;
} attn_args;

static int launch_fwd(kase *c, void *p)
{
    attn_args *a = p;
    (void)c;
    return sf_cuda_attn_fwd(NULL, a->dtype, a->s.batch, a->s.seq, a->s.heads, a->s.kv_heads, a->s.head_dim, a->qkv->data,
                            a->out->data, a->lse->data);
}
static int launch_bwd(kase *c, void *p)
{
    attn_args *a = p;
    (void)c;
    return sf_cuda_attn_bwd(NULL, a->dtype, a->s.batch, a->s.seq, a->s.heads, a->s.kv_heads, a->s.head_dim, a->dout->data,
                            a->qkv->data, a->out->data, a->lse->data, a->dqkv->data, a->ws->data);
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
    ref_attn_shape s = { r->batch, r->seq, r->heads, r->kv_heads, r->head_dim };
    size_t m = s.batch * s.seq, n_qkv = m * (s.heads + 2 * s.kv_heads) * s.head_dim, n_out = m * s.heads * s.head_dim;
    double *want = malloc((n_qkv + n_out + m * s.heads) * sizeof *want), *lse = want + n_qkv + n_out;
    double *spread = malloc(n_qkv * sizeof *spread), *out = want + n_qkv;
    /* In float the scores' own rounding counts: d products of size scale^2 / 4 on average, over sqrt(d), whose
     * sum's error grows like sqrt(d) half-units; it is p's relative error. */
    double eps = case_eps(r->dtype), in_scores = (double)s.head_dim * r->scale * r->scale / 2.0;
    double per_term = r->dtype == SF_F32 ? (16.0 + in_scores) * eps : 1.5 * eps;

    kase *c = case_new(r->shift, "attn_fwd %s batch %zu seq %zu heads %zu/%zu head_dim %zu shift %d", sf_dtype_name(r->dtype),
                       s.batch, s.seq, s.heads, s.kv_heads, s.head_dim, r->shift);
    attn_args a = { r->dtype, s, case_random(c, "qkv", r->dtype, n_qkv, r->scale), case_blank(c, "out", r->dtype, n_out),
                    case_blank(c, "lse", SF_F32, m * s.heads), NULL, NULL, NULL };
    case_run(c, launch_fwd, &a);
    ref_attn_fwd(a.qkv->value, out, lse, spread, s);
    for (size_t i = 0; i < n_out; i++)
        spread[i] *= per_term;
    case_close(c, a.out, out, eps, spread, 0.0);
    case_close(c, a.lse, lse, 0x1p-20, NULL, 0x1p-20 * (1.0 + r->scale * r->scale * sqrt((double)s.head_dim)));
    case_free(c);

    /* Backward from the reference's out and lse, rounded. */
    c = case_new(r->shift, "attn_bwd %s batch %zu seq %zu heads %zu/%zu head_dim %zu shift %d", sf_dtype_name(r->dtype), s.batch,
                 s.seq, s.heads, s.kv_heads, s.head_dim, r->shift);
    a.qkv = case_random(c, "qkv", r->dtype, n_qkv, r->scale);
    a.out = case_blank(c, "out", r->dtype, n_out);
    a.lse = case_blank(c, "lse", SF_F32, m * s.heads);
    a.dout = case_random(c, "dout", r->dtype, n_out, 1.0);
    a.dqkv = case_blank(c, "dqkv", r->dtype, n_qkv);
    a.ws = case_scratch(c, sf_cuda_attn_bwd_ws_bytes(s.batch, s.seq, s.heads));
    ref_attn_fwd(a.qkv->value, out, lse, spread, s);
    for (size_t i = 0; i < n_out; i++)
        tensor_put(a.out, i, out[i]);
    for (size_t i = 0; i < m * s.heads; i++)
        tensor_put(a.lse, i, lse[i]);
    ref_attn_bwd(a.dout->value, a.qkv->value, a.out->value, a.lse->value, want, spread, s);
    case_run(c, launch_bwd, &a);
    for (size_t i = 0; i < n_qkv; i++)
        spread[i] *= per_term;
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
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    printf("%ld kernel cases\n", case_count());
    return failed;
}
