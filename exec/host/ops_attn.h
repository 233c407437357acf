/* exec/host/ops_attn.h: the scratch of the attention kernels; private to exec/host/ops_*.c. */
#ifndef SF_EXEC_HOST_OPS_ATTN_H
#define SF_EXEC_HOST_OPS_ATTN_H

#include <stddef.h>

#include "exec/host/ops.h"

/* Query rows of one strip of scores. */
enum { SF_ATTN_ROWS = 64 };

/* R = SF_ATTN_ROWS rows or T if less. The rest is only there for bf16: float copies of heads. */
typedef struct {
    float *s, *ds;                /* (R, T) scores, their gradient */
    float *q, *o, *dq;            /* (R, HD); o: out or dout       */
    float *k, *v, *dk, *dv;       /* (T, HD)                       */
} sf_attn_ws;

sf_attn_ws sf_attn_ws_split(sf_dtype dt, const sf_attn_dims *dims, void *ws);

#endif
