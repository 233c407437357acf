/* A transformer block as Transformers' eager modules run it: what is allocated, kept and freed, in order
 * (transformers/models/{llama,gpt2}/modeling_*.py; tests/data/oracle/saved_activations.json). */
#include <string.h>

#include "model/strategy/torch_block.h"

static uint64_t u(int64_t x) { return (uint64_t)x; }

static uint64_t bytes_of(const sf_torch *t, sf_tt x)
{
    const sf_torch_family *f = &t->families[x.family];
    return sf_torch_is(x) ? f->elems * sf_dtype_bytes(f->dtype) : 0;
}

static sf_tt keep(sf_torch *t, const char *name, sf_dtype dtype, int64_t elems)
{
    return sf_torch_take(t, name, SF_CAT_ACTIVATIONS, dtype, u(elems));
}

static sf_tt temp(sf_torch *t, const char *name, sf_dtype dtype, int64_t elems)
{
    return sf_torch_take(t, name, SF_CAT_TEMPORARIES, dtype, u(elems));
}

static void drop(sf_torch *t, sf_tt *x)
{
    if (sf_torch_is(*x))
        sf_torch_give(t, *x);
    *x = sf_torch_none();
}

/* A new tensor of the same kind as `like`. */
static sf_tt same(sf_torch *t, const char *name, sf_tt like)
{
    return sf_torch_take(t, name, SF_CAT_TEMPORARIES, t->families[like.family].dtype, t->families[like.family].elems);
}

/* An element-wise op: reads `reads` (their sizes), writes out. */
static void map(sf_torch *t, const char *label, sf_tt out, uint64_t read_bytes)
{
    sf_torch_kernel(t, label, out, bytes_of(t, out) + read_bytes, 1);
}

int sf_torch_param_of(const sf_torch *t, int unit, sf_role role)
{
    const sf_torch_unit *x = &t->units[unit];
    for (int i = x->first; i < x->first + x->count; i++)
        if (t->params[i].role == role)
            return i;
    return -1;
}

static int unit_of(int layer) { return 1 + layer; }

/* ---- gradients of parameters ---- */

void sf_torch_small_grad(sf_torch *t, int unit, sf_role role)
{
    int p = sf_torch_param_of(t, unit, role);
    if (p < 0 || t->params[p].done)
        return;
    sf_tt grad = t->hooks->grad_take(t, p);
    sf_torch_grad_done(t, p, grad);
}

static void weight_grad(sf_torch *t, const char *label, int p, int64_t rows, int64_t out, int64_t in, int64_t batch)
{
    sf_tt half = sf_torch_none(), grad;
    if (t->autocast) { /* the product is 16-bit, and cast to the f32 parameter's type */
        half = temp(t, "grad.half", t->compute, out * in * batch);
        sf_torch_gemm(t, label, half, t->compute, out, in, rows, batch);
        grad = t->hooks->grad_take(t, p);
        map(t, "grad.cast", grad, bytes_of(t, half));
        drop(t, &half);
    } else {
        grad = t->hooks->grad_take(t, p);
        sf_torch_gemm(t, label, grad, t->compute, out, in, rows, batch);
    }
    sf_torch_grad_done(t, p, grad);
}

void sf_torch_linear_grad(sf_torch *t, const char *label, int unit, sf_role weight, sf_role bias, int64_t rows, int64_t out, int64_t in)
{
    int w = sf_torch_param_of(t, unit, weight), b = bias == SF_ROLE_COUNT ? -1 : sf_torch_param_of(t, unit, bias);
    if (b >= 0) {
        sf_torch_kernel(t, "bias.grad", sf_torch_none(), u(rows) * u(out) * sf_dtype_bytes(t->compute), 1);
        sf_torch_small_grad(t, unit, bias);
    }
    if (w >= 0)
        weight_grad(t, label, w, rows, out, in, 1);
}

/* Operands become 8-bit by kernels of their own. torchao (float8_linear.py, dynamic scaling by tensor) looks for the largest magnitude
 * (2 bytes read) and casts (2 read, 1 written); its backward takes the output's gradient in two layouts, and casts input and weight
 * again for theirs. Transformer Engine finds the next step's scale while it casts into both layouts (2 read, 2 written), once. */
static void cast_operands(sf_torch *t, int64_t rows, int64_t out, int64_t in, bool backward)
{
    bool once = t->job->train.fused_kernels;
    uint64_t x = u(rows) * u(in), w = u(out) * u(in), dy = u(rows) * u(out);
    if (!t->fp8)
        return;
    if (backward)
        sf_torch_kernel(t, "fp8.cast.backward", sf_torch_none(), once ? 4 * dy : 8 * dy + 3 * x + 3 * w, once ? 1 : 5);
    else
        sf_torch_kernel(t, "fp8.cast", sf_torch_none(), (once ? 4 : 5) * (x + w), once ? 2 : 4);
}

sf_tt sf_torch_linear_dx(sf_torch *t, const char *label, int64_t rows, int64_t out, int64_t in)
{
    sf_tt dx = temp(t, "linear.dx", t->compute, rows * in);
    cast_operands(t, rows, out, in, true);
    sf_torch_gemm(t, label, dx, t->compute, rows, in, out, 1);
    return dx;
}

/* ---- linears and autocast's copies ---- */

static void keep_cast(sf_torch *t, sf_torch_saved *s, const char *name, int64_t elems, uint64_t read_bytes)
{
    sf_tt copy = keep(t, name, t->compute, elems);
    map(t, "autocast", copy, read_bytes);
    s->casts[s->n_casts++] = copy;
}

/* Under autocast the weight is cast once a forward, and kept for the backward. */
static void cast_weight(sf_torch *t, sf_torch_saved *s, int64_t elems)
{
    if (t->autocast && s->n_casts < SF_MOST_SAVED - 1)
        keep_cast(t, s, "autocast.weight", elems, 4 * u(elems));
}

/* The f32 output of a norm is cast for each linear that reads it. */
static void cast_input(sf_torch *t, sf_torch_saved *s, sf_tt y)
{
    if (t->families[y.family].dtype != t->compute && s->n_casts < SF_MOST_SAVED - 1)
        keep_cast(t, s, "autocast.input", (int64_t)t->families[y.family].elems, bytes_of(t, y));
}

sf_tt sf_torch_linear(sf_torch *t, const char *label, int64_t rows, int64_t out, int64_t in, sf_torch_saved *s)
{
    cast_weight(t, s, out * in);
    sf_tt y = keep(t, label, t->compute, rows * out);
    bool kept = s->n_products++ % 2 == 0;
    if (kept)
        s->kept_elems += u(rows) * u(out);
    if (!(t->selective && t->in_recompute && kept)) {
        cast_operands(t, rows, out, in, false);
        sf_torch_gemm(t, label, y, t->compute, rows, out, in, 1);
    }
    return y;
}

/* ---- norms ---- */

static bool python_norm(const sf_torch *t)
{
    return t->model->norm == SF_NORM_RMSNORM && !t->framework_norm;
}

static sf_dtype norm_type(const sf_torch *t)
{
    return t->autocast ? SF_F32 : t->compute;
}

sf_tt sf_torch_norm_forward(sf_torch *t, sf_tt x, int64_t width, int64_t rows, sf_torch_norm *n)
{
    int64_t elems = width * rows;
    uint64_t f32 = 4 * u(elems), in = bytes_of(t, x);
    *n = (sf_torch_norm){ .x = x, .rstd = sf_torch_none(), .mean = sf_torch_none(), .hat = sf_torch_none(), .x_is_input = true, .width = width };
    if (!python_norm(t)) {
        if (t->model->norm != SF_NORM_RMSNORM)
            n->mean = keep(t, "norm.mean", SF_F32, rows);
        n->rstd = keep(t, "norm.rstd", SF_F32, rows);
        sf_tt y = keep(t, "norm.out", norm_type(t), elems);
        map(t, "norm", y, in);
        return y;
    }
    if (t->stream != SF_F32) {
        n->x = keep(t, "norm.x32", SF_F32, elems);
        n->x_is_input = false;
        map(t, "norm.to32", n->x, in);
    }
    sf_tt square = temp(t, "norm.square", SF_F32, elems);
    map(t, "norm.pow", square, f32);
    sf_tt var = temp(t, "norm.var", SF_F32, rows);
    map(t, "norm.mean", var, f32);
    drop(t, &square);
    n->rstd = keep(t, "norm.rstd", SF_F32, rows);
    sf_torch_kernel(t, "norm.rsqrt", n->rstd, 8 * u(rows), 2);
    drop(t, &var);
    if (norm_type(t) == SF_F32) {
        n->hat = keep(t, "norm.hat", SF_F32, elems);
        map(t, "norm.scale", n->hat, f32);
    } else {
        sf_tt wide = temp(t, "norm.hat32", SF_F32, elems);
        map(t, "norm.scale", wide, f32);
        n->hat = keep(t, "norm.hat", t->compute, elems);
        map(t, "norm.to16", n->hat, f32);
        drop(t, &wide);
    }
    sf_tt y = keep(t, "norm.out", norm_type(t), elems);
    map(t, "norm.weight", y, bytes_of(t, n->hat));
    return y;
}

sf_tt sf_torch_norm_backward(sf_torch *t, int unit, sf_role weight, sf_role bias, sf_tt dy, sf_torch_norm *n, int64_t rows)
{
    int64_t elems = n->width * rows;
    uint64_t f32 = 4 * u(elems);
    sf_tt dx;
    if (!python_norm(t)) {
        dx = temp(t, "norm.dx", t->stream, elems);
        sf_torch_kernel(t, "norm.backward", dx, bytes_of(t, dx) + bytes_of(t, dy) + bytes_of(t, n->x), 3);
        sf_torch_small_grad(t, unit, weight);
        sf_torch_small_grad(t, unit, bias);
        drop(t, &dy);
        if (n->x_is_input)
            n->x = sf_torch_none(); /* the caller owns the stream */
    } else {
        sf_tt scaled = same(t, "norm.dhat", dy);
        map(t, "norm.weight.backward", scaled, bytes_of(t, dy));
        sf_tt product = same(t, "norm.dw", dy);
        map(t, "norm.dweight", product, bytes_of(t, dy) + bytes_of(t, n->hat));
        sf_torch_kernel(t, "norm.dweight.sum", sf_torch_none(), bytes_of(t, product), 1);
        sf_torch_small_grad(t, unit, weight);
        drop(t, &product);
        drop(t, &dy);
        drop(t, &n->hat);
        sf_tt wide = scaled;
        if (norm_type(t) != SF_F32) {
            wide = temp(t, "norm.dhat32", SF_F32, elems);
            map(t, "norm.to32.backward", wide, bytes_of(t, scaled));
            drop(t, &scaled);
        }
        sf_tt direct = temp(t, "norm.direct", SF_F32, elems), other = temp(t, "norm.other", SF_F32, elems);
        map(t, "norm.scale.backward", direct, f32);
        map(t, "norm.drstd", other, 2 * f32);
        sf_torch_kernel(t, "norm.drstd.sum", sf_torch_none(), f32, 3);
        drop(t, &wide);
        map(t, "norm.pow.backward", other, 2 * f32);
        map(t, "norm.add", direct, 2 * f32);
        drop(t, &other);
        if (!n->x_is_input)
            drop(t, &n->x);
        n->x = sf_torch_none();
        if (t->stream != SF_F32) {
            dx = temp(t, "norm.dx", t->stream, elems);
            map(t, "norm.to16.backward", dx, f32);
            drop(t, &direct);
        } else {
            dx = direct;
        }
    }
    drop(t, &n->rstd);
    drop(t, &n->mean);
    return dx;
}

/* ---- attention ---- */

typedef struct {
    int64_t heads, kv, head_dim, v_dim; /* widths of a head of q and k, and of v                    */
    int64_t q_width, k_width, v_width, out_width;
    int64_t span;                       /* average keys that a query meets under the causal mask, x2 */
} attention_shape;

static attention_shape shape_of(const sf_torch *t, int layer)
{
    const sf_transformer *m = t->model;
    bool latent = m->kv_lora_rank > 0;
    attention_shape a = { .heads = m->n_heads, .kv = latent ? m->n_heads : m->n_kv_heads,
                          .head_dim = latent ? m->qk_nope_dim + m->qk_rope_dim : m->head_dim, .v_dim = latent ? m->v_dim : m->head_dim };
    a.q_width = a.heads * a.head_dim;
    a.k_width = a.kv * a.head_dim;
    a.v_width = a.kv * a.v_dim;
    a.out_width = a.heads * a.v_dim;
    int64_t window = sf_transformer_layer_window(m, layer);
    a.span = window > 0 && 2 * window < t->seq ? 2 * window : t->seq;
    return a;
}

/* FLOP of one product of the two under the causal mask: half of the square. */
static uint64_t score_flop(const sf_torch *t, const attention_shape *a)
{
    return u(t->rows) * u(a->span) * u(a->heads) * u(a->head_dim + a->v_dim);
}

static void sdpa_op(sf_torch *t, const attention_shape *a, sf_tt out, bool backward)
{
    sf_arg arg = sf_torch_arg(t, out, SF_WRITE);
    sf_op *op = sf_build_op(&t->b, backward ? SF_OP_F_SDPA_BWD : SF_OP_F_SDPA_FWD, SF_STREAM_COMPUTE, backward ? "attention.backward" : "attention", 1, &arg);
    op->dims = (sf_dims){ .batch = t->batch, .heads = (int32_t)a->heads, .kv_heads = (int32_t)a->kv, .head_dim = (int32_t)a->head_dim, .seq = (int32_t)t->seq };
    op->kind = (t->in_recompute ? SF_FRAME_RECOMPUTE : 0) | (t->job->train.precision == SF_PRECISION_TF32 ? SF_FRAME_TF32 : 0);
    if (t->job->train.attention == SF_ATTENTION_FLASH1)
        op->kind |= SF_FRAME_FLASH1;
    if (t->job->train.attention == SF_ATTENTION_CUDNN)
        op->kind |= SF_FRAME_CUDNN;
    op->flop = backward ? score_flop(t, a) / 2 * 5 : score_flop(t, a);
    op->bytes = u(t->rows) * u(a->q_width + a->k_width + a->v_width + a->out_width) * sf_dtype_bytes(t->compute) * (backward ? 2 : 1);
    op->launches = backward ? 3 : 1;
}

/* Of attention written out: 16-bit under fp8 too. */
static void score_gemm(sf_torch *t, const char *label, sf_tt out, sf_dtype dtype, int64_t m, int64_t n, int64_t k, int64_t batch)
{
    sf_torch_gemm(t, label, out, dtype, m, n, k, batch)->kind &= ~(unsigned)SF_FRAME_FP8;
}

static bool eager(const sf_torch *t)
{
    return t->job->train.attention == SF_ATTENTION_EAGER;
}

/* Rotary positions, as apply_rotary_pos_emb writes them out: x cos + rotate_half(x) sin. */
static sf_tt rotate(sf_torch *t, const char *name, sf_tt x, bool last)
{
    uint64_t b = bytes_of(t, x);
    if (t->compiled) {
        sf_tt y = keep(t, name, t->compute, (int64_t)t->families[x.family].elems);
        map(t, "rotary", y, b);
        if (last)
            drop(t, &x);
        return y;
    }
    sf_tt first = same(t, "rotary.cos", x);
    map(t, "rotary.cos", first, b);
    sf_tt half = same(t, "rotary.half", x);
    sf_torch_kernel(t, "rotary.half", half, 3 * b, 2);
    sf_tt second = same(t, "rotary.sin", x);
    map(t, "rotary.sin", second, b);
    drop(t, &half);
    sf_tt y = keep(t, name, t->compute, (int64_t)t->families[x.family].elems);
    map(t, "rotary.add", y, 2 * b);
    drop(t, &first);
    drop(t, &second);
    if (last)
        drop(t, &x);
    return y;
}

/* q, k, v in the layout that attention keeps. */
static void project(sf_torch *t, const attention_shape *a, sf_tt y, sf_torch_saved *s)
{
    const sf_transformer *m = t->model;
    int64_t N = t->rows;
    bool rotary = m->position == SF_POS_ROTARY;

    if (m->kv_lora_rank > 0) {
        int64_t q_in = m->hidden;
        cast_input(t, s, y);
        if (m->q_lora_rank > 0) {
            s->latent[0] = sf_torch_linear(t, "q.down", N, m->q_lora_rank, m->hidden, s);
            q_in = m->q_lora_rank;
        }
        s->qkv[0] = sf_torch_linear(t, "q", N, a->q_width, q_in, s);
        s->latent[1] = sf_torch_linear(t, "kv.down", N, m->kv_lora_rank + m->qk_rope_dim, m->hidden, s);
        sf_tt up = sf_torch_linear(t, "kv.up", N, a->heads * (m->qk_nope_dim + a->v_dim), m->kv_lora_rank, s);
        s->qkv[1] = keep(t, "k", t->compute, N * a->k_width);
        map(t, "k.concat", s->qkv[1], bytes_of(t, up));
        s->qkv[2] = keep(t, "v", t->compute, N * a->v_width);
        map(t, "v.split", s->qkv[2], bytes_of(t, up));
        drop(t, &up);
        return;
    }
    if (m->fused_qkv) {
        cast_input(t, s, y);
        sf_tt all = sf_torch_linear(t, "qkv", N, a->q_width + a->k_width + a->v_width, m->hidden, s);
        if (!rotary && !eager(t)) { /* the views share it */
            s->qkv[0] = all;
            return;
        }
        s->qkv[0] = keep(t, "q", t->compute, N * a->q_width);
        s->qkv[1] = keep(t, "k", t->compute, N * a->k_width);
        s->qkv[2] = keep(t, "v", t->compute, N * a->v_width);
        sf_torch_kernel(t, "qkv.split", s->qkv[0], 2 * bytes_of(t, all), rotary ? 12 : 3);
        drop(t, &all);
        return;
    }
    cast_input(t, s, y);
    sf_tt q = sf_torch_linear(t, "q", N, a->q_width, m->hidden, s);
    if (!t->compiled)
        cast_input(t, s, y);
    sf_tt k = sf_torch_linear(t, "k", N, a->k_width, m->hidden, s);
    if (!t->compiled)
        cast_input(t, s, y);
    s->qkv[2] = sf_torch_linear(t, "v", N, a->v_width, m->hidden, s);
    if (m->qk_norm)
        sf_torch_kernel(t, "qk.norm", q, 36 * (u(N) * u(a->q_width + a->k_width)) / 2, 14);
    s->qkv[0] = rotary ? rotate(t, "q", q, true) : q;
    s->qkv[1] = rotary ? rotate(t, "k", k, true) : k;
}

/* Grouped heads are expanded for eager attention (repeat_kv). */
static void expand(sf_torch *t, const attention_shape *a, sf_torch_saved *s)
{
    for (int i = 1; i <= 2 && a->kv < a->heads; i++) {
        sf_tt whole = keep(t, i == 1 ? "k.repeat" : "v.repeat", t->compute, t->rows * a->heads * (i == 1 ? a->head_dim : a->v_dim));
        map(t, "repeat_kv", whole, bytes_of(t, s->qkv[i]));
        drop(t, &s->qkv[i]);
        s->qkv[i] = whole;
    }
}

static void attend_eager(sf_torch *t, const attention_shape *a, sf_torch_saved *s)
{
    int64_t B = t->batch * a->heads, S = t->seq, scores = B * S * S;
    /* LLaMA asks for an fp32 softmax, autocast too; a compiled or Megatron-like one is a single kernel on 16 bits */
    bool wide = !t->compiled && (t->autocast || t->model->norm == SF_NORM_RMSNORM);
    sf_dtype soft = wide ? SF_F32 : t->compute;
    uint64_t half = u(scores) * sf_dtype_bytes(t->compute);

    expand(t, a, s);
    sf_tt raw = temp(t, "scores", t->compute, scores);
    score_gemm(t, "scores", raw, t->compute, S, S, a->head_dim, B);
    if (!t->compiled) {
        sf_tt scaled = temp(t, "scores.scaled", t->compute, scores);
        map(t, "scores.scale", scaled, half);
        drop(t, &raw);
        sf_tt masked = temp(t, "scores.masked", t->compute, scores);
        map(t, "scores.mask", masked, half);
        drop(t, &scaled);
        raw = masked;
    }
    s->probs = keep(t, "softmax", soft, scores);
    map(t, "softmax", s->probs, half);
    drop(t, &raw);
    bool dropped = t->attention_dropout;
    sf_tt used = s->probs;
    if (soft != t->compute) {
        used = keep(t, "softmax.half", t->compute, scores);
        map(t, "softmax.to16", used, 4 * u(scores));
        s->probs_half = used;
    }
    if (dropped) {
        s->mask = keep(t, "attention.mask", SF_U8, scores);
        sf_tt kept = keep(t, "softmax.dropped", t->compute, scores);
        map(t, "attention.dropout", kept, half + u(scores));
        if (soft != t->compute)
            drop(t, &s->probs_half);
        s->probs_half = kept;
    }
    sf_tt out = keep(t, "attention.bhsd", t->compute, t->rows * a->out_width);
    score_gemm(t, "context", out, t->compute, S, a->v_dim, S, B);
    s->out = keep(t, "attention.out", t->compute, t->rows * a->out_width);
    map(t, "context.contiguous", s->out, bytes_of(t, out));
    drop(t, &out);
}

static void attend(sf_torch *t, const attention_shape *a, sf_torch_saved *s)
{
    if (eager(t)) {
        attend_eager(t, a, s);
        return;
    }
    s->out = keep(t, "attention.out", t->compute, t->rows * a->out_width);
    s->lse = keep(t, "attention.lse", SF_F32, t->batch * a->heads * t->seq);
    s->rng = keep(t, "attention.rng", SF_I64, 2);
    s->kept_elems += u(t->rows) * u(a->out_width);
    if (!(t->selective && t->in_recompute))
        sdpa_op(t, a, s->out, false);
}

static void attend_backward_eager(sf_torch *t, const attention_shape *a, sf_tt dout, sf_torch_saved *s, sf_tt d[3])
{
    int64_t B = t->batch * a->heads, S = t->seq, scores = B * S * S;
    uint64_t half = u(scores) * sf_dtype_bytes(t->compute);
    bool wide = t->families[s->probs.family].dtype != t->compute;

    sf_tt dcontext = same(t, "dcontext", dout);
    map(t, "context.contiguous.backward", dcontext, bytes_of(t, dout));
    drop(t, &dout);
    d[2] = temp(t, "dv", t->compute, t->rows * a->heads * a->v_dim);
    score_gemm(t, "dv", d[2], t->compute, S, a->v_dim, S, B);
    sf_tt dprobs = temp(t, "dprobs", t->compute, scores);
    score_gemm(t, "dprobs", dprobs, t->compute, S, S, a->v_dim, B);
    drop(t, &dcontext);
    drop(t, &s->probs_half);
    drop(t, &s->qkv[2]);
    if (sf_torch_is(s->mask)) {
        sf_tt masked = temp(t, "dprobs.masked", t->compute, scores);
        map(t, "attention.dropout.backward", masked, half + u(scores));
        drop(t, &dprobs);
        drop(t, &s->mask);
        dprobs = masked;
    }
    if (wide) {
        sf_tt d32 = temp(t, "dprobs32", SF_F32, scores);
        map(t, "softmax.to16.backward", d32, half);
        drop(t, &dprobs);
        dprobs = d32;
    }
    sf_tt dscores = temp(t, wide ? "dscores32" : "dscores", wide ? SF_F32 : t->compute, scores);
    map(t, "softmax.backward", dscores, 2 * bytes_of(t, dprobs));
    drop(t, &dprobs);
    drop(t, &s->probs);
    if (wide) {
        sf_tt narrow = temp(t, "dscores", t->compute, scores);
        map(t, "softmax.to32.backward", narrow, 4 * u(scores));
        drop(t, &dscores);
        dscores = narrow;
    }
    sf_tt unscaled = dscores;
    if (!t->compiled) {
        unscaled = temp(t, "dscores.scaled", t->compute, scores);
        map(t, "scores.scale.backward", unscaled, half);
        drop(t, &dscores);
    }
    d[0] = temp(t, "dq", t->compute, t->rows * a->q_width);
    score_gemm(t, "dq", d[0], t->compute, S, a->head_dim, S, B);
    d[1] = temp(t, "dk", t->compute, t->rows * a->heads * a->head_dim);
    score_gemm(t, "dk", d[1], t->compute, S, a->head_dim, S, B);
    drop(t, &unscaled);
    drop(t, &s->qkv[0]);
    drop(t, &s->qkv[1]);
}

/* FlashAttention-2: an f32 accumulator of dq, and with grouped heads dk and dv of every head before they are summed. */
static void attend_backward_fused(sf_torch *t, const attention_shape *a, sf_tt dout, sf_torch_saved *s, sf_tt d[3])
{
    bool grouped = a->kv < a->heads;
    d[0] = temp(t, "dq", t->compute, t->rows * a->q_width);
    d[1] = temp(t, "dk", t->compute, t->rows * a->k_width);
    d[2] = temp(t, "dv", t->compute, t->rows * a->v_width);
    sf_tt sum = temp(t, "attention.softmax_d", SF_F32, t->batch * a->heads * t->seq);
    sf_tt dq32 = temp(t, "attention.dq32", SF_F32, t->rows * a->q_width);
    sf_tt all[2] = { sf_torch_none(), sf_torch_none() };
    if (grouped) {
        all[0] = temp(t, "dk.all", t->compute, t->rows * a->heads * a->head_dim);
        all[1] = temp(t, "dv.all", t->compute, t->rows * a->heads * a->v_dim);
    }
    sdpa_op(t, a, d[0], true);
    if (grouped)
        sf_torch_kernel(t, "dkv.sum", d[1], bytes_of(t, all[0]) + bytes_of(t, all[1]) + bytes_of(t, d[1]) + bytes_of(t, d[2]), 2);
    drop(t, &all[0]);
    drop(t, &all[1]);
    drop(t, &dq32);
    drop(t, &sum);
    drop(t, &dout);
    for (int i = 0; i < 3; i++)
        drop(t, &s->qkv[i]);
    drop(t, &s->out);
    drop(t, &s->lse);
    drop(t, &s->rng);
}

static sf_tt rotate_backward(sf_torch *t, sf_tt dy)
{
    uint64_t b = bytes_of(t, dy);
    if (t->compiled) {
        map(t, "rotary.backward", dy, b);
        return dy;
    }
    sf_tt sine = same(t, "rotary.dsin", dy);
    map(t, "rotary.sin.backward", sine, b);
    sf_tt half = same(t, "rotary.dhalf", dy);
    sf_torch_kernel(t, "rotary.half.backward", half, 5 * b, 5);
    drop(t, &sine);
    sf_tt cosine = same(t, "rotary.dcos", dy);
    map(t, "rotary.cos.backward", cosine, b);
    map(t, "rotary.add.backward", cosine, 2 * b);
    drop(t, &half);
    drop(t, &dy);
    return cosine;
}

/* dy of the projections' common input, in the compute type. */
static sf_tt project_backward(sf_torch *t, int unit, const attention_shape *a, sf_tt d[3], sf_torch_saved *s)
{
    const sf_transformer *m = t->model;
    int64_t N = t->rows;
    bool rotary = m->position == SF_POS_ROTARY && m->kv_lora_rank == 0;

    if (m->kv_lora_rank > 0) {
        int64_t up = a->heads * (m->qk_nope_dim + a->v_dim), q_in = m->q_lora_rank > 0 ? m->q_lora_rank : m->hidden;
        sf_tt dup = temp(t, "dkv.up", t->compute, N * up);
        sf_torch_kernel(t, "kv.concat.backward", dup, bytes_of(t, d[1]) + bytes_of(t, d[2]) + bytes_of(t, dup), 4);
        drop(t, &d[1]);
        drop(t, &d[2]);
        sf_tt dlatent = sf_torch_linear_dx(t, "kv.up.dx", N, up, m->kv_lora_rank + m->qk_rope_dim);
        sf_torch_linear_grad(t, "kv.up.dw", unit, SF_ROLE_KV_UP, SF_ROLE_COUNT, N, up, m->kv_lora_rank);
        sf_torch_small_grad(t, unit, SF_ROLE_KV_DOWN_NORM);
        drop(t, &dup);
        drop(t, &s->latent[1]);
        sf_tt dx = sf_torch_linear_dx(t, "kv.down.dx", N, m->kv_lora_rank + m->qk_rope_dim, m->hidden);
        sf_torch_linear_grad(t, "kv.down.dw", unit, SF_ROLE_KV_DOWN, SF_ROLE_COUNT, N, m->kv_lora_rank + m->qk_rope_dim, m->hidden);
        drop(t, &dlatent);
        sf_tt dq = d[0];
        if (m->q_lora_rank > 0) {
            sf_tt narrow = sf_torch_linear_dx(t, "q.dx", N, a->q_width, q_in);
            sf_torch_linear_grad(t, "q.dw", unit, SF_ROLE_Q_W, SF_ROLE_COUNT, N, a->q_width, q_in);
            drop(t, &dq);
            drop(t, &s->latent[0]);
            sf_torch_small_grad(t, unit, SF_ROLE_Q_DOWN_NORM);
            dq = narrow;
        }
        sf_tt more = sf_torch_linear_dx(t, "q.down.dx", N, m->q_lora_rank > 0 ? q_in : a->q_width, m->hidden);
        sf_torch_linear_grad(t, "q.down.dw", unit, m->q_lora_rank > 0 ? SF_ROLE_Q_DOWN : SF_ROLE_Q_W, SF_ROLE_COUNT, N, m->q_lora_rank > 0 ? q_in : a->q_width, m->hidden);
        drop(t, &dq);
        map(t, "dx.add", dx, bytes_of(t, more) + bytes_of(t, dx));
        drop(t, &more);
        return dx;
    }
    /* eager attention's dk and dv are of all heads */
    for (int i = 1; i <= 2; i++) {
        int64_t want = i == 1 ? a->k_width : a->v_width;
        if (t->families[d[i].family].elems == u(N) * u(want))
            continue;
        sf_tt sum = temp(t, "dkv.group", t->compute, N * want);
        map(t, "repeat_kv.backward", sum, bytes_of(t, d[i]));
        drop(t, &d[i]);
        d[i] = sum;
    }
    if (m->fused_qkv) {
        int64_t width = a->q_width + a->k_width + a->v_width;
        sf_tt all = temp(t, "dqkv", t->compute, N * width);
        sf_torch_kernel(t, "qkv.concat.backward", all, 2 * bytes_of(t, all), rotary ? 12 : 1);
        for (int i = 0; i < 3; i++)
            drop(t, &d[i]);
        sf_tt dx = sf_torch_linear_dx(t, "qkv.dx", N, width, m->hidden);
        sf_torch_linear_grad(t, "qkv.dw", unit, SF_ROLE_QKV_W, SF_ROLE_QKV_B, N, width, m->hidden);
        drop(t, &all);
        return dx;
    }
    sf_tt dx = sf_torch_none();
    static const sf_role weights[] = { SF_ROLE_Q_W, SF_ROLE_K_W, SF_ROLE_V_W }, biases[] = { SF_ROLE_Q_B, SF_ROLE_K_B, SF_ROLE_V_B };
    const int64_t widths[] = { a->q_width, a->k_width, a->v_width };
    for (int i = 2; i >= 0; i--) {
        if (rotary && i < 2)
            d[i] = rotate_backward(t, d[i]);
        if (m->qk_norm && i < 2) {
            sf_torch_kernel(t, "qk.norm.backward", d[i], 24 * t->families[d[i].family].elems, 10);
            sf_torch_small_grad(t, unit, i == 0 ? SF_ROLE_Q_NORM : SF_ROLE_K_NORM);
            sf_torch_small_grad(t, unit, i == 0 ? SF_ROLE_Q_NORM_B : SF_ROLE_K_NORM_B);
        }
        sf_tt part = sf_torch_linear_dx(t, "qkv.dx", N, widths[i], m->hidden);
        sf_torch_linear_grad(t, "qkv.dw", unit, weights[i], biases[i], N, widths[i], m->hidden);
        drop(t, &d[i]);
        if (sf_torch_is(dx)) {
            map(t, "dx.add", dx, bytes_of(t, part) + bytes_of(t, dx));
            drop(t, &part);
        } else {
            dx = part;
        }
    }
    return dx;
}

/* ---- MLP ---- */

/* "gelu_new" is a Python expression in Transformers; "gelu_pytorch_tanh" and "gelu" are one kernel. */
static bool written_out_gelu(const sf_torch *t)
{
    static const char *const types[] = { "gpt2", "gpt_neo", "gptj", "codegen" };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(t->model->model_type, types[i]) == 0)
            return t->model->activation == SF_ACTIVATION_GELU_TANH && !t->compiled;
    return false;
}

static void activation_forward(sf_torch *t, sf_torch_saved *s, int64_t elems)
{
    const sf_transformer *m = t->model;
    uint64_t half = u(elems) * sf_dtype_bytes(t->compute), f32 = 4 * u(elems);

    if (m->gated) {
        if (t->compiled) {
            s->product = keep(t, "mlp.product", t->compute, elems);
            map(t, "mlp.glu", s->product, 2 * half);
            return;
        }
        s->act = keep(t, "mlp.act", t->compute, elems);
        map(t, "mlp.act", s->act, half);
        s->product = keep(t, "mlp.product", t->compute, elems);
        map(t, "mlp.mul", s->product, 2 * half);
        return;
    }
    if (!written_out_gelu(t)) {
        s->act = keep(t, "mlp.act", t->compute, elems);
        map(t, "mlp.act", s->act, half);
        if (m->activation == SF_ACTIVATION_RELU) /* its backward reads the result */
            drop(t, &s->up);
        return;
    }
    /* NewGELUActivation: 0.5 x (1 + tanh(c (x + 0.044715 x^3))), written out; autocast makes pow's part f32 */
    sf_dtype wide = t->autocast ? SF_F32 : t->compute;
    uint64_t w = u(elems) * sf_dtype_bytes(wide);
    if (t->autocast) {
        s->act_parts[0] = keep(t, "gelu.x32", SF_F32, elems);
        map(t, "gelu.to32", s->act_parts[0], half);
    }
    sf_tt halved = keep(t, "gelu.half", t->compute, elems);
    map(t, "gelu.half", halved, half);
    sf_tt cube = temp(t, "gelu.cube", wide, elems);
    map(t, "gelu.pow", cube, w);
    sf_tt scaled = temp(t, "gelu.scaled", wide, elems);
    map(t, "gelu.mul", scaled, w);
    drop(t, &cube);
    sf_tt sum = temp(t, "gelu.sum", wide, elems);
    map(t, "gelu.add", sum, w + half);
    drop(t, &scaled);
    sf_tt inner = temp(t, "gelu.inner", wide, elems);
    map(t, "gelu.mul", inner, w);
    drop(t, &sum);
    s->act_parts[1] = keep(t, "gelu.tanh", wide, elems);
    map(t, "gelu.tanh", s->act_parts[1], w);
    drop(t, &inner);
    s->act_parts[2] = keep(t, "gelu.one_plus", wide, elems);
    map(t, "gelu.add", s->act_parts[2], w);
    if (t->autocast) {
        drop(t, &s->up);
        s->up = halved;
        sf_tt out32 = temp(t, "gelu.out32", SF_F32, elems);
        map(t, "gelu.mul", out32, w + half);
        s->act = keep(t, "mlp.act", t->compute, elems);
        map(t, "gelu.to16", s->act, f32);
        drop(t, &out32);
    } else {
        s->product = halved;
        s->act = keep(t, "mlp.act", t->compute, elems);
        map(t, "gelu.mul", s->act, 2 * half);
    }
}

/* d of the up (and gate) projection's outputs; dact is consumed. */
static void activation_backward(sf_torch *t, sf_torch_saved *s, sf_tt dact, int64_t elems, sf_tt *dup, sf_tt *dgate)
{
    const sf_transformer *m = t->model;
    uint64_t half = u(elems) * sf_dtype_bytes(t->compute);
    *dgate = sf_torch_none();
    if (m->gated) {
        *dup = temp(t, "mlp.dup", t->compute, elems);
        map(t, "mlp.mul.backward", *dup, 2 * half);
        sf_tt mid = temp(t, "mlp.dact", t->compute, elems);
        map(t, "mlp.mul.backward", mid, 2 * half);
        drop(t, &dact);
        drop(t, &s->up);
        drop(t, &s->act);
        *dgate = temp(t, "mlp.dgate", t->compute, elems);
        map(t, "mlp.act.backward", *dgate, 2 * half);
        drop(t, &mid);
        drop(t, &s->gate);
        return;
    }
    *dup = temp(t, "mlp.dup", t->compute, elems);
    if (sf_torch_is(s->act_parts[1])) {
        sf_dtype wide = t->families[s->act_parts[1].family].dtype;
        uint64_t w = u(elems) * sf_dtype_bytes(wide);
        sf_tt a = temp(t, "gelu.da", wide, elems), b = temp(t, "gelu.db", wide, elems);
        sf_torch_kernel(t, "gelu.backward", a, 14 * w, 9);
        drop(t, &b);
        map(t, "gelu.backward.add", *dup, w + half);
        drop(t, &a);
    } else {
        map(t, "mlp.act.backward", *dup, 2 * half);
    }
    drop(t, &dact);
    for (int i = 0; i < 3; i++)
        drop(t, &s->act_parts[i]);
    drop(t, &s->product);
    drop(t, &s->up);
}

/* One dense MLP of `ffn` on the rows of y. */
static sf_tt dense_forward(sf_torch *t, sf_tt y, int64_t ffn, sf_torch_saved *s)
{
    const sf_transformer *m = t->model;
    int64_t N = t->rows;
    cast_input(t, s, y);
    if (m->gated && !m->fused_gate_up) {
        s->gate = sf_torch_linear(t, "mlp.gate", N, ffn, m->hidden, s);
        if (!t->compiled)
            cast_input(t, s, y);
        s->up = sf_torch_linear(t, "mlp.up", N, ffn, m->hidden, s);
    } else if (m->gated) {
        s->gate = sf_torch_linear(t, "mlp.gate_up", N, 2 * ffn, m->hidden, s);
    } else {
        s->up = sf_torch_linear(t, "mlp.up", N, ffn, m->hidden, s);
    }
    activation_forward(t, s, N * ffn);
    return sf_torch_linear(t, "mlp.down", N, m->hidden, ffn, s);
}

static sf_tt dense_backward(sf_torch *t, int unit, sf_tt dout, int64_t ffn, sf_torch_saved *s)
{
    const sf_transformer *m = t->model;
    int64_t N = t->rows;
    sf_tt dup, dgate, dx;
    sf_tt dact = sf_torch_linear_dx(t, "mlp.down.dx", N, m->hidden, ffn);
    sf_torch_linear_grad(t, "mlp.down.dw", unit, SF_ROLE_DOWN_W, SF_ROLE_DOWN_B, N, m->hidden, ffn);
    drop(t, &dout);
    if (m->gated)
        drop(t, &s->product);
    else
        drop(t, &s->act);
    activation_backward(t, s, dact, N * ffn, &dup, &dgate);
    bool fused = m->gated && m->fused_gate_up;
    int64_t width = fused ? 2 * ffn : ffn;
    if (fused) {
        sf_tt both = temp(t, "mlp.dgate_up", t->compute, N * width);
        map(t, "mlp.concat.backward", both, bytes_of(t, both));
        drop(t, &dup);
        drop(t, &dgate);
        dup = both;
    }
    dx = sf_torch_linear_dx(t, "mlp.up.dx", N, width, m->hidden);
    sf_torch_linear_grad(t, "mlp.up.dw", unit, fused ? SF_ROLE_GATE_UP_W : SF_ROLE_UP_W, SF_ROLE_UP_B, N, width, m->hidden);
    drop(t, &dup);
    if (m->gated && !fused) {
        sf_tt more = sf_torch_linear_dx(t, "mlp.gate.dx", N, ffn, m->hidden);
        sf_torch_linear_grad(t, "mlp.gate.dw", unit, SF_ROLE_GATE_W, SF_ROLE_GATE_B, N, ffn, m->hidden);
        drop(t, &dgate);
        map(t, "dx.add", dx, 2 * bytes_of(t, dx));
        drop(t, &more);
    }
    return dx;
}

/* Experts: k copies of each row go through expert_ffn; products of each expert see rows k / experts of them. */
static sf_tt moe_forward(sf_torch *t, sf_tt y, sf_torch_saved *s)
{
    const sf_transformer *m = t->model;
    int64_t N = t->rows, K = N * m->top_k, E = m->n_experts, per = K / E > 0 ? K / E : 1, f = m->expert_ffn;
    uint64_t h = sf_dtype_bytes(t->compute);
    cast_input(t, s, y);
    s->router[0] = keep(t, "router.logits", SF_F32, N * E);
    sf_torch_gemm(t, "router", s->router[0], t->compute, N, E, m->hidden, 1);
    s->router[1] = keep(t, "router.probs", SF_F32, N * E);
    sf_torch_kernel(t, "router.softmax", s->router[1], 16 * u(N) * u(E), 6);
    s->router[2] = keep(t, "router.index", SF_I64, 2 * K);
    s->permuted = keep(t, "experts.in", t->compute, K * m->hidden);
    map(t, "experts.permute", s->permuted, u(K) * u(m->hidden) * h);
    s->gate = keep(t, "experts.gate", t->compute, K * f);
    sf_torch_gemm(t, "experts.gate", s->gate, t->compute, per, f, m->hidden, E);
    if (m->gated) {
        s->up = keep(t, "experts.up", t->compute, K * f);
        sf_torch_gemm(t, "experts.up", s->up, t->compute, per, f, m->hidden, E);
    }
    s->act = keep(t, "experts.act", t->compute, K * f);
    map(t, "experts.act", s->act, u(K) * u(f) * h);
    if (m->gated) {
        s->product = keep(t, "experts.product", t->compute, K * f);
        map(t, "experts.mul", s->product, 2 * u(K) * u(f) * h);
    }
    s->combined = keep(t, "experts.out", t->compute, K * m->hidden);
    sf_torch_gemm(t, "experts.down", s->combined, t->compute, per, m->hidden, f, E);
    sf_tt out = keep(t, "mlp.down", t->compute, N * m->hidden);
    sf_torch_kernel(t, "experts.combine", out, 3 * u(K) * u(m->hidden) * h, 3);
    if (m->shared_ffn > 0) {
        sf_tt a = temp(t, "shared.act", t->compute, 3 * N * m->shared_ffn);
        sf_torch_gemm(t, "shared.up", a, t->compute, N, m->shared_ffn * (m->gated ? 2 : 1), m->hidden, 1);
        map(t, "shared.act", a, bytes_of(t, a));
        sf_torch_gemm(t, "shared.down", out, t->compute, N, m->hidden, m->shared_ffn, 1);
        drop(t, &a);
    }
    return out;
}

static void expert_grads(sf_torch *t, int unit)
{
    const sf_torch_unit *x = &t->units[unit];
    for (int i = x->first + x->count - 1; i >= x->first; i--) {
        const sf_torch_param *p = &t->params[i];
        if (p->role != SF_ROLE_EXPERT_W && p->role != SF_ROLE_EXPERT_B && p->role != SF_ROLE_SHARED_W && p->role != SF_ROLE_SHARED_GATE &&
            p->role != SF_ROLE_ROUTER_W && p->role != SF_ROLE_ROUTER_B)
            continue;
        int64_t in = (int64_t)(p->numel / (p->rows > 0 ? p->rows : 1));
        int64_t rows = p->role == SF_ROLE_EXPERT_W ? t->rows * t->model->top_k / t->model->n_experts : t->rows;
        if (p->role == SF_ROLE_EXPERT_B || in == 1)
            sf_torch_grad_done(t, i, t->hooks->grad_take(t, i));
        else
            weight_grad(t, "experts.dw", i, rows > 0 ? rows : 1, (int64_t)p->rows, in, p->copies);
    }
}

static sf_tt moe_backward(sf_torch *t, int unit, sf_tt dout, sf_torch_saved *s)
{
    const sf_transformer *m = t->model;
    int64_t N = t->rows, K = N * m->top_k, E = m->n_experts, per = K / E > 0 ? K / E : 1, f = m->expert_ffn;
    uint64_t h = sf_dtype_bytes(t->compute);
    sf_tt dcombined = temp(t, "experts.dout", t->compute, K * m->hidden);
    sf_torch_kernel(t, "experts.combine.backward", dcombined, 3 * u(K) * u(m->hidden) * h, 3);
    drop(t, &s->combined);
    sf_tt dproduct = temp(t, "experts.dproduct", t->compute, K * f);
    sf_torch_gemm(t, "experts.down.dx", dproduct, t->compute, per, f, m->hidden, E);
    sf_tt dgate = temp(t, "experts.dgate", t->compute, K * f * (m->gated ? 2 : 1));
    sf_torch_kernel(t, "experts.act.backward", dgate, 6 * u(K) * u(f) * h, 3);
    drop(t, &dproduct);
    drop(t, &s->product);
    drop(t, &s->act);
    sf_tt dpermuted = temp(t, "experts.din", t->compute, K * m->hidden);
    sf_torch_gemm(t, "experts.up.dx", dpermuted, t->compute, per, m->hidden, f * (m->gated ? 2 : 1), E);
    expert_grads(t, unit);
    drop(t, &dcombined);
    drop(t, &dgate);
    drop(t, &s->gate);
    drop(t, &s->up);
    drop(t, &s->permuted);
    sf_tt dx = temp(t, "linear.dx", t->compute, N * m->hidden);
    sf_torch_kernel(t, "experts.permute.backward", dx, 2 * u(K) * u(m->hidden) * h, 2);
    drop(t, &dpermuted);
    if (m->shared_ffn > 0) {
        sf_torch_gemm(t, "shared.dx", dx, t->compute, N, m->hidden, m->shared_ffn * (m->gated ? 3 : 2), 1);
        sf_torch_gemm(t, "router.dx", dx, t->compute, N, m->hidden, E, 1);
    }
    drop(t, &dout);
    for (int i = 0; i < 3; i++)
        drop(t, &s->router[i]);
    return dx;
}

/* ---- residuals ---- */

/* x + dropout(branch); the branch goes. */
static sf_tt residual(sf_torch *t, sf_tt x, sf_tt branch, sf_tt *mask)
{
    int64_t elems = t->rows * t->model->hidden;
    if (t->dropout > 0) {
        *mask = keep(t, "residual.mask", SF_U8, elems);
        sf_tt dropped = temp(t, "residual.dropped", t->compute, elems);
        map(t, "residual.dropout", dropped, bytes_of(t, branch) + u(elems));
        drop(t, &branch);
        branch = dropped;
    }
    sf_tt sum = keep(t, "residual", t->stream, elems);
    map(t, "residual.add", sum, bytes_of(t, x) + bytes_of(t, branch));
    drop(t, &branch);
    return sum;
}

/* The branch's gradient, in the compute type, from the stream's, which stays. */
static sf_tt residual_backward(sf_torch *t, sf_tt dy, sf_tt *mask)
{
    int64_t elems = t->rows * t->model->hidden;
    if (t->stream == t->compute && !sf_torch_is(*mask))
        return sf_torch_none(); /* the same tensor serves */
    sf_tt d = temp(t, "residual.dbranch", t->compute, elems);
    sf_torch_kernel(t, "residual.backward", d, bytes_of(t, d) + bytes_of(t, dy), t->stream == t->compute || !sf_torch_is(*mask) ? 1 : 2);
    drop(t, mask);
    return d;
}

/* ---- the block ---- */

static bool keeps_stream(const sf_torch *t)
{
    return !python_norm(t) || t->stream == SF_F32;
}

static void release_input(sf_torch *t, sf_tt y, sf_tt *slot)
{
    /* an input in the compute type is kept by the products that read it; a wider one was cast and goes */
    if (t->families[y.family].dtype == t->compute)
        *slot = y;
    else
        sf_torch_give(t, y);
}

static bool is_moe(const sf_torch *t, int layer)
{
    return sf_transformer_layer_is_moe(t->model, layer);
}

sf_tt sf_torch_block_fwd(sf_torch *t, int layer, sf_tt x, sf_torch_saved *s)
{
    const sf_transformer *m = t->model;
    attention_shape a = shape_of(t, layer);
    *s = (sf_torch_saved){ .input = x };
    sf_tt *all[] = { &s->middle, &s->in1, &s->in2, &s->qkv[0], &s->qkv[1], &s->qkv[2], &s->latent[0], &s->latent[1], &s->probs, &s->probs_half, &s->mask,
                     &s->out, &s->lse, &s->rng, &s->resid_mask[0], &s->resid_mask[1], &s->gate, &s->act, &s->up, &s->act_parts[0], &s->act_parts[1],
                     &s->act_parts[2], &s->product, &s->router[0], &s->router[1], &s->router[2], &s->permuted, &s->combined };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        *all[i] = sf_torch_none();

    sf_tt y = sf_torch_norm_forward(t, x, m->hidden, t->rows, &s->norm[0]);
    project(t, &a, y, s);
    attend(t, &a, s);
    sf_tt branch = sf_torch_linear(t, "attention.proj", t->rows, m->hidden, a.out_width, s);
    if (m->parallel_block) { /* x + attention + mlp, of one norm */
        sf_tt more = is_moe(t, layer) ? moe_forward(t, y, s) : dense_forward(t, y, m->ffn_hidden, s);
        release_input(t, y, &s->in1);
        map(t, "branch.add", branch, 2 * bytes_of(t, branch));
        drop(t, &more);
        sf_tt out = residual(t, x, branch, &s->resid_mask[0]);
        s->input_kept = keeps_stream(t);
        return out;
    }
    release_input(t, y, &s->in1);
    s->middle = residual(t, x, branch, &s->resid_mask[0]);
    s->input_kept = keeps_stream(t);
    if (!s->input_kept && !t->recompute)
        drop(t, &s->input);
    y = sf_torch_norm_forward(t, s->middle, m->hidden, t->rows, &s->norm[1]);
    branch = is_moe(t, layer) ? moe_forward(t, y, s) : dense_forward(t, y, m->ffn_hidden, s);
    release_input(t, y, &s->in2);
    sf_tt out = residual(t, s->middle, branch, &s->resid_mask[1]);
    s->middle_kept = keeps_stream(t);
    if (!s->middle_kept)
        drop(t, &s->middle);
    return out;
}

static sf_tt into_stream(sf_torch *t, sf_tt dy, sf_tt dx)
{
    map(t, "residual.add.backward", dy, bytes_of(t, dy) + bytes_of(t, dx));
    drop(t, &dx);
    return dy;
}

/* The gradient of a norm's output in the norm's type. */
static sf_tt widen(sf_torch *t, sf_tt dx)
{
    if (norm_type(t) == t->families[dx.family].dtype)
        return dx;
    sf_tt wide = temp(t, "autocast.dinput", norm_type(t), (int64_t)t->families[dx.family].elems);
    map(t, "autocast.backward", wide, bytes_of(t, dx));
    drop(t, &dx);
    return wide;
}

static sf_tt mlp_backward(sf_torch *t, int layer, sf_tt dy, sf_torch_saved *s, sf_tt *mask)
{
    sf_tt d = residual_backward(t, dy, mask);
    return is_moe(t, layer) ? moe_backward(t, unit_of(layer), d, s) : dense_backward(t, unit_of(layer), d, t->model->ffn_hidden, s);
}

static sf_tt attention_backward(sf_torch *t, int layer, sf_tt dy, sf_torch_saved *s, sf_tt *mask)
{
    attention_shape a = shape_of(t, layer);
    int unit = unit_of(layer);
    sf_tt d[3] = { sf_torch_none(), sf_torch_none(), sf_torch_none() };
    sf_tt dbranch = residual_backward(t, dy, mask);
    sf_tt dout = sf_torch_linear_dx(t, "attention.proj.dx", t->rows, t->model->hidden, a.out_width);
    sf_torch_linear_grad(t, "attention.proj.dw", unit, SF_ROLE_OUT_W, SF_ROLE_OUT_B, t->rows, t->model->hidden, a.out_width);
    drop(t, &dbranch);
    if (eager(t)) {
        drop(t, &s->out);
        attend_backward_eager(t, &a, dout, s, d);
    } else {
        attend_backward_fused(t, &a, dout, s, d);
    }
    sf_torch_small_grad(t, unit, SF_ROLE_SINKS);
    return project_backward(t, unit, &a, d, s);
}

sf_tt sf_torch_block_bwd(sf_torch *t, int layer, sf_tt dy, sf_torch_saved *s)
{
    int unit = unit_of(layer);
    if (t->model->parallel_block) {
        sf_tt none = sf_torch_none();
        sf_tt dmlp = mlp_backward(t, layer, dy, s, &none);
        sf_tt dx = attention_backward(t, layer, dy, s, &s->resid_mask[0]);
        map(t, "dx.add", dx, bytes_of(t, dx) + bytes_of(t, dmlp));
        drop(t, &dmlp);
        drop(t, &s->in1);
        dx = sf_torch_norm_backward(t, unit, SF_ROLE_NORM1_W, SF_ROLE_NORM1_B, widen(t, dx), &s->norm[0], t->rows);
        sf_torch_small_grad(t, unit, SF_ROLE_NORM2_W);
        sf_torch_small_grad(t, unit, SF_ROLE_NORM2_B);
        dy = into_stream(t, dy, dx);
    } else {
        sf_tt dx = mlp_backward(t, layer, dy, s, &s->resid_mask[1]);
        drop(t, &s->in2);
        dx = sf_torch_norm_backward(t, unit, SF_ROLE_NORM2_W, SF_ROLE_NORM2_B, widen(t, dx), &s->norm[1], t->rows);
        dy = into_stream(t, dy, dx);
        drop(t, &s->middle);
        dx = attention_backward(t, layer, dy, s, &s->resid_mask[0]);
        drop(t, &s->in1);
        dx = sf_torch_norm_backward(t, unit, SF_ROLE_NORM1_W, SF_ROLE_NORM1_B, widen(t, dx), &s->norm[0], t->rows);
        sf_torch_small_grad(t, unit, SF_ROLE_NORM3_W);
        sf_torch_small_grad(t, unit, SF_ROLE_NORM4_W);
        sf_torch_small_grad(t, unit, SF_ROLE_ACT_PARAM);
        dy = into_stream(t, dy, dx);
    }
    for (int i = 0; i < s->n_casts; i++)
        drop(t, &s->casts[i]);
    s->n_casts = 0;
    if (s->input_kept || t->recompute)
        drop(t, &s->input);
    return dy;
}
