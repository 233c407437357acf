/* model/desc/topology_nvml.h: the GPUs of this machine as the driver's library tells them; not for
 * users of topologies.
 *
 * The library is opened when asked, so that the program runs where there is none.
 * Source  the functions' forms: NVML API reference; only stable parts are used.
 */
#ifndef SF_DESC_TOPOLOGY_NVML_H
#define SF_DESC_TOPOLOGY_NVML_H

#include "model/desc/topology_build.h"

enum { SF_NVML_MOST_LINKS = 36 };

typedef enum { SF_NVML_TO_GPU, SF_NVML_TO_SWITCH, SF_NVML_TO_OTHER } sf_nvml_far;

typedef struct {
    const char *name, *busid;  /* busid with 4 digits of domain, lower case */
    int sm;                    /* compute capability * 10 */
    int pcie_generation, pcie_lanes; /* the most that GPU and slot do */
    int link_count;            /* active NVLinks */
    struct {
        sf_nvml_far far;
        const char *busid;     /* of the far end; "" unknown */
    } links[SF_NVML_MOST_LINKS];
} sf_nvml_gpu;

/* *why_none says why there is no GPU (no library, no driver) and is "" if there are some. */
sf_status sf_nvml_gpus(sf_arena *arena, sf_nvml_gpu **out, int *count, const char **why_none);

#endif
