/* exec/launch.h: starts this program again as several ranks of one node, by mpirun.
 *
 * Errors  SF_EUNSUP: a build without MPI, or no mpirun in PATH; the message says which package.
 */
#ifndef SF_EXEC_LAUNCH_H
#define SF_EXEC_LAUNCH_H

#include "model/base/status.h"

/* Runs `shardfit args...` (args NULL-terminated, without the program's name) as `ranks` ranks and waits.
 * Signals that ask this process to end are passed on. *exit_code is 0 to 3 as documented for shardfit:
 * what a rank returned, or 3 when one was killed. */
sf_status sf_launch(int ranks, char *const args[], int *exit_code);

#endif
