/* exec/cuda/calibrate_cuda.h: measures a GPU into one set of a profile.
 *
 * What    Products, attention, kernels and copies by the executor's own rows on the compute stream, from launch to launch: an op's
 *         seconds include what a launch costs where that is more. Host time of a launch, the gap between ops, and with more than
 *         one rank NCCL's collectives.
 * Errors  as of sf_cuda_backend. A build without CUDA: SF_EUNSUP.
 */
#ifndef SF_EXEC_CUDA_CALIBRATE_CUDA_H
#define SF_EXEC_CUDA_CALIBRATE_CUDA_H

#include "exec/calibrate.h"

/* Collective: each rank measures its GPU. `name` (256) gets the GPU's. */
sf_status sf_calibrate_cuda(sf_comm *comm, sf_calibrate_depth depth, sf_profile_set *out, char *name);

#endif
