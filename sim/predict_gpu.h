/* sim/predict_gpu.h: adds the times of a program on the job's catalogue GPUs to an accounted outcome.
 *
 * Errors  a cluster that cannot be (several nodes without a network card): SF_EINVAL.
 */
#ifndef SF_SIM_PREDICT_GPU_H
#define SF_SIM_PREDICT_GPU_H

#include "model/base/arena.h"
#include "model/desc/job.h"
#include "model/program/outcome.h"

sf_status sf_predict_time_on_gpu(const sf_job *job, const sf_program *program, bool every_rank, sf_arena *arena, sf_outcome *out);

#endif
