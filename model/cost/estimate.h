/* model/cost/estimate.h: the accountant's sums without unrolling: each loop is done once for every
 * stretch of iterations in which the same ops are issued, and multiplied.
 *
 * Within a stretch every iteration changes live memory by the same amount, so it grows or shrinks
 * linearly and its peak is in the stretch's first or last iteration. The result is equal to
 * sf_account's, to the byte; a test compares them on random jobs. The cost grows with the program's
 * text and its guards, not with layers and micro-steps.
 *
 * Not filled: the memory line, and what names a single issued op (seq_of_peak, oom_*).
 */
#ifndef SF_COST_ESTIMATE_H
#define SF_COST_ESTIMATE_H

#include "model/program/outcome.h"

/* Of the class with the largest device peak, as sf_account. */
void sf_estimate(const sf_program *program, uint64_t capacity_bytes, sf_outcome *out);
void sf_estimate_class(const sf_program *program, const sf_class *cls, uint64_t capacity_bytes, sf_outcome *out);

#endif
