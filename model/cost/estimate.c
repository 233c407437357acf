#include "model/cost/estimate.h"

#include "model/program/flop.h"

/* What a piece of code does to device and host memory, seen from its start. */
typedef struct {
    int64_t live[SF_SPACE_COUNT], peak[SF_SPACE_COUNT];     /* at its end; highest inside (>= 0) */
    int64_t category[SF_CAT_COUNT], category_peak[SF_CAT_COUNT];
    int64_t at_peak[SF_CAT_COUNT];                          /* device categories at the peak     */
    int64_t phase_peak[SF_PHASE_COUNT];                     /* of the device, where known        */
    bool phase_seen[SF_PHASE_COUNT];
    sf_phase phase_of_peak;
    const char *op_of_peak;
} effect;

typedef struct {
    const sf_class *cls;
    sf_outcome *out;
    int layer, micro;
    uint64_t times; /* how often the code at hand is issued */
} walk;

static void run_block(walk *w, const sf_block *block, effect *e);

static void allocate(const sf_buffer *b, sf_phase phase, effect *e)
{
    int64_t bytes = (int64_t)sf_buffer_bytes(b);

    e->live[b->space] += bytes;
    if (b->space == SF_SPACE_HOST) {
        if (e->live[b->space] > e->peak[b->space])
            e->peak[b->space] = e->live[b->space];
        return;
    }
    e->category[b->category] += bytes;
    if (e->category[b->category] > e->category_peak[b->category])
        e->category_peak[b->category] = e->category[b->category];
    if (!e->phase_seen[phase] || e->live[b->space] > e->phase_peak[phase]) {
        e->phase_seen[phase] = true;
        e->phase_peak[phase] = e->live[b->space];
    }
    if (e->live[b->space] > e->peak[b->space]) {
        e->peak[b->space] = e->live[b->space];
        for (int c = 0; c < SF_CAT_COUNT; c++)
            e->at_peak[c] = e->category[c];
        e->phase_of_peak = phase;
        e->op_of_peak = b->name;
    }
}

static void release(const sf_buffer *b, effect *e)
{
    e->live[b->space] -= (int64_t)sf_buffer_bytes(b);
    if (b->space == SF_SPACE_DEVICE)
        e->category[b->category] -= (int64_t)sf_buffer_bytes(b);
}

/* `part` happens `times` in a row, starting where `e` is. */
static void append(effect *e, const effect *part, int64_t times)
{
    for (int at_end = 0; at_end < (times > 1 ? 2 : 1); at_end++) { /* the first and the last one */
        int64_t before = at_end ? times - 1 : 0;
        for (int s = 0; s < SF_SPACE_COUNT; s++) {
            int64_t peak = e->live[s] + before * part->live[s] + part->peak[s];
            if (part->peak[s] <= 0 || peak <= e->peak[s])
                continue;
            e->peak[s] = peak;
            if (s != SF_SPACE_DEVICE)
                continue;
            for (int c = 0; c < SF_CAT_COUNT; c++)
                e->at_peak[c] = e->category[c] + before * part->category[c] + part->at_peak[c];
            e->phase_of_peak = part->phase_of_peak;
            e->op_of_peak = part->op_of_peak;
        }
        for (int c = 0; c < SF_CAT_COUNT; c++) {
            int64_t peak = e->category[c] + before * part->category[c] + part->category_peak[c];
            if (part->category_peak[c] > 0 && peak > e->category_peak[c])
                e->category_peak[c] = peak;
        }
        for (int p = 0; p < SF_PHASE_COUNT; p++) {
            int64_t peak = e->live[SF_SPACE_DEVICE] + before * part->live[SF_SPACE_DEVICE] + part->phase_peak[p];
            if (part->phase_seen[p] && (!e->phase_seen[p] || peak > e->phase_peak[p])) {
                e->phase_seen[p] = true;
                e->phase_peak[p] = peak;
            }
        }
    }
    for (int s = 0; s < SF_SPACE_COUNT; s++)
        e->live[s] += times * part->live[s];
    for (int c = 0; c < SF_CAT_COUNT; c++)
        e->category[c] += times * part->category[c];
}

static bool in_guard(const sf_op *op, int layer, int micro)
{
    return layer >= op->layer_lo && layer <= op->layer_hi && micro >= op->micro_lo && micro <= op->micro_hi;
}

static void count_comm(const walk *w, const sf_op *op)
{
    int with = 0;
    while (op->args[with].buffer < 0)
        with++;
    sf_outcome_comm *row = sf_outcome_comm_row(w->out, op->type, op->group);
    row->calls += w->times;
    row->bytes_per_rank += w->times * (uint64_t)op->dims.n * sf_dtype_bytes(w->cls->buffers[op->args[with].buffer].dtype);
}

static void run_op(walk *w, const sf_op *op, effect *e)
{
    if (!in_guard(op, w->layer, w->micro))
        return;
    if (op->type == SF_OP_ALLOC) {
        allocate(&w->cls->buffers[op->args[0].buffer], op->phase, e);
    } else if (op->type == SF_OP_FREE) {
        release(&w->cls->buffers[op->args[0].buffer], e);
    } else {
        if (sf_op_kind_of(op->type) == SF_KIND_COMM)
            count_comm(w, op);
        w->out->hardware_flop += w->times * op->flop;
        w->out->model_flop += w->times * sf_op_useful_flop(op);
    }
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
    uint64_t outer = w->times;

    for (int done = 0; done < node->count;) {
        effect part = { .op_of_peak = NULL };
        *variable = node->from + done * node->step;
        int run = same_guards(w, &node->body, node->loop, *variable, node->step, node->count - done);
        w->times = outer * (uint64_t)run;
        run_block(w, &node->body, &part);
        append(e, &part, run);
        done += run;
    }
    w->times = outer;
    *variable = 0;
}

static void run_block(walk *w, const sf_block *block, effect *e)
{
    for (size_t i = 0; i < block->count; i++) {
        if (block->nodes[i].type == SF_NODE_REPEAT)
            run_repeat(w, &block->nodes[i], e);
        else
            run_op(w, &w->cls->ops[block->nodes[i].op], e);
    }
}

void sf_estimate_class(const sf_program *program, const sf_class *cls, uint64_t capacity_bytes, sf_outcome *out)
{
    walk w = { .cls = cls, .out = out, .times = 1 };
    effect e = { .op_of_peak = NULL };

    sf_outcome_init(out, "predicted");
    out->strategy = program->strategy;
    out->world_size = program->world_size;
    out->tokens_per_step = program->tokens_per_step;
    for (size_t i = 0; i < cls->n_buffers; i++)
        for (int k = 0; cls->buffers[i].persistent && k < cls->buffers[i].count; k++)
            allocate(&cls->buffers[i], SF_PHASE_FORWARD, &e);
    run_block(&w, &cls->code, &e);

    out->memory.capacity_bytes = capacity_bytes;
    out->memory.peak_allocated_bytes = out->memory.peak_reserved_bytes = out->memory.device_used_bytes = (uint64_t)e.peak[SF_SPACE_DEVICE];
    out->memory.host_bytes = (uint64_t)e.peak[SF_SPACE_HOST];
    out->memory.phase_of_peak = e.phase_of_peak;
    out->memory.op_of_peak = e.op_of_peak;
    for (int c = 0; c < SF_CAT_COUNT; c++) {
        out->memory.peak_bytes[c] = (uint64_t)e.category_peak[c];
        out->memory.at_peak[c] = (uint64_t)e.at_peak[c];
    }
    for (int p = 0; p < SF_PHASE_COUNT; p++)
        out->memory.phase_peak_bytes[p] = e.phase_seen[p] ? (uint64_t)e.phase_peak[p] : 0;
    out->fits = capacity_bytes == 0 || out->memory.peak_allocated_bytes <= capacity_bytes;
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
