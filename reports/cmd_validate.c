/* `shardfit validate JOB...`: predicts, really runs and compares. */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>

#include "reports/commands.h"
#include "reports/output.h"
#include "reports/sweep.h"

enum { KEY_STRATEGIES = 3000, KEY_MEASURED, KEY_BAR, KEY_BEST, KEY_ROUNDS, KEY_DETAILS, MOST_ROUNDS = 100 };

/* The step time's bar: what the drawn band of the plots stands for. */
static const double default_time_bar = 0.10;

typedef struct {
    sf_job_options job;
    sf_sweep sweep;
    bool json, details;
} arguments;

static const struct argp_option options[] = {
    { "strategies", KEY_STRATEGIES, "A,B,...", 0, "each of these instead of the job's own strategy", 0 },
    { "output", 'o', "DIR", 0, "where the report goes (default: out/validate)", 0 },
    { "measured", KEY_MEASURED, "FILE", 0, "an outcome measured before (run --output --detail, or the train.py of --emit) instead of a run; once per job and strategy, in order; without a JOB: its own", 0 },
    { "profile", 'p', "FILE", 0, "measurements of this machine (default: where calibrate put them)", 0 },
    { "best", KEY_BEST, 0, 0, "compare with the fastest step, not the median: for a machine that has other work to do", 0 },
    { "rounds", KEY_ROUNDS, "N", 0, "with --best: run again, N times at most, what is slower than predicted by more than the bar (default: 1)", 0 },
    { "time-bar", KEY_BAR, "PERCENT", 0, "largest error of a step time that passes (default: 10)", 0 },
    { "details", KEY_DETAILS, 0, 0, "print every compared quantity", 0 },
    { "json", 'j', 0, 0, "print the report as JSON", 0 },
    { 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    arguments *a = state->input;
    char *end;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &a->job; return 0;
    case KEY_STRATEGIES:
        if (!sf_sweep_strategies(&a->sweep, arg))
            argp_error(state, "more than %d strategies", SF_SWEEP_MOST);
        return 0;
    case 'o': a->sweep.directory = arg; return 0;
    case 'p': a->sweep.profile = arg; return 0;
    case KEY_MEASURED:
        if (a->sweep.n_measured == SF_SWEEP_MOST)
            argp_error(state, "more than %d measured outcomes", SF_SWEEP_MOST);
        a->sweep.measured[a->sweep.n_measured++] = arg;
        return 0;
    case KEY_BEST: a->sweep.best = true; return 0;
    case KEY_ROUNDS:
        a->sweep.rounds = (int)strtol(arg, &end, 10);
        if (end == arg || *end != '\0' || a->sweep.rounds < 1 || a->sweep.rounds > MOST_ROUNDS)
            argp_error(state, "--rounds is a number from 1 to %d, not '%s'", MOST_ROUNDS, arg);
        return 0;
    case KEY_DETAILS: a->details = true; return 0;
    case KEY_BAR:
        a->sweep.time_bar = strtod(arg, &end) / 100;
        if (end == arg || *end != '\0' || !(a->sweep.time_bar > 0))
            argp_error(state, "--time-bar is a number of percent above 0, not '%s'", arg);
        return 0;
    case 'j': a->json = true; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* An outcome carries its job: without a JOB, that one is meant. */
static sf_status jobs_of_outcomes(arguments *a, sf_arena *arena)
{
    if (a->job.n_files > 0 || a->job.n_overrides > 0)
        return SF_SUCCESS;
    for (int i = 0; i < a->sweep.n_measured; i++) {
        json_error_t error;
        json_t *outcome = json_load_file(a->sweep.measured[i], 0, &error), *job = json_object_get(outcome, "job");
        const char *path = sf_arena_printf(arena, "%s/runs/measured-%d.job.json", a->sweep.directory, i + 1);
        sf_status st = SF_SUCCESS;
        if (outcome == NULL)
            st = SF_FAIL(SF_EPARSE, "%s:%d:%d: %s", a->sweep.measured[i], error.line, error.column, error.text);
        else if (!json_is_object(job))
            st = SF_FAIL(SF_EPARSE, "%s: it holds no job; name the JOB that was measured too", a->sweep.measured[i]);
        else if ((st = sf_output_check(path)).code == SF_OK)
            st = sf_output_json(job, path);
        json_decref(outcome);
        SF_TRY(st);
        a->job.files[a->job.n_files++] = path;
    }
    return SF_SUCCESS;
}

static int validate(const arguments *a, int argc, char **argv, sf_arena *arena)
{
    sf_report report = { 0 };
    sf_verdict verdict = { 0 };
    const char *note = NULL;
    int code = SF_EXIT_DONE;

    sf_status st = sf_sweep_run(&a->sweep, argc, argv, arena, &report, &code);
    if (st.code == SF_OK) {
        sf_report_judge(&report, arena, &verdict);
        fprintf(stderr, "drawing plots, writing %s ...\n", a->sweep.directory);
        st = sf_report_write(&report, a->sweep.directory, arena, &note);
    }
    if (st.code == SF_OK && a->json) {
        json_t *json = sf_report_to_json(&report);
        sf_print_json(json);
        json_decref(json);
    } else if (st.code == SF_OK) {
        sf_sweep_print(&report, a->details, note, a->sweep.directory, arena);
    }
    sf_sweep_release(&report);
    if (st.code != SF_OK)
        return sf_cmd_fail(st);
    return code != SF_EXIT_DONE ? code : verdict.good ? SF_EXIT_DONE : SF_EXIT_NO;
}

int sf_cmd_validate(int argc, char **argv)
{
    static const struct argp_child children[] = { { &sf_job_argp, 0, NULL, 0 }, { 0 } };
    static const struct argp parser = { options, parse, "[JOB.json...]",
                                        "Predicts each job, really runs it here, and compares quantity by quantity: bytes and calls must be "
                                        "equal, the step time within the bar. Writes report.html, compare.csv, report.json, report.md and "
                                        "plots. Exit code 1: a prediction does not hold; 3: a run failed.", children, 0, 0 };
    sf_arena arena = { 0 };
    arguments a = { .job = { .arena = &arena }, .sweep = { .run = true, .directory = "out/validate", .rounds = 1,
                                                                         .time_bar = default_time_bar } };
    a.sweep.job = &a.job;
    argp_parse(&parser, argc, argv, 0, 0, &a);
    sf_status st = jobs_of_outcomes(&a, &arena);
    int code = st.code == SF_OK ? validate(&a, argc, argv, &arena) : sf_cmd_fail(st);
    sf_arena_free(&arena);
    return code;
}
