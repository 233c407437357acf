/* exec/host/comm_mpi.h: what comm_mpi.c (start, choice of transport) and comm_messages.c (ranks on
 * several nodes) share. Only these two include mpi.h.
 */
#ifndef SF_EXEC_HOST_COMM_MPI_H
#define SF_EXEC_HOST_COMM_MPI_H

#include <mpi.h>

#include "exec/comm_impl.h"

/* One macro turns MPI's codes into statuses; communicators return errors. */
#define SF_MPI(call)                                                                               \
    do {                                                                                           \
        int mpi_code_ = (call);                                                                    \
        if (mpi_code_ != MPI_SUCCESS)                                                              \
            return sf_mpi_fail(__FILE__, __LINE__, #call, mpi_code_);                              \
    } while (0)
sf_status sf_mpi_fail(const char *file, int line, const char *call, int code);

sf_status sf_messages_open(int rank, int world, sf_comm **out);

/* After this MPI_Finalize is not called at exit: other ranks may be gone. */
void sf_mpi_abandon(void);

#endif
