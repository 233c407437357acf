/* model/desc/topology.h: what joins the GPUs of a machine or a cluster, as a graph.
 *
 * Nodes   GPUs, NVSwitches, PCIe switches, host bridges, NUMA nodes, NICs, other PCI devices and the
 *         switches of the network. Every node of a host hangs in the PCIe tree below its NUMA node
 *         (`parent`), as far as the source tells where it sits.
 * Links   NVLink and its kin, PCIe, the links between sockets (SMP), the network; each with its
 *         bandwidth and where that figure comes from (sf_topo_origin).
 * Hosts   one sf_topo_host is a kind of host; `count` identical ones are one entry, so that a
 *         cluster of 2048 equal machines stays small.
 * Units   bytes per second in ONE direction (double, suffix _Bps; 0 = not known), never both
 *         directions together; Gb/s for what is printed on a NIC.
 * Owner   all of a topology lives in the arena that the reader was given.
 * Errors  readers return SF_EPARSE with the line, SF_EINVAL or SF_EIO; what could be read of a cut
 *         or oddly formed source is returned with a warning that names the line.
 * Source  names and order of the path types: legend of `nvidia-smi topo -m`; rates: topology_rates.h.
 */
#ifndef SF_DESC_TOPOLOGY_H
#define SF_DESC_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>

#include "model/base/arena.h"
#include "model/base/status.h"
#include "model/base/text.h"
#include "model/desc/gpu.h"

/*    id          name in JSON */
#define SF_TOPO_KINDS(X)                                                                           \
    X(GPU,        "gpu")                                                                           \
    X(NVSWITCH,   "nvswitch")                                                                      \
    X(PCI_SWITCH, "pcie_switch")                                                                   \
    X(PCI_ROOT,   "host_bridge")                                                                   \
    X(NUMA,       "numa")                                                                          \
    X(NIC,        "nic")                                                                           \
    X(PCI_DEVICE, "pci_device")  /* a card, or a device whose kind the source does not tell */     \
    X(NET_SWITCH, "net_switch")
typedef enum {
#define SF_AS_ENUM(id, name) SF_TOPO_##id,
    SF_TOPO_KINDS(SF_AS_ENUM)
#undef SF_AS_ENUM
    SF_TOPO_KIND_COUNT
} sf_topo_kind;

/* GPU_LINK is another maker's direct link (MetaXLink, HCCS, ...). */
#define SF_TOPO_LINKS(X)                                                                           \
    X(NVLINK,   "nvlink")                                                                          \
    X(XGMI,     "xgmi")                                                                            \
    X(GPU_LINK, "gpu_link")                                                                        \
    X(C2C,      "c2c")                                                                             \
    X(PCIE,     "pcie")                                                                            \
    X(SMP,      "smp")                                                                             \
    X(NETWORK,  "network")
typedef enum {
#define SF_AS_ENUM(id, name) SF_TOPO_LINK_##id,
    SF_TOPO_LINKS(SF_AS_ENUM)
#undef SF_AS_ENUM
    SF_TOPO_LINK_COUNT
} sf_topo_link_type;

/* Where a bandwidth comes from, best first. A path has that of its narrowest link. */
#define SF_TOPO_ORIGINS(X)                                                                         \
    X(REPORTED,  "reported",  "the source states it")                                              \
    X(CATALOGUE, "catalogue", "the catalogue's row of the named GPU")                              \
    X(SPEC,      "spec",      "data rate of the stated generation, links or lanes")                \
    X(NCCL,      "nccl",      "NCCL's own constant for this CPU")                                  \
    X(ASSUMED,   "assumed",   "the source leaves it out; taken as NCCL takes it")                  \
    X(UNKNOWN,   "unknown",   "not known")
typedef enum {
#define SF_AS_ENUM(id, name, says) SF_ORIGIN_##id,
    SF_TOPO_ORIGINS(SF_AS_ENUM)
#undef SF_AS_ENUM
    SF_ORIGIN_COUNT
} sf_topo_origin;

/* Nearest first. The PCIe ones mean what nvidia-smi's legend says:
 * PIX one PCIe bridge at most, PXB several bridges, PHB a host bridge, NODE several host bridges of
 * one NUMA node, SYS the link between NUMA nodes. An NCCL file does not show host bridges; there,
 * as in NCCL, everything through one NUMA node is PHB. */
#define SF_TOPO_PATHS(X)                                                                           \
    X(SELF, "X") X(NVLINK, "NV") X(PIX, "PIX") X(PXB, "PXB") X(PHB, "PHB") X(NODE, "NODE")          \
    X(SYS, "SYS") X(NET, "NET") X(UNKNOWN, "?")
typedef enum {
#define SF_AS_ENUM(id, name) SF_PATH_##id,
    SF_TOPO_PATHS(SF_AS_ENUM)
#undef SF_AS_ENUM
    SF_PATH_COUNT
} sf_topo_path_type;

#define SF_TOPO_NETS(X)                                                                            \
    X(UNKNOWN, "unknown") X(IB, "InfiniBand") X(ROCE, "RoCE") X(EFA, "EFA") X(TCP, "TCP")           \
    X(SLINGSHOT, "Slingshot") X(ETHERNET, "Ethernet")
typedef enum {
#define SF_AS_ENUM(id, name) SF_NET_##id,
    SF_TOPO_NETS(SF_AS_ENUM)
#undef SF_AS_ENUM
    SF_NET_COUNT
} sf_topo_net;

typedef struct {
    sf_topo_kind kind;
    int host;            /* index into hosts; -1 for NET_SWITCH                                   */
    int parent;          /* one step nearer the CPU; -1 for NUMA, NVSWITCH, NET_SWITCH or unknown */
    int ordinal;         /* as the source numbers it (GPU 3, NUMA node 1); -1 unknown              */
    int numa;            /* NUMA node id; -1 unknown                                               */
    const char *name;    /* unique within its host: "GPU3", "NIC0", "NUMA1", "switch2"             */
    const char *device;  /* GPU: model name; NIC: "mlx5_0"; NUMA: CPU model; "" unknown            */
    const char *busid;   /* "0000:1a:00.0"; "" unknown                                             */
    const char *cpus;    /* GPU, NUMA: CPU list or mask as the source prints it; "" unknown        */
    int sm;              /* GPU: compute capability * 10, AMD: gfx number; 0 unknown               */
    sf_topo_net net;     /* NIC                                                                    */
    double gbit;         /* NIC: Gb/s in one direction; 0 unknown                                  */
    sf_topo_origin gbit_origin;
    int uplink;          /* the PCIe link to `parent`; -1 none                                     */
    int first_link;      /* see sf_topo_next_link; -1 none                                         */
} sf_topo_node;

typedef struct {
    sf_topo_link_type type;
    int a, b;            /* nodes; a PCIe link joins child a to parent b                           */
    int count;           /* links bonded together (NVLink); 0 = at least one, number not stated    */
    int generation;      /* NVLink or PCIe generation; 0 unknown                                   */
    int lanes;           /* PCIe lanes; 0 unknown                                                  */
    double Bps;          /* one direction, all `count` together; 0 unknown                         */
    sf_topo_origin origin;
    int next_of_a, next_of_b;      /* the chain of the links of a node; -1 ends it                 */
} sf_topo_link;

/* What the source itself says of a pair of devices. */
typedef struct {
    unsigned char path;  /* sf_topo_path_type; NVLINK for any direct GPU link                      */
    unsigned char pcie;  /* path type by PCIe when it is stated as well (`topo -mp`), else UNKNOWN */
    short links;         /* number of NVLinks; 0 not stated                                        */
} sf_topo_cell;

typedef struct {
    const char *name;    /* host name where the source tells it, else "host0", ...                 */
    int count;           /* identical hosts that this entry stands for, >= 1                       */
    int *gpus, gpu_count;          /* nodes, in the order of the source's numbering                */
    int *nics, nic_count;
    const sf_topo_cell *reported;  /* (n, n), n = gpu_count + nic_count, GPUs first; NULL if the
                                    * source is a graph and not a matrix                           */
    bool direct_unstated;          /* the source leaves open whether GPUs have direct links        */
    sf_topo_link_type gpu_link;    /* what NVLINK stands for in `reported`                         */
    const char *gpu_link_name;     /* as the source calls it: "NVLink", "xGMI", "MX", "HCCS"       */
} sf_topo_host;

typedef struct {
    const char *source;  /* kind of source: "nvidia-smi topo -m", "NCCL topology XML", ...         */
    sf_topo_node *nodes;
    sf_topo_link *links;
    sf_topo_host *hosts;
    const char **warnings;         /* each begins with "line N: " where it has a line              */
    size_t node_count, link_count, host_count, warning_count;
    size_t node_cap, link_cap, host_cap, warning_cap;
    bool rails;          /* several hosts: NIC k of every host is on switch k                      */
} sf_topology;

/* ---- readers ---- */

/* `what` is a file, "-" (stdin), "live" (this machine) or a synthetic description (see below).
 * gpu may be NULL: then the catalogue is asked for the model that the source itself names; where it
 * names none, bandwidths that hang on the model stay unknown. */
sf_status sf_topology_open(const char *what, const sf_gpu *gpu, sf_arena *arena, sf_topology **out);

/* Any of the text formats, told apart by content: a pasted matrix of `nvidia-smi topo -m` (also
 * rocm-smi --showtopo, mx-smi, npu-smi and their like), an NCCL topology XML, or our JSON.
 * `name` is for messages. */
sf_status sf_topology_parse(const char *text, size_t len, const char *name, const sf_gpu *gpu, sf_arena *arena,
                            sf_topology **out);

/* A synthetic description, clauses separated by ';' in any order after the first:
 *
 *   GPUS      COUNT x GPU-NAME FABRIC      8xH100-SXM5-80GB nvswitch
 *   FABRIC    nvswitch [N links] | nvlink mesh [N links] | nvlink pairs [N links] |
 *             xgmi mesh [N links] | pcie | pcie switch [PER-SWITCH]
 *   NODES     COUNT nodes                  4 nodes                                    (default 1)
 *   NICS      COUNT x RATE Gb [KIND] [rail|fabric]     8x400Gb ib rail                (default none)
 *   KIND      ib | roce | efa | tcp | slingshot
 *   NUMA      COUNT numa                   2 numa               (default: 2 above 4 GPUs, else 1)
 *   BUS       pcie GEN [xLANES]            pcie 5 x16           (default: the catalogue's, else unknown)
 *
 * N links = NVLinks of one GPU (mesh: to each other GPU). GPUs are spread over the NUMA nodes in
 * order, NICs over the GPUs in order. Under nvswitch and mesh there is a PCIe switch for each NIC and
 * its GPUs (for 4 GPUs where there is no NIC), under `pcie switch` one for PER-SWITCH (4) GPUs and the
 * NICs near them, under `pcie` and pairs each device has a host bridge of its own. With several nodes, `rail` (the default where
 * every node has several NICs) joins NIC k of all nodes by switch k; `fabric` joins all NICs by one. */
sf_status sf_topology_synthetic(const char *text, const sf_gpu *gpu, sf_arena *arena, sf_topology **out);

/* This machine: NUMA, PCI and NICs by hwloc, GPUs and NVLink by NVML if its library is there
 * (libnvidia-ml.so.1, or the file that SHARDFIT_NVML names). No GPU is no error. */
sf_status sf_topology_live(sf_arena *arena, sf_topology **out);

/* The GPU name that the source itself mentions for its GPUs ("" if none, or if they differ). */
const char *sf_topology_gpu_model(const sf_topology *t);

/* Fill what hangs on the GPUs' model: PCIe and NVLink rates that are not known, and the name where the
 * source has none. */
void sf_topology_apply_gpu(sf_topology *t, const sf_gpu *gpu, sf_arena *arena);

/* ---- queries; GPUs and NICs are node indices ---- */

int sf_topology_gpus(const sf_topology *t);  /* of all hosts, copies counted */
int sf_topology_nodes(const sf_topology *t); /* machines, copies counted     */

/* Global rank (hosts in order, copies in order, GPUs in order) -> GPU node and which copy of its
 * host. false if there is no such rank. */
bool sf_topology_locate(const sf_topology *t, int rank, int *gpu, int *copy);

typedef struct {
    sf_topo_path_type type;
    int links;             /* NVLinks that join the two; 0 when type is not NVLINK or not stated   */
    double Bps;            /* one direction; 0 unknown                                             */
    sf_topo_origin origin; /* of the narrowest link                                                */
    bool at_most;          /* some link of the path is unknown: the figure is an upper bound       */
    bool inferred;         /* the source is a matrix that leaves this path out; type is the farthest
                            * that what else is known of the two allows                            */
} sf_topo_path;

sf_topo_path sf_topology_path(const sf_topology *t, int a, int b);         /* devices of one host  */
sf_topo_path sf_topology_path_pcie(const sf_topology *t, int a, int b);    /* as if without NVLink */
sf_topo_path sf_topology_path_hosts(const sf_topology *t, int a, int b);   /* GPUs of two machines */

/* All links at a node: for (int l = -1; (l = sf_topo_next_link(t, node, l)) >= 0;) */
int sf_topo_next_link(const sf_topology *t, int node, int link);

/* NICs of least distance to a GPU, at most `most`; returns how many. 0: no NIC, or none with a
 * known path. *type is their path type. */
int sf_topology_nearest_nics(const sf_topology *t, int gpu, int *nics, int most, sf_topo_path_type *type);

typedef struct {
    int links;             /* 0: none, or number not stated (then `any`)                            */
    bool any;
    double Bps;            /* all of them, one direction; 0 unknown                                 */
    sf_topo_origin origin;
    int generation;
} sf_topo_nvlink;
sf_topo_nvlink sf_topology_gpu_nvlink(const sf_topology *t, int gpu);

typedef enum {
    SF_NVLINK_NONE,
    SF_NVLINK_SWITCH,  /* every pair, through NVSwitches                   */
    SF_NVLINK_MESH,    /* every pair, by links of its own                  */
    SF_NVLINK_PAIRS,   /* islands of two                                   */
    SF_NVLINK_ISLANDS, /* islands of more, each all-to-all                 */
    SF_NVLINK_CUBE,    /* 8 GPUs, each joined to 4: the hybrid cube mesh   */
    SF_NVLINK_PARTIAL  /* some other pairs                                 */
} sf_nvlink_shape;
sf_nvlink_shape sf_topology_nvlink_shape(const sf_topology *t, int host);
const char *sf_nvlink_shape_text(sf_nvlink_shape shape);

/* island[i] = number of the NVLink island of GPU i of the host (in order of first GPU); returns how
 * many islands there are. island has gpu_count entries. */
int sf_topology_nvlink_islands(const sf_topology *t, int host, int *island);

/* The structure holds together: indices in range, the tree without cycles, hosts' lists right. */
bool sf_topology_is_valid(const sf_topology *t);

const char *sf_topo_kind_name(sf_topo_kind kind);
const char *sf_topo_link_name(sf_topo_link_type type);
const char *sf_topo_origin_name(sf_topo_origin origin);
const char *sf_topo_path_name(sf_topo_path_type type);
const char *sf_topo_net_name(sf_topo_net net);

/* ---- printing ---- */

void sf_topology_print(const sf_topology *t, sf_text *out);      /* what was understood, for people  */
void sf_topology_tree(const sf_topology *t, int host, sf_text *out);
void sf_topology_json(const sf_topology *t, sf_text *out);       /* what sf_topology_parse reads back */
void sf_topology_svg(const sf_topology *t, sf_text *out);

#endif
