/* Communicators of one process: one rank, and ranks that are threads. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "exec/host/block.h"
#include "exec/host/comm_shared.h"
#include "tests/exec/comm_checks.h"

enum { MAX_RANKS = 4 };

typedef struct {
    sf_comm *comm;
    sf_group group;
    char msg[300];
    sf_status st;
    void (*body)(void *rank);
} thread_rank;

static void release_nothing(void *arg)
{
    (void)arg;
}

static void *run_rank(void *arg)
{
    ((thread_rank *)arg)->body(arg);
    return NULL;
}

/* Runs `body` on `world` ranks and closes their communicators. */
static void on_ranks(int world, int per_node, sf_group group, void (*body)(void *), thread_rank *ranks)
{
    sf_comm *comms[MAX_RANKS];
    pthread_t threads[MAX_RANKS];

    assert_int_equal(sf_comm_threads_open(world, per_node, comms).code, SF_OK);
    for (int r = 0; r < world; r++) {
        ranks[r] = (thread_rank){ .comm = comms[r], .group = group, .body = body };
        assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &ranks[r]), 0);
    }
    for (int r = 0; r < world; r++)
        pthread_join(threads[r], NULL);
    for (int r = 0; r < world; r++)
        sf_comm_close(comms[r]);
}

static void check_body(void *arg)
{
    thread_rank *rank = arg;
    void *block = NULL;

    rank->st = sf_comm_memory(rank->comm, SF_COMM_CHECK_BYTES, &block);
    if (rank->st.code == SF_OK)
        sf_comm_check(rank->comm, rank->group, block, rank->msg, sizeof rank->msg);
}

static void check_world(int world, int per_node, sf_group group)
{
    thread_rank ranks[MAX_RANKS];

    on_ranks(world, per_node, group, check_body, ranks);
    for (int r = 0; r < world; r++) {
        assert_int_equal(ranks[r].st.code, SF_OK);
        assert_string_equal(ranks[r].msg, "");
    }
}

static void collectives_of_threads_give_rank_order_sums_to_the_bit(void **state)
{
    (void)state;
    for (int world = 1; world <= MAX_RANKS; world++)
        check_world(world, world, SF_GROUP_WORLD);
}

static void collectives_of_a_node_and_across_nodes_meet_only_their_group(void **state)
{
    (void)state;
    check_world(4, 2, SF_GROUP_LOCAL);
    check_world(4, 2, SF_GROUP_CROSS);
}

static void one_rank_alone_does_every_collective_as_a_copy(void **state)
{
    (void)state;
    sf_comm *comm;
    void *block;
    char msg[300] = "";

    assert_int_equal(sf_comm_self_open(&comm).code, SF_OK);
    assert_int_equal(sf_comm_memory(comm, SF_COMM_CHECK_BYTES, &block).code, SF_OK);
    sf_comm_check(comm, SF_GROUP_WORLD, block, msg, sizeof msg);
    assert_string_equal(msg, "");
    sf_comm_close(comm);
}

/* 3 calls of 10, 20 and 30 f32: 60 elements * 4 B = 240 B. */
static void calls_and_whole_array_bytes_are_counted(void **state)
{
    (void)state;
    sf_comm *comm;
    void *block;

    assert_int_equal(sf_comm_self_open(&comm).code, SF_OK);
    assert_int_equal(sf_comm_memory(comm, 4096, &block).code, SF_OK);
    for (uint64_t n = 10; n <= 30; n += 10)
        assert_int_equal(sf_comm_call(comm, SF_OP_ALL_REDUCE, SF_GROUP_WORLD, SF_F32, block, block, n).code, SF_OK);
    assert_int_equal(sf_comm_counted(comm, SF_OP_ALL_REDUCE, SF_GROUP_WORLD)->calls, 3);
    assert_int_equal(sf_comm_counted(comm, SF_OP_ALL_REDUCE, SF_GROUP_WORLD)->bytes, 240);
    assert_int_equal(sf_comm_counted(comm, SF_OP_ALL_GATHER, SF_GROUP_WORLD)->calls, 0);
    sf_comm_close(comm);
}

static void exchange_body(void *arg)
{
    thread_rank *rank = arg;
    char mine[5000], all[3 * 5000];

    memset(mine, 'a' + sf_comm_rank(rank->comm), sizeof mine); /* longer than what is handed over at a time */
    rank->st = sf_comm_exchange(rank->comm, mine, sizeof mine, all);
    for (int i = 0; i < 3 * 5000; i++)
        if (all[i] != 'a' + i / 5000)
            snprintf(rank->msg, sizeof rank->msg, "byte %d is '%c'", i, all[i]);
}

static void exchange_gives_every_rank_all_records(void **state)
{
    (void)state;
    thread_rank ranks[MAX_RANKS];

    on_ranks(3, 3, SF_GROUP_WORLD, exchange_body, ranks);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(ranks[r].st.code, SF_OK);
        assert_string_equal(ranks[r].msg, "");
    }
}

static void stop_body(void *arg)
{
    thread_rank *rank = arg;
    void *block = NULL;

    rank->st = sf_comm_memory(rank->comm, 4096, &block);
    if (sf_comm_rank(rank->comm) == 1)
        sf_comm_stop(rank->comm, SF_STOP_FULL, "out of device memory", "note", 5);
    else
        rank->st = sf_comm_call(rank->comm, SF_OP_ALL_REDUCE, SF_GROUP_WORLD, SF_F32, block, block, 8);
}

static void a_stop_ends_the_ranks_that_wait_and_says_who_and_why(void **state)
{
    (void)state;
    thread_rank ranks[MAX_RANKS];

    on_ranks(3, 3, SF_GROUP_WORLD, stop_body, ranks);
    assert_int_equal(ranks[0].st.code, SF_ECOMM);
    assert_string_equal(ranks[0].st.msg, "rank 1 ended the run: out of device memory");
    assert_string_equal(ranks[2].st.msg, "rank 1 ended the run: out of device memory");
}

/* Two processes that share a region as ranks of one node do; the second dies instead of calling. */
static void the_death_of_a_process_is_noticed_by_the_rank_that_waits_for_it(void **state)
{
    (void)state;
    sf_host_block block;
    sf_comm *comm;
    char all[2];

    assert_int_equal(sf_host_block_share(sf_shared_region_bytes(2), &block).code, SF_OK);
    sf_shared_region_start(block.base, 2);
    pid_t child = fork();
    if (child == 0) {
        sf_shared_open(block.base, true, 1, 2, release_nothing, NULL, &comm);
        sf_comm_exchange(comm, "b", 1, all);
        _exit(0); /* not reaped: a zombie, as under a launcher that is slow to look */
    }
    assert_int_equal(sf_shared_open(block.base, true, 0, 2, release_nothing, NULL, &comm).code, SF_OK);
    assert_int_equal(sf_comm_exchange(comm, "a", 1, all).code, SF_OK);
    assert_memory_equal(all, "ab", 2);
    sf_status st = sf_comm_exchange(comm, "a", 1, all);
    assert_int_equal(st.code, SF_ECOMM);
    assert_non_null(strstr(st.msg, "rank 1 was lost: its process"));
    sf_comm_close(comm);
    waitpid(child, NULL, 0);
    sf_host_block_give(&block);
}

static void mismatch_body(void *arg)
{
    thread_rank *rank = arg;
    void *block = NULL;

    rank->st = sf_comm_memory(rank->comm, 4096, &block);
    rank->st = sf_comm_call(rank->comm, SF_OP_ALL_REDUCE, SF_GROUP_WORLD, SF_F32, block, block, sf_comm_rank(rank->comm) == 0 ? 8 : 9);
}

static void ranks_that_call_different_collectives_are_told(void **state)
{
    (void)state;
    thread_rank ranks[MAX_RANKS];

    on_ranks(2, 2, SF_GROUP_WORLD, mismatch_body, ranks);
    assert_int_equal(ranks[0].st.code, SF_ECOMM);
    assert_non_null(strstr(ranks[0].st.msg, "rank 0 calls all_reduce of 8 f32 while rank 1 calls all_reduce of 9 f32"));
}

static void sizes_that_do_not_divide_are_refused_where_parts_must_be_equal(void **state)
{
    (void)state;
    sf_comm *comms[3];
    char x[64];

    assert_int_equal(sf_comm_threads_open(3, 3, comms).code, SF_OK);
    sf_status st = sf_comm_call(comms[0], SF_OP_ALL_GATHER, SF_GROUP_WORLD, SF_F32, x, x, 7);
    assert_int_equal(st.code, SF_EINVAL);
    assert_string_equal(st.msg, "all_gather of 7 elements does not divide over 3 ranks");
    assert_int_equal(sf_comm_call(comms[0], SF_OP_ALL_REDUCE, SF_GROUP_WORLD, SF_I32, x, x, 6).code, SF_EUNSUP);
    for (int r = 0; r < 3; r++)
        sf_comm_close(comms[r]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_of_threads_give_rank_order_sums_to_the_bit),
        cmocka_unit_test(collectives_of_a_node_and_across_nodes_meet_only_their_group),
        cmocka_unit_test(one_rank_alone_does_every_collective_as_a_copy),
        cmocka_unit_test(calls_and_whole_array_bytes_are_counted),
        cmocka_unit_test(exchange_gives_every_rank_all_records),
        cmocka_unit_test(a_stop_ends_the_ranks_that_wait_and_says_who_and_why),
        cmocka_unit_test(the_death_of_a_process_is_noticed_by_the_rank_that_waits_for_it),
        cmocka_unit_test(ranks_that_call_different_collectives_are_told),
        cmocka_unit_test(sizes_that_do_not_divide_are_refused_where_parts_must_be_equal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
