/* sim/predict_gpu.h: adds the times of a program on the job's catalogue GPUs to an accounted outcome.
 *
 * Errors  a cluster that cannot be (several nodes without a network card): SF_EINVAL.
 */
#ifndef SF_SIM_PREDICT_GPU_H
#define SF_SIM_PREDICT_GPU_H

#include "model/base/arena.h"
#include "model/desc/job.h"
#include "model/program/cursor.h"
#include "model/program/outcome.h"

/* What times an op on a cluster: the GPU, its links, the plans of its collectives. Made once, it serves every
 * job on the same cluster (borrowed) and number of ranks. */
typedef struct sf_gpu_machine sf_gpu_machine;
sf_status sf_gpu_machine_make(const sf_cluster *cluster, int world_size, sf_arena *arena, const sf_gpu_machine **out);
double sf_gpu_machine_op_s(const sf_gpu_machine *machine, const sf_class *cls, const sf_issue *issue); /* of one op alone */

typedef struct {
    bool every_rank;
    double slow_gpu_share; /* rank 0 computes at this share of its speed; 0: all alike */
} sf_gpu_play;

/* `machine` NULL: made for this program. */
sf_status sf_predict_time_on_gpu(const sf_job *job, const sf_program *program, const sf_gpu_machine *machine, const sf_gpu_play *play, sf_arena *arena,
                                 sf_outcome *out);

#endif
