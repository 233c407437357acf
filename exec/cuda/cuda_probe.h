/* exec/cuda/cuda_probe.h: which GPUs this program could run on. Needs no CUDA header and links in every build;
 * a build without CUDA has cuda_absent.c, whose answer is SF_EUNSUP.
 */
#ifndef SF_EXEC_CUDA_CUDA_PROBE_H
#define SF_EXEC_CUDA_CUDA_PROBE_H

#include <stdint.h>

#include "model/base/status.h"

struct sf_backend_type;

typedef struct {
    char name[256];
    char bus_id[32];       /* "0000:1b:00.0"                                       */
    int cc_major, cc_minor;/* compute capability: 9, 0 is Hopper                   */
    int sm_count;
    uint64_t memory_bytes;
    int driver_version, runtime_version; /* 13000 is 13.0                          */
} sf_cuda_found;

/* The first `max` GPUs; *count is how many there are. SF_EDEVICE says why there is none. */
sf_status sf_cuda_probe(int max, sf_cuda_found *out, int *count);

/* The executor's machine for GPUs (exec/backend.h). Errors as of the probe. */
sf_status sf_cuda_backend(const struct sf_backend_type **out);

#endif
