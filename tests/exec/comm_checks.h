/* tests/exec/comm_checks.h: every collective on one rank of a communicator, checked to the bit. Used by
 * the thread and by the MPI tests.
 */
#ifndef SF_TESTS_EXEC_COMM_CHECKS_H
#define SF_TESTS_EXEC_COMM_CHECKS_H

#include "exec/comm.h"

enum { SF_COMM_CHECK_BYTES = 8 << 20 }; /* of the block that a check works in */

/* Collective. `block` is sf_comm_memory of SF_COMM_CHECK_BYTES. Writes what is wrong to `msg`; true if nothing is. */
bool sf_comm_check(sf_comm *comm, sf_group group, void *block, char *msg, size_t msg_size);

#endif
