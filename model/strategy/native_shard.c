/* Strategies that shard by units: `zero1`, `zero2`, `zero3`, `fsdp`.
 *
 *              parameters     gradients between steps   reduced                       unit
 *   zero1      whole          whole                     all at the end of backward    block
 *   zero2      whole          the rank's shard          behind backward, each micro   block
 *   zero3      shard          the rank's shard          behind backward, each micro   half block
 *   fsdp       shard          shard (no_sync: whole)    behind backward               block
 *
 * A group is what is gathered and reduced in one collective: the ROOT group (embedding, final norm,
 * head) and one instance per layer of the block groups. ROOT stays gathered from the start of a
 * micro-step to the end of its backward, as FSDP's root unit does; zero3 with an untied head gathers
 * embedding and head separately when they are needed.
 *
 * Gathers run on the comm stream one group ahead of compute. With fsdp in mixed precision the shard
 * is f32 and is cast before each gather (sharded master); zero3 keeps 16-bit shards and a master.
 * fsdp's sharding = shard_grad_op keeps what forward gathered until backward has used it.
 * Every padded group is a multiple of world_size, so all shards are equal.
 */
#include <assert.h>

#include "model/strategy/native.h"

typedef enum { SHARD_ZERO1, SHARD_ZERO2, SHARD_ZERO3, SHARD_FSDP } shard_kind;

enum { MAX_GROUPS = 4 };

typedef struct {
    const char *name;
    bool unit[SF_UNIT_COUNT];     /* which units it holds                                      */
    bool per_layer;
    int count;                    /* instances                                                 */
    int flat;
    uint64_t elems, shard;        /* padded, padded / world_size                               */
    int whole;                    /* weights as used: persistent (zero1, 2) or gathered        */
    int cast;                     /* the shard in the compute type, for a gather; or -1        */
    int grad;                     /* whole gradients                                           */
    int grad_shard, reduced;      /* the rank's; what one reduction yields (where it is added) */
    int gathered_event, used_event, written_event, reduced_event;
    sf_native_optimizer optimizer;
} group;

typedef struct {
    shard_kind kind;
    bool gathers;                 /* parameters are sharded                                    */
    bool keep_after_forward;
    bool prefetch_forward, prefetch_backward;
    bool grads_kept;              /* whole gradients stay over micro-steps                     */
    bool reduce_each;             /* reduce in every micro-step                                */
    group groups[MAX_GROUPS];
    int n_groups;
    int group_of[SF_UNIT_COUNT];
} shard;

/* ---- groups and their buffers ---- */

static void add_group(sf_native *n, shard *s, const char *name, bool per_layer, int n_units, const sf_unit *units)
{
    group *g = &s->groups[s->n_groups];
    *g = (group){ .name = name, .per_layer = per_layer, .count = per_layer ? n->n_layers : 1, .cast = -1, .reduced = -1 };
    for (int i = 0; i < n_units; i++) {
        g->unit[units[i]] = true;
        s->group_of[units[i]] = s->n_groups;
    }
    s->n_groups++;
}

static void make_groups(sf_native *n, shard *s)
{
    s->n_groups = 0;
    if (s->kind == SHARD_ZERO3 && !n->tied)
        add_group(n, s, "embed", false, 1, (const sf_unit[]){ SF_UNIT_EMBED });
    else
        add_group(n, s, "root", false, 2, (const sf_unit[]){ SF_UNIT_EMBED, SF_UNIT_HEAD });
    if (s->kind == SHARD_ZERO3) {
        add_group(n, s, "attn", true, 1, (const sf_unit[]){ SF_UNIT_ATTN });
        add_group(n, s, "mlp", true, 1, (const sf_unit[]){ SF_UNIT_MLP });
        if (!n->tied)
            add_group(n, s, "head", false, 1, (const sf_unit[]){ SF_UNIT_HEAD });
    } else {
        add_group(n, s, "block", true, 2, (const sf_unit[]){ SF_UNIT_ATTN, SF_UNIT_MLP });
    }
}

static void lay_out(sf_native *n, group *g)
{
    for (int layer = 0; layer < g->count; layer++) {
        int flat = sf_build_flat(&n->b, g->name);
        if (layer == 0)
            g->flat = flat;
        for (int i = 0; i < SF_SLOT_COUNT; i++) {
            sf_slot slot = (sf_slot)i;
            const sf_slot_info *info = &n->slot[slot];
            if (!g->unit[sf_slot_unit(slot)])
                continue;
            uint64_t at = n->b.cls->flats[flat].elems;
            n->weight[slot] = n->grad[slot] = (sf_location){ .index_layer = g->per_layer, .offset0 = at };
            for (int t = 0; t < info->n_tensors; t++)
                sf_build_flat_add(&n->b, flat, info->tensor[t] + layer * n->tensors_per_layer, info->numel[t], sf_slot_is_matrix(slot));
        }
        sf_build_flat_pad(&n->b, flat, (uint64_t)n->world_size);
    }
    g->elems = n->b.cls->flats[g->flat].padded;
    g->shard = g->elems / (uint64_t)n->world_size;
}

static int buffer(sf_native *n, const group *g, const char *what, sf_buffer proto)
{
    proto.name = sf_arena_printf(n->arena, "%s.%s", g->name, what);
    proto.elems = proto.sharded ? g->shard : g->elems;
    proto.count = g->count;
    proto.flat = g->flat;
    return sf_build_buffer(&n->b, proto);
}

static void declare_group(sf_native *n, const shard *s, group *g)
{
    /* fsdp trains the f32 shard itself; with offload the device keeps what it computes with */
    sf_dtype shard_dtype = s->kind == SHARD_FSDP && !n->offload ? SF_F32 : n->dtype;
    int param;

    lay_out(n, g);
    if (s->gathers) {
        g->whole = buffer(n, g, "gathered", (sf_buffer){ .category = SF_CAT_COMM_BUFFERS, .dtype = n->dtype, .home = SF_STREAM_COMM });
        param = buffer(n, g, "shard", (sf_buffer){ .category = SF_CAT_PARAMETERS, .dtype = shard_dtype, .persistent = true,
                                                   .binding = SF_BIND_PARAM, .sharded = true });
        if (shard_dtype != n->dtype)
            g->cast = buffer(n, g, "cast", (sf_buffer){ .category = SF_CAT_COMM_BUFFERS, .dtype = n->dtype, .home = SF_STREAM_COMM, .sharded = true });
    } else {
        g->whole = buffer(n, g, "params", (sf_buffer){ .category = SF_CAT_PARAMETERS, .dtype = n->dtype, .persistent = true, .binding = SF_BIND_PARAM });
        /* what the rank updates and then gathers; in f32 it is the master itself */
        param = buffer(n, g, "shard", (sf_buffer){ .category = n->dtype == SF_F32 && !n->offload ? SF_CAT_MASTER : SF_CAT_PARAMETERS, .dtype = n->dtype,
                                                   .persistent = true, .binding = SF_BIND_PARAM, .sharded = true });
    }
    g->grad = buffer(n, g, "grads", (sf_buffer){ .category = SF_CAT_GRADIENTS, .dtype = n->dtype, .persistent = s->grads_kept, .binding = SF_BIND_GRAD });
    g->grad_shard = buffer(n, g, "grad_shard", (sf_buffer){ .category = SF_CAT_GRADIENTS, .dtype = n->dtype, .persistent = true,
                                                            .binding = SF_BIND_GRAD, .sharded = true });
    if (s->reduce_each && n->n_micro > 1)
        g->reduced = buffer(n, g, "reduced", (sf_buffer){ .category = SF_CAT_COMM_BUFFERS, .dtype = n->dtype, .home = SF_STREAM_COMM, .sharded = true });
    g->gathered_event = sf_build_events(&n->b, g->count);
    g->used_event = sf_build_events(&n->b, g->count);
    g->written_event = sf_build_events(&n->b, g->count);
    g->reduced_event = sf_build_events(&n->b, g->count);
    g->optimizer = (sf_native_optimizer){ .name = g->name, .flat = g->flat, .count = g->count, .sharded = true, .param = param, .grad = g->grad_shard };
    sf_native_declare_optimizer(n, &g->optimizer);
}

static sf_status declare(sf_native *n)
{
    shard *s = n->state;

    make_groups(n, s);
    for (int i = 0; i < s->n_groups; i++)
        declare_group(n, s, &s->groups[i]);
    for (int i = 0; i < SF_SLOT_COUNT; i++) {
        const group *g = &s->groups[s->group_of[sf_slot_unit((sf_slot)i)]];
        n->weight[i].buffer = g->whole;
        n->grad[i].buffer = g->grad;
    }
    n->grad_accumulate = s->grads_kept && !s->reduce_each && n->n_micro > 1 ? SF_ACC_AFTER_FIRST_MICRO : SF_ACC_NO;
    return SF_SUCCESS;
}

/* ---- a group's instance: of layer `layer + ahead`, or the only one ---- */

typedef struct {
    const group *g;
    int ahead;
    int lo, hi;        /* guard on the layer                    */
    int micro_lo, micro_hi;
} instance;

static instance here(const group *g)
{
    return (instance){ .g = g, .lo = -1, .hi = -1, .micro_lo = -1, .micro_hi = -1 };
}

static sf_arg arg(const sf_native *n, const instance *i, int buffer_index, sf_access access)
{
    return sf_whole_at(&n->b, buffer_index, i->g->per_layer ? i->ahead : 0, i->g->per_layer, access);
}

static sf_op *guard(sf_op *op, const instance *i)
{
    if (i->lo >= 0)
        op->layer_lo = i->lo;
    if (i->hi >= 0)
        op->layer_hi = i->hi;
    if (i->micro_lo >= 0)
        op->micro_lo = i->micro_lo;
    if (i->micro_hi >= 0)
        op->micro_hi = i->micro_hi;
    return op;
}

static void alloc(sf_native *n, const instance *i, int buffer_index)
{
    guard(sf_build_alloc(&n->b, buffer_index, i->g->per_layer ? i->ahead : 0, i->g->per_layer), i);
}

static void release(sf_native *n, const instance *i, int buffer_index)
{
    guard(sf_build_free(&n->b, buffer_index, i->g->per_layer ? i->ahead : 0, i->g->per_layer), i);
}

static void record(sf_native *n, const instance *i, sf_stream stream, int event)
{
    guard(sf_build_record(&n->b, stream, event + (i->g->per_layer ? i->ahead : 0), i->g->per_layer), i);
}

static void await(sf_native *n, const instance *i, sf_stream stream, int event)
{
    guard(sf_build_wait(&n->b, stream, event + (i->g->per_layer ? i->ahead : 0), i->g->per_layer), i);
}

static void element_op(sf_native *n, const instance *i, sf_op_type type, sf_stream stream, int from, int to, sf_access to_access)
{
    uint64_t elems = n->b.cls->buffers[to].elems;
    sf_op *op = guard(sf_build_op(&n->b, type, stream, i->g->name, SF_ARGS(arg(n, i, from, SF_READ), arg(n, i, to, to_access))), i);
    op->dims.n = (int64_t)elems;
    op->bytes = elems * (sf_dtype_bytes(n->b.cls->buffers[from].dtype) + (to_access == SF_READWRITE ? 2 : 1) * sf_dtype_bytes(n->b.cls->buffers[to].dtype));
    op->launches = 1;
}

/* ---- gathering ---- */

static void gather(sf_native *n, const instance *i)
{
    const group *g = i->g;
    int from = g->optimizer.param;

    alloc(n, i, g->whole);
    if (g->cast >= 0) {
        alloc(n, i, g->cast);
        element_op(n, i, SF_OP_CAST, SF_STREAM_COMM, from, g->cast, SF_WRITE);
        from = g->cast;
    }
    guard(sf_native_collective(n, SF_OP_ALL_GATHER, g->name, g->elems, SF_ARGS(arg(n, i, from, SF_READ), arg(n, i, g->whole, SF_WRITE))), i);
    if (g->cast >= 0)
        release(n, i, g->cast);
    record(n, i, SF_STREAM_COMM, g->gathered_event);
}

/* The gathered weights are free when compute is done with them. */
static void drop(sf_native *n, const instance *i)
{
    record(n, i, SF_STREAM_COMPUTE, i->g->used_event);
    await(n, i, SF_STREAM_COMM, i->g->used_event);
    release(n, i, i->g->whole);
}

/* Gathers that are issued at the start of a layer's half, in the direction of travel: the next
 * group of blocks, or the group after the last block. */
static void prefetch(sf_native *n, shard *s, const group *current, bool backward)
{
    int last = n->n_layers - 1;
    const group *attn = &s->groups[s->group_of[SF_UNIT_ATTN]], *mlp = &s->groups[s->group_of[SF_UNIT_MLP]];
    const group *first = backward && !n->recompute ? mlp : attn, *second = first == attn ? mlp : attn;
    instance i;

    if (attn != mlp && current == first) { /* the other half of this layer */
        i = here(second);
        gather(n, &i);
        return;
    }
    i = here(first); /* the next layer */
    i.ahead = backward ? -1 : 1;
    if (backward)
        i.lo = 1;
    else
        i.hi = last - 1;
    if (last > 0)
        gather(n, &i);
    if (!backward && s->group_of[SF_UNIT_HEAD] != s->group_of[SF_UNIT_EMBED]) {
        i = here(&s->groups[s->group_of[SF_UNIT_HEAD]]);
        i.lo = i.hi = last;
        gather(n, &i);
    }
}

/* The first block group that a direction needs. */
static const group *first_block_group(const sf_native *n, const shard *s, bool backward)
{
    return &s->groups[s->group_of[backward && !n->recompute ? SF_UNIT_MLP : SF_UNIT_ATTN]];
}

static void gather_first_block(sf_native *n, shard *s, bool backward)
{
    instance i = here(first_block_group(n, s, backward));
    i.ahead = backward ? n->n_layers - 1 : 0; /* outside the loop the layer is 0 */
    gather(n, &i);
}

/* Called once per unit; true where the unit opens its group in this direction. */
static bool opens(const sf_native *n, const shard *s, sf_unit unit, bool backward)
{
    if (s->group_of[SF_UNIT_ATTN] != s->group_of[SF_UNIT_MLP])
        return true;
    bool attn_first = !backward || n->recompute;
    return unit == (attn_first ? SF_UNIT_ATTN : SF_UNIT_MLP);
}

static bool closes(const shard *s, sf_unit unit, bool backward)
{
    if (s->group_of[SF_UNIT_ATTN] != s->group_of[SF_UNIT_MLP])
        return true;
    return unit == (backward ? SF_UNIT_ATTN : SF_UNIT_MLP);
}

static bool is_block(sf_unit unit)
{
    return unit == SF_UNIT_ATTN || unit == SF_UNIT_MLP;
}

static void forward_begin(sf_native *n, sf_unit unit)
{
    shard *s = n->state;
    const group *g = &s->groups[s->group_of[unit]];
    instance i = here(g);
    bool separate_head = s->group_of[SF_UNIT_HEAD] != s->group_of[SF_UNIT_EMBED];

    if (!s->gathers)
        return;
    if (unit == SF_UNIT_EMBED) {
        gather(n, &i);
        if (s->prefetch_forward)
            gather_first_block(n, s, false);
        await(n, &i, SF_STREAM_COMPUTE, g->gathered_event);
    } else if (unit == SF_UNIT_HEAD && separate_head) {
        if (!s->prefetch_forward)
            gather(n, &i);
        await(n, &i, SF_STREAM_COMPUTE, g->gathered_event);
    } else if (is_block(unit) && opens(n, s, unit, false)) {
        if (s->prefetch_forward)
            prefetch(n, s, g, false);
        else
            gather(n, &i);
        await(n, &i, SF_STREAM_COMPUTE, g->gathered_event);
    }
}

static void forward_end(sf_native *n, sf_unit unit)
{
    shard *s = n->state;
    instance i = here(&s->groups[s->group_of[unit]]);

    if (!s->gathers)
        return;
    if (is_block(unit) && closes(s, unit, false) && !s->keep_after_forward)
        drop(n, &i);
    if (unit == SF_UNIT_EMBED && s->group_of[SF_UNIT_HEAD] != s->group_of[SF_UNIT_EMBED])
        drop(n, &i); /* its backward needs no weights */
}

/* ---- gradients ---- */

/* The gradients of this instance, complete on the compute stream, become the rank's sum. */
static void reduce(sf_native *n, const shard *s, const instance *at)
{
    const group *g = at->g;
    instance i = *at;

    if (!s->reduce_each)
        i.micro_lo = n->n_micro - 1;
    record(n, &i, SF_STREAM_COMPUTE, g->written_event);
    await(n, &i, SF_STREAM_COMM, g->written_event);
    if (g->reduced < 0) {
        guard(sf_native_collective(n, SF_OP_REDUCE_SCATTER, g->name, g->elems,
                                   SF_ARGS(arg(n, &i, g->grad, SF_READ), arg(n, &i, g->grad_shard, SF_WRITE))), &i);
    } else {
        instance first = i, more = i;
        first.micro_hi = 0;
        more.micro_lo = 1;
        guard(sf_native_collective(n, SF_OP_REDUCE_SCATTER, g->name, g->elems,
                                   SF_ARGS(arg(n, &first, g->grad, SF_READ), arg(n, &first, g->grad_shard, SF_WRITE))), &first);
        alloc(n, &more, g->reduced);
        guard(sf_native_collective(n, SF_OP_REDUCE_SCATTER, g->name, g->elems,
                                   SF_ARGS(arg(n, &more, g->grad, SF_READ), arg(n, &more, g->reduced, SF_WRITE))), &more);
        element_op(n, &more, SF_OP_ACCUMULATE, SF_STREAM_COMM, g->reduced, g->grad_shard, SF_READWRITE);
        release(n, &more, g->reduced);
    }
    record(n, &i, SF_STREAM_COMM, g->reduced_event);
}

static void drop_grads(sf_native *n, const instance *i)
{
    await(n, i, SF_STREAM_COMPUTE, i->g->reduced_event);
    release(n, i, i->g->grad);
}

/* The instance that backward finished just before this one keeps its gradients while they are
 * reduced; it is let go here, so at most two are alive. */
static void drop_previous_grads(sf_native *n, const shard *s, const group *g)
{
    const group *attn = &s->groups[s->group_of[SF_UNIT_ATTN]], *mlp = &s->groups[s->group_of[SF_UNIT_MLP]];
    instance i = here(attn == mlp ? attn : g == mlp ? attn : mlp);

    if (attn == mlp || g == mlp) { /* of the layer above */
        i.ahead = 1;
        i.hi = n->n_layers - 2;
        if (n->n_layers == 1)
            return;
    }
    drop_grads(n, &i);
}

static void backward_begin(sf_native *n, sf_unit unit)
{
    shard *s = n->state;
    const group *g = &s->groups[s->group_of[unit]];
    instance i = here(g);
    bool separate_head = s->group_of[SF_UNIT_HEAD] != s->group_of[SF_UNIT_EMBED];

    if (s->gathers && !s->keep_after_forward) {
        if (unit == SF_UNIT_HEAD && s->prefetch_backward)
            gather_first_block(n, s, true);
        if (is_block(unit) && opens(n, s, unit, true)) {
            if (s->prefetch_backward)
                prefetch(n, s, g, true);
            else
                gather(n, &i);
            await(n, &i, SF_STREAM_COMPUTE, g->gathered_event);
        }
    }
    if (s->grads_kept)
        return;
    /* root gradients appear first in the head */
    if (is_block(unit) ? opens(n, s, unit, true) : unit == SF_UNIT_HEAD || separate_head)
        alloc(n, &i, g->grad);
}

static void backward_end(sf_native *n, sf_unit unit)
{
    shard *s = n->state;
    const group *g = &s->groups[s->group_of[unit]];
    instance i = here(g);
    bool separate_head = s->group_of[SF_UNIT_HEAD] != s->group_of[SF_UNIT_EMBED];

    if (is_block(unit)) {
        if (!closes(s, unit, true))
            return;
        if (s->kind != SHARD_ZERO1)
            reduce(n, s, &i);
        if (s->gathers)
            drop(n, &i);
        if (!s->grads_kept)
            drop_previous_grads(n, s, g);
        return;
    }
    if (unit == SF_UNIT_HEAD && !separate_head)
        return; /* root is complete at the embedding */
    if (s->kind != SHARD_ZERO1)
        reduce(n, s, &i);
    if (s->gathers && unit == (separate_head ? SF_UNIT_HEAD : SF_UNIT_EMBED))
        drop(n, &i);
}

static void micro_end(sf_native *n)
{
    shard *s = n->state;

    if (s->kind == SHARD_ZERO1) {
        for (int k = 0; k < s->n_groups; k++) {
            instance i = here(&s->groups[k]);
            if (i.g->per_layer)
                sf_build_repeat(&n->b, SF_LOOP_LAYER, n->n_layers - 1, n->n_layers, -1);
            reduce(n, s, &i);
            if (i.g->per_layer)
                sf_build_end(&n->b);
        }
    }
    if (s->grads_kept) {
        if (s->reduce_each) /* the next micro-step writes the same gradients */
            sf_build_join(&n->b, SF_STREAM_COMM, SF_STREAM_COMPUTE);
        return;
    }
    for (int k = 0; k < s->n_groups; k++) {
        const group *g = &s->groups[k];
        instance i = here(g);
        if (g->per_layer && g != &s->groups[s->group_of[SF_UNIT_ATTN]])
            continue; /* only the last one of backward is left: layer 0's attention */
        drop_grads(n, &i);
    }
}

static void step_end(sf_native *n)
{
    shard *s = n->state;
    sf_native_optimizer list[MAX_GROUPS];

    for (int k = 0; k < s->n_groups; k++)
        list[k] = s->groups[k].optimizer;
    sf_build_join(&n->b, SF_STREAM_COMM, SF_STREAM_COMPUTE);
    sf_native_clip(n, list, (size_t)s->n_groups, true);
    sf_native_update(n, list, (size_t)s->n_groups);
    if (s->gathers)
        return;
    sf_build_join(&n->b, SF_STREAM_COMPUTE, SF_STREAM_COMM);
    for (int k = 0; k < s->n_groups; k++) {
        const group *g = &s->groups[k];
        instance i = here(g);
        if (g->per_layer)
            sf_build_repeat(&n->b, SF_LOOP_LAYER, 0, g->count, 1);
        sf_native_collective(n, SF_OP_ALL_GATHER, g->name, g->elems,
                             SF_ARGS(arg(n, &i, g->optimizer.param, SF_READ), arg(n, &i, g->whole, SF_WRITE)));
        if (g->per_layer)
            sf_build_end(&n->b);
    }
}

/* ---- entries ---- */

static const sf_native_strategy strategy = {
    .declare = declare, .forward_begin = forward_begin, .forward_end = forward_end, .backward_begin = backward_begin,
    .backward_end = backward_end, .micro_end = micro_end, .step_end = step_end,
};

static sf_status lower(const sf_job *job, sf_arena *arena, shard_kind kind, sf_program *out)
{
    sf_native n;
    shard s = { .kind = kind, .gathers = kind == SHARD_ZERO3 || kind == SHARD_FSDP };

    SF_TRY(sf_native_open(job, arena, &n));
    s.keep_after_forward = kind == SHARD_FSDP && n.shard_grad_op;
    s.prefetch_forward = true;
    s.prefetch_backward = n.prefetch_backward;
    s.reduce_each = kind == SHARD_ZERO2 || kind == SHARD_ZERO3 || n.sync_each_micro_step || n.n_micro == 1;
    s.grads_kept = kind == SHARD_ZERO1 || !s.reduce_each;
    SF_TRY(sf_native_program(&n, out));
    out->n_classes = 1;
    out->classes = SF_NEW_ARRAY(arena, sf_class, 1);
    out->classes[0] = (sf_class){ .name = "rank", .n_ranks = n.world_size };
    return sf_native_write(&n, &out->classes[0], &strategy, &s, 0);
}

sf_status sf_lower_zero1(const sf_job *job, sf_arena *arena, sf_program *out)
{
    return lower(job, arena, SHARD_ZERO1, out);
}

sf_status sf_lower_zero2(const sf_job *job, sf_arena *arena, sf_program *out)
{
    return lower(job, arena, SHARD_ZERO2, out);
}

sf_status sf_lower_zero3(const sf_job *job, sf_arena *arena, sf_program *out)
{
    return lower(job, arena, SHARD_ZERO3, out);
}

sf_status sf_lower_fsdp(const sf_job *job, sf_arena *arena, sf_program *out)
{
    return lower(job, arena, SHARD_FSDP, out);
}
