#include "model/desc/job_check.h"

#include "model/base/text.h"

sf_status sf_job_check_frame(const sf_job *job, const char *place)
{
    int64_t s = job->strategy.name, world = job->cluster.gpus_per_node * job->cluster.nodes;
    bool zero = s == SF_STRATEGY_ZERO1 || s == SF_STRATEGY_ZERO2 || s == SF_STRATEGY_ZERO3;

    if (job->framework == SF_FRAMEWORK_PYTORCH && zero)
        return SF_FAIL(SF_EINVAL, "%s: %s is DeepSpeed's; set framework to deepspeed (or shardfit for our executor)", place, sf_strategy_name(s));
    if (job->framework == SF_FRAMEWORK_DEEPSPEED && !zero && s != SF_STRATEGY_DDP)
        return SF_FAIL(SF_EINVAL, "%s: framework deepspeed has zero1, zero2, zero3 and ddp (stage 0), not %s", place, sf_strategy_name(s));
    if (job->cluster.gpu.is_host && job->framework != SF_FRAMEWORK_SHARDFIT)
        return SF_FAIL(SF_EINVAL, "%s: cluster.gpu host runs our own executor; set framework to shardfit", place);
    if (s == SF_STRATEGY_SINGLE && world > 1)
        return SF_FAIL(SF_EINVAL, "%s: strategy single runs on one device, not on gpus_per_node %lld x nodes %lld; choose another strategy or one device",
                       place, (long long)job->cluster.gpus_per_node, (long long)job->cluster.nodes);
    if (s == SF_STRATEGY_DP && job->cluster.nodes > 1)
        return SF_FAIL(SF_EINVAL, "%s: strategy dp is one process in one node, not cluster.nodes %lld; use ddp", place, (long long)job->cluster.nodes);
    if (job->train.tp > 1 || job->train.pp > 1 || job->train.cp > 1 || job->train.ep > 1)
        return SF_FAIL(SF_EUNSUP, "%s: train.tp, pp, cp and ep above 1 are not modelled yet", place);
    return SF_SUCCESS;
}

/* The divisors of n next to x on either side: "4 or 8". n >= 1. */
static const char *divisors_near(int64_t n, int64_t x, sf_arena *arena)
{
    enum { FARTHEST = 1 << 20 };
    int64_t below = x < n ? x : n, above = x;
    while (n % below != 0)
        below--;
    while (above < n && above - x < FARTHEST && n % above != 0)
        above++;
    if (above > n || n % above != 0 || above == below)
        return sf_arena_printf(arena, "%lld", (long long)below);
    return sf_arena_printf(arena, "%lld or %lld", (long long)below, (long long)above);
}

static sf_status check_batch(sf_job *job, bool global_stated, bool accum_stated, const char *place, sf_arena *arena)
{
    sf_train *t = &job->train;
    int64_t ranks = sf_job_world_size(job);
    double product = (double)t->micro_batch * (double)t->grad_accum * (double)ranks;

    if (product > 1e15)
        return SF_FAIL(SF_EINVAL, "%s: train.micro_batch %lld x grad_accum %lld x %lld devices is beyond any batch", place, (long long)t->micro_batch,
                       (long long)t->grad_accum, (long long)ranks);
    if (global_stated && t->global_batch > 0 && !accum_stated) {
        int64_t step = t->micro_batch * ranks;
        if (t->global_batch % ranks != 0)
            return SF_FAIL(SF_EINVAL, "%s: train.global_batch %lld does not spread evenly over %lld devices; try a multiple of %lld", place,
                           (long long)t->global_batch, (long long)ranks, (long long)ranks);
        if (t->global_batch % step != 0)
            return SF_FAIL(SF_EINVAL, "%s: train.micro_batch %lld on %lld devices does not divide train.global_batch %lld; try %s", place,
                           (long long)t->micro_batch, (long long)ranks, (long long)t->global_batch,
                           divisors_near(t->global_batch / ranks, t->micro_batch, arena));
        t->grad_accum = t->global_batch / step;
    }
    int64_t all = t->micro_batch * t->grad_accum * ranks;
    if (global_stated && t->global_batch > 0 && all != t->global_batch)
        return SF_FAIL(SF_EINVAL, "%s: train.micro_batch %lld x grad_accum %lld x %lld devices is %lld, not the stated train.global_batch %lld", place,
                       (long long)t->micro_batch, (long long)t->grad_accum, (long long)ranks, (long long)all, (long long)t->global_batch);
    t->global_batch = all;
    return SF_SUCCESS;
}

static sf_status check_sequence(sf_job *job, const char *place)
{
    sf_train *t = &job->train;
    const sf_sparse_attention *sparse = &job->strategy.sparse;

    if (t->seq_len == 0)
        t->seq_len = job->model.max_positions;
    if (job->model.position == SF_POS_LEARNED && t->seq_len > job->model.max_positions)
        return SF_FAIL(SF_EINVAL, "%s: train.seq_len %lld is more than the %lld learned positions of the model; use at most %lld", place,
                       (long long)t->seq_len, (long long)job->model.max_positions, (long long)job->model.max_positions);
    if (t->seq_len > (int64_t)1 << 24)
        return SF_FAIL(SF_EINVAL, "%s: train.seq_len %lld is beyond %d", place, (long long)t->seq_len, 1 << 24);
    if (sparse->mode != SF_SPARSITY_NONE && t->seq_len % sparse->block != 0)
        return SF_FAIL(SF_EINVAL, "%s: train.seq_len %lld is not a multiple of strategy.sparse_attention.block %lld; use %lld", place, (long long)t->seq_len,
                       (long long)sparse->block, (long long)((t->seq_len / sparse->block + 1) * sparse->block));
    return SF_SUCCESS;
}

/* A group of so many ranks (or so many groups) must tile the ranks. */
static sf_status check_tiling(const sf_job *job, const char *field, int64_t size, const char *place, sf_arena *arena)
{
    int64_t ranks = sf_job_world_size(job);
    if (size > 0 && ranks % size != 0)
        return SF_FAIL(SF_EINVAL, "%s: %s %lld does not divide the %lld ranks; try %s", place, field, (long long)size, (long long)ranks,
                       divisors_near(ranks, size, arena));
    return SF_SUCCESS;
}

static sf_status check_groups(const sf_job *job, const char *place, sf_arena *arena)
{
    const sf_strategy_knobs *k = &job->strategy;
    SF_TRY(check_tiling(job, "strategy.replicate", k->replicate, place, arena));
    SF_TRY(check_tiling(job, "strategy.zero_hpz_partition_size", k->zero_hpz_partition_size, place, arena));
    SF_TRY(check_tiling(job, "strategy.mics_shard_size", k->mics_shard_size, place, arena));
    if (k->reshard_after_forward > 1)
        SF_TRY(check_tiling(job, "strategy.reshard_after_forward", k->reshard_after_forward, place, arena));
    if (k->mics_shard_size > 0 && k->zero_hpz_partition_size > 1)
        return SF_FAIL(SF_EINVAL, "%s: strategy.mics_shard_size and strategy.zero_hpz_partition_size are two ways of the same; set one", place);
    return SF_SUCCESS;
}

static sf_status check_device(const sf_job *job, const char *place)
{
    const sf_gpu *gpu = &job->cluster.gpu;
    if (job->train.precision == SF_PRECISION_FP8_MIXED && !gpu->is_host && gpu->fp8_flops == 0)
        return SF_FAIL(SF_EINVAL, "%s: train.precision fp8-mixed needs fp8 units, which %s has not; use bf16-mixed", place, gpu->name);
    if (job->train.precision == SF_PRECISION_TF32 && !gpu->is_host && gpu->tf32_flops == 0)
        return SF_FAIL(SF_EINVAL, "%s: train.precision tf32 needs tf32 units, which %s has not; use fp32", place, gpu->name);
    return SF_SUCCESS;
}

sf_status sf_job_check(sf_job *job, bool global_batch_stated, bool grad_accum_stated, const char *place, sf_arena *arena)
{
    SF_TRY(check_batch(job, global_batch_stated, grad_accum_stated, place, arena));
    SF_TRY(check_sequence(job, place));
    SF_TRY(check_groups(job, place, arena));
    return check_device(job, place);
}

sf_precision_types sf_precision_describe(int64_t framework, int64_t precision)
{
    bool holds_16bit = framework != SF_FRAMEWORK_PYTORCH; /* DeepSpeed and our executor keep 16-bit parameters and an f32 master */
    switch (precision) {
    case SF_PRECISION_FP16_MIXED:
        return (sf_precision_types){ .compute = SF_F16, .param = holds_16bit ? SF_F16 : SF_F32, .has_master = holds_16bit, .loss_scaling = true };
    case SF_PRECISION_BF16_MIXED:
        return (sf_precision_types){ .compute = SF_BF16, .param = holds_16bit ? SF_BF16 : SF_F32, .has_master = holds_16bit };
    case SF_PRECISION_BF16_AUTOCAST: return (sf_precision_types){ .compute = SF_BF16, .param = SF_F32 };
    case SF_PRECISION_BF16_PURE: return (sf_precision_types){ .compute = SF_BF16, .param = SF_BF16 };
    case SF_PRECISION_FP8_MIXED:
        return (sf_precision_types){ .compute = SF_F8, .param = holds_16bit ? SF_BF16 : SF_F32, .has_master = holds_16bit };
    default: return (sf_precision_types){ .compute = SF_F32, .param = SF_F32 };
    }
}
