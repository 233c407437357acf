#include "exec/host/comm_mpi.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/host/block.h"
#include "exec/host/comm_shared.h"

static bool abandoned;

sf_status sf_mpi_fail(const char *file, int line, const char *call, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int len = 0;

    MPI_Error_string(code, text, &len);
    return sf_fail_at(file, line, SF_ECOMM, "MPI: %.200s in %.60s", text, call);
}

void sf_mpi_abandon(void)
{
    abandoned = true;
}

static void finish(void)
{
    int done = 0;
    MPI_Finalized(&done);
    if (!done && !abandoned)
        MPI_Finalize();
}

static sf_status start(int *rank, int *world)
{
    int started = 0, provided = 0;

    MPI_Initialized(&started);
    if (!started) {
        SF_MPI(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided));
        atexit(finish);
        if (provided < MPI_THREAD_SERIALIZED)
            return SF_FAIL(SF_ECOMM, "this MPI lets only its first thread communicate (level %d); use one with MPI_THREAD_SERIALIZED",
                           provided);
    }
    SF_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    SF_MPI(MPI_Comm_rank(MPI_COMM_WORLD, rank));
    SF_MPI(MPI_Comm_size(MPI_COMM_WORLD, world));
    return SF_SUCCESS;
}

static void give_region(void *arg)
{
    sf_host_block *block = arg;
    sf_stop_kind kind = sf_shared_region_stopped(block->base);
    if (kind != SF_STOP_NONE && kind != SF_STOP_FULL)
        sf_mpi_abandon();
    sf_host_block_give(block);
    free(block);
}

/* Maps the region that rank 0 makes. SF_ECOMM if any rank cannot: all ranks agree on that. */
static sf_status share_region(int rank, int world, sf_host_block *block)
{
    int where[2] = { (int)getpid(), -1 }, ok = 1, all_ok = 0;
    uint64_t bytes = sf_shared_region_bytes(world);
    sf_status st = SF_SUCCESS;

    *block = (sf_host_block){ .fd = -1 };
    if (rank == 0) {
        st = sf_host_block_share(bytes, block);
        where[1] = st.code == SF_OK ? block->fd : -1;
        if (st.code == SF_OK)
            sf_shared_region_start(block->base, world);
    }
    SF_MPI(MPI_Bcast(where, 2, MPI_INT, 0, MPI_COMM_WORLD));
    if (rank != 0)
        st = where[1] < 0 ? SF_FAIL(SF_ECOMM, "rank 0 could not make shared memory")
                          : sf_host_block_join(where[0], where[1], bytes, block);
    ok = st.code == SF_OK;
    SF_MPI(MPI_Allreduce(&ok, &all_ok, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
    if (all_ok)
        return SF_SUCCESS;
    if (ok)
        sf_host_block_give(block);
    return st.code != SF_OK ? st : SF_FAIL(SF_ECOMM, "another rank cannot reach shared memory");
}

static sf_status open_shared(int rank, int world, sf_comm **out)
{
    sf_host_block *block = calloc(1, sizeof *block);
    if (block == NULL)
        return SF_FAIL(SF_ENOMEM, "no memory for a communicator");
    sf_status st = share_region(rank, world, block);
    if (st.code != SF_OK) {
        free(block);
        return st;
    }
    st = sf_shared_open(block->base, true, rank, world, give_region, block, out);
    if (st.code != SF_OK)
        give_region(block);
    return st;
}

sf_status sf_comm_mpi_open(sf_comm_transport transport, sf_comm **out)
{
    int rank, world, near_size = 0;
    MPI_Comm near;

    SF_TRY(start(&rank, &world));
    if (world > SF_COMM_MAX_RANKS)
        return SF_FAIL(SF_EUNSUP, "%d ranks: this executor runs at most %d", world, SF_COMM_MAX_RANKS);
    SF_MPI(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &near));
    SF_MPI(MPI_Comm_size(near, &near_size));
    SF_MPI(MPI_Comm_free(&near));
    if (transport != SF_COMM_MESSAGES && near_size == world) {
        sf_status st = open_shared(rank, world, out);
        if (st.code == SF_OK || transport == SF_COMM_SHARED)
            return st;
    }
    if (transport == SF_COMM_SHARED)
        return SF_FAIL(SF_ECOMM, "only %d of %d ranks are on this node: they cannot share memory", near_size, world);
    return sf_messages_open(rank, world, out);
}

const char *sf_comm_mpi_version(void)
{
    static char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int len = 0;
    MPI_Get_library_version(version, &len); /* may be called before MPI_Init */
    version[strcspn(version, ",\n")] = '\0';
    return version;
}
