#include "tests/exec/mini_model.h"

#include <stdlib.h>
#include <string.h>

/* A span of the flat parameters; absent (a bias of LLaMA) when count is 0. */
typedef struct {
    size_t at, count;
    bool decay;
} span;

typedef struct {
    span norm1, norm1_b, qkv, qkv_b, proj, proj_b, norm2, norm2_b, up, up_b, down, down_b;
} layer_spans;

/* Kept from forward to backward. */
typedef struct {
    void *x;                        /* (N,C) the layer's input                        */
    void *a, *qkv, *attn, *mid;     /* (N,C), (N,QKV), (N,NH*HD), (N,C)               */
    void *b, *h, *g;                /* (N,C), (N,F or 2F), (N,F)                      */
    float *mean1, *rstd1, *mean2, *rstd2, *lse;
} layer_saved;

enum { MAX_SPANS = 1024, MAX_BLOCKS = 4096 };

struct mini_model {
    mini_config c;
    sf_dtype dt;
    sf_host_ops ops;
    sf_attn_dims attn;
    size_t rows, qkv_width, param_count;
    span wte, wpe, norm_f, norm_f_b, head, *order[MAX_SPANS];
    size_t n_spans;
    layer_spans *spans;
    layer_saved *saved;
    float *master, *m, *v, *rope, *mean_f, *rstd_f, *loss;
    void *w, *grad, *x_f, *y_f, *tmp, *logits, *ws;
    void *d, *dn, *dattn, *dqkv, *dh, *dg; /* gradients in flight */
    void *blocks[MAX_BLOCKS];
    size_t n_blocks;
};

static void *block(mini_model *m, size_t count, size_t element_bytes)
{
    void *p = NULL;
    const size_t bytes = (count * element_bytes + 63) / 64 * 64;
    if (m->n_blocks == MAX_BLOCKS || posix_memalign(&p, 64, bytes + 64) != 0)
        abort();
    memset(p, 0, bytes);
    m->blocks[m->n_blocks++] = p;
    return p;
}

static void *values(mini_model *m, size_t count)
{
    return block(m, count, sf_dtype_bytes(m->dt));
}

static float *floats(mini_model *m, size_t count)
{
    return block(m, count, sizeof(float));
}

static void place(mini_model *m, span *s, size_t count, bool decay)
{
    *s = (span){ m->param_count, count, decay };
    m->param_count += count;
    m->order[m->n_spans++] = s;
}

static void lay_out(mini_model *m)
{
    const mini_config *c = &m->c;
    const size_t C = c->hidden, QKV = m->qkv_width, F = c->ffn;
    place(m, &m->wte, c->vocab * C, true);
    if (!c->llama)
        place(m, &m->wpe, c->seq_len * C, true);
    for (size_t l = 0; l < c->layers; l++) {
        layer_spans *s = &m->spans[l];
        if (c->llama) {
            place(m, &s->qkv, QKV * C, true);
            place(m, &s->proj, C * C, true);
            place(m, &s->up, 2 * F * C, true);
            place(m, &s->down, C * F, true);
            place(m, &s->norm1, C, false);
            place(m, &s->norm2, C, false);
        } else {
            place(m, &s->norm1, C, false);
            place(m, &s->norm1_b, C, false);
            place(m, &s->qkv, QKV * C, true);
            place(m, &s->qkv_b, QKV, false);
            place(m, &s->proj, C * C, true);
            place(m, &s->proj_b, C, false);
            place(m, &s->norm2, C, false);
            place(m, &s->norm2_b, C, false);
            place(m, &s->up, F * C, true);
            place(m, &s->up_b, F, false);
            place(m, &s->down, C * F, true);
            place(m, &s->down_b, C, false);
        }
    }
    place(m, &m->norm_f, C, false);
    if (c->llama)
        place(m, &m->head, c->vocab * C, true);
    else
        place(m, &m->norm_f_b, C, false);
}

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t ws_bytes(const mini_model *m)
{
    const mini_config *c = &m->c;
    const size_t wide = max_size(max_size(m->qkv_width, 2 * c->ffn), c->vocab);
    size_t bytes = sf_host_linear_ws_bytes(m->dt, m->rows, max_size(c->hidden, c->ffn), wide);
    bytes = max_size(bytes, sf_host_attn_ws_bytes(m->dt, &m->attn));
    bytes = max_size(bytes, sf_host_norm_bwd_ws_bytes(c->hidden));
    return max_size(bytes, sf_host_embed_bwd_ws_bytes(m->rows, c->hidden));
}

mini_model *mini_model_new(const mini_config *config, sf_dtype dt)
{
    mini_model *m = calloc(1, sizeof *m);
    const mini_config *c = &m->c;
    m->c = *config;
    m->dt = dt;
    sf_host_ops_init(&m->ops);
    m->attn = (sf_attn_dims){ c->micro_batch, c->seq_len, c->heads, c->kv_heads, c->hidden / c->heads };
    m->rows = c->micro_batch * c->seq_len;
    m->qkv_width = (c->heads + 2 * c->kv_heads) * m->attn.head_dim;
    m->spans = block(m, c->layers, sizeof *m->spans);
    m->saved = block(m, c->layers, sizeof *m->saved);
    lay_out(m);

    const size_t N = m->rows, C = c->hidden, H = c->llama ? 2 * c->ffn : c->ffn;
    m->master = floats(m, m->param_count);
    m->m = floats(m, m->param_count);
    m->v = floats(m, m->param_count);
    m->w = dt == SF_F32 ? m->master : values(m, m->param_count);
    m->grad = values(m, m->param_count);
    for (size_t l = 0; l < c->layers; l++) {
        layer_saved *s = &m->saved[l];
        *s = (layer_saved){ .x = values(m, N * C), .a = values(m, N * C), .qkv = values(m, N * m->qkv_width),
                            .attn = values(m, N * C), .mid = values(m, N * C), .b = values(m, N * C),
                            .h = values(m, N * H), .g = values(m, N * c->ffn), .mean1 = floats(m, N),
                            .rstd1 = floats(m, N), .mean2 = floats(m, N), .rstd2 = floats(m, N),
                            .lse = floats(m, N * c->heads) };
    }
    m->x_f = values(m, N * C);
    m->y_f = values(m, N * C);
    m->tmp = values(m, N * C);
    m->mean_f = floats(m, N);
    m->rstd_f = floats(m, N);
    m->loss = floats(m, N);
    m->logits = values(m, N * c->vocab);
    m->d = values(m, N * C);
    m->dn = values(m, N * C);
    m->dattn = values(m, N * C);
    m->dqkv = values(m, N * m->qkv_width);
    m->dh = values(m, N * H);
    m->dg = values(m, N * c->ffn);
    m->ws = block(m, ws_bytes(m), 1);
    if (c->llama) {
        m->rope = block(m, sf_host_rope_table_bytes(c->seq_len, m->attn.head_dim), 1);
        sf_host_rope_table(c->seq_len, m->attn.head_dim, c->rope_theta, m->rope);
    }
    return m;
}

void mini_model_free(mini_model *m)
{
    for (size_t i = 0; i < m->n_blocks; i++)
        free(m->blocks[i]);
    free(m);
}

size_t mini_model_param_count(const mini_model *m)
{
    return m->param_count;
}

float *mini_model_params(mini_model *m)
{
    return m->master;
}

const void *mini_model_grads(const mini_model *m)
{
    return m->grad;
}

const void *mini_model_logits(const mini_model *m)
{
    return m->logits;
}

void mini_model_sync(mini_model *m)
{
    if (m->w != m->master)
        m->ops.cast(SF_F32, m->dt, m->param_count, m->master, m->w);
}

static void *in(const mini_model *m, void *flat, span s)
{
    return s.count == 0 ? NULL : (char *)flat + s.at * sf_dtype_bytes(m->dt);
}

static void *weight(const mini_model *m, span s)
{
    return in(m, m->w, s);
}

static void *grad(const mini_model *m, span s)
{
    return in(m, m->grad, s);
}

static span head_span(const mini_model *m)
{
    return m->c.llama ? m->head : m->wte;
}

static sf_op_norm norm_kind(const mini_model *m)
{
    return m->c.llama ? SF_OP_NORM_RMS : SF_OP_NORM_LAYER;
}

static sf_op_act act_kind(const mini_model *m)
{
    return m->c.llama ? SF_OP_ACT_SWIGLU : SF_OP_ACT_GELU_TANH;
}

static void norm(mini_model *m, const void *x, span w, span b, void *y, float *mean, float *rstd)
{
    m->ops.norm_fwd(m->dt, norm_kind(m), m->rows, m->c.hidden, x, weight(m, w), weight(m, b), m->c.norm_eps, y, mean, rstd);
}

static void linear(mini_model *m, const void *x, size_t width, span w, span b, void *y)
{
    m->ops.linear_fwd(m->dt, m->rows, width, w.count / width, x, weight(m, w), weight(m, b), y, m->ws);
}

static void *next_input(mini_model *m, size_t layer)
{
    return layer + 1 < m->c.layers ? m->saved[layer + 1].x : m->x_f;
}

void mini_model_forward(mini_model *m, const int32_t *tokens)
{
    const size_t N = m->rows, C = m->c.hidden, F = m->c.ffn;
    m->ops.embed_fwd(m->dt, N, m->c.seq_len, C, tokens, weight(m, m->wte), weight(m, m->wpe), m->saved[0].x);
    for (size_t l = 0; l < m->c.layers; l++) {
        const layer_spans *p = &m->spans[l];
        const layer_saved *s = &m->saved[l];
        norm(m, s->x, p->norm1, p->norm1_b, s->a, s->mean1, s->rstd1);
        linear(m, s->a, C, p->qkv, p->qkv_b, s->qkv);
        if (m->rope != NULL)
            m->ops.rope_fwd(m->dt, &m->attn, m->attn.head_dim, m->rope, s->qkv);
        m->ops.attn_fwd(m->dt, &m->attn, s->qkv, s->attn, s->lse, m->ws);
        linear(m, s->attn, C, p->proj, p->proj_b, m->tmp);
        m->ops.add(m->dt, N * C, s->x, m->tmp, s->mid);
        norm(m, s->mid, p->norm2, p->norm2_b, s->b, s->mean2, s->rstd2);
        linear(m, s->b, C, p->up, p->up_b, s->h);
        m->ops.act_fwd(m->dt, act_kind(m), N, F, s->h, s->g);
        linear(m, s->g, F, p->down, p->down_b, m->tmp);
        m->ops.add(m->dt, N * C, s->mid, m->tmp, next_input(m, l));
    }
    norm(m, m->x_f, m->norm_f, m->norm_f_b, m->y_f, m->mean_f, m->rstd_f);
    linear(m, m->y_f, C, head_span(m), (span){ 0 }, m->logits);
}

/* dx = dy W; dW = dy^T x; db. */
static void linear_bwd(mini_model *m, const void *dy, const void *x, size_t width, span w, span b, void *dx)
{
    const size_t out = w.count / width;
    m->ops.linear_bwd_w(m->dt, m->rows, width, out, dy, x, false, grad(m, w), grad(m, b), m->ws);
    m->ops.linear_bwd_x(m->dt, m->rows, width, out, dy, weight(m, w), false, dx, m->ws);
}

static void norm_bwd(mini_model *m, const void *dy, const void *x, span w, span b, const float *mean,
                     const float *rstd, bool accumulate, void *dx)
{
    m->ops.norm_bwd(m->dt, norm_kind(m), m->rows, m->c.hidden, dy, x, weight(m, w), mean, rstd, accumulate, dx, false,
                    grad(m, w), grad(m, b), m->ws);
}

float mini_model_backward(mini_model *m, const int32_t *tokens, const int32_t *targets)
{
    const size_t N = m->rows, C = m->c.hidden, F = m->c.ffn;
    m->ops.xent(m->dt, N, m->c.vocab, m->logits, targets, 1.0f / (float)N, m->loss);
    linear_bwd(m, m->logits, m->y_f, C, head_span(m), (span){ 0 }, m->dn);
    norm_bwd(m, m->dn, m->x_f, m->norm_f, m->norm_f_b, m->mean_f, m->rstd_f, false, m->d);
    for (size_t l = m->c.layers; l-- > 0;) {
        const layer_spans *p = &m->spans[l];
        const layer_saved *s = &m->saved[l];
        linear_bwd(m, m->d, s->g, F, p->down, p->down_b, m->dg);
        m->ops.act_bwd(m->dt, act_kind(m), N, F, m->dg, s->h, m->dh);
        linear_bwd(m, m->dh, s->b, C, p->up, p->up_b, m->dn);
        norm_bwd(m, m->dn, s->mid, p->norm2, p->norm2_b, s->mean2, s->rstd2, true, m->d);
        linear_bwd(m, m->d, s->attn, C, p->proj, p->proj_b, m->dattn);
        m->ops.attn_bwd(m->dt, &m->attn, m->dattn, s->qkv, s->attn, s->lse, m->dqkv, m->ws);
        if (m->rope != NULL)
            m->ops.rope_bwd(m->dt, &m->attn, m->attn.head_dim, m->rope, m->dqkv);
        linear_bwd(m, m->dqkv, s->a, C, p->qkv, p->qkv_b, m->dn);
        norm_bwd(m, m->dn, s->x, p->norm1, p->norm1_b, s->mean1, s->rstd1, true, m->d);
    }
    m->ops.embed_bwd(m->dt, N, m->c.seq_len, C, m->c.vocab, tokens, m->d, !m->c.llama, grad(m, m->wte), false,
                     grad(m, m->wpe), m->ws);
    double sum = 0;
    for (size_t r = 0; r < N; r++)
        sum += (double)m->loss[r];
    return (float)(sum / (double)N);
}

void mini_model_update(mini_model *m, const sf_adamw *step)
{
    for (size_t i = 0; i < m->n_spans; i++) {
        const span s = *m->order[i];
        sf_adamw c = *step;
        c.weight_decay = s.decay ? step->weight_decay : 0;
        m->ops.adamw(&c, s.count, m->dt, grad(m, s), m->master + s.at, m->m + s.at, m->v + s.at, m->dt, weight(m, s));
    }
}
