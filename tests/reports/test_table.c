/* tests/reports/test_table.c: tables as text, Markdown, CSV and HTML. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "reports/table.h"

static sf_arena arena;

static int free_arena(void **state)
{
    (void)state;
    sf_arena_free(&arena);
    return 0;
}

static sf_table two_rows(void)
{
    sf_table t;
    sf_table_start(&t, &arena, "Memory");
    sf_table_column(&t, SF_LEFT, "strategy", NULL);
    sf_table_column(&t, SF_RIGHT, "peak", "MiB");
    sf_table_column(&t, SF_LEFT, "fits", NULL);
    sf_table_row(&t);
    sf_table_cell(&t, SF_TONE_STRONG, "ddp");
    sf_table_cell(&t, SF_TONE_PLAIN, "%.1f", 1024.5);
    sf_table_cell(&t, SF_TONE_BAD, "no");
    sf_table_row(&t);
    sf_table_cell(&t, SF_TONE_PLAIN, "fsdp");
    sf_table_cell(&t, SF_TONE_PLAIN, "%.1f", 9.25);
    return t; /* the last cell is not given */
}

static void text_lines_up_under_its_header(void **state)
{
    (void)state;
    sf_table t = two_rows();
    sf_text out = { 0 };
    sf_table_text(&t, false, &out);
    assert_string_equal(sf_text_str(&out), "Memory\n"
                                           "  strategy  peak (MiB)  fits\n"
                                           "  ddp           1024.5  no\n"
                                           "  fsdp             9.2\n");
    sf_text_free(&out);
}

static void letters_of_two_bytes_take_one_column(void **state)
{
    (void)state;
    sf_table t;
    sf_text out = { 0 };
    sf_table_start(&t, &arena, NULL);
    sf_table_column(&t, SF_LEFT, "a", NULL);
    sf_table_column(&t, SF_LEFT, "b", NULL);
    sf_table_row(&t);
    sf_table_cell(&t, SF_TONE_PLAIN, "\xc2\xb1"); /* plus-minus */
    sf_table_cell(&t, SF_TONE_PLAIN, "x");
    sf_table_text(&t, false, &out);
    assert_string_equal(sf_text_str(&out), "  a  b\n  \xc2\xb1  x\n");
    sf_text_free(&out);
}

static void colours_do_not_move_the_columns(void **state)
{
    (void)state;
    sf_table t = two_rows();
    sf_text plain = { 0 }, coloured = { 0 }, stripped = { 0 };
    sf_table_text(&t, false, &plain);
    sf_table_text(&t, true, &coloured);
    for (const char *c = sf_text_str(&coloured); *c != '\0'; c++) {
        if (*c == '\033')
            c = strchr(c, 'm');
        else
            sf_text_append(&stripped, c, 1);
    }
    assert_non_null(strstr(sf_text_str(&coloured), "\033[31mno\033[0m"));
    assert_string_equal(sf_text_str(&stripped), sf_text_str(&plain));
    sf_text_free(&plain);
    sf_text_free(&coloured);
    sf_text_free(&stripped);
}

static void no_colours_in_a_file_nor_with_no_color(void **state)
{
    (void)state;
    FILE *f = tmpfile();
    assert_non_null(f);
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    assert_false(sf_colour_wanted(f));
    setenv("NO_COLOR", "1", 1);
    assert_false(sf_colour_wanted(stdout));
    fclose(f);
}

static void csv_quotes_what_needs_it(void **state)
{
    (void)state;
    sf_table t;
    sf_text out = { 0 };
    sf_table_start(&t, &arena, "not in CSV");
    sf_table_column(&t, SF_LEFT, "name", NULL);
    sf_table_column(&t, SF_RIGHT, "n", NULL);
    sf_table_row(&t);
    sf_table_cell(&t, SF_TONE_GOOD, "a \"b\", c");
    sf_table_cell(&t, SF_TONE_PLAIN, "1");
    sf_table_csv(&t, &out);
    assert_string_equal(sf_text_str(&out), "name,n\n\"a \"\"b\"\", c\",1\n");
    sf_text_free(&out);
}

static void markdown_says_the_alignment_and_escapes_bars(void **state)
{
    (void)state;
    sf_table t;
    sf_text out = { 0 };
    sf_table_start(&t, &arena, NULL);
    sf_table_column(&t, SF_LEFT, "name", NULL);
    sf_table_column(&t, SF_RIGHT, "n", "B");
    sf_table_row(&t);
    sf_table_cell(&t, SF_TONE_GOOD, "a|b 100%%");
    sf_table_cell(&t, SF_TONE_PLAIN, "1");
    sf_table_markdown(&t, &out);
    assert_string_equal(sf_text_str(&out), "| name | n (B) |\n| --- | ---: |\n| a\\|b 100% | 1 |\n");
    sf_text_free(&out);
}

static void html_escapes_and_says_the_tone(void **state)
{
    (void)state;
    sf_table t;
    sf_text out = { 0 };
    sf_table_start(&t, &arena, NULL);
    sf_table_column(&t, SF_LEFT, "a<b", NULL);
    sf_table_column(&t, SF_RIGHT, "n", NULL);
    sf_table_row(&t);
    sf_table_cell(&t, SF_TONE_PLAIN, "\"x\" & 'y'");
    sf_table_cell(&t, SF_TONE_BAD, "1");
    sf_table_html(&t, &out);
    assert_non_null(strstr(sf_text_str(&out), "<th scope=\"col\">a&lt;b</th>"));
    assert_non_null(strstr(sf_text_str(&out), "<th scope=\"row\">&quot;x&quot; &amp; &#39;y&#39;</th>"));
    assert_non_null(strstr(sf_text_str(&out), "<td class=\"num bad\">1</td>"));
    sf_text_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(text_lines_up_under_its_header, free_arena),
        cmocka_unit_test_teardown(letters_of_two_bytes_take_one_column, free_arena),
        cmocka_unit_test_teardown(colours_do_not_move_the_columns, free_arena),
        cmocka_unit_test_teardown(no_colours_in_a_file_nor_with_no_color, free_arena),
        cmocka_unit_test_teardown(csv_quotes_what_needs_it, free_arena),
        cmocka_unit_test_teardown(markdown_says_the_alignment_and_escapes_bars, free_arena),
        cmocka_unit_test_teardown(html_escapes_and_says_the_tone, free_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
