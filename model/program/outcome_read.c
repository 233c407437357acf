/* model/program/outcome_read.c: an outcome from its JSON. */
#include <math.h>
#include <string.h>

#include "model/base/text.h"
#include "model/program/outcome.h"

const char *const sf_outcome_span_columns[SF_OUTCOME_SPAN_COLUMNS] = { "op",   "stream", "phase", "group",   "label", "rank",
                                                                       "layer", "micro",  "seq",   "start_s", "end_s" };
const char *const sf_outcome_line_columns[SF_OUTCOME_LINE_COLUMNS] = { "seq", "bytes", "time_s" };

typedef const char *(*name_of)(int i);

static const char *category_at(int i)
{
    return sf_category_name((sf_category)i);
}

static const char *phase_at(int i)
{
    return sf_phase_name((sf_phase)i);
}

static const char *stream_at(int i)
{
    return sf_stream_name((sf_stream)i);
}

static const char *group_at(int i)
{
    return sf_group_name((sf_group)i);
}

static const char *kind_at(int i)
{
    return sf_op_kind_name((sf_op_kind)i);
}

static const char *op_at(int i)
{
    return sf_op_name((sf_op_type)i);
}

static sf_status wrong(const char *where, const char *key, const char *expected)
{
    return SF_FAIL(SF_EPARSE, "outcome: %s%s%s: expected %s", where, where[0] == '\0' ? "" : ".", key, expected);
}

/* Each getter leaves `out` alone where the key is absent or null. */
static const json_t *present(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_null(v) ? NULL : v;
}

static sf_status as_count(const json_t *v, const char *where, const char *key, uint64_t *out)
{
    if (json_is_integer(v) && json_integer_value(v) >= 0)
        *out = (uint64_t)json_integer_value(v);
    else if (json_is_real(v) && json_real_value(v) >= 0 && json_real_value(v) < 18446744073709551616.0) /* 2^64 */
        *out = (uint64_t)json_real_value(v);
    else
        return wrong(where, key, "a whole number of 0 or more");
    return SF_SUCCESS;
}

static sf_status get_count(const json_t *o, const char *where, const char *key, uint64_t *out)
{
    const json_t *v = present(o, key);
    return v == NULL ? SF_SUCCESS : as_count(v, where, key, out);
}

static sf_status get_int(const json_t *o, const char *where, const char *key, int *out)
{
    const json_t *v = present(o, key);
    if (v == NULL)
        return SF_SUCCESS;
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX)
        return wrong(where, key, "a whole number of 0 or more");
    *out = (int)json_integer_value(v);
    return SF_SUCCESS;
}

static sf_status get_number(const json_t *o, const char *where, const char *key, double *out)
{
    const json_t *v = present(o, key);
    if (v == NULL)
        return SF_SUCCESS;
    if (!json_is_number(v) || json_number_value(v) < 0)
        return wrong(where, key, "a number of 0 or more");
    *out = json_number_value(v);
    return SF_SUCCESS;
}

static sf_status get_text(const json_t *o, const char *where, const char *key, sf_arena *arena, const char **out)
{
    const json_t *v = present(o, key);
    if (v == NULL)
        return SF_SUCCESS;
    if (!json_is_string(v))
        return wrong(where, key, "a string");
    *out = sf_arena_strdup(arena, json_string_value(v));
    return SF_SUCCESS;
}

static sf_status get_object(const json_t *o, const char *where, const char *key, const json_t **out)
{
    *out = present(o, key);
    return *out == NULL || json_is_object(*out) ? SF_SUCCESS : wrong(where, key, "an object");
}

static sf_status as_name(const json_t *v, const char *where, const char *key, name_of name, int count, int *out)
{
    const char *given = json_string_value(v);
    if (given == NULL)
        return wrong(where, key, "a name");
    for (int i = 0; i < count; i++)
        if (strcmp(name(i), given) == 0) {
            *out = i;
            return SF_SUCCESS;
        }
    return SF_FAIL(SF_EPARSE, "outcome: %s.%s: '%.80s' is not one of this version's names", where, key, given);
}

/* An object that has one count per name of a list. */
static sf_status get_counts(const json_t *o, const char *where, const char *key, name_of name, int count, uint64_t *out)
{
    const json_t *v;
    SF_TRY(get_object(o, where, key, &v));
    for (int i = 0; i < count; i++)
        SF_TRY(get_count(v, key, name(i), &out[i]));
    return SF_SUCCESS;
}

static sf_status get_numbers(const json_t *o, const char *where, const char *key, name_of name, int count, double *out)
{
    const json_t *v;
    SF_TRY(get_object(o, where, key, &v));
    for (int i = 0; i < count; i++)
        SF_TRY(get_number(v, key, name(i), &out[i]));
    return SF_SUCCESS;
}

static sf_status read_memory(const json_t *json, sf_arena *arena, sf_outcome *out)
{
    const json_t *o, *oom, *phase;
    int p = 0;
    SF_TRY(get_object(json, "", "memory", &o));
    SF_TRY(get_count(o, "memory", "capacity_bytes", &out->memory.capacity_bytes));
    SF_TRY(get_count(o, "memory", "peak_allocated_bytes", &out->memory.peak_allocated_bytes));
    SF_TRY(get_count(o, "memory", "peak_reserved_bytes", &out->memory.peak_reserved_bytes));
    SF_TRY(get_count(o, "memory", "device_used_bytes", &out->memory.device_used_bytes));
    SF_TRY(get_count(o, "memory", "host_bytes", &out->memory.host_bytes));
    phase = present(o, "phase_of_peak");
    if (phase != NULL)
        SF_TRY(as_name(phase, "memory", "phase_of_peak", phase_at, SF_PHASE_COUNT, &p));
    out->memory.phase_of_peak = (sf_phase)p;
    SF_TRY(get_text(o, "memory", "op_of_peak", arena, &out->memory.op_of_peak));
    SF_TRY(get_count(o, "memory", "seq_of_peak", &out->memory.seq_of_peak));
    SF_TRY(get_counts(o, "memory", "at_peak", category_at, SF_CAT_COUNT, out->memory.at_peak));
    SF_TRY(get_counts(o, "memory", "peak", category_at, SF_CAT_COUNT, out->memory.peak_bytes));
    SF_TRY(get_counts(o, "memory", "phase_peak", phase_at, SF_PHASE_COUNT, out->memory.phase_peak_bytes));
    SF_TRY(get_object(o, "memory", "oom", &oom));
    SF_TRY(get_count(oom, "memory.oom", "request_bytes", &out->memory.oom_request_bytes));
    SF_TRY(get_text(oom, "memory.oom", "buffer", arena, &out->memory.oom_op));
    SF_TRY(get_count(oom, "memory.oom", "seq", &out->memory.oom_seq));
    return get_count(oom, "memory.oom", "resident_bytes", &out->memory.oom_resident_bytes);
}

static sf_status read_comm(const json_t *json, sf_outcome *out)
{
    const json_t *rows = present(json, "communication"), *row;
    size_t i;
    if (rows == NULL)
        return SF_SUCCESS;
    if (!json_is_array(rows))
        return wrong("", "communication", "an array");
    json_array_foreach(rows, i, row) {
        int op = 0, group = 0;
        SF_TRY(as_name(json_object_get(row, "collective"), "communication", "collective", op_at, SF_OP_COUNT, &op));
        SF_TRY(as_name(json_object_get(row, "group"), "communication", "group", group_at, SF_GROUP_COUNT, &group));
        sf_outcome_comm *c = sf_outcome_comm_row(out, (sf_op_type)op, (sf_group)group);
        SF_TRY(get_count(row, "communication", "calls", &c->calls));
        SF_TRY(get_count(row, "communication", "bytes_per_rank", &c->bytes_per_rank));
        SF_TRY(get_number(row, "communication", "time_s", &c->time_s));
        SF_TRY(get_number(row, "communication", "exposed_s", &c->exposed_s));
    }
    return SF_SUCCESS;
}

static sf_status read_time(const json_t *json, sf_arena *arena, sf_outcome *out)
{
    const json_t *o, *ops;
    SF_TRY(get_object(json, "", "time", &o));
    SF_TRY(get_number(o, "time", "step_s", &out->time.step_s));
    SF_TRY(get_number(o, "time", "forward_s", &out->time.phase_s[SF_PHASE_FORWARD]));
    SF_TRY(get_number(o, "time", "backward_s", &out->time.phase_s[SF_PHASE_BACKWARD]));
    SF_TRY(get_number(o, "time", "optimizer_s", &out->time.phase_s[SF_PHASE_OPTIMIZER]));
    SF_TRY(get_number(o, "time", "exposed_comm_s", &out->time.exposed_comm_s));
    SF_TRY(get_number(o, "time", "idle_s", &out->time.idle_s));
    SF_TRY(get_text(o, "time", "bound_by", arena, &out->time.bound_by));
    SF_TRY(get_number(o, "time", "step_s_min", &out->time.step_s_min));
    SF_TRY(get_number(o, "time", "step_s_max", &out->time.step_s_max));
    SF_TRY(get_numbers(o, "time", "busy", phase_at, SF_PHASE_COUNT, out->time.busy_s));
    SF_TRY(get_numbers(o, "time", "kinds", kind_at, SF_KIND_COUNT, out->time.kind_s));
    SF_TRY(get_object(o, "time", "ops", &ops));
    for (int i = 0; i < SF_OP_COUNT; i++) {
        const json_t *op;
        SF_TRY(get_object(ops, "time.ops", op_at(i), &op));
        SF_TRY(get_count(op, op_at(i), "calls", &out->time.op_calls[i]));
        SF_TRY(get_number(op, op_at(i), "time_s", &out->time.op_s[i]));
    }
    return SF_SUCCESS;
}

static sf_status read_losses(const json_t *json, sf_arena *arena, sf_outcome *out)
{
    const json_t *losses = present(json, "losses"), *loss;
    size_t i;
    if (losses == NULL)
        return SF_SUCCESS;
    if (!json_is_array(losses))
        return wrong("", "losses", "an array");
    out->losses = SF_NEW_ARRAY(arena, double, json_array_size(losses));
    json_array_foreach(losses, i, loss) {
        if (!json_is_number(loss) && !json_is_null(loss))
            return wrong("", "losses", "numbers");
        out->losses[out->n_losses++] = json_is_null(loss) ? (double)NAN : json_number_value(loss);
    }
    return SF_SUCCESS;
}

/* The rows of a detail table whose columns are those of this version. */
static sf_status detail_rows(const json_t *json, const char *key, const char *const *names, size_t n, const json_t **out)
{
    const json_t *o, *heads, *row;
    size_t i;
    *out = NULL;
    SF_TRY(get_object(json, "", key, &o));
    if (o == NULL)
        return SF_SUCCESS;
    heads = json_object_get(o, "columns");
    for (i = 0; i < n; i++) {
        const char *head = json_string_value(json_array_get(heads, i));
        if (head == NULL || strcmp(head, names[i]) != 0)
            return wrong(key, "columns", "the columns of this version");
    }
    *out = json_object_get(o, "rows");
    if (!json_is_array(*out))
        return wrong(key, "rows", "an array");
    json_array_foreach(*out, i, row)
        if (json_array_size(row) != n)
            return wrong(key, "rows", "as many values in each row as there are columns");
    return SF_SUCCESS;
}

static sf_status read_span(const json_t *row, sf_arena *arena, sf_span_time *s)
{
    int op = 0, stream = 0, phase = 0, group = 0;
    const json_t *label = json_array_get(row, 4), *g = json_array_get(row, 3);
    SF_TRY(as_name(json_array_get(row, 0), "spans", "op", op_at, SF_OP_COUNT, &op));
    SF_TRY(as_name(json_array_get(row, 1), "spans", "stream", stream_at, SF_STREAM_COUNT, &stream));
    SF_TRY(as_name(json_array_get(row, 2), "spans", "phase", phase_at, SF_PHASE_COUNT, &phase));
    if (!json_is_null(g))
        SF_TRY(as_name(g, "spans", "group", group_at, SF_GROUP_COUNT, &group));
    for (size_t i = 5; i < SF_OUTCOME_SPAN_COLUMNS; i++)
        if (!json_is_number(json_array_get(row, i)))
            return wrong("spans", sf_outcome_span_columns[i], "a number");
    *s = (sf_span_time){
        .label = json_is_string(label) ? sf_arena_strdup(arena, json_string_value(label)) : NULL,
        .type = (sf_op_type)op,
        .stream = (sf_stream)stream,
        .phase = (sf_phase)phase,
        .group = (sf_group)group,
        .rank = (int)json_integer_value(json_array_get(row, 5)),
        .layer = (int)json_integer_value(json_array_get(row, 6)),
        .micro = (int)json_integer_value(json_array_get(row, 7)),
        .seq = (uint64_t)json_integer_value(json_array_get(row, 8)),
        .start_s = json_number_value(json_array_get(row, 9)),
        .end_s = json_number_value(json_array_get(row, 10)),
    };
    return SF_SUCCESS;
}

static sf_status read_detail(const json_t *json, sf_arena *arena, sf_outcome *out)
{
    const json_t *rows, *row;
    size_t i;
    SF_TRY(detail_rows(json, "spans", sf_outcome_span_columns, SF_OUTCOME_SPAN_COLUMNS, &rows));
    out->spans = SF_NEW_ARRAY(arena, sf_span_time, json_array_size(rows));
    json_array_foreach(rows, i, row) {
        SF_TRY(read_span(row, arena, &out->spans[i]));
        out->n_spans++;
    }
    SF_TRY(detail_rows(json, "memory_line", sf_outcome_line_columns, SF_OUTCOME_LINE_COLUMNS, &rows));
    out->memory_line = SF_NEW_ARRAY(arena, sf_memory_point, json_array_size(rows));
    json_array_foreach(rows, i, row) {
        sf_memory_point *p = &out->memory_line[i];
        const json_t *time = json_array_get(row, 2);
        SF_TRY(as_count(json_array_get(row, 0), "memory_line", "seq", &p->seq));
        SF_TRY(as_count(json_array_get(row, 1), "memory_line", "bytes", &p->bytes));
        p->time_s = json_is_number(time) ? json_number_value(time) : -1;
        out->n_memory_line++;
    }
    return SF_SUCCESS;
}

sf_status sf_outcome_from_json(const json_t *json, sf_arena *arena, sf_outcome *out)
{
    const json_t *o, *fits;
    const char *schema = json_string_value(json_object_get(json, "schema")), *kind = NULL;
    if (!sf_str_eq(schema, "shardfit-outcome-1"))
        return SF_FAIL(SF_EPARSE, "outcome: schema: expected 'shardfit-outcome-1', found '%.60s'", schema == NULL ? "nothing" : schema);
    SF_TRY(get_text(json, "", "kind", arena, &kind));
    if (kind == NULL)
        return wrong("", "kind", "predicted, simulated, measured or published");
    sf_outcome_init(out, kind);
    SF_TRY(get_text(json, "", "strategy", arena, &out->strategy));
    SF_TRY(get_int(json, "", "world_size", &out->world_size));
    fits = present(json, "fits");
    if (fits != NULL && !json_is_boolean(fits))
        return wrong("", "fits", "true or false");
    out->fits = fits == NULL || json_is_true(fits);
    SF_TRY(get_text(json, "", "verdict", arena, &out->verdict));
    SF_TRY(read_memory(json, arena, out));
    SF_TRY(read_time(json, arena, out));
    SF_TRY(read_comm(json, out));
    SF_TRY(get_object(json, "", "compute", &o));
    SF_TRY(get_count(o, "compute", "model_flops", &out->model_flop));
    SF_TRY(get_count(o, "compute", "hardware_flops", &out->hardware_flop));
    SF_TRY(get_object(json, "", "throughput", &o));
    SF_TRY(get_count(o, "throughput", "tokens_per_step", &out->tokens_per_step));
    SF_TRY(get_number(o, "throughput", "mfu", &out->mfu));
    SF_TRY(get_number(o, "throughput", "hfu", &out->hfu));
    if (out->tokens_per_step == 0 && out->time.step_s > 0) {
        double rate = -1;
        SF_TRY(get_number(o, "throughput", "tokens_per_s", &rate));
        if (rate > 0)
            out->tokens_per_step = (uint64_t)llround(rate * out->time.step_s);
    }
    SF_TRY(read_losses(json, arena, out));
    SF_TRY(get_int(json, "", "steps", &out->steps));
    SF_TRY(get_object(json, "", "provenance", &o));
    out->provenance = (json_t *)(uintptr_t)o; /* borrowed; only read */
    return read_detail(json, arena, out);
}
