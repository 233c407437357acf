/* `shardfit plan JOB`: which strategy, and why not the others. */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/base/text.h"
#include "model/base/units.h"
#include "reports/commands.h"
#include "reports/emit.h"
#include "reports/load_profile.h"
#include "reports/output.h"
#include "reports/plan.h"

enum { KEY_GLOBAL_BATCH = 3400, KEY_OPTIMIZERS, KEY_MIN_GPUS, KEY_MAX_BATCH, KEY_MAX_SEQ, KEY_MAX_MODEL, KEY_FINISH, KEY_TOKENS, KEY_PRICE, KEY_GPU_TYPES, KEY_EMIT };

typedef struct {
    sf_job_options job;
    sf_planner_ask ask;
    sf_planner_questions questions;
    const char *directory, *profile, *emit;
    bool json;
} arguments;

static const struct argp_option options[] = {
    { "global-batch", KEY_GLOBAL_BATCH, "N", 0, "sequences of one optimizer step over all GPUs", 0 },
    { "optimizers", KEY_OPTIMIZERS, "A,B,...", 0, "weigh these too: adamw, adamw-fused, adamw-8bit, ...", 0 },
    { "price-per-gpu-hour", KEY_PRICE, "P", 0, "adds the price of a billion tokens", 0 },
    { "min-gpus", KEY_MIN_GPUS, 0, 0, "the smallest number of GPUs on which anything fits", 0 },
    { "gpu-types", KEY_GPU_TYPES, "A,B,...", 0, "with --min-gpus: for each of these GPUs", 0 },
    { "max-batch", KEY_MAX_BATCH, 0, 0, "the largest micro-batch of each strategy", 0 },
    { "max-seq-len", KEY_MAX_SEQ, 0, 0, "the longest sequence that fits", 0 },
    { "max-model", KEY_MAX_MODEL, 0, 0, "the largest model of the catalogue that fits", 0 },
    { "gpus-to-finish-in", KEY_FINISH, "TIME", 0, "how many GPUs see --tokens in TIME: 12h, 3d, 2w", 0 },
    { "tokens", KEY_TOKENS, "N", 0, "tokens to train on, for example 10e9", 0 },
    { "output", 'o', "DIR", 0, "write a report there: plan.html, plan.md, plan.csv, plan.json, plots", 0 },
    { "emit", KEY_EMIT, "DIR", 0, "write what runs the winner: job.json, train.py, launch.sh, ds_config.json, accelerate.yaml", 0 },
    { "profile", 'p', "FILE", 0, "measurements of this machine (default: where calibrate put them)", 0 },
    { "json", 'j', 0, 0, "print the plan as JSON", 0 },
    { 0 },
};

static double positive(const char *text, const char *option, struct argp_state *state)
{
    char *end;
    double x = strtod(text, &end);
    if (end == text || *end != '\0' || !(x > 0) || x > 1e30)
        argp_error(state, "--%s takes a positive number, not '%s'", option, text);
    return x;
}

static double duration_s(const char *text, struct argp_state *state)
{
    static const struct {
        char unit;
        double s;
    } units[] = { { 's', 1 }, { 'm', 60 }, { 'h', 3600 }, { 'd', 86400 }, { 'w', 7 * 86400 } };
    char *end;
    double x = strtod(text, &end);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (x > 0 && x < 1e9 && end[0] == units[i].unit && end[1] == '\0')
            return x * units[i].s;
    argp_error(state, "--gpus-to-finish-in takes a time such as 12h, 3d or 2w, not '%s'", text);
    return 0;
}

static void optimizers(arguments *a, char *list, struct argp_state *state)
{
    char *save = NULL;
    for (char *name = strtok_r(list, ",", &save); name != NULL; name = strtok_r(NULL, ",", &save)) {
        int64_t found = -1;
        for (int64_t i = 0; i < SF_OPTIMIZER_COUNT; i++)
            if (strcmp(name, sf_optimizer_name(i)) == 0)
                found = i;
        if (found < 0)
            argp_error(state, "--optimizers: there is no optimizer '%s'; adamw, adamw-fused, adamw-foreach, adamw-8bit, sgd, adafactor, lion", name);
        if (a->ask.n_optimizers == SF_PLANNER_MOST_CHOICES)
            argp_error(state, "--optimizers takes at most %d", SF_PLANNER_MOST_CHOICES);
        a->ask.optimizers[a->ask.n_optimizers++] = found;
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    arguments *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &a->job; return 0;
    case KEY_GLOBAL_BATCH:
        if (a->job.n_overrides == SF_MOST_OVERRIDES)
            argp_error(state, "more than %d options describe the job", SF_MOST_OVERRIDES);
        a->job.overrides[a->job.n_overrides++] = (sf_override){ "train.global_batch", arg };
        return 0;
    case KEY_OPTIMIZERS: optimizers(a, arg, state); return 0;
    case KEY_PRICE: a->ask.price_per_gpu_hour = positive(arg, "price-per-gpu-hour", state); return 0;
    case KEY_MIN_GPUS: a->questions.min_gpus = true; return 0;
    case KEY_GPU_TYPES: a->questions.gpu_types = arg; return 0;
    case KEY_MAX_BATCH: a->questions.max_batch = true; return 0;
    case KEY_MAX_SEQ: a->questions.max_seq_len = true; return 0;
    case KEY_MAX_MODEL: a->questions.max_model = true; return 0;
    case KEY_FINISH: a->questions.finish_in_s = duration_s(arg, state); return 0;
    case KEY_TOKENS: a->questions.tokens = positive(arg, "tokens", state); return 0;
    case 'o': a->directory = arg; return 0;
    case KEY_EMIT: a->emit = arg; return 0;
    case 'p': a->profile = arg; return 0;
    case 'j': a->json = true; return 0;
    case ARGP_KEY_END:
        if ((a->questions.finish_in_s > 0) != (a->questions.tokens > 0))
            argp_error(state, "--gpus-to-finish-in and --tokens belong together");
        if (a->questions.gpu_types != NULL && !a->questions.min_gpus)
            argp_error(state, "--gpu-types belongs to --min-gpus");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static bool asked(const sf_planner_questions *q)
{
    return q->min_gpus || q->max_batch || q->max_seq_len || q->max_model || q->finish_in_s > 0;
}

static void print_plan(const sf_planner *p, const char *answers, const char *note, const char *directory, sf_arena *arena)
{
    sf_text text = { 0 };
    sf_table t;
    bool colour = sf_colour_wanted(stdout);

    printf("%s, %s per GPU\n%s\n\n", p->title, p->capacity_bytes > 0 ? sf_bytes_text(p->capacity_bytes).text : "no memory limit", sf_planner_headline(p, arena));
    if (answers[0] != '\0')
        printf("%s\n", answers);
    if (p->n_ranked > 0) {
        sf_planner_table(p, arena, &t);
        sf_table_text(&t, colour, &text);
        sf_text_add(&text, "\n");
    }
    if (p->n_entries > 1 || p->n_ranked == 0)
        sf_text_add(&text, "Why not the others:\n");
    for (size_t i = p->n_ranked > 0 ? 1 : 0; i < p->n_entries; i++) {
        const sf_planner_entry *e = &p->entries[i];
        const char *title = sf_arena_printf(arena, "%s, %s", e->variant->title, e->variant->framework);
        sf_text_add(&text, "  %-36s %s%s%s\n", title, e->reason == NULL ? "-" : e->reason, e->remedy == NULL ? "" : "; fits with ",
                    e->remedy == NULL ? "" : e->remedy);
    }
    printf("%s\nTaken for granted:\n", sf_text_str(&text));
    for (size_t i = 0; i < p->n_notes; i++)
        printf("  %s\n", p->notes[i]);
    printf("%zu candidates, %zu of them fit; %zu programs simulated; %s.", p->candidates, p->fitting, p->simulated, sf_seconds_text(p->seconds).text);
    if (directory != NULL)
        printf(" Report: %s/plan.html", directory);
    printf("\n");
    if (note != NULL)
        printf("%s\n", note);
    sf_text_free(&text);
}

/* The questions alone need no ranking: unless a report is asked for as well. */
static sf_status plan_one(arguments *a, sf_arena *arena, bool *found)
{
    sf_planner plan = { .title = NULL };
    sf_text answers = { 0 };
    sf_profile profile = { 0 };
    bool have_profile, ranking = !asked(&a->questions) || a->directory != NULL || a->emit != NULL;
    const char *note = NULL;
    json_t *json = json_object();
    sf_job job;

    sf_status st = sf_job_options_read(&a->job, a->ask.file, arena, &job);
    if (st.code == SF_OK) {
        st = sf_load_profile(a->profile, &job, arena, &profile, &have_profile);
        sf_job_close(&job);
    }
    if (st.code != SF_OK)
        goto done;
    a->ask.profile = have_profile ? &profile : NULL;
    SF_TRY_GOTO(st, sf_planner_answer(&a->ask, &a->questions, arena, json, &answers, found), release);
    if (ranking) {
        if (isatty(STDERR_FILENO) && !a->json)
            fprintf(stderr, "planning ...\r");
        SF_TRY_GOTO(st, sf_planner_make(&a->ask, arena, &plan), release);
        *found = plan.fitting > 0;
        if (a->directory != NULL)
            st = sf_planner_write(&plan, sf_text_str(&answers), a->directory, arena, &note);
    }
    if (st.code == SF_OK && a->json) {
        if (ranking) {
            json_t *ranked = sf_planner_to_json(&plan, arena);
            json_object_update(json, ranked);
            json_decref(ranked);
        }
        sf_print_json(json);
    } else if (st.code == SF_OK && ranking) {
        print_plan(&plan, sf_text_str(&answers), note, a->directory, arena);
    } else if (st.code == SF_OK) {
        printf("%s", sf_text_str(&answers));
    }
    if (st.code == SF_OK && a->emit != NULL && plan.n_ranked > 0) {
        sf_emitted emitted;
        st = sf_emit(&plan.entries[0].job, a->emit, arena, &emitted);
        if (st.code == SF_OK && !a->json)
            sf_emit_print(&emitted, a->emit);
    }
    if (ranking)
        sf_planner_close(&plan);
release:
    json_decref(profile.provenance);
done:
    sf_text_free(&answers);
    json_decref(json);
    return st;
}

int sf_cmd_plan(int argc, char **argv)
{
    static const struct argp_child children[] = { { &sf_job_argp, 0, NULL, 0 }, { 0 } };
    static const struct argp parser = { options, parse, "[JOB.json...]",
                                        "Weighs strategies, micro-batches, accumulation, recomputation and kernels for a model on given GPUs: what the job "
                                        "does not state is varied. Ranks what fits by speed, and says of all others why not and what would make them fit. "
                                        "Exit code 1: nothing fits.", children, 0, 0 };
    sf_arena arena = { 0 };
    arguments a = { .job = { .arena = &arena } };
    sf_status st = SF_SUCCESS;
    bool all = true;

    a.ask.job = &a.job;
    argp_parse(&parser, argc, argv, 0, 0, &a);
    for (int i = 0; i < sf_job_options_count(&a.job) && st.code == SF_OK; i++) {
        bool found = true;
        a.ask.file = i;
        st = plan_one(&a, &arena, &found);
        all = all && found;
    }
    sf_arena_free(&arena);
    if (st.code != SF_OK)
        return sf_cmd_fail(st);
    return all ? SF_EXIT_DONE : SF_EXIT_NO;
}
