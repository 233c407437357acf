#include "model/cost/envelope.h"

/* What a piece of code does to memory, seen from its start. */
typedef struct {
    sf_line live[SF_SPACE_COUNT], category[SF_CAT_COUNT]; /* at its end */
    sf_envelope top;
} effect;

typedef struct {
    const sf_class *cls;
    const int64_t *growth;
    int64_t range;
    sf_arena *arena;
    uint64_t *times;
    uint64_t multiplier; /* how often the code at hand is issued */
    int layer, micro;
} walk;

static void run_block(walk *w, const sf_block *block, effect *e);

/* ---- lines ---- */

static sf_line plus(sf_line a, sf_line b, int64_t times)
{
    return (sf_line){ a.at0 + times * b.at0, a.per_unit + times * b.per_unit };
}

/* `a` is nowhere lower than `b`: lines are compared at both ends. */
static bool covers(const sf_line *a, const sf_line *b, int64_t range)
{
    return a->at0 >= b->at0 && sf_line_at(a, range) >= sf_line_at(b, range);
}

static bool above(const sf_line *a, const sf_line *b, int64_t range)
{
    return a->at0 > b->at0 && sf_line_at(a, range) > sf_line_at(b, range);
}

static void offer_line(const walk *w, sf_lines *lines, sf_line candidate)
{
    size_t kept = 0;
    for (size_t i = 0; i < lines->count; i++)
        if (covers(&lines->items[i], &candidate, w->range))
            return;
    for (size_t i = 0; i < lines->count; i++)
        if (!above(&candidate, &lines->items[i], w->range))
            lines->items[kept++] = lines->items[i];
    lines->count = kept;
    SF_PUSH(w->arena, lines->items, lines->count, lines->cap) = candidate;
}

/* Room for a moment whose total is `candidate`; NULL: another is as high everywhere. */
static sf_moment *offer_moment(const walk *w, sf_moments *moments, const sf_line *candidate)
{
    size_t kept = 0;
    for (size_t i = 0; i < moments->count; i++)
        if (covers(&moments->items[i].total, candidate, w->range))
            return NULL;
    for (size_t i = 0; i < moments->count; i++)
        if (!above(candidate, &moments->items[i].total, w->range))
            moments->items[kept++] = moments->items[i];
    moments->count = kept;
    return &SF_PUSH(w->arena, moments->items, moments->count, moments->cap);
}

int64_t sf_lines_top(const sf_lines *lines, int64_t dx)
{
    int64_t top = 0;
    for (size_t i = 0; i < lines->count; i++) {
        int64_t value = sf_line_at(&lines->items[i], dx);
        top = value > top ? value : top;
    }
    return top;
}

const sf_moment *sf_moments_top(const sf_moments *moments, int64_t dx)
{
    const sf_moment *top = NULL;
    int64_t highest = 0;
    for (size_t i = 0; i < moments->count; i++) {
        int64_t value = sf_line_at(&moments->items[i].total, dx);
        if (value > highest) {
            highest = value;
            top = &moments->items[i];
        }
    }
    return top;
}

/* ---- allocations ---- */

static sf_line bytes_of(const walk *w, int buffer)
{
    const sf_buffer *b = &w->cls->buffers[buffer];
    int64_t size = (int64_t)sf_dtype_bytes(b->dtype);
    return (sf_line){ (int64_t)b->elems * size, w->growth == NULL ? 0 : w->growth[buffer] * size };
}

static void allocate(const walk *w, int buffer, sf_phase phase, effect *e)
{
    const sf_buffer *b = &w->cls->buffers[buffer];
    sf_line bytes = bytes_of(w, buffer), *live = &e->live[b->space];

    *live = plus(*live, bytes, 1);
    if (b->space == SF_SPACE_HOST) {
        offer_line(w, &e->top.host, *live);
        return;
    }
    e->category[b->category] = plus(e->category[b->category], bytes, 1);
    offer_line(w, &e->top.category[b->category], e->category[b->category]);
    offer_line(w, &e->top.phase[phase], *live);
    sf_moment *m = offer_moment(w, &e->top.device, live);
    if (m == NULL)
        return;
    *m = (sf_moment){ .total = *live, .phase = phase, .op = b->name };
    for (int c = 0; c < SF_CAT_COUNT; c++)
        m->category[c] = e->category[c];
}

static void release(const walk *w, int buffer, effect *e)
{
    const sf_buffer *b = &w->cls->buffers[buffer];
    sf_line bytes = bytes_of(w, buffer);

    e->live[b->space] = plus(e->live[b->space], bytes, -1);
    if (b->space == SF_SPACE_DEVICE)
        e->category[b->category] = plus(e->category[b->category], bytes, -1);
}

/* ---- loops ---- */

static void offer_shifted(const walk *w, sf_lines *to, sf_line base, sf_line per_iteration, int64_t before, const sf_lines *from)
{
    base = plus(base, per_iteration, before);
    for (size_t i = 0; i < from->count; i++)
        offer_line(w, to, plus(base, from->items[i], 1));
}

/* `part` happens `times` in a row, starting where `e` is. */
static void append(const walk *w, effect *e, const effect *part, int64_t times)
{
    const sf_line *live = e->live, *change = part->live;

    for (int at_end = 0; at_end < (times > 1 ? 2 : 1); at_end++) { /* the first and the last one */
        int64_t before = at_end ? times - 1 : 0;
        offer_shifted(w, &e->top.host, live[SF_SPACE_HOST], change[SF_SPACE_HOST], before, &part->top.host);
        for (int p = 0; p < SF_PHASE_COUNT; p++)
            offer_shifted(w, &e->top.phase[p], live[SF_SPACE_DEVICE], change[SF_SPACE_DEVICE], before, &part->top.phase[p]);
        for (int c = 0; c < SF_CAT_COUNT; c++)
            offer_shifted(w, &e->top.category[c], e->category[c], part->category[c], before, &part->top.category[c]);
        for (size_t i = 0; i < part->top.device.count; i++) {
            const sf_moment *from = &part->top.device.items[i];
            sf_line total = plus(plus(live[SF_SPACE_DEVICE], change[SF_SPACE_DEVICE], before), from->total, 1);
            sf_moment *m = offer_moment(w, &e->top.device, &total);
            if (m == NULL)
                continue;
            *m = (sf_moment){ .total = total, .phase = from->phase, .op = from->op };
            for (int c = 0; c < SF_CAT_COUNT; c++)
                m->category[c] = plus(plus(e->category[c], part->category[c], before), from->category[c], 1);
        }
    }
    for (int s = 0; s < SF_SPACE_COUNT; s++)
        e->live[s] = plus(e->live[s], part->live[s], times);
    for (int c = 0; c < SF_CAT_COUNT; c++)
        e->category[c] = plus(e->category[c], part->category[c], times);
}

static bool in_guard(const sf_op *op, int layer, int micro)
{
    return layer >= op->layer_lo && layer <= op->layer_hi && micro >= op->micro_lo && micro <= op->micro_hi;
}

static void run_op(walk *w, int index, effect *e)
{
    const sf_op *op = &w->cls->ops[index];
    if (!in_guard(op, w->layer, w->micro))
        return;
    w->times[index] += w->multiplier;
    if (op->type == SF_OP_ALLOC)
        allocate(w, op->args[0].buffer, op->phase, e);
    else if (op->type == SF_OP_FREE)
        release(w, op->args[0].buffer, e);
}

/* How many iterations from `value` on have the same guards open, at most `left`. */
static int same_guards(const walk *w, const sf_block *block, sf_loop loop, int value, int step, int left)
{
    int run = left;
    for (size_t i = 0; i < block->count; i++) {
        const sf_node *node = &block->nodes[i];
        if (node->type == SF_NODE_REPEAT) {
            int inner = same_guards(w, &node->body, loop, value, step, left);
            run = inner < run ? inner : run;
            continue;
        }
        const sf_op *op = &w->cls->ops[node->op];
        int lo = loop == SF_LOOP_LAYER ? op->layer_lo : op->micro_lo, hi = loop == SF_LOOP_LAYER ? op->layer_hi : op->micro_hi;
        bool open = value >= lo && value <= hi;
        /* the first iteration in which the guard has changed */
        int64_t until = left;
        if (step > 0)
            until = open ? (int64_t)hi - value + 1 : value < lo ? (int64_t)lo - value : left;
        else
            until = open ? (int64_t)value - lo + 1 : value > hi ? (int64_t)value - hi : left;
        int64_t pace = step > 0 ? step : -step;
        until = (until + pace - 1) / pace;
        if (until > 0 && until < run)
            run = (int)until;
    }
    return run;
}

static void run_repeat(walk *w, const sf_node *node, effect *e)
{
    int *variable = node->loop == SF_LOOP_LAYER ? &w->layer : &w->micro;
    uint64_t outer = w->multiplier;

    for (int done = 0; done < node->count;) {
        effect part = { .live = { { 0, 0 } } };
        *variable = node->from + done * node->step;
        int run = same_guards(w, &node->body, node->loop, *variable, node->step, node->count - done);
        w->multiplier = outer * (uint64_t)run;
        run_block(w, &node->body, &part);
        append(w, e, &part, run);
        done += run;
    }
    w->multiplier = outer;
    *variable = 0;
}

static void run_block(walk *w, const sf_block *block, effect *e)
{
    for (size_t i = 0; i < block->count; i++) {
        if (block->nodes[i].type == SF_NODE_REPEAT)
            run_repeat(w, &block->nodes[i], e);
        else
            run_op(w, block->nodes[i].op, e);
    }
}

void sf_envelope_make(const sf_class *cls, const int64_t *growth, int64_t range, sf_arena *arena, sf_envelope *out)
{
    walk w = { .cls = cls, .growth = growth, .range = range, .arena = arena, .multiplier = 1 };
    effect e = { .live = { { 0, 0 } } };

    w.times = SF_NEW_ARRAY(arena, uint64_t, cls->n_ops);
    for (size_t i = 0; i < cls->n_buffers; i++)
        for (int k = 0; cls->buffers[i].persistent && k < cls->buffers[i].count; k++)
            allocate(&w, (int)i, SF_PHASE_FORWARD, &e);
    run_block(&w, &cls->code, &e);
    *out = e.top;
    out->times = w.times;
}
