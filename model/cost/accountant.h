/* model/cost/accountant.h: bytes, calls and FLOPs of a program, exactly, without running it.
 *
 * Memory   counted at issue: an ALLOC adds, a FREE subtracts, persistent buffers are there from the
 *          start in the order of their declaration. The peak is of the sum on the device; each
 *          category's own peak is kept too. Only what the program declares is counted: what a
 *          framework adds (context, NCCL, fragmentation) is added by its own model.
 * Ranks    the answer is of the class with the largest device peak (dp: device 0); collectives are
 *          those of that class.
 * OOM      with capacity_bytes > 0 the first ALLOC (or persistent buffer) that would exceed it is
 *          kept: the same rule as the executors', so the failing op is predicted.
 */
#ifndef SF_COST_ACCOUNTANT_H
#define SF_COST_ACCOUNTANT_H

#include "model/base/arena.h"
#include "model/program/outcome.h"

void sf_account(const sf_program *program, uint64_t capacity_bytes, sf_arena *arena, sf_outcome *out);
void sf_account_class(const sf_program *program, const sf_class *cls, uint64_t capacity_bytes, sf_arena *arena, sf_outcome *out);

#endif
