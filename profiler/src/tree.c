#include "tree.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "budget.h"
#include "cells.h"
#include "checked.h"
#include "scope.h"
#include "thread.h"
#include "trace.h"

_Static_assert(offsetof(kn__tree_node, opened) == 64 && offsetof(kn__tree_node, name) == 128,
               "hot fields of a node fill one cache line, warm fields the next");
_Static_assert(KN__DEPTH_MAX <= UINT8_MAX, "the depth of a node fits");

enum { CHUNK_NODES = 32, CHILDREN_MIN = 64, TEXT_CHUNK = 4096 };

/* Memory of a tree: nodes and label text, both only ever added to. */
typedef struct kn__tree_chunk {
    struct kn__tree_chunk *next;
    size_t used, size;
    _Alignas(64) unsigned char bytes[];
} chunk;

atomic_bool kn__forked;
_Thread_local kn__tree *kn__tree_mine __attribute__((tls_model("initial-exec")));
_Thread_local kn__tree *kn__tree_fast __attribute__((tls_model("initial-exec"))) = &kn__tree_none;

/* A guess that is never right: no label stands at this address, and a key says it is no text. */
static kn__tree_node never = {
    .key = (const char *)&never, .label = "", .after = &never, .opened = &never};
kn__tree kn__tree_none = {
    .current = &kn__tree_none.root,
    .root = {.key = (const char *)&never, .label = "", .after = &never, .opened = &never}};

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER; /* protects all below */
static kn__tree *all_trees, *idle_trees;
static uint64_t n_threads;
static pthread_key_t exit_key;
static bool have_exit_key;

static atomic_size_t n_nodes_all;
void (*kn__tree_on_first)(void);

void *kn__tree_bytes(kn__tree *tree, size_t size, size_t align) {
    chunk *c = tree->chunks;
    size_t at = c ? (c->used + align - 1) / align * align : 0;
    if (!c || at + size > c->size) {
        size_t room = CHUNK_NODES * sizeof(kn__tree_node);
        if (size > room) room = size;
        if (!kn__budget_take(sizeof *c + room)) return NULL;
        c = kn__budget_alloc(sizeof *c + room);
        if (!c) return NULL;
        *c = (chunk){.next = tree->chunks, .size = room};
        tree->chunks = c;
        at = 0;
    }
    KN_ASSERT(at % align == 0 && at + size <= c->size);
    c->used = at + size;
    return c->bytes + at;
}

static bool is_text(const char *key) { return !key || key == KN__RANGE_KEY; }

static uint64_t key_of(const kn__tree_node *parent, const char *key, const char *label) {
    uint64_t of = (uintptr_t)parent + (key == KN__RANGE_KEY);
    return is_text(key) ? kn__hash_text(of, label) : kn__hash_pair(of, (uintptr_t)key);
}

static bool is_child(const kn__tree_node *node, const kn__tree_node *parent, const char *key,
                     const char *label) {
    return node->parent == parent && node->key == key &&
           (!is_text(key) || strcmp(node->label, label) == 0);
}

/* The child's slot, or the free one where it belongs. */
static kn__child *find_child(const kn__tree *tree, const kn__tree_node *parent, const char *key,
                             const char *label) {
    kn__child *at = kn__hash_find(&tree->children, sizeof *at, key_of(parent, key, label));
    while (at->key && !is_child(at->node, parent, key, label)) {
        at = kn__hash_after(&tree->children, sizeof *at, at);
    }
    return at;
}

static kn__tree_node *make_node(kn__tree *tree, kn__tree_node *parent, const char *key,
                                const char *label) {
    KN_ASSERT(parent->depth < KN__DEPTH_MAX);
    size_t length = strlen(label) + 1;
    kn__tree_node *node = kn__tree_bytes(tree, sizeof *node, 64);
    char *copy = node ? kn__tree_bytes(tree, length, 1) : NULL;
    if (!copy) return NULL;
    memset(node, 0, sizeof *node);
    memcpy(copy, label, length);
    node->key = key;
    node->label = copy;
    node->parent = parent;
    node->depth = (uint8_t)(parent->depth + 1);
    node->after = node->opened = &never;
    node->first_start = kn__clock_now();
    node->ticks_min = UINT64_MAX;
    return node;
}

static void append_child(kn__tree_node *parent, kn__tree_node *node) {
    kn__tree_node **link = parent->last_child ? &parent->last_child->next : &parent->first_child;
    KN_ASSERT(!*link && node->parent == parent);
    KN__STORE(*link, node);
    parent->last_child = node;
}

static kn__tree_node *count_unrecorded(kn__tree *tree) {
    KN__STORE(tree->n_unrecorded, tree->n_unrecorded + 1);
    return NULL;
}

kn__tree_node *kn__tree_find(const kn__tree *tree, const kn__tree_node *parent, const char *key,
                             const char *label) {
    return tree->children.n_slots ? find_child(tree, parent, key, label)->node : NULL;
}

kn__tree_node *kn__tree_child(kn__tree *tree, kn__tree_node *parent, const char *key,
                              const char *label) {
    if (kn__hash_is_full(&tree->children) &&
        !kn__budget_grow(&tree->children, sizeof(kn__child), CHILDREN_MIN)) {
        return count_unrecorded(tree);
    }
    kn__child *at = find_child(tree, parent, key, label);
    if (at->key) return at->node;
    if (parent->depth >= KN__DEPTH_MAX || atomic_load(&n_nodes_all) >= KN__NODES_MAX) {
        return count_unrecorded(tree);
    }
    kn__tree_node *node = make_node(tree, parent, key, label);
    if (!node) return count_unrecorded(tree);
    atomic_fetch_add(&n_nodes_all, 1);
    kn__hash_use(&tree->children, at, key_of(parent, key, label));
    at->node = node;
    append_child(parent, node);
    return node;
}

void kn__tree_place(kn__tree *tree, kn__tree_node *node, const char *where) {
    size_t length = strlen(where) + 1;
    char *copy = node->where ? NULL : kn__tree_bytes(tree, length, 1);
    if (copy) KN__STORE(node->where, memcpy(copy, where, length));
}

/* No scope is open. */
static void count_thread(kn__tree *tree) {
    for (kn__tree_node *node = tree->used, *next; node != &tree->root; node = next) {
        next = node->next_used;
        KN__STORE(node->n_calls_before, node->n_calls);
        KN__STORE(node->n_threads, node->n_threads + 1);
        node->next_used = NULL;
        node->opened = node->after = &never;
    }
    tree->used = &tree->root;
    tree->root.opened = &never;
}

static void leave_thread(void *arg) {
    kn__tree *tree = arg;
    if (atomic_load(&kn__forked)) return;
    kn__scope_close_all(tree);
    count_thread(tree);
    kn__trace_flush(tree);
    KN_ASSERT(tree->current == &tree->root); /* the next thread starts at the top */
    kn__tree_mine = NULL;
    kn__tree_fast = &kn__tree_none;
    pthread_mutex_lock(&registry_lock);
    tree->next_idle = idle_trees;
    idle_trees = tree;
    pthread_mutex_unlock(&registry_lock);
}

static kn__tree *make_tree(void) {
    kn__tree *tree = kn__budget_alloc(sizeof *tree);
    if (!tree) return NULL;
    memset(tree, 0, sizeof *tree);
    tree->root.label = "";
    tree->current = tree->used = &tree->root;
    tree->root.after = tree->root.opened = &never;
    return tree;
}

/* This thread is one of n_threads: it may end more than once, since destructors open scopes too. */
static _Thread_local bool is_counted;

/* Under the lock. */
static kn__tree *adopt_tree(void) {
    if (!have_exit_key && pthread_key_create(&exit_key, leave_thread) != 0) return NULL;
    have_exit_key = true;
    kn__tree *tree = idle_trees;
    if (tree) {
        KN_ASSERT(tree->current == &tree->root);
        idle_trees = tree->next_idle;
    } else {
        tree = make_tree();
        if (!tree) return NULL;
        tree->next = all_trees;
        all_trees = tree;
    }
    n_threads += !is_counted;
    return tree;
}

static kn__tree *enter_thread(void) {
    pthread_mutex_lock(&registry_lock);
    kn__tree *tree = adopt_tree();
    bool is_first = tree && !is_counted && n_threads == 1;
    pthread_mutex_unlock(&registry_lock);
    if (!tree) return NULL;
    is_counted = true;
    KN__STORE(tree->tid, (long)gettid());
    pthread_setspecific(exit_key, tree);
    kn__tree_mine = tree;
    if (!atomic_load(&kn__prof_extras)) kn__tree_fast = tree;
    if (is_first && kn__tree_on_first) kn__tree_on_first();
    return tree;
}

/* Starting a thread takes long, under the lock of the page: a handler that exits runs after it. */
kn__tree *kn__tree_get(void) {
    if (kn__tree_mine) return kn__tree_mine;
    if (atomic_load(&kn__forked)) return NULL;
    KN__SIGNALS_LATER();
    return enter_thread();
}

kn__tree *kn__tree_first(void) {
    pthread_mutex_lock(&registry_lock);
    kn__tree *tree = all_trees;
    pthread_mutex_unlock(&registry_lock);
    return tree;
}

static const kn__tree_node *open_child(const kn__tree_node *node) {
    const kn__tree_node *child = KN__LOAD(node->first_child);
    while (child && !KN__LOAD(child->start)) child = KN__LOAD(child->next);
    return child;
}

int kn__tree_open(kn__trace_event *out, const kn__tree *tree) {
    const kn__tree_node *chain[KN__DEPTH_MAX], *node = open_child(&tree->root);
    int n = 0, n_open = 0;
    for (; node && n < KN__DEPTH_MAX; node = open_child(node)) chain[n++] = node;
    uint64_t now = kn__clock_now();
    while (n--) {
        uint64_t start = KN__LOAD(chain[n]->start);
        if (start)
            out[n_open++] = (kn__trace_event){&chain[n]->name, start, now > start ? now : start};
    }
    return n_open;
}

uint64_t kn__tree_threads(void) {
    pthread_mutex_lock(&registry_lock);
    uint64_t n = n_threads;
    pthread_mutex_unlock(&registry_lock);
    return n;
}

void kn__node_path(char *out, size_t out_bytes, const kn__tree_node *node) {
    size_t at = kn__path_start(out, out_bytes);
    for (const kn__tree_node *of = node; kn__node_in_path(of); of = of->parent) {
        if (!kn__path_prepend(out, &at, of->label, of == node)) break;
    }
    kn__path_finish(out, out_bytes, at);
}
