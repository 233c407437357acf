/* exec/host/comm_shared.h: collectives among ranks that reach each other's memory: threads of one
 * process, or processes of one node that map each other's blocks.
 *
 * How       Every rank publishes where its arrays lie, all wait for each other, then each rank reads
 *           (or writes) its part of the others' arrays in place, and all wait again: no staging, each
 *           element is read once per rank that needs it. Waiting sleeps in the kernel (futex(2)) after a
 *           few microseconds, so that a waiting rank's core is free for compute.
 * Failure   A waiting rank looks four times a second whether the ranks it waits for are alive.
 */
#ifndef SF_EXEC_HOST_COMM_SHARED_H
#define SF_EXEC_HOST_COMM_SHARED_H

#include "exec/comm_impl.h"

typedef struct sf_shared_region sf_shared_region;

/* What `world` ranks have in common; lies in zeroed memory that all of them map. */
size_t sf_shared_region_bytes(int world);
void sf_shared_region_start(sf_shared_region *region, int world);
sf_stop_kind sf_shared_region_stopped(const sf_shared_region *region);

/* `release(arg)` is called when the communicator is closed and no longer touches the region. */
sf_status sf_shared_open(sf_shared_region *region, bool processes, int rank, int ranks_per_node, void (*release)(void *),
                         void *arg, sf_comm **out);

#endif
