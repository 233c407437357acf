/* model/desc/config_file.h: the files by which people configure their training, as part of a JOB.
 *
 * Read    a DeepSpeed configuration (JSON, or what DeepSpeed takes for it), an accelerate YAML (or JSON), a
 *   torchtitan TOML, a GPT-NeoX YAML. The kind is told by what the file holds.
 * Gives   the fields of a job that the file states, and for every key of the file what became of it: taken, left to
 *   the job ("auto"), without effect on memory and time, not modelled, or unknown to the framework. Nothing is dropped
 *   silently. What is no training on GPUs, or holds a placeholder where a number is needed, is refused.
 * Sources deepspeed/runtime/{config.py,constants.py,zero/config.py}; accelerate/utils/dataclasses.py and
 *   commands/config; torchtitan/config/job_config.py; gpt-neox neox_arguments. Each table names its own.
 * Owner   the arena; `job` is a JSON reference that sf_config_close drops.
 */
#ifndef SF_DESC_CONFIG_FILE_H
#define SF_DESC_CONFIG_FILE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "model/base/arena.h"
#include "model/base/status.h"

#define SF_CONFIG_KINDS(X)                                                                         \
    X(DEEPSPEED, "DeepSpeed") X(ACCELERATE, "accelerate") X(TORCHTITAN, "torchtitan") X(NEOX, "GPT-NeoX")
#define SF_CONFIG_KIND_ENUM(id, name) SF_CONFIG_##id,
typedef enum { SF_CONFIG_KINDS(SF_CONFIG_KIND_ENUM) SF_CONFIG_KIND_COUNT } sf_config_kind;

#define SF_CONFIG_USES(X)                                                                          \
    X(TAKEN, "taken") X(AUTO, "left to the job") X(NO_EFFECT, "no effect") X(NOT_MODELLED, "not modelled") X(UNKNOWN, "unknown")
#define SF_CONFIG_USE_ENUM(id, name) SF_CONFIG_##id,
typedef enum { SF_CONFIG_USES(SF_CONFIG_USE_ENUM) SF_CONFIG_USE_COUNT } sf_config_use;

typedef struct {
    const char *key, *value;   /* as in the file; the value as JSON, cut when long         */
    sf_config_use use;
    const char *path;          /* the job's field, or NULL                                 */
    const char *why;           /* a remark, or NULL                                        */
} sf_config_note;

typedef struct {
    sf_config_kind kind;
    const char *file;
    json_t *job;               /* a partial JOB: framework, cluster, strategy, train, model */
    sf_config_note *notes;
    size_t n_notes, cap_notes;
} sf_config;

const char *sf_config_kind_name(sf_config_kind kind);
const char *sf_config_use_name(sf_config_use use);

sf_status sf_config_read(const char *path, sf_arena *arena, sf_config *out);
sf_status sf_config_parse(const char *text, size_t len, const char *place, sf_arena *arena, sf_config *out);
void sf_config_close(sf_config *config);

/* A job that names configuration files (`deepspeed_config`, `accelerate_config`, `torchtitan_config` or `config`, at
 * the top or as the strategy's) gets what they state, wherever the job itself states nothing. Relative paths are of the
 * folder of `place` or of the current one. `notes` (may be NULL) receives what became of each key. */
sf_status sf_config_apply(json_t *job, const char *place, sf_arena *arena, sf_config *out);

#endif
