/* model/program/build.h: writes a program, op by op. A lowering reads like the training loop it
 * stands for.
 *
 * Usage errors (a loop closed twice, too many arguments) are programming errors: assert.
 */
#ifndef SF_PROGRAM_BUILD_H
#define SF_PROGRAM_BUILD_H

#include "model/base/arena.h"
#include "model/program/program.h"

typedef struct {
    sf_arena *arena;
    sf_class *cls;
    sf_block *open[SF_MAX_ARGS]; /* blocks being written, outermost first */
    int depth;
    int layer_loops;             /* depth of layer loops: affine references allowed */
    sf_phase phase;              /* stamped on the ops that follow                  */
} sf_builder;

void sf_build_start(sf_builder *b, sf_arena *arena, sf_class *cls);

/* ---- buffers ---- */
/* Returns the family's index. `proto` holds name, category, space, dtype, elems, count, home,
 * persistent, and for bound ones flat, binding, sharded (flat = -1 otherwise). */
int sf_build_buffer(sf_builder *b, sf_buffer proto);
int sf_build_flat(sf_builder *b, const char *name); /* consecutive calls give consecutive indices */
void sf_build_flat_add(sf_builder *b, int flat, int tensor, uint64_t numel, bool decay);
void sf_build_flat_pad(sf_builder *b, int flat, uint64_t multiple);
int sf_build_events(sf_builder *b, int count); /* first of `count` consecutive events */

/* ---- arguments ---- */
sf_arg sf_none(void);
sf_arg sf_whole(const sf_builder *b, int buffer, sf_access access);                   /* instance 0, all of it */
sf_arg sf_whole_at(const sf_builder *b, int buffer, int index0, int index_layer, sf_access access);
sf_arg sf_span(int buffer, uint64_t offset, uint64_t elems, sf_access access);        /* part of instance 0    */
sf_arg sf_span_at(int buffer, int index0, int index_layer, uint64_t offset, uint64_t elems, sf_access access);

/* ---- code ---- */
void sf_build_repeat(sf_builder *b, sf_loop loop, int from, int count, int step);
void sf_build_end(sf_builder *b);

/* Appends an op and returns it, to be completed in place (valid until the next append). Guards
 * are open, scale 1, phase the builder's; n_args from the arguments given. */
sf_op *sf_build_op(sf_builder *b, sf_op_type type, sf_stream stream, const char *label, int n_args, const sf_arg *args);
#define SF_ARGS(...) (int)(sizeof((sf_arg[]){ __VA_ARGS__ }) / sizeof(sf_arg)), (const sf_arg[]){ __VA_ARGS__ }

sf_op *sf_build_alloc(sf_builder *b, int buffer, int index0, int index_layer);
sf_op *sf_build_free(sf_builder *b, int buffer, int index0, int index_layer);
sf_op *sf_build_record(sf_builder *b, sf_stream stream, int event0, int event_layer);
sf_op *sf_build_wait(sf_builder *b, sf_stream stream, int event0, int event_layer);

/* `later` waits on `earlier`: record + wait of a fresh event, where nothing is in between. */
void sf_build_join(sf_builder *b, sf_stream earlier, sf_stream later);

#endif
