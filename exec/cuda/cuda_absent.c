/* exec/cuda/cuda_absent.c: a build without CUDA. */
#include "exec/cuda/calibrate_cuda.h"
#include "exec/cuda/cuda_probe.h"

static sf_status absent(void)
{
    return SF_FAIL(SF_EUNSUP, "this shardfit was built without CUDA; build it with -Dcuda=enabled where nvcc, cuBLAS and NCCL are");
}

sf_status sf_cuda_probe(int max, sf_cuda_found *out, int *count)
{
    (void)max;
    (void)out;
    *count = 0;
    return absent();
}

sf_status sf_cuda_backend(const struct sf_backend_type **out)
{
    *out = 0;
    return absent();
}

sf_status sf_calibrate_cuda(sf_comm *comm, sf_calibrate_depth depth, sf_profile_set *out, char *name)
{
    (void)comm, (void)depth, (void)out, (void)name;
    return absent();
}
