/* What `shardfit compare` says beyond one step, through the program itself (SHARDFIT names it). */
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

static json_t *report;

static int compare_gpus(void **state)
{
    char line[1024];
    json_error_t error;
    (void)state;
    snprintf(line, sizeof line, "'%s' compare --model llama-3-8b --framework shardfit --gpu 'A100 SXM4 80GB' --gpus 8 --seq-len 4096 --recompute full --json 2>/dev/null",
             getenv("SHARDFIT"));
    FILE *pipe = popen(line, "r");
    report = json_loadf(pipe, 0, &error);
    return WEXITSTATUS(pclose(pipe)) != 0 || report == NULL;
}

static int forget(void **state)
{
    (void)state;
    json_decref(report);
    return 0;
}

static const json_t *rows_of(const char *title)
{
    size_t i;
    json_t *part;
    json_array_foreach(json_object_get(report, "parts"), i, part)
        if (strcmp(json_string_value(json_object_get(part, "title")), title) == 0)
            return json_object_get(part, "rows");
    fail_msg("no part '%s'", title);
    return NULL;
}

static const char *cell(const json_t *rows, const char *strategy, size_t column)
{
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)(uintptr_t)rows, i, row)
        if (strcmp(json_string_value(json_array_get(row, 0)), strategy) == 0)
            return json_string_value(json_array_get(row, column));
    fail_msg("no row '%s'", strategy);
    return NULL;
}

static double tokens_per_s(const char *strategy)
{
    size_t i;
    json_t *e;
    json_array_foreach(json_object_get(report, "entries"), i, e)
        if (strcmp(json_string_value(json_object_get(e, "name")), strategy) == 0)
            return json_number_value(json_object_get(json_object_get(json_object_get(e, "predicted"), "throughput"), "tokens_per_s"));
    return -1;
}

/* Columns 1, 2, 4, 8, 16, ... GPUs: at 8, the job's own count, the speed is the report's. */
static void scaling_passes_through_the_jobs_own_count(void **state)
{
    (void)state;
    const json_t *rows = rows_of("Scaling");
    assert_true(fabs(atof(cell(rows, "fsdp", 4)) - tokens_per_s("fsdp")) <= 0.5);
    assert_true(fabs(atof(cell(rows, "zero3", 4)) - tokens_per_s("zero3")) <= 0.5);
    assert_string_equal(cell(rows, "ddp", 4), "-"); /* 16 B x 8.03e9 parameters do not fit 80 GB */
}

/* A GPU at 80 % takes 1.25 times as long for what it computes: at most 20 % of the speed is lost, and something is. An
 * optimizer on the host is not slowed, so that less is lost. */
static void one_slow_gpu_costs_at_most_its_share(void **state)
{
    (void)state;
    const json_t *rows = rows_of("One slow GPU");
    double lost = atof(cell(rows, "fsdp", 3)), with_host = atof(cell(rows, "zero3, cpu optimizer", 3));
    assert_true(lost > 5 && lost <= 20.05);
    assert_true(with_host > 0 && with_host < lost);
}

/* dp is one process; the others one for each GPU. zero3 shares 12 B of f32 states among 8: 89.7 / 8 = 11.2 GiB. */
static void who_holds_what(void **state)
{
    (void)state;
    const json_t *rows = rows_of("How each executes, and who holds what");
    assert_string_equal(cell(rows, "dp", 1), "1");
    assert_string_equal(cell(rows, "zero3", 1), "8");
    assert_true(fabs(atof(cell(rows, "zero3", 4)) - 12 * 8030261248.0 / 8 / 1073741824.0) < 0.02);
    assert_string_equal(cell(rows_of("When to use which"), "ddp", 1), "none to 64");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scaling_passes_through_the_jobs_own_count),
        cmocka_unit_test(one_slow_gpu_costs_at_most_its_share),
        cmocka_unit_test(who_holds_what),
    };
    return cmocka_run_group_tests(tests, compare_gpus, forget);
}
