/* FullyShardedDataParallel (FSDP1: torch/distributed/fsdp/_flat_param.py, _runtime_utils.py) and fully_shard (FSDP2:
 * torch/distributed/_composable/fsdp). Units: each block, and a root that holds the tables, the final norm and the head.
 * Memory that these allocate on their own streams is issued, and counted, where the host frees it. */
#include <limits.h>

#include "model/strategy/torch_shard.h"

uint64_t sf_torch_ceil(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

uint64_t sf_torch_rows_shard(const sf_torch_param *p, uint64_t ways)
{
    uint64_t rows = p->rows > 0 ? p->rows : 1;
    return (uint64_t)p->copies * sf_torch_ceil(rows, ways) * (p->numel / rows);
}

uint64_t sf_torch_elems_shard(const sf_torch_param *p, uint64_t ways)
{
    return (uint64_t)p->copies * sf_torch_ceil(p->numel, ways);
}

void sf_torch_comm_kernel(sf_torch *t, const char *label, uint64_t bytes)
{
    sf_op *op = sf_torch_kernel(t, label, sf_torch_none(), bytes, 1);
    op->stream = SF_STREAM_COMM;
}

void sf_torch_copy(sf_torch *t, const char *label, bool to_device, uint64_t bytes)
{
    sf_op *op = sf_build_op(&t->b, to_device ? SF_OP_COPY_H2D : SF_OP_COPY_D2H, to_device ? SF_STREAM_H2D : SF_STREAM_D2H, label, 2,
                            (const sf_arg[]){ sf_none(), sf_none() });
    op->bytes = bytes;
    op->launches = 1;
}

typedef struct {
    uint64_t elems, shard;        /* of the unit, unpadded; of one rank                    */
    int tensors;
    bool root, gathered;
    int event;                    /* of the gather                                          */
    sf_tt whole, buffer;          /* parameters in use; FSDP2: the gather's own buffer      */
    sf_tt shard_grad, unsharded;  /* kept until the step                                    */
    sf_tt reduce_in;              /* FSDP2: held until the next unit's reduction            */
} fsdp_unit;

typedef struct {
    bool two;                     /* FSDP2                                                  */
    uint64_t ways;                /* ranks that share the shards                            */
    bool hybrid, keeps, whole;    /* replicas; parameters stay gathered; NO_SHARD           */
    bool reduces_every, offload;
    bool pre, post, forward_prefetch;
    sf_dtype shard, param, reduce;/* of shards and optimizer; of gathered parameters; of reductions */
    sf_group group;
    fsdp_unit *units;             /* 0: root, 1 + l: block l                                */
    int n_units;
    int done[2];                  /* compute of the last two units: gathers run no further ahead */
    int held;                     /* unit whose reduce_in is held, or -1                    */
    int last_event;
    uint64_t total;               /* of one rank's shards                                   */
} fsdp;

static uint64_t size(sf_dtype d) { return sf_dtype_bytes(d); }

static fsdp_unit *unit_of(fsdp *s, const sf_torch *t, int unit)
{
    return unit >= 1 && unit <= t->n_layers && s->n_units > 1 ? &s->units[unit] : &s->units[0];
}

static void measure(sf_torch *t, fsdp *s)
{
    bool one = t->job->strategy.auto_wrap == SF_AUTO_WRAP_NONE;
    s->n_units = one ? 1 : 1 + t->n_layers;
    s->units = SF_NEW_ARRAY(t->arena, fsdp_unit, s->n_units);
    for (int i = 0; i < s->n_units; i++)
        s->units[i] = (fsdp_unit){ .root = i == 0, .event = -1, .whole = sf_torch_none(), .buffer = sf_torch_none(), .shard_grad = sf_torch_none(),
                                   .unsharded = sf_torch_none(), .reduce_in = sf_torch_none() };
    for (int i = 0; i < t->n_params; i++) {
        fsdp_unit *u = unit_of(s, t, t->params[i].unit);
        if (!s->two && t->job->strategy.use_orig_params) { /* each starts at a multiple of 16 bytes of the gathered type (_flat_param.py, _get_aligned_numel) */
            uint64_t align = 16 / size(s->param);
            u->elems = sf_torch_ceil(u->elems, align) * align;
        }
        u->elems += sf_torch_param_elems(&t->params[i]);
        u->tensors += t->params[i].copies;
        if (s->two)
            u->shard += sf_torch_rows_shard(&t->params[i], s->ways);
    }
    for (int i = 0; i < s->n_units; i++) {
        if (!s->two)
            s->units[i].shard = sf_torch_ceil(s->units[i].elems, s->ways);
        s->total += s->units[i].shard;
    }
}

static uint64_t padded(const fsdp *s, const fsdp_unit *u) { return u->shard * s->ways; }
static bool sync_only_last(const sf_torch *t, const fsdp *s) { return t->n_micro > 1 && !s->reduces_every; }

static void declare(sf_torch *t)
{
    fsdp *s = t->state;
    sf_space space = s->offload ? SF_SPACE_HOST : SF_SPACE_DEVICE;
    measure(t, s);
    sf_torch_persistent(t, "fsdp.shards", SF_CAT_PARAMETERS, space, s->shard, s->total);
    sf_torch_update u = { .elems = s->total, .state = s->shard, .on_host = s->offload };
    sf_torch_declare_moments(t, &u);
    if (s->offload)
        sf_torch_persistent(t, "fsdp.host_grads", SF_CAT_GRADIENTS, SF_SPACE_HOST, s->shard, s->total);
    if (s->whole && s->param != s->shard) /* NO_SHARD keeps its low-precision copy */
        sf_torch_persistent(t, "fsdp.low_precision", SF_CAT_PARAMETERS, SF_SPACE_DEVICE, s->param, s->total);
    for (int i = 0; i < s->n_units && sync_only_last(t, s); i++)
        s->units[i].unsharded = sf_torch_persistent(t, "fsdp.unsharded_grad", SF_CAT_GRADIENTS, SF_SPACE_DEVICE, s->two ? s->reduce : s->param, padded(s, &s->units[i]));
    s->done[0] = s->done[1] = s->held = s->last_event = -1;
}

/* ---- gathering ---- */

static void gather(sf_torch *t, fsdp *s, fsdp_unit *u, bool limited)
{
    if (u->gathered || s->whole)
        return;
    sf_tt cast = sf_torch_none();
    if (limited && s->done[0] >= 0)
        sf_torch_wait(t, SF_STREAM_COMM, s->done[0]);
    if (s->offload) {
        sf_torch_copy(t, "fsdp.shard_in", true, u->shard * size(s->shard));
        sf_torch_wait(t, SF_STREAM_COMM, sf_torch_mark(t, SF_STREAM_H2D));
    }
    if (s->param != s->shard || s->offload) {
        cast = sf_torch_take_on(t, "fsdp.cast_shard", SF_CAT_COMM_BUFFERS, s->param, u->shard, SF_STREAM_COMM);
        sf_torch_comm_kernel(t, "fsdp.cast", u->shard * (size(s->param) + size(s->shard)));
    }
    sf_tt target = sf_torch_take_on(t, s->two ? "fsdp.gather_buffer" : "fsdp.unit", s->two ? SF_CAT_COMM_BUFFERS : SF_CAT_PARAMETERS, s->param, padded(s, u), SF_STREAM_COMM);
    if (s->two)
        u->buffer = target;
    else
        u->whole = target;
    if (s->ways > 1)
        u->event = sf_torch_collective(t, (sf_torch_comm){ .type = SF_OP_ALL_GATHER, .group = s->group, .label = u->root ? "root" : "block", .in = sf_torch_none(),
                                                           .out = target, .elems = padded(s, u), .after = -2 });
    else
        u->event = sf_torch_mark(t, SF_STREAM_COMM);
    sf_torch_give(t, cast);
    u->gathered = true;
}

/* Ready for compute. FSDP2 copies out of the buffer into the parameters' own storage. */
static void use(sf_torch *t, fsdp *s, fsdp_unit *u)
{
    if (s->whole)
        return;
    sf_torch_wait(t, SF_STREAM_COMPUTE, u->event);
    u->event = -1;
    if (!s->two || sf_torch_is(u->whole))
        return;
    u->whole = sf_torch_take(t, "fsdp.unit", SF_CAT_PARAMETERS, s->param, u->elems);
    sf_torch_kernel(t, "fsdp.copy_out", sf_torch_none(), 2 * u->elems * size(s->param), 1);
}

static void drop_buffer(sf_torch *t, fsdp_unit *u)
{
    sf_torch_give(t, u->buffer);
    u->buffer = sf_torch_none();
}

static void reshard(sf_torch *t, fsdp_unit *u)
{
    if (!u->gathered)
        return;
    sf_torch_give(t, u->whole);
    u->whole = sf_torch_none();
    drop_buffer(t, u);
    u->gathered = false;
}

static void note_done(sf_torch *t, fsdp *s)
{
    s->done[0] = s->done[1];
    s->done[1] = sf_torch_mark(t, SF_STREAM_COMPUTE);
}

static bool is_first_of_unit(const sf_torch *t, const fsdp *s, int unit)
{
    return unit == 0 || (unit <= t->n_layers && s->n_units > 1);
}

static void forward_begin(sf_torch *t, int unit)
{
    fsdp *s = t->state;
    fsdp_unit *u = unit_of(s, t, unit);
    if (!is_first_of_unit(t, s, unit))
        return;
    gather(t, s, u, true);
    use(t, s, u);
    if (s->two) { /* the buffer of the unit before was kept until this one's wait */
        if (unit > 1)
            drop_buffer(t, &s->units[unit - 1]);
        if (u->root)
            drop_buffer(t, u);
    }
    if (s->forward_prefetch && unit + 1 <= t->n_layers && s->n_units > 1)
        gather(t, s, &s->units[unit + 1], true);
}

static void forward_end(sf_torch *t, int unit)
{
    fsdp *s = t->state;
    fsdp_unit *u = unit_of(s, t, unit);
    if (unit < 1 || unit > t->n_layers || s->n_units == 1)
        return;
    note_done(t, s);
    if (s->two && unit == t->n_layers)
        drop_buffer(t, u);
    if (s->keeps)
        return;
    if (s->two) {
        sf_torch_give(t, u->whole);
        u->whole = sf_torch_none();
        u->gathered = false;
    } else {
        reshard(t, u);
    }
}

/* ---- backward ---- */

static void backward_begin(sf_torch *t, int unit)
{
    fsdp *s = t->state;
    fsdp_unit *u = unit_of(s, t, unit);
    if (unit < 1 || unit > t->n_layers || s->n_units == 1)
        return;
    if (!sf_torch_is(u->whole) || u->event >= 0) {
        gather(t, s, u, true);
        use(t, s, u);
    }
    if (s->two)
        drop_buffer(t, u);
    if (s->pre && unit > 1)
        gather(t, s, &s->units[unit - 1], true);
}

static sf_tt grad_take(sf_torch *t, int i)
{
    fsdp *s = t->state;
    return t->params[i].grad = sf_torch_take(t, "grad", SF_CAT_GRADIENTS, s->param, sf_torch_param_elems(&t->params[i]));
}

static void grad_done(sf_torch *t, int i, sf_tt grad)
{
    t->params[i].grad = grad;
}

static void give_grads(sf_torch *t, fsdp *s, const fsdp_unit *u)
{
    for (int i = 0; i < t->n_params; i++)
        if (unit_of(s, t, t->params[i].unit) == u) {
            sf_torch_give(t, t->params[i].grad);
            t->params[i].grad = sf_torch_none();
        }
}

static void release_held(sf_torch *t, fsdp *s)
{
    if (s->held < 0)
        return;
    fsdp_unit *u = &s->units[s->held];
    sf_torch_give(t, u->reduce_in);
    u->reduce_in = sf_torch_none();
    s->held = -1;
}

static void guard_from(sf_torch *t, size_t from, int micro_lo)
{
    for (size_t i = from; i < t->b.cls->n_ops; i++) {
        sf_op *op = &t->b.cls->ops[i];
        if (op->type != SF_OP_ALLOC && op->type != SF_OP_FREE && op->type != SF_OP_RECORD && op->type != SF_OP_WAIT)
            op->micro_lo = micro_lo;
    }
}

/* The unit's gradients are whole: reduce, and keep the shard in the optimizer's type. */
static void reduce(sf_torch *t, fsdp *s, fsdp_unit *u)
{
    uint64_t n = padded(s, u);
    sf_tt flat = sf_torch_none(), in;
    size_t from;

    if (!s->two) { /* autograd concatenates the pieces to the flat parameter's gradient */
        flat = sf_torch_take(t, "fsdp.flat_grad", SF_CAT_GRADIENTS, s->param, n);
        sf_torch_kernel(t, "fsdp.flatten", flat, 2 * n * size(s->param), 1);
        give_grads(t, s, u);
    }
    reshard(t, u);
    if (sf_torch_is(u->unsharded)) {
        sf_torch_kernel(t, "fsdp.accumulate", u->unsharded, 3 * n * size(s->param), s->two ? u->tensors : 1);
    }
    from = t->b.cls->n_ops;
    if (s->two)
        release_held(t, s);
    if (s->two || s->param != s->reduce) {
        in = sf_torch_take_on(t, "fsdp.reduce_in", SF_CAT_COMM_BUFFERS, s->reduce, n, SF_STREAM_COMM);
        sf_torch_kernel(t, "fsdp.copy_in", sf_torch_none(), n * (size(s->param) + size(s->reduce)), 1);
    } else {
        in = sf_torch_none();
    }
    if (s->two)
        give_grads(t, s, u);
    int after = sf_torch_mark(t, SF_STREAM_COMPUTE);
    bool first_ever = !sf_torch_is(u->shard_grad);
    sf_tt out = sf_torch_take_on(t, "fsdp.reduce_out", SF_CAT_COMM_BUFFERS, s->reduce, u->shard, SF_STREAM_COMM);
    if (s->whole)
        s->last_event = sf_torch_collective(t, (sf_torch_comm){ .type = SF_OP_ALL_REDUCE, .group = SF_GROUP_WORLD, .label = u->root ? "root" : "block",
                                                                .in = out, .elems = n, .after = after });
    else if (s->ways > 1)
        s->last_event = sf_torch_collective(t, (sf_torch_comm){ .type = SF_OP_REDUCE_SCATTER, .group = s->group, .label = u->root ? "root" : "block",
                                                                .in = sf_torch_none(), .out = out, .elems = n, .after = after });
    if (s->hybrid)
        s->last_event = sf_torch_collective(t, (sf_torch_comm){ .type = SF_OP_ALL_REDUCE, .group = SF_GROUP_CROSS, .label = u->root ? "root" : "block",
                                                                .in = out, .elems = u->shard, .after = -2 });
    sf_torch_comm_kernel(t, "fsdp.cast_grad", u->shard * (size(s->reduce) + size(s->shard)));
    s->last_event = sf_torch_mark(t, SF_STREAM_COMM);
    if (sync_only_last(t, s))
        guard_from(t, from, t->n_micro - 1);
    if (first_ever && !s->offload)
        u->shard_grad = sf_torch_take_micro(t, "fsdp.shard_grad", SF_CAT_GRADIENTS, s->shard, u->shard, 0, 0);
    sf_torch_give(t, out);
    if (s->offload) {
        sf_torch_wait(t, SF_STREAM_D2H, s->last_event);
        sf_torch_copy(t, "fsdp.grad_out", false, u->shard * size(s->shard));
    }
    sf_torch_give(t, flat);
    if (s->two) {
        u->reduce_in = in;
        s->held = (int)(u - s->units);
    } else {
        sf_torch_give(t, in);
    }
}

static void backward_end(sf_torch *t, int unit)
{
    fsdp *s = t->state;
    if (unit > t->n_layers || (s->n_units == 1 && unit != 0))
        return; /* the root's come last */
    if (unit > 0)
        note_done(t, s);
    if (s->post && unit > 1 && s->n_units > 1)
        gather(t, s, &s->units[unit - 1], true);
    reduce(t, s, unit_of(s, t, unit));
}

static void micro_end(sf_torch *t)
{
    fsdp *s = t->state;
    release_held(t, s);
    sf_torch_wait(t, SF_STREAM_COMPUTE, s->last_event);
    if (s->offload)
        sf_torch_wait(t, SF_STREAM_COMPUTE, sf_torch_mark(t, SF_STREAM_D2H));
    s->done[0] = s->done[1] = s->last_event = -1;
}

static void step_end(sf_torch *t)
{
    fsdp *s = t->state;
    int tensors = 0;
    uint64_t largest = 0;
    for (int i = 0; i < s->n_units; i++) {
        tensors += s->units[i].tensors;
        largest = s->units[i].shard > largest ? s->units[i].shard : largest;
    }
    sf_torch_update u = { .elems = s->total, .largest = largest, .tensors = s->two || t->job->strategy.use_orig_params ? tensors : s->n_units,
                          .param = s->shard, .grad = s->shard, .state = s->shard, .on_host = s->offload };
    sf_torch_clip(t, s->total, s->shard, true);
    if (s->offload)
        sf_torch_wait(t, SF_STREAM_HOST, sf_torch_mark(t, SF_STREAM_COMPUTE));
    sf_torch_optimizer(t, &u);
    for (int i = 0; i < s->n_units; i++)
        if (!s->offload)
            sf_torch_give(t, s->units[i].shard_grad);
}

static const sf_torch_hooks hooks = {
    .declare = declare, .forward_begin = forward_begin, .forward_end = forward_end, .backward_begin = backward_begin, .grad_take = grad_take,
    .grad_done = grad_done, .backward_end = backward_end, .micro_end = micro_end, .step_end = step_end,
};

static sf_dtype chosen(int64_t choice, sf_dtype otherwise)
{
    return choice == SF_DTYPE_CHOICE_FP32 ? SF_F32 : choice == SF_DTYPE_CHOICE_FP16 ? SF_F16 : choice == SF_DTYPE_CHOICE_BF16 ? SF_BF16 : otherwise;
}

static sf_status lower(const sf_job *job, sf_arena *arena, bool two, sf_program *out)
{
    const sf_strategy_knobs *k = &job->strategy;
    sf_torch *t = SF_NEW(arena, sf_torch);
    fsdp *s = SF_NEW(arena, fsdp);
    SF_TRY(sf_torch_open(job, arena, t));
    if (two && k->reshard_after_forward > 1)
        return SF_FAIL(SF_EUNSUP, "strategy.reshard_after_forward %lld: resharding to a smaller group is not modelled yet; true and false are",
                       (long long)k->reshard_after_forward);
    bool pure = sf_precision_describe(job->framework, job->train.precision).param != SF_F32;
    *s = (fsdp){ .two = two, .ways = (uint64_t)t->world_size, .reduces_every = job->train.sync_each_micro_step, .offload = k->cpu_offload };
    s->hybrid = (k->sharding == SF_SHARDING_HYBRID_SHARD || k->sharding == SF_SHARDING_HYBRID_SHARD_ZERO2) && t->world_size > job->cluster.gpus_per_node;
    if (s->hybrid) {
        if (k->replicate > 0 && k->replicate != job->cluster.nodes)
            return SF_FAIL(SF_EUNSUP, "strategy.replicate %lld: shards of a node, one replica a node (%lld), are modelled", (long long)k->replicate,
                           (long long)job->cluster.nodes);
        s->ways = (uint64_t)job->cluster.gpus_per_node;
        s->group = SF_GROUP_LOCAL;
    }
    s->whole = k->sharding == SF_SHARDING_NO_SHARD;
    s->ways = s->whole ? 1 : s->ways;
    s->keeps = k->sharding == SF_SHARDING_SHARD_GRAD_OP || k->sharding == SF_SHARDING_HYBRID_SHARD_ZERO2 || (two && k->reshard_after_forward == 0);
    s->pre = two || k->backward_prefetch == SF_BACKWARD_PREFETCH_PRE;
    s->post = !two && k->backward_prefetch == SF_BACKWARD_PREFETCH_POST;
    s->forward_prefetch = !two && k->forward_prefetch;
    s->shard = pure ? t->weight : SF_F32;
    s->param = chosen(k->param_dtype, t->weight);
    /* reduce_dtype not given: FSDP1 reduces in param_dtype, FSDP2 in the parameters' own (tests/data/oracle/collectives.json) */
    s->reduce = chosen(k->reduce_dtype, two ? s->shard : s->param);
    return sf_torch_write(t, &hooks, s, out);
}

sf_status sf_lower_torch_fsdp(const sf_job *job, sf_arena *arena, sf_program *out) { return lower(job, arena, false, out); }
sf_status sf_lower_torch_fsdp2(const sf_job *job, sf_arena *arena, sf_program *out) { return lower(job, arena, true, out); }
