/* model/strategy/torch_block.h: one block's forward and backward. Private to torch_*.c. */
#ifndef SF_STRATEGY_TORCH_BLOCK_H
#define SF_STRATEGY_TORCH_BLOCK_H

#include "model/strategy/torch.h"

enum { SF_MOST_SAVED = 40 };

/* What autograd keeps of a norm. */
typedef struct {
    sf_tt x, rstd, mean, hat; /* input (or its f32 copy), statistics, normalised in the output's type */
    bool x_is_input;          /* x is the residual stream's tensor itself                           */
    int64_t width;
} sf_torch_norm;

typedef struct {
    sf_tt input;              /* the residual stream into the block                                 */
    bool input_kept;          /* by a norm or the checkpoint                                        */
    sf_torch_norm norm[4];
    sf_tt middle;             /* stream between attention and MLP                                   */
    bool middle_kept;
    sf_tt in1, in2;           /* inputs of the products behind the norms, in the compute type       */
    sf_tt casts[SF_MOST_SAVED];
    int n_casts;              /* more copies of them, and weights cast by autocast                  */
    sf_tt qkv[3], latent[2], probs, probs_half, mask, out, lse, rng;
    sf_tt resid_mask[2];
    sf_tt gate, act, up, act_parts[3], product;
    sf_tt router[3], permuted, combined;
    int n_products;           /* linears so far: of these every second is kept under selective recomputation */
    uint64_t kept_elems;      /* of their outputs and of attention's                                          */
} sf_torch_saved;

/* Finds a parameter of a unit by role; -1 if there is none. */
int sf_torch_param_of(const sf_torch *t, int unit, sf_role role);

sf_tt sf_torch_norm_forward(sf_torch *t, sf_tt x, int64_t width, int64_t rows, sf_torch_norm *saved);
/* dy is consumed; gives dx in the stream's type. */
sf_tt sf_torch_norm_backward(sf_torch *t, int unit, sf_role weight, sf_role bias, sf_tt dy, sf_torch_norm *saved, int64_t rows);

/* y = x W^T; `x` stays. */
sf_tt sf_torch_linear(sf_torch *t, const char *label, int64_t rows, int64_t out, int64_t in, sf_torch_saved *s);
/* dW of a parameter (and of its bias), from dy and the saved input. */
void sf_torch_linear_grad(sf_torch *t, const char *label, int unit, sf_role weight, sf_role bias, int64_t rows, int64_t out, int64_t in);
sf_tt sf_torch_linear_dx(sf_torch *t, const char *label, int64_t rows, int64_t out, int64_t in);
/* Gradient of a parameter from a kernel that is part of another (norm weights, biases). */
void sf_torch_small_grad(sf_torch *t, int unit, sf_role role);

sf_tt sf_torch_block_fwd(sf_torch *t, int layer, sf_tt x, sf_torch_saved *s);
sf_tt sf_torch_block_bwd(sf_torch *t, int layer, sf_tt dy, sf_torch_saved *s);

#endif
