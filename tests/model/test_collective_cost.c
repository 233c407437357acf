/* Collectives: NCCL's choice on hand-checked graphs, and laws that any prediction must obey. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "model/cost/collective_cost_profile.h"
#include "model/cost/nccl_plan.h"

#define MIB ((uint64_t)1 << 20)

static sf_arena arena;

static int free_arena(void **state)
{
    (void)state;
    sf_arena_free(&arena);
    return 0;
}

static sf_comm_fabric fabric_of(const char *gpu_name, int gpus, int nodes)
{
    sf_gpu gpu;
    sf_comm_fabric fabric;
    assert_int_equal(sf_gpu_find(gpu_name, 0, &arena, &gpu).code, SF_OK);
    sf_comm_fabric_make(&gpu, gpus, nodes, &fabric);
    return fabric;
}

static sf_comm_plan *plan_of(const sf_comm_fabric *fabric, int ranks, int per_node, int groups)
{
    sf_comm_plan *plan = SF_NEW(&arena, sf_comm_plan);
    sf_comm_group group = { .ranks = ranks, .ranks_per_node = per_node, .concurrent_groups = groups };
    sf_status st = sf_comm_plan_make(fabric, &group, NULL, NULL, plan);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    return plan;
}

static sf_comm_plan *world(const char *gpu, int gpus, int nodes)
{
    sf_comm_fabric fabric = fabric_of(gpu, gpus, nodes);
    return plan_of(&fabric, gpus * nodes, gpus, 1);
}

static sf_collective_cost cost(const sf_comm_plan *plan, sf_collective op, uint64_t bytes)
{
    sf_collective_cost c;
    sf_comm_plan_time(plan, op, bytes, &c);
    return c;
}

static void assert_near(double got, double expected, double relative)
{
    if (!(fabs(got - expected) <= relative * fabs(expected)))
        fail_msg("%.6g is not within %g of %.6g", got, relative, expected);
}

/* ---- graphs: 12 links x 20 = 240 GB/s carry 6 x 40, doubled 12 x 20; 18 x 20.6 = 370.8 carry 6 x 60,
 * doubled 12 x 30; 18 x 40.1 = 721.8 carry 8 x 90, doubled 16 x 45. Running channels: twice those. ---- */
static void rings_on_nvswitch_nodes_have_the_channels_that_nccl_prints(void **state)
{
    (void)state;
    static const struct {
        const char *gpu;
        int channels, exec;
        double speed;
    } expected[] = { { "A100 SXM4 80GB", 12, 24, 20 }, { "H100 SXM5", 12, 24, 30 }, { "H200 SXM", 12, 24, 30 }, { "B200 SXM", 16, 32, 45 } };
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        const sf_nccl_graph *g = &world(expected[i].gpu, 8, 1)->graphs[SF_ALGO_RING];
        assert_int_equal(g->channels, expected[i].channels);
        assert_int_equal(g->exec_channels, expected[i].exec);
        assert_near(g->intra_GBs, expected[i].speed, 1e-9);
    }
}

/* 8 NICs of 400 Gb/s: 48 x 8 = 384 is more than a Hopper's 370.8, 45 x 8 = 360 fits. */
static void rings_between_hopper_nodes_take_45_GBs_a_channel(void **state)
{
    (void)state;
    const sf_nccl_graph *g = &world("H100 SXM5", 8, 2)->graphs[SF_ALGO_RING];
    assert_int_equal(g->channels, 8);
    assert_near(g->inter_GBs, 45, 1e-9);
}

/* NVLS has a channel per GPU at the largest speed below total / GPUs: 370.8 / 8 = 46.35 -> 40. */
static void nvls_needs_hopper_and_an_nvswitch(void **state)
{
    (void)state;
    const sf_nccl_graph *g = &world("H100 SXM5", 8, 1)->graphs[SF_ALGO_NVLS];
    assert_int_equal(g->channels, 8);
    assert_near(g->intra_GBs, 40, 1e-9);
    assert_int_equal(world("A100 SXM4 80GB", 8, 1)->graphs[SF_ALGO_NVLS].channels, 0);
    assert_int_equal(world("H100 PCIe", 4, 1)->graphs[SF_ALGO_NVLS].channels, 0);
}

/* ---- NCCL's own estimates: 8 H100, all-reduce of 256 MiB. Ring Simple: 360 * 8/14 = 205.7 GB/s,
 * 8.4 + 14 * 3.4 + 268435456 / 205714 = 56 + 1305 = 1361 us. NVLS: 8 * 40 * .85 * 7/8 * 2 = 476 busbw,
 * * 8/14 = 272 GB/s, 25 + 987 = 1012 us, and it is chosen. ---- */
static void eight_h100_reduce_256_MiB_by_nvls_as_the_arithmetic_says(void **state)
{
    (void)state;
    const sf_comm_plan *plan = world("H100 SXM5", 8, 1);
    assert_near(sf_nccl_estimate_us(&plan->tuning, SF_COLL_ALL_REDUCE, SF_ALGO_RING, SF_PROTO_SIMPLE, 268435456), 1361, 1e-3);
    assert_near(sf_nccl_estimate_us(&plan->tuning, SF_COLL_ALL_REDUCE, SF_ALGO_NVLS, SF_PROTO_SIMPLE, 268435456), 1012, 1e-3);
    assert_int_equal(cost(plan, SF_COLL_ALL_REDUCE, 256 * MIB).algo, SF_ALGO_NVLS);
    /* NVLS all-gather would be 8 * 40 * .85 * 7/8 * 7/8 = 208 against Ring's 360 * 8/7 = 411: Ring. */
    assert_near(plan->tuning.of[SF_COLL_ALL_GATHER][SF_ALGO_NVLS][SF_PROTO_SIMPLE].algbw_GBs, 208.25, 1e-3);
    assert_int_equal(cost(plan, SF_COLL_ALL_GATHER, 256 * MIB).algo, SF_ALGO_RING);
}

/* 1 MiB: LL busbw min(141, 180) = 141, algbw 80.6: 6.6 + 14 * .6 + 13 = 28.0 us; LL128 busbw
 * min(.92 * 360, 12 * 36.7) = 331: 14 + 14 * 1.9 + 5.5 = 46.1 us; NVLS 25 + 3.9 = 28.9 us. LL it is. */
static void one_MiB_goes_by_ll(void **state)
{
    (void)state;
    const sf_comm_plan *plan = world("H100 SXM5", 8, 1);
    assert_near(sf_nccl_estimate_us(&plan->tuning, SF_COLL_ALL_REDUCE, SF_ALGO_RING, SF_PROTO_LL, 1048576), 28.0, 2e-3);
    assert_near(sf_nccl_estimate_us(&plan->tuning, SF_COLL_ALL_REDUCE, SF_ALGO_RING, SF_PROTO_LL128, 1048576), 46.1, 2e-3);
    assert_near(sf_nccl_estimate_us(&plan->tuning, SF_COLL_ALL_REDUCE, SF_ALGO_NVLS, SF_PROTO_SIMPLE, 1048576), 28.86, 2e-3);
    assert_int_equal(cost(plan, SF_COLL_ALL_REDUCE, MIB).proto, SF_PROTO_LL);
}

/* Below 5 GPUs 60 * .85 * 3/4 * 2 * 4 = 306 < 360, so Ring; with 5: 60 * .85 * 4/5 * 2 * 5 = 408, NVLS. */
static void nvls_wins_from_five_gpus_on(void **state)
{
    (void)state;
    sf_comm_fabric fabric = fabric_of("H200 SXM", 8, 1);
    assert_int_equal(cost(plan_of(&fabric, 4, 4, 1), SF_COLL_ALL_REDUCE, 8192 * MIB).algo, SF_ALGO_RING);
    assert_int_equal(cost(plan_of(&fabric, 5, 5, 1), SF_COLL_ALL_REDUCE, 8192 * MIB).algo, SF_ALGO_NVLS);
}

/* Latencies on 8 GPUs: LL 6.6 + 14 * .6 = 15, LL128 40.6, Simple 56, NVLS 25; 16 nodes of 8: Ring Simple
 * 8.4 + (254 - 30) * 3.4 + 30 * 14 = 1190 * 1.4, Tree 8.4 + 2 (7 * 4 + 4 * 14) = 176.4,
 * NVLSTree 25 + 2 * 4 * 20.9 = 192.2. */
static void latencies_are_those_of_ncclTopoTuneModel(void **state)
{
    (void)state;
    sf_nccl_estimate(*one)[SF_PROTO_COUNT] = world("H100 SXM5", 8, 1)->tuning.of[SF_COLL_ALL_REDUCE];
    assert_near(one[SF_ALGO_RING][SF_PROTO_LL].latency_us, 15.0, 1e-6);
    assert_near(one[SF_ALGO_RING][SF_PROTO_LL128].latency_us, 40.6, 1e-6);
    assert_near(one[SF_ALGO_RING][SF_PROTO_SIMPLE].latency_us, 56.0, 1e-6);
    assert_near(one[SF_ALGO_NVLS][SF_PROTO_SIMPLE].latency_us, 25.0, 1e-6);
    sf_comm_plan *plan = world("H100 SXM5", 8, 16);
    sf_nccl_estimate(*many)[SF_PROTO_COUNT] = plan->tuning.of[SF_COLL_ALL_REDUCE];
    assert_near(many[SF_ALGO_RING][SF_PROTO_SIMPLE].latency_us, 1190.0, 1e-6);
    assert_near(many[SF_ALGO_TREE][SF_PROTO_SIMPLE].latency_us, 176.4, 1e-6);
    assert_near(many[SF_ALGO_NVLS_TREE][SF_PROTO_SIMPLE].latency_us, 192.2, 1e-6);
    assert_near(plan->tuning.ring_plateau, 1.4, 1e-6);
}

static void pat_needs_one_gpu_per_node_and_2_23(void **state)
{
    (void)state;
    sf_comm_fabric fabric = fabric_of("H100 SXM5", 1, 4);
    const sf_comm_plan *plan = plan_of(&fabric, 4, 1, 1);
    assert_true(plan->tuning.of[SF_COLL_ALL_GATHER][SF_ALGO_PAT][SF_PROTO_SIMPLE].algbw_GBs > 0);
    fabric.nccl_version = 22105;
    plan = plan_of(&fabric, 4, 1, 1);
    assert_true(!(plan->tuning.of[SF_COLL_ALL_GATHER][SF_ALGO_PAT][SF_PROTO_SIMPLE].algbw_GBs > 0));
    plan = world("H100 SXM5", 8, 2);
    assert_true(!(plan->tuning.of[SF_COLL_ALL_GATHER][SF_ALGO_PAT][SF_PROTO_SIMPLE].algbw_GBs > 0));
}

static void ll128_needs_nvlink(void **state)
{
    (void)state;
    assert_true(!(world("A100 PCIe 80GB", 4, 1)->tuning.of[SF_COLL_ALL_REDUCE][SF_ALGO_RING][SF_PROTO_LL128].algbw_GBs > 0));
    assert_true(world("A100 SXM4 80GB", 4, 1)->tuning.of[SF_COLL_ALL_REDUCE][SF_ALGO_RING][SF_PROTO_LL128].algbw_GBs > 0);
}

static void what_the_environment_excludes_is_not_chosen(void **state)
{
    (void)state;
    sf_comm_fabric fabric = fabric_of("H100 SXM5", 8, 1);
    assert_int_equal(sf_nccl_algos_of("Ring,Tree"), 1u << SF_ALGO_RING | 1u << SF_ALGO_TREE);
    assert_int_equal(sf_nccl_protos_of("^LL128"), 1u << SF_PROTO_LL | 1u << SF_PROTO_SIMPLE);
    assert_int_equal(sf_nccl_algos_of("Rink"), 0);
    fabric.algos = sf_nccl_algos_of("^NVLS");
    fabric.protos = sf_nccl_protos_of("simple");
    sf_collective_cost c = cost(plan_of(&fabric, 8, 8, 1), SF_COLL_ALL_REDUCE, 256 * MIB);
    assert_int_equal(c.algo, SF_ALGO_RING);
    assert_int_equal(c.proto, SF_PROTO_SIMPLE);
}

/* ---- what holds for any machine ---- */

static const struct {
    const char *gpu;
    int gpus, nodes;
} machines[] = { { "A100 SXM4 80GB", 8, 1 }, { "H100 SXM5", 8, 4 }, { "B200 SXM", 8, 2 }, { "V100 SXM2 32GB", 8, 1 }, { "RTX 4090", 4, 1 },
                 { "A100 PCIe 80GB", 4, 2 }, { "GB200", 4, 18 }, { "T4", 1, 3 }, { "H100 SXM5", 1, 16 }, { "L40S", 8, 2 } };
enum { MACHINES = sizeof machines / sizeof machines[0] };

static void busbw_is_algbw_times_the_factor_of_the_collective(void **state)
{
    (void)state;
    /* nccl-tests PERFORMANCE.md: 2(n-1)/n, (n-1)/n, 1; n = 8 */
    assert_near(sf_collective_busbw_factor(SF_COLL_ALL_REDUCE, 8), 1.75, 1e-12);
    assert_near(sf_collective_busbw_factor(SF_COLL_ALL_GATHER, 8), .875, 1e-12);
    assert_near(sf_collective_busbw_factor(SF_COLL_ALL_TO_ALL, 8), .875, 1e-12);
    assert_near(sf_collective_busbw_factor(SF_COLL_BROADCAST, 8), 1, 1e-12);
    for (int m = 0; m < MACHINES; m++)
        for (int op = 0; op < SF_COLL_COUNT; op++) {
            const sf_comm_plan *plan = world(machines[m].gpu, machines[m].gpus, machines[m].nodes);
            sf_collective_cost c = cost(plan, (sf_collective)op, 16 * MIB);
            assert_near(c.algbw_Bps * c.time_s, 16 * 1048576., 1e-9);
            assert_near(c.busbw_Bps, c.algbw_Bps * sf_collective_busbw_factor((sf_collective)op, plan->group.ranks), 1e-9);
            assert_true(c.time_s >= c.latency_s && c.latency_s > 0);
        }
}

static void one_rank_or_no_bytes_take_no_time(void **state)
{
    (void)state;
    const sf_comm_plan *alone = world("H100 SXM5", 1, 1), *eight = world("H100 SXM5", 8, 1);
    for (int op = 0; op < SF_COLL_COUNT; op++) {
        assert_true(cost(alone, (sf_collective)op, 1024 * MIB).time_s <= 0);
        assert_true(cost(alone, (sf_collective)op, 1024 * MIB).busbw_Bps <= 0); /* and no infinite bandwidth */
        assert_true(cost(eight, (sf_collective)op, 0).time_s <= 0);
    }
}

/* More bytes never take less time with the same algorithm; where NCCL changes it, its choice may
 * jump down, as it does on real machines (a lower latency was believed than there is). */
static void time_grows_with_the_bytes_within_one_choice(void **state)
{
    (void)state;
    for (int m = 0; m < MACHINES; m++)
        for (int op = 0; op < SF_COLL_COUNT; op++) {
            const sf_comm_plan *plan = world(machines[m].gpu, machines[m].gpus, machines[m].nodes);
            sf_collective_cost before = cost(plan, (sf_collective)op, 64);
            for (uint64_t bytes = 96; bytes < (uint64_t)1 << 35; bytes += bytes / 3) {
                sf_collective_cost now = cost(plan, (sf_collective)op, bytes);
                assert_true(isfinite(now.time_s));
                if (now.algo == before.algo && now.proto == before.proto)
                    assert_true(now.time_s >= before.time_s);
                before = now;
            }
        }
}

/* Ten times the wire and the NICs: at 16 GiB nearly ten times as fast; with infinite ones only the
 * latency is left. */
static void with_infinite_bandwidth_only_the_latency_is_left(void **state)
{
    (void)state;
    sf_comm_fabric fabric = fabric_of("H100 SXM5", 8, 2);
    fabric.algos = sf_nccl_algos_of("Ring");
    fabric.protos = sf_nccl_protos_of("Simple");
    sf_collective_cost real = cost(plan_of(&fabric, 16, 8, 1), SF_COLL_ALL_REDUCE, 16384 * MIB);
    fabric.nvlink_Bps *= 1e9;
    fabric.nic_gbit *= 1e9;
    sf_collective_cost ideal = cost(plan_of(&fabric, 16, 8, 1), SF_COLL_ALL_REDUCE, 16384 * MIB);
    assert_true(real.time_s > 100 * ideal.time_s);
    assert_true(ideal.time_s < 2 * ideal.latency_s); /* what fills pipelines stays, nothing grows with bytes */
    assert_near(cost(plan_of(&fabric, 16, 8, 1), SF_COLL_ALL_REDUCE, 32768 * MIB).time_s, ideal.time_s, 1e-3);
}

/* Ring all-reduce over 2 nodes of 8: each GPU and each node send 2 * 15/16 S; a tree over 2 nodes sends
 * S out of a node. */
static void bytes_over_links_and_nics_follow_the_algorithm(void **state)
{
    (void)state;
    sf_comm_fabric fabric = fabric_of("A100 SXM4 80GB", 8, 2);
    fabric.algos = sf_nccl_algos_of("Ring");
    sf_collective_cost ring = cost(plan_of(&fabric, 16, 8, 1), SF_COLL_ALL_REDUCE, 1024 * MIB);
    assert_near(ring.nic_bytes, 1.875 * 1024 * 1048576., 1e-9);
    fabric.algos = sf_nccl_algos_of("Tree");
    sf_collective_cost tree = cost(plan_of(&fabric, 16, 8, 1), SF_COLL_ALL_REDUCE, 1024 * MIB);
    assert_near(tree.nic_bytes, 1024 * 1048576., 1e-9);
    assert_near(cost(plan_of(&fabric, 16, 8, 1), SF_COLL_ALL_TO_ALL, 1024 * MIB).nic_bytes, 8 * .5 * 1024 * 1048576., 1e-9);
}

/* Eight columns of one GPU per node share the 8 NICs: each gets one, as a column alone does; with a
 * single NIC they share it, and each takes nearly eight times as long. */
static void concurrent_groups_share_the_nics(void **state)
{
    (void)state;
    sf_comm_fabric fabric = fabric_of("A100 SXM4 80GB", 8, 4);
    double own = cost(plan_of(&fabric, 4, 1, 1), SF_COLL_REDUCE_SCATTER, 1024 * MIB).time_s;
    assert_near(cost(plan_of(&fabric, 4, 1, 8), SF_COLL_REDUCE_SCATTER, 1024 * MIB).time_s, own, 1e-9);
    fabric.nics_per_node = 1;
    double shared = cost(plan_of(&fabric, 4, 1, 8), SF_COLL_REDUCE_SCATTER, 1024 * MIB).time_s;
    assert_true(shared > 6 * cost(plan_of(&fabric, 4, 1, 1), SF_COLL_REDUCE_SCATTER, 1024 * MIB).time_s);
}

static void a_rack_of_nvl72_is_one_node_for_nccl(void **state)
{
    (void)state;
    const sf_comm_plan *rack = world("GB200", 4, 18);
    assert_int_equal(rack->shape.nodes, 1);
    assert_int_equal(rack->shape.local_ranks, 72);
    assert_true(cost(rack, SF_COLL_ALL_REDUCE, 1024 * MIB).nic_bytes <= 0);
}

static void impossible_fabrics_and_groups_are_refused_with_the_reason(void **state)
{
    (void)state;
    sf_comm_fabric fabric = fabric_of("H100 SXM5", 8, 2);
    sf_comm_plan plan;
    sf_comm_group group = { .ranks = 32, .ranks_per_node = 8, .concurrent_groups = 1 };
    sf_status st = sf_comm_plan_make(&fabric, &group, NULL, NULL, &plan);
    assert_int_equal(st.code, SF_EINVAL);
    assert_non_null(strstr(st.msg, "2 node(s) of 8 GPUs"));
    group = (sf_comm_group){ .ranks = 12, .ranks_per_node = 8, .concurrent_groups = 1 };
    assert_int_equal(sf_comm_plan_make(&fabric, &group, NULL, NULL, &plan).code, SF_EINVAL);
    group = sf_comm_group_world(&fabric);
    fabric.nics_per_node = 0;
    assert_int_equal(sf_comm_plan_make(&fabric, &group, NULL, NULL, &plan).code, SF_EINVAL);
    fabric = fabric_of("L40S", 8, 1);
    fabric.intra = SF_INTRA_NVSWITCH;
    group = sf_comm_group_world(&fabric);
    assert_int_equal(sf_comm_plan_make(&fabric, &group, NULL, NULL, &plan).code, SF_EINVAL);
}

static void collectives_go_by_the_names_people_write(void **state)
{
    (void)state;
    assert_int_equal(sf_collective_by_name("AllReduce"), SF_COLL_ALL_REDUCE);
    assert_int_equal(sf_collective_by_name("reduce-scatter"), SF_COLL_REDUCE_SCATTER);
    assert_int_equal(sf_collective_by_name("alltoall"), SF_COLL_ALL_TO_ALL);
    assert_int_equal(sf_collective_by_name("sendrecv_perf"), SF_COLL_SEND_RECV);
    assert_int_equal(sf_collective_by_name("reduce"), SF_COLL_REDUCE);
    assert_int_equal(sf_collective_by_name("all"), SF_COLL_COUNT);
}

/* Every constant says where it is from. */
static void every_constant_has_an_origin(void **state)
{
    (void)state;
    for (int c = 0; c < SF_NCCL_CONSTANT_COUNT; c++) {
        assert_true(strlen(sf_nccl_constant_origin((sf_nccl_constant)c)) > 3);
        assert_true(sf_nccl_physics_default()->value[c] > 0);
    }
}

/* ---- profiles ---- */

static sf_collective_profile measured(sf_collective op, int ranks, int nodes, const double (*points)[2], int n)
{
    sf_collective_profile profile = { 0 };
    sf_collective_curve *curve = SF_NEW(&arena, sf_collective_curve);
    *curve = (sf_collective_curve){ .op = op, .ranks = ranks, .nodes = nodes, .n = n, .source = -1 };
    for (int i = 0; i < n; i++) {
        curve->bytes[i] = points[i][0];
        curve->time_s[i] = points[i][1];
    }
    profile.curves = curve;
    profile.n_curves = 1;
    return profile;
}

/* Between 1 MiB (10 us) and 4 MiB (40 us) in logarithms: 2 MiB takes 20 us; below 10 us; above with the
 * slope of the last two, 30 us per 3 MiB: 10 MiB takes 40 + 60. */
static void a_measured_curve_speaks_instead_of_the_model(void **state)
{
    (void)state;
    static const double points[][2] = { { 1048576, 10e-6 }, { 4194304, 40e-6 } };
    sf_collective_profile profile = measured(SF_COLL_ALL_REDUCE, 8, 1, points, 2);
    sf_comm_fabric fabric = fabric_of("A100 SXM4 80GB", 8, 1);
    sf_comm_group group = sf_comm_group_world(&fabric);
    sf_comm_plan *plan = SF_NEW(&arena, sf_comm_plan);
    assert_int_equal(sf_comm_plan_make(&fabric, &group, NULL, &profile, plan).code, SF_OK);
    assert_near(cost(plan, SF_COLL_ALL_REDUCE, 2 * MIB).time_s, 20e-6, 1e-9);
    assert_near(cost(plan, SF_COLL_ALL_REDUCE, 1024).time_s, 10e-6, 1e-9);
    assert_near(cost(plan, SF_COLL_ALL_REDUCE, 10 * MIB).time_s, 100e-6, 1e-9);
    assert_true(cost(plan, SF_COLL_ALL_REDUCE, 2 * MIB).from_profile);
}

/* All-reduce measured at twice the modelled time: all-gather is expected at twice its own. */
static void what_was_not_measured_is_corrected_by_what_was(void **state)
{
    (void)state;
    const sf_comm_plan *model = world("A100 SXM4 80GB", 8, 1);
    const double points[][2] = { { 1048576, 2 * cost(model, SF_COLL_ALL_REDUCE, MIB).time_s },
                           { 1073741824, 2 * cost(model, SF_COLL_ALL_REDUCE, 1024 * MIB).time_s } };
    sf_collective_profile profile = measured(SF_COLL_ALL_REDUCE, 8, 1, points, 2);
    sf_comm_plan *plan = SF_NEW(&arena, sf_comm_plan);
    assert_int_equal(sf_comm_plan_make(&model->fabric, &model->group, NULL, &profile, plan).code, SF_OK);
    assert_near(cost(plan, SF_COLL_ALL_GATHER, 16 * MIB).time_s, 2 * cost(model, SF_COLL_ALL_GATHER, 16 * MIB).time_s, 1e-6);
    /* a group that crosses nodes learns nothing from one that does not */
    sf_comm_fabric two = fabric_of("A100 SXM4 80GB", 8, 2);
    sf_comm_group group = sf_comm_group_world(&two);
    assert_int_equal(sf_comm_plan_make(&two, &group, NULL, &profile, plan).code, SF_OK);
    assert_false(cost(plan, SF_COLL_ALL_GATHER, 16 * MIB).from_profile);
}

static void profiles_are_written_and_read_back(void **state)
{
    (void)state;
    static const double points[][2] = { { 8, 9.5e-6 }, { 1048576, 31.25e-6 }, { 1073741824, 8.1e-3 } };
    sf_collective_profile back, profile = measured(SF_COLL_REDUCE_SCATTER, 16, 2, points, 3);
    json_t *json = sf_collective_profile_to_json(&profile);
    assert_int_equal(sf_collective_profile_from_json(json, "memory", &arena, &back).code, SF_OK);
    const sf_collective_curve *c = sf_collective_profile_find(&back, SF_COLL_REDUCE_SCATTER, 16, 2);
    assert_non_null(c);
    assert_int_equal(c->n, 3);
    assert_near(c->time_s[1], 31.25e-6, 1e-12);
    /* an impossible curve is named */
    json_t *curve = json_array_get(json_object_get(json, "curves"), 0);
    json_object_set_new(curve, "ranks", json_integer(1));
    sf_status st = sf_collective_profile_from_json(json, "memory", &arena, &back);
    assert_int_equal(st.code, SF_EPARSE);
    assert_non_null(strstr(st.msg, "curves[0]"));
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rings_on_nvswitch_nodes_have_the_channels_that_nccl_prints),
        cmocka_unit_test(rings_between_hopper_nodes_take_45_GBs_a_channel),
        cmocka_unit_test(nvls_needs_hopper_and_an_nvswitch),
        cmocka_unit_test(eight_h100_reduce_256_MiB_by_nvls_as_the_arithmetic_says),
        cmocka_unit_test(one_MiB_goes_by_ll),
        cmocka_unit_test(nvls_wins_from_five_gpus_on),
        cmocka_unit_test(latencies_are_those_of_ncclTopoTuneModel),
        cmocka_unit_test(pat_needs_one_gpu_per_node_and_2_23),
        cmocka_unit_test(ll128_needs_nvlink),
        cmocka_unit_test(what_the_environment_excludes_is_not_chosen),
        cmocka_unit_test(busbw_is_algbw_times_the_factor_of_the_collective),
        cmocka_unit_test(one_rank_or_no_bytes_take_no_time),
        cmocka_unit_test(time_grows_with_the_bytes_within_one_choice),
        cmocka_unit_test(with_infinite_bandwidth_only_the_latency_is_left),
        cmocka_unit_test(bytes_over_links_and_nics_follow_the_algorithm),
        cmocka_unit_test(concurrent_groups_share_the_nics),
        cmocka_unit_test(a_rack_of_nvl72_is_one_node_for_nccl),
        cmocka_unit_test(impossible_fabrics_and_groups_are_refused_with_the_reason),
        cmocka_unit_test(collectives_go_by_the_names_people_write),
        cmocka_unit_test(every_constant_has_an_origin),
        cmocka_unit_test(a_measured_curve_speaks_instead_of_the_model),
        cmocka_unit_test(what_was_not_measured_is_corrected_by_what_was),
        cmocka_unit_test(profiles_are_written_and_read_back),
    };
    return cmocka_run_group_tests_name("collectives", tests, NULL, free_arena);
}
