/* tests/exec/bigram.h: the smallest model that trains: x = wte[token], logits = x W^T + b; as programs in
 * which parameters are replicated or sharded, run by ranks that are threads.
 */
#ifndef SF_TESTS_EXEC_BIGRAM_H
#define SF_TESTS_EXEC_BIGRAM_H

#include "exec/executor.h"

enum { BIGRAM_VOCAB = 13, BIGRAM_HIDDEN = 6, BIGRAM_SEQ = 8, BIGRAM_MAX_RANKS = 4, BIGRAM_TENSORS = 3, BIGRAM_MAX_STEPS = 40 };

typedef struct {
    int world, micro_batch, n_micro, steps;
    bool sharded;               /* all_gather and reduce_scatter, else all_reduce */
    bool mixed;                 /* compute in bf16 with f32 masters (replicated only) */
    float clip_norm, lr;
    sf_poison poison;
    uint64_t device_memory_bytes;
    bool free_too_early;        /* a wrong program: the logits are freed before the loss */
} bigram;

typedef struct {
    sf_status st;
    bool full;
    double losses[BIGRAM_MAX_STEPS];
    int n_losses;
    float params[BIGRAM_TENSORS][BIGRAM_VOCAB * BIGRAM_HIDDEN];
    sf_outcome outcome;
} bigram_rank;

typedef struct {
    sf_arena arena, keep[BIGRAM_MAX_RANKS];
    const sf_program *program;
    bigram_rank rank[BIGRAM_MAX_RANKS];
} bigram_result;

const sf_program *bigram_program(const bigram *b, sf_arena *arena);
void bigram_run(const bigram *b, bigram_result *out);
void bigram_free(bigram_result *result);

#endif
