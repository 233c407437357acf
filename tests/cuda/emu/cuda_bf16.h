/* tests/cuda/emu/cuda_bf16.h: bfloat16 on the CPU; round to nearest even, any NaN becomes 0x7FFF. */
#ifndef SF_TESTS_EMU_CUDA_BF16_H
#define SF_TESTS_EMU_CUDA_BF16_H

#include <stdint.h>
#include <string.h>

struct __nv_bfloat16 {
    uint16_t bits;
};

inline float __bfloat162float(__nv_bfloat16 x)
{
    uint32_t u = (uint32_t)x.bits << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

inline __nv_bfloat16 __float2bfloat16_rn(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return __nv_bfloat16{ 0x7fff };
    u += 0x7fffu + ((u >> 16) & 1u);
    return __nv_bfloat16{ (uint16_t)(u >> 16) };
}

#endif
