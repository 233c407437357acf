/* The caching allocator's rules, case by case. Sizes are those of the documented constants. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/cost/allocator.h"

enum { KIB = 1 << 10, MIB = 1 << 20 };

static sf_allocator *fresh(uint64_t capacity_bytes, bool expandable)
{
    return sf_allocator_new(&(sf_allocator_options){ .capacity_bytes = capacity_bytes, .expandable = expandable });
}

#define STAT(a, field) (sf_allocator_stats_of(a)->field)

static void requests_make_segments_by_their_size(void **state)
{
    (void)state;
    static const struct {
        uint64_t request, reserved, allocated;
    } cases[] = {
        { 1, 2 * MIB, 512 },                             /* small pool                          */
        { 512, 2 * MIB, 512 },
        { 1 * MIB, 2 * MIB, 1 * MIB },
        { 1 * MIB + 1, 20 * MIB, 1 * MIB + 512 },        /* large pool, below 10 MiB            */
        { 10 * MIB, 10 * MIB, 10 * MIB },                /* from 10 MiB: rounded up to 2 MiB    */
        { 10 * MIB + 512, 12 * MIB, 10 * MIB + 512 },
        { 11 * MIB + 512, 12 * MIB, 12 * MIB },          /* what is left is below 1 MiB: kept whole */
        { 8519680, 20 * MIB, 8519680 },                  /* cuBLAS' workspace before Hopper     */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sf_allocator *a = fresh(0, false);
        assert_true(sf_allocator_take(a, cases[i].request, 0) >= 0);
        assert_int_equal(STAT(a, reserved), cases[i].reserved);
        assert_int_equal(STAT(a, allocated), cases[i].allocated);
        sf_allocator_free(a);
    }
}

/* Two of 10 MiB - 512 B share a segment of 20 MiB: 10 MiB + 512 B remain after the first. */
static void a_segment_is_split_among_requests(void **state)
{
    (void)state;
    sf_allocator *a = fresh(0, false);
    sf_allocator_take(a, 10 * MIB - 512, 0);
    sf_allocator_take(a, 10 * MIB - 512, 0);
    assert_int_equal(STAT(a, reserved), 20 * MIB);
    sf_allocator_free(a);
}

static void freed_neighbours_merge_and_are_reused(void **state)
{
    (void)state;
    sf_allocator *a = fresh(0, false);
    int x = sf_allocator_take(a, 4 * MIB, 0), y = sf_allocator_take(a, 4 * MIB, 0), z = sf_allocator_take(a, 4 * MIB, 0);
    sf_allocator_give(a, x, 0);
    sf_allocator_give(a, z, 0);
    sf_allocator_give(a, y, 0);
    assert_int_equal(STAT(a, allocated), 0);
    int whole = sf_allocator_take(a, 20 * MIB, 0);
    assert_true(whole >= 0);
    assert_int_equal(STAT(a, reserved), 20 * MIB); /* the merged segment served it */
    sf_allocator_free(a);
}

/* The smallest block that is large enough: 30 MiB is left for the second request. */
static void the_best_fit_is_taken(void **state)
{
    (void)state;
    sf_allocator *a = fresh(0, false);
    int big = sf_allocator_take(a, 30 * MIB, 0), small = sf_allocator_take(a, 12 * MIB, 0);
    sf_allocator_give(a, big, 0);
    sf_allocator_give(a, small, 0);
    sf_allocator_take(a, 12 * MIB, 0);
    sf_allocator_take(a, 30 * MIB, 0);
    assert_int_equal(STAT(a, reserved), 42 * MIB);
    sf_allocator_free(a);
}

static void streams_do_not_share_blocks(void **state)
{
    (void)state;
    sf_allocator *a = fresh(0, false);
    sf_allocator_give(a, sf_allocator_take(a, 12 * MIB, 0), 0);
    sf_allocator_take(a, 12 * MIB, 1);
    assert_int_equal(STAT(a, reserved), 24 * MIB);
    sf_allocator_free(a);
}

/* record_stream: the block is free only after the other stream has passed. */
static void a_block_used_elsewhere_waits_for_that_stream(void **state)
{
    (void)state;
    sf_allocator *a = fresh(0, false);
    int x = sf_allocator_take(a, 12 * MIB, 0);
    sf_allocator_give(a, x, 1u << 2);
    assert_int_equal(STAT(a, allocated), 0);
    assert_int_equal(STAT(a, active), 12 * MIB);
    sf_allocator_take(a, 12 * MIB, 0);
    assert_int_equal(STAT(a, reserved), 24 * MIB);
    sf_allocator_pass(a, 2);
    sf_allocator_take(a, 12 * MIB, 0);
    assert_int_equal(STAT(a, reserved), 24 * MIB);
    sf_allocator_free(a);
}

/* 100 MiB: 60 are cached in two free segments of 30; a request for 50 gives them back and succeeds. */
static void cached_segments_are_given_back_before_a_request_fails(void **state)
{
    (void)state;
    sf_allocator *a = fresh(100 * MIB, false);
    int x = sf_allocator_take(a, 30 * MIB, 0), y = sf_allocator_take(a, 30 * MIB, 0), z = sf_allocator_take(a, 30 * MIB, 0);
    sf_allocator_give(a, x, 0);
    sf_allocator_give(a, y, 0);
    assert_true(sf_allocator_take(a, 50 * MIB, 0) >= 0);
    assert_int_equal(STAT(a, retries), 1);
    assert_int_equal(STAT(a, reserved), 80 * MIB);
    assert_int_equal(sf_allocator_take(a, 30 * MIB, 0), -1);
    assert_true(STAT(a, failed));
    assert_int_equal(STAT(a, failed_bytes), 30 * MIB);
    assert_int_equal(STAT(a, failed_allocated), 80 * MIB);
    sf_allocator_give(a, z, 0);
    sf_allocator_free(a);
}

/* Half a segment in use pins the other half: 64 MiB are free, yet 40 in one piece are not to be had. */
static void fragmentation_fails_a_request_that_would_fit(void **state)
{
    (void)state;
    for (int expandable = 0; expandable < 2; expandable++) {
        sf_allocator *a = fresh(128 * MIB, expandable);
        int keep[4], drop[4];
        for (int i = 0; i < 4; i++) {
            drop[i] = sf_allocator_take(a, 16 * MIB, 0);
            keep[i] = sf_allocator_take(a, 16 * MIB, 0);
        }
        for (int i = 0; i < 4; i++)
            sf_allocator_give(a, drop[i], 0);
        sf_allocator_empty(a);
        int got = sf_allocator_take(a, 80 * MIB, 0);
        assert_int_equal(got, -1);
        (void)keep;
        sf_allocator_free(a);
    }
}

/* Expandable: one range grows by 20 MiB pages and its freed tail serves larger requests. */
static void an_expandable_range_grows_in_place(void **state)
{
    (void)state;
    sf_allocator *a = fresh(0, true);
    int x = sf_allocator_take(a, 30 * MIB, 0);
    assert_int_equal(STAT(a, reserved), 40 * MIB);
    sf_allocator_give(a, x, 0);
    x = sf_allocator_take(a, 70 * MIB, 0);
    assert_int_equal(STAT(a, reserved), 80 * MIB); /* not 40 + 80 */
    sf_allocator_give(a, x, 0);
    assert_int_equal(STAT(a, allocated), 0);
    sf_allocator_free(a);
}

/* Random requests: what is taken and given back leaves nothing allocated, and after empty_cache nothing
 * reserved. Seeded. */
static void everything_comes_back(void **state)
{
    (void)state;
    for (int expandable = 0; expandable < 2; expandable++) {
        sf_allocator *a = fresh(0, expandable);
        enum { LIVE = 64 };
        int live[LIVE];
        uint32_t seed = 7;
        for (int i = 0; i < LIVE; i++)
            live[i] = -1;
        for (int i = 0; i < 20000; i++) {
            seed = seed * 1664525u + 1013904223u;
            int at = (int)(seed >> 16) % LIVE;
            if (live[at] >= 0) {
                sf_allocator_give(a, live[at], (seed & 64) ? 1u << 3 : 0);
                live[at] = -1;
            } else {
                live[at] = sf_allocator_take(a, (uint64_t)(seed >> 8) % (40 * MIB) >> (seed % 12), (int)(seed >> 5) % 2);
            }
            if (i % 50 == 0)
                sf_allocator_pass(a, 3);
            assert_true(STAT(a, allocated) <= STAT(a, active) && STAT(a, active) <= STAT(a, reserved));
        }
        for (int i = 0; i < LIVE; i++)
            if (live[i] >= 0)
                sf_allocator_give(a, live[i], 0);
        sf_allocator_pass(a, 3);
        assert_int_equal(STAT(a, allocated), 0);
        assert_int_equal(STAT(a, active), 0);
        sf_allocator_empty(a);
        assert_int_equal(STAT(a, reserved), 0);
        sf_allocator_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_make_segments_by_their_size),
        cmocka_unit_test(a_segment_is_split_among_requests),
        cmocka_unit_test(freed_neighbours_merge_and_are_reused),
        cmocka_unit_test(the_best_fit_is_taken),
        cmocka_unit_test(streams_do_not_share_blocks),
        cmocka_unit_test(a_block_used_elsewhere_waits_for_that_stream),
        cmocka_unit_test(cached_segments_are_given_back_before_a_request_fails),
        cmocka_unit_test(fragmentation_fails_a_request_that_would_fit),
        cmocka_unit_test(an_expandable_range_grows_in_place),
        cmocka_unit_test(everything_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
