/* `shardfit compare JOB`: the same job under every strategy, side by side. */
#include <argp.h>
#include <stdio.h>

#include "reports/commands.h"
#include "reports/output.h"
#include "reports/study.h"
#include "reports/sweep.h"

enum { KEY_STRATEGIES = 3100, KEY_DETAILS };

typedef struct {
    sf_job_options job;
    sf_sweep sweep;
    bool json, details;
} arguments;

static const struct argp_option options[] = {
    { "strategies", KEY_STRATEGIES, "A,B,...", 0, "only these (default: every strategy of the job's framework)", 0 },
    { "output", 'o', "DIR", 0, "write a report there: report.html, compare.csv, report.json, report.md, plots", 0 },
    { "profile", 'p', "FILE", 0, "measurements of this machine (default: where calibrate put them)", 0 },
    { "details", KEY_DETAILS, 0, 0, "print every predicted quantity", 0 },
    { "json", 'j', 0, 0, "print the report as JSON", 0 },
    { 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    arguments *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &a->job; return 0;
    case KEY_STRATEGIES:
        if (!sf_sweep_strategies(&a->sweep, arg))
            argp_error(state, "more than %d strategies", SF_SWEEP_MOST);
        return 0;
    case 'o': a->sweep.directory = arg; return 0;
    case 'p': a->sweep.profile = arg; return 0;
    case KEY_DETAILS: a->details = true; return 0;
    case 'j': a->json = true; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* A strategy that cannot take the job is part of the answer; that none can is bad input. */
static bool some_predicted(const sf_report *report)
{
    for (size_t i = 0; i < report->n_entries; i++)
        if (report->entries[i].predicted != NULL)
            return true;
    return false;
}

static int compare(const arguments *a, int argc, char **argv, sf_arena *arena)
{
    sf_report report = { 0 };
    sf_verdict verdict = { 0 };
    const char *note = NULL;
    int code = SF_EXIT_DONE;

    sf_status st = sf_sweep_run(&a->sweep, argc, argv, arena, &report, &code);
    if (st.code == SF_OK) {
        sf_study_add(&report, arena);
        sf_report_judge(&report, arena, &verdict);
        if (a->sweep.directory != NULL)
            st = sf_report_write(&report, a->sweep.directory, arena, &note);
    }
    if (st.code == SF_OK && a->json) {
        json_t *json = sf_report_to_json(&report);
        sf_print_json(json);
        json_decref(json);
    } else if (st.code == SF_OK) {
        sf_sweep_print(&report, a->details, note, a->sweep.directory, arena);
    }
    bool answered = some_predicted(&report);
    sf_sweep_release(&report);
    if (st.code != SF_OK)
        return sf_cmd_fail(st);
    return !answered ? code : verdict.good ? SF_EXIT_DONE : SF_EXIT_NO;
}

int sf_cmd_compare(int argc, char **argv)
{
    static const struct argp_child children[] = { { &sf_job_argp, 0, NULL, 0 }, { 0 } };
    static const struct argp parser = { options, parse, "[JOB.json...]",
                                        "Predicts the same job under every strategy, side by side: memory, communication, step time, what bounds "
                                        "it, what fits. Exit code 1: none fits.", children, 0, 0 };
    sf_arena arena = { 0 };
    arguments a = { .job = { .arena = &arena }, .sweep = { .every_strategy = true } };
    a.sweep.job = &a.job;
    argp_parse(&parser, argc, argv, 0, 0, &a);
    int code = compare(&a, argc, argv, &arena);
    sf_arena_free(&arena);
    return code;
}
