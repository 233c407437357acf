/* exec/selftest.h: is what runs here right? Every op of a machine against the double-precision reference.
 *
 * Inputs are random, rounded to the type before the reference sees them. An output may differ from the reference by
 *   slack * u * max + 8 * 2^-24 * sqrt(terms) * max
 * u: half a unit in the last place of the type; max: the output's largest magnitude; terms: summed per element; slack: 1 for the last
 * rounding, more where the kernel rounds on the way (probabilities of attention in 16 bits). Copies and sums of one term are exact.
 */
#ifndef SF_EXEC_SELFTEST_H
#define SF_EXEC_SELFTEST_H

#include "exec/backend.h"

/* What runs the ops. */
typedef struct {
    const char *name;
    void *self;
    sf_status (*run)(void *self, const sf_op_call *call);
    sf_status (*finish)(void *self);
    sf_status (*memory)(void *self, uint64_t bytes, void **out);
    sf_status (*write)(void *self, void *to, const void *from, uint64_t bytes);
    sf_status (*read)(void *self, void *to, const void *from, uint64_t bytes);
} sf_selftest_machine;

typedef struct {
    const char *op, *shape;
    sf_dtype dtype;
    double worst;       /* largest difference over what is allowed: at most 1 is right */
    sf_status st;       /* the op could not run                                        */
} sf_selftest_result;

/* Calls `tell` once a case. */
sf_status sf_selftest_ops(const sf_selftest_machine *machine, void (*tell)(void *ctx, const sf_selftest_result *result), void *ctx);

/* Constants that machines must have been opened with. */
enum { SF_SELFTEST_SEQ = 37, SF_SELFTEST_HEAD_DIM = 64, SF_SELFTEST_ROTARY = 32 };
extern const double sf_selftest_norm_eps, sf_selftest_rope_theta;

/* The host, and (exec/cuda) this process's first GPU. Closed by sf_selftest_*_close. */
sf_status sf_selftest_host_open(sf_selftest_machine *out);
void sf_selftest_host_close(sf_selftest_machine *machine);
sf_status sf_selftest_cuda_open(sf_selftest_machine *out);
void sf_selftest_cuda_close(sf_selftest_machine *machine);

#endif
