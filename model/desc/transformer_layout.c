#include "model/desc/transformer_layout.h"

#define ITEMS(...) ((const sf_layout_item[]){ __VA_ARGS__, { SF_ROLE_COUNT, NULL, SF_PART_ONLY } })
#define M(role, module) { SF_ROLE_##role, module, SF_PART_ONLY }
#define P(role, part, module) { SF_ROLE_##role, module, SF_PART_##part }

/* q, k and v of multi-head latent attention come in place of q_proj, k_proj, v_proj. */
#define LLAMA_QKV                                                                                  \
    M(SINKS, "=self_attn.sinks"), M(Q_DOWN, "self_attn.q_a_proj"), M(Q_DOWN_NORM, "self_attn.q_a_layernorm"),                   \
    P(Q_W, UP, "self_attn.q_b_proj"), M(Q_W, "self_attn.q_proj"), M(KV_DOWN, "self_attn.kv_a_proj_with_mqa"),                    \
    M(KV_DOWN_NORM, "self_attn.kv_a_layernorm"), M(KV_UP, "self_attn.kv_b_proj"), M(K_W, "self_attn.k_proj"), M(V_W, "self_attn.v_proj")
#define LLAMA_ATTENTION                                                                            \
    LLAMA_QKV, M(QKV_W, "self_attn.qkv_proj"), M(OUT_W, "self_attn.o_proj"), M(Q_NORM, "self_attn.q_norm"), M(K_NORM, "self_attn.k_norm")
#define LLAMA_MLP M(GATE_W, "mlp.gate_proj"), M(GATE_UP_W, "mlp.gate_up_proj"), M(UP_W, "mlp.up_proj"), M(DOWN_W, "mlp.down_proj")
#define LLAMA_NORMS M(NORM1_W, "input_layernorm"), M(NORM2_W, "post_attention_layernorm")
#define GATE_UP_DOWN_EXPERTS                                                                       \
    P(EXPERT_W, GATE, "mlp.experts.*.gate_proj"), P(EXPERT_W, UP, "mlp.experts.*.up_proj"), P(EXPERT_W, DOWN, "mlp.experts.*.down_proj")
#define SHARED_EXPERTS(name)                                                                       \
    P(SHARED_W, GATE, "mlp." name ".gate_proj"), P(SHARED_W, UP, "mlp." name ".up_proj"), P(SHARED_W, DOWN, "mlp." name ".down_proj")
#define LLAMA_OUTSIDE                                                                              \
    .prefix = "model.", .layers = "layers.", .embed = ITEMS(M(WTE, "embed_tokens"), M(WPE, "embed_positions")),                 \
    .final = ITEMS(M(NORMF_W, "norm")), .head = "lm_head"

const sf_layout sf_layout_llama = { LLAMA_OUTSIDE, .block = ITEMS(LLAMA_ATTENTION, LLAMA_MLP, M(ROUTER_W, "mlp.gate"),
    GATE_UP_DOWN_EXPERTS, SHARED_EXPERTS("shared_experts"), M(SHARED_GATE, "mlp.shared_expert_gate"), LLAMA_NORMS,
    M(NORM3_W, "pre_feedforward_layernorm"), M(NORM4_W, "post_feedforward_layernorm")) };

const sf_layout sf_layout_mixtral = { LLAMA_OUTSIDE, .block = ITEMS(LLAMA_ATTENTION, M(ROUTER_W, "block_sparse_moe.gate"),
    P(EXPERT_W, GATE, "block_sparse_moe.experts.*.w1"), P(EXPERT_W, DOWN, "block_sparse_moe.experts.*.w2"),
    P(EXPERT_W, UP, "block_sparse_moe.experts.*.w3"), LLAMA_NORMS) };

const sf_layout sf_layout_qwen_moe = { LLAMA_OUTSIDE, .block = ITEMS(LLAMA_ATTENTION, LLAMA_MLP, M(ROUTER_W, "mlp.gate"),
    GATE_UP_DOWN_EXPERTS, SHARED_EXPERTS("shared_expert"), M(SHARED_GATE, "mlp.shared_expert_gate"), LLAMA_NORMS) };

const sf_layout sf_layout_deepseek = { LLAMA_OUTSIDE, .block = ITEMS(LLAMA_ATTENTION, LLAMA_MLP, GATE_UP_DOWN_EXPERTS,
    M(ROUTER_W, "mlp.gate"), { SF_ROLE_ROUTER_B, "=mlp.gate.e_score_correction_bias", SF_PART_ONLY }, SHARED_EXPERTS("shared_experts"),
    LLAMA_NORMS) };

const sf_layout sf_layout_ernie_moe = { LLAMA_OUTSIDE, .block = ITEMS(LLAMA_ATTENTION, LLAMA_MLP, M(ROUTER_W, "mlp.gate"),
    { SF_ROLE_ROUTER_B, "=mlp.moe_statics.e_score_correction_bias", SF_PART_ONLY }, GATE_UP_DOWN_EXPERTS, SHARED_EXPERTS("shared_experts"),
    LLAMA_NORMS) };

const sf_layout sf_layout_gpt_oss = { LLAMA_OUTSIDE, .block = ITEMS(LLAMA_ATTENTION, M(ROUTER_W, "mlp.router"),
    P(EXPERT_W, GATE_UP, "=mlp.experts.gate_up_proj"), P(EXPERT_B, GATE_UP, "=mlp.experts.gate_up_proj_bias"),
    P(EXPERT_W, DOWN, "=mlp.experts.down_proj"), P(EXPERT_B, DOWN, "=mlp.experts.down_proj_bias"), LLAMA_NORMS) };

const sf_layout sf_layout_llama4 = { LLAMA_OUTSIDE, .block = ITEMS(LLAMA_QKV, M(OUT_W, "self_attn.o_proj"), M(GATE_W, "feed_forward.gate_proj"),
    M(UP_W, "feed_forward.up_proj"), M(DOWN_W, "feed_forward.down_proj"), P(EXPERT_W, GATE_UP, "=feed_forward.experts.gate_up_proj"),
    P(EXPERT_W, DOWN, "=feed_forward.experts.down_proj"), M(ROUTER_W, "feed_forward.router"), P(SHARED_W, GATE, "feed_forward.shared_expert.gate_proj"),
    P(SHARED_W, UP, "feed_forward.shared_expert.up_proj"), P(SHARED_W, DOWN, "feed_forward.shared_expert.down_proj"), LLAMA_NORMS) };

const sf_layout sf_layout_granite_moe = { LLAMA_OUTSIDE, .block = ITEMS(LLAMA_ATTENTION, LLAMA_NORMS,
    P(EXPERT_W, GATE_UP, "block_sparse_moe.input_linear"), P(EXPERT_W, DOWN, "block_sparse_moe.output_linear"),
    M(ROUTER_W, "block_sparse_moe.router.layer"), P(SHARED_W, GATE_UP, "shared_mlp.input_linear"), P(SHARED_W, DOWN, "shared_mlp.output_linear")) };

const sf_layout sf_layout_phi3 = { LLAMA_OUTSIDE, .block = ITEMS(M(OUT_W, "self_attn.o_proj"), M(QKV_W, "self_attn.qkv_proj"), LLAMA_MLP, LLAMA_NORMS) };

const sf_layout sf_layout_gemma2 = { LLAMA_OUTSIDE, .block = ITEMS(LLAMA_ATTENTION, LLAMA_MLP, LLAMA_NORMS,
    M(NORM3_W, "pre_feedforward_layernorm"), M(NORM4_W, "post_feedforward_layernorm")) };

const sf_layout sf_layout_glm4 = { LLAMA_OUTSIDE, .block = ITEMS(LLAMA_ATTENTION, LLAMA_MLP, LLAMA_NORMS,
    M(NORM3_W, "post_self_attn_layernorm"), M(NORM4_W, "post_mlp_layernorm")) };

/* norms of what attention and MLP give, none of what they read */
const sf_layout sf_layout_olmo2 = { LLAMA_OUTSIDE, .block = ITEMS(LLAMA_ATTENTION, LLAMA_MLP, M(ROUTER_W, "mlp.gate"), GATE_UP_DOWN_EXPERTS,
    M(NORM1_W, "post_attention_layernorm"), M(NORM2_W, "post_feedforward_layernorm")) };

const sf_layout sf_layout_apertus = { LLAMA_OUTSIDE, .block = ITEMS(LLAMA_ATTENTION, LLAMA_MLP, P(ACT_PARAM, UP, "=mlp.act_fn.alpha_p"),
    P(ACT_PARAM, DOWN, "=mlp.act_fn.alpha_n"), M(NORM1_W, "attention_layernorm"), M(NORM2_W, "feedforward_layernorm")) };

const sf_layout sf_layout_starcoder2 = { LLAMA_OUTSIDE, .block = ITEMS(LLAMA_ATTENTION, M(UP_W, "mlp.c_fc"), M(DOWN_W, "mlp.c_proj"), LLAMA_NORMS) };

const sf_layout sf_layout_phi = { .prefix = "model.", .layers = "layers.", .embed = ITEMS(M(WTE, "embed_tokens")),
    .block = ITEMS(M(Q_W, "self_attn.q_proj"), M(K_W, "self_attn.k_proj"), M(V_W, "self_attn.v_proj"), M(OUT_W, "self_attn.dense"),
    M(Q_NORM, "self_attn.q_layernorm"), M(K_NORM, "self_attn.k_layernorm"), M(UP_W, "mlp.fc1"), M(DOWN_W, "mlp.fc2"), M(NORM1_W, "input_layernorm")),
    .final = ITEMS(M(NORMF_W, "final_layernorm")), .head = "lm_head" };

const sf_layout sf_layout_persimmon = { .prefix = "model.", .layers = "layers.", .embed = ITEMS(M(WTE, "embed_tokens")),
    .block = ITEMS(M(QKV_W, "self_attn.query_key_value"), M(OUT_W, "self_attn.dense"), M(Q_NORM, "self_attn.q_layernorm"),
    M(K_NORM, "self_attn.k_layernorm"), M(UP_W, "mlp.dense_h_to_4h"), M(DOWN_W, "mlp.dense_4h_to_h"), LLAMA_NORMS),
    .final = ITEMS(M(NORMF_W, "final_layernorm")), .head = "lm_head" };

const sf_layout sf_layout_internlm2 = { .prefix = "model.", .layers = "layers.", .embed = ITEMS(M(WTE, "tok_embeddings")),
    .block = ITEMS(M(QKV_W, "attention.wqkv"), M(OUT_W, "attention.wo"), M(GATE_W, "feed_forward.w1"), M(UP_W, "feed_forward.w3"),
    M(DOWN_W, "feed_forward.w2"), M(NORM1_W, "attention_norm"), M(NORM2_W, "ffn_norm")),
    .final = ITEMS(M(NORMF_W, "norm")), .head = "output" };

const sf_layout sf_layout_baichuan = { LLAMA_OUTSIDE, .block = ITEMS(M(QKV_W, "self_attn.W_pack"), M(OUT_W, "self_attn.o_proj"),
    M(GATE_W, "mlp.gate_proj"), M(DOWN_W, "mlp.down_proj"), M(UP_W, "mlp.up_proj"), LLAMA_NORMS) };

const sf_layout sf_layout_chatglm = { .prefix = "transformer.", .layers = "encoder.layers.", .embed = ITEMS(M(WTE, "embedding.word_embeddings")),
    .block = ITEMS(M(NORM1_W, "input_layernorm"), M(QKV_W, "self_attention.query_key_value"), M(OUT_W, "self_attention.dense"),
    M(NORM2_W, "post_attention_layernorm"), M(GATE_UP_W, "mlp.dense_h_to_4h"), M(DOWN_W, "mlp.dense_4h_to_h")),
    .final = ITEMS(M(NORMF_W, "encoder.final_layernorm")), .head = "transformer.output_layer" };

const sf_layout sf_layout_exaone = { .prefix = "transformer.", .layers = "h.", .embed = ITEMS(M(WTE, "wte")),
    .block = ITEMS(M(NORM1_W, "ln_1"), M(Q_W, "attn.attention.q_proj"), M(K_W, "attn.attention.k_proj"), M(V_W, "attn.attention.v_proj"),
    M(OUT_W, "attn.attention.out_proj"), M(NORM2_W, "ln_2"), M(GATE_W, "mlp.c_fc_0"), M(UP_W, "mlp.c_fc_1"), M(DOWN_W, "mlp.c_proj")),
    .final = ITEMS(M(NORMF_W, "ln_f")), .head = "lm_head" };

#define GPT2_OUTSIDE                                                                               \
    .prefix = "transformer.", .layers = "h.", .embed = ITEMS(M(WTE, "wte"), M(WPE, "wpe")), .final = ITEMS(M(NORMF_W, "ln_f")), .head = "lm_head"
#define GPT2_MLP M(UP_W, "mlp.c_fc"), M(DOWN_W, "mlp.c_proj")

const sf_layout sf_layout_gpt2 = { GPT2_OUTSIDE, .block = ITEMS(M(NORM1_W, "ln_1"), M(QKV_W, "attn.c_attn"), M(OUT_W, "attn.c_proj"),
    M(NORM2_W, "ln_2"), GPT2_MLP) };

const sf_layout sf_layout_gpt1 = { .prefix = "transformer.", .layers = "h.", .embed = ITEMS(M(WTE, "tokens_embed"), M(WPE, "positions_embed")),
    .block = ITEMS(M(QKV_W, "attn.c_attn"), M(OUT_W, "attn.c_proj"), M(NORM1_W, "ln_1"), GPT2_MLP, M(NORM2_W, "ln_2")),
    .final = ITEMS(M(NORMF_W, "ln_f")), .head = "lm_head" };

const sf_layout sf_layout_gpt_neo = { GPT2_OUTSIDE, .block = ITEMS(M(NORM1_W, "ln_1"), M(K_W, "attn.attention.k_proj"),
    M(V_W, "attn.attention.v_proj"), M(Q_W, "attn.attention.q_proj"), M(OUT_W, "attn.attention.out_proj"), M(NORM2_W, "ln_2"), GPT2_MLP) };

const sf_layout sf_layout_gptj = { GPT2_OUTSIDE, .block = ITEMS(M(NORM1_W, "ln_1"), M(K_W, "attn.k_proj"), M(V_W, "attn.v_proj"),
    M(Q_W, "attn.q_proj"), M(OUT_W, "attn.out_proj"), M(UP_W, "mlp.fc_in"), M(DOWN_W, "mlp.fc_out")) };

const sf_layout sf_layout_codegen = { GPT2_OUTSIDE, .block = ITEMS(M(NORM1_W, "ln_1"), M(OUT_W, "attn.out_proj"), M(QKV_W, "attn.qkv_proj"),
    M(UP_W, "mlp.fc_in"), M(DOWN_W, "mlp.fc_out")) };

const sf_layout sf_layout_qwen1 = { GPT2_OUTSIDE, .block = ITEMS(M(NORM1_W, "ln_1"), M(QKV_W, "attn.c_attn"), M(OUT_W, "attn.c_proj"),
    M(NORM2_W, "ln_2"), M(UP_W, "mlp.w1"), M(GATE_W, "mlp.w2"), M(DOWN_W, "mlp.c_proj")) };

const sf_layout sf_layout_gpt_neox = { .prefix = "gpt_neox.", .layers = "layers.", .embed = ITEMS(M(WTE, "embed_in")),
    .block = ITEMS(LLAMA_NORMS, M(QKV_W, "attention.query_key_value"), M(OUT_W, "attention.dense"), M(UP_W, "mlp.dense_h_to_4h"),
    M(DOWN_W, "mlp.dense_4h_to_h")), .final = ITEMS(M(NORMF_W, "final_layer_norm")), .head = "embed_out" };

const sf_layout sf_layout_bloom = { .prefix = "transformer.", .layers = "h.", .embed = ITEMS(M(WTE, "word_embeddings"),
    M(EMBED_NORM_W, "word_embeddings_layernorm")), .block = ITEMS(M(NORM1_W, "input_layernorm"), M(QKV_W, "self_attention.query_key_value"),
    M(OUT_W, "self_attention.dense"), M(NORM2_W, "post_attention_layernorm"), M(UP_W, "mlp.dense_h_to_4h"), M(DOWN_W, "mlp.dense_4h_to_h")),
    .final = ITEMS(M(NORMF_W, "ln_f")), .head = "lm_head" };

#define FALCON(...)                                                                                \
    { .prefix = "transformer.", .layers = "h.", .embed = ITEMS(M(WTE, "word_embeddings")),                                       \
      .block = ITEMS(M(QKV_W, "self_attention.query_key_value"), M(OUT_W, "self_attention.dense"), M(UP_W, "mlp.dense_h_to_4h"), \
                     M(DOWN_W, "mlp.dense_4h_to_h"), __VA_ARGS__),                                                               \
      .final = ITEMS(M(NORMF_W, "ln_f")), .head = "lm_head" }
const sf_layout sf_layout_falcon = FALCON(M(NORM2_W, "post_attention_layernorm"), M(NORM1_W, "input_layernorm"));
const sf_layout sf_layout_falcon_two_norms = FALCON(M(NORM1_W, "ln_attn"), M(NORM2_W, "ln_mlp"));

const sf_layout sf_layout_mpt = { .prefix = "transformer.", .layers = "blocks.", .embed = ITEMS(M(WTE, "wte"), M(WPE, "wpe")),
    .block = ITEMS(M(NORM1_W, "norm_1"), M(QKV_W, "attn.Wqkv"), M(Q_NORM, "attn.q_ln"), M(K_NORM, "attn.k_ln"), M(OUT_W, "attn.out_proj"), M(NORM2_W, "norm_2"),
    M(GATE_W, "ffn.gate_proj"), M(UP_W, "ffn.up_proj"), M(DOWN_W, "ffn.down_proj")), .final = ITEMS(M(NORMF_W, "norm_f")), .head = "lm_head" };

const sf_layout sf_layout_dbrx = { .prefix = "transformer.", .layers = "blocks.", .embed = ITEMS(M(WTE, "wte")),
    .block = ITEMS(M(NORM1_W, "norm_attn_norm.norm_1"), M(QKV_W, "norm_attn_norm.attn.Wqkv"), M(OUT_W, "norm_attn_norm.attn.out_proj"),
    M(NORM2_W, "norm_attn_norm.norm_2"), M(ROUTER_W, "ffn.router.layer"), P(EXPERT_W, GATE, "=ffn.experts.mlp.w1"), P(EXPERT_W, UP, "=ffn.experts.mlp.v1"),
    P(EXPERT_W, DOWN, "=ffn.experts.mlp.w2")), .final = ITEMS(M(NORMF_W, "norm_f")), .head = "lm_head" };

const sf_layout sf_layout_opt = { .prefix = "model.decoder.", .layers = "layers.", .embed = ITEMS(M(WTE, "embed_tokens"), M(WPE, "embed_positions"),
    P(EMBED_PROJ, OUT, "project_out"), P(EMBED_PROJ, IN, "project_in")), .block = ITEMS(M(K_W, "self_attn.k_proj"), M(V_W, "self_attn.v_proj"),
    M(Q_W, "self_attn.q_proj"), M(OUT_W, "self_attn.out_proj"), M(NORM1_W, "self_attn_layer_norm"), M(UP_W, "fc1"), M(DOWN_W, "fc2"),
    M(NORM2_W, "final_layer_norm")), .final = ITEMS(M(NORMF_W, "final_layer_norm")), .head = "lm_head", .final_first = true };
