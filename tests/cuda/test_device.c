/* The device layer, the products and the collectives on a fake CUDA: right results, every use of memory ordered, every
 * handle released, every failure a message. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "exec/cuda/cuda_comm.h"
#include "exec/cuda/cuda_device.h"
#include "exec/cuda/cuda_gemm.h"
#include "exec/reference/ref_ops.h"
#include "tests/cuda/cases.h"
#include "tests/cuda/fake_cuda.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
static const fake_cuda_setup H100S = { .devices = 8, .cc_major = 9, .cc_minor = 0, .memory_bytes = (size_t)1 << 30, .nvml = true };

static void ok(sf_status st)
{
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
}
static void says(sf_status st, sf_code code, const char *part)
{
    assert_int_equal(st.code, code);
    if (strstr(st.msg, part) == NULL)
        fail_msg("'%s' does not say '%s'", st.msg, part);
}

/* ---- device ---- */
static void all_that_a_device_takes_is_given_back(void **state)
{
    sf_cuda_device *dev = NULL;
    void *a = NULL, *b = NULL, *none = &a;
    (void)state;
    const sf_cuda_api *api = fake_cuda_start(&H100S);
    ok(sf_cuda_device_open(api, 3, &dev));
    assert_string_equal(sf_cuda_device_found(dev)->name, "Fake GPU 3");
    assert_string_equal(sf_cuda_device_found(dev)->bus_id, "0000:04:00.0");
    assert_int_equal(sf_cuda_device_found(dev)->cc_major, 9);
    ok(sf_cuda_device_take(dev, 1000, &a));
    ok(sf_cuda_device_pinned(dev, 500, &b));
    ok(sf_cuda_device_take(dev, 0, &none));
    assert_null(none);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(((char *)a)[i], 0); /* zeroed */
    ok(sf_cuda_device_events(dev, 5));
    ok(sf_cuda_device_marks(dev, 4));
    assert_int_equal(sf_cuda_device_taken_bytes(dev), 1000);
    assert_true(fake_cuda_handles() >= 2 + 5 + 4 + SF_STREAM_COUNT);
    sf_cuda_device_close(dev);
    assert_int_equal(fake_cuda_handles(), 0);
}

static void collectives_have_the_stream_of_highest_priority(void **state)
{
    sf_cuda_device *dev = NULL;
    (void)state;
    ok(sf_cuda_device_open(fake_cuda_start(&H100S), 0, &dev));
    for (int s = 0; s < SF_STREAM_COUNT; s++)
        assert_int_equal(fake_cuda_priority(sf_cuda_device_stream(dev, (sf_stream)s)), s == SF_STREAM_COMM ? -5 : 0);
    sf_cuda_device_close(dev);
}

static void events_order_streams_and_what_they_do_not_order_is_a_race(void **state)
{
    sf_cuda_device *dev = NULL;
    void *host = NULL, *gpu = NULL;
    (void)state;
    ok(sf_cuda_device_open(fake_cuda_start(&H100S), 0, &dev));
    ok(sf_cuda_device_pinned(dev, 64, &host));
    ok(sf_cuda_device_take(dev, 64, &gpu));
    ok(sf_cuda_device_events(dev, 2));
    strcpy(host, "tokens");
    ok(sf_cuda_device_copy(dev, SF_STREAM_H2D, gpu, host, 64));
    ok(sf_cuda_device_record(dev, SF_STREAM_H2D, 0));
    ok(sf_cuda_device_wait(dev, SF_STREAM_COMPUTE, 0));
    fake_cuda_access(sf_cuda_device_stream(dev, SF_STREAM_COMPUTE), gpu, 64, false, "a kernel");
    assert_null(fake_cuda_race());
    assert_string_equal(gpu, "tokens");

    /* the next copy must wait for the kernel; event 0 says nothing about it */
    ok(sf_cuda_device_wait(dev, SF_STREAM_H2D, 0));
    ok(sf_cuda_device_copy(dev, SF_STREAM_H2D, gpu, host, 64));
    assert_non_null(fake_cuda_race());
    assert_non_null(strstr(fake_cuda_race(), "a kernel"));
    sf_cuda_device_close(dev);
    assert_int_equal(fake_cuda_handles(), 0);
}

static void waiting_for_a_stream_orders_what_is_issued_after(void **state)
{
    sf_cuda_device *dev = NULL;
    void *gpu = NULL;
    bool done = false;
    (void)state;
    ok(sf_cuda_device_open(fake_cuda_start(&H100S), 0, &dev));
    ok(sf_cuda_device_take(dev, 64, &gpu));
    ok(sf_cuda_device_set(dev, SF_STREAM_COMPUTE, gpu, 1, 64));
    ok(sf_cuda_device_done(dev, SF_STREAM_COMPUTE, &done));
    assert_true(done);
    ok(sf_cuda_device_sync(dev, SF_STREAM_COMPUTE));
    ok(sf_cuda_device_set(dev, SF_STREAM_COMM, gpu, 2, 64));
    assert_null(fake_cuda_race());
    ok(sf_cuda_device_sync_all(dev));
    sf_cuda_device_close(dev);
}

static void marks_measure_the_time_between_two_points(void **state)
{
    sf_cuda_device *dev = NULL;
    void *gpu = NULL;
    double s = 0.0;
    (void)state;
    ok(sf_cuda_device_open(fake_cuda_start(&H100S), 0, &dev));
    ok(sf_cuda_device_take(dev, 64, &gpu));
    ok(sf_cuda_device_marks(dev, 2));
    ok(sf_cuda_device_mark(dev, SF_STREAM_COMPUTE, 0));
    ok(sf_cuda_device_set(dev, SF_STREAM_COMPUTE, gpu, 1, 64));
    ok(sf_cuda_device_set(dev, SF_STREAM_COMPUTE, gpu, 1, 64));
    ok(sf_cuda_device_mark(dev, SF_STREAM_COMPUTE, 1));
    ok(sf_cuda_device_elapsed(dev, 0, 1, &s));
    assert_true(fabs(s - 2e-3) < 1e-9); /* the fake counts a millisecond per operation */
    sf_cuda_device_close(dev);
}

static void host_add(void *arg)
{
    *(int *)arg += 1;
}
static void host_functions_run_in_stream_order(void **state)
{
    sf_cuda_device *dev = NULL;
    int calls = 0;
    (void)state;
    ok(sf_cuda_device_open(fake_cuda_start(&H100S), 0, &dev));
    ok(sf_cuda_device_host_call(dev, SF_STREAM_HOST, host_add, &calls));
    assert_int_equal(calls, 1);
    sf_cuda_device_close(dev);
}

static void readings_come_from_the_driver_or_are_unknown(void **state)
{
    fake_cuda_setup bare = H100S;
    sf_cuda_device *dev = NULL;
    sf_cuda_readings r;
    void *gpu = NULL;
    (void)state;
    ok(sf_cuda_device_open(fake_cuda_start(&H100S), 0, &dev));
    ok(sf_cuda_device_take(dev, 4096, &gpu));
    sf_cuda_device_read(dev, &r);
    assert_true(r.known);
    assert_int_equal(r.used_bytes, 5096); /* the fake's context is 1000 bytes */
    assert_true(fabs(r.power_w - 350.5) < 1e-9);
    fake_cuda_fail("nvmlDeviceGetPowerUsage", 1, 3);
    sf_cuda_device_read(dev, &r);
    assert_false(r.known);
    sf_cuda_device_close(dev);
    assert_int_equal(fake_cuda_handles(), 0);

    bare.nvml = false;
    ok(sf_cuda_device_open(fake_cuda_start(&bare), 0, &dev));
    sf_cuda_device_read(dev, &r);
    assert_false(r.known);
    sf_cuda_device_close(dev);
}

static void a_missing_or_old_gpu_is_named(void **state)
{
    fake_cuda_setup setup = H100S;
    sf_cuda_device *dev = NULL;
    (void)state;
    setup.devices = 0;
    says(sf_cuda_device_open(fake_cuda_start(&setup), 0, &dev), SF_EDEVICE, "CUDA_VISIBLE_DEVICES");
    setup.devices = 2;
    says(sf_cuda_device_open(fake_cuda_start(&setup), 2, &dev), SF_EDEVICE, "no GPU number 2: 2 visible");
    setup.cc_major = 7;
    says(sf_cuda_device_open(fake_cuda_start(&setup), 0, &dev), SF_EUNSUP, "7.0");
    assert_int_equal(fake_cuda_handles(), 0);
    const sf_cuda_api *api = fake_cuda_start(&H100S);
    fake_cuda_fail("cudaGetDeviceCount", 1, cudaErrorInsufficientDriver);
    says(sf_cuda_device_open(api, 0, &dev), SF_EDEVICE, "driver is missing or older");
}

static void memory_that_does_not_fit_says_how_much_there_is(void **state)
{
    sf_cuda_device *dev = NULL;
    void *gpu = NULL;
    (void)state;
    ok(sf_cuda_device_open(fake_cuda_start(&H100S), 0, &dev));
    says(sf_cuda_device_take(dev, (uint64_t)3 << 30, &gpu), SF_EDEVICE, "1.00 GiB free of 1.00 GiB, but 3.00 GiB");
    fake_cuda_fail("cudaMallocHost", 1, cudaErrorMemoryAllocation);
    says(sf_cuda_device_pinned(dev, 4096, &gpu), SF_ENOMEM, "ulimit -l");
    sf_cuda_device_close(dev);
}

/* Opens, uses and closes everything, up to the first failure, which it returns. */
static sf_status use_everything(const sf_cuda_api *api)
{
    sf_cuda_device *dev = NULL;
    sf_cuda_gemm *gemm = NULL;
    sf_cuda_comm *comm = NULL;
    sf_comm *self = NULL;
    void *ws = NULL, *x = NULL, *host = NULL;
    bool done;
    double s;
    sf_status st = sf_comm_self_open(&self);
    if (st.code != SF_OK)
        return st;
    SF_TRY_GOTO(st, sf_cuda_device_open(api, 0, &dev), close);
    SF_TRY_GOTO(st, sf_cuda_device_take(dev, 4096, &ws), close);
    SF_TRY_GOTO(st, sf_cuda_device_take(dev, 4096, &x), close);
    SF_TRY_GOTO(st, sf_cuda_device_pinned(dev, 4096, &host), close);
    SF_TRY_GOTO(st, sf_cuda_device_events(dev, 2), close);
    SF_TRY_GOTO(st, sf_cuda_device_marks(dev, 2), close);
    SF_TRY_GOTO(st, sf_cuda_gemm_open(dev, false, ws, 4096, &gemm), close);
    SF_TRY_GOTO(st, sf_cuda_comm_open(dev, self, 1u << SF_GROUP_WORLD | 1u << SF_GROUP_LOCAL, &comm), close);
    sf_cuda_stream compute = sf_cuda_device_stream(dev, SF_STREAM_COMPUTE);
    SF_TRY_GOTO(st, sf_cuda_device_mark(dev, SF_STREAM_COMPUTE, 0), close);
    SF_TRY_GOTO(st, sf_cuda_device_copy(dev, SF_STREAM_H2D, x, host, 4096), close);
    SF_TRY_GOTO(st, sf_cuda_device_record(dev, SF_STREAM_H2D, 0), close);
    SF_TRY_GOTO(st, sf_cuda_device_wait(dev, SF_STREAM_COMPUTE, 0), close);
    char *at = x; /* x 8x8, W 8x8, bias 8, aux 8x8, y 8x8, bf16 */
    SF_TRY_GOTO(st, sf_cuda_linear_fwd(gemm, compute, SF_BF16, SF_BF16, 8, 8, 8, at, at + 128, at + 256, at + 512, at + 1024), close);
    SF_TRY_GOTO(st, sf_cuda_comm_begin(comm), close);
    st = sf_cuda_comm_call(comm, compute, SF_OP_ALL_REDUCE, SF_GROUP_WORLD, SF_F32, at + 2048, at + 2048, 16);
    sf_status ended = sf_cuda_comm_end(comm);
    SF_TRY_GOTO(st, st.code != SF_OK ? st : ended, close);
    SF_TRY_GOTO(st, sf_cuda_comm_call(comm, compute, SF_OP_ALL_TO_ALL, SF_GROUP_LOCAL, SF_F32, at + 2048, at + 3072, 16), close);
    SF_TRY_GOTO(st, sf_cuda_comm_check(comm), close);
    SF_TRY_GOTO(st, sf_cuda_device_host_call(dev, SF_STREAM_HOST, host_add, &(int){ 0 }), close);
    SF_TRY_GOTO(st, sf_cuda_device_mark(dev, SF_STREAM_COMPUTE, 1), close);
    SF_TRY_GOTO(st, sf_cuda_device_done(dev, SF_STREAM_COMPUTE, &done), close);
    SF_TRY_GOTO(st, sf_cuda_device_sync_all(dev), close);
    SF_TRY_GOTO(st, sf_cuda_device_elapsed(dev, 0, 1, &s), close);
close:
    sf_cuda_comm_close(comm);
    sf_cuda_gemm_close(gemm);
    sf_cuda_device_close(dev);
    sf_comm_close(self);
    return st;
}

static void every_failing_call_gives_a_message_and_leaves_nothing(void **state)
{
    static const char *const names[] = {
#define SF_AS_NAME(name) #name,
        SF_CUDA_RUNTIME_CALLS(SF_AS_NAME) SF_CUBLASLT_CALLS(SF_AS_NAME) SF_NCCL_CALLS(SF_AS_NAME)
#undef SF_AS_NAME
    };
    /* Not called in a run, or when closing, where there is nobody to tell. */
    static const char *const silent[] = {
        "cudaGetErrorName", "cudaGetErrorString", "cudaMemGetInfo", "cudaFree", "cudaFreeHost", "cudaStreamDestroy", "cudaEventDestroy",
        "cublasLtDestroy", "cublasLtGetStatusString", "cublasLtGetVersion", "cublasLtMatmulDescDestroy", "cublasLtMatrixLayoutDestroy",
        "cublasLtMatmulPreferenceDestroy", "ncclCommDestroy", "ncclCommAbort", "ncclGetVersion", "ncclGetErrorString",
        "ncclGetLastError", "ncclAllGather", "ncclReduceScatter", "ncclBroadcast", "ncclReduce",
    };
    int tried = 0;
    (void)state;
    ok(use_everything(fake_cuda_start(&H100S)));
    assert_null(fake_cuda_race());
    assert_int_equal(fake_cuda_handles(), 0);

    for (size_t i = 0; i < COUNT(names); i++) {
        bool is_silent = false;
        for (size_t k = 0; k < COUNT(silent); k++)
            is_silent = is_silent || strcmp(names[i], silent[k]) == 0;
        if (is_silent)
            continue;
        for (int nth = 1;; nth++) {
            const sf_cuda_api *api = fake_cuda_start(&H100S);
            fake_cuda_fail(names[i], nth, 14); /* means something bad to all three libraries */
            sf_status st = use_everything(api);
            if (fake_cuda_calls(names[i]) < nth) {
                assert_true(nth > 1); /* every function is called at least once */
                ok(st);
                break;
            }
            bool at_end = strcmp(names[i], "cudaDeviceSynchronize") == 0 && nth == 2; /* by close */
            if (!at_end) {
                assert_int_not_equal(st.code, SF_OK);
                if (strstr(st.msg, names[i]) == NULL)
                    fail_msg("failure %d of %s gives '%s'", nth, names[i], st.msg);
            }
            if (fake_cuda_handles() != 0)
                fail_msg("failure %d of %s leaves %d handles", nth, names[i], fake_cuda_handles());
            tried++;
        }
    }
    assert_true(tried > 60);
}

/* ---- products ---- */
typedef struct {
    sf_cuda_device *dev;
    sf_cuda_gemm *gemm;
    sf_cuda_stream stream;
    void *ws;
} products;

static products open_products(const fake_cuda_setup *setup, bool tf32)
{
    products p;
    uint64_t ws_bytes = sf_cuda_gemm_ws_bytes(setup->cc_major);
    ok(sf_cuda_device_open(fake_cuda_start(setup), 0, &p.dev));
    ok(sf_cuda_device_take(p.dev, ws_bytes, &p.ws));
    ok(sf_cuda_gemm_open(p.dev, tf32, p.ws, ws_bytes, &p.gemm));
    p.stream = sf_cuda_device_stream(p.dev, SF_STREAM_COMPUTE);
    return p;
}
static void close_products(products *p)
{
    assert_null(fake_cuda_race());
    sf_cuda_gemm_close(p->gemm);
    sf_cuda_device_close(p->dev);
    assert_int_equal(fake_cuda_handles(), 0);
}

static void linear_layers_multiply_the_right_way_round(void **state)
{
    /* rows, in, out: all different, so that no transposed reading fits */
    static const struct {
        size_t n, i, o;
    } shapes[] = { { 1, 1, 1 }, { 3, 5, 7 }, { 8, 4, 16 }, { 6, 9, 2 } };
    static const sf_dtype types[] = { SF_F32, SF_BF16, SF_F16 };
    (void)state;
    products p = open_products(&H100S, false);
    for (size_t t = 0; t < COUNT(types); t++)
        for (size_t s = 0; s < COUNT(shapes); s++)
            for (int variant = 0; variant < 4; variant++) {
                size_t N = shapes[s].n, I = shapes[s].i, O = shapes[s].o;
                bool accumulate = variant & 1, gelu = variant & 2;
                sf_dtype dt = types[t], wide = variant == 1 ? SF_F32 : dt;
                size_t most = N * I + N * O + O * I;
                double *want = calloc(most, sizeof *want), *also = calloc(most, sizeof *also), eps = 1.01 * case_eps(dt), near = 0x1p-22;
                kase *c = case_new(0, "linear %s (%zu, %zu) -> %zu variant %d", sf_dtype_name(dt), N, I, O, variant);
                tensor *x = case_random(c, "x", dt, N * I, 1.0), *w = case_random(c, "weight", dt, O * I, 1.0);
                tensor *b = case_random(c, "bias", dt, O, 1.0), *y = case_blank(c, "y", wide, N * O);
                tensor *y_in = case_blank(c, "gelu_in", dt, N * O), *dy = case_random(c, "dy", dt, N * O, 1.0);
                tensor *x_in = case_random(c, "gelu_in of x", dt, N * I, 2.0), *dx = case_random(c, "dx", dt, N * I, 1.0);
                tensor *dw = case_random(c, "dweight", wide, O * I, 1.0);

                /* y = x W^T + b */
                ok(sf_cuda_linear_fwd(p.gemm, p.stream, dt, wide, N, I, O, x->data, w->data, variant > 0 ? b->data : NULL,
                                      gelu ? y_in->data : NULL, y->data));
                sf_ref_linear_fwd(N, I, O, x->value, w->value, variant > 0 ? b->value : NULL, want);
                if (gelu) {
                    case_close(c, y_in, want, eps, NULL, near);
                    memcpy(also, want, N * O * sizeof *want);
                    sf_ref_act_fwd(SF_OP_ACT_GELU_TANH, N, O, also, want);
                }
                case_close(c, y, want, 1.01 * case_eps(wide), NULL, near);

                /* dx = dy W */
                ok(sf_cuda_linear_bwd_x(p.gemm, p.stream, dt, N, I, O, dy->data, w->data, accumulate && !gelu,
                                        gelu ? x_in->data : NULL, dx->data));
                sf_ref_linear_bwd_x(N, I, O, dy->value, w->value, want);
                if (gelu) {
                    memcpy(also, want, N * I * sizeof *want);
                    sf_ref_act_bwd(SF_OP_ACT_GELU_TANH, N, I, also, x_in->value, want);
                }
                for (size_t i = 0; i < N * I && accumulate && !gelu; i++)
                    want[i] += dx->value[i];
                case_close(c, dx, want, eps, NULL, near);

                /* dW = dy^T x */
                ok(sf_cuda_linear_bwd_w(p.gemm, p.stream, dt, wide, N, I, O, dy->data, x->data, accumulate, dw->data));
                for (size_t i = 0; i < O * I; i++)
                    want[i] = accumulate ? dw->value[i] : 0.0;
                sf_ref_linear_bwd_w(N, I, O, dy->value, x->value, want, NULL);
                case_close(c, dw, want, 1.01 * case_eps(wide), NULL, near);
                ok(sf_cuda_device_sync_all(p.dev)); /* the case's memory may be used again */
                case_free(c);
                free(want);
                free(also);
            }
    close_products(&p);
}

static void a_shape_is_planned_once_and_replanned_for_other_alignment(void **state)
{
    void *x = NULL;
    (void)state;
    products p = open_products(&H100S, false);
    ok(sf_cuda_device_take(p.dev, 65536, &x));
    char *at = x;
    for (int i = 0; i < 3; i++)
        ok(sf_cuda_linear_fwd(p.gemm, p.stream, SF_BF16, SF_BF16, 8, 16, 24, at, at + 4096, at + 8192, NULL, at + 16384));
    assert_int_equal(sf_cuda_gemm_plans(p.gemm), 1);
    assert_int_equal(fake_cuda_calls("cublasLtMatmulAlgoGetHeuristic"), 1);
    assert_int_equal(fake_cuda_calls("cublasLtMatmulDescCreate"), 1);
    assert_int_equal(fake_cuda_calls("cublasLtMatmul"), 3);
    assert_int_equal(fake_cuda_last_product()->ws_bytes, 32 << 20);
    assert_int_equal(fake_cuda_last_product()->align_b, 256);

    /* x two bytes further: cuBLASLt must not be told of 256 */
    ok(sf_cuda_linear_fwd(p.gemm, p.stream, SF_BF16, SF_BF16, 8, 16, 24, at + 2, at + 4096, at + 8192, NULL, at + 16384));
    assert_int_equal(sf_cuda_gemm_plans(p.gemm), 2);
    assert_int_equal(fake_cuda_last_product()->align_b, 2);
    assert_int_equal(fake_cuda_last_product()->align_a, 256);

    /* another bias pointer is the same plan */
    ok(sf_cuda_linear_fwd(p.gemm, p.stream, SF_BF16, SF_BF16, 8, 16, 24, at, at + 4096, at + 12288, NULL, at + 16384));
    assert_int_equal(sf_cuda_gemm_plans(p.gemm), 2);
    /* no rows: nothing to do */
    ok(sf_cuda_linear_fwd(p.gemm, p.stream, SF_BF16, SF_BF16, 0, 16, 24, at, at + 4096, at + 8192, NULL, at + 16384));
    assert_int_equal(fake_cuda_calls("cublasLtMatmul"), 5);
    close_products(&p);
}

static void float_products_use_tf32_only_where_asked(void **state)
{
    fake_cuda_setup a100 = H100S;
    void *x = NULL;
    (void)state;
    a100.cc_major = 8;
    for (int tf32 = 0; tf32 < 2; tf32++) {
        products p = open_products(&a100, tf32);
        ok(sf_cuda_device_take(p.dev, 4096, &x));
        char *at = x;
        ok(sf_cuda_linear_fwd(p.gemm, p.stream, SF_F32, SF_F32, 4, 4, 4, at, at + 512, NULL, NULL, at + 1024));
        assert_int_equal(fake_cuda_last_product()->compute, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F);
        assert_int_equal(fake_cuda_last_product()->ws_bytes, 4 << 20);
        ok(sf_cuda_linear_fwd(p.gemm, p.stream, SF_BF16, SF_F32, 4, 4, 4, at, at + 512, NULL, NULL, at + 1024));
        assert_int_equal(fake_cuda_last_product()->compute, CUBLAS_COMPUTE_32F);
        assert_int_equal(fake_cuda_last_product()->d_type, CUDA_R_32F);
        close_products(&p);
    }
}

static void a_product_without_algorithm_names_its_shape(void **state)
{
    void *x = NULL;
    (void)state;
    products p = open_products(&H100S, false);
    ok(sf_cuda_device_take(p.dev, 4096, &x));
    fake_cuda_fail("cublasLtMatmulAlgoGetHeuristic", 1, CUBLAS_STATUS_NOT_SUPPORTED);
    says(sf_cuda_linear_fwd(p.gemm, p.stream, SF_BF16, SF_BF16, 3, 5, 7, x, x, NULL, NULL, x), SF_EUNSUP, "7 x 3 x 5");
    close_products(&p);
}

/* ---- collectives: four ranks in threads, two to a node ---- */
enum { RANKS = 4, N = 8 };
typedef struct {
    const sf_cuda_api *api;
    sf_comm *host;
    int rank;
    char error[600];
} rank_thread;

#define EXPECT(condition)                                                                                    \
    do {                                                                                                     \
        if (!(condition) && me->error[0] == '\0')                                                            \
            snprintf(me->error, sizeof me->error, "rank %d: %s", me->rank, #condition);                      \
    } while (0)
#define MUST(expr)                                                                                           \
    do {                                                                                                     \
        sf_status must_ = (expr);                                                                            \
        if (must_.code != SF_OK && me->error[0] == '\0')                                                     \
            snprintf(me->error, sizeof me->error, "rank %d: %s", me->rank, must_.msg);                       \
    } while (0)

/* Element i of rank r holds 100 r + i. */
static void *collectives_of_a_rank(void *arg)
{
    rank_thread *me = arg;
    sf_cuda_device *dev = NULL;
    sf_cuda_comm *comm = NULL;
    void *block = NULL;
    int r = me->rank, local0 = r / 2 * 2, cross0 = r % 2;
    unsigned all = 1u << SF_GROUP_WORLD | 1u << SF_GROUP_LOCAL | 1u << SF_GROUP_CROSS;

    MUST(sf_cuda_device_open(me->api, r, &dev));
    MUST(sf_cuda_device_take(dev, 2 * N * sizeof(float), &block));
    MUST(sf_cuda_comm_open(dev, me->host, all, &comm));
    sf_cuda_stream s = sf_cuda_device_stream(dev, SF_STREAM_COMM);
    float *x = block, *y = x + N;
#define FILL() for (int i = 0; i < N; i++) x[i] = (float)(100 * r + i), y[i] = -1.0f
    FILL();
    MUST(sf_cuda_comm_call(comm, s, SF_OP_ALL_REDUCE, SF_GROUP_WORLD, SF_F32, x, x, N));
    EXPECT(x[3] == 600 + 4 * 3); /* 0 + 100 + 200 + 300 + 4 i */
    FILL();
    MUST(sf_cuda_comm_call(comm, s, SF_OP_ALL_REDUCE, SF_GROUP_LOCAL, SF_F32, x, x, N));
    EXPECT(x[1] == (float)(100 * (2 * local0 + 1) + 2));
    FILL();
    MUST(sf_cuda_comm_call(comm, s, SF_OP_ALL_REDUCE, SF_GROUP_CROSS, SF_F32, x, x, N));
    EXPECT(x[1] == (float)(100 * (2 * cross0 + 2) + 2));
    FILL();
    MUST(sf_cuda_comm_call(comm, s, SF_OP_ALL_GATHER, SF_GROUP_WORLD, SF_F32, x, y, N)); /* 2 elements each */
    EXPECT(y[0] == 0 && y[1] == 1 && y[2] == 100 && y[7] == 301);
    FILL();
    MUST(sf_cuda_comm_call(comm, s, SF_OP_REDUCE_SCATTER, SF_GROUP_WORLD, SF_F32, x, y, N));
    EXPECT(y[0] == (float)(600 + 4 * 2 * r) && y[1] == (float)(600 + 4 * (2 * r + 1)) && y[2] == -1);
    FILL();
    MUST(sf_cuda_comm_call(comm, s, SF_OP_BROADCAST, SF_GROUP_CROSS, SF_F32, x, x, N));
    EXPECT(x[5] == (float)(100 * cross0 + 5));
    FILL();
    MUST(sf_cuda_comm_call(comm, s, SF_OP_REDUCE, SF_GROUP_WORLD, SF_F32, x, x, N));
    EXPECT(x[5] == (float)(r == 0 ? 600 + 20 : 100 * r + 5));
    FILL();
    MUST(sf_cuda_comm_call(comm, s, SF_OP_SCATTER, SF_GROUP_WORLD, SF_F32, r == 0 ? x : NULL, y, N));
    EXPECT(y[0] == (float)(2 * r) && y[1] == (float)(2 * r + 1) && y[2] == -1);
    FILL();
    MUST(sf_cuda_comm_call(comm, s, SF_OP_GATHER, SF_GROUP_WORLD, SF_F32, x, r == 0 ? y : NULL, N));
    EXPECT(r != 0 || (y[0] == 0 && y[3] == 101 && y[6] == 300));
    FILL();
    MUST(sf_cuda_comm_call(comm, s, SF_OP_ALL_TO_ALL, SF_GROUP_WORLD, SF_F32, x, y, N));
    EXPECT(y[2] == (float)(100 + 2 * r) && y[7] == (float)(300 + 2 * r + 1));
    FILL();
    MUST(sf_cuda_comm_begin(comm)); /* two as one */
    MUST(sf_cuda_comm_call(comm, s, SF_OP_ALL_REDUCE, SF_GROUP_WORLD, SF_F32, x, x, 2));
    MUST(sf_cuda_comm_call(comm, s, SF_OP_ALL_REDUCE, SF_GROUP_WORLD, SF_F32, x + 4, x + 4, 2));
    EXPECT(x[0] == (float)(100 * r)); /* not before the end */
    MUST(sf_cuda_comm_end(comm));
    EXPECT(x[0] == 600 && x[2] == (float)(100 * r + 2) && x[4] == 600 + 16);
    MUST(sf_cuda_comm_check(comm));
    EXPECT(sf_cuda_comm_counted(comm, SF_OP_ALL_REDUCE, SF_GROUP_WORLD)->calls == 3);
    EXPECT(sf_cuda_comm_counted(comm, SF_OP_ALL_REDUCE, SF_GROUP_WORLD)->bytes == (8 + 2 + 2) * 4);
    sf_cuda_comm_count_reset(comm);
    EXPECT(sf_cuda_comm_counted(comm, SF_OP_ALL_REDUCE, SF_GROUP_WORLD)->calls == 0);
    sf_cuda_comm_close(comm);
    sf_cuda_device_close(dev);
    return NULL;
}

static void collectives_move_what_op_h_says_in_every_group(void **state)
{
    sf_comm *hosts[RANKS];
    rank_thread ranks[RANKS];
    pthread_t threads[RANKS];
    (void)state;
    const sf_cuda_api *api = fake_cuda_start(&H100S);
    ok(sf_comm_threads_open(RANKS, 2, hosts));
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (rank_thread){ api, hosts[r], r, "" };
        assert_int_equal(pthread_create(&threads[r], NULL, collectives_of_a_rank, &ranks[r]), 0);
    }
    for (int r = 0; r < RANKS; r++)
        pthread_join(threads[r], NULL);
    for (int r = 0; r < RANKS; r++) {
        sf_comm_close(hosts[r]);
        assert_string_equal(ranks[r].error, "");
    }
    assert_null(fake_cuda_race());
    assert_int_equal(fake_cuda_handles(), 0);
}

static void a_failure_under_way_is_seen_and_the_communicator_aborted(void **state)
{
    sf_cuda_device *dev = NULL;
    sf_cuda_comm *comm = NULL;
    sf_comm *self = NULL;
    void *x = NULL;
    (void)state;
    ok(sf_comm_self_open(&self));
    ok(sf_cuda_device_open(fake_cuda_start(&H100S), 0, &dev));
    ok(sf_cuda_device_take(dev, 64, &x));
    ok(sf_cuda_comm_open(dev, self, 1u << SF_GROUP_WORLD, &comm));
    sf_cuda_stream s = sf_cuda_device_stream(dev, SF_STREAM_COMM);
    says(sf_cuda_comm_call(comm, s, SF_OP_ALL_REDUCE, SF_GROUP_CROSS, SF_F32, x, x, 4), SF_ECOMM, "cross group");
    says(sf_cuda_comm_call(comm, s, SF_OP_ALL_REDUCE, SF_GROUP_WORLD, SF_F8, x, x, 4), SF_EUNSUP, "f8");
    says(sf_cuda_comm_call(comm, s, SF_OP_ADD, SF_GROUP_WORLD, SF_F32, x, x, 4), SF_EUNSUP, "add is no collective");
    fake_cuda_fail("ncclAllReduce", 1, ncclSystemError);
    says(sf_cuda_comm_call(comm, s, SF_OP_ALL_REDUCE, SF_GROUP_WORLD, SF_F32, x, x, 4), SF_ECOMM, "all_reduce of 4 f32 in the world group");
    ok(sf_cuda_comm_check(comm));
    fake_cuda_fail_under_way(ncclRemoteError);
    says(sf_cuda_comm_check(comm), SF_ECOMM, "the wire is cut");
    sf_cuda_comm_abort(comm);
    assert_int_equal(fake_cuda_calls("ncclCommAbort"), 1);
    says(sf_cuda_comm_call(comm, s, SF_OP_ALL_REDUCE, SF_GROUP_WORLD, SF_F32, x, x, 4), SF_ECOMM, "aborted");
    sf_cuda_comm_close(comm);
    assert_int_equal(fake_cuda_calls("ncclCommDestroy"), 0);
    sf_cuda_device_close(dev);
    sf_comm_close(self);
    assert_int_equal(fake_cuda_handles(), 0);
}

/* The real libraries: found on a machine with the toolkit; without a GPU the probe says so. */
static void the_real_libraries_are_found_and_a_missing_gpu_is_a_message(void **state)
{
    const sf_cuda_api *api = NULL;
    sf_cuda_found found[1];
    int count = -1;
    (void)state;
    ok(sf_cuda_api_real(&api));
    assert_true(api->cublasLtGetVersion() >= CUBLAS_VER_MAJOR * 10000);
    int version = 0;
    assert_int_equal(api->ncclGetVersion(&version), ncclSuccess);
    assert_int_equal(version / 10000, NCCL_MAJOR);
    sf_status st = sf_cuda_probe(1, found, &count);
    if (st.code == SF_OK) {
        assert_true(count >= 1 && found[0].sm_count > 0);
    } else {
        assert_int_equal(st.code, SF_EDEVICE);
        assert_int_equal(count, 0);
        assert_true(strlen(st.msg) > 20);
        printf("no GPU here: %s\n", st.msg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_that_a_device_takes_is_given_back),
        cmocka_unit_test(collectives_have_the_stream_of_highest_priority),
        cmocka_unit_test(events_order_streams_and_what_they_do_not_order_is_a_race),
        cmocka_unit_test(waiting_for_a_stream_orders_what_is_issued_after),
        cmocka_unit_test(marks_measure_the_time_between_two_points),
        cmocka_unit_test(host_functions_run_in_stream_order),
        cmocka_unit_test(readings_come_from_the_driver_or_are_unknown),
        cmocka_unit_test(a_missing_or_old_gpu_is_named),
        cmocka_unit_test(memory_that_does_not_fit_says_how_much_there_is),
        cmocka_unit_test(every_failing_call_gives_a_message_and_leaves_nothing),
        cmocka_unit_test(linear_layers_multiply_the_right_way_round),
        cmocka_unit_test(a_shape_is_planned_once_and_replanned_for_other_alignment),
        cmocka_unit_test(float_products_use_tf32_only_where_asked),
        cmocka_unit_test(a_product_without_algorithm_names_its_shape),
        cmocka_unit_test(collectives_move_what_op_h_says_in_every_group),
        cmocka_unit_test(a_failure_under_way_is_seen_and_the_communicator_aborted),
        cmocka_unit_test(the_real_libraries_are_found_and_a_missing_gpu_is_a_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
