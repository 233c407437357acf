/* What was understood of a topology, for people. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/desc/topology.h"

enum { MATRIX_MOST = 40, /* devices of which a matrix is still readable */
       NEAREST_MOST = 64, CLASSES_MOST = 32 };

typedef struct {
    char text[24];
} rate_text;

static rate_text rate(double Bps, bool at_most)
{
    rate_text r = { "?" };
    if (Bps > 0)
        snprintf(r.text, sizeof r.text, "%s%.4g", at_most ? "<=" : "", Bps / 1e9);
    return r;
}

/* Width of the column of names. */
static int name_width(const sf_topology *t, const sf_topo_host *host)
{
    int width = 8;
    for (int i = 0; i < host->gpu_count + host->nic_count; i++) {
        int len = (int)strlen(t->nodes[i < host->gpu_count ? host->gpus[i] : host->nics[i - host->gpu_count]].name);
        width = len > width ? len : width;
    }
    return width + 1;
}

static int devices(const sf_topo_host *host)
{
    return host->gpu_count + host->nic_count;
}

static int device_at(const sf_topo_host *host, int i)
{
    return i < host->gpu_count ? host->gpus[i] : host->nics[i - host->gpu_count];
}

static void add_path(const sf_topology *t, const sf_topo_host *host, int a, int b, char *out, size_t size)
{
    sf_topo_path path = sf_topology_path(t, a, b);
    if (path.type != SF_PATH_NVLINK)
        snprintf(out, size, "%s", path.inferred ? "?" : sf_topo_path_name(path.type));
    else if (host->gpu_link == SF_TOPO_LINK_NVLINK && path.links > 0)
        snprintf(out, size, "NV%d", path.links);
    else if (path.links > 1)
        snprintf(out, size, "%s%d", host->gpu_link_name, path.links);
    else
        snprintf(out, size, "%s", host->gpu_link == SF_TOPO_LINK_NVLINK ? "NV?" : host->gpu_link_name);
}

static void print_matrix(const sf_topology *t, const sf_topo_host *host, sf_text *out)
{
    int n = devices(host) <= MATRIX_MOST ? devices(host) : host->gpu_count, width = 4;
    char cell[32];
    if (n > MATRIX_MOST) {
        sf_text_add(out, "matrix     of %d GPUs, left out\n", host->gpu_count);
        return;
    }
    for (int i = 0; i < n; i++) {
        int len = (int)strlen(t->nodes[device_at(host, i)].name);
        width = len > width ? len : width;
        for (int j = 0; j < i && host->gpu_link != SF_TOPO_LINK_NVLINK; j++) {
            add_path(t, host, device_at(host, i), device_at(host, j), cell, sizeof cell);
            width = (int)strlen(cell) > width ? (int)strlen(cell) : width;
        }
    }
    int names = name_width(t, host);
    sf_text_add(out, "%-*s", names + 2, "matrix");
    for (int i = 0; i < n; i++)
        sf_text_add(out, "%*s", width + 1, t->nodes[device_at(host, i)].name);
    sf_text_add(out, "\n");
    for (int i = 0; i < n; i++) {
        sf_text_add(out, "  %-*s", names, t->nodes[device_at(host, i)].name);
        for (int j = 0; j < n; j++) {
            add_path(t, host, device_at(host, i), device_at(host, j), cell, sizeof cell);
            sf_text_add(out, "%*s", width + 1, cell);
        }
        sf_text_add(out, "\n");
    }
    if (n < devices(host))
        sf_text_add(out, "  (%d NICs left out)\n", host->nic_count);
}

/* Pairs of GPUs by what joins them. */
static void print_pairs(const sf_topology *t, const sf_topo_host *host, sf_text *out)
{
    struct {
        char name[32];
        sf_topo_path path;
        int pairs;
    } classes[CLASSES_MOST];
    int count = 0;
    if (host->gpu_count > 256)
        return;
    for (int i = 0; i < host->gpu_count; i++) {
        for (int j = i + 1; j < host->gpu_count; j++) {
            sf_topo_path path = sf_topology_path(t, host->gpus[i], host->gpus[j]);
            char name[32];
            int c = 0;
            add_path(t, host, host->gpus[i], host->gpus[j], name, sizeof name);
            while (c < count && (strcmp(classes[c].name, name) != 0 || classes[c].path.Bps != path.Bps ||
                                 classes[c].path.origin != path.origin))
                c++;
            if (c == CLASSES_MOST)
                continue;
            if (c == count) {
                memcpy(classes[c].name, name, sizeof name);
                classes[c].path = path;
                classes[count++].pairs = 0;
            }
            classes[c].pairs++;
        }
    }
    for (int c = 0; c < count; c++) {
        sf_text_add(out, "%-11s%-5s %d GPU pair%s", c == 0 ? "pairs" : "", classes[c].name, classes[c].pairs,
                    classes[c].pairs > 1 ? "s" : "");
        if (classes[c].path.Bps > 0)
            sf_text_add(out, ", %s GB/s each way (%s)", rate(classes[c].path.Bps, classes[c].path.at_most).text,
                        sf_topo_origin_name(classes[c].path.origin));
        else
            sf_text_add(out, ", rate not known");
        sf_text_add(out, "\n");
    }
}

static void print_shape(const sf_topology *t, int h, sf_text *out)
{
    const sf_topo_host *host = &t->hosts[h];
    sf_nvlink_shape shape = sf_topology_nvlink_shape(t, h);
    int *island = calloc((size_t)host->gpu_count + 1, sizeof *island);
    int islands = island == NULL ? 0 : sf_topology_nvlink_islands(t, h, island);
    if (shape == SF_NVLINK_NONE && host->gpu_count == 1)
        sf_text_add(out, "%-11s%s", host->gpu_link_name, sf_topology_gpu_nvlink(t, host->gpus[0]).any ? "to GPUs that the source leaves out" : "none");
    else
        sf_text_add(out, "%-11s%s", host->gpu_link_name,
                    shape == SF_NVLINK_NONE && host->direct_unstated ? "not told by the source" : sf_nvlink_shape_text(shape));
    if (shape == SF_NVLINK_PAIRS || shape == SF_NVLINK_ISLANDS || (shape == SF_NVLINK_PARTIAL && islands > 1)) {
        for (int k = 0; k < islands; k++) {
            sf_text_add(out, k == 0 ? ": " : " | ");
            bool first = true;
            for (int i = 0; i < host->gpu_count; i++) {
                if (island[i] != k)
                    continue;
                sf_text_add(out, "%s%s", first ? "" : " ", t->nodes[host->gpus[i]].name);
                first = false;
            }
        }
    }
    sf_text_add(out, "\n");
    free(island);
}

static void print_gpus(const sf_topology *t, const sf_topo_host *host, sf_text *out)
{
    int nics[NEAREST_MOST], names = name_width(t, host);
    sf_text_add(out, "%-*sNUMA  links  GB/s   nearest NICs\n", names + 2, "GPUs");
    for (int i = 0; i < host->gpu_count; i++) {
        const sf_topo_node *gpu = &t->nodes[host->gpus[i]];
        sf_topo_nvlink direct = sf_topology_gpu_nvlink(t, host->gpus[i]);
        sf_topo_path_type type;
        char numa[16] = "?", links[16] = "0";
        if (gpu->numa >= 0)
            snprintf(numa, sizeof numa, "%d", gpu->numa);
        if (direct.any)
            snprintf(links, sizeof links, direct.links > 0 ? "%d" : "?", direct.links);
        sf_text_add(out, "  %-*s%-6s%-7s%-7s", names, gpu->name, numa, links, direct.any ? rate(direct.Bps, false).text : "-");
        int found = sf_topology_nearest_nics(t, host->gpus[i], nics, NEAREST_MOST, &type);
        for (int k = 0; k < found; k++)
            sf_text_add(out, "%s ", t->nodes[nics[k]].name);
        if (found > 0)
            sf_text_add(out, "(%s)", sf_topo_path_name(type));
        else
            sf_text_add(out, host->nic_count == 0 ? "-" : "?");
        if (gpu->parent < 0 && gpu->cpus[0] != '\0')
            sf_text_add(out, "  CPUs %s", gpu->cpus);
        if (gpu->busid[0] != '\0')
            sf_text_add(out, "  %s", gpu->busid);
        if (gpu->device[0] != '\0')
            sf_text_add(out, "  %s", gpu->device);
        sf_text_add(out, "\n");
    }
}

static void print_nics(const sf_topology *t, const sf_topo_host *host, sf_text *out)
{
    if (host->nic_count == 0)
        return;
    int names = name_width(t, host);
    sf_text_add(out, "%-*sNUMA  Gb/s   network     nearest GPUs\n", names + 2, "NICs");
    for (int k = 0; k < host->nic_count; k++) {
        const sf_topo_node *nic = &t->nodes[host->nics[k]];
        sf_topo_path_type best = SF_PATH_UNKNOWN;
        char numa[16] = "?", gbit[16] = "?";
        if (nic->numa >= 0)
            snprintf(numa, sizeof numa, "%d", nic->numa);
        if (nic->gbit > 0)
            snprintf(gbit, sizeof gbit, "%.4g", nic->gbit);
        sf_text_add(out, "  %-*s%-6s%-7s%-12s", names, nic->name, numa, gbit, nic->net == SF_NET_UNKNOWN ? "?" : sf_topo_net_name(nic->net));
        int near = 0;
        for (int i = 0; i < host->gpu_count; i++) {
            sf_topo_path_type type = sf_topology_path_pcie(t, host->gpus[i], host->nics[k]).type;
            near = type < best ? 1 : near + (type == best);
            best = type < best ? type : best;
        }
        if (best != SF_PATH_UNKNOWN && near == host->gpu_count && near > 2)
            sf_text_add(out, "all ");
        else
            for (int i = 0; i < host->gpu_count && best != SF_PATH_UNKNOWN; i++)
                if (sf_topology_path_pcie(t, host->gpus[i], host->nics[k]).type == best)
                    sf_text_add(out, "%s ", t->nodes[host->gpus[i]].name);
        sf_text_add(out, host->gpu_count == 0 ? "-" : best == SF_PATH_UNKNOWN ? "?" : "(%s)", sf_topo_path_name(best));
        if (nic->device[0] != '\0' && strcmp(nic->device, nic->name) != 0)
            sf_text_add(out, "  %s", nic->device);
        if (nic->busid[0] != '\0')
            sf_text_add(out, "  %s", nic->busid);
        sf_text_add(out, "\n");
    }
}

/* ---- the tree ---- */

static void describe(const sf_topology *t, int i, sf_text *out)
{
    const sf_topo_node *node = &t->nodes[i];
    sf_text_add(out, "%s", node->name);
    if (node->device[0] != '\0' && node->kind != SF_TOPO_GPU && strcmp(node->device, node->name) != 0)
        sf_text_add(out, " %s", node->device);
    if (node->kind == SF_TOPO_NUMA && node->cpus[0] != '\0')
        sf_text_add(out, " (CPUs %s)", node->cpus);
    if (node->kind == SF_TOPO_PCI_SWITCH || node->kind == SF_TOPO_PCI_DEVICE)
        sf_text_add(out, "%s%s", node->busid[0] != '\0' && strcmp(node->busid, node->name) != 0 ? " " : "",
                    strcmp(node->busid, node->name) != 0 ? node->busid : "");
    if (node->uplink >= 0 && t->links[node->uplink].generation > 0)
        sf_text_add(out, " [PCIe %d x%d", t->links[node->uplink].generation, t->links[node->uplink].lanes);
    if (node->uplink >= 0 && t->links[node->uplink].origin == SF_ORIGIN_ASSUMED)
        sf_text_add(out, " assumed");
    if (node->uplink >= 0 && t->links[node->uplink].generation > 0)
        sf_text_add(out, "]");
}

typedef struct {
    int *first_child, *next; /* chains over nodes, in order */
} children;

static void print_below(const sf_topology *t, const children *c, int at, int depth, char *stem, size_t stem_size, sf_text *out)
{
    size_t len = strlen(stem);
    for (int i = c->first_child[at]; i >= 0; i = c->next[i]) {
        int last = i;
        sf_text_add(out, "  %s%s ", stem, c->next[i] >= 0 ? "|-" : "`-");
        describe(t, i, out);
        while (c->first_child[last] >= 0 && c->next[c->first_child[last]] < 0) { /* an only child: on the same line */
            last = c->first_child[last];
            sf_text_add(out, " -- ");
            describe(t, last, out);
        }
        sf_text_add(out, "\n");
        if (c->first_child[last] >= 0 && len + 4 < stem_size && depth < 80) {
            strcpy(stem + len, c->next[i] >= 0 ? "|  " : "   ");
            print_below(t, c, last, depth + 1, stem, stem_size, out);
            stem[len] = '\0';
        }
    }
}

void sf_topology_tree(const sf_topology *t, int host, sf_text *out)
{
    int n = (int)t->node_count;
    char stem[320] = "";
    children c = { malloc(((size_t)n + 1) * sizeof(int)), malloc(((size_t)n + 1) * sizeof(int)) };
    if (c.first_child == NULL || c.next == NULL) {
        free(c.first_child);
        free(c.next);
        return;
    }
    for (int i = 0; i < n; i++)
        c.first_child[i] = c.next[i] = -1;
    for (int i = n - 1; i >= 0; i--) {
        int parent = t->nodes[i].parent;
        if (parent >= 0) {
            c.next[i] = c.first_child[parent];
            c.first_child[parent] = i;
        }
    }
    bool placeless = false;
    for (int pass = 0; pass < 2; pass++) { /* first below NUMA nodes, then what has no known place */
        for (int i = 0; i < n; i++) {
            const sf_topo_node *node = &t->nodes[i];
            bool numa = node->kind == SF_TOPO_NUMA;
            if (node->host != host || node->parent >= 0 || numa != (pass == 0) || node->kind == SF_TOPO_NVSWITCH)
                continue;
            if (!numa && !placeless)
                sf_text_add(out, "  (place behind the CPUs not stated)\n");
            placeless = placeless || !numa;
            sf_text_add(out, numa ? "  " : "  `- ");
            describe(t, i, out);
            sf_text_add(out, "\n");
            if (!numa)
                strcpy(stem, "   ");
            print_below(t, &c, i, 0, stem, sizeof stem, out);
            stem[0] = '\0';
        }
    }
    free(c.first_child);
    free(c.next);
}

static bool has_children(const sf_topology *t, int node)
{
    for (size_t i = (size_t)node + 1; i < t->node_count; i++)
        if (t->nodes[i].parent == node)
            return true;
    return false;
}

static void print_host(const sf_topology *t, int h, sf_text *out)
{
    const sf_topo_host *host = &t->hosts[h];
    const char *model = "";
    int numa = 0, nvswitches = 0, unknown = 0;
    bool one_model = true;
    for (int i = 0; i < host->gpu_count; i++) {
        const char *m = t->nodes[host->gpus[i]].device;
        one_model = one_model && (i == 0 || strcmp(m, model) == 0);
        model = m;
    }
    for (size_t i = 0; i < t->node_count; i++) {
        if (t->nodes[i].host != h)
            continue;
        numa += t->nodes[i].kind == SF_TOPO_NUMA;
        nvswitches += t->nodes[i].kind == SF_TOPO_NVSWITCH;
        unknown += t->nodes[i].kind == SF_TOPO_PCI_DEVICE && t->nodes[i].parent >= 0 && !has_children(t, (int)i);
    }
    sf_text_add(out, "machine    %s", host->name);
    if (host->count > 1)
        sf_text_add(out, " x %d", host->count);
    sf_text_add(out, ": %d GPU%s", host->gpu_count, host->gpu_count == 1 ? "" : "s");
    if (host->gpu_count > 0)
        sf_text_add(out, " (%s)", !one_model ? "several models" : model[0] != '\0' ? model : "model not stated");
    sf_text_add(out, ", %d NIC%s, %d NUMA node%s", host->nic_count, host->nic_count == 1 ? "" : "s", numa, numa == 1 ? "" : "s");
    if (nvswitches > 0)
        sf_text_add(out, ", %s", nvswitches > 1 ? "NVSwitches" : "NVSwitch");
    if (unknown > 0)
        sf_text_add(out, ", %d other PCI device%s", unknown, unknown == 1 ? "" : "s");
    sf_text_add(out, "\n");
    if (host->gpu_count > 0) {
        print_shape(t, h, out);
        print_pairs(t, host, out);
        print_matrix(t, host, out);
        print_gpus(t, host, out);
    }
    print_nics(t, host, out);
    sf_text_add(out, "tree\n");
    sf_topology_tree(t, h, out);
}

void sf_topology_print(const sf_topology *t, sf_text *out)
{
    int switches = 0;
    sf_text_add(out, "source     %s\n", t->source);
    if (sf_topology_nodes(t) != 1)
        sf_text_add(out, "cluster    %d machines, %d GPUs\n", sf_topology_nodes(t), sf_topology_gpus(t));
    for (size_t h = 0; h < t->host_count; h++)
        print_host(t, (int)h, out);
    for (size_t i = 0; i < t->node_count; i++)
        switches += t->nodes[i].kind == SF_TOPO_NET_SWITCH;
    if (switches > 0)
        sf_text_add(out, t->rails ? "network    %d rails: NIC k of every machine on switch k\n" : "network    one fabric for all NICs\n", switches);
    for (size_t i = 0; i < t->warning_count; i++)
        sf_text_add(out, "%s%s\n", i == 0 ? "warnings   " : "           ", t->warnings[i]);
}
