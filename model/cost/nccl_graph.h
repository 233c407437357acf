/* model/cost/nccl_graph.h: the channels and bandwidth that NCCL's topology search would find.
 *
 * What    an approximation of the search: the fastest speed of NCCL's own list that the links carry,
 *         then as many channels as fit, doubled where NCCL doubles. Exact for full NVSwitch nodes
 *         (6x40 -> 12x20 on 8 A100, 6x60 -> 12x30 on 8 H100, 8x90 -> 16x45 on 8 B200), close else.
 * Units   GB/s in one direction, as NCCL counts (an NVLink of Hopper is 20.6, not 25).
 * Source  NCCL 2.30 src/graph/topo.h (link rates), search.cc (speed lists, duplication), connect.cc
 *         (doubling of the channels that run), nvls.cc (NVLS channels).
 */
#ifndef SF_COST_NCCL_GRAPH_H
#define SF_COST_NCCL_GRAPH_H

#include "model/cost/collective_cost.h"

/* What the ranks of one communicator see. A "node" here is an NVLink domain: NCCL takes a rack of
 * NVL72 for one node. */
typedef struct {
    int ranks, nodes, local_ranks; /* ranks = nodes * local_ranks (the last node may have fewer) */
    bool nvlink;                   /* every neighbour of a ring is reached by NVLink             */
    double gpu_GBs;                /* data sheet, one GPU's intra-node link, one direction       */
    double nccl_gpu_GBs;           /* the same as NCCL counts                                    */
    int nics;                      /* that this group can use per node                           */
    double nic_GBs;                /* line rate of one                                           */
    double node_nic_GBs;           /* line rate of the group's share of a node                   */
} sf_nccl_shape;

typedef struct {
    int channels;                  /* of the search                                              */
    double intra_GBs, inter_GBs;   /* per channel                                                */
    int exec_channels;             /* CTAs that run                                              */
    bool nvlink;                   /* NCCL's latencies of NVLink rather than PCI                 */
    bool balanced;                 /* tree: two GPUs carry the node's network traffic            */
} sf_nccl_graph;

void sf_nccl_shape_of(const sf_comm_fabric *fabric, const sf_comm_group *group, sf_nccl_shape *out);

/* channels = 0: the algorithm has no graph here. */
void sf_nccl_graph_of(const sf_comm_fabric *fabric, const sf_nccl_shape *shape, sf_nccl_algo algo, sf_nccl_graph *out);

/* Rate of an x16/x8 PCIe link: data sheet (after line coding), and as NCCL counts. */
double sf_pcie_sheet_GBs(int generation, int lanes);
double sf_pcie_nccl_GBs(int generation, int lanes);

#endif
