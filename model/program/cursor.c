#include "model/program/cursor.h"

#include <assert.h>

void sf_cursor_start(sf_cursor *cursor, const sf_class *cls)
{
    *cursor = (sf_cursor){ .cls = cls, .depth = 1 };
    cursor->stack[0].block = &cls->code;
}

static void set_loop(sf_cursor *cursor, const sf_node *repeat, int iteration)
{
    int value = repeat->from + iteration * repeat->step;
    if (repeat->loop == SF_LOOP_LAYER)
        cursor->layer = value;
    else
        cursor->micro = value;
}

static bool guard_open(const sf_op *op, int layer, int micro)
{
    return layer >= op->layer_lo && layer <= op->layer_hi && micro >= op->micro_lo && micro <= op->micro_hi;
}

static void resolve(const sf_cursor *cursor, const sf_op *op, sf_issue *out)
{
    out->op = op;
    out->layer = cursor->layer;
    out->micro = cursor->micro;
    out->event = op->event0 + op->event_layer * cursor->layer;
    out->accumulate = op->accumulate == SF_ACC_YES || (op->accumulate == SF_ACC_AFTER_FIRST_MICRO && cursor->micro > 0);
    for (int i = 0; i < op->n_args; i++) {
        const sf_arg *arg = &op->args[i];
        if (arg->buffer < 0) {
            out->at[i] = (sf_place){ .instance = -1, .buffer = -1 };
            continue;
        }
        const sf_buffer *buffer = &cursor->cls->buffers[arg->buffer];
        out->at[i].buffer = arg->buffer;
        out->at[i].instance = buffer->first + arg->index0 + arg->index_layer * cursor->layer;
        out->at[i].offset = arg->offset0 + (uint64_t)(arg->offset_layer * cursor->layer);
    }
}

bool sf_cursor_next(sf_cursor *cursor, sf_issue *out)
{
    while (cursor->depth > 0) {
        int top = cursor->depth - 1;
        const sf_block *block = cursor->stack[top].block;
        if (cursor->stack[top].next == block->count) {
            const sf_node *repeat = cursor->stack[top].repeat;
            if (repeat != NULL && ++cursor->stack[top].iteration < repeat->count) {
                cursor->stack[top].next = 0;
                set_loop(cursor, repeat, cursor->stack[top].iteration);
                continue;
            }
            if (repeat != NULL) { /* outside its loop a variable is 0 again */
                if (repeat->loop == SF_LOOP_LAYER)
                    cursor->layer = 0;
                else
                    cursor->micro = 0;
            }
            cursor->depth--;
            continue;
        }
        const sf_node *node = &block->nodes[cursor->stack[top].next++];
        if (node->type == SF_NODE_REPEAT) {
            if (node->count <= 0)
                continue;
            assert(cursor->depth < SF_CURSOR_DEPTH);
            cursor->stack[cursor->depth].block = &node->body;
            cursor->stack[cursor->depth].next = 0;
            cursor->stack[cursor->depth].repeat = node;
            cursor->stack[cursor->depth].iteration = 0;
            cursor->depth++;
            set_loop(cursor, node, 0);
            continue;
        }
        const sf_op *op = &cursor->cls->ops[node->op];
        if (!guard_open(op, cursor->layer, cursor->micro))
            continue;
        resolve(cursor, op, out);
        out->seq = cursor->seq++;
        return true;
    }
    return false;
}
