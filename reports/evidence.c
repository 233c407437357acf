#define _GNU_SOURCE /* strcasestr */
#include "reports/evidence.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/base/text.h"
#include "model/base/units.h"
#include "model/cost/replay.h"
#include "model/desc/job.h"
#include "model/strategy/lower.h"
#include "reports/evidence_row.h"
#include "sim/predict.h"

/* ---- one prediction ---- */

/* On a device without a limit, so that the time is known even where memory would not do. */
static sf_status predict(const json_t *job_json, const char *place, sf_arena *arena, sf_job *job, const sf_program **lowered, sf_outcome *out)
{
    const sf_program *program = NULL;
    const sf_override unlimited = { "cluster.device_memory_gib", "1000000" };
    SF_TRY(sf_job_from_json(job_json, place, &unlimited, 1, arena, job));
    sf_status st = sf_lower(job, arena, &program);
    if (st.code == SF_OK)
        st = sf_predict(job, program, &(sf_predict_options){ 0 }, arena, out);
    if (st.code != SF_OK)
        sf_job_close(job);
    *lowered = program;
    return st;
}

static double memory_of(const sf_outcome *o, const char *kind)
{
    if (strcasestr(kind, "reserved") != NULL)
        return (double)o->memory.peak_reserved_bytes;
    if (strcasestr(kind, "alloc") != NULL)
        return (double)o->memory.peak_allocated_bytes;
    return (double)o->memory.device_used_bytes;
}

static void predict_row(sf_evidence_row *row, const json_t *job_json, double capacity_gib, sf_arena *keep)
{
    sf_arena scratch = { 0 };
    sf_job job;
    sf_outcome out;
    const sf_program *program = NULL;
    char *text = json_dumps(job_json, JSON_COMPACT);
    row->job = text != NULL ? sf_arena_strdup(keep, text) : NULL;
    free(text);
    sf_status st = predict(job_json, row->id, &scratch, &job, &program, &out);
    if (st.code != SF_OK) {
        row->skipped = sf_arena_strdup(keep, st.msg);
    } else {
        uint64_t capacity = job.cluster.gpu.usable_bytes;
        if (capacity_gib > 0 && fabs(capacity_gib * (double)SF_GIB / (double)capacity - 1) < 0.2)
            capacity = (uint64_t)(capacity_gib * (double)SF_GIB);
        row->gpu = sf_arena_strdup(keep, job.cluster.gpu.name);
        row->predicted_tokens_per_s = out.time.step_s > 0 ? (double)out.tokens_per_step / out.time.step_s : 0;
        /* on the card as it is, where the allocator gives its cache back before it fails */
        sf_outcome real = out;
        sf_replay(&job, program, capacity, &scratch, &real);
        row->predicted_fits = real.fits;
        row->predicted_memory_bytes = memory_of(real.fits ? &real : &out, row->memory_kind);
        sf_job_close(&job);
    }
    sf_arena_free(&scratch);
}

/* ---- tables ---- */

static const char *source_of(sf_arena *arena, const char *id)
{
    return sf_arena_strndup(arena, id, strcspn(id, "-"));
}

static void add_run(const sf_csv *csv, size_t i, sf_arena *arena, sf_evidence *e)
{
    sf_run_row r = { csv, i };
    json_t *job = NULL;
    const char *outcome = sf_csv_field(csv, i, "outcome"), *memory = sf_csv_field(csv, i, "peak_mem_gib");
    sf_evidence_row row = { .id = sf_csv_field(csv, i, "id"), .model = sf_csv_field(csv, i, "model_name"), .gpu = sf_csv_field(csv, i, "gpu"),
                            .strategy = sf_csv_field(csv, i, "strategy"), .memory_kind = sf_csv_field(csv, i, "mem_kind"), .predicted_fits = -1 };
    row.source = source_of(arena, row.id);
    row.tokens_per_s = sf_run_tokens_per_s(&r);
    row.fits = strcmp(outcome, "oom") == 0 ? 0 : strcmp(outcome, "ok") == 0 ? 1 : -1;
    row.memory_bytes = row.fits != 0 && memory[0] != '\0' ? strtod(memory, NULL) * (double)SF_GIB : 0;
    /* whether activations were kept or recomputed decides memory: unstated, memory and verdict are not judged */
    if (sf_csv_field(csv, i, "act_ckpt")[0] == '\0') {
        row.memory_bytes = 0;
        row.fits = -1;
    }
    row.skipped = sf_run_to_job(&r, arena, &job);
    if (row.skipped == NULL)
        predict_row(&row, job, 0, arena);
    json_decref(job);
    SF_PUSH(arena, e->rows, e->n, e->cap) = row;
}

static sf_status read_table(const char *path, sf_arena *arena, sf_evidence *e)
{
    sf_csv *csv = SF_NEW(arena, sf_csv);
    SF_TRY(sf_csv_read(path, arena, csv));
    for (const char *const *c = (const char *const[]){ "id", "strategy", "gpu", "n_gpus", "seq_len", NULL }; *c != NULL; c++)
        if (sf_csv_column(csv, *c) < 0)
            return SF_FAIL(SF_EPARSE, "%s: there is no column '%s'; the first line names the columns of the evidence", path, *c);
    for (size_t i = 0; i < csv->n_rows; i++)
        add_run(csv, i, arena, e);
    return SF_SUCCESS;
}

/* ---- jobs with what was observed ---- */

static void add_job(const json_t *line, size_t number, sf_arena *arena, sf_evidence *e)
{
    const json_t *job = json_object_get(line, "job"), *truth = json_object_get(line, "truth"), *fits = json_object_get(truth, "fits");
    const char *id = json_string_value(json_object_get(line, "id")), *kind = json_string_value(json_object_get(truth, "mem_kind"));
    double total = json_number_value(json_object_get(json_object_get(truth, "error_numbers"), "total_gib"));
    sf_evidence_row row = { .id = id != NULL ? sf_arena_strdup(arena, id) : sf_arena_printf(arena, "line %zu", number), .source = "reports", .predicted_fits = -1 };
    const json_t *model = json_object_get(job, "model");
    row.model = sf_arena_strdup(arena, json_is_string(model) ? json_string_value(model) : row.id);
    row.gpu = "";
    const json_t *name = json_object_get(json_object_get(job, "strategy"), "name");
    row.strategy = name != NULL ? sf_arena_strdup(arena, json_string_value(name)) : "";
    row.memory_kind = kind != NULL ? sf_arena_strdup(arena, kind) : "";
    row.fits = json_is_boolean(fits) ? json_is_true(fits) : -1;
    row.tokens_per_s = json_number_value(json_object_get(truth, "tokens_per_s"));
    row.memory_bytes = row.fits == 1 ? json_number_value(json_object_get(truth, "peak_mem_gib")) * (double)SF_GIB : 0;
    if (!json_is_object(job))
        row.skipped = "there is no \"job\" object";
    else
        predict_row(&row, job, total, arena);
    SF_PUSH(arena, e->rows, e->n, e->cap) = row;
}

static sf_status read_lines(const char *path, sf_arena *arena, sf_evidence *e)
{
    enum { MOST_BYTES = 64 << 20 };
    char *text, *state = NULL;
    size_t number = 0;
    SF_TRY(sf_file_read(path, MOST_BYTES, arena, &text, NULL));
    for (char *line = strtok_r(text, "\n", &state); line != NULL; line = strtok_r(NULL, "\n", &state)) {
        json_error_t error;
        json_t *value = json_loads(line, 0, &error);
        number++;
        if (value == NULL)
            return SF_FAIL(SF_EPARSE, "%s:%zu:%d: %s", path, number, error.column, error.text);
        add_job(value, number, arena, e);
        json_decref(value);
    }
    return SF_SUCCESS;
}

sf_status sf_evidence_read(const char *path, sf_arena *arena, sf_evidence *out)
{
    size_t n = strlen(path);
    *out = (sf_evidence){ 0 };
    return n > 6 && strcmp(path + n - 6, ".jsonl") == 0 ? read_lines(path, arena, out) : read_table(path, arena, out);
}

/* ---- scores ---- */

double sf_evidence_error(const sf_evidence_row *row, sf_evidence_quantity q)
{
    double seen = q == SF_EVIDENCE_TIME ? row->tokens_per_s : row->memory_bytes;
    double said = q == SF_EVIDENCE_TIME ? row->predicted_tokens_per_s : row->predicted_memory_bytes;
    return row->skipped == NULL && seen > 0 && said > 0 ? said / seen - 1 : NAN;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Linear between the two nearest. */
static double quantile(double *sorted, size_t n, double q)
{
    if (n == 0)
        return NAN;
    double at = q * (double)(n - 1);
    size_t i = (size_t)at;
    return i + 1 < n ? sorted[i] + (at - (double)i) * (sorted[i + 1] - sorted[i]) : sorted[i];
}

static bool same_group(const sf_evidence_row *a, const sf_evidence_row *b)
{
    return strcmp(a->source, b->source) == 0 && strcmp(a->model, b->model) == 0 && strcmp(a->gpu, b->gpu) == 0 && strcmp(a->strategy, b->strategy) == 0;
}

const char *sf_evidence_value(const sf_evidence_row *row, sf_evidence_column column)
{
    return column == SF_EVIDENCE_SOURCE ? row->source : column == SF_EVIDENCE_STRATEGY ? row->strategy : row->gpu;
}

sf_evidence_score sf_evidence_scored(const sf_evidence *e, sf_evidence_quantity q, sf_evidence_column column, const char *value, sf_arena *arena)
{
    double *medians = SF_NEW_ARRAY(arena, double, e->n + 1), *signs = SF_NEW_ARRAY(arena, double, e->n + 1), *one = SF_NEW_ARRAY(arena, double, e->n + 1);
    bool *done = SF_NEW_ARRAY(arena, bool, e->n + 1);
    sf_evidence_score s = { 0 };
    for (size_t i = 0; i < e->n; i++) {
        size_t n = 0;
        if (done[i] || isnan(sf_evidence_error(&e->rows[i], q)) || (value != NULL && strcmp(sf_evidence_value(&e->rows[i], column), value) != 0))
            continue;
        for (size_t k = i; k < e->n; k++)
            if (!done[k] && same_group(&e->rows[i], &e->rows[k]) && !isnan(sf_evidence_error(&e->rows[k], q))) {
                one[n++] = sf_evidence_error(&e->rows[k], q);
                done[k] = true;
            }
        qsort(one, n, sizeof *one, by_value);
        signs[s.groups] = quantile(one, n, 0.5);
        for (size_t k = 0; k < n; k++)
            one[k] = fabs(one[k]);
        qsort(one, n, sizeof *one, by_value);
        medians[s.groups++] = quantile(one, n, 0.5);
        s.rows += n;
    }
    qsort(medians, s.groups, sizeof *medians, by_value);
    qsort(signs, s.groups, sizeof *signs, by_value);
    s.median = quantile(medians, s.groups, 0.5);
    s.p90 = quantile(medians, s.groups, 0.9);
    s.signed_median = quantile(signs, s.groups, 0.5);
    return s;
}

void sf_evidence_verdicts(const sf_evidence *e, size_t rows[2], size_t right[2])
{
    rows[0] = rows[1] = right[0] = right[1] = 0;
    for (size_t i = 0; i < e->n; i++) {
        const sf_evidence_row *r = &e->rows[i];
        if (r->skipped != NULL || r->fits < 0 || r->predicted_fits < 0)
            continue;
        rows[r->fits]++;
        right[r->fits] += r->fits == r->predicted_fits;
    }
}
