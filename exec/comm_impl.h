/* exec/comm_impl.h: what a kind of communicator provides. Only exec/comm*.c and
 * exec/host/comm_*.c include it.
 */
#ifndef SF_EXEC_COMM_IMPL_H
#define SF_EXEC_COMM_IMPL_H

#include "exec/comm.h"

/* One collective, resolved: members of the group are ranks first + i * stride, i < size. */
typedef struct {
    sf_op_type op;
    sf_group group;
    sf_dtype dtype;
    const void *in;
    void *out;
    uint64_t n;
    int size, self; /* of the group; position in it */
    int first, stride;
} sf_comm_args;

typedef struct {
    const char *name;
    bool one_host; /* all ranks run on this machine */
    sf_status (*call)(sf_comm *comm, const sf_comm_args *args);
    sf_status (*memory)(sf_comm *comm, uint64_t bytes, void **out);
    sf_status (*exchange)(sf_comm *comm, const void *mine, size_t bytes, void *all);
    void (*stop)(sf_comm *comm, const sf_stop *stop);
    bool (*stopped)(const sf_comm *comm, sf_stop *out);
    void (*close)(sf_comm *comm);
    sf_status (*regroup)(sf_comm *comm); /* after sf_comm_set_node; may be NULL */
} sf_comm_type;

struct sf_comm {
    const sf_comm_type *type;
    int rank, world, ranks_per_node;
    struct timespec met;
    sf_comm_count count[SF_OP_COUNT][SF_GROUP_COUNT];
};

static inline int sf_comm_member(const sf_comm_args *a, int i)
{
    return a->first + i * a->stride;
}

/* Each out[o][i] = sum over k of part[k][i] in order of k, in f32 (f64), rounded once; an out may be a part. */
void sf_comm_sum(sf_dtype dtype, int parts, const void *const part[], int outs, void *const out[], uint64_t n);
bool sf_comm_sums(sf_dtype dtype); /* does sf_comm_sum take the type? */

#endif
