/* The plot of memory against speed. */
#include <stdlib.h>

#include "reports/plan_impl.h"
#include "reports/plot_data.h"

static int by_memory(const void *a, const void *b)
{
    const sf_planner_point *x = a, *y = b;
    if (x->device_bytes != y->device_bytes)
        return x->device_bytes < y->device_bytes ? -1 : 1;
    return x->tokens_per_s > y->tokens_per_s ? -1 : x->tokens_per_s < y->tokens_per_s;
}

/* Those that no other beats in both. */
static void front(const sf_planner *p, sf_arena *arena, sf_text *data)
{
    sf_planner_point *sorted = SF_NEW_ARRAY(arena, sf_planner_point, p->n_points);
    double fastest = 0;
    for (size_t i = 0; i < p->n_points; i++)
        sorted[i] = p->points[i];
    qsort(sorted, p->n_points, sizeof *sorted, by_memory);
    for (size_t i = 0; i < p->n_points; i++)
        if (sorted[i].tokens_per_s > fastest) {
            fastest = sorted[i].tokens_per_s;
            sf_text_add(data, "%.6g %.6g\n", (double)sorted[i].device_bytes / (double)SF_GIB, fastest);
        }
}

static void points_of(const sf_planner *p, size_t entry, sf_text *data)
{
    sf_text_add(data, "\n\n");
    for (size_t i = 0; i < p->n_points; i++)
        if ((size_t)p->points[i].entry == entry)
            sf_text_add(data, "%.6g %.6g\n", (double)p->points[i].device_bytes / (double)SF_GIB, p->points[i].tokens_per_s);
}

sf_status sf_planner_plot(const sf_planner *p, const char *dir, sf_arena *arena, bool *drawn)
{
    sf_plot_data d = { 0 };
    size_t shown = 0;

    *drawn = p->n_ranked > 0 && p->n_points > 0;
    if (!*drawn)
        return SF_SUCCESS;
    SF_TRY(sf_dir_make(dir));
    const char **names = SF_NEW_ARRAY(arena, const char *, p->n_ranked);
    front(p, arena, &d.data);
    for (size_t i = 0; i < p->n_ranked; i++, shown++) {
        points_of(p, i, &d.data);
        names[i] = sf_arena_printf(arena, "%s, %s", p->entries[i].variant->title, p->entries[i].variant->framework);
    }
    sf_plot_names(&d, "entry", names, shown, arena);
    sf_text_add(&d.params, "entries = %zu; unit = 'GiB'; capacity = %.6g\n", shown,
                (double)p->capacity_bytes / (double)SF_GIB);
    sf_status st = sf_plot_render(dir, "pareto", "pareto", &d, arena);
    sf_text_free(&d.params);
    sf_text_free(&d.data);
    return st;
}
