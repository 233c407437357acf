#include "reports/compare.h"

#include <math.h>
#include <string.h>

#define AS_NAME(id, name, title) name,
#define AS_TITLE(id, name, title) title,
static const char *const section_names[SF_SECTION_COUNT] = { SF_SECTIONS(AS_NAME) };
static const char *const section_titles[SF_SECTION_COUNT] = { SF_SECTIONS(AS_TITLE) };
#undef AS_NAME
#undef AS_TITLE

const char *sf_section_name(sf_section section)
{
    return section_names[section];
}

const char *sf_unit_name(sf_unit unit)
{
    static const char *const names[] = { "bytes", "calls", "s", "tokens/s", "fraction", "number" };
    return names[unit];
}

/* ---- joining ---- */

typedef struct {
    sf_arena *arena;
    sf_comparison *out;
    const sf_outcome *predicted, *measured;
} joiner;

static double known(double x)
{
    return x >= 0 ? x : (double)NAN;
}

static void add(joiner *j, sf_section section, sf_unit unit, bool exact, double predicted, double measured, const char *name)
{
    bool nothing = !(predicted != 0 && !isnan(predicted)) && !(measured != 0 && !isnan(measured));
    if (nothing)
        return;
    sf_compare_row row = { section, name, unit, predicted, measured, exact };
    SF_PUSH(j->arena, j->out->rows, j->out->n_rows, j->out->cap_rows) = row;
    if (exact && !isnan(predicted) && !isnan(measured)) {
        j->out->n_exact++;
        j->out->n_equal += predicted == measured;
    }
}

/* A field of both outcomes; `known_if` says from `o` whether it is known. */
#define FIELD(j, section, unit, exact, name, known_if, field)                                      \
    do {                                                                                           \
        const sf_outcome *o;                                                                       \
        double sides[2];                                                                           \
        for (int side_ = 0; side_ < 2; side_++) {                                                  \
            o = side_ == 0 ? (j)->predicted : (j)->measured;                                       \
            sides[side_] = o != NULL && (known_if) ? known((double)(field)) : (double)NAN;         \
        }                                                                                          \
        add((j), (section), (unit), (exact), sides[0], sides[1], (name));                          \
    } while (0)

static bool out_of_memory(const sf_outcome *o)
{
    return o != NULL && o->memory.oom_request_bytes > 0;
}

/* Our executor counts what each category has; a framework's run knows its allocator's totals, against which the prediction has an
 * error. */
static bool itemised(const sf_outcome *o)
{
    for (int c = 0; c < SF_CAT_COUNT; c++)
        if (o->memory.at_peak[c] > 0)
            return true;
    return false;
}

static bool timed_by_op(const sf_outcome *o)
{
    for (int i = 0; i < SF_OP_COUNT; i++)
        if (o->time.op_s[i] > 0)
            return true;
    return false;
}

/* After an allocation that did not fit, a run has no peak to hold against that of the whole step: the
 * failing allocation itself is compared. */
static void join_memory(joiner *j)
{
    bool whole = !out_of_memory(j->predicted) && !out_of_memory(j->measured);
    bool ours = j->measured == NULL || itemised(j->measured);
    FIELD(j, SF_SECTION_MEMORY, SF_UNIT_BYTES, whole && ours, "peak allocated", o->memory.peak_allocated_bytes > 0, o->memory.peak_allocated_bytes);
    for (int c = 0; c < SF_CAT_COUNT; c++)
        FIELD(j, SF_SECTION_MEMORY, SF_UNIT_BYTES, whole, sf_arena_printf(j->arena, "at peak: %s", sf_category_name((sf_category)c)),
              itemised(o), o->memory.at_peak[c]);
    for (int c = 0; c < SF_CAT_COUNT; c++)
        FIELD(j, SF_SECTION_MEMORY, SF_UNIT_BYTES, whole, sf_arena_printf(j->arena, "own peak: %s", sf_category_name((sf_category)c)),
              itemised(o), o->memory.peak_bytes[c]);
    FIELD(j, SF_SECTION_MEMORY, SF_UNIT_BYTES, whole && ours, "host memory", itemised(o), o->memory.host_bytes);
    FIELD(j, SF_SECTION_MEMORY, SF_UNIT_BYTES, false, "peak reserved", o->memory.peak_reserved_bytes > 0, o->memory.peak_reserved_bytes);
    FIELD(j, SF_SECTION_MEMORY, SF_UNIT_BYTES, false, "device used", o->memory.device_used_bytes > 0, o->memory.device_used_bytes);
    if (whole)
        return;
    FIELD(j, SF_SECTION_MEMORY, SF_UNIT_BYTES, true, "does not fit: allocation", true, o->memory.oom_request_bytes);
    FIELD(j, SF_SECTION_MEMORY, SF_UNIT_BYTES, true, "does not fit: resident before it", true, o->memory.oom_resident_bytes);
    FIELD(j, SF_SECTION_MEMORY, SF_UNIT_NUMBER, true, "does not fit: place in the step", true, o->memory.oom_seq);
}

static const sf_outcome_comm *find_comm(const sf_outcome *o, sf_op_type op, sf_group group)
{
    for (size_t i = 0; o != NULL && i < o->n_comm; i++)
        if (o->comm[i].collective == op && o->comm[i].group == group)
            return &o->comm[i];
    return NULL;
}

static void join_comm(joiner *j)
{
    for (int op = 0; op < SF_OP_COUNT; op++)
        for (int g = 0; g < SF_GROUP_COUNT; g++) {
            const sf_outcome_comm *p = find_comm(j->predicted, (sf_op_type)op, (sf_group)g);
            const sf_outcome_comm *m = find_comm(j->measured, (sf_op_type)op, (sf_group)g);
            if (p == NULL && m == NULL)
                continue;
            /* A run that did not finish a step has no counts to hold against the prediction. */
            bool p_known = j->predicted != NULL, m_known = j->measured != NULL && j->measured->time.step_s >= 0;
            bool p_timed = p_known && j->predicted->time.step_s >= 0;
            bool m_timed = m_known && timed_by_op(j->measured);
            const char *name = sf_arena_printf(j->arena, "%s %s", sf_op_name((sf_op_type)op), sf_group_name((sf_group)g));
            add(j, SF_SECTION_COMM, SF_UNIT_CALLS, true, p_known ? (p ? (double)p->calls : 0) : (double)NAN,
                m_known ? (m ? (double)m->calls : 0) : (double)NAN, sf_arena_printf(j->arena, "%s: calls", name));
            add(j, SF_SECTION_COMM, SF_UNIT_BYTES, true, p_known ? (p ? (double)p->bytes_per_rank : 0) : (double)NAN,
                m_known ? (m ? (double)m->bytes_per_rank : 0) : (double)NAN, sf_arena_printf(j->arena, "%s: bytes", name));
            add(j, SF_SECTION_COMM, SF_UNIT_SECONDS, false, p_timed ? (p ? p->time_s : 0) : (double)NAN,
                m_timed ? (m ? m->time_s : 0) : (double)NAN, sf_arena_printf(j->arena, "%s: time", name));
            add(j, SF_SECTION_COMM, SF_UNIT_SECONDS, false, p_timed ? (p ? p->exposed_s : 0) : (double)NAN,
                m_timed ? (m ? m->exposed_s : 0) : (double)NAN, sf_arena_printf(j->arena, "%s: exposed", name));
        }
}

static void join_time(joiner *j)
{
    FIELD(j, SF_SECTION_TIME, SF_UNIT_SECONDS, false, "step", true, o->time.step_s);
    for (int p = 0; p < SF_PHASE_COUNT; p++)
        FIELD(j, SF_SECTION_TIME, SF_UNIT_SECONDS, false, sf_phase_name((sf_phase)p), true, o->time.phase_s[p]);
    FIELD(j, SF_SECTION_TIME, SF_UNIT_SECONDS, false, "exposed communication", true, o->time.exposed_comm_s);
    FIELD(j, SF_SECTION_TIME, SF_UNIT_SECONDS, false, "idle", true, o->time.idle_s);
    for (int k = 0; k < SF_KIND_COUNT; k++)
        FIELD(j, SF_SECTION_TIME, SF_UNIT_SECONDS, false,
              sf_arena_printf(j->arena, "busy: %s", sf_op_kind_name((sf_op_kind)k)), timed_by_op(o), o->time.kind_s[k]);
    for (int i = 0; i < SF_OP_COUNT; i++)
        FIELD(j, SF_SECTION_OPS, SF_UNIT_SECONDS, false, sf_op_name((sf_op_type)i), timed_by_op(o), o->time.op_s[i]);
    FIELD(j, SF_SECTION_RATE, SF_UNIT_RATE, false, "tokens/s, all ranks", true, sf_outcome_tokens_per_s(o));
    FIELD(j, SF_SECTION_RATE, SF_UNIT_FRACTION, false, "model FLOP utilisation", true, o->mfu);
    FIELD(j, SF_SECTION_RATE, SF_UNIT_FRACTION, false, "hardware FLOP utilisation", true, o->hfu);
}

void sf_compare(const sf_outcome *predicted, const sf_outcome *measured, sf_arena *arena, sf_comparison *out)
{
    joiner j = { arena, out, predicted, measured };
    *out = (sf_comparison){ .step_error = (double)NAN, .memory_error = (double)NAN };
    join_memory(&j);
    join_comm(&j);
    join_time(&j);
    for (size_t i = 0; i < out->n_rows; i++)
        if (out->rows[i].section == SF_SECTION_TIME && strcmp(out->rows[i].name, "step") == 0)
            out->step_error = sf_compare_error(&out->rows[i]);
    for (size_t i = 0; measured != NULL && !itemised(measured) && i < out->n_rows; i++)
        if (out->rows[i].section == SF_SECTION_MEMORY && !out->rows[i].exact && strcmp(out->rows[i].name, "peak reserved") == 0)
            out->memory_error = sf_compare_error(&out->rows[i]);
}

double sf_compare_error(const sf_compare_row *row)
{
    if (isnan(row->predicted) || isnan(row->measured))
        return (double)NAN;
    if (row->measured == 0)
        return row->predicted == 0 ? 0 : (double)NAN;
    return (row->predicted - row->measured) / row->measured;
}

/* ---- showing ---- */

sf_scale sf_scale_bytes(double largest)
{
    return largest >= (double)SF_GIB   ? (sf_scale){ "GiB", (double)SF_GIB, 2 }
           : largest >= (double)SF_MIB ? (sf_scale){ "MiB", (double)SF_MIB, 2 }
           : largest >= (double)SF_KIB ? (sf_scale){ "KiB", (double)SF_KIB, 2 }
                                       : (sf_scale){ "B", 1, 0 };
}

sf_scale sf_scale_seconds(double largest)
{
    return largest >= 10     ? (sf_scale){ "s", 1, 3 }
           : largest >= 1e-3 ? (sf_scale){ "ms", 1e-3, 2 }
                             : (sf_scale){ "us", 1e-6, 1 };
}

sf_short sf_percent_text(double fraction)
{
    sf_short s;
    double percent = fraction * 100;
    if (isnan(percent) || isinf(percent))
        snprintf(s.text, sizeof s.text, "-");
    else if (percent == 0)
        snprintf(s.text, sizeof s.text, "0 %%");
    else if (fabs(percent) < 0.05)
        snprintf(s.text, sizeof s.text, "%c0.0 %%", percent < 0 ? '-' : '+');
    else
        snprintf(s.text, sizeof s.text, fabs(percent) < 100 ? "%+.1f %%" : "%+.0f %%", percent);
    return s;
}

static sf_scale scale_of(const sf_comparison *cmp, sf_section section, sf_unit unit)
{
    double largest = 0;
    for (size_t i = 0; i < cmp->n_rows; i++) {
        const sf_compare_row *r = &cmp->rows[i];
        if (r->section == section && r->unit == unit)
            largest = fmax(largest, fmax(r->predicted, r->measured)); /* fmax drops NaN */
    }
    switch (unit) {
    case SF_UNIT_BYTES: return sf_scale_bytes(largest);
    case SF_UNIT_SECONDS: return sf_scale_seconds(largest);
    case SF_UNIT_FRACTION: return (sf_scale){ "%", 0.01, 1 };
    case SF_UNIT_RATE: return (sf_scale){ "tokens/s", 1, largest >= 1000 ? 0 : 1 };
    case SF_UNIT_CALLS: return (sf_scale){ "calls", 1, 0 };
    case SF_UNIT_NUMBER: break;
    }
    return (sf_scale){ "", 1, 0 };
}

static void value_cell(sf_table *t, double x, sf_scale scale)
{
    if (isnan(x))
        sf_table_cell(t, SF_TONE_FAINT, "-");
    else
        sf_table_cell(t, SF_TONE_PLAIN, "%.*f", scale.decimals, x / scale.size);
}

static void difference_cell(sf_table *t, const sf_compare_row *r)
{
    double error = sf_compare_error(r);
    if (isnan(r->predicted) || isnan(r->measured))
        sf_table_cell(t, SF_TONE_FAINT, "-");
    else if (r->exact && r->predicted == r->measured)
        sf_table_cell(t, SF_TONE_GOOD, "equal");
    else if (r->exact)
        sf_table_cell(t, SF_TONE_BAD, "%+.0f %s", r->predicted - r->measured, sf_unit_name(r->unit));
    else
        sf_table_cell(t, SF_TONE_PLAIN, "%s", sf_percent_text(error).text);
}

void sf_compare_table(const sf_comparison *cmp, sf_section section, sf_arena *arena, sf_table *out)
{
    sf_table_start(out, arena, section_titles[section]);
    sf_table_column(out, SF_LEFT, "quantity", NULL);
    sf_table_column(out, SF_LEFT, "unit", NULL);
    sf_table_column(out, SF_RIGHT, "predicted", NULL);
    sf_table_column(out, SF_RIGHT, "measured", NULL);
    sf_table_column(out, SF_RIGHT, "difference", NULL);
    for (size_t i = 0; i < cmp->n_rows; i++) {
        const sf_compare_row *r = &cmp->rows[i];
        if (r->section != section)
            continue;
        sf_scale scale = scale_of(cmp, section, r->unit);
        sf_table_row(out);
        sf_table_cell(out, SF_TONE_PLAIN, "%s", r->name);
        sf_table_cell(out, SF_TONE_FAINT, "%s", scale.name);
        value_cell(out, r->predicted, scale);
        value_cell(out, r->measured, scale);
        difference_cell(out, r);
    }
}

void sf_compare_csv_start(sf_table *t, sf_arena *arena)
{
    static const char *const heads[] = { "entry",    "section",    "quantity",       "unit", "predicted",
                                         "measured", "difference", "relative_error", "exact" };
    sf_table_start(t, arena, NULL);
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        sf_table_column(t, SF_LEFT, heads[i], NULL);
}

/* Whole numbers in full, others with 9 digits; empty where not known. */
static void raw_cell(sf_table *t, double x)
{
    if (isnan(x))
        sf_table_cell(t, SF_TONE_PLAIN, "%s", "");
    else if (x == floor(x) && fabs(x) < 9007199254740992.0) /* 2^53 */
        sf_table_cell(t, SF_TONE_PLAIN, "%.0f", x);
    else
        sf_table_cell(t, SF_TONE_PLAIN, "%.9g", x);
}

void sf_compare_csv_add(sf_table *t, const char *entry, const sf_comparison *cmp)
{
    for (size_t i = 0; i < cmp->n_rows; i++) {
        const sf_compare_row *r = &cmp->rows[i];
        sf_table_row(t);
        sf_table_cell(t, SF_TONE_PLAIN, "%s", entry);
        sf_table_cell(t, SF_TONE_PLAIN, "%s", section_names[r->section]);
        sf_table_cell(t, SF_TONE_PLAIN, "%s", r->name);
        sf_table_cell(t, SF_TONE_PLAIN, "%s", sf_unit_name(r->unit));
        raw_cell(t, r->predicted);
        raw_cell(t, r->measured);
        raw_cell(t, r->predicted - r->measured);
        raw_cell(t, sf_compare_error(r));
        sf_table_cell(t, SF_TONE_PLAIN, "%s", r->exact ? "yes" : "no");
    }
}
