/* model/program/plan.h: where each buffer instance lies in one block of memory per space.
 *
 * Persistent instances come first, then the others by best fit over the holes that are free at
 * their ALLOC. A hole left by a buffer of another home stream is reused only when that stream's
 * work up to the free is ordered before the new home's next op, so any timing is safe. Offsets
 * are multiples of SF_PLAN_ALIGN. Computed without allocating; executors take one block of
 * `arena_bytes` and never allocate during a step.
 */
#ifndef SF_PROGRAM_PLAN_H
#define SF_PROGRAM_PLAN_H

#include "model/base/arena.h"
#include "model/base/status.h"
#include "model/program/program.h"

enum { SF_PLAN_ALIGN = 256 };

typedef struct {
    uint64_t *kept_offset;                    /* [n_instances] of persistent ones: bytes from the block's start */
    uint64_t *alloc_offset;                   /* [n_allocs] of the k-th ALLOC in issue order: an instance that is
                                               * allocated again may lie elsewhere then                       */
    size_t n_allocs, cap_allocs;
    uint64_t arena_bytes[SF_SPACE_COUNT];     /* size of the block, holes included                       */
    uint64_t live_peak_bytes[SF_SPACE_COUNT]; /* peak of the sum of live buffers: no block can be smaller */
} sf_plan;

sf_status sf_plan_make(const sf_class *cls, sf_arena *arena, sf_plan *out);

#endif
