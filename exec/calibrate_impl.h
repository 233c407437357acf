/* exec/calibrate_impl.h: what calibrate.c and calibrate_comm.c share: timing one op over and over. */
#ifndef SF_EXEC_CALIBRATE_IMPL_H
#define SF_EXEC_CALIBRATE_IMPL_H

#include "exec/calibrate.h"
#include "exec/host/host_ops.h"

/* One op with its arrays, to be run by the host's row for it. */
typedef struct {
    sf_op op;
    sf_op_call call;
} sf_trial;

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
