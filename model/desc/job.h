/* model/desc/job.h: what is to be trained, where and how: the JOB of every command.
 *
 * Read from JSON (a file or text), with overrides `path=value`. Every field is a row of one table
 * (job_fields.c): its path, type, default, range and what it means. Unknown paths, wrong types and
 * knobs that the chosen framework and strategy do not have are errors that name the path and the
 * nearest ones. What was not stated is remembered (`assumed`), so that an answer can list it.
 *
 * Units   bytes, bit/s as Gbit, tokens, as each field says.
 * Owner   the arena given to the reader.
 */
#ifndef SF_DESC_JOB_H
#define SF_DESC_JOB_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "model/base/arena.h"
#include "model/base/dtype.h"
#include "model/base/status.h"
#include "model/desc/gpu.h"
#include "model/desc/transformer.h"

#define SF_FRAMEWORKS(X) X(PYTORCH, "pytorch") X(DEEPSPEED, "deepspeed") X(SHARDFIT, "shardfit")
#define SF_STRATEGY_NAMES(X)                                                                       \
    X(SINGLE, "single") X(DP, "dp") X(DDP, "ddp") X(FSDP, "fsdp") X(FSDP2, "fsdp2")                \
    X(ZERO1, "zero1") X(ZERO2, "zero2") X(ZERO3, "zero3")
#define SF_PRECISIONS(X)                                                                           \
    X(FP32, "fp32") X(TF32, "tf32") X(FP16_MIXED, "fp16-mixed") X(BF16_MIXED, "bf16-mixed")        \
    X(BF16_AUTOCAST, "bf16-autocast") X(BF16_PURE, "bf16-pure") X(FP8_MIXED, "fp8-mixed")
#define SF_OPTIMIZERS(X)                                                                           \
    X(ADAMW, "adamw") X(ADAMW_FUSED, "adamw-fused") X(ADAMW_FOREACH, "adamw-foreach")              \
    X(ADAMW_8BIT, "adamw-8bit") X(SGD, "sgd") X(ADAFACTOR, "adafactor") X(LION, "lion")
#define SF_RECOMPUTES(X) X(NONE, "none") X(FULL, "full") X(SELECTIVE, "selective")
#define SF_ATTENTIONS(X) X(EAGER, "eager") X(SDPA, "sdpa") X(FLASH, "flash") X(FLASH1, "flash-v1") X(CUDNN, "cudnn")
#define SF_LOSSES(X) X(FULL, "full") X(CHUNKED, "chunked") X(FUSED, "fused") X(KERNEL, "kernel")
#define SF_SHARDINGS(X)                                                                            \
    X(FULL_SHARD, "full_shard") X(SHARD_GRAD_OP, "shard_grad_op") X(NO_SHARD, "no_shard")          \
    X(HYBRID_SHARD, "hybrid_shard") X(HYBRID_SHARD_ZERO2, "_hybrid_shard_zero2")
#define SF_BACKWARD_PREFETCHES(X) X(PRE, "pre") X(POST, "post") X(NONE, "none")
#define SF_DEVICES(X) X(NONE, "none") X(CPU, "cpu") X(NVME, "nvme")
#define SF_DTYPE_CHOICES(X) X(DEFAULT, "default") X(FP32, "fp32") X(FP16, "fp16") X(BF16, "bf16")
#define SF_JOB_NICS(X) X(IB, "ib") X(ROCE, "roce") X(EFA, "efa") X(TCP, "tcp")
#define SF_JOB_INTRAS(X) X(AUTO, "auto") X(NVSWITCH, "nvswitch") X(NVLINK, "nvlink") X(PCIE, "pcie")
#define SF_AUTO_WRAPS(X) X(BLOCK, "block") X(SIZE, "size") X(NONE, "none")
#define SF_SPARSITIES(X)                                                                           \
    X(NONE, "none") X(DENSE, "dense") X(FIXED, "fixed") X(VARIABLE, "variable") X(BIGBIRD, "bigbird")  \
    X(BSLONGFORMER, "bslongformer") X(LOCAL, "local_sliding_window")
#define SF_SPARSE_DIRECTIONS(X) X(DEFAULT, "default") X(UNI, "unidirectional") X(BI, "bidirectional")
#define SF_COMM_HOOKS(X) X(NONE, "none") X(FP16, "fp16_compress") X(BF16, "bf16_compress")

#define SF_FRAMEWORK_ENUM(id, name) SF_FRAMEWORK_##id,
typedef enum { SF_FRAMEWORKS(SF_FRAMEWORK_ENUM) SF_FRAMEWORK_COUNT } sf_framework;
#define SF_STRATEGY_ENUM(id, name) SF_STRATEGY_##id,
typedef enum { SF_STRATEGY_NAMES(SF_STRATEGY_ENUM) SF_STRATEGY_COUNT } sf_strategy;
#define SF_PRECISION_ENUM(id, name) SF_PRECISION_##id,
typedef enum { SF_PRECISIONS(SF_PRECISION_ENUM) SF_PRECISION_COUNT } sf_precision;
#define SF_OPTIMIZER_ENUM(id, name) SF_OPTIMIZER_##id,
typedef enum { SF_OPTIMIZERS(SF_OPTIMIZER_ENUM) SF_OPTIMIZER_COUNT } sf_optimizer;
#define SF_RECOMPUTE_ENUM(id, name) SF_RECOMPUTE_##id,
typedef enum { SF_RECOMPUTES(SF_RECOMPUTE_ENUM) SF_RECOMPUTE_COUNT } sf_recompute;
#define SF_ATTENTION_ENUM(id, name) SF_ATTENTION_##id,
typedef enum { SF_ATTENTIONS(SF_ATTENTION_ENUM) SF_ATTENTION_COUNT } sf_attention;
#define SF_LOSS_ENUM(id, name) SF_LOSS_##id,
typedef enum { SF_LOSSES(SF_LOSS_ENUM) SF_LOSS_COUNT } sf_loss;
#define SF_SHARDING_ENUM(id, name) SF_SHARDING_##id,
typedef enum { SF_SHARDINGS(SF_SHARDING_ENUM) SF_SHARDING_COUNT } sf_sharding;
#define SF_BACKWARD_PREFETCH_ENUM(id, name) SF_BACKWARD_PREFETCH_##id,
typedef enum { SF_BACKWARD_PREFETCHES(SF_BACKWARD_PREFETCH_ENUM) SF_BACKWARD_PREFETCH_COUNT } sf_backward_prefetch;
#define SF_DEVICE_ENUM(id, name) SF_DEVICE_##id,
typedef enum { SF_DEVICES(SF_DEVICE_ENUM) SF_DEVICE_COUNT } sf_device;
#define SF_DTYPE_CHOICE_ENUM(id, name) SF_DTYPE_CHOICE_##id,
typedef enum { SF_DTYPE_CHOICES(SF_DTYPE_CHOICE_ENUM) SF_DTYPE_CHOICE_COUNT } sf_dtype_choice;
#define SF_JOB_NIC_ENUM(id, name) SF_JOB_NIC_##id,
typedef enum { SF_JOB_NICS(SF_JOB_NIC_ENUM) SF_JOB_NIC_COUNT } sf_job_nic;
#define SF_JOB_INTRA_ENUM(id, name) SF_JOB_INTRA_##id,
typedef enum { SF_JOB_INTRAS(SF_JOB_INTRA_ENUM) SF_JOB_INTRA_COUNT } sf_job_intra;
#define SF_AUTO_WRAP_ENUM(id, name) SF_AUTO_WRAP_##id,
typedef enum { SF_AUTO_WRAPS(SF_AUTO_WRAP_ENUM) SF_AUTO_WRAP_COUNT } sf_auto_wrap;
#define SF_SPARSITY_ENUM(id, name) SF_SPARSITY_##id,
typedef enum { SF_SPARSITIES(SF_SPARSITY_ENUM) SF_SPARSITY_COUNT } sf_sparsity;
#define SF_SPARSE_DIRECTION_ENUM(id, name) SF_SPARSE_DIRECTION_##id,
typedef enum { SF_SPARSE_DIRECTIONS(SF_SPARSE_DIRECTION_ENUM) SF_SPARSE_DIRECTION_COUNT } sf_sparse_direction;
#define SF_COMM_HOOK_ENUM(id, name) SF_COMM_HOOK_##id,
typedef enum { SF_COMM_HOOKS(SF_COMM_HOOK_ENUM) SF_COMM_HOOK_COUNT } sf_comm_hook;

/* reshard_after_forward and other fields that are true, false, null or a number. */
enum { SF_AUTO = -1 };

/* A short list of whole numbers. */
enum { SF_MOST_LIST = 16 };
typedef struct {
    int64_t n, v[SF_MOST_LIST];
} sf_int_list;

typedef struct {
    sf_gpu gpu;
    int64_t gpus_per_node, nodes;
    int64_t intra;             /* sf_job_intra                                                */
    bool p2p;                  /* GPUs of a node reach each other without host memory       */
    int64_t nics;
    double gbit_per_nic;
    int64_t nic_kind;          /* sf_job_nic                                                    */
    double host_memory_gib;    /* of a node; 0: not known                                   */
    double device_memory_gib;  /* overrides the GPU's; 0: the GPU's                         */
    double pcie_GBps;          /* host to one GPU; 0: by generation                         */
    double nvme_read_GBps, nvme_write_GBps; /* of a node                                    */
    int64_t host_cores;        /* of a node; 0: not known                                   */
    double host_memory_GBps;   /* sustained, of a node; 0: usual for the kind of GPU        */
    const char *topology;      /* file or "" */
} sf_cluster;

/* DeepSpeed's block-sparse attention (ops/sparse_attention/sparsity_config.py); SF_AUTO: that
 * pattern's own default. */
typedef struct {
    int64_t mode;              /* sf_sparsity                                               */
    int64_t block;             /* elements of a side                                        */
    bool different_layout_per_head, horizontal_global_attention;
    int64_t attention;         /* sf_sparse_direction                                       */
    int64_t num_local_blocks, num_global_blocks, num_different_global_patterns;
    int64_t num_random_blocks, num_sliding_window_blocks;
    sf_int_list local_window_blocks, global_block_indices, global_block_end_indices;
} sf_sparse_attention;

typedef struct {
    int64_t name;              /* sf_strategy                                               */
    /* ddp */
    int64_t bucket_cap_mb;
    bool gradient_as_bucket_view, find_unused_parameters, static_graph, broadcast_buffers;
    int64_t comm_hook;         /* sf_comm_hook                                              */
    /* fsdp, fsdp2 */
    int64_t sharding;          /* sf_sharding                                               */
    int64_t backward_prefetch; /* sf_backward_prefetch                                      */
    bool forward_prefetch, limit_all_gathers, use_orig_params, cpu_offload;
    int64_t auto_wrap;         /* sf_auto_wrap: what becomes a unit                         */
    double min_num_params;     /* auto_wrap size: elements of a unit at least               */
    bool pin_memory;           /* fsdp2: of CPUOffloadPolicy                                */
    int64_t reduce_dtype, param_dtype; /* sf_dtype_choice                                   */
    int64_t reshard_after_forward;     /* SF_AUTO, 0, 1 or a shard size                     */
    int64_t replicate;         /* hybrid: number of replicas; 0: one per node               */
    /* deepspeed */
    bool contiguous_gradients, reduce_scatter, use_multi_rank_bucket_allreduce, round_robin_gradients, allgather_partitions;
    int64_t overlap_comm;      /* SF_AUTO, 0, 1                                             */
    double reduce_bucket_size, allgather_bucket_size, sub_group_size;
    double stage3_prefetch_bucket_size, stage3_param_persistence_threshold, stage3_model_persistence_threshold;
    double stage3_max_live_parameters, stage3_max_reuse_distance;
    double stage3_module_granularity_threshold;
    bool stage3_gather_16bit_weights_on_model_save, stage3_allgather_sequential, stage3_use_all_reduce_for_fetch_params;
    bool memory_efficient_linear, ignore_unused_parameters, prescale_gradients, torch_adam;
    double gradient_predivide_factor;
    bool master_weights_16bit, optimizer_states_16bit; /* fp16/bf16_master_weights_and_grads, bf16_optimizer_states */
    int64_t grad_accum_dtype, communication_data_type; /* sf_dtype_choice                   */
    int64_t offload_optimizer_device, offload_param_device; /* sf_device                    */
    bool offload_optimizer_pin_memory, offload_param_pin_memory;
    int64_t offload_optimizer_buffer_count, offload_param_buffer_count;
    bool offload_optimizer_pipeline_read, offload_optimizer_pipeline_write, offload_optimizer_fast_init, offload_optimizer_super_offload;
    double offload_optimizer_cpuadam_cores_perc;
    const char *offload_optimizer_nvme_path, *offload_param_nvme_path;
    double offload_optimizer_ratio, offload_param_buffer_size, offload_param_max_in_cpu;
    int64_t zero_hpz_partition_size, mics_shard_size;
    bool zero_quantized_weights, zero_quantized_gradients, zero_quantized_nontrainable_weights, mics_hierarchical_params_gather;
    int64_t aio_block_size, aio_queue_depth, aio_intra_op_parallelism;
    bool aio_single_submit, aio_overlap_events, aio_use_gds;
    sf_sparse_attention sparse;
} sf_strategy_knobs;

typedef struct {
    int64_t micro_batch, grad_accum, global_batch, seq_len;
    int64_t precision, optimizer, recompute, attention, loss;
    double lr, beta1, beta2, eps, weight_decay, grad_clip, dropout;
    bool sync_each_micro_step, compile, fused_kernels;
    double recompute_share; /* of the layers, that recompute full takes */
    int64_t steps, seed;
    const char *data;          /* text or .bin file; "": the built-in text                  */
    int64_t tp, pp, cp, ep;
} sf_train;

typedef struct {
    sf_transformer model;
    int64_t framework;         /* sf_framework                                              */
    sf_cluster cluster;
    sf_strategy_knobs strategy;
    sf_train train;
    const char **assumed;      /* paths that were not stated and matter                     */
    size_t n_assumed, cap_assumed;
    const char **not_modelled; /* what the job or its configuration file asks and is not modelled */
    size_t n_not_modelled, cap_not_modelled;
    json_t *source;            /* the object as read, overrides applied; owned by the job   */
} sf_job;

typedef struct {
    const char *path, *value;  /* "train.micro_batch", "4"                                  */
} sf_override;

/* Was the field stated, in the file or by an override? */
bool sf_job_stated(const sf_job *job, const char *path);

/* `file` may be NULL: then only the overrides speak (with `model` among them). */
sf_status sf_job_read(const char *file, const sf_override *overrides, size_t n, sf_arena *arena, sf_job *out);
sf_status sf_job_from_json(const json_t *object, const char *place, const sf_override *overrides, size_t n, sf_arena *arena, sf_job *out);
void sf_job_close(sf_job *job); /* releases `source` */

/* The complete job, every field: reads back to the same job. New reference. */
json_t *sf_job_to_json(const sf_job *job);

static inline int sf_job_world_size(const sf_job *job)
{
    return (int)(job->cluster.gpus_per_node * job->cluster.nodes);
}

/* Device memory that a rank may use: device_memory_gib, else the GPU's usable bytes; 0: no limit. */
uint64_t sf_job_device_bytes(const sf_job *job);
uint64_t sf_job_tokens_per_step(const sf_job *job);

/* The element types of a precision where the framework has not been told otherwise. */
typedef struct {
    sf_dtype compute;          /* of matrix products' inputs (tf32: f32)                    */
    sf_dtype param;            /* of the parameters that the model holds                    */
    bool has_master;           /* an f32 copy beside 16-bit parameters                      */
    bool loss_scaling;         /* fp16                                                      */
} sf_precision_types;
sf_precision_types sf_precision_describe(int64_t framework, int64_t precision);

const char *sf_framework_name(int64_t framework);
const char *sf_strategy_name(int64_t strategy);
const char *sf_precision_name(int64_t precision);
const char *sf_optimizer_name(int64_t optimizer);
const char *sf_recompute_name(int64_t recompute);
const char *sf_attention_name(int64_t attention);

#endif
