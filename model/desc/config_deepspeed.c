/* A DeepSpeed configuration. Keys: deepspeed/runtime/constants.py, config.py, zero/config.py, zero/offload_config.py,
 * precision_config.py, swap_tensor/constants.py (0.14 to 0.19). "auto" is resolved by Transformers' integration
 * (transformers/integrations/deepspeed.py): batch, clipping, precision and optimizer from its own arguments,
 * reduce_bucket_size, stage3_prefetch_bucket_size and stage3_param_persistence_threshold from the hidden size. */
#include <string.h>

#include "model/base/text.h"
#include "model/desc/config_reader.h"
#include "model/desc/json.h"

#define Z "zero_optimization."
#define S "strategy."

/* ---- keys that need a thought ---- */

sf_status sf_config_zero_stage(sf_config_reader *r, const char *key, const json_t *value)
{
    static const char *const names[] = { "ddp", "zero1", "zero2", "zero3" };
    int64_t stage;
    SF_TRY(sf_config_int(r, key, value, &stage));
    if (stage < 0 || stage > 3)
        return SF_FAIL(SF_EINVAL, "%s: %s is %lld; DeepSpeed has stages 0 to 3", r->place, key, (long long)stage);
    sf_config_set_text(r, S "name", names[stage]);
    sf_config_note_add(r, key, value, SF_CONFIG_TAKEN, S "name", NULL);
    return SF_SUCCESS;
}

/* In the three sizes that Transformers derives from the hidden size, the job resolves "auto" itself. */
static sf_status read_hidden_sized(sf_config_reader *r, const char *key, const json_t *value)
{
    const char *name = strrchr(key, '.') + 1;
    const char *path = sf_arena_printf(r->arena, S "%s%s", sf_str_starts(name, "prefetch") || sf_str_starts(name, "param_") ? "stage3_" : "", name);
    if (!sf_config_is_auto(value)) {
        SF_TRY(sf_config_set(r, key, path, value));
        sf_config_note_add(r, key, value, SF_CONFIG_TAKEN, path, NULL);
        return SF_SUCCESS;
    }
    sf_config_set_text(r, path, "auto");
    sf_config_note_add(r, key, value, SF_CONFIG_AUTO, path, "from the model's hidden size, as Transformers resolves it");
    return SF_SUCCESS;
}

/* Old keys: zero_optimization.cpu_offload: true. */
static sf_status read_cpu_offload(sf_config_reader *r, const char *key, const json_t *value)
{
    bool on;
    bool params = strstr(key, "params") != NULL;
    const char *path = params ? S "offload_param.device" : S "offload_optimizer.device";
    SF_TRY(sf_config_bool(r, key, value, &on));
    if (on)
        sf_config_set_text(r, path, "cpu");
    sf_config_note_add(r, key, value, SF_CONFIG_TAKEN, path, params ? "old name of offload_param" : "old name of offload_optimizer");
    return SF_SUCCESS;
}

/* 0 makes each parameter a group of its own, as 1 does. */
static sf_status read_sub_group_size(sf_config_reader *r, const char *key, const json_t *value)
{
    double elements;
    if (sf_json_to_real(value, &elements) && elements == 0)
        sf_config_set_int(r, S "sub_group_size", 1);
    else if (!sf_config_is_auto(value))
        SF_TRY(sf_config_set(r, key, S "sub_group_size", value));
    sf_config_note_add(r, key, value, sf_config_is_auto(value) ? SF_CONFIG_AUTO : SF_CONFIG_TAKEN, S "sub_group_size", NULL);
    return SF_SUCCESS;
}

static sf_status read_optimizer_type(sf_config_reader *r, const char *key, const json_t *value)
{
    static const struct { const char *type, *optimizer, *remark; } types[] = {
        { "adam", "adamw", NULL }, { "adamw", "adamw", NULL }, { "fusedadam", "adamw", NULL }, { "lion", "lion", NULL },
        { "sgd", "sgd", NULL }, { "adafactor", "adafactor", NULL }, { "adamw8bit", "adamw-8bit", NULL },
        { "lamb", "adamw", "LAMB is not modelled; AdamW, which keeps the same two moments, stands for it" },
        { "fusedlamb", "adamw", "LAMB is not modelled; AdamW, which keeps the same two moments, stands for it" },
        { "onebitadam", "adamw", "1-bit Adam's compressed all-reduce and error buffers are not modelled; AdamW stands for it" },
        { "zerooneadam", "adamw", "0/1 Adam's compressed all-reduce and error buffers are not modelled; AdamW stands for it" },
        { "onebitlamb", "adamw", "1-bit LAMB's compressed all-reduce and error buffers are not modelled; AdamW stands for it" },
    };
    char squashed[64];
    if (!json_is_string(value))
        return SF_FAIL(SF_EINVAL, "%s: %s is a name such as \"AdamW\"", r->place, key);
    if (sf_config_is_auto(value)) {
        sf_config_note_add(r, key, value, SF_CONFIG_AUTO, "train.optimizer", NULL);
        return SF_SUCCESS;
    }
    sf_str_squash(json_string_value(value), squashed, sizeof squashed);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(squashed, types[i].type) == 0) {
            sf_config_set_text(r, "train.optimizer", types[i].optimizer);
            sf_config_note_add(r, key, value, types[i].remark == NULL ? SF_CONFIG_TAKEN : SF_CONFIG_NOT_MODELLED, "train.optimizer", types[i].remark);
            return SF_SUCCESS;
        }
    sf_config_note_add(r, key, value, SF_CONFIG_NOT_MODELLED, "train.optimizer", "this optimizer's state is not known; the job's own optimizer stands for it");
    return SF_SUCCESS;
}

static sf_status read_betas(sf_config_reader *r, const char *key, const json_t *value)
{
    if (json_is_array(value) && json_array_size(value) == 2 && json_is_number(json_array_get(value, 0))) {
        SF_TRY(sf_config_set(r, key, "train.beta1", json_array_get(value, 0)));
        SF_TRY(sf_config_set(r, key, "train.beta2", json_array_get(value, 1)));
        sf_config_note_add(r, key, value, SF_CONFIG_TAKEN, "train.beta1", NULL);
    } else {
        sf_config_note_add(r, key, value, SF_CONFIG_AUTO, "train.beta1", NULL);
    }
    return SF_SUCCESS;
}

/* What changes memory when on, and is not modelled; off, it is nothing. */
static sf_status read_unmodelled_switch(sf_config_reader *r, const char *key, const json_t *value)
{
    const json_t *enabled = json_is_object(value) ? json_object_get(value, "enabled") : value;
    bool on = true;
    if (enabled != NULL && !sf_config_is_auto(enabled))
        SF_TRY(sf_config_bool(r, key, enabled, &on));
    sf_config_note_add(r, key, value, on ? SF_CONFIG_NOT_MODELLED : SF_CONFIG_NO_EFFECT, NULL, on ? "predicted as if it were off" : "it is off");
    return SF_SUCCESS;
}

static sf_status read_autotp(sf_config_reader *r, const char *key, const json_t *value)
{
    SF_TRY(sf_config_set(r, key, "train.tp", value));
    sf_config_note_add(r, key, value, SF_CONFIG_TAKEN, "train.tp", NULL);
    return SF_SUCCESS;
}

static sf_status read_torch_dtype(sf_config_reader *r, const char *key, const json_t *value)
{
    static const struct { const char *word, *dtype; } words[] = {
        { "fp32", "fp32" }, { "float32", "fp32" }, { "fp16", "fp16" }, { "float16", "fp16" }, { "half", "fp16" },
        { "bf16", "bf16" }, { "bfp16", "bf16" }, { "bfloat16", "bf16" },
    };
    const char *path = sf_str_starts(key, "data_types") ? S "grad_accum_dtype" : S "communication_data_type";
    const char *text = json_is_string(value) ? json_string_value(value) : NULL;
    if (text == NULL || sf_config_is_auto(value)) {
        sf_config_note_add(r, key, value, SF_CONFIG_AUTO, path, NULL);
        return SF_SUCCESS;
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (sf_str_ieq(text, words[i].word)) {
            sf_config_set_text(r, path, words[i].dtype);
            sf_config_note_add(r, key, value, SF_CONFIG_TAKEN, path, NULL);
            return SF_SUCCESS;
        }
    return SF_FAIL(SF_EINVAL, "%s: %s is '%s'; DeepSpeed knows fp32, fp16 and bf16", r->place, key, text);
}

static sf_status read_precision_section(sf_config_reader *r, const char *key, const json_t *value)
{
    (void)r, (void)key, (void)value;
    return SF_SUCCESS; /* settled as a whole, after the walk: read_precision */
}

/* ---- the table ---- */

#define TAKE(key, path) { key, SF_CONFIG_TAKEN, path, NULL, NULL }
#define ZERO(name) { Z name, SF_CONFIG_TAKEN, S name, NULL, NULL }
#define ZERO3(name) { Z "stage3_" name, SF_CONFIG_TAKEN, S "stage3_" name, NULL, NULL }, { Z name, SF_CONFIG_TAKEN, S "stage3_" name, NULL, NULL }
#define NOTHING(key, why) { key, SF_CONFIG_NO_EFFECT, NULL, why, NULL }
#define MISSING(key, why) { key, SF_CONFIG_NOT_MODELLED, NULL, why, NULL }
#define SWITCH(key) { key, SF_CONFIG_NOT_MODELLED, NULL, NULL, read_unmodelled_switch }
#define AIO(name) { "aio." name, SF_CONFIG_TAKEN, S "aio." name, NULL, NULL }
#define SPARSE(name) { "sparse_attention." name, SF_CONFIG_TAKEN, S "sparse_attention." name, NULL, NULL }

static const sf_config_row rows[] = {
    TAKE("train_micro_batch_size_per_gpu", "train.micro_batch"),
    TAKE("gradient_accumulation_steps", "train.grad_accum"),
    TAKE("train_batch_size", "train.global_batch"),
    TAKE("gradient_clipping", "train.grad_clip"),
    { "optimizer.type", SF_CONFIG_TAKEN, NULL, NULL, read_optimizer_type },
    TAKE("optimizer.params.lr", "train.lr"),
    { "optimizer.params.betas", SF_CONFIG_TAKEN, NULL, NULL, read_betas },
    TAKE("optimizer.params.eps", "train.eps"),
    TAKE("optimizer.params.weight_decay", "train.weight_decay"),
    TAKE("optimizer.params.torch_adam", S "torch_adam"),
    NOTHING("optimizer.params.*", "no effect on memory and time"),
    NOTHING("optimizer.legacy_fusion", NULL),
    NOTHING("scheduler*", "the learning rate's course"),

    { "fp16.*", SF_CONFIG_TAKEN, NULL, NULL, read_precision_section },
    { "bf16.*", SF_CONFIG_TAKEN, NULL, NULL, read_precision_section },
    { "bfloat16.*", SF_CONFIG_TAKEN, NULL, NULL, read_precision_section },
    { "torch_autocast.*", SF_CONFIG_TAKEN, NULL, NULL, read_precision_section },
    { "amp.*", SF_CONFIG_NOT_MODELLED, NULL, NULL, read_unmodelled_switch },
    { "data_types.grad_accum_dtype", SF_CONFIG_TAKEN, NULL, NULL, read_torch_dtype },
    { "communication_data_type", SF_CONFIG_TAKEN, NULL, NULL, read_torch_dtype },
    MISSING("seq_parallel_communication_data_type", "sequence parallelism (Ulysses) is not modelled"),
    MISSING("sequence_parallel_size", "sequence parallelism (Ulysses) is not modelled"),
    TAKE("prescale_gradients", S "prescale_gradients"),
    TAKE("gradient_predivide_factor", S "gradient_predivide_factor"),
    SWITCH("sparse_gradients"),

    { Z "stage", SF_CONFIG_TAKEN, NULL, NULL, sf_config_zero_stage },
    ZERO("contiguous_gradients"), ZERO("reduce_scatter"), ZERO("use_multi_rank_bucket_allreduce"), ZERO("round_robin_gradients"),
    ZERO("allgather_partitions"), ZERO("overlap_comm"), ZERO("allgather_bucket_size"), ZERO("ignore_unused_parameters"),
    ZERO("memory_efficient_linear"), ZERO("zero_hpz_partition_size"), ZERO("zero_quantized_weights"), ZERO("zero_quantized_gradients"),
    ZERO("zero_quantized_nontrainable_weights"), ZERO("mics_shard_size"), ZERO("mics_hierarchical_params_gather"),
    { Z "reduce_bucket_size", SF_CONFIG_TAKEN, NULL, NULL, read_hidden_sized },
    { Z "stage3_prefetch_bucket_size", SF_CONFIG_TAKEN, NULL, NULL, read_hidden_sized },
    { Z "prefetch_bucket_size", SF_CONFIG_TAKEN, NULL, NULL, read_hidden_sized },
    { Z "stage3_param_persistence_threshold", SF_CONFIG_TAKEN, NULL, NULL, read_hidden_sized },
    { Z "param_persistence_threshold", SF_CONFIG_TAKEN, NULL, NULL, read_hidden_sized },
    { Z "sub_group_size", SF_CONFIG_TAKEN, NULL, NULL, read_sub_group_size },
    ZERO3("model_persistence_threshold"), ZERO3("max_live_parameters"), ZERO3("max_reuse_distance"),
    ZERO3("gather_16bit_weights_on_model_save"), ZERO3("module_granularity_threshold"), ZERO3("allgather_sequential"),
    ZERO3("use_all_reduce_for_fetch_params"),
    { Z "stage3_gather_fp16_weights_on_model_save", SF_CONFIG_TAKEN, S "stage3_gather_16bit_weights_on_model_save", "old name", NULL },
    { Z "gather_fp16_weights_on_model_save", SF_CONFIG_TAKEN, S "stage3_gather_16bit_weights_on_model_save", "old name", NULL },
    { Z "cpu_offload", SF_CONFIG_TAKEN, NULL, NULL, read_cpu_offload },
    { Z "cpu_offload_params", SF_CONFIG_TAKEN, NULL, NULL, read_cpu_offload },
    { Z "cpu_offload_param", SF_CONFIG_TAKEN, NULL, NULL, read_cpu_offload },
    { Z "cpu_offload_use_pin_memory", SF_CONFIG_TAKEN, S "offload_optimizer.pin_memory", "old name", NULL },
    ZERO("offload_optimizer.device"), ZERO("offload_optimizer.nvme_path"), ZERO("offload_optimizer.buffer_count"),
    ZERO("offload_optimizer.pin_memory"), ZERO("offload_optimizer.pipeline_read"), ZERO("offload_optimizer.pipeline_write"),
    ZERO("offload_optimizer.fast_init"), ZERO("offload_optimizer.ratio"), ZERO("offload_optimizer.super_offload"),
    ZERO("offload_optimizer.cpuadam_cores_perc"),
    ZERO("offload_param.device"), ZERO("offload_param.nvme_path"), ZERO("offload_param.buffer_count"), ZERO("offload_param.buffer_size"),
    ZERO("offload_param.max_in_cpu"), ZERO("offload_param.pin_memory"),
    NOTHING(Z "load_from_fp32_weights", "loading a checkpoint"), NOTHING(Z "elastic_checkpoint", "loading a checkpoint"),
    NOTHING(Z "legacy_stage1", "removed from DeepSpeed"), NOTHING(Z "override_module_apply", NULL), NOTHING(Z "log_trace_cache_warnings", NULL),
    NOTHING(Z "enable_sanity_checks", "checks only"), NOTHING(Z "pipeline_loading_checkpoint", "loading a checkpoint"),
    SWITCH(Z "zenflow"), MISSING(Z "leaf_module.*", "leaf modules are fetched as any other"),
    { Z "zeropp_loco_param.*", SF_CONFIG_NOT_MODELLED, NULL, "error feedback of quantized gradients is not modelled", NULL },
    SWITCH(Z "zero_quantized_weights_fp8"),

    AIO("block_size"), AIO("queue_depth"), AIO("intra_op_parallelism"), AIO("single_submit"), AIO("overlap_events"), AIO("use_gds"),
    { "aio.thread_count", SF_CONFIG_TAKEN, S "aio.intra_op_parallelism", "old name", NULL },
    SPARSE("mode"), SPARSE("block"), SPARSE("different_layout_per_head"), SPARSE("attention"), SPARSE("horizontal_global_attention"),
    SPARSE("num_local_blocks"), SPARSE("num_global_blocks"), SPARSE("num_different_global_patterns"), SPARSE("num_random_blocks"),
    SPARSE("num_sliding_window_blocks"), SPARSE("local_window_blocks"), SPARSE("global_block_indices"), SPARSE("global_block_end_indices"),

    { "tensor_parallel.autotp_size", SF_CONFIG_TAKEN, "train.tp", NULL, read_autotp },
    { "tensor_parallel.tp_size", SF_CONFIG_TAKEN, "train.tp", NULL, read_autotp },
    NOTHING("tensor_parallel.*", "which layers are split"),
    SWITCH("activation_checkpointing.cpu_checkpointing"), SWITCH("activation_checkpointing.partition_activations"),
    SWITCH("activation_checkpointing.contiguous_memory_optimization"),
    NOTHING("activation_checkpointing.*", "of deepspeed.checkpointing only; whether blocks are recomputed is train.recompute"),
    SWITCH("hybrid_engine"), SWITCH("compression_training"), SWITCH("data_efficiency"), SWITCH("curriculum_learning"),
    SWITCH("progressive_layer_drop"), SWITCH("eigenvalue"), SWITCH("elasticity"), SWITCH("quantize_training"),
    { "compile.deepcompile", SF_CONFIG_NOT_MODELLED, NULL, NULL, read_unmodelled_switch },
    NOTHING("compile.*", NULL),
    NOTHING("autotuning*", "the search for a configuration, not one"),
    NOTHING("pipeline.*", "the pipeline engine's options; stages are train.pp"),
    NOTHING("checkpoint.*", "saving and loading"), NOTHING("nebula.*", "saving and loading"), NOTHING("data_types.*", NULL),
    NOTHING("steps_per_print", "logging"), NOTHING("wall_clock_breakdown", "logging"), NOTHING("memory_breakdown", "logging"),
    NOTHING("dump_state", "logging"), NOTHING("flops_profiler*", "logging"), NOTHING("comms_logger*", "logging"), NOTHING("comms_config*", "logging"),
    NOTHING("tensorboard*", "logging"), NOTHING("wandb*", "logging"), NOTHING("csv_monitor*", "logging"), NOTHING("monitor_config*", "logging"),
    NOTHING("comet*", "logging"), NOTHING("timers*", "logging"), NOTHING("disable_allgather", NULL),
    NOTHING("zero_allow_untested_optimizer", "a check only"), NOTHING("zero_force_ds_cpu_optimizer", "a check only"),
    NOTHING("use_node_local_storage", "saving"), NOTHING("graph_harvesting", NULL), NOTHING("weight_quantization*", "inference only"),
    NOTHING("gradient_accumulation_dtype", NULL), NOTHING("dataloader_drop_last", NULL), NOTHING("use_data_before_expert_parallel_", NULL),
    NOTHING("train_steps", NULL), NOTHING("seed", NULL), NOTHING("vocabulary_size", NULL),
    { "comment*", SF_CONFIG_NO_EFFECT, NULL, "a comment", NULL }, { "_comment*", SF_CONFIG_NO_EFFECT, NULL, "a comment", NULL },
    { NULL, SF_CONFIG_TAKEN, NULL, NULL, NULL },
};

/* ---- precision ---- */

typedef enum { OFF, ON, UNDECIDED } setting;

static sf_status read_setting(sf_config_reader *r, const char *key, setting *out)
{
    const json_t *value = sf_config_at(r->root, key);
    bool on;
    *out = OFF;
    if (value == NULL)
        return SF_SUCCESS;
    if (sf_config_is_auto(value)) {
        *out = UNDECIDED;
        sf_config_note_add(r, key, value, SF_CONFIG_AUTO, "train.precision", NULL);
        return SF_SUCCESS;
    }
    SF_TRY(sf_config_bool(r, key, value, &on));
    *out = on ? ON : OFF;
    sf_config_note_add(r, key, value, SF_CONFIG_TAKEN, "train.precision", NULL);
    return SF_SUCCESS;
}

/* Loss scaling changes values, not bytes; the 16-bit masters do. */
static sf_status read_precision_rest(sf_config_reader *r, const char *section)
{
    const json_t *object = json_object_get(r->root, section);
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value)
    {
        const char *key = sf_arena_printf(r->arena, "%s.%s", section, name), *path = NULL;
        if (strcmp(name, "enabled") == 0)
            continue;
        if (strstr(name, "master_weights_and_grad") != NULL)
            path = S "master_weights_and_grads_16bit";
        else if (strstr(name, "optimizer_states") != NULL)
            path = S "optimizer_states_16bit";
        if (path != NULL)
            SF_TRY(sf_config_set(r, key, path, value));
        sf_config_note_add(r, key, value, path != NULL ? SF_CONFIG_TAKEN : SF_CONFIG_NO_EFFECT, path, path != NULL ? NULL : "loss scaling and checks");
    }
    return SF_SUCCESS;
}

static sf_status read_precision(sf_config_reader *r)
{
    setting fp16, bf16, bfloat16, autocast;
    SF_TRY(read_setting(r, "fp16.enabled", &fp16));
    SF_TRY(read_setting(r, "bf16.enabled", &bf16));
    SF_TRY(read_setting(r, "bfloat16.enabled", &bfloat16));
    SF_TRY(read_setting(r, "torch_autocast.enabled", &autocast));
    bf16 = bfloat16 != OFF ? bfloat16 : bf16;
    if (fp16 == ON && bf16 == ON)
        return SF_FAIL(SF_EINVAL, "%s: fp16 and bf16 are both enabled; DeepSpeed refuses that", r->place);
    for (const char *const *s = (const char *const[]){ "fp16", "bf16", "bfloat16", NULL }; *s != NULL; s++)
        SF_TRY(read_precision_rest(r, *s));
    if (autocast == ON && fp16 != ON && bf16 != ON) {
        sf_config_set_text(r, "train.precision", "bf16-autocast");
        return SF_SUCCESS;
    }
    if (fp16 == ON || bf16 == ON)
        sf_config_set_text(r, "train.precision", fp16 == ON ? "fp16-mixed" : "bf16-mixed");
    else if (fp16 == OFF && bf16 == OFF)
        sf_config_set_text(r, "train.precision", "fp32");
    return SF_SUCCESS;
}

sf_status sf_config_deepspeed(sf_config_reader *r)
{
    r->rows = rows;
    r->framework = "DeepSpeed";
    sf_config_set_text(r, "framework", "deepspeed");
    sf_config_set_text(r, S "name", "ddp"); /* stage 0 is the default */
    SF_TRY(sf_config_walk(r, "", r->root));
    return read_precision(r);
}
