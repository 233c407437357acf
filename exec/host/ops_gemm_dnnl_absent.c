#include "exec/host/ops_gemm.h"
#include "exec/host/ops.h"

bool sf_gemm_bf16_is_native(void)
{
    return false;
}

bool sf_gemm_dnnl(const sf_gemm *g)
{
    (void)g;
    return false;
}

void sf_host_gemm_threads(int threads)
{
    openblas_set_num_threads(threads);
}
