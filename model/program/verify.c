#include "model/program/verify.h"

#include <inttypes.h>
#include <stdio.h>

#include "model/base/arena.h"
#include "model/program/order.h"

/* One access to elements lo .. hi - 1: complete when `done` ops of `stream` are. */
typedef struct {
    uint64_t lo, hi;
    sf_stream stream;
    int64_t done;
    bool write;
} access_record;

/* What is known of one buffer instance while the class is walked. */
typedef struct {
    bool alive, written;
    sf_clock born;          /* what the home stream had issued at ALLOC: its memory may serve that */
    sf_clock all;           /* complete when every access since ALLOC is                           */
    access_record *records; /* accesses that a later one may conflict with                         */
    size_t n_records, cap_records;
} instance_state;

typedef struct {
    const sf_class *cls;
    sf_order order;
    instance_state *state;
    sf_arena *arena;
} walk;

static void op_text(const walk *w, const sf_issue *is, char *out, size_t size)
{
    snprintf(out, size, "class %s: op %" PRIu64 " %s %s (layer %d, micro-step %d)", w->cls->name, is->seq,
             sf_op_name(is->op->type), is->op->label == NULL ? "" : is->op->label, is->layer, is->micro);
}

static sf_status check_span(const walk *w, const sf_issue *is, int i)
{
    const sf_arg *arg = &is->op->args[i];
    const sf_buffer *b = &w->cls->buffers[arg->buffer];
    int index = is->at[i].instance - b->first;
    char who[200];

    op_text(w, is, who, sizeof who);
    if (index < 0 || index >= b->count)
        return SF_FAIL(SF_EINVAL, "%s uses %s[%d], of which there are %d", who, b->name, index, b->count);
    if (is->at[i].offset > b->elems || arg->elems > b->elems - is->at[i].offset)
        return SF_FAIL(SF_EINVAL, "%s uses elements %" PRIu64 "..%" PRIu64 " of %s, which has %" PRIu64, who, is->at[i].offset,
                       is->at[i].offset + arg->elems, b->name, b->elems);
    return SF_SUCCESS;
}

static bool is_done(const walk *w, sf_stream stream, int64_t done, sf_stream before)
{
    return w->order.stream[before].done[stream] >= done;
}

/* May the op access this span now? Its own other arguments are not looked at. */
static sf_status check_access(const walk *w, const sf_issue *is, int i)
{
    const sf_arg *arg = &is->op->args[i];
    const sf_buffer *b = &w->cls->buffers[arg->buffer];
    const instance_state *state = &w->state[is->at[i].instance];
    sf_stream s = is->op->stream;
    int index = is->at[i].instance - b->first;
    uint64_t lo = is->at[i].offset, hi = lo + arg->elems;
    char who[200];

    op_text(w, is, who, sizeof who);
    if (!state->alive)
        return SF_FAIL(SF_EINVAL, "%s uses %s[%d] while it is not allocated", who, b->name, index);
    if ((arg->access & SF_READ) && !state->written && !b->persistent)
        return SF_FAIL(SF_EINVAL, "%s reads %s[%d], which nothing has written", who, b->name, index);
    if (!sf_order_before(&w->order, &state->born, s))
        return SF_FAIL(SF_EINVAL, "%s on stream %s is not ordered after the last write of what lay where %s[%d] was allocated", who,
                       sf_stream_name(s), b->name, index);
    for (size_t r = 0; r < state->n_records; r++) {
        const access_record *rec = &state->records[r];
        if (rec->hi <= lo || rec->lo >= hi || is_done(w, rec->stream, rec->done, s))
            continue;
        if (rec->write)
            return SF_FAIL(SF_EINVAL, "%s on stream %s is not ordered after the last write of %s[%d]", who, sf_stream_name(s), b->name, index);
        if (arg->access & SF_WRITE)
            return SF_FAIL(SF_EINVAL, "%s on stream %s writes %s[%d] while an earlier read may still run", who, sf_stream_name(s), b->name, index);
    }
    return SF_SUCCESS;
}

static void note_access(walk *w, const sf_issue *is, int i)
{
    const sf_arg *arg = &is->op->args[i];
    instance_state *state = &w->state[is->at[i].instance];
    sf_stream s = is->op->stream;
    int64_t mine = w->order.stream[s].done[s] + 1;
    bool write = (arg->access & SF_WRITE) != 0;
    access_record fresh = { .lo = is->at[i].offset, .hi = is->at[i].offset + arg->elems, .stream = s, .done = mine, .write = write };
    size_t kept = 0;

    state->written = state->written || write;
    if (mine > state->all.done[s])
        state->all.done[s] = mine;
    /* what the fresh record stands for as well is dropped: all it covers if it writes, else reads of its own stream */
    for (size_t r = 0; r < state->n_records; r++) {
        const access_record *rec = &state->records[r];
        bool covered = rec->lo >= fresh.lo && rec->hi <= fresh.hi && rec->done < mine;
        if (covered && (write ? is_done(w, rec->stream, rec->done, s) || rec->stream == s : !rec->write && rec->stream == s))
            continue;
        state->records[kept++] = *rec;
    }
    state->n_records = kept;
    SF_PUSH(w->arena, state->records, state->n_records, state->cap_records) = fresh;
}

static sf_status check_memory(walk *w, const sf_issue *is)
{
    const sf_buffer *b = &w->cls->buffers[is->op->args[0].buffer];
    instance_state *state = &w->state[is->at[0].instance];
    char who[200];

    op_text(w, is, who, sizeof who);
    if (b->persistent)
        return SF_FAIL(SF_EINVAL, "%s: %s is persistent", who, b->name);
    if (is->op->type == SF_OP_ALLOC) {
        if (state->alive)
            return SF_FAIL(SF_EINVAL, "%s: %s[%d] is allocated already", who, b->name, is->at[0].instance - b->first);
        state->alive = true;
        state->written = false;
        state->n_records = 0;
        state->born = state->all = w->order.stream[b->home];
        return SF_SUCCESS;
    }
    if (!state->alive)
        return SF_FAIL(SF_EINVAL, "%s: %s[%d] is not allocated", who, b->name, is->at[0].instance - b->first);
    if (!sf_order_before(&w->order, &state->all, b->home))
        return SF_FAIL(SF_EINVAL, "%s: %s[%d] is freed while an access on another stream than its home %s may still run", who,
                       b->name, is->at[0].instance - b->first, sf_stream_name(b->home));
    state->alive = false;
    return SF_SUCCESS;
}

/* Smallest and largest number of arguments of each op, as op.h lists them; -1: any. */
static void arg_range(sf_op_type type, int *least, int *most)
{
    static const struct {
        sf_op_type type;
        int least, most;
    } rows[] = {
        { SF_OP_ALLOC, 1, 1 },        { SF_OP_FREE, 1, 1 },         { SF_OP_RECORD, 0, 0 },       { SF_OP_WAIT, 0, 0 },
        { SF_OP_HOST_SYNC, 0, 0 },    { SF_OP_LOAD_BATCH, 2, 2 },   { SF_OP_EMBED_FWD, 4, 4 },    { SF_OP_NORM_FWD, 5, 5 },
        { SF_OP_LINEAR_FWD, 4, 4 },   { SF_OP_ROPE_FWD, 1, 1 },     { SF_OP_ATTN_FWD, 3, 3 },     { SF_OP_ACT_FWD, 2, 2 },
        { SF_OP_ADD, 3, 3 },          { SF_OP_XENT, 3, 3 },         { SF_OP_LINEAR_BWD_X, 3, 3 }, { SF_OP_LINEAR_BWD_W, 4, 4 },
        { SF_OP_NORM_BWD, 7, 7 },     { SF_OP_ROPE_BWD, 1, 1 },     { SF_OP_ATTN_BWD, 5, 5 },     { SF_OP_ACT_BWD, 3, 3 },
        { SF_OP_EMBED_BWD, 4, 4 },    { SF_OP_ACCUMULATE, 2, 2 },   { SF_OP_CAST, 2, 2 },         { SF_OP_COPY, 2, 2 },
        { SF_OP_ZERO, 1, 1 },         { SF_OP_SUMSQ, 2, 2 },        { SF_OP_ADAMW, 6, 6 },        { SF_OP_ALL_REDUCE, 1, 1 },
        { SF_OP_ALL_GATHER, 2, 2 },   { SF_OP_REDUCE_SCATTER, 2, 2 }, { SF_OP_BROADCAST, 1, 1 },  { SF_OP_REDUCE, 1, 1 },
        { SF_OP_SCATTER, 2, 2 },      { SF_OP_GATHER, 2, 2 },       { SF_OP_ALL_TO_ALL, 2, 2 },   { SF_OP_COPY_H2D, 2, 2 },
        { SF_OP_COPY_D2H, 2, 2 },
    };
    *least = 0;
    *most = SF_MAX_ARGS;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].type == type) {
            *least = rows[i].least;
            *most = rows[i].most;
        }
}

static sf_status walk_class(const sf_program *program, const sf_class *cls, sf_arena *arena)
{
    walk w = { .cls = cls, .arena = arena };
    sf_cursor cursor;
    sf_issue is;
    char who[200];

    (void)program;
    sf_order_start(&w.order, cls, arena);
    w.state = SF_NEW_ARRAY(arena, instance_state, cls->n_instances);
    for (size_t i = 0; i < cls->n_buffers; i++)
        for (int k = 0; k < cls->buffers[i].count; k++)
            w.state[cls->buffers[i].first + k].alive = cls->buffers[i].persistent;

    sf_cursor_start(&cursor, cls);
    while (sf_cursor_next(&cursor, &is)) {
        int least, most;
        arg_range(is.op->type, &least, &most);
        op_text(&w, &is, who, sizeof who);
        if (is.op->n_args < least || is.op->n_args > most)
            return SF_FAIL(SF_EINVAL, "%s has %d arguments, not %d to %d", who, is.op->n_args, least, most);
        for (int i = 0; i < is.op->n_args; i++)
            if (is.at[i].instance >= 0)
                SF_TRY(check_span(&w, &is, i));
        if (sf_op_kind_of(is.op->type) == SF_KIND_MEM) {
            SF_TRY(check_memory(&w, &is));
        } else {
            for (int i = 0; i < is.op->n_args; i++)
                if (is.at[i].instance >= 0)
                    SF_TRY(check_access(&w, &is, i));
            for (int i = 0; i < is.op->n_args; i++)
                if (is.at[i].instance >= 0)
                    note_access(&w, &is, i);
        }
        if (!sf_order_issue(&w.order, &is))
            return SF_FAIL(SF_EINVAL, "%s waits for event %d, which nothing has recorded", who, is.event);
    }
    for (size_t i = 0; i < cls->n_buffers; i++)
        for (int k = 0; k < cls->buffers[i].count; k++)
            if (!cls->buffers[i].persistent && w.state[cls->buffers[i].first + k].alive)
                return SF_FAIL(SF_EINVAL, "class %s: %s[%d] is never freed", cls->name, cls->buffers[i].name, k);
    return SF_SUCCESS;
}

static bool next_collective(sf_cursor *cursor, sf_issue *out)
{
    while (sf_cursor_next(cursor, out))
        if (sf_op_kind_of(out->op->type) == SF_KIND_COMM)
            return true;
    return false;
}

/* A collective hangs or corrupts unless every rank of its group issues it in the same place. */
static sf_status compare_collectives(const sf_class *a, const sf_class *b)
{
    sf_cursor ca, cb;
    sf_issue ia, ib;
    sf_cursor_start(&ca, a);
    sf_cursor_start(&cb, b);
    for (int nth = 0;; nth++) {
        bool more_a = next_collective(&ca, &ia), more_b = next_collective(&cb, &ib);
        if (!more_a && !more_b)
            return SF_SUCCESS;
        if (more_a != more_b)
            return SF_FAIL(SF_EINVAL, "classes %s and %s: only %s has a collective number %d (%s)", a->name, b->name,
                           more_a ? a->name : b->name, nth, sf_op_name(more_a ? ia.op->type : ib.op->type));
        if (ia.op->type != ib.op->type || ia.op->dims.n != ib.op->dims.n || ia.op->group != ib.op->group)
            return SF_FAIL(SF_EINVAL, "classes %s and %s differ in collective number %d: %s of %" PRId64 " and %s of %" PRId64 " elements",
                           a->name, b->name, nth, sf_op_name(ia.op->type), ia.op->dims.n, sf_op_name(ib.op->type), ib.op->dims.n);
    }
}

sf_status sf_program_verify(const sf_program *program)
{
    sf_status st = SF_SUCCESS;
    int ranks = 0;

    for (int i = 0; i < program->n_classes && st.code == SF_OK; i++) {
        sf_arena scratch = { 0 };
        st = walk_class(program, &program->classes[i], &scratch);
        sf_arena_free(&scratch);
        ranks += program->classes[i].n_ranks;
        if (st.code == SF_OK && i > 0)
            st = compare_collectives(&program->classes[0], &program->classes[i]);
    }
    if (st.code == SF_OK && ranks != program->world_size)
        return SF_FAIL(SF_EINVAL, "the classes have %d ranks together, not world_size %d", ranks, program->world_size);
    return st;
}
