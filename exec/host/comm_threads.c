/* exec/host/comm_threads.c: ranks as threads of one process: one region of plain memory. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "exec/host/comm_shared.h"

typedef struct {
    _Atomic int users;
    sf_shared_region *region;
} common;

static void leave(void *arg)
{
    common *c = arg;
    if (atomic_fetch_sub(&c->users, 1) == 1) {
        free(c->region);
        free(c);
    }
}

sf_status sf_comm_threads_open(int world, int ranks_per_node, sf_comm **out)
{
    if (world < 1 || world > SF_COMM_MAX_RANKS || ranks_per_node < 1 || world % ranks_per_node != 0)
        return SF_FAIL(SF_EINVAL, "%d ranks with %d per node: this executor runs 1 to %d ranks in nodes of equal size", world,
                       ranks_per_node, SF_COMM_MAX_RANKS);
    size_t bytes = sf_shared_region_bytes(world);
    common *c = calloc(1, sizeof *c);
    if (c != NULL)
        c->region = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (c == NULL || c->region == NULL) {
        free(c);
        return SF_FAIL(SF_ENOMEM, "no memory for a communicator");
    }
    memset(c->region, 0, bytes);
    sf_shared_region_start(c->region, world);
    atomic_store(&c->users, 1); /* this function, until all are open */
    sf_status st = SF_SUCCESS;
    for (int r = 0; r < world; r++)
        out[r] = NULL;
    for (int r = 0; r < world; r++) {
        atomic_fetch_add(&c->users, 1);
        SF_TRY_GOTO(st, sf_shared_open(c->region, false, r, ranks_per_node, leave, c, &out[r]), close_all);
    }
    leave(c);
    return SF_SUCCESS;
close_all:
    atomic_fetch_sub(&c->users, 1); /* of the one that did not open */
    for (int r = 0; r < world; r++) {
        sf_comm_close(out[r]);
        out[r] = NULL;
    }
    leave(c);
    return st;
}
