#include "model/desc/job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/base/text.h"
#include "model/base/units.h"
#include "model/desc/config_file.h"
#include "model/desc/job_check.h"
#include "model/desc/job_fields.h"
#include "model/desc/json.h"

enum { MOST_STATED = 512 };

typedef struct {
    const char *place;
    sf_arena *arena;
    sf_job *job;
    const sf_field *stated[MOST_STATED];
    size_t n_stated;
} reader;

static void *slot(sf_job *job, const sf_field *f)
{
    return (char *)job + f->offset;
}

static void set_number(sf_job *job, const sf_field *f, double value)
{
    switch (f->type) {
    case SF_FIELD_REAL: *(double *)slot(job, f) = value; break;
    case SF_FIELD_BOOL: *(bool *)slot(job, f) = value != 0; break;
    case SF_FIELD_TEXT: *(const char **)slot(job, f) = ""; break;
    case SF_FIELD_LIST: *(sf_int_list *)slot(job, f) = (sf_int_list){ value < 0 ? 0 : 1, { value < 0 ? 0 : (int64_t)value } }; break;
    default: *(int64_t *)slot(job, f) = (int64_t)value; break;
    }
}

static size_t choice_count(const sf_field *f)
{
    size_t n = 0;
    while (f->choices[n] != NULL)
        n++;
    return n;
}

/* ---- values ---- */

static sf_status set_choice(reader *r, const sf_field *f, const json_t *value)
{
    /* null stands for the choice that is named so */
    const char *text = json_is_string(value) ? json_string_value(value) : json_is_null(value) ? "none" : NULL;
    for (size_t i = 0; text != NULL && f->choices[i] != NULL; i++)
        if (sf_str_ieq(text, f->choices[i])) {
            *(int64_t *)slot(r->job, f) = (int64_t)i;
            return SF_SUCCESS;
        }
    if (text == NULL)
        return SF_FAIL(SF_EINVAL, "%s: %s is a name: one of %s", r->place, f->path,
                       sf_str_nearest("", f->choices, choice_count(f), r->arena));
    return SF_FAIL(SF_EINVAL, "%s: %s '%s' is unknown; did you mean %s?", r->place, f->path, text,
                   sf_str_nearest(text, f->choices, choice_count(f), r->arena));
}

/* An array of whole numbers; one number stands for an array of it, null for none. */
static sf_status set_list(reader *r, const sf_field *f, const json_t *value)
{
    sf_int_list list = { 0 };
    size_t n = json_is_array(value) ? json_array_size(value) : json_is_null(value) ? 0 : 1;
    if (n > SF_MOST_LIST)
        return SF_FAIL(SF_EINVAL, "%s: %s has %zu numbers; at most %d are taken", r->place, f->path, n, SF_MOST_LIST);
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_is_array(value) ? json_array_get(value, i) : value;
        if (!sf_json_to_int(item, &list.v[i]))
            return SF_FAIL(SF_EINVAL, "%s: %s is a list of whole numbers", r->place, f->path);
        if ((double)list.v[i] < f->least || (double)list.v[i] > f->most)
            return SF_FAIL(SF_EINVAL, "%s: %s has %lld, outside %.10g to %.10g", r->place, f->path, (long long)list.v[i], f->least, f->most);
    }
    list.n = (int64_t)n;
    *(sf_int_list *)slot(r->job, f) = list;
    return SF_SUCCESS;
}

static sf_status set_value(reader *r, const sf_field *f, const json_t *value)
{
    double number;
    int64_t whole;
    bool truth;

    switch (f->type) {
    case SF_FIELD_CHOICE:
        return set_choice(r, f, value);
    case SF_FIELD_LIST:
        return set_list(r, f, value);
    case SF_FIELD_TEXT:
        if (!json_is_string(value))
            return SF_FAIL(SF_EINVAL, "%s: %s is a text", r->place, f->path);
        *(const char **)slot(r->job, f) = sf_arena_strdup(r->arena, json_string_value(value));
        return SF_SUCCESS;
    case SF_FIELD_BOOL:
        if (!sf_json_to_bool(value, &truth))
            return SF_FAIL(SF_EINVAL, "%s: %s is true or false", r->place, f->path);
        *(bool *)slot(r->job, f) = truth;
        return SF_SUCCESS;
    case SF_FIELD_TRI:
        if (json_is_null(value)) {
            *(int64_t *)slot(r->job, f) = SF_AUTO;
            return SF_SUCCESS;
        }
        if (json_is_boolean(value)) {
            *(int64_t *)slot(r->job, f) = json_is_true(value);
            return SF_SUCCESS;
        }
        break;
    default:
        break;
    }
    if (f->type == SF_FIELD_REAL ? !sf_json_to_real(value, &number) : !sf_json_to_int(value, &whole))
        return SF_FAIL(SF_EINVAL, "%s: %s is a %snumber", r->place, f->path, f->type == SF_FIELD_REAL ? "" : "whole ");
    if (f->type != SF_FIELD_REAL)
        number = (double)whole;
    if (number < f->least || number > f->most)
        return SF_FAIL(SF_EINVAL, "%s: %s %.10g is outside %.10g to %.10g", r->place, f->path, number, f->least, f->most);
    set_number(r->job, f, number);
    return SF_SUCCESS;
}

/* ---- the object, leaf by leaf ---- */

static sf_status unknown(const reader *r, const char *path)
{
    const char **names = SF_NEW_ARRAY(r->arena, const char *, sf_job_field_count + 2);
    size_t n = 0;
    for (size_t i = 0; i < sf_job_field_count; i++)
        names[n++] = sf_job_fields[i].path;
    names[n++] = "model";
    names[n++] = "cluster.gpu";
    return SF_FAIL(SF_EINVAL, "%s: unknown field '%s'; did you mean %s?", r->place, path, sf_str_nearest(path, names, n, r->arena));
}

/* "auto" of the sizes that Transformers derives from the model's hidden size h (integrations/deepspeed.py,
 * trainer_config_finalize): h^2, 0.9 h^2, 10 h. The model is read by then. */
static bool set_hidden_sized(reader *r, const sf_field *f, const json_t *value)
{
    double h = (double)r->job->model.hidden;
    const struct { const char *path; double elements; } sizes[] = {
        { "strategy.reduce_bucket_size", h * h },
        { "strategy.stage3_prefetch_bucket_size", 0.9 * h * h },
        { "strategy.stage3_param_persistence_threshold", 10 * h },
    };
    if (!json_is_string(value) || !sf_str_ieq(json_string_value(value), "auto"))
        return false;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sf_str_eq(f->path, sizes[i].path)) {
            set_number(r->job, f, floor(sizes[i].elements));
            return true;
        }
    return false;
}

static sf_status read_leaf(reader *r, const char *path, const json_t *value)
{
    const sf_field *f = sf_job_field_find(path);
    if (f == NULL)
        return unknown(r, path);
    if (!set_hidden_sized(r, f, value))
        SF_TRY(set_value(r, f, value));
    if (r->n_stated < MOST_STATED)
        r->stated[r->n_stated++] = f;
    return SF_SUCCESS;
}

static sf_status read_object(reader *r, const char *prefix, const json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        const char *path = prefix[0] == '\0' ? key : sf_arena_printf(r->arena, "%s.%s", prefix, key);
        if (sf_str_eq(path, "model") || sf_str_eq(path, "cluster.gpu"))
            continue; /* read apart */
        if (sf_str_eq(path, "strategy") && json_is_string(value))
            SF_TRY(read_leaf(r, "strategy.name", value));
        else if (json_is_object(value))
            SF_TRY(read_object(r, path, value));
        else
            SF_TRY(read_leaf(r, path, value));
    }
    return SF_SUCCESS;
}

/* An override's text as JSON where it is JSON, else as a string. */
static json_t *override_value(const char *text)
{
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
    return value != NULL ? value : json_string(text);
}

static sf_status apply_override(json_t *object, const sf_override *o, sf_arena *arena)
{
    char *path = sf_arena_strdup(arena, o->path), *state = NULL;
    char *key = strtok_r(path, ".", &state);
    json_t *at = object;

    if (key == NULL)
        return SF_FAIL(SF_EINVAL, "an override is written path=value, for example train.micro_batch=4");
    for (char *next; (next = strtok_r(NULL, ".", &state)) != NULL; key = next) {
        json_t *inner = json_object_get(at, key);
        if (inner == NULL || !json_is_object(inner)) {
            json_t *fresh = json_object();
            if (json_is_string(inner) && sf_str_eq(key, "strategy")) /* "strategy": "ddp" means its name */
                json_object_set(fresh, "name", inner);
            json_object_set_new(at, key, fresh);
            inner = fresh;
        }
        at = inner;
    }
    json_object_set_new(at, key, override_value(o->value));
    return SF_SUCCESS;
}

/* "--set model.num_hidden_layers=4" of a named model changes that field of its configuration. */
static sf_status open_named_model(json_t *object, const sf_override *o, const char *place, sf_arena *arena)
{
    const json_t *model = json_object_get(object, "model");
    json_t *config = NULL;

    if (!sf_str_starts(o->path, "model.") || !json_is_string(model))
        return SF_SUCCESS;
    SF_TRY(sf_status_prefix(sf_transformer_find_config(json_string_value(model), arena, &config), "%s", place));
    json_object_set_new(config, "_name_or_path", json_string(sf_arena_printf(arena, "%s with changes", json_string_value(model))));
    json_object_set_new(object, "model", config);
    return SF_SUCCESS;
}

/* A field that the configuration does not have may be one that it has under another name. */
static sf_status check_model_override(const json_t *object, const sf_override *o, const char *place, sf_arena *arena)
{
    const json_t *model = json_object_get(object, "model");
    const char *key, **names = NULL, *field = o->path + strlen("model.");
    size_t n = 0, cap = 0;
    json_t *value;

    if (!sf_str_starts(o->path, "model.") || !json_is_object(model) || json_object_size(model) == 0)
        return SF_SUCCESS;
    const char *dot = strchr(field, '.');
    const char *top = dot == NULL ? field : sf_arena_strndup(arena, field, (size_t)(dot - field));
    if (json_object_get(model, top) != NULL)
        return SF_SUCCESS;
    json_object_foreach((json_t *)model, key, value)
        SF_PUSH(arena, names, n, cap) = key;
    return SF_FAIL(SF_EINVAL, "%s: the model's configuration has no field '%s' to set; the nearest that it has are %s", place, top,
                   sf_str_nearest(top, names, n, arena));
}

static sf_status read_model(reader *r, const json_t *model)
{
    if (model == NULL || json_is_null(model))
        return SF_FAIL(SF_EINVAL, "%s: 'model' is missing: a name of the catalogue, a config.json or such an object", r->place);
    if (json_is_string(model))
        return sf_status_prefix(sf_transformer_find(json_string_value(model), r->arena, &r->job->model), "%s", r->place);
    const char *name = json_string_value(json_object_get(model, "_name_or_path"));
    SF_TRY(sf_transformer_from_json(model, sf_arena_printf(r->arena, "%s: model", r->place), r->arena, &r->job->model));
    if (name != NULL && name[0] != '\0')
        r->job->model.name = sf_arena_strdup(r->arena, name);
    return SF_SUCCESS;
}

/* ---- what was stated ---- */

static bool is_stated(const reader *r, const char *path)
{
    for (size_t i = 0; i < r->n_stated; i++)
        if (sf_str_eq(r->stated[i]->path, path))
            return true;
    return false;
}

/* Whose behaviour, where the job does not say: this machine runs our executor; the ZeRO stages are DeepSpeed's. */
static void infer_framework(reader *r)
{
    int64_t s = r->job->strategy.name;
    if (is_stated(r, "framework"))
        return;
    if (r->job->cluster.gpu.is_host)
        r->job->framework = SF_FRAMEWORK_SHARDFIT;
    else if (s == SF_STRATEGY_ZERO1 || s == SF_STRATEGY_ZERO2 || s == SF_STRATEGY_ZERO3)
        r->job->framework = SF_FRAMEWORK_DEEPSPEED;
}

/* FSDP reduces in every micro-step unless the program enters no_sync(); the others leave it to the last one. */
static void infer_sync(reader *r)
{
    int64_t s = r->job->strategy.name;
    if (!is_stated(r, "train.sync_each_micro_step"))
        r->job->train.sync_each_micro_step = r->job->framework == SF_FRAMEWORK_PYTORCH && (s == SF_STRATEGY_FSDP || s == SF_STRATEGY_FSDP2);
}

static sf_status read_gpu(reader *r, const json_t *gpu)
{
    if (gpu == NULL && r->job->framework == SF_FRAMEWORK_SHARDFIT)
        return sf_gpu_find("host", 0, r->arena, &r->job->cluster.gpu);
    if (gpu == NULL)
        return SF_FAIL(SF_EINVAL, "%s: 'cluster.gpu' is missing: a name such as \"A100 SXM4 80GB\", or \"host\" for this machine", r->place);
    if (!json_is_string(gpu) && !json_is_integer(gpu))
        return SF_FAIL(SF_EINVAL, "%s: cluster.gpu is a name", r->place);
    /* --gpu 4090 looks like a number */
    const char *name = json_is_string(gpu) ? json_string_value(gpu) : sf_arena_printf(r->arena, "%lld", (long long)json_integer_value(gpu));
    return sf_status_prefix(sf_gpu_find(name, 0, r->arena, &r->job->cluster.gpu), "%s: cluster.gpu", r->place);
}

static sf_status check_knobs(const reader *r)
{
    const sf_job *job = r->job;
    unsigned bits = sf_job_field_bits(job->framework, job->strategy.name);
    for (size_t i = 0; i < r->n_stated; i++)
        if ((r->stated[i]->has & bits) == 0)
            return SF_FAIL(SF_EINVAL, "%s: %s has no meaning for strategy %s of framework %s; remove it", r->place, r->stated[i]->path,
                           sf_strategy_name(job->strategy.name), sf_framework_name(job->framework));
    return SF_SUCCESS;
}

/* A field's default matters always, or where the job has several nodes, or where it offloads. */
static bool default_matters(const sf_job *job, const sf_field *f)
{
    bool offloads = job->strategy.cpu_offload || job->strategy.offload_optimizer_device != SF_DEVICE_NONE ||
                    job->strategy.offload_param_device != SF_DEVICE_NONE;
    if (sf_str_eq(f->path, "cluster.inter.nics") || sf_str_eq(f->path, "cluster.inter.gbit_per_nic"))
        return job->cluster.nodes > 1 && job->cluster.topology[0] == '\0';
    if (sf_str_eq(f->path, "cluster.host_memory_gib"))
        return offloads && !job->cluster.gpu.is_host;
    return f->matters;
}

static void note_assumed(reader *r)
{
    sf_job *job = r->job;
    unsigned bits = sf_job_field_bits(job->framework, job->strategy.name);
    for (size_t i = 0; i < sf_job_field_count; i++) {
        const sf_field *f = &sf_job_fields[i];
        if (default_matters(job, f) && (f->has & bits) && !is_stated(r, f->path))
            SF_PUSH(r->arena, job->assumed, job->n_assumed, job->cap_assumed) = f->path;
    }
}

/* ---- entries ---- */

static sf_status read_into(reader *r, const json_t *object)
{
    for (size_t i = 0; i < sf_job_field_count; i++)
        set_number(r->job, &sf_job_fields[i], sf_job_fields[i].otherwise);
    SF_TRY(read_model(r, json_object_get(object, "model")));
    SF_TRY(read_object(r, "", object));
    SF_TRY(read_gpu(r, json_object_get(json_object_get(object, "cluster"), "gpu")));
    infer_framework(r);
    infer_sync(r);
    SF_TRY(sf_job_check_frame(r->job, r->place));
    SF_TRY(check_knobs(r));
    SF_TRY(sf_job_check(r->job, is_stated(r, "train.global_batch"), is_stated(r, "train.grad_accum"), r->place, r->arena));
    note_assumed(r);
    return SF_SUCCESS;
}

static sf_status apply(json_t *object, const sf_override *o, const char *place, sf_arena *arena)
{
    SF_TRY(open_named_model(object, o, place, arena));
    SF_TRY(check_model_override(object, o, place, arena));
    return apply_override(object, o, arena);
}

/* What a configuration file states, where the job names one; what of it is not modelled is kept to be said. */
static sf_status apply_config(reader *r, json_t *object)
{
    sf_config config;
    SF_TRY(sf_config_apply(object, r->place, r->arena, &config));
    for (size_t i = 0; i < config.n_notes; i++)
        if (config.notes[i].use == SF_CONFIG_NOT_MODELLED || config.notes[i].use == SF_CONFIG_UNKNOWN)
            SF_PUSH(r->arena, r->job->not_modelled, r->job->n_not_modelled, r->job->cap_not_modelled) =
                sf_arena_printf(r->arena, "%s: %s%s%s", config.file, config.notes[i].key, config.notes[i].why == NULL ? "" : ": ",
                                config.notes[i].why == NULL ? "" : config.notes[i].why);
    sf_config_close(&config);
    return SF_SUCCESS;
}

sf_status sf_job_from_json(const json_t *object, const char *place, const sf_override *overrides, size_t n, sf_arena *arena, sf_job *out)
{
    sf_status st = SF_SUCCESS;
    reader r = { .place = place, .arena = arena, .job = out };

    *out = (sf_job){ 0 };
    if (!json_is_object(object))
        return SF_FAIL(SF_EPARSE, "%s: a job is a JSON object", place);
    out->source = json_deep_copy(object);
    for (size_t i = 0; i < n && st.code == SF_OK; i++)
        st = apply(out->source, &overrides[i], place, arena);
    if (st.code == SF_OK)
        st = apply_config(&r, out->source);
    if (st.code == SF_OK)
        st = read_into(&r, out->source);
    if (st.code != SF_OK)
        sf_job_close(out);
    return st;
}

sf_status sf_job_read(const char *file, const sf_override *overrides, size_t n, sf_arena *arena, sf_job *out)
{
    json_t *object = NULL;

    *out = (sf_job){ 0 };
    if (file == NULL)
        object = json_object();
    else
        SF_TRY(sf_json_read(file, &object));
    sf_status st = sf_job_from_json(object, file == NULL ? "job" : file, overrides, n, arena, out);
    json_decref(object);
    return st;
}

void sf_job_close(sf_job *job)
{
    json_decref(job->source);
    job->source = NULL;
}

bool sf_job_stated(const sf_job *job, const char *path)
{
    char part[128];
    const json_t *at = job->source;
    while (*path != '\0') {
        size_t len = strcspn(path, ".");
        if (len >= sizeof part)
            return false;
        memcpy(part, path, len);
        part[len] = '\0';
        at = json_object_get(at, part);
        if (at == NULL)
            return false;
        path += len + (path[len] == '.');
    }
    return true;
}

/* ---- printing ---- */

static json_t *list_json(const sf_int_list *list)
{
    json_t *array = json_array();
    for (int64_t i = 0; i < list->n; i++)
        json_array_append_new(array, json_integer(list->v[i]));
    return array;
}

static json_t *field_json(const sf_job *job, const sf_field *f)
{
    const void *p = (const char *)job + f->offset;
    int64_t n;
    switch (f->type) {
    case SF_FIELD_REAL: return json_real(*(const double *)p);
    case SF_FIELD_BOOL: return json_boolean(*(const bool *)p);
    case SF_FIELD_TEXT: return json_string(*(const char *const *)p);
    case SF_FIELD_CHOICE: return json_string(f->choices[*(const int64_t *)p]);
    case SF_FIELD_LIST: return list_json(p);
    case SF_FIELD_TRI:
        n = *(const int64_t *)p;
        return n == SF_AUTO ? json_null() : n <= 1 ? json_boolean(n == 1) : json_integer(n);
    default: return json_integer(*(const int64_t *)p);
    }
}

static void set_path(json_t *object, const char *path, json_t *value)
{
    const char *dot = strchr(path, '.');
    if (dot == NULL) {
        json_object_set_new(object, path, value);
        return;
    }
    char key[64] = { 0 };
    memcpy(key, path, (size_t)(dot - path) < sizeof key - 1 ? (size_t)(dot - path) : sizeof key - 1);
    json_t *inner = json_object_get(object, key);
    if (inner == NULL) {
        inner = json_object();
        json_object_set_new(object, key, inner);
    }
    set_path(inner, dot + 1, value);
}

json_t *sf_job_to_json(const sf_job *job)
{
    unsigned bits = sf_job_field_bits(job->framework, job->strategy.name);
    json_t *object = json_object();

    json_object_set(object, "model", json_object_get(job->source, "model"));
    set_path(object, "cluster.gpu", json_string(job->cluster.gpu.name));
    for (size_t i = 0; i < sf_job_field_count; i++)
        if (sf_job_fields[i].has & bits)
            set_path(object, sf_job_fields[i].path, field_json(job, &sf_job_fields[i]));
    return object;
}

uint64_t sf_job_device_bytes(const sf_job *job)
{
    if (job->cluster.device_memory_gib > 0)
        return (uint64_t)(job->cluster.device_memory_gib * (double)SF_GIB);
    return job->cluster.gpu.usable_bytes;
}

uint64_t sf_job_tokens_per_step(const sf_job *job)
{
    return (uint64_t)(job->train.global_batch * job->train.seq_len);
}
