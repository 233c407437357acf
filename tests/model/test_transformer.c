#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/base/csv.h"
#include "model/base/text.h"
#include "model/desc/catalogue.h"
#include "model/desc/json.h"
#include "model/desc/transformer.h"

/* Every kept config has its published number of parameters, to the last one. */
static void every_config_has_its_published_parameter_count(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_csv csv;
    assert_int_equal(sf_csv_read(SF_TEST_DATA "/hf-config/PARAMS.csv", &arena, &csv).code, SF_OK);
    assert_true(csv.n_rows >= 100);
    for (size_t i = 0; i < csv.n_rows; i++) {
        sf_transformer m;
        const char *file = sf_csv_field(&csv, i, "config_file");
        sf_status st = sf_transformer_find(sf_arena_printf(&arena, SF_TEST_DATA "/hf-config/%s", file), &arena, &m);
        if (st.code != SF_OK)
            fail_msg("%s", st.msg);
        uint64_t want = strtoull(sf_csv_field(&csv, i, "params_exact"), NULL, 10);
        if (sf_transformer_params(&m) != want)
            fail_msg("%s: %llu parameters, published are %llu", file, (unsigned long long)sf_transformer_params(&m), (unsigned long long)want);
        assert_string_equal(m.tied ? "yes" : "no", sf_csv_field(&csv, i, "tied_embeddings"));
        sf_tensor_list list;
        sf_transformer_tensors(&m, &arena, &list);
        uint64_t sum = 0;
        for (size_t t = 0; t < list.count; t++)
            sum += list.items[t].numel * (uint64_t)list.items[t].copies;
        assert_true(sum == want); /* the list and the closed form agree */
    }
    sf_arena_free(&arena);
}

/* Mixtral 8x7B: 46.7 B in all, 12.9 B active: per layer 2 of 8 experts of 3 * 4096 * 14336. */
static void a_mixture_counts_the_experts_that_one_token_uses(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_transformer m;
    assert_int_equal(sf_transformer_find("mixtral-8x7b", &arena, &m).code, SF_OK);
    uint64_t expert = 3ull * 4096 * 14336;
    assert_true(sf_transformer_params(&m) - sf_transformer_active_params(&m) == 32 * 6 * expert);
    sf_arena_free(&arena);
}

static void names_are_found_however_they_are_written(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_transformer m;
    static const char *const names[] = { "llama-2-7b", "Llama2-7B", "meta-llama/Llama-2-7b-hf", "LLAMA_2_7B" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_int_equal(sf_transformer_find(names[i], &arena, &m).code, SF_OK);
        assert_true(sf_transformer_params(&m) == 6738415616);
        assert_string_equal(m.name, "llama-2-7b");
    }
    sf_status st = sf_transformer_find("llama-2-7bb", &arena, &m);
    assert_int_equal(st.code, SF_EINVAL);
    assert_non_null(strstr(st.msg, "llama-2-7b"));
    sf_arena_free(&arena);
}

/* Every file of the catalogue is read, without anything in it that is not understood but what is set
 * aside knowingly; totals as model cards state them. */
static void the_catalogue_is_read_whole(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t parameters;
    } cards[] = {
        { "pythia-70m", 70426624 }, { "pythia-2.8b", 2775208960 }, { "pythia-6.9b", 6857302016 }, { "opt-350m", 331196416 }, { "opt-2.7b", 2651596800 },
        { "opt-13b", 12853473280 }, { "opt-1.3b", 1315758080 }, { "opt-30b", 29974540288 }, { "qwen2.5-14b", 14770033664 }, { "qwen3-32b", 32762123264 },
        { "gemma-2-9b", 9241705984 }, { "bloom-1b1", 1065314304 }, { "bloom-3b", 3002557440 }, { "phi-3-medium", 13960238080 },
        { "dbrx", 131596523520 }, { "chatglm3-6b", 6243584000 }, { "gpt-neo-2.7b", 2651307520 }, { "google/gemma-2-9b", 9241705984 },
    };
    sf_arena arena = { 0 };
    sf_transformer m;
    for (size_t i = 0; i < sizeof cards / sizeof cards[0]; i++) {
        sf_status st = sf_transformer_find(cards[i].name, &arena, &m);
        if (st.code != SF_OK)
            fail_msg("%s", st.msg);
        if (sf_transformer_params(&m) != cards[i].parameters)
            fail_msg("%s: %llu parameters", cards[i].name, (unsigned long long)sf_transformer_params(&m));
    }
    char *text = NULL, *line_state = NULL;
    size_t n = 0;
    assert_int_equal(sf_file_read(sf_catalogue_path(&arena, "models/models.txt"), 1 << 20, &arena, &text, NULL).code, SF_OK);
    for (char *line = strtok_r(text, "\n", &line_state); line != NULL; line = strtok_r(NULL, "\n", &line_state)) {
        char *state_of_line = NULL, *file = strtok_r(line, " ", &state_of_line);
        if (file[0] == '#')
            continue;
        for (char *alias; (alias = strtok_r(NULL, " ", &state_of_line)) != NULL; n++) {
            sf_status st = sf_transformer_find(alias, &arena, &m);
            if (st.code != SF_OK)
                fail_msg("%s", st.msg);
            for (size_t w = 0; w < m.n_warnings; w++)
                if (strstr(m.warnings[w], "is not") != NULL && strstr(m.warnings[w], "model_type is not stated") == NULL)
                    fail_msg("%s: %s", alias, m.warnings[w]);
        }
    }
    assert_true(n > 180);
    sf_arena_free(&arena);
}

static sf_status read_text(const char *text, sf_arena *arena, sf_transformer *m)
{
    json_t *json = NULL;
    sf_status st = sf_json_parse(text, strlen(text), "test", &json);
    if (st.code == SF_OK)
        st = sf_transformer_from_json(json, "test", arena, m);
    json_decref(json);
    return st;
}

static void bad_configs_say_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } cases[] = {
        { "{\"model_type\": \"llama\",\n \"hidden_size\": }", "test:2:" },
        { "{\"model_type\": \"llama\"}", "'num_hidden_layers' is missing" },
        { "{\"num_hidden_layers\": 2, \"hidden_size\": 10, \"num_attention_heads\": 3, \"vocab_size\": 5, \"intermediate_size\": 7}",
          "not divisible by 3" },
        { "{\"num_hidden_layers\": 2, \"hidden_size\": 12, \"num_attention_heads\": 4, \"num_key_value_heads\": 3, \"vocab_size\": 5, "
          "\"intermediate_size\": 7}", "cannot share 3" },
        { "{\"num_hidden_layers\": -2, \"hidden_size\": 12, \"num_attention_heads\": 4, \"vocab_size\": 5}", "'num_hidden_layers' is not" },
        { "[1, 2]", "JSON object" },
        { "{\"num_hidden_layers\": \"two\", \"hidden_size\": 12, \"num_attention_heads\": 4, \"vocab_size\": 5}", "'num_hidden_layers' is not" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sf_arena arena = { 0 };
        sf_transformer m;
        sf_status st = read_text(cases[i].text, &arena, &m);
        assert_int_not_equal(st.code, SF_OK);
        if (strstr(st.msg, cases[i].why) == NULL)
            fail_msg("expected '%s' in: %s", cases[i].why, st.msg);
        sf_arena_free(&arena);
    }
}

/* Numbers as people write them: 32.0 and "32" are 32, null is absent. */
static void numbers_may_be_written_loosely(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_transformer m;
    sf_status st = read_text("{\"num_hidden_layers\": 2.0, \"hidden_size\": \"16\", \"num_attention_heads\": 4, \"num_key_value_heads\": null, "
                             "\"vocab_size\": 10, \"intermediate_size\": 20, \"tie_word_embeddings\": \"true\"}", &arena, &m);
    assert_int_equal(st.code, SF_OK);
    assert_int_equal(m.n_layers, 2);
    assert_int_equal(m.n_kv_heads, 4);
    assert_true(m.tied);
    sf_arena_free(&arena);
}

/* Damaged copies of real configs never crash the reader. Seeded; under the sanitizers this is the
 * fuzzer of the suite. */
static void damaged_configs_are_read_or_refused(void **state)
{
    (void)state;
    static const char *const files[] = { "deepseek-v3.json", "falcon-40b.json", "mpt-7b.json", "gpt2.json", "gpt-oss-20b.json" };
    uint32_t seed = 12345;
    for (size_t f = 0; f < sizeof files / sizeof files[0]; f++) {
        sf_arena arena = { 0 };
        char *text = NULL;
        size_t len = 0;
        assert_int_equal(sf_file_read(sf_arena_printf(&arena, SF_TEST_DATA "/hf-config/%s", files[f]), 1 << 20, &arena, &text, &len).code, SF_OK);
        for (int round = 0; round < 300; round++) {
            sf_arena scratch = { 0 };
            char *copy = sf_arena_strndup(&scratch, text, len);
            size_t n = len;
            for (int edit = 0; edit < 3; edit++) {
                seed = seed * 1664525u + 1013904223u;
                size_t at = (seed >> 8) % n;
                if (seed % 5 == 0)
                    n = at + 1;
                else
                    copy[at] = "0123456789-\"{}[],:eE."[(seed >> 3) % 21];
            }
            json_t *json = NULL;
            sf_transformer m;
            if (sf_json_parse(copy, n, "fuzz", &json).code == SF_OK) {
                if (sf_transformer_from_json(json, "fuzz", &scratch, &m).code == SF_OK)
                    (void)sf_transformer_params(&m);
            }
            json_decref(json);
            sf_arena_free(&scratch);
        }
        sf_arena_free(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_config_has_its_published_parameter_count),
        cmocka_unit_test(a_mixture_counts_the_experts_that_one_token_uses),
        cmocka_unit_test(names_are_found_however_they_are_written),
        cmocka_unit_test(the_catalogue_is_read_whole),
        cmocka_unit_test(bad_configs_say_what_is_wrong),
        cmocka_unit_test(numbers_may_be_written_loosely),
        cmocka_unit_test(damaged_configs_are_read_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
