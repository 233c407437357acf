/* model/program/timeline.h: from the boxes of one rank's step to the times of an outcome. The
 * simulator and the executors both fill spans and call this, so a predicted and a measured
 * "exposed communication" mean the same.
 *
 * Definitions, over the time from the first start to the last end (step_s):
 *   phase_s          at any moment the phase is that of the op started last on a stream other than
 *                    comm; before the first such op, that op's phase
 *   exposed_comm_s   a collective runs and nothing else does; shared out per collective and group
 *   idle_s           nothing runs
 *   busy_s           of phase_s: anything but a collective runs; step_s = sum of busy_s + exposed_comm_s + idle_s
 *   op_s, kind_s     busy time on the op's own stream, overlaps not removed
 */
#ifndef SF_PROGRAM_TIMELINE_H
#define SF_PROGRAM_TIMELINE_H

#include "model/program/outcome.h"

/* `spans` are of one rank, in any order (they are sorted by start in place). Fills out->time except step_s_min/max and
 * bound_by's detail; adds time_s and exposed_s to existing or new comm rows. */
void sf_timeline_summarise(sf_span_time *spans, size_t n, sf_outcome *out);

/* What limits the step, in words: "compute", "communication", "optimizer", "launch", "copies". */
const char *sf_timeline_bound_by(const sf_outcome *out);

#endif
