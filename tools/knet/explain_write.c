/* The graph as text, for graphviz, and as JSON. */
#include <inttypes.h>
#include <string.h>

#include "checked.h"
#include "explain.h"
#include "units.h"

static const char *name_of(int side) {
    static const char *const names[KN__EXPLAIN_SIDES] = {"before", "after", "captured"};
    KN_ASSERT(side < KN__EXPLAIN_SIDES);
    return names[side];
}

void kn__explain_summary(kn__text *out, const kn__explain *e, int side, const char *joint) {
    const kn__explain_graph *g = &e->side[side];
    kn__text_printf(out, "%s: %d kernels, ", name_of(side), g->run->n_events);
    kn__text_puts(out, kn__time_text((double)g->run->step_ns, true).text);
    kn__text_printf(out, " a step, %s moved", kn__bytes_text((double)g->moved_bytes).text);
    kn__text_printf(out, ", %s live at most", kn__bytes_text((double)g->run->live_bytes_max).text);
    if (g->run->plan_bytes)
        kn__text_printf(out, "%s%s in its plan", joint,
                        kn__bytes_text((double)g->run->plan_bytes).text);
}

/* --- text --- */

static void node_line(kn__text *out, const kn__explain_node *n) {
    kn__text_printf(out, "    %-9s ", kn__explain_phase_names[n->event->phase]);
    kn__text cell = {0};
    kn__text_puts(&cell, kn__time_text((double)n->ns, true).text);
    kn__text_printf(out, "%9s  %9s  %s", cell.data ? cell.data : "",
                    kn__bytes_cell((double)n->moved_bytes).text, n->event->name);
    kn__text_release(&cell);
    if (n->n_events > 1) kn__text_printf(out, " x%d", n->n_events);
    if (n->event->where[0]) kn__text_printf(out, "  (%s)", n->event->where);
    kn__text_puts(out, "\n");
}

void kn__explain_text(kn__text *out, const kn__explain *e) {
    kn__text_printf(out, "%s\n", e->title);
    for (int side = 0; side < e->n_sides; side++) {
        const kn__explain_graph *g = &e->side[side];
        kn__text_puts(out, "\n");
        kn__explain_summary(out, e, side, "\n          ");
        kn__text_puts(out, "\n");
        for (int b = 0, i = 0; b < g->n_blocks; b++) {
            kn__text_printf(out, "  %s", g->block[b].path);
            if (g->block[b].times > 1) kn__text_printf(out, "  (%d)", g->block[b].times);
            kn__text_puts(out, "\n");
            for (; i < g->n_nodes && g->node[i].block == b; i++) node_line(out, &g->node[i]);
        }
    }
}

/* --- dot --- */

static void dot_node(kn__text *out, int side, int i, const kn__explain_node *n) {
    kn__text label = {0};
    kn__text_printf(&label, "%s", n->event->name);
    if (n->n_events > 1) kn__text_printf(&label, " x%d", n->n_events);
    kn__text_puts(&label, "\n");
    kn__text_puts(&label, kn__time_text((double)n->ns, true).text);
    kn__text_printf(&label, ", %s", kn__bytes_text((double)n->moved_bytes).text);
    static const char *const colors[] = {"#dbe9f6", "#fde0c5", "#e2e2e2"};
    kn__text_printf(out, "      s%dn%d [fillcolor=\"%s\", label=", side, i,
                    colors[n->event->phase]);
    kn__text_json(out, label.data ? label.data : "");
    kn__text_puts(out, "];\n");
    kn__text_release(&label);
}

static void dot_side(kn__text *out, const kn__explain *e, int side) {
    const kn__explain_graph *g = &e->side[side];
    kn__text title = {0};
    kn__explain_summary(&title, e, side, ", ");
    kn__text_printf(out, "  subgraph cluster_s%d {\n    label=", side);
    kn__text_json(out, title.data ? title.data : "");
    kn__text_puts(out, ";\n");
    kn__text_release(&title);
    for (int b = 0, i = 0; b < g->n_blocks; b++) {
        kn__text path = {0};
        kn__text_puts(&path, g->block[b].path);
        if (g->block[b].times > 1) kn__text_printf(&path, " (%d)", g->block[b].times);
        kn__text_printf(out, "    subgraph cluster_s%db%d {\n      color=gray; label=", side, b);
        kn__text_json(out, path.data ? path.data : "");
        kn__text_puts(out, ";\n");
        kn__text_release(&path);
        for (; i < g->n_nodes && g->node[i].block == b; i++) dot_node(out, side, i, &g->node[i]);
        kn__text_puts(out, "    }\n");
    }
    for (int i = 0; i < g->n_edges; i++)
        kn__text_printf(out, "    s%dn%d -> s%dn%d;\n", side, g->edge[i].from, side, g->edge[i].to);
    kn__text_puts(out, "  }\n");
}

void kn__explain_dot(kn__text *out, const kn__explain *e) {
    kn__text_puts(out, "digraph step {\n  label=");
    kn__text_json(out, e->title);
    kn__text_puts(out, ";\n  node [shape=box, style=filled, fontname=\"sans-serif\"];\n");
    for (int side = 0; side < e->n_sides; side++) dot_side(out, e, side);
    kn__text_puts(out, "}\n");
}

/* --- JSON --- */

static void json_node(kn__text *out, const kn__explain_graph *g, int i) {
    const kn__explain_node *n = &g->node[i];
    kn__text_printf(out, "{\"id\":%d,\"name\":", i);
    kn__text_json(out, n->event->name);
    kn__text_printf(out, ",\"ops\":%d,\"phase\":\"%s\",\"block\":%d,\"kernels\":%d",
                    n->event->n_ops, kn__explain_phase_names[n->event->phase], n->block,
                    n->n_events);
    kn__text_printf(out, ",\"ns\":%" PRIu64 ",\"moved_bytes\":%" PRIu64 ",\"flops\":%" PRIu64,
                    n->ns, n->moved_bytes, n->flops);
    kn__text_puts(out, ",\"where\":");
    if (n->event->where[0])
        kn__text_json(out, n->event->where);
    else
        kn__text_puts(out, "null");
    kn__text_puts(out, ",\"inputs\":[");
    for (int k = 0, some = 0; k < g->n_edges; k++)
        if (g->edge[k].to == i) kn__text_printf(out, some++ ? ",%d" : "%d", g->edge[k].from);
    kn__text_puts(out, "]}");
}

void kn__explain_json(kn__text *out, const kn__explain *e) {
    for (int side = 0; side < e->n_sides; side++) {
        const kn__explain_graph *g = &e->side[side];
        kn__text_printf(out, ",\"%s\":{\"kernels\":%d,\"step_ns\":%" PRIu64, name_of(side),
                        g->run->n_events, g->run->step_ns);
        kn__text_printf(out, ",\"moved_bytes\":%" PRIu64 ",\"live_bytes_max\":%" PRIu64,
                        g->moved_bytes, g->run->live_bytes_max);
        if (g->run->plan_bytes)
            kn__text_printf(out, ",\"plan_bytes\":%" PRIu64, g->run->plan_bytes);
        kn__text_puts(out, ",\"blocks\":[");
        for (int b = 0; b < g->n_blocks; b++) {
            kn__text_puts(out, b ? ",{\"scope\":" : "{\"scope\":");
            kn__text_json(out, g->block[b].path);
            kn__text_printf(out, ",\"times\":%d}", g->block[b].times);
        }
        kn__text_puts(out, "],\"nodes\":[");
        for (int i = 0; i < g->n_nodes; i++) {
            if (i) kn__text_puts(out, ",\n");
            json_node(out, g, i);
        }
        kn__text_puts(out, "]}");
    }
}
