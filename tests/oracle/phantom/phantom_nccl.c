/* phantom_nccl.c: NCCL as one rank sees it; collectives are logged and not carried out. See phantom.h.
 *
 * Log line: {"event": "nccl", "op", "comm": index by creation, "ranks", "count": elements of the call's own count argument,
 * "dtype", "bytes": count * element size, "reduce": operation, "root"/"peer", "stream", "group": depth of ncclGroupStart}.
 * NCCL's count is per rank (send) for all_gather and per rank (receive) for reduce_scatter, the whole array otherwise.
 *
 * Every rank is taken to hold what this rank holds: calls of at most 64 KiB copy data accordingly, so that the frameworks'
 * own consistency checks (equal parameter shapes on all ranks) pass. */
#include "phantom.h"

#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DATA_LIMIT ((size_t)64 << 10)

struct ncclComm {
    int ranks, rank, device;
    unsigned index;
};

static unsigned comm_total;
static __thread int group_depth;

static size_t dtype_bytes(ncclDataType_t type)
{
    switch (type) {
    case ncclInt8: case ncclUint8: case ncclFloat8e4m3: case ncclFloat8e5m2: return 1;
    case ncclFloat16: case ncclBfloat16: return 2;
    case ncclInt32: case ncclUint32: case ncclFloat32: return 4;
    default: return 8;
    }
}

static const char *dtype_name(ncclDataType_t type)
{
    static const char *const names[] = {"int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bfloat16",
                                        "float8_e4m3", "float8_e5m2"};
    return (unsigned)type < sizeof names / sizeof names[0] ? names[type] : "unknown";
}

static const char *op_name(ncclRedOp_t op)
{
    static const char *const names[] = {"sum", "prod", "max", "min", "avg"};
    return (unsigned)op < sizeof names / sizeof names[0] ? names[op] : "premul_sum";
}

static void call_log(const char *op, const struct ncclComm *comm, size_t count, ncclDataType_t type, const char *detail, cudaStream_t stream)
{
    phantom_log("{\"event\": \"nccl\", \"op\": \"%s\", \"comm\": %u, \"ranks\": %d, \"device\": %d, \"count\": %zu, \"dtype\": \"%s\", "
                "\"bytes\": %zu, %s, \"stream\": %u, \"group\": %d}",
                op, comm->index, comm->ranks, comm->device, count, dtype_name(type), count * dtype_bytes(type), detail,
                phantom_stream_index(stream), group_depth);
}

static void copy_small(void *dst, const void *src, size_t bytes)
{
    if (dst != src && bytes <= DATA_LIMIT)
        memmove(dst, src, bytes);
}

static ncclComm_t comm_new(int ranks, int rank, int device)
{
    ncclComm_t comm = calloc(1, sizeof *comm);
    comm->ranks = ranks;
    comm->rank = rank;
    comm->device = device;
    comm->index = __atomic_fetch_add(&comm_total, 1, __ATOMIC_SEQ_CST);
    phantom_log("{\"event\": \"comm\", \"comm\": %u, \"ranks\": %d, \"rank\": %d, \"device\": %d}", comm->index, ranks, rank, device);
    return comm;
}

PHANTOM_EXPORT ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

PHANTOM_EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    memset(id, 0, sizeof *id);
    return ncclSuccess;
}

PHANTOM_EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank, ncclConfig_t *cfg)
{
    (void)id, (void)cfg;
    *out = comm_new(ranks, rank, phantom_current_device());
    return ncclSuccess;
}

PHANTOM_EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *out, int ranks, ncclUniqueId id, int rank)
{
    return ncclCommInitRankConfig(out, ranks, id, rank, NULL);
}

PHANTOM_EXPORT ncclResult_t ncclCommInitRankScalable(ncclComm_t *out, int ranks, int rank, int id_count, ncclUniqueId *ids, ncclConfig_t *cfg)
{
    (void)id_count;
    return ncclCommInitRankConfig(out, ranks, ids[0], rank, cfg);
}

PHANTOM_EXPORT ncclResult_t ncclCommInitAll(ncclComm_t *out, int devices, const int *list)
{
    for (int i = 0; i < devices; i++)
        out[i] = comm_new(devices, i, list ? list[i] : i);
    return ncclSuccess;
}

static int split_ranks, split_rank;

void phantom_split(int ranks, int rank)
{
    split_ranks = ranks;
    split_rank = rank;
}

/* How many ranks share a colour is known to all ranks together only: the script says it beforehand with phantom_split(). */
PHANTOM_EXPORT ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out, ncclConfig_t *cfg)
{
    (void)key, (void)cfg;
    if (color == NCCL_SPLIT_NOCOLOR) {
        *out = NULL;
        return ncclSuccess;
    }
    if (split_ranks == 0)
        return ncclInvalidUsage;
    *out = comm_new(split_ranks, split_rank, comm->device);
    return ncclSuccess;
}

PHANTOM_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    (void)comm;
    *error = ncclSuccess;
    return ncclSuccess;
}

PHANTOM_EXPORT ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    *count = comm->ranks;
    return ncclSuccess;
}

PHANTOM_EXPORT ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    *rank = comm->rank;
    return ncclSuccess;
}

PHANTOM_EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm) { return (void)comm, ncclSuccess; }
PHANTOM_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm) { return (void)comm, ncclSuccess; }
PHANTOM_EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm) { return (void)comm, ncclSuccess; }
PHANTOM_EXPORT const char *ncclGetErrorString(ncclResult_t result) { return result == ncclSuccess ? "no error" : "phantom NCCL error"; }
PHANTOM_EXPORT const char *ncclGetLastError(ncclComm_t comm) { return (void)comm, ""; }

PHANTOM_EXPORT ncclResult_t ncclGroupStart(void)
{
    group_depth++;
    return ncclSuccess;
}

PHANTOM_EXPORT ncclResult_t ncclGroupEnd(void)
{
    group_depth--;
    return ncclSuccess;
}

PHANTOM_EXPORT ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type, ncclScalarResidence_t where, ncclComm_t comm)
{
    (void)scalar, (void)type, (void)where, (void)comm;
    *op = (ncclRedOp_t)100;
    return ncclSuccess;
}

PHANTOM_EXPORT ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) { return (void)op, (void)comm, ncclSuccess; }

static const char *detail_reduce(char *buf, size_t cap, ncclRedOp_t op)
{
    snprintf(buf, cap, "\"reduce\": \"%s\"", op_name(op));
    return buf;
}

static const char *detail_int(char *buf, size_t cap, const char *key, int value)
{
    snprintf(buf, cap, "\"%s\": %d", key, value);
    return buf;
}

PHANTOM_EXPORT ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    char buf[64];
    call_log("all_reduce", comm, count, type, detail_reduce(buf, sizeof buf, op), stream);
    copy_small(recv, send, count * dtype_bytes(type));
    return ncclSuccess;
}

PHANTOM_EXPORT ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    char buf[64];
    snprintf(buf, sizeof buf, "\"reduce\": \"%s\", \"root\": %d", op_name(op), root);
    call_log("reduce", comm, count, type, buf, stream);
    if (comm->rank == root)
        copy_small(recv, send, count * dtype_bytes(type));
    return ncclSuccess;
}

/* An all-gather of lists arrives as one broadcast per root; the other ranks' parts equal the last one of ours. */
static __thread struct {
    size_t bytes;
    char data[DATA_LIMIT];
} mine;

PHANTOM_EXPORT ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream)
{
    char buf[64];
    size_t bytes = count * dtype_bytes(type);
    call_log("broadcast", comm, count, type, detail_int(buf, sizeof buf, "root", root), stream);
    if (comm->rank == root) {
        copy_small(recv, send, bytes);
        if (bytes <= sizeof mine.data) {
            memcpy(mine.data, send, bytes);
            mine.bytes = bytes;
        }
    } else if (bytes == mine.bytes) {
        memcpy(recv, mine.data, bytes);
    }
    return ncclSuccess;
}

PHANTOM_EXPORT ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream)
{
    return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

PHANTOM_EXPORT ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)
{
    size_t bytes = count * dtype_bytes(type);
    call_log("all_gather", comm, count, type, "\"reduce\": null", stream);
    if (bytes * (size_t)comm->ranks <= DATA_LIMIT)
        for (int r = 0; r < comm->ranks; r++)
            copy_small((char *)recv + (size_t)r * bytes, send, bytes);
    return ncclSuccess;
}

PHANTOM_EXPORT ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    char buf[64];
    size_t bytes = count * dtype_bytes(type);
    call_log("reduce_scatter", comm, count, type, detail_reduce(buf, sizeof buf, op), stream);
    copy_small(recv, (const char *)send + (size_t)comm->rank * bytes, bytes);
    return ncclSuccess;
}

PHANTOM_EXPORT ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    char buf[64];
    (void)send;
    call_log("send", comm, count, type, detail_int(buf, sizeof buf, "peer", peer), stream);
    return ncclSuccess;
}

PHANTOM_EXPORT ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    char buf[64];
    (void)recv;
    call_log("recv", comm, count, type, detail_int(buf, sizeof buf, "peer", peer), stream);
    return ncclSuccess;
}

PHANTOM_EXPORT ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)
{
    (void)send, (void)recv;
    call_log("all_to_all", comm, count, type, "\"reduce\": null", stream);
    return ncclSuccess;
}

PHANTOM_EXPORT ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buffer, size_t size, void **handle)
{
    (void)comm, (void)buffer, (void)size;
    *handle = NULL;
    return ncclSuccess;
}

PHANTOM_EXPORT ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle) { return (void)comm, (void)handle, ncclSuccess; }
