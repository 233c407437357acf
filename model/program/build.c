#include "model/program/build.h"

#include <assert.h>
#include <limits.h>

#include "model/base/units.h"

void sf_build_start(sf_builder *b, sf_arena *arena, sf_class *cls)
{
    *b = (sf_builder){ .arena = arena, .cls = cls, .depth = 1 };
    b->open[0] = &cls->code;
}

int sf_build_buffer(sf_builder *b, sf_buffer proto)
{
    sf_class *cls = b->cls;
    assert(proto.count >= 1);
    if (proto.binding == SF_BIND_NONE)
        proto.flat = -1;
    proto.first = cls->n_instances;
    cls->n_instances += proto.count;
    SF_PUSH(b->arena, cls->buffers, cls->n_buffers, cls->cap_buffers) = proto;
    return (int)cls->n_buffers - 1;
}

int sf_build_flat(sf_builder *b, const char *name)
{
    sf_class *cls = b->cls;
    SF_PUSH(b->arena, cls->flats, cls->n_flats, cls->cap_flats) = (sf_flat){ .name = name };
    return (int)cls->n_flats - 1;
}

void sf_build_flat_add(sf_builder *b, int flat, int tensor, uint64_t numel, bool decay)
{
    sf_flat *f = &b->cls->flats[flat];
    SF_PUSH(b->arena, f->tensors, f->n_tensors, f->cap_tensors) =
        (sf_flat_tensor){ .tensor = tensor, .offset = f->elems, .numel = numel, .decay = decay };
    f->elems += numel;
    f->padded = f->elems;
}

void sf_build_flat_pad(sf_builder *b, int flat, uint64_t multiple)
{
    sf_flat *f = &b->cls->flats[flat];
    f->padded = sf_round_up(f->elems, multiple);
}

int sf_build_events(sf_builder *b, int count)
{
    int first = b->cls->n_events;
    b->cls->n_events += count;
    return first;
}

sf_arg sf_none(void)
{
    return (sf_arg){ .buffer = -1 };
}

sf_arg sf_whole_at(const sf_builder *b, int buffer, int index0, int index_layer, sf_access access)
{
    return (sf_arg){ .buffer = buffer, .index0 = index0, .index_layer = index_layer,
                     .elems = b->cls->buffers[buffer].elems, .access = access };
}

sf_arg sf_whole(const sf_builder *b, int buffer, sf_access access)
{
    return sf_whole_at(b, buffer, 0, 0, access);
}

sf_arg sf_span_at(int buffer, int index0, int index_layer, uint64_t offset, uint64_t elems, sf_access access)
{
    return (sf_arg){ .buffer = buffer, .index0 = index0, .index_layer = index_layer, .offset0 = offset,
                     .elems = elems, .access = access };
}

sf_arg sf_span(int buffer, uint64_t offset, uint64_t elems, sf_access access)
{
    return sf_span_at(buffer, 0, 0, offset, elems, access);
}

void sf_build_repeat(sf_builder *b, sf_loop loop, int from, int count, int step)
{
    sf_block *outer = b->open[b->depth - 1];
    assert(b->depth < SF_MAX_ARGS);
    SF_PUSH(b->arena, outer->nodes, outer->count, outer->cap) =
        (sf_node){ .type = SF_NODE_REPEAT, .loop = loop, .from = from, .count = count, .step = step };
    b->open[b->depth++] = &outer->nodes[outer->count - 1].body;
}

void sf_build_end(sf_builder *b)
{
    assert(b->depth > 1);
    b->depth--;
}

sf_op *sf_build_op(sf_builder *b, sf_op_type type, sf_stream stream, const char *label, int n_args, const sf_arg *args)
{
    sf_class *cls = b->cls;
    sf_block *block = b->open[b->depth - 1];
    assert(n_args <= SF_MAX_ARGS);

    SF_PUSH(b->arena, block->nodes, block->count, block->cap) = (sf_node){ .type = SF_NODE_OP, .op = (int)cls->n_ops };
    SF_PUSH(b->arena, cls->ops, cls->n_ops, cls->cap_ops) = (sf_op){
        .type = type, .stream = stream, .phase = b->phase, .label = label, .n_args = n_args, .scale = 1.0,
        .layer_lo = INT_MIN, .layer_hi = INT_MAX, .micro_lo = INT_MIN, .micro_hi = INT_MAX,
    };
    sf_op *op = &cls->ops[cls->n_ops - 1];
    for (int i = 0; i < n_args; i++)
        op->args[i] = args[i];
    return op;
}

static sf_op *memory_op(sf_builder *b, sf_op_type type, int buffer, int index0, int index_layer)
{
    const sf_buffer *family = &b->cls->buffers[buffer];
    assert(!family->persistent);
    sf_arg arg = sf_whole_at(b, buffer, index0, index_layer, SF_WRITE);
    return sf_build_op(b, type, family->home, family->name, 1, &arg);
}

sf_op *sf_build_alloc(sf_builder *b, int buffer, int index0, int index_layer)
{
    return memory_op(b, SF_OP_ALLOC, buffer, index0, index_layer);
}

sf_op *sf_build_free(sf_builder *b, int buffer, int index0, int index_layer)
{
    return memory_op(b, SF_OP_FREE, buffer, index0, index_layer);
}

static sf_op *event_op(sf_builder *b, sf_op_type type, sf_stream stream, int event0, int event_layer)
{
    sf_op *op = sf_build_op(b, type, stream, NULL, 0, NULL);
    op->event0 = event0;
    op->event_layer = event_layer;
    return op;
}

sf_op *sf_build_record(sf_builder *b, sf_stream stream, int event0, int event_layer)
{
    return event_op(b, SF_OP_RECORD, stream, event0, event_layer);
}

sf_op *sf_build_wait(sf_builder *b, sf_stream stream, int event0, int event_layer)
{
    return event_op(b, SF_OP_WAIT, stream, event0, event_layer);
}

void sf_build_join(sf_builder *b, sf_stream earlier, sf_stream later)
{
    int event = sf_build_events(b, 1);
    sf_build_record(b, earlier, event, 0);
    sf_build_wait(b, later, event, 0);
}
