#include "reports/validate.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/program/timeline.h"
#include "model/strategy/lower.h"
#include "reports/commands.h"
#include "reports/load_profile.h"
#include "reports/process.h"
#include "sim/predict.h"

enum { MOST_ARGUMENTS = 2 * SF_MOST_OVERRIDES + 16, LOG_BYTES = 16 << 20 };

/* ---- predicted ---- */

static sf_status predict(const sf_validation *v, const sf_job *job, sf_arena *arena, sf_outcome *out)
{
    const sf_program *program;
    sf_profile profile = { 0 };
    bool have;
    SF_TRY(sf_lower(job, arena, &program));
    SF_TRY(sf_load_profile(v->profile, job, arena, &profile, &have));
    sf_predict_options how = { .profile = have ? &profile : NULL };
    sf_status st = sf_predict(job, program, &how, arena, out);
    json_decref(profile.provenance);
    return st;
}

/* ---- measured ---- */

/* Hold a prediction against the fastest step: what else the machine had to do only adds time. The detail's
 * spans are those of that step. */
static void take_fastest_step(sf_outcome *m)
{
    if (m->n_spans == 0 || !(m->time.step_s_min > 0))
        return;
    sf_timeline_summarise(m->spans, m->n_spans, m);
    m->time.step_s = m->time.step_s_min;
}

static sf_status read_measured(const char *path, bool best, sf_report_entry *entry, sf_arena *arena)
{
    json_error_t error;
    sf_outcome *m = SF_NEW(arena, sf_outcome);
    json_t *json = json_load_file(path, 0, &error);
    if (json == NULL)
        return SF_FAIL(SF_EPARSE, "%s:%d:%d: %s", path, error.line, error.column, error.text);
    sf_status st = sf_outcome_from_json(json, arena, m);
    if (st.code != SF_OK) {
        json_decref(json);
        return sf_status_prefix(st, "%s", path);
    }
    m->provenance = json_incref(m->provenance); /* sf_validation_release gives it back */
    json_decref(json);
    if (best)
        take_fastest_step(m);
    entry->measured = m;
    return SF_SUCCESS;
}

/* The last thing that the run complained of. */
static const char *last_complaint(const char *log, sf_arena *arena)
{
    char *text, *last = NULL;
    if (sf_file_read(log, LOG_BYTES, arena, &text, NULL).code != SF_OK)
        return NULL;
    for (char *at = strstr(text, "shardfit: "); at != NULL; at = strstr(at + 1, "shardfit: "))
        if (strncmp(at, "shardfit: measured until then", 29) != 0)
            last = at + strlen("shardfit: ");
    if (last != NULL)
        last[strcspn(last, "\n")] = '\0';
    return last;
}

static sf_status run(const sf_validation *v, const char *name, sf_report_entry *entry, int *code, sf_arena *arena)
{
    char self[4096];
    const char *argv[MOST_ARGUMENTS];
    size_t n = 0;
    sf_process_end end;
    const char *log = sf_arena_printf(arena, "%s/runs/%s.log", v->directory, name);
    const char *output = sf_arena_printf(arena, "%s/runs/%s.json", v->directory, name);

    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    if (len < 0)
        return SF_FAIL(SF_EIO, "cannot find this program's own file to start a run");
    self[len] = '\0';
    SF_TRY(sf_dir_make(sf_arena_printf(arena, "%s/runs", v->directory)));
    unlink(output); /* not to be taken for this run's, should it fail */
    argv[n++] = self;
    argv[n++] = "run";
    if (v->file != NULL)
        argv[n++] = v->file;
    for (size_t i = 0; i < v->n_overrides; i++) {
        argv[n++] = "--set";
        argv[n++] = sf_arena_printf(arena, "%s=%s", v->overrides[i].path, v->overrides[i].value);
    }
    argv[n++] = "--detail";
    argv[n++] = "--output";
    argv[n++] = output;
    argv[n] = NULL;
    SF_TRY(sf_process_run(&(sf_process){ .argv = argv, .stdout_path = log, .stderr_path = log }, &end));
    if (end.exit_code == SF_EXIT_DONE || end.exit_code == SF_EXIT_NO)
        return read_measured(output, v->best, entry, arena);
    const char *why = last_complaint(log, arena);
    *code = end.exit_code == SF_EXIT_BAD_INPUT ? SF_EXIT_BAD_INPUT : SF_EXIT_RUN_FAILED;
    entry->failure = sf_arena_printf(arena, "the run failed: %s (its words are in %s)",
                                     why != NULL ? why : end.signal != 0 ? strsignal(end.signal) : "no message", log);
    return SF_SUCCESS;
}

static int failed(sf_report_entry *entry, sf_status st, sf_arena *arena)
{
    entry->failure = sf_arena_strdup(arena, st.msg);
    return sf_cmd_code(st);
}

int sf_validate(const sf_validation *v, sf_report_entry *entry, sf_arena *arena)
{
    sf_job *job = SF_NEW(arena, sf_job);
    sf_outcome *p = SF_NEW(arena, sf_outcome);
    int code = SF_EXIT_DONE;

    sf_status st = sf_job_read(v->file, v->overrides, v->n_overrides, arena, job);
    if (st.code != SF_OK)
        return failed(entry, st, arena);
    entry->job = sf_job_to_json(job);
    st = predict(v, job, arena, p);
    if (st.code == SF_OK) {
        entry->predicted = p;
        if (v->run && v->measured != NULL)
            st = read_measured(v->measured, v->best, entry, arena);
        else if (v->run)
            st = run(v, entry->name, entry, &code, arena);
    }
    sf_job_close(job);
    return st.code == SF_OK ? code : failed(entry, st, arena);
}

void sf_validation_release(sf_report_entry *entry)
{
    json_decref(entry->job);
    if (entry->measured != NULL)
        json_decref(entry->measured->provenance);
}
