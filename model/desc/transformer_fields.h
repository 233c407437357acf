/* model/desc/transformer_fields.h: fields of a config.json by any of the names that families give
 * them; remembers what was asked for, so that the rest can be named, and the first failure.
 */
#ifndef SF_DESC_TRANSFORMER_FIELDS_H
#define SF_DESC_TRANSFORMER_FIELDS_H

#include "model/desc/json.h"
#include "model/desc/transformer_family.h"

enum { SF_MOST_CONFIG_FIELDS = 256 };

typedef struct {
    const json_t *config;
    const char *place;
    sf_arena *arena;
    sf_transformer *m;
    const sf_family *f;
    sf_status st;                            /* the first failure                     */
    const char *seen[SF_MOST_CONFIG_FIELDS]; /* fields that were asked for            */
    size_t n_seen;
} sf_config_reader;

/* A NULL-terminated list of names for one field. */
#define SF_NAMES(...) ((const char *const[]){ __VA_ARGS__, NULL })

const json_t *sf_config_look(sf_config_reader *r, const char *const *names);
void sf_config_fail(sf_config_reader *r, sf_status st);
/* A whole number of least..most; `otherwise` where it is absent; below zero: it must be there. */
int64_t sf_config_integer(sf_config_reader *r, const char *const *names, int64_t otherwise, int64_t least, int64_t most);
double sf_config_real(sf_config_reader *r, const char *const *names, double otherwise);
bool sf_config_truth(sf_config_reader *r, const char *const *names, bool otherwise);
const char *sf_config_word(sf_config_reader *r, const char *const *names, const char *otherwise);
/* Present and not null? */
bool sf_config_has(const sf_config_reader *r, const char *name);
/* `text` lives in the reader's arena or is a literal. */
void sf_config_warn(sf_config_reader *r, const char *text);
/* Warns of every field that was not asked for and may matter. */
void sf_config_warn_about_the_rest(sf_config_reader *r);

#endif
