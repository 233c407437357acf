#include "tests/exec/ops_check.h"

#include <math.h>
#include <string.h>

#include "model/base/arena.h"

enum { GUARD = 16 };

static sf_arena arena;
static uint64_t seed = 88172645463325252u;

void vec_free_all(void)
{
    sf_arena_free(&arena);
    arena = (sf_arena){ 0 };
}

double uniform(void)
{
    seed ^= seed << 13; /* xorshift64, Marsaglia 2003 */
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (double)(seed >> 11) / 9007199254740992.0;
}

static double normal(void)
{
    const double pi = 3.14159265358979323846;
    return sqrt(-2 * log(1 - uniform())) * cos(2 * pi * uniform());
}

static float bf16_value(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float x;
    memcpy(&x, &u, 4);
    return x;
}

static uint16_t bf16_nearest(double x)
{
    float f = (float)x;
    uint32_t u;
    memcpy(&u, &f, 4);
    return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

double vec_get(vec v, size_t i)
{
    return v.dt == SF_F32 ? (double)((float *)v.raw)[i] : (double)bf16_value(((uint16_t *)v.raw)[i]);
}

static vec make(sf_dtype dt, size_t n)
{
    const size_t bytes = sf_dtype_bytes(dt);
    vec v = { dt, n, sf_arena_alloc(&arena, (n + GUARD) * bytes), SF_NEW_ARRAY(&arena, double, n) };
    memset(v.raw, 0xff, (n + GUARD) * bytes); /* NaN in both types */
    return v;
}

vec vec_output(sf_dtype dt, size_t n)
{
    return make(dt, n);
}

vec vec_random(sf_dtype dt, size_t n, double scale, double offset)
{
    vec v = make(dt, n);
    for (size_t i = 0; i < n; i++) {
        const double x = offset + scale * normal();
        if (dt == SF_F32)
            ((float *)v.raw)[i] = (float)x;
        else
            ((uint16_t *)v.raw)[i] = bf16_nearest(x);
        v.val[i] = vec_get(v, i);
    }
    return v;
}

vec vec_copy(vec from)
{
    vec v = make(from.dt, from.n);
    memcpy(v.raw, from.raw, from.n * sf_dtype_bytes(from.dt));
    memcpy(v.val, from.val, from.n * sizeof *v.val);
    return v;
}

void *scratch(size_t bytes)
{
    char *p = sf_arena_alloc(&arena, bytes + 64);
    p += (64 - (uintptr_t)p % 64) % 64;
    return memset(p, 0xff, bytes);
}

int32_t *random_tokens(size_t n, int32_t vocab)
{
    int32_t *t = SF_NEW_ARRAY(&arena, int32_t, n);
    for (size_t i = 0; i < n; i++)
        t[i] = (int32_t)(uniform() * vocab);
    return t;
}

double unit_roundoff(sf_dtype dt)
{
    return dt == SF_F32 ? 0x1p-24 : 0x1p-8;
}

void assert_vec_near_plus(const char *what, const sf_host_ops *ops, vec got, double k, double terms, double absolute)
{
    double max = 0;
    for (size_t i = 0; i < got.n; i++)
        max = fmax(max, fabs(got.val[i]));
    for (size_t i = 0; i < got.n; i++) {
        const double x = vec_get(got, i), exact = got.val[i];
        const double tolerance = unit_roundoff(got.dt) * fabs(exact) + terms * 0x1p-24 * sqrt(k) * max + absolute;
        if (!(fabs(x - exact) <= tolerance))
            fail_msg("%s, %s, %s: element %zu of %zu is %.9g, exact is %.9g, tolerance %.3g", what, ops->name,
                     sf_dtype_name(got.dt), i, got.n, x, exact, tolerance);
    }
    const unsigned char *end = (unsigned char *)got.raw + got.n * sf_dtype_bytes(got.dt);
    for (size_t i = 0; i < GUARD * sf_dtype_bytes(got.dt); i++)
        if (end[i] != 0xff)
            fail_msg("%s, %s, %s: written past the end", what, ops->name, sf_dtype_name(got.dt));
}

void assert_vec_near(const char *what, const sf_host_ops *ops, vec got, double k, double terms)
{
    assert_vec_near_plus(what, ops, got, k, terms, 0);
}
