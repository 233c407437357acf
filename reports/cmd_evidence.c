/* `shardfit evidence FILE`: predicts published runs and reports the errors. */
#include <argp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/base/text.h"
#include "model/base/units.h"
#include "reports/commands.h"
#include "reports/evidence.h"
#include "reports/process.h"

enum { KEY_CSV = 3000, KEY_PLOT, KEY_WORST, KEY_JOBS };

typedef struct {
    const char *file, *csv, *plot, *jobs;
    bool json;
    int worst;
} arguments;

static const struct argp_option options[] = {
    { "json", 'j', 0, 0, "print as JSON", 0 },
    { "csv", KEY_CSV, "FILE", 0, "write every row: published, predicted, or why it was skipped", 0 },
    { "jobs", KEY_JOBS, "FILE.jsonl", 0, "write each row as the JOB that was predicted, with what was published", 0 },
    { "plot", KEY_PLOT, "FILE.svg", 0, "draw predicted against published tokens/s, with the identity line and a band of 10 %", 0 },
    { "worst", KEY_WORST, "N", 0, "print the N rows with the largest errors (default: 5)", 0 },
    { 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    arguments *a = state->input;
    char *end;
    switch (key) {
    case 'j': a->json = true; return 0;
    case KEY_CSV: a->csv = arg; return 0;
    case KEY_PLOT: a->plot = arg; return 0;
    case KEY_JOBS: a->jobs = arg; return 0;
    case KEY_WORST:
        a->worst = (int)strtol(arg, &end, 10);
        if (end == arg || *end != '\0' || a->worst < 0)
            argp_error(state, "--worst is a number of rows, not '%s'", arg);
        return 0;
    case ARGP_KEY_ARG:
        if (a->file != NULL)
            argp_error(state, "one file at a time");
        a->file = arg;
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "name a table of published runs (.csv) or jobs with what was observed (.jsonl)"); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const char *const quantity_names[] = { "time", "memory" };

static const char *const column_names[] = { "source", "strategy", "gpu" };

/* The distinct values of a column, in order of appearance. */
static size_t distinct(const sf_evidence *e, sf_evidence_column column, const char **out)
{
    size_t n = 0;
    for (size_t i = 0; i < e->n; i++) {
        size_t k = 0;
        while (k < n && strcmp(out[k], sf_evidence_value(&e->rows[i], column)) != 0)
            k++;
        if (k == n)
            out[n++] = sf_evidence_value(&e->rows[i], column);
    }
    return n;
}

static void print_score(const char *name, const char *quantity, const sf_evidence_score *s)
{
    if (s->rows > 0)
        printf("  %-28.28s %-7s %6zu %7zu %+9.1f %% %8.1f %% %8.1f %%\n", name, quantity, s->rows, s->groups, 100 * s->signed_median, 100 * s->median, 100 * s->p90);
}

typedef struct {
    const sf_evidence_row *row;
    sf_evidence_quantity q;
    double error;
} bad_row;

static int by_error(const void *a, const void *b)
{
    double x = fabs(((const bad_row *)a)->error), y = fabs(((const bad_row *)b)->error);
    return x > y ? -1 : x < y;
}

static void print_worst(const sf_evidence *e, int most, sf_arena *arena)
{
    bad_row *list = SF_NEW_ARRAY(arena, bad_row, 2 * e->n + 1);
    size_t n = 0;
    for (size_t i = 0; i < e->n; i++)
        for (int q = 0; q < SF_EVIDENCE_QUANTITIES; q++)
            if (!isnan(sf_evidence_error(&e->rows[i], (sf_evidence_quantity)q)))
                list[n++] = (bad_row){ &e->rows[i], (sf_evidence_quantity)q, sf_evidence_error(&e->rows[i], (sf_evidence_quantity)q) };
    qsort(list, n, sizeof *list, by_error);
    if (most > 0 && n > 0)
        printf("\nWorst rows\n");
    for (size_t i = 0; i < n && i < (size_t)most; i++)
        printf("  %-10s %-6s %+7.1f %%  %s, %s, %s\n", list[i].row->id, quantity_names[list[i].q], 100 * list[i].error, list[i].row->model, list[i].row->strategy, list[i].row->gpu);
    for (size_t i = 0, shown = 0; i < e->n; i++) {
        const sf_evidence_row *r = &e->rows[i];
        if (r->skipped != NULL || r->fits < 0 || r->fits == r->predicted_fits)
            continue;
        if (shown++ == 0)
            printf("\nWrong verdicts\n");
        printf("  %-10s %s, predicted to %s: %s, %s, %s\n", r->id, r->fits ? "ran" : "ran out of memory", r->predicted_fits ? "fit" : "run out", r->model, r->strategy, r->gpu);
    }
}

static void print_skipped(const sf_evidence *e, sf_arena *arena)
{
    const char **why = SF_NEW_ARRAY(arena, const char *, e->n + 1);
    size_t *count = SF_NEW_ARRAY(arena, size_t, e->n + 1), n = 0, all = 0;
    for (size_t i = 0; i < e->n; i++) {
        if (e->rows[i].skipped == NULL)
            continue;
        const char *colon = strncmp(e->rows[i].skipped, e->rows[i].id, strlen(e->rows[i].id)) == 0 ? e->rows[i].skipped + strlen(e->rows[i].id) + 2 : e->rows[i].skipped;
        size_t k = 0;
        while (k < n && strcmp(why[k], colon) != 0)
            k++;
        if (k == n)
            why[n++] = colon;
        count[k]++;
        all++;
    }
    printf("\nSkipped: %zu of %zu rows\n", all, e->n);
    for (size_t k = 0; k < n; k++)
        printf("  %5zu  %s\n", count[k], why[k]);
}

static void print_text(const arguments *a, const sf_evidence *e, sf_arena *arena)
{
    const char **values = SF_NEW_ARRAY(arena, const char *, e->n + 1);
    size_t rows[2], right[2];
    printf("%s: predicted against published, errors by (source, model, GPU, strategy) group\n", a->file);
    for (int c = 0; c < SF_EVIDENCE_COLUMNS; c++) {
        size_t n = distinct(e, (sf_evidence_column)c, values);
        printf("\n  %-28s quantity  rows  groups  signed med.     median       p90\n", column_names[c]);
        for (int q = 0; q < SF_EVIDENCE_QUANTITIES; q++)
            for (size_t i = 0; i < n; i++) {
                sf_evidence_score s = sf_evidence_scored(e, (sf_evidence_quantity)q, (sf_evidence_column)c, values[i], arena);
                print_score(values[i], quantity_names[q], &s);
            }
    }
    printf("\n");
    for (int q = 0; q < SF_EVIDENCE_QUANTITIES; q++) {
        sf_evidence_score s = sf_evidence_scored(e, (sf_evidence_quantity)q, SF_EVIDENCE_SOURCE, NULL, arena);
        print_score("all", quantity_names[q], &s);
    }
    sf_evidence_verdicts(e, rows, right);
    if (rows[0] + rows[1] > 0)
        printf("  %-28s verdict %6zu rows, %zu right: %zu of %zu that ran, %zu of %zu that ran out of memory\n", "all", rows[0] + rows[1], right[0] + right[1],
               right[1], rows[1], right[0], rows[0]);
    print_worst(e, a->worst, arena);
    print_skipped(e, arena);
}

static json_t *real_or_null(double x) { return isfinite(x) ? json_real(x) : json_null(); }

static json_t *score_json(const sf_evidence_score *s)
{
    return json_pack("{s:I, s:I, s:o, s:o, s:o}", "rows", (json_int_t)s->rows, "groups", (json_int_t)s->groups, "median", real_or_null(s->median), "p90",
                     real_or_null(s->p90), "signed_median", real_or_null(s->signed_median));
}

static json_t *columns_json(const sf_evidence *e, sf_arena *arena)
{
    const char **values = SF_NEW_ARRAY(arena, const char *, e->n + 1);
    json_t *columns = json_object();
    for (int c = 0; c < SF_EVIDENCE_COLUMNS; c++) {
        json_t *of = json_object();
        size_t n = distinct(e, (sf_evidence_column)c, values);
        for (size_t i = 0; i < n; i++) {
            json_t *scores = json_object();
            for (int q = 0; q < SF_EVIDENCE_QUANTITIES; q++) {
                sf_evidence_score s = sf_evidence_scored(e, (sf_evidence_quantity)q, (sf_evidence_column)c, values[i], arena);
                if (s.rows > 0)
                    json_object_set_new(scores, quantity_names[q], score_json(&s));
            }
            json_object_set_new(of, values[i], scores);
        }
        json_object_set_new(columns, column_names[c], of);
    }
    return columns;
}

static void print_json(const sf_evidence *e, sf_arena *arena)
{
    json_t *quantities = json_object(), *rows = json_array();
    size_t of[2], good[2];
    for (int q = 0; q < SF_EVIDENCE_QUANTITIES; q++) {
        sf_evidence_score s = sf_evidence_scored(e, (sf_evidence_quantity)q, SF_EVIDENCE_SOURCE, NULL, arena);
        json_object_set_new(quantities, quantity_names[q], score_json(&s));
    }
    sf_evidence_verdicts(e, of, good);
    size_t n = of[0] + of[1], right = good[0] + good[1];
    json_object_set_new(quantities, "verdict",
                        json_pack("{s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:o, s:o}", "rows", (json_int_t)n, "right", (json_int_t)right, "share",
                                  real_or_null(n > 0 ? (double)right / (double)n : NAN), "ran", (json_int_t)of[1], "ran_right", (json_int_t)good[1], "oom",
                                  (json_int_t)of[0], "oom_right", (json_int_t)good[0],
                                  /* of errors that are 0 or 1 */
                                  "median", json_real(2 * (n - right) > n), "p90", json_real(10 * (n - right) > n)));
    for (size_t i = 0; i < e->n; i++) {
        const sf_evidence_row *r = &e->rows[i];
        json_array_append_new(rows, json_pack("{s:s, s:s?, s:f, s:f, s:f, s:f, s:i, s:i}", "id", r->id, "skipped", r->skipped, "tokens_per_s", r->tokens_per_s,
                                              "predicted_tokens_per_s", r->predicted_tokens_per_s, "memory_bytes", r->memory_bytes, "predicted_memory_bytes",
                                              r->predicted_memory_bytes, "fits", r->fits, "predicted_fits", r->predicted_fits));
    }
    json_t *out = json_pack("{s:o, s:o, s:o}", "quantities", quantities, "by", columns_json(e, arena), "rows", rows);
    json_dumpf(out, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(10));
    putchar('\n');
    json_decref(out);
}

static void add_quoted(sf_text *t, const char *text)
{
    sf_text_append(t, "\"", 1);
    for (; *text != '\0'; text++)
        sf_text_add(t, *text == '"' ? "\"\"" : "%c", *text);
    sf_text_append(t, "\"", 1);
}

static sf_status write_csv(const char *path, const sf_evidence *e)
{
    sf_text t = { 0 };
    sf_text_add(&t, "id,source,model,gpu,strategy,tokens_per_s,predicted_tokens_per_s,memory_kind,memory_bytes,predicted_memory_bytes,fits,predicted_fits,skipped\n");
    for (size_t i = 0; i < e->n; i++) {
        const sf_evidence_row *r = &e->rows[i];
        for (const char *const *f = (const char *const[]){ r->id, r->source, r->model, r->gpu, r->strategy, NULL }; *f != NULL; f++) {
            add_quoted(&t, *f);
            sf_text_add(&t, ",");
        }
        sf_text_add(&t, "%.10g,%.10g,", r->tokens_per_s, r->predicted_tokens_per_s);
        add_quoted(&t, r->memory_kind);
        sf_text_add(&t, ",%.0f,%.0f,%d,%d,", r->memory_bytes, r->predicted_memory_bytes, r->fits, r->predicted_fits);
        add_quoted(&t, r->skipped == NULL ? "" : r->skipped);
        sf_text_add(&t, "\n");
    }
    sf_status st = sf_file_write(path, sf_text_str(&t), t.len);
    sf_text_free(&t);
    return st;
}

/* Readable by `shardfit evidence` again. */
static sf_status write_jobs(const char *path, const sf_evidence *e)
{
    sf_text t = { 0 };
    for (size_t i = 0; i < e->n; i++) {
        const sf_evidence_row *r = &e->rows[i];
        if (r->job == NULL)
            continue;
        json_t *truth = json_object(), *line = json_pack("{s:s, s:o, s:o}", "id", r->id, "job", json_loads(r->job, 0, NULL), "truth", truth);
        if (r->fits >= 0)
            json_object_set_new(truth, "fits", json_boolean(r->fits));
        if (r->tokens_per_s > 0)
            json_object_set_new(truth, "tokens_per_s", json_real(r->tokens_per_s));
        if (r->memory_bytes > 0) {
            json_object_set_new(truth, "peak_mem_gib", json_real(r->memory_bytes / (double)SF_GIB));
            json_object_set_new(truth, "mem_kind", json_string(r->memory_kind));
        }
        char *text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(10));
        sf_text_add(&t, "%s\n", text);
        free(text);
        json_decref(line);
    }
    sf_status st = sf_file_write(path, sf_text_str(&t), t.len);
    sf_text_free(&t);
    return st;
}

/* gnuplot reads its data from the script itself. */
static sf_status draw(const char *path, const sf_evidence *e, sf_arena *arena)
{
    sf_text t = { 0 };
    const char *script = sf_arena_printf(arena, "%s.gp", path);
    sf_process_end end = { 0 };
    sf_text_add(&t, "set terminal svg size 800,600 font 'sans-serif,13' background 'white'\nset output '%s'\nset logscale xy\nset key left top\nset grid\n"
                    "set xlabel 'published tokens/s'\nset ylabel 'predicted tokens/s'\nset title 'Published runs: predicted against measured'\n$runs << EOD\n", path);
    for (size_t i = 0; i < e->n; i++)
        if (!isnan(sf_evidence_error(&e->rows[i], SF_EVIDENCE_TIME)))
            sf_text_add(&t, "%.6g %.6g\n", e->rows[i].tokens_per_s, e->rows[i].predicted_tokens_per_s);
    sf_text_add(&t, "EOD\nplot $runs using 1:2 with points pt 7 ps 0.5 lc rgb '#0072B2' title 'runs', x with lines lc rgb 'black' title 'equal', "
                    "1.1*x with lines dt 2 lc rgb '#999999' title '+-10 %%', 0.9*x with lines dt 2 lc rgb '#999999' notitle\n");
    sf_status st = sf_file_write(script, sf_text_str(&t), t.len);
    sf_text_free(&t);
    SF_TRY(st);
    const char *const argv[] = { "gnuplot", script, NULL };
    SF_TRY(sf_process_run(&(sf_process){ .argv = argv, .timeout_s = 60 }, &end));
    remove(script);
    return end.exit_code == 0 ? SF_SUCCESS : SF_FAIL(SF_EIO, "gnuplot ended with exit code %d while it drew %s", end.exit_code, path);
}

int sf_cmd_evidence(int argc, char **argv)
{
    static const struct argp parser = { options, parse, "FILE.csv|FILE.jsonl",
                                        "Predicts published runs and prints the errors by source and quantity: tokens/s, peak memory of the published kind, and "
                                        "whether it fits. Rows that say too little, or whose software has no model, are skipped with the reason.", 0, 0, 0 };
    arguments a = { .worst = 5 };
    sf_arena arena = { 0 };
    sf_evidence e;

    argp_parse(&parser, argc, argv, 0, 0, &a);
    sf_status st = sf_evidence_read(a.file, &arena, &e);
    if (st.code == SF_OK && a.json)
        print_json(&e, &arena);
    else if (st.code == SF_OK)
        print_text(&a, &e, &arena);
    if (st.code == SF_OK && a.csv != NULL)
        st = write_csv(a.csv, &e);
    if (st.code == SF_OK && a.jobs != NULL)
        st = write_jobs(a.jobs, &e);
    if (st.code == SF_OK && a.plot != NULL)
        st = draw(a.plot, &e, &arena);
    sf_arena_free(&arena);
    return st.code == SF_OK ? SF_EXIT_DONE : sf_cmd_fail(st);
}
