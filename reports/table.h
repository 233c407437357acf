/* reports/table.h: a table of texts, written as aligned text, Markdown, CSV or HTML.
 *
 * Units   belong to the column and are printed in the header row: "peak (MiB)".
 * Tones   say how a cell should strike the eye: colours on a terminal, classes in HTML, nothing in
 *         Markdown and CSV.
 * Width   of UTF-8 texts is counted in code points.
 * Owner   everything lives in the arena given to sf_table_start.
 */
#ifndef SF_REPORTS_TABLE_H
#define SF_REPORTS_TABLE_H

#include <stdarg.h>
#include <stdio.h>

#include "model/base/arena.h"
#include "model/base/text.h"

typedef enum { SF_LEFT, SF_RIGHT } sf_align;
typedef enum { SF_TONE_PLAIN, SF_TONE_STRONG, SF_TONE_FAINT, SF_TONE_GOOD, SF_TONE_WARN, SF_TONE_BAD, SF_TONE_COUNT } sf_tone;

typedef struct {
    const char *text;
    sf_tone tone;
} sf_cell;

typedef struct {
    const char *name, *unit; /* unit NULL: none */
    sf_align align;
} sf_column;

typedef struct {
    sf_arena *arena;
    const char *title;
    sf_column *columns;
    size_t n_columns, cap_columns;
    sf_cell *cells; /* row after row; a short last row is padded when the next one starts */
    size_t n_cells, cap_cells, n_rows;
} sf_table;

void sf_table_start(sf_table *table, sf_arena *arena, const char *title); /* title NULL: none */
/* All columns before the first row. */
void sf_table_column(sf_table *table, sf_align align, const char *name, const char *unit);
void sf_table_row(sf_table *table);
/* The next cell of the row; more cells than columns are a programming error (assert). */
void sf_table_cell(sf_table *table, sf_tone tone, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
const sf_cell *sf_table_at(const sf_table *table, size_t row, size_t column);

void sf_table_text(const sf_table *table, bool colour, sf_text *out);
void sf_table_markdown(const sf_table *table, sf_text *out);
/* As RFC 4180 (header row, quotes where needed), but lines end in LF. */
void sf_table_csv(const sf_table *table, sf_text *out);
void sf_table_html(const sf_table *table, sf_text *out);

/* Are colours wanted on this stream: a terminal that can, and no NO_COLOR (no-color.org). */
bool sf_colour_wanted(FILE *stream);
/* Escapes what HTML needs escaped in text and attributes. */
void sf_html_escape(const char *text, sf_text *out);
/* Code points of a UTF-8 text. */
size_t sf_text_width(const char *text);

#endif
