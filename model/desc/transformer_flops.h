/* model/desc/transformer_flops.h: floating-point operations of training a transformer, exactly and by
 * the conventions in which model FLOPs are published.
 *
 * Units   FLOP of one token (a multiply-add is two); of matrix products and attention scores only.
 * Exact   forward: every matrix that is applied to the token (the top-k experts, the head, not the
 *         table lookups), and q k^T and p v of the positions that it attends to. Backward is twice
 *         the forward (gradients of inputs and of weights).
 * Sources PaLM (arXiv:2204.02311) appendix B; karpathy/nanoGPT model.py estimate_mfu; karpathy/llm.c
 *         train_gpt2.cu gpt2_estimate_mfu; pytorch/torchtitan models/utils.py
 *         get_dense_model_nparams_and_flops; mosaicml/llm-foundry modeling_mpt.py flops_per_batch;
 *         NVIDIA/Megatron-LM training.py num_floating_point_operations, and its 2021 form
 *         (arXiv:2104.04473 eq. 3).
 */
#ifndef SF_DESC_TRANSFORMER_FLOPS_H
#define SF_DESC_TRANSFORMER_FLOPS_H

#include "model/desc/transformer.h"

/* What a query position multiplies with. */
typedef enum {
    SF_SPAN_FULL,   /* all s positions, masked or not: what eager attention computes           */
    SF_SPAN_CAUSAL  /* those up to itself, no more than the layer's window: what is needed     */
} sf_span;

/* Forward, of one token. */
double sf_transformer_matmul_flop(const sf_transformer *m);
/* The same without the head. */
double sf_transformer_block_matmul_flop(const sf_transformer *m);
/* Forward, of one token on average over a sequence of seq_len. */
double sf_transformer_attention_flop(const sf_transformer *m, int64_t seq_len, sf_span span);

/*     id  name          what is counted, forward and backward, per token                      */
#define SF_FLOP_CONVENTIONS(X)                                                                     \
    X(EXACT, "exact", "3 x (applied matrices + causal, windowed attention)")                       \
    X(EXACT_FULL, "exact-full", "3 x (applied matrices + attention over all positions)")           \
    X(PALM, "palm", "6 N + 12 L H Q s, N without lookup tables")                                   \
    X(NANOGPT, "nanogpt", "6 N + 12 L H Q s, N without position embeddings")                       \
    X(LLMC, "llm.c", "6 N + 6 L C s, N all parameters")                                            \
    X(TORCHTITAN, "torchtitan", "6 N + 6 L H (qk + v) s, N active, without embeddings unless tied") \
    X(LLM_FOUNDRY, "llm-foundry", "6 N + 12 L C s, N all (active) parameters")                     \
    X(MEGATRON, "megatron", "6 x matrices with the vocabulary padded to 128 + 6 L H Q s")          \
    X(MEGATRON_2021, "megatron-2021", "72 L C^2 (1 + s/6C + V/12LC)")                              \
    X(SIX_N, "6n", "6 N, N all (active) parameters")
#define SF_AS_ENUM(id, name, what) SF_FLOP_##id,
typedef enum { SF_FLOP_CONVENTIONS(SF_AS_ENUM) SF_FLOP_CONVENTION_COUNT } sf_flop_convention;
#undef SF_AS_ENUM

const char *sf_flop_convention_name(sf_flop_convention convention);
const char *sf_flop_convention_text(sf_flop_convention convention);

/* Forward and backward of one token in a sequence of seq_len, as that source counts. */
double sf_transformer_step_flop(const sf_transformer *m, int64_t seq_len, sf_flop_convention convention);

#endif
