/* model/cost/nccl_tuning.h: NCCL's own estimate of a collective, by which it picks algorithm and protocol.
 *
 * What    latency (us) and bandwidth (GB/s of algbw) per collective, algorithm and protocol; the
 *         choice is the smallest lat + bytes / bw. This is the library's belief, not the wire's truth:
 *         the seconds that pass are in nccl_physics.h.
 * Version the constants changed: three generations of tables, chosen by fabric.nccl_version
 *         (up to 2.17, 2.18 to 2.22, from 2.23; Blackwell's rows also by 2.26, 2.28, 2.30).
 * Source  NCCL src/graph/tuning.cc of the tags v2.12.12, v2.21.5, v2.26.2, v2.29.2, v2.30.7
 *         (ncclTopoTuneModel, ncclTopoGetAlgoTime), src/enqueue.cc (channels).
 */
#ifndef SF_COST_NCCL_TUNING_H
#define SF_COST_NCCL_TUNING_H

#include "model/cost/collective_cost.h"
#include "model/cost/nccl_graph.h"

/* The collectives for which NCCL has algorithms; the others are grouped sends and receives. */
enum { SF_NCCL_TUNED = SF_COLL_REDUCE + 1 };

typedef struct {
    double latency_us;
    double algbw_GBs; /* 0: not available */
} sf_nccl_estimate;

typedef struct {
    sf_nccl_estimate of[SF_NCCL_TUNED][SF_ALGO_COUNT][SF_PROTO_COUNT];
    double ring_plateau;    /* latency factor of Ring Simple all-reduce between nodes */
    double plateau_bytes;   /* from this size on                                      */
    double tuner_ll_bytes;  /* a tuner plugin keeps Tree LL for all-reduce to this size */
} sf_nccl_tuning;

void sf_nccl_tuning_make(const sf_comm_fabric *fabric, const sf_nccl_shape *shape,
                         const sf_nccl_graph graphs[SF_ALGO_COUNT], sf_nccl_tuning *out);

/* NCCL's time in us; < 0 where the pair is not available. */
double sf_nccl_estimate_us(const sf_nccl_tuning *tuning, sf_collective op, sf_nccl_algo algo, sf_nccl_proto proto, double bytes);

/* The pair that NCCL would take, and its time in us. */
double sf_nccl_choose(const sf_nccl_tuning *tuning, sf_collective op, double bytes, sf_nccl_algo *algo, sf_nccl_proto *proto);

/* Channels that a call of so many bytes uses of `channels` that exist. */
int sf_nccl_channels(sf_nccl_algo algo, sf_nccl_proto proto, int channels, int ranks, double bytes);

#endif
