#include "model/desc/transformer_fields.h"

#include "model/base/text.h"

const json_t *sf_config_look(sf_config_reader *r, const char *const *names)
{
    for (size_t i = 0; names[i] != NULL; i++)
        if (r->n_seen < SF_MOST_CONFIG_FIELDS)
            r->seen[r->n_seen++] = names[i];
    return sf_json_any(r->config, names);
}

/* The name by which the file says it, for messages. */
static const char *name_in_file(const sf_config_reader *r, const char *const *names)
{
    for (size_t i = 0; names[i] != NULL; i++)
        if (json_object_get(r->config, names[i]) != NULL)
            return names[i];
    return names[0];
}

void sf_config_fail(sf_config_reader *r, sf_status st)
{
    if (r->st.code == SF_OK)
        r->st = st;
}

/* `otherwise` below zero: the field must be there. */
int64_t sf_config_integer(sf_config_reader *r, const char *const *names, int64_t otherwise, int64_t least, int64_t most)
{
    const json_t *value = sf_config_look(r, names);
    int64_t n = otherwise;

    if (value == NULL) {
        if (otherwise < 0)
            sf_config_fail(r, SF_FAIL(SF_EPARSE, "%s: '%s' is missing, and nothing else tells it", r->place, names[0]));
        return otherwise;
    }
    if (!sf_json_to_int(value, &n) || n < least || n > most) {
        sf_config_fail(r, SF_FAIL(SF_EPARSE, "%s: '%s' is not a whole number from %lld to %lld", r->place, name_in_file(r, names), (long long)least,
                        (long long)most));
        return otherwise < least ? least : otherwise;
    }
    return n;
}

double sf_config_real(sf_config_reader *r, const char *const *names, double otherwise)
{
    const json_t *value = sf_config_look(r, names);
    double x = otherwise;
    if (value != NULL && !sf_json_to_real(value, &x)) {
        sf_config_fail(r, SF_FAIL(SF_EPARSE, "%s: '%s' is not a number", r->place, name_in_file(r, names)));
        return otherwise;
    }
    return x;
}

bool sf_config_truth(sf_config_reader *r, const char *const *names, bool otherwise)
{
    const json_t *value = sf_config_look(r, names);
    bool b = otherwise;
    if (value != NULL && !sf_json_to_bool(value, &b)) {
        sf_config_fail(r, SF_FAIL(SF_EPARSE, "%s: '%s' is neither true nor false", r->place, name_in_file(r, names)));
        return otherwise;
    }
    return b;
}

const char *sf_config_word(sf_config_reader *r, const char *const *names, const char *otherwise)
{
    const json_t *value = sf_config_look(r, names);
    return json_is_string(value) ? json_string_value(value) : otherwise;
}

bool sf_config_has(const sf_config_reader *r, const char *name)
{
    const json_t *value = json_object_get(r->config, name);
    return value != NULL && !json_is_null(value);
}

void sf_config_warn(sf_config_reader *r, const char *text)
{
    sf_transformer *m = r->m;
    SF_PUSH(r->arena, m->warnings, m->n_warnings, m->cap_warnings) = text;
}

static bool is_off(const json_t *value)
{
    return json_is_null(value) || json_is_false(value) || (json_is_number(value) && json_number_value(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) || (json_is_object(value) && json_object_size(value) == 0);
}

void sf_config_warn_about_the_rest(sf_config_reader *r)
{
    const char *key;
    json_t *value;
    if (sf_config_has(r, "quantization_config"))
        sf_config_warn(r, "quantization_config is set aside: training is counted with unquantised weights");
    if (sf_config_has(r, "num_nextn_predict_layers") && !is_off(json_object_get(r->config, "num_nextn_predict_layers")))
        sf_config_warn(r, "num_nextn_predict_layers: the layers that predict further tokens are not counted");
    json_object_foreach((json_t *)r->config, key, value)
    {
        bool seen = sf_family_ignores(key) || is_off(value) || sf_str_eq(key, "quantization_config");
        for (size_t i = 0; i < r->n_seen && !seen; i++)
            seen = sf_str_eq(r->seen[i], key);
        if (!seen)
            sf_config_warn(r, sf_arena_printf(r->arena, "field '%s' is not understood and not taken into account", key));
    }
}
