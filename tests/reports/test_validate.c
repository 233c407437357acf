/* tests/reports/test_validate.c: the commands `shardfit validate` and `compare`, run as a user runs them. $SHARDFIT is the
 * program, $SHARDFIT_JOB a job of two devices that takes well under a second. Times are not judged here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "model/base/text.h"
#include "reports/process.h"

static sf_arena arena;
static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/sf_validate_XXXXXX");
    return mkdtemp(dir) == NULL;
}

static int remove_dir(void **state)
{
    sf_process_end end;
    (void)state;
    sf_process_run(&(sf_process){ .argv = (const char *const[]){ "rm", "-rf", dir, NULL } }, &end);
    sf_arena_free(&arena);
    return 0;
}

static const char *in_dir(const char *name)
{
    return sf_arena_printf(&arena, "%s/%s", dir, name);
}

static char *contents(const char *name)
{
    char *text = NULL;
    sf_status st = sf_file_read(in_dir(name), 64u << 20, &arena, &text, NULL);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    return text;
}

/* `shardfit COMMAND -o DIR/report ...` with up to eight more arguments; words go to DIR/out and DIR/err. */
static int call(const char *command, const char *const more[8])
{
    const char *argv[16] = { getenv("SHARDFIT"), command, "-o", in_dir("report") };
    sf_process_end end;
    size_t n = 4;
    if (strcmp(command, "validate") == 0) {
        argv[n++] = "--time-bar";
        argv[n++] = "1e9";
    }
    for (size_t i = 0; i < 8 && more[i] != NULL; i++)
        argv[n++] = more[i];
    sf_status st = sf_process_run(&(sf_process){ .argv = argv, .stdout_path = in_dir("out"), .stderr_path = in_dir("err"), .timeout_s = 100 }, &end);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    return end.exit_code;
}
#define VALIDATE(...) call("validate", (const char *const[8]){ __VA_ARGS__ })
#define COMPARE(...) call("compare", (const char *const[8]){ __VA_ARGS__ })

/* Bytes and calls of a real run are those of the accountant, or the exit code is 1. */
static void a_real_run_is_compared_and_reported(void **state)
{
    (void)state;
    const char *job = getenv("SHARDFIT_JOB");
    if (VALIDATE(job) != 0)
        fail_msg("%s%s", contents("out"), contents("err"));
    assert_non_null(strstr(contents("out"), "The predictions hold for 1 of 1"));
    assert_non_null(strstr(contents("report/report.html"), "</html>"));
    assert_non_null(strstr(contents("report/compare.csv"), "smallest,memory,peak allocated,bytes,"));
    json_t *json = json_loads(contents("report/report.json"), 0, NULL);
    const json_t *entry = json_array_get(json_object_get(json, "entries"), 0), *errors = json_object_get(entry, "errors");
    assert_true(json_integer_value(json_object_get(errors, "exact")) > 10);
    assert_true(json_equal(json_object_get(errors, "exact"), json_object_get(errors, "equal")));
    assert_int_equal(json_array_size(json_object_get(json_object_get(entry, "measured"), "losses")), 3);
    json_decref(json);

    /* the same outcome again, without running */
    const char *kept = in_dir("kept.json");
    char *text = contents("report/runs/smallest.json");
    assert_int_equal(sf_file_write(kept, text, strlen(text)).code, SF_OK);
    assert_int_equal(VALIDATE(job, "--measured", kept), 0);

    /* and with one count changed */
    json = json_loads(text, 0, NULL);
    json_t *memory = json_object_get(json, "memory");
    json_object_set_new(memory, "peak_allocated_bytes", json_integer(1 + json_integer_value(json_object_get(memory, "peak_allocated_bytes"))));
    char *changed = json_dumps(json, 0);
    assert_int_equal(sf_file_write(kept, changed, strlen(changed)).code, SF_OK);
    assert_int_equal(VALIDATE(job, "--measured", kept), 1);
    assert_non_null(strstr(contents("out"), "smallest: peak allocated: predicted"));
    free(changed);
    json_decref(json);
}

static void strategies_are_entries_of_one_report(void **state)
{
    (void)state;
    if (VALIDATE(getenv("SHARDFIT_JOB"), "--strategies", "dp,zero9", "--json") != 2)
        fail_msg("%s%s", contents("out"), contents("err"));
    json_t *json = json_loads(contents("out"), 0, NULL);
    const json_t *entries = json_object_get(json, "entries"), *wrong = json_array_get(entries, 1);
    assert_int_equal(json_array_size(entries), 2);
    assert_non_null(json_object_get(json_array_get(entries, 0), "measured"));
    assert_non_null(strstr(json_string_value(json_object_get(wrong, "failure")), "zero9"));
    assert_true(json_is_false(json_object_get(json, "good")));
    json_decref(json);
}

/* 200 KiB per device: less than the parameters alone. */
static void what_does_not_fit_must_not_fit_in_the_run_either(void **state)
{
    (void)state;
    if (VALIDATE(getenv("SHARDFIT_JOB"), "--device-memory", "0.0002") != 0)
        fail_msg("%s%s", contents("out"), contents("err"));
    assert_non_null(strstr(contents("report/compare.csv"), "does not fit: allocation"));
}

static void every_strategy_is_compared_side_by_side(void **state)
{
    (void)state;
    static const char *const strategies[] = { "dp", "ddp", "fsdp", "zero1", "zero2", "zero3" };
    if (COMPARE(getenv("SHARDFIT_JOB")) != 0)
        fail_msg("%s%s", contents("out"), contents("err"));
    for (size_t i = 0; i < sizeof strategies / sizeof strategies[0]; i++)
        assert_non_null(strstr(contents("report/compare.csv"), sf_arena_printf(&arena, "\n%s,memory,peak allocated", strategies[i])));
    assert_non_null(strstr(contents("report/report.html"), "shardfit comparison"));
    assert_int_equal(COMPARE(getenv("SHARDFIT_JOB"), "--device-memory", "0.0002"), 1);
    assert_non_null(strstr(contents("out"), "No strategy fits"));
    assert_int_equal(COMPARE(getenv("SHARDFIT_JOB"), "--strategies", "zero9"), 2);
}

/* A machine whose kernels take no time: no run is as fast as that. */
static void what_is_slower_than_predicted_is_run_again(void **state)
{
    (void)state;
    static const char fast[] = "{\"schema\": \"shardfit-profile-1\", \"cores\": 2, \"sets\": [{\"ranks\": 2, \"threads\": true, \"transport\": "
                               "\"threads\", \"issue_s\": 1e-9, \"op_gap_s\": 1e-9, \"handoff_s\": 0, \"overlap_slowdown\": 1, \"gemm\": [], "
                               "\"kernels\": [], \"attention\": [], \"collectives\": []}]}";
    const char *profile = in_dir("profile.json");
    assert_int_equal(sf_file_write(profile, fast, strlen(fast)).code, SF_OK);
    int code = VALIDATE(getenv("SHARDFIT_JOB"), "--best", "--rounds", "3", "--time-bar", "10", "--profile", profile);
    if (code != 1)
        fail_msg("%d %s%s", code, contents("out"), contents("err"));
    assert_non_null(strstr(contents("err"), "run 2 of at most 3"));
    assert_non_null(strstr(contents("err"), "run 3 of at most 3"));
    assert_non_null(strstr(contents("report/runs/smallest-3.json"), "shardfit-outcome-1"));
    assert_non_null(strstr(contents("out"), "off by up to"));
}

static void wrong_usage_is_told(void **state)
{
    (void)state;
    assert_int_equal(VALIDATE(NULL), 2);
    assert_non_null(strstr(contents("err"), "no job is given"));
    assert_int_equal(VALIDATE("/nonexistent.json"), 2);
    assert_non_null(strstr(contents("err"), "/nonexistent.json"));
    assert_int_equal(VALIDATE(getenv("SHARDFIT_JOB"), "--measured", "a", "--measured", "b"), 2);
    assert_int_equal(VALIDATE(getenv("SHARDFIT_JOB"), "--measured", in_dir("none.json")), 2);
    assert_non_null(strstr(contents("err"), "none.json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_real_run_is_compared_and_reported, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(strategies_are_entries_of_one_report, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(what_does_not_fit_must_not_fit_in_the_run_either, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(every_strategy_is_compared_side_by_side, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(what_is_slower_than_predicted_is_run_again, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(wrong_usage_is_told, make_dir, remove_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
