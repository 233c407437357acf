/* tests/model/test_outcome.c: the JSON of an outcome. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/program/outcome.h"
#include "model/program/timeline.h"

/* One rank, two micro-second boxes of compute with a collective that overlaps half of the second:
 *   compute  forward 0..2, backward 2..4, optimizer 6..7
 *   comm     all_gather 3..5
 * exposed 4..5 = 1, idle 5..6 = 1, busy 2 + 2 + 1. */
static sf_span_time boxes[] = {
    { .label = "attn.qkv", .type = SF_OP_LINEAR_FWD, .phase = SF_PHASE_FORWARD, .seq = 1, .start_s = 0, .end_s = 2 },
    { .label = "attn.qkv", .type = SF_OP_LINEAR_BWD_X, .phase = SF_PHASE_BACKWARD, .seq = 2, .start_s = 2, .end_s = 4 },
    { .label = "unit", .type = SF_OP_ALL_GATHER, .stream = SF_STREAM_COMM, .phase = SF_PHASE_BACKWARD, .group = SF_GROUP_LOCAL,
      .seq = 3, .start_s = 3, .end_s = 5, .layer = 7, .micro = 1, .rank = 2 },
    { .type = SF_OP_ADAMW, .phase = SF_PHASE_OPTIMIZER, .seq = 4, .start_s = 6, .end_s = 7 },
};
enum { BOXES = sizeof boxes / sizeof boxes[0] };
static double losses[] = { 5.5, 5.25, NAN };
static sf_memory_point line[] = { { 0, 4096, -1 }, { 9, 8192, 0.5 } };

static void fill(sf_outcome *o)
{
    sf_outcome_init(o, "measured");
    o->strategy = "fsdp";
    o->world_size = 4;
    o->verdict = "fits";
    o->memory.capacity_bytes = 1 << 20;
    o->memory.peak_allocated_bytes = 8192;
    o->memory.peak_reserved_bytes = 9000;
    o->memory.device_used_bytes = 10000;
    o->memory.host_bytes = 77;
    o->memory.phase_of_peak = SF_PHASE_BACKWARD;
    o->memory.op_of_peak = "logits";
    o->memory.seq_of_peak = 41;
    for (int c = 0; c < SF_CAT_COUNT; c++) {
        o->memory.at_peak[c] = (uint64_t)(100 + c);
        o->memory.peak_bytes[c] = (uint64_t)(200 + c);
    }
    o->memory.phase_peak_bytes[SF_PHASE_BACKWARD] = 8192;
    o->memory.oom_request_bytes = 5;
    o->memory.oom_op = "grads";
    o->memory.oom_seq = 6;
    o->memory.oom_resident_bytes = 7;
    o->model_flop = 123;
    o->hardware_flop = 456;
    o->tokens_per_step = 7168;
    o->mfu = 0.5;
    sf_timeline_summarise(boxes, BOXES, o);
    sf_outcome_comm *row = sf_outcome_comm_row(o, SF_OP_ALL_GATHER, SF_GROUP_LOCAL);
    row->calls = 3;
    row->bytes_per_rank = 300;
    o->time.step_s_min = 6.5;
    o->time.step_s_max = 7.5;
    o->losses = losses;
    o->n_losses = 3;
    o->steps = 12;
    o->spans = boxes;
    o->n_spans = BOXES;
    o->memory_line = line;
    o->n_memory_line = 2;
}

static void has_keys(const json_t *object, const char *keys)
{
    char list[400];
    assert_true(json_is_object(object));
    snprintf(list, sizeof list, "%s", keys);
    for (char *save = NULL, *key = strtok_r(list, " ", &save); key != NULL; key = strtok_r(NULL, " ", &save))
        if (json_object_get(object, key) == NULL)
            fail_msg("key '%s' is missing", key);
}

static void the_json_has_the_keys_of_the_interface(void **state)
{
    (void)state;
    sf_outcome o;
    fill(&o);
    json_t *job = json_pack("{s:s}", "model", "gpt2"), *provenance = json_pack("{s:s}", "host", "box");
    o.hfu = 0.75;
    o.provenance = provenance;
    json_t *json = sf_outcome_to_json(&o, job);
    has_keys(json, "schema kind job fits verdict memory communication compute time throughput losses steps provenance");
    has_keys(json_object_get(json, "memory"),
             "capacity_bytes peak_allocated_bytes peak_reserved_bytes device_used_bytes host_bytes phase_of_peak at_peak");
    has_keys(json_object_get(json_object_get(json, "memory"), "at_peak"),
             "parameters gradients optimizer master activations logits comm_buffers temporaries workspace context nccl fragmentation");
    assert_int_equal(json_object_size(json_object_get(json_object_get(json, "memory"), "at_peak")), 12);
    has_keys(json_array_get(json_object_get(json, "communication"), 0), "collective group calls bytes_per_rank time_s exposed_s");
    has_keys(json_object_get(json, "compute"), "model_flops hardware_flops");
    has_keys(json_object_get(json, "time"),
             "step_s forward_s backward_s optimizer_s exposed_comm_s idle_s bound_by step_s_min step_s_max");
    has_keys(json_object_get(json, "throughput"), "tokens_per_s tokens_per_s_per_gpu mfu hfu");
    assert_string_equal(json_string_value(json_object_get(json, "schema")), "shardfit-outcome-1");
    /* 7168 tokens in 7 s on 4 ranks */
    assert_true(json_number_value(json_object_get(json_object_get(json, "throughput"), "tokens_per_s")) == 1024);
    assert_true(json_number_value(json_object_get(json_object_get(json, "throughput"), "tokens_per_s_per_gpu")) == 256);
    json_decref(json);
    json_decref(job);
    json_decref(provenance);
}

static void what_is_not_known_is_left_out(void **state)
{
    (void)state;
    sf_outcome o;
    sf_outcome_init(&o, "published");
    sf_outcome_comm_row(&o, SF_OP_ALL_REDUCE, SF_GROUP_WORLD)->calls = 2;
    json_t *json = sf_outcome_to_json(&o, NULL);
    assert_int_equal(json_object_size(json), 4); /* schema, kind, fits, communication */
    has_keys(json, "schema kind fits communication");
    const json_t *row = json_array_get(json_object_get(json, "communication"), 0);
    assert_null(json_object_get(row, "time_s")); /* no timeline: 0 would be a claim */
    json_decref(json);
}

static void busy_exposed_and_idle_time_make_up_the_step(void **state)
{
    (void)state;
    sf_outcome o;
    fill(&o);
    assert_true(o.time.step_s == 7);
    assert_true(o.time.busy_s[SF_PHASE_FORWARD] == 2);
    assert_true(o.time.busy_s[SF_PHASE_BACKWARD] == 2);
    assert_true(o.time.busy_s[SF_PHASE_OPTIMIZER] == 1);
    assert_true(o.time.exposed_comm_s == 1);
    assert_true(o.time.idle_s == 1);
    assert_true(o.time.phase_s[SF_PHASE_BACKWARD] == 4);
}

static void reading_gives_back_what_was_written(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_outcome o, back;
    fill(&o);
    json_t *json = sf_outcome_to_json(&o, NULL);
    sf_outcome_add_detail(&o, json);
    char *text = json_dumps(json, 0);
    json_decref(json);
    json = json_loads(text, 0, NULL);
    free(text);
    sf_status st = sf_outcome_from_json(json, &arena, &back);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    assert_string_equal(back.kind, "measured");
    assert_string_equal(back.strategy, "fsdp");
    assert_int_equal(back.world_size, 4);
    assert_string_equal(back.memory.op_of_peak, "logits");
    assert_string_equal(back.memory.oom_op, "grads");
    assert_memory_equal(back.memory.at_peak, o.memory.at_peak, sizeof o.memory.at_peak);
    assert_memory_equal(back.memory.peak_bytes, o.memory.peak_bytes, sizeof o.memory.peak_bytes);
    assert_memory_equal(back.memory.phase_peak_bytes, o.memory.phase_peak_bytes, sizeof o.memory.phase_peak_bytes);
    assert_int_equal(back.memory.phase_of_peak, SF_PHASE_BACKWARD);
    assert_int_equal(back.memory.capacity_bytes, 1 << 20);
    assert_int_equal(back.memory.peak_reserved_bytes, 9000);
    assert_int_equal(back.memory.device_used_bytes, 10000);
    assert_int_equal(back.memory.host_bytes, 77);
    assert_int_equal(back.memory.oom_resident_bytes, 7);
    assert_int_equal(back.n_comm, 1);
    assert_memory_equal(&back.comm[0].calls, &o.comm[0].calls, sizeof(uint64_t));
    assert_true(back.comm[0].time_s == 2 && back.comm[0].exposed_s == 1 && back.comm[0].group == SF_GROUP_LOCAL);
    assert_int_equal(back.model_flop, 123);
    assert_int_equal(back.hardware_flop, 456);
    assert_int_equal(back.tokens_per_step, 7168);
    assert_true(back.mfu == 0.5 && back.hfu < 0);
    assert_memory_equal(back.time.phase_s, o.time.phase_s, sizeof o.time.phase_s);
    assert_memory_equal(back.time.busy_s, o.time.busy_s, sizeof o.time.busy_s);
    assert_memory_equal(back.time.kind_s, o.time.kind_s, sizeof o.time.kind_s);
    assert_memory_equal(back.time.op_s, o.time.op_s, sizeof o.time.op_s);
    assert_memory_equal(back.time.op_calls, o.time.op_calls, sizeof o.time.op_calls);
    assert_string_equal(back.time.bound_by, o.time.bound_by);
    assert_true(back.time.step_s_min == 6.5 && back.time.step_s_max == 7.5);
    assert_int_equal(back.steps, 12);
    assert_int_equal(back.n_losses, 3);
    assert_true(back.losses[1] == 5.25 && isnan(back.losses[2]));
    assert_int_equal(back.n_spans, BOXES);
    assert_string_equal(back.spans[2].label, "unit");
    assert_int_equal(back.spans[2].type, SF_OP_ALL_GATHER);
    assert_int_equal(back.spans[2].stream, SF_STREAM_COMM);
    assert_int_equal(back.spans[2].group, SF_GROUP_LOCAL);
    assert_int_equal(back.spans[2].layer, 7);
    assert_int_equal(back.spans[2].rank, 2);
    assert_true(back.spans[3].label == NULL && back.spans[3].end_s == 7);
    assert_int_equal(back.n_memory_line, 2);
    assert_true(back.memory_line[0].time_s < 0 && back.memory_line[1].time_s == 0.5 && back.memory_line[1].bytes == 8192);
    json_decref(json);
    sf_arena_free(&arena);
}

/* 1e19 FLOP is above INT64_MAX (9.2e18) and below UINT64_MAX. */
static void counts_above_the_signed_range_survive(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_outcome o, back;
    sf_outcome_init(&o, "predicted");
    o.model_flop = 10000000000000000000u;
    json_t *json = sf_outcome_to_json(&o, NULL);
    assert_int_equal(sf_outcome_from_json(json, &arena, &back).code, SF_OK);
    assert_true(back.model_flop == 10000000000000000000u);
    json_decref(json);
    sf_arena_free(&arena);
}

static void a_published_rate_gives_the_tokens_of_a_step(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_outcome back;
    json_t *json = json_loads("{\"schema\": \"shardfit-outcome-1\", \"kind\": \"published\", \"time\": {\"step_s\": 2},"
                              "\"throughput\": {\"tokens_per_s\": 512}}", 0, NULL);
    assert_int_equal(sf_outcome_from_json(json, &arena, &back).code, SF_OK);
    assert_int_equal(back.tokens_per_step, 1024);
    json_decref(json);
    sf_arena_free(&arena);
}

static void a_wrong_value_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *rest, *says;
    } cases[] = {
        { "\"schema\": \"other-1\", \"kind\": \"measured\"", "schema: expected 'shardfit-outcome-1', found 'other-1'" },
        { "\"schema\": \"shardfit-outcome-1\"", "kind: expected" },
        { "\"schema\": \"shardfit-outcome-1\", \"kind\": \"measured\", \"memory\": {\"host_bytes\": -1}", "memory.host_bytes: expected" },
        { "\"schema\": \"shardfit-outcome-1\", \"kind\": \"measured\", \"time\": {\"step_s\": \"3 s\"}", "time.step_s: expected" },
        { "\"schema\": \"shardfit-outcome-1\", \"kind\": \"measured\", \"time\": []", "time: expected an object" },
        { "\"schema\": \"shardfit-outcome-1\", \"kind\": \"measured\", \"communication\": [{\"collective\": \"shout\"}]", "'shout'" },
        { "\"schema\": \"shardfit-outcome-1\", \"kind\": \"measured\", \"spans\": {\"columns\": [\"op\"]}", "spans.columns" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sf_arena arena = { 0 };
        sf_outcome back;
        char text[500];
        snprintf(text, sizeof text, "{%s}", cases[i].rest);
        json_t *json = json_loads(text, 0, NULL);
        assert_non_null(json);
        sf_status st = sf_outcome_from_json(json, &arena, &back);
        assert_int_equal(st.code, SF_EPARSE);
        if (strstr(st.msg, cases[i].says) == NULL)
            fail_msg("'%s' does not say '%s'", st.msg, cases[i].says);
        json_decref(json);
        sf_arena_free(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_json_has_the_keys_of_the_interface),
        cmocka_unit_test(what_is_not_known_is_left_out),
        cmocka_unit_test(busy_exposed_and_idle_time_make_up_the_step),
        cmocka_unit_test(reading_gives_back_what_was_written),
        cmocka_unit_test(counts_above_the_signed_range_survive),
        cmocka_unit_test(a_published_rate_gives_the_tokens_of_a_step),
        cmocka_unit_test(a_wrong_value_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
