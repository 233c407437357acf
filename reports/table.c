#include "reports/table.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const escapes[SF_TONE_COUNT] = { "", "\033[1m", "\033[2m", "\033[32m", "\033[33m", "\033[31m" };
static const char *const classes[SF_TONE_COUNT] = { "", "strong", "faint", "good", "warn", "bad" };

void sf_table_start(sf_table *table, sf_arena *arena, const char *title)
{
    *table = (sf_table){ .arena = arena, .title = title == NULL ? NULL : sf_arena_strdup(arena, title) };
}

void sf_table_column(sf_table *t, sf_align align, const char *name, const char *unit)
{
    assert(t->n_rows == 0);
    sf_column column = { sf_arena_strdup(t->arena, name), unit == NULL ? NULL : sf_arena_strdup(t->arena, unit), align };
    SF_PUSH(t->arena, t->columns, t->n_columns, t->cap_columns) = column;
}

static void pad(sf_table *t)
{
    while (t->n_cells < t->n_rows * t->n_columns)
        SF_PUSH(t->arena, t->cells, t->n_cells, t->cap_cells) = (sf_cell){ "", SF_TONE_PLAIN };
}

void sf_table_row(sf_table *t)
{
    pad(t);
    t->n_rows++;
}

void sf_table_cell(sf_table *t, sf_tone tone, const char *fmt, ...)
{
    assert(t->n_cells < t->n_rows * t->n_columns);
    sf_text text = { 0 };
    va_list args;
    va_start(args, fmt);
    sf_text_vadd(&text, fmt, args);
    va_end(args);
    SF_PUSH(t->arena, t->cells, t->n_cells, t->cap_cells) = (sf_cell){ sf_arena_strdup(t->arena, sf_text_str(&text)), tone };
    sf_text_free(&text);
}

const sf_cell *sf_table_at(const sf_table *t, size_t row, size_t column)
{
    static const sf_cell empty = { "", SF_TONE_PLAIN };
    size_t i = row * t->n_columns + column;
    return i < t->n_cells ? &t->cells[i] : &empty;
}

size_t sf_text_width(const char *text)
{
    size_t n = 0;
    for (; *text != '\0'; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80; /* continuation bytes of UTF-8 are 10xxxxxx */
    return n;
}

static const char *heading(const sf_table *t, size_t column)
{
    const sf_column *c = &t->columns[column];
    return c->unit == NULL ? c->name : sf_arena_printf(t->arena, "%s (%s)", c->name, c->unit);
}

static void put_aligned(sf_text *out, const char *text, sf_align align, size_t width, const char *before, const char *after)
{
    int fill = (int)(width - sf_text_width(text));
    sf_text_add(out, "%*s%s%s%s%*s", align == SF_RIGHT ? fill : 0, "", before, text, after, align == SF_LEFT ? fill : 0, "");
}

static void trim_line(sf_text *out)
{
    while (out->len > 0 && out->data[out->len - 1] == ' ')
        out->data[--out->len] = '\0';
    sf_text_add(out, "\n");
}

void sf_table_text(const sf_table *t, bool colour, sf_text *out)
{
    size_t *width = SF_NEW_ARRAY(t->arena, size_t, t->n_columns);
    if (t->title != NULL)
        sf_text_add(out, "%s%s%s\n", colour ? escapes[SF_TONE_STRONG] : "", t->title, colour ? "\033[0m" : "");
    for (size_t c = 0; c < t->n_columns; c++) {
        width[c] = sf_text_width(heading(t, c));
        for (size_t r = 0; r < t->n_rows; r++) {
            size_t w = sf_text_width(sf_table_at(t, r, c)->text);
            width[c] = w > width[c] ? w : width[c];
        }
    }
    for (size_t c = 0; c < t->n_columns; c++) {
        sf_text_add(out, "  ");
        put_aligned(out, heading(t, c), t->columns[c].align, width[c], colour ? "\033[4m" : "", colour ? "\033[0m" : "");
    }
    trim_line(out);
    for (size_t r = 0; r < t->n_rows; r++) {
        for (size_t c = 0; c < t->n_columns; c++) {
            const sf_cell *cell = sf_table_at(t, r, c);
            bool toned = colour && cell->tone != SF_TONE_PLAIN;
            sf_text_add(out, "  ");
            put_aligned(out, cell->text, t->columns[c].align, width[c], toned ? escapes[cell->tone] : "", toned ? "\033[0m" : "");
        }
        trim_line(out);
    }
}

static void put_markdown(sf_text *out, const char *text)
{
    sf_text_add(out, " ");
    for (; *text != '\0'; text++)
        sf_text_add(out, *text == '|' ? "\\|" : *text == '\n' ? " " : "%c", *text);
    sf_text_add(out, " |");
}

void sf_table_markdown(const sf_table *t, sf_text *out)
{
    if (t->title != NULL)
        sf_text_add(out, "**%s**\n\n", t->title);
    sf_text_add(out, "|");
    for (size_t c = 0; c < t->n_columns; c++)
        put_markdown(out, heading(t, c));
    sf_text_add(out, "\n|");
    for (size_t c = 0; c < t->n_columns; c++)
        sf_text_add(out, t->columns[c].align == SF_RIGHT ? " ---: |" : " --- |");
    sf_text_add(out, "\n");
    for (size_t r = 0; r < t->n_rows; r++) {
        sf_text_add(out, "|");
        for (size_t c = 0; c < t->n_columns; c++)
            put_markdown(out, sf_table_at(t, r, c)->text);
        sf_text_add(out, "\n");
    }
}

static void put_csv(sf_text *out, const char *text, bool first)
{
    if (!first)
        sf_text_add(out, ",");
    if (strpbrk(text, ",\"\r\n") == NULL) {
        sf_text_append(out, text, strlen(text));
        return;
    }
    sf_text_add(out, "\"");
    for (; *text != '\0'; text++)
        sf_text_add(out, *text == '"' ? "\"\"" : "%c", *text);
    sf_text_add(out, "\"");
}

void sf_table_csv(const sf_table *t, sf_text *out)
{
    for (size_t c = 0; c < t->n_columns; c++)
        put_csv(out, heading(t, c), c == 0);
    sf_text_add(out, "\n");
    for (size_t r = 0; r < t->n_rows; r++) {
        for (size_t c = 0; c < t->n_columns; c++)
            put_csv(out, sf_table_at(t, r, c)->text, c == 0);
        sf_text_add(out, "\n");
    }
}

void sf_html_escape(const char *text, sf_text *out)
{
    for (; *text != '\0'; text++)
        switch (*text) {
        case '&': sf_text_add(out, "&amp;"); break;
        case '<': sf_text_add(out, "&lt;"); break;
        case '>': sf_text_add(out, "&gt;"); break;
        case '"': sf_text_add(out, "&quot;"); break;
        case '\'': sf_text_add(out, "&#39;"); break;
        default: sf_text_append(out, text, 1);
        }
}

static void put_html(sf_text *out, const char *tag, const char *text, sf_align align, sf_tone tone)
{
    sf_text_add(out, "<%s", tag);
    if (align == SF_RIGHT || tone != SF_TONE_PLAIN)
        sf_text_add(out, " class=\"%s%s%s\"", align == SF_RIGHT ? "num" : "", align == SF_RIGHT && tone != SF_TONE_PLAIN ? " " : "",
                    classes[tone]);
    sf_text_add(out, ">");
    sf_html_escape(text, out);
    sf_text_add(out, "</%.2s>", tag);
}

void sf_table_html(const sf_table *t, sf_text *out)
{
    sf_text_add(out, "<div class=\"scroll\"><table>\n");
    if (t->title != NULL) {
        sf_text_add(out, "<caption>");
        sf_html_escape(t->title, out);
        sf_text_add(out, "</caption>\n");
    }
    sf_text_add(out, "<thead><tr>");
    for (size_t c = 0; c < t->n_columns; c++)
        put_html(out, "th scope=\"col\"", heading(t, c), t->columns[c].align, SF_TONE_PLAIN);
    sf_text_add(out, "</tr></thead>\n<tbody>\n");
    for (size_t r = 0; r < t->n_rows; r++) {
        sf_text_add(out, "<tr>");
        for (size_t c = 0; c < t->n_columns; c++) {
            const sf_cell *cell = sf_table_at(t, r, c);
            put_html(out, c == 0 ? "th scope=\"row\"" : "td", cell->text, t->columns[c].align, cell->tone);
        }
        sf_text_add(out, "</tr>\n");
    }
    sf_text_add(out, "</tbody></table></div>\n");
}

bool sf_colour_wanted(FILE *stream)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    if (no != NULL && no[0] != '\0')
        return false;
    if (term == NULL || strcmp(term, "dumb") == 0)
        return false;
    return isatty(fileno(stream)) == 1;
}
