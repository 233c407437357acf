#include "tests/exec/bigram.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "model/program/build.h"

enum { V = BIGRAM_VOCAB, C = BIGRAM_HIDDEN, T = BIGRAM_SEQ };
enum { WTE = 0, HEAD = V * C, BIAS = 2 * V * C, ELEMS = 2 * V * C + V };

typedef struct {
    const bigram *b;
    sf_builder build;
    int64_t rows;
    sf_dtype dtype;
    int tokens, targets, x, logits, loss, dx;
    int whole, grad; /* parameters in use; their gradients */
    int kept, kept_grad, master, m, v, norm; /* what the optimizer works on */
} writer;

static int buffer(writer *w, const char *name, sf_category category, sf_dtype dtype, uint64_t elems, sf_stream home)
{
    return sf_build_buffer(&w->build, (sf_buffer){ .name = name, .category = category, .dtype = dtype, .elems = elems, .count = 1, .home = home });
}

static int bound(writer *w, const char *name, sf_category category, sf_dtype dtype, uint64_t elems, sf_binding binding, bool sharded)
{
    return sf_build_buffer(&w->build, (sf_buffer){ .name = name, .category = category, .dtype = dtype, .elems = elems, .count = 1,
                                                   .persistent = true, .flat = 0, .binding = binding, .sharded = sharded });
}

static void declare(writer *w)
{
    int flat = sf_build_flat(&w->build, "all");
    sf_build_flat_add(&w->build, flat, 0, V * C, true);
    sf_build_flat_add(&w->build, flat, 1, V * C, true);
    sf_build_flat_add(&w->build, flat, 2, V, false);
    sf_build_flat_pad(&w->build, flat, (uint64_t)w->b->world);
    uint64_t whole = w->build.cls->flats[flat].padded, shard = w->b->sharded ? whole / (uint64_t)w->b->world : whole, n = (uint64_t)w->rows;

    w->tokens = buffer(w, "tokens", SF_CAT_ACTIVATIONS, SF_I32, n, SF_STREAM_COMPUTE);
    w->targets = buffer(w, "targets", SF_CAT_ACTIVATIONS, SF_I32, n, SF_STREAM_COMPUTE);
    w->x = buffer(w, "x", SF_CAT_ACTIVATIONS, w->dtype, n * C, SF_STREAM_COMPUTE);
    w->logits = buffer(w, "logits", SF_CAT_LOGITS, w->dtype, n * V, SF_STREAM_COMPUTE);
    w->loss = buffer(w, "loss", SF_CAT_ACTIVATIONS, SF_F32, n, SF_STREAM_COMPUTE);
    w->dx = buffer(w, "dx", SF_CAT_TEMPORARIES, w->dtype, n * C, SF_STREAM_COMPUTE);
    w->grad = buffer(w, "grad", SF_CAT_GRADIENTS, w->dtype, whole, SF_STREAM_COMPUTE);
    w->kept = bound(w, "param", SF_CAT_PARAMETERS, w->dtype, shard, SF_BIND_PARAM, w->b->sharded);
    w->whole = w->b->sharded ? buffer(w, "gathered", SF_CAT_PARAMETERS, w->dtype, whole, SF_STREAM_COMM) : w->kept;
    w->kept_grad = w->b->sharded ? buffer(w, "grad shard", SF_CAT_GRADIENTS, w->dtype, shard, SF_STREAM_COMM) : w->grad;
    w->master = w->b->mixed ? bound(w, "master", SF_CAT_MASTER, SF_F32, shard, SF_BIND_MASTER, w->b->sharded) : w->kept;
    w->m = bound(w, "m", SF_CAT_OPTIMIZER, SF_F32, shard, SF_BIND_MOMENT1, w->b->sharded);
    w->v = bound(w, "v", SF_CAT_OPTIMIZER, SF_F32, shard, SF_BIND_MOMENT2, w->b->sharded);
    w->norm = sf_build_buffer(&w->build, (sf_buffer){ .name = "norm", .category = SF_CAT_TEMPORARIES, .dtype = SF_F64, .elems = 1, .count = 1,
                                                      .persistent = true });
}

static sf_op *op(writer *w, sf_op_type type, const char *label, int n_args, const sf_arg *args)
{
    return sf_build_op(&w->build, type, sf_op_kind_of(type) == SF_KIND_COMM ? SF_STREAM_COMM : SF_STREAM_COMPUTE, label, n_args, args);
}

static sf_arg all(const writer *w, int b, sf_access access)
{
    return sf_whole(&w->build, b, access);
}

/* A collective between the compute ops before and after it. */
static void collective(writer *w, sf_op_type type, const char *label, uint64_t elems, int n_args, const sf_arg *args)
{
    sf_build_join(&w->build, SF_STREAM_COMPUTE, SF_STREAM_COMM);
    op(w, type, label, n_args, args)->dims.n = (int64_t)elems;
    sf_build_join(&w->build, SF_STREAM_COMM, SF_STREAM_COMPUTE);
}

static void forward(writer *w)
{
    w->build.phase = SF_PHASE_FORWARD;
    sf_build_alloc(&w->build, w->tokens, 0, 0);
    sf_build_alloc(&w->build, w->targets, 0, 0);
    op(w, SF_OP_LOAD_BATCH, "batch", SF_ARGS(all(w, w->tokens, SF_WRITE), all(w, w->targets, SF_WRITE)));
    sf_build_alloc(&w->build, w->x, 0, 0);
    sf_op *e = op(w, SF_OP_EMBED_FWD, "embed", SF_ARGS(all(w, w->tokens, SF_READ), sf_span(w->whole, WTE, V * C, SF_READ), sf_none(),
                                                       all(w, w->x, SF_WRITE)));
    e->dims = (sf_dims){ .m = w->rows, .n = C, .k = V, .seq = T };
    sf_build_alloc(&w->build, w->logits, 0, 0);
    sf_op *l = op(w, SF_OP_LINEAR_FWD, "logits", SF_ARGS(all(w, w->x, SF_READ), sf_span(w->whole, HEAD, V * C, SF_READ),
                                                         sf_span(w->whole, BIAS, V, SF_READ), all(w, w->logits, SF_WRITE)));
    l->dims = (sf_dims){ .m = w->rows, .n = V, .k = C };
    sf_build_alloc(&w->build, w->loss, 0, 0);
    if (w->b->free_too_early) { /* and its place is taken */
        sf_build_free(&w->build, w->logits, 0, 0);
        sf_build_alloc(&w->build, w->dx, 0, 0);
    }
    sf_op *x = op(w, SF_OP_XENT, "loss", SF_ARGS(all(w, w->logits, SF_READWRITE), all(w, w->targets, SF_READ), all(w, w->loss, SF_WRITE)));
    x->dims = (sf_dims){ .m = w->rows, .n = V };
    x->scale = 1.0 / (double)(w->rows * w->b->n_micro * w->b->world);
}

static void backward(writer *w)
{
    sf_access access = w->b->n_micro > 1 ? SF_READWRITE : SF_WRITE;

    w->build.phase = SF_PHASE_BACKWARD;
    sf_op *g = op(w, SF_OP_LINEAR_BWD_W, "logits", SF_ARGS(all(w, w->logits, SF_READ), all(w, w->x, SF_READ), sf_span(w->grad, HEAD, V * C, access),
                                                           sf_span(w->grad, BIAS, V, access)));
    g->dims = (sf_dims){ .m = w->rows, .n = V, .k = C };
    g->accumulate = SF_ACC_AFTER_FIRST_MICRO;
    if (!w->b->free_too_early)
        sf_build_alloc(&w->build, w->dx, 0, 0);
    sf_op *d = op(w, SF_OP_LINEAR_BWD_X, "logits", SF_ARGS(all(w, w->logits, SF_READ), sf_span(w->whole, HEAD, V * C, SF_READ),
                                                           all(w, w->dx, SF_WRITE)));
    d->dims = (sf_dims){ .m = w->rows, .n = V, .k = C };
    sf_op *e = op(w, SF_OP_EMBED_BWD, "embed", SF_ARGS(all(w, w->dx, SF_READ), all(w, w->tokens, SF_READ), sf_span(w->grad, WTE, V * C, access),
                                                       sf_none()));
    e->dims = (sf_dims){ .m = w->rows, .n = C, .k = V, .seq = T };
    e->accumulate = SF_ACC_AFTER_FIRST_MICRO;
    const int gone[] = { w->tokens, w->targets, w->x, w->logits, w->loss, w->dx };
    for (size_t i = 0; i < sizeof gone / sizeof gone[0]; i++)
        if (!w->b->free_too_early || gone[i] != w->logits)
            sf_build_free(&w->build, gone[i], 0, 0);
}

static void update(writer *w, uint64_t whole)
{
    w->build.phase = SF_PHASE_OPTIMIZER;
    if (w->b->sharded) {
        sf_build_free(&w->build, w->whole, 0, 0);
        sf_build_alloc(&w->build, w->kept_grad, 0, 0);
        collective(w, SF_OP_REDUCE_SCATTER, "grad", whole, SF_ARGS(all(w, w->grad, SF_READ), all(w, w->kept_grad, SF_WRITE)));
    } else {
        collective(w, SF_OP_ALL_REDUCE, "grad", whole, SF_ARGS(all(w, w->grad, SF_READWRITE)));
    }
    sf_op *s = op(w, SF_OP_SUMSQ, "norm", SF_ARGS(all(w, w->kept_grad, SF_READ), all(w, w->norm, SF_WRITE)));
    s->dims.n = (int64_t)w->build.cls->buffers[w->kept_grad].elems;
    if (w->b->sharded)
        collective(w, SF_OP_ALL_REDUCE, "norm", 1, SF_ARGS(all(w, w->norm, SF_READWRITE)));
    op(w, SF_OP_ADAMW, "all", SF_ARGS(all(w, w->kept_grad, SF_READ), all(w, w->master, SF_READWRITE), all(w, w->m, SF_READWRITE),
                                      all(w, w->v, SF_READWRITE), w->b->mixed ? all(w, w->kept, SF_WRITE) : sf_none(), all(w, w->norm, SF_READ)));
    sf_build_free(&w->build, w->grad, 0, 0);
    if (w->b->sharded) {
        sf_build_join(&w->build, SF_STREAM_COMPUTE, SF_STREAM_COMM);
        sf_build_free(&w->build, w->kept_grad, 0, 0);
    }
}

const sf_program *bigram_program(const bigram *b, sf_arena *arena)
{
    sf_program *p = SF_NEW(arena, sf_program);
    writer w = { .b = b, .rows = (int64_t)b->micro_batch * T, .dtype = b->mixed ? SF_BF16 : SF_F32 };

    *p = (sf_program){ .strategy = b->sharded ? "sharded" : "replicated", .world_size = b->world, .ranks_per_node = b->world, .n_layers = 1,
                       .n_micro = b->n_micro, .tokens_per_step = (uint64_t)(w.rows * b->n_micro * b->world), .n_classes = 1 };
    p->classes = SF_NEW(arena, sf_class);
    p->classes[0] = (sf_class){ .name = "worker", .n_ranks = b->world };
    sf_build_start(&w.build, arena, p->classes);
    declare(&w);
    uint64_t whole = p->classes[0].flats[0].padded;
    if (b->sharded) {
        sf_build_alloc(&w.build, w.whole, 0, 0);
        collective(&w, SF_OP_ALL_GATHER, "params", whole, SF_ARGS(all(&w, w.kept, SF_READ), all(&w, w.whole, SF_WRITE)));
    }
    sf_build_alloc(&w.build, w.grad, 0, 0);
    op(&w, SF_OP_ZERO, "grad", SF_ARGS(all(&w, w.grad, SF_WRITE)))->dims.n = (int64_t)whole; /* its padding */
    sf_build_repeat(&w.build, SF_LOOP_MICRO, 0, b->n_micro, 1);
    forward(&w);
    backward(&w);
    sf_build_end(&w.build);
    if (b->sharded) /* the gathered parameters were last read by compute */
        sf_build_join(&w.build, SF_STREAM_COMPUTE, SF_STREAM_COMM);
    update(&w, whole);
    return p;
}

/* ---- running ---- */

typedef struct {
    const bigram *b;
    sf_comm *comm;
    const sf_executor_setup *common;
    bigram_rank *out;
    sf_arena arena;
} job;

static void train(job *j, sf_executor *ex, bigram_rank *out)
{
    for (int s = 0; s < j->b->steps && out->st.code == SF_OK && !out->full; s++) {
        sf_step step;
        out->st = sf_executor_step(ex, &step);
        out->full = step.out_of_memory;
        if (out->st.code == SF_OK && !out->full)
            out->losses[out->n_losses++] = step.loss;
    }
    for (int t = 0; t < BIGRAM_TENSORS && out->st.code == SF_OK && !out->full; t++)
        out->st = sf_executor_read(ex, SF_BIND_MASTER, t, out->params[t]);
    sf_executor_outcome(ex, &j->arena, &out->outcome);
}

static void *run_rank(void *arg)
{
    job *j = arg;
    sf_executor_setup setup = *j->common;
    sf_executor *ex = NULL;

    setup.comm = j->comm;
    j->out->st = sf_executor_open(&sf_backend_host, &setup, &ex, &j->out->full);
    if (j->out->st.code == SF_OK)
        train(j, ex, j->out);
    sf_executor_close(ex);
    return NULL;
}

static sf_param params[BIGRAM_TENSORS] = {
    { .name = "wte", .numel = V * C, .std = 0.5f },
    { .name = "head", .numel = V * C, .std = 0.5f },
    { .name = "bias", .numel = V },
};

void bigram_run(const bigram *b, bigram_result *out)
{
    sf_params all_params = { .params = params, .count = BIGRAM_TENSORS, .seed = 7 };
    sf_comm *comms[BIGRAM_MAX_RANKS];
    job jobs[BIGRAM_MAX_RANKS];
    pthread_t threads[BIGRAM_MAX_RANKS];
    sf_data *data = NULL;

    memset(out, 0, sizeof *out);
    out->program = bigram_program(b, &out->arena);
    if (sf_data_open("synthetic", V, &data).code != SF_OK || sf_comm_threads_open(b->world, b->world, comms).code != SF_OK)
        abort();
    sf_executor_setup setup = { .program = out->program, .params = &all_params, .data = data, .seq_len = T, .norm_eps = 1e-5f,
                                .device_memory_bytes = b->device_memory_bytes, .optimizer = SF_ADAMW_DEFAULT, .poison = b->poison };
    setup.optimizer.lr = b->lr > 0 ? b->lr : 0.02f;
    setup.optimizer.clip_norm = b->clip_norm;
    for (int r = 0; r < b->world; r++) {
        jobs[r] = (job){ .b = b, .comm = comms[r], .common = &setup, .out = &out->rank[r] };
        pthread_create(&threads[r], NULL, run_rank, &jobs[r]);
    }
    for (int r = 0; r < b->world; r++)
        pthread_join(threads[r], NULL);
    for (int r = 0; r < b->world; r++) {
        sf_comm_close(comms[r]);
        out->keep[r] = jobs[r].arena;
    }
    sf_data_close(data);
}

void bigram_free(bigram_result *result)
{
    for (int r = 0; r < BIGRAM_MAX_RANKS; r++)
        sf_arena_free(&result->keep[r]);
    sf_arena_free(&result->arena);
}
