#include "model/desc/yaml_read.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "model/base/text.h"

enum { MOST_DEPTH = 64 };

typedef struct {
    yaml_document_t *document;
    const char *place;
    sf_arena *arena;
    int depth;
} reader;

static sf_status fail_at(const reader *r, const yaml_node_t *node, const char *what)
{
    return SF_FAIL(SF_EPARSE, "%s:%zu:%zu: %s", r->place, node->start_mark.line + 1, node->start_mark.column + 1, what);
}

static bool one_of(const char *text, const char *const *words)
{
    for (; *words != NULL; words++)
        if (sf_str_ieq(text, *words))
            return true;
    return false;
}

/* A number that takes the whole text; JSON's nan and inf do not exist. */
static json_t *number(const char *text)
{
    char *end;
    if (text[0] == '\0' || strspn(text, "0123456789+-.eE_") != strlen(text))
        return NULL;
    long long whole = strtoll(text, &end, 10);
    if (*end == '\0')
        return json_integer(whole);
    double real = strtod(text, &end);
    /* PyYAML wants a point in a real: 1e-5 is a text there, which its users then convert */
    return *end == '\0' ? json_real(real) : NULL;
}

static json_t *scalar(const yaml_node_t *node)
{
    static const char *const nulls[] = { "", "~", "null", NULL };
    static const char *const yes[] = { "true", "yes", "on", NULL };
    static const char *const no[] = { "false", "no", "off", NULL };
    const char *text = (const char *)node->data.scalar.value;
    size_t len = node->data.scalar.length;

    if (node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return json_stringn(text, len);
    if (one_of(text, nulls))
        return json_null();
    if (one_of(text, yes))
        return json_true();
    if (one_of(text, no))
        return json_false();
    json_t *value = number(text);
    return value != NULL ? value : json_stringn(text, len);
}

static sf_status convert(reader *r, int id, json_t **out);

static sf_status convert_pair(reader *r, const yaml_node_pair_t *pair, json_t *object)
{
    const yaml_node_t *name = yaml_document_get_node(r->document, pair->key);
    json_t *value = NULL;

    if (name->type != YAML_SCALAR_NODE)
        return fail_at(r, name, "a name that is a list or a map");
    const char *key = (const char *)name->data.scalar.value;
    if (json_object_get(object, key) != NULL)
        return fail_at(r, name, sf_arena_printf(r->arena, "'%s' is given twice", key));
    SF_TRY(convert(r, pair->value, &value));
    if (json_object_set_new(object, key, value) != 0)
        return fail_at(r, name, "a name that is not UTF-8");
    return SF_SUCCESS;
}

static sf_status convert(reader *r, int id, json_t **out)
{
    const yaml_node_t *node = yaml_document_get_node(r->document, id);
    sf_status st = SF_SUCCESS;

    *out = NULL;
    if (++r->depth > MOST_DEPTH)
        return fail_at(r, node, "nested too deeply");
    if (node->type == YAML_SCALAR_NODE) {
        *out = scalar(node);
        if (*out == NULL)
            st = fail_at(r, node, "a text that is not UTF-8");
    } else if (node->type == YAML_SEQUENCE_NODE) {
        *out = json_array();
        for (const yaml_node_item_t *i = node->data.sequence.items.start; st.code == SF_OK && i < node->data.sequence.items.top; i++) {
            json_t *item = NULL;
            st = convert(r, *i, &item);
            if (st.code == SF_OK)
                json_array_append_new(*out, item);
        }
    } else {
        *out = json_object();
        for (const yaml_node_pair_t *i = node->data.mapping.pairs.start; st.code == SF_OK && i < node->data.mapping.pairs.top; i++)
            st = convert_pair(r, i, *out);
    }
    r->depth--;
    if (st.code != SF_OK) {
        json_decref(*out);
        *out = NULL;
    }
    return st;
}

static sf_status load(yaml_parser_t *parser, const char *place, sf_arena *arena, json_t **out)
{
    yaml_document_t document, next;
    sf_status st = SF_SUCCESS;

    if (!yaml_parser_load(parser, &document))
        return SF_FAIL(SF_EPARSE, "%s:%zu:%zu: %s%s%s", place, parser->problem_mark.line + 1, parser->problem_mark.column + 1,
                       parser->problem != NULL ? parser->problem : "not YAML", parser->context != NULL ? ", " : "",
                       parser->context != NULL ? parser->context : "");
    reader r = { .document = &document, .place = place, .arena = arena };
    if (yaml_document_get_root_node(&document) == NULL)
        *out = json_null();
    else
        st = convert(&r, 1, out);
    yaml_document_delete(&document);
    if (st.code != SF_OK)
        return st;
    if (yaml_parser_load(parser, &next)) {
        if (yaml_document_get_root_node(&next) != NULL)
            st = SF_FAIL(SF_EPARSE, "%s: several documents in one file; keep one", place);
        yaml_document_delete(&next);
    } else {
        st = SF_FAIL(SF_EPARSE, "%s:%zu: %s", place, parser->problem_mark.line + 1, parser->problem != NULL ? parser->problem : "not YAML");
    }
    if (st.code != SF_OK) {
        json_decref(*out);
        *out = NULL;
    }
    return st;
}

sf_status sf_yaml_parse(const char *text, size_t len, const char *place, sf_arena *arena, json_t **out)
{
    yaml_parser_t parser;

    *out = NULL;
    if (!yaml_parser_initialize(&parser))
        return SF_FAIL(SF_ENOMEM, "%s: no memory for the YAML parser", place);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
    sf_status st = load(&parser, place, arena, out);
    yaml_parser_delete(&parser);
    return st;
}
