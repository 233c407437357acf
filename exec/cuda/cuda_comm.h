/* exec/cuda/cuda_comm.h: the collectives of op.h between GPUs, by NCCL.
 *
 * One communicator per rank and group. Ranks, groups and the exchange of NCCL's ids come from the run's host
 * communicator (exec/comm.h), whose ranks are processes or threads with a GPU each.
 * Sizes    n is the number of elements of the whole array, as there; bytes counted are of the whole array.
 * Threads  as the device's.
 * Errors   SF_ECOMM with NCCL's text. An error of work that is under way shows in sf_cuda_comm_check; then, and when
 *          another rank is gone, sf_cuda_comm_abort ends that work, so that waiting for the stream returns.
 */
#ifndef SF_EXEC_CUDA_CUDA_COMM_H
#define SF_EXEC_CUDA_CUDA_COMM_H

#include <stdbool.h>
#include <stdint.h>

#include "exec/comm.h"
#include "exec/cuda/cuda_device.h"

typedef struct sf_cuda_comm sf_cuda_comm;

/* Collective over `host`. groups: bits 1 << SF_GROUP_*, the same on all ranks. `host` outlives it. */
sf_status sf_cuda_comm_open(sf_cuda_device *dev, sf_comm *host, unsigned groups, sf_cuda_comm **out);
/* Waits for the other ranks unless it was aborted. */
void sf_cuda_comm_close(sf_cuda_comm *comm);
void sf_cuda_comm_abort(sf_cuda_comm *comm);

/* Puts one collective on a stream. `in` and `out` are as op.h's row says (one array: both are that array; a root's
 * missing array is NULL elsewhere). */
sf_status sf_cuda_comm_call(sf_cuda_comm *comm, sf_cuda_stream stream, sf_op_type op, sf_group group, sf_dtype dtype,
                            const void *in, void *out, uint64_t n);
/* Calls between the two start as one (ncclGroupStart, ncclGroupEnd). */
sf_status sf_cuda_comm_begin(sf_cuda_comm *comm);
sf_status sf_cuda_comm_end(sf_cuda_comm *comm);

sf_status sf_cuda_comm_check(sf_cuda_comm *comm); /* has anything under way failed? Does not wait. */
const sf_comm_count *sf_cuda_comm_counted(const sf_cuda_comm *comm, sf_op_type op, sf_group group);
void sf_cuda_comm_count_reset(sf_cuda_comm *comm);

#endif
