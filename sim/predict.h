/* sim/predict.h: the predicted outcome of a job: the accountant's bytes, and the simulator's times on
 * the machine that a profile (our executor on this host) or the GPU catalogue describes.
 *
 * Without a profile the times of a run on this host stay unknown (time.step_s is 0).
 * Errors  SF_EINVAL: the profile has no measurements for the program's kind of ranks.
 * Owner   the outcome's texts, spans and lines live in the arena.
 */
#ifndef SF_SIM_PREDICT_H
#define SF_SIM_PREDICT_H

#include "model/cost/profile.h"
#include "model/desc/job.h"
#include "model/program/outcome.h"
#include "sim/predict_gpu.h"

typedef struct {
    const sf_profile *profile; /* of this machine; NULL: only what needs none       */
    bool every_rank;           /* simulate all ranks rather than one of each class  */
    const sf_gpu_machine *machine; /* of the job's GPUs; NULL: made when needed     */
    /* A GPU that computes at this share of its speed (0.8); 0: all alike. It is rank 0. Without every_rank rank 0
     * stands for its whole class: then all of them are slow, which bounds the effect from above. */
    double slow_gpu_share;
} sf_predict_options;

sf_status sf_predict(const sf_job *job, const sf_program *program, const sf_predict_options *options, sf_arena *arena, sf_outcome *out);

#endif
