/* Profiles of a machine: interpolation, the time of ops, JSON there and back. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/cost/profile.h"
#include "model/program/build.h"

static void near(double a, double b)
{
    if (fabs(a - b) > 1e-9 * fabs(b))
        fail_msg("%.12g is not %.12g", a, b);
}

/* Between (10, 1 s) and (1000, 4 s) the middle in logarithms is 100: sqrt(1 * 4) = 2 s. */
static void curves_interpolate_in_logarithms_and_extend_as_described(void **state)
{
    (void)state;
    sf_curve c = { .n = 2, .x = { 10, 1000 }, .s = { 1, 4 } };

    near(sf_curve_at(&c, 100), 2);
    near(sf_curve_at(&c, 10), 1);
    near(sf_curve_at(&c, 1), 1);     /* below: fixed cost        */
    near(sf_curve_at(&c, 3000), 12); /* beyond: in proportion    */
    assert_true(sf_curve_at(&(sf_curve){ 0 }, 5) == 0);
}

static sf_gemm_grid grid(void)
{
    sf_gemm_grid g = { .n_m = 2, .n_n = 1, .n_k = 1, .m = { 16, 256 }, .n = { 64 }, .k = { 64 } };
    g.flops_per_s[0][0][0] = 1e9;
    g.flops_per_s[1][0][0] = 4e9;
    return g;
}

/* m = 64 is halfway from 16 to 256 in logarithms: times per FLOP 1 and 1/4 ns average to 0.625 ns. */
static void grids_interpolate_time_per_flop(void **state)
{
    (void)state;
    sf_gemm_grid g = grid();

    near(sf_gemm_grid_at(&g, 64, 64, 64), 1e9 / 0.625);
    near(sf_gemm_grid_at(&g, 16, 64, 64), 1e9);
    near(sf_gemm_grid_at(&g, 1, 64, 64), 1e9);
    near(sf_gemm_grid_at(&g, 1e6, 1e6, 1e6), 4e9);
}

typedef struct {
    sf_arena arena;
    sf_class cls;
    sf_builder b;
    int f32, bf16;
} tiny;

static void tiny_start(tiny *t)
{
    memset(t, 0, sizeof *t);
    sf_build_start(&t->b, &t->arena, &t->cls);
    t->f32 = sf_build_buffer(&t->b, (sf_buffer){ .name = "a", .dtype = SF_F32, .elems = 4096, .count = 1, .persistent = true });
    t->bf16 = sf_build_buffer(&t->b, (sf_buffer){ .name = "b", .dtype = SF_BF16, .elems = 4096, .count = 1, .persistent = true });
}

static double time_of(const tiny *t, const sf_profile_set *set, const sf_op *op)
{
    return sf_profile_op_time_s(set, &t->cls, &(sf_issue){ .op = op });
}

static void ops_take_the_time_of_their_kind_type_and_size(void **state)
{
    (void)state;
    tiny t;
    sf_profile_set *set = calloc(1, sizeof *set);

    tiny_start(&t);
    set->ranks = 2;
    set->gemm[0][0] = grid();
    set->kernel[0][SF_OP_ADD] = (sf_curve){ .n = 1, .x = { 1000 }, .s = { 1e-3 } };
    set->kernel[1][SF_OP_ADD] = (sf_curve){ .n = 1, .x = { 1000 }, .s = { 5e-4 } };
    set->kernel[0][SF_OP_ZERO] = (sf_curve){ .n = 1, .x = { 100 }, .s = { 1e-4 } };
    set->kernel[0][SF_OP_EMBED_BWD] = (sf_curve){ .n = 1, .x = { 1000 }, .s = { 2e-3 } };
    set->collective[0][SF_OP_ALL_REDUCE].time = (sf_curve){ .n = 1, .x = { 8192 }, .s = { 1e-3 } };
    set->collective[0][SF_OP_ALL_REDUCE].cpu = (sf_curve){ .n = 1, .x = { 8192 }, .s = { 4e-4 } };
    set->n_head_dims = 1;
    set->attention[0][0] = (sf_attention_curves){ .head_dim = 64, .forward = { .n = 1, .x = { 128 }, .s = { 1e-4 } } };

    sf_arg a = sf_whole(&t.b, t.f32, SF_READ), h = sf_whole(&t.b, t.bf16, SF_READ);
    sf_op op = *sf_build_op(&t.b, SF_OP_LINEAR_FWD, SF_STREAM_COMPUTE, "x", SF_ARGS(a, a, sf_none(), a));
    op.dims = (sf_dims){ .m = 256, .n = 64, .k = 64 };
    near(time_of(&t, set, &op), 2.0 * 256 * 64 * 64 / 4e9);

    op = *sf_build_op(&t.b, SF_OP_ADD, SF_STREAM_COMPUTE, "x", SF_ARGS(a, a, a));
    op.dims = (sf_dims){ .n = 4000 };
    near(time_of(&t, set, &op), 4e-3);
    op = *sf_build_op(&t.b, SF_OP_ADD, SF_STREAM_COMPUTE, "x", SF_ARGS(h, h, h));
    op.dims = (sf_dims){ .n = 4000 };
    near(time_of(&t, set, &op), 2e-3);

    /* 10 x 100 elements; untied and not accumulating: 50 x 100 elements of the table are cleared too */
    op = *sf_build_op(&t.b, SF_OP_EMBED_BWD, SF_STREAM_COMPUTE, "x", SF_ARGS(a, a, a));
    op.dims = (sf_dims){ .m = 10, .n = 100, .k = 50 };
    near(time_of(&t, set, &op), 2e-3 + 5e-3);
    op.kind = 1;
    near(time_of(&t, set, &op), 2e-3);

    /* 2 sequences of 256 = twice the measured 128: 2 (longer) * 2 (square) * 1e-4 s per head of 64, 3 heads of 32 */
    op = *sf_build_op(&t.b, SF_OP_ATTN_FWD, SF_STREAM_COMPUTE, "x", SF_ARGS(a, a, a));
    op.dims = (sf_dims){ .m = 512, .heads = 3, .head_dim = 32, .seq = 256 };
    near(time_of(&t, set, &op), 4e-4 * 2 * 3 * 0.5);

    /* 4096 bf16 = 8192 B; bf16 was not measured: f32's curve */
    op = *sf_build_op(&t.b, SF_OP_ALL_REDUCE, SF_STREAM_COMM, "x", SF_ARGS(h));
    op.dims.n = 4096;
    near(time_of(&t, set, &op), 1e-3);
    near(sf_profile_op_cores(set, &t.cls, &(sf_issue){ .op = &op }), 0.4);
    assert_true(sf_profile_has(set, SF_OP_ADD));
    assert_false(sf_profile_has(set, SF_OP_SUMSQ));
    free(set);
    sf_arena_free(&t.arena);
}

static void the_set_of_the_nearest_number_of_ranks_is_used(void **state)
{
    (void)state;
    sf_profile_set *sets = calloc(4, sizeof *sets);
    sf_profile p = { .cores = 4, .sets = sets, .n_sets = 4 };
    sets[0].ranks = 1;
    sets[1].ranks = 2;
    sets[2] = (sf_profile_set){ .ranks = 2, .threads = true };
    sets[3].ranks = 8;

    assert_ptr_equal(sf_profile_set_of(&p, 2, false), &sets[1]);
    assert_ptr_equal(sf_profile_set_of(&p, 2, true), &sets[2]);
    assert_ptr_equal(sf_profile_set_of(&p, 3, true), &sets[2]);
    assert_ptr_equal(sf_profile_set_of(&p, 5, false), &sets[3]); /* 8/5 < 5/2 */
    assert_ptr_equal(sf_profile_set_of(&p, 1, true), &sets[0]);
    free(sets);
}

static void a_profile_survives_json(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_profile_set *set = calloc(1, sizeof *set);
    sf_profile p = { .cores = 2, .sets = set, .n_sets = 1 }, back;

    *set = (sf_profile_set){ .ranks = 2, .transport = "shared memory", .issue_s = 1e-6, .op_gap_s = 2e-6, .handoff_s = 3e-6, .overlap_slowdown = 1.25 };
    set->gemm[1][2] = grid();
    set->kernel[0][SF_OP_ADAMW] = (sf_curve){ .n = 2, .x = { 1, 2 }, .s = { 3, 4 } };
    set->n_head_dims = 1;
    for (int d = 0; d < 2; d++)
        set->attention[d][0] = (sf_attention_curves){ .head_dim = 64, .forward = { 1, { 5 }, { 6 } }, .backward = { 1, { 7 }, { 8 } } };
    set->collective[1][SF_OP_GATHER] = (sf_collective_curves){ { 1, { 9 }, { 10 } }, { 1, { 9 }, { 11 } } };
    json_t *json = sf_profile_to_json(&p);
    sf_status st = sf_profile_from_json(json, "test", &arena, &back);
    assert_string_equal(st.msg, "");
    assert_int_equal(back.n_sets, 1);
    assert_int_equal(back.cores, 2);
    assert_memory_equal(back.sets, set, sizeof *set);
    json_decref(json);
    free(set);
    sf_arena_free(&arena);
}

static void bad_profiles_are_told_where_they_are_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *json, *message;
    } cases[] = {
        { "{}", "'schema' is '(missing)'" },
        { "{\"schema\": \"shardfit-profile-1\", \"sets\": []}", "'sets' must have 1 to 16 elements" },
        { "{\"schema\": \"shardfit-profile-1\", \"sets\": [{\"ranks\": 0}]}", "a set needs ranks" },
        { "{\"schema\": \"shardfit-profile-1\", \"sets\": [{\"ranks\": 1, \"overlap_slowdown\": 1, \"gemm\": 3}]}", "'gemm' is missing or no array" },
        { "{\"schema\": \"shardfit-profile-1\", \"sets\": [{\"ranks\": 1, \"overlap_slowdown\": 1, \"gemm\": [], \"kernels\": [{\"op\": \"addd\"}]}]}",
          "no op is called 'addd'" },
        { "{\"schema\": \"shardfit-profile-1\", \"sets\": [{\"ranks\": 1, \"overlap_slowdown\": 1, \"gemm\": [], \"kernels\": "
          "[{\"op\": \"add\", \"dtype\": \"f32\", \"elements\": [2, 1], \"seconds\": [1, 1]}]}]}", "element 1 of 'elements' is 1" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sf_arena arena = { 0 };
        sf_profile p;
        json_t *json = json_loads(cases[i].json, 0, NULL);
        assert_non_null(json);
        sf_status st = sf_profile_from_json(json, "profile.json", &arena, &p);
        assert_int_equal(st.code, SF_EPARSE);
        if (strstr(st.msg, cases[i].message) == NULL)
            fail_msg("'%s' lacks '%s'", st.msg, cases[i].message);
        json_decref(json);
        sf_arena_free(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(curves_interpolate_in_logarithms_and_extend_as_described),
        cmocka_unit_test(grids_interpolate_time_per_flop),
        cmocka_unit_test(ops_take_the_time_of_their_kind_type_and_size),
        cmocka_unit_test(the_set_of_the_nearest_number_of_ranks_is_used),
        cmocka_unit_test(a_profile_survives_json),
        cmocka_unit_test(bad_profiles_are_told_where_they_are_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
