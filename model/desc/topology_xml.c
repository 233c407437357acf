#include "model/desc/topology_xml.h"

#include <expat.h>
#include <string.h>

typedef struct {
    XML_Parser parser;
    sf_arena *arena;
    const char *name;
    int first_line, depth, elements;
    sf_xml *open[SF_TOPO_MOST_DEPTH];
    sf_xml *root;
    sf_status st;
} reader;

static int line_of(const reader *r)
{
    return (int)XML_GetCurrentLineNumber(r->parser) + r->first_line - 1;
}

static void stop(reader *r, const char *why)
{
    r->st = SF_FAIL(SF_EPARSE, "'%s', line %d: %s", r->name, line_of(r), why);
    XML_StopParser(r->parser, XML_FALSE);
}

static void XMLCALL start(void *user, const XML_Char *name, const XML_Char **attrs)
{
    reader *r = user;
    size_t count = 0;
    if (r->depth == SF_TOPO_MOST_DEPTH) {
        stop(r, "the elements nest deeper than any PCIe tree");
        return;
    }
    if (++r->elements > SF_XML_MOST_ELEMENTS) {
        stop(r, "more elements than any machine has devices");
        return;
    }
    while (attrs[count] != NULL)
        count++;
    sf_xml *e = SF_NEW(r->arena, sf_xml);
    e->name = sf_arena_strdup(r->arena, name);
    e->line = line_of(r);
    e->attrs = SF_NEW_ARRAY(r->arena, const char *, count + 1);
    for (size_t i = 0; i < count; i++)
        e->attrs[i] = sf_arena_strdup(r->arena, attrs[i]);
    if (r->depth == 0) {
        r->root = e;
    } else {
        sf_xml *parent = r->open[r->depth - 1];
        if (parent->last == NULL)
            parent->first = e;
        else
            parent->last->next = e;
        parent->last = e;
    }
    r->open[r->depth++] = e;
}

static void XMLCALL end(void *user, const XML_Char *name)
{
    (void)name;
    ((reader *)user)->depth--;
}

/* Entities of an internal document type could grow without bound; a topology has none. */
static void XMLCALL doctype(void *user, const XML_Char *name, const XML_Char *sysid, const XML_Char *pubid, int internal)
{
    (void)name;
    (void)sysid;
    (void)pubid;
    (void)internal;
    stop(user, "a document type is not allowed in a topology");
}

const char *sf_xml_attr(const sf_xml *e, const char *key)
{
    for (int i = 0; e->attrs[i] != NULL; i += 2)
        if (strcmp(e->attrs[i], key) == 0)
            return e->attrs[i + 1];
    return NULL;
}

sf_status sf_xml_parse(const char *text, size_t len, int first_line, const char *name, sf_arena *arena, sf_xml **out)
{
    reader r = { .arena = arena, .name = name, .first_line = first_line };
    r.parser = XML_ParserCreate(NULL);
    if (r.parser == NULL)
        return SF_FAIL(SF_ENOMEM, "out of host memory for the XML parser");
    XML_SetUserData(r.parser, &r);
    XML_SetElementHandler(r.parser, start, end);
    XML_SetStartDoctypeDeclHandler(r.parser, doctype);
    if (XML_Parse(r.parser, text, (int)len, XML_TRUE) != XML_STATUS_OK && r.st.code == SF_OK) {
        enum XML_Error why = XML_GetErrorCode(r.parser);
        bool cut = why == XML_ERROR_NO_ELEMENTS || why == XML_ERROR_UNCLOSED_TOKEN || why == XML_ERROR_PARTIAL_CHAR;
        if (cut && r.depth > 0)
            r.st = SF_FAIL(SF_EPARSE, "'%s', line %d: the file ends inside <%s> of line %d; it is cut", name, line_of(&r),
                           r.open[r.depth - 1]->name, r.open[r.depth - 1]->line);
        else if (cut)
            r.st = SF_FAIL(SF_EPARSE, "'%s', line %d: the file ends before its XML does; it is cut", name, line_of(&r));
        else
            r.st = SF_FAIL(SF_EPARSE, "'%s', line %d, column %d: not well-formed XML: %s", name, line_of(&r),
                           (int)XML_GetCurrentColumnNumber(r.parser) + 1, XML_ErrorString(why));
    }
    XML_ParserFree(r.parser);
    *out = r.root;
    return r.st;
}
