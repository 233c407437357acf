/* model/base/text.h: growing text, whole files, and the nearest of a list of names.
 *
 * Errors  reading and writing files return a status that names the path and the system's reason.
 */
#ifndef SF_BASE_TEXT_H
#define SF_BASE_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include "model/base/arena.h"
#include "model/base/status.h"

/* A growing, always NUL-terminated text on the heap. { 0 } is valid and empty. */
typedef struct {
    char *data;
    size_t len, cap;
} sf_text;

void sf_text_add(sf_text *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sf_text_vadd(sf_text *text, const char *fmt, va_list args);
void sf_text_append(sf_text *text, const char *bytes, size_t len);
void sf_text_free(sf_text *text);
const char *sf_text_str(const sf_text *text); /* "" when empty */

/* Read a whole file into the arena, NUL-terminated. Directories and files over max_bytes fail. */
sf_status sf_file_read(const char *path, size_t max_bytes, sf_arena *arena, char **out, size_t *out_len);

/* Write to PATH.tmp-PID, flush, then rename: a good file is never replaced by half of a new one. */
sf_status sf_file_write(const char *path, const char *bytes, size_t len);

/* mkdir -p. */
sf_status sf_dir_make(const char *path);

bool sf_str_eq(const char *a, const char *b);
bool sf_str_ieq(const char *a, const char *b); /* ASCII case ignored */
bool sf_str_starts(const char *text, const char *prefix);

/* Lower case, letters and digits only: "A100-SXM4 80GB" -> "a100sxm480gb". */
void sf_str_squash(const char *text, char *out, size_t out_size);

/* Levenshtein distance over squashed text. */
int sf_str_distance(const char *a, const char *b);

/* Writes up to three of names (closest first) as "'x', 'y' or 'z'" for "did you mean ...". */
const char *sf_str_nearest(const char *given, const char *const *names, size_t count, sf_arena *arena);

#endif
