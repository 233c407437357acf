/* The training loop of our executor, op by op: what each buffer holds is said in native.h. */
#include <assert.h>

#include "model/strategy/native.h"

const sf_slot sf_slot_ready_order[SF_SLOT_COUNT] = {
    SF_SLOT_HEAD_W, SF_SLOT_NORMF_W, SF_SLOT_NORMF_B,
    SF_SLOT_DOWN_W, SF_SLOT_DOWN_B, SF_SLOT_UP_W, SF_SLOT_UP_B, SF_SLOT_NORM2_W, SF_SLOT_NORM2_B,
    SF_SLOT_OUT_W, SF_SLOT_OUT_B, SF_SLOT_QKV_W, SF_SLOT_QKV_B, SF_SLOT_NORM1_W, SF_SLOT_NORM1_B,
    SF_SLOT_WTE, SF_SLOT_WPE,
};

sf_unit sf_slot_unit(sf_slot slot)
{
#define AS_UNIT(id, unit, matrix) SF_UNIT_##unit,
    static const sf_unit units[SF_SLOT_COUNT] = { SF_SLOTS(AS_UNIT) };
#undef AS_UNIT
    return units[slot];
}

bool sf_slot_in_block(sf_slot slot)
{
    sf_unit unit = sf_slot_unit(slot);
    return unit == SF_UNIT_ATTN || unit == SF_UNIT_MLP;
}

bool sf_slot_is_matrix(sf_slot slot)
{
#define AS_MATRIX(id, unit, matrix) matrix,
    static const bool matrices[SF_SLOT_COUNT] = { SF_SLOTS(AS_MATRIX) };
#undef AS_MATRIX
    return matrices[slot];
}

/* ---- arguments ---- */

static sf_arg at_location(const sf_native *n, const sf_location *where, sf_slot slot, sf_access access)
{
    if (n->slot[slot].n_tensors == 0)
        return sf_none();
    sf_arg arg = sf_span_at(where->buffer, where->index0, where->index_layer, where->offset0, n->slot[slot].elems, access);
    arg.offset_layer = where->offset_layer;
    return arg;
}

sf_arg sf_native_weight(const sf_native *n, sf_slot slot)
{
    return at_location(n, &n->weight[slot], slot, SF_READ);
}

sf_arg sf_native_grad(const sf_native *n, sf_slot slot, sf_access access)
{
    return at_location(n, &n->grad[slot], slot, access);
}

/* A per-layer buffer's instance of the current layer (plus `ahead`). */
static sf_arg layer(const sf_native *n, int buffer, int ahead, sf_access access)
{
    return sf_whole_at(&n->b, buffer, ahead, 1, access);
}

static sf_arg one(const sf_native *n, int buffer, sf_access access)
{
    return sf_whole(&n->b, buffer, access);
}

/* ---- ops with their extents and costs ---- */

static uint64_t u(int64_t x)
{
    return (uint64_t)x;
}

static sf_op *put(sf_native *n, sf_op_type type, const char *label, int n_args, const sf_arg *args)
{
    sf_op *op = sf_build_op(&n->b, type, SF_STREAM_COMPUTE, label, n_args, args);
    op->launches = 1;
    return op;
}

static void linear_forward(sf_native *n, const char *label, sf_arg x, sf_slot w, sf_slot bias, sf_arg y, int64_t out, int64_t in)
{
    sf_arg b = bias == SF_SLOT_COUNT ? sf_none() : sf_native_weight(n, bias);
    sf_op *op = put(n, SF_OP_LINEAR_FWD, label, SF_ARGS(x, sf_native_weight(n, w), b, y));
    op->dims = (sf_dims){ .m = n->rows, .n = out, .k = in };
    op->flop = 2 * u(n->rows) * u(out) * u(in);
    op->bytes = (u(n->rows) * u(in) + u(out) * u(in) + u(n->rows) * u(out)) * sf_dtype_bytes(n->dtype);
}

static void ready(sf_native *n, sf_slot slot)
{
    if (slot != SF_SLOT_COUNT && n->slot[slot].n_tensors > 0 && n->strategy->grad_ready != NULL)
        n->strategy->grad_ready(n, slot);
}

/* dW (+)= dy^T x, db (+)= column sums of dy. */
static void linear_backward_weight(sf_native *n, const char *label, sf_arg dy, sf_arg x, sf_slot w, sf_slot bias, int64_t out, int64_t in)
{
    sf_access access = n->grad_accumulate == SF_ACC_NO ? SF_WRITE : SF_READWRITE;
    sf_arg db = bias == SF_SLOT_COUNT ? sf_none() : sf_native_grad(n, bias, access);
    sf_op *op = put(n, SF_OP_LINEAR_BWD_W, label, SF_ARGS(dy, x, sf_native_grad(n, w, access), db));
    op->dims = (sf_dims){ .m = n->rows, .n = out, .k = in };
    op->accumulate = n->grad_accumulate;
    op->flop = 2 * u(n->rows) * u(out) * u(in);
    op->bytes = (u(n->rows) * u(in) + u(out) * u(in) + u(n->rows) * u(out)) * sf_dtype_bytes(n->dtype);
}

static void linear_backward_input(sf_native *n, const char *label, sf_arg dy, sf_slot w, sf_arg dx, int64_t out, int64_t in)
{
    sf_op *op = put(n, SF_OP_LINEAR_BWD_X, label, SF_ARGS(dy, sf_native_weight(n, w), dx));
    op->dims = (sf_dims){ .m = n->rows, .n = out, .k = in };
    op->flop = 2 * u(n->rows) * u(out) * u(in);
    op->bytes = (u(n->rows) * u(in) + u(out) * u(in) + u(n->rows) * u(out)) * sf_dtype_bytes(n->dtype);
}

static void norm_forward(sf_native *n, const char *label, sf_arg x, sf_slot w, sf_slot b, sf_arg y, sf_arg stats)
{
    sf_op *op = put(n, SF_OP_NORM_FWD, label, SF_ARGS(x, sf_native_weight(n, w), sf_native_weight(n, b), y, stats));
    op->dims = (sf_dims){ .m = n->rows, .n = n->hidden };
    op->kind = n->norm_kind;
    op->bytes = 2 * u(n->rows) * u(n->hidden) * sf_dtype_bytes(n->dtype); /* read x, write y */
}

static void norm_backward(sf_native *n, const char *label, sf_arg x, sf_slot w, sf_slot b, sf_arg stats)
{
    sf_access access = n->grad_accumulate == SF_ACC_NO ? SF_WRITE : SF_READWRITE;
    sf_op *op = put(n, SF_OP_NORM_BWD, label, SF_ARGS(one(n, n->buf.dnorm, SF_READ), x, sf_native_weight(n, w), stats,
                    one(n, n->buf.dx, SF_READWRITE), sf_native_grad(n, w, access), sf_native_grad(n, b, access)));
    op->dims = (sf_dims){ .m = n->rows, .n = n->hidden };
    op->kind = n->norm_kind;
    op->accumulate = n->grad_accumulate;
    op->bytes = 4 * u(n->rows) * u(n->hidden) * sf_dtype_bytes(n->dtype); /* read dy, x, dx; write dx */
    ready(n, w);
    ready(n, b);
}

static sf_op *rows_op(sf_native *n, sf_op_type type, const char *label, int64_t width, int passes, int n_args, const sf_arg *args)
{
    sf_op *op = put(n, type, label, n_args, args);
    op->dims = (sf_dims){ .m = n->rows, .n = width };
    op->bytes = (uint64_t)passes * u(n->rows) * u(width) * sf_dtype_bytes(n->dtype);
    return op;
}

static void add(sf_native *n, const char *label, sf_arg a, sf_arg b, sf_arg out)
{
    sf_op *op = put(n, SF_OP_ADD, label, SF_ARGS(a, b, out));
    op->dims.n = n->rows * n->hidden;
    op->bytes = 3 * u(op->dims.n) * sf_dtype_bytes(n->dtype);
}

static void set_attention(const sf_native *n, sf_op *op, int passes)
{
    op->dims = (sf_dims){ .m = n->rows, .batch = n->micro_batch, .heads = (int32_t)n->heads, .kv_heads = (int32_t)n->kv_heads,
                          .head_dim = (int32_t)n->head_dim, .seq = (int32_t)n->seq_len };
    op->bytes = (uint64_t)passes * u(n->rows) * u(n->qkv_width + n->att_width) * sf_dtype_bytes(n->dtype);
}

/* One causal product of scores or values: 2 FLOP for each of T(T+1)/2 pairs and head_dim. */
static uint64_t causal_product_flop(const sf_native *n)
{
    return u(n->micro_batch) * u(n->heads) * u(n->head_dim) * u(n->seq_len) * u(n->seq_len + 1);
}

static void rope(sf_native *n, sf_op_type type, sf_arg qkv)
{
    sf_op *op = put(n, type, "attn.rope", SF_ARGS(qkv));
    op->dims = (sf_dims){ .m = n->rows, .n = n->qkv_width, .heads = (int32_t)n->heads, .kv_heads = (int32_t)n->kv_heads,
                          .head_dim = (int32_t)n->head_dim, .seq = (int32_t)n->seq_len };
    op->bytes = 2 * u(n->rows) * u((n->heads + n->kv_heads) * n->head_dim) * sf_dtype_bytes(n->dtype);
}

static void alloc(sf_native *n, int buffer)
{
    sf_build_alloc(&n->b, buffer, 0, 0);
}

static void release(sf_native *n, int buffer)
{
    sf_build_free(&n->b, buffer, 0, 0);
}

static void alloc_layer(sf_native *n, int buffer, int ahead)
{
    sf_build_alloc(&n->b, buffer, ahead, 1);
}

static void release_layer(sf_native *n, int buffer, int ahead)
{
    sf_build_free(&n->b, buffer, ahead, 1);
}

#define HOOK(n, hook, ...)                                                                         \
    do {                                                                                           \
        if ((n)->strategy->hook != NULL)                                                           \
            (n)->strategy->hook(__VA_ARGS__);                                                      \
    } while (0)

/* ---- one block ---- */

/* keep: whether what backward needs stays allocated. */
static void attention_forward(sf_native *n, bool keep)
{
    const sf_native_buffers *v = &n->buf;

    alloc_layer(n, v->norm1, 0);
    alloc_layer(n, v->stats1, 0);
    norm_forward(n, "attn.norm", layer(n, v->x, 0, SF_READ), SF_SLOT_NORM1_W, SF_SLOT_NORM1_B, layer(n, v->norm1, 0, SF_WRITE),
                 layer(n, v->stats1, 0, SF_WRITE));
    alloc_layer(n, v->qkv, 0);
    linear_forward(n, "attn.qkv", layer(n, v->norm1, 0, SF_READ), SF_SLOT_QKV_W, SF_SLOT_QKV_B, layer(n, v->qkv, 0, SF_WRITE),
                   n->qkv_width, n->hidden);
    if (!keep) {
        release_layer(n, v->norm1, 0);
        release_layer(n, v->stats1, 0);
    }
    if (n->rotary)
        rope(n, SF_OP_ROPE_FWD, layer(n, v->qkv, 0, SF_READWRITE));
    alloc_layer(n, v->att, 0);
    alloc_layer(n, v->lse, 0);
    sf_op *op = put(n, SF_OP_ATTN_FWD, "attn.core",
                    SF_ARGS(layer(n, v->qkv, 0, SF_READ), layer(n, v->att, 0, SF_WRITE), layer(n, v->lse, 0, SF_WRITE)));
    set_attention(n, op, 1);
    op->flop = 2 * causal_product_flop(n);
    if (!keep) {
        release_layer(n, v->qkv, 0);
        release_layer(n, v->lse, 0);
    }
    alloc(n, v->branch);
    linear_forward(n, "attn.out", layer(n, v->att, 0, SF_READ), SF_SLOT_OUT_W, SF_SLOT_OUT_B, one(n, v->branch, SF_WRITE), n->hidden,
                   n->att_width);
    if (!keep)
        release_layer(n, v->att, 0);
    alloc_layer(n, v->mid, 0);
    add(n, "attn.residual", layer(n, v->x, 0, SF_READ), one(n, v->branch, SF_READ), layer(n, v->mid, 0, SF_WRITE));
    release(n, v->branch);
}

/* whole: up to the block's output; a recomputation stops at what backward needs. */
static void mlp_forward(sf_native *n, bool keep, bool whole)
{
    const sf_native_buffers *v = &n->buf;
    bool gated = n->act_kind == SF_OP_ACT_SWIGLU;

    alloc_layer(n, v->norm2, 0);
    alloc_layer(n, v->stats2, 0);
    norm_forward(n, "mlp.norm", layer(n, v->mid, 0, SF_READ), SF_SLOT_NORM2_W, SF_SLOT_NORM2_B, layer(n, v->norm2, 0, SF_WRITE),
                 layer(n, v->stats2, 0, SF_WRITE));
    alloc_layer(n, v->up, 0);
    linear_forward(n, "mlp.up", layer(n, v->norm2, 0, SF_READ), SF_SLOT_UP_W, SF_SLOT_UP_B, layer(n, v->up, 0, SF_WRITE), n->up_width,
                   n->hidden);
    if (!keep) {
        release_layer(n, v->norm2, 0);
        release_layer(n, v->stats2, 0);
    }
    alloc_layer(n, v->act, 0);
    rows_op(n, SF_OP_ACT_FWD, "mlp.act", n->ffn, gated ? 3 : 2, SF_ARGS(layer(n, v->up, 0, SF_READ), layer(n, v->act, 0, SF_WRITE)))
        ->kind = n->act_kind;
    if (!keep)
        release_layer(n, v->up, 0);
    if (!whole)
        return;
    alloc(n, v->branch);
    linear_forward(n, "mlp.down", layer(n, v->act, 0, SF_READ), SF_SLOT_DOWN_W, SF_SLOT_DOWN_B, one(n, v->branch, SF_WRITE), n->hidden,
                   n->ffn);
    if (!keep)
        release_layer(n, v->act, 0);
    alloc_layer(n, v->x, 1);
    add(n, "mlp.residual", layer(n, v->mid, 0, SF_READ), one(n, v->branch, SF_READ), layer(n, v->x, 1, SF_WRITE));
    release(n, v->branch);
    if (!keep)
        release_layer(n, v->mid, 0);
}

static void mlp_backward(sf_native *n)
{
    const sf_native_buffers *v = &n->buf;
    bool gated = n->act_kind == SF_OP_ACT_SWIGLU;

    linear_backward_weight(n, "mlp.down", one(n, v->dx, SF_READ), layer(n, v->act, 0, SF_READ), SF_SLOT_DOWN_W, SF_SLOT_DOWN_B, n->hidden,
                           n->ffn);
    ready(n, SF_SLOT_DOWN_W);
    ready(n, SF_SLOT_DOWN_B);
    release_layer(n, v->act, 0);
    alloc(n, v->dact);
    linear_backward_input(n, "mlp.down", one(n, v->dx, SF_READ), SF_SLOT_DOWN_W, one(n, v->dact, SF_WRITE), n->hidden, n->ffn);
    alloc(n, v->dup);
    rows_op(n, SF_OP_ACT_BWD, "mlp.act", n->ffn, gated ? 5 : 3,
            SF_ARGS(one(n, v->dact, SF_READ), layer(n, v->up, 0, SF_READ), one(n, v->dup, SF_WRITE)))
        ->kind = n->act_kind;
    release(n, v->dact);
    release_layer(n, v->up, 0);
    linear_backward_weight(n, "mlp.up", one(n, v->dup, SF_READ), layer(n, v->norm2, 0, SF_READ), SF_SLOT_UP_W, SF_SLOT_UP_B, n->up_width,
                           n->hidden);
    ready(n, SF_SLOT_UP_W);
    ready(n, SF_SLOT_UP_B);
    release_layer(n, v->norm2, 0);
    alloc(n, v->dnorm);
    linear_backward_input(n, "mlp.up", one(n, v->dup, SF_READ), SF_SLOT_UP_W, one(n, v->dnorm, SF_WRITE), n->up_width, n->hidden);
    release(n, v->dup);
    norm_backward(n, "mlp.norm", layer(n, v->mid, 0, SF_READ), SF_SLOT_NORM2_W, SF_SLOT_NORM2_B, layer(n, v->stats2, 0, SF_READ));
    release(n, v->dnorm);
    release_layer(n, v->stats2, 0);
    release_layer(n, v->mid, 0);
}

static void attention_backward(sf_native *n)
{
    const sf_native_buffers *v = &n->buf;

    linear_backward_weight(n, "attn.out", one(n, v->dx, SF_READ), layer(n, v->att, 0, SF_READ), SF_SLOT_OUT_W, SF_SLOT_OUT_B, n->hidden,
                           n->att_width);
    ready(n, SF_SLOT_OUT_W);
    ready(n, SF_SLOT_OUT_B);
    alloc(n, v->datt);
    linear_backward_input(n, "attn.out", one(n, v->dx, SF_READ), SF_SLOT_OUT_W, one(n, v->datt, SF_WRITE), n->hidden, n->att_width);
    alloc(n, v->dqkv);
    sf_op *op = put(n, SF_OP_ATTN_BWD, "attn.core",
                    SF_ARGS(one(n, v->datt, SF_READ), layer(n, v->qkv, 0, SF_READ), layer(n, v->att, 0, SF_READ),
                            layer(n, v->lse, 0, SF_READ), one(n, v->dqkv, SF_WRITE)));
    set_attention(n, op, 2);
    op->flop = 5 * causal_product_flop(n); /* scores again, dV, dP, dQ, dK */
    release(n, v->datt);
    release_layer(n, v->att, 0);
    release_layer(n, v->lse, 0);
    release_layer(n, v->qkv, 0);
    if (n->rotary)
        rope(n, SF_OP_ROPE_BWD, one(n, v->dqkv, SF_READWRITE));
    linear_backward_weight(n, "attn.qkv", one(n, v->dqkv, SF_READ), layer(n, v->norm1, 0, SF_READ), SF_SLOT_QKV_W, SF_SLOT_QKV_B,
                           n->qkv_width, n->hidden);
    ready(n, SF_SLOT_QKV_W);
    ready(n, SF_SLOT_QKV_B);
    release_layer(n, v->norm1, 0);
    alloc(n, v->dnorm);
    linear_backward_input(n, "attn.qkv", one(n, v->dqkv, SF_READ), SF_SLOT_QKV_W, one(n, v->dnorm, SF_WRITE), n->qkv_width, n->hidden);
    release(n, v->dqkv);
    norm_backward(n, "attn.norm", layer(n, v->x, 0, SF_READ), SF_SLOT_NORM1_W, SF_SLOT_NORM1_B, layer(n, v->stats1, 0, SF_READ));
    release(n, v->dnorm);
    release_layer(n, v->stats1, 0);
    release_layer(n, v->x, 0);
}

/* ---- the whole step ---- */

static void embed_forward(sf_native *n)
{
    const sf_native_buffers *v = &n->buf;
    sf_arg first = sf_whole_at(&n->b, v->x, 0, 0, SF_WRITE);
    bool learned = n->slot[SF_SLOT_WPE].n_tensors > 0;

    sf_build_alloc(&n->b, v->x, 0, 0);
    sf_op *op = put(n, SF_OP_EMBED_FWD, "embed",
                    SF_ARGS(one(n, v->tokens, SF_READ), sf_native_weight(n, SF_SLOT_WTE), sf_native_weight(n, SF_SLOT_WPE), first));
    op->dims = (sf_dims){ .m = n->rows, .n = n->hidden, .k = n->vocab, .seq = (int32_t)n->seq_len, .batch = n->micro_batch };
    op->bytes = (learned ? 3u : 2u) * u(n->rows) * u(n->hidden) * sf_dtype_bytes(n->dtype);
}

static void head_forward(sf_native *n)
{
    const sf_native_buffers *v = &n->buf;
    sf_arg last = sf_whole_at(&n->b, v->x, n->n_layers, 0, SF_READ);

    alloc(n, v->normf);
    alloc(n, v->statsf);
    norm_forward(n, "head.norm", last, SF_SLOT_NORMF_W, SF_SLOT_NORMF_B, one(n, v->normf, SF_WRITE), one(n, v->statsf, SF_WRITE));
    alloc(n, v->logits);
    linear_forward(n, "head.logits", one(n, v->normf, SF_READ), n->tied ? SF_SLOT_WTE : SF_SLOT_HEAD_W, SF_SLOT_COUNT,
                   one(n, v->logits, SF_WRITE), n->vocab, n->hidden);
}

static void local_loss(sf_native *n)
{
    const sf_native_buffers *v = &n->buf;
    sf_op *op = rows_op(n, SF_OP_XENT, "loss", n->vocab, 3,
                        SF_ARGS(one(n, v->logits, SF_READWRITE), one(n, v->targets, SF_READ), one(n, v->loss, SF_WRITE)));
    /* the mean over all tokens of the step, so that no rank divides later */
    op->scale = 1.0 / ((double)n->rows * n->n_micro * n->world_size);
}

static void head_backward(sf_native *n)
{
    const sf_native_buffers *v = &n->buf;
    sf_slot w = n->tied ? SF_SLOT_WTE : SF_SLOT_HEAD_W;

    linear_backward_weight(n, "head.logits", one(n, v->logits, SF_READ), one(n, v->normf, SF_READ), w, SF_SLOT_COUNT, n->vocab, n->hidden);
    if (!n->tied)
        ready(n, w);
    release(n, v->normf);
    alloc(n, v->dnorm);
    linear_backward_input(n, "head.logits", one(n, v->logits, SF_READ), w, one(n, v->dnorm, SF_WRITE), n->vocab, n->hidden);
    release(n, v->logits);
    alloc(n, v->dx);
    sf_op *zero = put(n, SF_OP_ZERO, "dx", SF_ARGS(one(n, v->dx, SF_WRITE)));
    zero->dims.n = n->rows * n->hidden;
    zero->bytes = u(zero->dims.n) * sf_dtype_bytes(n->dtype);
    norm_backward(n, "head.norm", sf_whole_at(&n->b, v->x, n->n_layers, 0, SF_READ), SF_SLOT_NORMF_W, SF_SLOT_NORMF_B,
                  one(n, v->statsf, SF_READ));
    release(n, v->dnorm);
    release(n, v->statsf);
    sf_build_free(&n->b, v->x, n->n_layers, 0);
}

static void embed_backward(sf_native *n)
{
    const sf_native_buffers *v = &n->buf;
    sf_access access = n->grad_accumulate == SF_ACC_NO ? SF_WRITE : SF_READWRITE;
    sf_op *op = put(n, SF_OP_EMBED_BWD, "embed",
                    SF_ARGS(one(n, v->dx, SF_READ), one(n, v->tokens, SF_READ), sf_native_grad(n, SF_SLOT_WTE, n->tied ? SF_READWRITE : access),
                            sf_native_grad(n, SF_SLOT_WPE, access)));
    op->dims = (sf_dims){ .m = n->rows, .n = n->hidden, .k = n->vocab, .seq = (int32_t)n->seq_len, .batch = n->micro_batch };
    op->accumulate = n->grad_accumulate;
    op->kind = n->tied;
    op->bytes = 3 * u(n->rows) * u(n->hidden) * sf_dtype_bytes(n->dtype) +
                (n->tied ? 0 : u(n->vocab) * u(n->hidden) * sf_dtype_bytes(n->dtype)); /* untied: the table's gradient starts at 0 */
    release(n, v->dx);
    ready(n, SF_SLOT_WTE);
    ready(n, SF_SLOT_WPE);
}

static void one_micro_step(sf_native *n)
{
    n->b.phase = SF_PHASE_FORWARD;
    HOOK(n, micro_begin, n);
    HOOK(n, forward_begin, n, SF_UNIT_EMBED);
    embed_forward(n);
    HOOK(n, forward_end, n, SF_UNIT_EMBED);
    sf_build_repeat(&n->b, SF_LOOP_LAYER, 0, n->n_layers, 1);
    HOOK(n, forward_begin, n, SF_UNIT_ATTN);
    attention_forward(n, !n->recompute);
    HOOK(n, forward_end, n, SF_UNIT_ATTN);
    HOOK(n, forward_begin, n, SF_UNIT_MLP);
    mlp_forward(n, !n->recompute, true);
    HOOK(n, forward_end, n, SF_UNIT_MLP);
    sf_build_end(&n->b);
    HOOK(n, forward_begin, n, SF_UNIT_HEAD);
    head_forward(n);
    if (n->strategy->loss != NULL)
        n->strategy->loss(n);
    else
        local_loss(n);

    n->b.phase = SF_PHASE_BACKWARD;
    HOOK(n, backward_begin, n, SF_UNIT_HEAD);
    head_backward(n);
    HOOK(n, backward_end, n, SF_UNIT_HEAD);
    sf_build_repeat(&n->b, SF_LOOP_LAYER, n->n_layers - 1, n->n_layers, -1);
    if (n->recompute) {
        HOOK(n, backward_begin, n, SF_UNIT_ATTN);
        attention_forward(n, true);
        HOOK(n, backward_begin, n, SF_UNIT_MLP);
        mlp_forward(n, true, false);
    } else {
        HOOK(n, backward_begin, n, SF_UNIT_MLP);
    }
    mlp_backward(n);
    HOOK(n, backward_end, n, SF_UNIT_MLP);
    if (!n->recompute)
        HOOK(n, backward_begin, n, SF_UNIT_ATTN);
    attention_backward(n);
    HOOK(n, backward_end, n, SF_UNIT_ATTN);
    sf_build_end(&n->b);
    HOOK(n, backward_begin, n, SF_UNIT_EMBED);
    embed_backward(n);
    HOOK(n, backward_end, n, SF_UNIT_EMBED);
    HOOK(n, micro_end, n);
}

static int activation(sf_native *n, const char *name, sf_category category, sf_dtype dtype, int64_t elems, int count)
{
    return sf_build_buffer(&n->b, (sf_buffer){ .name = name, .category = category, .dtype = dtype, .elems = u(elems), .count = count });
}

static void declare_buffers(sf_native *n)
{
    sf_native_buffers *v = &n->buf;
    int64_t N = n->rows, C = n->hidden;
    int L = n->n_layers;

    v->tokens = activation(n, "tokens", SF_CAT_ACTIVATIONS, SF_I32, N, 1);
    v->targets = activation(n, "targets", SF_CAT_ACTIVATIONS, SF_I32, N, 1);
    v->loss = activation(n, "loss", SF_CAT_ACTIVATIONS, SF_F32, N, 1);
    n->b.cls->buffers[v->tokens].persistent = n->b.cls->buffers[v->targets].persistent = n->b.cls->buffers[v->loss].persistent = true;
    v->x = activation(n, "x", SF_CAT_ACTIVATIONS, n->dtype, N * C, L + 1);
    v->norm1 = activation(n, "norm1", SF_CAT_ACTIVATIONS, n->dtype, N * C, L);
    v->stats1 = activation(n, "stats1", SF_CAT_ACTIVATIONS, SF_F32, 2 * N, L);
    v->qkv = activation(n, "qkv", SF_CAT_ACTIVATIONS, n->dtype, N * n->qkv_width, L);
    v->att = activation(n, "att", SF_CAT_ACTIVATIONS, n->dtype, N * n->att_width, L);
    v->lse = activation(n, "lse", SF_CAT_ACTIVATIONS, SF_F32, N * n->heads, L);
    v->mid = activation(n, "mid", SF_CAT_ACTIVATIONS, n->dtype, N * C, L);
    v->norm2 = activation(n, "norm2", SF_CAT_ACTIVATIONS, n->dtype, N * C, L);
    v->stats2 = activation(n, "stats2", SF_CAT_ACTIVATIONS, SF_F32, 2 * N, L);
    v->up = activation(n, "up", SF_CAT_ACTIVATIONS, n->dtype, N * n->up_width, L);
    v->act = activation(n, "act", SF_CAT_ACTIVATIONS, n->dtype, N * n->ffn, L);
    v->normf = activation(n, "normf", SF_CAT_ACTIVATIONS, n->dtype, N * C, 1);
    v->statsf = activation(n, "statsf", SF_CAT_ACTIVATIONS, SF_F32, 2 * N, 1);
    v->logits = activation(n, "logits", SF_CAT_LOGITS, n->dtype, N * n->vocab, 1);
    v->branch = activation(n, "branch", SF_CAT_TEMPORARIES, n->dtype, N * C, 1);
    v->dx = activation(n, "dx", SF_CAT_TEMPORARIES, n->dtype, N * C, 1);
    v->dnorm = activation(n, "dnorm", SF_CAT_TEMPORARIES, n->dtype, N * C, 1);
    v->datt = activation(n, "datt", SF_CAT_TEMPORARIES, n->dtype, N * n->att_width, 1);
    v->dqkv = activation(n, "dqkv", SF_CAT_TEMPORARIES, n->dtype, N * n->qkv_width, 1);
    v->dact = activation(n, "dact", SF_CAT_TEMPORARIES, n->dtype, N * n->ffn, 1);
    v->dup = activation(n, "dup", SF_CAT_TEMPORARIES, n->dtype, N * n->up_width, 1);
}

static void load_batch(sf_native *n)
{
    sf_op *op = put(n, SF_OP_LOAD_BATCH, "batch", SF_ARGS(one(n, n->buf.tokens, SF_WRITE), one(n, n->buf.targets, SF_WRITE)));
    op->dims = (sf_dims){ .m = n->rows, .batch = n->micro_batch, .seq = (int32_t)n->seq_len };
    op->bytes = 8 * u(n->rows); /* two 4-byte integers a token */
}

sf_status sf_native_write(sf_native *n, sf_class *cls, const sf_native_strategy *strategy, void *state, int rank_class)
{
    n->strategy = strategy;
    n->state = state;
    n->rank_class = rank_class;
    sf_build_start(&n->b, n->arena, cls);
    declare_buffers(n);
    n->norm_sum = -1;
    if (n->clip) {
        n->norm_sum = sf_build_buffer(&n->b, (sf_buffer){ .name = "norm_sum", .category = SF_CAT_TEMPORARIES, .dtype = SF_F64, .elems = 1,
                                                          .count = 1, .persistent = true });
    }
    SF_TRY(strategy->declare(n));
    n->b.phase = SF_PHASE_FORWARD;
    HOOK(n, step_begin, n);
    if (n->n_micro > 1)
        sf_build_repeat(&n->b, SF_LOOP_MICRO, 0, n->n_micro, 1);
    if (strategy->loss == NULL)
        load_batch(n);
    one_micro_step(n);
    if (n->n_micro > 1)
        sf_build_end(&n->b);
    n->b.phase = SF_PHASE_OPTIMIZER;
    HOOK(n, step_end, n);
    assert(n->b.depth == 1);
    return SF_SUCCESS;
}
