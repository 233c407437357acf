#include "reports/plots.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "reports/assets.h"
#include "reports/plot_data.h"
#include "reports/process.h"

static const double gnuplot_timeout_s = 120; /* one script takes well under a second */

static const char *template_path(const char *name, sf_arena *arena)
{
    return sf_asset_path(sf_arena_printf(arena, "plots/%s.gp", name), arena);
}

sf_status sf_gnuplot_run(const char *dir, const char *script, sf_arena *arena)
{
    const char *log = sf_arena_printf(arena, "%s/gnuplot.log", dir);
    sf_process_end end;
    sf_process p = { .argv = (const char *const[]){ "gnuplot", script, NULL }, .directory = dir, .timeout_s = gnuplot_timeout_s,
                     .stdout_path = log, .stderr_path = log };
    char *words = NULL;

    sf_status st = sf_process_run(&p, &end);
    if (st.code == SF_EUNSUP)
        return SF_FAIL(SF_EUNSUP, "no plots: the program 'gnuplot' is not installed; on Debian: apt-get install gnuplot-nox");
    SF_TRY(st);
    if (end.timed_out)
        return SF_FAIL(SF_EIO, "gnuplot did not finish %s/%s within %.0f s", dir, script, gnuplot_timeout_s);
    if (end.exit_code != 0) {
        SF_TRY(sf_file_read(log, 1 << 20, arena, &words, NULL));
        return SF_FAIL(SF_EIO, "gnuplot failed on %s/%s: %.300s", dir, script, words);
    }
    unlink(log);
    return SF_SUCCESS;
}

/* NAME.gp = parameters, style, template; NAME.dat; then gnuplot. */
sf_status sf_plot_render(const char *dir, const char *name, const char *template, const sf_plot_data *d, sf_arena *arena)
{
    sf_text script = { 0 };
    char *style, *body;
    sf_status st = SF_SUCCESS;
    SF_TRY(sf_file_read(template_path("style", arena), 1 << 20, arena, &style, NULL));
    SF_TRY(sf_file_read(template_path(template, arena), 1 << 20, arena, &body, NULL));
    sf_text_add(&script, "# Makes the plot '%s' again: gnuplot %s.gp\nstem = '%s'; data = '%s.dat'\n%s\n%s\n%s", name, name, name, name,
                sf_text_str(&d->params), style, body);
    SF_TRY_GOTO(st, sf_file_write(sf_arena_printf(arena, "%s/%s.gp", dir, name), script.data, script.len), free_script);
    SF_TRY_GOTO(st, sf_file_write(sf_arena_printf(arena, "%s/%s.dat", dir, name), sf_text_str(&d->data), d->data.len), free_script);
    st = sf_gnuplot_run(dir, sf_arena_printf(arena, "%s.gp", name), arena);
free_script:
    sf_text_free(&script);
    return st;
}

static void free_data(sf_plot_data *d)
{
    sf_text_free(&d->params);
    sf_text_free(&d->data);
}

static sf_status finish(bool has, const char *dir, sf_plot plot, const char *template, sf_plot_data *d, sf_arena *arena, sf_plots *out)
{
    sf_status st = has ? sf_plot_render(dir, plot.name, template, d, arena) : SF_SUCCESS;
    free_data(d);
    if (has && st.code == SF_OK)
        SF_PUSH(arena, out->items, out->count, out->cap) = plot;
    return st;
}

static sf_status plots_of_report(const sf_report *report, const char *dir, sf_arena *arena, sf_plots *out)
{
    static const struct {
        const char *name, *title, *caption;
        bool (*build)(const sf_report *report, sf_arena *arena, sf_plot_data *out);
    } list[] = {
        { "memory", "Memory", "What fills the fullest rank at the moment of its peak.", sf_plot_memory },
        { "step", "Step time",
          "Forward, backward and optimizer are the time in which something is computed; exposed communication is the time in which "
          "collectives run and nothing else does.", sf_plot_step },
        { "scatter", "Predicted against measured", "A point on the line is a right prediction; above it, the prediction is too slow. "
          "The grey band is 10 % to either side.", sf_plot_scatter },
        { "scaling", "Scaling", "Tokens per second of each GPU as GPUs are added at the same micro-batch: level is perfect scaling. What does not fit, or "
          "cannot run on so many, is left out.", sf_plot_scaling },
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        sf_plot_data d = { 0 };
        bool has = list[i].build(report, arena, &d);
        SF_TRY(finish(has, dir, (sf_plot){ list[i].name, list[i].title, list[i].caption, NULL }, list[i].name, &d, arena, out));
    }
    return SF_SUCCESS;
}

static sf_status plots_of_entry(const sf_report_entry *e, const char *dir, sf_arena *arena, sf_plots *out)
{
    sf_plot_data d = { 0 };
    sf_plot timeline = { sf_arena_printf(arena, "timeline-%s", e->name), sf_arena_printf(arena, "One step of %s", e->title),
                         "One lane per stream; a box is an op. Gaps in the compute lane are waiting.", e };
    sf_plot memory = { sf_arena_printf(arena, "memory-%s", e->name), sf_arena_printf(arena, "Memory of %s over the step", e->title),
                       "Device memory after each allocation and free.", e };
    bool has = sf_plot_timeline(e->predicted, e->measured, arena, &d);
    SF_TRY(finish(has, dir, timeline, "timeline", &d, arena, out));
    d = (sf_plot_data){ 0 };
    has = sf_plot_memory_line(e->predicted, e->measured, arena, &d);
    return finish(has, dir, memory, "memory_line", &d, arena, out);
}

sf_status sf_plots_write(const sf_report *report, const char *dir, sf_arena *arena, sf_plots *out)
{
    *out = (sf_plots){ 0 };
    SF_TRY(sf_dir_make(dir));
    SF_TRY(plots_of_report(report, dir, arena, out));
    for (size_t i = 0; i < report->n_entries; i++)
        SF_TRY(plots_of_entry(&report->entries[i], dir, arena, out));
    return SF_SUCCESS;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

sf_status sf_plot_memory_file(const sf_outcome *outcome, const char *path, sf_arena *arena)
{
    bool measured = outcome->kind != NULL && strcmp(outcome->kind, "measured") == 0, svg = ends_with(path, ".svg");
    static const char *const made[] = { "memory.gp", "memory.dat", "memory.svg", "memory.png", "memory-narrow.svg", "gnuplot.log" };
    char dir[] = "/tmp/shardfit-plot-XXXXXX", *bytes;
    sf_plot_data d = { 0 };
    size_t len;
    sf_status st = SF_SUCCESS;

    if (!svg && !ends_with(path, ".png"))
        return SF_FAIL(SF_EINVAL, "cannot plot to '%s': its name must end in .svg or .png", path);
    if (!sf_plot_memory_line(measured ? NULL : outcome, measured ? outcome : NULL, arena, &d)) {
        free_data(&d);
        return SF_FAIL(SF_EINVAL, "cannot plot memory to '%s': the outcome has no memory line", path);
    }
    if (mkdtemp(dir) == NULL) {
        free_data(&d);
        return SF_FAIL(SF_EIO, "cannot make a directory like '%s' to plot in", dir);
    }
    st = sf_plot_render(dir, "memory", "memory_line", &d, arena);
    if (st.code == SF_OK)
        st = sf_file_read(sf_arena_printf(arena, "%s/memory.%s", dir, svg ? "svg" : "png"), 64u << 20, arena, &bytes, &len);
    if (st.code == SF_OK)
        st = sf_file_write(path, bytes, len);
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++)
        unlink(sf_arena_printf(arena, "%s/%s", dir, made[i]));
    rmdir(dir);
    free_data(&d);
    return st;
}
