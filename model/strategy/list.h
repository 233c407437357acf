/* model/strategy/list.h: the strategies, one row each: framework, name as typed, lowering, summary. */
#ifndef SF_STRATEGY_LIST_H
#define SF_STRATEGY_LIST_H

#include "model/desc/job.h"
#include "model/program/program.h"

/*    framework  name       function          one line */
#define SF_STRATEGIES(X)                                                                           \
    X(SHARDFIT, "single", sf_lower_single, "one device")                                           \
    X(SHARDFIT, "dp", sf_lower_dp, "one process, several devices; everything meets on device 0")   \
    X(SHARDFIT, "ddp", sf_lower_ddp, "a replica per rank; gradients all-reduced in buckets")       \
    X(SHARDFIT, "fsdp", sf_lower_fsdp, "blocks sharded; gathered before use, gradients scattered") \
    X(SHARDFIT, "zero1", sf_lower_zero1, "optimizer state sharded")                                \
    X(SHARDFIT, "zero2", sf_lower_zero2, "optimizer state and gradients sharded")                  \
    X(SHARDFIT, "zero3", sf_lower_zero3, "optimizer state, gradients and parameters sharded")       \
    X(PYTORCH, "single", sf_lower_torch_single, "one device")                                      \
    X(PYTORCH, "dp", sf_lower_torch_dp, "nn.DataParallel: one process, everything meets on device 0") \
    X(PYTORCH, "ddp", sf_lower_torch_ddp, "DistributedDataParallel")                               \
    X(PYTORCH, "fsdp", sf_lower_torch_fsdp, "FullyShardedDataParallel (FSDP1)")                    \
    X(PYTORCH, "fsdp2", sf_lower_torch_fsdp2, "fully_shard (FSDP2)")                                     \
    X(DEEPSPEED, "ddp", sf_lower_deepspeed_ddp, "ZeRO stage 0")                                    \
    X(DEEPSPEED, "zero1", sf_lower_deepspeed_zero1, "ZeRO stage 1")                                \
    X(DEEPSPEED, "zero2", sf_lower_deepspeed_zero2, "ZeRO stage 2")                                \
    X(DEEPSPEED, "zero3", sf_lower_deepspeed_zero3, "ZeRO stage 3")

#endif
