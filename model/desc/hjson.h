/* model/desc/hjson.h: JSON as people write it by hand: DeepSpeed reads its configuration as Hjson.
 *
 * What is more than JSON   comments (#, //, block), commas that are missing at a line's end or trail,
 *   names and values without quotes, no braces around the whole. Three-quote texts are not read.
 * Source   https://hjson.github.io/syntax.html; deepspeed/runtime/config.py (hjson.load).
 * Errors   SF_EPARSE with "FILE:LINE:COLUMN: ...". A name given twice is an error, as in DeepSpeed.
 */
#ifndef SF_DESC_HJSON_H
#define SF_DESC_HJSON_H

#include <jansson.h>
#include <stddef.h>

#include "model/base/arena.h"
#include "model/base/status.h"

/* New reference. */
sf_status sf_hjson_parse(const char *text, size_t len, const char *place, sf_arena *arena, json_t **out);

#endif
