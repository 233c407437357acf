#include "model/cost/nccl_tuning.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>

enum { VOLTA, AMPERE, HOPPER, BLACKWELL, FAMILY_COUNT };
enum { HW_NVLINK, HW_PCI, HW_NET, HW_COUNT };

typedef struct {
    int since; /* version */
    double base[SF_ALGO_COUNT][SF_PROTO_COUNT];            /* us: LL, LL128, Simple */
    double hw[HW_COUNT][SF_ALGO_COUNT][SF_PROTO_COUNT];    /* us per step           */
} latency_table;

/* Rows in the order of SF_NCCL_ALGOS: Tree, Ring, CollNetDirect, CollNetChain, NVLS, NVLSTree, PAT. */
static const latency_table latencies[] = {
    { .since = 22300, /* v2.23.4 to v2.30.7 */
      .base = { { 6.8, 14, 8.4 }, { 6.6, 14, 8.4 }, { 0 }, { 0 }, { 0 }, { 0 }, { 8, 8, 8 } },
      .hw = { { { .6, 1.25, 4 }, { .6, 1.9, 3.4 }, { 0, 0, 3.7 }, { 0, 0, 2.8 }, { 0, 0, 25 }, { 0, 0, 25 }, { 0, 0, 4 } },
              { { 1, 1.9, 4 }, { 1, 2.5, 5.7 }, { 0, 0, 3.7 }, { 0, 0, 2.8 }, { 0 }, { 0 }, { 0, 0, 4 } },
              { { 5, 8.5, 14 }, { 2.7, 4, 14 }, { 0, 0, 31 }, { 0, 0, 30 }, { 0, 0, 18 }, { 0, 0, 20.9 }, { 0, 0, 14 } } } },
    { .since = 21800, /* v2.21.5 */
      .base = { { 6.8, 14, 0 }, { 6.6, 14, 8.4 }, { 0 }, { 0 }, { 0 }, { 0 }, { 0 } },
      .hw = { { { .6, 1.25, 28 }, { .6, 1.9, 3.4 }, { 0, 0, 3.7 }, { 0, 0, 2.8 }, { 0, 0, 25 }, { 0, 0, 25 }, { 0 } },
              { { 1, 1.9, 28 }, { 1, 2.5, 5.7 }, { 0, 0, 3.7 }, { 0, 0, 2.8 }, { 0 }, { 0 }, { 0 } },
              { { 5, 8.5, 28 }, { 2.7, 4, 14 }, { 0, 0, 31 }, { 0, 0, 30 }, { 0, 0, 18 }, { 0, 0, 14 }, { 0 } } } },
    { .since = 0, /* v2.12.12 */
      .base = { { 4.4, 4.4, 0 }, { 3.6, 10, 8.4 }, { 4.4, 4.4, 0 }, { 4.4, 4.4, 0 }, { 0, 0, 40 }, { 0 }, { 0 } },
      .hw = { { { .52, 1.25, 28 }, { .47, 1.9, 3.4 }, { .5, 1.2, 8 }, { .5, 1.2, 8 }, { 0 }, { 0 }, { 0 } },
              { { 1, 1.9, 28 }, { 1, 2.5, 5.7 }, { 1, 1.9, 8 }, { 1, 1.9, 8 }, { 0 }, { 0 }, { 0 } },
              { { 5, 8.5, 28 }, { 2.7, 4, 28 }, { 5, 5, 10.7 }, { 5, 5, 10.7 }, { 0 }, { 0 }, { 0 } } } },
};

/* GB/s; columns 1, 2, more nodes. The rows are GPU families on one node; over several nodes row
 * AMPERE stands for AMD CPUs and row VOLTA for all others. */
static const double ll_max[FAMILY_COUNT][3] = {
    { 39, 39, 20.4 }, { 87.7, 22.5, 19 }, { 141, 45, 35 }, { 282, 90, 70 },
};
/* GB/s of one channel. */
static const double ring_ll128_max[] = { 20, 20, 36.7, 40 };
static const double tree_ll128_max[FAMILY_COUNT][3] = {
    { 20, 20, 20 }, { 20, 20, 20 }, { 36.7, 36.7, 29 }, { 55.6, 31.67, 20 },
};
static const double tree_max[FAMILY_COUNT][3] = {
    { 26.5, 18.5, 10 }, { 24, 23.6, 17.8 }, { 38.7, 41.4, 36 }, { 70, 42.8, 24 },
};
static const double nvls_tree_max[FAMILY_COUNT][3] = {
    { 26.5, 18.5, 10 }, { 24, 23.6, 17.8 }, { 0, 57.7, 45.5 }, { 0, 96, 80 },
};
static const double nvls_efficiency[FAMILY_COUNT] = { 0, 0, .85, .74 };

/* Factor on Tree's bandwidth by log2(bytes / 64). */
static const double tree_correction[SF_PROTO_COUNT][24] = {
    { 1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1 },
    { 1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1 },
    { .9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9 },
};

static int family_of(int sm)
{
    return sm >= 100 ? BLACKWELL : sm >= 90 ? HOPPER : sm >= 80 ? AMPERE : VOLTA;
}

static int version_of(const sf_comm_fabric *f)
{
    return f->nccl_version > 0 ? f->nccl_version : 23007;
}

static double ring_ll128_of(int sm, int version)
{
    int family = family_of(sm);
    if (family == BLACKWELL && version < 22800)
        return 2 * 36.7; /* v2.26.2, v2.27.7 */
    if (family == BLACKWELL && version < 23000)
        return 34.5;     /* v2.29.2 */
    return ring_ll128_max[family];
}

static const latency_table *latency_table_of(int version)
{
    const latency_table *table = latencies;
    while (version < table->since)
        table++;
    return table;
}

static int log2_floor(double x)
{
    int result = 0;
    for (; x >= 2; x /= 2)
        result++;
    return result;
}

/* LL128 stores 128 bytes at once and needs links that keep them whole: NVLink inside the node; from
 * CUDA capability 7.0 on, which before 2.27 meant 7.0, 8.0, 9.0, 10.0 and 12.0 only. */
static bool ll128_works(const sf_comm_fabric *f, const sf_nccl_shape *s)
{
    bool intra = s->local_ranks == 1 || s->nvlink;
    bool inter = s->nodes == 1 || f->gpudirect || s->local_ranks == 1;
    bool known = version_of(f) >= 22700 || f->sm == 70 || f->sm == 80 || f->sm == 90 || f->sm == 100 || f->sm == 120;
    return intra && inter && f->sm >= 70 && known;
}

/* Protocols that the network's plugin switches off: EFA without RDMA write, TCPX and sockets keep
 * Simple (aws-ofi-nccl prints "Setting NCCL_PROTO to simple"); LL128 only on NICs that keep order. */
static bool protocol_allowed(const sf_comm_fabric *f, const sf_nccl_shape *s, sf_nccl_proto proto)
{
    if (proto == SF_PROTO_LL128 && !ll128_works(f, s))
        return false;
    if (s->nodes == 1 || proto == SF_PROTO_SIMPLE)
        return true;
    if (f->nic == SF_NIC_EFA && (!f->gpudirect || f->sm < 90))
        return false;
    if (f->nic == SF_NIC_TCPX)
        return false;
    return true;
}

static bool algo_has(sf_collective op, sf_nccl_algo algo)
{
    switch (op) {
    case SF_COLL_ALL_REDUCE: return algo != SF_ALGO_PAT;
    case SF_COLL_ALL_GATHER:
    case SF_COLL_REDUCE_SCATTER:
        return algo == SF_ALGO_RING || algo == SF_ALGO_NVLS || algo == SF_ALGO_COLLNET_DIRECT || algo == SF_ALGO_PAT;
    default: return algo == SF_ALGO_RING;
    }
}

typedef struct {
    const sf_comm_fabric *f;
    const sf_nccl_shape *s;
    const latency_table *lat;
    int version, family, column;
    double ll_max_GBs;
} context;

static int steps_of(sf_collective op, int ranks)
{
    return op == SF_COLL_ALL_REDUCE ? 2 * (ranks - 1)
         : op == SF_COLL_ALL_GATHER || op == SF_COLL_REDUCE_SCATTER ? ranks - 1 : ranks;
}

static double nvls_bandwidth(const context *c, sf_collective op, sf_nccl_algo algo, const sf_nccl_graph *g)
{
    if (g->channels < 2)
        return 0;
    double ppn = c->s->local_ranks;
    if (c->version < 22800) { /* v2.21.5: a ratio of 5/6 in place of the efficiency */
        double bw = fmin(g->intra_GBs, algo == SF_ALGO_NVLS_TREE && c->s->nodes > 2 ? g->inter_GBs / 2 : g->inter_GBs);
        if (op != SF_COLL_ALL_REDUCE)
            bw *= c->version >= 22700 ? (ppn - 1) / ppn : 1;
        return g->channels * bw * (op == SF_COLL_ALL_REDUCE ? 5. / 6 : 1);
    }
    double intra = g->intra_GBs * nvls_efficiency[c->family] * (g->channels - 1) / g->channels;
    intra *= op == SF_COLL_ALL_REDUCE ? 2 : (ppn - 1) / ppn;
    double inter = g->inter_GBs * (algo == SF_ALGO_NVLS_TREE && c->s->nodes <= 2 ? 2 : 1);
    double bw = c->s->nodes > 1 ? fmin(intra, inter) : intra;
    if (algo == SF_ALGO_NVLS_TREE)
        bw = fmin(bw, nvls_tree_max[c->family][c->column]);
    bw *= g->channels;
    return op == SF_COLL_ALL_REDUCE ? bw * c->s->ranks / steps_of(op, c->s->ranks) : bw;
}

static double collnet_bandwidth(const context *c, sf_collective op, sf_nccl_algo algo, const sf_nccl_graph *g)
{
    double ppn = c->s->local_ranks, bus = g->channels * g->intra_GBs;
    if (algo == SF_ALGO_COLLNET_DIRECT) {
        if (op != SF_COLL_ALL_REDUCE)
            return ppn > c->s->nics ? 0 : ppn * fmin(g->intra_GBs, .9 * g->inter_GBs);
        double factor = ppn / g->channels;
        bus /= factor - (factor - 1) / 2;
        if (c->f->sm >= 90)
            bus *= .85;
    }
    return bus * .5;
}

static double bandwidth(const context *c, sf_collective op, sf_nccl_algo algo, sf_nccl_proto proto, const sf_nccl_graph *g)
{
    if (algo == SF_ALGO_NVLS || algo == SF_ALGO_NVLS_TREE)
        return nvls_bandwidth(c, op, algo, g);
    if (algo == SF_ALGO_COLLNET_DIRECT || algo == SF_ALGO_COLLNET_CHAIN)
        return collnet_bandwidth(c, op, algo, g);

    double bus = g->channels * (c->s->nodes <= 2 ? g->intra_GBs : g->inter_GBs);
    int steps = steps_of(op, c->s->ranks);
    if (c->version < 21800 && c->family == AMPERE)
        bus = fmin(bus, 235);
    if (algo == SF_ALGO_RING) {
        if (proto == SF_PROTO_LL)
            bus = fmin(c->ll_max_GBs, bus * (c->version >= 21800 ? .5 : c->s->nodes > 1 || op == SF_COLL_ALL_REDUCE || op == SF_COLL_REDUCE ? 1 / 4. : 1 / 3.));
        else if (proto == SF_PROTO_LL128)
            bus = fmin(.92 * bus, g->channels * ring_ll128_of(c->f->sm, c->version));
        return bus * c->s->ranks / steps;
    }
    if (algo == SF_ALGO_PAT)
        return bus * (c->version >= 22700 ? .75 : .85);
    bus = fmin(.92 * bus, g->channels * tree_max[c->family][c->column]);
    if (proto == SF_PROTO_LL)
        bus = fmin(bus / 3.8, c->ll_max_GBs);
    else if (proto == SF_PROTO_LL128)
        bus = fmin(bus * (c->s->nodes == 1 ? 7. / 9 : 120. / 128), g->channels * tree_ll128_max[c->family][c->column]);
    if (!g->balanced)
        bus *= .85;
    return bus * .5;
}

static double latency(const context *c, sf_collective op, sf_nccl_algo algo, sf_nccl_proto proto, const sf_nccl_graph *g)
{
    int nodes = c->s->nodes, ppn = c->s->local_ranks, ranks = c->s->ranks;
    int hw = g->nvlink ? HW_NVLINK : HW_PCI;
    double base = c->lat->base[algo][proto];
    double intra = c->lat->hw[hw][algo][proto];
    /* With one rank per node the network's latency is not hidden: Tree's value (from 2.23). */
    double inter = c->lat->hw[HW_NET][ppn == 1 && c->version >= 22300 ? SF_ALGO_TREE : algo][proto];
    if (c->version < 21800 && nodes > 1 && proto == SF_PROTO_LL)
        intra *= 1.8;

    switch (algo) {
    case SF_ALGO_RING: {
        if (op == SF_COLL_BROADCAST || op == SF_COLL_REDUCE)
            return base + c->lat->hw[nodes == 1 ? hw : HW_NET][algo][proto]; /* the same channels everywhere */
        int steps = steps_of(op, ranks);
        int inter_steps = nodes == 1 ? 0 : op == SF_COLL_ALL_REDUCE ? 2 * (nodes - 1) : nodes - 1;
        if (nodes > 1 && c->version >= 21800) {
            double overhead = c->f->cpu == SF_CPU_AMD ? 2 : 1;
            intra = fmax(intra, overhead * (proto == SF_PROTO_SIMPLE ? 3 : 1));
        }
        return base + (steps - inter_steps) * intra + inter_steps * inter;
    }
    case SF_ALGO_TREE: return base + 2 * ((ppn - 1) * intra + log2_floor(nodes) * inter);
    case SF_ALGO_COLLNET_DIRECT: return base + 2 * ((ppn > 1 ? 1 : 0) * intra + (ppn - 1) * .4) + inter;
    case SF_ALGO_COLLNET_CHAIN: return base + 2 * (ppn - 1) * intra + inter;
    case SF_ALGO_NVLS: return (c->version < 21800 ? base : intra) + (nodes > 1 ? inter : 0);
    case SF_ALGO_NVLS_TREE: return base + intra + 2 * log2_floor(nodes) * inter;
    case SF_ALGO_PAT: return 8 + log2_floor(nodes) * inter / 3.5 + ranks * 2.8;
    default: return base;
    }
}

/* NCCL_ALGO and NCCL_PROTO; an all-gather and the like keep Ring when their algorithms are excluded. */
static bool asked_for(const sf_comm_fabric *f, sf_collective op, int algo, int proto)
{
    bool algo_ok = f->algos == 0 || f->algos >> algo & 1 || (op != SF_COLL_ALL_REDUCE && algo == SF_ALGO_RING);
    return algo_ok && (f->protos == 0 || f->protos >> proto & 1);
}

void sf_nccl_tuning_make(const sf_comm_fabric *f, const sf_nccl_shape *s, const sf_nccl_graph graphs[SF_ALGO_COUNT],
                         sf_nccl_tuning *out)
{
    *out = (sf_nccl_tuning){ 0 };
    context c = { .f = f, .s = s, .version = version_of(f), .family = family_of(f->sm) };
    c.lat = latency_table_of(c.version);
    c.column = s->nodes <= 2 ? s->nodes - 1 : 2;
    int row = s->nodes == 1 ? c.family : f->cpu == SF_CPU_AMD ? AMPERE : VOLTA;
    c.ll_max_GBs = ll_max[row][c.column];

    if (c.version >= 22300) {
        out->ring_plateau = f->sm < 80 ? 1.9 : 1.4;
        out->plateau_bytes = 64.0 * graphs[SF_ALGO_RING].exec_channels * s->ranks;
    } else {
        out->ring_plateau = 1.9;
        out->plateau_bytes = s->ranks / 16.0 * 65536;
    }
    if (s->nodes == 1)
        out->ring_plateau = 1;
    if (s->nodes > 1 && f->nic == SF_NIC_FASTRAK)
        out->tuner_ll_bytes = 16 << 20; /* its tuner: 2n-gcp-a3mega-h100-allreduce is LL up to 16 MiB */

    for (int op = 0; op < SF_NCCL_TUNED; op++)
        for (int a = 0; a < SF_ALGO_COUNT; a++) {
            static const int protocols[] = {
#define SF_AS_BITS(id, name, bits) bits,
                SF_NCCL_ALGOS(SF_AS_BITS)
#undef SF_AS_BITS
            };
            const sf_nccl_graph *g = &graphs[a];
            if (!algo_has((sf_collective)op, (sf_nccl_algo)a) || g->channels == 0)
                continue;
            if (a == SF_ALGO_PAT && (s->local_ranks != 1 || s->nodes < 2 || c.version < 22300 || f->sm < 60))
                continue;
            for (int p = 0; p < SF_PROTO_COUNT; p++) {
                if (!(protocols[a] & 1 << p) || !asked_for(f, (sf_collective)op, a, p) || !protocol_allowed(f, s, (sf_nccl_proto)p))
                    continue;
                out->of[op][a][p].algbw_GBs = bandwidth(&c, (sf_collective)op, (sf_nccl_algo)a, (sf_nccl_proto)p, g);
                out->of[op][a][p].latency_us = latency(&c, (sf_collective)op, (sf_nccl_algo)a, (sf_nccl_proto)p, g);
            }
        }
}

double sf_nccl_estimate_us(const sf_nccl_tuning *t, sf_collective op, sf_nccl_algo algo, sf_nccl_proto proto, double bytes)
{
    assert((int)op < SF_NCCL_TUNED);
    const sf_nccl_estimate *e = &t->of[op][algo][proto];
    if (e->algbw_GBs <= 0)
        return -1;
    double bw = e->algbw_GBs, latency_us = e->latency_us;
    if (algo == SF_ALGO_TREE && op == SF_COLL_ALL_REDUCE && bytes >= 64) {
        int at = ilogb(bytes / 64);
        if (at < 23)
            bw *= tree_correction[proto][at];
    }
    if (algo == SF_ALGO_RING && proto == SF_PROTO_SIMPLE && op == SF_COLL_ALL_REDUCE && bytes >= t->plateau_bytes)
        latency_us *= t->ring_plateau;
    return latency_us + bytes / (1000 * bw);
}

double sf_nccl_choose(const sf_nccl_tuning *t, sf_collective op, double bytes, sf_nccl_algo *algo, sf_nccl_proto *proto)
{
    double best = -1;
    if (op == SF_COLL_ALL_REDUCE && bytes <= t->tuner_ll_bytes && t->of[op][SF_ALGO_TREE][SF_PROTO_LL].algbw_GBs > 0) {
        *algo = SF_ALGO_TREE;
        *proto = SF_PROTO_LL;
        return sf_nccl_estimate_us(t, op, *algo, *proto, bytes);
    }
    for (int a = 0; a < SF_ALGO_COUNT; a++)
        for (int p = 0; p < SF_PROTO_COUNT; p++) {
            double us = sf_nccl_estimate_us(t, op, (sf_nccl_algo)a, (sf_nccl_proto)p, bytes);
            if (us >= 0 && (best < 0 || us < best)) {
                best = us;
                *algo = (sf_nccl_algo)a;
                *proto = (sf_nccl_proto)p;
            }
        }
    return best;
}

int sf_nccl_channels(sf_nccl_algo algo, sf_nccl_proto proto, int channels, int ranks, double bytes)
{
    /* enqueue.cc: fewer channels while each would get less than threads * threshold bytes. */
    double threads = proto == SF_PROTO_LL128 ? 640 : 512;
    double threshold = proto == SF_PROTO_SIMPLE ? 64 : 8;
    if (algo == SF_ALGO_RING && proto == SF_PROTO_LL)
        threshold *= ranks;
    if (algo == SF_ALGO_NVLS || algo == SF_ALGO_NVLS_TREE)
        return channels;
    double fit = floor(bytes / (threads * threshold));
    return fit < 1 ? 1 : fit < channels ? (int)fit : channels;
}
