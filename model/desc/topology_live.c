/* The topology of this machine: hwloc tells NUMA nodes, PCI and NICs, NVML the GPUs and NVLinks. */
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/desc/topology_nvml.h"
#include "model/desc/topology_pci.h"
#include "model/desc/topology_rates.h"

enum { VENDOR_NVIDIA = 0x10de, VENDOR_AMD = 0x1002 };

typedef struct {
    sf_topology *t;
    sf_arena *arena;
    hwloc_topology_t hw;
    const sf_nvml_gpu *gpus;
    int gpu_count, bridges, switches, nics;
    int *gpu_node;       /* (gpu_count) node, -1 not met in the PCI tree */
    int bare_nvidia;     /* NVIDIA GPUs that the driver does not know */
} reader;

static const char *busid_of(const reader *r, hwloc_obj_t pci)
{
    return sf_arena_printf(r->arena, "%04x:%02x:%02x.%x", pci->attr->pcidev.domain, pci->attr->pcidev.bus, pci->attr->pcidev.dev,
                           pci->attr->pcidev.func);
}

/* First line of a file below /sys; "" if it cannot be read. */
static const char *sys_line(const reader *r, const char *path)
{
    char line[128] = "";
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return "";
    if (fgets(line, sizeof line, f) == NULL)
        line[0] = '\0';
    fclose(f);
    line[strcspn(line, "\n")] = '\0';
    return sf_arena_strdup(r->arena, line);
}

/* The most that device and slot do, not what they run at while idle. */
static void slot_rate(const reader *r, const char *busid, int *generation, int *lanes)
{
    const char *speed = sys_line(r, sf_arena_printf(r->arena, "/sys/bus/pci/devices/%s/max_link_speed", busid));
    const char *width = sys_line(r, sf_arena_printf(r->arena, "/sys/bus/pci/devices/%s/max_link_width", busid));
    *generation = sf_pcie_generation_of_speed(speed);
    *lanes = atoi(width);
    if (*lanes < 1 || *lanes > 32)
        *lanes = 0;
}

typedef enum { NOT_WANTED, WANTED_GPU, WANTED_NIC } wanted;

static wanted wants(const reader *r, hwloc_obj_t o)
{
    const struct hwloc_pcidev_attr_s *pci = &o->attr->pcidev;
    sf_topo_kind kind = sf_pci_kind((unsigned long)pci->class_id << 8);
    if (kind == SF_TOPO_NIC)
        return WANTED_NIC;
    for (int i = 0; i < r->gpu_count; i++)
        if (strcmp(r->gpus[i].busid, busid_of(r, o)) == 0)
            return WANTED_GPU;
    /* graphics of a server's management chip is no GPU to us */
    bool maker = pci->vendor_id == VENDOR_NVIDIA || pci->vendor_id == VENDOR_AMD;
    return maker && kind == SF_TOPO_GPU ? WANTED_GPU : NOT_WANTED;
}

static bool holds_wanted(const reader *r, hwloc_obj_t o)
{
    if (o->type == HWLOC_OBJ_PCI_DEVICE)
        return wants(r, o) != NOT_WANTED;
    for (hwloc_obj_t c = o->io_first_child; c != NULL; c = c->next_sibling)
        if (holds_wanted(r, c))
            return true;
    return false;
}

static void set_network(const reader *r, sf_topo_node *nic, hwloc_obj_t pci)
{
    const char *rdma = "", *net = "";
    for (hwloc_obj_t c = pci->io_first_child; c != NULL; c = c->next_sibling) {
        if (c->type != HWLOC_OBJ_OS_DEVICE || c->name == NULL || strchr(c->name, '/') != NULL)
            continue;
        if (c->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS)
            rdma = c->name;
        else if (c->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK)
            net = c->name;
    }
    nic->device = sf_topo_plain(r->arena, rdma[0] != '\0' ? rdma : net);
    if (rdma[0] != '\0') {
        const char *layer = sys_line(r, sf_arena_printf(r->arena, "/sys/class/infiniband/%s/ports/1/link_layer", rdma));
        nic->gbit = atof(sys_line(r, sf_arena_printf(r->arena, "/sys/class/infiniband/%s/ports/1/rate", rdma)));
        nic->net = strcmp(layer, "InfiniBand") == 0 ? SF_NET_IB : strcmp(layer, "Ethernet") == 0 ? SF_NET_ROCE : SF_NET_UNKNOWN;
    } else if (net[0] != '\0') {
        nic->gbit = atof(sys_line(r, sf_arena_printf(r->arena, "/sys/class/net/%s/speed", net))) / 1000;
        nic->net = SF_NET_TCP;
    }
    const struct hwloc_pcidev_attr_s *attr = &pci->attr->pcidev;
    if (sf_pci_net(0, (unsigned long long)attr->vendor_id << 48 | (unsigned long long)attr->device_id << 32) == SF_NET_EFA)
        nic->net = SF_NET_EFA;
    if (!(nic->gbit > 0))
        nic->gbit = 0; /* the system says -1 where no cable is */
    nic->gbit_origin = nic->gbit > 0 ? SF_ORIGIN_REPORTED : SF_ORIGIN_UNKNOWN;
}

static void add_device(reader *r, hwloc_obj_t o, int parent)
{
    const char *busid = busid_of(r, o);
    int generation, lanes, known = -1;
    wanted kind = wants(r, o);
    slot_rate(r, busid, &generation, &lanes);
    if (kind == WANTED_NIC) {
        int node = sf_topo_add_node(r->t, r->arena, SF_TOPO_NIC, 0, parent, sf_arena_printf(r->arena, "NIC%d", r->nics));
        r->t->nodes[node].ordinal = r->nics++;
        r->t->nodes[node].numa = r->t->nodes[parent].numa;
        r->t->nodes[node].busid = busid;
        set_network(r, &r->t->nodes[node], o);
        sf_topo_add_pcie(r->t, r->arena, node, generation, lanes, SF_ORIGIN_SPEC);
        return;
    }
    for (int i = 0; i < r->gpu_count; i++)
        if (strcmp(r->gpus[i].busid, busid) == 0)
            known = i;
    if (known < 0 && o->attr->pcidev.vendor_id == VENDOR_NVIDIA) { /* no driver: the device is there all the same */
        r->bare_nvidia++;
        return;
    }
    int node = sf_topo_add_node(r->t, r->arena, SF_TOPO_GPU, 0, parent, known >= 0 ? sf_arena_printf(r->arena, "GPU%d", known) : busid);
    r->t->nodes[node].ordinal = known;
    r->t->nodes[node].numa = r->t->nodes[parent].numa;
    r->t->nodes[node].busid = busid;
    if (known >= 0) {
        r->gpu_node[known] = node;
        r->t->nodes[node].device = r->gpus[known].name;
        r->t->nodes[node].sm = r->gpus[known].sm;
        if (r->gpus[known].pcie_generation > 0 && r->gpus[known].pcie_lanes > 0) {
            generation = r->gpus[known].pcie_generation;
            lanes = r->gpus[known].pcie_lanes;
        }
    } else if (o->name != NULL) {
        r->t->nodes[node].device = sf_topo_plain(r->arena, o->name);
    }
    sf_topo_add_pcie(r->t, r->arena, node, generation, lanes, SF_ORIGIN_SPEC);
}

/* A bridge that branches is a PCIe switch; one that leads on to one thing only is a port. */
static void add_io(reader *r, hwloc_obj_t o, int parent)
{
    int branches = 0;
    if (!holds_wanted(r, o))
        return;
    if (o->type == HWLOC_OBJ_PCI_DEVICE) {
        add_device(r, o, parent);
        return;
    }
    if (o->type != HWLOC_OBJ_BRIDGE)
        return;
    for (hwloc_obj_t c = o->io_first_child; c != NULL; c = c->next_sibling)
        branches += holds_wanted(r, c);
    bool host = o->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST;
    if (host || branches > 1) {
        int node = sf_topo_add_node(r->t, r->arena, host ? SF_TOPO_PCI_ROOT : SF_TOPO_PCI_SWITCH, 0, parent,
                                    sf_arena_printf(r->arena, host ? "bridge%d" : "switch%d", host ? r->bridges++ : r->switches++));
        int generation = 0, lanes = 0;
        r->t->nodes[node].numa = r->t->nodes[parent].numa;
        if (!host) {
            r->t->nodes[node].busid = busid_of(r, o);
            slot_rate(r, r->t->nodes[node].busid, &generation, &lanes);
        }
        sf_topo_add_pcie(r->t, r->arena, node, generation, lanes, SF_ORIGIN_SPEC);
        parent = node;
    }
    for (hwloc_obj_t c = o->io_first_child; c != NULL; c = c->next_sibling)
        add_io(r, c, parent);
}

static int numa_node_of(const reader *r, hwloc_obj_t io)
{
    hwloc_obj_t place = hwloc_get_non_io_ancestor_obj(r->hw, io);
    int id = place == NULL || place->nodeset == NULL ? -1 : hwloc_bitmap_first(place->nodeset);
    for (size_t i = 0; i < r->t->node_count; i++)
        if (r->t->nodes[i].kind == SF_TOPO_NUMA && r->t->nodes[i].numa == id)
            return (int)i;
    return 0;
}

static void add_numa_nodes(reader *r)
{
    const char *model = hwloc_obj_get_info_by_name(hwloc_get_root_obj(r->hw), "CPUModel");
    hwloc_obj_t package = hwloc_get_obj_by_type(r->hw, HWLOC_OBJ_PACKAGE, 0);
    if (model == NULL && package != NULL)
        model = hwloc_obj_get_info_by_name(package, "CPUModel");
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(r->hw, HWLOC_OBJ_NUMANODE, o)) != NULL;) {
        char cpus[256] = "";
        if (o->cpuset == NULL || hwloc_bitmap_iszero(o->cpuset))
            continue; /* a GPU's memory shown as a NUMA node */
        hwloc_bitmap_list_snprintf(cpus, sizeof cpus, o->cpuset);
        int node = sf_topo_add_node(r->t, r->arena, SF_TOPO_NUMA, 0, -1, sf_arena_printf(r->arena, "NUMA%u", o->os_index));
        r->t->nodes[node].ordinal = r->t->nodes[node].numa = (int)o->os_index;
        r->t->nodes[node].cpus = sf_arena_strdup(r->arena, cpus);
        r->t->nodes[node].device = sf_topo_plain(r->arena, model == NULL ? "" : model);
    }
    if (r->t->node_count == 0) {
        int node = sf_topo_add_node(r->t, r->arena, SF_TOPO_NUMA, 0, -1, "NUMA0");
        r->t->nodes[node].numa = 0;
    }
}

/* One NVSwitch node for each far end that is a switch (one for all where their addresses are hidden). */
static void add_nvlinks(reader *r)
{
    for (int i = 0; i < r->gpu_count; i++) {
        const sf_nvml_gpu *gpu = &r->gpus[i];
        for (int l = 0; l < gpu->link_count; l++) {
            int far = -1, count = 0;
            bool first = true;
            for (int k = 0; k < gpu->link_count; k++) {
                bool same = gpu->links[k].far == gpu->links[l].far && strcmp(gpu->links[k].busid, gpu->links[l].busid) == 0;
                count += same;
                first = first && (k >= l || !same);
            }
            if (!first || gpu->links[l].far == SF_NVML_TO_OTHER)
                continue;
            if (gpu->links[l].far == SF_NVML_TO_GPU) {
                for (int j = 0; j < r->gpu_count; j++)
                    if (strcmp(r->gpus[j].busid, gpu->links[l].busid) == 0)
                        far = j > i ? r->gpu_node[j] : -1; /* told by the other end already */
            } else {
                int hubs = 0;
                for (size_t n = 0; n < r->t->node_count; n++) {
                    if (r->t->nodes[n].kind != SF_TOPO_NVSWITCH)
                        continue;
                    hubs++;
                    if (strcmp(r->t->nodes[n].busid, gpu->links[l].busid) == 0)
                        far = (int)n;
                }
                if (far < 0) {
                    far = sf_topo_add_node(r->t, r->arena, SF_TOPO_NVSWITCH, 0, -1, sf_arena_printf(r->arena, "NVSwitch%d", hubs));
                    r->t->nodes[far].busid = gpu->links[l].busid;
                }
            }
            if (far >= 0)
                sf_topo_add_nvlink(r->t, r->arena, SF_TOPO_LINK_NVLINK, r->gpu_node[i], far, count, sf_nvlink_generation_of_sm(gpu->sm));
        }
    }
}

/* GPUs in the driver's order, whatever the order of the PCI tree. */
static void order_gpus(reader *r)
{
    sf_topo_host *host = &r->t->hosts[0];
    sf_topo_list_devices(r->t, r->arena, 0);
    int at = 0;
    for (int i = 0; i < r->gpu_count; i++)
        for (int k = at; k < host->gpu_count; k++)
            if (host->gpus[k] == r->gpu_node[i]) {
                host->gpus[k] = host->gpus[at];
                host->gpus[at++] = r->gpu_node[i];
                break;
            }
}

static sf_status read_machine(reader *r)
{
    const char *why_none;
    sf_nvml_gpu *gpus;
    SF_TRY(sf_nvml_gpus(r->arena, &gpus, &r->gpu_count, &why_none));
    r->gpus = gpus;
    r->gpu_node = SF_NEW_ARRAY(r->arena, int, r->gpu_count);
    for (int i = 0; i < r->gpu_count; i++)
        r->gpu_node[i] = -1;
    const char *name = hwloc_obj_get_info_by_name(hwloc_get_root_obj(r->hw), "HostName");
    sf_topo_add_host(r->t, r->arena, name == NULL ? "this machine" : name);
    add_numa_nodes(r);
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_bridge(r->hw, o)) != NULL;)
        if (o->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST)
            add_io(r, o, numa_node_of(r, o));
    for (int i = 0; i < r->gpu_count; i++) {
        if (r->gpu_node[i] >= 0)
            continue; /* a container may hide the PCI tree */
        int node = sf_topo_add_node(r->t, r->arena, SF_TOPO_GPU, 0, -1, sf_arena_printf(r->arena, "GPU%d", i));
        r->gpu_node[i] = node;
        r->t->nodes[node].ordinal = i;
        r->t->nodes[node].busid = gpus[i].busid;
        r->t->nodes[node].device = gpus[i].name;
        r->t->nodes[node].sm = gpus[i].sm;
    }
    order_gpus(r);
    sf_topo_add_smp(r->t, r->arena, 0, 0, SF_ORIGIN_UNKNOWN);
    add_nvlinks(r);
    if (r->bare_nvidia > 0)
        sf_topo_warn(r->t, r->arena, 0, "%d NVIDIA GPU%s on the PCI bus without a working driver (%s)", r->bare_nvidia,
                     r->bare_nvidia > 1 ? "s" : "", why_none);
    else if (r->t->hosts[0].gpu_count == 0)
        sf_topo_warn(r->t, r->arena, 0, "this machine has no GPU: %s", why_none);
    return SF_SUCCESS;
}

sf_status sf_topology_live(sf_arena *arena, sf_topology **out)
{
    /* plugins that may be installed: the system's own files tell the same, and the answer is then the
     * same with and without them */
    static const char *const not_needed[] = { "pci", "gl", "opencl", "cuda", "nvml", "rsmi", "levelzero" };
    sf_status st = SF_SUCCESS;
    reader r = { .arena = arena, .t = sf_topo_new(arena, "this machine (hwloc, NVML)") };
    if (hwloc_topology_init(&r.hw) != 0)
        return SF_FAIL(SF_ENOMEM, "hwloc could not start");
    for (size_t i = 0; i < sizeof not_needed / sizeof not_needed[0]; i++)
        hwloc_topology_set_components(r.hw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, not_needed[i]);
    hwloc_topology_set_io_types_filter(r.hw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    if (hwloc_topology_load(r.hw) != 0) {
        st = SF_FAIL(SF_EIO, "hwloc could not read this machine's topology");
        goto destroy;
    }
    SF_TRY_GOTO(st, read_machine(&r), destroy);
    *out = r.t;
destroy:
    hwloc_topology_destroy(r.hw);
    return st;
}
