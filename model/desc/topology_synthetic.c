/* Topologies from a line of text; the grammar is in topology.h. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/desc/topology_build.h"

enum { MOST_NODES = 1 << 20, MOST_GPUS = 576 /* the largest NVLink domain there is */, GPUS_PER_SWITCH = 4, WORDS_MOST = 32 };

typedef enum { FABRIC_NONE, FABRIC_NVSWITCH, FABRIC_MESH, FABRIC_PAIRS, FABRIC_PCIE, FABRIC_PCIE_SWITCH } fabric;

typedef struct {
    int gpus, nodes, nics, numa, per_switch, links; /* links: NVLinks of a GPU, or to each other GPU of a mesh */
    const char *model;
    fabric fabric;
    double gbit;
    sf_topo_net net;
    int rails;           /* -1: not said */
    int pcie_generation, pcie_lanes;
    sf_topo_origin pcie_origin;
    sf_topo_link_type link; /* NVLINK or XGMI */
} description;

typedef struct {
    char *word[WORDS_MOST];
    int count;
} clause;

/* Words between blanks. "8 x 400 Gb" and "8x400Gb" are the same: a number, x and a number part. */
static sf_status split(char *text, clause *out)
{
    out->count = 0;
    for (char *save, *w = strtok_r(text, " \t\r\n", &save); w != NULL; w = strtok_r(NULL, " \t\r\n", &save)) {
        if (out->count == WORDS_MOST)
            return SF_FAIL(SF_EINVAL, "a clause of more than %d words", WORDS_MOST);
        out->word[out->count++] = w;
    }
    return SF_SUCCESS;
}

static bool is_word(const clause *c, int at, const char *word)
{
    return at < c->count && strcasecmp(c->word[at], word) == 0;
}

/* "8x" or "8" followed by the word "x": the number, and where the rest begins. */
static bool take_count(clause *c, int *at, long *count)
{
    char *end;
    if (*at >= c->count || !isdigit((unsigned char)c->word[*at][0]))
        return false;
    *count = strtol(c->word[*at], &end, 10);
    if ((*end == 'x' || *end == 'X') && end[1] != '\0') {
        c->word[*at] = end + 1;
        return true;
    }
    if (*end == 'x' || *end == 'X') {
        (*at)++;
        return true;
    }
    if (*end == '\0' && *at + 1 < c->count && (c->word[*at + 1][0] == 'x' || c->word[*at + 1][0] == 'X')) {
        char *next = c->word[*at + 1] + 1;
        if (*next == '\0') {
            *at += 2;
            return true;
        }
        if (isdigit((unsigned char)*next)) {
            c->word[++*at] = next;
            return true;
        }
    }
    return false;
}

static sf_status whole(const char *what, long value, long least, long most, int *out)
{
    if (value < least || value > most)
        return SF_FAIL(SF_EINVAL, "%ld %s: it should be %ld to %ld", value, what, least, most);
    *out = (int)value;
    return SF_SUCCESS;
}

static bool is_fabric(const clause *c, int at)
{
    static const char *const words[] = { "nvswitch", "nvlink", "xgmi", "pcie" };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (is_word(c, at, words[i]))
            return true;
    return false;
}

static bool as_number(const clause *c, int at, long *out)
{
    char *end;
    if (at >= c->count || !isdigit((unsigned char)c->word[at][0]))
        return false;
    *out = strtol(c->word[at], &end, 10);
    return *end == '\0';
}

/* "4 links" at the end of a fabric */
static sf_status take_links(const clause *c, int *at, description *d)
{
    long n;
    if (as_number(c, *at, &n) && (is_word(c, *at + 1, "links") || is_word(c, *at + 1, "link"))) {
        SF_TRY(whole("links", n, 1, 100, &d->links));
        *at += 2;
    }
    return SF_SUCCESS;
}

static sf_status take_gpus(clause *c, sf_arena *arena, description *d)
{
    int at = 0;
    long count;
    if (!take_count(c, &at, &count))
        return SF_FAIL(SF_EINVAL, "it should begin with a number of GPUs and their name, as '8xH100-SXM5-80GB'");
    SF_TRY(whole("GPUs", count, 1, MOST_GPUS, &d->gpus));
    sf_text model = { 0 };
    /* "PCIe" may be part of the name ("A100 PCIe 40GB"): only the last such word is the fabric */
    int fabric_at = -1;
    for (int i = at + 1; i < c->count; i++)
        if (is_fabric(c, i) && (fabric_at < 0 || !is_word(c, i, "pcie") || is_word(c, fabric_at, "pcie")))
            fabric_at = i;
    for (int i = at; i < c->count && i != fabric_at; i++)
        sf_text_add(&model, "%s%s", i == at ? "" : " ", c->word[i]);
    d->model = sf_topo_plain(arena, sf_text_str(&model));
    sf_text_free(&model);
    if (d->model[0] == '\0')
        return SF_FAIL(SF_EINVAL, "the GPU has no name");
    if (fabric_at < 0) {
        if (d->gpus == 1) {
            d->fabric = FABRIC_PCIE;
            return SF_SUCCESS;
        }
        return SF_FAIL(SF_EINVAL, "'%s' is not followed by what joins the GPUs: nvswitch, nvlink mesh, nvlink pairs, pcie or pcie switch", d->model);
    }
    at = fabric_at + 1;
    if (is_word(c, fabric_at, "nvswitch")) {
        d->fabric = FABRIC_NVSWITCH;
        SF_TRY(take_links(c, &at, d));
    } else if (is_word(c, fabric_at, "nvlink") || is_word(c, fabric_at, "xgmi")) {
        if (is_word(c, fabric_at, "xgmi"))
            d->link = SF_TOPO_LINK_XGMI;
        d->fabric = is_word(c, at, "mesh") ? FABRIC_MESH : is_word(c, at, "pairs") ? FABRIC_PAIRS : FABRIC_NONE;
        if (d->fabric == FABRIC_NONE)
            return SF_FAIL(SF_EINVAL, "'%s' should be followed by 'mesh' or 'pairs' (or write 'nvswitch')", c->word[fabric_at]);
        at++;
        SF_TRY(take_links(c, &at, d));
    } else {
        long n;
        d->fabric = is_word(c, at, "switch") ? FABRIC_PCIE_SWITCH : FABRIC_PCIE;
        at += d->fabric == FABRIC_PCIE_SWITCH;
        if (d->fabric == FABRIC_PCIE_SWITCH && as_number(c, at, &n)) {
            SF_TRY(whole("GPUs per switch", n, 1, MOST_GPUS, &d->per_switch));
            at++;
        }
    }
    return at < c->count ? SF_FAIL(SF_EINVAL, "'%.60s' after the GPUs' fabric is not understood", c->word[at]) : SF_SUCCESS;
}

static sf_status take_nics(clause *c, description *d)
{
    static const struct {
        const char *word;
        sf_topo_net net;
    } nets[] = { { "ib", SF_NET_IB }, { "infiniband", SF_NET_IB }, { "roce", SF_NET_ROCE }, { "efa", SF_NET_EFA },
                 { "tcp", SF_NET_TCP }, { "ethernet", SF_NET_TCP }, { "slingshot", SF_NET_SLINGSHOT } };
    int at = 0;
    long count;
    char *unit;
    if (d->nics > 0)
        return SF_FAIL(SF_EINVAL, "a second clause of NICs");
    if (!take_count(c, &at, &count) || at >= c->count)
        return SF_FAIL(SF_EINVAL, "'%.60s' is not understood; NICs are written as '8x400Gb ib'", c->word[0]);
    SF_TRY(whole("NICs", count, 1, MOST_GPUS, &d->nics));
    d->gbit = strtod(c->word[at], &unit);
    if (*unit == '\0' && ++at < c->count)
        unit = c->word[at];
    if (!(d->gbit > 0 && d->gbit < 1e6) ||
        (strcasecmp(unit, "Gb") != 0 && strcasecmp(unit, "Gbit") != 0 && strcasecmp(unit, "Gbps") != 0 &&
         strcasecmp(unit, "Gb/s") != 0 && strcasecmp(unit, "Gbit/s") != 0 && strcasecmp(unit, "G") != 0))
        return SF_FAIL(SF_EINVAL, "'%.60s' is not the rate of a NIC; write it as 400Gb", c->word[at < c->count ? at : at - 1]);
    for (at++; at < c->count; at++) {
        size_t k = 0;
        while (k < sizeof nets / sizeof nets[0] && !is_word(c, at, nets[k].word))
            k++;
        if (k < sizeof nets / sizeof nets[0])
            d->net = nets[k].net;
        else if (is_word(c, at, "rail") || is_word(c, at, "rails"))
            d->rails = 1;
        else if (is_word(c, at, "fabric"))
            d->rails = 0;
        else if (!is_word(c, at, "nics") && !is_word(c, at, "nic"))
            return SF_FAIL(SF_EINVAL, "'%.60s' is no kind of network; there are ib, roce, efa, tcp, slingshot, and rail or fabric", c->word[at]);
    }
    return SF_SUCCESS;
}

static sf_status take_clause(clause *c, description *d)
{
    long n;
    bool counted = as_number(c, 0, &n) && c->count == 2;
    if (counted && (is_word(c, 1, "nodes") || is_word(c, 1, "node") || is_word(c, 1, "hosts") || is_word(c, 1, "host") ||
                    is_word(c, 1, "machines") || is_word(c, 1, "machine")))
        return whole("nodes", n, 1, MOST_NODES, &d->nodes);
    if (counted && (is_word(c, 1, "numa") || is_word(c, 1, "sockets") || is_word(c, 1, "socket")))
        return whole("NUMA nodes", n, 1, SF_TOPO_MOST_NUMA, &d->numa);
    if (is_word(c, 0, "pcie") && as_number(c, 1, &n)) {
        SF_TRY(whole("as PCIe generation", n, 1, 7, &d->pcie_generation));
        d->pcie_lanes = 16;
        if (c->count == 3 && (c->word[2][0] == 'x' || c->word[2][0] == 'X')) {
            SF_TRY(whole("PCIe lanes", strtol(c->word[2] + 1, NULL, 10), 1, 32, &d->pcie_lanes));
            return SF_SUCCESS;
        }
        return c->count == 2 ? SF_SUCCESS : SF_FAIL(SF_EINVAL, "'%.60s' should be a number of lanes, as x16", c->word[2]);
    }
    return take_nics(c, d);
}

/* ---- building ---- */

typedef struct {
    sf_topology *t;
    sf_arena *arena;
    const description *d;
    int host;
    int numa[SF_TOPO_MOST_NUMA];
} builder;

static int numa_of_gpu(const builder *b, int gpu)
{
    return b->numa[(long)gpu * b->d->numa / b->d->gpus];
}

/* GPU that NIC k is near to: NICs spread over GPUs in order. */
static int gpu_of_nic(const description *d, int k)
{
    return (int)((long)k * d->gpus / d->nics);
}

static int add_device(builder *b, sf_topo_kind kind, int index, int parent)
{
    int node = sf_topo_add_node(b->t, b->arena, kind, b->host, parent, sf_arena_printf(b->arena, "%s%d", kind == SF_TOPO_GPU ? "GPU" : "NIC", index));
    sf_topo_node *n = &b->t->nodes[node];
    n->ordinal = index;
    n->numa = b->t->nodes[parent].numa;
    if (kind == SF_TOPO_GPU) {
        n->device = b->d->model;
    } else {
        n->gbit = b->d->gbit;
        n->gbit_origin = SF_ORIGIN_REPORTED;
        n->net = b->d->net;
    }
    sf_topo_add_pcie(b->t, b->arena, node, b->d->pcie_generation, b->d->pcie_lanes,
                     kind == SF_TOPO_GPU && b->d->pcie_origin == SF_ORIGIN_ASSUMED ? SF_ORIGIN_CATALOGUE : b->d->pcie_origin);
    return node;
}

static int add_between(builder *b, sf_topo_kind kind, int index, int numa)
{
    int node = sf_topo_add_node(b->t, b->arena, kind, b->host, numa,
                                sf_arena_printf(b->arena, kind == SF_TOPO_PCI_SWITCH ? "switch%d" : "bridge%d", index));
    b->t->nodes[node].numa = b->t->nodes[numa].numa;
    sf_topo_add_pcie(b->t, b->arena, node, b->d->pcie_generation, b->d->pcie_lanes, b->d->pcie_origin);
    return node;
}

static void add_devices(builder *b)
{
    const description *d = b->d;
    int bridges = 0, switches = 0, at = -1, last_numa = -1, in_switch = 0, nic = 0;
    bool own_bridges = d->fabric == FABRIC_PCIE || d->fabric == FABRIC_PAIRS;
    for (int g = 0; g < d->gpus; g++) {
        int numa = numa_of_gpu(b, g);
        if (own_bridges) {
            at = add_between(b, SF_TOPO_PCI_ROOT, bridges++, numa);
        } else if (at < 0 || numa != last_numa || in_switch == d->per_switch) {
            at = add_between(b, SF_TOPO_PCI_SWITCH, switches++, numa);
            in_switch = 0;
        }
        in_switch++;
        last_numa = numa;
        add_device(b, SF_TOPO_GPU, g, at);
        for (; nic < d->nics && gpu_of_nic(d, nic) == g; nic++)
            add_device(b, SF_TOPO_NIC, nic, own_bridges ? add_between(b, SF_TOPO_PCI_ROOT, bridges++, numa) : at);
    }
}

static void add_direct(builder *b, const sf_gpu *gpu)
{
    const description *d = b->d;
    const sf_topo_host *host = &b->t->hosts[b->host];
    int known = gpu == NULL ? 0 : gpu->nvlink_links, generation = gpu == NULL ? 0 : gpu->nvlink_gen;
    if (d->fabric == FABRIC_NVSWITCH) {
        int hub = sf_topo_add_node(b->t, b->arena, SF_TOPO_NVSWITCH, b->host, -1, "NVSwitch0");
        for (int g = 0; g < d->gpus; g++)
            sf_topo_add_nvlink(b->t, b->arena, d->link, host->gpus[g], hub, d->links > 0 ? d->links : known, generation);
    } else if (d->fabric == FABRIC_MESH || d->fabric == FABRIC_PAIRS) {
        for (int i = 0; i < d->gpus; i++) {
            for (int j = i + 1; j < d->gpus; j++) {
                int each = d->links > 0 ? d->links : d->fabric == FABRIC_MESH && known > 0 ? known / (d->gpus - 1) : known;
                if (d->fabric == FABRIC_MESH || (i % 2 == 0 && j == i + 1))
                    sf_topo_add_nvlink(b->t, b->arena, d->link, host->gpus[i], host->gpus[j], each, generation);
            }
        }
    }
}

static sf_status check(const description *d, const sf_gpu *gpu)
{
    if (d->numa > d->gpus)
        return SF_FAIL(SF_EINVAL, "%d NUMA nodes for %d GPUs; there should be a GPU on each", d->numa, d->gpus);
    if (d->fabric == FABRIC_PAIRS && d->gpus % 2 != 0)
        return SF_FAIL(SF_EINVAL, "%d GPUs cannot be in pairs", d->gpus);
    bool nvlink = d->fabric == FABRIC_NVSWITCH || d->fabric == FABRIC_MESH || d->fabric == FABRIC_PAIRS;
    if (nvlink && gpu != NULL && gpu->nvlink_links == 0)
        return SF_FAIL(SF_EINVAL, "%s has no NVLink; write pcie or 'pcie switch'", gpu->name);
    if (d->fabric == FABRIC_MESH && d->links == 0 && gpu != NULL && gpu->nvlink_links < d->gpus - 1)
        return SF_FAIL(SF_EINVAL, "%s has %d NVLinks, too few for one to each of %d other GPUs; write nvswitch", gpu->name, gpu->nvlink_links, d->gpus - 1);
    return SF_SUCCESS;
}

static sf_status read_description(const char *text, sf_arena *arena, description *d)
{
    char *copy = sf_arena_strdup(arena, text), *save;
    bool first = true;
    for (char *part = strtok_r(copy, ";", &save); part != NULL; part = strtok_r(NULL, ";", &save)) {
        clause c;
        SF_TRY(split(part, &c));
        if (c.count == 0)
            continue;
        SF_TRY(first ? take_gpus(&c, arena, d) : take_clause(&c, d));
        first = false;
    }
    return first ? SF_FAIL(SF_EINVAL, "it is empty") : SF_SUCCESS;
}

sf_status sf_topology_synthetic(const char *text, const sf_gpu *gpu, sf_arena *arena, sf_topology **out)
{
    description d = { .nodes = 1, .rails = -1, .pcie_origin = SF_ORIGIN_SPEC, .link = SF_TOPO_LINK_NVLINK };
    sf_gpu found;
    sf_status st = read_description(text, arena, &d);
    if (st.code == SF_OK && gpu == NULL) {
        st = sf_gpu_find(d.model, 0, arena, &found);
        gpu = &found;
    }
    if (d.numa == 0)
        d.numa = d.gpus > 4 ? 2 : 1;
    if (st.code == SF_OK)
        st = check(&d, gpu);
    if (st.code != SF_OK)
        return sf_status_prefix(st, "topology '%.120s'", text);
    if (d.per_switch == 0) /* machines with NVLink have a switch for each NIC and its GPUs */
        d.per_switch = d.nics == 0 || d.fabric == FABRIC_PCIE_SWITCH ? GPUS_PER_SWITCH : d.nics >= d.gpus ? 1 : d.gpus / d.nics;
    if (d.pcie_generation == 0 && gpu != NULL) {
        d.pcie_generation = gpu->pcie_gen;
        d.pcie_lanes = gpu->pcie_lanes;
        d.pcie_origin = SF_ORIGIN_ASSUMED; /* that the rest of the bus is like the GPUs' slots */
    }
    builder b = { .t = sf_topo_new(arena, "synthetic description"), .arena = arena, .d = &d };
    b.host = sf_topo_add_host(b.t, arena, "");
    b.t->hosts[b.host].count = d.nodes;
    b.t->hosts[b.host].gpu_link = d.link;
    b.t->hosts[b.host].gpu_link_name = d.link == SF_TOPO_LINK_XGMI ? "xGMI" : "NVLink";
    for (int i = 0; i < d.numa; i++) {
        b.numa[i] = sf_topo_add_node(b.t, arena, SF_TOPO_NUMA, b.host, -1, sf_arena_printf(arena, "NUMA%d", i));
        b.t->nodes[b.numa[i]].ordinal = b.t->nodes[b.numa[i]].numa = i;
    }
    add_devices(&b);
    sf_topo_list_devices(b.t, arena, b.host);
    sf_topo_add_smp(b.t, arena, b.host, 0, SF_ORIGIN_UNKNOWN);
    add_direct(&b, gpu);
    if (d.nodes > 1)
        sf_topo_add_network(b.t, arena, d.rails < 0 ? d.nics > 1 : d.rails == 1);
    if (gpu != NULL)
        sf_topology_apply_gpu(b.t, gpu, arena);
    *out = b.t;
    return SF_SUCCESS;
}
