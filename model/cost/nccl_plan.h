/* model/cost/nccl_plan.h: what is prepared once per communicator (the inside of sf_comm_plan). */
#ifndef SF_COST_NCCL_PLAN_H
#define SF_COST_NCCL_PLAN_H

#include "model/cost/collective_cost_profile.h"
#include "model/cost/nccl_graph.h"
#include "model/cost/nccl_physics.h"
#include "model/cost/nccl_tuning.h"

struct sf_comm_plan {
    sf_comm_fabric fabric;
    sf_comm_group group;
    sf_nccl_shape shape;
    sf_nccl_graph graphs[SF_ALGO_COUNT];
    sf_nccl_tuning tuning;
    sf_nccl_timing tuned[SF_NCCL_TUNED][SF_ALGO_COUNT][SF_PROTO_COUNT];
    sf_nccl_timing p2p[SF_COLL_COUNT]; /* those that are grouped sends and receives */

    /* what a profile says, per collective */
    const sf_collective_curve *measured[SF_COLL_COUNT]; /* this group's own curve; NULL: none            */
    struct {
        int n;                                          /* 0: nothing comparable was measured            */
        double bytes[SF_COLLECTIVE_CURVE_POINTS];
        double log_ratio[SF_COLLECTIVE_CURVE_POINTS];   /* of measured over modelled time                */
    } bend[SF_COLL_COUNT];
};

#endif
