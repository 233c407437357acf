/* model/desc/yaml_read.h: a YAML document as JSON values, with PyYAML's reading of plain scalars.
 *
 * Plain (unquoted) scalars   null ~ -> null; true yes on -> true, false no off -> false (YAML 1.1);
 *   whole numbers and decimals -> numbers; anything else, and all that is quoted -> text.
 * Errors   SF_EPARSE with "FILE:LINE:COLUMN: ..."; several documents, names that are not scalars and
 *   names given twice are errors. Anchors and aliases are followed.
 */
#ifndef SF_DESC_YAML_READ_H
#define SF_DESC_YAML_READ_H

#include <jansson.h>
#include <stddef.h>

#include "model/base/arena.h"
#include "model/base/status.h"

/* New reference; json_null() for an empty document. */
sf_status sf_yaml_parse(const char *text, size_t len, const char *place, sf_arena *arena, json_t **out);

#endif
