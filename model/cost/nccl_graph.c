#include "model/cost/nccl_graph.h"

#include <math.h>
#include <stddef.h>

/* Speeds that the search tries, GB/s per channel, fastest first (search.cc). */
static const double speeds_intra[] = { 40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 0 };
static const double speeds_inter[] = { 48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, .24, .12, 0 };
static const double speeds_intra_sm90[] = { 60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3, 0 };
static const double speeds_inter_sm90[] = { 48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, .24, .12, 0 };
static const double speeds_intra_sm100[] = { 90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18, 15, 12, 11, 6, 3, 0 };
static const double speeds_inter_sm100[] = { 96, 86, 80, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, .24, .12, 0 };

/* PCIe after 8b/10b (1, 2), 128b/130b (3..5) or FLIT (6, 7) coding, GB/s of one lane:
 * model/desc/data/links.csv, rows "PCIe x16" / 16. */
static const double pcie_sheet_lane[] = { 0, .25, .5, .984, 1.969, 3.938, 7.5625, 15.125 };
/* NCCL: 80ths of 15, 30, 60, 120, 240, 480 per lane (topo.h, kvDictPciGen): 12 GB/s for Gen3 x16. */
static const double pcie_nccl_lane[] = { 0, 15 / 80., 30 / 80., 60 / 80., 120 / 80., 240 / 80., 480 / 80., 480 / 80. };

static double of_generation(const double *table, int generation, int lanes)
{
    int g = generation < 1 ? 4 : generation > 7 ? 7 : generation; /* unknown: Gen4, the commonest of data centres */
    return table[g] * (lanes > 0 ? lanes : 16);
}

double sf_pcie_sheet_GBs(int generation, int lanes)
{
    return of_generation(pcie_sheet_lane, generation, lanes);
}

double sf_pcie_nccl_GBs(int generation, int lanes)
{
    return of_generation(pcie_nccl_lane, generation, lanes);
}

/* NCCL's rate of one NVLink over the data sheet's: 18/20, 20/25, 20/25, 12/14.06, 20.6/25, 40.1/50 (topo.h). */
static double nvlink_counted(int sm)
{
    if (sm < 70)
        return 18. / 20;
    if (sm < 86)
        return 20. / 25;
    if (sm < 90)
        return 12. / 14.0625;
    if (sm < 100)
        return 20.6 / 25;
    return 40.1 / 50;
}

/* What NCCL lets one GPU send to another by PCIe: the slot, or what lies between the CPUs and GPUs.
 * Intel's root complex is counted 6/5 slower; AMD's 16 GB/s; between sockets 10 GB/s (Skylake) to
 * 40 (topo.h). */
static double pcie_counted(const sf_comm_fabric *f)
{
    double slot = sf_pcie_nccl_GBs(f->pcie_gen, f->pcie_lanes);
    switch (f->intra) {
    case SF_INTRA_PCIE_CPU: return f->cpu == SF_CPU_INTEL ? slot * 5 / 6 : f->pcie_gen <= 4 ? fmin(slot, 16) : slot;
    case SF_INTRA_PCIE_SOCKETS: return fmin(slot * 5 / 6, f->pcie_gen >= 5 ? 22 : 10);
    case SF_INTRA_SHM: return fmin(slot * 5 / 6, 10);
    default: return slot;
    }
}

static int imin(int a, int b)
{
    return a < b ? a : b;
}

void sf_nccl_shape_of(const sf_comm_fabric *f, const sf_comm_group *g, sf_nccl_shape *out)
{
    int hosts_of_domain = f->domain_gpus > f->gpus_per_node ? f->domain_gpus / f->gpus_per_node : 1;
    int hosts = (g->ranks + g->ranks_per_node - 1) / g->ranks_per_node;
    hosts_of_domain = imin(hosts_of_domain, hosts);
    out->ranks = g->ranks;
    out->local_ranks = imin(g->ranks, g->ranks_per_node * hosts_of_domain);
    out->nodes = (g->ranks + out->local_ranks - 1) / out->local_ranks;

    bool pair_of_bridge = f->intra == SF_INTRA_NVLINK_PAIRS && out->local_ranks <= 2;
    out->nvlink = f->nvlink_Bps > 0 && (f->intra == SF_INTRA_NVSWITCH || f->intra == SF_INTRA_NVLINK_MESH ||
                                        f->intra == SF_INTRA_C2C || pair_of_bridge);
    if (out->nvlink) {
        out->gpu_GBs = f->nvlink_Bps / 1e9;
        out->nccl_gpu_GBs = out->gpu_GBs * nvlink_counted(f->sm);
    } else {
        out->gpu_GBs = sf_pcie_sheet_GBs(f->pcie_gen, f->pcie_lanes);
        out->nccl_gpu_GBs = pcie_counted(f);
    }

    /* A group of some of a node's GPUs uses the NICs nearest to them; groups side by side share. */
    out->nic_GBs = f->nic_gbit / 8;
    out->nics = f->nics_per_node * g->ranks_per_node / f->gpus_per_node;
    if (out->nics < 1)
        out->nics = f->nics_per_node > 0 ? 1 : 0;
    double share = (double)f->nics_per_node / g->concurrent_groups;
    out->node_nic_GBs = out->nic_GBs * fmin(out->nics, share) * hosts_of_domain;
    out->nics *= hosts_of_domain;
}

static const double *speed_list(int sm, bool inter)
{
    if (sm >= 100)
        return inter ? speeds_inter_sm100 : speeds_intra_sm100;
    if (sm >= 90)
        return inter ? speeds_inter_sm90 : speeds_intra_sm90;
    return inter ? speeds_inter : speeds_intra;
}

/* Largest speed of the list not above `most`; the smallest of the list if none is. */
static double speed_below(const double *list, double most)
{
    while (*list > most + 1e-9 && list[1] > 0)
        list++;
    return *list;
}

/* Channels after pass 1 are doubled, each at half the speed, where the speed is at least 25 (above
 * Ampere not below 50 with more than 4 channels). */
static void duplicate(int sm, sf_nccl_graph *g)
{
    if (g->intra_GBs < 25 || (sm > 80 && g->intra_GBs < 50 && g->channels > 4))
        return;
    g->channels *= 2;
    g->intra_GBs /= 2;
    g->inter_GBs /= 2;
}

static int capped(int channels)
{
    return channels < 1 ? 1 : channels > 64 ? 64 : channels; /* MAXCHANNELS */
}

static void one_node(const sf_comm_fabric *f, const sf_nccl_shape *s, sf_nccl_graph *out)
{
    double per_path = s->nccl_gpu_GBs;
    if (f->intra == SF_INTRA_NVLINK_MESH && f->sm < 80)
        per_path /= 6; /* cube mesh of V100: some neighbours share one link of six */
    double speed = speed_below(speed_list(f->sm, false), per_path);
    out->channels = capped((int)(s->nccl_gpu_GBs / speed + 1e-9));
    out->intra_GBs = out->inter_GBs = speed;
    duplicate(f->sm, out);
    out->exec_channels = capped(2 * out->channels);
}

/* Rings and trees over several nodes: channels are spread over the NICs, and must also fit the GPUs'
 * links. Inside the node a ring is as fast as between nodes; a tree may be faster (pass 2), up to twice. */
static void several_nodes(const sf_comm_fabric *f, const sf_nccl_shape *s, bool ring, sf_nccl_graph *out)
{
    const double *list = speed_list(f->sm, true);
    double intra = s->local_ranks > 1 ? s->nccl_gpu_GBs : 1e9;
    double slot = f->gpudirect ? 1e9 : sf_pcie_nccl_GBs(f->pcie_gen, f->pcie_lanes);
    double nic = fmin(fmin(s->nic_GBs, intra), slot);
    double best = 0;
    for (; *list > 0; list++) {
        double speed = *list;
        if (speed > nic + 1e-9 && list[1] > 0)
            continue;
        int channels = (int)(fmin(s->nics * floor(nic / speed + 1e-9), intra / speed) + 1e-9);
        if (channels < 1)
            channels = 1;
        if (channels * speed > best * 1.001) {
            best = channels * speed;
            out->channels = capped(channels);
            out->inter_GBs = speed;
        }
        if (speed < .49 * nic)
            break;
    }
    out->intra_GBs = out->inter_GBs;
    if (!ring && s->local_ranks > 1)
        out->intra_GBs = fmax(out->inter_GBs, speed_below(speed_list(f->sm, false), fmin(s->nccl_gpu_GBs / out->channels, 2 * out->inter_GBs)));
    duplicate(f->sm, out);
    out->exec_channels = capped(2 * out->channels);
}

/* NVLS: a channel for each GPU of the node, at the largest speed that total / GPUs carries. */
static void nvls(const sf_comm_fabric *f, const sf_nccl_shape *s, sf_nccl_graph *out)
{
    if (f->sm < 90 || f->sm >= 120 || f->intra != SF_INTRA_NVSWITCH || s->local_ranks < 2 ||
        (f->nccl_version > 0 && f->nccl_version < 21700))
        return;
    int heads = imin(s->local_ranks, 32); /* NCCL_MAX_NVLS_ARITY */
    out->channels = heads;
    out->intra_GBs = speed_below(speed_list(f->sm, false), s->nccl_gpu_GBs / heads);
    out->inter_GBs = s->nodes > 1 ? speed_below(speed_list(f->sm, true), s->node_nic_GBs / heads) : out->intra_GBs;
    out->exec_channels = f->sm >= 100 ? (s->nodes > 1 ? 32 : 24) : 16; /* nvls.cc */
}

void sf_nccl_graph_of(const sf_comm_fabric *f, const sf_nccl_shape *s, sf_nccl_algo algo, sf_nccl_graph *out)
{
    *out = (sf_nccl_graph){ .nvlink = s->nvlink, .balanced = true };
    switch (algo) {
    case SF_ALGO_NVLS:
        if (s->nodes == 1 || f->collnet)
            nvls(f, s, out);
        break;
    case SF_ALGO_NVLS_TREE:
        if (s->nodes > 1)
            nvls(f, s, out);
        break;
    case SF_ALGO_COLLNET_DIRECT:
    case SF_ALGO_COLLNET_CHAIN:
        if (!f->collnet || s->nodes < 2 || (algo == SF_ALGO_COLLNET_DIRECT && f->intra != SF_INTRA_NVSWITCH))
            break;
        several_nodes(f, s, false, out);
        break;
    default:
        if (s->nodes == 1)
            one_node(f, s, out);
        else
            several_nodes(f, s, algo != SF_ALGO_TREE, out);
        break;
    }
}
