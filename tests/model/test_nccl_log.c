/* Logs of nccl-tests as people paste them: every file of tests/data/nccl-tests, and damaged ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "model/base/text.h"
#include "model/cost/collective_cost_profile.h"
#include "model/cost/nccl_log.h"

static sf_arena arena;

static int free_arena(void **state)
{
    (void)state;
    sf_arena_free(&arena);
    return 0;
}

static sf_nccl_log read_log(const char *name)
{
    sf_nccl_log log;
    sf_status st = sf_nccl_log_read(sf_arena_printf(&arena, "%s/nccl-tests/%s", SF_TEST_DATA, name), SF_COLL_COUNT, &arena, &log);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    return log;
}

static sf_nccl_log parse(const char *text)
{
    sf_nccl_log log;
    sf_status st = sf_nccl_log_parse(text, strlen(text), "memory", SF_COLL_COUNT, &arena, &log);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    return log;
}

/* Rows with bytes, ranks and nodes as the files have them (counted by eye and by `busbw / algbw`);
 * nodes 0: the file does not tell. */
static void every_log_of_the_collection_is_read(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        size_t rows;
        sf_collective op;
        int ranks, nodes;
        const char *gpu;
    } expected[] = {
        { "128x-gb200-2racks-allreduce.txt", 6, SF_COLL_ALL_REDUCE, 128, 32, "" },
        { "1n-a100pcie-4x-allgather-1row.txt", 1, SF_COLL_ALL_GATHER, 4, 1, "NVIDIA A100 80GB PCIe" },
        { "1n-a100sxm-4x-allreduce.txt", 25, SF_COLL_ALL_REDUCE, 4, 1, "NVIDIA A100-SXM4-80GB" },
        { "1n-azure-a100-allgather.txt", 29, SF_COLL_ALL_GATHER, 8, 1, "A100-SXM4-40GB" },
        { "1n-azure-a100-allreduce.txt", 32, SF_COLL_ALL_REDUCE, 8, 1, "A100-SXM4-40GB" },
        { "1n-azure-a100-reduce.txt", 32, SF_COLL_REDUCE, 8, 1, "A100-SXM4-40GB" },
        { "1n-azure-a100-reducescatter.txt", 29, SF_COLL_REDUCE_SCATTER, 8, 1, "A100-SXM4-40GB" },
        { "1n-dgxcloud-h100-allreduce.txt", 32, SF_COLL_ALL_REDUCE, 8, 1, "NVIDIA H100 80GB HBM3" },
        { "1n-p5-h100-allreduce.txt", 32, SF_COLL_ALL_REDUCE, 8, 0, "" },
        { "1n-v100-hcm-8x-allreduce.txt", 25, SF_COLL_ALL_REDUCE, 8, 1, "Tesla V100-SXM2-16GB" },
        { "1n-v100pcie-4x-allreduce-nccl242.txt", 25, SF_COLL_ALL_REDUCE, 4, 1, "Tesla V100-PCIE-32GB" },
        { "1n-v100pcie-4x-allreduce-nccl283.txt", 25, SF_COLL_ALL_REDUCE, 4, 1, "Tesla V100-PCIE-32GB" },
        { "2n-alps-gh200-1gpu-allreduce.txt", 8, SF_COLL_ALL_REDUCE, 2, 2, "NVIDIA GH200 120GB" },
        { "2n-alps-gh200-allreduce-small.txt", 25, SF_COLL_ALL_REDUCE, 8, 2, "NVIDIA GH200 120GB" },
        { "2n-azure-nda100v4-ib-allreduce.txt", 16, SF_COLL_ALL_REDUCE, 16, 0, "" },
        { "2n-b200-1nic-allgather.txt", 26, SF_COLL_ALL_GATHER, 2, 2, "NVIDIA B200" },
        { "2n-dgx1v100-roce-allreduce.txt", 29, SF_COLL_ALL_REDUCE, 16, 0, "" },
        { "2n-dgxa100-hdr-allreduce.txt", 30, SF_COLL_ALL_REDUCE, 16, 0, "" },
        { "2n-g4dn-t4-efa-allreduce-full.txt", 29, SF_COLL_ALL_REDUCE, 2, 2, "Tesla T4" },
        { "2n-g4dn-t4-tcp-allreduce.txt", 29, SF_COLL_ALL_REDUCE, 2, 0, "" },
        { "2n-gb10-spark-qsfp-allgather.txt", 3, SF_COLL_ALL_GATHER, 2, 2, "NVIDIA GB10" },
        { "2n-gcp-a3high-allgather.txt", 10, SF_COLL_ALL_GATHER, 16, 0, "" },
        { "2n-gcp-a3mega-allgather-nohash.txt", 11, SF_COLL_ALL_GATHER, 16, 0, "" },
        { "2n-gcp-a3mega-allgather.txt", 26, SF_COLL_ALL_GATHER, 16, 0, "" },
        { "2n-gcp-a3mega-h100-allreduce.txt", 31, SF_COLL_ALL_REDUCE, 16, 2, "NVIDIA H100 80GB HBM3" },
        { "2n-gcp-a3ultra-allgather.txt", 24, SF_COLL_ALL_GATHER, 16, 0, "" },
        { "2n-gcp-a4-b200-allreduce.txt", 11, SF_COLL_ALL_REDUCE, 16, 0, "" },
        { "2n-h100-1gpu-roce-allreduce.txt", 13, SF_COLL_ALL_REDUCE, 2, 2, "NVIDIA H100 80GB HBM3" },
        { "2n-h100-1gpu-roce-sendrecv.txt", 13, SF_COLL_SEND_RECV, 2, 2, "NVIDIA H100 80GB HBM3" },
        { "2n-h200-1nic-allgather.txt", 24, SF_COLL_ALL_GATHER, 2, 2, "NVIDIA H200" },
        { "2n-h200-1nic-allreduce.txt", 24, SF_COLL_ALL_REDUCE, 2, 2, "NVIDIA H200" },
        { "2n-h200-8nic-allgather.txt", 24, SF_COLL_ALL_GATHER, 16, 2, "NVIDIA B200" },
        { "2n-lambda-b200-allreduce.txt", 29, SF_COLL_ALL_REDUCE, 16, 0, "" },
        { "2n-nebius-h100-allreduce.txt", 31, SF_COLL_ALL_REDUCE, 16, 0, "" },
        { "2n-oci-a100-roce-allreduce.txt", 4, SF_COLL_ALL_REDUCE, 16, 2, "NVIDIA A100-SXM4-40GB" },
        { "2n-oci-h100-allreduce.txt", 5, SF_COLL_ALL_REDUCE, 16, 2, "NVIDIA H100 80GB HBM3" },
        { "2n-rtxpro6000-cx8-allreduce.txt", 24, SF_COLL_ALL_REDUCE, 16, 2, "" },
        { "2x-2080ti-pcie3-allgather.txt", 26, SF_COLL_ALL_GATHER, 2, 1, "NVIDIA GeForce RTX 2080 Ti" },
        { "2x-2080ti-pcie3-allreduce.txt", 28, SF_COLL_ALL_REDUCE, 2, 1, "NVIDIA GeForce RTX 2080 Ti" },
        { "3n-t4-ethernet-allreduce.txt", 11, SF_COLL_ALL_REDUCE, 3, 3, "Tesla T4" },
        { "4n-dgxa100-allreduce.txt", 13, SF_COLL_ALL_REDUCE, 32, 0, "" },
        { "72x-gb200-nvl72-allreduce.txt", 5, SF_COLL_ALL_REDUCE, 72, 18, "" },
        { "96x-h100-ib-allreduce.txt", 5, SF_COLL_ALL_REDUCE, 96, 0, "" },
    };
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        sf_nccl_log log = read_log(expected[i].file);
        if (log.n_rows != expected[i].rows || log.op != expected[i].op || log.ranks != expected[i].ranks || log.nodes != expected[i].nodes ||
            strcmp(log.gpu, expected[i].gpu) != 0)
            fail_msg("%s: %zu rows, op %d, %d ranks, %d nodes, '%s'", expected[i].file, log.n_rows, (int)log.op, log.ranks, log.nodes, log.gpu);
    }
}

static void figures_are_those_of_the_table(void **state)
{
    (void)state;
    sf_nccl_log log = read_log("1n-p5-h100-allreduce.txt");
    const sf_nccl_log_row *last = &log.rows[log.n_rows - 1];
    assert_true(last->bytes == (uint64_t)16 << 30);
    assert_true(fabs(last->time_s - 62239e-6) < 1e-9);
    assert_true(fabs(last->busbw_Bps - 483.05e9) < 1e6);
    assert_string_equal(last->type, "float");
    assert_true(last->in_place_time_s > 0);
}

/* What NCCL itself says of versions and networks. */
static void messages_of_nccl_tell_the_fabric(void **state)
{
    (void)state;
    sf_nccl_log roce = read_log("2n-h100-1gpu-roce-allreduce.txt");
    assert_int_equal(roce.nic, SF_NIC_ROCE);
    assert_int_equal(roce.nics, 1);
    assert_int_equal(roce.gpudirect, 0);
    assert_int_equal(roce.algos, 1u << SF_ALGO_RING);
    assert_int_equal(roce.nccl_version, 22602);
    sf_nccl_log efa = read_log("2n-g4dn-t4-efa-allreduce-full.txt");
    assert_int_equal(efa.nic, SF_NIC_EFA);
    assert_int_equal(efa.protos, 1u << SF_PROTO_SIMPLE);
    assert_int_equal(efa.nccl_version, 21207);
    assert_int_equal(read_log("2n-g4dn-t4-tcp-allreduce.txt").nic, SF_NIC_TCP);
    assert_int_equal(read_log("2n-rtxpro6000-cx8-allreduce.txt").nccl_version, 23003);
    sf_nccl_log old = read_log("1n-azure-a100-allreduce.txt");
    assert_true(old.old_columns);
    assert_int_equal(old.gpus_per_process, 8);
}

/* 2 ops x 3 numbers of GPUs in one table; sizes are elements of half (2 B), times ms. */
static void tables_of_latencies_are_read_by_collective_and_ranks(void **state)
{
    (void)state;
    sf_nccl_log log = read_log("aic/a100_sxm-nccl2.27.3.csv"), part;
    assert_int_equal(log.n_rows, 504);
    assert_int_equal(log.op, SF_COLL_COUNT);
    assert_string_equal(log.gpu, "NVIDIA A100-SXM4-80GB");
    assert_int_equal(log.nccl_version, 22703);
    sf_nccl_log_part(&log, SF_COLL_ALL_REDUCE, 8, &arena, &part);
    const sf_nccl_log_row *row = NULL;
    for (size_t i = 0; i < part.n_rows; i++)
        if (part.rows[i].bytes == (uint64_t)512 << 20 && strcmp(part.rows[i].type, "half") == 0)
            row = &part.rows[i];
    assert_non_null(row);
    assert_true(fabs(row->time_s - 4.226e-3) < 1e-5);
    assert_true(fabs(row->busbw_Bps / 1e9 - 222) < 1); /* as the collection's index says */
    assert_int_equal(read_log("aic/h200_sxm-nccl2.23.csv").n_rows, 342); /* fewer columns */
}

static void prefixes_and_interruptions_do_not_hide_rows(void **state)
{
    (void)state;
    sf_nccl_log log = parse(
        "2024-05-01T10:00:00Z worker-0 # Collective test starting: all_gather_perf\n"
        "0: #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
        "[1,3]<stdout>:     1048576        131072     float    none      -1    28.56   36.71   18.36      0    28.37   36.96   18.48      0\n"
        "node7:123:456 [3] NCCL INFO Launch mode Parallel\n"
        "2024-05-01T10:00:03Z worker-0 2097152 262144 float none -1 43.45 48.27 24.13 0 43.39 48.34 24.17 0\r\n"
        "\033[0;32m     4194304        524288     float    none      -1    55.44   75.66   37.83    N/A\033[0m\n"
        "| 8388608 | 1048576 | bfloat16 | none | -1 | 84.29 | 99.52 | 49.76 | 0 | 83.22 | 100.80 | 50.40 | 0 |\n"
        "[0]     16777216       2097152     float    none      -1[0]    124.0  135.33   67.66      0[0]    123.4  135.92   67.96      0\n");
    assert_int_equal(log.n_rows, 5);
    assert_int_equal(log.op, SF_COLL_ALL_GATHER);
    assert_int_equal(log.ranks, 2); /* busbw / algbw = 1/2 */
    assert_string_equal(log.rows[3].type, "bfloat16");
    assert_int_equal(log.rows[1].line, 5);
}

/* Two runs pasted one after the other: 2 ranks, then 4 (ratios 1 and 1.5). */
static void several_runs_in_one_file_keep_their_own_ranks(void **state)
{
    (void)state;
    sf_nccl_log log = parse("$ ./all_reduce_perf -g 2\n"
                            "#  Rank  0 Group  0 Pid  1 on  n0 device  0 [0x01] NVIDIA A100-SXM4-80GB\n"
                            "#  Rank  1 Group  0 Pid  1 on  n0 device  1 [0x41] NVIDIA A100-SXM4-80GB\n"
                            "  134217728      33554432     float     sum      -1    748.0  179.44  179.44      0    747.0  179.68  179.68      0\n"
                            "$ ./all_reduce_perf -g 4\n"
                            "#  Rank  0 Group  0 Pid  2 on  n0 device  0 [0x01] NVIDIA A100-SXM4-80GB\n"
                            "#  Rank  1 Group  0 Pid  2 on  n0 device  1 [0x41] NVIDIA A100-SXM4-80GB\n"
                            "#  Rank  2 Group  0 Pid  2 on  n0 device  2 [0x81] NVIDIA A100-SXM4-80GB\n"
                            "#  Rank  3 Group  0 Pid  2 on  n0 device  3 [0xc1] NVIDIA A100-SXM4-80GB\n"
                            "  134217728      33554432     float     sum      -1   1000.0  134.22  201.33      0    999.0  134.35  201.53      0\n");
    assert_int_equal(log.n_rows, 2);
    assert_int_equal(log.rows[0].ranks, 2);
    assert_int_equal(log.rows[1].ranks, 4);
    assert_int_equal(log.ranks, 0);
    assert_int_equal(log.nodes, 1);
}

static void a_cut_row_is_left_out_and_named(void **state)
{
    (void)state;
    sf_nccl_log log = parse("     1048576        262144     float     sum      -1    28.56   36.71   64.24      0    28.37   36.96   64.68      0\n"
                            "     2097152        524288     float     sum      -1    43.45   48.27   84.47\n"
                            "     4194304       1048576     float     sum      -1    55.4");
    assert_int_equal(log.n_rows, 2);
    assert_int_equal(log.n_warnings, 1);
    assert_non_null(strstr(log.warnings[0], "memory:3"));
}

static void a_row_whose_figures_contradict_each_other_is_left_out(void **state)
{
    (void)state;
    sf_nccl_log log = parse("     1048576        262144     float     sum      -1    28.56   36.71   64.24      0    28.37   36.96   64.68      0\n"
                            "     2097152        524288     float     sum      -1    43.45   99.99   84.47      0    43.39   48.34   84.59      0\n");
    assert_int_equal(log.n_rows, 1);
}

static void a_text_without_rows_is_an_error_that_says_what_was_expected(void **state)
{
    (void)state;
    sf_nccl_log log;
    static const char text[] = "$ ./all_reduce_perf\n# nThread 1 nGpus 8\nSegmentation fault\n";
    sf_status st = sf_nccl_log_parse(text, strlen(text), "x.log", SF_COLL_COUNT, &arena, &log);
    assert_int_equal(st.code, SF_EPARSE);
    assert_non_null(strstr(st.msg, "x.log: no row"));
    assert_int_equal(sf_nccl_log_parse("", 0, "empty", SF_COLL_COUNT, &arena, &log).code, SF_EPARSE);
    assert_int_equal(sf_nccl_log_read("/nonexistent.log", SF_COLL_COUNT, &arena, &log).code, SF_EIO);
}

/* Whatever happens to a log, reading ends with rows or a message, never with a crash: run under
 * AddressSanitizer. A small generator, so that a failure can be repeated from its seed. */
static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static void damaged_logs_never_crash(void **state)
{
    (void)state;
    static const char *const files[] = { "2n-h100-1gpu-roce-sendrecv.txt", "1n-p5-h100-allreduce.txt", "1n-azure-a100-reduce.txt",
                                         "2n-gcp-a3mega-h100-allreduce.txt", "aic/h200_sxm-nccl2.23.csv" };
    uint32_t seed = 1;
    for (size_t f = 0; f < sizeof files / sizeof files[0]; f++) {
        char *text;
        size_t len;
        assert_int_equal(sf_file_read(sf_arena_printf(&arena, "%s/nccl-tests/%s", SF_TEST_DATA, files[f]), 1 << 20, &arena, &text, &len).code, SF_OK);
        for (int round = 0; round < 60; round++) {
            sf_arena scratch = { 0 };
            sf_nccl_log log;
            size_t from = next_random(&seed) % len, n = 1 + next_random(&seed) % (len - from);
            char *damaged = malloc(n + 1); /* exact size: a read past the end is seen */
            assert_non_null(damaged);
            memcpy(damaged, text + from, n);
            damaged[n] = '\0';
            for (uint32_t k = next_random(&seed) % 40; k > 0; k--)
                damaged[next_random(&seed) % n] = (char)next_random(&seed);
            sf_status st = sf_nccl_log_parse(damaged, n, "damaged", SF_COLL_COUNT, &scratch, &log);
            assert_true(st.code == SF_OK ? log.n_rows > 0 : st.msg[0] != '\0');
            sf_collective_profile profile = { 0 };
            if (st.code == SF_OK)
                sf_collective_profile_import(&log, 1, &scratch, &profile);
            free(damaged);
            sf_arena_free(&scratch);
        }
    }
}

/* One log of a machine imported: its own rows come back. */
static void an_imported_log_gives_its_own_times_back(void **state)
{
    (void)state;
    sf_nccl_log log = read_log("1n-dgxcloud-h100-allreduce.txt");
    sf_collective_profile profile = { 0 };
    assert_int_equal(sf_collective_profile_import(&log, 0, &arena, &profile).code, SF_OK);
    assert_int_equal(profile.n_curves, 1);
    assert_string_equal(profile.sources[0].gpu, "NVIDIA H100 80GB HBM3");
    const sf_collective_curve *c = sf_collective_profile_find(&profile, SF_COLL_ALL_REDUCE, 8, 1);
    assert_non_null(c);
    for (size_t i = 0; i < log.n_rows; i++)
        assert_true(fabs(sf_collective_curve_time(c, (double)log.rows[i].bytes) / log.rows[i].time_s - 1) < 1e-9);
    sf_nccl_log untold = read_log("2n-dgxa100-hdr-allreduce.txt");
    sf_status st = sf_collective_profile_import(&untold, 0, &arena, &profile);
    assert_int_equal(st.code, SF_EINVAL);
    assert_non_null(strstr(st.msg, "--nodes"));
    assert_int_equal(sf_collective_profile_import(&untold, 2, &arena, &profile).code, SF_OK);
    assert_int_equal(profile.n_curves, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_log_of_the_collection_is_read),
        cmocka_unit_test(figures_are_those_of_the_table),
        cmocka_unit_test(messages_of_nccl_tell_the_fabric),
        cmocka_unit_test(tables_of_latencies_are_read_by_collective_and_ranks),
        cmocka_unit_test(prefixes_and_interruptions_do_not_hide_rows),
        cmocka_unit_test(several_runs_in_one_file_keep_their_own_ranks),
        cmocka_unit_test(a_cut_row_is_left_out_and_named),
        cmocka_unit_test(a_row_whose_figures_contradict_each_other_is_left_out),
        cmocka_unit_test(a_text_without_rows_is_an_error_that_says_what_was_expected),
        cmocka_unit_test(damaged_logs_never_crash),
        cmocka_unit_test(an_imported_log_gives_its_own_times_back),
    };
    return cmocka_run_group_tests_name("logs of nccl-tests", tests, NULL, free_arena);
}
