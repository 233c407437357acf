#include "exec/comm_impl.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int sf_comm_rank(const sf_comm *comm)
{
    return comm->rank;
}

int sf_comm_world(const sf_comm *comm)
{
    return comm->world;
}

const char *sf_comm_transport_name(const sf_comm *comm)
{
    return comm->type->name;
}

bool sf_comm_one_host(const sf_comm *comm)
{
    return comm->type->one_host;
}

void sf_comm_close(sf_comm *comm)
{
    if (comm != NULL)
        comm->type->close(comm);
}

/* Open MPI; MPICH and other PMI launchers; srun */
static const char *const size_names[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS" };
static const char *const rank_names[] = { "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID" };
enum { LAUNCHERS = sizeof size_names / sizeof size_names[0] };

static const char *size_of(int launcher)
{
    const char *value = getenv(size_names[launcher]);
    return value != NULL && atoi(value) > 0 ? value : NULL;
}

int sf_comm_launched_ranks(void)
{
    for (int i = 0; i < LAUNCHERS; i++)
        if (size_of(i) != NULL)
            return atoi(size_of(i));
    return 0;
}

int sf_comm_launched_rank(void)
{
    for (int i = 0; i < LAUNCHERS; i++)
        if (size_of(i) != NULL)
            return getenv(rank_names[i]) != NULL ? atoi(getenv(rank_names[i])) : 0;
    return 0;
}

sf_status sf_comm_set_node(sf_comm *comm, int ranks_per_node)
{
    if (ranks_per_node < 1 || comm->world % ranks_per_node != 0)
        return SF_FAIL(SF_EINVAL, "%d ranks do not divide into nodes of %d; choose a divisor", comm->world, ranks_per_node);
    comm->ranks_per_node = ranks_per_node;
    return comm->type->regroup != NULL ? comm->type->regroup(comm) : SF_SUCCESS;
}

int sf_comm_group_size(const sf_comm *comm, sf_group group)
{
    switch (group) {
    case SF_GROUP_LOCAL: return comm->ranks_per_node;
    case SF_GROUP_CROSS: return comm->world / comm->ranks_per_node;
    default: return comm->world;
    }
}

static void resolve_group(const sf_comm *comm, sf_comm_args *a)
{
    int node = comm->rank / comm->ranks_per_node, local = comm->rank % comm->ranks_per_node;

    a->size = sf_comm_group_size(comm, a->group);
    switch (a->group) {
    case SF_GROUP_LOCAL:
        a->self = local;
        a->first = node * comm->ranks_per_node;
        a->stride = 1;
        break;
    case SF_GROUP_CROSS:
        a->self = node;
        a->first = local;
        a->stride = comm->ranks_per_node;
        break;
    default:
        a->self = comm->rank;
        a->first = 0;
        a->stride = 1;
    }
}

sf_status sf_comm_call(sf_comm *comm, sf_op_type op, sf_group group, sf_dtype dtype, const void *in, void *out, uint64_t n)
{
    sf_comm_args a = { .op = op, .group = group, .dtype = dtype, .in = in, .out = out, .n = n };

    assert(sf_op_kind_of(op) == SF_KIND_COMM);
    resolve_group(comm, &a);
    bool sums = op == SF_OP_ALL_REDUCE || op == SF_OP_REDUCE || op == SF_OP_REDUCE_SCATTER;
    bool splits = op != SF_OP_ALL_REDUCE && op != SF_OP_REDUCE && op != SF_OP_BROADCAST;
    if (sums && !sf_comm_sums(dtype))
        return SF_FAIL(SF_EUNSUP, "%s cannot sum %s", sf_op_name(op), sf_dtype_name(dtype));
    if (splits && n % (uint64_t)a.size != 0)
        return SF_FAIL(SF_EINVAL, "%s of %llu elements does not divide over %d ranks", sf_op_name(op), (unsigned long long)n, a.size);
    sf_comm_note(comm, op, group, n * sf_dtype_bytes(dtype));
    clock_gettime(CLOCK_MONOTONIC, &comm->met);
    if (a.size == 1) {
        if (in != NULL && out != NULL && in != out)
            memmove(out, in, n * sf_dtype_bytes(dtype));
        return SF_SUCCESS;
    }
    return comm->type->call(comm, &a);
}

struct timespec sf_comm_met(const sf_comm *comm)
{
    return comm->met;
}

void sf_comm_note(sf_comm *comm, sf_op_type op, sf_group group, uint64_t bytes)
{
    comm->count[op][group].calls++;
    comm->count[op][group].bytes += bytes;
}

const sf_comm_count *sf_comm_counted(const sf_comm *comm, sf_op_type op, sf_group group)
{
    return &comm->count[op][group];
}

void sf_comm_count_reset(sf_comm *comm)
{
    memset(comm->count, 0, sizeof comm->count);
}

sf_status sf_comm_memory(sf_comm *comm, uint64_t bytes, void **out)
{
    return comm->type->memory(comm, bytes, out);
}

sf_status sf_comm_exchange(sf_comm *comm, const void *mine, size_t bytes, void *all)
{
    return comm->type->exchange(comm, mine, bytes, all);
}

void sf_comm_stop(sf_comm *comm, sf_stop_kind kind, const char *msg, const void *note, size_t note_bytes)
{
    sf_stop stop = { .kind = kind, .rank = comm->rank };

    assert(note_bytes <= sizeof stop.note);
    strncpy(stop.msg, msg, sizeof stop.msg - 1);
    if (note_bytes > 0)
        memcpy(stop.note, note, note_bytes);
    comm->type->stop(comm, &stop);
}

bool sf_comm_stopped(const sf_comm *comm, sf_stop *out)
{
    return comm->type->stopped(comm, out);
}

sf_status sf_comm_stop_status(const sf_comm *comm)
{
    sf_stop stop;

    if (!sf_comm_stopped(comm, &stop))
        return SF_SUCCESS;
    if (stop.kind == SF_STOP_LOST)
        return SF_FAIL(SF_ECOMM, "rank %d was lost: %s", stop.rank, stop.msg);
    return SF_FAIL(SF_ECOMM, "rank %d ended the run: %s", stop.rank, stop.msg);
}
