/* exec/host/backend_host.c: the host as a device: its cores run the kernels, its memory is both the
 * device's and the host's space.
 *
 * One core is one device: every stream is a thread, kernels run on their stream's thread, and
 * OpenBLAS is kept to one thread, so that ranks do not take each other's cores and sums are taken in
 * one order whatever the number of cores.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cblas.h>

#include "exec/host/host_ops.h"
#include "exec/host/streams.h"

typedef struct {
    sf_host_context ctx;
    sf_streams *streams;
    struct timespec start;
} host;

static double between(const struct timespec *start, const struct timespec *end)
{
    return (double)(end->tv_sec - start->tv_sec) + 1e-9 * (double)(end->tv_nsec - start->tv_nsec);
}

static double since(const struct timespec *start)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return between(start, &t);
}

/* ---- on the streams' threads ---- */

static sf_status run_op(void *arg, const sf_op_call *call)
{
    host *h = arg;
    sf_host_op op = sf_host_op_rows[call->issue.op->type];

    if (op == NULL)
        return SF_FAIL(SF_EUNSUP, "the host executor has no op '%s'", sf_op_name(call->issue.op->type));
    double start_s = since(&h->start);
    sf_status st = op(&h->ctx, call);
    if (sf_op_kind_of(call->issue.op->type) == SF_KIND_COMM) { /* a collective starts when its ranks have met */
        struct timespec met = sf_comm_met(h->ctx.setup->comm);
        start_s = between(&h->start, &met);
    }
    call->time->start_s = start_s;
    call->time->end_s = since(&h->start);
    return st;
}

static void op_failed(void *arg, const sf_status *st)
{
    host *h = arg;
    sf_comm_stop(h->ctx.setup->comm, SF_STOP_FAILED, st->msg, NULL, 0);
}

/* ---- the backend ---- */

static void host_close(void *self)
{
    host *h = self;

    sf_streams_close(h->streams);
    for (int s = 0; s < SF_STREAM_COUNT; s++)
        free(h->ctx.scratch[s]);
    free(h->ctx.rope_table);
    free(h);
}

/* The threads that the class's ops need, and their scratch. */
static sf_status open_streams(host *h, const sf_class *cls)
{
    size_t scratch[SF_STREAM_COUNT] = { 0 };

    SF_TRY(sf_streams_open(cls->n_events, run_op, op_failed, h, &h->streams));
    for (size_t i = 0; i < cls->n_ops; i++) {
        const sf_op *op = &cls->ops[i];
        if (op->type == SF_OP_HOST_SYNC)
            continue;
        if (sf_op_kind_of(op->type) == SF_KIND_MEM) { /* its home: may be filled with NaN there */
            SF_TRY(sf_streams_use(h->streams, cls->buffers[op->args[0].buffer].home));
            continue;
        }
        SF_TRY(sf_streams_use(h->streams, op->stream));
        size_t bytes = sf_host_op_scratch_bytes(cls, op);
        if (bytes > scratch[op->stream])
            scratch[op->stream] = bytes;
    }
    for (size_t i = 0; i < cls->n_buffers; i++)
        if (cls->buffers[i].persistent)
            SF_TRY(sf_streams_use(h->streams, cls->buffers[i].home));
    for (int s = 0; s < SF_STREAM_COUNT; s++) {
        if (scratch[s] == 0)
            continue;
        h->ctx.scratch[s] = aligned_alloc(64, (scratch[s] + 63) / 64 * 64);
        if (h->ctx.scratch[s] == NULL)
            return SF_FAIL(SF_ENOMEM, "no memory for the scratch of stream %s (%zu bytes)", sf_stream_name((sf_stream)s), scratch[s]);
    }
    return SF_SUCCESS;
}

static sf_status make_rope_table(host *h)
{
    size_t seq_len = (size_t)h->ctx.setup->seq_len, dim = (size_t)h->ctx.setup->rotary_dim;

    if (dim == 0)
        return SF_SUCCESS;
    h->ctx.rope_table = malloc(sf_host_rope_table_bytes(seq_len, dim));
    if (h->ctx.rope_table == NULL)
        return SF_FAIL(SF_ENOMEM, "no memory for the rotary table");
    sf_host_rope_table(seq_len, dim, h->ctx.setup->rope_theta, h->ctx.rope_table);
    return SF_SUCCESS;
}

static sf_status host_open(const sf_executor_setup *setup, const sf_class *cls, void **self)
{
    host *h = calloc(1, sizeof *h);

    if (h == NULL)
        return SF_FAIL(SF_ENOMEM, "no memory for the host executor");
    h->ctx.setup = setup;
    openblas_set_num_threads(1);
    sf_host_ops_init(&h->ctx.kernels);
    sf_status st = make_rope_table(h);
    if (st.code == SF_OK)
        st = open_streams(h, cls);
    if (st.code != SF_OK) {
        host_close(h);
        return st;
    }
    *self = h;
    return SF_SUCCESS;
}

/* Both spaces can be reached by the other ranks: a gather may land in the host's. */
static sf_status host_memory(void *self, sf_space space, uint64_t bytes, void **base)
{
    (void)space;
    return sf_comm_memory(((host *)self)->ctx.setup->comm, bytes, base);
}

static sf_status host_copy(void *self, void *to, const void *from, uint64_t bytes)
{
    (void)self;
    memcpy(to, from, bytes);
    return SF_SUCCESS;
}

static void host_start(void *self)
{
    host *h = self;
    h->ctx.loss_sum = 0;
    h->ctx.loss_rows = 0;
    clock_gettime(CLOCK_MONOTONIC, &h->start);
}

static sf_status host_issue(void *self, const sf_op_call *call)
{
    host *h = self;
    const sf_issue *is = &call->issue;

    if (is->op->type == SF_OP_RECORD)
        sf_streams_record(h->streams, is->op->stream, is->event);
    else if (is->op->type == SF_OP_WAIT)
        sf_streams_wait(h->streams, is->op->stream, is->event);
    else
        sf_streams_push(h->streams, call);
    return SF_SUCCESS;
}

static sf_status host_poison(void *self, sf_stream stream, void *at, uint64_t bytes)
{
    sf_streams_fill(((host *)self)->streams, stream, at, bytes);
    return SF_SUCCESS;
}

static sf_status host_sync(void *self)
{
    return sf_streams_sync(((host *)self)->streams);
}

static void host_loss(void *self, double *sum, uint64_t *rows)
{
    host *h = self;
    *sum = h->ctx.loss_sum;
    *rows = h->ctx.loss_rows;
    h->ctx.loss_sum = 0;
    h->ctx.loss_rows = 0;
}

const sf_backend_type sf_backend_host = {
    .name = "host",
    .device_is_host = true,
    .open = host_open,
    .memory = host_memory,
    .write = host_copy,
    .read = host_copy,
    .start = host_start,
    .issue = host_issue,
    .poison = host_poison,
    .sync = host_sync,
    .loss = host_loss,
    .close = host_close,
};
