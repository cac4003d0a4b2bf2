/* Events in blocks, and blocks that repeat each other in one. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "explain.h"
#include "mix.h"

typedef struct group { /* a scope, before repeated ones are joined */
    char path[KN__EXPLAIN_PATH];
    uint64_t kernels; /* hash of its events */
    int same_as;      /* the block it is drawn in */
} group;

typedef struct grouping {
    const kn__explain_run *run;
    group *group;
    int *of; /* each event's group */
    int n_groups;
    int *first, *times; /* of each block: its first group, how many groups it is */
    int n_blocks;
} grouping;

/* --- scopes up to a depth --- */

static void path_cut(char out[KN__EXPLAIN_PATH], const char *path, int depth) {
    size_t n = 0;
    for (; path[n] && (path[n] != '/' || --depth > 0); n++) out[n] = path[n];
    out[n] = 0;
}

static int depth_most(const kn__explain_run *run) {
    int most = 1;
    for (int i = 0; i < run->n_events; i++) {
        int depth = 1;
        for (const char *c = run->event[i].path; *c; c++) depth += *c == '/';
        if (depth > most) most = depth;
    }
    return most;
}

static uint64_t hash(uint64_t h, const char *text, int phase) {
    return kn__fnv_step(kn__fnv_text(h, text), (unsigned)phase);
}

/* Events outside of the model's scopes: before all of them, after, or between. */
static const char *outside(const grouping *g, int i) {
    const kn__explain_event *e = g->run->event;
    int scoped = i;
    if (e[i].phase == KN__EXPLAIN_FORWARD) {
        while (scoped >= 0 && !e[scoped].path[0]) scoped--;
        if (scoped < 0) return "input";
        for (scoped = i; scoped < g->run->n_events; scoped++)
            if (e[scoped].path[0] || e[scoped].phase != KN__EXPLAIN_FORWARD) break;
    } else {
        while (scoped >= 0 && !e[scoped].path[0] && e[scoped].phase == e[i].phase) scoped--;
    }
    bool is_turn = scoped >= 0 && scoped < g->run->n_events && e[scoped].phase != e[i].phase;
    return is_turn ? "loss" : "model";
}

/* In the order of first sight. */
static void groups_make(grouping *g, int depth) {
    g->n_groups = 0;
    for (int i = 0; i < g->run->n_events; i++) {
        const kn__explain_event *e = &g->run->event[i];
        char path[KN__EXPLAIN_PATH];
        path_cut(path, e->path[0] ? e->path : outside(g, i), depth);
        int k = 0;
        while (k < g->n_groups && strcmp(g->group[k].path, path) != 0) k++;
        if (k == g->n_groups) {
            g->n_groups++;
            memcpy(g->group[k].path, path, sizeof path);
            g->group[k].kernels = KN__FNV_START;
        }
        g->of[i] = k;
        g->group[k].kernels = hash(g->group[k].kernels, e->name, (int)e->phase);
    }
}

/* --- repetitions --- */

/* "block12/fc" is like "block3/fc". */
static bool is_like(const group *a, const group *b) {
    const char *x = a->path, *y = b->path;
    if (a->kernels != b->kernels) return false;
    for (; *x && *y; x++, y++) {
        while (isdigit((unsigned char)*x)) x++;
        while (isdigit((unsigned char)*y)) y++;
        if (*x != *y) return false;
        if (!*x) return true;
    }
    while (isdigit((unsigned char)*x)) x++;
    while (isdigit((unsigned char)*y)) y++;
    return *x == *y;
}

/* How often the groups i … i + length - 1 repeat in a row. */
static int repeats(const grouping *g, int i, int length) {
    int times = 1;
    for (;; times++) {
        int at = i + times * length;
        if (at + length > g->n_groups) return times;
        for (int k = 0; k < length; k++) {
            if (!is_like(&g->group[i + k], &g->group[at + k])) return times;
        }
    }
}

static void blocks_make(grouping *g) {
    g->n_blocks = 0;
    for (int i = 0; i < g->n_groups;) {
        int length = 1, times = 1;
        for (int l = 1; i + 2 * l <= g->n_groups; l++) {
            int t = repeats(g, i, l);
            if (t > 1 && t * l > (times > 1 ? times * length : 1)) length = l, times = t;
        }
        for (int k = 0; k < length; k++) {
            g->first[g->n_blocks + k] = i + k;
            g->times[g->n_blocks + k] = times;
            for (int t = 0; t < times; t++) g->group[i + t * length + k].same_as = g->n_blocks + k;
        }
        g->n_blocks += length;
        i += times * length;
    }
}

static int last_of(const grouping *g, int block) {
    int last = g->first[block];
    for (int i = last; i < g->n_groups; i++)
        if (g->group[i].same_as == block) last = i;
    return last;
}

/* --- the graph --- */

/* "blocks/mlp0..3/fc": the numbers that differ. */
static void paths_join(char *out, size_t out_bytes, const char *a, const char *b) {
    size_t at = 0;
    while (*a && at + 32 < out_bytes) {
        const char *x = a, *y = b;
        while (isdigit((unsigned char)*x)) x++;
        while (isdigit((unsigned char)*y)) y++;
        int n_a = (int)(x - a), n_b = (int)(y - b);
        if (n_a == n_b && memcmp(a, b, (size_t)n_a) == 0)
            at += (size_t)snprintf(out + at, out_bytes - at, "%.*s", n_a, a);
        else
            at += (size_t)snprintf(out + at, out_bytes - at, "%.*s..%.*s", n_a, a, n_b, b);
        if (*x) out[at++] = *x++;
        if (*y) y++;
        a = x;
        b = y;
    }
    out[at] = 0;
}

static void block_fill(kn__explain_block *b, const grouping *g, int i) {
    b->times = g->times[i];
    paths_join(b->path, sizeof b->path, g->group[g->first[i]].path, g->group[last_of(g, i)].path);
}

static int by_block(const void *a, const void *b) {
    const kn__explain_node *x = a, *y = b;
    if (x->block != y->block) return x->block - y->block;
    if (x->event->phase != y->event->phase) return (int)x->event->phase - (int)y->event->phase;
    return (x->event > y->event) - (x->event < y->event);
}

static int node_find(const kn__explain_graph *graph, const kn__explain_event *e, int block) {
    for (int i = 0; i < graph->n_nodes; i++) {
        const kn__explain_node *n = &graph->node[i];
        if (n->block == block && n->event->phase == e->phase && !strcmp(n->event->name, e->name))
            return i;
    }
    return graph->n_nodes;
}

static void nodes_make(kn__explain_graph *graph, const grouping *g) {
    for (int i = 0; i < g->run->n_events; i++) {
        const kn__explain_event *e = &g->run->event[i];
        int at = node_find(graph, e, g->group[g->of[i]].same_as);
        kn__explain_node *n = &graph->node[at];
        if (at == graph->n_nodes) {
            *n = (kn__explain_node){.event = e, .block = g->group[g->of[i]].same_as};
            graph->n_nodes++;
        }
        n->n_events++;
        n->ns += e->ns;
        n->flops += e->flops;
        n->moved_bytes += e->moved_bytes;
        graph->moved_bytes += e->moved_bytes;
    }
    qsort(graph->node, (size_t)graph->n_nodes, sizeof *graph->node, by_block);
}

static int by_ends(const void *a, const void *b) {
    const kn__explain_edge *x = a, *y = b;
    return x->from != y->from ? x->from - y->from : x->to - y->to;
}

static void edges_make(kn__explain_graph *graph, const grouping *g) {
    for (int i = 0; i < g->run->n_events; i++) {
        const kn__explain_event *e = &g->run->event[i];
        int to = node_find(graph, e, g->group[g->of[i]].same_as);
        for (int k = 0; k < e->n_in; k++) {
            int maker = g->run->input[e->first_in + k];
            int from = node_find(graph, &g->run->event[maker], g->group[g->of[maker]].same_as);
            if (from != to) graph->edge[graph->n_edges++] = (kn__explain_edge){from, to};
        }
    }
    qsort(graph->edge, (size_t)graph->n_edges, sizeof *graph->edge, by_ends);
    int n = 0;
    for (int i = 0; i < graph->n_edges; i++)
        if (!n || by_ends(&graph->edge[n - 1], &graph->edge[i])) graph->edge[n++] = graph->edge[i];
    graph->n_edges = n;
}

kn_status kn__explain_group(kn__explain_graph *out, const kn__explain_run *run, int most) {
    size_t n = (size_t)run->n_events + 1;
    grouping g = {.run = run,
                  .group = malloc(n * sizeof *g.group),
                  .of = malloc(n * sizeof *g.of),
                  .first = malloc(n * sizeof *g.first),
                  .times = malloc(n * sizeof *g.times)};
    *out = (kn__explain_graph){.run = run,
                               .block = malloc(n * sizeof *out->block),
                               .node = malloc(n * sizeof *out->node),
                               .edge = malloc(((size_t)run->n_inputs + 1) * sizeof *out->edge)};
    bool has_room = g.group && g.of && g.first && g.times && out->block && out->node && out->edge;
    for (int depth = has_room ? depth_most(run) : 0; depth > 0; depth--) {
        groups_make(&g, depth);
        blocks_make(&g);
        if (g.n_blocks <= most) break;
    }
    if (has_room) {
        out->n_blocks = g.n_blocks;
        for (int i = 0; i < g.n_blocks; i++) block_fill(&out->block[i], &g, i);
        nodes_make(out, &g);
        edges_make(out, &g);
    }
    free(g.group);
    free(g.of);
    free(g.first);
    free(g.times);
    if (has_room) return KN_OK;
    kn__explain_graph_release(out);
    return KN_FAIL(KN_ERR_OOM, "no memory for a graph of %d events", run->n_events);
}

void kn__explain_graph_release(kn__explain_graph *graph) {
    free(graph->block);
    free(graph->node);
    free(graph->edge);
    *graph = (kn__explain_graph){.n_nodes = 0};
}
