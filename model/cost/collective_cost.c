#include "model/cost/collective_cost.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "model/base/text.h"
#include "model/cost/collective_cost_profile.h"
#include "model/cost/nccl_plan.h"

static const struct {
    const char *name, *program, *redop;
} collectives[] = {
#define SF_AS_ROW(id, name, program, redop) { name, program, redop },
    SF_COLLECTIVES(SF_AS_ROW)
#undef SF_AS_ROW
};

static const char *const algos[] = {
#define SF_AS_NAME(id, name, protos) name,
    SF_NCCL_ALGOS(SF_AS_NAME)
#undef SF_AS_NAME
    "P2P", "none",
};

static const char *const protos[] = { "LL", "LL128", "Simple" };

static const char *const links[] = {
#define SF_AS_NAME(id, name, says) name,
    SF_INTRA_LINKS(SF_AS_NAME)
#undef SF_AS_NAME
};

static const char *const nics[] = {
#define SF_AS_NAME(id, name) name,
    SF_NIC_KINDS(SF_AS_NAME)
#undef SF_AS_NAME
};

const char *sf_collective_name(sf_collective op)
{
    return collectives[op].name;
}

const char *sf_collective_program(sf_collective op)
{
    return collectives[op].program;
}

const char *sf_collective_redop(sf_collective op)
{
    return collectives[op].redop;
}

sf_collective sf_collective_by_name(const char *name)
{
    char given[64], known[64];
    sf_str_squash(name, given, sizeof given);
    for (int i = 0; i < SF_COLL_COUNT; i++) {
        sf_str_squash(collectives[i].name, known, sizeof known);
        if (strcmp(given, known) == 0)
            return (sf_collective)i;
        sf_str_squash(collectives[i].program, known, sizeof known);
        if (strcmp(given, known) == 0)
            return (sf_collective)i;
        size_t bare = strlen(known) - strlen("perf");
        if (strlen(given) == bare && memcmp(given, known, bare) == 0)
            return (sf_collective)i;
    }
    return SF_COLL_COUNT;
}

const char *sf_nccl_algo_name(sf_nccl_algo algo)
{
    return algos[algo];
}

const char *sf_nccl_proto_name(sf_nccl_proto proto)
{
    return protos[proto];
}

const char *sf_intra_link_name(sf_intra_link link)
{
    return links[link];
}

const char *sf_nic_kind_name(sf_nic_kind kind)
{
    return nics[kind];
}

static int index_of(const char *const *names, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (sf_str_ieq(names[i], name))
            return i;
    return count;
}

static unsigned mask_of(const char *const *names, int count, const char *list)
{
    unsigned mask = 0;
    bool negated = *list == '^';
    for (const char *at = list + negated; *at != '\0';) {
        size_t n = strcspn(at, ",");
        char word[32];
        if (n >= sizeof word)
            return 0;
        memcpy(word, at, n);
        word[n] = '\0';
        int i = index_of(names, count, word);
        if (i == count)
            return 0;
        mask |= 1u << i;
        at += n + (at[n] == ',');
    }
    return negated ? ((1u << count) - 1) & ~mask : mask;
}

unsigned sf_nccl_algos_of(const char *list)
{
    return mask_of(algos, SF_ALGO_COUNT, list);
}

unsigned sf_nccl_protos_of(const char *list)
{
    return mask_of(protos, SF_PROTO_COUNT, list);
}

typedef struct {
    const char *name;
    int value;
} alias;

static int by_name(const char *const *names, int count, const alias *aliases, int n_aliases, const char *name)
{
    int found = index_of(names, count, name);
    for (int i = 0; i < n_aliases && found == count; i++)
        if (sf_str_ieq(aliases[i].name, name))
            found = aliases[i].value;
    return found;
}

sf_intra_link sf_intra_link_by_name(const char *name)
{
    static const alias other[] = { { "pcie", SF_INTRA_PCIE_CPU }, { "switch", SF_INTRA_PCIE_SWITCH }, { "pxb", SF_INTRA_PCIE_SWITCH },
                                   { "node", SF_INTRA_PCIE_SOCKETS }, { "host", SF_INTRA_SHM } };
    return (sf_intra_link)by_name(links, SF_INTRA_COUNT, other, sizeof other / sizeof other[0], name);
}

sf_nic_kind sf_nic_kind_by_name(const char *name)
{
    static const alias other[] = { { "infiniband", SF_NIC_IB }, { "cxi", SF_NIC_SLINGSHOT }, { "tcpxo", SF_NIC_FASTRAK },
                                   { "ethernet", SF_NIC_TCP }, { "socket", SF_NIC_TCP } };
    return (sf_nic_kind)by_name(nics, SF_NIC_COUNT, other, sizeof other / sizeof other[0], name);
}

double sf_collective_busbw_factor(sf_collective op, int ranks)
{
    double n = ranks;
    switch (op) {
    case SF_COLL_ALL_REDUCE: return 2 * (n - 1) / n;
    case SF_COLL_ALL_GATHER:
    case SF_COLL_REDUCE_SCATTER:
    case SF_COLL_ALL_TO_ALL:
    case SF_COLL_GATHER:
    case SF_COLL_SCATTER: return (n - 1) / n;
    default: return 1;
    }
}

sf_comm_group sf_comm_group_world(const sf_comm_fabric *f)
{
    return (sf_comm_group){ .ranks = f->gpus_per_node * f->nodes, .ranks_per_node = f->gpus_per_node, .concurrent_groups = 1 };
}

static sf_status model_plan(const sf_comm_fabric *fabric, const sf_comm_group *group, const sf_nccl_physics *physics,
                            sf_comm_plan *out)
{
    SF_TRY(sf_comm_fabric_check(fabric));
    SF_TRY(sf_comm_group_check(fabric, group));
    *out = (sf_comm_plan){ .fabric = *fabric, .group = *group };
    sf_nccl_shape_of(fabric, group, &out->shape);
    if (group->ranks == 1)
        return SF_SUCCESS;

    for (int a = 0; a < SF_ALGO_COUNT; a++)
        sf_nccl_graph_of(fabric, &out->shape, (sf_nccl_algo)a, &out->graphs[a]);
    sf_nccl_tuning_make(fabric, &out->shape, out->graphs, &out->tuning);
    for (int op = 0; op < SF_NCCL_TUNED; op++)
        for (int a = 0; a < SF_ALGO_COUNT; a++)
            for (int p = 0; p < SF_PROTO_COUNT; p++)
                if (out->tuning.of[op][a][p].algbw_GBs > 0)
                    sf_nccl_timing_of(physics, fabric, &out->shape, &out->tuning.of[op][a][p], (sf_collective)op,
                                      (sf_nccl_algo)a, (sf_nccl_proto)p, &out->tuned[op][a][p]);
    for (int op = SF_NCCL_TUNED; op < SF_COLL_COUNT; op++)
        sf_nccl_timing_of(physics, fabric, &out->shape, NULL, (sf_collective)op, SF_ALGO_P2P,
                          SF_PROTO_SIMPLE, &out->p2p[op]);
    return SF_SUCCESS;
}

static void model_time(const sf_comm_plan *plan, sf_collective op, double bytes, sf_collective_cost *out)
{
    const sf_nccl_timing *timing;
    const sf_nccl_graph *graph;
    if ((int)op < SF_NCCL_TUNED) {
        out->nccl_time_s = 1e-6 * sf_nccl_choose(&plan->tuning, op, bytes, &out->algo, &out->proto);
        timing = &plan->tuned[op][out->algo][out->proto];
        graph = &plan->graphs[out->algo];
        out->channels = sf_nccl_channels(out->algo, out->proto, graph->exec_channels, plan->group.ranks, bytes);
    } else {
        timing = &plan->p2p[op];
        out->algo = SF_ALGO_P2P;
        out->proto = bytes / plan->group.ranks <= 16384 ? SF_PROTO_LL : SF_PROTO_SIMPLE; /* NCCL_P2P_LL_THRESHOLD */
        out->channels = plan->graphs[SF_ALGO_RING].exec_channels;
        out->nccl_time_s = 0;
    }
    out->time_s = sf_nccl_timing_s(timing, bytes);
    out->latency_s = sf_nccl_timing_s(timing, 0);
    out->intra_bytes = timing->intra_share * bytes;
    out->nic_bytes = timing->nic_share * bytes;
}

static double model_seconds(const sf_comm_plan *plan, sf_collective op, double bytes)
{
    sf_collective_cost cost;
    model_time(plan, op, bytes, &cost);
    return cost.time_s;
}

/* The correction of the model for `op` that another curve of the same machine suggests. */
static void bend_after(sf_comm_plan *plan, const sf_nccl_physics *physics, sf_collective op, const sf_collective_curve *curve)
{
    sf_comm_fabric fabric = plan->fabric;
    sf_comm_group group = { .ranks = curve->ranks, .ranks_per_node = (curve->ranks + curve->nodes - 1) / curve->nodes,
                            .concurrent_groups = 1 };
    sf_comm_plan other;
    fabric.nodes = curve->nodes > fabric.nodes ? curve->nodes : fabric.nodes;
    if (model_plan(&fabric, &group, physics, &other).code != SF_OK)
        return; /* the profile is of another kind of machine */
    plan->bend[op].n = curve->n;
    for (int i = 0; i < curve->n; i++) {
        plan->bend[op].bytes[i] = curve->bytes[i];
        plan->bend[op].log_ratio[i] = log(curve->time_s[i] / model_seconds(&other, curve->op, curve->bytes[i]));
    }
}

static double bent(const sf_comm_plan *plan, sf_collective op, double bytes)
{
    int n = plan->bend[op].n;
    const double *x = plan->bend[op].bytes, *y = plan->bend[op].log_ratio;
    if (n == 0)
        return 1;
    if (bytes <= x[0])
        return exp(y[0]);
    for (int i = 1; i < n; i++)
        if (bytes <= x[i])
            return exp(y[i - 1] + (y[i] - y[i - 1]) * log(bytes / x[i - 1]) / log(x[i] / x[i - 1]));
    return exp(y[n - 1]);
}

sf_status sf_comm_plan_make(const sf_comm_fabric *fabric, const sf_comm_group *group, const sf_nccl_physics *physics,
                            const sf_collective_profile *profile, sf_comm_plan *out)
{
    if (physics == NULL)
        physics = sf_nccl_physics_default();
    SF_TRY(model_plan(fabric, group, physics, out));
    if (profile == NULL || group->ranks == 1)
        return SF_SUCCESS;
    int nodes = group->ranks / group->ranks_per_node;
    for (int op = 0; op < SF_COLL_COUNT; op++) {
        out->measured[op] = group->concurrent_groups == 1 ? sf_collective_profile_find(profile, (sf_collective)op, group->ranks, nodes) : NULL;
        const sf_collective_curve *near = sf_collective_profile_nearest(profile, (sf_collective)op, group->ranks, nodes);
        if (out->measured[op] == NULL && near != NULL)
            bend_after(out, physics, (sf_collective)op, near);
    }
    return SF_SUCCESS;
}

void sf_comm_plan_time(const sf_comm_plan *plan, sf_collective op, uint64_t total_bytes, sf_collective_cost *out)
{
    assert((int)op >= 0 && op < SF_COLL_COUNT);
    *out = (sf_collective_cost){ .algo = SF_ALGO_NONE, .proto = SF_PROTO_SIMPLE };
    if (plan->group.ranks == 1 || total_bytes == 0)
        return;
    model_time(plan, op, (double)total_bytes, out);
    if (plan->measured[op] != NULL) {
        out->time_s = sf_collective_curve_time(plan->measured[op], (double)total_bytes);
        out->from_profile = true;
    } else if (plan->bend[op].n > 0) {
        out->time_s *= bent(plan, op, (double)total_bytes);
        out->from_profile = true;
    }
    out->algbw_Bps = (double)total_bytes / out->time_s;
    out->busbw_Bps = out->algbw_Bps * sf_collective_busbw_factor(op, plan->group.ranks);
}

sf_status sf_collective_time(const sf_comm_fabric *fabric, const sf_comm_group *group, sf_collective op,
                             uint64_t total_bytes, sf_collective_cost *out)
{
    sf_comm_plan plan;
    SF_TRY(sf_comm_plan_make(fabric, group, NULL, NULL, &plan));
    sf_comm_plan_time(&plan, op, total_bytes, out);
    return SF_SUCCESS;
}
