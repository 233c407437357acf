/* exec/ledger.h: the memory that a rank really holds, counted where it is taken and given back.
 *
 * The device has a limit: what would go above it is refused and kept as the refusal. Bytes are those
 * of the buffers, as the accountant's, so that measured and predicted can be equal to the byte.
 */
#ifndef SF_EXEC_LEDGER_H
#define SF_EXEC_LEDGER_H

#include "model/base/arena.h"
#include "model/program/outcome.h"

typedef struct {
    uint64_t request_bytes; /* 0: nothing was refused */
    uint64_t seq, resident_bytes, limit_bytes;
    uint64_t at[SF_CAT_COUNT]; /* resident then */
    sf_phase phase;
    int step;
    char buffer[64];
} sf_refusal;

typedef struct {
    uint64_t limit_bytes; /* 0: none */
    uint64_t live[SF_SPACE_COUNT], peak[SF_SPACE_COUNT];
    uint64_t category[SF_CAT_COUNT], category_peak[SF_CAT_COUNT], at_peak[SF_CAT_COUNT];
    uint64_t phase_peak[SF_PHASE_COUNT];
    sf_phase phase_of_peak;
    const char *buffer_of_peak;
    uint64_t seq_of_peak;
    sf_refusal refusal;
} sf_ledger;

/* False: above the limit; nothing is taken. */
bool sf_ledger_take(sf_ledger *ledger, const sf_buffer *buffer, uint64_t seq, sf_phase phase, int step);
void sf_ledger_give(sf_ledger *ledger, const sf_buffer *buffer);

/* Fills out->memory (but the memory line), fits and verdict; texts in the arena. */
void sf_ledger_outcome(const sf_ledger *ledger, uint64_t device_block_bytes, sf_arena *arena, sf_outcome *out);

#endif
