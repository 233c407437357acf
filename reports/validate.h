/* reports/validate.h: one job predicted and, if wanted, really run and read back: an entry of a report.
 *
 * The run is a child process (`shardfit run`), so that a crash or a lost rank costs one entry, not the
 * report. Its outcome and its words are kept in DIR/runs/NAME.json and NAME.log.
 */
#ifndef SF_REPORTS_VALIDATE_H
#define SF_REPORTS_VALIDATE_H

#include "reports/job_options.h"
#include "reports/report.h"

typedef struct {
    const char *file;           /* the job's file; NULL: only the overrides speak              */
    const sf_override *overrides;
    size_t n_overrides;
    const char *profile;        /* NULL: the default one                                       */
    bool run;                   /* measure too: by a run, or                                   */
    const char *measured;       /* by an outcome that a run left before (NULL: run now)        */
    const char *directory;      /* of the report                                               */
    bool best;                  /* hold predictions against the fastest step, not the median   */
} sf_validation;

/* Fills the entry's job, predicted and measured sides; what fails is told in entry->failure and by the
 * exit code that it stands for (0: nothing failed). The entry's JSON values live until the process ends:
 * they are released by sf_validation_release. */
int sf_validate(const sf_validation *v, sf_report_entry *entry, sf_arena *arena);
void sf_validation_release(sf_report_entry *entry);

#endif
