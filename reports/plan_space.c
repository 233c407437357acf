/* The variants that plan weighs: settings only. @nodes and @gpus_per_node stand for the job's. */
#include "reports/plan.h"

#define CPU_OPTIMIZER "strategy.offload_optimizer.device=cpu"
#define CPU_PARAMETERS "strategy.offload_optimizer.device=cpu strategy.offload_param.device=cpu"
#define ONE_DEVICE "cluster.gpus_per_node=1 cluster.nodes=1"

const sf_planner_variant sf_planner_variants[] = {
    { "pytorch", "single", "single device", ONE_DEVICE, 1 },
    { "pytorch", "dp", "dp", "", 1 },
    { "pytorch", "ddp", "ddp", "", 1 },
    { "pytorch", "fsdp", "fsdp, full_shard", "strategy.sharding=full_shard", 1 },
    { "pytorch", "fsdp", "fsdp, shard_grad_op", "strategy.sharding=shard_grad_op", 1 },
    { "pytorch", "fsdp", "fsdp, hybrid_shard", "strategy.sharding=hybrid_shard", 2 },
    { "pytorch", "fsdp", "fsdp, _hybrid_shard_zero2", "strategy.sharding=_hybrid_shard_zero2", 2 },
    { "pytorch", "fsdp", "fsdp, cpu_offload", "strategy.sharding=full_shard strategy.cpu_offload=true", 1 },
    { "pytorch", "fsdp2", "fsdp2", "strategy.reshard_after_forward=true", 1 },
    { "pytorch", "fsdp2", "fsdp2, reshard_after_forward off", "strategy.reshard_after_forward=false", 1 },
    { "pytorch", "fsdp2", "fsdp2, hybrid", "strategy.replicate=@nodes", 2 },
    { "pytorch", "fsdp2", "fsdp2, cpu_offload", "strategy.cpu_offload=true", 1 },
    { "deepspeed", "ddp", "ddp (stage 0)", "", 1 },
    { "deepspeed", "zero1", "zero1", "", 1 },
    { "deepspeed", "zero1", "zero1, cpu optimizer", CPU_OPTIMIZER, 1 },
    { "deepspeed", "zero2", "zero2", "", 1 },
    { "deepspeed", "zero2", "zero2, cpu optimizer", CPU_OPTIMIZER, 1 },
    { "deepspeed", "zero3", "zero3", "", 1 },
    { "deepspeed", "zero3", "zero3, cpu optimizer", CPU_OPTIMIZER, 1 },
    { "deepspeed", "zero3", "zero3, cpu optimizer and parameters", CPU_PARAMETERS, 1 },
    { "deepspeed", "zero3", "zero3, hpZ in a node", "strategy.zero_hpz_partition_size=@gpus_per_node", 2 },
    { "shardfit", "single", "single device", ONE_DEVICE, 1 },
    { "shardfit", "dp", "dp", "", 1 },
    { "shardfit", "ddp", "ddp", "", 1 },
    { "shardfit", "ddp", "ddp, cpu optimizer", CPU_OPTIMIZER, 1 },
    { "shardfit", "fsdp", "fsdp, full_shard", "strategy.sharding=full_shard", 1 },
    { "shardfit", "fsdp", "fsdp, shard_grad_op", "strategy.sharding=shard_grad_op", 1 },
    { "shardfit", "fsdp", "fsdp, cpu optimizer", "strategy.sharding=full_shard " CPU_OPTIMIZER, 1 },
    { "shardfit", "zero1", "zero1", "", 1 },
    { "shardfit", "zero1", "zero1, cpu optimizer", CPU_OPTIMIZER, 1 },
    { "shardfit", "zero2", "zero2", "", 1 },
    { "shardfit", "zero2", "zero2, cpu optimizer", CPU_OPTIMIZER, 1 },
    { "shardfit", "zero3", "zero3", "", 1 },
    { "shardfit", "zero3", "zero3, cpu optimizer", CPU_OPTIMIZER, 1 },
};
const size_t sf_planner_variant_count = sizeof sf_planner_variants / sizeof sf_planner_variants[0];
