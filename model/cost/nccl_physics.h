/* model/cost/nccl_physics.h: what a chosen algorithm and protocol take on real wires.
 *
 * NCCL's estimate (nccl_tuning.h) ranks algorithms; it is optimistic about wires and silent about
 * launches. Here the same call is timed from
 *   launch       starting the kernels, or one thread's launches on all its GPUs, if that is longer
 *   latency      hops inside the node and between nodes, by protocol
 *   hand-over    per step, hidden behind the data as far as the data take longer (root of squares)
 *   wire         bytes over link and over NIC, each at the share of its data-sheet rate that is
 *                reached; the slower decides (a norm, so that near-equal ones add a little)
 * Every constant is a row of nccl_constants.def with its value and where it comes from.
 */
#ifndef SF_COST_NCCL_PHYSICS_H
#define SF_COST_NCCL_PHYSICS_H

#include "model/cost/collective_cost.h"
#include "model/cost/nccl_graph.h"
#include "model/cost/nccl_tuning.h"

typedef enum {
#define X(id, value, origin) SF_NCCL_##id,
#include "model/cost/nccl_constants.def"
#undef X
    SF_NCCL_CONSTANT_COUNT
} sf_nccl_constant;

struct sf_nccl_physics {
    double value[SF_NCCL_CONSTANT_COUNT];
};

const sf_nccl_physics *sf_nccl_physics_default(void);
const char *sf_nccl_constant_name(sf_nccl_constant constant);
const char *sf_nccl_constant_origin(sf_nccl_constant constant);

/* One way to do one collective on one communicator:
 * time = fixed + root(gap^2 + (bytes s_per_byte)^2) + sum of ramp.s * bytes / (bytes + ramp.half_bytes). */
typedef struct {
    double fixed_s;      /* launch and hops                                             */
    double launch_min_s; /* the whole cannot be faster than the launches                */
    double gap_s;
    double s_per_byte;   /* of total_bytes                                              */
    int ramps;
    struct {
        double s, half_bytes;
    } ramp[3];           /* s are lost until a pipeline is full, half of them at half_bytes */
    double intra_share, nic_share; /* bytes over a GPU's link and a node's NICs per byte */
} sf_nccl_timing;

/* nccl: NCCL's estimate of this choice (its LL bandwidths are measured ones); NULL for SF_ALGO_P2P. */
void sf_nccl_timing_of(const sf_nccl_physics *physics, const sf_comm_fabric *fabric, const sf_nccl_shape *shape,
                       const sf_nccl_estimate *nccl, sf_collective op, sf_nccl_algo algo, sf_nccl_proto proto, sf_nccl_timing *out);

double sf_nccl_timing_s(const sf_nccl_timing *timing, double bytes);

#endif
