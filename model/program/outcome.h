/* model/program/outcome.h: what a step costs: predicted, simulated, measured or published, in one
 * type, so that comparing them is a join.
 *
 * Units   bytes, seconds, FLOP, tokens. A quantity that is not known is negative (double) or has
 *         its `has_` flag unset; it is printed as "-" and left out of JSON.
 */
#ifndef SF_PROGRAM_OUTCOME_H
#define SF_PROGRAM_OUTCOME_H

#include <jansson.h>

#include "model/base/arena.h"
#include "model/base/status.h"
#include "model/program/program.h"

typedef struct {
    sf_op_type collective;
    sf_group group;
    uint64_t calls;
    uint64_t bytes_per_rank; /* sum over calls of the array's bytes (S as in nccl-tests: the whole array) */
    double time_s, exposed_s;
} sf_outcome_comm;

/* One executed op: a box of the timeline. */
typedef struct {
    const char *label;
    sf_op_type type;
    sf_stream stream;
    sf_phase phase;
    sf_group group; /* collectives */
    int rank, layer, micro;
    uint64_t seq;
    double start_s, end_s;
} sf_span_time;

/* Memory of one space over issue: after each ALLOC/FREE. */
typedef struct {
    uint64_t seq;
    uint64_t bytes;
    double time_s; /* negative if not timed */
} sf_memory_point;

enum { SF_OUTCOME_MAX_COMM = SF_OP_COUNT * SF_GROUP_COUNT };

typedef struct {
    const char *kind;     /* "predicted", "simulated", "measured", "published" */
    const char *strategy;
    int world_size;
    bool fits;
    const char *verdict;

    struct {
        uint64_t capacity_bytes;
        uint64_t peak_bytes[SF_CAT_COUNT];  /* each category's own peak                     */
        uint64_t at_peak[SF_CAT_COUNT];     /* at the moment of the device peak             */
        uint64_t peak_allocated_bytes, peak_reserved_bytes, device_used_bytes, host_bytes;
        sf_phase phase_of_peak;
        const char *op_of_peak;             /* label of the op whose ALLOC made the peak    */
        uint64_t seq_of_peak;
        uint64_t phase_peak_bytes[SF_PHASE_COUNT];
        uint64_t oom_request_bytes;         /* > 0: the allocation that did not fit         */
        const char *oom_op;                 /* its buffer's name                            */
        uint64_t oom_seq;
        uint64_t oom_resident_bytes;
    } memory;

    sf_outcome_comm comm[SF_OUTCOME_MAX_COMM];
    size_t n_comm;

    uint64_t model_flop, hardware_flop;     /* of one rank                                  */
    uint64_t tokens_per_step;               /* of all ranks                                 */

    struct {
        double step_s, phase_s[SF_PHASE_COUNT], exposed_comm_s, idle_s;
        double busy_s[SF_PHASE_COUNT];      /* of phase_s: something other than a collective runs */
        double step_s_min, step_s_max;      /* measured spread                              */
        double op_s[SF_OP_COUNT];           /* busy time per op type on its stream          */
        uint64_t op_calls[SF_OP_COUNT];
        double kind_s[SF_KIND_COUNT];
        const char *bound_by;
    } time;
    double mfu, hfu;                        /* negative: not known                          */

    double *losses;
    int n_losses, steps;
    json_t *provenance;                     /* object or NULL; owned by the outcome's user  */

    sf_span_time *spans;                    /* of one step; may be empty                    */
    size_t n_spans;
    sf_memory_point *memory_line;
    size_t n_memory_line;
} sf_outcome;

/* All "not known", in the arena's lifetime. */
void sf_outcome_init(sf_outcome *out, const char *kind);

/* The design's JSON ("shardfit-outcome-1"); `job` is borrowed and may be NULL. New reference. Further
 * keys than the design's: strategy, world_size, memory.{peak, phase_peak, op_of_peak, seq_of_peak, oom},
 * time.{busy, kinds, ops}, throughput.tokens_per_step. */
json_t *sf_outcome_to_json(const sf_outcome *outcome, json_t *job);
/* Adds "spans" and "memory_line" (each {columns, rows}) to such JSON: what the plots of a step need. */
void sf_outcome_add_detail(const sf_outcome *outcome, json_t *to);
/* Reads such JSON back, with detail if it is there. The provenance is borrowed from `json`; all else
 * lives in the arena. Errors: SF_EPARSE names the key ("outcome: time.step_s: ..."). */
sf_status sf_outcome_from_json(const json_t *json, sf_arena *arena, sf_outcome *out);

/* The columns of the detail's rows, as written and read. */
enum { SF_OUTCOME_SPAN_COLUMNS = 11, SF_OUTCOME_LINE_COLUMNS = 3 };
extern const char *const sf_outcome_span_columns[SF_OUTCOME_SPAN_COLUMNS];
extern const char *const sf_outcome_line_columns[SF_OUTCOME_LINE_COLUMNS];

/* Adds to (or makes) the row of a collective. */
sf_outcome_comm *sf_outcome_comm_row(sf_outcome *outcome, sf_op_type collective, sf_group group);
double sf_outcome_tokens_per_s(const sf_outcome *outcome); /* negative if the step time is not known */

#endif
