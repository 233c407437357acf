/* The fabric from what is known of a machine, with these defaults for what is not:
 *   intra link   NVSwitch for SXM-class cards with NVLink (cube mesh for Volta, superchips C2C), NVLink
 *                pairs for bridged PCIe cards when two take part (more: PCIe), none for GeForce from
 *                Ada on (no peer to peer: through host memory), else PCIe through the CPU
 *   NICs         for several nodes one per GPU (two GPUs on one for V100), InfiniBand of the class
 *                usual for the card: 100 Gb/s up to Volta, 200 Ampere, 400 Hopper and Blackwell, 800
 *                for Blackwell Ultra (model/desc/data/links.csv, rows "node"); a PCIe card: one NIC of 100 Gb/s
 *   GPUDirect    yes for data-centre cards, no for GeForce and workstation cards
 *                (for GB10, whose memory is the host's, the NIC reads it anyhow)
 *   CPU          ARM for Grace and GB10, else Intel
 */
#define _GNU_SOURCE /* strcasestr */
#include <string.h>

#include "model/cost/collective_cost.h"

/* The name has this word, or the beginning of one: "SXM" in "A100 SXM4 80GB". */
static bool names(const sf_gpu *gpu, const char *word)
{
    return (gpu->name != NULL && strcasestr(gpu->name, word) != NULL) ||
           (gpu->smi_name != NULL && strcasestr(gpu->smi_name, word) != NULL);
}

static bool is_geforce(const sf_gpu *gpu)
{
    return names(gpu, "GeForce") || names(gpu, "TITAN");
}

static bool is_superchip(const sf_gpu *gpu)
{
    return names(gpu, "GH200") || names(gpu, "GB200") || names(gpu, "GB300");
}

static sf_intra_link usual_link(const sf_gpu *gpu, int sm, int gpus)
{
    bool bridged = gpu->nvlink_Bps > 0 && (names(gpu, "PCIe") || names(gpu, "NVL") || is_geforce(gpu) || names(gpu, "RTX") ||
                                           names(gpu, "A40") || names(gpu, "A30"));
    if (names(gpu, "NVL72") || names(gpu, "GB200") || names(gpu, "GB300"))
        return SF_INTRA_NVSWITCH;
    if (names(gpu, "GH200"))
        return SF_INTRA_C2C;
    if (gpu->nvlink_Bps > 0 && !bridged)
        return sm < 80 && !names(gpu, "SXM3") ? SF_INTRA_NVLINK_MESH : SF_INTRA_NVSWITCH;
    if (bridged && gpus <= 2)
        return SF_INTRA_NVLINK_PAIRS;
    if (is_geforce(gpu) && sm >= 75)
        return SF_INTRA_SHM; /* GeForce drivers have no peer to peer by PCIe since Turing */
    return bridged ? SF_INTRA_NVLINK_PAIRS : SF_INTRA_PCIE_CPU;
}

static double usual_nic_gbit(const sf_gpu *gpu, int sm, sf_intra_link link)
{
    if (link != SF_INTRA_NVSWITCH && link != SF_INTRA_C2C && link != SF_INTRA_NVLINK_MESH)
        return 100;
    if (names(gpu, "GH200"))
        return 200;
    if (names(gpu, "B300") || names(gpu, "GB300"))
        return 800;
    return sm >= 90 ? 400 : sm >= 80 ? 200 : 100;
}

void sf_comm_fabric_make(const sf_gpu *gpu, int gpus_per_node, int nodes, sf_comm_fabric *out)
{
    int sm = (int)(gpu->compute_capability * 10 + .5);
    *out = (sf_comm_fabric){
        .sm = sm,
        .gpus_per_node = gpus_per_node,
        .nodes = nodes,
        .domain_gpus = gpus_per_node,
        .nvlink_Bps = gpu->nvlink_Bps,
        .pcie_gen = gpu->pcie_gen > 0 ? gpu->pcie_gen : 4,
        .pcie_lanes = gpu->pcie_lanes > 0 ? gpu->pcie_lanes : 16,
        .gpus_per_uplink = 1,
        .nic = SF_NIC_IB,
        .gpudirect = !is_geforce(gpu),
        .cpu = is_superchip(gpu) || names(gpu, "GB10") ? SF_CPU_ARM : SF_CPU_INTEL,
        .gpus_per_process = 1,
    };
    out->intra = usual_link(gpu, sm, gpus_per_node);
    if ((names(gpu, "GB200") || names(gpu, "GB300")) && gpus_per_node * nodes > gpus_per_node && 72 % gpus_per_node == 0)
        out->domain_gpus = 72;
    bool per_gpu = out->intra == SF_INTRA_NVSWITCH || out->intra == SF_INTRA_C2C;
    out->nics_per_node = per_gpu ? gpus_per_node : out->intra == SF_INTRA_NVLINK_MESH && gpus_per_node > 1 ? gpus_per_node / 2 : 1;
    out->nic_gbit = names(gpu, "GB10") ? 200 : usual_nic_gbit(gpu, sm, out->intra);
}

sf_nic_kind sf_nic_kind_of_layout(const sf_gpu *gpu, int nics_per_node, double gbit)
{
    static const struct {
        const char *gpu;
        int nics;
        double gbit;
        sf_nic_kind kind;
    } clouds[] = {
        { "H100", 32, 100, SF_NIC_EFA },    /* AWS p5   */
        { "H200", 32, 100, SF_NIC_EFA },    /* AWS p5e  */
        { "H200", 16, 200, SF_NIC_EFA },    /* AWS p5en */
        { "A100", 4, 100, SF_NIC_EFA },     /* AWS p4d  */
        { "H100", 4, 200, SF_NIC_TCPX },    /* GCP a3-highgpu */
        { "H100", 8, 200, SF_NIC_FASTRAK }, /* GCP a3-megagpu */
        { "A100", 16, 100, SF_NIC_ROCE },   /* OCI BM.GPU.B4.8   */
        { "H100", 16, 200, SF_NIC_ROCE },   /* OCI BM.GPU.H100.8 */
        { "GH200", 4, 200, SF_NIC_SLINGSHOT }, /* Alps */
    };
    for (size_t i = 0; i < sizeof clouds / sizeof clouds[0]; i++)
        if (names(gpu, clouds[i].gpu) && nics_per_node == clouds[i].nics && (int)gbit == (int)clouds[i].gbit)
            return clouds[i].kind;
    return SF_NIC_IB;
}

void sf_comm_fabric_of_cluster(const sf_cluster *c, sf_comm_fabric *out)
{
    static const sf_nic_kind kinds[SF_JOB_NIC_COUNT] = {
        [SF_JOB_NIC_IB] = SF_NIC_IB, [SF_JOB_NIC_ROCE] = SF_NIC_ROCE, [SF_JOB_NIC_EFA] = SF_NIC_EFA, [SF_JOB_NIC_TCP] = SF_NIC_TCP,
    };
    sf_comm_fabric_make(&c->gpu, (int)c->gpus_per_node, (int)c->nodes, out);
    switch (c->intra) {
    case SF_JOB_INTRA_NVSWITCH: out->intra = SF_INTRA_NVSWITCH; break;
    case SF_JOB_INTRA_NVLINK:
        if (out->intra != SF_INTRA_NVLINK_PAIRS && out->intra != SF_INTRA_C2C)
            out->intra = SF_INTRA_NVLINK_MESH;
        break;
    case SF_JOB_INTRA_PCIE: out->intra = SF_INTRA_PCIE_CPU; break;
    default: break;
    }
    bool nvlink = out->intra == SF_INTRA_NVSWITCH || out->intra == SF_INTRA_NVLINK_MESH || out->intra == SF_INTRA_C2C ||
                  out->intra == SF_INTRA_NVLINK_PAIRS;
    if (!c->p2p && !nvlink)
        out->intra = SF_INTRA_SHM;
    if (c->nics > 0)
        out->nics_per_node = (int)c->nics;
    if (c->gbit_per_nic > 0)
        out->nic_gbit = c->gbit_per_nic;
    if (c->nic_kind >= 0 && c->nic_kind < SF_JOB_NIC_COUNT)
        out->nic = kinds[c->nic_kind];
}

sf_status sf_comm_fabric_check(const sf_comm_fabric *f)
{
    if (f->gpus_per_node < 1 || f->nodes < 1)
        return SF_FAIL(SF_EINVAL, "%d GPUs per node on %d nodes: both must be at least 1", f->gpus_per_node, f->nodes);
    if (f->nodes > 1 && (f->nics_per_node < 1 || !(f->nic_gbit > 0)))
        return SF_FAIL(SF_EINVAL, "%d nodes need a network: give the NICs per node and their Gb/s", f->nodes);
    if (f->domain_gpus < f->gpus_per_node || f->domain_gpus % f->gpus_per_node != 0)
        return SF_FAIL(SF_EINVAL, "an NVLink domain of %d GPUs is no multiple of %d GPUs per node", f->domain_gpus, f->gpus_per_node);
    if ((f->intra == SF_INTRA_NVSWITCH || f->intra == SF_INTRA_NVLINK_MESH || f->intra == SF_INTRA_C2C) && !(f->nvlink_Bps > 0) &&
        f->gpus_per_node > 1)
        return SF_FAIL(SF_EINVAL, "link '%s' needs a GPU with NVLink; try 'pix', 'phb' or 'shm'", sf_intra_link_name(f->intra));
    return SF_SUCCESS;
}

sf_status sf_comm_group_check(const sf_comm_fabric *f, const sf_comm_group *g)
{
    if (g->ranks < 1 || g->ranks_per_node < 1 || g->concurrent_groups < 1)
        return SF_FAIL(SF_EINVAL, "a group of %d ranks, %d per node, %d at once: all must be at least 1", g->ranks,
                       g->ranks_per_node, g->concurrent_groups);
    if (g->ranks % g->ranks_per_node != 0)
        return SF_FAIL(SF_EINVAL, "%d ranks are no multiple of %d ranks per node", g->ranks, g->ranks_per_node);
    if (g->ranks_per_node * g->concurrent_groups > f->gpus_per_node || g->ranks / g->ranks_per_node > f->nodes)
        return SF_FAIL(SF_EINVAL, "%d group(s) of %d ranks with %d per node do not fit %d node(s) of %d GPUs", g->concurrent_groups,
                       g->ranks, g->ranks_per_node, f->nodes, f->gpus_per_node);
    return SF_SUCCESS;
}
