/* model/desc/job_check.h: what must hold between the fields of a job. Messages name the fields, their
 * values and what would do. `place` is put before them.
 */
#ifndef SF_DESC_JOB_CHECK_H
#define SF_DESC_JOB_CHECK_H

#include "model/desc/job.h"

/* Framework, strategy and device fit together (before knobs are looked at). */
sf_status sf_job_check_frame(const sf_job *job, const char *place);

/* Fills global_batch (or grad_accum, where only global_batch is stated) and seq_len, then checks the
 * sizes of everything against each other. */
sf_status sf_job_check(sf_job *job, bool global_batch_stated, bool grad_accum_stated, const char *place, sf_arena *arena);

#endif
