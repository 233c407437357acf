/* `shardfit selftest`: every op on every device against the double-precision reference, every strategy's losses against the host's
 * single rank, planned bytes against those that were allocated. */
#include <argp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/cuda/cuda_probe.h"
#include "exec/run.h"
#include "exec/selftest.h"
#include "model/cost/accountant.h"
#include "model/strategy/lower.h"
#include "reports/commands.h"
#include "reports/output.h"

enum { STEPS = 3, GLOBAL_BATCH = 4 };

typedef struct {
    bool json, verbose;
} arguments;

static const struct argp_option options[] = {
    { "json", 'j', 0, 0, "print every check as JSON", 0 },
    { "verbose", 'v', 0, 0, "print every check, not only a line of each kind", 0 },
    { 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    arguments *a = state->input;
    switch (key) {
    case 'j': a->json = true; return 0;
    case 'v': a->verbose = true; return 0;
    case ARGP_KEY_ARG: argp_error(state, "unexpected argument '%s'", arg); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* ---- what was found ---- */

typedef struct {
    const arguments *a;
    json_t *checks;
    const char *device, *kind;
    size_t done, right;  /* of this kind */
    double worst;
    bool all_right;
} record;

static void begin(record *r, const char *device, const char *kind)
{
    r->device = device;
    r->kind = kind;
    r->done = r->right = 0;
    r->worst = 0;
}

/* share: of what is allowed; above 1 is wrong. */
static void note(record *r, const char *what, double share, const char *why)
{
    bool good = why == NULL && share <= 1;
    json_array_append_new(r->checks, json_pack("{s:s, s:s, s:s, s:o, s:b, s:s?}", "device", r->device, "kind", r->kind, "check", what, "share_of_allowed",
                                               isfinite(share) ? json_real(share) : json_null(), "right", (int)good, "why", why));
    r->done++;
    r->right += good;
    r->worst = fmax(r->worst, share);
    r->all_right = r->all_right && good;
    if (!r->a->json && (r->a->verbose || !good))
        printf("  %-6s %-44s %8.3f of what is allowed%s%s\n", good ? "ok" : "WRONG", what, share, why == NULL ? "" : ": ", why == NULL ? "" : why);
}

static void end(const record *r)
{
    if (!r->a->json)
        printf("%-6s %-28s %4zu of %4zu right, at most %.3f of what is allowed\n", r->device, r->kind, r->right, r->done, r->worst);
}

/* ---- ops ---- */

static void note_op(void *ctx, const sf_selftest_result *result)
{
    char what[128];
    snprintf(what, sizeof what, "%s %s%s%s", result->op, sf_dtype_name(result->dtype), result->shape[0] == '\0' ? "" : ", ", result->shape);
    note(ctx, what, result->st.code == SF_OK ? result->worst : INFINITY, result->st.code == SF_OK ? NULL : result->st.msg);
}

/* ---- strategies ---- */

static const char *const models[] = {
    "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 128, \"n_head\": 2, \"n_inner\": 192, \"vocab_size\": 256, \"n_positions\": 64}",
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 128, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
    "\"intermediate_size\": 192, \"vocab_size\": 256, \"max_position_embeddings\": 64, \"tie_word_embeddings\": false}",
};

typedef struct {
    const sf_backend_type *backend;
    const char *strategy;
    int model, ranks;
    bool bf16, offload, staged;
} run;

typedef struct {
    double losses[STEPS];
    uint64_t planned, allocated;
} result;

static sf_status train(const run *c, result *out)
{
    sf_arena arena = { 0 };
    sf_job job;
    const sf_program *program;
    sf_run_record kept;
    sf_outcome accounted, measured;
    const sf_override o[] = {
        { "model", models[c->model] }, { "framework", "shardfit" }, { "strategy.name", c->strategy }, { "train.seq_len", "64" }, { "train.data", "synthetic" },
        { "cluster.gpus_per_node", sf_arena_printf(&arena, "%d", c->ranks) }, { "train.micro_batch", sf_arena_printf(&arena, "%d", GLOBAL_BATCH / c->ranks) },
        { "train.steps", sf_arena_printf(&arena, "%d", STEPS) }, { "train.grad_clip", "1" }, { "train.lr", "0.003" },
        { "train.precision", c->bf16 ? "bf16-mixed" : "fp32" }, { "strategy.offload_optimizer.device", "cpu" },
    };
    sf_status st = sf_job_read(NULL, o, sizeof o / sizeof o[0] - (c->offload ? 0 : 1), &arena, &job);
    if (st.code != SF_OK) {
        sf_arena_free(&arena);
        return st;
    }
    memset(out, 0, sizeof *out);
    sf_run_record_open(&kept);
    SF_TRY_GOTO(st, sf_lower(&job, &arena, &program), done);
    sf_account(program, 0, &arena, &accounted);
    sf_run_setup setup = { .job = &job, .program = program, .backend = c->backend, .staged = c->staged };
    SF_TRY_GOTO(st, sf_run_threads(&setup, &kept), done);
    sf_run_snapshot(&kept, &arena, &measured);
    for (int i = 0; i < STEPS; i++)
        out->losses[i] = i < kept.n_losses ? kept.losses[i] : (double)NAN;
    out->planned = accounted.memory.peak_allocated_bytes;
    out->allocated = measured.memory.peak_allocated_bytes;
done:
    sf_run_record_close(&kept);
    sf_job_close(&job);
    sf_arena_free(&arena);
    return st;
}

/* The same rows and weights: f32 sums in other orders differ by some 1e-7 of the loss and three steps carry that on; 16-bit products by
 * their rounding, 2^-9 of each of many terms. */
static double allowed(bool bf16) { return bf16 ? 4e-3 : 1e-5; }

static void note_run(record *r, const run *c, const double *want)
{
    char what[128];
    result got;
    double share = 0;
    snprintf(what, sizeof what, "%s, %d rank%s, %s, %s%s%s", c->strategy, c->ranks, c->ranks > 1 ? "s" : "", c->model == 0 ? "gpt2" : "llama", c->bf16 ? "bf16" : "f32",
             c->offload ? ", offload" : "", c->staged ? ", staged" : "");
    sf_status st = train(c, &got);
    for (int i = 0; i < STEPS && st.code == SF_OK; i++)
        share = isnan(got.losses[i]) ? INFINITY : fmax(share, fabs(got.losses[i] - want[i]) / want[i] / allowed(c->bf16));
    if (st.code == SF_OK && got.planned != got.allocated)
        st = SF_FAIL(SF_EINVAL, "%llu bytes were planned and %llu allocated", (unsigned long long)got.planned, (unsigned long long)got.allocated);
    note(r, what, st.code == SF_OK ? share : INFINITY, st.code == SF_OK ? NULL : st.msg);
}

static sf_status strategies(record *r, const sf_backend_type *backend, int devices)
{
    static const char *const names[] = { "single", "dp", "ddp", "fsdp", "zero1", "zero2", "zero3" };
    bool gpu = backend != &sf_backend_host;
    for (int model = 0; model < 2; model++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            result want;
            SF_TRY(train(&(run){ .backend = &sf_backend_host, .strategy = "single", .model = model, .ranks = 1, .bf16 = bf16 }, &want));
            for (size_t s = 0; s < sizeof names / sizeof names[0]; s++)
                for (int ranks = 1; ranks <= (s == 0 ? 1 : 2); ranks++)
                    for (int offload = 0; offload < (s >= 2 ? 2 : 1); offload++)
                        note_run(r, &(run){ .backend = backend, .strategy = names[s], .model = model, .ranks = ranks, .bf16 = bf16, .offload = offload,
                                            .staged = gpu && ranks > devices }, want.losses);
        }
    return SF_SUCCESS;
}

/* ---- */

static sf_status test_device(record *r, const sf_selftest_machine *machine, const sf_backend_type *backend, int devices)
{
    begin(r, machine->name, "ops against the reference");
    SF_TRY(sf_selftest_ops(machine, note_op, r));
    end(r);
    begin(r, machine->name, "strategies, losses and bytes");
    SF_TRY(strategies(r, backend, devices));
    end(r);
    return SF_SUCCESS;
}

static sf_status test_all(record *r)
{
    sf_selftest_machine machine;
    const sf_backend_type *cuda;
    int devices = 0;

    SF_TRY(sf_selftest_host_open(&machine));
    sf_status st = test_device(r, &machine, &sf_backend_host, 1);
    sf_selftest_host_close(&machine);
    SF_TRY(st);
    st = sf_cuda_backend(&cuda);
    if (st.code != SF_OK) {
        if (!r->a->json)
            printf("cuda   not tested: %s\n", st.msg);
        return SF_SUCCESS;
    }
    SF_TRY(sf_cuda_probe(0, NULL, &devices));
    SF_TRY(sf_selftest_cuda_open(&machine));
    st = test_device(r, &machine, cuda, devices);
    sf_selftest_cuda_close(&machine);
    return st;
}

int sf_cmd_selftest(int argc, char **argv)
{
    static const struct argp parser = { options, parse, NULL,
                                        "Runs every op on every device that is here against a double-precision reference, and trains every strategy against one rank of "
                                        "the host. Exit code 1: something is wrong.", NULL, NULL, NULL };
    arguments a = { 0 };
    record r = { .a = &a, .checks = json_array(), .all_right = true };

    argp_parse(&parser, argc, argv, 0, 0, &a);
    sf_status st = test_all(&r);
    if (st.code == SF_OK && a.json) {
        json_t *out = json_pack("{s:b, s:O}", "right", (int)r.all_right, "checks", r.checks);
        sf_print_json(out);
        json_decref(out);
    } else if (st.code == SF_OK) {
        printf("%s\n", r.all_right ? "all right" : "something is WRONG");
    }
    json_decref(r.checks);
    if (st.code != SF_OK)
        return sf_cmd_fail(st);
    return r.all_right ? SF_EXIT_DONE : SF_EXIT_NO;
}
