/* PyTorch's step against PyTorch's own allocator: peaks of forward and backward of Transformers' GPT-2 and LLaMA, from
 * tests/oracle/saved_activations.py. Compared are whole models of real size: small ones are all rounding. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "model/cost/accountant.h"
#include "model/desc/job.h"
#include "model/desc/json.h"
#include "model/program/cursor.h"
#include "model/program/verify.h"
#include "model/strategy/lower.h"

static const char *precision_of(const char *name)
{
    return strcmp(name, "bf16") == 0 ? "bf16-pure" : strcmp(name, "fp32") == 0 ? "fp32" : strcmp(name, "autocast") == 0 ? "bf16-autocast" : NULL;
}

static json_t *job_of(const json_t *oracle, const json_t *c)
{
    const char *model = json_string_value(json_object_get(c, "model"));
    bool llama = strncmp(model, "llama", 5) == 0;
    return json_pack("{s:O, s:s, s:{s:s, s:i}, s:s, s:{s:O, s:O, s:s, s:s, s:f, s:s}}", "model", json_object_get(json_object_get(oracle, "models"), model), "framework",
                     "pytorch", "cluster", "gpu", "H100-SXM5-80GB", "device_memory_gib", 400, "strategy", "single", "train", "micro_batch",
                     json_object_get(c, "batch"), "seq_len", json_object_get(c, "seq"), "precision", precision_of(json_string_value(json_object_get(c, "precision"))),
                     "attention", json_string_value(json_object_get(c, "attention")), "dropout", llama ? 0.0 : json_number_value(json_object_get(c, "dropout")),
                     "recompute", json_is_true(json_object_get(c, "checkpointing")) ? "full" : "none");
}

/* The peaks of our program less what is there before the forward: parameters, moments, workspace, batch. */
static void our_peaks(const json_t *job_json, double *forward, double *backward)
{
    sf_arena arena = { 0 };
    sf_job job;
    const sf_program *program = NULL;
    sf_outcome out;
    sf_status st = sf_job_from_json(job_json, "job", NULL, 0, &arena, &job);
    if (st.code == SF_OK)
        st = sf_lower(&job, &arena, &program);
    if (st.code == SF_OK)
        st = sf_program_verify(program);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    double before = 0;
    for (size_t i = 0; i < program->classes[0].n_buffers; i++)
        before += program->classes[0].buffers[i].persistent ? (double)sf_buffer_bytes(&program->classes[0].buffers[i]) : 0;
    sf_account(program, 0, &arena, &out);
    *forward = (double)out.memory.phase_peak_bytes[SF_PHASE_FORWARD] - before;
    *backward = (double)out.memory.phase_peak_bytes[SF_PHASE_BACKWARD] - before;
    sf_job_close(&job);
    sf_arena_free(&arena);
}

static void check(const char *what, const json_t *c, double ours, double theirs, double bound)
{
    if (ours > theirs * (1 + bound) || ours < theirs * (1 - bound))
        fail_msg("%s %s %s: %s peak %.0f, PyTorch's %.0f (%+.2f %%)", json_string_value(json_object_get(c, "model")), json_string_value(json_object_get(c, "attention")),
                 json_string_value(json_object_get(c, "precision")), what, ours, theirs, 100 * (ours / theirs - 1));
}

/* Fused attention: 1 %. Eager attention's forward: 3 %, since the copies that its products make of strided operands are
 * not all followed; its backward is not compared. The script's caller holds the model's output, and so the logits, in
 * the backward; Trainer does not, and nor do we: they are added. */
static void peaks_are_pytorch_s(void **state)
{
    json_t *oracle = NULL;
    size_t i, compared = 0;
    json_t *item;
    (void)state;
    sf_status st = sf_json_read(SF_TEST_DATA "/oracle/saved_activations.json", &oracle);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    json_array_foreach(json_object_get(oracle, "cases"), i, item)
    {
        const json_t *c = json_object_get(item, "case"), *allocator = json_object_get(item, "allocator");
        double forward, backward, theirs = json_number_value(json_object_get(allocator, "peak_of_forward"));
        bool eager = strcmp(json_string_value(json_object_get(c, "attention")), "eager") == 0;
        if (strcmp(json_string_value(json_object_get(c, "device")), "cuda") != 0 || json_object_get(c, "use_cache") != NULL ||
            precision_of(json_string_value(json_object_get(c, "precision"))) == NULL || theirs < 3e8)
            continue;
        json_t *job = job_of(oracle, c);
        our_peaks(job, &forward, &backward);
        json_decref(job);
        check("forward", c, forward, theirs, eager ? 0.03 : 0.01);
        double held = json_number_value(json_object_get(json_object_get(item, "held_by_outputs"), "logits"));
        if (!eager && held > 0)
            check("backward", c, backward + held, json_number_value(json_object_get(allocator, "peak_of_backward")), 0.01);
        compared++;
    }
    assert_true(compared >= 20);
    json_decref(oracle);
}

/* ---- collectives of a step ---- */

typedef struct {
    uint64_t calls, bytes;
} traffic;

static const sf_op_type kinds[] = { SF_OP_ALL_REDUCE, SF_OP_ALL_GATHER, SF_OP_REDUCE_SCATTER };

/* Array bytes of each kind in the last step that the fixture lists; scalars and DDP's buffer broadcasts are left out. */
static bool oracle_traffic(const json_t *item, traffic t[3])
{
    const json_t *calls = json_object_get(item, "calls"), *step = NULL;
    size_t i;
    json_t *row;
    for (const char *const *name = (const char *const[]){ "step 3", "step 2", "step 1", NULL }; *name != NULL && !json_is_array(step); name++)
        step = json_object_get(calls, *name);
    if (!json_is_array(step))
        return false;
    memset(t, 0, 3 * sizeof *t);
    json_array_foreach((json_t *)step, i, row)
    {
        const char *op = json_string_value(json_array_get(row, 1));
        uint64_t in = (uint64_t)json_integer_value(json_array_get(row, 4)), out = (uint64_t)json_integer_value(json_array_get(row, 5));
        for (int k = 0; k < 3; k++)
            if (strcmp(op, sf_op_name(kinds[k])) == 0 && (in > 8 || out > 8)) {
                t[k].calls++;
                t[k].bytes += in > out ? in : out;
            }
    }
    return true;
}

/* The fixture's case as a job; NULL: it has something that a job cannot say. */
static json_t *collective_job(const json_t *oracle, const json_t *c)
{
    static const char *const known[] = { "kind", "model", "world", "ddp", "fsdp", "mixed", "micro_steps", "no_sync" };
    const char *kind = json_string_value(json_object_get(c, "kind")), *key;
    json_t *value, *strategy = json_object(), *knobs = json_object_get(c, strcmp(kind, "ddp") == 0 ? "ddp" : "fsdp");
    int64_t world = json_integer_value(json_object_get(c, "world")), micro = json_integer_value(json_object_get(c, "micro_steps"));
    const json_t *mixed = json_object_get(c, "mixed"), *cap = json_object_get(knobs, "bucket_cap_mb");
    bool fine = world > 1 && json_object_get(knobs, "find_unused_parameters") == NULL && (cap == NULL || json_is_integer(cap));
    json_object_foreach((json_t *)c, key, value)
    {
        size_t k = 0;
        while (k < sizeof known / sizeof known[0] && strcmp(known[k], key) != 0)
            k++;
        fine = fine && k < sizeof known / sizeof known[0];
    }
    json_object_set_new(strategy, "name", json_string(strcmp(kind, "fsdp1") == 0 ? "fsdp" : kind));
    json_object_foreach(knobs, key, value)
    {
        const char *text = json_string_value(value);
        if (strcmp(key, "sharding") == 0) {
            fine = fine && strcmp(text, "FULL_SHARD") == 0;
            json_object_set_new(strategy, "sharding", json_string("full_shard"));
        } else if (strcmp(key, "backward_prefetch") == 0) {
            json_object_set_new(strategy, key, json_string(text == NULL ? "none" : strcmp(text, "BACKWARD_PRE") == 0 ? "pre" : "post"));
        } else if (strcmp(key, "sync_module_states") != 0) {
            json_object_set(strategy, key, value);
        }
    }
    const char *param = json_string_value(json_array_get(mixed, 0)), *reduce = json_string_value(json_array_get(mixed, 1));
    if (reduce != NULL)
        json_object_set_new(strategy, "reduce_dtype", json_string(reduce));
    if (!fine) {
        json_decref(strategy);
        return NULL;
    }
    return json_pack("{s:O, s:s, s:{s:s, s:I, s:I}, s:o, s:{s:i, s:i, s:s, s:I, s:b}}", "model",
                     json_object_get(json_object_get(oracle, "models"), json_string_value(json_object_get(c, "model"))), "framework", "pytorch", "cluster", "gpu",
                     "H100-SXM5-80GB", "gpus_per_node", (json_int_t)(world < 8 ? world : 8), "nodes", (json_int_t)(world < 8 ? 1 : world / 8), "strategy", strategy,
                     "train", "micro_batch", 1, "seq_len", 16, "precision", param == NULL ? "fp32" : strcmp(param, "bf16") == 0 ? "bf16-mixed" : "fp16-mixed",
                     "grad_accum", (json_int_t)(micro > 0 ? micro : 1), "sync_each_micro_step", !json_is_true(json_object_get(c, "no_sync")));
}

static void check_traffic(const json_t *job_json, const json_t *c, const traffic want[3])
{
    sf_arena arena = { 0 };
    sf_job job;
    const sf_program *program = NULL;
    sf_outcome out;
    sf_status st = sf_job_from_json(job_json, "job", NULL, 0, &arena, &job);
    if (st.code == SF_OK)
        st = sf_lower(&job, &arena, &program);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    sf_account(program, 0, &arena, &out);
    for (int k = 0; k < 3; k++) {
        const sf_outcome_comm *row = sf_outcome_comm_row(&out, kinds[k], SF_GROUP_WORLD);
        if (row->calls != want[k].calls || row->bytes_per_rank != want[k].bytes) {
            char *text = json_dumps(c, JSON_COMPACT);
            fail_msg("%s: %s %lu calls, %lu bytes, not %lu, %lu", text, sf_op_name(kinds[k]), (unsigned long)row->calls, (unsigned long)row->bytes_per_rank,
                     (unsigned long)want[k].calls, (unsigned long)want[k].bytes);
        }
    }
    sf_job_close(&job);
    sf_arena_free(&arena);
}

/* Number and bytes of the collectives of a step, exactly, as they reach NCCL from DDP, FSDP1 and FSDP2 themselves. */
static void collectives_are_pytorch_s(void **state)
{
    json_t *oracle = NULL;
    size_t i, compared = 0;
    json_t *item;
    traffic want[3];
    (void)state;
    sf_status st = sf_json_read(SF_TEST_DATA "/oracle/collectives.json", &oracle);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    json_array_foreach(json_object_get(oracle, "cases"), i, item)
    {
        const json_t *c = json_object_get(item, "case");
        json_t *job = collective_job(oracle, c);
        if (job == NULL)
            continue;
        if (oracle_traffic(item, want)) {
            check_traffic(job, c, want);
            compared++;
        }
        json_decref(job);
    }
    assert_true(compared >= 35);
    json_decref(oracle);
}

static uint64_t peak_of(const char *strategy, const char *framework, const char *extra)
{
    sf_arena arena = { 0 };
    sf_job job;
    const sf_program *program = NULL;
    sf_outcome out;
    const sf_override o[] = { { "model", "llama-2-7b" }, { "cluster.gpu", "A100 SXM4 80GB" }, { "cluster.gpus_per_node", "8" }, { "framework", framework },
                              { "strategy.name", strategy }, { "train.seq_len", "512" }, { "train.recompute", "full" }, { extra, "cpu" } };
    sf_status st = sf_job_read(NULL, o, extra == NULL ? 7 : 8, &arena, &job);
    if (st.code == SF_OK)
        st = sf_lower(&job, &arena, &program);
    if (st.code == SF_OK)
        st = sf_program_verify(program);
    if (st.code != SF_OK)
        fail_msg("%s %s: %s", framework, strategy, st.msg);
    sf_account(program, 0, &arena, &out);
    uint64_t peak = out.memory.peak_allocated_bytes;
    sf_job_close(&job);
    sf_arena_free(&arena);
    return peak;
}

/* P = 6738415616. ZeRO-1 in the step: 2P + 12 P/8 of states and 2 + 4 bytes of P/8 (flat copy and fp32 gradients) beside
 * the whole gradients, 2P: 4P + 18 P/8. ZeRO-2: the partition's gradients only: 2P + 20 P/8. Both as in DeepSpeed's
 * stage_1_and_2.py; cuBLAS' workspace and the batch are 8.2 MB more. */
static void zero_peaks_are_the_sums_of_their_terms(void **state)
{
    const double P = 6738415616;
    (void)state;
    double one = (double)peak_of("zero1", "deepspeed", NULL), two = (double)peak_of("zero2", "deepspeed", NULL);
    assert_true(one > 4 * P + 18 * P / 8 && one < 4 * P + 18 * P / 8 + 1e7);
    assert_true(two > 2 * P + 20 * P / 8 && two < 2 * P + 20 * P / 8 + 1e7);
    assert_true(peak_of("zero3", "deepspeed", NULL) < peak_of("zero2", "deepspeed", NULL));
    assert_true(peak_of("zero2", "deepspeed", "strategy.offload_optimizer.device") < peak_of("zero2", "deepspeed", NULL));
    assert_true(peak_of("fsdp", "pytorch", NULL) < peak_of("ddp", "pytorch", NULL) / 3);
}

/* ---- block sizes that public reports saw fail ---- */

static bool has_buffer(const char *job_text, const char *name, uint64_t bytes)
{
    sf_arena arena = { 0 };
    sf_job job;
    json_t *json = NULL;
    const sf_program *program = NULL;
    bool found = false;
    sf_status st = sf_json_parse(job_text, strlen(job_text), "job", &json);
    if (st.code == SF_OK)
        st = sf_job_from_json(json, "job", NULL, 0, &arena, &job);
    json_decref(json);
    if (st.code == SF_OK)
        st = sf_lower(&job, &arena, &program);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    for (size_t i = 0; i < program->classes[0].n_buffers; i++) {
        const sf_buffer *b = &program->classes[0].buffers[i];
        found = found || (strcmp(b->name, name) == 0 && sf_buffer_bytes(b) == bytes);
    }
    sf_job_close(&job);
    sf_arena_free(&arena);
    return found;
}

/* Llama-7B's layer has 202383360 elements; FSDP on 8 GPUs: an fp32 shard of 4 * 202383360 / 8 = 101191680 bytes, 96.5 MiB
 * (lm-sys/FastChat#1781: "98 MiB", rounded up to 2). ZeRO-2 on 4 GPUs: one fp32 moment of Baichuan2-13B, 13896668160
 * parameters, is 4 * P / 4 bytes, 12.94 GiB (hiyouga/LlamaFactory#1158). 56 heads at 2048 tokens, fp32: 4 * 56 * 2048^2
 * = 896 MiB (deepspeedai/DeepSpeed#2899). fp32 logits of 4 x 1025 tokens and 151936 words: 4 * 4100 * 151936 bytes,
 * 2.32 GiB (hiyouga/LlamaFactory#2744). */
static void reported_blocks_come_out(void **state)
{
    (void)state;
    assert_true(has_buffer("{\"model\": \"llama1-7b\", \"framework\": \"pytorch\", \"cluster\": {\"gpu\": \"A100-40GB\", \"gpus_per_node\": 8},"
                           "\"strategy\": \"fsdp\", \"train\": {\"seq_len\": 512}}", "fsdp.shard_grad", 101191680));
    assert_true(has_buffer("{\"model\": {\"model_type\": \"llama\", \"hidden_size\": 5120, \"num_hidden_layers\": 40, \"num_attention_heads\": 40,"
                           "\"num_key_value_heads\": 40, \"intermediate_size\": 13696, \"vocab_size\": 125696, \"tie_word_embeddings\": false},"
                           "\"framework\": \"deepspeed\", \"cluster\": {\"gpu\": \"A800 SXM4 80GB\", \"gpus_per_node\": 4}, \"strategy\": \"zero2\","
                           "\"train\": {\"seq_len\": 1536}}", "optimizer.exp_avg", 13896668160u));
    assert_true(has_buffer("{\"model\": {\"model_type\": \"llama\", \"hidden_size\": 7168, \"num_hidden_layers\": 2, \"num_attention_heads\": 56,"
                           "\"num_key_value_heads\": 56, \"intermediate_size\": 28672, \"vocab_size\": 50000}, \"framework\": \"pytorch\","
                           "\"cluster\": {\"gpu\": \"A100-40GB\"}, \"strategy\": \"single\", \"train\": {\"seq_len\": 2048, \"attention\": \"eager\","
                           "\"precision\": \"bf16-pure\"}}", "softmax", 896u << 20));
    assert_true(has_buffer("{\"model\": {\"model_type\": \"llama\", \"hidden_size\": 1024, \"num_hidden_layers\": 2, \"num_attention_heads\": 16,"
                           "\"num_key_value_heads\": 16, \"intermediate_size\": 2816, \"vocab_size\": 151936}, \"framework\": \"deepspeed\","
                           "\"cluster\": {\"gpu\": \"RTX 3090\", \"gpus_per_node\": 5}, \"strategy\": \"zero3\", \"train\": {\"seq_len\": 1025,"
                           "\"micro_batch\": 4}}", "loss.logits32", 4ull * 4100 * 151936));
}

static uint64_t hardware_flop(const char *recompute, const char *share)
{
    sf_arena arena = { 0 };
    sf_job job;
    const sf_program *program = NULL;
    sf_outcome out;
    const sf_override o[] = { { "model", "llama-3.1-8b" }, { "cluster.gpu", "H100" }, { "framework", "pytorch" }, { "strategy.name", "single" },
                              { "train.seq_len", "512" }, { "train.precision", "bf16-pure" }, { "train.recompute", recompute }, { "train.recompute_share", share } };
    sf_status st = sf_job_read(NULL, o, 8, &arena, &job);
    if (st.code == SF_OK)
        st = sf_lower(&job, &arena, &program);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    sf_account(program, 0, &arena, &out);
    sf_job_close(&job);
    sf_arena_free(&arena);
    return out.hardware_flop;
}

/* Llama-3.1-8B: h 4096, k and v 1024 wide, f 14336, 32 layers; N = 512 tokens. Of q, k, v, o, gate, up, down every second
 * output is kept, so k, o and up are computed again: 2 N (4096 * 1024 + 4096 * 4096 + 4096 * 14336) a layer; attention is
 * kept. Full recomputation adds all seven and attention's 2 N * 512 * 4096; of every second layer, of 16. */
static void recomputation_repeats_what_is_not_kept(void **state)
{
    const uint64_t N = 512, h = 4096, kv = 1024, f = 14336, L = 32;
    (void)state;
    uint64_t none = hardware_flop("none", "1");
    assert_int_equal(hardware_flop("selective", "1") - none, L * 2 * N * (h * kv + h * h + h * f));
    assert_int_equal(hardware_flop("full", "0.5") - none, L / 2 * (2 * N * (2 * h * h + 2 * h * kv + 3 * h * f) + 2 * N * 512 * h));
    assert_int_equal(hardware_flop("full", "1") - none, L * (2 * N * (2 * h * h + 2 * h * kv + 3 * h * f) + 2 * N * 512 * h));
}

/* Under fp8 the 7 products of each of the 32 blocks are 8-bit, 3 times each, the head's 3 are not. */
static void products_of_blocks_are_8_bit(void **state)
{
    sf_arena arena = { 0 };
    sf_job job;
    const sf_program *program = NULL;
    const sf_override o[] = { { "model", "llama-3.1-8b" }, { "cluster.gpu", "H100" }, { "framework", "pytorch" }, { "strategy.name", "single" },
                              { "train.seq_len", "512" }, { "train.precision", "fp8-mixed" } };
    sf_cursor cursor;
    sf_issue is;
    int narrow = 0, wide = 0;
    (void)state;
    assert_int_equal(sf_job_read(NULL, o, 6, &arena, &job).code, SF_OK);
    assert_int_equal(sf_lower(&job, &arena, &program).code, SF_OK);
    for (sf_cursor_start(&cursor, &program->classes[0]); sf_cursor_next(&cursor, &is);)
        if (is.op->type == SF_OP_F_GEMM)
            (*(is.op->kind & SF_FRAME_FP8 ? &narrow : &wide))++;
    assert_int_equal(narrow, 32 * 7 * 3);
    assert_int_equal(wide, 3);
    sf_job_close(&job);
    sf_arena_free(&arena);
}

static void two_nodes(const char *path, const char *value, sf_outcome *out)
{
    sf_arena arena = { 0 };
    sf_job job;
    const sf_program *program = NULL;
    const sf_override o[] = { { "model", "llama-2-7b" }, { "cluster.gpu", "A100 SXM4 80GB" }, { "cluster.gpus_per_node", "8" }, { "cluster.nodes", "2" },
                              { "framework", "deepspeed" }, { "strategy.name", "zero3" }, { "train.seq_len", "512" }, { path, value } };
    sf_status st = sf_job_read(NULL, o, path == NULL ? 7 : 8, &arena, &job);
    if (st.code == SF_OK)
        st = sf_lower(&job, &arena, &program);
    if (st.code == SF_OK)
        st = sf_program_verify(program);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    sf_account(program, 0, &arena, out);
    sf_job_close(&job);
    sf_arena_free(&arena);
}

/* ZeRO++: hpZ over the 8 GPUs of a node keeps 2 bytes of each of the P - small elements once more, an eighth of it on a
 * GPU, and backward gathers in the node. Small are the 65 norms of 4096, which stay whole: P - small = 6738149376. qwZ
 * gathers one byte instead of two. */
static void zeropp_moves_what_it_says(void **state)
{
    sf_outcome plain, hpz, qwz;
    (void)state;
    two_nodes(NULL, NULL, &plain);
    two_nodes("strategy.zero_hpz_partition_size", "8", &hpz);
    two_nodes("strategy.zero_quantized_weights", "true", &qwz);
    assert_int_equal(hpz.memory.peak_allocated_bytes - plain.memory.peak_allocated_bytes, 2 * 6738149376u / 8);
    uint64_t whole = sf_outcome_comm_row(&plain, SF_OP_ALL_GATHER, SF_GROUP_WORLD)->bytes_per_rank;
    uint64_t small = 2 * (6738415616u - 6738149376u); /* gathered once a step */
    assert_int_equal(sf_outcome_comm_row(&hpz, SF_OP_ALL_GATHER, SF_GROUP_WORLD)->bytes_per_rank +
                         sf_outcome_comm_row(&hpz, SF_OP_ALL_GATHER, SF_GROUP_LOCAL)->bytes_per_rank, whole);
    assert_true(sf_outcome_comm_row(&hpz, SF_OP_ALL_GATHER, SF_GROUP_LOCAL)->calls > 0);
    assert_int_equal(2 * (sf_outcome_comm_row(&qwz, SF_OP_ALL_GATHER, SF_GROUP_WORLD)->bytes_per_rank - small), whole - small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peaks_are_pytorch_s),
        cmocka_unit_test(collectives_are_pytorch_s),
        cmocka_unit_test(zero_peaks_are_the_sums_of_their_terms),
        cmocka_unit_test(reported_blocks_come_out),
        cmocka_unit_test(recomputation_repeats_what_is_not_kept),
        cmocka_unit_test(products_of_blocks_are_8_bit),
        cmocka_unit_test(zeropp_moves_what_it_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
