#include "model/desc/config_reader.h"

#include <stdlib.h>
#include <string.h>

#include "model/base/text.h"
#include "model/desc/job_fields.h"
#include "model/desc/json.h"

/* ---- notes ---- */

static const char *short_json(sf_arena *arena, const json_t *value)
{
    enum { LONGEST = 60 };
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(12));
    const char *kept = text == NULL ? "" : strlen(text) <= LONGEST ? sf_arena_strdup(arena, text) : sf_arena_printf(arena, "%.*s...", LONGEST - 3, text);
    free(text);
    return kept;
}

void sf_config_note_add(sf_config_reader *r, const char *key, const json_t *value, sf_config_use use, const char *path, const char *why)
{
    sf_config *c = r->out;
    SF_PUSH(r->arena, c->notes, c->n_notes, c->cap_notes) =
        (sf_config_note){ sf_arena_strdup(r->arena, key), short_json(r->arena, value), use, path, why };
}

/* ---- values ---- */

const json_t *sf_config_at(const json_t *object, const char *path)
{
    char part[128];
    while (object != NULL && *path != '\0') {
        size_t len = strcspn(path, ".");
        if (len >= sizeof part)
            return NULL;
        memcpy(part, path, len);
        part[len] = '\0';
        object = json_object_get(object, part);
        path += path[len] == '.' ? len + 1 : len;
    }
    return object;
}

bool sf_config_is_auto(const json_t *value)
{
    return json_is_string(value) && sf_str_ieq(json_string_value(value), "auto");
}

static sf_status placeholder(const sf_config_reader *r, const char *key, const json_t *value, const char *kind)
{
    return SF_FAIL(SF_EINVAL, "%s: %s is %s where %s belongs; if it is a placeholder, fill it in", r->place, key, short_json(r->arena, value), kind);
}

sf_status sf_config_int(const sf_config_reader *r, const char *key, const json_t *value, int64_t *out)
{
    return sf_json_to_int(value, out) ? SF_SUCCESS : placeholder(r, key, value, "a whole number");
}

sf_status sf_config_bool(const sf_config_reader *r, const char *key, const json_t *value, bool *out)
{
    return sf_json_to_bool(value, out) ? SF_SUCCESS : placeholder(r, key, value, "true or false");
}

/* ---- the job's fields ---- */

static void put(json_t *object, const char *path, json_t *value)
{
    char part[128] = { 0 };
    size_t len = strcspn(path, ".");
    memcpy(part, path, len < sizeof part ? len : sizeof part - 1);
    if (path[len] == '\0') {
        json_object_set_new(object, part, value);
        return;
    }
    json_t *inner = json_object_get(object, part);
    if (!json_is_object(inner)) {
        inner = json_object();
        json_object_set_new(object, part, inner);
    }
    put(inner, path + len + 1, value);
}

void sf_config_set_text(sf_config_reader *r, const char *path, const char *value) { put(r->out->job, path, json_string(value)); }
void sf_config_set_int(sf_config_reader *r, const char *path, int64_t value) { put(r->out->job, path, json_integer(value)); }
void sf_config_set_bool(sf_config_reader *r, const char *path, bool value) { put(r->out->job, path, json_boolean(value)); }
const json_t *sf_config_get(const sf_config_reader *r, const char *path) { return sf_config_at(r->out->job, path); }

sf_status sf_config_set(sf_config_reader *r, const char *key, const char *path, const json_t *value)
{
    const sf_field *f = sf_job_field_find(path);
    int64_t whole;
    double real;
    bool truth;

    if (f != NULL && f->type == SF_FIELD_INT && !sf_json_to_int(value, &whole))
        return placeholder(r, key, value, "a whole number");
    if (f != NULL && f->type == SF_FIELD_REAL && !sf_json_to_real(value, &real))
        return placeholder(r, key, value, "a number");
    if (f != NULL && f->type == SF_FIELD_BOOL && !sf_json_to_bool(value, &truth))
        return placeholder(r, key, value, "true or false");
    if (f != NULL && f->type == SF_FIELD_INT)
        put(r->out->job, path, json_integer(whole));
    else if (f != NULL && f->type == SF_FIELD_REAL)
        put(r->out->job, path, json_real(real));
    else if (f != NULL && f->type == SF_FIELD_BOOL)
        put(r->out->job, path, json_boolean(truth));
    else
        put(r->out->job, path, json_deep_copy(value));
    return SF_SUCCESS;
}

/* ---- the walk ---- */

static bool row_matches(const char *pattern, const char *key)
{
    size_t len = strlen(pattern);
    if (len > 2 && sf_str_eq(pattern + len - 2, ".*"))
        return strncmp(pattern, key, len - 2) == 0 && (key[len - 2] == '.' || key[len - 2] == '\0');
    if (len > 0 && pattern[len - 1] == '*')
        return strncmp(pattern, key, len - 1) == 0;
    return strcmp(pattern, key) == 0;
}

static const sf_config_row *find_row(const sf_config_row *rows, const char *key)
{
    for (; rows->key != NULL; rows++)
        if (row_matches(rows->key, key))
            return rows;
    return NULL;
}

/* A row that speaks of something below this key. */
static bool speaks_below(const sf_config_row *rows, const sf_config_row *except, const char *key)
{
    size_t len = strlen(key);
    for (; rows->key != NULL; rows++)
        if (rows != except && strncmp(rows->key, key, len) == 0 && rows->key[len] == '.')
            return true;
    return false;
}

static sf_status read_leaf(sf_config_reader *r, const sf_config_row *row, const char *key, const json_t *value)
{
    if (row->fn != NULL)
        return row->fn(r, key, value);
    if (row->use == SF_CONFIG_TAKEN && (sf_config_is_auto(value) || json_is_null(value))) {
        sf_config_note_add(r, key, value, SF_CONFIG_AUTO, row->path, row->why);
        return SF_SUCCESS;
    }
    if (row->use == SF_CONFIG_TAKEN)
        SF_TRY(sf_config_set(r, key, row->path, value));
    sf_config_note_add(r, key, value, row->use, row->path, row->why);
    return SF_SUCCESS;
}

sf_status sf_config_walk(sf_config_reader *r, const char *prefix, const json_t *object)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value)
    {
        const char *key = prefix[0] == '\0' ? name : sf_arena_printf(r->arena, "%s.%s", prefix, name);
        const sf_config_row *row = find_row(r->rows, key);
        bool whole = row != NULL && (!json_is_object(value) || strcmp(row->key, key) == 0 || !speaks_below(r->rows, row, key));
        if (whole)
            SF_TRY(read_leaf(r, row, key, value));
        else if (json_is_object(value))
            SF_TRY(sf_config_walk(r, key, value));
        else
            sf_config_note_add(r, key, value, SF_CONFIG_UNKNOWN, NULL, sf_arena_printf(r->arena, "%s has no such key here; it is not taken", r->framework));
    }
    return SF_SUCCESS;
}
