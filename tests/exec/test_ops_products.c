/* Linear layers and attention, every variant and type, against the reference at odd shapes. */
#include <math.h>
#include <string.h>

#include "exec/host/ops_gemm.h"
#include "exec/reference/ref_ops.h"
#include "tests/exec/ops_check.h"

static const struct {
    size_t rows, in, out;
} linears[] = { { 1, 1, 1 }, { 7, 5, 3 }, { 33, 40, 70 }, { 19, 64, 37 }, { 530, 9, 6 }, { 5, 600, 12 }, { 4, 3, 520 },
              { 3, 600, 520 } };
#define N_LINEARS (sizeof linears / sizeof *linears)

static void linear_forward_is_the_product_plus_bias(void **state)
{
    (void)state;
    sf_host_ops ops;
    FOR_EACH_VARIANT_AND_TYPE(ops, dt) {
        for (size_t i = 0; i < N_LINEARS; i++) {
            const size_t rows = linears[i].rows, in = linears[i].in, out = linears[i].out;
            vec x = vec_random(dt, rows * in, 1, 0.3), w = vec_random(dt, out * in, 1, 0), b = vec_random(dt, out, 1, 0);
            void *ws = scratch(sf_host_linear_ws_bytes(dt, rows, in, out));
            for (int with_bias = 0; with_bias < 2; with_bias++) {
                vec y = vec_output(dt, rows * out);
                ops.linear_fwd(dt, rows, in, out, x.raw, w.raw, with_bias ? b.raw : NULL, y.raw, ws);
                sf_ref_linear_fwd(rows, in, out, x.val, w.val, with_bias ? b.val : NULL, y.val);
                assert_vec_near("linear_fwd", &ops, y, (double)in, 8);
            }
        }
    }
}

static void linear_gradients_overwrite_or_accumulate(void **state)
{
    (void)state;
    sf_host_ops ops;
    FOR_EACH_VARIANT_AND_TYPE(ops, dt) {
        for (size_t i = 0; i < 2 * N_LINEARS; i++) {
            const size_t rows = linears[i / 2].rows, in = linears[i / 2].in, out = linears[i / 2].out;
            const bool accumulate = i % 2;
            vec x = vec_random(dt, rows * in, 1, 0), w = vec_random(dt, out * in, 1, 0), dy = vec_random(dt, rows * out, 1, 0);
            void *ws = scratch(sf_host_linear_ws_bytes(dt, rows, in, out));
            vec dx = accumulate ? vec_random(dt, rows * in, 1, 0) : vec_output(dt, rows * in);
            vec dw = accumulate ? vec_random(dt, out * in, 1, 0) : vec_output(dt, out * in);
            vec db = accumulate ? vec_random(dt, out, 1, 0) : vec_output(dt, out);
            ops.linear_bwd_x(dt, rows, in, out, dy.raw, w.raw, accumulate, dx.raw, ws);
            ops.linear_bwd_w(dt, rows, in, out, dy.raw, x.raw, accumulate, dw.raw, db.raw, ws);
            vec product = vec_output(dt, rows * in);
            sf_ref_linear_bwd_x(rows, in, out, dy.val, w.val, product.val);
            for (size_t j = 0; j < rows * in; j++)
                dx.val[j] += product.val[j]; /* an output's val begins as 0 */
            sf_ref_linear_bwd_w(rows, in, out, dy.val, x.val, dw.val, db.val);
            assert_vec_near("linear_bwd_x", &ops, dx, (double)out, 8);
            assert_vec_near("linear_bwd_w, weight", &ops, dw, (double)rows, 8);
            assert_vec_near("linear_bwd_w, bias", &ops, db, (double)rows, 8);
            vec again = vec_output(dt, out * in);
            ops.linear_bwd_w(dt, rows, in, out, dy.raw, x.raw, false, again.raw, NULL, ws);
            vec weight_only = vec_output(dt, out * in);
            weight_only.raw = again.raw;
            sf_ref_linear_bwd_w(rows, in, out, dy.val, x.val, weight_only.val, NULL);
            assert_vec_near("linear_bwd_w without bias", &ops, weight_only, (double)rows, 8);
        }
    }
}

/* Lengths around the 64 rows of a strip, one head per key head and several, one key head. */
static const sf_attn_dims attns[] = {
    { 1, 1, 1, 1, 1 },   { 2, 9, 4, 4, 6 },    { 2, 9, 4, 2, 6 },   { 1, 63, 2, 1, 16 },
    { 2, 64, 2, 2, 8 },  { 1, 65, 6, 3, 12 },  { 1, 150, 3, 1, 5 }, { 1, 130, 2, 2, 64 },
};
#define N_ATTNS (sizeof attns / sizeof *attns)

static sf_ref_attn ref_dims(const sf_attn_dims *d)
{
    return (sf_ref_attn){ d->micro_batch, d->seq_len, d->heads, d->kv_heads, d->head_dim };
}

static void attention_is_causal_grouped_and_scaled(void **state)
{
    (void)state;
    sf_host_ops ops;
    FOR_EACH_VARIANT_AND_TYPE(ops, dt) {
        for (size_t i = 0; i < N_ATTNS; i++) {
            const sf_attn_dims *d = &attns[i];
            const sf_ref_attn rd = ref_dims(d);
            const size_t rows = d->micro_batch * d->seq_len;
            vec qkv = vec_random(dt, rows * (d->heads + 2 * d->kv_heads) * d->head_dim, 1, 0);
            vec out = vec_output(dt, rows * d->heads * d->head_dim), lse = vec_output(SF_F32, rows * d->heads);
            ops.attn_fwd(dt, d, qkv.raw, out.raw, lse.raw, scratch(sf_host_attn_ws_bytes(dt, d)));
            sf_ref_attn_fwd(&rd, qkv.val, out.val, lse.val);
            const double k = (double)(d->head_dim + d->seq_len); /* terms of a score, then of a row */
            assert_vec_near("attn_fwd", &ops, out, k, 8);
            assert_vec_near("attn_fwd, lse", &ops, lse, k, 8);
        }
    }
}

static void attention_gradients_match(void **state)
{
    (void)state;
    sf_host_ops ops;
    FOR_EACH_VARIANT_AND_TYPE(ops, dt) {
        for (size_t i = 0; i < N_ATTNS; i++) {
            const sf_attn_dims *d = &attns[i];
            const sf_ref_attn rd = ref_dims(d);
            const size_t rows = d->micro_batch * d->seq_len, width = (d->heads + 2 * d->kv_heads) * d->head_dim;
            vec qkv = vec_random(dt, rows * width, 1, 0), dout = vec_random(dt, rows * d->heads * d->head_dim, 1, 0);
            vec out = vec_output(dt, dout.n), lse = vec_output(SF_F32, rows * d->heads), dqkv = vec_output(dt, qkv.n);
            void *ws = scratch(sf_host_attn_ws_bytes(dt, d));
            ops.attn_fwd(dt, d, qkv.raw, out.raw, lse.raw, ws);
            ops.attn_bwd(dt, d, dout.raw, qkv.raw, out.raw, lse.raw, dqkv.raw, ws);
            for (size_t j = 0; j < out.n; j++)
                out.val[j] = vec_get(out, j); /* both sides read the same, rounded, out */
            sf_ref_attn_bwd(&rd, dout.val, qkv.val, out.val, dqkv.val);
            /* A probability carries its score's and lse's error, so 16 roundings per step. */
            assert_vec_near("attn_bwd", &ops, dqkv, (double)(d->head_dim + d->seq_len * d->heads / d->kv_heads), 16);
        }
    }
}

/* Softmax of scores of some hundreds must neither overflow nor lose its largest. */
static void attention_survives_large_scores(void **state)
{
    (void)state;
    sf_host_ops ops;
    const sf_attn_dims d = { 1, 70, 1, 1, 4 };
    const sf_ref_attn rd = ref_dims(&d);
    FOR_EACH_VARIANT_AND_TYPE(ops, dt) {
        vec qkv = vec_random(dt, 70 * 12, 30, 0), out = vec_output(dt, 70 * 4), lse = vec_output(SF_F32, 70);
        ops.attn_fwd(dt, &d, qkv.raw, out.raw, lse.raw, scratch(sf_host_attn_ws_bytes(dt, &d)));
        sf_ref_attn_fwd(&rd, qkv.val, out.val, lse.val);
        double top = 0;
        for (size_t i = 0; i < lse.n; i++)
            top = fmax(top, fabs(lse.val[i]));
        /* A score of size `top` is off by 4 * 2^-24 top, and exp makes that a relative error. */
        const double off = 4 * 0x1p-24 * top;
        assert_vec_near("lse of large scores", &ops, lse, 4, 8);
        assert_vec_near_plus("attention with large scores", &ops, out, 74, 8, off * 100);
    }
}

static void the_same_call_gives_the_same_bits(void **state)
{
    (void)state;
    sf_host_ops ops;
    const sf_attn_dims d = { 2, 70, 4, 2, 16 };
    FOR_EACH_VARIANT_AND_TYPE(ops, dt) {
        vec qkv = vec_random(dt, 140 * 128, 1, 0), dout = vec_random(dt, 140 * 64, 1, 0);
        vec out = vec_output(dt, dout.n), lse = vec_output(SF_F32, 140 * 4);
        void *ws = scratch(sf_host_attn_ws_bytes(dt, &d));
        ops.attn_fwd(dt, &d, qkv.raw, out.raw, lse.raw, ws);
        vec first = vec_output(dt, qkv.n), second = vec_output(dt, qkv.n);
        ops.attn_bwd(dt, &d, dout.raw, qkv.raw, out.raw, lse.raw, first.raw, ws);
        ops.attn_bwd(dt, &d, dout.raw, qkv.raw, out.raw, lse.raw, second.raw, ws);
        assert_memory_equal(first.raw, second.raw, qkv.n * sf_dtype_bytes(dt));
    }
}

/* oneDNN's path is taken for bf16 only where the CPU has bf16 units; its strides, transposes, bias and
 * accumulation are the same for float, which it multiplies everywhere. */
static void onednn_products_match(void **state)
{
    (void)state;
    const sf_host_ops named = { .name = "oneDNN" };
    const size_t m = 5, n = 7, k = 9;
    int done = 0; /* per type all or none */
    for (sf_dtype dt = SF_F32; dt <= SF_BF16; dt++) {
        for (int c = 0; c < 16; c++) {
            const bool trans_a = c & 1, trans_b = c & 2, accumulate = c & 4, with_bias = c & 8;
            vec a = vec_random(dt, m * k, 1, 0), b = vec_random(dt, n * k, 1, 0), bias = vec_random(dt, n, 1, 0);
            vec y = accumulate ? vec_random(dt, m * n, 1, 0) : vec_output(dt, m * n);
            const sf_gemm g = { dt, trans_a, trans_b, m, n, k, a.raw, trans_a ? m : k, b.raw, trans_b ? k : n,
                                with_bias ? bias.raw : NULL, accumulate, y.raw, n };
            if (!sf_gemm_dnnl(&g))
                continue;
            done++;
            for (size_t i = 0; i < m; i++)
                for (size_t j = 0; j < n; j++) {
                    y.val[i * n + j] += with_bias ? bias.val[j] : 0;
                    for (size_t l = 0; l < k; l++)
                        y.val[i * n + j] += (trans_a ? a.val[l * m + i] : a.val[i * k + l]) *
                                            (trans_b ? b.val[j * k + l] : b.val[l * n + j]);
                }
            assert_vec_near("sf_gemm_dnnl", &named, y, (double)k, 8);
        }
        assert_int_equal(done % 16, 0);
    }
    vec_free_all();
    if (done == 0)
        skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_forward_is_the_product_plus_bias),
        cmocka_unit_test(linear_gradients_overwrite_or_accumulate),
        cmocka_unit_test(attention_is_causal_grouped_and_scaled),
        cmocka_unit_test(attention_gradients_match),
        cmocka_unit_test(attention_survives_large_scores),
        cmocka_unit_test(the_same_call_gives_the_same_bits),
        cmocka_unit_test(onednn_products_match),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
