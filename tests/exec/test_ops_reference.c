/* Each gradient of the reference against central differences of its forward. */
#include <math.h>
#include <string.h>

#include "exec/reference/ref_ops.h"
#include "tests/exec/ops_check.h"

/* A scalar function of x (n), with everything else fixed in `with`. */
typedef double (*scalar_fn)(const double *x, const void *with);

/* (f(x+h) - f(x-h)) / 2h is off by h^2 f'''/6 (1e-10 for values of order 1 at h = 1e-5) and by
 * rounding, 1e-16 |f| / h = 1e-11 |f|; 1e-7 leaves room for sums of some hundred terms. */
static void assert_gradient(const char *what, size_t n, double *x, const double *gradient, scalar_fn f,
                            const void *with)
{
    const double h = 1e-5;
    for (size_t i = 0; i < n; i++) {
        const double x0 = x[i];
        x[i] = x0 + h;
        const double up = f(x, with);
        x[i] = x0 - h;
        const double down = f(x, with);
        x[i] = x0;
        const double slope = (up - down) / (2 * h);
        if (!(fabs(slope - gradient[i]) <= 1e-7 * (1 + fabs(slope))))
            fail_msg("%s: gradient of element %zu is %.12g, difference quotient %.12g", what, i, gradient[i], slope);
    }
}

/* Random doubles; a fixed random weight per output makes a scalar of a vector. */
static double *randoms(size_t n)
{
    return vec_random(SF_F32, n, 1, 0).val;
}

static double weighted(size_t n, const double *w, const double *y)
{
    double s = 0;
    for (size_t i = 0; i < n; i++)
        s += w[i] * y[i];
    return s;
}

enum { ROWS = 6, HIDDEN = 5, OUT = 4, SEQ = 3, VOCAB = 7, MAX = 400 };
static double out[MAX], other[MAX], third[MAX];

typedef struct {
    int kind;
    const double *x, *w, *b, *weights;
    const int32_t *tokens;
    const sf_ref_attn *dims;
} fixed;

static double norm_of_x(const double *x, const void *p)
{
    const fixed *f = p;
    sf_ref_norm_fwd((sf_op_norm)f->kind, ROWS, HIDDEN, x, f->w, f->b, 1e-3, out, other, third);
    return weighted(ROWS * HIDDEN, f->weights, out);
}

static double norm_of_w(const double *w, const void *p)
{
    fixed f = *(const fixed *)p;
    f.w = w;
    return norm_of_x(f.x, &f);
}

static double norm_of_b(const double *b, const void *p)
{
    fixed f = *(const fixed *)p;
    f.b = b;
    return norm_of_x(f.x, &f);
}

static void norm_gradients_are_the_slopes(void **state)
{
    (void)state;
    for (int kind = SF_OP_NORM_LAYER; kind <= SF_OP_NORM_RMS; kind++) {
        double *x = randoms(ROWS * HIDDEN), *w = randoms(HIDDEN), *b = randoms(HIDDEN), *dy = randoms(ROWS * HIDDEN);
        double dx[ROWS * HIDDEN], dw[HIDDEN] = { 0 }, db[HIDDEN] = { 0 }, mean[ROWS], rstd[ROWS];
        const fixed f = { .kind = kind, .x = x, .w = w, .b = b, .weights = dy };
        sf_ref_norm_fwd((sf_op_norm)kind, ROWS, HIDDEN, x, w, b, 1e-3, out, mean, rstd);
        sf_ref_norm_bwd((sf_op_norm)kind, ROWS, HIDDEN, dy, x, w, mean, rstd, dx, dw, db);
        assert_gradient("norm dx", ROWS * HIDDEN, x, dx, norm_of_x, &f);
        assert_gradient("norm dweight", HIDDEN, w, dw, norm_of_w, &f);
        assert_gradient("norm dbias", HIDDEN, b, db, norm_of_b, &f);
    }
    vec_free_all();
}

static double linear_of_x(const double *x, const void *p)
{
    const fixed *f = p;
    sf_ref_linear_fwd(ROWS, HIDDEN, OUT, x, f->w, f->b, out);
    return weighted(ROWS * OUT, f->weights, out);
}

static double linear_of_w(const double *w, const void *p)
{
    fixed f = *(const fixed *)p;
    f.w = w;
    return linear_of_x(f.x, &f);
}

static double linear_of_b(const double *b, const void *p)
{
    fixed f = *(const fixed *)p;
    f.b = b;
    return linear_of_x(f.x, &f);
}

static void linear_gradients_are_the_slopes(void **state)
{
    (void)state;
    double *x = randoms(ROWS * HIDDEN), *w = randoms(OUT * HIDDEN), *b = randoms(OUT), *dy = randoms(ROWS * OUT);
    double dx[ROWS * HIDDEN], dw[OUT * HIDDEN] = { 0 }, db[OUT] = { 0 };
    const fixed f = { .x = x, .w = w, .b = b, .weights = dy };
    sf_ref_linear_bwd_x(ROWS, HIDDEN, OUT, dy, w, dx);
    sf_ref_linear_bwd_w(ROWS, HIDDEN, OUT, dy, x, dw, db);
    assert_gradient("linear dx", ROWS * HIDDEN, x, dx, linear_of_x, &f);
    assert_gradient("linear dweight", OUT * HIDDEN, w, dw, linear_of_w, &f);
    assert_gradient("linear dbias", OUT, b, db, linear_of_b, &f);
    vec_free_all();
}

static double embed_of_wte(const double *wte, const void *p)
{
    const fixed *f = p;
    sf_ref_embed_fwd(ROWS, SEQ, HIDDEN, f->tokens, wte, f->w, out);
    return weighted(ROWS * HIDDEN, f->weights, out);
}

static double embed_of_wpe(const double *wpe, const void *p)
{
    fixed f = *(const fixed *)p;
    f.w = wpe;
    return embed_of_wte(f.x, &f);
}

static void embedding_gradients_are_the_slopes(void **state)
{
    (void)state;
    const int32_t tokens[ROWS] = { 3, 0, 3, 6, 3, 1 };
    double *wte = randoms(VOCAB * HIDDEN), *wpe = randoms(SEQ * HIDDEN), *dy = randoms(ROWS * HIDDEN);
    double dwte[VOCAB * HIDDEN] = { 0 }, dwpe[SEQ * HIDDEN] = { 0 };
    const fixed f = { .x = wte, .w = wpe, .weights = dy, .tokens = tokens };
    sf_ref_embed_bwd(ROWS, SEQ, HIDDEN, tokens, dy, dwte, dwpe);
    assert_gradient("embed dwte", VOCAB * HIDDEN, wte, dwte, embed_of_wte, &f);
    assert_gradient("embed dwpe", SEQ * HIDDEN, wpe, dwpe, embed_of_wpe, &f);
    vec_free_all();
}

static double rope_of_x(const double *x, const void *p)
{
    const fixed *f = p;
    const size_t n = f->dims->micro_batch * f->dims->seq_len * (f->dims->heads + 2 * f->dims->kv_heads) * f->dims->head_dim;
    memcpy(out, x, n * sizeof *out);
    sf_ref_rope(f->dims, 4, 10000, 1, out);
    return weighted(n, f->weights, out);
}

static double attn_of_qkv(const double *qkv, const void *p)
{
    const fixed *f = p;
    sf_ref_attn_fwd(f->dims, qkv, out, other);
    return weighted(f->dims->micro_batch * f->dims->seq_len * f->dims->heads * f->dims->head_dim, f->weights, out);
}

static void rotation_and_attention_gradients_are_the_slopes(void **state)
{
    (void)state;
    static const sf_ref_attn all[] = { { 2, 3, 2, 2, 6 }, { 1, 5, 4, 2, 4 }, { 2, 4, 3, 1, 4 } };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const sf_ref_attn *d = &all[i];
        const size_t rows = d->micro_batch * d->seq_len, n = rows * (d->heads + 2 * d->kv_heads) * d->head_dim;
        double *qkv = randoms(n), *dy = randoms(n), grad[MAX];
        assert_true(n <= MAX);
        const fixed f = { .weights = dy, .dims = d };
        sf_ref_attn_fwd(d, qkv, out, other);
        sf_ref_attn_bwd(d, dy, qkv, out, grad);
        assert_gradient("attention dqkv", n, qkv, grad, attn_of_qkv, &f);
        memcpy(grad, dy, n * sizeof *grad);
        sf_ref_rope(d, 4, 10000, -1, grad);
        assert_gradient("rope dqkv", n, qkv, grad, rope_of_x, &f);
    }
    vec_free_all();
}

static double act_of_x(const double *x, const void *p)
{
    const fixed *f = p;
    sf_ref_act_fwd((sf_op_act)f->kind, ROWS, HIDDEN, x, out);
    return weighted(ROWS * HIDDEN, f->weights, out);
}

static void activation_gradients_are_the_slopes(void **state)
{
    (void)state;
    for (int kind = SF_OP_ACT_GELU_TANH; kind <= SF_OP_ACT_SWIGLU; kind++) {
        const size_t n = ROWS * HIDDEN * (kind == SF_OP_ACT_SWIGLU ? 2 : 1);
        double *x = randoms(n), *dy = randoms(ROWS * HIDDEN), dx[2 * ROWS * HIDDEN];
        const fixed f = { .kind = kind, .weights = dy };
        sf_ref_act_bwd((sf_op_act)kind, ROWS, HIDDEN, dy, x, dx);
        assert_gradient("activation", n, x, dx, act_of_x, &f);
    }
    vec_free_all();
}

static double loss_of_logits(const double *x, const void *p)
{
    const fixed *f = p;
    memcpy(out, x, ROWS * VOCAB * sizeof *out);
    sf_ref_xent(ROWS, VOCAB, out, f->tokens, 1, other);
    double sum = 0;
    for (size_t r = 0; r < ROWS; r++)
        sum += 0.25 * other[r];
    return sum;
}

static void loss_gradients_are_the_slopes(void **state)
{
    (void)state;
    const int32_t targets[ROWS] = { 3, 0, SF_IGNORE_TARGET, 6, 3, 1 };
    double *x = randoms(ROWS * VOCAB), grad[ROWS * VOCAB];
    const fixed f = { .tokens = targets };
    memcpy(grad, x, sizeof grad);
    sf_ref_xent(ROWS, VOCAB, grad, targets, 0.25, other);
    assert_gradient("loss", ROWS * VOCAB, x, grad, loss_of_logits, &f);
    vec_free_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norm_gradients_are_the_slopes),
        cmocka_unit_test(linear_gradients_are_the_slopes),
        cmocka_unit_test(embedding_gradients_are_the_slopes),
        cmocka_unit_test(rotation_and_attention_gradients_are_the_slopes),
        cmocka_unit_test(activation_gradients_are_the_slopes),
        cmocka_unit_test(loss_gradients_are_the_slopes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
