/* reports/report_write.c: a report's files. */
#include <math.h>
#include <stdlib.h>

#include "reports/html.h"

static json_t *errors_of(const sf_comparison *cmp)
{
    json_t *o = json_object();
    json_object_set_new(o, "exact", json_integer((json_int_t)cmp->n_exact));
    json_object_set_new(o, "equal", json_integer((json_int_t)cmp->n_equal));
    if (!isnan(cmp->step_error))
        json_object_set_new(o, "step", json_real(cmp->step_error));
    return o;
}

/* [{"title", "text", "columns": [..], "rows": [[..]]}]: as shown. */
static json_t *parts_json(const sf_report *report)
{
    json_t *parts = json_array();
    for (size_t i = 0; i < report->n_parts; i++) {
        const sf_table *t = report->parts[i].table;
        json_t *columns = json_array(), *rows = json_array();
        for (size_t c = 0; c < t->n_columns; c++)
            json_array_append_new(columns, json_string(t->columns[c].name));
        for (size_t r = 0; r < t->n_rows; r++) {
            json_t *row = json_array();
            for (size_t c = 0; c < t->n_columns; c++)
                json_array_append_new(row, json_string(sf_table_at(t, r, c)->text));
            json_array_append_new(rows, row);
        }
        json_array_append_new(parts, json_pack("{s:s, s:s, s:o, s:o}", "title", report->parts[i].title, "text", report->parts[i].text, "columns", columns,
                                               "rows", rows));
    }
    return parts;
}

json_t *sf_report_to_json(const sf_report *report)
{
    sf_arena arena = { 0 };
    sf_verdict v;
    json_t *o = json_object(), *points = json_array(), *entries = json_array();
    sf_report_judge(report, &arena, &v);
    json_object_set_new(o, "schema", json_string("shardfit-report-1"));
    json_object_set_new(o, "title", json_string(report->title));
    json_object_set_new(o, "good", json_boolean(v.good));
    json_object_set_new(o, "verdict", json_string(v.headline));
    for (size_t i = 0; i < v.n_points; i++)
        json_array_append_new(points, json_string(v.points[i]));
    json_object_set_new(o, "points", points);
    json_object_set_new(o, "time_bar", json_real(report->time_bar));
    for (size_t i = 0; i < report->n_entries; i++) {
        const sf_report_entry *e = &report->entries[i];
        json_t *row = json_object();
        json_object_set_new(row, "name", json_string(e->title));
        if (e->predicted != NULL)
            json_object_set_new(row, "predicted", sf_outcome_to_json(e->predicted, e->job));
        if (e->measured != NULL)
            json_object_set_new(row, "measured", sf_outcome_to_json(e->measured, e->job));
        if (e->failure != NULL)
            json_object_set_new(row, "failure", json_string(e->failure));
        if (e->predicted != NULL && e->measured != NULL)
            json_object_set_new(row, "errors", errors_of(&e->comparison));
        json_array_append_new(entries, row);
    }
    json_object_set_new(o, "entries", entries);
    if (report->n_parts > 0)
        json_object_set_new(o, "parts", parts_json(report));
    if (report->provenance != NULL)
        json_object_set(o, "provenance", (json_t *)(uintptr_t)report->provenance);
    sf_arena_free(&arena);
    return o;
}

void sf_report_csv(const sf_report *report, sf_arena *arena, sf_text *out)
{
    sf_table t;
    sf_compare_csv_start(&t, arena);
    for (size_t i = 0; i < report->n_entries; i++)
        sf_compare_csv_add(&t, report->entries[i].title, &report->entries[i].comparison);
    sf_table_csv(&t, out);
}

void sf_report_markdown(const sf_report *report, sf_arena *arena, sf_text *out)
{
    sf_verdict v;
    sf_table t;
    sf_report_judge(report, arena, &v);
    sf_text_add(out, "# %s\n\n**%s**\n\n", report->title, v.headline);
    for (size_t i = 0; i < v.n_points; i++)
        sf_text_add(out, "- %s\n", v.points[i]);
    sf_text_add(out, "\n");
    sf_report_summary(report, arena, &t);
    sf_table_markdown(&t, out);
    for (size_t i = 0; i < report->n_parts; i++) {
        sf_text_add(out, "\n## %s\n\n%s\n\n", report->parts[i].title, report->parts[i].text);
        sf_table_markdown(report->parts[i].table, out);
    }
}

static sf_status write_text(const char *dir, const char *name, sf_text *text, sf_arena *arena)
{
    sf_status st = sf_file_write(sf_arena_printf(arena, "%s/%s", dir, name), sf_text_str(text), text->len);
    sf_text_free(text);
    return st;
}

static sf_status write_numbers(const sf_report *report, const char *dir, sf_arena *arena)
{
    sf_text text = { 0 };
    sf_report_csv(report, arena, &text);
    SF_TRY(write_text(dir, "compare.csv", &text, arena));
    sf_report_markdown(report, arena, &text);
    SF_TRY(write_text(dir, "report.md", &text, arena));
    json_t *json = sf_report_to_json(report);
    char *dump = json_dumps(json, JSON_INDENT(1));
    json_decref(json);
    sf_text_add(&text, "%s\n", dump == NULL ? "{}" : dump);
    free(dump);
    return write_text(dir, "report.json", &text, arena);
}

sf_status sf_report_write(const sf_report *report, const char *dir, sf_arena *arena, const char **note)
{
    sf_plots plots = { 0 };
    sf_text page = { 0 };
    const char *plots_dir = sf_arena_printf(arena, "%s/plots", dir);
    *note = NULL;
    SF_TRY(sf_dir_make(dir));
    SF_TRY(write_numbers(report, dir, arena));
    sf_status st = sf_plots_write(report, plots_dir, arena, &plots);
    if (st.code == SF_EUNSUP)
        *note = sf_arena_strdup(arena, st.msg);
    else
        SF_TRY(st);
    st = sf_report_html(report, &plots, plots_dir, *note, arena, &page);
    if (st.code != SF_OK) {
        sf_text_free(&page);
        return st;
    }
    return write_text(dir, "report.html", &page, arena);
}
