/* exec/host/comm_messages.c: collectives by MPI messages, for ranks on several nodes.
 *
 * Plain moves are MPI's own non-blocking collectives. Sums are ours, so that they are taken in rank
 * order: each rank receives its slice of every other's array in chunks, two chunks under way at a
 * time, and adds them up. MPI is started with MPI_THREAD_SERIALIZED: a lock guards its calls, and
 * between tests a waiting thread sleeps.
 */
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "exec/host/block.h"
#include "exec/host/comm_mpi.h"
#include "model/base/units.h"

enum { CHUNK_BYTES = 256 << 10, TAG_SUM = 1, TAG_STOP = 2, STAGES = 2 };

typedef struct {
    sf_comm base;
    MPI_Comm group[SF_GROUP_COUNT], control;
    pthread_mutex_t mpi;
    pthread_mutex_t stop_lock;
    sf_stop stop;
    bool stop_sent;
    MPI_Request *requests;  /* [2 * STAGES * world] */
    char *stage;            /* [STAGES][world] chunks */
    sf_host_block blocks[SF_COMM_BLOCKS];
    int n_blocks;
} messages_comm;

static MPI_Datatype type_of(sf_dtype dtype)
{
    switch (sf_dtype_bytes(dtype)) {
    case 8: return MPI_UINT64_T;
    case 4: return MPI_UINT32_T;
    case 2: return MPI_UINT16_T;
    default: return MPI_UINT8_T;
    }
}

/* ---- stopping ---- */

static bool take_stop(messages_comm *self, const sf_stop *stop)
{
    pthread_mutex_lock(&self->stop_lock);
    bool first = self->stop.kind == SF_STOP_NONE;
    if (first)
        self->stop = *stop;
    pthread_mutex_unlock(&self->stop_lock);
    return first;
}

static bool messages_stopped(const sf_comm *comm, sf_stop *out)
{
    messages_comm *self = (messages_comm *)(uintptr_t)comm;

    pthread_mutex_lock(&self->stop_lock);
    *out = self->stop;
    pthread_mutex_unlock(&self->stop_lock);
    return out->kind != SF_STOP_NONE;
}

static void messages_stop(sf_comm *comm, const sf_stop *stop)
{
    messages_comm *self = (messages_comm *)comm;
    MPI_Request request;

    if (!take_stop(self, stop))
        return;
    pthread_mutex_lock(&self->mpi);
    for (int r = 0; r < comm->world; r++) /* self->stop lives as long as the communicator: nobody waits for these */
        if (r != comm->rank && MPI_Isend(&self->stop, (int)sizeof self->stop, MPI_BYTE, r, TAG_STOP, self->control, &request) == MPI_SUCCESS)
            MPI_Request_free(&request);
    pthread_mutex_unlock(&self->mpi);
    self->stop_sent = true;
    if (stop->kind != SF_STOP_FULL)
        sf_mpi_abandon();
}

/* Under the lock: has a stop come in? */
static void look_for_stop(messages_comm *self)
{
    int there = 0;
    MPI_Status status;
    sf_stop stop;

    if (MPI_Iprobe(MPI_ANY_SOURCE, TAG_STOP, self->control, &there, &status) != MPI_SUCCESS || !there)
        return;
    if (MPI_Recv(&stop, (int)sizeof stop, MPI_BYTE, status.MPI_SOURCE, TAG_STOP, self->control, MPI_STATUS_IGNORE) != MPI_SUCCESS)
        return;
    take_stop(self, &stop);
    if (stop.kind != SF_STOP_FULL) /* then all ranks live, and MPI_Finalize drops what is unfinished */
        sf_mpi_abandon();
}

/* Waits for `count` requests, sleeping between tests: 5 us at first, then 100 us. */
static sf_status await_all(messages_comm *self, int count, MPI_Request *requests)
{
    for (int tries = 0;; tries++) {
        int done = 0;
        pthread_mutex_lock(&self->mpi);
        int code = MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE);
        if (!done && tries % 16 == 15)
            look_for_stop(self);
        pthread_mutex_unlock(&self->mpi);
        SF_MPI(code);
        if (done)
            return SF_SUCCESS;
        SF_TRY(sf_comm_stop_status(&self->base));
        struct timespec nap = { .tv_nsec = tries < 64 ? 5000 : 100000 };
        nanosleep(&nap, NULL);
    }
}

#define START(call)                                                                                \
    do {                                                                                           \
        pthread_mutex_lock(&self->mpi);                                                            \
        int code_ = (call);                                                                        \
        pthread_mutex_unlock(&self->mpi);                                                          \
        if (code_ != MPI_SUCCESS)                                                                  \
            return sf_mpi_fail(__FILE__, __LINE__, #call, code_);                                  \
    } while (0)

/* ---- sums ---- */

/* A part of the array per member: [lo, hi) elements. Only the roots of the sum receive. */
typedef struct {
    const sf_comm_args *args;
    uint64_t per;     /* elements per part           */
    bool to_first;    /* the whole array, to rank 0  */
    char *out;        /* where the own sum goes      */
} sum_job;

static void part_of(const sum_job *job, int member, uint64_t *lo, uint64_t *hi)
{
    uint64_t n = job->args->n;
    if (job->to_first) {
        *lo = 0;
        *hi = member == 0 ? n : 0;
        return;
    }
    *lo = job->per * (uint64_t)member < n ? job->per * (uint64_t)member : n;
    *hi = job->per * (uint64_t)(member + 1) < n ? job->per * (uint64_t)(member + 1) : n;
}

/* The elements of a member's part in chunk c. */
static uint64_t chunk_of(const sum_job *job, int member, uint64_t c, uint64_t *at)
{
    uint64_t lo, hi, chunk = CHUNK_BYTES / sf_dtype_bytes(job->args->dtype);
    part_of(job, member, &lo, &hi);
    *at = lo + c * chunk;
    if (*at >= hi)
        return 0;
    return hi - *at < chunk ? hi - *at : chunk;
}

static char *stage_of(messages_comm *self, uint64_t c, int member)
{
    return self->stage + ((size_t)(c % STAGES) * (size_t)self->base.world + (size_t)member) * CHUNK_BYTES;
}

/* Starts the sends and receives of chunk c. */
static sf_status start_chunk(messages_comm *self, const sum_job *job, uint64_t c, MPI_Request *requests, int *count)
{
    const sf_comm_args *a = job->args;
    uint64_t size = sf_dtype_bytes(a->dtype), at, own = chunk_of(job, a->self, c, &at);

    *count = 0;
    for (int k = 1; k < a->size; k++) {
        int from = (a->self + k) % a->size, to = (a->self - k + a->size) % a->size;
        if (own > 0)
            START(MPI_Irecv(stage_of(self, c, from), (int)own, type_of(a->dtype), from, TAG_SUM, self->group[a->group], &requests[(*count)++]));
        uint64_t len = chunk_of(job, to, c, &at);
        if (len > 0)
            START(MPI_Isend((const char *)a->in + at * size, (int)len, type_of(a->dtype), to, TAG_SUM, self->group[a->group],
                            &requests[(*count)++]));
    }
    return SF_SUCCESS;
}

static void add_up(messages_comm *self, const sum_job *job, uint64_t c)
{
    const sf_comm_args *a = job->args;
    const void *parts[SF_COMM_MAX_RANKS];
    uint64_t size = sf_dtype_bytes(a->dtype), at, lo, hi, own = chunk_of(job, a->self, c, &at);

    part_of(job, a->self, &lo, &hi);
    for (int i = 0; i < a->size; i++)
        parts[i] = i == a->self ? (const char *)a->in + at * size : stage_of(self, c, i);
    void *out = job->out + (at - lo) * size;
    if (own > 0)
        sf_comm_sum(a->dtype, a->size, parts, 1, &out, own);
}

static sf_status sum_parts(messages_comm *self, const sum_job *job)
{
    uint64_t longest = job->to_first ? job->args->n : job->per;
    uint64_t chunks = sf_div_up(longest * sf_dtype_bytes(job->args->dtype), CHUNK_BYTES);
    MPI_Request *requests[STAGES] = { self->requests, self->requests + 2 * self->base.world };
    int count[STAGES] = { 0 };

    if (chunks > 0)
        SF_TRY(start_chunk(self, job, 0, requests[0], &count[0]));
    for (uint64_t c = 0; c < chunks; c++) {
        if (c + 1 < chunks)
            SF_TRY(start_chunk(self, job, c + 1, requests[(c + 1) % STAGES], &count[(c + 1) % STAGES]));
        SF_TRY(await_all(self, count[c % STAGES], requests[c % STAGES]));
        add_up(self, job, c);
    }
    return SF_SUCCESS;
}

/* ---- collectives ---- */

static sf_status finish_one(messages_comm *self, MPI_Request *request)
{
    return await_all(self, 1, request);
}

static sf_status reduce_scatter(messages_comm *self, const sf_comm_args *a)
{
    return sum_parts(self, &(sum_job){ .args = a, .per = a->n / (uint64_t)a->size, .out = a->out });
}

static sf_status reduce(messages_comm *self, const sf_comm_args *a)
{
    return sum_parts(self, &(sum_job){ .args = a, .to_first = true, .out = a->out });
}

static sf_status all_reduce(messages_comm *self, const sf_comm_args *a)
{
    uint64_t size = sf_dtype_bytes(a->dtype), lo, hi;
    sum_job job = { .args = a, .per = sf_div_up(a->n, (uint64_t)a->size) };
    int counts[SF_COMM_MAX_RANKS], starts[SF_COMM_MAX_RANKS];
    MPI_Request request;

    part_of(&job, a->self, &lo, &hi);
    job.out = (char *)a->out + lo * size;
    SF_TRY(sum_parts(self, &job));
    for (int i = 0; i < a->size; i++) {
        part_of(&job, i, &lo, &hi);
        counts[i] = (int)(hi - lo);
        starts[i] = (int)lo;
    }
    START(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, a->out, counts, starts, type_of(a->dtype), self->group[a->group], &request));
    return finish_one(self, &request);
}

static sf_status all_gather(messages_comm *self, const sf_comm_args *a)
{
    uint64_t per = a->n / (uint64_t)a->size;
    bool in_place = a->in == (const char *)a->out + per * (uint64_t)a->self * sf_dtype_bytes(a->dtype);
    MPI_Request request;

    START(MPI_Iallgather(in_place ? MPI_IN_PLACE : a->in, (int)per, type_of(a->dtype), a->out, (int)per, type_of(a->dtype),
                         self->group[a->group], &request));
    return finish_one(self, &request);
}

static sf_status broadcast(messages_comm *self, const sf_comm_args *a)
{
    MPI_Request request;

    START(MPI_Ibcast(a->out, (int)a->n, type_of(a->dtype), 0, self->group[a->group], &request));
    return finish_one(self, &request);
}

static sf_status scatter(messages_comm *self, const sf_comm_args *a)
{
    uint64_t per = a->n / (uint64_t)a->size;
    bool in_place = a->self == 0 && a->in == a->out;
    MPI_Request request;

    START(MPI_Iscatter(a->in, (int)per, type_of(a->dtype), in_place ? MPI_IN_PLACE : a->out, (int)per, type_of(a->dtype), 0,
                       self->group[a->group], &request));
    return finish_one(self, &request);
}

static sf_status gather(messages_comm *self, const sf_comm_args *a)
{
    uint64_t per = a->n / (uint64_t)a->size;
    bool in_place = a->self == 0 && a->in == a->out;
    MPI_Request request;

    START(MPI_Igather(in_place ? MPI_IN_PLACE : a->in, (int)per, type_of(a->dtype), a->out, (int)per, type_of(a->dtype), 0,
                      self->group[a->group], &request));
    return finish_one(self, &request);
}

static sf_status all_to_all(messages_comm *self, const sf_comm_args *a)
{
    uint64_t per = a->n / (uint64_t)a->size;
    MPI_Request request;

    START(MPI_Ialltoall(a->in, (int)per, type_of(a->dtype), a->out, (int)per, type_of(a->dtype), self->group[a->group], &request));
    return finish_one(self, &request);
}

static sf_status (*const collectives[SF_OP_COUNT])(messages_comm *, const sf_comm_args *) = {
    [SF_OP_ALL_REDUCE] = all_reduce, [SF_OP_ALL_GATHER] = all_gather, [SF_OP_REDUCE_SCATTER] = reduce_scatter,
    [SF_OP_BROADCAST] = broadcast,   [SF_OP_REDUCE] = reduce,         [SF_OP_SCATTER] = scatter,
    [SF_OP_GATHER] = gather,         [SF_OP_ALL_TO_ALL] = all_to_all,
};

/* The communicators of LOCAL and CROSS. */
static sf_status messages_regroup(sf_comm *comm)
{
    messages_comm *self = (messages_comm *)comm;
    int per = comm->ranks_per_node, rank = comm->rank;

    for (int g = 0; g < SF_GROUP_COUNT; g++)
        if (self->group[g] != MPI_COMM_NULL)
            SF_MPI(MPI_Comm_free(&self->group[g]));
    SF_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &self->group[SF_GROUP_WORLD]));
    SF_MPI(MPI_Comm_split(MPI_COMM_WORLD, rank / per, rank, &self->group[SF_GROUP_LOCAL]));
    SF_MPI(MPI_Comm_split(MPI_COMM_WORLD, rank % per, rank, &self->group[SF_GROUP_CROSS]));
    return SF_SUCCESS;
}

static sf_status messages_call(sf_comm *comm, const sf_comm_args *a)
{
    messages_comm *self = (messages_comm *)comm;

    if (a->n > INT_MAX)
        return SF_FAIL(SF_EUNSUP, "%s of %llu elements: MPI messages take at most %d; use smaller buckets or units",
                       sf_op_name(a->op), (unsigned long long)a->n, INT_MAX);
    SF_TRY(sf_comm_stop_status(comm));
    return collectives[a->op](self, a);
}

/* ---- control ---- */

static sf_status messages_exchange(sf_comm *comm, const void *mine, size_t bytes, void *all)
{
    messages_comm *self = (messages_comm *)comm;
    MPI_Request request;

    SF_TRY(sf_comm_stop_status(comm));
    START(MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, self->control, &request));
    return finish_one(self, &request);
}

static sf_status messages_memory(sf_comm *comm, uint64_t bytes, void **out)
{
    messages_comm *self = (messages_comm *)comm;
    int failed = 0;

    if (self->n_blocks == SF_COMM_BLOCKS)
        return SF_FAIL(SF_EINVAL, "more than %d blocks of memory asked of a communicator", SF_COMM_BLOCKS);
    int any[SF_COMM_MAX_RANKS];
    sf_status st = sf_host_block_take(bytes, &self->blocks[self->n_blocks]);
    failed = st.code != SF_OK;
    SF_TRY(messages_exchange(comm, &failed, sizeof failed, any));
    if (st.code != SF_OK)
        return st;
    self->n_blocks++;
    for (int r = 0; r < comm->world; r++)
        if (any[r])
            return SF_FAIL(SF_ECOMM, "rank %d has no memory", r);
    *out = self->blocks[self->n_blocks - 1].base;
    return SF_SUCCESS;
}

static void messages_close(sf_comm *comm)
{
    messages_comm *self = (messages_comm *)comm;

    for (int i = 0; i < self->n_blocks; i++)
        sf_host_block_give(&self->blocks[i]);
    if (self->stop.kind == SF_STOP_NONE) {
        for (int g = 0; g < SF_GROUP_COUNT; g++)
            if (self->group[g] != MPI_COMM_NULL)
                MPI_Comm_free(&self->group[g]);
        MPI_Comm_free(&self->control);
    }
    free(self->requests);
    free(self->stage);
    pthread_mutex_destroy(&self->mpi);
    pthread_mutex_destroy(&self->stop_lock);
    if (!self->stop_sent) /* else a message may still be read from it */
        free(self);
}

static const sf_comm_type messages_type = { "messages", false, messages_call,    messages_memory, messages_exchange,
                                            messages_stop, messages_stopped, messages_close,  messages_regroup };

sf_status sf_messages_open(int rank, int world, sf_comm **out)
{
    messages_comm *self = calloc(1, sizeof *self);

    if (self == NULL)
        return SF_FAIL(SF_ENOMEM, "no memory for a communicator");
    self->base = (sf_comm){ .type = &messages_type, .rank = rank, .world = world, .ranks_per_node = world };
    self->requests = calloc((size_t)world * 2 * STAGES, sizeof *self->requests);
    self->stage = malloc((size_t)world * STAGES * CHUNK_BYTES);
    pthread_mutex_init(&self->mpi, NULL);
    pthread_mutex_init(&self->stop_lock, NULL);
    sf_status st = SF_SUCCESS;
    if (self->requests == NULL || self->stage == NULL)
        st = SF_FAIL(SF_ENOMEM, "no memory for a communicator");
    else if (MPI_Comm_dup(MPI_COMM_WORLD, &self->control) != MPI_SUCCESS)
        st = SF_FAIL(SF_ECOMM, "MPI cannot make a communicator");
    for (int g = 0; g < SF_GROUP_COUNT; g++)
        self->group[g] = MPI_COMM_NULL;
    if (st.code == SF_OK)
        st = messages_regroup(&self->base);
    if (st.code != SF_OK) {
        free(self->requests);
        free(self->stage);
        free(self);
        return st;
    }
    *out = &self->base;
    return SF_SUCCESS;
}
