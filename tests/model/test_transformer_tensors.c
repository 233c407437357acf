/* The tensor list against what PyTorch's modules register: tests/data/hf-tensors.json was written by
 * tests/oracle/hf_tensors.py from named_parameters() of small models of every family. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "model/base/text.h"
#include "model/desc/json.h"
#include "model/desc/transformer.h"

/* Experts and routers are named and stacked differently from one version of transformers to the next;
 * their counts are compared, not their names. */
static bool compared_by_name(const char *name)
{
    return strstr(name, "expert") == NULL && strstr(name, "router") == NULL && strstr(name, "mlp.gate.") == NULL && strstr(name, "sparse_moe") == NULL &&
           strstr(name, "moe_statics") == NULL;
}

/* Corrections of routing (DeepSeek-V3) are parameters in the checkpoints' count, buffers in version 5. */
static uint64_t corrections(const sf_transformer *m, const sf_tensor_list *list)
{
    uint64_t n = 0;
    for (size_t i = 0; i < list->count; i++)
        if (list->items[i].role == SF_ROLE_ROUTER_B && !m->expert_bias && strstr(m->model_type, "ernie") == NULL)
            n += list->items[i].numel;
    return n;
}

static void compare_one(const json_t *entry, sf_arena *arena)
{
    sf_transformer m;
    sf_tensor_list list;
    sf_status st = sf_transformer_from_json(json_object_get(entry, "config"), "oracle", arena, &m);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    sf_transformer_tensors(&m, arena, &list);
    uint64_t want = (uint64_t)json_integer_value(json_object_get(entry, "parameters"));
    if (sf_transformer_params(&m) - corrections(&m, &list) != want)
        fail_msg("%s: %llu parameters, not %llu", m.model_type, (unsigned long long)sf_transformer_params(&m), (unsigned long long)want);

    const json_t *theirs = json_object_get(entry, "tensors");
    size_t ours = 0;
    for (size_t i = 0; i < json_array_size(theirs); i++) {
        const json_t *tensor = json_array_get(theirs, i);
        const char *name = json_string_value(json_array_get(tensor, 0));
        if (!compared_by_name(name))
            continue;
        while (ours < list.count && !compared_by_name(list.items[ours].name))
            ours++;
        if (ours == list.count)
            fail_msg("%s: lacks %s", m.model_type, name);
        const sf_tensor *t = &list.items[ours++];
        bool head = t->role == SF_ROLE_HEAD_W && sf_str_eq(name, "lm_head.weight"); /* GPT-NeoX: embed_out in its checkpoints */
        if (!head && !sf_str_eq(t->name, name))
            fail_msg("%s: %s comes where %s is expected", m.model_type, t->name, name);
        const json_t *shape = json_array_get(tensor, 1);
        uint64_t numel = 1;
        for (size_t d = 0; d < json_array_size(shape); d++)
            numel *= (uint64_t)json_integer_value(json_array_get(shape, d));
        assert_true(t->numel == numel);
        if (json_array_size(shape) == (size_t)t->ndim)
            for (int d = 0; d < t->ndim; d++)
                assert_true(t->shape[d] == (uint64_t)json_integer_value(json_array_get(shape, (size_t)d)));
    }
    for (; ours < list.count; ours++)
        if (compared_by_name(list.items[ours].name))
            fail_msg("%s: %s is too many", m.model_type, list.items[ours].name);
}

static void names_shapes_and_order_are_those_of_named_parameters(void **state)
{
    (void)state;
    json_t *entries = NULL;
    sf_status st = sf_json_read(SF_TEST_DATA "/hf-tensors.json", &entries);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    assert_true(json_array_size(entries) >= 60);
    for (size_t i = 0; i < json_array_size(entries); i++) {
        sf_arena arena = { 0 };
        compare_one(json_array_get(entries, i), &arena);
        sf_arena_free(&arena);
    }
    json_decref(entries);
}

static sf_transformer read_config(const char *text, sf_arena *arena)
{
    json_t *json = NULL;
    sf_transformer m = { 0 };
    sf_status st = sf_json_parse(text, strlen(text), "test", &json);
    if (st.code == SF_OK)
        st = sf_transformer_from_json(json, "test", arena, &m);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    json_decref(json);
    return m;
}

/* Families whose code comes with the checkpoint; totals as their model cards and hub pages state. */
static void models_with_remote_code_have_their_published_counts(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        uint64_t parameters;
    } cases[] = {
        /* ChatGLM3-6B: 28 (18874368 + 4608 + 16777216 + 168296448 + 8192) + 2 x 65024 x 4096 + 4096 */
        { "{\"model_type\": \"chatglm\", \"num_layers\": 28, \"hidden_size\": 4096, \"ffn_hidden_size\": 13696, \"num_attention_heads\": 32,"
          "\"kv_channels\": 128, \"multi_query_attention\": true, \"multi_query_group_num\": 2, \"padded_vocab_size\": 65024, \"seq_length\": 8192,"
          "\"add_qkv_bias\": true, \"add_bias_linear\": false, \"rmsnorm\": true, \"tie_word_embeddings\": false}", 6243584000 },
        /* InternLM2-7B: 32 (25165824 + 16777216 + 176160768 + 8192) + 2 x 92544 x 4096 + 4096 */
        { "{\"model_type\": \"internlm2\", \"num_hidden_layers\": 32, \"hidden_size\": 4096, \"intermediate_size\": 14336, \"num_attention_heads\": 32,"
          "\"num_key_value_heads\": 8, \"vocab_size\": 92544, \"bias\": false, \"tie_word_embeddings\": false}", 7737708544 },
        /* Qwen-7B: intermediate_size is twice the width of w1; c_attn has a bias */
        { "{\"model_type\": \"qwen\", \"num_hidden_layers\": 32, \"hidden_size\": 4096, \"intermediate_size\": 22016, \"num_attention_heads\": 32,"
          "\"vocab_size\": 151936, \"kv_channels\": 128, \"no_bias\": true, \"seq_length\": 8192, \"tie_word_embeddings\": false}", 7721324544 },
        /* DBRX: 40 (50331648 + 37748736 + 2 x 6144 + 98304 + 16 x 3 x 10752 x 6144) + 2 x 100352 x 6144 + 6144 */
        { "{\"model_type\": \"dbrx\", \"n_layers\": 40, \"d_model\": 6144, \"n_heads\": 48, \"vocab_size\": 100352, \"max_seq_len\": 32768,"
          "\"attn_config\": {\"kv_n_heads\": 8}, \"ffn_config\": {\"ffn_hidden_size\": 10752, \"moe_num_experts\": 16, \"moe_top_k\": 4},"
          "\"tie_word_embeddings\": false}", 131596523520 },
        /* OPT-350m: embeddings of 512, projected in and out; norms after the blocks, no final one */
        { "{\"model_type\": \"opt\", \"num_hidden_layers\": 24, \"hidden_size\": 1024, \"ffn_dim\": 4096, \"num_attention_heads\": 16, \"vocab_size\": 50272,"
          "\"max_position_embeddings\": 2048, \"word_embed_proj_dim\": 512, \"do_layer_norm_before\": false}", 331196416 },
        { "{\"model_type\": \"gpt_neo\", \"num_layers\": 12, \"hidden_size\": 768, \"num_heads\": 12, \"vocab_size\": 50257, \"max_position_embeddings\": 2048,"
          "\"intermediate_size\": null}", 125198592 },
        /* Meta's params.json of Llama-3-8B: ffn = 1.3 x (8/3 x 4096) up to a multiple of 1024 = 14336 */
        { "{\"dim\": 4096, \"n_layers\": 32, \"n_heads\": 32, \"n_kv_heads\": 8, \"vocab_size\": 128256, \"multiple_of\": 1024, \"ffn_dim_multiplier\": 1.3,"
          "\"norm_eps\": 1e-05, \"rope_theta\": 500000.0}", 8030261248 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sf_arena arena = { 0 };
        sf_transformer m = read_config(cases[i].config, &arena);
        if (sf_transformer_params(&m) != cases[i].parameters)
            fail_msg("%s: %llu parameters, not %llu", m.model_type, (unsigned long long)sf_transformer_params(&m), (unsigned long long)cases[i].parameters);
        sf_arena_free(&arena);
    }
}

/* Gemma 2: even layers look back 4096; gpt-oss says it layer by layer; Qwen2 only if asked. */
static void windowed_layers_are_found(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_transformer m;
    assert_int_equal(sf_transformer_find(SF_TEST_DATA "/hf-config/gemma2-2b.json", &arena, &m).code, SF_OK);
    assert_int_equal(sf_transformer_layer_window(&m, 0), 4096);
    assert_int_equal(sf_transformer_layer_window(&m, 1), 0);
    assert_int_equal(sf_transformer_find(SF_TEST_DATA "/hf-config/gpt-oss-20b.json", &arena, &m).code, SF_OK);
    assert_int_equal(sf_transformer_layer_window(&m, 0), 128);
    assert_int_equal(sf_transformer_layer_window(&m, 1), 0);
    assert_int_equal(sf_transformer_find(SF_TEST_DATA "/hf-config/gemma3-1b.json", &arena, &m).code, SF_OK);
    assert_int_equal(sf_transformer_layer_window(&m, 4), 512);
    assert_int_equal(sf_transformer_layer_window(&m, 5), 0); /* every sixth sees all */
    assert_int_equal(sf_transformer_find(SF_TEST_DATA "/hf-config/qwen2-7b.json", &arena, &m).code, SF_OK);
    assert_int_equal(sf_transformer_layer_window(&m, 27), 0);
    assert_int_equal(sf_transformer_find(SF_TEST_DATA "/hf-config/mistral-7b.json", &arena, &m).code, SF_OK);
    assert_int_equal(sf_transformer_layer_window(&m, 31), 4096);
    sf_arena_free(&arena);
}

/* 61 layers of which 3 are dense: one list for each kind, and they add up to the whole. */
static void kinds_of_layers_stand_for_all_layers(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_transformer m;
    sf_tensor_kinds kinds;
    assert_int_equal(sf_transformer_find("deepseek-v3", &arena, &m).code, SF_OK);
    sf_transformer_tensor_kinds(&m, &arena, &kinds);
    assert_int_equal(kinds.n_layers[0], 3);
    assert_int_equal(kinds.n_layers[SF_LAYER_MOE], 58);
    assert_int_equal(kinds.block[SF_LAYER_MOE].items[0].layer, 3);
    assert_int_equal(kinds.block[SF_LAYER_WINDOWED].count, 0);
    sf_arena_free(&arena);
}

static bool warns(const sf_transformer *m, const char *of)
{
    for (size_t i = 0; i < m->n_warnings; i++)
        if (strstr(m->warnings[i], of) != NULL)
            return true;
    return false;
}

#define SHAPE "\"num_hidden_layers\": 2, \"hidden_size\": 16, \"num_attention_heads\": 4, \"vocab_size\": 10, \"intermediate_size\": 20"

static void what_is_not_understood_is_said(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_transformer m = read_config("{\"model_type\": \"lama\", " SHAPE ", \"memory_tokens\": 4, \"use_cache\": true, \"pad_token_id\": 0, \"odd\": null}", &arena);
    assert_true(warns(&m, "'lama' is not known"));
    assert_true(warns(&m, "'memory_tokens'"));
    assert_int_equal(m.n_warnings, 2);
    m = read_config("{\"model_type\": \"llava\", \"text_config\": {\"model_type\": \"llama\", " SHAPE "}, \"vision_config\": {}}", &arena);
    assert_string_equal(m.model_type, "llama");
    assert_true(warns(&m, "text_config"));
    sf_arena_free(&arena);
}

static void what_is_no_decoder_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *config, *why;
    } cases[] = {
        { "{\"model_type\": \"mamba\", \"hidden_size\": 16}", "state-space layers" },
        { "{\"model_type\": \"t5\", \"d_model\": 16}", "cross-attention" },
        { "{\"model_type\": \"bert\", " SHAPE "}", "an encoder" },
        { "{\"model_type\": \"hybrid9\", " SHAPE ", \"mamba_d_state\": 16}", "state-space" },
        { "{\"model_type\": \"strange\", \"width\": 16}", "no hidden_size" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sf_arena arena = { 0 };
        json_t *json = NULL;
        sf_transformer m;
        assert_int_equal(sf_json_parse(cases[i].config, strlen(cases[i].config), "test", &json).code, SF_OK);
        sf_status st = sf_transformer_from_json(json, "test", &arena, &m);
        assert_int_equal(st.code, SF_EUNSUP);
        if (strstr(st.msg, cases[i].why) == NULL)
            fail_msg("expected '%s' in: %s", cases[i].why, st.msg);
        json_decref(json);
        sf_arena_free(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_shapes_and_order_are_those_of_named_parameters),
        cmocka_unit_test(models_with_remote_code_have_their_published_counts),
        cmocka_unit_test(windowed_layers_are_found),
        cmocka_unit_test(kinds_of_layers_stand_for_all_layers),
        cmocka_unit_test(what_is_not_understood_is_said),
        cmocka_unit_test(what_is_no_decoder_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
