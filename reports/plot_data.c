/* reports/plot_data.c: bars and points over a whole report. What is of one step is in plot_step.c. */
#include "reports/plot_data.h"

#include <math.h>
#include <string.h>

const char *sf_plot_quote(const char *text, sf_arena *arena)
{
    sf_text out = { 0 };
    sf_text_add(&out, "'");
    for (; *text != '\0'; text++)
        if (*text == '\'')
            sf_text_add(&out, "\xe2\x80\x99"); /* U+2019 */
        else
            sf_text_add(&out, "%c", (unsigned char)*text < ' ' ? ' ' : *text);
    sf_text_add(&out, "'");
    const char *kept = sf_arena_strdup(arena, out.data);
    sf_text_free(&out);
    return kept;
}

void sf_plot_command(sf_plot_data *out, const char *name, const char *command)
{
    sf_text_add(&out->params, "%s = '", name);
    for (; *command != '\0'; command++)
        sf_text_add(&out->params, *command == '\'' ? "''" : "%c", *command);
    sf_text_add(&out->params, "'\n");
}

void sf_plot_next_block(sf_plot_data *out)
{
    sf_text_add(&out->data, "\n\n");
}

void sf_plot_names(sf_plot_data *out, const char *function, const char *const *names, size_t n, sf_arena *arena)
{
    if (n == 0)
        return;
    sf_text_add(&out->params, "array %s_names[%zu] = [", function, n);
    for (size_t i = 0; i < n; i++)
        sf_text_add(&out->params, "%s%s", i == 0 ? "" : ", ", sf_plot_quote(names[i], arena));
    sf_text_add(&out->params, "]; %s(k) = %s_names[int(k) + 1]\n", function, function);
}

/* row_names: the command that labels the rows of a bar chart; longest_name: in characters. */
static void row_names(const sf_report *report, sf_arena *arena, sf_plot_data *out)
{
    sf_text tics = { 0 };
    size_t longest = 0;
    for (size_t i = 0; i < report->n_entries; i++) {
        const char *title = report->entries[i].title;
        sf_text label = { 0 };
        for (const char *c = title; *c != '\0'; c++)
            sf_text_add(&label, *c == '%' ? "%%%%" : "%c", *c); /* a tic's label is a format */
        longest = sf_text_width(title) > longest ? sf_text_width(title) : longest;
        sf_text_add(&tics, "%s%s %zu", i == 0 ? "set ytics (" : ", ", sf_plot_quote(sf_text_str(&label), arena), i);
        sf_text_free(&label);
    }
    sf_text_add(&tics, ")");
    sf_text_add(&out->params, "rows = %zu; longest_name = %zu\n", report->n_entries, longest);
    sf_plot_command(out, "row_names", sf_text_str(&tics));
    sf_text_free(&tics);
}

/* ---- memory ---- */

typedef struct {
    const char *name, *colour;
    sf_category parts[3];
    int n_parts;
} memory_part;

static const memory_part memory_parts[] = {
    { "parameters", "blue", { SF_CAT_PARAMETERS }, 1 },
    { "gradients", "orange", { SF_CAT_GRADIENTS }, 1 },
    { "optimizer states", "green", { SF_CAT_OPTIMIZER }, 1 },
    { "master weights", "purple", { SF_CAT_MASTER }, 1 },
    { "activations", "sky", { SF_CAT_ACTIVATIONS }, 1 },
    { "logits", "yellow", { SF_CAT_LOGITS }, 1 },
    { "comm. buffers", "vermillion", { SF_CAT_COMM_BUFFERS }, 1 },
    { "temporaries", "grey", { SF_CAT_TEMPORARIES, SF_CAT_WORKSPACE }, 2 },
    { "context, NCCL", "dim", { SF_CAT_CONTEXT, SF_CAT_NCCL, SF_CAT_FRAGMENTATION }, 3 },
};
enum { MEMORY_PARTS = sizeof memory_parts / sizeof memory_parts[0] };

static uint64_t part_bytes(const sf_outcome *o, const memory_part *part)
{
    uint64_t sum = 0;
    for (int i = 0; i < part->n_parts; i++)
        sum += o->memory.at_peak[part->parts[i]];
    return sum;
}

/* The side whose memory is drawn: the prediction where there is one. */
static const sf_outcome *memory_side(const sf_report_entry *e)
{
    if (e->predicted != NULL && e->predicted->memory.peak_allocated_bytes > 0)
        return e->predicted;
    return e->measured != NULL && e->measured->memory.peak_allocated_bytes > 0 ? e->measured : NULL;
}

static uint64_t total_bytes(const sf_outcome *o)
{
    uint64_t sum = 0;
    for (int p = 0; p < MEMORY_PARTS; p++)
        sum += part_bytes(o, &memory_parts[p]);
    return sum;
}

static const char *memory_text(const sf_report_entry *e, const sf_outcome *shown, sf_scale s, bool brief, sf_arena *arena)
{
    const sf_outcome *m = e->measured;
    const char *size = sf_arena_printf(arena, "%.*f", s.decimals, (double)total_bytes(shown) / s.size);
    if (!shown->fits)
        return sf_arena_printf(arena, "%s: too big", size);
    if (brief)
        return size;
    if (shown == m || m == NULL || m->memory.peak_allocated_bytes == 0)
        return sf_arena_printf(arena, "%s %s", size, s.name);
    if (m->memory.peak_allocated_bytes == shown->memory.peak_allocated_bytes)
        return sf_arena_printf(arena, "%s %s, measured equal", size, s.name);
    return sf_arena_printf(arena, "%s %s, measured %.*f", size, s.name, s.decimals, (double)m->memory.peak_allocated_bytes / s.size);
}

bool sf_plot_memory(const sf_report *report, sf_arena *arena, sf_plot_data *out)
{
    double largest = 0, capacity = 0;
    const char *names[MEMORY_PARTS];
    size_t n_parts = 0, longest = 0, longest_short = 0;
    sf_text colours = { 0 };

    for (size_t i = 0; i < report->n_entries; i++) {
        const sf_outcome *o = memory_side(&report->entries[i]);
        if (o == NULL)
            continue;
        largest = fmax(largest, (double)total_bytes(o));
        capacity = fmax(capacity, (double)o->memory.capacity_bytes);
    }
    if (largest == 0)
        return false;
    sf_scale s = sf_scale_bytes(largest);
    for (int p = 0; p < MEMORY_PARTS; p++) {
        size_t rows = 0;
        for (size_t i = 0; i < report->n_entries; i++) {
            const sf_outcome *o = memory_side(&report->entries[i]);
            double from = 0;
            if (o == NULL || part_bytes(o, &memory_parts[p]) == 0)
                continue;
            for (int before = 0; before < p; before++)
                from += (double)part_bytes(o, &memory_parts[before]);
            sf_text_add(&out->data, "%zu %.9g %.9g\n", i, from / s.size, (from + (double)part_bytes(o, &memory_parts[p])) / s.size);
            rows++;
        }
        if (rows == 0)
            continue;
        sf_plot_next_block(out);
        names[n_parts++] = memory_parts[p].name;
        sf_text_add(&colours, "%s ", memory_parts[p].colour);
    }
    for (size_t i = 0; i < report->n_entries; i++) {
        const sf_outcome *o = memory_side(&report->entries[i]);
        if (o == NULL)
            continue;
        const char *text = memory_text(&report->entries[i], o, s, false, arena), *brief = memory_text(&report->entries[i], o, s, true, arena);
        longest = strlen(text) > longest ? strlen(text) : longest;
        longest_short = strlen(brief) > longest_short ? strlen(brief) : longest_short;
        sf_text_add(&out->data, "%zu %.9g \"%s\" \"%s\"\n", i, (double)total_bytes(o) / s.size, text, brief);
    }
    row_names(report, arena, out);
    sf_plot_names(out, "category", names, n_parts, arena);
    sf_text_add(&out->params, "categories = %zu; colour_names = '%s'; unit = '%s'; largest = %.9g; longest_text = %zu; longest_short = %zu\n",
                n_parts, sf_text_str(&colours), s.name, largest / s.size, longest, longest_short);
    sf_text_add(&out->params, "capacity = %.9g; capacity_text = '%s'\n", capacity / s.size, sf_bytes_text((uint64_t)capacity).text);
    sf_text_free(&colours);
    return true;
}

/* ---- step ---- */

enum { STEP_PARTS = SF_PHASE_COUNT + 2 };
static const char *const step_names[STEP_PARTS] = { "forward", "backward", "optimizer", "exposed comm.", "idle" };

/* Parts of a step that add up to it. Where only whole phases are known, exposed and idle time are taken
 * from each phase in proportion. */
static bool step_parts(const sf_outcome *o, double part[STEP_PARTS])
{
    if (o == NULL || !(o->time.step_s > 0))
        return false;
    double phases = 0, waits = fmax(o->time.exposed_comm_s, 0) + fmax(o->time.idle_s, 0);
    for (int p = 0; p < SF_PHASE_COUNT; p++)
        phases += fmax(o->time.phase_s[p], 0);
    for (int p = 0; p < SF_PHASE_COUNT; p++) {
        double share = phases > 0 ? fmax(o->time.phase_s[p], 0) / phases : 1.0 / SF_PHASE_COUNT;
        part[p] = o->time.busy_s[p] >= 0 ? o->time.busy_s[p] : share * fmax(o->time.step_s - waits, 0);
    }
    part[SF_PHASE_COUNT] = fmax(o->time.exposed_comm_s, 0);
    part[SF_PHASE_COUNT + 1] = fmax(o->time.idle_s, 0);
    double sum = 0; /* measured parts are means and the step is a median: keep their proportions */
    for (int p = 0; p < STEP_PARTS; p++)
        sum += part[p];
    for (int p = 0; sum > 0 && p < STEP_PARTS; p++)
        part[p] *= o->time.step_s / sum;
    return true;
}

static const sf_outcome *side_of(const sf_report_entry *e, int side)
{
    return side == 0 ? e->predicted : e->measured;
}

bool sf_plot_step(const sf_report *report, sf_arena *arena, sf_plot_data *out)
{
    double part[STEP_PARTS], largest = 0;
    size_t longest = 0, longest_short = 0;
    bool both = sf_report_measured(report);

    for (size_t i = 0; i < report->n_entries; i++)
        for (int side = 0; side < 2; side++)
            if (step_parts(side_of(&report->entries[i], side), part))
                largest = fmax(largest, side_of(&report->entries[i], side)->time.step_s);
    if (largest == 0)
        return false;
    sf_scale s = sf_scale_seconds(largest);
    for (int p = 0; p < STEP_PARTS; p++) {
        for (size_t i = 0; i < report->n_entries; i++)
            for (int side = 0; side < 2; side++) {
                double from = 0;
                if (!step_parts(side_of(&report->entries[i], side), part))
                    continue;
                for (int before = 0; before < p; before++)
                    from += part[before];
                sf_text_add(&out->data, "%zu %d %.9g %.9g\n", i, side, from / s.size, (from + part[p]) / s.size);
            }
        sf_plot_next_block(out);
    }
    for (size_t i = 0; i < report->n_entries; i++)
        for (int side = 0; side < 2; side++) {
            const sf_report_entry *e = &report->entries[i];
            double end = 0;
            if (!step_parts(side_of(e, side), part))
                continue;
            for (int p = 0; p < STEP_PARTS; p++)
                end += part[p];
            const char *size = sf_arena_printf(arena, "%.*f", s.size < 1 ? 1 : 2, side_of(e, side)->time.step_s / s.size);
            const char *word = !both ? "" : side == 0 ? " predicted" : " measured";
            const char *error = side == 0 && !isnan(e->comparison.step_error)
                                    ? sf_arena_printf(arena, " (%s)", sf_percent_text(e->comparison.step_error).text) : "";
            const char *text = sf_arena_printf(arena, "%s %s%s%s", size, s.name, word, error);
            const char *brief = sf_arena_printf(arena, "%s%s", size, !both ? "" : side == 0 ? " pred." : " meas.");
            longest = strlen(text) > longest ? strlen(text) : longest;
            longest_short = strlen(brief) > longest_short ? strlen(brief) : longest_short;
            sf_text_add(&out->data, "%zu %d %.9g \"%s\" \"%s\"\n", i, side, end / s.size, text, brief);
        }
    row_names(report, arena, out);
    sf_plot_names(out, "part", step_names, STEP_PARTS, arena);
    sf_text_add(&out->params, "colour_names = 'sky blue green vermillion grey'; unit = '%s'; both = %d\n", s.name, both);
    sf_text_add(&out->params, "largest = %.9g; longest_text = %zu; longest_short = %zu\n", largest / s.size, longest, longest_short);
    return true;
}

/* ---- scatter ---- */

#define AS_NAME(id, name, colour) name,
#define AS_COLOUR(id, name, colour) colour,
static const char *const kind_names[SF_PLOT_KIND_COUNT] = { SF_PLOT_KINDS(AS_NAME) };
static const char *const kind_colours[SF_PLOT_KIND_COUNT] = { SF_PLOT_KINDS(AS_COLOUR) };
#undef AS_NAME
#undef AS_COLOUR

sf_plot_kind sf_plot_kind_of(sf_op_type type)
{
    switch (type) {
    case SF_OP_F_GEMM: return SF_PLOT_MATMUL;
    case SF_OP_F_SDPA_FWD:
    case SF_OP_F_SDPA_BWD: return SF_PLOT_ATTENTION;
    case SF_OP_F_OPTIM: return SF_PLOT_OPTIMIZER;
    default: break;
    }
    switch (sf_op_kind_of(type)) {
    case SF_KIND_GEMM: return SF_PLOT_MATMUL;
    case SF_KIND_ATTN: return SF_PLOT_ATTENTION;
    case SF_KIND_OPTIM: return SF_PLOT_OPTIMIZER;
    case SF_KIND_COMM: return SF_PLOT_COMM;
    case SF_KIND_COPY: return SF_PLOT_COPY;
    default: return SF_PLOT_MEMORY;
    }
}

typedef struct {
    double lo, hi;
} range;

static void include(range *r, double x)
{
    if (r->hi == 0 || x < r->lo)
        r->lo = x;
    if (x > r->hi)
        r->hi = x;
}

/* Measured and predicted busy time of each op that both sides have. */
static size_t op_points(const sf_report *report, sf_plot_kind kind, double size, range *r, sf_text *data)
{
    size_t n = 0;
    for (size_t i = 0; i < report->n_entries; i++) {
        const sf_report_entry *e = &report->entries[i];
        for (int op = 0; e->predicted != NULL && e->measured != NULL && op < SF_OP_COUNT; op++) {
            double p = e->predicted->time.op_s[op] / size, m = e->measured->time.op_s[op] / size;
            if (sf_plot_kind_of((sf_op_type)op) != kind || p <= 0 || m <= 0)
                continue;
            include(r, p);
            include(r, m);
            sf_text_add(data, "%.9g %.9g %s\n", m, p, sf_op_name((sf_op_type)op));
            n++;
        }
    }
    return n;
}

bool sf_plot_scatter(const sf_report *report, sf_arena *arena, sf_plot_data *out)
{
    range steps = { 0 }, ops = { 0 };
    const char *names[SF_PLOT_KIND_COUNT];
    const char **entries = SF_NEW_ARRAY(arena, const char *, report->n_entries);
    size_t n_kinds = 0, n_entries = 0;
    sf_text colours = { 0 };
    double largest = 0;

    for (size_t i = 0; i < report->n_entries; i++)
        if (!isnan(report->entries[i].comparison.step_error))
            largest = fmax(largest, report->entries[i].measured->time.step_s);
    if (largest == 0)
        return false;
    sf_scale s = sf_scale_seconds(largest);
    sf_text_add(&out->data, "0 0\n");
    sf_plot_next_block(out);
    for (size_t i = 0; i < report->n_entries; i++) {
        const sf_report_entry *e = &report->entries[i];
        if (isnan(e->comparison.step_error))
            continue;
        include(&steps, e->measured->time.step_s / s.size);
        include(&steps, e->predicted->time.step_s / s.size);
        sf_text_add(&out->data, "%.9g %.9g\n", e->measured->time.step_s / s.size, e->predicted->time.step_s / s.size);
        sf_plot_next_block(out);
        entries[n_entries++] = e->title;
    }
    for (int k = 0; k < SF_PLOT_KIND_COUNT; k++) {
        if (op_points(report, (sf_plot_kind)k, s.size, &ops, &out->data) == 0)
            continue;
        sf_plot_next_block(out);
        names[n_kinds++] = kind_names[k];
        sf_text_add(&colours, "%s ", kind_colours[k]);
    }
    sf_plot_names(out, "kind", names, n_kinds, arena);
    sf_plot_names(out, "entry", entries, n_entries, arena);
    sf_text_add(&out->params, "entries = %zu; kinds = %zu; colour_names = '%s'; unit = '%s'\n", n_entries, n_kinds, sf_text_str(&colours), s.name);
    sf_text_add(&out->params, "step_lo = %.9g; step_hi = %.9g; op_lo = %.9g; op_hi = %.9g\n", steps.lo, steps.hi, ops.lo, ops.hi);
    sf_text_free(&colours);
    return true;
}
