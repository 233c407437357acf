/* tests/model/bench_collective.c: how far the model of collectives is from measured ones.
 *
 *   bench_collective DIR                     errors of every log of DIR/machines.csv, and of all together
 *   bench_collective DIR --leave-one-out     the same, each log predicted by constants fitted without it
 *   bench_collective DIR --fit               constants fitted to all, as rows for nccl_constants.def
 *   bench_collective DIR --profile           one log imported, the other logs of the machine predicted
 *
 * Errors are of busbw, |predicted / measured - 1|, at sizes of 1 MiB and more; for smaller sizes the
 * worst factor between the times. The fit minimises the mean of |log(predicted / measured)|, each log
 * counted once whatever its number of rows, by changing one constant at a time.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/base/csv.h"
#include "model/base/text.h"
#include "model/cost/nccl_log.h"
#include "model/cost/nccl_plan.h"

enum { MAX_CASES = 2048, MIB = 1 << 20 };

/* One collective on one machine, as one log has it. */
typedef struct {
    const char *name;
    int file;              /* cases of one file are left out together */
    double weight;
    bool stated;           /* the log's hardware is stated            */
    sf_comm_fabric fabric;
    sf_comm_group group;
    sf_collective op;
    sf_nccl_log log;
} log_case;

typedef struct {
    log_case *cases;
    int n, files;
    sf_arena arena;
} bench;

static void die(sf_status st)
{
    fprintf(stderr, "bench_collective: %s\n", st.msg);
    exit(2);
}

#define MUST(expr)                                                                                 \
    do {                                                                                           \
        sf_status st_ = (expr);                                                                    \
        if (st_.code != SF_OK)                                                                     \
            die(st_);                                                                              \
    } while (0)

static int number(const sf_csv *csv, size_t row, const char *column, int otherwise)
{
    const char *text = sf_csv_field(csv, row, column);
    return text[0] == '\0' ? otherwise : atoi(text);
}

static sf_comm_fabric fabric_of(const sf_csv *csv, size_t row, sf_arena *arena)
{
    sf_gpu gpu;
    sf_comm_fabric f;
    const char *name = sf_csv_field(csv, row, "gpu"), *text;
    MUST(sf_gpu_find(name, 0, arena, &gpu));
    sf_comm_fabric_make(&gpu, number(csv, row, "gpus_per_node", 1), number(csv, row, "nodes", 1), &f);
    f.domain_gpus = number(csv, row, "domain", f.gpus_per_node);
    f.nics_per_node = number(csv, row, "nics", f.nics_per_node);
    f.nic_gbit = number(csv, row, "gbit", (int)f.nic_gbit);
    if ((text = sf_csv_field(csv, row, "link"))[0] != '\0') {
        const char *colon = strchr(text, ':');
        f.intra = sf_intra_link_by_name(sf_arena_strndup(arena, text, colon == NULL ? strlen(text) : (size_t)(colon - text)));
        f.gpus_per_uplink = colon == NULL ? 1 : atoi(colon + 1);
    }
    if ((text = sf_csv_field(csv, row, "nic"))[0] != '\0')
        f.nic = sf_nic_kind_by_name(text);
    if (strcmp(sf_csv_field(csv, row, "gpudirect"), "no") == 0)
        f.gpudirect = false;
    if (strcmp(sf_csv_field(csv, row, "cpu"), "amd") == 0)
        f.cpu = SF_CPU_AMD;
    if ((text = sf_csv_field(csv, row, "algo"))[0] != '\0')
        f.algos = sf_nccl_algos_of(text);
    return f;
}

static void add_case(bench *b, const char *name, int file, bool stated, sf_comm_fabric fabric, const sf_nccl_log *log, double weight)
{
    log_case *c = &b->cases[b->n++];
    *c = (log_case){ .name = name, .file = file, .weight = weight, .stated = stated, .fabric = fabric, .op = log->op, .log = *log };
    if (log->nccl_version > 0)
        c->fabric.nccl_version = log->nccl_version;
    else if (log->old_columns)
        c->fabric.nccl_version = 21200; /* nccl-tests of that age had no newer NCCL to link */
    if (log->gpus_per_process > 1)
        c->fabric.gpus_per_process = log->gpus_per_process;
    if (log->gpudirect == 0)
        c->fabric.gpudirect = false;
    c->fabric.algos = log->algos > 0 ? log->algos : fabric.algos;
    c->fabric.protos = log->protos > 0 ? log->protos : fabric.protos;
    int per_node = fabric.gpus_per_node < log->ranks ? fabric.gpus_per_node : log->ranks;
    c->group = (sf_comm_group){ .ranks = log->ranks, .ranks_per_node = per_node, .concurrent_groups = 1 };
}

static void load(bench *b, const char *dir)
{
    sf_csv csv;
    MUST(sf_csv_read(sf_arena_printf(&b->arena, "%s/machines.csv", dir), &b->arena, &csv));
    b->cases = SF_NEW_ARRAY(&b->arena, log_case, MAX_CASES);
    b->files = (int)csv.n_rows;
    for (size_t i = 0; i < csv.n_rows; i++) {
        sf_nccl_log log, part;
        const char *file = sf_csv_field(&csv, i, "file"), *op = sf_csv_field(&csv, i, "collective");
        sf_collective given = op[0] == '\0' ? SF_COLL_COUNT : sf_collective_by_name(op);
        bool stated = strcmp(sf_csv_field(&csv, i, "stated"), "yes") == 0;
        MUST(sf_nccl_log_read(sf_arena_printf(&b->arena, "%s/%s", dir, file), given, &b->arena, &log));
        sf_comm_fabric fabric = fabric_of(&csv, i, &b->arena);
        if (log.op != SF_COLL_COUNT && log.ranks > 0) {
            if (log.ranks != fabric.gpus_per_node * fabric.nodes)
                fprintf(stderr, "%s: %d ranks in the log, %d in machines.csv\n", file, log.ranks, fabric.gpus_per_node * fabric.nodes);
            add_case(b, file, (int)i, stated, fabric, &log, 1);
            continue;
        }
        for (int o = 0; o < SF_COLL_COUNT; o++)
            for (int ranks = 2; ranks <= fabric.gpus_per_node; ranks *= 2) {
                sf_nccl_log_part(&log, (sf_collective)o, ranks, &b->arena, &part);
                if (part.n_rows > 0)
                    add_case(b, sf_arena_printf(&b->arena, "%s %s %d", file, sf_collective_name((sf_collective)o), ranks), (int)i,
                             stated, fabric, &part, 1. / 6);
            }
    }
}

static double predicted(const log_case *c, const sf_comm_plan *plan, const sf_nccl_log_row *row)
{
    sf_collective_cost cost;
    sf_comm_plan_time(plan, c->op, row->bytes, &cost);
    return cost.time_s;
}

/* Mean |log error| of a case, rows below 1 MiB counted a quarter. */
static double loss_of(const log_case *c, const sf_nccl_physics *physics)
{
    sf_comm_plan plan;
    double sum = 0, weight = 0;
    MUST(sf_comm_plan_make(&c->fabric, &c->group, physics, NULL, &plan));
    for (size_t i = 0; i < c->log.n_rows; i++) {
        const sf_nccl_log_row *row = &c->log.rows[i];
        double w = row->bytes >= MIB ? 1 : .25, e = fabs(log(predicted(c, &plan, row) / row->time_s));
        sum += w * (e < 1 ? e : 1);
        weight += w;
    }
    return weight > 0 ? sum / weight : 0;
}

static double loss(const bench *b, const sf_nccl_physics *physics, int without)
{
    double sum = 0, weight = 0;
    for (int i = 0; i < b->n; i++)
        if (b->cases[i].file != without) {
            sum += b->cases[i].weight * loss_of(&b->cases[i], physics);
            weight += b->cases[i].weight;
        }
    return sum / weight;
}

/* Read off the largest messages, not fitted: a fit would trade them for latencies of smaller ones. */
static bool pinned(sf_nccl_constant c)
{
    static const sf_nccl_constant known[] = {
        SF_NCCL_RING_EFF_V, SF_NCCL_RING_EFF_A, SF_NCCL_RING_EFF_H, SF_NCCL_RING_EFF_B, SF_NCCL_LOCAL_COPY, SF_NCCL_LOCAL_COPY_AR,
        SF_NCCL_NVLS_EFF_H, SF_NCCL_NVLS_EFF_B, SF_NCCL_IB_EFF, SF_NCCL_ROCE_EFF, SF_NCCL_EFA_EFF, SF_NCCL_FASTRAK_EFF,
        SF_NCCL_SLINGSHOT_EFF, SF_NCCL_PIX_EFF, SF_NCCL_PHB_EFF, SF_NCCL_SYS_EFF,
        SF_NCCL_SHM_EFF, SF_NCCL_P2P_EFF_A, SF_NCCL_P2P_EFF_H, SF_NCCL_P2P_EFF_B, SF_NCCL_P2P_OWN_COPY, SF_NCCL_LL_HOP_V_US,
        SF_NCCL_IB_LL128_US, SF_NCCL_IB_SIMPLE_US, SF_NCCL_ROCE_SIMPLE_US, SF_NCCL_FASTRAK_SIMPLE_US, SF_NCCL_SLINGSHOT_SIMPLE_US,
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i] == c)
            return true;
    return false;
}

/* One constant after the other up or down by a factor that shrinks, as long as that helps; a change
 * from the start costs a little, so that what the logs do not tell stays. */
static void fit(const bench *b, int without, int rounds, sf_nccl_physics *physics)
{
    const sf_nccl_physics start = *physics;
    double best = loss(b, physics, without), pull = 2e-5;
    for (int round = 0; round < rounds; round++) {
        double factor = round == 0 ? 1.3 : round == 1 ? 1.12 : 1.04;
        for (int c = 0; c < SF_NCCL_CONSTANT_COUNT; c++)
            for (int turn = pinned((sf_nccl_constant)c) ? 2 : 0; turn < 2; turn++)
                for (int again = 0; again < 4; again++) {
                    double old = physics->value[c];
                    physics->value[c] = turn == 0 ? old * factor : old / factor;
                    double now = loss(b, physics, without);
                    double far = fabs(log(physics->value[c] / start.value[c])) - fabs(log(old / start.value[c]));
                    if (now + pull * far < best - 1e-7) {
                        best = now;
                        continue;
                    }
                    physics->value[c] = old;
                    break;
                }
        fprintf(stderr, "round %d: mean |log error| %.4f\n", round, best);
    }
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double quantile(double *values, size_t n, double q)
{
    if (n == 0)
        return NAN;
    qsort(values, n, sizeof *values, ascending);
    return values[(size_t)(q * (double)(n - 1) + .5)];
}

typedef struct {
    double errors[65536];
    size_t n;
    double worst_small;
} sums;

static void report_case(const log_case *c, const sf_comm_plan *plan, sums *all, bool rows)
{
    static double errors[4096];
    size_t n = 0;
    double worst_small = 1, bias = 0;
    for (size_t i = 0; i < c->log.n_rows && n < 4096; i++) {
        const sf_nccl_log_row *row = &c->log.rows[i];
        sf_collective_cost cost;
        sf_comm_plan_time(plan, c->op, row->bytes, &cost);
        double ratio = row->time_s / cost.time_s; /* of busbw, predicted over measured */
        if (row->bytes >= MIB) {
            errors[n++] = fabs(ratio - 1);
            bias += log(ratio);
            if (all->n < sizeof all->errors / sizeof all->errors[0])
                all->errors[all->n++] = fabs(ratio - 1);
        } else {
            double factor = ratio > 1 ? ratio : 1 / ratio;
            worst_small = factor > worst_small ? factor : worst_small;
        }
        if (rows)
            printf("    %12llu B  measured %10.1f us  predicted %10.1f us  %+6.1f%%  %s %s (NCCL %.1f us)\n", (unsigned long long)row->bytes,
                   row->time_s * 1e6, cost.time_s * 1e6, 100 * (ratio - 1), sf_nccl_algo_name(cost.algo), sf_nccl_proto_name(cost.proto),
                   cost.nccl_time_s * 1e6);
    }
    all->worst_small = worst_small > all->worst_small ? worst_small : all->worst_small;
    size_t count = n;
    double p90 = quantile(errors, n, .9), median = quantile(errors, n, .5);
    printf("%-52s %4zu rows >= 1 MiB: median %5.1f%% p90 %5.1f%% mean log ratio %+5.2f   below: factor %.2f%s\n", c->name, count,
           100 * median, 100 * p90, count > 0 ? bias / (double)count : 0, worst_small, c->stated ? "" : "   (hardware not stated)");
}

static void report_all(const char *what, sums *all)
{
    size_t n = all->n;
    double p90 = quantile(all->errors, n, .9), median = quantile(all->errors, n, .5);
    printf("%s: %zu rows >= 1 MiB, median %.1f%%, p90 %.1f%%\n", what, n, 100 * median, 100 * p90);
}

/* The errors of one kind of source: a name with "aic/" or without. */
static void report(const bench *b, sf_nccl_physics *by_file, const char *only, bool rows)
{
    static sums logs, tables;
    logs.n = tables.n = 0;
    for (int i = 0; i < b->n; i++) {
        const log_case *c = &b->cases[i];
        sf_comm_plan plan;
        if (only != NULL && strstr(c->name, only) == NULL)
            continue;
        MUST(sf_comm_plan_make(&c->fabric, &c->group, by_file == NULL ? NULL : &by_file[c->file], NULL, &plan));
        report_case(c, &plan, strncmp(c->name, "aic/", 4) == 0 ? &tables : &logs, rows);
    }
    report_all("nccl-tests logs", &logs);
    report_all("aic tables", &tables);
}

static void print_fit(const sf_nccl_physics *physics)
{
    for (int c = 0; c < SF_NCCL_CONSTANT_COUNT; c++)
        printf("%-20s %8.3g -> %8.3g\n", sf_nccl_constant_name((sf_nccl_constant)c), sf_nccl_physics_default()->value[c], physics->value[c]);
}

static bool same_machine(const log_case *a, const log_case *b)
{
    const sf_comm_fabric *x = &a->fabric, *y = &b->fabric;
    return a->file != b->file && x->sm == y->sm && x->gpus_per_node == y->gpus_per_node && x->nodes == y->nodes && x->intra == y->intra &&
           x->nvlink_Bps == y->nvlink_Bps && x->nics_per_node == y->nics_per_node && x->nic_gbit == y->nic_gbit && x->nic == y->nic &&
           x->gpudirect == y->gpudirect;
}

/* Imports each log and predicts the other logs of the same machine. */
static void report_profiles(bench *b)
{
    static sums all;
    all.n = 0;
    for (int i = 0; i < b->n; i++)
        for (int j = 0; j < b->n; j++) {
            const log_case *from = &b->cases[i], *to = &b->cases[j];
            if (!same_machine(from, to) || strncmp(from->name, "aic/", 4) == 0 || strncmp(to->name, "aic/", 4) == 0)
                continue;
            sf_collective_profile profile = { 0 };
            sf_comm_plan plan;
            MUST(sf_collective_profile_import(&from->log, from->fabric.nodes, &b->arena, &profile));
            MUST(sf_comm_plan_make(&to->fabric, &to->group, NULL, &profile, &plan));
            printf("from %s:\n  ", from->name);
            report_case(to, &plan, &all, false);
        }
    report_all("one log from another of the same machine", &all);
}

int main(int argc, char **argv)
{
    static bench b;
    const char *mode = argc > 2 ? argv[2] : "", *only = argc > 3 ? argv[3] : NULL;
    if (argc < 2) {
        fprintf(stderr, "usage: bench_collective DIR [--rows|--fit|--leave-one-out|--profile] [NAME]\n");
        return 2;
    }
    load(&b, argv[1]);
    if (strcmp(mode, "--fit") == 0) {
        sf_nccl_physics physics = *sf_nccl_physics_default();
        fit(&b, -1, 6, &physics);
        print_fit(&physics);
    } else if (strcmp(mode, "--leave-one-out") == 0) {
        sf_nccl_physics *by_file = SF_NEW_ARRAY(&b.arena, sf_nccl_physics, b.files);
        for (int f = 0; f < b.files; f++) {
            by_file[f] = *sf_nccl_physics_default();
            fit(&b, f, 3, &by_file[f]);
        }
        report(&b, by_file, only, false);
    } else if (strcmp(mode, "--profile") == 0) {
        report_profiles(&b);
    } else {
        report(&b, NULL, only, strcmp(mode, "--rows") == 0);
    }
    sf_arena_free(&b.arena);
    return 0;
}
