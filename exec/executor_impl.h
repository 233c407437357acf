/* exec/executor_impl.h: the executor's state, for exec/executor.c (steps), exec/initialise.c (values in
 * and out) and exec/measure.c (times to an outcome).
 */
#ifndef SF_EXEC_EXECUTOR_IMPL_H
#define SF_EXEC_EXECUTOR_IMPL_H

#include "exec/backend.h"
#include "exec/ledger.h"
#include "model/program/plan.h"

struct sf_executor {
    const sf_backend_type *backend;
    void *machine;
    sf_executor_setup setup;
    const sf_class *cls;
    int rank, step;            /* step: of the last one begun, from 1 */
    sf_arena arena;
    sf_plan plan;
    uint64_t *offset;          /* [n_instances] where instances lie now */
    size_t allocs;             /* ALLOCs issued in this step            */
    void *base[SF_SPACE_COUNT];
    sf_ledger ledger;
    /* measured */
    uint64_t n_issued;
    sf_op_time *times;         /* [n_issued] of the last step */
    sf_op_time *best_times;    /* [n_issued] of the fastest step since the times were reset */
    double best_step_s;
    double step_start_s;
    sf_memory_point *memory_line; /* of the last step */
    size_t n_memory_line, cap_memory_line;
    sf_outcome sum;            /* its times, added up over `timed` steps */
    int timed;
};

char *sf_executor_address(const sf_executor *ex, const sf_buffer *b, int instance);

/* Writes what persistent bound buffers hold before the first step. */
sf_status sf_executor_initialise(sf_executor *ex);

/* Adds the times of the finished step. */
void sf_executor_add_times(sf_executor *ex, double step_s);

#endif
