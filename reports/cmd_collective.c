/* reports/cmd_collective.c: `shardfit collective OP`: time, algbw and busbw over message sizes, in
 * nccl-tests' columns; with --against a real log beside it. */
#include <argp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/base/text.h"
#include "model/base/units.h"
#include "model/cost/collective_cost_profile.h"
#include "model/cost/nccl_log.h"
#include "model/cost/nccl_plan.h"
#include "reports/commands.h"
#include "reports/output.h"

enum { OPT_NIC = 1000, OPT_GDR, OPT_CPU, OPT_PCIE, OPT_DOMAIN, OPT_GROUP, OPT_GROUPS, OPT_NCCL, OPT_ALGO, OPT_PROTO, OPT_STEP, OPT_AGAINST };

typedef struct {
    const char *op, *gpu, *link, *nic, *cpu, *gpudirect, *nccl, *algo, *proto, *sizes, *step, *against, *profile;
    int gpus, nodes, nics, pcie_gen, domain, ranks_per_node, groups;
    double gbit;
    bool json;
    sf_status st;
} arguments;

static const struct argp_option options[] = {
    { "gpu", 'g', "NAME", 0, "the GPU, by any name the catalogue knows (default: the one LOG names)", 0 },
    { "gpus", 'n', "N", 0, "GPUs of one node (default: as LOG tells, else 8)", 0 },
    { "nodes", 'k', "K", 0, "nodes (default: as LOG tells, else 1)", 0 },
    { "link", 'l', "KIND", 0, "between GPUs of a node: nvswitch, nvlink, pairs, pix, phb (or pcie), sys, shm, c2c; shm:2 when two share an uplink", 0 },
    { "nics", 'i', "N", 0, "NICs of one node", 0 },
    { "gbit", 'b', "G", 0, "Gb/s of one NIC", 0 },
    { "nic", OPT_NIC, "KIND", 0, "ib, roce, efa, slingshot, tcpx, fastrak or tcp (default: as LOG tells, else the kind of a cloud with such NICs, else ib)", 0 },
    { "gpudirect", OPT_GDR, "yes|no", 0, "does the NIC read GPU memory", 0 },
    { "cpu", OPT_CPU, "VENDOR", 0, "intel, amd, arm or power", 0 },
    { "pcie-gen", OPT_PCIE, "N", 0, "PCIe generation of the slots, 1 to 7", 0 },
    { "domain", OPT_DOMAIN, "N", 0, "GPUs that NVLink joins, across nodes (72 for NVL72)", 0 },
    { "ranks-per-node", OPT_GROUP, "R", 0, "only R GPUs of each node are in the group (default: all)", 0 },
    { "groups", OPT_GROUPS, "M", 0, "groups like it per node at once (default 1)", 0 },
    { "nccl", OPT_NCCL, "VERSION", 0, "NCCL version, for example 2.27.3 (default: as LOG tells, else the newest known)", 0 },
    { "algo", OPT_ALGO, "LIST", 0, "as NCCL_ALGO: only these, for example Ring,Tree or ^NVLS", 0 },
    { "proto", OPT_PROTO, "LIST", 0, "as NCCL_PROTO: LL,LL128,Simple", 0 },
    { "sizes", 's', "FROM:TO", 0, "whole-array sizes, for example 1M:1G (default 1K:1G, or those of LOG)", 0 },
    { "step-factor", OPT_STEP, "F", 0, "from one size to the next (default 2)", 0 },
    { "against", OPT_AGAINST, "LOG", 0, "put the rows of an nccl-tests log (or table of latencies) beside the prediction", 0 },
    { "profile", 'p', "FILE", 0, "measured collectives; they override the model", 0 },
    { "json", 'j', 0, 0, "print the rows as JSON", 0 },
    { 0 },
};

static int to_int(arguments *a, const char *option, const char *text, int low, int high)
{
    char *end;
    long n = strtol(text, &end, 10);
    if ((end == text || *end != '\0' || n < low || n > high) && a->st.code == SF_OK)
        a->st = SF_FAIL(SF_EINVAL, "%s '%s': give a whole number from %d to %d", option, text, low, high);
    return (int)n;
}

static double to_rate(arguments *a, const char *option, const char *text)
{
    char *end;
    double x = strtod(text, &end);
    if ((end == text || *end != '\0' || !(x > 0) || !isfinite(x)) && a->st.code == SF_OK)
        a->st = SF_FAIL(SF_EINVAL, "%s '%s': give a positive number", option, text);
    return x;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    arguments *a = state->input;
    switch (key) {
    case 'g': a->gpu = arg; return 0;
    case 'n': a->gpus = to_int(a, "--gpus", arg, 1, 4096); return 0;
    case 'k': a->nodes = to_int(a, "--nodes", arg, 1, 1 << 20); return 0;
    case 'l': a->link = arg; return 0;
    case 'i': a->nics = to_int(a, "--nics", arg, 1, 1024); return 0;
    case 'b': a->gbit = to_rate(a, "--gbit", arg); return 0;
    case OPT_NIC: a->nic = arg; return 0;
    case OPT_GDR: a->gpudirect = arg; return 0;
    case OPT_CPU: a->cpu = arg; return 0;
    case OPT_PCIE: a->pcie_gen = to_int(a, "--pcie-gen", arg, 1, 7); return 0;
    case OPT_DOMAIN: a->domain = to_int(a, "--domain", arg, 1, 4096); return 0;
    case OPT_GROUP: a->ranks_per_node = to_int(a, "--ranks-per-node", arg, 1, 4096); return 0;
    case OPT_GROUPS: a->groups = to_int(a, "--groups", arg, 1, 4096); return 0;
    case OPT_NCCL: a->nccl = arg; return 0;
    case OPT_ALGO: a->algo = arg; return 0;
    case OPT_PROTO: a->proto = arg; return 0;
    case 's': a->sizes = arg; return 0;
    case OPT_STEP: a->step = arg; return 0;
    case OPT_AGAINST: a->against = arg; return 0;
    case 'p': a->profile = arg; return 0;
    case 'j': a->json = true; return 0;
    case ARGP_KEY_ARG:
        if (a->op != NULL)
            argp_error(state, "one collective only; '%s' is a second", arg);
        a->op = arg;
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* Everything that a run of the command works with. */
typedef struct {
    const arguments *a;
    sf_arena arena;
    sf_collective op;
    sf_gpu gpu;
    sf_comm_fabric fabric;
    sf_comm_group group;
    sf_comm_plan plan;
    sf_nccl_log log;        /* n_rows == 0: none */
    sf_collective_profile profile;
} command;

typedef struct {
    uint64_t bytes;
    sf_collective_cost cost;
    const sf_nccl_log_row *measured; /* NULL: none */
} row;

static sf_status read_collective(command *c)
{
    const arguments *a = c->a;
    c->op = SF_COLL_COUNT;
    if (a->op != NULL && (c->op = sf_collective_by_name(a->op)) == SF_COLL_COUNT) {
        const char *names[SF_COLL_COUNT];
        for (int i = 0; i < SF_COLL_COUNT; i++)
            names[i] = sf_collective_name((sf_collective)i);
        return SF_FAIL(SF_EINVAL, "unknown collective '%s'; did you mean %s?", a->op, sf_str_nearest(a->op, names, SF_COLL_COUNT, &c->arena));
    }
    if (a->against != NULL) {
        SF_TRY(sf_nccl_log_read(a->against, c->op, &c->arena, &c->log));
        for (size_t i = 0; i < c->log.n_warnings; i++)
            fprintf(stderr, "shardfit: %s\n", c->log.warnings[i]);
        if (c->op == SF_COLL_COUNT)
            c->op = c->log.op;
    }
    if (c->op != SF_COLL_COUNT)
        return SF_SUCCESS;
    return a->against == NULL ? SF_FAIL(SF_EINVAL, "name the collective, for example all_reduce, or give a log by --against")
                              : SF_FAIL(SF_EINVAL, "%s does not tell which collective it is, or has several; name one, for example all_reduce", a->against);
}

/* Ranks and nodes: as given, else as the log tells. "--gpus 16 --nodes 2" beside a log of 16 ranks is
 * read as all 16. */
static sf_status read_size(command *c)
{
    const arguments *a = c->a;
    int ranks = c->log.n_rows > 0 ? c->log.ranks : 0;
    int nodes = a->nodes > 0 ? a->nodes : c->log.n_rows > 0 && c->log.nodes > 0 ? c->log.nodes : 1;
    int gpus = a->gpus;
    if (gpus > 0 && nodes > 1 && ranks == gpus && gpus % nodes == 0) {
        fprintf(stderr, "shardfit: the log has %d ranks on %d nodes: taken as %d GPUs of each\n", ranks, nodes, gpus / nodes);
        gpus /= nodes;
    }
    if (gpus == 0 && ranks > 0) {
        if (a->nodes == 0 && c->log.nodes == 0)
            return SF_FAIL(SF_EINVAL, "%s does not tell how its %d ranks lie on nodes; give --nodes", a->against, ranks);
        if (ranks % nodes != 0)
            return SF_FAIL(SF_EINVAL, "%d ranks of %s do not spread evenly over %d nodes; give --gpus and --nodes", ranks, a->against, nodes);
        gpus = ranks / nodes;
    }
    c->fabric.gpus_per_node = gpus > 0 ? gpus : 8;
    c->fabric.nodes = nodes;
    return SF_SUCCESS;
}

static sf_status read_link(command *c)
{
    const char *text = c->a->link, *colon = text == NULL ? NULL : strchr(text, ':');
    if (text == NULL) {
        if (c->log.shm)
            c->fabric.intra = SF_INTRA_SHM;
        return SF_SUCCESS;
    }
    if (sf_str_ieq(text, "auto"))
        return SF_SUCCESS;
    const char *name = colon == NULL ? text : sf_arena_strndup(&c->arena, text, (size_t)(colon - text));
    c->fabric.intra = sf_intra_link_by_name(name);
    if (c->fabric.intra == SF_INTRA_COUNT)
        return SF_FAIL(SF_EINVAL, "--link '%s': give nvswitch, nvlink, pairs, pix, phb, sys, shm or c2c", text);
    if (colon != NULL && (c->fabric.gpus_per_uplink = atoi(colon + 1)) < 1)
        return SF_FAIL(SF_EINVAL, "--link '%s': after the colon stands how many GPUs share an uplink, as in shm:2", text);
    return SF_SUCCESS;
}

static sf_status read_network(command *c)
{
    const arguments *a = c->a;
    sf_comm_fabric *f = &c->fabric;
    if (a->nics > 0)
        f->nics_per_node = a->nics;
    else if (c->log.nics > 0)
        f->nics_per_node = c->log.nics;
    if (a->gbit > 0)
        f->nic_gbit = a->gbit;
    f->nic = c->log.n_rows > 0 && c->log.nic >= 0 ? (sf_nic_kind)c->log.nic : sf_nic_kind_of_layout(&c->gpu, f->nics_per_node, f->nic_gbit);
    if (a->nic != NULL && (f->nic = sf_nic_kind_by_name(a->nic)) == SF_NIC_COUNT)
        return SF_FAIL(SF_EINVAL, "--nic '%s': give ib, roce, efa, slingshot, tcpx, fastrak or tcp", a->nic);
    if (c->log.n_rows > 0 && c->log.gpudirect == 0)
        f->gpudirect = false;
    if (a->gpudirect != NULL) {
        if (!sf_str_ieq(a->gpudirect, "yes") && !sf_str_ieq(a->gpudirect, "no"))
            return SF_FAIL(SF_EINVAL, "--gpudirect '%s': give yes or no", a->gpudirect);
        f->gpudirect = sf_str_ieq(a->gpudirect, "yes");
    }
    return SF_SUCCESS;
}

static sf_status read_software(command *c)
{
    static const char *const vendors[SF_CPU_COUNT] = { "intel", "amd", "arm", "power" };
    const arguments *a = c->a;
    sf_comm_fabric *f = &c->fabric;
    int major = 0, minor = 0, patch = 0;
    if (a->nccl != NULL && sscanf(a->nccl, "%3d.%3d.%3d", &major, &minor, &patch) < 2)
        return SF_FAIL(SF_EINVAL, "--nccl '%s': give a version such as 2.27.3", a->nccl);
    if (a->nccl != NULL)
        f->nccl_version = major * 10000 + minor * 100 + patch;
    else if (c->log.n_rows > 0)
        f->nccl_version = c->log.nccl_version > 0 ? c->log.nccl_version : c->log.old_columns ? 21200 : 0;
    if (c->log.gpus_per_process > 1)
        f->gpus_per_process = c->log.gpus_per_process;
    f->algos = c->log.algos;
    f->protos = c->log.protos;
    if (a->algo != NULL && (f->algos = sf_nccl_algos_of(a->algo)) == 0)
        return SF_FAIL(SF_EINVAL, "--algo '%s': give Tree, Ring, CollNetDirect, CollNetChain, NVLS, NVLSTree or PAT, with commas", a->algo);
    if (a->proto != NULL && (f->protos = sf_nccl_protos_of(a->proto)) == 0)
        return SF_FAIL(SF_EINVAL, "--proto '%s': give LL, LL128 or Simple, with commas", a->proto);
    if (f->algos >> SF_ALGO_COLLNET_DIRECT & 3 && a->algo != NULL)
        f->collnet = true;
    if (a->cpu != NULL) {
        int v = 0;
        while (v < SF_CPU_COUNT && !sf_str_ieq(a->cpu, vendors[v]))
            v++;
        if (v == SF_CPU_COUNT)
            return SF_FAIL(SF_EINVAL, "--cpu '%s': give intel, amd, arm or power", a->cpu);
        f->cpu = (sf_cpu_vendor)v;
    }
    return SF_SUCCESS;
}

static sf_status read_fabric(command *c)
{
    const arguments *a = c->a;
    const char *name = a->gpu != NULL ? a->gpu : c->log.n_rows > 0 ? c->log.gpu : "";
    if (name[0] == '\0')
        return SF_FAIL(SF_EINVAL, "name the GPU by --gpu%s", a->against != NULL ? "; the log does not tell it" : "");
    SF_TRY(sf_gpu_find(name, 0, &c->arena, &c->gpu));
    SF_TRY(read_size(c));
    sf_comm_fabric_make(&c->gpu, c->fabric.gpus_per_node, c->fabric.nodes, &c->fabric);
    if (a->pcie_gen > 0)
        c->fabric.pcie_gen = a->pcie_gen;
    if (a->domain > 0)
        c->fabric.domain_gpus = a->domain;
    SF_TRY(read_link(c));
    SF_TRY(read_network(c));
    SF_TRY(read_software(c));
    int per_node = a->ranks_per_node > 0 ? a->ranks_per_node : c->fabric.gpus_per_node;
    c->group = (sf_comm_group){ .ranks = per_node * c->fabric.nodes, .ranks_per_node = per_node, .concurrent_groups = a->groups > 0 ? a->groups : 1 };
    if (a->profile != NULL)
        SF_TRY(sf_collective_profile_read(a->profile, &c->arena, &c->profile));
    return sf_comm_plan_make(&c->fabric, &c->group, NULL, a->profile != NULL ? &c->profile : NULL, &c->plan);
}

static sf_status read_sizes(const arguments *a, uint64_t *from, uint64_t *to, double *factor)
{
    *from = SF_KIB;
    *to = SF_GIB;
    *factor = 2;
    if (a->step != NULL) {
        char *end;
        *factor = strtod(a->step, &end);
        if (*end != '\0' || !(*factor > 1) || !(*factor < 1e6))
            return SF_FAIL(SF_EINVAL, "--step-factor '%s': give a number above 1", a->step);
    }
    if (a->sizes == NULL)
        return SF_SUCCESS;
    char first[32];
    const char *colon = strchr(a->sizes, ':');
    size_t n = colon == NULL ? strlen(a->sizes) : (size_t)(colon - a->sizes);
    if (n >= sizeof first)
        return SF_FAIL(SF_EINVAL, "--sizes '%s': give them as 1M:1G", a->sizes);
    memcpy(first, a->sizes, n);
    first[n] = '\0';
    SF_TRY(sf_bytes_parse(first, from));
    *to = *from;
    if (colon != NULL)
        SF_TRY(sf_bytes_parse(colon + 1, to));
    if (*from == 0 || *to < *from || *to > (uint64_t)1 << 50)
        return SF_FAIL(SF_EINVAL, "--sizes '%s': from 1 byte to 1 PiB, the smaller first", a->sizes);
    return SF_SUCCESS;
}

/* The rows to print: the log's sizes within --sizes, else a sweep. */
static sf_status make_rows(command *c, row **out, size_t *n_out)
{
    uint64_t from, to;
    double factor;
    row *rows = NULL;
    size_t n = 0, cap = 0;
    SF_TRY(read_sizes(c->a, &from, &to, &factor));
    if (c->log.n_rows > 0) {
        for (size_t i = 0; i < c->log.n_rows; i++) {
            const sf_nccl_log_row *r = &c->log.rows[i];
            bool fits = r->op == c->op && (r->ranks == 0 || r->ranks == c->group.ranks || c->log.ranks > 0);
            if (fits && (c->a->sizes == NULL || (r->bytes >= from && r->bytes <= to)))
                SF_PUSH(&c->arena, rows, n, cap) = (row){ .bytes = r->bytes, .measured = r };
        }
        if (n == 0)
            return SF_FAIL(SF_EINVAL, "%s has no %s of %d ranks%s", c->a->against, sf_collective_name(c->op), c->group.ranks,
                           c->a->sizes != NULL ? " with such sizes" : "");
    } else {
        if (log((double)to / (double)from) / log(factor) > 10000)
            return SF_FAIL(SF_EINVAL, "--step-factor %s gives more than 10000 rows; give a larger one", c->a->step);
        for (double bytes = (double)from; bytes <= (double)to; bytes *= factor)
            SF_PUSH(&c->arena, rows, n, cap) = (row){ .bytes = (uint64_t)(bytes + .5) };
    }
    for (size_t i = 0; i < n; i++)
        sf_comm_plan_time(&c->plan, c->op, rows[i].bytes, &rows[i].cost);
    *out = rows;
    *n_out = n;
    return SF_SUCCESS;
}

static double busbw_error(const row *r)
{
    return r->measured->time_s / r->cost.time_s - 1;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

typedef struct {
    size_t rows, large;
    double median, p90;      /* of |busbw error| at 1 MiB and more; NAN without such rows */
    double worst_small;      /* factor between the times below 1 MiB                      */
} errors;

static errors errors_of(const row *rows, size_t n, sf_arena *arena)
{
    errors e = { .rows = n, .median = NAN, .p90 = NAN, .worst_small = 1 };
    double *large = SF_NEW_ARRAY(arena, double, n);
    for (size_t i = 0; i < n; i++) {
        double ratio = 1 + busbw_error(&rows[i]);
        if (rows[i].bytes >= SF_MIB)
            large[e.large++] = fabs(ratio - 1);
        else
            e.worst_small = fmax(e.worst_small, fmax(ratio, 1 / ratio));
    }
    if (e.large > 0) {
        qsort(large, e.large, sizeof *large, ascending);
        e.median = large[(e.large - 1) / 2];
        e.p90 = large[(size_t)(.9 * (double)(e.large - 1) + .5)];
    }
    return e;
}

static void print_head(const command *c)
{
    const sf_comm_fabric *f = &c->fabric;
    printf("# %s of %d ranks, %d on each of %d node(s) of %d %s\n", sf_collective_name(c->op), c->group.ranks, c->group.ranks_per_node,
           c->group.ranks / c->group.ranks_per_node, f->gpus_per_node, c->gpu.name);
    printf("# within a node: %s", sf_intra_link_name(f->intra));
    if (c->plan.shape.nvlink)
        printf(", %.0f GB/s each way", c->plan.shape.gpu_GBs);
    else
        printf(", PCIe %d x%d", f->pcie_gen, f->pcie_lanes);
    if (c->plan.shape.nodes > 1)
        printf("; between: %d x %.0f Gb/s %s%s", f->nics_per_node, f->nic_gbit, sf_nic_kind_name(f->nic), f->gpudirect ? "" : " without GPUDirect");
    if (f->nccl_version > 0)
        printf("; NCCL %d.%d.%d", f->nccl_version / 10000, f->nccl_version / 100 % 100, f->nccl_version % 100);
    printf("%s\n", c->a->profile != NULL ? "; corrected by what was measured" : "");
}

static void print_rows(const command *c, const row *rows, size_t n)
{
    bool measured = c->log.n_rows > 0;
    printf("#%12s%14s%10s%8s%12s%10s%10s  %-12s%-7s%4s", "size", "count", "type", "redop", "time", "algbw", "busbw", "algo", "proto", "ch");
    printf("%s\n#%12s%14s%10s%8s%12s%10s%10s  %-12s%-7s%4s", measured ? "    measured     busbw     error" : "", "(B)", "(elements)", "", "", "(us)", "(GB/s)", "(GB/s)", "", "", "");
    printf("%s\n", measured ? "        (us)    (GB/s)       (%)" : "");
    for (size_t i = 0; i < n; i++) {
        const row *r = &rows[i];
        const char *type = r->measured != NULL ? r->measured->type : "float";
        uint64_t width = r->measured == NULL || strcmp(type, "float") == 0 ? 4 : strcmp(type, "half") == 0 || strcmp(type, "bfloat16") == 0 ? 2 : strcmp(type, "double") == 0 ? 8 : 1;
        printf(" %12llu%14llu%10s%8s%12.2f%10.2f%10.2f  %-12s%-7s%4d", (unsigned long long)r->bytes, (unsigned long long)(r->bytes / width),
               type, sf_collective_redop(c->op), r->cost.time_s * 1e6, r->cost.algbw_Bps / 1e9, r->cost.busbw_Bps / 1e9,
               sf_nccl_algo_name(r->cost.algo), sf_nccl_proto_name(r->cost.proto), r->cost.channels);
        if (r->measured != NULL)
            printf("%12.2f%10.2f%+10.1f", r->measured->time_s * 1e6,
                   r->measured->algbw_Bps * sf_collective_busbw_factor(c->op, c->group.ranks) / 1e9, 100 * busbw_error(r));
        printf("\n");
    }
}

static void print_text(command *c, const row *rows, size_t n)
{
    print_head(c);
    print_rows(c, rows, n);
    if (c->log.n_rows == 0)
        return;
    errors e = errors_of(rows, n, &c->arena);
    if (e.large > 0)
        printf("# busbw against %s: %zu rows of 1 MiB and more, error median %.1f %%, p90 %.1f %%\n", c->a->against, e.large, 100 * e.median, 100 * e.p90);
    if (e.large < e.rows)
        printf("# smaller sizes: %zu rows, times within a factor of %.2f\n", e.rows - e.large, e.worst_small);
}

static json_t *json_of(command *c, const row *rows, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        const row *r = &rows[i];
        json_t *o = json_pack("{s:I, s:f, s:f, s:f, s:s, s:s, s:i, s:f, s:f, s:f, s:b}", "bytes", (json_int_t)r->bytes, "time_s", r->cost.time_s,
                              "algbw_Bps", r->cost.algbw_Bps, "busbw_Bps", r->cost.busbw_Bps, "algo", sf_nccl_algo_name(r->cost.algo), "proto",
                              sf_nccl_proto_name(r->cost.proto), "channels", r->cost.channels, "latency_s", r->cost.latency_s,
                              "intra_bytes_per_gpu", r->cost.intra_bytes, "nic_bytes_per_node", r->cost.nic_bytes, "measured_profile",
                              r->cost.from_profile);
        if (r->measured != NULL) {
            json_object_set_new(o, "measured_time_s", json_real(r->measured->time_s));
            json_object_set_new(o, "measured_busbw_Bps", json_real(r->measured->algbw_Bps * sf_collective_busbw_factor(c->op, c->group.ranks)));
            json_object_set_new(o, "busbw_error", json_real(busbw_error(r)));
        }
        json_array_append_new(list, o);
    }
    json_t *root = json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:s, s:o}", "schema", "shardfit-collective-1", "collective", sf_collective_name(c->op),
                             "gpu", c->gpu.name, "ranks", c->group.ranks, "ranks_per_node", c->group.ranks_per_node, "nodes",
                             c->group.ranks / c->group.ranks_per_node, "link", sf_intra_link_name(c->fabric.intra), "rows", list);
    if (c->fabric.nodes > 1)
        json_object_set_new(root, "network", json_pack("{s:s, s:i, s:f, s:b}", "kind", sf_nic_kind_name(c->fabric.nic), "nics_per_node",
                                                       c->fabric.nics_per_node, "gbit_per_nic", c->fabric.nic_gbit, "gpudirect", c->fabric.gpudirect));
    if (c->log.n_rows > 0) {
        errors e = errors_of(rows, n, &c->arena);
        json_t *o = json_pack("{s:s, s:I, s:f}", "log", c->a->against, "rows_of_1MiB_and_more", (json_int_t)e.large, "worst_factor_below_1MiB", e.worst_small);
        if (e.large > 0) {
            json_object_set_new(o, "median", json_real(e.median));
            json_object_set_new(o, "p90", json_real(e.p90));
        }
        json_object_set_new(root, "errors", o);
    }
    return root;
}

static sf_status run(command *c)
{
    row *rows = NULL;
    size_t n = 0;
    SF_TRY(read_collective(c));
    SF_TRY(read_fabric(c));
    SF_TRY(make_rows(c, &rows, &n));
    if (c->a->json) {
        json_t *root = json_of(c, rows, n);
        sf_print_json(root);
        json_decref(root);
    } else {
        print_text(c, rows, n);
    }
    return SF_SUCCESS;
}

int sf_cmd_collective(int argc, char **argv)
{
    static const struct argp argp = { options, parse, "OP",
                                      "Predicts the time, algbw and busbw of a collective (all_reduce, all_gather, reduce_scatter, broadcast, reduce, "
                                      "all_to_all, send_recv, gather, scatter) over message sizes, in nccl-tests' columns.", NULL, NULL, NULL };
    arguments a = { .st = SF_SUCCESS };
    command c = { .a = &a };
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    sf_status st = a.st.code != SF_OK ? a.st : run(&c);
    sf_arena_free(&c.arena);
    return st.code == SF_OK ? SF_EXIT_DONE : sf_cmd_fail(st);
}
