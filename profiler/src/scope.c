/* Opening and closing scopes: the hot path. */
#include "tree.h"

#include <string.h>

#include "memory.h"
#include "nvtx.h"
#include "scope.h"

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define LOAD(field) atomic_load_explicit(&(field), memory_order_relaxed)
#define STORE(field, value) atomic_store_explicit(&(field), (value), memory_order_relaxed)

int kn_prof_on_;

static int prof_bits(void) { return __atomic_load_n(&kn_prof_on_, __ATOMIC_RELAXED); }

static kn_scope open_node(kn__tree *tree, kn__node *node) {
    if (++tree->serial == 0) tree->serial = 1; /* 0 means "off" */
    node->serial = tree->serial;
    tree->current = node;
    int bits = prof_bits();
    if (bits & KN__PROF_NVTX) kn__nvtx_push(node);
    if (bits & KN__PROF_MEM) kn__memory_enter(tree, node);
    kn_scope scope = {node->depth, node->serial};
    STORE(node->start, kn__clock_now());
    return scope;
}

/* `start` is cleared before `ticks` grows: a reader that sees the new sum and the old start reads
 * `start` again and knows (report.c). */
static void close_node(kn__tree *tree, kn__node *node, uint64_t now) {
    uint64_t spent = now - LOAD(node->start);
    if ((int64_t)spent < 0) spent = 0; /* counters of two sockets may differ a little */
    uint64_t n = LOAD(node->n_calls);
    atomic_store_explicit(&node->start, 0, memory_order_release);
    atomic_store_explicit(&node->ticks, LOAD(node->ticks) + spent, memory_order_release);
    STORE(node->n_calls, n + 1);
    if (spent < LOAD(node->ticks_min)) STORE(node->ticks_min, spent);
    if (spent > LOAD(node->ticks_max)) STORE(node->ticks_max, spent);
    if (n == 0) STORE(node->ticks_first, spent);
    tree->current = node->parent;
    if (node->has_window) kn__memory_leave(tree, node);
    if (node->has_range) kn__nvtx_pop(node);
}

/* Remembers the order of siblings, so that the next round of a loop guesses right. */
static kn__node *follow(kn__node *parent, kn__node *node) {
    parent->guess = node->after;
    parent->last = node;
    return node;
}

static kn__node *learn(kn__node *parent, kn__node *node) {
    if (!node) return NULL;
    if (parent->last) parent->last->after = node;
    return follow(parent, node);
}

kn_scope kn_scope_begin_static_on_(const char *label) {
    kn_scope off = {0, 0};
    kn__tree *tree = LIKELY(kn__tree_mine != NULL) ? kn__tree_mine : kn__tree_get();
    if (!tree) return off;
    kn__node *parent = tree->current, *node = parent->guess;
    if (LIKELY(node && node->key == label)) return open_node(tree, follow(parent, node));
    node = learn(parent, kn__tree_child(tree, parent, label, label));
    return node ? open_node(tree, node) : off;
}

kn_scope kn_scope_begin_on_(const char *label) {
    kn_scope off = {0, 0};
    kn__tree *tree = LIKELY(kn__tree_mine != NULL) ? kn__tree_mine : kn__tree_get();
    if (!tree) return off;
    if (!label) label = "(null)";
    kn__node *parent = tree->current, *node = parent->guess;
    if (LIKELY(node && !node->key && strcmp(node->label, label) == 0)) {
        return open_node(tree, follow(parent, node));
    }
    node = learn(parent, kn__tree_child(tree, parent, NULL, label));
    return node ? open_node(tree, node) : off;
}

/* Not the innermost scope: one that others were left open in, or one that is closed already. */
static void close_down_to(kn__tree *tree, const kn_scope *scope, uint64_t now) {
    kn__node *target = tree->current;
    while (target->depth > scope->depth) target = target->parent;
    if (target->depth != scope->depth || target->serial != scope->serial) return;
    kn__node *outside = target->parent;
    while (tree->current != outside) close_node(tree, tree->current, now);
}

void kn_scope_end_on_(kn_scope *scope) {
    uint64_t now = kn__clock_now();
    kn__tree *tree = kn__tree_mine;
    if (!tree) return;
    kn__node *node = tree->current;
    if (LIKELY(node->serial == scope->serial && node->parent)) {
        close_node(tree, node, now);
    } else {
        close_down_to(tree, scope, now);
    }
}

void kn__scope_end_key(const char *key) {
    kn__tree *tree = kn__tree_mine;
    if (tree && tree->current->parent && tree->current->key == key) {
        close_node(tree, tree->current, kn__clock_now());
    }
}

void kn__scope_close_all(kn__tree *tree) {
    uint64_t now = kn__clock_now();
    while (tree->current->parent) close_node(tree, tree->current, now);
}
