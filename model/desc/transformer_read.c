/* Reads a Hugging Face config.json. A family is a row: what its modules are where the file does not
 * say. Sources: the configuration_*.py and modeling_*.py of each family in huggingface/transformers,
 * and for remote-code families the file shipped with the checkpoint.
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "model/base/text.h"
#include "model/desc/catalogue.h"
#include "model/desc/json.h"
#include "model/desc/transformer.h"

typedef struct {
    const char *types;  /* model_type values, separated by spaces                      */
    sf_position position;
    sf_norm norm;
    const char *act;    /* default activation                                          */
    bool gated;
    bool tied;          /* default of tie_word_embeddings                              */
    bool qkv_bias, out_bias, mlp_bias, norm_bias, head_bias;
    bool qk_norm, qk_norm_full, fused_qkv, fused_gate_up, transposed, parallel;
    int norms;
    int64_t max_positions;
} family;

/* PretrainedConfig's tie_word_embeddings is true unless the family's own default says otherwise. */
static const family families[] = {
    { "gpt2", SF_POS_LEARNED, SF_NORM_LAYERNORM, "gelu_new", .tied = true, .qkv_bias = true, .out_bias = true, .mlp_bias = true,
      .norm_bias = true, .fused_qkv = true, .transposed = true, .norms = 2, .max_positions = 1024 },
    { "gpt_bigcode", SF_POS_LEARNED, SF_NORM_LAYERNORM, "gelu_pytorch_tanh", .tied = true, .qkv_bias = true, .out_bias = true, .mlp_bias = true,
      .norm_bias = true, .fused_qkv = true, .norms = 2, .max_positions = 1024 },
    { "gptj", SF_POS_ROTARY, SF_NORM_LAYERNORM, "gelu_new", .mlp_bias = true, .norm_bias = true, .head_bias = true, .parallel = true, .norms = 1,
      .max_positions = 2048 },
    { "gpt_neox", SF_POS_ROTARY, SF_NORM_LAYERNORM, "gelu", .qkv_bias = true, .out_bias = true, .mlp_bias = true, .norm_bias = true,
      .fused_qkv = true, .parallel = true, .norms = 2, .max_positions = 2048 },
    { "opt", SF_POS_LEARNED, SF_NORM_LAYERNORM, "relu", .tied = true, .qkv_bias = true, .out_bias = true, .mlp_bias = true, .norm_bias = true,
      .norms = 2, .max_positions = 2048 },
    { "bloom", SF_POS_ALIBI, SF_NORM_LAYERNORM, "gelu_tanh", .tied = true, .qkv_bias = true, .out_bias = true, .mlp_bias = true, .norm_bias = true,
      .fused_qkv = true, .norms = 2, .max_positions = 2048 },
    { "falcon RefinedWeb RefinedWebModel", SF_POS_ROTARY, SF_NORM_LAYERNORM, "gelu", .tied = true, .norm_bias = true, .fused_qkv = true,
      .parallel = true, .norms = 1, .max_positions = 2048 },
    { "mpt", SF_POS_ALIBI, SF_NORM_LAYERNORM, "gelu", .tied = true, .fused_qkv = true, .norms = 2, .max_positions = 2048 },
    { "phi phi-msft", SF_POS_ROTARY, SF_NORM_LAYERNORM, "gelu_new", .qkv_bias = true, .out_bias = true, .mlp_bias = true, .norm_bias = true,
      .head_bias = true, .parallel = true, .norms = 1, .max_positions = 2048 },
    { "phi3", SF_POS_ROTARY, SF_NORM_RMSNORM, "silu", .gated = true, .fused_qkv = true, .fused_gate_up = true, .norms = 2, .max_positions = 4096 },
    { "stablelm", SF_POS_ROTARY, SF_NORM_LAYERNORM, "silu", .gated = true, .norm_bias = true, .norms = 2, .max_positions = 4096 },
    { "starcoder2", SF_POS_ROTARY, SF_NORM_LAYERNORM, "gelu_pytorch_tanh", .tied = true, .qkv_bias = true, .out_bias = true, .mlp_bias = true,
      .norm_bias = true, .norms = 2, .max_positions = 4096 },
    { "olmo", SF_POS_ROTARY, SF_NORM_PLAIN, "silu", .gated = true, .norms = 2, .max_positions = 2048 },
    { "olmo2 olmo3", SF_POS_ROTARY, SF_NORM_RMSNORM, "silu", .gated = true, .qk_norm = true, .qk_norm_full = true, .norms = 2, .max_positions = 2048 },
    { "gemma", SF_POS_ROTARY, SF_NORM_RMSNORM, "gelu_pytorch_tanh", .gated = true, .tied = true, .norms = 2, .max_positions = 8192 },
    { "gemma2", SF_POS_ROTARY, SF_NORM_RMSNORM, "gelu_pytorch_tanh", .gated = true, .tied = true, .norms = 4, .max_positions = 8192 },
    { "gemma3_text gemma3", SF_POS_ROTARY, SF_NORM_RMSNORM, "gelu_pytorch_tanh", .gated = true, .tied = true, .qk_norm = true, .norms = 4,
      .max_positions = 131072 },
    { "qwen2 qwen2_moe", SF_POS_ROTARY, SF_NORM_RMSNORM, "silu", .gated = true, .qkv_bias = true, .norms = 2, .max_positions = 32768 },
    { "qwen3 qwen3_moe", SF_POS_ROTARY, SF_NORM_RMSNORM, "silu", .gated = true, .qk_norm = true, .norms = 2, .max_positions = 32768 },
    { "exaone4", SF_POS_ROTARY, SF_NORM_RMSNORM, "silu", .gated = true, .qk_norm = true, .norms = 2, .max_positions = 2048 },
    { "internlm", SF_POS_ROTARY, SF_NORM_RMSNORM, "silu", .gated = true, .qkv_bias = true, .out_bias = true, .norms = 2, .max_positions = 2048 },
    { "gpt_oss", SF_POS_ROTARY, SF_NORM_RMSNORM, "silu", .gated = true, .qkv_bias = true, .out_bias = true, .norms = 2, .max_positions = 131072 },
    { "llama mistral mixtral ministral baichuan exaone deepseek deepseek_v2 deepseek_v3 yi granite smollm3 internlm2 cohere aquila", SF_POS_ROTARY,
      SF_NORM_RMSNORM, "silu", .gated = true, .norms = 2, .max_positions = 2048 },
};

static const family *find_family(const char *type)
{
    size_t len = strlen(type);
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        for (const char *at = families[i].types; at != NULL; at = strchr(at, ' ')) {
            at += *at == ' ';
            if (strncmp(at, type, len) == 0 && (at[len] == ' ' || at[len] == '\0'))
                return &families[i];
        }
    return NULL;
}

/* ---- fields ---- */

typedef struct {
    const json_t *config;
    const char *place;
    sf_arena *arena;
    sf_transformer *m;
    sf_status st; /* the first failure */
} reader;

#define NAMES(...) ((const char *const[]){ __VA_ARGS__, NULL })

static int64_t integer(reader *r, const char *const *names, int64_t otherwise, int64_t least)
{
    const json_t *value = sf_json_any(r->config, names);
    int64_t n = otherwise;

    if (value == NULL) {
        if (otherwise < 0 && r->st.code == SF_OK)
            r->st = SF_FAIL(SF_EPARSE, "%s: '%s' is missing, and nothing else tells it", r->place, names[0]);
        return otherwise;
    }
    if ((!sf_json_to_int(value, &n) || n < least || n > (int64_t)1 << 40) && r->st.code == SF_OK)
        r->st = SF_FAIL(SF_EPARSE, "%s: '%s' is not a whole number of at least %lld", r->place, names[0], (long long)least);
    return n;
}

static double real(reader *r, const char *const *names, double otherwise)
{
    const json_t *value = sf_json_any(r->config, names);
    double x = otherwise;
    if (value != NULL && !sf_json_to_real(value, &x)) {
        if (r->st.code == SF_OK)
            r->st = SF_FAIL(SF_EPARSE, "%s: '%s' is not a number", r->place, names[0]);
        return otherwise;
    }
    return x;
}

static bool truth(reader *r, const char *const *names, bool otherwise)
{
    const json_t *value = sf_json_any(r->config, names);
    bool b = otherwise;
    if (value != NULL && !sf_json_to_bool(value, &b) && r->st.code == SF_OK)
        r->st = SF_FAIL(SF_EPARSE, "%s: '%s' is neither true nor false", r->place, names[0]);
    return b;
}

static const char *word(const reader *r, const char *const *names, const char *otherwise)
{
    const json_t *value = sf_json_any(r->config, names);
    return json_is_string(value) ? json_string_value(value) : otherwise;
}

static void warn(reader *r, const char *text)
{
    sf_transformer *m = r->m;
    SF_PUSH(r->arena, m->warnings, m->n_warnings, m->cap_warnings) = text;
}

static sf_activation activation(reader *r, const char *name)
{
    static const struct {
        const char *name;
        sf_activation act;
    } known[] = {
        { "gelu_new", SF_ACTIVATION_GELU_TANH }, { "gelu_pytorch_tanh", SF_ACTIVATION_GELU_TANH }, { "gelu_tanh", SF_ACTIVATION_GELU_TANH },
        { "gelu_fast", SF_ACTIVATION_GELU_TANH }, { "gelu", SF_ACTIVATION_GELU_ERF }, { "relu", SF_ACTIVATION_RELU },
        { "silu", SF_ACTIVATION_SILU }, { "swish", SF_ACTIVATION_SILU }, { "swiglu", SF_ACTIVATION_SILU },
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (sf_str_ieq(known[i].name, name))
            return known[i].act;
    warn(r, sf_arena_printf(r->arena, "activation '%s' is not known; it is counted as gelu", name));
    return SF_ACTIVATION_GELU_ERF;
}

/* ---- what differs by family beyond the row ---- */

static void read_moe(reader *r)
{
    sf_transformer *m = r->m;
    m->n_experts = (int)integer(r, NAMES("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts"), 0, 0);
    m->moe_every = 1;
    if (m->n_experts == 0)
        return;
    m->top_k = (int)integer(r, NAMES("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_top_k"), -1, 1);
    m->expert_ffn = integer(r, NAMES("moe_intermediate_size"), m->ffn_hidden, 1);
    m->n_shared_experts = (int)integer(r, NAMES("n_shared_experts"), 0, 0);
    m->shared_ffn = integer(r, NAMES("shared_expert_intermediate_size"), m->n_shared_experts * m->expert_ffn, 0);
    m->shared_gate = json_object_get(r->config, "shared_expert_intermediate_size") != NULL;
    m->first_dense_layers = (int)integer(r, NAMES("first_k_dense_replace"), 0, 0);
    m->moe_every = (int)integer(r, NAMES("decoder_sparse_step", "moe_layer_freq"), 1, 1);
    m->router_bias = sf_str_eq(m->model_type, "deepseek_v3") || sf_str_eq(m->model_type, "gpt_oss");
    m->expert_bias = sf_str_eq(m->model_type, "gpt_oss");
    const json_t *dense = json_object_get(r->config, "mlp_only_layers");
    if (json_array_size(dense) > 0)
        warn(r, "mlp_only_layers is not empty; those layers are counted as mixture-of-experts layers");
}

static void read_mla(reader *r)
{
    sf_transformer *m = r->m;
    m->kv_lora_rank = integer(r, NAMES("kv_lora_rank"), 0, 0);
    if (m->kv_lora_rank == 0)
        return;
    m->q_lora_rank = integer(r, NAMES("q_lora_rank"), 0, 0);
    m->qk_nope_dim = integer(r, NAMES("qk_nope_head_dim"), -1, 1);
    m->qk_rope_dim = integer(r, NAMES("qk_rope_head_dim"), -1, 1);
    m->v_dim = integer(r, NAMES("v_head_dim"), -1, 1);
    m->rotary_dim = m->qk_rope_dim;
}

static void read_falcon(reader *r)
{
    sf_transformer *m = r->m;
    bool bias = truth(r, NAMES("bias"), false);
    bool new_decoder = truth(r, NAMES("new_decoder_architecture"), sf_json_any(r->config, NAMES("n_head_kv", "num_kv_heads")) != NULL);
    m->qkv_bias = m->out_bias = m->mlp_bias = bias;
    if (truth(r, NAMES("alibi"), false))
        m->position = SF_POS_ALIBI;
    m->parallel_block = truth(r, NAMES("parallel_attn"), true);
    m->norms_per_block = new_decoder || !m->parallel_block ? 2 : 1;
    if (!new_decoder)
        m->n_kv_heads = truth(r, NAMES("multi_query"), true) ? 1 : m->n_heads;
}

static void read_mpt(reader *r)
{
    sf_transformer *m = r->m;
    const json_t *attn = json_object_get(r->config, "attn_config");
    bool bias = !truth(r, NAMES("no_bias"), true), alibi = false;
    m->qkv_bias = m->out_bias = m->mlp_bias = m->norm_bias = bias;
    if (!(attn != NULL && sf_json_to_bool(json_object_get(attn, "alibi"), &alibi) && alibi))
        m->position = truth(r, NAMES("learned_pos_emb"), true) ? SF_POS_LEARNED : SF_POS_NONE;
    m->ffn_hidden = m->hidden * integer(r, NAMES("expansion_ratio"), 4, 1);
}

static void read_opt(reader *r)
{
    sf_transformer *m = r->m;
    m->position_rows = m->max_positions + 2; /* OPTLearnedPositionalEmbedding's offset */
    m->embed_dim = integer(r, NAMES("word_embed_proj_dim"), m->hidden, 1);
    m->no_final_norm = !truth(r, NAMES("do_layer_norm_before"), true) || truth(r, NAMES("_remove_final_layer_norm"), false);
    m->qkv_bias = m->out_bias = m->mlp_bias = truth(r, NAMES("enable_bias"), true);
}

static sf_status check(reader *r)
{
    const sf_transformer *m = r->m;
    if (m->n_heads % m->n_kv_heads != 0)
        return SF_FAIL(SF_EINVAL, "%s: %lld attention heads cannot share %lld key-value heads evenly", r->place, (long long)m->n_heads,
                       (long long)m->n_kv_heads);
    if (m->n_experts > 0 && m->top_k > m->n_experts)
        return SF_FAIL(SF_EINVAL, "%s: num_experts_per_tok %d is more than the %d experts", r->place, m->top_k, m->n_experts);
    if (m->n_layers > 100000)
        return SF_FAIL(SF_EINVAL, "%s: %d layers is beyond what a model has", r->place, m->n_layers);
    return SF_SUCCESS;
}

static void read_shape(reader *r, const family *f)
{
    sf_transformer *m = r->m;
    bool multi_query = truth(r, NAMES("multi_query"), false) && sf_str_eq(m->model_type, "gpt_bigcode");

    m->n_layers = (int)integer(r, NAMES("num_hidden_layers", "n_layer", "n_layers", "num_layers"), -1, 1);
    m->hidden = integer(r, NAMES("hidden_size", "n_embd", "d_model", "n_embed", "dim"), -1, 1);
    m->n_heads = integer(r, NAMES("num_attention_heads", "n_head", "n_heads"), -1, 1);
    m->vocab = integer(r, NAMES("vocab_size"), -1, 1);
    if (r->st.code != SF_OK)
        return;
    m->n_kv_heads = integer(r, NAMES("num_key_value_heads", "n_head_kv", "num_kv_heads", "n_kv_heads"), multi_query ? 1 : m->n_heads, 1);
    if (sf_json_any(r->config, NAMES("head_dim")) == NULL && m->hidden % m->n_heads != 0 &&
        sf_json_any(r->config, NAMES("kv_lora_rank")) == NULL && r->st.code == SF_OK)
        r->st = SF_FAIL(SF_EINVAL, "%s: hidden_size %lld is not divisible by %lld attention heads; state head_dim if it is meant", r->place,
                        (long long)m->hidden, (long long)m->n_heads);
    m->head_dim = integer(r, NAMES("head_dim"), m->hidden / m->n_heads, 1);
    bool four_times = !f->gated; /* families without a gate default to 4 x hidden */
    m->ffn_hidden = integer(r, NAMES("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "ffn_hidden"), four_times ? 4 * m->hidden : -1, 1);
    m->max_positions = integer(r, NAMES("max_position_embeddings", "n_positions", "seq_length", "max_seq_len", "n_ctx", "model_max_length"),
                               f->max_positions, 1);
    m->position_rows = m->max_positions;
    m->embed_dim = m->hidden;
}

static void read_details(reader *r, const family *f)
{
    sf_transformer *m = r->m;
    bool bias = truth(r, NAMES("attention_bias", "use_qkv_bias", "bias", "use_bias"), f->qkv_bias);

    m->position = f->position;
    m->rope_theta = real(r, NAMES("rope_theta", "rotary_emb_base"), 10000);
    double fraction = real(r, NAMES("partial_rotary_factor", "rotary_pct"), sf_str_eq(m->model_type, "gpt_neox") ? 0.25 : 1.0);
    m->rotary_dim = integer(r, NAMES("rotary_dim"), (int64_t)(fraction * (double)m->head_dim), 0);
    m->norm = f->norm;
    m->norm_eps = real(r, NAMES("rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "norm_epsilon"), f->norm == SF_NORM_RMSNORM ? 1e-6 : 1e-5);
    m->activation = activation(r, word(r, NAMES("hidden_activation", "hidden_act", "activation_function"), f->act));
    m->gated = f->gated;
    m->tied = truth(r, NAMES("tie_word_embeddings"), f->tied);
    /* LLaMA's attention_bias is for all four projections, Qwen2's q, k, v only, StableLM's too */
    m->qkv_bias = bias;
    m->out_bias = f->out_bias || (bias && !f->qkv_bias && json_object_get(r->config, "attention_bias") != NULL);
    if (sf_str_eq(m->model_type, "starcoder2"))
        m->out_bias = m->mlp_bias = bias;
    else
        m->mlp_bias = f->mlp_bias || truth(r, NAMES("mlp_bias"), false);
    if (f->qkv_bias && f->out_bias && !bias) /* internlm, gpt_oss: one switch for both */
        m->out_bias = false;
    m->norm_bias = f->norm_bias && f->norm == SF_NORM_LAYERNORM;
    m->head_bias = f->head_bias;
    m->qk_norm = f->qk_norm;
    m->qk_norm_full = f->qk_norm_full;
    m->fused_qkv = f->fused_qkv;
    m->fused_gate_up = f->fused_gate_up;
    m->transposed = f->transposed;
    m->parallel_block = truth(r, NAMES("use_parallel_residual"), f->parallel);
    m->norms_per_block = f->norms;
    m->embedding_norm = sf_str_eq(m->model_type, "bloom");
    m->attention_sinks = sf_str_eq(m->model_type, "gpt_oss");
    m->sliding_window = truth(r, NAMES("use_sliding_window"), true) ? integer(r, NAMES("sliding_window"), 0, 0) : 0;
    m->dropout = real(r, NAMES("resid_pdrop", "hidden_dropout", "dropout"), 0);
}

sf_status sf_transformer_from_json(const json_t *config, const char *place, sf_arena *arena, sf_transformer *out)
{
    const json_t *text = json_object_get(config, "text_config"); /* multi-modal wrappers */
    reader r = { .config = json_is_object(text) ? text : config, .place = place, .arena = arena, .m = out };

    if (!json_is_object(config))
        return SF_FAIL(SF_EPARSE, "%s: a model configuration is a JSON object", place);
    *out = (sf_transformer){ .name = "model" };
    const char *type = word(&r, NAMES("model_type"), NULL);
    if (type == NULL) {
        type = json_object_get(r.config, "n_embd") != NULL ? "gpt2" : "llama";
        warn(&r, sf_arena_printf(arena, "model_type is not stated; read as %s by its fields", type));
    }
    const family *f = find_family(type);
    if (f == NULL) {
        f = find_family("llama");
        warn(&r, sf_arena_printf(arena, "model_type '%s' is not known; it is read as a llama-like model", type));
    }
    out->model_type = sf_arena_strdup(arena, type);
    read_shape(&r, f);
    SF_TRY(r.st);
    read_details(&r, f);
    read_moe(&r);
    read_mla(&r);
    if (sf_str_starts(f->types, "falcon"))
        read_falcon(&r);
    else if (sf_str_eq(type, "mpt"))
        read_mpt(&r);
    else if (sf_str_eq(type, "opt"))
        read_opt(&r);
    SF_TRY(r.st);
    return check(&r);
}

/* ---- names and paths ---- */

static sf_status from_file(const char *path, const char *name, sf_arena *arena, sf_transformer *out)
{
    json_t *config = NULL;
    SF_TRY(sf_json_read(path, &config));
    sf_status st = sf_transformer_from_json(config, path, arena, out);
    json_decref(config);
    if (st.code == SF_OK)
        out->name = sf_arena_strdup(arena, name);
    return st;
}

/* models.txt: one line a model: FILE NAME [ALIAS...] */
static sf_status find_in_catalogue(const char *name, sf_arena *arena, const char **file, const char **canonical, const char **nearest)
{
    enum { MOST_NAMES = 1024, MOST_BYTES = 1 << 20 };
    const char *path = sf_catalogue_path(arena, "models/models.txt");
    const char **names = SF_NEW_ARRAY(arena, const char *, MOST_NAMES);
    char *text = NULL, wanted[128], given[128];
    size_t n = 0;

    SF_TRY(sf_file_read(path, MOST_BYTES, arena, &text, NULL));
    sf_str_squash(name, wanted, sizeof wanted);
    *file = NULL;
    char *line_state = NULL;
    for (char *line = strtok_r(text, "\n", &line_state); line != NULL; line = strtok_r(NULL, "\n", &line_state)) {
        char *state = NULL, *config = strtok_r(line, " ", &state), *first = NULL;
        if (config == NULL || config[0] == '#')
            continue;
        for (char *alias; (alias = strtok_r(NULL, " ", &state)) != NULL;) {
            if (first == NULL)
                first = alias;
            if (n < MOST_NAMES)
                names[n++] = alias;
            sf_str_squash(alias, given, sizeof given);
            if (strcmp(given, wanted) == 0) {
                *file = config;
                *canonical = first;
                return SF_SUCCESS;
            }
        }
    }
    *nearest = sf_str_nearest(name, names, n, arena);
    return SF_SUCCESS;
}

sf_status sf_transformer_find(const char *name_or_path, sf_arena *arena, sf_transformer *out)
{
    struct stat info;
    const char *file, *canonical = NULL, *nearest = "";

    if (stat(name_or_path, &info) == 0) {
        const char *path = S_ISDIR(info.st_mode) ? sf_arena_printf(arena, "%s/config.json", name_or_path) : name_or_path;
        return from_file(path, name_or_path, arena, out);
    }
    SF_TRY(find_in_catalogue(name_or_path, arena, &file, &canonical, &nearest));
    if (file == NULL)
        return SF_FAIL(SF_EINVAL, "model '%s' is neither a file nor a name of the catalogue; the nearest names are %s", name_or_path, nearest);
    return from_file(sf_catalogue_path(arena, sf_arena_printf(arena, "models/%s", file)), canonical, arena, out);
}
