/* `shardfit collective`, through the program itself (SHARDFIT names it, SHARDFIT_LOGS the logs). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>

#include "model/base/text.h"

static sf_text output;

/* Runs `shardfit collective ARGS`, keeps what it prints on stdout (or stderr), and gives its exit code. */
static int collective(const char *arguments, bool errors)
{
    char line[1024], piece[4096];
    snprintf(line, sizeof line, "'%s' collective %s %s", getenv("SHARDFIT"), arguments, errors ? "2>&1 >/dev/null" : "2>/dev/null");
    sf_text_free(&output);
    output = (sf_text){ 0 };
    FILE *pipe = popen(line, "r");
    assert_non_null(pipe);
    for (size_t n; (n = fread(piece, 1, sizeof piece, pipe)) > 0;)
        sf_text_append(&output, piece, n);
    return WEXITSTATUS(pclose(pipe));
}

static json_t *collective_json(const char *arguments)
{
    json_error_t error;
    assert_int_equal(collective(arguments, false), 0);
    json_t *root = json_loads(sf_text_str(&output), 0, &error);
    assert_non_null(root);
    return root;
}

static double number(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

/* 1M:1G by 2 is 11 rows; 4M:64M by 4 is 3. */
static void a_sweep_has_a_row_per_size_with_consistent_bandwidths(void **state)
{
    (void)state;
    json_t *root = collective_json("all_reduce --gpu H100-SXM --gpus 8 --nodes 2 --nics 8 --gbit 400 --sizes 1M:1G --json");
    json_t *rows = json_object_get(root, "rows");
    assert_int_equal(json_array_size(rows), 11);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i);
        assert_true(number(row, "bytes") == (double)(1048576ull << i));
        assert_true(fabs(number(row, "algbw_Bps") * number(row, "time_s") / number(row, "bytes") - 1) < 1e-9);
        assert_true(fabs(number(row, "busbw_Bps") / number(row, "algbw_Bps") - 1.875) < 1e-9);
    }
    json_decref(root);
    root = collective_json("all-gather --gpu A100-80GB --sizes 4M:64M --step-factor 4 --json");
    assert_int_equal(json_array_size(json_object_get(root, "rows")), 3);
    json_decref(root);
}

static void a_log_stands_beside_the_prediction_and_fills_in_what_it_tells(void **state)
{
    (void)state;
    char arguments[512];
    snprintf(arguments, sizeof arguments, "--against '%s/1n-dgxcloud-h100-allreduce.txt' --json", getenv("SHARDFIT_LOGS"));
    json_t *root = collective_json(arguments);
    assert_string_equal(json_string_value(json_object_get(root, "collective")), "all_reduce");
    assert_string_equal(json_string_value(json_object_get(root, "gpu")), "H100 SXM5");
    assert_int_equal(json_integer_value(json_object_get(root, "ranks")), 8);
    json_t *rows = json_object_get(root, "rows"), *last = json_array_get(rows, 31);
    assert_int_equal(json_array_size(rows), 32);
    assert_true(fabs(number(last, "measured_time_s") - 62651e-6) < 100e-6);
    assert_true(fabs(number(last, "busbw_error")) < .15);
    assert_true(number(json_object_get(root, "errors"), "median") < .15);
    json_decref(root);
    snprintf(arguments, sizeof arguments, "--against '%s/1n-dgxcloud-h100-allreduce.txt' --sizes 1M:4M", getenv("SHARDFIT_LOGS"));
    assert_int_equal(collective(arguments, false), 0);
    assert_non_null(strstr(sf_text_str(&output), "busbw against"));
}

static void all_ranks_of_the_log_may_be_given_as_gpus(void **state)
{
    (void)state;
    char arguments[512];
    snprintf(arguments, sizeof arguments, "--gpu A100-40GB --gpus 16 --nodes 2 --against '%s/2n-dgxa100-hdr-allreduce.txt' --json", getenv("SHARDFIT_LOGS"));
    json_t *root = collective_json(arguments);
    assert_int_equal(json_integer_value(json_object_get(root, "ranks")), 16);
    assert_int_equal(json_integer_value(json_object_get(root, "ranks_per_node")), 8);
    json_decref(root);
}

static void bad_input_is_refused_with_code_2_and_the_remedy(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *says;
    } bad[] = {
        { "all_redcue --gpu H100-SXM", "all_reduce" },
        { "all_reduce --gpu Z9000", "nearest names" },
        { "all_reduce", "--gpu" },
        { "", "name the collective" },
        { "all_reduce --gpu H100-SXM --gpus 0", "--gpus" },
        { "all_reduce --gpu H100-SXM --sizes 1G:1M", "--sizes" },
        { "all_reduce --gpu H100-SXM --step-factor 1", "--step-factor" },
        { "all_reduce --gpu H100-SXM --link string", "nvswitch" },
        { "all_reduce --gpu H100-SXM --nodes 2 --nic pigeon", "roce" },
        { "all_reduce --gpu L40S --link nvswitch", "NVLink" },
        { "all_reduce --gpu H100-SXM --algo Rink", "Ring" },
        { "all_reduce --gpu H100-SXM --against /nonexistent", "/nonexistent" },
        { "all_reduce --gpu H100-SXM --profile /nonexistent", "/nonexistent" },
        { "all_reduce --gpu H100-SXM --ranks-per-node 3 --groups 4", "do not fit" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int code = collective(bad[i].arguments, true);
        if (code != 2 || strstr(sf_text_str(&output), bad[i].says) == NULL)
            fail_msg("%s: exit %d, %s", bad[i].arguments, code, sf_text_str(&output));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sweep_has_a_row_per_size_with_consistent_bandwidths),
        cmocka_unit_test(a_log_stands_beside_the_prediction_and_fills_in_what_it_tells),
        cmocka_unit_test(all_ranks_of_the_log_may_be_given_as_gpus),
        cmocka_unit_test(bad_input_is_refused_with_code_2_and_the_remedy),
    };
    if (getenv("SHARDFIT") == NULL || getenv("SHARDFIT_LOGS") == NULL) {
        fprintf(stderr, "set SHARDFIT to the program and SHARDFIT_LOGS to tests/data/nccl-tests\n");
        return 77;
    }
    int failed = cmocka_run_group_tests_name("shardfit collective", tests, NULL, NULL);
    sf_text_free(&output);
    return failed;
}
