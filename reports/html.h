/* reports/html.h: a report as one self-contained page.
 *
 * The page needs nothing else: style and drawings are inside, no script is needed to read it, nothing is
 * loaded. It suits a phone (drawings made for narrow screens), a desk, light and dark, and paper.
 * Order: verdict, key figures, summary table, plots, each entry's tables and plots, how to read, provenance.
 */
#ifndef SF_REPORTS_HTML_H
#define SF_REPORTS_HTML_H

#include "reports/plots.h"

/* `plots_dir`: where the SVG files of `plots` lie (plots may be empty). `missing`: a sentence on what the report
 * lacks, or NULL. Errors: SF_EIO, a drawing or the style sheet cannot be read. */
sf_status sf_report_html(const sf_report *report, const sf_plots *plots, const char *plots_dir, const char *missing, sf_arena *arena,
                         sf_text *out);

/* ---- parts that other pages share: head, then <dl class="figures"> and <main> are the caller's ---- */
sf_status sf_page_head(const char *kind, const char *title, sf_arena *arena, sf_text *out); /* leaves <header> open */
void sf_page_verdict(const sf_verdict *v, sf_text *out);
void sf_page_figure(sf_text *out, const char *what, const char *value, const char *note);
/* `number` makes the drawing's ids unique in its page. */
sf_status sf_page_drawing(const sf_plot *plot, size_t number, const char *dir, sf_arena *arena, sf_text *out);
void sf_page_end(const char *beside, sf_text *out); /* closes <main>; `beside`: HTML that names the files with the numbers */

#endif
