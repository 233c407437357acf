/* `shardfit config FILE`: what was understood of a training configuration: DeepSpeed, accelerate, torchtitan, GPT-NeoX. */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/desc/config_file.h"
#include "reports/commands.h"

typedef struct {
    const char *file;
    bool json;
} arguments;

static const struct argp_option options[] = {
    { "json", 'j', 0, 0, "print as JSON", 0 },
    { 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    arguments *a = state->input;
    switch (key) {
    case 'j': a->json = true; return 0;
    case ARGP_KEY_ARG:
        if (a->file != NULL)
            argp_error(state, "one file at a time");
        a->file = arg;
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "name a configuration file"); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static void print_fields(const json_t *object, const char *prefix)
{
    const char *key;
    json_t *value;
    char path[256];
    json_object_foreach((json_t *)object, key, value)
    {
        snprintf(path, sizeof path, "%s%s%s", prefix, prefix[0] == '\0' ? "" : ".", key);
        if (json_is_object(value)) {
            print_fields(value, path);
            continue;
        }
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(12));
        printf("  %-48s %s\n", path, text == NULL ? "" : text);
        free(text);
    }
}

static void print_notes(const sf_config *c, sf_config_use use, const char *title)
{
    bool first = true;
    for (size_t i = 0; i < c->n_notes; i++) {
        const sf_config_note *n = &c->notes[i];
        if (n->use != use || (use == SF_CONFIG_TAKEN && n->why == NULL))
            continue;
        if (first)
            printf("\n%s\n", title);
        first = false;
        printf("  %s = %s%s%s\n", n->key, n->value, n->why == NULL ? "" : "   ", n->why == NULL ? "" : n->why);
    }
}

static void print_text(const sf_config *c)
{
    printf("%s: a configuration of %s\n\nStates of a job\n", c->file, sf_config_kind_name(c->kind));
    print_fields(c->job, "");
    print_notes(c, SF_CONFIG_TAKEN, "Taken, with a remark");
    print_notes(c, SF_CONFIG_AUTO, "Left to the job");
    print_notes(c, SF_CONFIG_NOT_MODELLED, "Not modelled");
    print_notes(c, SF_CONFIG_UNKNOWN, "Unknown, not taken");
    print_notes(c, SF_CONFIG_NO_EFFECT, "Without effect on memory and time");
}

static void print_json(const sf_config *c)
{
    json_t *notes = json_array();
    for (size_t i = 0; i < c->n_notes; i++) {
        const sf_config_note *n = &c->notes[i];
        json_array_append_new(notes, json_pack("{s:s, s:s, s:s, s:s?, s:s?}", "key", n->key, "value", n->value, "use", sf_config_use_name(n->use),
                                               "path", n->path, "why", n->why));
    }
    json_t *out = json_pack("{s:s, s:s, s:O, s:o}", "file", c->file, "kind", sf_config_kind_name(c->kind), "job", c->job, "keys", notes);
    json_dumpf(out, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
    putchar('\n');
    json_decref(out);
}

int sf_cmd_config(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options, .parser = parse, .args_doc = "FILE",
        .doc = "Shows what was understood of a DeepSpeed, accelerate, torchtitan or GPT-NeoX configuration: the fields of a JOB that it "
               "states, and what became of each of its keys. A JOB takes such a file as `deepspeed_config`, `accelerate_config`, "
               "`torchtitan_config` or `config`. Exit code 2: the file was refused.",
    };
    arguments a = { 0 };
    sf_arena arena = { 0 };
    sf_config config;

    argp_parse(&argp, argc, argv, 0, NULL, &a);
    sf_status st = sf_config_read(a.file, &arena, &config);
    if (st.code == SF_OK && a.json)
        print_json(&config);
    else if (st.code == SF_OK)
        print_text(&config);
    if (st.code == SF_OK)
        sf_config_close(&config);
    sf_arena_free(&arena);
    return st.code == SF_OK ? SF_EXIT_DONE : sf_cmd_fail(st);
}
