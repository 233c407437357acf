/* Hjson, YAML and configuration files piece by piece, and every kept file damaged at random. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>

#include "model/base/text.h"
#include "model/desc/config_file.h"
#include "model/desc/hjson.h"
#include "model/desc/job.h"
#include "model/desc/json.h"
#include "model/desc/toml.h"
#include "model/desc/yaml_read.h"

static char *hjson(const char *text)
{
    sf_arena arena = { 0 };
    json_t *value = NULL;
    sf_status st = sf_hjson_parse(text, strlen(text), "f", &arena, &value);
    char *out = st.code == SF_OK ? json_dumps(value, JSON_COMPACT) : strdup(st.msg);
    json_decref(value);
    sf_arena_free(&arena);
    return out;
}

static char *yaml(const char *text)
{
    sf_arena arena = { 0 };
    json_t *value = NULL;
    sf_status st = sf_yaml_parse(text, strlen(text), "f", &arena, &value);
    char *out = st.code == SF_OK ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : strdup(st.msg);
    json_decref(value);
    sf_arena_free(&arena);
    return out;
}

typedef struct {
    const char *text, *want; /* the JSON, or the message's begin */
} sample;

static void check(const sample *samples, size_t n, char *(*read)(const char *))
{
    for (size_t i = 0; i < n; i++) {
        char *got = read(samples[i].text);
        if (strncmp(got, samples[i].want, strlen(samples[i].want)) != 0)
            fail_msg("%s\ngives %s\nnot   %s", samples[i].text, got, samples[i].want);
        free(got);
    }
}

static void hjson_is_read_as_deepspeed_reads_it(void **state)
{
    static const sample samples[] = {
        { "{\"a\": 1, // one\n \"b\": [1, 2,], # two\n /* three */ \"c\": true,}", "{\"a\":1,\"b\":[1,2],\"c\":true}" },
        { "{\"a\": {\"x\": \"cpu\",}\n \"b\": 1e3}", "{\"a\":{\"x\":\"cpu\"},\"b\":1000.0}" },
        { "\"a\": {\"b\": null}", "{\"a\":{\"b\":null}}" },
        { "a: one two, \n b: 5", "{\"a\":\"one two\",\"b\":5}" },
        { "{\"a\": $X,\n\"b\": 2}", "{\"a\":\"$X\",\"b\":2}" },
        { "{\"a\": 'x'}", "{\"a\":\"x\"}" },
        { "{\"a\": 1\n\"a\": 2}", "f:2:6: 'a' is given twice" },
        { "{\"a\": 1", "f:1:8: the text ends before '}'" },
        { "{\"a\" 1}", "f:1:6: ':' is expected" },
        { "{\"a\": \"x\n\"}", "f:1:9: this text is not closed" },
        { "{\"a\": 1} x", "f:1:10: text after the end" },
        { "  ", "f:1:3: the file is empty" },
        { "/* ", "f:1:1: this comment is never closed" },
    };
    (void)state;
    check(samples, sizeof samples / sizeof samples[0], hjson);
}

static void yaml_scalars_are_pyyaml_s(void **state)
{
    static const sample samples[] = {
        { "a: no\nb: 'no'\nc: 8\nd: 1.5\ne: ~\nf: [x, 2]\ng: {}\nh: On", "{\"a\":false,\"b\":\"no\",\"c\":8,\"d\":1.5,\"e\":null,\"f\":[\"x\",2],\"g\":{},\"h\":true}" },
        { "{ # c\n \"a\": True,\n }", "{\"a\":true}" },
        { "a: &x {b: 1}\nc: *x", "{\"a\":{\"b\":1},\"c\":{\"b\":1}}" },
        { "", "null" },
        { "a: 1\na: 2", "f:2:1: 'a' is given twice" },
        { "a: 1\n---\nb: 2", "f: several documents" },
        { "a: [1, 2", "f:2:1: did not find expected ',' or ']'" },
    };
    (void)state;
    check(samples, sizeof samples / sizeof samples[0], yaml);
}

static void toml_complaints_name_the_line(void **state)
{
    json_t *value = NULL;
    (void)state;
    sf_status st = sf_toml_parse("[a]\nx = = 1\n", 12, "f", &value);
    assert_int_equal(st.code, SF_EPARSE);
    assert_non_null(strstr(st.msg, "line 2"));
}

static const json_t *field(const sf_config *c, const char *section, const char *name)
{
    return json_object_get(json_object_get(c->job, section), name);
}

static void parse(const char *place, const char *text, sf_arena *arena, sf_config *out)
{
    sf_status st = sf_config_parse(text, strlen(text), place, arena, out);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
}

static void old_and_new_names_mean_the_same(void **state)
{
    sf_arena arena = { 0 };
    sf_config a, b;
    (void)state;
    parse("a.json", "{\"zero_optimization\": {\"stage\": 3, \"cpu_offload\": true, \"max_live_parameters\": 7}}", &arena, &a);
    parse("b.json", "{\"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\"}, \"stage3_max_live_parameters\": 7.0}}", &arena, &b);
    assert_true(json_equal(a.job, b.job));
    sf_config_close(&a);
    sf_config_close(&b);
    parse("a.yaml", "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: 2\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n", &arena, &a);
    parse("b.yaml", "distributed_type: FSDP\nfsdp_config:\n  sharding_strategy: SHARD_GRAD_OP\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n", &arena, &b);
    assert_true(json_equal(a.job, b.job));
    assert_string_equal(json_string_value(field(&a, "strategy", "sharding")), "shard_grad_op");
    sf_config_close(&a);
    sf_config_close(&b);
    parse("a.toml", "[training]\nbatch_size = 2\ntensor_parallel_degree = 2\n", &arena, &a);
    parse("b.toml", "[training]\nlocal_batch_size = 2\n[parallelism]\ntensor_parallel_degree = 2\n", &arena, &b);
    assert_true(json_equal(a.job, b.job));
    assert_int_equal(json_integer_value(field(&a, "train", "tp")), 2);
    sf_config_close(&a);
    sf_config_close(&b);
    sf_arena_free(&arena);
}

static void read_job(const char *text, sf_arena *arena, sf_job *job)
{
    json_t *json = NULL;
    sf_status st = sf_json_parse(text, strlen(text), "job.json", &json);
    if (st.code == SF_OK)
        st = sf_job_from_json(json, SF_TEST_DATA "/config/job.json", NULL, 0, arena, job);
    json_decref(json);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
}

/* "auto" follows from the model: h = 4096, so h^2 = 16777216, 0.9 h^2 = 15099494.4, 10 h = 40960. A file's name is beside
 * the job. What the job states wins, and then a knob of another stage leaves. */
static void a_job_takes_a_file(void **state)
{
    sf_arena arena = { 0 };
    sf_job job;
    (void)state;
    read_job("{\"model\": \"llama-2-7b\", \"cluster\": {\"gpu\": \"A100 SXM4 80GB\", \"gpus_per_node\": 8},"
             "\"strategy\": {\"deepspeed_config\": \"ds-config/llamafactory-ds-z3.json\"}, \"train\": {\"micro_batch\": 1}}", &arena, &job);
    assert_int_equal(job.framework, SF_FRAMEWORK_DEEPSPEED);
    assert_int_equal(job.strategy.name, SF_STRATEGY_ZERO3);
    assert_true(job.strategy.reduce_bucket_size == 16777216);
    assert_true(job.strategy.stage3_prefetch_bucket_size == 15099494);
    assert_true(job.strategy.stage3_param_persistence_threshold == 40960);
    sf_job_close(&job);
    read_job("{\"model\": \"gpt2\", \"deepspeed_config\": \"ds-config/qwen-zero3.json\", \"cluster\": {\"gpu\": \"A100 SXM4 80GB\", \"gpus_per_node\": 2},"
             "\"strategy\": \"zero2\", \"train\": {\"micro_batch\": 4}}", &arena, &job);
    assert_int_equal(job.strategy.name, SF_STRATEGY_ZERO2);
    assert_int_equal(job.train.micro_batch, 4);
    sf_job_close(&job);
    read_job("{\"model\": \"gpt2\", \"accelerate_config\": \"accelerate/llamafactory-fsdp-offload.yaml\", \"cluster\": {\"gpu\": \"A100 SXM4 80GB\"}}", &arena, &job);
    assert_int_equal(job.strategy.name, SF_STRATEGY_FSDP);
    assert_true(job.strategy.cpu_offload);
    assert_int_equal(sf_job_world_size(&job), 2);
    sf_job_close(&job);
    read_job("{\"torchtitan_config\": \"torchtitan/llama3-8b.toml\", \"cluster\": {\"gpu\": \"A100 SXM4 80GB\", \"gpus_per_node\": 8, \"nodes\": 8}}", &arena, &job);
    assert_int_equal(job.strategy.name, SF_STRATEGY_FSDP2);
    assert_int_equal(job.train.seq_len, 8192);
    assert_int_equal(job.strategy.reduce_dtype, SF_DTYPE_CHOICE_FP32);
    sf_job_close(&job);
    sf_arena_free(&arena);
}

/* A tiny LCG, so that damage is the same on every run. */
static unsigned next_random(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static void damage(char *text, size_t *len, unsigned *seed)
{
    static const char bytes[] = "{}[]\",:#/\n\t\\0x\xff='&*";
    if (*len == 0)
        return;
    size_t at = next_random(seed) % *len;
    switch (next_random(seed) % 3) {
    case 0: text[at] = bytes[next_random(seed) % (sizeof bytes - 1)]; break;
    case 1: *len = at; break;
    default: memmove(text + at, text + at + 1, *len - at - 1); *len -= 1; break;
    }
}

/* Read or refused with a message; never a crash, a leak or a hang (the sanitizers look). */
static void damaged_files_are_read_or_refused(void **state)
{
    static const char *const folders[] = { "ds-config", "accelerate", "torchtitan" };
    unsigned seed = 1;
    (void)state;
    for (size_t f = 0; f < 3; f++) {
        char folder[512];
        snprintf(folder, sizeof folder, "%s/config/%s", SF_TEST_DATA, folders[f]);
        DIR *dir = opendir(folder);
        assert_non_null(dir);
        for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
            sf_arena arena = { 0 };
            char *text;
            size_t whole;
            const char *path = sf_arena_printf(&arena, "%s/%s", folder, entry->d_name);
            if (strstr(path, ".expected") == NULL && strstr(path, ".md") == NULL && sf_file_read(path, 1 << 20, &arena, &text, &whole).code == SF_OK)
                for (int i = 0; i < 30; i++) {
                    sf_config config;
                    size_t len = whole;
                    char *copy = malloc(whole + 1);
                    memcpy(copy, text, whole + 1);
                    for (int k = 0; k <= i % 4; k++)
                        damage(copy, &len, &seed);
                    sf_status st = sf_config_parse(copy, len, path, &arena, &config);
                    if (st.code == SF_OK)
                        sf_config_close(&config);
                    else
                        assert_int_not_equal(strlen(st.msg), 0);
                    free(copy);
                }
            sf_arena_free(&arena);
        }
        closedir(dir);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hjson_is_read_as_deepspeed_reads_it),
        cmocka_unit_test(yaml_scalars_are_pyyaml_s),
        cmocka_unit_test(toml_complaints_name_the_line),
        cmocka_unit_test(old_and_new_names_mean_the_same),
        cmocka_unit_test(a_job_takes_a_file),
        cmocka_unit_test(damaged_files_are_read_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
