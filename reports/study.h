/* reports/study.h: what a comparison says of each strategy beyond one step: how it executes and who holds what, how it
 * scales, what one slow GPU costs, what it takes to set up, and when to use it. Every figure is computed for the
 * report's own jobs; for jobs on catalogue GPUs.
 */
#ifndef SF_REPORTS_STUDY_H
#define SF_REPORTS_STUDY_H

#include "reports/report.h"

/* Adds parts and the scaling to a report whose entries are predicted. Nothing is added for jobs on this host. */
void sf_study_add(sf_report *report, sf_arena *arena);

#endif
