/* reports/evidence_row.h: one row of a table of published runs, as a JOB. Private to reports/evidence*.c. */
#ifndef SF_REPORTS_EVIDENCE_ROW_H
#define SF_REPORTS_EVIDENCE_ROW_H

#include <jansson.h>
#include <stdbool.h>

#include "model/base/csv.h"

typedef struct {
    const sf_csv *csv;
    size_t row;
} sf_run_row;

/* NULL: *out is a job. Else why the row says too little, or what of it has no model. *out is a new reference either way. */
const char *sf_run_to_job(const sf_run_row *r, sf_arena *arena, json_t **out);
/* Published tokens/s of all GPUs; 0: none. */
double sf_run_tokens_per_s(const sf_run_row *r);

#endif
