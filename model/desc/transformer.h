/* model/desc/transformer.h: a decoder-only transformer language model, as its cost depends on it.
 *
 * Read from a Hugging Face config.json (transformer_read.c): names of fields differ by family, and
 * what a family leaves out has that family's default. Parameters are counted in one place, the
 * tensor list: everything else (bytes, FLOPs, shards, buckets) comes from it.
 *
 * Units   elements. Shapes are PyTorch's: a linear weight is (out, in); GPT-2's Conv1D (in, out) is
 *         marked `transposed`.
 * Owner   names and warnings live in the arena given to the reader.
 */
#ifndef SF_DESC_TRANSFORMER_H
#define SF_DESC_TRANSFORMER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/base/arena.h"
#include "model/base/status.h"

typedef enum { SF_POS_LEARNED, SF_POS_ROTARY, SF_POS_ALIBI, SF_POS_NONE } sf_position;
typedef enum { SF_NORM_LAYERNORM, SF_NORM_RMSNORM, SF_NORM_PLAIN } sf_norm; /* PLAIN: LayerNorm without parameters */
typedef enum { SF_ACTIVATION_GELU_TANH, SF_ACTIVATION_GELU_ERF, SF_ACTIVATION_RELU, SF_ACTIVATION_SILU, SF_ACTIVATION_RELU2, SF_ACTIVATION_XIELU } sf_activation;

typedef struct {
    const char *name;        /* the catalogue's, the file's, or "model"                         */
    const char *model_type;  /* as in the file: "gpt2", "llama" ...                             */
    int n_layers;
    int64_t hidden, n_heads, n_kv_heads, head_dim, ffn_hidden, vocab, max_positions;
    sf_position position;
    int64_t position_rows;   /* rows of the learned table (OPT: 2 more than max_positions)      */
    double rope_theta;
    int64_t rotary_dim;      /* of each head                                                    */
    sf_norm norm;
    double norm_eps;
    sf_activation activation;
    bool gated;              /* SwiGLU, GeGLU: gate and up                                      */
    bool tied;               /* the head is the embedding table                                 */
    bool qkv_bias, out_bias, mlp_bias, norm_bias, head_bias;
    bool qk_norm;            /* norm of query and key                                           */
    bool qk_norm_full;       /* over all heads' width (OLMo2), else over head_dim (Qwen3)       */
    bool qk_norm_bias;       /* a LayerNorm with bias (Phi, Persimmon)                          */
    bool fused_qkv;          /* one tensor for q, k, v                                          */
    bool fused_gate_up;      /* one tensor for gate and up (Phi-3)                              */
    bool transposed;         /* Conv1D weights                                                  */
    bool parallel_block;     /* attention and MLP read the same norm or two norms of the input  */
    int norms_per_block;     /* 1, 2 or 4                                                       */
    bool attention_sinks;    /* gpt-oss: one number a head                                      */
    bool no_final_norm;
    bool embedding_norm;     /* BLOOM                                                           */
    int64_t embed_dim;       /* width of the token table where it differs from hidden (OPT-350m), else hidden */
    int64_t sliding_window;  /* tokens that a windowed layer looks back; 0: no layer is windowed */
    double embedding_scale;  /* embeddings are multiplied by it (Gemma: sqrt(hidden)); else 1   */
    double attention_softcap, final_softcap; /* tanh caps of scores and logits (Gemma 2); 0: none */
    double dropout;          /* of residuals                                                    */
    /* mixture of experts; n_experts 0: dense */
    int n_experts, top_k, n_shared_experts;
    int64_t expert_ffn, shared_ffn;
    int first_dense_layers;
    bool router_bias, expert_bias, shared_gate;
    bool fused_experts;      /* one tensor for all experts (gpt-oss), else one an expert        */
    /* multi-head latent attention (DeepSeek); kv_lora_rank 0: ordinary */
    int64_t q_lora_rank, kv_lora_rank, qk_nope_dim, qk_rope_dim, v_dim;
    const uint8_t *layer_kinds; /* [n_layers] of SF_LAYER_*                                     */
    const struct sf_layout *layout; /* names and order of the tensors                           */
    const char **warnings;   /* what was not understood and may matter                          */
    size_t n_warnings, cap_warnings;
} sf_transformer;

/* What differs between the layers of one model. */
enum {
    SF_LAYER_MOE = 1,      /* experts instead of one MLP                */
    SF_LAYER_WINDOWED = 2, /* attention looks back sliding_window only  */
    SF_LAYER_KINDS = 4
};

/* ---- tensors ---- */

typedef enum { SF_PLACE_EMBED, SF_PLACE_BLOCK, SF_PLACE_FINAL, SF_PLACE_HEAD } sf_place_of_tensor;

/*     id  name in lists        matrix (weight decay) */
#define SF_ROLES(X)                                                                                \
    X(WTE, "token embedding", 1) X(WPE, "position embedding", 1)                                   \
    X(EMBED_NORM_W, "embedding norm", 0) X(EMBED_NORM_B, "embedding norm bias", 0)                 \
    X(EMBED_PROJ, "embedding projection", 1)                                                       \
    X(NORM1_W, "attention norm", 0) X(NORM1_B, "attention norm bias", 0)                           \
    X(QKV_W, "qkv", 1) X(QKV_B, "qkv bias", 0) X(Q_W, "q", 1) X(Q_B, "q bias", 0) X(K_W, "k", 1)   \
    X(K_B, "k bias", 0) X(V_W, "v", 1) X(V_B, "v bias", 0)                                         \
    X(Q_DOWN, "q down", 1) X(Q_DOWN_NORM, "q down norm", 0) X(KV_DOWN, "kv down", 1)               \
    X(KV_DOWN_NORM, "kv down norm", 0) X(KV_UP, "kv up", 1)                                        \
    X(Q_NORM, "q norm", 0) X(Q_NORM_B, "q norm bias", 0) X(K_NORM, "k norm", 0)                     \
    X(K_NORM_B, "k norm bias", 0) X(SINKS, "attention sinks", 0)                                    \
    X(OUT_W, "attention output", 1) X(OUT_B, "attention output bias", 0)                           \
    X(NORM2_W, "mlp norm", 0) X(NORM2_B, "mlp norm bias", 0) X(NORM3_W, "third norm", 0)           \
    X(NORM4_W, "fourth norm", 0)                                                                   \
    X(GATE_W, "gate", 1) X(GATE_B, "gate bias", 0) X(UP_W, "up", 1) X(UP_B, "up bias", 0)          \
    X(GATE_UP_W, "gate and up", 1) X(DOWN_W, "down", 1) X(DOWN_B, "down bias", 0)                  \
    X(ACT_PARAM, "activation parameters", 0)                                                       \
    X(ROUTER_W, "router", 1) X(ROUTER_B, "router bias", 0) X(EXPERT_W, "experts", 1)               \
    X(EXPERT_B, "experts' biases", 0) X(SHARED_W, "shared experts", 1) X(SHARED_GATE, "shared expert gate", 1) \
    X(NORMF_W, "final norm", 0) X(NORMF_B, "final norm bias", 0)                                   \
    X(HEAD_W, "head", 1) X(HEAD_B, "head bias", 0)
#define SF_AS_ENUM(id, name, matrix) SF_ROLE_##id,
typedef enum { SF_ROLES(SF_AS_ENUM) SF_ROLE_COUNT } sf_role;
#undef SF_AS_ENUM

const char *sf_role_name(sf_role role);
bool sf_role_is_matrix(sf_role role);

typedef struct {
    sf_role role;
    sf_place_of_tensor place;
    int layer;          /* -1 outside blocks                                                    */
    int copies;         /* tensors of this shape and role, one an expert ("*" in the name): 1 otherwise */
    int ndim;
    uint64_t shape[3];
    uint64_t numel;     /* of one                                                               */
    const char *name;   /* Hugging Face's, with the layer's number                              */
} sf_tensor;

typedef struct {
    sf_tensor *items;   /* in the order of named_parameters(); experts are gathered by shape    */
    size_t count, cap;
} sf_tensor_list;

/* All tensors; a tied head is listed once, as the embedding. */
void sf_transformer_tensors(const sf_transformer *m, sf_arena *arena, sf_tensor_list *out);

/* The same without repeating the blocks: what lies outside them, and one list for each kind of layer
 * that the model has (layer numbers in it are those of the first such layer). */
typedef struct {
    sf_tensor_list outside;
    sf_tensor_list block[SF_LAYER_KINDS]; /* by layer_kinds[]; count 0: no such layer           */
    int n_layers[SF_LAYER_KINDS];         /* layers of that kind                                */
} sf_tensor_kinds;
void sf_transformer_tensor_kinds(const sf_transformer *m, sf_arena *arena, sf_tensor_kinds *out);

uint64_t sf_transformer_params(const sf_transformer *m);
uint64_t sf_transformer_active_params(const sf_transformer *m); /* MoE: those that one token uses */
bool sf_transformer_layer_is_moe(const sf_transformer *m, int layer);
/* Tokens that a layer's attention looks back; 0: all. */
int64_t sf_transformer_layer_window(const sf_transformer *m, int layer);

/* ---- readers ---- */

/* A config.json's object. `place` names it in messages ("config.json", "model"). */
sf_status sf_transformer_from_json(const json_t *config, const char *place, sf_arena *arena, sf_transformer *out);
/* A catalogue name ("llama-2-7b"), else a path to a config.json or to a directory that holds one. */
sf_status sf_transformer_find(const char *name_or_path, sf_arena *arena, sf_transformer *out);
/* Its configuration as it stands in the file. New reference. */
sf_status sf_transformer_find_config(const char *name_or_path, sf_arena *arena, json_t **out);

#endif
