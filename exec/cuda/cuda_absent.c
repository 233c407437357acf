/* exec/cuda/cuda_absent.c: a build without CUDA. */
#include "exec/cuda/calibrate_cuda.h"
#include "exec/cuda/cuda_probe.h"
#include "exec/selftest.h"

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

sf_status sf_selftest_cuda_open(sf_selftest_machine *out)
{
    *out = (sf_selftest_machine){ .name = "cuda" };
    return absent();
}

void sf_selftest_cuda_close(sf_selftest_machine *machine) { (void)machine; }
