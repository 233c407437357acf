/* tests/reports/test_plots.c: gnuplot draws what it is given; without gnuplot there is a remedy. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "reports/plot_data.h"
#include "reports/plots.h"
#include "reports/process.h"
#include "reports/svg.h"
#include "tests/reports/fake.h"

static sf_arena arena;
static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/sf_plots_XXXXXX");
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

static bool have_gnuplot(void)
{
    sf_process_end end;
    const char *log = sf_arena_printf(&arena, "%s/log", dir);
    return sf_process_run(&(sf_process){ .argv = (const char *const[]){ "gnuplot", "--version", NULL }, .stdout_path = log }, &end).code == SF_OK;
}

static char *contents(const char *name)
{
    char *text = NULL;
    sf_status st = sf_file_read(sf_arena_printf(&arena, "%s/%s", dir, name), 64u << 20, &arena, &text, NULL);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    return text;
}

static void every_plot_is_drawn_three_times_with_its_words(void **state)
{
    (void)state;
    static const struct {
        const char *name, *word;
    } expected[] = { { "memory", ">activations<" }, { "step", ">exposed comm.<" }, { "scatter", ">within 10 %<" },
                     { "timeline-fsdp", ">measured, " }, { "memory-zero3", ">peak " } };
    sf_report report;
    sf_plots plots;
    if (!have_gnuplot())
        skip();
    sf_fake_report(true, &arena, &report);
    sf_status st = sf_plots_write(&report, dir, &arena, &plots);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    assert_int_equal(plots.count, 3 + 2 * 6);
    for (size_t i = 0; i < plots.count; i++) {
        assert_int_equal(access(sf_arena_printf(&arena, "%s/%s.png", dir, plots.items[i].name), R_OK), 0);
        assert_non_null(strstr(contents(sf_arena_printf(&arena, "%s.svg", plots.items[i].name)), "</svg>"));
        assert_non_null(strstr(contents(sf_arena_printf(&arena, "%s-narrow.svg", plots.items[i].name)), "width=\"400\""));
    }
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        if (strstr(contents(sf_arena_printf(&arena, "%s.svg", expected[i].name)), expected[i].word) == NULL)
            fail_msg("%s.svg does not say %s", expected[i].name, expected[i].word);
    assert_int_not_equal(access(sf_arena_printf(&arena, "%s/gnuplot.log", dir), R_OK), 0);
}

static void odd_names_do_not_break_the_scripts(void **state)
{
    (void)state;
    sf_report report;
    sf_plots plots;
    if (!have_gnuplot())
        skip();
    sf_fake_report(true, &arena, &report);
    report.entries[0].title = "it's \"dp\" \\ 100 % $1 `ls`";
    sf_status st = sf_plots_write(&report, dir, &arena, &plots);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    assert_non_null(strstr(contents("memory.svg"), "it\xe2\x80\x99s"));
}

static void a_report_without_data_has_no_plots(void **state)
{
    (void)state;
    sf_report report = { .title = "nothing" };
    sf_plots plots;
    sf_report_add(&report, &arena, "ddp")->failure = "no such model";
    sf_report_join(&report, &arena);
    assert_int_equal(sf_plots_write(&report, dir, &arena, &plots).code, SF_OK);
    assert_int_equal(plots.count, 0);
}

static void without_gnuplot_the_message_names_the_package(void **state)
{
    (void)state;
    sf_report report;
    const char *note, *path = sf_arena_strdup(&arena, getenv("PATH"));
    sf_fake_report(true, &arena, &report);
    setenv("PATH", "/nonexistent", 1);
    sf_status st = sf_gnuplot_run(dir, "memory.gp", &arena), written = sf_report_write(&report, dir, &arena, &note);
    setenv("PATH", path, 1);
    assert_int_equal(st.code, SF_EUNSUP);
    assert_non_null(strstr(st.msg, "apt-get install gnuplot-nox"));
    assert_int_equal(written.code, SF_OK); /* everything but the plots */
    assert_non_null(note);
    assert_non_null(strstr(contents("report.html"), "apt-get install gnuplot-nox"));
    assert_non_null(strstr(contents("compare.csv"), "zero3,memory,peak allocated"));
}

static void the_memory_of_one_outcome_goes_where_it_is_wanted(void **state)
{
    (void)state;
    sf_outcome o;
    if (!have_gnuplot())
        skip();
    sf_fake_outcome("fsdp", false, &arena, &o);
    sf_status st = sf_plot_memory_file(&o, sf_arena_printf(&arena, "%s/mine.svg", dir), &arena);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    assert_non_null(strstr(contents("mine.svg"), "</svg>"));
    assert_int_equal(sf_plot_memory_file(&o, sf_arena_printf(&arena, "%s/mine.png", dir), &arena).code, SF_OK);
    assert_memory_equal(contents("mine.png") + 1, "PNG", 3);
    st = sf_plot_memory_file(&o, sf_arena_printf(&arena, "%s/mine.pdf", dir), &arena);
    assert_int_equal(st.code, SF_EINVAL);
    assert_non_null(strstr(st.msg, ".svg or .png"));
}

static void a_failing_script_gives_gnuplots_words(void **state)
{
    (void)state;
    if (!have_gnuplot())
        skip();
    assert_int_equal(sf_file_write(sf_arena_printf(&arena, "%s/bad.gp", dir), "plot nonsense(\n", 15).code, SF_OK);
    sf_status st = sf_gnuplot_run(dir, "bad.gp", &arena);
    assert_int_equal(st.code, SF_EIO);
    assert_non_null(strstr(st.msg, "line 1"));
}

/* Three boxes of 1 us each, 0.1 us apart, in a step of 1 s: no eye can part them. */
static void boxes_too_thin_to_tell_apart_become_one(void **state)
{
    (void)state;
    sf_outcome o;
    sf_plot_data d = { 0 };
    sf_span_time spans[4] = { 0 };
    for (int i = 0; i < 3; i++)
        spans[i] = (sf_span_time){ .type = SF_OP_LINEAR_FWD, .start_s = i * 1.1e-6, .end_s = i * 1.1e-6 + 1e-6 };
    spans[3] = (sf_span_time){ .type = SF_OP_LINEAR_FWD, .start_s = 0.5, .end_s = 1 };
    sf_outcome_init(&o, "predicted");
    o.time.step_s = 1;
    o.spans = spans;
    o.n_spans = 4;
    assert_true(sf_plot_timeline(&o, NULL, &arena, &d));
    size_t lines = 0;
    for (const char *c = sf_text_str(&d.data); *c != '\0'; c++)
        lines += *c == '\n';
    assert_int_equal(lines, 2 + 2); /* two boxes and the end of the block */
    sf_text_free(&d.data);
    sf_text_free(&d.params);
}

static void an_inlined_svg_keeps_to_itself(void **state)
{
    (void)state;
    sf_text out = { 0 };
    sf_svg_inline("<?xml version=\"1.0\"?>\n<svg \n width=\"9\" viewBox=\"0 0 9 8\"\n xmlns=\"http://www.w3.org/2000/svg\">\n<title>Gnuplot</title>"
                  "<defs><circle id='gpDot' r='1'/><filter id='x'>y</filter></defs><g fill=\"none\">\n</g>"
                  "<use xlink:href='#gpDot'/><g id=\"a\"><text>dp</text></g></svg>",
                  "p1", "wide", "A \"plot\"", &out);
    assert_string_equal(sf_text_str(&out), "<svg class=\"wide\" viewBox=\"0 0 9 8\" role=\"img\" aria-label=\"A &quot;plot&quot;\">\n"
                                           "<defs><circle id='p1-gpDot' r='1'/></defs>"
                                           "<use xlink:href='#p1-gpDot'/><g id=\"p1-a\"><text>dp</text></g></svg>");
    sf_text_free(&out);
}

static void a_program_that_hangs_is_ended(void **state)
{
    (void)state;
    sf_process_end end;
    assert_int_equal(sf_process_run(&(sf_process){ .argv = (const char *const[]){ "sleep", "60", NULL }, .timeout_s = 0.1 }, &end).code, SF_OK);
    assert_true(end.timed_out);
    assert_int_equal(end.signal, 9);
    assert_int_equal(sf_process_run(&(sf_process){ .argv = (const char *const[]){ "sh", "-c", "exit 5", NULL } }, &end).code, SF_OK);
    assert_int_equal(end.exit_code, 5);
    assert_int_equal(sf_process_run(&(sf_process){ .argv = (const char *const[]){ "no-such-program", NULL } }, &end).code, SF_EUNSUP);
    assert_int_equal(sf_process_run(&(sf_process){ .argv = (const char *const[]){ "true", NULL }, .directory = "/nonexistent" }, &end).code, SF_EIO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_plot_is_drawn_three_times_with_its_words, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(odd_names_do_not_break_the_scripts, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_report_without_data_has_no_plots, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(without_gnuplot_the_message_names_the_package, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(the_memory_of_one_outcome_goes_where_it_is_wanted, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_failing_script_gives_gnuplots_words, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(boxes_too_thin_to_tell_apart_become_one, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(an_inlined_svg_keeps_to_itself, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_program_that_hangs_is_ended, make_dir, remove_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
