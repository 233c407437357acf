#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/desc/transformer_flops.h"

static sf_transformer model(const char *name, sf_arena *arena)
{
    sf_transformer m;
    sf_status st = sf_transformer_find(name, arena, &m);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    return m;
}

static void near(double got, double want, double relative)
{
    if (fabs(got - want) > relative * fabs(want))
        fail_msg("%.12g, not %.12g", got, want);
}

/* Llama-2-7B: a layer is 4 x 4096^2 + 3 x 4096 x 11008 = 202375168 elements; 32 layers and the head of
 * 32000 x 4096 = 131072000: 6607077376 elements, 2 FLOP each. */
static void matrix_products_are_two_per_applied_element(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_transformer m = model("llama-2-7b", &arena);
    near(sf_transformer_block_matmul_flop(&m), 2.0 * 32 * 202375168, 1e-15);
    near(sf_transformer_matmul_flop(&m), 2.0 * 6607077376.0, 1e-15);
    sf_arena_free(&arena);
}

/* Over all positions 4 s C a layer; causal (s + 1) / 2 of the s positions. s 4096, C 4096, 32 layers. */
static void attention_counts_all_positions_or_the_causal_half(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_transformer m = model("llama-2-7b", &arena);
    near(sf_transformer_attention_flop(&m, 4096, SF_SPAN_FULL), 32 * 4.0 * 4096 * 4096, 1e-15);
    near(sf_transformer_attention_flop(&m, 4096, SF_SPAN_CAUSAL), 32 * 4.0 * 4096 * 2048.5, 1e-15);
    sf_arena_free(&arena);
}

/* Mistral-7B, window 4096, s 8192: positions 0..4095 see i + 1, the others 4096: the mean is
 * (4096 x 4097 / 2 + 4096 x 4096) / 8192 = 3072.25. */
static void windows_bound_what_a_position_sees(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_transformer m = model("mistral-7b", &arena);
    near(sf_transformer_attention_flop(&m, 8192, SF_SPAN_CAUSAL), 32 * 4.0 * 4096 * 3072.25, 1e-15);
    sf_arena_free(&arena);
}

/* The figures per token for Llama-2-7B at s = 4096 in GFLOP: 6 N is 39.64 without the table and 40.43
 * with it; attention is 6.44 in full, 3.22 as the causal half. */
static void one_run_differs_by_the_convention_of_its_count(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_transformer m = model("llama-2-7b", &arena);
    double attention = 12.0 * 32 * 4096 * 4096, n = 6738415616.0, table = 131072000.0;
    near(sf_transformer_step_flop(&m, 4096, SF_FLOP_SIX_N), 6 * n, 1e-15);
    near(sf_transformer_step_flop(&m, 4096, SF_FLOP_NANOGPT), 6 * n + attention, 1e-15);
    near(sf_transformer_step_flop(&m, 4096, SF_FLOP_LLM_FOUNDRY), 6 * n + attention, 1e-15);
    near(sf_transformer_step_flop(&m, 4096, SF_FLOP_LLMC), 6 * n + attention / 2, 1e-15);
    near(sf_transformer_step_flop(&m, 4096, SF_FLOP_TORCHTITAN), 6 * (n - table) + attention, 1e-15);
    near(sf_transformer_step_flop(&m, 4096, SF_FLOP_PALM), 6 * (n - table) + attention, 1e-15);
    near(sf_transformer_step_flop(&m, 4096, SF_FLOP_MEGATRON), 6 * 6607077376.0 + attention / 2, 1e-15);
    near(sf_transformer_step_flop(&m, 4096, SF_FLOP_EXACT_FULL), 6 * 6607077376.0 + attention, 1e-15);
    near(sf_transformer_step_flop(&m, 4096, SF_FLOP_NANOGPT), 46.9e9, 0.002); /* as rounded in print */
    near(sf_transformer_step_flop(&m, 4096, SF_FLOP_MEGATRON), 42.9e9, 0.002);
    sf_arena_free(&arena);
}

/* GPT-2: the tied table is the head; nanoGPT leaves out the 1024 x 768 positions only. Megatron's form
 * of 2021 for L 12, C 768, s 1024, V 50257. */
static void a_tied_table_counts_as_the_head(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_transformer m = model("gpt2", &arena);
    double attention = 12.0 * 12 * 768 * 1024, n = 124439808;
    near(sf_transformer_step_flop(&m, 1024, SF_FLOP_NANOGPT), 6 * (n - 1024 * 768) + attention, 1e-15);
    near(sf_transformer_step_flop(&m, 1024, SF_FLOP_TORCHTITAN), 6 * n + attention, 1e-15);
    near(sf_transformer_step_flop(&m, 1024, SF_FLOP_MEGATRON_2021), 72 * 12 * 768.0 * 768 * (1 + 1024 / (6.0 * 768) + 50257 / (12.0 * 12 * 768)), 1e-15);
    near(sf_transformer_matmul_flop(&m), 2 * (12 * 12.0 * 768 * 768 + 50257.0 * 768), 1e-15);
    near(sf_transformer_step_flop(&m, 1024, SF_FLOP_MEGATRON), 6 * (12 * 12.0 * 768 * 768 + 50304.0 * 768) + attention / 2, 1e-15); /* padded */
    sf_arena_free(&arena);
}

/* Mixtral: the router and 2 of 8 experts: 32 (4096 x (4096 x 2 + 1024 x 2) + 8 x 4096 + 2 x 3 x 4096 x 14336). */
static void a_token_is_multiplied_with_its_own_experts_only(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_transformer m = model("mixtral-8x7b", &arena);
    near(sf_transformer_block_matmul_flop(&m), 2 * 32 * (4096.0 * (8192 + 2048) + 8 * 4096 + 6.0 * 4096 * 14336), 1e-15);
    sf_arena_free(&arena);
}

/* DeepSeek-V2-Lite: 16 heads, query-key width 128 + 64, value width 128. */
static void latent_attention_has_two_widths(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_transformer m = model("deepseek-v2-lite", &arena);
    near(sf_transformer_attention_flop(&m, 1000, SF_SPAN_FULL), 27 * 2.0 * 1000 * 16 * (192 + 128), 1e-15);
    sf_arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrix_products_are_two_per_applied_element),
        cmocka_unit_test(attention_counts_all_positions_or_the_causal_half),
        cmocka_unit_test(windows_bound_what_a_position_sees),
        cmocka_unit_test(one_run_differs_by_the_convention_of_its_count),
        cmocka_unit_test(a_tied_table_counts_as_the_head),
        cmocka_unit_test(a_token_is_multiplied_with_its_own_experts_only),
        cmocka_unit_test(latent_attention_has_two_widths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
