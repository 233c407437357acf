#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/cost/compute_cost.h"

static sf_gpu gpu(const char *name)
{
    static sf_arena arena;
    sf_gpu g;
    sf_status st = sf_gpu_find(name, 0, &arena, &g);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    return g;
}

/* A large aligned product runs at the best rate measured for the card: 8192^3 on A100 SXM at 271.2
 * TFLOPS but for the last wave: at the clock of a steady load, 0.86 of that: 64 * 32 = 2048 tiles on 108 SMs are 18.96 waves of 19: 99.8 %. */
static void large_products_reach_the_measured_best(void **state)
{
    (void)state;
    sf_gpu a100 = gpu("A100-80GB");
    double t = sf_gpu_gemm_time_s(&a100, SF_BF16, true, 8192, 8192, 8192, 1);
    double tflops = 2 * 8192.0 * 8192 * 8192 / t * 1e-12;
    assert_true(tflops > 262 * 0.86 && tflops < 271.2 * 0.86);
}

/* Llama-3-8B's up projection, 8192 x 14336: 64 * 56 = 3584 tiles; on 132 SMs 27.15 waves take 28. */
static void the_last_wave_is_paid_whole(void **state)
{
    (void)state;
    sf_gpu h100 = gpu("H100");
    double t = sf_gpu_gemm_time_s(&h100, SF_BF16, true, 8192, 14336, 4096, 1);
    double want = 2 * 8192.0 * 14336 * 4096 / (sf_gpu_reachable_flops(&h100, SF_BF16, true) * (3584.0 / 132) / 28);
    assert_true(fabs(t - want - 2.5e-6) < 1e-9);
}

/* 2048 x 2048 on the 108 SMs of an A100: 128 tiles of 128 x 256 are 1.19 waves of 2 (0.59), 256 of 128 x 128 2.37 of 3 (0.79, at 0.93 of
 * the rate 0.73), 512 of 64 x 128 4.74 of 5 (0.948, at 0.93^2 0.820), 1024 of 64 x 64 at 0.93^3 0.763: the third is taken. */
static void the_best_tile_is_taken(void **state)
{
    (void)state;
    sf_gpu a100 = gpu("A100-80GB");
    double t = sf_gpu_gemm_time_s(&a100, SF_BF16, true, 2048, 2048, 8192, 1);
    double want = 2 * 2048.0 * 2048 * 8192 / (sf_gpu_reachable_flops(&a100, SF_BF16, true) * 0.93 * 0.93 * (512.0 / 108) / 5);
    assert_true(fabs(t - want - 2.5e-6) < 1e-9);
}

/* H100 with 500 of 700 W on the same 132 SMs: the cube root of 0.714, 0.894 of the clock. H100 PCIe: 350 W on 114 SMs are 0.579 of the
 * power of an SM, cube root 0.833, and its 756 TFLOPS are rated at 0.885 of the clock: 0.942 of the share. */
static void less_power_is_a_lower_clock(void **state)
{
    (void)state;
    sf_gpu full = gpu("H100 SXM5"), capped = gpu("H100 SXM5 96GB"), pcie = gpu("H100 PCIe");
    double a = sf_gpu_reachable_flops(&full, SF_BF16, true), b = sf_gpu_reachable_flops(&capped, SF_BF16, true), c = sf_gpu_reachable_flops(&pcie, SF_BF16, true);
    assert_true(fabs(b / a - cbrt(500.0 / 700)) < 1e-9);
    assert_true(fabs(c / a / (756.0 / 989) - 0.942) < 1e-3);
}

/* d_ff 10922 = 2 * 43 * 127 against 10944: 272.7 and 398.4 TFLOPS were measured. */
static void odd_dimensions_fall_off_a_cliff(void **state)
{
    (void)state;
    sf_gpu h100 = gpu("H100");
    double odd = sf_gpu_gemm_time_s(&h100, SF_BF16, true, 8192, 10922, 4096, 1), even = sf_gpu_gemm_time_s(&h100, SF_BF16, true, 8192, 10944, 4096, 1);
    assert_true(odd / even > 1.35 && odd / even < 1.6);
}

/* One token against a 4096 x 4096 matrix reads 32 MiB: HBM bound, 33.6 MB / (0.88 * 2.0 TB/s) = 19 us. */
static void few_rows_are_bound_by_the_weights(void **state)
{
    (void)state;
    sf_gpu a100 = gpu("A100-80GB");
    double t = sf_gpu_gemm_time_s(&a100, SF_BF16, true, 1, 4096, 4096, 1);
    double bytes = 2.0 * (4096 + 4096 * 4096.0 + 4096);
    assert_true(t >= bytes / (a100.memory_Bps * 0.88));
}

/* Llama-2-7B's layer at 4096 tokens is 1657.8 GFLOP of products forward: 6 to 7.2 ms on an A100, at 0.86 of its clock 7 to 8.4. */
static void a_llama_layer_takes_what_it_takes(void **state)
{
    (void)state;
    sf_gpu a100 = gpu("A100-80GB");
    double t = 4 * sf_gpu_gemm_time_s(&a100, SF_BF16, true, 4096, 4096, 4096, 1) + 2 * sf_gpu_gemm_time_s(&a100, SF_BF16, true, 4096, 11008, 4096, 1) +
               sf_gpu_gemm_time_s(&a100, SF_BF16, true, 4096, 4096, 11008, 1);
    assert_true(t > 6.0e-3 / 0.86 && t < 7.2e-3 / 0.86);
}

/* FlashAttention-2 on H100, causal, head size 128: 191 TFLOPS at 512 tokens, 335 at 16k (FA3 paper). */
static void attention_is_slower_on_short_sequences(void **state)
{
    (void)state;
    sf_gpu h100 = gpu("H100");
    double flop = 1e12;
    double short_rate = flop / sf_gpu_attention_time_s(&h100, SF_BF16, flop, 1, 128, 512, false, SF_KERNEL_FLASH2) * 1e-12;
    double long_rate = flop / sf_gpu_attention_time_s(&h100, SF_BF16, flop, 1, 128, 16384, false, SF_KERNEL_FLASH2) * 1e-12;
    assert_true(fabs(short_rate - 191) < 0.1 * 191);
    assert_true(fabs(long_rate - 335) < 0.05 * 335);
}

/* Fused AdamW of 7 B parameters in f32 moves 28 B each: 111 ms on an A100 of 2 TB/s at 85 to 88 %. */
static void the_optimizer_streams_its_state(void **state)
{
    (void)state;
    sf_gpu a100 = gpu("A100-80GB");
    double t = sf_gpu_memory_time_s(&a100, 28 * 6.738e9, 1);
    assert_true(t > 0.100 && t < 0.115);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_products_reach_the_measured_best),
        cmocka_unit_test(the_last_wave_is_paid_whole),
        cmocka_unit_test(the_best_tile_is_taken),
        cmocka_unit_test(less_power_is_a_lower_clock),
        cmocka_unit_test(odd_dimensions_fall_off_a_cliff),
        cmocka_unit_test(few_rows_are_bound_by_the_weights),
        cmocka_unit_test(a_llama_layer_takes_what_it_takes),
        cmocka_unit_test(attention_is_slower_on_short_sequences),
        cmocka_unit_test(the_optimizer_streams_its_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
