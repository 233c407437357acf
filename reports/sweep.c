#include "reports/sweep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/provenance.h"
#include "model/base/text.h"
#include "model/strategy/list.h"
#include "reports/commands.h"
#include "reports/validate.h"

typedef struct {
    const char *strategy, *framework; /* NULL: the job's own                        */
    const char *title;                /* NULL: the strategy's name                  */
    sf_override set;                  /* a knob; path NULL: none                    */
} choice;

/* Knobs that make another strategy of one, for jobs on GPUs. */
static const choice variants[] = {
    { "fsdp", "pytorch", "fsdp, shard_grad_op", { "strategy.sharding", "shard_grad_op" } },
    { "fsdp", "pytorch", "fsdp, cpu_offload", { "strategy.cpu_offload", "true" } },
    { "zero2", "deepspeed", "zero2, cpu optimizer", { "strategy.offload_optimizer.device", "cpu" } },
    { "zero3", "deepspeed", "zero3, cpu optimizer", { "strategy.offload_optimizer.device", "cpu" } },
    { "fsdp", "shardfit", "fsdp, shard_grad_op", { "strategy.sharding", "shard_grad_op" } },
    { "zero2", "shardfit", "zero2, cpu optimizer", { "strategy.offload_optimizer.device", "cpu" } },
    { "zero3", "shardfit", "zero3, cpu optimizer", { "strategy.offload_optimizer.device", "cpu" } },
};

typedef struct {
    choice items[SF_SWEEP_MOST];
    int count;
} choices;

bool sf_sweep_strategies(sf_sweep *s, char *list)
{
    for (char *save = NULL, *name = strtok_r(list, ",", &save); name != NULL; name = strtok_r(NULL, ",", &save)) {
        if (s->n_strategies == SF_SWEEP_MOST)
            return false;
        s->strategies[s->n_strategies++] = name;
    }
    return true;
}

/* ---- what to predict ---- */

static bool wanted(const sf_job *job, sf_framework framework)
{
    if (sf_job_stated(job, "framework"))
        return job->framework == (int64_t)framework;
    return job->cluster.gpu.is_host ? framework == SF_FRAMEWORK_SHARDFIT : framework != SF_FRAMEWORK_SHARDFIT;
}

static void choose(const sf_sweep *s, const sf_job *job, choices *out)
{
    static const struct {
        sf_framework framework;
        const char *name;
    } rows[] = {
#define AS_ROW(framework, name, function, summary) { SF_FRAMEWORK_##framework, name },
        SF_STRATEGIES(AS_ROW)
#undef AS_ROW
    };
    out->count = 0;
    for (int i = 0; i < s->n_strategies; i++)
        out->items[out->count++] = (choice){ .strategy = s->strategies[i] };
    if (s->n_strategies > 0)
        return;
    for (size_t i = 0; s->every_strategy && i < sizeof rows / sizeof rows[0]; i++) {
        bool alone = strcmp(rows[i].name, "single") == 0;
        if (out->count == SF_SWEEP_MOST || !wanted(job, rows[i].framework) || alone != (sf_job_world_size(job) == 1))
            continue;
        const char *framework = sf_framework_name(rows[i].framework);
        out->items[out->count++] = (choice){ .strategy = rows[i].name, .framework = framework };
        for (size_t k = 0; !job->cluster.gpu.is_host && k < sizeof variants / sizeof variants[0]; k++)
            if (out->count < SF_SWEEP_MOST && strcmp(variants[k].strategy, rows[i].name) == 0 && strcmp(variants[k].framework, framework) == 0 &&
                !sf_job_stated(job, variants[k].set.path))
                out->items[out->count++] = variants[k];
    }
    if (out->count == 0)
        out->items[out->count++] = (choice){ .strategy = NULL };
}

/* A strategy that two frameworks have is named with its framework the second time. */
static void tell_apart(choices *list, sf_arena *arena)
{
    for (int k = 0; k < list->count; k++)
        for (int j = 0; j < k && list->items[k].framework != NULL && list->items[k].title == NULL; j++)
            if (list->items[j].title == NULL && strcmp(list->items[j].strategy, list->items[k].strategy) == 0)
                list->items[k].title = sf_arena_printf(arena, "%s, %s", list->items[k].strategy, list->items[k].framework);
}

/* ---- names ---- */

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

static const char *title_of(const sf_sweep *s, const sf_job *first, sf_arena *arena)
{
    const sf_cluster *c = &first->cluster;
    int world = sf_job_world_size(first);
    const char *what = s->job->n_files > 1 ? sf_arena_printf(arena, "%d jobs", s->job->n_files)
                       : s->job->n_files == 1 ? stem_of(s->job->files[0], arena) : first->model.name;
    if (c->gpu.is_host)
        return sf_arena_printf(arena, "%s on %d rank%s of this machine", what, world, world == 1 ? "" : "s");
    if (c->nodes > 1)
        return sf_arena_printf(arena, "%s on %lld x %lld %s", what, (long long)c->nodes, (long long)c->gpus_per_node, c->gpu.name);
    return sf_arena_printf(arena, "%s on %lld x %s", what, (long long)c->gpus_per_node, c->gpu.name);
}

/* ---- entries ---- */

static void tell(const sf_report_entry *e, int number)
{
    fprintf(stderr, "[%d] %s: ", number, e->title);
    if (e->failure != NULL)
        fprintf(stderr, "%s\n", e->failure);
    else if (!e->measured->fits)
        fprintf(stderr, "does not fit\n");
    else
        fprintf(stderr, "step %s predicted, %s measured; peak %s\n",
                e->predicted->time.step_s > 0 ? sf_seconds_text(e->predicted->time.step_s).text : "not",
                sf_seconds_text(e->measured->time.step_s).text, sf_bytes_text(e->measured->memory.peak_allocated_bytes).text);
}

/* Other work on the machine only makes a step longer, so that of several runs the fastest is the truest. */
static void run_again(const sf_sweep *s, const sf_validation *v, sf_report_entry *e, int number, sf_arena *arena)
{
    for (int round = 2; s->best && round <= s->rounds && e->measured != NULL && v->measured == NULL; round++) {
        double predicted = e->predicted->time.step_s, measured = e->measured->time.step_s;
        if (!(predicted > 0 && (predicted - measured) / measured < -s->time_bar))
            return;
        fprintf(stderr, "[%d] %s: %s is slower than predicted; run %d of at most %d ...\n", number, e->title, sf_seconds_text(measured).text,
                round, s->rounds);
        sf_report_entry again = { .name = sf_arena_printf(arena, "%s-%d", e->name, round), .title = e->title };
        sf_validate(v, &again, arena);
        bool faster = again.measured != NULL && again.measured->time.step_s > 0 && again.measured->time.step_s < measured;
        if (faster) {
            const sf_outcome *kept = again.measured;
            again.measured = e->measured;
            e->measured = kept;
        }
        sf_validation_release(&again);
    }
}

static int one(const sf_sweep *s, const char *path, const choice *c, sf_report *report, sf_arena *arena)
{
    sf_override overrides[SF_MOST_OVERRIDES + 3];
    size_t n = s->job->n_overrides;
    const char *stem = path == NULL ? NULL : stem_of(path, arena), *name = c->title != NULL ? c->title : c->strategy != NULL ? c->strategy : stem != NULL ? stem : "job";
    int number = (int)report->n_entries + 1;

    memcpy(overrides, s->job->overrides, n * sizeof *overrides);
    if (c->strategy != NULL)
        overrides[n++] = (sf_override){ "strategy.name", c->strategy };
    if (c->framework != NULL)
        overrides[n++] = (sf_override){ "framework", c->framework };
    if (c->set.path != NULL)
        overrides[n++] = c->set;
    if (c->strategy != NULL && s->job->n_files > 1)
        name = sf_arena_printf(arena, "%s, %s", name, stem);
    sf_report_entry *e = sf_report_add(report, arena, name);
    e->name = file_name(name, arena);
    const char *measured = number <= s->n_measured ? s->measured[number - 1] : NULL;
    if (s->run)
        fprintf(stderr, "[%d] %s: predicting and %s ...\n", number, name, measured != NULL ? "reading" : "running");
    sf_validation v = { .file = path, .overrides = overrides, .n_overrides = n, .profile = s->profile, .directory = s->directory,
                        .measured = measured, .run = s->run, .best = s->best };
    int code = sf_validate(&v, e, arena);
    if (s->run)
        run_again(s, &v, e, number, arena);
    if (s->run)
        tell(e, number);
    return code;
}

static json_t *provenance(const sf_sweep *s, int argc, char **argv)
{
    json_t *o = sf_provenance();
    sf_text line = { 0 };
    for (int i = 0; i < argc; i++)
        sf_text_add(&line, "%s%s", i == 0 ? "" : " ", argv[i]);
    json_object_set_new(o, "command", json_string(sf_text_str(&line)));
    if (s->run)
        json_object_set_new(o, "step_time", json_string(s->best ? "of the fastest step" : "median of the steps after the first"));
    if (s->run && s->best)
        json_object_set_new(o, "runs_at_most", json_integer(s->rounds));
    sf_text_free(&line);
    return o;
}

sf_status sf_sweep_run(const sf_sweep *s, int argc, char **argv, sf_arena *arena, sf_report *report, int *code)
{
    *code = SF_EXIT_DONE;
    report->time_bar = s->time_bar;
    report->memory_bar = 0.10;
    for (int i = 0; i < sf_job_options_count(s->job); i++) {
        sf_job base;
        choices list;
        SF_TRY(sf_job_options_read(s->job, i, arena, &base));
        choose(s, &base, &list);
        tell_apart(&list, arena);
        if (report->title == NULL)
            report->title = title_of(s, &base, arena);
        sf_job_close(&base);
        for (int k = 0; k < list.count; k++) {
            int worst = one(s, s->job->n_files == 0 ? NULL : s->job->files[i], &list.items[k], report, arena);
            *code = worst > *code ? worst : *code;
        }
    }
    if (s->n_measured > (int)report->n_entries)
        return SF_FAIL(SF_EINVAL, "--measured is given %d times for %zu jobs and strategies", s->n_measured, report->n_entries);
    report->provenance = provenance(s, argc, argv);
    sf_report_join(report, arena);
    return SF_SUCCESS;
}

void sf_sweep_release(sf_report *report)
{
    for (size_t i = 0; i < report->n_entries; i++)
        sf_validation_release(&report->entries[i]);
    json_decref((json_t *)(uintptr_t)report->provenance);
}

/* ---- printing ---- */

void sf_sweep_print(const sf_report *report, bool details, const char *note, const char *directory, sf_arena *arena)
{
    sf_text text = { 0 };
    sf_table t;
    sf_verdict v;
    bool colour = sf_colour_wanted(stdout);

    sf_report_judge(report, arena, &v);
    sf_report_summary(report, arena, &t);
    t.title = report->title;
    sf_table_text(&t, colour, &text);
    for (size_t i = 0; details && i < report->n_entries; i++)
        for (int s = 0; s < SF_SECTION_COUNT; s++) {
            sf_compare_table(&report->entries[i].comparison, (sf_section)s, arena, &t);
            t.title = sf_arena_printf(arena, "\n%s: %s", report->entries[i].title, t.title);
            if (t.n_rows > 0)
                sf_table_text(&t, colour, &text);
        }
    for (size_t i = 0; i < report->n_parts; i++) {
        sf_text_add(&text, "\n%s\n", report->parts[i].title);
        sf_table_text(report->parts[i].table, colour, &text);
    }
    printf("%s\n", sf_text_str(&text));
    for (size_t i = 0; i < v.n_points; i++)
        printf("%s\n", v.points[i]);
    if (note != NULL)
        printf("%s\n", note);
    printf("%s.", v.headline);
    if (directory != NULL)
        printf(" Report: %s/report.html", directory);
    printf("\n");
    sf_text_free(&text);
}
