/* An accelerate configuration (default_config.yaml). Keys: accelerate/commands/config/config_args.py, cluster.py and
 * the environment variables of utils/launch.py; meanings: utils/dataclasses.py (FullyShardedDataParallelPlugin,
 * DeepSpeedPlugin). Versions 0.11 to 1.x; before 0.20 the FSDP keys had no prefix "fsdp_". */
#include <string.h>

#include "model/base/text.h"
#include "model/desc/config_reader.h"
#include "model/desc/json.h"

#define S "strategy."
#define F "fsdp_config."
#define D "deepspeed_config."

/* ---- FSDP ---- */

/* A choice by its name or, in old files, by its number from 1 (torch's enum). */
static sf_status read_choice(sf_config_reader *r, const char *key, const json_t *value, const char *path, const char *const (*names)[2], size_t n)
{
    int64_t number = 0;
    const char *text = json_is_string(value) ? json_string_value(value) : NULL;
    bool numbered = sf_json_to_int(value, &number);
    if (json_is_null(value)) {
        sf_config_note_add(r, key, value, SF_CONFIG_AUTO, path, NULL);
        return SF_SUCCESS;
    }
    for (size_t i = 0; i < n; i++)
        if ((numbered && number == (int64_t)i + 1) || (text != NULL && sf_str_ieq(text, names[i][0]))) {
            sf_config_set_text(r, path, names[i][1]);
            sf_config_note_add(r, key, value, SF_CONFIG_TAKEN, path, NULL);
            return SF_SUCCESS;
        }
    return SF_FAIL(SF_EINVAL, "%s: %s: %s is not one that accelerate knows, such as %s", r->place, key,
                   text != NULL ? text : "this value", names[0][0]);
}

static sf_status read_sharding(sf_config_reader *r, const char *key, const json_t *value)
{
    static const char *const names[][2] = {
        { "FULL_SHARD", "full_shard" }, { "SHARD_GRAD_OP", "shard_grad_op" }, { "NO_SHARD", "no_shard" },
        { "HYBRID_SHARD", "hybrid_shard" }, { "HYBRID_SHARD_ZERO2", "_hybrid_shard_zero2" }, { "_HYBRID_SHARD_ZERO2", "_hybrid_shard_zero2" },
    };
    return read_choice(r, key, value, S "sharding", names, sizeof names / sizeof names[0]);
}

static sf_status read_prefetch(sf_config_reader *r, const char *key, const json_t *value)
{
    static const char *const names[][2] = { { "BACKWARD_PRE", "pre" }, { "BACKWARD_POST", "post" }, { "NO_PREFETCH", "none" }, { "None", "none" } };
    return read_choice(r, key, value, S "backward_prefetch", names, sizeof names / sizeof names[0]);
}

static sf_status read_wrap(sf_config_reader *r, const char *key, const json_t *value)
{
    static const char *const names[][2] = { { "TRANSFORMER_BASED_WRAP", "block" }, { "SIZE_BASED_WRAP", "size" }, { "NO_WRAP", "none" } };
    return read_choice(r, key, value, S "auto_wrap", names, sizeof names / sizeof names[0]);
}

/* FSDP2: true or false; FSDP1: the new place of the sharding strategy's name. */
static sf_status read_reshard(sf_config_reader *r, const char *key, const json_t *value)
{
    bool reshard;
    if (json_is_string(value) && !sf_json_to_bool(value, &reshard))
        return read_sharding(r, key, value);
    SF_TRY(sf_config_bool(r, key, value, &reshard));
    sf_config_set_bool(r, S "reshard_after_forward", reshard);
    sf_config_note_add(r, key, value, SF_CONFIG_TAKEN, S "reshard_after_forward", NULL);
    return SF_SUCCESS;
}

static sf_status read_version(sf_config_reader *r, const char *key, const json_t *value)
{
    int64_t version;
    SF_TRY(sf_config_int(r, key, value, &version));
    if (version != 1 && version != 2)
        return SF_FAIL(SF_EINVAL, "%s: %s is %lld; there are 1 and 2", r->place, key, (long long)version);
    sf_config_set_text(r, S "name", version == 2 ? "fsdp2" : "fsdp");
    sf_config_note_add(r, key, value, SF_CONFIG_TAKEN, S "name", NULL);
    return SF_SUCCESS;
}

static sf_status read_checkpointing(sf_config_reader *r, const char *key, const json_t *value)
{
    bool on;
    SF_TRY(sf_config_bool(r, key, value, &on));
    sf_config_set_text(r, "train.recompute", on ? "full" : "none");
    sf_config_note_add(r, key, value, SF_CONFIG_TAKEN, "train.recompute", on ? NULL : "unless the program itself turns gradient checkpointing on");
    if (!on) /* the training program has its own switch, which the job may state */
        json_object_del(json_object_get(r->out->job, "train"), "recompute");
    return SF_SUCCESS;
}

/* ---- DeepSpeed ---- */

/* A DeepSpeed file, of this file's folder or of the current one: it states everything about DeepSpeed. */
static sf_status read_deepspeed_file(sf_config_reader *r, const char *key, const json_t *value)
{
    sf_config inner = { 0 };
    const char *text = json_string_value(value), *slash = strrchr(r->place, '/'), *part;
    json_t *section;
    if (text == NULL)
        return SF_FAIL(SF_EINVAL, "%s: %s is the name of a file", r->place, key);
    const char *beside = text[0] == '/' || slash == NULL ? text : sf_arena_printf(r->arena, "%.*s%s", (int)(slash + 1 - r->place), r->place, text);
    sf_status st = sf_config_read(beside, r->arena, &inner);
    if (st.code == SF_EIO && strcmp(beside, text) != 0)
        st = sf_config_read(text, r->arena, &inner);
    if (st.code == SF_EIO)
        return SF_FAIL(SF_EIO, "%s: %s names %s, which is not here; put it there, or give that file itself as deepspeed_config", r->place, key, text);
    SF_TRY(sf_status_prefix(st, "%s: %s", r->place, key));
    sf_config_note_add(r, key, value, SF_CONFIG_TAKEN, NULL, "read as a DeepSpeed configuration");
    json_object_foreach(inner.job, part, section)
    {
        json_t *mine = json_object_get(r->out->job, part);
        if (json_is_object(mine) && json_is_object(section))
            json_object_update(mine, section);
        else
            json_object_set(r->out->job, part, section);
    }
    for (size_t i = 0; i < inner.n_notes; i++)
        SF_PUSH(r->arena, r->out->notes, r->out->n_notes, r->out->cap_notes) = inner.notes[i];
    sf_config_close(&inner);
    return SF_SUCCESS;
}

/* ---- processes ---- */

static sf_status read_processes(sf_config_reader *r)
{
    const json_t *processes = json_object_get(r->root, "num_processes"), *machines = json_object_get(r->root, "num_machines");
    int64_t ranks, nodes = 1;
    if (machines != NULL && !json_is_null(machines))
        SF_TRY(sf_config_int(r, "num_machines", machines, &nodes));
    if (processes == NULL || json_is_null(processes)) {
        if (nodes > 1)
            sf_config_set_int(r, "cluster.nodes", nodes);
        return SF_SUCCESS;
    }
    SF_TRY(sf_config_int(r, "num_processes", processes, &ranks));
    if (nodes < 1 || ranks < 1 || ranks % nodes != 0)
        return SF_FAIL(SF_EINVAL, "%s: %lld processes on %lld machines: num_processes counts all machines' processes and must divide", r->place,
                       (long long)ranks, (long long)nodes);
    sf_config_set_int(r, "cluster.nodes", nodes);
    sf_config_set_int(r, "cluster.gpus_per_node", ranks / nodes);
    return SF_SUCCESS;
}

static sf_status read_cpu(sf_config_reader *r, const char *key, const json_t *value)
{
    bool on;
    SF_TRY(sf_config_bool(r, key, value, &on));
    if (on)
        return SF_FAIL(SF_EUNSUP, "%s: %s is true: training on CPUs by PyTorch is not modelled; \"cluster\": {\"gpu\": \"host\"} is this project's own executor", r->place, key);
    sf_config_note_add(r, key, value, SF_CONFIG_NO_EFFECT, NULL, NULL);
    return SF_SUCCESS;
}

static sf_status read_dynamo(sf_config_reader *r, const char *key, const json_t *value)
{
    bool on = json_is_string(value) && !sf_str_ieq(json_string_value(value), "no") && !sf_str_ieq(json_string_value(value), "none");
    sf_config_set_bool(r, "train.compile", on);
    sf_config_note_add(r, key, value, SF_CONFIG_TAKEN, "train.compile", NULL);
    return SF_SUCCESS;
}

static sf_status skip(sf_config_reader *r, const char *key, const json_t *value)
{
    (void)r, (void)key, (void)value;
    return SF_SUCCESS; /* read apart */
}

/* ---- the table ---- */

#define TAKE(key, path) { key, SF_CONFIG_TAKEN, path, NULL, NULL }
#define CALL(key, fn) { key, SF_CONFIG_TAKEN, NULL, NULL, fn }
#define BOTH(name, fn) CALL(F "fsdp_" name, fn), CALL(F name, fn)
#define NOTHING(key, why) { key, SF_CONFIG_NO_EFFECT, NULL, why, NULL }
#define MISSING(key, why) { key, SF_CONFIG_NOT_MODELLED, NULL, why, NULL }

static const sf_config_row rows[] = {
    CALL("distributed_type", skip), CALL("mixed_precision", skip), CALL("num_processes", skip), CALL("num_machines", skip),
    CALL("use_cpu", read_cpu),
    TAKE("gradient_accumulation_steps", "train.grad_accum"), TAKE("gradient_clipping", "train.grad_clip"),
    CALL("dynamo_backend", read_dynamo), CALL("dynamo_config.dynamo_backend", read_dynamo), CALL("dynamo_config.backend", read_dynamo),
    NOTHING("dynamo_config*", NULL),

    BOTH("version", read_version), BOTH("sharding_strategy", read_sharding), BOTH("reshard_after_forward", read_reshard),
    BOTH("backward_prefetch", read_prefetch), BOTH("backward_prefetch_policy", read_prefetch), BOTH("auto_wrap_policy", read_wrap),
    BOTH("activation_checkpointing", read_checkpointing),
    TAKE(F "fsdp_offload_params", S "cpu_offload"), TAKE(F "offload_params", S "cpu_offload"), TAKE(F "cpu_offload", S "cpu_offload"),
    TAKE(F "fsdp_forward_prefetch", S "forward_prefetch"), TAKE(F "forward_prefetch", S "forward_prefetch"),
    TAKE(F "fsdp_use_orig_params", S "use_orig_params"), TAKE(F "use_orig_params", S "use_orig_params"),
    TAKE(F "fsdp_limit_all_gathers", S "limit_all_gathers"), TAKE(F "limit_all_gathers", S "limit_all_gathers"),
    TAKE(F "fsdp_min_num_params", S "min_num_params"), TAKE(F "min_num_params", S "min_num_params"),
    NOTHING(F "fsdp_transformer_layer_cls_to_wrap", "taken to be the model's block"),
    NOTHING(F "transformer_layer_cls_to_wrap", "taken to be the model's block"),
    NOTHING(F "fsdp_state_dict_type", "saving"), NOTHING(F "state_dict_type", "saving"),
    NOTHING(F "fsdp_sync_module_states", "loading"), NOTHING(F "sync_module_states", "loading"),
    NOTHING(F "fsdp_cpu_ram_efficient_loading", "loading"), NOTHING(F "cpu_ram_efficient_loading", "loading"),
    NOTHING(F "fsdp_ignored_modules", "no module is left out"), NOTHING(F "ignored_modules", "no module is left out"),

    CALL(D "zero_stage", sf_config_zero_stage), CALL(D "deepspeed_config_file", read_deepspeed_file),
    TAKE(D "offload_optimizer_device", S "offload_optimizer.device"), TAKE(D "offload_param_device", S "offload_param.device"),
    TAKE(D "offload_optimizer_nvme_path", S "offload_optimizer.nvme_path"), TAKE(D "offload_param_nvme_path", S "offload_param.nvme_path"),
    TAKE(D "gradient_accumulation_steps", "train.grad_accum"), TAKE(D "gradient_clipping", "train.grad_clip"),
    TAKE(D "zero3_save_16bit_model", S "stage3_gather_16bit_weights_on_model_save"),
    TAKE(D "train_micro_batch_size_per_gpu", "train.micro_batch"),
    NOTHING(D "zero3_init_flag", "loading"), NOTHING(D "deepspeed_multinode_launcher", "the launcher"), NOTHING(D "deepspeed_hostfile", "the launcher"),
    NOTHING(D "deepspeed_exclusion_filter", "the launcher"), NOTHING(D "deepspeed_inclusion_filter", "the launcher"),
    NOTHING(D "deepspeed_moe_layer_cls_names", "leaf modules are fetched as any other"),

    TAKE("parallelism_config.parallelism_config_tp_size", "train.tp"), TAKE("parallelism_config.parallelism_config_cp_size", "train.cp"),
    TAKE("parallelism_config.tp_size", "train.tp"), TAKE("parallelism_config.cp_size", "train.cp"),
    MISSING("parallelism_config.parallelism_config_sp_size", "sequence parallelism (Ulysses) is not modelled"),
    CALL("parallelism_config.parallelism_config_dp_replicate_size", skip), CALL("parallelism_config.parallelism_config_dp_shard_size", skip),
    NOTHING("parallelism_config.*", NULL),
    MISSING("fp8_config.*", "recipes of 8-bit products are not told apart"),
    MISSING("mpirun_config.*", NULL),

    NOTHING("compute_environment", "the launcher"), NOTHING("debug", "the launcher"), NOTHING("downcast_bf16", "TPUs only"),
    NOTHING("machine_rank", "the launcher"), NOTHING("main_process_*", "the launcher"), NOTHING("main_training_function", "the launcher"),
    NOTHING("rdzv_backend", "the launcher"), NOTHING("same_network", "the launcher"), NOTHING("tpu_*", "TPUs only"),
    NOTHING("gpu_ids", "the launcher"), NOTHING("enable_cpu_affinity", "host cores are not modelled one by one"), NOTHING("command_file", "the launcher"),
    NOTHING("commands", "the launcher"), NOTHING("num_cpu_threads_per_process", "the launcher"), NOTHING("ipex_config*", "CPUs only"),
    NOTHING("deepspeed_fields_from_accelerate_config", "the launcher's bookkeeping"), NOTHING("rdzv_conf*", "the launcher"), NOTHING("module", "the launcher"),
    NOTHING("use_xpu", "XPUs only"), NOTHING("use_mps_device", "the launcher"), NOTHING("mlu", NULL), NOTHING("npu", NULL), NOTHING("use_cluster", "TPUs only"),
    { NULL, SF_CONFIG_TAKEN, NULL, NULL, NULL },
};

/* ---- the whole ---- */

static bool empty_object(const json_t *value)
{
    return value == NULL || json_is_null(value) || (json_is_object(value) && json_object_size(value) == 0);
}

static sf_status read_type(sf_config_reader *r, const char **out)
{
    const json_t *type = json_object_get(r->root, "distributed_type");
    static const char *const known[] = { "NO", "MULTI_GPU", "FSDP", "DEEPSPEED", "MEGATRON_LM", "MULTI_CPU", "MULTI_XPU", "MULTI_NPU", "MULTI_MLU", "TPU", "XLA", NULL };
    *out = json_is_string(type) ? json_string_value(type) : json_is_false(type) ? "NO" : NULL;
    if (*out == NULL)
        *out = !empty_object(json_object_get(r->root, "deepspeed_config")) ? "DEEPSPEED" : !empty_object(json_object_get(r->root, "fsdp_config")) ? "FSDP" : "NO";
    size_t i = 0;
    while (known[i] != NULL && !sf_str_ieq(known[i], *out))
        i++;
    if (known[i] == NULL)
        return SF_FAIL(SF_EINVAL, "%s: distributed_type '%s' is none of accelerate's (NO, MULTI_GPU, FSDP, DEEPSPEED, ...)", r->place, *out);
    *out = known[i];
    if (i > 4)
        return SF_FAIL(SF_EUNSUP, "%s: distributed_type %s is not training on GPUs of the catalogue", r->place, *out);
    sf_config_note_add(r, "distributed_type", json_object_get(r->root, "distributed_type"), SF_CONFIG_TAKEN, S "name", NULL);
    return SF_SUCCESS;
}

/* accelerate gives FSDP a MixedPrecision of that type for parameters and reductions; elsewhere it is autocast; DeepSpeed has its own. */
static sf_status read_precision(sf_config_reader *r, const char *type)
{
    const json_t *value = json_object_get(r->root, "mixed_precision");
    const char *text = json_is_string(value) ? json_string_value(value) : json_is_false(value) ? "no" : NULL;
    bool fsdp = strcmp(type, "FSDP") == 0, deepspeed = strcmp(type, "DEEPSPEED") == 0;
    if (value == NULL || json_is_null(value))
        return SF_SUCCESS;
    if (text == NULL || (!sf_str_ieq(text, "no") && !sf_str_ieq(text, "fp16") && !sf_str_ieq(text, "bf16") && !sf_str_ieq(text, "fp8")))
        return SF_FAIL(SF_EINVAL, "%s: mixed_precision is no, fp16, bf16 or fp8", r->place);
    if (deepspeed && sf_config_get(r, "train.precision") != NULL) {
        sf_config_note_add(r, "mixed_precision", value, SF_CONFIG_NO_EFFECT, NULL, "the DeepSpeed configuration states the precision");
        return SF_SUCCESS;
    }
    if (sf_str_ieq(text, "no"))
        sf_config_set_text(r, "train.precision", "fp32");
    else if (sf_str_ieq(text, "fp8"))
        sf_config_set_text(r, "train.precision", "fp8-mixed");
    else if (sf_str_ieq(text, "fp16"))
        sf_config_set_text(r, "train.precision", "fp16-mixed");
    else
        sf_config_set_text(r, "train.precision", fsdp || deepspeed ? "bf16-mixed" : "bf16-autocast");
    if (fsdp && (sf_str_ieq(text, "bf16") || sf_str_ieq(text, "fp16")))
        sf_config_set_text(r, S "reduce_dtype", sf_str_ieq(text, "bf16") ? "bf16" : "fp16");
    sf_config_note_add(r, "mixed_precision", value, SF_CONFIG_TAKEN, "train.precision",
                       sf_str_ieq(text, "no") ? "weights are taken to be fp32; a program that loads them in bf16 is bf16-pure" : NULL);
    return SF_SUCCESS;
}

/* Replicas and shards of FSDP2's device mesh. */
static sf_status read_mesh(sf_config_reader *r)
{
    const char *replicate = "parallelism_config.parallelism_config_dp_replicate_size", *shard = "parallelism_config.parallelism_config_dp_shard_size";
    int64_t replicas = 1, shards = 1;
    if (sf_config_at(r->root, replicate) != NULL)
        SF_TRY(sf_config_int(r, replicate, sf_config_at(r->root, replicate), &replicas));
    if (sf_config_at(r->root, shard) != NULL)
        SF_TRY(sf_config_int(r, shard, sf_config_at(r->root, shard), &shards));
    if (sf_config_at(r->root, replicate) != NULL)
        sf_config_note_add(r, replicate, sf_config_at(r->root, replicate), SF_CONFIG_TAKEN, S "replicate", NULL);
    if (sf_config_at(r->root, shard) != NULL)
        sf_config_note_add(r, shard, sf_config_at(r->root, shard), SF_CONFIG_TAKEN, NULL, "the ranks that are left");
    if (replicas > 1 && shards > 1) {
        sf_config_set_text(r, S "sharding", "hybrid_shard");
        sf_config_set_int(r, S "replicate", replicas);
    }
    return SF_SUCCESS;
}

/* A section that the distributed type does not use: accelerate does not read it either. */
static void drop_section(sf_config_reader *r, json_t *root, const char *section, const char *type)
{
    const json_t *value = json_object_get(root, section);
    if (value == NULL)
        return;
    sf_config_note_add(r, section, value, SF_CONFIG_NO_EFFECT, NULL,
                       empty_object(value) ? "empty" : sf_arena_printf(r->arena, "distributed_type %s does not read it", type));
    json_object_del(root, section);
}

sf_status sf_config_accelerate(sf_config_reader *r)
{
    const char *type;
    r->rows = rows;
    r->framework = "accelerate";
    SF_TRY(read_type(r, &type));
    if (strcmp(type, "MEGATRON_LM") == 0)
        return SF_FAIL(SF_EUNSUP, "%s: distributed_type MEGATRON_LM: Megatron-LM's engine is not modelled yet", r->place);
    bool deepspeed = strcmp(type, "DEEPSPEED") == 0, fsdp = strcmp(type, "FSDP") == 0;
    sf_config_set_text(r, "framework", deepspeed ? "deepspeed" : "pytorch");
    sf_config_set_text(r, S "name", deepspeed ? "zero2" : fsdp ? "fsdp" : strcmp(type, "MULTI_GPU") == 0 ? "ddp" : "single"); /* zero_stage's default is 2 */
    SF_TRY(read_processes(r));
    json_t *root = json_copy((json_t *)r->root);
    if (!fsdp)
        drop_section(r, root, "fsdp_config", type);
    if (!deepspeed)
        drop_section(r, root, "deepspeed_config", type);
    drop_section(r, root, "megatron_lm_config", type);
    sf_status st = sf_config_walk(r, "", root);
    json_decref(root);
    SF_TRY(st);
    SF_TRY(read_mesh(r));
    return read_precision(r, type);
}
