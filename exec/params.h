/* exec/params.h: the values that training starts from, and where tensors lie in flats.
 *
 * Generator  Element e of tensor t is a normal deviate made from (seed, t, e) alone (a counter-based
 *            generator: splitmix64 of the three, Box-Muller), so that any rank can make any slice.
 * Source     Scales: GPT-2's initialisation, as in nanoGPT and Hugging Face: normal(0, 0.02), projections
 *            into the residual stream divided by sqrt(2 * layers); norms 1; biases 0.
 */
#ifndef SF_EXEC_PARAMS_H
#define SF_EXEC_PARAMS_H

#include "model/base/arena.h"
#include "model/program/program.h"

typedef struct {
    const char *name;
    uint64_t numel;
    float mean, std;    /* std 0: all elements are `mean` */
    const float *given; /* NULL, or the tensor's values */
} sf_param;

typedef struct {
    sf_param *params;
    int count;
    uint64_t seed;
} sf_params;

/* out[i] = element from + i of a tensor. */
void sf_params_fill(const sf_params *params, int tensor, uint64_t from, uint64_t count, float *out);
/* out[i] = element from + i of a flat; padding is 0. */
void sf_params_fill_flat(const sf_params *params, const sf_flat *flat, uint64_t from, uint64_t count, float *out);

/* The longest run of elements from `from`, at most to `end`, with the same weight decay. */
uint64_t sf_flat_decay_run(const sf_flat *flat, uint64_t from, uint64_t end, bool *decay);

#endif
