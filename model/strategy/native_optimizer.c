/* Clipping and the update, on the device or offloaded to the host. */
#include "model/strategy/native.h"

static uint64_t instance_elems(const sf_native *n, const sf_native_optimizer *o)
{
    uint64_t padded = n->b.cls->flats[o->flat].padded;
    return o->sharded ? padded / (uint64_t)n->world_size : padded;
}

static int state(sf_native *n, const sf_native_optimizer *o, const char *what, sf_category category, sf_space space, sf_dtype dtype,
                 sf_binding binding)
{
    return sf_build_buffer(&n->b, (sf_buffer){
        .name = sf_arena_printf(n->arena, "%s.%s", o->name, what), .category = category, .space = space, .dtype = dtype,
        .elems = instance_elems(n, o), .count = o->count, .persistent = true, .flat = o->flat, .binding = binding, .sharded = o->sharded,
    });
}

void sf_native_declare_optimizer(sf_native *n, sf_native_optimizer *o)
{
    sf_space space = n->offload ? SF_SPACE_HOST : SF_SPACE_DEVICE;
    bool param_is_f32 = o->param >= 0 && n->b.cls->buffers[o->param].dtype == SF_F32;

    o->host_grad = o->host_param = -1;
    if (param_is_f32 && !n->offload)
        o->master = o->param;
    else
        o->master = state(n, o, "master", SF_CAT_MASTER, space, SF_F32, SF_BIND_MASTER);
    o->moment1 = state(n, o, "m", SF_CAT_OPTIMIZER, space, SF_F32, SF_BIND_MOMENT1);
    o->moment2 = state(n, o, "v", SF_CAT_OPTIMIZER, space, SF_F32, SF_BIND_MOMENT2);
    if (!n->offload)
        return;
    o->host_grad = state(n, o, "host_grad", SF_CAT_GRADIENTS, space, n->b.cls->buffers[o->grad].dtype, SF_BIND_NONE);
    if (!param_is_f32)
        o->host_param = state(n, o, "host_param", SF_CAT_PARAMETERS, space, n->b.cls->buffers[o->param].dtype, SF_BIND_NONE);
}

/* The families' instance of the current layer where there is one per layer, else the only one. */
static sf_arg of(const sf_native *n, const sf_native_optimizer *o, int buffer, sf_access access)
{
    return buffer < 0 ? sf_none() : sf_whole_at(&n->b, buffer, 0, o->count > 1, access);
}

static void each_begin(sf_native *n, const sf_native_optimizer *o)
{
    if (o->count > 1)
        sf_build_repeat(&n->b, SF_LOOP_LAYER, 0, o->count, 1);
}

static void each_end(sf_native *n, const sf_native_optimizer *o)
{
    if (o->count > 1)
        sf_build_end(&n->b);
}

void sf_native_clip(sf_native *n, const sf_native_optimizer *list, size_t count, bool all_reduce)
{
    if (!n->clip)
        return;
    sf_op *zero = sf_build_op(&n->b, SF_OP_ZERO, SF_STREAM_COMPUTE, "norm_sum", SF_ARGS(sf_whole(&n->b, n->norm_sum, SF_WRITE)));
    zero->dims.n = 1;
    zero->bytes = 8;
    zero->launches = 1;
    for (size_t i = 0; i < count; i++) {
        const sf_native_optimizer *o = &list[i];
        each_begin(n, o);
        sf_op *op = sf_build_op(&n->b, SF_OP_SUMSQ, SF_STREAM_COMPUTE, o->name,
                                SF_ARGS(of(n, o, o->grad, SF_READ), sf_whole(&n->b, n->norm_sum, SF_READWRITE)));
        op->dims.n = (int64_t)instance_elems(n, o);
        op->accumulate = SF_ACC_YES;
        op->bytes = instance_elems(n, o) * sf_dtype_bytes(n->b.cls->buffers[o->grad].dtype);
        op->launches = 1;
        each_end(n, o);
    }
    if (all_reduce) {
        sf_build_join(&n->b, SF_STREAM_COMPUTE, SF_STREAM_COMM);
        sf_native_collective(n, SF_OP_ALL_REDUCE, "norm_sum", 1, SF_ARGS(sf_whole(&n->b, n->norm_sum, SF_READWRITE)));
        sf_build_join(&n->b, SF_STREAM_COMM, SF_STREAM_COMPUTE);
    }
}

static void adamw(sf_native *n, const sf_native_optimizer *o, sf_stream stream, int grad, int param)
{
    sf_arg sum = n->clip ? sf_whole(&n->b, n->norm_sum, SF_READ) : sf_none();
    sf_op *op = sf_build_op(&n->b, SF_OP_ADAMW, stream, o->name,
                            SF_ARGS(of(n, o, grad, SF_READ), of(n, o, o->master, SF_READWRITE), of(n, o, o->moment1, SF_READWRITE),
                                    of(n, o, o->moment2, SF_READWRITE), of(n, o, param, SF_WRITE), sum));
    uint64_t elems = instance_elems(n, o);
    op->dims.n = (int64_t)elems;
    /* read the gradient; read and write master and both moments (24 B); write the parameter */
    op->bytes = elems * (sf_dtype_bytes(n->b.cls->buffers[grad].dtype) + 24 + (param < 0 ? 0 : sf_dtype_bytes(n->b.cls->buffers[param].dtype)));
    op->launches = stream == SF_STREAM_COMPUTE;
}

static void copy(sf_native *n, const sf_native_optimizer *o, sf_op_type type, sf_stream stream, int from, int to)
{
    sf_op *op = sf_build_op(&n->b, type, stream, o->name, SF_ARGS(of(n, o, from, SF_READ), of(n, o, to, SF_WRITE)));
    op->dims.n = (int64_t)instance_elems(n, o);
    op->bytes = instance_elems(n, o) * sf_dtype_bytes(n->b.cls->buffers[from].dtype);
}

/* Gradients go down, the host updates, parameters come up: one instance behind the other. */
static void update_on_host(sf_native *n, const sf_native_optimizer *o)
{
    int down = sf_build_events(&n->b, o->count), updated = sf_build_events(&n->b, o->count);
    int per_layer = o->count > 1;

    each_begin(n, o);
    copy(n, o, SF_OP_COPY_D2H, SF_STREAM_D2H, o->grad, o->host_grad);
    sf_build_record(&n->b, SF_STREAM_D2H, down, per_layer);
    sf_build_wait(&n->b, SF_STREAM_HOST, down, per_layer);
    adamw(n, o, SF_STREAM_HOST, o->host_grad, o->host_param);
    sf_build_record(&n->b, SF_STREAM_HOST, updated, per_layer);
    sf_build_wait(&n->b, SF_STREAM_H2D, updated, per_layer);
    copy(n, o, SF_OP_COPY_H2D, SF_STREAM_H2D, o->host_param >= 0 ? o->host_param : o->master, o->param);
    each_end(n, o);
}

void sf_native_update(sf_native *n, const sf_native_optimizer *list, size_t count)
{
    if (n->offload) {
        sf_build_join(&n->b, SF_STREAM_COMPUTE, SF_STREAM_D2H);
        sf_build_join(&n->b, SF_STREAM_COMPUTE, SF_STREAM_HOST);
        sf_build_join(&n->b, SF_STREAM_COMPUTE, SF_STREAM_H2D);
    }
    for (size_t i = 0; i < count; i++) {
        const sf_native_optimizer *o = &list[i];
        if (n->offload) {
            update_on_host(n, o);
            continue;
        }
        each_begin(n, o);
        adamw(n, o, SF_STREAM_COMPUTE, o->grad, o->master == o->param ? -1 : o->param);
        each_end(n, o);
    }
    if (n->offload)
        sf_build_join(&n->b, SF_STREAM_H2D, SF_STREAM_COMPUTE);
}
