/* sim/engine.h: plays a step program out in time.
 *
 * Actors   One per simulated rank: a representative per class of alike ranks, or every rank. An
 *   actor's host issues ops in program order (op i not before the issue costs of the ops ahead of
 *   it, which `issue` gives, or `issue_s` each); each stream runs its ops one at a time in issue order; WAIT holds a stream until the
 *   event's latest RECORD is reached; HOST_SYNC holds the issuing host until its streams are empty.
 * Collectives   start when the last actor of the group arrives and end for all at once.
 * Shared resources   A running op progresses at rate min(1, capacity/demand):
 *   - cores: ops of all ranks of a node share `cores_per_node` (0: devices with their own engines,
 *     no core sharing); an op's demand is what `cost` says
 *   - on a device, while a collective runs, other device work runs at `overlap_rate`
 * Cost   `cost(ctx, cls, issue, rank)` gives an op's seconds when alone and its demand of cores.
 * Result   the spans of one actor (`watch_rank`'s), each actor's end, and the counts of events.
 *
 * Deterministic: ties are broken by actor, stream, position. Times are seconds from the step's start.
 */
#ifndef SF_SIM_ENGINE_H
#define SF_SIM_ENGINE_H

#include "model/base/arena.h"
#include "model/base/status.h"
#include "model/program/cursor.h"
#include "model/program/outcome.h"

typedef struct {
    double seconds; /* alone, at full speed                               */
    double cores;   /* host cores it keeps busy while it runs (may be 0)  */
} sf_sim_cost;

typedef struct {
    sf_sim_cost (*cost)(void *ctx, const sf_class *cls, const sf_issue *issue, int rank);
    void *ctx;
    double issue_s;        /* host time to issue one op                                      */
    double (*issue)(void *ctx, const sf_class *cls, const sf_issue *issue); /* of this op; NULL: issue_s */
    double cores_per_node; /* 0: not shared                                                  */
    double overlap_rate;   /* of other work while a collective runs on the device; 1: no loss */
    bool every_rank;       /* simulate all ranks rather than one per class                   */
    int watch_rank;        /* whose spans are kept                                           */
} sf_sim_options;

typedef struct {
    sf_span_time *spans;
    size_t n_spans;
    double step_s;
    double *actor_end_s;
    double *actor_wait_s; /* time the actor's collectives waited for others */
    int n_actors;
    uint64_t events;      /* ops started and finished                       */
} sf_sim_result;

sf_status sf_simulate(const sf_program *program, const sf_sim_options *options, sf_arena *arena, sf_sim_result *out);

#endif
