#include "model/desc/topology_build.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "model/desc/topology_rates.h"

enum { MOST_WARNINGS = 200 };

static void make_plain(char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < 0x20 || (unsigned char)*text > 0x7e)
            *text = '?';
}

char *sf_topo_plain(sf_arena *arena, const char *text)
{
    char *copy = sf_arena_strndup(arena, text, strnlen(text, 120));
    make_plain(copy);
    return copy;
}

sf_topology *sf_topo_new(sf_arena *arena, const char *source)
{
    sf_topology *t = SF_NEW(arena, sf_topology);
    t->source = sf_arena_strdup(arena, source);
    return t;
}

int sf_topo_add_host(sf_topology *t, sf_arena *arena, const char *name)
{
    int index = (int)t->host_count;
    if (name == NULL || name[0] == '\0')
        name = sf_arena_printf(arena, "host%d", index);
    SF_PUSH(arena, t->hosts, t->host_count, t->host_cap) = (sf_topo_host){
        .name = sf_topo_plain(arena, name), .count = 1, .gpu_link = SF_TOPO_LINK_NVLINK, .gpu_link_name = "NVLink"
    };
    return index;
}

int sf_topo_add_node(sf_topology *t, sf_arena *arena, sf_topo_kind kind, int host, int parent, const char *name)
{
    int index = (int)t->node_count;
    assert(host < (int)t->host_count && parent < index);
    SF_PUSH(arena, t->nodes, t->node_count, t->node_cap) = (sf_topo_node){
        .kind = kind, .host = host, .parent = parent, .ordinal = -1, .numa = -1,
        .name = sf_topo_plain(arena, name), .device = "", .busid = "", .cpus = "",
        .gbit_origin = SF_ORIGIN_UNKNOWN, .uplink = -1, .first_link = -1,
    };
    return index;
}

static int *list_kind(const sf_topology *t, sf_arena *arena, int host, sf_topo_kind kind, int *count)
{
    int n = 0;
    for (size_t i = 0; i < t->node_count; i++)
        n += t->nodes[i].host == host && t->nodes[i].kind == kind;
    int *list = SF_NEW_ARRAY(arena, int, n);
    *count = n;
    n = 0;
    for (size_t i = 0; i < t->node_count; i++)
        if (t->nodes[i].host == host && t->nodes[i].kind == kind)
            list[n++] = (int)i;
    return list;
}

void sf_topo_list_devices(sf_topology *t, sf_arena *arena, int host)
{
    sf_topo_host *h = &t->hosts[host];
    h->gpus = list_kind(t, arena, host, SF_TOPO_GPU, &h->gpu_count);
    h->nics = list_kind(t, arena, host, SF_TOPO_NIC, &h->nic_count);
}

sf_topo_link *sf_topo_add_link(sf_topology *t, sf_arena *arena, sf_topo_link_type type, int a, int b)
{
    int index = (int)t->link_count;
    SF_PUSH(arena, t->links, t->link_count, t->link_cap) = (sf_topo_link){
        .type = type, .a = a, .b = b, .count = 1, .origin = SF_ORIGIN_UNKNOWN,
        .next_of_a = t->nodes[a].first_link, .next_of_b = t->nodes[b].first_link
    };
    t->nodes[a].first_link = t->nodes[b].first_link = index;
    if (type == SF_TOPO_LINK_PCIE && t->nodes[a].parent == b)
        t->nodes[a].uplink = index;
    return &t->links[index];
}

void sf_topo_add_pcie(sf_topology *t, sf_arena *arena, int child, int generation, int lanes, sf_topo_origin origin)
{
    assert(t->nodes[child].parent >= 0);
    sf_topo_link *link = sf_topo_add_link(t, arena, SF_TOPO_LINK_PCIE, child, t->nodes[child].parent);
    link->generation = generation;
    link->lanes = lanes;
    link->Bps = sf_pcie_Bps(generation, lanes);
    link->origin = link->Bps > 0 ? origin : SF_ORIGIN_UNKNOWN;
}

void sf_topo_add_nvlink(sf_topology *t, sf_arena *arena, sf_topo_link_type type, int a, int b, int count,
                        int generation)
{
    sf_topo_link *link = sf_topo_add_link(t, arena, type, a, b);
    link->count = count;
    link->generation = generation;
    double each_Bps = 0;
    if (type == SF_TOPO_LINK_XGMI)
        each_Bps = sf_xgmi_Bps(t->nodes[a].sm);
    else if (type == SF_TOPO_LINK_NVLINK)
        each_Bps = t->nodes[a].sm == 86 && generation == 3 ? sf_nvlink_Bps_of_sm(86) : sf_nvlink_Bps(generation);
    link->Bps = each_Bps * count;
    link->origin = link->Bps > 0 ? SF_ORIGIN_SPEC : SF_ORIGIN_UNKNOWN;
}

void sf_topo_add_smp(sf_topology *t, sf_arena *arena, int host, double Bps, sf_topo_origin origin)
{
    int nodes = (int)t->node_count;
    for (int a = 0; a < nodes; a++) {
        if (t->nodes[a].kind != SF_TOPO_NUMA || t->nodes[a].host != host)
            continue;
        for (int b = a + 1; b < nodes; b++) {
            if (t->nodes[b].kind != SF_TOPO_NUMA || t->nodes[b].host != host)
                continue;
            sf_topo_link *link = sf_topo_add_link(t, arena, SF_TOPO_LINK_SMP, a, b);
            link->Bps = Bps;
            link->origin = Bps > 0 ? origin : SF_ORIGIN_UNKNOWN;
        }
    }
}

void sf_topo_add_network(sf_topology *t, sf_arena *arena, bool rails)
{
    int switches = 0, first = (int)t->node_count;
    for (size_t h = 0; h < t->host_count; h++)
        if (t->hosts[h].nic_count > switches)
            switches = t->hosts[h].nic_count;
    if (switches == 0)
        return;
    if (!rails)
        switches = 1;
    for (int k = 0; k < switches; k++) {
        int node = sf_topo_add_node(t, arena, SF_TOPO_NET_SWITCH, -1, -1, rails ? sf_arena_printf(arena, "rail%d", k) : "fabric");
        t->nodes[node].ordinal = k;
    }
    for (size_t h = 0; h < t->host_count; h++) {
        for (int k = 0; k < t->hosts[h].nic_count; k++) {
            int nic = t->hosts[h].nics[k];
            sf_topo_link *link =
                sf_topo_add_link(t, arena, SF_TOPO_LINK_NETWORK, nic, first + (rails ? k : 0));
            link->Bps = t->nodes[nic].gbit * 1e9 / 8;
            link->origin = t->nodes[nic].gbit_origin;
        }
    }
    t->rails = rails;
}

void sf_topo_warn(sf_topology *t, sf_arena *arena, int line, const char *fmt, ...)
{
    char said[400];
    va_list args;
    if (t->warning_count > MOST_WARNINGS)
        return;
    va_start(args, fmt);
    vsnprintf(said, sizeof said, fmt, args);
    va_end(args);
    if (t->warning_count == MOST_WARNINGS)
        snprintf(said, sizeof said, "and more of the kind; the rest is left out");
    make_plain(said); /* what is quoted from a file must not disturb a terminal */
    SF_PUSH(arena, t->warnings, t->warning_count, t->warning_cap) =
        line > 0 ? sf_arena_printf(arena, "line %d: %s", line, said) : sf_arena_strdup(arena, said);
}

sf_topo_net sf_topo_net_of_name(const char *device)
{
    static const struct {
        const char *prefix;
        sf_topo_net net;
    } known[] = {
        /* an "mlx5_0" may be either InfiniBand or Ethernet, so it is not in the list */
        { "mlx5_ib", SF_NET_IB },   { "ib", SF_NET_IB },         { "mlx5_eth", SF_NET_ETHERNET },
        { "rdmap", SF_NET_EFA },    { "efa", SF_NET_EFA },       { "cxi", SF_NET_SLINGSHOT },
        { "hsn", SF_NET_SLINGSHOT }, { "bnxt_re", SF_NET_ROCE }, { "rocep", SF_NET_ROCE },
        { "mlx5_roce", SF_NET_ROCE }, { "eth", SF_NET_TCP },     { "eno", SF_NET_TCP },
        { "ens", SF_NET_TCP },      { "enp", SF_NET_TCP },       { "eni", SF_NET_TCP },
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (sf_str_starts(device, known[i].prefix))
            return known[i].net;
    return SF_NET_UNKNOWN;
}
