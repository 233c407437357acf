/* reports/compare.h: a predicted and a measured outcome, joined quantity by quantity.
 *
 * Units   bytes, calls, seconds, tokens per second, as each row's unit says. NaN: not known on that side.
 * Exact   rows of what our executor counts (bytes per category, calls and bytes per collective, the
 *         allocation that did not fit) must be equal; times have errors.
 * Error   (predicted - measured) / measured; NaN where it has no meaning.
 */
#ifndef SF_REPORTS_COMPARE_H
#define SF_REPORTS_COMPARE_H

#include "model/base/arena.h"
#include "model/base/units.h"
#include "model/program/outcome.h"
#include "reports/table.h"

#define SF_SECTIONS(X)                                                                             \
    X(MEMORY, "memory", "Memory of the fullest rank")                                              \
    X(COMM, "communication", "Collectives of one rank in one step")                                \
    X(TIME, "time", "Where the step's time goes")                                                  \
    X(OPS, "ops", "Busy time by op")                                                               \
    X(RATE, "throughput", "Throughput")
#define SF_AS_ENUM(id, name, title) SF_SECTION_##id,
typedef enum { SF_SECTIONS(SF_AS_ENUM) SF_SECTION_COUNT } sf_section;
#undef SF_AS_ENUM

const char *sf_section_name(sf_section section);

typedef enum { SF_UNIT_BYTES, SF_UNIT_CALLS, SF_UNIT_SECONDS, SF_UNIT_RATE, SF_UNIT_FRACTION, SF_UNIT_NUMBER } sf_unit;
const char *sf_unit_name(sf_unit unit); /* "bytes", "calls", "s", "tokens/s", "fraction", "number" */

typedef struct {
    sf_section section;
    const char *name; /* "at peak: parameters", "all_gather world: calls", "step" */
    sf_unit unit;
    double predicted, measured;
    bool exact;
} sf_compare_row;

typedef struct {
    sf_compare_row *rows;
    size_t n_rows, cap_rows;
    size_t n_exact, n_equal; /* exact rows known on both sides; those that are equal */
    double step_error;       /* of the step's time; NaN: not known                   */
    double memory_error;     /* of a framework's reserved memory; NaN: not known     */
} sf_comparison;

/* Either outcome may be NULL. Rows that are 0 or not known on both sides are left out. */
void sf_compare(const sf_outcome *predicted, const sf_outcome *measured, sf_arena *arena, sf_comparison *out);

double sf_compare_error(const sf_compare_row *row);

/* One section as a table; a size or time unit is chosen once for the section. */
void sf_compare_table(const sf_comparison *comparison, sf_section section, sf_arena *arena, sf_table *out);

/* Adds raw rows: entry, section, quantity, unit, predicted, measured, difference, relative_error, exact. */
void sf_compare_csv_start(sf_table *table, sf_arena *arena);
void sf_compare_csv_add(sf_table *table, const char *entry, const sf_comparison *comparison);

/* The unit in which a largest value reads best, and its size: GiB, MiB, KiB, B; s, ms, us. */
typedef struct {
    const char *name;
    double size;
    int decimals;
} sf_scale;
sf_scale sf_scale_bytes(double largest);
sf_scale sf_scale_seconds(double largest);

/* "+3.2 %", "0 %", "-" where not known. */
sf_short sf_percent_text(double fraction);

#endif
