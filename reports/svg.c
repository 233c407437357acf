#include "reports/svg.h"

#include <string.h>

#include "reports/table.h"

static void put(sf_text *out, const char *from, const char *to)
{
    if (to > from)
        sf_text_append(out, from, (size_t)(to - from));
}

/* Past the end of an element `<name ...>...</name>` that begins at `at`. */
static const char *past_element(const char *at, const char *closing)
{
    const char *end = strstr(at, closing);
    return end == NULL ? at + strlen(at) : end + strlen(closing);
}

/* A group's opening tag directly followed by its end: what lies after it, or NULL. */
static const char *past_empty_group(const char *at)
{
    const char *end = strchr(at, '>');
    if (end == NULL)
        return NULL;
    end++;
    end += strspn(end, " \t\r\n");
    return sf_str_starts(end, "</g>") ? end + 4 : NULL;
}

/* Does an attribute that names an id begin here? Gives the position of the name. */
static const char *id_name(const char *at)
{
    static const char *const starts[] = { " id='", " id=\"", "href='#", "href=\"#", "url(#" };
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++)
        if (sf_str_starts(at, starts[i]))
            return at + strlen(starts[i]);
    return NULL;
}

static const char *view_box(const char *svg, char out[64])
{
    const char *at = strstr(svg, "viewBox=\"");
    out[0] = '\0';
    if (at != NULL) {
        at += strlen("viewBox=\"");
        size_t n = strcspn(at, "\"");
        if (n < 64) {
            memcpy(out, at, n);
            out[n] = '\0';
        }
    }
    return out;
}

void sf_svg_inline(const char *svg, const char *prefix, const char *class_name, const char *label, sf_text *out)
{
    char box[64];
    const char *at = strstr(svg, "<svg"), *end, *next, *name;
    if (at == NULL)
        return;
    sf_text_add(out, "<svg class=\"%s\" viewBox=\"%s\" role=\"img\" aria-label=\"", class_name, view_box(at, box));
    sf_html_escape(label, out);
    sf_text_add(out, "\">");
    at = strchr(at, '>');
    at = at == NULL ? "" : at + 1;
    end = at;
    while (*end != '\0') {
        next = NULL;
        if (sf_str_starts(end, "<title>"))
            next = past_element(end, "</title>");
        else if (sf_str_starts(end, "<desc>"))
            next = past_element(end, "</desc>");
        else if (sf_str_starts(end, "<filter"))
            next = past_element(end, "</filter>");
        else if (sf_str_starts(end, "<g "))
            next = past_empty_group(end);
        else if ((*end == '\n' || *end == '\t') && (end[1] == '\n' || end[1] == '\t' || end[1] == ' '))
            next = end + 1;
        if (next != NULL) {
            put(out, at, end);
            at = end = next;
        } else if ((name = id_name(end)) != NULL) {
            put(out, at, name);
            sf_text_add(out, "%s-", prefix);
            at = end = name;
        } else {
            end++;
        }
    }
    put(out, at, end);
}
