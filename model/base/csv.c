#include "model/base/csv.h"

#include <stdbool.h>
#include <string.h>

#include "model/base/text.h"

/* One field starting at *at; leaves *at behind its comma or on the line end. */
static sf_status field(const char **at, const char *place, int line, sf_arena *arena, const char **out)
{
    const char *s = *at;
    if (*s != '"') {
        size_t len = strcspn(s, ",\r\n");
        *out = sf_arena_strndup(arena, s, len);
        *at = s + len;
        return SF_SUCCESS;
    }
    char *copy = sf_arena_alloc(arena, strlen(s) + 1);
    size_t n = 0;
    for (s++;; s++) {
        if (*s == '\0')
            return SF_FAIL(SF_EPARSE, "%s:%d: a quoted field is never closed", place, line);
        if (*s == '"' && *++s != '"')
            break;
        copy[n++] = *s;
    }
    *out = copy;
    *at = s;
    return SF_SUCCESS;
}

sf_status sf_csv_parse(const char *text, const char *place, sf_arena *arena, sf_csv *out)
{
    const char *at = text;
    int line = 0;

    *out = (sf_csv){ 0 };
    if ((unsigned char)at[0] == 0xEF && (unsigned char)at[1] == 0xBB && (unsigned char)at[2] == 0xBF)
        at += 3; /* a byte-order mark */
    while (*at != '\0') {
        enum { MOST_COLUMNS = 512 };
        const char **row = SF_NEW_ARRAY(arena, const char *, out->header == NULL ? MOST_COLUMNS : out->n_columns);
        int n = 0, most = out->header == NULL ? MOST_COLUMNS : out->n_columns;
        line++;
        for (;;) {
            const char *value = "";
            SF_TRY(field(&at, place, line, arena, &value));
            if (n == most)
                return SF_FAIL(SF_EPARSE, "%s:%d: more than the header's %d fields", place, line, most);
            row[n++] = value;
            if (*at != ',')
                break;
            at++;
        }
        if (*at != '\0' && *at != '\r' && *at != '\n')
            return SF_FAIL(SF_EPARSE, "%s:%d: text follows a quoted field", place, line);
        if (*at == '\r')
            at++;
        if (*at == '\n')
            at++;
        if (n == 1 && row[0][0] == '\0')
            continue; /* an empty line */
        if (out->header == NULL) {
            out->header = row;
            out->n_columns = n;
            continue;
        }
        while (n < out->n_columns)
            row[n++] = "";
        SF_PUSH(arena, out->rows, out->n_rows, out->cap_rows) = row;
    }
    if (out->header == NULL)
        return SF_FAIL(SF_EPARSE, "%s: the table is empty", place);
    return SF_SUCCESS;
}

sf_status sf_csv_read(const char *path, sf_arena *arena, sf_csv *out)
{
    enum { MOST_BYTES = 256 << 20 };
    char *text = NULL;
    SF_TRY(sf_file_read(path, MOST_BYTES, arena, &text, NULL));
    return sf_csv_parse(text, path, arena, out);
}

int sf_csv_column(const sf_csv *csv, const char *name)
{
    for (int i = 0; i < csv->n_columns; i++)
        if (strcmp(csv->header[i], name) == 0)
            return i;
    return -1;
}

const char *sf_csv_field(const sf_csv *csv, size_t row, const char *column)
{
    int i = sf_csv_column(csv, column);
    return i < 0 ? "" : csv->rows[row][i];
}
