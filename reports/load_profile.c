#include "reports/load_profile.h"

#include <unistd.h>

sf_status sf_load_profile(const char *path, const sf_job *job, sf_arena *arena, sf_profile *out, bool *have)
{
    const char *at = path != NULL ? path : sf_profile_default_path(arena);
    *have = false;
    if (path == NULL && (!job->cluster.gpu.is_host || access(at, R_OK) != 0))
        return SF_SUCCESS;
    SF_TRY(sf_profile_read(at, arena, out));
    *have = true;
    return SF_SUCCESS;
}
