/* exec/host/comm_sum.c: the arithmetic of collectives: sums over ranks in rank order. */
#include <string.h>

#include "exec/bf16.h"
#include "exec/comm_impl.h"

enum { TILE = 1024 }; /* elements summed at a time: the accumulator stays in the first-level cache */

#define SUM_TILES(name, type, wide, load, store)                                                   \
    static void name(int parts, const void *const part[], int outs, void *const out[], uint64_t n) \
    {                                                                                              \
        wide acc[TILE];                                                                            \
        for (uint64_t at = 0; at < n; at += TILE) {                                                \
            uint64_t len = n - at < TILE ? n - at : TILE;                                          \
            const type *first = (const type *)part[0] + at;                                        \
            for (uint64_t i = 0; i < len; i++)                                                     \
                acc[i] = load(first[i]);                                                           \
            for (int k = 1; k < parts; k++) {                                                      \
                const type *p = (const type *)part[k] + at;                                        \
                for (uint64_t i = 0; i < len; i++)                                                 \
                    acc[i] += load(p[i]);                                                          \
            }                                                                                      \
            type *first_out = (type *)out[0] + at;                                                 \
            for (uint64_t i = 0; i < len; i++)                                                     \
                first_out[i] = store(acc[i]);                                                      \
            for (int o = 1; o < outs; o++)                                                         \
                memcpy((type *)out[o] + at, first_out, len * sizeof(type));                        \
        }                                                                                          \
    }
#define AS_IS(x) (x)
SUM_TILES(sum_f32, float, float, AS_IS, AS_IS)
SUM_TILES(sum_f64, double, double, AS_IS, AS_IS)
SUM_TILES(sum_bf16, uint16_t, float, sf_bf16_to_f32, sf_f32_to_bf16)

bool sf_comm_sums(sf_dtype dtype)
{
    return dtype == SF_F32 || dtype == SF_F64 || dtype == SF_BF16;
}

void sf_comm_sum(sf_dtype dtype, int parts, const void *const part[], int outs, void *const out[], uint64_t n)
{
    switch (dtype) {
    case SF_F64: sum_f64(parts, part, outs, out, n); break;
    case SF_BF16: sum_bf16(parts, part, outs, out, n); break;
    default: sum_f32(parts, part, outs, out, n);
    }
}
