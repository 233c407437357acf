#include "model/cost/profile.h"

#include <math.h>
#include <stdlib.h>

/* ---- interpolation ---- */

double sf_curve_at(const sf_curve *c, double x)
{
    if (c->n == 0)
        return 0;
    if (x <= c->x[0] || c->n == 1)
        return x <= c->x[0] ? c->s[0] : c->s[0] * x / c->x[0];
    int last = c->n - 1;
    if (x >= c->x[last])
        return c->s[last] * x / c->x[last];
    int i = 1;
    while (c->x[i] < x)
        i++;
    double t = log(x / c->x[i - 1]) / log(c->x[i] / c->x[i - 1]);
    return c->s[i - 1] * pow(c->s[i] / c->s[i - 1], t);
}

/* The cell of a grid axis and the place in it, 0..1. */
static int cell_of(const double *axis, int n, double x, double *t)
{
    *t = 0;
    if (n == 1 || x <= axis[0])
        return 0;
    int i = 0;
    while (i + 2 < n && x > axis[i + 1])
        i++;
    *t = log(x / axis[i]) / log(axis[i + 1] / axis[i]);
    if (*t > 1)
        *t = 1;
    return i;
}

double sf_gemm_grid_at(const sf_gemm_grid *g, double m, double n, double k)
{
    double t[3], rate = 0;

    if (g->n_m == 0)
        return 0;
    int at[3] = { cell_of(g->m, g->n_m, m, &t[0]), cell_of(g->n, g->n_n, n, &t[1]), cell_of(g->k, g->n_k, k, &t[2]) };
    for (int corner = 0; corner < 8; corner++) {
        double weight = 1;
        int index[3];
        for (int d = 0; d < 3; d++) {
            bool upper = (corner >> d & 1) != 0;
            index[d] = at[d] + (upper && t[d] > 0 ? 1 : 0);
            weight *= upper ? t[d] : 1 - t[d];
        }
        if (weight > 0)
            rate += weight / g->flops_per_s[index[0]][index[1]][index[2]]; /* times add, rates do not */
    }
    return 1 / rate;
}

/* ---- sets ---- */

const sf_profile_set *sf_profile_set_of(const sf_profile *profile, int ranks, bool threads)
{
    const sf_profile_set *best = NULL;
    double best_distance = INFINITY;

    for (int i = 0; i < profile->n_sets; i++) {
        const sf_profile_set *set = &profile->sets[i];
        /* the other kind of ranks counts as far away: right kernels, other collectives */
        double distance = fabs(log((double)set->ranks / ranks)) + (set->threads != threads && ranks > 1 ? 100 : 0);
        if (distance < best_distance) {
            best = set;
            best_distance = distance;
        }
    }
    return best;
}

/* ---- ops ---- */

static int dtype_index(const sf_class *cls, const sf_op *op, int arg)
{
    while (arg < op->n_args && op->args[arg].buffer < 0)
        arg++;
    return arg < op->n_args && cls->buffers[op->args[arg].buffer].dtype == SF_BF16 ? 1 : 0;
}

static const sf_curve *kernel_curve(const sf_profile_set *set, int dtype, sf_op_type type)
{
    const sf_curve *c = &set->kernel[dtype][type];
    return c->n > 0 ? c : &set->kernel[1 - dtype][type];
}

static double kernel_s(const sf_profile_set *set, int dtype, sf_op_type type, double elements)
{
    const sf_curve *c = kernel_curve(set, dtype, type);
    if (c->n == 0)
        c = kernel_curve(set, dtype, SF_OP_COPY);
    return sf_curve_at(c, elements);
}

static double gemm_s(const sf_profile_set *set, int dtype, const sf_op *op)
{
    const sf_gemm_grid *grid = &set->gemm[dtype][op->type == SF_OP_LINEAR_FWD ? 0 : op->type == SF_OP_LINEAR_BWD_X ? 1 : 2];
    double m = (double)op->dims.m, n = (double)op->dims.n, k = (double)op->dims.k;
    double rate = sf_gemm_grid_at(grid, m, n, k);
    return rate > 0 ? 2 * m * n * k / rate : 0;
}

static double attention_s(const sf_profile_set *set, int dtype, const sf_op *op)
{
    const sf_attention_curves *best = NULL;
    double sequences = (double)op->dims.m / op->dims.seq;

    for (int i = 0; i < set->n_head_dims; i++) {
        const sf_attention_curves *a = &set->attention[dtype][i];
        if (best == NULL || fabs(log((double)a->head_dim / op->dims.head_dim)) < fabs(log((double)best->head_dim / op->dims.head_dim)))
            best = a;
    }
    if (best == NULL)
        return 0;
    const sf_curve *c = op->type == SF_OP_ATTN_FWD ? &best->forward : &best->backward;
    double s = sf_curve_at(c, op->dims.seq);
    if (op->dims.seq > c->x[c->n - 1])
        s *= op->dims.seq / c->x[c->n - 1]; /* work grows with the square */
    return s * sequences * op->dims.heads * op->dims.head_dim / best->head_dim;
}

static const sf_collective_curves *collective_of(const sf_profile_set *set, const sf_class *cls, const sf_op *op, double *bytes)
{
    int arg = op->args[0].buffer >= 0 ? 0 : 1, dtype = dtype_index(cls, op, arg);

    *bytes = (double)op->dims.n * (double)sf_dtype_bytes(cls->buffers[op->args[arg].buffer].dtype);
    return &set->collective[set->collective[dtype][op->type].time.n > 0 ? dtype : 0][op->type];
}

/* Elements of a kernel: rows times columns, or the length of a vector. */
static double elements_of(const sf_op *op)
{
    if (op->type == SF_OP_ADAMW)
        return (double)op->args[1].elems;
    if (op->type == SF_OP_LOAD_BATCH)
        return (double)op->args[0].elems;
    return (double)op->dims.n * (op->dims.m > 0 ? (double)op->dims.m : 1);
}

double sf_profile_op_time_s(const sf_profile_set *set, const sf_class *cls, const sf_issue *issue)
{
    const sf_op *op = issue->op;
    int dtype = dtype_index(cls, op, 0);
    double bytes;

    switch (sf_op_kind_of(op->type)) {
    case SF_KIND_MEM:
    case SF_KIND_SYNC: return 0;
    case SF_KIND_GEMM: return gemm_s(set, dtype, op);
    case SF_KIND_ATTN: return attention_s(set, dtype, op);
    case SF_KIND_COMM: {
        const sf_collective_curves *c = collective_of(set, cls, op, &bytes);
        return sf_curve_at(&c->time, bytes);
    }
    default: break;
    }
    if (op->type == SF_OP_EMBED_FWD)
        dtype = dtype_index(cls, op, 1);
    /* on a host both of its memories are one */
    bool away = (op->type == SF_OP_COPY_H2D || op->type == SF_OP_COPY_D2H) && set->kernel[0][op->type].n == 0;
    double s = kernel_s(set, dtype, away ? SF_OP_COPY : op->type, elements_of(op));
    if (op->type == SF_OP_EMBED_BWD && op->kind != 1 && !issue->accumulate) /* the whole table is cleared first */
        s += kernel_s(set, dtype, SF_OP_ZERO, (double)op->dims.k * (double)op->dims.n);
    return s;
}

double sf_profile_op_cores(const sf_profile_set *set, const sf_class *cls, const sf_issue *issue)
{
    if (sf_op_kind_of(issue->op->type) != SF_KIND_COMM)
        return 1;
    double bytes;
    const sf_collective_curves *c = collective_of(set, cls, issue->op, &bytes);
    double time = sf_curve_at(&c->time, bytes);
    double share = time > 0 ? sf_curve_at(&c->cpu, bytes) / time : 1;
    return share < 1 ? share : 1;
}

bool sf_profile_has(const sf_profile_set *set, sf_op_type type)
{
    switch (sf_op_kind_of(type)) {
    case SF_KIND_MEM:
    case SF_KIND_SYNC: return true;
    case SF_KIND_GEMM: return set->gemm[0][0].n_m > 0;
    case SF_KIND_ATTN: return set->n_head_dims > 0;
    case SF_KIND_COMM: return set->ranks == 1 || set->collective[0][type].time.n > 0;
    default: return set->kernel[0][type].n > 0 || set->kernel[1][type].n > 0;
    }
}

const char *sf_profile_default_path(sf_arena *arena)
{
    const char *path = getenv("SHARDFIT_PROFILE"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

    if (path != NULL && path[0] != '\0')
        return sf_arena_strdup(arena, path);
    if (cache != NULL && cache[0] != '\0')
        return sf_arena_printf(arena, "%s/shardfit/profile.json", cache);
    return sf_arena_printf(arena, "%s/.cache/shardfit/profile.json", home != NULL && home[0] != '\0' ? home : "/tmp");
}
