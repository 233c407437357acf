/* exec/executor.h: runs a step program for real and measures it.
 *
 * What      One executor per rank. It walks the rank's class in issue order as a framework's host
 *           thread does: ALLOC and FREE act at once on the device's memory limit and counters, every
 *           other op is put on its stream. What a stream, an event and an op are on a machine is the
 *           backend's (backend.h): the host's is exec/host/backend_host.c.
 * Measured  Bytes are counted here from what is taken, calls and bytes of collectives in the
 *           communicator, times around each op where it runs. Nothing is taken from the accountant.
 * Memory    One block per space, instances at the offsets of sf_plan_make. The device block must
 *           fit into the host's memory when the device is the host.
 * Start     Parameters come from (seed, tensor, element) alone, or from given arrays, so that every
 *           strategy and every sharding starts from the same bits; moments are 0; padding is 0.
 * Errors    An allocation above the limit is a result (out_of_memory), not an error. SF_ENUMERIC: the
 *           loss is not finite. SF_ECOMM: another rank failed. SF_EUNSUP: an op that executors lack.
 */
#ifndef SF_EXEC_EXECUTOR_H
#define SF_EXEC_EXECUTOR_H

#include "exec/comm.h"
#include "exec/data.h"
#include "exec/params.h"
#include "model/program/outcome.h"
#include "model/program/program.h"

/* AdamW, as torch.optim.AdamW; clip_norm as torch.nn.utils.clip_grad_norm_ (0: off). */
typedef struct {
    float lr, beta1, beta2, eps, weight_decay, clip_norm;
} sf_adamw_setup;

#define SF_ADAMW_DEFAULT                                                                       \
    ((sf_adamw_setup){ .lr = 1e-3f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .weight_decay = 0.01f }) /* PyTorch's */

/* Catches buffers that are used outside their life: a loss turns NaN. */
typedef enum {
    SF_POISON_NONE,
    SF_POISON_PLANNED, /* planned offsets; filled with NaN at ALLOC                        */
    SF_POISON_SPREAD   /* no memory is used twice; filled with NaN at ALLOC and after FREE */
} sf_poison;

typedef struct {
    const sf_program *program;
    sf_comm *comm;                /* says the rank */
    const sf_params *params;      /* what the flats' tensor numbers mean */
    const sf_data *data;
    int seq_len;
    float norm_eps;               /* constants of ops that the program does not carry */
    double rope_theta;
    int rotary_dim;
    uint64_t device_memory_bytes; /* limit; 0: none */
    sf_adamw_setup optimizer;
    sf_poison poison;
    bool staged;                  /* CUDA: collectives through host memory */
    bool tf32;                    /* CUDA: f32 products by TF32            */
} sf_executor_setup;

typedef struct {
    double loss;          /* mean over all ranks' tokens of the step            */
    double step_s;        /* of the slowest rank                                */
    double issue_s;       /* until this rank's last op was issued               */
    bool out_of_memory;   /* the step was not finished; the outcome says why    */
} sf_step;

typedef struct sf_executor sf_executor;
typedef struct sf_backend_type sf_backend_type;

extern const sf_backend_type sf_backend_host;

/* Collective. `setup` and what it points to outlive the executor. Even persistent buffers above the
 * limit are a result: then *full is true and only the outcome can be asked for. */
sf_status sf_executor_open(const sf_backend_type *backend, const sf_executor_setup *setup, sf_executor **out, bool *full);

/* One optimizer step, collective. After an error or out_of_memory there are no more steps. */
sf_status sf_executor_step(sf_executor *ex, sf_step *out);

/* Forgets the times measured so far (after warm-up steps). */
void sf_executor_reset_times(sf_executor *ex);

/* Collective: the values of a tensor as the optimizer holds them (`what`: SF_BIND_MASTER falls back to the
 * parameters where there is no master), in f32, gathered from all ranks' shards. */
sf_status sf_executor_read(sf_executor *ex, sf_binding what, int tensor, float *out);

/* This rank's measurements so far: mean times over the steps, spans of the fastest step. Fills all that a
 * rank knows; losses, spread and provenance are the caller's. */
void sf_executor_outcome(const sf_executor *ex, sf_arena *arena, sf_outcome *out);

void sf_executor_close(sf_executor *ex);

#endif
