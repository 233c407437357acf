/* reports/cmd_run.c: `shardfit run JOB`: really trains the job and measures it.
 *
 * Ranks   Under a launcher (mpirun, srun) this process is one rank. Else one rank runs here, the devices
 *         of dp run here as threads, and for more ranks the command starts itself again by mpirun.
 * Ends    A signal that asks to end, a lost rank and a loss that is no number all save what was measured
 *         until then; every rank that survives does, since any of them may be the last.
 */
#include <argp.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/cuda/cuda_probe.h"
#include "exec/launch.h"
#include "exec/provenance.h"
#include "exec/run.h"
#include "model/base/text.h"
#include "model/base/units.h"
#include "model/program/flop.h"
#include "model/strategy/lower.h"
#include "reports/commands.h"
#include "reports/job_options.h"
#include "reports/output.h"

enum { KEY_STEPS = 2000, KEY_DATA, KEY_LAUNCH, KEY_DETAIL, KEY_POISON, KEY_TRANSPORT, KEY_PROGRESS, KEY_PROGRESS_OVER, KEY_COMMUNICATOR };

typedef enum { PROGRESS_NONE, PROGRESS_LINES, PROGRESS_OVER } progress; /* OVER: one line, written over */

typedef struct {
    sf_job_options job;
    const char *output;
    bool json, launch, detail, staged;
    progress progress;
    sf_poison poison;
    sf_comm_transport transport;
    const sf_backend_type *backend;
} arguments;

static const struct argp_option options[] = {
    { "steps", KEY_STEPS, "N", 0, "optimizer steps (train.steps)", 0 },
    { "data", KEY_DATA, "FILE", 0, "text, .bin of 16-bit tokens, directory of texts, or \"synthetic\" (train.data)", 0 },
    { "output", 'o', "FILE", 0, "write the measured outcome as JSON", 0 },
    { "detail", KEY_DETAIL, 0, 0, "put the fastest step's timeline and the memory line into the JSON", 0 },
    { "json", 'j', 0, 0, "print the outcome as JSON", 0 },
    { "launch", KEY_LAUNCH, 0, 0, "start the ranks with mpirun even for one rank", 0 },
    { "poison", KEY_POISON, "HOW", 0, "fill memory that is not in use with NaN: planned, or spread (none is used twice); finds wrong programs", 0 },
    { "progress", KEY_PROGRESS, 0, 0, "tell each step on stderr, also where it is no terminal", 0 },
    { "progress-over", KEY_PROGRESS_OVER, 0, OPTION_HIDDEN, "the same on one line: the launcher's terminal", 0 },
    { "communicator", KEY_COMMUNICATOR, "NAME", 0, "of ranks on GPUs: nccl, or staged: through host memory, so that ranks may share a GPU", 0 },
    { "transport", KEY_TRANSPORT, "HOW", 0, "auto, shared or messages: how ranks reach each other", 0 },
    { 0 },
};

static void add_override(arguments *a, const char *path, const char *value, struct argp_state *state)
{
    if (a->job.n_overrides == SF_MOST_OVERRIDES)
        argp_error(state, "too many options describe the job");
    a->job.overrides[a->job.n_overrides++] = (sf_override){ path, value };
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    arguments *a = state->input;

    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &a->job; return 0;
    case KEY_STEPS: add_override(a, "train.steps", arg, state); return 0;
    case KEY_DATA: add_override(a, "train.data", arg, state); return 0;
    case 'o': a->output = arg; return 0;
    case 'j': a->json = true; return 0;
    case KEY_DETAIL: a->detail = true; return 0;
    case KEY_PROGRESS: a->progress = PROGRESS_LINES; return 0;
    case KEY_PROGRESS_OVER: a->progress = PROGRESS_OVER; return 0;
    case KEY_LAUNCH: a->launch = true; return 0;
    case KEY_POISON:
        if (strcmp(arg, "planned") != 0 && strcmp(arg, "spread") != 0)
            argp_error(state, "--poison is planned or spread, not '%s'", arg);
        a->poison = strcmp(arg, "spread") == 0 ? SF_POISON_SPREAD : SF_POISON_PLANNED;
        return 0;
    case KEY_COMMUNICATOR:
        if (strcmp(arg, "nccl") != 0 && strcmp(arg, "staged") != 0)
            argp_error(state, "--communicator is nccl or staged, not '%s'", arg);
        a->staged = strcmp(arg, "staged") == 0;
        return 0;
    case KEY_TRANSPORT:
        if (strcmp(arg, "auto") != 0 && strcmp(arg, "shared") != 0 && strcmp(arg, "messages") != 0)
            argp_error(state, "--transport is auto, shared or messages, not '%s'", arg);
        a->transport = strcmp(arg, "auto") == 0 ? SF_COMM_AUTO : strcmp(arg, "shared") == 0 ? SF_COMM_SHARED : SF_COMM_MESSAGES;
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* ---- the job ---- */

/* A run is our own executor's unless the job says another framework, which is then refused. */
static bool framework_stated(const arguments *a)
{
    for (size_t i = 0; i < a->job.n_overrides; i++)
        if (strcmp(a->job.overrides[i].path, "framework") == 0)
            return true;
    json_t *file = a->job.n_files == 1 ? json_load_file(a->job.files[0], 0, NULL) : NULL;
    bool stated = json_object_get(file, "framework") != NULL;
    json_decref(file);
    return stated;
}

static sf_status read_job(arguments *a, sf_arena *arena, sf_job *job)
{
    if (a->job.n_files > 1)
        return SF_FAIL(SF_EINVAL, "run takes one job, not %d", a->job.n_files);
    if (a->job.n_overrides < SF_MOST_OVERRIDES && (a->job.n_files + (int)a->job.n_overrides) > 0 && !framework_stated(a))
        a->job.overrides[a->job.n_overrides++] = (sf_override){ "framework", "shardfit" };
    SF_TRY(sf_job_options_read(&a->job, 0, arena, job));
    sf_status st = SF_SUCCESS;
    if (job->framework != SF_FRAMEWORK_SHARDFIT)
        st = SF_FAIL(SF_EUNSUP, "framework %s can be predicted, not run: our executor runs \"framework\": \"shardfit\"",
                       sf_framework_name(job->framework));
    else if (!job->cluster.gpu.is_host)
        st = sf_status_prefix(sf_cuda_backend(&a->backend), "cluster.gpu %s", job->cluster.gpu.name);
    if (st.code != SF_OK)
        sf_job_close(job);
    return st;
}

/* ---- what is saved and printed ---- */

typedef struct {
    const arguments *a;
    const sf_job *job;
    const sf_program *program;
    sf_run_record record;
    json_t *provenance, *described;
    pthread_mutex_t saving; /* of the one that writes, here or on a signal */
} run;

static void fill_outcome(run *r, sf_arena *arena, sf_outcome *out)
{
    sf_run_snapshot(&r->record, arena, out);
    out->strategy = r->program->strategy;
    out->world_size = r->program->world_size;
    out->tokens_per_step = r->program->tokens_per_step;
    sf_class_flop(sf_program_class_of(r->program, 0), &out->model_flop, &out->hardware_flop);
    if (r->record.other_load >= 0)
        json_object_set_new(r->provenance, "other_load", json_real(r->record.other_load));
    out->provenance = r->provenance;
}

/* `why` NULL: the run went to its end. */
static sf_status save(run *r, const char *why)
{
    sf_arena arena = { 0 };
    sf_outcome outcome;
    sf_status st = SF_SUCCESS;

    pthread_mutex_lock(&r->saving);
    fill_outcome(r, &arena, &outcome);
    if (why != NULL)
        outcome.verdict = sf_arena_printf(&arena, "ended early after %d steps: %s", outcome.n_losses, why);
    json_t *json = sf_outcome_to_json(&outcome, r->described);
    if (why != NULL)
        json_object_set_new(json, "ended_early", json_string(why));
    if (r->a->detail)
        sf_outcome_add_detail(&outcome, json);
    if (r->a->output != NULL)
        st = sf_output_json(json, r->a->output);
    if (r->a->json && why == NULL)
        sf_print_json(json);
    json_decref(json);
    sf_arena_free(&arena);
    pthread_mutex_unlock(&r->saving);
    return st;
}

static void print_text(run *r)
{
    sf_arena arena = { 0 };
    sf_outcome o;

    fill_outcome(r, &arena, &o);
    printf("%s, %s on %d rank%s of this machine: %s\n", r->job->model.name, o.strategy, o.world_size, o.world_size > 1 ? "s" : "",
           o.verdict != NULL ? o.verdict : "");
    if (o.n_losses > 0) {
        printf("step      %s (%s .. %s over %d steps), %.0f tokens/s, bound by %s\n", sf_seconds_text(o.time.step_s).text,
               sf_seconds_text(o.time.step_s_min).text, sf_seconds_text(o.time.step_s_max).text, o.n_losses > 1 ? o.n_losses - 1 : 1,
               sf_outcome_tokens_per_s(&o), o.time.bound_by != NULL ? o.time.bound_by : "-");
        printf("of it     forward %s, backward %s, optimizer %s; exposed communication %s, idle %s\n",
               sf_seconds_text(o.time.phase_s[SF_PHASE_FORWARD]).text, sf_seconds_text(o.time.phase_s[SF_PHASE_BACKWARD]).text,
               sf_seconds_text(o.time.phase_s[SF_PHASE_OPTIMIZER]).text, sf_seconds_text(o.time.exposed_comm_s).text,
               sf_seconds_text(o.time.idle_s).text);
        if (r->record.other_load > 0.05)
            printf("disturbed other processes used %.0f %% of this machine's cores meanwhile: times are too long\n", 100 * r->record.other_load);
        printf("loss      %.4f -> %.4f in %d steps\n", o.losses[0], o.losses[o.n_losses - 1], o.n_losses);
    }
    printf("memory    %s allocated at most (%s, %s)", sf_bytes_text(o.memory.peak_allocated_bytes).text, sf_phase_name(o.memory.phase_of_peak),
           o.memory.op_of_peak != NULL ? o.memory.op_of_peak : "-");
    if (o.memory.host_bytes > 0)
        printf(", %s of host memory", sf_bytes_text(o.memory.host_bytes).text);
    printf("\n");
    for (size_t i = 0; i < o.n_comm; i++)
        printf("%-14s %" PRIu64 " calls, %s a step, %s\n", sf_op_name(o.comm[i].collective), o.comm[i].calls,
               sf_bytes_text(o.comm[i].bytes_per_rank).text, sf_seconds_text(o.comm[i].time_s).text);
    sf_arena_free(&arena);
}

static void show_progress(void *ctx, int step, const sf_step *result)
{
    const run *r = ctx;
    bool over = r->a->progress == PROGRESS_OVER;

    fprintf(stderr, "%sstep %d of %d   loss %.4f   %s%s", over ? "\r" : "", step, (int)r->job->train.steps, result->loss,
            sf_seconds_text(result->step_s).text, over ? "   " : "\n");
    if (over && step == r->job->train.steps)
        fputc('\n', stderr);
}

/* ---- signals ---- */

/* Saves at once and ends: a launcher that ends a run gives about a second. */
static void *await_signal(void *arg)
{
    run *r = arg;
    sigset_t set;
    int sig;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigwait(&set, &sig);
    char why[64];
    snprintf(why, sizeof why, "told to end by %s", sig == SIGINT ? "SIGINT" : "SIGTERM");
    save(r, why);
    fprintf(stderr, "shardfit: %s%s%s\n", why, r->a->output != NULL ? "; measured until then: " : "", r->a->output != NULL ? r->a->output : "");
    _exit(SF_EXIT_RUN_FAILED);
}

/* Before any other thread starts, also MPI's: threads inherit this, and a signal goes to any that takes it. */
static void leave_signals_to_watcher(int how)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(how, &set, NULL);
}

static bool watch_signals(run *r, pthread_t *thread)
{
    if (pthread_create(thread, NULL, await_signal, r) == 0)
        return true;
    leave_signals_to_watcher(SIG_UNBLOCK);
    return false;
}

/* ---- running ---- */

/* Of ranks that met the same end one speaks: the one that failed first, else the lowest that lives. */
static bool speaks(sf_comm *comm)
{
    sf_stop stop;

    if (comm == NULL)
        return true;
    if (!sf_comm_stopped(comm, &stop))
        return sf_comm_rank(comm) == 0;
    if (stop.kind == SF_STOP_FAILED)
        return stop.rank == sf_comm_rank(comm);
    return sf_comm_rank(comm) == (stop.rank == 0 ? 1 : 0);
}

static int fail(run *r, sf_comm *comm, sf_status st)
{
    bool measured = st.code == SF_ECOMM || st.code == SF_ENUMERIC;

    sf_status saved = measured && r->a->output != NULL ? save(r, st.msg) : SF_SUCCESS;

    if (!speaks(comm))
        return sf_cmd_code(st);
    sf_cmd_fail(st);
    if (saved.code != SF_OK)
        return sf_cmd_fail(saved);
    if (measured && r->a->output != NULL)
        fprintf(stderr, "shardfit: measured until then: %s\n", r->a->output);
    return sf_cmd_code(st);
}

static int finish(run *r, bool first_rank)
{
    sf_arena arena = { 0 };
    sf_outcome o;
    sf_status st = SF_SUCCESS;

    fill_outcome(r, &arena, &o);
    bool fits = o.fits;
    sf_arena_free(&arena);
    if (first_rank) {
        st = save(r, NULL);
        if (st.code == SF_OK && !r->a->json)
            print_text(r);
    }
    if (st.code != SF_OK)
        return sf_cmd_fail(st);
    return fits ? SF_EXIT_DONE : SF_EXIT_NO;
}

static int train(run *r, sf_comm *comm)
{
    bool first = comm == NULL || sf_comm_rank(comm) == 0;
    pthread_t watcher;
    sf_run_setup setup = { .job = r->job, .program = r->program, .backend = r->a->backend, .staged = r->a->staged,
                           .device_memory_bytes = sf_job_device_bytes(r->job), .poison = r->a->poison,
                           .progress = r->a->progress != PROGRESS_NONE ? show_progress : NULL, .progress_ctx = r };

    sf_run_record_open(&r->record);
    r->provenance = sf_provenance();
    r->described = sf_job_to_json(r->job);
    pthread_mutex_init(&r->saving, NULL);
    bool watched = watch_signals(r, &watcher);
    sf_status st = comm != NULL ? sf_run_rank(&setup, comm, &r->record, NULL, NULL) : sf_run_threads(&setup, &r->record);
    int code = st.code == SF_OK ? finish(r, first) : fail(r, comm, st);
    if (watched) {
        pthread_cancel(watcher);
        pthread_join(watcher, NULL);
    }
    pthread_mutex_destroy(&r->saving);
    json_decref(r->provenance);
    json_decref(r->described);
    sf_run_record_close(&r->record);
    return code;
}

/* What every rank finds wrong, one tells. */
static int first_rank_fail(sf_status st)
{
    return sf_comm_launched_rank() == 0 ? sf_cmd_fail(st) : sf_cmd_code(st);
}

static sf_status open_comm(const run *r, int launched, sf_comm **comm)
{
    int world = r->program->world_size;

    if (launched == 0)
        return sf_comm_self_open(comm);
    if (world != launched)
        return SF_FAIL(SF_EINVAL, "the job has %d ranks (cluster.gpus_per_node times cluster.nodes) and %d were started; use mpirun -np %d, or "
                       "--gpus %d", world, launched, world, launched);
    return sf_comm_mpi_open(r->a->transport, comm);
}

/* The same command line, for the ranks, whose stderr is mpirun's pipe. */
static sf_status launch(run *r, int argc, char **argv, int *code)
{
    char *args[128] = { "run" };

    int n = 1;

    if (argc >= 126)
        return SF_FAIL(SF_EINVAL, "too many arguments");
    if (r->a->progress == PROGRESS_OVER)
        args[n++] = "--progress-over";
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--launch") != 0)
            args[n++] = argv[i];
    return sf_launch(r->program->world_size, args, code);
}

static int run_program(run *r, int argc, char **argv)
{
    int launched = sf_comm_launched_ranks(), world = r->program->world_size, code = SF_EXIT_DONE;
    sf_comm *comm = NULL;
    sf_status st = SF_SUCCESS;

    if (r->program->one_process && launched > 1)
        st = SF_FAIL(SF_EINVAL, "dp drives all its devices from one process: start it without mpirun");
    else if (launched > 1 && sf_comm_mpi_version() == NULL)
        st = SF_FAIL(SF_EUNSUP, "%d ranks were started, but this shardfit was built without MPI; build with -Dmpi=enabled (Debian package "
                                "libopenmpi-dev)", launched);
    else if (sf_comm_launched_rank() == 0 && r->a->output != NULL)
        st = sf_output_check(r->a->output);
    if (st.code != SF_OK)
        return first_rank_fail(st);
    if (r->program->one_process) {
        leave_signals_to_watcher(SIG_BLOCK);
        return train(r, NULL);
    }
    if (launched == 0 && (world > 1 || r->a->launch)) {
        st = launch(r, argc, argv, &code);
        return st.code == SF_OK ? code : sf_cmd_fail(st);
    }
    leave_signals_to_watcher(SIG_BLOCK);
    st = open_comm(r, launched, &comm);
    if (st.code != SF_OK)
        return first_rank_fail(st);
    code = train(r, comm);
    sf_comm_close(comm);
    return code;
}

int sf_cmd_run(int argc, char **argv)
{
    static const struct argp_child children[] = { { &sf_job_argp, 0, NULL, 0 }, { 0 } };
    static const struct argp parser = { options, parse, "[JOB.json]",
                                        "Trains the job for some steps on this machine's cores and measures it. Exit code 1: a device's memory "
                                        "did not suffice (--device-memory); 3: the run failed, and what was measured is saved.",
                                        children, 0, 0 };
    sf_arena arena = { 0 };
    arguments a = { .job = { .arena = &arena }, .backend = &sf_backend_host };
    run r = { .a = &a };
    sf_job job;
    int code;

    if (isatty(STDERR_FILENO))
        a.progress = PROGRESS_OVER;
    argp_parse(&parser, argc, argv, 0, 0, &a);
    sf_status st = read_job(&a, &arena, &job);
    if (st.code == SF_OK) {
        r.job = &job;
        st = sf_lower(&job, &arena, &r.program);
        code = st.code == SF_OK ? run_program(&r, argc, argv) : first_rank_fail(st);
        sf_job_close(&job);
    } else {
        code = first_rank_fail(st);
    }
    sf_arena_free(&arena);
    return code;
}
