/* reports/plot_data.h: what gnuplot needs for each plot: the parameters of its script and its data.
 * Only files that draw include it: plots.c, plot_*.c, plan_plot.c.
 *
 * In a script numbers are in the unit of the plot; texts are quoted. A builder returns false where
 * there is nothing to draw.
 */
#ifndef SF_REPORTS_PLOT_DATA_H
#define SF_REPORTS_PLOT_DATA_H

#include "reports/report.h"

typedef struct {
    sf_text params; /* gnuplot assignments */
    sf_text data;   /* blocks ("index" in gnuplot) parted by two empty lines */
} sf_plot_data;

/* Writes DIR/NAME.gp and .dat from the data and template plots/TEMPLATE.gp, and draws NAME.svg, -narrow.svg, .png. */
sf_status sf_plot_render(const char *dir, const char *name, const char *template, const sf_plot_data *data, sf_arena *arena);

bool sf_plot_memory(const sf_report *report, sf_arena *arena, sf_plot_data *out);
bool sf_plot_step(const sf_report *report, sf_arena *arena, sf_plot_data *out);
bool sf_plot_scatter(const sf_report *report, sf_arena *arena, sf_plot_data *out);
bool sf_plot_scaling(const sf_report *report, sf_arena *arena, sf_plot_data *out);
bool sf_plot_timeline(const sf_outcome *predicted, const sf_outcome *measured, sf_arena *arena, sf_plot_data *out);
bool sf_plot_memory_line(const sf_outcome *predicted, const sf_outcome *measured, sf_arena *arena, sf_plot_data *out);

/* Colours' names are those of plots/style.gp. What an op counts as in plots: */
#define SF_PLOT_KINDS(X)                                                                           \
    X(MATMUL, "matrix products", "blue")                                                           \
    X(ATTENTION, "attention", "sky")                                                               \
    X(MEMORY, "memory-bound", "orange")                                                            \
    X(OPTIMIZER, "optimizer", "green")                                                             \
    X(COMM, "communication", "vermillion")                                                         \
    X(COPY, "copies", "purple")
#define SF_AS_ENUM(id, name, colour) SF_PLOT_##id,
typedef enum { SF_PLOT_KINDS(SF_AS_ENUM) SF_PLOT_KIND_COUNT } sf_plot_kind;
#undef SF_AS_ENUM
sf_plot_kind sf_plot_kind_of(sf_op_type type);

/* 'text' in single quotes, in which gnuplot expands nothing; a quote in it becomes U+2019, a line's end a blank. */
const char *sf_plot_quote(const char *text, sf_arena *arena);
/* NAME = a command that the script runs with `eval`. */
void sf_plot_command(sf_plot_data *out, const char *name, const char *command);
/* The next block of data begins. */
void sf_plot_next_block(sf_plot_data *out);
/* NAME = ['a', 'b'] and a function FUNCTION(k) that gives element k from 0. */
void sf_plot_names(sf_plot_data *out, const char *function, const char *const *names, size_t n, sf_arena *arena);

#endif
