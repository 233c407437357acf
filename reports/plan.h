/* reports/plan.h: which strategy, micro-batch, accumulation, recomputation and kernels are best for a model on given
 * GPUs, why the others are not, and what would make them fit.
 *
 * Space     Variants (plan_space.c) are rows of settings: a strategy with its knobs. Each is crossed with recomputation,
 *           attention, loss, optimizer and the reduction of gradients in every micro-step where the job does not state them, and with every micro-batch and accumulation
 *           that makes the stated global batch (without one: every micro-batch, accumulation as stated or 1). What the
 *           job states stays as it is.
 * Search    Closed forms (model/cost/form.h) give each candidate's exact peak and a lower bound of its step; those that
 *           fit are simulated in the order of the bound until no bound is better than the best simulated step.
 *           Nothing here knows what a strategy does.
 * Ranking   by tokens per second of all GPUs of the job.
 * Fits      the framework's memory model against the card. `fit_probability` comes from the error that the model had
 *           against measurements of that framework (data/memory_error.csv); negative where none are known yet.
 */
#ifndef SF_REPORTS_PLAN_H
#define SF_REPORTS_PLAN_H

#include <jansson.h>

#include "model/cost/profile.h"
#include "model/desc/job.h"
#include "model/program/outcome.h"
#include "reports/job_options.h"
#include "reports/table.h"

typedef struct {
    const char *framework, *strategy;
    const char *title;    /* "fsdp, shard_grad_op"                                      */
    const char *settings; /* "strategy.sharding=shard_grad_op ...": paths and values     */
    int least_nodes;      /* makes sense from so many nodes on                          */
} sf_planner_variant;

extern const sf_planner_variant sf_planner_variants[];
extern const size_t sf_planner_variant_count;

enum { SF_PLANNER_MOST_CHOICES = 8 };

typedef struct {
    const sf_job_options *job; /* its file `file`, and options                              */
    int file;
    const sf_override *extra;  /* on top of those (the reverse questions vary them)         */
    size_t n_extra;
    int64_t optimizers[SF_PLANNER_MOST_CHOICES]; /* allowed instead of the job's; none: the job's */
    int n_optimizers;
    const sf_profile *profile; /* of this machine, for gpu host                             */
    double price_per_gpu_hour; /* 0: not given                                              */
    bool only_fits;            /* no times, and only the leanest kernels: does anything fit? */
    bool device_only;          /* nothing may lie in host memory                            */
    const sf_planner_variant *only; /* NULL: all that are left open                            */
    bool no_remedies;
} sf_planner_ask;

typedef enum { SF_PLANNER_OK, SF_PLANNER_TIGHT, SF_PLANNER_OOM } sf_planner_band;

/* The best of a variant; what does not fit has its leanest configuration. */
typedef struct {
    const sf_planner_variant *variant;
    bool ranked;               /* it fits, and `outcome` is simulated                       */
    const char *reason;        /* why it is not the winner; NULL for the winner             */
    const char *remedy;        /* the cheapest change that makes it fit; NULL: none, or it fits */
    bool has_job;              /* false: refused                                            */
    sf_job job;
    sf_outcome outcome;
    double tokens_per_s, dollars_per_gtoken; /* negative: not known                        */
    sf_planner_band band;
    double fit_probability;    /* negative: not known                                       */
    size_t candidates, fitting;
    json_t *source;            /* of its jobs; released by sf_planner_close                    */
} sf_planner_entry;

/* A simulated candidate, for the plot of memory against speed. */
typedef struct {
    int entry;
    uint64_t device_bytes;
    double tokens_per_s;
    const char *what;
} sf_planner_point;

typedef struct {
    sf_job base;               /* the job as stated                                         */
    const char *title;         /* "llama-3.1-8b on 4 x A100 SXM4 40GB"                      */
    uint64_t capacity_bytes;
    sf_planner_entry *entries;    /* ranked ones first, fastest first                          */
    size_t n_entries, cap_entries, n_ranked;
    size_t candidates, fitting, simulated, structures;
    sf_planner_point *points;
    size_t n_points, cap_points;
    double seconds;            /* processor time of the search                              */
    const char **notes;        /* what was taken for granted                                */
    size_t n_notes, cap_notes;
} sf_planner;

sf_status sf_planner_make(const sf_planner_ask *ask, sf_arena *arena, sf_planner *out);
void sf_planner_close(sf_planner *plan);

/* "micro-batch 2 x 8, recompute full, flash, fused loss" of a planned job. */
const char *sf_planner_configuration(const sf_job *job, sf_arena *arena);
const char *sf_planner_band_name(sf_planner_band band);
const char *sf_planner_headline(const sf_planner *plan, sf_arena *arena);

/* ---- questions the other way round (plan_ask.c): each prints its answer ---- */
typedef struct {
    bool min_gpus, max_batch, max_seq_len, max_model;
    double finish_in_s, tokens; /* --gpus-to-finish-in, --tokens; 0: not asked              */
    const char *gpu_types;      /* --gpu-types A,B; NULL: the job's                         */
} sf_planner_questions;
sf_status sf_planner_answer(const sf_planner_ask *ask, const sf_planner_questions *questions, sf_arena *arena, json_t *into, sf_text *out, bool *found);

/* ---- the answer written (plan_write.c) ---- */
void sf_planner_table(const sf_planner *plan, sf_arena *arena, sf_table *out);
void sf_planner_losers(const sf_planner *plan, sf_arena *arena, sf_table *out);
json_t *sf_planner_to_json(const sf_planner *plan, sf_arena *arena);
/* DIR/plan.html, plan.md, plan.csv, plan.json, plots/pareto.*. `answers`: text of the reverse questions, or "". */
sf_status sf_planner_write(const sf_planner *plan, const char *answers, const char *dir, sf_arena *arena, const char **note);

#endif
