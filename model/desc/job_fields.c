#include "model/desc/job_fields.h"

#include <string.h>

#define NAME(id, name) name,
static const char *const framework_names[] = { SF_FRAMEWORKS(NAME) NULL };
static const char *const strategy_names[] = { SF_STRATEGY_NAMES(NAME) NULL };
static const char *const precision_names[] = { SF_PRECISIONS(NAME) NULL };
static const char *const optimizer_names[] = { SF_OPTIMIZERS(NAME) NULL };
static const char *const recompute_names[] = { SF_RECOMPUTES(NAME) NULL };
static const char *const attention_names[] = { SF_ATTENTIONS(NAME) NULL };
static const char *const loss_names[] = { SF_LOSSES(NAME) NULL };
static const char *const sharding_names[] = { SF_SHARDINGS(NAME) NULL };
static const char *const prefetch_names[] = { SF_BACKWARD_PREFETCHES(NAME) NULL };
static const char *const device_names[] = { SF_DEVICES(NAME) NULL };
static const char *const dtype_names[] = { SF_DTYPE_CHOICES(NAME) NULL };
static const char *const nic_names[] = { SF_JOB_NICS(NAME) NULL };
static const char *const intra_names[] = { SF_JOB_INTRAS(NAME) NULL };
static const char *const hook_names[] = { SF_COMM_HOOKS(NAME) NULL };
static const char *const wrap_names[] = { SF_AUTO_WRAPS(NAME) NULL };
static const char *const sparsity_names[] = { SF_SPARSITIES(NAME) NULL };
static const char *const direction_names[] = { SF_SPARSE_DIRECTIONS(NAME) NULL };
#undef NAME

const char *sf_framework_name(int64_t v) { return framework_names[v]; }
const char *sf_strategy_name(int64_t v) { return strategy_names[v]; }
const char *sf_precision_name(int64_t v) { return precision_names[v]; }
const char *sf_optimizer_name(int64_t v) { return optimizer_names[v]; }
const char *sf_recompute_name(int64_t v) { return recompute_names[v]; }
const char *sf_attention_name(int64_t v) { return attention_names[v]; }

#define AT(member) offsetof(sf_job, member)
#define INT(path, member, otherwise, least, most, has, matters, help)                              \
    { path, SF_FIELD_INT, AT(member), otherwise, least, most, NULL, has, matters, help }
#define REAL(path, member, otherwise, least, most, has, matters, help)                             \
    { path, SF_FIELD_REAL, AT(member), otherwise, least, most, NULL, has, matters, help }
#define BOOL(path, member, otherwise, has, matters, help)                                          \
    { path, SF_FIELD_BOOL, AT(member), otherwise, 0, 1, NULL, has, matters, help }
#define CHOICE(path, member, otherwise, names, has, matters, help)                                 \
    { path, SF_FIELD_CHOICE, AT(member), otherwise, 0, 0, names, has, matters, help }
#define TEXT(path, member, has, help) { path, SF_FIELD_TEXT, AT(member), 0, 0, 0, NULL, has, false, help }
#define TRI(path, member, otherwise, most, has, matters, help)                                     \
    { path, SF_FIELD_TRI, AT(member), otherwise, 0, most, NULL, has, matters, help }
#define LIST(path, member, otherwise, least, most, has, help)                                      \
    { path, SF_FIELD_LIST, AT(member), otherwise, least, most, NULL, has, false, help }
#define S "strategy."
#define SPARSE S "sparse_attention."
#define OO S "offload_optimizer."
#define OP S "offload_param."
#define ZERO SF_HAS_DS
#define ZERO3 SF_HAS_DS_ZERO3
#define T "train."
#define C "cluster."
#define ALL SF_HAS_ALL
#define FSDPS (SF_HAS_PT_FSDP | SF_HAS_PT_FSDP2)
#define HUGE_COUNT 1e15

/* Defaults: PyTorch 2.x (torch/nn/parallel/distributed.py, torch/distributed/fsdp), DeepSpeed 0.19.6
 * (runtime/zero/config.py, offload_config.py, swap_tensor/constants.py,
 * ops/sparse_attention/sparsity_config.py), torch.optim.AdamW. pin_memory of offloading is true
 * since DeepSpeed 0.19.5, and was false before. */
const sf_field sf_job_fields[] = {
    CHOICE("framework", framework, SF_FRAMEWORK_PYTORCH, framework_names, ALL, true, "whose behaviour is modelled"),
    CHOICE(S "name", strategy.name, SF_STRATEGY_DDP, strategy_names, ALL, true, "the parallel strategy"),

    INT(C "gpus_per_node", cluster.gpus_per_node, 1, 1, 1024, ALL, true, "devices of one node that take part"),
    INT(C "nodes", cluster.nodes, 1, 1, 1 << 20, ALL, false, "nodes"),
    CHOICE(C "intra", cluster.intra, SF_JOB_INTRA_AUTO, intra_names, ALL, false, "what joins the GPUs of a node; auto: by GPU"),
    BOOL(C "p2p", cluster.p2p, 1, ALL, false, "GPUs of a node reach each other directly"),
    INT(C "inter.nics", cluster.nics, 0, 0, 64, ALL, false, "network cards of a node; 0: as is usual for the GPU"),
    REAL(C "inter.gbit_per_nic", cluster.gbit_per_nic, 0, 0, 10000, ALL, false, "Gbit/s of one card; 0: as is usual for the GPU"),
    CHOICE(C "inter.kind", cluster.nic_kind, SF_JOB_NIC_IB, nic_names, ALL, false, "kind of network"),
    REAL(C "host_memory_gib", cluster.host_memory_gib, 0, 0, 1e6, ALL, false, "host memory of a node, GiB; 0: not known"),
    REAL(C "device_memory_gib", cluster.device_memory_gib, 0, 0, 1e6, ALL, false, "device memory, GiB, instead of the GPU's"),
    REAL(C "pcie_GBps", cluster.pcie_GBps, 0, 0, 1e4, ALL, false, "host to one GPU, GB/s; 0: by PCIe generation"),
    REAL(C "nvme_read_GBps", cluster.nvme_read_GBps, 6, 0.01, 1e4, ALL, false, "NVMe of a node, GB/s"),
    REAL(C "nvme_write_GBps", cluster.nvme_write_GBps, 4, 0.01, 1e4, ALL, false, "NVMe of a node, GB/s"),
    INT(C "host_cores", cluster.host_cores, 0, 0, 4096, ALL, false, "host cores of a node; 0: not known"),
    REAL(C "host_memory_GBps", cluster.host_memory_GBps, 0, 0, 1e5, ALL, false, "host memory of a node, sustained GB/s; 0: usual for the kind of GPU"),
    TEXT(C "topology", cluster.topology, ALL, "a topology file instead of the fields above"),

    INT(S "bucket_cap_mb", strategy.bucket_cap_mb, 25, 1, 1 << 20, SF_HAS_PT_DDP | SF_HAS_OWN_DDP, false, "MiB of a gradient bucket"),
    BOOL(S "gradient_as_bucket_view", strategy.gradient_as_bucket_view, 0, SF_HAS_PT_DDP, false, "gradients lie in the buckets"),
    BOOL(S "find_unused_parameters", strategy.find_unused_parameters, 0, SF_HAS_PT_DDP, false, "search for unused parameters"),
    BOOL(S "static_graph", strategy.static_graph, 0, SF_HAS_PT_DDP, false, "the graph never changes"),
    BOOL(S "broadcast_buffers", strategy.broadcast_buffers, 1, SF_HAS_PT_DDP, false, "buffers are broadcast every forward"),
    CHOICE(S "comm_hook", strategy.comm_hook, SF_COMM_HOOK_NONE, hook_names, SF_HAS_PT_DDP, false, "gradient compression"),

    CHOICE(S "sharding", strategy.sharding, SF_SHARDING_FULL_SHARD, sharding_names, FSDPS | SF_HAS_OWN_FSDP, false, "what is sharded"),
    CHOICE(S "backward_prefetch", strategy.backward_prefetch, SF_BACKWARD_PREFETCH_PRE, prefetch_names, SF_HAS_PT_FSDP | SF_HAS_OWN_FSDP, false,
           "when backward gathers the next unit"),
    BOOL(S "forward_prefetch", strategy.forward_prefetch, 0, SF_HAS_PT_FSDP, false, "forward gathers the next unit early"),
    BOOL(S "limit_all_gathers", strategy.limit_all_gathers, 1, SF_HAS_PT_FSDP, false, "at most two gathers in flight"),
    BOOL(S "use_orig_params", strategy.use_orig_params, 0, SF_HAS_PT_FSDP, false, "keep the parameters' own shapes"),
    BOOL(S "cpu_offload", strategy.cpu_offload, 0, FSDPS, false, "shards, gradients and optimizer in host memory"),
    CHOICE(S "reduce_dtype", strategy.reduce_dtype, SF_DTYPE_CHOICE_DEFAULT, dtype_names, FSDPS, false, "type in which gradients are reduced"),
    CHOICE(S "param_dtype", strategy.param_dtype, SF_DTYPE_CHOICE_DEFAULT, dtype_names, FSDPS, false, "type of gathered parameters"),
    CHOICE(S "auto_wrap", strategy.auto_wrap, SF_AUTO_WRAP_BLOCK, wrap_names, SF_HAS_PT_FSDP | SF_HAS_PT_FSDP2, false,
           "what becomes a unit: each block, modules by size, or the whole model"),
    REAL(S "min_num_params", strategy.min_num_params, 1e8, 1, HUGE_COUNT, SF_HAS_PT_FSDP, false, "auto_wrap size: elements of a unit at least"),
    BOOL(S "pin_memory", strategy.pin_memory, 1, SF_HAS_PT_FSDP2, false, "cpu_offload: page-locked host memory"),
    TRI(S "reshard_after_forward", strategy.reshard_after_forward, 1, 1 << 20, SF_HAS_PT_FSDP2, false, "true, false, null or a shard size"),
    INT(S "replicate", strategy.replicate, 0, 0, 1 << 20, FSDPS, false, "hybrid sharding: replicas; 0: one per node"),

    BOOL(S "contiguous_gradients", strategy.contiguous_gradients, 1, SF_HAS_DS, false, "copy gradients into one bucket"),
    BOOL(S "reduce_scatter", strategy.reduce_scatter, 1, SF_HAS_DS, false, "reduce to the owner only"),
    BOOL(S "use_multi_rank_bucket_allreduce", strategy.use_multi_rank_bucket_allreduce, 1, SF_HAS_DS_ZERO12, false, "one all-reduce per bucket"),
    BOOL(S "round_robin_gradients", strategy.round_robin_gradients, 0, SF_HAS_DS_ZERO12, false, "spread parameters over partitions"),
    BOOL(S "allgather_partitions", strategy.allgather_partitions, 1, SF_HAS_DS_ZERO12, false, "no effect in current DeepSpeed"),
    TRI(S "overlap_comm", strategy.overlap_comm, SF_AUTO, 1, SF_HAS_DS, false, "reduce behind backward; null: stage 3 only"),
    REAL(S "reduce_bucket_size", strategy.reduce_bucket_size, 5e8, 1, HUGE_COUNT, SF_HAS_DS, false, "elements of the gradient bucket"),
    REAL(S "allgather_bucket_size", strategy.allgather_bucket_size, 5e8, 1, HUGE_COUNT, SF_HAS_DS, false, "no effect in current DeepSpeed"),
    REAL(S "sub_group_size", strategy.sub_group_size, 1e9, 1, HUGE_COUNT, SF_HAS_DS_ZERO3, false, "elements updated at a time"),
    REAL(S "stage3_prefetch_bucket_size", strategy.stage3_prefetch_bucket_size, 5e7, 0, HUGE_COUNT, SF_HAS_DS_ZERO3, false, "elements gathered ahead"),
    REAL(S "stage3_param_persistence_threshold", strategy.stage3_param_persistence_threshold, 1e5, 0, HUGE_COUNT, SF_HAS_DS_ZERO3, false,
         "smaller parameters stay whole"),
    REAL(S "stage3_model_persistence_threshold", strategy.stage3_model_persistence_threshold, HUGE_COUNT, 0, HUGE_COUNT, SF_HAS_DS_ZERO3, false,
         "most elements that stay whole"),
    REAL(S "stage3_max_live_parameters", strategy.stage3_max_live_parameters, 1e9, 0, HUGE_COUNT, SF_HAS_DS_ZERO3, false, "elements gathered at once"),
    REAL(S "stage3_max_reuse_distance", strategy.stage3_max_reuse_distance, 1e9, 0, HUGE_COUNT, SF_HAS_DS_ZERO3, false,
         "keep what is used again within so many elements"),
    BOOL(S "stage3_gather_16bit_weights_on_model_save", strategy.stage3_gather_16bit_weights_on_model_save, 0, SF_HAS_DS_ZERO3, false,
         "gather the model when saving"),
    REAL(S "stage3_module_granularity_threshold", strategy.stage3_module_granularity_threshold, 0, 0, HUGE_COUNT, ZERO3, false,
         "finer modules are fetched whole; 0: off"),
    BOOL(S "stage3_allgather_sequential", strategy.stage3_allgather_sequential, 0, ZERO3, false, "gather parameter by parameter"),
    BOOL(S "stage3_use_all_reduce_for_fetch_params", strategy.stage3_use_all_reduce_for_fetch_params, 0, ZERO3, false, "fetch by all-reduce"),
    BOOL(S "memory_efficient_linear", strategy.memory_efficient_linear, 1, ZERO3, false, "autograd does not keep gathered weights"),
    BOOL(S "ignore_unused_parameters", strategy.ignore_unused_parameters, 1, ZERO, false, "parameters without gradient are no error"),
    BOOL(S "prescale_gradients", strategy.prescale_gradients, 0, ZERO, false, "divide before reducing"),
    REAL(S "gradient_predivide_factor", strategy.gradient_predivide_factor, 1, 1e-6, 1e6, ZERO, false, "prescale_gradients: by this factor first"),
    BOOL(S "torch_adam", strategy.torch_adam, 0, ZERO, false, "torch.optim instead of FusedAdam"),
    BOOL(S "master_weights_and_grads_16bit", strategy.master_weights_16bit, 0, ZERO, false,
         "fp16_master_weights_and_grads or bf16_master_weights_and_grads"),
    BOOL(S "optimizer_states_16bit", strategy.optimizer_states_16bit, 0, ZERO, false, "bf16_optimizer_states"),
    CHOICE(S "grad_accum_dtype", strategy.grad_accum_dtype, SF_DTYPE_CHOICE_DEFAULT, dtype_names, SF_HAS_DS, false, "type of accumulated gradients"),
    CHOICE(S "communication_data_type", strategy.communication_data_type, SF_DTYPE_CHOICE_DEFAULT, dtype_names, SF_HAS_DS, false,
           "type of communicated gradients"),
    CHOICE(S "offload_optimizer.device", strategy.offload_optimizer_device, SF_DEVICE_NONE, device_names, SF_HAS_DS | SF_HAS_OWN, false,
           "where optimizer state lives"),
    BOOL(OO "pin_memory", strategy.offload_optimizer_pin_memory, 1, ZERO, false, "page-locked"),
    INT(S "offload_optimizer.buffer_count", strategy.offload_optimizer_buffer_count, 4, 1, 1024, SF_HAS_DS, false, "NVMe swap buffers"),
    REAL(S "offload_optimizer.ratio", strategy.offload_optimizer_ratio, 1, 0, 1, SF_HAS_DS_ZERO3, false, "share updated on the host"),
    BOOL(OO "pipeline_read", strategy.offload_optimizer_pipeline_read, 0, ZERO, false, "read the next sub-group from NVMe meanwhile"),
    BOOL(OO "pipeline_write", strategy.offload_optimizer_pipeline_write, 0, ZERO, false, "write the last sub-group to NVMe meanwhile"),
    BOOL(OO "fast_init", strategy.offload_optimizer_fast_init, 0, ZERO, false, "NVMe: initialise without swapping"),
    BOOL(OO "super_offload", strategy.offload_optimizer_super_offload, 0, ZERO3, false, "SuperOffload's optimizer"),
    REAL(OO "cpuadam_cores_perc", strategy.offload_optimizer_cpuadam_cores_perc, 0.8, 0, 1, ZERO3, false, "super_offload: share of the cores"),
    TEXT(OO "nvme_path", strategy.offload_optimizer_nvme_path, ZERO, "folder on NVMe"),
    TEXT(OP "nvme_path", strategy.offload_param_nvme_path, ZERO3, "folder on NVMe"),
    CHOICE(S "offload_param.device", strategy.offload_param_device, SF_DEVICE_NONE, device_names, SF_HAS_DS_ZERO3, false, "where shards live"),
    BOOL(OP "pin_memory", strategy.offload_param_pin_memory, 1, ZERO3, false, "page-locked"),
    INT(S "offload_param.buffer_count", strategy.offload_param_buffer_count, 5, 1, 1024, SF_HAS_DS_ZERO3, false, "NVMe buffers"),
    REAL(S "offload_param.buffer_size", strategy.offload_param_buffer_size, 1e8, 1, HUGE_COUNT, SF_HAS_DS_ZERO3, false, "elements of an NVMe buffer"),
    REAL(S "offload_param.max_in_cpu", strategy.offload_param_max_in_cpu, 1e9, 0, HUGE_COUNT, SF_HAS_DS_ZERO3, false, "elements kept in host memory"),
    INT(S "zero_hpz_partition_size", strategy.zero_hpz_partition_size, 1, 1, 1 << 20, SF_HAS_DS_ZERO3, false, "ZeRO++ secondary shard group"),
    INT(S "mics_shard_size", strategy.mics_shard_size, -1, -1, 1 << 20, SF_HAS_DS_ZERO3, false, "MiCS shard group; -1: off"),
    BOOL(S "zero_quantized_weights", strategy.zero_quantized_weights, 0, SF_HAS_DS_ZERO3, false, "ZeRO++ int8 gathers"),
    BOOL(S "zero_quantized_gradients", strategy.zero_quantized_gradients, 0, SF_HAS_DS_ZERO3, false, "ZeRO++ int4 reductions"),
    BOOL(S "zero_quantized_nontrainable_weights", strategy.zero_quantized_nontrainable_weights, 0, ZERO3, false, "frozen weights stay int8"),
    BOOL(S "mics_hierarchical_params_gather", strategy.mics_hierarchical_params_gather, 0, ZERO3, false, "MiCS gathers between nodes first"),
    INT(S "aio.block_size", strategy.aio_block_size, 1048576, 4096, 1 << 30, ZERO, false, "NVMe: bytes of one request"),
    INT(S "aio.queue_depth", strategy.aio_queue_depth, 8, 1, 1 << 16, ZERO, false, "NVMe: requests in flight"),
    INT(S "aio.intra_op_parallelism", strategy.aio_intra_op_parallelism, 1, 1, 1024, ZERO, false, "NVMe: threads of one transfer"),
    BOOL(S "aio.single_submit", strategy.aio_single_submit, 0, ZERO, false, "NVMe: one request at a time"),
    BOOL(S "aio.overlap_events", strategy.aio_overlap_events, 1, ZERO, false, "NVMe: submit and complete meanwhile"),
    BOOL(S "aio.use_gds", strategy.aio_use_gds, 0, ZERO, false, "NVMe: GPUDirect Storage"),

    CHOICE(SPARSE "mode", strategy.sparse.mode, SF_SPARSITY_NONE, sparsity_names, ZERO, false, "block-sparse attention: the pattern"),
    INT(SPARSE "block", strategy.sparse.block, 16, 1, 1 << 16, ZERO, false, "elements of a block's side"),
    BOOL(SPARSE "different_layout_per_head", strategy.sparse.different_layout_per_head, 0, ZERO, false, "each head has its own pattern"),
    CHOICE(SPARSE "attention", strategy.sparse.attention, SF_SPARSE_DIRECTION_DEFAULT, direction_names, ZERO, false, "default: the pattern's own"),
    BOOL(SPARSE "horizontal_global_attention", strategy.sparse.horizontal_global_attention, 0, ZERO, false, "global rows too"),
    INT(SPARSE "num_local_blocks", strategy.sparse.num_local_blocks, 4, 1, 1 << 16, ZERO, false, "fixed: blocks of a window"),
    INT(SPARSE "num_global_blocks", strategy.sparse.num_global_blocks, 1, 0, 1 << 16, ZERO, false, "fixed, bigbird: global blocks"),
    INT(SPARSE "num_different_global_patterns", strategy.sparse.num_different_global_patterns, 1, 1, 1 << 16, ZERO, false, "fixed: patterns over the heads"),
    INT(SPARSE "num_random_blocks", strategy.sparse.num_random_blocks, SF_AUTO, SF_AUTO, 1 << 16, ZERO, false, "-1: variable 0, bigbird 1"),
    INT(SPARSE "num_sliding_window_blocks", strategy.sparse.num_sliding_window_blocks, 3, 1, 1 << 16, ZERO, false,
        "bigbird, bslongformer, local: blocks of the band"),
    LIST(SPARSE "local_window_blocks", strategy.sparse.local_window_blocks, 4, 1, 1 << 16, ZERO, "variable: blocks of each window"),
    LIST(SPARSE "global_block_indices", strategy.sparse.global_block_indices, 0, 0, 1 << 24, ZERO, "variable, bslongformer: global blocks"),
    LIST(SPARSE "global_block_end_indices", strategy.sparse.global_block_end_indices, SF_AUTO, 0, 1 << 24, ZERO, "ends of ranges; none: single blocks"),

    INT(T "micro_batch", train.micro_batch, 1, 1, 1 << 24, ALL, true, "sequences of one device in one micro-step"),
    INT(T "grad_accum", train.grad_accum, 1, 1, 1 << 20, ALL, true, "micro-steps of one optimizer step"),
    INT(T "global_batch", train.global_batch, 0, 0, 1 << 30, ALL, false, "sequences of one step; 0: the product"),
    INT(T "seq_len", train.seq_len, 0, 0, 1 << 24, ALL, true, "tokens of one sequence; 0: the model's most"),
    CHOICE(T "precision", train.precision, SF_PRECISION_BF16_MIXED, precision_names, ALL, true, "types of weights and arithmetic"),
    CHOICE(T "optimizer", train.optimizer, SF_OPTIMIZER_ADAMW, optimizer_names, ALL, true, "optimizer"),
    CHOICE(T "recompute", train.recompute, SF_RECOMPUTE_NONE, recompute_names, ALL, true, "activation checkpointing"),
    REAL(T "recompute_share", train.recompute_share, 1, 0, 1, ALL, false, "of the layers, evenly spread, that recompute full takes"),
    CHOICE(T "attention", train.attention, SF_ATTENTION_SDPA, attention_names, ALL, true, "attention kernel"),
    CHOICE(T "loss", train.loss, SF_LOSS_FULL, loss_names, ALL, false,
           "full: PyTorch's; chunked; fused with the head; kernel: one fused kernel, in place"),
    REAL(T "lr", train.lr, 3e-4, 0, 1e6, ALL, false, "learning rate"),
    REAL(T "beta1", train.beta1, 0.9, 0, 0.999999, ALL, false, "AdamW"),
    REAL(T "beta2", train.beta2, 0.95, 0, 0.9999999, ALL, false, "AdamW"),
    REAL(T "eps", train.eps, 1e-8, 0, 1, ALL, false, "AdamW"),
    REAL(T "weight_decay", train.weight_decay, 0.1, 0, 1e3, ALL, false, "AdamW; matrices only"),
    REAL(T "grad_clip", train.grad_clip, 0, 0, 1e9, ALL, false, "largest norm of all gradients; 0: off"),
    REAL(T "dropout", train.dropout, -1, -1, 1, ALL, false, "-1: the model's own"),
    BOOL(T "sync_each_micro_step", train.sync_each_micro_step, 0, ALL, false,
         "reduce gradients in every micro-step; not stated: PyTorch's FSDP does, others do not"),
    BOOL(T "compile", train.compile, 0, ALL, false, "torch.compile"),
    BOOL(T "fused_kernels", train.fused_kernels, 0, ALL, false, "norm, rotary and activation kernels of Megatron, Apex or Transformer Engine"),
    INT(T "steps", train.steps, 10, 1, 1 << 30, ALL, false, "optimizer steps of a real run"),
    INT(T "seed", train.seed, 1, 0, 1 << 30, ALL, false, "of the initial weights"),
    TEXT(T "data", train.data, ALL, "a text, or a .bin of 16-bit tokens; none: a text of the system"),
    INT(T "tp", train.tp, 1, 1, 1 << 20, ALL, false, "tensor-parallel degree"),
    INT(T "pp", train.pp, 1, 1, 1 << 20, ALL, false, "pipeline stages"),
    INT(T "cp", train.cp, 1, 1, 1 << 20, ALL, false, "context-parallel degree"),
    INT(T "ep", train.ep, 1, 1, 1 << 20, ALL, false, "expert-parallel degree"),
};
const size_t sf_job_field_count = sizeof sf_job_fields / sizeof sf_job_fields[0];

const sf_field *sf_job_field_find(const char *path)
{
    for (size_t i = 0; i < sf_job_field_count; i++)
        if (strcmp(sf_job_fields[i].path, path) == 0)
            return &sf_job_fields[i];
    return NULL;
}

unsigned sf_job_field_bits(int64_t framework, int64_t strategy)
{
    unsigned bits = SF_HAS_ALL;
    if (framework == SF_FRAMEWORK_SHARDFIT) {
        bits |= SF_HAS_OWN;
        bits |= strategy == SF_STRATEGY_DDP ? SF_HAS_OWN_DDP : strategy == SF_STRATEGY_FSDP ? SF_HAS_OWN_FSDP : 0u;
        return bits;
    }
    switch (strategy) {
    case SF_STRATEGY_DDP: return bits | SF_HAS_PT_DDP;
    case SF_STRATEGY_FSDP: return bits | SF_HAS_PT_FSDP;
    case SF_STRATEGY_FSDP2: return bits | SF_HAS_PT_FSDP2;
    case SF_STRATEGY_ZERO1:
    case SF_STRATEGY_ZERO2: return bits | SF_HAS_DS_ZERO12;
    case SF_STRATEGY_ZERO3: return bits | SF_HAS_DS_ZERO3;
    default: return bits;
    }
}
