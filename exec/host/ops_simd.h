/* exec/host/ops_simd.h: float vectors for the kernels; private to exec/host/ops_*.c.
 *
 * GCC's vector extensions, so that one source serves every instruction set: each kernel file is
 * compiled once per variant with -DSF_ISA=<name> and that variant's flags (exec/host/meson.build);
 * SF_ISA_NAME(x) is then x_<name>. Nothing here uses an instruction by name.
 *
 * A kernel's body is an always-inline function with a constant dtype, so that the choice of
 * load and store is made by the compiler: SF_BY_DTYPE(dt, body, arguments) calls it.
 */
#ifndef SF_EXEC_HOST_OPS_SIMD_H
#define SF_EXEC_HOST_OPS_SIMD_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "exec/host/ops.h"

#define SF_PASTE_(a, b) a##_##b
#define SF_PASTE(a, b) SF_PASTE_(a, b)
#define SF_ISA_NAME(name) SF_PASTE(name, SF_ISA)
#define SF_INLINE static inline __attribute__((always_inline))

/* Enters the variant's kernels into the table; each file has its part. */
void SF_ISA_NAME(sf_ops_fill)(sf_host_ops *ops);
void SF_ISA_NAME(sf_ops_fill_elementwise)(sf_host_ops *ops);
void SF_ISA_NAME(sf_ops_fill_act)(sf_host_ops *ops);
void SF_ISA_NAME(sf_ops_fill_norm)(sf_host_ops *ops);
void SF_ISA_NAME(sf_ops_fill_embed)(sf_host_ops *ops);
void SF_ISA_NAME(sf_ops_fill_xent)(sf_host_ops *ops);
void SF_ISA_NAME(sf_ops_fill_linear)(sf_host_ops *ops);
void SF_ISA_NAME(sf_ops_fill_attn)(sf_host_ops *ops);

#if defined(__AVX2__)
enum { SF_LANES = 8 };
#else
enum { SF_LANES = 4 };
#endif

typedef float sf_vf __attribute__((vector_size(4 * SF_LANES)));
typedef int32_t sf_vi __attribute__((vector_size(4 * SF_LANES)));
typedef uint32_t sf_vu __attribute__((vector_size(4 * SF_LANES)));
typedef uint16_t sf_vh __attribute__((vector_size(2 * SF_LANES)));

/* for i in 0, LANES, ... while i < n: the body (last argument) with `k` elements, where k is the
 * constant SF_LANES but for the last, incomplete vector. */
#define SF_EACH(i, k, n, ...)                                                                      \
    do {                                                                                           \
        size_t i = 0;                                                                              \
        for (; i + SF_LANES <= (n); i += SF_LANES) {                                               \
            enum { k = SF_LANES };                                                                 \
            __VA_ARGS__                                                                            \
        }                                                                                          \
        if (i < (n)) {                                                                             \
            const size_t k = (n)-i;                                                                \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    } while (0)

#define SF_BY_DTYPE(dt, body, ...)                                                                 \
    ((dt) == SF_F32 ? body(SF_F32, __VA_ARGS__) : body(SF_BF16, __VA_ARGS__))

SF_INLINE sf_vf splat(float x)
{
    return x - (sf_vf){ 0 }; /* not 0 + x, which would make -0 to 0 */
}

SF_INLINE sf_vf choose(sf_vi mask, sf_vf yes, sf_vf no)
{
    return (sf_vf)((mask & (sf_vi)yes) | (~mask & (sf_vi)no));
}

SF_INLINE sf_vf vmax(sf_vf a, sf_vf b)
{
    return choose(a > b, a, b);
}

/* ---- bf16 ---- */

SF_INLINE float bf16_to_f32(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float x;
    memcpy(&x, &u, 4);
    return x;
}

/* To nearest, ties to even; a NaN stays a (quiet) NaN. */
SF_INLINE sf_vh to_bf16(sf_vf x)
{
    sf_vu u = (sf_vu)x;
    sf_vu rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
    sf_vu quiet = (u >> 16) | 0x40;
    return __builtin_convertvector((sf_vu)choose(x != x, (sf_vf)quiet, (sf_vf)rounded), sf_vh);
}

SF_INLINE uint16_t bf16_from_f32(float x)
{
    return to_bf16(splat(x))[0];
}

/* ---- loads and stores of k elements at index i; lanes past k are 0 ---- */

SF_INLINE sf_vf load_f32(const float *p, size_t k)
{
    sf_vf v = { 0 };
    memcpy(&v, p, 4 * k);
    return v;
}

SF_INLINE void store_f32(float *p, size_t k, sf_vf v)
{
    memcpy(p, &v, 4 * k);
}

SF_INLINE sf_vf load(sf_dtype dt, const void *p, size_t i, size_t k)
{
    if (dt == SF_F32)
        return load_f32((const float *)p + i, k);
    sf_vh h = { 0 };
    memcpy(&h, (const uint16_t *)p + i, 2 * k);
    return (sf_vf)(__builtin_convertvector(h, sf_vu) << 16);
}

SF_INLINE void store(sf_dtype dt, void *p, size_t i, size_t k, sf_vf v)
{
    if (dt == SF_F32) {
        store_f32((float *)p + i, k, v);
    } else {
        sf_vh h = to_bf16(v);
        memcpy((uint16_t *)p + i, &h, 2 * k);
    }
}

/* Lanes past k are `pad`. */
SF_INLINE sf_vf load_padded(sf_dtype dt, const void *p, size_t i, size_t k, float pad)
{
    sf_vf v = load(dt, p, i, k);
    for (size_t l = k; l < SF_LANES; l++)
        v[l] = pad;
    return v;
}

SF_INLINE float load1(sf_dtype dt, const void *p, size_t i)
{
    return dt == SF_F32 ? ((const float *)p)[i] : bf16_to_f32(((const uint16_t *)p)[i]);
}

SF_INLINE void store1(sf_dtype dt, void *p, size_t i, float x)
{
    if (dt == SF_F32)
        ((float *)p)[i] = x;
    else
        ((uint16_t *)p)[i] = bf16_from_f32(x);
}

/* Element i of an array of dt. */
SF_INLINE const void *at(sf_dtype dt, const void *p, size_t i)
{
    return (const char *)p + i * (dt == SF_F32 ? 4 : 2);
}

SF_INLINE void *at_mut(sf_dtype dt, void *p, size_t i)
{
    return (char *)p + i * (dt == SF_F32 ? 4 : 2);
}

/* ---- over the lanes, in a fixed order ---- */

SF_INLINE float sum_lanes(sf_vf v)
{
    float s = 0;
    for (int l = 0; l < SF_LANES / 2; l++)
        s += v[l] + v[l + SF_LANES / 2];
    return s;
}

SF_INLINE float max_lanes(sf_vf v)
{
    float m = v[0];
    for (int l = 1; l < SF_LANES; l++)
        m = v[l] > m ? v[l] : m;
    return m;
}

SF_INLINE sf_vf vsqrt(sf_vf x)
{
    sf_vf r;
    for (int l = 0; l < SF_LANES; l++)
        r[l] = sqrtf(x[l]);
    return r;
}

/* ---- functions ---- */

/* exp(x): 0 below -87.33 (where the result would be subnormal), constant above 88.37 (just under
 * overflow), NaN for NaN; between, within 2 units in the last place (tests/exec/test_ops_functions.c).
 * exp(x) = 2^n exp(r), |r| <= ln2/2; exp(r) = 1 + r + r^2 P(r), P fitted by
 * tests/oracle/fit_functions.py (relative error 3e-9 before rounding). */
SF_INLINE sf_vf vexp(sf_vf x)
{
    const sf_vf lo = splat(-87.33f), hi = splat(88.37f);
    sf_vi under = x < lo;
    x = choose(under, lo, x);
    x = choose(x > hi, hi, x);
    /* Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits. */
    sf_vf t = x * 1.44269504088896341f + 12582912.0f;
    sf_vf n = t - 12582912.0f;
    /* ln 2 in two parts, the first with so few bits that n times it is exact. */
    sf_vf r = x - n * 0.693359375f;
    r = r + n * 2.12194440054690581e-4f;
    sf_vf p = r * 0.0013814610429108143f + 0.0083687100559473038f;
    p = p * r + 0.041668388992547989f;
    p = p * r + 0.1666652113199234f;
    p = p * r + 0.49999994039535522f;
    p = (p * r) * r + r + 1.0f;
    sf_vi pow2 = ((sf_vi)t << 23) + 0x3f800000;
    return choose(under, splat(0), p * (sf_vf)pow2);
}

/* 1 / (1 + exp(-x)). */
SF_INLINE sf_vf vsigmoid(sf_vf x)
{
    return 1.0f / (1.0f + vexp(-x));
}

/* The normal distribution: its integral from -infinity to x, and (*density) its density at x. For
 * x < 0: exp(-x^2/2) t Q(t) / 2 with t = 1 / (1 + 0.3 |x| / sqrt 2), the form of Abramowitz and
 * Stegun 7.1.26; Q fitted by tests/oracle/fit_functions.py (relative error 2e-8 before rounding). */
SF_INLINE sf_vf vnormal(sf_vf x, sf_vf *density)
{
    sf_vf e = vexp(x * x * -0.5f);
    *density = e * 0.3989422804014327f; /* 1 / sqrt(2 pi) */
    sf_vf z = choose(x < splat(0), -x, x);
    sf_vf t = 1.0f / (1.0f + z * 0.21213203435596426f); /* 0.3 / sqrt 2 */
    sf_vf q = t * -0.1295231431722641f + 0.48556441068649292f;
    q = q * t - 0.51228076219558716f;
    q = q * t + 0.54772329330444336f;
    q = q * t - 0.094653129577636719f;
    q = q * t + 0.21492716670036316f;
    q = q * t + 0.14833885431289673f;
    q = q * t + 0.17071527242660522f;
    q = q * t + 0.1691880077123642f;
    sf_vf tail = 0.5f * e * t * q;
    return choose(x < splat(0), tail, 1.0f - tail);
}

#endif
