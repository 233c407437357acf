/* model/program/order.h: what is ordered before what, while a program is issued.
 *
 * Each stream has a position (ops issued on it so far) and a clock: for every stream, how many of
 * its ops are known to be complete before this stream's next op. RECORD keeps the clock, WAIT
 * joins it (vector clocks; Lamport 1978, Fidge 1988).
 */
#ifndef SF_PROGRAM_ORDER_H
#define SF_PROGRAM_ORDER_H

#include "model/base/arena.h"
#include "model/program/cursor.h"

typedef struct {
    int64_t done[SF_STREAM_COUNT];
} sf_clock;

typedef struct {
    sf_clock stream[SF_STREAM_COUNT]; /* done[own] is the stream's own position */
    sf_clock *event;                  /* [n_events] as last recorded             */
    bool *recorded;
} sf_order;

void sf_order_start(sf_order *order, const sf_class *cls, sf_arena *arena);

/* Takes one issued op into account. False: a WAIT for an event that nothing has recorded. */
bool sf_order_issue(sf_order *order, const sf_issue *issue);

/* Is all that `clock` counts complete before the next op of `stream`? */
bool sf_order_before(const sf_order *order, const sf_clock *clock, sf_stream stream);

#endif
