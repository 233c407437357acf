/* exec/host/comm_mpi_absent.c: stands in for comm_mpi.c in a build without MPI. */
#include "exec/comm_impl.h"

sf_status sf_comm_mpi_open(sf_comm_transport transport, sf_comm **out)
{
    (void)transport;
    (void)out;
    return SF_FAIL(SF_EUNSUP, "this shardfit was built without MPI: it runs one rank, or nn.DataParallel's devices as threads; "
                              "build with -Dmpi=enabled (Debian package libopenmpi-dev) for more ranks");
}

const char *sf_comm_mpi_version(void)
{
    return NULL;
}
