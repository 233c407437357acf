/* Speed over the number of GPUs. */
#include "reports/plot_data.h"

bool sf_plot_scaling(const sf_report *report, sf_arena *arena, sf_plot_data *out)
{
    const sf_report_scaling *s = report->scaling;
    const char **names = SF_NEW_ARRAY(arena, const char *, report->n_entries);
    size_t shown = 0;

    if (s == NULL)
        return false;
    for (size_t i = 0; i < report->n_entries; i++) {
        size_t points = 0;
        for (int c = 0; c < s->n_counts; c++)
            points += s->tokens_per_s[i * (size_t)s->n_counts + (size_t)c] > 0;
        if (points == 0)
            continue;
        if (shown > 0)
            sf_plot_next_block(out);
        for (int c = 0; c < s->n_counts; c++) {
            double speed = s->tokens_per_s[i * (size_t)s->n_counts + (size_t)c];
            if (speed > 0)
                sf_text_add(&out->data, "%d %.9g\n", s->counts[c], speed / s->counts[c]);
        }
        names[shown++] = report->entries[i].title;
    }
    sf_plot_names(out, "entry", names, shown, arena);
    sf_text_add(&out->params, "entries = %zu; least = %d; most = %d\n", shown, s->counts[0], s->counts[s->n_counts - 1]);
    return shown > 0;
}
