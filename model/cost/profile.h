/* model/cost/profile.h: what `shardfit calibrate` measured of a machine, and the time of an op from it.
 *
 * What      One set of measurements per number of ranks, each taken while that many ranks work at once,
 *           so that they share caches and memory as in a run. Times of kernels are CPU seconds of one
 *           core: what ranks lose by sharing cores is for the simulator, which knows who runs when.
 * GEMM      rates (FLOP/s) on a grid of m, n, k for each form and type; between grid points the rate is
 *           interpolated in the logarithms of m, n, k, outside it stays that of the border.
 * Curves    seconds over a size; between points interpolated in logarithms, below the first point its
 *           time, beyond the last in proportion. Sizes: elements (m * n) for kernels, elements updated
 *           for adamw, whole-array bytes for collectives, seq for attention (seconds per sequence and
 *           head, one curve per head_dim).
 * Units     seconds, FLOP/s, bytes; a multiply-add is 2 FLOP.
 * Errors    reading a file that is no profile: SF_EPARSE naming file and field. An op that was not
 *           measured takes the time of the nearest measured kind (see sf_profile_has).
 */
#ifndef SF_COST_PROFILE_H
#define SF_COST_PROFILE_H

#include <jansson.h>

#include "model/base/arena.h"
#include "model/base/status.h"
#include "model/program/cursor.h"
#include "model/program/program.h"

enum { SF_CURVE_POINTS = 24, SF_GRID_POINTS = 8, SF_PROFILE_DTYPES = 2, SF_PROFILE_FORMS = 3, SF_PROFILE_HEAD_DIMS = 4,
       SF_PROFILE_SETS = 16 };

typedef struct {
    int n;
    double x[SF_CURVE_POINTS]; /* ascending */
    double s[SF_CURVE_POINTS]; /* seconds   */
} sf_curve;

typedef struct {
    int n_m, n_n, n_k;
    double m[SF_GRID_POINTS], n[SF_GRID_POINTS], k[SF_GRID_POINTS]; /* ascending */
    double flops_per_s[SF_GRID_POINTS][SF_GRID_POINTS][SF_GRID_POINTS];
} sf_gemm_grid;

typedef struct {
    int head_dim;
    sf_curve forward, backward;
} sf_attention_curves;

/* A collective: seconds when every rank has a core, and how much of it the core works. */
typedef struct {
    sf_curve time;
    sf_curve cpu;
} sf_collective_curves;

/* Measured with `ranks` at work. Types: [0] f32, [1] bf16. Forms: LINEAR_FWD, LINEAR_BWD_X, LINEAR_BWD_W. */
typedef struct {
    int ranks;
    bool threads;              /* ranks are threads of one process (dp); else processes   */
    char transport[24];
    sf_gemm_grid gemm[SF_PROFILE_DTYPES][SF_PROFILE_FORMS];
    sf_curve kernel[SF_PROFILE_DTYPES][SF_OP_COUNT];
    int n_head_dims;
    sf_attention_curves attention[SF_PROFILE_DTYPES][SF_PROFILE_HEAD_DIMS];
    sf_collective_curves collective[SF_PROFILE_DTYPES][SF_OP_COUNT];
    double issue_s;            /* host time to issue an op                                */
    double op_gap_s;           /* a stream's time between two ops                         */
    double handoff_s;          /* from a RECORD to the waiting stream's next op           */
    double overlap_slowdown;   /* of kernels' CPU time while a collective runs, 1: none   */
} sf_profile_set;

typedef struct {
    json_t *provenance;        /* object; owned by the profile's user */
    int cores;
    sf_profile_set *sets;
    int n_sets;
} sf_profile;

json_t *sf_profile_to_json(const sf_profile *profile); /* "shardfit-profile-1"; new reference */
sf_status sf_profile_from_json(const json_t *json, const char *where, sf_arena *arena, sf_profile *out);
sf_status sf_profile_read(const char *path, sf_arena *arena, sf_profile *out);
sf_status sf_profile_write(const sf_profile *profile, const char *path);

/* $SHARDFIT_PROFILE, else $XDG_CACHE_HOME or ~/.cache, + shardfit/profile.json. In the arena. */
const char *sf_profile_default_path(sf_arena *arena);

/* The set that was measured nearest to this number of ranks (by ratio); NULL if there is none. */
const sf_profile_set *sf_profile_set_of(const sf_profile *profile, int ranks, bool threads);

double sf_curve_at(const sf_curve *curve, double x); /* 0 for an empty curve */
double sf_gemm_grid_at(const sf_gemm_grid *grid, double m, double n, double k);

/* Seconds of one op on one rank, and the share of a core that it keeps busy meanwhile. MEM, SYNC: 0. */
double sf_profile_op_time_s(const sf_profile_set *set, const sf_class *cls, const sf_issue *issue);
double sf_profile_op_cores(const sf_profile_set *set, const sf_class *cls, const sf_issue *issue);
/* Was this op's kind measured, or is another one's time used? */
bool sf_profile_has(const sf_profile_set *set, sf_op_type type);

#endif
