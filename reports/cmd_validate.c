/* `shardfit validate JOB...`: predicts, really runs and compares. */
#include <argp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/provenance.h"
#include "model/base/text.h"
#include "reports/commands.h"
#include "reports/output.h"
#include "reports/validate.h"

enum { KEY_STRATEGIES = 3000, KEY_MEASURED, KEY_BAR, KEY_BEST, KEY_DETAILS, MOST_MEASURED = 64, MOST_STRATEGIES = 16 };

/* The step time's bar: what the drawn band of the plots stands for. */
static const double default_time_bar = 0.10;

typedef struct {
    sf_job_options job;
    const char *directory, *profile;
    const char *strategies[MOST_STRATEGIES], *measured[MOST_MEASURED];
    int n_strategies, n_measured;
    double time_bar;
    bool json, best, details;
} arguments;

static const struct argp_option options[] = {
    { "strategies", KEY_STRATEGIES, "A,B,...", 0, "each of these instead of the job's own strategy", 0 },
    { "output", 'o', "DIR", 0, "where the report goes (default: out/validate)", 0 },
    { "measured", KEY_MEASURED, "FILE", 0, "an outcome measured before (run --output --detail) instead of a run; once per job and strategy, in order", 0 },
    { "profile", 'p', "FILE", 0, "measurements of this machine (default: where calibrate put them)", 0 },
    { "best", KEY_BEST, 0, 0, "compare with the fastest step, not the median: for a machine that has other work to do", 0 },
    { "time-bar", KEY_BAR, "PERCENT", 0, "largest error of a step time that passes (default: 10)", 0 },
    { "details", KEY_DETAILS, 0, 0, "print every compared quantity", 0 },
    { "json", 'j', 0, 0, "print the report as JSON", 0 },
    { 0 },
};

static void split(arguments *a, char *list, struct argp_state *state)
{
    for (char *save = NULL, *name = strtok_r(list, ",", &save); name != NULL; name = strtok_r(NULL, ",", &save)) {
        if (a->n_strategies == MOST_STRATEGIES)
            argp_error(state, "more than %d strategies", MOST_STRATEGIES);
        a->strategies[a->n_strategies++] = name;
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    arguments *a = state->input;
    char *end;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &a->job; return 0;
    case KEY_STRATEGIES: split(a, arg, state); return 0;
    case 'o': a->directory = arg; return 0;
    case 'p': a->profile = arg; return 0;
    case KEY_MEASURED:
        if (a->n_measured == MOST_MEASURED)
            argp_error(state, "more than %d measured outcomes", MOST_MEASURED);
        a->measured[a->n_measured++] = arg;
        return 0;
    case KEY_BEST: a->best = true; return 0;
    case KEY_DETAILS: a->details = true; return 0;
    case KEY_BAR:
        a->time_bar = strtod(arg, &end) / 100;
        if (end == arg || *end != '\0' || !(a->time_bar > 0))
            argp_error(state, "--time-bar is a number of percent above 0, not '%s'", arg);
        return 0;
    case 'j': a->json = true; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* "jobs/demo-gpt2.json" -> "demo-gpt2" */
static const char *stem_of(const char *path, sf_arena *arena)
{
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1;
    size_t n = strlen(name);
    if (n > 5 && strcmp(name + n - 5, ".json") == 0)
        n -= 5;
    return sf_arena_strndup(arena, name, n);
}

static const char *file_name(const char *text, sf_arena *arena)
{
    char *out = sf_arena_strdup(arena, text);
    for (char *c = out; *c != '\0'; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || *c == '-' || *c == '.' || *c == '_'))
            *c = '_';
    return out;
}

static void tell(const sf_report_entry *e, int number, int count)
{
    fprintf(stderr, "[%d/%d] %s: ", number, count, e->title);
    if (e->failure != NULL)
        fprintf(stderr, "%s\n", e->failure);
    else if (!e->measured->fits)
        fprintf(stderr, "does not fit\n");
    else
        fprintf(stderr, "step %s predicted, %s measured; peak %s\n",
                e->predicted->time.step_s > 0 ? sf_seconds_text(e->predicted->time.step_s).text : "not",
                sf_seconds_text(e->measured->time.step_s).text, sf_bytes_text(e->measured->memory.peak_allocated_bytes).text);
}

/* One job under one strategy. */
static int validate_one(const arguments *a, int file, int strategy, int number, int count, sf_report *report, sf_arena *arena)
{
    sf_override overrides[SF_MOST_OVERRIDES + 2];
    size_t n = a->job.n_overrides;
    const char *path = a->job.n_files == 0 ? NULL : a->job.files[file];
    const char *name = a->n_strategies > 0 ? a->strategies[strategy] : path != NULL ? stem_of(path, arena) : "job";

    memcpy(overrides, a->job.overrides, n * sizeof *overrides);
    if (a->n_strategies > 0)
        overrides[n++] = (sf_override){ "strategy.name", a->strategies[strategy] };
    if (a->n_strategies > 0 && a->job.n_files > 1)
        name = sf_arena_printf(arena, "%s, %s", a->strategies[strategy], stem_of(path, arena));
    sf_report_entry *e = sf_report_add(report, arena, name);
    e->name = file_name(name, arena);
    fprintf(stderr, "[%d/%d] %s: %s ...\n", number, count, name, number <= a->n_measured ? "reading" : "predicting and running");
    sf_validation v = { .file = path, .overrides = overrides, .n_overrides = n, .profile = a->profile, .directory = a->directory,
                        .measured = number <= a->n_measured ? a->measured[number - 1] : NULL, .best = a->best };
    int code = sf_validate(&v, e, arena);
    tell(e, number, count);
    return code;
}

static const char *title_of(const arguments *a, const sf_report *report, sf_arena *arena)
{
    const char *what = a->job.n_files == 1 ? stem_of(a->job.files[0], arena) : a->job.n_files > 1 ? "Jobs" : "Job";
    for (size_t i = 0; i < report->n_entries; i++)
        if (report->entries[i].predicted != NULL)
            return sf_arena_printf(arena, "%s on %d ranks of this machine", what, report->entries[i].predicted->world_size);
    return what;
}

static json_t *provenance(const arguments *a, int argc, char **argv)
{
    json_t *o = sf_provenance();
    sf_text line = { 0 };
    sf_text_add(&line, "shardfit");
    for (int i = 0; i < argc; i++)
        sf_text_add(&line, " %s", argv[i]);
    json_object_set_new(o, "command", json_string(sf_text_str(&line)));
    json_object_set_new(o, "step_time", json_string(a->best ? "of the fastest step" : "median of the steps after the first"));
    sf_text_free(&line);
    return o;
}

static void print_text(const arguments *a, const sf_report *report, const sf_verdict *v, const char *note, sf_arena *arena)
{
    sf_text text = { 0 };
    sf_table t;
    bool colour = sf_colour_wanted(stdout);
    sf_report_summary(report, arena, &t);
    sf_table_text(&t, colour, &text);
    for (size_t i = 0; a->details && i < report->n_entries; i++)
        for (int s = 0; s < SF_SECTION_COUNT; s++) {
            sf_compare_table(&report->entries[i].comparison, (sf_section)s, arena, &t);
            t.title = sf_arena_printf(arena, "\n%s: %s", report->entries[i].title, t.title);
            if (t.n_rows > 0)
                sf_table_text(&t, colour, &text);
        }
    printf("%s\n", sf_text_str(&text));
    for (size_t i = 0; i < v->n_points; i++)
        printf("%s\n", v->points[i]);
    if (note != NULL)
        printf("%s\n", note);
    printf("%s. Report: %s/report.html\n", v->headline, a->directory);
    sf_text_free(&text);
}

static int run_all(const arguments *a, int argc, char **argv, sf_arena *arena)
{
    sf_report report = { .time_bar = a->time_bar };
    sf_verdict verdict;
    const char *note = NULL;
    int per_job = a->n_strategies > 0 ? a->n_strategies : 1, count = sf_job_options_count(&a->job) * per_job, worst = SF_EXIT_DONE;

    if (a->n_measured > count)
        return sf_cmd_fail(SF_FAIL(SF_EINVAL, "--measured is given %d times for %d jobs", a->n_measured, count));
    for (int i = 0; i < count; i++) {
        int code = validate_one(a, i / per_job, i % per_job, i + 1, count, &report, arena);
        worst = code > worst ? code : worst;
    }
    json_t *made = provenance(a, argc, argv);
    report.provenance = made;
    report.title = title_of(a, &report, arena);
    sf_report_join(&report, arena);
    sf_report_judge(&report, arena, &verdict);
    fprintf(stderr, "drawing plots, writing %s ...\n", a->directory);
    sf_status st = sf_report_write(&report, a->directory, arena, &note);
    if (st.code == SF_OK && a->json) {
        json_t *json = sf_report_to_json(&report);
        sf_print_json(json);
        json_decref(json);
    } else if (st.code == SF_OK) {
        print_text(a, &report, &verdict, note, arena);
    }
    json_decref(made);
    for (size_t i = 0; i < report.n_entries; i++)
        sf_validation_release(&report.entries[i]);
    if (st.code != SF_OK)
        return sf_cmd_fail(st);
    return worst != SF_EXIT_DONE ? worst : verdict.good ? SF_EXIT_DONE : SF_EXIT_NO;
}

int sf_cmd_validate(int argc, char **argv)
{
    static const struct argp_child children[] = { { &sf_job_argp, 0, NULL, 0 }, { 0 } };
    static const struct argp parser = { options, parse, "[JOB.json...]",
                                        "Predicts each job, really runs it here, and compares quantity by quantity: bytes and calls must be "
                                        "equal, the step time within the bar. Writes report.html, compare.csv, report.json, report.md and "
                                        "plots. Exit code 1: a prediction does not hold; 3: a run failed.", children, 0, 0 };
    sf_arena arena = { 0 };
    arguments a = { .job = { .arena = &arena }, .directory = "out/validate", .time_bar = default_time_bar };
    argp_parse(&parser, argc, argv, 0, 0, &a);
    int code = a.job.n_files == 0 && a.job.n_overrides == 0
                   ? sf_cmd_fail(SF_FAIL(SF_EINVAL, "no job is given: name a JSON file, or say at least --model and --gpu host"))
                   : run_all(&a, argc, argv, &arena);
    sf_arena_free(&arena);
    return code;
}
