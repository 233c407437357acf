#include "tests/cuda/cases.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint32_t seed = 1;

/* ---- 16-bit floats, written apart from those of the emulation ---- */
static double from_bits(uint16_t bits, int fraction_bits, int bias)
{
    int exponent = (bits & 0x7fff) >> fraction_bits, fraction = bits & ((1 << fraction_bits) - 1);
    int most = (1 << (15 - fraction_bits)) - 1;
    double v = exponent == most ? (fraction ? (double)NAN : (double)INFINITY)
               : exponent       ? ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits)
                                : ldexp(fraction, 1 - bias - fraction_bits);
    return bits & 0x8000 ? -v : v;
}
static uint16_t to_bits(double v, int fraction_bits, int bias)
{
    uint16_t sign = signbit(v) ? 0x8000 : 0, most = (uint16_t)(((1 << (15 - fraction_bits)) - 1) << fraction_bits);
    int exponent;
    if (isnan(v))
        return 0x7fff;
    v = fabs(v);
    if (v == 0)
        return sign;
    (void)frexp(v, &exponent);
    int ulp = exponent - 1 < 1 - bias ? 1 - bias - fraction_bits : exponent - 1 - fraction_bits;
    long units = lrint(ldexp(v, -ulp)); /* 2^fraction_bits .. 2^(fraction_bits + 1) for a normal number */
    long bits = (long)(ulp + bias + fraction_bits - 1) * (1L << fraction_bits) + units;
    return (uint16_t)(sign | (bits > most ? most : bits));
}

double tensor_at(const tensor *t, size_t i)
{
    switch (t->dtype) {
    case SF_F32: return (double)((const float *)t->data)[i];
    case SF_F64: return ((const double *)t->data)[i];
    case SF_BF16: return from_bits(((const uint16_t *)t->data)[i], 7, 127);
    case SF_F16: return from_bits(((const uint16_t *)t->data)[i], 10, 15);
    default: return ((const int32_t *)t->data)[i];
    }
}
void tensor_put(tensor *t, size_t i, double value)
{
    switch (t->dtype) {
    case SF_F32: ((float *)t->data)[i] = (float)value; break;
    case SF_F64: ((double *)t->data)[i] = value; break;
    case SF_BF16: ((uint16_t *)t->data)[i] = to_bits(value, 7, 127); break;
    case SF_F16: ((uint16_t *)t->data)[i] = to_bits(value, 10, 15); break;
    default: ((int32_t *)t->data)[i] = (int32_t)value; break;
    }
    t->value[i] = tensor_at(t, i);
}
double case_eps(sf_dtype dtype)
{
    return dtype == SF_F32 ? 0x1p-24 : dtype == SF_BF16 ? 0x1p-8 : 0x1p-11;
}

/* ---- tensors ---- */
static double uniform(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (double)(seed >> 8) / (double)(1 << 24);
}

kase *case_new(int shift, const char *fmt, ...)
{
    kase *c = calloc(1, sizeof *c);
    va_list args;
    va_start(args, fmt);
    vsnprintf(c->what, sizeof c->what, fmt, args);
    va_end(args);
    c->shift = shift;
    return c;
}

static tensor *add(kase *c, const char *name, sf_dtype dtype, size_t n, int shift)
{
    tensor *t = &c->tensors[c->n_tensors++];
    size_t size = (size_t)sf_dtype_bytes(dtype);
    assert_true(c->n_tensors <= CASE_MAX_TENSORS);
    t->name = name;
    t->dtype = dtype;
    t->n = n;
    t->block = malloc((n + (size_t)shift) * size); /* malloc aligns to 16 bytes */
    memset(t->block, 0xff, (n + (size_t)shift) * size);
    t->data = (char *)t->block + (size_t)shift * size;
    t->before = malloc(n * size);
    t->value = malloc((n ? n : 1) * sizeof *t->value);
    return t;
}
tensor *case_random(kase *c, const char *name, sf_dtype dtype, size_t n, double scale)
{
    tensor *t = add(c, name, dtype, n, c->shift);
    for (size_t i = 0; i < n; i++)
        tensor_put(t, i, scale * (2.0 * uniform() - 1.0));
    return t;
}
tensor *case_blank(kase *c, const char *name, sf_dtype dtype, size_t n)
{
    tensor *t = add(c, name, dtype, n, c->shift);
    for (size_t i = 0; i < n; i++)
        t->value[i] = (double)NAN;
    return t;
}
tensor *case_ints(kase *c, const char *name, size_t n, int32_t below)
{
    tensor *t = add(c, name, SF_I32, n, 0);
    for (size_t i = 0; i < n; i++)
        tensor_put(t, i, floor(uniform() * below));
    return t;
}
tensor *case_scratch(kase *c, size_t bytes)
{
    tensor *t = add(c, "workspace", SF_U8, bytes, 0);
    t->scratch = 1;
    return t;
}

/* ---- comparing ---- */
size_t tensor_bytes(const tensor *t)
{
    return t->n * (size_t)sf_dtype_bytes(t->dtype);
}

void case_close(const kase *c, const tensor *got, const double *want, double relative, const double *absolute, double floor_)
{
    for (size_t i = 0; i < got->n; i++) {
        double g = tensor_at(got, i), allowed = relative * fabs(want[i]) + (absolute ? absolute[i] : floor_);
        if (!(fabs(g - want[i]) <= allowed))
            fail_msg("%s: %s[%zu] is %.9g, should be %.9g within %.3g", c->what, got->name, i, g, want[i], allowed);
    }
}

void case_free(kase *c)
{
    for (int i = 0; i < c->n_tensors; i++) {
        free(c->tensors[i].block);
        free(c->tensors[i].before);
        free(c->tensors[i].value);
    }
    free(c);
}
