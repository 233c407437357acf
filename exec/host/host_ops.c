#include "exec/host/host_ops.h"

#include <assert.h>
#include <string.h>

#include "exec/data.h"

enum { TILE = 4096 }; /* elements converted at a time */

static size_t extent(int64_t n)
{
    return (size_t)n;
}

static sf_attn_dims attn_dims(const sf_op *op)
{
    return (sf_attn_dims){ .micro_batch = op->dims.seq > 0 ? extent(op->dims.m / op->dims.seq) : 0, .seq_len = extent(op->dims.seq), .heads = extent(op->dims.heads),
                           .kv_heads = extent(op->dims.kv_heads), .head_dim = extent(op->dims.head_dim) };
}

/* The kernels take one type for all arrays of a call. */
static sf_status same_types(const sf_op_call *call, int first, int last)
{
    for (int i = first + 1; i <= last; i++)
        if (call->ptr[i] != NULL && call->dtype[i] != call->dtype[first])
            return SF_FAIL(SF_EUNSUP, "%s (%s) mixes %s and %s: the host's kernel takes one type", sf_op_name(call->issue.op->type),
                           call->issue.op->label, sf_dtype_name(call->dtype[first]), sf_dtype_name(call->dtype[i]));
    return SF_SUCCESS;
}

/* ---- data and embedding ---- */

static sf_status load_batch(sf_host_context *ctx, const sf_op_call *call)
{
    int seq_len = ctx->setup->seq_len;
    uint64_t rows = call->issue.op->args[0].elems;

    sf_data_read(ctx->setup->data, call->first_sequence, (int)(rows / (uint64_t)seq_len), seq_len, call->ptr[0], call->ptr[1]);
    return SF_SUCCESS;
}

static sf_status embed_fwd(sf_host_context *ctx, const sf_op_call *call)
{
    const sf_dims *d = &call->issue.op->dims;

    SF_TRY(same_types(call, 1, 3));
    ctx->kernels.embed_fwd(call->dtype[3], extent(d->m), extent(d->seq), extent(d->n), call->ptr[0], call->ptr[1], call->ptr[2], call->ptr[3]);
    return SF_SUCCESS;
}

static sf_status embed_bwd(sf_host_context *ctx, const sf_op_call *call)
{
    const sf_op *op = call->issue.op;
    const sf_dims *d = &op->dims;
    bool tied = op->kind == 1;

    SF_TRY(same_types(&(sf_op_call){ .issue = call->issue, .ptr = { call->ptr[0], call->ptr[2], call->ptr[3] },
                                     .dtype = { call->dtype[0], call->dtype[2], call->dtype[3] } }, 0, 2));
    ctx->kernels.embed_bwd(call->dtype[0], extent(d->m), extent(d->seq), extent(d->n), extent(d->k), call->ptr[1], call->ptr[0],
                           tied || call->issue.accumulate, call->ptr[2], call->issue.accumulate, call->ptr[3], ctx->scratch[op->stream]);
    return SF_SUCCESS;
}

/* ---- normalisation ---- */

static sf_status norm_fwd(sf_host_context *ctx, const sf_op_call *call)
{
    const sf_op *op = call->issue.op;
    float *stats = call->ptr[4];

    SF_TRY(same_types(call, 0, 3));
    ctx->kernels.norm_fwd(call->dtype[0], (sf_op_norm)op->kind, extent(op->dims.m), extent(op->dims.n), call->ptr[0], call->ptr[1],
                          call->ptr[2], ctx->setup->norm_eps, call->ptr[3], stats, stats + op->dims.m);
    return SF_SUCCESS;
}

static sf_status norm_bwd(sf_host_context *ctx, const sf_op_call *call)
{
    const sf_op *op = call->issue.op;
    const float *stats = call->ptr[3];

    SF_TRY(same_types(call, 0, 2));
    SF_TRY(same_types(call, 4, 6));
    ctx->kernels.norm_bwd(call->dtype[0], (sf_op_norm)op->kind, extent(op->dims.m), extent(op->dims.n), call->ptr[0], call->ptr[1],
                          call->ptr[2], stats, stats + op->dims.m, true, call->ptr[4], call->issue.accumulate, call->ptr[5], call->ptr[6],
                          ctx->scratch[op->stream]);
    return SF_SUCCESS;
}

/* ---- linear: the op's k is the kernel's in, n its out ---- */

static sf_status linear_fwd(sf_host_context *ctx, const sf_op_call *call)
{
    const sf_op *op = call->issue.op;

    SF_TRY(same_types(call, 0, 3));
    ctx->kernels.linear_fwd(call->dtype[0], extent(op->dims.m), extent(op->dims.k), extent(op->dims.n), call->ptr[0], call->ptr[1],
                            call->ptr[2], call->ptr[3], ctx->scratch[op->stream]);
    return SF_SUCCESS;
}

static sf_status linear_bwd_x(sf_host_context *ctx, const sf_op_call *call)
{
    const sf_op *op = call->issue.op;

    SF_TRY(same_types(call, 0, 2));
    ctx->kernels.linear_bwd_x(call->dtype[0], extent(op->dims.m), extent(op->dims.k), extent(op->dims.n), call->ptr[0], call->ptr[1],
                              call->issue.accumulate, call->ptr[2], ctx->scratch[op->stream]);
    return SF_SUCCESS;
}

static sf_status linear_bwd_w(sf_host_context *ctx, const sf_op_call *call)
{
    const sf_op *op = call->issue.op;

    SF_TRY(same_types(call, 0, 3));
    ctx->kernels.linear_bwd_w(call->dtype[0], extent(op->dims.m), extent(op->dims.k), extent(op->dims.n), call->ptr[0], call->ptr[1],
                              call->issue.accumulate, call->ptr[2], call->ptr[3], ctx->scratch[op->stream]);
    return SF_SUCCESS;
}

/* ---- attention ---- */

static sf_status rope_fwd(sf_host_context *ctx, const sf_op_call *call)
{
    sf_attn_dims d = attn_dims(call->issue.op);

    ctx->kernels.rope_fwd(call->dtype[0], &d, (size_t)ctx->setup->rotary_dim, ctx->rope_table, call->ptr[0]);
    return SF_SUCCESS;
}

static sf_status rope_bwd(sf_host_context *ctx, const sf_op_call *call)
{
    sf_attn_dims d = attn_dims(call->issue.op);

    ctx->kernels.rope_bwd(call->dtype[0], &d, (size_t)ctx->setup->rotary_dim, ctx->rope_table, call->ptr[0]);
    return SF_SUCCESS;
}

static sf_status attn_fwd(sf_host_context *ctx, const sf_op_call *call)
{
    sf_attn_dims d = attn_dims(call->issue.op);

    SF_TRY(same_types(call, 0, 1));
    ctx->kernels.attn_fwd(call->dtype[0], &d, call->ptr[0], call->ptr[1], call->ptr[2], ctx->scratch[call->issue.op->stream]);
    return SF_SUCCESS;
}

static sf_status attn_bwd(sf_host_context *ctx, const sf_op_call *call)
{
    sf_attn_dims d = attn_dims(call->issue.op);

    SF_TRY(same_types(call, 0, 2));
    ctx->kernels.attn_bwd(call->dtype[0], &d, call->ptr[0], call->ptr[1], call->ptr[2], call->ptr[3], call->ptr[4],
                          ctx->scratch[call->issue.op->stream]);
    return SF_SUCCESS;
}

/* ---- activation and loss ---- */

static sf_status act_fwd(sf_host_context *ctx, const sf_op_call *call)
{
    const sf_op *op = call->issue.op;

    SF_TRY(same_types(call, 0, 1));
    ctx->kernels.act_fwd(call->dtype[0], (sf_op_act)op->kind, extent(op->dims.m), extent(op->dims.n), call->ptr[0], call->ptr[1]);
    return SF_SUCCESS;
}

static sf_status act_bwd(sf_host_context *ctx, const sf_op_call *call)
{
    const sf_op *op = call->issue.op;

    SF_TRY(same_types(call, 0, 2));
    ctx->kernels.act_bwd(call->dtype[0], (sf_op_act)op->kind, extent(op->dims.m), extent(op->dims.n), call->ptr[0], call->ptr[1], call->ptr[2]);
    return SF_SUCCESS;
}

static sf_status xent(sf_host_context *ctx, const sf_op_call *call)
{
    const sf_op *op = call->issue.op;
    const float *loss = call->ptr[2];

    ctx->kernels.xent(call->dtype[0], extent(op->dims.m), extent(op->dims.n), call->ptr[0], call->ptr[1], (float)op->scale, call->ptr[2]);
    for (int64_t i = 0; i < op->dims.m; i++)
        ctx->loss_sum += (double)loss[i];
    ctx->loss_rows += (uint64_t)op->dims.m;
    return SF_SUCCESS;
}

/* ---- element-wise ---- */

static sf_status add(sf_host_context *ctx, const sf_op_call *call)
{
    SF_TRY(same_types(call, 0, 2));
    ctx->kernels.add(call->dtype[0], extent(call->issue.op->dims.n), call->ptr[0], call->ptr[1], call->ptr[2]);
    return SF_SUCCESS;
}

static sf_status accumulate(sf_host_context *ctx, const sf_op_call *call)
{
    size_t n = extent(call->issue.op->dims.n);
    char *src = call->ptr[0], *dst = call->ptr[1];
    _Alignas(64) char tile[TILE * sizeof(double)];

    if (call->dtype[0] == call->dtype[1]) {
        ctx->kernels.accumulate(call->dtype[0], n, src, dst);
        return SF_SUCCESS;
    }
    for (size_t at = 0; at < n; at += TILE) { /* gradients of the compute type into f32 sums */
        size_t len = n - at < TILE ? n - at : TILE;
        ctx->kernels.cast(call->dtype[0], call->dtype[1], len, src + at * sf_dtype_bytes(call->dtype[0]), tile);
        ctx->kernels.accumulate(call->dtype[1], len, tile, dst + at * sf_dtype_bytes(call->dtype[1]));
    }
    return SF_SUCCESS;
}

static sf_status cast(sf_host_context *ctx, const sf_op_call *call)
{
    ctx->kernels.cast(call->dtype[0], call->dtype[1], extent(call->issue.op->dims.n), call->ptr[0], call->ptr[1]);
    return SF_SUCCESS;
}

/* COPY, and copies between the two spaces, which are both this machine's memory. */
static sf_status copy(sf_host_context *ctx, const sf_op_call *call)
{
    SF_TRY(same_types(call, 0, 1));
    ctx->kernels.copy(call->dtype[0], extent(call->issue.op->dims.n), call->ptr[0], call->ptr[1]);
    return SF_SUCCESS;
}

static sf_status zero(sf_host_context *ctx, const sf_op_call *call)
{
    ctx->kernels.zero(call->dtype[0], extent(call->issue.op->dims.n), call->ptr[0]);
    return SF_SUCCESS;
}

static sf_status sumsq(sf_host_context *ctx, const sf_op_call *call)
{
    double *sum = call->ptr[1];

    *sum = (call->issue.accumulate ? *sum : 0.0) + ctx->kernels.sum_squares(call->dtype[0], extent(call->issue.op->dims.n), call->ptr[0]);
    return SF_SUCCESS;
}

/* ---- optimizer ---- */

static sf_status adamw(sf_host_context *ctx, const sf_op_call *call)
{
    const sf_adamw_setup *o = &ctx->setup->optimizer;
    uint64_t n = call->issue.op->args[1].elems, end = call->flat_start + n;
    sf_adamw step = { .lr = o->lr, .beta1 = o->beta1, .beta2 = o->beta2, .eps = o->eps, .step = call->step,
                      .grad_scale = sf_clip_factor(o, call->ptr[5]) };

    for (uint64_t at = 0; at < n;) { /* runs of equal weight decay */
        bool decay;
        uint64_t len = sf_flat_decay_run(call->flat, call->flat_start + at, end, &decay);
        step.weight_decay = decay ? o->weight_decay : 0.0f;
        ctx->kernels.adamw(&step, len, call->dtype[0], (const char *)call->ptr[0] + at * sf_dtype_bytes(call->dtype[0]),
                           (float *)call->ptr[1] + at, (float *)call->ptr[2] + at, (float *)call->ptr[3] + at, call->dtype[4],
                           call->ptr[4] == NULL ? NULL : (char *)call->ptr[4] + at * sf_dtype_bytes(call->dtype[4]));
        at += len;
    }
    return SF_SUCCESS;
}

/* ---- collectives ---- */

static sf_status one_array(sf_host_context *ctx, const sf_op_call *call)
{
    const sf_op *op = call->issue.op;
    return sf_comm_call(ctx->setup->comm, op->type, op->group, call->dtype[0], call->ptr[0], call->ptr[0], (uint64_t)op->dims.n);
}

static sf_status two_arrays(sf_host_context *ctx, const sf_op_call *call)
{
    const sf_op *op = call->issue.op;
    sf_dtype dtype = call->ptr[0] != NULL ? call->dtype[0] : call->dtype[1];

    SF_TRY(same_types(call, call->ptr[0] != NULL ? 0 : 1, 1));
    return sf_comm_call(ctx->setup->comm, op->type, op->group, dtype, call->ptr[0], call->ptr[1], (uint64_t)op->dims.n);
}

const sf_host_op sf_host_op_rows[SF_OP_COUNT] = {
    [SF_OP_LOAD_BATCH] = load_batch,
    [SF_OP_EMBED_FWD] = embed_fwd,
    [SF_OP_NORM_FWD] = norm_fwd,
    [SF_OP_LINEAR_FWD] = linear_fwd,
    [SF_OP_ROPE_FWD] = rope_fwd,
    [SF_OP_ATTN_FWD] = attn_fwd,
    [SF_OP_ACT_FWD] = act_fwd,
    [SF_OP_ADD] = add,
    [SF_OP_XENT] = xent,
    [SF_OP_LINEAR_BWD_X] = linear_bwd_x,
    [SF_OP_LINEAR_BWD_W] = linear_bwd_w,
    [SF_OP_NORM_BWD] = norm_bwd,
    [SF_OP_ROPE_BWD] = rope_bwd,
    [SF_OP_ATTN_BWD] = attn_bwd,
    [SF_OP_ACT_BWD] = act_bwd,
    [SF_OP_EMBED_BWD] = embed_bwd,
    [SF_OP_ACCUMULATE] = accumulate,
    [SF_OP_CAST] = cast,
    [SF_OP_COPY] = copy,
    [SF_OP_ZERO] = zero,
    [SF_OP_SUMSQ] = sumsq,
    [SF_OP_ADAMW] = adamw,
    [SF_OP_ALL_REDUCE] = one_array,
    [SF_OP_ALL_GATHER] = two_arrays,
    [SF_OP_REDUCE_SCATTER] = two_arrays,
    [SF_OP_BROADCAST] = one_array,
    [SF_OP_REDUCE] = one_array,
    [SF_OP_SCATTER] = two_arrays,
    [SF_OP_GATHER] = two_arrays,
    [SF_OP_ALL_TO_ALL] = two_arrays,
    [SF_OP_COPY_H2D] = copy,
    [SF_OP_COPY_D2H] = copy,
};

size_t sf_host_op_scratch_bytes(const sf_class *cls, const sf_op *op)
{
    const sf_dims *d = &op->dims;
    sf_dtype dtype = op->n_args > 0 && op->args[0].buffer >= 0 ? cls->buffers[op->args[0].buffer].dtype : SF_F32;
    sf_attn_dims attn = attn_dims(op);

    switch (op->type) {
    case SF_OP_EMBED_BWD: return sf_host_embed_bwd_ws_bytes(extent(d->m), extent(d->n));
    case SF_OP_NORM_BWD: return sf_host_norm_bwd_ws_bytes(extent(d->n));
    case SF_OP_LINEAR_FWD:
    case SF_OP_LINEAR_BWD_X:
    case SF_OP_LINEAR_BWD_W: return sf_host_linear_ws_bytes(dtype, extent(d->m), extent(d->k), extent(d->n));
    case SF_OP_ATTN_FWD:
    case SF_OP_ATTN_BWD: return sf_host_attn_ws_bytes(dtype, &attn);
    default: return 0;
    }
}
