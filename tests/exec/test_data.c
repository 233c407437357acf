/* Training data: what files are taken for, and the order in which they are read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "exec/data.h"
#include "exec/params.h"

static char folder[] = "/tmp/shardfit-data-XXXXXX";

static const char *file(const char *name, const void *bytes, size_t len)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    fclose(f);
    return path;
}

static void expect_refused(const char *path, int vocab, sf_code code, const char *message)
{
    sf_data *data = NULL;
    sf_status st = sf_data_open(path, vocab, &data);
    assert_int_equal(st.code, code);
    if (strstr(st.msg, message) == NULL)
        fail_msg("'%s' lacks '%s'", st.msg, message);
}

/* Tokens 0..9 with T = 4: sequence 2 is 8 9 0 1, followed by 2. */
static void sequences_follow_each_other_and_wrap_around(void **state)
{
    (void)state;
    uint16_t tokens[10];
    int32_t x[8], y[8];
    sf_data *data;
    for (int i = 0; i < 10; i++)
        tokens[i] = (uint16_t)i;
    assert_int_equal(sf_data_open(file("count.bin", tokens, sizeof tokens), 10, &data).code, SF_OK);
    assert_int_equal(sf_data_tokens(data), 10);
    sf_data_read(data, 1, 2, 4, x, y);
    assert_memory_equal(x, ((int32_t[]){ 4, 5, 6, 7, 8, 9, 0, 1 }), sizeof x);
    assert_memory_equal(y, ((int32_t[]){ 5, 6, 7, 8, 9, 0, 1, 2 }), sizeof y);
    sf_data_read(data, 6, 1, 4, x, y); /* 24 mod 10 = 4 */
    assert_int_equal(x[0], 4);
    sf_data_close(data);
}

static void text_is_taken_as_bytes(void **state)
{
    (void)state;
    sf_data *data;
    int32_t x[3], y[3];
    assert_int_equal(sf_data_open(file("text", "abcd\xff", 5), 256, &data).code, SF_OK);
    sf_data_read(data, 0, 1, 3, x, y);
    assert_memory_equal(x, ((int32_t[]){ 'a', 'b', 'c' }), sizeof x);
    sf_data_read(data, 1, 1, 3, x, y);
    assert_memory_equal(y, ((int32_t[]){ 255, 'a', 'b' }), sizeof y);
    sf_data_close(data);
    expect_refused(file("text", "abcd\xff", 5), 255, SF_EINVAL, "byte 255 at position 4 is outside the model's vocabulary of 255");
}

static void an_llm_c_header_is_known_and_checked(void **state)
{
    (void)state;
    struct {
        int32_t header[256];
        uint16_t tokens[3];
    } f = { .header = { 20240520, 1, 3 }, .tokens = { 7, 8, 9 } };
    const size_t size = sizeof f.header + sizeof f.tokens;
    sf_data *data;
    int32_t x[2], y[2];

    assert_int_equal(sf_data_open(file("a.bin", &f, size), 50257, &data).code, SF_OK);
    assert_int_equal(sf_data_tokens(data), 3);
    sf_data_read(data, 0, 1, 2, x, y);
    assert_int_equal(x[0], 7);
    assert_int_equal(y[1], 9);
    sf_data_close(data);
    f.header[2] = 4;
    expect_refused(file("a.bin", &f, size), 50257, SF_EPARSE, "announces 4 tokens but has 6 bytes after its header (expected 8)");
    f.header[1] = 2;
    expect_refused(file("a.bin", &f, size), 50257, SF_EPARSE, "but version 2 (known: 1)");
}

static void bad_files_are_named_with_the_place(void **state)
{
    (void)state;
    uint16_t tokens[4] = { 1, 2, 300, 3 };

    expect_refused(file("b.bin", tokens, 8), 256, SF_EINVAL, "token 300 at position 2 is outside the model's vocabulary of 256");
    expect_refused(file("b.bin", tokens, 7), 500, SF_EPARSE, "has 7 bytes: 16-bit tokens need an even number");
    expect_refused(file("b.bin", tokens, 2), 500, SF_EINVAL, "has 1 tokens; at least 2 are needed");
    expect_refused(file("empty", "", 0), 500, SF_EINVAL, "is empty");
    expect_refused("/nowhere/at/all", 500, SF_EIO, "cannot open the training data '/nowhere/at/all'");
}

static void a_directory_is_its_files_in_order_of_name(void **state)
{
    (void)state;
    char dir[200];
    sf_data *data;
    int32_t x[4], y[4];

    snprintf(dir, sizeof dir, "%s/texts", folder);
    mkdir(dir, 0700);
    file("texts/b", "cd", 2);
    file("texts/a", "ab", 2);
    assert_int_equal(sf_data_open(dir, 256, &data).code, SF_OK);
    sf_data_read(data, 0, 1, 4, x, y);
    assert_memory_equal(x, ((int32_t[]){ 'a', 'b', 'c', 'd' }), sizeof x);
    sf_data_close(data);
}

static void without_a_path_small_vocabularies_get_made_up_tokens(void **state)
{
    (void)state;
    sf_data *data;
    int32_t x[64], y[64];

    assert_int_equal(sf_data_open(NULL, 11, &data).code, SF_OK);
    assert_string_equal(sf_data_name(data), "synthetic");
    sf_data_read(data, 5, 1, 64, x, y);
    for (int i = 0; i < 64; i++)
        assert_true(x[i] >= 0 && x[i] < 11);
    sf_data_close(data);
}

/* ---- parameters ---- */

/* Any slice of a tensor has the same values, whoever makes it; mean and deviation are as asked: 40000 draws of
 * deviation 0.5 have a mean within 4 * 0.5 / sqrt(40000) = 0.01 and a variance of 0.25 within 4 * 0.25 * sqrt(2 / 40000) = 0.0071. */
static void parameters_depend_on_seed_tensor_and_element_alone(void **state)
{
    (void)state;
    enum { N = 40000 };
    sf_param one[2] = { { .numel = N, .mean = 1.0f, .std = 0.5f }, { .numel = N, .mean = 1.0f, .std = 0.5f } };
    sf_params p = { .params = one, .count = 2, .seed = 3 };
    float *whole = malloc(N * sizeof *whole), part[1001];
    double sum = 0, squares = 0;

    sf_params_fill(&p, 0, 0, N, whole);
    for (uint64_t from = 0; from < 3; from++) { /* even and odd starts */
        sf_params_fill(&p, 0, from, 1001, part);
        assert_memory_equal(part, whole + from, sizeof part);
    }
    for (int i = 0; i < N; i++) {
        sum += whole[i];
        squares += ((double)whole[i] - 1) * ((double)whole[i] - 1);
    }
    assert_true(sum / N > 0.99 && sum / N < 1.01);
    assert_true(squares / N > 0.2429 && squares / N < 0.2571);
    sf_params_fill(&p, 1, 0, 1001, part);
    assert_memory_not_equal(part, whole, sizeof part);
    p.seed = 4;
    sf_params_fill(&p, 0, 0, 1001, part);
    assert_memory_not_equal(part, whole, sizeof part);
    free(whole);
}

/* Two tensors of 3 and 2 elements and 1 of padding. */
static void flats_are_filled_slice_by_slice_with_zero_padding(void **state)
{
    (void)state;
    float given0[3] = { 1, 2, 3 }, given1[2] = { 4, 5 }, out[6];
    sf_param params[2] = { { .numel = 3, .given = given0 }, { .numel = 2, .given = given1 } };
    sf_params p = { .params = params, .count = 2 };
    sf_flat_tensor tensors[2] = { { .tensor = 0, .offset = 0, .numel = 3, .decay = true }, { .tensor = 1, .offset = 3, .numel = 2 } };
    sf_flat flat = { .tensors = tensors, .n_tensors = 2, .elems = 5, .padded = 6 };
    bool decay;

    sf_params_fill_flat(&p, &flat, 0, 6, out);
    assert_memory_equal(out, ((float[]){ 1, 2, 3, 4, 5, 0 }), sizeof out);
    sf_params_fill_flat(&p, &flat, 2, 2, out);
    assert_memory_equal(out, ((float[]){ 3, 4 }), 2 * sizeof(float));
    assert_int_equal(sf_flat_decay_run(&flat, 0, 6, &decay), 3);
    assert_true(decay);
    assert_int_equal(sf_flat_decay_run(&flat, 1, 2, &decay), 1);
    assert_int_equal(sf_flat_decay_run(&flat, 3, 6, &decay), 2);
    assert_false(decay);
    assert_int_equal(sf_flat_decay_run(&flat, 5, 6, &decay), 1);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[200];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequences_follow_each_other_and_wrap_around),
        cmocka_unit_test(text_is_taken_as_bytes),
        cmocka_unit_test(an_llm_c_header_is_known_and_checked),
        cmocka_unit_test(bad_files_are_named_with_the_place),
        cmocka_unit_test(a_directory_is_its_files_in_order_of_name),
        cmocka_unit_test(without_a_path_small_vocabularies_get_made_up_tokens),
        cmocka_unit_test(parameters_depend_on_seed_tensor_and_element_alone),
        cmocka_unit_test(flats_are_filled_slice_by_slice_with_zero_padding),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
