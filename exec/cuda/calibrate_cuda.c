#include "exec/cuda/calibrate_cuda.h"

#include <stdlib.h>
#include <string.h>

#include "exec/calibrate_impl.h"
#include "exec/cuda/backend_cuda.h"
#include "exec/cuda/cuda_comm.h"
#include "exec/cuda/cuda_ops.h"
#include "exec/host/ops.h"
#include "exec/selftest.h"

typedef struct {
    sf_cuda_context ctx;
    sf_executor_setup setup;
    sf_cuda_comm *nccl;
    uint64_t scratch_bytes;
} gpu;

/* ---- the machine ---- */

static sf_status gpu_run(void *self, const sf_op_call *call)
{
    gpu *g = self;
    uint64_t bytes = sf_cuda_op_scratch_bytes(NULL, call->issue.op);
    if (bytes > g->scratch_bytes) { /* an earlier, smaller one stays until the end */
        SF_TRY(sf_cuda_device_take(g->ctx.dev, bytes, &g->ctx.scratch[SF_STREAM_COMPUTE]));
        g->scratch_bytes = bytes;
    }
    return sf_cuda_op_rows[call->issue.op->type](&g->ctx, call);
}

static sf_status gpu_finish(void *self) { return sf_cuda_device_sync(((gpu *)self)->ctx.dev, SF_STREAM_COMPUTE); }
static sf_status gpu_memory(void *self, uint64_t bytes, void **out) { return sf_cuda_device_take(((gpu *)self)->ctx.dev, bytes, out); }
static sf_status gpu_pinned(void *self, uint64_t bytes, void **out) { return sf_cuda_device_pinned(((gpu *)self)->ctx.dev, bytes, out); }

static sf_status gpu_write(void *self, void *to, const void *from, uint64_t bytes)
{
    SF_TRY(sf_cuda_device_copy(((gpu *)self)->ctx.dev, SF_STREAM_COMPUTE, to, from, bytes));
    return gpu_finish(self);
}

/* ---- launches and streams ---- */

enum { LAUNCHES = 1000, TURNS = 200 };

/* Host time of a launch; and from one stream's RECORD to the next stream's op, above what the op itself takes. */
static sf_status measure_launches(gpu *g, sf_profile_set *set)
{
    void *x;
    sf_cuda_device *dev = g->ctx.dev;
    SF_TRY(sf_cuda_device_take(dev, 4096, &x));
    SF_TRY(sf_cuda_device_events(dev, 2));
    double best_issue = 1, best_op = 1, best_turn = 1;
    for (int i = 0; i < 5; i++) {
        SF_TRY(sf_cuda_device_sync_all(dev));
        double start = sf_wall_now_s();
        for (int k = 0; k < LAUNCHES; k++)
            SF_TRY(sf_cuda_device_launched(dev, sf_cuda_fill(sf_cuda_device_stream(dev, SF_STREAM_COMPUTE), SF_F32, 256, 0, x), "fill"));
        double issued = (sf_wall_now_s() - start) / LAUNCHES;
        SF_TRY(gpu_finish(g));
        double op = (sf_wall_now_s() - start) / LAUNCHES;
        start = sf_wall_now_s();
        for (int k = 0; k < TURNS; k++) {
            sf_stream on = k % 2 == 0 ? SF_STREAM_COMPUTE : SF_STREAM_COMM, other = k % 2 == 0 ? SF_STREAM_COMM : SF_STREAM_COMPUTE;
            SF_TRY(sf_cuda_device_launched(dev, sf_cuda_fill(sf_cuda_device_stream(dev, on), SF_F32, 256, 0, x), "fill"));
            SF_TRY(sf_cuda_device_record(dev, on, k % 2));
            SF_TRY(sf_cuda_device_wait(dev, other, k % 2));
        }
        SF_TRY(sf_cuda_device_sync_all(dev));
        double turn = (sf_wall_now_s() - start) / TURNS;
        best_issue = issued < best_issue ? issued : best_issue;
        best_op = op < best_op ? op : best_op;
        best_turn = turn < best_turn ? turn : best_turn;
    }
    set->issue_s = best_issue;
    set->handoff_s = best_turn > best_op ? best_turn - best_op : 0;
    return SF_SUCCESS;
}

/* ---- collectives ---- */

static sf_status time_collective(gpu *g, sf_comm *comm, sf_op_type op, sf_dtype dtype, uint64_t n, int reps, void *in, void *out, double *seconds)
{
    char meet = 0, all[SF_COMM_MAX_RANKS];
    SF_TRY(sf_comm_exchange(comm, &meet, 1, all));
    double start = sf_wall_now_s();
    for (int i = 0; i < reps; i++)
        SF_TRY(sf_cuda_comm_call(g->nccl, sf_cuda_device_stream(g->ctx.dev, SF_STREAM_COMM), op, SF_GROUP_WORLD, dtype, in, out, n));
    SF_TRY(sf_cuda_device_sync(g->ctx.dev, SF_STREAM_COMM));
    *seconds = (sf_wall_now_s() - start) / reps;
    return sf_mean_over_ranks(comm, seconds, 1);
}

static sf_status measure_collectives(gpu *g, sf_comm *comm, sf_calibrate_depth depth, sf_profile_set *set)
{
    static const sf_op_type ops[] = { SF_OP_ALL_REDUCE, SF_OP_ALL_GATHER, SF_OP_REDUCE_SCATTER, SF_OP_BROADCAST,
                                      SF_OP_REDUCE,     SF_OP_SCATTER,    SF_OP_GATHER,         SF_OP_ALL_TO_ALL };
    uint64_t most = (uint64_t)(depth == SF_CALIBRATE_TOUCH ? 4 : depth == SF_CALIBRATE_FULL ? 512 << 10 : 64 << 10) << 10, world = (uint64_t)sf_comm_world(comm);
    void *in, *out;
    bool root = sf_comm_rank(comm) == 0;
    SF_TRY(sf_cuda_device_take(g->ctx.dev, most, &in));
    SF_TRY(sf_cuda_device_take(g->ctx.dev, most, &out));
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        for (int d = 0; d < SF_PROFILE_DTYPES; d++) {
            bool sums = ops[i] == SF_OP_ALL_REDUCE || ops[i] == SF_OP_REDUCE_SCATTER || ops[i] == SF_OP_REDUCE;
            bool one = ops[i] == SF_OP_ALL_REDUCE || ops[i] == SF_OP_REDUCE || ops[i] == SF_OP_BROADCAST;
            sf_dtype dtype = d == 0 ? SF_F32 : SF_BF16;
            for (uint64_t bytes = 1024; bytes <= most && (d == 0 || sums); bytes *= 4) {
                uint64_t n = bytes / sf_dtype_bytes(dtype) / world * world;
                void *from = ops[i] == SF_OP_SCATTER && !root ? NULL : in, *to = ops[i] == SF_OP_GATHER && !root ? NULL : one ? from : out;
                double once, best = 1e9;
                SF_TRY(time_collective(g, comm, ops[i], dtype, n, 2, from, to, &once));
                int reps = (int)(5e-3 / (once > 1e-7 ? once : 1e-7)) + 1;
                for (int k = 0; k < 3; k++) {
                    SF_TRY(time_collective(g, comm, ops[i], dtype, n, reps < 500 ? reps : 500, from, to, &once));
                    best = once < best ? once : best;
                }
                sf_curve_add(&set->collective[d][ops[i]].time, (double)(n * sf_dtype_bytes(dtype)), best);
                sf_curve_add(&set->collective[d][ops[i]].cpu, (double)(n * sf_dtype_bytes(dtype)), 0);
            }
        }
    return SF_SUCCESS;
}

/* ---- */

static void close_gpu(gpu *g)
{
    sf_cuda_comm_close(g->nccl);
    if (g->ctx.gemm != NULL)
        sf_cuda_gemm_close(g->ctx.gemm);
    sf_cuda_device_close(g->ctx.dev);
}

static sf_status open_gpu(gpu *g, sf_comm *comm, const sf_executor_setup *setup)
{
    size_t seq = (size_t)setup->seq_len, dim = (size_t)setup->rotary_dim;
    float *table = malloc(sf_host_rope_table_bytes(seq, dim));
    void *ws, *device;
    sf_status st = table != NULL ? SF_SUCCESS : SF_FAIL(SF_ENOMEM, "no memory to calibrate");

    g->setup = *setup;
    g->ctx.setup = &g->setup;
    SF_TRY_GOTO(st, sf_backend_cuda_device(comm, false, &g->ctx.dev), done);
    uint64_t ws_bytes = sf_cuda_gemm_ws_bytes(sf_cuda_device_found(g->ctx.dev)->cc_major);
    SF_TRY_GOTO(st, sf_cuda_device_take(g->ctx.dev, ws_bytes, &ws), done);
    SF_TRY_GOTO(st, sf_cuda_gemm_open(g->ctx.dev, false, ws, ws_bytes, &g->ctx.gemm), done);
    SF_TRY_GOTO(st, sf_cuda_device_take(g->ctx.dev, sf_host_rope_table_bytes(seq, dim), &device), done);
    sf_host_rope_table(seq, dim, setup->rope_theta, table);
    st = gpu_write(g, device, table, sf_host_rope_table_bytes(seq, dim));
    g->ctx.rope_table = device;
done:
    free(table);
    return st;
}

sf_status sf_calibrate_cuda(sf_comm *comm, sf_calibrate_depth depth, sf_profile_set *out, char *name)
{
    gpu g = { .scratch_bytes = 0 };
    const sf_bench_machine machine = { .self = &g, .run = gpu_run, .finish = gpu_finish, .memory = gpu_memory, .write = gpu_write, .pinned = gpu_pinned,
                                       .now_s = sf_wall_now_s, .gpu = true };
    *out = (sf_profile_set){ .ranks = sf_comm_world(comm), .overlap_slowdown = 1 };
    strncpy(out->transport, "cuda", sizeof out->transport - 1);
    sf_status st = open_gpu(&g, comm, &(sf_executor_setup){ .comm = comm, .seq_len = 64, .norm_eps = 1e-5f, .rotary_dim = 64, .rope_theta = 10000, .optimizer = SF_ADAMW_DEFAULT });
    if (st.code == SF_OK) {
        strncpy(name, sf_cuda_device_found(g.ctx.dev)->name, 255);
        name[255] = '\0';
        st = sf_calibrate_kernels(comm, depth, &machine, out);
    }
    if (st.code == SF_OK)
        st = measure_launches(&g, out);
    if (st.code == SF_OK && sf_comm_world(comm) > 1) {
        st = sf_cuda_comm_open(g.ctx.dev, comm, 1u << SF_GROUP_WORLD, &g.nccl);
        if (st.code == SF_OK)
            st = measure_collectives(&g, comm, depth, out);
    }
    close_gpu(&g);
    return st;
}

/* ---- the self-test's GPU ---- */

typedef struct {
    gpu g;
    sf_comm *comm;
} tested;

sf_status sf_selftest_cuda_open(sf_selftest_machine *out)
{
    tested *t = calloc(1, sizeof *t);
    *out = (sf_selftest_machine){ .name = "cuda", .self = t, .run = gpu_run, .finish = gpu_finish, .memory = gpu_memory, .write = gpu_write, .read = gpu_write };
    if (t == NULL)
        return SF_FAIL(SF_ENOMEM, "no memory for the self-test");
    sf_status st = sf_comm_self_open(&t->comm);
    if (st.code == SF_OK)
        st = open_gpu(&t->g, t->comm, &(sf_executor_setup){ .comm = t->comm, .seq_len = SF_SELFTEST_SEQ, .norm_eps = (float)sf_selftest_norm_eps,
                                                           .rotary_dim = SF_SELFTEST_ROTARY, .rope_theta = sf_selftest_rope_theta, .optimizer = SF_ADAMW_DEFAULT });
    if (st.code != SF_OK)
        sf_selftest_cuda_close(out);
    return st;
}

void sf_selftest_cuda_close(sf_selftest_machine *machine)
{
    tested *t = machine->self;
    if (t == NULL)
        return;
    close_gpu(&t->g);
    sf_comm_close(t->comm);
    free(t);
    machine->self = NULL;
}
