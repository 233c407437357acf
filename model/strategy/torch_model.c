/* The training step of PyTorch's lowerings: embedding, blocks, final norm, head and loss, forward and backward. */
#include <string.h>

#include "model/strategy/torch_block.h"

static uint64_t u(int64_t x) { return (uint64_t)x; }

/* ---- opening ---- */

static int unit_of_place(const sf_torch *t, const sf_tensor *x)
{
    switch (x->place) {
    case SF_PLACE_EMBED: return 0;
    case SF_PLACE_BLOCK: return 1 + x->layer;
    case SF_PLACE_FINAL: return 1 + t->n_layers;
    default: return 2 + t->n_layers;
    }
}

static void list_params(sf_torch *t)
{
    sf_tensor_list list;
    int n = 0;

    sf_transformer_tensors(t->model, t->arena, &list);
    t->n_units = t->n_layers + 3;
    t->units = SF_NEW_ARRAY(t->arena, sf_torch_unit, t->n_units);
    t->params = SF_NEW_ARRAY(t->arena, sf_torch_param, list.count);
    for (int unit = 0; unit < t->n_units; unit++) {
        sf_torch_unit *x = &t->units[unit];
        x->name = unit == 0 ? "embed" : unit == t->n_layers + 1 ? "final" : unit == t->n_layers + 2 ? "head" : "block";
        x->first = n;
        for (size_t i = 0; i < list.count; i++) {
            const sf_tensor *tensor = &list.items[i];
            if (unit_of_place(t, tensor) != unit)
                continue;
            t->params[n++] = (sf_torch_param){ .numel = tensor->numel, .rows = tensor->shape[0], .copies = tensor->copies, .tensor = (int)i,
                                               .unit = unit, .role = tensor->role, .grad = { SF_NO_TENSOR, 0 } };
            x->elems += tensor->numel * (uint64_t)tensor->copies;
        }
        x->count = n - x->first;
        t->elems += x->elems;
    }
    t->n_params = n;
}

static sf_status check(const sf_job *job)
{
    if (job->train.tp > 1 || job->train.pp > 1 || job->train.cp > 1 || job->train.ep > 1)
        return SF_FAIL(SF_EUNSUP, "tensor, pipeline, context and expert parallelism (train.tp, pp, cp, ep above 1) are not modelled under framework %s yet",
                       sf_framework_name(job->framework));
    return SF_SUCCESS;
}

sf_status sf_torch_open(const sf_job *job, sf_arena *arena, sf_torch *t)
{
    sf_precision_types types = sf_precision_describe(job->framework, job->train.precision);
    const sf_transformer *m = &job->model;

    SF_TRY(check(job));
    *t = (sf_torch){ .job = job, .model = m, .arena = arena };
    t->world_size = sf_job_world_size(job);
    t->n_layers = m->n_layers;
    t->n_micro = (int)job->train.grad_accum;
    t->batch = job->train.micro_batch;
    t->seq = job->train.seq_len > 0 ? job->train.seq_len : m->max_positions;
    t->rows = t->batch * t->seq;
    t->compute = types.compute == SF_F8 ? SF_BF16 : types.compute;
    /* f32 parameters and 16-bit products: autocast, unless the strategy casts what it gathers (fsdp, fsdp2) */
    bool casts = job->strategy.name == SF_STRATEGY_FSDP || job->strategy.name == SF_STRATEGY_FSDP2;
    t->autocast = types.param == SF_F32 && t->compute != SF_F32 && !casts;
    t->weight = t->autocast ? SF_F32 : t->compute;
    t->stream = t->autocast ? SF_F32 : t->compute;
    t->dropout = job->train.dropout >= 0 ? job->train.dropout : m->dropout;
    t->attention_dropout = t->dropout > 0;
    t->compiled = job->train.compile || job->train.fused_kernels;
    t->recompute = job->train.recompute == SF_RECOMPUTE_FULL;
    t->selective = job->train.recompute == SF_RECOMPUTE_SELECTIVE;
    t->framework_norm = t->compiled || m->norm != SF_NORM_RMSNORM;
    list_params(t);
    return SF_SUCCESS;
}

/* ---- pieces ---- */

typedef struct {
    sf_torch_saved *saved;      /* [n_layers]                                           */
    sf_tt *kept;                /* [n_layers]: inputs kept by checkpoints                */
    sf_tt embed_mask, rotary;
    sf_torch_norm norm;
    sf_tt last;                 /* the stream into the final norm                       */
    sf_tt head_in, wide, casts[4];
    int n_casts;
    sf_tt logits, log_probs;
    sf_tt fused_dx, tied_grad;
} pieces;

static void hook(sf_torch *t, void (*fn)(sf_torch *, int), int unit)
{
    if (fn != NULL)
        fn(t, unit);
}

static int final_unit(const sf_torch *t) { return t->n_layers + 1; }
static int head_unit(const sf_torch *t) { return t->n_layers + 2; }

static sf_tt embed_forward(sf_torch *t, pieces *p)
{
    const sf_transformer *m = t->model;
    int64_t elems = t->rows * m->hidden;
    uint64_t bytes = u(elems) * sf_dtype_bytes(t->stream);

    p->embed_mask = p->rotary = sf_torch_none();
    sf_tt x = sf_torch_take(t, "embedding", SF_CAT_ACTIVATIONS, t->stream, u(elems));
    sf_torch_kernel(t, "embedding", x, 2 * bytes, 1);
    if (m->position == SF_POS_LEARNED) {
        sf_tt sum = sf_torch_take(t, "residual", SF_CAT_ACTIVATIONS, t->stream, u(elems));
        sf_torch_kernel(t, "embedding.position", sum, 2 * bytes, 2);
        sf_torch_give(t, x);
        x = sum;
    }
    if (t->dropout > 0) {
        p->embed_mask = sf_torch_take(t, "embedding.mask", SF_CAT_ACTIVATIONS, SF_U8, u(elems));
        sf_tt dropped = sf_torch_take(t, "residual", SF_CAT_ACTIVATIONS, t->stream, u(elems));
        sf_torch_kernel(t, "embedding.dropout", dropped, 2 * bytes + u(elems), 1);
        sf_torch_give(t, x);
        x = dropped;
    }
    if (m->position == SF_POS_ROTARY) {
        p->rotary = sf_torch_take(t, "rotary.table", SF_CAT_ACTIVATIONS, t->stream, 2 * u(t->seq) * u(m->head_dim));
        sf_torch_kernel(t, "rotary.table", p->rotary, 4 * u(t->seq) * u(m->head_dim), 8);
    }
    return x;
}

static int table_param(const sf_torch *t)
{
    return sf_torch_param_of(t, 0, SF_ROLE_WTE);
}

/* The gradient of the token table; with a tied head it joins the head's, which has waited. */
static void embed_backward(sf_torch *t, pieces *p, sf_tt dx)
{
    const sf_transformer *m = t->model;
    int table = table_param(t);
    uint64_t elems = t->params[table].numel, bytes = elems * sf_dtype_bytes(t->weight), in = u(t->rows) * u(m->hidden) * sf_dtype_bytes(t->stream);

    if (sf_torch_is(p->embed_mask))
        sf_torch_kernel(t, "embedding.dropout.backward", dx, 2 * in + u(t->rows) * u(m->hidden), 1);
    sf_torch_give(t, p->embed_mask);
    if (m->position == SF_POS_LEARNED) {
        sf_torch_kernel(t, "embedding.position.backward", sf_torch_none(), in, 2);
        sf_torch_small_grad(t, 0, SF_ROLE_WPE);
    }
    sf_torch_small_grad(t, 0, SF_ROLE_EMBED_NORM_W);
    sf_torch_small_grad(t, 0, SF_ROLE_EMBED_NORM_B);
    sf_torch_small_grad(t, 0, SF_ROLE_EMBED_PROJ);
    if (m->tied) {
        sf_tt grad = sf_torch_take(t, "embedding.grad", SF_CAT_GRADIENTS, t->weight, elems);
        sf_torch_kernel(t, "embedding.backward", grad, bytes + 2 * in, 2);
        sf_torch_kernel(t, "tied.add", p->tied_grad, 3 * bytes, 1);
        sf_torch_give(t, grad);
        sf_torch_grad_done(t, table, p->tied_grad);
    } else {
        sf_tt grad = t->hooks->grad_take(t, table);
        sf_torch_kernel(t, "embedding.backward", grad, bytes + 2 * in, 2);
        sf_torch_grad_done(t, table, grad);
    }
    sf_torch_give(t, dx);
}

/* ---- head and loss ---- */

static sf_tt logits_of(sf_torch *t, int64_t rows)
{
    const sf_transformer *m = t->model;
    sf_tt logits = sf_torch_take(t, "logits", SF_CAT_LOGITS, t->compute, u(rows) * u(m->vocab));
    sf_torch_gemm(t, "head", logits, t->compute, rows, m->vocab, m->hidden, 1);
    return logits;
}

static void cast_head(sf_torch *t, pieces *p, sf_tt *y)
{
    const sf_transformer *m = t->model;
    p->n_casts = 0;
    if (!t->autocast)
        return;
    p->casts[p->n_casts] = sf_torch_take(t, "autocast.weight", SF_CAT_ACTIVATIONS, t->compute, u(m->vocab) * u(m->hidden));
    sf_torch_kernel(t, "autocast", p->casts[p->n_casts++], 6 * u(m->vocab) * u(m->hidden), 1);
    sf_tt narrow = sf_torch_take(t, "autocast.input", SF_CAT_ACTIVATIONS, t->compute, u(t->rows) * u(m->hidden));
    sf_torch_kernel(t, "autocast", narrow, 6 * u(t->rows) * u(m->hidden), 1);
    p->wide = *y; /* the caller's variable holds it until the loss is there */
    *y = narrow;
}

enum { LOSS_CHUNKS = 8 }; /* torchtune's CEWithChunkedOutputLoss: num_output_chunks */

/* Chunks of Liger's fused linear cross-entropy (liger_kernel/ops/fused_linear_cross_entropy.py): as many as the vocabulary is
 * wider than the model, so that a chunk's logits are as large as its input; each is taken along the sequence here, where
 * Liger rounds the rows of a chunk up to a power of two. */
static int64_t fused_chunks(const sf_torch *t)
{
    int64_t n = (t->model->vocab + t->model->hidden - 1) / t->model->hidden;
    return n < t->seq ? n : t->seq;
}

static int64_t chunk_rows(const sf_torch *t, int64_t chunks)
{
    return t->batch * ((t->seq + chunks - 1) / chunks);
}

/* The loss is one kernel on the logits as they are (flash-attn's CrossEntropyLoss, or compiled on its own). A compiled
 * model does not say so of its loss, which trainers compute outside of it. */
static bool fused_kernel(const sf_torch *t)
{
    return t->job->train.loss == SF_LOSS_KERNEL;
}

static void lose(sf_torch *t, pieces *p);

static void head_forward(sf_torch *t, pieces *p, sf_tt y)
{
    p->logits = p->log_probs = p->fused_dx = p->tied_grad = sf_torch_none();
    p->wide = sf_torch_none();
    cast_head(t, p, &y);
    p->head_in = y;
    lose(t, p);
    sf_torch_give(t, p->wide);
}

static void lose(sf_torch *t, pieces *p)
{
    const sf_transformer *m = t->model;
    uint64_t n = u(t->rows) * u(m->vocab), half = n * sf_dtype_bytes(t->compute);

    if (t->job->train.loss == SF_LOSS_FUSED) {
        int64_t chunks = fused_chunks(t), rows = chunk_rows(t, chunks);
        int table = m->tied ? table_param(t) : sf_torch_param_of(t, head_unit(t), SF_ROLE_HEAD_W);
        p->fused_dx = sf_torch_take(t, "loss.dinput", SF_CAT_ACTIVATIONS, t->compute, u(t->rows) * u(m->hidden));
        p->tied_grad = t->hooks->grad_take(t, table);
        for (int64_t i = 0; i < chunks; i++) {
            sf_tt logits = logits_of(t, rows);
            sf_torch_kernel(t, "loss.fused", logits, 3 * u(rows) * u(m->vocab) * sf_dtype_bytes(t->compute), 1);
            sf_torch_gemm(t, "head.dx", p->fused_dx, t->compute, rows, m->hidden, m->vocab, 1);
            sf_torch_gemm(t, "head.dw", p->tied_grad, t->compute, m->vocab, m->hidden, rows, 1);
            sf_torch_give(t, logits);
        }
        return;
    }
    p->logits = logits_of(t, t->rows);
    if (fused_kernel(t)) { /* it reads them; its backward reads them again */
        sf_torch_kernel(t, "loss", sf_torch_none(), half, 2);
        return;
    }
    if (t->job->train.loss == SF_LOSS_CHUNKED) {
        p->log_probs = sf_torch_take(t, "loss.log_probs", SF_CAT_LOGITS, SF_F32, n);
        sf_tt wide = sf_torch_take(t, "loss.chunk32", SF_CAT_LOGITS, SF_F32, u(chunk_rows(t, LOSS_CHUNKS)) * u(m->vocab));
        sf_torch_kernel(t, "loss.chunks", p->log_probs, half + 12 * n, 3 * LOSS_CHUNKS);
        sf_torch_give(t, wide);
        sf_torch_give(t, p->logits);
        return;
    }
    sf_tt wide = p->logits;
    if (t->compute != SF_F32) {
        wide = sf_torch_take(t, "loss.logits32", SF_CAT_LOGITS, SF_F32, n);
        sf_torch_kernel(t, "loss.to32", wide, half + 4 * n, 1);
    }
    p->log_probs = sf_torch_take(t, "loss.log_probs", SF_CAT_LOGITS, SF_F32, n);
    sf_torch_kernel(t, "loss.log_softmax", p->log_probs, 8 * n, 1);
    sf_torch_kernel(t, "loss.nll", sf_torch_none(), 8 * u(t->rows), 1);
    if (t->compute != SF_F32)
        sf_torch_give(t, wide);
    sf_torch_give(t, p->logits); /* the model's output is let go with the function that held it (Trainer.compute_loss) */
}

/* The logits' gradient, in the compute type. */
static sf_tt loss_backward(sf_torch *t, pieces *p)
{
    uint64_t n = u(t->rows) * u(t->model->vocab), half = n * sf_dtype_bytes(t->compute);
    sf_tt d;
    if (t->job->train.loss == SF_LOSS_KERNEL) { /* in place */
        sf_torch_kernel(t, "loss.backward", p->logits, 2 * half, 1);
        return p->logits;
    }
    bool chunked = t->job->train.loss == SF_LOSS_CHUNKED;
    uint64_t part = chunked ? u(chunk_rows(t, LOSS_CHUNKS)) * u(t->model->vocab) : n;
    sf_tt whole = chunked ? sf_torch_take(t, "loss.dlogits", SF_CAT_LOGITS, t->compute, n) : sf_torch_none();
    sf_tt nll = sf_torch_take(t, "loss.dnll", SF_CAT_LOGITS, SF_F32, part);
    sf_torch_kernel(t, "loss.nll.backward", nll, 4 * n, 2);
    sf_tt wide = sf_torch_take(t, "loss.dlog_softmax", SF_CAT_LOGITS, SF_F32, part);
    sf_torch_kernel(t, "loss.log_softmax.backward", wide, 12 * n, chunked ? LOSS_CHUNKS : 1);
    sf_torch_give(t, nll);
    if (!chunked)
        sf_torch_give(t, p->log_probs);
    if (chunked) {
        sf_torch_kernel(t, "loss.to16.backward", whole, half + 4 * n, LOSS_CHUNKS);
        sf_torch_give(t, wide);
        sf_torch_give(t, p->log_probs);
        return whole;
    }
    if (t->compute == SF_F32)
        return wide;
    d = sf_torch_take(t, "loss.dlogits", SF_CAT_LOGITS, t->compute, n);
    sf_torch_kernel(t, "loss.to16.backward", d, half + 4 * n, 1);
    sf_torch_give(t, wide);
    return d;
}

/* Gives the gradient of the head's input. */
static sf_tt head_backward(sf_torch *t, pieces *p)
{
    const sf_transformer *m = t->model;
    int unit = m->tied ? 0 : head_unit(t), table = m->tied ? table_param(t) : sf_torch_param_of(t, unit, SF_ROLE_HEAD_W);
    sf_tt dx;

    if (t->job->train.loss == SF_LOSS_FUSED) {
        dx = p->fused_dx;
        sf_torch_kernel(t, "loss.fused.backward", dx, 2 * u(t->rows) * u(m->hidden) * sf_dtype_bytes(t->compute), 2);
        if (!m->tied)
            sf_torch_grad_done(t, table, p->tied_grad);
    } else {
        sf_tt d = loss_backward(t, p);
        dx = sf_torch_linear_dx(t, "head.dx", t->rows, m->vocab, m->hidden);
        sf_torch_small_grad(t, head_unit(t), SF_ROLE_HEAD_B);
        sf_tt half = sf_torch_none(), grad;
        if (t->autocast) {
            half = sf_torch_take(t, "grad.half", SF_CAT_TEMPORARIES, t->compute, u(m->vocab) * u(m->hidden));
            sf_torch_gemm(t, "head.dw", half, t->compute, m->vocab, m->hidden, t->rows, 1);
        }
        grad = t->hooks->grad_take(t, table);
        if (t->autocast)
            sf_torch_kernel(t, "grad.cast", grad, 6 * u(m->vocab) * u(m->hidden), 1);
        else
            sf_torch_gemm(t, "head.dw", grad, t->compute, m->vocab, m->hidden, t->rows, 1);
        sf_torch_give(t, half);
        sf_torch_give(t, d);
        if (m->tied)
            p->tied_grad = grad;
        else
            sf_torch_grad_done(t, table, grad);
    }
    sf_torch_give(t, p->head_in);
    for (int i = 0; i < p->n_casts; i++)
        sf_torch_give(t, p->casts[i]);
    if (t->autocast) {
        sf_tt wide = sf_torch_take(t, "autocast.dinput", SF_CAT_TEMPORARIES, SF_F32, u(t->rows) * u(m->hidden));
        sf_torch_kernel(t, "autocast.backward", wide, 6 * u(t->rows) * u(m->hidden), 1);
        sf_torch_give(t, dx);
        dx = wide;
    }
    return dx;
}

/* ---- blocks, plain and checkpointed ---- */

static void drop(sf_torch *t, sf_tt *x)
{
    sf_torch_give(t, *x);
    *x = sf_torch_none();
}

/* What a forward without autograd would not have kept. */
static void discard(sf_torch *t, sf_torch_saved *s)
{
    sf_tt *all[] = { &s->middle, &s->in1, &s->in2, &s->qkv[0], &s->qkv[1], &s->qkv[2], &s->latent[0], &s->latent[1], &s->probs, &s->probs_half, &s->mask,
                     &s->out, &s->lse, &s->rng, &s->resid_mask[0], &s->resid_mask[1], &s->gate, &s->act, &s->up, &s->act_parts[0], &s->act_parts[1],
                     &s->act_parts[2], &s->product, &s->router[0], &s->router[1], &s->router[2], &s->permuted, &s->combined };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        drop(t, all[i]);
    for (int i = 0; i < s->n_casts; i++)
        drop(t, &s->casts[i]);
    s->n_casts = 0;
    for (int i = 0; i < 2; i++) {
        sf_torch_norm *n = &s->norm[i];
        if (n->width == 0)
            continue;
        if (!n->x_is_input)
            drop(t, &n->x);
        drop(t, &n->rstd);
        drop(t, &n->mean);
        drop(t, &n->hat);
    }
}

/* Full recomputation of some layers takes them evenly (torchtitan's every k-th; fms-fsdp's share of blocks). */
static bool recomputed(const sf_torch *t, int layer)
{
    int64_t n = (int64_t)(t->job->train.recompute_share * t->n_layers + 0.5);
    return t->selective || (t->recompute && (layer + 1) * n / t->n_layers > layer * n / t->n_layers);
}

static sf_tt block_forward(sf_torch *t, pieces *p, int layer, sf_tt x)
{
    sf_torch_saved *s = &p->saved[layer];
    bool checkpointed = recomputed(t, layer);
    bool full = t->recompute;

    t->recompute = checkpointed; /* the block's input stays with the checkpoint */
    t->fp8 = t->job->train.precision == SF_PRECISION_FP8_MIXED;
    sf_tt y = sf_torch_block_fwd(t, layer, x, s);
    t->fp8 = false;
    t->recompute = full;
    if (checkpointed) {
        discard(t, s);
        /* by ops: every second product's output stays, and attention's (torchtitan distributed/activation_checkpoint.py) */
        p->kept[layer] = t->selective ? sf_torch_take(t, "selective.kept", SF_CAT_ACTIVATIONS, t->compute, s->kept_elems) : sf_torch_none();
    }
    return y;
}

static sf_tt block_backward(sf_torch *t, pieces *p, int layer, sf_tt dy)
{
    sf_torch_saved *s = &p->saved[layer];
    bool full = t->recompute, again = recomputed(t, layer);
    t->recompute = again;
    t->fp8 = t->job->train.precision == SF_PRECISION_FP8_MIXED;
    if (again) {
        sf_tt x = s->input;
        t->in_recompute = true;
        sf_tt y = sf_torch_block_fwd(t, layer, x, s);
        t->in_recompute = false;
        sf_torch_give(t, y);
        sf_torch_give(t, p->kept[layer]);
    }
    sf_tt dx = sf_torch_block_bwd(t, layer, dy, s);
    t->fp8 = false;
    t->recompute = full;
    return dx;
}

/* ---- the step ---- */

static void forward(sf_torch *t, pieces *p)
{
    t->b.phase = SF_PHASE_FORWARD;
    hook(t, t->hooks->forward_begin, 0);
    sf_tt x = embed_forward(t, p);
    hook(t, t->hooks->forward_end, 0);
    for (int l = 0; l < t->n_layers; l++) {
        hook(t, t->hooks->forward_begin, 1 + l);
        x = block_forward(t, p, l, x);
        hook(t, t->hooks->forward_end, 1 + l);
    }
    hook(t, t->hooks->forward_begin, final_unit(t));
    p->last = x;
    sf_tt y = sf_torch_norm_forward(t, x, t->model->hidden, t->rows, &p->norm);
    if (!p->norm.x_is_input)
        drop(t, &p->last);
    hook(t, t->hooks->forward_end, final_unit(t));
    hook(t, t->hooks->forward_begin, head_unit(t));
    head_forward(t, p, y);
    hook(t, t->hooks->forward_end, head_unit(t));
}

static void backward(sf_torch *t, pieces *p)
{
    t->b.phase = SF_PHASE_BACKWARD;
    hook(t, t->hooks->backward_begin, head_unit(t));
    sf_tt dx = head_backward(t, p);
    sf_torch_grads_finish(t, head_unit(t));
    hook(t, t->hooks->backward_end, head_unit(t));
    hook(t, t->hooks->backward_begin, final_unit(t));
    dx = sf_torch_norm_backward(t, final_unit(t), SF_ROLE_NORMF_W, SF_ROLE_NORMF_B, dx, &p->norm, t->rows);
    drop(t, &p->last);
    sf_torch_grads_finish(t, final_unit(t));
    hook(t, t->hooks->backward_end, final_unit(t));
    for (int l = t->n_layers - 1; l >= 0; l--) {
        hook(t, t->hooks->backward_begin, 1 + l);
        dx = block_backward(t, p, l, dx);
        sf_torch_grads_finish(t, 1 + l);
        hook(t, t->hooks->backward_end, 1 + l);
    }
    hook(t, t->hooks->backward_begin, 0);
    drop(t, &p->rotary);
    embed_backward(t, p, dx);
    sf_torch_grads_finish(t, 0);
    hook(t, t->hooks->backward_end, 0);
}

/* cuBLAS' workspace lies in the caching allocator from the first product on (ATen/cuda/CublasHandlePool.cpp):
 * 4096 KiB x 2 + 16 KiB x 8, and 32 MiB since Hopper. */
static void declare_workspace(sf_torch *t)
{
    uint64_t bytes = t->job->cluster.gpu.compute_capability >= 9.0 ? 33554432 : 8519680;
    sf_torch_persistent(t, "cublas.workspace", SF_CAT_WORKSPACE, SF_SPACE_DEVICE, SF_U8, bytes);
    sf_torch_persistent(t, "batch", SF_CAT_ACTIVATIONS, SF_SPACE_DEVICE, SF_I64, 2 * u(t->rows));
}

/* Families grew as tensors were claimed: instances are numbered now. */
static void number_instances(sf_class *cls)
{
    cls->n_instances = 0;
    for (size_t i = 0; i < cls->n_buffers; i++) {
        cls->buffers[i].first = cls->n_instances;
        cls->n_instances += cls->buffers[i].count;
    }
}

sf_status sf_torch_write(sf_torch *t, const sf_torch_hooks *hooks, void *state, sf_program *out)
{
    pieces p = { 0 };
    sf_class *cls = SF_NEW_ARRAY(t->arena, sf_class, 1);

    *cls = (sf_class){ .name = "all ranks", .n_ranks = t->world_size };
    *out = (sf_program){ .strategy = sf_strategy_name(t->job->strategy.name), .world_size = t->world_size,
                         .ranks_per_node = (int)t->job->cluster.gpus_per_node, .n_layers = t->n_layers, .n_micro = t->n_micro,
                         .tokens_per_step = sf_job_tokens_per_step(t->job), .classes = cls, .n_classes = 1 };
    t->hooks = hooks;
    t->state = state;
    t->program = out;
    sf_build_start(&t->b, t->arena, cls);
    p.saved = SF_NEW_ARRAY(t->arena, sf_torch_saved, t->n_layers);
    p.kept = SF_NEW_ARRAY(t->arena, sf_tt, t->n_layers);
    t->b.phase = SF_PHASE_FORWARD;
    if (hooks->declare != NULL)
        hooks->declare(t);
    declare_workspace(t);
    if (hooks->step_begin != NULL)
        hooks->step_begin(t);
    sf_build_repeat(&t->b, SF_LOOP_MICRO, 0, t->n_micro, 1);
    if (hooks->micro_begin != NULL)
        hooks->micro_begin(t);
    forward(t, &p);
    backward(t, &p);
    if (hooks->micro_end != NULL)
        hooks->micro_end(t);
    sf_build_end(&t->b);
    t->b.phase = SF_PHASE_OPTIMIZER;
    if (hooks->step_end != NULL)
        hooks->step_end(t);
    number_instances(cls);
    return SF_SUCCESS;
}
