/* model/desc/config_reader.h: what the readers of configuration files share: a table of keys. Private to model/desc. */
#ifndef SF_DESC_CONFIG_READER_H
#define SF_DESC_CONFIG_READER_H

#include "model/desc/config_file.h"

typedef struct sf_config_reader sf_config_reader;

/* A key that needs more than to be copied. */
typedef sf_status (*sf_config_fn)(sf_config_reader *r, const char *key, const json_t *value);

/* One row a key. `key` may end in ".*": the whole object below, or in "*" alone: any key that starts so. */
typedef struct {
    const char *key;
    sf_config_use use;
    const char *path;          /* TAKEN: the job's field                                   */
    const char *why;
    sf_config_fn fn;           /* instead of copying                                       */
} sf_config_row;

struct sf_config_reader {
    const char *place;
    sf_arena *arena;
    sf_config *out;
    const json_t *root;
    const sf_config_row *rows; /* ends with a NULL key                                     */
    const char *framework;     /* in messages                                              */
};

/* Walks the file's leaves through the table. */
sf_status sf_config_walk(sf_config_reader *r, const char *prefix, const json_t *object);

/* A note about a key; `path` and `why` may be NULL. */
void sf_config_note_add(sf_config_reader *r, const char *key, const json_t *value, sf_config_use use, const char *path, const char *why);

/* States a field of the job, checked against the field's type. */
sf_status sf_config_set(sf_config_reader *r, const char *key, const char *path, const json_t *value);
void sf_config_set_text(sf_config_reader *r, const char *path, const char *value);
void sf_config_set_int(sf_config_reader *r, const char *path, int64_t value);
void sf_config_set_bool(sf_config_reader *r, const char *path, bool value);
/* The value that was set, borrowed, or NULL. */
const json_t *sf_config_get(const sf_config_reader *r, const char *path);

/* A dotted path in the file, or NULL. */
const json_t *sf_config_at(const json_t *object, const char *path);

bool sf_config_is_auto(const json_t *value);
/* A whole number or truth; a text in their place is a placeholder and refused. */
sf_status sf_config_int(const sf_config_reader *r, const char *key, const json_t *value, int64_t *out);
sf_status sf_config_bool(const sf_config_reader *r, const char *key, const json_t *value, bool *out);

/* A ZeRO stage, 0 to 3, as the strategy's name. */
sf_status sf_config_zero_stage(sf_config_reader *r, const char *key, const json_t *value);

sf_status sf_config_deepspeed(sf_config_reader *r);
sf_status sf_config_accelerate(sf_config_reader *r);
sf_status sf_config_torchtitan(sf_config_reader *r);
sf_status sf_config_neox(sf_config_reader *r);

#endif
