/* exec/run.h: trains a job for some steps and measures it: one rank, or all ranks as threads.
 *
 * Result    One outcome for the whole run: step time of the slowest rank (median over the steps but the
 *           first, which touches memory for the first time), memory of the fullest rank, communication
 *           and phases of rank 0, losses over all ranks' tokens. An allocation that does not fit is a
 *           result with fits = false.
 * Failure   What was measured until then stays readable (sf_run_snapshot), also from another thread
 *           while a step runs: a signal may have to save it at once.
 * Errors    As of exec/executor.h; SF_EINVAL: the number of ranks is not the job's.
 */
#ifndef SF_EXEC_RUN_H
#define SF_EXEC_RUN_H

#include <pthread.h>

#include "exec/executor.h"
#include "model/desc/job.h"

typedef struct {
    const sf_job *job;
    const sf_program *program;
    const sf_backend_type *backend;
    uint64_t device_memory_bytes;        /* 0: no limit */
    sf_poison poison;
    bool staged;                         /* CUDA: collectives through host memory */
    const float *const *given;           /* by tensor number; NULL: the seed's values */
    /* After each step, on rank 0; may be NULL. */
    void (*progress)(void *ctx, int step, const sf_step *result);
    void *progress_ctx;
} sf_run_setup;

/* What is known so far; shared by the training thread and whoever asks. */
typedef struct {
    pthread_mutex_t lock;
    sf_arena arena;                      /* of `last` */
    sf_outcome last;                     /* memory and times up to the last whole step */
    double other_load;                   /* share of this machine's cores that others used meanwhile; < 0: not known */
    double *losses, *step_s;
    int n_losses, cap_losses;
} sf_run_record;

void sf_run_record_open(sf_run_record *record);
void sf_run_record_close(sf_run_record *record);

/* Trains as one rank. With `read` not NULL, it is called at the end, while all ranks can still gather. */
sf_status sf_run_rank(const sf_run_setup *setup, sf_comm *comm, sf_run_record *record, void (*read)(void *ctx, sf_executor *ex),
                      void *read_ctx);

/* All ranks as threads of this process (nn.DataParallel); the record is rank 0's. */
sf_status sf_run_threads(const sf_run_setup *setup, sf_run_record *record);

/* The outcome so far, in the arena. Provenance and FLOPs are the caller's. */
void sf_run_snapshot(sf_run_record *record, sf_arena *arena, sf_outcome *out);

/* The tensors of a model with the values they start from. */
void sf_run_params(const sf_transformer *model, uint64_t seed, const float *const *given, sf_arena *arena, sf_params *out);

#endif
