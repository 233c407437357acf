#include "model/desc/transformer.h"

#include "model/desc/transformer_layout.h"

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

static int kind_of(const sf_transformer *m, int layer)
{
    if (m->layer_kinds != NULL)
        return m->layer_kinds[layer];
    return (m->n_experts > 0 && layer >= m->first_dense_layers ? SF_LAYER_MOE : 0) | (m->sliding_window > 0 ? SF_LAYER_WINDOWED : 0);
}

bool sf_transformer_layer_is_moe(const sf_transformer *m, int layer)
{
    return (kind_of(m, layer) & SF_LAYER_MOE) != 0;
}

int64_t sf_transformer_layer_window(const sf_transformer *m, int layer)
{
    return (kind_of(m, layer) & SF_LAYER_WINDOWED) != 0 ? m->sliding_window : 0;
}

/* ---- shapes: the one definition of what each tensor holds ---- */

typedef struct {
    int64_t d[3]; /* 0 from the first that is absent; d[0] 0: the model has no such tensor */
    int copies;
    bool linear;  /* a weight (out, in), stored the other way round where m->transposed     */
} shape;

static shape vector(bool there, int64_t n)
{
    return (shape){ { there ? n : 0, 0, 0 }, 1, false };
}

static shape linear(bool there, int64_t out, int64_t in)
{
    return (shape){ { there ? out : 0, in, 0 }, 1, true };
}

static shape experts(const sf_transformer *m, sf_part part, bool bias)
{
    int64_t C = m->hidden, F = m->expert_ffn, E = m->n_experts;
    if (part == SF_PART_GATE_UP) {
        int64_t out = m->gated ? 2 * F : F;
        return bias ? (shape){ { E, out, 0 }, 1, false } : (shape){ { E, C, out }, 1, false };
    }
    if (part == SF_PART_DOWN && m->fused_experts)
        return bias ? (shape){ { E, C, 0 }, 1, false } : (shape){ { E, F, C }, 1, false };
    bool there = part != SF_PART_GATE || m->gated;
    int64_t out = part == SF_PART_DOWN ? C : F, in = part == SF_PART_DOWN ? F : C;
    if (m->fused_experts) /* DBRX: one matrix of E * F rows for each of w1, v1, w2 */
        return linear(there, E * F, C);
    return (shape){ { there ? out : 0, bias ? 0 : in, 0 }, (int)E, false };
}

static shape shared(const sf_transformer *m, sf_part part)
{
    int64_t C = m->hidden, F = m->shared_ffn;
    switch (part) {
    case SF_PART_GATE: return linear(F > 0 && m->gated, F, C);
    case SF_PART_GATE_UP: return linear(F > 0, m->gated ? 2 * F : F, C);
    case SF_PART_DOWN: return linear(F > 0, C, F);
    default: return linear(F > 0, F, C);
    }
}

static shape attention_shape(const sf_transformer *m, sf_role role, sf_part part)
{
    int64_t C = m->hidden, q = m->n_heads * m->head_dim, kv = m->n_kv_heads * m->head_dim, qk = m->qk_nope_dim + m->qk_rope_dim;
    bool mla = m->kv_lora_rank > 0, apart = !mla && !m->fused_qkv;

    switch (role) {
    case SF_ROLE_QKV_W: return linear(!mla && m->fused_qkv, q + 2 * kv, C);
    case SF_ROLE_QKV_B: return vector(!mla && m->fused_qkv && m->qkv_bias, q + 2 * kv);
    case SF_ROLE_Q_W:
        if (mla && part == SF_PART_UP)
            return linear(m->q_lora_rank > 0, m->n_heads * qk, m->q_lora_rank);
        return mla ? linear(part == SF_PART_ONLY && m->q_lora_rank == 0, m->n_heads * qk, C) : linear(apart && part == SF_PART_ONLY, q, C);
    case SF_ROLE_Q_B: return vector(apart && part == SF_PART_ONLY && m->qkv_bias, q);
    case SF_ROLE_K_W:
    case SF_ROLE_V_W: return linear(apart, kv, C);
    case SF_ROLE_K_B:
    case SF_ROLE_V_B: return vector(apart && m->qkv_bias, kv);
    case SF_ROLE_Q_DOWN: return linear(mla && m->q_lora_rank > 0, m->q_lora_rank, C);
    case SF_ROLE_Q_DOWN_NORM: return vector(mla && m->q_lora_rank > 0, m->q_lora_rank);
    case SF_ROLE_KV_DOWN: return linear(mla, m->kv_lora_rank + m->qk_rope_dim, C);
    case SF_ROLE_KV_DOWN_NORM: return vector(mla, m->kv_lora_rank);
    case SF_ROLE_KV_UP: return linear(mla, m->n_heads * (m->qk_nope_dim + m->v_dim), m->kv_lora_rank);
    case SF_ROLE_Q_NORM: return vector(m->qk_norm, m->qk_norm_full ? q : m->head_dim);
    case SF_ROLE_Q_NORM_B: return vector(m->qk_norm && m->qk_norm_bias, m->qk_norm_full ? q : m->head_dim);
    case SF_ROLE_K_NORM: return vector(m->qk_norm, m->qk_norm_full ? kv : m->head_dim);
    case SF_ROLE_K_NORM_B: return vector(m->qk_norm && m->qk_norm_bias, m->qk_norm_full ? kv : m->head_dim);
    case SF_ROLE_SINKS: return vector(m->attention_sinks, m->n_heads);
    case SF_ROLE_OUT_W: return linear(true, C, mla ? m->n_heads * m->v_dim : q);
    default: return vector(m->out_bias, C); /* SF_ROLE_OUT_B */
    }
}

static shape shape_of(const sf_transformer *m, bool moe, sf_role role, sf_part part)
{
    int64_t C = m->hidden, F = m->ffn_hidden;
    bool norm = m->norm != SF_NORM_PLAIN, bias = norm && m->norm_bias, dense = !moe;

    switch (role) {
    case SF_ROLE_WTE: return (shape){ { m->vocab, m->embed_dim, 0 }, 1, false };
    case SF_ROLE_WPE: return (shape){ { m->position == SF_POS_LEARNED ? m->position_rows : 0, C, 0 }, 1, false };
    case SF_ROLE_EMBED_NORM_W: return vector(norm && m->embedding_norm, C);
    case SF_ROLE_EMBED_NORM_B: return vector(bias && m->embedding_norm, C);
    case SF_ROLE_EMBED_PROJ: /* OPT-350m: in and out of the stack */
        return linear(m->embed_dim != C, part == SF_PART_OUT ? m->embed_dim : C, part == SF_PART_OUT ? C : m->embed_dim);
    case SF_ROLE_NORM1_W: return vector(norm, C);
    case SF_ROLE_NORM1_B: return vector(bias, C);
    case SF_ROLE_NORM2_W: return vector(norm && m->norms_per_block >= 2, C);
    case SF_ROLE_NORM2_B: return vector(bias && m->norms_per_block >= 2, C);
    case SF_ROLE_NORM3_W:
    case SF_ROLE_NORM4_W: return vector(norm && m->norms_per_block == 4, C);
    case SF_ROLE_GATE_W: return linear(dense && m->gated && !m->fused_gate_up, F, C);
    case SF_ROLE_GATE_B: return vector(dense && m->gated && !m->fused_gate_up && m->mlp_bias, F);
    case SF_ROLE_UP_W: return linear(dense && !m->fused_gate_up, F, C);
    case SF_ROLE_UP_B: return vector(dense && !m->fused_gate_up && m->mlp_bias, F);
    case SF_ROLE_GATE_UP_W: return linear(dense && m->fused_gate_up, 2 * F, C);
    case SF_ROLE_DOWN_W: return linear(dense, C, F);
    case SF_ROLE_DOWN_B: return vector(dense && m->mlp_bias, C);
    case SF_ROLE_ACT_PARAM: return vector(dense && m->activation == SF_ACTIVATION_XIELU, 1);
    case SF_ROLE_ROUTER_W: return linear(moe, m->n_experts, C);
    case SF_ROLE_ROUTER_B: return vector(moe && m->router_bias, m->n_experts);
    case SF_ROLE_EXPERT_W: return moe ? experts(m, part, false) : vector(false, 0);
    case SF_ROLE_EXPERT_B: return moe && m->expert_bias ? experts(m, part, true) : vector(false, 0);
    case SF_ROLE_SHARED_W: return moe ? shared(m, part) : vector(false, 0);
    case SF_ROLE_SHARED_GATE: return linear(moe && m->shared_gate, 1, C);
    case SF_ROLE_NORMF_W: return vector(norm && !m->no_final_norm, C);
    case SF_ROLE_NORMF_B: return vector(bias && !m->no_final_norm, C);
    case SF_ROLE_HEAD_W: return (shape){ { m->tied ? 0 : m->vocab, m->embed_dim, 0 }, 1, false };
    case SF_ROLE_HEAD_B: return vector(!m->tied && m->head_bias, m->vocab);
    default: return attention_shape(m, role, part);
    }
}

/* The bias that goes with a weight; SF_ROLE_COUNT: none. In SF_ROLES it comes right after it. */
static sf_role bias_of(sf_role weight)
{
    switch (weight) {
    case SF_ROLE_EMBED_NORM_W: case SF_ROLE_NORM1_W: case SF_ROLE_NORM2_W: case SF_ROLE_NORMF_W: case SF_ROLE_QKV_W: case SF_ROLE_Q_W:
    case SF_ROLE_K_W: case SF_ROLE_V_W: case SF_ROLE_Q_NORM: case SF_ROLE_K_NORM: case SF_ROLE_OUT_W: case SF_ROLE_GATE_W: case SF_ROLE_UP_W:
    case SF_ROLE_DOWN_W: case SF_ROLE_ROUTER_W: case SF_ROLE_HEAD_W:
        return (sf_role)(weight + 1);
    default:
        return SF_ROLE_COUNT;
    }
}

/* ---- the tensor list ---- */

typedef struct {
    sf_arena *arena;
    const sf_transformer *m;
    sf_tensor_list *list;
    sf_place_of_tensor place;
    int layer;
    const char *prefix;
} writer;

static void add(writer *w, sf_role role, sf_part part, const char *module, const char *suffix)
{
    const sf_transformer *m = w->m;
    shape s = shape_of(m, w->layer >= 0 && sf_transformer_layer_is_moe(m, w->layer), role, part);

    if (s.d[0] <= 0)
        return;
    if (s.linear && m->transposed) {
        int64_t out = s.d[0];
        s.d[0] = s.d[1];
        s.d[1] = out;
    }
    sf_tensor t = { .role = role, .place = w->place, .layer = w->layer, .copies = s.copies,
                    .shape = { (uint64_t)s.d[0], (uint64_t)s.d[1], (uint64_t)s.d[2] } };
    t.ndim = s.d[1] <= 0 ? 1 : s.d[2] <= 0 ? 2 : 3;
    t.numel = t.shape[0] * (t.ndim > 1 ? t.shape[1] : 1) * (t.ndim > 2 ? t.shape[2] : 1);
    t.name = w->layer < 0 ? sf_arena_printf(w->arena, "%s%s%s", w->prefix, module, suffix)
                          : sf_arena_printf(w->arena, "%s%s%d.%s%s", w->prefix, m->layout->layers, w->layer, module, suffix);
    SF_PUSH(w->arena, w->list->items, w->list->count, w->list->cap) = t;
}

static void add_items(writer *w, const sf_layout_item *items)
{
    for (; items->module != NULL; items++) {
        if (items->module[0] == '=') { /* the parameter's own name */
            add(w, items->role, items->part, items->module + 1, "");
            continue;
        }
        add(w, items->role, items->part, items->module, ".weight");
        sf_role bias = bias_of(items->role);
        bool stated_apart = bias == SF_ROLE_ROUTER_B && !w->m->expert_bias; /* DeepSeek's correction has a name of its own */
        if (bias != SF_ROLE_COUNT && !stated_apart)
            add(w, bias, items->part, items->module, ".bias");
    }
}

static void add_outside(writer *w, sf_place_of_tensor place, const sf_layout_item *items)
{
    w->layer = -1;
    w->place = place;
    add_items(w, items);
}

static void add_head(writer *w)
{
    const sf_layout_item head[] = { { SF_ROLE_HEAD_W, w->m->layout->head, SF_PART_ONLY }, { SF_ROLE_COUNT, NULL, SF_PART_ONLY } };
    w->prefix = ""; /* the head is no part of the base model */
    add_outside(w, SF_PLACE_HEAD, head);
}

static void add_block(writer *w, int layer)
{
    w->place = SF_PLACE_BLOCK;
    w->layer = layer;
    add_items(w, w->m->layout->block);
}

void sf_transformer_tensors(const sf_transformer *m, sf_arena *arena, sf_tensor_list *out)
{
    const sf_layout *layout = m->layout;
    writer w = { .arena = arena, .m = m, .list = out, .prefix = layout->prefix };

    *out = (sf_tensor_list){ 0 };
    add_outside(&w, SF_PLACE_EMBED, layout->embed);
    if (layout->final_first)
        add_outside(&w, SF_PLACE_FINAL, layout->final);
    for (int l = 0; l < m->n_layers; l++)
        add_block(&w, l);
    if (!layout->final_first)
        add_outside(&w, SF_PLACE_FINAL, layout->final);
    add_head(&w);
}

void sf_transformer_tensor_kinds(const sf_transformer *m, sf_arena *arena, sf_tensor_kinds *out)
{
    sf_transformer none = *m;

    *out = (sf_tensor_kinds){ 0 };
    none.n_layers = 0;
    sf_transformer_tensors(&none, arena, &out->outside);
    for (int l = 0; l < m->n_layers; l++) {
        int kind = kind_of(m, l);
        if (out->n_layers[kind]++ == 0) {
            writer w = { .arena = arena, .m = m, .list = &out->block[kind], .prefix = m->layout->prefix };
            add_block(&w, l);
        }
    }
}

/* ---- counts ---- */

static uint64_t sum(const sf_tensor_list *list, const sf_transformer *m, bool active)
{
    uint64_t total = 0;
    for (size_t i = 0; i < list->count; i++) {
        const sf_tensor *t = &list->items[i];
        uint64_t elems = (uint64_t)t->copies * t->numel;
        if (active && (t->role == SF_ROLE_EXPERT_W || t->role == SF_ROLE_EXPERT_B))
            elems = elems / (uint64_t)m->n_experts * (uint64_t)m->top_k;
        total += elems;
    }
    return total;
}

static uint64_t count(const sf_transformer *m, bool active)
{
    sf_arena scratch = { 0 };
    sf_tensor_kinds kinds;

    sf_transformer_tensor_kinds(m, &scratch, &kinds);
    uint64_t total = sum(&kinds.outside, m, active);
    for (int k = 0; k < SF_LAYER_KINDS; k++)
        total += (uint64_t)kinds.n_layers[k] * sum(&kinds.block[k], m, active);
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
