/* exec/host/comm_self.c: the communicator of a single rank. Collectives over one rank are copies,
 * which sf_comm_call does itself.
 */
#include <stdlib.h>
#include <string.h>

#include "exec/comm_impl.h"
#include "exec/host/block.h"

typedef struct {
    sf_comm base;
    sf_host_block blocks[SF_COMM_BLOCKS];
    int n_blocks;
    sf_stop stop;
} self_comm;

static sf_status self_call(sf_comm *comm, const sf_comm_args *args)
{
    (void)comm;
    return SF_FAIL(SF_EINVAL, "%s over %d ranks on the communicator of one rank", sf_op_name(args->op), args->size);
}

static sf_status self_memory(sf_comm *comm, uint64_t bytes, void **out)
{
    self_comm *self = (self_comm *)comm;
    if (self->n_blocks == SF_COMM_BLOCKS)
        return SF_FAIL(SF_EINVAL, "more than %d blocks of memory asked of a communicator", SF_COMM_BLOCKS);
    SF_TRY(sf_host_block_take(bytes, &self->blocks[self->n_blocks]));
    *out = self->blocks[self->n_blocks++].base;
    return SF_SUCCESS;
}

static sf_status self_exchange(sf_comm *comm, const void *mine, size_t bytes, void *all)
{
    SF_TRY(sf_comm_stop_status(comm));
    memcpy(all, mine, bytes);
    return SF_SUCCESS;
}

static void self_stop(sf_comm *comm, const sf_stop *stop)
{
    self_comm *self = (self_comm *)comm;
    if (self->stop.kind == SF_STOP_NONE)
        self->stop = *stop;
}

static bool self_stopped(const sf_comm *comm, sf_stop *out)
{
    const self_comm *self = (const self_comm *)comm;
    if (self->stop.kind == SF_STOP_NONE)
        return false;
    *out = self->stop;
    return true;
}

static void self_close(sf_comm *comm)
{
    self_comm *self = (self_comm *)comm;
    for (int i = 0; i < self->n_blocks; i++)
        sf_host_block_give(&self->blocks[i]);
    free(self);
}

static const sf_comm_type self_type = { "self", true, self_call, self_memory, self_exchange, self_stop, self_stopped, self_close, NULL };

sf_status sf_comm_self_open(sf_comm **out)
{
    self_comm *self = calloc(1, sizeof *self);
    if (self == NULL)
        return SF_FAIL(SF_ENOMEM, "no memory for a communicator");
    self->base = (sf_comm){ .type = &self_type, .world = 1, .ranks_per_node = 1 };
    *out = &self->base;
    return SF_SUCCESS;
}
