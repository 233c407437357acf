#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "model/desc/job.h"
#include "model/desc/job_fields.h"
#include "model/desc/json.h"

#define TINY "\"model\": {\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 24, \"n_head\": 4, \"vocab_size\": 53, \"n_positions\": 32}"

static sf_status read_text(const char *text, const sf_override *overrides, size_t n, sf_arena *arena, sf_job *job)
{
    json_t *json = NULL;
    sf_status st = sf_json_parse(text, strlen(text), "job.json", &json);
    if (st.code == SF_OK)
        st = sf_job_from_json(json, "job.json", overrides, n, arena, job);
    json_decref(json);
    return st;
}

static void the_design_s_example_is_read(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_job job;
    sf_status st = read_text("{\"model\": \"llama-2-7b\", \"framework\": \"pytorch\","
                             "\"cluster\": {\"gpu\": \"A100 SXM4 80GB\", \"gpus_per_node\": 8, \"nodes\": 2, \"inter\": {\"nics\": 8, \"gbit_per_nic\": 200},"
                             "\"host_memory_gib\": 1024}, \"strategy\": {\"name\": \"fsdp\", \"sharding\": \"full_shard\", \"backward_prefetch\": \"pre\","
                             "\"limit_all_gathers\": true, \"reduce_dtype\": \"fp32\"}, \"train\": {\"micro_batch\": 1, \"grad_accum\": 1, \"seq_len\": 4096,"
                             "\"precision\": \"bf16-mixed\", \"optimizer\": \"adamw\", \"recompute\": \"full\", \"attention\": \"flash\"}}",
                             NULL, 0, &arena, &job);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    assert_int_equal(sf_job_world_size(&job), 16);
    assert_int_equal(job.train.global_batch, 16);
    assert_int_equal(sf_job_tokens_per_step(&job), 16 * 4096);
    assert_int_equal(job.strategy.reduce_dtype, SF_DTYPE_CHOICE_FP32);
    assert_true(job.cluster.host_memory_gib == 1024);
    assert_int_equal(job.n_assumed, 0);
    sf_job_close(&job);
    sf_arena_free(&arena);
}

static void overrides_win_over_the_file(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_job job;
    const sf_override overrides[] = { { "train.micro_batch", "4" }, { "strategy.name", "zero2" }, { "cluster.gpus_per_node", "2" } };
    sf_status st = read_text("{" TINY ", \"framework\": \"shardfit\", \"strategy\": \"ddp\", \"train\": {\"micro_batch\": 1}}", overrides, 3, &arena, &job);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    assert_int_equal(job.train.micro_batch, 4);
    assert_int_equal(job.strategy.name, SF_STRATEGY_ZERO2);
    assert_true(job.cluster.gpu.is_host);
    assert_int_equal(job.train.seq_len, 32); /* the model's positions */
    assert_true(sf_job_stated(&job, "train.micro_batch"));
    assert_false(sf_job_stated(&job, "train.grad_accum"));
    sf_job_close(&job);
    sf_arena_free(&arena);
}

/* 64 sequences in all, 4 a device on 8 devices: 2 micro-steps. */
static void grad_accum_follows_from_the_global_batch(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_job job;
    sf_status st = read_text("{" TINY ", \"cluster\": {\"gpu\": \"H100\", \"gpus_per_node\": 8}, \"train\": {\"micro_batch\": 4, \"global_batch\": 64}}", NULL, 0,
                             &arena, &job);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    assert_int_equal(job.train.grad_accum, 2);
    sf_job_close(&job);
    sf_arena_free(&arena);
}

static void impossible_jobs_name_the_field_and_the_remedy(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } cases[] = {
        { "{\"model\": \"gpt2\",\n\"framework\": shardfit}", "job.json:2:" },
        { "{" TINY ", \"strategy\": \"zer03\", \"framework\": \"deepspeed\", \"cluster\": {\"gpu\": \"H100\"}}", "did you mean 'zero3'" },
        { "{" TINY ", \"cluster\": {\"gpu\": \"H100\"}, \"train\": {\"micro_bach\": 2}}", "did you mean 'train.micro_batch'" },
        { "{" TINY ", \"cluster\": {\"gpu\": \"H100\", \"gpus_per_node\": 4}, \"train\": {\"micro_batch\": 6, \"global_batch\": 64}}",
          "train.micro_batch 6 on 4 devices does not divide train.global_batch 64" },
        { "{" TINY ", \"cluster\": {\"gpu\": \"H100\"}, \"train\": {\"micro_batch\": 0}}", "train.micro_batch 0 is outside 1" },
        { "{" TINY ", \"cluster\": {\"gpu\": \"H100\"}, \"train\": {\"seq_len\": 64}}", "more than the 32 learned positions" },
        { "{" TINY ", \"cluster\": {\"gpu\": \"H100\"}, \"strategy\": {\"name\": \"ddp\", \"overlap_comm\": true}}", "has no meaning for strategy ddp" },
        { "{" TINY ", \"cluster\": {\"gpu\": \"H100\"}, \"strategy\": \"zero2\"}", "is DeepSpeed's" },
        { "{" TINY ", \"cluster\": {\"gpu\": \"H100\"}, \"train\": {\"precision\": \"bf17-mixed\"}}", "did you mean 'bf16-mixed'" },
        { "{" TINY ", \"cluster\": {\"gpu\": \"H1000\"}}", "'H100" },
        { "{" TINY "}", "'cluster.gpu' is missing" },
        { "{\"cluster\": {\"gpu\": \"H100\"}}", "'model' is missing" },
        { "{" TINY ", \"cluster\": {\"gpu\": \"H100\"}, \"train\": {\"tp\": 2}}", "not modelled yet" },
        { "{" TINY ", \"cluster\": {\"gpu\": \"host\"}, \"framework\": \"pytorch\"}", "set framework to shardfit" },
        { "{" TINY ", \"cluster\": {\"gpu\": \"H100\"}, \"train\": {\"micro_batch\": 2, \"micro_batch\": 3}}", "duplicate" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sf_arena arena = { 0 };
        sf_job job;
        sf_status st = read_text(cases[i].text, NULL, 0, &arena, &job);
        if (st.code == SF_OK || strstr(st.msg, cases[i].why) == NULL)
            fail_msg("expected '%s' in: %s", cases[i].why, st.code == SF_OK ? "(accepted)" : st.msg);
        sf_arena_free(&arena);
    }
}

/* Every field of the table is printed for some framework and strategy, and reads back to the same. */
static void a_job_prints_and_reads_back_to_itself(void **state)
{
    (void)state;
    bool seen[512] = { false };
    for (int framework = 0; framework < SF_FRAMEWORK_COUNT; framework++)
        for (int strategy = 0; strategy < SF_STRATEGY_COUNT; strategy++) {
            sf_arena arena = { 0 };
            sf_job first, second;
            const sf_override overrides[] = { { "framework", sf_framework_name(framework) }, { "strategy.name", sf_strategy_name(strategy) } };
            sf_status st = read_text("{" TINY ", \"cluster\": {\"gpu\": \"A100-80GB\"}, \"train\": {\"seq_len\": 16}}", overrides, 2, &arena, &first);
            if (st.code == SF_OK) {
                json_t *one = sf_job_to_json(&first);
                st = sf_job_from_json(one, "again", NULL, 0, &arena, &second);
                if (st.code != SF_OK)
                    fail_msg("%s", st.msg);
                json_t *two = sf_job_to_json(&second);
                assert_true(json_equal(one, two));
                unsigned bits = sf_job_field_bits(framework, strategy);
                for (size_t i = 0; i < sf_job_field_count; i++)
                    seen[i] = seen[i] || (sf_job_fields[i].has & bits) != 0;
                json_decref(one);
                json_decref(two);
                sf_job_close(&second);
                sf_job_close(&first);
            }
            sf_arena_free(&arena);
        }
    for (size_t i = 0; i < sf_job_field_count; i++)
        if (!seen[i])
            fail_msg("no framework and strategy has the field %s", sf_job_fields[i].path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_design_s_example_is_read),
        cmocka_unit_test(overrides_win_over_the_file),
        cmocka_unit_test(grad_accum_follows_from_the_global_batch),
        cmocka_unit_test(impossible_jobs_name_the_field_and_the_remedy),
        cmocka_unit_test(a_job_prints_and_reads_back_to_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
