/* reports/emit.h: a planned job as files that run it.
 *
 * DIR/job.json         the JOB, every field
 * DIR/train.py         a PyTorch program that trains it on synthetic tokens and writes a measured outcome (reports/emit/train.py)
 * DIR/launch.sh        starts train.py on one node (NODE_RANK and MASTER_ADDR say which of several)
 * DIR/ds_config.json   DeepSpeed's configuration, for its strategies
 * DIR/accelerate.yaml  accelerate's, where it can say the same
 * What a file cannot say is told in a note; a job that no file can run is an error that names the field.
 * Read back (deepspeed_config, accelerate_config of a JOB), each gives the job that was planned.
 */
#ifndef SF_REPORTS_EMIT_H
#define SF_REPORTS_EMIT_H

#include "model/desc/job.h"

enum { SF_EMIT_MOST = 8 };

typedef struct {
    const char *files[SF_EMIT_MOST]; /* names in DIR */
    const char *notes[SF_EMIT_MOST];
    size_t n_files, n_notes;
} sf_emitted;

sf_status sf_emit(const sf_job *job, const char *dir, sf_arena *arena, sf_emitted *out);
/* Prints what was written, and what to type next. */
void sf_emit_print(const sf_emitted *emitted, const char *dir);

#endif
