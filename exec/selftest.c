#include "exec/selftest.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/bf16.h"
#include "exec/host/host_ops.h"
#include "exec/reference/ref_ops.h"

const double sf_selftest_norm_eps = 1e-5, sf_selftest_rope_theta = 10000;

enum { B = 2, T = SF_SELFTEST_SEQ, N = B * T, C = 96, O = 56, V = 113, F = 72, NH = 4, NKV = 2, HD = SF_SELFTEST_HEAD_DIM, QKV = (NH + 2 * NKV) * HD,
       MOST = SF_MAX_ARGS };

typedef enum { IN, OUT, IN_OUT } role;

typedef struct {
    role role;
    sf_dtype dtype;
    size_t n;
    double *value; /* what goes in */
    double *want;  /* what must come out */
    void *device;
    double terms;  /* of its sums */
} array;

typedef struct {
    const sf_selftest_machine *machine;
    sf_arena arena;
    sf_op op;
    sf_op_call call;
    array arrays[MOST];
    sf_dtype dtype;
    double slack;
    uint64_t random;
} kase;

/* ---- arrays ---- */

static double uniform(kase *k)
{
    k->random = k->random * 6364136223846793005ull + 1442695040888963407ull;
    return (double)(k->random >> 11) * 0x1p-53;
}

static double rounded(sf_dtype dtype, double x)
{
    if (dtype == SF_BF16)
        return (double)sf_bf16_to_f32(sf_f32_to_bf16((float)x));
    return dtype == SF_F32 ? (double)(float)x : x;
}

static array *put(kase *k, int i, role r, sf_dtype dtype, size_t n, double scale)
{
    array *a = &k->arrays[i];
    *a = (array){ .role = r, .dtype = dtype, .n = n, .value = SF_NEW_ARRAY(&k->arena, double, n), .want = SF_NEW_ARRAY(&k->arena, double, n), .terms = 1 };
    for (size_t e = 0; e < n; e++)
        a->want[e] = a->value[e] = r == OUT ? (double)NAN : rounded(dtype, scale * (2 * uniform(k) - 1));
    k->call.dtype[i] = dtype;
    k->op.args[i].elems = n;
    if (i >= k->op.n_args)
        k->op.n_args = i + 1;
    return a;
}

static array *ints(kase *k, int i, size_t n, int below)
{
    array *a = put(k, i, IN, SF_I32, n, 0);
    for (size_t e = 0; e < n; e++)
        a->value[e] = (double)(int)(uniform(k) * below);
    return a;
}

static int32_t *as_ints(kase *k, const array *a)
{
    int32_t *out = SF_NEW_ARRAY(&k->arena, int32_t, a->n);
    for (size_t e = 0; e < a->n; e++)
        out[e] = (int32_t)a->value[e];
    return out;
}

static void to_raw(const array *a, const double *from, void *raw)
{
    for (size_t e = 0; e < a->n; e++)
        switch (a->dtype) {
        case SF_F32: ((float *)raw)[e] = (float)from[e]; break;
        case SF_BF16: ((uint16_t *)raw)[e] = isnan(from[e]) ? 0x7fc0 : sf_f32_to_bf16((float)from[e]); break;
        case SF_F64: ((double *)raw)[e] = from[e]; break;
        default: ((int32_t *)raw)[e] = isnan(from[e]) ? 0 : (int32_t)from[e];
        }
}

static double from_raw(const array *a, const void *raw, size_t e)
{
    switch (a->dtype) {
    case SF_F32: return (double)((const float *)raw)[e];
    case SF_BF16: return (double)sf_bf16_to_f32(((const uint16_t *)raw)[e]);
    case SF_F64: return ((const double *)raw)[e];
    default: return ((const int32_t *)raw)[e];
    }
}

/* ---- one case ---- */

static sf_status bring(kase *k)
{
    for (int i = 0; i < k->op.n_args; i++) {
        array *a = &k->arrays[i];
        if (a->n == 0)
            continue;
        void *raw = SF_NEW_ARRAY(&k->arena, double, a->n);
        to_raw(a, a->value, raw);
        SF_TRY(k->machine->memory(k->machine->self, a->n * sf_dtype_bytes(a->dtype), &a->device));
        SF_TRY(k->machine->write(k->machine->self, a->device, raw, a->n * sf_dtype_bytes(a->dtype)));
        k->call.ptr[i] = a->device;
    }
    return SF_SUCCESS;
}

static double error_of(const kase *k, const array *a, const void *raw)
{
    double most = 0, worst = 0, u = a->dtype == SF_BF16 ? 0x1p-8 : a->dtype == SF_F32 ? 0x1p-24 : 0x1p-52;
    for (size_t e = 0; e < a->n; e++)
        most = fmax(most, fabs(a->want[e]));
    double allowed = k->slack * u * most + 8 * 0x1p-24 * sqrt(a->terms) * most;
    for (size_t e = 0; e < a->n; e++) {
        double off = fabs(from_raw(a, raw, e) - a->want[e]);
        worst = isnan(off) ? INFINITY : fmax(worst, k->slack == 0 ? (off == 0 ? 0 : INFINITY) : off / allowed);
    }
    return worst;
}

static sf_status compare(kase *k, double *worst)
{
    *worst = 0;
    for (int i = 0; i < k->op.n_args; i++) {
        const array *a = &k->arrays[i];
        if (a->n == 0 || a->role == IN)
            continue;
        void *raw = SF_NEW_ARRAY(&k->arena, double, a->n);
        SF_TRY(k->machine->read(k->machine->self, raw, a->device, a->n * sf_dtype_bytes(a->dtype)));
        *worst = fmax(*worst, error_of(k, a, raw));
    }
    return SF_SUCCESS;
}

/* ---- the ops: each makes its arrays and what must come out ---- */

static sf_ref_attn attention(void) { return (sf_ref_attn){ B, T, NH, NKV, HD }; }

static void embed_fwd(kase *k)
{
    k->op.dims = (sf_dims){ .m = N, .n = C, .k = V, .seq = T };
    array *tokens = ints(k, 0, N, V), *wte = put(k, 1, IN, k->dtype, V * C, 1), *wpe = put(k, 2, IN, k->dtype, T * C, 1), *x = put(k, 3, OUT, k->dtype, N * C, 0);
    sf_ref_embed_fwd(N, T, C, as_ints(k, tokens), wte->value, wpe->value, x->want);
}

static void embed_bwd(kase *k)
{
    k->op.dims = (sf_dims){ .m = N, .n = C, .k = V, .seq = T };
    array *dx = put(k, 0, IN, k->dtype, N * C, 1), *tokens = ints(k, 1, N, V), *dwte = put(k, 2, OUT, k->dtype, V * C, 0), *dwpe = put(k, 3, OUT, k->dtype, T * C, 0);
    memset(dwte->want, 0, V * C * sizeof(double));
    memset(dwpe->want, 0, T * C * sizeof(double));
    sf_ref_embed_bwd(N, T, C, as_ints(k, tokens), dx->value, dwte->want, dwpe->want);
    dwte->terms = dwpe->terms = N;
}

static void norm_fwd(kase *k)
{
    k->op.dims = (sf_dims){ .m = N, .n = C };
    array *x = put(k, 0, IN, k->dtype, N * C, 2), *w = put(k, 1, IN, k->dtype, C, 1), *b = put(k, 2, IN, k->dtype, C, 1), *y = put(k, 3, OUT, k->dtype, N * C, 0),
          *stats = put(k, 4, OUT, SF_F32, 2 * N, 0);
    sf_ref_norm_fwd((sf_op_norm)k->op.kind, N, C, x->value, w->value, b->value, sf_selftest_norm_eps, y->want, stats->want, stats->want + N);
    y->terms = stats->terms = C;
}

static void norm_bwd(kase *k)
{
    k->op.dims = (sf_dims){ .m = N, .n = C };
    array *dy = put(k, 0, IN, k->dtype, N * C, 1), *x = put(k, 1, IN, k->dtype, N * C, 2), *w = put(k, 2, IN, k->dtype, C, 1), *stats = put(k, 3, IN, SF_F32, 2 * N, 0),
          *dx = put(k, 4, IN_OUT, k->dtype, N * C, 1), *dw = put(k, 5, OUT, k->dtype, C, 0), *db = put(k, 6, OUT, k->dtype, C, 0);
    double *y = SF_NEW_ARRAY(&k->arena, double, N * C);
    sf_ref_norm_fwd((sf_op_norm)k->op.kind, N, C, x->value, w->value, NULL, sf_selftest_norm_eps, y, stats->value, stats->value + N);
    for (size_t e = 0; e < stats->n; e++)
        stats->value[e] = (double)(float)stats->value[e];
    memset(dw->want, 0, C * sizeof(double));
    memset(db->want, 0, C * sizeof(double));
    double *more = SF_NEW_ARRAY(&k->arena, double, N * C);
    sf_ref_norm_bwd((sf_op_norm)k->op.kind, N, C, dy->value, x->value, w->value, stats->value, stats->value + N, more, dw->want, db->want);
    for (size_t e = 0; e < dx->n; e++)
        dx->want[e] = dx->value[e] + more[e];
    dx->terms = C;
    dw->terms = db->terms = N;
}

static void linear_fwd(kase *k)
{
    k->op.dims = (sf_dims){ .m = N, .n = O, .k = C };
    array *x = put(k, 0, IN, k->dtype, N * C, 1), *w = put(k, 1, IN, k->dtype, O * C, 1), *b = put(k, 2, IN, k->dtype, O, 1), *y = put(k, 3, OUT, k->dtype, N * O, 0);
    sf_ref_linear_fwd(N, C, O, x->value, w->value, b->value, y->want);
    y->terms = C;
}

static void linear_bwd_x(kase *k)
{
    k->op.dims = (sf_dims){ .m = N, .n = O, .k = C };
    array *dy = put(k, 0, IN, k->dtype, N * O, 1), *w = put(k, 1, IN, k->dtype, O * C, 1), *dx = put(k, 2, OUT, k->dtype, N * C, 0);
    sf_ref_linear_bwd_x(N, C, O, dy->value, w->value, dx->want);
    dx->terms = O;
}

static void linear_bwd_w(kase *k)
{
    k->op.dims = (sf_dims){ .m = N, .n = O, .k = C };
    array *dy = put(k, 0, IN, k->dtype, N * O, 1), *x = put(k, 1, IN, k->dtype, N * C, 1), *dw = put(k, 2, OUT, k->dtype, O * C, 0), *db = put(k, 3, OUT, k->dtype, O, 0);
    memset(dw->want, 0, O * C * sizeof(double));
    memset(db->want, 0, O * sizeof(double));
    sf_ref_linear_bwd_w(N, C, O, dy->value, x->value, dw->want, db->want);
    dw->terms = db->terms = N;
}

static sf_dims attention_dims(void) { return (sf_dims){ .m = N, .n = QKV, .heads = NH, .kv_heads = NKV, .head_dim = HD, .seq = T, .batch = B }; }

static void rope(kase *k)
{
    k->op.dims = attention_dims();
    sf_ref_attn d = attention();
    array *qkv = put(k, 0, IN_OUT, k->dtype, N * QKV, 1);
    sf_ref_rope(&d, SF_SELFTEST_ROTARY, sf_selftest_rope_theta, k->op.type == SF_OP_ROPE_FWD ? 1 : -1, qkv->want);
    qkv->terms = 64; /* the table is in float: an angle of up to 37 turns within 2^-24 of itself */
}

static void attn_fwd(kase *k)
{
    k->op.dims = attention_dims();
    sf_ref_attn d = attention();
    array *qkv = put(k, 0, IN, k->dtype, N * QKV, 1), *out = put(k, 1, OUT, k->dtype, N * NH * HD, 0), *lse = put(k, 2, OUT, SF_F32, N * NH, 0);
    sf_ref_attn_fwd(&d, qkv->value, out->want, lse->want);
    out->terms = lse->terms = HD + T;
}

static void attn_bwd(kase *k)
{
    k->op.dims = attention_dims();
    sf_ref_attn d = attention();
    array *dout = put(k, 0, IN, k->dtype, N * NH * HD, 1), *qkv = put(k, 1, IN, k->dtype, N * QKV, 1), *out = put(k, 2, IN, k->dtype, N * NH * HD, 0),
          *lse = put(k, 3, IN, SF_F32, N * NH, 0), *dqkv = put(k, 4, OUT, k->dtype, N * QKV, 0);
    sf_ref_attn_fwd(&d, qkv->value, out->value, lse->value);
    for (size_t e = 0; e < out->n; e++)
        out->value[e] = rounded(k->dtype, out->value[e]);
    for (size_t e = 0; e < lse->n; e++)
        lse->value[e] = (double)(float)lse->value[e];
    sf_ref_attn_bwd(&d, dout->value, qkv->value, out->value, dqkv->want);
    dqkv->terms = 4 * (HD + T);
}

static size_t act_in(const kase *k) { return k->op.kind == SF_OP_ACT_SWIGLU ? 2 * F : F; }

static void act_fwd(kase *k)
{
    k->op.dims = (sf_dims){ .m = N, .n = F };
    array *in = put(k, 0, IN, k->dtype, N * act_in(k), 3), *out = put(k, 1, OUT, k->dtype, N * F, 0);
    sf_ref_act_fwd((sf_op_act)k->op.kind, N, F, in->value, out->want);
    out->terms = 16; /* exp and erf to some units */
}

static void act_bwd(kase *k)
{
    k->op.dims = (sf_dims){ .m = N, .n = F };
    array *dy = put(k, 0, IN, k->dtype, N * F, 1), *in = put(k, 1, IN, k->dtype, N * act_in(k), 3), *dx = put(k, 2, OUT, k->dtype, N * act_in(k), 0);
    sf_ref_act_bwd((sf_op_act)k->op.kind, N, F, dy->value, in->value, dx->want);
    dx->terms = 16;
}

static void xent(kase *k)
{
    k->op.dims = (sf_dims){ .m = N, .n = V };
    k->op.scale = 1.0 / N;
    array *logits = put(k, 0, IN_OUT, k->dtype, N * V, 4), *targets = ints(k, 1, N, V), *loss = put(k, 2, OUT, SF_F32, N, 0);
    sf_ref_xent(N, V, logits->want, as_ints(k, targets), k->op.scale, loss->want);
    logits->terms = loss->terms = V;
}

static void add(kase *k)
{
    k->op.dims.n = N * C;
    array *a = put(k, 0, IN, k->dtype, N * C, 1), *b = put(k, 1, IN, k->dtype, N * C, 1), *y = put(k, 2, OUT, k->dtype, N * C, 0);
    for (size_t e = 0; e < y->n; e++)
        y->want[e] = a->value[e] + b->value[e];
}

static void accumulate(kase *k)
{
    k->op.dims.n = N * C;
    array *from = put(k, 0, IN, k->dtype, N * C, 1), *to = put(k, 1, IN_OUT, SF_F32, N * C, 1);
    for (size_t e = 0; e < to->n; e++)
        to->want[e] = to->value[e] + from->value[e];
}

static void cast(kase *k)
{
    k->op.dims.n = N * C;
    array *from = put(k, 0, IN, k->dtype, N * C, 1), *to = put(k, 1, OUT, k->dtype == SF_F32 ? SF_BF16 : SF_F32, N * C, 0);
    for (size_t e = 0; e < to->n; e++)
        to->want[e] = rounded(to->dtype, from->value[e]);
    k->slack = 0;
}

static void copy(kase *k)
{
    k->op.dims.n = N * C;
    array *from = put(k, 0, IN, k->dtype, N * C, 1), *to = put(k, 1, OUT, k->dtype, N * C, 0);
    memcpy(to->want, from->value, to->n * sizeof(double));
    k->slack = 0;
}

static void zero(kase *k)
{
    k->op.dims.n = N * C;
    array *x = put(k, 0, OUT, k->dtype, N * C, 0);
    memset(x->want, 0, x->n * sizeof(double));
    k->slack = 0;
}

static void sumsq(kase *k)
{
    k->op.dims.n = N * C;
    array *x = put(k, 0, IN, k->dtype, N * C, 1), *sum = put(k, 1, OUT, SF_F64, 1, 0);
    sum->want[0] = sf_ref_sum_squares(x->n, x->value);
}

/* Three spans: with weight decay, without, with. */
static void adamw(kase *k)
{
    enum { ALL = N * C };
    static const sf_flat_tensor tensors[] = { { .offset = 0, .numel = 1000, .decay = true }, { .offset = 1000, .numel = 77, .decay = false },
                                              { .offset = 1077, .numel = ALL - 1077, .decay = true } };
    static const sf_flat flat = { .tensors = (sf_flat_tensor *)(uintptr_t)tensors, .n_tensors = 3, .elems = ALL, .padded = ALL };
    sf_adamw_setup o = SF_ADAMW_DEFAULT;
    array *g = put(k, 0, IN, k->dtype, ALL, 1), *p = put(k, 1, IN_OUT, SF_F32, ALL, 1), *m = put(k, 2, IN_OUT, SF_F32, ALL, 0.1), *v = put(k, 3, IN_OUT, SF_F32, ALL, 0),
          *param = put(k, 4, OUT, k->dtype, ALL, 0);
    for (size_t e = 0; e < v->n; e++)
        v->want[e] = v->value[e] = (double)(float)(0.5 * uniform(k));
    for (int i = 0; i < 3; i++) {
        sf_ref_adamw_step step = { (double)o.lr, (double)o.beta1, (double)o.beta2, (double)o.eps, tensors[i].decay ? (double)o.weight_decay : 0, 3, 1 };
        uint64_t at = tensors[i].offset;
        sf_ref_adamw(&step, tensors[i].numel, g->value + at, p->want + at, m->want + at, v->want + at);
    }
    memcpy(param->want, p->want, ALL * sizeof(double));
    k->call.flat = &flat;
    k->call.step = 3;
    k->op.dims.n = ALL;
}

static const struct {
    sf_op_type type;
    int kind;
    const char *shape;
    void (*make)(kase *k);
    double slack16; /* roundings of 16-bit results, in units of the largest */
} cases[] = {
    { SF_OP_EMBED_FWD, 0, "learned positions", embed_fwd, 1 }, { SF_OP_EMBED_BWD, 0, "learned positions", embed_bwd, 1 },
    { SF_OP_NORM_FWD, SF_OP_NORM_LAYER, "layer", norm_fwd, 1 }, { SF_OP_NORM_FWD, SF_OP_NORM_RMS, "rms", norm_fwd, 1 },
    { SF_OP_NORM_BWD, SF_OP_NORM_LAYER, "layer", norm_bwd, 1 }, { SF_OP_NORM_BWD, SF_OP_NORM_RMS, "rms", norm_bwd, 1 },
    { SF_OP_LINEAR_FWD, 0, "bias", linear_fwd, 1 }, { SF_OP_LINEAR_BWD_X, 0, "", linear_bwd_x, 1 }, { SF_OP_LINEAR_BWD_W, 0, "bias", linear_bwd_w, 1 },
    { SF_OP_ROPE_FWD, 0, "half of the head", rope, 1 }, { SF_OP_ROPE_BWD, 0, "half of the head", rope, 1 },
    { SF_OP_ATTN_FWD, 0, "grouped heads of 64", attn_fwd, 3 }, { SF_OP_ATTN_BWD, 0, "grouped heads of 64", attn_bwd, 4 },
    { SF_OP_ACT_FWD, SF_OP_ACT_GELU_TANH, "gelu, tanh", act_fwd, 1 }, { SF_OP_ACT_FWD, SF_OP_ACT_GELU_ERF, "gelu, erf", act_fwd, 1 }, { SF_OP_ACT_FWD, SF_OP_ACT_SWIGLU, "swiglu", act_fwd, 1 },
    { SF_OP_ACT_BWD, SF_OP_ACT_GELU_TANH, "gelu, tanh", act_bwd, 1 }, { SF_OP_ACT_BWD, SF_OP_ACT_GELU_ERF, "gelu, erf", act_bwd, 1 }, { SF_OP_ACT_BWD, SF_OP_ACT_SWIGLU, "swiglu", act_bwd, 1 },
    { SF_OP_XENT, 0, "", xent, 1 }, { SF_OP_ADD, 0, "", add, 1 }, { SF_OP_ACCUMULATE, 0, "into f32", accumulate, 1 }, { SF_OP_CAST, 0, "", cast, 1 },
    { SF_OP_COPY, 0, "", copy, 1 }, { SF_OP_ZERO, 0, "", zero, 1 }, { SF_OP_SUMSQ, 0, "", sumsq, 1 }, { SF_OP_ADAMW, 0, "decay and none", adamw, 1 },
};

static sf_status one(const sf_selftest_machine *machine, size_t i, sf_dtype dtype, sf_selftest_result *result)
{
    kase k = { .machine = machine, .dtype = dtype, .slack = dtype == SF_BF16 ? cases[i].slack16 : 1, .random = 12345 + i,
               .op = { .type = cases[i].type, .kind = cases[i].kind, .label = sf_op_name(cases[i].type), .scale = 1 } };
    sf_op_time time;
    for (int a = 0; a < MOST; a++)
        k.op.args[a].buffer = -1;
    cases[i].make(&k);
    for (int a = 0; a < k.op.n_args; a++)
        k.op.args[a].buffer = k.arrays[a].n > 0 ? 0 : -1;
    k.call.issue.op = &k.op;
    k.call.time = &time;
    sf_status st = bring(&k);
    if (st.code == SF_OK) { /* the op's own failure is a result */
        result->st = machine->run(machine->self, &k.call);
        if (result->st.code == SF_OK)
            result->st = machine->finish(machine->self);
        if (result->st.code == SF_OK)
            st = compare(&k, &result->worst);
    }
    sf_arena_free(&k.arena);
    return st;
}

sf_status sf_selftest_ops(const sf_selftest_machine *machine, void (*tell)(void *ctx, const sf_selftest_result *result), void *ctx)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int d = 0; d < 2; d++) {
            sf_selftest_result r = { .op = sf_op_name(cases[i].type), .shape = cases[i].shape, .dtype = d == 0 ? SF_F32 : SF_BF16, .st = SF_SUCCESS };
            SF_TRY(one(machine, i, r.dtype, &r));
            tell(ctx, &r);
        }
    return SF_SUCCESS;
}

/* ---- the host ---- */

typedef struct {
    sf_host_context ctx;
    sf_executor_setup setup;
    void *blocks[4096];
    size_t n;
} host;

static sf_status host_run(void *self, const sf_op_call *call) { return sf_host_op_rows[call->issue.op->type](&((host *)self)->ctx, call); }
static sf_status host_finish(void *self)
{
    (void)self;
    return SF_SUCCESS;
}
static sf_status host_memory(void *self, uint64_t bytes, void **out)
{
    host *h = self;
    *out = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (*out == NULL || h->n == sizeof h->blocks / sizeof h->blocks[0])
        return SF_FAIL(SF_ENOMEM, "no memory for the self-test");
    h->blocks[h->n++] = *out;
    return SF_SUCCESS;
}
static sf_status host_copy(void *self, void *to, const void *from, uint64_t bytes)
{
    (void)self;
    memcpy(to, from, bytes);
    return SF_SUCCESS;
}

void sf_selftest_host_close(sf_selftest_machine *machine)
{
    host *h = machine->self;
    if (h == NULL)
        return;
    for (size_t i = 0; i < h->n; i++)
        free(h->blocks[i]);
    free(h->ctx.rope_table);
    free(h->ctx.scratch[SF_STREAM_COMPUTE]);
    free(h);
}

sf_status sf_selftest_host_open(sf_selftest_machine *out)
{
    host *h = calloc(1, sizeof *h);
    *out = (sf_selftest_machine){ .name = "host", .self = h, .run = host_run, .finish = host_finish, .memory = host_memory, .write = host_copy, .read = host_copy };
    if (h == NULL)
        return SF_FAIL(SF_ENOMEM, "no memory for the self-test");
    h->setup = (sf_executor_setup){ .seq_len = T, .norm_eps = (float)sf_selftest_norm_eps, .rotary_dim = SF_SELFTEST_ROTARY, .rope_theta = sf_selftest_rope_theta,
                                    .optimizer = SF_ADAMW_DEFAULT };
    h->ctx.setup = &h->setup;
    sf_host_ops_init(&h->ctx.kernels);
    h->ctx.rope_table = malloc(sf_host_rope_table_bytes(T, SF_SELFTEST_ROTARY));
    h->ctx.scratch[SF_STREAM_COMPUTE] = aligned_alloc(64, 64 << 20);
    if (h->ctx.rope_table == NULL || h->ctx.scratch[SF_STREAM_COMPUTE] == NULL) {
        sf_selftest_host_close(out);
        return SF_FAIL(SF_ENOMEM, "no memory for the self-test");
    }
    sf_host_rope_table(T, SF_SELFTEST_ROTARY, sf_selftest_rope_theta, h->ctx.rope_table);
    return SF_SUCCESS;
}
