/* Closed forms against the accountant, to the byte, on 10,000 random jobs of every framework and strategy that has a
 * lowering: small models with sizes that nothing divides, random knobs, micro-batches and accumulations.
 * SF_FORM_SEED gives another draw. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/base/text.h"
#include "model/cost/accountant.h"
#include "model/cost/form.h"
#include "model/desc/job.h"
#include "model/program/build.h"
#include "model/strategy/list.h"
#include "model/strategy/lower.h"

static uint64_t seed = 20240607;

/* splitmix64 */
static uint64_t draw(uint64_t below)
{
    uint64_t z = (seed += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % below;
}

static const char *pick(const char *const *names, size_t n)
{
    return names[draw(n)];
}
#define PICK(...) pick((const char *const[]){ __VA_ARGS__ }, sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *))

typedef struct {
    sf_framework framework;
    const char *name;
} choice;

static const choice choices[] = {
#define AS_ROW(framework, name, function, summary) { SF_FRAMEWORK_##framework, name },
    SF_STRATEGIES(AS_ROW)
#undef AS_ROW
};
enum { CHOICES = sizeof choices / sizeof choices[0] };

typedef struct {
    sf_override o[32];
    size_t n;
    sf_arena *arena;
} wishes;

static void wish(wishes *w, const char *path, const char *value)
{
    w->o[w->n++] = (sf_override){ path, value };
}

static const char *model_text(sf_arena *arena)
{
    int heads = 1 << draw(3), hidden = heads * 2 * (int)(1 + draw(7)), kv = heads >> draw(2);
    int layers = 1 + (int)draw(5), ffn = 5 + (int)draw(90), vocab = 11 + (int)draw(120);
    if (draw(2) == 0)
        return sf_arena_printf(arena, "{\"model_type\": \"gpt2\", \"n_layer\": %d, \"n_embd\": %d, \"n_head\": %d, \"n_inner\": %d, \"vocab_size\": %d, "
                               "\"n_positions\": 32}", layers, hidden, heads, ffn, vocab);
    return sf_arena_printf(arena, "{\"model_type\": \"llama\", \"num_hidden_layers\": %d, \"hidden_size\": %d, \"num_attention_heads\": %d, "
                           "\"num_key_value_heads\": %d, \"intermediate_size\": %d, \"vocab_size\": %d, \"max_position_embeddings\": 32, "
                           "\"tie_word_embeddings\": %s}", layers, hidden, heads, kv < 1 ? 1 : kv, ffn, vocab, draw(2) ? "true" : "false");
}

/* Some knobs do not go together or are not modelled: then the lowering refuses and another job is drawn. */
static void random_job(const choice *c, wishes *w)
{
    bool single = strcmp(c->name, "single") == 0, dp = strcmp(c->name, "dp") == 0;

    wish(w, "model", model_text(w->arena));
    wish(w, "framework", sf_framework_name(c->framework));
    wish(w, "strategy.name", c->name);
    if (c->framework != SF_FRAMEWORK_SHARDFIT)
        wish(w, "cluster.gpu", "A100 SXM4 80GB");
    wish(w, "cluster.gpus_per_node", single ? "1" : PICK("1", "2", "3", "4", "8"));
    wish(w, "cluster.nodes", single || dp || c->framework == SF_FRAMEWORK_SHARDFIT ? "1" : PICK("1", "1", "2"));
    wish(w, "train.seq_len", PICK("3", "7", "16", "31"));
    wish(w, "train.grad_clip", PICK("0", "1.0"));
    wish(w, "train.precision", c->framework == SF_FRAMEWORK_SHARDFIT ? PICK("fp32", "bf16-mixed") : PICK("fp32", "bf16-mixed", "fp16-mixed", "bf16-pure"));
    wish(w, "train.recompute", PICK("none", "full"));
    wish(w, "train.sync_each_micro_step", PICK("false", "true"));
    wish(w, "train.attention", PICK("eager", "sdpa", "flash"));
    wish(w, "train.loss", PICK("full", "chunked", "fused"));
    if (draw(3) == 0)
        wish(w, "strategy.offload_optimizer.device", "cpu");
    if (strcmp(c->name, "fsdp") == 0) {
        wish(w, "strategy.sharding", PICK("full_shard", "shard_grad_op"));
        wish(w, "strategy.backward_prefetch", PICK("pre", "post", "none"));
    }
}

static sf_status lower_at(void *ctx, int64_t b, int64_t g, sf_arena *scratch, const sf_program **out)
{
    sf_job job = *(const sf_job *)ctx;
    job.train.micro_batch = b;
    job.train.grad_accum = g;
    job.train.global_batch = b * g * sf_job_world_size(&job);
    return sf_lower(&job, scratch, out);
}

static void assert_same(const sf_outcome *fast, const sf_outcome *exact)
{
    assert_true(fast->memory.peak_allocated_bytes == exact->memory.peak_allocated_bytes);
    assert_true(fast->memory.host_bytes == exact->memory.host_bytes);
    assert_memory_equal(fast->memory.peak_bytes, exact->memory.peak_bytes, sizeof fast->memory.peak_bytes);
    assert_memory_equal(fast->memory.at_peak, exact->memory.at_peak, sizeof fast->memory.at_peak);
    assert_memory_equal(fast->memory.phase_peak_bytes, exact->memory.phase_peak_bytes, sizeof fast->memory.phase_peak_bytes);
    assert_int_equal(fast->memory.phase_of_peak, exact->memory.phase_of_peak);
    assert_string_equal(fast->memory.op_of_peak, exact->memory.op_of_peak);
    assert_true(fast->model_flop == exact->model_flop && fast->hardware_flop == exact->hardware_flop);
    assert_true(fast->tokens_per_step == exact->tokens_per_step);
    assert_int_equal(fast->n_comm, exact->n_comm);
    for (size_t i = 0; i < fast->n_comm; i++) {
        const sf_outcome_comm *row = sf_outcome_comm_row((sf_outcome *)(uintptr_t)exact, fast->comm[i].collective, fast->comm[i].group);
        assert_true(fast->comm[i].calls == row->calls && fast->comm[i].bytes_per_rank == row->bytes_per_rank);
    }
}

enum { MOST_B = 40, MOST_G = 9, POINTS = 10 };

/* Checks one structure at random points; how many. */
static int check_structure(const choice *c)
{
    sf_arena arena = { 0 };
    wishes w = { .arena = &arena };
    const sf_form *form;
    sf_job job;
    int checked = 0;

    random_job(c, &w);
    if (sf_job_read(NULL, w.o, w.n, &arena, &job).code != SF_OK) {
        sf_arena_free(&arena);
        return 0;
    }
    sf_form_source source = { .ctx = &job, .lower = lower_at };
    int64_t most_b = 1 + (int64_t)draw(MOST_B), most_g = 1 + (int64_t)draw(MOST_G);
    if (sf_form_make(&source, most_b, most_g, &arena, &form).code == SF_OK)
        for (; checked < POINTS; checked++) {
            int64_t b = 1 + (int64_t)draw((uint64_t)most_b), g = 1 + (int64_t)draw((uint64_t)most_g);
            const sf_program *program;
            sf_outcome fast, exact;
            sf_form_value value;
            assert_int_equal(lower_at(&job, b, g, &arena, &program).code, SF_OK);
            sf_account(program, 0, &arena, &exact);
            assert_true(sf_form_outcome(form, b, g, 0, &fast));
            assert_same(&fast, &exact);
            assert_true(sf_form_eval(form, b, g, &value));
            assert_true(value.peak_allocated_bytes == exact.memory.peak_allocated_bytes && value.model_flop == exact.model_flop);
        }
    sf_job_close(&job);
    sf_arena_free(&arena);
    return checked;
}

static void ten_thousand_random_jobs_equal_the_accountant(void **state)
{
    int checked = 0, of[CHOICES] = { 0 };
    (void)state;
    for (int i = 0; checked < 10000 && i < 20000; i++) {
        int n = check_structure(&choices[i % CHOICES]);
        of[i % CHOICES] += n;
        checked += n;
    }
    assert_true(checked >= 10000);
    for (int i = 0; i < CHOICES; i++)
        if (of[i] < 10000 / CHOICES / 4)
            fail_msg("only %d jobs of %s %s were drawn", of[i], sf_framework_name(choices[i].framework), choices[i].name);
}

static void outside_its_range_a_form_says_so(void **state)
{
    sf_arena arena = { 0 };
    wishes w = { .arena = &arena };
    const sf_form *form;
    sf_form_value v;
    sf_job job;
    (void)state;
    random_job(&choices[0], &w);
    while (sf_job_read(NULL, w.o, w.n, &arena, &job).code != SF_OK || lower_at(&job, 1, 1, &arena, &(const sf_program *){ 0 }).code != SF_OK) {
        w.n = 0;
        random_job(&choices[0], &w);
    }
    sf_form_source source = { .ctx = &job, .lower = lower_at };
    assert_int_equal(sf_form_make(&source, 5, 3, &arena, &form).code, SF_OK);
    assert_true(sf_form_eval(form, 5, 3, &v));
    assert_false(sf_form_eval(form, 6, 1, &v));
    assert_false(sf_form_eval(form, 1, 4, &v));
    assert_false(sf_form_eval(form, 0, 1, &v));
    sf_job_close(&job);
    sf_arena_free(&arena);
}

/* ---- pieces: a program whose buffer is the next multiple of 8 rows, one of rows, and a gathered one of 100 ---- */

static sf_status rounded(void *ctx, int64_t b, int64_t g, sf_arena *arena, const sf_program **out)
{
    sf_program *p = SF_NEW(arena, sf_program);
    sf_builder build;
    (void)ctx;
    *p = (sf_program){ .strategy = "test", .world_size = 1, .ranks_per_node = 1, .n_layers = 1, .n_micro = (int)g, .n_classes = 1,
                       .tokens_per_step = (uint64_t)(b * g), .classes = SF_NEW_ARRAY(arena, sf_class, 1) };
    sf_build_start(&build, arena, &p->classes[0]);
    int even = sf_build_buffer(&build, (sf_buffer){ .name = "rounded", .dtype = SF_U8, .elems = (uint64_t)(b + 7) / 8 * 8, .count = 1, .flat = -1 });
    int exact = sf_build_buffer(&build, (sf_buffer){ .name = "rows", .dtype = SF_U8, .elems = (uint64_t)b, .count = 1, .flat = -1 });
    int fixed = sf_build_buffer(&build, (sf_buffer){ .name = "gathered", .dtype = SF_U8, .elems = 50, .count = 1, .flat = -1 });
    sf_build_repeat(&build, SF_LOOP_MICRO, 0, (int)g, 1);
    sf_build_alloc(&build, even, 0, 0);
    sf_build_alloc(&build, exact, 0, 0);
    sf_build_free(&build, exact, 0, 0);
    sf_build_alloc(&build, fixed, 0, 0);
    sf_build_free(&build, fixed, 0, 0);
    sf_build_free(&build, even, 0, 0);
    sf_build_end(&build);
    *out = p;
    return SF_SUCCESS;
}

/* peak(b) = roundup(b, 8) + max(b, 50) */
static void roundings_cut_the_form_into_pieces_and_stay_exact(void **state)
{
    sf_arena arena = { 0 };
    const sf_form *form;
    sf_form_source source = { .lower = rounded };
    sf_form_value v;
    (void)state;
    assert_int_equal(sf_form_make(&source, 200, 1, &arena, &form).code, SF_OK);
    for (int64_t b = 1; b <= 200; b++) {
        assert_true(sf_form_eval(form, b, 1, &v));
        assert_int_equal(v.peak_allocated_bytes, (b + 7) / 8 * 8 + (b > 50 ? b : 50));
        assert_string_equal(v.op_of_peak, b >= 50 ? "rows" : "gathered");
    }
    /* 128 + 127 = 255 is the largest up to 256: b = 128 gives 128 + 128 = 256, b = 129 gives 136 + 129 = 265 */
    assert_int_equal(sf_form_most_b(form, 1, 256), 128);
    assert_int_equal(sf_form_most_b(form, 1, 57), 0);
    assert_int_equal(sf_form_most_b(form, 1, 58), 8);
    sf_arena_free(&arena);
}

static void single_points_are_those_of_the_form(void **state)
{
    sf_arena arena = { 0 };
    const sf_form *form;
    sf_form *points = NULL;
    sf_form_source source = { .lower = rounded };
    sf_form_value a, b;
    (void)state;
    assert_int_equal(sf_form_make(&source, 100, 4, &arena, &form).code, SF_OK);
    for (int64_t at = 1; at <= 100; at += 33) {
        assert_int_equal(sf_form_add_point(&source, at, 3, &arena, &points).code, SF_OK);
        assert_true(sf_form_eval(form, at, 3, &a) && sf_form_eval(points, at, 3, &b));
        assert_true(a.peak_allocated_bytes == b.peak_allocated_bytes && a.tokens == b.tokens);
        assert_false(sf_form_eval(points, at, 2, &b));
    }
    sf_arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_thousand_random_jobs_equal_the_accountant),
        cmocka_unit_test(outside_its_range_a_form_says_so),
        cmocka_unit_test(roundings_cut_the_form_into_pieces_and_stay_exact),
        cmocka_unit_test(single_points_are_those_of_the_form),
    };
    if (getenv("SF_FORM_SEED") != NULL)
        seed = strtoull(getenv("SF_FORM_SEED"), NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
