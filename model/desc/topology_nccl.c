/* NCCL's (and RCCL's) topology XML: files given as NCCL_TOPO_FILE and dumps of NCCL_TOPO_DUMP_FILE.
 *
 * Elements and attributes: NCCL 2.30 src/graph/xml.cc and topo.cc, and RCCL's gcn, arch and xgmi.
 * A bridge (class 0x0604) is a PCIe switch; Broadcom's two-level switches count as one, as NCCL
 * counts them (ncclTopoFlattenBcmSwitches), because they pass the full rate between all ports. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/desc/topology_pci.h"
#include "model/desc/topology_rates.h"
#include "model/desc/topology_xml.h"


typedef struct {
    sf_arena *arena;
    sf_topology *t;
    const char *name;
    const char **host_hashes;
    size_t hash_count, hash_cap;
    struct direct {
        int gpu, line, count;
        const char *target, *tclass;
        sf_topo_link_type type;
        bool used;
    } *direct; /* NVLinks, until all GPUs are known */
    size_t direct_count, direct_cap;
    const char *unknown_said[8]; /* what is unknown is told once */
    int unknown_count;
    int devices;         /* GPUs and NICs so far */
    bool twins_said;
} reader;

#define FAIL(r, e, ...) sf_status_prefix(SF_FAIL(SF_EPARSE, __VA_ARGS__), "'%s', line %d", (r)->name, (e)->line)

static const char *attr(const sf_xml *e, const char *key)
{
    const char *text = sf_xml_attr(e, key);
    return text == NULL ? "" : text;
}

/* A whole number; `missing` if the attribute is not there or empty. */
static sf_status number(const reader *r, const sf_xml *e, const char *key, int missing, int *out)
{
    const char *text = attr(e, key);
    char *end;
    long value = strtol(text, &end, 10);
    *out = missing;
    if (text[0] == '\0')
        return SF_SUCCESS;
    if (*end != '\0' || value < -1 || value > 100000000)
        return FAIL(r, e, "<%s %s=\"%.40s\"> should be a whole number", e->name, key, text);
    *out = (int)value;
    return SF_SUCCESS;
}

/* "0000:1A:00.0" -> the same in lower case; NULL if it is no PCI address. */
static const char *busid_of(reader *r, const char *text)
{
    unsigned domain, bus, device, function;
    int used = 0;
    if (strlen(text) > 20 || sscanf(text, "%8x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &used) != 4 ||
        text[used] != '\0')
        return NULL;
    return sf_arena_printf(r->arena, "%04x:%02x:%02x.%x", domain, bus, device, function);
}

static void unknown_once(reader *r, int line, const char *what, const char *name)
{
    for (int i = 0; i < r->unknown_count; i++)
        if (strcmp(r->unknown_said[i], name) == 0)
            return;
    if (r->unknown_count == 8)
        return;
    r->unknown_said[r->unknown_count++] = name;
    sf_topo_warn(r->t, r->arena, line, "unknown %s '%.60s'; it is passed over", what, name);
}

static void check_attributes(reader *r, const sf_xml *e)
{
    static const struct {
        const char *element, *known;
    } rows[] = {
        { "system", " version name " },
        { "cpu", " host_hash numaid affinity arch vendor familyid modelid " },
        { "pci", " busid class vendor device subsystem_vendor subsystem_device link_speed link_width " },
        { "gpu", " dev sm rank gdr keep mlopart gcn arch " },
        { "nic", " keep " },
        { "net", " name dev latency speed port rail plane guid maxconn gdr net coll gin rma keep " },
        { "nvlink", " target count tclass " },
        { "xgmi", " target count tclass " },
        { "c2c", " bw count " },
        { "pcilink", " target " },
    };
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        if (strcmp(rows[k].element, e->name) != 0)
            continue;
        for (int i = 0; e->attrs[i] != NULL; i += 2) {
            char word[80];
            snprintf(word, sizeof word, " %.70s ", e->attrs[i]);
            if (strstr(rows[k].known, word) == NULL)
                unknown_once(r, e->line, "attribute", e->attrs[i]);
        }
    }
}

static bool is(const sf_xml *e, const char *name)
{
    return strcmp(e->name, name) == 0;
}

static const sf_xml *child(const sf_xml *e, const char *name)
{
    for (const sf_xml *c = e->first; c != NULL; c = c->next)
        if (is(c, name))
            return c;
    return NULL;
}

/* ---- PCI identities ---- */

static unsigned long long pci_id(const sf_xml *e)
{
    static const char *const parts[] = { "vendor", "device", "subsystem_vendor", "subsystem_device" };
    unsigned long long id = 0;
    for (int i = 0; i < 4; i++)
        id = id << 16 | (strtoul(attr(e, parts[i]), NULL, 16) & 0xffff);
    return id;
}

static sf_topo_kind kind_of(const sf_xml *pci)
{
    unsigned long class = strtoul(attr(pci, "class"), NULL, 16);
    if (child(pci, "gpu") != NULL)
        return SF_TOPO_GPU;
    if (child(pci, "nic") != NULL)
        return SF_TOPO_NIC;
    return class == 0 && child(pci, "pci") != NULL ? SF_TOPO_PCI_SWITCH : sf_pci_kind(class);
}

/* ---- elements ---- */

static int find_busid(const sf_topology *t, int host, const char *busid)
{
    for (size_t i = 0; i < t->node_count; i++)
        if (t->nodes[i].host == host && strcmp(t->nodes[i].busid, busid) == 0)
            return (int)i;
    return -1;
}

static sf_status count_device(reader *r, const sf_xml *e)
{
    if (++r->devices <= SF_TOPO_MOST_DEVICES)
        return SF_SUCCESS;
    return FAIL(r, e, "more than %d GPUs and NICs", SF_TOPO_MOST_DEVICES);
}

static sf_status set_net(reader *r, const sf_xml *net, int node)
{
    int mbit;
    sf_topo_node *n = &r->t->nodes[node];
    SF_TRY(number(r, net, "speed", 0, &mbit));
    SF_TRY(number(r, net, "dev", -1, &n->ordinal));
    n->device = sf_topo_plain(r->arena, attr(net, "name"));
    n->gbit = mbit > 0 ? mbit / 1000.0 : 0;
    n->gbit_origin = mbit > 0 ? SF_ORIGIN_REPORTED : SF_ORIGIN_UNKNOWN;
    sf_topo_net by_name = sf_topo_net_of_name(n->device);
    if (n->net == SF_NET_ETHERNET && strncmp(n->device, "mlx", 3) == 0)
        n->net = SF_NET_ROCE; /* an RDMA device on Ethernet */
    else if (by_name != SF_NET_UNKNOWN && (n->net == SF_NET_UNKNOWN || n->net == SF_NET_ETHERNET))
        n->net = by_name;
    return SF_SUCCESS;
}

/* The ports of a card. One port: the card's node is the NIC; several: each is a NIC below the card. */
static sf_status add_nic(reader *r, const sf_xml *nic, int host, int node)
{
    int ports = 0;
    for (const sf_xml *net = nic->first; net != NULL; net = net->next) {
        check_attributes(r, net);
        if (is(net, "net"))
            ports++;
        else
            unknown_once(r, net->line, "element", net->name);
    }
    bool virtual_nic = r->t->nodes[node].kind == SF_TOPO_NUMA, itself = ports <= 1 && !virtual_nic;
    if (!itself && !virtual_nic)
        r->t->nodes[node].kind = SF_TOPO_PCI_DEVICE;
    for (const sf_xml *net = nic->first; net != NULL; net = net->next) {
        int port = node, used;
        if (!is(net, "net"))
            continue;
        SF_TRY(number(r, net, "net", 1, &used));
        if (used == 0)
            sf_topo_warn(r->t, r->arena, net->line, "%.60s is part of another device and carries no traffic of its own", attr(net, "name"));
        SF_TRY(count_device(r, net));
        if (!itself) {
            port = sf_topo_add_node(r->t, r->arena, SF_TOPO_NIC, host, node, "NIC");
            r->t->nodes[port].numa = r->t->nodes[node].numa;
            r->t->nodes[port].net = r->t->nodes[node].net;
            sf_topo_link *within = sf_topo_add_link(r->t, r->arena, SF_TOPO_LINK_PCIE, port, node);
            int slot = r->t->nodes[node].uplink;
            if (slot >= 0) { /* within the card: no narrower than its slot */
                within->Bps = r->t->links[slot].Bps;
                within->origin = r->t->links[slot].origin;
            }
        }
        SF_TRY(set_net(r, net, port));
    }
    return SF_SUCCESS;
}

static sf_status add_gpu(reader *r, const sf_xml *gpu, int node)
{
    static const struct {
        const char *name;
        sf_topo_link_type type;
    } directs[] = { { "nvlink", SF_TOPO_LINK_NVLINK }, { "xgmi", SF_TOPO_LINK_XGMI } };
    const char *gcn = attr(gpu, "gcn");
    int sm;
    SF_TRY(number(r, gpu, "dev", -1, &r->t->nodes[node].ordinal));
    SF_TRY(number(r, gpu, "sm", 0, &sm));
    if (gcn[0] != '\0') /* AMD, where sm is the number of compute units: "gfx942" or "908" */
        sm = atoi(gcn + (strncmp(gcn, "gfx", 3) == 0 ? 3 : 0));
    r->t->nodes[node].sm = sm > 0 && sm < 10000 ? sm : 0;
    for (const sf_xml *e = gpu->first; e != NULL; e = e->next) {
        struct direct d = { .gpu = node, .line = e->line, .tclass = attr(e, "tclass"), .type = SF_TOPO_LINK_COUNT };
        check_attributes(r, e);
        for (int k = 0; k < 2; k++)
            if (is(e, directs[k].name))
                d.type = directs[k].type;
        if (is(e, "c2c")) {
            int mega, count, up = node;
            SF_TRY(number(r, e, "bw", 0, &mega));
            SF_TRY(number(r, e, "count", 1, &count));
            while (r->t->nodes[up].parent >= 0)
                up = r->t->nodes[up].parent;
            if (mega < 1 || count < 1 || count > 1000)
                return FAIL(r, e, "<c2c bw=\"%d\" count=\"%d\"> should both be above zero", mega, count);
            sf_topo_link *link = sf_topo_add_link(r->t, r->arena, SF_TOPO_LINK_C2C, node, up);
            link->count = count;
            link->Bps = (double)mega * count * 1e6; /* MB/s of one link */
            link->origin = SF_ORIGIN_REPORTED;
        } else if (d.type == SF_TOPO_LINK_COUNT) {
            unknown_once(r, e->line, "element", e->name);
        } else {
            SF_TRY(number(r, e, "count", 1, &d.count));
            if (d.count < 1 || d.count > 1000)
                return FAIL(r, e, "<%s count=\"%d\"> should be above zero", e->name, d.count);
            if (attr(e, "target")[0] == '\0')
                return FAIL(r, e, "<%s> has no target", e->name);
            /* an NVSwitch's target may be anything; a GPU's is a PCI address */
            const char *busid = busid_of(r, attr(e, "target"));
            unsigned long tclass = strtoul(d.tclass, NULL, 16);
            if (busid == NULL && tclass != SF_PCI_NVSWITCH && tclass != SF_PCI_NVLINK_CPU)
                return FAIL(r, e, "<%s target=\"%.40s\"> is not a PCI address such as 0000:1a:00.0", e->name, attr(e, "target"));
            d.target = busid != NULL ? busid : sf_topo_plain(r->arena, attr(e, "target"));
            SF_PUSH(r->arena, r->direct, r->direct_count, r->direct_cap) = d;
        }
    }
    return SF_SUCCESS;
}

static sf_status add_pci(reader *r, const sf_xml *pci, int host, int parent, const sf_xml *around);

static sf_status add_within_pci(reader *r, const sf_xml *pci, int host, int node, bool merged)
{
    for (const sf_xml *e = pci->first; e != NULL; e = e->next) {
        check_attributes(r, e);
        if (is(e, "pci"))
            SF_TRY(add_pci(r, e, host, node, merged ? NULL : pci));
        else if (is(e, "gpu"))
            SF_TRY(add_gpu(r, e, node));
        else if (!is(e, "nic") && !is(e, "pcilink"))
            unknown_once(r, e->line, "element", e->name);
    }
    return SF_SUCCESS;
}

/* `around` is the <pci> that this one is in, NULL if there is none that it could be a level of. */
static sf_status add_pci(reader *r, const sf_xml *pci, int host, int parent, const sf_xml *around)
{
    const char *speed = attr(pci, "link_speed"), *busid = busid_of(r, attr(pci, "busid"));
    int width;
    SF_TRY(number(r, pci, "link_width", 0, &width));
    if (attr(pci, "busid")[0] == '\0')
        return FAIL(r, pci, "<pci> has no busid");
    if (busid == NULL)
        return FAIL(r, pci, "<pci busid=\"%.40s\"> is not a PCI address such as 0000:1a:00.0", attr(pci, "busid"));
    if (width > 32)
        return FAIL(r, pci, "link_width=\"%d\" is more than the 32 lanes that PCIe knows", width);
    sf_topo_kind kind = kind_of(pci);
    int twin = find_busid(r->t, host, busid);
    if (twin >= 0 && (kind != SF_TOPO_PCI_SWITCH || r->t->nodes[twin].kind != SF_TOPO_PCI_SWITCH))
        return FAIL(r, pci, "a second <pci busid=\"%s\">", busid);
    if (twin >= 0 && !r->twins_said) { /* written so by hand; the tree is unharmed */
        sf_topo_warn(r->t, r->arena, pci->line, "a second bridge has the address %s; each stays where it is written", busid);
        r->twins_said = true;
    }
    if (kind == SF_TOPO_PCI_SWITCH && around != NULL && sf_pci_one_switch(pci_id(around), pci_id(pci)))
        return add_within_pci(r, pci, host, parent, true); /* the second level of one switch */
    if (kind == SF_TOPO_GPU || kind == SF_TOPO_NIC)
        SF_TRY(count_device(r, pci));
    int node = sf_topo_add_node(r->t, r->arena, kind, host, parent, busid);
    r->t->nodes[node].busid = busid;
    r->t->nodes[node].numa = r->t->nodes[parent].numa;
    int generation = sf_pcie_generation_of_speed(speed);
    if (generation == 0 && speed[0] != '\0' && strncmp(speed, "Unknown", 7) != 0)
        sf_topo_warn(r->t, r->arena, pci->line, "link_speed '%.30s' is not a PCIe rate", speed);
    /* NCCL: no speed counts as generation 3, no width as 16 lanes */
    sf_topo_add_pcie(r->t, r->arena, node, generation > 0 ? generation : 3, width > 0 ? width : 16,
                     generation > 0 && width > 0 ? SF_ORIGIN_SPEC : SF_ORIGIN_ASSUMED);
    if (kind == SF_TOPO_GPU) {
        r->t->nodes[node].device = sf_pci_model(pci_id(pci));
        if (child(pci, "gpu") == NULL)
            r->t->hosts[host].direct_unstated = true;
    }
    if (kind == SF_TOPO_NIC) {
        const sf_xml *nic = child(pci, "nic");
        r->t->nodes[node].net = sf_pci_net(strtoul(attr(pci, "class"), NULL, 16), pci_id(pci));
        if (nic != NULL)
            SF_TRY(add_nic(r, nic, host, node));
    }
    return add_within_pci(r, pci, host, node, false);
}

static sf_status host_of(reader *r, const sf_xml *cpu, int *out)
{
    const char *hash = attr(cpu, "host_hash"); /* dumps of several machines in one file have it */
    for (size_t i = 0; i < r->hash_count; i++) {
        if (strcmp(r->host_hashes[i], hash) == 0) {
            *out = (int)i;
            return SF_SUCCESS;
        }
    }
    if (r->hash_count >= SF_TOPO_MOST_HOSTS)
        return FAIL(r, cpu, "more than %d hosts", SF_TOPO_MOST_HOSTS);
    SF_PUSH(r->arena, r->host_hashes, r->hash_count, r->hash_cap) = hash;
    *out = sf_topo_add_host(r->t, r->arena, "");
    return SF_SUCCESS;
}

static sf_status add_cpu(reader *r, const sf_xml *cpu)
{
    int host = 0, numa, family, model, host_numa = 0;
    const char *vendor = attr(cpu, "vendor");
    check_attributes(r, cpu);
    SF_TRY(number(r, cpu, "numaid", -2, &numa));
    SF_TRY(number(r, cpu, "familyid", 0, &family));
    SF_TRY(number(r, cpu, "modelid", 0, &model));
    if (numa == -2)
        return FAIL(r, cpu, "<cpu> has no numaid");
    SF_TRY(host_of(r, cpu, &host));
    int node = sf_topo_add_node(r->t, r->arena, SF_TOPO_NUMA, host, -1,
                                numa < 0 ? "NUMA?" : sf_arena_printf(r->arena, "NUMA%d", numa));
    r->t->nodes[node].numa = r->t->nodes[node].ordinal = numa;
    r->t->nodes[node].cpus = sf_topo_plain(r->arena, attr(cpu, "affinity"));
    r->t->nodes[node].device = sf_topo_plain(r->arena, strcmp(vendor, "GenuineIntel") == 0 ? "Intel" : strcmp(vendor, "AuthenticAMD") == 0 ? "AMD" : vendor);
    double smp_Bps = sf_smp_Bps_of_nccl(attr(cpu, "arch"), vendor, family, model);
    for (int i = 0; i < node; i++) { /* to the NUMA nodes seen before */
        if (r->t->nodes[i].kind != SF_TOPO_NUMA || r->t->nodes[i].host != host)
            continue;
        if (r->t->nodes[i].numa == numa)
            return FAIL(r, cpu, "a second <cpu numaid=\"%d\">", numa);
        if (++host_numa >= SF_TOPO_MOST_NUMA)
            return FAIL(r, cpu, "more than %d NUMA nodes of one host", SF_TOPO_MOST_NUMA);
        sf_topo_link *link = sf_topo_add_link(r->t, r->arena, SF_TOPO_LINK_SMP, i, node);
        link->Bps = smp_Bps;
        link->origin = smp_Bps > 0 ? SF_ORIGIN_NCCL : SF_ORIGIN_UNKNOWN;
    }
    for (const sf_xml *e = cpu->first; e != NULL; e = e->next) {
        check_attributes(r, e);
        if (is(e, "pci"))
            SF_TRY(add_pci(r, e, host, node, NULL));
        else if (is(e, "nic"))
            SF_TRY(add_nic(r, e, host, node));
        else if (is(e, "gpu"))
            return FAIL(r, e, "<gpu> outside of <pci>");
        else
            unknown_once(r, e->line, "element", e->name);
    }
    return SF_SUCCESS;
}

/* ---- NVLinks, when all GPUs are there ---- */

/* The node at the far end. NVSwitches and GPUs that a trimmed file does not hold are made here. */
static int far_node(reader *r, const struct direct *d)
{
    int host = r->t->nodes[d->gpu].host, node = find_busid(r->t, host, d->target);
    unsigned long tclass = strtoul(d->tclass, NULL, 16);
    if (tclass == SF_PCI_NVLINK_CPU) {
        for (node = d->gpu; r->t->nodes[node].parent >= 0;)
            node = r->t->nodes[node].parent;
        return node;
    }
    if (node >= 0)
        return node;
    bool nvswitch = tclass == SF_PCI_NVSWITCH;
    node = sf_topo_add_node(r->t, r->arena, nvswitch ? SF_TOPO_NVSWITCH : SF_TOPO_PCI_DEVICE, host, -1,
                            sf_arena_printf(r->arena, nvswitch ? "NVSwitch %s" : "GPU at %s, not in this file", d->target));
    r->t->nodes[node].busid = d->target;
    return node;
}

static void add_direct(reader *r)
{
    for (size_t i = 0; i < r->direct_count; i++) {
        struct direct *d = &r->direct[i];
        if (d->used)
            continue;
        int far = far_node(r, d), count = d->count;
        if (far == d->gpu) {
            sf_topo_warn(r->t, r->arena, d->line, "a link of %s to itself is left out", r->t->nodes[d->gpu].busid);
            continue;
        }
        for (size_t j = i + 1; j < r->direct_count; j++) { /* the same links as the other GPU tells them */
            struct direct *back = &r->direct[j];
            if (back->used || back->gpu != far || strcmp(back->target, r->t->nodes[d->gpu].busid) != 0 ||
                r->t->nodes[back->gpu].host != r->t->nodes[d->gpu].host)
                continue;
            back->used = true;
            if (back->count != count) {
                sf_topo_warn(r->t, r->arena, back->line, "%s tells %d links to %s, which tells %d (line %d); the smaller number is used",
                             r->t->nodes[back->gpu].busid, back->count, r->t->nodes[d->gpu].busid, d->count, d->line);
                count = back->count < count ? back->count : count;
            }
        }
        sf_topo_add_nvlink(r->t, r->arena, d->type, d->gpu, far, count, sf_nvlink_generation_of_sm(r->t->nodes[d->gpu].sm));
        if (d->type == SF_TOPO_LINK_XGMI) {
            sf_topo_host *host = &r->t->hosts[r->t->nodes[d->gpu].host];
            host->gpu_link = SF_TOPO_LINK_XGMI;
            host->gpu_link_name = "xGMI";
        }
    }
}

/* ---- names and order ---- */

static const sf_topology *sorted; /* of the comparison below; readers run in one thread */

static int by_number(const void *a, const void *b)
{
    const sf_topo_node *x = &sorted->nodes[*(const int *)a], *y = &sorted->nodes[*(const int *)b];
    if (x->ordinal != y->ordinal)
        return x->ordinal < y->ordinal ? -1 : 1;
    int order = strlen(x->busid) != strlen(y->busid) ? (strlen(x->busid) < strlen(y->busid) ? -1 : 1) : strcmp(x->busid, y->busid);
    return order != 0 ? order : *(const int *)a - *(const int *)b;
}

/* GPUs and NICs are numbered by `dev` if each has its own, else by PCI address, as the driver does. */
static void number_devices(reader *r, int *list, int count, const char *word)
{
    bool own = true;
    sorted = r->t;
    qsort(list, (size_t)count, sizeof *list, by_number);
    for (int i = 0; i < count; i++)
        own = own && r->t->nodes[list[i]].ordinal >= 0 && (i == 0 || r->t->nodes[list[i]].ordinal != r->t->nodes[list[i - 1]].ordinal);
    if (!own) {
        for (int i = 0; i < count; i++)
            r->t->nodes[list[i]].ordinal = 0;
        qsort(list, (size_t)count, sizeof *list, by_number);
    }
    for (int i = 0; i < count; i++) {
        sf_topo_node *node = &r->t->nodes[list[i]];
        node->ordinal = own ? node->ordinal : i;
        node->name = sf_arena_printf(r->arena, "%s%d", word, node->ordinal);
    }
}

static void finish_host(reader *r, int host)
{
    int switches = 0, nvswitches = 0, slow = -1, slow_count = 0;
    sf_topo_list_devices(r->t, r->arena, host);
    sf_topo_host *h = &r->t->hosts[host];
    number_devices(r, h->gpus, h->gpu_count, "GPU");
    number_devices(r, h->nics, h->nic_count, "NIC");
    for (size_t i = 0; i < r->t->node_count; i++) {
        sf_topo_node *node = &r->t->nodes[i];
        if (node->host != host)
            continue;
        if (node->kind == SF_TOPO_PCI_SWITCH)
            node->name = sf_arena_printf(r->arena, "switch%d", switches++);
        if (node->kind == SF_TOPO_NVSWITCH)
            node->name = sf_arena_printf(r->arena, "NVSwitch%d", nvswitches++);
        int up = node->parent >= 0 ? r->t->nodes[node->parent].uplink : -1;
        if (node->uplink >= 0 && up >= 0 && r->t->links[up].origin == SF_ORIGIN_SPEC && r->t->links[node->uplink].origin == SF_ORIGIN_SPEC &&
            r->t->links[up].Bps < r->t->links[node->uplink].Bps / 2) {
            if (slow != node->parent)
                slow_count++;
            slow = node->parent;
        }
    }
    if (slow_count > 0)
        sf_topo_warn(r->t, r->arena, 0,
                     "%d PCIe switch%s (%s: PCIe %d x%d) %s an uplink of less than half the rate of what is below: narrow, or read while idle",
                     slow_count, slow_count > 1 ? "es" : "", r->t->nodes[slow].busid, r->t->links[r->t->nodes[slow].uplink].generation,
                     r->t->links[r->t->nodes[slow].uplink].lanes, slow_count > 1 ? "have" : "has");
}

static void warn_of_gaps(reader *r)
{
    int gpus = 0, unknown = 0, assumed = 0, outside = 0;
    bool *inner = SF_NEW_ARRAY(r->arena, bool, r->t->node_count);
    for (size_t i = r->t->node_count; i-- > 0;) { /* children come after their parents */
        const sf_topo_node *node = &r->t->nodes[i];
        if (node->parent >= 0)
            inner[node->parent] = true;
        gpus += node->kind == SF_TOPO_GPU;
        unknown += node->kind == SF_TOPO_PCI_DEVICE && !inner[i] && node->parent >= 0;
        outside += node->kind == SF_TOPO_PCI_DEVICE && node->parent < 0;
        assumed += node->uplink >= 0 && r->t->links[node->uplink].origin == SF_ORIGIN_ASSUMED;
    }
    if (unknown > 0)
        sf_topo_warn(r->t, r->arena, 0, "%d PCI device%s without class: GPU or NIC, only the machine itself can tell", unknown, unknown > 1 ? "s" : "");
    if (gpus == 0)
        sf_topo_warn(r->t, r->arena, 0, "the file names no GPU; NCCL adds those that it finds on the machine");
    for (size_t h = 0, told = 0; h < r->t->host_count && told == 0; h++)
        if (r->t->hosts[h].direct_unstated && ++told)
            sf_topo_warn(r->t, r->arena, 0, "GPUs stand in the file as PCI devices only: NVLinks, for which NCCL asks the driver, are not told");
    if (outside > 0)
        sf_topo_warn(r->t, r->arena, 0, "NVLinks lead to %d GPU%s that this file leaves out (a dump holds the GPUs of its job)", outside, outside > 1 ? "s" : "");
    if (assumed > 0)
        sf_topo_warn(r->t, r->arena, 0, "%d PCIe link%s without speed or width; taken for PCIe 3 and 16 lanes, as NCCL does", assumed, assumed > 1 ? "s" : "");
}

sf_status sf_topology_read_xml(const char *text, size_t len, int first_line, const char *name, sf_arena *arena,
                               sf_topology **out)
{
    sf_xml *root;
    reader r = { .arena = arena, .name = name };
    int version;
    SF_TRY(sf_xml_parse(text, len, first_line, name, arena, &root));
    if (!is(root, "system"))
        return FAIL(&r, root, "the XML is a <%.60s>, not the <system> of an NCCL topology", root->name);
    r.t = sf_topo_new(arena, "NCCL topology XML");
    check_attributes(&r, root);
    SF_TRY(number(&r, root, "version", 0, &version));
    if (version == 0)
        sf_topo_warn(r.t, arena, root->line, "<system> has no version");
    else if (version > 2) /* NCCL writes 1, RCCL 2 */
        sf_topo_warn(r.t, arena, root->line, "<system version=\"%d\"> is newer than 2; read as far as it is known", version);
    for (const sf_xml *e = root->first; e != NULL; e = e->next) {
        if (is(e, "cpu"))
            SF_TRY(add_cpu(&r, e));
        else
            unknown_once(&r, e->line, "element", e->name);
    }
    if (r.t->host_count == 0)
        return FAIL(&r, root, "<system> holds no <cpu>");
    add_direct(&r);
    for (size_t h = 0; h < r.t->host_count; h++)
        finish_host(&r, (int)h);
    warn_of_gaps(&r);
    *out = r.t;
    return SF_SUCCESS;
}
