/* reports/plot_step.c: the data of the plots of one step: timeline and memory line. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reports/plot_data.h"

/* ---- timeline ---- */

#define AS_NAME(id, name, colour) name,
#define AS_COLOUR(id, name, colour) colour,
static const char *const kind_names[SF_PLOT_KIND_COUNT] = { SF_PLOT_KINDS(AS_NAME) };
static const char *const kind_colours[SF_PLOT_KIND_COUNT] = { SF_PLOT_KINDS(AS_COLOUR) };
#undef AS_NAME
#undef AS_COLOUR

enum { SIDES = 2 };
static const double side_gap = 0.75; /* of a lane, above each side: room for its name */

typedef struct {
    double y[SIDES][SF_STREAM_COUNT]; /* negative: no such lane */
    double title_y[SIDES], bottom;
    int lanes;
} lanes;

static lanes lay_out(const sf_outcome *const side[SIDES])
{
    lanes l = { .bottom = -0.5 };
    for (int s = 0; s < SIDES; s++) {
        bool used[SF_STREAM_COUNT] = { false };
        for (size_t i = 0; side[s] != NULL && i < side[s]->n_spans; i++)
            used[side[s]->spans[i].stream] = true;
        l.title_y[s] = l.bottom + side_gap / 2;
        if (side[s] != NULL && side[s]->n_spans > 0)
            l.bottom += side_gap;
        for (int st = 0; st < SF_STREAM_COUNT; st++) {
            l.y[s][st] = -1;
            if (!used[st])
                continue;
            l.y[s][st] = l.bottom + 0.5;
            l.bottom += 1;
            l.lanes++;
        }
    }
    return l;
}

static int by_stream_and_start(const void *a, const void *b)
{
    const sf_span_time *x = a, *y = b;
    if (x->stream != y->stream)
        return x->stream < y->stream ? -1 : 1;
    return (x->start_s > y->start_s) - (x->start_s < y->start_s);
}

/* Boxes of one kind. Neighbours that a reader could not tell apart (a 2000th of the plot) become one. */
static size_t boxes(const sf_outcome *o, const double y[SF_STREAM_COUNT], sf_plot_kind kind, double size, double range_s, sf_arena *arena,
                    sf_text *data)
{
    sf_span_time *spans = SF_NEW_ARRAY(arena, sf_span_time, o->n_spans);
    double hair_s = range_s / 2000;
    size_t n = 0, i = 0;
    if (o->n_spans > 0)
        memcpy(spans, o->spans, o->n_spans * sizeof *spans);
    qsort(spans, o->n_spans, sizeof *spans, by_stream_and_start);
    while (i < o->n_spans) {
        const sf_span_time *first = &spans[i];
        double end_s = first->end_s;
        bool mine = sf_plot_kind_of(first->type) == kind;
        for (i++; mine && i < o->n_spans; i++) {
            const sf_span_time *next = &spans[i];
            if (next->stream != first->stream || sf_plot_kind_of(next->type) != kind || next->start_s - end_s > hair_s / 4 ||
                next->end_s - first->start_s > hair_s)
                break;
            end_s = fmax(end_s, next->end_s);
        }
        if (!mine)
            continue;
        sf_text_add(data, "%.4g %.7g %.7g\n", y[first->stream], first->start_s / size, end_s / size);
        n++;
    }
    return n;
}

bool sf_plot_timeline(const sf_outcome *predicted, const sf_outcome *measured, sf_arena *arena, sf_plot_data *out)
{
    const sf_outcome *const side[SIDES] = { predicted, measured };
    static const char *const side_names[SIDES] = { "predicted", "measured" };
    const char *names[SF_PLOT_KIND_COUNT];
    size_t n_kinds = 0, longest = 0;
    double range_s = 0;
    sf_text colours = { 0 };
    bool first = true;

    for (int s = 0; s < SIDES; s++)
        for (size_t i = 0; side[s] != NULL && i < side[s]->n_spans; i++)
            range_s = fmax(range_s, side[s]->spans[i].end_s);
    if (!(range_s > 0))
        return false;
    sf_scale scale = sf_scale_seconds(range_s);
    lanes l = lay_out(side);
    for (int k = 0; k < SF_PLOT_KIND_COUNT; k++) {
        size_t n = 0;
        for (int s = 0; s < SIDES; s++)
            if (side[s] != NULL)
                n += boxes(side[s], l.y[s], (sf_plot_kind)k, scale.size, range_s, arena, &out->data);
        if (n == 0)
            continue;
        sf_plot_next_block(out);
        names[n_kinds++] = kind_names[k];
        sf_text_add(&colours, "%s ", kind_colours[k]);
    }
    sf_text_add(&out->params, "lane_names = 'set ytics (");
    for (int s = 0; s < SIDES; s++)
        for (int st = 0; st < SF_STREAM_COUNT; st++) {
            const char *name = sf_stream_name((sf_stream)st);
            if (l.y[s][st] < 0)
                continue;
            longest = strlen(name) > longest ? strlen(name) : longest;
            sf_text_add(&out->params, "%s\"%s\" %.4g", first ? "" : ", ", name, l.y[s][st]);
            first = false;
        }
    sf_text_add(&out->params, ")'\nside_names = \"");
    for (int s = 0; s < SIDES; s++)
        if (side[s] != NULL && side[s]->n_spans > 0)
            sf_text_add(&out->params, "set label '%s, %.*f %s' at 0,%.4g left; ", side_names[s], scale.decimals,
                        side[s]->time.step_s / scale.size, scale.name, l.title_y[s]);
    sf_text_add(&out->params, "\"\n");
    sf_plot_names(out, "kind", names, n_kinds, arena);
    sf_text_add(&out->params, "kinds = %zu; colour_names = '%s'; unit = '%s'; largest = %.9g; bottom = %.9g; longest_name = %zu\n", n_kinds,
                sf_text_str(&colours), scale.name, range_s / scale.size, l.bottom, longest);
    sf_text_free(&colours);
    return true;
}

/* ---- memory line ---- */

static bool timed(const sf_outcome *o)
{
    for (size_t i = 0; i < o->n_memory_line; i++)
        if (o->memory_line[i].time_s < 0)
            return false;
    return true;
}

bool sf_plot_memory_line(const sf_outcome *predicted, const sf_outcome *measured, sf_arena *arena, sf_plot_data *out)
{
    const sf_outcome *const side[SIDES] = { predicted, measured };
    double largest = 0, end = 0, at_peak = 0;
    bool has[SIDES], by_time = true;
    uint64_t capacity = 0;
    const sf_outcome *peak_side = NULL;

    for (int s = 0; s < SIDES; s++) {
        has[s] = side[s] != NULL && side[s]->n_memory_line > 1;
        if (!has[s])
            continue;
        by_time = by_time && timed(side[s]);
        capacity = side[s]->memory.capacity_bytes > capacity ? side[s]->memory.capacity_bytes : capacity;
        for (size_t i = 0; i < side[s]->n_memory_line; i++)
            largest = fmax(largest, (double)side[s]->memory_line[i].bytes);
        if (peak_side == NULL)
            peak_side = side[s];
    }
    if (peak_side == NULL || largest == 0)
        return false;
    sf_scale b = sf_scale_bytes(largest), t = { "", 1, 0 };
    for (int s = 0; by_time && s < SIDES; s++)
        for (size_t i = 0; has[s] && i < side[s]->n_memory_line; i++)
            end = fmax(end, side[s]->memory_line[i].time_s);
    if (by_time)
        t = sf_scale_seconds(end);
    end = 0;
    for (int s = 0; s < SIDES; s++) {
        double side_peak = -1;
        for (size_t i = 0; has[s] && i < side[s]->n_memory_line; i++) {
            const sf_memory_point *p = &side[s]->memory_line[i];
            double x = by_time ? p->time_s / t.size : (double)p->seq;
            end = fmax(end, x);
            if (side[s] == peak_side && (double)p->bytes > side_peak) {
                side_peak = (double)p->bytes;
                at_peak = x;
            }
            sf_text_add(&out->data, "%.9g %.9g\n", x, (double)p->bytes / b.size);
        }
        if (!has[s])
            sf_text_add(&out->data, "0 0\n");
        sf_plot_next_block(out);
        if (side[s] == peak_side)
            largest = fmax(largest, side_peak);
    }
    const char *what = peak_side->memory.op_of_peak;
    sf_text_add(&out->data, "%.9g %.9g\n", at_peak, largest / b.size);
    const char *text = sf_arena_printf(arena, "peak %.*f %s%s%s", b.decimals, largest / b.size, b.name, what == NULL ? "" : ": ",
                                       what == NULL ? "" : what);
    const char *command = sf_arena_printf(arena, "set label 2 %s at first %.9g, graph 0.95 %s", sf_plot_quote(text, arena), at_peak,
                                          at_peak > 0.7 * end ? "right" : at_peak < 0.3 * end ? "left" : "center");
    sf_plot_command(out, "peak_label", command);
    sf_text_add(&out->params, "predicted = %d; measured = %d; unit = '%s'; largest = %.9g; last = %.9g; at_peak = %.9g\n", has[0], has[1],
                b.name, largest / b.size, end > 0 ? end : 1, at_peak);
    sf_text_add(&out->params, "capacity = %.9g; capacity_text = '%s'\n", (double)capacity / b.size, sf_bytes_text(capacity).text);
    if (by_time)
        sf_text_add(&out->params, "x_name = 'time from the start of the step (%s)'\n", t.name);
    else
        sf_text_add(&out->params, "x_name = 'op, in the order in which the step issues them'\n");
    return true;
}
