#include "exec/host/ops_simd.h"

SF_INLINE void embed_fwd_body(sf_dtype dt, size_t rows, size_t seq_len, size_t hidden, const int32_t *tokens,
                              const void *wte, const void *wpe, void *out)
{
    for (size_t r = 0; r < rows; r++) {
        const void *token = at(dt, wte, (size_t)tokens[r] * hidden);
        void *y = at_mut(dt, out, r * hidden);
        if (wpe == NULL) {
            memcpy(y, token, hidden * sf_dtype_bytes(dt));
            continue;
        }
        const void *position = at(dt, wpe, r % seq_len * hidden);
        SF_EACH(i, k, hidden, { store(dt, y, i, k, load(dt, token, i, k) + load(dt, position, i, k)); });
    }
}

static void embed_fwd(sf_dtype dt, size_t rows, size_t seq_len, size_t hidden, const int32_t *tokens, const void *wte,
                      const void *wpe, void *out)
{
    SF_BY_DTYPE(dt, embed_fwd_body, rows, seq_len, hidden, tokens, wte, wpe, out);
}

/* Rows 0 .. rows-1 ordered by their token, rows of one token in their order: four counting passes
 * over the token's bytes. `order` and `other` are (rows). */
static void order_by_token(size_t rows, const int32_t *tokens, uint32_t *order, uint32_t *other)
{
    for (size_t r = 0; r < rows; r++)
        order[r] = (uint32_t)r;
    for (int shift = 0; shift < 32; shift += 8) {
        size_t start[257] = { 0 };
        for (size_t r = 0; r < rows; r++)
            start[(((uint32_t)tokens[r] >> shift) & 0xff) + 1]++;
        for (int b = 0; b < 256; b++)
            start[b + 1] += start[b];
        for (size_t r = 0; r < rows; r++)
            other[start[((uint32_t)tokens[order[r]] >> shift) & 0xff]++] = order[r];
        uint32_t *swap = order;
        order = other;
        other = swap;
    }
}

/* sum += the row `row` of x; sum (hidden) float. */
SF_INLINE void add_row(sf_dtype dt, size_t hidden, const void *x, size_t row, float *sum)
{
    const void *xr = at(dt, x, row * hidden);
    SF_EACH(i, k, hidden, { store_f32(sum + i, k, load_f32(sum + i, k) + load(dt, xr, i, k)); });
}

/* Row `row` of y += sum, rounded once; then sum = 0. */
SF_INLINE void flush_row(sf_dtype dt, size_t hidden, float *sum, bool accumulate, void *y, size_t row)
{
    void *yr = at_mut(dt, y, row * hidden);
    SF_EACH(i, k, hidden, {
        sf_vf s = load_f32(sum + i, k);
        store(dt, yr, i, k, accumulate ? load(dt, yr, i, k) + s : s);
        store_f32(sum + i, k, (sf_vf){ 0 });
    });
}

/* The rows of one token are summed in float before they are added to its row of dwte, so that bf16
 * rounds once however often the token occurs. */
SF_INLINE void embed_bwd_body(sf_dtype dt, size_t rows, size_t seq_len, size_t hidden, size_t vocab,
                              const int32_t *tokens, const void *dout, bool accumulate_wte, void *dwte,
                              bool accumulate_wpe, void *dwpe, void *ws)
{
    float *sum = ws;
    uint32_t *order = (uint32_t *)(sum + hidden), *other = order + rows;
    memset(sum, 0, hidden * sizeof *sum);
    if (!accumulate_wte)
        memset(dwte, 0, vocab * hidden * sf_dtype_bytes(dt));
    order_by_token(rows, tokens, order, other); /* an even number of passes: the result is in `order` */
    for (size_t r = 0; r < rows; r++) {
        const int32_t token = tokens[order[r]];
        add_row(dt, hidden, dout, order[r], sum);
        if (r + 1 == rows || tokens[order[r + 1]] != token)
            flush_row(dt, hidden, sum, true, dwte, (size_t)token);
    }
    if (dwpe == NULL)
        return;
    for (size_t t = 0; t < seq_len && t < rows; t++) {
        for (size_t r = t; r < rows; r += seq_len)
            add_row(dt, hidden, dout, r, sum);
        flush_row(dt, hidden, sum, accumulate_wpe, dwpe, t);
    }
}

static void embed_bwd(sf_dtype dt, size_t rows, size_t seq_len, size_t hidden, size_t vocab, const int32_t *tokens,
                      const void *dout, bool accumulate_wte, void *dwte, bool accumulate_wpe, void *dwpe, void *ws)
{
    SF_BY_DTYPE(dt, embed_bwd_body, rows, seq_len, hidden, vocab, tokens, dout, accumulate_wte, dwte, accumulate_wpe,
                dwpe, ws);
}

/* Turns each pair (a, b) by its position's angle: (a cos - b sin, b cos + a sin); with sign -1 back. */
SF_INLINE void rope_body(sf_dtype dt, const sf_attn_dims *d, size_t rotary_dim, const float *table, void *qkv,
                         float sign)
{
    const size_t half = rotary_dim / 2;
    const size_t turned = d->heads + d->kv_heads, width = (d->heads + 2 * d->kv_heads) * d->head_dim;
    for (size_t r = 0; r < d->micro_batch * d->seq_len; r++) {
        const float *cosine = table + r % d->seq_len * rotary_dim, *sine = cosine + half;
        for (size_t h = 0; h < turned; h++) {
            void *lo = at_mut(dt, qkv, r * width + h * d->head_dim), *hi = at_mut(dt, lo, half);
            SF_EACH(i, k, half, {
                sf_vf a = load(dt, lo, i, k);
                sf_vf b = load(dt, hi, i, k);
                sf_vf c = load_f32(cosine + i, k);
                sf_vf s = load_f32(sine + i, k) * sign;
                store(dt, lo, i, k, a * c - b * s);
                store(dt, hi, i, k, b * c + a * s);
            });
        }
    }
}

static void rope_fwd(sf_dtype dt, const sf_attn_dims *dims, size_t rotary_dim, const float *table, void *qkv)
{
    SF_BY_DTYPE(dt, rope_body, dims, rotary_dim, table, qkv, 1.0f);
}

static void rope_bwd(sf_dtype dt, const sf_attn_dims *dims, size_t rotary_dim, const float *table, void *dqkv)
{
    SF_BY_DTYPE(dt, rope_body, dims, rotary_dim, table, dqkv, -1.0f);
}

void SF_ISA_NAME(sf_ops_fill_embed)(sf_host_ops *ops)
{
    ops->embed_fwd = embed_fwd;
    ops->embed_bwd = embed_bwd;
    ops->rope_fwd = rope_fwd;
    ops->rope_bwd = rope_bwd;
}
