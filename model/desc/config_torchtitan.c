/* A torchtitan job configuration. Keys: torchtitan/config_manager.py (2024) and torchtitan/config/job_config.py
 * (2025): batch_size became local_batch_size; degrees moved from [training] and [experimental] to [parallelism]. Its
 * FSDP is FSDP2 (distributed/parallel_dims.py, models/llama3/infra/parallelize.py): parameters in float32, computed in
 * bfloat16, reduced in float32; each block is resharded after forward except under pipeline parallelism. */
#include <string.h>

#include "model/base/text.h"
#include "model/desc/config_reader.h"
#include "model/desc/json.h"

#define S "strategy."

static sf_status skip(sf_config_reader *r, const char *key, const json_t *value)
{
    (void)r, (void)key, (void)value;
    return SF_SUCCESS; /* read apart */
}

/* "op", or k: whole layers, every k-th (torchtitan distributed/activation_checkpoint.py). Read with the mode. */
static sf_status read_selective_option(sf_config_reader *r, const char *key, const json_t *value)
{
    const char *text = json_is_string(value) ? json_string_value(value) : "";
    const json_t *mode = sf_config_at(r->root, "activation_checkpoint.mode");
    long every = json_is_integer(value) ? (long)json_integer_value(value) : strtol(text, NULL, 10);

    if (!json_is_string(mode) || strcmp(json_string_value(mode), "selective") != 0) {
        sf_config_note_add(r, key, value, SF_CONFIG_NO_EFFECT, NULL, "the mode is not selective");
        return SF_SUCCESS;
    }
    if (strcmp(text, "op") != 0 && every < 1)
        return SF_FAIL(SF_EINVAL, "%s: %s is op or a number of layers", r->place, key);
    if (every >= 1) {
        sf_config_set_text(r, "train.recompute", "full");
        json_t *share = json_real(1.0 / (double)every);
        sf_status st = sf_config_set(r, key, "train.recompute_share", share);
        json_decref(share);
        SF_TRY(st);
    }
    sf_config_note_add(r, key, value, SF_CONFIG_TAKEN, "train.recompute", NULL);
    return SF_SUCCESS;
}

static sf_status read_checkpointing(sf_config_reader *r, const char *key, const json_t *value)
{
    const char *mode = json_is_string(value) ? json_string_value(value) : "";
    if (strcmp(mode, "none") == 0 || strcmp(mode, "full") == 0 || strcmp(mode, "selective") == 0)
        sf_config_set_text(r, "train.recompute", mode);
    else if (strcmp(mode, "memory_budget") != 0)
        return SF_FAIL(SF_EINVAL, "%s: %s is none, selective, full or memory_budget", r->place, key);
    bool budget = strcmp(mode, "memory_budget") == 0;
    sf_config_note_add(r, key, value, budget ? SF_CONFIG_NOT_MODELLED : SF_CONFIG_TAKEN, "train.recompute", budget ? "the job's own recompute stands for it" : NULL);
    return SF_SUCCESS;
}

static sf_status read_optimizer(sf_config_reader *r, const char *key, const json_t *value)
{
    const char *name = json_is_string(value) ? json_string_value(value) : "";
    const json_t *how = sf_config_at(r->root, "optimizer.implementation"), *fused = sf_config_at(r->root, "optimizer.fused");
    bool is_fused = true, adam = sf_str_ieq(name, "AdamW") || sf_str_ieq(name, "Adam");
    if (json_is_string(how))
        is_fused = strcmp(json_string_value(how), "fused") == 0;
    else if (fused != NULL)
        SF_TRY(sf_config_bool(r, "optimizer.fused", fused, &is_fused));
    if (adam)
        sf_config_set_text(r, "train.optimizer", is_fused ? "adamw-fused" : "adamw-foreach");
    sf_config_note_add(r, key, value, adam ? SF_CONFIG_TAKEN : SF_CONFIG_NOT_MODELLED, "train.optimizer",
                       adam ? NULL : "this optimizer's state is not known; the job's own optimizer stands for it");
    return SF_SUCCESS;
}

static sf_status read_reshard(sf_config_reader *r, const char *key, const json_t *value)
{
    const char *text = json_is_string(value) ? json_string_value(value) : "";
    bool never = strcmp(text, "never") == 0;
    if (!never && strcmp(text, "always") != 0 && strcmp(text, "default") != 0)
        return SF_FAIL(SF_EINVAL, "%s: %s is default, always or never", r->place, key);
    sf_config_set_bool(r, S "reshard_after_forward", !never);
    sf_config_note_add(r, key, value, SF_CONFIG_TAKEN, S "reshard_after_forward", NULL);
    return SF_SUCCESS;
}

static const char *dtype_of(const json_t *value)
{
    const char *text = json_is_string(value) ? json_string_value(value) : "";
    return strcmp(text, "bfloat16") == 0 ? "bf16" : strcmp(text, "float32") == 0 ? "fp32" : strcmp(text, "float16") == 0 ? "fp16" : NULL;
}

static sf_status read_dtype(sf_config_reader *r, const char *key, const json_t *value)
{
    const char *dtype = dtype_of(value);
    if (dtype == NULL)
        return SF_FAIL(SF_EINVAL, "%s: %s is float32, bfloat16 or float16", r->place, key);
    sf_config_note_add(r, key, value, SF_CONFIG_TAKEN, "train.precision", NULL);
    return SF_SUCCESS;
}

/* On: listed as not modelled. Off: nothing. */
static sf_status read_switch(sf_config_reader *r, const char *key, const json_t *value)
{
    bool on;
    SF_TRY(sf_config_bool(r, key, value, &on));
    sf_config_note_add(r, key, value, on ? SF_CONFIG_NOT_MODELLED : SF_CONFIG_NO_EFFECT, NULL, on ? "predicted as if it were off" : "it is off");
    return SF_SUCCESS;
}

/* A degree that is not modelled: 1 is nothing. */
static sf_status read_one(sf_config_reader *r, const char *key, const json_t *value)
{
    int64_t n;
    SF_TRY(sf_config_int(r, key, value, &n));
    sf_config_note_add(r, key, value, n > 1 ? SF_CONFIG_NOT_MODELLED : SF_CONFIG_NO_EFFECT, NULL, n > 1 ? "predicted as if it were 1" : NULL);
    return SF_SUCCESS;
}

#define TAKE(key, path) { key, SF_CONFIG_TAKEN, path, NULL, NULL }
#define CALL(key, fn) { key, SF_CONFIG_TAKEN, NULL, NULL, fn }
#define NOTHING(key, why) { key, SF_CONFIG_NO_EFFECT, NULL, why, NULL }
#define MISSING(key, why) { key, SF_CONFIG_NOT_MODELLED, NULL, why, NULL }
#define DEGREE(name, path)                                                                          \
    TAKE("parallelism." name, path), TAKE("training." name, path), TAKE("experimental." name, path)

static const sf_config_row rows[] = {
    TAKE("training.batch_size", "train.micro_batch"), TAKE("training.local_batch_size", "train.micro_batch"),
    CALL("training.global_batch_size", skip), TAKE("training.seq_len", "train.seq_len"), TAKE("training.max_norm", "train.grad_clip"),
    TAKE("training.enable_cpu_offload", S "cpu_offload"), TAKE("experimental.enable_cpu_offload", S "cpu_offload"),
    TAKE("training.compile", "train.compile"), TAKE("compile.enable", "train.compile"), NOTHING("compile.*", NULL),
    CALL("training.dtype", read_dtype), CALL("training.mixed_precision_param", read_dtype), CALL("training.mixed_precision_reduce", read_dtype),
    TAKE("training.steps", "train.steps"),
    DEGREE("tensor_parallel_degree", "train.tp"), DEGREE("pipeline_parallel_degree", "train.pp"),
    DEGREE("context_parallel_degree", "train.cp"), DEGREE("expert_parallel_degree", "train.ep"), TAKE("training.sequence_parallel_degree", "train.tp"),
    CALL("parallelism.data_parallel_*", skip), CALL("training.data_parallel_*", skip), CALL("experimental.data_parallel_*", skip),
    CALL("parallelism.fsdp_reshard_after_forward", read_reshard), CALL("training.fsdp_reshard_after_forward", read_reshard),
    CALL("activation_checkpoint.mode", read_checkpointing), CALL("activation_checkpoint.selective_ac_option", read_selective_option),
    NOTHING("activation_checkpoint.*", "selective recomputation is modelled as the policy by ops"),
    CALL("optimizer.name", read_optimizer), TAKE("optimizer.lr", "train.lr"), TAKE("optimizer.eps", "train.eps"),
    TAKE("optimizer.beta1", "train.beta1"), TAKE("optimizer.beta2", "train.beta2"), TAKE("optimizer.weight_decay", "train.weight_decay"),
    NOTHING("optimizer.implementation", "read with optimizer.name"), NOTHING("optimizer.fused", "read with optimizer.name"),
    CALL("optimizer.early_step_in_backward", read_switch), MISSING("optimizer.state_dtype", "moments are taken to have the parameters' type"),
    CALL("model.name", skip), CALL("model.flavor", skip), CALL("hf_transformers.model", skip), NOTHING("model.norm_type", "as the model's"),
    CALL("model.converters", skip), NOTHING("model.*", "loading"),
    CALL("float8.enable_float8_linear", skip), CALL("training.enable_float8_linear", skip), NOTHING("float8.*", "filters and scaling of 8-bit products"),
    NOTHING("training.fp8_linear", NULL), NOTHING("quantize.*", "filters and scaling of 8-bit products"), NOTHING("mx.*", "filters and scaling of 8-bit products"),
    CALL("parallelism.enable_async_tensor_parallel", read_switch), CALL("experimental.enable_async_tensor_parallel", read_switch),
    NOTHING("parallelism.disable_loss_parallel", "tensor parallelism only"), NOTHING("parallelism.enable_loss_parallel", "tensor parallelism only"),
    CALL("parallelism.expert_tensor_parallel_degree", read_one),
    NOTHING("parallelism.pipeline_parallel_*", "pipeline parallelism only"), NOTHING("experimental.pipeline_parallel_*", "pipeline parallelism only"),
    MISSING("parallelism.*", NULL), MISSING("experimental.*", NULL),
    NOTHING("training.warmup_steps", "the learning rate's course"), NOTHING("training.dataset*", "data"), NOTHING("training.data*", "data"),
    NOTHING("training.gc_*", "Python's garbage collection"), NOTHING("training.seed", NULL), NOTHING("training.deterministic", NULL),
    NOTHING("training.use_for_integration_test", NULL), NOTHING("training.debug_moe_force_load_balance", "experts are taken to be balanced"),
    NOTHING("training.aggressive_memory_verbose", "logging"), NOTHING("training.enable_detailed_memory_tracking", "logging"),
    MISSING("training.aggressive_memory_mode", "a fork's option"), MISSING("training.clear_cache_between_steps", "the allocator is taken to keep its cache"),
    CALL("training.skip_optimizer_step", read_switch),
    NOTHING("job*", "the launcher"), NOTHING("profiling*", "logging"), NOTHING("profiler*", "logging"), NOTHING("metrics*", "logging"),
    NOTHING("lr_scheduler*", "the learning rate's course"), NOTHING("checkpoint*", "saving"), NOTHING("validation*", "evaluation"), NOTHING("eval*", "evaluation"),
    NOTHING("comm*", "time-outs"), NOTHING("memory_estimation*", "logging"), NOTHING("fault_tolerance*", "one replica group is taken"),
    NOTHING("debug*", "checks"), NOTHING("hf_transformers*", NULL), NOTHING("lora*", "all parameters are taken to be trained"),
    { NULL, SF_CONFIG_TAKEN, NULL, NULL, NULL },
};

/* The first of the places that versions have used; -1 in a degree: the ranks that are left. */
static sf_status degree(sf_config_reader *r, const char *name, int64_t otherwise, int64_t *out)
{
    static const char *const sections[] = { "parallelism", "training", "experimental" };
    *out = otherwise;
    for (size_t i = 0; i < 3; i++) {
        const char *key = sf_arena_printf(r->arena, "%s.%s", sections[i], name);
        const json_t *value = sf_config_at(r->root, key);
        if (value == NULL)
            continue;
        SF_TRY(sf_config_int(r, key, value, out));
        sf_config_note_add(r, key, value, SF_CONFIG_TAKEN, S "name", *out == -1 ? "the ranks that are left" : NULL);
    }
    return SF_SUCCESS;
}

/* Shards 1 and replicas N: DDP; shards and replicas: hybrid; else FSDP2 over all ranks. */
static sf_status read_degrees(sf_config_reader *r)
{
    int64_t shard, replicate, old;
    SF_TRY(degree(r, "data_parallel_degree", -1, &old));
    SF_TRY(degree(r, "data_parallel_shard_degree", old, &shard));
    SF_TRY(degree(r, "data_parallel_replicate_degree", 1, &replicate));
    sf_config_set_text(r, S "name", shard == 1 && replicate > 1 ? "ddp" : "fsdp2");
    if (shard != 1 && replicate > 1) {
        sf_config_set_text(r, S "sharding", "hybrid_shard");
        sf_config_set_int(r, S "replicate", replicate);
    }
    return SF_SUCCESS;
}

static bool names_float8(const json_t *converters)
{
    size_t i;
    json_t *item;
    json_array_foreach((json_t *)converters, i, item)
        if (json_is_string(item) && strstr(json_string_value(item), "float8") != NULL)
            return true;
    return false;
}

static sf_status read_precision(sf_config_reader *r)
{
    const json_t *whole = sf_config_at(r->root, "training.dtype"), *converters = sf_config_at(r->root, "model.converters");
    const json_t *reduce = sf_config_at(r->root, "training.mixed_precision_reduce"), *param = sf_config_at(r->root, "training.mixed_precision_param");
    bool float8 = names_float8(converters);
    for (const char *const *key = (const char *const[]){ "float8.enable_float8_linear", "training.enable_float8_linear", NULL }; *key != NULL; key++)
        if (!float8 && sf_config_at(r->root, *key) != NULL)
            SF_TRY(sf_config_bool(r, *key, sf_config_at(r->root, *key), &float8));
    bool pure = whole != NULL && strcmp(dtype_of(whole), "bf16") == 0, single = param != NULL && strcmp(dtype_of(param), "fp32") == 0;
    sf_config_set_text(r, "train.precision", float8 ? "fp8-mixed" : pure ? "bf16-pure" : single ? "fp32" : "bf16-mixed");
    if (!pure && strcmp(json_string_value(sf_config_get(r, S "name")), "fsdp2") == 0)
        sf_config_set_text(r, S "reduce_dtype", reduce != NULL ? dtype_of(reduce) : "fp32");
    if (converters != NULL)
        sf_config_note_add(r, "model.converters", converters, SF_CONFIG_TAKEN, "train.precision", NULL);
    return SF_SUCCESS;
}

/* torchtitan's own models are the published ones, where the catalogue has them. */
static void read_model(sf_config_reader *r)
{
    static const struct { const char *name, *flavor, *model; } models[] = {
        { "llama", "7B", "llama-2-7b" }, { "llama2", "7B", "llama-2-7b" }, { "llama2", "13B", "llama-2-13b" }, { "llama2", "70B", "llama-2-70b" },
        { "llama3", "8B", "llama-3.1-8b" }, { "llama3", "70B", "llama-3.1-70b" }, { "llama3", "405B", "llama-3.1-405b" },
        { "llama3", "1B", "llama-3.2-1b" }, { "llama3", "3B", "llama-3.2-3b" },
        { "qwen3", "0.6B", "qwen3-0.6b" }, { "qwen3", "1.7B", "qwen3-1.7b" }, { "qwen3", "4B", "qwen3-4b" }, { "qwen3", "8B", "qwen3-8b" },
        { "qwen3", "14B", "qwen3-14b" }, { "qwen3", "32B", "qwen3-32b" }, { "qwen3", "30B-A3B", "qwen3-30b-a3b" },
        { "deepseek_v3", "671B", "deepseek-v3" }, { "deepseek_v3", "16B", "deepseek-v2-lite" },
    };
    const json_t *name = sf_config_at(r->root, "model.name"), *flavor = sf_config_at(r->root, "model.flavor");
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        if (json_is_string(name) && json_is_string(flavor) && strcmp(json_string_value(name), models[i].name) == 0 &&
            strcmp(json_string_value(flavor), models[i].flavor) == 0) {
            sf_config_set_text(r, "model", models[i].model);
            sf_config_note_add(r, "model.flavor", flavor, SF_CONFIG_TAKEN, "model", NULL);
            return;
        }
    sf_config_note_add(r, "model.flavor", flavor != NULL ? flavor : json_null(), SF_CONFIG_AUTO, "model", "not a model of the catalogue: the job must state its model");
}

/* compile.components names what is compiled: with the loss, it is one kernel. */
static void read_loss(sf_config_reader *r)
{
    const json_t *components = sf_config_at(r->root, "compile.components");
    size_t i;
    json_t *item;
    json_array_foreach((json_t *)components, i, item)
        if (json_is_string(item) && strcmp(json_string_value(item), "loss") == 0 && json_is_true(sf_config_get(r, "train.compile")))
            sf_config_set_text(r, "train.loss", "kernel");
}

static sf_status read_global_batch(sf_config_reader *r)
{
    const json_t *value = sf_config_at(r->root, "training.global_batch_size");
    int64_t sequences;
    if (value == NULL)
        return SF_SUCCESS;
    SF_TRY(sf_config_int(r, "training.global_batch_size", value, &sequences));
    if (sequences > 0)
        sf_config_set_int(r, "train.global_batch", sequences);
    sf_config_note_add(r, "training.global_batch_size", value, SF_CONFIG_TAKEN, "train.global_batch", sequences > 0 ? NULL : "one micro-batch of each rank");
    return SF_SUCCESS;
}

sf_status sf_config_torchtitan(sf_config_reader *r)
{
    r->rows = rows;
    r->framework = "torchtitan";
    sf_config_set_text(r, "framework", "pytorch");
    SF_TRY(sf_config_walk(r, "", r->root));
    SF_TRY(read_degrees(r));
    SF_TRY(read_precision(r));
    SF_TRY(read_global_batch(r));
    read_loss(r);
    read_model(r);
    return SF_SUCCESS;
}
