#include "exec/host/ops_simd.h"

/* Per row: the maximum, then the exponentials and their sum, then the gradient. In float the
 * exponentials are kept in the row between the passes; in bf16 they would be rounded, so they are
 * computed again. */
SF_INLINE void xent_body(sf_dtype dt, size_t rows, size_t vocab, void *logits, const int32_t *targets, float scale,
                         float *loss)
{
    for (size_t r = 0; r < rows; r++) {
        void *row = at_mut(dt, logits, r * vocab);
        if (targets[r] == SF_IGNORE_TARGET) {
            memset(row, 0, vocab * sf_dtype_bytes(dt));
            loss[r] = 0;
            continue;
        }
        const size_t target = (size_t)targets[r];
        const float target_logit = load1(dt, row, target);
        sf_vf top = splat(-INFINITY);
        SF_EACH(i, k, vocab, { top = vmax(load_padded(dt, row, i, k, -INFINITY), top); });
        const float max = max_lanes(top);
        sf_vf sums = { 0 };
        SF_EACH(i, k, vocab, {
            sf_vf e = vexp(load_padded(dt, row, i, k, -INFINITY) - max);
            sums += e;
            if (dt == SF_F32)
                store(dt, row, i, k, e);
        });
        const float sum = sum_lanes(sums);
        const float factor = scale / sum;
        SF_EACH(i, k, vocab, {
            sf_vf x = load(dt, row, i, k);
            store(dt, row, i, k, (dt == SF_F32 ? x : vexp(x - max)) * factor);
        });
        /* p - 1 from the logit itself, so that it is rounded once. */
        const float p = expf(target_logit - max) / sum;
        store1(dt, row, target, (p - 1.0f) * scale);
        loss[r] = logf(sum) - (target_logit - max);
    }
}

static void xent(sf_dtype dt, size_t rows, size_t vocab, void *logits, const int32_t *targets, float scale, float *loss)
{
    SF_BY_DTYPE(dt, xent_body, rows, vocab, logits, targets, scale, loss);
}

void SF_ISA_NAME(sf_ops_fill_xent)(sf_host_ops *ops)
{
    ops->xent = xent;
}
