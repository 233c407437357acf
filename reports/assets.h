/* reports/assets.h: where the data files of the reports are (plot templates, style sheet): in the source
 * tree if this build has one, else in PREFIX/share/shardfit.
 */
#ifndef SF_REPORTS_ASSETS_H
#define SF_REPORTS_ASSETS_H

#include "model/base/arena.h"

/* For example sf_asset_path("plots/style.gp", arena). */
const char *sf_asset_path(const char *name, sf_arena *arena);

#endif
