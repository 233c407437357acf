/* model/desc/toml.h: a TOML file as JSON values (dates become text), read by cpptoml.
 *
 * Errors   SF_EPARSE with "FILE: ... at line N".
 */
#ifndef SF_DESC_TOML_H
#define SF_DESC_TOML_H

#include <jansson.h>
#include <stddef.h>

#include "model/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* New reference, or NULL with the parser's complaint in `complaint` (cut to its size). */
json_t *sf_toml_load(const char *text, size_t len, char *complaint, size_t complaint_size);

#ifdef __cplusplus
}
#endif

static inline sf_status sf_toml_parse(const char *text, size_t len, const char *place, json_t **out)
{
    char complaint[200];
    *out = sf_toml_load(text, len, complaint, sizeof complaint);
    return *out != NULL ? SF_SUCCESS : SF_FAIL(SF_EPARSE, "%s: %s", place, complaint);
}

#endif
