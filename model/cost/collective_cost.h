/* model/cost/collective_cost.h: the time of one collective over GPUs, as NCCL does it.
 *
 * Use     describe the machine once (sf_comm_fabric), the ranks that talk (sf_comm_group), prepare a
 *         plan, then ask for as many sizes as wanted; a question costs well under a microsecond.
 * Sizes   total_bytes is S of nccl-tests, the whole array: for all-gather and reduce-scatter
 *         ranks * shard; for all-to-all, gather and scatter the array that one rank (the root) holds.
 * Units   seconds, bytes, bytes per second in one direction (suffix _Bps), Gb/s where said.
 * Model   1. the graph (channels, bandwidth) that NCCL would find: nccl_graph.h
 *         2. NCCL's own estimate picks algorithm and protocol: nccl_tuning.h
 *         3. what that choice takes on real wires: nccl_physics.h (every constant with its origin)
 *         4. a measured profile, where there is one, speaks instead: collective_cost_profile.h
 * Source  busbw factors: nccl-tests doc/PERFORMANCE.md; the rest in the files named above.
 * Errors  sf_comm_plan_make refuses an impossible fabric or group; asking for a time cannot fail.
 */
#ifndef SF_COST_COLLECTIVE_COST_H
#define SF_COST_COLLECTIVE_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "model/base/status.h"
#include "model/desc/gpu.h"
#include "model/desc/job.h"

/*    id              name              nccl-tests' program  redop shown */
#define SF_COLLECTIVES(X)                                                                          \
    X(ALL_REDUCE,     "all_reduce",     "all_reduce_perf",     "sum")                              \
    X(ALL_GATHER,     "all_gather",     "all_gather_perf",     "none")                             \
    X(REDUCE_SCATTER, "reduce_scatter", "reduce_scatter_perf", "sum")                              \
    X(BROADCAST,      "broadcast",      "broadcast_perf",      "none")                             \
    X(REDUCE,         "reduce",         "reduce_perf",         "sum")                              \
    X(ALL_TO_ALL,     "all_to_all",     "alltoall_perf",       "none")                             \
    X(SEND_RECV,      "send_recv",      "sendrecv_perf",       "sum")                              \
    X(GATHER,         "gather",         "gather_perf",         "none")                             \
    X(SCATTER,        "scatter",        "scatter_perf",        "none")
typedef enum {
#define SF_AS_ENUM(id, name, program, redop) SF_COLL_##id,
    SF_COLLECTIVES(SF_AS_ENUM)
#undef SF_AS_ENUM
    SF_COLL_COUNT
} sf_collective;

/*    id          name        protocols it has: LL, LL128, Simple as bits 1, 2, 4 */
#define SF_NCCL_ALGOS(X)                                                                           \
    X(TREE,           "Tree",          7)                                                          \
    X(RING,           "Ring",          7)                                                          \
    X(COLLNET_DIRECT, "CollNetDirect", 4)                                                          \
    X(COLLNET_CHAIN,  "CollNetChain",  4)                                                          \
    X(NVLS,           "NVLS",          4)                                                          \
    X(NVLS_TREE,      "NVLSTree",      4)                                                          \
    X(PAT,            "PAT",           4)
typedef enum {
#define SF_AS_ENUM(id, name, protos) SF_ALGO_##id,
    SF_NCCL_ALGOS(SF_AS_ENUM)
#undef SF_AS_ENUM
    SF_ALGO_COUNT,
    SF_ALGO_P2P = SF_ALGO_COUNT, /* grouped sends and receives: no algorithm to choose */
    SF_ALGO_NONE                 /* one rank, or no bytes                               */
} sf_nccl_algo;

typedef enum { SF_PROTO_LL, SF_PROTO_LL128, SF_PROTO_SIMPLE, SF_PROTO_COUNT } sf_nccl_proto;

/*    id            name as typed after --link    what it is */
#define SF_INTRA_LINKS(X)                                                                          \
    X(NVSWITCH,     "nvswitch", "all GPUs of the node at full NVLink rate to each other")           \
    X(NVLINK_MESH,  "nvlink",   "NVLinks from GPU to GPU, every GPU reachable by some")             \
    X(NVLINK_PAIRS, "pairs",    "NVLink bridges join pairs, the rest is PCIe")                      \
    X(PCIE_SWITCH,  "pix",      "PCIe peer to peer below switches")                                \
    X(PCIE_CPU,     "phb",      "PCIe peer to peer through the CPU's root complex")                 \
    X(PCIE_SOCKETS, "sys",      "PCIe peer to peer, also over the link between CPU sockets")        \
    X(SHM,          "shm",      "no peer to peer: through host memory")                            \
    X(C2C,          "c2c",      "coherent CPU-GPU superchips joined by NVLink to each other")
typedef enum {
#define SF_AS_ENUM(id, name, says) SF_INTRA_##id,
    SF_INTRA_LINKS(SF_AS_ENUM)
#undef SF_AS_ENUM
    SF_INTRA_COUNT
} sf_intra_link;

/*    id         name as typed after --nic */
#define SF_NIC_KINDS(X)                                                                            \
    X(IB,        "ib")                                                                             \
    X(ROCE,      "roce")                                                                           \
    X(EFA,       "efa")                                                                            \
    X(SLINGSHOT, "slingshot")                                                                      \
    X(TCPX,      "tcpx")    /* GPUDirect-TCPX (GCP a3-high)                  */                    \
    X(FASTRAK,   "fastrak") /* GPUDirect-TCPXO (GCP a3-mega)                 */                    \
    X(TCP,       "tcp")
typedef enum {
#define SF_AS_ENUM(id, name) SF_NIC_##id,
    SF_NIC_KINDS(SF_AS_ENUM)
#undef SF_AS_ENUM
    SF_NIC_COUNT
} sf_nic_kind;

typedef enum { SF_CPU_INTEL, SF_CPU_AMD, SF_CPU_ARM, SF_CPU_POWER, SF_CPU_COUNT } sf_cpu_vendor;

/* The machine. sf_comm_fabric_make fills it from what is known; every field may be changed after. */
typedef struct {
    int sm;                  /* compute capability * 10: 70, 75, 80, 86, 89, 90, 100, 103, 120 ...  */
    int gpus_per_node;       /* GPUs of one host that take part                                     */
    int nodes;
    int domain_gpus;         /* GPUs that NVLink joins: gpus_per_node, or 72 of an NVL72 rack        */
    sf_intra_link intra;
    double nvlink_Bps;       /* data sheet, one direction, all links of a GPU; 0 = none              */
    int pcie_gen, pcie_lanes;
    int gpus_per_uplink;     /* GPUs that share one PCIe x16 to their CPU (SHM only)                */
    int nics_per_node;       /* 0 = none: one node only                                             */
    double nic_gbit;         /* line rate of one NIC                                                */
    sf_nic_kind nic;
    bool gpudirect;          /* the NIC reads GPU memory; false: staged in host memory              */
    bool collnet;            /* in-network reduction (IB SHARP plugin) is set up                    */
    sf_cpu_vendor cpu;
    int nccl_version;        /* 22703 is 2.27.3; 0 = not known: the newest tables                   */
    unsigned algos, protos;  /* NCCL_ALGO, NCCL_PROTO: bits 1 << sf_nccl_algo, _proto; 0 = all      */
    int gpus_per_process;    /* one thread launches on so many GPUs (nccl-tests -g); 1 in training  */
} sf_comm_fabric;

/* The ranks of one communicator. */
typedef struct {
    int ranks;
    int ranks_per_node;      /* how many of them share a node: 8 in a full node, 1 for a column      */
    int concurrent_groups;   /* groups like this one per node that communicate at once, >= 1; they  */
} sf_comm_group;             /* share the node's NICs                                               */

typedef struct {
    double time_s;
    double algbw_Bps, busbw_Bps;
    sf_nccl_algo algo;
    sf_nccl_proto proto;
    int channels;            /* CTAs, one SM each                                                   */
    bool from_profile;       /* measured, or the model corrected by what was measured              */
    double nccl_time_s;      /* NCCL's own estimate, by which it chose                              */
    double latency_s;        /* part that does not grow with the size                               */
    double intra_bytes;      /* leaving one GPU by the intra-node link                              */
    double nic_bytes;        /* leaving one node by its NICs                                        */
} sf_collective_cost;

typedef struct sf_comm_plan sf_comm_plan; /* see nccl_plan.h; caller owns it, no allocation inside  */
typedef struct sf_collective_profile sf_collective_profile;
typedef struct sf_nccl_physics sf_nccl_physics;

const char *sf_collective_name(sf_collective op);
const char *sf_collective_program(sf_collective op); /* "all_reduce_perf" */
const char *sf_collective_redop(sf_collective op);
/* "all_reduce", "all-reduce", "AllReduce", "all_reduce_perf", "alltoall"; SF_COLL_COUNT if none. */
sf_collective sf_collective_by_name(const char *name);
const char *sf_nccl_algo_name(sf_nccl_algo algo);
const char *sf_nccl_proto_name(sf_nccl_proto proto);
/* "Ring,Tree" or "^LL,LL128", as NCCL_ALGO and NCCL_PROTO take them; 0 if a name is unknown. */
unsigned sf_nccl_algos_of(const char *list);
unsigned sf_nccl_protos_of(const char *list);
const char *sf_intra_link_name(sf_intra_link link);
/* Also "pcie" (phb), "switch" (pix), "host" (shm); SF_INTRA_COUNT if none. */
sf_intra_link sf_intra_link_by_name(const char *name);
const char *sf_nic_kind_name(sf_nic_kind kind);
/* Also "infiniband", "cxi", "tcpxo", "ethernet", "socket"; SF_NIC_COUNT if none. */
sf_nic_kind sf_nic_kind_by_name(const char *name);

/* busbw = algbw * this: 2(n-1)/n, (n-1)/n or 1. */
double sf_collective_busbw_factor(sf_collective op, int ranks);

/* Defaults for what `gpu` leaves open (see collective_cost_fabric.c): the intra link from the card's
 * name and NVLink, one NIC of the class usual for the card per GPU, InfiniBand with GPUDirect, the
 * newest NCCL. nodes, gpus_per_node >= 1. */
void sf_comm_fabric_make(const sf_gpu *gpu, int gpus_per_node, int nodes, sf_comm_fabric *out);

/* The kind of NIC by the layouts that clouds are known for (model/desc/data/links.csv, rows "node"):
 * 32 x 100 Gb/s EFA (H100) and 4 x 100 (A100), 4 x 200 TCPX and 8 x 200 FasTrak (H100), 16 x 100 RoCE
 * (A100) and 16 x 200 (H100); InfiniBand else. */
sf_nic_kind sf_nic_kind_of_layout(const sf_gpu *gpu, int nics_per_node, double gbit);

/* The same for a job's cluster: what it states, and the defaults for the rest. */
void sf_comm_fabric_of_cluster(const sf_cluster *cluster, sf_comm_fabric *out);

/* Refuses what cannot be: no ranks, ranks not a multiple of ranks_per_node, more ranks than GPUs,
 * several nodes without a NIC. */
sf_status sf_comm_fabric_check(const sf_comm_fabric *fabric);
sf_status sf_comm_group_check(const sf_comm_fabric *fabric, const sf_comm_group *group);

/* The group of all GPUs of the fabric. */
sf_comm_group sf_comm_group_world(const sf_comm_fabric *fabric);

/* physics NULL: the default constants. profile NULL: none; else borrowed while the plan is used. */
sf_status sf_comm_plan_make(const sf_comm_fabric *fabric, const sf_comm_group *group, const sf_nccl_physics *physics,
                            const sf_collective_profile *profile, sf_comm_plan *out);

void sf_comm_plan_time(const sf_comm_plan *plan, sf_collective op, uint64_t total_bytes, sf_collective_cost *out);

/* Plan and question in one, for a caller that asks once. */
sf_status sf_collective_time(const sf_comm_fabric *fabric, const sf_comm_group *group, sf_collective op,
                             uint64_t total_bytes, sf_collective_cost *out);

#endif
