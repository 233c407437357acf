/* model/desc/json.h: reading JSON that people wrote: whole files with line and column in errors, and
 * fields by any of several names.
 */
#ifndef SF_DESC_JSON_H
#define SF_DESC_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "model/base/arena.h"
#include "model/base/status.h"

/* New reference. `place` names the text in messages: "FILE:LINE:COLUMN: ...". */
sf_status sf_json_parse(const char *text, size_t len, const char *place, json_t **out);
sf_status sf_json_read(const char *path, json_t **out);

/* The first of the NULL-terminated names that is present and not null; borrowed, or NULL. */
const json_t *sf_json_any(const json_t *object, const char *const *names);

/* Numbers that may be written as 32, 32.0 or "32"; booleans as true, "true", 1. False: not one. */
bool sf_json_to_int(const json_t *value, int64_t *out);
bool sf_json_to_real(const json_t *value, double *out);
bool sf_json_to_bool(const json_t *value, bool *out);

#endif
