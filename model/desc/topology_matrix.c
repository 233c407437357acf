/* From a matrix of paths to the graph whose paths it shows. The PCIe paths are nested (PIX within PXB
 * within PHB within NODE): devices joined by paths up to a level are one group, and each group of a
 * level is a switch, a bridge or a NUMA node. NVLink hides the PCIe path of its pair; what other
 * devices, NUMA nodes and CPU lists tell is used, and where nothing does, the place stays unknown. */
#include "model/desc/topology_matrix.h"

#include <stdio.h>
#include <string.h>

enum { MOST_NVLINKS = 18 }; /* of one GPU, Hopper and Blackwell: gpus.csv, nvlink_links */

/* ---- both halves of the matrix ---- */

static const char *cell_text(const sf_matrix *m, sf_topo_cell cell, sf_arena *arena)
{
    if (cell.path != SF_PATH_NVLINK)
        return sf_topo_path_name(cell.path);
    return m->link == SF_TOPO_LINK_NVLINK ? sf_arena_printf(arena, "NV%d", cell.links) : m->link_name;
}

static void make_symmetric(sf_topology *t, sf_arena *arena, sf_matrix *m)
{
    int n = m->count, holes = 0;
    const char *hole = "";
    for (int i = 0; i < n; i++) {
        for (int j = i + 1; j < n; j++) {
            sf_topo_cell *a = &m->cells[i * n + j], *b = &m->cells[j * n + i];
            if (a->path == SF_PATH_SELF)
                a->path = SF_PATH_UNKNOWN;
            if (b->path == SF_PATH_SELF)
                b->path = SF_PATH_UNKNOWN;
            if (a->path == SF_PATH_UNKNOWN && b->path == SF_PATH_UNKNOWN) {
                if (m->devices[i].row_line > 0 || m->devices[j].row_line > 0) {
                    if (holes++ == 0)
                        hole = sf_arena_printf(arena, "%s and %s", m->devices[i].name, m->devices[j].name);
                }
                continue;
            }
            if (b->path == SF_PATH_UNKNOWN) {
                *b = *a;
            } else if (a->path == SF_PATH_UNKNOWN) {
                *a = *b;
            } else if (a->path != b->path || a->links != b->links) {
                const sf_topo_cell *far = a->path != b->path ? (a->path > b->path ? a : b) : (a->links < b->links ? a : b);
                sf_topo_warn(t, arena, m->devices[i].row_line, "%s to %s is %s but %s to %s (line %d) is %s; %s is used",
                             m->devices[i].name, m->devices[j].name, cell_text(m, *a, arena), m->devices[j].name,
                             m->devices[i].name, m->devices[j].row_line, cell_text(m, *b, arena), cell_text(m, *far, arena));
                sf_topo_cell keep = *far;
                *a = *b = keep;
            }
        }
    }
    if (holes > 0)
        sf_topo_warn(t, arena, 0, "the path between %s%s is not stated", hole,
                     holes > 1 ? sf_arena_printf(arena, " (and of %d more pairs)", holes - 1) : "");
}

/* ---- groups ---- */

static int group_of(int *group, int i)
{
    while (group[i] != i)
        i = group[i] = group[group[i]];
    return i;
}

static void join(int *group, int i, int j)
{
    int a = group_of(group, i), b = group_of(group, j);
    if (a < b)
        group[b] = a;
    else
        group[a] = b;
}

static sf_topo_path_type pcie_of(const sf_matrix *m, int i, int j)
{
    const sf_topo_cell *cell = &m->cells[i * m->count + j];
    return cell->path > SF_PATH_NVLINK && cell->path < SF_PATH_UNKNOWN ? cell->path : cell->pcie;
}

/* Groups of devices with paths up to `level`, by the lowest member. */
static int *groups_up_to(const sf_matrix *m, sf_topo_path_type level, sf_arena *arena)
{
    int *group = SF_NEW_ARRAY(arena, int, m->count);
    for (int i = 0; i < m->count; i++)
        group[i] = i;
    for (int i = 0; i < m->count; i++)
        for (int j = i + 1; j < m->count; j++)
            if (pcie_of(m, i, j) >= SF_PATH_PIX && pcie_of(m, i, j) <= level)
                join(group, i, j);
    for (int i = 0; i < m->count; i++)
        group[i] = group_of(group, i);
    return group;
}

/* May a list of CPUs stand for a NUMA node? Not if two GPUs with that list are SYS to each other: then
 * the list is that of a container or a job, not of the hardware. */
static bool cpus_tell_numa(const sf_matrix *m)
{
    for (int i = 0; i < m->count; i++)
        for (int j = i + 1; j < m->count; j++)
            if (pcie_of(m, i, j) == SF_PATH_SYS && m->devices[i].cpus[0] != '\0' &&
                strcmp(m->devices[i].cpus, m->devices[j].cpus) == 0)
                return false;
    return true;
}

/* Groups of devices of one NUMA node. */
static int *numa_groups(const sf_matrix *m, bool by_cpus, sf_arena *arena)
{
    int *group = groups_up_to(m, SF_PATH_NODE, arena);
    for (int i = 0; i < m->count; i++) {
        const sf_matrix_device *a = &m->devices[i];
        for (int j = i + 1; j < m->count; j++) {
            const sf_matrix_device *b = &m->devices[j];
            if (a->numa >= 0 || b->numa >= 0) {
                if (a->numa == b->numa)
                    join(group, i, j);
            } else if (by_cpus && a->cpus[0] != '\0' && strcmp(a->cpus, b->cpus) == 0) {
                join(group, i, j);
            }
        }
    }
    for (int i = 0; i < m->count; i++)
        group[i] = group_of(group, i);
    return group;
}

/* ---- the tree ---- */

typedef struct {
    sf_topology *t;
    sf_arena *arena;
    sf_matrix *m;
    int host;
    int *numa, *phb, *pxb, *pix; /* group of each device */
    int *node_of;                /* (count) graph node of each device */
    int switches, bridges;
    bool by_cpus;                /* lists of CPUs tell NUMA nodes */
} builder;

static int group_size(const builder *b, const int *group, int lead)
{
    int n = 0;
    for (int i = 0; i < b->m->count; i++)
        n += group[i] == lead;
    return n;
}

static void add_device(builder *b, int i, int parent)
{
    sf_matrix_device *d = &b->m->devices[i];
    int node = sf_topo_add_node(b->t, b->arena, d->is_gpu ? SF_TOPO_GPU : SF_TOPO_NIC, b->host, parent, d->name);
    sf_topo_node *out = &b->t->nodes[node];
    const char *digits = d->name + strcspn(d->name, "0123456789");
    if (strncmp(d->name, "mlx", 3) != 0 && digits[0] != '\0' && strlen(digits) < 6 && strspn(digits, "0123456789") == strlen(digits)) {
        int number;
        if (sscanf(digits, "%d", &number) == 1)
            out->ordinal = number;
    }
    out->device = d->device[0] != '\0' || d->is_gpu ? d->device : (strncmp(d->name, "NIC", 3) == 0 ? "" : d->name);
    out->busid = d->busid;
    out->cpus = d->cpus;
    out->numa = d->numa;
    if (!d->is_gpu)
        out->net = sf_topo_net_of_name(out->device);
    if (parent >= 0) {
        if (out->numa < 0)
            out->numa = b->t->nodes[parent].numa;
        sf_topo_add_pcie(b->t, b->arena, node, 0, 0, SF_ORIGIN_UNKNOWN);
    }
    b->node_of[i] = node;
}

static int add_between(builder *b, sf_topo_kind kind, int parent)
{
    bool is_switch = kind == SF_TOPO_PCI_SWITCH;
    int node = sf_topo_add_node(b->t, b->arena, kind, b->host, parent,
                                sf_arena_printf(b->arena, is_switch ? "switch%d" : "bridge%d", is_switch ? b->switches++ : b->bridges++));
    if (parent >= 0) {
        b->t->nodes[node].numa = b->t->nodes[parent].numa;
        sf_topo_add_pcie(b->t, b->arena, node, 0, 0, SF_ORIGIN_UNKNOWN);
    }
    return node;
}

/* Devices with one PCIe bridge in common, below `parent`; a lone device of a group of several bridges
 * has one of its own, so that the tree's paths are the matrix's. */
static void add_pix_group(builder *b, int lead, int parent, bool own_bridge)
{
    int at = group_size(b, b->pix, lead) > 1 || own_bridge ? add_between(b, SF_TOPO_PCI_SWITCH, parent) : parent;
    for (int i = 0; i < b->m->count; i++)
        if (b->pix[i] == lead)
            add_device(b, i, at);
}

static void add_pxb_group(builder *b, int lead, int parent)
{
    int parts = 0, at = parent;
    for (int i = 0; i < b->m->count; i++)
        parts += b->pxb[i] == lead && b->pix[i] == i;
    if (parts > 1)
        at = add_between(b, SF_TOPO_PCI_SWITCH, parent);
    for (int i = 0; i < b->m->count; i++)
        if (b->pxb[i] == lead && b->pix[i] == i)
            add_pix_group(b, i, at, parts > 1);
}

/* Devices below one host bridge. A device or switch whose bridge nothing tells of hangs on the NUMA node. */
static void add_phb_group(builder *b, int lead, int parent)
{
    bool bridge_known = false;
    int parts = 0;
    for (int i = 0; i < b->m->count; i++) {
        if (b->phb[i] != lead)
            continue;
        parts += b->pxb[i] == i;
        for (int j = 0; j < b->m->count; j++)
            bridge_known = bridge_known || pcie_of(b->m, i, j) == SF_PATH_NODE || pcie_of(b->m, i, j) == SF_PATH_PHB;
    }
    int at = (bridge_known && parent >= 0) || parts > 1 ? add_between(b, SF_TOPO_PCI_ROOT, parent) : parent;
    for (int i = 0; i < b->m->count; i++)
        if (b->phb[i] == lead && b->pxb[i] == i)
            add_pxb_group(b, i, at);
}

/* The NUMA node of a group, if the source tells that it is one: by a NUMA number, a list of CPUs or
 * several devices within it. */
static int add_numa_of(builder *b, int lead)
{
    int number = -1, members = 0, linked = 0;
    const char *cpus = NULL;
    bool one_list = true;
    for (int i = 0; i < b->m->count; i++) {
        const sf_matrix_device *d = &b->m->devices[i];
        if (b->numa[i] != lead)
            continue;
        members++;
        linked += b->phb[i] != b->phb[lead];
        if (d->numa >= 0 && number < 0)
            number = d->numa;
        if (d->cpus[0] != '\0') {
            one_list = one_list && (cpus == NULL || strcmp(cpus, d->cpus) == 0);
            cpus = d->cpus;
        }
    }
    bool cpus_known = cpus != NULL && one_list && (b->by_cpus || number >= 0);
    if (number < 0 && !cpus_known && linked == 0 && group_size(b, b->phb, lead) < 2)
        return -1;
    int count = 0;
    for (size_t i = 0; i < b->t->node_count; i++)
        count += b->t->nodes[i].kind == SF_TOPO_NUMA && b->t->nodes[i].host == b->host;
    int node = sf_topo_add_node(b->t, b->arena, SF_TOPO_NUMA, b->host, -1,
                                sf_arena_printf(b->arena, number >= 0 ? "NUMA%d" : cpus_known ? "CPU%d" : "NUMA?%d", number >= 0 ? number : count));
    b->t->nodes[node].ordinal = b->t->nodes[node].numa = number;
    b->t->nodes[node].cpus = cpus_known ? cpus : "";
    return node;
}

/* The matrix names GPUs first, in its order; the tree was built group by group. */
static void list_in_order_of_matrix(builder *b)
{
    sf_topo_host *host = &b->t->hosts[b->host];
    int gpus = 0, nics = 0;
    sf_topo_list_devices(b->t, b->arena, b->host);
    for (int i = 0; i < b->m->count; i++) {
        if (b->m->devices[i].is_gpu)
            host->gpus[gpus++] = b->node_of[i];
        else
            host->nics[nics++] = b->node_of[i];
    }
}

/* ---- NVLink ---- */

/* Islands whose every pair has the same number of links that no GPU could have once for each other
 * GPU reach each other through NVSwitches; else the links are between the two GPUs themselves. */
static void add_direct_links(builder *b, int max_links)
{
    sf_matrix *m = b->m;
    int n = m->count, switches = 0;
    int *island = SF_NEW_ARRAY(b->arena, int, n);
    for (int i = 0; i < n; i++)
        island[i] = i;
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++)
            if (m->cells[i * n + j].path == SF_PATH_NVLINK)
                join(island, i, j);
    for (int lead = 0; lead < n; lead++) {
        int size = 0, links = -1;
        bool uniform = true;
        if (group_of(island, lead) != lead)
            continue;
        for (int i = 0; i < n; i++) {
            if (group_of(island, i) != lead)
                continue;
            size++;
            for (int j = i + 1; j < n; j++) {
                if (group_of(island, j) != lead)
                    continue;
                const sf_topo_cell *cell = &m->cells[i * n + j];
                if (cell->path == SF_PATH_UNKNOWN)
                    continue; /* a cut paste: nothing is said against it */
                if (links < 0)
                    links = cell->links;
                uniform = uniform && cell->path == SF_PATH_NVLINK && cell->links == links;
            }
        }
        if (size < 2)
            continue;
        bool by_switch = m->link == SF_TOPO_LINK_NVLINK && uniform && size > 2 && links * (size - 1) > max_links;
        int hub = by_switch ? sf_topo_add_node(b->t, b->arena, SF_TOPO_NVSWITCH, b->host, -1,
                                               sf_arena_printf(b->arena, "NVSwitch%d", switches++))
                            : -1;
        for (int i = 0; i < n; i++) {
            if (group_of(island, i) != lead)
                continue;
            if (by_switch)
                sf_topo_add_nvlink(b->t, b->arena, m->link, b->node_of[i], hub, links, 0);
            for (int j = i + 1; j < n && !by_switch; j++)
                if (m->cells[i * n + j].path == SF_PATH_NVLINK)
                    sf_topo_add_nvlink(b->t, b->arena, m->link, b->node_of[i], b->node_of[j], m->cells[i * n + j].links, 0);
        }
    }
}

/* A NUMA node whose devices are SYS apart is more than one to the bus (sockets that are split further
 * by the firmware, or virtual machines). The graph has the node as it is numbered; paths are as reported. */
static void note_split_nodes(builder *b)
{
    for (int i = 0; i < b->m->count; i++) {
        for (int j = i + 1; j < b->m->count; j++) {
            const sf_matrix_device *x = &b->m->devices[i], *y = &b->m->devices[j];
            if (b->numa[i] != b->numa[j] || pcie_of(b->m, i, j) != SF_PATH_SYS)
                continue;
            sf_topo_warn(b->t, b->arena, x->row_line,
                         "%s and %s are SYS apart though on one NUMA node by its number: the node is split further, or a hypervisor hides it", x->name,
                         y->name);
            return;
        }
    }
}

void sf_topo_add_matrix(sf_topology *t, sf_arena *arena, sf_matrix *m, int max_links)
{
    make_symmetric(t, arena, m);
    builder b = { .t = t, .arena = arena, .m = m, .host = sf_topo_add_host(t, arena, m->host) };
    t->hosts[b.host].gpu_link = m->link;
    t->hosts[b.host].gpu_link_name = m->link_name;
    b.node_of = SF_NEW_ARRAY(arena, int, m->count);
    b.by_cpus = cpus_tell_numa(m);
    b.numa = numa_groups(m, b.by_cpus, arena);
    b.phb = groups_up_to(m, SF_PATH_PHB, arena);
    b.pxb = groups_up_to(m, SF_PATH_PXB, arena);
    b.pix = groups_up_to(m, SF_PATH_PIX, arena);
    for (int lead = 0; lead < m->count; lead++) {
        if (b.numa[lead] != lead)
            continue;
        int numa = add_numa_of(&b, lead);
        for (int i = 0; i < m->count; i++)
            if (b.numa[i] == lead && b.phb[i] == i)
                add_phb_group(&b, i, numa);
    }
    list_in_order_of_matrix(&b);
    sf_topo_add_smp(t, arena, b.host, 0, SF_ORIGIN_UNKNOWN);
    add_direct_links(&b, max_links > 0 ? max_links : MOST_NVLINKS);
    note_split_nodes(&b);
    t->hosts[b.host].reported = m->cells;
}
