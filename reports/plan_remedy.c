/* The cheapest change that makes a job fit: each is tried by predicting it. */
#include "model/base/text.h"
#include "model/base/units.h"
#include "reports/plan_impl.h"

typedef struct {
    const char *words;
    sf_override set[2];
    int n;
} change;

/* Cheapest first: what costs nothing but some time, then host memory, then money. */
static const change changes[] = {
    { "micro-batch 1", { { "train.micro_batch", "1" } }, 1 },
    { "a fused loss (train.loss=fused)", { { "train.loss", "fused" } }, 1 },
    { "reducing gradients in every micro-step (train.sync_each_micro_step=true)", { { "train.sync_each_micro_step", "true" } }, 1 },
    { "full recomputation (train.recompute=full)", { { "train.recompute", "full" } }, 1 },
    { "full recomputation and micro-batch 1", { { "train.recompute", "full" }, { "train.micro_batch", "1" } }, 2 },
    { "the optimizer in host memory (strategy.offload_optimizer.device=cpu)", { { "strategy.offload_optimizer.device", "cpu" } }, 1 },
    { "shards in host memory (strategy.cpu_offload=true)", { { "strategy.cpu_offload", "true" } }, 1 },
    { "optimizer and parameters in host memory (strategy.offload_optimizer.device=cpu, strategy.offload_param.device=cpu)",
      { { "strategy.offload_optimizer.device", "cpu" }, { "strategy.offload_param.device", "cpu" } }, 2 },
};

static bool fits_with(const sf_planner_ask *ask, const sf_planner_variant *variant, const sf_override *set, size_t n, sf_outcome *o, sf_arena *scratch)
{
    sf_arena programs = { 0 };
    sf_job job;
    bool fits = false;
    if (sf_planner_read(ask, variant, set, n, scratch, &job).code != SF_OK)
        return false;
    if (sf_planner_far_too_large(&job, &programs) > 0 || sf_planner_probe(&job, scratch, o, &fits).code != SF_OK)
        fits = false;
    sf_job_close(&job);
    sf_arena_free(&programs);
    return fits;
}

/* The settings of the leanest configuration that was found, to which a change is added. */
static size_t settings_of(const sf_job *job, sf_override *set, sf_arena *arena)
{
    size_t n = 0;
    set[n++] = (sf_override){ "train.recompute", sf_recompute_name(job->train.recompute) };
    set[n++] = (sf_override){ "train.attention", sf_attention_name(job->train.attention) };
    set[n++] = (sf_override){ "train.loss", sf_planner_loss_name(job->train.loss) };
    set[n++] = (sf_override){ "train.sync_each_micro_step", job->train.sync_each_micro_step ? "true" : "false" };
    set[n++] = (sf_override){ "train.optimizer", sf_optimizer_name(job->train.optimizer) };
    set[n++] = (sf_override){ "train.micro_batch", sf_arena_printf(arena, "%lld", (long long)job->train.micro_batch) };
    set[n++] = (sf_override){ "train.global_batch", "0" };
    set[n++] = (sf_override){ "train.grad_accum", sf_arena_printf(arena, "%lld", (long long)job->train.grad_accum) };
    return n;
}

enum { MOST_SETTINGS = 16, MOST_GPUS = 4096 };

/* More GPUs of the same kind: a node is filled up to 8, then nodes are added. */
static const char *more_gpus(const sf_planner_ask *ask, const sf_planner_variant *variant, const sf_job *job, sf_override *set, size_t n, sf_arena *arena)
{
    sf_arena scratch = { 0 };
    int64_t per_node = job->cluster.gpus_per_node, nodes = job->cluster.nodes, least = 0;

    while (per_node * nodes * 2 <= MOST_GPUS && least == 0) {
        if (per_node < 8 && nodes == 1)
            per_node *= 2;
        else
            nodes *= 2;
        sf_outcome o;
        set[n] = (sf_override){ "cluster.gpus_per_node", sf_arena_printf(&scratch, "%lld", (long long)per_node) };
        set[n + 1] = (sf_override){ "cluster.nodes", sf_arena_printf(&scratch, "%lld", (long long)nodes) };
        if (fits_with(ask, variant, set, n + 2, &o, &scratch))
            least = per_node * nodes;
        sf_arena_reset(&scratch);
    }
    sf_arena_free(&scratch);
    return least == 0 ? NULL : sf_arena_printf(arena, "%lld of these GPUs instead of %d", (long long)least, sf_job_world_size(job));
}

/* As many GPUs that hold more. */
static const char *larger_gpu(const sf_planner_ask *ask, const sf_planner_variant *variant, const sf_job *job, sf_override *set, size_t n, sf_arena *arena)
{
    static const char *const names[] = { "A100 SXM4 80GB", "H200 SXM", "B200" };
    sf_arena scratch = { 0 };
    const char *words = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && words == NULL && !job->cluster.gpu.is_host; i++) {
        sf_gpu gpu;
        sf_outcome o;
        set[n] = (sf_override){ "cluster.gpu", names[i] };
        if (sf_gpu_find(names[i], 0, &scratch, &gpu).code == SF_OK && gpu.usable_bytes > job->cluster.gpu.usable_bytes &&
            fits_with(ask, variant, set, n + 1, &o, &scratch))
            words = sf_arena_printf(arena, "%s instead of %s", gpu.name, job->cluster.gpu.name);
        sf_arena_reset(&scratch);
    }
    sf_arena_free(&scratch);
    return words;
}

const char *sf_planner_remedy(const sf_planner_ask *ask, const sf_planner_variant *variant, const sf_job *job, sf_arena *arena)
{
    sf_override set[MOST_SETTINGS];
    sf_arena scratch = { 0 };
    size_t n = settings_of(job, set, arena);
    const char *words = NULL;

    for (size_t i = 0; i < sizeof changes / sizeof changes[0] && words == NULL; i++) {
        sf_outcome o;
        for (int k = 0; k < changes[i].n; k++)
            set[n + (size_t)k] = changes[i].set[k];
        if (fits_with(ask, variant, set, n + (size_t)changes[i].n, &o, &scratch))
            words = sf_arena_printf(arena, "%s: %s", changes[i].words, sf_bytes_text(o.memory.device_used_bytes).text);
        sf_arena_reset(&scratch);
    }
    sf_arena_free(&scratch);
    if (words == NULL)
        words = more_gpus(ask, variant, job, set, n, arena);
    return words != NULL ? words : larger_gpu(ask, variant, job, set, n, arena);
}
