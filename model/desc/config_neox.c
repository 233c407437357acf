/* A GPT-NeoX configuration: DeepSpeed's keys beside Megatron's, names with hyphens or underscores
 * (gpt-neox megatron/neox_arguments/{deepspeed_args,neox_args}.py). */
#include <string.h>

#include "model/base/text.h"
#include "model/desc/config_reader.h"
#include "model/desc/json.h"

static const char *const deepspeed_keys[] = {
    "zero_optimization", "fp16", "bf16", "optimizer", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size",
    "gradient_clipping", "steps_per_print", "wall_clock_breakdown", "prescale_gradients", "amp", NULL,
};

typedef struct {
    const char *key, *path;
} degree;

static const degree taken[] = {
    { "pipe_parallel_size", "train.pp" }, { "model_parallel_size", "train.tp" }, { "seq_length", "train.seq_len" },
    { "train_micro_batch_size_per_gpu", "train.micro_batch" },
};

/* The keys of the model: the vocabulary is the tokenizer's, which the file does not hold. */
static const char *const model_keys[] = {
    "num_layers", "hidden_size", "num_attention_heads", "max_position_embeddings", "norm", "pos_emb", "rotary_pct", "no_weight_tying",
    "gpt_j_residual", "make_vocab_size_divisible_by", "intermediate_size", "activation", NULL,
};

static bool listed(const char *const *list, const char *key)
{
    for (; *list != NULL; list++)
        if (strcmp(*list, key) == 0)
            return true;
    return false;
}

static const char *underscores(sf_arena *arena, const char *key)
{
    char *copy = sf_arena_strdup(arena, key);
    for (char *c = copy; *c != '\0'; c++)
        if (*c == '-')
            *c = '_';
    return copy;
}

static sf_status read_own(sf_config_reader *r, const char *key, const json_t *value)
{
    int64_t number;
    bool on;
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        if (strcmp(key, taken[i].key) == 0) {
            SF_TRY(sf_config_int(r, key, value, &number));
            sf_config_set_int(r, taken[i].path, number < 1 ? 1 : number); /* pipe_parallel_size 0: no pipeline engine */
            sf_config_note_add(r, key, value, SF_CONFIG_TAKEN, taken[i].path, NULL);
            return SF_SUCCESS;
        }
    if (strcmp(key, "checkpoint_activations") == 0) {
        SF_TRY(sf_config_bool(r, key, value, &on));
        sf_config_set_text(r, "train.recompute", on ? "full" : "none");
        sf_config_note_add(r, key, value, SF_CONFIG_TAKEN, "train.recompute", NULL);
    } else if (listed(model_keys, key)) {
        sf_config_note_add(r, key, value, SF_CONFIG_AUTO, "model", "the file has no vocabulary size: the job must state its model");
    } else if (strcmp(key, "partition_activations") == 0 && json_is_true(value)) {
        sf_config_note_add(r, key, value, SF_CONFIG_NOT_MODELLED, NULL, "predicted as if it were off");
    } else {
        sf_config_note_add(r, key, value, SF_CONFIG_NO_EFFECT, NULL, NULL);
    }
    return SF_SUCCESS;
}

sf_status sf_config_neox(sf_config_reader *r)
{
    const json_t *root = r->root;
    json_t *deepspeed = json_object(), *value;
    const char *name;
    sf_status st = SF_SUCCESS;

    json_object_foreach((json_t *)root, name, value)
    {
        const char *key = underscores(r->arena, name);
        if (listed(deepspeed_keys, key))
            json_object_set(deepspeed, key, value);
        else if (st.code == SF_OK)
            st = read_own(r, key, value);
    }
    r->root = deepspeed;
    if (st.code == SF_OK)
        st = sf_config_deepspeed(r);
    r->root = root;
    json_decref(deepspeed);
    return st;
}
