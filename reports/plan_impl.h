/* reports/plan_impl.h: what plan.c, plan_remedy.c and plan_ask.c share. */
#ifndef SF_REPORTS_PLAN_IMPL_H
#define SF_REPORTS_PLAN_IMPL_H

#include "reports/plan.h"

/* The job of a variant, the ask's overrides and `more` on top. The caller closes it. */
sf_status sf_planner_read(const sf_planner_ask *ask, const sf_planner_variant *variant, const sf_override *more, size_t n_more, sf_arena *arena, sf_job *out);

/* Does the job, at its micro-batch and accumulation, fit its devices and hosts? Also fills memory in `out`. Scratch
 * is reset by the caller. */
sf_status sf_planner_probe(const sf_job *job, sf_arena *scratch, sf_outcome *out, bool *fits);

/* About what a deep job takes, if that is far beyond its device, from two shallow models of its width; else 0. Resets
 * the scratch. */
double sf_planner_far_too_large(const sf_job *job, sf_arena *scratch);

/* Bytes of host memory of a node: 0: not known. */
uint64_t sf_planner_host_bytes(const sf_job *job);

/* In words, the cheapest change under which `job` (which does not fit) fits; NULL: none of those known. */
const char *sf_planner_remedy(const sf_planner_ask *ask, const sf_planner_variant *variant, const sf_job *job, sf_arena *arena);

const char *sf_planner_loss_name(int64_t loss);

/* Is the variant among those that the ask leaves open? */
bool sf_planner_wanted(const sf_planner_ask *ask, const sf_job *base, const sf_planner_variant *variant);

/* DIR/pareto.svg, -narrow.svg, .png; *drawn: there was something to draw. Errors as sf_plots_write. */
sf_status sf_planner_plot(const sf_planner *plan, const char *dir, sf_arena *arena, bool *drawn);

#endif
