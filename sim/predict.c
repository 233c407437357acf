#include "sim/predict.h"

#include <string.h>

#include "model/base/units.h"
#include "model/cost/accountant.h"
#include "model/cost/replay.h"
#include "model/program/timeline.h"
#include "sim/engine.h"
#include "sim/predict_gpu.h"

/* ---- our executor where it was calibrated: this host, or GPUs ---- */

static sf_sim_cost host_cost(void *ctx, const sf_class *cls, const sf_issue *issue, int rank)
{
    const sf_profile_set *set = ctx;
    (void)rank;
    return (sf_sim_cost){ .seconds = sf_profile_op_time_s(set, cls, issue) + set->op_gap_s, .cores = sf_profile_op_cores(set, cls, issue) };
}

/* An op that runs only where memory was full before it cannot be timed: the prediction ends there, as
 * the run would. */
static sf_status time_by_profile(const sf_program *program, const sf_predict_options *options, sf_arena *arena, sf_outcome *out)
{
    const sf_profile_set *set = sf_profile_set_of(options->profile, program->world_size, program->one_process);
    sf_sim_result result;

    if (set == NULL)
        return SF_FAIL(SF_EINVAL, "the profile has no measurements of %s; run: shardfit calibrate --ranks %d",
                       program->one_process ? "devices of one process" : "ranks", program->world_size);
    bool gpu = strcmp(set->transport, "cuda") == 0; /* each has engines of its own */
    sf_sim_options sim = {
        .cost = host_cost, .ctx = (void *)set, .issue_s = set->issue_s, .cores_per_node = gpu ? 0 : options->profile->cores,
        .overlap_rate = set->overlap_slowdown > 1 ? 1 / set->overlap_slowdown : 1, .every_rank = options->every_rank,
    };
    SF_TRY(sf_simulate(program, &sim, arena, &result));
    sf_timeline_summarise(result.spans, result.n_spans, out);
    out->time.step_s = result.step_s;
    out->spans = result.spans;
    out->n_spans = result.n_spans;
    return SF_SUCCESS;
}

sf_status sf_predict(const sf_job *job, const sf_program *program, const sf_predict_options *options, sf_arena *arena, sf_outcome *out)
{
    uint64_t capacity = sf_job_device_bytes(job);

    sf_account(program, capacity, arena, out);
    sf_replay(job, program, capacity, arena, out);
    if (capacity == 0)
        out->verdict = "no memory limit was given";
    if (!out->fits)
        return SF_SUCCESS;
    bool measured_gpu = options->profile != NULL && options->profile->n_sets > 0 && strcmp(options->profile->sets[0].transport, "cuda") == 0;
    if (!job->cluster.gpu.is_host && !(measured_gpu && job->framework == SF_FRAMEWORK_SHARDFIT))
        return sf_predict_time_on_gpu(job, program, options->machine, &(sf_gpu_play){ options->every_rank, options->slow_gpu_share }, arena, out);
    if (options->profile == NULL)
        return SF_SUCCESS; /* bytes are exact without; times need measurements */
    return time_by_profile(program, options, arena, out);
}
