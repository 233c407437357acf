#include "model/program/flop.h"

#include "model/program/cursor.h"

/* Forward ops inside backward are recomputation. */
static bool is_recompute(const sf_op *op)
{
    return op->phase == SF_PHASE_BACKWARD && (op->type == SF_OP_LINEAR_FWD || op->type == SF_OP_ATTN_FWD);
}

uint64_t sf_op_useful_flop(const sf_op *op)
{
    if (is_recompute(op))
        return 0;
    /* a fused attention's backward has 5 products, of which one builds the scores again */
    return op->type == SF_OP_ATTN_BWD ? op->flop / 5 * 4 : op->flop;
}

void sf_class_flop(const sf_class *cls, uint64_t *useful, uint64_t *all)
{
    sf_cursor cursor;
    sf_issue is;
    *useful = *all = 0;
    sf_cursor_start(&cursor, cls);
    while (sf_cursor_next(&cursor, &is)) {
        *all += is.op->flop;
        *useful += sf_op_useful_flop(is.op);
    }
}
