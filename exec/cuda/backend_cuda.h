/* exec/cuda/backend_cuda.h: a GPU as the executor's machine, for tests that give it a CUDA of their own. Programs ask
 * sf_cuda_backend (cuda_probe.h).
 */
#ifndef SF_EXEC_CUDA_BACKEND_CUDA_H
#define SF_EXEC_CUDA_BACKEND_CUDA_H

#include "exec/backend.h"
#include "exec/cuda/cuda_api.h"
#include "exec/cuda/cuda_device.h"
#include "exec/cuda/kernels.h"

extern const sf_backend_type sf_backend_cuda;

/* The functions to call from now on; NULL: the real libraries'. */
void sf_backend_cuda_use(const sf_cuda_api *api);

/* The GPU of this rank: of the visible ones, that of its place in the node; refused where ranks would share one, unless `shared`. */
sf_status sf_backend_cuda_device(sf_comm *comm, bool shared, sf_cuda_device **out);

sf_cuda_stream sf_backend_cuda_stream(const void *self, sf_stream stream);

#endif
