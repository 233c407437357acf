/* `shardfit predict JOB`: what the job will take. */
#include <argp.h>
#include <stdio.h>

#include "model/base/text.h"
#include "model/base/units.h"
#include "model/strategy/lower.h"
#include "reports/commands.h"
#include "reports/emit.h"
#include "reports/job_options.h"
#include "reports/load_profile.h"
#include "reports/plots.h"
#include "sim/predict.h"
#include "sim/trace.h"

typedef struct {
    sf_job_options job;
    const char *profile, *trace, *memory_plot, *emit;
    bool json, every_rank;
} arguments;

enum { KEY_MEMORY_PLOT = 3200, KEY_EMIT };

static const struct argp_option options[] = {
    { "json", 'j', 0, 0, "print the outcome as JSON", 0 },
    { "trace", 't', "FILE", 0, "write the step's timeline for chrome://tracing or ui.perfetto.dev", 0 },
    { "memory-plot", KEY_MEMORY_PLOT, "FILE", 0, "draw device memory over the step: FILE.svg or FILE.png", 0 },
    { "emit", KEY_EMIT, "DIR", 0, "write what runs it: job.json, train.py, launch.sh, ds_config.json, accelerate.yaml", 0 },
    { "profile", 'p', "FILE", 0, "measurements of this machine (default: where calibrate put them)", 0 },
    { "every-rank", 'e', 0, 0, "simulate each rank rather than one of each kind", 0 },
    { 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    arguments *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &a->job; return 0;
    case 'j': a->json = true; return 0;
    case 't': a->trace = arg; return 0;
    case KEY_MEMORY_PLOT: a->memory_plot = arg; return 0;
    case KEY_EMIT: a->emit = arg; return 0;
    case 'p': a->profile = arg; return 0;
    case 'e': a->every_rank = true; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static void print_memory(const sf_outcome *o)
{
    printf("\nMemory of the fullest device%15s%15s\n", "at the peak", "own peak");
    for (int c = 0; c < SF_CAT_COUNT; c++)
        if (o->memory.peak_bytes[c] > 0)
            printf("  %-24s %15s%15s\n", sf_category_name((sf_category)c), sf_bytes_text(o->memory.at_peak[c]).text,
                   sf_bytes_text(o->memory.peak_bytes[c]).text);
    printf("  %-24s %15s   (%s, %s)\n", "allocated at most", sf_bytes_text(o->memory.peak_allocated_bytes).text,
           sf_phase_name(o->memory.phase_of_peak), o->memory.op_of_peak == NULL ? "-" : o->memory.op_of_peak);
    if (o->memory.peak_reserved_bytes > o->memory.peak_allocated_bytes || o->memory.device_used_bytes > o->memory.peak_allocated_bytes) {
        printf("  %-24s %15s   (the caching allocator's segments)\n", "reserved at most", sf_bytes_text(o->memory.peak_reserved_bytes).text);
        printf("  %-24s %15s   (with the CUDA context and NCCL)\n", "nvidia-smi shows", sf_bytes_text(o->memory.device_used_bytes).text);
    }
    if (o->memory.host_bytes > 0)
        printf("  %-24s %15s\n", "host memory of a rank", sf_bytes_text(o->memory.host_bytes).text);
}

static void print_communication(const sf_outcome *o)
{
    if (o->n_comm == 0) {
        printf("\nNo communication.\n");
        return;
    }
    printf("\nCommunication per step%13s%15s%13s%13s\n", "calls", "array bytes", "time", "exposed");
    for (size_t i = 0; i < o->n_comm; i++)
        printf("  %-24s %8llu%15s%13s%13s\n", sf_op_name(o->comm[i].collective), (unsigned long long)o->comm[i].calls,
               sf_bytes_text(o->comm[i].bytes_per_rank).text, o->time.step_s > 0 ? sf_seconds_text(o->comm[i].time_s).text : "-",
               o->time.step_s > 0 ? sf_seconds_text(o->comm[i].exposed_s).text : "-");
}

static void print_time(const sf_job *job, const sf_outcome *o)
{
    if (!(o->time.step_s > 0)) {
        printf("\nTime: %s\n", !o->fits ? "it does not run." : job->cluster.gpu.is_host
                   ? "this machine is not measured yet; run `shardfit calibrate` first."
                   : "not predicted for this hardware.");
        return;
    }
    printf("\nTime of a step %33s   %.0f tokens/s, bound by %s\n", sf_seconds_text(o->time.step_s).text, sf_outcome_tokens_per_s(o), o->time.bound_by);
    for (int p = 0; p < SF_PHASE_COUNT; p++)
        printf("  %-24s %20s\n", sf_phase_name((sf_phase)p), sf_seconds_text(o->time.phase_s[p]).text);
    printf("  %-24s %20s\n", "exposed communication", sf_seconds_text(o->time.exposed_comm_s).text);
    printf("  %-24s %20s\n", "idle", sf_seconds_text(o->time.idle_s).text);
}

static void print_text(const sf_job *job, const sf_outcome *o)
{
    printf("%s, %s of %s on %lld x %lld %s: %s\n", job->model.name, sf_strategy_name(job->strategy.name), sf_framework_name(job->framework),
           (long long)job->cluster.nodes, (long long)job->cluster.gpus_per_node, job->cluster.gpu.name, o->verdict == NULL ? "" : o->verdict);
    print_memory(o);
    print_communication(o);
    print_time(job, o);
    for (size_t i = 0; i < job->n_not_modelled; i++)
        printf("%s%s\n", i == 0 ? "\nNot modelled or unknown, and left out:\n  " : "  ", job->not_modelled[i]);
    if (job->n_assumed > 0) {
        printf("\nNot stated, and taken as by default:");
        for (size_t i = 0; i < job->n_assumed; i++)
            printf("%s %s", i == 0 ? "" : ",", job->assumed[i]);
        printf("\n");
    }
    for (size_t i = 0; i < job->model.n_warnings; i++)
        printf("Note: %s\n", job->model.warnings[i]);
}

static sf_status predict_one(const arguments *a, const sf_job *job, sf_arena *arena, bool *fits)
{
    const sf_program *program;
    sf_profile profile = { 0 };
    sf_outcome outcome;
    bool have_profile;
    sf_status st;

    SF_TRY(sf_lower(job, arena, &program));
    SF_TRY(sf_load_profile(a->profile, job, arena, &profile, &have_profile));
    sf_predict_options how = { .profile = have_profile ? &profile : NULL, .every_rank = a->every_rank };
    SF_TRY_GOTO(st, sf_predict(job, program, &how, arena, &outcome), release);
    *fits = outcome.fits;
    if (a->trace != NULL) {
        sf_text text = { 0 };
        const sf_outcome *list[] = { &outcome };
        sf_trace_write(list, 1, &text);
        st = sf_file_write(a->trace, sf_text_str(&text), text.len);
        sf_text_free(&text);
        if (st.code != SF_OK)
            goto release;
    }
    if (a->memory_plot != NULL)
        SF_TRY_GOTO(st, sf_plot_memory_file(&outcome, a->memory_plot, arena), release);
    if (a->json) {
        json_t *described = sf_job_to_json(job), *json = sf_outcome_to_json(&outcome, described);
        json_dumpf(json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
        printf("\n");
        json_decref(json);
        json_decref(described);
    } else {
        print_text(job, &outcome);
    }
    if (a->emit != NULL) {
        sf_emitted emitted;
        SF_TRY_GOTO(st, sf_emit(job, a->emit, arena, &emitted), release);
        if (!a->json)
            sf_emit_print(&emitted, a->emit);
    }
release:
    json_decref(profile.provenance);
    return st;
}

int sf_cmd_predict(int argc, char **argv)
{
    static const struct argp_child children[] = { { &sf_job_argp, 0, NULL, 0 }, { 0 } };
    static const struct argp parser = { options, parse, "[JOB.json...]",
                                        "Predicts memory by category, communication per collective, time and whether it fits. "
                                        "Exit code 1: it does not fit.", children, 0, 0 };
    sf_arena arena = { 0 };
    arguments a = { .job = { .arena = &arena } };
    sf_status st = SF_SUCCESS;
    bool all_fit = true;

    argp_parse(&parser, argc, argv, 0, 0, &a);
    for (int i = 0; i < sf_job_options_count(&a.job) && st.code == SF_OK; i++) {
        sf_job job;
        bool fits = true;
        st = sf_job_options_read(&a.job, i, &arena, &job);
        if (st.code != SF_OK)
            break;
        st = predict_one(&a, &job, &arena, &fits);
        sf_job_close(&job);
        all_fit = all_fit && fits;
    }
    sf_arena_free(&arena);
    if (st.code != SF_OK)
        return sf_cmd_fail(st);
    return all_fit ? SF_EXIT_DONE : SF_EXIT_NO;
}
