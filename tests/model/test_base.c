#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "model/base/text.h"
#include "model/base/units.h"

/* G is 2^30 as in nccl-tests, GB is 10^9 as on a data sheet. */
static void sizes_are_read_in_binary_and_decimal_units(void **state)
{
    (void)state;
    uint64_t n = 0;
    assert_int_equal(sf_bytes_parse("16GiB", &n).code, SF_OK);
    assert_true(n == (uint64_t)16 << 30);
    assert_int_equal(sf_bytes_parse("1.5 G", &n).code, SF_OK);
    assert_true(n == (uint64_t)3 << 29);
    assert_int_equal(sf_bytes_parse("80GB", &n).code, SF_OK);
    assert_true(n == 80000000000u);
    assert_int_equal(sf_bytes_parse("512", &n).code, SF_OK);
    assert_true(n == 512);
    assert_int_equal(sf_bytes_parse("12 parsecs", &n).code, SF_EINVAL);
    assert_int_equal(sf_bytes_parse("-1", &n).code, SF_EINVAL);
    assert_int_equal(sf_bytes_parse("GiB", &n).code, SF_EINVAL);
}

static void sizes_are_printed_in_the_unit_that_suits_them(void **state)
{
    (void)state;
    assert_string_equal(sf_bytes_text(512).text, "512 B");
    assert_string_equal(sf_bytes_text(25270288).text, "24.1 MiB");
    assert_string_equal(sf_bytes_text((uint64_t)80 << 30).text, "80.00 GiB");
    assert_string_equal(sf_seconds_text(0.01234).text, "12.3 ms");
    assert_string_equal(sf_count_text(124439808).text, "124.4 M");
}

static void a_misspelt_name_gets_the_nearest_ones(void **state)
{
    (void)state;
    static const char *const names[] = { "single", "ddp", "fsdp", "zero1", "zero2", "zero3" };
    sf_arena arena = { 0 };
    const char *near = sf_str_nearest("zer03", names, 6, &arena);
    assert_true(strncmp(near, "'zero3'", 7) == 0);
    near = sf_str_nearest("fdsp", names, 6, &arena);
    assert_non_null(strstr(near, "'fsdp'"));
    sf_arena_free(&arena);
}

static void a_failed_write_leaves_the_old_file(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    char path[] = "/tmp/sf_base_XXXXXX";
    close(mkstemp(path));
    assert_int_equal(sf_file_write(path, "old", 3).code, SF_OK);
    assert_int_equal(sf_file_write("/nonexistent/dir/file", "new", 3).code, SF_EIO);
    char *text = NULL;
    assert_int_equal(sf_file_read(path, 100, &arena, &text, NULL).code, SF_OK);
    assert_string_equal(text, "old");
    assert_int_equal(sf_file_read(path, 2, &arena, &text, NULL).code, SF_EIO);
    unlink(path);
    sf_arena_free(&arena);
}

static void an_arena_keeps_what_it_gave_while_it_grows(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    int *v = NULL;
    size_t count = 0, cap = 0;
    for (int i = 0; i < 100000; i++)
        SF_PUSH(&arena, v, count, cap) = i;
    for (int i = 0; i < 100000; i++)
        assert_int_equal(v[i], i);
    sf_arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_read_in_binary_and_decimal_units),
        cmocka_unit_test(sizes_are_printed_in_the_unit_that_suits_them),
        cmocka_unit_test(a_misspelt_name_gets_the_nearest_ones),
        cmocka_unit_test(a_failed_write_leaves_the_old_file),
        cmocka_unit_test(an_arena_keeps_what_it_gave_while_it_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
