#include "reports/emit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "model/base/text.h"
#include "model/desc/job_fields.h"
#include "reports/assets.h"
#include "reports/output.h"

static void file(sf_emitted *out, const char *name) { out->files[out->n_files++] = name; }
static void note(sf_emitted *out, const char *text) { out->notes[out->n_notes++] = text; }

static bool deepspeed(const sf_job *job) { return job->framework == SF_FRAMEWORK_DEEPSPEED; }

static sf_status write_text(const char *dir, const char *name, const char *text, sf_arena *arena)
{
    return sf_file_write(sf_arena_printf(arena, "%s/%s", dir, name), text, strlen(text));
}

/* ---- the job ---- */

static json_t *at_path(const json_t *object, const char *path)
{
    char part[128];
    const json_t *at = object;
    for (const char *rest = path; at != NULL && rest != NULL;) {
        const char *dot = strchr(rest, '.');
        snprintf(part, sizeof part, "%.*s", dot == NULL ? (int)strlen(rest) : (int)(dot - rest), rest);
        at = json_object_get(at, part);
        rest = dot == NULL ? NULL : dot + 1;
    }
    return (json_t *)at;
}

static void put(json_t *object, const char *path, json_t *value)
{
    char part[128];
    json_t *at = object;
    const char *rest = path;
    for (const char *dot; (dot = strchr(rest, '.')) != NULL; rest = dot + 1) {
        snprintf(part, sizeof part, "%.*s", (int)(dot - rest), rest);
        json_t *next = json_object_get(at, part);
        if (next == NULL) {
            next = json_object();
            json_object_set_new(at, part, next);
        }
        at = next;
    }
    json_object_set_new(at, rest, value);
}

/* A model that is a file is written out: the job's folder is another one. */
static sf_status whole_job(const sf_job *job, sf_arena *arena, json_t **out)
{
    json_t *o = sf_job_to_json(job), *model = json_object_get(o, "model"), *config = NULL;
    *out = o;
    const char *name = json_string_value(model);
    if (name != NULL && (strchr(name, '/') != NULL || strstr(name, ".json") != NULL)) {
        SF_TRY(sf_transformer_find_config(name, arena, &config));
        json_object_set_new(o, "model", config);
    }
    return SF_SUCCESS;
}

/* ---- DeepSpeed ---- */

/* Where DeepSpeed has a knob of the strategy, or NULL. */
static const char *deepspeed_key(const char *knob, const char *half, sf_arena *arena)
{
    static const struct { const char *knob, *key; } elsewhere[] = {
        { "prescale_gradients", "prescale_gradients" }, { "gradient_predivide_factor", "gradient_predivide_factor" },
        { "communication_data_type", "communication_data_type" }, { "grad_accum_dtype", "data_types.grad_accum_dtype" },
        { "torch_adam", "optimizer.params.torch_adam" },
    };
    for (size_t i = 0; i < sizeof elsewhere / sizeof elsewhere[0]; i++)
        if (strcmp(knob, elsewhere[i].knob) == 0)
            return elsewhere[i].key;
    if (strcmp(knob, "name") == 0)
        return NULL;
    if (strcmp(knob, "master_weights_and_grads_16bit") == 0)
        return sf_arena_printf(arena, "%s.%s_master_weights_and_grads", half, half);
    if (strcmp(knob, "optimizer_states_16bit") == 0)
        return "bf16.bf16_optimizer_states";
    if (sf_str_starts(knob, "aio."))
        return sf_arena_printf(arena, "aio.%s", knob + strlen("aio."));
    if (sf_str_starts(knob, "sparse_attention."))
        return knob;
    return sf_arena_printf(arena, "zero_optimization.%s", knob);
}

static bool off(const json_t *device) { return json_is_string(device) && strcmp(json_string_value(device), "none") == 0; }

/* What lies under a section that is off says nothing. */
static bool idle(const json_t *job, const char *path)
{
    return (sf_str_starts(path, "strategy.offload_optimizer.") && off(at_path(job, "strategy.offload_optimizer.device"))) ||
           (sf_str_starts(path, "strategy.offload_param.") && off(at_path(job, "strategy.offload_param.device"))) ||
           (sf_str_starts(path, "strategy.aio.") && strcmp(json_string_value(at_path(job, "strategy.offload_optimizer.device")), "nvme") != 0) ||
           (sf_str_starts(path, "strategy.sparse_attention.") && off(at_path(job, "strategy.sparse_attention.mode")));
}

static bool is_default(const sf_field *f, const json_t *value)
{
    switch (f->type) {
    case SF_FIELD_BOOL: return json_is_true(value) == (f->otherwise != 0);
    case SF_FIELD_CHOICE: return strcmp(json_string_value(value), f->choices[(int)f->otherwise]) == 0;
    case SF_FIELD_TEXT: return json_string_value(value)[0] == '\0';
    case SF_FIELD_LIST: return json_array_size(value) == (f->otherwise < 0 ? 0 : 1) && (f->otherwise < 0 || json_number_value(json_array_get(value, 0)) == f->otherwise);
    case SF_FIELD_TRI: return f->otherwise == SF_AUTO ? json_is_null(value) : json_is_boolean(value) ? json_is_true(value) == (f->otherwise != 0) : false;
    default: return json_number_value(value) == f->otherwise;
    }
}

/* Knobs that decide memory and speed are written at their defaults too. */
static bool usually_stated(const char *knob)
{
    static const char *const knobs[] = { "contiguous_gradients", "reduce_scatter", "reduce_bucket_size", "allgather_bucket_size", "sub_group_size", "stage3_prefetch_bucket_size",
                                         "stage3_param_persistence_threshold", "stage3_max_live_parameters", "stage3_max_reuse_distance" };
    for (size_t i = 0; i < sizeof knobs / sizeof knobs[0]; i++)
        if (strcmp(knob, knobs[i]) == 0)
            return true;
    return false;
}

static sf_status deepspeed_config(const sf_job *job, const json_t *o, sf_arena *arena, json_t **out)
{
    static const int stages[SF_STRATEGY_COUNT] = { [SF_STRATEGY_ZERO1] = 1, [SF_STRATEGY_ZERO2] = 2, [SF_STRATEGY_ZERO3] = 3 };
    static const struct { int64_t precision; const char *section; } precisions[] = {
        { SF_PRECISION_FP16_MIXED, "fp16" }, { SF_PRECISION_BF16_MIXED, "bf16" }, { SF_PRECISION_BF16_AUTOCAST, "torch_autocast" }, { SF_PRECISION_FP32, NULL },
    };
    json_t *c = json_object();
    const char *half = "bf16";
    size_t p = 0;
    unsigned bits = sf_job_field_bits(job->framework, job->strategy.name);

    *out = c;
    while (p < sizeof precisions / sizeof precisions[0] && precisions[p].precision != job->train.precision)
        p++;
    if (p == sizeof precisions / sizeof precisions[0])
        return SF_FAIL(SF_EUNSUP, "train.precision %s: DeepSpeed's configuration has fp32, fp16, bf16 and torch_autocast", sf_precision_name(job->train.precision));
    if (job->train.optimizer != SF_OPTIMIZER_ADAMW && job->train.optimizer != SF_OPTIMIZER_ADAMW_FUSED)
        return SF_FAIL(SF_EUNSUP, "train.optimizer %s: only AdamW, DeepSpeed's own, can be written for it", sf_optimizer_name(job->train.optimizer));
    json_object_set_new(c, "train_batch_size", json_integer(job->train.global_batch));
    json_object_set_new(c, "train_micro_batch_size_per_gpu", json_integer(job->train.micro_batch));
    json_object_set_new(c, "gradient_accumulation_steps", json_integer(job->train.grad_accum));
    json_object_set_new(c, "gradient_clipping", json_real(job->train.grad_clip));
    json_object_set_new(c, "optimizer", json_pack("{s:s, s:{s:f, s:[f, f], s:f, s:f}}", "type", "AdamW", "params", "lr", job->train.lr, "betas", job->train.beta1,
                                                  job->train.beta2, "eps", job->train.eps, "weight_decay", job->train.weight_decay));
    if (precisions[p].section != NULL) {
        half = strcmp(precisions[p].section, "fp16") == 0 ? "fp16" : "bf16";
        put(c, sf_arena_printf(arena, "%s.enabled", precisions[p].section), json_true());
    }
    put(c, "zero_optimization.stage", json_integer(stages[job->strategy.name]));
    for (size_t i = 0; i < sf_job_field_count; i++) {
        const sf_field *f = &sf_job_fields[i];
        if (!sf_str_starts(f->path, "strategy.") || !(f->has & bits) || idle(o, f->path))
            continue;
        json_t *value = at_path(o, f->path);
        const char *key = deepspeed_key(f->path + strlen("strategy."), half, arena);
        bool always = usually_stated(f->path + strlen("strategy."));
        if (key == NULL || json_is_null(value) || (is_default(f, value) && !always) || (f->type == SF_FIELD_CHOICE && off(value)) ||
            (f->type == SF_FIELD_CHOICE && strcmp(json_string_value(value), "default") == 0))
            continue;
        /* sizes are whole numbers to DeepSpeed */
        put(c, key, json_is_real(value) && json_real_value(value) < 9e15 && (double)(json_int_t)json_real_value(value) == json_real_value(value) && strstr(key, "factor") == NULL
                        ? json_integer((json_int_t)json_real_value(value)) : json_incref(value));
    }
    return SF_SUCCESS;
}

/* ---- accelerate ---- */

/* Why accelerate cannot say the same, or NULL. */
static const char *unsayable(const sf_job *job, sf_arena *arena)
{
    const sf_strategy_knobs *k = &job->strategy;
    bool fsdp = k->name == SF_STRATEGY_FSDP || k->name == SF_STRATEGY_FSDP2;
    int64_t p = job->train.precision;
    if (k->name == SF_STRATEGY_DP)
        return "it has no nn.DataParallel";
    if (deepspeed(job))
        return NULL;
    if (p == SF_PRECISION_TF32 || p == SF_PRECISION_FP8_MIXED || p == SF_PRECISION_BF16_PURE)
        return sf_arena_printf(arena, "train.precision %s is the program's choice, not accelerate's", sf_precision_name(p));
    if (fsdp && p == SF_PRECISION_BF16_AUTOCAST)
        return "its mixed_precision with FSDP casts parameters, and is not autocast";
    int64_t half = p == SF_PRECISION_BF16_MIXED ? SF_DTYPE_CHOICE_BF16 : p == SF_PRECISION_FP16_MIXED ? SF_DTYPE_CHOICE_FP16 : SF_DTYPE_CHOICE_FP32;
    /* left to itself, FSDP2 reduces in the type of the parameters, FSDP1 in that of the gathered ones */
    bool reduces_half = k->reduce_dtype == half || (k->reduce_dtype == SF_DTYPE_CHOICE_DEFAULT && k->name == SF_STRATEGY_FSDP);
    if (fsdp && p != SF_PRECISION_FP32 && !reduces_half)
        return "its mixed_precision reduces gradients in 16 bits, and strategy.reduce_dtype is another";
    if (fsdp && k->param_dtype != SF_DTYPE_CHOICE_DEFAULT && k->param_dtype != half)
        return "strategy.param_dtype has no key there";
    if (k->name == SF_STRATEGY_FSDP2 && k->reshard_after_forward > 1)
        return "strategy.reshard_after_forward is a number, and there it is true or false";
    if (k->name == SF_STRATEGY_DDP && (k->bucket_cap_mb != 25 || k->gradient_as_bucket_view || k->comm_hook != SF_COMM_HOOK_NONE || k->static_graph || k->find_unused_parameters))
        return "DDP's own knobs (bucket_cap_mb, gradient_as_bucket_view, ...) are the program's";
    return NULL;
}

static const char *yes(bool x) { return x ? "true" : "false"; }

static void fsdp_section(const sf_job *job, sf_text *t)
{
    static const char *const sharding[] = { "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2" };
    static const char *const prefetch[] = { "BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH" };
    static const char *const wrap[] = { "TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP" };
    const sf_strategy_knobs *k = &job->strategy;
    bool second = k->name == SF_STRATEGY_FSDP2;
    sf_text_add(t, "fsdp_config:\n  fsdp_version: %d\n  fsdp_auto_wrap_policy: %s\n  fsdp_offload_params: %s\n", second ? 2 : 1, wrap[k->auto_wrap], yes(k->cpu_offload));
    if (job->train.recompute != SF_RECOMPUTE_SELECTIVE && job->train.recompute_share >= 1)
        sf_text_add(t, "  fsdp_activation_checkpointing: %s\n", yes(job->train.recompute == SF_RECOMPUTE_FULL));
    if (second) {
        sf_text_add(t, "  fsdp_reshard_after_forward: %s\n", yes(k->reshard_after_forward != 0));
        return;
    }
    sf_text_add(t, "  fsdp_sharding_strategy: %s\n  fsdp_backward_prefetch: %s\n  fsdp_forward_prefetch: %s\n  fsdp_use_orig_params: %s\n  fsdp_limit_all_gathers: %s\n",
                sharding[k->sharding], prefetch[k->backward_prefetch], yes(k->forward_prefetch), yes(k->use_orig_params), yes(k->limit_all_gathers));
    if (k->auto_wrap == SF_AUTO_WRAP_SIZE)
        sf_text_add(t, "  fsdp_min_num_params: %.0f\n", k->min_num_params);
}

static sf_status write_accelerate(const sf_job *job, const char *dir, sf_arena *arena)
{
    bool fsdp = job->strategy.name == SF_STRATEGY_FSDP || job->strategy.name == SF_STRATEGY_FSDP2;
    int64_t p = job->train.precision;
    sf_text t = { 0 };
    sf_text_add(&t, "compute_environment: LOCAL_MACHINE\ndistributed_type: %s\n",
                deepspeed(job) ? "DEEPSPEED" : fsdp ? "FSDP" : job->strategy.name == SF_STRATEGY_DDP ? "MULTI_GPU" : "'NO'");
    sf_text_add(&t, "num_machines: %lld\nnum_processes: %d\nmachine_rank: 0\n", (long long)job->cluster.nodes, sf_job_world_size(job));
    sf_text_add(&t, "mixed_precision: %s\n", p == SF_PRECISION_FP16_MIXED ? "fp16" : p == SF_PRECISION_FP32 ? "'no'" : "bf16");
    if (job->train.compile)
        sf_text_add(&t, "dynamo_config:\n  dynamo_backend: INDUCTOR\n");
    if (deepspeed(job))
        sf_text_add(&t, "deepspeed_config:\n  deepspeed_config_file: ds_config.json\n  zero3_init_flag: %s\n", yes(job->strategy.name == SF_STRATEGY_ZERO3));
    else
        sf_text_add(&t, "gradient_accumulation_steps: %lld\n", (long long)job->train.grad_accum);
    if (fsdp)
        fsdp_section(job, &t);
    if (job->strategy.name == SF_STRATEGY_FSDP2 && job->strategy.sharding == SF_SHARDING_HYBRID_SHARD) {
        int64_t replicas = job->strategy.replicate > 0 ? job->strategy.replicate : job->cluster.nodes;
        sf_text_add(&t, "parallelism_config:\n  parallelism_config_dp_replicate_size: %lld\n  parallelism_config_dp_shard_size: %lld\n", (long long)replicas,
                    (long long)(sf_job_world_size(job) / replicas));
    }
    sf_status st = write_text(dir, "accelerate.yaml", sf_text_str(&t), arena);
    sf_text_free(&t);
    return st;
}

/* ---- the program ---- */

/* Why train.py cannot be this job, or NULL. */
static const char *unwritable(const sf_job *job, sf_arena *arena)
{
    const sf_transformer *m = &job->model;
    const sf_train *t = &job->train;
    bool windowed = false;
    for (int l = 0; l < m->n_layers; l++)
        windowed = windowed || sf_transformer_layer_window(m, l) > 0;
    const char *what = m->n_experts > 0                                        ? "experts"
                       : m->kv_lora_rank > 0                                   ? "latent attention"
                       : m->attention_sinks                                    ? "attention sinks"
                       : windowed                                              ? "windowed attention"
                       : m->attention_softcap > 0 || m->final_softcap > 0      ? "capped scores or logits"
                       : m->embedding_scale != 1                               ? "scaled embeddings"
                       : m->embed_dim != m->hidden                             ? "a projection of the embeddings"
                       : m->norms_per_block > 2                                ? "four norms in a block"
                       : m->qk_norm_full || m->qk_norm_bias                    ? "this norm of queries and keys"
                       : m->activation == SF_ACTIVATION_XIELU                  ? "its activation"
                                                                               : NULL;
    if (what != NULL)
        return sf_arena_printf(arena, "the model's %s cannot be written", what);
    if (t->precision == SF_PRECISION_FP8_MIXED)
        return "train.precision fp8-mixed cannot be written";
    if (t->optimizer == SF_OPTIMIZER_LION)
        return "train.optimizer lion is not in PyTorch";
    if (t->fused_kernels)
        return "train.fused_kernels: Megatron's kernels are not PyTorch's";
    if (t->attention == SF_ATTENTION_FLASH1)
        return "train.attention flash-v1 is not in a current PyTorch";
    if (deepspeed(job) && job->strategy.sparse.mode != SF_SPARSITY_NONE)
        return "strategy.sparse_attention cannot be written";
    return NULL;
}

static json_t *model_json(const sf_transformer *m)
{
    static const char *const positions[] = { "learned", "rotary", "alibi", "none" }, *const norms[] = { "layernorm", "rmsnorm", "plain" },
                             *const activations[] = { "gelu_tanh", "gelu_erf", "relu", "silu", "relu2", "xielu" };
    json_t *o = json_object();
    const struct { const char *key; int64_t value; } whole[] = {
        { "n_layers", m->n_layers }, { "hidden", m->hidden }, { "n_heads", m->n_heads }, { "n_kv_heads", m->n_kv_heads }, { "head_dim", m->head_dim },
        { "ffn_hidden", m->ffn_hidden }, { "vocab", m->vocab }, { "position_rows", m->position_rows }, { "rotary_dim", m->rotary_dim },
        { "norms_per_block", m->norms_per_block }, { "parameters", (int64_t)sf_transformer_params(m) },
    };
    const struct { const char *key; bool value; } truths[] = {
        { "gated", m->gated }, { "tied", m->tied }, { "qkv_bias", m->qkv_bias }, { "out_bias", m->out_bias }, { "mlp_bias", m->mlp_bias }, { "norm_bias", m->norm_bias },
        { "head_bias", m->head_bias }, { "qk_norm", m->qk_norm }, { "fused_qkv", m->fused_qkv }, { "fused_gate_up", m->fused_gate_up },
        { "parallel_block", m->parallel_block }, { "no_final_norm", m->no_final_norm }, { "embedding_norm", m->embedding_norm },
    };
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++)
        json_object_set_new(o, whole[i].key, json_integer(whole[i].value));
    for (size_t i = 0; i < sizeof truths / sizeof truths[0]; i++)
        json_object_set_new(o, truths[i].key, json_boolean(truths[i].value));
    json_object_set_new(o, "position", json_string(positions[m->position]));
    json_object_set_new(o, "norm", json_string(norms[m->norm]));
    json_object_set_new(o, "activation", json_string(activations[m->activation]));
    json_object_set_new(o, "rope_theta", json_real(m->rope_theta));
    json_object_set_new(o, "norm_eps", json_real(m->norm_eps));
    return o;
}

/* In place of @NAME@; the text stands in a raw Python string, whose end it cannot hold. */
static void fill_in(sf_text *t, const char *template, const char *const names[], const json_t *const values[], size_t n)
{
    for (const char *at = template; *at != '\0';) {
        size_t i = 0;
        while (i < n && !sf_str_starts(at, names[i]))
            i++;
        if (i == n) {
            sf_text_append(t, at++, 1);
            continue;
        }
        char *text = json_dumps(values[i], JSON_ENCODE_ANY | JSON_INDENT(1) | JSON_REAL_PRECISION(15) | JSON_ENSURE_ASCII);
        sf_text_append(t, text, strlen(text));
        free(text);
        at += strlen(names[i]);
    }
}

static sf_status write_program(const sf_job *job, const json_t *o, const json_t *ds, const char *dir, sf_arena *arena)
{
    enum { MOST_BYTES = 1 << 20 };
    char *template;
    sf_text t = { 0 };
    json_t *model = model_json(&job->model);
    SF_TRY(sf_file_read(sf_asset_path("emit/train.py", arena), MOST_BYTES, arena, &template, NULL));
    const char *const names[] = { "@JOB@", "@MODEL@", "@DEEPSPEED@" };
    const json_t *const values[] = { o, model, ds };
    fill_in(&t, template, names, values, 3);
    json_decref(model);
    sf_status st = write_text(dir, "train.py", sf_text_str(&t), arena);
    sf_text_free(&t);
    return st;
}

static sf_status write_launch(const sf_job *job, const char *dir, sf_arena *arena)
{
    long long per = (long long)job->cluster.gpus_per_node, nodes = (long long)job->cluster.nodes;
    bool one = job->strategy.name == SF_STRATEGY_SINGLE || job->strategy.name == SF_STRATEGY_DP;
    sf_text t = { 0 };
    sf_text_add(&t, "#!/bin/sh\n# Starts train.py for this job; arguments go to it. Written by shardfit.\nset -eu\ncd \"$(dirname \"$0\")\"\n");
    if (deepspeed(job) && job->strategy.offload_optimizer_device != SF_DEVICE_NONE)
        sf_text_add(&t, "# the optimizer runs on the host: every rank has its share of the cores\nexport OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(( ($(nproc) + %lld) / %lld ))}\n", per - 1, per);
    if (one && !deepspeed(job))
        sf_text_add(&t, "exec python3 train.py \"$@\"\n");
    else if (nodes <= 1)
        sf_text_add(&t, "exec torchrun --standalone --nproc_per_node=%lld train.py \"$@\"\n", per);
    else
        sf_text_add(&t, "# on each of the %lld nodes, with NODE_RANK 0 to %lld and MASTER_ADDR the name of node 0\n"
                        "exec torchrun --nnodes=%lld --nproc_per_node=%lld --node_rank=\"${NODE_RANK:?}\" --master_addr=\"${MASTER_ADDR:?}\" --master_port=\"${MASTER_PORT:-29500}\" train.py \"$@\"\n",
                    nodes, nodes - 1, nodes, per);
    sf_status st = write_text(dir, "launch.sh", sf_text_str(&t), arena);
    sf_text_free(&t);
    if (st.code == SF_OK && chmod(sf_arena_printf(arena, "%s/launch.sh", dir), 0755) != 0)
        st = SF_FAIL(SF_EIO, "%s/launch.sh cannot be made executable", dir);
    return st;
}

/* ---- all ---- */

static sf_status emit(const sf_job *job, const json_t *o, const char *dir, sf_arena *arena, json_t **ds, sf_emitted *out)
{
    const char *why;
    SF_TRY(sf_output_check(sf_arena_printf(arena, "%s/job.json", dir)));
    SF_TRY(sf_output_json(o, sf_arena_printf(arena, "%s/job.json", dir)));
    file(out, "job.json");
    if (deepspeed(job)) {
        SF_TRY(deepspeed_config(job, o, arena, ds));
        SF_TRY(sf_output_json(*ds, sf_arena_printf(arena, "%s/ds_config.json", dir)));
        file(out, "ds_config.json");
    }
    if ((why = unsayable(job, arena)) != NULL) {
        note(out, sf_arena_printf(arena, "no accelerate.yaml: %s", why));
    } else {
        SF_TRY(write_accelerate(job, dir, arena));
        file(out, "accelerate.yaml");
    }
    if ((why = unwritable(job, arena)) != NULL) {
        note(out, sf_arena_printf(arena, "no train.py: %s", why));
        return SF_SUCCESS;
    }
    SF_TRY(write_program(job, o, *ds, dir, arena));
    file(out, "train.py");
    SF_TRY(write_launch(job, dir, arena));
    file(out, "launch.sh");
    return SF_SUCCESS;
}

sf_status sf_emit(const sf_job *job, const char *dir, sf_arena *arena, sf_emitted *out)
{
    json_t *o = NULL, *ds = json_null();
    *out = (sf_emitted){ 0 };
    if (job->framework == SF_FRAMEWORK_SHARDFIT)
        return SF_FAIL(SF_EUNSUP, "framework shardfit runs a JOB as it is (shardfit run JOB); files are for pytorch and deepspeed");
    sf_status st = whole_job(job, arena, &o);
    if (st.code == SF_OK)
        st = emit(job, o, dir, arena, &ds, out);
    json_decref(o);
    json_decref(ds);
    return st;
}

void sf_emit_print(const sf_emitted *e, const char *dir)
{
    printf("\nWritten to %s:", dir);
    for (size_t i = 0; i < e->n_files; i++)
        printf("%s %s", i == 0 ? "" : ",", e->files[i]);
    printf("\n");
    for (size_t i = 0; i < e->n_notes; i++)
        printf("  %s\n", e->notes[i]);
    for (size_t i = 0; i < e->n_files; i++)
        if (strcmp(e->files[i], "launch.sh") == 0)
            printf("Run it there with %s/launch.sh, then: shardfit validate --measured %s/outcome.json %s/job.json\n", dir, dir, dir);
}
