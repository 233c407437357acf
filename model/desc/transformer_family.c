#include "model/desc/transformer_family.h"

#include <string.h>

#define ROTARY SF_POS_ROTARY
#define LAYERNORM .norm = SF_NORM_LAYERNORM
#define RMSNORM .norm = SF_NORM_RMSNORM
#define BIASES .qkv_bias = true, .out_bias = true, .mlp_bias = true, .norm_bias = true
#define SWIGLU .act = "silu", .gated = true
#define GEGLU .act = "gelu_pytorch_tanh", .gated = true

/* PretrainedConfig's own default of tie_word_embeddings is true: a family whose class says nothing is tied. */
static const sf_family families[] = {
    { "gpt2 gpt-sw3", &sf_layout_gpt2, SF_SPECIAL_GPT2, SF_POS_LEARNED, LAYERNORM, .act = "gelu_new", .tied = true, BIASES, .fused_qkv = true,
      .norms = 2, .max_positions = 1024 },
    { "openai-gpt", &sf_layout_gpt1, SF_SPECIAL_GPT2, SF_POS_LEARNED, LAYERNORM, .act = "gelu_new", .tied = true, BIASES, .fused_qkv = true,
      .norms = 2, .max_positions = 512 },
    { "gpt_bigcode", &sf_layout_gpt2, SF_SPECIAL_BIGCODE, SF_POS_LEARNED, LAYERNORM, .act = "gelu_pytorch_tanh", .tied = true, BIASES,
      .fused_qkv = true, .norms = 2, .max_positions = 1024 },
    { "gptj", &sf_layout_gptj, 0, ROTARY, LAYERNORM, .act = "gelu_new", .mlp_bias = true, .norm_bias = true, .head_bias = true, .parallel = true,
      .norms = 1, .max_positions = 2048 },
    { "codegen", &sf_layout_codegen, 0, ROTARY, LAYERNORM, .act = "gelu_new", .mlp_bias = true, .norm_bias = true, .head_bias = true, .fused_qkv = true,
      .parallel = true, .norms = 1, .max_positions = 2048 },
    { "gpt_neo", &sf_layout_gpt_neo, SF_SPECIAL_GPT_NEO, SF_POS_LEARNED, LAYERNORM, .act = "gelu_new", .tied = true, .out_bias = true, .mlp_bias = true,
      .norm_bias = true, .norms = 2, .max_positions = 2048 },
    { "gpt_neox", &sf_layout_gpt_neox, 0, ROTARY, LAYERNORM, .act = "gelu", BIASES, .fused_qkv = true, .parallel = true, .norms = 2,
      .max_positions = 2048 },
    { "opt", &sf_layout_opt, SF_SPECIAL_OPT, SF_POS_LEARNED, LAYERNORM, .act = "relu", .tied = true, BIASES, .norms = 2, .max_positions = 2048 },
    { "bloom", &sf_layout_bloom, SF_SPECIAL_BLOOM, SF_POS_ALIBI, LAYERNORM, .act = "gelu_tanh", .tied = true, BIASES, .fused_qkv = true, .norms = 2,
      .max_positions = 2048 },
    { "falcon RefinedWeb RefinedWebModel", &sf_layout_falcon, SF_SPECIAL_FALCON, ROTARY, LAYERNORM, .act = "gelu", .tied = true, .norm_bias = true,
      .fused_qkv = true, .parallel = true, .norms = 1, .max_positions = 2048 },
    { "mpt", &sf_layout_mpt, SF_SPECIAL_MPT, SF_POS_ALIBI, LAYERNORM, .act = "gelu", .tied = true, .fused_qkv = true, .norms = 2, .max_positions = 2048 },
    { "dbrx", &sf_layout_dbrx, SF_SPECIAL_DBRX, ROTARY, LAYERNORM, SWIGLU, .fused_qkv = true, .norms = 2, .max_positions = 2048 },
    { "phi phi-msft", &sf_layout_phi, SF_SPECIAL_PHI, ROTARY, LAYERNORM, .act = "gelu_new", BIASES, .head_bias = true, .parallel = true, .norms = 1,
      .max_positions = 2048 },
    { "phi3 phi3small phi4", &sf_layout_phi3, 0, ROTARY, RMSNORM, SWIGLU, .fused_qkv = true, .fused_gate_up = true, .norms = 2, .max_positions = 4096 },
    { "phimoe", &sf_layout_mixtral, 0, ROTARY, LAYERNORM, SWIGLU, .norm_bias = true, .norms = 2, .max_positions = 131072 },
    { "persimmon", &sf_layout_persimmon, 0, ROTARY, LAYERNORM, .act = "relu2", BIASES, .qk_norm = true, .fused_qkv = true, .norms = 2,
      .max_positions = 16384 },
    { "stablelm stablelm_epoch", &sf_layout_llama, SF_SPECIAL_STABLELM, ROTARY, LAYERNORM, SWIGLU, .bias_key = "use_qkv_bias", .qkv_only = true, .norm_bias = true,
      .norms = 2, .max_positions = 4096 },
    { "starcoder2", &sf_layout_starcoder2, 0, ROTARY, LAYERNORM, .act = "gelu_pytorch_tanh", .tied = true, BIASES, .bias_key = "use_bias", .mlp_too = true, .norms = 2,
      .max_positions = 4096 },
    { "nemotron", &sf_layout_llama, 0, ROTARY, LAYERNORM, .act = "relu2", .norm_bias = true, .norms = 2, .max_positions = 4096 },
    { "arcee", &sf_layout_llama, 0, ROTARY, RMSNORM, .act = "relu2", .norms = 2, .max_positions = 4096 },
    { "apertus", &sf_layout_apertus, 0, ROTARY, RMSNORM, .act = "xielu", .qk_norm = true, .norms = 2, .max_positions = 65536 },
    { "olmo", &sf_layout_llama, 0, ROTARY, .norm = SF_NORM_PLAIN, SWIGLU, .norms = 2, .max_positions = 2048 },
    { "olmo2", &sf_layout_olmo2, 0, ROTARY, RMSNORM, SWIGLU, .qk_norm = true, .qk_norm_full = true, .norms = 2, .max_positions = 2048 },
    { "olmo3", &sf_layout_olmo2, 0, ROTARY, RMSNORM, SWIGLU, .qk_norm = true, .qk_norm_full = true, .norms = 2, .window = SF_WINDOW_PATTERN,
      .max_positions = 2048 },
    { "flex_olmo", &sf_layout_olmo2, 0, ROTARY, RMSNORM, SWIGLU, .qk_norm = true, .qk_norm_full = true, .norms = 2, .max_positions = 4096 },
    { "olmoe", &sf_layout_qwen_moe, 0, ROTARY, RMSNORM, SWIGLU, .qk_norm = true, .qk_norm_full = true, .norms = 2, .max_positions = 4096 },
    { "gemma", &sf_layout_llama, SF_SPECIAL_GEMMA, ROTARY, RMSNORM, GEGLU, .tied = true, .norms = 2, .head_dim = 256, .max_positions = 8192 },
    { "gemma2", &sf_layout_gemma2, SF_SPECIAL_GEMMA, ROTARY, RMSNORM, GEGLU, .tied = true, .norms = 4, .window = SF_WINDOW_EVEN, .head_dim = 256,
      .max_positions = 8192 },
    { "gemma3_text gemma3", &sf_layout_gemma2, SF_SPECIAL_GEMMA, ROTARY, RMSNORM, GEGLU, .tied = true, .qk_norm = true, .norms = 4,
      .window = SF_WINDOW_PATTERN, .head_dim = 256, .max_positions = 131072 },
    { "qwen", &sf_layout_qwen1, SF_SPECIAL_QWEN1, ROTARY, RMSNORM, SWIGLU, .qkv_bias = true, .fused_qkv = true, .norms = 2, .max_positions = 32768 },
    { "qwen2 qwen2_vl_text qwen2_5_vl_text", &sf_layout_llama, 0, ROTARY, RMSNORM, SWIGLU, .qkv_bias = true, .qkv_only = true, .bias_key = "", .norms = 2,
      .window = SF_WINDOW_OPT_IN, .max_positions = 32768 },
    { "qwen2_moe", &sf_layout_qwen_moe, 0, ROTARY, RMSNORM, SWIGLU, .qkv_bias = true, .qkv_only = true, .bias_key = "qkv_bias", .norms = 2,
      .window = SF_WINDOW_OPT_IN, .max_positions = 32768 },
    { "qwen3 qwen3_vl_text", &sf_layout_llama, 0, ROTARY, RMSNORM, SWIGLU, .qk_norm = true, .norms = 2, .window = SF_WINDOW_OPT_IN, .head_dim = 128,
      .max_positions = 32768 },
    { "qwen3_moe qwen3_vl_moe_text", &sf_layout_deepseek, 0, ROTARY, RMSNORM, SWIGLU, .qk_norm = true, .norms = 2, .window = SF_WINDOW_OPT_IN,
      .max_positions = 32768 },
    { "exaone", &sf_layout_exaone, 0, ROTARY, RMSNORM, SWIGLU, .norms = 2, .max_positions = 2048 },
    { "exaone4", &sf_layout_olmo2, 0, ROTARY, RMSNORM, SWIGLU, .qk_norm = true, .norms = 2, .window = SF_WINDOW_PATTERN, .max_positions = 2048 },
    { "internlm", &sf_layout_llama, 0, ROTARY, RMSNORM, SWIGLU, .qkv_bias = true, .out_bias = true, .bias_key = "bias", .norms = 2, .max_positions = 2048 },
    { "internlm2", &sf_layout_internlm2, 0, ROTARY, RMSNORM, SWIGLU, .bias_key = "bias", .fused_qkv = true, .norms = 2, .max_positions = 2048 },
    { "gpt_oss", &sf_layout_gpt_oss, SF_SPECIAL_GPT_OSS, ROTARY, RMSNORM, SWIGLU, .qkv_bias = true, .out_bias = true, .norms = 2,
      .window = SF_WINDOW_EVEN, .head_dim = 64, .max_positions = 131072 },
    { "mixtral", &sf_layout_mixtral, 0, ROTARY, RMSNORM, SWIGLU, .norms = 2, .max_positions = 131072 },
    { "minimax_m2", &sf_layout_mixtral, 0, ROTARY, RMSNORM, SWIGLU, .qk_norm = true, .qk_norm_full = true, .norms = 2, .max_positions = 196608 },
    { "granitemoe granitemoeshared", &sf_layout_granite_moe, 0, ROTARY, RMSNORM, SWIGLU, .norms = 2, .max_positions = 2048 },
    { "deepseek deepseek_v2 minicpm3 youtu", &sf_layout_deepseek, 0, ROTARY, RMSNORM, SWIGLU, .norms = 2, .max_positions = 4096 },
    { "deepseek_v3 kimi_k2", &sf_layout_deepseek, 0, ROTARY, RMSNORM, SWIGLU, .norms = 2, .max_positions = 4096, .router_bias = true },
    { "glm4_moe", &sf_layout_deepseek, 0, ROTARY, RMSNORM, SWIGLU, .qkv_only = true, .norms = 2, .head_dim = 0, .max_positions = 131072, .router_bias = true },
    { "dots1", &sf_layout_deepseek, 0, ROTARY, RMSNORM, SWIGLU, .qk_norm = true, .norms = 2, .max_positions = 2048, .router_bias = true },
    { "llama4_text llama4", &sf_layout_llama4, SF_SPECIAL_LLAMA4, ROTARY, RMSNORM, SWIGLU, .norms = 2, .head_dim = 128, .max_positions = 131072 },
    { "ernie4_5_moe", &sf_layout_ernie_moe, 0, ROTARY, RMSNORM, SWIGLU, .tied = true, .bias_key = "use_bias", .mlp_too = true, .norms = 2, .max_positions = 131072,
      .router_bias = true },
    { "ernie4_5", &sf_layout_llama, 0, ROTARY, RMSNORM, SWIGLU, .tied = true, .bias_key = "use_bias", .mlp_too = true, .norms = 2, .head_dim = 128, .max_positions = 131072 },
    { "glm", &sf_layout_llama, 0, ROTARY, RMSNORM, SWIGLU, .qkv_bias = true, .qkv_only = true, .fused_gate_up = true, .norms = 2, .head_dim = 128, .max_positions = 131072 },
    { "glm4", &sf_layout_glm4, 0, ROTARY, RMSNORM, SWIGLU, .qkv_bias = true, .qkv_only = true, .fused_gate_up = true, .norms = 4, .head_dim = 128, .max_positions = 131072 },
    { "chatglm", &sf_layout_chatglm, SF_SPECIAL_CHATGLM, ROTARY, RMSNORM, SWIGLU, .qkv_bias = true, .fused_qkv = true, .fused_gate_up = true,
      .norms = 2, .max_positions = 2048 },
    { "cohere cohere2", &sf_layout_llama, SF_SPECIAL_COHERE, ROTARY, LAYERNORM, SWIGLU, .tied = true, .parallel = true, .norms = 1,
      .window = SF_WINDOW_PATTERN, .max_positions = 8192 },
    { "orion", &sf_layout_llama, 0, ROTARY, LAYERNORM, SWIGLU, .norm_bias = true, .norms = 2, .max_positions = 4096 },
    { "seed_oss", &sf_layout_llama, 0, ROTARY, RMSNORM, SWIGLU, .qkv_bias = true, .qkv_only = true, .norms = 2, .head_dim = 128, .max_positions = 524288 },
    { "baichuan", &sf_layout_baichuan, 0, ROTARY, RMSNORM, SWIGLU, .fused_qkv = true, .norms = 2, .max_positions = 4096 },
    { "minicpm smollm3", &sf_layout_llama, 0, ROTARY, RMSNORM, SWIGLU, .tied = true, .norms = 2, .window = SF_WINDOW_OPT_IN, .max_positions = 4096 },
    { "llama mistral ministral ministral3 yi Yi granite aquila xverse helium internlm3 cwm hunyuan_v1_dense", &sf_layout_llama, 0, ROTARY, RMSNORM,
      SWIGLU, .norms = 2, .max_positions = 2048 },
};

/* Known, but no stack of attention and MLP blocks that reads left to right. */
static const struct {
    const char *types, *why;
} refused[] = {
    { "mamba mamba2 falcon_mamba codestral_mamba", "state-space layers" },
    { "jamba zamba zamba2 bamba falcon_h1 nemotron_h granitemoehybrid", "a hybrid of state-space and attention layers" },
    { "rwkv rwkv5 rwkv6 xlstm recurrent_gemma qwen3_next kimi_linear minimax lfm2 retnet", "recurrent or linear-attention layers" },
    { "bert roberta albert electra deberta deberta-v2 distilbert xlm-roberta camembert modernbert", "an encoder" },
    { "t5 mt5 umt5 bart mbart pegasus marian longt5 blenderbot whisper switch_transformers", "an encoder and a decoder with cross-attention" },
    { "vit clip siglip swin dinov2", "an image encoder" },
};

static bool lists(const char *types, const char *type)
{
    size_t len = strlen(type);
    for (const char *at = types; len > 0 && at != NULL; at = strchr(at, ' ')) {
        at += *at == ' ';
        if (strncmp(at, type, len) == 0 && (at[len] == ' ' || at[len] == '\0'))
            return true;
    }
    return false;
}

const sf_family *sf_family_find(const char *model_type)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (lists(families[i].types, model_type))
            return &families[i];
    return NULL;
}

const char *sf_family_refusal(const char *model_type)
{
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (lists(refused[i].types, model_type))
            return refused[i].why;
    return NULL;
}

size_t sf_family_types(sf_arena *arena, const char ***out)
{
    const char **types = NULL;
    size_t n = 0, cap = 0;
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        char *copy = sf_arena_strdup(arena, families[i].types), *state = NULL;
        for (char *t = strtok_r(copy, " ", &state); t != NULL; t = strtok_r(NULL, " ", &state))
            SF_PUSH(arena, types, n, cap) = t;
    }
    *out = types;
    return n;
}

/* Fields of config.json that change neither shape nor arithmetic of a training step as counted here. */
bool sf_family_ignores(const char *name)
{
    static const char *const names[] = {
        "architectures", "model_type", "transformers_version", "torch_dtype", "dtype", "auto_map", "_name_or_path", "use_cache", "initializer_range",
        "initializer_factor", "pretraining_tp", "rope_scaling", "rope_parameters", "task_specific_params", "transformer_layers", "name_or_path",
        "attention_dropout", "attn_pdrop", "embd_pdrop", "embd_dropout", "embedding_dropout", "activation_dropout", "attention_probs_dropout_prob",
        "classifier_dropout", "classifier_dropout_prob", "emb_dropout_prob", "attn_dropout_prob", "ffn_dropout", "layerdrop", "summary_activation",
        "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj", "scale_attn_weights", "scale_attn_by_inverse_layer_idx",
        "reorder_and_upcast_attn", "attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "gradient_checkpointing", "init_device", "init_config",
        "init_std", "init_method", "norm_type", "logit_scale", "verbose", "emb_pdrop", "resid_pdrop", "embedding_fraction", "use_bfloat16", "prefix",
        "norm_topk_prob", "output_router_logits", "router_aux_loss_coef", "aux_loss_alpha", "seq_aux", "scoring_func", "topk_method", "topk_group",
        "n_group", "routed_scaling_factor", "ep_size", "router_jitter_noise", "input_jitter_noise", "initial_context_length", "swiglu_limit",
        "swiglu_alpha", "query_pre_attn_scalar", "query_pre_attn_scaling", "cache_implementation", "rope_local_base_freq", "original_max_position_embeddings",
        "hidden_act", "bias_dropout_fusion", "unk_token_id", "masked_softmax_fusion", "offset_alibi", "n_embed", "n_head", "slow_but_exact",
        "skip_bias_add", "skip_bias_add_qkv", "flash_attn", "flash_rotary", "fused_dense", "img_processor", "embd_layer", "lm_head_multiplier",
        "logits_scaling", "residual_multiplier", "attention_multiplier", "chunk_size_feed_forward", "is_decoder", "add_cross_attention",
        "attn_implementation", "_attn_implementation", "quantization", "rope_type", "apply_residual_connection_post_layernorm", "clip_qkv",
        "gptj_attention_scaling", "rotary", "tokenizer_class", "problem_type", "z_loss_weight", "kv_cache_dtype", "attention_type", "context_length",
        "id2label", "label2id", "rope_ratio", "scale_depth", "dim_model_base", "num_nextn_predict_layers", "tie_encoder_decoder", "max_batch_size",
        "use_scaled_rope", "rope_interleaved", "use_dynamic_ntk", "use_logn_attn", "fp32_residual_connection", "interpolate_factor",
        "shared_expert_gate", "moe_implementation", "torchscript", "tensor_parallel", "sep_token_id", "mask_token_id", "image_token_index",
        "fp32", "fp16", "bf16", "return_dict", "output_hidden_states", "output_attentions", "sliding_window", "qk_head_dim", "use_flash_attn", "no_bias", "onnx_safe", "rotary_emb_fraction", "softmax_scale", "prefix_lm", "alpha", "multi_query", "predict_special_tokens",
        "context_window_size", "prefill_chunk_size", "attention_sink_size", "learned_pos_emb", "tokenizer_name", "full_attn_mod", "is_llama_config",
        "transformers.js_config", "mlp_type", "rope_interleave", "no_rope_layers", "no_rope_layer_interval", "moe_norm_min", "attn_scale",
        "floor_scale", "attn_temperature_tuning", "embedding_initializer_range",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    size_t len = strlen(name); /* bos_token_id, pad_token_id ... */
    return name[0] == '_' || (len > 9 && strcmp(name + len - 9, "_token_id") == 0);
}
