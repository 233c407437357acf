#include "exec/executor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "exec/executor_impl.h"
#include "exec/host/block.h"
#include "model/base/units.h"
#include "model/program/plan.h"

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

float sf_clip_factor(const sf_adamw_setup *optimizer, const double *sumsq)
{
    if (sumsq == NULL || optimizer->clip_norm <= 0)
        return 1.0f;
    double factor = (double)optimizer->clip_norm / (sqrt(*sumsq) + 1e-6);
    return factor < 1.0 ? (float)factor : 1.0f;
}

/* ---- where instances lie ---- */

const sf_buffer *sf_executor_buffer_of(const sf_executor *ex, int instance)
{
    const sf_class *cls = ex->cls;
    for (size_t i = 0; i < cls->n_buffers; i++)
        if (instance < cls->buffers[i].first + cls->buffers[i].count)
            return &cls->buffers[i];
    return NULL;
}

/* No memory is used twice: every ALLOC of an instance finds it at the same place. */
static sf_status plan_spread(sf_executor *ex)
{
    for (size_t i = 0; i < ex->cls->n_buffers; i++) {
        const sf_buffer *b = &ex->cls->buffers[i];
        for (int k = 0; k < b->count; k++) {
            ex->offset[b->first + k] = ex->plan.arena_bytes[b->space];
            ex->plan.arena_bytes[b->space] += sf_round_up(sf_buffer_bytes(b), SF_PLAN_ALIGN);
        }
    }
    return SF_SUCCESS;
}

static sf_status plan_planned(sf_executor *ex)
{
    SF_TRY(sf_plan_make(ex->cls, &ex->arena, &ex->plan));
    memcpy(ex->offset, ex->plan.kept_offset, sizeof *ex->offset * (size_t)ex->cls->n_instances);
    return SF_SUCCESS;
}

char *sf_executor_address(const sf_executor *ex, const sf_buffer *b, int instance)
{
    return (char *)ex->base[b->space] + ex->offset[instance];
}

/* ---- out of memory ---- */

/* Tells the other ranks; they take over the record, so that any of them can report it. */
static void announce_full(sf_executor *ex)
{
    char msg[160];
    const sf_refusal *r = &ex->ledger.refusal;

    snprintf(msg, sizeof msg, "out of device memory: %s for %s", sf_bytes_text(r->request_bytes).text, r->buffer);
    sf_comm_stop(ex->setup.comm, SF_STOP_FULL, msg, r, sizeof *r);
}

/* Has some rank run out of memory? Then this rank's ledger says so too. */
static bool learn_full(sf_executor *ex)
{
    sf_stop stop;

    if (!sf_comm_stopped(ex->setup.comm, &stop) || stop.kind != SF_STOP_FULL)
        return false;
    memcpy(&ex->ledger.refusal, stop.note, sizeof ex->ledger.refusal);
    return true;
}

/* ---- opening ---- */

static bool take_persistent(sf_executor *ex)
{
    for (size_t i = 0; i < ex->cls->n_buffers; i++) {
        const sf_buffer *b = &ex->cls->buffers[i];
        for (int k = 0; b->persistent && k < b->count; k++)
            if (!sf_ledger_take(&ex->ledger, b, 0, SF_PHASE_FORWARD, 0))
                return false;
    }
    return true;
}

/* All ranks of a node together must fit into its memory. */
static sf_status check_host_memory(const sf_executor *ex)
{
    uint64_t mine = ex->plan.arena_bytes[SF_SPACE_DEVICE] * (ex->backend->device_is_host ? 1u : 0u) + ex->plan.arena_bytes[SF_SPACE_HOST];
    uint64_t all[SF_COMM_MAX_RANKS], sum = 0, available = sf_host_memory_available();

    SF_TRY(sf_comm_exchange(ex->setup.comm, &mine, sizeof mine, all));
    for (int r = 0; r < sf_comm_world(ex->setup.comm); r++)
        sum += all[r];
    if (available > 0 && sum > available && sf_comm_one_host(ex->setup.comm))
        return SF_FAIL(SF_EINVAL, "the ranks of this run need %s of host memory and %s are available; choose a smaller model, micro_batch "
                       "or number of ranks, or more sharding", sf_bytes_text(sum).text, sf_bytes_text(available).text);
    return SF_SUCCESS;
}

static sf_status take_blocks(sf_executor *ex)
{
    for (int s = 0; s < SF_SPACE_COUNT; s++) {
        uint64_t most = 0, all[SF_COMM_MAX_RANKS];
        SF_TRY(sf_comm_exchange(ex->setup.comm, &ex->plan.arena_bytes[s], sizeof all[0], all));
        for (int r = 0; r < sf_comm_world(ex->setup.comm); r++)
            most = all[r] > most ? all[r] : most;
        if (most > 0) /* collective: all ranks take one, or none does */
            SF_TRY(ex->backend->memory(ex->machine, (sf_space)s, ex->plan.arena_bytes[s], &ex->base[s]));
    }
    return SF_SUCCESS;
}

static sf_status check_ops(const sf_class *cls)
{
    for (size_t i = 0; i < cls->n_ops; i++) {
        const sf_op *op = &cls->ops[i];
        sf_op_kind kind = sf_op_kind_of(op->type);
        if (kind == SF_KIND_FRAME)
            return SF_FAIL(SF_EUNSUP, "op '%s' (%s) is a framework's kernel: such a program is predicted, not run; use \"framework\": "
                           "\"shardfit\"", sf_op_name(op->type), op->label);
        if (kind == SF_KIND_COMM && op->stream != SF_STREAM_COMM)
            return SF_FAIL(SF_EUNSUP, "op '%s' (%s) is a collective on stream %s: executors run them on comm only", sf_op_name(op->type),
                           op->label, sf_stream_name(op->stream));
    }
    return SF_SUCCESS;
}

/* Room for what a step records. */
static void make_records(sf_executor *ex)
{
    sf_cursor cursor;
    sf_issue is;

    sf_cursor_start(&cursor, ex->cls);
    while (sf_cursor_next(&cursor, &is)) {
        ex->n_issued++;
        if (sf_op_kind_of(is.op->type) == SF_KIND_MEM)
            ex->cap_memory_line++;
    }
    ex->times = SF_NEW_ARRAY(&ex->arena, sf_op_time, ex->n_issued);
    ex->best_times = SF_NEW_ARRAY(&ex->arena, sf_op_time, ex->n_issued);
    ex->memory_line = SF_NEW_ARRAY(&ex->arena, sf_memory_point, ex->cap_memory_line);
}

static sf_status open_machine(sf_executor *ex, bool *full)
{
    SF_TRY(check_ops(ex->cls));
    ex->offset = SF_NEW_ARRAY(&ex->arena, uint64_t, ex->cls->n_instances);
    SF_TRY(ex->setup.poison == SF_POISON_SPREAD ? plan_spread(ex) : plan_planned(ex));
    make_records(ex);
    if (!take_persistent(ex))
        announce_full(ex);
    int all[SF_COMM_MAX_RANKS], none = 0;
    sf_status st = sf_comm_exchange(ex->setup.comm, &none, sizeof none, all); /* every rank has counted */
    *full = learn_full(ex);
    if (*full)
        return SF_SUCCESS;
    SF_TRY(st);
    SF_TRY(check_host_memory(ex));
    SF_TRY(ex->backend->open(&ex->setup, ex->cls, &ex->machine));
    SF_TRY(take_blocks(ex));
    return sf_executor_initialise(ex);
}

sf_status sf_executor_open(const sf_backend_type *backend, const sf_executor_setup *setup, sf_executor **out, bool *full)
{
    sf_executor *ex = calloc(1, sizeof *ex);
    int rank = sf_comm_rank(setup->comm);

    *full = false;
    if (ex == NULL)
        return SF_FAIL(SF_ENOMEM, "no memory for an executor");
    ex->backend = backend;
    ex->setup = *setup;
    ex->rank = rank;
    ex->cls = sf_program_class_of(setup->program, rank);
    ex->ledger.limit_bytes = setup->device_memory_bytes;
    sf_status st = sf_comm_world(setup->comm) != setup->program->world_size
                       ? SF_FAIL(SF_EINVAL, "the job has %d ranks but %d were started", setup->program->world_size, sf_comm_world(setup->comm))
                       : open_machine(ex, full);
    if (st.code != SF_OK) {
        sf_comm_stop(setup->comm, SF_STOP_FAILED, st.msg, NULL, 0);
        sf_executor_close(ex);
        return st;
    }
    *out = ex;
    return SF_SUCCESS;
}

void sf_executor_close(sf_executor *ex)
{
    if (ex == NULL)
        return;
    if (ex->machine != NULL)
        ex->backend->close(ex->machine);
    sf_arena_free(&ex->arena);
    free(ex);
}

/* ---- a step ---- */

static void note_memory(sf_executor *ex, uint64_t seq)
{
    if (ex->n_memory_line < ex->cap_memory_line)
        ex->memory_line[ex->n_memory_line++] = (sf_memory_point){ .seq = seq, .bytes = ex->ledger.live[SF_SPACE_DEVICE],
                                                                   .time_s = now_s() - ex->step_start_s };
}

/* ALLOC and FREE. False: the device is full. */
static bool move_memory(sf_executor *ex, const sf_issue *is, sf_status *st)
{
    const sf_buffer *b = &ex->cls->buffers[is->at[0].buffer];
    bool take = is->op->type == SF_OP_ALLOC;

    if (take && ex->plan.alloc_offset != NULL)
        ex->offset[is->at[0].instance] = ex->plan.alloc_offset[ex->allocs++];
    if (!take)
        sf_ledger_give(&ex->ledger, b);
    else if (!sf_ledger_take(&ex->ledger, b, is->seq, is->op->phase, ex->step))
        return false;
    note_memory(ex, is->seq);
    if ((take && ex->setup.poison != SF_POISON_NONE) || (!take && ex->setup.poison == SF_POISON_SPREAD))
        *st = ex->backend->poison(ex->machine, b->home, sf_executor_address(ex, b, is->at[0].instance), sf_buffer_bytes(b));
    return true;
}

/* LOAD_BATCH: a rank reads its share of the global micro-batch, or all of it (dp's device 0). */
static uint64_t first_sequence(const sf_executor *ex, const sf_issue *is)
{
    const sf_program *p = ex->setup.program;
    uint64_t all = p->tokens_per_step / (uint64_t)p->n_micro, mine = is->op->args[0].elems;
    uint64_t before = ((uint64_t)(ex->step - 1) * (uint64_t)p->n_micro + (uint64_t)is->micro) * all;

    if (mine != all)
        before += (uint64_t)ex->rank * mine;
    return before / (uint64_t)ex->setup.seq_len;
}

static sf_status find_flat(const sf_executor *ex, sf_op_call *call)
{
    const sf_place *at = &call->issue.at[1];
    const sf_buffer *master = &ex->cls->buffers[at->buffer];

    if (master->flat < 0)
        return SF_FAIL(SF_EINVAL, "adamw (%s) updates %s, which is bound to no flat", call->issue.op->label, master->name);
    call->flat = &ex->cls->flats[master->flat + at->instance - master->first];
    call->flat_start = at->offset + (master->sharded ? (uint64_t)ex->rank * master->elems : 0);
    return SF_SUCCESS;
}

static sf_status issue(sf_executor *ex, const sf_issue *is)
{
    sf_op_call call = { .issue = *is, .step = ex->step, .time = &ex->times[is->seq] };

    for (int i = 0; i < is->op->n_args; i++) {
        const sf_place *at = &is->at[i];
        if (at->buffer < 0)
            continue;
        const sf_buffer *b = &ex->cls->buffers[at->buffer];
        call.dtype[i] = b->dtype;
        call.ptr[i] = sf_executor_address(ex, b, at->instance) + at->offset * sf_dtype_bytes(b->dtype);
    }
    if (is->op->type == SF_OP_ADAMW)
        SF_TRY(find_flat(ex, &call));
    if (is->op->type == SF_OP_LOAD_BATCH)
        call.first_sequence = first_sequence(ex, is);
    return ex->backend->issue(ex->machine, &call);
}

/* Issues the whole step. *full: an allocation was refused. */
static sf_status issue_step(sf_executor *ex, bool *full)
{
    sf_cursor cursor;
    sf_issue is;
    sf_status st = SF_SUCCESS;

    sf_cursor_start(&cursor, ex->cls);
    while (st.code == SF_OK && sf_cursor_next(&cursor, &is)) {
        switch (is.op->type) {
        case SF_OP_ALLOC:
        case SF_OP_FREE:
            if (!move_memory(ex, &is, &st)) {
                *full = true;
                return SF_SUCCESS;
            }
            break;
        case SF_OP_HOST_SYNC: st = ex->backend->sync(ex->machine); break;
        default: st = issue(ex, &is);
        }
    }
    return st;
}

/* The step's loss and time from all ranks' parts. */
static sf_status meet_ranks(sf_executor *ex, double wall_s, sf_step *out)
{
    struct {
        double sum, wall_s;
        uint64_t rows;
    } mine = { .wall_s = wall_s }, all[SF_COMM_MAX_RANKS];
    double sum = 0;
    uint64_t rows = 0;

    ex->backend->loss(ex->machine, &mine.sum, &mine.rows);
    SF_TRY(sf_comm_exchange(ex->setup.comm, &mine, sizeof mine, all));
    for (int r = 0; r < sf_comm_world(ex->setup.comm); r++) {
        sum += all[r].sum;
        rows += all[r].rows;
        out->step_s = all[r].wall_s > out->step_s ? all[r].wall_s : out->step_s;
    }
    out->loss = rows > 0 ? sum / (double)rows : 0;
    if (!isfinite(out->loss))
        return SF_FAIL(SF_ENUMERIC, "the loss of step %d is %s; lower the learning rate (--lr) or use a wider precision", ex->step,
                       isnan(out->loss) ? "not a number" : "infinite");
    return SF_SUCCESS;
}

sf_status sf_executor_step(sf_executor *ex, sf_step *out)
{
    bool full = false;

    *out = (sf_step){ 0 };
    ex->step++;
    ex->n_memory_line = 0;
    ex->allocs = 0;
    memset(ex->times, 0, sizeof *ex->times * ex->n_issued);
    if (learn_full(ex)) { /* another rank's device was full before this one began */
        out->out_of_memory = true;
        return SF_SUCCESS;
    }
    SF_TRY(sf_comm_stop_status(ex->setup.comm));
    ex->step_start_s = now_s();
    ex->backend->start(ex->machine);
    sf_status st = issue_step(ex, &full);
    out->issue_s = now_s() - ex->step_start_s;
    if (full)
        announce_full(ex);
    if (st.code != SF_OK)
        sf_comm_stop(ex->setup.comm, SF_STOP_FAILED, st.msg, NULL, 0);
    sf_status end = ex->backend->sync(ex->machine);
    double wall_s = now_s() - ex->step_start_s;
    if (st.code == SF_OK && end.code == SF_OK && !full) {
        st = meet_ranks(ex, wall_s, out);
        if (st.code == SF_OK)
            sf_executor_add_times(ex, out->step_s);
        if (st.code != SF_ECOMM)
            return st;
    }
    if (learn_full(ex)) {
        out->out_of_memory = true;
        return SF_SUCCESS;
    }
    return st.code != SF_OK ? st : end;
}
