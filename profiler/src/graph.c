#include "graph.h"

#include <pthread.h>
#include <stdlib.h>

#include "budget.h"
#include "mix.h"

enum { SLOTS_MIN = 1 << 10, SLOTS_MAX = 2 * KN__GRAPH_NODES_MAX };

typedef struct slot {
    uint64_t id; /* 0: free */
    kn__node *scope;
    const void *graph;
    uint64_t dead_since; /* number of the sweep after which it was destroyed; 0: alive */
} slot;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects all below */
static slot *slots;
static size_t n_slots, n_used, n_dead;
static uint64_t n_lost, n_sweeps = 1;

static slot *find(slot *in, size_t n, uint64_t id) {
    uint64_t h = id * KN__GOLDEN;
    for (size_t i = (size_t)(h ^ h >> 32) & (n - 1);; i = (i + 1) & (n - 1)) {
        if (!in[i].id || in[i].id == id) return &in[i];
    }
}

static bool is_over(const slot *s) { return s->dead_since && s->dead_since + 2 <= n_sweeps; }

/* Moves what is still of use to a table of `n` slots. */
static bool rebuild(size_t n) {
    slot *table = calloc(n, sizeof *table);
    if (!table) return false;
    size_t used = 0, dead = 0;
    for (size_t i = 0; i < n_slots; i++) {
        if (!slots[i].id || is_over(&slots[i])) continue;
        *find(table, n, slots[i].id) = slots[i];
        used++;
        dead += slots[i].dead_since != 0;
    }
    free(slots);
    slots = table;
    n_slots = n;
    n_used = used;
    n_dead = dead;
    return true;
}

static bool make_room(void) {
    if (2 * n_used < n_slots) return true;
    if (n_slots == SLOTS_MAX) return false;
    size_t n = n_slots ? 2 * n_slots : SLOTS_MIN;
    return kn__budget_take((n - n_slots) * sizeof *slots) && rebuild(n);
}

static void insert(uint64_t id, kn__node *scope, const void *graph) {
    if (!id) return;
    if (!make_room()) {
        n_lost++;
        return;
    }
    slot *s = find(slots, n_slots, id);
    n_used += !s->id;
    n_dead -= s->dead_since != 0;
    *s = (slot){id, scope, graph, 0};
}

void kn__graph_created(uint64_t id, const void *graph) {
    const kn__tree *tree = kn__tree_get();
    if (!tree) return;
    pthread_mutex_lock(&lock);
    insert(id, tree->current, graph);
    pthread_mutex_unlock(&lock);
}

static kn__node *scope_of(uint64_t id) { return n_slots ? find(slots, n_slots, id)->scope : NULL; }

/* A graph may be copied on another thread and in another scope than it was captured. */
void kn__graph_cloned(uint64_t id, uint64_t original, const void *graph) {
    pthread_mutex_lock(&lock);
    kn__node *scope = scope_of(original);
    if (scope) insert(id, scope, graph);
    pthread_mutex_unlock(&lock);
}

static void kill(slot *s) {
    if (!s->id || s->dead_since) return;
    s->dead_since = n_sweeps;
    n_dead++;
}

void kn__graph_node_destroyed(uint64_t id) {
    pthread_mutex_lock(&lock);
    if (n_slots) kill(find(slots, n_slots, id));
    pthread_mutex_unlock(&lock);
}

void kn__graph_move(const void *from, const void *to) {
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < n_slots; i++) {
        if (slots[i].id && slots[i].graph == from) slots[i].graph = to;
    }
    pthread_mutex_unlock(&lock);
}

void kn__graph_destroyed(const void *graph) {
    pthread_mutex_lock(&lock);
    for (size_t i = 0; graph && i < n_slots; i++) {
        if (slots[i].graph == graph) kill(&slots[i]);
    }
    pthread_mutex_unlock(&lock);
}

kn__node *kn__graph_scope(uint64_t id) {
    pthread_mutex_lock(&lock);
    kn__node *scope = scope_of(id);
    pthread_mutex_unlock(&lock);
    return scope;
}

void kn__graph_sweep(void) {
    pthread_mutex_lock(&lock);
    n_sweeps++;
    if (2 * n_dead > n_used) (void)rebuild(n_slots); /* none to be had: they stay a while longer */
    pthread_mutex_unlock(&lock);
}

uint64_t kn__graph_lost(void) {
    pthread_mutex_lock(&lock);
    uint64_t n = n_lost;
    pthread_mutex_unlock(&lock);
    return n;
}
