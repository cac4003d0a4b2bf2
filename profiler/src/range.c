/* Ranges that any thread may end: the one that does adds the call to its own tree, at the path
 * where the range began, since reports merge trees by path. */
#include <knet/prof_range.h>

#include "open_ranges.h"
#include "scope.h"
#include "trace.h"

static kn__tree_node *child_of(kn__tree *tree, kn__tree_node *parent, const char *key,
                               const char *label) {
    kn__tree_node *child = kn__tree_find(tree, parent, key, label);
    return child ? child : kn__tree_child(tree, parent, key, label);
}

/* The range of the same path in another tree; NULL: there is no room. */
static kn__tree_node *same_in(kn__tree *tree, const kn__tree_node *range) {
    const kn__tree_node *path[KN__DEPTH_MAX];
    int n = 0;
    for (const kn__tree_node *at = range->parent; at->parent; at = at->parent) path[n++] = at;
    kn__tree_node *same = &tree->root;
    while (n && same) same = child_of(tree, same, NULL, path[--n]->label);
    return same ? child_of(tree, same, KN__RANGE_KEY, range->label) : NULL;
}

uint64_t kn_prof_range_begin_on_(const char *label) {
    kn__tree *tree = kn__tree_get();
    kn__tree_node *node = tree ? child_of(tree, tree->current, KN__RANGE_KEY, label) : NULL;
    if (!node) return 0;
    uint64_t id = kn__open_ranges_add((kn__open_range){node, tree, kn__clock_now()});
    if (!id) KN__STORE(tree->n_unrecorded, tree->n_unrecorded + 1);
    return id;
}

void kn_prof_range_end_on_(uint64_t range) {
    uint64_t now = kn__clock_now();
    kn__open_range ended;
    if (atomic_load(&kn__forked) || !kn__open_ranges_remove(&ended, range)) return;
    kn__tree *tree = kn__tree_get();
    if (!tree) return;
    kn__tree_node *node = tree == ended.tree ? ended.node : same_in(tree, ended.node);
    if (!node) return;
    kn__tree_use(tree, node);
    kn__scope_add_call(tree, node, now - ended.start);
    kn__trace_scope(tree, node, ended.start, now | KN__TRACE_RANGE);
}
