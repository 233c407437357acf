/* model/base/csv.h: reading comma-separated tables with a header row and double-quoted fields
 * (RFC 4180: "" is a quote inside quotes; a quoted field may hold commas and line ends).
 */
#ifndef SF_BASE_CSV_H
#define SF_BASE_CSV_H

#include "model/base/arena.h"
#include "model/base/status.h"

typedef struct {
    const char **header;
    int n_columns;
    const char ***rows; /* rows[i][column]; short rows are filled with "" */
    size_t n_rows, cap_rows;
} sf_csv;

sf_status sf_csv_parse(const char *text, const char *place, sf_arena *arena, sf_csv *out);
sf_status sf_csv_read(const char *path, sf_arena *arena, sf_csv *out);

int sf_csv_column(const sf_csv *csv, const char *name); /* -1 if there is none */
/* The field of that column, or "" where the table has no such column. */
const char *sf_csv_field(const sf_csv *csv, size_t row, const char *column);

#endif
