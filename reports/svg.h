/* reports/svg.h: an SVG file of gnuplot's, made fit to stand inside an HTML page.
 *
 * The XML prologue, gnuplot's title and unused filters go; ids get a prefix, so that several drawings
 * can share a page; empty groups go, which are a third of the bytes; the whole is labelled for screen
 * readers. Colours stay attributes, which a page's style sheet may override (dark mode).
 */
#ifndef SF_REPORTS_SVG_H
#define SF_REPORTS_SVG_H

#include "model/base/text.h"

/* `svg`: the file's text; `prefix`: letters and digits; `label`: what it shows; `class_name`: of the svg element. */
void sf_svg_inline(const char *svg, const char *prefix, const char *class_name, const char *label, sf_text *out);

#endif
