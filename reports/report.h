/* reports/report.h: predicted and (where there are) measured outcomes of several jobs, with the verdict
 * over them: the one input of tables, CSV, JSON, plots and HTML.
 *
 * A report without measurements compares strategies; with measurements it also judges the predictions:
 *   bytes   every exact row of the comparison must be equal
 *   time    |error| of the step time must not exceed time_bar
 */
#ifndef SF_REPORTS_REPORT_H
#define SF_REPORTS_REPORT_H

#include <jansson.h>

#include "reports/compare.h"

typedef struct {
    const char *name;            /* unique in the report; as a file name: letters, digits, - _ . */
    const char *title;           /* as printed: "fsdp", or "fsdp, tiny-llama"                    */
    json_t *job;                 /* borrowed; NULL: not known                                    */
    const sf_outcome *predicted; /* NULL: none                                                   */
    const sf_outcome *measured;  /* NULL: none                                                   */
    const char *failure;         /* why a side is missing, or NULL                               */
    sf_comparison comparison;    /* filled by sf_report_join                                     */
} sf_report_entry;

/* A table of its own and what it says. */
typedef struct {
    const char *title, *text;
    const sf_table *table;
} sf_report_part;

/* tokens/s of each entry over numbers of GPUs. */
enum { SF_REPORT_MOST_COUNTS = 16 };
typedef struct {
    int n_counts, counts[SF_REPORT_MOST_COUNTS];
    double *tokens_per_s;        /* entry * n_counts + count; negative: does not fit or cannot be  */
} sf_report_scaling;

typedef struct {
    const char *title;           /* "Predicted and measured: tiny-gpt2 on 2 ranks of this machine" */
    sf_report_entry *entries;
    size_t n_entries, cap_entries;
    double time_bar;             /* 0.10: ten percent                                              */
    double memory_bar;           /* of a framework's reserved memory: 0.10                         */
    const json_t *provenance;    /* object or NULL: host, versions, load, command                  */
    sf_report_part *parts;       /* further tables, in the order in which they are shown           */
    size_t n_parts, cap_parts;
    const sf_report_scaling *scaling; /* NULL: not known                                           */
} sf_report;

typedef struct {
    bool good;                   /* the answer of the command: exit 0 or 1       */
    const char *headline;        /* one sentence                                 */
    const char **points;         /* what it rests on, and what is wrong: one sentence each */
    size_t n_points, cap_points;
} sf_verdict;

sf_report_entry *sf_report_add(sf_report *report, sf_arena *arena, const char *name);
/* Compares each entry's two sides. Call after the last entry. */
void sf_report_join(sf_report *report, sf_arena *arena);
bool sf_report_measured(const sf_report *report); /* has any entry a measurement? */
void sf_report_judge(const sf_report *report, sf_arena *arena, sf_verdict *out);

/* The side to show where only one can be: what was measured, else what was predicted, else NULL. */
const sf_outcome *sf_report_shown(const sf_report_entry *entry);
/* Of the entries that fit: the fastest, the leanest (NULL: not known), and how many there are. */
void sf_report_rank(const sf_report *report, const sf_report_entry **fastest, const sf_report_entry **leanest, size_t *n_fit);

/* One row per entry: memory, communication, step time, tokens/s, verdict. */
void sf_report_summary(const sf_report *report, sf_arena *arena, sf_table *out);
/* Name and value of all that the report's provenance says, nested objects joined by dots. */
void sf_report_provenance(const sf_report *report, sf_arena *arena, sf_table *out);

/* {"schema": "shardfit-report-1", "verdict": .., "points": [..], "entries": [{"name", "predicted", "measured",
 * "errors": {..}}], "provenance"}. New reference. */
json_t *sf_report_to_json(const sf_report *report);
void sf_report_csv(const sf_report *report, sf_arena *arena, sf_text *out);
void sf_report_markdown(const sf_report *report, sf_arena *arena, sf_text *out); /* verdict and summary */

/* Writes DIR/report.html, report.md, compare.csv, report.json and plots/ (SVG, PNG, data, scripts). Without gnuplot
 * everything but the plots is written, and `*note` says what is missing and how to get it (else NULL). */
sf_status sf_report_write(const sf_report *report, const char *dir, sf_arena *arena, const char **note);

#endif
