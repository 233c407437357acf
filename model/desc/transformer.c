#include "model/desc/transformer.h"

#define AS_NAME(id, name, matrix) name,
static const char *const role_names[SF_ROLE_COUNT] = { SF_ROLES(AS_NAME) };
#undef AS_NAME
#define AS_MATRIX(id, name, matrix) matrix,
static const bool role_matrix[SF_ROLE_COUNT] = { SF_ROLES(AS_MATRIX) };
#undef AS_MATRIX

const char *sf_role_name(sf_role role)
{
    return role_names[role];
}

bool sf_role_is_matrix(sf_role role)
{
    return role_matrix[role];
}

bool sf_transformer_layer_is_moe(const sf_transformer *m, int layer)
{
    return m->n_experts > 0 && layer >= m->first_dense_layers && (layer - m->first_dense_layers) % m->moe_every == 0;
}

/* ---- the tensor list ---- */

typedef struct {
    sf_arena *arena;
    sf_tensor_list *list;
    sf_place_of_tensor place;
    int layer;
} writer;

static void add_many(writer *w, sf_role role, const char *name, int copies, int64_t d0, int64_t d1, int64_t d2)
{
    sf_tensor t = { .role = role, .place = w->place, .layer = w->layer, .copies = copies, .shape = { (uint64_t)d0, (uint64_t)d1, (uint64_t)d2 } };
    t.ndim = d2 > 0 ? 3 : d1 > 0 ? 2 : 1;
    t.numel = (uint64_t)d0 * (d1 > 0 ? (uint64_t)d1 : 1) * (d2 > 0 ? (uint64_t)d2 : 1);
    t.name = w->layer < 0 ? name : sf_arena_printf(w->arena, "layers.%d.%s", w->layer, name);
    SF_PUSH(w->arena, w->list->items, w->list->count, w->list->cap) = t;
}

static void add(writer *w, sf_role role, const char *name, int64_t d0, int64_t d1)
{
    add_many(w, role, name, 1, d0, d1, 0);
}

static void add_norm(writer *w, const sf_transformer *m, sf_role weight, const char *name, int64_t width)
{
    if (m->norm == SF_NORM_PLAIN)
        return;
    add(w, weight, sf_arena_printf(w->arena, "%s.weight", name), width, 0);
    bool has_bias_role = weight == SF_ROLE_NORM1_W || weight == SF_ROLE_NORM2_W || weight == SF_ROLE_NORMF_W || weight == SF_ROLE_EMBED_NORM_W;
    if (m->norm_bias && has_bias_role)
        add(w, (sf_role)(weight + 1), sf_arena_printf(w->arena, "%s.bias", name), width, 0);
}

static void add_linear(writer *w, const sf_transformer *m, sf_role weight, const char *name, int64_t out, int64_t in, bool bias)
{
    bool conv = m->transposed && weight != SF_ROLE_HEAD_W;
    add(w, weight, sf_arena_printf(w->arena, "%s.weight", name), conv ? in : out, conv ? out : in);
    if (bias)
        add(w, (sf_role)(weight + 1), sf_arena_printf(w->arena, "%s.bias", name), out, 0);
}

static void add_attention(writer *w, const sf_transformer *m)
{
    int64_t q = m->n_heads * m->head_dim, kv = m->n_kv_heads * m->head_dim, C = m->hidden;

    if (m->kv_lora_rank > 0) {
        int64_t qk = m->qk_nope_dim + m->qk_rope_dim;
        if (m->q_lora_rank > 0) {
            add_linear(w, m, SF_ROLE_Q_DOWN, "self_attn.q_a_proj", m->q_lora_rank, C, false);
            add(w, SF_ROLE_Q_DOWN_NORM, "self_attn.q_a_layernorm.weight", m->q_lora_rank, 0);
            add_linear(w, m, SF_ROLE_Q_W, "self_attn.q_b_proj", m->n_heads * qk, m->q_lora_rank, false);
        } else {
            add_linear(w, m, SF_ROLE_Q_W, "self_attn.q_proj", m->n_heads * qk, C, false);
        }
        add_linear(w, m, SF_ROLE_KV_DOWN, "self_attn.kv_a_proj_with_mqa", m->kv_lora_rank + m->qk_rope_dim, C, false);
        add(w, SF_ROLE_KV_DOWN_NORM, "self_attn.kv_a_layernorm.weight", m->kv_lora_rank, 0);
        add_linear(w, m, SF_ROLE_KV_UP, "self_attn.kv_b_proj", m->n_heads * (m->qk_nope_dim + m->v_dim), m->kv_lora_rank, false);
        add_linear(w, m, SF_ROLE_OUT_W, "self_attn.o_proj", C, m->n_heads * m->v_dim, m->out_bias);
        return;
    }
    if (m->fused_qkv) {
        add_linear(w, m, SF_ROLE_QKV_W, "attn.qkv", q + 2 * kv, C, m->qkv_bias);
    } else {
        add_linear(w, m, SF_ROLE_Q_W, "self_attn.q_proj", q, C, m->qkv_bias);
        add_linear(w, m, SF_ROLE_K_W, "self_attn.k_proj", kv, C, m->qkv_bias);
        add_linear(w, m, SF_ROLE_V_W, "self_attn.v_proj", kv, C, m->qkv_bias);
    }
    if (m->qk_norm) {
        add(w, SF_ROLE_Q_NORM, "self_attn.q_norm.weight", m->qk_norm_full ? q : m->head_dim, 0);
        add(w, SF_ROLE_K_NORM, "self_attn.k_norm.weight", m->qk_norm_full ? kv : m->head_dim, 0);
    }
    if (m->attention_sinks)
        add(w, SF_ROLE_SINKS, "self_attn.sinks", m->n_heads, 0);
    add_linear(w, m, SF_ROLE_OUT_W, "attn.out", C, q, m->out_bias);
}

static void add_dense_mlp(writer *w, const sf_transformer *m)
{
    int64_t C = m->hidden, F = m->ffn_hidden;
    if (m->fused_gate_up) {
        add_linear(w, m, SF_ROLE_GATE_UP_W, "mlp.gate_up_proj", 2 * F, C, false);
    } else {
        if (m->gated)
            add_linear(w, m, SF_ROLE_GATE_W, "mlp.gate_proj", F, C, m->mlp_bias);
        add_linear(w, m, SF_ROLE_UP_W, "mlp.up_proj", F, C, m->mlp_bias);
    }
    add_linear(w, m, SF_ROLE_DOWN_W, "mlp.down_proj", C, F, m->mlp_bias);
}

static void add_moe(writer *w, const sf_transformer *m)
{
    int64_t C = m->hidden, F = m->expert_ffn;

    add(w, SF_ROLE_ROUTER_W, "mlp.gate.weight", m->n_experts, C);
    if (m->router_bias)
        add(w, SF_ROLE_ROUTER_B, "mlp.gate.bias", m->n_experts, 0);
    /* gate, up and down of each expert */
    add_many(w, SF_ROLE_EXPERT_W, "mlp.experts.gate_up", m->n_experts * (m->gated ? 2 : 1), F, C, 0);
    add_many(w, SF_ROLE_EXPERT_W, "mlp.experts.down", m->n_experts, C, F, 0);
    if (m->expert_bias) {
        add_many(w, SF_ROLE_EXPERT_B, "mlp.experts.gate_up_bias", m->n_experts * (m->gated ? 2 : 1), F, 0, 0);
        add_many(w, SF_ROLE_EXPERT_B, "mlp.experts.down_bias", m->n_experts, C, 0, 0);
    }
    if (m->shared_ffn > 0) {
        add_many(w, SF_ROLE_SHARED_W, "mlp.shared_experts.gate_up", m->gated ? 2 : 1, m->shared_ffn, C, 0);
        add(w, SF_ROLE_SHARED_W, "mlp.shared_experts.down", C, m->shared_ffn);
    }
    if (m->shared_gate)
        add(w, SF_ROLE_SHARED_GATE, "mlp.shared_expert_gate.weight", 1, C);
}

static void add_block(writer *w, const sf_transformer *m, int layer)
{
    w->place = SF_PLACE_BLOCK;
    w->layer = layer;
    add_norm(w, m, SF_ROLE_NORM1_W, "input_layernorm", m->hidden);
    add_attention(w, m);
    if (m->norms_per_block >= 2)
        add_norm(w, m, SF_ROLE_NORM2_W, "post_attention_layernorm", m->hidden);
    if (sf_transformer_layer_is_moe(m, layer))
        add_moe(w, m);
    else
        add_dense_mlp(w, m);
    if (m->norms_per_block == 4) {
        add_norm(w, m, SF_ROLE_NORM3_W, "pre_feedforward_layernorm", m->hidden);
        add_norm(w, m, SF_ROLE_NORM4_W, "post_feedforward_layernorm", m->hidden);
    }
}

void sf_transformer_tensors(const sf_transformer *m, sf_arena *arena, sf_tensor_list *out)
{
    writer w = { .arena = arena, .list = out, .place = SF_PLACE_EMBED, .layer = -1 };

    *out = (sf_tensor_list){ 0 };
    add(&w, SF_ROLE_WTE, "embed_tokens.weight", m->vocab, m->embed_dim);
    if (m->position == SF_POS_LEARNED)
        add(&w, SF_ROLE_WPE, "embed_positions.weight", m->position_rows, m->hidden);
    if (m->embedding_norm)
        add_norm(&w, m, SF_ROLE_EMBED_NORM_W, "embedding_layernorm", m->hidden);
    if (m->embed_dim != m->hidden) { /* OPT-350m: in and out of the stack */
        add(&w, SF_ROLE_EMBED_PROJ, "project_out.weight", m->embed_dim, m->hidden);
        add(&w, SF_ROLE_EMBED_PROJ, "project_in.weight", m->hidden, m->embed_dim);
    }
    for (int l = 0; l < m->n_layers; l++)
        add_block(&w, m, l);
    w.layer = -1;
    w.place = SF_PLACE_FINAL;
    if (!m->no_final_norm)
        add_norm(&w, m, SF_ROLE_NORMF_W, "norm", m->hidden);
    w.place = SF_PLACE_HEAD;
    if (!m->tied)
        add_linear(&w, m, SF_ROLE_HEAD_W, "lm_head", m->vocab, m->embed_dim, m->head_bias);
}

static uint64_t sum(const sf_tensor_list *list, const sf_transformer *m, bool active)
{
    uint64_t total = 0;
    for (size_t i = 0; i < list->count; i++) {
        const sf_tensor *t = &list->items[i];
        uint64_t copies = (uint64_t)t->copies;
        if (active && (t->role == SF_ROLE_EXPERT_W || t->role == SF_ROLE_EXPERT_B))
            copies = copies / (uint64_t)m->n_experts * (uint64_t)m->top_k;
        total += copies * t->numel;
    }
    return total;
}

/* Blocks repeat: two layer numbers, one dense and one MoE, stand for all. */
static uint64_t count(const sf_transformer *m, bool active)
{
    sf_arena scratch = { 0 };
    sf_tensor_list list = { 0 };
    sf_transformer none = *m;
    uint64_t kinds[2] = { 0, 0 }, total;

    none.n_layers = 0;
    sf_transformer_tensors(&none, &scratch, &list);
    total = sum(&list, m, active);
    for (int l = 0; l < m->n_layers; l++) {
        int kind = sf_transformer_layer_is_moe(m, l);
        if (kinds[kind] == 0) {
            writer w = { .arena = &scratch, .list = &list };
            list = (sf_tensor_list){ 0 };
            add_block(&w, m, l);
            kinds[kind] = sum(&list, m, active);
        }
        total += kinds[kind];
    }
    sf_arena_free(&scratch);
    return total;
}

uint64_t sf_transformer_params(const sf_transformer *m)
{
    return count(m, false);
}

uint64_t sf_transformer_active_params(const sf_transformer *m)
{
    return count(m, true);
}
