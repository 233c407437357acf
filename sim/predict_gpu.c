/* Times of a program on GPUs of the catalogue: compute by model/cost/compute_cost.h, collectives as NCCL
 * does them, and a host that launches. */
#include <string.h>

#include "model/cost/collective_cost.h"
#include "model/cost/compute_cost.h"
#include "model/cost/nccl_plan.h"
#include "model/program/timeline.h"
#include "sim/engine.h"
#include "sim/predict_gpu.h"

/* Host time to launch a kernel from C: 2 to 4 us (CUDA launch latency as several benchmarks report it). */
static const double launch_s = 4e-6;

/* Host time of a kernel that eager PyTorch launches: Python, dispatch, autograd, and the views between kernels that launch
 * nothing. Llama-3.2-1B of Transformers, 1 x 512 tokens, forward and backward in 48.8 ms on a B200 that needs 8.1 ms for them
 * under CUDA graphs (stas00/ml-engineering): 48.8 ms / 1,405 kernels of its step program. DeepSpeed's own figure agrees:
 * 24 layers of 6 tensors in 50.5 ms a step, about 60 kernels a layer (DeepSpeed pull request 7886). */
static const double eager_launch_s = 35e-6;
/* Of a kernel of torch.compile: a call from the generated wrapper, without dispatch and autograd. */
static const double compiled_launch_s = 10e-6;

/* Host memory under an offloaded optimizer, which the node's ranks share. Servers: DeepSpeed's CPUAdam reaches 4 to 4.5 G
 * parameters a second on two sockets, about 110 GB/s at its bytes per parameter. Desktops, where GeForce and TITAN cards are:
 * two channels of DDR4-3200, 51.2 GB/s, of which STREAM's four fifths. */
static double host_memory_Bps(const sf_cluster *c)
{
    if (c->host_memory_GBps > 0)
        return c->host_memory_GBps * 1e9;
    bool desktop = strstr(c->gpu.smi_name, "GeForce") != NULL || strstr(c->gpu.smi_name, "TITAN") != NULL;
    return desktop ? 0.8 * 51.2e9 : 110e9;
}

/* Usable share of PCIe: 26 of 31.5 GB/s on Gen4 x16 pinned copies (bandwidthTest on A100). */
static const double pcie_share = 0.82;

struct sf_gpu_machine {
    const sf_cluster *cluster;
    int world_size;
    double pcie_Bps;
    double ranks_per_node;
    int channels; /* of a large collective */
    sf_comm_plan plan[SF_GROUP_COUNT];
    bool has_plan[SF_GROUP_COUNT];
};

static sf_collective collective_of(sf_op_type type)
{
    switch (type) {
    case SF_OP_ALL_REDUCE: return SF_COLL_ALL_REDUCE;
    case SF_OP_ALL_GATHER: return SF_COLL_ALL_GATHER;
    case SF_OP_REDUCE_SCATTER: return SF_COLL_REDUCE_SCATTER;
    case SF_OP_BROADCAST: return SF_COLL_BROADCAST;
    case SF_OP_REDUCE: return SF_COLL_REDUCE;
    case SF_OP_SCATTER: return SF_COLL_SCATTER;
    case SF_OP_GATHER: return SF_COLL_GATHER;
    default: return SF_COLL_ALL_TO_ALL;
    }
}

static uint64_t array_bytes(const sf_class *cls, const sf_issue *issue)
{
    int with = 0;
    while (issue->op->args[with].buffer < 0)
        with++;
    return (uint64_t)issue->op->dims.n * sf_dtype_bytes(cls->buffers[issue->op->args[with].buffer].dtype);
}

double sf_gpu_machine_op_s(const sf_gpu_machine *m, const sf_class *cls, const sf_issue *issue)
{
    if (sf_op_kind_of(issue->op->type) == SF_KIND_COMM) {
        sf_collective_cost cost = { 0 };
        if (m->has_plan[issue->op->group])
            sf_comm_plan_time(&m->plan[issue->op->group], collective_of(issue->op->type), array_bytes(cls, issue), &cost);
        return cost.time_s;
    }
    if (issue->op->stream == SF_STREAM_HOST)
        return (double)issue->op->bytes * m->ranks_per_node / host_memory_Bps(m->cluster);
    return sf_gpu_op_time_s(&m->cluster->gpu, m->pcie_Bps, cls, issue);
}

typedef struct {
    const sf_gpu_machine *machine;
    double slow_gpu_share;
    double kernel_launch_s; /* host time of a kernel on the compute stream */
} cost_context;

static double gpu_issue(void *ctx, const sf_class *cls, const sf_issue *issue)
{
    const cost_context *c = ctx;
    (void)cls;
    if (sf_op_kind_of(issue->op->type) == SF_KIND_FRAME)
        return c->kernel_launch_s * issue->op->launches + (double)issue->op->host_s;
    return launch_s;
}

static sf_sim_cost gpu_cost(void *ctx, const sf_class *cls, const sf_issue *issue, int rank)
{
    const cost_context *c = ctx;
    double seconds = sf_gpu_machine_op_s(c->machine, cls, issue);
    bool computes = issue->op->stream == SF_STREAM_COMPUTE && sf_op_kind_of(issue->op->type) != SF_KIND_COMM;
    if (rank == 0 && computes && c->slow_gpu_share > 0)
        seconds /= c->slow_gpu_share;
    return (sf_sim_cost){ .seconds = seconds };
}

static double pcie_Bps(const sf_cluster *c)
{
    /* Gen3 is 0.985 GB/s a lane and direction (8 GT/s, 128/130); each generation doubles it */
    double lane = 0.985e9;
    for (int gen = 3; gen < c->gpu.pcie_gen; gen++)
        lane *= 2;
    return c->pcie_GBps > 0 ? c->pcie_GBps * 1e9 : pcie_share * lane * (c->gpu.pcie_lanes > 0 ? c->gpu.pcie_lanes : 16);
}

sf_status sf_gpu_machine_make(const sf_cluster *cluster, int world_size, sf_arena *arena, const sf_gpu_machine **out)
{
    sf_gpu_machine *m = SF_NEW(arena, sf_gpu_machine);
    sf_comm_fabric fabric;

    *m = (sf_gpu_machine){ .cluster = cluster, .world_size = world_size, .pcie_Bps = pcie_Bps(cluster),
                           .ranks_per_node = (double)cluster->gpus_per_node };
    *out = m;
    if (world_size <= 1)
        return SF_SUCCESS;
    sf_comm_fabric_of_cluster(cluster, &fabric);
    sf_comm_group world = sf_comm_group_world(&fabric);
    sf_collective_cost probe;
    SF_TRY(sf_comm_plan_make(&fabric, &world, NULL, NULL, &m->plan[SF_GROUP_WORLD]));
    m->has_plan[SF_GROUP_WORLD] = true;
    int per_node = (int)cluster->gpus_per_node, nodes = (int)cluster->nodes;
    sf_comm_group local = { .ranks = per_node, .ranks_per_node = per_node, .concurrent_groups = 1 };
    sf_comm_group cross = { .ranks = nodes, .ranks_per_node = 1, .concurrent_groups = per_node };
    if (nodes > 1 && per_node > 1) { /* shards of a node, replicas across */
        SF_TRY(sf_comm_plan_make(&fabric, &local, NULL, NULL, &m->plan[SF_GROUP_LOCAL]));
        SF_TRY(sf_comm_plan_make(&fabric, &cross, NULL, NULL, &m->plan[SF_GROUP_CROSS]));
        m->has_plan[SF_GROUP_LOCAL] = m->has_plan[SF_GROUP_CROSS] = true;
    }
    sf_comm_plan_time(&m->plan[SF_GROUP_WORLD], SF_COLL_ALL_GATHER, 64u << 20, &probe);
    m->channels = probe.channels;
    return SF_SUCCESS;
}

sf_status sf_predict_time_on_gpu(const sf_job *job, const sf_program *program, const sf_gpu_machine *m, const sf_gpu_play *play, sf_arena *arena,
                                 sf_outcome *out)
{
    sf_sim_result result;

    if (m == NULL)
        SF_TRY(sf_gpu_machine_make(&job->cluster, program->world_size, arena, &m));
    /* a collective's CTAs take SMs from compute (NCCL maintainers, nccl#689: they never share one) */
    cost_context cost = { m, play->slow_gpu_share, job->train.compile ? compiled_launch_s : eager_launch_s };
    int sms = job->cluster.gpu.sm_count;
    sf_sim_options sim = { .cost = gpu_cost, .ctx = &cost, .issue = gpu_issue, .every_rank = play->every_rank,
                           .overlap_rate = sms > m->channels ? (double)(sms - m->channels) / sms : 1 };
    SF_TRY(sf_simulate(program, &sim, arena, &result));
    sf_timeline_summarise(result.spans, result.n_spans, out);
    out->time.step_s = result.step_s;
    out->spans = result.spans;
    out->n_spans = result.n_spans;
    double peak = job->train.precision == SF_PRECISION_FP32 ? (job->cluster.gpu.tf32_flops > 0 ? job->cluster.gpu.tf32_flops : job->cluster.gpu.fp32_flops)
                                                            : job->cluster.gpu.bf16_flops;
    if (peak > 0 && result.step_s > 0) {
        out->mfu = (double)out->model_flop / result.step_s / peak;
        out->hfu = (double)out->hardware_flop / result.step_s / peak;
    }
    return SF_SUCCESS;
}
