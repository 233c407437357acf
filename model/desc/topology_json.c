/* Our own JSON of a topology: written whole, read back to the same.
 *
 *   { "schema": "shardfit-topology-1", "source": "...", "rails": false,
 *     "hosts": [ { "name": "host0", "count": 1, "gpus": ["GPU0", ...], "nics": ["NIC0", ...],
 *                  "direct_link": "nvlink", "direct_link_name": "NVLink",
 *                  "nodes": [ { "name", "kind", "parent", ... }, ... ],
 *                  "links": [ { "a", "b", "type", "count", "generation", "lanes", "Bps", "origin" }, ... ],
 *                  "paths": ["X NV12 SYS", ...] } ],      (what the source itself reported, if it is a matrix)
 *     "network": { "switches": ["rail0", ...], "links": [ { "host", "nic", "switch", "Bps", "origin" }, ... ] },
 *     "warnings": ["..."] }
 *
 * Unknown values are left out. Names are unique within their host; parents come before children. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/desc/topology_build.h"

/* ---- writing ---- */

static void set_text(json_t *o, const char *key, const char *value)
{
    if (value[0] != '\0')
        json_object_set_new(o, key, json_string(value));
}

static void set_int(json_t *o, const char *key, int value, int unknown)
{
    if (value != unknown)
        json_object_set_new(o, key, json_integer(value));
}

static void set_rate(json_t *o, double Bps, sf_topo_origin origin)
{
    if (Bps > 0) {
        json_object_set_new(o, "Bps", json_real(Bps));
        set_text(o, "origin", sf_topo_origin_name(origin));
    }
}

static json_t *node_json(const sf_topology *t, const sf_topo_node *node)
{
    json_t *o = json_object();
    set_text(o, "name", node->name);
    set_text(o, "kind", sf_topo_kind_name(node->kind));
    if (node->parent >= 0)
        set_text(o, "parent", t->nodes[node->parent].name);
    set_int(o, "ordinal", node->ordinal, -1);
    set_int(o, "numa", node->numa, -1);
    set_text(o, "device", node->device);
    set_text(o, "busid", node->busid);
    set_text(o, "cpus", node->cpus);
    set_int(o, "sm", node->sm, 0);
    if (node->kind == SF_TOPO_NIC && node->net != SF_NET_UNKNOWN)
        set_text(o, "network", sf_topo_net_name(node->net));
    if (node->gbit > 0) {
        json_object_set_new(o, "gbit_per_s", json_real(node->gbit));
        set_text(o, "origin", sf_topo_origin_name(node->gbit_origin));
    }
    return o;
}

static json_t *link_json(const sf_topology *t, const sf_topo_link *link)
{
    json_t *o = json_object();
    set_text(o, "a", t->nodes[link->a].name);
    set_text(o, "b", t->nodes[link->b].name);
    set_text(o, "type", sf_topo_link_name(link->type));
    json_object_set_new(o, "count", json_integer(link->count));
    set_int(o, "generation", link->generation, 0);
    set_int(o, "lanes", link->lanes, 0);
    set_rate(o, link->Bps, link->origin);
    return o;
}

/* "NV12", "NV12/SYS" when the PCIe path is reported as well, "PIX", "?" */
static void add_cell(sf_text *out, const sf_topo_cell *cell)
{
    if (cell->path == SF_PATH_NVLINK) {
        sf_text_add(out, cell->links > 0 ? "NV%d" : "NV", cell->links);
        if (cell->pcie != SF_PATH_UNKNOWN)
            sf_text_add(out, "/%s", sf_topo_path_name(cell->pcie));
    } else {
        sf_text_add(out, "%s", sf_topo_path_name(cell->path));
    }
}

static json_t *host_json(const sf_topology *t, int h)
{
    const sf_topo_host *host = &t->hosts[h];
    int n = host->gpu_count + host->nic_count;
    json_t *o = json_object(), *gpus = json_array(), *nics = json_array(), *nodes = json_array(), *links = json_array();
    set_text(o, "name", host->name);
    json_object_set_new(o, "count", json_integer(host->count));
    for (int i = 0; i < host->gpu_count; i++)
        json_array_append_new(gpus, json_string(t->nodes[host->gpus[i]].name));
    for (int i = 0; i < host->nic_count; i++)
        json_array_append_new(nics, json_string(t->nodes[host->nics[i]].name));
    for (size_t i = 0; i < t->node_count; i++)
        if (t->nodes[i].host == h)
            json_array_append_new(nodes, node_json(t, &t->nodes[i]));
    for (size_t i = 0; i < t->link_count; i++)
        if (t->nodes[t->links[i].a].host == h && t->links[i].type != SF_TOPO_LINK_NETWORK)
            json_array_append_new(links, link_json(t, &t->links[i]));
    json_object_set_new(o, "gpus", gpus);
    json_object_set_new(o, "nics", nics);
    set_text(o, "direct_link", sf_topo_link_name(host->gpu_link));
    set_text(o, "direct_link_name", host->gpu_link_name);
    if (host->direct_unstated)
        json_object_set_new(o, "direct_links_unstated", json_true());
    json_object_set_new(o, "nodes", nodes);
    json_object_set_new(o, "links", links);
    if (host->reported != NULL) {
        json_t *rows = json_array();
        for (int i = 0; i < n; i++) {
            sf_text row = { 0 };
            for (int j = 0; j < n; j++) {
                sf_text_add(&row, j == 0 ? "" : " ");
                add_cell(&row, &host->reported[i * n + j]);
            }
            json_array_append_new(rows, json_string(sf_text_str(&row)));
            sf_text_free(&row);
        }
        json_object_set_new(o, "paths", rows);
    }
    return o;
}

static json_t *network_json(const sf_topology *t)
{
    json_t *o = json_object(), *switches = json_array(), *links = json_array();
    for (size_t i = 0; i < t->node_count; i++)
        if (t->nodes[i].kind == SF_TOPO_NET_SWITCH)
            json_array_append_new(switches, json_string(t->nodes[i].name));
    for (size_t i = 0; i < t->link_count; i++) {
        const sf_topo_link *link = &t->links[i];
        if (link->type != SF_TOPO_LINK_NETWORK)
            continue;
        json_t *l = json_object();
        json_object_set_new(l, "host", json_integer(t->nodes[link->a].host));
        set_text(l, "nic", t->nodes[link->a].name);
        set_text(l, "switch", t->nodes[link->b].name);
        set_rate(l, link->Bps, link->origin);
        json_array_append_new(links, l);
    }
    json_object_set_new(o, "switches", switches);
    json_object_set_new(o, "links", links);
    return o;
}

void sf_topology_json(const sf_topology *t, sf_text *out)
{
    json_t *root = json_object(), *hosts = json_array(), *warnings = json_array();
    set_text(root, "schema", "shardfit-topology-1");
    set_text(root, "source", t->source);
    json_object_set_new(root, "rails", json_boolean(t->rails));
    for (size_t h = 0; h < t->host_count; h++)
        json_array_append_new(hosts, host_json(t, (int)h));
    for (size_t i = 0; i < t->warning_count; i++)
        json_array_append_new(warnings, json_string(t->warnings[i]));
    json_object_set_new(root, "hosts", hosts);
    json_object_set_new(root, "network", network_json(t));
    json_object_set_new(root, "warnings", warnings);
    char *text = json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
    if (text != NULL)
        sf_text_add(out, "%s\n", text);
    free(text);
    json_decref(root);
}

/* ---- reading ---- */

typedef struct {
    sf_topology *t;
    sf_arena *arena;
    const char *name;
    int host, first_node; /* of the host being read */
} reader;

#define FAIL(r, ...) sf_status_prefix(SF_FAIL(SF_EPARSE, __VA_ARGS__), "'%s'", (r)->name)

static sf_status get_text(const reader *r, const json_t *o, const char *where, const char *key, const char **out)
{
    const json_t *v = json_object_get(o, key);
    *out = "";
    if (v == NULL)
        return SF_SUCCESS;
    if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v))
        return FAIL(r, "%s.%s should be a string", where, key);
    *out = sf_topo_plain(r->arena, json_string_value(v));
    return SF_SUCCESS;
}

static sf_status get_int(const reader *r, const json_t *o, const char *where, const char *key, int missing, int most, int *out)
{
    const json_t *v = json_object_get(o, key);
    *out = missing;
    if (v == NULL)
        return SF_SUCCESS;
    if (!json_is_integer(v) || json_integer_value(v) < -1 || json_integer_value(v) > most)
        return FAIL(r, "%s.%s should be a whole number up to %d", where, key, most);
    *out = (int)json_integer_value(v);
    return SF_SUCCESS;
}

static sf_status get_real(const reader *r, const json_t *o, const char *where, const char *key, double *out)
{
    const json_t *v = json_object_get(o, key);
    *out = v == NULL ? 0 : json_number_value(v);
    if (v != NULL && (!json_is_number(v) || !(*out >= 0 && *out < 1e18)))
        return FAIL(r, "%s.%s should be a number of zero or more", where, key);
    return SF_SUCCESS;
}

/* A word of a list of names. */
static sf_status get_word(const reader *r, const json_t *o, const char *where, const char *key, int count,
                          const char *(*name_of)(const reader *r, int i), int missing, int *out)
{
    const char *text;
    SF_TRY(get_text(r, o, where, key, &text));
    *out = missing;
    for (int i = 0; text[0] != '\0' && i < count; i++) {
        if (strcmp(text, name_of(r, i)) == 0) {
            *out = i;
            return SF_SUCCESS;
        }
    }
    if (text[0] != '\0' || missing < 0) {
        const char **names = SF_NEW_ARRAY(r->arena, const char *, count);
        for (int i = 0; i < count; i++)
            names[i] = name_of(r, i);
        return FAIL(r, "%s.%s is '%.60s'; did you mean %.200s?", where, key, text, sf_str_nearest(text, names, (size_t)count, r->arena));
    }
    return SF_SUCCESS;
}

static const char *kind_word(const reader *r, int i)
{
    (void)r;
    return sf_topo_kind_name((sf_topo_kind)i);
}

static const char *link_word(const reader *r, int i)
{
    (void)r;
    return sf_topo_link_name((sf_topo_link_type)i);
}

static const char *origin_word(const reader *r, int i)
{
    (void)r;
    return sf_topo_origin_name((sf_topo_origin)i);
}

static const char *net_word(const reader *r, int i)
{
    (void)r;
    return sf_topo_net_name((sf_topo_net)i);
}

static int find_node(const reader *r, const char *name)
{
    for (size_t i = (size_t)r->first_node; i < r->t->node_count; i++)
        if (strcmp(r->t->nodes[i].name, name) == 0)
            return (int)i;
    return -1;
}

static sf_status get_node(const reader *r, const json_t *o, const char *where, const char *key, int *out)
{
    const char *name;
    SF_TRY(get_text(r, o, where, key, &name));
    *out = find_node(r, name);
    return *out < 0 ? FAIL(r, "%s.%s names '%.60s', which is no node before it", where, key, name) : SF_SUCCESS;
}

static sf_status read_node(const reader *r, const json_t *o, const char *where)
{
    int kind, parent = -1, net, origin;
    const char *name;
    double gbit;
    if (!json_is_object(o))
        return FAIL(r, "%s should be an object", where);
    SF_TRY(get_word(r, o, where, "kind", SF_TOPO_KIND_COUNT, kind_word, -1, &kind));
    SF_TRY(get_text(r, o, where, "name", &name));
    if (name[0] == '\0' || find_node(r, name) >= 0)
        return FAIL(r, "%s.name '%.60s' is %s", where, name, name[0] == '\0' ? "empty" : "taken by another node of the host");
    if (json_object_get(o, "parent") != NULL)
        SF_TRY(get_node(r, o, where, "parent", &parent));
    int at = sf_topo_add_node(r->t, r->arena, (sf_topo_kind)kind, r->host, parent, name);
    sf_topo_node *node = &r->t->nodes[at];
    SF_TRY(get_int(r, o, where, "ordinal", -1, 1 << 20, &node->ordinal));
    SF_TRY(get_int(r, o, where, "numa", -1, 1 << 20, &node->numa));
    SF_TRY(get_text(r, o, where, "device", &node->device));
    SF_TRY(get_text(r, o, where, "busid", &node->busid));
    SF_TRY(get_text(r, o, where, "cpus", &node->cpus));
    SF_TRY(get_int(r, o, where, "sm", 0, 10000, &node->sm));
    SF_TRY(get_word(r, o, where, "network", SF_NET_COUNT, net_word, SF_NET_UNKNOWN, &net));
    SF_TRY(get_real(r, o, where, "gbit_per_s", &gbit));
    SF_TRY(get_word(r, o, where, "origin", SF_ORIGIN_COUNT, origin_word, gbit > 0 ? SF_ORIGIN_REPORTED : SF_ORIGIN_UNKNOWN, &origin));
    node->net = (sf_topo_net)net;
    node->gbit = gbit;
    node->gbit_origin = (sf_topo_origin)origin;
    return SF_SUCCESS;
}

static sf_status read_rate(const reader *r, const json_t *o, const char *where, sf_topo_link *link)
{
    int origin;
    SF_TRY(get_real(r, o, where, "Bps", &link->Bps));
    SF_TRY(get_word(r, o, where, "origin", SF_ORIGIN_COUNT, origin_word, link->Bps > 0 ? SF_ORIGIN_REPORTED : SF_ORIGIN_UNKNOWN, &origin));
    link->origin = link->Bps > 0 ? (sf_topo_origin)origin : SF_ORIGIN_UNKNOWN;
    return SF_SUCCESS;
}

static sf_status read_link(const reader *r, const json_t *o, const char *where)
{
    int type, a, b;
    if (!json_is_object(o))
        return FAIL(r, "%s should be an object", where);
    SF_TRY(get_word(r, o, where, "type", SF_TOPO_LINK_COUNT, link_word, -1, &type));
    SF_TRY(get_node(r, o, where, "a", &a));
    SF_TRY(get_node(r, o, where, "b", &b));
    if (a == b)
        return FAIL(r, "%s joins '%.60s' to itself", where, r->t->nodes[a].name);
    sf_topo_link *link = sf_topo_add_link(r->t, r->arena, (sf_topo_link_type)type, a, b);
    SF_TRY(get_int(r, o, where, "count", 1, 10000, &link->count));
    SF_TRY(get_int(r, o, where, "generation", 0, 100, &link->generation));
    SF_TRY(get_int(r, o, where, "lanes", 0, 1000, &link->lanes));
    if (link->count < 0 || link->generation < 0 || link->lanes < 0)
        return FAIL(r, "%s has a negative number", where);
    return read_rate(r, o, where, link);
}

static bool read_cell(const char **p, sf_topo_cell *out)
{
    size_t n = strcspn(*p, " ");
    char word[24];
    *out = (sf_topo_cell){ SF_PATH_COUNT, SF_PATH_UNKNOWN, 0 };
    if (n == 0 || n >= sizeof word)
        return false;
    memcpy(word, *p, n);
    word[n] = '\0';
    *p += n + ((*p)[n] == ' ');
    char *slash = strchr(word, '/');
    if (slash != NULL)
        *slash = '\0';
    for (int i = 0; i < SF_PATH_COUNT; i++) {
        if (strcmp(word, sf_topo_path_name((sf_topo_path_type)i)) == 0)
            out->path = (unsigned char)i;
        if (slash != NULL && strcmp(slash + 1, sf_topo_path_name((sf_topo_path_type)i)) == 0)
            out->pcie = (unsigned char)i;
    }
    if (out->path == SF_PATH_COUNT && word[0] == 'N' && word[1] == 'V') {
        char *end;
        long links = strtol(word + 2, &end, 10);
        if (*end == '\0' && links > 0 && links < 1000)
            *out = (sf_topo_cell){ SF_PATH_NVLINK, out->pcie, (short)links };
    }
    return out->path != SF_PATH_COUNT;
}

static sf_status read_paths(const reader *r, const json_t *rows, const char *where)
{
    sf_topo_host *host = &r->t->hosts[r->host];
    size_t n = (size_t)(host->gpu_count + host->nic_count);
    if (!json_is_array(rows) || json_array_size(rows) != n)
        return FAIL(r, "%s.paths should have one row for each of the %zu GPUs and NICs", where, n);
    sf_topo_cell *cells = SF_NEW_ARRAY(r->arena, sf_topo_cell, n * n);
    for (size_t i = 0; i < n; i++) {
        const char *p = json_string_value(json_array_get(rows, i));
        for (size_t j = 0; j < n; j++)
            if (p == NULL || !read_cell(&p, &cells[i * n + j]))
                return FAIL(r, "%s.paths[%zu] should have %zu words such as X, NV12 or SYS; word %zu is none", where, i, n, j + 1);
        if (*p != '\0')
            return FAIL(r, "%s.paths[%zu] has more than %zu words", where, i, n);
    }
    host->reported = cells;
    return SF_SUCCESS;
}

/* "gpus" and "nics" give the order; each must name all nodes of its kind. */
static sf_status read_order(const reader *r, const json_t *o, const char *where, const char *key, int *list, int count)
{
    const json_t *names = json_object_get(o, key);
    if (names == NULL)
        return SF_SUCCESS;
    if (!json_is_array(names) || json_array_size(names) != (size_t)count)
        return FAIL(r, "%s.%s should name the %d nodes of that kind", where, key, count);
    for (int i = 0; i < count; i++) {
        const char *name = json_string_value(json_array_get(names, (size_t)i));
        int found = i;
        while (found < count && (name == NULL || strcmp(r->t->nodes[list[found]].name, name) != 0))
            found++;
        if (found == count)
            return FAIL(r, "%s.%s[%d] is no node of that kind, or names one twice", where, key, i);
        int swap = list[found];
        list[found] = list[i];
        list[i] = swap;
    }
    return SF_SUCCESS;
}

static sf_status read_host(reader *r, const json_t *o, int index)
{
    char where[64], at[96];
    const char *name, *link_name;
    const json_t *nodes = json_object_get(o, "nodes"), *links = json_object_get(o, "links"), *paths = json_object_get(o, "paths");
    int count, type;
    snprintf(where, sizeof where, "hosts[%d]", index);
    if (!json_is_object(o) || !json_is_array(nodes) || (links != NULL && !json_is_array(links)))
        return FAIL(r, "%s should be an object with arrays 'nodes' and 'links'", where);
    SF_TRY(get_text(r, o, where, "name", &name));
    r->host = sf_topo_add_host(r->t, r->arena, name);
    r->first_node = (int)r->t->node_count;
    SF_TRY(get_int(r, o, where, "count", 1, 1 << 20, &count));
    if (count < 1)
        return FAIL(r, "%s.count should be 1 or more", where);
    SF_TRY(get_word(r, o, where, "direct_link", SF_TOPO_LINK_COUNT, link_word, SF_TOPO_LINK_NVLINK, &type));
    SF_TRY(get_text(r, o, where, "direct_link_name", &link_name));
    if (json_array_size(nodes) > 4 * SF_TOPO_MOST_DEVICES)
        return FAIL(r, "%s has more than %d nodes", where, 4 * SF_TOPO_MOST_DEVICES);
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        snprintf(at, sizeof at, "%s.nodes[%zu]", where, i);
        SF_TRY(read_node(r, json_array_get(nodes, i), at));
    }
    for (size_t i = 0; i < json_array_size(links); i++) {
        snprintf(at, sizeof at, "%s.links[%zu]", where, i);
        SF_TRY(read_link(r, json_array_get(links, i), at));
    }
    sf_topo_list_devices(r->t, r->arena, r->host);
    sf_topo_host *host = &r->t->hosts[r->host];
    host->count = count;
    host->gpu_link = (sf_topo_link_type)type;
    host->direct_unstated = json_is_true(json_object_get(o, "direct_links_unstated"));
    if (link_name[0] != '\0')
        host->gpu_link_name = link_name;
    if (host->gpu_count + host->nic_count > SF_TOPO_MOST_DEVICES)
        return FAIL(r, "%s has more than %d GPUs and NICs", where, SF_TOPO_MOST_DEVICES);
    SF_TRY(read_order(r, o, where, "gpus", host->gpus, host->gpu_count));
    SF_TRY(read_order(r, o, where, "nics", host->nics, host->nic_count));
    return paths == NULL ? SF_SUCCESS : read_paths(r, paths, where);
}

static sf_status read_network(reader *r, const json_t *o)
{
    const json_t *switches = json_object_get(o, "switches"), *links = json_object_get(o, "links");
    if (o == NULL)
        return SF_SUCCESS;
    if (!json_is_array(switches) || !json_is_array(links) || json_array_size(switches) > 4 * SF_TOPO_MOST_DEVICES)
        return FAIL(r, "network should be an object with arrays 'switches' and 'links'");
    int first = (int)r->t->node_count, hosts = (int)r->t->host_count;
    for (size_t i = 0; i < json_array_size(switches); i++) {
        const char *name = json_string_value(json_array_get(switches, i));
        if (name == NULL)
            return FAIL(r, "network.switches[%zu] should be a string", i);
        int node = sf_topo_add_node(r->t, r->arena, SF_TOPO_NET_SWITCH, -1, -1, name);
        r->t->nodes[node].ordinal = (int)i;
    }
    for (size_t i = 0; i < json_array_size(links); i++) {
        const json_t *l = json_array_get(links, i);
        char where[64];
        const char *nic;
        int host, to, from = -1;
        snprintf(where, sizeof where, "network.links[%zu]", i);
        SF_TRY(get_int(r, l, where, "host", -1, hosts - 1, &host));
        SF_TRY(get_text(r, l, where, "nic", &nic));
        for (int k = 0; host >= 0 && k < r->t->hosts[host].nic_count; k++)
            if (strcmp(r->t->nodes[r->t->hosts[host].nics[k]].name, nic) == 0)
                from = r->t->hosts[host].nics[k];
        r->first_node = first;
        SF_TRY(get_node(r, l, where, "switch", &to));
        if (from < 0)
            return FAIL(r, "%s.nic '%.60s' is no NIC of host %d", where, nic, host);
        SF_TRY(read_rate(r, l, where, sf_topo_add_link(r->t, r->arena, SF_TOPO_LINK_NETWORK, from, to)));
    }
    return SF_SUCCESS;
}

static sf_status read_root(reader *r, const json_t *root)
{
    const char *schema, *source;
    const json_t *hosts = json_object_get(root, "hosts"), *warnings = json_object_get(root, "warnings");
    SF_TRY(get_text(r, root, "the file", "schema", &schema));
    if (strcmp(schema, "shardfit-topology-1") != 0)
        return FAIL(r, "the JSON is no topology: \"schema\" should be \"shardfit-topology-1\"%s%.60s%s", schema[0] ? ", not \"" : "", schema,
                    schema[0] ? "\"" : "");
    SF_TRY(get_text(r, root, "the file", "source", &source));
    r->t = sf_topo_new(r->arena, source[0] != '\0' ? source : "JSON");
    if (!json_is_array(hosts) || json_array_size(hosts) == 0 || json_array_size(hosts) > SF_TOPO_MOST_HOSTS)
        return FAIL(r, "\"hosts\" should be an array of 1 to %d hosts", SF_TOPO_MOST_HOSTS);
    for (size_t i = 0; i < json_array_size(hosts); i++)
        SF_TRY(read_host(r, json_array_get(hosts, i), (int)i));
    SF_TRY(read_network(r, json_object_get(root, "network")));
    r->t->rails = json_is_true(json_object_get(root, "rails"));
    for (size_t i = 0; i < json_array_size(warnings); i++)
        if (json_is_string(json_array_get(warnings, i)))
            sf_topo_warn(r->t, r->arena, 0, "%s", json_string_value(json_array_get(warnings, i)));
    return SF_SUCCESS;
}

sf_status sf_topology_read_json(const char *text, size_t len, const char *name, sf_arena *arena, sf_topology **out)
{
    json_error_t error;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL)
        return SF_FAIL(SF_EPARSE, "'%s', line %d, column %d: not well-formed JSON: %s", name, error.line, error.column, error.text);
    reader r = { .arena = arena, .name = name };
    sf_status st = read_root(&r, root);
    json_decref(root);
    if (st.code == SF_OK)
        *out = r.t;
    return st;
}
