/* DeepSpeed's ZeRO (deepspeed/runtime/zero/{stage_1_and_2,stage3,partition_parameters,partitioned_param_coordinator}.py,
 * 0.19) and stage 0 (runtime/fp16/fused_optimizer.py): 16-bit parameters and gradients, an fp32 master and moments in
 * partitions, buckets of reduce_bucket_size elements. Terms bear the names of the code that makes them. */
#include <string.h>
#include <limits.h>

#include "model/strategy/torch_shard.h"

typedef struct {
    uint64_t shard;               /* of one rank, padded parameter by parameter             */
    uint64_t whole;               /* shard * N, without what always stays whole             */
    bool gathered, kept;          /* kept from forward to backward (max_reuse_distance)     */
    int event;
    sf_tt parameters, ahead;      /* ahead: prefetched                                      */
} zero_unit;

typedef struct {
    int stage;
    uint64_t ways;
    sf_dtype half, grad;          /* parameters and gradients; accumulated gradients        */
    bool overlap, contiguous, scatter, host_optimizer, host_params, fp32_flat;
    uint64_t bucket;              /* elements                                               */
    uint64_t partition, flat;     /* elements of one rank's partition; of the padded whole  */
    sf_tt ipg[2], kept_grads, second;
    uint64_t filled;              /* elements in the bucket                                 */
    int params_in;
    int last_event;
    zero_unit *units;             /* stage 3: as torch's units                              */
    bool hpz, qwz;                /* ZeRO++: a second shard inside the node; int8 gathers    */
    uint64_t small;               /* elements that stay whole on every rank                 */
    sf_tt whole;                  /* parameters that every rank has whole                   */
} zero;

static uint64_t size(sf_dtype d) { return sf_dtype_bytes(d); }
static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static bool stays_whole(const sf_torch *t, const sf_torch_param *p)
{
    return (double)p->numel <= t->job->strategy.stage3_param_persistence_threshold;
}

/* ---- what is always there ---- */

static void declare_states(sf_torch *t, zero *s, uint64_t elems)
{
    sf_space where = s->host_optimizer ? SF_SPACE_HOST : SF_SPACE_DEVICE;
    sf_torch_persistent(t, "zero.master", SF_CAT_MASTER, where, SF_F32, elems);
    sf_torch_update u = { .elems = elems, .state = SF_F32, .on_host = s->host_optimizer };
    sf_torch_declare_moments(t, &u);
    if (s->host_optimizer) /* fp32 gradients that the host's Adam reads */
        sf_torch_persistent(t, "zero.host_grads", SF_CAT_GRADIENTS, SF_SPACE_HOST, SF_F32, elems);
}

static void measure_units(sf_torch *t, zero *s)
{
    uint64_t after = 0;
    s->units = SF_NEW_ARRAY(t->arena, zero_unit, t->n_units);
    for (int i = 0; i < t->n_units; i++)
        s->units[i] = (zero_unit){ .event = -1, .parameters = sf_torch_none(), .ahead = sf_torch_none() };
    for (int i = 0; i < t->n_params; i++) {
        const sf_torch_param *p = &t->params[i];
        zero_unit *u = &s->units[p->unit];
        u->shard += sf_torch_elems_shard(p, s->ways);
        if (stays_whole(t, p))
            s->small += sf_torch_param_elems(p);
        else
            u->whole += sf_torch_elems_shard(p, s->ways) * s->ways;
    }
    s->partition = 0;
    for (int i = t->n_units - 1; i >= 0; i--) {
        s->partition += s->units[i].shard;
        /* used again in backward within so many elements of the modules in between, each counted in both passes (max_reuse_distance) */
        s->units[i].kept = 2.0 * (double)after < t->job->strategy.stage3_max_reuse_distance;
        after += t->units[i].elems;
    }
}

static void declare_stage3(sf_torch *t, zero *s)
{
    measure_units(t, s);
    sf_torch_persistent(t, "zero.shards", SF_CAT_PARAMETERS, s->host_params ? SF_SPACE_HOST : SF_SPACE_DEVICE, s->half, s->partition);
    if (s->hpz) { /* each node holds the parameters once more, cut among its GPUs (ZeRO++, arXiv:2306.10209, section 3.2) */
        uint64_t whole = 0;
        for (int i = 0; i < t->n_units; i++)
            whole += s->units[i].whole;
        sf_torch_persistent(t, "zero.secondary_shards", SF_CAT_PARAMETERS, SF_SPACE_DEVICE, s->half, whole / (uint64_t)t->job->cluster.gpus_per_node);
    }
    s->whole = sf_torch_persistent(t, "zero.small_parameters", SF_CAT_PARAMETERS, SF_SPACE_DEVICE, s->half, s->small);
    declare_states(t, s, s->partition);
    if (!s->host_optimizer)
        sf_torch_persistent(t, "zero.grad_partition", SF_CAT_GRADIENTS, SF_SPACE_DEVICE, s->grad, s->partition);
    s->ipg[0] = sf_torch_persistent(t, "zero.ipg_bucket", SF_CAT_COMM_BUFFERS, SF_SPACE_DEVICE, s->half, s->bucket);
}

static void declare(sf_torch *t)
{
    zero *s = t->state;
    s->flat = sf_torch_ceil(t->elems, 2 * s->ways) * 2 * s->ways;
    s->partition = s->stage == 0 ? t->elems : s->flat / s->ways;
    s->last_event = -1;
    for (int i = 0; i < 2; i++)
        s->ipg[i] = sf_torch_none();
    s->kept_grads = s->second = sf_torch_none();
    if (s->stage == 3) {
        declare_stage3(t, s);
        return;
    }
    s->whole = sf_torch_persistent(t, "zero.parameters", SF_CAT_PARAMETERS, SF_SPACE_DEVICE, s->half, s->flat);
    declare_states(t, s, s->partition);
    if (s->fp32_flat) { /* BF16_Optimizer: all gradients in fp32, and the 16-bit ones stay (runtime/bf16_optimizer.py) */
        sf_torch_persistent(t, "zero.fp32_grads", SF_CAT_GRADIENTS, SF_SPACE_DEVICE, SF_F32, s->flat);
        sf_torch_persistent(t, "zero.grads", SF_CAT_GRADIENTS, SF_SPACE_DEVICE, s->half, t->elems);
    }
}

/* ---- stage 3: gathers ---- */

/* `n` elements of a unit, in calls of prefetch_bucket_size: each a flat buffer whose pieces are copied out. */
static sf_tt gather_part(sf_torch *t, zero *s, uint64_t n)
{
    uint64_t at_once = (uint64_t)t->job->strategy.stage3_prefetch_bucket_size, done = 0;
    at_once = at_once == 0 ? n : at_once;
    if (s->host_params) {
        sf_torch_copy(t, "zero.shard_in", true, n / s->ways * size(s->half));
        sf_torch_wait(t, SF_STREAM_COMM, sf_torch_mark(t, SF_STREAM_H2D));
    }
    sf_tt whole = sf_torch_take_on(t, "zero.gathered", SF_CAT_PARAMETERS, s->half, n, SF_STREAM_COMM);
    /* backward gathers from the second shard, in the node and unquantized */
    bool inside = s->hpz && t->b.phase == SF_PHASE_BACKWARD;
    sf_dtype sent = s->qwz && !inside ? SF_U8 : s->half;
    while (done < n) {
        uint64_t part = least(at_once, n - done);
        sf_tt flat = sf_torch_take_on(t, "zero.gather_buffer", SF_CAT_COMM_BUFFERS, sent, part, SF_STREAM_COMM);
        if (sent != s->half)
            sf_torch_comm_kernel(t, "zero.quantize", part / s->ways * (1 + size(s->half)));
        if (s->ways > 1)
            sf_torch_collective(t, (sf_torch_comm){ .type = SF_OP_ALL_GATHER, .group = inside ? SF_GROUP_LOCAL : SF_GROUP_WORLD, .label = "parameters", .in = sf_torch_none(), .out = flat, .elems = part,
                                                    .after = s->overlap ? -2 : -1 });
        sf_torch_comm_kernel(t, "zero.copy_out", 2 * part * size(s->half));
        sf_torch_give(t, flat);
        done += part;
    }
    return whole;
}

/* Prefetching runs so many elements ahead of use; the rest of a unit comes as its turn does. */
static void prefetch(sf_torch *t, zero *s, int unit)
{
    zero_unit *u = &s->units[unit];
    uint64_t n = least((uint64_t)t->job->strategy.stage3_prefetch_bucket_size, u->whole);
    if (!u->gathered && !sf_torch_is(u->ahead) && n > 0)
        u->ahead = gather_part(t, s, n);
}

static void gather(sf_torch *t, zero *s, int unit)
{
    zero_unit *u = &s->units[unit];
    if (u->gathered || u->whole == 0)
        return;
    prefetch(t, s, unit);
    uint64_t rest = u->whole - (sf_torch_is(u->ahead) ? least((uint64_t)t->job->strategy.stage3_prefetch_bucket_size, u->whole) : 0);
    if (rest > 0)
        u->parameters = gather_part(t, s, rest);
    u->event = sf_torch_mark(t, SF_STREAM_COMM);
    u->gathered = true;
}

static void use(sf_torch *t, zero *s, int unit)
{
    zero_unit *u = &s->units[unit];
    gather(t, s, unit);
    sf_torch_wait(t, SF_STREAM_COMPUTE, u->event);
    u->event = -1;
}

static void release(sf_torch *t, zero *s, int unit)
{
    zero_unit *u = &s->units[unit];
    if (!u->gathered)
        return;
    sf_torch_give(t, u->parameters);
    sf_torch_give(t, u->ahead);
    u->parameters = u->ahead = sf_torch_none();
    u->gathered = false;
}

/* DeepSpeed's hooks are Python: for each module with parameters, stage 3 fetches and releases in every pass and reduces in backward,
 * stages 1 and 2 reduce. Host time for a module and micro-step above plain PyTorch's, DeepSpeed 0.19.8 on a CPU with one rank
 * (tests/data/oracle/deepspeed_hooks.json); of stage 3's, a third is taken for each pass and for the reduction. */
static void host_hooks(sf_torch *t, const zero *s, int unit, bool backward)
{
    int modules = 0;
    for (int i = 0; i < t->units[unit].count; i++) /* a bias is its weight's module */
        modules += strstr(sf_role_name(t->params[t->units[unit].first + i].role), "bias") == NULL ? t->params[t->units[unit].first + i].copies : 0;
    static const double module_s[] = { 0.012e-3, 0.058e-3, 0.073e-3, 0.443e-3 };
    double passes = !backward ? 1 : t->recompute || t->selective ? 3 : 2;
    double each = s->stage == 3 ? passes * module_s[3] / 3 : backward ? module_s[s->stage] : 0;
    if (each > 0 && modules > 0)
        sf_torch_kernel(t, "zero.hooks", sf_torch_none(), 0, 0)->host_s = (float)(each * modules);
}

static void forward_begin(sf_torch *t, int unit)
{
    zero *s = t->state;
    host_hooks(t, s, unit, false);
    if (s->stage != 3)
        return;
    use(t, s, unit);
    if (t->model->tied && unit == t->n_units - 1)
        use(t, s, 0);
    if (unit + 1 < t->n_units)
        prefetch(t, s, unit + 1);
}

static void forward_end(sf_torch *t, int unit)
{
    zero *s = t->state;
    if (s->stage != 3)
        return;
    if (!s->units[unit].kept)
        release(t, s, unit);
    if (unit + 1 < t->n_units)
        gather(t, s, unit + 1);
}

static void backward_begin(sf_torch *t, int unit)
{
    zero *s = t->state;
    host_hooks(t, s, unit, true);
    if (unit == t->n_units - 1 && (s->stage == 2 || s->stage == 1) && s->contiguous && !s->fp32_flat) {
        for (int i = 0; i < (s->overlap ? 2 : 1); i++)
            s->ipg[i] = sf_torch_take(t, "zero.ipg_bucket", SF_CAT_COMM_BUFFERS, s->half, s->bucket);
        if (s->stage == 2 && !s->host_optimizer) {
            s->kept_grads = sf_torch_take_micro(t, "zero.grads_in_partition", SF_CAT_GRADIENTS, s->half, s->partition, 0, 0);
            s->second = sf_torch_take_micro(t, "zero.grads_of_micro_step", SF_CAT_GRADIENTS, s->half, s->partition, 1, INT_MAX);
        }
    }
    s->filled = unit == t->n_units - 1 ? 0 : s->filled;
    if (s->stage != 3)
        return;
    use(t, s, unit);
    if (unit > 0)
        prefetch(t, s, unit - 1);
}

/* ---- gradients ---- */

static bool per_micro_step(const zero *s) { return s->stage >= 2; }

/* Reduces what the bucket holds (average_tensor; stage 3: __avg_scatter_grads). */
static void flush(sf_torch *t, zero *s)
{
    uint64_t n = s->filled;
    if (n == 0)
        return;
    s->filled = 0;
    s->params_in = 0;
    if (s->overlap && s->last_event >= 0)
        sf_torch_wait(t, SF_STREAM_COMPUTE, s->last_event); /* at most one reduction is outstanding */
    sf_tt copy = s->scatter || s->stage == 3 ? sf_torch_take_on(t, "zero.reduce_copy", SF_CAT_COMM_BUFFERS, s->half, n, SF_STREAM_COMM) : sf_torch_none();
    sf_torch_kernel(t, "zero.divide_and_copy", sf_torch_none(), 4 * n * size(s->half), 2);
    sf_tt sent = sf_torch_is(copy) ? copy : s->ipg[0];
    if (!sf_torch_is(sent))
        sent = copy = sf_torch_take_on(t, "zero.reduce_copy", SF_CAT_COMM_BUFFERS, s->half, n, SF_STREAM_COMM);
    if (s->ways > 1 && s->stage == 3)
        s->last_event = sf_torch_collective(t, (sf_torch_comm){ .type = SF_OP_REDUCE_SCATTER, .label = "gradients", .in = sf_torch_none(), .out = sent, .elems = n, .after = -1 });
    else if (s->ways > 1)
        s->last_event = sf_torch_collective(t, (sf_torch_comm){ .type = SF_OP_ALL_REDUCE, .label = "gradients", .in = sent, .elems = n, .after = -1 });
    sf_torch_comm_kernel(t, "zero.keep_own", 3 * sf_torch_ceil(n, s->ways) * size(s->half));
    s->last_event = sf_torch_mark(t, SF_STREAM_COMM);
    if (s->host_optimizer) {
        sf_torch_wait(t, SF_STREAM_D2H, s->last_event);
        sf_torch_copy(t, "zero.grad_out", false, sf_torch_ceil(n, s->ways) * size(s->half));
    }
    if (!s->overlap)
        sf_torch_wait(t, SF_STREAM_COMPUTE, s->last_event);
    sf_torch_give(t, copy);
}

static void into_bucket(sf_torch *t, zero *s, uint64_t n)
{
    if (s->filled + n > s->bucket)
        flush(t, s);
    s->filled += n;
    s->params_in++;
    if (n <= s->bucket)
        sf_torch_kernel(t, "zero.into_bucket", sf_torch_none(), 2 * n * size(s->half), 1);
    if (s->filled > s->bucket) /* larger than a bucket: reduced alone, in place */
        flush(t, s);
}

static sf_tt grad_take(sf_torch *t, int i)
{
    zero *s = t->state;
    sf_torch_param *p = &t->params[i];
    bool stays = !per_micro_step(s) && !s->fp32_flat;
    if (stays && t->n_micro > 1)
        return p->grad = sf_torch_take_micro(t, "grad", SF_CAT_GRADIENTS, s->half, sf_torch_param_elems(p), 0, 0);
    return p->grad = sf_torch_take(t, "grad.new", SF_CAT_GRADIENTS, s->half, sf_torch_param_elems(p));
}

static void grad_done(sf_torch *t, int i, sf_tt grad)
{
    zero *s = t->state;
    sf_torch_param *p = &t->params[i];
    uint64_t n = sf_torch_param_elems(p);
    if (s->fp32_flat) {
        sf_torch_kernel(t, "zero.accumulate_fp32", sf_torch_none(), n * (8 + size(s->half)), 1);
        sf_torch_give(t, grad);
    } else if (per_micro_step(s)) {
        uint64_t padded = s->stage == 3 ? sf_torch_elems_shard(p, s->ways) * s->ways : n;
        into_bucket(t, s, padded);
        sf_torch_give(t, grad);
    } else if (t->n_micro > 1) {
        sf_tt fresh = sf_torch_take_micro(t, "grad.new", SF_CAT_GRADIENTS, s->half, n, 1, INT_MAX);
        sf_op *op = sf_torch_kernel(t, "grad.accumulate", grad, 3 * n * size(s->half), 1);
        op->micro_lo = 1;
        sf_torch_give_micro(t, fresh, 1, INT_MAX);
    }
}

static void backward_end(sf_torch *t, int unit)
{
    zero *s = t->state;
    if (s->stage != 3)
        return;
    if (!(t->model->tied && unit == 0))
        release(t, s, unit);
    if (unit > 0)
        gather(t, s, unit - 1);
}

static void give_buckets(sf_torch *t, zero *s)
{
    for (int i = 0; i < 2 && s->stage != 3; i++) {
        sf_torch_give(t, s->ipg[i]);
        s->ipg[i] = sf_torch_none();
    }
}

static void micro_end(sf_torch *t)
{
    zero *s = t->state;
    if (s->stage == 3 && t->model->tied)
        release(t, s, 0);
    if (per_micro_step(s)) {
        flush(t, s);
        sf_torch_wait(t, SF_STREAM_COMPUTE, s->last_event);
        s->last_event = -1;
        if (sf_torch_is(s->second)) {
            sf_op *op = sf_torch_kernel(t, "zero.add_partition", sf_torch_none(), 3 * s->partition * size(s->half), 1);
            op->micro_lo = 1;
            sf_torch_give_micro(t, s->second, 1, INT_MAX);
            s->second = sf_torch_none();
        }
    }
    give_buckets(t, s);
}

/* ---- the step ---- */

/* Stages 0 and 1 reduce at the boundary, after backward: every gradient through the bucket, in forward order. */
static void reduce_at_boundary(sf_torch *t, zero *s)
{
    t->b.phase = SF_PHASE_BACKWARD;
    if (s->fp32_flat) {
        sf_tt half = sf_torch_take(t, "zero.reduce_copy", SF_CAT_COMM_BUFFERS, s->half, s->flat);
        sf_torch_kernel(t, "zero.to16", half, s->flat * (4 + size(s->half)), 1);
        int event = sf_torch_collective(t, (sf_torch_comm){ .type = SF_OP_ALL_REDUCE, .label = "gradients", .in = half, .elems = s->flat, .after = -1 });
        sf_torch_wait(t, SF_STREAM_COMPUTE, event);
        sf_torch_kernel(t, "zero.to32", sf_torch_none(), s->flat * (4 + size(s->half)), 1);
        sf_torch_give(t, half);
    } else {
        if (s->stage == 1)
            s->ipg[0] = sf_torch_take(t, "zero.ipg_bucket", SF_CAT_COMM_BUFFERS, s->half, s->bucket);
        for (int i = 0; i < t->n_params; i++)
            into_bucket(t, s, sf_torch_param_elems(&t->params[i]));
        flush(t, s);
        sf_torch_wait(t, SF_STREAM_COMPUTE, s->last_event);
        give_buckets(t, s);
    }
    t->b.phase = SF_PHASE_OPTIMIZER;
}

static void give_grads(sf_torch *t, zero *s)
{
    for (int i = 0; i < t->n_params && !per_micro_step(s) && !s->fp32_flat; i++)
        sf_torch_give(t, t->params[i].grad);
    sf_torch_give_micro(t, s->kept_grads, INT_MIN, INT_MAX);
    s->kept_grads = sf_torch_none();
}

/* Overflow and norm: one byte and one number over all ranks. */
/* Ranks agree on whether gradients overflowed (a ByteTensor; stage 3 asks under fp16 only) and on their norm, which stage 3 sums in
 * fp64: as many bytes as two f32. */
static void norms(sf_torch *t, zero *s)
{
    uint64_t numbers = s->stage == 3 ? 2 : 1;
    sf_tt number = sf_torch_take(t, "zero.norm", SF_CAT_TEMPORARIES, SF_F32, numbers), flag = sf_torch_none();
    sf_torch_kernel(t, "zero.norm", number, 2 * s->partition * size(s->half), 4);
    if (s->ways > 1 && (s->stage != 3 || t->job->train.precision == SF_PRECISION_FP16_MIXED)) {
        flag = sf_torch_take(t, "zero.overflow", SF_CAT_TEMPORARIES, SF_U8, 1);
        sf_torch_wait(t, SF_STREAM_COMPUTE, sf_torch_collective(t, (sf_torch_comm){ .type = SF_OP_ALL_REDUCE, .label = "overflow", .in = flag, .elems = 1, .after = -1 }));
    }
    if (s->ways > 1)
        sf_torch_wait(t, SF_STREAM_COMPUTE, sf_torch_collective(t, (sf_torch_comm){ .type = SF_OP_ALL_REDUCE, .label = "norm", .in = number, .elems = numbers, .after = -1 }));
    sf_torch_give(t, flag);
    sf_torch_give(t, number);
}

static void step_end(sf_torch *t)
{
    zero *s = t->state;
    bool device = !s->host_optimizer;
    uint64_t n = s->partition;

    if (!per_micro_step(s))
        reduce_at_boundary(t, s);
    norms(t, s);
    /* gradients of a group are flattened, then cast to fp32; stage 0 flattens the fp32 ones */
    uint64_t group = s->stage == 3 ? least(n, (uint64_t)t->job->strategy.sub_group_size) : n;
    sf_torch_update u = { .elems = n, .largest = n, .tensors = 1, .param = SF_F32, .grad = SF_F32, .state = SF_F32, .fused = !t->job->strategy.torch_adam,
                          .on_host = s->host_optimizer };
    if (device && s->fp32_flat) {
        sf_torch_optimizer(t, &u);
    } else if (device) {
        sf_tt flat = s->stage == 0 ? sf_torch_take(t, "step.fp32_list", SF_CAT_TEMPORARIES, SF_F32, group)
                                   : sf_torch_take(t, "step.flat_grads", SF_CAT_TEMPORARIES, s->half, group);
        sf_tt wide = sf_torch_take(t, "step.fp32_grads", SF_CAT_TEMPORARIES, SF_F32, group);
        sf_torch_kernel(t, "step.grads", wide, n * (4 + 3 * size(s->half)), 2);
        sf_torch_give(t, flat);
        give_grads(t, s);
        sf_torch_optimizer(t, &u);
        sf_torch_give(t, wide);
    } else {
        give_grads(t, s);
        sf_torch_wait(t, SF_STREAM_HOST, sf_torch_mark(t, SF_STREAM_COMPUTE));
        sf_torch_wait(t, SF_STREAM_HOST, sf_torch_mark(t, SF_STREAM_D2H));
        sf_torch_optimizer(t, &u);
        if (!s->host_params) {
            sf_torch_wait(t, SF_STREAM_H2D, sf_torch_mark(t, SF_STREAM_HOST));
            sf_torch_copy(t, "zero.parameters_in", true, n * size(s->half));
            sf_torch_wait(t, SF_STREAM_COMPUTE, sf_torch_mark(t, SF_STREAM_H2D));
        } else {
            sf_torch_wait(t, SF_STREAM_COMPUTE, sf_torch_mark(t, SF_STREAM_HOST));
        }
    }
    if (device)
        sf_torch_kernel(t, "step.to16", sf_torch_none(), n * (4 + size(s->half)), 1);
    uint64_t all = s->stage == 3 ? s->small : s->flat;
    if (s->ways > 1 && s->stage > 0 && all > 0)
        sf_torch_wait(t, SF_STREAM_COMPUTE,
                      sf_torch_collective(t, (sf_torch_comm){ .type = SF_OP_ALL_GATHER, .label = s->stage == 3 ? "small parameters" : "parameters", .in = sf_torch_none(),
                                                              .out = s->whole, .elems = all, .after = -1 }));
}

static const sf_torch_hooks hooks = {
    .declare = declare, .forward_begin = forward_begin, .forward_end = forward_end, .backward_begin = backward_begin, .grad_take = grad_take,
    .grad_done = grad_done, .backward_end = backward_end, .micro_end = micro_end, .step_end = step_end,
};

/* What changes bytes or messages and has no model yet is refused by name. */
static sf_status refuse(const sf_job *job)
{
    const sf_strategy_knobs *k = &job->strategy;
    const char *what = k->zero_quantized_gradients                                                             ? "zero_quantized_gradients (ZeRO++)"
                       : k->mics_shard_size > 0                                                                  ? "mics_shard_size (MiCS)"
                       : k->offload_optimizer_device == SF_DEVICE_NVME || k->offload_param_device == SF_DEVICE_NVME ? "offloading to NVMe (ZeRO-Infinity)"
                       : k->sparse.mode != SF_SPARSITY_NONE                                                      ? "sparse_attention"
                       : k->offload_optimizer_super_offload                                                      ? "super_offload"
                                                                                                                 : NULL;
    return what == NULL ? SF_SUCCESS : SF_FAIL(SF_EUNSUP, "%s is not modelled yet; leave it out", what);
}

static sf_status lower(const sf_job *job, sf_arena *arena, int stage, sf_program *out)
{
    const sf_strategy_knobs *k = &job->strategy;
    bool hpz = stage == 3 && k->zero_hpz_partition_size > 1 && job->cluster.nodes > 1;
    if (hpz && k->zero_hpz_partition_size != job->cluster.gpus_per_node)
        return SF_FAIL(SF_EUNSUP, "zero_hpz_partition_size %lld: a secondary shard over the %lld GPUs of a node is modelled, no other size",
                       (long long)k->zero_hpz_partition_size, (long long)job->cluster.gpus_per_node);
    sf_torch *t = SF_NEW(arena, sf_torch);
    zero *s = SF_NEW(arena, zero);
    SF_TRY(refuse(job));
    SF_TRY(sf_torch_open(job, arena, t));
    *s = (zero){ .stage = stage, .ways = (uint64_t)t->world_size, .half = t->weight, .grad = t->weight };
    s->hpz = hpz;
    s->qwz = stage == 3 && k->zero_quantized_weights;
    s->grad = k->grad_accum_dtype == SF_DTYPE_CHOICE_FP32 ? SF_F32 : t->weight;
    s->overlap = stage > 0 && (k->overlap_comm == 1 || (k->overlap_comm == SF_AUTO && stage == 3));
    s->contiguous = stage > 0 && k->contiguous_gradients;
    s->scatter = stage > 0 && k->reduce_scatter;
    s->host_optimizer = stage > 0 && (k->offload_optimizer_device == SF_DEVICE_CPU || (stage == 3 && k->offload_param_device == SF_DEVICE_CPU));
    s->host_params = stage == 3 && k->offload_param_device == SF_DEVICE_CPU;
    s->bucket = stage == 0 ? 500000000u : (uint64_t)k->reduce_bucket_size; /* stage 0: engine.MEMORY_OPT_ALLREDUCE_SIZE */
    s->fp32_flat = stage == 1 && s->half == SF_BF16 && s->grad == SF_F32 && !s->host_optimizer;
    return sf_torch_write(t, &hooks, s, out);
}

sf_status sf_lower_deepspeed_ddp(const sf_job *job, sf_arena *arena, sf_program *out) { return lower(job, arena, 0, out); }
sf_status sf_lower_deepspeed_zero1(const sf_job *job, sf_arena *arena, sf_program *out) { return lower(job, arena, 1, out); }
sf_status sf_lower_deepspeed_zero2(const sf_job *job, sf_arena *arena, sf_program *out) { return lower(job, arena, 2, out); }
sf_status sf_lower_deepspeed_zero3(const sf_job *job, sf_arena *arena, sf_program *out) { return lower(job, arena, 3, out); }
