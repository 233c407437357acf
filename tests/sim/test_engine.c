#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "model/program/build.h"
#include "sim/engine.h"

/* Ops cost dims.n milliseconds and one core. */
static sf_sim_cost by_dims(void *ctx, const sf_class *cls, const sf_issue *is, int rank)
{
    (void)ctx;
    (void)cls;
    (void)rank;
    return (sf_sim_cost){ .seconds = 1e-3 * (double)is->op->dims.n, .cores = 1 };
}

typedef struct {
    sf_arena arena;
    sf_class cls;
    sf_program program;
    sf_builder b;
    int x;
} fixture;

static void start(fixture *f, int ranks)
{
    memset(f, 0, sizeof *f);
    f->cls = (sf_class){ .name = "rank", .n_ranks = ranks };
    f->program = (sf_program){ .strategy = "test", .world_size = ranks, .ranks_per_node = ranks, .n_layers = 1, .n_micro = 1,
                               .classes = &f->cls, .n_classes = 1 };
    sf_build_start(&f->b, &f->arena, &f->cls);
    f->x = sf_build_buffer(&f->b, (sf_buffer){ .name = "x", .dtype = SF_F32, .elems = 1, .count = 1, .persistent = true });
}

static void op(fixture *f, sf_op_type type, sf_stream stream, int milliseconds)
{
    sf_build_op(&f->b, type, stream, NULL, SF_ARGS(sf_whole(&f->b, f->x, SF_READWRITE)))->dims.n = milliseconds;
}

static sf_sim_result simulate(fixture *f, sf_sim_options options)
{
    sf_sim_result result;
    if (options.cost == NULL)
        options.cost = by_dims;
    if (options.overlap_rate == 0)
        options.overlap_rate = 1;
    sf_status st = sf_simulate(&f->program, &options, &f->arena, &result);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    return result;
}

static void assert_ms(double seconds, double ms)
{
    if (fabs(seconds * 1e3 - ms) > 1e-9)
        fail_msg("%.9f ms, expected %.9f ms", seconds * 1e3, ms);
}

/* compute 4, then all_reduce 3 on comm behind compute 5, then compute 2 that waits for it:
 * 4 + max(3, 5) + 2 = 11 ms. */
static void communication_hides_behind_compute(void **state)
{
    (void)state;
    fixture f;
    start(&f, 1);
    op(&f, SF_OP_ZERO, SF_STREAM_COMPUTE, 4);
    sf_build_join(&f.b, SF_STREAM_COMPUTE, SF_STREAM_COMM);
    op(&f, SF_OP_ALL_REDUCE, SF_STREAM_COMM, 3);
    op(&f, SF_OP_ZERO, SF_STREAM_COMPUTE, 5);
    sf_build_join(&f.b, SF_STREAM_COMM, SF_STREAM_COMPUTE);
    op(&f, SF_OP_ZERO, SF_STREAM_COMPUTE, 2);
    sf_sim_result r = simulate(&f, (sf_sim_options){ 0 });
    assert_ms(r.step_s, 11);
    assert_int_equal(r.n_spans, 4);
    sf_arena_free(&f.arena);
}

/* The same with an all_reduce of 9: 4 + 9 + 2 = 15 ms. */
static void long_communication_is_exposed(void **state)
{
    (void)state;
    fixture f;
    start(&f, 1);
    op(&f, SF_OP_ZERO, SF_STREAM_COMPUTE, 4);
    sf_build_join(&f.b, SF_STREAM_COMPUTE, SF_STREAM_COMM);
    op(&f, SF_OP_ALL_REDUCE, SF_STREAM_COMM, 9);
    op(&f, SF_OP_ZERO, SF_STREAM_COMPUTE, 5);
    sf_build_join(&f.b, SF_STREAM_COMM, SF_STREAM_COMPUTE);
    op(&f, SF_OP_ZERO, SF_STREAM_COMPUTE, 2);
    assert_ms(simulate(&f, (sf_sim_options){ 0 }).step_s, 15);
    sf_arena_free(&f.arena);
}

/* One rank, one core, two streams of 6 ms each at once: both at half speed, 12 ms. On a node with
 * 4 such ranks and 4 cores: 8 threads on 4 cores, again 12 ms. */
static void streams_share_the_cores_of_their_node(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks += 3) {
        fixture f;
        start(&f, ranks);
        op(&f, SF_OP_ZERO, SF_STREAM_COMPUTE, 6);
        op(&f, SF_OP_ALL_REDUCE, SF_STREAM_COMM, 6);
        assert_ms(simulate(&f, (sf_sim_options){ .cores_per_node = ranks }).step_s, 12);
        sf_arena_free(&f.arena);
    }
}

/* One core: compute 6 alone until comm joins at once; comm 2 at half speed ends at 4, compute has 4
 * left at full speed: 8 ms. */
static void a_core_that_becomes_free_speeds_the_other_up(void **state)
{
    (void)state;
    fixture f;
    start(&f, 1);
    op(&f, SF_OP_ZERO, SF_STREAM_COMPUTE, 6);
    op(&f, SF_OP_ALL_REDUCE, SF_STREAM_COMM, 2);
    assert_ms(simulate(&f, (sf_sim_options){ .cores_per_node = 1 }).step_s, 8);
    sf_arena_free(&f.arena);
}

/* A device whose compute runs at 0.5 while a collective of 4 runs: 10 ms of work does 2 in the first
 * 4 ms and 8 afterwards: 12 ms. */
static void compute_is_slower_behind_a_collective(void **state)
{
    (void)state;
    fixture f;
    start(&f, 1);
    op(&f, SF_OP_ALL_REDUCE, SF_STREAM_COMM, 4);
    op(&f, SF_OP_ZERO, SF_STREAM_COMPUTE, 10);
    assert_ms(simulate(&f, (sf_sim_options){ .overlap_rate = 0.5 }).step_s, 12);
    sf_arena_free(&f.arena);
}

/* Launching takes 3 ms an op, ops take 1: the fourth starts at 9 ms and ends at 10. */
static void small_ops_are_bound_by_their_launch(void **state)
{
    (void)state;
    fixture f;
    start(&f, 1);
    for (int i = 0; i < 4; i++)
        op(&f, SF_OP_ZERO, SF_STREAM_COMPUTE, 1);
    assert_ms(simulate(&f, (sf_sim_options){ .issue_s = 3e-3 }).step_s, 10);
    sf_arena_free(&f.arena);
}

static double issue_by_dims(void *ctx, const sf_class *cls, const sf_issue *is)
{
    (void)ctx;
    (void)cls;
    return 2e-3 * (double)is->op->dims.n;
}

/* Ops of 1, 3 and 2 ms whose launches take twice as long, 2, 6 and 4: they are launched at 0, 2 and 8 ms; the last ends at 10. */
static void each_op_has_its_own_launch(void **state)
{
    (void)state;
    fixture f;
    start(&f, 1);
    op(&f, SF_OP_ZERO, SF_STREAM_COMPUTE, 1);
    op(&f, SF_OP_ZERO, SF_STREAM_COMPUTE, 3);
    op(&f, SF_OP_ZERO, SF_STREAM_COMPUTE, 2);
    assert_ms(simulate(&f, (sf_sim_options){ .issue = issue_by_dims }).step_s, 10);
    sf_arena_free(&f.arena);
}

/* A HOST_SYNC after each pair: the first op of a pair starts at once, the second not before its launch
 * at 3 ms and ends at 4; only then does the host go on. Four pairs: 16 ms. */
static void a_host_sync_holds_the_launches(void **state)
{
    (void)state;
    fixture f;
    start(&f, 1);
    for (int i = 0; i < 4; i++) {
        op(&f, SF_OP_ZERO, SF_STREAM_COMPUTE, 1);
        op(&f, SF_OP_ZERO, SF_STREAM_COMPUTE, 1);
        sf_build_op(&f.b, SF_OP_HOST_SYNC, SF_STREAM_COMPUTE, NULL, 0, NULL);
    }
    assert_ms(simulate(&f, (sf_sim_options){ .issue_s = 3e-3 }).step_s, 16);
    sf_arena_free(&f.arena);
}

static sf_sim_cost slow_rank(void *ctx, const sf_class *cls, const sf_issue *is, int rank)
{
    sf_sim_cost c = by_dims(ctx, cls, is, rank);
    if (rank == 2 && is->op->type == SF_OP_ZERO)
        c.seconds *= 3;
    return c;
}

/* Compute 2, all_reduce 1, four ranks; rank 2 takes 6: all end at 7, the others have waited 4. */
static void a_collective_starts_when_the_last_rank_arrives(void **state)
{
    (void)state;
    fixture f;
    start(&f, 4);
    op(&f, SF_OP_ZERO, SF_STREAM_COMPUTE, 2);
    sf_build_join(&f.b, SF_STREAM_COMPUTE, SF_STREAM_COMM);
    op(&f, SF_OP_ALL_REDUCE, SF_STREAM_COMM, 1);
    sf_sim_result r = simulate(&f, (sf_sim_options){ .every_rank = true, .cost = slow_rank });
    assert_int_equal(r.n_actors, 4);
    assert_ms(r.step_s, 7);
    assert_ms(r.actor_wait_s[0], 4);
    assert_ms(r.actor_wait_s[2], 0);
    sf_arena_free(&f.arena);
}

/* Where all ranks are alike one representative gives the same time as all of them. */
static void one_representative_equals_all_ranks(void **state)
{
    (void)state;
    double step[2];
    for (int all = 0; all < 2; all++) {
        fixture f;
        start(&f, 4);
        for (int i = 0; i < 10; i++) {
            op(&f, SF_OP_ZERO, SF_STREAM_COMPUTE, 2 + i % 3);
            sf_build_join(&f.b, SF_STREAM_COMPUTE, SF_STREAM_COMM);
            op(&f, SF_OP_ALL_REDUCE, SF_STREAM_COMM, 1 + i % 4);
        }
        step[all] = simulate(&f, (sf_sim_options){ .every_rank = all == 1, .cores_per_node = 6 }).step_s;
        sf_arena_free(&f.arena);
    }
    assert_true(fabs(step[0] - step[1]) < 1e-9);
}

/* A wait for what comes later in issue order can never end. */
static void a_program_that_hangs_is_an_error(void **state)
{
    (void)state;
    fixture f;
    start(&f, 2);
    sf_class two[2] = { f.cls, f.cls };
    two[0].n_ranks = two[1].n_ranks = 1;
    two[1].first_rank = 1;
    f.program.classes = two;
    f.program.n_classes = 2;
    sf_build_start(&f.b, &f.arena, &two[0]);
    op(&f, SF_OP_ALL_REDUCE, SF_STREAM_COMM, 1);
    sf_sim_result r;
    sf_sim_options o = { .cost = by_dims, .overlap_rate = 1 };
    sf_status st = sf_simulate(&f.program, &o, &f.arena, &r);
    assert_int_equal(st.code, SF_EINVAL);
    assert_non_null(strstr(st.msg, "hangs"));
    sf_arena_free(&f.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(communication_hides_behind_compute),
        cmocka_unit_test(long_communication_is_exposed),
        cmocka_unit_test(streams_share_the_cores_of_their_node),
        cmocka_unit_test(a_core_that_becomes_free_speeds_the_other_up),
        cmocka_unit_test(compute_is_slower_behind_a_collective),
        cmocka_unit_test(small_ops_are_bound_by_their_launch),
        cmocka_unit_test(each_op_has_its_own_launch),
        cmocka_unit_test(a_host_sync_holds_the_launches),
        cmocka_unit_test(a_collective_starts_when_the_last_rank_arrives),
        cmocka_unit_test(one_representative_equals_all_ranks),
        cmocka_unit_test(a_program_that_hangs_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
