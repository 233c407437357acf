/* exec/comm.h: collectives between the ranks of a run on host memory.
 *
 * What      One communicator per rank. comm_self: one rank. comm_threads: ranks are threads of one
 *           process. comm_mpi: ranks are processes; those of one node work in shared memory, others
 *           exchange MPI messages.
 * Sums      Every element is the sum over the group's ranks in rank order 0, 1, .., W-1, taken in f32
 *           (f64 for f64) and rounded once to the array's type: all transports, sizes and collectives
 *           give the same bits.
 * Sizes     n is the number of elements of the whole array, as in op.h; all_gather, reduce_scatter,
 *           scatter, gather and all_to_all need it to be a multiple of the group's size.
 * Memory    Buffers must lie in memory that sf_comm_memory gave.
 * Threads   One thread per rank calls collectives at a time (the comm stream); sf_comm_exchange may
 *           be called by another thread of the rank meanwhile; sf_comm_stop by any.
 * Errors    SF_ECOMM after a stop: some rank failed, ended or was lost; sf_comm_stopped says who and
 *           why. Nothing waits longer than about a second after that.
 * Groups    WORLD; LOCAL: ranks_per_node consecutive ranks; CROSS: equal position in their LOCAL group.
 */
#ifndef SF_EXEC_COMM_H
#define SF_EXEC_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "model/base/dtype.h"
#include "model/base/status.h"
#include "model/program/program.h"

typedef struct sf_comm sf_comm;

enum { SF_COMM_MAX_RANKS = 256 };

typedef enum {
    SF_STOP_NONE,
    SF_STOP_FULL,   /* a device memory limit was hit; `note` holds the executor's record */
    SF_STOP_FAILED, /* a rank met an error                                               */
    SF_STOP_LOST,   /* a rank's process is gone                                          */
    SF_STOP_SIGNAL  /* this run was told to end                                          */
} sf_stop_kind;

enum { SF_STOP_NOTE_BYTES = 512 };

typedef struct {
    sf_stop_kind kind;
    int rank;       /* who stopped the run, or was lost */
    char msg[400];
    unsigned char note[SF_STOP_NOTE_BYTES];
} sf_stop;

typedef struct {
    uint64_t calls, bytes; /* bytes: of the whole array, summed over calls */
} sf_comm_count;

/* How ranks of processes reach each other. */
typedef enum { SF_COMM_AUTO, SF_COMM_SHARED, SF_COMM_MESSAGES } sf_comm_transport;

sf_status sf_comm_self_open(sf_comm **out);
/* `world` communicators, out[rank]; each is closed by its owner, the last one frees what is shared. */
sf_status sf_comm_threads_open(int world, int ranks_per_node, sf_comm **out);
/* Starts MPI if need be. SF_EUNSUP in a build without MPI. */
sf_status sf_comm_mpi_open(sf_comm_transport transport, sf_comm **out);
/* After a stop closing does not wait for other ranks. */
void sf_comm_close(sf_comm *comm);

/* What a launcher (mpirun, srun with PMI) put into the environment: how many ranks it started, 0 if there
 * is none; and which of them this process is. */
int sf_comm_launched_ranks(void);
int sf_comm_launched_rank(void);
/* This build's MPI library, or NULL. */
const char *sf_comm_mpi_version(void);

int sf_comm_rank(const sf_comm *comm);
int sf_comm_world(const sf_comm *comm);
const char *sf_comm_transport_name(const sf_comm *comm); /* "self", "threads", "shared memory", "messages" */
bool sf_comm_one_host(const sf_comm *comm);              /* do all ranks run on this machine? */

/* Collective: sets the size of LOCAL groups, which must divide the world (at first: the world). */
sf_status sf_comm_set_node(sf_comm *comm, int ranks_per_node);
int sf_comm_group_size(const sf_comm *comm, sf_group group);

/* Collective over the world: zeroed memory that the other ranks can reach. At most SF_COMM_BLOCKS. */
enum { SF_COMM_BLOCKS = 4 };
sf_status sf_comm_memory(sf_comm *comm, uint64_t bytes, void **out);

/* One collective of op.h. `in` and `out` are as its row says; where the row has one array (rw),
 * both are that array. A root's missing array is NULL elsewhere. An in that lies in out must be the
 * caller's own part of it. */
sf_status sf_comm_call(sf_comm *comm, sf_op_type op, sf_group group, sf_dtype dtype, const void *in, void *out, uint64_t n);
/* When the last call's members had all arrived (CLOCK_MONOTONIC): what came before was waiting for the
 * slowest, not communication. By messages: when the call began. */
struct timespec sf_comm_met(const sf_comm *comm);
/* Counts a collective of the same ranks that went another way (NCCL). */
void sf_comm_note(sf_comm *comm, sf_op_type op, sf_group group, uint64_t bytes);
const sf_comm_count *sf_comm_counted(const sf_comm *comm, sf_op_type op, sf_group group);
void sf_comm_count_reset(sf_comm *comm);

/* all[i] (bytes each) = rank i's `mine`; for results and control, not for training data. */
sf_status sf_comm_exchange(sf_comm *comm, const void *mine, size_t bytes, void *all);

/* Ends the run for all ranks: their calls, now and later, return SF_ECOMM. The first stop counts. */
void sf_comm_stop(sf_comm *comm, sf_stop_kind kind, const char *msg, const void *note, size_t note_bytes);
/* The stop, if there is one. */
bool sf_comm_stopped(const sf_comm *comm, sf_stop *out);
sf_status sf_comm_stop_status(const sf_comm *comm);

#endif
