#include "model/cost/nccl_physics.h"

#include <math.h>

#include "model/cost/nccl_tuning.h"

static const sf_nccl_physics defaults = { {
#define X(id, value, origin) value,
#include "model/cost/nccl_constants.def"
#undef X
} };

static const char *const names[] = {
#define X(id, value, origin) #id,
#include "model/cost/nccl_constants.def"
#undef X
};

static const char *const origins[] = {
#define X(id, value, origin) origin,
#include "model/cost/nccl_constants.def"
#undef X
};

const sf_nccl_physics *sf_nccl_physics_default(void)
{
    return &defaults;
}

const char *sf_nccl_constant_name(sf_nccl_constant constant)
{
    return names[constant];
}

const char *sf_nccl_constant_origin(sf_nccl_constant constant)
{
    return origins[constant];
}

typedef struct {
    const double *v;
    const sf_comm_fabric *f;
    const sf_nccl_shape *s;
    const sf_nccl_estimate *nccl;
    int family; /* 0 V, 1 A, 2 H, 3 B: the order of the rows of a class */
    sf_collective op;
    sf_nccl_algo algo;
    sf_nccl_proto proto;
} context;

static double of_family(const context *c, sf_nccl_constant first)
{
    return c->v[first + c->family];
}

/* NIC rows come in sixes, in the order of SF_NIC_KINDS. */
enum { NIC_EFF, NIC_LL_US, NIC_LL128_US, NIC_SIMPLE_US, NIC_TREE_RAMP_US, NIC_RAMP_US, NIC_COLUMNS };
static double of_nic(const context *c, int column)
{
    return c->v[SF_NCCL_IB_EFF + NIC_COLUMNS * (int)c->f->nic + column];
}

/* GB/s that one GPU really sends inside the node. */
static double link_GBs(const context *c, sf_nccl_constant nvlink_efficiency)
{
    double sheet = c->s->gpu_GBs;
    if (c->s->nvlink)
        return sheet * of_family(c, nvlink_efficiency);
    switch (c->f->intra) {
    case SF_INTRA_PCIE_CPU: return sheet * c->v[SF_NCCL_PHB_EFF];
    case SF_INTRA_PCIE_SOCKETS: return sheet * c->v[SF_NCCL_SYS_EFF];
    case SF_INTRA_SHM: {
        int sharers = c->f->gpus_per_uplink < c->s->local_ranks ? c->f->gpus_per_uplink : c->s->local_ranks;
        return sheet * c->v[SF_NCCL_SHM_EFF] / (sharers > 0 ? sharers : 1);
    }
    default: return sheet * c->v[SF_NCCL_PIX_EFF];
    }
}

/* GB/s that the group really sends out of one node. */
static double node_nic_GBs(const context *c)
{
    double per_nic = c->s->nic_GBs * of_nic(c, NIC_EFF);
    if (c->f->nic == SF_NIC_TCP)
        per_nic = fmin(per_nic, c->v[SF_NCCL_TCP_NIC_MAX_GBS]);
    double all = per_nic * (c->s->nic_GBs > 0 ? c->s->node_nic_GBs / c->s->nic_GBs : 0);
    int senders = c->s->nics < c->s->local_ranks ? c->s->nics : c->s->local_ranks;
    if (!c->f->gpudirect)
        all = fmin(all, senders * sf_pcie_sheet_GBs(c->f->pcie_gen, c->f->pcie_lanes) * c->v[SF_NCCL_STAGED_EFF]);
    if (c->s->local_ranks == 1 && c->family > 0)
        all = fmin(all, 2 * c->v[SF_NCCL_LONE_CHANNEL_A_GBS + c->family - 1]);
    return all;
}

/* NCCL before 2.18 was slower with small and medium sizes. */
static bool old(const context *c)
{
    return c->f->nccl_version > 0 && c->f->nccl_version < 21800;
}

static double intra_hop_us(const context *c)
{
    double more = old(c) ? c->v[SF_NCCL_OLD_STEP_US] : 0;
    if (!c->s->nvlink)
        return c->proto == SF_PROTO_SIMPLE ? c->v[SF_NCCL_PCI_SIMPLE_HOP_US] : c->v[SF_NCCL_PCI_LL_HOP_US];
    switch (c->proto) {
    case SF_PROTO_LL: return of_family(c, SF_NCCL_LL_HOP_V_US);
    case SF_PROTO_LL128: return of_family(c, SF_NCCL_LL128_HOP_V_US) + more;
    default: return of_family(c, SF_NCCL_SIMPLE_HOP_V_US) + more;
    }
}

/* The hand-over that hides behind data; only Simple waits for whole slices. */
static double intra_gap_us(const context *c)
{
    return c->s->nvlink && c->proto == SF_PROTO_SIMPLE ? of_family(c, SF_NCCL_SIMPLE_GAP_V_US) : 0;
}

static double net_hop_us(const context *c)
{
    return of_nic(c, NIC_LL_US + (int)c->proto);
}

static int log2_ceil(int x)
{
    int result = 0;
    for (int reach = 1; reach < x; reach *= 2)
        result++;
    return result;
}

typedef struct {
    double intra_hops, net_hops;
    double intra, nic;      /* bytes per byte of S: leaving a GPU by its link, a node by its NICs */
    double intra_GBs;
} course;

/* Trees are made of chains inside the node; two trees carry half of the data each. */
static double tree_nic_share(int nodes)
{
    return nodes <= 1 ? 0 : nodes == 2 ? 1 : nodes == 3 ? 1.5 : 2;
}

static course course_of(const context *c)
{
    double n = c->s->ranks, k = c->s->nodes, r = c->s->local_ranks;
    course way = { .intra_GBs = link_GBs(c, SF_NCCL_RING_EFF_V) };
    bool reduces_all = c->op == SF_COLL_ALL_REDUCE;

    switch (c->algo) {
    case SF_ALGO_TREE:
        way.intra_hops = 2 * (r - 1);
        way.net_hops = 2 * log2_ceil((int)k);
        way.intra = r > 1 ? 2 : 0;
        way.nic = tree_nic_share((int)k);
        way.intra_GBs *= c->v[c->s->nvlink ? SF_NCCL_TREE_EFF : SF_NCCL_TREE_EFF_PCI];
        break;
    case SF_ALGO_NVLS:
    case SF_ALGO_NVLS_TREE:
        way.net_hops = k > 1 ? 2 * log2_ceil((int)k) : 0;
        way.intra = reduces_all ? 1 + 1 / r : 1;
        way.nic = tree_nic_share((int)k);
        way.intra_GBs = c->s->gpu_GBs * (c->s->local_ranks > c->f->gpus_per_node ? c->v[SF_NCCL_NVLS_EFF_RACK]
                                         : c->family == 3 ? c->v[SF_NCCL_NVLS_EFF_B] : c->v[SF_NCCL_NVLS_EFF_H]);
        break;
    case SF_ALGO_COLLNET_DIRECT:
    case SF_ALGO_COLLNET_CHAIN: /* the switches of the network reduce: a node sends S once */
        way.intra_hops = c->algo == SF_ALGO_COLLNET_CHAIN ? 2 * (r - 1) : 2;
        way.net_hops = 2;
        way.intra = reduces_all ? 2 * (r - 1) / r : (r - 1) / r;
        way.nic = 1;
        break;
    case SF_ALGO_PAT:
        way.net_hops = log2_ceil((int)n);
        way.nic = (n - 1) / n;
        break;
    default: { /* rings */
        double steps = reduces_all ? 2 * (n - 1) : n - 1;
        double crossings = k > 1 ? (reduces_all ? 2 * (k - 1) : k - 1) : 0;
        double share = c->op == SF_COLL_BROADCAST || c->op == SF_COLL_REDUCE ? 1 : steps / n;
        double own = reduces_all ? c->v[SF_NCCL_LOCAL_COPY_AR]
                   : c->op == SF_COLL_ALL_GATHER || c->op == SF_COLL_REDUCE_SCATTER ? c->v[SF_NCCL_LOCAL_COPY] : 0;
        way.intra_hops = steps - crossings;
        way.net_hops = crossings;
        way.intra = r > 1 ? share + (c->s->nvlink ? own / n : 0) : 0;
        way.nic = k > 1 ? share : 0;
        break;
    }
    }
    return way;
}

/* Seconds per byte of S: link and NIC at once, the slower decides. */
static double wire_s_per_byte(const context *c, const course *way)
{
    double link = way->intra > 0 ? way->intra / (way->intra_GBs * 1e9) : 0;
    double nic = way->nic > 0 ? way->nic / (node_nic_GBs(c) * 1e9) : 0;
    double slow = fmax(link, nic), fast = fmin(link, nic), norm = c->v[SF_NCCL_BOTTLENECK_NORM];
    if (slow <= 0)
        return 0;
    return slow * pow(1 + pow(fast / slow, norm), 1 / norm);
}

/* LL and LL128 reach less than the wire: NCCL's own figure times what was measured of it. */
static double protocol_s_per_byte(const context *c, const course *way)
{
    double wire = wire_s_per_byte(c, way), eff = 1;
    if (c->proto == SF_PROTO_SIMPLE)
        return wire;
    if (c->proto == SF_PROTO_LL128)
        return fmax(wire * 128 / 120, c->s->nodes > 1 ? 0 : 1 / (1e9 * c->nccl->algbw_GBs * of_family(c, SF_NCCL_LL128_EFF_V)));
    if (c->s->nodes > 1)
        eff = c->v[c->s->nvlink || c->s->local_ranks == 1 ? SF_NCCL_NET_LL_EFF : SF_NCCL_PCI_NET_LL_EFF];
    else if (c->s->nvlink)
        eff = old(c) ? c->v[SF_NCCL_OLD_LL_EFF] : of_family(c, SF_NCCL_LL_EFF_V);
    else
        return fmax(wire * 2 / c->v[SF_NCCL_PCI_LL_EFF], way->intra / (1e9 * c->v[SF_NCCL_PCI_LL_MAX_GBS]));
    return fmax(2 * wire, 1 / (1e9 * c->nccl->algbw_GBs * eff));
}

static context context_of(const sf_nccl_physics *physics, const sf_comm_fabric *f, const sf_nccl_shape *s)
{
    return (context){ .v = physics->value, .f = f, .s = s,
                      .family = f->sm >= 100 ? 3 : f->sm >= 90 ? 2 : f->sm >= 80 ? 1 : 0 };
}

static void add_ramp(sf_nccl_timing *t, double us, double half_MiB)
{
    t->ramp[t->ramps].s = 1e-6 * us;
    t->ramp[t->ramps].half_bytes = half_MiB * 1048576;
    t->ramps++;
}

/* Grouped sends and receives: what one GPU, or the root, sends. */
static void p2p_timing(context *c, sf_nccl_timing *out)
{
    double n = c->s->ranks, r = c->s->local_ranks, k = c->s->nodes;
    double local = (r - 1) / n, remote = (n - r) / n, own = c->s->nvlink ? c->v[SF_NCCL_P2P_OWN_COPY] / n : 0;
    course way = { .intra_GBs = link_GBs(c, SF_NCCL_P2P_EFF_V) };
    switch (c->op) {
    case SF_COLL_SEND_RECV: /* to the next rank: inside the node but for the last of each */
        way.intra = r > 1 ? 1 : 0;
        way.nic = k > 1 ? 1 : 0;
        way.net_hops = k > 1 ? 1 : 0;
        break;
    case SF_COLL_GATHER:
    case SF_COLL_SCATTER: /* the root's link carries all but its own part */
        way.intra = r > 1 ? local + own : 0;
        way.nic = k > 1 ? remote : 0;
        way.net_hops = k > 1 ? 1 : 0;
        break;
    default:
        way.intra = r > 1 ? local + own : 0;
        way.nic = k > 1 ? r * remote : 0;
        way.net_hops = k > 1 ? 1 : 0;
        break;
    }
    if (!c->s->nvlink) { /* what goes to the NIC leaves the GPU by the same slot */
        out->fixed_s += 1e-6 * c->v[SF_NCCL_PCI_SIMPLE_HOP_US];
        if (c->op == SF_COLL_ALL_TO_ALL && r > 1)
            way.intra += remote;
    } else {
        out->gap_s = 1e-6 * of_family(c, SF_NCCL_P2P_GAP_V_US);
        if (way.intra > 0)
            add_ramp(out, of_family(c, SF_NCCL_RING_RAMP_V_US), c->v[SF_NCCL_RING_RAMP_MIB] / way.intra);
    }
    out->fixed_s += 1e-6 * (way.net_hops * of_nic(c, NIC_LL_US));
    out->s_per_byte = wire_s_per_byte(c, &way);
    out->intra_share = way.intra;
    out->nic_share = way.nic;
}

void sf_nccl_timing_of(const sf_nccl_physics *physics, const sf_comm_fabric *f, const sf_nccl_shape *s,
                       const sf_nccl_estimate *nccl, sf_collective op, sf_nccl_algo algo, sf_nccl_proto proto, sf_nccl_timing *out)
{
    context c = context_of(physics, f, s);
    c.op = op;
    c.algo = algo;
    c.proto = proto;
    c.nccl = nccl;
    *out = (sf_nccl_timing){ .fixed_s = 1e-6 * of_family(&c, SF_NCCL_LAUNCH_V_US) };
    if (f->gpus_per_process > 1)
        out->launch_min_s = 1e-6 * f->gpus_per_process * c.v[SF_NCCL_PROCESS_GPU_US];
    if (algo == SF_ALGO_P2P) {
        p2p_timing(&c, out);
        return;
    }

    course way = course_of(&c);
    double hop = intra_hop_us(&c);
    if (s->nodes > 1 && algo == SF_ALGO_RING)
        hop = fmax(hop, c.v[SF_NCCL_NET_STEP_US] * (proto == SF_PROTO_SIMPLE ? 3 : 1));
    double us = way.intra_hops * hop + way.net_hops * net_hop_us(&c);
    if (algo == SF_ALGO_NVLS || algo == SF_ALGO_NVLS_TREE) {
        us += c.v[c.family == 3 ? SF_NCCL_NVLS_US_B : SF_NCCL_NVLS_US_H];
        add_ramp(out, c.v[s->local_ranks > f->gpus_per_node ? SF_NCCL_NVLS_RAMP_RACK_US : SF_NCCL_NVLS_RAMP_US], c.v[SF_NCCL_NVLS_RAMP_MIB]);
    } else if (algo == SF_ALGO_RING && proto == SF_PROTO_SIMPLE && s->nvlink && way.intra > 0) {
        add_ramp(out, of_family(&c, SF_NCCL_RING_RAMP_V_US), c.v[SF_NCCL_RING_RAMP_MIB] / way.intra);
    }
    out->fixed_s += 1e-6 * us;
    out->gap_s = 1e-6 * way.intra_hops * intra_gap_us(&c);
    if (s->nodes > 1 && f->nic == SF_NIC_TCPX)
        out->gap_s += 1e-6 * c.v[SF_NCCL_TCPX_GAP_US];
    out->intra_share = way.intra;
    out->nic_share = way.nic;
    out->s_per_byte = protocol_s_per_byte(&c, &way);
    if (s->nodes > 1) {
        bool tree = algo == SF_ALGO_TREE || algo == SF_ALGO_NVLS_TREE;
        add_ramp(out, of_nic(&c, NIC_RAMP_US) + (f->gpudirect ? 0 : c.v[SF_NCCL_STAGED_RAMP_US]), .25);
        if (tree && proto == SF_PROTO_SIMPLE)
            add_ramp(out, of_nic(&c, NIC_TREE_RAMP_US), 8);
    }
}

double sf_nccl_timing_s(const sf_nccl_timing *t, double bytes)
{
    double wire = bytes * t->s_per_byte;
    double s = t->fixed_s + (t->gap_s > 0 ? sqrt(t->gap_s * t->gap_s + wire * wire) : wire);
    for (int i = 0; i < t->ramps; i++)
        s += t->ramp[i].s * bytes / (bytes + t->ramp[i].half_bytes);
    return s > t->launch_min_s ? s : t->launch_min_s;
}
