#include "exec/calibrate.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cblas.h>

#include "exec/bf16.h"
#include "exec/calibrate_impl.h"
#include "exec/host/host_ops.h"

enum { BATCHES = 4, VOCAB_ROWS = 4096, WIDTH = 256, DISTINCT_TOKENS = 96, MOST_STATS = 2 * (64 << 20) / WIDTH };

static const sf_dtype dtypes[SF_PROFILE_DTYPES] = { SF_F32, SF_BF16 };

typedef struct {
    sf_comm *comm;
    sf_calibrate_depth depth;
    sf_profile_set *set;
    const sf_bench_machine *machine;
    char *pool, *away;    /* where outputs wander; host memory for copies  */
    size_t pool_bytes, at;
    float *floats;        /* statistics, tables: any floats near 1         */
    char *inputs;         /* arrays that are only read: in the cache if small */
    size_t input_bytes;
    int32_t *tokens;      /* as many as rows                               */
    double batch_s;       /* least time of a batch of repetitions          */
    sf_status st;
} bench;

double sf_cpu_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double sf_wall_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

sf_status sf_mean_over_ranks(sf_comm *comm, double *values, int count)
{
    int world = sf_comm_world(comm);
    double *all = malloc(sizeof *all * (size_t)world * (size_t)count);

    if (all == NULL)
        return SF_FAIL(SF_ENOMEM, "no memory to collect measurements");
    sf_status st = sf_comm_exchange(comm, values, sizeof *values * (size_t)count, all);
    for (int i = 0; i < count && st.code == SF_OK; i++) {
        values[i] = 0;
        for (int r = 0; r < world; r++)
            values[i] += all[r * count + i] / world;
    }
    free(all);
    return st;
}

/* ---- arrays ---- */

/* Fresh memory of the pool for an output; wanders. */
static void *fresh(bench *b, size_t bytes)
{
    bytes = (bytes + 63) / 64 * 64;
    if (bytes > b->pool_bytes)
        b->st = SF_FAIL(SF_EINVAL, "an array of %zu bytes does not fit into the calibration's pool", bytes);
    if (b->at + bytes > b->pool_bytes)
        b->at = 0;
    void *p = b->pool + (bytes > b->pool_bytes ? 0 : b->at);
    b->at += bytes;
    return p;
}

/* Small numbers of the type everywhere: nothing overflows, nothing is denormal. */
static void fill_values(void *array, size_t bytes, sf_dtype dtype)
{
    uint32_t state = 1;

    for (size_t i = 0; i < bytes / sf_dtype_bytes(dtype); i++) {
        state = state * 1664525u + 1013904223u;
        float value = 0.02f + (float)(state >> 16) * 1e-6f;
        value = (state & 0x8000u) != 0 ? value : -value;
        if (dtype == SF_F32)
            ((float *)array)[i] = value;
        else
            ((uint16_t *)array)[i] = sf_f32_to_bf16(value);
    }
}

/* The i-th input array: fixed places. */
static void *input(bench *b, int i)
{
    return b->inputs + (size_t)i * (b->input_bytes / 3);
}

/* ---- timing ---- */

typedef void (*arrange)(bench *b, sf_trial *t); /* sets the arrays of the next repetition */

static void run_once(bench *b, sf_trial *t, arrange next)
{
    next(b, t);
    sf_status st = b->machine->run(b->machine->self, &t->call);
    if (st.code != SF_OK)
        b->st = st;
}

static double now_s(bench *b)
{
    if (b->machine->finish != NULL && b->st.code == SF_OK)
        b->st = b->machine->finish(b->machine->self);
    return b->machine->now_s();
}

/* Seconds of one execution: the best of a few batches, since what else runs here only makes them longer;
 * the ranks' own disturbance of each other is in all of them. The mean over ranks. */
static double time_trial(bench *b, sf_trial *t, arrange next)
{
    double best = 0;
    char meet = 0, all[SF_COMM_MAX_RANKS];

    t->call.issue.op = &t->op;
    if (b->st.code == SF_OK)
        b->st = sf_comm_exchange(b->comm, &meet, 1, all);
    if (b->st.code != SF_OK)
        return 0;
    double start = now_s(b);
    run_once(b, t, next);
    double once = now_s(b) - start;
    int reps = b->depth == SF_CALIBRATE_TOUCH ? 0 : (int)(b->batch_s / (once > 1e-8 ? once : 1e-8)) + 1, batches = once > 0.05 ? 2 : BATCHES;
    if (reps == 0)
        return once;
    for (int i = 0; i < batches; i++) {
        start = now_s(b);
        for (int r = 0; r < reps && b->st.code == SF_OK; r++)
            run_once(b, t, next);
        double s = (now_s(b) - start) / reps;
        best = i == 0 || s < best ? s : best;
    }
    if (b->st.code == SF_OK)
        b->st = sf_mean_over_ranks(b->comm, &best, 1);
    return best;
}

static void set_types(sf_trial *t, sf_dtype dtype)
{
    for (int i = 0; i < SF_MAX_ARGS; i++)
        t->call.dtype[i] = dtype;
}

/* ---- matrix products ---- */

static void arrange_linear(bench *b, sf_trial *t)
{
    size_t e = sf_dtype_bytes(t->call.dtype[0]), m = (size_t)t->op.dims.m, n = (size_t)t->op.dims.n, k = (size_t)t->op.dims.k;

    t->call.ptr[0] = input(b, 0);
    if (t->op.type == SF_OP_LINEAR_FWD) { /* x, W, no bias, y: weights are met once per step */
        t->call.ptr[1] = fresh(b, n * k * e);
        t->call.ptr[3] = fresh(b, m * n * e);
    } else if (t->op.type == SF_OP_LINEAR_BWD_X) {
        t->call.ptr[1] = fresh(b, n * k * e);
        t->call.ptr[2] = fresh(b, m * k * e);
    } else { /* dy, x, dW */
        t->call.ptr[1] = fresh(b, m * k * e);
        t->call.ptr[2] = fresh(b, n * k * e);
    }
}

static void measure_gemm(bench *b, int d)
{
    static const double quick[] = { 32, 128, 512 }, full_m[] = { 32, 128, 512, 1024 }, full_n[] = { 32, 128, 512, 2048 };
    static const double gpu_quick[] = { 256, 1024, 4096 }, gpu_m[] = { 256, 1024, 4096, 16384 }, gpu_n[] = { 256, 1024, 4096, 12288 };
    static const sf_op_type forms[SF_PROFILE_FORMS] = { SF_OP_LINEAR_FWD, SF_OP_LINEAR_BWD_X, SF_OP_LINEAR_BWD_W };
    bool full = b->depth == SF_CALIBRATE_FULL;
    int points = b->depth == SF_CALIBRATE_TOUCH ? 1 : full ? 4 : 3;

    for (int f = 0; f < SF_PROFILE_FORMS; f++) {
        sf_gemm_grid *g = &b->set->gemm[d][f];
        g->n_m = g->n_n = g->n_k = points;
        const double *m = b->machine->gpu ? (full ? gpu_m : gpu_quick) : full ? full_m : quick, *n = b->machine->gpu ? (full ? gpu_n : gpu_quick) : full ? full_n : quick;
        if (b->depth == SF_CALIBRATE_TOUCH)
            m = n = quick;
        memcpy(g->m, m, (size_t)points * sizeof(double));
        memcpy(g->n, n, (size_t)points * sizeof(double));
        memcpy(g->k, n, (size_t)points * sizeof(double));
        for (int i = 0; i < points; i++)
            for (int j = 0; j < points; j++)
                for (int l = 0; l < points; l++) {
                    sf_trial t = { .op = { .type = forms[f], .dims = { .m = (int64_t)g->m[i], .n = (int64_t)g->n[j], .k = (int64_t)g->k[l] } } };
                    set_types(&t, dtypes[d]);
                    double s = time_trial(b, &t, arrange_linear);
                    g->flops_per_s[i][j][l] = 2 * g->m[i] * g->n[j] * g->k[l] / (s > 0 ? s : 1);
                }
    }
}

/* ---- attention ---- */

static void arrange_attention(bench *b, sf_trial *t)
{
    size_t e = sf_dtype_bytes(t->call.dtype[0]), rows = (size_t)t->op.dims.m, width = (size_t)(t->op.dims.heads * t->op.dims.head_dim);

    if (t->op.type == SF_OP_ATTN_FWD) { /* qkv, out, lse */
        t->call.ptr[0] = input(b, 0);
        t->call.ptr[1] = fresh(b, rows * width * e);
        t->call.ptr[2] = fresh(b, rows * (size_t)t->op.dims.heads * sizeof(float));
    } else { /* dout, qkv, out, lse, dqkv */
        t->call.ptr[0] = input(b, 0);
        t->call.ptr[1] = input(b, 1);
        t->call.ptr[2] = input(b, 2);
        t->call.ptr[3] = b->floats; /* any floats */
        t->call.ptr[4] = fresh(b, 3 * rows * width * e);
    }
}

static void measure_attention(bench *b, int d)
{
    static const int host_dims[] = { 32, 64, 128 }, gpu_dims[] = { 64, 128 }, host_seqs[] = { 16, 64, 256, 1024 }, gpu_seqs[] = { 256, 1024, 4096, 8192 };
    const int *head_dims = b->machine->gpu ? gpu_dims : host_dims, *seqs = b->machine->gpu && b->depth != SF_CALIBRATE_TOUCH ? gpu_seqs : host_seqs;
    bool full = b->depth == SF_CALIBRATE_FULL;

    b->set->n_head_dims = full && !b->machine->gpu ? 3 : 2;
    for (int h = 0; h < b->set->n_head_dims; h++) {
        sf_attention_curves *a = &b->set->attention[d][h];
        a->head_dim = head_dims[h];
        for (int s = 0; s < (b->depth == SF_CALIBRATE_TOUCH ? 1 : full ? 4 : 3); s++) {
            int heads = b->machine->gpu ? 32 : 4; /* a GPU's worth of them */
            sf_trial t = { .op = { .type = SF_OP_ATTN_FWD, .dims = { .m = seqs[s], .batch = 1, .heads = heads, .kv_heads = heads,
                                                                     .head_dim = head_dims[h], .seq = seqs[s] } } };
            set_types(&t, dtypes[d]);
            sf_curve_add(&a->forward, seqs[s], time_trial(b, &t, arrange_attention) / heads);
            t.op.type = SF_OP_ATTN_BWD;
            sf_curve_add(&a->backward, seqs[s], time_trial(b, &t, arrange_attention) / heads);
        }
    }
}

/* ---- kernels over elements ---- */

static void arrange_kernel(bench *b, sf_trial *t)
{
    size_t e = sf_dtype_bytes(t->call.dtype[0]), m = (size_t)t->op.dims.m, n = (size_t)t->op.dims.n, all = (m > 0 ? m : 1) * n;
    void **p = t->call.ptr;

    switch (t->op.type) {
    case SF_OP_EMBED_FWD: /* tokens, wte, wpe, x */
        p[0] = b->tokens;
        p[1] = input(b, 0);
        p[2] = NULL;
        p[3] = fresh(b, all * e);
        break;
    case SF_OP_EMBED_BWD: /* dx, tokens, dwte, dwpe */
        p[0] = input(b, 0);
        p[1] = b->tokens;
        p[2] = input(b, 1);
        p[3] = NULL;
        break;
    case SF_OP_NORM_FWD: /* x, w, b, y, stats */
        p[0] = input(b, 0);
        p[1] = input(b, 1);
        p[2] = input(b, 2);
        p[3] = fresh(b, all * e);
        p[4] = fresh(b, 2 * m * sizeof(float));
        break;
    case SF_OP_NORM_BWD: /* dy, x, w, stats, dx, dw, db */
        p[0] = input(b, 0);
        p[1] = input(b, 1);
        p[2] = input(b, 2);
        p[3] = b->floats;
        p[4] = fresh(b, all * e);
        p[5] = fresh(b, n * e);
        p[6] = fresh(b, n * e);
        break;
    case SF_OP_ACT_FWD:
        p[0] = input(b, 0);
        p[1] = fresh(b, all * e);
        break;
    case SF_OP_ACT_BWD:
    case SF_OP_ADD:
        p[0] = input(b, 0);
        p[1] = input(b, 1);
        p[2] = fresh(b, all * e);
        break;
    case SF_OP_XENT: /* logits, targets, loss */
        p[0] = fresh(b, all * e);
        p[1] = b->tokens;
        p[2] = fresh(b, m * sizeof(float));
        break;
    case SF_OP_ROPE_FWD:
    case SF_OP_ROPE_BWD:
    case SF_OP_ZERO: p[0] = fresh(b, all * e); break;
    case SF_OP_SUMSQ:
        p[0] = fresh(b, all * e);
        p[1] = input(b, 2);
        break;
    case SF_OP_ADAMW: /* grad, master, m, v, param */
        p[0] = fresh(b, all * e);
        for (int i = 1; i <= 3; i++)
            p[i] = fresh(b, all * sizeof(float));
        p[4] = e == sizeof(float) ? NULL : fresh(b, all * e);
        p[5] = NULL;
        break;
    case SF_OP_LOAD_BATCH:
        p[0] = fresh(b, all * sizeof(int32_t));
        p[1] = fresh(b, all * sizeof(int32_t));
        t->call.first_sequence++;
        break;
    case SF_OP_COPY_H2D:
        p[0] = b->away;
        p[1] = fresh(b, all * e);
        break;
    case SF_OP_COPY_D2H:
        p[0] = fresh(b, all * e);
        p[1] = b->away;
        break;
    default: /* ACCUMULATE, CAST, COPY: src, dst */
        p[0] = input(b, 0);
        p[1] = fresh(b, all * sf_dtype_bytes(t->call.dtype[1]));
    }
}

/* Rows of 256 columns (the loss: up to 4096, as a vocabulary), or one vector. */
static sf_trial kernel_trial(sf_op_type type, sf_dtype dtype, int64_t elements)
{
    sf_trial t = { .op = { .type = type, .n_args = 6, .scale = 1.0 } };
    int64_t width = type == SF_OP_XENT && elements >= 16 * VOCAB_ROWS ? VOCAB_ROWS : WIDTH;
    bool vector = type == SF_OP_ADD || type == SF_OP_ACCUMULATE || type == SF_OP_CAST || type == SF_OP_COPY || type == SF_OP_ZERO ||
                  type == SF_OP_SUMSQ || type == SF_OP_ADAMW || type == SF_OP_LOAD_BATCH || type == SF_OP_COPY_H2D || type == SF_OP_COPY_D2H;

    set_types(&t, dtype);
    t.op.dims = vector ? (sf_dims){ .n = elements } : (sf_dims){ .m = elements / width, .n = width, .k = VOCAB_ROWS };
    t.op.args[0].elems = t.op.args[1].elems = (uint64_t)elements;
    t.op.dims.seq = (int32_t)WIDTH;
    if (type == SF_OP_ROPE_FWD || type == SF_OP_ROPE_BWD) { /* 4 + 4 + 4 heads of 64 make up 768 columns; 2/3 of them turn */
        t.op.dims = (sf_dims){ .m = elements / 768 > 0 ? elements / 768 : 1, .n = 768, .heads = 4, .kv_heads = 4, .head_dim = 64, .seq = 64 };
        t.op.dims.m = (t.op.dims.m + 63) / 64 * 64; /* whole sequences */
    } else if (!vector) {
        t.op.dims.seq = (int32_t)(t.op.dims.m < WIDTH ? t.op.dims.m : WIDTH);
    }
    if (type == SF_OP_CAST)
        t.call.dtype[1] = dtype == SF_F32 ? SF_BF16 : SF_F32;
    if (type == SF_OP_EMBED_BWD || type == SF_OP_NORM_BWD)
        t.call.issue.accumulate = true;
    t.call.step = 10;
    return t;
}

static void measure_kernels(bench *b, int d)
{
    static const sf_op_type types[] = { SF_OP_LOAD_BATCH, SF_OP_EMBED_FWD, SF_OP_NORM_FWD, SF_OP_ROPE_FWD, SF_OP_ACT_FWD, SF_OP_ADD,
                                        SF_OP_XENT, SF_OP_NORM_BWD, SF_OP_ROPE_BWD, SF_OP_ACT_BWD, SF_OP_EMBED_BWD, SF_OP_ACCUMULATE,
                                        SF_OP_CAST, SF_OP_COPY, SF_OP_ZERO, SF_OP_SUMSQ, SF_OP_ADAMW, SF_OP_COPY_H2D, SF_OP_COPY_D2H };
    static const sf_flat_tensor tensor = { .numel = UINT64_MAX, .decay = true };
    static sf_flat_tensor tensors[1];
    static const sf_flat flat = { .tensors = tensors, .n_tensors = 1 };
    int64_t most = (b->depth == SF_CALIBRATE_FULL ? 1 << 23 : 1 << 21) * (b->machine->gpu ? 8 : 1);
    int step = b->depth == SF_CALIBRATE_FULL ? 2 : 3;
    if (b->depth == SF_CALIBRATE_TOUCH)
        most = 1 << 14;

    tensors[0] = tensor;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        for (int64_t elements = b->machine->gpu ? 1 << 14 : 1 << 12; elements <= most; elements <<= step) {
            bool copies = types[i] == SF_OP_COPY_H2D || types[i] == SF_OP_COPY_D2H;
            if ((types[i] == SF_OP_ADAMW && elements > (int64_t)b->pool_bytes / 32) || (copies && b->away == NULL) || (b->machine->gpu && types[i] == SF_OP_LOAD_BATCH))
                break;
            sf_trial t = kernel_trial(types[i], dtypes[d], elements);
            sf_curve *c = &b->set->kernel[d][types[i]];
            double size = (double)(t.op.dims.n * (t.op.dims.m > 0 ? t.op.dims.m : 1));
            if (c->n > 0 && size <= c->x[c->n - 1])
                continue; /* whole sequences: the smallest sizes coincide */
            t.call.flat = &flat;
            sf_curve_add(c, size, time_trial(b, &t, arrange_kernel));
        }
}

/* ---- */

static size_t table_floats(void) { return MOST_STATS + (size_t)1024 * 64; }

static sf_status write_values(bench *b, char *to, size_t bytes, sf_dtype dtype)
{
    enum { PIECE = 4 << 20 };
    char *piece = malloc(PIECE);
    sf_status st = piece != NULL ? SF_SUCCESS : SF_FAIL(SF_ENOMEM, "no memory to calibrate");
    if (piece != NULL)
        fill_values(piece, PIECE, dtype);
    for (size_t at = 0; at < bytes && st.code == SF_OK; at += PIECE)
        st = b->machine->write(b->machine->self, to + at, piece, bytes - at < PIECE ? bytes - at : PIECE);
    free(piece);
    return st;
}

/* Tokens, and floats near 1. */
static sf_status write_constants(bench *b, size_t rows)
{
    int32_t *tokens = malloc(rows * sizeof *tokens);
    float *floats = malloc(table_floats() * sizeof *floats);
    sf_status st = tokens != NULL && floats != NULL ? SF_SUCCESS : SF_FAIL(SF_ENOMEM, "no memory to calibrate");
    for (size_t i = 0; i < rows && st.code == SF_OK; i++)
        tokens[i] = (int32_t)(i * 31 % DISTINCT_TOKENS);
    for (size_t i = 0; i < table_floats() && st.code == SF_OK; i++)
        floats[i] = 0.5f; /* rotations and statistics of size near 1 */
    if (st.code == SF_OK)
        st = b->machine->write(b->machine->self, b->tokens, tokens, rows * sizeof *tokens);
    if (st.code == SF_OK)
        st = b->machine->write(b->machine->self, b->floats, floats, table_floats() * sizeof *floats);
    free(tokens);
    free(floats);
    return st;
}

static sf_status open_bench(bench *b)
{
    bool full = b->depth == SF_CALIBRATE_FULL, gpu = b->machine->gpu;
    size_t rows = (size_t)(64 << 20) / WIDTH;
    void *p;

    /* larger than the last cache: of a GPU up to 50 MiB of L2, and its largest product */
    bool touch = b->depth == SF_CALIBRATE_TOUCH;
    b->pool_bytes = (size_t)(touch ? 4 : gpu ? 2048 : 64) << 20;
    b->input_bytes = 3 * ((size_t)(touch ? 8 : gpu ? 1024 : full ? 32 : 8) << 20);
    SF_TRY(b->machine->memory(b->machine->self, b->pool_bytes + b->input_bytes + rows * sizeof(int32_t) + table_floats() * sizeof(float), &p));
    b->pool = p;
    b->inputs = b->pool + b->pool_bytes;
    b->tokens = (int32_t *)(void *)(b->inputs + b->input_bytes);
    b->floats = (float *)(void *)(b->tokens + rows);
    if (b->machine->pinned != NULL) {
        SF_TRY(b->machine->pinned(b->machine->self, (uint64_t)(touch ? 1 : 512) << 20, &p));
        b->away = p;
    }
    return write_constants(b, rows);
}

sf_status sf_calibrate_kernels(sf_comm *comm, sf_calibrate_depth depth, const sf_bench_machine *machine, sf_profile_set *out)
{
    bench b = { .comm = comm, .depth = depth, .set = out, .machine = machine, .batch_s = depth == SF_CALIBRATE_FULL ? 3e-3 : 7e-4 };
    sf_status st = open_bench(&b);
    for (int d = 0; d < SF_PROFILE_DTYPES && st.code == SF_OK; d++) {
        st = write_values(&b, b.pool, b.pool_bytes + b.input_bytes, dtypes[d]);
        if (st.code != SF_OK)
            break;
        measure_gemm(&b, d);
        measure_attention(&b, d);
        measure_kernels(&b, d);
        st = b.st;
    }
    return st;
}

/* ---- the host ---- */

typedef struct {
    sf_host_context ctx;
    sf_executor_setup setup;
    sf_comm *comm;
} host_machine;

static sf_status host_run(void *self, const sf_op_call *call) { return sf_host_op_rows[call->issue.op->type](&((host_machine *)self)->ctx, call); }
static sf_status host_memory(void *self, uint64_t bytes, void **out) { return sf_comm_memory(((host_machine *)self)->comm, bytes, out); }

static sf_status host_write(void *self, void *to, const void *from, uint64_t bytes)
{
    (void)self;
    memcpy(to, from, bytes);
    return SF_SUCCESS;
}

static sf_status measure_host(sf_comm *comm, sf_calibrate_depth depth, sf_profile_set *out)
{
    host_machine h = { .comm = comm };
    const sf_bench_machine machine = { .self = &h, .run = host_run, .memory = host_memory, .write = host_write, .now_s = sf_cpu_now_s };
    sf_data *data = NULL;
    float *table = malloc(table_floats() * sizeof *table);

    SF_TRY(sf_data_open("synthetic", 256, &data));
    h.setup = (sf_executor_setup){ .comm = comm, .data = data, .seq_len = 64, .norm_eps = 1e-5f, .rotary_dim = 64, .optimizer = SF_ADAMW_DEFAULT };
    h.ctx.setup = &h.setup;
    h.ctx.rope_table = table;
    openblas_set_num_threads(1);
    sf_host_ops_init(&h.ctx.kernels);
    h.ctx.scratch[SF_STREAM_COMPUTE] = malloc((size_t)256 << 20); /* more than any trial needs; pages only if used */
    sf_status st = table != NULL && h.ctx.scratch[SF_STREAM_COMPUTE] != NULL ? SF_SUCCESS : SF_FAIL(SF_ENOMEM, "no memory to calibrate");
    for (size_t i = 0; i < table_floats() && st.code == SF_OK; i++)
        table[i] = 0.5f;
    if (st.code == SF_OK)
        st = sf_calibrate_kernels(comm, depth, &machine, out);
    free(h.ctx.scratch[SF_STREAM_COMPUTE]);
    free(table);
    sf_data_close(data);
    return st;
}

sf_status sf_calibrate(sf_comm *comm, sf_calibrate_depth depth, bool kernels, sf_profile_set *out)
{
    *out = (sf_profile_set){ .ranks = sf_comm_world(comm), .threads = strcmp(sf_comm_transport_name(comm), "threads") == 0,
                             .overlap_slowdown = 1 };
    strncpy(out->transport, sf_comm_transport_name(comm), sizeof out->transport - 1);
    if (kernels)
        SF_TRY(measure_host(comm, depth, out));
    return sf_calibrate_comm(comm, depth, out);
}
