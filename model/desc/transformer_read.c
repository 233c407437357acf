/* Reads a Hugging Face config.json: the shape by any of the names that families give it, what the
 * family's row says where the file is silent, then what is apart in that family. */
#include <math.h>
#include <string.h>

#include "model/base/text.h"
#include "model/desc/transformer_fields.h"

static bool is_type(const sf_config_reader *r, const char *type)
{
    return sf_str_eq(r->m->model_type, type);
}

static sf_activation activation(sf_config_reader *r, const char *name)
{
    static const struct {
        const char *name;
        sf_activation act;
    } known[] = {
        { "gelu_new", SF_ACTIVATION_GELU_TANH }, { "gelu_pytorch_tanh", SF_ACTIVATION_GELU_TANH }, { "gelu_tanh", SF_ACTIVATION_GELU_TANH },
        { "gelu_fast", SF_ACTIVATION_GELU_TANH }, { "quick_gelu", SF_ACTIVATION_GELU_TANH }, { "gegelu", SF_ACTIVATION_GELU_TANH },
        { "gelu", SF_ACTIVATION_GELU_ERF }, { "gelu_python", SF_ACTIVATION_GELU_ERF }, { "relu", SF_ACTIVATION_RELU },
        { "relu2", SF_ACTIVATION_RELU2 }, { "relu_squared", SF_ACTIVATION_RELU2 }, { "xielu", SF_ACTIVATION_XIELU },
        { "silu", SF_ACTIVATION_SILU }, { "swish", SF_ACTIVATION_SILU }, { "swiglu", SF_ACTIVATION_SILU },
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (sf_str_ieq(known[i].name, name))
            return known[i].act;
    sf_config_warn(r, sf_arena_printf(r->arena, "activation '%s' is not known; it is counted as gelu", name));
    return SF_ACTIVATION_GELU_ERF;
}

/* ---- shape ---- */

/* Meta's params.json: 2/3 of 4 x dim, times ffn_dim_multiplier, up to a multiple of multiple_of. */
static int64_t ffn_of_multiple(sf_config_reader *r)
{
    int64_t multiple = sf_config_integer(r, SF_NAMES("multiple_of"), 256, 1, 1 << 20), ffn = 8 * r->m->hidden / 3;
    double factor = sf_config_real(r, SF_NAMES("ffn_dim_multiplier"), 1);
    if (factor > 0 && factor < 1000)
        ffn = (int64_t)(factor * (double)ffn);
    return (ffn + multiple - 1) / multiple * multiple;
}

static void read_heads(sf_config_reader *r)
{
    sf_transformer *m = r->m;
    const sf_family *f = r->f;

    m->n_kv_heads = sf_config_integer(r, SF_NAMES("num_key_value_heads", "n_head_kv", "num_kv_heads", "n_kv_heads"), m->n_heads, 1, 1 << 16);
    bool given = sf_config_look(r, SF_NAMES("head_dim", "attention_head_dim", "kv_channels")) != NULL || f->head_dim > 0;
    if (!given && m->hidden % m->n_heads != 0 && !sf_config_has(r, "kv_lora_rank"))
        sf_config_fail(r, SF_FAIL(SF_EINVAL, "%s: hidden_size %lld is not divisible by %lld attention heads; state head_dim if it is meant", r->place,
                        (long long)m->hidden, (long long)m->n_heads));
    m->head_dim = sf_config_integer(r, SF_NAMES("head_dim", "attention_head_dim", "kv_channels"), f->head_dim > 0 ? f->head_dim : m->hidden / m->n_heads, 0, 1 << 16);
}

static void read_shape(sf_config_reader *r)
{
    sf_transformer *m = r->m;
    const sf_family *f = r->f;

    m->n_layers = (int)sf_config_integer(r, SF_NAMES("num_hidden_layers", "n_layer", "n_layers", "num_layers"), -1, 1, 1 << 14);
    m->hidden = sf_config_integer(r, SF_NAMES("hidden_size", "n_embd", "d_model", "n_embed", "dim"), -1, 1, 1 << 20);
    m->n_heads = sf_config_integer(r, SF_NAMES("num_attention_heads", "n_head", "n_heads", "num_heads"), -1, 1, 1 << 16);
    m->vocab = sf_config_integer(r, SF_NAMES("vocab_size", "padded_vocab_size"), -1, 1, 1 << 28);
    if (r->st.code != SF_OK)
        return;
    read_heads(r);
    bool of_multiple = sf_config_has(r, "multiple_of") && sf_config_has(r, "dim");
    int64_t ffn = f->gated && !of_multiple ? (sf_config_has(r, "moe_intermediate_size") ? 0 : -1) : of_multiple ? ffn_of_multiple(r) : 4 * m->hidden;
    if (f->special == SF_SPECIAL_DBRX)
        ffn = 0;
    m->ffn_hidden = sf_config_integer(r, SF_NAMES("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "ffn_hidden", "inner_size"), ffn, 1, 1 << 24);
    m->max_positions = sf_config_integer(r, SF_NAMES("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_sequence_length", "n_ctx",
                                        "model_max_length", "seq_len"), f->max_positions, 1, (int64_t)1 << 32);
    m->position_rows = m->max_positions;
    m->embed_dim = m->hidden;
}

/* ---- details by the family's row ---- */

static void read_biases(sf_config_reader *r)
{
    sf_transformer *m = r->m;
    const sf_family *f = r->f;
    const char *key = f->bias_key == NULL ? "attention_bias" : f->bias_key;
    bool stated = sf_config_has(r, key), on = sf_config_truth(r, SF_NAMES(key), false);

    m->qkv_bias = stated ? on : f->qkv_bias;
    m->out_bias = stated && !f->qkv_only && (f->out_bias || !f->qkv_bias) ? on : f->out_bias;
    m->mlp_bias = stated && f->mlp_too ? on : sf_config_truth(r, SF_NAMES("mlp_bias"), f->mlp_bias);
    if (f->bias_key == NULL && !f->qkv_bias && !f->out_bias && !stated) { /* llama-like spellings of the same switch */
        bool general = sf_config_truth(r, SF_NAMES("bias"), false);
        m->qkv_bias = sf_config_truth(r, SF_NAMES("qkv_bias", "use_qkv_bias", "add_qkv_bias"), general);
        m->out_bias = general;
    }
    m->out_bias = sf_config_truth(r, SF_NAMES("attention_out_bias"), m->out_bias);
    m->norm_bias = f->norm_bias && f->norm == SF_NORM_LAYERNORM;
    m->head_bias = sf_config_truth(r, SF_NAMES("lm_head_bias"), f->head_bias);
}

static void read_details(sf_config_reader *r)
{
    sf_transformer *m = r->m;
    const sf_family *f = r->f;

    m->layout = f->layout;
    m->position = f->position;
    m->rope_theta = sf_config_real(r, SF_NAMES("rope_theta", "rotary_emb_base"), 10000);
    double fraction = sf_config_real(r, SF_NAMES("partial_rotary_factor", "rotary_pct", "rope_pct"), is_type(r, "gpt_neox") ? 0.25 : 1.0);
    if (!(fraction >= 0 && fraction <= 1))
        sf_config_fail(r, SF_FAIL(SF_EINVAL, "%s: the rotary share of a head is %g, which is not from 0 to 1", r->place, fraction));
    else
        m->rotary_dim = sf_config_integer(r, SF_NAMES("rotary_dim"), (int64_t)(fraction * (double)m->head_dim), 0, 1 << 16);
    m->norm = f->norm;
    m->norm_eps = sf_config_real(r, SF_NAMES("rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "layernorm_epsilon", "norm_epsilon", "norm_eps"),
                       f->norm == SF_NORM_RMSNORM ? 1e-6 : 1e-5);
    m->activation = activation(r, sf_config_word(r, SF_NAMES("hidden_activation", "hidden_act", "activation_function", "afn"), f->act));
    m->gated = f->gated;
    m->tied = sf_config_truth(r, SF_NAMES("tie_word_embeddings"), f->tied);
    read_biases(r);
    m->qk_norm = sf_config_truth(r, SF_NAMES("qk_layernorm", "use_qk_norm"), f->qk_norm);
    m->qk_norm_full = f->qk_norm_full;
    m->qk_norm_bias = m->qk_norm && m->norm_bias;
    m->fused_qkv = f->fused_qkv;
    m->fused_gate_up = f->fused_gate_up;
    m->parallel_block = sf_config_truth(r, SF_NAMES("use_parallel_residual"), f->parallel);
    m->norms_per_block = f->norms;
    m->embedding_scale = sf_config_real(r, SF_NAMES("embedding_multiplier", "scale_emb"), 1);
    m->attention_softcap = sf_config_real(r, SF_NAMES("attn_logit_softcapping"), 0);
    m->final_softcap = sf_config_real(r, SF_NAMES("final_logit_softcapping"), 0);
    m->dropout = sf_config_real(r, SF_NAMES("resid_pdrop", "resid_dropout", "hidden_dropout", "dropout", "residual_dropout", "hidden_dropout_prob"), 0);
}

/* ---- mixture of experts, latent attention ---- */

static void read_moe(sf_config_reader *r)
{
    sf_transformer *m = r->m;
    m->n_experts = (int)sf_config_integer(r, SF_NAMES("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts", "num_routed_experts"), 0, 0, 1 << 14);
    if (m->n_experts == 0)
        return;
    m->top_k = (int)sf_config_integer(r, SF_NAMES("num_experts_per_tok", "num_experts_per_topk", "experts_per_token", "num_experts_per_token", "moe_top_k", "moe_k", "top_k_experts"),
                            -1, 1, 1 << 14);
    m->expert_ffn = sf_config_integer(r, SF_NAMES("moe_intermediate_size", "expert_intermediate_size"), m->ffn_hidden, 1, 1 << 24);
    m->n_shared_experts = (int)sf_config_integer(r, SF_NAMES("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"), 0, 0, 1 << 10);
    m->shared_ffn = sf_config_integer(r, SF_NAMES("shared_expert_intermediate_size", "shared_intermediate_size"), m->n_shared_experts * m->expert_ffn, 0, 1 << 24);
    m->shared_gate = sf_config_has(r, "shared_expert_intermediate_size");
    m->first_dense_layers = (int)sf_config_integer(r, SF_NAMES("first_k_dense_replace"), 0, 0, 1 << 14);
    m->router_bias = r->f->router_bias && (!is_type(r, "ernie4_5_moe") || sf_config_truth(r, SF_NAMES("moe_use_aux_free", "use_aux_free"), true));
}

static void read_mla(sf_config_reader *r)
{
    sf_transformer *m = r->m;
    m->kv_lora_rank = sf_config_integer(r, SF_NAMES("kv_lora_rank"), 0, 0, 1 << 20);
    if (m->kv_lora_rank == 0) {
        if (m->head_dim == 0)
            sf_config_fail(r, SF_FAIL(SF_EINVAL, "%s: 'head_dim' is 0", r->place));
        return;
    }
    m->q_lora_rank = sf_config_integer(r, SF_NAMES("q_lora_rank"), 0, 0, 1 << 20);
    m->qk_nope_dim = sf_config_integer(r, SF_NAMES("qk_nope_head_dim"), -1, 1, 1 << 16);
    m->qk_rope_dim = sf_config_integer(r, SF_NAMES("qk_rope_head_dim"), -1, 1, 1 << 16);
    m->v_dim = sf_config_integer(r, SF_NAMES("v_head_dim"), is_type(r, "minicpm3") ? m->hidden / m->n_heads : -1, 1, 1 << 16);
    m->rotary_dim = m->qk_rope_dim;
    if (m->qkv_bias)
        sf_config_warn(r, "attention_bias of latent attention (q_a_proj, kv_a_proj, o_proj) is counted for o_proj only");
    if (sf_config_has(r, "index_topk"))
        sf_config_warn(r, "the indexer of sparse attention (index_topk) is not counted");
}

/* ---- which layers are what ---- */

static bool listed(const json_t *array, int64_t n)
{
    size_t i;
    json_t *value;
    int64_t at;
    json_array_foreach((json_t *)array, i, value)
        if (sf_json_to_int(value, &at) && at == n)
            return true;
    return false;
}

/* The ways in which families say which layers have experts. */
typedef struct {
    const json_t *freq, *mlp_only, *moe_layers, *mlp_types;
    int64_t every, phase, from, to;
} moe_rule;

static bool moe_layer(const sf_config_reader *r, const moe_rule *rule, int l)
{
    const sf_transformer *m = r->m;
    const char *type = json_string_value(json_array_get(rule->mlp_types, (size_t)l));
    int64_t one = 0;
    if (m->n_experts == 0 || listed(rule->mlp_only, l))
        return false;
    if (type != NULL)
        return strcmp(type, "dense") != 0;
    if (json_array_size(rule->moe_layers) > 0)
        return listed(rule->moe_layers, l);
    if (json_is_array(rule->freq)) /* a 0 or 1 for each layer */
        return sf_json_to_int(json_array_get(rule->freq, (size_t)l), &one) && one != 0;
    return l >= m->first_dense_layers && l >= rule->from && l <= rule->to && (l + rule->phase) % rule->every == 0;
}

static bool windowed_layer(const sf_config_reader *r, const json_t *types, int64_t pattern, int64_t from, int l)
{
    const char *type = json_string_value(json_array_get(types, (size_t)l));
    if (r->m->sliding_window == 0)
        return false;
    if (type != NULL)
        return strstr(type, "sliding") != NULL || strstr(type, "local") != NULL || strstr(type, "chunked") != NULL;
    switch (r->f->window) {
    case SF_WINDOW_EVEN: return l % 2 == 0;
    case SF_WINDOW_PATTERN: return pattern > 0 && (l + 1) % pattern != 0;
    case SF_WINDOW_OPT_IN: return l >= from;
    default: return true;
    }
}

/* "LLLG" is a pattern of 4; a number is itself; EXAONE 4 and OLMo 3 have 4, Gemma 3 has 6. */
static int64_t window_pattern(sf_config_reader *r)
{
    const json_t *value = sf_config_look(r, SF_NAMES("sliding_window_pattern", "_sliding_window_pattern"));
    if (json_is_string(value))
        return (int64_t)strlen(json_string_value(value));
    return sf_config_integer(r, SF_NAMES("sliding_window_pattern", "_sliding_window_pattern"), r->f->special == SF_SPECIAL_GEMMA ? 6 : 4, 0, 1 << 14);
}

static void read_moe_rule(sf_config_reader *r, moe_rule *out)
{
    const sf_transformer *m = r->m;
    *out = (moe_rule){ .freq = sf_config_look(r, SF_NAMES("moe_layer_freq")), .mlp_only = sf_config_look(r, SF_NAMES("mlp_only_layers")),
                       .moe_layers = sf_config_look(r, SF_NAMES("moe_layers")), .mlp_types = sf_config_look(r, SF_NAMES("mlp_layer_types")), .every = 1 };
    out->from = sf_config_integer(r, SF_NAMES("moe_layer_start_index"), 0, 0, 1 << 14);
    out->to = sf_config_integer(r, SF_NAMES("moe_layer_end_index"), m->n_layers, -1, 1 << 14);
    if (out->to < 0)
        out->to = m->n_layers;
    if (!json_is_array(out->freq))
        out->every = sf_config_integer(r, SF_NAMES("moe_layer_freq"), 1, 1, 1 << 14);
    if (sf_config_has(r, "decoder_sparse_step") || sf_config_has(r, "interleave_moe_layer_step") || sf_config_has(r, "moe_layer_interval")) { /* every nth layer, the nth first */
        out->every = sf_config_integer(r, SF_NAMES("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval"), 1, 1, 1 << 14);
        out->phase = 1;
    }
}

static void read_layer_kinds(sf_config_reader *r)
{
    sf_transformer *m = r->m;
    uint8_t *kinds = sf_arena_alloc(r->arena, (size_t)m->n_layers);
    const json_t *types = sf_config_look(r, SF_NAMES("layer_types"));
    bool opted = sf_config_truth(r, SF_NAMES("use_sliding_window"), r->f->window != SF_WINDOW_OPT_IN);
    int64_t from = sf_config_integer(r, SF_NAMES("max_window_layers"), 0, 0, 1 << 14), pattern = window_pattern(r);
    moe_rule rule;

    read_moe_rule(r, &rule);
    m->sliding_window = opted ? sf_config_integer(r, SF_NAMES("sliding_window", "sliding_window_size", "attention_chunk_size"), 0, 0, (int64_t)1 << 32) : 0;
    if (m->sliding_window >= m->max_positions) /* never shorter than a sequence */
        m->sliding_window = 0;
    for (int l = 0; l < m->n_layers; l++)
        kinds[l] = (uint8_t)((moe_layer(r, &rule, l) ? SF_LAYER_MOE : 0) | (windowed_layer(r, types, pattern, from, l) ? SF_LAYER_WINDOWED : 0));
    m->layer_kinds = kinds;
}

static bool any_dense(const sf_transformer *m)
{
    for (int l = 0; l < m->n_layers; l++)
        if (!sf_transformer_layer_is_moe(m, l))
            return true;
    return false;
}

/* ---- what is apart in a family ---- */

static void read_falcon(sf_config_reader *r)
{
    sf_transformer *m = r->m;
    bool bias = sf_config_truth(r, SF_NAMES("bias"), false);
    bool new_decoder = sf_config_truth(r, SF_NAMES("new_decoder_architecture"), sf_config_has(r, "n_head_kv") || sf_config_has(r, "num_kv_heads"));
    m->qkv_bias = m->out_bias = m->mlp_bias = bias;
    if (sf_config_truth(r, SF_NAMES("alibi"), false))
        m->position = SF_POS_ALIBI;
    m->parallel_block = sf_config_truth(r, SF_NAMES("parallel_attn"), true);
    bool two = sf_config_integer(r, SF_NAMES("num_ln_in_parallel_attn"), new_decoder ? 2 : 1, 1, 2) == 2;
    m->norms_per_block = !m->parallel_block || two ? 2 : 1;
    if (m->parallel_block && two)
        m->layout = &sf_layout_falcon_two_norms;
    if (!new_decoder)
        m->n_kv_heads = sf_config_truth(r, SF_NAMES("multi_query"), true) ? 1 : m->n_heads;
}

/* A field of a nested object, read as if it were at the top. */
static int64_t nested_integer(sf_config_reader *r, const char *object, const char *name, int64_t otherwise, int64_t most)
{
    const json_t *outer = r->config, *inner = sf_config_look(r, SF_NAMES(object));
    r->config = json_is_object(inner) ? inner : NULL;
    int64_t n = sf_config_integer(r, SF_NAMES(name), otherwise, 1, most);
    r->config = outer;
    return n;
}

static void read_mpt(sf_config_reader *r)
{
    sf_transformer *m = r->m;
    const json_t *attention = sf_config_look(r, SF_NAMES("attn_config"));
    bool alibi = false, qk_norm = false;
    m->qkv_bias = m->out_bias = m->mlp_bias = m->norm_bias = !sf_config_truth(r, SF_NAMES("no_bias"), true);
    if (!(sf_json_to_bool(json_object_get(attention, "alibi"), &alibi) && alibi) && attention != NULL)
        m->position = sf_config_truth(r, SF_NAMES("learned_pos_emb"), true) ? SF_POS_LEARNED : SF_POS_NONE;
    m->qk_norm = m->qk_norm_full = sf_json_to_bool(json_object_get(attention, "qk_ln"), &qk_norm) && qk_norm;
    m->n_kv_heads = nested_integer(r, "attn_config", "kv_n_heads", m->n_kv_heads, 1 << 16);
    m->ffn_hidden = sf_config_integer(r, SF_NAMES("expansion_ratio"), 0, 1, 64) * m->hidden;
    if (m->ffn_hidden == 0)
        m->ffn_hidden = sf_config_integer(r, SF_NAMES("intermediate_size", "ffn_hidden_size"), 4 * m->hidden, 1, 1 << 24);
}

static void read_dbrx(sf_config_reader *r)
{
    sf_transformer *m = r->m;
    m->n_kv_heads = nested_integer(r, "attn_config", "kv_n_heads", m->n_heads, 1 << 16);
    m->n_experts = (int)nested_integer(r, "ffn_config", "moe_num_experts", 4, 1 << 14);
    m->top_k = (int)nested_integer(r, "ffn_config", "moe_top_k", 1, 1 << 14);
    m->expert_ffn = m->ffn_hidden = nested_integer(r, "ffn_config", "ffn_hidden_size", 3584, 1 << 24);
    m->fused_experts = true;
}

static void read_opt(sf_config_reader *r)
{
    sf_transformer *m = r->m;
    m->position_rows = m->max_positions + 2; /* OPTLearnedPositionalEmbedding's offset */
    m->embed_dim = sf_config_integer(r, SF_NAMES("word_embed_proj_dim"), m->hidden, 1, 1 << 20);
    m->no_final_norm = !sf_config_truth(r, SF_NAMES("do_layer_norm_before"), true) || sf_config_truth(r, SF_NAMES("_remove_final_layer_norm"), false);
    m->qkv_bias = m->out_bias = m->mlp_bias = sf_config_truth(r, SF_NAMES("enable_bias"), true);
    if (!sf_config_truth(r, SF_NAMES("layer_norm_elementwise_affine"), true))
        m->norm = SF_NORM_PLAIN;
}

/* attention_types [[["global", "local"], 12]]: every second layer looks back window_size tokens. */
static void read_gpt_neo(sf_config_reader *r)
{
    sf_transformer *m = r->m;
    const json_t *layers = sf_config_look(r, SF_NAMES("attention_layers"));
    int64_t window = sf_config_integer(r, SF_NAMES("window_size"), 256, 1, 1 << 24);
    uint8_t *kinds = sf_arena_alloc(r->arena, (size_t)m->n_layers);

    (void)sf_config_look(r, SF_NAMES("attention_types"));
    for (int l = 0; l < m->n_layers; l++) {
        const char *type = json_string_value(json_array_get(layers, (size_t)l));
        kinds[l] = type != NULL ? (sf_str_eq(type, "local") ? SF_LAYER_WINDOWED : 0) : l % 2 == 1 ? SF_LAYER_WINDOWED : 0;
    }
    m->sliding_window = window < m->max_positions ? window : 0;
    if (m->sliding_window > 0)
        m->layer_kinds = kinds;
}

static void read_cohere(sf_config_reader *r)
{
    sf_transformer *m = r->m;
    m->qk_norm_full = true; /* a weight for each head */
    m->qk_norm_bias = false;
    m->embedding_scale = 1;
}

static void read_llama4(sf_config_reader *r)
{
    sf_transformer *m = r->m;
    m->expert_ffn = m->shared_ffn = m->ffn_hidden; /* intermediate_size is the experts' */
    m->ffn_hidden = sf_config_integer(r, SF_NAMES("intermediate_size_mlp"), m->ffn_hidden, 1, 1 << 24);
    m->n_shared_experts = m->n_experts > 0 ? 1 : 0;
    m->fused_experts = true;
    m->qk_norm = false; /* use_qk_norm is a norm without parameters */
}

static void read_chatglm(sf_config_reader *r)
{
    sf_transformer *m = r->m;
    bool grouped = sf_config_truth(r, SF_NAMES("multi_query_attention"), false);
    int64_t groups = sf_config_integer(r, SF_NAMES("multi_query_group_num"), 1, 1, 1 << 16);
    m->n_kv_heads = grouped ? groups : m->n_heads;
    m->qkv_bias = sf_config_truth(r, SF_NAMES("add_qkv_bias"), true);
    m->out_bias = m->mlp_bias = sf_config_truth(r, SF_NAMES("add_bias_linear"), false);
    m->norm = sf_config_truth(r, SF_NAMES("rmsnorm"), true) ? SF_NORM_RMSNORM : SF_NORM_LAYERNORM;
    m->rotary_dim = m->head_dim / 2;
}

static void read_special(sf_config_reader *r)
{
    sf_transformer *m = r->m;
    switch (r->f->special) {
    case SF_SPECIAL_FALCON: read_falcon(r); break;
    case SF_SPECIAL_MPT: read_mpt(r); break;
    case SF_SPECIAL_OPT: read_opt(r); break;
    case SF_SPECIAL_GPT_NEO: read_gpt_neo(r); break;
    case SF_SPECIAL_DBRX: read_dbrx(r); break;
    case SF_SPECIAL_LLAMA4: read_llama4(r); break;
    case SF_SPECIAL_CHATGLM: read_chatglm(r); break;
    case SF_SPECIAL_COHERE: read_cohere(r); break;
    case SF_SPECIAL_GPT2: m->transposed = true; m->no_final_norm = is_type(r, "openai-gpt"); break;
    case SF_SPECIAL_BIGCODE: m->n_kv_heads = sf_config_truth(r, SF_NAMES("multi_query"), true) ? 1 : m->n_heads; break;
    case SF_SPECIAL_BLOOM: m->embedding_norm = true; break;
    case SF_SPECIAL_GPT_OSS: m->attention_sinks = m->router_bias = m->expert_bias = m->fused_experts = true; break;
    case SF_SPECIAL_PHI: break;
    case SF_SPECIAL_QWEN1: m->ffn_hidden /= 2; break; /* intermediate_size is that of w1 and w2 together */
    case SF_SPECIAL_GEMMA: m->embedding_scale = sqrt((double)m->hidden); break;
    case SF_SPECIAL_STABLELM: /* a norm for each head, without bias; the parallel block has one norm */
        m->parallel_block = sf_config_truth(r, SF_NAMES("use_parallel_residual"), false);
        m->norms_per_block = m->parallel_block ? 1 : 2;
        m->qk_norm_full = true;
        m->qk_norm_bias = false;
        break;
    case SF_SPECIAL_NONE: break;
    }
}

/* ---- checks ---- */

static sf_status check(const sf_config_reader *r)
{
    const sf_transformer *m = r->m;
    if (m->n_heads % m->n_kv_heads != 0)
        return SF_FAIL(SF_EINVAL, "%s: %lld attention heads cannot share %lld key-value heads evenly", r->place, (long long)m->n_heads,
                       (long long)m->n_kv_heads);
    if (m->n_experts > 0 && m->top_k > m->n_experts)
        return SF_FAIL(SF_EINVAL, "%s: a token cannot use %d experts of %d", r->place, m->top_k, m->n_experts);
    if (m->position == SF_POS_ROTARY && m->kv_lora_rank == 0 && m->rotary_dim > m->head_dim)
        return SF_FAIL(SF_EINVAL, "%s: rotary_dim %lld is more than the %lld of a head", r->place, (long long)m->rotary_dim, (long long)m->head_dim);
    if (m->ffn_hidden == 0 && any_dense(m))
        return SF_FAIL(SF_EPARSE, "%s: 'intermediate_size' is missing, and some layers have no experts", r->place);
    return SF_SUCCESS;
}

/* ---- entry ---- */

static sf_status choose_family(sf_config_reader *r, const json_t *outer)
{
    const char *type = sf_config_word(r, SF_NAMES("model_type"), json_string_value(json_object_get(outer, "model_type")));
    bool cross = false;

    if (type == NULL) {
        type = sf_config_has(r, "n_embd") ? "gpt2" : "llama";
        sf_config_warn(r, sf_arena_printf(r->arena, "model_type is not stated; read as %s by its fields", type));
    }
    r->m->model_type = sf_arena_strdup(r->arena, type);
    const char *why = sf_family_refusal(type);
    if (why == NULL && sf_json_to_bool(json_object_get(r->config, "is_encoder_decoder"), &cross) && cross)
        why = "an encoder and a decoder with cross-attention";
    if (why == NULL && (sf_config_has(r, "ssm_state_size") || sf_config_has(r, "state_size") || sf_config_has(r, "mamba_d_state") || sf_config_has(r, "linear_num_key_heads")))
        why = "state-space or linear-attention layers";
    if (why == NULL && sf_family_find(type) == NULL && sf_config_has(r, "type_vocab_size"))
        why = "token types, as an encoder has";
    if (why == NULL && sf_config_has(r, "cross_attention_layers"))
        why = "cross-attention layers";
    if (why != NULL)
        return SF_FAIL(SF_EUNSUP, "%s: model_type '%s' has %s; decoder-only transformers are modelled", r->place, type, why);
    r->f = sf_family_find(type);
    if (r->f == NULL && !sf_config_has(r, "hidden_size") && !sf_config_has(r, "n_embd") && !sf_config_has(r, "d_model") && !sf_config_has(r, "dim")) {
        const char **types;
        size_t n = sf_family_types(r->arena, &types);
        return SF_FAIL(SF_EUNSUP, "%s: model_type '%s' is not known and has no hidden_size to read it as a llama-like model; the nearest known are %s",
                       r->place, type, sf_str_nearest(type, types, n, r->arena));
    }
    if (r->f == NULL) {
        r->f = sf_family_find("llama");
        sf_config_warn(r, sf_arena_printf(r->arena, "model_type '%s' is not known; it is read as a llama-like model", type));
    }
    return SF_SUCCESS;
}

sf_status sf_transformer_from_json(const json_t *config, const char *place, sf_arena *arena, sf_transformer *out)
{
    const json_t *text = json_object_get(config, "text_config"); /* multi-modal wrappers */
    sf_config_reader r = { .config = json_is_object(text) ? text : config, .place = place, .arena = arena, .m = out };

    if (!json_is_object(config))
        return SF_FAIL(SF_EPARSE, "%s: a model configuration is a JSON object", place);
    *out = (sf_transformer){ .name = "model" };
    if (r.config == text)
        sf_config_warn(&r, "only text_config is read: the encoders of images or sound are not counted");
    SF_TRY(choose_family(&r, config));
    read_shape(&r);
    SF_TRY(r.st);
    read_details(&r);
    read_moe(&r);
    read_mla(&r);
    read_layer_kinds(&r);
    read_special(&r);
    if (r.f->special == SF_SPECIAL_DBRX || r.f->special == SF_SPECIAL_LLAMA4) /* their experts are read there */
        read_layer_kinds(&r);
    SF_TRY(r.st);
    SF_TRY(check(&r));
    sf_config_warn_about_the_rest(&r);
    return SF_SUCCESS;
}
