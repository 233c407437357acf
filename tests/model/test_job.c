#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "model/base/text.h"
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
          "train.micro_batch 6 on 4 devices does not divide train.global_batch 64; try 4 or 8" },
        { "{" TINY ", \"cluster\": {\"gpu\": \"H100\", \"gpus_per_node\": 6}, \"train\": {\"global_batch\": 64}}", "try a multiple of 6" },
        { "{" TINY ", \"cluster\": {\"gpu\": \"H100\", \"gpus_per_node\": 8}, \"strategy\": \"single\"}", "runs on one device" },
        { "{" TINY ", \"cluster\": {\"gpu\": \"H100\", \"nodes\": 2}, \"strategy\": \"dp\"}", "use ddp" },
        { "{" TINY ", \"cluster\": {\"gpu\": \"A100-80GB\"}, \"train\": {\"precision\": \"fp8-mixed\"}}", "needs fp8 units" },
        { "{" TINY ", \"cluster\": {\"gpu\": \"H100\", \"gpus_per_node\": 8}, \"strategy\": {\"name\": \"fsdp2\", \"reshard_after_forward\": 3}}",
          "does not divide the 8 ranks; try 2 or 4" },
        { "{" TINY ", \"framework\": \"deepspeed\", \"cluster\": {\"gpu\": \"H100\", \"gpus_per_node\": 8},"
          "\"strategy\": {\"name\": \"zero3\", \"zero_hpz_partition_size\": 5}}", "try 4 or 8" },
        { "{" TINY ", \"framework\": \"deepspeed\", \"cluster\": {\"gpu\": \"V100-32GB\"},"
          "\"strategy\": {\"name\": \"zero2\", \"sparse_attention\": {\"mode\": \"fixed\"}}, \"train\": {\"seq_len\": 24}}", "use 32" },
        { "{" TINY ", \"framework\": \"deepspeed\", \"cluster\": {\"gpu\": \"H100\"}, \"strategy\": {\"name\": \"zero2\", \"stage3_prefetch_bucket_size\": 1}}",
          "strategy.stage3_prefetch_bucket_size has no meaning for strategy zero2" },
        { "{" TINY ", \"framework\": \"deepspeed\", \"cluster\": {\"gpu\": \"H100\"}, \"strategy\": {\"name\": \"zero2\", \"reduce_bucket_sise\": 1}}",
          "did you mean 'strategy.reduce_bucket_size'" },
        { "{" TINY ", \"cluster\": {\"gpu\": \"H100\"}, \"train\": {\"micro_batch\": 1.5}}", "train.micro_batch is a whole number" },
        { "{" TINY ", \"cluster\": {\"gpu\": \"H100\", \"nodes\": 1000000, \"gpus_per_node\": 1024}, \"train\": {\"micro_batch\": 16000000,"
          "\"grad_accum\": 1000000}}", "beyond any batch" },
        { "{" TINY ", \"cluster\": {\"gpu\": \"H100\"}, \"train\": {\"micro_batch\": 0}}", "train.micro_batch 0 is outside 1" },
        { "{" TINY ", \"cluster\": {\"gpu\": \"H100\"}, \"train\": {\"seq_len\": 64}}", "more than the 32 learned positions" },
        { "{" TINY ", \"cluster\": {\"gpu\": \"H100\"}, \"strategy\": {\"name\": \"ddp\", \"overlap_comm\": true}}", "has no meaning for strategy ddp" },
        { "{" TINY ", \"framework\": \"pytorch\", \"cluster\": {\"gpu\": \"H100\"}, \"strategy\": \"zero2\"}", "is DeepSpeed's" },
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

/* "--set model.FIELD" opens the named model's configuration; a field that it does not have may be one
 * under another name. */
static void a_field_of_a_named_model_can_be_set(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_job job;
    const sf_override overrides[] = { { "model.n_layer", "3" }, { "train.seq_len", "128" } };
    sf_status st = read_text("{\"model\": \"gpt2\", \"cluster\": {\"gpu\": \"4090\"}}", overrides, 2, &arena, &job);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    assert_int_equal(job.model.n_layers, 3);
    assert_int_equal(job.model.hidden, 768);
    assert_string_equal(job.model.name, "gpt2 with changes");
    sf_job_close(&job);
    const sf_override wrong[] = { { "model.num_layers", "3" } };
    st = read_text("{\"model\": \"gpt2\", \"cluster\": {\"gpu\": \"4090\"}}", wrong, 1, &arena, &job);
    assert_int_equal(st.code, SF_EINVAL);
    assert_non_null(strstr(st.msg, "n_layer"));
    sf_arena_free(&arena);
}

/* As an option it reads like a number. */
static void a_gpu_may_be_named_by_its_number(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_job job;
    const sf_override overrides[] = { { "model", "gpt2" }, { "cluster.gpu", "4090" } };
    assert_int_equal(sf_job_read(NULL, overrides, 2, &arena, &job).code, SF_OK);
    assert_string_equal(job.cluster.gpu.name, "RTX 4090");
    sf_job_close(&job);
    sf_arena_free(&arena);
}

static void the_framework_is_inferred_where_it_is_not_stated(void **state)
{
    static const struct { const char *text; int framework; } cases[] = {
        { "{" TINY ", \"cluster\": {\"gpu\": \"host\"}, \"strategy\": \"zero2\"}", SF_FRAMEWORK_SHARDFIT },
        { "{" TINY ", \"cluster\": {\"gpu\": \"H100\"}, \"strategy\": \"zero2\"}", SF_FRAMEWORK_DEEPSPEED },
        { "{" TINY ", \"cluster\": {\"gpu\": \"H100\"}, \"strategy\": \"ddp\"}", SF_FRAMEWORK_PYTORCH },
        { "{" TINY ", \"cluster\": {\"gpu\": \"H100\"}, \"strategy\": \"zero2\", \"framework\": \"shardfit\"}", SF_FRAMEWORK_SHARDFIT },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sf_arena arena = { 0 };
        sf_job job;
        sf_status st = read_text(cases[i].text, NULL, 0, &arena, &job);
        if (st.code != SF_OK)
            fail_msg("%s: %s", cases[i].text, st.msg);
        assert_int_equal(job.framework, cases[i].framework);
        sf_job_close(&job);
        sf_arena_free(&arena);
    }
}

/* A default that depends on the strategy is in the printed job, so that it reads back to the same. */
static void fsdp_reduces_every_micro_step_unless_told(void **state)
{
    static const struct { const char *strategy; bool sync; } cases[] = { { "fsdp", true }, { "fsdp2", true }, { "ddp", false } };
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        sf_arena arena = { 0 };
        sf_job job, again;
        const sf_override o[] = { { "strategy.name", cases[i].strategy }, { "train.sync_each_micro_step", "false" } };
        sf_status st = read_text("{" TINY ", \"cluster\": {\"gpu\": \"H100\"}}", o, 1, &arena, &job);
        assert_int_equal(st.code, SF_OK);
        assert_int_equal(job.train.sync_each_micro_step, cases[i].sync);
        json_t *printed = sf_job_to_json(&job);
        st = sf_job_from_json(printed, "again", NULL, 0, &arena, &again);
        assert_int_equal(st.code, SF_OK);
        assert_int_equal(again.train.sync_each_micro_step, cases[i].sync);
        json_decref(printed);
        sf_job_close(&again);
        sf_job_close(&job);
        st = read_text("{" TINY ", \"cluster\": {\"gpu\": \"H100\"}}", o, 2, &arena, &job);
        assert_int_equal(st.code, SF_OK);
        assert_false(job.train.sync_each_micro_step);
        sf_job_close(&job);
        sf_arena_free(&arena);
    }
}

static void knobs_have_the_frameworks_defaults(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_job job;
    sf_status st = read_text("{" TINY ", \"framework\": \"deepspeed\", \"cluster\": {\"gpu\": \"H100\"}, \"strategy\": {\"name\": \"zero3\","
                             "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/mnt\"}, \"sparse_attention\": {\"mode\": \"variable\","
                             "\"local_window_blocks\": [4, 2, 1], \"global_block_indices\": 3}}}", NULL, 0, &arena, &job);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    assert_true(job.strategy.reduce_bucket_size == 5e8 && job.strategy.stage3_prefetch_bucket_size == 5e7);
    assert_true(job.strategy.stage3_param_persistence_threshold == 1e5 && job.strategy.sub_group_size == 1e9);
    assert_int_equal(job.strategy.overlap_comm, SF_AUTO);
    assert_int_equal(job.strategy.offload_optimizer_device, SF_DEVICE_NVME);
    assert_string_equal(job.strategy.offload_optimizer_nvme_path, "/mnt");
    assert_int_equal(job.strategy.aio_queue_depth, 8);
    assert_int_equal(job.strategy.sparse.local_window_blocks.n, 3);
    assert_int_equal(job.strategy.sparse.local_window_blocks.v[1], 2);
    assert_int_equal(job.strategy.sparse.global_block_indices.n, 1);
    assert_int_equal(job.strategy.sparse.global_block_end_indices.n, 0);
    bool host_memory_assumed = false; /* offloading without host_memory_gib */
    for (size_t i = 0; i < job.n_assumed; i++)
        host_memory_assumed = host_memory_assumed || strcmp(job.assumed[i], "cluster.host_memory_gib") == 0;
    assert_true(host_memory_assumed);
    sf_job_close(&job);
    sf_arena_free(&arena);
}

/* PyTorch keeps f32 parameters and casts; DeepSpeed holds 16-bit ones beside an f32 master. */
static void precisions_are_what_their_framework_makes_of_them(void **state)
{
    (void)state;
    sf_precision_types t = sf_precision_describe(SF_FRAMEWORK_PYTORCH, SF_PRECISION_BF16_MIXED);
    assert_true(t.compute == SF_BF16 && t.param == SF_F32 && !t.has_master);
    t = sf_precision_describe(SF_FRAMEWORK_DEEPSPEED, SF_PRECISION_FP16_MIXED);
    assert_true(t.compute == SF_F16 && t.param == SF_F16 && t.has_master && t.loss_scaling);
    t = sf_precision_describe(SF_FRAMEWORK_DEEPSPEED, SF_PRECISION_BF16_PURE);
    assert_true(t.param == SF_BF16 && !t.has_master);
    t = sf_precision_describe(SF_FRAMEWORK_SHARDFIT, SF_PRECISION_TF32);
    assert_true(t.compute == SF_F32 && t.param == SF_F32);
}

/* Jobs written from what users reported: all are read as they are. */
static void reported_jobs_are_read(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    char *text = NULL, *line_state = NULL;
    size_t n = 0;
    assert_int_equal(sf_file_read(SF_TEST_DATA "/jobs/dev-jobs.jsonl", 1 << 22, &arena, &text, NULL).code, SF_OK);
    for (char *line = strtok_r(text, "\n", &line_state); line != NULL; line = strtok_r(NULL, "\n", &line_state), n++) {
        json_t *row = NULL;
        sf_job job;
        assert_int_equal(sf_json_parse(line, strlen(line), "dev-jobs", &row).code, SF_OK);
        sf_status st = sf_job_from_json(json_object_get(row, "job"), json_string_value(json_object_get(row, "id")), NULL, 0, &arena, &job);
        if (st.code != SF_OK)
            fail_msg("%s", st.msg);
        if (job.model.n_warnings > 0)
            fail_msg("%s", job.model.warnings[0]);
        sf_job_close(&job);
        json_decref(row);
    }
    assert_int_equal(n, 22);
    sf_arena_free(&arena);
}

/* Damaged jobs, whole and with overrides, are read or refused, never worse. */
static void damaged_jobs_are_read_or_refused(void **state)
{
    (void)state;
    static const char good[] = "{" TINY ", \"framework\": \"deepspeed\", \"cluster\": {\"gpu\": \"A100 SXM4 80GB\", \"gpus_per_node\": 8, \"nodes\": 2,"
                               "\"inter\": {\"nics\": 8, \"gbit_per_nic\": 200}}, \"strategy\": {\"name\": \"zero3\", \"overlap_comm\": null,"
                               "\"offload_optimizer\": {\"device\": \"cpu\"}, \"sparse_attention\": {\"local_window_blocks\": [4, 2]}},"
                               "\"train\": {\"micro_batch\": 2, \"global_batch\": 64, \"seq_len\": 16}}";
    uint32_t seed = 2024;
    for (int round = 0; round < 1500; round++) {
        sf_arena arena = { 0 };
        sf_job job;
        char text[sizeof good];
        size_t n = sizeof good - 1;
        memcpy(text, good, sizeof good);
        for (int edit = 0; edit < 1 + round % 4; edit++) {
            seed = seed * 1664525u + 1013904223u;
            size_t at = (seed >> 8) % n;
            if (seed % 7 == 0)
                n = at + 1;
            else
                text[at] = "0123456789-\"{}[],:eE.ntx"[(seed >> 3) % 24];
        }
        seed = seed * 1664525u + 1013904223u;
        const sf_field *f = &sf_job_fields[(seed >> 8) % sf_job_field_count];
        const char *const values[] = { "null", "-1", "1e300", "[]", "{}", "\"\"", "true", "99999999999999999999", "0", "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]" };
        const sf_override override = { f->path, values[(seed >> 20) % 10] };
        json_t *json = NULL;
        if (sf_json_parse(text, n, "fuzz", &json).code == SF_OK && sf_job_from_json(json, "fuzz", &override, round % 2, &arena, &job).code == SF_OK) {
            json_decref(sf_job_to_json(&job));
            sf_job_close(&job);
        }
        json_decref(json);
        sf_arena_free(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_design_s_example_is_read),
        cmocka_unit_test(overrides_win_over_the_file),
        cmocka_unit_test(grad_accum_follows_from_the_global_batch),
        cmocka_unit_test(impossible_jobs_name_the_field_and_the_remedy),
        cmocka_unit_test(a_job_prints_and_reads_back_to_itself),
        cmocka_unit_test(a_field_of_a_named_model_can_be_set),
        cmocka_unit_test(a_gpu_may_be_named_by_its_number),
        cmocka_unit_test(the_framework_is_inferred_where_it_is_not_stated),
        cmocka_unit_test(fsdp_reduces_every_micro_step_unless_told),
        cmocka_unit_test(knobs_have_the_frameworks_defaults),
        cmocka_unit_test(precisions_are_what_their_framework_makes_of_them),
        cmocka_unit_test(reported_jobs_are_read),
        cmocka_unit_test(damaged_jobs_are_read_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
