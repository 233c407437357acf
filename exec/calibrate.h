/* exec/calibrate.h: measures this machine into one set of a profile (model/cost/profile.h).
 *
 * How       Every rank measures the same things at the same time, so that caches and memory are shared
 *           as in a run; a set holds the means over ranks. Kernels are timed through the executor's own
 *           op rows in CPU time of their thread, so that a busy machine disturbs less and sharing of
 *           cores is left to the simulator. Inputs are reused, outputs wander through 64 MiB: what an op
 *           reads was just written by another, what it writes has left the cache.
 * Units     seconds, bytes; as in profile.h.
 */
#ifndef SF_EXEC_CALIBRATE_H
#define SF_EXEC_CALIBRATE_H

#include "exec/comm.h"
#include "model/cost/profile.h"

typedef enum { SF_CALIBRATE_QUICK, SF_CALIBRATE_FULL, SF_CALIBRATE_TOUCH } sf_calibrate_depth; /* TOUCH: each op once at its smallest, for tests */

/* Collective. kernels false: only what communicates (for threads, whose kernels are those of processes). */
sf_status sf_calibrate(sf_comm *comm, sf_calibrate_depth depth, bool kernels, sf_profile_set *out);

/* exec/calibrate_comm.c: collectives, streams' hand-over and what communication does to kernels. */
sf_status sf_calibrate_comm(sf_comm *comm, sf_calibrate_depth depth, sf_profile_set *out);

#endif
