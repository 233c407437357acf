/* exec/calibrate_impl.h: what calibrate.c and calibrate_comm.c share: timing one op over and over. */
#ifndef SF_EXEC_CALIBRATE_IMPL_H
#define SF_EXEC_CALIBRATE_IMPL_H

#include "exec/backend.h"
#include "exec/calibrate.h"

/* One op with its arrays, to be run by a machine's row for it. */
typedef struct {
    sf_op op;
    sf_op_call call;
} sf_trial;

/* What is timed: the host's kernels in CPU time, or a GPU's from launch to launch. */
typedef struct {
    void *self;
    sf_status (*run)(void *self, const sf_op_call *call);
    sf_status (*finish)(void *self);  /* waits for what runs; NULL: nothing does              */
    sf_status (*memory)(void *self, uint64_t bytes, void **out);
    sf_status (*write)(void *self, void *to, const void *from, uint64_t bytes);
    sf_status (*pinned)(void *self, uint64_t bytes, void **out); /* host memory for copies; NULL: the host itself */
    double (*now_s)(void);
    bool gpu;                         /* sizes of a GPU                                       */
} sf_bench_machine;

/* Collective. Fills the set's matrix products, attention and kernels. */
sf_status sf_calibrate_kernels(sf_comm *comm, sf_calibrate_depth depth, const sf_bench_machine *machine, sf_profile_set *out);

double sf_cpu_now_s(void);  /* CPU time of this thread */
double sf_wall_now_s(void);

/* Mean over ranks. Collective. */
sf_status sf_mean_over_ranks(sf_comm *comm, double *values, int count);

static inline void sf_curve_add(sf_curve *c, double x, double s)
{
    c->x[c->n] = x;
    c->s[c->n++] = s > 1e-9 ? s : 1e-9;
}

#endif
