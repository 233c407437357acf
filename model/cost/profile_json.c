/* model/cost/profile_json.c: profiles as JSON ("shardfit-profile-1"). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/base/text.h"
#include "model/cost/profile.h"

#define SCHEMA "shardfit-profile-1"

static const sf_op_type forms[SF_PROFILE_FORMS] = { SF_OP_LINEAR_FWD, SF_OP_LINEAR_BWD_X, SF_OP_LINEAR_BWD_W };
static const sf_dtype dtypes[SF_PROFILE_DTYPES] = { SF_F32, SF_BF16 };

/* ---- writing ---- */

static json_t *numbers(const double *x, int n)
{
    json_t *array = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(array, json_real(x[i]));
    return array;
}

static json_t *curve_to_json(const sf_curve *c, const char *x_name)
{
    json_t *o = json_object();
    json_object_set_new(o, x_name, numbers(c->x, c->n));
    json_object_set_new(o, "seconds", numbers(c->s, c->n));
    return o;
}

static json_t *grids_to_json(const sf_profile_set *set)
{
    json_t *array = json_array();

    for (int d = 0; d < SF_PROFILE_DTYPES; d++)
        for (int f = 0; f < SF_PROFILE_FORMS; f++) {
            const sf_gemm_grid *g = &set->gemm[d][f];
            if (g->n_m == 0)
                continue;
            json_t *rates = json_array();
            for (int m = 0; m < g->n_m; m++)
                for (int n = 0; n < g->n_n; n++)
                    for (int k = 0; k < g->n_k; k++)
                        json_array_append_new(rates, json_real(g->flops_per_s[m][n][k]));
            json_array_append_new(array, json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "op", sf_op_name(forms[f]), "dtype",
                                                   sf_dtype_name(dtypes[d]), "m", numbers(g->m, g->n_m), "n", numbers(g->n, g->n_n), "k",
                                                   numbers(g->k, g->n_k), "flops_per_s", rates));
        }
    return array;
}

static json_t *kernels_to_json(const sf_profile_set *set)
{
    json_t *array = json_array();

    for (int d = 0; d < SF_PROFILE_DTYPES; d++)
        for (int op = 0; op < SF_OP_COUNT; op++) {
            if (set->kernel[d][op].n == 0)
                continue;
            json_t *o = curve_to_json(&set->kernel[d][op], "elements");
            json_object_set_new(o, "op", json_string(sf_op_name((sf_op_type)op)));
            json_object_set_new(o, "dtype", json_string(sf_dtype_name(dtypes[d])));
            json_array_append_new(array, o);
        }
    return array;
}

static json_t *attention_to_json(const sf_profile_set *set)
{
    json_t *array = json_array();

    for (int d = 0; d < SF_PROFILE_DTYPES; d++)
        for (int i = 0; i < set->n_head_dims; i++) {
            const sf_attention_curves *a = &set->attention[d][i];
            json_array_append_new(array, json_pack("{s:s, s:i, s:o, s:o}", "dtype", sf_dtype_name(dtypes[d]), "head_dim", a->head_dim,
                                                   "forward", curve_to_json(&a->forward, "seq"), "backward", curve_to_json(&a->backward, "seq")));
        }
    return array;
}

static json_t *collectives_to_json(const sf_profile_set *set)
{
    json_t *array = json_array();

    for (int d = 0; d < SF_PROFILE_DTYPES; d++)
        for (int op = 0; op < SF_OP_COUNT; op++) {
            const sf_collective_curves *c = &set->collective[d][op];
            if (c->time.n == 0)
                continue;
            json_t *o = curve_to_json(&c->time, "bytes");
            json_object_set_new(o, "op", json_string(sf_op_name((sf_op_type)op)));
            json_object_set_new(o, "dtype", json_string(sf_dtype_name(dtypes[d])));
            json_object_set_new(o, "cpu_seconds", numbers(c->cpu.s, c->cpu.n));
            json_array_append_new(array, o);
        }
    return array;
}

json_t *sf_profile_to_json(const sf_profile *profile)
{
    json_t *sets = json_array();

    for (int i = 0; i < profile->n_sets; i++) {
        const sf_profile_set *s = &profile->sets[i];
        json_array_append_new(sets, json_pack("{s:i, s:b, s:s, s:f, s:f, s:f, s:f, s:o, s:o, s:o, s:o}", "ranks", s->ranks, "threads",
                                              s->threads, "transport", s->transport, "issue_s", s->issue_s, "op_gap_s", s->op_gap_s,
                                              "handoff_s", s->handoff_s, "overlap_slowdown", s->overlap_slowdown, "gemm", grids_to_json(s),
                                              "kernels", kernels_to_json(s), "attention", attention_to_json(s), "collectives",
                                              collectives_to_json(s)));
    }
    json_t *root = json_pack("{s:s, s:i, s:o}", "schema", SCHEMA, "cores", profile->cores, "sets", sets);
    if (profile->provenance != NULL)
        json_object_set(root, "provenance", profile->provenance);
    return root;
}

sf_status sf_profile_write(const sf_profile *profile, const char *path)
{
    json_t *json = sf_profile_to_json(profile);
    char *text = json_dumps(json, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
    sf_status st = text == NULL ? SF_FAIL(SF_ENOMEM, "no memory to write a profile") : sf_file_write(path, text, strlen(text));

    free(text);
    json_decref(json);
    return st;
}

/* ---- reading ---- */

/* Fills x with an array of numbers above 0; ascending where `axis`. */
static sf_status read_numbers(const json_t *o, const char *key, int most, bool axis, const char *where, double *x, int *count)
{
    const json_t *array = json_object_get(o, key);
    size_t n = json_array_size(array);

    if (!json_is_array(array) || n == 0 || n > (size_t)most)
        return SF_FAIL(SF_EPARSE, "%s: '%s' must be an array of 1 to %d numbers; calibrate again", where, key, most);
    for (size_t i = 0; i < n; i++) {
        x[i] = json_number_value(json_array_get(array, i));
        if (!isfinite(x[i]) || x[i] <= 0 || (axis && i > 0 && x[i] <= x[i - 1]))
            return SF_FAIL(SF_EPARSE, "%s: element %zu of '%s' is %g: these must be above 0%s; calibrate again", where, i, key, x[i],
                           axis ? " and grow" : "");
    }
    *count = (int)n;
    return SF_SUCCESS;
}

static sf_status read_curve(const json_t *o, const char *x_name, const char *s_name, const char *where, sf_curve *out)
{
    int n;

    SF_TRY(read_numbers(o, x_name, SF_CURVE_POINTS, true, where, out->x, &out->n));
    SF_TRY(read_numbers(o, s_name, SF_CURVE_POINTS, false, where, out->s, &n));
    if (n != out->n)
        return SF_FAIL(SF_EPARSE, "%s: '%s' has %d numbers and '%s' %d; calibrate again", where, x_name, out->n, s_name, n);
    return SF_SUCCESS;
}

static sf_status read_op(const json_t *o, const char *where, sf_op_type *op)
{
    const char *name = json_string_value(json_object_get(o, "op"));

    *op = name != NULL ? sf_op_by_name(name) : SF_OP_COUNT;
    if (*op == SF_OP_COUNT)
        return SF_FAIL(SF_EPARSE, "%s: no op is called '%s'; calibrate again", where, name != NULL ? name : "(missing)");
    return SF_SUCCESS;
}

static sf_status read_dtype(const json_t *o, const char *where, int *index)
{
    const char *name = json_string_value(json_object_get(o, "dtype"));

    for (int d = 0; d < SF_PROFILE_DTYPES && name != NULL; d++)
        if (strcmp(name, sf_dtype_name(dtypes[d])) == 0) {
            *index = d;
            return SF_SUCCESS;
        }
    return SF_FAIL(SF_EPARSE, "%s: '%s' is no type of a profile (f32, bf16); calibrate again", where, name != NULL ? name : "(missing)");
}

static sf_status read_grid(const json_t *o, const char *where, sf_profile_set *set)
{
    double rates[SF_GRID_POINTS * SF_GRID_POINTS * SF_GRID_POINTS];
    sf_op_type op;
    int d, f = 0, count;

    SF_TRY(read_op(o, where, &op));
    SF_TRY(read_dtype(o, where, &d));
    while (f < SF_PROFILE_FORMS && forms[f] != op)
        f++;
    if (f == SF_PROFILE_FORMS)
        return SF_FAIL(SF_EPARSE, "%s: '%s' is no matrix product; calibrate again", where, sf_op_name(op));
    sf_gemm_grid *g = &set->gemm[d][f];
    SF_TRY(read_numbers(o, "m", SF_GRID_POINTS, true, where, g->m, &g->n_m));
    SF_TRY(read_numbers(o, "n", SF_GRID_POINTS, true, where, g->n, &g->n_n));
    SF_TRY(read_numbers(o, "k", SF_GRID_POINTS, true, where, g->k, &g->n_k));
    SF_TRY(read_numbers(o, "flops_per_s", SF_GRID_POINTS * SF_GRID_POINTS * SF_GRID_POINTS, false, where, rates, &count));
    if (count != g->n_m * g->n_n * g->n_k)
        return SF_FAIL(SF_EPARSE, "%s: 'flops_per_s' has %d numbers for %d * %d * %d points; calibrate again", where, count, g->n_m, g->n_n, g->n_k);
    for (int m = 0; m < g->n_m; m++)
        for (int n = 0; n < g->n_n; n++)
            for (int k = 0; k < g->n_k; k++)
                g->flops_per_s[m][n][k] = rates[(m * g->n_n + n) * g->n_k + k];
    return SF_SUCCESS;
}

static sf_status read_kernel(const json_t *o, const char *where, sf_profile_set *set)
{
    sf_op_type op;
    int d;

    SF_TRY(read_op(o, where, &op));
    SF_TRY(read_dtype(o, where, &d));
    return read_curve(o, "elements", "seconds", where, &set->kernel[d][op]);
}

static sf_status read_attention(const json_t *o, const char *where, sf_profile_set *set)
{
    int d, head_dim = (int)json_integer_value(json_object_get(o, "head_dim")), at = 0;

    SF_TRY(read_dtype(o, where, &d));
    while (at < SF_PROFILE_HEAD_DIMS && set->attention[d][at].head_dim != 0)
        at++;
    if (head_dim <= 0 || at == SF_PROFILE_HEAD_DIMS)
        return SF_FAIL(SF_EPARSE, "%s: 'head_dim' %d is wrong or one too many; calibrate again", where, head_dim);
    set->attention[d][at].head_dim = head_dim;
    if (at + 1 > set->n_head_dims)
        set->n_head_dims = at + 1;
    SF_TRY(read_curve(json_object_get(o, "forward"), "seq", "seconds", where, &set->attention[d][at].forward));
    return read_curve(json_object_get(o, "backward"), "seq", "seconds", where, &set->attention[d][at].backward);
}

static sf_status read_collective(const json_t *o, const char *where, sf_profile_set *set)
{
    sf_op_type op;
    int d;

    SF_TRY(read_op(o, where, &op));
    SF_TRY(read_dtype(o, where, &d));
    SF_TRY(read_curve(o, "bytes", "seconds", where, &set->collective[d][op].time));
    return read_curve(o, "bytes", "cpu_seconds", where, &set->collective[d][op].cpu);
}

static sf_status read_list(const json_t *o, const char *key, const char *where, sf_profile_set *set,
                           sf_status (*read)(const json_t *, const char *, sf_profile_set *))
{
    const json_t *array = json_object_get(o, key);
    size_t i;
    json_t *item;

    if (!json_is_array(array))
        return SF_FAIL(SF_EPARSE, "%s: '%s' is missing or no array; calibrate again", where, key);
    json_array_foreach(array, i, item) {
        sf_status st = read(item, where, set);
        if (st.code != SF_OK)
            return sf_status_prefix(st, "%s[%zu]", key, i);
    }
    return SF_SUCCESS;
}

static sf_status read_set(const json_t *o, const char *where, sf_profile_set *set)
{
    const char *transport = json_string_value(json_object_get(o, "transport"));

    set->ranks = (int)json_integer_value(json_object_get(o, "ranks"));
    set->threads = json_is_true(json_object_get(o, "threads"));
    set->issue_s = json_number_value(json_object_get(o, "issue_s"));
    set->op_gap_s = json_number_value(json_object_get(o, "op_gap_s"));
    set->handoff_s = json_number_value(json_object_get(o, "handoff_s"));
    set->overlap_slowdown = json_number_value(json_object_get(o, "overlap_slowdown"));
    if (transport != NULL)
        strncpy(set->transport, transport, sizeof set->transport - 1);
    if (set->ranks < 1 || set->issue_s < 0 || set->op_gap_s < 0 || set->handoff_s < 0 || !(set->overlap_slowdown > 0))
        return SF_FAIL(SF_EPARSE, "%s: a set needs ranks, issue_s, op_gap_s, handoff_s and overlap_slowdown above 0; calibrate again", where);
    SF_TRY(read_list(o, "gemm", where, set, read_grid));
    SF_TRY(read_list(o, "kernels", where, set, read_kernel));
    SF_TRY(read_list(o, "attention", where, set, read_attention));
    return read_list(o, "collectives", where, set, read_collective);
}

sf_status sf_profile_from_json(const json_t *json, const char *where, sf_arena *arena, sf_profile *out)
{
    const char *schema = json_string_value(json_object_get(json, "schema"));
    const json_t *sets = json_object_get(json, "sets");
    size_t i, n = json_array_size(sets);
    json_t *item;

    if (schema == NULL || strcmp(schema, SCHEMA) != 0)
        return SF_FAIL(SF_EPARSE, "%s: not a profile of this version ('schema' is '%s', not '" SCHEMA "'); run `shardfit calibrate`", where,
                       schema != NULL ? schema : "(missing)");
    if (n == 0 || n > SF_PROFILE_SETS)
        return SF_FAIL(SF_EPARSE, "%s: 'sets' must have 1 to %d elements; calibrate again", where, SF_PROFILE_SETS);
    *out = (sf_profile){ .cores = (int)json_integer_value(json_object_get(json, "cores")), .n_sets = (int)n };
    out->sets = SF_NEW_ARRAY(arena, sf_profile_set, n);
    json_array_foreach(sets, i, item) {
        sf_status st = read_set(item, where, &out->sets[i]);
        if (st.code != SF_OK)
            return sf_status_prefix(st, "sets[%zu]", i);
    }
    if (out->cores < 1)
        return SF_FAIL(SF_EPARSE, "%s: 'cores' must be at least 1; calibrate again", where);
    out->provenance = json_incref(json_object_get(json, "provenance"));
    return SF_SUCCESS;
}

sf_status sf_profile_read(const char *path, sf_arena *arena, sf_profile *out)
{
    char *text;
    size_t len;
    json_error_t error;

    SF_TRY(sf_file_read(path, (size_t)64 << 20, arena, &text, &len));
    json_t *json = json_loadb(text, len, 0, &error);
    if (json == NULL)
        return SF_FAIL(SF_EPARSE, "%s:%d:%d: %s", path, error.line, error.column, error.text);
    sf_status st = sf_profile_from_json(json, path, arena, out);
    json_decref(json);
    return st;
}
