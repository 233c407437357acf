#include "model/program/print.h"

#include <inttypes.h>
#include <limits.h>

#include "model/base/units.h"
#include "model/program/cursor.h"

static void print_affine(int64_t base, int64_t per_layer, sf_text *out)
{
    if (per_layer == 0)
        sf_text_add(out, "%" PRId64, base);
    else if (per_layer == 1)
        sf_text_add(out, base == 0 ? "layer" : "layer%+" PRId64, base);
    else
        sf_text_add(out, base == 0 ? "%" PRId64 "*layer" : "%" PRId64 "*layer%+" PRId64, per_layer, base);
}

static void print_arg(const sf_class *cls, const sf_arg *arg, sf_text *out)
{
    static const char *const marks[] = { "", "", ">", "*" }; /* written, read and written */
    if (arg->buffer < 0) {
        sf_text_add(out, " -");
        return;
    }
    const sf_buffer *b = &cls->buffers[arg->buffer];
    sf_text_add(out, " %s%s", marks[arg->access], b->name);
    if (b->count > 1) {
        sf_text_add(out, "[");
        print_affine(arg->index0, arg->index_layer, out);
        sf_text_add(out, "]");
    }
    if (arg->elems != b->elems || arg->offset0 != 0 || arg->offset_layer != 0) {
        sf_text_add(out, "(");
        print_affine((int64_t)arg->offset0, arg->offset_layer, out);
        sf_text_add(out, "+%" PRIu64 ")", arg->elems);
    }
}

static void print_guard(const char *what, int lo, int hi, sf_text *out)
{
    if (lo == INT_MIN && hi == INT_MAX)
        return;
    if (lo == INT_MIN)
        sf_text_add(out, "  when %s <= %d", what, hi);
    else if (hi == INT_MAX)
        sf_text_add(out, "  when %s >= %d", what, lo);
    else if (lo == hi)
        sf_text_add(out, "  when %s = %d", what, lo);
    else
        sf_text_add(out, "  when %s %d..%d", what, lo, hi);
}

static uint64_t comm_bytes(const sf_class *cls, const sf_op *op)
{
    for (int i = 0; i < op->n_args; i++)
        if (op->args[i].buffer >= 0)
            return (uint64_t)op->dims.n * sf_dtype_bytes(cls->buffers[op->args[i].buffer].dtype);
    return 0;
}

static void print_op(const sf_class *cls, int number, const sf_op *op, int indent, sf_text *out)
{
    sf_text_add(out, "%*s%d %s %s", indent, "", number, sf_stream_name(op->stream), sf_op_name(op->type));
    if (op->label != NULL && op->type != SF_OP_ALLOC && op->type != SF_OP_FREE)
        sf_text_add(out, " %s", op->label);
    if (op->type == SF_OP_RECORD || op->type == SF_OP_WAIT) {
        sf_text_add(out, " event ");
        print_affine(op->event0, op->event_layer, out);
    }
    for (int i = 0; i < op->n_args; i++)
        print_arg(cls, &op->args[i], out);
    switch (sf_op_kind_of(op->type)) {
    case SF_KIND_GEMM:
        sf_text_add(out, "  m %" PRId64 " n %" PRId64 " k %" PRId64, op->dims.m, op->dims.n, op->dims.k);
        break;
    case SF_KIND_COMM:
        sf_text_add(out, "  %s %s", sf_group_name(op->group), sf_bytes_text(comm_bytes(cls, op)).text);
        break;
    default:
        break;
    }
    if (op->accumulate != SF_ACC_NO)
        sf_text_add(out, op->accumulate == SF_ACC_YES ? "  adds" : "  adds after the first micro-step");
    print_guard("layer", op->layer_lo, op->layer_hi, out);
    print_guard("micro", op->micro_lo, op->micro_hi, out);
    sf_text_add(out, "\n");
}

static void print_block(const sf_class *cls, const sf_block *block, int indent, sf_text *out)
{
    for (size_t i = 0; i < block->count; i++) {
        const sf_node *node = &block->nodes[i];
        if (node->type == SF_NODE_OP) {
            print_op(cls, node->op, &cls->ops[node->op], indent, out);
            continue;
        }
        sf_text_add(out, "%*srepeat %s %d..%d\n", indent, "", node->loop == SF_LOOP_LAYER ? "layer" : "micro", node->from,
                    node->from + (node->count - 1) * node->step);
        print_block(cls, &node->body, indent + 2, out);
    }
}

static void print_class(const sf_class *cls, sf_text *out)
{
    if (cls->n_ranks == 1)
        sf_text_add(out, "class %s: rank %d\n", cls->name, cls->first_rank);
    else
        sf_text_add(out, "class %s: ranks %d..%d\n", cls->name, cls->first_rank, cls->first_rank + cls->n_ranks - 1);
    for (size_t i = 0; i < cls->n_buffers; i++) {
        const sf_buffer *b = &cls->buffers[i];
        sf_text_add(out, "  %s %s", b->persistent ? "keeps" : "buffer", b->name);
        if (b->count > 1)
            sf_text_add(out, " %d x", b->count);
        sf_text_add(out, " %" PRIu64 " %s = %s  %s", b->elems, sf_dtype_name(b->dtype), sf_bytes_text(sf_buffer_bytes(b)).text,
                    sf_category_name(b->category));
        if (b->space == SF_SPACE_HOST)
            sf_text_add(out, "  in host memory");
        if (b->home != SF_STREAM_COMPUTE && !b->persistent)
            sf_text_add(out, "  home %s", sf_stream_name(b->home));
        if (b->sharded)
            sf_text_add(out, "  the rank's slice");
        sf_text_add(out, "\n");
    }
    print_block(cls, &cls->code, 2, out);
}

void sf_program_print(const sf_program *program, sf_text *out)
{
    sf_text_add(out, "program %s: %d rank%s, %d layers, %d micro-step%s\n", program->strategy, program->world_size,
                program->world_size == 1 ? "" : "s", program->n_layers, program->n_micro, program->n_micro == 1 ? "" : "s");
    for (int i = 0; i < program->n_classes; i++)
        print_class(&program->classes[i], out);
}

void sf_program_print_issued(const sf_class *cls, uint64_t most, sf_text *out)
{
    sf_cursor cursor;
    sf_issue is;
    sf_cursor_start(&cursor, cls);
    while (sf_cursor_next(&cursor, &is) && (most == 0 || is.seq < most)) {
        sf_text_add(out, "%" PRIu64 " %s %s %s", is.seq, sf_stream_name(is.op->stream), sf_op_name(is.op->type),
                    is.op->label == NULL ? "" : is.op->label);
        for (int i = 0; i < is.op->n_args; i++) {
            if (is.at[i].instance < 0)
                continue;
            const sf_buffer *b = &cls->buffers[is.at[i].buffer];
            sf_text_add(out, " %s[%d]", b->name, is.at[i].instance - b->first);
        }
        if (is.op->type == SF_OP_RECORD || is.op->type == SF_OP_WAIT)
            sf_text_add(out, " event %d", is.event);
        sf_text_add(out, "\n");
    }
}
