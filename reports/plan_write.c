/* A plan as table, Markdown, CSV, JSON and page. */
#include <stdlib.h>
#include <string.h>

#include "exec/provenance.h"
#include "model/base/units.h"
#include "reports/html.h"
#include "reports/plan_impl.h"

static double gib(uint64_t bytes)
{
    return (double)bytes / (double)SF_GIB;
}

static uint64_t comm_bytes(const sf_outcome *o)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < o->n_comm; i++)
        sum += o->comm[i].bytes_per_rank;
    return sum;
}

static void fit_cell(sf_table *t, const sf_planner_entry *e)
{
    static const sf_tone tones[] = { SF_TONE_GOOD, SF_TONE_WARN, SF_TONE_BAD };
    if (e->fit_probability < 0)
        sf_table_cell(t, tones[e->band], "%s", sf_planner_band_name(e->band));
    else
        sf_table_cell(t, tones[e->band], "%s %.0f %%", sf_planner_band_name(e->band), e->fit_probability * 100);
}

void sf_planner_table(const sf_planner *p, sf_arena *arena, sf_table *t)
{
    bool priced = p->n_ranked > 0 && p->entries[0].dollars_per_gtoken >= 0;

    sf_table_start(t, arena, NULL);
    sf_table_column(t, SF_LEFT, "strategy", NULL);
    sf_table_column(t, SF_LEFT, "framework", NULL);
    sf_table_column(t, SF_RIGHT, "tokens/s", NULL);
    sf_table_column(t, SF_RIGHT, "step", "s");
    sf_table_column(t, SF_RIGHT, "memory", "GiB");
    sf_table_column(t, SF_RIGHT, "headroom", "GiB");
    sf_table_column(t, SF_RIGHT, "host", "GiB/rank");
    sf_table_column(t, SF_RIGHT, "comm", "GiB/step");
    sf_table_column(t, SF_RIGHT, "exposed", "s");
    if (priced)
        sf_table_column(t, SF_RIGHT, "price", "per 1e9 tokens");
    sf_table_column(t, SF_LEFT, "fits", NULL);
    sf_table_column(t, SF_LEFT, "bound by", NULL);
    sf_table_column(t, SF_LEFT, "configuration", NULL);
    for (size_t i = 0; i < p->n_ranked; i++) {
        const sf_planner_entry *e = &p->entries[i];
        const sf_outcome *o = &e->outcome;
        sf_table_row(t);
        sf_table_cell(t, i == 0 ? SF_TONE_STRONG : SF_TONE_PLAIN, "%s", e->variant->title);
        sf_table_cell(t, SF_TONE_PLAIN, "%s", e->variant->framework);
        sf_table_cell(t, i == 0 ? SF_TONE_STRONG : SF_TONE_PLAIN, "%.0f", e->tokens_per_s);
        sf_table_cell(t, SF_TONE_PLAIN, "%.2f", o->time.step_s);
        sf_table_cell(t, SF_TONE_PLAIN, "%.2f", gib(o->memory.device_used_bytes));
        if (o->memory.capacity_bytes > 0)
            sf_table_cell(t, SF_TONE_PLAIN, "%.2f", gib(o->memory.capacity_bytes) - gib(o->memory.device_used_bytes));
        else
            sf_table_cell(t, SF_TONE_FAINT, "-");
        sf_table_cell(t, SF_TONE_PLAIN, "%.2f", gib(o->memory.host_bytes));
        sf_table_cell(t, SF_TONE_PLAIN, "%.2f", gib(comm_bytes(o)));
        sf_table_cell(t, SF_TONE_PLAIN, "%.2f", o->time.exposed_comm_s);
        if (priced)
            sf_table_cell(t, SF_TONE_PLAIN, "%.0f", e->dollars_per_gtoken);
        fit_cell(t, e);
        sf_table_cell(t, SF_TONE_PLAIN, "%s", o->time.bound_by == NULL ? "-" : o->time.bound_by);
        sf_table_cell(t, SF_TONE_PLAIN, "%s", sf_planner_configuration(&e->job, arena));
    }
}

void sf_planner_losers(const sf_planner *p, sf_arena *arena, sf_table *t)
{
    sf_table_start(t, arena, NULL);
    sf_table_column(t, SF_LEFT, "not chosen", NULL);
    sf_table_column(t, SF_LEFT, "framework", NULL);
    sf_table_column(t, SF_LEFT, "because", NULL);
    sf_table_column(t, SF_LEFT, "would fit with", NULL);
    for (size_t i = 0; i < p->n_entries; i++) {
        const sf_planner_entry *e = &p->entries[i];
        if (e->ranked && i == 0)
            continue;
        sf_table_row(t);
        sf_table_cell(t, SF_TONE_PLAIN, "%s", e->variant->title);
        sf_table_cell(t, SF_TONE_PLAIN, "%s", e->variant->framework);
        sf_table_cell(t, SF_TONE_PLAIN, "%s", e->reason == NULL ? "-" : e->reason);
        if (e->ranked || !e->has_job)
            sf_table_cell(t, SF_TONE_FAINT, "-");
        else
            sf_table_cell(t, SF_TONE_PLAIN, "%s", e->remedy == NULL ? "no single change that was tried" : e->remedy);
    }
}

/* ---- JSON ---- */

static json_t *entry_json(const sf_planner_entry *e, sf_arena *arena)
{
    json_t *o = json_object();
    json_object_set_new(o, "strategy", json_string(e->variant->strategy));
    json_object_set_new(o, "variant", json_string(e->variant->title));
    json_object_set_new(o, "framework", json_string(e->variant->framework));
    json_object_set_new(o, "candidates", json_integer((json_int_t)e->candidates));
    json_object_set_new(o, "fitting", json_integer((json_int_t)e->fitting));
    if (e->reason != NULL)
        json_object_set_new(o, "reason", json_string(e->reason));
    if (e->remedy != NULL)
        json_object_set_new(o, "remedy", json_string(e->remedy));
    if (!e->has_job)
        return o;
    json_t *job = sf_job_to_json(&e->job);
    json_object_set_new(o, "configuration", json_string(sf_planner_configuration(&e->job, arena)));
    json_object_set_new(o, "fits", json_string(sf_planner_band_name(e->band)));
    if (e->fit_probability >= 0)
        json_object_set_new(o, "fit_probability", json_real(e->fit_probability));
    if (e->tokens_per_s >= 0)
        json_object_set_new(o, "tokens_per_s", json_real(e->tokens_per_s));
    if (e->dollars_per_gtoken >= 0)
        json_object_set_new(o, "price_per_1e9_tokens", json_real(e->dollars_per_gtoken));
    json_object_set_new(o, "outcome", sf_outcome_to_json(&e->outcome, job));
    json_decref(job);
    return o;
}

json_t *sf_planner_to_json(const sf_planner *p, sf_arena *arena)
{
    json_t *o = json_object(), *ranked = json_array(), *others = json_array(), *notes = json_array();
    json_object_set_new(o, "schema", json_string("shardfit-plan-1"));
    json_object_set_new(o, "title", json_string(p->title));
    json_object_set_new(o, "verdict", json_string(sf_planner_headline(p, arena)));
    json_object_set_new(o, "capacity_bytes", json_integer((json_int_t)p->capacity_bytes));
    json_object_set_new(o, "candidates", json_integer((json_int_t)p->candidates));
    json_object_set_new(o, "fitting", json_integer((json_int_t)p->fitting));
    json_object_set_new(o, "structures", json_integer((json_int_t)p->structures));
    json_object_set_new(o, "simulated", json_integer((json_int_t)p->simulated));
    json_object_set_new(o, "seconds", json_real(p->seconds));
    for (size_t i = 0; i < p->n_entries; i++)
        json_array_append_new(p->entries[i].ranked ? ranked : others, entry_json(&p->entries[i], arena));
    json_object_set_new(o, "ranked", ranked);
    json_object_set_new(o, "not_ranked", others);
    for (size_t i = 0; i < p->n_notes; i++)
        json_array_append_new(notes, json_string(p->notes[i]));
    json_object_set_new(o, "assumptions", notes);
    return o;
}

/* ---- page and files ---- */

static sf_verdict verdict_of(const sf_planner *p, const char *answers, sf_arena *arena)
{
    sf_verdict v = { .good = p->n_ranked > 0, .headline = sf_planner_headline(p, arena) };
    SF_PUSH(arena, v.points, v.n_points, v.cap_points) =
        sf_arena_printf(arena, "%zu candidates, of which %zu fit; %zu programs simulated", p->candidates, p->fitting, p->simulated);
    char *text = sf_arena_strdup(arena, answers), *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save))
        SF_PUSH(arena, v.points, v.n_points, v.cap_points) = line;
    return v;
}

static void figures(const sf_planner *p, sf_arena *arena, sf_text *out)
{
    sf_text_add(out, "<dl class=\"figures\">\n");
    sf_page_figure(out, "memory of a GPU", p->capacity_bytes > 0 ? sf_bytes_text(p->capacity_bytes).text : "no limit", p->title);
    if (p->n_ranked > 0) {
        const sf_planner_entry *e = &p->entries[0];
        sf_page_figure(out, "fastest that fits", e->variant->title, sf_arena_printf(arena, "%s, %s", e->variant->framework, sf_planner_configuration(&e->job, arena)));
        sf_page_figure(out, "speed", sf_arena_printf(arena, "%.0f tokens/s", e->tokens_per_s),
                       sf_arena_printf(arena, "step %s, bound by %s", sf_seconds_text(e->outcome.time.step_s).text, e->outcome.time.bound_by));
        sf_page_figure(out, "device memory", sf_bytes_text(e->outcome.memory.device_used_bytes).text, "at the peak of the fullest rank");
    }
    sf_text_add(out, "</dl>\n");
}

static void list_losers(const sf_planner *p, sf_text *out)
{
    sf_text_add(out, "<h2>Why not the others</h2>\n<ul class=\"reasons\">\n");
    for (size_t i = p->n_ranked > 0 ? 1 : 0; i < p->n_entries; i++) {
        const sf_planner_entry *e = &p->entries[i];
        sf_text_add(out, "<li><b>%s</b> <span class=\"faint\">%s</span>: ", e->variant->title, e->variant->framework);
        sf_html_escape(e->reason == NULL ? "-" : e->reason, out);
        if (e->remedy != NULL) {
            sf_text_add(out, ". It fits with ");
            sf_html_escape(e->remedy, out);
        }
        sf_text_add(out, ".</li>\n");
    }
    sf_text_add(out, "</ul>\n");
}

static void list_notes(const sf_planner *p, sf_text *out)
{
    sf_text_add(out, "<h2>What was taken for granted</h2>\n<ul>\n");
    for (size_t i = 0; i < p->n_notes; i++) {
        sf_text_add(out, "<li>");
        sf_html_escape(p->notes[i], out);
        sf_text_add(out, "</li>\n");
    }
    sf_text_add(out, "</ul>\n");
}

static sf_status page(const sf_planner *p, const char *answers, bool drawn, const char *plots_dir, const char *missing, sf_arena *arena, sf_text *out)
{
    sf_verdict v = verdict_of(p, answers, arena);
    sf_table t;
    SF_TRY(sf_page_head("plan", p->title, arena, out));
    sf_page_verdict(&v, out);
    figures(p, arena, out);
    sf_text_add(out, "</header>\n<main>\n");
    if (p->n_ranked > 0) {
        sf_text_add(out, "<h2>Ranked</h2>\n");
        sf_planner_table(p, arena, &t);
        sf_text_add(out, "<div class=\"ranked\">");
        sf_table_html(&t, out);
        sf_text_add(out, "</div>\n");
    }
    if (missing != NULL) {
        sf_text_add(out, "<p class=\"warn\">");
        sf_html_escape(missing, out);
        sf_text_add(out, "</p>\n");
    }
    if (drawn) {
        sf_plot plot = { "pareto", "Memory against speed",
                         "Each point is a configuration that was simulated. The line is the front: nothing else is faster with less memory.", NULL };
        SF_TRY(sf_page_drawing(&plot, 0, plots_dir, arena, out));
    }
    list_losers(p, out);
    list_notes(p, out);
    if (p->n_ranked > 0) {
        json_t *job = sf_job_to_json(&p->entries[0].job);
        char *text = json_dumps(job, JSON_INDENT(2));
        sf_text_add(out, "<details><summary>The winner's job</summary><div><pre>");
        sf_html_escape(text == NULL ? "" : text, out);
        sf_text_add(out, "</pre></div></details>\n");
        free(text);
        json_decref(job);
    }
    sf_page_end("<code>plan.csv</code> and <code>plan.json</code>", out);
    return SF_SUCCESS;
}

static sf_status put(const char *dir, const char *name, sf_text *text, sf_arena *arena)
{
    sf_status st = sf_file_write(sf_arena_printf(arena, "%s/%s", dir, name), sf_text_str(text), text->len);
    sf_text_free(text);
    return st;
}

static sf_status write_numbers(const sf_planner *p, const char *answers, const char *dir, sf_arena *arena)
{
    sf_text text = { 0 };
    sf_table t;
    json_t *json = sf_planner_to_json(p, arena);
    char *dump = json_dumps(json, JSON_INDENT(1));

    json_decref(json);
    sf_text_add(&text, "%s\n", dump == NULL ? "{}" : dump);
    free(dump);
    SF_TRY(put(dir, "plan.json", &text, arena));
    sf_planner_table(p, arena, &t);
    sf_table_csv(&t, &text);
    SF_TRY(put(dir, "plan.csv", &text, arena));
    sf_text_add(&text, "# %s\n\n**%s**\n\n", p->title, sf_planner_headline(p, arena));
    if (answers[0] != '\0')
        sf_text_add(&text, "%s\n", answers);
    sf_table_markdown(&t, &text);
    sf_text_add(&text, "\n");
    sf_planner_losers(p, arena, &t);
    sf_table_markdown(&t, &text);
    sf_text_add(&text, "\nTaken for granted:\n\n");
    for (size_t i = 0; i < p->n_notes; i++)
        sf_text_add(&text, "- %s\n", p->notes[i]);
    return put(dir, "plan.md", &text, arena);
}

sf_status sf_planner_write(const sf_planner *p, const char *answers, const char *dir, sf_arena *arena, const char **note)
{
    const char *plots_dir = sf_arena_printf(arena, "%s/plots", dir);
    sf_text text = { 0 };
    bool drawn = false;

    *note = NULL;
    SF_TRY(sf_dir_make(dir));
    SF_TRY(write_numbers(p, answers, dir, arena));
    sf_status st = sf_planner_plot(p, plots_dir, arena, &drawn);
    if (st.code == SF_EUNSUP)
        *note = sf_arena_strdup(arena, st.msg);
    else
        SF_TRY(st);
    st = page(p, answers, drawn && *note == NULL, plots_dir, *note, arena, &text);
    if (st.code != SF_OK) {
        sf_text_free(&text);
        return st;
    }
    return put(dir, "plan.html", &text, arena);
}
