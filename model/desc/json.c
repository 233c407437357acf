#include "model/desc/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/base/text.h"

sf_status sf_json_parse(const char *text, size_t len, const char *place, json_t **out)
{
    json_error_t error;
    *out = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
    if (*out == NULL)
        return SF_FAIL(SF_EPARSE, "%s:%d:%d: %s", place, error.line, error.column, error.text);
    return SF_SUCCESS;
}

sf_status sf_json_read(const char *path, json_t **out)
{
    enum { MOST_BYTES = 64 << 20 };
    sf_arena scratch = { 0 };
    char *text = NULL;
    size_t len = 0;

    sf_status st = sf_file_read(path, MOST_BYTES, &scratch, &text, &len);
    if (st.code == SF_OK)
        st = sf_json_parse(text, len, path, out);
    sf_arena_free(&scratch);
    return st;
}

const json_t *sf_json_any(const json_t *object, const char *const *names)
{
    for (; *names != NULL; names++) {
        const json_t *value = json_object_get(object, *names);
        if (value != NULL && !json_is_null(value))
            return value;
    }
    return NULL;
}

bool sf_json_to_real(const json_t *value, double *out)
{
    if (json_is_number(value)) {
        *out = json_number_value(value);
        return isfinite(*out);
    }
    if (!json_is_string(value))
        return false;
    char *end;
    const char *text = json_string_value(value);
    *out = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*out);
}

bool sf_json_to_int(const json_t *value, int64_t *out)
{
    double real;
    if (json_is_integer(value)) {
        *out = json_integer_value(value);
        return true;
    }
    if (!sf_json_to_real(value, &real) || floor(real) != real || fabs(real) > 9e15)
        return false;
    *out = (int64_t)real;
    return true;
}

bool sf_json_to_bool(const json_t *value, bool *out)
{
    if (json_is_boolean(value)) {
        *out = json_is_true(value);
        return true;
    }
    if (json_is_integer(value) && (json_integer_value(value) == 0 || json_integer_value(value) == 1)) {
        *out = json_integer_value(value) == 1;
        return true;
    }
    if (!json_is_string(value))
        return false;
    const char *text = json_string_value(value);
    *out = sf_str_ieq(text, "true") || sf_str_ieq(text, "yes");
    return *out || sf_str_ieq(text, "false") || sf_str_ieq(text, "no");
}
