#include "model/cost/collective_cost_profile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/base/text.h"
#include "model/desc/json.h"

static const char schema[] = "shardfit-collectives-1";

double sf_collective_curve_time(const sf_collective_curve *c, double bytes)
{
    if (c->n == 1)
        return bytes > c->bytes[0] ? c->time_s[0] * bytes / c->bytes[0] : c->time_s[0];
    if (bytes <= c->bytes[0])
        return c->time_s[0];
    if (bytes >= c->bytes[c->n - 1]) {
        double slope = (c->time_s[c->n - 1] - c->time_s[c->n - 2]) / (c->bytes[c->n - 1] - c->bytes[c->n - 2]);
        if (slope <= 0)
            slope = c->time_s[c->n - 1] / c->bytes[c->n - 1];
        return c->time_s[c->n - 1] + slope * (bytes - c->bytes[c->n - 1]);
    }
    int low = 0, high = c->n - 1;
    while (high - low > 1) {
        int mid = (low + high) / 2;
        if (c->bytes[mid] <= bytes)
            low = mid;
        else
            high = mid;
    }
    double at = log(bytes / c->bytes[low]) / log(c->bytes[high] / c->bytes[low]);
    return c->time_s[low] * pow(c->time_s[high] / c->time_s[low], at);
}

const sf_collective_curve *sf_collective_profile_find(const sf_collective_profile *p, sf_collective op, int ranks, int nodes)
{
    for (size_t i = 0; i < p->n_curves; i++)
        if (p->curves[i].op == op && p->curves[i].ranks == ranks && p->curves[i].nodes == nodes)
            return &p->curves[i];
    return NULL;
}

/* How far a curve is from what is asked; the smallest speaks. Rings of all-gather and reduce-scatter
 * tell about each other more than all-reduce (its trees and NVLS) does; sends and receives apart. */
static double distance(const sf_collective_curve *c, sf_collective op, int ranks, int nodes)
{
    static const int kind[SF_COLL_COUNT] = {
        [SF_COLL_ALL_REDUCE] = 2, [SF_COLL_ALL_GATHER] = 0, [SF_COLL_REDUCE_SCATTER] = 0, [SF_COLL_BROADCAST] = 1,
        [SF_COLL_REDUCE] = 1, [SF_COLL_ALL_TO_ALL] = 5, [SF_COLL_SEND_RECV] = 5, [SF_COLL_GATHER] = 5, [SF_COLL_SCATTER] = 5,
    };
    double of_op = c->op == op ? 0 : .5 + abs(kind[c->op] - kind[op]);
    double of_group = fabs(log2((double)c->ranks / ranks)) + fabs(log2((double)c->nodes / nodes));
    return of_op + 10 * of_group;
}

const sf_collective_curve *sf_collective_profile_nearest(const sf_collective_profile *p, sf_collective op, int ranks, int nodes)
{
    const sf_collective_curve *best = NULL;
    for (size_t i = 0; i < p->n_curves; i++) {
        const sf_collective_curve *c = &p->curves[i];
        if ((c->nodes > 1) != (nodes > 1))
            continue;
        if (best == NULL || distance(c, op, ranks, nodes) < distance(best, op, ranks, nodes))
            best = c;
    }
    return best;
}

static int by_bytes_then_time(const void *a, const void *b)
{
    const sf_nccl_log_row *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return x->time_s < y->time_s ? -1 : x->time_s > y->time_s;
}

/* Sorted rows to a curve; with more sizes than fit, evenly picked ones, first and last kept. */
static void curve_of_rows(sf_nccl_log_row *rows, size_t n_rows, sf_collective_curve *out)
{
    qsort(rows, n_rows, sizeof *rows, by_bytes_then_time);
    size_t n = 0;
    for (size_t i = 0, next; i < n_rows; i = next) {
        for (next = i; next < n_rows && rows[next].bytes == rows[i].bytes; next++)
            ;
        rows[n++] = rows[(i + next - 1) / 2]; /* median */
    }
    size_t kept = n < SF_COLLECTIVE_CURVE_POINTS ? n : SF_COLLECTIVE_CURVE_POINTS;
    for (size_t i = 0; i < kept; i++) {
        const sf_nccl_log_row *row = &rows[kept == 1 ? 0 : i * (n - 1) / (kept - 1)];
        out->bytes[i] = (double)row->bytes;
        out->time_s[i] = row->time_s;
    }
    out->n = (int)kept;
}

static void put_curve(sf_collective_profile *p, sf_arena *arena, const sf_collective_curve *curve)
{
    for (size_t i = 0; i < p->n_curves; i++)
        if (p->curves[i].op == curve->op && p->curves[i].ranks == curve->ranks && p->curves[i].nodes == curve->nodes) {
            p->curves[i] = *curve;
            return;
        }
    SF_PUSH(arena, p->curves, p->n_curves, p->cap_curves) = *curve;
}

sf_status sf_collective_profile_import(const sf_nccl_log *log, int nodes, sf_arena *arena, sf_collective_profile *p)
{
    if (nodes <= 0)
        nodes = log->nodes;
    if (nodes <= 0)
        return SF_FAIL(SF_EINVAL, "%s does not tell the number of nodes; give --nodes", log->place);
    for (size_t i = 0; i < log->n_rows; i++) {
        if (log->rows[i].op == SF_COLL_COUNT)
            return SF_FAIL(SF_EINVAL, "%s:%d does not tell which collective it is; name it, for example all_reduce", log->place,
                           log->rows[i].line);
        if (log->rows[i].ranks < 2)
            return SF_FAIL(SF_EINVAL, "%s does not tell the number of ranks; give --gpus and --nodes", log->place);
    }
    SF_PUSH(arena, p->sources, p->n_sources, p->cap_sources) =
        (sf_collective_source){ .file = log->place, .gpu = log->gpu, .nccl_version = log->nccl_version };

    bool *taken = SF_NEW_ARRAY(arena, bool, log->n_rows);
    for (size_t i = 0; i < log->n_rows; i++) {
        if (taken[i])
            continue;
        sf_nccl_log_row *rows = SF_NEW_ARRAY(arena, sf_nccl_log_row, log->n_rows);
        size_t n = 0;
        for (size_t j = i; j < log->n_rows; j++)
            if (log->rows[j].op == log->rows[i].op && log->rows[j].ranks == log->rows[i].ranks) {
                taken[j] = true;
                rows[n++] = log->rows[j];
            }
        sf_collective_curve curve = { .op = rows[0].op, .ranks = rows[0].ranks, .nodes = nodes, .source = (int)p->n_sources - 1 };
        curve_of_rows(rows, n, &curve);
        put_curve(p, arena, &curve);
    }
    return SF_SUCCESS;
}

json_t *sf_collective_profile_to_json(const sf_collective_profile *p)
{
    json_t *sources = json_array(), *curves = json_array();
    for (size_t i = 0; i < p->n_sources; i++) {
        const char *base = strrchr(p->sources[i].file, '/');
        json_array_append_new(sources, json_pack("{s:s, s:s, s:s, s:i}", "tool", "nccl-tests", "file",
                                                 base == NULL ? p->sources[i].file : base + 1, "gpu", p->sources[i].gpu,
                                                 "nccl_version", p->sources[i].nccl_version));
    }
    for (size_t i = 0; i < p->n_curves; i++) {
        const sf_collective_curve *c = &p->curves[i];
        json_t *points = json_array();
        for (int k = 0; k < c->n; k++)
            json_array_append_new(points, json_pack("[I, f]", (json_int_t)c->bytes[k], c->time_s[k]));
        json_array_append_new(curves, json_pack("{s:s, s:i, s:i, s:i, s:o}", "collective", sf_collective_name(c->op), "ranks",
                                                c->ranks, "nodes", c->nodes, "source", c->source, "points", points));
    }
    return json_pack("{s:s, s:o, s:o}", "schema", schema, "sources", sources, "curves", curves);
}

sf_status sf_collective_profile_write(const char *path, const sf_collective_profile *p)
{
    json_t *root = sf_collective_profile_to_json(p);
    char *text = json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    json_decref(root);
    if (text == NULL)
        return SF_FAIL(SF_EIO, "the profile could not be written as JSON");
    sf_status st = sf_file_write(path, text, strlen(text));
    free(text);
    return st;
}

static sf_status curve_from_json(const json_t *o, const char *place, size_t i, size_t n_sources, sf_collective_curve *out)
{
    const char *name = json_string_value(json_object_get(o, "collective"));
    const json_t *points = json_object_get(o, "points");
    *out = (sf_collective_curve){ .op = name == NULL ? SF_COLL_COUNT : sf_collective_by_name(name),
                                  .ranks = (int)json_integer_value(json_object_get(o, "ranks")),
                                  .nodes = (int)json_integer_value(json_object_get(o, "nodes")), .source = -1 };
    if (out->op == SF_COLL_COUNT)
        return SF_FAIL(SF_EPARSE, "%s: curves[%zu].collective is missing or unknown", place, i);
    if (out->ranks < 2 || out->nodes < 1 || out->nodes > out->ranks)
        return SF_FAIL(SF_EPARSE, "%s: curves[%zu] has %d ranks on %d nodes; ranks >= 2 and nodes from 1 to ranks are needed",
                       place, i, out->ranks, out->nodes);
    size_t n = json_array_size(points);
    if (n < 1 || n > SF_COLLECTIVE_CURVE_POINTS)
        return SF_FAIL(SF_EPARSE, "%s: curves[%zu].points has %zu points; 1 to %d are needed", place, i, n, SF_COLLECTIVE_CURVE_POINTS);
    for (size_t k = 0; k < n; k++) {
        const json_t *point = json_array_get(points, k);
        double bytes = json_number_value(json_array_get(point, 0)), time_s = json_number_value(json_array_get(point, 1));
        if (!(bytes > 0) || !(time_s > 0) || (k > 0 && bytes <= out->bytes[k - 1]))
            return SF_FAIL(SF_EPARSE, "%s: curves[%zu].points[%zu] must be [bytes, seconds], positive, bytes ascending", place, i, k);
        out->bytes[k] = bytes;
        out->time_s[k] = time_s;
    }
    out->n = (int)n;
    json_int_t source = json_integer_value(json_object_get(o, "source"));
    if (source >= 0 && (size_t)source < n_sources)
        out->source = (int)source;
    return SF_SUCCESS;
}

static const char *text_of(const json_t *o, const char *key, sf_arena *arena)
{
    const char *text = json_string_value(json_object_get(o, key));
    return text == NULL ? "" : sf_arena_strdup(arena, text);
}

sf_status sf_collective_profile_from_json(const json_t *o, const char *place, sf_arena *arena, sf_collective_profile *out)
{
    *out = (sf_collective_profile){ 0 };
    const char *given = json_string_value(json_object_get(o, "schema"));
    if (given == NULL || strcmp(given, schema) != 0)
        return SF_FAIL(SF_EPARSE, "%s: schema is '%s', not '%s'; write it with `shardfit calibrate --nccl-tests LOG`", place,
                       given == NULL ? "" : given, schema);
    size_t i;
    const json_t *item;
    json_array_foreach(json_object_get(o, "sources"), i, item)
        SF_PUSH(arena, out->sources, out->n_sources, out->cap_sources) = (sf_collective_source){
            .file = text_of(item, "file", arena), .gpu = text_of(item, "gpu", arena),
            .nccl_version = (int)json_integer_value(json_object_get(item, "nccl_version")) };
    json_array_foreach(json_object_get(o, "curves"), i, item) {
        sf_collective_curve curve;
        SF_TRY(curve_from_json(item, place, i, out->n_sources, &curve));
        put_curve(out, arena, &curve);
    }
    if (out->n_curves == 0)
        return SF_FAIL(SF_EPARSE, "%s: curves is empty or missing", place);
    return SF_SUCCESS;
}

sf_status sf_collective_profile_read(const char *path, sf_arena *arena, sf_collective_profile *out)
{
    json_t *root;
    SF_TRY(sf_json_read(path, &root));
    sf_status st = sf_collective_profile_from_json(root, path, arena, out);
    json_decref(root);
    return st;
}
