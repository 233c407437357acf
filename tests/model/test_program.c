#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "model/program/build.h"
#include "model/program/cursor.h"
#include "model/program/plan.h"
#include "model/program/print.h"
#include "model/program/verify.h"

/* A program of one class under construction. */
typedef struct {
    sf_arena arena;
    sf_class cls;
    sf_program program;
    sf_builder b;
} fixture;

static void start(fixture *f)
{
    memset(f, 0, sizeof *f);
    f->cls = (sf_class){ .name = "rank", .n_ranks = 1 };
    f->program = (sf_program){ .strategy = "test", .world_size = 1, .ranks_per_node = 1, .n_layers = 1, .n_micro = 1,
                               .classes = &f->cls, .n_classes = 1 };
    sf_build_start(&f->b, &f->arena, &f->cls);
}

static int buffer(fixture *f, const char *name, uint64_t elems, int count, sf_stream home)
{
    return sf_build_buffer(&f->b, (sf_buffer){ .name = name, .dtype = SF_F32, .elems = elems, .count = count, .home = home });
}

static void zero(fixture *f, int b, sf_stream stream)
{
    sf_build_op(&f->b, SF_OP_ZERO, stream, NULL, SF_ARGS(sf_whole(&f->b, b, SF_WRITE)))->dims.n = 1;
}

static void read_into(fixture *f, int from, int to, sf_stream stream)
{
    sf_build_op(&f->b, SF_OP_COPY, stream, NULL, SF_ARGS(sf_whole(&f->b, from, SF_READ), sf_whole(&f->b, to, SF_WRITE)));
}

/* repeat micro 0..1 { repeat layer 2..0 { alloc; zero (guard layer <= 1); free } }
 * issues 2 * (3 allocs + 2 zeros + 3 frees) = 16 ops; layer 2 comes first and has no zero. */
static void the_cursor_unrolls_loops_and_applies_guards(void **state)
{
    (void)state;
    fixture f;
    start(&f);
    int x = buffer(&f, "x", 4, 3, SF_STREAM_COMPUTE);
    sf_build_repeat(&f.b, SF_LOOP_MICRO, 0, 2, 1);
    sf_build_repeat(&f.b, SF_LOOP_LAYER, 2, 3, -1);
    sf_build_alloc(&f.b, x, 0, 1);
    sf_op *op = sf_build_op(&f.b, SF_OP_ZERO, SF_STREAM_COMPUTE, "z", SF_ARGS(sf_whole_at(&f.b, x, 0, 1, SF_WRITE)));
    op->layer_hi = 1;
    op->accumulate = SF_ACC_AFTER_FIRST_MICRO;
    sf_build_free(&f.b, x, 0, 1);
    sf_build_end(&f.b);
    sf_build_end(&f.b);

    sf_cursor c;
    sf_issue is;
    int n = 0, zeros = 0;
    sf_cursor_start(&c, &f.cls);
    while (sf_cursor_next(&c, &is)) {
        if (n == 0) {
            assert_int_equal(is.layer, 2);
            assert_int_equal(is.at[0].instance, 2);
        }
        if (is.op->type == SF_OP_ZERO) {
            zeros++;
            assert_true(is.layer <= 1);
            assert_int_equal(is.accumulate, is.micro > 0);
        }
        assert_int_equal(is.seq, n);
        n++;
    }
    assert_int_equal(n, 16);
    assert_int_equal(zeros, 4);
    assert_int_equal(sf_program_verify(&f.program).code, SF_OK);
    sf_arena_free(&f.arena);
}

static void assert_refused(fixture *f, const char *why)
{
    sf_status st = sf_program_verify(&f->program);
    assert_int_equal(st.code, SF_EINVAL);
    if (strstr(st.msg, why) == NULL)
        fail_msg("expected '%s' in: %s", why, st.msg);
    sf_arena_free(&f->arena);
}

static void use_after_free_is_found(void **state)
{
    (void)state;
    fixture f;
    start(&f);
    int x = buffer(&f, "x", 4, 1, SF_STREAM_COMPUTE);
    sf_build_alloc(&f.b, x, 0, 0);
    zero(&f, x, SF_STREAM_COMPUTE);
    sf_build_free(&f.b, x, 0, 0);
    zero(&f, x, SF_STREAM_COMPUTE);
    assert_refused(&f, "while it is not allocated");
}

static void a_leak_is_found(void **state)
{
    (void)state;
    fixture f;
    start(&f);
    sf_build_alloc(&f.b, buffer(&f, "x", 4, 1, SF_STREAM_COMPUTE), 0, 0);
    assert_refused(&f, "never freed");
}

static void reading_what_nothing_wrote_is_found(void **state)
{
    (void)state;
    fixture f;
    start(&f);
    int x = buffer(&f, "x", 4, 1, SF_STREAM_COMPUTE), y = buffer(&f, "y", 4, 1, SF_STREAM_COMPUTE);
    sf_build_alloc(&f.b, x, 0, 0);
    sf_build_alloc(&f.b, y, 0, 0);
    read_into(&f, x, y, SF_STREAM_COMPUTE);
    assert_refused(&f, "nothing has written");
}

/* comm writes, compute reads: a race without an event, none with one. */
static void a_read_on_another_stream_needs_an_event(void **state)
{
    (void)state;
    for (int with_event = 0; with_event < 2; with_event++) {
        fixture f;
        start(&f);
        int x = buffer(&f, "x", 4, 1, SF_STREAM_COMM), y = buffer(&f, "y", 4, 1, SF_STREAM_COMPUTE);
        sf_build_alloc(&f.b, x, 0, 0);
        sf_build_alloc(&f.b, y, 0, 0);
        zero(&f, x, SF_STREAM_COMM);
        if (with_event)
            sf_build_join(&f.b, SF_STREAM_COMM, SF_STREAM_COMPUTE);
        read_into(&f, x, y, SF_STREAM_COMPUTE);
        sf_build_join(&f.b, SF_STREAM_COMPUTE, SF_STREAM_COMM);
        sf_build_free(&f.b, x, 0, 0);
        sf_build_free(&f.b, y, 0, 0);
        if (!with_event) {
            assert_refused(&f, "not ordered after the last write");
            continue;
        }
        assert_int_equal(sf_program_verify(&f.program).code, SF_OK);
        sf_arena_free(&f.arena);
    }
}

/* The home stream must know that the other stream's read is over before the memory is reused. */
static void freeing_while_another_stream_reads_is_found(void **state)
{
    (void)state;
    fixture f;
    start(&f);
    int x = buffer(&f, "x", 4, 1, SF_STREAM_COMM), y = buffer(&f, "y", 4, 1, SF_STREAM_COMPUTE);
    sf_build_alloc(&f.b, x, 0, 0);
    sf_build_alloc(&f.b, y, 0, 0);
    zero(&f, x, SF_STREAM_COMM);
    sf_build_join(&f.b, SF_STREAM_COMM, SF_STREAM_COMPUTE);
    read_into(&f, x, y, SF_STREAM_COMPUTE);
    sf_build_free(&f.b, x, 0, 0);
    sf_build_free(&f.b, y, 0, 0);
    assert_refused(&f, "is freed while an access on another stream");
}

static void overwriting_what_is_still_read_is_found(void **state)
{
    (void)state;
    fixture f;
    start(&f);
    int x = buffer(&f, "x", 4, 1, SF_STREAM_COMPUTE), y = buffer(&f, "y", 4, 1, SF_STREAM_COMM);
    f.cls.buffers[x].persistent = f.cls.buffers[y].persistent = true;
    read_into(&f, x, y, SF_STREAM_COMM);
    zero(&f, x, SF_STREAM_COMPUTE);
    assert_refused(&f, "an earlier read may still run");
}

static void a_span_outside_its_buffer_is_found(void **state)
{
    (void)state;
    fixture f;
    start(&f);
    int x = buffer(&f, "x", 4, 1, SF_STREAM_COMPUTE);
    f.cls.buffers[x].persistent = true;
    sf_build_op(&f.b, SF_OP_ZERO, SF_STREAM_COMPUTE, NULL, SF_ARGS(sf_span(x, 2, 3, SF_WRITE)));
    assert_refused(&f, "elements 2..5 of x, which has 4");
}

static void classes_must_agree_on_their_collectives(void **state)
{
    (void)state;
    fixture f;
    sf_class two[2];
    start(&f);
    for (int c = 0; c < 2; c++) {
        two[c] = (sf_class){ .name = c == 0 ? "a" : "b", .n_ranks = 1, .first_rank = c };
        sf_build_start(&f.b, &f.arena, &two[c]);
        int x = sf_build_buffer(&f.b, (sf_buffer){ .name = "x", .dtype = SF_F32, .elems = 8, .count = 1, .persistent = true });
        sf_op *op = sf_build_op(&f.b, SF_OP_ALL_REDUCE, SF_STREAM_COMM, "x", SF_ARGS(sf_whole(&f.b, x, SF_READWRITE)));
        op->dims.n = c == 0 ? 8 : 4;
    }
    f.program.classes = two;
    f.program.n_classes = 2;
    f.program.world_size = 2;
    assert_refused(&f, "all_reduce of 8 and all_reduce of 4 elements");
}

/* x (1024 B) is freed before y is allocated: y takes its place, so the block is 1024 B, as the peak. */
static void the_planner_reuses_freed_memory_of_the_same_stream(void **state)
{
    (void)state;
    fixture f;
    sf_plan plan;
    start(&f);
    int x = buffer(&f, "x", 256, 1, SF_STREAM_COMPUTE), y = buffer(&f, "y", 256, 1, SF_STREAM_COMPUTE);
    sf_build_alloc(&f.b, x, 0, 0);
    zero(&f, x, SF_STREAM_COMPUTE);
    sf_build_free(&f.b, x, 0, 0);
    sf_build_alloc(&f.b, y, 0, 0);
    zero(&f, y, SF_STREAM_COMPUTE);
    sf_build_free(&f.b, y, 0, 0);
    assert_int_equal(sf_plan_make(&f.cls, &f.arena, &plan).code, SF_OK);
    assert_int_equal(plan.arena_bytes[SF_SPACE_DEVICE], 1024);
    assert_int_equal(plan.live_peak_bytes[SF_SPACE_DEVICE], 1024);
    assert_int_equal(plan.n_allocs, 2);
    assert_int_equal(plan.alloc_offset[0], plan.alloc_offset[1]);
    sf_arena_free(&f.arena);
}

/* The same with y on another stream that nothing orders after x's last use: no reuse. */
static void the_planner_keeps_unordered_streams_apart(void **state)
{
    (void)state;
    for (int ordered = 0; ordered < 2; ordered++) {
        fixture f;
        sf_plan plan;
        start(&f);
        int x = buffer(&f, "x", 256, 1, SF_STREAM_COMPUTE), y = buffer(&f, "y", 256, 1, SF_STREAM_COMM);
        sf_build_alloc(&f.b, x, 0, 0);
        zero(&f, x, SF_STREAM_COMPUTE);
        sf_build_free(&f.b, x, 0, 0);
        if (ordered)
            sf_build_join(&f.b, SF_STREAM_COMPUTE, SF_STREAM_COMM);
        sf_build_alloc(&f.b, y, 0, 0);
        zero(&f, y, SF_STREAM_COMM);
        sf_build_free(&f.b, y, 0, 0);
        assert_int_equal(sf_plan_make(&f.cls, &f.arena, &plan).code, SF_OK);
        assert_int_equal(plan.arena_bytes[SF_SPACE_DEVICE], ordered ? 1024 : 2048);
        sf_arena_free(&f.arena);
    }
}

/* Two freed neighbours of 1024 B serve one request of 2048 B. */
static void the_planner_joins_neighbouring_holes(void **state)
{
    (void)state;
    fixture f;
    sf_plan plan;
    start(&f);
    int a = buffer(&f, "a", 256, 2, SF_STREAM_COMPUTE), z = buffer(&f, "z", 256, 1, SF_STREAM_COMPUTE);
    int big = buffer(&f, "big", 512, 1, SF_STREAM_COMPUTE);
    sf_build_alloc(&f.b, a, 0, 0);
    sf_build_alloc(&f.b, a, 1, 0);
    sf_build_alloc(&f.b, z, 0, 0);
    sf_build_free(&f.b, a, 1, 0);
    sf_build_free(&f.b, a, 0, 0);
    sf_build_alloc(&f.b, big, 0, 0);
    sf_build_free(&f.b, big, 0, 0);
    sf_build_free(&f.b, z, 0, 0);
    assert_int_equal(sf_plan_make(&f.cls, &f.arena, &plan).code, SF_OK);
    assert_int_equal(plan.arena_bytes[SF_SPACE_DEVICE], 3072);
    sf_arena_free(&f.arena);
}

static void every_op_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (int i = 0; i < SF_OP_COUNT; i++)
        assert_int_equal(sf_op_by_name(sf_op_name((sf_op_type)i)), i);
    assert_int_equal(sf_op_by_name("nonsense"), SF_OP_COUNT);
}

static void a_program_prints_one_line_per_op(void **state)
{
    (void)state;
    fixture f;
    sf_text text = { 0 };
    start(&f);
    int x = buffer(&f, "x", 262144, 3, SF_STREAM_COMM);
    sf_build_repeat(&f.b, SF_LOOP_LAYER, 0, 3, 1);
    sf_build_alloc(&f.b, x, 1, 1)->layer_hi = 1;
    sf_op *op = sf_build_op(&f.b, SF_OP_ALL_REDUCE, SF_STREAM_COMM, "bucket", SF_ARGS(sf_whole_at(&f.b, x, 0, 1, SF_READWRITE)));
    op->dims.n = 262144;
    sf_build_end(&f.b);
    sf_program_print(&f.program, &text);
    assert_string_equal(sf_text_str(&text), "program test: 1 rank, 1 layers, 1 micro-step\n"
                                            "class rank: rank 0\n"
                                            "  buffer x 3 x 262144 f32 = 1.0 MiB  parameters  home comm\n"
                                            "  repeat layer 0..2\n"
                                            "    0 comm alloc >x[layer+1]  when layer <= 1\n"
                                            "    1 comm all_reduce bucket *x[layer]  world 1.0 MiB\n");
    sf_text_free(&text);
    sf_arena_free(&f.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cursor_unrolls_loops_and_applies_guards),
        cmocka_unit_test(use_after_free_is_found),
        cmocka_unit_test(a_leak_is_found),
        cmocka_unit_test(reading_what_nothing_wrote_is_found),
        cmocka_unit_test(a_read_on_another_stream_needs_an_event),
        cmocka_unit_test(freeing_while_another_stream_reads_is_found),
        cmocka_unit_test(overwriting_what_is_still_read_is_found),
        cmocka_unit_test(a_span_outside_its_buffer_is_found),
        cmocka_unit_test(classes_must_agree_on_their_collectives),
        cmocka_unit_test(the_planner_reuses_freed_memory_of_the_same_stream),
        cmocka_unit_test(the_planner_keeps_unordered_streams_apart),
        cmocka_unit_test(the_planner_joins_neighbouring_holes),
        cmocka_unit_test(every_op_has_a_name_of_its_own),
        cmocka_unit_test(a_program_prints_one_line_per_op),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
