/* model/cost/envelope.h: the memory of a program whose sizes grow linearly with one variable x (the
 * micro-batch): live memory at any moment is then a line in x, and its peak the highest of a few lines.
 *
 * Loops are not unrolled: a loop is walked once for every stretch of iterations in which the same ops are
 * issued. Within a stretch each iteration changes live memory by the same amount, so the peak is in the
 * stretch's first or last iteration. Of the lines only those are kept that are highest somewhere in
 * x0 .. x0 + range; on a tie the earlier moment stays, as in the accountant.
 *
 * Units   bytes. A line's value at x is at0 + per_unit * (x - x0).
 * Owner   everything lives in the arena; names are borrowed from the program.
 */
#ifndef SF_COST_ENVELOPE_H
#define SF_COST_ENVELOPE_H

#include "model/base/arena.h"
#include "model/program/program.h"

typedef struct {
    int64_t at0, per_unit;
} sf_line;

static inline int64_t sf_line_at(const sf_line *l, int64_t dx)
{
    return l->at0 + l->per_unit * dx;
}

typedef struct {
    sf_line *items;
    size_t count, cap;
} sf_lines;

/* The device at an allocation that may be the peak. */
typedef struct {
    sf_line total, category[SF_CAT_COUNT];
    sf_phase phase;
    const char *op; /* name of the buffer allocated */
} sf_moment;

typedef struct {
    sf_moment *items;
    size_t count, cap;
} sf_moments;

typedef struct {
    sf_moments device;
    sf_lines host, category[SF_CAT_COUNT], phase[SF_PHASE_COUNT]; /* own peaks                        */
    uint64_t *times;                                              /* per op of the class: how often it is issued */
} sf_envelope;

/* `growth[i]`: elements that buffer i gains per unit of x; NULL: none does. */
void sf_envelope_make(const sf_class *cls, const int64_t *growth, int64_t range, sf_arena *arena, sf_envelope *out);

/* The highest at x0 + dx; 0 where there is none. */
int64_t sf_lines_top(const sf_lines *lines, int64_t dx);
const sf_moment *sf_moments_top(const sf_moments *moments, int64_t dx); /* the first of the highest; NULL: none */

#endif
