/* exec/backend.h: what a machine provides to the executor: memory of two spaces, streams that work
 * in order, and the ops.
 *
 * Calls come from one thread, the issuing one. A backend copies what it keeps of a call.
 */
#ifndef SF_EXEC_BACKEND_H
#define SF_EXEC_BACKEND_H

#include "exec/executor.h"
#include "model/program/cursor.h"

/* When an op ran on its stream, seconds from the start of the step. */
typedef struct {
    double start_s, end_s;
} sf_op_time;

/* One op, resolved: everything that a stream needs to run it. */
typedef struct {
    sf_issue issue;
    void *ptr[SF_MAX_ARGS];       /* NULL: an absent argument */
    sf_dtype dtype[SF_MAX_ARGS];
    const sf_flat *flat;          /* ADAMW: the flat of the master, and where the span starts in it */
    uint64_t flat_start;
    int64_t step;                 /* optimizer step, from 1 */
    uint64_t first_sequence;      /* LOAD_BATCH */
    sf_op_time *time;             /* where to write when it ran; lives until the next step */
} sf_op_call;

struct sf_backend_type {
    const char *name;    /* "host", "cuda" */
    bool device_is_host; /* the device's memory is this machine's */
    sf_status (*open)(const sf_executor_setup *setup, const sf_class *cls, void **self);
    /* Zeroed memory; once per space. Collective. */
    sf_status (*memory)(void *self, sf_space space, uint64_t bytes, void **base);
    /* Between memory of a space and the host, finished on return; no step is running. */
    sf_status (*write)(void *self, void *to, const void *from, uint64_t bytes);
    sf_status (*read)(void *self, void *to, const void *from, uint64_t bytes);
    /* Time 0 of the step. */
    void (*start)(void *self);
    /* Puts an op on its stream: every type but ALLOC, FREE and HOST_SYNC, with RECORD and WAIT. */
    sf_status (*issue)(void *self, const sf_op_call *call);
    /* Puts a fill with NaN patterns (0xff) on a stream. */
    sf_status (*poison)(void *self, sf_stream stream, void *at, uint64_t bytes);
    /* Waits for everything issued; the first failure of an op since the last call. Times are complete then.
     * An op that fails stops the run (sf_comm_stop); a stop ends the waiting for other ranks. */
    sf_status (*sync)(void *self);
    /* Sum of the losses of all rows since the last call and how many rows; after sync. */
    void (*loss)(void *self, double *sum, uint64_t *rows);
    /* Memory of the device that is in use, as the driver counts it; may be NULL. */
    void (*used)(void *self, uint64_t *used_bytes);
    void (*close)(void *self);
};

/* The factor that ADAMW applies to gradients: clip_norm / (norm + 1e-6) where that is below 1 (PyTorch's
 * clip_grad_norm_). `sumsq` NULL: 1. */
float sf_clip_factor(const sf_adamw_setup *optimizer, const double *sumsq);

#endif
