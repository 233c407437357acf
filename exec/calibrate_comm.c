/* exec/calibrate_comm.c: what communication costs: each collective over its sizes, the hand-over
 * between streams, and how much kernels slow down beside a collective.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cblas.h>

#include "exec/calibrate_impl.h"
#include "exec/host/block.h"
#include "model/program/build.h"

/* ---- collectives ---- */

typedef struct {
    sf_comm *comm;
    char *in, *out;
    sf_status st;
} collective_bench;

static void call_once(collective_bench *b, sf_op_type op, sf_dtype dtype, uint64_t n)
{
    bool one_array = op == SF_OP_ALL_REDUCE || op == SF_OP_REDUCE || op == SF_OP_BROADCAST, root = sf_comm_rank(b->comm) == 0;
    void *in = op == SF_OP_SCATTER && !root ? NULL : b->in, *out = op == SF_OP_GATHER && !root ? NULL : one_array ? in : b->out;

    if (b->st.code == SF_OK)
        b->st = sf_comm_call(b->comm, op, SF_GROUP_WORLD, dtype, in, out, n);
}

/* [0] wall, [1] CPU seconds of one call, over `reps` calls. */
static void time_calls(collective_bench *b, sf_op_type op, sf_dtype dtype, uint64_t n, int reps, double s[2])
{
    double wall = sf_wall_now_s(), cpu = sf_cpu_now_s();

    for (int i = 0; i < reps; i++)
        call_once(b, op, dtype, n);
    s[0] = (sf_wall_now_s() - wall) / reps;
    s[1] = (sf_cpu_now_s() - cpu) / reps;
    if (b->st.code == SF_OK)
        b->st = sf_mean_over_ranks(b->comm, s, 2); /* equal on all ranks: they choose alike from it */
}

static void measure_collective(collective_bench *b, sf_op_type op, sf_dtype dtype, uint64_t bytes, double budget_s, sf_collective_curves *out)
{
    int world = sf_comm_world(b->comm), cores = sf_host_cores();
    uint64_t n = bytes / sf_dtype_bytes(dtype) / (uint64_t)world * (uint64_t)world;
    double once[2], best[2] = { 1e9, 1e9 };

    if (n == 0)
        return;
    time_calls(b, op, dtype, n, 1, once);
    time_calls(b, op, dtype, n, 2, once);
    int reps = once[0] > 0 ? (int)(budget_s / once[0]) + 1 : 1;
    for (int i = 0; i < 3 && b->st.code == SF_OK; i++) {
        double s[2];
        time_calls(b, op, dtype, n, reps < 2000 ? reps : 2000, s);
        if (s[0] < best[0])
            memcpy(best, s, sizeof best);
    }
    /* With more ranks than cores the wall time holds others' work too: take that share out. */
    double share = cores < world ? (double)cores / world : 1;
    double alone = best[0] * share > best[1] ? best[0] * share : best[1];
    sf_curve_add(&out->time, (double)(n * sf_dtype_bytes(dtype)), alone);
    sf_curve_add(&out->cpu, (double)(n * sf_dtype_bytes(dtype)), best[1]);
}

static sf_status measure_collectives(sf_comm *comm, sf_calibrate_depth depth, sf_profile_set *set, char *memory, uint64_t most)
{
    static const sf_op_type ops[] = { SF_OP_ALL_REDUCE, SF_OP_ALL_GATHER, SF_OP_REDUCE_SCATTER, SF_OP_BROADCAST,
                                      SF_OP_REDUCE,     SF_OP_SCATTER,    SF_OP_GATHER,         SF_OP_ALL_TO_ALL };
    collective_bench b = { .comm = comm, .in = memory, .out = memory + most };
    int step = depth == SF_CALIBRATE_FULL ? 2 : 4;

    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        for (int d = 0; d < SF_PROFILE_DTYPES; d++) {
            bool sums = ops[i] == SF_OP_ALL_REDUCE || ops[i] == SF_OP_REDUCE_SCATTER || ops[i] == SF_OP_REDUCE;
            for (uint64_t bytes = 256; bytes <= most && (d == 0 || sums) && b.st.code == SF_OK; bytes <<= step)
                measure_collective(&b, ops[i], d == 0 ? SF_F32 : SF_BF16, bytes, depth == SF_CALIBRATE_FULL ? 4e-3 : 1e-3,
                                   &set->collective[d][ops[i]]);
        }
    return b.st;
}

/* ---- streams ---- */

enum { HANDOFFS = 100, PLAIN_OPS = 200, LONG_ELEMENTS = 1 << 20 };

/* A long op, so that the queue fills; plain ops behind it; then ops that take turns on two streams. */
static const sf_program *streams_program(int world, sf_arena *arena)
{
    sf_program *p = SF_NEW(arena, sf_program);
    sf_builder b;

    *p = (sf_program){ .strategy = "streams", .world_size = world, .ranks_per_node = world, .n_layers = 1, .n_micro = 1, .n_classes = 1,
                       .tokens_per_step = (uint64_t)world };
    p->classes = SF_NEW(arena, sf_class);
    p->classes[0] = (sf_class){ .name = "worker", .n_ranks = world };
    sf_build_start(&b, arena, p->classes);
    int x = sf_build_buffer(&b, (sf_buffer){ .name = "x", .dtype = SF_F32, .elems = LONG_ELEMENTS, .count = 1, .persistent = true });
    int to = sf_build_events(&b, 2), back = to + 1;
    sf_build_op(&b, SF_OP_ZERO, SF_STREAM_COMPUTE, "long", SF_ARGS(sf_whole(&b, x, SF_WRITE)))->dims.n = LONG_ELEMENTS;
    sf_build_repeat(&b, SF_LOOP_MICRO, 0, PLAIN_OPS, 1);
    sf_build_op(&b, SF_OP_ZERO, SF_STREAM_COMPUTE, "plain", SF_ARGS(sf_span(x, 0, 16, SF_WRITE)))->dims.n = 16;
    sf_build_end(&b);
    sf_build_repeat(&b, SF_LOOP_MICRO, 0, HANDOFFS, 1);
    sf_build_op(&b, SF_OP_ZERO, SF_STREAM_COMPUTE, "turn", SF_ARGS(sf_span(x, 0, 16, SF_WRITE)))->dims.n = 16;
    sf_build_record(&b, SF_STREAM_COMPUTE, to, 0);
    sf_build_wait(&b, SF_STREAM_COMM, to, 0);
    sf_build_op(&b, SF_OP_ZERO, SF_STREAM_COMM, "turn", SF_ARGS(sf_span(x, 0, 16, SF_WRITE)))->dims.n = 16;
    sf_build_record(&b, SF_STREAM_COMM, back, 0);
    sf_build_wait(&b, SF_STREAM_COMPUTE, back, 0);
    sf_build_end(&b);
    return p;
}

static int by_seq(const void *a, const void *b)
{
    uint64_t x = ((const sf_span_time *)a)->seq, y = ((const sf_span_time *)b)->seq;
    return (x > y) - (x < y);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median of the pauses between consecutive ops with this label. */
static double median_pause(const sf_outcome *o, const char *label)
{
    double pauses[PLAIN_OPS + 2 * HANDOFFS];
    int n = 0;

    for (size_t i = 1; i < o->n_spans; i++)
        if (strcmp(o->spans[i].label, label) == 0 && strcmp(o->spans[i - 1].label, label) == 0)
            pauses[n++] = o->spans[i].start_s - o->spans[i - 1].end_s;
    qsort(pauses, (size_t)n, sizeof pauses[0], by_value);
    return n > 0 && pauses[n / 2] > 0 ? pauses[n / 2] : 0;
}

static sf_status measure_streams(sf_comm *comm, sf_profile_set *set)
{
    sf_arena arena = { 0 };
    sf_params none = { 0 };
    sf_executor_setup setup = { .program = streams_program(sf_comm_world(comm), &arena), .comm = comm, .params = &none, .seq_len = 1 };
    sf_executor *ex = NULL;
    sf_step step = { 0 };
    sf_outcome o;
    bool full;
    double best_issue_s = 1e9;
    sf_status st = sf_executor_open(&sf_backend_host, &setup, &ex, &full);

    for (int i = 0; i < 5 && st.code == SF_OK; i++) {
        st = sf_executor_step(ex, &step);
        best_issue_s = step.issue_s < best_issue_s ? step.issue_s : best_issue_s;
    }
    if (st.code == SF_OK) {
        sf_executor_outcome(ex, &arena, &o);
        qsort(o.spans, o.n_spans, sizeof *o.spans, by_seq);
        double values[3] = { best_issue_s / (double)(1 + PLAIN_OPS + 2 * HANDOFFS), median_pause(&o, "plain"), median_pause(&o, "turn") };
        st = sf_mean_over_ranks(comm, values, 3);
        set->issue_s = values[0];
        set->op_gap_s = values[1];
        set->handoff_s = values[2];
    }
    sf_executor_close(ex);
    sf_arena_free(&arena);
    return st;
}

/* ---- kernels beside a collective ---- */

typedef struct {
    collective_bench bench;
    uint64_t n;
    int calls;
    _Atomic int finished;
} beside;

static void *call_many(void *arg)
{
    beside *b = arg;

    for (int i = 0; i < b->calls; i++)
        call_once(&b->bench, SF_OP_ALL_REDUCE, SF_F32, b->n);
    atomic_store(&b->finished, 1);
    return NULL;
}

/* A matrix product and a pass over memory, as a step mixes them. CPU seconds. */
static double work_once(float *x, int n)
{
    double start = sf_cpu_now_s();

    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, 192, 192, 192, 1.0f, x, 192, x + 192 * 192, 192, 0.0f, x + 2 * 192 * 192, 192);
    for (int i = 3 * 192 * 192; i + 1 < n; i++)
        x[i] = x[i] * 0.5f + x[i + 1] * 0.5f;
    return sf_cpu_now_s() - start;
}

static sf_status measure_overlap(sf_comm *comm, sf_profile_set *set, char *memory, uint64_t most)
{
    enum { ELEMENTS = 1 << 19 };
    beside b = { .bench = { .comm = comm, .in = memory, .out = memory + most }, .n = most / 4 < (1 << 20) ? most / 4 : 1 << 20, .calls = 24 };
    float *x = calloc(ELEMENTS, sizeof *x);
    pthread_t thread;
    double alone = 1e9, together = 0;
    int n = 0;

    if (x == NULL)
        return SF_FAIL(SF_ENOMEM, "no memory to calibrate");
    for (int i = 0; i < 20; i++) {
        double s = work_once(x, ELEMENTS);
        alone = s < alone ? s : alone;
    }
    if (pthread_create(&thread, NULL, call_many, &b) != 0) {
        free(x);
        return SF_FAIL(SF_ENOMEM, "cannot start a thread to calibrate");
    }
    while (!atomic_load(&b.finished)) {
        together += work_once(x, ELEMENTS);
        n++;
    }
    pthread_join(thread, NULL);
    free(x);
    double slowdown = n > 0 && together / n > alone ? together / n / alone : 1;
    SF_TRY(b.bench.st);
    SF_TRY(sf_mean_over_ranks(comm, &slowdown, 1));
    set->overlap_slowdown = slowdown;
    return SF_SUCCESS;
}

sf_status sf_calibrate_comm(sf_comm *comm, sf_calibrate_depth depth, sf_profile_set *out)
{
    uint64_t most = depth == SF_CALIBRATE_FULL ? (uint64_t)64 << 20 : (uint64_t)16 << 20;
    void *memory;

    if (sf_comm_world(comm) > 1) {
        SF_TRY(sf_comm_memory(comm, 2 * most, &memory));
        memset(memory, 0, 2 * most); /* pages are there */
        SF_TRY(measure_collectives(comm, depth, out, memory, most));
        SF_TRY(measure_overlap(comm, out, memory, most));
    }
    return measure_streams(comm, out);
}
