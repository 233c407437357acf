/* model/base/units.h: sizes, times and rates between numbers and text.
 *
 * Memory is printed in GiB/MiB/KiB (2^30, 2^20, 2^10), bandwidth in GB/s (1e9), times in s/ms/us.
 */
#ifndef SF_BASE_UNITS_H
#define SF_BASE_UNITS_H

#include <stddef.h>
#include <stdint.h>

#include "model/base/status.h"

#define SF_KIB ((uint64_t)1 << 10)
#define SF_MIB ((uint64_t)1 << 20)
#define SF_GIB ((uint64_t)1 << 30)

typedef struct {
    char text[32];
} sf_short; /* by value, so that printf("%s", sf_bytes_text(n).text) needs no buffer */

sf_short sf_bytes_text(uint64_t bytes);    /* "24.1 MiB", "512 B"          */
sf_short sf_seconds_text(double seconds);  /* "12.3 ms", "1.25 s", "3.4 us" */
sf_short sf_count_text(double count);      /* "124.4 M", "6.74 B", "950"    */

/* "16GiB", "512 MiB", "1.5G", "2e9", "80GB": K M G T are 2^10.. (as nccl-tests), KB MB GB TB are 10^3.. */
sf_status sf_bytes_parse(const char *text, uint64_t *out);

/* ceil(a / b) and a rounded up to a multiple of b; b > 0. */
static inline uint64_t sf_div_up(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}
static inline uint64_t sf_round_up(uint64_t a, uint64_t b)
{
    return sf_div_up(a, b) * b;
}

#endif
