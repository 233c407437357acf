#include "model/cost/accountant.h"

#include "model/base/units.h"
#include "model/program/cursor.h"
#include "model/program/flop.h"

typedef struct {
    uint64_t live[SF_SPACE_COUNT], peak[SF_SPACE_COUNT];
    uint64_t category[SF_CAT_COUNT]; /* live on the device */
    sf_outcome *out;
    uint64_t capacity;
} ledger;

static void add(ledger *l, const sf_buffer *b, uint64_t seq, sf_phase phase)
{
    sf_outcome *out = l->out;
    uint64_t bytes = sf_buffer_bytes(b);

    l->live[b->space] += bytes;
    if (b->space == SF_SPACE_HOST) {
        if (l->live[b->space] > l->peak[b->space])
            l->peak[b->space] = l->live[b->space];
        return;
    }
    if (l->capacity > 0 && l->live[b->space] > l->capacity && out->memory.oom_request_bytes == 0) {
        out->memory.oom_request_bytes = bytes;
        out->memory.oom_op = b->name;
        out->memory.oom_seq = seq;
        out->memory.oom_resident_bytes = l->live[b->space] - bytes;
    }
    l->category[b->category] += bytes;
    if (l->category[b->category] > out->memory.peak_bytes[b->category])
        out->memory.peak_bytes[b->category] = l->category[b->category];
    if (l->live[b->space] > out->memory.phase_peak_bytes[phase])
        out->memory.phase_peak_bytes[phase] = l->live[b->space];
    if (l->live[b->space] > l->peak[b->space]) {
        l->peak[b->space] = l->live[b->space];
        for (int c = 0; c < SF_CAT_COUNT; c++)
            out->memory.at_peak[c] = l->category[c];
        out->memory.phase_of_peak = phase;
        out->memory.op_of_peak = b->name;
        out->memory.seq_of_peak = seq;
    }
}

static void subtract(ledger *l, const sf_buffer *b)
{
    l->live[b->space] -= sf_buffer_bytes(b);
    if (b->space == SF_SPACE_DEVICE)
        l->category[b->category] -= sf_buffer_bytes(b);
}

static void count_comm(const sf_class *cls, const sf_op *op, sf_outcome *out)
{
    int with = 0;
    while (op->args[with].buffer < 0)
        with++;
    sf_outcome_comm *row = sf_outcome_comm_row(out, op->type, op->group);
    row->calls++;
    row->bytes_per_rank += (uint64_t)op->dims.n * sf_dtype_bytes(cls->buffers[op->args[with].buffer].dtype);
}

void sf_account_class(const sf_program *program, const sf_class *cls, uint64_t capacity_bytes, sf_arena *arena, sf_outcome *out)
{
    ledger l = { .out = out, .capacity = capacity_bytes };
    sf_cursor cursor;
    sf_issue is;
    size_t cap_line = 0;

    sf_outcome_init(out, "predicted");
    out->strategy = program->strategy;
    out->world_size = program->world_size;
    out->tokens_per_step = program->tokens_per_step;
    out->memory.capacity_bytes = capacity_bytes;
    for (size_t i = 0; i < cls->n_buffers; i++)
        for (int k = 0; cls->buffers[i].persistent && k < cls->buffers[i].count; k++)
            add(&l, &cls->buffers[i], 0, SF_PHASE_FORWARD);
    SF_PUSH(arena, out->memory_line, out->n_memory_line, cap_line) = (sf_memory_point){ .bytes = l.live[SF_SPACE_DEVICE], .time_s = -1 };

    sf_cursor_start(&cursor, cls);
    while (sf_cursor_next(&cursor, &is)) {
        if (is.op->type == SF_OP_ALLOC || is.op->type == SF_OP_FREE) {
            const sf_buffer *b = &cls->buffers[is.at[0].buffer];
            if (is.op->type == SF_OP_ALLOC)
                add(&l, b, is.seq, is.op->phase);
            else
                subtract(&l, b);
            SF_PUSH(arena, out->memory_line, out->n_memory_line, cap_line) =
                (sf_memory_point){ .seq = is.seq, .bytes = l.live[SF_SPACE_DEVICE], .time_s = -1 };
        } else if (sf_op_kind_of(is.op->type) == SF_KIND_COMM) {
            count_comm(cls, is.op, out);
        }
    }
    sf_class_flop(cls, &out->model_flop, &out->hardware_flop);
    out->memory.peak_allocated_bytes = l.peak[SF_SPACE_DEVICE];
    out->memory.peak_reserved_bytes = l.peak[SF_SPACE_DEVICE];
    out->memory.device_used_bytes = l.peak[SF_SPACE_DEVICE];
    out->memory.host_bytes = l.peak[SF_SPACE_HOST];
    out->fits = out->memory.oom_request_bytes == 0;
    if (!out->fits)
        out->verdict = sf_arena_printf(arena, "does not fit: %s for %s in %s, with %s of %s in use", sf_bytes_text(out->memory.oom_request_bytes).text,
                                       out->memory.oom_op, out->memory.oom_seq == 0 ? "load" : sf_phase_name(out->memory.phase_of_peak),
                                       sf_bytes_text(out->memory.oom_resident_bytes).text, sf_bytes_text(capacity_bytes).text);
    else if (capacity_bytes > 0)
        out->verdict = sf_arena_printf(arena, "fits with %s to spare", sf_bytes_text(capacity_bytes - l.peak[SF_SPACE_DEVICE]).text);
}

void sf_account(const sf_program *program, uint64_t capacity_bytes, sf_arena *arena, sf_outcome *out)
{
    for (int i = 0; i < program->n_classes; i++) {
        sf_outcome one;
        sf_account_class(program, &program->classes[i], capacity_bytes, arena, &one);
        if (i == 0 || one.memory.peak_allocated_bytes > out->memory.peak_allocated_bytes)
            *out = one;
    }
}
