/* reports/report.c: the entries of a report and the verdict over them. */
#include "reports/report.h"

#include <math.h>
#include <stdlib.h>

sf_report_entry *sf_report_add(sf_report *report, sf_arena *arena, const char *name)
{
    sf_report_entry entry = { .name = sf_arena_strdup(arena, name), .title = sf_arena_strdup(arena, name) };
    SF_PUSH(arena, report->entries, report->n_entries, report->cap_entries) = entry;
    return &report->entries[report->n_entries - 1];
}

void sf_report_join(sf_report *report, sf_arena *arena)
{
    for (size_t i = 0; i < report->n_entries; i++) {
        sf_report_entry *e = &report->entries[i];
        sf_compare(e->predicted, e->measured, arena, &e->comparison);
    }
}

bool sf_report_measured(const sf_report *report)
{
    for (size_t i = 0; i < report->n_entries; i++)
        if (report->entries[i].measured != NULL)
            return true;
    return false;
}

/* ---- verdict ---- */

static void point(sf_verdict *v, sf_arena *arena, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void point(sf_verdict *v, sf_arena *arena, const char *fmt, ...)
{
    sf_text text = { 0 };
    va_list args;
    va_start(args, fmt);
    sf_text_vadd(&text, fmt, args);
    va_end(args);
    SF_PUSH(arena, v->points, v->n_points, v->cap_points) = sf_arena_strdup(arena, sf_text_str(&text));
    sf_text_free(&text);
}

static bool both(const sf_report_entry *e)
{
    return e->predicted != NULL && e->measured != NULL;
}

static const sf_compare_row *first_unequal(const sf_comparison *cmp)
{
    for (size_t i = 0; i < cmp->n_rows; i++) {
        const sf_compare_row *r = &cmp->rows[i];
        if (r->exact && !isnan(r->predicted) && !isnan(r->measured) && r->predicted != r->measured)
            return r;
    }
    return NULL;
}

typedef struct {
    size_t good, failed, exact, equal, timed, over, weighed, heavy;
    double worst_memory;
    double worst; /* largest |error| of a step time */
} tally;

static tally count(const sf_report *report)
{
    tally t = { 0 };
    for (size_t i = 0; i < report->n_entries; i++) {
        const sf_report_entry *e = &report->entries[i];
        double error = fabs(e->comparison.step_error);
        t.failed += e->failure != NULL;
        if (!both(e))
            continue;
        double memory = fabs(e->comparison.memory_error);
        bool late = error > report->time_bar, off = memory > report->memory_bar, same = e->comparison.n_equal == e->comparison.n_exact;
        t.good += e->failure == NULL && same && !late && !off;
        t.heavy += off;
        if (!isnan(memory)) {
            t.weighed++;
            t.worst_memory = fmax(t.worst_memory, memory);
        }
        t.exact += e->comparison.n_exact;
        t.equal += e->comparison.n_equal;
        t.over += late;
        if (!isnan(error)) {
            t.timed++;
            t.worst = fmax(t.worst, error);
        }
    }
    return t;
}

/* A missed time means less where others were at work: the load when a run began, above its own ranks and cores. */
static void tell_if_busy(const sf_report *report, sf_arena *arena, sf_verdict *out)
{
    double most = 0, of = 0;
    for (size_t i = 0; i < report->n_entries; i++) {
        const sf_outcome *m = report->entries[i].measured;
        const json_t *p = m == NULL ? NULL : m->provenance;
        double load = json_number_value(json_array_get(json_object_get(p, "load"), 0)), cores = json_number_value(json_object_get(p, "cores"));
        if (cores > 0 && load > 1.5 * cores && load > most) {
            most = load;
            of = cores;
        }
    }
    if (most > 0)
        point(out, arena, "The machine was busy with other work (load up to %.1f on %.0f cores), which only makes steps longer: measure again "
              "when it is quiet.", most, of);
}

static void judge_measured(const sf_report *report, sf_arena *arena, sf_verdict *out)
{
    tally t = count(report);
    out->good = t.failed == 0 && t.equal == t.exact && t.over == 0 && t.heavy == 0;
    const char *bytes = t.exact == 0         ? "no byte count could be compared"
                        : t.equal == t.exact ? sf_arena_printf(arena, "all %zu byte and call counts are equal", t.exact)
                                             : sf_arena_printf(arena, "%zu of %zu byte and call counts differ", t.exact - t.equal, t.exact);
    const char *time = t.timed == 0 ? "no step time could be compared"
                                    : sf_arena_printf(arena, "step times are %s %.1f %% (bar %.0f %%)", t.over > 0 ? "off by up to" : "within",
                                                      t.worst * 100, report->time_bar * 100);
    const char *memory = t.weighed == 0 ? "" : sf_arena_printf(arena, ", reserved memory is %s %.1f %% (bar %.0f %%)", t.heavy > 0 ? "off by up to" : "within", t.worst_memory * 100,
                                                              report->memory_bar * 100);
    out->headline = sf_arena_printf(arena, "The predictions hold for %zu of %zu: %s, %s%s", t.good, report->n_entries, bytes, time, memory);
    for (size_t i = 0; i < report->n_entries; i++) {
        const sf_report_entry *e = &report->entries[i];
        const sf_compare_row *row = first_unequal(&e->comparison);
        if (e->failure != NULL)
            point(out, arena, "%s: %s", e->title, e->failure);
        if (row != NULL)
            point(out, arena, "%s: %s: predicted %.0f, measured %.0f %s (%zu of %zu counts differ)", e->title, row->name, row->predicted,
                  row->measured, sf_unit_name(row->unit), e->comparison.n_exact - e->comparison.n_equal, e->comparison.n_exact);
        if (fabs(e->comparison.step_error) > report->time_bar)
            point(out, arena, "%s: step time %s predicted, %s measured: %s", e->title, sf_seconds_text(e->predicted->time.step_s).text,
                  sf_seconds_text(e->measured->time.step_s).text, sf_percent_text(e->comparison.step_error).text);
    }
    if (t.over > 0)
        tell_if_busy(report, arena, out);
}

const sf_outcome *sf_report_shown(const sf_report_entry *e)
{
    return e->measured != NULL ? e->measured : e->predicted;
}

void sf_report_rank(const sf_report *report, const sf_report_entry **fastest, const sf_report_entry **leanest, size_t *n_fit)
{
    *fastest = *leanest = NULL;
    *n_fit = 0;
    for (size_t i = 0; i < report->n_entries; i++) {
        const sf_report_entry *e = &report->entries[i];
        const sf_outcome *o = sf_report_shown(e);
        if (o == NULL || !o->fits)
            continue;
        ++*n_fit;
        if (sf_outcome_tokens_per_s(o) > 0 &&
            (*fastest == NULL || sf_outcome_tokens_per_s(o) > sf_outcome_tokens_per_s(sf_report_shown(*fastest))))
            *fastest = e;
        if (o->memory.peak_allocated_bytes > 0 &&
            (*leanest == NULL || o->memory.peak_allocated_bytes < sf_report_shown(*leanest)->memory.peak_allocated_bytes))
            *leanest = e;
    }
}

static void rank_points(const sf_report *report, sf_arena *arena, sf_verdict *out)
{
    const sf_report_entry *fastest, *leanest;
    size_t n_fit;
    sf_report_rank(report, &fastest, &leanest, &n_fit);
    if (fastest != NULL)
        point(out, arena, "Fastest that fits: %s, %.0f tokens/s, bound by %s.", fastest->title, sf_outcome_tokens_per_s(sf_report_shown(fastest)),
              sf_report_shown(fastest)->time.bound_by == NULL ? "what is not known" : sf_report_shown(fastest)->time.bound_by);
    if (leanest != NULL)
        point(out, arena, "Least memory: %s, %s at the peak of the fullest rank.", leanest->title,
              sf_bytes_text(sf_report_shown(leanest)->memory.peak_allocated_bytes).text);
    for (size_t i = 0; i < report->n_entries; i++) {
        const sf_report_entry *e = &report->entries[i];
        const sf_outcome *o = sf_report_shown(e);
        if (o != NULL && !o->fits)
            point(out, arena, "%s does not fit%s%s", e->title, o->verdict == NULL ? "." : ": ", o->verdict == NULL ? "" : o->verdict);
    }
}

void sf_report_judge(const sf_report *report, sf_arena *arena, sf_verdict *out)
{
    const sf_report_entry *fastest, *leanest;
    size_t n_fit;
    *out = (sf_verdict){ 0 };
    if (sf_report_measured(report)) {
        judge_measured(report, arena, out);
    } else {
        sf_report_rank(report, &fastest, &leanest, &n_fit);
        out->good = n_fit > 0;
        out->headline = n_fit == 0 ? "No strategy fits"
                                   : sf_arena_printf(arena, "%zu of %zu strategies fit%s%s", n_fit, report->n_entries,
                                                     fastest == NULL ? "" : "; the fastest is ", fastest == NULL ? "" : fastest->title);
        for (size_t i = 0; i < report->n_entries; i++)
            if (report->entries[i].failure != NULL)
                point(out, arena, "%s: %s", report->entries[i].title, report->entries[i].failure);
    }
    rank_points(report, arena, out);
}

/* ---- summary ---- */

static double largest_of(const sf_report *report, double (*of)(const sf_outcome *o))
{
    double largest = 0;
    for (size_t i = 0; i < report->n_entries; i++) {
        const sf_report_entry *e = &report->entries[i];
        for (int side = 0; side < 2; side++) {
            const sf_outcome *o = side == 0 ? e->predicted : e->measured;
            if (o != NULL)
                largest = fmax(largest, of(o));
        }
    }
    return largest;
}

static double peak_of(const sf_outcome *o)
{
    return o->memory.peak_allocated_bytes > 0 ? (double)o->memory.peak_allocated_bytes : -1;
}

static double comm_of(const sf_outcome *o)
{
    double sum = 0;
    for (size_t i = 0; i < o->n_comm; i++)
        sum += (double)o->comm[i].bytes_per_rank;
    return o->memory.oom_request_bytes > 0 ? -1 : sum;
}

static double step_of(const sf_outcome *o)
{
    return o->time.step_s;
}

static void number_cell(sf_table *t, double x, double size, int decimals)
{
    if (!(x >= 0))
        sf_table_cell(t, SF_TONE_FAINT, "-");
    else
        sf_table_cell(t, SF_TONE_PLAIN, "%.*f", decimals, x / size);
}

/* predicted, measured: the second column only in a report with measurements. */
static void pair_cells(sf_table *t, const sf_report_entry *e, bool measured, double (*of)(const sf_outcome *o), sf_scale s)
{
    number_cell(t, e->predicted == NULL ? -1 : of(e->predicted), s.size, s.decimals);
    if (measured)
        number_cell(t, e->measured == NULL ? -1 : of(e->measured), s.size, s.decimals);
}

static void pair_columns(sf_table *t, bool measured, const char *name, const char *unit, sf_arena *arena)
{
    sf_table_column(t, SF_RIGHT, measured ? sf_arena_printf(arena, "%s predicted", name) : name, unit);
    if (measured)
        sf_table_column(t, SF_RIGHT, "measured", unit);
}

static void fits_cell(sf_table *t, const sf_report_entry *e)
{
    const sf_outcome *o = sf_report_shown(e);
    if (e->failure != NULL)
        sf_table_cell(t, SF_TONE_BAD, "failed");
    else if (o == NULL)
        sf_table_cell(t, SF_TONE_FAINT, "-");
    else
        sf_table_cell(t, o->fits ? SF_TONE_GOOD : SF_TONE_BAD, "%s", o->fits ? "yes" : "no");
}

static void error_cell(sf_table *t, const sf_report *report, const sf_report_entry *e)
{
    double error = e->comparison.step_error;
    sf_tone tone = isnan(error) ? SF_TONE_FAINT : fabs(error) > report->time_bar ? SF_TONE_BAD : SF_TONE_GOOD;
    sf_table_cell(t, tone, "%s", sf_percent_text(error).text);
}

static void counts_cell(sf_table *t, const sf_report_entry *e)
{
    const sf_comparison *cmp = &e->comparison;
    if (!both(e))
        sf_table_cell(t, SF_TONE_FAINT, "-");
    else if (cmp->n_equal == cmp->n_exact)
        sf_table_cell(t, SF_TONE_GOOD, "%zu of %zu", cmp->n_equal, cmp->n_exact);
    else
        sf_table_cell(t, SF_TONE_BAD, "%zu of %zu", cmp->n_equal, cmp->n_exact);
}

void sf_report_summary(const sf_report *report, sf_arena *arena, sf_table *t)
{
    bool measured = sf_report_measured(report);
    sf_scale bytes = sf_scale_bytes(largest_of(report, peak_of)), comm = sf_scale_bytes(largest_of(report, comm_of));
    sf_scale seconds = sf_scale_seconds(largest_of(report, step_of));
    sf_table_start(t, arena, NULL);
    sf_table_column(t, SF_LEFT, "strategy", NULL);
    sf_table_column(t, SF_LEFT, "fits", NULL);
    pair_columns(t, measured, "step", seconds.name, arena);
    if (measured)
        sf_table_column(t, SF_RIGHT, "error", NULL);
    sf_table_column(t, SF_RIGHT, "tokens/s", NULL);
    pair_columns(t, measured, "peak", bytes.name, arena);
    pair_columns(t, measured, "comm", comm.name, arena);
    if (measured)
        sf_table_column(t, SF_RIGHT, "counts equal", NULL);
    sf_table_column(t, SF_LEFT, "bound by", NULL);
    for (size_t i = 0; i < report->n_entries; i++) {
        const sf_report_entry *e = &report->entries[i];
        const sf_outcome *o = sf_report_shown(e);
        sf_table_row(t);
        sf_table_cell(t, SF_TONE_STRONG, "%s", e->title);
        fits_cell(t, e);
        pair_cells(t, e, measured, step_of, seconds);
        if (measured)
            error_cell(t, report, e);
        number_cell(t, o == NULL ? -1 : sf_outcome_tokens_per_s(o), 1, 0);
        pair_cells(t, e, measured, peak_of, bytes);
        pair_cells(t, e, measured, comm_of, comm);
        if (measured)
            counts_cell(t, e);
        sf_table_cell(t, SF_TONE_PLAIN, "%s", o == NULL || o->time.bound_by == NULL ? "-" : o->time.bound_by);
    }
}

static void flatten(const json_t *value, const char *name, sf_arena *arena, sf_table *t)
{
    const char *key;
    json_t *v;
    if (json_is_object(value)) {
        json_object_foreach((json_t *)(uintptr_t)value, key, v)
            flatten(v, name[0] == '\0' ? key : sf_arena_printf(arena, "%s.%s", name, key), arena, t);
        return;
    }
    sf_table_row(t);
    sf_table_cell(t, SF_TONE_PLAIN, "%s", name);
    if (json_is_string(value)) {
        sf_table_cell(t, SF_TONE_PLAIN, "%s", json_string_value(value));
        return;
    }
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    sf_table_cell(t, SF_TONE_PLAIN, "%s", text == NULL ? "-" : text);
    free(text);
}

void sf_report_provenance(const sf_report *report, sf_arena *arena, sf_table *t)
{
    sf_table_start(t, arena, NULL);
    sf_table_column(t, SF_LEFT, "what", NULL);
    sf_table_column(t, SF_LEFT, "value", NULL);
    if (report->provenance != NULL)
        flatten(report->provenance, "", arena, t);
}
