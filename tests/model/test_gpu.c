#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "model/base/csv.h"
#include "model/base/text.h"
#include "model/base/units.h"
#include "model/desc/catalogue.h"
#include "model/desc/gpu.h"

/* Names as the published runs write them. */
static void gpus_are_found_by_the_names_people_write(void **state)
{
    (void)state;
    static const struct {
        const char *asked;
        double memory_gb;
        const char *name;
    } cases[] = {
        { "A100-40GB", 40, "A100 SXM4 40GB" }, { "A100-80GB", 0, "A100 SXM4 80GB" }, { "A100-PCIe-80GB", 80, "A100 PCIe 80GB" },
        { "H100-SXM-80GB", 80, "H100 SXM5" }, { "H100-SXM-96GB-HBM2e-500W", 96, "H100 SXM5 96GB" }, { "H100", 0, "H100 SXM5" },
        { "4090", 0, "RTX 4090" }, { "RTX-4090-24GB", 24, "RTX 4090" }, { "3090", 0, "RTX 3090" }, { "RTX 3090 Ti", 0, "RTX 3090 Ti" },
        { "NVIDIA A100-SXM4-80GB", 0, "A100 SXM4 80GB" }, { "Tesla V100-SXM2-32GB", 0, "V100 SXM2 32GB" }, { "V100-SXM2-16GB", 16, "V100 SXM2 16GB" },
        { "A800-PCIe-80GB", 80, "A800 PCIe 80GB" }, { "GB200-192GB", 192, "GB200 (one GPU)" }, { "TITAN-RTX-24GB", 24, "TITAN RTX" },
        { "A10G-24GB", 24, "A10G" }, { "A10", 0, "A10" }, { "RTX-A6000-48GB", 48, "RTX A6000" }, { "H800-80GB", 80, "H800 SXM5" },
        /* every GPU of the collected runs and reports, with the memory that they state */
        { "A100-PCIe-80GB", 80, "A100 PCIe 80GB" }, { "A10G-24GB", 24, "A10G" }, { "H200-SXM-141GB", 141, "H200 SXM" },
        { "RTX-3090-24GB", 24, "RTX 3090" }, { "V100-SXM2-32GB", 32, "V100 SXM2 32GB" }, { "A40", 44, "A40" }, { "A100", 80, "A100 SXM4 80GB" },
        { "A100", 40, "A100 SXM4 40GB" }, { "V100", 32, "V100 SXM2 32GB" }, { "A800", 80, "A800 SXM4 80GB" }, { "H100", 80, "H100 SXM5" },
        { "H100 96GB HBM2e (500W)", 96, "H100 SXM5 96GB" }, { "H100 NVL", 96, "H100 NVL" }, { "A100 (DGX node)", 80, "A100 SXM4 80GB" },
        { "Titan RTX", 24, "TITAN RTX" }, { "A800 SXM4 80GB", 0, "A800 SXM4 80GB" }, { "H200 SXM", 0, "H200 SXM" },
        /* other ways of writing */
        { "B200-192GB", 0, "B200 SXM" }, { "H100 94GB", 0, "H100 NVL" }, { "8x A100", 80, "A100 SXM4 80GB" }, { "a100_80gb", 0, "A100 SXM4 80GB" },
        { "A100-80G", 0, "A100 SXM4 80GB" }, { "Tesla V100-PCIE-16GB", 0, "V100 PCIe 16GB" }, { "RTX4090", 0, "RTX 4090" }, { "3090Ti", 0, "RTX 3090 Ti" },
        { "NVIDIA RTX 6000 Ada Generation", 0, "RTX 6000 Ada" }, { "nvidia-h100", 0, "H100 SXM5" }, { "L40S-48GB", 0, "L40S" }, { "HOST", 0, "host" },
        { "2080Ti", 0, "RTX 2080 Ti" }, { "nvidia h200", 0, "H200 SXM" }, { "RTX-PRO-6000-96GB", 96, "RTX PRO 6000 Blackwell WS" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sf_arena arena = { 0 };
        sf_gpu gpu;
        sf_status st = sf_gpu_find(cases[i].asked, cases[i].memory_gb, &arena, &gpu);
        if (st.code != SF_OK)
            fail_msg("%s", st.msg);
        assert_string_equal(gpu.name, cases[i].name);
        sf_arena_free(&arena);
    }
}

static void unclear_gpus_are_refused_with_the_candidates(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_gpu gpu;
    sf_status st = sf_gpu_find("A100", 0, &arena, &gpu);
    assert_int_equal(st.code, SF_EINVAL);
    assert_non_null(strstr(st.msg, "'A100 SXM4 40GB', 'A100 SXM4 80GB'"));
    assert_int_equal(sf_gpu_find("A100", 80, &arena, &gpu).code, SF_OK);
    st = sf_gpu_find("B2000", 0, &arena, &gpu);
    assert_int_equal(st.code, SF_EINVAL);
    assert_non_null(strstr(st.msg, "B200"));
    st = sf_gpu_find("A100X", 0, &arena, &gpu);
    assert_non_null(strstr(st.msg, "'A100 SXM4 40GB'"));
    static const char *const nothing[] = { "", "80GB GPU", "GPU server", "   ", "NVIDIA" };
    for (size_t i = 0; i < sizeof nothing / sizeof nothing[0]; i++)
        assert_non_null(strstr(sf_gpu_find(nothing[i], 0, &arena, &gpu).msg, "names no GPU"));
    static const char *const unknown[] = { "not stated", "n/a", "4 GPUs (type not printed)", "Titan Xp", "H100-SXM-64GB", "m1 max" };
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
        assert_non_null(strstr(sf_gpu_find(unknown[i], 0, &arena, &gpu).msg, "nearest names"));
    sf_arena_free(&arena);
}

/* Each row by its own two names, whatever else resembles them. */
static void every_card_of_the_catalogue_is_found_by_its_own_names(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_csv csv;
    sf_gpu gpu;
    assert_int_equal(sf_csv_read(sf_catalogue_path(&arena, "gpus.csv"), &arena, &csv).code, SF_OK);
    for (size_t i = 0; i < csv.n_rows; i++) {
        assert_int_equal(sf_gpu_find(sf_csv_field(&csv, i, "name"), 0, &arena, &gpu).code, SF_OK);
        assert_string_equal(gpu.name, sf_csv_field(&csv, i, "name"));
        const char *smi = sf_csv_field(&csv, i, "nvidia_smi_name");
        if (smi[0] != '\0')
            assert_int_equal(sf_gpu_find(smi, 0, &arena, &gpu).code, SF_OK);
        /* a card of ours computes, remembers and is reached */
        assert_true(gpu.memory_bytes > SF_GIB && gpu.usable_bytes > SF_GIB && gpu.memory_Bps > 1e10 && (gpu.fp32_flops > 1e12 || gpu.bf16_flops > 1e12));
    }
    sf_arena_free(&arena);
}

/* A100 SXM4 80GB: 312 TFLOP/s dense in bf16, 156 in tf32; 108 SMs; 12 NVLinks of 25 GB/s each way. */
static void figures_are_dense_and_in_base_units(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_gpu gpu;
    assert_int_equal(sf_gpu_find("A100-80GB", 0, &arena, &gpu).code, SF_OK);
    assert_true(gpu.bf16_flops == 312e12 && gpu.tf32_flops == 156e12);
    assert_int_equal(gpu.sm_count, 108);
    assert_int_equal(gpu.nvlink_links, 12);
    assert_true(gpu.nvlink_Bps == 300e9);
    assert_true(gpu.compute_capability == 8.0);
    assert_int_equal(sf_gpu_find("host", 0, &arena, &gpu).code, SF_OK);
    assert_true(gpu.is_host);
    sf_arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpus_are_found_by_the_names_people_write),
        cmocka_unit_test(unclear_gpus_are_refused_with_the_candidates),
        cmocka_unit_test(every_card_of_the_catalogue_is_found_by_its_own_names),
        cmocka_unit_test(figures_are_dense_and_in_base_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
