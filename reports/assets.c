#include "reports/assets.h"

#include <unistd.h>

const char *sf_asset_path(const char *name, sf_arena *arena)
{
    const char *in_source = sf_arena_printf(arena, "%s/%s", SF_SOURCE_ASSETS, name);
    return access(in_source, R_OK) == 0 ? in_source : sf_arena_printf(arena, "%s/%s", SF_INSTALLED_ASSETS, name);
}
