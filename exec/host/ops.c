#include "exec/host/ops.h"

#include <math.h>

#include "exec/host/ops_attn.h"
#include "exec/host/ops_gemm.h"
#include "model/base/units.h"

/* ---- variants, the plainest first ---- */

void sf_ops_fill_generic(sf_host_ops *ops);
static bool always(void)
{
    return true;
}

#ifdef SF_HAVE_AVX2
void sf_ops_fill_avx2(sf_host_ops *ops);
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#endif

static const struct {
    const char *name;
    bool (*runs_here)(void);
    void (*fill)(sf_host_ops *ops);
} variants[] = {
    { "generic", always, sf_ops_fill_generic },
#ifdef SF_HAVE_AVX2
    { "avx2", has_avx2, sf_ops_fill_avx2 },
#endif
};

bool sf_host_ops_variant(size_t i, sf_host_ops *ops)
{
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
        if (!variants[v].runs_here())
            continue;
        if (i-- == 0) {
            ops->name = variants[v].name;
            variants[v].fill(ops);
            return true;
        }
    }
    return false;
}

void sf_host_ops_init(sf_host_ops *ops)
{
    for (size_t i = 0; sf_host_ops_variant(i, ops); i++)
        ;
}

/* ---- scratch ---- */

size_t sf_host_embed_bwd_ws_bytes(size_t rows, size_t hidden)
{
    return hidden * sizeof(float) + 2 * rows * sizeof(uint32_t); /* one row's sum; two orders of the rows */
}

size_t sf_host_norm_bwd_ws_bytes(size_t hidden)
{
    return 2 * hidden * sizeof(float); /* sums of dweight and dbias */
}

size_t sf_host_linear_ws_bytes(sf_dtype dt, size_t rows, size_t in, size_t out)
{
    if (dt == SF_F32)
        return 0;
    /* The three products have the same three panels in different roles. */
    const size_t r = rows < SF_GEMM_PANEL ? rows : SF_GEMM_PANEL;
    const size_t i = in < SF_GEMM_PANEL ? in : SF_GEMM_PANEL;
    const size_t o = out < SF_GEMM_PANEL ? out : SF_GEMM_PANEL;
    return (r * i + i * o + r * o) * sizeof(float);
}

static float *take(char *ws, size_t *used_bytes, size_t count)
{
    float *p = ws == NULL ? NULL : (float *)(void *)(ws + *used_bytes);
    *used_bytes += sf_round_up(count * sizeof(float), 64);
    return p;
}

/* With ws NULL only the size is worked out. */
static size_t split_attn(sf_dtype dt, const sf_attn_dims *d, char *ws, sf_attn_ws *out)
{
    const size_t rows = d->seq_len < SF_ATTN_ROWS ? d->seq_len : SF_ATTN_ROWS;
    size_t used_bytes = 0;
    out->s = take(ws, &used_bytes, rows * d->seq_len);
    out->ds = take(ws, &used_bytes, rows * d->seq_len);
    if (dt == SF_F32)
        return used_bytes;
    out->q = take(ws, &used_bytes, rows * d->head_dim);
    out->o = take(ws, &used_bytes, rows * d->head_dim);
    out->dq = take(ws, &used_bytes, rows * d->head_dim);
    out->k = take(ws, &used_bytes, d->seq_len * d->head_dim);
    out->v = take(ws, &used_bytes, d->seq_len * d->head_dim);
    out->dk = take(ws, &used_bytes, d->seq_len * d->head_dim);
    out->dv = take(ws, &used_bytes, d->seq_len * d->head_dim);
    return used_bytes;
}

sf_attn_ws sf_attn_ws_split(sf_dtype dt, const sf_attn_dims *dims, void *ws)
{
    sf_attn_ws out = { 0 };
    split_attn(dt, dims, ws, &out);
    return out;
}

size_t sf_host_attn_ws_bytes(sf_dtype dt, const sf_attn_dims *dims)
{
    sf_attn_ws unused = { 0 };
    return split_attn(dt, dims, NULL, &unused);
}

/* ---- rotary table ---- */

size_t sf_host_rope_table_bytes(size_t seq_len, size_t rotary_dim)
{
    return seq_len * rotary_dim * sizeof(float);
}

void sf_host_rope_table(size_t seq_len, size_t rotary_dim, double theta, float *table)
{
    const size_t half = rotary_dim / 2;
    for (size_t i = 0; i < half; i++) {
        const double turns = pow(theta, -2.0 * (double)i / (double)rotary_dim);
        for (size_t t = 0; t < seq_len; t++) {
            table[t * rotary_dim + i] = (float)cos((double)t * turns);
            table[t * rotary_dim + half + i] = (float)sin((double)t * turns);
        }
    }
}
