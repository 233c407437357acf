/* Collectives between processes; run by mpirun as `test_comm_mpi shared|messages`. With `lost` rank 1 dies in
 * mid-run and the others must notice. Exit 0: right; 1: wrong; 77: cannot run here. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/exec/comm_checks.h"

static int fail(const char *msg)
{
    fprintf(stderr, "%s\n", msg);
    return 1;
}

/* Several blocks, of different sizes on different ranks; arrays in the last one. */
static sf_status take_blocks(sf_comm *comm, void **last)
{
    for (int b = 0; b + 1 < SF_COMM_BLOCKS; b++)
        SF_TRY(sf_comm_memory(comm, (uint64_t)(1000 * (b + 1) + sf_comm_rank(comm)), last));
    return sf_comm_memory(comm, SF_COMM_CHECK_BYTES, last);
}

static int check_collectives(sf_comm *comm)
{
    char msg[500] = "";
    void *block;
    sf_status st = take_blocks(comm, &block);

    if (st.code != SF_OK)
        return fail(st.msg);
    if (!sf_comm_check(comm, SF_GROUP_WORLD, block, msg, sizeof msg))
        return fail(msg);
    if (sf_comm_world(comm) % 2 != 0)
        return 0;
    st = sf_comm_set_node(comm, 2);
    if (st.code != SF_OK)
        return fail(st.msg);
    if (!sf_comm_check(comm, SF_GROUP_LOCAL, block, msg, sizeof msg) || !sf_comm_check(comm, SF_GROUP_CROSS, block, msg, sizeof msg))
        return fail(msg);
    int mine = sf_comm_rank(comm) * 10, all[SF_COMM_CHECK_BYTES / 65536];
    st = sf_comm_exchange(comm, &mine, sizeof mine, all);
    if (st.code != SF_OK || all[0] != 0 || all[1] != 10)
        return fail("exchange went wrong");
    return 0;
}

static int check_stop(sf_comm *comm)
{
    void *block;
    sf_status st = take_blocks(comm, &block);

    if (st.code != SF_OK)
        return fail(st.msg);
    if (sf_comm_rank(comm) == 0) {
        sf_comm_stop(comm, SF_STOP_FULL, "out of device memory", NULL, 0);
        return 0;
    }
    st = sf_comm_call(comm, SF_OP_ALL_REDUCE, SF_GROUP_WORLD, SF_F32, block, block, 100000);
    return strstr(st.msg, "rank 0 ended the run: out of device memory") != NULL ? 0 : fail(st.msg);
}

/* The launcher tells the survivors to end as soon as it sees the death; here they must find it themselves. */
static int check_lost(sf_comm *comm)
{
    void *block;
    sf_status st = take_blocks(comm, &block);

    signal(SIGTERM, SIG_IGN);
    if (st.code != SF_OK)
        return fail(st.msg);
    if (sf_comm_rank(comm) == 1)
        kill(getpid(), SIGKILL);
    st = sf_comm_call(comm, SF_OP_ALL_REDUCE, SF_GROUP_WORLD, SF_F32, block, block, 100000);
    fprintf(stderr, "survivor: %s\n", st.msg);
    return 1;
}

int main(int argc, char **argv)
{
    sf_comm *comm;
    const char *how = argc > 1 ? argv[1] : "shared", *what = argc > 2 ? argv[2] : "collectives";
    sf_status st = sf_comm_mpi_open(strcmp(how, "shared") == 0 ? SF_COMM_SHARED : SF_COMM_MESSAGES, &comm);

    if (st.code == SF_EUNSUP)
        return 77;
    if (st.code != SF_OK)
        return fail(st.msg);
    int rc = strcmp(what, "stop") == 0 ? check_stop(comm) : strcmp(what, "lost") == 0 ? check_lost(comm) : check_collectives(comm);
    if (sf_comm_rank(comm) == 0)
        printf("%d ranks by %s\n", sf_comm_world(comm), sf_comm_transport_name(comm));
    sf_comm_close(comm);
    return rc;
}
