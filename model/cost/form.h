/* model/cost/form.h: closed forms: what a job costs as a function of its micro-batch b and its
 * accumulation g, in nanoseconds, equal to the accountant to the byte.
 *
 * A form belongs to a structure: a job with everything but b and g decided. It is made of pieces, each a
 * rectangle of (b, g) in which every buffer of the lowered program is linear in b, memory does not depend
 * on g, and calls, bytes and FLOPs are linear in b and in g:
 *   peak memory   the highest of a few lines in b (envelope.h)
 *   a count       c00 + c10 b + c01 g + c11 b g
 * A range of b is lowered at eight points: its ends, beside the first, and unevenly between. Where the
 * program's text differs or a size is off its line (a rounding, a threshold, a chunk of a power of two),
 * every b of the range is lowered, and the linear stretches become pieces: more pieces, never an error.
 * Along g it is lowered at the first, its neighbour and the last, and cut likewise.
 *
 * Times   are for pruning a search only: busy seconds of each stream, interpolated between the lowered
 *         points. The longest stream bounds the step from below.
 * Errors  those of the lowering.
 * Owner   the arena given to sf_form_make; evaluation allocates nothing.
 */
#ifndef SF_COST_FORM_H
#define SF_COST_FORM_H

#include "model/base/arena.h"
#include "model/base/status.h"
#include "model/program/cursor.h"
#include "model/program/outcome.h"

typedef struct sf_form sf_form;

typedef struct {
    void *ctx;
    /* The structure's program at b, g; it lives in `scratch`. */
    sf_status (*lower)(void *ctx, int64_t b, int64_t g, sf_arena *scratch, const sf_program **out);
    /* Seconds of one op alone; NULL: times stay 0. */
    double (*seconds)(void *ctx, const sf_class *cls, const sf_issue *issue);
    /* Rather than lower every b of a long range that is not linear, give up: SF_EUNSUP. */
    bool only_linear;
    sf_arena *scratch; /* for the programs, reset after each piece; NULL: one of its own for each call */
} sf_form_source;

/* Forms for 1 <= b <= most_b, 1 <= g <= most_g. */
sf_status sf_form_make(const sf_form_source *source, int64_t most_b, int64_t most_g, sf_arena *arena, const sf_form **out);

/* The same for single points, one lowering each: cheaper where few are wanted. `*form` NULL: a new one. */
sf_status sf_form_add_point(const sf_form_source *source, int64_t b, int64_t g, sf_arena *arena, sf_form **form);

typedef struct {
    uint64_t peak_allocated_bytes, host_bytes, comm_bytes, comm_calls, model_flop, hardware_flop, tokens;
    double stream_s[SF_STREAM_COUNT];
    sf_phase phase_of_peak;
    const char *op_of_peak;
} sf_form_value;

/* Of the class with the largest device peak. False: b or g is outside the form. */
bool sf_form_eval(const sf_form *form, int64_t b, int64_t g, sf_form_value *out);

/* All that sf_estimate fills. */
bool sf_form_outcome(const sf_form *form, int64_t b, int64_t g, uint64_t capacity_bytes, sf_outcome *out);

/* Largest b whose peak is at most `capacity_bytes` at this g; 0: not even 1. */
int64_t sf_form_most_b(const sf_form *form, int64_t g, uint64_t capacity_bytes);

size_t sf_form_pieces(const sf_form *form);
size_t sf_form_lowerings(const sf_form *form); /* programs lowered to make it */

#endif
