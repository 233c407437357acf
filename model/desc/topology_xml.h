/* model/desc/topology_xml.h: a small XML file as a tree of elements; not for users of topologies.
 *
 * Errors  SF_EPARSE "'NAME', line N: ..." for what is no XML, ends early, nests deeper than
 *         SF_TOPO_MOST_DEPTH or has more than SF_XML_MOST_ELEMENTS elements.
 */
#ifndef SF_DESC_TOPOLOGY_XML_H
#define SF_DESC_TOPOLOGY_XML_H

#include "model/desc/topology_build.h"

enum { SF_XML_MOST_ELEMENTS = 20000 };

typedef struct sf_xml sf_xml;
struct sf_xml {
    const char *name;
    const char **attrs;  /* key, value, ..., NULL */
    int line;
    sf_xml *first, *last, *next; /* children; next sibling */
};

sf_status sf_xml_parse(const char *text, size_t len, int first_line, const char *name, sf_arena *arena, sf_xml **out);
const char *sf_xml_attr(const sf_xml *e, const char *key); /* NULL if it has none */

#endif
