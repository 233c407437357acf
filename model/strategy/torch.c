/* Tensors, kernels, collectives and optimizers of PyTorch's lowerings. */
#include <assert.h>
#include <limits.h>
#include <string.h>

#include "model/strategy/torch.h"

/* ---- tensors ---- */

static int find_family(sf_torch *t, const char *name, sf_category category, sf_dtype dtype, uint64_t elems, sf_stream home)
{
    for (size_t i = 0; i < t->n_families; i++) {
        const sf_torch_family *f = &t->families[i];
        if (f->name == name && f->elems == elems && f->dtype == dtype && f->category == category && f->home == home)
            return (int)i;
    }
    sf_torch_family fresh = { .name = name, .category = category, .dtype = dtype, .elems = elems, .home = home };
    fresh.buffer = sf_build_buffer(&t->b, (sf_buffer){ .name = name, .category = category, .space = SF_SPACE_DEVICE, .dtype = dtype,
                                                       .elems = elems, .count = 1, .home = home, .flat = -1 });
    SF_PUSH(t->arena, t->families, t->n_families, t->cap_families) = fresh;
    return (int)t->n_families - 1;
}

/* The lowest instance that is not live; families grow as more are live at once. */
static sf_tt claim(sf_torch *t, int family)
{
    sf_torch_family *f = &t->families[family];
    int i = 0;
    while (i < f->count && f->used[i])
        i++;
    if (i == f->cap) {
        int cap = f->cap == 0 ? 4 : 2 * f->cap;
        bool *used = SF_NEW_ARRAY(t->arena, bool, cap);
        if (f->cap > 0)
            memcpy(used, f->used, (size_t)f->cap * sizeof *used);
        f->used = used;
        f->cap = cap;
    }
    f->used[i] = true;
    f->count = i >= f->count ? i + 1 : f->count;
    t->b.cls->buffers[f->buffer].count = f->count;
    return (sf_tt){ family, i };
}

sf_tt sf_torch_take_on(sf_torch *t, const char *name, sf_category category, sf_dtype dtype, uint64_t elems, sf_stream home)
{
    if (elems == 0)
        return sf_torch_none();
    sf_tt x = claim(t, find_family(t, name, category, dtype, elems, home));
    sf_build_alloc(&t->b, t->families[x.family].buffer, x.index, 0);
    return x;
}

sf_tt sf_torch_take(sf_torch *t, const char *name, sf_category category, sf_dtype dtype, uint64_t elems)
{
    return sf_torch_take_on(t, name, category, dtype, elems, SF_STREAM_COMPUTE);
}

sf_tt sf_torch_take_micro(sf_torch *t, const char *name, sf_category category, sf_dtype dtype, uint64_t elems, int micro_lo, int micro_hi)
{
    if (elems == 0)
        return sf_torch_none();
    sf_tt x = claim(t, find_family(t, name, category, dtype, elems, SF_STREAM_COMPUTE));
    sf_op *op = sf_build_alloc(&t->b, t->families[x.family].buffer, x.index, 0);
    op->micro_lo = micro_lo;
    op->micro_hi = micro_hi;
    return x;
}

void sf_torch_give_micro(sf_torch *t, sf_tt x, int micro_lo, int micro_hi)
{
    if (!sf_torch_is(x))
        return;
    assert(t->families[x.family].used[x.index]);
    sf_op *op = sf_build_free(&t->b, t->families[x.family].buffer, x.index, 0);
    op->micro_lo = micro_lo;
    op->micro_hi = micro_hi;
    t->families[x.family].used[x.index] = false;
}

void sf_torch_give(sf_torch *t, sf_tt x)
{
    sf_torch_give_micro(t, x, INT_MIN, INT_MAX);
}

sf_tt sf_torch_persistent(sf_torch *t, const char *name, sf_category category, sf_space space, sf_dtype dtype, uint64_t elems)
{
    if (elems == 0)
        return sf_torch_none();
    sf_torch_family f = { .name = name, .category = category, .dtype = dtype, .elems = elems, .count = 1, .cap = 1 };
    f.used = SF_NEW_ARRAY(t->arena, bool, 1);
    f.used[0] = true;
    f.buffer = sf_build_buffer(&t->b, (sf_buffer){ .name = name, .category = category, .space = space, .dtype = dtype, .elems = elems, .count = 1,
                                                   .home = SF_STREAM_COMPUTE, .persistent = true, .flat = -1 });
    SF_PUSH(t->arena, t->families, t->n_families, t->cap_families) = f;
    return (sf_tt){ (int)t->n_families - 1, 0 };
}

sf_arg sf_torch_arg(const sf_torch *t, sf_tt x, sf_access access)
{
    return sf_torch_is(x) ? sf_whole_at(&t->b, t->families[x.family].buffer, x.index, 0, access) : sf_none();
}

/* ---- kernels ---- */

static sf_op *frame_op(sf_torch *t, sf_op_type type, const char *label, sf_tt out)
{
    sf_arg arg = sf_torch_arg(t, out, SF_WRITE);
    sf_op *op = sf_build_op(&t->b, type, SF_STREAM_COMPUTE, label, sf_torch_is(out) ? 1 : 0, &arg);
    op->kind = (t->in_recompute ? SF_FRAME_RECOMPUTE : 0) | (t->job->train.precision == SF_PRECISION_TF32 ? SF_FRAME_TF32 : 0);
    return op;
}

sf_op *sf_torch_kernel(sf_torch *t, const char *label, sf_tt out, uint64_t bytes, int launches)
{
    sf_op *op = frame_op(t, SF_OP_F_KERNEL, label, out);
    op->bytes = bytes;
    op->launches = launches;
    return op;
}

sf_op *sf_torch_gemm(sf_torch *t, const char *label, sf_tt out, sf_dtype dtype, int64_t m, int64_t n, int64_t k, int64_t batch)
{
    sf_op *op = frame_op(t, SF_OP_F_GEMM, label, out);
    op->dims = (sf_dims){ .m = m, .n = n, .k = k, .batch = batch };
    op->flop = 2 * (uint64_t)m * (uint64_t)n * (uint64_t)k * (uint64_t)batch;
    op->bytes = ((uint64_t)m * (uint64_t)k + (uint64_t)n * (uint64_t)k + (uint64_t)m * (uint64_t)n) * (uint64_t)batch * sf_dtype_bytes(dtype);
    if (t->fp8)
        op->kind |= SF_FRAME_FP8;
    op->launches = 1;
    return op;
}

/* ---- events and collectives ---- */

int sf_torch_mark(sf_torch *t, sf_stream stream)
{
    int event = sf_build_events(&t->b, 1);
    sf_build_record(&t->b, stream, event, 0);
    return event;
}

void sf_torch_wait(sf_torch *t, sf_stream stream, int event)
{
    if (event >= 0)
        sf_build_wait(&t->b, stream, event, 0);
}

int sf_torch_collective(sf_torch *t, sf_torch_comm c)
{
    int after = c.after == -1 ? sf_torch_mark(t, SF_STREAM_COMPUTE) : c.after;
    sf_arg args[2];
    int n = 0;

    if (after >= 0)
        sf_torch_wait(t, SF_STREAM_COMM, after);
    if (c.type == SF_OP_ALL_GATHER || c.type == SF_OP_REDUCE_SCATTER || c.type == SF_OP_ALL_TO_ALL || c.type == SF_OP_SCATTER || c.type == SF_OP_GATHER) {
        args[n++] = sf_torch_arg(t, c.in, SF_READ);
        args[n++] = sf_torch_arg(t, c.out, SF_WRITE);
    } else {
        args[n++] = sf_torch_arg(t, c.in, SF_WRITE);
    }
    sf_op *op = sf_build_op(&t->b, c.type, SF_STREAM_COMM, c.label, n, args);
    op->dims.n = (int64_t)c.elems;
    op->group = c.group;
    op->launches = 1;
    return sf_torch_mark(t, SF_STREAM_COMM);
}

/* ---- optimizers ----
 * State and temporaries per element: torch/optim/adamw.py (_multi_tensor_adamw), bitsandbytes optim/optimizer.py: foreach is the default on CUDA and
 * makes one list of the size of the second moment (sqrt), the for-loop form temporaries of one tensor, fused none. */

enum { MOST_PIECES = 48 };

static bool is_adam(int64_t o)
{
    return o == SF_OPTIMIZER_ADAMW || o == SF_OPTIMIZER_ADAMW_FUSED || o == SF_OPTIMIZER_ADAMW_FOREACH;
}

double sf_torch_state_bytes(int64_t optimizer, sf_dtype state)
{
    double b = (double)sf_dtype_bytes(state);
    switch (optimizer) {
    case SF_OPTIMIZER_ADAMW_8BIT: return 2 + 8.0 / 256; /* bitsandbytes: two int8, two fp32 absmax a block of 256 */
    case SF_OPTIMIZER_SGD: return 0;                    /* torch.optim.SGD's default has no momentum */
    case SF_OPTIMIZER_ADAFACTOR: return 0.01;           /* a row and a column of each matrix */
    case SF_OPTIMIZER_LION: return b;
    default: return 2 * b;
    }
}

void sf_torch_declare_moments(sf_torch *t, const sf_torch_update *u)
{
    int64_t o = t->job->train.optimizer;
    sf_space space = u->on_host ? SF_SPACE_HOST : SF_SPACE_DEVICE;
    if (is_adam(o)) {
        sf_torch_persistent(t, "optimizer.exp_avg", SF_CAT_OPTIMIZER, space, u->state, u->elems);
        sf_torch_persistent(t, "optimizer.exp_avg_sq", SF_CAT_OPTIMIZER, space, u->state, u->elems);
    } else if (o == SF_OPTIMIZER_LION) {
        sf_torch_persistent(t, "optimizer.exp_avg", SF_CAT_OPTIMIZER, space, u->state, u->elems);
    } else {
        sf_torch_persistent(t, "optimizer.state", SF_CAT_OPTIMIZER, space, SF_U8,
                            (uint64_t)((double)u->elems * sf_torch_state_bytes(o, u->state)));
    }
}

/* Passes over memory of one update, in bytes an element. Fused AdamW reads value, gradient and moments and writes value and
 * moments. Foreach: mul (2 v), lerp (g, 2 m), mul (2 s), addcmul (2 g, 2 s), sqrt (2 s), div (2 s), add (2 s), addcdiv
 * (m, s, 2 v) of torch/optim/adamw.py _multi_tensor_adamw: v value, g gradient, m, s moments. */
static double update_bytes(int64_t o, double v, double g, double m, bool fused)
{
    if (o == SF_OPTIMIZER_SGD)
        return 2 * v + g;
    if (o == SF_OPTIMIZER_ADAMW_8BIT)
        return 2 * v + g + 2 * (2 + 8.0 / 256);
    if (o == SF_OPTIMIZER_LION)
        return 2 * v + g + 2 * m;
    if (o == SF_OPTIMIZER_ADAFACTOR)
        return 4 * v + 3 * g;
    return fused ? 2 * v + g + 4 * m : 4 * v + 3 * g + 14 * m;
}

void sf_torch_optimizer(sf_torch *t, const sf_torch_update *u)
{
    int64_t o = t->job->train.optimizer;
    bool fused = u->fused || o == SF_OPTIMIZER_ADAMW_FUSED || !is_adam(o);
    double v = (double)sf_dtype_bytes(u->param), g = (double)sf_dtype_bytes(u->grad), m = (double)sf_dtype_bytes(u->state);
    uint64_t bytes = (uint64_t)((double)u->elems * update_bytes(o, v, g, m, fused || u->on_host));
    sf_tt temp = sf_torch_none(), list[MOST_PIECES];
    int pieces = 0;

    /* the list has a tensor for each parameter; few of equal size stand for many */
    if (!u->on_host && !fused)
        for (int most = u->tensors < 1 ? 1 : u->tensors > MOST_PIECES ? MOST_PIECES : u->tensors; pieces < most; pieces++)
            list[pieces] = sf_torch_take(t, "optimizer.denominator", SF_CAT_TEMPORARIES, u->state, (u->elems + (uint64_t)most - 1) / (uint64_t)most);
    else if (!u->on_host && o == SF_OPTIMIZER_ADAFACTOR)
        temp = sf_torch_take(t, "optimizer.update", SF_CAT_TEMPORARIES, SF_F32, 2 * u->largest);
    sf_op *op = sf_build_op(&t->b, SF_OP_F_OPTIM, u->on_host ? SF_STREAM_HOST : SF_STREAM_COMPUTE, "optimizer", 0, NULL);
    op->bytes = bytes;
    /* multi-tensor kernels take about 100 tensors each (multi_tensor_apply_kernel: 110 at most for lists of two) */
    op->launches = u->on_host ? 0 : fused ? (u->tensors + 99) / 100 : 10 * ((u->tensors + 99) / 100);
    sf_torch_give(t, temp);
    for (int i = 0; i < pieces; i++)
        sf_torch_give(t, list[i]);
}

void sf_torch_clip(sf_torch *t, uint64_t elems, sf_dtype dtype, bool sharded)
{
    if (t->job->train.grad_clip <= 0)
        return;
    sf_tt norm = sf_torch_take(t, "clip.norm", SF_CAT_TEMPORARIES, SF_F32, 1);
    sf_torch_kernel(t, "clip.norm", norm, elems * sf_dtype_bytes(dtype), 1 + t->n_params / 100);
    if (sharded && t->world_size > 1) {
        int event = sf_torch_collective(t, (sf_torch_comm){ .type = SF_OP_ALL_REDUCE, .label = "clip.norm", .in = norm, .elems = 1, .after = -1 });
        sf_torch_wait(t, SF_STREAM_COMPUTE, event);
    }
    sf_torch_kernel(t, "clip.scale", sf_torch_none(), 2 * elems * sf_dtype_bytes(dtype), 1 + t->n_params / 100);
    sf_torch_give(t, norm);
}

/* ---- gradients ---- */

void sf_torch_grad_done(sf_torch *t, int param, sf_tt grad)
{
    assert(!t->params[param].done);
    t->params[param].done = true;
    t->hooks->grad_done(t, param, grad);
}

void sf_torch_grads_finish(sf_torch *t, int unit)
{
    const sf_torch_unit *u = &t->units[unit];
    for (int i = u->first + u->count - 1; i >= u->first; i--)
        if (!t->params[i].done)
            sf_torch_grad_done(t, i, t->hooks->grad_take(t, i));
    for (int i = u->first; i < u->first + u->count; i++)
        t->params[i].done = false;
}
