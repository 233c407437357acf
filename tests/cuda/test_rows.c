/* Kernels that reduce over rows or columns against double precision: norms, cross-entropy, rotary embedding,
 * sums of squares, bias and embedding gradients. Float sums of k terms err by about sqrt(k) half-units each. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "exec/cuda/kernels.h"
#include "exec/reference/ref_ops.h"
#include "tests/cuda/cases.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
static const sf_dtype TYPES[] = { SF_F32, SF_BF16, SF_F16 };

static double *doubles(size_t n)
{
    return calloc(n ? n : 1, sizeof(double));
}
/* What a float sum of k terms of size `term` may be off by. */
static double sum_error(size_t k, double term)
{
    return 0x1p-21 * sqrt((double)k) * term;
}

/* ---- norms ---- */
typedef struct {
    sf_dtype dtype, param_dtype, grad_dtype;
    sf_op_norm kind;
    tensor *x, *w, *b, *y, *mean, *rstd, *dy, *dx, *dw, *db, *ws;
    size_t m, n;
    int accumulate;
} norm_args;

static int launch_norm_fwd(kase *c, void *p)
{
    norm_args *a = p;
    (void)c;
    return sf_cuda_norm_fwd(NULL, a->dtype, a->param_dtype, a->kind, a->m, a->n, a->x->data, a->w->data,
                            a->b ? a->b->data : NULL, 1e-5f, a->y->data, a->mean->data, a->rstd->data);
}
static int launch_norm_bwd(kase *c, void *p)
{
    norm_args *a = p;
    (void)c;
    return sf_cuda_norm_bwd(NULL, a->dtype, a->param_dtype, a->grad_dtype, a->kind, a->m, a->n, a->dy->data, a->x->data,
                            a->w->data, a->mean->data, a->rstd->data, !a->accumulate, a->dx->data, a->accumulate,
                            a->dw->data, a->db ? a->db->data : NULL, a->ws->data);
}

static void one_norm(sf_op_norm kind, sf_dtype dtype, size_t m, size_t n, int shift, int variant)
{
    sf_dtype param = variant & 1 ? SF_F32 : dtype, grad = variant & 2 ? SF_F32 : dtype;
    double *y = doubles(m * n), *stats = doubles(2 * m), *dw = doubles(n), *db = doubles(n), eps = case_eps(dtype);
    kase *c = case_new(shift, "norm %d %s (%zu, %zu) shift %d", (int)kind, sf_dtype_name(dtype), m, n, shift);
    norm_args a = { dtype, param, grad, kind, case_random(c, "x", dtype, m * n, 2.0), case_random(c, "w", param, n, 1.0),
                    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, m, n, variant & 4 };
    if (kind == SF_OP_NORM_LAYER)
        a.b = case_random(c, "b", param, n, 1.0);
    a.y = case_blank(c, "y", dtype, m * n);
    a.mean = case_blank(c, "mean", SF_F32, m);
    a.rstd = case_blank(c, "rstd", SF_F32, m);
    sf_ref_norm_fwd(kind, m, n, a.x->value, a.w->value, a.b ? a.b->value : NULL, 1e-5, y, stats, stats + m);
    if (n == 1 && kind == SF_OP_NORM_LAYER) /* var 0: rstd = 1/sqrt(1e-5) */
        assert_true(fabs(stats[m] - 316.227766) < 1e-5);
    case_run(c, launch_norm_fwd, &a);
    case_close(c, a.mean, stats, 0x1p-20, NULL, 0x1p-20);
    case_close(c, a.rstd, stats + m, 0x1p-20, NULL, 0x1p-20);
    case_close(c, a.y, y, eps, NULL, 0x1p-18 * (kind == SF_OP_NORM_RMS ? stats[m] + 4.0 : 8.0));
    case_free(c);

    c = case_new(shift, "norm_bwd %d %s (%zu, %zu) shift %d variant %d", (int)kind, sf_dtype_name(dtype), m, n, shift, variant);
    a.x = case_random(c, "x", dtype, m * n, 2.0);
    a.w = case_random(c, "w", param, n, 1.0);
    a.dy = case_random(c, "dy", dtype, m * n, 1.0);
    a.mean = case_blank(c, "mean", SF_F32, m);
    a.rstd = case_blank(c, "rstd", SF_F32, m);
    a.dx = a.accumulate ? case_blank(c, "dx", dtype, m * n) : case_random(c, "dx", dtype, m * n, 1.0);
    a.dw = a.accumulate ? case_random(c, "dw", grad, n, 1.0) : case_blank(c, "dw", grad, n);
    a.db = kind == SF_OP_NORM_RMS ? NULL : a.accumulate ? case_random(c, "db", grad, n, 1.0) : case_blank(c, "db", grad, n);
    a.ws = case_scratch(c, sf_cuda_norm_bwd_ws_bytes(m, n));
    sf_ref_norm_fwd(kind, m, n, a.x->value, a.w->value, NULL, 1e-2, y, stats, stats + m); /* a large eps keeps rstd small */
    for (size_t i = 0; i < m; i++) {
        tensor_put(a.mean, i, stats[i]);
        tensor_put(a.rstd, i, stats[m + i]);
        stats[i] = a.mean->value[i];
        stats[m + i] = a.rstd->value[i];
    }
    sf_ref_norm_bwd(kind, m, n, a.dy->value, a.x->value, a.w->value, stats, stats + m, y, dw, db);
    double rstd = 0.0, h = 0.0;
    for (size_t i = 0; i < m; i++)
        rstd = fmax(rstd, stats[m + i]);
    h = 4.0 * rstd;
    for (size_t i = 0; i < m * n; i++)
        y[i] += a.accumulate ? 0.0 : a.dx->value[i];
    for (size_t i = 0; i < n; i++) {
        dw[i] += a.accumulate ? a.dw->value[i] : 0.0;
        if (a.db)
            db[i] += a.accumulate ? a.db->value[i] : 0.0;
    }
    case_run(c, launch_norm_bwd, &a);
    case_close(c, a.dx, y, 1.01 * eps, NULL, 0x1p-20 * (1.0 + rstd * h));
    case_close(c, a.dw, dw, 1.01 * case_eps(grad), NULL, sum_error(m, h));
    if (a.db)
        case_close(c, a.db, db, 1.01 * case_eps(grad), NULL, sum_error(m, 1.0));
    case_free(c);
    free(y);
    free(stats);
    free(dw);
    free(db);
}

static void norms_and_their_gradients_match_double_precision(void **state)
{
    /* 256 columns are a block of column sums; 65 and 130 rows make 2 and 3 chunks */
    static const struct {
        size_t m, n;
        int shift;
    } shapes[] = { { 1, 1, 0 }, { 3, 8, 0 }, { 5, 33, 0 }, { 65, 40, 0 }, { 9, 264, 0 }, { 130, 17, 0 }, { 4, 64, 1 } };
    (void)state;
    for (int kind = 0; kind < 2; kind++)
        for (size_t t = 0; t < COUNT(TYPES); t++)
            for (size_t i = 0; i < COUNT(shapes); i++)
                one_norm(kind ? SF_OP_NORM_RMS : SF_OP_NORM_LAYER, TYPES[t], shapes[i].m, shapes[i].n, shapes[i].shift,
                         (int)(i + t));
}

/* ---- cross-entropy ---- */
typedef struct {
    sf_dtype dtype;
    tensor *logits, *targets, *loss;
    size_t m, n;
    float scale;
} xent_args;

static int launch_xent(kase *c, void *p)
{
    xent_args *a = p;
    (void)c;
    return sf_cuda_xent(NULL, a->dtype, a->m, a->n, a->logits->data, a->targets->data, a->scale, a->loss->data);
}

static void logits_become_their_gradient_in_place(void **state)
{
    /* without a target: -100; 513 and 4099: more than one element, and more than one pack, for each of 512 threads */
    static const struct {
        size_t m, n;
        int shift;
        double scale;
    } shapes[] = { { 1, 1, 0, 1 }, { 2, 3, 0, 1 }, { 3, 8, 0, 9 }, { 4, 17, 1, 1 }, { 3, 513, 0, 30 }, { 2, 1000, 3, 1 }, { 2, 4099, 0, 5 } };
    (void)state;
    for (size_t t = 0; t < COUNT(TYPES); t++)
        for (size_t i = 0; i < COUNT(shapes); i++) {
            size_t m = shapes[i].m, n = shapes[i].n;
            double *want = doubles(m * n), *loss = doubles(m);
            kase *c = case_new(shapes[i].shift, "xent %s (%zu, %zu) shift %d", sf_dtype_name(TYPES[t]), m, n, shapes[i].shift);
            xent_args a = { TYPES[t], case_random(c, "logits", TYPES[t], m * n, shapes[i].scale),
                            case_ints(c, "targets", m, (int32_t)n), case_blank(c, "loss", SF_F32, m), m, n, 0.25f };
            if (m > 2)
                tensor_put(a.targets, 1, -100.0); /* no target */
            memcpy(want, a.logits->value, m * n * sizeof *want);
            sf_ref_xent(m, n, want, a.targets->data, 0.25, loss);
            case_run(c, launch_xent, &a);
            case_close(c, a.loss, loss, 0x1p-20, NULL, 0x1p-18);
            case_close(c, a.logits, want, 1.01 * case_eps(TYPES[t]) + 0x1p-18, NULL, 0x1p-24);
            case_free(c);
            free(want);
            free(loss);
        }
}

static void a_target_outside_the_vocabulary_gives_nan(void **state)
{
    kase *c = case_new(0, "xent with target 5 of 5");
    xent_args a = { SF_F32, case_random(c, "logits", SF_F32, 5, 1.0), case_ints(c, "targets", 1, 5),
                    case_blank(c, "loss", SF_F32, 1), 1, 5, 1.0f };
    (void)state;
    tensor_put(a.targets, 0, 5.0);
    tensor_put(a.loss, 0, 0.0);
    case_run(c, launch_xent, &a);
    assert_true(isnan(tensor_at(a.loss, 0)));
    case_free(c);
}

/* ---- rotary embedding ---- */
typedef struct {
    sf_dtype dtype;
    tensor *qkv, *table;
    size_t m, seq, heads, kv_heads, head_dim, rotary_dim;
    int backward;
} rope_args;

static int launch_rope(kase *c, void *p)
{
    rope_args *a = p;
    (void)c;
    return sf_cuda_rope(NULL, a->dtype, a->m, a->seq, a->heads, a->kv_heads, a->head_dim, a->rotary_dim, a->table->data,
                        a->backward, a->qkv->data);
}

static void rotary_embedding_turns_q_and_k_and_backward_turns_back(void **state)
{
    static const struct {
        size_t batch, seq, heads, kv_heads, head_dim, rotary_dim;
        int shift;
    } shapes[] = { { 1, 1, 1, 1, 2, 2, 0 },   { 2, 5, 2, 1, 16, 16, 0 }, { 1, 70, 4, 2, 64, 64, 0 },
                   { 3, 4, 2, 2, 10, 6, 0 },  { 1, 9, 3, 1, 32, 16, 0 }, { 1, 8, 2, 1, 16, 16, 1 } };
    (void)state;
    for (size_t t = 0; t < COUNT(TYPES); t++)
        for (size_t i = 0; i < COUNT(shapes); i++)
            for (int backward = 0; backward < 2; backward++) {
                size_t m = shapes[i].batch * shapes[i].seq, n = m * (shapes[i].heads + 2 * shapes[i].kv_heads) * shapes[i].head_dim;
                double *want = doubles(n);
                kase *c = case_new(shapes[i].shift, "rope %s m %zu head_dim %zu rotary %zu backward %d", sf_dtype_name(TYPES[t]), m,
                                   shapes[i].head_dim, shapes[i].rotary_dim, backward);
                rope_args a = { TYPES[t], case_random(c, "qkv", TYPES[t], n, 1.0),
                                case_blank(c, "table", SF_F32, shapes[i].seq * shapes[i].rotary_dim), m, shapes[i].seq,
                                shapes[i].heads, shapes[i].kv_heads, shapes[i].head_dim, shapes[i].rotary_dim, backward };
                memcpy(want, a.qkv->value, n * sizeof *want);
                for (size_t k = 0; k < a.table->n; k++) {
                    size_t pairs = a.rotary_dim / 2, position = k / a.rotary_dim, j = k % a.rotary_dim;
                    double angle = (double)position * pow(10000.0, -(double)(j % pairs) / (double)pairs);
                    tensor_put(a.table, k, j < pairs ? cos(angle) : sin(angle));
                }
                sf_ref_rope(&(sf_ref_attn){ shapes[i].batch, a.seq, a.heads, a.kv_heads, a.head_dim }, a.rotary_dim, 10000.0,
                            backward ? -1 : 1, want);
                case_run(c, launch_rope, &a);
                case_close(c, a.qkv, want, 1.01 * case_eps(TYPES[t]), NULL, 0x1p-21);
                case_free(c);
                free(want);
            }
}

/* ---- sum of squares ---- */
typedef struct {
    sf_dtype dtype;
    tensor *x, *sum, *ws;
    int accumulate;
} sumsq_args;

static int launch_sumsq(kase *c, void *p)
{
    sumsq_args *a = p;
    (void)c;
    return sf_cuda_sum_squares(NULL, a->dtype, a->x->n, a->x->data, a->accumulate, a->sum->data, a->ws->data);
}

static void sums_of_squares_are_accurate_and_add_up(void **state)
{
    static const struct {
        size_t n;
        int shift, accumulate;
    } shapes[] = { { 0, 0, 0 }, { 1, 0, 0 }, { 2047, 0, 1 }, { 2049, 0, 0 }, { 20001, 0, 1 }, { 4100, 1, 0 } };
    (void)state;
    for (size_t t = 0; t < COUNT(TYPES); t++)
        for (size_t i = 0; i < COUNT(shapes); i++) {
            kase *c = case_new(0, "sumsq %s n %zu", sf_dtype_name(TYPES[t]), shapes[i].n);
            sumsq_args a = { TYPES[t], NULL, case_random(c, "sum", SF_F64, 1, 5.0),
                             case_scratch(c, sf_cuda_sum_squares_ws_bytes(shapes[i].n)), shapes[i].accumulate };
            c->shift = shapes[i].shift;
            a.x = case_random(c, "x", TYPES[t], shapes[i].n, 1.0);
            double want = (a.accumulate ? a.sum->value[0] : 0.0) + sf_ref_sum_squares(shapes[i].n, a.x->value);
            case_run(c, launch_sumsq, &a);
            case_close(c, a.sum, &want, 0x1p-22, NULL, 1e-30);
            case_free(c);
        }
}

/* ---- bias gradient ---- */
typedef struct {
    sf_dtype dtype, grad_dtype;
    tensor *dy, *db, *ws;
    size_t m, n;
    int accumulate;
} bias_args;

static int launch_bias(kase *c, void *p)
{
    bias_args *a = p;
    (void)c;
    return sf_cuda_bias_grad(NULL, a->dtype, a->grad_dtype, a->m, a->n, a->dy->data, a->accumulate, a->db->data,
                             a->ws->data);
}

static void bias_gradients_are_column_sums(void **state)
{
    /* 4100 rows: 64 chunks of 65 rows, the last one of 5 */
    static const struct {
        size_t m, n;
        int shift;
    } shapes[] = { { 0, 5, 0 }, { 1, 1, 0 }, { 64, 8, 0 }, { 65, 300, 0 }, { 200, 37, 0 }, { 4100, 8, 0 }, { 70, 16, 1 } };
    (void)state;
    for (size_t t = 0; t < COUNT(TYPES); t++)
        for (size_t i = 0; i < COUNT(shapes); i++) {
            size_t m = shapes[i].m, n = shapes[i].n;
            double *want = doubles(n);
            sf_dtype grad = i % 2 ? SF_F32 : TYPES[t];
            kase *c = case_new(shapes[i].shift, "bias_grad %s (%zu, %zu) shift %d", sf_dtype_name(TYPES[t]), m, n, shapes[i].shift);
            bias_args a = { TYPES[t], grad, case_random(c, "dy", TYPES[t], m * n, 1.0), NULL,
                            case_scratch(c, sf_cuda_bias_grad_ws_bytes(m, n)), m, n, i % 3 == 0 };
            a.db = a.accumulate ? case_random(c, "db", grad, n, 1.0) : case_blank(c, "db", grad, n);
            for (size_t k = 0; k < n; k++)
                want[k] = a.accumulate ? a.db->value[k] : 0.0;
            for (size_t k = 0; k < m * n; k++)
                want[k % n] += a.dy->value[k];
            case_run(c, launch_bias, &a);
            case_close(c, a.db, want, 1.01 * case_eps(grad), NULL, sum_error(m, 1.0));
            case_free(c);
            free(want);
        }
}

/* ---- gradient of the embedding ---- */
typedef struct {
    sf_dtype dtype, grad_dtype;
    tensor *dx, *tokens, *dwte, *dwpe, *ws;
    size_t m, n, vocab, seq;
    int accumulate;
} embed_args;

static int launch_embed_bwd(kase *c, void *p)
{
    embed_args *a = p;
    (void)c;
    return sf_cuda_embed_bwd(NULL, a->dtype, a->grad_dtype, a->m, a->seq, a->n, a->vocab, a->tokens->data, a->dx->data,
                             a->accumulate, a->dwte->data, a->accumulate, a->dwpe ? a->dwpe->data : NULL, a->ws->data);
}

static void embedding_gradients_add_the_rows_of_each_token_in_order(void **state)
{
    /* vocab 1: all rows share a token; vocab 2500: more than two tokens for each of the 1024 scanning threads */
    static const struct {
        size_t batch, seq, n, vocab;
        int with_wpe, shift, accumulate;
    } shapes[] = { { 1, 1, 1, 1, 1, 0, 0 },  { 4, 10, 8, 1, 1, 0, 1 },     { 3, 100, 16, 29, 1, 0, 0 },
                   { 2, 7, 13, 50, 1, 0, 1 }, { 1, 300, 24, 2500, 0, 0, 0 }, { 2, 9, 16, 6, 1, 1, 0 } };
    (void)state;
    for (size_t t = 0; t < COUNT(TYPES); t++)
        for (size_t i = 0; i < COUNT(shapes); i++) {
            size_t m = shapes[i].batch * shapes[i].seq, n = shapes[i].n, vocab = shapes[i].vocab, seq = shapes[i].seq;
            sf_dtype grad = i % 2 ? TYPES[t] : SF_F32;
            double *wte = doubles(vocab * n), *wpe = doubles(seq * n);
            kase *c = case_new(shapes[i].shift, "embed_bwd %s (%zu, %zu) vocab %zu", sf_dtype_name(TYPES[t]), m, n, vocab);
            embed_args a = { TYPES[t], grad, case_random(c, "dx", TYPES[t], m * n, 1.0), case_ints(c, "tokens", m, (int32_t)vocab),
                             NULL, NULL, case_scratch(c, sf_cuda_embed_bwd_ws_bytes(m, vocab)), m, n,
                             vocab, seq, shapes[i].accumulate };
            a.dwte = a.accumulate ? case_random(c, "dwte", grad, vocab * n, 1.0) : case_blank(c, "dwte", grad, vocab * n);
            if (shapes[i].with_wpe)
                a.dwpe = a.accumulate ? case_random(c, "dwpe", grad, seq * n, 1.0) : case_blank(c, "dwpe", grad, seq * n);
            for (size_t k = 0; k < vocab * n; k++)
                wte[k] = a.accumulate ? a.dwte->value[k] : 0.0;
            for (size_t k = 0; k < seq * n; k++)
                wpe[k] = a.accumulate && a.dwpe ? a.dwpe->value[k] : 0.0;
            sf_ref_embed_bwd(m, seq, n, a.tokens->data, a.dx->value, wte, wpe);
            case_run(c, launch_embed_bwd, &a);
            case_close(c, a.dwte, wte, 1.01 * case_eps(grad), NULL, sum_error(m, 1.0));
            if (a.dwpe)
                case_close(c, a.dwpe, wpe, 1.01 * case_eps(grad), NULL, sum_error(shapes[i].batch, 1.0));
            case_free(c);
            free(wte);
            free(wpe);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_and_their_gradients_match_double_precision),
        cmocka_unit_test(logits_become_their_gradient_in_place),
        cmocka_unit_test(a_target_outside_the_vocabulary_gives_nan),
        cmocka_unit_test(rotary_embedding_turns_q_and_k_and_backward_turns_back),
        cmocka_unit_test(sums_of_squares_are_accurate_and_add_up),
        cmocka_unit_test(bias_gradients_are_column_sums),
        cmocka_unit_test(embedding_gradients_add_the_rows_of_each_token_in_order),
    };
    if (!case_runner_ready())
        return 77; /* meson: skipped */
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    printf("%ld kernel cases\n", case_count());
    return failed;
}
