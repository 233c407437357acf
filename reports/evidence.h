/* reports/evidence.h: published runs against predictions of the same jobs.
 *
 * Read    a table of runs (columns as documented with the evidence: one measured run a row), or lines of JSON, each a
 *         JOB with what was observed ("truth"). A row becomes a job, or is skipped with a reason.
 * Errors  time: predicted over published tokens/s, less 1; memory: predicted over published bytes of the same kind
 *         (allocated, reserved, nvidia-smi), less 1; verdict: fits or not. No constant belongs to a row or a source.
 * Scored  per (source, model, GPU, strategy) group first, then over groups, since repeats are correlated.
 */
#ifndef SF_REPORTS_EVIDENCE_H
#define SF_REPORTS_EVIDENCE_H

#include <jansson.h>

#include "model/base/arena.h"
#include "model/base/status.h"

typedef struct {
    const char *id, *source, *model, *gpu, *strategy, *memory_kind, *skipped; /* skipped: why, or NULL */
    double tokens_per_s, predicted_tokens_per_s;          /* 0: unknown */
    double memory_bytes, predicted_memory_bytes;
    int fits, predicted_fits;                             /* -1: unknown */
    const char *job;                                      /* as JSON, or NULL */
} sf_evidence_row;

typedef struct {
    sf_evidence_row *rows;
    size_t n, cap;
} sf_evidence;

typedef enum { SF_EVIDENCE_TIME, SF_EVIDENCE_MEMORY, SF_EVIDENCE_QUANTITIES } sf_evidence_quantity;

typedef struct {
    size_t rows, groups;
    double median, p90, signed_median; /* of absolute relative errors over groups; of signed ones */
} sf_evidence_score;

sf_status sf_evidence_read(const char *path, sf_arena *arena, sf_evidence *out);

/* Signed relative error of one row; NAN: none. */
double sf_evidence_error(const sf_evidence_row *row, sf_evidence_quantity q);

typedef enum { SF_EVIDENCE_SOURCE, SF_EVIDENCE_STRATEGY, SF_EVIDENCE_GPU, SF_EVIDENCE_COLUMNS } sf_evidence_column;
const char *sf_evidence_value(const sf_evidence_row *row, sf_evidence_column column);
/* Over the rows whose `column` has `value`; NULL: all. */
sf_evidence_score sf_evidence_scored(const sf_evidence *e, sf_evidence_quantity q, sf_evidence_column column, const char *value, sf_arena *arena);
/* Rows with a verdict, and how many are right: of those that ran (1) and that ran out of memory (0). Nearly all published
 * runs ran, so that only the two together say something. */
void sf_evidence_verdicts(const sf_evidence *e, size_t rows[2], size_t right[2]);

#endif
