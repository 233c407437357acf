/* The names of the lists in op.h and program.h. */
#include <string.h>

#include "model/program/program.h"

#define AS_NAME(id, name, ...) name,
static const char *const op_names[SF_OP_COUNT] = { SF_OPS(AS_NAME) };
static const char *const kind_names[SF_KIND_COUNT] = { SF_OP_KINDS(AS_NAME) };
static const char *const category_names[SF_CAT_COUNT] = { SF_CATEGORIES(AS_NAME) };
static const char *const stream_names[SF_STREAM_COUNT] = { SF_STREAMS(AS_NAME) };
static const char *const phase_names[SF_PHASE_COUNT] = { SF_PHASES(AS_NAME) };
static const char *const group_names[SF_GROUP_COUNT] = { SF_GROUPS(AS_NAME) };
#undef AS_NAME

#define AS_KIND(id, name, kind) SF_KIND_##kind,
static const sf_op_kind op_kinds[SF_OP_COUNT] = { SF_OPS(AS_KIND) };
#undef AS_KIND

const char *sf_op_name(sf_op_type type)
{
    return op_names[type];
}

sf_op_kind sf_op_kind_of(sf_op_type type)
{
    return op_kinds[type];
}

const char *sf_op_kind_name(sf_op_kind kind)
{
    return kind_names[kind];
}

sf_op_type sf_op_by_name(const char *name)
{
    int i = 0;
    while (i < SF_OP_COUNT && strcmp(op_names[i], name) != 0)
        i++;
    return (sf_op_type)i;
}

const char *sf_category_name(sf_category category)
{
    return category_names[category];
}

const char *sf_stream_name(sf_stream stream)
{
    return stream_names[stream];
}

const char *sf_phase_name(sf_phase phase)
{
    return phase_names[phase];
}

const char *sf_group_name(sf_group group)
{
    return group_names[group];
}

const sf_class *sf_program_class_of(const sf_program *program, int rank)
{
    for (int i = 0; i < program->n_classes; i++) {
        const sf_class *c = &program->classes[i];
        if (rank >= c->first_rank && rank < c->first_rank + c->n_ranks)
            return c;
    }
    return NULL;
}
