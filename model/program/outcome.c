/* model/program/outcome.c: an outcome's rows and its JSON (sf_outcome_from_json is in outcome_read.c). */
#include "model/program/outcome.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

void sf_outcome_init(sf_outcome *out, const char *kind)
{
    memset(out, 0, sizeof *out);
    out->kind = kind;
    out->fits = true;
    out->time.step_s = out->time.exposed_comm_s = out->time.idle_s = -1;
    out->time.step_s_min = out->time.step_s_max = -1;
    for (int p = 0; p < SF_PHASE_COUNT; p++)
        out->time.phase_s[p] = out->time.busy_s[p] = -1;
    out->mfu = out->hfu = -1;
}

sf_outcome_comm *sf_outcome_comm_row(sf_outcome *outcome, sf_op_type collective, sf_group group)
{
    for (size_t i = 0; i < outcome->n_comm; i++)
        if (outcome->comm[i].collective == collective && outcome->comm[i].group == group)
            return &outcome->comm[i];
    assert(outcome->n_comm < SF_OUTCOME_MAX_COMM);
    sf_outcome_comm *row = &outcome->comm[outcome->n_comm++];
    *row = (sf_outcome_comm){ .collective = collective, .group = group };
    return row;
}

double sf_outcome_tokens_per_s(const sf_outcome *outcome)
{
    if (!(outcome->time.step_s > 0) || outcome->tokens_per_step == 0)
        return -1;
    return (double)outcome->tokens_per_step / outcome->time.step_s;
}

static void put_text(json_t *to, const char *key, const char *text)
{
    if (text != NULL)
        json_object_set_new(to, key, json_string(text));
}

/* A count; above JSON's signed 64-bit integers it becomes a real. */
static void put_count(json_t *to, const char *key, uint64_t n)
{
    json_object_set_new(to, key, n <= INT64_MAX ? json_integer((json_int_t)n) : json_real((double)n));
}

static void put_known_count(json_t *to, const char *key, uint64_t n)
{
    if (n > 0)
        put_count(to, key, n);
}

/* NaN and infinity are no JSON: they are left out like what is not known. */
static void put_known(json_t *to, const char *key, double x)
{
    if (x >= 0)
        json_object_set_new(to, key, json_real(x));
}

static void put_object(json_t *to, const char *key, json_t *object)
{
    if (json_object_size(object) > 0)
        json_object_set_new(to, key, object);
    else
        json_decref(object);
}

static json_t *categories(const uint64_t bytes[SF_CAT_COUNT])
{
    json_t *o = json_object();
    for (int c = 0; c < SF_CAT_COUNT; c++)
        put_count(o, sf_category_name((sf_category)c), bytes[c]);
    return o;
}

static json_t *memory_to_json(const sf_outcome *out)
{
    json_t *o = json_object();
    put_known_count(o, "capacity_bytes", out->memory.capacity_bytes);
    put_known_count(o, "peak_allocated_bytes", out->memory.peak_allocated_bytes);
    put_known_count(o, "peak_reserved_bytes", out->memory.peak_reserved_bytes);
    put_known_count(o, "device_used_bytes", out->memory.device_used_bytes);
    if (out->memory.peak_allocated_bytes > 0) {
        json_t *phases = json_object();
        put_count(o, "host_bytes", out->memory.host_bytes);
        put_text(o, "phase_of_peak", sf_phase_name(out->memory.phase_of_peak));
        put_text(o, "op_of_peak", out->memory.op_of_peak);
        put_count(o, "seq_of_peak", out->memory.seq_of_peak);
        json_object_set_new(o, "at_peak", categories(out->memory.at_peak));
        json_object_set_new(o, "peak", categories(out->memory.peak_bytes));
        for (int p = 0; p < SF_PHASE_COUNT; p++)
            put_known_count(phases, sf_phase_name((sf_phase)p), out->memory.phase_peak_bytes[p]);
        put_object(o, "phase_peak", phases);
    } else {
        put_known_count(o, "host_bytes", out->memory.host_bytes);
    }
    if (out->memory.oom_request_bytes > 0) {
        json_t *oom = json_object();
        put_count(oom, "request_bytes", out->memory.oom_request_bytes);
        put_text(oom, "buffer", out->memory.oom_op);
        put_count(oom, "seq", out->memory.oom_seq);
        put_count(oom, "resident_bytes", out->memory.oom_resident_bytes);
        json_object_set_new(o, "oom", oom);
    }
    return o;
}

static json_t *comm_to_json(const sf_outcome *out)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < out->n_comm; i++) {
        const sf_outcome_comm *c = &out->comm[i];
        json_t *o = json_object();
        put_text(o, "collective", sf_op_name(c->collective));
        put_text(o, "group", sf_group_name(c->group));
        put_count(o, "calls", c->calls);
        put_count(o, "bytes_per_rank", c->bytes_per_rank);
        if (out->time.step_s >= 0) { /* without a timeline the times are not known */
            put_known(o, "time_s", c->time_s);
            put_known(o, "exposed_s", c->exposed_s);
        }
        json_array_append_new(rows, o);
    }
    return rows;
}

static json_t *time_to_json(const sf_outcome *out)
{
    json_t *o = json_object(), *busy = json_object(), *kinds = json_object(), *ops = json_object();
    put_known(o, "step_s", out->time.step_s);
    put_known(o, "forward_s", out->time.phase_s[SF_PHASE_FORWARD]);
    put_known(o, "backward_s", out->time.phase_s[SF_PHASE_BACKWARD]);
    put_known(o, "optimizer_s", out->time.phase_s[SF_PHASE_OPTIMIZER]);
    put_known(o, "exposed_comm_s", out->time.exposed_comm_s);
    put_known(o, "idle_s", out->time.idle_s);
    put_text(o, "bound_by", out->time.bound_by);
    put_known(o, "step_s_min", out->time.step_s_min);
    put_known(o, "step_s_max", out->time.step_s_max);
    for (int p = 0; p < SF_PHASE_COUNT; p++)
        put_known(busy, sf_phase_name((sf_phase)p), out->time.busy_s[p]);
    for (int k = 0; k < SF_KIND_COUNT; k++)
        if (out->time.kind_s[k] > 0)
            put_known(kinds, sf_op_kind_name((sf_op_kind)k), out->time.kind_s[k]);
    for (int i = 0; i < SF_OP_COUNT; i++)
        if (out->time.op_calls[i] > 0) {
            json_t *op = json_object();
            put_count(op, "calls", out->time.op_calls[i]);
            put_known(op, "time_s", out->time.op_s[i]);
            json_object_set_new(ops, sf_op_name((sf_op_type)i), op);
        }
    put_object(o, "busy", busy);
    put_object(o, "kinds", kinds);
    put_object(o, "ops", ops);
    return o;
}

static json_t *throughput_to_json(const sf_outcome *out)
{
    json_t *o = json_object();
    double rate = sf_outcome_tokens_per_s(out);
    put_known(o, "tokens_per_s", rate);
    put_known(o, "tokens_per_s_per_gpu", out->world_size > 0 ? rate / out->world_size : -1);
    put_known(o, "mfu", out->mfu);
    put_known(o, "hfu", out->hfu);
    put_known_count(o, "tokens_per_step", out->tokens_per_step);
    return o;
}

json_t *sf_outcome_to_json(const sf_outcome *out, json_t *job)
{
    json_t *o = json_object(), *compute = json_object();
    put_text(o, "schema", "shardfit-outcome-1");
    put_text(o, "kind", out->kind);
    put_text(o, "strategy", out->strategy);
    put_known_count(o, "world_size", out->world_size > 0 ? (uint64_t)out->world_size : 0);
    if (job != NULL)
        json_object_set(o, "job", job);
    json_object_set_new(o, "fits", json_boolean(out->fits));
    put_text(o, "verdict", out->verdict);
    put_object(o, "memory", memory_to_json(out));
    json_object_set_new(o, "communication", comm_to_json(out));
    put_known_count(compute, "model_flops", out->model_flop);
    put_known_count(compute, "hardware_flops", out->hardware_flop);
    put_object(o, "compute", compute);
    put_object(o, "time", time_to_json(out));
    put_object(o, "throughput", throughput_to_json(out));
    if (out->n_losses > 0) {
        json_t *losses = json_array();
        for (int i = 0; i < out->n_losses; i++) {
            json_t *loss = json_real(out->losses[i]);
            json_array_append_new(losses, loss != NULL ? loss : json_null()); /* NaN: null */
        }
        json_object_set_new(o, "losses", losses);
    }
    put_known_count(o, "steps", out->steps > 0 ? (uint64_t)out->steps : 0);
    if (out->provenance != NULL)
        json_object_set(o, "provenance", out->provenance);
    return o;
}

static json_t *columns(const char *const *names, size_t n)
{
    json_t *o = json_object(), *heads = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(heads, json_string(names[i]));
    json_object_set_new(o, "columns", heads);
    return o;
}

static json_t *span_row(const sf_span_time *s)
{
    bool comm = sf_op_kind_of(s->type) == SF_KIND_COMM;
    json_t *row = json_array();
    json_array_append_new(row, json_string(sf_op_name(s->type)));
    json_array_append_new(row, json_string(sf_stream_name(s->stream)));
    json_array_append_new(row, json_string(sf_phase_name(s->phase)));
    json_array_append_new(row, comm ? json_string(sf_group_name(s->group)) : json_null());
    json_array_append_new(row, s->label != NULL ? json_string(s->label) : json_null());
    json_array_append_new(row, json_integer(s->rank));
    json_array_append_new(row, json_integer(s->layer));
    json_array_append_new(row, json_integer(s->micro));
    json_array_append_new(row, json_integer((json_int_t)s->seq));
    json_array_append_new(row, json_real(s->start_s));
    json_array_append_new(row, json_real(s->end_s));
    return row;
}

void sf_outcome_add_detail(const sf_outcome *out, json_t *to)
{
    if (out->n_spans > 0) {
        json_t *o = columns(sf_outcome_span_columns, SF_OUTCOME_SPAN_COLUMNS), *rows = json_array();
        for (size_t i = 0; i < out->n_spans; i++)
            json_array_append_new(rows, span_row(&out->spans[i]));
        json_object_set_new(o, "rows", rows);
        json_object_set_new(to, "spans", o);
    }
    if (out->n_memory_line > 0) {
        json_t *o = columns(sf_outcome_line_columns, SF_OUTCOME_LINE_COLUMNS), *rows = json_array();
        for (size_t i = 0; i < out->n_memory_line; i++) {
            const sf_memory_point *p = &out->memory_line[i];
            json_t *row = json_array();
            json_array_append_new(row, json_integer((json_int_t)p->seq));
            json_array_append_new(row, json_integer((json_int_t)p->bytes));
            json_array_append_new(row, p->time_s >= 0 ? json_real(p->time_s) : json_null());
            json_array_append_new(rows, row);
        }
        json_object_set_new(o, "rows", rows);
        json_object_set_new(to, "memory_line", o);
    }
}
