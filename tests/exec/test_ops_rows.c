/* Everything but the products: every variant and type against the reference at odd sizes. */
#include <math.h>
#include <string.h>

#include "exec/reference/ref_ops.h"
#include "tests/exec/ops_check.h"

static const size_t widths[] = { 1, 3, 8, 37, 64, 257 };
#define N_WIDTHS (sizeof widths / sizeof *widths)

static void norm_forward_matches(void **state)
{
    (void)state;
    sf_host_ops ops;
    FOR_EACH_VARIANT_AND_TYPE(ops, dt) {
        for (size_t i = 0; i < 4 * N_WIDTHS; i++) {
            const size_t rows = 5, hidden = widths[i / 4];
            const sf_op_norm kind = i % 2 ? SF_OP_NORM_RMS : SF_OP_NORM_LAYER;
            const bool with_bias = i / 2 % 2;
            vec x = vec_random(dt, rows * hidden, 1, 0.5), w = vec_random(dt, hidden, 0.3, 1), b = vec_random(dt, hidden, 1, 0);
            vec y = vec_output(dt, rows * hidden), mean = vec_output(SF_F32, rows), rstd = vec_output(SF_F32, rows);
            ops.norm_fwd(dt, kind, rows, hidden, x.raw, w.raw, with_bias ? b.raw : NULL, 0.01f, y.raw, mean.raw, rstd.raw);
            sf_ref_norm_fwd(kind, rows, hidden, x.val, w.val, with_bias ? b.val : NULL, (double)0.01f, y.val, mean.val, rstd.val);
            /* The mean may be small beside the x, of size 4, that it sums. */
            assert_vec_near_plus("norm_fwd, mean", &ops, mean, (double)hidden, 8, 4 * 0x1p-24);
            assert_vec_near("norm_fwd, rstd", &ops, rstd, (double)hidden, 8);
            assert_vec_near_plus("norm_fwd", &ops, y, (double)hidden, 8, 8 * 4 * 0x1p-24);
        }
    }
}

static void norm_gradients_match(void **state)
{
    (void)state;
    sf_host_ops ops;
    FOR_EACH_VARIANT_AND_TYPE(ops, dt) {
        for (size_t i = 0; i < 8 * N_WIDTHS; i++) {
            const size_t rows = 11, hidden = widths[i / 8];
            const sf_op_norm kind = i % 2 ? SF_OP_NORM_RMS : SF_OP_NORM_LAYER;
            const bool with_bias = i / 2 % 2, accumulate = i / 4 % 2;
            vec x = vec_random(dt, rows * hidden, 1, 0.5), w = vec_random(dt, hidden, 0.3, 1), dy = vec_random(dt, rows * hidden, 1, 0);
            vec y = vec_output(dt, rows * hidden), mean = vec_output(SF_F32, rows), rstd = vec_output(SF_F32, rows);
            vec dx = accumulate ? vec_random(dt, rows * hidden, 1, 0) : vec_output(dt, rows * hidden);
            vec dw = accumulate ? vec_random(dt, hidden, 1, 0) : vec_output(dt, hidden);
            vec db = accumulate ? vec_random(dt, hidden, 1, 0) : vec_output(dt, hidden);
            ops.norm_fwd(dt, kind, rows, hidden, x.raw, w.raw, NULL, 0.1f, y.raw, mean.raw, rstd.raw);
            ops.norm_bwd(dt, kind, rows, hidden, dy.raw, x.raw, w.raw, mean.raw, rstd.raw, accumulate, dx.raw, accumulate,
                         dw.raw, with_bias ? db.raw : NULL, scratch(sf_host_norm_bwd_ws_bytes(hidden)));
            sf_ref_norm_fwd(kind, rows, hidden, x.val, w.val, NULL, (double)0.1f, y.val, mean.val, rstd.val);
            vec dx_only = vec_output(dt, rows * hidden);
            sf_ref_norm_bwd(kind, rows, hidden, dy.val, x.val, w.val, mean.val, rstd.val, dx_only.val, dw.val, db.val);
            double largest = 0;
            for (size_t j = 0; j < rows * hidden; j++) {
                dx.val[j] += dx_only.val[j];
                largest = fmax(largest, fabs(dy.val[j] * w.val[j % hidden]));
            }
            /* dx may be small beside the terms rstd * g (rstd <= 1 / sqrt(0.1)) that cancel in it. */
            assert_vec_near_plus("norm_bwd, dx", &ops, dx, (double)hidden, 8, 8 * 0x1p-24 * sqrt((double)hidden) * 3.2 * largest);
            assert_vec_near("norm_bwd, dweight", &ops, dw, (double)rows, 16);
            if (with_bias)
                assert_vec_near("norm_bwd, dbias", &ops, db, (double)rows, 8);
        }
    }
}

static void activations_match(void **state)
{
    (void)state;
    sf_host_ops ops;
    FOR_EACH_VARIANT_AND_TYPE(ops, dt) {
        for (size_t i = 0; i < 4 * N_WIDTHS; i++) {
            const size_t rows = 3, ffn = widths[i / 4], n = rows * ffn;
            const sf_op_act kind = (sf_op_act)(i % 4);
            vec in = vec_random(dt, kind == SF_OP_ACT_SWIGLU ? 2 * n : n, 2, 0), dout = vec_random(dt, n, 1, 0);
            vec out = vec_output(dt, n), din = vec_output(dt, in.n);
            ops.act_fwd(dt, kind, rows, ffn, in.raw, out.raw);
            ops.act_bwd(dt, kind, rows, ffn, dout.raw, in.raw, din.raw);
            sf_ref_act_fwd(kind, rows, ffn, in.val, out.val);
            sf_ref_act_bwd(kind, rows, ffn, dout.val, in.val, din.val);
            assert_vec_near("act_fwd", &ops, out, 1, 8);
            /* slope = s + x s (1-s) ...: terms of size |x| <= 8 cancel */
            assert_vec_near_plus("act_bwd", &ops, din, 1, 8, 8 * 8 * 0x1p-24);
            vec in_place = vec_copy(in);
            ops.act_bwd(dt, kind, rows, ffn, dout.raw, in_place.raw, in_place.raw);
            assert_memory_equal(in_place.raw, din.raw, in.n * sf_dtype_bytes(dt));
            if (kind != SF_OP_ACT_SWIGLU) {
                in_place = vec_copy(dout);
                ops.act_bwd(dt, kind, rows, ffn, in_place.raw, in.raw, in_place.raw);
                assert_memory_equal(in_place.raw, din.raw, n * sf_dtype_bytes(dt));
            }
        }
    }
}

static void embedding_and_its_gradients_match(void **state)
{
    (void)state;
    sf_host_ops ops;
    FOR_EACH_VARIANT_AND_TYPE(ops, dt) {
        for (size_t i = 0; i < 4 * N_WIDTHS; i++) {
            const size_t seq = 7, rows = 3 * seq, hidden = widths[i / 4], vocab = 300;
            const bool positions = i % 2, accumulate = i / 2 % 2;
            /* Tokens on both sides of 256, where the ordering's second pass begins; one occurs often. */
            int32_t *tokens = random_tokens(rows, (int32_t)vocab);
            for (size_t r = 0; r < rows; r += 2)
                tokens[r] = 299;
            vec wte = vec_random(dt, vocab * hidden, 1, 0), wpe = vec_random(dt, seq * hidden, 1, 0);
            vec out = vec_output(dt, rows * hidden), dout = vec_random(dt, rows * hidden, 1, 0);
            ops.embed_fwd(dt, rows, seq, hidden, tokens, wte.raw, positions ? wpe.raw : NULL, out.raw);
            sf_ref_embed_fwd(rows, seq, hidden, tokens, wte.val, positions ? wpe.val : NULL, out.val);
            assert_vec_near("embed_fwd", &ops, out, 1, 1);
            vec dwte = accumulate ? vec_random(dt, vocab * hidden, 1, 0) : vec_output(dt, vocab * hidden);
            vec dwpe = accumulate ? vec_random(dt, seq * hidden, 1, 0) : vec_output(dt, seq * hidden);
            ops.embed_bwd(dt, rows, seq, hidden, vocab, tokens, dout.raw, accumulate, dwte.raw, accumulate,
                          positions ? dwpe.raw : NULL, scratch(sf_host_embed_bwd_ws_bytes(rows, hidden)));
            sf_ref_embed_bwd(rows, seq, hidden, tokens, dout.val, dwte.val, dwpe.val);
            assert_vec_near("embed_bwd, wte", &ops, dwte, (double)rows, 1);
            if (positions)
                assert_vec_near("embed_bwd, wpe", &ops, dwpe, 3, 1);
        }
    }
}

static void rotation_matches_and_turns_back(void **state)
{
    (void)state;
    sf_host_ops ops;
    static const struct {
        sf_attn_dims d;
        size_t rotary_dim;
    } cases[] = { { { 2, 5, 3, 1, 8 }, 8 }, { { 1, 40, 2, 2, 10 }, 6 }, { { 1, 3, 4, 2, 64 }, 64 } };
    FOR_EACH_VARIANT_AND_TYPE(ops, dt) {
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            const sf_attn_dims *d = &cases[i].d;
            const sf_ref_attn rd = { d->micro_batch, d->seq_len, d->heads, d->kv_heads, d->head_dim };
            const size_t rotary_dim = cases[i].rotary_dim;
            float *table = scratch(sf_host_rope_table_bytes(d->seq_len, rotary_dim));
            sf_host_rope_table(d->seq_len, rotary_dim, 10000, table);
            vec qkv = vec_random(dt, d->micro_batch * d->seq_len * (d->heads + 2 * d->kv_heads) * d->head_dim, 1, 0);
            vec back = vec_copy(qkv);
            ops.rope_fwd(dt, d, rotary_dim, table, qkv.raw);
            sf_ref_rope(&rd, rotary_dim, 10000, 1, qkv.val);
            /* a cos - b sin may be small beside its terms, of size 4 */
            assert_vec_near_plus("rope_fwd", &ops, qkv, 2, 4, 4 * 4 * 0x1p-24);
            ops.rope_bwd(dt, d, rotary_dim, table, back.raw);
            sf_ref_rope(&rd, rotary_dim, 10000, -1, back.val);
            assert_vec_near_plus("rope_bwd", &ops, back, 2, 4, 4 * 4 * 0x1p-24);
        }
    }
}

static void loss_and_its_gradient_match(void **state)
{
    (void)state;
    sf_host_ops ops;
    FOR_EACH_VARIANT_AND_TYPE(ops, dt) {
        for (size_t i = 0; i < N_WIDTHS; i++) {
            const size_t rows = 6, vocab = widths[i];
            int32_t *targets = random_tokens(rows, (int32_t)vocab);
            targets[2] = SF_IGNORE_TARGET;
            vec logits = vec_random(dt, rows * vocab, 3, 20), loss = vec_output(SF_F32, rows);
            ops.xent(dt, rows, vocab, logits.raw, targets, 0.2f, loss.raw);
            sf_ref_xent(rows, vocab, logits.val, targets, (double)0.2f, loss.val);
            /* The logits, of size 30, cancel in the loss and in the exponents. */
            assert_vec_near_plus("xent, loss", &ops, loss, (double)vocab, 8, 30 * 0x1p-24);
            assert_vec_near_plus("xent, gradient", &ops, logits, (double)vocab, 8, 0.2 * 30 * 0x1p-24);
        }
    }
}

/* exp(1000) overflows; the loss must not, and a NaN must reach it. */
static void loss_survives_large_logits_and_shows_nan(void **state)
{
    (void)state;
    sf_host_ops ops;
    for (size_t v = 0; sf_host_ops_variant(v, &ops); v++) {
        float x[20] = { 1000, -1000, 1000 };
        x[15] = NAN;
        const int32_t targets[2] = { 1, 4 };
        float loss[2];
        ops.xent(SF_F32, 2, 10, x, targets, 1, loss);
        assert_true(fabsf(loss[0] - (2000 + logf(2))) < 1e-3f);
        assert_true(fabsf(x[0] - 0.5f) < 1e-6f && fabsf(x[1] + 1) < 1e-6f);
        assert_true(isnan(loss[1]) && isnan(x[10]));
    }
}

static void element_wise_ops_match(void **state)
{
    (void)state;
    sf_host_ops ops;
    FOR_EACH_VARIANT_AND_TYPE(ops, dt) {
        for (size_t i = 0; i < N_WIDTHS; i++) {
            const size_t n = widths[i];
            vec a = vec_random(dt, n, 1, 0), b = vec_random(dt, n, 1, 0), sum = vec_output(dt, n), into = vec_copy(b);
            for (size_t j = 0; j < n; j++)
                sum.val[j] = into.val[j] = a.val[j] + b.val[j];
            ops.add(dt, n, a.raw, b.raw, sum.raw);
            ops.accumulate(dt, n, a.raw, into.raw);
            assert_vec_near("add", &ops, sum, 1, 0.1);
            assert_vec_near("accumulate", &ops, into, 1, 0.1);
            vec scaled = vec_copy(a), copied = vec_output(dt, n), zeroed = vec_random(dt, n, 1, 0);
            for (size_t j = 0; j < n; j++) {
                scaled.val[j] *= 0.3f;
                zeroed.val[j] = 0;
            }
            ops.scale(dt, n, 0.3f, scaled.raw);
            assert_vec_near("scale", &ops, scaled, 1, 1);
            ops.copy(dt, n, a.raw, copied.raw);
            assert_memory_equal(copied.raw, a.raw, n * sf_dtype_bytes(dt));
            ops.zero(dt, n, zeroed.raw);
            assert_vec_near("zero", &ops, zeroed, 1, 0);
            const double got = ops.sum_squares(dt, n, a.raw), exact = sf_ref_sum_squares(n, a.val);
            assert_true(fabs(got - exact) <= 1e-14 * exact);
            for (sf_dtype to = SF_F32; to <= SF_BF16; to++) {
                vec c = vec_output(to, n);
                memcpy(c.val, a.val, n * sizeof *c.val);
                ops.cast(dt, to, n, a.raw, c.raw);
                assert_vec_near("cast", &ops, c, 1, 0);
            }
        }
    }
}

/* 1 + 2^-8 lies midway between bf16 neighbours 1 and 1 + 2^-7: to even, 1. 1 + 3 * 2^-8 likewise goes up
 * to 1 + 2^-6. A NaN whose payload is all in the lower half must not become infinity. */
static void casts_to_bf16_round_to_nearest_even(void **state)
{
    (void)state;
    sf_host_ops ops;
    for (size_t v = 0; sf_host_ops_variant(v, &ops); v++) {
        const uint32_t nan = 0x7f800001;
        float x[9] = { 1 + 0x1p-8f, 1 + 3 * 0x1p-8f, 1 + 0x1.02p-8f, -0.0f, INFINITY, 3.4028235e38f, 0, 0x1p-130f, -2 };
        memcpy(&x[6], &nan, 4);
        uint16_t h[9];
        ops.cast(SF_F32, SF_BF16, 9, x, h);
        assert_int_equal(h[0], 0x3f80);
        assert_int_equal(h[1], 0x3f82);
        assert_int_equal(h[2], 0x3f81);
        assert_int_equal(h[3], 0x8000);
        assert_int_equal(h[4], 0x7f80);
        assert_int_equal(h[5], 0x7f80);
        assert_true((h[6] & 0x7f80) == 0x7f80 && (h[6] & 0x7f) != 0);
        assert_int_equal(h[7], 0x0008); /* 2^-130 = 8 * 2^-133, a subnormal bf16 */
        assert_int_equal(h[8], 0xc000);
    }
}

static void adamw_matches_over_three_steps(void **state)
{
    (void)state;
    sf_host_ops ops;
    FOR_EACH_VARIANT_AND_TYPE(ops, grad_dt) {
        for (sf_dtype param_dt = SF_F32; param_dt <= SF_BF16; param_dt++) {
            for (size_t i = 0; i < N_WIDTHS; i++) {
                const size_t n = widths[i];
                vec p = vec_random(SF_F32, n, 1, 0), m = vec_random(SF_F32, n, 0, 0), v = vec_copy(m), w = vec_output(param_dt, n);
                for (int64_t step = 1; step <= 3; step++) {
                    const sf_adamw c = { 0.01, 0.9, 0.95, 1e-8, 0.1, step, 0.5 };
                    const sf_ref_adamw_step rc = { 0.01, 0.9, 0.95, 1e-8, 0.1, step, 0.5 };
                    vec g = vec_random(grad_dt, n, 1, 0);
                    ops.adamw(&c, n, grad_dt, g.raw, p.raw, m.raw, v.raw, param_dt, i % 2 ? w.raw : NULL);
                    sf_ref_adamw(&rc, n, g.val, p.val, m.val, v.val);
                }
                assert_vec_near("adamw, master", &ops, p, 3, 8);
                assert_vec_near("adamw, m", &ops, m, 3, 8);
                assert_vec_near("adamw, v", &ops, v, 3, 8);
                memcpy(w.val, p.val, n * sizeof *w.val);
                if (i % 2)
                    assert_vec_near("adamw, parameter", &ops, w, 3, 8);
            }
        }
    }
}

/* torch.optim.AdamW on one parameter 1, gradient 0.5, lr 0.1, decay 0.01, eps 1e-8, by hand: the decay
 * leaves 0.999; m/bias1 = 0.5, sqrt(v/bias2) = 0.5, so 0.1 * 0.5/0.5 comes off: 0.899. The parameter
 * may be the master. */
static void the_first_adamw_step_moves_by_the_learning_rate(void **state)
{
    (void)state;
    sf_host_ops ops;
    sf_host_ops_init(&ops);
    float p = 1, m = 0, v = 0;
    const float g = 0.5f;
    ops.adamw(&(sf_adamw){ 0.1, 0.9, 0.999, 1e-8, 0.01, 1, 1 }, 1, SF_F32, &g, &p, &m, &v, SF_F32, &p);
    assert_true(fabsf(p - 0.899f) < 1e-6f);
    assert_true(fabsf(m - 0.05f) < 1e-8f && fabsf(v - 0.00025f) < 1e-9f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norm_forward_matches),
        cmocka_unit_test(norm_gradients_match),
        cmocka_unit_test(activations_match),
        cmocka_unit_test(embedding_and_its_gradients_match),
        cmocka_unit_test(rotation_matches_and_turns_back),
        cmocka_unit_test(loss_and_its_gradient_match),
        cmocka_unit_test(loss_survives_large_logits_and_shows_nan),
        cmocka_unit_test(element_wise_ops_match),
        cmocka_unit_test(casts_to_bf16_round_to_nearest_even),
        cmocka_unit_test(adamw_matches_over_three_steps),
        cmocka_unit_test(the_first_adamw_step_moves_by_the_learning_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
