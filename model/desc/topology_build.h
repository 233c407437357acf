/* model/desc/topology_build.h: how the readers of topologies make one; not for users of topologies.
 *
 * Adders return indices, so that growing an array invalidates nothing a reader holds.
 */
#ifndef SF_DESC_TOPOLOGY_BUILD_H
#define SF_DESC_TOPOLOGY_BUILD_H

#include "model/desc/topology.h"

/* Bounds on hostile input, far above what there is (NVLink domains end at 576 GPUs). */
enum { SF_TOPO_MOST_DEVICES = 1024, /* GPUs and NICs of one host */
       SF_TOPO_MOST_NUMA = 256,     /* NUMA nodes of one host    */
       SF_TOPO_MOST_HOSTS = 512,
       SF_TOPO_MOST_DEPTH = 64,     /* of the PCIe tree          */
       SF_TOPO_MOST_BYTES = 4 << 20 };

/* A copy that can be printed anywhere: what is not printable ASCII becomes '?', at most 120 bytes. */
char *sf_topo_plain(sf_arena *arena, const char *text);

sf_topology *sf_topo_new(sf_arena *arena, const char *source);
int sf_topo_add_host(sf_topology *t, sf_arena *arena, const char *name);

/* Node with unknowns (-1, "") set; name is copied. */
int sf_topo_add_node(sf_topology *t, sf_arena *arena, sf_topo_kind kind, int host, int parent, const char *name);

/* Fill the host's lists of GPUs and NICs, in the order of the nodes; when all nodes are there. */
void sf_topo_list_devices(sf_topology *t, sf_arena *arena, int host);

/* Valid until the next link is added. */
sf_topo_link *sf_topo_add_link(sf_topology *t, sf_arena *arena, sf_topo_link_type type, int a, int b);

/* A PCIe link from a node to its parent with its rate from generation and lanes (0, 0: unknown). */
void sf_topo_add_pcie(sf_topology *t, sf_arena *arena, int child, int generation, int lanes, sf_topo_origin origin);

/* NVLinks from a to b (or to a switch); bandwidth follows from count and generation. */
void sf_topo_add_nvlink(sf_topology *t, sf_arena *arena, sf_topo_link_type type, int a, int b, int count,
                        int generation);

/* SMP links between all NUMA nodes of a host (bandwidth unknown). */
void sf_topo_add_smp(sf_topology *t, sf_arena *arena, int host, double Bps, sf_topo_origin origin);

/* Network switches for several machines: one per NIC of a host (rails) or a single one. */
void sf_topo_add_network(sf_topology *t, sf_arena *arena, bool rails);

/* line 0: the warning has no line. */
void sf_topo_warn(sf_topology *t, sf_arena *arena, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* The kind of network that a device name, PCI class or vendor tells. */
sf_topo_net sf_topo_net_of_name(const char *device);

/* ---- the readers that topology_open.c chooses from ---- */

sf_status sf_topology_read_smi(const char *text, size_t len, const char *name, const sf_gpu *gpu, sf_arena *arena,
                               sf_topology **out);
sf_status sf_topology_read_xml(const char *text, size_t len, int first_line, const char *name, sf_arena *arena,
                               sf_topology **out);
sf_status sf_topology_read_json(const char *text, size_t len, const char *name, sf_arena *arena, sf_topology **out);

#endif
