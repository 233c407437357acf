#include "model/cost/estimate.h"

#include "model/cost/envelope.h"
#include "model/program/flop.h"

static void count_op(const sf_class *cls, const sf_op *op, uint64_t times, sf_outcome *out)
{
    if (times == 0)
        return;
    out->hardware_flop += times * op->flop;
    out->model_flop += times * sf_op_useful_flop(op);
    if (sf_op_kind_of(op->type) != SF_KIND_COMM)
        return;
    int with = 0;
    while (op->args[with].buffer < 0)
        with++;
    sf_outcome_comm *row = sf_outcome_comm_row(out, op->type, op->group);
    row->calls += times;
    row->bytes_per_rank += times * (uint64_t)op->dims.n * sf_dtype_bytes(cls->buffers[op->args[with].buffer].dtype);
}

void sf_estimate_class(const sf_program *program, const sf_class *cls, uint64_t capacity_bytes, sf_outcome *out)
{
    sf_arena scratch = { 0 };
    sf_envelope e;

    sf_envelope_make(cls, NULL, 0, &scratch, &e);
    sf_outcome_init(out, "predicted");
    out->strategy = program->strategy;
    out->world_size = program->world_size;
    out->tokens_per_step = program->tokens_per_step;
    for (size_t i = 0; i < cls->n_ops; i++)
        count_op(cls, &cls->ops[i], e.times[i], out);

    const sf_moment *peak = sf_moments_top(&e.device, 0);
    out->memory.capacity_bytes = capacity_bytes;
    out->memory.peak_allocated_bytes = peak == NULL ? 0 : (uint64_t)peak->total.at0;
    out->memory.peak_reserved_bytes = out->memory.device_used_bytes = out->memory.peak_allocated_bytes;
    out->memory.host_bytes = (uint64_t)sf_lines_top(&e.host, 0);
    out->memory.phase_of_peak = peak == NULL ? SF_PHASE_FORWARD : peak->phase;
    out->memory.op_of_peak = peak == NULL ? NULL : peak->op;
    for (int c = 0; c < SF_CAT_COUNT; c++) {
        out->memory.peak_bytes[c] = (uint64_t)sf_lines_top(&e.category[c], 0);
        out->memory.at_peak[c] = peak == NULL ? 0 : (uint64_t)peak->category[c].at0;
    }
    for (int p = 0; p < SF_PHASE_COUNT; p++)
        out->memory.phase_peak_bytes[p] = (uint64_t)sf_lines_top(&e.phase[p], 0);
    out->fits = capacity_bytes == 0 || out->memory.peak_allocated_bytes <= capacity_bytes;
    sf_arena_free(&scratch);
}

void sf_estimate(const sf_program *program, uint64_t capacity_bytes, sf_outcome *out)
{
    for (int i = 0; i < program->n_classes; i++) {
        sf_outcome one;
        sf_estimate_class(program, &program->classes[i], capacity_bytes, &one);
        if (i == 0 || one.memory.peak_allocated_bytes > out->memory.peak_allocated_bytes)
            *out = one;
    }
}
