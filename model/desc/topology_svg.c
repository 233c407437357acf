/* A picture of a topology: the PCIe tree from the CPUs down to the devices, NVLinks as arcs below. */
#include <stdlib.h>
#include <string.h>

#include "model/desc/topology.h"

enum { BOX_W = 84, BOX_H = 30, GAP_X = 10, GAP_Y = 34, MARGIN = 20, LABEL_MOST = 14 };

typedef struct {
    const sf_topology *t;
    sf_text *out;
    double *x, *y;   /* (node_count) centre of each box; y < 0: not placed */
    double next_x, bottom;
} picture;

static void escaped(sf_text *out, const char *text, int most)
{
    for (; *text != '\0' && most > 0; text++, most--) {
        switch (*text) {
        case '<': sf_text_add(out, "&lt;"); break;
        case '>': sf_text_add(out, "&gt;"); break;
        case '&': sf_text_add(out, "&amp;"); break;
        case '"': sf_text_add(out, "&quot;"); break;
        default: sf_text_append(out, text, 1);
        }
    }
}

static const char *colour(sf_topo_kind kind)
{
    switch (kind) {
    case SF_TOPO_GPU: return "#76b900";
    case SF_TOPO_NVSWITCH: return "#4a7a00";
    case SF_TOPO_NIC: return "#3f7fbf";
    case SF_TOPO_NUMA: return "#c9822b";
    case SF_TOPO_NET_SWITCH: return "#274f7a";
    default: return "#8a8a8a";
    }
}

static void place(picture *p, int node, double y)
{
    const sf_topology *t = p->t;
    double first = -1, last = -1;
    for (size_t i = 0; i < t->node_count; i++) {
        if (t->nodes[i].parent != node)
            continue;
        place(p, (int)i, y + BOX_H + GAP_Y);
        if (first < 0)
            first = p->x[i];
        last = p->x[i];
    }
    if (first < 0) {
        first = last = p->next_x;
        p->next_x += BOX_W + GAP_X;
    }
    p->x[node] = (first + last) / 2;
    p->y[node] = y;
    if (y > p->bottom)
        p->bottom = y;
}

static void draw_box(picture *p, int node)
{
    const sf_topo_node *n = &p->t->nodes[node];
    sf_text_add(p->out, "<g><rect x='%.0f' y='%.0f' width='%d' height='%d' rx='4' fill='%s'/><text x='%.0f' y='%.0f'>", p->x[node] - BOX_W / 2.0,
                p->y[node], BOX_W, BOX_H, colour(n->kind), p->x[node], p->y[node] + BOX_H / 2.0 + 4);
    escaped(p->out, n->name, LABEL_MOST);
    sf_text_add(p->out, "</text><title>");
    escaped(p->out, n->name, 200);
    if (n->device[0] != '\0') {
        sf_text_add(p->out, ", ");
        escaped(p->out, n->device, 200);
    }
    sf_text_add(p->out, "</title></g>\n");
}

static void draw_link(picture *p, const sf_topo_link *link)
{
    const char *stroke = link->type == SF_TOPO_LINK_PCIE ? "#888" : link->type == SF_TOPO_LINK_SMP ? "#c9822b" : link->type == SF_TOPO_LINK_NETWORK ? "#274f7a" : "#76b900";
    double ax = p->x[link->a], bx = p->x[link->b], ay = p->y[link->a], by = p->y[link->b];
    if (ay < 0 || by < 0)
        return;
    bool down = link->type == SF_TOPO_LINK_PCIE;
    if (down) {
        sf_text_add(p->out, "<path d='M%.0f %.0f L%.0f %.0f'", ax, ay, bx, by + BOX_H);
    } else if (ay == by && link->type == SF_TOPO_LINK_SMP) {
        sf_text_add(p->out, "<path d='M%.0f %.0f C%.0f %.0f %.0f %.0f %.0f %.0f'", ax, ay, ax, ay - 16, bx, by - 16, bx, by);
    } else if (ay == by) { /* same row: an arc below, deeper for farther */
        double depth = 16 + (ax > bx ? ax - bx : bx - ax) / 12;
        sf_text_add(p->out, "<path d='M%.0f %.0f C%.0f %.0f %.0f %.0f %.0f %.0f'", ax, ay + BOX_H, ax, ay + BOX_H + depth, bx, by + BOX_H + depth, bx, by + BOX_H);
    } else {
        sf_text_add(p->out, "<path d='M%.0f %.0f L%.0f %.0f'", ax, ay + (ay < by ? BOX_H : 0), bx, by + (ay < by ? 0 : BOX_H));
    }
    sf_text_add(p->out, " stroke='%s' stroke-width='%.1f' fill='none'><title>%s", stroke, link->count > 1 ? 1 + link->count / 6.0 : 1, sf_topo_link_name(link->type));
    if (link->count > 1)
        sf_text_add(p->out, " x %d", link->count);
    if (link->Bps > 0)
        sf_text_add(p->out, ", %.4g GB/s each way (%s)", link->Bps / 1e9, sf_topo_origin_name(link->origin));
    sf_text_add(p->out, "</title></path>\n");
}

void sf_topology_svg(const sf_topology *t, sf_text *out)
{
    size_t n = t->node_count;
    sf_text body = { 0 };
    picture p = { .t = t, .out = &body, .x = calloc(n + 1, sizeof(double)), .y = calloc(n + 1, sizeof(double)) };
    double top = MARGIN, width = 0;
    for (size_t i = 0; p.x != NULL && p.y != NULL && i < n; i++)
        p.y[i] = -1;
    for (size_t h = 0; p.x != NULL && p.y != NULL && h < t->host_count; h++) {
        p.next_x = MARGIN + BOX_W / 2.0;
        p.bottom = top + 20;
        sf_text_add(&body, "<text x='%d' y='%.0f' style='text-anchor:start;fill:#000'>", MARGIN, top + 8);
        escaped(&body, t->hosts[h].name, 80);
        if (t->hosts[h].count > 1)
            sf_text_add(&body, " (%d of these)", t->hosts[h].count);
        sf_text_add(&body, "</text>\n");
        for (size_t i = 0; i < n; i++)
            if (t->nodes[i].host == (int)h && t->nodes[i].parent < 0 && t->nodes[i].kind != SF_TOPO_NVSWITCH)
                place(&p, (int)i, top + 20);
        double leaves = p.bottom;
        for (size_t i = 0; i < n; i++) /* all GPUs and NICs in the lowest row, so that arcs are below everything */
            if (t->nodes[i].host == (int)h && (t->nodes[i].kind == SF_TOPO_GPU || t->nodes[i].kind == SF_TOPO_NIC))
                p.y[i] = leaves;
        int hubs = 0, hub = 0; /* spread below the devices */
        for (size_t i = 0; i < n; i++)
            hubs += t->nodes[i].host == (int)h && t->nodes[i].kind == SF_TOPO_NVSWITCH;
        double span = p.next_x - MARGIN > hubs * (BOX_W + GAP_X) ? p.next_x - MARGIN : hubs * (BOX_W + GAP_X);
        for (size_t i = 0; i < n; i++) {
            if (t->nodes[i].host != (int)h || t->nodes[i].kind != SF_TOPO_NVSWITCH)
                continue;
            p.x[i] = MARGIN + span * (hub++ + 0.5) / hubs;
            p.y[i] = leaves + BOX_H + 2 * GAP_Y;
            p.bottom = p.y[i];
        }
        width = p.next_x > width ? p.next_x : width;
        width = MARGIN + span > width ? MARGIN + span : width;
        top = p.bottom + BOX_H + (hubs > 0 ? 1 : 3) * GAP_Y;
    }
    double x = MARGIN + BOX_W / 2.0;
    for (size_t i = 0; p.x != NULL && p.y != NULL && i < n; i++) {
        if (t->nodes[i].kind != SF_TOPO_NET_SWITCH)
            continue;
        p.x[i] = x;
        p.y[i] = top;
        x += BOX_W + GAP_X;
        width = x > width ? x : width;
    }
    for (size_t i = 0; p.x != NULL && p.y != NULL && i < t->link_count; i++)
        draw_link(&p, &t->links[i]);
    for (size_t i = 0; p.x != NULL && p.y != NULL && i < n; i++)
        if (p.y[i] >= 0)
            draw_box(&p, (int)i);
    sf_text_add(out, "<svg xmlns='http://www.w3.org/2000/svg' width='%.0f' height='%.0f' font-family='sans-serif' font-size='11'>\n"
                     "<style>text{text-anchor:middle;fill:#fff}</style>\n<rect width='100%%' height='100%%' fill='#fff'/>\n%s</svg>\n",
                width + MARGIN, top + BOX_H + MARGIN, sf_text_str(&body));
    sf_text_free(&body);
    free(p.x);
    free(p.y);
}
