#include "model/desc/hjson.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "model/base/text.h"

enum { MOST_DEPTH = 64 };

typedef struct {
    const char *at, *end, *start, *place;
    sf_arena *arena;
    int depth;
} parser;

static sf_status fail(const parser *p, const char *what)
{
    int line = 1, column = 1;
    for (const char *c = p->start; c < p->at; c++)
        if (*c == '\n')
            line++, column = 1;
        else
            column++;
    return SF_FAIL(SF_EPARSE, "%s:%d:%d: %s", p->place, line, column, what);
}

static bool more(const parser *p)
{
    return p->at < p->end;
}

static bool sees(const parser *p, const char *text)
{
    size_t n = strlen(text);
    return (size_t)(p->end - p->at) >= n && memcmp(p->at, text, n) == 0;
}

static void skip_line(parser *p)
{
    while (more(p) && *p->at != '\n')
        p->at++;
}

/* White space and comments. */
static sf_status skip(parser *p)
{
    while (more(p)) {
        if (isspace((unsigned char)*p->at) || *p->at == '\xef' || *p->at == '\xbb' || *p->at == '\xbf') {
            p->at++;
        } else if (*p->at == '#' || sees(p, "//")) {
            skip_line(p);
        } else if (sees(p, "/*")) {
            const parser open = *p;
            while (more(p) && !sees(p, "*/"))
                p->at++;
            if (!more(p))
                return fail(&open, "this comment is never closed");
            p->at += 2;
        } else {
            break;
        }
    }
    return SF_SUCCESS;
}

static sf_status parse_value(parser *p, json_t **out);

/* A text in quotes, decoded by the JSON library. */
static sf_status parse_quoted(parser *p, json_t **out)
{
    const char *from = p->at;
    char quote = *p->at++;
    while (more(p) && *p->at != quote && *p->at != '\n')
        p->at += *p->at == '\\' && p->at + 1 < p->end ? 2 : 1;
    if (!more(p) || *p->at != quote)
        return fail(p, "this text is not closed on its line");
    p->at++;
    char *token = sf_arena_strndup(p->arena, from, (size_t)(p->at - from));
    token[0] = token[p->at - from - 1] = '"';
    *out = json_loads(token, JSON_DECODE_ANY, NULL);
    return *out != NULL ? SF_SUCCESS : fail(p, "this text is not UTF-8, or has an escape that JSON does not have");
}

/* A literal if nothing else stands before the next comma, bracket, comment or line end; else a text up to the line's end. */
static sf_status parse_bare(parser *p, json_t **out)
{
    const char *from = p->at, *stop = p->at;
    while (stop < p->end && strchr(",]}#\n", *stop) == NULL && !(stop[0] == '/' && stop + 1 < p->end && (stop[1] == '/' || stop[1] == '*')))
        stop++;
    const char *last = stop;
    while (last > from && isspace((unsigned char)last[-1]))
        last--;
    char *token = sf_arena_strndup(p->arena, from, (size_t)(last - from));
    *out = json_loads(token, JSON_DECODE_ANY, NULL);
    if (*out != NULL && !json_is_string(*out)) {
        p->at = stop;
        return SF_SUCCESS;
    }
    json_decref(*out);
    skip_line(p);
    last = p->at;
    while (last > from && (isspace((unsigned char)last[-1]) || last[-1] == ','))
        last--;
    if (last == from)
        return fail(p, "a value is missing");
    *out = json_stringn(from, (size_t)(last - from));
    return *out != NULL ? SF_SUCCESS : fail(p, "this text is not UTF-8");
}

static sf_status parse_name(parser *p, const char **out)
{
    json_t *text = NULL;
    if (*p->at == '"' || *p->at == '\'') {
        SF_TRY(parse_quoted(p, &text));
        *out = sf_arena_strdup(p->arena, json_string_value(text));
        json_decref(text);
    } else {
        const char *from = p->at;
        while (more(p) && !isspace((unsigned char)*p->at) && strchr(",:[]{}", *p->at) == NULL)
            p->at++;
        if (p->at == from)
            return fail(p, "a name is expected here");
        *out = sf_arena_strndup(p->arena, from, (size_t)(p->at - from));
    }
    SF_TRY(skip(p));
    if (!more(p) || *p->at != ':')
        return fail(p, sf_arena_printf(p->arena, "':' is expected after the name '%s'", *out));
    p->at++;
    return skip(p);
}

/* Members up to `closing` (or the end of the text, for '\0'). */
static sf_status parse_members(parser *p, char closing, json_t *object)
{
    for (;;) {
        const char *name = NULL;
        json_t *value = NULL;
        SF_TRY(skip(p));
        if (!more(p))
            return closing == '\0' ? SF_SUCCESS : fail(p, "the text ends before '}'");
        if (*p->at == closing) {
            p->at++;
            return SF_SUCCESS;
        }
        SF_TRY(parse_name(p, &name));
        if (!more(p))
            return fail(p, "a value is missing");
        if (json_object_get(object, name) != NULL)
            return fail(p, sf_arena_printf(p->arena, "'%s' is given twice", name));
        SF_TRY(parse_value(p, &value));
        json_object_set_new(object, name, value);
        SF_TRY(skip(p));
        if (more(p) && *p->at == ',')
            p->at++;
    }
}

static sf_status parse_items(parser *p, json_t *array)
{
    for (;;) {
        json_t *value = NULL;
        SF_TRY(skip(p));
        if (!more(p))
            return fail(p, "the text ends before ']'");
        if (*p->at == ']') {
            p->at++;
            return SF_SUCCESS;
        }
        SF_TRY(parse_value(p, &value));
        json_array_append_new(array, value);
        SF_TRY(skip(p));
        if (more(p) && *p->at == ',')
            p->at++;
    }
}

static sf_status parse_value(parser *p, json_t **out)
{
    sf_status st = SF_SUCCESS;
    char first = *p->at;

    *out = NULL;
    if (first != '{' && first != '[')
        return first == '"' || first == '\'' ? parse_quoted(p, out) : parse_bare(p, out);
    if (++p->depth > MOST_DEPTH)
        return fail(p, "nested too deeply");
    p->at++;
    *out = first == '{' ? json_object() : json_array();
    st = first == '{' ? parse_members(p, '}', *out) : parse_items(p, *out);
    p->depth--;
    if (st.code != SF_OK) {
        json_decref(*out);
        *out = NULL;
    }
    return st;
}

sf_status sf_hjson_parse(const char *text, size_t len, const char *place, sf_arena *arena, json_t **out)
{
    parser p = { .at = text, .end = text + len, .start = text, .place = place, .arena = arena };

    *out = NULL;
    SF_TRY(skip(&p));
    if (!more(&p))
        return fail(&p, "the file is empty");
    if (*p.at == '{') {
        SF_TRY(parse_value(&p, out));
    } else {
        *out = json_object();
        sf_status st = parse_members(&p, '\0', *out);
        if (st.code != SF_OK) {
            json_decref(*out);
            *out = NULL;
            return st;
        }
    }
    sf_status st = skip(&p);
    if (st.code == SF_OK && more(&p))
        st = fail(&p, "text after the end of the configuration");
    if (st.code != SF_OK) {
        json_decref(*out);
        *out = NULL;
    }
    return st;
}
