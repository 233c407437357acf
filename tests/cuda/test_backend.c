/* The CUDA executor without a GPU: whole jobs on the fake runtime, with the kernels emulated, against the host executor.
 *
 * The fake orders accesses by streams and events as CUDA does; kernels tell it what they read and write from their op's
 * arguments, so that a program or a backend that leaves two accesses unordered is a race here.
 */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "exec/cuda/backend_cuda.h"
#include "exec/cuda/calibrate_cuda.h"
#include "exec/cuda/cuda_probe.h"
#include "exec/run.h"
#include "exec/selftest.h"
#include "model/cost/accountant.h"
#include "model/strategy/lower.h"
#include "tests/cuda/fake_cuda.h"

static const char *const models[] = {
    "{\"model_type\": \"gpt2\", \"n_layer\": 1, \"n_embd\": 16, \"n_head\": 2, \"n_inner\": 24, \"vocab_size\": 29, \"n_positions\": 8}",
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 16, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"intermediate_size\": 24, \"vocab_size\": 29, \"max_position_embeddings\": 8, \"tie_word_embeddings\": false}",
};

enum { STEPS = 3 };

typedef struct {
    const char *strategy;
    int model, ranks, micro_steps;
    bool recompute, offload, clip, bf16, staged, shared_gpu;
} config;

static const char *describe(const config *c)
{
    static char text[200];
    snprintf(text, sizeof text, "%s model %d ranks %d micro_steps %d%s%s%s%s%s", c->strategy, c->model, c->ranks, c->micro_steps, c->recompute ? " recompute" : "",
             c->offload ? " offload" : "", c->clip ? " clip" : "", c->bf16 ? " bf16" : "", c->staged ? " staged" : "");
    return text;
}

/* ---- a backend that says what its kernels access ---- */

static sf_status telling_issue(void *self, const sf_op_call *call)
{
    const sf_op *op = call->issue.op;
    sf_op_kind kind = sf_op_kind_of(op->type);
    bool kernel = kind != SF_KIND_COMM && kind != SF_KIND_SYNC && kind != SF_KIND_COPY && op->type != SF_OP_COPY && op->type != SF_OP_ZERO;
    for (int i = 0; kernel && i < op->n_args; i++) {
        uint64_t elems = op->args[i].elems;
        if (call->ptr[i] != NULL && elems > 0)
            fake_cuda_access(sf_backend_cuda_stream(self, op->stream), call->ptr[i], elems * sf_dtype_bytes(call->dtype[i]), (op->args[i].access & SF_WRITE) != 0,
                             op->label != NULL ? op->label : sf_op_name(op->type));
    }
    return sf_backend_cuda.issue(self, call);
}

static sf_backend_type telling(void)
{
    sf_backend_type t = sf_backend_cuda;
    t.issue = telling_issue;
    return t;
}

/* ---- a job ---- */

static void read_job(const config *c, sf_arena *arena, sf_job *job)
{
    sf_override o[24];
    size_t n = 0;
#define SET(path, ...) o[n++] = (sf_override){ path, sf_arena_printf(arena, __VA_ARGS__) }
    SET("model", "%s", models[c->model]);
    SET("framework", "shardfit");
    SET("strategy.name", "%s", c->strategy);
    SET("cluster.gpus_per_node", "%d", c->ranks);
    SET("train.micro_batch", "2");
    SET("train.seq_len", "7");
    SET("train.grad_accum", "%d", c->micro_steps);
    SET("train.steps", "%d", STEPS);
    SET("train.recompute", c->recompute ? "full" : "none");
    SET("train.grad_clip", c->clip ? "0.5" : "0");
    SET("train.precision", c->bf16 ? "bf16-mixed" : "fp32");
    SET("train.data", "synthetic");
    SET("train.lr", "0.01");
    if (c->offload)
        SET("strategy.offload_optimizer.device", "cpu");
#undef SET
    sf_status st = sf_job_read(NULL, o, n, arena, job);
    if (st.code != SF_OK)
        fail_msg("%s: %s", describe(c), st.msg);
}

typedef struct {
    double losses[STEPS];
    int n_losses;
    sf_outcome measured, accounted;
} result;

static sf_status train(const config *c, const sf_backend_type *backend, sf_arena *arena, result *out)
{
    sf_job job;
    const sf_program *program;
    sf_run_record record;

    memset(out, 0, sizeof *out);
    read_job(c, arena, &job);
    sf_status st = sf_lower(&job, arena, &program);
    if (st.code != SF_OK)
        fail_msg("%s: %s", describe(c), st.msg);
    sf_account(program, 0, arena, &out->accounted);
    sf_run_record_open(&record);
    sf_run_setup setup = { .job = &job, .program = program, .backend = backend, .staged = c->staged, .poison = SF_POISON_PLANNED };
    st = sf_run_threads(&setup, &record);
    sf_run_snapshot(&record, arena, &out->measured);
    for (int i = 0; i < record.n_losses && i < STEPS; i++)
        out->losses[out->n_losses++] = record.losses[i];
    sf_run_record_close(&record);
    sf_job_close(&job);
    return st;
}

static const sf_cuda_api *start(const config *c)
{
    const sf_cuda_api *api = fake_cuda_start(&(fake_cuda_setup){ .devices = c->shared_gpu ? 1 : c->ranks, .cc_major = 9, .memory_bytes = 1 << 30, .nvml = true });
    sf_backend_cuda_use(api);
    return api;
}

/* On the fake and on the host; what differs but the losses fails here. */
static void train_both(const config *c, sf_arena *arena, result *gpu, result *host)
{
    sf_backend_type backend = telling();
    sf_status st;

    start(c);
    st = train(c, &backend, arena, gpu);
    if (st.code != SF_OK)
        fail_msg("%s: %s", describe(c), st.msg);
    if (fake_cuda_race() != NULL)
        fail_msg("%s: %s", describe(c), fake_cuda_race());
    if (fake_cuda_handles() != 0)
        fail_msg("%s: %d handles are left", describe(c), fake_cuda_handles());
    st = train(c, &sf_backend_host, arena, host);
    if (st.code != SF_OK)
        fail_msg("%s on the host: %s", describe(c), st.msg);
    if (gpu->measured.memory.peak_allocated_bytes != gpu->accounted.memory.peak_allocated_bytes ||
        gpu->measured.memory.host_bytes != gpu->accounted.memory.host_bytes)
        fail_msg("%s: measured %llu B, accounted %llu B", describe(c), (unsigned long long)gpu->measured.memory.peak_allocated_bytes,
                 (unsigned long long)gpu->accounted.memory.peak_allocated_bytes);
    assert_int_equal(gpu->measured.n_comm, gpu->accounted.n_comm);
    for (size_t i = 0; i < gpu->accounted.n_comm; i++) {
        const sf_outcome_comm *a = &gpu->accounted.comm[i], *m = sf_outcome_comm_row(&gpu->measured, a->collective, a->group);
        if (m->calls != a->calls || m->bytes_per_rank != a->bytes_per_rank)
            fail_msg("%s: %s measured %llu calls, accounted %llu", describe(c), sf_op_name(a->collective), (unsigned long long)m->calls, (unsigned long long)a->calls);
    }
}

/* f32: the two sum the same terms, up to 29 of them, in other orders, and three AdamW steps carry the differences on: 1e-5 is
 * the bar, as between strategies on the host. bf16: a sum that another order rounds to the other neighbour differs by 2^-8. */
static void losses_are_the_host_s(const config *c, const result *gpu, const result *host)
{
    double bar = c->bf16 ? 4e-3 : 1e-5;
    assert_int_equal(gpu->n_losses, STEPS);
    for (int i = 0; i < STEPS; i++)
        if (!(fabs(gpu->losses[i] - host->losses[i]) <= bar * host->losses[i]))
            fail_msg("%s: step %d has loss %.9f, the host's %.9f", describe(c), i + 1, gpu->losses[i], host->losses[i]);
}

static const char *const strategies[] = { "single", "dp", "ddp", "fsdp", "zero1", "zero2", "zero3" };
enum { STRATEGIES = sizeof strategies / sizeof strategies[0] };

static void every_strategy_trains_as_on_the_host(void **state)
{
    (void)state;
    for (int s = 0; s < STRATEGIES; s++)
        for (int ranks = 1; ranks <= (s == 0 ? 1 : 2); ranks++)
            for (int model = 0; model < 2; model++) {
                sf_arena arena = { 0 };
                config c = { .strategy = strategies[s], .ranks = ranks, .model = model, .micro_steps = 1 + (s + model) % 2, .recompute = (s + ranks) % 2,
                             .clip = model == 1, .bf16 = (s + model) % 3 == 2 };
                result gpu, host;
                train_both(&c, &arena, &gpu, &host);
                losses_are_the_host_s(&c, &gpu, &host);
                sf_arena_free(&arena);
            }
}

static void an_offloaded_optimizer_runs_on_the_host_s_cores(void **state)
{
    (void)state;
    for (int s = 2; s < STRATEGIES; s++) {
        sf_arena arena = { 0 };
        config c = { .strategy = strategies[s], .ranks = 1 + s % 2, .model = 1, .micro_steps = 2, .offload = true, .clip = true, .bf16 = s % 2 == 0 };
        result gpu, host;
        train_both(&c, &arena, &gpu, &host);
        losses_are_the_host_s(&c, &gpu, &host);
        assert_true(fake_cuda_calls("cudaLaunchHostFunc") > 0);
        sf_arena_free(&arena);
    }
}

/* Two ranks on one GPU: NCCL's way is refused and says what to do; the staged way trains as two GPUs do. */
static void ranks_that_share_a_gpu_communicate_through_the_host(void **state)
{
    (void)state;
    for (int s = 2; s < STRATEGIES; s++) {
        sf_arena arena = { 0 };
        config c = { .strategy = strategies[s], .ranks = 2, .model = s % 2, .micro_steps = 1, .staged = true, .shared_gpu = true };
        result gpu, host;
        train_both(&c, &arena, &gpu, &host);
        losses_are_the_host_s(&c, &gpu, &host);
        assert_int_equal(fake_cuda_calls("ncclCommInitRank"), 0);
        sf_arena_free(&arena);
    }
    sf_arena arena = { 0 };
    config c = { .strategy = "ddp", .ranks = 2, .micro_steps = 1, .shared_gpu = true };
    result r;
    start(&c);
    sf_status st = train(&c, &sf_backend_cuda, &arena, &r);
    assert_int_equal(st.code, SF_EDEVICE);
    assert_non_null(strstr(st.msg, "--communicator staged"));
    sf_arena_free(&arena);
}

static void the_outcome_has_times_and_the_driver_s_memory(void **state)
{
    sf_arena arena = { 0 };
    config c = { .strategy = "ddp", .ranks = 2, .micro_steps = 1 };
    result gpu, host;
    (void)state;
    train_both(&c, &arena, &gpu, &host);
    assert_true(gpu.measured.memory.device_used_bytes > 0);
    assert_true(gpu.measured.time.op_s[SF_OP_LINEAR_FWD] > 0 && gpu.measured.time.op_s[SF_OP_ALL_REDUCE] > 0);
    for (size_t i = 0; i < gpu.measured.n_spans; i++)
        assert_true(gpu.measured.spans[i].start_s >= 0 && gpu.measured.spans[i].end_s >= gpu.measured.spans[i].start_s);
    sf_arena_free(&arena);
}

/* Whatever call fails, wherever: the run ends with a message that names it, and nothing is left behind. */
static void every_failing_call_ends_the_run_with_its_name(void **state)
{
    static const struct {
        const char *name;
        int code, ranks;
    } calls[] = {
        { "cudaMalloc", cudaErrorUnknown, 1 }, { "cudaMallocHost", cudaErrorUnknown, 1 }, { "cudaMemcpyAsync", cudaErrorUnknown, 1 }, { "cudaMemsetAsync", cudaErrorUnknown, 1 },
        { "cudaEventRecord", cudaErrorUnknown, 1 }, { "cudaStreamWaitEvent", cudaErrorUnknown, 1 }, { "cudaStreamQuery", cudaErrorUnknown, 1 }, { "cudaDeviceSynchronize", cudaErrorUnknown, 1 },
        { "cudaEventElapsedTime", cudaErrorUnknown, 1 }, { "cudaEventCreateWithFlags", cudaErrorUnknown, 1 }, { "cudaLaunchHostFunc", cudaErrorUnknown, 1 }, { "cublasLtCreate", 3, 1 },
        { "cublasLtMatmul", 14, 1 }, { "ncclGetUniqueId", ncclSystemError, 1 }, { "ncclCommInitRank", ncclSystemError, 1 }, { "ncclAllReduce", ncclSystemError, 1 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        for (int nth = 1; nth <= 40; nth = nth * 3 + 1) {
            sf_arena arena = { 0 };
            config c = { .strategy = "ddp", .ranks = calls[i].ranks, .micro_steps = 1, .offload = true };
            result r;
            start(&c);
            fake_cuda_fail(calls[i].name, nth, calls[i].code);
            sf_status st = train(&c, &sf_backend_cuda, &arena, &r);
            bool reached = fake_cuda_calls(calls[i].name) >= nth;
            if (reached && st.code == SF_OK)
                fail_msg("%s: the %d-th call fails and the run does not", calls[i].name, nth);
            if (reached && strstr(st.msg, calls[i].name) == NULL)
                fail_msg("%s: the message of the %d-th call is '%s'", calls[i].name, nth, st.msg);
            if (fake_cuda_handles() != 0)
                fail_msg("%s: %d handles are left after its %d-th call failed", calls[i].name, fake_cuda_handles(), nth);
            sf_arena_free(&arena);
        }
}

typedef struct {
    sf_comm *comm;
    sf_profile_set set;
    char name[256];
    sf_status st;
} calibrated;

static void *calibrate_rank(void *arg)
{
    calibrated *c = arg;
    c->st = sf_calibrate_cuda(c->comm, SF_CALIBRATE_TOUCH, &c->set, c->name);
    return NULL;
}

static void calibration_measures_every_op_of_the_gpu(void **state)
{
    static calibrated ranks[2];
    sf_comm *comms[2];
    pthread_t threads[2];
    (void)state;
    sf_backend_cuda_use(fake_cuda_start(&(fake_cuda_setup){ .devices = 2, .cc_major = 9, .memory_bytes = 1 << 30 }));
    assert_int_equal(sf_comm_threads_open(2, 2, comms).code, SF_OK);
    for (int r = 0; r < 2; r++) {
        ranks[r] = (calibrated){ .comm = comms[r] };
        pthread_create(&threads[r], NULL, calibrate_rank, &ranks[r]);
    }
    for (int r = 0; r < 2; r++)
        pthread_join(threads[r], NULL);
    for (int r = 0; r < 2; r++) {
        if (ranks[r].st.code != SF_OK)
            fail_msg("%s", ranks[r].st.msg);
        sf_comm_close(comms[r]);
    }
    assert_string_equal(ranks[0].set.transport, "cuda");
    assert_string_equal(ranks[1].name, "Fake GPU 1");
    assert_true(ranks[0].set.issue_s > 0);
    for (int op = 0; op < SF_OP_COUNT; op++) {
        sf_op_kind kind = sf_op_kind_of((sf_op_type)op);
        if (kind != SF_KIND_FRAME && op != SF_OP_LOAD_BATCH && !sf_profile_has(&ranks[0].set, (sf_op_type)op))
            fail_msg("%s is not measured", sf_op_name((sf_op_type)op));
    }
    assert_int_equal(fake_cuda_handles(), 0);
}

static void note_op(void *ctx, const sf_selftest_result *r)
{
    int *n = ctx;
    (*n)++;
    if (r->st.code != SF_OK)
        fail_msg("%s %s %s: %s", r->op, r->shape, sf_dtype_name(r->dtype), r->st.msg);
    if (!(r->worst <= 1))
        fail_msg("%s %s %s: %.3f of what is allowed", r->op, r->shape, sf_dtype_name(r->dtype), r->worst);
}

static void the_selftest_of_the_gpu_s_ops_passes(void **state)
{
    sf_selftest_machine machine;
    int n = 0;
    (void)state;
    sf_backend_cuda_use(fake_cuda_start(&(fake_cuda_setup){ .devices = 1, .cc_major = 9, .memory_bytes = 1 << 30 }));
    assert_int_equal(sf_selftest_cuda_open(&machine).code, SF_OK);
    sf_status st = sf_selftest_ops(&machine, note_op, &n);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    sf_selftest_cuda_close(&machine);
    assert_int_equal(n, 54);
    assert_int_equal(fake_cuda_handles(), 0);
}

static void without_a_gpu_the_backend_says_why(void **state)
{
    const sf_backend_type *backend;
    (void)state;
    sf_backend_cuda_use(NULL);
    sf_status st = sf_cuda_backend(&backend);
    if (st.code == SF_OK)
        skip(); /* there is one */
    assert_true(strstr(st.msg, "no CUDA device") != NULL || strstr(st.msg, "driver") != NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_strategy_trains_as_on_the_host),
        cmocka_unit_test(an_offloaded_optimizer_runs_on_the_host_s_cores),
        cmocka_unit_test(ranks_that_share_a_gpu_communicate_through_the_host),
        cmocka_unit_test(the_outcome_has_times_and_the_driver_s_memory),
        cmocka_unit_test(every_failing_call_ends_the_run_with_its_name),
        cmocka_unit_test(calibration_measures_every_op_of_the_gpu),
        cmocka_unit_test(the_selftest_of_the_gpu_s_ops_passes),
        cmocka_unit_test(without_a_gpu_the_backend_says_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
