/* exec/cuda/backend_cuda.c: a GPU as a device: one rank, its streams, its memory and page-locked host memory.
 *
 * Streams  A program's stream is a CUDA stream, its events are CUDA events; RECORD and WAIT mean there what they mean in a
 *          program. Ops of the host's stream run by host functions in stream order, on all cores (an offloaded AdamW).
 * Ranks    One GPU each: of the node's visible ones that of the rank's place in the node. Ranks that would share one are an
 *          error under NCCL, which hangs on that; with `staged` collectives go through host memory instead.
 * Staged   The issuing thread waits for the stream, copies to host memory, joins there, and copies back: right, and slow.
 * Times    Each op lies between two timed events.
 * Stops    A rank that is gone never joins a collective: waiting looks for stops and for NCCL's errors, and aborts what is
 *          under way.
 */
#include "exec/cuda/backend_cuda.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "exec/comm.h"
#include "exec/cuda/cuda_comm.h"
#include "exec/cuda/cuda_ops.h"
#include "exec/cuda/cuda_probe.h"
#include "exec/data.h"
#include "exec/host/host_ops.h"

typedef struct cuda cuda;

/* An op that the host runs: it outlives the call that issued it. */
typedef struct {
    cuda *machine;
    sf_op_call call;
    double sumsq; /* page-locked copy of the gradients' square sum is read here */
} host_op;

typedef struct {
    sf_op_time *time;
    int mark; /* of its start; the end's is the next */
} timed_op;

struct cuda {
    sf_cuda_context ctx;
    sf_host_context host;
    sf_cuda_comm *nccl;    /* NULL: staged, or no collectives                     */
    bool staged;
    void *stage_in, *stage_out;
    int *tokens;           /* page-locked: a slot for each LOAD_BATCH of a step   */
    float *losses;         /* page-locked: the rows of each XENT of a step        */
    double *sumsqs;        /* page-locked: one for each op of the host            */
    host_op *host_ops;
    timed_op *timed;
    size_t n_timed, cap_timed, n_host, cap_host;
    uint64_t tokens_used, cap_tokens, losses_used, cap_losses, rows;
    bool used[SF_STREAM_COUNT];
    bool aborted;
    pthread_mutex_t lock;  /* of `failed`, which the host's functions write       */
    sf_status failed;
};

static const sf_cuda_api *given_api;

void sf_backend_cuda_use(const sf_cuda_api *api) { given_api = api; }

sf_cuda_stream sf_backend_cuda_stream(const void *self, sf_stream stream)
{
    return sf_cuda_device_stream(((const cuda *)self)->ctx.dev, stream);
}

/* ---- opening ---- */

static void cuda_close(void *self)
{
    cuda *m = self;
    if (m->nccl != NULL && m->aborted)
        sf_cuda_comm_abort(m->nccl);
    sf_cuda_comm_close(m->nccl);
    if (m->ctx.gemm != NULL)
        sf_cuda_gemm_close(m->ctx.gemm);
    sf_cuda_device_close(m->ctx.dev);
    pthread_mutex_destroy(&m->lock);
    free(m->host_ops);
    free(m->timed);
    free(m);
}

/* NCCL cannot have two ranks on one GPU. */
static sf_status check_own_device(sf_comm *comm, const sf_cuda_device *dev)
{
    struct place {
        char host[256], bus[32];
    } mine = { { 0 }, { 0 } }, *all;
    int world = sf_comm_world(comm);
    sf_status st = SF_SUCCESS;

    gethostname(mine.host, sizeof mine.host - 1);
    memcpy(mine.bus, sf_cuda_device_found(dev)->bus_id, sizeof mine.bus);
    all = calloc((size_t)world, sizeof *all);
    if (all == NULL)
        return SF_FAIL(SF_ENOMEM, "no memory to compare %d ranks' GPUs", world);
    st = sf_comm_exchange(comm, &mine, sizeof mine, all);
    for (int a = 0; a < world && st.code == SF_OK; a++)
        for (int b = a + 1; b < world && st.code == SF_OK; b++)
            if (strcmp(all[a].host, all[b].host) == 0 && strcmp(all[a].bus, all[b].bus) == 0)
                st = SF_FAIL(SF_EDEVICE, "ranks %d and %d would share the GPU %s of %s, which NCCL does not allow; start fewer ranks, show each its own "
                             "GPU (CUDA_VISIBLE_DEVICES), or pass --communicator staged: collectives through host memory", a, b, all[a].bus, all[a].host);
    free(all);
    return st;
}

/* A launcher may show each rank its own GPU only. */
sf_status sf_backend_cuda_device(sf_comm *comm, bool shared, sf_cuda_device **out)
{
    const sf_cuda_api *api = given_api;
    int local = sf_comm_rank(comm) % sf_comm_group_size(comm, SF_GROUP_LOCAL), visible = 0;
    if (api == NULL)
        SF_TRY(sf_cuda_api_real(&api));
    (void)api->cudaGetDeviceCount(&visible); /* opening the device tells what is wrong */
    if (visible == 1 || (shared && visible > 0))
        local %= visible;
    SF_TRY(sf_cuda_device_open(api, local, out));
    return shared ? SF_SUCCESS : check_own_device(comm, *out);
}

static uint64_t array_bytes(const cuda *m, const sf_class *cls, const sf_op *op, bool input)
{
    int with = op->args[0].buffer >= 0 ? 0 : 1;
    uint64_t whole = (uint64_t)op->dims.n * sf_dtype_bytes(cls->buffers[op->args[with].buffer].dtype);
    uint64_t part = whole / (uint64_t)sf_comm_group_size(m->ctx.setup->comm, op->group);
    switch (op->type) {
    case SF_OP_ALL_GATHER:
    case SF_OP_GATHER: return input ? part : whole;
    case SF_OP_REDUCE_SCATTER:
    case SF_OP_SCATTER: return input ? whole : part;
    default: return whole;
    }
}

static sf_status open_communication(cuda *m, const sf_class *cls)
{
    unsigned groups = 0;
    uint64_t most[2] = { 0, 0 };

    for (size_t i = 0; i < cls->n_ops; i++) {
        const sf_op *op = &cls->ops[i];
        if (sf_op_kind_of(op->type) != SF_KIND_COMM)
            continue;
        groups |= 1u << op->group;
        for (int side = 0; side < 2; side++)
            most[side] = array_bytes(m, cls, op, side == 0) > most[side] ? array_bytes(m, cls, op, side == 0) : most[side];
    }
    m->staged = m->ctx.setup->staged;
    /* classes may differ in their groups; NCCL's communicators are made by all ranks or none */
    unsigned all[SF_COMM_MAX_RANKS];
    SF_TRY(sf_comm_exchange(m->ctx.setup->comm, &groups, sizeof groups, all));
    for (int r = 0; r < sf_comm_world(m->ctx.setup->comm); r++)
        groups |= all[r];
    if (groups == 0)
        return SF_SUCCESS;
    if (m->staged) {
        SF_TRY(sf_comm_memory(m->ctx.setup->comm, most[0] > 0 ? most[0] : 8, &m->stage_in));
        return sf_comm_memory(m->ctx.setup->comm, most[1] > 0 ? most[1] : 8, &m->stage_out);
    }
    return sf_cuda_comm_open(m->ctx.dev, m->ctx.setup->comm, groups, &m->nccl);
}

static bool is_product(sf_op_type type) { return type == SF_OP_LINEAR_FWD || type == SF_OP_LINEAR_BWD_X || type == SF_OP_LINEAR_BWD_W; }

/* What one step issues: how many marks, page-locked slots and scratch it takes. */
static sf_status take_room(cuda *m, const sf_class *cls)
{
    uint64_t scratch[SF_STREAM_COUNT] = { 0 };
    sf_cursor cursor;
    sf_issue is;
    void *p;

    sf_cursor_start(&cursor, cls);
    while (sf_cursor_next(&cursor, &is)) {
        const sf_op *op = is.op;
        sf_op_kind kind = sf_op_kind_of(op->type);
        if (kind == SF_KIND_MEM || op->type == SF_OP_HOST_SYNC)
            continue;
        m->used[op->stream] = true;
        if (kind == SF_KIND_SYNC)
            continue;
        m->cap_timed++;
        m->cap_host += op->stream == SF_STREAM_HOST;
        m->cap_tokens += op->type == SF_OP_LOAD_BATCH ? 2 * op->args[0].elems : 0;
        m->cap_losses += op->type == SF_OP_XENT ? (uint64_t)op->dims.m : 0;
        if (op->stream != SF_STREAM_HOST && kind != SF_KIND_COMM && op->type != SF_OP_LOAD_BATCH && sf_cuda_op_rows[op->type] == NULL)
            return SF_FAIL(SF_EUNSUP, "the CUDA executor has no op '%s'", sf_op_name(op->type));
        if (is_product(op->type) && op->stream != SF_STREAM_COMPUTE)
            return SF_FAIL(SF_EUNSUP, "product '%s' is on stream %s; the CUDA executor multiplies on compute only", op->label, sf_stream_name(op->stream));
        uint64_t bytes = op->stream == SF_STREAM_HOST ? 0 : sf_cuda_op_scratch_bytes(cls, op);
        scratch[op->stream] = bytes > scratch[op->stream] ? bytes : scratch[op->stream];
    }
    for (int s = 0; s < SF_STREAM_COUNT; s++)
        SF_TRY(sf_cuda_device_take(m->ctx.dev, scratch[s], &m->ctx.scratch[s]));
    SF_TRY(sf_cuda_device_events(m->ctx.dev, cls->n_events));
    SF_TRY(sf_cuda_device_marks(m->ctx.dev, 1 + 2 * (int)m->cap_timed));
    SF_TRY(sf_cuda_device_pinned(m->ctx.dev, m->cap_tokens * sizeof *m->tokens, &p));
    m->tokens = p;
    SF_TRY(sf_cuda_device_pinned(m->ctx.dev, m->cap_losses * sizeof *m->losses, &p));
    m->losses = p;
    SF_TRY(sf_cuda_device_pinned(m->ctx.dev, m->cap_host * sizeof *m->sumsqs, &p));
    m->sumsqs = p;
    m->timed = calloc(m->cap_timed + 1, sizeof *m->timed);
    m->host_ops = calloc(m->cap_host + 1, sizeof *m->host_ops);
    return m->timed != NULL && m->host_ops != NULL ? SF_SUCCESS : SF_FAIL(SF_ENOMEM, "no memory for the CUDA executor's record of a step");
}

static sf_status upload(cuda *m, void *to, const void *from, uint64_t bytes)
{
    SF_TRY(sf_cuda_device_copy(m->ctx.dev, SF_STREAM_COMPUTE, to, from, bytes));
    return sf_cuda_device_sync(m->ctx.dev, SF_STREAM_COMPUTE);
}

static sf_status make_rope_table(cuda *m)
{
    size_t seq_len = (size_t)m->ctx.setup->seq_len, dim = (size_t)m->ctx.setup->rotary_dim, bytes = sf_host_rope_table_bytes(seq_len, dim);
    void *device;
    if (dim == 0)
        return SF_SUCCESS;
    float *table = malloc(bytes);
    if (table == NULL)
        return SF_FAIL(SF_ENOMEM, "no memory for the rotary table");
    sf_host_rope_table(seq_len, dim, m->ctx.setup->rope_theta, table);
    sf_status st = sf_cuda_device_take(m->ctx.dev, bytes, &device);
    if (st.code == SF_OK)
        st = upload(m, device, table, bytes);
    m->ctx.rope_table = device;
    free(table);
    return st;
}

static sf_status open_machine(cuda *m, const sf_class *cls)
{
    void *ws;
    SF_TRY(sf_backend_cuda_device(m->ctx.setup->comm, m->ctx.setup->staged, &m->ctx.dev));
    uint64_t ws_bytes = sf_cuda_gemm_ws_bytes(sf_cuda_device_found(m->ctx.dev)->cc_major);
    SF_TRY(sf_cuda_device_take(m->ctx.dev, ws_bytes, &ws));
    SF_TRY(sf_cuda_gemm_open(m->ctx.dev, m->ctx.setup->tf32, ws, ws_bytes, &m->ctx.gemm));
    SF_TRY(take_room(m, cls));
    SF_TRY(make_rope_table(m));
    return open_communication(m, cls);
}

static sf_status cuda_open(const sf_executor_setup *setup, const sf_class *cls, void **self)
{
    cuda *m = calloc(1, sizeof *m);
    if (m == NULL)
        return SF_FAIL(SF_ENOMEM, "no memory for the CUDA executor");
    m->ctx.setup = m->host.setup = setup;
    m->failed = SF_SUCCESS;
    pthread_mutex_init(&m->lock, NULL);
    sf_host_ops_init(&m->host.kernels);
    sf_status st = open_machine(m, cls);
    /* a rank whose GPU fails must not leave the others waiting for it in NCCL's bootstrap */
    if (st.code != SF_OK) {
        sf_comm_stop(setup->comm, SF_STOP_FAILED, st.msg, NULL, 0);
        m->aborted = true;
        cuda_close(m);
        return st;
    }
    *self = m;
    return SF_SUCCESS;
}

/* ---- memory ---- */

static sf_status cuda_memory(void *self, sf_space space, uint64_t bytes, void **base)
{
    cuda *m = self;
    return space == SF_SPACE_DEVICE ? sf_cuda_device_take(m->ctx.dev, bytes, base) : sf_cuda_device_pinned(m->ctx.dev, bytes, base);
}

static sf_status cuda_copy(void *self, void *to, const void *from, uint64_t bytes) { return upload(self, to, from, bytes); }

static sf_status cuda_poison(void *self, sf_stream stream, void *at, uint64_t bytes)
{
    return sf_cuda_device_set(((cuda *)self)->ctx.dev, stream, at, 0xff, bytes);
}

static void cuda_used(void *self, uint64_t *used_bytes)
{
    sf_cuda_readings r;
    uint64_t free_bytes, total_bytes;
    cuda *m = self;
    sf_cuda_device_read(m->ctx.dev, &r);
    if (r.known)
        *used_bytes = r.used_bytes;
    else if (sf_cuda_device_free_bytes(m->ctx.dev, &free_bytes, &total_bytes).code == SF_OK)
        *used_bytes = total_bytes - free_bytes;
}

/* ---- ops of the host ---- */

enum { PIECE = 1 << 12 }; /* elements of an update that one core takes at a time: 112 KiB, which its cache holds */

static void fail_from_host(cuda *m, sf_status st)
{
    pthread_mutex_lock(&m->lock);
    if (m->failed.code == SF_OK)
        m->failed = st;
    pthread_mutex_unlock(&m->lock);
    sf_comm_stop(m->ctx.setup->comm, SF_STOP_FAILED, st.msg, NULL, 0);
}

/* An update has no order between elements: cores share it. */
static void update_on_cores(host_op *h)
{
    int64_t n = (int64_t)h->call.issue.op->args[1].elems, pieces = (n + PIECE - 1) / PIECE;
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < pieces; i++) {
        sf_op_call part = h->call;
        sf_op op = *h->call.issue.op;
        uint64_t at = (uint64_t)i * PIECE;
        op.args[1].elems = (uint64_t)n - at < PIECE ? (uint64_t)n - at : PIECE;
        part.issue.op = &op;
        part.flat_start += at;
        for (int a = 0; a < 5; a++)
            if (part.ptr[a] != NULL)
                part.ptr[a] = (char *)part.ptr[a] + at * sf_dtype_bytes(part.dtype[a]);
        sf_status st = sf_host_op_rows[SF_OP_ADAMW](&h->machine->host, &part);
        if (st.code != SF_OK)
            fail_from_host(h->machine, st);
    }
}

static void run_on_host(void *arg)
{
    host_op *h = arg;
    if (h->call.issue.op->type == SF_OP_ADAMW) {
        update_on_cores(h);
        return;
    }
    sf_status st = sf_host_op_rows[h->call.issue.op->type](&h->machine->host, &h->call);
    if (st.code != SF_OK)
        fail_from_host(h->machine, st);
}

static sf_status issue_on_host(cuda *m, const sf_op_call *call)
{
    host_op *h = &m->host_ops[m->n_host];
    if (sf_host_op_rows[call->issue.op->type] == NULL)
        return SF_FAIL(SF_EUNSUP, "the host has no op '%s'", sf_op_name(call->issue.op->type));
    *h = (host_op){ .machine = m, .call = *call };
    if (call->issue.op->type == SF_OP_ADAMW && call->ptr[5] != NULL) { /* the squares were summed on the GPU */
        SF_TRY(sf_cuda_device_copy(m->ctx.dev, SF_STREAM_HOST, &m->sumsqs[m->n_host], call->ptr[5], sizeof *m->sumsqs));
        h->call.ptr[5] = &m->sumsqs[m->n_host];
    }
    m->n_host++;
    return sf_cuda_device_host_call(m->ctx.dev, SF_STREAM_HOST, run_on_host, h);
}

/* ---- collectives ---- */

static sf_status staged(cuda *m, const sf_op_call *call, sf_dtype dtype)
{
    const sf_op *op = call->issue.op;
    sf_comm *comm = m->ctx.setup->comm;
    uint64_t whole = (uint64_t)op->dims.n * sf_dtype_bytes(dtype), part = whole / (uint64_t)sf_comm_group_size(comm, op->group);
    bool one = call->issue.op->n_args == 1;
    bool spreads = op->type == SF_OP_REDUCE_SCATTER || op->type == SF_OP_SCATTER, collects = op->type == SF_OP_ALL_GATHER || op->type == SF_OP_GATHER;
    const void *in = call->ptr[0];
    void *out = one ? call->ptr[0] : call->ptr[1];
    uint64_t in_bytes = collects ? part : whole, out_bytes = spreads ? part : whole;

    if (in != NULL)
        SF_TRY(sf_cuda_device_copy(m->ctx.dev, op->stream, one ? m->stage_out : m->stage_in, in, in_bytes));
    SF_TRY(sf_cuda_device_sync(m->ctx.dev, op->stream));
    SF_TRY(sf_comm_call(comm, op->type, op->group, dtype, in == NULL ? NULL : one ? m->stage_out : m->stage_in, out == NULL ? NULL : m->stage_out,
                        (uint64_t)op->dims.n));
    if (out != NULL)
        SF_TRY(sf_cuda_device_copy(m->ctx.dev, op->stream, out, m->stage_out, out_bytes));
    return sf_cuda_device_sync(m->ctx.dev, op->stream); /* the stage is free for the next one */
}

static sf_status collective(cuda *m, const sf_op_call *call)
{
    const sf_op *op = call->issue.op;
    sf_dtype dtype = call->dtype[call->ptr[0] != NULL ? 0 : 1];
    void *out = op->n_args == 1 ? call->ptr[0] : call->ptr[1];

    if (m->staged)
        return staged(m, call, dtype);
    SF_TRY(sf_cuda_comm_call(m->nccl, sf_cuda_device_stream(m->ctx.dev, op->stream), op->type, op->group, dtype, call->ptr[0], out, (uint64_t)op->dims.n));
    sf_comm_note(m->ctx.setup->comm, op->type, op->group, (uint64_t)op->dims.n * sf_dtype_bytes(dtype));
    return SF_SUCCESS;
}

/* ---- a step ---- */

static void cuda_start(void *self)
{
    cuda *m = self;
    m->n_timed = m->n_host = 0;
    m->tokens_used = m->losses_used = m->rows = 0;
    sf_status st = sf_cuda_device_mark(m->ctx.dev, SF_STREAM_COMPUTE, 0);
    if (st.code != SF_OK)
        fail_from_host(m, st);
}

static sf_status load_batch(cuda *m, const sf_op_call *call)
{
    uint64_t rows = call->issue.op->args[0].elems;
    int *tokens = m->tokens + m->tokens_used, *targets = tokens + rows, seq_len = m->ctx.setup->seq_len;

    m->tokens_used += 2 * rows;
    sf_data_read(m->ctx.setup->data, call->first_sequence, (int)(rows / (uint64_t)seq_len), seq_len, tokens, targets);
    SF_TRY(sf_cuda_device_copy(m->ctx.dev, call->issue.op->stream, call->ptr[0], tokens, rows * sizeof *tokens));
    return sf_cuda_device_copy(m->ctx.dev, call->issue.op->stream, call->ptr[1], targets, rows * sizeof *targets);
}

/* The rows' losses, for the sum that sf_executor_step reports. */
static sf_status keep_losses(cuda *m, const sf_op_call *call)
{
    uint64_t rows = (uint64_t)call->issue.op->dims.m;
    float *to = m->losses + m->losses_used;
    m->losses_used += rows;
    return sf_cuda_device_copy(m->ctx.dev, call->issue.op->stream, to, call->ptr[2], rows * sizeof *to);
}

static sf_status put(cuda *m, const sf_op_call *call)
{
    const sf_op *op = call->issue.op;
    if (sf_op_kind_of(op->type) == SF_KIND_COMM)
        return collective(m, call);
    if (op->stream == SF_STREAM_HOST)
        return issue_on_host(m, call);
    if (op->type == SF_OP_LOAD_BATCH)
        return load_batch(m, call);
    SF_TRY(sf_cuda_op_rows[op->type](&m->ctx, call));
    return op->type == SF_OP_XENT ? keep_losses(m, call) : SF_SUCCESS;
}

static sf_status cuda_issue(void *self, const sf_op_call *call)
{
    cuda *m = self;
    const sf_op *op = call->issue.op;
    if (op->type == SF_OP_RECORD)
        return sf_cuda_device_record(m->ctx.dev, op->stream, call->issue.event);
    if (op->type == SF_OP_WAIT)
        return sf_cuda_device_wait(m->ctx.dev, op->stream, call->issue.event);
    timed_op *t = &m->timed[m->n_timed];
    *t = (timed_op){ call->time, 1 + 2 * (int)m->n_timed };
    SF_TRY(sf_cuda_device_mark(m->ctx.dev, op->stream, t->mark));
    SF_TRY(put(m, call));
    SF_TRY(sf_cuda_device_mark(m->ctx.dev, op->stream, t->mark + 1));
    m->n_timed++;
    return SF_SUCCESS;
}

/* Ends what waits for ranks that will not come. */
static sf_status stopped(cuda *m)
{
    sf_stop stop;
    sf_status st = m->nccl != NULL ? sf_cuda_comm_check(m->nccl) : SF_SUCCESS;
    if (st.code != SF_OK)
        sf_comm_stop(m->ctx.setup->comm, SF_STOP_FAILED, st.msg, NULL, 0);
    else if (sf_comm_stopped(m->ctx.setup->comm, &stop))
        st = sf_comm_stop_status(m->ctx.setup->comm);
    if (st.code != SF_OK && m->nccl != NULL) {
        sf_cuda_comm_abort(m->nccl);
        m->aborted = true;
    }
    return st;
}

static sf_status wait_for_streams(cuda *m)
{
    enum { EAGER = 2000 }; /* looks before it sleeps between them */
    for (long looks = 0;; looks++) {
        bool all = true;
        for (int s = 0; s < SF_STREAM_COUNT && all; s++)
            if (m->used[s])
                SF_TRY(sf_cuda_device_done(m->ctx.dev, (sf_stream)s, &all));
        if (all)
            return sf_cuda_device_sync_all(m->ctx.dev);
        if (looks < EAGER) {
            sched_yield();
            continue;
        }
        SF_TRY(stopped(m));
        nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
    }
}

static sf_status read_times(cuda *m)
{
    for (size_t i = 0; i < m->n_timed; i++) {
        const timed_op *t = &m->timed[i];
        SF_TRY(sf_cuda_device_elapsed(m->ctx.dev, 0, t->mark, &t->time->start_s));
        SF_TRY(sf_cuda_device_elapsed(m->ctx.dev, 0, t->mark + 1, &t->time->end_s));
        t->time->start_s = fmax(0, t->time->start_s); /* other streams may begin before the mark of time 0 */
    }
    return SF_SUCCESS;
}

static sf_status cuda_sync(void *self)
{
    cuda *m = self;
    SF_TRY(wait_for_streams(m));
    pthread_mutex_lock(&m->lock);
    sf_status st = m->failed;
    pthread_mutex_unlock(&m->lock);
    SF_TRY(st);
    return read_times(m);
}

static void cuda_loss(void *self, double *sum, uint64_t *rows)
{
    cuda *m = self;
    *sum = 0;
    for (uint64_t i = m->rows; i < m->losses_used; i++)
        *sum += (double)m->losses[i];
    *rows = m->losses_used - m->rows;
    m->rows = m->losses_used;
}

const sf_backend_type sf_backend_cuda = {
    .name = "cuda",
    .open = cuda_open,
    .memory = cuda_memory,
    .write = cuda_copy,
    .read = cuda_copy,
    .start = cuda_start,
    .issue = cuda_issue,
    .poison = cuda_poison,
    .sync = cuda_sync,
    .loss = cuda_loss,
    .used = cuda_used,
    .close = cuda_close,
};

sf_status sf_cuda_backend(const sf_backend_type **out)
{
    int count;
    *out = &sf_backend_cuda;
    return given_api != NULL ? SF_SUCCESS : sf_cuda_probe(0, NULL, &count);
}
