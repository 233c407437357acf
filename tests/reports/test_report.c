/* tests/reports/test_report.c: the comparison of outcomes, the verdict, and the files of a report. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "reports/html.h"
#include "tests/reports/fake.h"

static sf_arena arena;

static int free_arena(void **state)
{
    (void)state;
    sf_arena_free(&arena);
    return 0;
}

static const sf_compare_row *row_of(const sf_comparison *cmp, sf_section section, const char *name)
{
    for (size_t i = 0; i < cmp->n_rows; i++)
        if (cmp->rows[i].section == section && strcmp(cmp->rows[i].name, name) == 0)
            return &cmp->rows[i];
    return NULL;
}

static void pair(sf_outcome *p, sf_outcome *m)
{
    sf_outcome_init(p, "predicted");
    sf_outcome_init(m, "measured");
    p->memory.peak_allocated_bytes = m->memory.peak_allocated_bytes = 4096;
    p->memory.at_peak[SF_CAT_PARAMETERS] = m->memory.at_peak[SF_CAT_PARAMETERS] = 4096;
    p->time.step_s = 0.9;
    m->time.step_s = 1.0;
    p->tokens_per_step = m->tokens_per_step = 1800;
}

/* (0.9 - 1.0) / 1.0 = -10 %; 1800 tokens in 0.9 s are 2000 tokens/s */
static void errors_are_relative_to_what_was_measured(void **state)
{
    (void)state;
    sf_outcome p, m;
    sf_comparison cmp;
    pair(&p, &m);
    sf_compare(&p, &m, &arena, &cmp);
    assert_true(fabs(cmp.step_error + 0.1) < 1e-12);
    const sf_compare_row *rate = row_of(&cmp, SF_SECTION_RATE, "tokens/s, all ranks");
    assert_true(rate->predicted == 2000 && rate->measured == 1800);
    assert_int_equal(cmp.n_exact, 2); /* peak allocated, at peak: parameters */
    assert_int_equal(cmp.n_equal, 2);
    assert_string_equal(sf_percent_text(cmp.step_error).text, "-10.0 %");
}

static void one_byte_of_difference_is_a_difference(void **state)
{
    (void)state;
    sf_outcome p, m;
    sf_comparison cmp;
    sf_table t;
    pair(&p, &m);
    m.memory.at_peak[SF_CAT_PARAMETERS]--;
    sf_compare(&p, &m, &arena, &cmp);
    assert_int_equal(cmp.n_equal, 1);
    sf_compare_table(&cmp, SF_SECTION_MEMORY, &arena, &t);
    assert_string_equal(sf_table_at(&t, 0, 4)->text, "equal");
    assert_string_equal(sf_table_at(&t, 1, 4)->text, "+1 bytes");
    assert_int_equal(sf_table_at(&t, 1, 4)->tone, SF_TONE_BAD);
}

static void a_collective_that_one_side_lacks_counts_as_none(void **state)
{
    (void)state;
    sf_outcome p, m;
    sf_comparison cmp;
    pair(&p, &m);
    sf_outcome_comm_row(&p, SF_OP_ALL_REDUCE, SF_GROUP_WORLD)->calls = 2;
    sf_compare(&p, &m, &arena, &cmp);
    const sf_compare_row *calls = row_of(&cmp, SF_SECTION_COMM, "all_reduce world: calls");
    assert_true(calls->predicted == 2 && calls->measured == 0 && calls->exact);
    assert_int_equal(cmp.n_exact, 3);
    assert_int_equal(cmp.n_equal, 2);
}

static void after_out_of_memory_the_failing_allocation_is_compared(void **state)
{
    (void)state;
    sf_outcome p, m;
    sf_comparison cmp;
    pair(&p, &m);
    m.memory.peak_allocated_bytes = 1024; /* stopped early: no peak of a whole step */
    m.time.step_s = -1;
    p.memory.oom_request_bytes = m.memory.oom_request_bytes = 512;
    p.memory.oom_resident_bytes = m.memory.oom_resident_bytes = 1024;
    p.memory.oom_seq = 7;
    m.memory.oom_seq = 8;
    sf_outcome_comm_row(&p, SF_OP_ALL_REDUCE, SF_GROUP_WORLD)->calls = 2;
    sf_compare(&p, &m, &arena, &cmp);
    assert_int_equal(cmp.n_exact, 3); /* request, resident, place */
    assert_int_equal(cmp.n_equal, 2);
    assert_true(isnan(cmp.step_error));
}

static void a_prediction_alone_has_no_errors(void **state)
{
    (void)state;
    sf_outcome p, m;
    sf_comparison cmp;
    sf_table t;
    pair(&p, &m);
    sf_compare(&p, NULL, &arena, &cmp);
    assert_int_equal(cmp.n_exact, 0);
    assert_true(isnan(cmp.step_error));
    sf_compare_table(&cmp, SF_SECTION_MEMORY, &arena, &t);
    assert_string_equal(sf_table_at(&t, 0, 3)->text, "-");
}

static void the_csv_has_whole_numbers_and_leaves_unknowns_empty(void **state)
{
    (void)state;
    sf_report report = { .title = "t", .time_bar = 0.1 };
    sf_outcome p, m;
    sf_text csv = { 0 };
    pair(&p, &m);
    p.memory.peak_allocated_bytes = m.memory.peak_allocated_bytes = 123456789012345;
    sf_report_entry *e = sf_report_add(&report, &arena, "ddp, tiny");
    e->predicted = &p;
    e->measured = &m;
    m.mfu = 0.5;
    sf_report_join(&report, &arena);
    sf_report_csv(&report, &arena, &csv);
    const char *text = sf_text_str(&csv);
    assert_non_null(strstr(text, "entry,section,quantity,unit,predicted,measured,difference,relative_error,exact\n"));
    assert_non_null(strstr(text, "\"ddp, tiny\",memory,peak allocated,bytes,123456789012345,123456789012345,0,0,yes\n"));
    assert_non_null(strstr(text, "\"ddp, tiny\",time,step,s,0.9,1,-0.1,-0.1,no\n"));
    assert_non_null(strstr(text, "\"ddp, tiny\",throughput,model FLOP utilisation,fraction,,0.5,,,no\n"));
    sf_text_free(&csv);
}

static sf_verdict verdict_of(const sf_report *report)
{
    sf_verdict v;
    sf_report_judge(report, &arena, &v);
    return v;
}

static bool some_point_says(const sf_verdict *v, const char *what)
{
    for (size_t i = 0; i < v->n_points; i++)
        if (strstr(v->points[i], what) != NULL)
            return true;
    return false;
}

static void the_verdict_is_no_when_a_bar_is_missed(void **state)
{
    (void)state;
    sf_report report;
    sf_fake_report(true, &arena, &report);
    sf_verdict v = verdict_of(&report);
    assert_true(v.good);
    assert_non_null(strstr(v.headline, "6 of 6"));

    report.time_bar = 0.001;
    v = verdict_of(&report);
    assert_false(v.good);
    assert_true(some_point_says(&v, "fsdp: step time"));

    report.time_bar = 0.10;
    sf_outcome changed = *report.entries[1].measured;
    changed.memory.peak_bytes[SF_CAT_GRADIENTS] += 4;
    report.entries[1].measured = &changed;
    sf_report_join(&report, &arena);
    v = verdict_of(&report);
    assert_false(v.good);
    assert_true(some_point_says(&v, "ddp: own peak: gradients: predicted"));
    assert_non_null(strstr(v.headline, "5 of 6"));
}

static void a_run_that_failed_is_no_success(void **state)
{
    (void)state;
    sf_report report;
    sf_fake_report(true, &arena, &report);
    report.entries[2].measured = NULL;
    report.entries[2].failure = "rank 1 was lost";
    sf_report_join(&report, &arena);
    sf_verdict v = verdict_of(&report);
    assert_false(v.good);
    assert_true(some_point_says(&v, "zero1: rank 1 was lost"));
}

static void without_measurements_the_verdict_is_what_fits(void **state)
{
    (void)state;
    sf_report report;
    sf_fake_report(false, &arena, &report);
    sf_verdict v = verdict_of(&report);
    assert_true(v.good);
    assert_non_null(strstr(v.headline, "6 of 6 strategies fit"));
    sf_outcome *big = SF_NEW(&arena, sf_outcome);
    *big = *report.entries[0].predicted;
    big->fits = false;
    big->verdict = "needs 1 GiB more";
    for (size_t i = 0; i < report.n_entries; i++)
        report.entries[i].predicted = big;
    sf_report_join(&report, &arena);
    v = verdict_of(&report);
    assert_false(v.good);
    assert_true(some_point_says(&v, "needs 1 GiB more"));
}

static void the_summary_has_a_row_per_strategy(void **state)
{
    (void)state;
    sf_report report;
    sf_table t;
    sf_fake_report(true, &arena, &report);
    sf_report_summary(&report, &arena, &t);
    assert_int_equal(t.n_rows, 6);
    size_t with = t.n_columns;
    sf_fake_report(false, &arena, &report);
    sf_report_summary(&report, &arena, &t);
    assert_true(t.n_columns < with); /* no columns of dashes */
}

static void the_json_is_the_report(void **state)
{
    (void)state;
    sf_report report;
    sf_fake_report(true, &arena, &report);
    json_t *json = sf_report_to_json(&report);
    assert_string_equal(json_string_value(json_object_get(json, "schema")), "shardfit-report-1");
    const json_t *entries = json_object_get(json, "entries"), *first = json_array_get(entries, 0);
    assert_int_equal(json_array_size(entries), 6);
    assert_string_equal(json_string_value(json_object_get(json_object_get(first, "measured"), "kind")), "measured");
    assert_true(json_is_real(json_object_get(json_object_get(first, "errors"), "step")));
    json_decref(json);
}

static void a_page_without_plots_says_what_is_missing(void **state)
{
    (void)state;
    sf_report report;
    sf_plots none = { 0 };
    sf_text page = { 0 };
    sf_fake_report(true, &arena, &report);
    report.title = "a <b> & c";
    assert_int_equal(sf_report_html(&report, &none, "/nonexistent", "no plots: install gnuplot-nox", &arena, &page).code, SF_OK);
    const char *text = sf_text_str(&page);
    assert_non_null(strstr(text, "<title>a &lt;b&gt; &amp; c</title>"));
    assert_non_null(strstr(text, "install gnuplot-nox"));
    assert_null(strstr(text, "http:"));
    assert_null(strstr(text, "https:"));
    assert_null(strstr(text, "<link"));
    assert_true(strstr(text, "The predictions hold") < strstr(text, "<table>"));
    sf_text_free(&page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(errors_are_relative_to_what_was_measured, free_arena),
        cmocka_unit_test_teardown(one_byte_of_difference_is_a_difference, free_arena),
        cmocka_unit_test_teardown(a_collective_that_one_side_lacks_counts_as_none, free_arena),
        cmocka_unit_test_teardown(after_out_of_memory_the_failing_allocation_is_compared, free_arena),
        cmocka_unit_test_teardown(a_prediction_alone_has_no_errors, free_arena),
        cmocka_unit_test_teardown(the_csv_has_whole_numbers_and_leaves_unknowns_empty, free_arena),
        cmocka_unit_test_teardown(the_verdict_is_no_when_a_bar_is_missed, free_arena),
        cmocka_unit_test_teardown(a_run_that_failed_is_no_success, free_arena),
        cmocka_unit_test_teardown(without_measurements_the_verdict_is_what_fits, free_arena),
        cmocka_unit_test_teardown(the_summary_has_a_row_per_strategy, free_arena),
        cmocka_unit_test_teardown(the_json_is_the_report, free_arena),
        cmocka_unit_test_teardown(a_page_without_plots_says_what_is_missing, free_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
