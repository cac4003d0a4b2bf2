#include "graph.h"

#include <pthread.h>

#include "budget.h"
#include "checked.h"

enum { SLOTS_MIN = 1 << 10, SLOTS_MAX = 2 * KN__GRAPH_NODES_MAX };

typedef struct slot {
    uint64_t key; /* the id's */
    kn__tree_node *scope;
    const void *graph;
    uint64_t dead_since; /* number of the sweep after which it was destroyed; 0: alive */
} slot;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects all below */
static kn__hash nodes;
static size_t n_dead;
static uint64_t n_lost, n_sweeps = 1;

static slot *slot_at(size_t i) { return kn__hash_at(&nodes, sizeof(slot), i); }

static slot *get(uint64_t id) { return kn__hash_get(&nodes, sizeof(slot), kn__spread(id)); }

static bool is_over(const slot *s) { return s->dead_since && s->dead_since + 2 <= n_sweeps; }

static bool make_room(void) {
    if (!kn__hash_is_full(&nodes)) return true;
    return nodes.n_slots < SLOTS_MAX && kn__budget_grow(&nodes, sizeof(slot), SLOTS_MIN);
}

static void insert(uint64_t id, kn__tree_node *scope, const void *graph) {
    if (!id) return;
    if (!make_room()) {
        n_lost++;
        return;
    }
    slot *s = kn__hash_put(&nodes, sizeof *s, kn__spread(id));
    n_dead -= s->dead_since != 0;
    *s = (slot){s->key, scope, graph, 0};
}

void kn__graph_created(uint64_t id, const void *graph) {
    const kn__tree *tree = kn__tree_get();
    if (!tree) return;
    pthread_mutex_lock(&lock);
    insert(id, tree->current, graph);
    pthread_mutex_unlock(&lock);
}

static kn__tree_node *scope_of(uint64_t id) {
    const slot *s = get(id);
    return s ? s->scope : NULL;
}

/* A graph may be copied on another thread and in another scope than it was captured. */
void kn__graph_cloned(uint64_t id, uint64_t original, const void *graph) {
    pthread_mutex_lock(&lock);
    kn__tree_node *scope = scope_of(original);
    if (scope) insert(id, scope, graph);
    pthread_mutex_unlock(&lock);
}

static void kill(slot *s) {
    if (s->dead_since) return;
    s->dead_since = n_sweeps;
    n_dead++;
    KN_ASSERT(n_dead <= nodes.n_used);
}

void kn__graph_node_destroyed(uint64_t id) {
    pthread_mutex_lock(&lock);
    slot *s = get(id);
    if (s) kill(s);
    pthread_mutex_unlock(&lock);
}

void kn__graph_move(const void *from, const void *to) {
    pthread_mutex_lock(&lock);
    for (size_t i = 0; from && i < nodes.n_slots; i++) {
        if (slot_at(i)->graph == from) slot_at(i)->graph = to;
    }
    pthread_mutex_unlock(&lock);
}

void kn__graph_destroyed(const void *graph) {
    pthread_mutex_lock(&lock);
    for (size_t i = 0; graph && i < nodes.n_slots; i++) {
        if (slot_at(i)->graph == graph) kill(slot_at(i));
    }
    pthread_mutex_unlock(&lock);
}

kn__tree_node *kn__graph_scope(uint64_t id) {
    pthread_mutex_lock(&lock);
    kn__tree_node *scope = scope_of(id);
    pthread_mutex_unlock(&lock);
    return scope;
}

static void remove_over(slot *s) {
    while (s->key && is_over(s)) {
        KN_ASSERT(n_dead);
        kn__hash_remove(&nodes, sizeof *s, s);
        n_dead--;
    }
}

void kn__graph_sweep(void) {
    pthread_mutex_lock(&lock);
    n_sweeps++;
    bool worth_a_walk = 2 * n_dead > nodes.n_used;
    for (size_t i = 0; worth_a_walk && i < nodes.n_slots; i++) remove_over(slot_at(i));
    pthread_mutex_unlock(&lock);
}

uint64_t kn__graph_lost(void) {
    pthread_mutex_lock(&lock);
    uint64_t n = n_lost;
    pthread_mutex_unlock(&lock);
    return n;
}
