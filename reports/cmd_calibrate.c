/* reports/cmd_calibrate.c: `shardfit calibrate`: measures this machine into a profile. */
#include <argp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/calibrate.h"
#include "exec/cuda/calibrate_cuda.h"
#include "exec/cuda/cuda_probe.h"
#include "exec/host/block.h"
#include "exec/launch.h"
#include "exec/provenance.h"
#include "model/base/text.h"
#include "model/base/units.h"
#include "model/cost/collective_cost_profile.h"
#include "reports/commands.h"
#include "reports/output.h"

enum { MAX_COUNTS = SF_PROFILE_SETS / 2, MAX_LOGS = 64, OPT_PART = 1000, OPT_NCCL_TESTS, OPT_NODES };

typedef struct {
    int counts[MAX_COUNTS], n_counts;
    const char *output;
    const char *part; /* we are a rank: write our set here */
    const char *logs[MAX_LOGS]; /* of nccl-tests, to import instead of measuring */
    int n_logs, nodes;
    sf_calibrate_depth depth;
    bool json, gpu;
    char gpu_name[256];
    sf_status st;
} options;

/* "1,2,4" */
static sf_status parse_counts(const char *text, options *o)
{
    o->n_counts = 0;
    for (const char *at = text; *at != '\0';) {
        char *end;
        long n = strtol(at, &end, 10);
        if (end == at || n < 1 || n > SF_COMM_MAX_RANKS || (*end != '\0' && *end != ',') || o->n_counts == MAX_COUNTS)
            return SF_FAIL(SF_EINVAL, "--ranks '%s': give up to %d numbers from 1 to %d, as in 1,2,4", text, MAX_COUNTS, SF_COMM_MAX_RANKS);
        o->counts[o->n_counts++] = (int)n;
        at = *end == ',' ? end + 1 : end;
    }
    return o->n_counts > 0 ? SF_SUCCESS : SF_FAIL(SF_EINVAL, "--ranks is empty; give numbers as in 1,2,4");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    options *o = state->input;

    switch (key) {
    case 'r': o->st = parse_counts(arg, o); break;
    case 'o': o->output = arg; break;
    case 'q': o->depth = SF_CALIBRATE_QUICK; break;
    case 'j': o->json = true; break;
    case 'g': o->gpu = true; break;
    case OPT_PART: o->part = arg; break;
    case OPT_NODES:
        o->nodes = atoi(arg);
        if (o->nodes < 1)
            argp_error(state, "--nodes is a number of nodes, not '%s'", arg);
        break;
    case OPT_NCCL_TESTS:
        if (o->n_logs == MAX_LOGS)
            argp_error(state, "more than %d logs", MAX_LOGS);
        o->logs[o->n_logs++] = arg;
        break;
    case ARGP_KEY_ARG: argp_error(state, "unexpected argument '%s'", arg); break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static const struct argp_option option_rows[] = {
    { "ranks", 'r', "N,N,...", 0, "numbers of ranks to measure (default: 1, 2, 4, .. up to the cores, at least 1,2)", 0 },
    { "output", 'o', "FILE", 0, "the profile (default: $SHARDFIT_PROFILE or ~/.cache/shardfit/profile.json)", 0 },
    { "quick", 'q', NULL, 0, "fewer and smaller sizes: seconds", 0 },
    { "gpu", 'g', NULL, 0, "this machine's GPUs instead of its cores: products, attention, kernels, copies, launches, and NCCL between them", 0 },
    { "json", 'j', NULL, 0, "print the profile", 0 },
    { "nccl-tests", OPT_NCCL_TESTS, "LOG", 0, "measure nothing: import what nccl-tests printed into a profile of collectives, which `collective --profile` uses; "
      "several times for several logs; needs --output", 0 },
    { "nodes", OPT_NODES, "N", 0, "with --nccl-tests: nodes, where a log does not tell", 0 },
    { "part", OPT_PART, "FILE", OPTION_HIDDEN, "be one rank of a measurement", 0 },
    { 0 },
};
static const struct argp arguments = { option_rows, parse, NULL,
                                       "Measures this machine: matrix products, attention, memory-bound kernels, the optimizer, collectives. "
                                       "predict and compare use the profile for \"gpu\": \"host\"; that of --gpu (default: gpu-profile.json) they take by --profile, for "
                                       "framework shardfit on such GPUs.", NULL, NULL, NULL };

/* ---- one set ---- */

static sf_status write_set(const sf_profile_set *set, const char *path)
{
    sf_profile one = { .cores = sf_host_cores(), .sets = (sf_profile_set *)(uintptr_t)set, .n_sets = 1 };
    return sf_profile_write(&one, path);
}

static sf_status calibrate(options *o, sf_comm *comm, sf_profile_set *set)
{
    return o->gpu ? sf_calibrate_cuda(comm, o->depth, set, o->gpu_name) : sf_calibrate(comm, o->depth, true, set);
}

/* As a rank that mpirun started. */
static int be_a_rank(options *o)
{
    sf_comm *comm;
    sf_profile_set *set = calloc(1, sizeof *set);
    sf_status st = set == NULL ? SF_FAIL(SF_ENOMEM, "no memory to calibrate") : sf_comm_mpi_open(SF_COMM_AUTO, &comm);

    if (st.code != SF_OK) {
        free(set);
        return sf_cmd_fail(st);
    }
    st = calibrate(o, comm, set);
    if (st.code == SF_OK && sf_comm_rank(comm) == 0)
        st = write_set(set, o->part);
    if (st.code != SF_OK)
        sf_comm_stop(comm, SF_STOP_FAILED, st.msg, NULL, 0);
    sf_comm_close(comm);
    free(set);
    return st.code == SF_OK ? SF_EXIT_DONE : sf_cmd_fail(st);
}

static sf_status measure_alone(options *o, sf_profile_set *set)
{
    sf_comm *comm;

    SF_TRY(sf_comm_self_open(&comm));
    sf_status st = calibrate(o, comm, set);
    sf_comm_close(comm);
    return st;
}

static sf_status measure_processes(const options *o, int ranks, const char *scratch, sf_arena *arena, sf_profile_set *set)
{
    char *args[] = { "calibrate", "--part", (char *)(uintptr_t)scratch, NULL, NULL, NULL };
    int n = 3;
    int code;
    sf_profile part;

    if (o->depth == SF_CALIBRATE_QUICK)
        args[n++] = "--quick";
    if (o->gpu)
        args[n++] = "--gpu";
    SF_TRY(sf_launch(ranks, args, &code));
    if (code != 0)
        return SF_FAIL(SF_ECOMM, "measuring with %d ranks failed (exit code %d); try it with: mpirun -np %d true", ranks, code, ranks);
    SF_TRY(sf_profile_read(scratch, arena, &part));
    *set = part.sets[0];
    return SF_SUCCESS;
}

typedef struct {
    sf_comm *comm;
    sf_calibrate_depth depth;
    sf_profile_set *set;
    sf_status st;
} rank_thread;

static void *measure_on_thread(void *arg)
{
    rank_thread *t = arg;
    t->st = sf_calibrate(t->comm, t->depth, false, t->set);
    if (t->st.code != SF_OK)
        sf_comm_stop(t->comm, SF_STOP_FAILED, t->st.msg, NULL, 0);
    return NULL;
}

/* Kernels are those of processes; only what communicates differs. */
static sf_status measure_threads(const options *o, int ranks, const sf_profile_set *kernels, sf_profile_set *set)
{
    sf_comm *comms[SF_COMM_MAX_RANKS];
    pthread_t threads[SF_COMM_MAX_RANKS];
    rank_thread *all = calloc((size_t)ranks, sizeof *all);
    sf_profile_set *sets = calloc((size_t)ranks, sizeof *sets);
    int started = 0;
    sf_status st = all == NULL || sets == NULL ? SF_FAIL(SF_ENOMEM, "no memory to calibrate") : sf_comm_threads_open(ranks, ranks, comms);

    for (int r = 0; r < ranks && st.code == SF_OK; r++) {
        all[r] = (rank_thread){ .comm = comms[r], .depth = o->depth, .set = &sets[r] };
        if (pthread_create(&threads[r], NULL, measure_on_thread, &all[r]) != 0) {
            st = SF_FAIL(SF_ENOMEM, "cannot start %d threads", ranks);
            sf_comm_stop(comms[0], SF_STOP_FAILED, st.msg, NULL, 0);
            break;
        }
        started++;
    }
    for (int r = 0; r < started; r++) {
        pthread_join(threads[r], NULL);
        if (st.code == SF_OK)
            st = all[r].st;
    }
    for (int r = 0; started > 0 && r < ranks; r++)
        sf_comm_close(comms[r]);
    if (st.code == SF_OK) {
        *set = sets[0];
        memcpy(set->gemm, kernels->gemm, sizeof set->gemm);
        memcpy(set->kernel, kernels->kernel, sizeof set->kernel);
        memcpy(set->attention, kernels->attention, sizeof set->attention);
        set->n_head_dims = kernels->n_head_dims;
    }
    free(all);
    free(sets);
    return st;
}

static sf_status measure(options *o, sf_arena *arena, sf_profile *profile)
{
    char *scratch = sf_arena_printf(arena, "%s.part-%d", o->output, (int)getpid());
    sf_status st = SF_SUCCESS;

    for (int i = 0; i < o->n_counts && st.code == SF_OK; i++) {
        int ranks = o->counts[i];
        sf_profile_set *set = &profile->sets[profile->n_sets];
        fprintf(stderr, "calibrate: %d rank%s\n", ranks, ranks > 1 ? "s" : "");
        st = ranks == 1 ? measure_alone(o, set) : measure_processes(o, ranks, scratch, arena, set);
        if (st.code == SF_OK)
            profile->n_sets++;
        if (st.code == SF_OK && ranks > 1 && !o->gpu) {
            st = measure_threads(o, ranks, set, set + 1);
            profile->n_sets += st.code == SF_OK;
        }
    }
    unlink(scratch);
    return st;
}

/* ---- the answer ---- */

static double busbw(const sf_profile_set *s)
{
    const sf_curve *c = &s->collective[0][SF_OP_ALL_REDUCE].time;
    int last = c->n - 1;

    return c->n > 0 ? c->x[last] / c->s[last] * 2 * (s->ranks - 1) / s->ranks : 0;
}

static void print_profile(const sf_profile *p, const char *path)
{
    printf("# %s\n", path);
    printf("%-8s%-16s%12s%12s%12s%12s%14s%12s%12s\n", "ranks", "by", "f32", "bf16", "copy", "AdamW", "all_reduce", "hand-over", "beside");
    printf("%-8s%-16s%12s%12s%12s%12s%14s%12s%12s\n", "", "", "GFLOP/s", "GFLOP/s", "GB/s", "M param/s", "busbw GB/s", "us", "comm");
    for (int i = 0; i < p->n_sets; i++) {
        const sf_profile_set *s = &p->sets[i];
        double elements = 2e6, copy = sf_curve_at(&s->kernel[0][SF_OP_COPY], elements), adamw = sf_curve_at(&s->kernel[0][SF_OP_ADAMW], elements);
        printf("%-8d%-16s%12.1f%12.1f%12.2f%12.1f%14.2f%12.1f%11.2fx\n", s->ranks, s->transport,
               sf_gemm_grid_at(&s->gemm[0][0], 512, 512, 512) * 1e-9, sf_gemm_grid_at(&s->gemm[1][0], 512, 512, 512) * 1e-9,
               8 * elements / copy * 1e-9, elements / adamw * 1e-6, busbw(s) * 1e-9, s->handoff_s * 1e6, s->overlap_slowdown);
    }
}

/* 1, 2, 4 .. of the GPUs; of the cores, and at least 2. */
static sf_status default_counts(options *o)
{
    int gpus = 0;
    if (o->gpu)
        SF_TRY(sf_cuda_probe(0, NULL, &gpus));
    for (int n = 1; o->gpu && n <= gpus && o->n_counts < MAX_COUNTS; n *= 2)
        o->counts[o->n_counts++] = n;
    if (o->gpu)
        return SF_SUCCESS;
    for (int n = 1; (n <= 2 || n <= sf_host_cores()) && o->n_counts < MAX_COUNTS; n *= 2)
        o->counts[o->n_counts++] = n;
    return SF_SUCCESS;
}

/* ---- logs of nccl-tests ---- */

static sf_status import_logs(const options *o, sf_arena *arena, sf_collective_profile *profile)
{
    if (o->output == NULL)
        return SF_FAIL(SF_EINVAL, "--nccl-tests writes a profile of collectives: name its file by --output");
    SF_TRY(sf_output_check(o->output));
    for (int i = 0; i < o->n_logs; i++) {
        sf_nccl_log log;
        SF_TRY(sf_nccl_log_read(o->logs[i], SF_COLL_COUNT, arena, &log));
        for (size_t k = 0; k < log.n_warnings; k++)
            fprintf(stderr, "shardfit: %s\n", log.warnings[k]);
        SF_TRY(sf_status_prefix(sf_collective_profile_import(&log, o->nodes, arena, profile), "%s", o->logs[i]));
    }
    return sf_collective_profile_write(o->output, profile);
}

static int import(const options *o)
{
    sf_arena arena = { 0 };
    sf_collective_profile profile = { 0 };
    sf_status st = import_logs(o, &arena, &profile);
    for (size_t i = 0; st.code == SF_OK && i < profile.n_curves; i++) {
        const sf_collective_curve *c = &profile.curves[i];
        printf("%s  %d ranks on %d %s  %d sizes, %s to %s\n", sf_collective_name(c->op), c->ranks, c->nodes, c->nodes == 1 ? "node" : "nodes", c->n,
               sf_bytes_text((uint64_t)c->bytes[0]).text, sf_bytes_text((uint64_t)c->bytes[c->n - 1]).text);
    }
    if (st.code == SF_OK)
        printf("%s: use it with shardfit collective --profile\n", o->output);
    sf_arena_free(&arena);
    return st.code == SF_OK ? SF_EXIT_DONE : sf_cmd_fail(st);
}

int sf_cmd_calibrate(int argc, char **argv)
{
    options o = { .depth = SF_CALIBRATE_FULL };
    sf_arena arena = { 0 };
    sf_profile profile = { .cores = sf_host_cores() };

    argp_parse(&arguments, argc, argv, 0, NULL, &o);
    if (o.st.code != SF_OK)
        return sf_cmd_fail(o.st);
    if (o.part != NULL)
        return be_a_rank(&o);
    if (o.n_logs > 0)
        return import(&o);
    if (o.n_counts == 0)
        o.st = default_counts(&o);
    if (o.st.code != SF_OK)
        return sf_cmd_fail(o.st);
    if (o.output == NULL)
        o.output = o.gpu ? "gpu-profile.json" : sf_profile_default_path(&arena);
    profile.sets = SF_NEW_ARRAY(&arena, sf_profile_set, SF_PROFILE_SETS);
    profile.provenance = sf_provenance();
    sf_status st = sf_output_check(o.output);
    if (st.code == SF_OK)
        st = measure(&o, &arena, &profile);
    if (o.gpu_name[0] != '\0')
        json_object_set_new(profile.provenance, "gpu", json_string(o.gpu_name));
    if (st.code == SF_OK)
        st = sf_profile_write(&profile, o.output);
    if (st.code == SF_OK && o.json) {
        json_t *json = sf_profile_to_json(&profile);
        sf_print_json(json);
        json_decref(json);
    } else if (st.code == SF_OK) {
        print_profile(&profile, o.output);
    }
    json_decref(profile.provenance);
    sf_arena_free(&arena);
    return st.code == SF_OK ? SF_EXIT_DONE : sf_cmd_fail(st);
}
