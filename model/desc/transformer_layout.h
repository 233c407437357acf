/* model/desc/transformer_layout.h: what the modules of each family are called and in which order they
 * are registered, which is the order of named_parameters() and so of buckets, flat shards and
 * partitions.
 *
 * Source  the modeling_*.py of each family in huggingface/transformers; for families with remote code
 *         the file shipped with the checkpoint. The order was compared with named_parameters() of
 *         transformers 5.24 (tests/oracle/hf_tensors.py).
 */
#ifndef SF_DESC_TRANSFORMER_LAYOUT_H
#define SF_DESC_TRANSFORMER_LAYOUT_H

#include "model/desc/transformer.h"

/* Which of the matrices that share a role. */
typedef enum { SF_PART_ONLY, SF_PART_GATE, SF_PART_UP, SF_PART_DOWN, SF_PART_GATE_UP, SF_PART_OUT, SF_PART_IN } sf_part;

typedef struct {
    sf_role role;
    const char *module; /* "self_attn.q_proj": ".weight" and, where the model has it, ".bias" follow;
                           a name that starts with '=' is a parameter's whole name              */
    sf_part part;
} sf_layout_item;

typedef struct sf_layout {
    const char *prefix;               /* before names outside blocks, "model."                  */
    const char *layers;               /* before the layer's number, "layers."                   */
    const sf_layout_item *embed;      /* each list ends with a NULL module                      */
    const sf_layout_item *block;      /* what the model does not have is left out               */
    const sf_layout_item *final;
    const char *head;                 /* whole module name                                      */
    bool final_first;                 /* the final norm is registered before the blocks (OPT)   */
} sf_layout;

extern const sf_layout sf_layout_llama, sf_layout_mixtral, sf_layout_qwen_moe, sf_layout_deepseek, sf_layout_gpt_oss, sf_layout_phi3,
    sf_layout_gpt2, sf_layout_gpt1, sf_layout_gptj, sf_layout_codegen, sf_layout_gpt_neo, sf_layout_gpt_neox, sf_layout_opt, sf_layout_bloom,
    sf_layout_falcon, sf_layout_falcon_two_norms, sf_layout_mpt, sf_layout_phi, sf_layout_starcoder2, sf_layout_persimmon, sf_layout_olmo2, sf_layout_gemma2,
    sf_layout_glm4, sf_layout_granite_moe, sf_layout_llama4, sf_layout_internlm2, sf_layout_baichuan, sf_layout_chatglm, sf_layout_qwen1,
    sf_layout_exaone, sf_layout_dbrx, sf_layout_ernie_moe, sf_layout_apertus;

#endif
