/* model/program/flop.h: FLOPs of a program.
 *
 * Useful   what the model needs: forward and backward once. Not useful: what is computed again in
 *          backward (recomputation, and the scores that a fused attention rebuilds).
 */
#ifndef SF_PROGRAM_FLOP_H
#define SF_PROGRAM_FLOP_H

#include "model/program/program.h"

/* Of one execution of the op. */
uint64_t sf_op_useful_flop(const sf_op *op);

/* Of one rank of the class in one step. */
void sf_class_flop(const sf_class *cls, uint64_t *useful, uint64_t *all);

#endif
