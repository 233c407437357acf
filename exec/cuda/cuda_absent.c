/* exec/cuda/cuda_absent.c: a build without CUDA. */
#include "exec/cuda/cuda_probe.h"

sf_status sf_cuda_probe(int max, sf_cuda_found *out, int *count)
{
    (void)max;
    (void)out;
    *count = 0;
    return SF_FAIL(SF_EUNSUP, "this shardfit was built without CUDA; build it with -Dcuda=enabled where nvcc, cuBLAS and NCCL are");
}
