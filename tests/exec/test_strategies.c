/* Every strategy of our executor really trained, against the accountant and against each other:
 * world sizes 1 to 4, accumulation, recomputation, offload, clipping, bf16, sizes that nothing divides.
 * Ranks are threads; freed memory is filled with NaN, so a lifetime error turns the loss into no number.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "exec/run.h"
#include "model/cost/accountant.h"
#include "model/strategy/lower.h"

static const char *const models[] = {
    "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 24, \"n_head\": 4, \"n_inner\": 37, \"vocab_size\": 53, \"n_positions\": 16}",
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 3, \"hidden_size\": 24, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"intermediate_size\": 37, \"vocab_size\": 53, \"max_position_embeddings\": 16, \"tie_word_embeddings\": false}",
};

enum { MOST_STEPS = 10 };

typedef struct {
    const char *strategy, *sharding, *prefetch;
    int model, ranks, micro_batch, micro_steps, steps;
    bool recompute, sync, offload, clip, bf16;
} config;

typedef struct {
    sf_outcome measured, accounted;
    double losses[MOST_STEPS];
} result;

static const char *describe(const config *c)
{
    static char text[256];
    snprintf(text, sizeof text, "%s model %d ranks %d micro_batch %d micro_steps %d%s%s%s%s%s %s %s", c->strategy, c->model, c->ranks, c->micro_batch,
             c->micro_steps, c->recompute ? " recompute" : "", c->sync ? " sync" : "", c->offload ? " offload" : "", c->clip ? " clip" : "",
             c->bf16 ? " bf16" : "", c->sharding == NULL ? "" : c->sharding, c->prefetch == NULL ? "" : c->prefetch);
    return text;
}

static void must(sf_status st, const config *c)
{
    if (st.code != SF_OK)
        fail_msg("%s: %s", describe(c), st.msg);
}

static void read_job(const config *c, sf_arena *arena, sf_job *job)
{
    sf_override o[24];
    size_t n = 0;
#define SET(path, ...) o[n++] = (sf_override){ path, sf_arena_printf(arena, __VA_ARGS__) }
    SET("model", "%s", models[c->model]);
    SET("framework", "shardfit");
    SET("strategy.name", "%s", c->strategy);
    SET("cluster.gpus_per_node", "%d", c->ranks);
    SET("train.micro_batch", "%d", c->micro_batch > 0 ? c->micro_batch : 2);
    SET("train.seq_len", "7");
    SET("train.grad_accum", "%d", c->micro_steps > 0 ? c->micro_steps : 1);
    SET("train.steps", "%d", c->steps > 0 ? c->steps : 2);
    SET("train.recompute", c->recompute ? "full" : "none");
    SET("train.sync_each_micro_step", c->sync ? "true" : "false");
    SET("train.grad_clip", c->clip ? "0.5" : "0");
    SET("train.precision", c->bf16 ? "bf16-mixed" : "fp32");
    SET("train.data", "synthetic");
    SET("train.lr", "0.01");
    if (c->offload)
        SET("strategy.offload_optimizer.device", "cpu");
    if (c->sharding != NULL)
        SET("strategy.sharding", "%s", c->sharding);
    if (c->prefetch != NULL)
        SET("strategy.backward_prefetch", "%s", c->prefetch);
#undef SET
    must(sf_job_read(NULL, o, n, arena, job), c);
}

/* Trains and accounts; the outcome's texts live in the arena. */
static void train(const config *c, uint64_t device_bytes, sf_arena *arena, result *out)
{
    sf_job job;
    const sf_program *program;
    sf_run_record record;

    memset(out, 0, sizeof *out);
    read_job(c, arena, &job);
    must(sf_lower(&job, arena, &program), c);
    sf_account(program, device_bytes, arena, &out->accounted);
    sf_run_record_open(&record);
    sf_run_setup setup = { .job = &job, .program = program, .backend = &sf_backend_host, .device_memory_bytes = device_bytes,
                           .poison = SF_POISON_SPREAD };
    must(sf_run_threads(&setup, &record), c);
    sf_run_snapshot(&record, arena, &out->measured);
    for (int i = 0; i < record.n_losses && i < MOST_STEPS; i++)
        out->losses[i] = record.losses[i];
    sf_run_record_close(&record);
    sf_job_close(&job);
}

static const sf_outcome_comm *row(const sf_outcome *o, sf_op_type type, sf_group group)
{
    for (size_t i = 0; i < o->n_comm; i++)
        if (o->comm[i].collective == type && o->comm[i].group == group)
            return &o->comm[i];
    return NULL;
}

static void assert_exact(const config *c, const result *r)
{
    for (int k = 0; k < SF_CAT_COUNT; k++)
        if (r->measured.memory.peak_bytes[k] != r->accounted.memory.peak_bytes[k])
            fail_msg("%s: %s measured %llu B, accounted %llu B", describe(c), sf_category_name((sf_category)k),
                     (unsigned long long)r->measured.memory.peak_bytes[k], (unsigned long long)r->accounted.memory.peak_bytes[k]);
    if (r->measured.memory.peak_allocated_bytes != r->accounted.memory.peak_allocated_bytes)
        fail_msg("%s: peak measured %llu B, accounted %llu B", describe(c), (unsigned long long)r->measured.memory.peak_allocated_bytes,
                 (unsigned long long)r->accounted.memory.peak_allocated_bytes);
    if (r->measured.memory.host_bytes != r->accounted.memory.host_bytes)
        fail_msg("%s: host measured %llu B, accounted %llu B", describe(c), (unsigned long long)r->measured.memory.host_bytes,
                 (unsigned long long)r->accounted.memory.host_bytes);
    for (size_t i = 0; i < r->accounted.n_comm; i++) {
        const sf_outcome_comm *a = &r->accounted.comm[i], *m = row(&r->measured, a->collective, a->group);
        if (m == NULL || m->calls != a->calls || m->bytes_per_rank != a->bytes_per_rank)
            fail_msg("%s: %s measured %llu calls, %llu B; accounted %llu calls, %llu B", describe(c), sf_op_name(a->collective),
                     (unsigned long long)(m == NULL ? 0 : m->calls), (unsigned long long)(m == NULL ? 0 : m->bytes_per_rank),
                     (unsigned long long)a->calls, (unsigned long long)a->bytes_per_rank);
    }
    assert_int_equal(r->measured.n_comm, r->accounted.n_comm);
    for (int i = 0; i < r->measured.steps && i < MOST_STEPS; i++)
        if (!isfinite(r->losses[i]))
            fail_msg("%s: the loss of step %d is no number", describe(c), i + 1);
}

static const char *const strategies[] = { "single", "dp", "ddp", "fsdp", "zero1", "zero2", "zero3" };
enum { STRATEGIES = sizeof strategies / sizeof strategies[0] };

static void measured_bytes_and_calls_equal_the_accounted_ones(void **state)
{
    (void)state;
    int checked = 0;
    for (int s = 0; s < STRATEGIES; s++)
        for (int ranks = 1; ranks <= (s == 0 ? 1 : 4); ranks++)
            for (int bits = 0; bits < 64; bits += 1 + (s + ranks) % 2 * 2) {
                config c = { .strategy = strategies[s], .ranks = ranks, .model = bits & 1, .micro_steps = 1 + (bits >> 1 & 1) * 2,
                             .recompute = bits >> 2 & 1, .offload = bits >> 3 & 1, .sync = bits >> 4 & 1, .bf16 = bits >> 5 & 1,
                             .clip = (bits ^ bits >> 3) & 1, .sharding = s == 3 && bits % 3 == 1 ? "shard_grad_op" : NULL,
                             .prefetch = s == 3 && bits % 5 == 2 ? "none" : NULL };
                sf_arena arena = { 0 };
                result r;
                train(&c, 0, &arena, &r);
                assert_exact(&c, &r);
                sf_arena_free(&arena);
                checked++;
            }
    assert_true(checked > 700);
}

/* 12 sequences a step however they are shared: ranks x micro-batch x micro-steps. The mean over the
 * same tokens in another order of f32 sums: relative difference up to a few eps * sqrt(terms), which
 * ten AdamW steps carry on; 1e-5 is the bar. */
static void equal_global_batches_give_equal_losses_under_every_strategy(void **state)
{
    (void)state;
    for (int model = 0; model < 2; model++) {
        sf_arena arena = { 0 };
        config base = { .strategy = "single", .ranks = 1, .model = model, .micro_batch = 12, .steps = 10 };
        result want;
        train(&base, 0, &arena, &want);
        assert_true(want.losses[9] < want.losses[0] - 0.3); /* it learns */
        for (int s = 0; s < STRATEGIES; s++)
            for (int ranks = 1; ranks <= (s == 0 ? 1 : 4); ranks++)
                for (int micro_steps = 1; micro_steps <= 3; micro_steps += 2) {
                    config c = { .strategy = strategies[s], .ranks = ranks, .model = model, .micro_steps = micro_steps,
                                 .micro_batch = 12 / ranks / micro_steps, .steps = 10, .recompute = ranks == 2, .offload = ranks == 3,
                                 .sync = ranks == 4 };
                    result r;
                    if (c.micro_batch * ranks * micro_steps != 12)
                        continue;
                    train(&c, 0, &arena, &r);
                    for (int i = 0; i < 10; i++)
                        if (!(fabs(r.losses[i] - want.losses[i]) <= 1e-5 * want.losses[i]))
                            fail_msg("%s: step %d has loss %.9f, one rank alone %.9f", describe(&c), i + 1, r.losses[i], want.losses[i]);
                }
        sf_arena_free(&arena);
    }
}

/* Sums are taken in rank order whatever the collective and its chunks, so strategies of one world size
 * agree to the last bit. */
static void strategies_of_one_world_size_agree_to_the_bit(void **state)
{
    (void)state;
    for (int model = 0; model < 2; model++)
        for (int ranks = 2; ranks <= 4; ranks++)
            for (int bf16 = 0; bf16 < 2; bf16++) {
                sf_arena arena = { 0 };
                config base = { .strategy = "ddp", .ranks = ranks, .model = model, .steps = 10, .bf16 = bf16 };
                result want;
                train(&base, 0, &arena, &want);
                for (int s = 3; s < STRATEGIES; s++)
                    for (int offload = 0; offload < 2; offload++) {
                        config c = base;
                        result r;
                        c.strategy = strategies[s];
                        c.offload = offload;
                        train(&c, 0, &arena, &r);
                        if (memcmp(r.losses, want.losses, sizeof r.losses) != 0)
                            fail_msg("%s: losses differ from ddp's: %.17g and %.17g at step 10", describe(&c), r.losses[9], want.losses[9]);
                    }
                sf_arena_free(&arena);
            }
}

static void a_rerun_gives_the_same_bits(void **state)
{
    (void)state;
    for (int s = 0; s < STRATEGIES; s++) {
        sf_arena arena = { 0 };
        config c = { .strategy = strategies[s], .ranks = s == 0 ? 1 : 3, .model = s % 2, .steps = 5, .micro_steps = 2, .clip = true };
        result a, b;
        train(&c, 0, &arena, &a);
        train(&c, 0, &arena, &b);
        assert_memory_equal(a.losses, b.losses, sizeof a.losses);
        sf_arena_free(&arena);
    }
}

/* The limit swept from nothing to just enough: the run fails at the allocation that was predicted. */
static void out_of_memory_happens_where_it_was_predicted(void **state)
{
    (void)state;
    for (int s = 0; s < STRATEGIES; s++)
        for (int recompute = 0; recompute < 2; recompute++) {
            sf_arena arena = { 0 };
            config c = { .strategy = strategies[s], .ranks = s == 0 ? 1 : 2, .model = s % 2, .steps = 1, .recompute = recompute };
            result r;
            train(&c, 0, &arena, &r);
            uint64_t peak = r.accounted.memory.peak_allocated_bytes;
            train(&c, peak, &arena, &r);
            assert_true(r.measured.fits && r.accounted.fits);
            for (int k = 1; k <= 8; k++) {
                uint64_t limit = peak - 1 - (peak / 9) * (uint64_t)(k - 1);
                train(&c, limit, &arena, &r);
                assert_false(r.accounted.fits);
                assert_false(r.measured.fits);
                if (r.measured.memory.oom_request_bytes != r.accounted.memory.oom_request_bytes ||
                    r.measured.memory.oom_seq != r.accounted.memory.oom_seq ||
                    r.measured.memory.oom_resident_bytes != r.accounted.memory.oom_resident_bytes ||
                    strcmp(r.measured.memory.oom_op, r.accounted.memory.oom_op) != 0)
                    fail_msg("%s, limit %llu B: predicted %s of %llu B at op %llu, measured %s of %llu B at op %llu", describe(&c),
                             (unsigned long long)limit, r.accounted.memory.oom_op, (unsigned long long)r.accounted.memory.oom_request_bytes,
                             (unsigned long long)r.accounted.memory.oom_seq, r.measured.memory.oom_op,
                             (unsigned long long)r.measured.memory.oom_request_bytes, (unsigned long long)r.measured.memory.oom_seq);
            }
            sf_arena_free(&arena);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measured_bytes_and_calls_equal_the_accounted_ones),
        cmocka_unit_test(equal_global_batches_give_equal_losses_under_every_strategy),
        cmocka_unit_test(strategies_of_one_world_size_agree_to_the_bit),
        cmocka_unit_test(a_rerun_gives_the_same_bits),
        cmocka_unit_test(out_of_memory_happens_where_it_was_predicted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
