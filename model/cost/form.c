#include "model/cost/form.h"

#include <string.h>

#include "model/base/text.h"
#include "model/cost/envelope.h"
#include "model/program/flop.h"

enum { MOST_SAMPLES = 8, MOST_COMM = 24 };

/* c + b_ * (b - b0) + g_ * (g - g0) + bg * (b - b0) (g - g0) */
typedef struct {
    int64_t c, b_, g_, bg;
} bilinear;

typedef struct {
    sf_op_type collective;
    sf_group group;
    bilinear calls, bytes;
} comm_form;

typedef struct {
    sf_envelope memory;
    bilinear model_flop, hardware_flop;
    comm_form comm[MOST_COMM];
    int n_comm;
    double stream_s[2][MOST_SAMPLES][SF_STREAM_COUNT]; /* at g0 and g1, at the sampled b */
} class_form;

typedef struct {
    int64_t b0, b1, g0, g1;
    int64_t sample[MOST_SAMPLES]; /* ascending, b0 first, b1 last */
    int n_samples;
    int n_classes;
    class_form *classes;
    bilinear tokens;
} piece;

struct sf_form {
    const char *strategy;
    int world_size;
    piece *pieces;
    size_t n_pieces, cap_pieces;
    size_t lowerings;
};

typedef struct {
    const sf_form_source *source;
    sf_arena *arena;
    sf_arena *scratch; /* of the programs of one piece */
    sf_form *form;
} maker;

/* ---- is one program another one with other sizes? ---- */

static bool same_block(const sf_block *a, const sf_block *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++) {
        const sf_node *x = &a->nodes[i], *y = &b->nodes[i];
        if (x->type != y->type)
            return false;
        if (x->type == SF_NODE_OP ? x->op != y->op
                                  : x->loop != y->loop || x->from != y->from || x->count != y->count || x->step != y->step || !same_block(&x->body, &y->body))
            return false;
    }
    return true;
}

static bool same_op(const sf_op *a, const sf_op *b)
{
    if (a->type != b->type || a->stream != b->stream || a->phase != b->phase || a->n_args != b->n_args || a->group != b->group)
        return false;
    for (int i = 0; i < a->n_args; i++)
        if (a->args[i].buffer != b->args[i].buffer)
            return false;
    return a->layer_lo == b->layer_lo && a->layer_hi == b->layer_hi && a->micro_lo == b->micro_lo && a->micro_hi == b->micro_hi;
}

static bool same_text(const sf_class *a, const sf_class *b)
{
    if (a->n_buffers != b->n_buffers || a->n_ops != b->n_ops || !same_block(&a->code, &b->code))
        return false;
    for (size_t i = 0; i < a->n_buffers; i++) {
        const sf_buffer *x = &a->buffers[i], *y = &b->buffers[i];
        if (x->category != y->category || x->space != y->space || x->dtype != y->dtype || x->count != y->count || x->persistent != y->persistent)
            return false;
    }
    for (size_t i = 0; i < a->n_ops; i++)
        if (!same_op(&a->ops[i], &b->ops[i]))
            return false;
    return true;
}

/* `x` lies on the line through `first` with `slope`, `dx` further on. */
static bool on_line(uint64_t x, uint64_t first, int64_t slope, int64_t dx)
{
    return (int64_t)x == (int64_t)first + slope * dx;
}

/* ---- one row of points: the same g, the sampled b ---- */

typedef struct {
    int64_t *elems;                /* per buffer                    */
    int64_t *flop, *useful, *n;    /* per op                        */
} growth;

typedef struct {
    const sf_program *program[MOST_SAMPLES];
    growth *of;                    /* per class                     */
    int64_t tokens;                /* per unit of b                 */
} point_row;

static void grow_class(const sf_class *at0, const sf_class *at1, int64_t dx, sf_arena *arena, growth *out)
{
    out->elems = SF_NEW_ARRAY(arena, int64_t, at0->n_buffers);
    out->flop = SF_NEW_ARRAY(arena, int64_t, at0->n_ops);
    out->useful = SF_NEW_ARRAY(arena, int64_t, at0->n_ops);
    out->n = SF_NEW_ARRAY(arena, int64_t, at0->n_ops);
    if (dx == 0)
        return;
    for (size_t i = 0; i < at0->n_buffers; i++)
        out->elems[i] = ((int64_t)at1->buffers[i].elems - (int64_t)at0->buffers[i].elems) / dx;
    for (size_t i = 0; i < at0->n_ops; i++) {
        out->flop[i] = ((int64_t)at1->ops[i].flop - (int64_t)at0->ops[i].flop) / dx;
        out->useful[i] = ((int64_t)sf_op_useful_flop(&at1->ops[i]) - (int64_t)sf_op_useful_flop(&at0->ops[i])) / dx;
        out->n[i] = (at1->ops[i].dims.n - at0->ops[i].dims.n) / dx;
    }
}

static bool is_linear(const sf_class *at0, const sf_class *at, const growth *g, int64_t dx)
{
    for (size_t i = 0; i < at0->n_buffers; i++)
        if (!on_line(at->buffers[i].elems, at0->buffers[i].elems, g->elems[i], dx))
            return false;
    for (size_t i = 0; i < at0->n_ops; i++) {
        const sf_op *a = &at0->ops[i], *b = &at->ops[i];
        if (!on_line(b->flop, a->flop, g->flop[i], dx) || !on_line(sf_op_useful_flop(b), sf_op_useful_flop(a), g->useful[i], dx))
            return false;
        if (sf_op_kind_of(a->type) == SF_KIND_COMM && b->dims.n != a->dims.n + g->n[i] * dx)
            return false;
    }
    return true;
}

static sf_status lower_row(const maker *m, const int64_t *sample, int n, int64_t g, sf_arena *scratch, point_row *out)
{
    for (int i = 0; i < n; i++) {
        SF_TRY(m->source->lower(m->source->ctx, sample[i], g, scratch, &out->program[i]));
        m->form->lowerings++;
    }
    return SF_SUCCESS;
}

/* How many of the n programs from number `lo` on are one program with linear sizes; also its growth. */
static int linear_run(const int64_t *sample, int lo, int n, sf_arena *scratch, point_row *row)
{
    const sf_program *first = row->program[lo];
    int64_t dx = n > 1 ? sample[lo + 1] - sample[lo] : 0;
    const sf_program *second = row->program[lo + (n > 1)];
    int run = 1;

    for (int k = 1; k < n; k++, run++) {
        const sf_program *p = row->program[lo + k];
        bool same = p->n_classes == first->n_classes;
        for (int c = 0; same && c < first->n_classes; c++)
            same = same_text(&first->classes[c], &p->classes[c]);
        if (!same)
            break;
        if (k == 1) {
            row->of = SF_NEW_ARRAY(scratch, growth, first->n_classes);
            for (int c = 0; c < first->n_classes; c++)
                grow_class(&first->classes[c], &second->classes[c], dx, scratch, &row->of[c]);
            row->tokens = (int64_t)(second->tokens_per_step - first->tokens_per_step) / dx;
        }
        same = on_line(p->tokens_per_step, first->tokens_per_step, row->tokens, sample[lo + k] - sample[lo]);
        for (int c = 0; same && c < first->n_classes; c++)
            same = is_linear(&first->classes[c], &p->classes[c], &row->of[c], sample[lo + k] - sample[lo]);
        if (!same)
            break;
    }
    if (run > 1)
        return run;
    row->of = SF_NEW_ARRAY(scratch, growth, first->n_classes);
    for (int c = 0; c < first->n_classes; c++)
        grow_class(&first->classes[c], &first->classes[c], 0, scratch, &row->of[c]);
    row->tokens = 0;
    return 1;
}

/* ---- sums over a class ---- */

typedef struct {
    sf_op_type collective;
    sf_group group;
    sf_line calls, bytes;
} comm_sum;

typedef struct {
    sf_envelope memory;
    sf_line model_flop, hardware_flop;
    comm_sum comm[MOST_COMM];
    int n_comm;
} class_sum;

static void add_to(sf_line *sum, uint64_t times, int64_t at0, int64_t per_unit)
{
    sum->at0 += (int64_t)times * at0;
    sum->per_unit += (int64_t)times * per_unit;
}

static comm_sum *comm_of(class_sum *s, const sf_op *op)
{
    for (int i = 0; i < s->n_comm; i++)
        if (s->comm[i].collective == op->type && s->comm[i].group == op->group)
            return &s->comm[i];
    if (s->n_comm == MOST_COMM)
        return NULL;
    s->comm[s->n_comm] = (comm_sum){ .collective = op->type, .group = op->group };
    return &s->comm[s->n_comm++];
}

static bool sum_class(const sf_class *cls, const growth *g, int64_t range, sf_arena *arena, class_sum *out)
{
    *out = (class_sum){ .n_comm = 0 };
    sf_envelope_make(cls, g->elems, range, arena, &out->memory);
    for (size_t i = 0; i < cls->n_ops; i++) {
        const sf_op *op = &cls->ops[i];
        uint64_t times = out->memory.times[i];
        if (times == 0)
            continue;
        add_to(&out->hardware_flop, times, (int64_t)op->flop, g->flop[i]);
        add_to(&out->model_flop, times, (int64_t)sf_op_useful_flop(op), g->useful[i]);
        if (sf_op_kind_of(op->type) != SF_KIND_COMM)
            continue;
        comm_sum *row = comm_of(out, op);
        if (row == NULL)
            return false;
        int with = 0;
        while (op->args[with].buffer < 0)
            with++;
        int64_t size = (int64_t)sf_dtype_bytes(cls->buffers[op->args[with].buffer].dtype);
        add_to(&row->calls, times, 1, 0);
        add_to(&row->bytes, times, op->dims.n * size, g->n[i] * size);
    }
    return true;
}

static void busy_streams(const maker *m, const sf_class *cls, const uint64_t *times, double *stream_s)
{
    if (m->source->seconds == NULL)
        return;
    for (size_t i = 0; i < cls->n_ops; i++) {
        const sf_op *op = &cls->ops[i];
        sf_op_kind kind = sf_op_kind_of(op->type);
        if (times[i] == 0 || kind == SF_KIND_MEM || kind == SF_KIND_SYNC)
            continue;
        sf_issue issue = { .op = op };
        for (int a = 0; a < SF_MAX_ARGS; a++)
            issue.at[a] = a < op->n_args ? (sf_place){ .buffer = op->args[a].buffer, .instance = op->args[a].buffer }
                                         : (sf_place){ .buffer = -1, .instance = -1 };
        stream_s[op->stream] += (double)times[i] * m->source->seconds(m->source->ctx, cls, &issue);
    }
}

static bool same_lines(const sf_lines *a, const sf_lines *b)
{
    return a->count == b->count && (a->count == 0 || memcmp(a->items, b->items, a->count * sizeof *a->items) == 0);
}

/* Memory, and which collectives there are, do not depend on g. */
static bool same_memory(const class_sum *a, const class_sum *b)
{
    if (a->memory.device.count != b->memory.device.count || !same_lines(&a->memory.host, &b->memory.host) || a->n_comm != b->n_comm)
        return false;
    for (size_t i = 0; i < a->memory.device.count; i++) {
        const sf_moment *x = &a->memory.device.items[i], *y = &b->memory.device.items[i];
        if (memcmp(&x->total, &y->total, sizeof x->total) != 0 || memcmp(x->category, y->category, sizeof x->category) != 0 || x->phase != y->phase ||
            !sf_str_eq(x->op, y->op))
            return false;
    }
    for (int c = 0; c < SF_CAT_COUNT; c++)
        if (!same_lines(&a->memory.category[c], &b->memory.category[c]))
            return false;
    for (int p = 0; p < SF_PHASE_COUNT; p++)
        if (!same_lines(&a->memory.phase[p], &b->memory.phase[p]))
            return false;
    for (int i = 0; i < a->n_comm; i++)
        if (a->comm[i].collective != b->comm[i].collective || a->comm[i].group != b->comm[i].group)
            return false;
    return true;
}

/* ---- a piece ---- */

static bilinear between(const sf_line *at_g0, const sf_line *at_g1, int64_t dg)
{
    return (bilinear){ .c = at_g0->at0, .b_ = at_g0->per_unit,
                       .g_ = dg == 0 ? 0 : (at_g1->at0 - at_g0->at0) / dg, .bg = dg == 0 ? 0 : (at_g1->per_unit - at_g0->per_unit) / dg };
}

/* dg further on the count is `at`, as a line in b. */
static bool matches(const bilinear *f, const sf_line *at, int64_t dg)
{
    return at->at0 == f->c + f->g_ * dg && at->per_unit == f->b_ + f->bg * dg;
}

static bool class_matches(const class_form *f, const class_sum *at, int64_t dg)
{
    bool good = matches(&f->model_flop, &at->model_flop, dg) && matches(&f->hardware_flop, &at->hardware_flop, dg);
    for (int i = 0; good && i < f->n_comm; i++)
        good = matches(&f->comm[i].calls, &at->comm[i].calls, dg) && matches(&f->comm[i].bytes, &at->comm[i].bytes, dg);
    return good;
}

static void join_class(const class_sum *first, const class_sum *last, int64_t dg, class_form *out)
{
    out->memory = first->memory;
    out->model_flop = between(&first->model_flop, &last->model_flop, dg);
    out->hardware_flop = between(&first->hardware_flop, &last->hardware_flop, dg);
    out->n_comm = first->n_comm;
    for (int i = 0; i < first->n_comm; i++)
        out->comm[i] = (comm_form){ .collective = first->comm[i].collective, .group = first->comm[i].group,
                                    .calls = between(&first->comm[i].calls, &last->comm[i].calls, dg),
                                    .bytes = between(&first->comm[i].bytes, &last->comm[i].bytes, dg) };
}

/* What the form keeps outlives the programs. */
static void keep(class_form *f, sf_arena *arena)
{
    sf_moments *d = &f->memory.device;
    sf_moment *items = SF_NEW_ARRAY(arena, sf_moment, d->count);
    for (size_t i = 0; i < d->count; i++) {
        items[i] = d->items[i];
        items[i].op = items[i].op == NULL ? NULL : sf_arena_strdup(arena, items[i].op);
    }
    d->items = items;
    sf_lines *lists[1 + SF_CAT_COUNT + SF_PHASE_COUNT] = { &f->memory.host };
    for (int c = 0; c < SF_CAT_COUNT; c++)
        lists[1 + c] = &f->memory.category[c];
    for (int p = 0; p < SF_PHASE_COUNT; p++)
        lists[1 + SF_CAT_COUNT + p] = &f->memory.phase[p];
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        sf_line *copy = SF_NEW_ARRAY(arena, sf_line, lists[i]->count);
        if (lists[i]->count > 0)
            memcpy(copy, lists[i]->items, lists[i]->count * sizeof *copy);
        lists[i]->items = copy;
    }
    f->memory.times = NULL;
}

enum { ROWS = 3 }; /* g0, its neighbour, g1 */

typedef struct {
    int64_t g[ROWS];
    int n;
    int samples[ROWS];
    point_row row[ROWS];
} row_set;

/* `thin`: the row between only checks linearity along g, for which two points give its lines. */
static sf_status lower_rows(maker *m, const int64_t *sample, int n, int64_t g0, int64_t g1, bool thin, row_set *out)
{
    out->n = 0;
    out->g[out->n++] = g0;
    if (g0 + 1 < g1)
        out->g[out->n++] = g0 + 1;
    if (g1 > g0)
        out->g[out->n++] = g1;
    for (int r = 0; r < out->n; r++) {
        out->samples[r] = thin && r == 1 && out->n == ROWS && n > 2 ? 2 : n;
        SF_TRY(lower_row(m, sample, out->samples[r], out->g[r], m->scratch, &out->row[r]));
    }
    return SF_SUCCESS;
}

/* The samples lo .. lo + n - 1 of the rows as one piece; *good false: they are not linear in g. */
static sf_status build_piece(maker *m, const row_set *rows, const int64_t *sample, int lo, int n, bool *good)
{
    piece p = { .b0 = sample[lo], .b1 = sample[lo + n - 1], .g0 = rows->g[0], .g1 = rows->g[rows->n - 1], .n_samples = n };
    int64_t dg = p.g1 - p.g0;
    class_sum *sums[ROWS];
    sf_line tokens[ROWS];
    int last = rows->n - 1;

    *good = false;
    memcpy(p.sample, &sample[lo], (size_t)n * sizeof *sample);
    p.n_classes = rows->row[0].program[lo]->n_classes;
    for (int r = 0; r < rows->n; r++) {
        const sf_program *first = rows->row[r].program[lo];
        if (first->n_classes != p.n_classes)
            return SF_SUCCESS;
        tokens[r] = (sf_line){ (int64_t)first->tokens_per_step, rows->row[r].tokens };
        sums[r] = SF_NEW_ARRAY(m->scratch, class_sum, p.n_classes);
        for (int c = 0; c < p.n_classes; c++)
            if (!sum_class(&first->classes[c], &rows->row[r].of[c], p.b1 - p.b0, m->scratch, &sums[r][c]))
                return SF_FAIL(SF_EUNSUP, "a program with more than %d kinds of collectives has no closed form", MOST_COMM);
    }
    p.classes = SF_NEW_ARRAY(m->arena, class_form, p.n_classes);
    p.tokens = between(&tokens[0], &tokens[last], dg);
    for (int c = 0; c < p.n_classes; c++) {
        class_form *f = &p.classes[c];
        join_class(&sums[0][c], &sums[last][c], dg, f);
        for (int r = 0; r < rows->n; r++)
            if (!same_memory(&sums[0][c], &sums[r][c]) || !class_matches(f, &sums[r][c], rows->g[r] - p.g0) ||
                !matches(&p.tokens, &tokens[r], rows->g[r] - p.g0))
                return SF_SUCCESS;
        for (int end = 0; end < 2; end++)
            for (int i = 0; i < n; i++) {
                int r = end == 0 ? 0 : last;
                busy_streams(m, &rows->row[r].program[lo + i]->classes[c], sums[r][c].memory.times, f->stream_s[end][i]);
            }
        keep(f, m->arena);
    }
    m->form->world_size = rows->row[0].program[lo]->world_size;
    SF_PUSH(m->arena, m->form->pieces, m->form->n_pieces, m->form->cap_pieces) = p;
    *good = true;
    return SF_SUCCESS;
}

/* Every b of b0 .. b1 (at most MOST_SAMPLES) is lowered; linear stretches become pieces. */
static sf_status make_dense(maker *m, int64_t b0, int64_t b1, int64_t g0, int64_t g1)
{
    size_t before = m->form->n_pieces;
    int64_t sample[MOST_SAMPLES] = { 0 };
    int n = (int)(b1 - b0) + 1;
    row_set rows;
    bool good = true;

    for (int i = 0; i < n; i++)
        sample[i] = b0 + i;
    SF_TRY(lower_rows(m, sample, n, g0, g1, false, &rows));
    for (int lo = 0, run = 0; lo < n && good; lo += run) {
        run = n - lo;
        for (int r = 0; r < rows.n; r++) {
            int of_row = linear_run(sample, lo, run, m->scratch, &rows.row[r]);
            run = of_row < run ? of_row : run;
        }
        for (int r = 0; r < rows.n; r++) /* a shorter run may have another growth: a run of one has none */
            linear_run(sample, lo, run, m->scratch, &rows.row[r]);
        SF_TRY(build_piece(m, &rows, sample, lo, run, &good));
    }
    sf_arena_reset(m->scratch);
    if (good)
        return SF_SUCCESS;
    m->form->n_pieces = before;
    if (g1 == g0)
        return SF_FAIL(SF_EINVAL, "a program differs between two lowerings of one job");
    SF_TRY(make_dense(m, b0, b1, g0, g0)); /* the first few micro-steps are what differs */
    return make_dense(m, b0, b1, g0 + 1, g1);
}

/* The ends, the neighbour of b0, the middle, and others that lie unevenly between them. */
static int choose_samples(int64_t b0, int64_t b1, int64_t *sample)
{
    static const double share[MOST_SAMPLES - 2] = { 0.07, 0.19, 0.31, 0.5, 0.73, 0.9 };
    int n = 0;
    sample[n++] = b0;
    sample[n++] = b0 + 1;
    for (int i = 0; i < MOST_SAMPLES - 3; i++) {
        int64_t b = b0 + (int64_t)(share[i] * (double)(b1 - b0));
        if (b > sample[n - 1] && b < b1)
            sample[n++] = b;
    }
    sample[n++] = b1;
    return n;
}

static sf_status make_pieces(maker *m, int64_t b0, int64_t b1, int64_t g0, int64_t g1)
{
    int64_t sample[MOST_SAMPLES];
    row_set rows;
    bool good = true;

    if (b1 - b0 < MOST_SAMPLES)
        return make_dense(m, b0, b1, g0, g1);
    int n = choose_samples(b0, b1, sample);
    SF_TRY(lower_rows(m, sample, n, g0, g1, true, &rows));
    for (int r = 0; r < rows.n && good; r++)
        good = linear_run(sample, 0, rows.samples[r], m->scratch, &rows.row[r]) == rows.samples[r];
    bool linear = good;
    if (linear)
        SF_TRY(build_piece(m, &rows, sample, 0, n, &good));
    sf_arena_reset(m->scratch);
    if (good)
        return SF_SUCCESS;
    if (linear && g1 > g0) {
        SF_TRY(make_pieces(m, b0, b1, g0, g0));
        return make_pieces(m, b0, b1, g0 + 1, g1);
    }
    if (m->source->only_linear)
        return SF_FAIL(SF_EUNSUP, "sizes are not linear in the micro-batch");
    for (int64_t b = b0; b <= b1; b += MOST_SAMPLES)
        SF_TRY(make_dense(m, b, b + MOST_SAMPLES - 1 < b1 ? b + MOST_SAMPLES - 1 : b1, g0, g1));
    return SF_SUCCESS;
}

sf_status sf_form_make(const sf_form_source *source, int64_t most_b, int64_t most_g, sf_arena *arena, const sf_form **out)
{
    sf_arena own = { 0 };
    maker m = { .source = source, .arena = arena, .scratch = source->scratch == NULL ? &own : source->scratch, .form = SF_NEW(arena, sf_form) };
    *out = m.form;
    sf_status st = make_pieces(&m, 1, most_b, 1, 1);
    if (st.code == SF_OK && most_g > 1)
        st = make_pieces(&m, 1, most_b, 2, most_g);
    sf_arena_free(&own);
    return st;
}

sf_status sf_form_add_point(const sf_form_source *source, int64_t b, int64_t g, sf_arena *arena, sf_form **form)
{
    if (*form == NULL)
        *form = SF_NEW(arena, sf_form);
    sf_arena own = { 0 };
    maker m = { .source = source, .arena = arena, .scratch = source->scratch == NULL ? &own : source->scratch, .form = *form };
    sf_status st = make_pieces(&m, b, b, g, g);
    sf_arena_free(&own);
    return st;
}

/* ---- evaluation ---- */

static const piece *piece_at(const sf_form *form, int64_t b, int64_t g)
{
    for (size_t i = 0; i < form->n_pieces; i++) {
        const piece *p = &form->pieces[i];
        if (b >= p->b0 && b <= p->b1 && g >= p->g0 && g <= p->g1)
            return p;
    }
    return NULL;
}

static uint64_t at(const bilinear *f, int64_t db, int64_t dg)
{
    return (uint64_t)(f->c + f->b_ * db + (f->g_ + f->bg * db) * dg);
}

static const class_form *fullest(const piece *p, int64_t db, const sf_moment **peak)
{
    const class_form *best = &p->classes[0];
    *peak = sf_moments_top(&best->memory.device, db);
    for (int c = 1; c < p->n_classes; c++) {
        const sf_moment *other = sf_moments_top(&p->classes[c].memory.device, db);
        if (other != NULL && (*peak == NULL || sf_line_at(&other->total, db) > sf_line_at(&(*peak)->total, db))) {
            *peak = other;
            best = &p->classes[c];
        }
    }
    return best;
}

static void interpolate(const piece *p, const class_form *f, int64_t b, int64_t g, double *stream_s)
{
    int i = 0;
    while (i + 2 < p->n_samples && b > p->sample[i + 1])
        i++;
    int j = i + 1 < p->n_samples ? i + 1 : i;
    double along_b = i == j ? 0 : (double)(b - p->sample[i]) / (double)(p->sample[j] - p->sample[i]);
    double along_g = p->g1 == p->g0 ? 0 : (double)(g - p->g0) / (double)(p->g1 - p->g0);
    for (int s = 0; s < SF_STREAM_COUNT; s++) {
        double first = f->stream_s[0][i][s] + along_b * (f->stream_s[0][j][s] - f->stream_s[0][i][s]);
        double last = f->stream_s[1][i][s] + along_b * (f->stream_s[1][j][s] - f->stream_s[1][i][s]);
        stream_s[s] = first + along_g * (last - first);
    }
}

bool sf_form_eval(const sf_form *form, int64_t b, int64_t g, sf_form_value *out)
{
    const piece *p = piece_at(form, b, g);
    const sf_moment *peak;

    if (p == NULL)
        return false;
    int64_t db = b - p->b0, dg = g - p->g0;
    const class_form *f = fullest(p, db, &peak);
    out->peak_allocated_bytes = peak == NULL ? 0 : (uint64_t)sf_line_at(&peak->total, db);
    out->phase_of_peak = peak == NULL ? SF_PHASE_FORWARD : peak->phase;
    out->op_of_peak = peak == NULL ? NULL : peak->op;
    out->host_bytes = (uint64_t)sf_lines_top(&f->memory.host, db);
    out->comm_bytes = out->comm_calls = 0;
    for (int i = 0; i < f->n_comm; i++) {
        out->comm_bytes += at(&f->comm[i].bytes, db, dg);
        out->comm_calls += at(&f->comm[i].calls, db, dg);
    }
    out->model_flop = at(&f->model_flop, db, dg);
    out->hardware_flop = at(&f->hardware_flop, db, dg);
    out->tokens = at(&p->tokens, db, dg);
    interpolate(p, f, b, g, out->stream_s);
    return true;
}

bool sf_form_outcome(const sf_form *form, int64_t b, int64_t g, uint64_t capacity_bytes, sf_outcome *out)
{
    const piece *p = piece_at(form, b, g);
    const sf_moment *peak;

    if (p == NULL)
        return false;
    int64_t db = b - p->b0, dg = g - p->g0;
    const class_form *f = fullest(p, db, &peak);
    sf_outcome_init(out, "predicted");
    out->world_size = form->world_size;
    out->tokens_per_step = at(&p->tokens, db, dg);
    out->memory.capacity_bytes = capacity_bytes;
    out->memory.peak_allocated_bytes = peak == NULL ? 0 : (uint64_t)sf_line_at(&peak->total, db);
    out->memory.peak_reserved_bytes = out->memory.device_used_bytes = out->memory.peak_allocated_bytes;
    out->memory.host_bytes = (uint64_t)sf_lines_top(&f->memory.host, db);
    out->memory.phase_of_peak = peak == NULL ? SF_PHASE_FORWARD : peak->phase;
    out->memory.op_of_peak = peak == NULL ? NULL : peak->op;
    for (int c = 0; c < SF_CAT_COUNT; c++) {
        out->memory.peak_bytes[c] = (uint64_t)sf_lines_top(&f->memory.category[c], db);
        out->memory.at_peak[c] = peak == NULL ? 0 : (uint64_t)sf_line_at(&peak->category[c], db);
    }
    for (int k = 0; k < SF_PHASE_COUNT; k++)
        out->memory.phase_peak_bytes[k] = (uint64_t)sf_lines_top(&f->memory.phase[k], db);
    for (int i = 0; i < f->n_comm; i++) {
        sf_outcome_comm *row = sf_outcome_comm_row(out, f->comm[i].collective, f->comm[i].group);
        row->calls = at(&f->comm[i].calls, db, dg);
        row->bytes_per_rank = at(&f->comm[i].bytes, db, dg);
    }
    out->model_flop = at(&f->model_flop, db, dg);
    out->hardware_flop = at(&f->hardware_flop, db, dg);
    out->fits = capacity_bytes == 0 || out->memory.peak_allocated_bytes <= capacity_bytes;
    return true;
}

/* The peak grows with b in a piece but may fall from one piece to the next, so pieces are asked in turn. */
int64_t sf_form_most_b(const sf_form *form, int64_t g, uint64_t capacity_bytes)
{
    int64_t most = 0;
    for (size_t i = 0; i < form->n_pieces; i++) {
        const piece *p = &form->pieces[i];
        if (g < p->g0 || g > p->g1 || p->b1 <= most)
            continue;
        int64_t lo = p->b0 - 1, hi = p->b1; /* lo: fits or none of the piece; the answer is in lo .. hi */
        while (lo < hi) {
            int64_t b = lo + (hi - lo + 1) / 2;
            sf_form_value v;
            sf_form_eval(form, b, g, &v);
            if (v.peak_allocated_bytes <= capacity_bytes)
                lo = b;
            else
                hi = b - 1;
        }
        most = lo >= p->b0 && lo > most ? lo : most;
    }
    return most;
}

size_t sf_form_pieces(const sf_form *form)
{
    return form->n_pieces;
}

size_t sf_form_lowerings(const sf_form *form)
{
    return form->lowerings;
}
