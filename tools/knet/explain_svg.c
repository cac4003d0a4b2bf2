/* The graph as a picture: a row for each block of the model, its forward kernels on the left and
 * its backward ones on the right. Data flows down on the left, across where a gradient needs it,
 * and up on the right. The step before fusion is left of the one after, and that is left of the
 * captured one. */
#include <stdio.h>
#include <string.h>

#include "explain.h"
#include "units.h"

enum {
    GUTTER = 56, /* for edges past other rows */
    BOX = 318,
    MIDDLE = 36,
    LINE = 17,
    HEAD = 22,
    GAP = 26,
    TOP = 92,
    PANEL = 2 * GUTTER + 2 * BOX + MIDDLE,
    ROWS_MAX = 512,
    NAME_COLUMNS = 25,
};

typedef struct box {
    int n; /* nodes; 0: there is no box */
    int x, y, height;
} box;

typedef struct panel {
    const kn__explain_graph *g;
    uint64_t ns_max; /* of a node */
    int x;
    box box[ROWS_MAX][2]; /* forward; backward and update */
    int n_rows, height;
} panel;

static int lane_of(const kn__explain_node *n) {
    return n->event->phase == KN__EXPLAIN_FORWARD ? 0 : 1;
}

/* --- places --- */

static void panel_place(panel *p, const kn__explain_graph *g, int x) {
    *p = (panel){.g = g, .x = x};
    p->n_rows = g->n_blocks < ROWS_MAX ? g->n_blocks : ROWS_MAX;
    for (int i = 0; i < g->n_nodes; i++) {
        if (g->node[i].block < p->n_rows) p->box[g->node[i].block][lane_of(&g->node[i])].n++;
        if (g->node[i].ns > p->ns_max) p->ns_max = g->node[i].ns;
    }
    int y = TOP;
    for (int r = 0; r < p->n_rows; r++) {
        int most = 0;
        for (int lane = 0; lane < 2; lane++) {
            box *b = &p->box[r][lane];
            b->x = x + GUTTER + lane * (BOX + MIDDLE);
            b->y = y;
            b->height = HEAD + b->n * LINE + 6;
            if (b->n > most) most = b->n;
        }
        y += HEAD + most * LINE + 6 + GAP;
    }
    p->height = y;
}

/* --- text --- */

static void text_at(kn__text *out, int x, int y, const char *kind, const char *text) {
    kn__text_printf(out, "<text x=\"%d\" y=\"%d\" class=\"%s\">", x, y, kind);
    kn__text_xml(out, text);
    kn__text_puts(out, "</text>\n");
}

/* "sigm+sigm+mul+… ×50" */
static void name_shown(char *out, size_t out_bytes, const kn__explain_node *n) {
    char times[16] = "";
    if (n->n_events > 1) snprintf(times, sizeof times, " ×%d", n->n_events);
    int room = NAME_COLUMNS - (int)strlen(times), length = (int)strlen(n->event->name);
    if (length <= room)
        snprintf(out, out_bytes, "%s%s", n->event->name, times);
    else
        snprintf(out, out_bytes, "%.*s…%s", room - 1, n->event->name, times);
}

/* --- boxes --- */

static void node_draw(kn__text *out, const panel *p, const kn__explain_node *n, int x, int y) {
    char name[KN__EXPLAIN_NAME + 32];
    int width = p->ns_max ? (int)((double)(BOX - 2) * (double)n->ns / (double)p->ns_max) : 0;
    kn__text_puts(out, "<g><title>");
    kn__text_xml(out, n->event->name);
    if (n->event->where[0]) kn__text_printf(out, " (%s)", n->event->where);
    kn__text_puts(out, "</title>\n");
    kn__text_printf(out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" class=\"%s\"/>\n",
                    x + 1, y, width, LINE - 1,
                    n->event->n_ops > 1 ? "fused"
                    : lane_of(n)        ? "late"
                                        : "time");
    name_shown(name, sizeof name, n);
    text_at(out, x + 7, y + LINE - 5, n->event->n_ops > 1 ? "name strong" : "name", name);
    text_at(out, x + BOX - 78, y + LINE - 5, "name end", kn__time_text((double)n->ns, false).text);
    text_at(out, x + BOX - 7, y + LINE - 5, "name end soft",
            kn__bytes_text((double)n->moved_bytes).text);
    kn__text_puts(out, "</g>\n");
}

static void row_draw(kn__text *out, const panel *p, int r) {
    const kn__explain_block *block = &p->g->block[r];
    char title[2 * KN__EXPLAIN_PATH + 16];
    snprintf(title, sizeof title, block->times > 1 ? "%s  ×%d" : "%s", block->path, block->times);
    for (int lane = 0; lane < 2; lane++) {
        const box *b = &p->box[r][lane];
        if (!b->n) continue;
        kn__text_printf(out,
                        "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"5\" "
                        "class=\"box %s\"/>\n",
                        b->x, b->y, BOX, b->height, lane ? "back" : "forward");
        text_at(out, b->x + 7, b->y + 15, "scope", title);
        int y = b->y + HEAD;
        for (int i = 0; i < p->g->n_nodes; i++) {
            const kn__explain_node *n = &p->g->node[i];
            if (n->block != r || lane_of(n) != lane) continue;
            node_draw(out, p, n, b->x, y);
            y += LINE;
        }
    }
}

/* --- edges between boxes --- */

static void arrow(kn__text *out, const char *kind, const char *path) {
    kn__text_printf(out, "<path d=\"%s\" class=\"edge %s\" marker-end=\"url(#tip)\"/>\n", path,
                    kind);
}

/* Beside the rows between: further out the more of them there are. */
static void arc_draw(kn__text *out, const panel *p, int lane, int from, int to) {
    const box *a = &p->box[from][lane], *b = &p->box[to][lane];
    int span = from < to ? to - from : from - to, out_by = 10 + 6 * (span < 7 ? span : 7);
    int x = lane ? a->x + BOX : a->x, side = lane ? x + out_by : x - out_by;
    int y_a = a->y + (lane ? 8 : a->height - 8), y_b = b->y + (lane ? b->height - 8 : 8);
    char path[160];
    snprintf(path, sizeof path, "M%d,%d C%d,%d %d,%d %d,%d", x, y_a, side, y_a, side, y_b, x, y_b);
    arrow(out, "far", path);
}

static void edge_draw(kn__text *out, const panel *p, int from, int from_lane, int to, int to_lane) {
    const box *a = &p->box[from][from_lane], *b = &p->box[to][to_lane];
    char path[96];
    if (from_lane != to_lane) { /* what a gradient reads; to other rows it would cross all */
        if (from != to || from_lane) return;
        int y = a->y + 14;
        snprintf(path, sizeof path, "M%d,%d L%d,%d", a->x + BOX, y, b->x - 2, y);
        arrow(out, "saved", path);
        return;
    }
    if (from == to || (from_lane == 0) != (from < to)) return; /* forward goes down, back goes up */
    int next = from;
    do next += from_lane ? -1 : 1;
    while (next != to && !p->box[next][from_lane].n);
    if (next != to) {
        arc_draw(out, p, from_lane, from, to);
        return;
    }
    int x = a->x + BOX / 2;
    snprintf(path, sizeof path, "M%d,%d L%d,%d", x, from_lane ? a->y : a->y + a->height, x,
             from_lane ? b->y + b->height + 2 : b->y - 2);
    arrow(out, "near", path);
}

/* One for each pair of boxes. */
static void edges_draw(kn__text *out, const panel *p) {
    static unsigned char seen[ROWS_MAX * 2][ROWS_MAX * 2 / 8];
    memset(seen, 0, sizeof seen);
    for (int i = 0; i < p->g->n_edges; i++) {
        const kn__explain_node *a = &p->g->node[p->g->edge[i].from],
                               *b = &p->g->node[p->g->edge[i].to];
        if (a->block >= p->n_rows || b->block >= p->n_rows) continue;
        int from = 2 * a->block + lane_of(a), to = 2 * b->block + lane_of(b);
        unsigned char *byte = &seen[from][to / 8], bit = (unsigned char)(1 << to % 8);
        if (from == to || *byte & bit) continue;
        *byte |= bit;
        edge_draw(out, p, a->block, lane_of(a), b->block, lane_of(b));
    }
}

static const char style[] =
    "<style>text{font:12px ui-monospace,'DejaVu Sans Mono',monospace;fill:#1c2733}"
    ".title{font:bold 17px sans-serif}.side{font:bold 13px sans-serif}"
    ".lane{font:12px sans-serif;fill:#5b6875}.scope{font:bold 12px sans-serif}"
    ".end{text-anchor:end}.soft{fill:#5b6875}.strong{font-weight:bold}"
    ".box{stroke:#8d9aa6;fill:#f4f8fc}.back{fill:#fdf6ef}"
    ".time{fill:#bcd6ee}.late{fill:#f8d3ae}.fused{fill:#9fd8b4}"
    ".edge{fill:none;stroke:#44525f;stroke-width:1.3}.far{stroke:#8057a8}"
    ".saved{stroke-dasharray:4 3;stroke:#8d9aa6}</style>\n"
    "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" "
    "markerHeight=\"7\" orient=\"auto\"><path d=\"M0,0 L8,4 L0,8 z\" fill=\"#44525f\"/></marker>"
    "</defs>\n";

static void panel_draw(kn__text *out, const panel *p, const kn__explain *e, int side) {
    kn__text summary = {0};
    kn__explain_summary(&summary, e, side, ", ");
    text_at(out, p->x + GUTTER, 56, "side", summary.data ? summary.data : "");
    kn__text_release(&summary);
    text_at(out, p->x + GUTTER, 80, "lane", "forward, downwards");
    text_at(out, p->x + GUTTER + BOX + MIDDLE, 80, "lane", "backward, upwards; update");
    edges_draw(out, p);
    for (int r = 0; r < p->n_rows; r++) row_draw(out, p, r);
}

void kn__explain_svg(kn__text *out, const kn__explain *e) {
    static panel p[KN__EXPLAIN_SIDES];
    int width = e->n_sides * PANEL, height = 0;
    for (int side = 0; side < e->n_sides; side++) {
        panel_place(&p[side], &e->side[side], side * PANEL);
        if (p[side].height + 10 > height) height = p[side].height + 10;
    }
    kn__text_printf(out,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                    "viewBox=\"0 0 %d %d\">\n<rect width=\"100%%\" height=\"100%%\" "
                    "fill=\"white\"/>\n%s",
                    width, height, width, height, style);
    text_at(out, GUTTER, 28, "title", e->title);
    for (int side = 0; side < e->n_sides; side++) panel_draw(out, &p[side], e, side);
    kn__text_puts(out, "</svg>\n");
}
