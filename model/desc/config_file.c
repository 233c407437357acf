#include "model/desc/config_file.h"

#include <string.h>
#include <sys/stat.h>

#include "model/base/text.h"
#include "model/desc/config_reader.h"
#include "model/desc/hjson.h"
#include "model/desc/job_fields.h"
#include "model/desc/json.h"
#include "model/desc/toml.h"
#include "model/desc/yaml_read.h"

#define NAME(id, name) name,
static const char *const kind_names[] = { SF_CONFIG_KINDS(NAME) };
static const char *const use_names[] = { SF_CONFIG_USES(NAME) };
#undef NAME

const char *sf_config_kind_name(sf_config_kind kind) { return kind_names[kind]; }
const char *sf_config_use_name(sf_config_use use) { return use_names[use]; }

/* ---- which kind ---- */

static bool has_suffix(const char *text, const char *suffix)
{
    size_t n = strlen(text), m = strlen(suffix);
    return n >= m && sf_str_ieq(text + n - m, suffix);
}

static bool has_any(const json_t *object, const char *const *names)
{
    for (; *names != NULL; names++)
        if (json_object_get(object, *names) != NULL)
            return true;
    return false;
}

static bool kind_of(const json_t *root, sf_config_kind *kind)
{
    static const char *const accelerate[] = { "distributed_type", "compute_environment", "fsdp_config", "deepspeed_config", "num_processes", NULL };
    static const char *const torchtitan[] = { "training", "parallelism", "activation_checkpoint", "experimental", NULL };
    static const char *const neox[] = { "pipe_parallel_size", "pipe-parallel-size", "model_parallel_size", "model-parallel-size", "num_layers", "num-layers", NULL };
    static const char *const deepspeed[] = { "zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
                                             "fp16", "bf16", "optimizer", "sparse_attention", "gradient_clipping", "steps_per_print", "autotuning", NULL };
    if (has_any(root, accelerate))
        *kind = SF_CONFIG_ACCELERATE;
    else if (json_is_object(json_object_get(root, "training")) && has_any(root, torchtitan))
        *kind = SF_CONFIG_TORCHTITAN;
    else if (has_any(root, neox))
        *kind = SF_CONFIG_NEOX;
    else if (has_any(root, deepspeed))
        *kind = SF_CONFIG_DEEPSPEED;
    else
        return false;
    return true;
}

/* ---- text to values ---- */

/* Plain JSON, or what DeepSpeed takes for JSON; then it is said that others do not. */
static sf_status parse_json(const char *text, size_t len, const char *place, sf_arena *arena, json_t **out, const char **remark)
{
    sf_status plain = sf_json_parse(text, len, place, out);
    if (plain.code == SF_OK)
        return plain;
    sf_status loose = sf_hjson_parse(text, len, place, arena, out);
    if (loose.code == SF_OK)
        *remark = sf_arena_printf(arena, "not plain JSON (%s); DeepSpeed reads it all the same, Transformers and accelerate do not", plain.msg);
    return loose;
}

static sf_status parse_text(const char *text, size_t len, const char *place, sf_arena *arena, json_t **out, const char **remark)
{
    if (has_suffix(place, ".toml"))
        return sf_toml_parse(text, len, place, out);
    if (has_suffix(place, ".yaml") || has_suffix(place, ".yml"))
        return sf_yaml_parse(text, len, place, arena, out);
    return parse_json(text, len, place, arena, out, remark);
}

static sf_status read_kind(sf_config_reader *r)
{
    switch (r->out->kind) {
    case SF_CONFIG_DEEPSPEED: return sf_config_deepspeed(r);
    case SF_CONFIG_ACCELERATE: return sf_config_accelerate(r);
    case SF_CONFIG_TORCHTITAN: return sf_config_torchtitan(r);
    default: return sf_config_neox(r);
    }
}

sf_status sf_config_parse(const char *text, size_t len, const char *place, sf_arena *arena, sf_config *out)
{
    json_t *root = NULL;
    const char *remark = NULL;
    sf_status st;

    *out = (sf_config){ .file = sf_arena_strdup(arena, place) };
    SF_TRY(parse_text(text, len, place, arena, &root, &remark));
    if (!json_is_object(root)) {
        json_decref(root);
        return SF_FAIL(SF_EPARSE, "%s: a configuration is a map of keys", place);
    }
    if (!kind_of(root, &out->kind) && json_object_size(root) == 0 && has_suffix(place, ".json"))
        out->kind = SF_CONFIG_DEEPSPEED; /* {} : all defaults */
    else if (!kind_of(root, &out->kind)) {
        json_decref(root);
        return SF_FAIL(SF_EPARSE, "%s: neither a DeepSpeed, accelerate, torchtitan nor GPT-NeoX configuration: none of their keys is there", place);
    }
    out->job = json_object();
    sf_config_reader r = { .place = place, .arena = arena, .out = out, .root = root };
    if (remark != NULL)
        sf_config_note_add(&r, "(the file)", json_null(), SF_CONFIG_UNKNOWN, NULL, remark);
    st = read_kind(&r);
    json_decref(root);
    if (st.code != SF_OK)
        sf_config_close(out);
    return st;
}

sf_status sf_config_read(const char *path, sf_arena *arena, sf_config *out)
{
    enum { MOST_BYTES = 4 << 20 };
    char *text;
    size_t len;

    *out = (sf_config){ .file = path };
    SF_TRY(sf_file_read(path, MOST_BYTES, arena, &text, &len));
    return sf_config_parse(text, len, path, arena, out);
}

void sf_config_close(sf_config *config)
{
    json_decref(config->job);
    config->job = NULL;
}

/* ---- into a job ---- */

static const char *const file_keys[] = { "deepspeed_config", "accelerate_config", "torchtitan_config", "config", NULL };

/* Takes the file's name out of the job or its strategy. */
static const char *take_name(json_t *object, sf_arena *arena)
{
    for (const char *const *key = file_keys; *key != NULL; key++) {
        const json_t *value = json_object_get(object, *key);
        if (!json_is_string(value))
            continue;
        const char *name = sf_arena_strdup(arena, json_string_value(value));
        json_object_del(object, *key);
        return name;
    }
    return NULL;
}

/* What the job states stays; the rest is filled in. */
static void fill(json_t *job, const json_t *from)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)from, key, value)
    {
        json_t *mine = json_object_get(job, key);
        if (mine == NULL)
            json_object_set_new(job, key, json_deep_copy(value));
        else if (json_is_object(mine) && json_is_object(value))
            fill(mine, value);
    }
}

/* DeepSpeed ignores a stage's knobs in another stage, and FSDP2 has not FSDP1's: such a field leaves, and is noted. */
static void drop_foreign(json_t *object, const char *prefix, unsigned bits, sf_config *notes, sf_arena *arena, const json_t *stated)
{
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(object, next, key, value)
    {
        const char *path = prefix[0] == '\0' ? key : sf_arena_printf(arena, "%s.%s", prefix, key);
        if (json_is_object(value)) {
            drop_foreign(value, path, bits, notes, arena, stated);
            continue;
        }
        const sf_field *f = sf_job_field_find(path);
        if (f == NULL || (f->has & bits) != 0 || sf_config_at(stated, path) != NULL)
            continue;
        for (size_t i = 0; i < notes->n_notes; i++)
            if (notes->notes[i].path != NULL && strcmp(notes->notes[i].path, path) == 0) {
                notes->notes[i].use = SF_CONFIG_NO_EFFECT;
                notes->notes[i].why = "this strategy does not read it";
            }
        json_object_del(object, key);
    }
}

static int64_t choice_of(const json_t *job, const char *path)
{
    const sf_field *f = sf_job_field_find(path);
    const char *text = json_string_value(sf_config_at(job, path));
    for (int64_t i = 0; text != NULL && f->choices[i] != NULL; i++)
        if (sf_str_ieq(text, f->choices[i]))
            return i;
    return (int64_t)f->otherwise;
}

static sf_status open_file(const char *name, const char *place, sf_arena *arena, sf_config *out)
{
    struct stat there;
    const char *slash = strrchr(place, '/');
    const char *beside = name[0] == '/' || slash == NULL ? name : sf_arena_printf(arena, "%.*s%s", (int)(slash + 1 - place), place, name);
    return sf_config_read(stat(beside, &there) == 0 ? beside : name, arena, out);
}

sf_status sf_config_apply(json_t *job, const char *place, sf_arena *arena, sf_config *out)
{
    json_t *strategy = json_object_get(job, "strategy");
    const char *name = take_name(job, arena);
    sf_config config = { 0 };

    if (out != NULL)
        *out = config;
    if (name == NULL)
        name = take_name(strategy, arena);
    if (name == NULL)
        return SF_SUCCESS;
    SF_TRY(open_file(name, place, arena, &config));
    if (json_is_string(strategy)) {
        json_t *object = json_object();
        json_object_set(object, "name", strategy);
        json_object_set_new(job, "strategy", object);
    }
    json_t *stated = json_deep_copy(job);
    fill(job, config.job);
    drop_foreign(job, "", sf_job_field_bits(choice_of(job, "framework"), choice_of(job, "strategy.name")), &config, arena, stated);
    json_decref(stated);
    if (out != NULL)
        *out = config;
    else
        sf_config_close(&config);
    return SF_SUCCESS;
}
