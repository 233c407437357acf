/* reports/plots.h: the plots of a report, by gnuplot.
 *
 * Files   DIR/NAME.svg (960 px wide), NAME-narrow.svg (420 px, for phones), NAME.png (1920 px), and what made
 *         them: NAME.gp and NAME.dat; `gnuplot NAME.gp` in DIR makes them again.
 * Plots   memory        stacked memory per entry, with the capacity
 *         step          forward, backward, optimizer, exposed communication, idle; predicted over measured
 *         scatter       predicted against measured step and op times, with the 10 % band
 *         scaling       tokens/s of each GPU over the number of GPUs
 *         timeline-X    one step of entry X: a lane per stream, boxes coloured by kind of op
 *         memory-X      device memory of entry X over the step
 *         A plot that has no data is left out.
 * Errors  SF_EUNSUP: there is no gnuplot (the message names the package); SF_EIO: it failed (its words).
 */
#ifndef SF_REPORTS_PLOTS_H
#define SF_REPORTS_PLOTS_H

#include "reports/report.h"

typedef struct {
    const char *name;             /* stem of its files                            */
    const char *title;
    const char *caption;          /* how to read it                               */
    const sf_report_entry *entry; /* NULL: of the whole report                    */
} sf_plot;

typedef struct {
    sf_plot *items;
    size_t count, cap;
} sf_plots;

sf_status sf_plots_write(const sf_report *report, const char *dir, sf_arena *arena, sf_plots *out);

/* Just the memory of one outcome over its step. `path` ends in .svg or .png. */
sf_status sf_plot_memory_file(const sf_outcome *outcome, const char *path, sf_arena *arena);

/* Runs a script in its directory. */
sf_status sf_gnuplot_run(const char *dir, const char *script, sf_arena *arena);

#endif
