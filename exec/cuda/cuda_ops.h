/* exec/cuda/cuda_ops.h: the GPU's row for every op of op.h that its streams run: arguments as the op lists them, to our
 * kernels, cuBLASLt and copies. Collectives, batches and what the host runs are the backend's (backend_cuda.c).
 */
#ifndef SF_EXEC_CUDA_CUDA_OPS_H
#define SF_EXEC_CUDA_CUDA_OPS_H

#include "exec/backend.h"
#include "exec/cuda/cuda_device.h"
#include "exec/cuda/cuda_gemm.h"

/* What ops work with besides their arguments. */
typedef struct {
    const sf_executor_setup *setup;
    sf_cuda_device *dev;
    sf_cuda_gemm *gemm;              /* its scratch belongs to the compute stream        */
    const float *rope_table;         /* device memory; NULL without rotary positions     */
    void *scratch[SF_STREAM_COUNT];  /* device memory; ops of one stream run one by one  */
} sf_cuda_context;

/* NULL: not one of these. */
typedef sf_status (*sf_cuda_op)(sf_cuda_context *ctx, const sf_op_call *call);
extern const sf_cuda_op sf_cuda_op_rows[SF_OP_COUNT];

/* Scratch that an op needs, bytes. */
uint64_t sf_cuda_op_scratch_bytes(const sf_class *cls, const sf_op *op);

#endif
