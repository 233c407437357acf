/* reports/job_options.h: the options by which every command takes a JOB: a file, `--set path=value`,
 * and short forms of the common fields. One argp child, so that they read alike everywhere.
 */
#ifndef SF_REPORTS_JOB_OPTIONS_H
#define SF_REPORTS_JOB_OPTIONS_H

#include <argp.h>

#include "model/desc/job.h"

enum { SF_MOST_OVERRIDES = 64, SF_MOST_JOB_FILES = 64 };

typedef struct {
    const char *files[SF_MOST_JOB_FILES]; /* positional arguments                    */
    int n_files;
    sf_override overrides[SF_MOST_OVERRIDES];
    size_t n_overrides;
    sf_arena *arena;                      /* set by the caller before argp_parse     */
} sf_job_options;

/* Child parser; its input is a sf_job_options. */
extern const struct argp sf_job_argp;

/* Reads file number i (or, without files, what the options alone say). */
sf_status sf_job_options_read(const sf_job_options *options, int i, sf_arena *arena, sf_job *out);
/* How many jobs there are: the files, or 1 when options alone describe it. */
int sf_job_options_count(const sf_job_options *options);

#endif
