/* model/desc/transformer_family.h: what each family of models (model_type) is where its config.json
 * does not say: one row a family.
 *
 * Source  the configuration_*.py and modeling_*.py of each family in huggingface/transformers; for
 *         families with remote code the file shipped with the checkpoint.
 */
#ifndef SF_DESC_TRANSFORMER_FAMILY_H
#define SF_DESC_TRANSFORMER_FAMILY_H

#include "model/desc/transformer_layout.h"

/* Which layers look back sliding_window tokens only, where the file has no layer_types. */
typedef enum {
    SF_WINDOW_ALL,       /* Mistral                                                             */
    SF_WINDOW_OPT_IN,    /* only if use_sliding_window, from layer max_window_layers on (Qwen2)  */
    SF_WINDOW_EVEN,      /* layers 0, 2, 4 ... (Gemma 2, gpt-oss)                                */
    SF_WINDOW_PATTERN    /* all but every sliding_window_pattern-th (Gemma 3)                    */
} sf_window_rule;

/* What is apart in a family beyond its row; transformer_read.c has a function for each. */
typedef enum {
    SF_SPECIAL_NONE, SF_SPECIAL_GPT2, SF_SPECIAL_BIGCODE, SF_SPECIAL_FALCON, SF_SPECIAL_MPT, SF_SPECIAL_OPT, SF_SPECIAL_GPT_NEO, SF_SPECIAL_BLOOM,
    SF_SPECIAL_GPT_OSS, SF_SPECIAL_PHI, SF_SPECIAL_STABLELM, SF_SPECIAL_CHATGLM, SF_SPECIAL_QWEN1, SF_SPECIAL_DBRX, SF_SPECIAL_LLAMA4,
    SF_SPECIAL_COHERE, SF_SPECIAL_GEMMA
} sf_special;

typedef struct {
    const char *types;   /* model_type values, separated by spaces                              */
    const sf_layout *layout;
    sf_special special;
    sf_position position;
    sf_norm norm;
    const char *act;     /* default activation                                                  */
    bool gated;
    bool tied;           /* default of tie_word_embeddings                                      */
    bool qkv_bias, out_bias; /* default of the switch below, and which of the two it governs    */
    bool qkv_only;           /* the switch is for q, k and v, not for the output                 */
    bool mlp_too;            /* ... also for the MLP                                            */
    const char *bias_key;    /* the switch in the file; NULL: "attention_bias"; "": there is none */
    bool mlp_bias, norm_bias, head_bias;
    bool qk_norm, qk_norm_full, fused_qkv, fused_gate_up, parallel;
    int norms;           /* per block                                                           */
    sf_window_rule window;
    int64_t head_dim;    /* default; 0: hidden / heads                                          */
    int64_t max_positions;
    bool router_bias;
} sf_family;

/* NULL: not a family of ours. */
const sf_family *sf_family_find(const char *model_type);
/* What stands in the way of a model_type that is known but is no decoder-only transformer; NULL: nothing. */
const char *sf_family_refusal(const char *model_type);
/* Fields of config.json that are known and change nothing that is counted here. */
bool sf_family_ignores(const char *field);
/* All model_type values, for "did you mean". */
size_t sf_family_types(sf_arena *arena, const char ***out);

#endif
