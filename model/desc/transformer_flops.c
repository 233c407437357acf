#include "model/desc/transformer_flops.h"

#include "model/base/units.h"

#define AS_NAME(id, name, what) name,
static const char *const names[] = { SF_FLOP_CONVENTIONS(AS_NAME) };
#undef AS_NAME
#define AS_TEXT(id, name, what) what,
static const char *const texts[] = { SF_FLOP_CONVENTIONS(AS_TEXT) };
#undef AS_TEXT

const char *sf_flop_convention_name(sf_flop_convention convention)
{
    return names[convention];
}

const char *sf_flop_convention_text(sf_flop_convention convention)
{
    return texts[convention];
}

/* Elements of the matrices of a list that one token is multiplied with. */
static double applied(const sf_tensor_list *list, const sf_transformer *m)
{
    double elems = 0;
    for (size_t i = 0; i < list->count; i++) {
        const sf_tensor *t = &list->items[i];
        if (!sf_role_is_matrix(t->role) || t->role == SF_ROLE_WTE || t->role == SF_ROLE_WPE || t->role == SF_ROLE_HEAD_W)
            continue;
        double n = (double)t->numel * t->copies;
        elems += t->role == SF_ROLE_EXPERT_W ? n / m->n_experts * m->top_k : n;
    }
    return elems;
}

double sf_transformer_block_matmul_flop(const sf_transformer *m)
{
    sf_arena scratch = { 0 };
    sf_tensor_kinds kinds;

    sf_transformer_tensor_kinds(m, &scratch, &kinds);
    double elems = applied(&kinds.outside, m);
    for (int k = 0; k < SF_LAYER_KINDS; k++)
        elems += kinds.n_layers[k] * applied(&kinds.block[k], m);
    sf_arena_free(&scratch);
    return 2 * elems;
}

static double head_flop(const sf_transformer *m, int64_t vocab)
{
    return 2.0 * (double)m->embed_dim * (double)vocab; /* tied or not: the product is the same */
}

double sf_transformer_matmul_flop(const sf_transformer *m)
{
    return sf_transformer_block_matmul_flop(m) + head_flop(m, m->vocab);
}

/* Widths of q k^T and p v of one layer, over all heads. */
static double qk_width(const sf_transformer *m)
{
    return (double)(m->n_heads * (m->kv_lora_rank > 0 ? m->qk_nope_dim + m->qk_rope_dim : m->head_dim));
}

static double v_width(const sf_transformer *m)
{
    return (double)(m->n_heads * (m->kv_lora_rank > 0 ? m->v_dim : m->head_dim));
}

/* Mean over positions i = 0 .. s-1 of min(i + 1, window): with w < s that is w - w (w - 1) / 2s. */
static double mean_span(double s, double window)
{
    double w = window > 0 && window < s ? window : s;
    return w - w * (w - 1) / (2 * s);
}

double sf_transformer_attention_flop(const sf_transformer *m, int64_t seq_len, sf_span span)
{
    double s = (double)seq_len, positions = 0;

    for (int l = 0; l < m->n_layers; l++)
        positions += span == SF_SPAN_FULL ? s : mean_span(s, (double)sf_transformer_layer_window(m, l));
    return 2 * positions * (qk_width(m) + v_width(m));
}

static double lookups(const sf_transformer *m)
{
    double wpe = m->position == SF_POS_LEARNED ? (double)m->position_rows * (double)m->hidden : 0;
    double wte = (double)m->vocab * (double)m->embed_dim;
    return wpe + (m->tied ? 0 : wte); /* a tied table is multiplied with as the head */
}

double sf_transformer_step_flop(const sf_transformer *m, int64_t seq_len, sf_flop_convention convention)
{
    double n = (double)sf_transformer_active_params(m), s = (double)seq_len, L = m->n_layers, C = (double)m->hidden;
    double heads = (double)(m->n_heads * m->head_dim), wpe = m->position == SF_POS_LEARNED ? (double)m->position_rows * C : 0;
    double untied_table = m->tied ? 0 : (double)m->vocab * (double)m->embed_dim;

    if (m->kv_lora_rank > 0)
        heads = (qk_width(m) + v_width(m)) / 2;
    switch (convention) {
    case SF_FLOP_EXACT: return 3 * (sf_transformer_matmul_flop(m) + sf_transformer_attention_flop(m, seq_len, SF_SPAN_CAUSAL));
    case SF_FLOP_EXACT_FULL: return 3 * (sf_transformer_matmul_flop(m) + sf_transformer_attention_flop(m, seq_len, SF_SPAN_FULL));
    case SF_FLOP_PALM: return 6 * (n - lookups(m)) + 12 * L * heads * s;
    case SF_FLOP_NANOGPT: return 6 * (n - wpe) + 12 * L * heads * s;
    case SF_FLOP_LLMC: return 6 * n + 6 * L * C * s;
    case SF_FLOP_TORCHTITAN: return 6 * (n - untied_table) + 6 * L * (qk_width(m) + v_width(m)) * s;
    case SF_FLOP_LLM_FOUNDRY: return 6 * n + 12 * L * C * s;
    case SF_FLOP_MEGATRON:
        return 3 * (sf_transformer_block_matmul_flop(m) + head_flop(m, (int64_t)sf_round_up((uint64_t)m->vocab, 128))) + 6 * L * qk_width(m) * s;
    case SF_FLOP_MEGATRON_2021: return 72 * L * C * C * (1 + s / (6 * C) + (double)m->vocab / (12 * L * C));
    default: return 6 * n; /* SF_FLOP_SIX_N */
    }
}
