/* reports/output.h: files that commands write their answers to. */
#ifndef SF_REPORTS_OUTPUT_H
#define SF_REPORTS_OUTPUT_H

#include <jansson.h>

#include "model/base/status.h"

/* Could this file be written? Makes missing folders; asked before minutes of work are lost. */
sf_status sf_output_check(const char *path);

/* Writes JSON, replacing the file only by a whole new one. */
sf_status sf_output_json(const json_t *json, const char *path);

/* Prints JSON to stdout. */
void sf_print_json(const json_t *json);

#endif
