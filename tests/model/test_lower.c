/* Every lowering of our executor, over world sizes, micro-steps, layers and options: verified for
 * lifetimes and ordering, planned without overlap in time, and accounted in closed form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/base/text.h"
#include "model/base/units.h"
#include "model/cost/accountant.h"
#include "model/cost/estimate.h"
#include "model/program/cursor.h"
#include "model/program/plan.h"
#include "model/program/print.h"
#include "model/program/verify.h"
#include "model/strategy/lower.h"

/* Sizes that nothing divides: hidden 24, ffn 37, vocabulary 53. */
static const char *const models[] = {
    "{\"model_type\": \"gpt2\", \"n_layer\": %d, \"n_embd\": 24, \"n_head\": 4, \"n_inner\": 37, \"vocab_size\": 53, \"n_positions\": 16}",
    "{\"model_type\": \"llama\", \"num_hidden_layers\": %d, \"hidden_size\": 24, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"intermediate_size\": 37, \"vocab_size\": 53, \"max_position_embeddings\": 16, \"tie_word_embeddings\": false}",
};
static const char *const strategies[] = { "single", "dp", "ddp", "fsdp", "zero1", "zero2", "zero3" };

typedef struct {
    const char *strategy;
    int model, layers, ranks, micro_steps, recompute, sync, offload, clip, mixed, shard_grad_op, no_prefetch;
} config;

static sf_status lower(const config *c, sf_arena *arena, sf_job *job, const sf_program **program)
{
    sf_override o[24];
    size_t n = 0;
#define SET(path, ...) o[n++] = (sf_override){ path, sf_arena_printf(arena, __VA_ARGS__) }
    char model[512];
    snprintf(model, sizeof model, c->model == 0 ? models[0] : models[1], c->layers);
    SET("model", "%s", model);
    SET("framework", "shardfit");
    SET("strategy.name", "%s", c->strategy);
    SET("cluster.gpus_per_node", "%d", c->ranks);
    SET("train.micro_batch", "2");
    SET("train.seq_len", "7");
    SET("train.grad_accum", "%d", c->micro_steps);
    SET("train.recompute", c->recompute ? "full" : "none");
    SET("train.sync_each_micro_step", c->sync ? "true" : "false");
    SET("train.grad_clip", c->clip ? "1.0" : "0");
    SET("train.precision", c->mixed ? "bf16-mixed" : "fp32");
    if (c->offload)
        SET("strategy.offload_optimizer.device", "cpu");
    if (c->shard_grad_op)
        SET("strategy.sharding", "shard_grad_op");
    if (c->no_prefetch)
        SET("strategy.backward_prefetch", "none");
#undef SET
    SF_TRY(sf_job_read(NULL, o, n, arena, job));
    sf_status st = sf_lower(job, arena, program);
    if (st.code != SF_OK)
        sf_job_close(job);
    return st;
}

/* Two live instances never share a byte: replays the plan. */
static void assert_plan_is_disjoint(const sf_class *cls, const sf_plan *plan)
{
    sf_arena arena = { 0 };
    bool *live = SF_NEW_ARRAY(&arena, bool, cls->n_instances);
    const sf_buffer **of = SF_NEW_ARRAY(&arena, const sf_buffer *, cls->n_instances);
    uint64_t *at = SF_NEW_ARRAY(&arena, uint64_t, cls->n_instances);
    size_t nth = 0;
    sf_cursor cursor;
    sf_issue is;

    for (size_t b = 0; b < cls->n_buffers; b++)
        for (int k = 0; k < cls->buffers[b].count; k++) {
            of[cls->buffers[b].first + k] = &cls->buffers[b];
            live[cls->buffers[b].first + k] = cls->buffers[b].persistent;
            at[cls->buffers[b].first + k] = plan->kept_offset[cls->buffers[b].first + k];
        }
    sf_cursor_start(&cursor, cls);
    while (sf_cursor_next(&cursor, &is)) {
        if (is.op->type == SF_OP_FREE)
            live[is.at[0].instance] = false;
        if (is.op->type != SF_OP_ALLOC)
            continue;
        int me = is.at[0].instance;
        uint64_t lo = at[me] = plan->alloc_offset[nth++], hi = lo + sf_buffer_bytes(of[me]);
        assert_true(hi <= plan->arena_bytes[of[me]->space]);
        for (int i = 0; i < cls->n_instances; i++) {
            if (!live[i] || of[i]->space != of[me]->space)
                continue;
            uint64_t a = at[i], b = a + sf_buffer_bytes(of[i]);
            if (a < hi && lo < b)
                fail_msg("%s and %s overlap at %llu", of[me]->name, of[i]->name, (unsigned long long)(a > lo ? a : lo));
        }
        live[me] = true;
    }
    sf_arena_free(&arena);
}

static void assert_estimate_equals(const sf_program *program, const sf_class *cls, const sf_outcome *exact)
{
    sf_outcome fast;
    sf_estimate_class(program, cls, 0, &fast);
    assert_true(fast.memory.peak_allocated_bytes == exact->memory.peak_allocated_bytes);
    assert_true(fast.memory.host_bytes == exact->memory.host_bytes);
    assert_memory_equal(fast.memory.peak_bytes, exact->memory.peak_bytes, sizeof fast.memory.peak_bytes);
    assert_memory_equal(fast.memory.at_peak, exact->memory.at_peak, sizeof fast.memory.at_peak);
    assert_memory_equal(fast.memory.phase_peak_bytes, exact->memory.phase_peak_bytes, sizeof fast.memory.phase_peak_bytes);
    assert_int_equal(fast.memory.phase_of_peak, exact->memory.phase_of_peak);
    assert_ptr_equal(fast.memory.op_of_peak, exact->memory.op_of_peak);
    assert_true(fast.model_flop == exact->model_flop && fast.hardware_flop == exact->hardware_flop);
    assert_int_equal(fast.n_comm, exact->n_comm);
    for (size_t i = 0; i < fast.n_comm; i++) {
        assert_int_equal(fast.comm[i].collective, exact->comm[i].collective);
        assert_true(fast.comm[i].calls == exact->comm[i].calls && fast.comm[i].bytes_per_rank == exact->comm[i].bytes_per_rank);
    }
}

static void check(const config *c)
{
    sf_arena arena = { 0 };
    sf_job job;
    const sf_program *program;
    sf_status st = lower(c, &arena, &job, &program);
    if (st.code == SF_OK)
        st = sf_program_verify(program);
    if (st.code != SF_OK)
        fail_msg("%s model %d layers %d ranks %d micro %d recompute %d sync %d offload %d clip %d mixed %d grad_op %d no_prefetch %d: %s", c->strategy,
                 c->model, c->layers, c->ranks, c->micro_steps, c->recompute, c->sync, c->offload, c->clip, c->mixed, c->shard_grad_op,
                 c->no_prefetch, st.msg);
    for (int k = 0; k < program->n_classes; k++) {
        sf_plan plan;
        sf_outcome outcome;
        assert_int_equal(sf_plan_make(&program->classes[k], &arena, &plan).code, SF_OK);
        assert_plan_is_disjoint(&program->classes[k], &plan);
        sf_account_class(program, &program->classes[k], 0, &arena, &outcome);
        assert_true(outcome.memory.peak_allocated_bytes == plan.live_peak_bytes[SF_SPACE_DEVICE]);
        assert_true(outcome.memory.host_bytes == plan.live_peak_bytes[SF_SPACE_HOST]);
        assert_estimate_equals(program, &program->classes[k], &outcome);
    }
    sf_job_close(&job);
    sf_arena_free(&arena);
}

static void every_lowering_is_ordered_planned_and_estimated_exactly(void **state)
{
    (void)state;
    int checked = 0;
    for (size_t s = 0; s < sizeof strategies / sizeof strategies[0]; s++)
        for (int ranks = 1; ranks <= (s == 0 ? 1 : 4); ranks++)
            for (int layers = 1; layers <= 5; layers += 2)
                for (int bits = 0; bits < 256; bits += 2 + (ranks + layers) % 3) {
                    config c = { .strategy = strategies[s], .model = bits & 1, .layers = layers, .ranks = ranks, .micro_steps = 1 + (bits >> 1) % 3,
                                 .recompute = bits >> 2 & 1, .sync = bits >> 3 & 1, .offload = bits >> 4 & 1, .clip = bits >> 5 & 1,
                                 .mixed = bits >> 6 & 1, .shard_grad_op = s == 3 && (bits >> 7 & 1), .no_prefetch = s == 3 && bits % 5 == 0 };
                    check(&c);
                    checked++;
                }
    assert_true(checked > 2500);
}

/* GPT-2, 2 layers, hidden 24, ffn 37, vocabulary 53, 16 positions, tied:
 *   embedding 53*24 + 16*24 = 1656
 *   block     norms 4*24 + qkv 24*72+72 + out 24*24+24 + mlp 24*37+37 + 37*24+24 = 4333
 *   final norm 48;  together 1656 + 2*4333 + 48 = 10370 parameters */
enum { BLOCK = 4333, PARAMS = 1656 + 2 * BLOCK + 48 };

static void account(const config *c, sf_outcome *out, sf_arena *arena)
{
    sf_job job;
    const sf_program *program;
    sf_status st = lower(c, arena, &job, &program);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    sf_account(program, 0, arena, out);
    sf_job_close(&job);
}

static const sf_outcome_comm *row(const sf_outcome *o, sf_op_type type)
{
    for (size_t i = 0; i < o->n_comm; i++)
        if (o->comm[i].collective == type)
            return &o->comm[i];
    fail_msg("no %s", sf_op_name(type));
    return NULL;
}

/* fp32 ddp on 3 ranks: parameters, gradients 4 B each, two moments; one bucket of 4 * PARAMS bytes
 * (all below the first bucket's 1 MiB). */
static void ddp_holds_a_replica_and_reduces_each_gradient_once(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_outcome o;
    account(&(config){ .strategy = "ddp", .layers = 2, .ranks = 3, .micro_steps = 1 }, &o, &arena);
    assert_int_equal(o.memory.peak_bytes[SF_CAT_PARAMETERS], 4 * PARAMS);
    assert_int_equal(o.memory.peak_bytes[SF_CAT_GRADIENTS], 4 * PARAMS);
    assert_int_equal(o.memory.peak_bytes[SF_CAT_OPTIMIZER], 8 * PARAMS);
    assert_int_equal(row(&o, SF_OP_ALL_REDUCE)->calls, 1);
    assert_int_equal(row(&o, SF_OP_ALL_REDUCE)->bytes_per_rank, 4 * PARAMS);
    sf_arena_free(&arena);
}

/* fp32 fsdp on 3 ranks. Units padded to a multiple of 3: root 1704 = 3*568, block 4333 -> 4335 = 3*1445.
 * Gathers: root once, each block forward and backward; all in elements of 4 bytes. */
static void fsdp_pads_each_unit_and_gathers_blocks_twice(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_outcome o;
    account(&(config){ .strategy = "fsdp", .layers = 2, .ranks = 3, .micro_steps = 1 }, &o, &arena);
    assert_int_equal(o.memory.peak_bytes[SF_CAT_PARAMETERS], 4 * (568 + 2 * 1445));
    assert_int_equal(o.memory.peak_bytes[SF_CAT_OPTIMIZER], 8 * (568 + 2 * 1445));
    assert_int_equal(row(&o, SF_OP_ALL_GATHER)->calls, 1 + 2 * 2);
    assert_int_equal(row(&o, SF_OP_ALL_GATHER)->bytes_per_rank, 4 * (1704 + 4 * 4335));
    assert_int_equal(row(&o, SF_OP_REDUCE_SCATTER)->calls, 3);
    assert_int_equal(row(&o, SF_OP_REDUCE_SCATTER)->bytes_per_rank, 4 * (1704 + 2 * 4335));
    account(&(config){ .strategy = "fsdp", .layers = 2, .ranks = 3, .micro_steps = 1, .shard_grad_op = 1 }, &o, &arena);
    assert_int_equal(row(&o, SF_OP_ALL_GATHER)->calls, 3);
    sf_arena_free(&arena);
}

/* Accumulating 3 micro-steps on 2 ranks: without synchronising one reduction per unit and step, with
 * it three; gathers are per micro-step either way. */
static void accumulation_reduces_once_or_every_time(void **state)
{
    (void)state;
    for (int sync = 0; sync < 2; sync++) {
        sf_arena arena = { 0 };
        sf_outcome o;
        account(&(config){ .strategy = "fsdp", .layers = 2, .ranks = 2, .micro_steps = 3, .sync = sync }, &o, &arena);
        assert_int_equal(row(&o, SF_OP_REDUCE_SCATTER)->calls, sync ? 9 : 3);
        assert_int_equal(row(&o, SF_OP_ALL_GATHER)->calls, 15);
        account(&(config){ .strategy = "ddp", .layers = 2, .ranks = 2, .micro_steps = 3, .sync = sync }, &o, &arena);
        assert_int_equal(row(&o, SF_OP_ALL_REDUCE)->calls, sync ? 3 : 1);
        sf_arena_free(&arena);
    }
}

/* bf16 zero1 on 2 ranks: 2 B parameters and gradients whole; master and moments 12 B of the half, and
 * the shard that is gathered. zero2 keeps half the gradients. */
static void zero_shards_what_its_stage_says(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_outcome one, two, three;
    config c = { .strategy = "zero1", .layers = 2, .ranks = 2, .micro_steps = 1, .mixed = 1 };
    uint64_t padded = 1704 + 2 * 4334; /* of a multiple of 2 */
    account(&c, &one, &arena);
    assert_int_equal(one.memory.peak_bytes[SF_CAT_OPTIMIZER], 8 * padded / 2);
    assert_int_equal(one.memory.peak_bytes[SF_CAT_MASTER], 4 * padded / 2);
    assert_int_equal(one.memory.peak_bytes[SF_CAT_PARAMETERS], 2 * padded + 2 * padded / 2);
    assert_int_equal(one.memory.peak_bytes[SF_CAT_GRADIENTS], 2 * padded + 2 * padded / 2);
    c.strategy = "zero2";
    account(&c, &two, &arena);
    /* the shard, and at most two blocks on their way (root and the last block) */
    assert_int_equal(two.memory.peak_bytes[SF_CAT_GRADIENTS], 2 * padded / 2 + 2 * (1704 + 2 * 4334));
    c.strategy = "zero3";
    account(&c, &three, &arena);
    assert_true(three.memory.peak_bytes[SF_CAT_PARAMETERS] < one.memory.peak_bytes[SF_CAT_PARAMETERS]);
    sf_arena_free(&arena);
}

/* Offload on 2 ranks moves master and moments (12 B of the half) to the host, beside the staging of
 * gradients (and, in bf16, of parameters). */
static void offload_moves_the_optimizer_to_the_host(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_outcome o;
    uint64_t half = (1704 + 2 * 4334) / 2;
    account(&(config){ .strategy = "zero2", .layers = 2, .ranks = 2, .micro_steps = 1, .offload = 1, .mixed = 1 }, &o, &arena);
    assert_int_equal(o.memory.peak_bytes[SF_CAT_OPTIMIZER], 0);
    assert_int_equal(o.memory.peak_bytes[SF_CAT_MASTER], 0);
    assert_int_equal(o.memory.host_bytes, half * (4 + 8 + 2 + 2));
    sf_arena_free(&arena);
}

/* dp on 4 devices: device 0 also holds the logits of the whole batch, 4 * (2*7) * 53 floats. */
static void dp_gathers_everything_on_device_0(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_job job;
    const sf_program *program;
    sf_outcome root, other;
    config c = { .strategy = "dp", .layers = 2, .ranks = 4, .micro_steps = 1 };
    assert_int_equal(lower(&c, &arena, &job, &program).code, SF_OK);
    assert_int_equal(program->n_classes, 2);
    assert_true(program->one_process);
    sf_account_class(program, &program->classes[0], 0, &arena, &root);
    sf_account_class(program, &program->classes[1], 0, &arena, &other);
    assert_int_equal(root.memory.peak_bytes[SF_CAT_LOGITS], 5 * 14 * 53 * 4);
    assert_int_equal(other.memory.peak_bytes[SF_CAT_LOGITS], 14 * 53 * 4);
    assert_int_equal(other.memory.peak_bytes[SF_CAT_OPTIMIZER], 0);
    assert_int_equal(row(&root, SF_OP_BROADCAST)->bytes_per_rank, 4 * PARAMS);
    assert_int_equal(row(&root, SF_OP_REDUCE)->bytes_per_rank, 4 * PARAMS);
    sf_job_close(&job);
    sf_arena_free(&arena);
}

/* One rank, batch 2 x 7 = 14 rows: products 2*14*(block matrices) forward and twice that backward. */
static void recomputation_adds_hardware_flops_only(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_outcome none, full;
    account(&(config){ .strategy = "single", .layers = 2, .ranks = 1, .micro_steps = 1 }, &none, &arena);
    account(&(config){ .strategy = "single", .layers = 2, .ranks = 1, .micro_steps = 1, .recompute = 1 }, &full, &arena);
    uint64_t block = 24 * 72 + 24 * 24 + 2 * 24 * 37, head = 24 * 53;
    uint64_t pairs = 2 * 4 * 6 * 7 * 8; /* batch * heads * head_dim * T(T+1): one causal product */
    assert_int_equal(none.model_flop, 3 * 2 * 14 * (2 * block + head) + 2 * (2 + 4) * pairs);
    assert_int_equal(none.hardware_flop, none.model_flop + 2 * pairs);
    assert_int_equal(full.model_flop, none.model_flop);
    /* the block again, but for its last product */
    assert_int_equal(full.hardware_flop - none.hardware_flop, 2 * (2 * 14 * (block - 24 * 37) + 2 * pairs));
    assert_true(full.memory.peak_bytes[SF_CAT_ACTIVATIONS] < none.memory.peak_bytes[SF_CAT_ACTIVATIONS]);
    sf_arena_free(&arena);
}

/* The first allocation above the capacity is named; one byte more and it fits. */
static void the_accountant_names_the_allocation_that_does_not_fit(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_job job;
    const sf_program *program;
    sf_outcome o;
    config c = { .strategy = "single", .layers = 2, .ranks = 1, .micro_steps = 1 };
    assert_int_equal(lower(&c, &arena, &job, &program).code, SF_OK);
    sf_account(program, 0, &arena, &o);
    uint64_t peak = o.memory.peak_allocated_bytes;
    const char *at = o.memory.op_of_peak;
    sf_account(program, peak, &arena, &o);
    assert_true(o.fits);
    sf_account(program, peak - 1, &arena, &o);
    assert_false(o.fits);
    assert_string_equal(o.memory.oom_op, at);
    assert_true(o.memory.oom_resident_bytes + o.memory.oom_request_bytes == peak);
    sf_account(program, 1000, &arena, &o);
    assert_string_equal(o.memory.oom_op, "params"); /* before the first op */
    sf_job_close(&job);
    sf_arena_free(&arena);
}

/* Golden texts: a change here is explained line by line in its commit. */
static void programs_print_as_kept(void **state)
{
    (void)state;
    static const char *const kept[] = { "ddp", "fsdp", "zero2", "dp" };
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        sf_arena arena = { 0 };
        sf_job job;
        const sf_program *program;
        sf_text text = { 0 };
        char *want = NULL;
        config c = { .strategy = kept[i], .layers = 2, .ranks = 2, .micro_steps = 2 };
        const char *path = sf_arena_printf(&arena, SF_TEST_DATA "/programs/%s.txt", kept[i]);
        assert_int_equal(lower(&c, &arena, &job, &program).code, SF_OK);
        sf_program_print(program, &text);
        if (getenv("SHARDFIT_WRITE_GOLDEN") != NULL)
            assert_int_equal(sf_file_write(path, sf_text_str(&text), text.len).code, SF_OK);
        assert_int_equal(sf_file_read(path, 1 << 20, &arena, &want, NULL).code, SF_OK);
        assert_string_equal(sf_text_str(&text), want);
        sf_text_free(&text);
        sf_job_close(&job);
        sf_arena_free(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_lowering_is_ordered_planned_and_estimated_exactly),
        cmocka_unit_test(ddp_holds_a_replica_and_reduces_each_gradient_once),
        cmocka_unit_test(fsdp_pads_each_unit_and_gathers_blocks_twice),
        cmocka_unit_test(accumulation_reduces_once_or_every_time),
        cmocka_unit_test(zero_shards_what_its_stage_says),
        cmocka_unit_test(offload_moves_the_optimizer_to_the_host),
        cmocka_unit_test(dp_gathers_everything_on_device_0),
        cmocka_unit_test(recomputation_adds_hardware_flops_only),
        cmocka_unit_test(the_accountant_names_the_allocation_that_does_not_fit),
        cmocka_unit_test(programs_print_as_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
