/* reports/load_profile.h: the measurements of this machine that a prediction needs. */
#ifndef SF_REPORTS_LOAD_PROFILE_H
#define SF_REPORTS_LOAD_PROFILE_H

#include "model/cost/profile.h"
#include "model/desc/job.h"

/* `path` NULL: where calibrate puts it, if it is there and the job is for this host; then *have is false
 * when there is none. The profile's provenance is the caller's to release. */
sf_status sf_load_profile(const char *path, const sf_job *job, sf_arena *arena, sf_profile *out, bool *have);

#endif
