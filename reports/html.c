#include "reports/html.h"

#include <math.h>
#include <stdlib.h>

#include "reports/assets.h"
#include "reports/svg.h"

static void put_escaped(sf_text *out, const char *before, const char *text, const char *after)
{
    sf_text_add(out, "%s", before);
    sf_html_escape(text, out);
    sf_text_add(out, "%s", after);
}

/* ---- head and verdict ---- */

sf_status sf_page_head(const char *kind, const char *title, sf_arena *arena, sf_text *out)
{
    char *css;
    SF_TRY(sf_file_read(sf_asset_path("html/report.css", arena), 1 << 20, arena, &css, NULL));
    sf_text_add(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                     "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    put_escaped(out, "<title>", title, "</title>\n<style>\n");
    sf_text_add(out, "%s</style>\n</head>\n<body>\n<header>\n<p class=\"kind\">shardfit %s</p>\n", css, kind);
    put_escaped(out, "<h1>", title, "</h1>\n");
    return SF_SUCCESS;
}

void sf_page_verdict(const sf_verdict *v, sf_text *out)
{
    sf_text_add(out, "<div class=\"verdict %s\">", v->good ? "good" : "bad");
    put_escaped(out, "<strong>", v->headline, "</strong>\n");
    if (v->n_points > 0) {
        sf_text_add(out, "<ul>\n");
        for (size_t i = 0; i < v->n_points; i++)
            put_escaped(out, "<li>", v->points[i], "</li>\n");
        sf_text_add(out, "</ul>\n");
    }
    sf_text_add(out, "</div>\n");
}

void sf_page_figure(sf_text *out, const char *what, const char *value, const char *note)
{
    put_escaped(out, "<div><dt>", what, "</dt>");
    put_escaped(out, "<dd>", value, "");
    put_escaped(out, "<small>", note, "</small></dd></div>\n");
}

static const sf_outcome *any_outcome(const sf_report *report)
{
    for (size_t i = 0; i < report->n_entries; i++) {
        const sf_report_entry *e = &report->entries[i];
        if (e->predicted != NULL || e->measured != NULL)
            return e->predicted != NULL ? e->predicted : e->measured;
    }
    return NULL;
}

static void key_figures(const sf_report *report, sf_arena *arena, sf_text *out)
{
    const sf_outcome *any = any_outcome(report);
    const sf_report_entry *fastest, *leanest;
    size_t n_fit;
    sf_report_rank(report, &fastest, &leanest, &n_fit);
    if (any == NULL)
        return;
    sf_text_add(out, "<dl class=\"figures\">\n");
    sf_page_figure(out, "fits", sf_arena_printf(arena, "%zu of %zu", n_fit, report->n_entries),
              any->memory.capacity_bytes > 0 ? sf_arena_printf(arena, "in %s per rank", sf_bytes_text(any->memory.capacity_bytes).text)
                                             : "no memory limit was set");
    if (fastest != NULL)
        sf_page_figure(out, "fastest", fastest->title, sf_arena_printf(arena, "%.0f tokens/s", sf_outcome_tokens_per_s(sf_report_shown(fastest))));
    if (leanest != NULL)
        sf_page_figure(out, "least memory", leanest->title,
                  sf_arena_printf(arena, "%s at the peak", sf_bytes_text(sf_report_shown(leanest)->memory.peak_allocated_bytes).text));
    if (sf_report_measured(report)) {
        size_t exact = 0, equal = 0;
        double worst = -1;
        for (size_t i = 0; i < report->n_entries; i++) {
            const sf_comparison *cmp = &report->entries[i].comparison;
            exact += cmp->n_exact;
            equal += cmp->n_equal;
            worst = fmax(worst, fabs(cmp->step_error));
        }
        if (worst >= 0)
            sf_page_figure(out, "largest step-time error", sf_arena_printf(arena, "%.1f %%", worst * 100),
                      sf_arena_printf(arena, "bar %.0f %%", report->time_bar * 100));
        sf_page_figure(out, "bytes and calls", sf_arena_printf(arena, "%zu of %zu", equal, exact), "predicted and measured equal");
    }
    sf_text_add(out, "</dl>\n");
}

/* ---- body ---- */

static void table(void (*make)(const sf_report *, sf_arena *, sf_table *), const sf_report *report, sf_arena *arena, sf_text *out)
{
    sf_table t;
    make(report, arena, &t);
    sf_table_html(&t, out);
}

sf_status sf_page_drawing(const sf_plot *plot, size_t number, const char *dir, sf_arena *arena, sf_text *out)
{
    static const struct {
        const char *suffix, *class_name;
    } variants[] = { { "", "wide" }, { "-narrow", "narrow" } };
    put_escaped(out, "<figure><h3>", plot->title, "</h3>\n");
    for (size_t v = 0; v < sizeof variants / sizeof variants[0]; v++) {
        char *svg;
        SF_TRY(sf_file_read(sf_arena_printf(arena, "%s/%s%s.svg", dir, plot->name, variants[v].suffix), 64u << 20, arena, &svg, NULL));
        sf_svg_inline(svg, sf_arena_printf(arena, "p%zu%c", number, variants[v].class_name[0]), variants[v].class_name,
                      sf_arena_printf(arena, "%s. %s", plot->title, plot->caption), out);
        sf_text_add(out, "\n");
    }
    put_escaped(out, "<figcaption>", plot->caption, "</figcaption></figure>\n");
    return SF_SUCCESS;
}

static sf_status drawings(const sf_plots *plots, const sf_report_entry *of, const char *dir, sf_arena *arena, sf_text *out)
{
    for (size_t i = 0; i < plots->count; i++)
        if (plots->items[i].entry == of)
            SF_TRY(sf_page_drawing(&plots->items[i], i, dir, arena, out));
    return SF_SUCCESS;
}

static const char *one_line(const sf_report_entry *e, sf_arena *arena)
{
    const sf_outcome *o = sf_report_shown(e);
    if (e->failure != NULL || o == NULL)
        return "failed";
    if (!o->fits)
        return "does not fit";
    return sf_arena_printf(arena, "%s peak, %s per step%s%s", sf_bytes_text(o->memory.peak_allocated_bytes).text,
                           o->time.step_s >= 0 ? sf_seconds_text(o->time.step_s).text : "?", isnan(e->comparison.step_error) ? "" : ", error ",
                           isnan(e->comparison.step_error) ? "" : sf_percent_text(e->comparison.step_error).text);
}

static void losses(const sf_outcome *m, sf_text *out)
{
    if (m == NULL || m->n_losses == 0)
        return;
    sf_text_add(out, "<p>Loss over %d steps of training: %.4f", m->n_losses, m->losses[0]);
    if (m->n_losses > 1)
        sf_text_add(out, " to %.4f", m->losses[m->n_losses - 1]);
    if (m->time.step_s_min >= 0 && m->time.step_s_max >= 0)
        sf_text_add(out, ". Steps took %s to %s", sf_seconds_text(m->time.step_s_min).text, sf_seconds_text(m->time.step_s_max).text);
    sf_text_add(out, ".</p>\n");
}

static sf_status entry(const sf_report *report, size_t i, const sf_plots *plots, const char *dir, sf_arena *arena, sf_text *out)
{
    const sf_report_entry *e = &report->entries[i];
    put_escaped(out, "<details><summary>", e->title, "");
    put_escaped(out, " <span>", one_line(e, arena), "</span></summary><div>\n");
    if (e->failure != NULL)
        put_escaped(out, "<p class=\"bad\">", e->failure, "</p>\n");
    if (e->predicted != NULL && e->predicted->verdict != NULL)
        put_escaped(out, "<p>Predicted: ", e->predicted->verdict, ".</p>\n");
    losses(e->measured, out);
    SF_TRY(drawings(plots, e, dir, arena, out));
    for (int s = 0; s < SF_SECTION_COUNT; s++) {
        sf_table t;
        sf_compare_table(&e->comparison, (sf_section)s, arena, &t);
        if (t.n_rows > 0)
            sf_table_html(&t, out);
    }
    if (e->job != NULL) {
        char *text = json_dumps(e->job, JSON_INDENT(2));
        put_escaped(out, "<h3>Job</h3>\n<pre>", text == NULL ? "" : text, "</pre>\n");
        free(text);
    }
    sf_text_add(out, "</div></details>\n");
    return SF_SUCCESS;
}

static void how_to_read(const sf_report *report, sf_text *out)
{
    sf_text_add(out, "<h2>How to read this</h2>\n<ul>\n"
                     "<li><b>Peak</b> is the most device memory that the fullest rank holds at one moment of the step, by the categories "
                     "that are resident at that moment. 1 GiB is 2<sup>30</sup> bytes.</li>\n"
                     "<li><b>Comm</b> is the sum over a step's collectives of the whole array's bytes, as nccl-tests count them.</li>\n"
                     "<li><b>Exposed communication</b> is time in which a collective runs and nothing else does; <b>idle</b> is time in which "
                     "nothing runs. With the busy time of the three phases they add up to the step.</li>\n");
    if (sf_report_measured(report))
        sf_text_add(out, "<li><b>Predicted</b> comes from the cost model and the simulator alone; <b>measured</b> from really training the same "
                         "program. Bytes and calls must be equal; a step time is right when its error is at most %.0f %%.</li>\n"
                         "<li><b>Error</b> is (predicted - measured) / measured: negative means that the prediction was too fast.</li>\n",
                    report->time_bar * 100);
    sf_text_add(out, "</ul>\n");
}

sf_status sf_report_html(const sf_report *report, const sf_plots *plots, const char *plots_dir, const char *missing, sf_arena *arena,
                         sf_text *out)
{
    sf_verdict v;
    sf_report_judge(report, arena, &v);
    SF_TRY(sf_page_head(sf_report_measured(report) ? "validation" : "comparison", report->title, arena, out));
    sf_page_verdict(&v, out);
    key_figures(report, arena, out);
    sf_text_add(out, "</header>\n<main>\n<h2>Side by side</h2>\n");
    table(sf_report_summary, report, arena, out);
    if (missing != NULL)
        put_escaped(out, "<p class=\"warn\">", missing, "</p>\n");
    SF_TRY(drawings(plots, NULL, plots_dir, arena, out));
    for (size_t i = 0; i < report->n_parts; i++) {
        put_escaped(out, "<h2>", report->parts[i].title, "</h2>\n");
        put_escaped(out, "<p>", report->parts[i].text, "</p>\n");
        sf_text_add(out, "<div class=\"part\">");
        sf_table_html(report->parts[i].table, out);
        sf_text_add(out, "</div>\n");
    }
    sf_text_add(out, "<h2>Each in detail</h2>\n");
    for (size_t i = 0; i < report->n_entries; i++)
        SF_TRY(entry(report, i, plots, plots_dir, arena, out));
    how_to_read(report, out);
    if (report->provenance != NULL) {
        sf_text_add(out, "<h2>Provenance</h2>\n<div class=\"wrap\">");
        table(sf_report_provenance, report, arena, out);
        sf_text_add(out, "</div>\n");
    }
    sf_page_end("<code>compare.csv</code> and <code>report.json</code>", out);
    return SF_SUCCESS;
}

void sf_page_end(const char *beside, sf_text *out)
{
    sf_text_add(out, "</main>\n<footer>Beside this page: %s with every number, "
                     "<code>plots/</code> with each drawing as SVG and PNG and the gnuplot script that makes it.</footer>\n"
                     "<script>addEventListener(\"beforeprint\", () => document.querySelectorAll(\"details\").forEach(d => d.open = true));</script>\n"
                     "</body>\n</html>\n", beside);
}
