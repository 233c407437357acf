/* NCCL of the fake: ranks are threads, which meet at a barrier for each collective or group of sends. */
#include "tests/cuda/fake_impl.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/cases.h"

enum { MOST_RANKS = 16, MOST_WORK = 64, MOST_ROOMS = 32 };
typedef enum { SUM, GATHER, SCATTER_SUM, SPREAD, SUM_AT_ROOT, SEND, RECV } work_kind;

typedef struct {
    work_kind kind;
    const void *in;
    void *out;
    size_t count; /* elements of the call's own argument */
    ncclDataType_t type;
    int peer;     /* or root */
    struct ncclComm *comm;
    cudaStream_t stream;
} work;

typedef struct {
    int size, joined;
    pthread_barrier_t barrier;
    work now[MOST_RANKS];
    const work *posted[MOST_RANKS]; /* sends of a group */
    int n_posted[MOST_RANKS];
} room;

struct ncclComm {
    room *at;
    int rank;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static room rooms[MOST_ROOMS];
static int n_rooms;
static ncclResult_t under_way_code;

static __thread work queue[MOST_WORK];
static __thread int n_queue, depth;

void fake_cuda_fail_under_way(ncclResult_t code)
{
    under_way_code = code;
}

/* ---- communicators ---- */
static ncclResult_t get_id(ncclUniqueId *id)
{
    FAKE_CALLED(ncclResult_t, ncclGetUniqueId);
    pthread_mutex_lock(&lock);
    if (n_rooms == MOST_ROOMS)
        fake_die("too many communicators");
    memset(&rooms[n_rooms], 0, sizeof rooms[0]);
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "room %d", n_rooms++);
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}
static ncclResult_t init_rank(ncclComm_t *out, int size, ncclUniqueId id, int rank)
{
    int number = -1;
    FAKE_CALLED(ncclResult_t, ncclCommInitRank);
    if (sscanf(id.internal, "room %d", &number) != 1 || number < 0 || number >= n_rooms || size > MOST_RANKS || rank < 0 || rank >= size)
        fake_die("ncclCommInitRank got an id or a rank that cannot be");
    pthread_mutex_lock(&lock);
    room *r = &rooms[number];
    if (r->joined++ == 0) {
        r->size = size;
        pthread_barrier_init(&r->barrier, NULL, (unsigned)size);
    } else if (r->size != size) {
        fake_die("ranks differ about the size of a communicator");
    }
    pthread_mutex_unlock(&lock);
    struct ncclComm *comm = fake_make(FAKE_COMM, sizeof *comm);
    comm->at = r;
    comm->rank = rank;
    pthread_barrier_wait(&r->barrier);
    *out = comm;
    return ncclSuccess;
}
static ncclResult_t comm_destroy(ncclComm_t comm)
{
    FAKE_CALLED(ncclResult_t, ncclCommDestroy);
    fake_drop(FAKE_COMM, comm, "ncclCommDestroy");
    return ncclSuccess;
}
static ncclResult_t comm_abort(ncclComm_t comm)
{
    FAKE_CALLED(ncclResult_t, ncclCommAbort);
    fake_drop(FAKE_COMM, comm, "ncclCommAbort");
    return ncclSuccess;
}
static ncclResult_t async_error(ncclComm_t comm, ncclResult_t *error)
{
    FAKE_CALLED(ncclResult_t, ncclCommGetAsyncError);
    fake_get(FAKE_COMM, comm, "ncclCommGetAsyncError");
    *error = under_way_code;
    return ncclSuccess;
}
static ncclResult_t version(int *out)
{
    *out = NCCL_VERSION_CODE;
    return ncclSuccess;
}
static const char *error_string(ncclResult_t code)
{
    return code == ncclSuccess ? "no error" : "a made-up failure of NCCL";
}
static const char *last_error(ncclComm_t comm)
{
    (void)comm;
    return "the wire is cut";
}

/* ---- doing the work ---- */
static sf_dtype dtype_of(ncclDataType_t type)
{
    switch (type) {
    case ncclFloat32: return SF_F32;
    case ncclFloat64: return SF_F64;
    case ncclFloat16: return SF_F16;
    case ncclBfloat16: return SF_BF16;
    case ncclInt32: return SF_I32;
    default: fake_die("element type %d is not known here", (int)type);
    }
}
static size_t bytes_of(const work *w, size_t count)
{
    return count * (size_t)sf_dtype_bytes(dtype_of(w->type));
}

static void access_all(const work *w)
{
    int size = w->comm->at->size;
    bool to_me = w->kind != SUM_AT_ROOT || w->comm->rank == w->peer;
    size_t in = w->kind == SCATTER_SUM ? w->count * (size_t)size : w->count;
    size_t out = w->kind == GATHER ? w->count * (size_t)size : w->count;
    fake_op_begin(w->stream, "an NCCL call");
    if (w->kind != RECV && w->in != NULL)
        fake_op_access(w->in, bytes_of(w, in), false);
    if (w->kind != SEND && to_me)
        fake_op_access(w->out, bytes_of(w, out), true);
    fake_op_end();
}

/* Sum over the ranks' arrays, from element `from` of each. */
static void sum(const room *r, const work *w, size_t from, void *to)
{
    size_t size = (size_t)sf_dtype_bytes(dtype_of(w->type));
    for (size_t i = 0; i < w->count; i++) {
        double value[1], total = 0.0;
        for (int k = 0; k < r->size; k++)
            total += tensor_at(&(tensor){ .dtype = dtype_of(w->type), .data = (void *)r->now[k].in }, from + i);
        tensor_put(&(tensor){ .dtype = dtype_of(w->type), .data = (char *)to + i * size, .value = value }, 0, total);
    }
}

static void collective(const work *w)
{
    room *r = w->comm->at;
    int me = w->comm->rank;
    size_t bytes = bytes_of(w, w->count);
    char *result = malloc(bytes * (size_t)(w->kind == GATHER ? r->size : 1) + 1);

    r->now[me] = *w;
    pthread_barrier_wait(&r->barrier);
    for (int k = 0; k < r->size; k++)
        if (r->now[k].kind != w->kind || r->now[k].count != w->count || r->now[k].type != w->type || r->now[k].peer != w->peer)
            fake_die("ranks of a communicator are in different collectives");
    switch (w->kind) {
    case SUM: sum(r, w, 0, result); break;
    case SUM_AT_ROOT: sum(r, w, 0, result); break;
    case SCATTER_SUM: sum(r, w, w->count * (size_t)me, result); break;
    case SPREAD: memcpy(result, r->now[w->peer].in, bytes); break;
    default:
        for (int k = 0; k < r->size; k++)
            memcpy(result + (size_t)k * bytes, r->now[k].in, bytes);
        break;
    }
    pthread_barrier_wait(&r->barrier);
    if (w->kind != SUM_AT_ROOT || me == w->peer)
        memcpy(w->out, result, w->kind == GATHER ? bytes * (size_t)r->size : bytes);
    pthread_barrier_wait(&r->barrier);
    free(result);
}

/* Sends and receives of one communicator in this thread's queue: the k-th receive from a rank is its k-th send. */
static void exchange(struct ncclComm *comm)
{
    room *r = comm->at;
    work sends[MOST_WORK];
    int n_sends = 0, taken[MOST_RANKS] = { 0 };

    for (int i = 0; i < n_queue; i++)
        if (queue[i].comm == comm && queue[i].kind == SEND)
            sends[n_sends++] = queue[i];
    r->posted[comm->rank] = sends;
    r->n_posted[comm->rank] = n_sends;
    pthread_barrier_wait(&r->barrier);
    for (int i = 0; i < n_queue; i++) {
        const work *w = &queue[i], *from = NULL;
        int nth = 0;
        if (w->comm != comm || w->kind != RECV)
            continue;
        for (int k = 0; k < r->n_posted[w->peer] && from == NULL; k++)
            if (r->posted[w->peer][k].peer == comm->rank && nth++ == taken[w->peer])
                from = &r->posted[w->peer][k];
        if (from == NULL || from->count != w->count || from->type != w->type)
            fake_die("a receive has no send that fits");
        taken[w->peer]++;
        memcpy(w->out, from->in, bytes_of(w, w->count));
    }
    pthread_barrier_wait(&r->barrier);
}

static void run_queue(void)
{
    for (int i = 0; i < n_queue; i++) {
        access_all(&queue[i]);
        if (queue[i].kind != SEND && queue[i].kind != RECV)
            collective(&queue[i]);
    }
    for (int i = 0; i < n_queue; i++) {
        bool first = queue[i].kind == SEND || queue[i].kind == RECV;
        for (int k = 0; k < i; k++)
            first = first && !(queue[k].comm == queue[i].comm && (queue[k].kind == SEND || queue[k].kind == RECV));
        if (first)
            exchange(queue[i].comm);
    }
    n_queue = 0;
}

static ncclResult_t put(work w)
{
    fake_get(FAKE_COMM, w.comm, "an NCCL call");
    if (n_queue == MOST_WORK)
        fake_die("too many calls in a group");
    if (depth == 0 && (w.kind == SEND || w.kind == RECV))
        fake_die("a send or receive outside a group can wait for ever");
    queue[n_queue++] = w;
    if (depth == 0)
        run_queue();
    return ncclSuccess;
}

static ncclResult_t group_start(void)
{
    FAKE_CALLED(ncclResult_t, ncclGroupStart);
    depth++;
    return ncclSuccess;
}
static ncclResult_t group_end(void)
{
    FAKE_CALLED(ncclResult_t, ncclGroupEnd);
    if (depth == 0)
        fake_die("ncclGroupEnd without ncclGroupStart");
    if (--depth == 0)
        run_queue();
    return ncclSuccess;
}
static void check_sum(ncclRedOp_t op)
{
    if (op != ncclSum)
        fake_die("only sums are known here");
}
static ncclResult_t all_reduce(const void *in, void *out, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    FAKE_CALLED(ncclResult_t, ncclAllReduce);
    check_sum(op);
    return put((work){ SUM, in, out, n, type, 0, comm, stream });
}
static ncclResult_t all_gather(const void *in, void *out, size_t n, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)
{
    FAKE_CALLED(ncclResult_t, ncclAllGather);
    return put((work){ GATHER, in, out, n, type, 0, comm, stream });
}
static ncclResult_t reduce_scatter(const void *in, void *out, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    FAKE_CALLED(ncclResult_t, ncclReduceScatter);
    check_sum(op);
    return put((work){ SCATTER_SUM, in, out, n, type, 0, comm, stream });
}
static ncclResult_t broadcast(const void *in, void *out, size_t n, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream)
{
    FAKE_CALLED(ncclResult_t, ncclBroadcast);
    return put((work){ SPREAD, in, out, n, type, root, comm, stream });
}
static ncclResult_t reduce(const void *in, void *out, size_t n, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    FAKE_CALLED(ncclResult_t, ncclReduce);
    check_sum(op);
    return put((work){ SUM_AT_ROOT, in, out, n, type, root, comm, stream });
}
static ncclResult_t send(const void *in, size_t n, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    FAKE_CALLED(ncclResult_t, ncclSend);
    return put((work){ SEND, in, NULL, n, type, peer, comm, stream });
}
static ncclResult_t recv(void *out, size_t n, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    FAKE_CALLED(ncclResult_t, ncclRecv);
    return put((work){ RECV, NULL, out, n, type, peer, comm, stream });
}

void fake_fill_nccl(sf_cuda_api *api)
{
    n_rooms = 0;
    under_way_code = ncclSuccess;
    api->ncclGetUniqueId = get_id;
    api->ncclCommInitRank = init_rank;
    api->ncclCommDestroy = comm_destroy;
    api->ncclCommAbort = comm_abort;
    api->ncclCommGetAsyncError = async_error;
    api->ncclGetVersion = version;
    api->ncclGetErrorString = error_string;
    api->ncclGetLastError = last_error;
    api->ncclGroupStart = group_start;
    api->ncclGroupEnd = group_end;
    api->ncclAllReduce = all_reduce;
    api->ncclAllGather = all_gather;
    api->ncclReduceScatter = reduce_scatter;
    api->ncclBroadcast = broadcast;
    api->ncclReduce = reduce;
    api->ncclSend = send;
    api->ncclRecv = recv;
}
