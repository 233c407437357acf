/* exec/measure.c: from what an executor recorded to an outcome. */
#include <string.h>

#include "exec/executor_impl.h"
#include "model/program/timeline.h"

static size_t collect_spans(const sf_executor *ex, const sf_op_time *times, sf_arena *arena, sf_span_time **out)
{
    sf_span_time *spans = SF_NEW_ARRAY(arena, sf_span_time, ex->n_issued);
    sf_cursor cursor;
    sf_issue is;
    size_t n = 0;

    sf_cursor_start(&cursor, ex->cls);
    while (sf_cursor_next(&cursor, &is)) {
        sf_op_kind kind = sf_op_kind_of(is.op->type);
        const sf_op_time *t = &times[is.seq];
        if (kind == SF_KIND_MEM || kind == SF_KIND_SYNC || t->end_s <= 0)
            continue;
        spans[n++] = (sf_span_time){ .label = is.op->label, .type = is.op->type, .stream = is.op->stream, .phase = is.op->phase,
                                     .group = is.op->group, .rank = ex->rank, .layer = is.layer, .micro = is.micro, .seq = is.seq,
                                     .start_s = t->start_s, .end_s = t->end_s };
    }
    *out = spans;
    return n;
}

void sf_executor_add_times(sf_executor *ex, double step_s)
{
    sf_arena scratch = { 0 };
    sf_outcome one;
    sf_span_time *spans;
    size_t n = collect_spans(ex, ex->times, &scratch, &spans);

    sf_outcome_init(&one, "measured");
    sf_timeline_summarise(spans, n, &one);
    if (ex->timed == 0)
        memset(&ex->sum, 0, sizeof ex->sum);
    if (ex->timed == 0 || step_s < ex->best_step_s) {
        memcpy(ex->best_times, ex->times, ex->n_issued * sizeof *ex->times);
        ex->best_step_s = step_s;
    }
    ex->sum.time.step_s += step_s;
    ex->sum.time.exposed_comm_s += one.time.exposed_comm_s;
    ex->sum.time.idle_s += one.time.idle_s;
    for (int i = 0; i < SF_PHASE_COUNT; i++) {
        ex->sum.time.phase_s[i] += one.time.phase_s[i];
        ex->sum.time.busy_s[i] += one.time.busy_s[i];
    }
    for (int i = 0; i < SF_OP_COUNT; i++) {
        ex->sum.time.op_s[i] += one.time.op_s[i];
        ex->sum.time.op_calls[i] += one.time.op_calls[i];
    }
    for (int i = 0; i < SF_KIND_COUNT; i++)
        ex->sum.time.kind_s[i] += one.time.kind_s[i];
    for (size_t i = 0; i < one.n_comm; i++) {
        sf_outcome_comm *row = sf_outcome_comm_row(&ex->sum, one.comm[i].collective, one.comm[i].group);
        row->time_s += one.comm[i].time_s;
        row->exposed_s += one.comm[i].exposed_s;
    }
    ex->timed++;
    sf_arena_free(&scratch);
}

void sf_executor_reset_times(sf_executor *ex)
{
    ex->timed = 0;
    memset(&ex->sum, 0, sizeof ex->sum);
    sf_comm_count_reset(ex->setup.comm);
}

static void mean_times(const sf_executor *ex, sf_outcome *out)
{
    double n = ex->timed;

    out->time.step_s = ex->sum.time.step_s / n;
    out->time.exposed_comm_s = ex->sum.time.exposed_comm_s / n;
    out->time.idle_s = ex->sum.time.idle_s / n;
    for (int i = 0; i < SF_PHASE_COUNT; i++) {
        out->time.phase_s[i] = ex->sum.time.phase_s[i] / n;
        out->time.busy_s[i] = ex->sum.time.busy_s[i] / n;
    }
    for (int i = 0; i < SF_OP_COUNT; i++) {
        out->time.op_s[i] = ex->sum.time.op_s[i] / n;
        out->time.op_calls[i] = ex->sum.time.op_calls[i] / (uint64_t)ex->timed;
    }
    for (int i = 0; i < SF_KIND_COUNT; i++)
        out->time.kind_s[i] = ex->sum.time.kind_s[i] / n;
    out->time.bound_by = sf_timeline_bound_by(out);
}

static void comm_rows(const sf_executor *ex, sf_outcome *out)
{
    uint64_t n = (uint64_t)ex->timed;

    for (int op = 0; op < SF_OP_COUNT; op++)
        for (int g = 0; g < SF_GROUP_COUNT; g++) {
            const sf_comm_count *count = sf_comm_counted(ex->setup.comm, (sf_op_type)op, (sf_group)g);
            if (count->calls == 0)
                continue;
            sf_outcome_comm *row = sf_outcome_comm_row(out, (sf_op_type)op, (sf_group)g);
            row->calls = count->calls / n;
            row->bytes_per_rank = count->bytes / n;
        }
    for (size_t i = 0; i < ex->sum.n_comm; i++) {
        sf_outcome_comm *row = sf_outcome_comm_row(out, ex->sum.comm[i].collective, ex->sum.comm[i].group);
        row->time_s = ex->sum.comm[i].time_s / (double)n;
        row->exposed_s = ex->sum.comm[i].exposed_s / (double)n;
    }
}

void sf_executor_outcome(const sf_executor *ex, sf_arena *arena, sf_outcome *out)
{
    sf_outcome_init(out, "measured");
    out->strategy = ex->setup.program->strategy;
    out->world_size = ex->setup.program->world_size;
    out->tokens_per_step = ex->setup.program->tokens_per_step;
    sf_ledger_outcome(&ex->ledger, ex->plan.arena_bytes[SF_SPACE_DEVICE], arena, out);
    if (ex->backend->used != NULL && ex->machine != NULL)
        ex->backend->used(ex->machine, &out->memory.device_used_bytes);
    out->n_spans = collect_spans(ex, ex->timed > 0 ? ex->best_times : ex->times, arena, &out->spans);
    out->n_memory_line = ex->n_memory_line;
    out->memory_line = SF_NEW_ARRAY(arena, sf_memory_point, ex->n_memory_line);
    if (ex->n_memory_line > 0)
        memcpy(out->memory_line, ex->memory_line, ex->n_memory_line * sizeof *ex->memory_line);
    out->steps = ex->timed;
    if (ex->timed == 0)
        return;
    mean_times(ex, out);
    comm_rows(ex, out);
}
