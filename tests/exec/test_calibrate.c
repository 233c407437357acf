/* Calibration measures every op that executors run, and communication on threads. No figure is judged. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "exec/calibrate.h"

static void assert_curve(const sf_curve *c, const char *what)
{
    if (c->n < 2)
        fail_msg("%s has %d points", what, c->n);
    for (int i = 0; i < c->n; i++)
        assert_true(c->s[i] > 0 && c->s[i] < 60 && c->x[i] > (i > 0 ? c->x[i - 1] : 0));
}

static void every_op_of_one_rank_is_measured(void **state)
{
    (void)state;
    sf_profile_set *set = calloc(1, sizeof *set);
    sf_comm *comm;

    assert_int_equal(sf_comm_self_open(&comm).code, SF_OK);
    sf_status st = sf_calibrate(comm, SF_CALIBRATE_QUICK, true, set);
    assert_string_equal(st.msg, "");
    sf_comm_close(comm);
    for (int op = 0; op < SF_OP_COUNT; op++) {
        sf_op_kind kind = sf_op_kind_of((sf_op_type)op);
        bool copy = op == SF_OP_COPY_H2D || op == SF_OP_COPY_D2H; /* the host's copies are COPY */
        if (kind != SF_KIND_FRAME && !copy && !sf_profile_has(set, (sf_op_type)op))
            fail_msg("op %s was not measured", sf_op_name((sf_op_type)op));
        for (int d = 0; d < SF_PROFILE_DTYPES; d++)
            if (set->kernel[d][op].n > 0)
                assert_curve(&set->kernel[d][op], sf_op_name((sf_op_type)op));
    }
    for (int d = 0; d < SF_PROFILE_DTYPES; d++)
        for (int f = 0; f < SF_PROFILE_FORMS; f++)
            assert_true(sf_gemm_grid_at(&set->gemm[d][f], 128, 128, 128) > 1e6);
    assert_true(set->issue_s > 0 && set->handoff_s > 0);
    free(set);
}

typedef struct {
    sf_comm *comm;
    sf_profile_set *set;
    sf_status st;
} rank;

static void *calibrate_rank(void *arg)
{
    rank *r = arg;
    r->st = sf_calibrate(r->comm, SF_CALIBRATE_QUICK, false, r->set);
    return NULL;
}

static void every_collective_of_two_threads_is_measured_alike_on_both(void **state)
{
    (void)state;
    sf_profile_set *sets = calloc(2, sizeof *sets);
    sf_comm *comms[2];
    rank ranks[2];
    pthread_t threads[2];

    assert_int_equal(sf_comm_threads_open(2, 2, comms).code, SF_OK);
    for (int r = 0; r < 2; r++) {
        ranks[r] = (rank){ .comm = comms[r], .set = &sets[r] };
        pthread_create(&threads[r], NULL, calibrate_rank, &ranks[r]);
    }
    for (int r = 0; r < 2; r++)
        pthread_join(threads[r], NULL);
    for (int r = 0; r < 2; r++) {
        assert_string_equal(ranks[r].st.msg, "");
        sf_comm_close(comms[r]);
    }
    for (int op = 0; op < SF_OP_COUNT; op++)
        if (sf_op_kind_of((sf_op_type)op) == SF_KIND_COMM)
            assert_curve(&sets[0].collective[0][op].time, sf_op_name((sf_op_type)op));
    assert_memory_equal(sets[0].collective, sets[1].collective, sizeof sets[0].collective);
    assert_true(sets[0].threads);
    assert_true(sets[0].overlap_slowdown >= 1);
    free(sets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_of_one_rank_is_measured),
        cmocka_unit_test(every_collective_of_two_threads_is_measured_alike_on_both),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
