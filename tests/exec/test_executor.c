/* The host executor on the smallest model: results, memory, poison, failures. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "exec/host/host_ops.h"
#include "model/cost/accountant.h"
#include "model/program/verify.h"
#include "tests/exec/bigram.h"

static void run(const bigram *b, bigram_result *out)
{
    bigram_run(b, out);
    for (int r = 0; r < b->world; r++) {
        if (out->rank[r].st.code != SF_OK)
            print_error("rank %d: %s\n", r, out->rank[r].st.msg);
        assert_int_equal(out->rank[r].st.code, SF_OK);
    }
}

static const bigram plain = { .world = 1, .micro_batch = 4, .n_micro = 1, .steps = 30 };

static void every_executable_op_has_a_row_and_no_other(void **state)
{
    (void)state;
    for (int op = 0; op < SF_OP_COUNT; op++) {
        sf_op_kind kind = sf_op_kind_of((sf_op_type)op);
        bool executable = kind != SF_KIND_MEM && kind != SF_KIND_SYNC && kind != SF_KIND_FRAME;
        if ((sf_host_op_rows[op] != NULL) != executable)
            fail_msg("op %s", sf_op_name((sf_op_type)op));
    }
}

static void training_lowers_the_loss(void **state)
{
    (void)state;
    bigram_result r;

    run(&plain, &r);
    assert_true(r.rank[0].losses[0] > 2.0 && r.rank[0].losses[0] < 4.0); /* near ln 13 = 2.56 */
    assert_true(r.rank[0].losses[29] < r.rank[0].losses[0] - 0.5);
    bigram_free(&r);
}

static void the_test_programs_are_right(void **state)
{
    (void)state;
    for (int sharded = 0; sharded < 2; sharded++) {
        sf_arena arena = { 0 };
        bigram b = { .world = 3, .micro_batch = 2, .n_micro = 2, .sharded = sharded };
        sf_status st = sf_program_verify(bigram_program(&b, &arena));
        assert_string_equal(st.msg, "");
        sf_arena_free(&arena);
    }
}

static void a_run_repeated_gives_the_same_bits(void **state)
{
    (void)state;
    bigram_result a, b;
    bigram two = { .world = 2, .micro_batch = 2, .n_micro = 2, .steps = 10, .sharded = true };

    run(&two, &a);
    run(&two, &b);
    assert_memory_equal(a.rank[0].losses, b.rank[0].losses, sizeof a.rank[0].losses);
    assert_memory_equal(a.rank[0].params, b.rank[0].params, sizeof a.rank[0].params);
    bigram_free(&a);
    bigram_free(&b);
}

static void sharded_and_replicated_training_agree_to_the_bit(void **state)
{
    (void)state;
    for (int world = 1; world <= 4; world++) {
        bigram_result a, b;
        bigram cfg = { .world = world, .micro_batch = 2, .n_micro = 2, .steps = 8 };
        run(&cfg, &a);
        cfg.sharded = true;
        run(&cfg, &b);
        assert_memory_equal(a.rank[0].losses, b.rank[0].losses, sizeof a.rank[0].losses);
        for (int r = 0; r < world; r++)
            assert_memory_equal(a.rank[0].params, b.rank[r].params, sizeof a.rank[0].params);
        bigram_free(&a);
        bigram_free(&b);
    }
}

/* 1 rank of batch 8, 2 ranks of 2 x 2 micro-steps, 4 ranks of 2: the same 8 sequences a step. Sums are grouped
 * differently, so losses agree to rounding: 30 steps of f32 (eps 6e-8) on losses near 2. */
static void equal_global_batches_train_alike_however_they_are_split(void **state)
{
    (void)state;
    bigram_result a, b, c;

    run(&(bigram){ .world = 1, .micro_batch = 8, .n_micro = 1, .steps = 30 }, &a);
    run(&(bigram){ .world = 2, .micro_batch = 2, .n_micro = 2, .steps = 30 }, &b);
    run(&(bigram){ .world = 4, .micro_batch = 2, .n_micro = 1, .steps = 30, .sharded = true }, &c);
    for (int s = 0; s < 30; s++) {
        assert_true(fabs(a.rank[0].losses[s] - b.rank[0].losses[s]) < 2e-5);
        assert_true(fabs(a.rank[0].losses[s] - c.rank[0].losses[s]) < 2e-5);
    }
    bigram_free(&a);
    bigram_free(&b);
    bigram_free(&c);
}

static void bf16_with_f32_masters_trains_too(void **state)
{
    (void)state;
    bigram_result r;
    bigram b = plain;

    b.mixed = true;
    run(&b, &r);
    assert_true(r.rank[0].losses[29] < r.rank[0].losses[0] - 0.5);
    bigram_free(&r);
}

/* A clip far above any gradient norm changes nothing; a tiny one keeps directions but not sizes (AdamW hides the
 * scale itself, so the losses stay near but not equal). */
static void clipping_scales_only_gradients_above_the_norm(void **state)
{
    (void)state;
    bigram_result a, b, c;
    bigram cfg = plain;

    run(&cfg, &a);
    cfg.clip_norm = 1e6f;
    run(&cfg, &b);
    cfg.clip_norm = 1e-8f;
    run(&cfg, &c);
    assert_memory_equal(a.rank[0].losses, b.rank[0].losses, sizeof a.rank[0].losses);
    assert_true(a.rank[0].losses[20] != c.rank[0].losses[20]);
    bigram_free(&a);
    bigram_free(&b);
    bigram_free(&c);
}

static void measured_bytes_calls_and_peaks_equal_the_accounted_ones(void **state)
{
    (void)state;
    bigram_result r;
    sf_outcome accounted;
    bigram b = { .world = 3, .micro_batch = 2, .n_micro = 2, .steps = 3, .sharded = true };

    run(&b, &r);
    const sf_outcome *m = &r.rank[0].outcome;
    sf_account(r.program, 0, &r.arena, &accounted);
    assert_int_equal(m->memory.peak_allocated_bytes, accounted.memory.peak_allocated_bytes);
    assert_memory_equal(m->memory.peak_bytes, accounted.memory.peak_bytes, sizeof m->memory.peak_bytes);
    assert_memory_equal(m->memory.at_peak, accounted.memory.at_peak, sizeof m->memory.at_peak);
    assert_string_equal(m->memory.op_of_peak, accounted.memory.op_of_peak);
    assert_int_equal(m->memory.seq_of_peak, accounted.memory.seq_of_peak);
    assert_int_equal(m->n_comm, accounted.n_comm);
    for (size_t i = 0; i < accounted.n_comm; i++) {
        sf_outcome_comm *row = sf_outcome_comm_row(&r.rank[0].outcome, accounted.comm[i].collective, accounted.comm[i].group);
        assert_int_equal(row->calls, accounted.comm[i].calls);
        assert_int_equal(row->bytes_per_rank, accounted.comm[i].bytes_per_rank);
        assert_true(row->time_s > 0);
    }
    assert_int_equal(m->steps, 3);
    assert_true(m->time.step_s > 0 && m->time.op_s[SF_OP_LINEAR_FWD] > 0);
    assert_int_equal(m->time.op_calls[SF_OP_LINEAR_FWD], 2);
    bigram_free(&r);
}

static void poison_leaves_right_programs_alone(void **state)
{
    (void)state;
    bigram_result a, b;
    bigram cfg = { .world = 2, .micro_batch = 2, .n_micro = 2, .steps = 5, .sharded = true };

    run(&cfg, &a);
    for (int p = SF_POISON_PLANNED; p <= SF_POISON_SPREAD; p++) {
        cfg.poison = (sf_poison)p;
        run(&cfg, &b);
        assert_memory_equal(a.rank[0].losses, b.rank[0].losses, sizeof a.rank[0].losses);
        bigram_free(&b);
    }
    bigram_free(&a);
}

static void poison_turns_a_use_after_free_into_a_loss_that_is_no_number(void **state)
{
    (void)state;
    bigram_result r;
    bigram b = plain;

    b.free_too_early = true;
    b.poison = SF_POISON_SPREAD;
    bigram_run(&b, &r);
    assert_int_equal(r.rank[0].st.code, SF_ENUMERIC);
    assert_non_null(strstr(r.rank[0].st.msg, "the loss of step 1 is not a number"));
    bigram_free(&r);
}

/* One byte below the peak: the same allocation is refused that the accountant names, on every rank, as a result. */
static void the_allocation_that_does_not_fit_ends_the_run_as_a_result(void **state)
{
    (void)state;
    bigram_result r;
    sf_outcome free_run, accounted;
    sf_arena arena = { 0 };
    bigram b = { .world = 3, .micro_batch = 8, .n_micro = 1, .steps = 2, .sharded = true };
    const sf_program *p = bigram_program(&b, &arena);

    sf_account(p, 0, &arena, &free_run);
    b.device_memory_bytes = free_run.memory.peak_allocated_bytes - 1;
    sf_account(p, b.device_memory_bytes, &arena, &accounted);
    run(&b, &r);
    for (int i = 0; i < 3; i++) {
        const sf_outcome *o = &r.rank[i].outcome;
        assert_true(r.rank[i].full);
        assert_false(o->fits);
        assert_int_equal(o->memory.oom_request_bytes, accounted.memory.oom_request_bytes);
        assert_string_equal(o->memory.oom_op, accounted.memory.oom_op);
        assert_int_equal(o->memory.oom_seq, accounted.memory.oom_seq);
        assert_int_equal(o->memory.oom_resident_bytes, accounted.memory.oom_resident_bytes);
        assert_non_null(strstr(o->verdict, "does not fit: "));
    }
    bigram_free(&r);
    b.device_memory_bytes++; /* and with that byte it fits */
    run(&b, &r);
    assert_false(r.rank[0].full);
    assert_string_equal(r.rank[0].outcome.verdict, "fits with 0 B to spare");
    bigram_free(&r);
    sf_arena_free(&arena);
}

static void persistent_buffers_that_do_not_fit_are_a_result_too(void **state)
{
    (void)state;
    bigram_result r;
    bigram b = { .world = 2, .micro_batch = 1, .n_micro = 1, .steps = 1, .device_memory_bytes = 1000 };

    run(&b, &r);
    assert_true(r.rank[0].full && r.rank[1].full);
    assert_false(r.rank[1].outcome.fits);
    assert_string_equal(r.rank[1].outcome.memory.oom_op, "m"); /* param + m: 2 * 170 * 4 B (169 elements, padded for 2 ranks) > 1000 B */
    assert_string_equal(r.rank[1].outcome.verdict, "does not fit: 680 B for m in load, with 680 B of 1000 B in use");
    bigram_free(&r);
}

static void a_loss_that_is_no_number_names_the_step(void **state)
{
    (void)state;
    bigram_result r;
    bigram b = plain;

    b.lr = 3e38f;
    bigram_run(&b, &r);
    assert_int_equal(r.rank[0].st.code, SF_ENUMERIC);
    assert_non_null(strstr(r.rank[0].st.msg, "the loss of step "));
    assert_true(r.rank[0].n_losses >= 1); /* what came before is kept */
    bigram_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_executable_op_has_a_row_and_no_other),
        cmocka_unit_test(the_test_programs_are_right),
        cmocka_unit_test(training_lowers_the_loss),
        cmocka_unit_test(a_run_repeated_gives_the_same_bits),
        cmocka_unit_test(sharded_and_replicated_training_agree_to_the_bit),
        cmocka_unit_test(equal_global_batches_train_alike_however_they_are_split),
        cmocka_unit_test(bf16_with_f32_masters_trains_too),
        cmocka_unit_test(clipping_scales_only_gradients_above_the_norm),
        cmocka_unit_test(measured_bytes_calls_and_peaks_equal_the_accounted_ones),
        cmocka_unit_test(poison_leaves_right_programs_alone),
        cmocka_unit_test(poison_turns_a_use_after_free_into_a_loss_that_is_no_number),
        cmocka_unit_test(the_allocation_that_does_not_fit_ends_the_run_as_a_result),
        cmocka_unit_test(persistent_buffers_that_do_not_fit_are_a_result_too),
        cmocka_unit_test(a_loss_that_is_no_number_names_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
