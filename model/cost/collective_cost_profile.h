/* model/cost/collective_cost_profile.h: measured times of collectives, which override the model.
 *
 * Curve    seconds over bytes for one collective on (ranks, nodes). Between points interpolated in the
 *          logarithms of both; below the first point its time; beyond the last the slope of the last
 *          two in bytes (latency + bandwidth).
 * Derived  a collective, or a group, that was not measured takes the model's time, corrected by the
 *          ratio measured / modelled that the nearest measured curve shows at the same size: the model
 *          knows the busbw factors and the algorithm of each, the curve knows the machine. Only curves
 *          that cross nodes speak for groups that cross nodes, and the reverse.
 * File     JSON: {"schema": "shardfit-collectives-1", "sources": [{...}], "curves": [{"collective",
 *          "ranks", "nodes", "points": [[bytes, seconds], ...], "source": index}]}
 * Errors   reading a file that is no profile: SF_EPARSE naming file and field.
 */
#ifndef SF_COST_COLLECTIVE_COST_PROFILE_H
#define SF_COST_COLLECTIVE_COST_PROFILE_H

#include <jansson.h>

#include "model/base/arena.h"
#include "model/cost/collective_cost.h"
#include "model/cost/nccl_log.h"

enum { SF_COLLECTIVE_CURVE_POINTS = 64 };

typedef struct {
    sf_collective op;
    int ranks, nodes;
    int n;                                         /* >= 1 */
    double bytes[SF_COLLECTIVE_CURVE_POINTS];      /* ascending */
    double time_s[SF_COLLECTIVE_CURVE_POINTS];
    int source;                                    /* index into sources; -1 unknown */
} sf_collective_curve;

/* Where a curve comes from; texts "" and numbers 0 where not known. */
typedef struct {
    const char *file, *gpu;
    int nccl_version;
} sf_collective_source;

struct sf_collective_profile {
    sf_collective_curve *curves;
    size_t n_curves, cap_curves;
    sf_collective_source *sources;
    size_t n_sources, cap_sources;
};

/* Adds every collective and number of ranks in the log as a curve; out-of-place times, the median
 * where a size comes several times. A curve of the same collective, ranks and nodes is replaced.
 * nodes: 0 to take the log's. Fails where the log does not tell collective, ranks or nodes. */
sf_status sf_collective_profile_import(const sf_nccl_log *log, int nodes, sf_arena *arena, sf_collective_profile *profile);

sf_status sf_collective_profile_read(const char *path, sf_arena *arena, sf_collective_profile *out);
sf_status sf_collective_profile_write(const char *path, const sf_collective_profile *profile);
/* The same as a value, for a larger profile to hold; new reference. */
json_t *sf_collective_profile_to_json(const sf_collective_profile *profile);
sf_status sf_collective_profile_from_json(const json_t *object, const char *place, sf_arena *arena, sf_collective_profile *out);

double sf_collective_curve_time(const sf_collective_curve *curve, double bytes);

/* The curve of exactly that collective, ranks and nodes, or NULL. */
const sf_collective_curve *sf_collective_profile_find(const sf_collective_profile *profile, sf_collective op, int ranks, int nodes);

/* The curve that says most about a collective that was not measured there: the same group's other
 * collectives first, then the same collective of other groups; NULL if none is of the same kind. */
const sf_collective_curve *sf_collective_profile_nearest(const sf_collective_profile *profile, sf_collective op, int ranks, int nodes);

#endif
