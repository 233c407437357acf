#include "exec/cuda/cuda_ops.h"

#include "exec/cuda/kernels.h"

static size_t extent(int64_t n) { return (size_t)n; }

static sf_cuda_stream stream_of(const sf_cuda_context *ctx, const sf_op_call *call)
{
    return sf_cuda_device_stream(ctx->dev, call->issue.op->stream);
}

static void *scratch_of(const sf_cuda_context *ctx, const sf_op_call *call) { return ctx->scratch[call->issue.op->stream]; }

static sf_status launched(const sf_cuda_context *ctx, const sf_op_call *call, int code)
{
    return sf_cuda_device_launched(ctx->dev, code, sf_op_name(call->issue.op->type));
}

/* ---- embedding, norms ---- */

static sf_status embed_fwd(sf_cuda_context *ctx, const sf_op_call *call)
{
    const sf_dims *d = &call->issue.op->dims;
    return launched(ctx, call, sf_cuda_embed_fwd(stream_of(ctx, call), call->dtype[3], call->dtype[1], extent(d->m), extent(d->seq), extent(d->n),
                                                 call->ptr[0], call->ptr[1], call->ptr[2], call->ptr[3]));
}

static sf_status embed_bwd(sf_cuda_context *ctx, const sf_op_call *call)
{
    const sf_op *op = call->issue.op;
    const sf_dims *d = &op->dims;
    bool tied = op->kind == 1;
    return launched(ctx, call, sf_cuda_embed_bwd(stream_of(ctx, call), call->dtype[0], call->dtype[2], extent(d->m), extent(d->seq), extent(d->n),
                                                 extent(d->k), call->ptr[1], call->ptr[0], tied || call->issue.accumulate, call->ptr[2],
                                                 call->issue.accumulate, call->ptr[3], scratch_of(ctx, call)));
}

static sf_status norm_fwd(sf_cuda_context *ctx, const sf_op_call *call)
{
    const sf_op *op = call->issue.op;
    float *stats = call->ptr[4];
    return launched(ctx, call, sf_cuda_norm_fwd(stream_of(ctx, call), call->dtype[0], call->dtype[1], (sf_op_norm)op->kind, extent(op->dims.m),
                                                extent(op->dims.n), call->ptr[0], call->ptr[1], call->ptr[2], ctx->setup->norm_eps, call->ptr[3],
                                                stats, stats + op->dims.m));
}

static sf_status norm_bwd(sf_cuda_context *ctx, const sf_op_call *call)
{
    const sf_op *op = call->issue.op;
    const float *stats = call->ptr[3];
    return launched(ctx, call, sf_cuda_norm_bwd(stream_of(ctx, call), call->dtype[0], call->dtype[2], call->dtype[5], (sf_op_norm)op->kind,
                                                extent(op->dims.m), extent(op->dims.n), call->ptr[0], call->ptr[1], call->ptr[2], stats,
                                                stats + op->dims.m, 1, call->ptr[4], call->issue.accumulate, call->ptr[5], call->ptr[6],
                                                scratch_of(ctx, call)));
}

/* ---- linear: the op's k is the layer's in, n its out ---- */

static sf_status linear_fwd(sf_cuda_context *ctx, const sf_op_call *call)
{
    const sf_dims *d = &call->issue.op->dims;
    return sf_cuda_linear_fwd(ctx->gemm, stream_of(ctx, call), call->dtype[0], call->dtype[3], extent(d->m), extent(d->k), extent(d->n), call->ptr[0],
                              call->ptr[1], call->ptr[2], NULL, call->ptr[3]);
}

static sf_status linear_bwd_x(sf_cuda_context *ctx, const sf_op_call *call)
{
    const sf_dims *d = &call->issue.op->dims;
    return sf_cuda_linear_bwd_x(ctx->gemm, stream_of(ctx, call), call->dtype[0], extent(d->m), extent(d->k), extent(d->n), call->ptr[0], call->ptr[1],
                                call->issue.accumulate, NULL, call->ptr[2]);
}

static sf_status linear_bwd_w(sf_cuda_context *ctx, const sf_op_call *call)
{
    const sf_dims *d = &call->issue.op->dims;
    SF_TRY(sf_cuda_linear_bwd_w(ctx->gemm, stream_of(ctx, call), call->dtype[0], call->dtype[2], extent(d->m), extent(d->k), extent(d->n), call->ptr[0],
                                call->ptr[1], call->issue.accumulate, call->ptr[2]));
    if (call->ptr[3] == NULL)
        return SF_SUCCESS;
    return launched(ctx, call, sf_cuda_bias_grad(stream_of(ctx, call), call->dtype[0], call->dtype[3], extent(d->m), extent(d->n), call->ptr[0],
                                                 call->issue.accumulate, call->ptr[3], scratch_of(ctx, call)));
}

/* ---- attention ---- */

static size_t sequences(const sf_op *op) { return op->dims.seq > 0 ? extent(op->dims.m / op->dims.seq) : 0; }

static sf_status rope(sf_cuda_context *ctx, const sf_op_call *call)
{
    const sf_op *op = call->issue.op;
    return launched(ctx, call, sf_cuda_rope(stream_of(ctx, call), call->dtype[0], extent(op->dims.m), extent(op->dims.seq), extent(op->dims.heads),
                                            extent(op->dims.kv_heads), extent(op->dims.head_dim), (size_t)ctx->setup->rotary_dim, ctx->rope_table,
                                            op->type == SF_OP_ROPE_BWD, call->ptr[0]));
}

static sf_status attn_fwd(sf_cuda_context *ctx, const sf_op_call *call)
{
    const sf_op *op = call->issue.op;
    return launched(ctx, call, sf_cuda_attn_fwd(stream_of(ctx, call), call->dtype[0], sequences(op), extent(op->dims.seq), extent(op->dims.heads),
                                                extent(op->dims.kv_heads), extent(op->dims.head_dim), call->ptr[0], call->ptr[1], call->ptr[2]));
}

static sf_status attn_bwd(sf_cuda_context *ctx, const sf_op_call *call)
{
    const sf_op *op = call->issue.op;
    return launched(ctx, call, sf_cuda_attn_bwd(stream_of(ctx, call), call->dtype[0], sequences(op), extent(op->dims.seq), extent(op->dims.heads),
                                                extent(op->dims.kv_heads), extent(op->dims.head_dim), call->ptr[0], call->ptr[1], call->ptr[2],
                                                call->ptr[3], call->ptr[4], scratch_of(ctx, call)));
}

/* ---- activation, loss, element-wise ---- */

static sf_status act_fwd(sf_cuda_context *ctx, const sf_op_call *call)
{
    const sf_op *op = call->issue.op;
    return launched(ctx, call, sf_cuda_act_fwd(stream_of(ctx, call), call->dtype[0], (sf_op_act)op->kind, extent(op->dims.m), extent(op->dims.n),
                                               call->ptr[0], call->ptr[1]));
}

static sf_status act_bwd(sf_cuda_context *ctx, const sf_op_call *call)
{
    const sf_op *op = call->issue.op;
    return launched(ctx, call, sf_cuda_act_bwd(stream_of(ctx, call), call->dtype[0], (sf_op_act)op->kind, extent(op->dims.m), extent(op->dims.n),
                                               call->ptr[0], call->ptr[1], call->ptr[2]));
}

static sf_status xent(sf_cuda_context *ctx, const sf_op_call *call)
{
    const sf_op *op = call->issue.op;
    return launched(ctx, call, sf_cuda_xent(stream_of(ctx, call), call->dtype[0], extent(op->dims.m), extent(op->dims.n), call->ptr[0], call->ptr[1],
                                            (float)op->scale, call->ptr[2]));
}

static sf_status add(sf_cuda_context *ctx, const sf_op_call *call)
{
    return launched(ctx, call, sf_cuda_add(stream_of(ctx, call), call->dtype[0], extent(call->issue.op->dims.n), call->ptr[0], call->ptr[1], call->ptr[2]));
}

static sf_status accumulate(sf_cuda_context *ctx, const sf_op_call *call)
{
    return launched(ctx, call, sf_cuda_accumulate(stream_of(ctx, call), call->dtype[0], call->dtype[1], extent(call->issue.op->dims.n), call->ptr[0],
                                                  call->ptr[1]));
}

static sf_status cast(sf_cuda_context *ctx, const sf_op_call *call)
{
    return launched(ctx, call, sf_cuda_cast(stream_of(ctx, call), call->dtype[0], call->dtype[1], extent(call->issue.op->dims.n), call->ptr[0], call->ptr[1]));
}

/* COPY, and copies between the GPU and page-locked host memory. */
static sf_status copy(sf_cuda_context *ctx, const sf_op_call *call)
{
    uint64_t bytes = (uint64_t)call->issue.op->dims.n * sf_dtype_bytes(call->dtype[0]);
    if (call->dtype[0] != call->dtype[1])
        return SF_FAIL(SF_EUNSUP, "%s (%s) copies %s to %s; a copy keeps the type", sf_op_name(call->issue.op->type), call->issue.op->label,
                       sf_dtype_name(call->dtype[0]), sf_dtype_name(call->dtype[1]));
    return sf_cuda_device_copy(ctx->dev, call->issue.op->stream, call->ptr[1], call->ptr[0], bytes);
}

static sf_status zero(sf_cuda_context *ctx, const sf_op_call *call)
{
    return sf_cuda_device_set(ctx->dev, call->issue.op->stream, call->ptr[0], 0, (uint64_t)call->issue.op->dims.n * sf_dtype_bytes(call->dtype[0]));
}

static sf_status sumsq(sf_cuda_context *ctx, const sf_op_call *call)
{
    return launched(ctx, call, sf_cuda_sum_squares(stream_of(ctx, call), call->dtype[0], extent(call->issue.op->dims.n), call->ptr[0],
                                                   call->issue.accumulate, call->ptr[1], scratch_of(ctx, call)));
}

/* ---- optimizer ---- */

/* Where weight decay changes within the next elements, as many as one launch takes; returns how many elements that covers. */
static uint64_t decay_runs(const sf_flat *flat, uint64_t from, uint64_t end, sf_cuda_adamw_step *step)
{
    uint64_t at = from;
    bool decay, first = true, now = false;
    step->n_decay_flips = 0;
    while (at < end) {
        uint64_t len = sf_flat_decay_run(flat, at, end, &decay);
        if (first)
            step->decay_first = decay;
        else if (decay != now && step->n_decay_flips == SF_CUDA_MAX_DECAY_FLIPS)
            break;
        else if (decay != now)
            step->decay_flips[step->n_decay_flips++] = at - from;
        first = false;
        now = decay;
        at += len;
    }
    return at - from;
}

static void *past(void *array, sf_dtype dtype, uint64_t elems) { return array == NULL ? NULL : (char *)array + elems * sf_dtype_bytes(dtype); }

static sf_status adamw(sf_cuda_context *ctx, const sf_op_call *call)
{
    const sf_adamw_setup *o = &ctx->setup->optimizer;
    uint64_t n = call->issue.op->args[1].elems;
    sf_cuda_adamw_step step = { .lr = o->lr, .beta1 = o->beta1, .beta2 = o->beta2, .eps = o->eps, .weight_decay = o->weight_decay, .step = call->step,
                                .grad_scale = 1, .max_norm = o->clip_norm > 0 ? o->clip_norm : 0 };

    for (uint64_t at = 0; at < n;) {
        uint64_t len = decay_runs(call->flat, call->flat_start + at, call->flat_start + n, &step);
        SF_TRY(launched(ctx, call, sf_cuda_adamw(stream_of(ctx, call), &step, len, call->dtype[0], past(call->ptr[0], call->dtype[0], at), call->ptr[5],
                                                 past(call->ptr[1], SF_F32, at), past(call->ptr[2], SF_F32, at), past(call->ptr[3], SF_F32, at),
                                                 call->dtype[4], past(call->ptr[4], call->dtype[4], at))));
        at += len;
    }
    return SF_SUCCESS;
}

const sf_cuda_op sf_cuda_op_rows[SF_OP_COUNT] = {
    [SF_OP_EMBED_FWD] = embed_fwd,
    [SF_OP_NORM_FWD] = norm_fwd,
    [SF_OP_LINEAR_FWD] = linear_fwd,
    [SF_OP_ROPE_FWD] = rope,
    [SF_OP_ATTN_FWD] = attn_fwd,
    [SF_OP_ACT_FWD] = act_fwd,
    [SF_OP_ADD] = add,
    [SF_OP_XENT] = xent,
    [SF_OP_LINEAR_BWD_X] = linear_bwd_x,
    [SF_OP_LINEAR_BWD_W] = linear_bwd_w,
    [SF_OP_NORM_BWD] = norm_bwd,
    [SF_OP_ROPE_BWD] = rope,
    [SF_OP_ATTN_BWD] = attn_bwd,
    [SF_OP_ACT_BWD] = act_bwd,
    [SF_OP_EMBED_BWD] = embed_bwd,
    [SF_OP_ACCUMULATE] = accumulate,
    [SF_OP_CAST] = cast,
    [SF_OP_COPY] = copy,
    [SF_OP_ZERO] = zero,
    [SF_OP_SUMSQ] = sumsq,
    [SF_OP_ADAMW] = adamw,
    [SF_OP_COPY_H2D] = copy,
    [SF_OP_COPY_D2H] = copy,
};

uint64_t sf_cuda_op_scratch_bytes(const sf_class *cls, const sf_op *op)
{
    const sf_dims *d = &op->dims;
    (void)cls;
    switch (op->type) {
    case SF_OP_EMBED_BWD: return sf_cuda_embed_bwd_ws_bytes(extent(d->m), extent(d->k));
    case SF_OP_NORM_BWD: return sf_cuda_norm_bwd_ws_bytes(extent(d->m), extent(d->n));
    case SF_OP_ATTN_BWD: return sf_cuda_attn_bwd_ws_bytes(sequences(op), extent(d->seq), extent(d->heads));
    case SF_OP_SUMSQ: return sf_cuda_sum_squares_ws_bytes(extent(d->n));
    case SF_OP_LINEAR_BWD_W: return op->args[3].buffer >= 0 ? sf_cuda_bias_grad_ws_bytes(extent(d->m), extent(d->n)) : 0;
    default: return 0;
    }
}
