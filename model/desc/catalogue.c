#include "model/desc/catalogue.h"

#include <stdlib.h>
#include <unistd.h>

const char *sf_catalogue_path(sf_arena *arena, const char *name)
{
    const char *set = getenv("SHARDFIT_DATA");
    if (set != NULL && set[0] != '\0')
        return sf_arena_printf(arena, "%s/%s", set, name);
    const char *in_source = sf_arena_printf(arena, "%s/%s", SF_SOURCE_DATA, name);
    if (access(in_source, R_OK) == 0)
        return in_source;
    return sf_arena_printf(arena, "%s/%s", SF_INSTALLED_DATA, name);
}
