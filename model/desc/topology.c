/* Questions to a topology: paths, nearest NICs, NVLink shape. */
#include "model/desc/topology.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "model/desc/topology_build.h"
#include "model/desc/topology_rates.h"

static bool is_direct(sf_topo_link_type type)
{
    return type == SF_TOPO_LINK_NVLINK || type == SF_TOPO_LINK_XGMI || type == SF_TOPO_LINK_GPU_LINK;
}

int sf_topology_gpus(const sf_topology *t)
{
    int n = 0;
    for (size_t h = 0; h < t->host_count; h++)
        n += t->hosts[h].count * t->hosts[h].gpu_count;
    return n;
}

int sf_topology_nodes(const sf_topology *t)
{
    int n = 0;
    for (size_t h = 0; h < t->host_count; h++)
        n += t->hosts[h].count;
    return n;
}

bool sf_topology_locate(const sf_topology *t, int rank, int *gpu, int *copy)
{
    for (size_t h = 0; rank >= 0 && h < t->host_count; h++) {
        const sf_topo_host *host = &t->hosts[h];
        int here = host->count * host->gpu_count;
        if (rank < here) {
            *gpu = host->gpus[rank % host->gpu_count];
            *copy = rank / host->gpu_count;
            return true;
        }
        rank -= here;
    }
    return false;
}

/* ---- paths ---- */

static void narrow(sf_topo_path *path, double Bps, sf_topo_origin origin)
{
    if (Bps <= 0) {
        path->at_most = true;
        return;
    }
    if (path->Bps == 0 || Bps < path->Bps) {
        path->Bps = Bps;
        path->origin = origin;
    } else if (Bps <= path->Bps && origin > path->origin) {
        path->origin = origin;
    }
}

static sf_topo_path finish(sf_topo_path path)
{
    if (path.Bps == 0) {
        path.origin = SF_ORIGIN_UNKNOWN;
        path.at_most = false;
    }
    return path;
}

static void narrow_by_uplink(const sf_topology *t, sf_topo_path *path, int node)
{
    int up = t->nodes[node].uplink;
    if (up < 0)
        narrow(path, 0, SF_ORIGIN_UNKNOWN);
    else
        narrow(path, t->links[up].Bps, t->links[up].origin);
}

int sf_topo_next_link(const sf_topology *t, int node, int link)
{
    if (link < 0)
        return t->nodes[node].first_link;
    return t->links[link].a == node ? t->links[link].next_of_a : t->links[link].next_of_b;
}

static int far_end(const sf_topo_link *link, int near)
{
    return link->a == near ? link->b : link->a;
}

static const sf_topo_link *direct_link(const sf_topology *t, int a, int b)
{
    for (int l = -1; (l = sf_topo_next_link(t, a, l)) >= 0;)
        if (is_direct(t->links[l].type) && far_end(&t->links[l], a) == b)
            return &t->links[l];
    return NULL;
}

/* Links straight from a to b, and those that meet in a switch: of each switch the smaller bundle. */
static sf_topo_path direct_path(const sf_topology *t, int a, int b)
{
    sf_topo_path path = { .type = SF_PATH_UNKNOWN, .origin = SF_ORIGIN_UNKNOWN };
    bool unstated = false;
    for (int l = -1; (l = sf_topo_next_link(t, a, l)) >= 0;) {
        const sf_topo_link *link = &t->links[l];
        int other = far_end(link, a);
        if (!is_direct(link->type))
            continue;
        if (t->nodes[other].kind == SF_TOPO_NVSWITCH) {
            const sf_topo_link *onward = direct_link(t, other, b);
            if (onward == NULL)
                continue;
            if (onward->count < link->count)
                link = onward;
        } else if (other != b) {
            continue;
        }
        path.type = SF_PATH_NVLINK;
        path.links += link->count;
        path.Bps += link->Bps;
        if (path.origin == SF_ORIGIN_UNKNOWN || link->origin > path.origin)
            path.origin = link->origin;
        unstated = unstated || link->count == 0 || link->Bps == 0;
    }
    if (unstated)
        path.Bps = 0;
    return finish(path);
}

static int depth_of(const sf_topology *t, int node)
{
    int depth = 0;
    for (; t->nodes[node].parent >= 0; node = t->nodes[node].parent)
        depth++;
    return depth;
}

static const sf_topo_link *smp_link(const sf_topology *t, int a, int b)
{
    for (int l = -1; (l = sf_topo_next_link(t, a, l)) >= 0;)
        if (t->links[l].type == SF_TOPO_LINK_SMP && far_end(&t->links[l], a) == b)
            return &t->links[l];
    return NULL;
}

/* Through the PCIe tree: up from both ends to where they meet. */
static sf_topo_path tree_path(const sf_topology *t, int a, int b)
{
    sf_topo_path path = { .type = SF_PATH_UNKNOWN, .origin = SF_ORIGIN_UNKNOWN };
    int switches = 0, roots = 0, x = a, y = b;
    int dx = depth_of(t, x), dy = depth_of(t, y);
    while (x != y && (t->nodes[x].parent >= 0 || t->nodes[y].parent >= 0)) {
        int *up = dx >= dy ? &x : &y;
        if (t->nodes[*up].parent < 0)
            break;
        if (*up != a && *up != b) {
            switches += t->nodes[*up].kind == SF_TOPO_PCI_SWITCH;
            roots += t->nodes[*up].kind == SF_TOPO_PCI_ROOT;
        }
        /* a host bridge and its NUMA node are one chip: there is no link between them to be narrow */
        if (t->nodes[*up].kind != SF_TOPO_PCI_ROOT)
            narrow_by_uplink(t, &path, *up);
        *up = t->nodes[*up].parent;
        if (up == &x)
            dx--;
        else
            dy--;
    }
    if (x == y) {
        switch (t->nodes[x].kind) {
        case SF_TOPO_PCI_SWITCH: path.type = switches + 1 > 1 ? SF_PATH_PXB : SF_PATH_PIX; break;
        case SF_TOPO_PCI_ROOT: path.type = SF_PATH_PHB; break;
        case SF_TOPO_NUMA: /* a matrix leaves host bridges open; in an NCCL file there are none */
            path.type = roots > 0 || t->hosts[t->nodes[x].host].reported != NULL ? SF_PATH_NODE : SF_PATH_PHB;
            break;
        default: path.type = switches > 1 ? SF_PATH_PXB : SF_PATH_PIX; break; /* two functions of one card */
        }
    } else if (t->nodes[x].kind == SF_TOPO_NUMA && t->nodes[y].kind == SF_TOPO_NUMA) {
        const sf_topo_link *smp = smp_link(t, x, y);
        narrow(&path, smp == NULL ? 0 : smp->Bps, smp == NULL ? SF_ORIGIN_UNKNOWN : smp->origin);
        path.type = SF_PATH_SYS;
    } else {
        narrow(&path, 0, SF_ORIGIN_UNKNOWN);
    }
    return finish(path);
}

static int place_in_host(const sf_topo_host *host, int node)
{
    for (int i = 0; i < host->gpu_count; i++)
        if (host->gpus[i] == node)
            return i;
    for (int i = 0; i < host->nic_count; i++)
        if (host->nics[i] == node)
            return host->gpu_count + i;
    return -1;
}

static const sf_topo_cell *reported_cell(const sf_topology *t, int a, int b)
{
    const sf_topo_host *host = &t->hosts[t->nodes[a].host];
    int i, j;
    if (host->reported == NULL || (i = place_in_host(host, a)) < 0 || (j = place_in_host(host, b)) < 0)
        return NULL;
    return &host->reported[(size_t)i * (size_t)(host->gpu_count + host->nic_count) + (size_t)j];
}

sf_topo_path sf_topology_path_pcie(const sf_topology *t, int a, int b)
{
    assert(t->nodes[a].host >= 0 && t->nodes[a].host == t->nodes[b].host);
    if (a == b)
        return (sf_topo_path){ .type = SF_PATH_SELF, .origin = SF_ORIGIN_UNKNOWN };
    sf_topo_path path = tree_path(t, a, b);
    const sf_topo_cell *cell = reported_cell(t, a, b);
    if (cell != NULL && cell->path > SF_PATH_NVLINK && cell->path < SF_PATH_UNKNOWN)
        path.type = cell->path;
    else if (cell != NULL && cell->pcie != SF_PATH_UNKNOWN)
        path.type = cell->pcie;
    else
        path.inferred = cell != NULL;
    return path;
}

sf_topo_path sf_topology_path(const sf_topology *t, int a, int b)
{
    const sf_topo_cell *cell = reported_cell(t, a, b);
    sf_topo_path direct = a == b ? (sf_topo_path){ .type = SF_PATH_UNKNOWN } : direct_path(t, a, b);
    if (cell != NULL && cell->path == SF_PATH_NVLINK) {
        direct.type = SF_PATH_NVLINK;
        if (cell->links > 0)
            direct.links = cell->links;
        return direct;
    }
    return direct.type == SF_PATH_NVLINK ? direct : sf_topology_path_pcie(t, a, b);
}

int sf_topology_nearest_nics(const sf_topology *t, int gpu, int *nics, int most, sf_topo_path_type *type)
{
    const sf_topo_host *host = &t->hosts[t->nodes[gpu].host];
    int found = 0;
    *type = SF_PATH_UNKNOWN;
    for (int i = 0; i < host->nic_count; i++) {
        sf_topo_path_type to = sf_topology_path_pcie(t, gpu, host->nics[i]).type;
        if (to == SF_PATH_UNKNOWN || to > *type)
            continue;
        if (to < *type)
            found = 0;
        *type = to;
        if (found < most)
            nics[found++] = host->nics[i];
    }
    return found;
}

sf_topo_path sf_topology_path_hosts(const sf_topology *t, int a, int b)
{
    sf_topo_path path = { .type = SF_PATH_NET, .origin = SF_ORIGIN_UNKNOWN };
    const int ends[] = { a, b };
    for (int e = 0; e < 2; e++) {
        int nic;
        sf_topo_path_type type;
        if (sf_topology_nearest_nics(t, ends[e], &nic, 1, &type) == 0) {
            if (t->hosts[t->nodes[ends[e]].host].nic_count == 0)
                return (sf_topo_path){ .type = SF_PATH_UNKNOWN, .origin = SF_ORIGIN_UNKNOWN };
            nic = t->hosts[t->nodes[ends[e]].host].nics[0];
            path.at_most = true;
        } else {
            sf_topo_path to_nic = sf_topology_path_pcie(t, ends[e], nic);
            narrow(&path, to_nic.Bps, to_nic.origin);
            path.at_most = path.at_most || to_nic.at_most;
        }
        narrow(&path, t->nodes[nic].gbit * 1e9 / 8, t->nodes[nic].gbit_origin);
    }
    return finish(path);
}

/* ---- NVLink ---- */

sf_topo_nvlink sf_topology_gpu_nvlink(const sf_topology *t, int gpu)
{
    sf_topo_nvlink sum = { .origin = SF_ORIGIN_UNKNOWN };
    bool unstated = false, no_rate = false;
    for (int l = -1; (l = sf_topo_next_link(t, gpu, l)) >= 0;) {
        const sf_topo_link *link = &t->links[l];
        if (!is_direct(link->type))
            continue;
        sum.any = true;
        sum.links += link->count;
        sum.Bps += link->Bps;
        sum.generation = link->generation;
        unstated = unstated || link->count == 0;
        no_rate = no_rate || link->Bps == 0;
        if (sum.origin == SF_ORIGIN_UNKNOWN || link->origin > sum.origin)
            sum.origin = link->origin;
    }
    if (unstated)
        sum.links = 0;
    if (no_rate) {
        sum.Bps = 0;
        sum.origin = SF_ORIGIN_UNKNOWN;
    }
    return sum;
}

/* joined[i * n + j]: GPUs i and j of a host have a direct link or a common switch. */
static bool *joined_gpus(const sf_topology *t, int host)
{
    const sf_topo_host *h = &t->hosts[host];
    int n = h->gpu_count;
    bool *joined = calloc((size_t)n * (size_t)n + 1, sizeof *joined);
    int *place = calloc(t->node_count + 1, sizeof *place);
    assert(joined != NULL && place != NULL);
    for (int i = 0; i < n; i++)
        place[h->gpus[i]] = i + 1;
    for (int i = 0; i < n; i++) {
        for (int l = -1; (l = sf_topo_next_link(t, h->gpus[i], l)) >= 0;) {
            int other = far_end(&t->links[l], h->gpus[i]);
            if (!is_direct(t->links[l].type))
                continue;
            if (place[other] > 0)
                joined[i * n + place[other] - 1] = joined[(place[other] - 1) * n + i] = true;
            if (t->nodes[other].kind != SF_TOPO_NVSWITCH)
                continue;
            for (int m = -1; (m = sf_topo_next_link(t, other, m)) >= 0;) {
                int j = place[far_end(&t->links[m], other)] - 1;
                if (j >= 0 && j != i)
                    joined[i * n + j] = true;
            }
        }
    }
    free(place);
    return joined;
}

static int islands_of(const bool *joined, int n, int *island)
{
    int islands = 0, *todo = calloc((size_t)n + 1, sizeof *todo);
    assert(todo != NULL);
    for (int i = 0; i < n; i++)
        island[i] = -1;
    for (int seed = 0; seed < n; seed++) {
        int waiting = 0;
        if (island[seed] >= 0)
            continue;
        island[seed] = islands;
        todo[waiting++] = seed;
        while (waiting > 0) {
            int i = todo[--waiting];
            for (int j = 0; j < n; j++) {
                if (joined[i * n + j] && island[j] < 0) {
                    island[j] = islands;
                    todo[waiting++] = j;
                }
            }
        }
        islands++;
    }
    free(todo);
    return islands;
}

int sf_topology_nvlink_islands(const sf_topology *t, int host, int *island)
{
    bool *joined = joined_gpus(t, host);
    int islands = islands_of(joined, t->hosts[host].gpu_count, island);
    free(joined);
    return islands;
}

sf_nvlink_shape sf_topology_nvlink_shape(const sf_topology *t, int host)
{
    const sf_topo_host *h = &t->hosts[host];
    int n = h->gpu_count, pairs = 0, largest = 0;
    bool all_to_all = true, by_switch = false, four_each = n == 8;
    if (n < 2)
        return SF_NVLINK_NONE;
    bool *joined = joined_gpus(t, host);
    int *island = calloc((size_t)n, sizeof *island), *size = calloc((size_t)n, sizeof *size);
    assert(island != NULL && size != NULL);
    int islands = islands_of(joined, n, island);
    for (int i = 0; i < n; i++) {
        if (++size[island[i]] > largest)
            largest = size[island[i]];
        int neighbours = 0;
        for (int j = 0; j < n; j++)
            neighbours += joined[i * n + j];
        four_each = four_each && neighbours == 4;
        for (int j = i + 1; j < n; j++) {
            pairs += joined[i * n + j];
            all_to_all = all_to_all && (joined[i * n + j] || island[i] != island[j]);
        }
        for (int l = -1; (l = sf_topo_next_link(t, h->gpus[i], l)) >= 0;)
            by_switch = by_switch || t->nodes[far_end(&t->links[l], h->gpus[i])].kind == SF_TOPO_NVSWITCH;
    }
    free(joined);
    free(island);
    free(size);
    if (pairs == 0)
        return SF_NVLINK_NONE;
    if (!all_to_all)
        return four_each && islands == 1 ? SF_NVLINK_CUBE : SF_NVLINK_PARTIAL;
    if (islands == 1 && (n > 2 || by_switch))
        return by_switch ? SF_NVLINK_SWITCH : SF_NVLINK_MESH;
    return largest == 2 ? SF_NVLINK_PAIRS : SF_NVLINK_ISLANDS;
}

const char *sf_nvlink_shape_text(sf_nvlink_shape shape)
{
    switch (shape) {
    case SF_NVLINK_NONE: return "none";
    case SF_NVLINK_SWITCH: return "all-to-all through switches";
    case SF_NVLINK_MESH: return "all-to-all mesh";
    case SF_NVLINK_PAIRS: return "pairs";
    case SF_NVLINK_ISLANDS: return "islands, each all-to-all";
    case SF_NVLINK_CUBE: return "hybrid cube mesh";
    case SF_NVLINK_PARTIAL: return "some pairs only";
    }
    return "?";
}

/* ---- the catalogue's knowledge ---- */

const char *sf_topology_gpu_model(const sf_topology *t)
{
    const char *model = "";
    for (size_t i = 0; i < t->node_count; i++) {
        const sf_topo_node *node = &t->nodes[i];
        if (node->kind != SF_TOPO_GPU || node->device[0] == '\0')
            continue;
        if (model[0] != '\0' && strcmp(model, node->device) != 0)
            return "";
        model = node->device;
    }
    return model;
}

void sf_topology_apply_gpu(sf_topology *t, const sf_gpu *gpu, sf_arena *arena)
{
    for (size_t i = 0; i < t->node_count; i++)
        if (t->nodes[i].kind == SF_TOPO_GPU && t->nodes[i].device[0] == '\0')
            t->nodes[i].device = sf_topo_plain(arena, gpu->name);
    for (size_t h = 0; h < t->host_count; h++) {
        const sf_topo_host *host = &t->hosts[h];
        int links = host->gpu_count > 0 ? sf_topology_gpu_nvlink(t, host->gpus[0]).links : 0;
        if (host->gpu_link == SF_TOPO_LINK_NVLINK && links > gpu->nvlink_links)
            sf_topo_warn(t, arena, 0, "%s has %d NVLinks, a %s has %d; is it another model?", t->nodes[host->gpus[0]].name, links, gpu->name,
                         gpu->nvlink_links);
    }
    for (size_t i = 0; i < t->link_count; i++) {
        sf_topo_link *link = &t->links[i];
        if (link->origin != SF_ORIGIN_UNKNOWN || t->nodes[link->a].kind != SF_TOPO_GPU)
            continue;
        if (link->type == SF_TOPO_LINK_PCIE) {
            link->generation = gpu->pcie_gen;
            link->lanes = gpu->pcie_lanes;
            link->Bps = sf_pcie_Bps(gpu->pcie_gen, gpu->pcie_lanes);
        } else if ((link->type == SF_TOPO_LINK_NVLINK || link->type == SF_TOPO_LINK_XGMI) && gpu->nvlink_links > 0) {
            link->generation = gpu->nvlink_gen;
            link->Bps = gpu->nvlink_Bps / gpu->nvlink_links * link->count;
        }
        if (link->Bps > 0)
            link->origin = SF_ORIGIN_CATALOGUE;
    }
}

/* ---- structure ---- */

bool sf_topology_is_valid(const sf_topology *t)
{
    int nodes = (int)t->node_count;
    for (int i = 0; i < nodes; i++) {
        const sf_topo_node *node = &t->nodes[i];
        if (node->kind >= SF_TOPO_KIND_COUNT || node->parent >= i || node->parent < -1 || node->name == NULL ||
            node->host < (node->kind == SF_TOPO_NET_SWITCH ? -1 : 0) || node->host >= (int)t->host_count)
            return false;
        if (node->parent >= 0 && t->nodes[node->parent].host != node->host)
            return false;
    }
    for (size_t i = 0; i < t->link_count; i++) {
        const sf_topo_link *link = &t->links[i];
        if (link->a < 0 || link->a >= nodes || link->b < 0 || link->b >= nodes || link->a == link->b ||
            link->count < 0 || !(link->Bps >= 0))
            return false;
    }
    for (size_t h = 0; h < t->host_count; h++) {
        const sf_topo_host *host = &t->hosts[h];
        if (host->count < 1)
            return false;
        for (int i = 0; i < host->gpu_count; i++)
            if (t->nodes[host->gpus[i]].kind != SF_TOPO_GPU || t->nodes[host->gpus[i]].host != (int)h)
                return false;
        for (int i = 0; i < host->nic_count; i++)
            if (t->nodes[host->nics[i]].kind != SF_TOPO_NIC || t->nodes[host->nics[i]].host != (int)h)
                return false;
    }
    return true;
}

#define AS_NAME(id, name) name,
#define AS_FIRST_NAME(id, name, says) name,
const char *sf_topo_kind_name(sf_topo_kind kind)
{
    static const char *const names[] = { SF_TOPO_KINDS(AS_NAME) };
    return names[kind];
}

const char *sf_topo_link_name(sf_topo_link_type type)
{
    static const char *const names[] = { SF_TOPO_LINKS(AS_NAME) };
    return names[type];
}

const char *sf_topo_origin_name(sf_topo_origin origin)
{
    static const char *const names[] = { SF_TOPO_ORIGINS(AS_FIRST_NAME) };
    return names[origin];
}

const char *sf_topo_path_name(sf_topo_path_type type)
{
    static const char *const names[] = { SF_TOPO_PATHS(AS_NAME) };
    return names[type];
}

const char *sf_topo_net_name(sf_topo_net net)
{
    static const char *const names[] = { SF_TOPO_NETS(AS_NAME) };
    return names[net];
}
