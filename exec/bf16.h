/* exec/bf16.h: bfloat16 is the upper half of an IEEE float. Two conversions, in line. */
#ifndef SF_EXEC_BF16_H
#define SF_EXEC_BF16_H

#include <stdint.h>
#include <string.h>

static inline float sf_bf16_to_f32(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* To nearest, ties to even; NaN stays NaN. */
static inline uint16_t sf_f32_to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((bits >> 16) | 0x40u);
    bits += 0x7fffu + ((bits >> 16) & 1u);
    return (uint16_t)(bits >> 16);
}

#endif
