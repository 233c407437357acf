/* exec/host/host_ops.h: the host's row for every op of op.h: arguments as the op lists them, to the
 * kernels of ops.h, the communicator or the data.
 */
#ifndef SF_EXEC_HOST_HOST_OPS_H
#define SF_EXEC_HOST_HOST_OPS_H

#include "exec/backend.h"
#include "exec/host/ops.h"

/* What ops work with besides their arguments. */
typedef struct {
    const sf_executor_setup *setup;
    sf_host_ops kernels;
    float *rope_table;
    void *scratch[SF_STREAM_COUNT]; /* per stream: ops of one stream run one at a time */
    double loss_sum;                /* of XENT's rows; its stream's thread writes it   */
    uint64_t loss_rows;
} sf_host_context;

/* NULL: the host does not have the op (FRAME), or it is not one that runs on a stream. */
typedef sf_status (*sf_host_op)(sf_host_context *ctx, const sf_op_call *call);
extern const sf_host_op sf_host_op_rows[SF_OP_COUNT];

/* Scratch that an op needs. */
size_t sf_host_op_scratch_bytes(const sf_class *cls, const sf_op *op);

#endif
