#include "exec/host/ops_simd.h"

void SF_ISA_NAME(sf_ops_fill)(sf_host_ops *ops)
{
    SF_ISA_NAME(sf_ops_fill_elementwise)(ops);
    SF_ISA_NAME(sf_ops_fill_act)(ops);
    SF_ISA_NAME(sf_ops_fill_norm)(ops);
    SF_ISA_NAME(sf_ops_fill_embed)(ops);
    SF_ISA_NAME(sf_ops_fill_xent)(ops);
    SF_ISA_NAME(sf_ops_fill_linear)(ops);
    SF_ISA_NAME(sf_ops_fill_attn)(ops);
}
