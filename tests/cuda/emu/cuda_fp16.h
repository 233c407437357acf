/* tests/cuda/emu/cuda_fp16.h: IEEE 754 binary16 on the CPU; round to nearest even. */
#ifndef SF_TESTS_EMU_CUDA_FP16_H
#define SF_TESTS_EMU_CUDA_FP16_H

#include <math.h>
#include <stdint.h>
#include <string.h>

struct __half {
    uint16_t bits;
};

inline float __half2float(__half h)
{
    int exponent = (h.bits >> 10) & 31, fraction = h.bits & 1023;
    float f = exponent == 31 ? (fraction ? NAN : INFINITY)
              : exponent     ? ldexpf((float)(1024 + fraction), exponent - 25)
                             : ldexpf((float)fraction, -24);
    return h.bits & 0x8000 ? -f : f;
}

inline __half __float2half_rn(float f)
{
    uint16_t sign = signbit(f) ? 0x8000 : 0;
    float a = fabsf(f);
    if (isnan(f))
        return __half{ 0x7fff };
    if (a >= 65520.0f) /* halfway between 65504 and 65536 rounds to even, which is infinity */
        return __half{ (uint16_t)(sign | 0x7c00) };
    int exponent;
    (void)frexpf(a, &exponent); /* a in [2^(exponent-1), 2^exponent) */
    int ulp = exponent - 11 < -24 ? -24 : exponent - 11;
    int units = (int)nearbyintf(ldexpf(a, -ulp)); /* in units of the last place; at most 2048 */
    float rounded = ldexpf((float)units, ulp);
    if (rounded < 0x1p-14f)
        return __half{ (uint16_t)(sign | (uint16_t)ldexpf(rounded, 24)) };
    (void)frexpf(rounded, &exponent);
    int fraction = (int)ldexpf(rounded, 11 - exponent) - 1024;
    return __half{ (uint16_t)(sign | ((exponent + 14) << 10) | fraction) };
}

#endif
