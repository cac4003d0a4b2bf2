/* Opening and closing scopes: the hot path. */
#include "tree.h"

#include <knet/prof_metric.h>
#include <string.h>

#include "checked.h"
#include "labels.h"
#include "memory.h"
#include "nvtx.h"
#include "report.h"
#include "scope.h"
#include "times.h"
#include "trace.h"

#define LIKELY(x) __builtin_expect(!!(x), 1)
_Atomic(uint32_t) kn__prof_extras;

/* A scope is two clock reads and what stands between them: reading the counter lets nothing else
 * overlap, so every instruction here shows. What only some runs need (memory, NVTX, another clock)
 * stands apart, so that the fast path calls nothing, saves no register and tests one pointer. */

static inline void enter(kn__tree *tree, kn__tree_node *parent, kn__tree_node *node) {
    KN_ASSERT(node->parent == parent && tree->current == parent && !node->start);
    parent->opened = node;
    tree->current = node;
}

/* The time is the opening's id: one thread never reads the same twice, and never 0. */
static inline kn_scope start_at(kn__tree_node *node, uint64_t now) {
    KN__STORE(node->start, now);
    return (kn_scope){now};
}

static inline kn_scope open_fast(kn__tree *tree, kn__tree_node *parent, kn__tree_node *node,
                                 uint64_t site) {
    enter(tree, parent, node);
    node->site = site;
    return start_at(node, kn__clock_tsc());
}

static kn_scope open_extra(kn__tree *tree, kn__tree_node *node, uint64_t site) {
    kn__tree_node *parent = node->parent;
    enter(tree, parent, node);
    node->site = site;
    KN__STORE(node->extras, (uint16_t)atomic_load_explicit(&kn__prof_extras, memory_order_relaxed));
    if (node->extras & KN__PROF_NVTX) kn__nvtx_push(node);
    if (node->extras & KN__PROF_MEM) kn__memory_enter(tree, node);
    uint64_t now = kn__clock_now();
    return start_at(node, now > parent->start ? now : parent->start + 1); /* a coarse clock */
}

static inline void count_call(kn__tree *tree, kn__tree_node *node, uint64_t spent) {
    double x = (double)(int64_t)spent;
    kn__node_times *times = node->times;
    KN__STORE(node->ticks, node->ticks + spent);
    KN__STORE(node->n_calls, node->n_calls + 1);
    if (times) {
        kn__times_count(times, spent);
    } else if (node->n_calls <= KN__TIMES_AFTER + 1) {
        kn__times_first(tree, node, spent);
    }
    x = x * x + atomic_load_explicit(&node->squares, memory_order_relaxed);
    atomic_store_explicit(&node->squares, x, memory_order_relaxed);
}

/* `start` is cleared before `ticks` grows: a reader that sees the new sum and the old start reads
 * `start` again and knows (take.c). */
static inline void add_call(kn__tree *tree, kn__tree_node *node, uint64_t spent) {
    KN_ASSERT(tree->current == node && node->start);
    tree->current = node->parent;
    KN__STORE(node->start, 0);
    count_call(tree, node, spent);
}

static void count_record(kn__tree *tree, kn__tree_node *node, uint64_t spent) {
    if (spent < node->ticks_min) KN__STORE(node->ticks_min, spent);
    if (spent > node->ticks_max) KN__STORE(node->ticks_max, spent);
    if (node->n_calls == 0) KN__STORE(node->ticks_first, spent);
    kn__times_cover(tree, node);
}

/* Counters of two sockets may differ. */
static uint64_t at_least_0(uint64_t spent) { return (int64_t)spent < 0 ? 0 : spent; }

__attribute__((noinline)) static void close_record(kn__tree *tree, kn__tree_node *node,
                                                   uint64_t spent) {
    spent = at_least_0(spent);
    count_record(tree, node, spent);
    add_call(tree, node, spent);
}

void kn__scope_add_call(kn__tree *tree, kn__tree_node *node, uint64_t spent) {
    spent = at_least_0(spent);
    count_record(tree, node, spent);
    count_call(tree, node, spent);
}

static inline void close_fast(kn__tree *tree, kn__tree_node *node, uint64_t now) {
    uint64_t spent = now - node->start;
    if (LIKELY(spent >= node->ticks_min && spent <= node->ticks_max)) {
        add_call(tree, node, spent);
    } else {
        close_record(tree, node, spent);
    }
}

static inline void close_node(kn__tree *tree, kn__tree_node *node, uint64_t now) {
    unsigned extras = node->extras;
    uint64_t start = node->start;
    if (extras & KN__PROF_MEM) kn__memory_leave(tree, node); /* a reader sees it open or counted */
    close_fast(tree, node, now);
    if (extras) KN__STORE(node->extras, 0);
    if (extras & KN__PROF_TRACE) kn__trace_scope(tree, node, start, now);
    if (extras & KN__PROF_NVTX) kn__nvtx_pop();
}

/* The sibling that followed the child opened last the time before. A program opens its scopes in
 * much the same order again and again, so it is tried first. */
static inline kn__tree_node *guess(const kn__tree_node *parent) { return parent->opened->after; }

static inline bool has_text(const kn__tree_node *node, const char *label) {
    return !node->key && strcmp(node->label, label) == 0;
}

/* Not the innermost scope: one that others were left open in, or one that is closed already. */
static void close_down_to(kn__tree *tree, uint64_t start, uint64_t now) {
    kn__tree_node *target = tree->current;
    KN_ASSERT(start);
    while (target && target->start != start) target = target->parent;
    if (!target) return;
    kn__tree_node *outside = target->parent;
    while (tree->current != outside) close_node(tree, tree->current, now);
}

static inline bool is_of(const kn__tree_node *node, const char *key, const char *label) {
    return key ? node->key == key : has_text(node, label);
}

/* The same call at the same depth of the stack has opened this label, and it is still open: its
 * function was left by longjmp, as were those of the scopes inside it. Returns whether that is so.
 */
static bool close_abandoned(kn__tree *tree, const char *key, const char *label, uint64_t site) {
    const kn__tree_node *node = site ? tree->current : &tree->root;
    while (node->parent && (node->site != site || !is_of(node, key, label))) node = node->parent;
    if (node->parent) close_down_to(tree, node->start, kn__clock_now());
    return node->parent;
}

static bool is_inside(const kn__tree_node *node, const char *key, const char *label) {
    while (node->parent && !is_of(node, key, label)) node = node->parent;
    return node->parent;
}

/* At first sight: whether the address of the label is good enough a key. */
static kn__tree_node *make_child(kn__tree *tree, const char *key, const char *label, uint64_t site,
                                 bool has_where) {
    if (key && kn__label_may_vanish_new(label)) key = NULL;
    (void)close_abandoned(tree, key, label, site);
    kn__tree_node *node = kn__tree_child(tree, tree->current, key, label);
    if (!node) return NULL;
    if (has_where) kn__tree_place(tree, node, label + strlen(label) + 1);
    if (site) node->is_recursive = is_inside(node->parent, key, label);
    return node;
}

/* A block inside the same block has been seen before: this may be that again, or the outer one has
 * been abandoned meanwhile. */
static kn__tree_node *find_child(kn__tree *tree, const char *key, const char *label, uint64_t site,
                                 bool has_where) {
    if (key && kn__label_may_vanish(label)) key = NULL;
    if (!key && has_text(guess(tree->current), label)) return guess(tree->current);
    kn__tree_node *node = kn__tree_find(tree, tree->current, key, label);
    if (node && node->is_recursive && close_abandoned(tree, key, label, site))
        node = kn__tree_find(tree, tree->current, key, label);
    return node ? node : make_child(tree, key, label, site, has_where);
}

/* The guess was wrong, there are extras, or there is no tree yet. `key` as in kn__tree_child.
 * has_where: "file.c:12" follows the label. */
__attribute__((noinline)) static kn_scope open_slow(const char *key, const char *label,
                                                    uint64_t site, bool has_where) {
    kn_scope off = {0};
    kn__tree *tree = LIKELY(kn__tree_mine != NULL) ? kn__tree_mine : kn__tree_get();
    if (!tree) return off;
    kn__tree_node *parent = tree->current, *node = guess(parent);
    if (!is_of(node, key, label)) {
        node = find_child(tree, key, label, site, has_where);
        if (!node) return off;
        parent = node->parent;
        if (parent->opened->parent == parent && !node->is_recursive) parent->opened->after = node;
    }
    kn__tree_use(tree, node);
    return kn__tree_fast == tree ? open_fast(tree, parent, node, site)
                                 : open_extra(tree, node, site);
}

/* The return address and where the caller's stack was: the scope of a block is open once for both.
 */
#define CALL_SITE()                                                                                \
    ((uint64_t)(uintptr_t)__builtin_dwarf_cfa() << 32 ^                                            \
     (uint64_t)(uintptr_t)__builtin_return_address(0))

kn_scope kn_scope_begin_block_on_(const char *label) {
    kn__tree *tree = kn__tree_fast;
    kn__tree_node *parent = tree->current, *node = guess(parent);
    uint64_t site = CALL_SITE();
    if (LIKELY(node->key == label)) return open_fast(tree, parent, node, site);
    return open_slow(label, label, site, false);
}

kn_scope kn_scope_begin_here_on_(const char *label_where) {
    kn__tree *tree = kn__tree_fast;
    kn__tree_node *parent = tree->current, *node = guess(parent);
    uint64_t site = CALL_SITE();
    if (LIKELY(node->key == label_where)) return open_fast(tree, parent, node, site);
    return open_slow(label_where, label_where, site, true);
}

/* Any call may open any of these two: of a loop, of an interpreter. Their site says nothing. */
kn_scope kn_scope_begin_static_on_(const char *label) {
    kn__tree *tree = kn__tree_fast;
    kn__tree_node *parent = tree->current, *node = guess(parent);
    if (LIKELY(node->key == label)) return open_fast(tree, parent, node, 0);
    return open_slow(label, label, 0, false);
}

kn_scope kn_scope_begin_on_(const char *label) {
    kn__tree *tree = kn__tree_fast;
    kn__tree_node *parent = tree->current, *node = guess(parent);
    if (LIKELY(has_text(node, label))) return open_fast(tree, parent, node, 0);
    return open_slow(NULL, label, 0, false);
}

/* kn_scope_begin_on_, with the place in the source after the label's zero byte. */
kn_scope kn_scope_begin_copied_on_(const char *label_where) {
    kn__tree *tree = kn__tree_fast;
    kn__tree_node *parent = tree->current, *node = guess(parent);
    if (LIKELY(has_text(node, label_where))) return open_fast(tree, parent, node, 0);
    return open_slow(NULL, label_where, 0, true);
}

/* `now` is the counter's: read once, since reading it takes as long as the rest of a scope. */
__attribute__((noinline)) static void end_slow(uint64_t start, uint64_t now) {
    if (kn__clock_used != KN__CLOCK_TSC) now = kn__clock_monotonic_ns();
    kn__tree *tree = kn__tree_mine;
    if (!tree) return;
    kn__tree_node *node = tree->current;
    if (LIKELY(node->start == start)) {
        close_node(tree, node, now);
    } else {
        close_down_to(tree, start, now);
    }
}

/* The root is never open, so a scope that is can't be it. */
void kn_scope_end_on_(kn_scope *scope) {
    kn__tree *tree = kn__tree_fast;
    uint64_t now = kn__clock_tsc(), start = scope->start;
    kn__tree_node *node = tree->current;
    if (LIKELY(node->start == start)) {
        close_fast(tree, node, now);
        return;
    }
    end_slow(start, now);
}

void kn_prof_metric_on_(uint64_t flops, uint64_t moved_bytes) {
    kn__tree *tree = kn__tree_mine;
    kn__tree_node *node = tree ? tree->current : NULL;
    if (!node || !node->parent) return;
    KN__STORE(node->flops, kn__sum_u64(node->flops, flops));
    KN__STORE(node->moved_bytes, kn__sum_u64(node->moved_bytes, moved_bytes));
}

void kn__scope_end_key(const char *key) {
    kn__tree *tree = kn__tree_mine;
    const kn__tree_node *node = tree ? tree->current : NULL;
    if (!node || !node->parent) return;
    if (node->key == key || (!node->key && strcmp(node->label, key) == 0)) {
        close_node(tree, tree->current, kn__clock_now());
    }
}

void kn__scope_close_all(kn__tree *tree) {
    uint64_t now = kn__clock_now();
    while (tree->current->parent) close_node(tree, tree->current, now);
}
