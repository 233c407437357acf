#include "exec/cuda/cuda_comm.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct sf_cuda_comm {
    const sf_cuda_api *api;
    sf_comm *host;
    ncclComm_t nccl[SF_GROUP_COUNT];
    int size[SF_GROUP_COUNT], self[SF_GROUP_COUNT];
    sf_comm_count count[SF_OP_COUNT][SF_GROUP_COUNT];
};

/* ---- opening and closing ---- */

/* Rank 0 of the group and the caller's place in it. */
static void place_in(const sf_comm *host, sf_group group, int *root, int *self)
{
    int rank = sf_comm_rank(host), local = sf_comm_group_size(host, SF_GROUP_LOCAL);
    *root = group == SF_GROUP_LOCAL ? rank / local * local : group == SF_GROUP_CROSS ? rank % local : 0;
    *self = group == SF_GROUP_LOCAL ? rank % local : group == SF_GROUP_CROSS ? rank / local : rank;
}

/* Each group's rank 0 makes an id; all exchange, and take their root's. A root without an id says so to all. */
typedef struct {
    ncclUniqueId id;
    sf_status st;
} offer;

static sf_status open_group(sf_cuda_comm *comm, sf_group group)
{
    int world = sf_comm_world(comm->host), root, self;
    offer mine = { .st = SF_SUCCESS }, *all = calloc((size_t)world, sizeof *all);
    sf_status st = SF_SUCCESS;

    if (all == NULL)
        return SF_FAIL(SF_ENOMEM, "no host memory for the ids of %d ranks", world);
    place_in(comm->host, group, &root, &self);
    if (self == 0)
        mine.st = SF_NCCL(comm->api, ncclGetUniqueId, &mine.id);
    SF_TRY_GOTO(st, sf_comm_exchange(comm->host, &mine, sizeof mine, all), free_all);
    for (int i = 0; i < world && st.code == SF_OK; i++)
        st = all[i].st;
    if (st.code != SF_OK)
        goto free_all;
    comm->size[group] = sf_comm_group_size(comm->host, group);
    comm->self[group] = self;
    st = SF_NCCL(comm->api, ncclCommInitRank, &comm->nccl[group], comm->size[group], all[root].id, self);
free_all:
    free(all);
    return st;
}

sf_status sf_cuda_comm_open(sf_cuda_device *dev, sf_comm *host, unsigned groups, sf_cuda_comm **out)
{
    sf_cuda_comm *comm = calloc(1, sizeof *comm);
    if (comm == NULL)
        return SF_FAIL(SF_ENOMEM, "no host memory for NCCL's record");
    comm->api = sf_cuda_device_api(dev);
    comm->host = host;
    for (int g = 0; g < SF_GROUP_COUNT; g++) {
        sf_status st = groups & 1u << g ? open_group(comm, (sf_group)g) : SF_SUCCESS;
        if (st.code != SF_OK) {
            sf_cuda_comm_abort(comm);
            free(comm);
            return st;
        }
    }
    *out = comm;
    return SF_SUCCESS;
}

void sf_cuda_comm_abort(sf_cuda_comm *comm)
{
    for (int g = SF_GROUP_COUNT - 1; g >= 0; g--)
        if (comm->nccl[g] != NULL) {
            comm->api->ncclCommAbort(comm->nccl[g]);
            comm->nccl[g] = NULL;
        }
}

void sf_cuda_comm_close(sf_cuda_comm *comm)
{
    if (comm == NULL)
        return;
    for (int g = SF_GROUP_COUNT - 1; g >= 0; g--)
        if (comm->nccl[g] != NULL)
            comm->api->ncclCommDestroy(comm->nccl[g]);
    free(comm);
}

/* ---- calls ---- */
static bool nccl_type(sf_dtype dtype, ncclDataType_t *out)
{
    switch (dtype) {
    case SF_F32: *out = ncclFloat32; return true;
    case SF_BF16: *out = ncclBfloat16; return true;
    case SF_F16: *out = ncclFloat16; return true;
    case SF_F64: *out = ncclFloat64; return true;
    case SF_I32: *out = ncclInt32; return true;
    case SF_I64: *out = ncclInt64; return true;
    case SF_U8: *out = ncclUint8; return true;
    default: return false;
    }
}

typedef struct {
    const sf_cuda_api *api;
    ncclComm_t nccl;
    cudaStream_t stream;
    ncclDataType_t type;
    int size, self;
    size_t part, part_bytes; /* of one rank */
} transfer;

static const void *part_of(const transfer *t, const void *whole, int i)
{
    return (const char *)whole + (size_t)i * t->part_bytes;
}

/* Sends and receives of one collective start together, so that no order of them can wait for ever. */
static sf_status scatter(const transfer *t, const void *whole, void *mine)
{
    for (int i = 0; i < t->size && t->self == 0; i++)
        SF_TRY(SF_NCCL(t->api, ncclSend, part_of(t, whole, i), t->part, t->type, i, t->nccl, t->stream));
    return SF_NCCL(t->api, ncclRecv, mine, t->part, t->type, 0, t->nccl, t->stream);
}
static sf_status gather(const transfer *t, const void *mine, void *whole)
{
    for (int i = 0; i < t->size && t->self == 0; i++)
        SF_TRY(SF_NCCL(t->api, ncclRecv, (void *)part_of(t, whole, i), t->part, t->type, i, t->nccl, t->stream));
    return SF_NCCL(t->api, ncclSend, mine, t->part, t->type, 0, t->nccl, t->stream);
}
static sf_status all_to_all(const transfer *t, const void *in, void *out)
{
    for (int i = 0; i < t->size; i++) {
        SF_TRY(SF_NCCL(t->api, ncclSend, part_of(t, in, i), t->part, t->type, i, t->nccl, t->stream));
        SF_TRY(SF_NCCL(t->api, ncclRecv, (void *)part_of(t, out, i), t->part, t->type, i, t->nccl, t->stream));
    }
    return SF_SUCCESS;
}

static sf_status together(const transfer *t, sf_op_type op, const void *in, void *out)
{
    SF_TRY(SF_NCCL(t->api, ncclGroupStart));
    sf_status st = op == SF_OP_SCATTER ? scatter(t, in, out)
                   : op == SF_OP_GATHER ? gather(t, in, out)
                                        : all_to_all(t, in, out);
    sf_status ended = SF_NCCL(t->api, ncclGroupEnd);
    return st.code != SF_OK ? st : ended;
}

sf_status sf_cuda_comm_call(sf_cuda_comm *comm, sf_cuda_stream stream, sf_op_type op, sf_group group, sf_dtype dtype,
                            const void *in, void *out, uint64_t n)
{
    transfer t = { .api = comm->api, .nccl = comm->nccl[group], .stream = stream, .size = comm->size[group],
                   .self = comm->self[group] };
    sf_status st;

    if (t.nccl == NULL)
        return SF_FAIL(SF_ECOMM, "%s: the %s group has no NCCL communicator: it was aborted or not opened", sf_op_name(op),
                       sf_group_name(group));
    if (!nccl_type(dtype, &t.type))
        return SF_FAIL(SF_EUNSUP, "%s: NCCL calls here take no %s", sf_op_name(op), sf_dtype_name(dtype));
    t.part = n / (uint64_t)t.size;
    t.part_bytes = t.part * sf_dtype_bytes(dtype);
    assert(op == SF_OP_ALL_REDUCE || op == SF_OP_BROADCAST || op == SF_OP_REDUCE || n % (uint64_t)t.size == 0);

    switch (op) {
    case SF_OP_ALL_REDUCE: st = SF_NCCL(t.api, ncclAllReduce, in, out, n, t.type, ncclSum, t.nccl, stream); break;
    case SF_OP_ALL_GATHER: st = SF_NCCL(t.api, ncclAllGather, in, out, t.part, t.type, t.nccl, stream); break;
    case SF_OP_REDUCE_SCATTER:
        st = SF_NCCL(t.api, ncclReduceScatter, in, out, t.part, t.type, ncclSum, t.nccl, stream);
        break;
    case SF_OP_BROADCAST: st = SF_NCCL(t.api, ncclBroadcast, in, out, n, t.type, 0, t.nccl, stream); break;
    case SF_OP_REDUCE: st = SF_NCCL(t.api, ncclReduce, in, out, n, t.type, ncclSum, 0, t.nccl, stream); break;
    case SF_OP_SCATTER:
    case SF_OP_GATHER:
    case SF_OP_ALL_TO_ALL: st = together(&t, op, in, out); break;
    default: return SF_FAIL(SF_EUNSUP, "%s is no collective", sf_op_name(op));
    }
    if (st.code == SF_OK) {
        comm->count[op][group].calls++;
        comm->count[op][group].bytes += n * sf_dtype_bytes(dtype);
    }
    return sf_status_prefix(st, "%s of %llu %s in the %s group", sf_op_name(op), (unsigned long long)n, sf_dtype_name(dtype),
                            sf_group_name(group));
}

sf_status sf_cuda_comm_begin(sf_cuda_comm *comm)
{
    return SF_NCCL(comm->api, ncclGroupStart);
}
sf_status sf_cuda_comm_end(sf_cuda_comm *comm)
{
    return SF_NCCL(comm->api, ncclGroupEnd);
}

sf_status sf_cuda_comm_check(sf_cuda_comm *comm)
{
    for (int g = 0; g < SF_GROUP_COUNT; g++) {
        ncclResult_t under_way = ncclSuccess;
        if (comm->nccl[g] == NULL)
            continue;
        SF_TRY(SF_NCCL(comm->api, ncclCommGetAsyncError, comm->nccl[g], &under_way));
        if (under_way != ncclSuccess && under_way != ncclInProgress)
            return sf_nccl_status_at(__FILE__, __LINE__, comm->api, under_way, "a collective under way");
    }
    return SF_SUCCESS;
}

const sf_comm_count *sf_cuda_comm_counted(const sf_cuda_comm *comm, sf_op_type op, sf_group group)
{
    return &comm->count[op][group];
}
void sf_cuda_comm_count_reset(sf_cuda_comm *comm)
{
    memset(comm->count, 0, sizeof comm->count);
}
