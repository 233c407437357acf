/* The vector functions of exec/host/ops_simd.h over their whole domain, against libm in double. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "exec/host/ops_simd.h"

/* |got - exact| in units of the float spacing at exact. */
static double error_ulp(float got, double exact)
{
    const double spacing = ldexp(1, ilogb(exact) - 23);
    return fabs((double)got - exact) / spacing;
}

static float one(sf_vf v)
{
    return v[0];
}

/* ln2 in parts makes r good to 2^-24 of itself, the polynomial is off by 3e-9, its last step rounds: 2 ulp. */
static void exp_is_within_two_ulp(void **state)
{
    (void)state;
    for (float x = -87.3f; x < 88.36f; x += 0.00037f) {
        const double e = error_ulp(one(vexp(splat(x))), exp((double)x));
        if (!(e <= 2))
            fail_msg("exp(%.9g) is off by %.2f ulp", (double)x, e);
    }
    assert_true(one(vexp(splat(0))) == 1);
}

static void exp_ends_in_zero_and_a_finite_top(void **state)
{
    (void)state;
    assert_true(one(vexp(splat(-87.4f))) == 0);
    assert_true(one(vexp(splat(-INFINITY))) == 0);
    assert_true(one(vexp(splat(100))) == one(vexp(splat(88.37f))) && isfinite(one(vexp(splat(INFINITY)))));
    assert_true(isnan(one(vexp(splat(NAN)))));
}

/* 1 + exp(-x) rounds exp's 2 ulp and its own half, the quotient another: 4 ulp with room. */
static void sigmoid_is_within_four_ulp(void **state)
{
    (void)state;
    for (float x = -80; x < 80; x += 0.0013f) {
        const double e = error_ulp(one(vsigmoid(splat(x))), 1 / (1 + exp(-(double)x)));
        if (!(e <= 4))
            fail_msg("sigmoid(%.9g) is off by %.2f ulp", (double)x, e);
    }
}

/* In the tail exp(-x^2/2) magnifies the rounding of x^2/2 (half an ulp of up to 50 for x = -10, so 50 times
 * 2^-24 relative); above 0 the result is 1 - tail: absolute errors of 2^-23. */
static void normal_keeps_its_tail(void **state)
{
    (void)state;
    for (float x = -10; x < 10; x += 0.00029f) {
        sf_vf density;
        const double got = (double)one(vnormal(splat(x), &density)), exact = 0.5 * erfc(-(double)x / sqrt(2));
        const double relative = (6 + 0.5 * (double)x * (double)x) * 0x1p-23;
        if (!(fabs(got - exact) <= relative * exact))
            fail_msg("normal(%.9g) is %.9g, exact %.9g", (double)x, got, exact);
        const double phi = exp(-(double)x * (double)x / 2) / sqrt(2 * 3.14159265358979323846);
        if (!(fabs((double)one(density) - phi) <= relative * phi))
            fail_msg("density(%.9g) is %.9g, exact %.9g", (double)x, (double)one(density), phi);
    }
}

/* Every float that is a bf16 stays what it is; between two neighbours the nearer is taken. */
static void every_bf16_survives_the_round_trip(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        const float x = bf16_to_f32((uint16_t)h);
        if (isnan(x))
            assert_true(isnan(bf16_to_f32(bf16_from_f32(x))));
        else
            assert_int_equal(bf16_from_f32(x), h);
    }
}

int main(void)
{
#ifdef __AVX2__
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_within_two_ulp),
        cmocka_unit_test(exp_ends_in_zero_and_a_finite_top),
        cmocka_unit_test(sigmoid_is_within_four_ulp),
        cmocka_unit_test(normal_keeps_its_tail),
        cmocka_unit_test(every_bf16_survives_the_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
