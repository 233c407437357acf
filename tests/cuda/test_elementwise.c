/* Kernels that work element by element against double precision, on sizes around a pack of 8 elements, on
 * aligned and unaligned memory, in every type. One rounding of the result is all a 16-bit type may lose. */
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
/* elements, shift; 2055 = 256 threads * 8 + 7 */
static const struct {
    size_t n;
    int shift;
} SIZES[] = { { 1, 0 }, { 7, 0 }, { 8, 1 }, { 64, 0 }, { 1003, 0 }, { 2055, 0 }, { 130, 3 } };

static double *doubles(size_t n)
{
    return calloc(n ? n : 1, sizeof(double));
}

/* ---- add, accumulate, cast, scale, fill ---- */
typedef struct {
    sf_dtype from, to;
    tensor *a, *b, *out;
    size_t n;
} flat_args;

static int launch_add(kase *c, void *p)
{
    flat_args *a = p;
    (void)c;
    return sf_cuda_add(NULL, a->from, a->n, a->a->data, a->b->data, a->out->data);
}
static int launch_accumulate(kase *c, void *p)
{
    flat_args *a = p;
    (void)c;
    return sf_cuda_accumulate(NULL, a->from, a->to, a->n, a->a->data, a->out->data);
}
static int launch_cast(kase *c, void *p)
{
    flat_args *a = p;
    (void)c;
    return sf_cuda_cast(NULL, a->from, a->to, a->n, a->a->data, a->out->data);
}
static int launch_scale(kase *c, void *p)
{
    flat_args *a = p;
    (void)c;
    return sf_cuda_scale(NULL, a->from, a->n, -1.75f, a->out->data);
}
static int launch_fill(kase *c, void *p)
{
    flat_args *a = p;
    (void)c;
    return sf_cuda_fill(NULL, a->from, a->n, 0.3f, a->out->data);
}

static void sums_of_two_arrays_round_once(void **state)
{
    (void)state;
    for (size_t t = 0; t < COUNT(TYPES); t++)
        for (size_t i = 0; i < COUNT(SIZES); i++) {
            size_t n = SIZES[i].n;
            double *want = doubles(n);
            kase *c = case_new(SIZES[i].shift, "add %s n %zu shift %d", sf_dtype_name(TYPES[t]), n, SIZES[i].shift);
            flat_args a = { TYPES[t], TYPES[t], case_random(c, "a", TYPES[t], n, 3.0), case_random(c, "b", TYPES[t], n, 1.0),
                            case_blank(c, "out", TYPES[t], n), n };
            case_run(c, launch_add, &a);
            for (size_t k = 0; k < n; k++)
                want[k] = a.a->value[k] + a.b->value[k];
            case_close(c, a.out, want, 1.001 * case_eps(TYPES[t]), NULL, 0x1p-24);
            case_free(c);
            free(want);
        }
}

static void accumulating_adds_in_float_between_any_two_types(void **state)
{
    (void)state;
    for (size_t t = 0; t < COUNT(TYPES); t++)
        for (size_t u = 0; u < COUNT(TYPES); u++) {
            size_t n = SIZES[(3 * t + u) % COUNT(SIZES)].n;
            int shift = SIZES[(3 * t + u) % COUNT(SIZES)].shift;
            double *want = doubles(n);
            kase *c = case_new(shift, "accumulate %s into %s n %zu", sf_dtype_name(TYPES[t]), sf_dtype_name(TYPES[u]), n);
            flat_args a = { TYPES[t], TYPES[u], case_random(c, "src", TYPES[t], n, 1.0), NULL,
                            case_random(c, "dst", TYPES[u], n, 1.0), n };
            case_run(c, launch_accumulate, &a);
            for (size_t k = 0; k < n; k++)
                want[k] = a.a->value[k] + a.out->value[k];
            case_close(c, a.out, want, 1.001 * case_eps(TYPES[u]), NULL, 0x1p-24);
            case_free(c);
            free(want);
        }
}

static void a_cast_rounds_to_nearest(void **state)
{
    (void)state;
    for (size_t t = 0; t < COUNT(TYPES); t++)
        for (size_t u = 0; u < COUNT(TYPES); u++) {
            size_t n = SIZES[(3 * t + u + 2) % COUNT(SIZES)].n;
            int shift = SIZES[(3 * t + u + 2) % COUNT(SIZES)].shift;
            kase *c = case_new(shift, "cast %s to %s n %zu", sf_dtype_name(TYPES[t]), sf_dtype_name(TYPES[u]), n);
            flat_args a = { TYPES[t], TYPES[u], case_random(c, "src", TYPES[t], n, 1.0), NULL,
                            case_blank(c, "dst", TYPES[u], n), n };
            case_run(c, launch_cast, &a);
            case_close(c, a.out, a.a->value, case_eps(TYPES[u]), NULL, TYPES[u] == SF_F16 ? 0x1p-25 : 0.0);
            case_free(c);
        }
}

static void scaling_and_filling_write_every_element(void **state)
{
    (void)state;
    for (size_t t = 0; t < COUNT(TYPES); t++)
        for (size_t i = 0; i < COUNT(SIZES); i += 2) {
            size_t n = SIZES[i].n;
            double *want = doubles(n);
            kase *c = case_new(SIZES[i].shift, "scale %s n %zu", sf_dtype_name(TYPES[t]), n);
            flat_args a = { TYPES[t], TYPES[t], NULL, NULL, case_random(c, "x", TYPES[t], n, 2.0), n };
            case_run(c, launch_scale, &a);
            for (size_t k = 0; k < n; k++)
                want[k] = -1.75 * a.out->value[k];
            case_close(c, a.out, want, case_eps(TYPES[t]), NULL, 0x1p-24);
            case_run(c, launch_fill, &a);
            for (size_t k = 0; k < n; k++)
                want[k] = 0.3;
            case_close(c, a.out, want, case_eps(TYPES[t]) + 0x1p-24, NULL, 0.0);
            case_free(c);
            free(want);
        }
}

/* ---- activations ---- */
typedef struct {
    sf_dtype dtype;
    sf_op_act kind;
    tensor *in, *dy, *out;
    size_t m, n;
    int in_place;
} act_args;

static int launch_act_fwd(kase *c, void *p)
{
    act_args *a = p;
    (void)c;
    return sf_cuda_act_fwd(NULL, a->dtype, a->kind, a->m, a->n, a->in->data, a->out->data);
}
static int launch_act_bwd(kase *c, void *p)
{
    act_args *a = p;
    (void)c;
    return sf_cuda_act_bwd(NULL, a->dtype, a->kind, a->m, a->n, a->dy->data, a->in->data,
                           a->in_place ? a->in->data : a->out->data);
}

static const struct {
    size_t m, n;
    int shift;
} ACT_SHAPES[] = { { 1, 1, 0 }, { 3, 8, 0 }, { 5, 40, 0 }, { 7, 13, 0 }, { 4, 24, 1 } };

static void activations_and_their_slopes_match_double_precision(void **state)
{
    static const sf_op_act kinds[] = { SF_OP_ACT_GELU_TANH, SF_OP_ACT_GELU_ERF, SF_OP_ACT_RELU };
    (void)state;
    for (size_t k = 0; k < COUNT(kinds); k++)
        for (size_t t = 0; t < COUNT(TYPES); t++)
            for (size_t i = 0; i < COUNT(ACT_SHAPES); i++) {
                size_t m = ACT_SHAPES[i].m, n = ACT_SHAPES[i].n;
                double *want = doubles(m * n);
                kase *c = case_new(ACT_SHAPES[i].shift, "act %d %s (%zu, %zu)", (int)kinds[k], sf_dtype_name(TYPES[t]), m, n);
                act_args a = { TYPES[t], kinds[k], case_random(c, "in", TYPES[t], m * n, 4.0),
                               case_random(c, "dy", TYPES[t], m * n, 1.0), case_blank(c, "out", TYPES[t], m * n), m, n, 0 };
                case_run(c, launch_act_fwd, &a);
                sf_ref_act_fwd(a.kind, m, n, a.in->value, want);
                case_close(c, a.out, want, 1.01 * case_eps(TYPES[t]), NULL, 0x1p-21);
                case_run(c, launch_act_bwd, &a);
                sf_ref_act_bwd(a.kind, m, n, a.dy->value, a.in->value, want);
                case_close(c, a.out, want, 1.01 * case_eps(TYPES[t]), NULL, 0x1p-21);
                case_free(c);
                free(want);
            }
}

static void swiglu_and_its_gradient_match_double_precision(void **state)
{
    (void)state;
    for (size_t t = 0; t < COUNT(TYPES); t++)
        for (size_t i = 0; i < COUNT(ACT_SHAPES); i++) {
            size_t m = ACT_SHAPES[i].m, n = ACT_SHAPES[i].n;
            double *want = doubles(2 * m * n);
            kase *c = case_new(ACT_SHAPES[i].shift, "swiglu %s (%zu, %zu)", sf_dtype_name(TYPES[t]), m, n);
            act_args a = { TYPES[t], SF_OP_ACT_SWIGLU, case_random(c, "in", TYPES[t], 2 * m * n, 3.0),
                           case_random(c, "dy", TYPES[t], m * n, 1.0), case_blank(c, "out", TYPES[t], m * n), m, n, 0 };
            case_run(c, launch_act_fwd, &a);
            sf_ref_act_fwd(a.kind, m, n, a.in->value, want);
            case_close(c, a.out, want, 1.01 * case_eps(TYPES[t]), NULL, 0x1p-20);

            sf_ref_act_bwd(a.kind, m, n, a.dy->value, a.in->value, want);
            a.in_place = 1; /* dx over in, as the executor does */
            case_run(c, launch_act_bwd, &a);
            case_close(c, a.in, want, 1.01 * case_eps(TYPES[t]), NULL, 0x1p-20);
            case_free(c);
            free(want);
        }
}

/* ---- embedding lookup ---- */
typedef struct {
    sf_dtype dtype, param_dtype;
    tensor *tokens, *wte, *wpe, *x;
    size_t m, n, seq;
} embed_args;

static int launch_embed(kase *c, void *p)
{
    embed_args *a = p;
    (void)c;
    return sf_cuda_embed_fwd(NULL, a->dtype, a->param_dtype, a->m, a->seq, a->n, a->tokens->data, a->wte->data,
                             a->wpe ? a->wpe->data : NULL, a->x->data);
}

static void the_embedding_adds_the_position_of_the_row_in_its_sequence(void **state)
{
    static const struct {
        size_t batch, seq, n, vocab;
        int with_wpe, shift;
    } shapes[] = { { 1, 1, 1, 1, 1, 0 }, { 2, 3, 8, 11, 1, 0 }, { 3, 5, 24, 50, 0, 0 }, { 2, 4, 13, 7, 1, 0 }, { 1, 9, 16, 30, 1, 1 } };
    (void)state;
    for (size_t t = 0; t < COUNT(TYPES); t++)
        for (size_t i = 0; i < COUNT(shapes); i++) {
            size_t m = shapes[i].batch * shapes[i].seq, n = shapes[i].n;
            sf_dtype param = i % 2 ? TYPES[t] : SF_F32;
            double *want = doubles(m * n);
            kase *c = case_new(shapes[i].shift, "embed_fwd %s (%zu, %zu)", sf_dtype_name(TYPES[t]), m, n);
            embed_args a = { TYPES[t], param, case_ints(c, "tokens", m, (int32_t)shapes[i].vocab),
                             case_random(c, "wte", param, shapes[i].vocab * n, 1.0), NULL,
                             case_blank(c, "x", TYPES[t], m * n), m, n, shapes[i].seq };
            if (shapes[i].with_wpe)
                a.wpe = case_random(c, "wpe", param, shapes[i].seq * n, 1.0);
            case_run(c, launch_embed, &a);
            sf_ref_embed_fwd(m, a.seq, n, a.tokens->data, a.wte->value, a.wpe ? a.wpe->value : NULL, want);
            case_close(c, a.x, want, 1.001 * case_eps(TYPES[t]), NULL, 0x1p-24);
            case_free(c);
            free(want);
        }
}

/* ---- AdamW ---- */
typedef struct {
    sf_dtype grad_dtype, param_dtype;
    tensor *grad, *master, *m, *v, *param, *sumsq;
    sf_cuda_adamw_step step;
    size_t n;
} adamw_args;

static int launch_adamw(kase *c, void *p)
{
    adamw_args *a = p;
    (void)c;
    return sf_cuda_adamw(NULL, &a->step, a->n, a->grad_dtype, a->grad->data, a->sumsq ? a->sumsq->data : NULL,
                         a->master->data, a->m->data, a->v->data, a->param_dtype, a->param ? a->param->data : NULL);
}

static void adamw_decays_clips_and_corrects_as_the_paper_says(void **state)
{
    /* n, shift, step, sumsq (0: none), max_norm, flips of the decay */
    static const struct {
        size_t n;
        int shift;
        int64_t step;
        double sumsq, max_norm;
        int decay_first, n_flips;
        uint64_t flips[3];
    } shapes[] = {
        { 1, 0, 1, 0, 0, 1, 0, { 0 } },           { 40, 0, 1, 0, 0, 1, 1, { 13 } },      { 999, 0, 7, 16.0, 1.0, 0, 2, { 100, 205 } },
        { 2055, 0, 1000, 0.25, 1.0, 1, 3, { 8, 9, 2000 } }, { 77, 1, 3, 9.0, 0.0, 1, 0, { 0 } },
    };
    (void)state;
    for (size_t t = 0; t < COUNT(TYPES); t++)
        for (size_t i = 0; i < COUNT(shapes); i++) {
            size_t n = shapes[i].n;
            double *w = doubles(n), *m = doubles(n), *v = doubles(n);
            kase *c = case_new(shapes[i].shift, "adamw grad %s n %zu step %d", sf_dtype_name(TYPES[t]), n, (int)shapes[i].step);
            adamw_args a = { TYPES[t], TYPES[(t + i) % 3], case_random(c, "grad", TYPES[t], n, 0.1),
                             case_random(c, "master", SF_F32, n, 1.0), case_random(c, "m", SF_F32, n, 0.1),
                             case_random(c, "v", SF_F32, n, 0.01), NULL, NULL,
                             { 1e-2, 0.9, 0.95, 1e-8, 0.1, shapes[i].step, 0.5, shapes[i].max_norm, shapes[i].decay_first,
                               shapes[i].n_flips, { shapes[i].flips[0], shapes[i].flips[1], shapes[i].flips[2] } }, n };
            for (size_t e = 0; e < n; e++)
                tensor_put(a.v, e, fabs(a.v->value[e]));
            if (i > 0)
                a.param = case_blank(c, "param", a.param_dtype, n);
            if (shapes[i].sumsq > 0) {
                int shift = c->shift;
                c->shift = 0;
                a.sumsq = case_random(c, "sumsq", SF_F64, 1, 1.0);
                tensor_put(a.sumsq, 0, shapes[i].sumsq);
                c->shift = shift;
            }
            case_run(c, launch_adamw, &a);

            /* sumsq 16 -> norm 4 * 0.5 = 2 > 1: factor 1/2; sumsq 0.25 -> norm 0.25 < 1: factor 1 */
            double clip = shapes[i].sumsq > 0 && shapes[i].max_norm > 0 ? fmin(1.0, 1.0 / (sqrt(shapes[i].sumsq) * 0.5 + 1e-6)) : 1.0;
            sf_ref_adamw_step step = { 1e-2, 0.9, 0.95, 1e-8, 0.1, shapes[i].step, 0.5 * clip };
            int decays = shapes[i].decay_first, flip = 0;
            memcpy(w, a.master->value, n * sizeof *w);
            memcpy(m, a.m->value, n * sizeof *m);
            memcpy(v, a.v->value, n * sizeof *v);
            for (size_t from = 0; from < n;) { /* piece by piece */
                size_t to = flip < shapes[i].n_flips && shapes[i].flips[flip] < n ? shapes[i].flips[flip] : n;
                step.weight_decay = decays ? 0.1 : 0.0;
                sf_ref_adamw(&step, to - from, a.grad->value + from, w + from, m + from, v + from);
                decays = !decays;
                flip++;
                from = to;
            }
            case_close(c, a.m, m, 0x1p-22, NULL, 0x1p-28);
            case_close(c, a.v, v, 0x1p-22, NULL, 0x1p-40);
            case_close(c, a.master, w, 0x1p-22, NULL, 0x1p-20);
            if (a.param)
                case_close(c, a.param, w, case_eps(a.param_dtype) + 0x1p-22, NULL, 0x1p-20);
            case_free(c);
            free(w);
            free(m);
            free(v);
        }
}

static void unknown_types_are_refused_and_empty_work_launches_nothing(void **state)
{
    float x = 1.0f;
    sf_cuda_adamw_step first = { .step = 0 };
    (void)state;
    assert_int_not_equal(sf_cuda_add(NULL, SF_I32, 1, &x, &x, &x), 0);
    assert_int_not_equal(sf_cuda_cast(NULL, SF_F32, SF_F8, 1, &x, &x), 0);
    assert_int_not_equal(sf_cuda_act_fwd(NULL, SF_F32, (sf_op_act)99, 1, 1, &x, &x), 0);
    assert_int_not_equal(sf_cuda_adamw(NULL, &first, 1, SF_F32, &x, NULL, &x, &x, &x, SF_F32, NULL), 0); /* step 0 */
    assert_int_equal(sf_cuda_add(NULL, SF_F32, 0, NULL, NULL, NULL), 0);
    assert_true(x == 1.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_two_arrays_round_once),
        cmocka_unit_test(accumulating_adds_in_float_between_any_two_types),
        cmocka_unit_test(a_cast_rounds_to_nearest),
        cmocka_unit_test(scaling_and_filling_write_every_element),
        cmocka_unit_test(activations_and_their_slopes_match_double_precision),
        cmocka_unit_test(swiglu_and_its_gradient_match_double_precision),
        cmocka_unit_test(the_embedding_adds_the_position_of_the_row_in_its_sequence),
        cmocka_unit_test(adamw_decays_clips_and_corrects_as_the_paper_says),
        cmocka_unit_test(unknown_types_are_refused_and_empty_work_launches_nothing),
    };
    if (!case_runner_ready())
        return 77; /* meson: skipped */
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    printf("%ld kernel cases\n", case_count());
    return failed;
}
