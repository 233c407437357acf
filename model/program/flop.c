#include "model/program/flop.h"

/* Forward ops inside backward are recomputation. */
static bool is_recompute(const sf_op *op)
{
    if (sf_op_kind_of(op->type) == SF_KIND_FRAME)
        return (op->kind & SF_FRAME_RECOMPUTE) != 0;
    return op->phase == SF_PHASE_BACKWARD && (op->type == SF_OP_LINEAR_FWD || op->type == SF_OP_ATTN_FWD);
}

uint64_t sf_op_useful_flop(const sf_op *op)
{
    if (is_recompute(op))
        return 0;
    /* a fused attention's backward has 5 products, of which one builds the scores again */
    return op->type == SF_OP_ATTN_BWD || op->type == SF_OP_F_SDPA_BWD ? op->flop / 5 * 4 : op->flop;
}

/* The values that a loop's variable takes; outside any loop it is 0, once. */
typedef struct {
    int from, count, step;
} range;

static uint64_t within(const range *r, int lo, int hi)
{
    uint64_t n = 0;
    if (lo <= r->from && hi >= r->from && lo <= r->from + (r->count - 1) * r->step && hi >= r->from + (r->count - 1) * r->step)
        return (uint64_t)r->count;
    for (int i = 0; i < r->count; i++) {
        int value = r->from + i * r->step;
        n += value >= lo && value <= hi;
    }
    return n;
}

static void add_block(const sf_class *cls, const sf_block *block, const range *layer, const range *micro, uint64_t *useful, uint64_t *all)
{
    for (size_t i = 0; i < block->count; i++) {
        const sf_node *node = &block->nodes[i];
        if (node->type == SF_NODE_REPEAT) {
            range r = { node->from, node->count, node->step };
            add_block(cls, &node->body, node->loop == SF_LOOP_LAYER ? &r : layer, node->loop == SF_LOOP_MICRO ? &r : micro, useful, all);
            continue;
        }
        const sf_op *op = &cls->ops[node->op];
        if (op->flop == 0)
            continue;
        uint64_t times = within(layer, op->layer_lo, op->layer_hi) * within(micro, op->micro_lo, op->micro_hi);
        *all += times * op->flop;
        *useful += times * sf_op_useful_flop(op);
    }
}

void sf_class_flop(const sf_class *cls, uint64_t *useful, uint64_t *all)
{
    const range once = { 0, 1, 1 };
    *useful = *all = 0;
    add_block(cls, &cls->code, &once, &once, useful, all);
}
