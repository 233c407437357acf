/* tests/exec/mini_model.h: a whole training step composed of the host kernels, for tests and benchmarks.
 *
 * GPT-2 (learned positions, LayerNorm with biases, gelu_new, tied head) or LLaMA (rotary positions,
 * RMSNorm, SwiGLU, grouped keys and values, no biases, head of its own). The parameters are one
 * flat array in the order of Hugging Face's named_parameters(), weights (out, in): there q, k, v
 * lie together and so do gate and up, so that each group is one product.
 */
#ifndef SF_TESTS_EXEC_MINI_MODEL_H
#define SF_TESTS_EXEC_MINI_MODEL_H

#include "exec/host/ops.h"

typedef struct {
    bool llama;
    size_t layers, hidden, heads, kv_heads, ffn, vocab, seq_len, micro_batch;
    float norm_eps;
    double rope_theta;
} mini_config;

typedef struct mini_model mini_model;

/* Parameters are 0 until mini_model_params has been written to. */
mini_model *mini_model_new(const mini_config *config, sf_dtype dt);
void mini_model_free(mini_model *m);

size_t mini_model_param_count(const mini_model *m);
float *mini_model_params(mini_model *m);       /* masters, float                              */
const void *mini_model_grads(const mini_model *m); /* of dt                                  */
const void *mini_model_logits(const mini_model *m); /* (N,V) of dt, after mini_model_forward */

/* Call after the masters were written: rounds them into the weights. */
void mini_model_sync(mini_model *m);

void mini_model_forward(mini_model *m, const int32_t *tokens);
float mini_model_backward(mini_model *m, const int32_t *tokens, const int32_t *targets); /* mean loss */
/* step->weight_decay is for matrices; biases and norms have none. */
void mini_model_update(mini_model *m, const sf_adamw *step);

#endif
