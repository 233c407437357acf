/* reports/sweep.h: jobs x strategies, each predicted and (for validate) really run: a whole report.
 *
 * Strategies   as given; else the job's own (validate) or all that can be lowered (compare): those of the
 *              job's framework; where none is stated, those of our executor on this host, of PyTorch and
 *              DeepSpeed on GPUs.
 */
#ifndef SF_REPORTS_SWEEP_H
#define SF_REPORTS_SWEEP_H

#include "reports/job_options.h"
#include "reports/report.h"

enum { SF_SWEEP_MOST = 64 };

typedef struct {
    const sf_job_options *job;
    const char *strategies[SF_SWEEP_MOST]; /* names                                             */
    int n_strategies;
    bool every_strategy;                   /* if none is named: all, not the job's own          */
    bool run;                              /* train for real too                                */
    bool best;                             /* compare with the fastest step, not the median     */
    int rounds;                            /* with `best`: runs of an entry that is slower than predicted by more
                                              than the bar, at most; the fastest counts                    */
    double time_bar;                       /* 0.10: ten percent                                 */
    const char *measured[SF_SWEEP_MOST];   /* outcomes measured before, of the first entries    */
    int n_measured;
    const char *profile;                   /* NULL: the default one                             */
    const char *directory;                 /* of runs' outcomes and logs                        */
} sf_sweep;

/* Splits "a,b,c" (in place). False if there are too many. */
bool sf_sweep_strategies(sf_sweep *sweep, char *list);

/* Fills the report and joins it. Tells progress on stderr. *code: the worst exit code of an
 * entry. Errors: a job that cannot be read at all, too many outcomes. */
sf_status sf_sweep_run(const sf_sweep *sweep, int argc, char **argv, sf_arena *arena, sf_report *report, int *code);
void sf_sweep_release(sf_report *report);

/* The report on stdout: summary, each entry's tables if `details`, points, and last the headline. */
void sf_sweep_print(const sf_report *report, bool details, const char *note, const char *directory, sf_arena *arena);

#endif
