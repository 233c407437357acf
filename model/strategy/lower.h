/* model/strategy/lower.h: a job becomes a step program.
 *
 * Errors  SF_EINVAL: the strategy cannot run this job (the message names field and remedy);
 *         SF_EUNSUP: no lowering for this framework and strategy.
 * Owner   the program lives in `arena` and borrows from `job` (keep it as long).
 */
#ifndef SF_STRATEGY_LOWER_H
#define SF_STRATEGY_LOWER_H

#include "model/base/arena.h"
#include "model/base/status.h"
#include "model/desc/job.h"
#include "model/program/program.h"

sf_status sf_lower(const sf_job *job, sf_arena *arena, const sf_program **out);

#endif
