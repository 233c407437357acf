/* tests/cuda/fake_cuda.h: a CUDA runtime, cuBLASLt, NCCL and NVML on the CPU, for tests of what calls them.
 *
 * "Device" memory is host memory, and work is done at once: copies copy, products multiply (in double), collectives
 * exchange between threads. On top of that the fake watches what a GPU would not say:
 * - order: each stream has a clock that events carry to others. Two accesses to the same bytes, one of them a write,
 *   that no event or wait orders are a race, however the work really ran;
 * - handles: a use of what was destroyed or never made ends the test; what is left over is counted;
 * - failures: the n-th call of a function can be made to fail.
 * Kernels of kernels.h do not pass here; a test may say what they access with fake_cuda_access.
 */
#ifndef SF_TESTS_CUDA_FAKE_CUDA_H
#define SF_TESTS_CUDA_FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>

#include "exec/cuda/cuda_api.h"

typedef struct {
    int devices;
    int cc_major, cc_minor;
    size_t memory_bytes; /* of each device; cudaMalloc fails beyond */
    bool nvml;
} fake_cuda_setup;

/* Forgets log, races and failures. Everything of an earlier test must have been released. */
const sf_cuda_api *fake_cuda_start(const fake_cuda_setup *setup);

/* The nth (1: next) call of `name` from now on returns `code` and does nothing. */
void fake_cuda_fail(const char *name, int nth, int code);
/* What NCCL says of work under way, from now on. */
void fake_cuda_fail_under_way(ncclResult_t code);

int fake_cuda_calls(const char *name);  /* how often it was called since the start         */
int fake_cuda_handles(void);            /* made and not yet released, of all kinds           */
const char *fake_cuda_race(void);       /* the first race, or NULL                           */
void fake_cuda_access(cudaStream_t stream, const void *at, size_t bytes, bool write, const char *what);

/* The options of the last product and its algorithm's search. */
typedef struct {
    cublasComputeType_t compute;
    cublasLtEpilogue_t epilogue;
    cudaDataType_t a_type, d_type;
    size_t ws_bytes;
    unsigned align_a, align_b, align_d;
    float beta;
} fake_product;
const fake_product *fake_cuda_last_product(void);

int fake_cuda_priority(cudaStream_t stream); /* that it was made with */

#endif
