/* model/desc/catalogue.h: where the data files of the catalogues are.
 *
 * The directory is $SHARDFIT_DATA if set, else the source tree's model/desc/data (when run from a
 * build tree), else PREFIX/share/shardfit.
 */
#ifndef SF_DESC_CATALOGUE_H
#define SF_DESC_CATALOGUE_H

#include "model/base/arena.h"

/* The path of a catalogue file, for example sf_catalogue_path(arena, "gpus.csv"). */
const char *sf_catalogue_path(sf_arena *arena, const char *name);

#endif
