/* tests/exec/ops_check.h: kernels against the double-precision reference.
 *
 * A vec holds one array twice: `raw`, in the kernel's type, and `val`, in double. Inputs are rounded
 * to the type before `val` is taken, so both sides compute from the same numbers. Outputs begin as
 * NaN (a kernel must not read what it overwrites) and end in guard elements (nor write past them).
 *
 * Tolerance   A result that the kernel computes in float from k terms and then rounds to its type
 *   differs from the exact one by at most about
 *       u(type) |exact|  +  terms * 2^-24 sqrt(k) max |exact|
 *   where u is the type's unit roundoff (2^-24 float, 2^-8 bf16): the first part is the last
 *   rounding; the second is the sum's rounding errors, which add up like a random walk, k steps of
 *   2^-24 times the size of a partial sum. `terms` counts roundings per step, 8 unless the test
 *   says why more.
 */
#ifndef SF_TESTS_EXEC_OPS_CHECK_H
#define SF_TESTS_EXEC_OPS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "exec/host/ops.h"

typedef struct {
    sf_dtype dt;
    size_t n;
    void *raw;
    double *val;
} vec;

/* Everything made below lives until vec_free_all. */
void vec_free_all(void);

vec vec_random(sf_dtype dt, size_t n, double scale, double offset); /* offset + scale * normal */
vec vec_output(sf_dtype dt, size_t n);
vec vec_copy(vec v);                                               /* the same values, its own memory */
void *scratch(size_t bytes);                                       /* filled with NaN */
int32_t *random_tokens(size_t n, int32_t vocab);
double uniform(void);                                              /* [0, 1), the same sequence every run */

double vec_get(vec v, size_t i); /* raw element as double */
double unit_roundoff(sf_dtype dt);

/* Fails naming the variant, type and element. */
void assert_vec_near(const char *what, const sf_host_ops *ops, vec got, double k, double terms);
/* The same with an absolute error of its own added to the tolerance. */
void assert_vec_near_plus(const char *what, const sf_host_ops *ops, vec got, double k, double terms, double absolute);

/* for each variant of this CPU, for each type of the kernels */
#define FOR_EACH_VARIANT_AND_TYPE(ops, dt)                                                         \
    for (size_t v_ = 0; sf_host_ops_variant(v_, &(ops)); v_++, vec_free_all())                     \
        for (sf_dtype dt = SF_F32; dt <= SF_BF16; dt++)

#endif
